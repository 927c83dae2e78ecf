# SPDX-License-Identifier: Apache-2.0
"""One record never makes a table unreadable: a column is refused by its type, or read whole.

Columns of every Arrow type, filled with any bits that the type can hold, plain and encoded as
dictionaries, in memory, as dataframes and as Parquet files.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.domain.attributes import Attribute, Boolean, Category, DateTime, Integer, Numeric
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import SfumatoError
from sfumato.vault.count import count_marginals
from sfumato.vault.tables import open_table

KEPT = {"outside": "other", "nulls": "missing"}
CLAMPED = {"outside": "clamp", "nulls": "missing"}
YEAR = (datetime(2020, 1, 1), datetime(2021, 1, 1), "month")
ROLES: dict[str, Attribute | None] = {
    "text": Category("x", ("a", "b"), **KEPT),
    "numbers": Category("x", (1, 2), **KEPT),
    "integer": Integer("x", 0, 3, **CLAMPED),
    "numeric": Numeric("x", (0, 1, 2), **CLAMPED),
    "boolean": Boolean("x", **KEPT),
    "datetime": DateTime("x", *YEAR, **CLAMPED),
    "dropped": DateTime("x", *YEAR),
    "unit": None,
}
KEY = Domain([Integer("k", 0, 1, **CLAMPED)])

ZONES = (None, "UTC", "Europe/Vienna")
WORDS = {
    **{f"timestamp {u} {z}": pa.timestamp(u, z) for u in ("s", "ms", "us", "ns") for z in ZONES},
    **{f"duration {u}": pa.duration(u) for u in ("s", "ms", "us", "ns")},
    "date32": pa.date32(),
    "date64": pa.date64(),
    "time32": pa.time32("ms"),
    "time64": pa.time64("ns"),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "int8": pa.int8(),
    "float64": pa.float64(),
    "float32": pa.float32(),
    "float16": pa.float16(),
    "decimal": pa.decimal128(38, 3),
    "negative decimal": pa.decimal128(38, -3),
    "long decimal": pa.decimal256(76, 70),
}
TEXTS = {"string": pa.string(), "large_string": pa.large_string(), "binary": pa.binary()}
EXTREMES = (0, 1, -1, 2**63 - 1, -(2**63), 2**62, -(2**62), 2**31 - 1, -(2**31), 0x7FF8 << 48)
WORD = st.sampled_from(EXTREMES) | st.integers(-(2**63), 2**63 - 1)
EXTREME_TEXTS = (b"", b"a", b"\xff\xfe", b"\0", b"x" * 100_000)
TEXT = st.sampled_from(EXTREME_TEXTS) | st.binary(max_size=4)


def of_words(kind: pa.DataType, words: list[int]) -> pa.Array:
    """A column whose values have these bits, whatever they mean."""
    width = kind.bit_width // 8
    if pa.types.is_decimal(kind):
        most = 10 ** (kind.precision) - 1
        scale = Decimal(1).scaleb(-kind.scale)
        with_sign = [Decimal(max(-most, min(most, w * abs(w) ** 3))) * scale for w in words]
        with suppress(pa.ArrowInvalid):  # Python's decimals round long ones
            return pa.array(with_sign, kind)
        return pa.array([Decimal(0) * scale for _ in words], kind)
    data = b"".join((w % 2**64).to_bytes(8, "little")[:width] for w in words)
    return pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(data)])


def of_texts(kind: pa.DataType, texts: list[bytes]) -> pa.Array:
    """A column of texts that need not be UTF-8."""
    offsets = np.cumsum([0, *map(len, texts)])
    wide = np.int64 if kind == pa.large_string() else np.int32
    buffers = [pa.py_buffer(offsets.astype(wide)), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(kind, len(texts), [None, *buffers])


def sources(rows: pa.Table, folder: Path) -> dict[str, object]:
    """The rows in every container that can hold them."""
    pq.write_table(rows, folder / "a.parquet")
    found: dict[str, object] = {"arrow": rows, "parquet": folder / "a.parquet"}
    makers = {
        "old parquet": lambda: pq.write_table(rows, folder / "b.parquet", store_schema=False),
        "pandas": rows.to_pandas,
        "pandas of arrow": lambda: rows.to_pandas(types_mapper=pd.ArrowDtype),
        "polars": lambda: pl.from_arrow(rows),
    }
    for name, make in makers.items():
        with suppress(BaseException):  # what the other library itself cannot hold
            made = make()
            found[name] = folder / "b.parquet" if made is None else made
    return found


def counted(source: object, role: str) -> int:
    attribute = ROLES[role]
    domain = KEY if attribute is None else Domain([attribute])
    unit = PrivacyUnit("x", 2) if attribute is None else None
    return int(count_marginals(open_table(source), domain, [()], unit).reveal(()))


def is_refused(source: object, role: str) -> bool:
    try:
        counted(source, role)
    except SfumatoError:
        return True
    return False


@pytest.mark.parametrize("kind", [*WORDS, *TEXTS])
@settings(max_examples=6 if os.environ.get("HYPOTHESIS_PROFILE") == "new" else 3, deadline=None)
@given(data=st.data())
def test_a_column_is_refused_by_its_type_or_read_whatever_it_holds(kind, data):
    """All extremes are in one column of two: opening a source takes longer than reading it."""
    has_all = data.draw(st.booleans())
    if kind in WORDS:
        words = data.draw(st.lists(WORD, min_size=1, max_size=4))
        column = of_words(WORDS[kind], [*words, *(EXTREMES if has_all else ())])
    else:
        texts = data.draw(st.lists(TEXT, min_size=1, max_size=4))
        column = of_texts(TEXTS[kind], [*texts, *(EXTREME_TEXTS if has_all else ())])
    size = len(column)
    if data.draw(st.booleans()):
        places = pa.array(range(size), pa.int32())
        column = pa.DictionaryArray.from_arrays(places, column)
    role = data.draw(st.sampled_from([*ROLES]))
    rows = pa.table({"x": column, "k": pa.array([0] * size)})
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "none").mkdir()
        (Path(name) / "some").mkdir()
        try:
            empty = sources(rows.slice(0, 0), Path(name) / "none")
            full = sources(rows, Path(name) / "some")
        except (pa.ArrowException, OSError):  # Parquet has no such type
            empty, full = {"arrow": rows.slice(0, 0)}, {"arrow": rows}
        for container, source in full.items():
            if container not in empty or (container == "pandas" and is_object(source)):
                continue
            if not is_refused(empty[container], role):
                assert 0 <= counted(source, role) <= size


def is_object(frame: object) -> bool:
    """Whether pandas gave the column no type, so that it is read as texts, which never fail."""
    return isinstance(frame, pd.DataFrame) and frame["x"].dtype == object


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("word", [-(2**63), 1 - 2**63, 2**63 - 1, 2**63 - 2])
@pytest.mark.parametrize("is_encoded", [False, True])
def test_people_who_are_extreme_times_are_read(unit, word, is_encoded):
    column = of_words(pa.timestamp(unit), [word, 0])
    if is_encoded:
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), column)
    rows = pa.table({"x": column, "k": pa.array([0, 0])})
    for part in (rows, rows.slice(0, 1), rows.slice(1)):
        assert counted(part, "unit") <= part.num_rows
        assert counted(part, "datetime") == part.num_rows


@pytest.mark.parametrize("kind", ["timestamp ms None", "timestamp ms UTC", "string"])
def test_a_record_that_the_engine_cannot_read_leaves_the_others_as_they_are(kind, tmp_path):
    """DuckDB gives up the file; Arrow reads the same values out of it, and a null or an end."""
    if kind == "string":
        good, bad = of_texts(pa.string(), [b"a", b"b", b"a"]), of_texts(pa.string(), [b"\xff\xfe"])
        domain = Domain([Category("x", ("a", "b"), **KEPT)])
    else:
        days = [1_577_836_800_000 + 86_400_000 * day for day in (0, 31, 360)]
        good, bad = of_words(WORDS[kind], days), of_words(WORDS[kind], [2**62])
        domain = Domain([DateTime("x", *YEAR, **CLAMPED)])
    found = []
    for name, column in {"good": good, "bad": pa.concat_arrays([good, bad])}.items():
        numbers = pa.array(range(len(column)), pa.int32())
        pq.write_table(pa.table({"x": column, "k": numbers}), tmp_path / f"{name}.parquet")
        table = open_table(tmp_path / f"{name}.parquet")
        found.append(count_marginals(table, domain, [("x",)]).reveal(("x",)))
    apart = found[1] - found[0]
    assert apart.sum() == 1
    assert apart.max() == 1
    assert apart[-2 if kind == "string" else 11] == (kind != "string")
