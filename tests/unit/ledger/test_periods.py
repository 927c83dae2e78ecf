# SPDX-License-Identifier: Apache-2.0
"""Periods: each begun once, by a record; what their totals promise together."""

from __future__ import annotations

import itertools
import json
import math
import os
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import BudgetExhausted, LedgerError
from sfumato.ledger import periods
from sfumato.ledger.account import Account
from sfumato.ledger.entries import Record
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.periods import begin_period, check_series, period_total, promise_over_periods
from sfumato.ledger.reader import verify_export
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from tests.faults.ledger_children import fork
from tests.faults.test_ledger_race import race

TENTH = Cost.pure(Fraction(1, 10))


@pytest.fixture
def first(home):
    return home.create(Budget(epsilon=1, delta=1e-9))


def test_a_period_has_a_budget_of_its_own_and_the_one_before_keeps_its_account(first, tmp_path):
    first.debit(TENTH, {}, "a")
    before = first.remaining()
    with begin(first, tmp_path / "feb") as new:
        assert (new.budget, new.neighbours, new.unit) == (
            first.budget,
            first.neighbours,
            first.unit,
        )
        assert new.remaining().share == 1
        assert first.remaining() == before
        new.debit(TENTH, {}, "a")
        assert first.remaining() == before
        assert first.verify().problems == new.verify().problems == ()
        assert new.opened.period.tables == (first.table_id,)
        check_series([first, new])
    [change] = first.changes()
    assert change.describe() == (
        "period feb begun, with the table people of feb and epsilon = 1, delta = 1e-9, by cora: "
        "the survey of February"
    )


class begin:
    """The period after a ledger."""

    def __init__(self, ledger, place, table="people of feb", period="feb", **more):
        self.ledger = begin_period(
            ledger, place, table, period, "the survey of February", by="cora", **more
        )

    def __enter__(self):
        return self.ledger

    def __exit__(self, *_):
        self.ledger.close()


def test_allowances_go_on_in_the_new_period_and_nobody_is_without_a_limit(first, tmp_path):
    first.allow("ann", Budget(epsilon=Fraction(1, 10)))
    first.allow("bob", Budget(epsilon=Fraction(1, 5)))
    first.allow("eve", Budget(epsilon=Fraction(1, 5)))
    first.withdraw("eve")
    first.debit(TENTH, {}, "a", analyst="ann")
    with begin(first, tmp_path / "feb") as new:
        assert {a.analyst: a.budget for a in new.allowances()} == {
            "ann": Budget(epsilon=Fraction(1, 10)),
            "bob": Budget(epsilon=Fraction(1, 5)),
        }
        new.debit(TENTH, {}, "a", analyst="ann")
        with pytest.raises(BudgetExhausted):
            new.debit(TENTH, {}, "b", analyst="ann")


def test_the_same_period_again_is_the_same_ledger_and_another_is_refused(first, tmp_path):
    begin(first, tmp_path / "feb").ledger.debit(TENTH, {}, "a")
    again = begin(first, tmp_path / "feb").ledger
    assert again.entry("a") is not None
    assert again.opened.period.name == "feb"
    with pytest.raises(LedgerError, match="'feb' was begun already"):
        begin(first, tmp_path / "march", "people of march", "march")
    with pytest.raises(LedgerError, match="'feb' was begun already"):
        begin(first, tmp_path / "feb", budget=Budget(epsilon=2, delta=1e-9))
    assert not (tmp_path / "march").exists()
    assert len(first.changes()) == 1


def test_a_withdrawn_allowance_stays_withdrawn_when_the_call_is_made_again(first, tmp_path):
    first.allow("ann", Budget(epsilon=Fraction(1, 10)))
    begin(first, tmp_path / "feb").ledger.withdraw("ann")
    first.allow("bob", Budget(epsilon=Fraction(1, 10)))
    assert begin(first, tmp_path / "feb").ledger.allowances() == ()


def test_no_table_gets_a_second_budget_and_no_place_a_second_ledger(first, tmp_path):
    new = begin(first, tmp_path / "feb").ledger
    for table in (first.table_id, "people of feb"):
        with pytest.raises(LedgerError, match="a second budget for the same people"):
            begin(new, tmp_path / "march", table, "march")
    other = Ledger.create(tmp_path / "other", Budget(epsilon=1), "others")
    for place in (tmp_path / "other", tmp_path / "feb"):
        with pytest.raises(LedgerError, match="not that of the next period"):
            begin(new, place, "people of march", "march")
    with pytest.raises(LedgerError, match="total of the same kind"):
        begin(new, tmp_path / "march", "people of march", "march", budget=Budget(rho=1))
    assert new.renewal() is None
    assert other.renewal() is None


