# SPDX-License-Identifier: Apache-2.0
"""Read a domain from the ``[domain.NAME]`` tables of a TOML file.

One table per attribute; its ``kind`` decides which other keys it may have (the models below).
Faults name the file, the line and the key. The reverse is ``write.write_domain``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, time
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sfumato.domain.attributes import Attribute, Boolean, Category, DateTime, Integer, Numeric
from sfumato.domain.domain import MOST_ATTRIBUTES, Domain
from sfumato.domain.levels import hierarchy_values, levels_from
from sfumato.domain.listed import first_repeat
from sfumato.domain.ordered import first_fall
from sfumato.domain.write import write_domain
from sfumato.errors import SchemaError
from sfumato.tomlfile import STRICT, KeyPath, TomlFile, read_toml, validated
from sfumato.wording import did_you_mean, got, shown

__all__ = ["FILL_IN", "MOST_BINS", "domain_from", "read_domain", "write_domain"]

FILL_IN: Final = "FILL IN: "
"""How ``draft`` starts a placeholder; the rest of the text says what to fill in."""

MOST_BINS: Final = 1_000_000
"""The most bins that ``bins = N`` may ask for."""


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


class _Table(BaseModel):
    model_config = ConfigDict(**STRICT)

    outside: Literal["drop", "other", "clamp"] = "drop"
    nulls: Literal["drop", "missing"] = "drop"
    levels: dict[str, dict[str, object]] = Field(default_factory=dict)


class _CategoryTable(_Table):
    kind: Literal["category"]
    outside: Literal["drop", "other"] = "drop"
    values: Annotated[list[str | int], Field(fail_fast=True), BeforeValidator(_no_truth_values)]


class _HierarchyTable(_Table):
    kind: Literal["hierarchy"]
    outside: Literal["drop", "other"] = "drop"


class _BooleanTable(_Table):
    kind: Literal["boolean"]
    outside: Literal["drop", "other"] = "drop"


class _IntegerTable(_Table):
    kind: Literal["integer"]
    min: int
    max: int
    width: int = 1


class _NumericTable(_Table):
    kind: Literal["numeric"]
    edges: Annotated[list[float], Field(fail_fast=True)] | None = None
    min: float | None = None
    max: float | None = None
    bins: Annotated[int, Field(ge=1, le=MOST_BINS)] | None = None


class _DateTimeTable(_Table):
    kind: Literal["datetime"]
    start: Moment
    end: Moment
    step: str = "day"


_TABLES: Final[dict[str, type[_Table]]] = {
    "category": _CategoryTable,
    "hierarchy": _HierarchyTable,
    "integer": _IntegerTable,
    "numeric": _NumericTable,
    "datetime": _DateTimeTable,
    "boolean": _BooleanTable,
}


def read_domain(path: str | Path) -> Domain:
    """The domain that the ``[domain.NAME]`` tables of a TOML file declare."""
    return domain_from(read_toml(path))


def domain_from(file: TomlFile) -> Domain:
    """The domain that the ``[domain.NAME]`` tables of a TOML document declare.

    >>> from sfumato.tomlfile import parse_toml
    >>> domain_from(parse_toml('[domain.sex]\\nkind = "category"\\nvalues = ["Female", "Male"]'))
    Domain({sex: 2})
    """
    tables = file.data.get("domain")
    if not isinstance(tables, Mapping) or not tables:
        raise _no_tables(file)
    if len(tables) > MOST_ATTRIBUTES:
        raise file.error(
            f"{len(tables):,} attributes are declared, the most are {MOST_ATTRIBUTES:,}; leave out "
            "columns that nothing is asked about",
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
    return Domain(attributes)


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
    found = [
        str(file.error(f"not filled in yet; write here {row[len(FILL_IN) :]}", at))
        for name, table in tables.items()
        if isinstance(table, Mapping)
        for key, row in table.items()
        if isinstance(row, str) and row.startswith(FILL_IN)
        for at in [("domain", name, key)]
    ]
    if found:
        raise SchemaError("\n".join(found))


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
        found = f"got {got(kind)}" if "kind" in table else "it is missing"
        raise file.error(
            f"the key 'kind' must be one of {', '.join(map(repr, _TABLES))}; {found}"
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


def _spelled_out(read: _Table, file: TomlFile, at: KeyPath) -> _Table:
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


def _built(name: str, read: _Table) -> Attribute:
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
    """The edges as given, or those of ``bins`` equal bins from ``min`` to ``max``: one if not told.

    Sums and means take the values themselves, so that a range alone is enough for them.
    """
    equal = {"min": read.min, "max": read.max, "bins": read.bins}
    given = [key for key, value in equal.items() if value is not None]
    if read.edges is not None and given:
        raise file.error(
            f"edges are given, so {' and '.join(given)} must not be; keep one or the other",
            (*at, given[0]),
        )
    if read.edges is not None:
        return read.edges
    if read.min is None or read.max is None:
        missing = [key for key in ("min", "max") if key not in given]
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
