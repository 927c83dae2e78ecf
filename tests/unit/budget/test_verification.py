# SPDX-License-Identifier: Apache-2.0
"""Tampering, rollback and damage: what verify and open must notice."""

from __future__ import annotations

import shutil
import sqlite3
from fractions import Fraction
from pathlib import Path

import pytest

from sfumato.budget import Budget, Cost, Ledger
from sfumato.budget.entries import Record
from sfumato.errors import LedgerError

COST = Cost.gaussian(Fraction(1, 100))


@pytest.fixture
def ledger(tmp_path):
    made = Ledger.create(tmp_path / "t.ledger", Budget(rho=1), "table", "replace-one")
    made.store(made.debit(COST, {"q": 1}, "a"), b"answer a")
    made.burn(made.debit(COST, {"q": 2}, "b"))
    made.store(made.debit(COST, {"q": 2}, "b"), b"answer b")
    made.debit(COST, {"q": 3}, "c")
    return made


def change(ledger, statement, values=()):
    connection = sqlite3.connect(ledger.place, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")  # an attacker need not be durable
    connection.execute(statement, values)
    connection.close()


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
    # opened; debit, answer; debit, burn; debit, answer; debit.
    assert (report.records, report.answered, report.burnt, report.reserved) == (8, 2, 1, 1)
    # 4 debits of rho 1/200.
    assert Fraction(report.spent_units, report.total_units) == Fraction(4, 200)


def test_a_change_of_any_byte_of_an_entry_is_found(ledger):
    for sequence in (1, 2, 4):
        connection = sqlite3.connect(ledger.place)
        query = "SELECT text FROM sfumato_record WHERE sequence = ?"
        (text,) = connection.execute(query, (sequence,)).fetchone()
        connection.close()
        update = "UPDATE sfumato_record SET text = ? WHERE sequence = ?"
        for place, letter in enumerate(text):
            other = "0" if letter != "0" else "1"
            change(ledger, update, (text[:place] + other + text[place + 1 :], sequence))
            assert noticed(ledger), (sequence, place)
        change(ledger, update, (text, sequence))
    assert ledger.verify().is_whole


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sfumato_record SET hash = replace(hash, 'a', 'b')",
        "DELETE FROM sfumato_record WHERE sequence = 3",
        "DELETE FROM sfumato_record WHERE sequence = 7",
        "DELETE FROM sfumato_record",
        "UPDATE sfumato_record SET sequence = 99 WHERE sequence = 7",
        "UPDATE sfumato_account SET spent = spent - 1",
        "UPDATE sfumato_account SET total = total + 1",
        "UPDATE sfumato_account SET head = replace(head, substr(head, 1, 1), 'x')",
        "UPDATE sfumato_account SET sequence = 6",
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
    ],
)
def test_every_change_behind_the_ledger_is_found(ledger, statement):
    assert not noticed(ledger)
    change(ledger, statement)
    assert noticed(ledger)


def test_a_damaged_answer_is_not_served(ledger):
    change(ledger, "UPDATE sfumato_answer SET data = x'00' WHERE debit = 1")
    with pytest.raises(LedgerError, match="damaged"):
        ledger.answer("a")


def test_a_chain_written_anew_with_right_hashes_is_found_by_the_head_file(ledger):
    """An attacker may recompute every hash, but not the line the head file already has."""
    connection = sqlite3.connect(ledger.place)
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
        ledger.verify()
    with pytest.raises(LedgerError, match="behind its head file"):
        Ledger.open(ledger.place)


def test_a_debit_that_took_too_few_units_is_found_even_if_all_hashes_are_right(ledger):
    """Whoever forges chain, account and head file still has to explain the cost."""
    connection = sqlite3.connect(ledger.place)
    query = "SELECT text, hash FROM sfumato_record WHERE sequence = 7"
    text, digest = connection.execute(query).fetchone()
    record = Record.read(text)
    forged = text.replace(f'"spent":{record.spent}', f'"spent":{record.spent - 1}')
    head = Record.hash_of(forged)
    with connection:
        connection.execute(
            "UPDATE sfumato_record SET text = ?, hash = ? WHERE sequence = 7", (forged, head)
        )
        connection.execute("UPDATE sfumato_account SET head = ?, spent = spent - 1", (head,))
    connection.close()
    witness = Path(ledger.place + ".head")
    witness.write_text(witness.read_text().replace(digest, head))
    assert Ledger.open(ledger.place).verify().problems == ("record 7: its balance is wrong",)


def test_restoring_an_older_copy_is_refused_by_open_debit_and_verify(ledger, tmp_path):
    old = tmp_path / "backup"
    shutil.copy(ledger.place, old)
    ledger.debit(COST, {"q": 9}, "later")
    shutil.copy(old, ledger.place)
    for attempt in (
        lambda: Ledger.open(ledger.place),
        lambda: ledger.debit(COST, {}, "again"),
        ledger.verify,
        ledger.remaining,
    ):
        with pytest.raises(LedgerError, match="behind its head file"):
            attempt()


def test_without_the_head_file_the_same_rollback_would_go_unnoticed(ledger, tmp_path):
    """The twin of the test above: it is the head file that notices."""
    shutil.copy(ledger.place, tmp_path / "backup")
    head = tmp_path / "t.ledger.head"
    before = head.read_bytes()
    ledger.debit(COST, {"q": 9}, "later")
    shutil.copy(tmp_path / "backup", ledger.place)
    head.write_bytes(before)
    assert Ledger.open(ledger.place).verify().is_whole


def test_a_ledger_that_is_ahead_of_its_head_file_opens(ledger, tmp_path):
    """A crash between commit and head line leaves this state."""
    head = tmp_path / "t.ledger.head"
    lines = head.read_text().splitlines(keepends=True)
    head.write_text("".join(lines[:-1]) + lines[-1][:20])  # a torn last line
    reopened = Ledger.open(ledger.place)
    reopened.debit(COST, {}, "next")
    assert reopened.verify().is_whole
    assert head.read_text().splitlines()[-1].startswith("8 ")


def test_a_lost_head_file_is_refused_until_the_curator_vouches(ledger, tmp_path):
    head = tmp_path / "t.ledger.head"
    with pytest.raises(LedgerError, match="open it"):
        Ledger.vouch(ledger.place)
    head.unlink()
    for attempt in (lambda: Ledger.open(ledger.place), lambda: ledger.debit(COST, {}, "x")):
        with pytest.raises(LedgerError, match=r"Ledger\.vouch"):
            attempt()
    assert "the head file is missing or empty" in ledger.verify().problems
    assert Ledger.vouch(ledger.place).verify().is_whole
    assert ledger.answer("a") == b"answer a"


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


def test_a_record_of_a_newer_version_is_refused_with_advice(ledger):
    change(
        ledger, "UPDATE sfumato_record SET text = replace(text, '\"version\":2', '\"version\":3')"
    )
    with pytest.raises(LedgerError, match="newer sfumato"):
        Ledger.open(ledger.place)


def test_random_damage_to_the_file_never_ends_in_another_error(ledger):
    """Torn pages: a clear LedgerError, a reported problem, or no effect; nothing else."""
    path = Path(ledger.place)
    whole = path.read_bytes()
    found = 0
    for place in range(24, len(whole), len(whole) // 60):
        damaged = bytearray(whole)
        damaged[place : place + 64] = b"\xff" * 64
        path.write_bytes(bytes(damaged))
        try:
            found += not Ledger.open(ledger.place).verify().is_whole
        except LedgerError:
            found += 1
    assert found > 0
