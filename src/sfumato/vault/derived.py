# SPDX-License-Identifier: Apache-2.0
"""Tables that are made from a table in its engine: joins with public tables, features of persons.

A join keeps every row of the source and repeats none, because each key stands once in the public
table, which is checked before it is sent to the engine. A table of persons has one row for each
person, a function of all rows of that person and of nothing else. Both are plain SQL that DuckDB,
PostgreSQL and Spark read alike, in the forms of values that mean the same on each (`engine`).

Proofs: docs/proofs/units.md, Theorems 6 and 7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from sfumato.digest import json_digest
from sfumato.errors import TableError
from sfumato.text import did_you_mean, either, listing, shown
from sfumato.vault.duckdb import DuckDB
from sfumato.vault.encode import family, unit_text
from sfumato.vault.engine import Engine, fresh_name
from sfumato.vault.sources import DerivedSource
from sfumato.vault.tables import ColumnReading, Table, open_table

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import pyarrow as pa

__all__ = ["Feature", "FeatureSource", "JoinSource", "open_features", "open_join"]


@dataclass(frozen=True, slots=True)
class JoinSource(DerivedSource):
    """A table with columns of a public table beside its own, found by a key.

    Each key stands once in the public table, or it is refused: so no record is repeated. A record
    whose key is null or is not there has nulls in the joined columns, and none is left out.

    Args:
        source: The table of records: whatever a release takes.
        table: The public table: a CSV or Parquet file, a pandas dataframe or an Arrow table. It is
            read as it is; anybody may see it.
        key: The column that both have, texts or whole numbers.
        columns: The columns to take from the public table.

    Raises:
        TableError: An argument is none of these, or (when it is opened) the key is not unique.

    Privacy: none of its own: a join repeats no record (docs/proofs/units.md, Theorem 6).
    Neighbours: those of the source, row by row.
    """

    source: object
    table: object
    key: str
    columns: Sequence[str]

    def __post_init__(self) -> None:
        names = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        if not isinstance(self.key, str) or not self.key or not names:
            raise TableError(
                f"a join needs the name of its key and of the columns it takes, got "
                f"{shown(self.key)} and {shown(self.columns)}"
            )
        if self.key in names or len(set(names)) != len(names):
            raise TableError("the columns of a join are named once each, without its key")
        object.__setattr__(self, "columns", names)

    def opened(self) -> Table:
        """The table with the joined columns.

        Returns:
            It, its rows not looked at.

        Raises:
            TableError: The key is not unique in the public table, or a column is not there.
        """
        return open_join(self)

    @property
    def kind(self) -> str:
        """Nothing: its records are those of its source."""
        return ""


FEATURES: Final = ("count", "sum", "min", "max", "first", "last")


@dataclass(frozen=True, slots=True)
class Feature:
    """One number or text about all rows of a person.

    Args:
        of: ``"count"`` (of rows), ``"sum"`` (of whole numbers), ``"min"``, ``"max"`` (of numbers,
            dates and times), ``"first"`` or ``"last"`` (of any values, by ``order``). Nulls are
            left out; among rows of equal order the least value counts.
        column: The column it is about; none for a count.
        order: For first and last: the column that says which row is first, numbers or times.

    Raises:
        TableError: It is none of these.
    """

    of: str
    column: str | None = None
    order: str | None = None

    def __post_init__(self) -> None:
        if self.of not in FEATURES:
            raise TableError(f"a feature is {either(FEATURES)}, got {shown(self.of)}")
        if (self.of == "count") != (self.column is None):
            raise TableError(
                "a count takes no column" if self.of == "count" else f"{self.of} needs its column"
            )
        if (self.of in ("first", "last")) != (self.order is not None):
            raise TableError(
                f"{self.of} takes no order"
                if self.order is not None
                else f"{self.of} needs order, the column that says which row comes first"
            )


@dataclass(frozen=True, slots=True)
class FeatureSource(DerivedSource):
    """A table of persons: one row for each value of a column, with features of all their rows.

    So a person moves one row, whatever number of rows they have, and nothing has to be dropped:
    plan with ``sf.PrivacyUnit(unit, 1)``, or with no unit. The features are columns like others;
    the rules of the schema say what happens to their values. Rows without a unit are left out.

    Args:
        source: The table of records: whatever a release takes.
        unit: The column that says whose record it is.
        features: A `Feature` for every column of the new table.

    Raises:
        TableError: An argument is none of these.

    Privacy: none of its own: a row is made from one person (docs/proofs/units.md, Theorem 7).
    Neighbours: all rows of one person in the source; one row of the table of persons.

    >>> import sfumato as sf
    >>> persons = sf.FeatureSource(
    ...     "visits.parquet",
    ...     "person",
    ...     {"visits": sf.Feature("count"), "city": sf.Feature("last", "city", order="day")},
    ... )
    """

    drops_records: ClassVar[bool] = True

    source: object
    unit: str
    features: Mapping[str, Feature]

    def __post_init__(self) -> None:
        if not isinstance(self.unit, str) or not self.unit:
            raise TableError(f"features need the column of the unit, got {shown(self.unit)}")
        if not isinstance(self.features, Mapping) or not self.features:
            raise TableError('features are named, for example {"visits": sf.Feature("count")}')
        if not all(isinstance(f, Feature) for f in self.features.values()):
            raise TableError("every feature is an sf.Feature")
        if self.unit in self.features:
            raise TableError(f"a feature has the name of the unit, {self.unit!r}; rename it")

    def opened(self) -> Table:
        """The table of persons.

        Returns:
            It, its rows not looked at.

        Raises:
            TableError: A column is not there, or holds what the feature cannot take.
        """
        return open_features(self)

    @property
    def kind(self) -> str:
        """The features with their hash: others on the same data are another table."""
        listed = sorted((n, f.of, f.column or "", f.order or "") for n, f in self.features.items())
        return f"features {json_digest([self.unit, listed])[:12]} of "


_KEY: Final = "sfumato_key"
_MOST_SUM: Final = 2**62  # a sum beyond it counts as this: 64 bits hold it with room
_MOST_TERM: Final = 2**53  # a value beyond it counts as this, so that no sum of 2^44 fails


# Joins with public tables


def open_join(source: JoinSource) -> Table:
    """The table of records with columns of a public table beside its own.

    Privacy: every record stays one record, and which one it is depends on its own key and on
    public rows. docs/proofs/units.md, Theorem 6.
    """
    inner, columns = open_table(source.source), tuple(source.columns)
    _check_names(inner, [source.key])
    taken = [name for name in columns if name in inner.types]
    if taken:
        raise TableError(
            f"the table {inner.name} has {listing(taken)} already; a join adds columns of other "
            "names: rename them in the public table"
        )
    public = _public_rows(source, columns)
    if (
        family(inner.types[source.key]) not in ("text", "integer")
        and source.key not in inner.untyped
    ):
        raise TableError(
            f"the key {shown(source.key)} of a join is of type {inner.types[source.key]}; it must "
            "hold texts or whole numbers"
        )
    types = dict(inner.types) | {name: _plain_type(public, name) for name in columns}
    uploads: list[str] = []

    def reader(is_careful: bool) -> Callable[[Sequence[str]], ColumnReading]:
        def read(wanted: Sequence[str]) -> ColumnReading:
            own = [name for name in wanted if name not in columns]
            reading = inner.read([*own, source.key], is_careful=is_careful)
            if not uploads:
                uploads.append(inner.engine.upload(_uploaded_names(public, source.key, columns)))
            return _joined(inner, reading, wanted, own, source, uploads[0])

        return read

    return Table(
        inner.name,
        inner.engine,
        types,
        inner.untyped,
        reader(False),
        may_drop_records=inner.may_drop_records,
        careful=reader(True) if inner.has_careful_reader else None,
        texts=inner.texts,
    )


def _joined(
    inner: Table,
    reading: ColumnReading,
    wanted: Sequence[str],
    own: Sequence[str],
    source: JoinSource,
    upload: str,
) -> ColumnReading:
    engine, places = inner.engine, iter(reading.places)
    place = {name: engine.column(next(places)) for name in own}
    kind, is_untyped = inner.types[source.key], source.key in inner.untyped
    key = unit_text(engine.column(reading.places[-1]), kind, is_untyped, engine, inner.texts)
    shown_columns = [
        f"{place[n] if n in place else f'sfumato_{list(source.columns).index(n)}'} AS x{i}"
        for i, n in enumerate(wanted)
    ]
    rows = (
        f"(SELECT {', '.join(shown_columns) or '1 AS one'} FROM {reading.rows} AS record "  # noqa: S608
        f"LEFT JOIN {upload} AS public ON {key} = {_KEY})"
    )
    return ColumnReading(rows, [f"x{i}" for i in range(len(wanted))], reading.blocks)


def _public_rows(source: JoinSource, columns: Sequence[str]) -> pa.Table:
    """The key and the columns of the public table; refused unless every key stands once."""
    rows = _read_public(source.table)
    missing = [name for name in (source.key, *columns) if name not in rows.column_names]
    if missing:
        raise TableError(
            f"the public table of a join lacks {listing(missing)}; its columns are "
            f"{listing(rows.column_names, most=40)}{did_you_mean(missing[0], rows.column_names)}"
        )
    rows = rows.select([source.key, *columns])
    keys = _key_texts(rows, source.key)
    if None in keys:
        raise TableError(f"the public table of a join has rows without {shown(source.key)}")
    twice = sorted(key for key, count in Counter(keys).items() if key is not None and count > 1)
    if twice:
        raise TableError(
            f"the public table of a join has {listing(twice, most=3)} in {shown(source.key)} more "
            "than once: each record would be repeated; keep one row for every key"
        )
    return rows


def _read_public(table: object) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    if isinstance(table, pa.Table):
        return table
    if isinstance(table, str | Path):
        path = Path(table)
        if not path.is_file():
            raise TableError(f"the public table {shown(path.name)} of a join is not there")
        try:
            if path.suffix.lower() in (".parquet", ".pq"):
                return pa.parquet.read_table(path)
            return pa.csv.read_csv(path)
        except pa.ArrowInvalid as error:
            raise TableError(
                f"the public table {shown(path.name)} of a join cannot be read: {error}"
            ) from None
    try:
        return pa.Table.from_pandas(table, preserve_index=False)
    except (TypeError, AttributeError, pa.ArrowInvalid):
        raise TableError(
            "the public table of a join is a CSV or Parquet file, a pandas dataframe or an Arrow "
            f"table, got {type(table).__name__}"
        ) from None


def _key_texts(rows: pa.Table, key: str) -> list[str | None]:
    """The keys as texts, as `Engine.identifier` writes texts and whole numbers."""
    import pyarrow as pa

    kind = rows.schema.field(key).type
    if not (pa.types.is_integer(kind) or _is_string(kind)):
        raise TableError(
            f"the key {shown(key)} of the public table is of type {kind}; it must hold texts or "
            "whole numbers"
        )
    return [None if value is None else str(value) for value in rows.column(key).to_pylist()]


def _is_string(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _plain_column(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """A column as texts, 64-bit integers or floats: what every engine takes alike."""
    import pyarrow as pa

    column = rows.column(name)
    kind = column.type
    if pa.types.is_null(kind) or _is_string(kind) or pa.types.is_dictionary(kind):
        return column.cast(pa.string())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    raise TableError(
        f"the column {shown(name)} of the public table is of type {kind}; a join takes texts, "
        "numbers and booleans"
    )


def _plain_type(rows: pa.Table, name: str) -> dt.DataType:
    import ibis

    kind = _plain_column(rows, name).type
    return ibis.dtype({"string": "string", "int64": "int64", "double": "float64"}[str(kind)])


def _uploaded_names(rows: pa.Table, key: str, columns: Sequence[str]) -> pa.Table:
    """The public rows under names that no table of records has."""
    import pyarrow as pa

    made = {_KEY: pa.array(_key_texts(rows, key), pa.string())}
    return pa.table(
        made | {f"sfumato_{i}": _plain_column(rows, name) for i, name in enumerate(columns)}
    )


# Features of persons


def open_features(source: FeatureSource) -> Table:
    """The table of persons, one row for each value of the unit.

    Privacy: a row is a function of the rows of one person. Ties are broken by values, never by the
    order of rows, so it is one function on every engine. docs/proofs/units.md, Theorem 7.
    """
    inner, features = open_table(source.source), dict(source.features)
    named = [n for f in features.values() for n in (f.column, f.order) if n is not None]
    _check_names(inner, [source.unit, *named])
    types, untyped = {source.unit: _text_type()}, set()
    for name, feature in features.items():
        types[name] = _feature_type(inner, name, feature)
        if feature.of in ("first", "last") and feature.column in inner.untyped:
            untyped.add(name)

    def reader(is_careful: bool) -> Callable[[Sequence[str]], ColumnReading]:
        def read(wanted: Sequence[str]) -> ColumnReading:
            return _of_persons(inner, source, wanted, is_careful)

        return read

    return Table(
        source.kind + inner.name,
        inner.engine,
        types,
        frozenset(untyped),
        reader(False),
        may_drop_records=True,
        careful=reader(True) if inner.has_careful_reader else None,
        texts=inner.texts,
    )


def _of_persons(
    inner: Table, source: FeatureSource, wanted: Sequence[str], is_careful: bool
) -> ColumnReading:
    """SQL for the wanted columns of the table of persons."""
    engine = inner.engine
    features = {n: source.features[n] for n in dict.fromkeys(wanted) if n != source.unit}
    needed = [source.unit]
    needed += [n for f in features.values() for n in (f.column, f.order) if n is not None]
    reading = inner.read(list(dict.fromkeys(needed)), is_careful=is_careful)
    place = dict(zip(dict.fromkeys(needed), reading.places, strict=True))
    own = engine.column(place[source.unit])
    kind, is_untyped = inner.types[source.unit], source.unit in inner.untyped
    owner = unit_text(own, kind, is_untyped, engine, inner.texts)
    values = [f"{owner} AS owner"]
    made: dict[str, str] = {}
    for i, (name, feature) in enumerate(features.items()):
        if feature.column is not None:
            column = engine.column(place[feature.column])
            value = _value(inner, feature, feature.column, column)
            values.append(f"{value} AS v{i}")
        if feature.order is not None:
            keys = _order(inner, feature.order, engine.column(place[feature.order]))
            values += [f"{key} AS o{i}_{k}" for k, key in enumerate(keys)]
        made[name] = f"f{i}"
    query = f"SELECT {', '.join(values)} FROM {reading.rows} AS source"  # noqa: S608
    rows = f"({query})" if reading.blocks is None else fresh_name()
    grouped = _grouped(inner, features.values(), rows)
    columns = [f"{made.get(n, 'owner')} AS x{i}" for i, n in enumerate(wanted)]
    whole = f"(SELECT {', '.join(columns) or '1 AS one'} FROM ({grouped}) AS persons)"  # noqa: S608
    blocks = None if reading.blocks is None else _gathered(engine, reading.blocks, query, rows)
    return ColumnReading(whole, [f"x{i}" for i in range(len(wanted))], blocks)


def _gathered(engine: Engine, blocks: Iterable[None], query: str, name: str) -> Iterator[None]:
    """One block with all rows, as a table of this name: a person may have rows in several."""
    is_there = False
    try:
        for _ in blocks:
            start = f"INSERT INTO {name}" if is_there else f"CREATE TEMP TABLE {name} AS"
            engine.run(f"{start} {query}")
            is_there = True
        yield
    finally:
        if is_there:
            engine.drop(name)


def _grouped(inner: Table, features: Iterable[Feature], rows: str) -> str:
    """One row for each owner, with all features."""
    places, made = [], ["owner"]
    for i, feature in enumerate(features):
        if feature.order is not None:
            is_empty = f"CASE WHEN v{i} IS NULL OR o{i}_0 IS NULL THEN 1 ELSE 0 END"
            turn = "ASC" if feature.of == "first" else "DESC"
            keys = [f"o{i}_{k} {turn}" for k in range(len(_order(inner, feature.order, "x")))]
            order = ", ".join([f"{is_empty} ASC", *keys, f"v{i} ASC"])
            places.append(f"ROW_NUMBER() OVER (PARTITION BY owner ORDER BY {order}) AS p{i}")
            is_chosen = f"p{i} = 1 AND o{i}_0 IS NOT NULL"
            made.append(f"MIN(CASE WHEN {is_chosen} THEN v{i} END) AS f{i}")
        else:
            made.append(f"{_aggregate(feature, i)} AS f{i}")
    placed = f"SELECT *{''.join(', ' + p for p in places)} FROM {rows} AS valued"  # noqa: S608
    return (
        f"SELECT {', '.join(made)} FROM ({placed} WHERE owner IS NOT NULL) AS placed "  # noqa: S608
        "GROUP BY owner"
    )


def _aggregate(feature: Feature, i: int) -> str:
    if feature.of == "count":
        return "CAST(COUNT(*) AS BIGINT)"
    if feature.of == "sum":
        total = f"SUM(CAST(v{i} AS DECIMAL(38, 0)))"
        return _within(total, _MOST_SUM)
    return f"{feature.of.upper()}(v{i})"


def _text_type() -> dt.DataType:
    import ibis.expr.datatypes as dt

    return dt.string


def _check_names(table: Table, names: Sequence[str]) -> None:
    missing = [name for name in dict.fromkeys(names) if name not in table.types]
    if missing:
        raise TableError(
            f"the table {table.name} lacks {listing(missing)}; its columns are "
            f"{listing(list(table.types), most=40)}{did_you_mean(missing[0], table.types)}"
        )


_TIMES: Final = ("date", "timestamp")


def _feature_type(inner: Table, name: str, feature: Feature) -> dt.DataType:
    """The type of a feature; refused where its column cannot have one."""
    import ibis.expr.datatypes as dt

    if feature.order is not None and feature.order not in inner.untyped:
        own = family(inner.types[feature.order])
        if own not in ("integer", "float", "decimal", *_TIMES):
            raise TableError(
                f"the order of feature {shown(name)} is of type {inner.types[feature.order]}; it "
                "must be numbers, dates or times"
            )
    if feature.column is None:
        return dt.int64
    is_untyped, of = feature.column in inner.untyped, feature.of
    if is_untyped:
        return dt.string if of in ("first", "last") else dt.int64 if of == "sum" else dt.float64
    kind = inner.types[feature.column]
    own = family(kind)
    allowed = {
        "sum": ("integer", "boolean"),
        "min": ("integer", "boolean", "float", "decimal", *_TIMES),
        "first": ("integer", "boolean", "float", "decimal", "text", *_TIMES),
    }[{"max": "min", "last": "first"}.get(of, of)]
    if own not in allowed:
        hint = "; sums of fractions are not exact: convert to whole cents" if of == "sum" else ""
        raise TableError(
            f"feature {shown(name)} is the {of} of {shown(feature.column)}, which is of type "
            f"{kind}; it needs {listing(allowed)}{hint}"
        )
    if own in ("integer", "boolean"):
        return dt.int64
    if own in ("float", "decimal"):
        return dt.float64
    return dt.string if own == "text" else kind


def _value(inner: Table, feature: Feature, name: str, column: str) -> str:
    """The values of a column in a form that has one order on every engine; null where none."""
    engine, kind = inner.engine, inner.types[name]
    if name in inner.untyped:
        text = unit_text(column, kind, True, engine, inner.texts)
        if feature.of in ("first", "last"):
            return text
        number = _number(engine, text, inner)
        return _within(f"FLOOR({number})", _MOST_TERM) if feature.of == "sum" else number
    own = family(kind)
    if own in ("integer", "boolean"):
        whole = engine.whole(column, kind)
        return _within(whole, _MOST_TERM) if feature.of == "sum" else whole
    if own in ("float", "decimal"):
        return engine.number(column, kind)
    return engine.text(column, kind) if own == "text" else column


def _within(value: str, most: int) -> str:
    """A whole number within bounds, so that nothing fails; null stays null."""
    return (
        f"CASE WHEN {value} IS NULL THEN NULL WHEN {value} > {most} THEN {most} "
        f"WHEN {value} < -{most} THEN -{most} ELSE CAST({value} AS BIGINT) END"
    )


def _number(engine: Engine, text: str, inner: Table) -> str:
    assert isinstance(engine, DuckDB)  # noqa: S101  all else has types
    number = engine.read_number(text, inner.texts.decimal, inner.texts.thousands)
    return f"CASE WHEN isnan({number}) THEN NULL ELSE {number} END"


def _order(inner: Table, name: str, column: str) -> list[str]:
    """What rows are ordered by: a number or a time; texts without a type by both."""
    engine, kind = inner.engine, inner.types[name]
    if name in inner.untyped:
        text = unit_text(column, kind, True, engine, inner.texts)
        number = _number(engine, text, inner)
        return [f"CASE WHEN {text} IS NULL THEN NULL ELSE COALESCE({number}, 0) END", text]
    own = family(kind)
    if own == "integer":
        return [engine.whole(column, kind)]
    return [
        engine.number(column, kind) if own in ("float", "decimal") else engine.moment(column, kind)
    ]
