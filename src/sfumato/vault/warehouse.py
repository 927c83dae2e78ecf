# SPDX-License-Identifier: Apache-2.0
"""Tables that live in an engine of their own: PostgreSQL, Spark, and ibis tables of either.

Opening connects, and looks at names, rights and types. Rows stay where they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import parse_qsl, urlsplit

from sfumato.errors import TableError
from sfumato.text import did_you_mean, either, listing, shown
from sfumato.vault.duckdb import DuckDB
from sfumato.vault.engine import Engine, quoted
from sfumato.vault.postgres import Postgres
from sfumato.vault.sensitive import sealed
from sfumato.vault.spark import Spark, spark_session

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import ibis.expr.types as ir
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType as SparkType

__all__ = [
    "CSV_RULES",
    "TABLE_MARK",
    "CsvRule",
    "CsvSource",
    "Opened",
    "PostgresSource",
    "SparkSource",
    "SqlSource",
    "engine_source",
    "open_dataframe",
    "open_ibis",
    "open_postgres",
    "open_spark",
    "placed",
    "relations_behind",
]


# --------------------
# Sources that are not files: ``postgres://user@host/database::schema.table``, ``spark:...``.
#
# An address is public: it stands in specs, ledgers and messages. Passwords are therefore refused
# in it; PostgreSQL's own ways to give one (PGPASSFILE, ~/.pgpass, PGPASSWORD) are not looked at
# here.

CsvRule = Literal["lines", "rfc4180"]
CSV_RULES: Final[tuple[CsvRule, ...]] = ("lines", "rfc4180")

TABLE_MARK = "::"

_POSTGRES = ("postgres://", "postgresql://")
_SPARK = "spark:"
_NAME = re.compile(r"[^./:*?\[\]{}]+(\.[^./:*?\[\]{}]+){0,2}")


@dataclass(frozen=True, slots=True)
class SqlSource:
    """What a SELECT of the curator's own gives, in place of a table.

    Privacy: none of its own; each row that it gives must come from one row (with a privacy unit:
    carry the unit of all rows that it comes from). Joins and aggregates can break that
    (docs/engines.md), and nothing checks it.

    Args:
        source: A database (without a table), ``"spark:"``, or Parquet files, which the text calls
            ``data``.
        sql: The SELECT; it is trusted and runs as it stands.

    Raises:
        TableError: The source or the text is none.

    >>> SqlSource("visits.parquet", "SELECT * FROM data WHERE year = 2024").source
    'visits.parquet'
    """

    source: str | os.PathLike[str]
    sql: str

    def __post_init__(self) -> None:
        if not isinstance(self.source, str | os.PathLike) or not isinstance(self.sql, str):
            raise TableError(
                "SqlSource takes a database or files and a SELECT, both as texts, got "
                f"{shown(self.source)} and {shown(self.sql)}"
            )


@dataclass(frozen=True, slots=True)
class CsvSource:
    """CSV files, with the curator's word on what a record of theirs is.

    A file in which both rules give the same records needs none of them: its path is enough.

    Args:
        source: A path or a glob of CSV files.
        records: ``"lines"`` if no text holds a line end: every line after the first is a record,
            whatever quotes are in it. ``"rfc4180"`` if the writer put texts with delimiters,
            quotes or line ends in quotes, and doubled the quotes inside.

    Raises:
        TableError: ``source`` is no path, or ``records`` is neither.

    Privacy: none of its own; the guarantee is for people whose records are as declared
    (docs/proofs/csv.md), and a file that is visibly not is refused.

    >>> CsvSource("people.csv", "rfc4180").records
    'rfc4180'
    """

    source: str | os.PathLike[str]
    records: CsvRule

    def __post_init__(self) -> None:
        if not isinstance(self.source, str | os.PathLike):
            raise TableError(
                f"CsvSource takes the path of CSV files, got {type(self.source).__name__}; a "
                "dataframe is given as it is"
            )
        if self.records not in CSV_RULES:
            raise TableError(
                f"the records of a CSV file are {either(CSV_RULES)}, got {shown(self.records)}"
            )


@dataclass(frozen=True, slots=True)
class PostgresSource:
    """A database on a server, and a table of it unless a query says what to read."""

    address: str
    database: str
    table: str

    @property
    def public_name(self) -> str:
        """Without the server and the user."""
        table = f"{TABLE_MARK}{self.table}" if self.table else ""
        return f"postgres:{self.database}{table}"


@dataclass(frozen=True, slots=True)
class SparkSource:
    """A table of Spark's catalogue, or Parquet files; neither if a query says what to read."""

    table: str
    path: str

    @property
    def public_name(self) -> str:
        """Without directories."""
        return _SPARK + (self.table or Path(self.path.rstrip("/")).name)


