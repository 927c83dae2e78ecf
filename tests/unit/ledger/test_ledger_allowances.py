# SPDX-License-Identifier: Apache-2.0
"""Allowances of analysts and freezing, on both databases."""

from __future__ import annotations

from fractions import Fraction

import pytest

from sfumato.errors import BudgetError, BudgetExhausted, LedgerError, LedgerFrozen
from sfumato.ledger import ledger_tables as tables
from sfumato.ledger.account import UNITS, Account
from sfumato.ledger.ledger_tables import AllowanceRow
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost

TENTH = Cost.pure(Fraction(1, 10))


@pytest.fixture
def ledger(home):
    return home.create()


def granted(ledger, cost, analyst, tries=20):
    count = 0
    for number in range(tries):
        try:
            ledger.debit(cost, {}, f"{analyst}-{ledger.spent().debits}-{number}", analyst=analyst)
            count += 1
        except BudgetExhausted:
            continue
    return count


@pytest.mark.parametrize(
    ("allowance", "fit"),
    [(Budget(epsilon="0.35"), 3), (Budget(epsilon="0.3"), 3), (Budget(epsilon="0.05"), 0)],
)
def test_exactly_as_many_debits_as_fit_the_allowance_are_granted(ledger, home, allowance, fit):
    ledger.allow("ann", allowance)
    assert ledger.how_many_more(TENTH, "ann") == fit
    assert granted(ledger, TENTH, "ann", 6) == fit
    assert ledger.how_many_more(TENTH, "ann") == 0
    assert ledger.how_many_more(TENTH) == ledger.how_many_more(TENTH, "bob") == 10 - fit
    ledger.debit(TENTH, {}, "of another", analyst="bob")
    assert [entry.analyst for entry in ledger.entries()] == ["ann"] * fit + ["bob"]
    assert home.open().verify().problems == ()


def test_the_table_refuses_although_the_allowance_would_do(ledger):
    ledger.allow("ann", Budget(epsilon=5))
    assert granted(ledger, TENTH, "ann", 12) == 10
    with pytest.raises(BudgetExhausted, match=r"^budget refused"):
        ledger.debit(TENTH, {}, "k", analyst="ann")
    assert ledger.allowances()[0].share == Fraction(1, 5)
    assert ledger.remaining("ann").pure_epsilon == 0


def test_a_refusal_by_the_allowance_says_so_and_writes_nothing(ledger):
    ledger.allow("ann", Budget(epsilon="0.15"))
    ledger.debit(TENTH, {}, "k", analyst="ann")
    before = ledger.verify()
    words = r"allowance of analyst 'ann'.*costs 0\.1 epsilon, 0\.05 of 0\.15 remains"
    with pytest.raises(BudgetExhausted, match=words):
        ledger.debit(TENTH, {}, "k2", analyst="ann")
    assert ledger.verify() == before


def test_what_remains_for_an_analyst_is_the_tighter_of_both(ledger):
    ledger.allow("ann", Budget(epsilon="1/4"))
    assert ledger.remaining("ann").pure_epsilon == Fraction(1, 4)
    assert ledger.remaining("ann").gaussian_mu is None
    ledger.debit(Cost.pure(Fraction(9, 10)), {}, "k")
    assert ledger.remaining("ann").pure_epsilon == Fraction(1, 10)
    assert ledger.remaining().pure_epsilon == ledger.remaining("bob").pure_epsilon


def test_a_changed_allowance_counts_every_debit_that_named_the_analyst(ledger, home):
    ledger.debit(TENTH, {}, "before", analyst="ann")
    ledger.allow("ann", Budget(epsilon="0.4"))
    assert ledger.allowances()[0].share == Fraction(1, 4)
    assert granted(ledger, TENTH, "ann", 5) == 3
    ledger.allow("ann", Budget(epsilon="0.5"))
    assert granted(ledger, TENTH, "ann", 3) == 1
    ledger.allow("ann", Budget(epsilon="0.2"))  # lowered below what was spent
    assert ledger.allowances()[0].share == Fraction(2)
    assert ledger.remaining("ann").share == 0
    assert granted(ledger, TENTH, "ann", 2) == 0
    opened = home.open()
    assert opened.verify().problems == ()
    assert opened.allowances() == ledger.allowances()


