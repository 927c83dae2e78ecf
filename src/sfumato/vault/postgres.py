# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL: the table is encoded and counted on its server, counts come back by binary COPY.

The codes of all attributes are made by one statement, hence from one snapshot: whatever happens to
the table later, all counts of a release describe the same rows. They lie in a temporary table of
our own session on the server, which needs the right TEMP and is gone with the session.

`open_postgres` connects and returns the table in its engine: names, rights and types are looked at,
rows stay where they are. `relations_behind` returns what the views of a server read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from sfumato.errors import TableError
from sfumato.text import did_you_mean, listing, shown
from sfumato.vault.engine import (
    Columns,
    Engine,
    EngineTable,
    fresh_name,
    quoted,
    quoted_text,
    sealed,
    unreadable,
)
from sfumato.vault.sources import PostgresSource
from sfumato.vault.vault_limits import LIMITS
from sfumato.workload.workload import CELLS_TOGETHER

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import psycopg
    import pyarrow as pa

__all__ = ["Postgres", "open_postgres", "relations_behind"]


_HEADER: Final = 19  # bytes before the first row of a binary COPY: signature, flags, extension
# Decimals beyond these have no nearest float: the cast would fail on them.
_TOO_GREAT: Final = "1.797693134862315807e308"
_TOO_SMALL: Final = "2.5e-324"
_SURE_DIGITS: Final = 300  # decimals of so many at most are within these bounds

_PLAIN: Final = {
    "int2": "int16",
    "int4": "int32",
    "int8": "int64",
    "float4": "float32",
    "float8": "float64",
    "bool": "boolean",
    "date": "date",
    "timestamp": "timestamp(6)",
    "timestamptz": "timestamp('UTC', 6)",
    "interval": "interval('us')",
    "uuid": "uuid",
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "citext"), "string"),
}


