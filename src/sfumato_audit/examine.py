# SPDX-License-Identifier: Apache-2.0
"""The auditor: run a mechanism on neighbouring tables, and bound its privacy loss from below.

    search   every pair of tables, few runs: scores are learnt on one half, the most telling
             thresholds chosen on the other
    test     the few most telling events on fresh runs, many of them; only these count

The bound that is shown holds with 99.9% (Clopper-Pearson, divided by the events that are tested).
A claim counts as refuted only where the bound at one chance in 10^9 exceeds it, so that a sound
mechanism fails about once in 10^9 audits, and a failure is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from time import process_time
from typing import Generic, TypeVar

import numpy as np

from sfumato.random import WordSource, integers_below
from sfumato.types import Array, Neighbours
from sfumato_audit.audit_limits import LIMITS
from sfumato_audit.bounds import Claim, hit_bounds
from sfumato_audit.events import Score, learn_scores

__all__ = [
    "FAST",
    "FULL",
    "SURE",
    "Effort",
    "Finding",
    "Pair",
    "Point",
    "Record",
    "Sampler",
    "Subject",
    "Table",
    "examine",
    "listed_pairs",
    "pairs_at_random",
]


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
