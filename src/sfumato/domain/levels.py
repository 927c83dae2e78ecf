# SPDX-License-Identifier: Apache-2.0
"""Hierarchies in the schema file: ``[domain.NAME.levels.LEVEL]``, a public map to groups.

Two forms. *By group*, for every kind: ``group = members``, where a member is

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
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

from sfumato.domain.attributes import (
    Attribute,
    Boolean,
    Category,
    DateTime,
    Integer,
    Level,
    Numeric,
)
from sfumato.domain.domain_limits import LIMITS
from sfumato.errors import SchemaError
from sfumato.text import did_you_mean, got, listing, shown
from sfumato.toml import KeyPath, TomlFile

__all__ = [
    "hierarchy_values",
    "levels_from",
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
