# SPDX-License-Identifier: Apache-2.0
"""Tables in files: CSV, Parquet, globs of either, and tables of a DuckDB file.

Only names and types are looked at here. They come from headers, file schemas and catalogues,
which are public; nothing is guessed from values.
"""

from __future__ import annotations

import csv
import glob
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import TableError
from sfumato.vault.engine import Engine
from sfumato.vault.sensitive import sealed
from sfumato.wording import did_you_mean, listing, shown

if TYPE_CHECKING:
    import ibis.expr.types as ir

__all__ = ["TABLE_MARK", "read_file"]

TABLE_MARK = "::"

_CSV = (".csv", ".tsv")
_PARQUET = (".parquet", ".pq")
_DUCKDB = (".duckdb", ".ddb")
_KNOWN = "CSV (.csv, .tsv, also with .gz), Parquet (.parquet, .pq) or DuckDB (.duckdb, .ddb)"
_DELIMITERS = ",;\t|"
_LONGEST_HEADER = 1 << 20


def read_file(source: str, engine: Engine) -> tuple[ir.Table, bool]:
    """The table behind a path, and whether its columns have no types (CSV: all are texts)."""
    if "://" in source:
        raise TableError(
            f"{shown(source)} is an address; a table is read from a file: {_KNOWN}, or from a "
            "dataframe in memory"
        )
    name, _, table = source.partition(TABLE_MARK)
    paths = _paths(name)
    kinds = {_kind(path) for path in paths}
    if len(kinds) > 1:
        raise TableError(f"{shown(source)} matches files of different kinds; name one kind")
    kind = kinds.pop()
    if kind in _DUCKDB:
        return _duckdb(paths, table, engine), False
    if table:
        raise TableError(
            f"{shown(source)}: {TABLE_MARK} names a table of a DuckDB file; a {kind} file holds "
            "only one"
        )
    return (_csv(paths, engine), True) if kind in _CSV else (_parquet(paths, engine), False)


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
            f"no such file: {shown(name)}; check the path, relative ones start at the current "
            "directory"
        )
    # Path.glob takes no absolute patterns.
    matches = glob.glob(name, recursive=True)  # noqa: PTH207
    found = sorted(match for match in matches if Path(match).is_file())
    if not found:
        raise TableError(f"no file matches {shown(name)}; check the pattern and the directory")
    return found


def _kind(path: str) -> str:
    suffixes = [s.lower() for s in Path(path).suffixes]
    if suffixes and suffixes[-1] == ".gz":
        kind = suffixes[-2] if len(suffixes) > 1 and suffixes[-2] in _CSV else ""
    else:
        kind = suffixes[-1] if suffixes else ""
    if kind not in (*_CSV, *_PARQUET, *_DUCKDB):
        raise TableError(
            f"{shown(Path(path).name)} has no known ending; a table is read from {_KNOWN}"
        )
    return kind


def _parquet(paths: Sequence[str], engine: Engine) -> ir.Table:
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
    _check_names([name for name, _ in first], paths[0])
    return sealed(
        lambda: engine.parquet(paths), f"{shown(paths[0])} is not a Parquet file or is damaged"
    )


def _csv(paths: Sequence[str], engine: Engine) -> ir.Table:
    delimiter, names = _header(paths[0])
    for path in paths[1:]:
        if _header(path) != (delimiter, names):
            raise TableError(
                f"{shown(path)} and {shown(paths[0])} have different first lines; a table of many "
                "files needs the same column names in all"
            )
    _check_names(names, paths[0])
    return sealed(
        lambda: engine.csv(paths, names, delimiter), f"{shown(paths[0])} cannot be read as CSV"
    )


def _header(path: str) -> tuple[str, list[str]]:
    """The delimiter and the column names, both from the first line alone."""

    def first_line() -> str:
        start = gzip.open if path.lower().endswith(".gz") else Path.open
        with start(Path(path), "rb") as file:
            text = file.readline(_LONGEST_HEADER).decode("utf-8-sig")
        return text.splitlines()[0] if text.strip() else ""

    line = sealed(first_line, f"{shown(path)} cannot be read as text in UTF-8")
    if not line:
        raise TableError(f"{shown(path)} has no first line with the names of the columns; add one")
    is_tsv = Path(path.lower().removesuffix(".gz")).suffix == ".tsv"
    delimiter = "\t" if is_tsv else max(_DELIMITERS, key=line.count)
    names = sealed(
        lambda: [name.strip() for name in next(csv.reader([line], delimiter=delimiter))],
        f"the first line of {shown(path)} does not hold column names",
    )
    if not all(names):
        raise TableError(f"the first line of {shown(path)} leaves a column without a name")
    return delimiter, names


def _check_names(names: Sequence[str], path: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise TableError(
                f"{shown(path)} names the column {shown(name)} twice (capitals do not count); "
                "rename one"
            )
        seen.add(name.lower())


def _duckdb(paths: Sequence[str], table: str, engine: Engine) -> ir.Table:
    if len(paths) > 1:
        raise TableError(f"a pattern matches {len(paths)} DuckDB files; name one")
    path = paths[0]
    there = sealed(
        lambda: engine.attach(path),
        f"{shown(path)} cannot be opened: it is no DuckDB file, of a newer version, or open for "
        "writing elsewhere",
    )
    if not table and len(there) != 1:
        raise TableError(
            f"{shown(path)} holds {len(there)} tables: {listing(there)}; name one as "
            f"{shown(f'{path}{TABLE_MARK}TABLE')}"
        )
    wanted = (table if "." in table else f"main.{table}") if table else there[0]
    if wanted not in there:
        raise TableError(
            f"{shown(path)} has no table {shown(table)}; it has {listing(there) or 'none'}"
            f"{did_you_mean(wanted, there)}"
        )
    schema, _, name = wanted.partition(".")
    return sealed(
        lambda: engine.attached(schema, name), f"the table {shown(wanted)} cannot be opened"
    )
