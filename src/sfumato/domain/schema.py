# SPDX-License-Identifier: Apache-2.0
"""The ``[domain.NAME]`` tables of a TOML file: read into attributes, and written from them.

One table per attribute; its ``kind`` decides which other keys it may have (the models below).
Faults name the file, the line and the key. What is written is read back to equal attributes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from fractions import Fraction
from itertools import groupby
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sfumato.domain.attributes import (
    Attribute,
    Boolean,
    Category,
    DateTime,
    Integer,
    Numeric,
    first_fall,
    first_repeat,
)
from sfumato.domain.domain_limits import LIMITS
from sfumato.domain.levels import hierarchy_values, levels_from
from sfumato.errors import SchemaError
from sfumato.text import did_you_mean, got, shown
from sfumato.toml import STRICT, KeyPath, TomlFile, toml_key, toml_text, validated

__all__ = [
    "FILL_IN",
    "attribute_table",
    "declared_attributes",
    "toml_list",
    "toml_value",
]

FILL_IN: Final = "FILL IN: "
"""How ``draft`` starts a placeholder; the rest of the text says what to fill in."""


def _moment(value: object) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    what = "a time without a date" if isinstance(value, time) else got(value)
    raise ValueError(f"expected a date such as 2024-01-31 or 2024-01-31T08:00:00, got {what}")


def _no_truth_values(values: object) -> object:
    if isinstance(values, list) and any(isinstance(v, bool) for v in values):
        raise ValueError('true and false are no values of a category; use kind = "boolean"')
    return values


Moment = Annotated[datetime, BeforeValidator(_moment)]


class _AttributeTable(BaseModel):
    model_config = ConfigDict(**STRICT)

    outside: Literal["drop", "other", "clamp"] = "drop"
    nulls: Literal["drop", "missing"] = "drop"
    levels: dict[str, dict[str, object]] = Field(default_factory=dict)


class _CategoryTable(_AttributeTable):
    kind: Literal["category"]
    outside: Literal["drop", "other"] = "drop"
    values: Annotated[list[str | int], Field(fail_fast=True), BeforeValidator(_no_truth_values)]


class _HierarchyTable(_AttributeTable):
    kind: Literal["hierarchy"]
    outside: Literal["drop", "other"] = "drop"


class _BooleanTable(_AttributeTable):
    kind: Literal["boolean"]
    outside: Literal["drop", "other"] = "drop"


class _IntegerTable(_AttributeTable):
    kind: Literal["integer"]
    min: int
    max: int
    width: int = 1


class _NumericTable(_AttributeTable):
    kind: Literal["numeric"]
    edges: Annotated[list[float], Field(fail_fast=True)] | None = None
    min: float | None = None
    max: float | None = None
    bins: Annotated[int, Field(ge=1, le=LIMITS.bins)] | None = None


class _DateTimeTable(_AttributeTable):
    kind: Literal["datetime"]
    start: Moment
    end: Moment
    step: str = "day"


_TABLES: Final[dict[str, type[_AttributeTable]]] = {
    "category": _CategoryTable,
    "hierarchy": _HierarchyTable,
    "integer": _IntegerTable,
    "numeric": _NumericTable,
    "datetime": _DateTimeTable,
    "boolean": _BooleanTable,
}


def declared_attributes(file: TomlFile) -> list[Attribute]:
    """Return the attributes that the ``[domain.NAME]`` tables of a TOML document declare."""
    tables = file.data.get("domain")
    if not isinstance(tables, Mapping) or not tables:
        raise _no_tables(file)
    if len(tables) > LIMITS.attributes:
        raise file.error(
            f"{len(tables):,} attributes are declared, the most are {LIMITS.attributes:,}; leave "
            "out columns that nothing is asked about",
            ("domain",),
        )
    _require_filled_in(tables, file)
    attributes, faults = list[Attribute](), list[str]()
    for name, table in tables.items():
        try:
            attributes.append(_attribute(name, table, file))
        except SchemaError as error:
            faults.append(str(error))
    if faults:
        raise SchemaError("\n".join(faults))
    return attributes


def _no_tables(file: TomlFile) -> SchemaError:
    near = [key for key in file.data if key != "domain" and did_you_mean(key, ["domain"])]
    key = "domain" if "domain" in file.data else near[0] if near else None
    return file.error(
        "there are no tables [domain.NAME]"
        + (f" but there is {shown(key)}; did you mean 'domain'?" if near else ";")
        + ' declare one for each attribute, for example [domain.sex] with kind = "category" and '
        'values = ["Female", "Male"]',
        () if key is None else (key,),
    )


def _require_filled_in(tables: Mapping[str, object], file: TomlFile) -> None:
    """Refuse a draft that still holds placeholders, naming all of them at once."""
    placeholders = [
        str(file.error(f"not filled in yet; write here {row[len(FILL_IN) :]}", at))
        for name, table in tables.items()
        if isinstance(table, Mapping)
        for key, row in table.items()
        if isinstance(row, str) and row.startswith(FILL_IN)
        for at in [("domain", name, key)]
    ]
    if placeholders:
        raise SchemaError("\n".join(placeholders))


def _attribute(name: str, table: object, file: TomlFile) -> Attribute:
    at: KeyPath = ("domain", name)
    if not isinstance(table, Mapping):
        raise file.error(
            f"expected a table that declares an attribute, got {got(table)}; write "
            f'[domain.{name}] and below it kind = "..."',
            at,
        )
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in _TABLES:
        fault = f"got {got(kind)}" if "kind" in table else "it is missing"
        raise file.error(
            f"the key 'kind' must be one of {', '.join(map(repr, _TABLES))}; {fault}"
            f"{did_you_mean(kind, _TABLES)}",
            (*at, "kind"),
        )
    read = _spelled_out(validated(_TABLES[kind], table, file, at), file, at)
    try:
        attribute = _built(name, read)
    except SchemaError as error:
        raise _placed(error, name, table, file, at) from None
    levels = levels_from(attribute, read.levels, file, (*at, "levels"))
    return replace(attribute, levels=levels)


def _spelled_out(read: _AttributeTable, file: TomlFile, at: KeyPath) -> _AttributeTable:
    """The table with its values listed and its edges written out."""
    if isinstance(read, _HierarchyTable):
        values = hierarchy_values(read.levels, file, (*at, "levels"))
        return _CategoryTable.model_construct(
            kind="category",
            values=values,
            outside=read.outside,
            nulls=read.nulls,
            levels=read.levels,
        )
    if isinstance(read, _NumericTable):
        return read.model_copy(update={"edges": _edges(read, file, at)})
    return read


def _built(name: str, read: _AttributeTable) -> Attribute:
    outside, nulls = read.outside, read.nulls
    if isinstance(read, _CategoryTable):
        return Category(name, tuple(read.values), outside=outside, nulls=nulls)
    if isinstance(read, _IntegerTable):
        return Integer(name, read.min, read.max, read.width, outside=outside, nulls=nulls)
    if isinstance(read, _NumericTable):
        return Numeric(name, tuple(read.edges or ()), outside=outside, nulls=nulls)
    if isinstance(read, _DateTimeTable):
        return DateTime(name, read.start, read.end, read.step, outside=outside, nulls=nulls)
    return Boolean(name, outside=outside, nulls=nulls)


def _edges(read: _NumericTable, file: TomlFile, at: KeyPath) -> list[float]:
    """The edges of the table, or those of ``bins`` equal bins (1 by default) of its range.

    Sums and means take the values themselves, so that a range alone is enough for them.
    """
    equal = {"min": read.min, "max": read.max, "bins": read.bins}
    keys = [key for key, value in equal.items() if value is not None]
    if read.edges is not None and keys:
        raise file.error(
            f"edges are given, so {' and '.join(keys)} must not be; keep one or the other",
            (*at, keys[0]),
        )
    if read.edges is not None:
        return read.edges
    if read.min is None or read.max is None:
        missing = [key for key in ("min", "max") if key not in keys]
        raise file.error(
            "the range is not given; write min and max, with bins = N for N equal bins if tables "
            f"are asked for, or edges = [...] (missing: {', '.join(missing)})",
            at,
        )
    bins = read.bins or 1
    for key, bound in (("min", read.min), ("max", read.max)):
        if not math.isfinite(bound):
            raise file.error(f"expected a finite number, got {bound!r}", (*at, key))
    if not read.min < read.max:
        raise file.error(
            f"expected a number above min = {read.min!r}, got {read.max!r}", (*at, "max")
        )
    # Exact arithmetic on the decimals as written, so that 0 to 1 in 10 bins has the edge 0.3.
    low, high = Fraction(repr(read.min)), Fraction(repr(read.max))
    # Quotients of integers are rounded correctly, and far faster than fractions.
    below = low.denominator * high.denominator * bins
    first, step = (int(x * below) for x in (low, (high - low) / bins))
    edges = [(first + step * i) / below for i in range(bins + 1)]
    if first_fall(edges) is not None:
        raise file.error(
            f"{bins} bins between {read.min!r} and {read.max!r} are narrower than numbers can "
            "tell apart; ask for fewer",
            (*at, "bins"),
        )
    return edges


def _placed(
    error: SchemaError, name: str, table: Mapping[str, object], file: TomlFile, at: KeyPath
) -> SchemaError:
    """A fault of an attribute, with the line of the key that its message begins with."""
    message = str(error).removeprefix(f"attribute {name!r}: ")
    key = message.split(maxsplit=1)[0].rstrip(":")
    if key not in table:
        return file.error(message, at)
    position = None
    entries = table[key]
    if isinstance(entries, list):
        position = first_repeat(entries) if key == "values" else first_fall(entries)
    return file.error(message, (*at, key) if position is None else (*at, key, position))


def attribute_table(attribute: Attribute) -> str:
    """Return the table ``[domain.NAME]`` that declares an attribute."""
    header = f"domain.{toml_key(attribute.name)}"
    lines = [f"[{header}]", f'kind = "{attribute.kind}"', *_own_keys(attribute)]
    if attribute.outside != "drop":
        lines.append(f'outside = "{attribute.outside}"')
    if attribute.nulls != "drop":
        lines.append(f'nulls = "{attribute.nulls}"')
    for level in attribute.levels:
        members: list[list[int]] = [[] for _ in level.groups]
        for code, group in enumerate(level.group_of):
            if group >= 0:
                members[group].append(code)
        lines += ["", f"[{header}.levels.{toml_key(level.name)}]"]
        lines += [
            f"{toml_key(group)} = {_members(attribute, codes)}"
            for group, codes in zip(level.groups, members, strict=True)
        ]
    return "\n".join([*lines, ""])


def _own_keys(attribute: Attribute) -> list[str]:
    if isinstance(attribute, Category):
        return [f"values = {toml_list(attribute.values)}"]
    if isinstance(attribute, Integer):
        width = [] if attribute.width == 1 else [f"width = {attribute.width}"]
        return [f"min = {attribute.min}", f"max = {attribute.max}", *width]
    if isinstance(attribute, Numeric):
        return [f"edges = {toml_list(attribute.edges)}"]
    if isinstance(attribute, DateTime):
        return [
            f"start = {toml_value(attribute.start)}",
            f"end = {toml_value(attribute.end)}",
            f"step = {toml_value(attribute.step)}",
        ]
    return []


def _members(attribute: Attribute, codes: Sequence[int]) -> str:
    """The members of a group: values, or one pair per run of consecutive bins."""
    if not isinstance(attribute, Integer | Numeric | DateTime):
        return toml_list([attribute.label(code) for code in codes])
    # Along a run of consecutive codes, code - position is constant.
    runs = [
        [code for _, code in run]
        for _, run in groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0])
    ]
    pairs = [_pair(attribute, run[0], run[-1]) for run in runs]
    return toml_list(pairs[0] if len(pairs) == 1 else pairs)


def _pair(attribute: Integer | Numeric | DateTime, first: int, last: int) -> list[object]:
    """The bounds of consecutive bins, as ``levels`` reads them."""
    if isinstance(attribute, Integer):
        return [attribute.bounds(first)[0], attribute.bounds(last)[1]]
    if isinstance(attribute, Numeric):
        return [attribute.edges[first], attribute.edges[last + 1]]
    is_last = last + 1 == attribute.value_count
    return [attribute.bin_start(first), attribute.end if is_last else attribute.bin_start(last + 1)]


def toml_list(values: Sequence[object]) -> str:
    """Return a list as TOML, broken into lines when it is long."""
    entries = [toml_value(v) for v in values]
    flat = f"[{', '.join(entries)}]"
    if len(flat) <= LIMITS.line_characters - 20:
        return flat
    rows = [""]
    for entry in entries:
        if rows[-1] and len(rows[-1]) + len(entry) + 3 > LIMITS.line_characters - 2:
            rows.append("")
        rows[-1] += f" {entry}," if rows[-1] else f"  {entry},"
    return "\n".join(["[", *rows, "]"])


def toml_value(value: object) -> str:
    """Return a text, number, truth value, date or list as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return toml_text(value)
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time.min else value.isoformat()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, int | float):
        return repr(value)
    raise SchemaError(f"{shown(value)} cannot be written as TOML")
