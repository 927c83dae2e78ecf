# SPDX-License-Identifier: Apache-2.0
"""Sources of tables: the file, database, Spark table or query that a text or a declaration names.

`engine_source` and `file_source` return what a text names; `SqlSource` and `CsvSource` are what a
curator says besides. Addresses and paths are public: they stand in specs, ledgers and messages.
Nothing is opened here but the folders that a pattern names.

    postgres://user@host/database::schema.table     spark:database.table     spark:path/*.parquet
    people.parquet     people-*.csv     people.duckdb::visits
    s3://bucket/people-*.parquet     https://host/people.parquet

Passwords are refused in an address; PostgreSQL's own ways to give one (PGPASSFILE, ~/.pgpass,
PGPASSWORD) are not looked at here.
"""

from __future__ import annotations

import glob
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal
from urllib.parse import parse_qsl, urlsplit

from sfumato.errors import TableError
from sfumato.text import either, shown
from sfumato.vault.transcode import PACKED, checked_encoding

if TYPE_CHECKING:
    from sfumato.vault.tables import Table

__all__ = [
    "CSV_RULES",
    "TABLE_MARK",
    "CsvRule",
    "CsvSource",
    "FileKind",
    "FileSource",
    "NetworkSource",
    "PostgresSource",
    "SparkSource",
    "SqlSource",
    "TextRules",
    "check_column_names",
    "engine_source",
    "file_source",
    "innermost",
    "may_be_filtered",
    "placed",
]


CsvRule = Literal["lines", "rfc4180"]
CSV_RULES: Final[tuple[CsvRule, ...]] = ("lines", "rfc4180")

TABLE_MARK = "::"

_POSTGRES = ("postgres://", "postgresql://")
_SPARK = "spark:"
_NETWORK = ("s3://", "https://")
_NAME = re.compile(r"[^./:*?\[\]{}]+(\.[^./:*?\[\]{}]+){0,2}")

