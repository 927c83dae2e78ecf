# SPDX-License-Identifier: Apache-2.0
"""Public grids on which the range of a column is looked for: one for numbers, one for dates.

A `RangeGrid` has an attribute of its own: the whole line, cut into cells, with the ends beyond all
that a column holds, so that no value is outside. How many records fall in each cell is counted as
any table is; which cells the range begins and ends with is then chosen privately
(``vault/mechanisms/searches.py``), and `RangeGrid.closed` returns the attribute between them.

Numbers: 0 and, on both sides, 1, 1.5, 2, 3, 5, 7 times the powers of ten from 1e-12 to 1e18.
Neighbours are at most a factor of 5/3 apart, less than an octave, and bounds are numbers that
people would write. Whole numbers have the whole ones among them. Values beyond and infinities
count as the last cell, NaN as null.

Dates and times: the months from 1600 to 2200. What is earlier or later counts as the first or the
last month.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from sfumato.domain.attributes import (
    Attribute,
    DateTime,
    Integer,
    Nulls,
    Numeric,
    Outside,
    Value,
)
from sfumato.domain.domain_limits import LIMITS

__all__ = [
    "MomentGrid",
    "NumberGrid",
    "RangeGrid",
    "even_edges",
]

_STEPS: Final = ("1", "1.5", "2", "3", "5", "7")
_POWERS: Final = range(-12, 18)
_FIRST, _LAST = datetime(1600, 1, 1), datetime(2200, 1, 1)
_UNITS: Final = (
    ("hour", 1 / 24),
    ("day", 1.0),
    ("week", 7.0),
    ("month", 30.5),
    ("quarter", 91.5),
    ("year", 365.25),
    ("5 year", 1826.25),
    ("10 year", 3652.5),
    ("50 year", 18262.5),
)
"""Steps of the calendar, and about how many days they have."""


@dataclass(frozen=True)
class RangeGrid(ABC):
    """A public grid for one column.

    Args:
        name: The name of the column.
        outside: Where values beyond the range go; those of the closed attribute.
        nulls: Where nulls go; those of the closed attribute.
    """

    name: str
    outside: Outside = "clamp"
    nulls: Nulls = "missing"

    @property
    @abstractmethod
    def attribute(self) -> Attribute:
        """The whole grid: every value has a cell, and nulls have one of their own."""

    def beyond(self, end: Value, is_upwards: bool) -> Value:
        """The value of the next edge above, or below, a value that lies within the grid."""
        values: list[Any] = [self.value(edge) for edge in range(self.cells + 1)]
        above = (v for v in values if v > end)
        below = (v for v in reversed(values) if v < end)
        value: Value = next(above, values[-1]) if is_upwards else next(below, values[0])
        return value

    @property
    def cells(self) -> int:
        """How many cells values can fall in."""
        return self.attribute.value_count

    @abstractmethod
    def outward(self, middle: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The edges at which a range around cell ``middle`` may begin, and end, nearest first.

        Edge e is the beginning of cell e, and the end of cell e - 1.
        """

    @abstractmethod
    def value(self, edge: int) -> Value:
        """The number, or the date, at an edge; as JSON holds it."""

    @abstractmethod
    def closed(self, low: Value, high: Value, bins: int) -> Attribute:
        """The attribute from ``low`` to ``high``, values of edges, in about so many bins at most.

        Values and not the numbers of edges: what a ledger holds keeps its meaning if a grid of a
        later version has other edges.
        """

    @property
    @abstractmethod
    def default(self) -> tuple[Value, Value]:
        """The ends of a wide range for a column of which nothing was learnt."""


