# SPDX-License-Identifier: Apache-2.0
"""How exact the answers from reports will be: variances, finite-sample bounds, rows needed.

Public arithmetic on the law of the response: it needs no report, so a plan can show the local
model beside the central one. Errors are against the exact histogram h of the clients' true codes,
in counts, unless said otherwise.

W. Hoeffding, 1963, "Probability inequalities for sums of bounded random variables";
Y.-X. Wang, lecture notes "Sparse vector technique and linear query release" (randomized response
for linear queries: Hoeffding plus a union bound). Formulas: docs/proofs/randomized-response.md.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from sfumato.errors import PlanError, WorkloadError
from sfumato.local.randomized_response import RandomizedResponse

__all__ = [
    "Floats",
    "Interval",
    "centred",
    "checked_queries",
    "error_bound",
    "forecast_radius",
    "forecast_rmse",
    "normal_quantile",
    "row_variances",
    "rows_needed",
    "workload_rmse",
]

Floats = npt.NDArray[np.float64]

Interval = Literal["finite", "hoeffding", "normal"]
"""``finite``: the smaller of Hoeffding and Bernstein, valid for every n; ``normal``: the limit."""


def checked_queries(response: RandomizedResponse, queries: npt.ArrayLike) -> Floats:
    """The queries as a float matrix of shape (queries, size)."""
    matrix = np.asarray(queries)
    if matrix.ndim != 2 or matrix.shape[1] != response.size or matrix.shape[0] == 0:
        raise WorkloadError(
            f"queries have shape {matrix.shape}; allowed is (queries, {response.size}) with at "
            "least one query: one row for each query, one column for each cell"
        )
    if matrix.dtype.kind not in "iubf" or not bool(np.isfinite(matrix).all()):
        raise WorkloadError("queries hold entries that are not finite numbers; give numbers only")
    return cast(Floats, matrix.astype(np.float64))


def centred(queries: Floats) -> Floats:
    """``q - mean(q)`` for each query: since the estimate sums to n, the noise of q is the same."""
    return cast(Floats, queries - queries.mean(axis=1, keepdims=True))


def row_variances(response: RandomizedResponse, queries: npt.ArrayLike) -> Floats:
    """Variance that one client of true code j adds to query q: matrix of shape (queries, size).

    ``(other |c|^2 + gap (1 - gap) c_j^2) / gap^2`` with c the centred query (Claim 3).
    """
    c = centred(checked_queries(response, queries))
    other, gap = float(response.other), float(response.gap)
    squares = c * c
    total = squares.sum(axis=1, keepdims=True)
    return cast(Floats, (other * total + gap * (1 - gap) * squares) / gap**2)


def forecast_rmse(response: RandomizedResponse, queries: npt.ArrayLike, rows: int) -> Floats:
    """Root mean squared error of each query, for the worst data set of ``rows`` rows.

    Error: ``sqrt(rows * max_j row_variances[q, j])``, attained when all clients hold that j.
    """
    variances = row_variances(response, queries)
    return cast(Floats, np.sqrt(_checked_rows(rows) * variances.max(axis=1)))


def workload_rmse(
    response: RandomizedResponse,
    gram_diagonal: npt.ArrayLike,
    gram_row_sums: npt.ArrayLike,
    queries: int,
    rows: int,
) -> float:
    """Root mean squared error over all queries of F, for the worst data set of ``rows`` rows.

    Takes ``diag(F^T F)`` and ``F^T F 1``, both known to a structured workload without its matrix.
    Error: ``sqrt(rows (other |FC|_F^2 + gap (1-gap) max_j |FC e_j|^2) / (queries gap^2))`` with
    ``C = I - J/size`` (Claim 3).
    """
    size = response.size
    diagonal = np.asarray(gram_diagonal, dtype=np.float64)
    sums = np.asarray(gram_row_sums, dtype=np.float64)
    if diagonal.shape != (size,) or sums.shape != (size,):
        raise WorkloadError(
            f"gram_diagonal and gram_row_sums have shapes {diagonal.shape} and {sums.shape}; "
            f"both must be ({size},), one number for each cell"
        )
    columns = np.maximum(diagonal - 2 * sums / size + sums.sum() / size**2, 0.0)
    other, gap = float(response.other), float(response.gap)
    worst = other * float(columns.sum()) + gap * (1 - gap) * float(columns.max())
    return math.sqrt(_checked_rows(rows) * worst / (_checked_number(queries) * gap**2))


def error_bound(
    response: RandomizedResponse, rows: int, queries: int, beta: float, spread: float = 1.0
) -> float:
    """With probability 1 - beta all ``queries`` answers are within this of the truth, in counts.

    ``(spread / gap) sqrt(rows ln(2 queries / beta) / 2)``: Hoeffding for sums of reports in a range
    of ``spread / gap`` and a union bound; for every data set. ``spread`` is the largest
    ``max(q) - min(q)``, 1 for counting queries. Divide by rows for the error of shares.

    >>> round(error_bound(RandomizedResponse(1, 2), rows=10_000, queries=100, beta=0.05), 1)
    440.7
    """
    log_term = math.log(2 * _checked_number(queries) / _checked_beta(beta))
    if not (math.isfinite(spread) and spread >= 0):
        raise PlanError(f"spread is {spread}; it must be a finite number of at least 0")
    return spread / float(response.gap) * math.sqrt(_checked_rows(rows) * log_term / 2)


def rows_needed(
    response: RandomizedResponse, alpha: float, beta: float, queries: int, spread: float = 1.0
) -> int:
    """The least n whose ``error_bound`` is at most ``alpha n``: shares within alpha, all at once.

    ``ceil((spread / (alpha gap))^2 ln(2 queries / beta) / 2)``.

    >>> rows_needed(RandomizedResponse(1, 2), alpha=0.05, beta=0.05, queries=100)
    7768
    """
    if not (math.isfinite(alpha) and alpha > 0):
        raise PlanError(f"alpha is {alpha}; it must be a finite number greater than 0")
    # error_bound grows with sqrt(n), alpha n with n: the bound of one row says where they cross.
    rows = max(1, math.ceil((error_bound(response, 1, queries, beta, spread) / alpha) ** 2))
    # The float square may be off by one unit in the last place; settle it on the bound itself.
    while error_bound(response, rows, queries, beta, spread) > alpha * rows:
        rows += max(1, rows >> 50)
    return rows


def forecast_radius(
    response: RandomizedResponse,
    queries: npt.ArrayLike,
    rows: int,
    beta: float,
    interval: Interval = "finite",
) -> Floats:
    """Half-width of an interval that misses each query with probability at most beta.

    Let L = ln(2/beta), b = spread/gap, V the worst variance of the sum (``forecast_rmse`` squared).
    hoeffding: ``b sqrt(n L / 2)``; finite: the smaller of that and Bernstein's
    ``b L/3 + sqrt((b L/3)^2 + 2 V L)``, both for every n; normal: ``z_(1-beta/2) sqrt(V)``.
    All depend on public numbers only, so taking the smaller costs no confidence.
    """
    matrix = checked_queries(response, queries)
    if interval == "normal":
        return normal_quantile(beta) * forecast_rmse(response, matrix, rows)
    ranges = np.ptp(matrix, axis=1) / float(response.gap)
    log_term = math.log(2 / _checked_beta(beta))
    hoeffding = cast(Floats, ranges * math.sqrt(_checked_rows(rows) * log_term / 2))
    if interval == "hoeffding":
        return hoeffding
    if interval != "finite":
        raise PlanError(f"interval is {interval!r}; allowed are 'finite', 'hoeffding', 'normal'")
    linear = ranges * log_term / 3
    variances = forecast_rmse(response, matrix, rows) ** 2
    bernstein = linear + np.sqrt(linear**2 + 2 * variances * log_term)
    return cast(Floats, np.minimum(hoeffding, bernstein))


def normal_quantile(beta: float) -> float:
    """z with ``P(|Z| > z) = beta`` for a standard normal Z.

    >>> round(normal_quantile(0.05), 6)
    1.959964
    """
    return -NormalDist().inv_cdf(_checked_beta(beta) / 2)


def _checked_beta(beta: float) -> float:
    if not 0 < beta < 1:
        raise PlanError(f"the failure probability beta is {beta}; it must lie between 0 and 1")
    return beta


def _checked_rows(rows: int) -> int:
    if rows < 0:
        raise PlanError(f"rows is {rows}; it must be at least 0")
    return rows


def _checked_number(queries: int) -> int:
    if queries < 1:
        raise PlanError(f"queries is {queries}; it must be at least 1")
    return queries
