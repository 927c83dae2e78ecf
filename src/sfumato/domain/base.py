# SPDX-License-Identifier: Apache-2.0
"""What one column may hold: a finite, public list of cells (the part common to all kinds).

An attribute is public knowledge. It maps every value that a column could hold to one cell, or
says that the record is dropped; a value that the schema does not know is therefore never an
error and never a new key (Korolova et al. 2009, "Releasing search queries and clicks privately",
shows what data-dependent keys give away).

Cells are numbered 0, 1, ...: first the declared values in order, then the cell ``(other)`` if
``outside = "other"``, then the cell ``(missing)`` if ``nulls = "missing"``. Nothing here lists
the cells unless it is asked to: an attribute of 10^18 values is legal.

Every fault of an attribute is worded ``attribute 'NAME': KEY ...``, with KEY the key of the
schema file that is to blame, so that ``schema`` can say on which line it stands.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from typing import ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt

from sfumato.errors import SchemaError, TooLarge, WorkloadError
from sfumato.wording import did_you_mean, listing, shown

__all__ = [
    "MISSING",
    "MOST_LISTED",
    "OTHER",
    "Attribute",
    "Comparison",
    "Level",
    "Nulls",
    "Outside",
    "Value",
    "given_list",
    "is_text",
    "whole_number",
]

Value = str | int | float | bool | date | datetime
Outside = Literal["drop", "other", "clamp"]
Nulls = Literal["drop", "missing"]
Comparison = Literal["=", "!=", "<", "<=", ">", ">="]

OTHER: Final = "(other)"
MISSING: Final = "(missing)"

MOST_LISTED: Final = 10_000_000
"""The most cells of one attribute that are ever listed one by one (labels, indicators)."""

_COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Level:
    """A public map from the values of an attribute to named groups.

    ``group_of[c]`` is the group of declared value ``c``, or -1 when it belongs to none.

    >>> Level("coast", ("yes", "no"), (0, 1, 0)).group_of
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


@dataclass(frozen=True)
class Attribute(ABC):
    """One column of a record: its cells, and where every other value goes."""

    name: str
    outside: Outside = field(default="drop", kw_only=True)
    nulls: Nulls = field(default="drop", kw_only=True)
    levels: tuple[Level, ...] = field(default=(), kw_only=True)

    kind: ClassVar[str]
    is_ordered: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_text(self.name):
            raise SchemaError(
                f"an attribute needs a name of at least one letter, got {shown(self.name)}"
            )
        allowed = ("drop", "other", "clamp") if self.is_ordered else ("drop", "other")
        if self.outside not in allowed:
            raise self._fault(
                f"outside = {shown(self.outside)} is not one of {', '.join(map(repr, allowed))}"
                + ("" if self.is_ordered else f", the rules for a {self.kind}")
            )
        if self.nulls not in ("drop", "missing"):
            raise self._fault(f"nulls = {shown(self.nulls)} is not one of 'drop', 'missing'")
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
        """The label of declared value ``code``."""

    @abstractmethod
    def _codes_where(self, comparison: Comparison, constant: Value) -> range:
        """The declared values for which the comparison holds; for ``!=``, those where it fails."""

    @property
    def column(self) -> str:
        """The column of a table that its cells are made from."""
        return self.name

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
            raise WorkloadError(
                f"attribute {self.name!r} has no cell {shown(code)}; it has {self.size}, "
                "numbered from 0"
            )
        if code < self.value_count:
            return self.value_label(code)
        return OTHER if code == self.other_code else MISSING

    @cached_property
    def labels(self) -> tuple[Value, ...]:
        """The labels of all cells, in order."""
        self._require_listable()
        return tuple(self.label(c) for c in range(self.size))

    def level(self, name: str) -> Level:
        """The level of this name."""
        for level in self.levels:
            if level.name == name:
                return level
        known = [level.name for level in self.levels]
        raise WorkloadError(
            f"attribute {self.name!r} has no level {shown(name)}; it has: "
            f"{listing(known) or 'none'}{did_you_mean(name, known)}"
        )

    def select(self, comparison: Comparison, constant: Value) -> npt.NDArray[np.bool_]:
        """Indicator over the cells of the values for which ``value comparison constant`` holds.

        The cell ``(missing)`` satisfies nothing; ``(other)`` satisfies only ``!=``, because it
        holds none of the declared values and its own are not known.
        """
        if comparison not in _COMPARISONS:
            raise WorkloadError(
                f"{shown(comparison)} is not a comparison; allowed are {', '.join(_COMPARISONS)}"
            )
        found = self._codes_where(comparison, constant)
        self._require_listable()
        negated = comparison == "!="
        cells = np.zeros(self.size, dtype=np.bool_)
        cells[: self.value_count] = negated
        cells[found.start : found.stop] = not negated
        if self.other_code is not None:
            cells[self.other_code] = negated
        return cells

    def select_any(self, constants: Sequence[Value]) -> npt.NDArray[np.bool_]:
        """Indicator over the cells of the values that equal one of the constants."""
        self._require_listable()
        cells = np.zeros(self.size, dtype=np.bool_)
        for constant in constants:
            found = self._codes_where("=", constant)
            cells[found.start : found.stop] = True
        return cells

    def numbers(self) -> npt.NDArray[np.float64]:
        """One number per cell for sums and means (the middle of a bin); 0 for other and missing."""
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
        if self.size > MOST_LISTED:
            raise TooLarge(
                f"attribute {self.name!r} has {self.size:,} cells; at most {MOST_LISTED:,} can be "
                "listed one by one: give it wider bins or a level with fewer groups"
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


def given_list(name: str, key: str, given: object) -> tuple[object, ...]:
    """The entries of a list, tuple or array that was given for ``key``."""
    if isinstance(given, str | bytes) or not isinstance(given, Sequence | np.ndarray):
        raise SchemaError(f"attribute {name!r}: {key} must be a list, got {shown(given)}")
    return tuple(given)


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