def test_a_series_is_told_from_ledgers_that_are_none(first, tmp_path):
    new = begin(first, tmp_path / "feb").ledger
    other = Ledger.create(tmp_path / "other", Budget(epsilon=1), "others")
    check_series([first, new])
    for wrong in ([new, first], [first, other], [other, new]):
        with pytest.raises(LedgerError, match="was not begun by"):
            check_series(wrong)


def test_a_frozen_period_can_be_followed_by_another(first, tmp_path):
    first.freeze("closed")
    with begin(first, tmp_path / "feb") as new:
        assert not new.is_frozen()
        new.debit(TENTH, {}, "a")


@pytest.mark.parametrize("name", ["", "a\nb", 3, "x" * 201])
def test_names_that_cannot_be_recorded_are_refused_before_anything_is_written(
    first, tmp_path, name
):
    with pytest.raises(LedgerError, match="printable"):
        begin(first, tmp_path / "feb", period=name)
    assert first.renewal() is None
    assert not (tmp_path / "feb").exists()


def test_forged_renewals_are_found(first, tmp_path):
    first.allow("ann", Budget(epsilon=Fraction(1, 10)))
    begin(first, tmp_path / "feb")
    rows = first.records()
    right = json.loads(rows[-1][2])

    def problems(*texts):
        lines, previous = [r[1:] for r in rows[:-1]], rows[-2][1]
        for text in texts:
            text = {**text, "previous": previous, "sequence": len(lines)}
            text = json.dumps(text, sort_keys=True, separators=(",", ":"))
            previous = Record.hash_of(text)
            lines.append((previous, text))
        return verify_export(f'{{"hash":"{h}","record":{t}}}\n' for h, t in lines).problems

    assert problems(right) == []
    assert any("second time" in p for p in problems(right, right))
    assert any("other allowances" in p for p in problems({**right, "allowances": {}}))


def test_many_curators_at_once_begin_one_period(home, tmp_path):
    ledger = home.create(Budget(epsilon=1))
    ledger.allow("ann", Budget(epsilon=Fraction(1, 10)))

    def work(number):
        period = f"period {number % 2}"
        try:
            new = begin_period(ledger, tmp_path / period, f"table {number % 2}", period, "race")
        except LedgerError:
            return None
        new.debit(Cost.pure(Fraction(1, 1000)), {}, f"{number}", analyst="ann")
        return period

    begun = set(race(work, 8)) - {None}
    assert len(begun) == 1
    [period] = begun
    new = Ledger.open(tmp_path / period)
    assert [a.analyst for a in new.allowances()] == ["ann"]
    assert len(new.entries()) == 4
    assert home.open().verify().problems == new.verify().problems == ()
    assert len([r for r in ledger.records() if '"kind":"renewed"' in r[2]]) == 1
    assert not (tmp_path / f"period {1 - int(period[-1])}").exists()


@pytest.mark.parametrize("step", ["before the record", "before the ledger", "among allowances"])
def test_a_kill_leaves_a_period_that_the_same_call_completes(home, tmp_path, monkeypatch, step):
    ledger = home.create(Budget(epsilon=1))
    for name in ("ann", "bob"):
        ledger.allow(name, Budget(epsilon=Fraction(1, 10)))
    place = tmp_path / "feb"

    def killed():
        die = lambda *_, **__: os.kill(os.getpid(), 9)  # noqa: E731
        if step == "before the record":
            monkeypatch.setattr(periods.transaction_module, "renew", die)
        elif step == "before the ledger":
            monkeypatch.setattr(periods, "_successor", die)
        else:
            monkeypatch.setattr(periods.transaction_module, "allow_first", die)
        begin(ledger, place)

    _, status = os.waitpid(fork(killed), 0)
    assert os.WIFSIGNALED(status)
    home.wait_until_alone()
    again = home.open()
    assert again.verify().problems == ()
    assert (again.renewal() is not None) == (step != "before the record")
    assert place.exists() == (step == "among allowances")
    with begin(again, place) as new:
        assert [a.analyst for a in new.allowances()] == ["ann", "bob"]
        assert new.verify().problems == ()
    assert len([r for r in again.records() if '"kind":"renewed"' in r[2]]) == 1


