# SPDX-License-Identifier: Apache-2.0
"""Columns of records: their named fields are columns, alike from files and from memory."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.domain.attributes import Category, Integer, Numeric
from sfumato.domain.domain import Domain
from sfumato.errors import TableError
from sfumato.vault.count import count_marginals
from sfumato.vault.encode import check_columns
from sfumato.vault.tables import open_table

PEOPLE = pa.table(
    {
        "id": [1, 2, 3],
        "address": [
            {"city": "Rome", "geo": {"lat": 41.5}},
            {"city": None, "geo": None},
            None,
        ],
        "tags": [[1, 2], [], None],
        "a.b": ["x", "y", "z"],
        "a": [{"b": "no", "c": "p"}] * 3,
    }
)
DOMAIN = Domain(
    [
        Category("city", ("Rome",), nulls="missing", outside="other", from_column="address.city"),
        Numeric("lat", (0, 50, 90), nulls="missing", outside="other",
                from_column="address.geo.lat"),
        Category("a.b", ("x", "y"), outside="other", nulls="missing"),
    ]
)  # fmt: skip


def sources(folder):
    path = folder / "people.parquet"
    pq.write_table(PEOPLE, path)
    return {
        "Parquet": path,
        "Arrow": PEOPLE,
        "polars": pl.from_arrow(PEOPLE),
        "pandas": PEOPLE.to_pandas(types_mapper=pd.ArrowDtype),
    }


@pytest.mark.parametrize("kind", ["Parquet", "Arrow", "polars", "pandas"])
def test_named_fields_are_counted_and_a_column_of_the_same_name_comes_first(tmp_path, kind):
    table = open_table(sources(tmp_path)[kind])
    assert {"address.city", "address.geo.lat", "a.c"} <= set(table.column_types)
    counts = count_marginals(table, DOMAIN, [(name,) for name in DOMAIN.names])
    assert counts.reveal(("city",)).tolist() == [1, 0, 2]
    assert counts.reveal(("lat",)).tolist() == [1, 0, 0, 2]
    assert counts.reveal(("a.b",)).tolist() == [1, 1, 1, 0]


def test_a_field_that_is_no_utf_8_makes_no_file_unreadable(tmp_path):
    """DuckDB gives such a file up; then Arrow reads it, fields too."""
    bad = pa.StructArray.from_arrays(
        [pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff\xfe", b"Rome"]).buffers())],
        names=["city"],
    )
    pq.write_table(pa.table({"address": bad}), tmp_path / "a.parquet")
    city = Domain([DOMAIN["city"]])
    counts = count_marginals(open_table(tmp_path / "a.parquet"), city, [("city",)])
    assert counts.reveal(("city",)).tolist() == [1, 0, 1]


def test_lists_and_whole_records_are_refused_in_words():
    table = open_table(PEOPLE)
    with pytest.raises(TableError, match="it holds lists, and an attribute has one value"):
        check_columns(table, Domain([Category("tags", ("x",))]))
    with pytest.raises(TableError, match=r"declare one of them: 'address.city', 'address.geo'"):
        check_columns(table, Domain([Category("address", ("x",))]))
    with pytest.raises(TableError, match=r"did you mean 'address.city'"):
        check_columns(table, Domain([Category("adress.city", ("x",))]))


def test_fields_of_structs_on_spark_are_counted_as_those_of_memory(spark):
    """Nulls of a struct, of its field, and of a struct in it all go where the schema says."""
    rows = [("Rome", 1), ("Rome", None), (None, 2), None, ("Pisa", 1)]
    records = [None if row is None else {"city": row[0], "home": {"room": row[1]}} for row in rows]
    table = pa.table({"address": pa.array(records)})
    spark.createDataFrame(
        [(r,) for r in records],
        "address struct<city: string, home: struct<room: bigint>>",
    ).createOrReplaceTempView("nested_rows")
    domain = Domain(
        [
            Category("city", ("Rome", "Pisa"), nulls="missing", from_column="address.city"),
            Integer("room", 1, 2, nulls="missing", from_column="address.home.room"),
        ]
    )
    seen = [
        count_marginals(open_table(source), domain, [domain.names]).reveal(domain.names).tolist()
        for source in (table, "spark:nested_rows")
    ]
    assert seen[0] == seen[1]
    assert sum(map(sum, seen[0])) == len(rows)
