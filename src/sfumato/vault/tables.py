# SPDX-License-Identifier: Apache-2.0
"""`open_table` returns the `Table` behind a file, a glob, an address, a dataframe or a query.

The first step of everything that counts:

    open_table("people.parquet")                          open_table("people-*.csv")
    open_table("people.duckdb::visits")                   open_table(dataframe)
    open_table("postgres://me@host/people::visits")       open_table("spark:people.visits")
    open_table("s3://bucket/people.parquet")              open_table("https://host/people.parquet")
    open_table("demo:adult")                              a table that comes with the package
    open_table(SqlSource("people.duckdb", "SELECT ..."))  open_table(CsvSource("a.csv", "lines"))

Opening looks at column names and types only, which are public. What the columns hold is read
when it is counted, and what does not fit the schema is refused before that (`encode`). A column in
memory is converted only when it is asked for. Its type comes from the dtype, never from the values:
a pandas column of dtype ``object`` has none, so it is read as texts, as CSV is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeGuard

from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.domain.shipped_tables import is_shipped, shipped_table
from sfumato.errors import TableError
from sfumato.text import listing, shown
from sfumato.vault.arrow_codes import Codes
from sfumato.vault.duckdb import (
    DuckDB,
    duckdb_table,
    network_table,
    parquet_table,
    query_view,
    with_durations,
)
from sfumato.vault.engine import (
    Engine,
    EngineTable,
    before_rows,
    fresh_name,
    quoted,
    quoted_text,
    sealed,
)
from sfumato.vault.files import blocks, csv_columns, field_text, lines, sheet_columns, sheet_texts
from sfumato.vault.postgres import Postgres, open_postgres
from sfumato.vault.sources import (
    TABLE_MARK,
    CsvSource,
    DerivedSource,
    FileSource,
    NetworkSource,
    PostgresSource,
    SqlSource,
    TextRules,
    engine_source,
    file_source,
    without_corner,
)
from sfumato.vault.spark import Spark, open_dataframe, open_spark
from sfumato.vault.vault_limits import LIMITS

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import ibis.expr.types as ir
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame

__all__ = [
    "ColumnReading",
    "Records",
    "Table",
    "column_types",
    "name_of",
    "open_table",
    "public_name",
]


NOT_STARTED: Final = "DuckDB cannot be started; check its installation"


@dataclass(frozen=True, slots=True, repr=False)
class ColumnReading:
    """Some columns of a table, to be read in one pass.

    ``rows`` is what stands after FROM, with the columns under the names ``places``. With
    ``blocks``, it shows one block of the table at a time: the next one after each step of them,
    which must be walked to their end.
    """

    rows: str
    places: Sequence[str]
    blocks: Iterable[None] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ArrowBatches:
    """Some columns of a table by Arrow: the type of each, and the rows in batches.

    Columns of a batch stand in the order in which they were asked for, one for each time.
    """

    types: Mapping[str, pa.DataType]
    rows: Callable[[], Iterator[pa.Table]]


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """A temporary table of codes in the engine, dropped when the last user of it is gone.

    ``codes``: the same ones outside of the engine, which only looks at them then.
    """

    engine: Engine
    name: str
    domain: Domain
    unit: PrivacyUnit | None
    attributes: frozenset[str]
    codes: Codes | None = None

    def __post_init__(self) -> None:
        let_go = _dropped if self.codes is None else _forgotten
        weakref.finalize(self, let_go, self.engine, self.name)

    def column(self, attribute: str) -> str:
        """The name of the column of codes of an attribute, or of grid values of `Values`."""
        return f"c{self.domain.index(attribute)}"


class Table:
    """Rows that only the vault reads, with the public names and types of their columns.

    A column is *untyped* when its values came without a type (CSV): it is then read as text, and
    every value is interpreted as the schema asks.

    ``may_drop_records``: whether a record that is replaced by another may leave the table, or enter
    it, so that the number of rows is not public under ``replace-one`` neighbours. A file, a stored
    table and a dataframe have a row for every record, whatever it holds. A query, a view and an
    expression may have a filter or a join, and are not looked into: they may drop records.

    ``has_unreadable``: a column without a type is null where the record could not be read, and
    nowhere else (CSV, JSON lines); what a record leaves out is an empty text.

    ``unique``: the columns of which no two records share a value, by a constraint of the database.
    """

    __slots__ = (
        "__weakref__",
        "_batches",
        "_careful",
        "_read",
        "engine",
        "has_unreadable",
        "may_drop_records",
        "name",
        "origin",
        "records",
        "secret",
        "source",
        "texts",
        "types",
        "unique",
        "untyped",
    )

    def __init__(
        self,
        name: str,
        engine: Engine,
        types: Mapping[str, dt.DataType],
        untyped: frozenset[str],
        read: Callable[[Sequence[str]], ColumnReading],
        *,
        may_drop_records: bool = True,
        careful: Callable[[Sequence[str]], ColumnReading] | None = None,
        batches: Callable[[Sequence[str]], ArrowBatches | None] | None = None,
        texts: TextRules | None = None,
        has_unreadable: bool = False,
        unique: frozenset[str] = frozenset(),
    ) -> None:
        self.name = name
        self.engine = engine
        self.types = types
        self.untyped = untyped
        self.may_drop_records = may_drop_records
        self.texts = TextRules() if texts is None else texts
        self.has_unreadable = has_unreadable
        self.unique = unique
        self._read, self._careful, self._batches = read, careful, batches
        # The encoded records of the last count, and the key that chooses the rows of a privacy
        # unit: kept here, so that all counts of one release describe the same records.
        self.records: Records | None = None
        self.secret: str | None = None
        # What this table was opened again from: it holds the files and connections of both.
        self.origin: Table | None = None
        # What was opened, for comparing it with other sources (`identity`).
        self.source: object = None

    @property
    def column_types(self) -> dict[str, str]:
        """The name of every column with its type, as ibis names it."""
        return {name: str(kind) for name, kind in self.types.items()}

    def __repr__(self) -> str:
        return f"<table {self.name}: {len(self.types)} columns, rows not shown>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TableError(f"the table {self.name} cannot be copied or pickled; open it again")

    @property
    def has_careful_reader(self) -> bool:
        """Whether there is a slower way to read the table that fails on no value."""
        return self._careful is not None

    def read(self, columns: Sequence[str], *, is_careful: bool = False) -> ColumnReading:
        """How to read these columns; ``is_careful`` chooses the way that fails on no value."""
        if is_careful and self._careful is not None:
            return self._careful(columns)
        return self._read(columns)

    def batches(self, columns: Sequence[str]) -> ArrowBatches | None:
        """These columns as Arrow reads them; None where their values might not be the engine's."""
        return None if self._batches is None else self._batches(columns)

    def opened_again(self) -> Table:
        """The same rows in the same engine for another release, with a random key of its own.

        The promise to a privacy unit holds for every key. But which rows a key keeps shows a little
        in every answer that is about them. With a new key the rows of a release are a draw that
        nothing said before depends on, and so are those of a unit whose records were written after
        an answer was seen. All counts of one release or session have one key: they are about the
        same rows.
        """
        table = Table(
            self.name,
            self.engine,
            self.types,
            self.untyped,
            self._read,
            may_drop_records=self.may_drop_records,
            careful=self._careful,
            batches=self._batches,
            texts=self.texts,
            has_unreadable=self.has_unreadable,
            unique=self.unique,
        )
        table.origin, table.source = self.origin or self, self.source
        return table


