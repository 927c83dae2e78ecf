# SPDX-License-Identifier: Apache-2.0
"""Releases that keep what everybody knows: impossible combinations, published tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.attributes import Category
from sfumato.errors import WorkloadError
from sfumato.ledger.ledger import Ledger
from sfumato.release import release as release_module
from sfumato.release.release import Release
from tests.shared.made_releases import measured
from tests.shared.words import SeededWords

DOMAIN = sf.Domain({"age": 6, "married": 2, "sex": 2, "town": 3})
WORK = sf.marginals(DOMAIN, 2) | sf.prefixes(DOMAIN, "age", by=["married"])
BUDGET = sf.Budget(epsilon=1, delta=1e-9)
CONDITION = "age < 2 and married = 1"


def people(rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({n: rng.integers(0, DOMAIN[n].size, rows) for n in DOMAIN.names})
    frame.loc[frame["age"] < 2, "married"] = 0
    return frame


def count(frame: pd.DataFrame, *names: str) -> np.ndarray:
    table = np.zeros([DOMAIN[n].size for n in names])
    np.add.at(table, tuple(frame[n] for n in names), 1.0)
    return table


def constraints(frame: pd.DataFrame) -> sf.Constraints:
    tables = [(["sex"], count(frame, "sex")), (["town", "age"], count(frame, "town", "age"))]
    return sf.Constraints(DOMAIN, [CONDITION], tables)


@pytest.fixture(scope="module")
def plan() -> sf.Plan:
    return sf.plan(WORK, BUDGET)


@pytest.mark.parametrize("project", [True, "nearest", "bounds"])
def test_answers_keep_impossible_cells_and_published_tables(plan, project):
    frame = people()
    known = constraints(frame)
    found = plan.release(frame, project=project, constraints=known)
    table = found.answers(group="age x married")
    barred = (table["age"] < 2) & (table["married"] == 1)
    assert (table.loc[barred, ["value", "low", "high"]] == 0).all().all()
    running = found.answers(group="prefix age by married")
    barred = (running["age"] < 2) & (running["married"] == 1)
    assert (running.loc[barred, ["value", "low", "high"]] == 0).all().all()
    both = found.answers(group="age x town")
    truth = count(frame, "age", "town").reshape(-1)
    for column in ("value", "low", "high"):
        assert both[column].to_numpy() == pytest.approx(truth, abs=1e-6)
    everything = found.answers()
    assert (everything["low"] <= everything["value"]).all()
    assert (everything["value"] <= everything["high"]).all()
    assert found.total == 300
    if project != "bounds":  # all answers are those of one table that meets them
        by_sex = found.answers(group="married x sex").groupby("sex")["value"].sum()
        assert by_sex.to_numpy() == pytest.approx(count(frame, "sex"), abs=1e-6)
    met = {True: "by all answers together", "nearest": "by all answers together"}
    record = found.provenance["constraints"]
    assert record["met"] == met.get(project, "by each answer by itself")
    assert record["impossible"] == [CONDITION]
    assert [t["attributes"] for t in record["published"]] == [["sex"], ["age", "town"]]


def drawn(plan: sf.Plan, seed: int, known: sf.Constraints | None) -> Release:
    """A release whose noise is repeatable."""
    noisy = measured(
        plan.forecast, count(people(), *DOMAIN.names).astype(np.int64), SeededWords(seed)
    )
    return Release.of(plan.forecast, noisy, constraints=known)


def test_a_release_without_them_breaks_them(plan):
    """The twin: nothing else keeps them."""
    found = drawn(plan, 0, None)
    table = found.answers(group="age x married")
    barred = (table["age"] < 2) & (table["married"] == 1)
    assert (table.loc[barred, "value"] > 0.01).any()
    assert found.provenance["constraints"] is None


def refused() -> dict[str, sf.Constraints]:
    same, other = 5 * np.eye(2), 5 * (1 - np.eye(2))
    circle = [(["married", "sex"], same), (["sex", "town"], np.eye(2, 3) * 5)]
    circle += [(["married", "town"], np.pad(other, ((0, 0), (0, 1))))]
    barred = [(["age"], [9, 0, 0, 0, 0, 1]), (["married"], [0, 10])]
    return {
        "a circle": sf.Constraints(DOMAIN, [], circle),
        "a condition": sf.Constraints(DOMAIN, [CONDITION], barred),
    }


@pytest.mark.parametrize("which", ["a circle", "a condition"])
def test_contradictions_are_found_before_anything_is_spent(plan, tmp_path, which):
    book = Ledger.open_or_create(tmp_path / "l", "people", "add-remove", BUDGET)
    with pytest.raises(WorkloadError, match="no data set has the published"):
        plan.release(people(), ledger=book, name="people", constraints=refused()[which])
    assert book.remaining().share == 1
    plan.release(people(), ledger=book, name="people")
    assert book.remaining().share < 1


def test_a_public_number_of_records_must_be_the_published_one(tmp_path):
    domain = sf.Domain([Category("sex", ("F", "M"), nulls="missing", outside="other")])
    plan = sf.plan(sf.marginals(domain, 1), BUDGET, "replace-one")
    table = pd.DataFrame({"sex": ["F", "M"] * 50})
    book = Ledger.open_or_create(tmp_path / "l", "people", "replace-one", BUDGET)
    wrong = sf.Constraints(domain, [], [([], 99.0)])
    with pytest.raises(WorkloadError, match="given as 100, but the published"):
        plan.release(table, ledger=book, name="people", constraints=wrong)
    assert book.remaining().share == 1
    right = sf.Constraints(domain, [], [([], 100.0)])
    paid = plan.release(table, ledger=book, name="people", constraints=right)
    assert paid.total == 100
    left = book.remaining().share
    with pytest.raises(WorkloadError, match="given as 100, but the published"):
        plan.release(table, ledger=book, name="people", constraints=wrong)
    again = plan.release(table, ledger=book, name="people")
    assert book.remaining().share == left
    assert again.answers()["unbiased"].equals(paid.answers()["unbiased"])


def test_what_is_paid_for_is_published_even_if_the_constraints_cannot_be_met(plan, monkeypatch):
    def fails(*_: object, **__: object) -> None:
        raise WorkloadError("the published tables could not be met")

    monkeypatch.setattr(release_module, "refined", fails)
    frame = people()
    found = plan.release(frame, constraints=constraints(frame))
    assert found.provenance["constraints"]["met"] == "by each answer by itself"
    assert found.provenance["projection"] == "cut to the feasible range"
    table = found.answers(group="age x married")
    barred = (table["age"] < 2) & (table["married"] == 1)
    assert (table.loc[barred, ["value", "low", "high"]] == 0).all().all()


def test_what_keeps_nothing_or_is_no_constraint_is_refused(plan):
    with pytest.raises(WorkloadError, match="leave project out, or the constraints"):
        plan.release(people(), project=False, constraints=constraints(people()))
    with pytest.raises(WorkloadError, match=r"constraints are sf\.Constraints"):
        plan.release(people(), constraints={"impossible": [CONDITION]})
    other = sf.Constraints(sf.Domain({"age": 6}), ["age = 0"])
    with pytest.raises(WorkloadError, match="another domain"):
        plan.release(people(), constraints=other)


def test_constraints_make_answers_better(plan):
    """Half of the noise on an impossible half is gone; four releases, mean squared errors."""
    known, truth = constraints(people()), WORK.evaluate(count(people(), *DOMAIN.names))
    errors = {}
    for name, given in (("with", known), ("without", None)):
        found = [drawn(plan, seed, given).answers()["value"] for seed in range(4)]
        errors[name] = np.mean([(v - truth) ** 2 for v in found])
    assert errors["with"] < errors["without"]
