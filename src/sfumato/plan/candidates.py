# SPDX-License-Identifier: Apache-2.0
"""Which tables an adaptive release may measure for a workload, and how much each of them matters.

All sets of at least two attributes within an asked set (McKenna et al. 2022, "AIM", section 3: the
downward closure), smallest tables first, as far as the cells that may be held allow. A set matters
by how many attributes it shares with every asked one. Public: no data is seen.
"""

from __future__ import annotations

from itertools import combinations

from sfumato.domain import Domain
from sfumato.workload.workload import Workload

__all__ = ["asked_domain", "candidate_sets"]

MOST_CELLS = 2**20  # of all candidates together
MOST_SETS = 1000
WIDEST = 3  # attributes of a set that was not asked for itself

Names = tuple[str, ...]


def asked_domain(workload: Workload) -> Domain:
    """The attributes that some query looks at; the first one if none does."""
    used = {name for term in workload.terms for name in term.attributes}
    kept = [a for a in workload.domain if a.name in used]
    return Domain(kept or [workload.domain.attributes[0]])


def candidate_sets(
    workload: Workload, most_cells: int = MOST_CELLS, most_sets: int = MOST_SETS
) -> dict[Names, float]:
    """Sets of attributes with how much they matter; asked ones before others of the same size.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"a": 2, "b": 3, "c": 4})
    >>> candidate_sets(sf.marginals(domain, 2))
    {('a', 'b'): 4.0, ('a', 'c'): 4.0, ('b', 'c'): 4.0}
    """
    asked: dict[Names, float] = {}
    for term in workload.terms:
        asked[term.attributes] = asked.get(term.attributes, 0.0) + term.weight
    domain = workload.domain
    found: dict[Names, None] = {}
    for names in asked:
        sizes = {*range(2, min(len(names), WIDEST) + 1), *([len(names)] if len(names) > 1 else [])}
        for size in sorted(sizes):
            if len(found) <= 64 * most_sets:
                found |= dict.fromkeys(combinations(names, size))
    ranked = sorted(found, key=lambda s: (len(s), s not in asked, domain.cells(s)))
    kept: dict[Names, float] = {}
    room = most_cells
    for names in ranked:
        cells = domain.cells(names)
        if cells <= room and len(kept) < most_sets:
            room -= cells
            mine = set(names)
            kept[names] = sum(w * len(mine & set(other)) for other, w in asked.items())
    return {
        names: kept[names] for names in sorted(kept, key=lambda s: [domain.index(n) for n in s])
    }
