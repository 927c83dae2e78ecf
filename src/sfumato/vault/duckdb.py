# SPDX-License-Identifier: Apache-2.0
"""DuckDB: the engine for files, dataframes and everything else that has none of its own.

`parquet_table`, `duckdb_table` and `query_view` return the name of a view of a table in files;
nothing is guessed from values.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from sfumato.errors import TableError
from sfumato.text import did_you_mean, listing, shown
from sfumato.vault.engine import (
    EXACT_DIGITS,
    Columns,
    Engine,
    EngineTable,
    before_rows,
    fresh_name,
    quoted,
    quoted_text,
    sealed,
)
from sfumato.vault.sources import TABLE_MARK, FileSource, check_column_names
from sfumato.vault.vault_limits import LIMITS
from sfumato.workload.workload import CELLS_TOGETHER

if TYPE_CHECKING:
    import duckdb
    import ibis.expr.datatypes as dt
    import pyarrow as pa
    from ibis.backends import BaseBackend

__all__ = ["DuckDB", "duckdb_table", "parquet_table", "query_view", "with_durations"]


_CONFIG: Final = {
    "temp_directory": "",  # never write rows or hash tables of counts to disk
    "autoinstall_known_extensions": "false",  # never fetch code over the network
    "preserve_insertion_order": "false",
}
_MAXIMUM_WORD: Final = 2**63 - 1
_NANOSECONDS: Final = 9  # digits after the second
_HELD_DAYS: Final = ("-290307-01-01", "294247-01-01")  # microseconds in 64 bits reach a bit further
_BLANKS: Final = " \t\n\r\v\f"
_GROUP_SIGNS: Final = {" ": " \u00a0\u202f"}  # blanks that writers put so that no line breaks


class DuckDB(Engine):
    """A DuckDB connection behind ibis.

    >>> DuckDB.start().fetch("SELECT 6 * 7 AS answer", ["answer"])["answer"].tolist()
    [42]
    """

    __slots__ = ("backend",)

    name: ClassVar[str] = "DuckDB"
    cells_together: ClassVar[int] = CELLS_TOGETHER["duckdb"]

    def __init__(self, backend: BaseBackend) -> None:
        self.backend = backend

    @classmethod
    def start(cls) -> DuckDB:
        """An engine of our own, in memory."""
        import ibis

        return cls._quiet(ibis.duckdb.connect(**_CONFIG))

    @classmethod
    def connect(cls) -> DuckDB:
        """A connection of its own to the engine of this process, for tables that Arrow reads.

        To start an engine takes longer than to count a small table. Names, temporary tables and
        settings belong to a connection: none sees those of another.
        """
        import ibis

        return cls._quiet(ibis.duckdb.from_connection(_engine().cursor()))

    @classmethod
    def _quiet(cls, backend: BaseBackend) -> DuckDB:
        engine = cls(backend)
        # A notebook would show a bar of DuckDB's own. Where the package that draws it is missing,
        # the bar is off, and DuckDB refuses every statement about it: so ask first.
        if engine.fetch_texts("SELECT current_setting('enable_progress_bar')::VARCHAR") == ["true"]:
            engine.run("SET enable_progress_bar = false")
        return engine

    def close(self) -> None:
        """Let go of all files and temporary tables."""
        self.backend.disconnect()

    def run(self, statement: str) -> None:
        """Run a statement; what it says about its rows is taken and thrown away."""
        self.backend.raw_sql(statement).fetchall()

    def batches(
        self,
        query: str,
        names: Sequence[str],
        most: int | None = None,  # noqa: ARG002
    ) -> Iterator[Columns]:
        """The named columns of a query, a million rows at a time."""
        for batch in self.backend.con.sql(query).to_arrow_reader(LIMITS.duckdb_rows):
            yield {
                name: np.asarray(batch.column(name).to_numpy(zero_copy_only=False), dtype=np.int64)
                for name in names
            }

    def fetch_texts(self, query: str) -> list[str]:
        """The only column of a query over the engine's catalogue."""
        return [row[0] for row in self.backend.raw_sql(query).fetchall()]

    def listed(self, query: str) -> list[tuple[str | int, ...]]:
        """All rows of a query."""
        return list(self.backend.raw_sql(query).fetchall())

    def view(self, query: str) -> str:
        """A named query; nothing is read yet."""
        name = fresh_name()
        self.run(f"CREATE TEMP VIEW {name} AS {query}")
        return name

    def types(self, name: str) -> dict[str, dt.DataType]:
        """The columns of a table or a view, with their types."""
        return dict(self.backend.table(name).schema())

    def upload(self, columns: pa.Table) -> str:
        """A table in memory, scanned in place."""
        name = fresh_name()
        self.replace(name, columns)
        return name

    def replace(self, name: str, columns: pa.Table) -> None:
        """Let another table of the same columns stand behind the name."""
        self.backend.con.register(name, columns)

    def keep(self, query: str) -> str:
        """A temporary table in the memory of the engine."""
        name = fresh_name()
        self.run(f"CREATE TEMP TABLE {name} AS {query}")
        return name

    def complete(self, query: str, columns: Sequence[str]) -> str:
        """The rows of a query in which none of these columns is null, with each column made once.

        DuckDB moves a condition below the expressions that it looks at, and so would evaluate each
        of them twice. It moves none that looks at a random column.
        """
        if not columns:
            return query
        conditions = " AND ".join(f"{column} IS NOT NULL" for column in columns)
        return (
            f"SELECT * EXCLUDE (fence) FROM (SELECT *, random() AS fence FROM ({query}) AS q) "  # noqa: S608
            f"AS fenced WHERE CASE WHEN fence >= 0 THEN {conditions} END"
        )

    def add(self, name: str, query: str) -> None:
        """Put further rows into a temporary table."""
        self.run(f"INSERT INTO {name} {query}")

    def drop(self, name: str) -> None:
        """Forget a temporary table."""
        self.run(f"DROP TABLE IF EXISTS {name}")

    def forget(self, name: str) -> None:
        """Let go of a table in memory."""
        self.backend.con.unregister(name)

    def parquet(self, paths: Sequence[str]) -> str:
        """Parquet files of one schema, one after the other."""
        return self.view(
            f"SELECT * FROM read_parquet({_list(paths)}, hive_partitioning = false)"  # noqa: S608
        )

    def network(self, address: str) -> str:
        """Parquet files at an address; its extension must be installed, and is never fetched."""
        self.run("LOAD httpfs")
        return self.addressed(address)

    def addressed(self, address: str) -> str:
        """Parquet files under a name that DuckDB takes for an address."""
        return self.view(
            f"SELECT * FROM read_parquet({quoted_text(address)}, hive_partitioning = false)"  # noqa: S608
        )

    def attach(self, path: str) -> list[str]:
        """Open a DuckDB file for reading; the ``schema.table`` names in it."""
        self.run(f"ATTACH {quoted_text(path)} AS source (READ_ONLY)")
        return self.fetch_texts(
            "SELECT table_schema || '.' || table_name FROM information_schema.tables "
            "WHERE table_catalog = 'source' ORDER BY 1"
        )

    def is_stored(self, database: str | None, schema: str | None, table: str) -> bool:
        """Whether a name is that of a table with rows of its own, and of no view."""
        places = {"table_catalog": database, "table_schema": schema, "table_name": table}
        conditions = " AND ".join(
            f"lower({column}) = lower({quoted_text(name)})"
            for column, name in places.items()
            if name
        )
        query = f"SELECT table_type FROM information_schema.tables WHERE {conditions}"  # noqa: S608
        kinds = self.fetch_texts(query)
        return bool(kinds) and set(kinds) <= {"BASE TABLE", "LOCAL TEMPORARY"}

    def unique(self, schema: str, table: str) -> frozenset[str]:
        """The columns of the attached file of which, by a constraint, no two rows share a value."""
        query = (
            "SELECT constraint_column_names[1] FROM duckdb_constraints() "  # noqa: S608 - quoted
            "WHERE database_name = 'source' AND constraint_type IN ('PRIMARY KEY', 'UNIQUE') "
            f"AND len(constraint_column_names) = 1 AND schema_name = {quoted_text(schema)} "
            f"AND table_name = {quoted_text(table)}"
        )
        return frozenset(self.fetch_texts(query))

    def attached(self, schema: str, table: str) -> str:
        """One table of the attached file."""
        return self.view(f"SELECT * FROM source.{quoted(schema)}.{quoted(table)}")  # noqa: S608

    # Expressions.

    def field(self, column: str, name: str) -> str:
        """A named field of a struct."""
        return f"struct_extract({column}, {quoted_text(name)})"

    def quotient(self, dividend: str, divisor: int) -> str:
        """The whole part of a quotient."""
        return f"({dividend} // {divisor})"

    def position(self, values: Sequence[str], key: str) -> str:
        """The index of a key in a list of literals, by DuckDB's own search."""
        return f"(list_position([{', '.join(values)}], {key}) - 1)"

    def bin(self, value: str, edges: Sequence[float]) -> str | None:
        """The bin by halving; None for many bins: they are joined, which DuckDB does by sorting."""
        return self.halved(value, edges) if len(edges) - 1 <= LIMITS.bins_in_query else None

    def whole(self, column: str, kind: dt.DataType) -> str:
        """A signed 64-bit integer; unsigned ones that are greater become its maximum."""
        if kind.is_uint64():  # LEAST alone would leave nulls out
            column = f"(CASE WHEN {column} IS NOT NULL THEN LEAST({column}, {_MAXIMUM_WORD}) END)"
        return column if kind.is_int64() else f"CAST({column} AS BIGINT)"

    def number(self, column: str, kind: dt.DataType) -> str:
        """A float; DuckDB rounds long decimals twice, so they are read from their digits."""
        if kind.is_floating():
            column = _seen(column)
            return f"CASE WHEN isnan({column}) THEN NULL ELSE CAST({column} AS DOUBLE) END"
        if kind.is_decimal() and (kind.precision or 38) > EXACT_DIGITS:
            column = f"CAST({column} AS VARCHAR)"
        return f"CAST({column} AS DOUBLE)"

    def text(self, column: str, kind: dt.DataType) -> str:  # noqa: ARG002
        """The text, without the collation that a column may have."""
        return f'(CAST({column} AS VARCHAR) COLLATE "C")'

    def moment(self, column: str, kind: dt.DataType) -> str:
        """Microseconds since 1970, with the ends of the calendar: dates go further than times."""
        if kind.is_timestamp():
            sort = "TIMESTAMP" if kind.timezone is None else "TIMESTAMPTZ"
            column = column if kind.scale == 6 else f"CAST({column} AS {sort})"
        else:
            sort = "DATE"
        zone = "" if sort != "TIMESTAMPTZ" else " 00:00:00+00"
        low, high = (f"{sort} '{year}-01-01{zone}'" for year in ("0001", "10000"))
        inside = f"CASE WHEN {column} >= {low} AND {column} < {high} THEN {column} END"
        return self.ranged_moment(column, sort, zone, f"epoch_us({inside})")

    def microseconds(self, column: str) -> str:
        """Durations as a float, a month as 30 days; what is too long for 64 bits is null."""
        return f"CAST(TRY(epoch_us({column})) AS DOUBLE)"

    def identifier(self, column: str, kind: dt.DataType) -> str:
        """A privacy unit as text, with times told apart to the nanosecond.

        What lies beyond the years that microseconds hold came here as the nearest that they do, so
        it names nobody: null. Two units under one text would take each other's rows away.
        """
        text = super().identifier(column, kind)
        if not kind.is_timestamp():
            return text
        if kind.scale == _NANOSECONDS:
            return f"CAST({column} AS VARCHAR)"
        sort, zone = ("TIMESTAMP", "") if kind.timezone is None else ("TIMESTAMPTZ", "+00")
        low, high = (f"{sort} '{day} 00:00:00{zone}'" for day in _HELD_DAYS)
        return f"CASE WHEN {column} >= {low} AND {column} < {high} THEN {text} END"

    def float_identifier(self, column: str) -> str:
        """A float as text: DuckDB's own text of a fraction."""
        seen = _seen(column)
        return self.whole_or(seen, f"isnan({seen})", f"CAST({seen} AS {self.string})")

    def decimal_identifier(self, column: str, kind: dt.DataType) -> str:
        """The digits of a decimal, without zeros at its end."""
        text = f"CAST({column} AS {self.string})"
        return f"rtrim(rtrim({text}, '0'), '.')" if kind.scale else self.text(column, kind)

    def hashed(self, text: str) -> str:
        """SHA-256 in hexadecimal digits."""
        return f"sha256({text})"

    # Columns without types: texts that the schema gives a meaning.

    def bare(self, text: str) -> str:
        """A text without the blanks around it."""
        return f"TRIM({text}, {quoted_text(_BLANKS)})"

    def read_number(self, text: str, decimal: str, thousands: str) -> str:
        """The float that a text stands for, null if for none.

        Signs between digits must stand where groups begin: 1.5 is not 15 where ``.`` is one.
        """
        if thousands:
            sign = f"[{_GROUP_SIGNS.get(thousands, thousands)}]"
            point = f"[{decimal}]"
            grouped = f"[+-]?[0-9]{{1,3}}({sign}[0-9]{{2,3}})*{sign}[0-9]{{3}}({point}[0-9]*)?"
            sign, grouped = quoted_text(sign), quoted_text(grouped)
            text = (
                f"(CASE WHEN regexp_full_match({text}, {grouped}) "
                f"THEN regexp_replace({text}, {sign}, '', 'g') "
                f"WHEN NOT regexp_matches({text}, {sign}) THEN {text} END)"
            )
        if decimal != ".":
            point = quoted_text(decimal)
            text = f"(CASE WHEN NOT contains({text}, '.') THEN replace({text}, {point}, '.') END)"
        return self.read_as(text, self.double)

    def read_date(self, text: str, formats: Sequence[str]) -> str:
        """The time that a text stands for in one of some formats, null if in none."""
        listed = ", ".join(map(quoted_text, formats))
        return f"try_strptime({text}, [{listed}])"

    def read_as(self, text: str, kind: str) -> str:
        """What a text stands for; null if for nothing of that kind."""
        return f"TRY_CAST({text} AS {kind})"


