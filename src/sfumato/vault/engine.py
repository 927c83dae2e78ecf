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

__all__ = ["Engine", "quoted"]

_CONFIG = {
    "temp_directory": "",  # never write rows or hash tables of counts to disk
    "autoinstall_known_extensions": "false",  # never fetch code over the network
    "preserve_insertion_order": "false",
}

# A line of a CSV file is read as one text: the delimiter is a control sign that no text holds and
# there are no quotes, so that whatever stands in a line cannot reach into the next one. Without
# `strict_mode = false`, lines that end in different ways would make the reader fail.
_LINES = (
    "columns = {'line': 'VARCHAR'}, auto_detect = false, header = true, delim = '\x01', "
    "quote = '', escape = '', ignore_errors = true, null_padding = false, "
    "strict_mode = false"
)


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

    def run(self, statement: str) -> None:
        """Run a statement that gives no rows back."""
        self.backend.raw_sql(statement)

    def fetch(self, query: str) -> Mapping[str, npt.NDArray[np.int64]]:
        """The columns of a query whose values are all integers."""
        columns = self.backend.raw_sql(query).fetchnumpy()
        return {name: np.asarray(column, dtype=np.int64) for name, column in columns.items()}

    def fetch_texts(self, query: str) -> list[str]:
        """The only column of a query over the engine's catalogue."""
        return [row[0] for row in self.backend.raw_sql(query).fetchall()]

    def view(self, query: str) -> ir.Table:
        """A named query; nothing is read yet."""
        name = _fresh_name()
        self.run(f"CREATE TEMP VIEW {name} AS {query}")
        return self.backend.table(name)

    def upload(self, columns: pa.Table) -> ir.Table:
        """A table in memory, scanned in place."""
        name = _fresh_name()
        self.backend.con.register(name, columns)
        return self.view(f"SELECT * FROM {name}")  # noqa: S608 - the name is made here

    def compile(self, rows: ir.Table) -> str:
        """An expression as a query of this engine."""
        return str(self.backend.compile(rows))

    def keep(self, query: str) -> str:
        """The name of a temporary table with the rows of a query."""
        name = _fresh_name()
        self.run(f"CREATE TEMP TABLE {name} AS {query}")
        return name

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

    def csv(self, paths: Sequence[str], names: Sequence[str], delimiter: str) -> ir.Table:
        """CSV files with these columns, all of them texts: one line is one record.

        A line is split at the delimiter; a value may stand in double quotes, doubled inside. A
        line that does not follow this, or has another number of values, is no record.
        """
        value = rf'[ ]*"(?:[^"]|"")*"[ ]*|[^"{delimiter}]*'
        whole = quoted_text(f"(?:{value})(?:[{delimiter}](?:{value}))*")
        each = quoted_text(f"[{delimiter}]({value})")
        sign = quoted_text(delimiter)
        split = (
            f"CASE WHEN NOT contains(line, '\"') THEN string_split(line, {sign}) "
            f"WHEN regexp_full_match(line, {whole}) "
            f"THEN regexp_extract_all({sign} || line, {each}, 1) END"
        )
        columns = ", ".join(
            f"{_unquoted(f'parts[{i}]')} AS {quoted(name)}" for i, name in enumerate(names, 1)
        )
        lines = f"read_csv({_list(paths)}, {_LINES})"
        return self.view(
            f"SELECT {columns} FROM (SELECT {split} AS parts FROM {lines} WHERE line <> '') "  # noqa: S608
            f"WHERE len(parts) = {len(names)}"
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


def _unquoted(part: str) -> str:
    """The value inside double quotes, if it stands in them."""
    inner = f"trim({part})"
    return (
        f"CASE WHEN {inner} LIKE '\"%' "
        f"THEN replace(substr({inner}, 2, length({inner}) - 2), '\"\"', '\"') ELSE {part} END"
    )


def _list(paths: Sequence[str]) -> str:
    # Absolute, so that no path can be taken for a network address; escaped, so that none can be
    # taken for a pattern.
    exact = (glob.escape(str(Path(path).absolute())) for path in paths)
    return "[" + ", ".join(map(quoted_text, exact)) + "]"


def _fresh_name() -> str:
    return f"sfumato_{secrets.token_hex(8)}"
