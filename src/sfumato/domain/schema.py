# SPDX-License-Identifier: Apache-2.0
"""The ``[domain.NAME]`` tables of a TOML file: read into attributes, and written from them.

One table per attribute; its ``kind`` decides which other keys it may have (the models below).
Faults name the file, the line and the key. What is written is read back to equal attributes.

Hierarchies stand in ``[domain.NAME.levels.LEVEL]``, a public map to groups, in two forms.
*By group*, for every kind: ``group = members``, where a member is

    category, boolean   a value                         Americas = ["Canada", "Mexico"]
    integer             a number, "18-24", "65+", or    young = [18, 24]       (both included)
                        a pair [low, high]              odd = ["1", "3", "5"]
    numeric             a pair of edges                 low = [0, 1000]        (bins between them)
    datetime            a pair of starts of steps       spring = [2024-03-01, 2024-06-01]
    any                 a group of another level        world = ["Americas", "Asia"]

*By value*, for categories: ``value = "group"``. A value of the attribute comes before a group of
the same name; ``of = "LEVEL"`` says of which level the members are groups.
"""

from __future__ import annotations

import bisect
import math
import re
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sfumato.domain.attributes import (
    DISCOVER,
    OPEN_KINDS,
    Attribute,
    Boolean,
    Category,
    DateTime,
    Duration,
    Integer,
    Level,
    Numeric,
    Outside,
    Unparsed,
    first_fall,
    first_repeat,
)
from sfumato.domain.code_books import PUBLIC_LISTS, CodeBook, code_book, public_list
from sfumato.domain.domain_limits import LIMITS
from sfumato.errors import SchemaError
from sfumato.text import did_you_mean, got, listing, shown
from sfumato.toml import STRICT, KeyPath, TomlFile, toml_key, toml_text, validated

if TYPE_CHECKING:
    from sfumato.domain.discovery import OpenAttribute

__all__ = [
    "FILL_IN",
    "attribute_table",
    "declared_attributes",
    "declared_members",
    "domain_json_schema",
    "hierarchy_values",
    "levels_from",
    "toml_list",
    "toml_value",
]

LevelTables = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class _Member:
    """One member of a group as written, and where it stands in the file."""

    group: str
    item: object
    at: KeyPath


@dataclass(frozen=True, slots=True)
class _LevelTable:
    """One level as written: its groups and their numbers, and their members."""

    of: str | None
    groups: Mapping[str, int]
    members: tuple[_Member, ...]


@dataclass(frozen=True, slots=True)
class _Levels:
    """The levels of one attribute, resolved one by one because they may build on each other."""

    attribute: Attribute
    tables: Mapping[str, _LevelTable]
    file: TomlFile
    at: KeyPath
    done: dict[str, Level] = field(default_factory=dict)
    members: dict[str, list[list[int]]] = field(default_factory=dict)  # per group, its codes

    def resolve(self, name: str, path: tuple[str, ...] = ()) -> Level:
        if name in self.done:
            return self.done[name]
        table = self.tables[name]
        if name in path:
            circle = " -> ".join(map(repr, (*path[path.index(name) :], name)))
            raise self.file.error(f"the levels build on each other in a circle: {circle}", self.at)
        groups = tuple(table.groups)
        group_of = [-1] * self.attribute.value_count
        for member in table.members:
            mine = table.groups[member.group]
            for code in self._codes(name, member, (*path, name)):
                if group_of[code] not in (-1, mine):
                    raise self.file.error(
                        f"{shown(self.attribute.label(code))} is in two groups of one level, "
                        f"{groups[group_of[code]]!r} and {member.group!r}; keep it in one",
                        member.at,
                    )
                group_of[code] = mine
        try:
            self.done[name] = Level(name, groups, tuple(group_of))
        except SchemaError as error:
            raise self.file.error(str(error), (*self.at, name)) from None
        members = self.members.setdefault(name, [[] for _ in groups])
        for code, group in enumerate(group_of):
            if group >= 0:
                members[group].append(code)
        return self.done[name]

    def _codes(self, name: str, member: _Member, path: tuple[str, ...]) -> range | list[int]:
        of = self.tables[name].of
        if of is None:
            try:
                codes = _codes_of(self.attribute, member.item)
            except SchemaError as error:
                raise self.file.error(str(error), member.at) from None
            if codes is not None:
                return codes
        candidates = [of] if of is not None else [n for n in self.tables if n != name]
        is_name = isinstance(member.item, str)
        homes = [n for n in candidates if is_name and member.item in self.tables[n].groups]
        if len(homes) > 1:
            raise self.file.error(
                f"{got(member.item)} is a group of {len(homes)} levels ({listing(homes)}); add "
                f'of = "{homes[0]}" to say which is meant',
                member.at,
            )
        if not homes:
            raise self._unknown(member, candidates, of)
        self.resolve(homes[0], path)
        return self.members[homes[0]][self.tables[homes[0]].groups[str(member.item)]]

    def _unknown(self, member: _Member, candidates: list[str], of: str | None) -> SchemaError:
        names: list[object] = [g for n in candidates for g in self.tables[n].groups]
        what = f"a group of the level {of!r}"
        if of is None:
            what = _EXPECTED_MEMBER[self.attribute.kind]
            names += self.attribute.values if isinstance(self.attribute, Category) else ()
        near = did_you_mean(member.item, names)
        return self.file.error(f"expected {what}, got {got(member.item)}{near}", member.at)


