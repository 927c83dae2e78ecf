# SPDX-License-Identifier: Apache-2.0
"""The columns of a small workload in their principal coordinates, longest first."""

from __future__ import annotations

import numpy as np

from sfumato.refine.draws import Draws
from sfumato.refine.widths.geometry import Hull
from sfumato.workload.queries import Array

__all__ = ["principal"]

MOST_DIMENSIONS = 768  # an eigenvalue problem of this size takes about a second


def principal(hull: Hull, dimension: int) -> Array | None:
    """``U'(F - mean column)``, a column per cell, a row per principal direction of the hull.

    ``dimension`` is no less than that of the hull: as many random combinations of the centred
    columns, and a few more, span them all (N. Halko, P. Martinsson, J. Tropp 2011, "Finding
    structure with randomness"), so that U comes from a problem of that size. None where that is
    too large.
    """
    centred = hull.matrix - hull.matrix.mean(axis=1, keepdims=True)
    size = min(dimension + 8, *centred.shape)
    if size > MOST_DIMENSIONS:
        return None
    if size < len(centred):
        mixed = Draws("range").normals(centred.shape[1] * size).reshape(-1, size)
        basis, _ = np.linalg.qr(centred @ mixed)
        centred = basis.T @ centred
    squares, turned = np.linalg.eigh(centred @ centred.T)
    # Squares of singular values are known to about 2^-52 of the greatest: the rest is rounding.
    is_kept = squares[::-1] > max(float(squares[-1]), 0.0) * 2.0**-44
    return np.asarray((turned[:, ::-1].T @ centred)[is_kept], dtype=np.float64)
