# SPDX-License-Identifier: Apache-2.0
"""Counting written a second time, value by value in plain Python, to compare the vault with."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from sfumato.domain.attributes import Attribute, Boolean, Category, DateTime, Integer, Numeric
from sfumato.domain.domain import Domain

__all__ = ["SOURCES", "Record", "cell_of", "codes_of", "make_source", "marginal"]

Record = Mapping[str, object]

SOURCES = ("csv", "csv.gz", "parquet", "glob", "duckdb", "pandas", "polars", "arrow", "stream")


def cell_of(attribute: Attribute, value: object) -> int | None:
    """The cell of a value that came with a type, None when the record is dropped."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return 0 if attribute.nulls == "first" else attribute.missing_code
    place = _place(attribute, value)
    outside = 0 if attribute.outside == "first" else attribute.other_code
    if place is None:
        return outside
    last = attribute.value_count - 1
    if not 0 <= place <= last:
        return min(max(place, 0), last) if attribute.outside == "clamp" else outside
    return place


def _place(attribute: Attribute, value: object) -> int | None:
    """The number of the declared value; -1 or too great beyond the ends, None for no place."""
    if isinstance(attribute, Category):
        return attribute.values.index(value) if value in attribute.values else None
    if isinstance(attribute, Boolean):
        return int(value) if value in (False, True) else None
    if isinstance(attribute, Integer):
        if not attribute.min <= value <= attribute.max:
            return -1 if value < attribute.min else attribute.value_count
        if value != math.floor(value) and attribute.outside != "clamp":
            return None
        return (math.floor(value) - attribute.min) // attribute.width
    if isinstance(attribute, Numeric):
        if value == attribute.edges[-1]:
            return attribute.value_count - 1
        return bisect_right(attribute.edges, value) - 1
    assert isinstance(attribute, DateTime)
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    if moment >= attribute.end:
        return attribute.value_count
    return bisect_right(attribute.starts, moment) - 1


def codes_of(domain: Domain, records: Iterable[Record]) -> list[tuple[int, ...]]:
    """The cells of every record that no attribute of the domain drops."""
    rows = [tuple(cell_of(a, record[a.name]) for a in domain) for record in records]
    return [row for row in rows if None not in row]


def marginal(
    domain: Domain, codes: Sequence[tuple[int, ...]], names: tuple[str, ...]
) -> np.ndarray:
    """The table over some attributes, one record at a time."""
    places = [domain.index(name) for name in names]
    out = np.zeros([domain[name].size for name in names], dtype=np.int64)
    for row in codes:
        out[tuple(row[p] for p in places)] += 1
    return out


def make_source(kind: str, frame: pa.Table, folder: Path) -> object:
    """The same rows as a file, a glob, a table of a database or a dataframe."""
    if kind in ("csv", "csv.gz"):
        path = folder / f"people.{kind}"
        with pa.CompressedOutputStream(path, "gzip") if kind == "csv.gz" else path.open("wb") as f:
            pyarrow.csv.write_csv(frame, f)
        return path
    if kind == "parquet":
        pq.write_table(frame, folder / "people.parquet")
        return str(folder / "people.parquet")
    if kind == "glob":
        half = frame.num_rows // 2
        pq.write_table(frame.slice(0, half), folder / "part-1.parquet")
        pq.write_table(frame.slice(half), folder / "part-2.parquet")
        return folder / "part-*.parquet"
    if kind == "duckdb":
        with duckdb.connect(str(folder / "people.duckdb")) as database:
            database.register("frame", frame)
            database.execute("CREATE TABLE visits AS SELECT * FROM frame")
            database.execute("CREATE TABLE empty (a INTEGER)")
        return f"{folder / 'people.duckdb'}::visits"
    if kind == "pandas":
        return frame.to_pandas()
    if kind == "polars":
        return pl.from_arrow(frame)
    if kind == "stream":
        return pa.RecordBatchReader.from_batches(frame.schema, frame.to_batches())
    return frame


def date_or_none(value: pd.Timestamp | None) -> date | None:
    """A pandas date as a plain one."""
    return None if value is None or pd.isna(value) else value.to_pydatetime()