_EXPECTED_MEMBER = {
    "category": "a value of the attribute or a group of another level",
    "boolean": "true or false",
    "integer": 'an integer, a range ("18-24", "65+", [18, 24]) or a group of another level',
    "numeric": "a pair of edges [low, high] or a group of another level",
    "datetime": "a pair of dates [start, end] or a group of another level",
}


def levels_from(
    attribute: Attribute, tables: LevelTables, file: TomlFile, at: KeyPath
) -> tuple[Level, ...]:
    """Return the levels of an attribute from its tables; ``at`` is where they stand in the file."""
    if tables and attribute.value_count > LIMITS.values_grouped:
        raise file.error(
            f"levels need an attribute of at most {LIMITS.values_grouped:,} values, this one has "
            f"{attribute.value_count:,}; give it wider bins",
            at,
        )
    if len(tables) > LIMITS.levels:
        raise file.error(f"at most {LIMITS.levels} levels are allowed, got {len(tables)}", at)
    points = _POINTS.get(attribute.kind, ())
    by_value = isinstance(attribute, Category)
    read = {
        name: _table(table, file, (*at, name), tables.keys(), points, by_value)
        for name, table in tables.items()
    }
    levels = _Levels(attribute, read, file, at)
    return tuple(levels.resolve(name) for name in tables)


def hierarchy_values(tables: LevelTables, file: TomlFile, at: KeyPath) -> list[str | int]:
    """Return the values of ``kind = "hierarchy"``: the members of its innermost level, in order.

    That is the first level whose members are not all groups of other levels.
    """
    read = {
        name: _table(table, file, (*at, name), tables.keys(), (), True)
        for name, table in tables.items()
    }
    for name, table in read.items():
        groups = {g for n, t in read.items() if n != name for g in t.groups}
        items = [m.item for m in table.members]
        if table.of is not None or all(isinstance(i, str) and i in groups for i in items):
            continue
        values: dict[str | int, None] = {}
        for member in table.members:
            if isinstance(member.item, bool) or not isinstance(member.item, str | int):
                raise file.error(
                    f"expected a value (a text or an integer), got {got(member.item)}", member.at
                )
            values[member.item] = None
        return list(values)
    raise file.error(
        'kind = "hierarchy" takes its values from a level that maps each value to a group, and '
        "there is none; add a table such as [domain.NAME.levels.region] with lines "
        'group = ["value", ...]',
        at[:-1],
    )


def _table(
    table: Mapping[str, object],
    file: TomlFile,
    at: KeyPath,
    levels: Collection[str],
    points: tuple[type, ...],
    may_be_by_value: bool,
) -> _LevelTable:
    """Read one level; ``points`` are the types of which a list of two is one pair [low, high]."""
    of, rows = _without_of(table, file, at, levels, may_be_by_value)
    if not rows:
        raise file.error("the level lists no groups; add lines such as group = [...]", at)
    texts = [key for key, row in rows.items() if isinstance(row, str)]
    if may_be_by_value and len(texts) == len(rows):
        by_value = tuple(_Member(str(group), value, (*at, value)) for value, group in rows.items())
        return _LevelTable(of, _numbered(m.group for m in by_value), by_value)
    if may_be_by_value and texts:
        raise file.error(
            "one level is written in two ways; write all its lines as group = [values] or all as "
            "value = group",
            (*at, texts[0]),
        )
    members: list[_Member] = []
    for group, row in rows.items():
        is_pair = isinstance(row, list) and len(row) == 2 and all(_is_a(i, points) for i in row)
        if is_pair or not isinstance(row, list):
            members.append(_Member(group, row, (*at, group)))
        else:
            members += [_Member(group, item, (*at, group, i)) for i, item in enumerate(row)]
    return _LevelTable(of, _numbered(rows), tuple(members))


