# SPDX-License-Identifier: Apache-2.0
"""`data_identity` returns which data a source reads, `shares_data` whether two read the same.

    data_identity("people.csv")    data_identity("./data/../people.csv")    data_identity(frame)
    shares_data(data_identity(one), data_identity(other))

A path, a link, a glob, a query and a view of one table are different texts about the same records.
Here each becomes the files, the tables of databases and the objects in memory that rows come from.
Only names and catalogues are looked at, which are public; no row is read.

The comparison errs towards "the same": a table without a schema is that of any schema, and what
cannot be told apart (a query that does not parse) is everything in its database. It cannot know
that the rows of one file were copied into another: that stays the steward's word.
"""

from __future__ import annotations

import glob
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from sfumato.domain.shipped_tables import is_shipped, shipped_table
from sfumato.errors import TableError
from sfumato.vault.sources import (
    TABLE_MARK,
    CsvSource,
    DerivedSource,
    NetworkSource,
    PostgresSource,
    SqlSource,
    engine_source,
)

if TYPE_CHECKING:
    import ibis.expr.types as ir
    from sqlglot import exp

__all__ = ["Data", "check_apart", "data_identity", "shares_data"]


_DATABASES: Final = (".duckdb", ".ddb")
_READERS: Final = re.compile(r"^(read_|.*_scan$|scan_|glob$|sniff_|query)", re.IGNORECASE)
_LOCAL: Final = "local"
_PORT: Final = "5432"

Kind: TypeAlias = Literal["file", "postgres", "spark", "memory"]


@dataclass(frozen=True, slots=True, order=True)
class Data:
    """Something that rows are read from.

    Args:
        kind: a file, a database of a server, the catalogue of Spark, or an object in memory.
        place: which one: a resolved path, a device and inode, a server and database, an object.
            Empty for any of its kind.
        table: the table in it, as ``schema.table`` or ``table``, without capitals. Empty for all.
    """

    kind: Kind
    place: str
    table: str = ""


def data_identity(source: object, *, connect: bool = True) -> frozenset[Data]:
    """The files, tables and objects that the rows of a source come from.

    Privacy: none is needed: file names and catalogues are public, and no row is read.

    Args:
        source: whatever `open_table` takes: a path, a glob, an address, a query, a dataframe, an
            ibis table, a table that was opened before.
        connect: whether a database server is asked what its views are made from. Without it, or
            if it does not answer, names are compared as they are written.

    Returns:
        One `Data` or more; a file has two, by its path and by its device and inode, so that links
        of either kind are recognised. Compare two of these sets with `shares_data`.
    """
    from sfumato.vault.tables import Table

    if isinstance(source, Table):
        return data_identity(source.source, connect=connect)
    if isinstance(source, SqlSource):
        return frozenset(_of_text(os.fspath(source.source), source.sql, connect))
    if isinstance(source, DerivedSource):
        return data_identity(source.source, connect=connect)
    if isinstance(source, CsvSource):
        source = source.source
    if isinstance(source, str | os.PathLike):
        return frozenset(_of_text(os.fspath(source), None, connect))
    if _module(source) == "ibis" and hasattr(source, "get_backend"):
        return frozenset(_of_ibis(source))
    return frozenset(_of_memory(source))


def shares_data(one: Iterable[Data], other: Iterable[Data]) -> bool:
    """Whether two sources may read the same records: some file, table or object is in both.

    >>> visits = Data("file", "/a.duckdb", "visits")
    >>> shares_data([visits], [Data("file", "/a.duckdb", "main.visits")])
    True
    >>> shares_data([visits], [Data("file", "/a.duckdb", "main.staff")])
    False
    """
    places: dict[tuple[str, str], list[Data]] = {}
    for data in other:
        places.setdefault((data.kind, data.place), []).append(data)
    kinds = {data.kind for data in other}
    for data in one:
        if (not data.place and data.kind in kinds) or (data.kind, "") in places:
            return True
        if any(_alike(data.table, d.table) for d in places.get((data.kind, data.place), ())):
            return True
    return False


def check_apart(public: object, guarded: object) -> None:
    """Refuse public records that are read from the guarded table, before anything is read.

    Privacy: none of its own: names only are looked at. Public records are counted without noise, so
    the guarded table must never be given for them, as a link, through a query, a view or a slice.

    Args:
        public: the source that is declared public, or None.
        guarded: the source that is protected, or None where there is none.

    Raises:
        TableError: if both read some file, table or object in memory.
    """
    if public is None or guarded is None:
        return
    if shares_data(data_identity(public), data_identity(guarded)):
        raise TableError(
            "public names the guarded table itself, or something that is read from it; public "
            "records are counted without noise, so they must be records that anybody may see: "
            "give another table, or leave public out"
        )


