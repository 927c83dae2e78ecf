# SPDX-License-Identifier: Apache-2.0
"""Accuracy that is paid for: what is known is used first, and the rest is bought, once."""

from __future__ import annotations

from fractions import Fraction
from math import inf, sqrt
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import BudgetExhausted, LedgerError, LedgerFrozen, PlanError
from sfumato.ledger.ledger import Ledger
from sfumato.privacy.noise_laws import gaussian_variance, laplace_variance
from sfumato.privacy.sparse_vector import NoiseLaw, noise_cost
from sfumato.session.purchases import (
    Purchase,
    combined,
    least_error,
    least_noise,
    missing_variance,
    single_draw,
)
from sfumato.session.scope import KnownNumber
from sfumato.session.session_plan import UNIT
from sfumato.vault.mechanisms.sparse import ExactQuestions, answer_shift
from sfumato.vault.tables import open_table
from sfumato.workload.question import questions_of
from tests.shared.ledger_home import made

DOMAIN = sf.Domain(
    [sf.Integer("age", 0, 7), sf.Category("sex", ["F", "M"]), sf.Category("kind", ["a", "b", "c"])]
)
BUDGETS = {"gaussian": sf.Budget(epsilon=2, delta=1e-6), "pure": sf.Budget(epsilon=4)}
COUNT = "SELECT COUNT(*) FROM t WHERE age < 4 AND sex = 'F' AND kind = 'a'"
OTHER = "SELECT COUNT(*) FROM t WHERE age >= 4 AND sex = 'M' AND kind = 'b'"
PAIR = "SELECT COUNT(*) FROM t WHERE age < 4 AND sex = 'F'"
GROUPS = "SELECT kind, sex, COUNT(*) AS n FROM t GROUP BY kind, sex"


def _people(rows: int = 1200) -> pd.DataFrame:
    place = np.arange(rows)
    return pd.DataFrame(
        {
            "age": (place * 7) % 8,
            "sex": np.where(place % 3 == 0, "F", "M"),
            "kind": np.array(["a", "b", "c"])[(place // 5) % 3],
        }
    )


@pytest.fixture(params=BUDGETS)
def budget(request: pytest.FixtureRequest) -> sf.Budget:
    """One with Gaussian, one with Laplace noise."""
    return BUDGETS[request.param]


def _opened(ledger: Path, budget: sf.Budget, **more: object) -> sf.Session:
    made(str(ledger), budget, "people")
    settings = {"records": 1200, "questions": 100, "updates": 4} | more
    return sf.open_session(_people(), DOMAIN, budget, ledger=ledger, name="people", **settings)  # type: ignore[arg-type]


def _costs(ledger: Path) -> list[tuple[str, object]]:
    entries = Ledger.open(ledger).entries()
    return [(entry.key.split(" ", 2)[2], entry.cost) for entry in entries]


def _amount(cost: object) -> Fraction:
    return cost.mu_squared or cost.pure_epsilon  # type: ignore[attr-defined]


def test_what_is_missing_is_bought_once_and_then_free(tmp_path: Path, budget: sf.Budget) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger, budget) as session:
        forecast = session.estimate(COUNT, error=20)
        assert _costs(ledger) == []
        first = session.ask(COUNT, error=20)
        assert first.how == "paid"
        assert 19.9 < first.standard_error <= 20
        assert first.standard_error == pytest.approx(forecast.standard_error)
        ((key, cost),) = _costs(ledger)
        assert key == "group 1"
        assert cost == forecast.cost
        assert list(first.cost) == cost.as_json()
        for error in (20, 25, 1e6):  # the same or a larger error: the same answer, for nothing
            again = session.ask(COUNT, error=error)
            assert (again.value, again.low, again.high) == (first.value, first.low, first.high)
            assert (again.how, again.cost, again.is_stored) == ("known", (), True)
        plain = session.ask(COUNT)  # and without one
        assert (plain.value, plain.how) == (first.value, "known")
        assert len(_costs(ledger)) == 1
        assert session.estimate(COUNT, error=20).cost.parts == ()
    assert session.ask(COUNT, error=20) == again  # closed: nothing is missing
    with pytest.raises(PlanError, match="closed"):
        session.ask(COUNT, error=1)
    with _opened(ledger, budget) as session:
        assert session.ask(COUNT, error=20) == again
        assert (
            session.ask("select count(*) from t where kind = 'a' and sex = 'F' and age <= 3")
            == plain
        )
    assert len(_costs(ledger)) == 1
    assert Ledger.open(ledger).verify().is_whole


def test_improving_costs_what_is_missing(tmp_path: Path, budget: sf.Budget) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger, budget) as session:
        answer = session.ask(COUNT, error=30)
        better = session.improve(answer, 20)
        assert better.standard_error <= 20
        assert session.improve(better, 25).how == "known"
        spent = sum(_amount(cost) for _, cost in _costs(ledger))
    if not budget.is_pure:  # precisions add up, and so does what they cost: 1/20^2
        assert float(spent) == pytest.approx(1 / 20**2, rel=1e-3)
    else:  # sqrt(2) / b of each; less than two answers, more than one
        assert sqrt(2) / 20 < float(spent) < sqrt(2) / 20 + sqrt(2) / 30
    with _opened(ledger, budget) as session:  # the question is known by what was bought
        again = session.improve(answer, 20)
        assert (again.value, again.low, again.high) == (better.value, better.low, better.high)
        assert (again.safe_low, again.safe_high) == (better.safe_low, better.safe_high)


