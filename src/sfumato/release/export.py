# SPDX-License-Identifier: Apache-2.0
"""Answers as files: Arrow, Parquet and CSV, each complete or not there at all.

One long table: group, query in words, one labelled column per attribute (null where a group does
not ask about it), numbers. It is made and written group by group, so that a file may be larger
than what fits in memory.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import SfumatoError
from sfumato.release.estimates import Estimates
from sfumato.release.frames import (
    NUMBERS,
    Group,
    key_term,
    long_numbers,
    named_groups,
)
from sfumato.release.labels import Labels, axes_of, label_text, places_along, texts_of
from sfumato.release.provenance import provenance_json
from sfumato.workload.queries import Array, Integers
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "METADATA_KEY",
    "arrow_table",
    "arrow_tables",
    "replaced",
    "write_csv",
    "write_numbers",
    "write_parquet",
    "write_table_csv",
]

METADATA_KEY = b"sfumato"
ROW_GROUP = 2**17


def arrow_tables(
    estimates: Estimates, provenance: Mapping[str, object], level: float
) -> Iterator[pa.Table]:
    """The long table group by group, all parts with one schema."""
    workload = estimates.forecast.workload
    schema = _schema(workload, provenance, NUMBERS)
    for group, name in named_groups(workload).items():
        yield _part(workload, group, name, schema, long_numbers(estimates, group, level))


def arrow_table(estimates: Estimates, provenance: Mapping[str, object], level: float) -> pa.Table:
    """The long table in memory."""
    import pyarrow as pa

    return pa.concat_tables(arrow_tables(estimates, provenance, level)).unify_dictionaries()


def write_parquet(
    estimates: Estimates, provenance: Mapping[str, object], level: float, path: Path
) -> None:
    """The long table as one Parquet file, with the provenance record in its metadata."""
    schema = _schema(estimates.forecast.workload, provenance, NUMBERS)
    _write_parts(arrow_tables(estimates, provenance, level), schema, path)


def write_numbers(
    workload: Workload,
    columns: Sequence[str],
    numbers: Callable[[Group], Sequence[Array]],
    provenance: Mapping[str, object],
    path: Path,
) -> None:
    """As `write_parquet` for other numbers of every group than a forecast gives."""
    schema = _schema(workload, provenance, columns)
    parts = (
        _part(workload, group, name, schema, numbers(group))
        for group, name in named_groups(workload).items()
    )
    _write_parts(parts, schema, path)


def _write_parts(parts: Iterable[pa.Table], schema: pa.Schema, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        held: list[pa.Table] = []
        for part in parts:
            held.append(part)
            # Groups are gathered into row groups of a fair size, never split across calls.
            if sum(p.num_rows for p in held) >= ROW_GROUP:
                writer.write_table(pa.concat_tables(held), row_group_size=ROW_GROUP)
                held = []
        if held:
            writer.write_table(pa.concat_tables(held), row_group_size=ROW_GROUP)


def write_csv(
    estimates: Estimates, provenance: Mapping[str, object], level: float, path: Path
) -> None:
    """The long table as CSV; texts that a spreadsheet would run as a formula get a ``'`` first."""
    schema = _schema(estimates.forecast.workload, provenance, NUMBERS)
    _write_csv_parts(arrow_tables(estimates, provenance, level), schema, path)


def write_table_csv(table: pa.Table, path: Path) -> None:
    """A table as CSV, texts as harmless as those of `write_csv`."""
    _write_csv_parts([table], table.schema, path)


