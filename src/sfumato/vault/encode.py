# SPDX-License-Identifier: Apache-2.0
"""Encode a table: `read_records` returns its records as codes, what every count is made from.

One scan turns the table into a temporary table of small integers: a column per attribute that is
asked for, a row per record that no rule drops. A record is dropped when *any* attribute of the
domain says so, asked for or not, so that all counts describe the same records. With a privacy
unit, at most ``rows`` records of each unit are kept, in at most ``groups`` groups. `check_columns`
refuses a table that does not fit the domain, before any row is read.

Each attribute is one expression, the same on every engine: the code of the cell, or null when the
record is dropped. Every value has a place (the rules ``outside`` and ``nulls`` of the schema), and
no expression can fail on a value: whatever is out of range becomes null before any arithmetic is
done on it.

    null             ``nulls``: dropped, the cell (missing), or the first one. NaN counts as null,
                     and so does an empty text in an untyped column
    declared value   its cell
    anything else    ``outside``: dropped, the cell (other), the first cell of a category, or
                     clamped to the nearest bin; a text that is no number or date at all has no
                     nearest bin, and counts as null
    no value         ``unparsed``, where the schema says so: a text that is no number or date, or a
                     record that could not be read at all, is null, in the cell (other), dropped, or
                     in the cell (unparsed)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from sfumato.domain.attributes import (
    DURATIONS,
    Attribute,
    Boolean,
    Category,
    DateTime,
    Duration,
    Integer,
    Numeric,
)
from sfumato.domain.discovery import OpenDomain
from sfumato.domain.domain import Domain, read_as_values
from sfumato.domain.privacy_unit import PrivacyUnit, check_privacy_unit
from sfumato.domain.time_zones import zone_offsets
from sfumato.domain.values import UNIT_BITS, Fractional, Moments, Values
from sfumato.errors import TableError
from sfumato.random import WordSource, system_words
from sfumato.text import did_you_mean, either, listing, shown
from sfumato.types import Integers
from sfumato.vault.arrow_codes import ArrowColumns, Codes
from sfumato.vault.duckdb import DuckDB
from sfumato.vault.engine import Engine, sealed
from sfumato.vault.sources import TextRules
from sfumato.vault.tables import ColumnReading, Records, Table
from sfumato.vault.vault_limits import LIMITS

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import pyarrow as pa

__all__ = [
    "MISSING_VALUE",
    "OTHER_VALUE",
    "UNPARSED_VALUE",
    "Held",
    "Made",
    "always_kept",
    "cell_code",
    "check_columns",
    "draw_secret",
    "engine_failed",
    "family",
    "filled",
    "hashed_parts",
    "interpreted",
    "is_text",
    "listed_code",
    "matches",
    "needs_lookup",
    "read_records",
    "secret_table",
    "typed",
    "unit_text",
    "values_table",
]


# Whether a table fits a domain

_NUMBERS: Final = ("integer", "float", "decimal")
_FITTING: Final[dict[str, tuple[str, ...]]] = {
    "text category": ("text",),
    "whole-number category": _NUMBERS,
    "integer": (*_NUMBERS, "boolean"),
    "numeric": _NUMBERS,
    "boolean": ("boolean", "integer"),
    "datetime": ("date", "timestamp"),
    "duration": ("interval",),
}
_UNITS: Final = (*_NUMBERS, "text", "boolean", "date", "timestamp")

# Floats hold every whole number below 2^53, so that comparisons with such bounds are exact.
_EXACT_IN_FLOATS: Final = 2**53
# The difference of two whole numbers within these bounds fits in 64 bits.
_EXACT_IN_WORDS: Final = 2**62


def check_columns(
    table: Table, domain: Domain | OpenDomain, unit: PrivacyUnit | None = None
) -> None:
    """Refuse a table that lacks a declared column, or whose types contradict the schema.

    A value that the schema does not declare is never an error; a column that cannot hold what the
    schema declares is.

    Privacy: looks at names and types, which are public.
    """
    if unit is not None:
        check_privacy_unit(unit, None if domain.open else domain.attributes)
    opened = [(each, column) for each in domain.open for column in each.columns]
    columns = [a.column for a in domain.attributes] + [column for _, column in opened]
    columns += [unit.column] if unit else []
    missing = [name for name in dict.fromkeys(columns) if name not in table.types]
    if missing:
        raise TableError(
            f"the table {table.name} lacks {listing(missing)}; its columns are "
            f"{listing(list(table.types), most=40)}{did_you_mean(missing[0], table.types)}"
        )
    declared = [a for a in domain.attributes if not isinstance(a, Fractional)]
    faults = [fault for a in declared if (fault := _fault(table, a))]
    for each, column in opened:
        kind = table.types[column]
        fault = each.fault(column, family(kind), str(kind), column in table.untyped)
        faults += [fault] if fault else []
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
    for name in ("integer", "floating", "decimal", "boolean", "date", "timestamp", "interval"):
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
    if _duration(attribute) is not None:
        declared = "duration"
    column = attribute.column
    is_untyped = column in table.untyped
    kind = table.types[column]
    held = family(kind)
    if not is_untyped and held not in _FITTING[declared]:
        return (
            f"attribute {name!r} is declared as {declared}, but its column is of type {kind}; "
            f"{_nested(column, kind) or f'it needs one of {either(_FITTING[declared])}'}: change "
            "the schema or convert the column"
        )
    numbers = _bounds(attribute)
    limit = _EXACT_IN_WORDS if held in ("integer", "boolean") else _EXACT_IN_FLOATS
    if any(abs(number) >= limit for number in numbers):
        return (
            f"attribute {name!r} declares whole numbers of {limit:,} or more, which a column of "
            f"type {kind} cannot be compared with exactly; use smaller bounds"
            + ("" if limit == _EXACT_IN_WORDS else " or a column of integers")
        )
    return ""


def _duration(attribute: Attribute) -> Duration | None:
    """The unit that durations are counted in, if the attribute is made of them."""
    return attribute.duration if isinstance(attribute, Integer | Numeric) else None


def _nested(column: str, kind: dt.DataType) -> str:
    """What to do about a column of durations, or one of several values in a record."""
    if kind.is_interval():
        return (
            'it holds durations, which are counted in a unit: kind = "numeric" (or "integer") with '
            'duration = "hour" for example'
        )
    if kind.is_struct():
        names = [f"{column}.{name}" for name in kind.fields]
        return f"it holds records of named fields, so declare one of them: {listing(names)}"
    if kind.is_array() or kind.is_map():
        return (
            "it holds lists, and an attribute has one value in a record: a query can make a row of "
            "each entry (UNNEST) if a privacy unit bounds the rows of a person"
        )
    return ""


def _bounds(attribute: Attribute) -> tuple[int, ...]:
    """The whole numbers that the column will be compared with."""
    if isinstance(attribute, Integer):
        return (attribute.min, attribute.max)
    if isinstance(attribute, Category):
        return tuple(v for v in attribute.values if isinstance(v, int))
    return ()


# A column in one of four forms, and what is null in it

Form = Literal["whole", "number", "text", "moment"]

_ISO: Final = TextRules()
_OFFSET: Final = r":[0-9]{2}[0-9.]*\s*([zZ]|UTC|[+-][0-9]{2}(:?[0-9]{2})?)$"
_TRUE: Final = ("true", "t", "yes", "y", "1")
_FALSE: Final = ("false", "f", "no", "n", "0")


@dataclass(frozen=True, slots=True)
class Held:
    """The column of the values in their form, and the condition under which they count as null."""

    value: str
    form: Form
    is_null: str
    is_instant: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """How the column of values is made; ``is_null`` only where it is not that the value is null.

    ``is_instant``: a moment that is the same everywhere, and not what some clock shows.
    """

    value: str
    form: Form
    is_null: str | None = None
    is_instant: bool = False


def typed(attribute: Attribute, column: str, kind: dt.DataType, engine: Engine) -> Made:
    """A typed column in the form that its attribute is compared in."""
    if kind.is_interval():
        return Made(_in_units(attribute, engine.microseconds(column), engine), "number")
    form = _form(attribute, kind)
    made = {
        "whole": engine.whole,
        "number": engine.number,
        "text": engine.text,
        "moment": engine.moment,
    }[form]
    is_instant = kind.is_timestamp() and kind.timezone is not None
    return Made(made(column, kind), form, is_instant=is_instant)


def _in_units(attribute: Attribute, microseconds: str, engine: Engine) -> str:
    """A number of microseconds in the unit of the attribute."""
    return f"({microseconds} / {engine.float_literal(DURATIONS[_duration(attribute) or 'second'])})"


def _form(attribute: Attribute, kind: dt.DataType) -> Form:
    if isinstance(attribute, DateTime):
        return "moment"
    if isinstance(attribute, Category) and is_text(attribute):
        return "text"
    is_whole = family(kind) in ("integer", "boolean") and not isinstance(attribute, Numeric)
    return "whole" if is_whole else "number"


def interpreted(attribute: Attribute, text: str, engine: Engine, rules: TextRules = _ISO) -> Made:
    """The value that a text stands for, null if for none, and whether the text counts as null.

    It never fails: what is no number or date becomes null, without counting as null. Blanks around
    a value of a CSV line mean nothing, unless the schema declares such values.
    """
    import ibis.expr.datatypes as dt

    assert isinstance(engine, DuckDB)  # noqa: S101  all else has types
    text = _not_null_value(text, rules, engine)
    bare = engine.bare(text)
    is_null = f"({text} IS NULL OR {bare} = '')"
    if isinstance(attribute, Category) and is_text(attribute):
        is_bare = all(value == value.strip() for value in map(str, attribute.values))
        return Made(bare if is_bare else text, "text", is_null)
    if isinstance(attribute, Boolean):
        return Made(
            f"CAST(CASE WHEN lower({bare}) IN {_TRUE} THEN 1 WHEN lower({bare}) IN {_FALSE} THEN 0 "
            "END AS BIGINT)",
            "whole",
            is_null,
        )
    if isinstance(attribute, DateTime):
        if rules.date_formats:
            read = engine.read_date(bare, rules.date_formats)
            has_zone = any("%z" in each.lower() for each in rules.date_formats)
            kind = dt.Timestamp("UTC" if has_zone else None, scale=6)
            return Made(engine.moment(read, kind), "moment", is_null, is_instant=has_zone)
        moment = engine.moment(engine.read_as(bare, "TIMESTAMP"), dt.Timestamp(scale=6))
        if attribute.timezone is not None:  # a text may say how far from UTC it is
            instant = engine.moment(
                engine.read_as(bare, "TIMESTAMPTZ"), dt.Timestamp("UTC", scale=6)
            )
            local = _local(attribute, instant, engine)
            is_offset = f"regexp_matches({bare}, {engine.literal(_OFFSET)})"
            moment = f"(CASE WHEN {is_offset} THEN {local} ELSE {moment} END)"
        return Made(moment, "moment", is_null)
    if _duration(attribute) is not None:
        # A number alone is one in the declared unit; DuckDB would take it for seconds.
        span = _in_units(attribute, engine.microseconds(engine.read_as(bare, "INTERVAL")), engine)
        number = engine.read_number(bare, rules.decimal, rules.thousands)
        number = f"COALESCE({number}, {span})"
    else:
        number = engine.read_number(bare, rules.decimal, rules.thousands)
    is_nan = f"COALESCE(isnan({number}), FALSE)"
    return Made(number, "number", f"({is_null} OR {is_nan})")


def _not_null_value(text: str, rules: TextRules, engine: DuckDB) -> str:
    """A text, null where it is one of those that mean null."""
    if not rules.null_values:
        return text
    nulls = ", ".join(engine.literal(value.strip()) for value in rules.null_values)
    return f"(CASE WHEN {engine.bare(text)} NOT IN ({nulls}) THEN {text} END)"


def unit_text(
    column: str, kind: dt.DataType, is_untyped: bool, engine: Engine, rules: TextRules = _ISO
) -> str:
    """A privacy unit as text; null where there is none."""
    if is_untyped:
        assert isinstance(engine, DuckDB)  # noqa: S101  all else has types
        column = _not_null_value(column, rules, engine)
        return f"NULLIF({engine.bare(column)}, '')"
    return engine.identifier(column, kind)


def is_text(attribute: Category) -> bool:
    """Whether the listed values are texts, and not whole numbers."""
    return isinstance(attribute.values[0], str)


# Codes from a list or from a lookup table


def listed_code(attribute: Category, held: Held, engine: Engine) -> str:
    """The place of the value in the list of the schema, null if it is not there."""
    if is_text(attribute):
        values = [engine.literal(str(v)) for v in attribute.values]
    else:
        values = [f"CAST({v} AS BIGINT)" for v in attribute.values]
    return engine.position(values, held.value)


def needs_lookup(attribute: Attribute, held: Held, engine: Engine) -> bool:
    """Whether the code comes from a join with a table of the values, or of the bins.

    Its cost hardly grows with their number; a few values stand in a list in the query.
    """
    if isinstance(attribute, Numeric):
        return engine.bin(held.value, attribute.edges) is None
    if not isinstance(attribute, Category):
        return False
    # A list in a query holds texts and integers exactly, but not floats.
    return held.form == "number" or attribute.value_count > LIMITS.values_in_query


def values_table(attribute: Attribute, held: Held) -> pa.Table:
    """The values, or the starts and ends of the bins, beside their codes: each value once."""
    import pyarrow as pa

    keys: dict[str, pa.Array]
    if isinstance(attribute, Numeric):
        # The last bin is closed: it ends before the next float.
        ends = [*attribute.edges[1:-1], math.nextafter(attribute.edges[-1], math.inf)]
        starts = pa.array(attribute.edges[:-1], pa.float64())
        keys = {"low": starts, "high": pa.array(ends, pa.float64())}
    elif held.form == "text":
        keys = {"val": pa.array(getattr(attribute, "values", ()), pa.string())}
    else:
        values = pa.array(getattr(attribute, "values", ()), pa.int64())
        keys = {"val": values if held.form == "whole" else values.cast(pa.float64())}
    return pa.table(keys | {"code": pa.array(range(attribute.value_count), pa.int64())})


def matches(attribute: Attribute, held: Held, alias: str) -> str:
    """When a value belongs to a row of the lookup table."""
    if isinstance(attribute, Numeric):
        return f"{held.value} >= {alias}.low AND {held.value} < {alias}.high"
    return f"{held.value} = {alias}.val"


# Codes of cells

OTHER_VALUE: Final = -1
MISSING_VALUE: Final = -2
UNPARSED_VALUE: Final = -3
"""What stands in place of the grid value of a record without a number."""

_SECONDS: Final = {"minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_EPOCH: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = 86_400_000_000  # microseconds


def always_kept(attribute: Attribute) -> bool:
    """Whether no value of the attribute can drop a record."""
    return attribute.keeps_every_record


def cell_code(
    attribute: Attribute, held: Held, engine: Engine, looked_up: str | None = None
) -> str:
    """The cell of each value, null where the record is dropped.

    ``looked_up`` is the code that a lookup table gave, if there is one: null for undeclared values.
    Of `Values` it is the value on the public grid, 0 to 2^UNIT_BITS, or `OTHER_VALUE` or
    `MISSING_VALUE`.
    """
    if isinstance(attribute, Values):
        return _grid_value(attribute, held, engine)
    if isinstance(attribute, Category):
        code = listed_code(attribute, held, engine) if looked_up is None else looked_up
        return _ruled(attribute, held.is_null, code)
    if isinstance(attribute, Boolean):
        inside = _where(f"{held.value} BETWEEN 0 AND 1", held.value)
        return _ruled(attribute, held.is_null, inside)
    if isinstance(attribute, Integer):
        return _integer(attribute, held, engine)
    if isinstance(attribute, Numeric):
        return _numeric(attribute, held, engine, looked_up)
    if isinstance(attribute, DateTime):
        return _datetime(attribute, held, engine)
    raise TypeError(f"no encoding for {type(attribute).__name__}")


def _ruled(attribute: Attribute, is_null: str, code: str) -> str:
    """The rules of the schema around a code that is null for all but declared values."""
    missing, other = attribute.null_cell, attribute.outside_cell
    if other is not None:
        return f"CASE WHEN {is_null} THEN {_code(missing)} ELSE COALESCE({code}, {other}) END"
    return code if missing is None else f"CASE WHEN {is_null} THEN {missing} ELSE {code} END"


def _clamped(attribute: Attribute, is_null: str, code: str, is_below: str, is_above: str) -> str:
    """The rules of the schema, with values outside the range in its first and last bins if so."""
    if attribute.outside != "clamp":
        return _ruled(attribute, is_null, code)
    missing = _code(attribute.null_cell)
    return (
        f"CASE WHEN {is_null} THEN {missing} WHEN {is_below} THEN 0 "
        f"WHEN {is_above} THEN {attribute.value_count - 1} ELSE COALESCE({code}, {missing}) END"
    )


def _unparsed_code(attribute: Attribute) -> str:
    """The cell of a text that stands for no value, of `Values` what stands in place of one."""
    if not isinstance(attribute, Values):
        return _code(attribute.unparsed_cell)
    nulls = {"missing": MISSING_VALUE, "first": 0}.get(attribute.nulls)
    marks = {"null": nulls, "other": OTHER_VALUE, "cell": UNPARSED_VALUE}
    return _code(marks.get(attribute.unparsed or "drop"))


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


def _numeric(attribute: Numeric, held: Held, engine: Engine, code: str | None) -> str:
    value, edges = held.value, attribute.edges
    low, high = engine.float_literal(edges[0]), engine.float_literal(edges[-1])
    if code is None:
        code = engine.bin(value, edges)
        assert code is not None  # noqa: S101  needs_lookup
        code = _where(f"{value} BETWEEN {low} AND {high}", code)
    return _clamped(attribute, held.is_null, code, f"{value} < {low}", f"{value} > {high}")


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
    missing = _code({"missing": MISSING_VALUE, "first": 0}.get(of.nulls))
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
    if attribute.timezone is not None and held.is_instant:
        moment = _local(attribute, moment, engine)
    inside = _where(f"{moment} >= {start} AND {moment} < {end}", moment)
    code = _step(attribute, inside, engine)
    return _clamped(attribute, held.is_null, code, f"{moment} < {start}", f"{moment} >= {end}")


def _local(attribute: DateTime, instant: str, engine: Engine) -> str:
    """What clocks of the zone of the attribute show, the same on every engine."""
    changes, offsets = zone_offsets(str(attribute.timezone), attribute.start, attribute.end)
    return engine.local_moment(instant, changes, offsets)


def _step(attribute: DateTime, moment: str, engine: Engine) -> str:
    """The number of whole steps from the start to the moment.

    Shifted back by what the start lies after a month begins, every step begins with a month, so
    that the calendar numbers the steps exactly.
    """
    parts = attribute.step.split()
    count, unit = int(parts[0]) if len(parts) == 2 else 1, parts[-1]
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


# Records


def read_records(
    table: Table,
    domain: Domain,
    attributes: Iterable[str],
    unit: PrivacyUnit | None = None,
    random: WordSource | None = None,
) -> Records:
    """The codes of these attributes for every record that is kept; read once per table.

    Privacy: with a unit, the rows kept of one unit are a function of that unit's records and of a
    random key, drawn anew for every release (`Table.opened_again`): those with the smallest keyed
    hashes. Adding or removing a unit changes the rows of no other one, hence changes the histogram
    by at most ``unit.rows`` in L1, in at most ``unit.groups`` groups and by at most
    ``unit.rows_per_group`` in each. docs/proofs/units.md, Theorem 5.
    Neighbours: one unit more or less; without a unit, one row.
    """
    check_columns(table, domain, unit)
    wanted = domain.names if table.engine.reads_all else attributes
    names = read_as_values(domain, wanted)
    # Without units nothing is drawn, and whoever opens the table may have the same codes.
    holder = (table.origin or table) if unit is None else table
    held = holder.records
    if held is not None and held.domain == domain and held.unit == unit:
        if names <= held.attributes:
            return held
        names |= held.attributes
    if unit is not None:
        draw_secret(table, random)
    codes = _arrow_codes(table, domain, names) if unit is None else None
    if codes is None:
        name = sealed(
            lambda: _encoded_of_any(table, domain, names, unit), engine_failed(table, domain)
        )
    else:
        columns = [f"c{domain.index(each)}" for each in codes.names]
        name = table.engine.upload(codes.as_table(columns))
    holder.records = Records(table.engine, name, domain, unit, names, codes)
    return holder.records


def _arrow_codes(table: Table, domain: Domain, names: frozenset[str]) -> Codes | None:
    """The codes of the kept records, by Arrow; None where the engine has to encode them.

    Privacy: none of its own. The codes are those of the engine, which is asked for them; which of
    two ways the table was read is seen in the time only.
    """
    if any(isinstance(domain[name], Fractional) for name in names):
        return None
    held = [a for a in domain if not isinstance(a, Moments)]
    needed = [a for a in held if a.name in names or not always_kept(a)]
    if any(isinstance(a, Fractional) for a in needed):
        return None
    read = [a.column for a in needed] or [domain.attributes[0].column]
    try:
        batches = table.batches(read)
        if batches is None:
            return None
        kinds = [None if a.column in table.untyped else batches.types[a.column] for a in needed]
        columns = ArrowColumns(
            list(zip(needed, kinds, strict=True)),
            domain.in_order(names),
            partial(_codes_of_values, table, domain),
        )
        return columns.encoded(batches.rows()) if columns.is_complete else None
    except Exception:  # whatever it is, it may quote rows, and the engine has its own way to read
        return None


def draw_secret(table: Table, random: WordSource | None = None) -> None:
    """Give a table the random key by which the rows of a unit are chosen, unless it has one."""
    if table.secret is None:
        source = system_words() if random is None else random
        table.secret = source.words(4).tobytes().hex()


def engine_failed(table: Table, domain: Domain) -> Callable[[], str]:
    """The message for an engine that gives up, whatever it was that it could not do."""
    return lambda: (
        f"the table {table.name} could not be counted over {listing(domain.names)}; check that it "
        "is complete and readable, and that its codes fit in memory"
    )


def _encoded_of_any(
    table: Table, domain: Domain, names: frozenset[str], unit: PrivacyUnit | None
) -> str:
    """The name of a table of the kept records; no value of theirs makes it unreadable.

    Privacy: none of its own. Whether a table can be read must not depend on its records; which of
    two ways it was read is seen in the time only.
    """
    try:
        return _encode(table, domain, names, unit)
    except Exception:
        if not table.has_careful_reader:
            raise
    return _encode(table, domain, names, unit, is_careful=True)


def _encode(
    table: Table,
    domain: Domain,
    names: frozenset[str],
    unit: PrivacyUnit | None,
    *,
    is_careful: bool = False,
) -> str:
    """The name of a table of the kept records, with a column c<i> per named attribute i."""
    engine = table.engine
    # Which rows of a unit are kept must not hang on what is asked: the hash covers all codes.
    held = [a for a in domain if not isinstance(a, Moments)]
    needed = [a for a in held if unit or a.name in names or not always_kept(a)]
    read = [a.column for a in needed] + ([unit.column] if unit else [])
    reading = table.read(read or [domain.attributes[0].column], is_careful=is_careful)
    uploads: list[str] = []
    try:
        query = _encoding(table, reading, domain, needed, unit, uploads)
        columns = [f"c{domain.index(name)}" for name in domain.in_order(names)]
        if unit is None:
            return filled(engine, reading, _selected(columns, query))
        codes = [f"c{domain.index(a.name)}" for a in needed]
        key = _uploaded(engine, secret_table(table), uploads)
        if reading.blocks is None:
            bounded = _bounded(engine, f"({query}) AS encoded", codes, unit, domain, key)
            return engine.keep(_selected(columns, bounded))
        whole = filled(engine, reading, query)
        name = engine.keep(_selected(columns, _bounded(engine, whole, codes, unit, domain, key)))
        engine.drop(whole)
        return name
    finally:
        for upload in uploads:
            engine.forget(upload)


def filled(engine: Engine, reading: ColumnReading, query: str) -> str:
    """A temporary table with the rows of every block."""
    if reading.blocks is None:
        return engine.keep(query)
    assert isinstance(engine, DuckDB)  # noqa: S101  which reads all files in blocks
    name = ""
    try:
        for _ in reading.blocks:
            if name:
                engine.add(name, query)
            else:
                name = engine.keep(query)
    except BaseException:
        if name:
            engine.drop(name)
        raise
    return name


def _encoding(
    table: Table,
    reading: ColumnReading,
    domain: Domain,
    needed: Sequence[Attribute],
    unit: PrivacyUnit | None,
    uploads: list[str],
) -> str:
    """SQL for the codes of the records that no rule drops, and their owner if there are units."""
    engine = table.engine
    beside: dict[str, str] = {}
    if unit is not None:
        column = engine.column(reading.places[-1])
        is_untyped = unit.column in table.untyped
        beside["owner"] = unit_text(
            column, table.types[unit.column], is_untyped, engine, table.texts
        )
    encoded = _coding(table, reading, domain, needed, beside, uploads)
    droppers = [f"c{domain.index(a.name)}" for a in needed if not always_kept(a)]
    return engine.complete(encoded, [*droppers, *beside])


def _coding(
    table: Table,
    reading: ColumnReading,
    domain: Domain,
    needed: Sequence[Attribute],
    beside: Mapping[str, str],
    uploads: list[str],
    kinds: Mapping[str, dt.DataType] | None = None,
) -> str:
    """SQL for the codes of all records, null where a rule drops them, and some columns beside.

    ``kinds`` are the types of columns that are not those of the table.
    """
    engine = table.engine
    values: dict[str, str] = {}
    columns: list[Held] = []
    unparsed: dict[int, str] = {}
    for i, attribute in enumerate(needed):
        column = engine.column(reading.places[i])
        kind = attribute.of if isinstance(attribute, Values) else attribute
        if attribute.column in table.untyped:
            made = interpreted(kind, column, engine, table.texts)
        else:
            held_kind = (kinds or {}).get(attribute.name, table.types[attribute.column])
            made = typed(kind, column, held_kind, engine)
        values[f"v{i}"] = made.value
        if made.is_null is not None:
            values[f"n{i}"] = made.is_null
        if attribute.unparsed is not None and attribute.column in table.untyped:
            # Records that could not be read are nulls; what a record says never is, but may be ''.
            if table.has_unreadable:
                values[f"u{i}"] = f"({column} IS NULL)"
            is_text = f"(v{i} IS NULL AND NOT n{i})"
            unparsed[i] = f"(u{i} OR {is_text})" if table.has_unreadable else is_text
        is_null = f"n{i}" if made.is_null else f"(v{i} IS NULL)"
        columns.append(Held(f"v{i}", made.form, is_null, made.is_instant))
    values |= beside
    made_values = ", ".join(f"{value} AS {name}" for name, value in values.items())
    # As a query of its own, so that each value is made once, however often it is used.
    rows = f"(SELECT {made_values or '1 AS one'} FROM {reading.rows} AS source) AS given"  # noqa: S608
    codes = {name: name for name in beside}
    for i, (attribute, held) in enumerate(zip(needed, columns, strict=True)):
        looked_up = None
        if needs_lookup(attribute, held, engine):
            # Each value stands in one row of the table, so that the join repeats no record.
            name = _uploaded(engine, values_table(attribute, held), uploads)
            rows += f" LEFT JOIN {name} AS l{i} ON {matches(attribute, held, f'l{i}')}"
            looked_up = f"l{i}.code"
        code = cell_code(attribute, held, engine, looked_up)
        if i in unparsed:
            code = f"CASE WHEN {unparsed[i]} THEN {_unparsed_code(attribute)} ELSE {code} END"
        most = 2**UNIT_BITS + 1 if isinstance(attribute, Values) else attribute.size
        codes[f"c{domain.index(attribute.name)}"] = f"CAST({code} AS {engine.integer(most)})"
    made_codes = ", ".join(f"{code} AS {name}" for name, code in codes.items())
    return f"SELECT {made_codes or '1 AS one'} FROM {rows}"  # noqa: S608


def _codes_of_values(
    table: Table, domain: Domain, attributes: Sequence[Attribute], values: Sequence[pa.Array]
) -> list[Integers]:
    """The codes of some values of each attribute, -1 where they drop a record; by one query."""
    import pyarrow as pa

    engine = table.engine
    assert isinstance(engine, DuckDB)  # noqa: S101  which counts all that Arrow reads
    longest = max(map(len, values))
    padded = [pa.concat_arrays([each, pa.nulls(longest - len(each), each.type)]) for each in values]
    names = [f"x{i}" for i in range(len(values))]
    rows = pa.table([*padded, pa.array(np.arange(longest))], names=[*names, "place"])
    uploads: list[str] = []
    try:
        source = _uploaded(engine, rows, uploads)
        types = engine.types(source)
        kinds = {a.name: types[x] for a, x in zip(attributes, names, strict=True)}
        query = _coding(
            table,
            ColumnReading(source, names),
            domain,
            attributes,
            {"place": "place"},
            uploads,
            kinds,
        )
        columns = [f"c{domain.index(a.name)}" for a in attributes]
        whole = ", ".join(f"COALESCE(CAST({c} AS BIGINT), -1) AS {c}" for c in columns)
        made = engine.fetch(f"SELECT place, {whole} FROM ({query}) AS coded", ["place", *columns])  # noqa: S608
    finally:
        for upload in uploads:
            engine.forget(upload)
    order = np.argsort(made["place"])
    pairs = zip(columns, values, strict=True)
    return [made[column][order][: len(each)] for column, each in pairs]


def _uploaded(engine: Engine, rows: pa.Table, uploads: list[str]) -> str:
    uploads.append(engine.upload(rows))
    return uploads[-1]


def secret_table(table: Table) -> pa.Table:
    """The key as a table of one row: no text of a query, plan or log of an engine holds it."""
    import pyarrow as pa

    return pa.table({"secret": [str(table.secret)]})


def _selected(columns: Sequence[str], rows: str) -> str:
    return f"SELECT {', '.join(columns) or '1 AS one'} FROM ({rows}) AS chosen"  # noqa: S608


def _bounded(
    engine: Engine, name: str, codes: Sequence[str], unit: PrivacyUnit, domain: Domain, key: str
) -> str:
    """SQL for the rows of each owner that are counted, those with the smallest keyed hashes.

    Equal rows of one owner are numbered, so that each of them counts as a draw of its own; which
    of them gets which number is of no consequence, for they are equal. Every row thus has a hash
    of its own, and every choice of ``unit.rows`` rows is equally likely. With groups, these are
    chosen first, by a hash of the owner and the group, then the rows inside each. The hashed text
    is the same on every engine.
    """
    twins = ", ".join(["owner", *codes])
    turn = engine.hashed(f"concat_ws(',', {', '.join(hashed_parts(codes))})")
    drawn = (
        f"SELECT *, {turn} AS turn FROM (SELECT *, "  # noqa: S608
        f"ROW_NUMBER() OVER (PARTITION BY {twins} ORDER BY owner) AS twin FROM {name}) AS numbered "
        f"CROSS JOIN {key} AS held"
    )
    if unit.groups is not None and unit.rows_per_group is not None:
        drawn = _in_groups(engine, drawn, [f"c{domain.index(n)}" for n in unit.by], unit)
        if unit.rows == unit.groups * unit.rows_per_group:
            return drawn
    return _first("owner", "turn", "place", drawn, unit.rows)


def _in_groups(engine: Engine, rows: str, by: Sequence[str], unit: PrivacyUnit) -> str:
    """At most so many groups of each owner, and so many rows in each of them.

    No two groups have one place: where their hashes are equal, their codes decide.
    """
    turn = engine.hashed(f"concat_ws(',', {', '.join(['secret', _GROUP, *by, 'owner'])})")
    order = ", ".join([turn, *by])
    groups = (
        f"SELECT *, DENSE_RANK() OVER (PARTITION BY owner ORDER BY {order}) AS group_place "  # noqa: S608
        f"FROM ({rows}) AS turned"
    )
    chosen = f"SELECT * FROM ({groups}) AS grouped WHERE group_place <= {unit.groups}"  # noqa: S608
    own = ", ".join(["owner", *by])
    return _first(own, "turn", "place_in_group", chosen, int(unit.rows_per_group or 0))


def _first(part: str, order: str, place: str, rows: str, most: int) -> str:
    """The first ``most`` rows of every part, in an order."""
    return (
        f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {part} ORDER BY {order}) "  # noqa: S608
        f"AS {place} FROM ({rows}) AS ordered) AS placed WHERE {place} <= {most}"
    )


_GROUP: Final = "'group'"  # where a row has the number among its equals: no text is of both


def hashed_parts(codes: Sequence[str]) -> list[str]:
    """The texts that the keyed hash of a row is made from; the owner last, who may hold a comma."""
    return ["secret", "twin", *codes, "owner"]
