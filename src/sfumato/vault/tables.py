# SPDX-License-Identifier: Apache-2.0
"""Open a table: a file, a glob, a table of a DuckDB file, a dataframe, an ibis table.

    open_table("people.parquet")          open_table("people-*.csv")
    open_table("people.duckdb::visits")   open_table(dataframe)

Opening looks at column names and types only, which are public. What the columns hold is read
when it is counted, and what does not fit the schema is refused before that (`fit`).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeGuard

from sfumato.errors import TableError
from sfumato.vault.csvfile import blocks
from sfumato.vault.engine import Engine, fresh_name
from sfumato.vault.files import TABLE_MARK, csv_columns, duckdb_table, locate, parquet_table
from sfumato.vault.memory import read_memory
from sfumato.vault.sensitive import sealed

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import ibis.expr.types as ir
    import pyarrow as pa

    from sfumato.vault.records import Records

__all__ = ["Reading", "Table", "column_types", "is_named", "open_table", "public_name"]


@dataclass(frozen=True, slots=True, repr=False)
class Reading:
    """Some columns of a table, to be read in one pass.

    ``rows`` is an expression that holds them under the names ``places``. It shows one block of the
    table at a time: the next one after each step of ``blocks``, which must be walked to its end.
    """

    rows: ir.Table
    places: Sequence[str]
    blocks: Iterable[None]


class Table:
    """Rows that only the vault reads, with the public names and types of their columns.

    A column is *untyped* when its values came without a type (CSV): it is then read as text, and
    every value is interpreted as the schema asks.
    """

    __slots__ = ("__weakref__", "_read", "engine", "name", "records", "secret", "types", "untyped")

    def __init__(
        self,
        name: str,
        engine: Engine,
        types: Mapping[str, dt.DataType],
        untyped: frozenset[str],
        read: Callable[[Sequence[str]], Reading],
    ) -> None:
        self.name = name
        self.engine = engine
        self.types = dict(types)
        self.untyped = untyped
        self._read = read
        # The encoded records of the last count, and the key that chooses the rows of a privacy
        # unit: kept here, so that all counts of one release describe the same records.
        self.records: Records | None = None
        self.secret: str | None = None

    def __repr__(self) -> str:
        return f"<table {self.name}: {len(self.types)} columns, rows not shown>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TableError(f"the table {self.name} cannot be copied or pickled; open it again")

    def read(self, columns: Sequence[str]) -> Reading:
        """Get ready to read these columns."""
        return self._read(columns)


def open_table(source: object) -> Table:
    """The table behind a path, a dataframe or an ibis table; columns are looked at, rows are not.

    Privacy: the result and every error depend on names and types only.
    """
    if isinstance(source, Table):
        return source
    if isinstance(source, str | os.PathLike):
        return _from_file(source)
    if _is_ibis(source):
        return _from_ibis(source)
    return _from_memory(source)


def column_types(source: object) -> dict[str, str]:
    """The name of every column with its type, as ibis names it (``int64``, ``string``, ...).

    Columns of a CSV file are ``string``: nothing is guessed from their values.
    """
    return {name: str(kind) for name, kind in open_table(source).types.items()}


def is_named(source: object) -> bool:
    """Whether the source has a name of its own: a file or a table of a database, no dataframe."""
    return isinstance(source, str | os.PathLike) or _is_ibis(source)


def public_name(source: object) -> str:
    """What to call a table in a ledger or a report: the name of its file, without directories.

    >>> public_name("data/people.duckdb::visits")
    'people.duckdb::visits'
    """
    if isinstance(source, Table):
        return source.name
    if isinstance(source, str | os.PathLike):
        path, mark, table = _text(source).partition(TABLE_MARK)
        return Path(path).name + mark + table
    if _is_ibis(source):
        return _ibis_name(source)
    return f"{type(source).__module__.partition('.')[0]} table in memory"


def _from_file(source: str | os.PathLike[str]) -> Table:
    found = locate(_text(source))
    name = public_name(source)
    if found.kind == "csv":
        return _from_csv(name, found.paths)
    engine = _started()
    try:
        if found.kind == "parquet":
            rows = parquet_table(found.paths, engine)
        else:
            rows = duckdb_table(found.paths, found.table, engine)
    except TableError:
        engine.close()  # an error may be kept for long, and the file with it
        raise
    table = Table(name, engine, dict(rows.schema()), frozenset(), _reader(rows))
    weakref.finalize(table, engine.close)
    return table


def _from_csv(name: str, paths: Sequence[str]) -> Table:
    import ibis
    import pyarrow as pa

    delimiter, names = csv_columns(paths)
    engine = _started()

    def read(wanted: Sequence[str]) -> Reading:
        numbers = [names.index(column) for column in dict.fromkeys(wanted)]
        nothing = pa.table({f"x{i}": pa.array([], pa.string()) for i in numbers})
        shown = fresh_name()

        def steps() -> Iterator[None]:
            yield  # the table has its columns even when it has no rows
            for block in blocks(paths, len(names), delimiter, numbers):
                engine.replace(shown, block)
                yield
            engine.replace(shown, nothing)

        places = [f"x{names.index(column)}" for column in wanted]
        return Reading(engine.upload(nothing, shown), places, steps())

    return Table(name, engine, dict.fromkeys(names, ibis.dtype("string")), frozenset(names), read)


def _from_ibis(source: ir.Table) -> Table:
    name = _ibis_name(source)
    backend = sealed(source.get_backend, f"the ibis table {name!r} has no engine behind it")
    engine = Engine(backend)
    # Asking for no rows makes ibis hand its tables in memory, if any, to the engine.
    sealed(source.limit(0).execute, f"the ibis table {name!r} cannot be run by its engine")
    return Table(name, engine, dict(source.schema()), frozenset(), _reader(source))


def _from_memory(source: object) -> Table:
    import pyarrow as pa

    columns = read_memory(source)
    engine = _started()

    def read(wanted: Sequence[str]) -> Reading:
        held = columns.get(list(dict.fromkeys(wanted)))
        places = [f"x{i}" for i in range(len(wanted))]  # engines take "a" and "A" for one name
        rows = engine.upload(pa.table([held[name] for name in wanted], names=places))
        return Reading(rows, places, [None])

    known = {kind: _engine_type(engine, kind) for kind in set(columns.types.values())}
    types = {name: known[kind] for name, kind in columns.types.items()}
    return Table(public_name(source), engine, types, columns.untyped, read)


def _engine_type(engine: Engine, kind: pa.DataType | None) -> dt.DataType:
    """The type that a column of an Arrow type has in the engine, ``unknown`` if it has none."""
    import ibis.expr.datatypes as dt
    import pyarrow as pa

    if kind is None:
        return dt.unknown
    try:
        return engine.upload(pa.table({"x": pa.array([], kind)})).schema()["x"]
    except Exception:  # no rows were read; it matters only if the column is asked for
        return dt.unknown


def _reader(rows: ir.Table) -> Callable[[Sequence[str]], Reading]:
    return lambda wanted: Reading(rows, wanted, [None])


def _started() -> Engine:
    return sealed(Engine.start, "DuckDB cannot be started; check its installation")


def _text(source: str | os.PathLike[str]) -> str:
    text = os.fspath(source)
    if not text or "\0" in text:
        raise TableError("the path of the table is empty or holds a zero byte; give a file name")
    return text


def _is_ibis(source: object) -> TypeGuard[ir.Table]:
    if type(source).__module__.partition(".")[0] != "ibis":
        return False
    import ibis.expr.types as ir

    return isinstance(source, ir.Table)


def _ibis_name(source: ir.Table) -> str:
    try:
        return str(source.get_name())
    except Exception:  # an expression that is no table of its engine has none
        return "ibis table"
