# SPDX-License-Identifier: Apache-2.0
"""The matrices of query sets, terms and workloads, written out cell by cell from definitions.

Nothing here uses the operators that are tested; numbers are exact fractions where they can be.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from sfumato.workload.predicates import And, Condition, Everything, In, Not, Or
from sfumato.workload.queries import (
    Groups,
    Identity,
    Matrix,
    Prefix,
    QuerySet,
    Ranges,
    Total,
    Windows,
)
from sfumato.workload.terms import Explicit, Predicates, Product, Term
from sfumato.workload.workload import Workload


def dense_queries(q: QuerySet) -> np.ndarray:
    """One row per query, from the definition of each kind."""
    n = range(q.size)
    if isinstance(q, Total):
        rows = [[1 for _ in n]]
    elif isinstance(q, Identity):
        rows = [[int(c == t) for c in n] for t in n]
    elif isinstance(q, Prefix):
        rows = [[int(c <= t) for c in n] for t in n]
    elif isinstance(q, Ranges):
        rows = [[int(i <= c <= j) for c in n] for i in n for j in n if i <= j]
    elif isinstance(q, Windows):
        starts = range(q.size - q.width + 1)
        rows = [[int(s <= c < s + q.width) for c in n] for s in starts]
    elif isinstance(q, Groups):
        rows = [[int(q.group_of[c] == g) for c in n] for g in range(len(q.labels))]
    elif isinstance(q, Matrix):
        rows = [[int(v) / 2**q.bits for v in row] for row in q.entries]
    else:
        raise TypeError(type(q))
    return np.array(rows, dtype=np.float64)


def holds(condition: Condition, cell: dict[str, int]) -> bool:
    """Whether a condition holds in a cell."""
    if isinstance(condition, Everything):
        return True
    if isinstance(condition, In):
        return cell[condition.attribute] in condition.codes
    if isinstance(condition, Not):
        return not holds(condition.part, cell)
    if isinstance(condition, And):
        return all(holds(part, cell) for part in condition.parts)
    if isinstance(condition, Or):
        return any(holds(part, cell) for part in condition.parts)
    raise TypeError(type(condition))


def cells_of(term: Term) -> list[tuple[int, ...]]:
    """The cells of the table that a term reads, in row-major order."""
    return list(product(*(range(term.domain[a].size) for a in term.attributes)))


def dense_term(term: Term) -> np.ndarray:
    """Queries x cells of the term's own table."""
    if isinstance(term, Product):
        out = np.ones((1, 1))
        for _, queries in term.factors:
            out = np.kron(out, dense_queries(queries))
        return out
    if isinstance(term, Explicit):
        return np.asarray(term.entries.todense(), dtype=np.float64) / 2**term.bits
    if isinstance(term, Predicates):
        cells = [dict(zip(term.attributes, cell, strict=True)) for cell in cells_of(term)]
        return np.array([[float(holds(c, cell)) for cell in cells] for c in term.conditions])
    raise TypeError(type(term))


def dense_workload(work: Workload) -> np.ndarray:
    """Queries x cells of the whole domain."""
    cells = list(product(*(range(s) for s in work.domain.shape)))
    parts = []
    for term in work.terms:
        own = {cell: i for i, cell in enumerate(cells_of(term))}
        axes = [work.domain.index(a) for a in term.attributes]
        columns = [own[tuple(cell[i] for i in axes)] for cell in cells]
        parts.append(dense_term(term)[:, columns])
    return np.concatenate(parts)
