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

import numpy as np
from threadpoolctl import threadpool_limits

from sfumato.errors import WorkloadError
from sfumato.plan.effort import deadline, effort, must_stop
from sfumato.refine.cells.active_set import Support, fit_support
from sfumato.refine.cells.certificate import ROUNDING, Bound, known_total, unknown_total
from sfumato.refine.cells.descent import fit_dense
from sfumato.refine.cells.grid import MOST_CELLS, Grid
from sfumato.refine.cells.interior import fit_interior
from sfumato.refine.cells.isotonic import fit_running_totals
from sfumato.refine.cells.metric import check_exact_combinations
from sfumato.refine.cells.published import fit_published
from sfumato.refine.cells.quadratic import Quadratic
from sfumato.refine.cells.separable import fit_table
from sfumato.refine.cells.systems import newton_system
from sfumato.refine.fit import Fit, Part
from sfumato.workload.constraints import CLOSE, Constraints
from sfumato.workload.queries import Array, Integers

__all__ = ["MOST_CELLS", "Estimate", "agreed_total", "bound_of", "fit_explicit", "nearest"]

FLOOR = 1e-6  # of |y|^2 / 2: gaps are asked for relative to the value plus this

MOST_FREE = 4000  # independent queries up to which few cells are tried at once
MOST_USED = 3000  # cells in use whose weights are solved for as one dense problem
GLANCE = 40  # steps over all cells, enough where queries hardly overlap

Progress = Callable[[int, int, str], None]


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
        return max(gap * (value + FLOOR * whole) + blur + ROUNDING * value, enough / square)

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
    if q.freedom > MOST_FREE:
        begun = None if start is None else _spread_out(q, start)
        found = fit_dense(q, bound, target, steps=GLANCE, start=begun, watch=watch)
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
    few = start if start is not None and len(start.cells) <= MOST_USED else None
    found = fit_support(q, bound, target, start=few, most=MOST_USED, watch=watch)
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
