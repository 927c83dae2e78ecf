# SPDX-License-Identifier: Apache-2.0
"""Intervals of published answers, and the bounds that no data can exceed.

Three kinds of intervals, each a function of released numbers and public draws:

* ``Bounds.interval`` cuts the interval of the noise to what is possible. An interval
  ``[a - c, a + c]`` holds the truth with some probability. The truth also lies, surely, between
  bounds (``sure_bounds``: from queries, a public number of records, and constraints), and is a
  whole number where all coefficients are: dropping the rest loses nothing that could be true.
  Published values are then taken in, so that none lies outside its own interval; widening loses
  nothing either. The ends at a higher level enclose those at a lower one: where no possible number
  is left, the nearest one stands alone, and it is inside at every level.
* ``Bootstrap``: approximate intervals of projected answers, which err less than the noise.
* ``TranscriptIntervals``: intervals for what the steps of an adaptive release measured.

Nothing here costs privacy (Dwork, Roth 2014, Proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, prod
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.measurement import Transcript
from sfumato.planning.forecast import Forecast
from sfumato.planning.planning_limits import LIMITS as PLANNING_LIMITS
from sfumato.planning.public_draws import Draws, drawn_noise
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.refine.consistency import Projection, Refined, has_wide, objective_fit
from sfumato.refine.problem import Grid
from sfumato.refine.refine_limits import LIMITS
from sfumato.text import shown
from sfumato.types import Array, Integers, Progress
from sfumato.workload.constraints import Constraints, Published
from sfumato.workload.normal_form import Normal
from sfumato.workload.queries import once
from sfumato.workload.scans import answer_bits
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

__all__ = [
    "Bootstrap",
    "Bounds",
    "Intervals",
    "TranscriptInterval",
    "TranscriptIntervals",
    "bootstrapped",
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


# The bootstrap

Intervals = Literal["noise", "bootstrap"]
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
    if intervals != "bootstrap":
        raise WorkloadError(
            'intervals are "noise" (they hold as often as they say) or "bootstrap" (approximate), '
            f"got {shown(intervals)}"
        )
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


def _joint_interval(rows: int, steps: Iterable[_StepAnswers], level: float) -> TranscriptInterval:
    """The interval that all steps leave, each by its share of what may be missed (Theorem 5)."""
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
    # Steps that exclude each other leave the mean of all; it is inside at every level.
    low, high = np.fmin(low, centre), np.fmax(high, centre)
    is_measured = times > 0
    return TranscriptInterval(
        centre, np.where(is_measured, low, np.nan), np.where(is_measured, high, np.nan)
    )


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

        Not-a-number where no step tells the answer.
        """
        term = self.workload.terms[group]
        return _joint_interval(term.rows, self._seen(group, term), level)

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
