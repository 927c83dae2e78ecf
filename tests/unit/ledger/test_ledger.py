# SPDX-License-Identifier: Apache-2.0
"""The ledger, one process, both databases: debit, store, burn, answer, open, refuse."""

from __future__ import annotations

import math
import os
import sqlite3
import sys
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import pytest
from dp_accounting.dp_event import ComposedDpEvent, DiscreteLaplaceDpEvent, SelfComposedDpEvent

from sfumato.errors import BudgetError, BudgetExhausted, KeyHeld, LedgerError
from sfumato.ledger import ledger_tables as tables
from sfumato.ledger.account import UNITS, Account
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.ledger_limits import LIMITS
from sfumato.ledger.ledger_tables import RequestRow
from sfumato.ledger.store import open_store
from sfumato.ledger.transaction import WriteBatch
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost, composed_epsilon
from tests.shared.ledger_home import Home

QUARTER = Cost.pure(Fraction(1, 4))


@pytest.fixture
def ledger(home):
    return home.create(Budget(epsilon=1), "people#7f3a", "add-remove")


@pytest.fixture
def place(tmp_path):
    """A file, where only a file will do."""
    return tmp_path / "people.ledger"


@pytest.fixture
def filed(place):
    return Ledger.create(place, Budget(epsilon=1), "people#7f3a", "add-remove")


def test_a_new_ledger_knows_its_table_and_has_spent_nothing(ledger):
    assert (ledger.table_id, ledger.neighbours) == ("people#7f3a", "add-remove")
    assert ledger.budget == Budget(epsilon=1)
    assert ledger.entries() == ()
    assert ledger.spent().share == 0
    assert ledger.how_many_more(QUARTER) == 4


def test_all_debits_are_one_event_of_dp_accounting(ledger):
    assert ledger.dp_event() == ComposedDpEvent([])
    for key in ("one", "two"):
        ledger.debit(QUARTER, {"ask": key}, key)
    event = SelfComposedDpEvent(DiscreteLaplaceDpEvent(0.25, 1), 2)
    assert ledger.dp_event() == event


@pytest.mark.usefixtures("filed")
def test_a_ledger_file_is_complete_in_itself_and_for_its_owner_only(place):
    names = sorted(path.name for path in place.parent.iterdir())
    assert names == ["people.ledger", "people.ledger.head"]
    assert place.stat().st_mode & 0o777 == 0o600


def test_a_debit_is_reserved_then_answered_and_returns_the_same_bytes_for_ever(ledger, home):
    entry = ledger.debit(QUARTER, {"ask": "total"}, "key-1")
    assert entry.state == "reserved"
    assert ledger.answer("key-1") is None
    assert ledger.store(entry, b"\x00noisy\xff").state == "answered"
    assert ledger.answer("key-1") == b"\x00noisy\xff"
    assert home.open().answer("key-1") == b"\x00noisy\xff"
    assert ledger.spent().share == Fraction(1, 4)


def test_debit_refuses_when_the_cost_exceeds_what_remains_and_writes_nothing(ledger):
    for number in range(3):
        ledger.debit(QUARTER, {"n": number}, f"k{number}")
    before = ledger.verify()
    with pytest.raises(BudgetExhausted, match=r"costs 0\.3 epsilon, 0\.25 of 1 remains"):
        ledger.debit(Cost.pure(Fraction(3, 10)), {}, "too much")
    assert ledger.verify() == before
    ledger.debit(QUARTER, {}, "last")
    assert ledger.how_many_more(Cost.pure(Fraction(1, 10**12))) == 0


def test_gaussian_noise_against_a_pure_budget_is_refused_and_nothing_is_debited(ledger):
    with pytest.raises(BudgetError, match="pure"):
        ledger.debit(Cost.gaussian(Fraction(1, 100)), {}, "k")
    assert ledger.entries() == ()


def test_an_answered_key_cannot_be_debited_again(ledger):
    ledger.store(ledger.debit(QUARTER, {}, "k"), b"a")
    with pytest.raises(LedgerError, match="is answered"):
        ledger.debit(QUARTER, {}, "k")
    assert ledger.spent().debits == 1


