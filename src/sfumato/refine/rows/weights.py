# SPDX-License-Identifier: Apache-2.0
"""The best weights of given rows: least squares over ``w >= 0, sum w = n``.

Accelerated projected gradient with restarts (Beck, Teboulle 2009, "A fast iterative
shrinkage-thresholding algorithm for linear inverse problems"; O'Donoghue, Candes 2015, "Adaptive
restart for accelerated gradient schemes"), in the diagonal metric c with

    H = A'F'WFA <= A' diag(curvature) A <= diag(c),   c_r = (A' diag(curvature) A u)_r / u_r

for any ``u > 0`` (A: from weights to margins, no negative entry). Rows in rare cells so take
long steps. Every value is below the one before.
"""

from __future__ import annotations

import numpy as np

from sfumato.plan.effort import must_stop
from sfumato.refine.rows.conditions import Codes
from sfumato.refine.rows.problem import Gradient, OnRows, Problem
from sfumato.workload.queries import Array

__all__ = ["onto_weights", "solve_weights"]

LEAST_GAIN = 1e-9


def solve_weights(
    problem: Problem, codes: Codes, weights: Array, steps: int
) -> tuple[Array, float]:
    """Weights of no larger value than the given ones, and that value."""
    on = OnRows(problem, codes)
    best = weights
    value, gradient = problem.gradient(on.margins(best))
    if problem.total == 0:
        return best, value
    metric = _metric(on, weights)
    ahead, pace, scale = best, 1.0, 1.0
    for _ in range(steps):
        if must_stop():
            break
        scores = on.scores(gradient)
        step = onto_weights(ahead - scores / (scale * metric), scale * metric, problem.total)
        found, slope = problem.gradient(on.margins(step))
        if found > value:
            if ahead is best:  # the metric was too short: power iteration stops below
                scale *= 2
                if scale > 2**10:
                    break
            else:  # momentum overshot: start again from the best point
                ahead, pace = best, 1.0
                value, gradient = problem.gradient(on.margins(best))
            continue
        faster = (1 + np.sqrt(1 + 4 * pace * pace)) / 2
        beyond = (pace - 1) / faster
        moved = step - best
        gain, best, value, pace = value - found, step, found, faster
        if gain <= LEAST_GAIN * value and beyond > 0:
            break
        if beyond > 0:
            ahead = step + beyond * moved
            _, gradient = problem.gradient(on.margins(ahead))
        else:
            ahead, gradient = best, slope
    return best, value


def _metric(on: OnRows, weights: Array) -> Array:
    """``c`` at u halfway between the weights and their mean."""
    spread = 0.5 * (weights + weights.mean())
    seen = on.margins(spread)
    bend, conditions = on.asked.curvature, on.asked.conditions
    bent = Gradient(bend * seen.cells, conditions.weights * seen.pull)
    metric = on.scores(bent) / spread
    floor = 1e-12 * float(metric.max(initial=0.0)) + 1e-300
    return np.asarray(np.maximum(metric, floor), dtype=np.float64)


def onto_weights(wanted: Array, metric: Array, total: float) -> Array:
    """``argmin sum c (w - z)^2`` over ``w >= 0`` of the given sum: ``max(z - t / c, 0)``.

    With ``c z`` sorted downwards, t is ``(sum z - total) / sum 1 / c`` over the first j, for the
    last j whose ``c z`` is above it.
    """
    scaled, inverse = wanted * metric, 1 / metric
    order = np.argsort(-scaled, kind="stable")
    levels = (np.cumsum(wanted[order]) - total) / np.cumsum(inverse[order])
    kept = np.flatnonzero(scaled[order] > levels)
    level = levels[kept[-1] if kept.size else 0]
    out = np.maximum(wanted - level * inverse, 0.0)
    mass = float(out.sum())  # within rounding of the total
    return out * (total / mass) if mass > 0 else np.full_like(out, total / len(out))
