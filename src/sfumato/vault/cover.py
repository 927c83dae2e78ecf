# SPDX-License-Identifier: Apache-2.0
"""Which tables to count, so that all asked ones can be summed from them in few scans.

A GROUP BY costs a pass over the records, and little more for a hundred thousand cells than for a
hundred. All pairs of 12 attributes of 10 cells are 66 tables, but they lie within 10 tables over 5
attributes. What is counted beyond what was asked never leaves the function that counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sfumato.domain import Domain

__all__ = ["cover"]

AttributeSet = tuple[str, ...]


def cover(
    asked: Sequence[AttributeSet], domain: Domain, most: int
) -> dict[AttributeSet, list[AttributeSet]]:
    """Tables to count, each with the asked ones that are summed from it; every asked one once.

    Greedy: a table begins with the largest asked one that is left, and takes in the attribute that
    completes most others, as long as it has at most ``most`` cells.

    >>> small = Domain({"a": 2, "b": 2, "c": 2})
    >>> cover([("a", "b"), ("a", "c"), ("b", "c")], small, most=8)
    {('a', 'b', 'c'): [('a', 'b'), ('a', 'c'), ('b', 'c')]}
    """
    left = dict.fromkeys(sorted(asked, key=domain.cells, reverse=True))
    touching: dict[str, dict[AttributeSet, None]] = {name: {} for name in domain.names}
    for names in left:
        for attribute in names:
            touching[attribute][names] = None
    covers: dict[AttributeSet, list[AttributeSet]] = {}
    while left:
        first = next(iter(left))
        block = set(first)
        while (name := _next(block, touching, domain, most)) is not None:
            block.add(name)
        within = {n: None for x in block for n in touching[x] if block.issuperset(n)}
        if domain.cells(first) > most:  # summing it takes longer than a scan
            within = {first: None}
        elif () in left:
            within[()] = None
        table = domain.in_order(block)
        covers[table] = sorted(within)
        for names in within:
            del left[names]
            for attribute in names:
                del touching[attribute][names]
    return covers


def _next(
    block: set[str], touching: dict[str, dict[AttributeSet, None]], domain: Domain, most: int
) -> str | None:
    """The attribute that completes most tables which are left; None if none does, or fits."""
    cells = domain.cells(domain.in_order(block))
    gains: Counter[str] = Counter()
    near = {names: None for name in block for names in touching[name]}
    for names in near:
        missing = [name for name in names if name not in block]
        if len(missing) == 1:
            gains[missing[0]] += 1
    for name in domain.names:
        if name not in block and (name,) in touching[name]:
            gains[name] += 1
    fitting = [n for n in domain.names if gains[n] and cells * domain[n].size <= most]
    return max(fitting, key=lambda n: (gains[n], -domain[n].size), default=None)