def _alike(one: str, other: str) -> bool:
    """Whether two names may be of one table: equal as far as both say where it stands."""
    return (
        not one
        or not other
        or one == other
        or one.endswith(f".{other}")
        or other.endswith(f".{one}")
    )


def _module(source: object) -> str:
    return type(source).__module__.partition(".")[0]


def _of_text(source: str, query: str | None, connect: bool) -> Iterator[Data]:
    source = str(shipped_table(source)) if is_shipped(source) else source
    in_engine = engine_source(source)
    if isinstance(in_engine, PostgresSource):
        yield from _of_postgres(in_engine, query, connect)
    elif isinstance(in_engine, NetworkSource):
        yield from _files(in_engine.address)
        if query is not None:
            yield from _of_query(query, "duckdb", lambda _: [])
    elif in_engine is not None:
        if in_engine.path:
            yield from _files(in_engine.path)
        if query is not None:
            yield from _of_query(query, "spark", lambda name: [Data("spark", "catalogue", name)])
        elif in_engine.table:
            yield Data("spark", "catalogue", in_engine.table.casefold())
    else:
        path, _, table = source.partition(TABLE_MARK)
        for file in _matches(path):
            if Path(file).suffix.lower() in _DATABASES:
                yield from _of_duckdb_file(file, table, query)
            else:
                yield from _places(file)
                if query is not None:
                    yield from _of_query(query, "duckdb", lambda _: [])


# Files.


def _matches(pattern: str) -> list[str]:
    """The files that a path or a glob names now; what is not there stands for itself."""
    if Path(pattern).exists() or not glob.has_magic(pattern):
        return [pattern]
    return glob.glob(pattern, recursive=True) or [pattern]  # noqa: PTH207 - absolute patterns


def _files(pattern: str) -> Iterator[Data]:
    """The files behind a pattern, and those in folders that it names."""
    pattern = pattern.removeprefix("file://").removeprefix("file:")
    if "://" in pattern:
        yield Data("file", pattern)
        return
    for match in _matches(pattern):
        yield from _places(match)
        if Path(match).is_dir():
            for inside in Path(match).rglob("*"):
                yield from _places(str(inside))


def _places(path: str, table: str = "") -> Iterator[Data]:
    """A file by the path that all links end at, and by its device and inode."""
    yield Data("file", os.path.realpath(path), table)
    with suppress(OSError):
        about = Path(path).stat()
        yield Data("file", f"inode {about.st_dev}:{about.st_ino}", table)


def _of_duckdb_file(path: str, table: str, query: str | None) -> Iterator[Data]:
    """The tables of a DuckDB file that a name or a query reads, through its views."""
    tables, views = _duckdb_catalogue(path)
    if query is None and not table and len(tables) == 1:
        table = tables[0]
    if query is None and not table:
        yield from _places(path)
        return
    catalogue = _Views(views, "duckdb", lambda name: list(_places(path, name)))
    yield from (
        catalogue.of_query(query) if query is not None else catalogue.of_name(table.casefold())
    )


def _duckdb_catalogue(path: str) -> tuple[list[str], dict[str, str]]:
    """The tables and the views of a file with their texts; nothing if it cannot be opened."""
    from sfumato.vault.duckdb import DuckDB

    with suppress(Exception):  # then names are compared as they are written
        engine = DuckDB.start()
        try:
            return engine.attach(path), _duckdb_views(engine.backend, "source")
        finally:
            engine.close()
    return [], {}


def _duckdb_views(backend: Any, database: str | None) -> dict[str, str]:
    query = (
        "SELECT database_name, schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal"
    )
    return {
        f"{schema}.{view}".casefold(): str(sql)
        for name, schema, view, sql in backend.raw_sql(query).fetchall()
        if sql and database in (None, name)
    }


# Queries.


@dataclass(frozen=True, slots=True)
class _Views:
    """The views of a database by name, and what a table of it that is none is as data."""

    texts: Mapping[str, str]
    dialect: str
    table: Any

    def of_name(self, name: str, seen: frozenset[str] = frozenset()) -> Iterator[Data]:
        """What a table or a view reads; the view itself too, for it may be named again."""
        yield from self.table(name)
        for view, text in self.texts.items():
            if view not in seen and _alike(view, name):
                yield from self.of_query(text, seen | {view})

    def of_query(self, query: str, seen: frozenset[str] = frozenset()) -> Iterator[Data]:
        """What a query reads."""
        yield from _of_query(query, self.dialect, lambda name: self.of_name(name, seen))


