# SPDX-License-Identifier: Apache-2.0
"""Free answers and private states, on both databases."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from fractions import Fraction

import pytest

from sfumato.errors import BudgetExhausted, LedgerError, StateChanged
from sfumato.ledger.account import UNITS
from sfumato.ledger.entries import KeptAnswer, Sealed, State, seal
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost

QUARTER = Cost.pure(Fraction(1, 4))
SECRET = b"the noisy threshold 104729"


@pytest.fixture
def ledger(home):
    return home.create()


@pytest.fixture
def epoch(ledger):
    return ledger.store(ledger.debit(QUARTER, {"epoch": 1}, "epoch"), b"open")


def test_a_free_answer_costs_nothing_and_returns_the_same_bytes_for_ever(ledger, home, epoch):
    kept = ledger.keep("k", {"q": 1}, b"\x00free\xff", epoch, analyst="ann")
    assert kept == KeptAnswer("k", b"\x00free\xff", is_new=True)
    assert ledger.keep("k", {"q": 1}, b"other", epoch) == replace(kept, is_new=False)
    assert home.open().answer("k") == b"\x00free\xff"
    assert ledger.spent().share == Fraction(1, 4)
    assert ledger.verify().problems == ()


def test_a_key_is_of_one_request_paid_or_free(ledger, epoch):
    ledger.keep("k", {"q": 1}, b"free", epoch)
    with pytest.raises(LedgerError, match="another request"):
        ledger.keep("k", {"q": 2}, b"free", epoch)
    with pytest.raises(LedgerError, match="is answered"):
        ledger.debit(QUARTER, {"q": 1}, "k")
    with pytest.raises(LedgerError, match="debit of its own"):
        ledger.keep("epoch", {"epoch": 1}, b"free", epoch)
    assert ledger.spent().share == Fraction(1, 4)


def test_the_key_of_a_burnt_debit_may_be_answered_free(ledger, home, epoch):
    ledger.burn(ledger.debit(QUARTER, {"q": 1}, "k"))
    ledger.keep("k", {"q": 1}, b"free", epoch)
    assert ledger.answer("k") == b"free"
    with pytest.raises(LedgerError, match="is answered"):
        ledger.debit(QUARTER, {"q": 1}, "k")
    assert home.open().verify().problems == ()


def test_a_free_answer_needs_a_debit_that_is_not_burnt(ledger, epoch):
    burnt = ledger.burn(ledger.debit(QUARTER, {}, "burnt"))
    for payer in (burnt, replace(epoch, sequence=epoch.sequence + 1), replace(epoch, key="none")):
        with pytest.raises(LedgerError, match="does not pay"):
            ledger.keep("k", {}, b"free", payer)
    assert ledger.answer("k") is None
    reserved = ledger.debit(QUARTER, {}, "under way")
    assert ledger.keep("k", {}, b"free", reserved).is_new


def test_answer_once_serves_a_free_answer(ledger, epoch):
    ledger.keep("k", {"q": 1}, b"free", epoch)
    assert ledger.answer_once(QUARTER, {"q": 1}, "k", lambda: b"never drawn") == b"free"


def test_answers_keys_and_requests_of_free_answers_are_checked(ledger, epoch):
    with pytest.raises(LedgerError, match="bytes"):
        ledger.keep("k", {}, "text", epoch)
    with pytest.raises(LedgerError, match="key"):
        ledger.keep("", {}, b"", epoch)
    with pytest.raises(LedgerError, match="JSON"):
        ledger.keep("k", {"a": {1}}, b"", epoch)
    with pytest.raises(LedgerError, match="analyst"):
        ledger.keep("k", {}, b"", epoch, analyst="")


def test_the_debit_of_a_key_is_found_after_a_restart(ledger, home, epoch):
    assert home.open().entry("epoch") == epoch
    assert ledger.entry("none") is None


def test_states_are_written_with_debit_store_and_free_answer_and_read_back(ledger, home):
    entry = ledger.debit(QUARTER, {}, "e", states=[State("s", 1, b"one"), State("t", 1, b"")])
    assert ledger.state("s") == State("s", 1, b"one")
    ledger.store(entry, b"a", states=[State("s", 2, b"two")])
    ledger.keep("f", {}, b"free", entry, states=[State("s", 3, SECRET)])
    opened = home.open()
    assert opened.state("s") == State("s", 3, SECRET)
    assert opened.state("t") == State("t", 1, b"")
    assert opened.state("none") is None
    report = opened.verify()
    assert (report.problems, report.states) == ((), 2)


@pytest.mark.parametrize("version", [1, 2, 4])
def test_a_state_that_somebody_else_wrote_is_not_written_over(ledger, epoch, version):
    ledger.keep("f", {}, b"f", epoch, states=[State("s", 1, b"1")])
    ledger.keep("g", {}, b"g", epoch, states=[State("s", 2, b"2")])
    changed = [State("s", version, b"x")]
    entry = ledger.debit(QUARTER, {}, "open")
    for attempt in (
        lambda: ledger.keep("h", {}, b"h", epoch, states=changed),
        lambda: ledger.debit(QUARTER, {}, "h", states=changed),
        lambda: ledger.store(entry, b"h", states=changed),
    ):
        with pytest.raises(StateChanged, match="version 2"):
            attempt()
    assert ledger.answer("h") is None
    assert ledger.entry("open").state == "reserved"
    assert ledger.state("s") == State("s", 2, b"2")
    assert ledger.verify().is_whole


def test_what_is_refused_writes_no_state(ledger, epoch):
    with pytest.raises(BudgetExhausted):
        ledger.debit(Cost.pure(2), {}, "k", states=[State("s", 1, b"x")])
    ledger.keep("f", {}, b"f", epoch)
    assert not ledger.keep("f", {}, b"f", epoch, states=[State("s", 1, b"x")]).is_new
    assert ledger.state("s") is None


@pytest.mark.parametrize(
    "states",
    [[State("s", 0, b"")], [State("s", True, b"")], [State("s", 1, "text")], [b"bytes"],
     [State("", 1, b"")], [State("s", 1, b""), State("s", 2, b"")]],
)  # fmt: skip
def test_states_are_checked(ledger, states):
    with pytest.raises(LedgerError):
        ledger.debit(QUARTER, {}, "k", states=states)
    assert ledger.entries() == ()


def test_a_private_state_is_in_no_repr_error_log_or_record(ledger, home, caplog):
    state = State("s", 1, SECRET)
    with caplog.at_level(logging.DEBUG):
        entry = ledger.debit(QUARTER, {}, "k", states=[state])
        with pytest.raises(StateChanged) as caught:
            ledger.store(entry, b"a", states=[state])
    sealed = seal(state)
    shown = [repr(state), repr(sealed), repr(entry), repr(ledger), repr(caught.value), caplog.text]
    shown += [text for (text,) in home.rows("SELECT text FROM sfumato_record")]
    shown += [home.head.read_text(), repr(ledger.verify())]
    for text in shown:
        assert "104729" not in text
        assert SECRET.hex() not in text
        assert sealed.salt.hex() not in text
        assert repr(sealed.salt) not in text


@pytest.mark.parametrize("version", [0, -1, True, 1.0, "1"])
def test_versions_of_a_state_are_counted_from_one(version):
    with pytest.raises(LedgerError, match="version of a state"):
        seal(State("s", version, SECRET))


def test_the_public_hash_of_a_state_is_salted_anew_and_covers_name_version_and_bytes():
    state = State("s", 1, SECRET)
    assert len({seal(state).commitment.hmac for _ in range(20)}) == 20
    salt = seal(state).salt
    assert len(salt) == 32
    others = [State("s", 2, SECRET), State("t", 1, SECRET), State("s", 1, SECRET + b"x"),
              State("s1", 1, SECRET), State("s", 11, SECRET)]  # fmt: skip
    hashes = {Sealed(each, salt).commitment.hmac for each in [state, *others]}
    assert len(hashes) == 6


def test_an_allowance_and_the_table_are_not_moved_by_free_answers(ledger, epoch):
    ledger.allow("ann", Budget(epsilon=1))
    for number in range(5):
        ledger.keep(str(number), {}, b"f", epoch, analyst="ann")
    assert ledger.allowances()[0].account.spent == 0
    assert ledger.verify().spent_units == UNITS // 4


def test_the_records_of_free_answers_hold_hashes_only(ledger, home, epoch):
    ledger.keep("f", {"q": 1}, SECRET, epoch)
    texts = [text for (text,) in home.rows("SELECT text FROM sfumato_record ORDER BY sequence")]
    assert re.search(r'"kind":"kept"', texts[-1])
    assert "104729" not in texts[-1]


def test_a_kept_answer_does_not_show_its_bytes():
    shown = repr(KeptAnswer("k", b"104729", is_new=True))
    assert "104729" not in shown
    assert "'k'" in shown
