# SPDX-License-Identifier: Apache-2.0
"""Chosen ranges of an attribute, and short forms of groups that nobody can list.

All ranges of a million cells are 5 * 10^11 answers. The release holds all of them, as running
totals: any range is a difference of two. Asked ranges are answered on demand, and wherever all
answers are written down, the running totals stand for the ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sfumato.domain.attributes import Attribute
from sfumato.errors import WorkloadError
from sfumato.release.estimates import Estimates
from sfumato.release.labels import columns_of
from sfumato.text import listing, shown
from sfumato.workload.queries import Identity, Intervals
from sfumato.workload.terms import Product

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Ends",
    "range_frame",
]


Ends = tuple[object, object]  # the least and the greatest value of a range


def range_frame(
    estimates: Estimates,
    attr: str,
    between: Sequence[Ends],
    by: Sequence[str],
    level: float,
) -> pd.DataFrame:
    """One row per asked range and cell of ``by``: its ends, then its numbers."""
    import pandas as pd

    domain = estimates.workload.domain
    names = domain.in_order([attr, *by])
    chosen = _intervals(domain[attr], between)
    factors = tuple((n, chosen if n == attr else Identity(domain[n].size)) for n in names)
    product = Product(domain, f"ranges {attr}", 1.0, factors)
    further = estimates.further(product, level)
    if further is None:
        usable = [t.name for t in estimates.workload.terms if attr in t.attributes]
        raise WorkloadError(
            f"no released group gives single ranges of {attr!r}"
            + (f" by {listing(list(by))}" if by else "")
            + f"; groups that hold {attr!r} are: {listing(usable, 30) or 'none'}; ask for its "
            "ranges in the workload, or combine answers with combine(...)"
        )
    frame = pd.DataFrame({**columns_of(product), **further.columns})
    frame.attrs["basis"] = further.basis
    return frame


def _intervals(attribute: Attribute, between: Sequence[Ends]) -> Intervals:
    """The cells of every range; both ends belong to it."""
    if not isinstance(between, Sequence) or not len(between):
        raise WorkloadError("no range was asked: give pairs of a least and a greatest value")
    cells: dict[tuple[str, object], int] = {}

    def cell(comparison: str, value: object) -> int:
        """The first cell at or above a value, or the number of cells at or below it."""
        if (comparison, value) not in cells:
            inside = np.flatnonzero(attribute.select(comparison, value))  # type: ignore[arg-type]
            is_first = comparison == ">="
            none = attribute.size if is_first else 0
            last = int(inside[-1]) + 1 if len(inside) else none
            cells[comparison, value] = int(inside[0]) if is_first and len(inside) else last
        return cells[comparison, value]

    starts, ends = [], []
    for pair in between:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise WorkloadError(
                f"a range is a pair of its least and its greatest value, got {shown(pair)}"
            )
        starts.append(cell(">=", pair[0]))
        ends.append(cell("<=", pair[1]))
        if starts[-1] >= ends[-1]:
            raise WorkloadError(
                f"no cell of {attribute.name!r} lies between {shown(pair[0])} and {shown(pair[1])}"
            )
    return Intervals(attribute.size, np.array(starts), np.array(ends))
