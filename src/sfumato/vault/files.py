# SPDX-License-Identifier: Apache-2.0
"""Tables in files: CSV, Parquet, globs of either, and tables of a DuckDB file.

Only names and types are looked at here. They come from headers, file schemas and catalogues,
which are public; nothing is guessed from values.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sfumato.errors import TableError
from sfumato.text import did_you_mean, listing, shown
from sfumato.vault.csv import header
from sfumato.vault.duckdb import DuckDB
from sfumato.vault.sensitive import before_rows, sealed
from sfumato.vault.warehouse import TABLE_MARK

__all__ = [
    "Located",
    "csv_columns",
    "duckdb_table",
    "locate",
    "parquet_table",
    "query_view",
]


_CSV = (".csv", ".tsv")
_PARQUET = (".parquet", ".pq")
_DUCKDB = (".duckdb", ".ddb")
_KNOWN = "CSV (.csv, .tsv, also with .gz), Parquet (.parquet, .pq) or DuckDB (.duckdb, .ddb)"


@dataclass(frozen=True, slots=True)
class Located:
    """The files behind a path or a glob, all of one kind, and the table named after ``::``."""

    kind: Literal["csv", "parquet", "duckdb"]
    paths: Sequence[str]
    table: str


def locate(source: str) -> Located:
    """Find the files that a source names."""
    if "://" in source:
        raise TableError(
            f"{shown(source)} is an address of a kind that is not known; a table is read from a "
            f"file: {_KNOWN}, from postgres://user@host/database::schema.table, from "
            "spark:database.table, or from a dataframe in memory"
        )
    name, _, table = source.partition(TABLE_MARK)
    paths = _paths(name)
    kinds = {_kind(path) for path in paths}
    if len(kinds) > 1:
        raise TableError(f"{shown(source)} matches files of different kinds; name one kind")
    kind = kinds.pop()
    if table and kind != "duckdb":
        raise TableError(
            f"{shown(source)}: {TABLE_MARK} names a table of a DuckDB file; a {kind} file holds "
            "only one"
        )
    return Located(kind, paths, table)


def csv_columns(paths: Sequence[str]) -> tuple[str, list[str]]:
    """The delimiter and the column names that all these files have."""
    first = header(paths[0])
    for path in paths[1:]:
        if header(path) != first:
            raise TableError(
                f"{shown(path)} and {shown(paths[0])} have different first lines; a table of many "
                "files needs the same column names in all"
            )
    _check_names(first[1], paths[0])
    return first


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
    found = sorted(match for match in matches if Path(match).is_file())
    if not found:
        raise TableError(f"no file matches {shown(name)}; check the pattern and the directory")
    return found


def _kind(path: str) -> Literal["csv", "parquet", "duckdb"]:
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes[-1:] == [".gz"] and suffixes[-2:-1] and suffixes[-2] in _CSV:
        return "csv"
    last = suffixes[-1] if suffixes else ""
    if last in _CSV:
        return "csv"
    if last in _PARQUET:
        return "parquet"
    if last in _DUCKDB:
        return "duckdb"
    raise TableError(f"{shown(Path(path).name)} has no known ending; a table is read from {_KNOWN}")


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
    _check_names([name for name, _ in first], paths[0])
    return sealed(
        lambda: engine.parquet(paths), f"{shown(paths[0])} is not a Parquet file or is damaged"
    )


def _check_names(names: Sequence[str], path: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise TableError(
                f"{shown(path)} names the column {shown(name)} twice (capitals do not count); "
                "rename one"
            )
        seen.add(name.lower())


def duckdb_table(paths: Sequence[str], table: str, engine: DuckDB) -> tuple[str, bool]:
    """One table of a DuckDB file, by its name or because it is the only one; is it a view?"""
    path, there = _attached(paths, engine)
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
        lambda: (engine.attached(schema, name), not engine.is_stored("source", schema, name)),
        f"the table {shown(wanted)} cannot be opened",
    )


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


def query_view(found: Located, query: str, engine: DuckDB) -> str:
    """What a query gives on a DuckDB file, or on Parquet files under the name ``data``."""
    import duckdb

    if found.kind == "parquet":
        files = parquet_table(found.paths, engine)
        engine.run(f"CREATE TEMP VIEW data AS SELECT * FROM {files}")  # noqa: S608 - made by us
    elif found.table:
        raise TableError(
            f"a query and the table {shown(found.table)} are both given; name the table in the "
            "query alone"
        )
    else:
        _attached(found.paths, engine)
        engine.run("USE source")
    # The view is bound to names and types only. Errors about these are kept; others might come
    # from a reader in the query that looks at rows to guess their types.
    return before_rows(
        lambda: engine.view(query),
        "the query of the source cannot be run; check it with DuckDB, where Parquet files are the "
        "table data",
        (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException),
    )
