# SPDX-License-Identifier: Apache-2.0
"""Tables in memory: pandas, polars, pyarrow, and whatever speaks Arrow.

A column is converted only when it is asked for. Its type comes from the dtype, never from the
values: a pandas column of dtype ``object`` has none, so it is read as texts, as CSV is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sfumato.errors import TableError
from sfumato.text import shown
from sfumato.vault.sensitive import sealed

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

__all__ = [
    "Columns",
    "read_memory",
    "readable",
]


@dataclass(frozen=True, slots=True, repr=False)
class Columns:
    """The columns of a table in memory: their types, and how to get some of them.

    ``is_stored``: the rows are in memory. A lazy frame or a stream is still to be computed, by a
    filter perhaps, which then is a part of the source.
    """

    types: Mapping[str, pa.DataType | None]
    untyped: frozenset[str]
    get: Callable[[Sequence[str]], pa.Table]
    is_stored: bool = True


def read_memory(source: object) -> Columns:
    """The columns of a dataframe or Arrow table."""
    module = type(source).__module__.partition(".")[0]
    if module == "pandas" and type(source).__name__ == "DataFrame":
        return _pandas(source)  # type: ignore[arg-type]
    return replace(_arrow(_as_arrow(source, module)), is_stored=_is_stored(source, module))


def _is_stored(source: object, module: str) -> bool:
    """Whether a table is known to hold its rows; what is not known may compute them."""
    import pyarrow as pa

    if module == "polars":
        return type(source).__name__ == "DataFrame"
    if isinstance(source, pa.Table | pa.RecordBatch):
        return True
    return not hasattr(source, "__arrow_c_stream__") and not isinstance(
        source, pa.RecordBatchReader
    )


def _as_arrow(source: object, module: str) -> pa.Table:
    import pyarrow as pa

    message = (
        f"a {type(source).__module__}.{type(source).__qualname__} is not a table; give a path, a "
        "pandas, polars or pyarrow table, an ibis table, or anything with __arrow_c_stream__"
    )
    if isinstance(source, pa.Table):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    if isinstance(source, pa.RecordBatchReader):
        return sealed(source.read_all, "the stream of record batches cannot be read")
    if module == "polars" and type(source).__name__ in ("DataFrame", "LazyFrame"):
        return sealed(lambda: _from_polars(source), message)
    if hasattr(source, "__arrow_c_stream__"):
        return sealed(lambda: pa.table(source), message)

    import narwhals as nw

    frame = sealed(lambda: nw.from_native(source, eager_only=True), message)
    return sealed(frame.to_arrow, message)


def _from_polars(source: pl.DataFrame | pl.LazyFrame) -> pa.Table:
    return (source if hasattr(source, "to_arrow") else source.collect()).to_arrow()


def _arrow(table: pa.Table) -> Columns:
    import pyarrow as pa

    names = table.column_names
    _check_unique(names)
    untyped = frozenset(f.name for f in table.schema if pa.types.is_null(f.type))

    def get(wanted: Sequence[str]) -> pa.Table:
        return pa.table({name: _plain(table[name]) for name in wanted})

    return Columns(_types(names, get=lambda name: table.slice(0, 0)[name]), untyped, get)


def _pandas(frame: pd.DataFrame) -> Columns:
    import pyarrow as pa

    names = [str(name) for name in frame.columns]
    _check_unique(names)
    place = {name: i for i, name in enumerate(names)}
    kinds = zip(names, map(str, frame.dtypes), strict=True)
    untyped = frozenset(name for name, kind in kinds if kind == "object")

    def column(name: str, rows: int | None = None) -> pa.ChunkedArray:
        series = frame.iloc[:rows, place[name]]
        if name in untyped or getattr(series.dtype, "storage", "") == "python":
            gone = series.isna().tolist()
            texts = [None if g else _text(v) for v, g in zip(series.tolist(), gone, strict=True)]
            return pa.chunked_array([pa.array(texts, pa.string())])
        array = pa.array(series, from_pandas=True)
        return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])

    def get(wanted: Sequence[str]) -> pa.Table:
        return pa.table({name: _plain(column(name)) for name in wanted})

    return Columns(_types(names, get=lambda name: column(name, 0)), untyped, get)


def _text(value: object) -> str | None:
    """A value as text; null if it has none in UTF-8: one record must not make all unreadable.

    Halves of surrogate pairs have no UTF-8, and Python writes no integer of over 4300 digits.
    """
    try:
        text = str(value)
        text.encode()
    except Exception:  # whatever it says may hold the value
        return None
    return text


def _types(
    names: Sequence[str], get: Callable[[str], pa.ChunkedArray]
) -> Mapping[str, pa.DataType | None]:
    """The type of each column, from its first zero rows; None if Arrow has no such type."""
    types: dict[str, pa.DataType | None] = {}
    for name in names:
        try:
            types[name] = _plain(get(name)).type
        except Exception:  # whatever it is, it matters only if the column is asked for
            types[name] = None
    return types


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same values in a type that every engine reads."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type))
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms"):
        return _microseconds(column)
    if hasattr(pa.types, "is_string_view") and pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    return column


def readable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same values in a type that every engine reads; null where a text is no UTF-8."""
    import pyarrow as pa

    plain = _plain(column)
    if not (pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type)):
        return plain
    try:
        plain.validate(full=True)
    except pa.ArrowInvalid:
        whole = pa.large_binary() if pa.types.is_large_string(plain.type) else pa.binary()
        texts = [_decoded(value) for value in plain.cast(whole).to_pylist()]
        return pa.chunked_array([pa.array(texts, plain.type)])
    return plain


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:  # which would quote the value
        return None


def _microseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times of a coarser unit, with those that microseconds cannot hold at the nearest they can."""
    import pyarrow as pa
    import pyarrow.compute as pc

    furthest = (2**63 - 2) // (10**6 if column.type.unit == "s" else 10**3)
    options = pc.ElementWiseAggregateOptions(skip_nulls=False)
    count = pc.min_element_wise(column.cast(pa.int64()), furthest, options=options)
    count = pc.max_element_wise(count, -furthest, options=options)
    return count.cast(column.type).cast(pa.timestamp("us", column.type.tz))


def _check_unique(names: Sequence[str]) -> None:
    twice = next((n for i, n in enumerate(names) if n in names[:i]), None)
    if twice is not None:
        raise TableError(f"the table names the column {shown(twice)} twice; rename one")
