# SPDX-License-Identifier: Apache-2.0
"""The auditor: run a mechanism on neighbouring tables, and bound its privacy loss from below.

    search   every pair of tables, few runs: scores are learnt on one half, the most telling
             thresholds chosen on the other
    test     the few most telling events on fresh runs, many of them; only these count

The bound that is shown holds with 99.9% (Clopper-Pearson, divided by the events that are tested).
A claim counts as refuted only where the bound at one chance in 10^9 exceeds it, so that a sound
mechanism fails about once in 10^9 audits, and a failure is a finding.

Outputs are rows of numbers, one row per run; a number that was not released is NaN. From runs on
both tables several *scores* are learnt, each an estimate of the log-likelihood ratio:

    independent   a histogram of every number by itself, log ratios added
    pattern       a histogram of all numbers together, in coarse bins (exact for discrete outputs)
    linear        Fisher's discriminant: the direction in which the two differ most for their spread
    low bits      the place of the lowest set bit of every number, log ratios added

The last sees what floating-point noise leaks (Mironov 2012), the third noise that was used twice,
the second which numbers were released at all. An event is a half-line of a score: by the lemma of
Neyman and Pearson no other event tells more, if the score is the log-likelihood ratio. As the
events are fixed before the runs that count, it does not matter for validity how they were found
(the scheme of DP-Sniper: Bichsel, Steffen, Bogunovic, Vechev 2021).

What a count of hits proves: an event E was hit ``a`` times in ``runs`` runs on one table and ``b``
times on its neighbour. The Clopper-Pearson bounds (1934, "The use of confidence or fiducial
limits") say, at any confidence, P(E) >= p and Q(E) <= q, exactly, whatever the mechanism. Then

    pure epsilon-DP         e^epsilon >= p / q
    (epsilon, delta)-DP     e^epsilon >= (p - delta) / q
    mu-GDP                  mu >= Phi^-1(p) - Phi^-1(q)     (Dong, Roth, Su 2022, Definition 4)

A lower bound above the claim refutes it. A bound below it proves nothing: docs/audit.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from math import exp, prod
from time import process_time
from typing import Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from sfumato.privacy.cost import Cost, composed_epsilon, gaussian_delta
from sfumato.privacy.gaussian import float_up, sqrt_up
from sfumato.random import WordSource, integers_below
from sfumato.types import Array, Neighbours
from sfumato_audit.audit_limits import LIMITS

__all__ = [
    "FAST",
    "FULL",
    "MIXED_DELTA",
    "SURE",
    "Claim",
    "Effort",
    "Finding",
    "Pair",
    "Point",
    "Record",
    "Sampler",
    "Score",
    "Subject",
    "Table",
    "chance_of_missing",
    "examine",
    "hit_bounds",
    "learn_scores",
    "listed_pairs",
    "lowest_bits",
    "pairs_at_random",
]


Kind = Literal["epsilon", "mu"]

MIXED_DELTA = 1e-2
"""The delta at which a claim of pure and Gaussian parts together is looked at."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a mechanism promises: epsilon-DP (at ``delta``), or mu-GDP.

    >>> Claim.of(Cost.pure(1))
    Claim(kind='epsilon', amount=1.0, delta=0.0)
    """

    kind: Kind
    amount: float
    delta: float = 0.0

    @classmethod
    def of(cls, cost: Cost) -> Claim:
        """The claim that a debited cost makes, rounded up."""
        if not cost.mu_squared:
            return cls("epsilon", float_up(cost.pure_epsilon), float_up(cost.delta))
        if not cost.pure_parts and not cost.delta:
            return cls("mu", sqrt_up(cost.mu_squared))
        delta = float_up(Fraction(str(MIXED_DELTA)) + cost.delta)
        return cls("epsilon", composed_epsilon([cost], delta), delta)

    def minimum_loss(self, p: Array, q: Array) -> Array:
        """The minimum amount that allows P(E) >= p and Q(E) <= q; 0 where that says nothing."""
        if self.kind == "mu":
            from scipy.special import ndtri

            return np.maximum(np.asarray(ndtri(p) - ndtri(q), dtype=np.float64), 0.0)
        with np.errstate(divide="ignore"):
            return np.maximum(np.log(np.maximum(p - self.delta, 0.0) / q), 0.0)

    def delta_at(self, epsilon: float) -> float:
        """The delta that the claim allows at an epsilon, rounded up."""
        if self.kind == "mu":
            return gaussian_delta(self.amount, epsilon)
        if epsilon >= self.amount:
            return self.delta
        # An epsilon-DP mechanism is (e, (e^epsilon - e^e) / (1 + e^epsilon))-DP: the curve of
        # randomized response (Kairouz, Oh, Viswanath 2015, "The composition theorem").
        grown = exp(self.amount)
        return self.delta + (1 - self.delta) * (grown - exp(epsilon)) / (1 + grown)


def hit_bounds(a: Array, b: Array, runs: int, alpha: float) -> tuple[Array, Array]:
    """p and q with P(E) >= p and Q(E) <= q, both at once wrong with probability at most alpha.

    >>> p, q = hit_bounds(np.array([50.0]), np.array([0.0]), 100, 0.001)
    >>> bool(p[0] < 0.5), bool(q[0] > 0)
    (True, True)
    """
    from scipy.special import betainccinv, betaincinv

    half = alpha / 2
    p = np.where(a > 0, betaincinv(np.maximum(a, 1), runs - a + 1, half), 0.0)
    q = np.where(b < runs, betainccinv(b + 1, np.maximum(runs - b, 1), half), 1.0)
    return p, q


def chance_of_missing(claim: Claim, p: float, q: float, runs: int, alpha: float) -> float:
    """An upper bound on the chance that an event of probabilities p and q does not refute a claim.

    The bound grows with the hits on one side and falls with those on the other. So if it refutes
    the claim at a low quantile of the one and at a high one of the other, it is missed at most when
    one of them is beyond its quantile.
    """
    from scipy.stats import binom

    for beta in (10.0**-k for k in range(15, 0, -1)):
        a, b = binom.ppf(beta, runs, p), binom.isf(beta, runs, q)
        bounds = hit_bounds(np.array([a]), np.array([b]), runs, alpha)
        if claim.minimum_loss(*bounds)[0] > claim.amount:
            return 2 * beta
    return 1.0


Codes = npt.NDArray[np.int64]
Score = Callable[[Array], Array]

ZERO = 200  # the lowest bit of 0, which has none


def learn_scores(left: Array, right: Array) -> dict[str, Score]:
    """Scores that are large where outputs are likelier for ``left``, by name."""
    columns = _sorted_columns(left, right)
    scores: dict[str, Score] = {
        "independent": _independent(_edges(columns, LIMITS.bins), left, right),
        "pattern": _pattern(columns, left, right),
        "low bits": _low_bits(left, right),
    }
    if min(len(left), len(right)) >= LIMITS.runs_per_column * left.shape[1]:
        scores["linear"] = _linear(left, right)
    return scores


def lowest_bits(values: Array) -> Array:
    """The exponent of the lowest set bit: -52 for 1 + 2^-52, 3 for 40.

    >>> lowest_bits(np.array([40.0, 1 + 2.0**-52, 0.5]))
    array([  3., -52.,  -1.])
    """
    fraction, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))
    whole = np.abs(np.ldexp(fraction, 53)).astype(np.int64)
    _, place = np.frexp((whole & -whole).astype(np.float64))
    places = np.where(whole == 0, ZERO, exponent - 53 + place - 1).astype(np.float64)
    return np.where(np.isfinite(values), places, np.nan)


def _sorted_columns(left: Array, right: Array) -> list[Array]:
    """What is known of every number on both sides together, in order."""
    both = np.sort(np.concatenate([left, right]), axis=0)  # NaN comes last
    return [c[: np.searchsorted(c, np.inf)] for c in np.ascontiguousarray(both.T)]


def _edges(columns: list[Array], bins: int) -> list[Array]:
    """The bins of every column: its own values if they are few, else quantiles of both."""
    return [_cut(_distinct(c), c, bins) for c in columns]


def _cut(values: Array, column: Array, bins: int) -> Array:
    if values.size <= max(LIMITS.discrete_values, bins):
        return values
    return _distinct(column[np.arange(1, bins) * column.size // bins])


def _distinct(ordered: Array) -> Array:
    """Every value of a sorted row once."""
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if ordered.size else ordered


def _codes(outputs: Array, edges: list[Array]) -> Codes:
    """The number of the bin of every output; NaN has its own."""
    out = np.empty(outputs.shape, dtype=np.int64)
    for j, cuts in enumerate(edges):
        column = outputs[:, j]
        out[:, j] = np.where(
            np.isnan(column), cuts.size + 1, np.searchsorted(cuts, column, side="right")
        )
    return out


def _log_ratio(left: Codes, right: Codes, size: int) -> Array:
    """Smoothed log ratios of two histograms."""
    a = np.bincount(left, minlength=size) / max(left.size, 1)
    b = np.bincount(right, minlength=size) / max(right.size, 1)
    added = 0.5 / max(left.size, 1)
    return np.asarray(np.log((a + added) / (b + added)), dtype=np.float64)


def _independent(edges: list[Array], left: Array, right: Array) -> Score:
    ratios_by_column = [
        _log_ratio(a, b, cuts.size + 2)
        for a, b, cuts in zip(_codes(left, edges).T, _codes(right, edges).T, edges, strict=True)
    ]

    def score(outputs: Array) -> Array:
        codes = _codes(outputs, edges)
        parts = [ratios[column] for ratios, column in zip(ratios_by_column, codes.T, strict=True)]
        return np.asarray(sum(parts, np.zeros(len(outputs))))

    return score


def _low_bits(left: Array, right: Array) -> Score:
    low, high = lowest_bits(left), lowest_bits(right)
    inner = _independent(_edges(_sorted_columns(low, high), LIMITS.pattern_cells), low, high)
    return lambda outputs: inner(lowest_bits(outputs))


@dataclass(frozen=True, eq=False)
class _Hashed:
    """Rows of bins as one number each; two patterns that collide count as one, which is safe."""

    edges: list[Array]

    def __call__(self, outputs: Array) -> npt.NDArray[np.uint64]:
        codes = _codes(outputs, self.edges).astype(np.uint64)
        out = np.zeros(len(outputs), dtype=np.uint64)
        for column in codes.T:
            out = (out ^ column) * np.uint64(0x9E3779B97F4A7C15)
            out ^= out >> np.uint64(29)
        return out


def _pattern(columns: list[Array], left: Array, right: Array) -> Score:
    """Discrete numbers as they are; others in as many bins as keep all patterns countable."""
    bins = max(
        2, min(LIMITS.discrete_values, int(LIMITS.pattern_cells ** (1 / max(left.shape[1], 1))))
    )
    hashed = _Hashed(_edges(columns, bins))
    a, b = hashed(left), hashed(right)
    keys = np.unique(np.concatenate([a, b]))
    ratios = _log_ratio(np.searchsorted(keys, a), np.searchsorted(keys, b), keys.size)

    def score(outputs: Array) -> Array:
        hashes = hashed(outputs)
        place = np.minimum(np.searchsorted(keys, hashes), keys.size - 1)
        return np.asarray(np.where(keys[place] == hashes, ratios[place], 0.0))

    return score


def _linear(left: Array, right: Array) -> Score:
    both = np.concatenate([left, right])
    centre = np.array([np.nanmean(c) if np.isfinite(c).any() else 0.0 for c in both.T])
    spread = np.array([np.nanstd(c) if np.isfinite(c).any() else 0.0 for c in both.T])
    scale = np.where(spread > 0, spread, 1.0)

    def standard(outputs: Array) -> Array:
        return np.asarray(np.nan_to_num((outputs - centre) / scale))

    a, b = standard(left), standard(right)
    away = a.mean(axis=0) - b.mean(axis=0)
    within = np.zeros((away.size, away.size))
    for side in (a, b):
        moved = side - side.mean(axis=0)
        within += moved.T @ moved / (2 * len(side))
    # A direction without spread tells everything: the ridge keeps it finite, and large.
    direction = np.linalg.solve(within + 1e-9 * np.eye(away.size), away)

    def score(outputs: Array) -> Array:
        return np.asarray(standard(outputs) @ direction)

    return score


# Neighbouring tables to try a mechanism on: a listed set, and more at random.
#
# A table is a tuple of records, a record a tuple of cell numbers. The listed pairs hold what is
# known to go wrong: the empty table, a record in the first and in the last cell, a record among
# many, and, for replaced records, the two cells that are farthest apart.

T_co = TypeVar("T_co", covariant=True)
Record = tuple[int, ...]
Table = tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Pair(Generic[T_co]):
    """Two neighbouring tables, with a name for people."""

    name: str
    left: T_co
    right: T_co


def listed_pairs(shape: Sequence[int], neighbours: Neighbours) -> tuple[Pair[Table], ...]:
    """Neighbours that every mechanism over this domain is tried on."""
    cells = prod(shape)
    first, last, second = (_record(shape, c % cells) for c in (0, cells - 1, 1))
    spread = tuple(_record(shape, c) for c in range(min(cells, LIMITS.spread_records)))
    crowd = (first,) * LIMITS.crowd_records
    if neighbours == "replace-one":
        return (
            Pair("first cell becomes last", (first,), (last,)),
            Pair("first cell becomes second", (first,), (second,)),
            Pair("first becomes last, all cells", (*spread, first), (*spread, last)),
            Pair("first becomes last, crowded", (*crowd, first), (*crowd, last)),
        )
    return (
        Pair("empty table, first cell", (), (first,)),
        Pair("empty table, last cell", (), (last,)),
        Pair("all cells, last cell again", spread, (*spread, last)),
        Pair("crowded first cell, one less", (*crowd, first), crowd),
    )


def pairs_at_random(
    shape: Sequence[int], neighbours: Neighbours
) -> Callable[[WordSource], Pair[Table]]:
    """A table of a few records at random, and one record added or replaced at random."""
    return partial(_random_pair, tuple(shape), neighbours)


def _random_pair(shape: tuple[int, ...], neighbours: Neighbours, source: WordSource) -> Pair[Table]:
    records = int(integers_below(LIMITS.random_records + 1, 1, source)[0])
    cells = integers_below(prod(shape), records + 2, source).tolist()
    base = tuple(_record(shape, c) for c in cells[:records])
    one, other = (_record(shape, c) for c in cells[records:])
    if neighbours == "replace-one":
        return Pair(f"at random: {one} becomes {other}", (*base, one), (*base, other))
    return Pair(f"at random: {one} in {records} others", base, (*base, one))


def _record(shape: Sequence[int], cell: int) -> Record:
    return tuple(int(i) for i in np.unravel_index(cell, tuple(shape)))


T = TypeVar("T")
Sampler = Callable[[int, WordSource], Array]
"""So many runs on one table: a row each."""

SHOWN = 1e-3  # the chance that a shown bound is too high
SURE = 1e-9  # the chance that a sound mechanism is called refuted
LIKELIHOOD = "likelihood"  # the name of a score that is known beforehand
Hits = tuple[Array, Array]
EPSILONS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)  # where the (epsilon, delta) curve is looked at


@dataclass(frozen=True, slots=True)
class Effort:
    """Runs per table in the search of each pair, runs per table in the test, pairs at random."""

    search: int
    test: int
    pairs: int


FAST = Effort(search=16_000, test=300_000, pairs=2)
FULL = Effort(search=100_000, test=4_000_000, pairs=12)


@dataclass(frozen=True, eq=False)
class Subject(Generic[T]):
    """A mechanism with its claim, tables to try it on, and how to run it many times.

    ``sampler`` prepares one table (counts it, once) and returns what runs the mechanism on it.
    ``covers`` names the code that is run: mechanisms, methods, and functions that promise privacy.
    ``hint`` is a score that is known beforehand, such as the claimed likelihood ratio: one of its
    events is always tested.
    ``slowness`` divides the runs of mechanisms that cannot be run many at a time.
    """

    name: str
    claim: Claim
    pairs: Sequence[Pair[T]]
    sampler: Callable[[T], Sampler]
    covers: frozenset[str] = frozenset()
    random_pair: Callable[[WordSource], Pair[T]] | None = None
    hint: Callable[[Pair[T]], Score] | None = None
    slowness: int = 1
    is_broken: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the (epsilon, delta) curve: what the claim allows, and what was proved."""

    epsilon: float
    claimed: float
    bound: float


