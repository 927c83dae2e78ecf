# SPDX-License-Identifier: Apache-2.0
"""Intervals of published answers, and the bounds that no data can exceed.

Four kinds of intervals, each a function of released numbers and public draws:

* ``Bounds.interval`` cuts the interval of the noise to what is possible. An interval
  ``[a - c, a + c]`` holds the truth with some probability. The truth also lies, surely, between
  bounds (``sure_bounds``: from queries, a public number of records, and constraints), and is a
  whole number where all coefficients are: dropping the rest loses nothing that could be true.
  Published values are then taken in, so that none lies outside its own interval; widening loses
  nothing either. The ends at a higher level enclose those at a lower one: where no possible number
  is left, the nearest one stands alone, and it is inside at every level.
* ``Calibrated``: intervals around published answers that shrink with their error, at any size.
* ``Bootstrap``: approximate intervals of projected answers, which err less than the noise.
* ``TranscriptIntervals``: intervals for what the steps of an adaptive release measured.

Nothing here costs privacy (Dwork, Roth 2014, Proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import ceil, inf, log, prod, sqrt
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.measurement import Transcript
from sfumato.planning.forecast import Forecast, drawn_noise
from sfumato.planning.planning_limits import LIMITS as PLANNING_LIMITS
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.random import Draws
from sfumato.refine.consistency import Projection, Refined, has_wide, objective_fit
from sfumato.refine.problem import Grid
from sfumato.refine.refine_limits import LIMITS
from sfumato.text import shown
from sfumato.types import Array, Integers, Progress
from sfumato.workload.constraints import Constraints, Published
from sfumato.workload.normal_form import Normal
from sfumato.workload.queries import once
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload, answer_bits
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

__all__ = [
    "Bootstrap",
    "Bounds",
    "Calibrated",
    "ErrorLaw",
    "Intervals",
    "TranscriptInterval",
    "TranscriptIntervals",
    "bootstrapped",
    "calibrated",
    "check_intervals",
    "feasible_bounds",
    "half_widths",
    "sure_bounds",
]


@dataclass(frozen=True, eq=False)
class Bounds:
    """The minimum and maximum answer of every query, and whether answers are whole numbers."""

    low: Array
    high: Array
    is_whole: bool

    def at(self, rows: slice) -> Bounds:
        """The bounds of some queries."""
        return Bounds(self.low[rows], self.high[rows], self.is_whole)

    def clamp(self, answers: Array) -> Array:
        """The nearest answers within the bounds: never farther from a feasible truth."""
        return np.clip(answers, self.low, self.high)

    def interval(self, low: Array, high: Array, centre: Array, value: Array) -> tuple[Array, Array]:
        """The part of ``[low, high]`` that is possible, and ``value``; around one ``centre``."""
        low, high = self.clamp(low), self.clamp(high)
        if self.is_whole:
            first, last = _up(self.low), _down(self.high)
            are_whole = first <= last  # published counts may be none
            near = np.clip(np.rint(self.clamp(centre)), first, np.maximum(first, last))
            low = np.where(are_whole, np.minimum(_up(low), near), low)
            high = np.where(are_whole, np.maximum(_down(high), near), high)
        return np.minimum(low, value), np.maximum(high, value)


def sure_bounds(term: Term, rows: int | None, constraints: Constraints | None = None) -> Bounds:
    """The bounds of the answers of a group, for so many records that meet the constraints.

    Each query by itself and each published table by itself: the bounds hold, and need not be the
    narrowest that follow from all of them together.
    """
    total = float(rows) if rows is not None else None
    if total is None and constraints is not None:
        total = constraints.total
    low, high = feasible_bounds(term, total)
    if constraints is not None:
        low, high = _possible(term, total, constraints, low, high)
        for table in constraints.published:
            minimum, maximum = _published_bounds(term, table)
            low, high = np.maximum(low, minimum), np.minimum(high, maximum)
        high = np.maximum(high, low)  # rounding
    is_whole = term.fraction_bits == 0 and term.slack == 0 and term.unit_bits == 0
    return Bounds(low, high, is_whole)


def feasible_bounds(term: Term, rows: float | None) -> tuple[Array, Array]:
    """The minimum and maximum answer that ``rows`` records (any number, if None) can have.

    A query with coefficients in [a, b] on n records lies in [n a, n b]; for unknown n that is
    [0, inf) when a >= 0, (-inf, 0] when b <= 0, and no bound otherwise.

    Args:
        term: A group of queries.
        rows: How many records there are; None if that is unknown.

    Returns:
        The least and the greatest answer of every query.
    """
    low, high = (once(b) for b in term.coefficient_bounds())
    if rows is not None:
        low, high = low * rows, high * rows
    else:
        low, high = np.where(low >= 0, 0.0, -np.inf), np.where(high <= 0, 0.0, np.inf)
    return np.broadcast_to(low, (term.rows,)), np.broadcast_to(high, (term.rows,))


def _possible(
    term: Term, total: float | None, constraints: Constraints, low: Array, high: Array
) -> tuple[Array, Array]:
    """The bounds with impossible cells: 0 for queries of those, n for queries of all others."""
    looks = constraints.labels().keys() & set(term.attributes)
    if not looks or not term.is_nonnegative or term.cells > WORKLOAD_LIMITS.array_entries:
        return low, high
    possible = constraints.possible(term.attributes)
    reached = term.answer(possible.astype(np.int64))
    high = np.where(reached == 0, 0.0, high)
    if total is not None:
        maximum = term.coefficient_bounds()[1]
        low = np.where(reached == maximum * int(possible.sum()), maximum * total, low)
    return low, high


def _published_bounds(term: Term, table: Published) -> tuple[Array, Array]:
    """The bounds that a published table implies: the answer itself where it holds all attributes.

    With b the counts over the shared attributes, ``q h = sum_v sum_(x in v) q(x) h(x)`` lies
    between ``sum_v b_v min q`` and ``sum_v b_v max q``, the extremes over the other attributes.
    """
    if set(term.attributes) <= set(table.names):
        answers = term.answer(table.margin(term.attributes))
        return answers, answers
    shared = [n for n in term.attributes if n in table.names]
    product = term.as_product()
    if not shared or product is None or not term.is_nonnegative:
        return np.full(term.rows, -np.inf), np.full(term.rows, np.inf)
    factors = product.factors
    inside = Product(term.domain, term.name, 1.0, tuple(f for f in factors if f[0] in shared))
    along = [q.rows if n in shared else 1 for n, q in factors]
    low = high = inside.answer(table.margin(shared)).reshape(along)
    for axis, (name, queries) in enumerate(factors):
        if name not in shared:
            minimum, maximum = (
                np.asarray(b, dtype=np.float64) for b in queries.coefficient_bounds()
            )
            turned = [-1 if i == axis else 1 for i in range(len(along))]
            low, high = low * minimum.reshape(turned), high * maximum.reshape(turned)
    return low.reshape(-1), high.reshape(-1)


def _up(numbers: Array) -> Array:
    raised = np.ceil(
        numbers - LIMITS.whole_number_rounding * np.maximum(1.0, np.abs(_finite(numbers)))
    )
    return np.asarray(raised + 0.0)  # no -0


def _down(numbers: Array) -> Array:
    return np.asarray(
        np.floor(numbers + LIMITS.whole_number_rounding * np.maximum(1.0, np.abs(_finite(numbers))))
    )


def _finite(numbers: Array) -> Array:
    return np.where(np.isfinite(numbers), numbers, 0.0)


# Calibrated intervals


@dataclass(frozen=True, slots=True)
class ErrorLaw:
    """How far off like published counts are: ``1 / (1 / v + 1 / (tau (x + floor)))``, squared.

    x is the published count and v the variance of its noise. A count that nothing is known of is
    off by its noise; one of which the rest of the table tells more scatters around what it tells as
    counts do, ``tau`` times as much as independent records. ``estimate`` and ``raised`` are root
    mean square errors of these answers: as noise that was held out says, and as intervals use it.
    """

    tau: float
    floor: float
    estimate: float
    raised: float

    def errors(self, values: Array, noise: Array) -> Array:
        """The error of every answer, from what is published and the standard errors of noise."""
        variance, spread = noise**2, self.tau * (np.abs(values) + self.floor)
        total = variance + spread
        return np.asarray(
            np.sqrt(np.divide(variance * spread, total, out=np.zeros_like(total), where=total > 0)),
            dtype=np.float64,
        )


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Intervals around published answers that are as wide as these are wrong, group by group.

    The squared errors of all answers together are known without the data: from what was measured,
    and from noise that was held out while estimates were weighed (``Refined.squares``). One answer
    tells next to nothing, hundreds of like ones do. So of all tables of as many attributes, and of
    every other group, the one number tau of an ``ErrorLaw`` is fitted so that squared errors add up
    to the estimate, raised by ``calibrated_noise`` of its standard errors, and intervals have as
    many errors to each side as made-up tables ask for. A group without a law has the intervals of
    the noise: it has few answers, or its error is about that of the noise.

    **Calibrated, not proved**: among all answers of a release about as many hold as is said, and
    nothing is said of one answer by itself. Large counts that are hidden in much noise are held
    less often (docs/releases.md has how often, on tables that nothing was fitted to).
    """

    laws: tuple[ErrorLaw | None, ...]

    def describe(self) -> str:
        """How intervals were made, in words."""
        return (
            "calibrated, not proved: around the published answers, as wide as held-out noise says "
            "that they are wrong; of all answers about as many hold as is said, single ones may "
            "hold less often"
        )

    def interval(
        self, term: int, level: float, values: Array, noise: Array, proved: Ends
    ) -> tuple[Array, Array]:
        """The ends of a group of answers; ``proved`` are those of the noise at a level.

        What the noise all but excludes is left out, and where the interval of the noise is shorter
        it stands.
        """
        from scipy.special import stdtrit

        low, high = proved(level)
        law = self.laws[term]
        if law is None:
            return low, high
        freedom, usual = LIMITS.calibrated_freedom, (1 + LIMITS.calibrated_level) / 2
        times = float(stdtrit(freedom, (1 + level) / 2) / stdtrit(freedom, usual))
        error = times * law.errors(values, noise)
        first = values - LIMITS.calibrated_below * error
        last = values + LIMITS.calibrated_above * error
        least, most = proved(1 - LIMITS.calibrated_far * (1 - level))
        first, last = np.maximum(first, least), np.minimum(last, most)
        is_shorter = (first <= last) & (last - first < high - low)
        return np.where(is_shorter, first, low), np.where(is_shorter, last, high)