def _numbered(groups: Iterable[str]) -> dict[str, int]:
    return {group: number for number, group in enumerate(dict.fromkeys(groups))}


def _without_of(
    table: Mapping[str, object],
    file: TomlFile,
    at: KeyPath,
    levels: Collection[str],
    may_be_by_value: bool,
) -> tuple[str | None, dict[str, object]]:
    """The level that ``of`` names, and the other lines.

    ``of = [...]`` is a group of that name. In a level written by value, ``of = "x"`` is a value
    of that name unless x is a level.
    """
    of = table.get("of")
    rows = {key: row for key, row in table.items() if key != "of"}
    others = [name for name in levels if name != at[-1]]
    is_by_value = may_be_by_value and all(isinstance(row, str) for row in rows.values())
    if not isinstance(of, str) or (is_by_value and of not in others):
        return None, dict(table)
    if of not in others:
        raise file.error(
            f"there is no other level {shown(of)}; the other levels are: "
            f"{listing(others) or 'none'}{did_you_mean(of, others)}",
            (*at, "of"),
        )
    return of, rows


_POINTS: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "numeric": (int, float),
    "datetime": (date,),
}


def _is_a(value: object, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and not isinstance(value, bool)


def _codes_of(attribute: Attribute, item: object) -> range | None:
    """The declared values that a member means, or None when it is not a value of the attribute."""
    if isinstance(attribute, Category):
        return _listed(attribute, item)
    if isinstance(attribute, Boolean):
        return range(item, item + 1) if isinstance(item, bool) else None
    if isinstance(attribute, Integer) and (isinstance(item, str) or _is_a(item, (int,))):
        return _integers(attribute, str(item) if _fits(item) else "")
    if not isinstance(item, list) or len(item) != 2:
        return None
    if not all(_is_a(i, _POINTS[attribute.kind]) for i in item):
        return None
    if isinstance(attribute, Integer):
        return _whole_bins(attribute, item[0], item[1])
    if isinstance(attribute, Numeric):
        return _between_edges(attribute, item[0], item[1])
    return _between_steps(attribute, item[0], item[1]) if isinstance(attribute, DateTime) else None


def _listed(attribute: Category, item: object) -> range | None:
    if isinstance(item, str) and isinstance(attribute.values[0], int):
        item = int(item) if re.fullmatch(r"-?[0-9]{1,38}", item) else item  # keys are texts
    code = attribute.code(item)
    return None if code is None else range(code, code + 1)


_RANGE = re.compile(
    r"(?P<low>-?[0-9]{1,38}) (?:\ *(?: - | \.\. | to )\ *(?P<high>-?[0-9]{1,38}) | (?P<up>\+))?",
    re.VERBOSE,
)


def _fits(item: object) -> bool:
    return isinstance(item, str) or (isinstance(item, int) and abs(item) < 10**38)


def _integers(attribute: Integer, text: str) -> range | None:
    match = _RANGE.fullmatch(text.strip())
    if not match:
        return None
    low = int(match["low"])
    high = attribute.max if match["up"] else int(match["high"] or low)
    return _whole_bins(attribute, low, high)


def _whole_bins(attribute: Integer, low: int, high: int) -> range:
    if not attribute.min <= low <= high <= attribute.max:
        raise SchemaError(
            f"expected a range that rises and lies in {attribute.min} to {attribute.max}, got "
            f"{shown(low)} to {shown(high)}"
        )
    first, last = ((v - attribute.min) // attribute.width for v in (low, high))
    whole = attribute.bounds(first)[0], attribute.bounds(last)[1]
    if whole != (low, high):
        raise SchemaError(
            f"{low} to {high} would cut a bin of width {attribute.width}; the whole bins around it "
            f"are {whole[0]} to {whole[1]}"
        )
    return range(first, last + 1)


def _between_edges(attribute: Numeric, low: float, high: float) -> range:
    if low not in attribute.edges or high not in attribute.edges or not low < high:
        raise SchemaError(
            f"expected two edges of the attribute, the lower one first, got {shown([low, high])}"
        )
    return range(*(bisect.bisect_left(attribute.edges, e) for e in (low, high)))


def _between_steps(attribute: DateTime, start: date, end: date) -> range:
    moments = [
        m if isinstance(m, datetime) else datetime(m.year, m.month, m.day) for m in (start, end)
    ]
    is_inside = (
        all(m.tzinfo is None for m in moments)
        and attribute.start <= moments[0] < moments[1] <= attribute.end
    )
    first, last = map(attribute.bins_before, moments) if is_inside else (None, None)
    if first is None or last is None:
        raise SchemaError(
            f"expected the start of a step and a later one (not included) between "
            f"{attribute.start} and {attribute.end}, got {start} and {end}"
        )
    return range(first, last)


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

    outside: Outside = "drop"
    nulls: Literal["drop", "missing", "first"] = "drop"
    levels: dict[str, dict[str, object]] = Field(default_factory=dict)
    column: Annotated[str, Field(min_length=1)] | None = None
    unparsed: Unparsed | None = None


class _OrderedTable(_AttributeTable):
    outside: Literal["drop", "other", "clamp"] = "drop"


class _CategoryTable(_AttributeTable):
    kind: Literal["category"]
    outside: Literal["drop", "other", "first"] = "drop"
    values: (
        Annotated[list[str | int], Field(fail_fast=True), BeforeValidator(_no_truth_values)] | None
    ) = None
    public: Annotated[str | None, Field(alias="list")] = None
    values_file: Annotated[str, Field(min_length=1)] | None = None
    value_column: str | None = None
    value_type: Literal["text", "integer"] | None = None
    label_column: str | None = None
    level_columns: list[str] | None = None


class _HierarchyTable(_AttributeTable):
    kind: Literal["hierarchy"]
    outside: Literal["drop", "other", "first"] = "drop"


class _BooleanTable(_AttributeTable):
    kind: Literal["boolean"]
    outside: Literal["drop", "other", "first"] = "drop"


class _IntegerTable(_OrderedTable):
    kind: Literal["integer"]
    min: int
    max: int
    width: int = 1
    duration: Duration | None = None


class _NumericTable(_OrderedTable):
    kind: Literal["numeric"]
    edges: Annotated[list[float], Field(fail_fast=True)] | None = None
    min: float | None = None
    max: float | None = None
    bins: Annotated[int, Field(ge=1, le=LIMITS.bins)] | None = None
    duration: Duration | None = None


class _DateTimeTable(_OrderedTable):
    kind: Literal["datetime"]
    start: Moment
    end: Moment
    step: str = "day"
    timezone: Annotated[str, Field(min_length=1)] | None = None


class _OpenTable(BaseModel):
    """A table that says what is to be discovered."""

    model_config = ConfigDict(**STRICT)

    outside: Outside = "other"
    nulls: Literal["drop", "missing"] = "missing"

    @abstractmethod
    def opened(self, name: str) -> OpenAttribute:
        """What is to be discovered."""


class _OpenCategoryTable(_OpenTable):
    kind: Literal["category"]
    values: Literal["discover"]
    columns: list[str] | None = None
    outside: Literal["drop", "other"] = "other"
    most: Annotated[int, Field(ge=1, le=LIMITS.keys_published)] = LIMITS.keys_published

    def opened(self, name: str) -> OpenAttribute:
        columns = tuple(self.columns or [name])
        made: OpenAttribute = OPEN_KINDS["category"](
            columns, outside=self.outside, nulls=self.nulls, most=self.most
        )
        return made


class _OpenRangeTable(_OpenTable):
    outside: Literal["drop", "other", "clamp"] = "clamp"
    bins: Annotated[int, Field(ge=1, le=LIMITS.bins)] | None = None
    tails: float = 0.05

    def rules(self) -> dict[str, Any]:
        """What all ranges have."""
        return {
            "outside": self.outside,
            "nulls": self.nulls,
            "bins": self.bins,
            "tails": self.tails,
        }


def _declared(end: object) -> Any:
    """An end that is public knowledge; None if it is to be discovered."""
    return None if end == DISCOVER else end


class _OpenIntegerTable(_OpenRangeTable):
    kind: Literal["integer"]
    min: int | Literal["discover"] = DISCOVER
    max: int | Literal["discover"] = DISCOVER

    def opened(self, name: str) -> OpenAttribute:
        ends = {"low": _declared(self.min), "high": _declared(self.max)}
        made: OpenAttribute = OPEN_KINDS["integer"]((name,), **ends, **self.rules())
        return made


class _OpenNumericTable(_OpenRangeTable):
    kind: Literal["numeric"]
    edges: Literal["discover"] = DISCOVER
    min: float | Literal["discover"] = DISCOVER
    max: float | Literal["discover"] = DISCOVER

    def opened(self, name: str) -> OpenAttribute:
        ends = {"low": _declared(self.min), "high": _declared(self.max)}
        made: OpenAttribute = OPEN_KINDS["numeric"]((name,), **ends, **self.rules())
        return made


def _open_moment(value: object) -> object:
    return value if value == DISCOVER else _moment(value)


OpenMoment = Annotated[datetime | Literal["discover"], BeforeValidator(_open_moment)]


class _OpenDateTimeTable(_OpenRangeTable):
    kind: Literal["datetime"]
    start: OpenMoment = DISCOVER
    end: OpenMoment = DISCOVER

    def opened(self, name: str) -> OpenAttribute:
        ends = {"low": _declared(self.start), "high": _declared(self.end)}
        made: OpenAttribute = OPEN_KINDS["datetime"]((name,), **ends, **self.rules())
        return made


_OPEN_TABLES: Final[dict[str, type[_OpenTable]]] = {
    "category": _OpenCategoryTable,
    "integer": _OpenIntegerTable,
    "numeric": _OpenNumericTable,
    "datetime": _OpenDateTimeTable,
}

_TABLES: Final[dict[str, type[_AttributeTable]]] = {
    "category": _CategoryTable,
    "hierarchy": _HierarchyTable,
    "integer": _IntegerTable,
    "numeric": _NumericTable,
    "datetime": _DateTimeTable,
    "boolean": _BooleanTable,
}


def domain_json_schema() -> dict[str, object]:
    """Return the JSON Schema of what ``[domain]`` of a file may hold, references inside it."""
    from pydantic.json_schema import models_json_schema

    models = [*_TABLES.values(), *_OPEN_TABLES.values()]
    places, definitions = models_json_schema([(model, "validation") for model in models])
    tables = definitions["$defs"]
    for model in models:
        table = tables[model.__name__]
        if "levels" in table["properties"]:  # the one word that stands in place of tables
            levels = table["properties"]["levels"]
            table["properties"]["levels"] = {"anyOf": [levels, {"const": _CALENDAR}]}
    return {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"anyOf": [places[model, "validation"] for model in models]},
        **definitions,
    }


def declared_attributes(file: TomlFile) -> list[Attribute]:
    """Return the attributes that the ``[domain.NAME]`` tables of a TOML document declare."""
    members = declared_members(file)
    open_names = [m.name for m in members if not isinstance(m, Attribute)]
    if open_names:
        raise file.error(
            f"{listing(open_names)} is to be discovered, so there is no domain to plan on yet; run "
            "sfumato discover on this file and write its schema with --out, read it with "
            "sf.OpenDomain.from_toml and run sf.plan_discovery, or list the values here",
            ("domain",),
        )
    return [m for m in members if isinstance(m, Attribute)]


def declared_members(file: TomlFile) -> list[Attribute | OpenAttribute]:
    """Return the attributes that a TOML document declares, and those it wants discovered."""
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
    attributes: list[Attribute | OpenAttribute] = []
    faults: list[str] = []
    for name, table in tables.items():
        try:
            attributes.append(_open(name, table, file) or _attribute(name, table, file))
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


def _open(name: str, table: object, file: TomlFile) -> OpenAttribute | None:
    """What a table wants discovered; None if it declares an attribute."""
    if not isinstance(table, Mapping) or DISCOVER not in table.values():
        return None
    kind, at = table.get("kind"), ("domain", name)
    if not isinstance(kind, str) or kind not in _OPEN_TABLES:
        raise file.error(
            f"{DISCOVER!r} is for the kinds {', '.join(map(repr, _OPEN_TABLES))}, got {got(kind)}; "
            "declare the attribute from public knowledge",
            (*at, "kind") if "kind" in table else at,
        )
    try:
        return validated(_OPEN_TABLES[kind], table, file, at).opened(name)
    except SchemaError as error:
        raise _placed(error, name, table, file, at) from None


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
    has_calendar = table.get("levels") == _CALENDAR
    if has_calendar:  # the one word that stands in place of tables
        table = {key: row for key, row in table.items() if key != "levels"}
    read = _spelled_out(validated(_TABLES[kind], table, file, at), file, at)
    try:
        built = _built(name, read)
        attribute = replace(built, from_column=read.column, unparsed=read.unparsed)
    except SchemaError as error:
        raise _placed(error, name, table, file, at) from None
    if has_calendar:
        if not isinstance(attribute, DateTime):
            raise file.error(
                f'levels = "{_CALENDAR}" is for dates and times; write the groups of a {kind} in '
                f"a table [domain.{toml_key(name)}.levels.NAME]",
                (*at, "levels"),
            )
        try:
            return attribute.with_calendar()
        except SchemaError as error:
            message = str(error).removeprefix(f"attribute {name!r}: ")
            raise file.error(message, (*at, "levels")) from None
    levels = levels_from(attribute, read.levels, file, (*at, "levels"))
    return replace(attribute, levels=levels)


_CALENDAR: Final = "calendar"
_BOOK_KEYS: Final = ("value_column", "value_type", "label_column", "level_columns")


def _listed_values(read: _CategoryTable, file: TomlFile, at: KeyPath) -> _CategoryTable:
    """The table with the values and levels of the list or the file that it names."""
    sources = {"values": read.values, "list": read.public, "values_file": read.values_file}
    stated = [key for key, value in sources.items() if value is not None]
    if len(stated) != 1:
        what = "the key 'values' is missing" if not stated else f"{' and '.join(stated)} are given"
        raise file.error(
            f'{what}; the values are one of values = [...], values_file = "countries.csv" and list '
            f'= "..." ({", ".join(PUBLIC_LISTS)})',
            (*at, stated[1]) if stated else at,
        )
    alone = [key for key in _BOOK_KEYS if getattr(read, key) is not None]
    if alone and read.values_file is None:
        raise file.error(
            f"{alone[0]} names a column of a values_file, and there is none", (*at, alone[0])
        )
    if read.values is not None:
        return read
    try:
        book = public_list(read.public) if read.public is not None else _book(read, file)
    except SchemaError as error:
        raise file.error(str(error), (*at, stated[0])) from None
    levels = {**book.tables(), **read.levels}
    return read.model_copy(update={"values": list(book.values), "levels": levels})


def _book(read: _CategoryTable, file: TomlFile) -> CodeBook:
    columns = [*([read.label_column] if read.label_column else []), *(read.level_columns or ())]
    return code_book(
        (file.folder or Path()) / str(read.values_file),
        read.value_column,
        columns,
        are_whole=read.value_type == "integer",
    )


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
            column=read.column,
            unparsed=read.unparsed,
        )
    if isinstance(read, _CategoryTable):
        return _listed_values(read, file, at)
    if isinstance(read, _NumericTable):
        return read.model_copy(update={"edges": _edges(read, file, at)})
    return read


