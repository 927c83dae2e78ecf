# SPDX-License-Identifier: Apache-2.0
"""Tampering, rollback and damage, on both databases: what verify and open must notice."""

from __future__ import annotations

import shutil
import sqlite3
from fractions import Fraction
from pathlib import Path

import pytest

from sfumato.errors import LedgerError
from sfumato.ledger.entries import Record, State
from sfumato.ledger.ledger import Ledger
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from tests.shared.ledger_home import Home

COST = Cost.gaussian(Fraction(1, 100))


def filled(ledger):
    """A ledger with something of every kind."""
    paid = ledger.debit(COST, {"q": 1}, "a", analyst="ann")
    ledger.store(paid, b"answer a", states=[State("s", 1, b"private")])
    ledger.burn(ledger.debit(COST, {"q": 2}, "b"))
    ledger.store(ledger.debit(COST, {"q": 2}, "b"), b"answer b")
    ledger.debit(COST, {"q": 3}, "c")
    ledger.allow("ann", Budget(rho="1/2"))
    ledger.keep("f", {"q": 4}, b"free f", paid, states=[State("s", 2, b"more private")])
    ledger.keep("g", {"q": 5}, b"free g", paid)
    return ledger


@pytest.fixture
def ledger(home):
    return filled(home.create(Budget(rho=1), "table", "replace-one"))


@pytest.fixture
def filed(tmp_path):
    """A ledger file, where only a file will do."""
    place = tmp_path / "t.ledger"
    return filled(Ledger.create(place, Budget(rho=1), "table", "replace-one"))


def noticed(ledger):
    """Whether verify reports a problem or refuses."""
    try:
        return not ledger.verify().is_whole
    except LedgerError:
        return True


def test_a_whole_ledger_verifies_and_counts_its_entries(ledger):
    report = ledger.verify()
    assert report.is_whole
    assert report.head_file_checked
    # opened; debit, answer; debit, burn; debit, answer; debit; allowance; two free answers.
    assert (report.records, report.answered, report.burnt, report.reserved) == (11, 2, 1, 1)
    assert (report.free, report.states, report.is_frozen) == (2, 1, False)
    # 4 debits of rho 1/200.
    assert Fraction(report.spent_units, report.total_units) == Fraction(4, 200)


@pytest.mark.parametrize("sequence", [1, 2, 4, 8, 9])
def test_a_change_of_any_byte_of_an_entry_is_found(filed, sequence):
    home = Home(filed.place, None, "sqlite")
    query = "SELECT text FROM sfumato_record WHERE sequence = ?"
    ((text,),) = home.rows(query, (sequence,))
    update = "UPDATE sfumato_record SET text = ? WHERE sequence = ?"
    for place, letter in enumerate(text):
        other = "0" if letter != "0" else "1"
        home.change(update, (text[:place] + other + text[place + 1 :], sequence))
        assert noticed(filed), (sequence, place)
    home.change(update, (text, sequence))
    assert filed.verify().is_whole


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sfumato_record SET hash = replace(hash, 'a', 'b')",
        "DELETE FROM sfumato_record WHERE sequence = 3",
        "DELETE FROM sfumato_record WHERE sequence = 10",
        "DELETE FROM sfumato_record",
        "UPDATE sfumato_record SET sequence = 99 WHERE sequence = 10",
        "UPDATE sfumato_account SET spent = spent - 1",
        "UPDATE sfumato_account SET total = total + 1",
        "UPDATE sfumato_account SET head = replace(head, substr(head, 1, 1), 'x')",
        "UPDATE sfumato_account SET sequence = 9",
        "DELETE FROM sfumato_account",
        "UPDATE sfumato_request SET state = 'reserved' WHERE key = 'a'",
        "UPDATE sfumato_request SET state = 'burnt' WHERE key = 'c'",
        "UPDATE sfumato_request SET debit = 1 WHERE key = 'b'",
        "UPDATE sfumato_request SET key = 'd' WHERE key = 'a'",
        "DELETE FROM sfumato_request WHERE key = 'a'",
        "INSERT INTO sfumato_request VALUES ('z', 1, 'answered', 2)",
        "UPDATE sfumato_answer SET data = x'00'",
        "DELETE FROM sfumato_answer WHERE debit = 1",
        "INSERT INTO sfumato_answer VALUES (7, x'00')",
        "UPDATE sfumato_free SET data = x'00' WHERE key = 'f'",
        "UPDATE sfumato_free SET key = 'h' WHERE key = 'f'",
        "UPDATE sfumato_free SET sequence = 1 WHERE key = 'f'",
        "DELETE FROM sfumato_free WHERE key = 'g'",
        "INSERT INTO sfumato_free VALUES ('h', 9, x'00')",
        "UPDATE sfumato_state SET data = x'00'",
        "UPDATE sfumato_state SET salt = x'00'",
        "UPDATE sfumato_state SET version = 1",
        "UPDATE sfumato_state SET sequence = 1",
        "UPDATE sfumato_state SET name = 'other'",
        "DELETE FROM sfumato_state",
        "INSERT INTO sfumato_state VALUES ('more', 1, 1, x'00', x'00')",
        "UPDATE sfumato_allowance SET spent = spent - 1",
        "UPDATE sfumato_allowance SET budget = replace(budget, '2', '1')",
        "UPDATE sfumato_allowance SET analyst = 'bob'",
        "DELETE FROM sfumato_allowance",
        "INSERT INTO sfumato_allowance VALUES ('bob', '{\"rho\":\"1\"}', 0, NULL)",
    ],
)
def test_every_change_behind_the_ledger_is_found(ledger, home, statement):
    assert not noticed(ledger)
    home.change(statement)
    assert noticed(ledger)


