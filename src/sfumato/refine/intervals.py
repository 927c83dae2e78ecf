# SPDX-License-Identifier: Apache-2.0
"""What an answer can be whatever the data are, and intervals that use it.

An interval ``[a - c, a + c]`` holds the truth with some probability. The truth also lies, surely,
between bounds, and is a whole number where all coefficients are: dropping the rest loses nothing
that could be true. Published values are then taken in, so that none lies outside its own interval;
widening loses nothing either. The ends at a higher level enclose those at a lower one: where no
possible number is left, the nearest one stands alone, and it is inside at every level.

Public arithmetic: bounds come from queries, from a public number of records, and from constraints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfumato.errors import TooLarge, WorkloadError
from sfumato.planning.forecast import Forecast
from sfumato.planning.resources import LISTED
from sfumato.refine.consistency import Projection, Refined, has_wide, objective_fit
from sfumato.refine.draws import Draws, drawn_noise
from sfumato.refine.grid import Grid
from sfumato.refine.refine_limits import LIMITS
from sfumato.text import shown
from sfumato.types import Array, Progress
from sfumato.workload.constraints import Constraints, Published
from sfumato.workload.normal_form import Normal
from sfumato.workload.queries import DENSE_LIMIT, once
from sfumato.workload.terms import Product, Term

__all__ = [
    "Bootstrap",
    "Bounds",
    "Intervals",
    "bootstrapped",
    "check_intervals",
    "feasible_bounds",
    "sure_bounds",
]


@dataclass(frozen=True, eq=False)
class Bounds:
    """The least and the greatest answer of every query, and whether answers are whole numbers."""

    low: Array
    high: Array
    is_whole: bool

    def at(self, rows: slice) -> Bounds:
        """Those of some queries."""
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
    """What the answers of a group can be, for so many records that meet the constraints.

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
            least, most = _given(term, table)
            low, high = np.maximum(low, least), np.minimum(high, most)
        high = np.maximum(high, low)  # rounding
    is_whole = term.fraction_bits == 0 and term.slack == 0 and term.unit_bits == 0
    return Bounds(low, high, is_whole)


def feasible_bounds(term: Term, rows: float | None) -> tuple[Array, Array]:
    """The least and greatest answer that ``rows`` records (any number, if None) can have.

    A query with coefficients in [a, b] on n records lies in [n a, n b]; for unknown n that is
    [0, inf) when a >= 0, (-inf, 0] when b <= 0, and no bound otherwise.
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
    """Queries that look at impossible cells only are 0; those that look at all others know n."""
    looks = constraints.labels().keys() & set(term.attributes)
    if not looks or not term.is_nonnegative or term.cells > DENSE_LIMIT:
        return low, high
    possible = constraints.possible(term.attributes)
    reached = term.answer(possible.astype(np.int64))
    high = np.where(reached == 0, 0.0, high)
    if total is not None:
        greatest = term.coefficient_bounds()[1]
        low = np.where(reached == greatest * int(possible.sum()), greatest * total, low)
    return low, high


def _given(term: Term, table: Published) -> tuple[Array, Array]:
    """What a published table says: all of it, or how many records a query can reach at most.

    With b the counts over the shared attributes, ``q h = sum_v sum_(x in v) q(x) h(x)`` lies
    between ``sum_v b_v min q`` and ``sum_v b_v max q``, the extremes over the other attributes.
    """
    if set(term.attributes) <= set(table.names):
        found = term.answer(table.margin(term.attributes))
        return found, found
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
            least, most = (np.asarray(b, dtype=np.float64) for b in queries.coefficient_bounds())
            turned = [-1 if i == axis else 1 for i in range(len(along))]
            low, high = low * least.reshape(turned), high * most.reshape(turned)
    return low.reshape(-1), high.reshape(-1)


def _up(numbers: Array) -> Array:
    found = np.ceil(
        numbers - LIMITS.whole_number_rounding * np.maximum(1.0, np.abs(_finite(numbers)))
    )
    return np.asarray(found + 0.0)  # no -0


def _down(numbers: Array) -> Array:
    return np.asarray(
        np.floor(numbers + LIMITS.whole_number_rounding * np.maximum(1.0, np.abs(_finite(numbers))))
    )


def _finite(numbers: Array) -> Array:
    return np.where(np.isfinite(numbers), numbers, 0.0)


# --------------------
# Approximate intervals of projected answers: the release repeated around its own estimate.
#
# Intervals from the law of the noise hold for all data and are as wide as the noise. Projected
# answers err less, by how much depends on the data. Here the published answers p take the place of
# the truth: noise of the planned law is added to them, the result is projected as the release was,
#
# |   p_b = project(p + Z_b),   b = 1 .. B,     half width = the level-quantile of |p_b - p|,
#
# the parametric bootstrap (Efron, Tibshirani 1993, "An introduction to the bootstrap", section
# 6.5). It is **approximate**: where p lies on the boundary of what data can have, and the truth
# does not, repeated projections err less than the first one did, so the intervals can be too short
# (Andrews 2000, "Inconsistency of the bootstrap when a parameter is on the boundary of the
# parameter space"). ``python -m bench intervals`` measures how often they hold.
#
# Public arithmetic on released numbers with repeatable public draws: no privacy is spent.


Intervals = Literal["noise", "bootstrap"]
Project = Callable[[Sequence[Array]], Refined | None]


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """The sizes of the errors of repeated releases, sorted, per group: draw x query."""

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
        """The same errors in the places where the answers were asked."""
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
    if grid is None or grid.size > LISTED:
        raise TooLarge(
            "a bootstrap projects again and again, so the cells of all asked attributes together "
            f'must be at most {LISTED:,}; use intervals="noise", or ask about fewer attributes'
        )


def bootstrapped(
    forecast: Forecast, found: Refined, project: Project, progress: Progress | None = None
) -> Bootstrap:
    """The errors of ``DRAWS`` releases of the published answers.

    ``project`` makes the unbiased answers of one agree. Where it finds none in time, the error is
    that of the unbiased ones, which is larger.
    """
    work = forecast.workload
    centre = np.concatenate(found.answers)
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