_engines: dict[int, duckdb.DuckDBPyConnection] = {}


def _engine() -> duckdb.DuckDBPyConnection:
    """The engine of this process. A fork starts its own: the threads stay with the parent."""
    import duckdb

    here = os.getpid()
    if here not in _engines:
        _engines[here] = duckdb.connect(":memory:", config=_CONFIG)
    return _engines[here]


def _seen(column: str) -> str:
    """A float column whose values are looked at.

    Parquet files state the minimum and the maximum of a column, without NaN; DuckDB takes that
    for all there is, and answers comparisons (and ``isnan``) with it. It knows nothing of a TRY.
    """
    return f"TRY({column})"


def _list(paths: Sequence[str]) -> str:
    # Absolute, so that no path can be taken for a network address; escaped, so that none can be
    # taken for a pattern.
    exact = (glob.escape(str(Path(path).absolute())) for path in paths)
    return "[" + ", ".join(map(quoted_text, exact)) + "]"


# Tables in files: only names and types are looked at, from file schemas and catalogues


def parquet_table(paths: Sequence[str], engine: DuckDB) -> str:
    """The name of a view of Parquet files of one schema."""
    import pyarrow.parquet as pq

    def columns(path: str) -> list[tuple[str, str]]:
        schema = sealed(
            lambda: pq.read_schema(path), f"{shown(path)} is not a Parquet file or is damaged"
        )
        return [(field.name, str(field.type)) for field in schema]

    first = columns(paths[0])
    for path in paths[1:]:
        if columns(path) != first:
            raise TableError(
                f"{shown(path)} and {shown(paths[0])} have different columns or types; a table of "
                "many files needs the same in all"
            )
    check_column_names([name for name, _ in first], paths[0])
    return sealed(
        lambda: engine.parquet(paths), f"{shown(paths[0])} is not a Parquet file or is damaged"
    )