def test_answers_of_a_scope_are_sharpened(tmp_path: Path, budget: sf.Budget) -> None:
    """The scope's precision is there; what is bought is the rest, by the rule of precisions."""
    ledger = tmp_path / "people.ledger"
    with _opened(ledger, budget, scope=2, scope_share=0.5) as session:
        known = session.ask(PAIR)
        assert known.how == "known"
        assert session.ask(PAIR, error=known.standard_error * 1.01).how == "known"
        assert [key for key, _ in _costs(ledger)] == ["scope"]
        error = known.standard_error / 1.5
        number = session._state.knowledge(session.read(PAIR))
        better = session.ask(PAIR, error=error)
        assert "the precision that was missing" in better.why
        (_, cost) = _costs(ledger)[-1]
        variance = 1 / (error**-2 - known.standard_error**-2)
        wanted = 1 / variance if not budget.is_pure else sqrt(2 / variance)
        assert float(_amount(cost)) == pytest.approx(wanted, rel=0.01)
        (bought,) = session._state._purchases[better.key]
        weights = np.array([number.standard_error**-2, bought.law.standard_error**-2])
        value = weights @ [number.value, bought.value] / weights.sum()
        assert session._state.knowledge(session.read(PAIR)).value == pytest.approx(value)
        assert session.ask(PAIR) == session.ask(PAIR, error=error)  # plain answers are sharper, too
        if not budget.is_pure:
            assert better.safe_low <= better.low
            assert better.high <= better.safe_high


def test_paid_answers_and_cells_of_groups_are_used(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger, BUDGETS["gaussian"]) as session:
        session.ask(GROUPS)
        debits = len(_costs(ledger))
        cell = "SELECT COUNT(*) FROM t WHERE kind = 'b' AND sex = 'M'"
        answer = session.ask(cell)
        assert answer.how == "known"  # neither tested nor paid for
        assert session.estimate(cell).cost.parts == ()
        assert len(_costs(ledger)) == debits
        sharper = session.ask(cell, error=answer.standard_error / 2)
        (_, cost) = _costs(ledger)[-1]
        assert float(cost.mu_squared) == pytest.approx(3 * answer.standard_error**-2, rel=0.01)
        assert len(session._state._knowledge._own[sharper.key]) == 2
    with _opened(ledger, BUDGETS["gaussian"]) as session:
        again = session.ask(cell, error=answer.standard_error / 2)
        assert (again.value, again.how) == (sharper.value, "known")


