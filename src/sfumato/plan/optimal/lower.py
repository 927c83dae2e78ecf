# SPDX-License-Identifier: Apache-2.0
"""Lower bounds on the error of every factorization, from one attribute at a time.

``tr(V X^-1)`` is a sum over terms, and the minimum of a sum is at least the sum of the minima:
every term alone must err at least by its own optimum. For a product the bound of ``optimum.py``, at
weights that are products too, is the product of the bounds of its query sets. So bounds for
single attributes give a bound for any union, exact for one product and loose when many terms
compete for the noise.

Windows of any number have a bound in closed form (``windows_bound``): the sum of singular values of
a matrix G is at least ``tr(U'G)`` for every U of norm at most 1, and the matrix of the symbol
``f / |f|``, f that of the windows, has norm 1.
"""

from __future__ import annotations

from math import pi, prod

import numpy as np

from sfumato.plan.solve.optimum import certified_optimum
from sfumato.plan.solve.tridiagonal import inverse_gram, root_diagonal
from sfumato.workload.queries import QuerySet, Windows
from sfumato.workload.workload import Workload

__all__ = ["query_set_bound", "sum_of_bounds", "windows_bound"]

TOLERANCE = 1e-3
DENSE_CELLS = 2048


def sum_of_bounds(workload: Workload) -> float:
    """A lower bound on the weighted squared error at unit noise; terms without one count 0."""
    known: dict[tuple[int, str | int], float] = {}
    total = 0.0
    for term in workload.terms:
        product = term.as_product()
        if product is not None:
            for _, queries in product.factors:
                if (queries.size, queries.key) not in known:
                    known[queries.size, queries.key] = query_set_bound(queries)
            bounds = (known[q.size, q.key] for _, q in product.factors)
            total += term.weight**2 * prod(bounds)
    return total


def query_set_bound(queries: QuerySet) -> float:
    """A lower bound on ``k gamma^2`` of one query set (0 where none is known)."""
    if queries.is_disjoint:  # as good as a table of groups
        return float((queries.row_powers(1) > 0).sum())
    known = inverse_gram(queries)
    if known is not None:
        solver = root_diagonal(*known)
        return certified_optimum(solver, queries.size, TOLERANCE, all_bind=True).lower
    closed = windows_bound(queries.size, queries.width) if isinstance(queries, Windows) else 0.0
    if queries.size > DENSE_CELLS:
        return closed
    values = np.linalg.eigvalsh(queries.gram())
    kept = values[values > values[-1] * len(values) * 2.0**-50]
    return max(closed, float(np.sqrt(kept).sum() ** 2 / len(values)))  # Li and Miklau 2013


def windows_bound(cells: int, width: int) -> float:
    """``sum_j c_j^2``, a lower bound on ``k gamma^2`` of all windows of a width, in O(width).

    ``c_j = (U'F)_jj`` sums the coefficients ``u_k = tan(pi a / w) / (pi a)`` of ``f / |f|``, with
    ``a = k - (w - 1) / 2``, over the places k that cell j has in windows. As
    ``tr(U' F D^1/2) = sum_j sqrt(v_j) c_j``, the best weights are ``v_j = c_j^2``.
    """
    a = np.arange(width) - (width - 1) / 2
    with np.errstate(invalid="ignore"):
        u = np.where(a == 0, 1 / width, np.tan(pi * a / width) / (pi * a))
    running = np.concatenate([[0.0], np.cumsum(u)])
    reach = min(width, cells - width + 1)  # the most windows that hold one cell
    ends = running[1:reach]
    if reach == width:
        inner = (cells - 2 * (width - 1)) * float(running[-1]) ** 2
    else:
        first = np.arange(2 * width - cells)
        inner = float(((running[first + reach] - running[first]) ** 2).sum())
    return (2 * float((ends**2).sum()) + inner) * (1 - 1e-9)
