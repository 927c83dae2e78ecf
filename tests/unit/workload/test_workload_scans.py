# SPDX-License-Identifier: Apache-2.0
"""Which tables are scanned: the greedy choice, beside the same one made by looking at all sets."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.domain.domain import Domain
from sfumato.workload.workload import cover, scanned_tables, summed_from

Sets = list[tuple[str, ...]]


def plain_cover(sets: Sets, domain: Domain, most: int) -> dict[tuple[str, ...], Sets]:
    """The definition: a table takes in the attribute that completes most sets which are left."""
    left = sorted(sets, key=domain.cells, reverse=True)
    covers: dict[tuple[str, ...], Sets] = {}
    while left:
        first = left[0]
        block = set(first)
        while True:
            missing = [set(s) - block for s in left]
            gains = {n: missing.count({n}) for n in domain.names}
            room = most // domain.cells(domain.in_order(block))
            fitting = [n for n in domain.names if gains[n] and domain[n].size <= room]
            if not fitting:
                break
            block.add(max(fitting, key=lambda n: (gains[n], -domain[n].size)))
        is_great = domain.cells(first) > most
        within = [first] if is_great else [s for s in left if block.issuperset(s)]
        covers[domain.in_order(block)] = sorted(within)
        left = [s for s in left if s not in within]
    return covers


@st.composite
def requests(draw: st.DrawFn) -> tuple[Sets, Domain, int]:
    sizes = draw(st.lists(st.sampled_from([1, 2, 2, 3, 5, 10, 50]), min_size=1, max_size=7))
    domain = Domain({f"x{i}": size for i, size in enumerate(sizes)})
    longest = draw(st.integers(0, len(sizes)))
    every = [s for k in range(longest + 1) for s in combinations(domain.names, k)]
    sets = draw(st.just(every) | st.lists(st.sampled_from(every), min_size=1, unique=True))
    return sets, domain, draw(st.sampled_from([1, 8, 100, 5000, 2**17]))


@settings(deadline=None)
@given(requests())
def test_tables_are_those_of_the_definition(request_):
    sets, domain, most = request_
    found = cover(sets, domain, most)
    expected = plain_cover(sets, domain, most)
    assert found == expected
    assert list(found) == list(expected)


def test_a_plan_and_the_vault_have_one_computation():
    domain = Domain(dict.fromkeys("abcd", 7))
    pairs = list(combinations("abcd", 2))
    assert scanned_tables(pairs, domain, 50) is scanned_tables(list(pairs), domain, 50)
    assert summed_from(pairs, domain) is summed_from(tuple(pairs), domain)
    assert scanned_tables(pairs, domain, 50) != scanned_tables(pairs, domain, 10**4)
