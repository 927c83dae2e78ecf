# SPDX-License-Identifier: Apache-2.0
"""Adaptive releases keep what everybody knows, and have intervals for what they measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.errors import WorkloadError
from sfumato.ledger.ledger import Ledger
from sfumato.refine import learn
from sfumato.refine.learn import constrained_rows
from sfumato.refine.refine_limits import LIMITS

DOMAIN = sf.Domain({"age": 6, "married": 2, "sex": 2, "town": 3})
WORK = sf.marginals(DOMAIN, [["age", "married"], ["married", "sex"], ["age", "sex"]])
BUDGET = sf.Budget(epsilon=1, delta=1e-9)
METHODS = ["tables", "mwem", "boosting"]


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learn, "LIMITS", replace(LIMITS, final_rows=4000, loop_rows=4000))


def people(rows: int = 600) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({n: rng.integers(0, DOMAIN[n].size, rows) for n in DOMAIN.names})
    frame.loc[frame["age"] < 2, "married"] = 0
    return frame


def count(frame: pd.DataFrame, *names: str) -> np.ndarray:
    table = np.zeros([DOMAIN[n].size for n in names])
    np.add.at(table, tuple(frame[n] for n in names), 1.0)
    return table


def constraints(frame: pd.DataFrame) -> sf.Constraints:
    """Nobody asks about towns, but a table with them is published."""
    tables = [(["sex"], count(frame, "sex")), (["age", "town"], count(frame, "age", "town"))]
    return sf.Constraints(DOMAIN, ["age < 2 and married = 1"], tables)


@pytest.mark.parametrize("method", METHODS)
def test_answers_and_records_keep_them(method):
    frame = people()
    known = constraints(frame)
    result = sf.plan_adaptive(WORK, BUDGET, method=method).release(frame, constraints=known)
    assert (result.table("age", "married")[:2, 1] == 0).all()
    assert result.table("sex") == pytest.approx(count(frame, "sex"), abs=1e-6)
    assert result.table("age", "town") == pytest.approx(count(frame, "age", "town"), abs=1e-6)
    assert result.provenance["constraints"]["met"] == "by all answers together"
    answers = result.answers()
    has = answers["low"].notna()
    assert (answers["low"] <= answers["value"])[has].all()
    assert (answers["value"] <= answers["high"])[has].all()
    barred = answers["query"].isin(["age = 0, married = 1", "age = 1, married = 1"])
    assert barred.sum() == 2
    assert (answers.loc[barred, ["value", "low", "high"]] == 0).all().all()
    records = result.synthetic(600)
    assert not ((records["age"] < 2) & (records["married"] == 1)).any()
    assert count(records, "sex").tolist() == count(frame, "sex").tolist()
    assert "kept" in result.report()


@pytest.mark.parametrize("method", METHODS)
def test_a_stored_release_keeps_other_constraints_at_no_cost(method, tmp_path):
    """They are no part of what was measured: the same transcript, learnt with and without."""
    frame = people()
    book = Ledger.open_or_create(tmp_path / "l", "people", "add-remove", BUDGET)
    plan = sf.plan_adaptive(WORK, BUDGET, method=method)
    plain = plan.release(frame, ledger=book, name="people")
    left = book.remaining().share
    assert plain.provenance["constraints"] is None
    kept = plan.release(frame, ledger=book, name="people", constraints=constraints(frame))
    again = plan.release(frame, ledger=book, name="people", constraints=constraints(frame))
    assert book.remaining().share == left
    assert kept.estimates.transcript.to_bytes() == plain.estimates.transcript.to_bytes()
    assert kept.answers().equals(again.answers())
    assert (kept.table("age", "married")[:2, 1] == 0).all()


def test_contradictions_are_found_before_anything_is_spent(tmp_path):
    book = Ledger.open_or_create(tmp_path / "l", "people", "add-remove", BUDGET)
    plan = sf.plan_adaptive(WORK, BUDGET)
    barred = [(["age"], [9, 0, 0, 0, 0, 1]), (["married"], [0, 10])]
    cases = {
        "no data set has": sf.Constraints(DOMAIN, ["age < 2 and married = 1"], barred),
        "hold no record": sf.Constraints(DOMAIN, [], [([], 0.0)]),
        "another domain": sf.Constraints(sf.Domain({"age": 6}), ["age = 0"]),
    }
    for words, known in cases.items():
        with pytest.raises(WorkloadError, match=words):
            plan.release(people(), ledger=book, name="people", constraints=known)
    assert book.remaining().share == 1


def test_rows_that_are_all_impossible_are_replaced():
    known = sf.Constraints(DOMAIN, ["age = 0"], [(["age"], [0, 4, 6, 0, 0, 0])])
    found = constrained_rows(known, DOMAIN, np.zeros((5, 4), dtype=np.int64), np.full(5, 0.2), 10.0)
    assert found.are_met
    assert found.table(("age",)).tolist() == pytest.approx([0, 4, 6, 0, 0, 0])


def test_a_report_speaks_of_no_others_where_every_answer_has_an_interval():
    domain = sf.Domain({"age": 4, "sex": 2})
    people = pd.DataFrame({"age": np.arange(500) % 4, "sex": np.arange(500) % 2})
    result = sf.plan_adaptive(sf.marginals(domain, 1), BUDGET, rounds=2).release(people)
    assert result.answers(level=0.9)["low"].notna().all()
    page = result.report(0.9)
    assert "6 of 6 answers have an interval" in page
    assert "The others have" not in page


@pytest.mark.parametrize("method", METHODS)
def test_frames_and_reports_say_which_answers_have_an_interval(method, tmp_path):
    """A table of 2,400 cells is never measured, but its margins are; of 670 queries at most 80."""
    size = 40 if method == "tables" else 10
    domain = sf.Domain({"age": size, "town": 30, "sex": 2})
    work = sf.marginals(domain, [["age"], ["town", "sex"], ["age", "town", "sex"]])
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({n: rng.integers(0, domain[n].size, 500) for n in domain.names})
    result = sf.plan_adaptive(work, BUDGET, method=method, rounds=2).release(frame)
    answers = result.answers(level=0.9)
    assert [*answers.columns] == ["group", "query", "value", "low", "high"]
    has = answers["low"].notna()
    assert (has == answers["high"].notna()).all()
    is_all = method == "tables"
    assert has.sum() == len(answers) if is_all else 0 < has.sum() < len(answers)
    page = result.report(0.9)
    assert is_all or f"{has.sum():,} of {len(answers):,} answers have an interval" in page
    assert ("The others have <b>no interval</b>" in page) != is_all
    files = result.save(tmp_path / "out", level=0.9)
    stored = pd.read_parquet(files["answers"])
    assert stored["low"].notna().tolist() == has.tolist()
    with pytest.raises(WorkloadError, match="confidence level"):
        result.answers(level=1.0)