def test_a_key_that_is_being_answered_by_a_live_process_is_refused(ledger, home):
    ledger.debit(QUARTER, {}, "k")
    with pytest.raises(LedgerError, match="being answered"):
        ledger.debit(QUARTER, {}, "k")
    assert home.open().entries()[0].state == "reserved"


def test_who_asks_second_waits_for_the_answer_and_gives_up_at_last(ledger, monkeypatch):
    """While the debit is reserved by somebody alive; nothing is paid or drawn twice."""
    monkeypatch.setattr(
        "sfumato.ledger.ledger.LIMITS", replace(LIMITS, answer_looks=3, answer_pause=0)
    )
    entry = ledger.debit(QUARTER, {"q": 1}, "k")
    with pytest.raises(KeyHeld, match="being answered"):
        ledger.answer_once(QUARTER, {"q": 1}, "k", lambda: pytest.fail("drawn"))
    waits = iter(range(3))

    def store(_seconds):
        if next(waits) == 1:
            ledger.store(entry, b"noisy")

    monkeypatch.setattr("sfumato.ledger.ledger.sleep", store)
    answer = ledger.answer_once(QUARTER, {"q": 1}, "k", lambda: pytest.fail("drawn"))
    assert answer == b"noisy"
    assert ledger.spent().debits == 1


def test_a_burnt_debit_stays_spent_is_never_answered_and_frees_its_key(ledger):
    lost = ledger.debit(QUARTER, {}, "k")
    assert ledger.burn(lost).state == "burnt"
    with pytest.raises(LedgerError, match="burnt"):
        ledger.store(lost, b"late")
    assert ledger.answer("k") is None
    again = ledger.debit(QUARTER, {}, "k")
    with pytest.raises(LedgerError, match="must not be sent"):
        ledger.store(lost, b"late")
    ledger.store(again, b"new noise, paid for again")
    assert ledger.answer("k") == b"new noise, paid for again"
    assert ledger.spent().share == Fraction(1, 2)
    assert [entry.state for entry in ledger.entries()] == ["burnt", "answered"]
    assert ledger.verify().is_whole


def test_an_answer_is_stored_once(ledger):
    entry = ledger.debit(QUARTER, {}, "k")
    ledger.store(entry, b"first")
    with pytest.raises(LedgerError, match="answered, not"):
        ledger.store(entry, b"second")
    with pytest.raises(LedgerError):
        ledger.burn(entry)
    assert ledger.answer("k") == b"first"


def test_answer_once_draws_once_and_debits_first(ledger):
    drawn = []

    def produce():
        assert ledger.spent().debits == 1  # the debit is there before the noise
        drawn.append(1)
        return b"noisy"

    assert ledger.answer_once(QUARTER, {"q": 1}, "k", produce) == b"noisy"
    assert ledger.answer_once(QUARTER, {"q": 1}, "k", produce) == b"noisy"
    assert drawn == [1]
    with pytest.raises(LedgerError, match="another request"):
        ledger.answer_once(QUARTER, {"q": 2}, "k", produce)


def test_answer_once_burns_the_debit_when_producing_fails(ledger):
    def fail():
        raise RuntimeError("no answer")

    with pytest.raises(RuntimeError):
        ledger.answer_once(QUARTER, {}, "k", fail)
    assert [entry.state for entry in ledger.entries()] == ["burnt"]
    assert ledger.spent().share == Fraction(1, 4)


def test_requests_are_canonical_and_given_as_object_or_bytes(ledger):
    first = ledger.debit(QUARTER, {"b": [1, 2.5], "a": "x"}, "k1")
    second = ledger.debit(QUARTER, b'{ "a": "x", "b": [1, 2.5] }', "k2")
    assert first.request == second.request == '{"a":"x","b":[1,2.5]}'


