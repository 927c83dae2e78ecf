# SPDX-License-Identifier: Apache-2.0
"""The nearest table that could be a count: no negative cell, the right total.

Euclidean projection onto the scaled simplex ``{x >= 0, sum x = total}``: subtract one threshold
from every cell and cut at zero (Held, Wolfe, Crowder 1974, "Validation of subgradient
optimization"; Duchi, Shalev-Shwartz, Singer, Chandra 2008, "Efficient projections onto the l1-ball
for learning in high dimensions").
"""

from __future__ import annotations

import numpy as np

from sfumato.errors import PlanError
from sfumato.workload.queries import Array, Numbers

__all__ = ["project_to_simplex"]


def project_to_simplex(table: Numbers, total: float) -> Array:
    """``argmin |x - table|_2`` over ``x >= 0`` with ``sum x = total``.

    The solution is ``max(table - threshold, 0)``. With the cells sorted downwards, the threshold
    is ``(sum of the first j - total) / j`` for the last j whose cell is above it.

    >>> project_to_simplex(np.array([3.0, 1.0, -2.0]), 2.0).tolist()
    [2.0, 0.0, 0.0]
    """
    cells = np.asarray(table, dtype=np.float64)
    if not (np.isfinite(total) and total >= 0 and cells.size):
        raise PlanError(f"a table of {cells.size} cells cannot have the total {total}")
    falling = np.sort(cells, axis=None)[::-1]
    thresholds = (np.cumsum(falling) - total) / np.arange(1, cells.size + 1)
    # The condition holds for an initial run; total = 0 may leave none of it.
    kept = np.flatnonzero(falling > thresholds)
    threshold = thresholds[kept[-1] if kept.size else 0]
    projected = np.maximum(cells - threshold, 0.0)
    # Rounding only: the sum is within a few ulps of the total.
    mass = projected.sum()
    return np.asarray(projected * (total / mass) if mass > 0 else projected, dtype=np.float64)