def open_table(source: object) -> Table:
    """The table behind a path, an address, a dataframe or an ibis table; rows are not looked at.

    A table that is open already is opened again, without reading anything: whoever opens it, a
    release or a session, has a random key of their own (`Table.opened_again`).

    Privacy: the result and every error depend on names and types only.
    """
    if isinstance(source, Table):
        return source.opened_again()
    table = _opened(source)
    table.source = source
    return table


def _opened(source: object) -> Table:
    if isinstance(source, SqlSource):
        return _from_text(source.source, _checked(source.sql))
    if isinstance(source, CsvSource):
        return _from_declared_csv(source)
    if isinstance(source, DerivedSource):
        return source.opened()
    if isinstance(source, str | os.PathLike):
        return _from_text(source, None)
    if _is_ibis(source):
        return _in_engine(_ibis_name(source), _open_ibis(source, _ibis_name(source)))
    if _is_spark(source):
        return _in_engine(public_name(source), open_dataframe(source))
    return _from_memory(source)


def column_types(source: object) -> dict[str, str]:
    """The name of every column with its type, as ibis names it (``int64``, ``string``, ...).

    Columns of a CSV file are ``string``: nothing is guessed from their values.
    """
    return open_table(source).column_types


def name_of(source: object, name: str | None = None) -> str | None:
    """Return what a ledger calls the table: ``name``, or the source's own; None if it has none.

    Files, tables of a database and queries on them have a name of their own. A dataframe, an Arrow
    table and an expression have not: two of them could not be told apart.
    """
    if name:
        return name
    origin = source.source if isinstance(source, Table) else source
    if isinstance(origin, SqlSource):  # else another query on the same data would be this one
        digest = hashlib.sha256(origin.sql.strip().encode()).hexdigest()[:12]
        return f"query {digest} on {public_name(source).removeprefix('query on ')}"
    if isinstance(origin, DerivedSource):
        inner = name_of(origin.source)
        return None if inner is None else origin.kind + inner
    if isinstance(origin, str | os.PathLike | CsvSource) or _is_ibis_table(origin):
        return public_name(source)
    return None