class Postgres(Engine):
    """A connection to a server."""

    __slots__ = ("connection", "is_ours")

    name: ClassVar[str] = "PostgreSQL"
    double: ClassVar[str] = "DOUBLE PRECISION"
    string: ClassVar[str] = "TEXT"
    has_bytes: ClassVar[bool] = False
    reads_all: ClassVar[bool] = True
    cells_together: ClassVar[int] = CELLS_TOGETHER["postgres"]

    def __init__(self, connection: psycopg.Connection[object], *, is_ours: bool) -> None:
        self.connection = connection
        self.is_ours = is_ours

    def close(self) -> None:
        """End the session, if it is ours; its temporary tables go with it."""
        if self.is_ours:
            self.connection.close()

    def run(self, statement: str) -> None:
        """Run a statement."""
        self.connection.cursor().execute(statement.encode())

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """The rows of a query over the catalogue of the server."""
        cursor = self.connection.cursor()
        cursor.execute(query.encode(), tuple(parameters) or None)
        return list(cursor.fetchall())  # type: ignore[arg-type]

    def listed(self, query: str) -> list[tuple[str | int, ...]]:
        """All rows of a query."""
        return self.rows(query)  # type: ignore[return-value]

    def types(self, rows: str) -> dict[str, dt.DataType]:
        """The columns of what stands after FROM, with their types; no row is asked for."""
        cursor = self.connection.cursor()
        cursor.execute(f"SELECT * FROM {rows} AS source LIMIT 0".encode())  # noqa: S608
        columns = cursor.description or []
        oids = sorted({column.type_code for column in columns})
        query = "SELECT oid::bigint, typname::text, typtype::text FROM pg_type WHERE oid = ANY(%s)"
        sorts = {row[0]: (str(row[1]), str(row[2])) for row in self.rows(query, [oids])}
        return {c.name: _type(*sorts[c.type_code], c.precision, c.scale) for c in columns}

    def batches(
        self,
        query: str,
        names: Sequence[str],
        most: int | None = None,  # noqa: ARG002
    ) -> Iterator[Columns]:
        """The named columns, by binary COPY: 64-bit integers all have the same length there."""
        integers = ", ".join(f"CAST({name} AS BIGINT)" for name in names)
        copied = f"COPY (SELECT {integers} FROM ({query}) AS counted) TO STDOUT (FORMAT binary)"  # noqa: S608
        row = np.dtype(
            [("width", ">i2"), *((n, [("size", ">i4"), ("word", ">i8")]) for n in names)]
        )
        held, skipped = bytearray(), 0
        with self.connection.cursor().copy(copied.encode()) as copy:
            for block in copy:
                held += block
                if not skipped and len(held) >= _HEADER:
                    del held[:_HEADER]
                    skipped = _HEADER
                if len(held) >= LIMITS.postgres_rows * row.itemsize:
                    yield _taken(held, row)
        # The last two bytes stand for the end.
        if len(held) % row.itemsize != 2:
            raise ValueError("the answer of the server is cut short, or holds a null")
        yield _taken(held, row)

    def upload(self, columns: pa.Table) -> str:
        """A temporary table, filled by COPY: what is sent so is in no log of statements."""
        name = fresh_name()
        made = ", ".join(f"{field.name} {_column_type(field.type)}" for field in columns.schema)
        self.run(f"CREATE TEMP TABLE {name} ({made})")
        with self.connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
            for row in zip(*(column.to_pylist() for column in columns.columns), strict=True):
                copy.write_row(row)
        self.run(f"ANALYZE {name}")
        return name

    def keep(self, query: str) -> str:
        """A temporary table of our session."""
        name = fresh_name()
        self.run(f"CREATE TEMP TABLE {name} AS {query}")
        return name

    def drop(self, name: str) -> None:
        """Forget a temporary table."""
        self.run(f"DROP TABLE IF EXISTS pg_temp.{name}")

    def unique(self, relation: str) -> frozenset[str]:
        """The columns of which no two rows share a value, by PRIMARY KEY or a unique index."""
        query = (
            "SELECT a.attname::text FROM pg_index i JOIN pg_attribute a "
            "ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
            "WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indisvalid "
            "AND i.indnkeyatts = 1 AND i.indpred IS NULL"
        )
        rows = sealed(lambda: self.rows(query, [relation]), "the catalogue cannot be read")
        return frozenset(str(row[0]) for row in rows)

    def is_stored(self, relation: str) -> bool:
        """Whether a relation has a row for each record whatever it holds, by the catalogue.

        So do tables, also divided ones, without policies that hide rows. Views do not, nor do
        foreign tables, of which nothing is known here.
        """
        query = (
            "WITH RECURSIVE parts(oid) AS (SELECT %s::regclass::oid UNION "
            "SELECT i.inhrelid FROM pg_inherits i JOIN parts p ON i.inhparent = p.oid) "
            "SELECT bool_and(c.relkind IN ('r', 'p') AND NOT row_security_active(c.oid)) "
            "FROM parts p JOIN pg_class c ON c.oid = p.oid"
        )

        def look() -> bool:
            row: Any = self.connection.execute(query, [relation]).fetchone()
            return bool(row and row[0])

        return sealed(look, "the catalogue of the server cannot be read")

    # Expressions.

    def literal(self, text: str) -> str:
        """A text with escapes, which mean the same whatever the server is set to."""
        return "E" + quoted_text(text.replace("\\", "\\\\"))

    def quotient(self, dividend: str, divisor: int) -> str:
        """The whole part of a quotient: the server divides whole numbers as such."""
        return f"({dividend} / CAST({divisor} AS BIGINT))"

    def position(self, values: Sequence[str], key: str) -> str:
        """The index of a key in an array of literals."""
        return f"(array_position(ARRAY[{', '.join(values)}], {key}) - 1)"

    def bin(self, value: str, edges: Sequence[float]) -> str | None:
        """The bin by a binary search of the server's own; the last bin is closed."""
        floats = ", ".join(self.float_literal(edge) for edge in edges[1:-1])
        inner = f"CAST(ARRAY[{floats}] AS {self.double}[])"
        return f"CAST(width_bucket({value}, {inner}) AS BIGINT)" if len(edges) > 2 else "0"

    def whole(self, column: str, kind: dt.DataType) -> str:
        """A signed 64-bit integer."""
        return (
            f"CAST(CAST({column} AS INTEGER) AS BIGINT)"
            if kind.is_boolean()
            else (f"CAST({column} AS BIGINT)")
        )

    def number(self, column: str, kind: dt.DataType) -> str:
        """A float; NaN, which decimals may be too, becomes null."""
        if kind.is_integer():
            return f"CAST({column} AS {self.double})"
        if kind.is_decimal() and (kind.precision is None or kind.precision > _SURE_DIGITS):
            size = f"abs({column})"
            column = (
                f"CASE WHEN {size} < {_TOO_SMALL} THEN 0 WHEN {column} = 'NaN' THEN NULL "
                f"WHEN {column} >= {_TOO_GREAT} THEN 'Infinity' "
                f"WHEN {column} <= -{_TOO_GREAT} THEN '-Infinity' ELSE {column} END"
            )
        return f"NULLIF(CAST({column} AS {self.double}), 'NaN')"

    def text(self, column: str, kind: dt.DataType) -> str:  # noqa: ARG002
        """The text; CHARACTER(n) loses the blanks it was filled up with, as in its comparisons."""
        return f'(CAST({column} AS TEXT) COLLATE "C")'

    def moment(self, column: str, kind: dt.DataType) -> str:
        """Microseconds since 1970, with the ends of the calendar: infinity has no number."""
        if kind.is_date():
            sort, zone = "DATE", ""
        else:
            sort, zone = ("TIMESTAMP", "") if kind.timezone is None else ("TIMESTAMPTZ", " UTC")
        since = f"CAST(EXTRACT(EPOCH FROM {column}) * 1000000 AS BIGINT)"
        if kind.is_date():
            since = f"CAST({column} - DATE '1970-01-01' AS BIGINT) * 86400000000"
        return self.ranged_moment(column, sort, zone, since)

    def float_identifier(self, column: str) -> str:
        """A float as text: the bits of a fraction."""
        number = f"CAST({column} AS {self.double})"
        return self.whole_or(number, f"{number} = 'NaN'", f"encode(float8send({number}), 'hex')")

    def decimal_identifier(self, column: str, kind: dt.DataType) -> str:  # noqa: ARG002
        """The digits of a decimal, without zeros at its end; decimals may be NaN here."""
        return f"CASE WHEN {column} = 'NaN' THEN NULL ELSE CAST(trim_scale({column}) AS TEXT) END"

    def hashed(self, text: str) -> str:
        """SHA-256 as bytes."""
        return f"sha256(convert_to({text}, 'UTF8'))"