def engine_source(source: str) -> PostgresSource | SparkSource | None:
    """What a source that names an engine stands for; None for files.

    >>> engine_source("spark:sales.visits")
    SparkSource(table='sales.visits', path='')
    >>> engine_source("people.parquet") is None
    True
    """
    if source.startswith(_POSTGRES):
        return _postgres(source)
    if source.startswith(_SPARK):
        return _spark(source.removeprefix(_SPARK))
    return None


def placed(source: str, folder: Path) -> str:
    """The source with its relative path, if it is one, beginning at a folder."""
    if not source.startswith(_SPARK):
        return source if "://" in source else str(folder / source)
    found = _spark(source.removeprefix(_SPARK))
    if not found.path or "://" in found.path:
        return source
    return _SPARK + str(folder / found.path)


def _postgres(source: str) -> PostgresSource:
    address, mark, table = source.rpartition(TABLE_MARK)
    if not mark or "]" in table or "/" in table:  # a host such as [::1]
        address, table = source, ""
    try:
        parts = urlsplit(address)
        has_password = parts.password is not None
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
    except ValueError:
        raise TableError(
            "the address of the PostgreSQL server cannot be read; it looks like "
            "postgres://user@host/database::schema.table"
        ) from None
    if has_password or "password" in options:
        raise TableError(
            "the address of the PostgreSQL server holds a password; take it out, because addresses "
            "are written into ledgers and reports, and give it in a file named by PGPASSFILE (or "
            "~/.pgpass), or in the environment as PGPASSWORD"
        )
    database = parts.path.strip("/") or options.get("dbname", "")
    if not database or "/" in database:
        raise TableError(
            f"{shown(source)} names no database; write postgres://user@host/database::schema.table"
        )
    return PostgresSource(address, database, table)


def _spark(rest: str) -> SparkSource:
    if rest and (Path(rest).suffix.lower() in (".parquet", ".pq") or not _NAME.fullmatch(rest)):
        return SparkSource("", rest)
    return SparkSource(rest, "")


_STORED_BY_SPARK = ("parquet", "orc", "avro", "delta", "iceberg")
_WAIT = 60  # seconds for a server to answer at all
_RELATIONS = "('r', 'v', 'm', 'f', 'p')"  # tables, views, also stored, foreign and divided ones


@dataclass(frozen=True, slots=True)
class Opened:
    """A table in its engine: what stands after FROM, its columns, and whether it is a query.

    ``may_drop_records`` is False only where the rows are known to be stored one for each record.
    """

    engine: Engine
    rows: str
    types: Mapping[str, dt.DataType]
    may_drop_records: bool = True


def open_postgres(source: PostgresSource, query: str | None) -> Opened:
    """A table or a view of a PostgreSQL database, or what a query gives there."""
    engine = _connected(source)
    try:
        _check_session(engine, source)
        rows = f"({query})" if query is not None else _relation(engine, source)
        types = sealed(lambda: engine.types(rows), _unreadable(source.public_name, query))
        is_query = query is not None or not _is_stored(engine, rows)
    except TableError:
        engine.close()
        raise
    return Opened(engine, rows, types, is_query)


def _connected(source: PostgresSource) -> Postgres:
    if find_spec("psycopg") is None:
        raise TableError(
            "a table of PostgreSQL needs the driver psycopg; install sfumato[postgres]"
        )
    import psycopg

    # What libpq says about a failed connection is public: no table was touched.
    try:
        connection = psycopg.connect(
            source.address, autocommit=True, connect_timeout=_WAIT, application_name="sfumato"
        )
        connection.execute("SET client_encoding = 'UTF8'")
        return Postgres(connection, is_ours=True)
    except psycopg.Error as error:
        said = (str(error).strip().splitlines() or ["no reason given"])[-1]
    raise TableError(
        f"cannot connect to {shown(source.address)}: {said}; check server, database and user, and "
        "give the password in a file named by PGPASSFILE, or as PGPASSWORD"
    )


