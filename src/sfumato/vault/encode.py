# SPDX-License-Identifier: Apache-2.0
"""From a value to its cell: one expression per attribute, the same on every engine.

The expression gives the code of the cell, or null when the record is dropped. Every value has a
place (the rules ``outside`` and ``nulls`` of the schema), and no expression can fail on a value:
whatever is out of range becomes null before any arithmetic is done on it.

    null             ``nulls``: dropped, or the cell (missing). NaN counts as null, and so does an
                     empty text in an untyped column
    declared value   its cell
    anything else    ``outside``: dropped, the cell (other), or clamped to the nearest bin; a text
                     that is no number or date at all has no nearest bin, and counts as null
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from sfumato.domain import Attribute, Boolean, Category, DateTime, Integer, Numeric, Values
from sfumato.domain.values import UNIT_BITS
from sfumato.vault.engine import Engine
from sfumato.vault.hold import Held
from sfumato.vault.lookup import listed_code

__all__ = ["MISSING_VALUE", "OTHER_VALUE", "always_kept", "cell_code"]

OTHER_VALUE: Final = -1
MISSING_VALUE: Final = -2
"""What stands in place of the grid value of a record without a number."""

_SECONDS: Final = {"minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_EPOCH: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = 86_400_000_000  # microseconds


def always_kept(attribute: Attribute) -> bool:
    """Whether no value of the attribute can drop a record."""
    return attribute.outside != "drop" and attribute.nulls == "missing"


def cell_code(attribute: Attribute, held: Held, engine: Engine, found: str | None = None) -> str:
    """The cell of each value, null where the record is dropped.

    ``found`` is the code that a lookup table gave, if there is one: null for undeclared values.
    Of `Values` it is the value on the public grid, 0 to 2^UNIT_BITS, or `OTHER_VALUE` or
    `MISSING_VALUE`.
    """
    if isinstance(attribute, Values):
        return _grid_value(attribute, held, engine)
    if isinstance(attribute, Category):
        code = listed_code(attribute, held, engine) if found is None else found
        return _ruled(attribute, held.is_null, code)
    if isinstance(attribute, Boolean):
        inside = _where(f"{held.value} BETWEEN 0 AND 1", held.value)
        return _ruled(attribute, held.is_null, inside)
    if isinstance(attribute, Integer):
        return _integer(attribute, held, engine)
    if isinstance(attribute, Numeric):
        return _numeric(attribute, held, engine, found)
    if isinstance(attribute, DateTime):
        return _datetime(attribute, held, engine)
    raise TypeError(f"no encoding for {type(attribute).__name__}")


def _ruled(attribute: Attribute, is_null: str, code: str) -> str:
    """The rules of the schema around a code that is null for all but declared values."""
    missing, other = attribute.missing_code, attribute.other_code
    if other is not None:
        return f"CASE WHEN {is_null} THEN {_code(missing)} ELSE COALESCE({code}, {other}) END"
    return code if missing is None else f"CASE WHEN {is_null} THEN {missing} ELSE {code} END"


def _clamped(attribute: Attribute, is_null: str, code: str, is_below: str, is_above: str) -> str:
    """The same, with values outside the range in its first and last bins if the schema says so."""
    if attribute.outside != "clamp":
        return _ruled(attribute, is_null, code)
    missing = _code(attribute.missing_code)
    return (
        f"CASE WHEN {is_null} THEN {missing} WHEN {is_below} THEN 0 "
        f"WHEN {is_above} THEN {attribute.value_count - 1} ELSE COALESCE({code}, {missing}) END"
    )


def _code(code: int | None) -> str:
    return "CAST(NULL AS BIGINT)" if code is None else str(code)


def _integer(attribute: Integer, held: Held, engine: Engine) -> str:
    value, low, high = held.value, str(attribute.min), str(attribute.max)
    if held.form == "whole":
        whole = _where(f"{value} BETWEEN {low} AND {high}", value)
    else:
        low, high = engine.float_literal(attribute.min), engine.float_literal(attribute.max)
        inside = _where(f"{value} BETWEEN {low} AND {high}", value)
        whole = f"CAST(FLOOR({inside}) AS BIGINT)"
        if attribute.outside != "clamp":  # clamping takes 39.5 to the bin of 39
            whole = _where(f"{inside} = FLOOR({inside})", whole)
    offset = f"({whole} - {_signed(attribute.min)})"
    width = min(attribute.width, attribute.max - attribute.min + 1)  # wider may not fit in a word
    code = engine.quotient(offset, width) if width > 1 else offset
    return _clamped(attribute, held.is_null, code, f"{value} < {low}", f"{value} > {high}")


def _numeric(attribute: Numeric, held: Held, engine: Engine, found: str | None) -> str:
    value, edges = held.value, attribute.edges
    low, high = engine.float_literal(edges[0]), engine.float_literal(edges[-1])
    if found is None:
        found = engine.bin(value, edges)
        assert found is not None  # noqa: S101  lookup.needs_lookup
        found = _where(f"{value} BETWEEN {low} AND {high}", found)
    return _clamped(attribute, held.is_null, found, f"{value} < {low}", f"{value} > {high}")


def _grid_value(attribute: Values, held: Held, engine: Engine) -> str:
    """The clamped value in steps of ``2^-UNIT_BITS`` of its range, to the nearest.

    Privacy: none by itself; a function of the record alone, 0 to 2^UNIT_BITS, is all it needs to be
    (docs/proofs/values.md), so an engine whose floats round otherwise moves a record by one step
    and no bound at all.
    """
    of, value = attribute.of, held.value
    low, high = attribute.ends
    first, last = engine.float_literal(low), engine.float_literal(high)
    past = f"({value} - {first})"
    is_declared = f"{value} BETWEEN {first} AND {last}"
    if held.form == "whole" and isinstance(of, Integer):
        first, last = str(of.min), str(of.max)
        is_declared = f"{value} BETWEEN {first} AND {last}"
        past = f"CAST({_where(is_declared, value)} - {_signed(of.min)} AS {engine.double})"
    elif isinstance(of, Integer) and of.outside != "clamp":
        is_declared += f" AND {value} = FLOOR({value})"
    # Far below half a step it is 0: PostgreSQL would fail where a product is too small for a float.
    tiny = engine.float_literal((high - low) * 2.0 ** -(UNIT_BITS + 8))
    steps = engine.float_literal(2.0**UNIT_BITS / (high - low))
    nearest = f"CAST(FLOOR({past} * {steps} + {engine.float_literal(0.5)}) AS BIGINT)"
    most = 2**UNIT_BITS
    code = (
        f"(CASE WHEN {is_declared} THEN CASE WHEN {past} < {tiny} THEN CAST(0 AS BIGINT) "
        f"ELSE LEAST({nearest}, {most}) END END)"
    )
    missing = _code(MISSING_VALUE if of.nulls == "missing" else None)
    if of.outside == "clamp":
        return (
            f"CASE WHEN {held.is_null} THEN {missing} WHEN {value} < {first} THEN 0 "
            f"WHEN {value} > {last} THEN {most} ELSE COALESCE({code}, {missing}) END"
        )
    if of.outside == "other":
        code = f"COALESCE({code}, {OTHER_VALUE})"
    return f"CASE WHEN {held.is_null} THEN {missing} ELSE {code} END"


def _datetime(attribute: DateTime, held: Held, engine: Engine) -> str:
    start, end = _micros(attribute.start), _micros(attribute.end)
    moment = held.value
    inside = _where(f"{moment} >= {start} AND {moment} < {end}", moment)
    code = _step(attribute, inside, engine)
    return _clamped(attribute, held.is_null, code, f"{moment} < {start}", f"{moment} >= {end}")


def _step(attribute: DateTime, moment: str, engine: Engine) -> str:
    """The number of whole steps from the start to the moment.

    Shifted back by what the start lies after a month begins, every step begins with a month, so
    that the calendar numbers the steps exactly.
    """
    words = attribute.step.split()
    count, unit = int(words[0]) if len(words) == 2 else 1, words[-1]
    start = attribute.start
    if unit not in _MONTHS:
        passed = f"({moment} - {_signed(_micros(start))})"
        return engine.quotient(passed, count * _SECONDS[unit] * 1_000_000)
    shift = (start - datetime(start.year, start.month, 1)) // _MICROSECOND
    days = engine.quotient(f"({moment} - {_signed(_micros(datetime.min) + shift)})", _DAY)
    date = engine.date_after(datetime.min.date(), days)
    year, month = (f"CAST(EXTRACT({part} FROM {date}) AS BIGINT)" for part in ("YEAR", "MONTH"))
    months = f"(12 * {year} + {month} - {12 * start.year + start.month})"
    return engine.quotient(months, count * _MONTHS[unit])


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _signed(number: int) -> str:
    """A number behind a minus sign."""
    return str(number) if number >= 0 else f"({number})"


def _where(condition: str, value: str) -> str:
    """The value where the condition holds, else null: nothing later can fail on it."""
    return f"(CASE WHEN {condition} THEN {value} END)"