def _write_csv_parts(parts: Iterable[pa.Table], schema: pa.Schema, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import csv

    texts = [pa.types.is_dictionary(f.type) or pa.types.is_string(f.type) for f in schema]
    safe = pa.schema(
        [
            pa.field(_harmless_text(f.name), pa.string() if is_text else f.type)
            for f, is_text in zip(schema, texts, strict=True)
        ]
    )
    with csv.CSVWriter(path, safe) as writer:
        for part in parts:
            columns = [
                _harmless(column.cast(pa.string())) if is_text else column
                for column, is_text in zip(part.columns, texts, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=safe))


@contextmanager
def replaced(path: str | Path) -> Iterator[Path]:
    """A temporary file beside ``path`` that takes its place when the block ends well."""
    target = Path(path)
    temporary = target.with_name(f".sfumato-{secrets.token_hex(8)}")
    try:
        temporary.open("xb").close()  # the usual permissions, unlike those of tempfile
    except OSError as error:
        raise cannot_write(target, error) from None
    try:
        try:
            yield temporary
            temporary.replace(target)
        except OSError as error:
            raise cannot_write(target, error) from None
    finally:
        temporary.unlink(missing_ok=True)


def cannot_write(path: Path, error: OSError) -> SfumatoError:
    """One clear message for a file that could not be written."""
    return SfumatoError(
        f"cannot write {path}: {error.strerror or error}; choose a folder that exists and that "
        "you may write to"
    )


def _schema(
    workload: Workload, provenance: Mapping[str, object], numbers: Sequence[str]
) -> pa.Schema:
    """Attribute columns hold numbers or times where all their labels are, else texts."""
    import pyarrow as pa

    kinds: dict[str, set[str]] = {}
    for group in named_groups(workload):
        for axis in axes_of(key_term(workload, group)):
            for name, labels in axis.columns:
                kinds.setdefault(name, set()).add(labels.dtype.kind)
    text = pa.dictionary(pa.int32(), pa.string())
    typed = {
        frozenset("i"): pa.int64(),
        frozenset("f"): pa.float64(),
        frozenset("if"): pa.float64(),
        frozenset("b"): pa.bool_(),
        frozenset("M"): pa.timestamp("us"),
    }
    fields = [pa.field("group", text), pa.field("query", pa.string())]
    fields += [pa.field(name, typed.get(frozenset(found), text)) for name, found in kinds.items()]
    fields += [pa.field(name, pa.float64()) for name in numbers]
    return pa.schema(fields, metadata={METADATA_KEY: provenance_json(provenance).encode()})


def _part(
    workload: Workload, group: Group, name: str, schema: pa.Schema, numbers: Sequence[Array]
) -> pa.Table:
    """One group under ``schema``, whose last columns are the numbers."""
    import pyarrow as pa

    term = key_term(workload, group)
    columns: dict[str, pa.Array] = {
        column: pa.array(found, pa.float64(), from_pandas=True)  # NaN becomes null
        for column, found in zip(schema.names[-len(numbers) :], numbers, strict=True)
    }
    named = pa.array([name], pa.string())
    codes = pa.array(np.zeros(term.rows, dtype=np.int32))
    columns["group"] = pa.DictionaryArray.from_arrays(codes, named)
    columns["query"] = pa.array(texts_of(term), pa.string())
    axes = axes_of(term)
    for i, axis in enumerate(axes):
        places = places_along([a.rows for a in axes], i)
        for column, labels in axis.columns:
            columns[column] = _labels(labels, places, schema.field(column).type)
    absent = (f for f in schema if f.name not in columns)
    columns |= {f.name: pa.nulls(term.rows, f.type) for f in absent}
    return pa.Table.from_arrays([columns[f.name] for f in schema], schema=schema)


def _labels(labels: Labels, places: Integers, kind: pa.DataType) -> pa.Array:
    """The labels of an axis at the given places, texts as codes into the few there are."""
    import pyarrow as pa

    if not pa.types.is_dictionary(kind):
        return pa.array(labels, kind).take(pa.array(places))
    texts = pa.array([label_text(v) for v in labels.tolist()], pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(texts.indices.take(pa.array(places)), texts.dictionary)


def _harmless(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    is_formula = pc.match_substring_regex(texts, r"^[=+\-@\t\r]")
    return pc.if_else(is_formula, pc.binary_join_element_wise("'", texts, ""), texts)


def _harmless_text(text: str) -> str:
    return f"'{text}" if text[:1] in "=+-@\t\r" and text else text
