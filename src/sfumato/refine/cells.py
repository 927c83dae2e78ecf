# SPDX-License-Identifier: Apache-2.0
"""The nearest answers that some histogram has, over cells that can be listed.

    minimise 1/2 |F h - y|_W^2   over possible h >= 0, and 1'h = n where n is known

(the projection mechanism: Nikolov, Talwar, Zhang 2013, "The geometry of differential privacy: the
sparse and approximate cases"). ``fit_explicit`` returns weighted cells, their answers, and the gap
that is certified of them (``cell_solvers.GapBound``), whatever solver they come from. ``nearest``
chooses the solver: running totals, and one table, are projected exactly in one pass; everything
else first by few cells, and where those do not suffice by all of them: Newton steps where the
tables of the queries are small, first-order steps elsewhere. A grid with published tables has h
meet those too (``fit_published``). ``fit_minimax`` minimises the maximum difference instead.

Memory: about ten arrays over the merged cells, 0.8 GB for ten million.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Protocol

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.refine.cell_solvers import (
    GapBound,
    WeightedCells,
    fit_dense,
    fit_interior,
    fit_support,
    known_total,
    newton_system,
    unknown_total,
)
from sfumato.refine.problem import Grid, Quadratic, check_exact_combinations
from sfumato.refine.reconstruct import Fit, FitPart
from sfumato.refine.refine_limits import LIMITS
from sfumato.solve.effort import deadline, effort, must_stop, one_thread
from sfumato.solve.nonnegative import rake
from sfumato.types import Array, Integers, Progress
from sfumato.workload.constraints import agreed_total
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

__all__ = [
    "CellEstimate",
    "PublishedCells",
    "bound_of",
    "fit_explicit",
    "fit_minimax",
    "fit_published",
    "fit_running_totals",
    "fit_table",
    "nearest",
    "published_cells",
]


@dataclass(frozen=True, eq=False)
class CellEstimate:
    """Weighted cells of a grid, their answers, and what is certified of them."""

    grid: Grid
    cells: Integers
    weights: Array
    answers: Array
    value: float
    gap: float
    target_gap: float
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
    start: CellEstimate | None = None,
    seconds: float | None = None,
    steps: float = inf,
    progress: Progress | None = None,
) -> CellEstimate:
    """The estimate with a gap of at most ``gap * (value + 1e-6 |y|^2 / 2)``, if it can be reached.

    Of value and y that is the part within the span of the queries: what is beyond it
    (``Quadratic.unreachable``) no histogram changes. A gap of ``enough`` will do as well, and after
    ``steps`` multiplications or about ``seconds`` (None: no clock) the best so far is returned; its
    gap is as certified as any.
    ``precision`` is the inverse covariance of the first answers, ``exact`` their combinations
    without noise; weights of the fit are for the others. ``start`` is the estimate of nearly the
    same numbers over the same grid, if there is one. What is impossible or published is that
    of the grid; the total, if anything is published, is the published one.
    """
    if grid.constraints is not None:
        total = agreed_total(total, grid.constraints)
    unit, weight_unit = _scales(fit, total, precision)
    small = _scaled(fit, unit, weight_unit)
    q = Quadratic(small, grid, None if precision is None else precision / weight_unit)
    n = None if total is None else total / unit
    if exact is not None:
        check_exact_combinations(q, exact, n)
    whole = 0.5 * q.norm(q.values) ** 2
    floor = LIMITS.value_floor * max(0.0, whole - q.unreachable)
    square = unit**2 * weight_unit
    bound = bound_of(q, n)
    blur = bound.blur(q)

    def goal(value: float) -> float:
        rounding = LIMITS.slope_rounding * value
        within = max(0.0, value - q.unreachable) + floor
        return max(gap * within + blur + rounding, enough / square)

    def target(value: float) -> float:
        return inf if must_stop() else goal(value)  # all will do when the steps are used up

    limit = effort("cells", deadline(seconds), steps=steps)
    with limit, one_thread():  # the matrices are small
        if n and any(table.names for table in grid.published):
            published = fit_published(q, unit, n, target, nearest, _watcher(progress))
            cells, method = published.cells, published.method
        else:
            published = None
            begun = None if start is None else _begun(start, unit, n)
            cells, method = nearest(q, bound, target, start=begun, watch=_watcher(progress))
    t = q.stack_of(cells.cells, cells.weights)
    answers = q.answers(t)
    rest = answers - q.values
    down = q.adjoint(q.weigh(rest))
    value = 0.5 * float(rest @ q.weigh(rest))
    reached = cells.gap
    if published is None:
        reached = bound.gap(float(q.slopes(down).min()), float(down @ t), t)
    return CellEstimate(
        grid,
        cells.cells,
        cells.weights * unit,
        answers * unit,
        max(0.0, value) * square,
        reached * square,
        goal(value) * square,
        method,
    )


def _begun(start: CellEstimate, unit: float, total: float | None) -> WeightedCells | None:
    """The cells of an estimate, with weights of this total."""
    mass = float(start.weights.sum())
    if not mass > 0:
        return None
    held = start.weights > 0
    scale = 1 / unit if total is None else total / mass
    return WeightedCells(start.cells[held], scale * start.weights[held])


def nearest(
    q: Quadratic,
    bound: GapBound,
    target: Callable[[float], float],
    *,
    start: WeightedCells | None = None,
    watch: Callable[[float, float], None] | None = None,
) -> tuple[WeightedCells, str]:
    """The weighted cells with a gap of at most ``target(value)``, and the name of their solver.

    ``start`` are the cells of a problem much like this one, if there was one.
    """
    total = bound.total
    if total == 0:
        return WeightedCells(np.zeros(0, dtype=np.int64), np.zeros(0)), "nothing"
    running = fit_running_totals(q, total)
    if running is not None:
        return _support(running), "isotonic regression"
    table = fit_table(q, total)
    if table is not None:
        return _support(table), "threshold"
    if q.freedom > LIMITS.independent_queries_few:
        begun = None if start is None else _spread_out(q, start)
        cells = fit_dense(q, bound, target, steps=LIMITS.glance_steps, start=begun, watch=watch)
        if _is_reached(q, cells, target):
            return cells, "gradient"
    system = newton_system(q)
    if system is not None:
        if start is None or len(start.cells) <= system.few:
            cells = fit_support(q, bound, target, start=start, maximum=system.few, watch=watch)
            if _is_reached(q, cells, target):
                return cells, "active set"
        cells = fit_interior(q, system, bound, target, watch=watch)
        if _is_reached(q, cells, target):
            return cells, "interior point"
    few = start if start is not None and len(start.cells) <= LIMITS.cells_in_use else None
    cells = fit_support(q, bound, target, start=few, maximum=LIMITS.cells_in_use, watch=watch)
    if _is_reached(q, cells, target):
        return cells, "active set"
    dense = fit_dense(q, bound, target, start=_spread_out(q, cells), watch=watch)
    return (dense, "gradient") if dense.gap < cells.gap else (cells, "active set")


def bound_of(q: Quadratic, total: float | None) -> GapBound:
    """The bound that certifies histograms of a total, or of any total."""
    return unknown_total(q, _minimum_norm) if total is None else known_total(total)


def _minimum_norm(q: Quadratic) -> Array:
    """The point of least norm in the hull of the columns that are not zero."""
    parts = tuple(replace(p, values=np.zeros(len(p.values))) for p in q.fit.parts)
    centred = Quadratic(replace(q.fit, parts=parts), q.grid, q.precision)
    if not q.is_seen.any():
        return np.zeros(len(q.values))
    nearest_point = fit_support(centred, known_total(1.0), lambda v: 1e-3 * v, only_seen=True)
    return q.answers(q.stack_of(nearest_point.cells, nearest_point.weights))


def _support(h: Array) -> WeightedCells:
    cells = np.flatnonzero(h > 0)
    return WeightedCells(cells, h[cells])


def _spread_out(q: Quadratic, support: WeightedCells) -> Array:
    out = np.zeros(q.grid.size)
    out[support.cells] = support.weights
    return out


def _is_reached(q: Quadratic, support: WeightedCells, target: Callable[[float], float]) -> bool:
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


def _scaled(fit: Fit, unit: float, weight_unit: float) -> Fit:
    parts = (FitPart(p.term, p.values / unit, p.weights / weight_unit) for p in fit.parts)
    return replace(fit, parts=tuple(parts))


def _watcher(progress: Progress | None) -> Callable[[float, float], None] | None:
    """Progress in powers of two of the gap, from the first one to the one that is aimed at."""
    if progress is None:
        return None
    first: list[float] = []

    def watch(gap: float, goal: float) -> None:
        if not np.isfinite(gap):
            return
        first[:] = first or [max(gap, 1e-300)]
        whole = max(1, int(np.ceil(np.log2(first[0] / max(goal, 1e-300)))))
        done = int(np.log2(first[0] / max(gap, 1e-300)))
        progress(min(max(done, 0), whole), whole, f"gap {gap:.2g}, wanted {goal:.2g}")

    return watch


# Running totals and one table: closed forms


def fit_running_totals(q: Quadratic, total: float | None) -> Array | None:
    """The histogram of the nearest running totals: exact, in one pass over the cells.

    Running totals of a histogram are any sequence that does not fall and stays within [0, n]. The
    nearest one in a weighted norm is isotonic regression cut to the ends (Ayer, Brunk, Ewing, Reid,
    Silverman 1955, "An empirical distribution function for sampling with incomplete information";
    cutting is exact: Barlow, Brunk 1972, "The isotonic regression problem and its dual").

    Returns:
        The histogram, or None where there are other queries, or some cells are impossible.
    """
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
        elif queries[0].label_kind == "ends":
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


def fit_table(q: Quadratic, total: float | None) -> Array | None:
    """The histogram nearest to one table over all cells: exact, by one sort.

        minimise sum_x v_x h_x^2 / 2 - c_x h_x   over possible h >= 0   (and 1'h = n)

    has ``h_x = max(0, c_x - level) / v_x`` with one level: 0, or the one of the right total (as the
    projection onto a simplex: Held, Wolfe, Crowder 1974, "Validation of subgradient optimization").

    Returns:
        The histogram, or None where there are other queries, or some cell has no weight.
    """
    curvature = q.cell_weights
    if curvature is None:
        return None
    possible = np.ones(q.grid.size, dtype=np.bool_) if q.grid.possible is None else q.grid.possible
    v, c = curvature[possible], q.linear[possible]
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


# Published tables

Target = Callable[[float], float]


class Nearest(Protocol):
    """A projection without published tables."""

    def __call__(
        self,
        q: Quadratic,
        bound: GapBound,
        target: Target,
        *,
        start: WeightedCells | None = None,
        watch: Callable[[float, float], None] | None = None,
    ) -> tuple[WeightedCells, str]: ...


@dataclass(frozen=True, eq=False)
class PublishedCells:
    """Weighted cells with the published margins, and their certified gap."""

    cells: WeightedCells
    value: float
    method: str

    @property
    def gap(self) -> float:
        """The gap of the weighted cells."""
        return self.cells.gap


def fit_published(
    q: Quadratic,
    unit: float,
    total: float,
    target: Target,
    nearest: Nearest,
    watch: Callable[[float, float], None] | None = None,
) -> PublishedCells:
    """The nearest histogram with the published tables of the grid, in a unit of counts.

        minimise f(h) = 1/2 |F h - y|_W^2   over possible h >= 0 with M h = b,

    M the published tables, b their counts. By the method of multipliers (Hestenes 1969, "Multiplier
    and gradient methods"; Powell 1969): projections of y together with ``b - mu / rho``, the
    published queries weighing rho, with ``mu`` moved by ``rho (M h - b)`` after each. The weights
    of every one are raked to b, so what is returned has the published margins up to rounding.
    """
    problem = _PublishedProblem.of(q, unit, total)
    rho = LIMITS.multiplier_weight * max(float(np.abs(q.weigh(np.ones(len(q.values)))).max()), 1e-9)
    inner, mu = problem.joined(rho), np.zeros(len(problem.counts))
    cells: WeightedCells | None = None
    feasible: WeightedCells | None = None
    best: PublishedCells | None = None
    off = inf
    for _ in range(LIMITS.multiplier_rounds):
        inner = inner.towards(np.concatenate([q.values, problem.counts - mu / rho]))
        goal = LIMITS.multiplier_round_gap * target(0.0 if best is None else best.value)
        cells, method = nearest(inner, known_total(total), _always(goal), start=cells)
        miss = problem.miss(cells)
        mu = mu + rho * miss
        raked = problem.raked(cells, feasible)
        if raked is None and feasible is None:
            feasible = problem.feasible(nearest)
            raked = problem.raked(cells, feasible)
        if raked is not None:
            gap = problem.gap(raked, mu)
            if best is None or gap < best.gap:
                best = PublishedCells(
                    replace(raked, gap=gap), problem.value(raked), f"{method}, multipliers"
                )
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


def published_cells(grid: Grid, nearest: Nearest) -> WeightedCells:
    """Weighted cells with the published margins of a grid; refused where there are none."""
    total = max((t.total for t in grid.published), default=0.0)
    unit = total or 1.0
    none = Quadratic(Fit(grid.domain, ()), grid)
    cells = _PublishedProblem.of(none, unit, total / unit).feasible(nearest)
    return WeightedCells(cells.cells, cells.weights * unit)


def _always(gap: float) -> Target:
    return lambda _: gap


@dataclass(frozen=True, eq=False)
class _PublishedProblem:
    """The answers ``q``, and the published tables in the same unit."""

    q: Quadratic
    parts: tuple[FitPart, ...]
    total: float

    @classmethod
    def of(cls, q: Quadratic, unit: float, total: float) -> _PublishedProblem:
        tables = [(t.term(q.grid.domain), t.values.reshape(-1) / unit) for t in q.grid.published]
        return cls(q, tuple(FitPart(term, b, np.ones(len(b))) for term, b in tables), total)

    @property
    def counts(self) -> Array:
        """The published counts b, table after table."""
        return np.concatenate([p.values for p in self.parts])

    def joined(self, rho: float) -> Quadratic:
        """The answers and the published counts, those of weight rho."""
        heavy = tuple(replace(p, weights=np.full(len(p.values), rho)) for p in self.parts)
        fit = replace(self.q.fit, parts=(*self.q.fit.parts, *heavy))
        return Quadratic(fit, self.q.grid, self.q.precision)

    def feasible(self, nearest: Nearest) -> WeightedCells:
        """A histogram with the published margins; refused where there is none."""
        grid = self.q.grid
        cells = np.arange(grid.size) if grid.possible is None else np.flatnonzero(grid.possible)
        even = np.full(len(cells), self.total / max(1, len(cells)))
        spread = rake(even, self.places(cells), [p.values for p in self.parts])
        if spread.off <= WORKLOAD_LIMITS.published_gap:
            return WeightedCells(cells, spread.weights)
        alone = Quadratic(Fit(grid.domain, self.parts), grid)
        bound = known_total(self.total)
        closest, _ = nearest(alone, bound, lambda value: 1e-3 * value + LIMITS.margins_met)
        t = alone.stack_of(closest.cells, closest.weights)
        miss = alone.answers(t) - self.counts
        down = alone.adjoint(miss)
        value = 0.5 * float(miss @ miss)
        gap = bound.gap(float(alone.slopes(down).min()), float(down @ t), t)
        if value - gap > 10 * LIMITS.margins_met:
            raise _infeasible(grid, sqrt(2 * (value - gap)) / max(self.total, 1e-300))
        return closest

    def places(self, cells: Integers) -> list[Integers]:
        """For every table the cell of each cell of the grid."""
        grid = self.q.grid
        sets = [grid.axes(p.term.attributes) for p in self.parts]
        return list(grid.places(cells, sets).T)

    def miss(self, support: WeightedCells) -> Array:
        """``M h - b``."""
        pairs = zip(self.parts, self.places(support.cells), strict=True)
        sums = [np.bincount(at, support.weights, minlength=len(p.values)) for p, at in pairs]
        return np.concatenate(sums) - self.counts

    def raked(self, support: WeightedCells, feasible: WeightedCells | None) -> WeightedCells | None:
        """The cells with weights that have the published margins; None if raking gave none."""
        counts = [p.values for p in self.parts]
        for share in (0.0, LIMITS.feasible_share):
            cells, weights = support.cells, support.weights
            if share:
                if feasible is None:
                    break
                cells = np.concatenate([cells, feasible.cells])
                weights = np.concatenate([(1 - share) * weights, share * feasible.weights])
                cells, at = np.unique(cells, return_inverse=True)
                weights = np.bincount(at, weights).astype(np.float64)
            scaled = rake(weights, self.places(cells), counts)
            if scaled.off <= WORKLOAD_LIMITS.published_gap:
                held = scaled.weights > 0
                return WeightedCells(cells[held], scaled.weights[held])
        return None

    def value(self, support: WeightedCells) -> float:
        """f at weighted cells."""
        rest = self.q.answers(self.q.stack_of(support.cells, support.weights)) - self.q.values
        return max(0.0, 0.5 * float(rest @ self.q.weigh(rest)))

    def gap(self, support: WeightedCells, mu: Array) -> float:
        """What multipliers certify of a feasible histogram.

        For any mu, any feasible h and h*, and ``g = F'W(F h - y)``,

            f(h) - f(h*) <= <g, h - h*> = <g + M'mu, h - h*>
                         <= <g + M'mu, h> - n min_x (g + M'mu)_x,

        since ``M h = M h*``, the minimum over possible cells: the gap of a ``GapBound`` for the
        slopes ``g + M'mu``, and ``|F h - F h*|_W^2`` is below it as there. n is known: every
        published table gives it.
        """
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


# The minimax histogram


def fit_minimax(
    fit: Fit, grid: Grid, total: float | None, *, gap: float, progress: Progress | None = None
) -> CellEstimate:
    """The estimate whose value ``max_q s_q |F h - y|_q`` is certified to be nearly the minimum.

    ``s^2`` are the weights of the fit. The gap that is aimed at is
    ``gap * (value + 1e-4 max_q s_q |y_q|)``.

    It is a game between a histogram and a distribution w over queries. Against w the best histogram
    is a weighted projection; then queries gain weight where it is worst, which is boosting over
    queries (Dwork, Rothblum, Vadhan 2010, "Boosting and differential privacy") with projection as
    the learner that is good on average, and the reweighting of Lawson 1961, "Contributions to the
    theory of linear least maximum approximation". With ``r = s |F h - y|`` of any h and any w, for
    every histogram h*

        max_q r*_q  >=  (sum_q w_q r_q^2 - gap) / sum_q w_q r_q       (n known)
        max_q r*_q  >=  sqrt(sum_q w_q r_q^2 - 2 gap)                 (always),

    ``gap`` that of a ``GapBound`` for the weights w s^2. So every round has a lower bound, and the
    best histogram so far is certified. Proofs: ``docs/mechanisms/boosting.md``.
    """
    game = _Game.of(fit, grid, total)
    w = game.even
    with one_thread():  # the matrices are small
        best = latest = game.played(w, None, gap)
        lower, since = latest.lower, 0
        for turn in range(1, LIMITS.minimax_rounds):
            lower = min(lower, best.maximum)
            if progress is not None:
                progress(turn, LIMITS.minimax_rounds, f"{best.maximum:.4g}, at least {lower:.4g}")
            if (
                best.maximum - lower <= game.target_gap(best.maximum, gap)
                or since > LIMITS.minimax_patience
            ):
                break
            w = game.reweighted(w, latest.sizes)
            latest = game.played(w, latest.support, gap)
            since = 0 if latest.maximum < best.maximum or latest.lower > lower else since + 1
            best = latest if latest.maximum < best.maximum else best
            lower = max(lower, latest.lower)
    size = game.unit * game.scale_unit
    return CellEstimate(
        grid,
        best.support.cells,
        best.support.weights * game.unit,
        best.answers * game.unit,
        best.maximum * size,
        max(0.0, best.maximum - lower) * size,
        game.target_gap(best.maximum, gap) * size,
        "boosting",
    )


@dataclass(frozen=True, eq=False)
class _Round:
    """A histogram, its differences, and what its distribution proves of every histogram."""

    support: WeightedCells
    answers: Array
    sizes: Array
    lower: float

    @property
    def maximum(self) -> float:
        return float(self.sizes.max())


@dataclass(frozen=True, eq=False)
class _Game:
    """The problem in units in which answers and scales are near 1."""

    fit: Fit
    grid: Grid
    total: float | None
    scales: Array
    unit: float
    scale_unit: float

    @classmethod
    def of(cls, fit: Fit, grid: Grid, total: float | None) -> _Game:
        values = np.concatenate([p.values for p in fit.parts])
        scales = np.sqrt(np.concatenate([p.weights for p in fit.parts]))
        if not scales.any():
            raise WorkloadError("all weights are 0: there is no largest difference")
        unit = max(float(np.abs(values).max(initial=0.0)), total or 0.0) or 1.0
        scale_unit = float(scales.max())
        parts = tuple(replace(p, values=p.values / unit) for p in fit.parts)
        scaled_total = None if total is None else total / unit
        return cls(
            replace(fit, parts=parts), grid, scaled_total, scales / scale_unit, unit, scale_unit
        )

    @property
    def whole(self) -> float:
        """The maximum of ``s |y|``."""
        values = np.concatenate([p.values for p in self.fit.parts])
        return float((self.scales * np.abs(values)).max())

    @property
    def even(self) -> Array:
        """The distribution at first: all queries that count weigh the same."""
        return np.where(self.scales > 0, 1.0, 0.0) / np.count_nonzero(self.scales)

    def reweighted(self, w: Array, sizes: Array) -> Array:
        """The distribution with more weight where the last histogram is off, by how much it is."""
        moved = w * (sizes / sizes.max()) ** LIMITS.minimax_step
        raised = np.where(
            self.scales > 0, np.maximum(moved / moved.sum(), LIMITS.minimax_weight_minimum), 0.0
        )
        return np.asarray(raised / raised.sum())

    def target_gap(self, value: float, gap: float) -> float:
        """The gap at which the game ends."""
        return gap * (value + LIMITS.minimax_floor * self.whole)

    def played(self, w: Array, start: WeightedCells | None, gap: float) -> _Round:
        """The weighted projection against a distribution; half of the gap is left to it."""
        q = Quadratic(self._weighted(w), self.grid)
        floor = (LIMITS.minimax_floor * self.whole) ** 2

        def target(value: float) -> float:
            return 0.5 * gap * (value + floor)

        bound = bound_of(q, self.total)
        support, _ = nearest(q, bound, target, start=start)
        t = q.stack_of(support.cells, support.weights)
        answers = q.answers(t)
        sizes = self.scales * np.abs(answers - q.values)
        return _Round(support, answers, sizes, _lower(q, bound, w, t, answers, sizes))

    def _weighted(self, w: Array) -> Fit:
        # Scaled to a mean of 1: the solvers of projections know sizes near it.
        weights = len(w) * w * self.scales**2
        cuts = np.cumsum([p.term.rows for p in self.fit.parts])[:-1]
        pairs = zip(self.fit.parts, np.split(weights, cuts), strict=True)
        return replace(self.fit, parts=tuple(replace(p, weights=v) for p, v in pairs))


def _lower(
    q: Quadratic, bound: GapBound, w: Array, t: Array, answers: Array, sizes: Array
) -> float:
    """A lower bound on the maximum difference of every histogram (the two of ``fit_minimax``)."""
    if bound.total == 0:
        return float(sizes.max())  # there is one histogram
    down = q.adjoint(q.weigh(answers - q.values)) / len(w)
    minimum, slope = float(q.slopes(down).min()), float(down @ t)
    square, mean = float(w @ sizes**2), float(w @ sizes)
    if bound.total is not None:
        gap = max(0.0, slope - bound.total * minimum)
        return max(0.0, (square - gap) / mean) if mean > 0 else 0.0
    gap = bound.gap(minimum * len(w), slope * len(w), t) / len(w)
    return sqrt(max(0.0, square - 2 * gap))
