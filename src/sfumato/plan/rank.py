# SPDX-License-Identifier: Apache-2.0
"""How many values any unbiased strategy must measure: at least the rank of the workload.

If the queries F are answered as ``R y`` from measured values ``y = M h + z`` without bias, then
F = R M, so M has at least rank(F) rows. The bound below takes microseconds: what no strategy can
do is refused before the first one is built.
"""

from __future__ import annotations

from math import prod

from sfumato.errors import TooLarge
from sfumato.plan.strategy import MEASURED
from sfumato.workload.workload import Workload

__all__ = ["check_rank", "least_measured"]


def check_rank(workload: Workload) -> None:
    """Refuse a workload that needs more measured values than a release can hold."""
    least = least_measured(workload, MEASURED)
    if least > MEASURED:
        raise TooLarge(
            f"{workload.queries:,} queries need at least {least:,} measured values "
            f"({8 * least / 2**30:,.1f} GiB), the limit is {MEASURED:,}; ask for fewer or coarser "
            "queries"
        )


def least_measured(workload: Workload, enough: int | None = None) -> int:
    """A lower bound on the rank of the queries; counting ends once it is above ``enough``.

    A product has the product of its factors' ranks. Over different sets of attributes S, let P_S
    project onto the functions of S that have mean 0 along each attribute of S. A product over S
    is 0 on P_T unless T is part of S, so in the order of size the products are block triangular,
    with diagonal blocks of rank prod (rank - 1) or more; the ranks of those add up.

    >>> import sfumato as sf
    >>> least_measured(sf.marginals(sf.Domain({"a": 10, "b": 10, "c": 10}), 2))
    243
    """
    ranks: dict[int, int] = {}
    by_set: dict[tuple[str, ...], int] = {}
    together = largest = 0
    for term in [product for t in workload.terms if (product := t.as_product()) is not None]:
        found = [
            ranks.get(id(q)) or ranks.setdefault(id(q), q.rank_bound()) for _, q in term.factors
        ]
        names = term.attributes
        inner = prod(rank - 1 for rank in found)
        together += max(inner - by_set.get(names, 0), 0)
        by_set[names] = max(inner, by_set.get(names, 0))
        largest = max(largest, prod(found))
        if enough is not None and max(largest, together) > enough:
            break
    return max(largest, together, 1)
