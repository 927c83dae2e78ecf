# SPDX-License-Identifier: Apache-2.0
"""Two sources read the same data, or they do not, whatever they are called."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import ibis
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
import sfumato.vault.encode
from sfumato.cli.main import main
from sfumato.domain.attributes import Category, Integer
from sfumato.errors import TableError
from sfumato.vault.identity import data_identity, shares_data
from sfumato.vault.sources import SqlSource
from sfumato.vault.tables import open_table
from tests.shared.engine_tables import in_postgres

ROWS = pa.table({"sex": ["f", "m"], "age": [30, 40]})


def is_same(one: object, other: object) -> bool:
    found = shares_data(data_identity(one), data_identity(other))
    assert found == shares_data(data_identity(other), data_identity(one))
    return found


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    pq.write_table(ROWS, tmp_path / "people.parquet")
    pq.write_table(ROWS, tmp_path / "others.parquet")
    (tmp_path / "people.csv").write_text("sex,age\nf,30\n")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "people.parquet")
    os.link(tmp_path / "people.parquet", tmp_path / "hard.parquet")
    with duckdb.connect(str(tmp_path / "clinic.duckdb")) as database:
        database.execute("CREATE TABLE visits AS SELECT 'f' AS sex, 30 AS age")
        database.execute("CREATE TABLE staff AS SELECT 'f' AS sex, 30 AS age")
        database.execute("CREATE VIEW adults AS SELECT * FROM visits WHERE age > 17")
        database.execute("CREATE VIEW women AS SELECT * FROM adults WHERE sex = 'f'")
    return tmp_path


@pytest.mark.parametrize(
    "other",
    [
        "./people.parquet",
        "in/../people.parquet",
        "link.parquet",
        "hard.parquet",
        "people.*",
        "p*.parquet",
        "**/people.parquet",
        "spark:people.parquet",
        Path("people.parquet"),
        SqlSource("people.parquet", "SELECT sex FROM data WHERE age > 20"),
        SqlSource("others.parquet", "SELECT sex FROM data JOIN 'people.parquet' USING (sex)"),
        SqlSource("others.parquet", "SELECT sex FROM read_parquet(['in/../people.parquet'])"),
        SqlSource("others.parquet", "SELECT sex FROM parquet_scan(concat('people', '.parquet'))"),
        SqlSource("clinic.duckdb", "FROM 'people.parquet'"),
        SqlSource("spark:", "SELECT * FROM parquet.`people.parquet`"),
        SqlSource("spark:people.parquet", "SELECT sex FROM data"),
    ],
    ids=str,
)
def test_a_file_is_recognised_by_whatever_name_it_is_read(folder, other):
    assert is_same("people.parquet", other)
    assert is_same(folder / "people.parquet", other)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "other", ["others.parquet", "people.csv", "o*.parquet", "missing.parquet", "clinic.duckdb"]
)
def test_other_files_are_other_data(other):
    assert not is_same("people.parquet", other)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "other",
    [
        "clinic.duckdb",
        "./clinic.duckdb::visits",
        "clinic.duckdb::main.visits",
        "clinic.duckdb::MAIN.Visits",
        "clinic.duckdb::adults",
        "clinic.duckdb::women",
        SqlSource("clinic.duckdb", "SELECT sex FROM visits"),
        SqlSource("clinic.duckdb", "FROM women"),
        SqlSource("clinic.duckdb", "WITH visits AS (SELECT * FROM visits) FROM visits"),
        SqlSource("clinic.duckdb", "SELECT (SELECT max(age) FROM visits) FROM staff"),
        SqlSource("clinic.duckdb", "SELECT * FROM source.main.visits"),
        SqlSource("clinic.duckdb", "SELECT * FROM query_table('visits')"),
        SqlSource("clinic.duckdb", "this is no query ("),
    ],
    ids=str,
)
def test_a_table_of_a_database_file_is_recognised_through_views_and_queries(other):
    assert is_same("clinic.duckdb::visits", other)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "other",
    [
        "clinic.duckdb::staff",
        SqlSource("clinic.duckdb", "SELECT sex FROM staff"),
        SqlSource("clinic.duckdb", "WITH visits AS (SELECT * FROM staff) SELECT * FROM visits"),
        SqlSource("clinic.duckdb", "SELECT * FROM range(5)"),
    ],
    ids=str,
)
def test_two_tables_of_one_database_are_two_data_sets(other):
    assert not is_same("clinic.duckdb::visits", other)


def test_a_dataframe_is_the_same_as_itself_and_what_shares_its_memory():
    frame = pd.DataFrame({"sex": [0, 1, 1], "age": [3.0, 4.0, 5.0], "town": ["a", "b", "c"]})
    assert is_same(frame, frame)
    assert is_same(frame, open_table(frame))
    assert is_same(frame, frame[:])
    assert is_same(frame, frame.iloc[1:])
    assert is_same(frame, ibis.memtable(frame))
    numbers = frame[["sex", "age"]].copy(deep=True)  # texts never change, so copies share them
    assert not is_same(frame, numbers)
    assert not is_same(frame, pd.DataFrame({"sex": [0, 1, 1]}))
    arrow = pa.table({"sex": [0, 1, 1]})
    assert is_same(arrow, arrow.slice(1))
    assert is_same(arrow, arrow.to_batches()[0])
    assert not is_same(arrow, pa.table({"sex": [0, 1, 1]}))
    polars = pl.DataFrame({"sex": [0, 1, 1], "age": [3.0, 4.0, 5.0]})
    assert is_same(polars, polars.select("age"))
    assert not is_same(polars, pl.DataFrame({"sex": [0, 1, 1]}))


@pytest.mark.usefixtures("folder")
def test_an_ibis_table_is_the_table_of_its_database():
    engine = ibis.duckdb.connect("clinic.duckdb", read_only=True)
    visits = engine.table("visits")
    assert is_same("clinic.duckdb::visits", visits)
    assert is_same("clinic.duckdb::visits", visits.filter(visits.age > 1).select("sex"))
    assert is_same("clinic.duckdb::visits", engine.table("women"))
    assert is_same(visits, engine.table("adults"))
    assert not is_same("clinic.duckdb::staff", visits)
    assert not is_same(engine.table("staff"), visits)
    memory = ibis.duckdb.connect()
    memory.raw_sql("CREATE VIEW people AS SELECT * FROM read_parquet('link.parquet')")
    assert is_same("people.parquet", memory.table("people"))
    assert not is_same("others.parquet", memory.table("people"))


@pytest.mark.parametrize(
    "other",
    [
        "postgresql://me@localhost/clinic::visits",
        "postgres://you@127.0.0.1:5432/clinic::public.visits",
        "postgres:///clinic::visits",
        "postgres://[::1]/clinic::visits",
        "postgres://you@/clinic?host=localhost&port=5432::Visits",
        SqlSource("postgres://localhost/clinic", "SELECT sex FROM visits WHERE hiv"),
        SqlSource("postgres://localhost/clinic", "no query ("),
    ],
    ids=str,
)
def test_an_address_is_compared_by_its_server_and_table(other):
    guarded = data_identity("postgres://localhost/clinic::visits", connect=False)
    assert shares_data(guarded, data_identity(other, connect=False))


@pytest.mark.parametrize(
    "other",
    [
        "postgres://localhost/clinic::staff",
        "postgres://localhost/school::visits",
        "postgres://localhost:5433/clinic::visits",
        "postgres://192.0.2.7/clinic::visits",
        SqlSource("postgres://localhost/clinic", "SELECT * FROM staff"),
        "visits.parquet",
        "spark:visits",
    ],
    ids=str,
)
def test_other_addresses_are_other_data(other):
    guarded = data_identity("postgres://localhost/clinic::visits", connect=False)
    assert not shares_data(guarded, data_identity(other, connect=False))


def test_views_of_a_server_are_what_its_catalogue_says(postgres):
    psycopg = pytest.importorskip("psycopg")
    table = "guarded"
    address = in_postgres(postgres, table, ROWS)
    other = in_postgres(postgres, "unrelated", ROWS)
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute(f"CREATE VIEW seen_{table} AS SELECT * FROM {table} WHERE age > 1")
        server.execute(f"CREATE MATERIALIZED VIEW held_{table} AS SELECT * FROM seen_{table}")
    assert is_same(address, f"{postgres}::seen_{table}")
    assert is_same(address, f"{postgres}::public.held_{table}")
    assert is_same(address, SqlSource(postgres, f"SELECT 1 AS one FROM held_{table}"))
    assert not is_same(other, f"{postgres}::held_{table}")
    assert not is_same(other, address)


DOMAIN = sf.Domain(
    [Category("sex", ("f", "m"), nulls="missing", outside="other"), Integer("age", 0, 99)]
)
ITSELF = [
    "people.parquet",
    "link.parquet",
    "hard.parquet",
    "p*.parquet",
    SqlSource("people.parquet", "SELECT sex, age FROM data WHERE age > 35"),
]


@pytest.mark.parametrize("public", ITSELF, ids=str)
@pytest.mark.usefixtures("folder")
def test_the_guarded_table_is_not_taken_for_public_records(public, monkeypatch):
    plan = sf.plan(sf.marginals(DOMAIN, 1), sf.Budget(epsilon=1))
    guarded = [Path("people.parquet").absolute(), open_table("people.parquet")]
    guarded.append(SqlSource("people.parquet", "SELECT sex, age FROM data"))
    monkeypatch.setattr(sfumato.vault.encode, "_encode", None)  # nothing is read
    for table in guarded:
        with pytest.raises(TableError, match="public names the guarded table itself"):
            plan.release(table, public=public)
        with pytest.raises(TableError, match="public names the guarded table itself"):
            sf.open_session(table, DOMAIN, sf.Budget(epsilon=1), public=public)


def test_a_guarded_dataframe_is_not_taken_for_public_records():
    plan = sf.plan(sf.marginals(DOMAIN, 1), sf.Budget(epsilon=1))
    frame = ROWS.to_pandas()
    for public in (frame, frame.iloc[:1], open_table(frame)):
        with pytest.raises(TableError, match="public names the guarded table itself"):
            plan.release(frame, public=public)
    plan.release(frame, public=pd.DataFrame({"sex": ["f"], "age": [3]}))


def test_a_spec_that_calls_its_own_table_public_is_refused_by_every_command(folder, capsys):
    spec = folder / "spec.toml"
    spec.write_text(
        '[data]\nsource = "people.parquet"\n[domain.sex]\nkind = "category"\nvalues = ["f", "m"]\n'
        '[budget]\nepsilon = 1\n[[workload]]\nmarginals = 1\n[release]\npublic = "link.parquet"\n'
        '[session]\npublic = "in/../people.parquet"\n'
    )
    commands = [
        ["plan", spec, "--records", "50"],
        ["release", spec, "--yes", "--no-ledger"],
        ["ask", spec, "SELECT COUNT(*) FROM t", "--no-ledger"],
    ]
    for command in commands:
        with pytest.raises(SystemExit) as stopped:
            main([str(word) for word in command])
        assert stopped.value.code
        told = " ".join(capsys.readouterr().err.split())
        assert "public names the guarded table itself" in told