@pytest.mark.parametrize("bad", [{"a": math.nan}, {"a": {1, 2}}, b"{", b"\xff", 3])
def test_requests_that_are_not_json_are_refused(ledger, bad):
    with pytest.raises(LedgerError, match="JSON"):
        ledger.debit(QUARTER, bad, "k")


@pytest.mark.parametrize("bad", ["", "x" * 201, "line\nbreak", None, b"k"])
def test_keys_are_short_printable_strings(ledger, bad):
    with pytest.raises(LedgerError, match="key"):
        ledger.debit(QUARTER, {}, bad)
    longest = "x" * 200
    assert ledger.debit(QUARTER, {}, longest).key == longest


def test_answers_are_bytes(ledger):
    with pytest.raises(LedgerError, match="bytes"):
        ledger.store(ledger.debit(QUARTER, {}, "k"), "text")


def test_an_existing_ledger_is_never_created_over(ledger, home):
    ledger.debit(QUARTER, {}, "k")
    with pytest.raises(LedgerError, match="already holds"):
        home.create(Budget(epsilon=9), "people#7f3a", "add-remove")
    assert home.open().spent().share == Fraction(1, 4)


def test_open_or_create_creates_then_opens_and_keeps_the_budget(home):
    asked = ("people", "replace-one")
    assert not Ledger.exists(home.place)
    with pytest.raises(LedgerError, match="give a budget"):
        home.open_or_create(*asked)
    assert not Ledger.exists(home.place)
    home.open_or_create(*asked, Budget(rho=1))
    assert Ledger.exists(home.place)
    assert home.open_or_create(*asked).budget == Budget(rho=1)
    assert home.open_or_create(*asked, Budget(rho=9)).budget == Budget(rho=1)


@pytest.mark.usefixtures("ledger")
def test_a_ledger_of_another_table_or_neighbour_relation_is_refused(home):
    with pytest.raises(LedgerError, match=r"belongs to table 'people#7f3a'"):
        home.open_or_create("others", "add-remove")
    with pytest.raises(LedgerError, match="add-remove"):
        home.open_or_create("people#7f3a", "replace-one")
    with pytest.raises(BudgetError, match="neighbours"):
        home.open_or_create("people#7f3a", "both")


@pytest.mark.parametrize("bad", ["sqlite://", "sqlite:///:memory:", "nonsense://x", "://"])
def test_places_that_cannot_hold_a_ledger_are_refused(bad):
    with pytest.raises(LedgerError):
        Ledger.create(bad, Budget(rho=1), "t", "add-remove")


