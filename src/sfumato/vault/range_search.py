# SPDX-License-Identifier: Apache-2.0
"""Search the range of a column on a public grid: which cells it begins and ends with, privately.

`read_grids` counts the records of every cell of every grid, as one table each; `search_range`
returns the noisy number of records, a cell near the median and the two ends
(``privacy/range_law.py``). Only existing mechanisms are drawn from: `answer`, `permute_and_flip`
and `above_threshold`. Proof page: ``docs/proofs/ranges.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.domain.grids import RangeGrid
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.privacy.range_law import RangeLaw
from sfumato.random import WordSource
from sfumato.types import Integers, Progress
from sfumato.vault.count import count_marginals
from sfumato.vault.select import permute_and_flip
from sfumato.vault.sensitive import Sensitive
from sfumato.vault.sparse import above_threshold, answer
from sfumato.vault.tables import Table

__all__ = ["RangePlaces", "read_grids", "search_range"]


@dataclass(frozen=True, slots=True)
class RangePlaces:
    """What a search returns: public, for it was paid for.

    Attributes:
        number: How many records have a value, with noise.
        middle: The cell near the median.
        low: The edge that the range begins with.
        high: The edge that it ends with.
    """

    number: int
    middle: int
    low: int
    high: int


def read_grids(
    table: Table,
    grids: Sequence[RangeGrid],
    unit: PrivacyUnit | None = None,
    progress: Progress | None = None,
) -> tuple[Sensitive[Integers], ...]:
    """The exact numbers of records in the cells of every grid, nulls left out.

    Every record has one cell of each grid, or is null there: none is dropped.

    Privacy: none; the result is exact and stays in the vault.
    Neighbours: one row (or one unit) more or less changes the cells of a grid by at most 1 (or
    ``unit.rows``) in L1: docs/proofs/ranges.md, Lemma 1.
    """
    domain = Domain([grid.attribute for grid in grids])
    names = [(grid.name,) for grid in grids]
    counts = count_marginals(table, domain, names, unit, progress)
    return tuple(Sensitive(counts.reveal((grid.name,))[: grid.cells]) for grid in grids)


def search_range(
    counts: Sensitive[Integers], grid: RangeGrid, law: RangeLaw, random: WordSource
) -> RangePlaces:
    """The noisy number of records, a cell near their median, and the ends of a range around it.

    The middle is the cell whose ranks are nearest to half of the records. An end is the first edge
    outwards beyond which about ``law.beyond`` of them lie, or fewer; the last edge if none is
    discovered. Below the middle only the cells below it are looked at, above it those above.

    Privacy: costs ``law.cost``: docs/proofs/ranges.md, Theorem 2.
    Neighbours: tables whose counts differ by at most ``law.moves`` in L1.

    Args:
        counts: The exact numbers of records in the cells of the grid.
        grid: The grid.
        law: Its noise, and where a range ends.
        random: A source of random words.

    Returns:
        Places on the grid.
    """
    exact = np.asarray(counts.reveal(), dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(exact)])  # records before edge e
    total = int(before[-1])
    number = answer(Sensitive(total), law.number, random)
    # Twice the distance of half of the records from the ranks of the cell: moves by one.
    apart = np.maximum(np.maximum(2 * before[:-1] - total, total - 2 * before[1:]), 0)
    middle = permute_and_flip(Sensitive(-apart), law.rate, random)
    below, above = grid.outward(middle)
    threshold = law.threshold(number)
    low = _end(below, before[list(below)], threshold, law, random)
    high = _end(above, total - before[list(above)], threshold, law, random)
    return RangePlaces(number, middle, low, high)


def _end(
    edges: Sequence[int], beyond: Integers, threshold: int, law: RangeLaw, random: WordSource
) -> int:
    """The first edge beyond which the records are discovered to be few."""
    scores: Sensitive[Sequence[int]] = Sensitive([-int(records) for records in beyond])
    place = above_threshold(scores, [-threshold] * len(edges), law.ends, random)
    return edges[-1 if place is None else place]
