# SPDX-License-Identifier: Apache-2.0
"""What a column holds, as the encoding wants it: a typed value, and whether it is null.

A typed column is taken as it is. The texts of an untyped one (CSV) are interpreted as the schema
asks, and never fail: what is no number or date becomes null, without counting as null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sfumato.domain import Attribute, Boolean, Category, DateTime
from sfumato.vault.fit import family

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import ibis.expr.types as ir

__all__ = ["Held", "held", "identifier", "interpreted", "is_text", "literal"]

_TRUE: Final = ("true", "t", "yes", "y", "1")
_FALSE: Final = ("false", "f", "no", "n", "0")
_GREATEST_WORD: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Held:
    """The values of a column, their type, and which of them count as null."""

    value: ir.Column
    kind: dt.DataType
    is_null: ir.Column

    @property
    def is_whole(self) -> bool:
        """Whether all values are whole numbers, by their type."""
        return family(self.kind) in ("integer", "boolean")

    def whole(self) -> ir.Column:
        """A value of a column of integers or booleans, as a signed 64-bit integer."""
        if self.kind.is_uint64():  # greater ones are outside every domain: fit.check_columns
            return self.value.clip(upper=_GREATEST_WORD).cast("int64")
        return self.value if self.kind.is_int64() else self.value.cast("int64")

    def number(self) -> ir.Column:
        """The value as a 64-bit float."""
        return self.value if self.kind.is_float64() else self.value.cast("float64")

    def moment(self) -> ir.Column:
        """The value as a time to the microsecond, in UTC if it has a zone; null if it has none."""
        is_plain = self.kind.is_timestamp() and self.kind.timezone is None and self.kind.scale == 6
        return self.value if is_plain else self.value.try_cast("timestamp")

    def text(self) -> ir.Column:
        """The value as text."""
        return self.value if self.kind.is_string() else self.value.cast("string")


def held(value: ir.Column, kind: dt.DataType) -> Held:
    """A typed column; NaN counts as null."""
    is_null = value.isnull()
    if kind.is_floating():
        is_null = is_null | value.isnan()
    return Held(value, kind, is_null)


def interpreted(attribute: Attribute, text: ir.Column) -> tuple[ir.Column, ir.Column]:
    """The value that a text stands for, null if for none, and whether the text counts as null.

    Blanks around a value of a CSV line mean nothing, unless the schema declares such values.
    """
    import ibis

    bare = text.strip()
    is_null = text.isnull() | (bare == "")
    if isinstance(attribute, Category) and is_text(attribute):
        is_bare = all(value == value.strip() for value in map(str, attribute.values))
        return (bare if is_bare else text), is_null
    if isinstance(attribute, Boolean):
        word = bare.lower()
        return ibis.cases((word.isin(_TRUE), 1), (word.isin(_FALSE), 0)).cast("int64"), is_null
    if isinstance(attribute, DateTime):
        return bare.try_cast("timestamp"), is_null
    number = bare.try_cast("float64")
    return number, is_null | number.isnan().fill_null(False)


def identifier(value: ir.Column, kind: dt.DataType, is_untyped: bool) -> ir.Column:
    """A privacy unit as text; null where there is none."""
    if is_untyped:
        return value.strip().nullif("")
    if kind.is_floating():
        value = value.isnan().ifelse(None, value)
    return value.cast("string")


def is_text(attribute: Category) -> bool:
    """Whether the listed values are texts, and not whole numbers."""
    return isinstance(attribute.values[0], str)


def literal(number: float) -> ir.Scalar:
    """A float, exactly: SQL would take ``0.1`` for a decimal, and round it once more."""
    import ibis

    return ibis.literal(repr(float(number))).cast("float64")
