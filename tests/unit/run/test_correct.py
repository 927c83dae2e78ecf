# SPDX-License-Identifier: Apache-2.0
"""Predictions corrected where they are wrong: answers, intervals, ledger, predictors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import BudgetExhausted, PlanError
from sfumato.ledger.ledger import Ledger
from tests.shared.ledger_home import made

BUDGET = sf.Budget(epsilon=1)
TRUTH = np.array([300, 310, 5000, 290, 305, 9000, 300, 295])
TABLE = pd.DataFrame({"kind": np.repeat(np.arange(8), TRUTH)})
DOMAIN = sf.Domain({"kind": 8})
WORK = sf.marginals(DOMAIN, 1)
SURE = 1 - 1e-9  # what is asserted below fails by chance with at most this much left


def test_only_wrong_predictions_are_replaced_and_all_intervals_hold() -> None:
    correction = sf.correct(WORK, BUDGET, 1000, corrections=3, confidence=SURE)
    frame = correction.release(TABLE, [300.0] * 8).answers()
    assert frame["source"].tolist() == ["corrected" if t > 400 else "prediction" for t in TRUTH]
    assert (frame["low"] <= TRUTH).all()
    assert (frame["high"] >= TRUTH).all()
    assert (frame["value"] == 300)[TRUTH < 400].all()
    assert frame["query"].iloc[2] == "kind = 2"
    assert (frame["group"] == "kind").all()


@pytest.mark.parametrize("budget", [sf.Budget(mu=1), sf.Budget(epsilon=1, delta=1e-9)])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_other_budgets_and_neighbours(budget: sf.Budget, neighbours: str) -> None:
    correction = sf.correct(
        WORK,
        budget,
        2000,
        corrections=2,
        neighbours=neighbours,
        confidence=SURE,  # type: ignore[arg-type]
    )
    frame = correction.release(TABLE, [300.0] * 8).answers()
    assert ((frame["low"] <= TRUTH) & (frame["high"] >= TRUTH))[:6].all()
    assert frame["source"].iloc[6] == "not checked"
    assert frame["low"].isna().tolist() == [False] * 6 + [True] * 2


def test_a_predictor_sees_the_answers_so_far_and_nothing_else() -> None:
    seen: list[tuple[int, tuple[float, ...]]] = []

    def last(place: int, answers: Sequence[float]) -> float:
        seen.append((place, tuple(answers)))
        return answers[-1] if answers else 300.0

    correction = sf.correct(WORK, BUDGET, 1000, corrections=4, confidence=SURE)
    frame = correction.release(TABLE, last).answers()
    # 300 stands, 5000 is found, so 290 is off again, 9000 too, and 300 for the last time.
    assert frame["source"].tolist() == [
        *(["prediction"] * 2),
        *(["corrected"] * 2),
        "prediction",
        *(["corrected"] * 2),
        "not checked",
    ]
    assert [place for place, _ in seen] == list(range(8))
    for place, answers in seen:
        assert list(answers) == frame["value"].tolist()[:place]


def test_conditions_are_counted_and_half_steps_are_kept() -> None:
    work = sf.explicit(DOMAIN, ["kind"], np.array([[0.5] * 8, [0.25] * 4 + [0.0] * 4]))
    correction = sf.correct(work, BUDGET, 5000, corrections=1, confidence=SURE)
    truth = [TRUTH.sum() / 2, TRUTH[:4].sum() / 4]
    frame = correction.release(TABLE, [truth[0] + 0.25, truth[1] - 0.25]).answers()
    assert frame["source"].tolist() == ["prediction", "prediction"]
    assert frame["value"].tolist() == [truth[0] + 0.25, truth[1] - 0.25]


def test_the_ledger_is_debited_once_and_the_answers_stay(tmp_path: Path) -> None:
    book = Ledger.create(tmp_path / "c.ledger", BUDGET, "people", "add-remove")
    correction = sf.correct(WORK, sf.Budget(epsilon="0.5"), 1000, corrections=3)
    first = correction.release(TABLE, [300.0] * 8, book, name="people")
    assert first.entry is not None
    assert first.entry.cost == correction.plan.cost
    again = correction.release(TABLE.iloc[:9], [300.0] * 8, book, name="people")  # not read again
    pd.testing.assert_frame_equal(first.answers(), again.answers())
    correction.release(TABLE, [301.0] * 8, book, name="people")  # other predictions, another debit
    with pytest.raises(BudgetExhausted):
        correction.release(TABLE, [302.0] * 8, book, name="people")
    assert len(book.entries()) == 2


def test_a_function_needs_a_key_and_is_not_called_again(tmp_path: Path) -> None:
    correction = sf.correct(WORK, BUDGET, 1000, corrections=3)
    with pytest.raises(PlanError, match="key"):
        correction.release(TABLE, lambda *_: 300.0, tmp_path / "l")
    made(tmp_path / "l", BUDGET, "people")
    calls = []

    def constant(place: int, _answers: Sequence[float]) -> float:
        calls.append(place)
        return 300.0

    one = correction.release(TABLE, constant, tmp_path / "l", name="people", key="model 1")
    two = correction.release(TABLE, constant, tmp_path / "l", name="people", key="model 1")
    assert len(calls) == 8
    pd.testing.assert_frame_equal(one.answers(), two.answers())


def test_more_rows_a_person_mean_more_noise() -> None:
    one, seven = (
        sf.correct(WORK, BUDGET, 1000, unit=unit).plan.law.query.scale
        for unit in (None, PrivacyUnit("who", 7))
    )
    assert seven == pytest.approx(7 * one)


def test_wrong_requests_are_refused_before_anything_is_read() -> None:
    correction = sf.correct(WORK, BUDGET, 1000)
    for bad in ([1.0] * 7, [float("nan")] * 8, ["x"] * 8, None, [[1.0]] * 8):
        with pytest.raises(PlanError, match="8 finite numbers"):
            correction.release("no such file", bad)  # type: ignore[arg-type]
    for tolerance in (0, -1, float("inf"), "x", True):
        with pytest.raises(PlanError, match="tolerance"):
            sf.correct(WORK, BUDGET, tolerance)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="workload"):
        sf.correct("age", BUDGET, 10)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="1 finite numbers"):
        correction.release(TABLE, lambda *_: float("nan"))