def _taken(held: bytearray, row: np.dtype[np.void]) -> dict[str, npt.NDArray[np.int64]]:
    """The whole rows at the beginning of the bytes; they are taken out of them."""
    count = len(held) // row.itemsize
    rows = np.frombuffer(bytes(held[: count * row.itemsize]), dtype=row)
    del held[: count * row.itemsize]
    if count and not all((rows[n]["size"] == 8).all() for n in row.names[1:]):  # type: ignore[index]
        raise ValueError("the answer of the server holds a null")
    return {n: rows[n]["word"].astype(np.int64) for n in row.names[1:]}  # type: ignore[index]


def _column_type(kind: pa.DataType) -> str:
    return {"string": "TEXT", "int64": "BIGINT", "double": "DOUBLE PRECISION"}[str(kind)]


def _type(name: str, sort: str, precision: int | None, scale: int | None) -> dt.DataType:
    """The type of a column, ``unknown`` for what no attribute can be read from."""
    import ibis.expr.datatypes as dt

    if name == "numeric":
        return dt.Decimal(precision, scale) if precision and (scale or 0) >= 0 else dt.Decimal()
    if sort == "e":  # an enumeration
        return dt.string
    return dt.dtype(_PLAIN[name]) if name in _PLAIN else dt.unknown


# Tables of a server: opening connects, and looks at names, rights and types

_RELATIONS = "('r', 'v', 'm', 'f', 'p')"  # tables, views, also stored, foreign and divided ones


def open_postgres(source: PostgresSource, query: str | None) -> EngineTable:
    """A table or a view of a PostgreSQL database, or what a query gives there."""
    engine = _connected(source)
    try:
        _check_session(engine, source)
        rows = f"({query})" if query is not None else _relation(engine, source)
        types = sealed(lambda: engine.types(rows), unreadable(source.public_name, query))
        is_query = query is not None or not engine.is_stored(rows)
        unique = frozenset() if query is not None else engine.unique(rows)
    except TableError:
        engine.close()
        raise
    return EngineTable(engine, rows, types, is_query, unique)


def _connected(source: PostgresSource) -> Postgres:
    if find_spec("psycopg") is None:
        raise TableError(
            "a table of PostgreSQL needs the driver psycopg; install sfumato[postgres]"
        )
    import psycopg

    # What libpq says about a failed connection is public: no table was touched.
    try:
        connection = psycopg.connect(
            source.address,
            autocommit=True,
            connect_timeout=LIMITS.connection_seconds,
            application_name="sfumato",
        )
        connection.execute("SET client_encoding = 'UTF8'")
        return Postgres(connection, is_ours=True)
    except psycopg.Error as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[-1]
    raise TableError(
        f"cannot connect to {shown(source.address)}: {reason}; check server, database and user, "
        "and give the password in a file named by PGPASSFILE, or as PGPASSWORD"
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
    rows = sealed(lambda: engine.rows(query), "the catalogue of the server cannot be read")
    there = {str(name): (bool(seen), bool(may)) for name, seen, may in rows}
    short = {name.partition(".")[2]: name for name, (seen, _) in there.items() if seen}
    full_name = source.table if source.table in there else short.get(source.table, "")
    if not full_name:
        readable = [name for name, (_, may) in there.items() if may]
        raise TableError(
            f"the database {shown(source.database)} has no table or view {shown(source.table)}; it "
            f"has {listing(readable) or 'none that this user may read'}"
            f"{did_you_mean(source.table, [*readable, *short])}"
        )
    if not there[full_name][1]:
        raise TableError(
            f"the user may not read {shown(full_name)}; its owner can GRANT SELECT on it (and "
            "USAGE on its schema)"
        )
    schema, _, name = full_name.partition(".")
    return f"{quoted(schema)}.{quoted(name)}"


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
    lowered = [name.lower() for name in names]
    engine = _connected(source)
    try:
        rows: Any = engine.connection.execute(query, [lowered, lowered])
        return [str(row[0]) for row in rows]
    finally:
        engine.close()