@pytest.mark.parametrize("bad", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://x"])
def test_a_ledger_in_memory_is_refused_as_such(bad):
    with pytest.raises(LedgerError, match="in memory would be forgotten"):
        Ledger.create(bad, Budget(rho=1), "t", "add-remove")


def test_a_missing_ledger_or_folder_is_one_clear_message(tmp_path):
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger.open(tmp_path / "none.ledger")
    with pytest.raises(LedgerError, match="cannot be"):
        Ledger.create(tmp_path / "no" / "folder.ledger", Budget(rho=1), "t", "add-remove")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_a_ledger_is_refused_and_left_alone(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to look like a file" * 100)
    before = text.read_bytes()
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    database = other.read_bytes()
    for path in (text, other):
        with pytest.raises(LedgerError):
            Ledger.open(path)
        with pytest.raises(LedgerError):
            Ledger.create(path, Budget(rho=1), "t", "add-remove")
    assert text.read_bytes() == before
    assert other.read_bytes() == database


def test_a_url_and_a_path_are_the_same_ledger(filed, place):
    filed.debit(QUARTER, {}, "k")
    assert Ledger.open(f"sqlite:///{place}").spent().debits == 1


def test_a_file_is_told_to_be_durable(filed):
    with filed._chain.store.reading() as transaction:
        asked = ("journal_mode", "synchronous", "busy_timeout")
        values = [transaction.row(f"PRAGMA {name}")[0] for name in asked]
    assert values == ["wal", 2, 60000]  # 2 is FULL


def test_a_server_is_told_to_be_durable(postgres, tmp_path):
    import psycopg

    home = Home.at("postgresql", tmp_path, postgres)
    careless = home.place.replace("options=", "options=-csynchronous_commit%3Doff%20")
    with psycopg.connect(careless) as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)
    for place in (home.place, careless):
        with open_store(place).reading() as transaction:
            assert transaction.row("SHOW synchronous_commit") == ("on",)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_passwords_of_addresses_are_not_shown(scheme):
    store = open_store(f"{scheme}://ann:secret@nowhere.invalid:1/people")
    assert store.name == "postgresql://ann@nowhere.invalid:1/people"
    assert "secret" not in repr(store)


def test_a_server_that_is_not_there_is_one_clear_message(tmp_path):
    address = f"postgresql://ann:secret@/people?host={tmp_path}"
    for attempt in (
        lambda: Ledger.open(address),
        lambda: Ledger.create(address, Budget(rho=1), "t", "add-remove"),
    ):
        with pytest.raises(LedgerError, match="the server runs") as caught:
            attempt()
        assert "secret" not in str(caught.value)


def test_the_update_refuses_what_the_budget_does_not_allow_and_what_others_moved(ledger):
    ledger.debit(QUARTER, {}, "k")
    with ledger._chain.store.writing() as transaction:
        row = tables.account(transaction)
        to = (row.sequence + 1, "0" * 64)
        assert not tables.advance(transaction, row, *to, UNITS + 1)
        assert not tables.advance(transaction, replace(row, sequence=0), *to, UNITS)
        assert not tables.advance(transaction, replace(row, head="1" * 64), *to, UNITS)
        assert tables.account(transaction) == row
        assert tables.advance(transaction, row, *to, UNITS)
        transaction.is_kept = False
    assert ledger.verify().problems == ()


def test_a_debit_that_passed_its_check_wrongly_is_stopped_by_the_update(ledger, monkeypatch):
    before = ledger.verify()
    monkeypatch.setattr(Account, "is_overdrawn", False)
    with pytest.raises(LedgerError, match="nothing was written"):
        ledger.debit(Cost.pure(2), {}, "k")
    monkeypatch.undo()
    assert ledger.verify() == before


def test_the_check_constraint_is_a_second_fence(ledger, home):
    ledger.debit(QUARTER, {}, "k")
    with pytest.raises(Exception, match="never_overspent"):
        home.change("UPDATE sfumato_account SET spent = total + 1")


def test_an_account_row_changed_behind_the_ledger_is_refused(ledger, home):
    ledger.debit(QUARTER, {}, "k")
    home.change("UPDATE sfumato_account SET spent = 0")
    with pytest.raises(LedgerError, match="do not match"):
        ledger.debit(QUARTER, {}, "k2")
    with pytest.raises(LedgerError, match="do not match"):
        home.open()


def test_spent_is_reported_in_every_currency(home):
    ledger = home.create(Budget(epsilon=2, delta=1e-9))
    costs = [Cost.pure(Fraction(1, 2)), Cost.gaussian(Fraction(1, 100))]
    for number, cost in enumerate(costs):
        ledger.debit(cost, {}, str(number))
    spent = ledger.spent()
    assert spent.debits == 2
    assert spent.rho == Fraction(1, 8) + Fraction(1, 200)
    assert (spent.mu_squared, spent.pure_epsilon) == (Fraction(1, 100), Fraction(1, 2))
    assert spent.epsilon == composed_epsilon(costs, 1e-9)
    assert ledger.spent(delta=1e-6).epsilon < spent.epsilon
    assert ledger.verify().is_whole


@pytest.mark.parametrize("budget", [Budget(rho=1), Budget(mu=1), Budget(epsilon=1, delta=1e-9)])
def test_what_remains_can_be_debited_and_then_nothing_remains(tmp_path, budget):
    for kind in ("gaussian", "pure"):
        ledger = Ledger.create(tmp_path / f"{kind}.ledger", budget, "t", "add-remove")
        ledger.debit(Cost.pure(ledger.remaining().pure_epsilon / 3), {}, "a")
        ledger.debit(Cost.gaussian(Fraction(ledger.remaining().gaussian_mu) ** 2 / 3), {}, "b")
        left = ledger.remaining()
        cost = (
            Cost.gaussian(Fraction(left.gaussian_mu) ** 2)
            if kind == "gaussian"
            else Cost.pure(left.pure_epsilon)
        )
        ledger.debit(cost, {}, "c")
        assert ledger.remaining().share < Fraction(1, 10**12)
        assert ledger.verify().is_whole


def test_times_come_from_the_clock_that_was_given(home):
    clock = lambda: datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)  # noqa: E731
    ledger = home.create(Budget(rho=1), now=clock)
    assert ledger.debit(QUARTER, {}, "k").time == "2001-02-03T04:05:06+00:00"


