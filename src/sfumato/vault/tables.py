# SPDX-License-Identifier: Apache-2.0
"""Open a table: a file, a glob, a table of a database, a dataframe, an ibis table, a query.

    open_table("people.parquet")                          open_table("people-*.csv")
    open_table("people.duckdb::visits")                   open_table(dataframe)
    open_table("postgres://me@host/people::visits")       open_table("spark:people.visits")
    open_table(SqlSource("people.duckdb", "SELECT ..."))  open_table(CsvSource("a.csv", "lines"))

Opening looks at column names and types only, which are public. What the columns hold is read
when it is counted, and what does not fit the schema is refused before that (`encode`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeGuard

from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import TableError
from sfumato.text import shown
from sfumato.vault.csv import blocks
from sfumato.vault.duckdb import DuckDB
from sfumato.vault.engine import Engine, fresh_name
from sfumato.vault.files import csv_columns, duckdb_table, locate, parquet_table, query_view
from sfumato.vault.memory import read_memory, readable
from sfumato.vault.sensitive import before_rows
from sfumato.vault.warehouse import (
    TABLE_MARK,
    CsvRule,
    CsvSource,
    Opened,
    PostgresSource,
    SqlSource,
    engine_source,
    open_dataframe,
    open_ibis,
    open_postgres,
    open_spark,
)

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import ibis.expr.types as ir
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = [
    "Reading",
    "Records",
    "Table",
    "column_types",
    "name_of",
    "open_table",
    "public_name",
]


@dataclass(frozen=True, slots=True, repr=False)
class Reading:
    """Some columns of a table, to be read in one pass.

    ``rows`` is what stands after FROM, with the columns under the names ``places``. With
    ``blocks``, it shows one block of the table at a time: the next one after each step of them,
    which must be walked to their end.
    """

    rows: str
    places: Sequence[str]
    blocks: Iterable[None] | None = None


@dataclass(frozen=True, eq=False)
class Records:
    """A temporary table of codes in the engine, dropped when the last user of it is gone."""

    engine: Engine
    name: str
    domain: Domain
    unit: PrivacyUnit | None
    attributes: frozenset[str]

    def __post_init__(self) -> None:
        weakref.finalize(self, _dropped, self.engine, self.name)

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
    """

    __slots__ = (
        "__weakref__",
        "_careful",
        "_read",
        "engine",
        "may_drop_records",
        "name",
        "origin",
        "records",
        "secret",
        "source",
        "types",
        "untyped",
    )

    def __init__(
        self,
        name: str,
        engine: Engine,
        types: Mapping[str, dt.DataType],
        untyped: frozenset[str],
        read: Callable[[Sequence[str]], Reading],
        *,
        may_drop_records: bool = True,
        careful: Callable[[Sequence[str]], Reading] | None = None,
    ) -> None:
        self.name = name
        self.engine = engine
        self.types = dict(types)
        self.untyped = untyped
        self.may_drop_records = may_drop_records
        self._read, self._careful = read, careful
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

    def read(self, columns: Sequence[str], *, is_careful: bool = False) -> Reading:
        """Get ready to read these columns, if asked for in the way that fails on no value."""
        if is_careful and self._careful is not None:
            return self._careful(columns)
        return self._read(columns)

    def opened_again(self) -> Table:
        """The same rows in the same engine for another release: with a random key of its own.

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
    if isinstance(source, str | os.PathLike):
        return _from_text(source, None)
    if _is_ibis(source):
        return _in_engine(_ibis_name(source), open_ibis(source, _ibis_name(source)))
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
    if isinstance(source, CsvSource):
        return public_name(source.source)
    if isinstance(source, str | os.PathLike):
        if (found := engine_source(_text(source))) is not None:
            return found.public_name
        path, mark, table = _text(source).partition(TABLE_MARK)
        return Path(path).name + mark + table
    if _is_ibis(source):
        return _ibis_name(source)
    return f"{type(source).__module__.partition('.')[0]} table in memory"


def _from_text(source: str | os.PathLike[str], query: str | None) -> Table:
    found = engine_source(_text(source))
    name = public_name(source if query is None else SqlSource(source, query))
    if found is None:
        return _from_file(name, _text(source), query)
    if isinstance(found, PostgresSource):
        return _in_engine(name, open_postgres(found, query))
    return _in_engine(name, open_spark(found, query))


def _in_engine(name: str, opened: Opened) -> Table:
    table = Table(
        name,
        opened.engine,
        opened.types,
        frozenset(),
        _reader(opened.rows),
        may_drop_records=opened.may_drop_records,
    )
    if not isinstance(opened.engine, DuckDB):
        weakref.finalize(table, _closed, opened.engine)
    return table


def _from_file(name: str, source: str, query: str | None) -> Table:
    found = locate(source)
    if found.kind == "csv":
        if query is not None:
            raise TableError(
                f"{shown(name)}: a CSV file has no types, so no query runs on it; write it as "
                "Parquet first"
            )
        return _from_csv(name, found.paths)
    engine = _started()
    is_query = query is not None
    try:
        if query is not None:
            rows = query_view(found, query, engine)
        elif found.kind == "parquet":
            rows = parquet_table(found.paths, engine)
        else:
            rows, is_query = duckdb_table(found.paths, found.table, engine)
    except TableError:
        engine.close()  # an error may be kept for long, and the file with it
        raise
    types = engine.types(rows)
    is_plain = found.kind == "parquet" and query is None
    table = Table(
        name,
        engine,
        types,
        frozenset(),
        _reader(rows),
        may_drop_records=is_query,
        careful=_parquet_reader(found.paths, engine, types) if is_plain else None,
    )
    weakref.finalize(table, _closed, engine)
    return table


def _from_declared_csv(source: CsvSource) -> Table:
    name = public_name(source)
    files = None if engine_source(_text(source.source)) else locate(_text(source.source))
    if files is None or files.kind != "csv":
        raise TableError(
            f"{shown(name)} is no CSV file, so nothing is to be declared about its lines; leave "
            f'"{source.records}" out'
        )
    return _from_csv(name, files.paths, source.records)


def _from_csv(name: str, paths: Sequence[str], rule: CsvRule | None = None) -> Table:
    import ibis
    import pyarrow as pa

    delimiter, names = csv_columns(paths)
    engine = _started()

    def read(wanted: Sequence[str]) -> Reading:
        numbers = [names.index(column) for column in dict.fromkeys(wanted)]
        nothing = pa.table({f"x{i}": pa.array([], pa.string()) for i in numbers})
        shown = fresh_name()

        def steps() -> Iterator[None]:
            yield  # the table has its columns even when it has no rows
            for block in blocks(paths, len(names), delimiter, numbers, rule, name):
                engine.replace(shown, block)
                yield
            engine.replace(shown, nothing)

        places = [f"x{names.index(column)}" for column in wanted]
        engine.replace(shown, nothing)
        return Reading(shown, places, steps())

    types = dict.fromkeys(names, ibis.dtype("string"))
    return Table(name, engine, types, frozenset(names), read, may_drop_records=False)


def _from_memory(source: object) -> Table:
    import pyarrow as pa

    columns = read_memory(source)
    engine = _started()

    def read(wanted: Sequence[str]) -> Reading:
        held = columns.get(list(dict.fromkeys(wanted)))
        places = [f"x{i}" for i in range(len(wanted))]  # engines take "a" and "A" for one name
        rows = engine.upload(pa.table([held[name] for name in wanted], names=places))
        return Reading(rows, places)

    known = {kind: _engine_type(engine, kind) for kind in set(columns.types.values())}
    types = {name: known[kind] for name, kind in columns.types.items()}
    return Table(
        public_name(source),
        engine,
        types,
        columns.untyped,
        read,
        may_drop_records=not columns.is_stored,
    )


def _engine_type(engine: DuckDB, kind: pa.DataType | None) -> dt.DataType:
    """The type that a column of an Arrow type has in the engine, ``unknown`` if it has none."""
    import ibis.expr.datatypes as dt
    import pyarrow as pa

    if kind is None:
        return dt.unknown
    try:
        name = engine.upload(pa.table({"x": pa.array([], kind)}))
        return engine.types(name)["x"]
    except Exception:  # no rows were read; it matters only if the column is asked for
        return dt.unknown


def _parquet_reader(
    paths: Sequence[str], engine: DuckDB, types: Mapping[str, dt.DataType]
) -> Callable[[Sequence[str]], Reading]:
    """Parquet files by Arrow, block by block: slower than DuckDB, but no value makes it fail.

    DuckDB gives up a whole file for one text that is no UTF-8, or one time in milliseconds that
    microseconds do not reach. The columns must have the types that DuckDB says, so that every other
    value comes out the same.
    """
    import pyarrow as pa

    def read(wanted: Sequence[str]) -> Reading:
        import pyarrow.parquet as pq

        names = list(dict.fromkeys(wanted))
        places = {name: f"x{i}" for i, name in enumerate(names)}
        shown = fresh_name()

        def files() -> Iterator[pq.ParquetFile]:
            for path in paths:
                with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
                    yield file

        def block(columns: pa.RecordBatch | pa.Table) -> pa.Table:
            held = {places[n]: readable(pa.chunked_array(columns.column(n))) for n in names}
            return pa.table(held)

        schema = next(files()).schema_arrow
        nothing = block(pa.table({n: pa.chunked_array([], schema.field(n).type) for n in names}))
        engine.replace(shown, nothing)
        if [engine.types(shown)[places[n]] for n in names] != [types[n] for n in names]:
            raise TableError("Arrow and DuckDB do not agree about the types of the file")

        def steps() -> Iterator[None]:
            yield  # the table has its columns even when it has no rows
            for file in files():
                for batch in file.iter_batches(2**18, columns=names):
                    engine.replace(shown, block(batch))
                    yield
            engine.replace(shown, nothing)

        return Reading(shown, [places[n] for n in wanted], steps())

    return read


def _reader(rows: str) -> Callable[[Sequence[str]], Reading]:
    return lambda wanted: Reading(rows, wanted)


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


def _closed(engine: Engine) -> None:
    # At the end of the process the server or the session may be gone before the table is.
    with contextlib.suppress(Exception):
        engine.close()


def _started() -> DuckDB:
    return before_rows(DuckDB.start, "DuckDB cannot be started; check its installation")


def _text(source: str | os.PathLike[str]) -> str:
    text = os.fspath(source)
    if not text or "\0" in text:
        raise TableError("the path of the table is empty or holds a zero byte; give a file name")
    return text


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
