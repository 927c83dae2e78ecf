# SPDX-License-Identifier: Apache-2.0
"""Lower bounds on the error of every factorization, from one attribute at a time.

``tr(V X^-1)`` is a sum over terms, and the minimum of a sum is at least the sum of the minima:
every term alone must err at least by its own optimum. For a product the bound of ``optimum.py``, at
weights that are products too, is the product of the bounds of its query sets. So bounds for
single attributes give a bound for any union, exact for one product and loose when many terms
compete for the noise.
"""

from __future__ import annotations

from math import prod

import numpy as np

from sfumato.plan.optimum import certified_optimum
from sfumato.plan.split import query_key
from sfumato.plan.tridiagonal import inverse_gram, root_diagonal
from sfumato.workload.coefficients import Groups
from sfumato.workload.queries import Identity, QuerySet, Total
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = ["query_set_bound", "sum_of_bounds"]

TOLERANCE = 1e-3
DENSE_CELLS = 2048


def sum_of_bounds(workload: Workload) -> float:
    """A lower bound on the weighted squared error at unit noise; terms without one count 0."""
    known: dict[tuple[int, str | int], float] = {}
    total = 0.0
    for term in workload.terms:
        if isinstance(term, Product):
            for _, queries in term.factors:
                if (queries.size, query_key(queries)) not in known:
                    known[queries.size, query_key(queries)] = query_set_bound(queries)
            bounds = (known[q.size, query_key(q)] for _, q in term.factors)
            total += term.weight**2 * prod(bounds)
    return total


def query_set_bound(queries: QuerySet) -> float:
    """A lower bound on ``k gamma^2`` of one query set (0 where none is known)."""
    if isinstance(queries, Identity):
        return float(queries.size)
    if isinstance(queries, Total):
        return 1.0
    if isinstance(queries, Groups):
        return float((queries.row_powers(1) > 0).sum())  # disjoint: as good as a table of groups
    known = inverse_gram(queries)
    if known is not None:
        solver = root_diagonal(*known)
        return certified_optimum(solver, queries.size, TOLERANCE, all_bind=True).lower
    if queries.size > DENSE_CELLS:
        return 0.0
    values = np.linalg.eigvalsh(queries.gram())
    kept = values[values > values[-1] * len(values) * 2.0**-50]
    return float(np.sqrt(kept).sum() ** 2 / len(values))  # Li and Miklau 2013