@pytest.mark.parametrize("name", ["100%", "a_b", 'quote"d', "back\\slash", "Ann", "é", "!"])
def test_names_of_analysts_are_not_mixed_up(ledger, name):
    for number, each in enumerate((name, "ann", "a-b", "100x")):
        ledger.debit(Cost.pure(Fraction(1, 100)), {}, str(number), analyst=each)
    ledger.allow(name, Budget(epsilon="0.02"))
    assert ledger.allowances()[0].share == Fraction(1, 2)
    assert ledger.verify().problems == ()


def test_an_allowance_in_another_currency_is_checked_in_that_currency(home):
    ledger = home.create(Budget(rho=1))
    cost = Cost.gaussian(Fraction(1, 50))  # rho = 1/100
    ledger.allow("ann", Budget(mu="0.2"))
    assert granted(ledger, cost, "ann", 4) == 2
    ledger.allow("bob", Budget(epsilon=1))
    with pytest.raises(BudgetError, match="pure"):
        ledger.debit(cost, {}, "k", analyst="bob")
    with pytest.raises(BudgetError, match="pure"):
        ledger.allow("ann", Budget(epsilon=1))  # Gaussian debits cannot count against it
    assert ledger.allowances()[0].budget == Budget(mu="0.2")
    assert ledger.verify().problems == ()


def test_names_are_checked(ledger):
    with pytest.raises(LedgerError, match="analyst"):
        ledger.allow("", Budget(epsilon=1))
    with pytest.raises(LedgerError, match="analyst"):
        ledger.debit(TENTH, {}, "k", analyst="two\nlines")
    with pytest.raises(LedgerError, match="reason"):
        ledger.freeze("")


def test_a_frozen_ledger_serves_what_is_stored_and_refuses_the_rest(ledger, home):
    paid = ledger.store(ledger.debit(TENTH, {}, "paid"), b"paid")
    ledger.keep("free", {}, b"free", paid)
    under_way = ledger.debit(TENTH, {}, "under way")
    lost = ledger.debit(TENTH, {}, "lost")
    ledger.freeze("an audit")
    opened = home.open()
    assert opened.is_frozen()
    for attempt in (
        lambda: opened.debit(TENTH, {}, "k"),
        lambda: opened.keep("k", {}, b"k", paid),
        lambda: opened.answer_once(TENTH, {}, "k", lambda: b"k"),
    ):
        with pytest.raises(LedgerFrozen, match="curator"):
            attempt()
    assert opened.answer("paid") == b"paid"
    assert opened.keep("free", {}, b"other", paid).answer == b"free"
    opened.store(under_way, b"was paid before")
    opened.burn(lost)
    opened.allow("ann", Budget(epsilon=1))
    assert opened.is_frozen()
    assert opened.verify().is_frozen
    ledger.unfreeze("the audit is over")
    assert not opened.is_frozen()
    ledger.debit(TENTH, {}, "k")
    report = ledger.verify()
    assert (report.problems, report.is_frozen) == ((), False)
    assert report.spent_units == UNITS * 4 // 10


def test_freezing_twice_or_thawing_a_ledger_that_is_not_frozen_is_said(ledger):
    with pytest.raises(LedgerError, match="not frozen"):
        ledger.unfreeze("why")
    ledger.freeze("once")
    with pytest.raises(LedgerError, match="frozen already"):
        ledger.freeze("twice")
    assert ledger.verify().problems == ()


@pytest.mark.parametrize("kind", ["debited", "kept"])
def test_a_debit_or_free_answer_of_a_frozen_ledger_is_found_by_verify(home, kind, monkeypatch):
    """Whoever writes while the ledger is frozen leaves a trace."""
    ledger = home.create()
    paid = ledger.store(ledger.debit(TENTH, {}, "paid"), b"paid")
    ledger.freeze("now")
    monkeypatch.setattr("sfumato.ledger.transaction._check_not_frozen", lambda _page: None)
    if kind == "debited":
        ledger.debit(TENTH, {}, "k")
    else:
        ledger.keep("k", {}, b"k", paid)
    assert ledger.verify().problems == ("record 4: it came while the ledger was frozen",)