Ends = Callable[[float], tuple[Array, Array]]


def calibrated(forecast: Forecast, refined: Refined) -> Calibrated | None:
    """The laws of the errors of published answers, group by group; None where none is smaller.

    Args:
        forecast: The errors of the noise, in the groups of the answers.
        refined: The published answers, with estimates of their squared errors.

    Returns:
        A law for every group whose answers err less than the noise, as far as can be told.
    """
    kinds: dict[object, list[int]] = {}
    for t, term in enumerate(forecast.workload.terms):
        product = term.as_product()
        is_table = product is not None and all(q.is_identity for _, q in product.factors)
        kinds.setdefault(len(term.attributes) if is_table else (t,), []).append(t)
    laws: list[ErrorLaw | None] = [None] * len(forecast.workload.terms)
    whole = np.array([len(a) for a in refined.answers], dtype=np.int64)
    for like, spread in zip(kinds.values(), _spreads(forecast, kinds.values(), whole), strict=True):
        noise = [
            np.broadcast_to(forecast.standard_errors(t), len(refined.answers[t])) for t in like
        ]
        greatest = max(forecast.workload.terms[t].greatest for t in like)
        law = _error_law(
            np.concatenate([refined.answers[t] for t in like]),
            np.concatenate(noise),
            np.concatenate([refined.squares[t] for t in like]),
            spread,
            float(greatest),
        )
        for t in like:
            laws[t] = law
    return Calibrated(tuple(laws)) if any(laws) else None


