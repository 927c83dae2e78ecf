# SPDX-License-Identifier: Apache-2.0
"""Ranges that are still to be discovered: of whole numbers, of numbers, of dates and times.

    sf.Numeric.discover("income")            # both ends
    sf.Integer.discover("age", min=0)        # the upper one alone; 0 is public knowledge

An `OpenRange` names the public grid that its column is searched on (``domain/grids.py``), and makes
a closed attribute of the two ends that were published. Values beyond them are clamped.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction
from typing import Any, ClassVar, Final

from sfumato.domain.attributes import DISCOVER, OPEN_KINDS, Attribute, Outside, Value
from sfumato.domain.discovery import Findings, OpenAttribute
from sfumato.domain.domain_limits import LIMITS
from sfumato.domain.grids import MomentGrid, NumberGrid, RangeGrid
from sfumato.errors import SchemaError
from sfumato.text import shown

__all__ = ["OpenDateTime", "OpenInteger", "OpenNumeric", "OpenRange"]

_RULES: Final = ("clamp", "other", "drop")


@dataclass(frozen=True)
class OpenRange(OpenAttribute):
    """The range of a column, to be discovered.

    Args:
        columns: The name of the column.
        low: The least value, where it is public knowledge; discovered if None.
        high: The greatest value, likewise.
        outside: What becomes of values beyond the range: ``"clamp"`` to its ends, the cell
            ``"other"``, or ``"drop"`` the record.
        nulls: What becomes of missing values.
        bins: About how many bins the range is to have; by a public rule if None.
        tails: The share of the records that is to lie beyond either end, about.

    Raises:
        SchemaError: An argument is none of these.
    """

    outside: Outside = field(default="clamp", kw_only=True)
    low: Value | None = field(default=None, kw_only=True)
    high: Value | None = field(default=None, kw_only=True)
    bins: int | None = field(default=None, kw_only=True)
    tails: Fraction = field(default=Fraction(1, 20), kw_only=True)

    mechanism: ClassVar[str] = "ranges"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.columns) != 1:
            raise SchemaError(f"{self.name}: a range is that of one column, got {self.columns}")
        if self.outside not in _RULES:
            raise SchemaError(
                f"{self.name}: outside = {shown(self.outside)} is not 'clamp', 'other' or 'drop'"
            )
        is_number = isinstance(self.bins, int) and not isinstance(self.bins, bool)
        if self.bins is not None and not (is_number and 1 <= self.bins <= LIMITS.bins):
            raise SchemaError(
                f"{self.name}: bins = {shown(self.bins)} is not a number from 1 to {LIMITS.bins:,}"
            )
        try:
            tails = Fraction(str(self.tails))
        except (ValueError, ZeroDivisionError):
            tails = Fraction(0)
        if not 0 < tails <= Fraction(1, 4):
            raise SchemaError(
                f"{self.name}: tails = {shown(self.tails)} is not a share above 0 and at most 0.25"
            )
        object.__setattr__(self, "tails", tails)
        if self.low is not None and self.high is not None:
            raise SchemaError(
                f"{self.name}: both ends are declared, so there is nothing to discover; use "
                f"sf.{type(self).__name__.removeprefix('Open')}"
            )
        for end in (self.low, self.high):
            if end is not None:
                self.check_end(end)

    @property
    @abstractmethod
    def grid(self) -> RangeGrid:
        """The public grid on which the column is searched."""

    @abstractmethod
    def check_end(self, end: Any) -> None:
        """Refuse a declared end of another kind, or beyond the grid."""

    def request(self) -> dict[str, object]:
        """The attribute as JSON; declared ends, bins and rules are no part of what is paid for."""
        return super().request() | {"tails": str(self.tails)}

    def closed(self, findings: Findings) -> tuple[Attribute, ...]:
        """The column with its range; a declared end stays as it was declared."""
        low, high = self.ends(findings)
        bins = self.bins if self.bins is not None else findings["bins"]
        assert isinstance(bins, int)  # noqa: S101  JSON of the vault
        return (self.grid.closed(low, high, bins),)

    def ends(self, findings: Findings) -> tuple[Value, Value]:
        """The two ends: those that were published, or declared."""
        low: Any = findings["low"]
        high: Any = findings["high"]
        if self.low is not None:
            low = self.low
            high = high if high > low else self.grid.beyond(low, is_upwards=True)
        elif self.high is not None:
            high = self.past(self.high)
            low = low if low < high else self.grid.beyond(high, is_upwards=False)
        return low, high

    def past(self, end: Value) -> Value:
        """Where a range ends whose greatest value this is."""
        return end

    def _fault_of_end(self, end: object, what: str) -> SchemaError:
        return SchemaError(f"{self.name}: a declared end must be {what}, got {shown(end)}")


@dataclass(frozen=True)
class OpenInteger(OpenRange):
    """The range of a column of whole numbers."""

    kind: ClassVar[str] = "integer"
    families: ClassVar[tuple[str, ...]] = ("integer", "decimal", "float")

    @property
    def grid(self) -> NumberGrid:
        """The whole numbers of the grid."""
        return NumberGrid(self.columns[0], self.outside, self.nulls, is_whole=True)

    def check_end(self, end: Any) -> None:
        """A whole number within the grid."""
        is_whole = isinstance(end, int) and not isinstance(end, bool)
        if not is_whole or not abs(end) < _most(self.grid):
            raise self._fault_of_end(end, f"a whole number below {_most(self.grid):,}")

    def past(self, end: Value) -> Value:
        """One more: the greatest value is part of the range."""
        assert isinstance(end, int)  # noqa: S101  check_end
        return end + 1

    def table(self) -> dict[str, object]:
        """``min`` and ``max``."""
        return {"kind": self.kind, **_ends(("min", self.low), ("max", self.high))}


@dataclass(frozen=True)
class OpenNumeric(OpenRange):
    """The range of a column of numbers."""

    kind: ClassVar[str] = "numeric"
    families: ClassVar[tuple[str, ...]] = ("integer", "decimal", "float")

    @property
    def grid(self) -> NumberGrid:
        """The grid of numbers."""
        return NumberGrid(self.columns[0], self.outside, self.nulls)

    def check_end(self, end: Any) -> None:
        """A number within the grid."""
        is_number = isinstance(end, int | float) and not isinstance(end, bool)
        if not is_number or not abs(end) < _most(self.grid):
            raise self._fault_of_end(end, f"a number below {_most(self.grid):g}")

    def table(self) -> dict[str, object]:
        """``min`` and ``max``."""
        return {"kind": self.kind, **_ends(("min", self.low), ("max", self.high))}


@dataclass(frozen=True)
class OpenDateTime(OpenRange):
    """The range of a column of dates or times."""

    kind: ClassVar[str] = "datetime"
    families: ClassVar[tuple[str, ...]] = ("date", "timestamp")

    @property
    def grid(self) -> MomentGrid:
        """The months."""
        return MomentGrid(self.columns[0], self.outside, self.nulls)

    def __post_init__(self) -> None:
        for key in ("low", "high"):
            end = getattr(self, key)
            if isinstance(end, date):
                moment = (
                    end if isinstance(end, datetime) else datetime(end.year, end.month, end.day)
                )
                object.__setattr__(self, key, moment.isoformat())
        super().__post_init__()

    def check_end(self, end: Any) -> None:
        """A date and time without a time zone, within the grid, as ISO 8601 writes it."""
        grid = self.grid
        try:
            moment = datetime.fromisoformat(str(end))
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is not None or moment.isoformat() != end:
            raise self._fault_of_end(end, "a date, or a date and time without a zone")
        if not grid.value(0) < end < grid.value(grid.cells):
            raise self._fault_of_end(end, "between the years 1600 and 2200")

    def table(self) -> dict[str, object]:
        """``start`` and ``end``."""
        ends = [
            None if e is None else datetime.fromisoformat(str(e)) for e in (self.low, self.high)
        ]
        return {"kind": self.kind, **_ends(("start", ends[0]), ("end", ends[1]))}


def _ends(*ends: tuple[str, Value | None]) -> Mapping[str, object]:
    return {key: DISCOVER if value is None else value for key, value in ends}


def _most(grid: NumberGrid) -> float:
    return grid.value(grid.cells)


for _kind in (OpenInteger, OpenNumeric, OpenDateTime):
    OPEN_KINDS[_kind.kind] = _kind
