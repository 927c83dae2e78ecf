# SPDX-License-Identifier: Apache-2.0
"""The variance of every query of a set under a covariance of the cells."""

from __future__ import annotations

import numpy as np

from sfumato.workload.queries import Array, QuerySet

__all__ = ["row_quadratics"]


def row_quadratics(queries: QuerySet, covariance: Array) -> Array:
    """``q K q'`` for every query; for intervals by corner sums of K, without the queries.

    With C the sums of K over leading rows and columns, the variance of cells s..e-1 is
    ``C[e, e] - 2 C[s, e] + C[s, s]``.
    """
    ends = queries.intervals()
    if ends is None:
        dense = queries.dense()
        return np.asarray(((dense @ covariance) * dense).sum(axis=1), dtype=np.float64)
    n = len(covariance)
    corners = np.zeros((n + 1, n + 1))
    corners[1:, 1:] = covariance.cumsum(axis=0).cumsum(axis=1)
    starts, stops = ends
    own = np.diag(corners)
    spread = own[stops] + own[starts] - 2 * corners[starts, stops]
    return np.maximum(spread, 0.0)  # a query without variance may come out below 0 by rounding
