# SPDX-License-Identifier: Apache-2.0
"""How far one replaced record can move a measured block: the diameter of its columns.

Replacing a record moves the histogram by ``e_i - e_j``, so what counts is
``max_ij |M_i - M_j|_2^2 = max (G_ii + G_jj - 2 G_ij)`` with ``G = M'M``, not twice the longest
column squared. Blocks add up; the maximum of a sum is at most the sum of the maxima. A block that
only reads the total does not move at all, if no record can be dropped.

Columns that are nearly equal and long would cancel in that difference: coefficients 2^30 and
2^30 + 1 have Gram entries that floats cannot tell apart, and the block would seem to be a public
total. Where entries are known, columns are therefore compared after the first one is taken off, in
integers; elsewhere the rounding of the Gram matrix is added unless it is proved to have none. 0 is
returned for blocks that no move changes, and for no others.

Laplace noise asks for the diameter in L1. Coefficients are whole steps of ``2^-bits``, and
``|k| <= k^2`` for whole k: the squared diameter counted in steps is a bound, exact for coefficients
0 and 1. Where entries are given, so is the sum of what each row spans, exact for a single row.
"""

from __future__ import annotations

from math import prod

import numpy as np

from sfumato.plan.optimal.piece import Piece
from sfumato.plan.optimal.split import Centred
from sfumato.plan.transforms.levels import Levels
from sfumato.workload.coefficients import Matrix
from sfumato.workload.queries import Array, Identity, Integers, QuerySet
from sfumato.workload.sensitivity import ROUND_UP, greatest_column_power
from sfumato.workload.terms import Product, Term

__all__ = ["l1_diameter", "squared_diameter"]

LARGEST_GRAM = 2048
LARGEST_MATRIX = 2**26  # entries of given coefficients whose columns are compared
EXACT = 2.0**52  # integers below it are floats, and so is the sum of two
# Gram entries in floats err by less than this part of the greatest: sums of 2^14 products would do
# so by 2^-38 at the worst, and transforms by FFT err by less than 2^-40.
GRAM_ERROR = 2.0**-36


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


def l1_diameter(term: Term) -> float:
    """An upper bound on ``max_ij |M_i - M_j|_1`` of one block, rounded up; exact for 0 and 1."""
    longest = greatest_column_power([term], [1.0], 1).power
    bounds = [2 * longest, squared_diameter(term) * 2.0**term.fraction_bits]
    if isinstance(term, Product) and len(term.factors) == 1:
        queries = term.factors[0][1]
        if isinstance(queries, Matrix):
            spans = (queries.entries.max(axis=1) - queries.entries.min(axis=1)).astype(np.float64)
            bounds.append(float(spans.sum()) * 2.0**-queries.bits * ROUND_UP)
    return min(bounds)


def _widest(columns: Integers) -> float:
    """``max_ij |c_i - c_j|^2`` of integer columns, rounded up; 0 only if all are equal.

    Entries are below 2^52, so that taking off the first column is exact. No centred column is
    longer than the diameter, of which the rounding is therefore a small part.
    """
    centred = (columns - columns[:, :1]).astype(np.float64)
    gram = centred.T @ centred
    own = np.diag(gram)
    widest = float((own[:, None] + own[None, :] - 2 * gram).max())
    return max(widest, float(own.max())) * (1 + (len(columns) + 8) * 2.0**-49)


def _piece_diameter(piece: Piece) -> float:
    """Class columns by residuals: the inner product of two residual columns is an extreme.

    Columns of ``n I - J`` have squared norm n (n - 1) and inner product -n; over several axes the
    least product is reached by differing along one axis only, the shortest.
    """
    members = piece.row_shape[1:]
    norm = float(prod(n * (n - 1) for n in members))
    widest = norm * _widest(piece.entries)  # cells that differ in their classes only
    if not members:
        return widest
    least = -norm / (min(members) - 1)
    columns = piece.entries.astype(np.float64)
    gram = columns.T @ columns
    own = np.diag(gram)
    sums = own[:, None] + own[None, :]
    apart = float((norm * sums - 2 * least * gram).max())
    # Cells outside the compared classes have column 0, which is no farther than another column.
    alone = norm * float(own.max())
    return max(widest, apart + GRAM_ERROR * alone, alone)


def _product_diameter(term: Product) -> float | None:
    """``2 max|M_i|^2 - 2 min <M_i, M_j>``, with products of intervals for the inner products."""
    if not term.factors:
        return 0.0
    if len(term.factors) == 1:
        return _factor_diameter(term.factors[0][1])
    low, high, longest, steps = 1.0, 1.0, 1.0, 1.0
    is_exact = True
    for _, queries in term.factors:
        least, greatest = _inner_products(queries)
        if least is None:
            return None
        step = 4.0**queries.fraction_bits
        is_exact &= (least * step).is_integer() and (greatest * step).is_integer()
        ends = [low * least, low * greatest, high * least, high * greatest]
        low, high, longest, steps = min(ends), max(ends), longest * greatest, steps * step
    lost = 0.0 if is_exact and 2 * longest * steps < EXACT else GRAM_ERROR * longest
    return 2 * longest - 2 * low + lost


def _factor_diameter(queries: QuerySet) -> float | None:
    if isinstance(queries, Matrix):
        if queries.size > LARGEST_GRAM or queries.entries.size > LARGEST_MATRIX:
            return None
        return _widest(queries.entries) * 4.0**-queries.bits
    gram = _gram(queries)
    if gram is None:
        return None
    own = np.diag(gram)
    steps = np.ldexp(gram, 2 * queries.fraction_bits)
    is_exact = float(own.max()) * 4.0**queries.fraction_bits < EXACT / 2
    is_exact = is_exact and bool((steps == np.rint(steps)).all())
    lost = 0.0 if is_exact else GRAM_ERROR * float(own.max())
    return float((own[:, None] + own[None, :] - 2 * gram).max()) + lost


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
