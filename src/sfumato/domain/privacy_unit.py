# SPDX-License-Identifier: Apache-2.0
"""The privacy unit: whose presence a guarantee protects.

A `Unit` is one row, one event of a series, or a `PrivacyUnit`: all records that share a value of a
column. Plans state it, the vault bounds what it contributes, and a ledger adds up the costs of one
unit only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Literal, TypeAlias

from sfumato.domain.domain_limits import LIMITS
from sfumato.errors import SchemaError
from sfumato.text import shown

__all__ = [
    "PrivacyUnit",
    "Unit",
    "check_privacy_unit",
    "check_unit",
    "unit_from_json",
    "unit_in_words",
    "unit_json",
    "unit_of",
]


@dataclass(frozen=True, slots=True)
class PrivacyUnit:
    """All records that share a value of ``column`` belong to one person.

    At most ``rows`` of them are counted, chosen at random in the vault, so that one person moves
    the histogram by at most ``rows``. Without a privacy unit, one row is one person.

    Args:
        column: The name of the column.
        rows: The most rows of one value that are counted: a whole number from 1 to 2^44, the most
            records that a table can have.

    Raises:
        SchemaError: If it is anything else.
    """

    column: str
    rows: int

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise SchemaError(
                f"a privacy unit needs the name of its column, got {shown(self.column)}"
            )
        rows = _whole(self.rows)
        if rows is None or not 1 <= rows <= LIMITS.rows_per_unit:
            raise SchemaError(
                f"a privacy unit needs a bound on the rows of one unit, a whole number from 1 to "
                f"{LIMITS.rows_per_unit:,}, got {shown(self.rows)}; for example "
                f"PrivacyUnit({shown(self.column)}, 5)"
            )
        object.__setattr__(self, "rows", rows)  # an integer of numpy becomes one of Python


def _whole(value: object) -> int | None:
    """A whole number of any kind as a Python integer; None for all else, also True and 3.0."""
    if isinstance(value, bool):
        return None
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


Unit: TypeAlias = PrivacyUnit | Literal["row", "event"]
"""What two neighbouring inputs differ in: all records of one person, one row of a table, or one
event of a series (what one person adds to one step of a stream, or to the counts of a watch)."""


def unit_of(unit: PrivacyUnit | None) -> Unit:
    """Return the unit of a plan on a table: without a privacy unit, one row."""
    return "row" if unit is None else unit


def check_privacy_unit(value: object) -> PrivacyUnit | None:
    """Return ``value`` if it is the privacy unit of a plan on a table, or None.

    >>> check_privacy_unit(PrivacyUnit("patient", 5)), check_privacy_unit(None)
    (PrivacyUnit(column='patient', rows=5), None)
    """
    if value is None or isinstance(value, PrivacyUnit):
        return value
    column = value if isinstance(value, str) else "id"
    raise SchemaError(
        f"unit must be sf.PrivacyUnit(column, rows) or None, got {shown(value)}; "
        f"sf.PrivacyUnit({shown(column)}, rows=10) protects all rows that share a value of the "
        "column and counts at most 10 of them"
    )


def check_unit(value: object) -> Unit:
    """Return ``value`` if it is a unit.

    >>> check_unit("row"), check_unit(PrivacyUnit("patient", 5))
    ('row', PrivacyUnit(column='patient', rows=5))
    """
    if isinstance(value, PrivacyUnit):
        return value
    if value == "row":
        return "row"
    if value == "event":
        return "event"
    got = repr(value) if isinstance(value, str) else type(value).__name__
    raise SchemaError(
        f'a unit is "row", "event" or PrivacyUnit(column, rows), got {got[:60]}; say whose '
        "presence is protected"
    )


def unit_json(unit: Unit) -> object:
    """Return a unit as JSON.

    >>> unit_json(PrivacyUnit("patient", 5)), unit_json("row")
    ({'column': 'patient', 'rows': 5}, 'row')
    """
    return unit if isinstance(unit, str) else {"column": unit.column, "rows": unit.rows}


def unit_from_json(value: object) -> Unit:
    """Read what `unit_json` wrote."""
    if isinstance(value, Mapping) and set(value) == {"column", "rows"}:
        return PrivacyUnit(str(value["column"]), value["rows"])
    return check_unit(value)


def unit_in_words(unit: Unit) -> str:
    """Return whose presence a unit protects.

    >>> unit_in_words(PrivacyUnit("patient", 5))
    "all rows that share a value of 'patient' (at most 5 of them counted)"
    """
    if isinstance(unit, str):
        return f"one {unit}"
    return f"all rows that share a value of {unit.column!r} (at most {unit.rows:,} of them counted)"