def _built(name: str, read: _AttributeTable) -> Attribute:
    outside, nulls = read.outside, read.nulls
    if isinstance(read, _CategoryTable):
        return Category(name, tuple(read.values or ()), outside=outside, nulls=nulls)
    if isinstance(read, _IntegerTable):
        return Integer(
            name,
            read.min,
            read.max,
            read.width,
            outside=outside,
            nulls=nulls,
            duration=read.duration,
        )
    if isinstance(read, _NumericTable):
        return Numeric(
            name, tuple(read.edges or ()), outside=outside, nulls=nulls, duration=read.duration
        )
    if isinstance(read, _DateTimeTable):
        return DateTime(
            name,
            read.start,
            read.end,
            read.step,
            outside=outside,
            nulls=nulls,
            timezone=read.timezone,
        )
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
    if attribute.from_column is not None:
        lines.append(f"column = {toml_text(attribute.from_column)}")
    if attribute.outside != "drop":
        lines.append(f'outside = "{attribute.outside}"')
    if attribute.nulls != "drop":
        lines.append(f'nulls = "{attribute.nulls}"')
    if attribute.unparsed is not None:
        lines.append(f'unparsed = "{attribute.unparsed}"')
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
        return [f"min = {attribute.min}", f"max = {attribute.max}", *width, *_duration(attribute)]
    if isinstance(attribute, Numeric):
        return [f"edges = {toml_list(attribute.edges)}", *_duration(attribute)]
    if isinstance(attribute, DateTime):
        return [
            f"start = {toml_value(attribute.start)}",
            f"end = {toml_value(attribute.end)}",
            f"step = {toml_value(attribute.step)}",
            *([f"timezone = {toml_text(attribute.timezone)}"] if attribute.timezone else []),
        ]
    return []


def _duration(attribute: Integer | Numeric) -> list[str]:
    return [] if attribute.duration is None else [f'duration = "{attribute.duration}"']


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
