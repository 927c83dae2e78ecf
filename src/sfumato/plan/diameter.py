# SPDX-License-Identifier: Apache-2.0
"""How far one replaced record can move a measured block: the diameter of its columns.

Replacing a record moves the histogram by ``e_i - e_j``, so what counts is
``max_ij |M_i - M_j|_2^2 = max (G_ii + G_jj - 2 G_ij)`` with ``G = M'M``, not twice the longest
column squared. Blocks add up; the maximum of a sum is at most the sum of the maxima. A block that
only reads the total does not move at all, if no record can be dropped.
"""

from __future__ import annotations

from math import prod

import numpy as np

from sfumato.plan.optimal.piece import Piece
from sfumato.plan.optimal.split import Centred
from sfumato.plan.transforms.levels import Levels
from sfumato.workload.queries import Array, Identity, QuerySet
from sfumato.workload.sensitivity import ROUND_UP, greatest_column_power
from sfumato.workload.terms import Product, Term

__all__ = ["squared_diameter"]

LARGEST_GRAM = 2048


def squared_diameter(term: Term) -> float:
    """An upper bound on ``max_ij |M_i - M_j|_2^2`` of one block, rounded up; exact for tables."""
    longest = greatest_column_power([term], [1.0], 2).power
    bounds = [longest * (2.0 if term.is_nonnegative else 4.0)]
    if isinstance(term, Piece):
        bounds.append(_piece_diameter(term) * ROUND_UP)
    elif isinstance(term, Product):
        found = _product_diameter(term)
        bounds += [] if found is None else [found * ROUND_UP]
    return min(bounds)


def _piece_diameter(piece: Piece) -> float:
    """Class columns by residuals: the inner product of two residual columns is an extreme.

    Columns of ``n I - J`` have squared norm n (n - 1) and inner product -n; over several axes the
    least product is reached by differing along one axis only, the shortest.
    """
    members = piece.row_shape[1:]
    norm = float(prod(n * (n - 1) for n in members))
    least = -norm / (min(members) - 1) if members else norm
    columns = piece.entries.astype(np.float64)
    gram = columns.T @ columns
    own = np.diag(gram)
    sums = own[:, None] + own[None, :]
    reached = [norm, least] if members else [norm]
    # Cells outside the compared classes have column 0, which is no farther than another column.
    widest = max(float((norm * sums - 2 * inner * gram).max()) for inner in reached)
    return max(widest, norm * float(own.max()) if members else 0.0)


def _product_diameter(term: Product) -> float | None:
    """``2 max|M_i|^2 - 2 min <M_i, M_j>``, with products of intervals for the inner products."""
    if not term.factors:
        return 0.0
    if len(term.factors) == 1:
        gram = _gram(term.factors[0][1])
        if gram is None:
            return None
        own = np.diag(gram)
        return float((own[:, None] + own[None, :] - 2 * gram).max())
    low, high, longest = 1.0, 1.0, 1.0
    for _, queries in term.factors:
        least, greatest = _inner_products(queries)
        if least is None:
            return None
        ends = [low * least, low * greatest, high * least, high * greatest]
        low, high, longest = min(ends), max(ends), longest * greatest
    return 2 * longest - 2 * low


def _inner_products(queries: QuerySet) -> tuple[float | None, float]:
    """The least and the greatest inner product of two columns."""
    n = queries.size
    if isinstance(queries, Identity):
        return (0.0 if n > 1 else 1.0), 1.0
    if isinstance(queries, Centred):
        return float(-n if n > 1 else 0), float(n * (n - 1))
    if isinstance(queries, Levels):
        return queries.inner_products()
    gram = _gram(queries)
    return (None, 0.0) if gram is None else (float(gram.min()), float(gram.max()))


def _gram(queries: QuerySet) -> Array | None:
    return queries.gram() if queries.size <= LARGEST_GRAM else None