@dataclass(frozen=True)
class NumberGrid(RangeGrid):
    """The grid of numbers; ``is_whole`` for whole numbers.

    >>> grid = NumberGrid("age", is_whole=True)
    >>> grid.edges[grid.edges.index(0.0) :][:8]
    (0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0)
    """

    is_whole: bool = False

    @cached_property
    def edges(self) -> tuple[float, ...]:
        """The edges, in order."""
        return _whole_edges() if self.is_whole else _real_edges()

    @cached_property
    def attribute(self) -> Numeric:
        """The line of numbers in cells."""
        return Numeric(self.name, self.edges, outside="clamp", nulls="missing")

    def outward(self, middle: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Every edge: the grid is geometric already."""
        return tuple(range(middle, -1, -1)), tuple(range(middle + 1, self.cells + 1))

    def value(self, edge: int) -> float | int:
        """The number at an edge."""
        return int(self.edges[edge]) if self.is_whole else self.edges[edge]

    def closed(self, low: Value, high: Value, bins: int) -> Attribute:
        """Bins of a short width; of whole numbers, of a whole one.

        >>> NumberGrid("age", is_whole=True).closed(15, 100, 10).labels[:3]
        ('15-24', '25-34', '35-44')
        """
        assert isinstance(low, int | float)  # noqa: S101  of `value`
        assert isinstance(high, int | float)  # noqa: S101
        if not self.is_whole:
            edges = even_edges(low, high, bins)
            return Numeric(self.name, edges, outside=self.outside, nulls=self.nulls)
        least, most = int(low), max(int(high) - 1, int(low))
        width = _whole_width(most - least + 1, bins)
        return Integer(self.name, least, most, width, outside=self.outside, nulls=self.nulls)

    @property
    def default(self) -> tuple[Value, Value]:
        """From minus a million to a million."""
        return (-1_000_000, 1_000_000) if self.is_whole else (-1e6, 1e6)


@dataclass(frozen=True)
class MomentGrid(RangeGrid):
    """The grid of dates and times: months.

    >>> MomentGrid("visit").attribute.value_label(12 * 424)
    datetime.date(2024, 1, 1)
    """

    @cached_property
    def attribute(self) -> DateTime:
        """The calendar in months."""
        return DateTime(self.name, _FIRST, _LAST, "month", outside="clamp", nulls="missing")

    def outward(self, middle: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Edges that are 0, 1, 2, 3, 4, 6, 8, 12, 16, ... months away, and the last one."""
        low = [middle - step for step in _spread(middle)]
        high = [middle + 1 + step for step in _spread(self.cells - middle - 1)]
        return tuple(low), tuple(high)

    def value(self, edge: int) -> str:
        """The first instant of the month of an edge, as ISO 8601 writes it."""
        return self.attribute.bin_start(edge).isoformat()

    def closed(self, low: Value, high: Value, bins: int) -> DateTime:
        """Steps of the calendar, the shortest that gives at most so many bins.

        >>> MomentGrid("visit").closed("2024-01-01", "2025-01-01", 12).step
        'month'
        """
        start, end = (datetime.fromisoformat(str(moment)) for moment in (low, high))
        days = (end - start).days
        step = next((unit for unit, long in _UNITS if days / long <= bins * 1.1), _UNITS[-1][0])
        return DateTime(self.name, start, end, step, outside=self.outside, nulls=self.nulls)

    @property
    def default(self) -> tuple[Value, Value]:
        """From 1900 to 2100."""
        return "1900-01-01T00:00:00", "2100-01-01T00:00:00"


def even_edges(low: float, high: float, bins: int) -> tuple[float, ...]:
    """Edges from ``low`` to ``high`` of at most ``bins`` bins; those between are short numbers.

    Bins are 1, 2 or 5 times a power of ten wide, but for the first and the last one.

    >>> even_edges(0.0, 70.0, 8)
    (0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0)
    >>> even_edges(0.03, 1.5, 8)
    (0.03, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.5)
    """
    power = math.floor(math.log10((high - low) / bins)) - 1
    while True:
        for digit in (1, 2, 5):
            width = _scaled(digit, power)
            first, last = math.floor(low / width), math.ceil(high / width)
            if last - first > bins + 2:
                continue
            inner = (_scaled(digit * i, power) for i in range(first, last + 1))
            # An edge that is nearly at an end would leave a sliver of a bin.
            clear = [e for e in inner if low + width / 2 <= e <= high - width / 2]
            if len(clear) < bins:
                return (low, *clear, high)
        power += 1


def _scaled(number: int, power: int) -> float:
    """The float nearest to ``number * 10^power``."""
    return float(f"{number}e{power}")


def _spread(most: int) -> Sequence[int]:
    """0, 1, 2, 3, 4, 6, 8, 12, ...: two a doubling, up to ``most``, which is always there."""
    steps = [0, *(n for k in range(most.bit_length() + 1) for n in (1 << k, 3 << k >> 1))]
    return sorted({n for n in steps if n < most} | {most})


def _real_edges() -> tuple[float, ...]:
    sizes = [float(f"{digits}e{power}") for power in _POWERS for digits in _STEPS]
    sizes.append(float(f"1e{_POWERS.stop}"))
    return (*(-size for size in reversed(sizes)), 0.0, *sizes)


def _whole_edges() -> tuple[float, ...]:
    edges = [edge for edge in _real_edges() if edge.is_integer()]
    return tuple(edge for edge in edges if abs(edge) < LIMITS.whole_range)


def _whole_width(numbers: int, bins: int) -> int:
    """The least of 1, 2, 5, 10, 20, ... of which ``bins`` hold so many numbers."""
    power = 1
    while True:
        for width in (power, 2 * power, 5 * power):
            if numbers <= width * bins:
                return width
        power *= 10
