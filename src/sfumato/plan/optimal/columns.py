# SPDX-License-Identifier: Apache-2.0
"""The distinct columns of a workload, found without visiting its cells.

Cells whose columns of F are equal need not be told apart: an optimal strategy treats them alike,
and its sensitivity is that of one of them. A few hundred conditions have few different columns on
10^12 cells. They are found attribute by attribute:

1. Cells of an attribute that no query tells apart are one class.
2. A query is read as a decision diagram: after some attributes are known, what matters of them
   is one number, its state. A conjunction has two, "still possible" and "failed", so that all
   conjunctions together (and, complemented, all disjunctions) are one string of bits.
3. The states of all queries after attribute i are the states after attribute i - 1, moved by each
   class of attribute i, every combination kept once.

Combinations are compared in full: a hash only says where to look.

The diagrams are those of Bryant 1986, "Graph-based algorithms for Boolean function manipulation",
with more than two branches; merging equal cells is the workload-based partition of Zhang et al.
2018 (``workload/classes.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.domain import Domain
from sfumato.errors import TooLarge
from sfumato.plan.effort import must_stop, spend
from sfumato.plan.optimal.reading import Reading, read
from sfumato.workload.queries import Array, Numbers
from sfumato.workload.terms import Term

__all__ = ["Columns", "distinct_columns"]

MOST_ENTRIES = 2**27  # of the matrix of distinct columns
MOST_QUERIES = 2**18
MOST_MOVES = 2**23  # combinations of a state and a class that are looked at per attribute
AT_ONCE = 2**24  # words of states that are looked at together

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Columns:
    """``matrix`` has a row per asked query, group after group, and a column per kind of cell.

    ``sizes`` counts the cells of each kind, over the attributes that are asked about.
    """

    matrix: Numbers
    sizes: Array


def distinct_columns(domain: Domain, terms: Sequence[Term]) -> Columns:
    """All different columns of the queries of these terms."""
    queries = sum(t.rows for t in terms)
    _check(domain, terms, queries)
    reading = read(domain, terms)
    states, sizes = reading.start(), np.ones(1)
    for axis, count in enumerate(reading.class_counts):
        if len(states) * count > MOST_MOVES:
            raise _too_many(reading, queries, len(states) * count)
        states, sizes = _moved(reading, axis, states, sizes)
        if len(states) * queries > MOST_ENTRIES:
            raise _too_many(reading, queries, len(states))
    return Columns(reading.matrix(states), sizes)


def _check(domain: Domain, terms: Sequence[Term], queries: int) -> None:
    """Refuse at once what is known to have too many queries or columns."""
    tables = [t for t in terms if not t.as_conditions()]
    entries = sum(t.rows * t.cells for t in tables)
    # Single cells, prefixes and ranges tell all cells of their attributes apart.
    products = [p for t in tables if (p := t.as_product()) is not None]
    sharp = [p for p in products if all(q.separates_cells for _, q in p.factors)]
    cells = domain.cells(domain.in_order({n for t in sharp for n in t.attributes}))
    if queries > MOST_QUERIES or entries > MOST_ENTRIES or cells * queries > MOST_ENTRIES:
        raise TooLarge(
            f"{queries:,} queries, of which {sum(t.rows for t in tables):,} are on tables of "
            f"{cells:,} or more cells, are too many to be solved as one matrix of "
            f"{MOST_ENTRIES:,} coefficients; products of query sets have better ways"
        )


def _moved(reading: Reading, axis: int, states: Words, sizes: Array) -> tuple[Words, Array]:
    """Every state after one more attribute, with the number of cells that lead to it."""
    weights = reading.class_sizes[axis]
    step = max(1, AT_ONCE // states.size)
    found: list[Words] = []
    counted: list[Array] = []
    for first in range(0, len(weights), step):
        if must_stop():
            raise TooLarge(
                "planning must end before the different columns of all queries are known; ask "
                "about fewer attributes at once, or allow more seconds"
            )
        classes = np.arange(first, min(first + step, len(weights)))
        moved = reading.move(axis, states, classes)
        spend(64.0 * moved.size)  # words, several times each
        cells = np.multiply.outer(sizes, weights[classes]).reshape(-1)
        distinct, total = _distinct(moved, cells)
        found.append(distinct)
        counted.append(total)
    return _distinct(np.concatenate(found), np.concatenate(counted))


def _distinct(words: Words, sizes: Array) -> tuple[Words, Array]:
    """The different rows, and the sizes of equal ones summed."""
    key = np.zeros(len(words), dtype=np.uint64)
    for column in range(words.shape[1]):  # multiply and fold: a hash, wrapping around
        key = (key ^ words[:, column]) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    _, first, where = np.unique(key, return_index=True, return_inverse=True)
    where = where.reshape(-1)
    kept = words[first]
    if not np.array_equal(kept[where], words):  # two different rows with one hash
        kept, where = np.unique(words, axis=0, return_inverse=True)
        where = where.reshape(-1)
    return kept, np.asarray(np.bincount(where, weights=sizes), dtype=np.float64)


def _too_many(reading: Reading, queries: int, count: int) -> TooLarge:
    counts = " x ".join(f"{n:,}" for n in reading.class_counts)
    return TooLarge(
        f"{queries:,} queries tell {counts} classes of cells apart, and {count:,} or more of their "
        f"combinations; at most {MOST_ENTRIES // max(queries, 1):,} are solved as one matrix: ask "
        "about fewer attributes at once"
    )
