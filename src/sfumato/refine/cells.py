# SPDX-License-Identifier: Apache-2.0
"""The nearest answers that some histogram has, over cells that can be listed.

    minimise 1/2 |F h - y|_W^2   over possible h >= 0, and 1'h = n where n is known

(the projection mechanism: Nikolov, Talwar, Zhang 2013, "The geometry of differential privacy: the
sparse and approximate cases"). Running totals, and one table, are projected exactly in one
pass; everything else first by few cells (``active_set``), and where those do not suffice by all of
them: Newton steps where the asked tables are small (``interior``), first-order steps elsewhere
(``descent``).
Whatever found it, the estimate carries the gap of ``certificate``, computed from its answers. A
grid with published tables has h meet those too (``published``).

Memory: about ten arrays over the merged cells, 0.8 GB for ten million.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from sfumato.errors import WorkloadError
from sfumato.refine.active_set import Support, fit_dense, fit_support
from sfumato.refine.grid import Grid
from sfumato.refine.interior import fit_interior, newton_system
from sfumato.refine.problem import (
    Bound,
    Quadratic,
    check_exact_combinations,
    known_total,
    unknown_total,
)
from sfumato.refine.reconstruct import Fit, Part
from sfumato.refine.refine_limits import LIMITS
from sfumato.solve.effort import deadline, effort, must_stop
from sfumato.solve.raking import rake
from sfumato.types import Array, Integers, Progress
from sfumato.workload.constraints import CLOSE, Constraints
from sfumato.workload.queries import Prefix

__all__ = [
    "Estimate",
    "Met",
    "agreed_total",
    "bound_of",
    "fit_explicit",
    "fit_published",
    "fit_running_totals",
    "fit_table",
    "nearest",
    "published_cells",
]


# --------------------
# The nearest answers of histograms with given margins.
#
# |   minimise f(h) = 1/2 |F h - y|_W^2   over possible h >= 0 with M h = b,
#
# M the published tables, b their counts. By the method of multipliers (Hestenes 1969, "Multiplier
# and gradient methods"; Powell 1969): projections of y together with ``b - mu / rho``, the
# published queries weighing rho, with ``mu`` moved by ``rho (M h - b)`` after each. The weights of
# every one are raked to b, so what is returned has the published margins up to rounding.
#
# Certificate: for any mu, any feasible h and h*, and ``g = F'W(F h - y)``,
#
# |   f(h) - f(h*) <= <g, h - h*> = <g + M'mu, h - h*> <= <g + M'mu, h> - n min_x (g + M'mu)_x,
#
# since ``M h = M h*``, the minimum over possible cells: the gap of ``row_problem.py`` for the
# slopes ``g + M'mu``, and ``|F h - F h*|_W^2`` is below it as there. n is known: every table gives
# it.


Target = Callable[[float], float]


class Nearest(Protocol):
    """A projection without published tables."""

    def __call__(
        self,
        q: Quadratic,
        bound: Bound,
        target: Target,
        *,
        start: Support | None = None,
        watch: Callable[[float, float], None] | None = None,
    ) -> tuple[Support, str]: ...


@dataclass(frozen=True, eq=False)
class Met:
    """Weighted cells with the published margins, and their certified gap."""

    support: Support
    value: float
    method: str

    @property
    def gap(self) -> float:
        """Of the support."""
        return self.support.gap


def fit_published(
    q: Quadratic,
    unit: float,
    total: float,
    target: Target,
    nearest: Nearest,
    watch: Callable[[float, float], None] | None = None,
) -> Met:
    """The nearest histogram with the published tables of the grid, in a given unit of counts."""
    problem = _Problem.of(q, unit, total)
    rho = LIMITS.multiplier_weight * max(float(np.abs(q.weigh(np.ones(len(q.values)))).max()), 1e-9)
    inner, mu = problem.joined(rho), np.zeros(len(problem.counts))
    found: Support | None = None
    feasible: Support | None = None
    best: Met | None = None
    off = inf
    for _ in range(LIMITS.multiplier_rounds):
        inner = inner.towards(np.concatenate([q.values, problem.counts - mu / rho]))
        wanted = LIMITS.multiplier_round_gap * target(0.0 if best is None else best.value)
        found, method = nearest(inner, known_total(total), _always(wanted), start=found)
        miss = problem.miss(found)
        mu = mu + rho * miss
        met = problem.raked(found, feasible)
        if met is None and feasible is None:
            feasible = problem.feasible(nearest)
            met = problem.raked(found, feasible)
        if met is not None:
            gap = problem.gap(met, mu)
            if best is None or gap < best.gap:
                best = Met(replace(met, gap=gap), problem.value(met), f"{method}, multipliers")
            if watch is not None:
                watch(best.gap, target(best.value))
            if best.gap <= target(best.value):
                break
        before, off = off, float(np.linalg.norm(miss))
        if off > LIMITS.multiplier_slow * before and rho < LIMITS.multiplier_weight_maximum:
            rho *= 4
            inner = problem.joined(rho)
    if best is None:
        raise WorkloadError(
            "the published tables could not be met to a billionth of all records, though nothing "
            "shows that they contradict each other; leave one of them out"
        )
    return best


def published_cells(grid: Grid, nearest: Nearest) -> Support:
    """Weighted cells with the published margins of a grid; refused where there are none."""
    total = max((t.total for t in grid.published), default=0.0)
    unit = total or 1.0
    none = Quadratic(Fit(grid.domain, ()), grid)
    found = _Problem.of(none, unit, total / unit).feasible(nearest)
    return Support(found.cells, found.weights * unit)


def _always(gap: float) -> Target:
    return lambda _: gap


@dataclass(frozen=True, eq=False)
class _Problem:
    """The answers ``q``, and the published tables in the same unit."""

    q: Quadratic
    parts: tuple[Part, ...]
    total: float

    @classmethod
    def of(cls, q: Quadratic, unit: float, total: float) -> _Problem:
        tables = [(t.term(q.grid.domain), t.values.reshape(-1) / unit) for t in q.grid.published]
        return cls(q, tuple(Part(term, b, np.ones(len(b))) for term, b in tables), total)

    @property
    def counts(self) -> Array:
        """b."""
        return np.concatenate([p.values for p in self.parts])

    def joined(self, rho: float) -> Quadratic:
        """The answers and the published counts, those of weight rho."""
        heavy = tuple(replace(p, weights=np.full(len(p.values), rho)) for p in self.parts)
        fit = replace(self.q.fit, parts=(*self.q.fit.parts, *heavy))
        return Quadratic(fit, self.q.grid, self.q.precision)

    def feasible(self, nearest: Nearest) -> Support:
        """A histogram with the published margins; refused where there is none."""
        grid = self.q.grid
        cells = np.arange(grid.size) if grid.possible is None else np.flatnonzero(grid.possible)
        even = np.full(len(cells), self.total / max(1, len(cells)))
        spread = rake(even, self.places(cells), [p.values for p in self.parts])
        if spread.off <= CLOSE:
            return Support(cells, spread.weights)
        alone = Quadratic(Fit(grid.domain, self.parts), grid)
        bound = known_total(self.total)
        found, _ = nearest(alone, bound, lambda value: 1e-3 * value + LIMITS.margins_met)
        t = alone.stack_of(found.cells, found.weights)
        miss = alone.answers(t) - self.counts
        down = alone.adjoint(miss)
        value = 0.5 * float(miss @ miss)
        gap = bound.gap(float(alone.slopes(down).min()), float(down @ t), t)
        if value - gap > 10 * LIMITS.margins_met:
            raise _infeasible(grid, sqrt(2 * (value - gap)) / max(self.total, 1e-300))
        return found

    def places(self, cells: Integers) -> list[Integers]:
        """For every table the cell of each cell of the grid."""
        grid = self.q.grid
        sets = [grid.axes(p.term.attributes) for p in self.parts]
        return list(grid.places(cells, sets).T)

    def miss(self, support: Support) -> Array:
        """``M h - b``."""
        pairs = zip(self.parts, self.places(support.cells), strict=True)
        sums = [np.bincount(at, support.weights, minlength=len(p.values)) for p, at in pairs]
        return np.concatenate(sums) - self.counts

    def raked(self, support: Support, feasible: Support | None) -> Support | None:
        """The cells with weights that have the published margins; None if none were found."""
        wanted = [p.values for p in self.parts]
        for share in (0.0, LIMITS.feasible_share):
            cells, weights = support.cells, support.weights
            if share:
                if feasible is None:
                    break
                cells = np.concatenate([cells, feasible.cells])
                weights = np.concatenate([(1 - share) * weights, share * feasible.weights])
                cells, at = np.unique(cells, return_inverse=True)
                weights = np.bincount(at, weights).astype(np.float64)
            found = rake(weights, self.places(cells), wanted)
            if found.off <= CLOSE:
                held = found.weights > 0
                return Support(cells[held], found.weights[held])
        return None

    def value(self, support: Support) -> float:
        """f."""
        rest = self.q.answers(self.q.stack_of(support.cells, support.weights)) - self.q.values
        return max(0.0, 0.5 * float(rest @ self.q.weigh(rest)))

    def gap(self, support: Support, mu: Array) -> float:
        """What is certified of a feasible histogram by multipliers."""
        both = self.joined(1.0)
        t = both.stack_of(support.cells, support.weights)
        rest = both.answers(t)[: len(self.q.values)] - self.q.values
        down = both.adjoint(np.concatenate([self.q.weigh(rest), mu]))
        return known_total(self.total).gap(float(both.slopes(down).min()), float(down @ t), t)


def _infeasible(grid: Grid, off: float) -> WorkloadError:
    named = " and ".join(" x ".join(t.names) for t in grid.published)
    is_cut = grid.constraints is not None and grid.constraints.impossible
    return WorkloadError(
        f"no data set has the published {named}{' without an impossible record' if is_cut else ''}:"
        f" the nearest counts are off by {off:.2g} of all records; correct the tables or leave one "
        "of them out"
    )


# --------------------
# Projection of running totals: exact, in one pass over the cells.
#
# Running totals of a histogram are any sequence that does not fall and stays within [0, n]. The
# nearest one in a weighted norm is isotonic regression cut to the ends (Ayer, Brunk, Ewing, Reid,
# Silverman 1955, "An empirical distribution function for sampling with incomplete information";
# cutting is exact: Barlow, Brunk 1972, "The isotonic regression problem and its dual").


def fit_running_totals(q: Quadratic, total: float | None) -> Array | None:
    """The histogram; None where other things are asked, or some cells are impossible."""
    if q.precision is not None or len(q.grid.names) != 1 or q.grid.possible is not None:
        return None
    size = q.grid.size
    weight, sums = np.zeros(size), np.zeros(size)
    for part in q.fit.parts:
        term = part.term.as_product()
        if term is None:
            return None
        queries = [s for _, s in term.factors]
        if not queries:
            at = slice(size - 1, size)
        elif isinstance(queries[0], Prefix):
            at = slice(None)
        else:
            return None
        weight[at] += part.weights
        sums[at] += part.weights * part.values
    means = np.divide(sums, weight, out=np.zeros(size), where=weight > 0)
    return _histogram(means, weight, total)


def _histogram(means: Array, weight: Array, total: float | None) -> Array:
    """Steps between the nearest running totals; those of no weight are where their left is."""
    from scipy.optimize import isotonic_regression

    inner = np.flatnonzero(weight > 0)
    if total is not None:
        inner = inner[inner < len(means) - 1]  # the last one is the total
    running = np.zeros(len(means))
    if inner.size:
        nearest = isotonic_regression(means[inner], weights=weight[inner]).x
        high = np.inf if total is None else total
        marked = np.zeros(len(means), dtype=np.int64)
        marked[inner] = 1
        before = np.cumsum(marked)
        running = np.concatenate([[0.0], np.clip(nearest, 0.0, high)])[before]
    if total is not None:
        running[-1] = total
    return np.diff(running, prepend=0.0)


# --------------------
# Projection of one table over all cells: exact, by one sort.
#
# |   minimise sum_x v_x h_x^2 / 2 - c_x h_x   over possible h >= 0   (and 1'h = n)
#
# has ``h_x = max(0, c_x - level) / v_x`` with one level: 0, or the one of the right total (as the
# projection onto a simplex: Held, Wolfe, Crowder 1974, "Validation of subgradient optimization").


def fit_table(q: Quadratic, total: float | None) -> Array | None:
    """The histogram; None where other things are asked, or some cell has no weight."""
    curvature = q.cell_weights
    if curvature is None:
        return None
    possible = np.ones(q.grid.size, dtype=np.bool_) if q.grid.possible is None else q.grid.possible
    v, c = curvature[possible], q.wanted[possible]
    if not v.size or not (v > 0).all():
        return None
    level = 0.0
    if total is not None:
        order = np.argsort(-c, kind="stable")
        levels = (np.cumsum((c / v)[order]) - total) / np.cumsum(1 / v[order])
        above = np.flatnonzero(c[order] > levels)  # an initial run
        level = float(levels[above[-1]])
    out = np.zeros(q.grid.size)
    out[possible] = np.maximum(c - level, 0.0) / v
    if total is not None:
        out *= total / float(out.sum())  # rounding
    return out


@dataclass(frozen=True, eq=False)
class Estimate:
    """Weighted cells of a grid, their answers, and what is certified of them."""

    grid: Grid
    cells: Integers
    weights: Array
    answers: Array
    value: float
    gap: float
    wanted: float
    method: str

    @property
    def distance_bound(self) -> float:
        """``|F h - projection|_W`` is at most this."""
        return sqrt(self.gap)


def fit_explicit(
    fit: Fit,
    grid: Grid,
    total: float | None,
    *,
    gap: float,
    precision: Array | None = None,
    exact: Array | None = None,
    enough: float = 0.0,
    seconds: float | None = None,
    steps: float = inf,
    progress: Progress | None = None,
) -> Estimate:
    """The estimate with a gap of at most ``gap * (value + 1e-6 |y|^2 / 2)``, if it can be reached.

    A gap of ``enough`` will do as well, and after ``steps`` multiplications or about ``seconds``
    (None: no clock) the best so far is taken; its gap is as certified as any.
    ``precision`` is the inverse covariance of the first answers, ``exact`` their combinations
    without noise; weights of the fit are for the others. What is impossible or published is that
    of the grid; the total, if anything is published, is the published one.
    """
    total = agreed_total(total, grid.constraints)
    unit, heaviest = _scales(fit, total, precision)
    small = _scaled(fit, unit, heaviest)
    q = Quadratic(small, grid, None if precision is None else precision / heaviest)
    n = None if total is None else total / unit
    if exact is not None:
        check_exact_combinations(q, exact, n)
    whole = 0.5 * q.norm(q.values) ** 2
    square = unit**2 * heaviest
    bound = bound_of(q, n)
    blur = bound.blur(q)

    def wanted(value: float) -> float:
        return max(
            gap * (value + LIMITS.value_floor * whole) + blur + LIMITS.slope_rounding * value,
            enough / square,
        )

    def target(value: float) -> float:
        return inf if must_stop() else wanted(value)  # all will do when the steps are used up

    limit = effort("cells", deadline(seconds), steps=steps)
    with limit, threadpool_limits(limits=1, user_api="blas"):  # the matrices are small
        if n and any(table.names for table in grid.published):
            met = fit_published(q, unit, n, target, nearest, _watcher(progress))
            found, method = met.support, met.method
        else:
            met = None
            found, method = nearest(q, bound, target, watch=_watcher(progress))
    t = q.stack_of(found.cells, found.weights)
    answers = q.answers(t)
    rest = answers - q.values
    down = q.adjoint(q.weigh(rest))
    value = 0.5 * float(rest @ q.weigh(rest))
    reached = found.gap
    if met is None:
        reached = bound.gap(float(q.slopes(down).min()), float(down @ t), t)
    return Estimate(
        grid,
        found.cells,
        found.weights * unit,
        answers * unit,
        max(0.0, value) * square,
        reached * square,
        wanted(value) * square,
        method,
    )


def agreed_total(total: float | None, constraints: Constraints | None) -> float | None:
    """The number of records: as given, or as published; refused where the two differ."""
    known = None if constraints is None else constraints.total
    if known is None or total is None:
        return total if known is None else known
    if abs(total - known) > CLOSE * max(total, known):
        raise WorkloadError(
            f"the number of records is given as {total:,.10g}, but the published tables add up to "
            f"{known:,.10g}; leave n out, or correct one of them"
        )
    return known


def nearest(
    q: Quadratic,
    bound: Bound,
    target: Callable[[float], float],
    *,
    start: Support | None = None,
    watch: Callable[[float, float], None] | None = None,
) -> tuple[Support, str]:
    """The weighted cells with a gap of at most ``target(value)``, and how they were found.

    ``start`` are the cells of a problem much like this one, if there was one.
    """
    total = bound.total
    if total == 0:
        return Support(np.zeros(0, dtype=np.int64), np.zeros(0)), "nothing"
    running = fit_running_totals(q, total)
    if running is not None:
        return _support(running), "isotonic regression"
    table = fit_table(q, total)
    if table is not None:
        return _support(table), "threshold"
    if q.freedom > LIMITS.independent_queries_few:
        begun = None if start is None else _spread_out(q, start)
        found = fit_dense(q, bound, target, steps=LIMITS.glance_steps, start=begun, watch=watch)
        if _is_reached(q, found, target):
            return found, "gradient"
    system = newton_system(q)
    if system is not None:
        if start is None or len(start.cells) <= system.few:
            found = fit_support(q, bound, target, start=start, most=system.few, watch=watch)
            if _is_reached(q, found, target):
                return found, "active set"
        found = fit_interior(q, system, bound, target, watch=watch)
        if _is_reached(q, found, target):
            return found, "interior point"
    few = start if start is not None and len(start.cells) <= LIMITS.cells_in_use else None
    found = fit_support(q, bound, target, start=few, most=LIMITS.cells_in_use, watch=watch)
    if _is_reached(q, found, target):
        return found, "active set"
    dense = fit_dense(q, bound, target, start=_spread_out(q, found), watch=watch)
    return (dense, "gradient") if dense.gap < found.gap else (found, "active set")


def bound_of(q: Quadratic, total: float | None) -> Bound:
    """What certifies histograms of a total, or of any."""
    return unknown_total(q, _least_norm) if total is None else known_total(total)


def _least_norm(q: Quadratic) -> Array:
    """The point of least norm in the hull of the columns that are not zero."""
    parts = tuple(replace(p, values=np.zeros(len(p.values))) for p in q.fit.parts)
    centred = Quadratic(replace(q.fit, parts=parts), q.grid, q.precision)
    if not q.is_seen.any():
        return np.zeros(len(q.values))
    found = fit_support(centred, known_total(1.0), lambda v: 1e-3 * v, only_seen=True)
    return q.answers(q.stack_of(found.cells, found.weights))


def _support(h: Array) -> Support:
    cells = np.flatnonzero(h > 0)
    return Support(cells, h[cells])


def _spread_out(q: Quadratic, support: Support) -> Array:
    out = np.zeros(q.grid.size)
    out[support.cells] = support.weights
    return out


def _is_reached(q: Quadratic, support: Support, target: Callable[[float], float]) -> bool:
    rest = q.answers(q.stack_of(support.cells, support.weights)) - q.values
    return support.gap <= target(0.5 * float(rest @ q.weigh(rest)))


def _scales(fit: Fit, total: float | None, precision: Array | None) -> tuple[float, float]:
    """A unit of answers and one of weights, so that what is solved is near 1."""
    sizes = [float(np.abs(p.values).max(initial=0.0)) for p in fit.parts]
    unit = max(*sizes, total or 0.0, 0.0) or 1.0
    heavy = [float(p.weights.max(initial=0.0)) for p in fit.parts]
    if precision is not None:
        heavy.append(float(np.abs(precision).max(initial=0.0)))
    return unit, max(heavy) or 1.0


def _scaled(fit: Fit, unit: float, heaviest: float) -> Fit:
    parts = (Part(p.term, p.values / unit, p.weights / heaviest) for p in fit.parts)
    return replace(fit, parts=tuple(parts))


def _watcher(progress: Progress | None) -> Callable[[float, float], None] | None:
    """Progress in powers of two of the gap, from the first one seen to the wanted one."""
    if progress is None:
        return None
    first: list[float] = []

    def watch(gap: float, wanted: float) -> None:
        if not np.isfinite(gap):
            return
        first[:] = first or [max(gap, 1e-300)]
        whole = max(1, int(np.ceil(np.log2(first[0] / max(wanted, 1e-300)))))
        done = int(np.log2(first[0] / max(gap, 1e-300)))
        progress(min(max(done, 0), whole), whole, f"gap {gap:.2g}, wanted {wanted:.2g}")

    return watch
