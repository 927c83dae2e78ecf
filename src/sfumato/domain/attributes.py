# SPDX-License-Identifier: Apache-2.0
"""What one column may hold: a finite, public list of cells.

An attribute is public knowledge. It maps every value that a column could hold to one cell, or
says that the record is dropped; a value that the schema does not know is therefore never an
error and never a new key (Korolova et al. 2009, "Releasing search queries and clicks privately",
shows what data-dependent keys give away).

Cells are numbered 0, 1, ...: first the declared values in order, then the cell ``(other)`` if
``outside = "other"``, then the cell ``(missing)`` if ``nulls = "missing"``.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from sfumato.errors import SchemaError, WorkloadError

__all__ = [
    "MISSING",
    "OTHER",
    "Attribute",
    "Boolean",
    "Category",
    "Comparison",
    "DateTime",
    "Integer",
    "Level",
    "Nulls",
    "Numeric",
    "Outside",
    "Value",
]

Value = str | int | float | bool | date | datetime
Outside = Literal["drop", "other", "clamp"]
Nulls = Literal["drop", "missing"]
Comparison = Literal["=", "!=", "<", "<=", ">", ">="]

OTHER = "(other)"
MISSING = "(missing)"


@dataclass(frozen=True, slots=True)
class Level:
    """A public map from the values of an attribute to named groups.

    ``group_of[c]`` is the group of declared value ``c``, or -1 when it belongs to none.
    """

    name: str
    groups: tuple[str, ...]
    group_of: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(set(self.groups)) != len(self.groups):
            raise SchemaError(f"level {self.name!r} names a group twice: {list(self.groups)}")
        if any(not -1 <= g < len(self.groups) for g in self.group_of):
            raise SchemaError(f"level {self.name!r} maps a value to a group that is not listed")


@dataclass(frozen=True)
class Attribute:
    """One column of a record: its cells, and where every other value goes."""

    name: str
    outside: Outside = field(default="drop", kw_only=True)
    nulls: Nulls = field(default="drop", kw_only=True)
    levels: tuple[Level, ...] = field(default=(), kw_only=True)

    kind: ClassVar[str] = ""
    is_ordered: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise SchemaError(
                f"an attribute needs a name of at least one letter, got {self.name!r}"
            )
        allowed = ("drop", "other", "clamp") if self.is_ordered else ("drop", "other")
        if self.outside not in allowed:
            raise SchemaError(
                f"attribute {self.name!r}: outside = {self.outside!r} is not one of "
                f"{', '.join(map(repr, allowed))}"
            )
        if self.nulls not in ("drop", "missing"):
            raise SchemaError(
                f"attribute {self.name!r}: nulls = {self.nulls!r} is not one of 'drop', 'missing'"
            )
        for level in self.levels:
            if len(level.group_of) != self.value_count:
                raise SchemaError(
                    f"attribute {self.name!r}: level {level.name!r} maps {len(level.group_of)} "
                    f"values, the attribute has {self.value_count}"
                )
        if len({level.name for level in self.levels}) != len(self.levels):
            raise SchemaError(f"attribute {self.name!r} has two levels of one name")

    @property
    def value_count(self) -> int:
        """Number of declared values (or bins), without the cells for other and missing."""
        raise NotImplementedError

    def value_label(self, code: int) -> Value:
        """The label of declared value ``code``."""
        raise NotImplementedError

    def select(self, comparison: Comparison, constant: Value) -> npt.NDArray[np.bool_]:
        """Indicator over the cells of the values for which ``value comparison constant`` holds.

        The cell ``(missing)`` satisfies nothing; ``(other)`` satisfies only ``!=``.
        """
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.value_count + (self.outside == "other") + (self.nulls == "missing")

    @property
    def other_code(self) -> int | None:
        """The cell of values outside the declared ones, if the schema asks for one."""
        return self.value_count if self.outside == "other" else None

    @property
    def missing_code(self) -> int | None:
        """The cell of nulls, if the schema asks for one."""
        return self.size - 1 if self.nulls == "missing" else None

    def label(self, code: int) -> Value:
        """The label of cell ``code``."""
        if not 0 <= code < self.size:
            raise WorkloadError(f"attribute {self.name!r} has no cell {code}; it has {self.size}")
        if code < self.value_count:
            return self.value_label(code)
        return OTHER if code == self.other_code else MISSING

    @cached_property
    def labels(self) -> tuple[Value, ...]:
        """The labels of all cells, in order."""
        return tuple(self.label(c) for c in range(self.size))

    def level(self, name: str) -> Level:
        """The level of this name."""
        for level in self.levels:
            if level.name == name:
                return level
        known = ", ".join(repr(v.name) for v in self.levels) or "none"
        raise WorkloadError(f"attribute {self.name!r} has no level {name!r}; it has: {known}")

    def numbers(self) -> npt.NDArray[np.float64]:
        """One number per cell for sums and means (the middle of a bin); 0 for other and missing."""
        raise WorkloadError(
            f"attribute {self.name!r} is a {self.kind}; sums and means need an integer, numeric "
            "or boolean attribute"
        )

    def _cells(self, values: npt.NDArray[np.bool_], other: bool = False) -> npt.NDArray[np.bool_]:
        extra = [other] * (self.outside == "other") + [False] * (self.nulls == "missing")
        return np.concatenate([values, np.array(extra, dtype=np.bool_)])

    def _interval(self, low: int, high: int) -> npt.NDArray[np.bool_]:
        codes = np.arange(self.value_count)
        return self._cells((codes >= low) & (codes < high))

    def _compare_cut(self, comparison: Comparison, cut: int) -> npt.NDArray[np.bool_]:
        """Cells below ``cut`` for < and <=, from ``cut`` on for > and >=."""
        below = comparison in ("<", "<=")
        return self._interval(0, cut) if below else self._interval(cut, self.value_count)


@dataclass(frozen=True)
class Category(Attribute):
    """A listed set of values, in the order given.

    >>> Category("sex", ("Female", "Male")).size
    2
    """

    values: tuple[str | int | bool, ...]

    kind: ClassVar[str] = "category"
    is_ordered: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.values:
            raise SchemaError(f"attribute {self.name!r} lists no values; give at least one")
        if len(set(self.values)) != len(self.values):
            twice = next(v for v in self.values if self.values.count(v) > 1)
            raise SchemaError(f"attribute {self.name!r} lists the value {twice!r} twice")
        super().__post_init__()

    @property
    def value_count(self) -> int:
        """Number of listed values."""
        return len(self.values)

    def value_label(self, code: int) -> Value:
        """The listed value itself."""
        return self.values[code]

    def select(self, comparison: Comparison, constant: Value) -> npt.NDArray[np.bool_]:
        """Equality only: the values have no order."""
        if comparison not in ("=", "!="):
            raise WorkloadError(
                f"attribute {self.name!r} is a category and has no order, so {comparison!r} cannot "
                "be asked; use =, !=, IN or list its values"
            )
        if constant not in self.values:
            raise WorkloadError(
                f"attribute {self.name!r} has no value {constant!r}; its values are "
                f"{_listing(self.values)}"
            )
        same = np.array([v == constant for v in self.values], dtype=np.bool_)
        return self._cells(same) if comparison == "=" else self._cells(~same, other=True)


@dataclass(frozen=True)
class Boolean(Attribute):
    """False, then true."""

    kind: ClassVar[str] = "boolean"
    is_ordered: ClassVar[bool] = False

    @property
    def value_count(self) -> int:
        """Always two."""
        return 2

    def value_label(self, code: int) -> Value:
        """False or true."""
        return bool(code)

    def numbers(self) -> npt.NDArray[np.float64]:
        """0 and 1."""
        return np.array([0.0, 1.0] + [0.0] * (self.size - 2))

    def select(self, comparison: Comparison, constant: Value) -> npt.NDArray[np.bool_]:
        """Equality only."""
        if comparison not in ("=", "!=") or constant not in (True, False):
            raise WorkloadError(
                f"attribute {self.name!r} is a boolean: it can be compared with = or != to true or "
                f"false, not {comparison} {constant!r}"
            )
        same = np.array([not constant, bool(constant)])
        return self._cells(same) if comparison == "=" else self._cells(~same, other=True)


@dataclass(frozen=True)
class Integer(Attribute):
    """The integers from ``min`` to ``max`` (both included), in bins of ``width``.

    >>> Integer("age", 17, 90).size
    74
    """

    min: int
    max: int
    width: int = 1

    kind: ClassVar[str] = "integer"

    def __post_init__(self) -> None:
        if self.max < self.min:
            raise SchemaError(
                f"attribute {self.name!r}: max = {self.max} is below min = {self.min}"
            )
        if self.width < 1:
            raise SchemaError(f"attribute {self.name!r}: width = {self.width} must be at least 1")
        super().__post_init__()

    @property
    def value_count(self) -> int:
        """Number of bins; the last may be narrower."""
        return (self.max - self.min) // self.width + 1

    def value_label(self, code: int) -> Value:
        """The integer, or ``low-high`` for bins wider than 1."""
        low, high = self._bounds(code)
        return low if self.width == 1 else f"{low}-{high}"

    def _bounds(self, code: int) -> tuple[int, int]:
        low = self.min + code * self.width
        return low, min(low + self.width - 1, self.max)

    def numbers(self) -> npt.NDArray[np.float64]:
        """The integer, or the middle of its bin."""
        low = self.min + self.width * np.arange(self.value_count, dtype=np.float64)
        high = np.minimum(low + self.width - 1, self.max)
        return np.concatenate([(low + high) / 2, np.zeros(self.size - self.value_count)])

    def select(self, comparison: Comparison, constant: Value) -> npt.NDArray[np.bool_]:
        """Comparisons with a number; bins wider than 1 must not be cut."""
        number = _number(self, constant)
        if comparison in ("=", "!="):
            return self._equal(comparison, number)
        # v < c iff v < ceil(c); v <= c iff v < floor(c) + 1, for integers v.
        first = math.ceil(number) if comparison in ("<", ">=") else math.floor(number) + 1
        first = min(max(first, self.min), self.max + 1)
        cut, rest = divmod(first - self.min, self.width)
        if first > self.max:
            cut, rest = self.value_count, 0
        if rest:
            raise WorkloadError(
                f"attribute {self.name!r} has bins of width {self.width} from {self.min}, so "
                f"{comparison} {constant!r} would cut the bin {self.value_label(cut)}; compare at "
                "the start of a bin"
            )
        return self._compare_cut(comparison, cut)

    def _equal(self, comparison: Comparison, number: float) -> npt.NDArray[np.bool_]:
        if self.width != 1:
            raise WorkloadError(
                f"attribute {self.name!r} has bins of width {self.width}; ask for a range of whole "
                f"bins instead of {comparison} {number:g}"
            )
        same = np.zeros(self.value_count, dtype=np.bool_)
        if number == int(number) and self.min <= number <= self.max:
            same[int(number) - self.min] = True
        return self._cells(same) if comparison == "=" else self._cells(~same, other=True)


@dataclass(frozen=True)
class Numeric(Attribute):
    """Real numbers in bins ``[e0, e1), [e1, e2), ..., [e_last-1, e_last]`` between given edges."""

    edges: tuple[float, ...]

    kind: ClassVar[str] = "numeric"

    def __post_init__(self) -> None:
        if len(self.edges) < 2:
            raise SchemaError(f"attribute {self.name!r} needs at least two edges")
        if not all(math.isfinite(e) for e in self.edges):
            raise SchemaError(
                f"attribute {self.name!r}: edges must be finite numbers; use outside = 'clamp' for "
                "open ends"
            )
        for a, b in zip(self.edges, self.edges[1:], strict=False):
            if not a < b:
                raise SchemaError(
                    f"attribute {self.name!r}: edges must rise, but {a:g} is followed by {b:g} "
                    "(the bins would overlap)"
                )
        super().__post_init__()

    @property
    def value_count(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    def value_label(self, code: int) -> Value:
        """``[low, high)``."""
        close = "]" if code == self.value_count - 1 else ")"
        return f"[{self.edges[code]:g}, {self.edges[code + 1]:g}{close}"

    def numbers(self) -> npt.NDArray[np.float64]:
        """The middle of each bin."""
        e = np.array(self.edges)
        return np.concatenate([(e[:-1] + e[1:]) / 2, np.zeros(self.size - self.value_count)])

    def select(self, comparison: Comparison, constant: Value) -> npt.NDArray[np.bool_]:
        """``<`` and ``>=`` at an edge; the other comparisons would cut a bin."""
        number = _number(self, constant)
        beyond = number < self.edges[0] or number > self.edges[-1]
        at_end = number == self.edges[-1] and comparison in ("<=", ">")
        if not beyond and not at_end:
            is_edge = number in self.edges[:-1]
            if comparison not in ("<", ">=") or not is_edge:
                raise WorkloadError(
                    f"attribute {self.name!r} is binned: ask < or >= at one of its edges "
                    f"{_listing(self.edges)}, not {comparison} {constant!r}"
                )
        if comparison in ("=", "!="):
            nothing = np.zeros(self.value_count, dtype=np.bool_)
            return self._cells(nothing) if comparison == "=" else self._cells(~nothing, other=True)
        cut = (
            self.value_count
            if at_end
            else min(bisect.bisect_left(self.edges, number), self.value_count)
        )
        return self._compare_cut(comparison, cut)


_FIXED_STEPS = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


@dataclass(frozen=True)
class DateTime(Attribute):
    """Dates or times from ``start`` (included) to ``end`` (excluded) in equal calendar steps.

    ``step`` is ``minute, hour, day, week, month, quarter`` or ``year``, with an optional count
    (``"15 minute"``). Months, quarters and years start at the day of the month of ``start``,
    which must be the 28th or earlier.
    """

    start: datetime
    end: datetime
    step: str = "day"

    kind: ClassVar[str] = "datetime"

    def __post_init__(self) -> None:
        if self.start.tzinfo is not None or self.end.tzinfo is not None:
            raise SchemaError(f"attribute {self.name!r}: start and end must not carry a time zone")
        if not self.start < self.end:
            raise SchemaError(
                f"attribute {self.name!r}: end = {self.end} must come after start = {self.start}"
            )
        count, unit = self._parsed_step()
        if unit in _MONTHS and self.start.day > 28:
            raise SchemaError(
                f"attribute {self.name!r}: steps of a {unit} must start on day 1 to 28 of a month"
            )
        if count < 1:
            raise SchemaError(f"attribute {self.name!r}: step = {self.step!r} must be positive")
        super().__post_init__()

    def _parsed_step(self) -> tuple[int, str]:
        words = self.step.split()
        unit = words[-1].removesuffix("s") if words else ""
        count = words[0] if len(words) == 2 else "1"
        if len(words) > 2 or not count.isdigit() or unit not in {**_FIXED_STEPS, **_MONTHS}:
            allowed = ", ".join([*_FIXED_STEPS, *_MONTHS])
            raise SchemaError(
                f"attribute {self.name!r}: step = {self.step!r} is not one of {allowed}, with a "
                "count before it if wanted ('15 minute')"
            )
        return int(count), unit

    @cached_property
    def starts(self) -> tuple[datetime, ...]:
        """The first instant of every bin."""
        count, unit = self._parsed_step()
        if unit in _FIXED_STEPS:
            step = _FIXED_STEPS[unit] * count
            bins = -((self.start - self.end) // step)
            return tuple(self.start + i * step for i in range(bins))
        out, moment, i = [], self.start, 0
        while moment < self.end:
            out.append(moment)
            i += 1
            months = self.start.month - 1 + i * count * _MONTHS[unit]
            moment = self.start.replace(year=self.start.year + months // 12, month=months % 12 + 1)
        return tuple(out)

    @property
    def value_count(self) -> int:
        """Number of steps; the last may be cut by ``end``."""
        return len(self.starts)

    def value_label(self, code: int) -> Value:
        """The first instant of the bin, as a date when every bin starts at midnight."""
        start = self.starts[code]
        return start.date() if self._whole_days else start

    @cached_property
    def _whole_days(self) -> bool:
        _, unit = self._parsed_step()
        at_midnight = self.start.time() == datetime.min.time()
        return at_midnight and unit not in ("minute", "hour")

    def select(self, comparison: Comparison, constant: Value) -> npt.NDArray[np.bool_]:
        """``<`` and ``>=`` at the start of a bin; ``=`` and ``!=`` where a bin is one day."""
        moment = _moment(self, constant)
        if comparison in ("=", "!=") and self._whole_days and self._parsed_step() == (1, "day"):
            same = np.array([s == moment for s in self.starts], dtype=np.bool_)
            return self._cells(same) if comparison == "=" else self._cells(~same, other=True)
        if self._whole_days and comparison in ("<=", ">") and not isinstance(constant, datetime):
            # a plain date means the whole day
            moment, comparison = moment + timedelta(days=1), "<" if comparison == "<=" else ">="
        inside = self.start <= moment < self.end
        if comparison not in ("<", ">=") or (inside and moment not in self.starts):
            raise WorkloadError(
                f"attribute {self.name!r} has steps of one {self.step} from {self.start}, so "
                f"{comparison} {constant} would cut one; ask < or >= at the start of a step"
            )
        return self._compare_cut(comparison, bisect.bisect_left(self.starts, moment))


def _listing(values: Sequence[object], most: int = 12) -> str:
    shown = ", ".join(repr(v) for v in values[:most])
    return shown if len(values) <= most else f"{shown}, ... ({len(values)} in all)"


def _number(attribute: Attribute, constant: Value) -> float:
    if isinstance(constant, bool) or not isinstance(constant, int | float):
        raise WorkloadError(
            f"attribute {attribute.name!r} is {attribute.kind}: compare it with a number, "
            f"not {constant!r}"
        )
    if not math.isfinite(constant):
        raise WorkloadError(f"attribute {attribute.name!r}: {constant!r} is not a finite number")
    return constant


def _moment(attribute: Attribute, constant: Value) -> datetime:
    if isinstance(constant, datetime):
        return constant
    if isinstance(constant, date):
        return datetime(constant.year, constant.month, constant.day)
    try:
        return datetime.fromisoformat(str(constant))
    except ValueError:
        raise WorkloadError(
            f"attribute {attribute.name!r} is a date or time: compare it with one such as "
            f"'2024-01-31', not {constant!r}"
        ) from None