def _spreads(
    forecast: Forecast, kinds: Collection[Sequence[int]], lengths: Integers
) -> list[float]:
    """The standard deviation of ``|z|^2``, z the noise of like answers, for all kinds of answers.

    For normal noise of covariance C it is ``sqrt(2 |C|^2)``, and ``|C|^2 = E <z, z'>^2`` for
    independent z and z': public draws. Answers that share noise have far more than independent
    ones.
    """
    places = np.concatenate([[0], np.cumsum(lengths)])
    products: list[list[float]] = [[] for _ in kinds]
    draws = Draws(f"calibrated {forecast.workload.digest()} {forecast.mechanism}")
    noises = drawn_noise(forecast, draws, 2 * LIMITS.calibrated_pairs)
    for one, other in zip(noises, noises, strict=False):  # two in a row
        for own, like in zip(products, kinds, strict=True):
            parts = [slice(places[t], places[t + 1]) for t in like]
            own.append(sum(float(one[p] @ other[p]) for p in parts) ** 2)
    return [sqrt(2 * float(np.mean(own))) for own in products]


def _error_law(
    values: Array, noise: Array, squares: Array, spread: float, unit: float
) -> ErrorLaw | None:
    """The law of like answers whose squared errors add up to what is estimated, raised."""
    from scipy.optimize import brentq

    count, whole = len(values), float((noise**2).sum())
    estimate = float(squares.sum())
    raised = estimate + LIMITS.calibrated_noise * max(spread, float(np.linalg.norm(squares)))
    if count < LIMITS.calibrated_answers or raised > LIMITS.calibrated_gain * whole:
        return None
    floor = max(unit, LIMITS.calibrated_floor * float(np.abs(values).mean()))
    raised = max(raised, 0.0)

    def beyond(tau: float) -> float:
        law = ErrorLaw(float(np.exp(tau)), floor, 0.0, 0.0)
        return float((law.errors(values, noise) ** 2).sum()) - raised

    least = log(LIMITS.calibrated_least)
    most = log(max(raised, 1.0)) + log(count) + log(max(whole, 1.0))  # far above any noise
    tau = LIMITS.calibrated_least
    if beyond(least) < 0:
        tau = inf if beyond(most) < 0 else float(np.exp(brentq(beyond, least, most)))
    if not np.isfinite(tau):
        return None
    return ErrorLaw(tau, floor, sqrt(max(estimate, 0.0) / count), sqrt(raised / count))