def public_name(source: object) -> str:
    """What to call a table in a ledger or a report: without directories, servers and users.

    >>> public_name("postgres://me@host/people::visits")
    'postgres:people::visits'
    >>> public_name("data/people.duckdb::visits")
    'people.duckdb::visits'
    """
    if isinstance(source, Table):
        return source.name
    if isinstance(source, SqlSource):
        return f"query on {public_name(source.source)}"
    if isinstance(source, DerivedSource):
        return source.kind + public_name(source.source)
    if isinstance(source, CsvSource):
        return public_name(source.source)
    if isinstance(source, str | os.PathLike):
        if (in_engine := engine_source(_text(source))) is not None:
            return in_engine.public_name
        path, mark, table = _text(source).partition(TABLE_MARK)
        table = without_corner(path, table)
        return Path(path).name + (mark if table else "") + table
    if _is_ibis(source):
        return _ibis_name(source)
    return f"{type(source).__module__.partition('.')[0]} table in memory"


def _from_text(source: str | os.PathLike[str], query: str | None) -> Table:
    in_engine = engine_source(_text(source))
    name = public_name(source if query is None else SqlSource(source, query))
    if in_engine is None:
        return _from_file(name, _text(source), query)
    if isinstance(in_engine, PostgresSource):
        return _in_engine(name, open_postgres(in_engine, query))
    if isinstance(in_engine, NetworkSource):
        return _from_network(name, in_engine.address, query)
    return _in_engine(name, open_spark(in_engine, query))


def _in_engine(name: str, opened: EngineTable) -> Table:
    rows, types = _with_fields(opened.engine, opened.rows, opened.types)
    table = Table(
        name,
        opened.engine,
        types,
        frozenset(),
        _reader(rows),
        may_drop_records=opened.may_drop_records,
        unique=opened.unique,
    )
    if not isinstance(opened.engine, DuckDB):
        weakref.finalize(table, _closed, opened.engine)
    return table


def _from_network(name: str, address: str, query: str | None) -> Table:
    engine = _started()
    try:
        rows = network_table(address, query, engine)
    except TableError:
        engine.close()
        raise
    table = _in_engine(name, EngineTable(engine, rows, engine.types(rows), query is not None))
    weakref.finalize(table, _closed, engine)
    return table


def _from_file(name: str, source: str, query: str | None) -> Table:
    files = file_source(source)
    if files.kind in ("csv", "json lines", "spreadsheet"):
        if query is not None:
            what = {"csv": "a CSV file has", "json lines": "JSON lines have"}
            raise TableError(
                f"{shown(name)}: {what.get(files.kind, 'a spreadsheet has')} no types, so no query "
                "runs on it; write it as Parquet first"
            )
        if files.kind == "json lines":
            return _from_json_lines(name, files.paths)
        if files.kind == "spreadsheet":
            return _from_sheet(name, files)
        return _from_csv(name, files.paths, CsvSource(source))
    engine = _started()
    is_query, unique = query is not None, frozenset[str]()
    try:
        if query is not None:
            rows = query_view(files, query, engine)
        elif files.kind == "parquet":
            rows = with_durations(files.paths, parquet_table(files.paths, engine), engine)
        else:
            opened = duckdb_table(files.paths, files.table, engine)
            rows, is_query, unique = opened.rows, opened.may_drop_records, opened.unique
    except TableError:
        engine.close()  # an error may be kept for long, and the file with it
        raise
    is_plain = files.kind == "parquet" and query is None
    stored = engine.types(rows)
    rows, types = _with_fields(engine, rows, stored)
    table = Table(
        name,
        engine,
        types,
        frozenset(),
        _reader(rows),
        may_drop_records=is_query,
        careful=_parquet_reader(files.paths, engine, types, stored) if is_plain else None,
        batches=_parquet_batches(files.paths, types) if is_plain else None,
        unique=unique,
    )
    weakref.finalize(table, _closed, engine)
    return table


def _from_declared_csv(source: CsvSource) -> Table:
    name = public_name(source)
    files = None if engine_source(_text(source.source)) else file_source(_text(source.source))
    if files is None or files.kind != "csv":
        raise TableError(
            f"{shown(name)} is no CSV file, so nothing is to be declared about its lines and "
            f"values; leave out {listing(source.declarations)}"
        )
    return _from_csv(name, files.paths, source)


