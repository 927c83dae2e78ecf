# SPDX-License-Identifier: Apache-2.0
"""Ranges through the spine: found, stored, and free the second time."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.errors import PlanError, TableError


def people(rows: int = 4000) -> pd.DataFrame:
    some = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "age": some.integers(18, 80, rows),
            "income": np.exp(some.normal(10, 1, rows)),
            "visit": pd.Timestamp("2024-01-01")
            + pd.to_timedelta(some.integers(0, 366, rows), unit="D"),
            "nothing": np.full(rows, math.nan),
            "name": [f"p{i}" for i in range(rows)],
            "person": np.arange(rows) // 4,
        }
    ).astype({"visit": "datetime64[us]"})


OPEN = [
    sf.Integer.discover("age"),
    sf.Numeric.discover("income"),
    sf.DateTime.discover("visit"),
    sf.Numeric.discover("nothing"),
]


@pytest.fixture(scope="module")
def discovery():
    plan = sf.plan_discovery(OPEN, sf.Budget(epsilon=8))
    return plan.release(people())


def test_ranges_hold_nearly_all_records_and_not_much_more(discovery):
    """At epsilon = 2 a column; the 5% and 95% points of ages are 21 and 76."""
    age, income, visit, _ = discovery.domain.attributes
    assert 10 <= age.min <= 21
    assert 76 <= age.max <= 149
    low, high = np.quantile(people()["income"], [0.05, 0.95])
    assert low / 2 <= income.edges[0] <= 2 * low
    assert high / 2 <= income.edges[-1] <= 2 * high
    assert visit.start >= pd.Timestamp("2023-06-01")
    assert visit.end <= pd.Timestamp("2025-08-01")
    assert visit.step in ("week", "month")


def test_a_column_without_values_gets_the_default_range_and_says_so(discovery):
    nothing = discovery.domain["nothing"]
    assert (nothing.edges[0], nothing.edges[-1]) == (-1e6, 1e6)
    row = discovery.counts.set_index("column").loc["nothing"]
    assert "default: too few records" in row["key"]


def test_the_number_of_records_comes_with_an_interval(discovery):
    row = discovery.counts.set_index("column").loc["age"]
    assert row["low"] <= 4000 <= row["high"]


def test_the_closed_domain_is_a_schema_and_can_be_planned_on(discovery, tmp_path):
    file = tmp_path / "closed.toml"
    file.write_text(discovery.to_toml())
    assert sf.Domain.from_toml(file) == discovery.domain
    work = sf.marginals(discovery.domain, [["age"]])
    assert sf.plan(work, sf.Budget(epsilon=1)).release(people()).total == pytest.approx(
        4000, abs=99
    )


def test_the_cost_is_debited_once_and_the_second_time_is_free(tmp_path):
    table = tmp_path / "t.parquet"
    people(500).to_parquet(table)
    budget = sf.Budget(epsilon=1)
    ledger = sf.Ledger.create(tmp_path / "t.ledger", budget, table.name)
    plan = sf.plan_discovery(OPEN[:2], budget)
    first = plan.release(str(table), ledger)
    again = sf.plan_discovery(OPEN[1::-1], budget).release(str(table), ledger)
    assert again.is_stored
    assert again.findings == first.findings
    assert len(list(ledger.entries())) == 1
    with pytest.raises(sf.BudgetExhausted):
        sf.plan_discovery(OPEN[2], sf.Budget(epsilon=0.1)).release(str(table), ledger)


def test_ranges_need_no_delta_and_keys_do():
    assert not sf.plan_discovery(OPEN, sf.Budget(epsilon=1)).cost.mu_squared
    with pytest.raises(PlanError, match="epsilon and delta"):
        sf.plan_discovery([*OPEN, sf.Category.discover("name")], sf.Budget(epsilon=1))


def test_the_plan_says_what_it_may_find():
    plan = sf.plan_discovery(sf.Numeric.discover("income"), sf.Budget(epsilon=0.1))
    assert "667 values" in repr(plan)  # 5 / (0.1 * 0.15 / 2), rounded up
    (search,) = plan.searches
    assert search.simulated(100, "normal").default > 0.9
    assert search.simulated(20_000, "normal").octave > 0.95
    assert 1000 <= search.sure_records <= 10_000


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_a_unit_of_many_rows_has_as_much_more_noise(neighbours):
    unit = sf.PrivacyUnit("person", 4)
    plain = sf.plan_discovery(OPEN[0], sf.Budget(epsilon=1), neighbours)
    bound = sf.plan_discovery(OPEN[0], sf.Budget(epsilon=1), neighbours, unit=unit)
    assert bound.cost.pure_epsilon == plain.cost.pure_epsilon == 1
    ratio = bound.searches[0].law.number.scale / plain.searches[0].law.number.scale
    assert ratio == 4


def test_columns_that_hold_no_numbers_are_refused_before_the_debit():
    with pytest.raises(TableError, match="cannot be discovered as a numeric"):
        sf.plan_discovery(sf.Numeric.discover("name"), sf.Budget(epsilon=1)).release(people(10))


def test_people_in_groups_are_counted_by_rows_where_nothing_has_cells_yet():
    """The plan states the unit with its groups; the search bounds as many rows in any group."""
    some = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"person": np.repeat(np.arange(300), 5), "x": some.normal(0, 100, 1500), "day": 1}
    )
    unit = sf.PrivacyUnit("person", groups=3, by="day")
    domain = sf.OpenDomain([sf.Numeric.discover("x"), sf.Integer("day", 0, 9)])
    plan = sf.plan_discovery(domain, sf.Budget(epsilon=5), unit=unit)
    assert plan.unit == unit
    assert plan.release(frame).domain.names == ("x", "day")