_CSV = (".csv", ".tsv")
_PARQUET = (".parquet", ".pq")
_DUCKDB = (".duckdb", ".ddb")
_JSON_LINES = (".jsonl", ".ndjson")
_EXCEL = (".xlsx", ".xls", ".xlsb", ".xlsm", ".ods")
_ENDINGS = (
    "CSV (.csv, .tsv) or JSON lines (.jsonl, .ndjson), also packed (.gz, .zst, .bz2, .xz), Parquet "
    "(.parquet, .pq), DuckDB (.duckdb, .ddb) or a spreadsheet (.xlsx, .xls, .ods)"
)
CORNER: Final = re.compile(r"!\$?(?P<column>[A-Za-z]{1,3})\$?(?P<row>[1-9][0-9]{0,6})$")
"""The cell at which the table of a sheet begins, as spreadsheets write it: Sheet!A3."""
FileKind = Literal["csv", "json lines", "parquet", "duckdb", "spreadsheet"]
_KINDS: Final[dict[FileKind, tuple[str, ...]]] = {
    "csv": _CSV,
    "json lines": _JSON_LINES,
    "parquet": _PARQUET,
    "duckdb": _DUCKDB,
    "spreadsheet": _EXCEL,
}


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

    >>> import sfumato as sf
    >>> sf.SqlSource("visits.parquet", "SELECT * FROM data WHERE year = 2024").source
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
class TextRules:
    """What the texts of a column without types stand for, besides the rules of the schema.

    ``thousands`` and ``date_formats`` are empty where there are none; then dates are ISO 8601.
    """

    decimal: str = "."
    thousands: str = ""
    date_formats: tuple[str, ...] = ()
    null_values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CsvSource:
    """CSV files, with the curator's word on how they were written.

    What is left out has a public default: a comma, semicolon, tab or bar as the delimiter and the
    byte order mark of UTF-8 or UTF-16 are looked for in the first line alone, which names the
    columns. A file in which both rules for records give the same needs none: its path is enough.

    Args:
        source: A path or a glob of CSV files, also packed (.gz, .zst, .bz2, .xz).
        records: ``"lines"`` if no text holds a line end: every line after the first is a record,
            whatever quotes are in it. ``"rfc4180"`` if the writer put texts with delimiters,
            quotes or line ends in quotes, and doubled the quotes inside. None: nothing is said.
        encoding: Such as ``"cp1252"``, ``"latin-1"`` or ``"utf-16"``. Bytes that are none of its
            characters become U+FFFD.
        delimiter: The character between two values.
        quote: The character around values, the double quote unless given; ``""`` for none.
        header: The names of the columns, for files without a first line of names.
        decimal: ``"."`` or ``","``, what stands before the fraction of a number.
        thousands: What stands between groups of digits: ``","``, ``"."``, ``"'"`` or ``" "``.
        date_format: How dates are written, as for ``strptime``: ``"%d.%m.%Y"``; or several, of
            which the first that fits holds. ISO 8601 unless given.
        null_values: Texts that mean null, such as ``["NA", "n/a"]``; an empty one does anyway.

    Raises:
        TableError: ``source`` is no path, or another argument is none of these.

    Privacy: none of its own; the guarantee is for people whose records are as declared
    (docs/proofs/csv.md), and a file that is visibly not is refused.

    >>> import sfumato as sf
    >>> sf.CsvSource("people.csv", "rfc4180").records
    'rfc4180'
    >>> sf.CsvSource("leute.csv", encoding="cp1252", delimiter=";", decimal=",").decimal
    ','
    """

    source: str | os.PathLike[str]
    records: CsvRule | None = None
    _: KW_ONLY
    encoding: str | None = None
    delimiter: str | None = None
    quote: str | None = None
    header: Sequence[str] | None = None
    decimal: str = "."
    thousands: str | None = None
    date_format: str | Sequence[str] | None = None
    null_values: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.source, str | os.PathLike):
            raise TableError(
                f"CsvSource takes the path of CSV files, got {type(self.source).__name__}; a "
                "dataframe is given as it is"
            )
        if self.records not in (None, *CSV_RULES):
            raise TableError(
                f"the records of a CSV file are {either(CSV_RULES)}, got {shown(self.records)}"
            )
        for key in ("header", "date_format", "null_values"):
            object.__setattr__(self, key, _texts(key, getattr(self, key)))
        self._check_marks()
        if self.encoding is not None:
            object.__setattr__(self, "encoding", checked_encoding(self.encoding))
        if self.header is not None:
            if not self.header or not all(name.strip() for name in self.header):
                raise TableError("header lists the names of all columns; one of them is empty")
            check_column_names(self.header, "header")

    def _check_marks(self) -> None:
        """Refuse delimiters, quotes and signs of numbers that cannot be told apart."""
        for key in ("delimiter", "quote"):
            mark = getattr(self, key)
            is_mark = isinstance(mark, str) and len(mark) == 1 and 0 < ord(mark) < 128
            if mark is None or (key == "quote" and mark == ""):
                continue
            if not is_mark or mark in "\r\n " or mark.isalnum():
                raise TableError(
                    f"{key} = {shown(mark)} is not one character of ASCII that is no letter, "
                    "digit, blank or line end"
                )
        if self.delimiter is not None and self.delimiter == (
            '"' if self.quote is None else self.quote
        ):
            raise TableError(f"delimiter and quote are both {shown(self.delimiter)}; they differ")
        if self.quote == "" and self.records == "rfc4180":
            raise TableError(
                'quote = "" says that nothing is in quotes, and "rfc4180" that texts with line '
                "ends are; keep one of them"
            )
        if self.decimal not in (".", ","):
            raise TableError(f"decimal is '.' or ',', got {shown(self.decimal)}")
        if self.thousands not in (None, "", ",", ".", "'", " ", "_"):
            raise TableError(
                f"thousands is one of ',', '.', a quote ', a blank or _, got "
                f"{shown(self.thousands)}"
            )
        if self.thousands == self.decimal:
            raise TableError(f"decimal and thousands are both {shown(self.decimal)}; they differ")

    @property
    def texts(self) -> TextRules:
        """What values stand for."""
        formats = tuple(self.date_format or ())
        return TextRules(self.decimal, self.thousands or "", formats, tuple(self.null_values))

    @property
    def declarations(self) -> tuple[str, ...]:
        """The names of the arguments that say something."""
        return tuple(
            f.name for f in fields(self)[1:] if getattr(self, f.name) not in (None, f.default)
        )

    @property
    def rule(self) -> CsvRule | None:
        """Which lines are a record: where nothing is in quotes, each is."""
        return "lines" if self.quote == "" else self.records


def _texts(key: str, value: object) -> tuple[str, ...] | None:
    """A list of texts; one text is a list of itself where that is allowed."""
    if value is None:
        return None
    if isinstance(value, str) and key == "date_format":
        value = (value,)
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_list or not all(isinstance(text, str) for text in value):  # type: ignore[attr-defined]
        raise TableError(f"{key} is a list of texts, got {shown(value)}")
    return tuple(value)  # type: ignore[arg-type]


def may_be_filtered(source: object) -> bool:
    """Whether the rows are what a query gives, or persons: records may be dropped on the way."""
    if isinstance(source, DerivedSource):
        return source.drops_records or may_be_filtered(source.source)
    return isinstance(source, SqlSource)


def innermost(source: object) -> object:
    """The source that all rows come from, without what is made of it in its engine."""
    return innermost(source.source) if isinstance(source, DerivedSource) else source


class DerivedSource(ABC):
    """A source whose rows are made from those of another, so that a person moves as many."""

    source: object
    drops_records: ClassVar[bool] = False

    @abstractmethod
    def opened(self) -> Table:
        """The table, its rows not looked at.

        Returns:
            What a release opens.
        """

    @property
    @abstractmethod
    def kind(self) -> str:
        """What the ledger calls it before the name of its source; empty where it is the same."""


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