def _of_query(query: str, dialect: str, table: Any) -> Iterator[Data]:
    """The files and tables that a query names; everything in its database if it cannot be read."""
    import sqlglot
    from sqlglot import exp

    try:
        statement = sqlglot.parse_one(query, dialect=dialect)
    except Exception:  # whatever it cannot read
        yield from table("")
        return
    if isinstance(statement, exp.Create) and isinstance(statement.expression, exp.Expression):
        statement = statement.expression
    for node in _tables(statement):
        if not isinstance(node.this, exp.Identifier):
            yield from _of_function(node.this, table)
        elif dialect != "postgres" and _is_file(node):
            yield from _files(node.name)
        else:
            parts = [p.name for p in node.parts]
            yield from table(".".join(parts[1:] if len(parts) == 3 else parts).casefold())


def _tables(statement: Any) -> list[exp.Table]:
    """What stands after FROM and is no name that the query itself gives (WITH).

    Inside of ``WITH t AS (SELECT ... FROM t)`` the name is that of a table: scopes tell.
    """
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    own = {cte.alias.casefold() for cte in statement.find_all(exp.CTE)}
    tables = [t for t in statement.find_all(exp.Table) if t.db or t.name.casefold() not in own]
    with suppress(Exception):  # statements that have no scopes name nothing twice
        for scope in traverse_scope(statement):
            tables += [s for s in scope.sources.values() if isinstance(s, exp.Table)]
    return tables


def _is_file(table: exp.Table) -> bool:
    """Whether a name is that of a file: ``'people.parquet'``, or in Spark ``parquet.`people` ``."""
    if table.db.casefold() in ("parquet", "csv", "orc", "json"):
        return True
    return not table.db and bool(re.search(r"[/\\*]|\.\w+$", table.name))


def _of_function(function: Any, table: Any) -> Iterator[Data]:
    """Files or tables named by the texts in the arguments; any file if they are not plain."""
    from sqlglot import exp

    name = function.name if isinstance(function, exp.Anonymous) else function.sql_name()
    if not _READERS.match(name):
        return
    texts = [text.this for text in function.find_all(exp.Literal) if text.is_string]
    for text in texts:
        yield from _files(text)
        yield from table(text.casefold())
    plain = (exp.Literal, exp.Array, exp.Anonymous, exp.Boolean, exp.Identifier, type(function))
    if not texts or not all(isinstance(n, plain) for n in function.walk() if _is_value(n)):
        yield Data("file", "")


def _is_value(node: Any) -> bool:
    """Whether a node is a part of a value, and not the option that it is given for."""
    from sqlglot import exp

    return not isinstance(node, exp.EQ | exp.PropertyEQ | exp.Column | exp.Var | exp.Kwarg)


# Servers.


def _of_postgres(source: PostgresSource, query: str | None, connect: bool) -> Iterator[Data]:
    servers = _servers(source)

    def table(name: str) -> list[Data]:
        return [Data("postgres", server, name) for server in servers]

    if query is None:
        yield from table(source.table.casefold())
        names = [source.table]
    else:
        named = list(_of_query(query, "postgres", table))
        yield from named
        names = sorted({data.table for data in named if data.table})
    if connect:
        for name in _postgres_relations(source, names):
            yield from table(name.casefold())


def _servers(source: PostgresSource) -> list[str]:
    """``host:port/database`` for each address that the host has; one word for this machine."""
    with suppress(ValueError):
        parts = urlsplit(source.address)
        options = parse_qs(parts.query)
        place = parts.netloc.rpartition("@")[2]
        hosts = options.get("host", [""])[-1] or re.sub(r":\d+(?=,|$)", "", place)
        hosts = hosts or os.environ.get("PGHOST", "")
        ports = options.get("port", [""])[-1] or ",".join(re.findall(r":(\d+)(?=,|$)", place))
        port = ports.partition(",")[0] or os.environ.get("PGPORT", _PORT)
        database = unquote(source.database)
        return sorted(
            {
                f"{address}:{port}/{database}"
                for host in unquote(hosts).split(",")
                for address in _addresses(host.strip("[]"))
            }
        )
    return [source.address]


