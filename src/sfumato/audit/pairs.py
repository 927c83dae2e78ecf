# SPDX-License-Identifier: Apache-2.0
"""Neighbouring tables to try a mechanism on: a listed set, and more at random.

A table is a tuple of records, a record a tuple of cell numbers. The listed pairs hold what is known
to go wrong: the empty table, a record in the first and in the last cell, a record among many, and,
for replaced records, the two cells that are farthest apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Generic, TypeVar

import numpy as np

from sfumato.budget import Neighbours
from sfumato.randomness import WordSource, integers_below

__all__ = ["Pair", "Record", "Table", "listed_pairs", "pairs_at_random"]

T_co = TypeVar("T_co", covariant=True)
Record = tuple[int, ...]
Table = tuple[Record, ...]

MANY = 1000  # records of a crowded cell
FEW = 6  # records of a table at random, at most
SPREAD = 24  # records of a table that has one in every cell, at most


@dataclass(frozen=True, slots=True)
class Pair(Generic[T_co]):
    """Two neighbouring tables, with a name for people."""

    name: str
    left: T_co
    right: T_co


def listed_pairs(shape: Sequence[int], neighbours: Neighbours) -> tuple[Pair[Table], ...]:
    """Neighbours that every mechanism over this domain is tried on."""
    cells = prod(shape)
    first, last, second = (_record(shape, c % cells) for c in (0, cells - 1, 1))
    spread = tuple(_record(shape, c) for c in range(min(cells, SPREAD)))
    crowd = (first,) * MANY
    if neighbours == "replace-one":
        return (
            Pair("first cell becomes last", (first,), (last,)),
            Pair("first cell becomes second", (first,), (second,)),
            Pair("first becomes last, all cells", (*spread, first), (*spread, last)),
            Pair("first becomes last, crowded", (*crowd, first), (*crowd, last)),
        )
    return (
        Pair("empty table, first cell", (), (first,)),
        Pair("empty table, last cell", (), (last,)),
        Pair("all cells, last cell again", spread, (*spread, last)),
        Pair("crowded first cell, one less", (*crowd, first), crowd),
    )


def pairs_at_random(
    shape: Sequence[int], neighbours: Neighbours
) -> Callable[[WordSource], Pair[Table]]:
    """A table of a few records at random, and one record added or replaced at random."""
    return partial(_random_pair, tuple(shape), neighbours)


def _random_pair(shape: tuple[int, ...], neighbours: Neighbours, words: WordSource) -> Pair[Table]:
    records = int(integers_below(FEW + 1, 1, words)[0])
    cells = integers_below(prod(shape), records + 2, words).tolist()
    base = tuple(_record(shape, c) for c in cells[:records])
    one, other = (_record(shape, c) for c in cells[records:])
    if neighbours == "replace-one":
        return Pair(f"at random: {one} becomes {other}", (*base, one), (*base, other))
    return Pair(f"at random: {one} in {records} others", base, (*base, one))


def _record(shape: Sequence[int], cell: int) -> Record:
    return tuple(int(i) for i in np.unravel_index(cell, tuple(shape)))
