# SPDX-License-Identifier: Apache-2.0
"""Descriptions as a whole on DuckDB, PostgreSQL and Spark, and of odd tables on each."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.errors import TableError
from sfumato.vault.tables import name_of
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


UNIQUE = (
    "CREATE TABLE ids (pid BIGINT PRIMARY KEY, code TEXT UNIQUE, tag UUID, a INT, b INT, age INT, "
    "stay INTERVAL, UNIQUE (a, b))"
)
FILL = (
    "INSERT INTO ids SELECT i, 'c' || i, CAST('00000000-0000-0000-0000-000000000001' AS UUID), "
    "i % 7, i, i % 90, i % 12 * INTERVAL '1 hour' FROM generate_series(0, 1999) AS made(i)"
)


@pytest.fixture
def identifiers(request, tmp_path):
    """The address of a table with keys that its schema declares, on one engine."""
    if request.param == "duckdb":
        with duckdb.connect(tmp_path / "ids.duckdb") as file:
            file.execute(UNIQUE)
            file.execute(FILL)
        return f"{tmp_path / 'ids.duckdb'}::ids"
    address = request.getfixturevalue("postgres")
    with psycopg.connect(address, autocommit=True) as server:
        server.execute(f"DROP TABLE IF EXISTS ids; {UNIQUE}; {FILL}")
        server.execute("CREATE UNIQUE INDEX some_ages ON ids (age) WHERE age > 90")
    return f"{address}::ids"


both = pytest.mark.parametrize("identifiers", ["duckdb", "postgres"], indirect=True)


@both
def test_columns_that_a_constraint_says_are_unique_are_left_out_before_anything_is_spent(
    identifiers, tmp_path
):
    budget = sf.Budget(epsilon=1, delta=1e-6)
    plan = sf.plan_description(identifiers, budget)
    assert set(plan.kinds) == {"a", "b", "age"}  # several columns together, or some rows: no key
    assert set(plan.left_out) == {"pid", "code", "tag", "stay"}
    assert "PRIMARY KEY" in plan.left_out["pid"]
    assert "UUIDs" in plan.left_out["tag"]
    assert 'duration = "hour"' in plan.left_out["stay"]
    said = sf.plan_description(identifiers, budget, kinds={"pid": "integer", "tag": "category"})
    assert set(said.kinds) == {"pid", "tag", "a", "b", "age"}

    name = name_of(identifiers)
    ledger = sf.Ledger.create(tmp_path / "a.ledger", budget, name)
    for columns in ("code", ("a", "code")):
        search = sf.plan_discovery(sf.Category.discover(columns), budget)
        with pytest.raises(TableError, match=r"no two records share a value of 'code'"):
            search.release(identifiers, ledger)
    assert not ledger.entries()


@both
def test_durations_of_a_database_are_counted_in_the_unit_that_is_declared(identifiers):
    domain = sf.Domain([sf.Integer("stay", 0, 11, duration="hour")])
    plan = sf.plan(
        sf.marginals(domain, [("stay",)]) | sf.means(domain, "stay"), sf.Budget(epsilon=50)
    )
    release = plan.release(identifiers)
    exact = [2000 // 12 + (hour < 2000 % 12) for hour in range(12)]
    assert release.answers("stay")["value"].to_numpy() == pytest.approx(exact, abs=3)


def test_columns_of_types_that_are_not_read_are_left_out_in_words_on_postgres(postgres):
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute(
            "DROP TABLE IF EXISTS parts; DROP TYPE IF EXISTS home; "
            "CREATE TYPE home AS (city TEXT, zip INT); "
            "CREATE TABLE parts (lives home, doc JSONB, visits INT[], age INT)"
        )
        server.execute("CREATE OR REPLACE VIEW cities AS SELECT (lives).city, age FROM parts")
    plan = sf.plan_description(f"{postgres}::parts", sf.Budget(epsilon=1))
    assert set(plan.kinds) == {"age"}
    assert all("a view or a query can have its parts" in why for why in plan.left_out.values())
    view = sf.plan_description(f"{postgres}::cities", sf.Budget(epsilon=1, delta=1e-6))
    assert set(view.kinds) == {"city", "age"}
