# SPDX-License-Identifier: Apache-2.0
"""Descriptions as a whole on DuckDB, PostgreSQL and Spark, and of odd tables on each."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from tests.shared.engine_tables import on_all_engines

ROWS = 2500
ENGINES = ["duckdb", "postgres", "spark"]


def odd(rows: int = ROWS) -> pa.Table:
    """Every kind of column, and those that are constant, all null, unique, long, or not finite."""
    some = np.random.default_rng(3)
    income = np.exp(some.normal(3, 1, rows))
    income[: rows // 10] = np.nan
    income[-5:] = [np.inf, -np.inf, 1e300, -1e300, np.inf][:rows]
    first = date(2020, 1, 1)
    return pa.table(
        {
            "age": pa.array(some.integers(18, 80, rows)),
            "income": pa.array(income),
            "fee": pa.array([Decimal(i % 40) / 4 for i in range(rows)], pa.decimal128(9, 2)),
            "city": pa.array(some.choice(["Ulm", "Bonn"], rows, p=[0.7, 0.3])),
            "member": pa.array([bool(i % 3) for i in range(rows)]),
            "day": pa.array([first + timedelta(days=i % 600) for i in range(rows)]),
            "constant": pa.array(["one"] * rows),
            "nothing": pa.array([None] * rows, pa.string()),
            "unique": pa.array([f"u{i}" for i in range(rows)]),
            "long": pa.array(["x" * (10**6 if i < 3 else 3) for i in range(rows)]),
        }
    )


@pytest.fixture(scope="module")
def sources(postgres, tmp_path_factory):
    return on_all_engines(odd(), "described", postgres, tmp_path_factory.mktemp("described"))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_table_is_described_alike_on_every_engine(sources, engine):
    described = sf.describe(sources[engine], epsilon=20, delta=1e-4)
    rows = described.frame.set_index("column")
    assert rows["kind"].to_dict() == {
        "age": "integer", "income": "numeric", "fee": "numeric", "city": "category",
        "member": "boolean", "day": "datetime", "constant": "category", "nothing": "category",
        "unique": "category", "long": "category",
    }  # fmt: skip
    assert described.records[0] == pytest.approx(ROWS, abs=25)
    assert rows.loc["age", "mean"] == pytest.approx(48.5, abs=2.5)
    assert rows.loc["fee", "mean"] == pytest.approx(4.875, abs=0.5)
    assert rows.loc["city", "top"] == "Ulm"
    assert rows.loc["member", "top_count"] == pytest.approx(ROWS * 2 / 3, abs=25)
    assert rows.loc["day", "median"].year in (2020, 2021)
    # NaN is a null; infinities and the largest numbers are clamped to the range that was found.
    assert rows.loc["income", "nulls"] == pytest.approx(ROWS / 10, abs=25)
    assert 100 < rows.loc["income", "high"] < 1e4
    assert rows.loc["constant", "top"] == "one"
    assert rows.loc["constant", "keys"] == 1
    assert rows.loc["long", "top"] == "xxx"
    for name in ("nothing", "unique"):
        assert "no value is shared" in rows.loc[name, "note"]
    assert len(described.domain.names) == 8


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_table_without_rows_is_described_and_says_what_it_does_not_know(
    engine, postgres, tmp_path
):
    empty = on_all_engines(odd(0).select(["age", "member"]), "empty", postgres, tmp_path)[engine]
    described = sf.describe(empty, epsilon=4, columns=["age", "member"])
    assert described.records[0] == pytest.approx(0, abs=15)
    assert "default range" in described.frame.set_index("column").loc["age", "note"]


def test_a_table_without_columns_is_refused_in_words():
    for source in (pa.table({}), pa.table({"nested": pa.array([[1]])})):
        with pytest.raises(sf.TableError, match="no column"):
            sf.describe(source, epsilon=1)


def test_mixed_types_are_decided_by_the_vote(tmp_path):
    path = tmp_path / "mixed.csv"
    values = [("7", "red", "2020-01-01")[i % 3] for i in range(3000)]
    path.write_text("\n".join(["q", *values]) + "\n")
    described = sf.describe(str(path), epsilon=4).frame.iloc[0]
    assert described["kind"] in ("category", "integer", "datetime")
    assert described["records"] + described["nulls"] == pytest.approx(3000, abs=60)
