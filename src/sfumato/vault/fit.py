# SPDX-License-Identifier: Apache-2.0
"""Does a table fit a domain? Names and types only, asked before any row is read.

A value that the schema does not know is never an error; a column that cannot hold what the
schema declares is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sfumato.domain import Attribute, Category, Domain, Integer, Values
from sfumato.domain.unit import PrivacyUnit
from sfumato.errors import TableError
from sfumato.vault.tables import Table
from sfumato.wording import did_you_mean, either, listing, shown

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt

__all__ = ["check_columns", "family"]

_NUMBERS: Final = ("integer", "float", "decimal")
_FITTING: Final[dict[str, tuple[str, ...]]] = {
    "text category": ("text",),
    "whole-number category": _NUMBERS,
    "integer": (*_NUMBERS, "boolean"),
    "numeric": _NUMBERS,
    "boolean": ("boolean", "integer"),
    "datetime": ("date", "timestamp"),
}
_UNITS: Final = (*_NUMBERS, "text", "boolean", "date", "timestamp")

# Floats hold every whole number below 2^53, so that comparisons with such bounds are exact.
_EXACT_IN_FLOATS: Final = 2**53
# The difference of two whole numbers within these bounds fits in 64 bits.
_EXACT_IN_WORDS: Final = 2**62


def check_columns(table: Table, domain: Domain, unit: PrivacyUnit | None = None) -> None:
    """Refuse a table that lacks a declared column, or whose types contradict the schema.

    Privacy: looks at names and types, which are public.
    """
    wanted = [*(a.column for a in domain), *([unit.column] if unit else [])]
    missing = [name for name in dict.fromkeys(wanted) if name not in table.types]
    if missing:
        raise TableError(
            f"the table {table.name} lacks {listing(missing)}; its columns are "
            f"{listing(list(table.types), most=40)}{did_you_mean(missing[0], table.types)}"
        )
    declared = [a for a in domain if not isinstance(a, Values)]
    faults = [fault for a in declared if (fault := _fault(table, a))]
    if unit is not None and family(table.types[unit.column]) not in _UNITS:
        faults.append(
            f"the privacy unit {shown(unit.column)} is of type {table.types[unit.column]}; it "
            "must hold identifiers: texts or numbers"
        )
    if faults:
        raise TableError("; ".join(faults))


def family(kind: dt.DataType) -> str:
    """The family of an ibis type: integer, float, decimal, text, boolean, date, timestamp."""
    if kind.is_string() or kind.is_uuid():
        return "text"
    for name in ("integer", "floating", "decimal", "boolean", "date", "timestamp"):
        if getattr(kind, f"is_{name}")():
            return name.removesuffix("ing")
    return "other"


def _fault(table: Table, attribute: Attribute) -> str:
    """Why the column cannot hold the attribute, or nothing."""
    name = attribute.name
    declared = attribute.kind
    if isinstance(attribute, Category):
        is_text = isinstance(attribute.values[0], str)
        declared = "text category" if is_text else "whole-number category"
    is_untyped = name in table.untyped
    held = family(table.types[name])
    if not is_untyped and held not in _FITTING[declared]:
        return (
            f"attribute {name!r} is declared as {declared}, but its column is of type "
            f"{table.types[name]}; it needs one of {either(_FITTING[declared])}: change the schema "
            "or convert the column"
        )
    numbers = _bounds(attribute)
    limit = _EXACT_IN_WORDS if held in ("integer", "boolean") else _EXACT_IN_FLOATS
    if any(abs(number) >= limit for number in numbers):
        return (
            f"attribute {name!r} declares whole numbers of {limit:,} or more, which a column of "
            f"type {table.types[name]} cannot be compared with exactly; use smaller bounds"
            + ("" if limit == _EXACT_IN_WORDS else " or a column of integers")
        )
    return ""


def _bounds(attribute: Attribute) -> tuple[int, ...]:
    """The whole numbers that the column will be compared with."""
    if isinstance(attribute, Integer):
        return (attribute.min, attribute.max)
    if isinstance(attribute, Category):
        return tuple(v for v in attribute.values if isinstance(v, int))
    return ()