def _from_csv(name: str, paths: Sequence[str], declared: CsvSource) -> Table:
    import ibis
    import pyarrow as pa

    delimiter, names = csv_columns(paths, declared)
    engine = _connected()
    _check_formats(engine, declared.texts)

    def read(columns: Sequence[str]) -> ColumnReading:
        numbers = [names.index(column) for column in dict.fromkeys(columns)]
        nothing = pa.table({f"x{i}": pa.array([], pa.string()) for i in numbers})
        shown = fresh_name()

        def steps() -> Iterator[None]:
            yield  # the table has its columns even when it has no rows
            for block in blocks(
                paths, len(names), delimiter, numbers, declared.rule, name, declared
            ):
                engine.replace(shown, block)
                yield
            engine.replace(shown, nothing)

        places = [f"x{names.index(column)}" for column in columns]
        engine.replace(shown, nothing)
        return ColumnReading(shown, places, steps())

    def batches(columns: Sequence[str]) -> ArrowBatches:
        numbers = [names.index(column) for column in dict.fromkeys(columns)]
        places = [f"x{names.index(column)}" for column in columns]

        def rows() -> Iterator[pa.Table]:
            for block in blocks(
                paths, len(names), delimiter, numbers, declared.rule, name, declared
            ):
                yield pa.table([block[place] for place in places], names=_numbered(places))

        return ArrowBatches(dict.fromkeys(columns, pa.string()), rows)

    types = dict.fromkeys(names, ibis.dtype("string"))
    return Table(
        name,
        engine,
        types,
        frozenset(names),
        read,
        batches=batches,
        may_drop_records=False,
        texts=declared.texts,
        has_unreadable=True,
    )


class _EveryText(dict[str, "dt.DataType"]):
    """The columns of a table whose names stand in its records: any name is one, of texts."""

    def __init__(self, kind: dt.DataType) -> None:
        super().__init__()
        self.kind = kind

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def __missing__(self, name: str) -> dt.DataType:
        return self.kind