def test_a_damaged_answer_is_not_served(ledger, home):
    home.change("UPDATE sfumato_answer SET data = x'00' WHERE debit = 1")
    home.change("UPDATE sfumato_free SET data = x'00' WHERE key = 'f'")
    for key in ("a", "f"):
        with pytest.raises(LedgerError, match="damaged"):
            ledger.answer(key)


def test_an_answer_of_a_record_that_is_none_is_not_served(ledger, home):
    """The request points at its debit, the free answer at the first record."""
    home.change("UPDATE sfumato_request SET closed = 1 WHERE key = 'a'")
    home.change("UPDATE sfumato_free SET sequence = 0 WHERE key = 'f'")
    for key in ("a", "f"):
        with pytest.raises(LedgerError, match=f"request key '{key}' is damaged"):
            ledger.answer(key)


@pytest.mark.parametrize("change", ["data = x'00'", "version = 1", "sequence = 2", "sequence = 99"])
def test_a_damaged_state_is_not_given_out(ledger, home, change):
    home.change(f"UPDATE sfumato_state SET {change}")
    with pytest.raises(LedgerError):
        ledger.state("s")


def test_a_chain_written_anew_with_right_hashes_is_found_by_the_head_file(filed):
    """An attacker may recompute every hash, but not the line the head file already has."""
    connection = sqlite3.connect(filed.place)
    rows = connection.execute("SELECT text FROM sfumato_record ORDER BY sequence").fetchall()
    previous = None
    with connection:
        for sequence, (text,) in enumerate(rows):
            if previous is not None:
                old = Record.read(text)
                text = text.replace(old.previous, previous).replace('"q\\":2', '"q\\":5')
            previous = Record.hash_of(text)
            connection.execute(
                "UPDATE sfumato_record SET text = ?, hash = ? WHERE sequence = ?",
                (text, previous, sequence),
            )
        connection.execute("UPDATE sfumato_account SET head = ?", (previous,))
    connection.close()
    with pytest.raises(LedgerError, match="behind its head file"):
        filed.verify()
    with pytest.raises(LedgerError, match="behind its head file"):
        Ledger.open(filed.place)


def test_a_debit_that_took_too_few_units_is_found_even_if_all_hashes_are_right(filed):
    """Whoever forges chain, account and head file still has to explain the cost."""
    connection = sqlite3.connect(filed.place)
    query = "SELECT text, hash FROM sfumato_record WHERE sequence = 10"
    text, digest = connection.execute(query).fetchone()
    record = Record.read(text)
    forged = text.replace(f'"spent":{record.spent}', f'"spent":{record.spent - 1}')
    head = Record.hash_of(forged)
    with connection:
        connection.execute(
            "UPDATE sfumato_record SET text = ?, hash = ? WHERE sequence = 10", (forged, head)
        )
        connection.execute("UPDATE sfumato_account SET head = ?, spent = spent - 1", (head,))
    connection.close()
    witness = Path(filed.place + ".head")
    witness.write_text(witness.read_text().replace(digest, head))
    assert Ledger.open(filed.place).verify().problems == ("record 10: its balance is wrong",)


def test_restoring_an_older_copy_is_refused_by_open_debit_and_verify(filed, tmp_path):
    old = tmp_path / "backup"
    shutil.copy(filed.place, old)
    filed.debit(COST, {"q": 9}, "later")
    shutil.copy(old, filed.place)
    for attempt in (
        lambda: Ledger.open(filed.place),
        lambda: filed.debit(COST, {}, "again"),
        filed.verify,
        filed.remaining,
    ):
        with pytest.raises(LedgerError, match="behind its head file"):
            attempt()


def test_without_the_head_file_the_same_rollback_would_go_unnoticed(filed, tmp_path):
    """The twin of the test above: it is the head file that notices."""
    shutil.copy(filed.place, tmp_path / "backup")
    head = tmp_path / "t.ledger.head"
    before = head.read_bytes()
    filed.debit(COST, {"q": 9}, "later")
    shutil.copy(tmp_path / "backup", filed.place)
    head.write_bytes(before)
    assert Ledger.open(filed.place).verify().is_whole