def test_groups_with_an_error_are_one_debit(tmp_path: Path, budget: sf.Budget) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger, budget) as session:
        one = session.ask("SELECT COUNT(*) FROM t WHERE kind = 'a' AND sex = 'F'", error=12)
        forecast = session.estimate(GROUPS, error=10)
        answer = session.ask(GROUPS, error=10)
        assert answer.how == "paid"
        assert max(a.standard_error for a in answer.answers) <= 10
        assert answer.answers[0].standard_error < 9  # two measurements of this one
        assert len(_costs(ledger)) == 2
        assert _costs(ledger)[-1][1] == forecast.cost
        single = 1 / 10**2 if not budget.is_pure else sqrt(2) / 10
        assert float(_amount(forecast.cost)) == pytest.approx(
            single, rel=0.01
        )  # cells are disjoint
        for text in (GROUPS, "SELECT sex, kind, COUNT(*) AS m FROM t GROUP BY kind, sex"):
            again = session.ask(text, error=11)
            assert again.how == "known"
            assert sorted(a.value for a in again.answers) == sorted(a.value for a in answer.answers)
        assert session.ask(GROUPS).how == "known"
        assert (
            session.ask("SELECT COUNT(*) FROM t WHERE kind = 'a' AND sex = 'F'").value != one.value
        )
        frame = session.ask(GROUPS + " ORDER BY n DESC LIMIT 2", error=10).frame()
        assert list(frame.columns) == ["kind", "sex", "n", "n_low", "n_high"]
        assert len(frame) == 2
        better = session.improve(answer, 8)
        assert max(a.standard_error for a in better.answers) <= 8
        assert len(_costs(ledger)) == 3
    with _opened(ledger, budget) as session:
        again = session.ask(GROUPS, error=8)
        assert [a.value for a in again.answers] == [a.value for a in better.answers]
        assert again.answers[0].low == better.answers[0].low
    assert len(_costs(ledger)) == 3


def test_rows_that_noise_may_choose_have_wider_intervals(tmp_path: Path) -> None:
    with _opened(tmp_path / "people.ledger", BUDGETS["gaussian"]) as session:
        plain = session.ask(GROUPS, error=10).frame()
        chosen = session.ask(GROUPS + " ORDER BY n DESC LIMIT 3", error=10).frame()
    width = (plain["n_high"] - plain["n_low"]).max()
    assert (chosen["n_high"] - chosen["n_low"]).max() > 1.2 * width


def test_the_budget_of_the_session_holds(tmp_path: Path, budget: sf.Budget) -> None:
    """Too small an error is refused, with the least one that can be had; that one can be paid."""
    ledger = tmp_path / "people.ledger"
    with _opened(ledger, budget) as session:
        total = session.plan.updates * session.plan.part
        with pytest.raises(BudgetExhausted, match="nothing was spent; for what is left an error"):
            session.ask(COUNT, error=0.02)
        with pytest.raises(BudgetExhausted, match="for what is left an error"):
            session.ask(GROUPS, error=0.02)
        assert _costs(ledger) == []
        least = session.estimate(COUNT, error=0.02).least_error
        assert "would cost" in session.estimate(COUNT, error=0.02).why
        answer = session.ask(COUNT, error=least)
        assert answer.standard_error <= least
        assert sum(_amount(cost) for _, cost in _costs(ledger)) <= total
        assert session.left().paid_answers == 0
        with pytest.raises(BudgetExhausted):
            session.ask(OTHER)  # epochs share the same budget
        with pytest.raises(BudgetExhausted):
            session.ask(GROUPS)
        assert session.ask(COUNT, error=least) == session.ask(COUNT)