@dataclass(frozen=True, slots=True)
class Finding:
    """What an audit found out about a subject."""

    name: str
    claim: Claim
    bound: float
    sure_bound: float
    is_broken: bool
    pair: str
    event: str
    hits: tuple[int, int]
    runs: int
    pairs: int
    seconds: float
    curve: tuple[Point, ...] = field(default=())

    @property
    def is_refuted(self) -> bool:
        """Whether the claim is false, but for one chance in 10^9."""
        return self.sure_bound > self.claim.amount

    @property
    def is_as_expected(self) -> bool:
        """Whether a sound mechanism stood, or a broken one fell."""
        return self.is_refuted == self.is_broken


@dataclass(frozen=True, eq=False)
class _Event(Generic[T]):
    """``score >= cut`` (or below it, if flipped), which should be likelier on one table."""

    pair: Pair[T]
    name: str
    score: Score
    cut: float
    is_flipped: bool
    expected: float
    curve_cuts: tuple[float, ...]


def examine(subject: Subject[T], source: WordSource, effort: Effort = FAST) -> Finding:
    """Bound the privacy loss of a mechanism from below, by the events that tell most."""
    started = process_time()
    runs = (n // subject.slowness for n in (effort.search, effort.test))
    search, test = (max(LIMITS.runs_minimum, n) for n in runs)
    pairs = list(subject.pairs)
    if subject.random_pair is not None:
        pairs += [subject.random_pair(source) for _ in range(effort.pairs)]
    events: list[_Event[T]] = []
    for pair in pairs:
        events += _search(subject, pair, search, test, source)
    tested = _tested(events)
    hits: dict[int, Hits] = {}
    for pair in {id(e.pair): e.pair for e in tested}.values():
        hits |= _hits(subject, pair, [e for e in tested if e.pair is pair], test, source)
    proved = [_proved(subject.claim, hits[id(e)], test, SHOWN) for e in tested]
    best = int(np.argmax(proved))
    event, (a, b) = tested[best], hits[id(tested[best])]
    return Finding(
        subject.name,
        subject.claim,
        proved[best],
        max(_proved(subject.claim, hits[id(e)], test, SURE) for e in tested),
        subject.is_broken,
        event.pair.name,
        f"{event.name} {'at most' if event.is_flipped else 'at least'} {event.cut:.4g}",
        (int(a[0]), int(b[0])),
        test,
        len(pairs),
        process_time() - started,
        _curve(subject.claim, a[1:], b[1:], test),
    )


def _tested(events: Sequence[_Event[T]]) -> list[_Event[T]]:
    """The most telling events; one of them is of the score that was known, if there is one.

    What is known beforehand is not lost by bad luck in the search.
    """
    ordered = sorted(events, key=lambda e: -e.expected)
    first = [e for e in ordered if e.name == LIKELIHOOD][:1]
    learnt = [e for e in ordered if e not in first]
    return sorted([*first, *learnt][: LIMITS.tested_events], key=lambda e: -e.expected)


def _search(
    subject: Subject[T], pair: Pair[T], runs: int, test: int, source: WordSource
) -> list[_Event[T]]:
    """The most telling events of either direction for one pair: learnt, and known beforehand."""
    left, right = (subject.sampler(side)(runs, source) for side in (pair.left, pair.right))
    half = runs // 2
    scores = learn_scores(left[:half], right[:half])
    if subject.hint is not None:
        scores[LIKELIHOOD] = subject.hint(pair)
    best: dict[tuple[bool, bool], _Event[T]] = {}
    for name, score in scores.items():
        on_left, on_right = score(left[half:]), score(right[half:])
        cuts = _cuts(on_left, on_right)
        # Cautious estimates: of many events the luckiest would be taken for the best.
        caution = LIMITS.caution if cuts.size > 2 else LIMITS.caution_without_choice
        for is_flipped in (False, True):
            likely, unlikely = (on_right, on_left) if is_flipped else (on_left, on_right)
            a, b = (_counted(side, cuts, is_flipped) for side in (likely, unlikely))
            p, q = hit_bounds(a, b, half, caution)
            alpha = SHOWN / LIMITS.tested_events
            hits = np.floor(p * test), np.ceil(q * test)
            expected = _minimum_loss(subject.claim, *hits, test, alpha)
            place = int(np.argmax(expected))
            kind = (name == LIKELIHOOD, is_flipped)
            if kind not in best or expected[place] > best[kind].expected:
                telling = [int(np.argmax(p - np.exp(e) * q)) for e in EPSILONS]
                best[kind] = _Event(
                    pair,
                    name,
                    score,
                    float(cuts[place]),
                    is_flipped,
                    float(expected[place]),
                    tuple(float(cuts[k]) for k in telling),
                )
    return list(best.values())


def _cuts(left: Array, right: Array) -> Array:
    """Thresholds between the values of a score: quantiles of both sides, the ends closely."""
    both = np.concatenate([left, right])
    inner = np.linspace(0, 1, LIMITS.cuts)
    ends = np.geomspace(1e-4, 1e-2, 12)
    return np.unique(np.quantile(both, np.concatenate([ends, inner, 1 - ends]), method="lower"))


def _counted(scores: Array, cuts: Array, is_flipped: bool) -> Array:
    """How many scores are at least (or, flipped, at most) each cut."""
    ordered = np.sort(scores)
    if is_flipped:
        return np.searchsorted(ordered, cuts, side="right").astype(np.float64)
    return (ordered.size - np.searchsorted(ordered, cuts, side="left")).astype(np.float64)


def _hits(
    subject: Subject[T], pair: Pair[T], events: Sequence[_Event[T]], runs: int, source: WordSource
) -> dict[int, Hits]:
    """How often events happen in fresh runs on both tables, some at a time.

    Of every event: at its cut and at those of the curve, first where it should be likelier.
    """
    counts = {id(e): [np.zeros(1 + len(EPSILONS)) for _ in range(2)] for e in events}
    for side, table in enumerate((pair.left, pair.right)):
        run, done, at_once = subject.sampler(table), 0, 1000
        while done < runs:
            outputs = run(min(at_once, runs - done), source)
            for event in events:
                hits = counts[id(event)][side ^ event.is_flipped]
                cuts = np.array([event.cut, *event.curve_cuts])
                hits += _counted(event.score(outputs), cuts, event.is_flipped)
            done += len(outputs)
            at_once = max(1000, LIMITS.outputs_at_once // max(outputs.shape[1], 1))
    return {key: (a, b) for key, (a, b) in counts.items()}


def _proved(claim: Claim, hits: Hits, runs: int, alpha: float) -> float:
    """The bound of one of the tested events."""
    a, b = hits
    return float(_minimum_loss(claim, a[:1], b[:1], runs, alpha / LIMITS.tested_events)[0])


def _minimum_loss(claim: Claim, a: Array, b: Array, runs: int, alpha: float) -> Array:
    return claim.minimum_loss(*hit_bounds(a, b, runs, alpha))


def _curve(claim: Claim, a: Array, b: Array, runs: int) -> tuple[Point, ...]:
    """Lower bounds on delta at some epsilons, all at once with 99.9%."""
    p, q = hit_bounds(a, b, runs, SHOWN / max(len(EPSILONS), 1))
    proved = np.maximum(p - np.exp(EPSILONS) * q, 0.0)
    return tuple(
        Point(e, claim.delta_at(e), float(d)) for e, d in zip(EPSILONS, proved, strict=True)
    )