def test_a_debit_whose_process_ended_is_burnt_on_open_and_on_the_same_key(ledger, home):
    def leave_reserved(key):
        if (child := os.fork()) == 0:
            ledger.debit(QUARTER, {}, key)
            os._exit(0)
        os.waitpid(child, 0)

    leave_reserved("a")
    assert ledger.debit(QUARTER, {}, "a").state == "reserved"  # burnt, and paid again
    leave_reserved("b")
    states = {entry.key: entry.state for entry in home.open().entries()}
    assert states == {"a": "reserved", "b": "burnt"}
    assert ledger.verify().burnt == 2


def test_a_debit_of_a_live_process_survives_another_process_opening_the_ledger(ledger, home):
    ready, go = os.pipe(), os.pipe()
    if (child := os.fork()) == 0:
        entry = ledger.debit(QUARTER, {}, "k")
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        ledger.store(entry, b"answer of the child")
        os._exit(0)
    os.read(ready[0], 1)
    other = home.open()
    assert [entry.state for entry in other.entries()] == ["reserved"]
    with pytest.raises(LedgerError, match="being answered"):
        other.debit(QUARTER, {}, "k")
    os.write(go[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    assert other.answer("k") == b"answer of the child"


def test_entries_are_paged_and_selected_by_analyst(ledger):
    tiny = Cost.pure(Fraction(1, 100))
    names = ["ann", "Ann", None, "ann", "bob"]
    for number, name in enumerate(names):
        entry = ledger.debit(tiny, {"n": number}, str(number), analyst=name)
        if number % 2:
            ledger.store(entry, b"x")
    ledger.burn(ledger.entry("0"))
    ledger.debit(tiny, {"n": 0}, "0", analyst="ann")
    every = ledger.entries()
    assert [e.state for e in every] == [
        "burnt", "answered", "reserved", "answered", "reserved", "reserved",
    ]  # fmt: skip
    assert [e.key for e in ledger.entries(analyst="ann")] == ["0", "3", "0"]
    assert ledger.entries(analyst="nobody") == ()
    first = ledger.entries(at_most=2)
    assert first + ledger.entries(after=first[-1].sequence) == every
    assert ledger.entries(analyst="ann", at_most=1) == every[:1]
    assert ledger.entries(after=every[-1].sequence, at_most=9) == ()


def test_an_entry_of_another_ledger_is_neither_answered_nor_burnt(ledger, home, tmp_path):
    other = home.another(tmp_path, "other").create(Budget(epsilon=1), "others", "add-remove")
    stranger = other.debit(QUARTER, {}, "unknown here")
    for close in (lambda: ledger.store(stranger, b"x"), lambda: ledger.burn(stranger)):
        with pytest.raises(LedgerError, match="'unknown here' is burnt, not reserved"):
            close()
    assert ledger.verify().records == 1


def test_a_database_that_cannot_be_made_is_one_clear_message(place, monkeypatch):
    def fail(*_):
        raise sqlite3.OperationalError("no more of anything")

    monkeypatch.setattr("sfumato.ledger.store._Sqlite.connect", fail)
    with pytest.raises(LedgerError, match=r"cannot be written .*no more of anything"):
        Ledger.create(place, Budget(rho=1), "t", "add-remove")


def test_a_debit_is_closed_once_even_if_the_first_check_is_blind(ledger, monkeypatch):
    """The batch looks again when the change is written down."""
    paid = ledger.debit(QUARTER, {}, "k")
    ledger.store(paid, b"x")
    stale = RequestRow("k", paid.sequence, "reserved", None)
    monkeypatch.setattr(WriteBatch, "request", lambda *_: stale)
    for close in (lambda: ledger.store(paid, b"y"), lambda: ledger.burn(paid)):
        with pytest.raises(LedgerError, match="is not reserved any more"):
            close()
    unknown = replace(paid, sequence=0)  # which is no debit
    monkeypatch.setattr(WriteBatch, "request", lambda *_: replace(stale, debit=0))
    with pytest.raises(LedgerError, match="debit 0 is not in the chain"):
        ledger.store(unknown, b"y")
    monkeypatch.undo()
    assert ledger.answer("k") == b"x"
    assert ledger.verify().is_whole


@pytest.mark.parametrize("address", ["postgresql://[::1/people", "postgres://h/people?wrong=1"])
def test_an_address_that_is_none_is_refused_without_its_password(address):
    with pytest.raises(LedgerError, match="is postgresql://user@host/database, got"):
        open_store(address)


def test_a_missing_driver_of_the_server_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LedgerError, match=r"install sfumato\[postgres\]"):
        open_store("postgresql://h/people")


def test_a_ledger_that_another_process_creates_meanwhile_is_opened(home, monkeypatch):
    """The first look finds nothing, the second one what the other has made."""
    home.create(Budget(epsilon=1), "people", "add-remove")
    looks = [True, True, False]
    monkeypatch.setattr(Ledger, "exists", classmethod(lambda *_: looks.pop()))
    found = home.open_or_create("people", "add-remove", Budget(epsilon=5))
    assert found.budget == Budget(epsilon=1)
    monkeypatch.setattr(Ledger, "exists", classmethod(lambda *_: False))
    with pytest.raises(LedgerError, match="already holds"):
        home.open_or_create("people", "add-remove", Budget(epsilon=5))


def test_a_ledger_with_lanes_keeps_them_and_verifies(home):
    gaussian = Cost.gaussian(Fraction(Budget(epsilon=1, delta="1e-6").gaussian_mu) ** 2)
    ledger = home.create(Budget(epsilon=2, delta="1e-6", pure=1), "people#7f3a", "add-remove")
    ledger.debit(gaussian, {"n": 1}, "gaussian")
    assert ledger.remaining().pure_epsilon == 1
    ledger.debit(Cost.pure(Fraction(1, 2)), {"n": 2}, "pure")
    again = home.open()
    assert again.budget.pure == 1
    assert again.remaining().pure_epsilon == Fraction(1, 2)
    with pytest.raises(BudgetExhausted, match="Gaussian lane 0% of its 50%"):
        again.debit(gaussian, {"n": 3}, "more")
    again.debit(Cost.pure(Fraction(1, 2)), {"n": 4}, "rest")
    assert again.spent().share == 1
    assert again.verify().problems == ()


def test_a_price_is_a_share_of_the_total_or_what_would_fit(home):
    ledger = home.create(Budget(epsilon=2, delta="1e-6"), "people#7f3a", "add-remove")
    assert ledger.price(Cost.pure(Fraction(1, 2))).share == Fraction(1, 4)
    ledger.debit(Cost.gaussian(Fraction(1, 100)), {}, "first")
    refused = ledger.price(Cost.pure(1))
    assert not refused.fits
    assert refused.most == ledger.remaining().epsilon("pure")
    assert ledger.price(Cost.pure(refused.most)).fits
    assert "would fit" in refused.describe()
    ledger.allow("ann", Budget(epsilon="0.1"))
    held = ledger.price(Cost.pure(Fraction(1, 5)), "ann")
    assert held.most == Fraction(1, 10)