def _addresses(host: str) -> list[str]:
    if not host or host.startswith(("/", "@")) or host in ("localhost", "::1"):
        return [_LOCAL]
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return [host.casefold()]
    is_local = any(address.startswith("127.") or address == "::1" for address in addresses)
    return [_LOCAL] if is_local else sorted(addresses)


def _postgres_relations(source: PostgresSource, names: Iterable[str]) -> list[str]:
    """The tables behind some tables and views, by the server's own record of what they read."""
    from sfumato.vault.postgres import relations_behind

    with suppress(Exception):  # a server that does not answer: names are compared as written
        return relations_behind(source, list(names))
    return []


# Memory.


def _of_ibis(source: ir.Table) -> Iterator[Data]:
    import ibis.expr.operations as ops

    backend: Any = None
    with suppress(Exception):  # tables in memory have no engine yet
        backend = source.get_backend()
    kind = getattr(backend, "name", "")
    catalogue = _Views({}, kind or "duckdb", lambda name: [_object(backend, name)])
    if kind == "duckdb":
        catalogue = _Views(_ibis_views(backend), kind, lambda name: _duckdb_places(backend, name))
    elif kind == "postgres":
        catalogue = _Views({}, kind, lambda name: list(_of_connection(backend.con, name)))
    elif kind == "pyspark":
        catalogue = _Views({}, "spark", lambda name: [Data("spark", "catalogue", name)])
    for node in source.op().find((ops.PhysicalTable, ops.SQLStringView)):
        if isinstance(node, ops.InMemoryTable):
            held = node.data
            yield from _of_memory(getattr(held, "obj", held))
        elif isinstance(text := getattr(node, "query", None), str):
            yield from catalogue.of_query(text)
        else:
            schema = getattr(getattr(node, "namespace", None), "database", None)
            name = f"{schema}.{node.name}" if schema else str(node.name)
            yield from catalogue.of_name(name.casefold())


def _ibis_views(backend: Any) -> dict[str, str]:
    with suppress(Exception):
        return _duckdb_views(backend, None)
    return {}


def _duckdb_places(backend: Any, name: str) -> list[Data]:
    """A table of a connection of DuckDB: in one of its files, or in its memory."""
    places = [_object(backend, name)]
    with suppress(Exception):
        for (path,) in backend.raw_sql("SELECT path FROM duckdb_databases()").fetchall():
            places += list(_places(path, name)) if path else []
    return places


def _of_connection(connection: Any, name: str) -> Iterator[Data]:
    info = connection.info
    address = f"postgres://{info.host or ''}:{info.port}/{info.dbname}"
    source = PostgresSource(address, str(info.dbname), name)
    yield from (Data("postgres", server, name) for server in _servers(source))


def _object(thing: object, table: str = "") -> Data:
    return Data("memory", f"{type(thing).__qualname__} {id(thing)}", table)


def _of_memory(source: object) -> Iterator[Data]:
    """The object, and where its columns lie: views and other names of one dataframe share that."""
    yield _object(source)
    with suppress(Exception):  # a column without a plain place is known by its object alone
        yield from (Data("memory", f"bytes at {start}") for start in _starts(source))


def _starts(source: Any) -> Iterator[int]:
    """Addresses of the memory that holds the columns; none of what would have to be copied.

    A copy is gone when this returns, and its address may then be that of anything.
    """
    import numpy as np
    import pyarrow as pa

    if _module(source) == "pandas":
        for i in range(source.shape[1]):
            values = source.iloc[:, i].array
            if (arrow := getattr(values, "_pa_array", None)) is not None:
                yield from _buffers(arrow)
            for name in ("_ndarray", "_data"):
                if isinstance(held := getattr(values, name, None), np.ndarray):
                    yield from _root(held)
    elif _module(source) == "polars" and hasattr(source, "get_columns"):
        for column in source.get_columns():
            with suppress(Exception):  # texts and nulls lie otherwise
                yield from _root(column.to_numpy(allow_copy=False))
    elif isinstance(source, pa.Table | pa.RecordBatch):
        for column in source.columns:
            yield from _buffers(column)


def _root(array: Any) -> Iterator[int]:
    """Where the memory begins that an array is a view of."""
    while hasattr(array.base, "__array_interface__"):
        array = array.base
    if array.size:
        yield int(array.__array_interface__["data"][0])


def _buffers(column: Any) -> Iterator[int]:
    for chunk in getattr(column, "chunks", [column]):
        for buffer in chunk.buffers():
            if buffer is not None and buffer.size:
                yield buffer.address