# The bootstrap

Intervals = Literal["noise", "calibrated", "bootstrap"]
Project = Callable[[Sequence[Array]], Refined | None]


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """The sizes of the errors of repeated releases, sorted, per group: draw x query.

    Intervals from the law of the noise hold for all data and are as wide as the noise. Projected
    answers err less, by how much depends on the data. Here the published answers p take the place
    of the truth: noise of the planned law is added to them, and projected as the release was,

        p_b = project(p + Z_b),   b = 1 .. B,     half width = the level-quantile of |p_b - p|,

    the parametric bootstrap (Efron, Tibshirani 1993, "An introduction to the bootstrap", section
    6.5). It is **approximate**: where p lies on the boundary of what data can have, and the truth
    does not, repeated projections err less than the first one did, so the intervals can be too
    short (Andrews 2000, "Inconsistency of the bootstrap when a parameter is on the boundary of the
    parameter space"). ``python -m bench intervals`` measures how often they hold.
    """

    sizes: tuple[npt.NDArray[np.float32], ...]

    @property
    def draws(self) -> int:
        """How often the release was repeated."""
        return len(self.sizes[0])

    def describe(self) -> str:
        """How intervals were made, in words."""
        return (
            f"approximate: a bootstrap of {self.draws} draws around the published answers; they "
            "may hold less often than they say"
        )

    def seen(self, normal: Normal) -> Bootstrap:
        """The same errors in the order of the workload, from those of its normal form."""
        terms = range(len(normal.pieces))
        rows = [[s[i].astype(np.float64) for s in self.sizes] for i in range(self.draws)]
        sizes = [np.array([normal.gather(t, row.__getitem__) for row in rows]) for t in terms]
        return Bootstrap(tuple(each.astype(np.float32) for each in sizes))

    def half_widths(self, term: int, level: float) -> Array:
        """The ``ceil((draws + 1) level)``-th smallest error of every answer of a group."""
        place = ceil((self.draws + 1) * Fraction(level).limit_denominator(10**9))
        if place > self.draws:
            raise WorkloadError(
                f"a bootstrap of {self.draws} draws knows levels up to "
                f"{self.draws / (self.draws + 1):.4f}, got {level!r}; ask for a lower level, or "
                'release with intervals="noise"'
            )
        return np.asarray(self.sizes[term][place - 1], dtype=np.float64)


