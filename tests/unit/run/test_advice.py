# SPDX-License-Identifier: Apache-2.0
"""Recommendations: repeatable, and right where the difference is huge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.attributes import Integer
from sfumato.errors import PlanError
from sfumato.refine.shrink import PublicRecords
from sfumato.run.advice import USUAL, Option, Recommendation, _Trial
from sfumato.run.run_limits import LIMITS
from sfumato.study.simulated import made_up, resampled

BUDGET = sf.Budget(epsilon=1, delta=1e-6)
YES_NO = sf.marginals(
    sf.Domain([Integer(f"q{i}", 0, 0, nulls="missing", outside="clamp") for i in range(6)]), 2
)


@pytest.fixture(scope="module")
def few() -> Recommendation:
    return sf.recommend(YES_NO, sf.Budget(epsilon=0.1, delta=1e-6), 10, "replace-one", runs=3)


def _errors(found: Recommendation) -> dict[str, float | None]:
    return {o.name: o.rmse for o in found.options}


def test_noise_beyond_all_counts_is_not_published_as_it_is(few: Recommendation) -> None:
    """Noise of a hundred counts on ten records: every other way is many times nearer."""
    errors = _errors(few)
    assert few.best.name != "plan, unbiased"
    for name in ("plan, projected", USUAL, "plan with a bias, projected"):
        found = errors[name]
        assert found is not None
        assert 5 * found < (errors["plan, unbiased"] or 0.0)
    assert few.is_clear or few.best.name == USUAL


def test_the_same_question_gets_the_same_recommendation(few: Recommendation) -> None:
    again = sf.recommend(YES_NO, sf.Budget(epsilon=0.1, delta=1e-6), 10, "replace-one", runs=3)
    assert again.as_json() == few.as_json()
    other = sf.recommend(YES_NO, sf.Budget(epsilon=0.1, delta=1e-6), 11, "replace-one", runs=3)
    assert _errors(other) != _errors(few)  # the twin: another question has other draws


def test_with_many_records_a_bias_and_rounds_are_not_recommended() -> None:
    """A million records at epsilon 1: what the plan measures is known to parts in 10^5."""
    found = sf.recommend(YES_NO, BUDGET, 1_000_000, "replace-one", runs=2)
    errors = _errors(found)
    assert found.best.name == USUAL
    assert found.best.rmse == pytest.approx(errors["plan, unbiased"], rel=0.5)
    assert (errors["adaptive"] or 0.0) > 1.2 * (found.best.rmse or 0.0)


def test_the_error_of_unbiased_answers_is_the_forecast() -> None:
    plan = sf.plan(YES_NO, BUDGET, "replace-one")
    trial = _Trial(plan, 50, 40, "rmse", None, None)
    unbiased = trial._option("unbiased", "", trial._unbiased)
    # 60 answers of 40 runs, at most ten of them independent: a relative error of a few percent.
    assert unbiased.rmse == pytest.approx(plan.rmse, rel=0.25)
    assert 0 < unbiased.standard_error < 0.2 * plan.rmse


def test_public_records_are_what_is_tried_on() -> None:
    domain = sf.Domain({"a": 4, "b": 3})
    work = sf.marginals(domain, 2)
    public = pd.DataFrame({"a": [0] * 9 + [3], "b": [1] * 9 + [2]})
    found = sf.recommend(work, sf.Budget(epsilon=0.05), 40, public=public, runs=3)
    assert found.surrogate == "records drawn from the public ones"
    usual = next(o for o in found.options if o.name == USUAL)
    assert usual.how == "plan.release(table, public=public)"
    # The guess is the population itself, the noise twenty counts a cell.
    assert (usual.rmse or 0.0) < 0.8 * (_errors(found)["plan, unbiased"] or 0.0)


def test_ways_that_cannot_be_tried_say_why_and_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    few = replace(LIMITS, trial_projected_answers=69)
    monkeypatch.setattr("sfumato.run.advice.LIMITS", few)
    work = sf.marginals(sf.Domain({f"a{i}": 10 for i in range(7)}), 1)
    found = sf.recommend(work, BUDGET, 100, runs=2)
    projected = found.options[-1]
    assert projected.rmse is None
    assert "too many" in projected.note
    assert {o.name for o in found.options} == {"plan, unbiased", "plan, shrunk", "adaptive"}
    assert "plan, shrunk: too many" in repr(found)


def test_projections_are_tried_where_cells_cannot_be_listed() -> None:
    work = sf.marginals(sf.Domain({f"a{i}": 6 for i in range(9)}), 2)  # more than 10^7 cells
    found = sf.recommend(work, BUDGET, 500)
    assert found.runs == 2
    errors = _errors(found)
    # 1,296 noisy cells of 500 records: most of them are near 0, and projection knows that.
    assert errors["plan, shrunk"] < 0.7 * errors["plan, unbiased"]
    assert found.best.name != "plan, unbiased"


def test_what_is_said_names_the_best_how_to_run_it_and_by_how_much() -> None:
    near = Option("b", "run b", 2.0, 0.1, 4.0, (4.0, 4.1, 3.9))
    far = Option("c", "run c", 6.0, 0.1, 9.0, (36.0, 35.0, 37.0))
    found = Recommendation(7, 3, "made-up records", "rmse", (near, far))
    assert found.margin == pytest.approx(3.0)
    assert found.is_clear
    assert found.describe() == ("b, by 3 runs on 7 made-up records: run b; c has 3 times the error")
    close = Option("d", "run d", 2.0, 0.1, 4.0, (4.1, 3.9, 4.3))
    unclear = Recommendation(7, 3, "made-up records", "rmse", (near, close))
    assert "within chance" in unclear.describe()
    assert found.as_json()["best"] == "b"


def test_the_objective_decides_which_error_counts() -> None:
    found = sf.recommend(YES_NO, BUDGET, 20, "replace-one", objective="max", runs=2)
    tried = [o for o in found.options if o.squares]
    for option in tried:
        assert option.largest == pytest.approx(np.mean(np.sqrt(option.squares)))
    assert all(a.squares >= () for a in tried)


@pytest.mark.parametrize("records", [0, -1, 1.5, True, 10**16, None])
def test_records_must_be_a_number_of_records(records: object) -> None:
    with pytest.raises(PlanError, match="records must be"):
        sf.recommend(YES_NO, BUDGET, records)  # type: ignore[arg-type]


@pytest.mark.parametrize("runs", [0, 1, True, 2.0, 10**6])
def test_runs_must_be_a_few(runs: object) -> None:
    with pytest.raises(PlanError, match="runs must be"):
        sf.recommend(YES_NO, BUDGET, 10, runs=runs)  # type: ignore[arg-type]


def test_made_up_records_lie_in_the_domain_and_repeat() -> None:
    domain = sf.Domain({"a": 3, "b": 5, "c": 2})
    for run in range(4):
        found = made_up(domain, 1000, run, "x")
        assert found.codes.shape == (1000, 3)
        assert (found.codes >= 0).all()
        assert (found.codes < np.array(domain.shape)).all()
        assert np.array_equal(found.codes, made_up(domain, 1000, run, "x").codes)
        assert found.table(("a", "c")).sum() == pytest.approx(1000)
        assert found.table(("a", "c")).sum(axis=1) == pytest.approx(found.table(("a",)))
    assert not np.array_equal(found.codes, made_up(domain, 1000, 3, "y").codes)
    many = made_up(domain, 10**7, 0, "x")
    assert many.table(()) == 10**7
    assert many.table(("b",)).sum() == pytest.approx(10**7)


def test_public_records_are_drawn_by_their_weights() -> None:
    domain = sf.Domain({"a": 3, "b": 2})
    public = PublicRecords(("b", "a"), np.array([[0, 2], [1, 0]]), np.array([3.0, 1.0]))
    table = resampled(domain, public, 40_000, 0, "x").table(("a", "b"))
    assert table.sum() == 40_000
    # Binomial of 40,000 draws at 3/4: seven standard deviations are 606.
    assert table[2, 0] == pytest.approx(30_000, abs=606)
    assert table[0, 1] == 40_000 - table[2, 0]
