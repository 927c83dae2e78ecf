# SPDX-License-Identifier: Apache-2.0
"""Projection with many cells in use: accelerated projected gradient over all of them.

Beck, Teboulle 2009, "A fast iterative shrinkage-thresholding algorithm for linear inverse
problems", with the restart of O'Donoghue, Candes 2015, "Adaptive restart for accelerated gradient
schemes". The gap falls as ``2 L |h0 - h*|^2 / t^2`` and faster where the active cells settle.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, sqrt

import numpy as np

from sfumato.refine.cells.active_set import Support
from sfumato.refine.cells.certificate import Bound
from sfumato.refine.cells.quadratic import Quadratic
from sfumato.refine.simplex import project_to_simplex
from sfumato.workload.predicates import Mask
from sfumato.workload.queries import Array

__all__ = ["fit_dense"]

POWER_STEPS = 12
CHECKED = 10  # steps between certificates
QUICK = 0.5  # the part of the gap that is left between two of them where it falls quickly


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
        if step % CHECKED == 0:
            gap, value = _gap(q, bound, h, constant)
            wanted = target(value)
            if gap < best_gap:
                best, best_gap = h, gap
            if watch is not None:
                watch(gap, wanted)
            if gap <= wanted or (step >= steps and gap > QUICK * last):
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
    for _ in range(POWER_STEPS):
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
