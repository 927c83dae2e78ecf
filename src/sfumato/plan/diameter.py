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

from sfumato.workload.sensitivity import ROUND_UP, greatest_column_power
from sfumato.workload.terms import Term

__all__ = ["l1_diameter", "squared_diameter"]


def squared_diameter(term: Term) -> float:
    """An upper bound on ``max_ij |M_i - M_j|_2^2`` of one block, rounded up; exact for tables."""
    longest = greatest_column_power([term], [1.0], 2).power
    bounds = [longest * (2.0 if term.is_nonnegative else 4.0)]
    own = term.squared_diameter()
    return min(bounds if own is None else [*bounds, own * ROUND_UP])


def l1_diameter(term: Term) -> float:
    """An upper bound on ``max_ij |M_i - M_j|_1`` of one block, rounded up; exact for 0 and 1."""
    longest = greatest_column_power([term], [1.0], 1).power
    bounds = [2 * longest, squared_diameter(term) * 2.0**term.fraction_bits]
    own = term.l1_diameter()
    return min(bounds if own is None else [*bounds, own * ROUND_UP])
