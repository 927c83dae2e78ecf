# SPDX-License-Identifier: Apache-2.0
"""The vote on kinds: what it costs, what it says beforehand, and what a description makes of it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.column_kinds import OpenKind

BUDGET = sf.Budget(epsilon=1, delta="1e-6")
ROWS = 1500


def texts() -> pd.DataFrame:
    """Columns whose names say nothing, or the wrong thing."""
    some = np.random.default_rng(5)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(some.integers(0, 700, ROWS), unit="D")
    return pd.DataFrame(
        {
            "q1": some.integers(2, 90, ROWS),
            "q2": some.normal(50, 9, ROWS).round(2),
            "q3": days,
            "q4": some.choice(["yes", "no"], ROWS),
            "q5": some.choice(["red", "green"], ROWS),
            "price": some.choice(["high", "low"], ROWS),
            "zip": some.integers(10_000, 10_004, ROWS),
        }
    )


@pytest.fixture
def file(tmp_path):
    texts().to_csv(tmp_path / "t.csv", index=False)
    return str(tmp_path / "t.csv")


def test_kinds_are_voted_where_a_file_has_no_types_and_the_parts_add_up(file, tmp_path) -> None:
    budget = sf.Budget(epsilon=4, delta="1e-6")
    plan = sf.plan_description(file, budget, kinds={"q5": "category"})
    assert plan.vote.budget.epsilon == Fraction(4 * 6, 100)
    parts = [plan.vote.budget, plan.discovery.budget, plan.rest]
    assert sum(part.epsilon for part in parts) == 4
    assert plan.kinds["q1"] == "category"
    ledger = sf.Ledger.create(tmp_path / "l.ledger", budget, "t.csv")
    first = plan.release(file, ledger)
    assert dict(first.plan.kinds) == {
        "q1": "integer", "q2": "numeric", "q3": "datetime", "q4": "boolean", "q5": "category",
        "price": "category", "zip": "category",
    }  # fmt: skip
    assert len(ledger.entries()) == 3
    assert ledger.entries()[0].cost == plan.vote.cost
    assert plan.vote.cost.pure_epsilon == Fraction(24, 100)
    assert sum(p.budget.epsilon for p in (plan.vote, first.plan.discovery)) < 4
    again = sf.plan_description(file, budget, kinds={"q5": "category"}).release(file, ledger)
    assert again.is_stored
    assert again.frame.equals(first.frame)
    assert "a vote on kinds of columns within epsilon = 0.24" in first.promise


def test_a_plan_says_what_the_vote_costs_and_needs(file) -> None:
    plan = sf.plan_description(file, BUDGET)
    assert "vote       epsilon = 0.07" in repr(plan)
    assert plan.as_json()["vote"][0]["law"] == "kinds"
    # Six sizes with noise of scale 100: some 800 values are enough, 100 are not.
    assert 300 < plan.as_json()["vote"][0]["records_for_97"] < 1500
    said = sf.plan_description(file, BUDGET, kinds=dict.fromkeys(texts(), "category"))
    assert said.vote is None
    assert said.vote_in_words() == ""


def test_many_columns_share_what_all_votes_may_take(tmp_path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"q{i}" for i in range(40)) + "\n")
    plan = sf.plan_description(str(path), BUDGET)
    assert plan.vote.budget.epsilon == Fraction(15, 100)


def test_units_and_replaced_rows_pay_for_what_they_move() -> None:
    wanted = OpenKind(("x",))
    unit = sf.PrivacyUnit("who", 5)
    one = sf.plan_discovery(wanted, sf.Budget(epsilon=1)).searches[0]
    five = sf.plan_discovery(wanted, sf.Budget(epsilon=1), "replace-one", unit=unit).searches[0]
    assert (one.law.scale, five.law.scale) == (1, 10)
    assert one.cost.pure_epsilon == five.cost.pure_epsilon == 1


def test_without_a_delta_columns_that_are_texts_are_left_out(file) -> None:
    plan = sf.plan_description(file, sf.Budget(epsilon=6), columns=["q1", "q5"])
    assert plan.discovery is None  # by their names both are texts
    assert "vote" in repr(plan)
    described = sf.describe(file, epsilon=6, delta=0, columns=["q1", "q5"])
    assert dict(described.plan.kinds) == {"q1": "integer"}
    assert "take a delta" in described.frame.set_index("column").loc["q5", "note"]


def test_values_that_are_none_of_the_kind_are_spoken_of(tmp_path) -> None:
    path = tmp_path / "t.csv"
    values = [str(i % 70 + 2) if i % 4 else "unknown" for i in range(4000)]
    path.write_text("\n".join(["age", *values]) + "\n")
    row = sf.describe(str(path), epsilon=4).frame.iloc[0]
    assert row["kind"] == "integer"
    assert "none of this kind" in row["note"]
    assert row["nulls"] == pytest.approx(1000, abs=60)


def test_published_sizes_have_intervals(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x\n" + "3\n" * 500)
    found = sf.plan_discovery(OpenKind(("x",)), sf.Budget(epsilon=1)).release(str(path))
    counts = found.counts.set_index("key")
    assert counts.loc["whole", "low"] <= 500 <= counts.loc["whole", "high"]
    assert counts.loc["text", "count"] == pytest.approx(0, abs=30)
