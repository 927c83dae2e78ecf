# SPDX-License-Identifier: Apache-2.0
"""The engine that scans the table: all that sfumato knows about DuckDB is in this file.

Everything else is written as ibis expressions, or as plain SQL over a temporary table of small
integers, which every engine reads. Another engine needs the methods of `Engine` and no more.
"""

from __future__ import annotations

import glob
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sfumato.errors import TableError

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa
    from ibis.backends import BaseBackend

__all__ = ["Engine", "fresh_name", "quoted", "quoted_text"]

_CONFIG = {
    "temp_directory": "",  # never write rows or hash tables of counts to disk
    "autoinstall_known_extensions": "false",  # never fetch code over the network
    "preserve_insertion_order": "false",
}


class Engine:
    """A DuckDB connection behind ibis.

    >>> Engine.start().fetch("SELECT 6 * 7 AS answer")["answer"].tolist()
    [42]
    """

    __slots__ = ("__weakref__", "backend")

    def __init__(self, backend: BaseBackend) -> None:
        if backend.name != "duckdb":
            raise TableError(
                f"this table lives in {backend.name}; counting runs on DuckDB: export the table "
                "to Parquet, or give a dataframe"
            )
        self.backend = backend

    @classmethod
    def start(cls) -> Engine:
        """An engine of our own, in memory."""
        import ibis

        engine = cls(ibis.duckdb.connect(**_CONFIG))
        engine.run("SET enable_progress_bar = false")  # notebooks would show one
        return engine

    def close(self) -> None:
        """Let go of all files and temporary tables."""
        self.backend.disconnect()

    def run(self, statement: str) -> None:
        """Run a statement; what it says about its rows is taken and thrown away."""
        self.backend.raw_sql(statement).fetchall()

    def fetch(self, query: str) -> Mapping[str, npt.NDArray[np.int64]]:
        """The columns of a query whose values are all integers."""
        columns = self.backend.raw_sql(query).fetchnumpy()
        return {name: np.asarray(column, dtype=np.int64) for name, column in columns.items()}

    def fetch_texts(self, query: str) -> list[str]:
        """The only column of a query over the engine's catalogue."""
        return [row[0] for row in self.backend.raw_sql(query).fetchall()]

    def view(self, query: str) -> ir.Table:
        """A named query; nothing is read yet."""
        name = fresh_name()
        self.run(f"CREATE TEMP VIEW {name} AS {query}")
        return self.backend.table(name)

    def upload(self, columns: pa.Table, name: str | None = None) -> ir.Table:
        """A table in memory, scanned in place; under a name, it can be replaced by another."""
        name = name or fresh_name()
        self.replace(name, columns)
        return self.view(f"SELECT * FROM {name}")  # noqa: S608 - the name is made here

    def replace(self, name: str, columns: pa.Table) -> None:
        """Let another table of the same columns stand behind the name."""
        self.backend.con.register(name, columns)

    def compile(self, rows: ir.Table) -> str:
        """An expression as a query of this engine."""
        return str(self.backend.compile(rows))

    def complete(self, query: str, columns: Sequence[str]) -> str:
        """The rows of a query in which none of these columns is null.

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

    def keep(self, query: str) -> str:
        """The name of a temporary table with the rows of a query."""
        name = fresh_name()
        self.run(f"CREATE TEMP TABLE {name} AS {query}")
        return name

    def add(self, name: str, query: str) -> None:
        """Put further rows into a temporary table."""
        self.run(f"INSERT INTO {name} {query}")

    def hashed(self, secret: str, columns: Sequence[str]) -> str:
        """A hash of some columns under a secret, as an expression."""
        return f"sha256(concat_ws(',', {quoted_text(secret)}, {', '.join(columns)}))"

    def drop(self, name: str) -> None:
        """Forget a temporary table."""
        self.run(f"DROP TABLE IF EXISTS {name}")

    def parquet(self, paths: Sequence[str]) -> ir.Table:
        """Parquet files of one schema, one after the other."""
        return self.view(
            f"SELECT * FROM read_parquet({_list(paths)}, hive_partitioning = false)"  # noqa: S608
        )

    def attach(self, path: str) -> list[str]:
        """Open a DuckDB file for reading; the ``schema.table`` names in it."""
        self.run(f"ATTACH {quoted_text(path)} AS source (READ_ONLY)")
        return self.fetch_texts(
            "SELECT table_schema || '.' || table_name FROM information_schema.tables "
            "WHERE table_catalog = 'source' ORDER BY 1"
        )

    def attached(self, schema: str, table: str) -> ir.Table:
        """One table of the attached file."""
        return self.view(f"SELECT * FROM source.{quoted(schema)}.{quoted(table)}")  # noqa: S608


def quoted(name: str) -> str:
    """A name as SQL writes it.

    >>> quoted('a "b" c')
    '"a ""b"" c"'
    """
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """A text as SQL writes it.

    >>> quoted_text("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def _list(paths: Sequence[str]) -> str:
    # Absolute, so that no path can be taken for a network address; escaped, so that none can be
    # taken for a pattern.
    exact = (glob.escape(str(Path(path).absolute())) for path in paths)
    return "[" + ", ".join(map(quoted_text, exact)) + "]"


def fresh_name() -> str:
    """A name that no table has."""
    return f"sfumato_{secrets.token_hex(8)}"
