# SPDX-License-Identifier: Apache-2.0
"""Least squares with weights of 0 or more on a few columns: the inner step of an active set.

    minimise 1/2 u'Gu - c'u   over u >= 0   (and 1'u = total)

by steps to the least squares of the columns in use, cut where a weight would fall below zero
(Lawson, Hanson 1974, "Solving least squares problems", chapter 23). Two departures: columns may
enter and leave many at a time while the value falls, and the matrix carries a ridge around the
present point (a proximal step, Rockafellar 1976), so dependent columns do no harm and the solution
is that of the problem without it.
"""

from __future__ import annotations

import numpy as np

from sfumato.workload.predicates import Mask
from sfumato.workload.queries import Array, Integers

__all__ = ["nonnegative_least_squares"]

RIDGE = 1e-12  # of the greatest diagonal entry
ROUNDS = 10_000
PARTS = (1.0, 0.5, 0.25, 0.125)
STALLS = 2  # full steps in a row without a lower value: rounding is all that is left


def nonnegative_least_squares(
    gram: Array, target: Array, start: Array, total: float | None, tolerance: float
) -> Array:
    """The weights, from a feasible start; slopes are within ``tolerance`` of the best."""
    u = start.copy()
    used = u > 0
    best, stalls, is_full = np.inf, 0, True
    for _ in range(ROUNDS):
        slope = gram @ u - target
        level = _level(slope, u, total)
        if is_full:  # only then may others come in
            outside = np.flatnonzero(~used & (slope < level - tolerance))
            settled = not used.any() or np.abs(slope[used] - level).max() <= tolerance
            value = 0.5 * float(u @ (slope - target))
            stalls = 0 if value < best else stalls + 1
            best = min(best, value)
            if (settled and not outside.size) or stalls > STALLS:
                break
            # Many at once may drive each other out again; one alone never is.
            many = 1 if stalls else max(1, len(u) // 8)
            used[outside[np.argsort(slope[outside])[:many]]] = True
        u, is_full = _step(gram, target, u, slope, used, total)
    return u


def _level(slope: Array, u: Array, total: float | None) -> float:
    """What the slope of every column in use is at the optimum."""
    return float(slope @ u) / total if total else 0.0


def _step(
    gram: Array, target: Array, u: Array, slope: Array, used: Mask, total: float | None
) -> tuple[Array, bool]:
    """One step over the columns in use, and whether it was whole; else some leave ``used``."""
    at = np.flatnonzero(used)
    move = _newton(gram[np.ix_(at, at)], slope[at], total)
    here = u[at]
    aim = here + move
    out = np.zeros(len(u))
    if (aim >= 0).all():
        out[at] = _scaled(aim, total)
        return out, True
    falling = move < 0
    reach = min(1.0, float((here[falling] / -move[falling]).min()))
    cut = np.maximum(here + reach * move, 0.0)
    cut[falling & (here <= -reach * move * (1 + 1e-12))] = 0.0
    # The bent path drops many at once where that is better than to stop at the first.
    bent = [_scaled(np.maximum(here + part * move, 0.0), total) for part in PARTS if part > reach]
    out[at] = min((_scaled(cut, total), *bent), key=lambda v: _value(gram, target, at, v))
    used[at[out[at] == 0]] = False
    return out, False


def _newton(gram: Array, slope: Array, total: float | None) -> Array:
    """The move to the least squares of these columns, of sum 0 where the total is fixed."""
    from scipy.linalg import cho_factor, cho_solve

    ridge = RIDGE * max(float(gram.diagonal().max()), 1e-300)
    factor = cho_factor(gram + ridge * np.eye(len(gram)), overwrite_a=True, check_finite=False)
    if total is None:
        return np.asarray(cho_solve(factor, -slope, check_finite=False))
    both = cho_solve(factor, np.column_stack([slope, np.ones(len(slope))]), check_finite=False)
    return np.asarray(both[:, 1] * (both[:, 0].sum() / both[:, 1].sum()) - both[:, 0])


def _value(gram: Array, target: Array, at: Integers, u: Array) -> float:
    whole = np.zeros(len(target))
    whole[at] = u
    return 0.5 * float(whole @ (gram @ whole)) - float(target @ whole)


def _scaled(u: Array, total: float | None) -> Array:
    if total is None:
        return u
    mass = float(u.sum())
    return u * (total / mass) if mass > 0 else u
