# SPDX-License-Identifier: Apache-2.0
"""The attributes of a domain: what one column may hold, as a finite, public list of cells.

`Attribute` is what all kinds have in common; `Category` and `Boolean` list values without an order,
`Integer` and `Numeric` have ranges of numbers in bins, `DateTime` has steps of the calendar.

An attribute is public knowledge. It maps every value that a column could hold to one cell, or
says that the record is dropped; a value that the schema does not know is therefore never an
error and never a new key (Korolova et al. 2009, "Releasing search queries and clicks privately",
shows what data-dependent keys give away).

Cells are numbered 0, 1, ...: first the declared values in order, then the cell ``(other)`` if
``outside = "other"``, then the cell ``(missing)`` if ``nulls = "missing"``, then the cell
``(unparsed)`` of texts that stand for no value if ``unparsed = "cell"``. With ``"clamp"`` and
``"first"`` other values and nulls count as declared ones. Nothing here lists the cells unless it
is asked to: an attribute of 10^18 values is legal.

Every fault of an attribute is worded ``attribute 'NAME': KEY ...``, with KEY the key of the
schema file that is to blame, so that ``schema`` can say on which line it stands.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from functools import cached_property
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain_limits import LIMITS
from sfumato.domain.time_zones import check_zone
from sfumato.errors import SchemaError, TooLarge, WorkloadError
from sfumato.text import did_you_mean, listing, shown

if TYPE_CHECKING:
    from fractions import Fraction

    from sfumato.domain.discovery import OpenCategory, OpenDateTime, OpenInteger, OpenNumeric

__all__ = [
    "DISCOVER",
    "DURATIONS",
    "MISSING",
    "OPEN_KINDS",
    "OTHER",
    "UNPARSED",
    "Attribute",
    "Boolean",
    "Category",
    "CellRange",
    "Comparison",
    "DateTime",
    "Duration",
    "Integer",
    "Level",
    "Nulls",
    "Numeric",
    "Outside",
    "Unparsed",
    "Value",
    "first_fall",
    "first_repeat",
    "is_text",
    "short_number",
    "whole_number",
]

Value = str | int | float | bool | date | datetime
Outside = Literal["drop", "other", "clamp", "first"]
Nulls = Literal["drop", "missing", "first"]
Unparsed = Literal["null", "other", "drop", "cell"]
Duration = Literal["microsecond", "millisecond", "second", "minute", "hour", "day", "week"]
Comparison = Literal["=", "!=", "<", "<=", ">", ">="]

OTHER: Final = "(other)"
DURATIONS: Final[dict[str, int]] = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
"""Microseconds of the units that durations are counted in."""
MISSING: Final = "(missing)"
UNPARSED: Final = "(unparsed)"

DISCOVER: Final = "discover"
"""The word for what is discovered in the data, for a price, in place of being declared."""

OPEN_KINDS: Final[dict[str, Callable[..., Any]]] = {}
"""By kind, what is still to be discovered of an attribute; ``discovery``, which is imported with
this package, says so."""

_COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Level:
    """A public map from the values of an attribute to named groups.

    ``group_of[c]`` is the group of declared value ``c``, or -1 when it belongs to none.

    Args:
        name: The name of the level.
        groups: The names of its groups.
        group_of: The number of the group of every declared value, -1 for none.

    Raises:
        SchemaError: A number is not that of a group.

    >>> import sfumato as sf
    >>> sf.Level("coast", ("yes", "no"), (0, 1, 0)).group_of
    (0, 1, 0)
    """

    name: str
    groups: tuple[str, ...]
    group_of: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        if not is_text(self.name):
            raise SchemaError(f"a level needs a name, got {shown(self.name)}")
        if not self.groups:
            raise SchemaError(f"level {self.name!r} lists no groups; give at least one")
        for group in self.groups:
            if not is_text(group):
                raise SchemaError(f"level {self.name!r}: a group needs a name, got {shown(group)}")
        if len(set(self.groups)) != len(self.groups):
            raise SchemaError(f"level {self.name!r} names a group twice: {listing(self.groups)}")
        try:
            object.__setattr__(self, "group_of", tuple(map(operator.index, self.group_of)))
        except TypeError:
            raise SchemaError(f"level {self.name!r}: group_of must hold whole numbers") from None
        if any(not -1 <= g < len(self.groups) for g in self.group_of):
            raise SchemaError(
                f"level {self.name!r} maps a value to a group that is not listed; groups are "
                f"numbered 0 to {len(self.groups) - 1}, -1 is none"
            )


@dataclass(frozen=True, slots=True)
class CellRange:
    """The values that a declared cell holds, from ``low`` to ``high``; equal where it is one.

    ``is_open`` says that the cell holds values up to ``high``, which is not among them.
    """

    low: Value
    high: Value
    is_open: bool = False


@dataclass(frozen=True)
class Attribute(ABC):
    """One column of a record: its cells, and where every other value goes."""

    name: str
    outside: Outside = field(default="drop", kw_only=True)
    nulls: Nulls = field(default="drop", kw_only=True)
    levels: tuple[Level, ...] = field(default=(), kw_only=True)
    from_column: str | None = field(default=None, kw_only=True)
    unparsed: Unparsed | None = field(default=None, kw_only=True)

    kind: ClassVar[str]
    is_ordered: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_text(self.name):
            raise SchemaError(
                f"an attribute needs a name of at least one letter, got {shown(self.name)}"
            )
        allowed = ("drop", "other", "clamp" if self.is_ordered else "first")
        if self.outside not in allowed:
            raise self._fault(
                f"outside = {shown(self.outside)} is not one of {', '.join(map(repr, allowed))}"
                + ("" if self.is_ordered else f", the rules for a {self.kind}")
            )
        if self.nulls not in ("drop", "missing", "first"):
            raise self._fault(
                f"nulls = {shown(self.nulls)} is not one of 'drop', 'missing', 'first'"
            )
        if self.unparsed not in (None, "null", "other", "drop", "cell"):
            raise self._fault(
                f"unparsed = {shown(self.unparsed)} is not one of 'null', 'other', 'drop', 'cell'"
            )
        if self.from_column is not None and not is_text(self.from_column):
            raise self._fault(f"column = {shown(self.from_column)} is no name of a column")
        if self.from_column == self.name:  # equal meaning, equal form
            object.__setattr__(self, "from_column", None)
        object.__setattr__(self, "levels", tuple(self.levels))
        for level in self.levels:
            if len(level.group_of) != self.value_count:
                raise self._fault(
                    f"levels: {level.name!r} maps {len(level.group_of)} values, the attribute has "
                    f"{self.value_count}"
                )
        if len({level.name for level in self.levels}) != len(self.levels):
            raise self._fault("levels: two of them have one name")

    @property
    @abstractmethod
    def value_count(self) -> int:
        """Number of declared values (or bins), without the cells for other and missing."""

    @abstractmethod
    def value_label(self, code: int) -> Value:
        """The label of declared value ``code``.

        Args:
            code: The number of a declared value, from 0.

        Returns:
            What the value is called in answers.
        """

    def cell_range(self, code: int) -> CellRange:
        """The values that declared value (or bin) ``code`` stands for.

        Args:
            code: The number of a declared value, from 0.

        Returns:
            The value itself, or the ends of its bin.
        """
        value = self.value_label(code)
        return CellRange(value, value)

    @abstractmethod
    def _codes_where(self, comparison: Comparison, constant: Value) -> range:
        """The declared values for which the comparison holds; for ``!=``, those where it fails."""

    @property
    def column(self) -> str:
        """The column of a table that its cells are made from: that of its name unless declared."""
        return self.from_column or self.name

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that its cells are made from."""
        return (self.column,)

    @property
    def size(self) -> int:
        """Number of cells."""
        has_cells = (self._has_other, self.nulls == "missing", self.unparsed == "cell")
        return self.value_count + sum(has_cells)

    @property
    def _has_other(self) -> bool:
        return "other" in (self.outside, self.unparsed)

    @property
    def other_code(self) -> int | None:
        """The cell of values outside the declared ones, if the schema asks for one."""
        return self.value_count if self._has_other else None

    @property
    def missing_code(self) -> int | None:
        """The cell of nulls, if the schema asks for one."""
        return self.value_count + self._has_other if self.nulls == "missing" else None

    @property
    def unparsed_code(self) -> int | None:
        """The cell of texts that stand for no value, if the schema asks for one."""
        return self.size - 1 if self.unparsed == "cell" else None

    @property
    def outside_cell(self) -> int | None:
        """The cell of values that are in no range; None where they are dropped or clamped."""
        if self.outside == "first":
            return 0
        return self.other_code if self.outside == "other" else None

    @property
    def unparsed_cell(self) -> int | None:
        """The cell of texts that stand for no value where a rule says so; None: dropped."""
        cells = {"null": self.null_cell, "other": self.other_code, "cell": self.unparsed_code}
        return cells.get(self.unparsed or "drop")

    @property
    def null_cell(self) -> int | None:
        """The cell of nulls, and of texts that stand for no value; None where they are dropped."""
        return 0 if self.nulls == "first" else self.missing_code

    @property
    def keeps_every_record(self) -> bool:
        """Whether neither nulls nor other values nor texts that are none ever drop a record."""
        return "drop" not in (self.outside, self.nulls, self.unparsed)

    def all_inside(self) -> Self:
        """The same attribute, with a declared value for every record that it would drop.

        Returns:
            The attribute with values outside in the nearest bin, or, of a category, counted as the
            first value, and nulls counted as the first value.

        >>> import sfumato as sf
        >>> sf.Integer("age", 0, 99).all_inside().outside
        'clamp'
        """
        placed: Outside = "clamp" if self.is_ordered else "first"
        return replace(
            self,
            outside=placed if self.outside == "drop" else self.outside,
            nulls="first" if self.nulls == "drop" else self.nulls,
            unparsed=None if self.unparsed == "drop" else self.unparsed,
        )

    def label(self, code: int) -> Value:
        """The label of cell ``code``.

        Args:
            code: The number of a cell, from 0.

        Returns:
            What the cell is called in answers.

        Raises:
            WorkloadError: There is no such cell.
        """
        if not 0 <= code < self.size:
            raise WorkloadError(
                f"attribute {self.name!r} has no cell {shown(code)}; it has {self.size}, "
                "numbered from 0"
            )
        if code < self.value_count:
            return self.value_label(code)
        if code == self.unparsed_code:
            return UNPARSED
        return OTHER if code == self.other_code else MISSING

    @cached_property
    def labels(self) -> tuple[Value, ...]:
        """The labels of all cells, in order."""
        self._require_listable()
        return tuple(self.label(c) for c in range(self.size))

    def level(self, name: str) -> Level:
        """The level of this name.

        Args:
            name: The name of a level.

        Returns:
            The level.

        Raises:
            WorkloadError: There is no such level.
        """
        for level in self.levels:
            if level.name == name:
                return level
        names = [level.name for level in self.levels]
        raise WorkloadError(
            f"attribute {self.name!r} has no level {shown(name)}; it has: "
            f"{listing(names) or 'none'}{did_you_mean(name, names)}"
        )

    def select(self, comparison: Comparison, constant: Value) -> npt.NDArray[np.bool_]:
        """Indicator over the cells of the values for which ``value comparison constant`` holds.

        The cells ``(missing)`` and ``(unparsed)`` satisfy nothing; ``(other)`` satisfies only
        ``!=``, because it holds none of the declared values and its own are not known.

        Args:
            comparison: ``"=", "!=", "<", "<=", ">"`` or ``">="``.
            constant: What values are compared with.

        Returns:
            One truth value per cell.

        Raises:
            WorkloadError: The comparison does not follow the edges of bins, or the constant is of
                another kind.
        """
        if comparison not in _COMPARISONS:
            raise WorkloadError(
                f"{shown(comparison)} is not a comparison; allowed are {', '.join(_COMPARISONS)}"
            )
        codes = self._codes_where(comparison, constant)
        self._require_listable()
        negated = comparison == "!="
        cells = np.zeros(self.size, dtype=np.bool_)
        cells[: self.value_count] = negated
        cells[codes.start : codes.stop] = not negated
        if self.other_code is not None:
            cells[self.other_code] = negated
        return cells

    def select_any(self, constants: Sequence[Value]) -> npt.NDArray[np.bool_]:
        """Indicator over the cells of the values that equal one of the constants.

        Args:
            constants: What values are compared with.

        Returns:
            One truth value per cell.

        Raises:
            WorkloadError: As in `select`.
        """
        self._require_listable()
        cells = np.zeros(self.size, dtype=np.bool_)
        for constant in constants:
            codes = self._codes_where("=", constant)
            cells[codes.start : codes.stop] = True
        return cells

    def numbers(self) -> npt.NDArray[np.float64]:
        """One number per cell for sums and means (the middle of a bin); 0 for other and missing.

        Returns:
            One number per cell.

        Raises:
            WorkloadError: The values are no numbers.
        """
        raise WorkloadError(
            f"attribute {self.name!r} is a {self.kind}; sums and means need an integer, numeric "
            "or boolean attribute"
        )

    def _with_no_number(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The numbers of the declared values, then 0 for other and missing."""
        return np.concatenate([values, np.zeros(self.size - self.value_count)])

    def _codes_around(self, comparison: Comparison, cut: int) -> range:
        """Values before ``cut`` for < and <=, from ``cut`` on for > and >=."""
        return range(cut) if comparison in ("<", "<=") else range(cut, self.value_count)

    def _require_listable(self) -> None:
        if self.size > LIMITS.cells_listed:
            raise TooLarge(
                f"attribute {self.name!r} has {self.size:,} cells; at most "
                f"{LIMITS.cells_listed:,} can be listed one by one: give it wider bins or a level "
                "with fewer groups"
            )

    def _check_duration(self, duration: object) -> None:
        if duration is not None and duration not in DURATIONS:
            raise self._fault(
                f"duration = {shown(duration)} is not one of {', '.join(map(repr, DURATIONS))}"
                f"{did_you_mean(duration, DURATIONS)}"
            )

    def _fault(self, message: str) -> SchemaError:
        return SchemaError(f"attribute {self.name!r}: {message}")


def is_text(value: object) -> bool:
    """Whether it is a non-empty text that files and databases can hold (no NUL character)."""
    if not isinstance(value, str) or not value or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _entries(name: str, key: str, value: object) -> tuple[object, ...]:
    """The entries of a list, tuple or array; ``key`` is what messages call it."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray):
        raise SchemaError(f"attribute {name!r}: {key} must be a list, got {shown(value)}")
    return tuple(value)


def whole_number(name: str, key: str, value: object) -> int:
    """The value as a Python integer of at most 38 digits, the most that engines can hold."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool | np.bool_):
        raise SchemaError(f"attribute {name!r}: {key} = {shown(value)} is not a whole number")
    if abs(number) >= 10**38:
        raise SchemaError(
            f"attribute {name!r}: {key} is a whole number of more than 38 digits; at most 38 are "
            "allowed"
        )
    return number


# Listed values without an order


@dataclass(frozen=True)
class Category(Attribute):
    """A listed set of values, all texts or all whole numbers, in the order given.

    Args:
        name: The name of the attribute, and of its column.
        values: The values, all texts or all whole numbers.
        outside: What becomes of other values: ``"drop"`` the record, count it as ``"other"``,
            or as the ``"first"`` value.
        nulls: What becomes of missing values: ``"drop"`` the record, count it as ``"missing"``, or
            as the ``"first"`` value.
        levels: Public groups of the values.
        from_column: The column, if it is not that of the name.
        unparsed: What becomes of texts of a file without types that stand for no value: ``"null"``,
            ``"other"``, ``"drop"`` the record, or a ``"cell"`` of their own.

    Raises:
        SchemaError: A value comes twice, or an argument is none of these.

    >>> import sfumato as sf
    >>> sf.Category("sex", ("Female", "Male")).size
    2
    """

    values: tuple[str | int, ...]

    kind: ClassVar[str] = "category"
    is_ordered: ClassVar[bool] = False

    @classmethod
    def discover(
        cls,
        columns: str | Sequence[str],
        *,
        outside: Outside = "other",
        nulls: Nulls = "missing",
        most: int = LIMITS.keys_published,
    ) -> OpenCategory:
        """The values of a column that many people share, to be discovered for a price.

        Args:
            columns: The name of the column; of several, their tuples are discovered.
            outside: What becomes of values that are not published: ``"other"`` or ``"drop"``.
            nulls: What becomes of missing values: ``"missing"`` or ``"drop"``.
            most: The most keys that are published: those with the largest noisy counts.

        Returns:
            What `sf.OpenDomain` and `sf.plan_discovery` take.

        Raises:
            SchemaError: An argument is none of these.

        >>> import sfumato as sf
        >>> sf.Category.discover("city").columns
        ('city',)
        """
        names = (columns,) if isinstance(columns, str) else columns
        made: OpenCategory = OPEN_KINDS["category"](
            tuple(names), outside=outside, nulls=nulls, most=most
        )
        return made

    def __post_init__(self) -> None:
        values = _entries(self.name, "values", self.values)
        object.__setattr__(self, "values", tuple(self._checked(v) for v in values))
        if not self.values:
            raise self._fault("values lists nothing; give at least one value")
        if len({isinstance(v, str) for v in self.values}) > 1:
            raise self._fault(
                "values mixes texts and whole numbers; a column holds one or the other"
            )
        at = first_repeat(self.values)
        if at is not None:
            raise self._fault(f"values lists {shown(self.values[at])} twice")
        super().__post_init__()
        extra = [OTHER] * (self.outside == "other") + [MISSING] * (self.nulls == "missing")
        taken = [label for label in extra if label in self.values]
        if taken:
            raise self._fault(
                f"values lists {taken[0]!r}, which is the label of the extra cell; leave it out or "
                "choose another rule for outside and nulls"
            )

    def _checked(self, value: object) -> str | int:
        if isinstance(value, bool | np.bool_):
            raise self._fault('values holds true or false; use kind = "boolean" for such a column')
        if isinstance(value, str):
            if value and not is_text(value):
                raise self._fault(f"values holds {value!r}, which is no text that databases hold")
            return str(value)
        return whole_number(self.name, "values", value)

    @property
    def value_count(self) -> int:
        """Number of listed values."""
        return len(self.values)

    def value_label(self, code: int) -> Value:
        """The listed value itself."""
        return self.values[code]

    @cached_property
    def _code_of(self) -> dict[str | int, int]:
        return {value: code for code, value in enumerate(self.values)}

    def code(self, value: object) -> int | None:
        """The cell of a listed value, or None.

        Args:
            value: Any value.

        Returns:
            The number of its cell; None if it is not listed.

        >>> import sfumato as sf
        >>> sf.Category("size", (1, 2)).code(2), sf.Category("size", (1, 2)).code(True)
        (1, None)
        """
        # True == 1 in Python, but a column of whole numbers holds no truth values.
        if isinstance(value, bool | np.bool_) or not isinstance(value, Hashable):
            return None
        return self._code_of.get(value)  # type: ignore[call-overload, no-any-return]

    def _codes_where(self, comparison: Comparison, constant: Value) -> range:
        if comparison not in ("=", "!="):
            raise WorkloadError(
                f"attribute {self.name!r} is a category and has no order, so {comparison!r} cannot "
                "be asked; use =, !=, IN or list its values"
            )
        code = self.code(constant)
        if code is None:
            raise WorkloadError(
                f"attribute {self.name!r} has no value {shown(constant)}; its values are "
                f"{listing(self.values)}{did_you_mean(constant, self.values)}"
            )
        return range(code, code + 1)


@dataclass(frozen=True)
class Boolean(Attribute):
    """Yes or no: false is the first cell, true the second.

    Args:
        name: The name of the attribute, and of its column.
        outside: What becomes of other values: ``"drop"`` the record, count it as ``"other"``,
            or as the ``"first"`` value.
        nulls: What becomes of missing values: ``"drop"`` the record, count it as ``"missing"``, or
            as the ``"first"`` value.
        levels: Public groups of the two.
        from_column: The column, if it is not that of the name.
        unparsed: What becomes of texts of a file without types that stand for no value: ``"null"``,
            ``"other"``, ``"drop"`` the record, or a ``"cell"`` of their own.

    Raises:
        SchemaError: An argument is none of these.

    >>> import sfumato as sf
    >>> sf.Boolean("employed", nulls="missing").labels
    (False, True, '(missing)')
    """

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
        return self._with_no_number(np.array([0.0, 1.0]))

    def _codes_where(self, comparison: Comparison, constant: Value) -> range:
        if comparison not in ("=", "!=") or constant not in (True, False):
            raise WorkloadError(
                f"attribute {self.name!r} is a boolean: it can be compared with = or != to true or "
                f"false, not {comparison} {shown(constant)}"
            )
        code = int(constant)  # type: ignore[arg-type]
        return range(code, code + 1)


def first_repeat(values: Sequence[object]) -> int | None:
    """The position of the first value that was listed before.

    >>> first_repeat(["a", "b", "a"])
    2
    """
    seen: set[object] = set()
    for position, value in enumerate(values):
        if value in seen:
            return position
        seen.add(value)
    return None


# Numbers


@dataclass(frozen=True)
class Integer(Attribute):
    """The integers from ``min`` to ``max`` (both included), in bins of ``width``.

    Args:
        name: The name of the attribute, and of its column.
        min: The least integer.
        max: The greatest integer.
        width: How many integers a bin has.
        outside: What becomes of other values: ``"drop"`` the record, ``"clamp"`` it into the range,
            count it as ``"other"``.
        nulls: What becomes of missing values: ``"drop"`` the record, count it as ``"missing"``, or
            as the ``"first"`` value.
        levels: Public groups of the values.
        from_column: The column, if it is not that of the name.
        unparsed: What becomes of texts of a file without types that stand for no value: ``"null"``,
            ``"other"``, ``"drop"`` the record, or a ``"cell"`` of their own.
        duration: The unit that a column of durations is counted in, such as ``"hour"``.

    Raises:
        SchemaError: The range is empty, or an argument is none of these.

    >>> import sfumato as sf
    >>> sf.Integer("age", 17, 90).size
    74
    >>> sf.Integer("age", 0, 99, 10).label(3)
    '30-39'
    """

    min: int
    max: int
    width: int = 1
    duration: Duration | None = field(default=None, kw_only=True)

    kind: ClassVar[str] = "integer"

    @classmethod
    def discover(
        cls,
        column: str,
        *,
        min: int | None = None,
        max: int | None = None,
        bins: int | None = None,
        outside: Outside = "clamp",
        nulls: Nulls = "missing",
        tails: float | Fraction = 0.05,
    ) -> OpenInteger:
        """The range of a column of whole numbers, to be discovered for a price.

        Args:
            column: The name of the column.
            min: Where the range begins, if that is public knowledge; discovered if None.
            max: Where it ends, likewise; one of the two may be declared.
            bins: About how many bins the range is to have; by a public rule if None.
            outside: What becomes of values beyond: ``"clamp"``, ``"other"`` or ``"drop"``.
            nulls: What becomes of missing values: ``"missing"``, ``"drop"`` or ``"first"``.
            tails: The share of the records that is to lie beyond either end, about.

        Returns:
            What `sf.OpenDomain` and `sf.plan_discovery` take.

        Raises:
            SchemaError: An argument is none of these.

        >>> import sfumato as sf
        >>> sf.Integer.discover("age").columns
        ('age',)
        """
        rules = {"outside": outside, "nulls": nulls, "bins": bins, "tails": tails}
        made: OpenInteger = OPEN_KINDS["integer"]((column,), low=min, high=max, **rules)
        return made

    def __post_init__(self) -> None:
        for key in ("min", "max", "width"):
            object.__setattr__(self, key, whole_number(self.name, key, getattr(self, key)))
        if self.max < self.min:
            raise self._fault(f"max = {self.max} is below min = {self.min}")
        if self.width < 1:
            raise self._fault(f"width = {self.width} must be at least 1")
        self._check_duration(self.duration)
        super().__post_init__()

    @property
    def value_count(self) -> int:
        """Number of bins; the last may be narrower."""
        return (self.max - self.min) // self.width + 1

    def value_label(self, code: int) -> Value:
        """The integer, or ``low-high`` for bins wider than 1."""
        low, high = self.bounds(code)
        if self.width == 1:
            return low
        if low == high:
            return str(low)
        return f"{low}-{high}" if low >= 0 else f"{low} to {high}"

    def bounds(self, code: int) -> tuple[int, int]:
        """The minimum and the maximum integer of bin ``code``.

        Args:
            code: The number of a bin, from 0.

        Returns:
            Its least and its greatest integer.
        """
        low = self.min + code * self.width
        return low, min(low + self.width - 1, self.max)

    def cell_range(self, code: int) -> CellRange:
        """The minimum and the maximum integer of a bin."""
        return CellRange(*self.bounds(code))

    def numbers(self) -> npt.NDArray[np.float64]:
        """The integer, or the middle of its bin."""
        self._require_listable()
        low = self.min + self.width * np.arange(self.value_count, dtype=np.float64)
        high = np.minimum(low + self.width - 1, self.max)
        return self._with_no_number((low + high) / 2)

    def _codes_where(self, comparison: Comparison, constant: Value) -> range:
        number = _number(self, constant)
        if comparison in ("=", "!="):
            return self._codes_equal(comparison, number)
        # v < c iff v < ceil(c); v <= c iff v < floor(c) + 1, for integers v.
        first = math.ceil(number) if comparison in ("<", ">=") else math.floor(number) + 1
        if first > self.max:
            return self._codes_around(comparison, self.value_count)
        cut, rest = divmod(max(first, self.min) - self.min, self.width)
        if rest:
            raise WorkloadError(
                f"attribute {self.name!r} has bins of width {self.width} from {self.min}, so "
                f"{comparison} {shown(constant)} would cut the bin {self.value_label(cut)}; "
                "compare at the start of a bin"
            )
        return self._codes_around(comparison, cut)

    def _codes_equal(self, comparison: Comparison, number: int | float) -> range:
        if number < self.min or number > self.max or number != math.floor(number):
            return range(0)
        code = (int(number) - self.min) // self.width
        low, high = self.bounds(code)
        if low != high:
            raise WorkloadError(
                f"attribute {self.name!r} has bins of width {self.width}, so {comparison} "
                f"{shown(number)} would cut the bin {self.value_label(code)}; ask for a range of "
                "whole bins"
            )
        return range(code, code + 1)


@dataclass(frozen=True)
class Numeric(Attribute):
    """Real numbers in bins ``[e0, e1), [e1, e2), ..., [e_last-1, e_last]`` between given edges.

    Args:
        name: The name of the attribute, and of its column.
        edges: Where bins begin and end, increasing.
        outside: What becomes of other values: ``"drop"`` the record, ``"clamp"`` it into the range,
            count it as ``"other"``.
        nulls: What becomes of missing values: ``"drop"`` the record, count it as ``"missing"``, or
            as the ``"first"`` value.
        levels: Public groups of the bins.
        from_column: The column, if it is not that of the name.
        unparsed: What becomes of texts of a file without types that stand for no value: ``"null"``,
            ``"other"``, ``"drop"`` the record, or a ``"cell"`` of their own.
        duration: The unit that a column of durations is counted in, such as ``"hour"``.

    Raises:
        SchemaError: The edges do not increase, or an argument is none of these.

    >>> import sfumato as sf
    >>> sf.Numeric("income", (0, 1000, 5000)).labels
    ('[0, 1000)', '[1000, 5000]')
    """

    edges: tuple[float, ...]
    duration: Duration | None = field(default=None, kw_only=True)

    kind: ClassVar[str] = "numeric"

    @classmethod
    def discover(
        cls,
        column: str,
        *,
        min: float | None = None,
        max: float | None = None,
        bins: int | None = None,
        outside: Outside = "clamp",
        nulls: Nulls = "missing",
        tails: float | Fraction = 0.05,
    ) -> OpenNumeric:
        """The range of a column of numbers, to be discovered for a price.

        Args:
            column: The name of the column.
            min: Where the range begins, if that is public knowledge; discovered if None.
            max: Where it ends, likewise; one of the two may be declared.
            bins: As in `Integer.discover`.
            outside: As in `Integer.discover`.
            nulls: As in `Integer.discover`.
            tails: As in `Integer.discover`.

        Returns:
            What `sf.OpenDomain` and `sf.plan_discovery` take.

        Raises:
            SchemaError: An argument is none of these.

        >>> import sfumato as sf
        >>> sf.Numeric.discover("income").columns
        ('income',)
        """
        rules = {"outside": outside, "nulls": nulls, "bins": bins, "tails": tails}
        made: OpenNumeric = OPEN_KINDS["numeric"]((column,), low=min, high=max, **rules)
        return made

    def __post_init__(self) -> None:
        edges = _entries(self.name, "edges", self.edges)
        object.__setattr__(self, "edges", tuple(self._edge(e) for e in edges))
        if len(self.edges) < 2:
            raise self._fault("edges needs at least two numbers")
        at = first_fall(self.edges)
        if at is not None:
            before, after = short_number(self.edges[at - 1]), short_number(self.edges[at])
            raise self._fault(
                f"edges must rise, but {before} is followed by {after} (the bins would overlap)"
            )
        self._check_duration(self.duration)
        super().__post_init__()

    def _edge(self, value: object) -> float:
        if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
            raise self._fault(f"edges holds {shown(value)}, which is not a number")
        try:
            edge = float(value) + 0.0  # -0.0 + 0.0 is 0.0: equal edges have one form
        except OverflowError:
            edge = math.inf
        if not math.isfinite(edge):
            raise self._fault("edges must be finite numbers; use outside = 'clamp' for open ends")
        return edge

    @property
    def value_count(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    def value_label(self, code: int) -> Value:
        """``[low, high)``."""
        close = "]" if code == self.value_count - 1 else ")"
        return f"[{short_number(self.edges[code])}, {short_number(self.edges[code + 1])}{close}"

    def cell_range(self, code: int) -> CellRange:
        """The edges of a bin; the last one holds its upper edge."""
        return CellRange(self.edges[code], self.edges[code + 1], code < self.value_count - 1)

    def numbers(self) -> npt.NDArray[np.float64]:
        """The middle of each bin."""
        edges = np.array(self.edges)
        return self._with_no_number(edges[:-1] / 2 + edges[1:] / 2)

    def _codes_where(self, comparison: Comparison, constant: Value) -> range:
        number = _number(self, constant)
        low, high = self.edges[0], self.edges[-1]
        if number < low or number > high:
            if comparison in ("=", "!="):
                return range(0)
            return self._codes_around(comparison, 0 if number < low else self.value_count)
        if number == high and comparison in ("<=", ">"):  # the last bin holds its upper edge
            return self._codes_around(comparison, self.value_count)
        cut = bisect.bisect_left(self.edges, number)
        if comparison in ("<", ">=") and self.edges[cut] == number < high:
            return self._codes_around(comparison, cut)
        raise WorkloadError(
            f"attribute {self.name!r} is binned, so {comparison} {shown(constant)} would cut a "
            f"bin; ask < or >= at one of {listing([_Plain(e) for e in self.edges[:-1]])}, or <= or "
            f"> at the last edge {short_number(high)}"
        )


class _Plain(float):
    """A number that is shown without a needless ``.0``."""

    def __repr__(self) -> str:
        return short_number(self)


def short_number(number: float) -> str:
    """The shortest exact text of a number.

    >>> short_number(99999999.0), short_number(0.1)
    ('99999999', '0.1')
    """
    number = float(number)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def _number(attribute: Attribute, constant: object) -> int | float:
    is_truth = isinstance(constant, bool)
    if isinstance(constant, Integral) and not is_truth:
        return operator.index(constant)
    if not isinstance(constant, float):
        raise WorkloadError(
            f"attribute {attribute.name!r} is {attribute.kind}: compare it with a number, "
            f"not {shown(constant)}"
        )
    if not math.isfinite(constant):
        raise WorkloadError(f"attribute {attribute.name!r}: {constant!r} is not a finite number")
    return float(constant)


def first_fall(edges: Sequence[float]) -> int | None:
    """The position of the first edge that is not above the one before it.

    >>> first_fall([0.0, 1.0, 1.0])
    2
    """
    pairs = itertools.pairwise(edges)
    return next((i + 1 for i, (low, high) in enumerate(pairs) if not low < high), None)


# Dates and times

_MICROSECOND = timedelta(microseconds=1)
_FIXED_STEPS = {
    "minute": timedelta(minutes=1) // _MICROSECOND,
    "hour": timedelta(hours=1) // _MICROSECOND,
    "day": timedelta(days=1) // _MICROSECOND,
    "week": timedelta(weeks=1) // _MICROSECOND,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_CALENDAR: Final[dict[str, Callable[[datetime], str]]] = {
    "year": lambda moment: f"{moment.year:04}",
    "quarter": lambda moment: f"{moment.year:04}-Q{(moment.month + 2) // 3}",
    "month": lambda moment: f"{moment.year:04}-{moment.month:02}",
    "weekday": lambda moment: _WEEKDAYS[moment.weekday()],
}


@dataclass(frozen=True)
class DateTime(Attribute):
    """Dates or times from ``start`` (included) to ``end`` (excluded) in equal calendar steps.

    ``step`` is ``minute, hour, day, week, month, quarter`` or ``year``, with an optional count
    (``"15 minute"``). Months, quarters and years start at the day of the month of ``start``,
    which must be the 28th or earlier. The last step may be cut short by ``end``.

    Args:
        name: The name of the attribute, and of its column.
        start: The first instant.
        end: The first instant after the last.
        step: How long a cell lasts.
        outside: What becomes of other instants: ``"drop"`` the record, ``"clamp"`` it into the
            range, count it as ``"other"``.
        nulls: What becomes of missing values: ``"drop"`` the record, count it as ``"missing"``, or
            as the ``"first"`` value.
        levels: Public groups of the steps.
        from_column: The column, if it is not that of the name.
        unparsed: What becomes of texts of a file without types that stand for no value: ``"null"``,
            ``"other"``, ``"drop"`` the record, or a ``"cell"`` of their own.
        timezone: The zone whose clocks count, such as ``"Europe/Rome"``, for times that are
            instants (with a zone of their own); others are taken as they are stored.

    Raises:
        SchemaError: The range is empty, or an argument is none of these.

    >>> from datetime import datetime
    >>> import sfumato as sf
    >>> sf.DateTime("visit", datetime(2024, 1, 1), datetime(2025, 1, 1), "month").size
    12
    """

    start: datetime
    end: datetime
    step: str = "day"
    timezone: str | None = field(default=None, kw_only=True)

    kind: ClassVar[str] = "datetime"

    @classmethod
    def discover(
        cls,
        column: str,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        bins: int | None = None,
        outside: Outside = "clamp",
        nulls: Nulls = "missing",
        tails: float | Fraction = 0.05,
    ) -> OpenDateTime:
        """The range of a column of dates or times, to be discovered for a price.

        Args:
            column: The name of the column.
            start: Where the range begins, if that is public knowledge; discovered if None.
            end: Where it ends, likewise; one of the two may be declared.
            bins: As in `Integer.discover`.
            outside: As in `Integer.discover`.
            nulls: As in `Integer.discover`.
            tails: As in `Integer.discover`.

        Returns:
            What `sf.OpenDomain` and `sf.plan_discovery` take.

        Raises:
            SchemaError: An argument is none of these.

        >>> import sfumato as sf
        >>> sf.DateTime.discover("visit").columns
        ('visit',)
        """
        rules = {"outside": outside, "nulls": nulls, "bins": bins, "tails": tails}
        made: OpenDateTime = OPEN_KINDS["datetime"]((column,), low=start, high=end, **rules)
        return made

    def __post_init__(self) -> None:
        for key in ("start", "end"):
            object.__setattr__(self, key, self._moment(key, getattr(self, key)))
        if not self.start < self.end:
            raise self._fault(f"end = {self.end} must come after start = {self.start}")
        count, unit = self._parsed_step()
        object.__setattr__(self, "step", unit if count == 1 else f"{count} {unit}")
        if unit in _MONTHS and self.start.day > 28:
            raise self._fault(
                f"start = {self.start}: steps of a {unit} must start on day 1 to 28 of a month, "
                "which every month has"
            )
        if self.timezone is not None:
            try:
                check_zone(self.timezone)
            except SchemaError as error:
                raise self._fault(str(error)) from None
        super().__post_init__()

    def _moment(self, key: str, value: object) -> datetime:
        if isinstance(value, datetime):
            if value.tzinfo is not None:
                raise self._fault(
                    f"{key} = {value} carries a time zone; times are compared as they are stored, "
                    "so leave it out"
                )
            # Rebuilt, because subclasses such as pandas.Timestamp carry more than is used here.
            day, clock = date(value.year, value.month, value.day), value.time()
            return datetime.combine(day, clock.replace(fold=0))
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day)
        raise self._fault(f"{key} = {shown(value)} is not a date or a date with a time")

    def _parsed_step(self) -> tuple[int, str]:
        units = (*_FIXED_STEPS, *_MONTHS)
        words = self.step.split() if isinstance(self.step, str) else []
        unit = words[-1].removesuffix("s") if words else ""
        count = words[0] if len(words) == 2 else "1"
        is_count = count.isascii() and count.isdigit() and len(count) <= 9 and int(count) > 0
        if len(words) > 2 or not is_count or unit not in units:
            raise self._fault(
                f"step = {shown(self.step)} is not one of {', '.join(units)}, with a count before "
                f"it if wanted ('15 minute'){did_you_mean(unit, units)}"
            )
        return int(count), unit

    @cached_property
    def _length(self) -> tuple[int, bool]:
        """The length of a step, and whether it is in months (else in microseconds)."""
        count, unit = self._parsed_step()
        return count * {**_FIXED_STEPS, **_MONTHS}[unit], unit in _MONTHS

    def bin_start(self, code: int) -> datetime:
        """The first instant of step ``code``.

        Args:
            code: The number of a step, from 0.

        Returns:
            When it begins.
        """
        length, is_months = self._length
        if not is_months:
            return self.start + code * length * _MICROSECOND
        years, month = divmod(self.start.month - 1 + code * length, 12)
        return self.start.replace(year=self.start.year + years, month=month + 1)

    def _steps_before(self, moment: datetime) -> int:
        """How many steps, were there no end, start before ``moment``."""
        length, is_months = self._length
        if not is_months:
            return max(0, -((self.start - moment) // _MICROSECOND // length))
        months = 12 * (moment.year - self.start.year) + moment.month - self.start.month
        # The step of the same month starts earlier iff its day and time do.
        if (moment.day, moment.time()) <= (self.start.day, self.start.time()):
            months -= 1
        return max(0, months // length + 1)

    @cached_property
    def _step_count(self) -> int:
        return self._steps_before(self.end)

    @property
    def value_count(self) -> int:
        """Number of steps; the last may be cut by ``end``."""
        return self._step_count

    @cached_property
    def starts(self) -> tuple[datetime, ...]:
        """The first instant of every bin."""
        self._require_listable()
        return tuple(self.bin_start(code) for code in range(self.value_count))

    def cell_range(self, code: int) -> CellRange:
        """From the first instant of a step to that of the next one."""
        is_last = code == self.value_count - 1
        after = self.end if is_last else self.bin_start(code + 1)
        return CellRange(self.bin_start(code), after, is_open=True)

    @cached_property
    def _has_whole_days(self) -> bool:
        _, unit = self._parsed_step()
        return self.start.time() == time.min and unit not in ("minute", "hour")

    def with_calendar(self) -> Self:
        """The same with levels of the calendar: year, quarter, month and weekday.

        Those that whole steps make up: months have no weekday, and weeks are cut by months.

        Returns:
            The attribute, with these levels after its own.

        Raises:
            SchemaError: No group of the calendar is made up of whole steps, or a level of one of
                these names is there.

        >>> import sfumato as sf
        >>> from datetime import datetime
        >>> months = sf.DateTime("visit", datetime(2024, 1, 1), datetime(2025, 1, 1), "month")
        >>> [level.name for level in months.with_calendar().levels]
        ['year', 'quarter', 'month']
        """
        if self.value_count > LIMITS.values_grouped:
            raise self._fault(
                f"levels: the calendar groups at most {LIMITS.values_grouped:,} steps, these are "
                f"{self.value_count:,}; take longer steps"
            )
        starts = [*(self.bin_start(code) for code in range(self.value_count)), self.end]
        levels = []
        for name, group in _CALENDAR.items():
            first = [group(start) for start in starts[:-1]]
            last = [group(end - _MICROSECOND) for end in starts[1:]]
            longest = max(b - a for a, b in itertools.pairwise(starts))
            if first == last and (name != "weekday" or longest <= timedelta(days=1)):
                number = {each: i for i, each in enumerate(dict.fromkeys(first))}
                levels.append(Level(name, tuple(number), tuple(number[each] for each in first)))
        if not levels:
            raise self._fault(
                f"levels: steps of {self._step_words()} from {self.start} are cut by years, "
                "months and days, so the calendar groups none of them; start with a day or a month"
            )
        return replace(self, levels=(*self.levels, *levels))

    def value_label(self, code: int) -> Value:
        """The first instant of the bin, as a date when every bin starts at midnight."""
        start = self.bin_start(code)
        return start.date() if self._has_whole_days else start

    def _codes_where(self, comparison: Comparison, constant: Value) -> range:
        """A date without a time means the whole day where every bin is made of whole days."""
        moment, is_day = _moment(self, constant)
        length = timedelta(days=1) if is_day and self._has_whole_days else _MICROSECOND
        after = moment + min(length, datetime.max - moment)
        condition = f"{comparison} {shown(str(constant))}"
        if comparison in ("=", "!="):
            return range(self._cut(moment, condition), self._cut(after, condition))
        cut = self._cut(moment if comparison in ("<", ">=") else after, condition)
        return self._codes_around(comparison, cut)

    def _cut(self, moment: datetime, condition: str) -> int:
        bins = self.bins_before(moment)
        if bins is None:
            raise WorkloadError(
                f"attribute {self.name!r} has steps of {self._step_words()} from {self.start}, so "
                f"{condition} would cut one; ask < or >= at the start of a step"
            )
        return bins

    def bins_before(self, moment: datetime) -> int | None:
        """The number of bins before ``moment``, or None when it is inside one.

        Args:
            moment: An instant.

        Returns:
            How many bins end by then; None if one is under way.
        """
        if moment >= self.end:
            return self.value_count
        code = self._steps_before(moment)
        if moment <= self.start:
            return code
        return code if code < self.value_count and self.bin_start(code) == moment else None

    def _step_words(self) -> str:
        count, unit = self._parsed_step()
        return f"one {unit}" if count == 1 else f"{count} {unit}s"


def _moment(attribute: Attribute, constant: Value) -> tuple[datetime, bool]:
    """The constant as an instant, and whether it was a date without a time."""
    moment: datetime | None = None
    is_day = False
    if isinstance(constant, datetime):
        moment = constant
    elif isinstance(constant, date):
        moment, is_day = datetime(constant.year, constant.month, constant.day), True
    elif isinstance(constant, str):
        for read, without_time in ((date.fromisoformat, True), (datetime.fromisoformat, False)):
            with contextlib.suppress(ValueError):
                parsed = read(constant)
                moment, is_day = datetime.fromisoformat(parsed.isoformat()), without_time
                break
    if moment is None:
        raise WorkloadError(
            f"attribute {attribute.name!r} is a date or time: compare it with one such as "
            f"'2024-01-31', not {shown(constant)}"
        )
    if moment.tzinfo is not None:
        raise WorkloadError(
            f"attribute {attribute.name!r} holds times as they are stored, without a time zone; "
            f"leave it out of {shown(str(constant))}"
        )
    return moment, is_day
