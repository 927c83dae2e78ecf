# SPDX-License-Identifier: Apache-2.0
"""Tables of PostgreSQL: types that only it has, what it refuses, and what it may not learn."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sfumato.domain.attributes import Attribute, Category, DateTime, Integer, Numeric
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import TableError
from sfumato.vault import postgres as postgres_module
from sfumato.vault.count import count_marginals
from sfumato.vault.encode import read_records
from sfumato.vault.postgres import Postgres
from sfumato.vault.sources import SqlSource
from sfumato.vault.tables import Table, column_types, open_table, public_name
from tests.shared.engine_tables import in_postgres

psycopg = pytest.importorskip("psycopg")

KEPT = {"outside": "other", "nulls": "missing"}
CLAMPED = {"outside": "clamp", "nulls": "missing"}
YEAR = (datetime(2020, 1, 1), datetime(2021, 1, 1), "month")


@pytest.fixture
def server(postgres):
    with psycopg.connect(postgres, autocommit=True) as connection:
        yield connection


def refusal(source: object) -> str:
    with pytest.raises(TableError) as caught:
        open_table(source)
    return str(caught.value)


ENDS = ["'infinity'", "'-infinity'", "'4000-01-01 BC'", "'2020-02-29'", "null"]


@pytest.mark.parametrize(
    ("attribute", "kind", "values", "cells"),
    [
        (
            Numeric("x", (0, 1, 2), **CLAMPED),
            "numeric",
            ["'NaN'", "'Infinity'", "'-Infinity'", "1e400", "-1e400", "1e-400", "1", "2"],
            [2, 1, 0, 1, 0, 0, 1, 1],
        ),
        (
            Numeric("x", (0, 1, 2.5), **CLAMPED),
            "bigint",
            ["-9223372036854775808", "0", "1", "2", "3", "null"],
            [0, 0, 1, 1, 1, 2],
        ),
        (Integer("x", 0, 5, **KEPT), "numeric", ["'NaN'", "1e400", "5.0", "4.5"], [7, 6, 5, 6]),
        (
            Category("x", ("ab", "AB", "é"), **KEPT),
            "char(5)",
            ["'ab'", "'AB'", "'é'", "'ab  '", "null", "''"],
            [0, 1, 2, 0, 4, 3],
        ),
        (
            Category("x", ("ab", ""), **KEPT),
            "varchar(9)",
            ["'ab'", "'AB'", "'ab '", "null", "''"],
            [0, 2, 2, 3, 1],
        ),
        (
            Category("x", ("a\\b'c", "é\n"), **KEPT),
            "text",
            ["E'a\\\\b''c'", "E'é\\n'", "'é'"],
            [0, 1, 2],
        ),
        (Category("x", ("ok", "sad"), **KEPT), "mood", ["'sad'", "'ok'", "null"], [1, 0, 3]),
        (
            DateTime("x", *YEAR, **CLAMPED),
            "date",
            [*ENDS, "'5874897-01-01'"],
            [11, 0, 0, 1, 12, 11],
        ),
        (
            DateTime("x", *YEAR, **CLAMPED),
            "timestamp",
            [*ENDS, "'294276-12-31'"],
            [11, 0, 0, 1, 12, 11],
        ),
        (
            DateTime("x", *YEAR, **CLAMPED),
            "timestamptz",
            ["'infinity'", "'2020-02-01 00:30:00+01'", "'2020-01-31 23:30:00-01'"],
            [11, 0, 1],
        ),
        (
            Numeric("x", tuple(map(float, range(500))), **KEPT),
            "real",
            ["498.9", "499", "499.1", "'NaN'"],
            [498, 498, 499, 500],
        ),
        (
            Category("x", tuple(range(100)), **KEPT),
            "double precision",
            ["99", "99.5", "'NaN'"],
            [99, 100, 101],
        ),
        (Integer("x", 0, 9, **KEPT), "posint", ["3", "9", "null"], [3, 9, 11]),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_types_of_its_own_are_read(
    attribute: Attribute, kind: str, values: list[str], cells: list[int], postgres, server
):
    server.execute(
        "DROP TABLE IF EXISTS odd; DROP TYPE IF EXISTS mood; DROP DOMAIN IF EXISTS posint"
    )
    server.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    server.execute("CREATE DOMAIN posint AS int CHECK (value > 0)")
    server.execute(f'CREATE TABLE odd ("row" int, x {kind})')
    rows = ", ".join(f"({i}, {value})" for i, value in enumerate(values))
    server.execute(f"INSERT INTO odd VALUES {rows}")
    domain = Domain([Integer("row", 0, len(values) - 1), attribute])
    counts = count_marginals(open_table(f"{postgres}::odd"), domain, [domain.names])
    found = counts.reveal(domain.names)
    assert found.sum(axis=1).tolist() == [1] * len(values)
    assert found.argmax(axis=1).tolist() == cells


PEOPLE = pa.table({"age": [30, 41, 30, 41, None], "person": [1, 1, 2, 2, 3]})
DOMAIN = Domain([Integer("age", 30, 41)])


def ages(table: Table, unit: PrivacyUnit | None = None) -> list[int]:
    counts = count_marginals(table, DOMAIN, [("age",)], unit).reveal(("age",))
    return np.repeat(np.arange(30, 42), counts).tolist()


def test_a_table_a_view_and_a_query_are_read(postgres, server):
    source = in_postgres(postgres, "people", PEOPLE)
    assert public_name(source) == "postgres:postgres::people"
    assert column_types(source) == {"age": "int64", "person": "int64"}
    assert ages(open_table(source)) == [30, 30, 41, 41]
    server.execute("CREATE OR REPLACE VIEW first AS SELECT age FROM people WHERE person = 1")
    assert ages(open_table(f"{postgres}::public.first")) == [30, 41]
    query = SqlSource(postgres, "SELECT age FROM people WHERE person < 3 AND age < 40;")
    assert ages(open_table(query)) == [30, 30]
    assert public_name(query) == "query on postgres:postgres"
    assert "the query of" in refusal(SqlSource(postgres, "SELEC age"))


def test_an_ibis_table_is_counted_on_its_server_and_leaves_its_connection_open(postgres):
    import ibis

    in_postgres(postgres, "people", PEOPLE)
    backend = ibis.connect(postgres)
    people = backend.table("people")
    table = open_table(people.filter(people.person < 3).mutate(age=people.age + 0))
    assert isinstance(table.engine, Postgres)
    assert ages(table) == [30, 30, 41, 41]
    table.engine.close()
    assert people.count().execute() == 5
    backend.disconnect()


def test_all_counts_of_a_table_are_of_one_snapshot(postgres, server):
    """The second attribute was not asked for when the rows were read."""
    source = in_postgres(postgres, "people", PEOPLE)
    domain = Domain([Integer("age", 30, 41), Integer("person", 1, 3)])
    table = open_table(source)
    before = count_marginals(table, domain, [("age",)]).reveal(("age",)).sum()
    server.execute("INSERT INTO people VALUES (30, 1), (30, 2)")
    assert count_marginals(table, domain, [("person",)]).reveal(("person",)).sum() == before
    assert count_marginals(open_table(source), domain, [()]).reveal(()) == before + 2


def test_what_cannot_be_read_is_refused_with_what_to_do(postgres, server):
    source = in_postgres(postgres, "people", PEOPLE)
    assert "has no table or view 'peopel'" in refusal(f"{postgres}::peopel")
    assert "'public.people'" in refusal(f"{postgres}::peopel")
    assert "names no table" in refusal(postgres)
    assert 'database "other" does not exist' in refusal(source.replace("/postgres?", "/other?"))
    assert "names no database" in refusal("postgres://me@host::people")
    assert "cannot connect" in refusal("postgres://me@127.0.0.1:1/people::people")
    server.execute("DROP ROLE IF EXISTS poor; CREATE ROLE poor LOGIN")
    server.execute("REVOKE TEMP ON DATABASE postgres FROM public")
    try:
        poor = source.replace("postgres@", "poor@")
        assert "GRANT TEMP" in refusal(poor)
        server.execute("GRANT TEMP ON DATABASE postgres TO poor")
        assert "the user may not read 'public.people'" in refusal(poor)
    finally:
        server.execute("GRANT TEMP ON DATABASE postgres TO public")
        server.execute("REVOKE TEMP ON DATABASE postgres FROM poor; DROP ROLE poor")


@pytest.mark.parametrize(
    "source",
    ["postgres://me:hunter2@host/db::t", "postgresql://me@host/db?password=hunter2::t"],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(source):
    for action in (open_table, public_name):
        with pytest.raises(TableError, match="PGPASSFILE") as caught:
            action(source)
        assert "hunter2" not in str(caught.value)


def test_a_missing_driver_is_named(monkeypatch):
    monkeypatch.setattr("sfumato.vault.postgres.find_spec", lambda _: None)
    assert "install sfumato[postgres]" in refusal("postgres://me@host/db::t")


def test_great_results_come_in_parts(postgres, monkeypatch):
    monkeypatch.setattr(postgres_module, "LIMITS", replace(postgres_module.LIMITS, postgres_rows=7))
    engine = Postgres(psycopg.connect(postgres, autocommit=True), is_ours=True)
    query = "SELECT n, n * n - 3 AS m FROM generate_series(CAST(1 AS BIGINT), 100000) AS n"
    parts = list(engine.batches(query, ["n", "m"]))
    assert len(parts) > 1
    n, m = (np.concatenate([part[name] for part in parts]) for name in ("n", "m"))
    assert n.tolist() == list(range(1, 100_001))
    assert (m == n * n - 3).all()
    assert engine.fetch("SELECT 1 AS n WHERE false", ["n"])["n"].tolist() == []
    with pytest.raises(ValueError, match="null"):
        engine.fetch("SELECT CAST(NULL AS BIGINT) AS n, 1 AS m", ["n", "m"])
    # 13 nulls shorten the answer by as many bytes as 4 rows have.
    some = "SELECT CASE WHEN n > 13 THEN n END AS n, 1 AS m FROM generate_series(1, 20) AS n"
    with pytest.raises(ValueError, match="null"):
        engine.fetch(some, ["n", "m"])
    engine.close()


def test_the_key_of_a_privacy_unit_is_in_no_log_of_statements(postgres, server):
    """A literal would be there, which shows that the log is looked at."""
    source = in_postgres(postgres, "people", PEOPLE)
    server.execute("ALTER SYSTEM SET log_statement = 'all'")
    server.execute("ALTER SYSTEM SET log_parameter_max_length = -1")
    server.execute("SELECT pg_reload_conf()")
    try:
        with psycopg.connect(postgres, autocommit=True) as other:  # sees the new setting
            while other.execute("SHOW log_statement").fetchone() != ("all",):
                pass
        table = open_table(source)
        assert ages(table, PrivacyUnit("person", 1)) != []
        assert table.secret is not None
        server.execute("SELECT 'a literal in the log'")
        (folder,) = server.execute("SHOW unix_socket_directories").fetchone()
        logged = (Path(folder) / "log").read_text(errors="replace")
    finally:
        server.execute("ALTER SYSTEM RESET ALL")
        server.execute("SELECT pg_reload_conf()")
    assert "a literal in the log" in logged
    assert "sha256(" in logged
    assert table.secret not in logged


def test_temporary_tables_go_with_their_last_user(postgres):
    source = in_postgres(postgres, "people", PEOPLE)
    table = open_table(source)
    ages(table, PrivacyUnit("person", 1))
    assert isinstance(table.engine, Postgres)
    there = "SELECT count(*) FROM pg_class WHERE relname LIKE 'sfumato_%' AND relpersistence = 't'"
    assert table.engine.rows(there)[0][0] == 1  # the codes; the key and the lookups are gone
    table.records = None
    assert table.engine.rows(there)[0][0] == 0


def test_the_same_key_keeps_the_same_rows_as_duckdb(postgres):
    from tests.shared.words import SeededWords

    some = np.random.default_rng(3)
    persons = {
        "int64": pa.array(some.integers(0, 40, 300)),
        "float64": pa.array([None if p == 7 else float(p) for p in some.integers(0, 40, 300)]),
        "text": pa.array([f"é, {p}" for p in some.integers(0, 40, 300)]),
        "date": pa.array(some.integers(0, 40, 300).astype("datetime64[D]")),
        "time": pa.array(some.integers(0, 40, 300).astype("datetime64[us]")),
    }
    domain = Domain([Integer("kind", 0, 4)])
    for name, person in persons.items():
        rows = pa.table({"kind": some.integers(0, 5, 300), "person": person})
        found = []
        for source in (rows, in_postgres(postgres, "people", rows)):
            table = open_table(source)
            unit = PrivacyUnit("person", 2)
            read_records(table, domain, domain.names, unit, SeededWords(name))
            found.append(count_marginals(table, domain, [("kind",)], unit).reveal(("kind",)))
        assert found[0].tolist() == found[1].tolist(), name
        assert 60 < found[0].sum() <= 80


@pytest.mark.parametrize("address", ["postgres://[::1/db::t", "postgresql://h]/db::t"])
def test_an_address_that_is_none_says_how_one_looks(address):
    with pytest.raises(TableError, match=r"cannot be read; it looks like postgres://user@host/"):
        public_name(address)


def test_an_old_server_and_a_replica_are_refused(postgres, monkeypatch):
    """What the server says of itself: a replica, the right to keep tables, new enough."""
    source = in_postgres(postgres, "people", PEOPLE)
    said = {
        (False, True, False): "needs PostgreSQL 14 or newer",
        (True, True, True): "a replica, which holds none",
        (True, False, True): "a replica, which holds none",
        (False, False, True): "GRANT TEMP ON DATABASE",
    }
    for answer, words in said.items():
        monkeypatch.setattr(Postgres, "rows", lambda *_, answer=answer: [answer])
        assert words in refusal(source)


def test_decimals_rounded_to_tens_are_numbers(postgres, server):
    if server.info.server_version < 150_000:
        pytest.skip("decimals of a negative scale came with PostgreSQL 15")
    server.execute("DROP TABLE IF EXISTS tens; CREATE TABLE tens (x numeric(3, -1))")
    server.execute("INSERT INTO tens VALUES (14), (15), (96)")
    table = open_table(f"{postgres}::tens")
    domain = Domain([Integer("x", 0, 200, 10)])
    found = count_marginals(table, domain, [("x",)]).reveal(("x",))
    assert {i: int(n) for i, n in enumerate(found) if n} == {1: 1, 2: 1, 10: 1}
