# SPDX-License-Identifier: Apache-2.0
"""Which tables an engine counts in its scans so that all tables of a request follow from them.

A GROUP BY costs a pass over the records, and little more for a hundred thousand cells than for a
hundred. All pairs of 12 attributes of 10 cells are 66 tables, but they lie within 10 tables over 5
attributes. What is counted beyond the request never leaves the function that counts. Public
arithmetic: planning states the scans and their memory before the vault makes them. `answer_bits`
says in which steps answers are whole numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, combinations
from math import comb
from typing import Final, Literal

from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "CELLS_TOGETHER",
    "RECORD_BITS",
    "WORD_BITS",
    "EngineName",
    "answer_bits",
    "counted_sets",
    "cover",
    "is_counted_alone",
    "most_groups",
    "scanned_tables",
    "summed_from",
    "tables_by_query",
]


RECORD_BITS: Final = 44  # a table has fewer than 2^44 records
WORD_BITS: Final = 62  # one bit less than int64 holds


EngineName = Literal["duckdb", "postgres", "spark"]
CELLS_TOGETHER: Final[dict[EngineName, int]] = {
    "duckdb": 2**17,
    "postgres": 2**14,  # a hash table of so many stays within work_mem
    "spark": 2**12,
}
"""The maximum of cells of a table that is counted in place of several requested ones (`cover`)."""

AttributeSet = tuple[str, ...]


def answer_bits(workload: Workload) -> int:
    """The bits after the point of all answers: they are multiples of 2 to minus this.

    Raises:
        TooLarge: 64 bits do not hold all answers.
    """
    bits = max(t.fraction_bits for t in workload.terms)
    reach = max(t.greatest for t in workload.terms) * 2.0 ** (bits + RECORD_BITS)
    if any(t.slack for t in workload.terms) or reach >= 2.0 ** (WORD_BITS - 1):
        raise TooLarge(
            "the coefficients of the queries are too fine or too large to be compared in 64-bit "
            "integers; round them, or scale them down"
        )
    return bits


def counted_sets(terms: Iterable[Term]) -> tuple[list[AttributeSet], list[Term]]:
    """The tables, by their attributes, and the conditions that an engine counts for some terms."""
    sources = [(source, term) for term in terms for source in term.sources()]
    tables = sorted({s.attributes for s, term in sources if not is_counted_alone(s, term)})
    return tables, [s for s, term in sources if is_counted_alone(s, term)]


def is_counted_alone(source: Term, term: Term) -> bool:
    """Whether the engine counts condition by condition: wide ones, and those a term combines.

    Conditions on cells of values are read off their table: a record is in several of these.
    """
    is_alone = bool(source.as_conditions()) and (source.is_wide or source is not term)
    return is_alone and not source.unit_bits


def scanned_tables(
    sets: Sequence[AttributeSet], domain: Domain, most: int
) -> Mapping[AttributeSet, Sequence[AttributeSet]]:
    """The tables that an engine counts, each with the requested ones that are summed from it.

    ``most`` is the engine's number of `CELLS_TOGETHER`. A plan states what the vault then counts:
    both have it from one computation.
    """
    sources = summed_from(sets, domain)
    return _cover(tuple(names for names in sets if sources[names] == names), domain, most)


@lru_cache(maxsize=2)
def _cover(
    sets: tuple[AttributeSet, ...], domain: Domain, most: int
) -> Mapping[AttributeSet, Sequence[AttributeSet]]:
    return cover(sets, domain, most)


def most_groups(scanned: Iterable[AttributeSet], domain: Domain) -> int:
    """The maximum of cells that one query counts, in as many groups if all are occupied."""
    queries = tables_by_query(list(scanned), domain, LIMITS.tables_per_query)
    return max((sum(map(domain.cells, group)) for group in queries), default=0)


def summed_from(
    sets: Sequence[AttributeSet], domain: Domain
) -> Mapping[AttributeSet, AttributeSet]:
    """For each set, the smallest other set that it is summed from, or itself when scanned."""
    return _summed_from(tuple(sets), domain, LIMITS.cells_summed)


@lru_cache(maxsize=2)
def _summed_from(
    sets: tuple[AttributeSet, ...], domain: Domain, most: int
) -> Mapping[AttributeSet, AttributeSet]:
    sources: dict[AttributeSet, AttributeSet] = {}
    distinct = set(sets)
    for wide in sorted(sets, key=domain.cells):
        if domain.cells(wide) > most:
            break
        for names in _inside(wide, distinct):
            sources.setdefault(names, wide)
    return {names: sources.get(names, names) for names in sets}


def _inside(wide: AttributeSet, sets: set[AttributeSet]) -> list[AttributeSet]:
    """The sets within a wider one, by its subsets or by all sets, whichever are fewer."""
    if 2 ** len(wide) > len(sets):
        return [names for names in sets if len(names) < len(wide) and set(names) <= set(wide)]
    subsets = chain.from_iterable(combinations(wide, k) for k in range(len(wide)))
    return [names for names in subsets if names in sets]


def tables_by_query(
    sets: Sequence[AttributeSet], domain: Domain, most: int
) -> list[list[AttributeSet]]:
    """The sets that each query counts: at most ``most``, so few that its result stays small."""
    groups: list[list[AttributeSet]] = []
    room = 0
    for names in sets:
        cells = domain.cells(names)
        if not groups or len(groups[-1]) == most or cells > room:
            groups.append([])
            room = LIMITS.cells_per_query
        groups[-1].append(names)
        room -= cells
    return groups


def cover(
    sets: Sequence[AttributeSet], domain: Domain, most: int
) -> dict[AttributeSet, list[AttributeSet]]:
    """Tables to count, each with the sets that are summed from it; every set once.

    Greedy: a table begins with the largest set that is left, and takes in the attribute that
    completes most others, as long as it has at most ``most`` cells.

    >>> small = Domain({"a": 2, "b": 2, "c": 2})
    >>> cover([("a", "b"), ("a", "c"), ("b", "c")], small, most=8)
    {('a', 'b', 'c'): [('a', 'b'), ('a', 'c'), ('b', 'c')]}
    """
    left = _Left(sets, domain)
    covers: dict[AttributeSet, list[AttributeSet]] = {}
    for first in sorted(sets, key=domain.cells, reverse=True):
        if first not in left:
            continue
        block = left.block(first, most)
        # To sum a great one takes longer than a scan.
        within = left.within(block) if domain.cells(first) <= most else [first]
        covers[domain.in_order(domain.names[i] for i in block)] = sorted(within)
        left.remove(within)
    return covers


class _Left:
    """The sets that are in no table yet, and which attribute completes which of them.

    A set is found from its subsets that lack one attribute, so that a table is filled in the time
    of its own subsets, however many sets there are. Sets of attributes are bits of a number.
    """

    def __init__(self, sets: Sequence[AttributeSet], domain: Domain) -> None:
        self._place = {name: i for i, name in enumerate(domain.names)}
        self._sizes = [domain[name].size for name in domain.names]
        self._sets: dict[int, AttributeSet] = {}
        self._lengths: Counter[int] = Counter()
        self._completed: dict[int, set[int]] = {}
        """The attributes that make a set of a smaller one."""
        self._touching: list[set[int]] = [set() for _ in domain.names]
        for names in sets:
            bits = self._bits(names)
            self._sets[bits] = names
            self._lengths[len(names)] += 1
            for i in map(self._place.__getitem__, names):
                self._completed.setdefault(bits ^ (1 << i), set()).add(i)
                self._touching[i].add(bits)

    def _bits(self, names: AttributeSet) -> int:
        return sum(1 << self._place[name] for name in names)

    def __contains__(self, names: AttributeSet) -> bool:
        return self._bits(names) in self._sets

    def block(self, first: AttributeSet, most: int) -> list[int]:
        """The attributes of a table that begins with a set and takes in what completes most."""
        block: list[int] = []
        room = most
        gains = Counter(self._completed.get(0, ()))
        for i in map(self._place.__getitem__, first):
            self._add(i, block, gains)
            room //= self._sizes[i]
        while True:
            fitting = [i for i in gains if self._sizes[i] <= room and i not in block]
            if not fitting:
                return block
            best = max(fitting, key=lambda i: (gains[i], -self._sizes[i], -i))
            self._add(best, block, gains)
            room //= self._sizes[best]

    def _add(self, i: int, block: list[int], gains: Counter[int]) -> None:
        """Take an attribute into a block: sets that lack one other attribute now gain by it."""
        inside = sum(1 << j for j in block) | 1 << i
        if self._subsets(len(block)) <= len(self._touching[i]):
            for part in self._parts(block, shorter=2):
                gains.update(self._completed.get(part | 1 << i, ()))
        else:
            for bits in self._touching[i]:
                rest = bits & ~inside
                if rest and not rest & (rest - 1):
                    gains[rest.bit_length() - 1] += 1
        block.append(i)

    def within(self, block: Sequence[int]) -> list[AttributeSet]:
        """The sets inside a block."""
        if self._subsets(len(block)) <= len(self._sets):
            parts = [part for part in self._parts(block, shorter=0) if part in self._sets]
        else:
            outside = ~sum(1 << i for i in block)
            parts = [bits for bits in self._sets if not bits & outside]
        return [self._sets[part] for part in parts]

    def _subsets(self, size: int) -> int:
        """How many subsets of a block have the length of a set, at most."""
        return sum(comb(size, length) for length in self._lengths)

    def _parts(self, block: Sequence[int], *, shorter: int) -> Iterator[int]:
        """The subsets of a block that are so much shorter than a set."""
        bits = [1 << i for i in block]
        for length in self._lengths:
            if length >= shorter:
                yield from map(sum, combinations(bits, length - shorter))

    def remove(self, sets: Iterable[AttributeSet]) -> None:
        """These are in a table."""
        for names in sets:
            bits = self._bits(names)
            del self._sets[bits]
            self._lengths[len(names)] -= 1
            if not self._lengths[len(names)]:
                del self._lengths[len(names)]
            for i in map(self._place.__getitem__, names):
                self._completed[bits ^ (1 << i)].discard(i)
                self._touching[i].discard(bits)
