# SPDX-License-Identifier: Apache-2.0
"""A GROUP BY, a mean or a quantile is one question of a session: one debit, all or nothing."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import BudgetExhausted, LedgerFrozen, SqlError, WorkloadError
from sfumato.ledger.ledger import Ledger
from sfumato.session.group_questions import GroupAnswer, GroupMeasurement
from sfumato.session.session_answers import Answer
from sfumato.vault.mechanisms.sparse import ExactQuestions
from sfumato.vault.tables import open_table
from tests.sessions import begin_session
from tests.shared.ledger_home import made
from tests.shared.words import SeededWords

DOMAIN = sf.Domain([sf.Integer("age", 0, 19), sf.Category("sex", ["F", "M"])])
GAUSSIAN = sf.Budget(epsilon=8, delta=1e-6)
PURE = sf.Budget(epsilon=40)
BY_AGE = "SELECT age, sex, COUNT(*) AS n FROM t GROUP BY age, sex"
SHAPE = (
    "SELECT sex, COUNT(*) AS n, AVG(age) AS years, MEDIAN(age) AS middle FROM t GROUP BY sex "
    "HAVING COUNT(*) > 100 ORDER BY years DESC LIMIT 1"
)


def _people(rows: int = 2000) -> pd.DataFrame:
    place = np.arange(rows)
    return pd.DataFrame({"age": (place * 7) % 20, "sex": np.where(place % 3 == 0, "F", "M")})


def _opened(ledger: Path | None, budget: sf.Budget = GAUSSIAN, **more: object) -> sf.Session:
    if ledger is not None:
        made(str(ledger), budget, "people")
    settings = {"updates": 8, "questions": 100, "records": 2000} | more
    return sf.open_session(_people(), DOMAIN, budget, ledger=ledger, name="people", **settings)


def _debits(ledger: Path) -> list[str]:
    return [entry.key.split(" ", 2)[2] for entry in Ledger.open(ledger).entries()]


@pytest.mark.parametrize("budget", [GAUSSIAN, PURE], ids=["gaussian", "pure"])
def test_forty_cells_are_one_question_with_one_debit(tmp_path: Path, budget: sf.Budget) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger, budget) as session:
        answer = session.ask(BY_AGE)
        assert isinstance(answer, GroupAnswer)
        assert len(answer.frame()) == 40
        assert _debits(ledger).count("group 1") == 1
        assert session.left().paid_answers == 7
        # One of eight parts of the budget, for all cells together.
        share = Ledger.open(ledger).remaining().share
        assert share >= 1 - 0.2
        frame = answer.frame()
        assert list(frame) == ["age", "sex", "n", "n_low", "n_high"]
        exact = _people().groupby(["age", "sex"]).size()
        truth = [exact.get((a, s), 0) for a, s in zip(frame["age"], frame["sex"], strict=True)]
        error = np.abs(frame["n"].to_numpy() - truth)
        # The noise of one answer at an eighth of the budget has a deviation below 5.
        assert error.max() < 30


def test_means_medians_having_and_limit_come_back_as_such(tmp_path: Path) -> None:
    with _opened(tmp_path / "people.ledger") as session:
        frame = session.ask(SHAPE).frame()
        assert list(frame.columns) == [
            "sex", "n", "n_low", "n_high", "years", "years_low", "years_high",
            "middle", "middle_low", "middle_high",
        ]  # fmt: skip
        assert len(frame) == 1
        mean = session.ask("SELECT AVG(age) AS years FROM t")
        # 9.5 by construction; 2,000 records and noise of a few persons.
        assert mean.value == pytest.approx(9.5, abs=0.5)
        assert mean.low <= mean.value <= mean.high
        quantile = session.ask("SELECT QUANTILE_CONT(age, 0.9) AS old FROM t")
        assert quantile.low <= 17 <= quantile.high
        with pytest.raises(WorkloadError, match="several rows or columns"):
            session.ask(BY_AGE).value  # noqa: B018


def test_variances_take_the_values_themselves(tmp_path: Path) -> None:
    with _opened(tmp_path / "people.ledger") as session:
        spread = session.ask("SELECT VAR_POP(age) AS spread FROM t")
        # (20^2 - 1) / 12 of equally many of twenty ages.
        assert spread.value == pytest.approx(399 / 12, rel=0.2)
        assert spread.low <= 399 / 12 <= spread.high


def test_the_same_groups_again_are_stored_however_they_are_written(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger) as session:
        first = session.ask(BY_AGE)
        assert not first.is_stored
        debits = _debits(ledger)
        other = "select sex, age, count(1) as number from people group by age, sex order by number"
        again = session.ask(other)
        assert again.is_stored
        assert again.key == first.key
        assert sorted(again.frame()["number"]) == sorted(first.frame()["n"])
        assert session.ask_all(sf.marginals(DOMAIN, [("age", "sex")])) == first.answers
    with _opened(ledger) as session:
        restored = session.ask(BY_AGE)
        assert restored.is_stored
        assert restored.frame().equals(first.frame())
        assert _debits(ledger) == debits


def test_groups_that_another_session_object_asked_meanwhile_are_not_paid_for_again(
    tmp_path: Path,
) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger) as session, _opened(ledger) as other:
        first = session.ask(BY_AGE)
        again = other.ask(BY_AGE)
        assert again.is_stored
        assert again.frame().equals(first.frame())
        assert _debits(ledger).count("group 1") == 1
        assert other.left().paid_answers == 7


def test_the_estimate_learns_groups_and_is_exact_after_a_restart(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger) as session:
        session.ask("SELECT COUNT(*) FROM t WHERE age < 3 AND sex = 'F'")
        session.ask(BY_AGE)
        session.ask("SELECT COUNT(*) FROM t WHERE age > 15")
        before = session.table("age", "sex")
        exact = _people().groupby(["age", "sex"]).size().unstack(fill_value=0).to_numpy()
        assert np.abs(before - exact).max() < 40  # an even start is off by 33 in most cells
    with _opened(ledger) as session:
        session.ask(BY_AGE)
        assert np.array_equal(session.table("age", "sex"), before)


def test_what_does_not_fit_is_refused_before_anything_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger, updates=2) as session:
        session.ask(BY_AGE)
        session.ask("SELECT age, AVG(age) FROM t GROUP BY age")
        assert session.left().paid_answers == 0
        debits = _debits(ledger)

        def drawn(*_: object) -> bytes:
            raise AssertionError("noise was drawn")

        monkeypatch.setattr(ExactQuestions, "measured", drawn)
        with pytest.raises(BudgetExhausted, match="all 2 paid answers"):
            session.ask("SELECT sex, AVG(age) FROM t GROUP BY sex")
        assert _debits(ledger) == debits
        assert session.ask(BY_AGE).is_stored


def test_a_frozen_ledger_answers_what_is_stored(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger) as session:
        session.ask(BY_AGE)
        Ledger.open(ledger).freeze("review")
        assert session.ask(BY_AGE).is_stored
        coarser = session.ask("SELECT sex, COUNT(*) AS n FROM t GROUP BY sex")
        assert coarser.how == "known"  # it follows from the finer one
        with pytest.raises(LedgerFrozen):
            session.ask("SELECT sex, AVG(age) FROM t GROUP BY sex")


@pytest.mark.parametrize("error", [None, 15.0], ids=["asked", "bought"])
@pytest.mark.parametrize("is_gone", [False, True], ids=["alive", "gone"])
def test_two_who_ask_at_once_pay_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: float | None, is_gone: bool
) -> None:
    """The second waits for what the first one measures; where that one is gone, it pays itself."""
    ledger, begun, may_end = tmp_path / "people.ledger", Event(), Event()
    plain = ExactQuestions.measured
    out: list[GroupAnswer] = []

    def slow(*given: object) -> object:
        if not begun.is_set():  # the first one, between its debit and its answer
            begun.set()
            assert may_end.wait(60)
        return plain(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(ExactQuestions, "measured", slow)
    monkeypatch.setattr("sfumato.session.answering.is_gone", lambda _: is_gone)
    with _opened(ledger) as one, _opened(ledger) as two:
        first = Thread(target=lambda: out.append(one.ask(BY_AGE, error=error)))
        first.start()
        assert begun.wait(60)
        second = Thread(target=lambda: out.append(two.ask(BY_AGE, error=error)))
        second.start()
        second.join(60 if is_gone else 0.3)
        assert second.is_alive() is not is_gone
        may_end.set()
        for thread in (first, second):
            thread.join(60)
    assert _debits(ledger) == ["group 1", "group 2"] if is_gone else ["group 1"]
    values = [[a.value for a in answer.answers] for answer in out]
    assert (values[0] == values[1]) is not is_gone


def test_an_allowance_pays_for_groups(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger) as session:
        Ledger.open(ledger).allow("eve", sf.Budget(epsilon="1/1000000", delta=1e-6))
        with pytest.raises(BudgetExhausted, match="eve"):
            session.ask(BY_AGE, analyst="eve")
        assert "group 1" not in _debits(ledger)
        session.ask(BY_AGE, analyst="ann")
        assert session.ask(BY_AGE, analyst="eve").is_stored


def test_a_forecast_says_the_cost_and_the_error_and_spends_nothing(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger) as session:
        forecast = session.estimate(BY_AGE)
        assert forecast.free_bound is None
        assert forecast.cost == session.read(BY_AGE).plan.cost
        assert 0 < forecast.paid_error < forecast.paid_bound < 30
        assert not forecast.is_stored
        assert _debits(ledger) == []
        session.ask(BY_AGE)
        assert session.estimate(BY_AGE).is_stored


def test_persons_are_counted_by_the_unit_of_the_session() -> None:
    people = _people().assign(person=lambda frame: np.arange(len(frame)))
    unit = sf.PrivacyUnit("person", 1)
    with sf.open_session(
        people, DOMAIN, GAUSSIAN, unit=unit, updates=8, questions=100, records=2000
    ) as session:
        frame = session.ask("SELECT sex, COUNT(DISTINCT person) AS n FROM t GROUP BY sex").frame()
        assert frame["n"].to_numpy() == pytest.approx([667, 1333], abs=40)
        with pytest.raises(SqlError, match="privacy unit"):
            session.ask("SELECT sex, COUNT(DISTINCT age) FROM t GROUP BY sex")


def test_cells_that_were_answered_one_by_one_before_are_free(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    text = "SELECT sex, COUNT(*) AS n FROM t GROUP BY sex"
    with _opened(ledger) as session:
        cells = session.ask_many(session.read_all(text))
        assert all(isinstance(cell, Answer) for cell in cells)
        debits = _debits(ledger)
        answer = session.ask(text)
        assert answer.is_stored
        assert answer.frame()["n"].tolist() == [cell.value for cell in cells]
        assert _debits(ledger) == debits


def test_made_up_records_answer_groups_too() -> None:
    with sf.open_session(None, DOMAIN, GAUSSIAN, dummy=True, records=500) as session:
        answer = session.ask(SHAPE)
        assert answer.is_dummy
        assert all(cell.is_dummy for cell in answer.answers)


def test_a_stored_measurement_is_read_as_it_was_written() -> None:
    with sf.open_session(None, DOMAIN, GAUSSIAN, dummy=True, records=500) as session:
        question = session.read(BY_AGE)
        session.ask(BY_AGE)
        (stored,) = session._state.groups.values()
        again = GroupMeasurement.from_bytes(stored.to_bytes(), DOMAIN)
        assert (again.key, again.measured, again.epochs) == (question.key, stored.measured, 0)
        pairs = zip(again.learnt, stored.learnt, strict=True)
        assert all(a[0].key == b[0].key and a[1:] == b[1:] for a, b in pairs)


TEXTS = [BY_AGE, SHAPE, "SELECT AVG(age) AS a FROM t WHERE sex = 'F'"]


def _loss(session: sf.Session, text: str, tables: list[pd.DataFrame]) -> tuple[float, float]:
    """The exact loss of the measurement between two tables, and what is debited for it.

    For Gaussian noise the squared distance of the exact values over the variance (mu^2), for
    Laplace noise the L1 distance over the scale (epsilon).
    """
    plan = session.read(text).plan
    values = []
    for table in tables:
        exact = ExactQuestions(open_table(table), DOMAIN, plan.neighbours, None)
        counted = exact.counted(plan.forecast.measured_domain, plan.strategy.blocks)
        values.append(counted.values.reveal())
    loss = 0.0
    for one, other, noise, block in zip(*values, plan.noise, plan.strategy.blocks, strict=True):
        bits = block.term.fraction_bits + block.term.unit_bits
        moved = np.abs(np.asarray(one - other, dtype=np.float64)) * 2.0**-bits
        scale = float(noise.scale)
        loss += ((moved / scale) ** 2).sum() if noise.noise == "gaussian" else (moved / scale).sum()
    part = plan.cost.parts[0]
    return float(loss), float(getattr(part, "epsilon", 0) or part.mu_squared)


@pytest.fixture(scope="module")
def sessions() -> list[sf.Session]:
    """One with Gaussian, one with Laplace noise; they are asked for plans only."""
    return [
        begin_session(_people(10), DOMAIN, b, SeededWords(1), updates=8, questions=100, records=10)
        for b in (GAUSSIAN, PURE)
    ]


@given(
    st.lists(st.tuples(st.integers(0, 19), st.sampled_from("FM")), min_size=1, max_size=12),
    st.integers(0, 11),
)
@settings(max_examples=15, deadline=None)
def test_one_record_moves_a_measurement_by_no_more_than_is_debited(
    sessions: list[sf.Session], records: list[tuple[int, str]], gone: int
) -> None:
    tables = [
        pd.DataFrame(rows, columns=["age", "sex"])
        for rows in (records, [r for i, r in enumerate(records) if i != gone % len(records)])
    ]
    for session in sessions:
        for text in TEXTS:
            loss, debited = _loss(session, text, tables)
            assert loss <= debited * (1 + 1e-9)


def test_the_comparison_sees_two_records_for_the_debit_of_one(sessions: list[sf.Session]) -> None:
    """The twin: tables that differ in two equal records are told apart by more than was paid."""
    tables = [_people(20), pd.concat([_people(20), _people(1), _people(1)])]
    for session in sessions:
        loss, debited = _loss(session, BY_AGE, tables)
        assert loss > 1.5 * debited