class _EveryName(frozenset[str]):
    """Every name there is."""

    def __contains__(self, name: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True


def _from_json_lines(name: str, paths: Sequence[str]) -> Table:
    import ibis
    import pyarrow as pa

    engine = _connected()
    nothing = pa.table({"line": pa.array([], pa.large_string())})

    def read(columns: Sequence[str]) -> ColumnReading:
        held = fresh_name()
        places = [f"x{i}" for i in range(len(columns))]
        pairs = zip(map(field_text, columns), places, strict=True)
        texts = ", ".join(f"{text} AS {place}" for text, place in pairs)

        def steps() -> Iterator[None]:
            yield  # the table has its columns even when it has no rows
            for block in lines(paths):
                engine.replace(held, block)
                yield
            engine.replace(held, nothing)

        engine.replace(held, nothing)
        return ColumnReading(f"(SELECT {texts} FROM {held})", places, steps())  # noqa: S608

    kind = _EveryText(ibis.dtype("string"))
    return Table(
        name, engine, kind, _EveryName(), read, may_drop_records=False, has_unreadable=True
    )


def _from_sheet(name: str, files: FileSource) -> Table:
    import ibis

    if len(files.paths) > 1:
        raise TableError(f"a pattern matches {len(files.paths)} spreadsheets; name one")
    path = files.paths[0]
    names = sheet_columns(path, files.table)
    engine = _connected()

    def read(columns: Sequence[str]) -> ColumnReading:
        numbers = [names.index(column) for column in columns]
        texts = sheet_texts(path, files.table, list(dict.fromkeys(numbers)))
        return ColumnReading(engine.upload(texts), [f"x{i}" for i in numbers])

    types = dict.fromkeys((each for each in names if each), ibis.dtype("string"))
    return Table(name, engine, types, frozenset(types), read)


def _paths_to_fields(types: Mapping[str, dt.DataType]) -> dict[str, tuple[str, ...]]:
    """The named fields in columns of records as ``address.city``, and the way to each."""
    taken = {name.casefold() for name in types}
    ways: dict[str, tuple[str, ...]] = {}

    def enter(kind: dt.DataType, way: tuple[str, ...]) -> None:
        if not kind.is_struct():
            return
        for field, inner in kind.fields.items():
            name = ".".join((*way, field))
            if name.casefold() not in taken:
                taken.add(name.casefold())
                ways[name] = (*way, field)
            enter(inner, (*way, field))

    for name, kind in types.items():
        enter(kind, (name,))
    return ways


def _with_fields(
    engine: Engine, rows: str, types: Mapping[str, dt.DataType]
) -> tuple[str, dict[str, dt.DataType]]:
    """The rows with a column for each named field of their columns of records."""
    ways = _paths_to_fields(types)
    if not ways:
        return rows, dict(types)

    def value(way: tuple[str, ...]) -> str:
        return reduce(engine.field, way[1:], engine.column(way[0]))

    def kind(way: tuple[str, ...]) -> dt.DataType:
        return reduce(lambda held, field: held.fields[field], way[1:], types[way[0]])

    added = ", ".join(f"{value(way)} AS {engine.column(name)}" for name, way in ways.items())
    inner = {name: kind(way) for name, way in ways.items()}
    return f"(SELECT *, {added} FROM {rows} AS nested)", {**types, **inner}  # noqa: S608


def _check_formats(engine: DuckDB, texts: TextRules) -> None:
    """Refuse formats of dates that the engine does not know, before a row is read."""
    if texts.date_formats:
        formats = engine.read_date(quoted_text(""), texts.date_formats)
        before_rows(
            lambda: engine.run(f"SELECT {formats}"),
            f"date_format = {listing(texts.date_formats)} is no format of dates; write it as for "
            "strptime, such as %d.%m.%Y or %m/%d/%Y %H:%M",
        )


def _from_memory(source: object) -> Table:
    import pyarrow as pa

    memory = _read_memory(source)
    engine = _connected()

    def read(columns: Sequence[str]) -> ColumnReading:
        held = memory.get(list(dict.fromkeys(columns)))
        places = _numbered(columns)  # engines take "a" and "A" for one name
        rows = engine.upload(pa.table([held[name] for name in columns], names=places))
        return ColumnReading(rows, places)

    def batches(columns: Sequence[str]) -> ArrowBatches:
        def rows() -> Iterator[pa.Table]:
            held = memory.get(list(dict.fromkeys(columns)))
            yield pa.table([held[name] for name in columns], names=_numbered(columns))

        kinds = {name: memory.types[name] or pa.null() for name in columns}
        return ArrowBatches(kinds, rows)

    types = {name: _engine_type(kind) for name, kind in memory.types.items()}
    return Table(
        public_name(source),
        engine,
        types,
        memory.untyped,
        read,
        batches=batches,
        may_drop_records=not memory.is_stored,
    )


@lru_cache(maxsize=1024)
def _engine_type(kind: pa.DataType | None) -> dt.DataType:
    """The type that a column of an Arrow type has in DuckDB, ``unknown`` if it has none."""
    import ibis.expr.datatypes as dt
    import pyarrow as pa

    if kind is None:
        return dt.unknown
    engine = _connected()
    try:
        name = engine.upload(pa.table({"x": pa.array([], kind)}))
        return engine.types(name)["x"]
    except Exception:  # no rows were read; it matters only if the column is asked for
        return dt.unknown
    finally:
        engine.close()


def _field(table: pa.Table, way: Sequence[str]) -> pa.ChunkedArray:
    """A column, or a named field in one of records: null where the record is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table[way[0]]
    for name in way[1:]:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        column = pc.struct_field(column, [name])
    return column


def _parquet_reader(
    paths: Sequence[str],
    engine: DuckDB,
    types: Mapping[str, dt.DataType],
    stored: Mapping[str, dt.DataType],
) -> Callable[[Sequence[str]], ColumnReading]:
    """Parquet files by Arrow, block by block: slower than DuckDB, but no value makes it fail.

    DuckDB gives up a whole file for one text that is no UTF-8, or one time in milliseconds that
    microseconds do not reach. The columns must have the types that DuckDB says, so that every other
    value comes out the same.
    """
    import pyarrow as pa

    ways = _paths_to_fields(stored)

    def read(columns: Sequence[str]) -> ColumnReading:
        import pyarrow.parquet as pq

        names = list(dict.fromkeys(columns))
        places = {name: f"x{i}" for i, name in enumerate(names)}
        shown = fresh_name()

        def files() -> Iterator[pq.ParquetFile]:
            for path in paths:
                with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
                    yield file

        def block(rows: pa.RecordBatch | pa.Table) -> pa.Table:
            held = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
            return pa.table({places[n]: _readable(_field(held, ways.get(n, (n,)))) for n in names})

        schema = next(files()).schema_arrow
        nothing = block(schema.empty_table())
        engine.replace(shown, nothing)
        if [engine.types(shown)[places[n]] for n in names] != [types[n] for n in names]:
            raise TableError("Arrow and DuckDB do not agree about the types of the file")

        def steps() -> Iterator[None]:
            yield  # the table has its columns even when it has no rows
            for file in files():
                for batch in file.iter_batches(LIMITS.parquet_rows, columns=names):
                    engine.replace(shown, block(batch))
                    yield
            engine.replace(shown, nothing)

        return ColumnReading(shown, [places[n] for n in columns], steps())

    return read


def _parquet_batches(
    paths: Sequence[str], types: Mapping[str, dt.DataType]
) -> Callable[[Sequence[str]], ArrowBatches | None]:
    """Parquet files by Arrow, in whole row groups where they are not too long, texts by number.

    None for columns whose types are others in Arrow than in DuckDB.
    """
    import pyarrow as pa

    def read(columns: Sequence[str]) -> ArrowBatches | None:
        import pyarrow.parquet as pq

        schema = pq.read_schema(paths[0])
        names = list(dict.fromkeys(columns))
        if not set(names) <= set(schema.names):
            return None  # a field of a column of records
        plain = {name: _plain(pa.chunked_array([], schema.field(name).type)) for name in names}
        kinds = {name: column.type for name, column in plain.items()}
        if any(_engine_type(kinds[name]) != types[name] for name in names):
            return None
        texts = [n for n in names if pa.types.is_string(kinds[n]) or kinds[n] == pa.large_string()]

        def column(rows: pa.Table, name: str) -> pa.ChunkedArray:
            return rows[name] if name in texts else _plain(rows[name])

        def rows() -> Iterator[pa.Table]:
            for path in paths:
                with pq.ParquetFile(
                    path, coerce_int96_timestamp_unit="us", read_dictionary=texts
                ) as file:
                    for part in _parquet_parts(file, names):
                        yield pa.table([column(part, n) for n in columns], names=_numbered(columns))

        return ArrowBatches(kinds, rows)

    return read


def _parquet_parts(file: pq.ParquetFile, names: Sequence[str]) -> Iterator[pa.Table]:
    """The row groups of a file, cut into batches where one is too long to be held."""
    import pyarrow as pa

    for i in range(file.num_row_groups):
        group = file.metadata.row_group(i)
        if max(group.total_byte_size, 8 * group.num_rows * len(names)) <= LIMITS.batch_bytes:
            yield file.read_row_group(i, columns=names, use_threads=False)
            continue
        for batch in file.iter_batches(LIMITS.parquet_rows, row_groups=[i], columns=names):
            yield pa.Table.from_batches([batch])


def _numbered(columns: Sequence[str]) -> list[str]:
    return [f"x{i}" for i in range(len(columns))]


def _reader(rows: str) -> Callable[[Sequence[str]], ColumnReading]:
    return lambda columns: ColumnReading(rows, columns)


def _checked(query: str) -> str:
    """The query without the mark at its end: it is put into others, and read there as one."""
    text = query.strip().rstrip(";").strip()
    if not text or "\0" in text:
        raise TableError("the query of the source is empty or holds a zero byte; give a SELECT")
    return text


def _dropped(engine: Engine, name: str) -> None:
    # At the end of the process the connection may be gone before the table is.
    with contextlib.suppress(Exception):
        engine.drop(name)


def _forgotten(engine: Engine, name: str) -> None:
    with contextlib.suppress(Exception):
        engine.forget(name)


def _closed(engine: Engine) -> None:
    # At the end of the process the server or the session may be gone before the table is.
    with contextlib.suppress(Exception):
        engine.close()


def _started() -> DuckDB:
    return before_rows(DuckDB.start, NOT_STARTED)


def _connected() -> DuckDB:
    return before_rows(DuckDB.connect, NOT_STARTED)


def _text(source: str | os.PathLike[str]) -> str:
    text = os.fspath(source)
    if not text or "\0" in text:
        raise TableError("the path of the table is empty or holds a zero byte; give a file name")
    return str(shipped_table(text)) if is_shipped(text) else text


def _is_ibis(source: object) -> TypeGuard[ir.Table]:
    if type(source).__module__.partition(".")[0] != "ibis":
        return False
    import ibis.expr.types as ir

    return isinstance(source, ir.Table)


def _is_ibis_table(source: object) -> bool:
    """Whether it is a table of a database, not rows in memory and not what is made of a table."""
    if not _is_ibis(source):
        return False
    import ibis.expr.operations as ops

    return isinstance(source.op(), ops.DatabaseTable)


def _is_spark(source: object) -> TypeGuard[DataFrame]:
    if type(source).__module__.partition(".")[0] != "pyspark":
        return False
    from pyspark.sql import DataFrame

    return isinstance(source, DataFrame)


def _ibis_name(source: ir.Table) -> str:
    try:
        return str(source.get_name())
    except Exception:  # an expression that is no table of its engine has none
        return "ibis table"


# Tables of ibis


def _open_ibis(source: ir.Table, name: str) -> EngineTable:
    """An ibis table, counted by the engine that it lives in."""
    backend: Any = sealed(source.get_backend, f"the ibis table {name!r} has no engine behind it")
    if backend.name not in ("duckdb", "postgres", "pyspark"):
        raise TableError(
            f"this table lives in {backend.name}; counting runs on DuckDB, PostgreSQL and Spark: "
            "export the table to Parquet, or give a dataframe"
        )
    unrun = f"the ibis table {name!r} cannot be run by its engine"
    # Asking for no rows makes ibis hand its tables in memory, if any, to the engine.
    sealed(source.limit(0).execute, unrun)
    query = str(sealed(lambda: backend.compile(source), unrun))
    is_query = not _is_stored_in_ibis(source, backend)
    if backend.name == "pyspark":
        opened = sealed(lambda: open_dataframe(backend._session.sql(query)), unrun)
        return replace(opened, may_drop_records=is_query)
    types = dict(source.schema())
    if backend.name == "postgres":
        return EngineTable(Postgres(backend.con, is_ours=False), f"({query})", types, is_query)
    return EngineTable(DuckDB(backend), f"({query})", types, is_query)


def _is_stored_in_ibis(source: ir.Table, backend: Any) -> bool:
    """Whether an ibis table is a stored table of its engine as it is, or a table in memory."""
    import ibis.expr.operations as ops

    table = source.op()
    if isinstance(table, ops.InMemoryTable):
        return True
    if not isinstance(table, ops.DatabaseTable):
        return False
    catalogue, schema = table.namespace.catalog, table.namespace.database
    try:
        if backend.name == "duckdb":
            return DuckDB(backend).is_stored(catalogue, schema, table.name)
        parts = [part for part in (schema, table.name) if part]
        if backend.name == "postgres":
            relation = ".".join(map(quoted, parts))
            return Postgres(backend.con, is_ours=False).is_stored(relation)
        return Spark(backend._session).is_stored(".".join(f"`{part}`" for part in parts))
    except Exception:  # what cannot be looked up may be anything
        return False


# Tables in memory


@dataclass(frozen=True, slots=True, repr=False)
class MemoryColumns:
    """The columns of a table in memory: their types, and how to get some of them.

    ``is_stored``: the rows are in memory. A lazy frame or a stream is still to be computed, by a
    filter perhaps, which then is a part of the source.
    """

    types: Mapping[str, pa.DataType | None]
    untyped: frozenset[str]
    get: Callable[[Sequence[str]], pa.Table]
    is_stored: bool = True


def _read_memory(source: object) -> MemoryColumns:
    """The columns of a dataframe or Arrow table."""
    module = type(source).__module__.partition(".")[0]
    if module == "pandas" and type(source).__name__ == "DataFrame":
        return _with_memory_fields(_pandas(source))  # type: ignore[arg-type]
    held = _arrow(_as_arrow(source, module))
    return replace(_with_memory_fields(held), is_stored=_holds_rows(source, module))


def _with_memory_fields(memory: MemoryColumns) -> MemoryColumns:
    """The same with a column for each named field of a column of records."""
    import pyarrow as pa

    types = dict(memory.types)
    ways: dict[str, tuple[str, ...]] = {}

    def enter(kind: pa.DataType | None, way: tuple[str, ...]) -> None:
        if kind is None or not pa.types.is_struct(kind):
            return
        for inner in kind:
            name = ".".join((*way, inner.name))
            if name not in types:
                ways[name] = (*way, inner.name)
                types[name] = _plain(pa.chunked_array([], inner.type)).type
            enter(inner.type, (*way, inner.name))

    for name, kind in memory.types.items():
        enter(kind, (name,))
    if not ways:
        return memory

    def get(columns: Sequence[str]) -> pa.Table:
        held = memory.get(list(dict.fromkeys(ways.get(name, (name,))[0] for name in columns)))
        return pa.table({n: _plain(_field(held, ways.get(n, (n,)))) for n in columns})

    return replace(memory, types=types, get=get)


def _holds_rows(source: object, module: str) -> bool:
    """Whether a table is known to hold its rows; what is not known may compute them."""
    import pyarrow as pa

    if module == "polars":
        return type(source).__name__ == "DataFrame"
    if isinstance(source, pa.Table | pa.RecordBatch):
        return True
    return not hasattr(source, "__arrow_c_stream__") and not isinstance(
        source, pa.RecordBatchReader
    )


def _as_arrow(source: object, module: str) -> pa.Table:
    import pyarrow as pa

    message = (
        f"a {type(source).__module__}.{type(source).__qualname__} is not a table; give a path, a "
        "pandas, polars or pyarrow table, an ibis table, or anything with __arrow_c_stream__"
    )
    if isinstance(source, pa.Table):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    if isinstance(source, pa.RecordBatchReader):
        return sealed(source.read_all, "the stream of record batches cannot be read")
    if module == "polars" and type(source).__name__ in ("DataFrame", "LazyFrame"):
        return sealed(lambda: _from_polars(source), message)
    if hasattr(source, "__arrow_c_stream__"):
        return sealed(lambda: pa.table(source), message)

    import narwhals as nw

    frame = sealed(lambda: nw.from_native(source, eager_only=True), message)
    return sealed(frame.to_arrow, message)


def _from_polars(source: pl.DataFrame | pl.LazyFrame) -> pa.Table:
    return (source if hasattr(source, "to_arrow") else source.collect()).to_arrow()


def _arrow(table: pa.Table) -> MemoryColumns:
    import pyarrow as pa

    names = table.column_names
    _check_unique(names)
    untyped = frozenset(f.name for f in table.schema if pa.types.is_null(f.type))

    def get(columns: Sequence[str]) -> pa.Table:
        return pa.table({name: _plain(table[name]) for name in columns})

    return MemoryColumns(_types(names, get=lambda name: table.slice(0, 0)[name]), untyped, get)


_SHORT_PERIODS: Final = frozenset(("h", "bh", "cbh", "min", "s", "ms", "us", "ns", "H", "T", "S"))


def _pandas(frame: pd.DataFrame) -> MemoryColumns:
    import pyarrow as pa

    names = [str(name) for name in frame.columns]
    _check_unique(names)
    place = {name: i for i, name in enumerate(names)}
    kinds = zip(names, map(str, frame.dtypes), strict=True)
    untyped = frozenset(name for name, kind in kinds if kind == "object")

    def column(name: str, rows: int | None = None) -> pa.ChunkedArray:
        series = frame.iloc[:rows, place[name]]
        if str(series.dtype).startswith("period["):
            return _periods(series)
        if name in untyped or getattr(series.dtype, "storage", "") == "python":
            gone = series.isna().tolist()
            texts = [
                None if g else _value_text(v) for v, g in zip(series.tolist(), gone, strict=True)
            ]
            return pa.chunked_array([pa.array(texts, pa.string())])
        array = pa.array(series, from_pandas=True)
        return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])

    def get(columns: Sequence[str]) -> pa.Table:
        return pa.table({name: _plain(column(name)) for name in columns})

    return MemoryColumns(_types(names, get=lambda name: column(name, 0)), untyped, get)


def _periods(series: pd.Series[Any]) -> pa.ChunkedArray:
    """The first moment of each period, in seconds; null where there is none.

    Counted in days or seconds, which reach further than times do, so that no period fails.
    """
    import pyarrow as pa

    periods: Any = series.array
    is_short = periods.freq.rule_code.partition("-")[0] in _SHORT_PERIODS
    counts = periods.asfreq("s" if is_short else "D", how="start").asi8
    size = 1 if is_short else 86_400
    furthest = (2**63 - 2) // 10**6 // size
    seconds = counts.clip(-furthest, furthest) * size
    return pa.chunked_array([pa.array(seconds, pa.timestamp("s"), mask=periods.isna())])


def _value_text(value: object) -> str | None:
    """A value as text; null if it has none in UTF-8: one record must not make all unreadable.

    Halves of surrogate pairs have no UTF-8, and Python writes no integer of over 4300 digits.
    """
    try:
        text = str(value)
        text.encode()
    except Exception:  # whatever it says may hold the value
        return None
    return text


def _types(
    names: Sequence[str], get: Callable[[str], pa.ChunkedArray]
) -> Mapping[str, pa.DataType | None]:
    """The type of each column, from its first zero rows; None if Arrow has no such type."""
    types: dict[str, pa.DataType | None] = {}
    for name in names:
        try:
            types[name] = _plain(get(name)).type
        except Exception:  # whatever it is, it matters only if the column is asked for
            types[name] = None
    return types


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same values in a type that every engine reads."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type))
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms"):
        return _microseconds(column)
    if pa.types.is_duration(kind):
        return _bounded(column, 2**62 - 1).cast(pa.duration("us"), safe=False)
    if hasattr(pa.types, "is_string_view") and pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    return column


def _readable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same values in a type that every engine reads; null where a text is no UTF-8."""
    import pyarrow as pa

    plain = _plain(column)
    if not (pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type)):
        return plain
    try:
        plain.validate(full=True)
    except pa.ArrowInvalid:
        whole = pa.large_binary() if pa.types.is_large_string(plain.type) else pa.binary()
        texts = [_decoded(value) for value in plain.cast(whole).to_pylist()]
        return pa.chunked_array([pa.array(texts, plain.type)])
    return plain


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:  # which would quote the value
        return None


def _microseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times of a coarser unit, with those that microseconds cannot hold at the nearest they can."""
    import pyarrow as pa

    return _bounded(column, 2**63 - 2).cast(pa.timestamp("us", column.type.tz))


def _bounded(column: pa.ChunkedArray, most: int) -> pa.ChunkedArray:
    """Times or durations, with those of more microseconds than ``most`` at the nearest of less."""
    import pyarrow as pa
    import pyarrow.compute as pc

    furthest = most // {"s": 10**6, "ms": 10**3}.get(column.type.unit, 1)
    options = pc.ElementWiseAggregateOptions(skip_nulls=False)
    count = pc.min_element_wise(column.cast(pa.int64()), furthest, options=options)
    count = pc.max_element_wise(count, -furthest, options=options)
    return count.cast(column.type)


def _check_unique(names: Sequence[str]) -> None:
    twice = next((n for i, n in enumerate(names) if n in names[:i]), None)
    if twice is not None:
        raise TableError(f"the table names the column {shown(twice)} twice; rename one")