def test_the_share_after_a_debit_is_that_of_the_tighter_account_or_none(ledger):
    ledger.allow("ann", Budget(epsilon="0.3"))
    assert ledger.share_after(TENTH) == Fraction(9, 10)
    assert ledger.share_after(TENTH, "ann") == Fraction(2, 3)
    assert ledger.share_after(TENTH, "bob") == Fraction(9, 10)
    assert ledger.share_after(Cost.pure(Fraction(3, 10)), "ann") == 0
    assert ledger.share_after(Cost.pure(Fraction(4, 10)), "ann") is None
    assert ledger.share_after(Cost.pure(Fraction(11, 10))) is None
    ledger.debit(Cost.pure(Fraction(19, 20)), {}, "k")
    assert ledger.share_after(TENTH, "ann") is None  # her allowance would do, the table refuses
    (allowance,) = ledger.allowances()
    assert allowance.remaining().pure_epsilon == Fraction(3, 10)
    assert allowance.budget == Budget(epsilon="0.3")


@pytest.mark.parametrize("damage", ["{}", "[1", '{"epsilon":"-1"}', "null"])
def test_a_damaged_allowance_is_one_clear_message(ledger, home, damage):
    ledger.allow("ann", Budget(epsilon="0.3"))
    home.change("UPDATE sfumato_allowance SET budget = ?", (damage,))
    with pytest.raises(LedgerError, match="allowance of the ledger is damaged"):
        ledger.allowances()


def test_allowances_are_told_by_name(ledger):
    for name in ("zoe", "bob", "ann", "eve"):
        ledger.allow(name, Budget(epsilon="0.3"))
    ledger.allow("bob", Budget(epsilon="0.2"))
    assert [each.analyst for each in ledger.allowances()] == ["ann", "bob", "eve", "zoe"]


def test_an_allowance_that_somebody_else_moved_is_not_written_over(ledger):
    ledger.allow("ann", Budget(epsilon="0.3"))
    ledger.debit(TENTH, {}, "k", analyst="ann")
    now = AllowanceRow("ann", Account(Budget(epsilon="0.3")).plus(TENTH))
    before = AllowanceRow("ann", Account(Budget(epsilon="0.3")))
    with (
        pytest.raises(LedgerError, match="allowances changed while they were locked"),
        ledger._chain.store.writing() as transaction,
    ):
        tables.move_allowances(transaction, [(before, now)])
    (allowance,) = ledger.allowances()
    assert allowance.share == Fraction(1, 3)


def test_the_delta_of_events_counts_against_table_and_allowance_and_is_kept(tmp_path):
    from sfumato.ledger.ledger import Ledger

    event = Cost.pure(Fraction(1, 10)) + Cost.approximate(Fraction(2, 10**7))
    made = Ledger.create(tmp_path / "l.ledger", Budget(epsilon=1, delta="1e-6"), "t")
    made.allow("ann", Budget(epsilon=1, delta="5e-7"))
    made.debit(event, {}, "a", analyst="ann")
    made.debit(event, {}, "b", analyst="ann")
    again = Ledger.open(tmp_path / "l.ledger")
    with pytest.raises(BudgetExhausted, match="analyst 'ann'"):
        again.debit(event, {}, "c", analyst="ann")
    assert again.remaining("ann").event_delta == Fraction(1, 10**7)
    assert again.remaining().event_delta == Fraction(6, 10**7)
    assert again.spent().event_delta == Fraction(4, 10**7)
    again.debit(event, {}, "d")
    assert again.verify().is_whole
    again.debit(event, {}, "e")
    again.debit(event, {}, "f")
    with pytest.raises(BudgetExhausted, match="delta"):
        again.debit(event, {}, "g")
    assert again.remaining().event_delta == 0
    assert again.remaining().gaussian_mu == 0  # all of delta is taken