def test_what_is_promised_is_the_sum_of_the_largest_totals_that_there_were(first, tmp_path):
    first.set_total(Budget(epsilon=3, delta=1e-9), "raised")
    first.set_total(Budget(epsilon=2, delta=1e-9), "lowered")
    new = begin(first, tmp_path / "feb").ledger
    totals = [period_total(each) for each in (first, new)]
    assert [(t.period, t.total.describe()) for t in totals] == [
        (None, "epsilon = 3, delta = 1e-9"),
        ("feb", "epsilon = 2, delta = 1e-9"),
    ]
    both = [t.total for t in totals]
    assert promise_over_periods(both).describe() == "epsilon = 5, delta = 2e-9"
    assert promise_over_periods(both, 1).describe() == "epsilon = 3, delta = 1e-9"


def test_promises_are_rounded_up_and_of_one_kind():
    assert promise_over_periods([Budget(rho=Fraction(1, 3))] * 3) == Budget(rho=1)
    assert promise_over_periods([Budget(mu=1)] * 2).mu ** 2 >= 2
    assert float(promise_over_periods([Budget(mu=1)] * 2).mu) == pytest.approx(
        math.sqrt(2), rel=1e-15
    )
    lanes = Budget(epsilon=4, delta=1e-9, pure=3)
    assert promise_over_periods([lanes] * 2) == Budget(epsilon=8, delta=2e-9)
    with pytest.raises(LedgerError, match="totals of one kind"):
        promise_over_periods([Budget(rho=1), Budget(mu=1)])
    with pytest.raises(LedgerError, match="promises nothing"):
        promise_over_periods([Budget(epsilon=1, delta=0.5)] * 2)
    for wrong in (0, 3):
        with pytest.raises(LedgerError, match="from 1 to 2"):
            promise_over_periods([Budget(rho=1)] * 2, wrong)


# Theorem 10, by listing every answer: periods are asked in turn, each question and its cost chosen
# after the answers before, with randomized response on the bit of each period's table.


def transcript(tables, strategy, rounds):
    """The law of all answers of an interaction: a probability for each."""
    law = {}

    def follow(history, accounts, mass):
        if len(history) == rounds:
            law[history] = law.get(history, Fraction(0)) + mass
            return
        period, epsilon = strategy(history)
        after = accounts[period].plus(Cost.pure(epsilon))
        if after.is_overdrawn:
            follow((*history, "refused"), accounts, mass)
            return
        moved = {**accounts, period: after}
        right = 1 / (1 + Fraction(math.exp(-float(epsilon))))
        for answer in (0, 1):
            share = right if answer == tables[period] else 1 - right
            follow((*history, answer), moved, mass * share)

    follow((), {p: Account(Budget(epsilon=1)) for p in range(len(tables))}, Fraction(1))
    return law


def most_loss(one, other):
    return max(abs(math.log(one[h] / other[h])) for h in one)


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 3), st.integers(2, 6))
def test_no_order_of_questions_spends_more_than_the_sum_of_the_periods_of_a_person(
    random, changed, rounds
):
    choices = {}

    def strategy(history):
        return choices.setdefault(
            history, (random.randrange(3), Fraction(random.choice([1, 2, 3, 4]), 4))
        )

    one, other = (0, 0, 0), tuple(int(p < changed) for p in range(3))
    loss = most_loss(transcript(one, strategy, rounds), transcript(other, strategy, rounds))
    assert loss <= float(promise_over_periods([Budget(epsilon=1)] * 3, changed).epsilon) + 1e-9


def test_the_sum_is_reached_so_less_must_not_be_promised():
    questions = [(0, Fraction(1)), (1, Fraction(1)), (2, Fraction(1))]
    laws = [transcript(t, lambda h: questions[len(h)], 3) for t in ((0, 0, 0), (1, 1, 0))]
    assert most_loss(*laws) == pytest.approx(2)
    same = [transcript((t,) * 3, lambda h: questions[len(h)], 3) for t in (0, 1)]
    assert most_loss(*same) > float(promise_over_periods([Budget(epsilon=1)] * 3, 1).epsilon) + 1


def test_deltas_of_periods_add_up_without_a_factor():
    """Every pair of mechanisms that fail with delta: (1 - xy)+ <= (1 - x)+ + (1 - y)+."""
    grid = [0, 0.1, 0.5, 0.99, 1, 1.5, 10, 1e6]
    for x, y in itertools.product(grid, repeat=2):
        assert max(0, 1 - x * y) <= max(0, 1 - x) + max(0, 1 - y) + 1e-15