def test_a_ledger_that_is_ahead_of_its_head_file_opens(filed, tmp_path):
    """A crash between commit and head line leaves this state."""
    head = tmp_path / "t.ledger.head"
    lines = head.read_text().splitlines(keepends=True)
    head.write_text("".join(lines[:-1]) + lines[-1][:20])  # a torn last line
    reopened = Ledger.open(filed.place)
    reopened.debit(COST, {}, "next")
    assert reopened.verify().is_whole
    assert head.read_text().splitlines()[-1].startswith("11 ")


def test_a_lost_head_file_is_refused_until_the_curator_vouches(filed, tmp_path):
    head = tmp_path / "t.ledger.head"
    with pytest.raises(LedgerError, match="open it"):
        Ledger.vouch(filed.place)
    head.unlink()
    for attempt in (lambda: Ledger.open(filed.place), lambda: filed.debit(COST, {}, "x")):
        with pytest.raises(LedgerError, match=r"Ledger\.vouch"):
            attempt()
    assert "the head file is missing or empty" in filed.verify().problems
    assert Ledger.vouch(filed.place).verify().is_whole
    assert filed.answer("a") == b"answer a"


def test_a_head_file_lost_right_after_creation_is_written_again(tmp_path):
    Ledger.create(tmp_path / "n.ledger", Budget(rho=1), "t", "add-remove")
    (tmp_path / "n.ledger.head").unlink()
    Ledger.open(tmp_path / "n.ledger")
    assert (tmp_path / "n.ledger.head").exists()


def test_the_head_file_may_live_elsewhere(tmp_path):
    (tmp_path / "safe").mkdir()
    head = tmp_path / "safe" / "witness"
    made = Ledger.create(tmp_path / "n.ledger", Budget(rho=1), "t", "add-remove", head=head)
    made.debit(COST, {}, "k")
    assert len(head.read_text().splitlines()) == 2
    assert not (tmp_path / "n.ledger.head").exists()
    assert Ledger.open(tmp_path / "n.ledger", head=head).verify().is_whole


def test_a_record_of_a_newer_version_is_refused_with_advice(filed):
    Home(filed.place, None, "sqlite").change(
        "UPDATE sfumato_record SET text = replace(text, '\"version\":3', '\"version\":9')"
    )
    with pytest.raises(LedgerError, match="newer sfumato"):
        Ledger.open(filed.place)


def test_random_damage_to_the_file_never_ends_in_another_error(filed):
    """Torn pages: a clear LedgerError, a reported problem, or no effect; nothing else."""
    path = Path(filed.place)
    whole = path.read_bytes()
    found = 0
    for place in range(24, len(whole), len(whole) // 60):
        damaged = bytearray(whole)
        damaged[place : place + 64] = b"\xff" * 64
        path.write_bytes(bytes(damaged))
        try:
            found += not Ledger.open(filed.place).verify().is_whole
        except LedgerError:
            found += 1
    assert found > 0


def test_a_ledger_that_never_had_a_head_file_needs_no_vouching(postgres, tmp_path):
    place = Home.at("postgresql", tmp_path, postgres).place
    Ledger.create(place, Budget(rho=1), "t", "add-remove").debit(COST, {}, "k")
    with pytest.raises(LedgerError, match="needs vouching"):
        Ledger.vouch(place)
    assert not Ledger.open(place).verify().head_file_checked


@pytest.mark.parametrize(
    ("sequence", "words"), [(0, "lacks its first record"), (10, "last record")]
)
def test_a_ledger_without_its_first_or_last_record_is_not_opened(ledger, home, sequence, words):
    assert home.open().verify().is_whole
    home.change("DELETE FROM sfumato_record WHERE sequence = ?", (sequence,))
    with pytest.raises(LedgerError, match=words):
        home.open().entries()
    if sequence:
        with pytest.raises(LedgerError, match=words):
            ledger.debit(COST, {}, "new")


def test_a_damaged_free_answer_is_not_kept_again(filed):
    paid = filed.entry("a")
    assert filed.keep("f", {"q": 4}, b"another", paid).answer == b"free f"
    Home(filed.place, None, "sqlite").change("UPDATE sfumato_free SET sequence = 1 WHERE key = 'f'")
    with pytest.raises(LedgerError, match="damaged"):
        filed.keep("f", {"q": 4}, b"another", paid)


@pytest.mark.parametrize("column", ["data", "salt"])
def test_a_state_that_is_no_bytes_is_damaged(filed, column):
    assert filed.state("s") == State("s", 2, b"more private")
    Home(filed.place, None, "sqlite").change(f"UPDATE sfumato_state SET {column} = 'a text'")
    with pytest.raises(LedgerError, match="private state of the ledger is damaged"):
        filed.state("s")