def network_table(address: str, query: str | None, engine: DuckDB) -> str:
    """The name of a view of Parquet files at an address, or of a query that calls them ``data``.

    Raises:
        TableError: DuckDB has no extension for addresses, or cannot read this one.
    """
    import duckdb

    extensions = engine.fetch_texts(
        "SELECT extension_name FROM duckdb_extensions() WHERE extension_name = 'httpfs' "
        "AND (installed OR loaded)"
    )
    if not extensions:
        raise TableError(
            "addresses such as s3:// and https:// are read with the extension httpfs of DuckDB, "
            "which is not installed here, and sfumato fetches no code: install it once, with "
            "INSTALL httpfs in DuckDB, or download the file and name it"
        )
    rows = sealed(
        lambda: engine.network(address),
        "DuckDB cannot read the Parquet files at the address; check it, and that DuckDB has the "
        "right to read it (its secrets, or AWS_ACCESS_KEY_ID and its kin in the environment)",
    )
    check_column_names(list(engine.types(rows)), address.rpartition("/")[2])
    if query is None:
        return rows
    engine.run(f"CREATE TEMP VIEW data AS SELECT * FROM {rows}")  # noqa: S608 - made by us
    return before_rows(
        lambda: engine.view(query),
        "the query of the source cannot be run; check it with DuckDB, where the Parquet files are "
        "the table data",
        (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException),
    )