def check_intervals(
    intervals: object, forecast: Forecast, project: Projection, constraints: Constraints | None
) -> None:
    """Refuse, before anything is spent, intervals that there are not, or not for this plan."""
    if intervals == "noise":
        return
    if intervals not in ("calibrated", "bootstrap"):
        raise WorkloadError(
            'intervals are "noise" (they hold as often as they say), "calibrated" (as short as '
            'answers are sharp, not proved) or "bootstrap" (approximate), '
            f"got {shown(intervals)}"
        )
    if intervals == "calibrated":
        if project is not True:
            raise WorkloadError(
                "calibrated intervals come from weighing estimates, which this release does not; "
                'leave project out, or use intervals="noise"'
            )
        return
    if project in (False, "bounds"):
        raise WorkloadError(
            "a bootstrap repeats a projection, and this release has none; leave project out, or "
            'use intervals="noise"'
        )
    work = forecast.workload
    if forecast.strategy.records is not None:
        raise WorkloadError(
            "a bootstrap repeats unbiased answers, those of this plan have a bias; leave "
            'allow_bias out, or use intervals="noise"'
        )
    if LIMITS.bootstrap_draws * work.queries > LIMITS.bootstrap_errors:
        raise TooLarge(
            f"a bootstrap keeps {LIMITS.bootstrap_draws} errors of every answer, at most "
            f"{LIMITS.bootstrap_errors:,} in all; "
            f'{work.queries:,} queries are too many: use intervals="noise"'
        )
    grid = None
    if not has_wide(work):
        grid = Grid.of(objective_fit(work, [np.zeros(t.rows) for t in work.terms]), constraints)
    if grid is None or grid.size > PLANNING_LIMITS.histogram_cells:
        raise TooLarge(
            "a bootstrap projects again and again, so the cells of all asked attributes together "
            f'must be at most {PLANNING_LIMITS.histogram_cells:,}; use intervals="noise", or ask '
            "about fewer attributes"
        )


def bootstrapped(
    forecast: Forecast, refined: Refined, project: Project, progress: Progress | None = None
) -> Bootstrap:
    """The errors of ``LIMITS.bootstrap_draws`` releases of the published answers.

    ``project`` makes the unbiased answers of one release agree; where it returns None, the error is
    that of the unbiased ones, which is larger.
    """
    work = forecast.workload
    centre = np.concatenate(refined.answers)
    ends = np.cumsum([t.rows for t in work.terms])[:-1]
    out = np.empty((LIMITS.bootstrap_draws, len(centre)), dtype=np.float32)
    draws = Draws(f"bootstrap {work.digest()} {forecast.mechanism}")
    for b, noise in enumerate(drawn_noise(forecast, draws, LIMITS.bootstrap_draws)):
        again = project(np.split(centre + noise, ends))
        out[b] = np.abs(noise if again is None else np.concatenate(again.answers) - centre)
        if progress is not None:
            progress(b + 1, LIMITS.bootstrap_draws, "bootstrapping")
    out.sort(axis=0)
    return Bootstrap(tuple(np.split(out, ends, axis=1)))


