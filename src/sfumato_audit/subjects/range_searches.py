# SPDX-License-Identifier: Apache-2.0
"""Searches for the range of a column, on a grid of few cells.

A table is the number of records in each cell. The pairs hold what a search is built on: a record
more beyond an end, at the median, in an empty table, and far from a crowd.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from sfumato.domain.attributes import Integer, Value
from sfumato.domain.grids import RangeGrid
from sfumato.privacy.discovery_laws import RangeLaw, range_law
from sfumato.random import WordSource, integers_below
from sfumato.types import Array
from sfumato.vault.mechanisms.searches import RangePlaces, search_range
from sfumato.vault.sensitive import Sensitive
from sfumato_audit.bounds import Claim
from sfumato_audit.examine import Pair, Sampler, Subject

__all__ = ["Cells", "broken_range_subjects", "range_subjects"]

Cells = tuple[int, ...]
Searched = Callable[[Cells, RangeLaw, WordSource], RangePlaces]

EPSILON = Fraction(2)
MODULE = "sfumato.vault.mechanisms.searches"
SLOW = 60
PAIRS: tuple[Pair[Cells], ...] = (
    Pair("empty, or one record at the end", (0, 0, 0, 0, 0), (0, 0, 0, 0, 1)),
    Pair("one more beyond the crowd", (2, 0, 9, 0, 2), (2, 0, 9, 0, 3)),
    Pair("one more below the crowd", (3, 0, 9, 0, 2), (2, 0, 9, 0, 2)),
    Pair("one more on one side of the median", (0, 8, 0, 8, 0), (0, 8, 0, 9, 0)),
    Pair("one more in the crowd", (1, 2, 9, 2, 1), (1, 2, 10, 2, 1)),
)


@dataclass(frozen=True)
class _FewCells(RangeGrid):
    """The numbers 0 to 4, a cell each."""

    @property
    def attribute(self) -> Integer:
        """Five cells."""
        return Integer(self.name, 0, 4, outside="clamp", nulls="missing")

    def outward(self, middle: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Every edge."""
        return tuple(range(middle, -1, -1)), tuple(range(middle + 1, self.cells + 1))

    def value(self, edge: int) -> int:
        """The number itself."""
        return edge

    def closed(self, low: Value, high: Value, bins: int) -> Integer:
        """All cells: nothing is asked about the range."""
        del low, high, bins
        return self.attribute

    @property
    def default(self) -> tuple[Value, Value]:
        """All cells."""
        return 0, self.cells


GRID = _FewCells("x")


def _sound(cells: Cells, law: RangeLaw, source: WordSource) -> RangePlaces:
    return search_range(Sensitive(np.array(cells, dtype=np.int64)), GRID, law, source)


def _subject(
    name: str, law: RangeLaw, claim: Claim, searched: Searched, is_broken: bool = False
) -> Subject[Cells]:
    def sampler(cells: Cells) -> Sampler:
        def run(runs: int, source: WordSource) -> Array:
            places = (searched(cells, law, source) for _ in range(runs))
            rows = [(p.number, p.middle, p.low, p.high) for p in places]
            return np.array(rows, dtype=np.float64)

        return run

    covers = frozenset() if is_broken else frozenset({f"{MODULE}.search_range"})
    random_pair = None if is_broken else _random
    return Subject(
        name, claim, PAIRS, sampler, covers, random_pair, slowness=SLOW, is_broken=is_broken
    )


def _random(source: WordSource) -> Pair[Cells]:
    numbers = integers_below(8, GRID.cells, source).tolist()
    cell = int(integers_below(GRID.cells, 1, source)[0])
    more = tuple(n + (i == cell) for i, n in enumerate(numbers))
    return Pair(f"at random: one more in cell {cell}", tuple(numbers), more)


def range_subjects() -> tuple[Subject[Cells], ...]:
    """The search for a range between records, and between tables of two records' distance."""
    law = range_law(EPSILON, tails=Fraction(1, 10))
    pairs = range_law(EPSILON, moves=2, tails=Fraction(1, 10))
    replaced = tuple(
        Pair(f"{p.name}, and one in another cell", (p.left[0] + 1, *p.left[1:]), p.right)
        for p in PAIRS
    )
    both = _subject("range of a column, replaced records", pairs, Claim.of(pairs.cost), _sound)
    return (
        _subject("range of a column", law, Claim.of(law.cost), _sound),
        replace(both, pairs=replaced, random_pair=None),
    )


def broken_range_subjects() -> tuple[Subject[Cells], ...]:
    """A middle at forty times its rate, and walks that compare exact counts."""
    law = range_law(EPSILON, tails=Fraction(1, 10))
    claim = Claim.of(law.cost)
    hasty = replace(law, rate=40 * law.rate)
    title = "range: ranks of the middle counted as if they moved by a fortieth"
    return (
        _subject(title, hasty, claim, _sound, is_broken=True),
        _subject("range: the walks draw no noise", law, claim, _without_noise, is_broken=True),
    )


def _without_noise(cells: Cells, law: RangeLaw, source: WordSource) -> RangePlaces:
    """The ends where the exact counts fall below the noisy threshold of the number alone."""
    places = _sound(cells, law, source)
    before = np.concatenate([[0], np.cumsum(cells)])
    below, above = GRID.outward(places.middle)
    threshold = law.threshold(places.number)
    low = next((e for e in below if before[e] <= threshold), below[-1])
    high = next((e for e in above if before[-1] - before[e] <= threshold), above[-1])
    return replace(places, low=low, high=high)