def _check_session(engine: Postgres, source: PostgresSource) -> None:
    query = (
        "SELECT pg_is_in_recovery(), has_database_privilege(current_database(), 'TEMP'), "
        "current_setting('server_version_num')::int >= 140000"
    )
    checks = sealed(lambda: engine.rows(query), f"{shown(source.address)} answers no query")
    is_replica, may_keep, is_new = checks[0]
    if not is_new:
        raise TableError("counting needs PostgreSQL 14 or newer; the server is older")
    if is_replica or not may_keep:
        why = (
            "the server is a replica, which holds none: connect to its primary"
            if is_replica
            else f"the user lacks the right: GRANT TEMP ON DATABASE {quoted(source.database)}"
        )
        raise TableError(f"counting needs a temporary table in {shown(source.database)}; {why}")


def _relation(engine: Postgres, source: PostgresSource) -> str:
    """The table that the source names, if it is there and may be read."""
    if not source.table:
        raise TableError(
            f"{shown(source.address)} names no table; add it, as in "
            f"{shown(source.address + '::schema.table')}, or give a query"
        )
    query = (
        "SELECT n.nspname || '.' || c.relname, pg_table_is_visible(c.oid), "  # noqa: S608
        "has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE') "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE c.relkind IN {_RELATIONS} "
        "AND n.nspname NOT IN ('pg_catalog', 'information_schema') "
        "AND n.nspname NOT LIKE 'pg_temp%' AND n.nspname NOT LIKE 'pg_toast%' ORDER BY 1"
    )
    found = sealed(lambda: engine.rows(query), "the catalogue of the server cannot be read")
    there = {str(name): (bool(seen), bool(may)) for name, seen, may in found}
    short = {name.partition(".")[2]: name for name, (seen, _) in there.items() if seen}
    wanted = source.table if source.table in there else short.get(source.table, "")
    if not wanted:
        known = [name for name, (_, may) in there.items() if may]
        raise TableError(
            f"the database {shown(source.database)} has no table or view {shown(source.table)}; it "
            f"has {listing(known) or 'none that this user may read'}"
            f"{did_you_mean(source.table, [*known, *short])}"
        )
    if not there[wanted][1]:
        raise TableError(
            f"the user may not read {shown(wanted)}; its owner can GRANT SELECT on it (and USAGE "
            "on its schema)"
        )
    schema, _, name = wanted.partition(".")
    return f"{quoted(schema)}.{quoted(name)}"


def _is_stored(engine: Postgres, relation: str) -> bool:
    """Whether a relation has a row for each record whatever it holds, by the server's catalogue.

    So do tables, also divided ones, without policies that hide rows. Views do not, nor do foreign
    tables, of which nothing is known here.
    """
    query = (
        "WITH RECURSIVE parts(oid) AS (SELECT %s::regclass::oid UNION "
        "SELECT i.inhrelid FROM pg_inherits i JOIN parts p ON i.inhparent = p.oid) "
        "SELECT bool_and(c.relkind IN ('r', 'p') AND NOT row_security_active(c.oid)) "
        "FROM parts p JOIN pg_class c ON c.oid = p.oid"
    )

    def look() -> bool:
        found: Any = engine.connection.execute(query, [relation]).fetchone()
        return bool(found and found[0])

    return sealed(look, "the catalogue of the server cannot be read")


def relations_behind(source: PostgresSource, names: Sequence[str]) -> list[str]:
    """``schema.table`` of all that some tables and views read, by the server's own catalogue.

    Views read what their definitions name, and tables what was divided off them. A name without a
    schema stands for the tables of that name in any.
    """
    query = (
        "WITH RECURSIVE behind(oid) AS ("  # noqa: S608
        "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE c.relkind IN {_RELATIONS} "
        "AND (lower(c.relname) = ANY(%s) OR lower(n.nspname || '.' || c.relname) = ANY(%s)) "
        "UNION SELECT d.oid FROM behind b CROSS JOIN LATERAL ("
        "SELECT p.refobjid AS oid FROM pg_rewrite w JOIN pg_depend p ON p.objid = w.oid "
        "AND p.classid = 'pg_rewrite'::regclass AND p.refclassid = 'pg_class'::regclass "
        "WHERE w.ev_class = b.oid UNION ALL SELECT i.inhrelid FROM pg_inherits i "
        "WHERE i.inhparent = b.oid) d) "
        "SELECT n.nspname || '.' || c.relname FROM behind b JOIN pg_class c ON c.oid = b.oid "
        "JOIN pg_namespace n ON n.oid = c.relnamespace"
    )
    wanted = [name.lower() for name in names]
    engine = _connected(source)
    try:
        found: Any = engine.connection.execute(query, [wanted, wanted])
        return [str(row[0]) for row in found]
    finally:
        engine.close()


