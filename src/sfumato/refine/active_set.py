# SPDX-License-Identifier: Apache-2.0
"""Projection by few cells: those of least slope come in, all weights are solved for again.

Fully corrective Frank-Wolfe, which for a hull of points is the algorithm of Wolfe 1976, "Finding
the nearest point in a polytope" (Lacoste-Julien, Jaggi 2015, "On the global linear convergence of
Frank-Wolfe optimization variants"). An optimum has at most one cell more than there are linearly
independent queries (Caratheodory), so the weights are a small dense problem however many cells
there are; a round costs one gradient over all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from sfumato.refine.problem import Bound, Quadratic
from sfumato.refine.refine_limits import LIMITS
from sfumato.solve.effort import spend
from sfumato.solve.nonnegative import nonnegative_least_squares, project_to_simplex
from sfumato.types import Array, Integers, Mask

__all__ = [
    "Support",
    "fit_dense",
    "fit_support",
]


@dataclass(frozen=True, eq=False)
class Support:
    """Cells of positive weight, and what is certified of them (``inf``: nothing)."""

    cells: Integers
    weights: Array
    gap: float = inf


def fit_support(
    q: Quadratic,
    bound: Bound,
    target: Callable[[float], float],
    *,
    start: Support | None = None,
    most: int = 4000,
    only_seen: bool = False,
    watch: Callable[[float, float], None] | None = None,
) -> Support:
    """Cells and weights with a gap of at most ``target(value)``, unless more than ``most`` cells
    or rounding stand in the way; the best that was found."""
    columns = _Columns.of(q, start or _first(q, bound, only_seen))
    best, since, constant = Support(columns.cells, columns.weights), 0, 0.5 * q.norm(q.values) ** 2
    for _ in range(LIMITS.active_set_rounds):
        t = q.stack_of(columns.cells, columns.weights)
        down = q.curve(t) - q.wanted
        slopes = q.slopes(down)
        if only_seen:
            slopes = np.where(q.is_seen, slopes, inf)
        slope, least = float(down @ t), float(slopes.min())
        gap = bound.gap(least, slope, t)
        value = constant + 0.5 * float((down - q.wanted) @ t)
        since = 0 if gap < best.gap else since + 1
        if gap <= best.gap:
            best = Support(columns.cells, columns.weights, gap)
        wanted = target(max(value, 0.0))
        if watch is not None:
            watch(gap, wanted)
        if gap <= wanted or since > LIMITS.active_set_patience or len(columns.cells) > most:
            break
        level = slope / bound.total if bound.total else 0.0
        new = _steepest(slopes, level, max(8, len(columns.cells) // 4))
        new = new[~np.isin(new, columns.cells)]
        # To solve for the weights much better than the cells are known would be wasted.
        columns = columns.joined(q, new)
        spend(float(len(columns.cells)) ** 3)
        columns = columns.solved(bound.total, LIMITS.active_set_weights_tolerance * (level - least))
    return best


def _first(q: Quadratic, bound: Bound, only_seen: bool) -> Support:
    """The cell of least slope at zero, with all of the total; nothing where that is unknown."""
    if bound.total is None:
        return Support(np.zeros(0, dtype=np.int64), np.zeros(0))
    slopes = q.slopes(-q.wanted)
    if only_seen:
        slopes = np.where(q.is_seen, slopes, inf)
    return Support(np.array([int(slopes.argmin())]), np.array([bound.total]))


def _steepest(slopes: Array, level: float, count: int) -> Integers:
    """The cells of least slope, of those below ``level``."""
    if len(slopes) > 4 * count:
        found = np.argpartition(slopes, count)[:count]
        found = found[np.argsort(slopes[found])]
    else:
        found = np.argsort(slopes)[:count]
    return found[slopes[found] < level]


@dataclass(frozen=True, eq=False)
class _Columns:
    """The cells in use with their Gram matrix."""

    cells: Integers
    weights: Array
    places: Integers
    gram: Array
    target: Array

    @classmethod
    def of(cls, q: Quadratic, support: Support) -> _Columns:
        places = q.places(support.cells)
        target = q.wanted[places].sum(axis=1)
        gram = q.gram(places, places)
        return cls(support.cells, support.weights, places, gram, target)

    def joined(self, q: Quadratic, new: Integers) -> _Columns:
        """More cells, of weight 0."""
        more = q.places(new)
        places = np.concatenate([self.places, more])
        old = len(self.cells)
        gram = np.empty((len(places), len(places)))
        gram[:old, :old] = self.gram
        gram[old:] = q.gram(more, places)
        gram[:old, old:] = gram[old:, :old].T
        return _Columns(
            np.concatenate([self.cells, new]),
            np.concatenate([self.weights, np.zeros(len(new))]),
            places,
            gram,
            np.concatenate([self.target, q.wanted[more].sum(axis=1)]),
        )

    def solved(self, total: float | None, tolerance: float) -> _Columns:
        """The best weights, slopes within a tolerance; cells without any are dropped."""
        least = 1e-14 * max(float(np.abs(self.target).max(initial=0.0)), 1e-300)
        found = nonnegative_least_squares(
            self.gram, self.target, self.weights, total, max(tolerance, least)
        )
        at = np.flatnonzero(found > 0)
        return _Columns(
            self.cells[at], found[at], self.places[at], self.gram[np.ix_(at, at)], self.target[at]
        )


# --------------------
# Projection with many cells in use: accelerated projected gradient over all of them.
#
# Beck, Teboulle 2009, "A fast iterative shrinkage-thresholding algorithm for linear inverse
# problems", with the restart of O'Donoghue, Candes 2015, "Adaptive restart for accelerated
# gradient schemes". The gap falls as ``2 L |h0 - h*|^2 / t^2`` and faster where the active cells
# settle.


def fit_dense(
    q: Quadratic,
    bound: Bound,
    target: Callable[[float], float],
    *,
    start: Array | None = None,
    steps: int = 2000,
    watch: Callable[[float, float], None] | None = None,
) -> Support:
    """A histogram with a gap of at most ``target(value)``, or the best of ``steps`` steps.

    More steps are taken, up to ten times as many, while the gap falls quickly.
    """
    total = bound.total
    possible = q.grid.possible
    h = _feasible(np.zeros(q.grid.size), total, possible) if start is None else start
    steep = _steepness(q)
    constant = 0.5 * q.norm(q.values) ** 2
    ahead, momentum = h, 1.0
    best, best_gap, last = h, inf, inf
    for step in range(10 * steps):
        slopes = q.spread(q.curve(q.stack(ahead)) - q.wanted)
        if possible is not None:
            slopes = np.where(possible, slopes, 0.0)
        new = _feasible(ahead - slopes / steep, total, possible)
        if float(slopes @ (new - h)) > 0:  # it went uphill: forget the momentum
            momentum, ahead = 1.0, new
        else:
            after = (1 + sqrt(1 + 4 * momentum**2)) / 2
            ahead = new + (momentum - 1) / after * (new - h)
            momentum = after
        h = new
        if step % LIMITS.steps_between_bounds == 0:
            gap, value = _gap(q, bound, h, constant)
            wanted = target(value)
            if gap < best_gap:
                best, best_gap = h, gap
            if watch is not None:
                watch(gap, wanted)
            if gap <= wanted or (step >= steps and gap > LIMITS.quick_gap_ratio * last):
                break
            last = gap
    cells = np.flatnonzero(best > 0)
    return Support(cells, best[cells], best_gap)


def _gap(q: Quadratic, bound: Bound, h: Array, constant: float) -> tuple[float, float]:
    t = q.stack(h)
    down = q.curve(t) - q.wanted
    value = max(0.0, constant + 0.5 * float((down - q.wanted) @ t))
    return bound.gap(float(q.slopes(down).min()), float(down @ t), t), value


def _feasible(h: Array, total: float | None, possible: Mask | None) -> Array:
    """The nearest histogram of this total with nothing on impossible cells."""
    if possible is None:
        return np.maximum(h, 0.0) if total is None else project_to_simplex(h, total)
    out = np.zeros(len(h))
    out[possible] = _feasible(h[possible], total, None)
    return out


def _steepness(q: Quadratic) -> float:
    """The greatest eigenvalue of V over cells, a little above: by the power method.

    Where no coefficient is negative, the greatest ``(V x) / x`` of a positive x is a bound for it
    (Collatz 1942).
    """
    x = np.ones(q.grid.size)
    found = above = 0.0
    for _ in range(LIMITS.cell_power_steps):
        y = q.spread(q.curve(q.stack(x)))
        found = float(np.linalg.norm(y) / np.linalg.norm(x))
        ratio = np.divide(y, x, out=np.zeros_like(y), where=x > 0)
        above = float(ratio.max())
        size = float(np.linalg.norm(y))
        if size == 0:
            return 1.0
        x = y / size
    is_positive = all(p.term.is_nonnegative for p in q.fit.parts) and q.precision is None
    return min(above, 1.2 * found) if is_positive else 1.5 * found
