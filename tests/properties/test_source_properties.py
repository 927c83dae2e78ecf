# SPDX-License-Identifier: Apache-2.0
"""Neighbours of the source: a row is replaced by one that the source then drops.

`SELECT sex FROM data WHERE hiv` has a row less when a row's ``hiv`` is replaced. Under replace-one
neighbours nothing about the number of records leaves then, and the noise covers the change.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import duckdb
import ibis
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.cli.main import main
from sfumato.domain.attributes import Category, Integer
from sfumato.domain.domain import Domain
from sfumato.errors import PlanError
from sfumato.run.linear import Plan
from sfumato.vault.mechanisms.measure import count
from sfumato.vault.sources import SqlSource
from sfumato.vault.tables import Table, open_table
from tests.shared.engine_tables import in_postgres

DOMAIN = Domain(
    [
        Category("sex", ("f", "m"), outside="other", nulls="missing"),
        Integer("age", 0, 3, outside="clamp", nulls="missing"),
    ]
)
WORKS = {
    "tables": sf.marginals(DOMAIN, 2),
    "total": sf.marginals(DOMAIN, 0),
    "with total": sf.marginals(DOMAIN, 0) | sf.marginals(DOMAIN, 1),
    "thresholds": sf.prefixes(DOMAIN, "age"),
    "sum": sf.sql(DOMAIN, "SELECT SUM(age), COUNT(*) FROM t"),
}
BUDGETS = {"laplace": sf.Budget(epsilon=1), "gaussian": sf.Budget(mu=1)}

Rows = list[tuple[str | None, int, bool]]
ROW = st.tuples(st.sampled_from(["f", "m", "x", None]), st.integers(-1, 5), st.booleans())


def arrow(rows: Rows) -> pa.Table:
    kinds = {"sex": pa.string(), "age": pa.int64(), "hiv": pa.bool_()}
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table(
        [pa.array(c, k) for c, k in zip(columns, kinds.values(), strict=True)], [*kinds]
    )


def stored(rows: Rows, folder: Path) -> str:
    path = folder / "people.parquet"
    pq.write_table(arrow(rows), path)
    return str(path)


def queried(rows: Rows, folder: Path) -> SqlSource:
    return SqlSource(stored(rows, folder), "SELECT sex, age FROM data WHERE hiv")


def joined(rows: Rows, folder: Path) -> SqlSource:
    query = "SELECT d.* FROM data d JOIN (VALUES (true)) AS k(hiv) USING (hiv)"
    return SqlSource(stored(rows, folder), query)


def viewed(rows: Rows, folder: Path) -> str:
    path = folder / "people.duckdb"
    path.unlink(missing_ok=True)
    people = arrow(rows)
    with duckdb.connect(str(path)) as database:
        database.register("given", people)
        database.execute("CREATE TABLE people AS SELECT * FROM given")
        database.execute("CREATE VIEW ill AS SELECT * FROM people WHERE hiv")
    return f"{path}::ill"


def filtered(rows: Rows, folder: Path) -> object:  # noqa: ARG001
    engine = ibis.duckdb.connect()
    engine.con.register("given", arrow(rows))
    engine.raw_sql("CREATE TABLE people AS SELECT * FROM given")
    people = engine.table("people")
    return people.filter(people.hiv)


def lazy(rows: Rows, folder: Path) -> object:  # noqa: ARG001
    return pl.from_arrow(arrow(rows)).lazy().filter(pl.col("hiv"))


def streamed(rows: Rows, folder: Path) -> object:  # noqa: ARG001
    people = arrow(rows)
    return people.filter(people["hiv"]).to_reader()


DROPPING: dict[str, Callable[[Rows, Path], object]] = {
    "query": queried,
    "join": joined,
    "view": viewed,
    "ibis": filtered,
    "lazy": lazy,
    "stream": streamed,
}


def loss(plan: Plan, one: Table, other: Table) -> Fraction:
    """``mu^2`` or epsilon of telling two tables apart by what is measured of them, exactly."""
    power = 2 if plan.strategy.noise == "gaussian" else 1
    both = [
        count(t, DOMAIN, plan.strategy.blocks, plan.neighbours, plan.unit).values.reveal()
        for t in (one, other)
    ]
    total = Fraction(0)
    for left, right, block, law in zip(*both, plan.strategy.blocks, plan.noise, strict=True):
        apart = [int(x) - int(y) for x, y in zip(left, right, strict=True)]
        step = Fraction(1, 2**block.term.fraction_bits) / Fraction(law.scale)
        total += sum(abs(Fraction(d) * step) ** power for d in apart)
    return total


def paid(plan: Plan) -> Fraction:
    cost = plan.cost
    return cost.mu_squared if plan.strategy.noise == "gaussian" else cost.pure_epsilon


@lru_cache
def planned(work: str, budget: str, may_drop_records: bool) -> Plan:
    return sf.plan(
        WORKS[work], BUDGETS[budget], "replace-one", may_drop_records=may_drop_records, cache=False
    )


@pytest.mark.parametrize("kind", [*DROPPING])
@settings(max_examples=10, deadline=None)
@given(rows=st.lists(ROW, max_size=5), one=ROW, other=ROW)
def test_noise_covers_a_record_that_leaves_the_source(kind, rows, one, other):
    with tempfile.TemporaryDirectory() as name:
        here, there = Path(name) / "here", Path(name) / "there"
        here.mkdir()
        there.mkdir()
        left = open_table(DROPPING[kind]([*rows, one], here))
        right = open_table(DROPPING[kind]([*rows, other], there))
        assert left.may_drop_records
        assert right.may_drop_records
        for work in WORKS:
            for budget in BUDGETS:
                plan = planned(work, budget, True)
                assert not plan.total_is_public
                assert loss(plan, left, right) <= paid(plan)
        assert count(left, DOMAIN, plan.strategy.blocks, "replace-one").rows is None


@pytest.mark.parametrize("kind", [*DROPPING])
@pytest.mark.parametrize("budget", [*BUDGETS])
def test_the_plan_for_a_source_is_that_which_is_asked_for(kind, budget, tmp_path):
    source = DROPPING[kind]([("f", 1, True)], tmp_path)
    found = planned("with total", budget, False).for_source(source)
    assert found.measurement() == planned("with total", budget, True).measurement()
    assert found.digest() == planned("with total", budget, False).digest()
    assert found.for_source(source) is found


def test_the_noise_for_a_stored_table_would_not_do(tmp_path):
    """The twin: a plan that takes the number of records for public tells the two apart."""
    (tmp_path / "one").mkdir()
    left = open_table(queried([("f", 1, True)], tmp_path / "one"))
    (tmp_path / "two").mkdir()
    right = open_table(queried([("f", 1, False)], tmp_path / "two"))
    plan = planned("with total", "gaussian", False)
    assert plan.total_is_public
    assert loss(plan, left, right) > 10 * paid(plan)


STORED: dict[str, Callable[[Rows, Path], object]] = {
    "parquet": stored,
    "table": lambda rows, folder: viewed(rows, folder).replace("::ill", "::people"),
    "arrow": lambda rows, _: arrow(rows),
    "batch": lambda rows, _: arrow(rows).to_batches()[0],
    "pandas": lambda rows, _: arrow(rows).to_pandas(),
    "polars": lambda rows, _: pl.from_arrow(arrow(rows)),
    "ibis table": lambda rows, folder: ibis.duckdb.connect(
        viewed(rows, folder).removesuffix("::ill"), read_only=True
    ).table("people"),
    "ibis memory": lambda rows, _: ibis.memtable(arrow(rows).to_pandas()),
}
MANY: Rows = [("f", 1, True), ("m", 2, False), (None, 9, True)]


def everything_about(release: object, folder: Path) -> str:
    release.save(folder)
    texts = [p.read_text() for p in folder.iterdir() if p.suffix in (".html", ".json")]
    return "\n".join([*texts, repr(release)])


@pytest.mark.parametrize("kind", [*STORED])
def test_a_stored_table_has_a_public_number_of_records(kind, tmp_path):
    source = STORED[kind](MANY, tmp_path)
    assert not open_table(source).may_drop_records
    plan = planned("tables", "gaussian", False)
    assert plan.for_source(source) is plan
    release = plan.release(source)
    assert release.rows == 3
    assert ">Records<" in everything_about(release, tmp_path / "out")


@pytest.mark.parametrize("kind", [*DROPPING])
@pytest.mark.filterwarnings("ignore:the source is a query")
def test_nothing_that_is_published_says_how_many_records_there_are(kind, tmp_path):
    rows: Rows = [("f", 1, True)] * 7919 + [("m", 2, False)] * 10
    for budget in BUDGETS:
        plan = planned("with total", budget, False)
        source = DROPPING[kind](rows, tmp_path)
        release = plan.release(source, project="bounds")
        assert release.rows is None
        assert release.provenance["public_rows"] is None
        told = everything_about(release, tmp_path / "out")
        assert ">Records<" not in told
        assert "number of rows counted is protected" in told
        # Noise on the whole numbers is 0 in up to half of the draws, not in 30 in a row.
        draws = (plan.release(source, project="bounds") for _ in range(30))
        assert any(r.answers()["value"].iloc[0] != 7919 for r in draws)


@pytest.mark.parametrize("method", ["tables", "mwem", "boosting"])
def test_adaptive_releases_pay_for_the_number_of_records(method, tmp_path):
    rows: Rows = [("f", 1, True)] * 7919
    plan = sf.plan_adaptive(WORKS["tables"], BUDGETS["gaussian"], "replace-one", method=method)
    release = plan.release(queried(rows, tmp_path))
    assert release.rows is None
    assert release.provenance["public_rows"] is None
    assert release.estimates.estimate.total != 7919
    assert plan.release(stored(rows, tmp_path)).rows == 7919


@pytest.mark.parametrize("kind", [*DROPPING])
def test_sessions_pay_for_the_number_of_records(kind, tmp_path):
    rows: Rows = [("f", 1, True)] * 7919
    opened = {"domain": DOMAIN, "budget": sf.Budget(epsilon=1), "neighbours": "replace-one"}
    source = DROPPING[kind](rows, tmp_path)
    sf.Ledger.create(tmp_path / "q.ledger", sf.Budget(epsilon=1), "q", "replace-one")
    with sf.open_session(source, ledger=tmp_path / "q.ledger", name="q", **opened) as session:
        assert session.plan.records_noise is not None
        assert session.plan.records_cost is not None
        answer = session.ask("SELECT COUNT(*) FROM t")
        assert answer.value != 7919
    book = sf.Ledger.open(tmp_path / "q.ledger")
    assert any("records" in entry.key for entry in book.entries())
    with sf.open_session(arrow(rows), **opened) as session:
        assert session.plan.records_noise is None


def test_a_person_who_releases_a_query_is_told_that_it_was_planned_anew(tmp_path):
    plan = planned("with total", "gaussian", False)
    source = queried([("f", 1, True)] * 5, tmp_path)
    sf.Ledger.create(tmp_path / "a.ledger", BUDGETS["gaussian"], "a", "replace-one")
    with pytest.warns(UserWarning, match="may drop records"):
        release = plan.release(source, ledger=tmp_path / "a.ledger", name="a")
    assert release.forecast.may_drop_records
    assert release.forecast.cost == sf.Ledger.open(tmp_path / "a.ledger").entries()[0].cost
    with pytest.warns(UserWarning, match="may drop records"):
        again = plan.release(source, ledger=tmp_path / "a.ledger", name="a")
    assert np.array_equal(again.answers()["value"], release.answers()["value"])
    assert len(sf.Ledger.open(tmp_path / "a.ledger").entries()) == 1


def test_flags_that_change_nothing_are_the_same_plan():
    for neighbours, unit in (("add-remove", None), ("replace-one", sf.PrivacyUnit("id", 2))):
        one, two = (
            sf.plan(WORKS["tables"], BUDGETS["gaussian"], neighbours, unit=unit, **kind)
            for kind in ({}, {"may_drop_records": True})
        )
        assert one.measurement() == two.measurement()
        assert one.may_drop_records == two.may_drop_records
    with pytest.raises(PlanError, match="may_drop_records must be True or False"):
        sf.plan(WORKS["tables"], BUDGETS["gaussian"], "replace-one", may_drop_records="yes")


@pytest.mark.filterwarnings("ignore:the source is a query")
def test_what_was_answered_for_a_query_before_stays_its_answer(tmp_path):
    plan = planned("with total", "gaussian", False)
    source = queried([("f", 1, True)] * 5, tmp_path)
    sf.Ledger.create(tmp_path / "a.ledger", BUDGETS["gaussian"], "a", "replace-one")
    first = plan.release(arrow([("f", 1, True)] * 5), ledger=tmp_path / "a.ledger", name="a")
    for asked in (plan, plan.for_source(source)):
        key = plan.digest()
        again = asked.release(source, ledger=tmp_path / "a.ledger", name="a", key=key)
        assert np.array_equal(again.answers()["value"], first.answers()["value"])


def test_tables_of_a_server_are_stored_unless_they_are_views_or_hide_rows(postgres):
    psycopg = pytest.importorskip("psycopg")
    people = arrow([("f", 1, True)] * 20 + [("m", 2, False)])
    stored_at = in_postgres(postgres, "people_here", people)
    with psycopg.connect(postgres, autocommit=True) as server:
        for statement in (
            "CREATE OR REPLACE VIEW ill_here AS SELECT * FROM people_here WHERE hiv",
            "DROP TABLE IF EXISTS split_here, hidden_here; DROP ROLE IF EXISTS clerk",
            "CREATE TABLE split_here (LIKE people_here) PARTITION BY LIST (hiv)",
            "CREATE TABLE hidden_here (LIKE people_here)",
            "ALTER TABLE hidden_here ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY seen ON hidden_here USING (hiv)",
            "CREATE ROLE clerk LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO clerk",
        ):
            server.execute(statement)
    clerk = postgres.replace("//postgres@", "//clerk@")
    kinds = {
        stored_at: False,
        f"{postgres}::split_here": False,
        f"{postgres}::ill_here": True,
        f"{clerk}::hidden_here": True,
        SqlSource(postgres, "SELECT * FROM people_here"): True,
    }
    for source, may_drop in kinds.items():
        assert open_table(source).may_drop_records == may_drop
    plan = planned("with total", "gaussian", False)
    assert plan.release(stored_at).rows == 21
    for source in (f"{postgres}::ill_here", SqlSource(postgres, "SELECT * FROM ill_here")):
        with pytest.warns(UserWarning, match="may drop records"):
            assert plan.release(source).rows is None


def test_tables_of_spark_are_stored_unless_they_are_views_or_dataframes(spark, tmp_path):
    path = stored(MANY, tmp_path)
    files = spark.read.parquet(path)
    files.createOrReplaceTempView("seen_once")
    kinds = [
        (f"spark:{path}", False),
        ("spark:seen_once", True),
        (SqlSource(f"spark:{path}", "SELECT * FROM data WHERE hiv"), True),
        (files.filter("hiv"), True),
    ]
    for source, may_drop in kinds:
        assert open_table(source).may_drop_records == may_drop


SPEC = """\
[data]
source = "{source}"
neighbours = "replace-one"
{query}
[domain.sex]
kind = "category"
values = ["f", "m"]
outside = "other"
nulls = "missing"
[budget]
epsilon = 1
[[workload]]
marginals = 1
[[workload]]
marginals = 0
"""


@pytest.mark.parametrize("kind", ["query", "view", "file"])
def test_a_spec_with_a_query_or_a_view_keeps_the_number_of_records(kind, tmp_path, capsys):
    rows: Rows = [("f", 1, True)] * 7919 + [("m", 2, False)] * 10
    query = 'query = "SELECT sex FROM data WHERE hiv"' if kind == "query" else ""
    source = viewed(rows, tmp_path) if kind == "view" else stored(rows, tmp_path)
    (tmp_path / "spec.toml").write_text(SPEC.format(source=source, query=query))
    with pytest.raises(SystemExit) as stopped:
        main(["release", str(tmp_path / "spec.toml"), "--yes", "--no-ledger", "--json"])
    assert not stopped.value.code
    told = json.loads((tmp_path / "spec-out" / "provenance.json").read_text())
    assert told["public_rows"] == (7929 if kind == "file" else None)
    assert ("which may drop records" in capsys.readouterr().err) == (kind == "view")