@dataclass(frozen=True, slots=True)
class NetworkSource:
    """Parquet files at an address that DuckDB reads with its extension ``httpfs``."""

    address: str

    @property
    def public_name(self) -> str:
        """Without the server and directories."""
        return self.address.rpartition("/")[2]


def engine_source(source: str) -> PostgresSource | SparkSource | NetworkSource | None:
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
    if source.startswith(_NETWORK):
        return _network(source)
    return None


def _network(source: str) -> NetworkSource:
    is_secret = "@" in source.partition("://")[2].partition("/")[0]
    if is_secret or (source.startswith("https://") and ("?" in source or "#" in source)):
        raise TableError(
            "the address of the file holds a user, a password or a signature (what stands before @ "
            "or after ?); take it out, because addresses are written into ledgers and reports, and "
            "let DuckDB have it as a secret or in the environment (AWS_ACCESS_KEY_ID and its kin)"
        )
    if not source.lower().endswith(_PARQUET):
        raise TableError(
            f"{shown(source.rpartition('/')[2])} is at an address that names no Parquet file "
            "(.parquet, .pq); files of other kinds are read from this machine: download it first"
        )
    return NetworkSource(source)


def placed(source: str, folder: Path) -> str:
    """The source with its relative path, if it is one, beginning at a folder."""
    if not source.startswith(_SPARK):
        return source if "://" in source else str(folder / source)
    path = _spark(source.removeprefix(_SPARK)).path
    return source if not path or "://" in path else _SPARK + str(folder / path)


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


@dataclass(frozen=True, slots=True)
class FileSource:
    """The files behind a path or a glob, all of one kind, and the table named after ``::``."""

    kind: FileKind
    paths: Sequence[str]
    table: str


def file_source(source: str) -> FileSource:
    """The files that a path or a glob names, and the table in them."""
    if "://" in source:
        raise TableError(
            f"{shown(source)} is an address of a kind that is not known; a table is read from a "
            f"file: {_ENDINGS}, from Parquet at s3:// or https://, from "
            "postgres://user@host/database::schema.table, from spark:database.table, or from a "
            "dataframe in memory"
        )
    name, _, table = source.partition(TABLE_MARK)
    paths = _paths(name)
    kinds = {_kind(path) for path in paths}
    if len(kinds) > 1:
        raise TableError(f"{shown(source)} matches files of different kinds; name one kind")
    kind = kinds.pop()
    if table and kind not in ("duckdb", "spreadsheet"):
        raise TableError(
            f"{shown(source)}: {TABLE_MARK} names a table of a DuckDB file or a sheet; a {kind} "
            "file holds only one"
        )
    return FileSource(kind, paths, table)


def without_corner(path: str, table: str) -> str:
    """The name of a sheet without the cell at which it begins: the same table in a ledger."""
    return CORNER.sub("", table) if path.lower().endswith(_EXCEL) else table


def may_have_a_title(source: object, columns: int) -> bool:
    """Whether the first row of a sheet may be a title: it has one text, and no cell was said."""
    if not isinstance(source, str | os.PathLike) or columns != 1:
        return False
    name, _, sheet = os.fsdecode(source).partition(TABLE_MARK)
    return name.lower().endswith(_EXCEL) and CORNER.search(sheet) is None


def _paths(name: str) -> list[str]:
    """The files that a path or a glob names, sorted."""
    path = Path(name)
    if path.is_dir():
        raise TableError(
            f"{shown(name)} is a directory; name the files in it, such as "
            f"{shown(str(path / '*.parquet'))}"
        )
    if path.is_file():
        return [name]
    if not glob.has_magic(name):
        raise TableError(
            f"no such file: {shown(name, 500)}; check the path, relative ones start at the current "
            "directory"
        )
    # Path.glob takes no absolute patterns.
    matches = glob.glob(name, recursive=True)  # noqa: PTH207
    files = sorted(match for match in matches if Path(match).is_file())
    if not files:
        raise TableError(f"no file matches {shown(name)}; check the pattern and the directory")
    return files


def _kind(path: str) -> FileKind:
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    is_packed = suffixes[-1:] != [] and suffixes[-1] in PACKED
    last = (suffixes[:-1] if is_packed else suffixes)[-1:]
    allowed: Sequence[FileKind] = ("csv", "json lines") if is_packed else tuple(_KINDS)
    for kind in allowed:
        if last and last[0] in _KINDS[kind]:
            return kind
    if last == [".json"]:
        raise TableError(
            f"{shown(Path(path).name)} is one JSON text, whose records cannot be told apart "
            "without reading all of it; write JSON lines (.jsonl): one object on each line, as "
            "jq -c '.[]' does"
        )
    raise TableError(
        f"{shown(Path(path).name)} has no known ending; a table is read from {_ENDINGS}"
    )


def check_column_names(names: Sequence[str], path: str) -> None:
    """Refuse a file that names a column twice."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise TableError(
                f"{shown(path)} names the column {shown(name)} twice (capitals do not count); "
                "rename one"
            )
        seen.add(name.lower())
