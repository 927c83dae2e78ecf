# SPDX-License-Identifier: Apache-2.0
"""Projection of one table over all cells: exact, by one sort.

    minimise sum_x v_x h_x^2 / 2 - c_x h_x   over possible h >= 0   (and 1'h = n)

has ``h_x = max(0, c_x - level) / v_x`` with one level: 0, or the one of the right total (as the
projection onto a simplex: Held, Wolfe, Crowder 1974, "Validation of subgradient optimization").
"""

from __future__ import annotations

import numpy as np

from sfumato.refine.cells.quadratic import Quadratic
from sfumato.workload.queries import Array

__all__ = ["fit_table"]


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
