# SPDX-License-Identifier: Apache-2.0
"""Sources that are not files: ``postgres://user@host/database::schema.table``, ``spark:...``.

An address is public: it stands in specs, ledgers and messages. Passwords are therefore refused in
it; PostgreSQL's own ways to give one (PGPASSFILE, ~/.pgpass, PGPASSWORD) are not looked at here.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl, urlsplit

from sfumato.errors import TableError
from sfumato.wording import either, shown

__all__ = [
    "CSV_RULES",
    "TABLE_MARK",
    "CsvRule",
    "CsvSource",
    "PostgresSource",
    "SparkSource",
    "SqlSource",
    "engine_source",
    "placed",
]

CsvRule = Literal["lines", "rfc4180"]
CSV_RULES: Final[tuple[CsvRule, ...]] = ("lines", "rfc4180")

TABLE_MARK = "::"

_POSTGRES = ("postgres://", "postgresql://")
_SPARK = "spark:"
_NAME = re.compile(r"[^./:*?\[\]{}]+(\.[^./:*?\[\]{}]+){0,2}")


@dataclass(frozen=True, slots=True)
class SqlSource:
    """What a SELECT of the curator's own gives, in place of a table.

    ``source`` is a database (without a table), ``"spark:"``, or Parquet files, which the text calls
    ``data``. The text is trusted: it runs as it stands.

    Privacy: none of its own; each row that it gives must come from one row (with a privacy unit:
    carry the unit of all rows that it comes from). Joins and aggregates can break that
    (docs/engines.md), and nothing checks it.

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