# Intervals of adaptive releases

RATES = np.linspace(0, 1, 66)[1:-1]  # shares of the greatest rate of an exponential bound


def _joint_interval(
    rows: int, steps: Iterable[_StepAnswers], level: float, sure: _Enclosed | None = None
) -> TranscriptInterval:
    """The interval that all steps leave, each by its share of what may be missed (Theorem 5).

    Those that are ``sure`` hold as well (Theorem 8).
    """
    low, high = np.full(rows, -np.inf), np.full(rows, np.inf)
    times = np.zeros(rows)
    sums, precision = np.zeros(rows), np.zeros(rows)
    for answers in steps:
        at = answers.queries
        times[at] += 1
        miss = (1 - level) / (times[at] * (times[at] + 1))
        half = half_widths(answers.law, answers.squares, answers.sums, answers.maximum, miss)
        low[at] = np.maximum(low[at], answers.values - half)
        high[at] = np.minimum(high[at], answers.values + half)
        weight = 1 / np.maximum(answers.law.variance * answers.squares, 1e-300)
        sums[at] += weight * answers.values
        precision[at] += weight
    centre = np.divide(sums, precision, out=np.full(rows, np.nan), where=precision > 0)
    is_told = times > 0
    if sure is not None:
        low, high = np.maximum(low, sure.low), np.minimum(high, sure.high)
        centre = np.where(is_told, centre, sure.centre)
        is_told |= np.isfinite(sure.high)
    # Steps that exclude each other leave the mean of all; it is inside at every level.
    low, high = np.fmin(low, centre), np.fmax(high, centre)
    return TranscriptInterval(
        centre, np.where(is_told, low, np.nan), np.where(is_told, high, np.nan)
    )


@dataclass(frozen=True, eq=False)
class _Enclosed:
    """Ends of answers that follow from those of coarser ones, and a number between them."""

    low: Array
    high: Array
    centre: Array


