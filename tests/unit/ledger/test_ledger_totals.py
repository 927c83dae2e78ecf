# SPDX-License-Identifier: Apache-2.0
"""The curator changes the total or takes an allowance away: recorded, and obeyed at once."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sfumato.errors import BudgetExhausted, LedgerError
from sfumato.ledger.account import Account
from sfumato.ledger.entries import Record
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.transaction import chooses_between_filters
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost

HALF = Cost.pure(Fraction(1, 2))


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "l", Budget(epsilon=2), "t", unit="row")


def test_a_lowered_total_is_obeyed_by_every_handle(home):
    ledger, other = home.create(Budget(epsilon=2)), home.open(keep_open=True)
    ledger.debit(HALF, {}, "a")
    ledger.set_total(Budget(epsilon=1), "less was promised", by="ada")
    assert other.budget == ledger.budget == Budget(epsilon=1)
    assert other.remaining().pure_epsilon == Fraction(1, 2)
    other.debit(HALF, {}, "b")
    with pytest.raises(BudgetExhausted):
        other.debit(Cost.pure(Fraction(1, 1000)), {}, "c")
    assert home.open().verify().problems == ()
    [change] = other.changes()
    other.close()
    assert change.describe() == "total set to epsilon = 1 by ada: less was promised"


def test_a_total_below_what_was_spent_leaves_nothing_until_it_is_raised(ledger):
    ledger.debit(HALF, {}, "a")
    ledger.debit(HALF, {}, "b")
    ledger.set_total(Budget(epsilon=Fraction(1, 10)), "stop")
    assert ledger.remaining().share == 0
    with pytest.raises(BudgetExhausted):
        ledger.debit(Cost.pure(Fraction(1, 10**6)), {}, "c")
    ledger.set_total(Budget(epsilon=4), "go on")
    assert ledger.spent().share == Fraction(1, 4)
    ledger.debit(HALF, {}, "d")
    assert ledger.verify().problems == ()


def test_a_total_that_is_not_lower_must_hold_what_was_spent(tmp_path):
    ledger = Ledger.create(tmp_path / "l", Budget(epsilon=4, delta=1e-6), "t")
    ledger.debit(Cost.gaussian(Fraction(1, 4)), {}, "a")
    for other in (Budget(rho=Fraction(1, 100)), Budget(epsilon=8)):
        with pytest.raises(LedgerError, match="does not fit into a total"):
            ledger.set_total(other, "another kind")
    with pytest.raises(LedgerError, match="counted otherwise"):
        ledger.set_total(Budget(rho=1), "another kind, after an answer")
    ledger.set_total(Budget(epsilon=8, delta=1e-6), "more")
    assert 0 < ledger.spent().share < 1


def test_a_total_may_be_counted_otherwise_while_nothing_is_spent(tmp_path):
    ledger = Ledger.create(tmp_path / "l", Budget(epsilon=4, delta=1e-6), "t")
    ledger.set_total(Budget(rho=1), "another kind")
    assert ledger.budget == Budget(rho=1)
    assert ledger.verify().problems == ()
    assert ledger.verify().problems == ()


def test_a_pure_total_after_gaussian_noise_leaves_nothing(tmp_path):
    ledger = Ledger.create(tmp_path / "l", Budget(epsilon=4, delta=1e-6), "t")
    ledger.debit(Cost.gaussian(Fraction(1, 4)), {}, "a")
    ledger.set_total(Budget(epsilon=4), "pure from here on")
    assert ledger.remaining().share == 0
    assert ledger.verify().problems == ()


def test_a_withdrawn_allowance_binds_no_more_and_is_recorded(home):
    ledger = home.create(Budget(epsilon=2))
    ledger.allow("ann", Budget(epsilon=Fraction(1, 2)))
    ledger.debit(HALF, {}, "a", analyst="ann")
    with pytest.raises(BudgetExhausted, match="allowance"):
        ledger.debit(HALF, {}, "b", analyst="ann")
    ledger.withdraw("ann")
    ledger.debit(HALF, {}, "b", analyst="ann")
    assert ledger.allowances() == ()
    with pytest.raises(LedgerError, match="no allowance"):
        ledger.withdraw("ann")
    ledger.allow("ann", Budget(epsilon=1))
    with pytest.raises(BudgetExhausted, match="allowance"):
        ledger.debit(HALF, {}, "c", analyst="ann")
    assert ledger.verify().problems == ()
    assert [c.describe() for c in ledger.changes()] == [
        "allowance of ann set to epsilon = 0.5",
        "allowance of ann withdrawn",
        "allowance of ann set to epsilon = 1",
    ]


def test_a_total_that_was_written_without_its_record_is_found(ledger, monkeypatch):
    ledger.debit(HALF, {}, "a")
    real = Record.text
    monkeypatch.setattr(
        Record,
        "text",
        lambda self: real(self).replace('"spent"', '"total":{"epsilon":"9"},"spent"', 1),
    )
    ledger.debit(HALF, {}, "b")
    monkeypatch.undo()
    assert "record 2: its total is wrong" in ledger.verify().problems


COSTS = st.one_of(
    st.fractions(Fraction(1, 50), Fraction(1, 2), max_denominator=50).map(Cost.pure),
    st.fractions(Fraction(1, 50), Fraction(1, 4), max_denominator=50).map(Cost.gaussian),
)
TOTALS = st.one_of(
    st.fractions(Fraction(1, 2), 4, max_denominator=8).map(lambda e: Budget(e, 1e-6)),
    st.fractions(Fraction(1, 2), 4, max_denominator=8).map(lambda r: Budget(rho=r)),
    st.fractions(Fraction(3, 2), 4, max_denominator=8).map(lambda e: Budget(e, 1e-6, pure=1)),
)


@example(  # the last total is lower than what was spent: it leaves nothing, however it is counted
    Budget(rho=1),
    [Budget(2, 1e-6, pure=1), Cost.gaussian(Fraction(1, 50)), Budget("3/2", 1e-6, pure=1)],
)
@settings(deadline=None, max_examples=60)
@given(TOTALS, st.lists(st.one_of(COSTS, TOTALS), max_size=12))
def test_after_any_changes_the_account_is_that_of_a_ledger_opened_with_the_last_total(
    tmp_path_factory, first, steps
):
    ledger = Ledger.create(tmp_path_factory.mktemp("l") / "l", first, "t", keep_open=True)
    granted, total, totals = [], first, [first]
    for number, step in enumerate(steps):
        fresh = Account(total).plus_all(granted)
        if isinstance(step, Budget):
            was, total = total, step
            again = Account(step).plus_all(granted)
            too_small = again.is_overdrawn and not step.is_within(was)
            if too_small or chooses_between_filters(totals, step, granted):
                with pytest.raises(LedgerError):
                    ledger.set_total(step, "changed")
                total = was
            else:
                ledger.set_total(step, "changed")
                totals.append(step)
        elif fresh.is_overdrawn or fresh.plus(step).is_overdrawn:
            with pytest.raises(BudgetExhausted):
                ledger.debit(step, {}, f"{number}")
        else:
            ledger.debit(step, {}, f"{number}")
            granted.append(step)
        after = Account(total).plus_all(granted)
        left = 0 if after.is_overdrawn else after.remaining().share
        assert (ledger.budget, ledger.remaining().share) == (total, left)
    assert ledger.verify().problems == ()
    ledger.close()


GAUSSIAN = Cost.gaussian(Fraction(Budget(epsilon=1, delta="1e-6").gaussian_mu) ** 2)


def test_lanes_are_not_changed_after_gaussian_noise_not_even_in_two_steps(tmp_path):
    """Lanes or one currency: who has seen an answer must not choose between the two filters."""
    ledger = Ledger.create(tmp_path / "l", Budget(epsilon=2, delta="1e-6"), "t")
    lanes = Budget(epsilon=2, delta="1e-6", pure=1)
    ledger.debit(GAUSSIAN, {}, "a")
    with pytest.raises(LedgerError, match="two filters"):
        ledger.set_total(lanes, "more pure noise")
    ledger.set_total(Budget(epsilon="0.5", delta="1e-6"), "stop")
    with pytest.raises(LedgerError, match="two filters"):
        ledger.set_total(lanes, "more pure noise")
    ledger.set_total(Budget(epsilon=4, delta="1e-6", pure=1), "more of both")
    assert ledger.remaining().pure_epsilon == 1
    assert ledger.verify().problems == ()


def test_lanes_may_be_declared_while_all_that_was_spent_is_pure(tmp_path):
    ledger = Ledger.create(tmp_path / "l", Budget(epsilon=2, delta="1e-6"), "t")
    ledger.debit(HALF, {}, "a")
    ledger.set_total(Budget(epsilon=2, delta="1e-6", pure=1), "a session will come")
    ledger.debit(GAUSSIAN, {}, "b")
    ledger.debit(HALF, {}, "c")
    assert ledger.remaining().share == 0
    assert ledger.verify().problems == ()


def test_a_chain_that_chose_between_two_filters_is_found(tmp_path, monkeypatch):
    ledger = Ledger.create(tmp_path / "l", Budget(epsilon=2, delta="1e-6"), "t")
    ledger.debit(GAUSSIAN, {}, "a")
    monkeypatch.setattr("sfumato.ledger.transaction.chooses_between_filters", lambda *_: False)
    ledger.set_total(Budget(epsilon=2, delta="1e-6", pure=1), "more pure noise")
    monkeypatch.undo()
    assert any("two filters" in words for words in ledger.verify().problems)