def test_epochs_leave_less_to_buy(tmp_path: Path, budget: sf.Budget) -> None:
    with _opened(tmp_path / "people.ledger", budget) as session:
        before = session.estimate(COUNT, error=20).least_error
        session.ask(GROUPS)
        after = session.estimate(COUNT, error=20).least_error
        assert after > before
        session.ask(COUNT, error=50)
        parts = session._state.epochs.amount_left() / session.plan.part
        assert 2 < parts < 3
        assert session.left().paid_answers == 2


@pytest.mark.parametrize("error", [0, -1, float("nan"), inf, "5", True, None])
def test_errors_that_are_none_are_refused(error: object) -> None:
    with sf.open_session(None, DOMAIN, BUDGETS["gaussian"], dummy=True) as session:
        answer = session.ask(COUNT)
        with pytest.raises(PlanError, match=r"error must be a number above 0|takes an answer"):
            session.improve(answer if error is not None else error, error)  # type: ignore[arg-type]
        if error is not None:
            with pytest.raises(PlanError, match="error must be a number above 0"):
                session.estimate(COUNT, error=error)  # type: ignore[arg-type]


def test_means_and_quantiles_have_no_error_that_is_bought() -> None:
    with sf.open_session(None, DOMAIN, BUDGETS["gaussian"], dummy=True) as session:
        for text in ("SELECT AVG(age) FROM t", "SELECT sex, MEDIAN(age) FROM t GROUP BY sex"):
            with pytest.raises(PlanError, match="error= is for counts and sums"):
                session.ask(text, error=5)
            with pytest.raises(PlanError, match="error= is for counts and sums"):
                session.estimate(text, error=5)


def test_an_error_finer_than_the_grid_is_refused_and_costs_nothing(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    session = _opened(ledger, BUDGETS["gaussian"])
    with pytest.raises(PlanError, match="finer than the grid"):
        session.ask(COUNT, error=1e-9)
    session.close()
    assert _costs(ledger) == []


def test_a_frozen_ledger_sells_nothing(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(ledger, BUDGETS["gaussian"]) as session:
        answer = session.ask(COUNT, error=20)
        Ledger.open(ledger).freeze("audit")
        assert session.ask(COUNT, error=20).value == answer.value
        with pytest.raises(LedgerFrozen):
            session.ask(COUNT, error=10)


def test_a_purchase_that_could_not_be_stored_is_spent_and_told_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: sf.Budget
) -> None:
    ledger = tmp_path / "people.ledger"

    def full(*_: object, **__: object) -> None:
        raise LedgerError("the ledger could not be written (disk full)")

    with _opened(ledger, budget) as session:
        before = session._state.epochs.amount_left()
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "store", full)
            with pytest.raises(LedgerError, match="disk full"):
                session.ask(COUNT, error=20)
        assert session._state.knowledge(session.read(COUNT)) is None
        lost = session._state.epochs.amount_left()
        assert lost < before
        answer = session.ask(COUNT, error=20)
    assert [key for key, _ in _costs(ledger)] == ["group 1", "group 2"]
    with _opened(ledger, budget) as session:  # what was lost stays lost, also after a restart
        assert session._state.epochs.amount_left() == before - 2 * (before - lost)
        assert session.ask(COUNT).value == answer.value


def test_what_is_stored_is_read_again() -> None:
    with sf.open_session(None, DOMAIN, BUDGETS["pure"], dummy=True) as session:
        session.ask(GROUPS, error=1)
        numbers = [one for each in session._state._purchases.values() for one in each]
        stored = Purchase(tuple(numbers), 3, False)
        again = Purchase.from_bytes(stored.to_bytes(), DOMAIN)
    assert (again.epochs, again.is_learnt, again.learnt) == (3, False, ())
    for one, other in zip(numbers, again.numbers, strict=True):
        assert one.question.key == other.question.key
        assert (one.value, one.half) == (other.value, other.half)
        assert one.law.half_width(0.9) == pytest.approx(other.law.half_width(0.9))
    for wrong in (b"{}", b"[]", stored.to_bytes().replace(b'"halves"', b'"half"')):
        with pytest.raises(LedgerError, match="cannot be read"):
            Purchase.from_bytes(wrong, DOMAIN)