@dataclass(frozen=True, eq=False)
class TranscriptIntervals:
    """Intervals from the transcript of an adaptive release of ``workload``.

    What is measured next depends on earlier answers, so an interval of the usual width around the
    best measurement of a query would not hold: that it was the last one may be due to its noise.
    But every step's noise is drawn after the step was chosen, from a law that was fixed by then. So
    the k-th step that tells a query's answer misses it by more than its own bound with probability
    at most ``(1 - level) / (k (k + 1))``, whatever came before; these add up to at most
    ``1 - level`` over all k, and all steps that tell an answer may be used together
    (docs/proofs/adaptive.md, Theorem 5).

    A measured table tells every query about its attributes, or some of them; a measured query tells
    itself. ``domain`` is that of the places of tables in the transcript.
    """

    workload: Workload
    method: str
    domain: Domain
    transcript: Transcript

    def interval(self, group: int, level: float) -> TranscriptInterval:
        """Ends that hold each true answer of a group with probability at least ``level``.

        Not-a-number where no step tells the answer, or coarser ones that enclose it.
        """
        term = self.workload.terms[group]
        coarser = self._coarser(term)
        if not coarser:
            return _joint_interval(term.rows, self._seen(group, term), level)
        share = LIMITS.enclosing_share * (1 - level)
        sure = self._enclosed(term, coarser, 1 - share)
        return _joint_interval(term.rows, self._seen(group, term), level + share, sure)

    def _coarser(self, term: Term) -> list[tuple[str, ...]]:
        """Sets of its attributes whose tables enclose the answers of a group; () is the total.

        All but the whole, of up to ``enclosing_attributes`` attributes; beyond, each attribute.
        """
        product, names = term.as_product(), term.attributes
        if self.method != "tables" or product is None or term.slack or len(names) < 2:
            return []
        if not term.is_nonnegative or term.rows > WORKLOAD_LIMITS.array_entries:
            return []
        sizes = range(1, len(names) if len(names) <= LIMITS.enclosing_attributes else 2)
        return [(), *(s for size in sizes for s in combinations(names, size))]

    def _enclosed(self, term: Term, coarser: list[tuple[str, ...]], level: float) -> _Enclosed:
        """Ends of products from those of their parts, all of which hold together (Theorem 8).

        With coefficients in ``[0, m_a]`` along attribute a an answer is at most the product of m
        over the attributes that a part leaves out, times the part; and with coefficients 0 and 1 it
        is at least the sum of its parts along single attributes, less the total once for each but
        one.
        """
        product = term.as_product()
        assert product is not None  # noqa: S101  ``_coarser`` is empty where it is none
        each = 1 - (1 - level) / len(coarser)
        shape = tuple(q.rows for _, q in product.factors)
        maximum = {n: float(once(q.coefficient_bounds()[1]).max()) for n, q in product.factors}
        low, high = np.full(shape, -np.inf), np.full(shape, np.inf)
        least, total, centre = np.zeros(shape), np.inf, np.full(shape, np.inf)
        for names in coarser:
            factors = tuple(f for f in product.factors if f[0] in names)
            part = Product(term.domain, "part", 1.0, factors)
            times = prod(m for n, m in maximum.items() if n not in names)
            ends = _joint_interval(part.rows, self._tables(part), each)
            along = [
                s if n in names else 1 for (n, _), s in zip(product.factors, shape, strict=True)
            ]
            top = np.nan_to_num(ends.high, nan=np.inf, posinf=np.inf).reshape(along)
            middle = np.nan_to_num(ends.centre, nan=np.inf, posinf=np.inf).reshape(along)
            high = np.minimum(high, times * np.maximum(top, 0.0))
            centre = np.minimum(centre, times * np.maximum(middle, 0.0))
            if len(names) == 1:
                bottom = np.nan_to_num(ends.low, nan=-np.inf, neginf=-np.inf).reshape(along)
                least = least + bottom
            elif not names:
                total = float(np.nan_to_num(ends.high, nan=np.inf)[0])
        if all(queries.intervals() is not None for _, queries in product.factors):
            low = np.maximum(low, least - (len(shape) - 1) * total)
        return _Enclosed(low.reshape(-1), high.reshape(-1), centre.reshape(-1))

    def combination(self, coefficients: Mapping[int, Array], level: float) -> TranscriptInterval:
        """The interval of one combination of the answers of some groups, by measured tables.

        It is a query as any other: tables that hold the attributes of all groups tell it.
        """
        terms = {group: self.workload.terms[group] for group in coefficients}
        read = self.domain.in_order({name for term in terms.values() for name in term.attributes})
        return _joint_interval(1, self._functional(read, terms, coefficients), level)

    def _functional(
        self,
        read: tuple[str, ...],
        terms: Mapping[int, Term],
        coefficients: Mapping[int, Array],
    ) -> Iterator[_StepAnswers]:
        if self.method != "tables" or any(term.slack for term in terms.values()):
            return
        for step in self.transcript.steps:
            names = tuple(self.domain.names[i] for i in step.place)
            if not set(read) <= set(names):
                continue
            shape = tuple(self.domain[n].size for n in names)
            weights = np.zeros(shape)  # of the measured values in the combination
            for group, term in terms.items():
                along = [
                    s if n in term.attributes else 1 for n, s in zip(names, shape, strict=True)
                ]
                weights = weights + term.adjoint(coefficients[group]).reshape(along)
            sizes = np.abs(weights)
            value = float((weights * step.measurement.values.reshape(shape)).sum())
            norms = (float((sizes**2).sum()), float(sizes.sum()), float(sizes.max(initial=0.0)))
            yield _StepAnswers(
                np.zeros(1, dtype=np.int64),
                np.array([value]),
                step.measurement.noise,
                *(np.array([norm]) for norm in norms),
            )

    def _seen(self, group: int, term: Term) -> Iterator[_StepAnswers]:
        if self.method == "tables":
            yield from self._tables(term)
        else:
            yield from self._queries(group, term)

    def _tables(self, term: Term) -> Iterator[_StepAnswers]:
        """Tables that hold all attributes of a group: the sums of their noisy cells."""
        if term.rows > WORKLOAD_LIMITS.array_entries or term.slack:
            return
        low, high = term.coefficient_bounds()
        maximum = np.maximum(np.abs(low), np.abs(high))
        for step in self.transcript.steps:
            names = tuple(self.domain.names[i] for i in step.place)
            if not set(term.attributes) <= set(names):
                continue
            shape = tuple(self.domain[n].size for n in names)
            away = tuple(i for i, n in enumerate(names) if n not in term.attributes)
            table = step.measurement.values.reshape(shape).sum(axis=away)
            times = prod(shape[i] for i in away)
            yield _StepAnswers(
                np.arange(term.rows),
                term.answer(table),
                step.measurement.noise,
                term.row_powers(2) * times,
                term.row_powers(1) * times,
                maximum,
            )

    def _queries(self, group: int, term: Term) -> Iterator[_StepAnswers]:
        """Single measured queries, in steps of the workload."""
        bits = answer_bits(self.workload)
        start = sum(t.rows for t in self.workload.terms[:group])
        for step in self.transcript.steps:
            if self.method == "mwem":
                is_here = len(step.place) == 2 and step.place[0] == group
                at = np.array(step.place[1:] if is_here else (), dtype=np.int64)
                places = np.arange(len(at))
            else:
                numbers = np.array(step.place, dtype=np.int64) - start
                places = np.flatnonzero((numbers >= 0) & (numbers < term.rows))
                at = numbers[places]
            if len(at):
                unit = np.full(len(at), 2.0**-bits)
                values = step.measurement.values[places] * unit
                yield _StepAnswers(at, values, step.measurement.noise, unit**2, unit, unit)