def open_spark(source: SparkSource, query: str | None) -> Opened:
    """A table of Spark's catalogue or Parquet files; a query finds the files as ``data``."""
    session = spark_session()
    unreadable = _unreadable(source.public_name, query)
    if not (source.table or source.path or query):
        raise TableError(
            "spark: names no table; write spark:database.table or spark:path/to/*.parquet, or give "
            "a query"
        )

    engine = Spark(session)

    def rows() -> DataFrame:
        if query is None and source.table:
            return session.table(source.table)
        if source.path:
            # Dates before 1582 are read by the calendar that all others use.
            reader = session.read.option("datetimeRebaseMode", "CORRECTED")
            files = reader.option("int96RebaseMode", "CORRECTED").parquet(source.path)
            if query is None:
                return files
            held = f"SELECT * FROM {engine.view(files)}"  # noqa: S608 - the name is made here
            return session.sql(f"WITH data AS ({held}) SELECT * FROM ({query})")  # noqa: S608
        return session.sql(str(query))

    opened = _opened(engine, sealed(rows, unreadable), unreadable)
    is_query = query is not None or not (source.path or _is_stored_in_spark(session, source.table))
    return replace(opened, may_drop_records=is_query)


def _is_stored_in_spark(session: Any, table: str) -> bool:
    """Whether a name of the catalogue is a table in files that hold a row for each record.

    Views are queries, and files of text may be told to leave out what they cannot read.
    """
    try:
        about = {
            row[0]: row[1] for row in session.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
        }
    except Exception:  # temporary views and whatever else it cannot describe
        return False
    is_table = str(about.get("Type", "")).upper() in ("MANAGED", "EXTERNAL")
    return is_table and str(about.get("Provider", "")).lower() in _STORED_BY_SPARK


def open_dataframe(rows: DataFrame) -> Opened:
    """A dataframe of Spark, in its own session; a query, since it is yet to be computed."""
    return _opened(Spark(rows.sparkSession), rows, "the dataframe of Spark cannot be read")


def _opened(engine: Spark, rows: DataFrame, unreadable: str) -> Opened:
    def look() -> Opened:
        types = {}
        plain = []
        for field in rows.schema.fields:
            types[field.name] = _spark_type(field.dataType)
            collation = getattr(field.dataType, "collation", "UTF8_BINARY")
            name = engine.column(field.name)
            plain.append(
                name if collation == "UTF8_BINARY" else f"{name} COLLATE UTF8_BINARY AS {name}"
            )
        return Opened(engine, engine.view(rows.selectExpr(*plain)), types)

    return sealed(look, unreadable)


def _spark_type(kind: SparkType) -> dt.DataType:
    """The type of a column, ``unknown`` for what no attribute can be read from."""
    import ibis.expr.datatypes as dt
    from ibis.backends.pyspark.datatypes import PySparkType
    from pyspark.sql.types import TimestampType

    if isinstance(kind, TimestampType):  # an instant, which ibis takes for a time without a zone
        return dt.Timestamp(timezone="UTC", scale=6)
    try:
        return PySparkType.to_ibis(kind)
    except Exception:  # it matters only if the column is asked for
        return dt.unknown


def open_ibis(source: ir.Table, name: str) -> Opened:
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
        return Opened(Postgres(backend.con, is_ours=False), f"({query})", types, is_query)
    return Opened(DuckDB(backend), f"({query})", types, is_query)


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
            return _is_stored(Postgres(backend.con, is_ours=False), relation)
        return _is_stored_in_spark(backend._session, ".".join(f"`{part}`" for part in parts))
    except Exception:  # what cannot be looked up may be anything
        return False


def _unreadable(name: str, query: str | None) -> str:
    what = "the table" if query is None else "the query"
    return (
        f"{what} of {shown(name)} cannot be read; check that it is there, that it may be read, and "
        "that its columns have names of their own and types that the engine knows"
    )
