# SPDX-License-Identifier: Apache-2.0
"""The squared diameter of a set of columns: how far a replaced record moves what is measured.

Exact, by comparing pairs, of which most need no look: with all columns within distance d of a
centre, a pair at distance D has both of its ends at least D - d away from the centre. Where too
many pairs are left, the distance ``2 d`` of opposite ends stands for all: never too small.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from sfumato.solve.solve_limits import LIMITS
from sfumato.types import Array

__all__ = [
    "farthest_pair",
]


def farthest_pair(columns: Array) -> float:
    """``max_ij |c_i - c_j|^2`` over the columns of a matrix, up to float rounding; or a bound."""
    centre = columns.mean(axis=1, keepdims=True)
    for _ in range(3):  # towards the middle of the farthest: a smaller ball
        away = _squares(columns - centre)
        centre = centre + (columns[:, [int(away.argmax())]] - centre) * 0.25
    moved = columns - centre
    away = np.sqrt(_squares(moved))
    radius = float(away.max())
    # A first pair: what is farthest from the farthest.
    start = moved[:, [int(away.argmax())]]
    best = sqrt(float(_squares(moved - start).max()))
    rest = moved[:, away >= best - radius]
    n = rest.shape[1]
    if n * n * len(rest) > LIMITS.pair_multiplications:
        return 4 * radius**2
    own, farthest = _squares(rest), best**2
    step = max(1, LIMITS.numbers_at_once // n)
    for first in range(0, n, step):
        some = slice(first, first + step)
        between = own[some, None] + own[None, :] - 2 * rest[:, some].T @ rest
        farthest = max(farthest, float(between.max()))
    return farthest


def _squares(columns: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->j", columns, columns), dtype=np.float64)