# The arithmetic


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.01, 1e6)), min_size=1, max_size=8),
    st.randoms(),
)
@settings(deadline=None)
def test_combinations_are_those_of_least_squares(
    draws: list[tuple[float, float]], random: object
) -> None:
    numbers = [single_draw(value, variance, "gaussian", 0.95) for value, variance in draws]
    both = combined(numbers)
    weights = np.array([1 / variance for _, variance in draws])
    assert both.standard_error == pytest.approx(weights.sum() ** -0.5)
    value = float(weights @ [v for v, _ in draws] / weights.sum())
    assert both.value == pytest.approx(value, rel=1e-9, abs=1e-6)
    assert both.law.shape == inf
    random.shuffle(numbers)  # type: ignore[attr-defined]
    again = combined(numbers)
    assert (again.value, again.standard_error) == (both.value, both.standard_error)


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=6))
def test_kurtosis_of_combined_laplace_draws(variances: list[float]) -> None:
    """Excess kurtosis of a Laplace draw is 3; that of a weighted sum is 3 sum share^2."""
    numbers = [single_draw(0.0, variance, "laplace", 0.95) for variance in variances]
    shares = np.array([1 / v for v in variances])
    shares /= shares.sum()
    assert combined(numbers).law.shape == pytest.approx(1 / (shares**2).sum())
    for at in range(1, len(numbers)):  # combining in turn is combining at once
        parts = [combined(numbers[:at]), combined(numbers[at:])]
        assert combined(parts).law.shape == pytest.approx(combined(numbers).law.shape)


@given(st.floats(0.05, 1e5), st.floats(1.0000001, 50))
def test_missing_precision_reaches_the_error(error: float, times: float) -> None:
    number = single_draw(0.0, (error * times) ** 2, "gaussian", 0.95)
    variance = missing_variance(number, error)
    assert variance is not None
    both = combined([number, single_draw(1.0, variance, "gaussian", 0.95)])
    assert both.standard_error == pytest.approx(error)
    assert missing_variance(number, error * times) is None


@given(
    st.floats(0.05, 1e4),
    st.sampled_from([1, 2, 7, 100, 3000, 10**6]),
    st.integers(0, 6),
    st.sampled_from(["gaussian", "laplace"]),
)
@settings(deadline=None)
def test_noise_is_the_most_that_reaches_a_variance(
    error: float, moved: int, bits: int, kind: str
) -> None:
    """On the grid of answers, exactly; and hardly less than what was allowed."""
    error = error * moved * 2.0**-bits
    law = least_noise(error**2, moved, bits, kind)  # type: ignore[arg-type]
    shift = answer_shift(moved)
    scale = law.scale * moved * Fraction(2**shift, UNIT)
    variance = gaussian_variance(scale) if kind == "gaussian" else laplace_variance(scale)
    had = sqrt(variance) * 2.0 ** -(bits + shift)
    assert had <= error * (1 + 1e-9)
    assert had >= error * 0.999 or error / (moved * 2.0**-bits) < 4


@given(st.floats(1e-6, 100), st.sampled_from(["gaussian", "laplace"]), st.booleans())
def test_the_least_error_can_be_paid_for(amount: float, kind: str, is_known: bool) -> None:
    number = single_draw(0.0, 50.0, kind, 0.95) if is_known else None  # type: ignore[arg-type]
    left = Fraction(amount)
    least = least_error([number], left, [1.0 if kind == "gaussian" else 2.0], kind)  # type: ignore[arg-type]
    assert least is not None
    variance = missing_variance(number, least)
    if variance is not None and variance > 1e-3:
        law = least_noise(variance, 1, 0, kind)  # type: ignore[arg-type]
        cost = noise_cost(law, UNIT)
        assert (cost.mu_squared if kind == "gaussian" else cost.pure_epsilon) <= left
    assert least_error([number], Fraction(0), [1.0], "gaussian") == (
        pytest.approx(number.standard_error) if number else None
    )