def with_durations(paths: Sequence[str], rows: str, engine: DuckDB) -> str:
    """The name of a view in which durations are some: Parquet has none, and Arrow's are numbers.

    Also in fields of columns of records, which are put together again.
    """
    import pyarrow.parquet as pq

    replaced = [
        f"{_with_spans(quoted(field.name), field.type)} AS {quoted(field.name)}"
        for field in pq.read_schema(paths[0])
        if _has_spans(field.type)
    ]
    if not replaced:
        return rows
    return engine.view(f"SELECT * REPLACE ({', '.join(replaced)}) FROM {rows}")  # noqa: S608


def _has_spans(kind: pa.DataType) -> bool:
    """Whether values of an Arrow type are durations, or records with some in their fields."""
    import pyarrow as pa

    fields = kind if pa.types.is_struct(kind) else ()
    return pa.types.is_duration(kind) or any(_has_spans(field.type) for field in fields)


def _with_spans(value: str, kind: pa.DataType) -> str:
    """A value of an Arrow type whose durations are numbers, with durations in their place."""
    import pyarrow as pa

    if not _has_spans(kind):
        return value
    if pa.types.is_struct(kind):
        fields = (
            f"{quoted_text(field.name)}: "
            + _with_spans(f"struct_extract({value}, {quoted_text(field.name)})", field.type)
            for field in kind
        )
        return f"(CASE WHEN {value} IS NOT NULL THEN {{{', '.join(fields)}}} END)"
    size = {"s": 10**6, "ms": 10**3}.get(kind.unit, 1)
    furthest = (2**62 - 1) // size
    # LEAST and GREATEST leave nulls out.
    near = f"LEAST(GREATEST({value}, -{furthest}), {furthest}) * {size}"
    count = f"(CASE WHEN {value} IS NOT NULL THEN {near} END)"
    count = f"({value} // 1000)" if kind.unit == "ns" else count
    return f"to_microseconds({count})"


