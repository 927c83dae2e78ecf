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
from collections.abc import Iterable, Sequence
from itertools import chain, combinations
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
) -> dict[AttributeSet, list[AttributeSet]]:
    """The tables that an engine counts, each with the requested ones that are summed from it.

    ``most`` is the engine's number of `CELLS_TOGETHER`.
    """
    sources = summed_from(sets, domain)
    return cover([names for names in sets if sources[names] == names], domain, most)


def most_groups(scanned: Iterable[AttributeSet], domain: Domain) -> int:
    """The maximum of cells that one query counts, in as many groups if all are occupied."""
    queries = tables_by_query(list(scanned), domain, LIMITS.tables_per_query)
    return max((sum(map(domain.cells, group)) for group in queries), default=0)


def summed_from(sets: Sequence[AttributeSet], domain: Domain) -> dict[AttributeSet, AttributeSet]:
    """For each set, the smallest other set that it is summed from, or itself when scanned."""
    sources: dict[AttributeSet, AttributeSet] = {}
    distinct = set(sets)
    for wide in sorted(sets, key=domain.cells):
        if domain.cells(wide) > LIMITS.cells_summed:
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
    left = dict.fromkeys(sorted(sets, key=domain.cells, reverse=True))
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
