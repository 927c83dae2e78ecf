# SPDX-License-Identifier: Apache-2.0
"""What a release takes, known before it is spent: counted where it can be counted."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import PlanError, TooLarge
from sfumato.planning.planning_limits import LIMITS
from sfumato.planning.resources import as_rows, engine_of, in_bytes, in_seconds
from sfumato.vault.duckdb import DuckDB
from sfumato.vault.mechanisms.measure import count, measure
from sfumato.vault.tables import open_table

DOMAIN = sf.Domain({"a": 100, "b": 200, "c": 3})
BUDGET = sf.Budget(epsilon=1, delta=1e-9)


@pytest.fixture(scope="module")
def plan() -> sf.Plan:
    return sf.plan(sf.marginals(DOMAIN, 2), BUDGET, mechanism="gaussian")


def step(plan: sf.Plan, name: str, **given):
    return next(s for s in plan.resources(**given).steps if s.name == name)


def table(rows: int = 50) -> pd.DataFrame:
    draw = np.random.default_rng(1)
    return pd.DataFrame({n: draw.integers(0, DOMAIN[n].size, rows) for n in DOMAIN.names})


def test_all_steps_are_there_in_the_order_they_run(plan):
    names = [s.name for s in plan.resources().steps]
    assert names == ["scan", "count", "measure", "reconstruct", "project", "write"]
    assert list(plan.resources().frame()["step"]) == names


def test_cells_and_scans_are_those_that_counting_has(plan):
    found = step(plan, "count")
    assert found.cells == 100 * 200 + 100 * 3 + 200 * 3
    said = []
    blocks = plan.strategy.blocks
    count(open_table(table()), DOMAIN, blocks, "add-remove", None, lambda *told: said.append(told))
    assert found.scans == said[-1][1] - 1 == 1  # one table of 60,000 cells holds all three
    assert step(plan, "measure").cells == sum(plan.strategy.block_rows)
    assert step(plan, "write").cells == plan.workload.queries


def test_tables_within_others_are_not_scanned():
    wide = sf.Domain({"a": 1000, "b": 2000, "c": 3})
    both = sf.marginals(wide, 2) | sf.marginals(wide, 1)
    found = sf.plan(both, BUDGET, mechanism="gaussian")
    assert step(found, "count").scans == 3


def test_codes_of_records_are_held_where_the_engine_runs_here(plan):
    assert step(plan, "scan").record_memory == 1 + 2 + 1  # at most 128 cells fit in a byte
    assert [DuckDB.start().integer(n) for n in (128, 129, 2**15)] == [
        "TINYINT",
        "SMALLINT",
        "SMALLINT",
    ]
    known = plan.resources(records=10**9)
    assert known.memory - plan.resources().memory > 3 * 10**9
    away = plan.resources(records=10**9, engine="spark")
    assert away.memory == plan.resources().memory
    assert away.seconds > 10**9 * 50e-9


def test_hash_tables_of_the_engine_have_an_entry_per_occupied_cell():
    domain = sf.Domain({"a": 1000, "b": 1000})
    found = sf.plan(sf.marginals(domain, 2), BUDGET, mechanism="gaussian")
    counting = step(found, "count")

    def hashed(records: int) -> int:
        return counting.memory_for(records) - counting.memory - records * counting.record_memory

    assert hashed(0) == 0
    assert hashed(10**5) == LIMITS.group_bytes * 10**5  # an entry a record at most,
    assert hashed(10**7) == hashed(10**8) == LIMITS.group_bytes * 10**6  # and one a cell
    assert step(found, "count", engine="spark").memory_for(10**8) == counting.memory


def test_every_engine_says_how_many_tables_it_counts():
    wide = sf.Domain({f"x{i}": 10 for i in range(8)})
    found = sf.plan(sf.marginals(wide, 2), BUDGET, mechanism="gaussian")
    scans = {name: step(found, "count", engine=name).scans for name in ("duckdb", "spark")}
    assert scans["duckdb"] < scans["spark"] < 28


def test_a_unit_is_ranked_and_every_attribute_is_read():
    one = sf.plan(sf.marginals(DOMAIN, [("a",)]), BUDGET)
    bounded = sf.plan(sf.marginals(DOMAIN, [("a",)]), BUDGET, unit=PrivacyUnit("id", 3))
    more = step(bounded, "scan").record_seconds / step(one, "scan").record_seconds
    assert more > 2


def test_conditions_are_counted_one_by_one():
    wide = sf.Domain({f"x{i}": 2 for i in range(40)})
    asked = [sf.attribute(wide, f"x{i}") == 1 for i in range(40)]
    every = asked[0]
    for other in asked[1:]:
        every = every & other
    found = sf.plan(sf.predicates(wide, [every, ~every]), BUDGET)
    assert step(found, "count").scans == 1
    assert step(found, "scan").record_memory == 40


def test_measuring_holds_no_more_than_stated():
    cells = sf.Domain({"a": 1000, "b": 1000})
    found = sf.plan(sf.marginals(cells, 2), BUDGET, mechanism="gaussian")
    rows = pd.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6]})
    exact = count(open_table(rows), cells, found.strategy.blocks, found.neighbours)
    tracemalloc.start()
    try:
        measure(exact, found.strategy.blocks, found.noise).to_bytes()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    parts = 3 * 8 * 2**20  # what is worked on at a time, whatever the size
    assert 8 * 10**6 < peak < step(found, "measure").memory + parts


def test_what_cannot_fit_is_refused_with_a_way_out(plan):
    plan.resources().check(2 * LIMITS.base_bytes)
    with pytest.raises(TooLarge, match=r"MiB of memory to .*wider bins.*Nothing was spent"):
        plan.resources().check(LIMITS.base_bytes)
    with pytest.raises(TooLarge, match="PostgreSQL or Spark"):
        plan.resources(records=10**9).check(2 * LIMITS.base_bytes)


def test_a_release_that_cannot_fit_is_refused_before_the_debit(plan, monkeypatch, tmp_path):
    monkeypatch.setattr("sfumato.planning.resources.machine_memory", lambda: LIMITS.base_bytes)
    ledger = tmp_path / "people.ledger"
    with pytest.raises(TooLarge, match="Nothing was spent"):
        plan.release(table(), ledger=ledger, name="people")
    assert not ledger.exists()
    monkeypatch.setattr(
        "sfumato.planning.resources.machine_memory", lambda: None
    )  # not known: tried
    assert plan.release(table(), project=False).groups


def test_wrong_numbers_and_engines_are_refused(plan):
    for records in (0, -5, 2.5):
        with pytest.raises(PlanError, match="whole number above 0"):
            plan.resources(records=records)
    with pytest.raises(PlanError, match="duckdb, postgres, spark"):
        plan.resources(engine="abacus")


def test_json_and_rows_say_the_same(plan):
    unknown, known = plan.resources(), plan.resources(records=10**6)
    document = json.loads(json.dumps(known.as_json()))
    assert [s["step"] for s in document["steps"]] == [r[0] for r in as_rows(known)]
    assert document["memory"] == known.memory
    extra = unknown.as_json()["million_records"]["seconds"]
    assert known.seconds == pytest.approx(unknown.seconds + extra)
    assert "/M" in as_rows(unknown)[0][4]
    assert "/M" not in as_rows(known)[0][4]
    assert "per million records" in repr(unknown)
    assert "1,000,000 records" in repr(known)


def test_engines_by_the_name_of_a_source():
    assert engine_of(None) == engine_of("people.duckdb::visits") == "duckdb"
    assert engine_of("spark:people") == "spark"
    assert engine_of("postgresql://host/db") == "postgres"


def test_sizes_and_times_in_words():
    assert in_bytes(5 * 2**20) == "5 MiB"
    assert in_seconds(12.3) == "12 s"
    assert in_seconds(400) == "7 min"
    assert in_seconds(10**6) == "278 h"