def duckdb_table(paths: Sequence[str], table: str, engine: DuckDB) -> EngineTable:
    """One table of a DuckDB file, named or the only one."""
    path, there = _attached(paths, engine)
    if not table and len(there) != 1:
        raise TableError(
            f"{shown(path)} holds {len(there)} tables: {listing(there)}; name one as "
            f"{shown(f'{path}{TABLE_MARK}TABLE')}"
        )
    full_name = (table if "." in table else f"main.{table}") if table else there[0]
    if full_name not in there:
        raise TableError(
            f"{shown(path)} has no table {shown(table)}; it has {listing(there) or 'none'}"
            f"{did_you_mean(full_name, there)}"
        )
    schema, _, name = full_name.partition(".")

    def opened() -> EngineTable:
        may_drop, unique = not engine.is_stored("source", schema, name), engine.unique(schema, name)
        rows = engine.attached(schema, name)
        return EngineTable(engine, rows, engine.types(rows), may_drop, unique)

    return sealed(opened, f"the table {shown(full_name)} cannot be opened")


def _attached(paths: Sequence[str], engine: DuckDB) -> tuple[str, list[str]]:
    """The only file, opened, and the names of its tables."""
    if len(paths) > 1:
        raise TableError(f"a pattern matches {len(paths)} DuckDB files; name one")
    path = paths[0]
    return path, sealed(
        lambda: engine.attach(path),
        f"{shown(path)} cannot be opened: it is no DuckDB file, of a newer version, or open for "
        "writing elsewhere",
    )


def query_view(files: FileSource, query: str, engine: DuckDB) -> str:
    """What a query gives on a DuckDB file, or on Parquet files under the name ``data``."""
    import duckdb

    if files.kind == "parquet":
        view = parquet_table(files.paths, engine)
        engine.run(f"CREATE TEMP VIEW data AS SELECT * FROM {view}")  # noqa: S608 - made by us
    elif files.table:
        raise TableError(
            f"a query and the table {shown(files.table)} are both given; name the table in the "
            "query alone"
        )
    else:
        _attached(files.paths, engine)
        engine.run("USE source")
    # The view is bound to names and types only. Errors about these are kept; others might come
    # from a reader in the query that looks at rows to guess their types.
    return before_rows(
        lambda: engine.view(query),
        "the query of the source cannot be run; check it with DuckDB, where Parquet files are the "
        "table data",
        (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException),
    )
