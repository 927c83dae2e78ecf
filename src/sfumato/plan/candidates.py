# SPDX-License-Identifier: Apache-2.0
"""Which tables an adaptive release may measure for a workload, and how much each of them matters.

All pairs of attributes within an asked set, and the asked sets of three and more while their tables
are small: the estimate is kept on rows, and a table with more cells than rows can fill teaches it
noise. A set matters by how many attributes it shares with every asked one (McKenna et al. 2022,
"AIM"). Public: no data is seen.
"""

from __future__ import annotations

from itertools import combinations

from sfumato.domain import Domain
from sfumato.workload.workload import Workload

__all__ = ["asked_domain", "candidate_sets"]

MOST_CELLS = 2**20  # of all candidates together
MOST_SETS = 1000
MOST_WIDE = 1000  # cells of a set of three or more attributes

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
        found |= dict.fromkeys(combinations(names, 2))
        if len(names) > 2 and domain.cells(names) <= MOST_WIDE:
            found[names] = None
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