# Neighbours


def _loss(law: NoiseLaw, exact: list[int], moved: int) -> float:
    """The exact loss of a noisy answer between two tables: mu^2, or epsilon."""
    shift = answer_shift(moved)
    steps = Fraction(abs(exact[0] - exact[1]) * 2**shift)
    ratio = steps / (law.scale * moved * Fraction(2**shift, UNIT))
    return float(ratio**2 if law.kind == "gaussian" else ratio)


def _exact(table: pd.DataFrame, text: str) -> int:
    (question,) = questions_of(sf.sql(DOMAIN, text, in_bins=True))
    exact = ExactQuestions(open_table(table), DOMAIN, "add-remove", None)
    exact.prepare(question.attributes)
    return exact._exact(question)


@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from("FM"), st.sampled_from("abc")),
        min_size=1,
        max_size=9,
    ),
    st.integers(0, 8),
    st.sampled_from([COUNT, PAIR, "SELECT SUM(age) FROM t WHERE sex = 'F'"]),
    st.floats(0.5, 100),
)
@settings(max_examples=25, deadline=None)
def test_one_record_moves_a_purchase_by_no_more_than_is_debited(
    records: list[tuple[int, str, str]], gone: int, text: str, error: float
) -> None:
    rest = [r for i, r in enumerate(records) if i != gone % len(records)]
    exact = [_exact(pd.DataFrame(r, columns=["age", "sex", "kind"]), text) for r in (records, rest)]
    for budget in BUDGETS.values():
        with sf.open_session(None, DOMAIN, budget, dummy=True) as session:
            question = session.read(text)
            offer = session._state.offer(question, error)
            moved = session._state.moved(question)
            assert _loss(offer.law, exact, moved) <= float(_amount(offer.cost)) * (1 + 1e-9)


def test_the_comparison_sees_two_records_for_the_debit_of_one() -> None:
    """The twin: two records more are told apart by more than was paid."""
    women = pd.DataFrame({"age": [1, 1], "sex": ["F", "F"], "kind": ["a", "a"]})
    exact = [_exact(women, COUNT), _exact(women.iloc[:0], COUNT)]
    for budget in BUDGETS.values():
        with sf.open_session(None, DOMAIN, budget, dummy=True) as session:
            offer = session._state.offer(session.read(COUNT), 20.0)
            assert _loss(offer.law, exact, 1) > 1.5 * float(_amount(offer.cost))


def test_which_measurements_are_combined_depends_on_variances_alone(tmp_path: Path) -> None:
    """Twice the same questions with other noise: the same offers, weights and errors."""
    runs, values = [], []
    for run in range(2):
        with _opened(
            tmp_path / f"{run}.ledger", BUDGETS["gaussian"], scope=2, scope_share=0.5
        ) as session:
            known = session.ask(PAIR).standard_error
            steps = [session.ask(PAIR, error=known / times) for times in (0.5, 1.1, 1.2)]
            numbers = session._state._purchases[steps[-1].key]
            errors = [a.standard_error for a in steps]
            runs.append((errors, [n.law.standard_error for n in numbers]))
            values.append([n.value for n in numbers])
    assert runs[0] == runs[1]
    assert values[0] != values[1]


def test_a_number_without_noise_is_taken_as_it_is() -> None:
    sure = KnownNumber(7.0, single_draw(0.0, 0.0, "gaussian", 0.95).law, 0.95)
    assert combined([single_draw(3.0, 1.0, "gaussian", 0.95), sure]).value == 7.0
