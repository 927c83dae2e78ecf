"""The whole flow: a table, a ledger, answers; and what is refused on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.attributes import Integer
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import BudgetExhausted, LedgerError, TableError, TooLarge
from sfumato.ledger.ledger import Ledger
from sfumato.workload.workload_limits import LIMITS
from tests.shared.ledger_home import made

DOMAIN = sf.Domain({"age": 10, "sex": 2})
BUDGET = sf.Budget(epsilon=1, delta=1e-6)


@pytest.fixture
def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"age": rng.integers(0, 10, 500), "sex": rng.integers(0, 2, 500), "id": np.arange(500) // 5}
    )


def plan(budget: sf.Budget = BUDGET) -> sf.Plan:
    return sf.plan(sf.marginals(DOMAIN, 2) | sf.prefixes(DOMAIN, "age"), budget)


def test_equal_plans_on_one_table_share_one_answer_and_one_debit(
    people: pd.DataFrame, tmp_path: Path
) -> None:
    path = made(tmp_path / "people.ledger", BUDGET, "people")
    first = plan().release(people, ledger=path, name="people")
    again = plan().release(people, ledger=path, name="people")
    assert (first.is_stored, again.is_stored) == (False, True)
    pd.testing.assert_frame_equal(first.answers(), again.answers())
    book = Ledger.open(path)
    assert len(book.entries()) == 1
    assert book.verify().is_whole


def test_a_new_key_is_a_new_debit_and_the_budget_ends(people: pd.DataFrame, tmp_path: Path) -> None:
    path = made(tmp_path / "people.ledger", BUDGET, "people")
    plan().release(people, ledger=path, name="people")
    with pytest.raises(BudgetExhausted, match="budget refused"):
        plan().release(people, ledger=path, name="people", key="another")
    assert len(Ledger.open(path).entries()) == 1


def test_without_a_ledger_the_noise_is_new_every_time(people: pd.DataFrame) -> None:
    one, two = plan().release(people).answers(), plan().release(people).answers()
    assert (one["unbiased"] != two["unbiased"]).mean() > 0.9


def test_a_ledger_of_another_table_or_other_neighbours_is_refused(
    people: pd.DataFrame, tmp_path: Path
) -> None:
    book = Ledger.create(tmp_path / "a.ledger", BUDGET, "people", "add-remove")
    with pytest.raises(LedgerError, match="belongs to table 'people'"):
        plan().release(people, ledger=book, name="others")
    other = sf.plan(sf.marginals(DOMAIN, 1), BUDGET, "replace-one")
    with pytest.raises(LedgerError, match="neighbours"):
        other.release(people, ledger=book, name="people")
    assert book.entries() == ()


def test_a_table_without_a_declared_column_costs_nothing(
    people: pd.DataFrame, tmp_path: Path
) -> None:
    path = made(tmp_path / "people.ledger", BUDGET, "people")
    with pytest.raises(TableError, match="sex"):
        plan().release(people.drop(columns="sex"), ledger=path, name="people")
    assert Ledger.open(path).entries() == ()


def test_the_number_of_records_is_public_only_when_a_replaced_one_cannot_change_it(
    people: pd.DataFrame,
) -> None:
    """A replaced record that the schema drops would change the count: then it stays private."""
    kept = sf.Domain(
        [
            Integer("age", 0, 9, outside="clamp", nulls="missing"),
            Integer("sex", 0, 1, outside="other", nulls="missing"),
        ]
    )
    rows = {
        (domain.keeps_every_record, neighbours): sf.plan(
            sf.marginals(domain, 1), BUDGET, neighbours
        )
        .release(people)
        .rows
        for domain in (kept, DOMAIN)
        for neighbours in ("add-remove", "replace-one")
    }
    assert rows == {
        (True, "replace-one"): 500,
        (True, "add-remove"): None,
        (False, "replace-one"): None,
        (False, "add-remove"): None,
    }


def test_a_privacy_unit_bounds_what_one_person_adds(people: pd.DataFrame) -> None:
    """At epsilon 50 the noise is small: 100 people, at most 2 of their 5 rows each."""
    unit = PrivacyUnit("id", 2)
    big = sf.plan(sf.marginals(DOMAIN, [()]), sf.Budget(epsilon=50), unit=unit)
    assert abs(big.release(people).answers()["unbiased"].iloc[0] - 200) < 5


def test_projected_answers_are_feasible_and_the_unbiased_stay_beside_them(
    people: pd.DataFrame,
) -> None:
    # 20 cells of some 25 people, Laplace noise of scale 200: none below 0 once in 100,000 runs.
    result = plan(sf.Budget(epsilon=0.005, delta=1e-6)).release(people)
    answers = result.answers()
    assert (answers["value"] >= 0).all()
    assert (answers["unbiased"] < 0).any()
    raw = plan(sf.Budget(epsilon=0.05, delta=1e-6)).release(people, project=False).answers()
    assert (raw["value"] == raw["unbiased"]).all()


def test_answers_that_no_release_can_list_are_refused_before_the_debit(tmp_path: Path) -> None:
    domain = sf.Domain({"x": 2, "y": 2, "z": 2})
    many = np.arange(1200).reshape(600, 2)
    asked = sf.product(domain, {"x": many, "y": many, "z": many})
    found = sf.plan(asked, sf.Budget(mu=1), mechanism="gaussian-table")
    people = pd.DataFrame({name: [0, 1, 1] for name in domain.names})
    path = made(tmp_path / "people.ledger", sf.Budget(mu=1), "people")
    with pytest.raises(TooLarge, match="216,000,000"):
        found.release(people, ledger=path, name="people")
    assert Ledger.open(path).entries() == ()
    few = sf.plan(sf.product(domain, {"x": many}), sf.Budget(mu=1), mechanism="gaussian-table")
    few.release(people, ledger=path, name="people")
    assert len(Ledger.open(path).entries()) == 1  # the twin: what can be listed is paid for


def test_ranges_along_two_attributes_are_told_as_running_totals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Product strategies answer the shorter question from the same measurements."""
    domain = sf.Domain({"x": 12, "y": 9})
    found = sf.plan(
        sf.product(domain, {"x": "ranges", "y": "ranges"}),
        sf.Budget(mu=1),
        mechanism="factorization",
    )
    few = replace(LIMITS, array_entries=1000)
    monkeypatch.setattr("sfumato.workload.workload.LIMITS", few)
    people = pd.DataFrame({"x": np.arange(60) % 12, "y": np.arange(60) % 9})
    told = found.release(people).answers()
    assert len(told) == 12 * 9
    assert np.isfinite(told["standard_error"]).all()