@dataclass(frozen=True, eq=False)
class TranscriptInterval:
    """The best mean of what was measured, and the ends; not-a-number where nothing was."""

    centre: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class _StepAnswers:
    """Answers that one step tells: sums of noisy values, and the norms of their coefficients."""

    queries: Integers
    values: Array
    law: BlockNoise
    squares: Array
    sums: Array
    maximum: Array


def half_widths(
    law: BlockNoise, squares: Array, sums: Array, greatest: Array, miss: Array
) -> Array:
    """c with ``P(|sum_j c_j Z_j| > c) <= miss``, by norms of the coefficients c_j.

    ``squares`` is ``sum c^2``, ``sums`` is ``sum |c|``, ``greatest`` is ``max |c|``. Gaussian noise
    is exact up to the rounding of every draw to the grid. A single Laplace draw is exact up to one
    step of the grid; sums have an exponential bound: docs/proofs/adaptive.md, Lemma 6.
    """
    from scipy.special import ndtri

    step = 2.0**-law.grid_bits
    if law.noise == "gaussian":
        wide = law.scale * -ndtri(miss / 2) * np.sqrt(squares)
        return np.asarray(wide + step / 2 * sums, dtype=np.float64)
    safe = np.where(greatest > 0, greatest, 1.0)
    scale, spread = law.scale * safe, squares / safe**2  # the spread of one draw is 1
    wide = np.full(squares.shape, np.inf)
    for rate in RATES:
        bound = (np.log(2 / miss) + spread * rate**2 / (1 - rate**2)) / rate
        wide = np.minimum(wide, bound)
    alone = -np.log(miss) + step / law.scale
    widths = scale * np.where(spread <= 1, np.minimum(alone, wide), wide)
    return np.where(greatest > 0, widths, 0.0)
