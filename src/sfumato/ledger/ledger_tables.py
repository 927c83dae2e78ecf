# SPDX-License-Identifier: Apache-2.0
"""The tables of a ledger and every statement that touches them, for SQLite and PostgreSQL.

    sfumato_record      the chain of `sfumato.ledger.entries.Record` lines: the ledger itself
    sfumato_account     one row: the last record and the units spent; `advance` is one conditional
                        UPDATE, both check and debit, with a CHECK constraint as a second fence
    sfumato_request     which debit holds a key, and its stage
    sfumato_answer      the stored bytes of paid answers
    sfumato_free        the stored bytes of free answers
    sfumato_state       private states, with the salts of their hashes
    sfumato_allowance   the budgets of analysts and the units spent of them

Every table but the first is an index of the chain, or holds bytes whose hash is in it. What changes
a row names the old one in its WHERE clause: a row that is not as it was read, in the same
transaction, is never written over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sfumato.digest import canonical_json
from sfumato.errors import BudgetError, LedgerError
from sfumato.ledger.account import UNITS, Account
from sfumato.ledger.entries import Record, Sealed, Stage, State
from sfumato.privacy.budget import Budget, exact

if TYPE_CHECKING:
    from sfumato.ledger.store import Transaction

__all__ = [
    "DEFINITIONS",
    "FIRST",
    "AccountRow",
    "AllowanceRow",
    "FreeRow",
    "RequestRow",
    "account",
    "add_answers",
    "add_free",
    "add_records",
    "advance",
    "all_answers",
    "all_free",
    "all_records",
    "all_requests",
    "all_states",
    "allowances",
    "answer_with_record",
    "begin",
    "by_kind",
    "charges",
    "create",
    "debits",
    "drop_allowances",
    "free_data",
    "free_rows",
    "free_with_record",
    "move_allowances",
    "move_requests",
    "move_states",
    "record_at",
    "records_at",
    "requests",
    "reserved",
    "state_versions",
    "state_with_record",
]


@dataclass(frozen=True, slots=True)
class AccountRow:
    """The last record and the units spent."""

    sequence: int
    head: str
    spent: int
    total: int


@dataclass(frozen=True, slots=True)
class RequestRow:
    """The latest debit of a key; ``closed`` is the record that answered or burnt it."""

    key: str
    debit: int
    state: Stage
    closed: int | None


@dataclass(frozen=True, slots=True)
class FreeRow:
    """A free answer: the record that says so, and the bytes if they are new."""

    key: str
    sequence: int
    data: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class AllowanceRow:
    """What an analyst may spend and has spent."""

    analyst: str
    account: Account


def begin(transaction: Transaction, first: Record) -> None:
    """Write the first record and the account."""
    text = first.text()
    digest = Record.hash_of(text)
    add_records(transaction, [(first.sequence, digest, text)])
    transaction.change(
        "INSERT INTO sfumato_account (id, sequence, head, spent, total) VALUES (1, ?, ?, 0, ?)",
        (first.sequence, digest, UNITS),
    )


def account(transaction: Transaction) -> AccountRow:
    """Return the account row; a writer on PostgreSQL locks it until its transaction ends."""
    query = "SELECT sequence, head, spent, total FROM sfumato_account WHERE id = 1"
    row = transaction.row(query + transaction.locking)
    if row is None:
        raise LedgerError("the ledger has no account row; restore the newest backup")
    return AccountRow(*row)


def advance(
    transaction: Transaction, seen: AccountRow, sequence: int, head: str, spent: int
) -> bool:
    """Move the account to a later record, if nobody else did and the budget allows.

    Privacy: the UPDATE is the check and the debit at once; its WHERE clause compares the account
    with what was seen and the new total of units with the budget. False means nothing changed.
    """
    more = spent - seen.spent
    changed = transaction.change(
        "UPDATE sfumato_account SET sequence = ?, head = ?, spent = spent + ? "
        "WHERE id = 1 AND sequence = ? AND head = ? AND spent + ? <= total",
        (sequence, head, more, seen.sequence, seen.head, more),
    )
    return changed == 1


def add_records(transaction: Transaction, rows: Sequence[tuple[int, str, str]]) -> None:
    """Append (sequence, hash, text) of records."""
    transaction.change_many(
        "INSERT INTO sfumato_record (sequence, hash, text) VALUES (?, ?, ?)", rows
    )


def record_at(transaction: Transaction, sequence: int) -> tuple[str, str] | None:
    """Return (hash, text) of a record."""
    query = "SELECT hash, text FROM sfumato_record WHERE sequence = ?"
    row = transaction.row(query, (sequence,))
    return None if row is None else (str(row[0]), str(row[1]))


def all_records(transaction: Transaction) -> Iterator[tuple[int, str, str]]:
    """Yield (sequence, hash, text) of all records, oldest first."""
    query = "SELECT sequence, hash, text FROM sfumato_record ORDER BY sequence"
    for sequence, digest, text in transaction.stream(query):
        yield sequence, str(digest), str(text)


def records_after(
    transaction: Transaction, after: int, at_most: int
) -> Iterator[tuple[int, str, str]]:
    """Yield (sequence, hash, text) of the records that follow one, oldest first."""
    query = (
        "SELECT sequence, hash, text FROM sfumato_record WHERE sequence > ? ORDER BY sequence "
        "LIMIT ?"
    )
    for sequence, digest, text in transaction.rows(query, [after, at_most]):
        yield int(str(sequence)), str(digest), str(text)


def records_at(transaction: Transaction, places: Iterable[int]) -> list[tuple[str, str]]:
    """Return (hash, text) of some records, oldest first."""
    query = "SELECT sequence, hash, text FROM sfumato_record WHERE sequence IN (?)"
    rows = {row[0]: (str(row[1]), str(row[2])) for row in transaction.find(query, places)}
    return [rows[place] for place in sorted(rows)]


def debits(
    transaction: Transaction, after: int = 0, at_most: int | None = None, analyst: str | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (hash, text) of debits, oldest first.

    With an analyst these are all that may name it, and perhaps a few others: not the letters but
    the reader tells. ``at_most`` is heeded without an analyst only.
    """
    query = (
        "SELECT hash, text FROM sfumato_record WHERE sequence > ? AND text LIKE ? ESCAPE '!' "
        "ORDER BY sequence"
    )
    # Requests and names are strings within the line, so their quotation marks are escaped there.
    part = '"kind":"debited"' if analyst is None else f'"analyst":{canonical_json(analyst)}'
    for sign in "!%_":
        part = part.replace(sign, "!" + sign)
    values: list[object] = [after, f"%{part}%"]
    if at_most is not None and analyst is None:
        query, values = query + " LIMIT ?", [*values, at_most]
    for digest, text in transaction.rows(query, values):
        yield str(digest), str(text)


def charges(transaction: Transaction) -> Iterator[str]:
    """Yield the texts of all answers that charge their debit to an analyst, oldest first."""
    query = "SELECT text FROM sfumato_record WHERE text LIKE ? ORDER BY sequence"
    for (text,) in transaction.rows(query, ['%"charged":true%']):
        yield str(text)


def by_kind(transaction: Transaction, kinds: Iterable[str]) -> list[str]:
    """Return the texts of all records of some kinds, oldest first; reads the whole chain."""
    # Requests and names are strings within the line, so their quotation marks are escaped there.
    query = "SELECT sequence, text FROM sfumato_record WHERE text LIKE ?"
    rows = [row for kind in kinds for row in transaction.rows(query, [f'%"kind":"{kind}"%'])]
    return [str(text) for _, text in sorted(rows)]


def requests(transaction: Transaction, keys: Iterable[str]) -> Iterator[RequestRow]:
    """Yield the latest debits of these keys."""
    query = "SELECT key, debit, state, closed FROM sfumato_request WHERE key IN (?)"
    return (RequestRow(*row) for row in transaction.find(query, keys))


def all_requests(transaction: Transaction) -> Iterator[RequestRow]:
    """Yield the latest debit of every key."""
    query = "SELECT key, debit, state, closed FROM sfumato_request ORDER BY debit"
    return (RequestRow(*row) for row in transaction.stream(query))


def reserved(transaction: Transaction) -> list[RequestRow]:
    """Return the debits that wait for an answer."""
    query = "SELECT key, debit, state, closed FROM sfumato_request WHERE state = 'reserved'"
    return [RequestRow(*row) for row in transaction.rows(query)]


def move_requests(
    transaction: Transaction, moves: Sequence[tuple[RequestRow | None, RequestRow]]
) -> None:
    """Write the new rows of keys, only where the old ones are still there."""
    new = [(r.key, r.debit, r.state, r.closed) for old, r in moves if old is None]
    transaction.change_many(
        "INSERT INTO sfumato_request (key, debit, state, closed) VALUES (?, ?, ?, ?)", new
    )
    moved = [
        (r.debit, r.state, r.closed, old.key, old.debit, old.state)
        for old, r in moves
        if old is not None
    ]
    changed = transaction.change_many(
        "UPDATE sfumato_request SET debit = ?, state = ?, closed = ? "
        "WHERE key = ? AND debit = ? AND state = ?",
        moved,
    )
    _all_changed(changed, len(moved), "requests")


def add_answers(transaction: Transaction, rows: Sequence[tuple[int, bytes]]) -> None:
    """Store (debit, bytes) of paid answers."""
    transaction.change_many("INSERT INTO sfumato_answer (debit, data) VALUES (?, ?)", rows)


def answer_with_record(transaction: Transaction, key: str) -> tuple[bytes | None, str] | None:
    """Return the bytes of a paid answer and the record that says what they are."""
    row = transaction.row(
        "SELECT a.data, c.text FROM sfumato_request r "
        "LEFT JOIN sfumato_answer a ON a.debit = r.debit "
        "LEFT JOIN sfumato_record c ON c.sequence = r.closed "
        "WHERE r.key = ? AND r.state = 'answered'",
        (key,),
    )
    return None if row is None else (_bytes(row[0]), str(row[1]))


def all_answers(transaction: Transaction) -> Iterator[tuple[int, bytes | None]]:
    """Yield (debit, bytes) of all paid answers."""
    for debit, data in transaction.stream("SELECT debit, data FROM sfumato_answer"):
        yield debit, _bytes(data)


def free_rows(transaction: Transaction, keys: Iterable[str]) -> Iterator[FreeRow]:
    """Yield the free answers of these keys, without their bytes."""
    query = "SELECT key, sequence FROM sfumato_free WHERE key IN (?)"
    return (FreeRow(*row) for row in transaction.find(query, keys))


def add_free(transaction: Transaction, rows: Sequence[FreeRow]) -> None:
    """Store free answers."""
    transaction.change_many(
        "INSERT INTO sfumato_free (key, sequence, data) VALUES (?, ?, ?)",
        [(row.key, row.sequence, row.data) for row in rows],
    )


def free_data(transaction: Transaction, key: str) -> bytes | None:
    """Return the bytes of a free answer."""
    row = transaction.row("SELECT data FROM sfumato_free WHERE key = ?", (key,))
    return None if row is None else _bytes(row[0])


def free_with_record(transaction: Transaction, key: str) -> tuple[bytes | None, str] | None:
    """Return the bytes of a free answer and the record that says what they are."""
    row = transaction.row(
        "SELECT f.data, c.text FROM sfumato_free f "
        "LEFT JOIN sfumato_record c ON c.sequence = f.sequence WHERE f.key = ?",
        (key,),
    )
    return None if row is None else (_bytes(row[0]), str(row[1]))


def all_free(transaction: Transaction) -> Iterator[FreeRow]:
    """Yield all free answers."""
    for key, sequence, data in transaction.stream("SELECT key, sequence, data FROM sfumato_free"):
        yield FreeRow(key, sequence, _bytes(data))


def state_with_record(transaction: Transaction, name: str) -> tuple[Sealed, str] | None:
    """Return a private state and the record that says what it is."""
    row = transaction.row(
        "SELECT s.name, s.version, s.salt, s.data, c.text FROM sfumato_state s "
        "LEFT JOIN sfumato_record c ON c.sequence = s.sequence WHERE s.name = ?",
        (name,),
    )
    return None if row is None else (_sealed(*row[:4]), str(row[4]))


def all_states(transaction: Transaction) -> Iterator[tuple[int, Sealed]]:
    """Yield all private states, each with the number of the record that wrote it."""
    query = "SELECT sequence, name, version, salt, data FROM sfumato_state"
    for sequence, *row in transaction.rows(query):
        yield sequence, _sealed(*row)


def state_versions(transaction: Transaction, names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield (name, version) of these states."""
    query = "SELECT name, version FROM sfumato_state WHERE name IN (?)"
    return ((name, version) for name, version in transaction.find(query, names))


def move_states(transaction: Transaction, moves: Sequence[tuple[int, int, Sealed]]) -> None:
    """Write (old version, record, state); version 0 means there was none."""
    rows = [(old, (r, s.state.version, s.salt, s.state.data, s.state.name)) for old, r, s in moves]
    transaction.change_many(
        "INSERT INTO sfumato_state (sequence, version, salt, data, name) VALUES (?, ?, ?, ?, ?)",
        [row for old, row in rows if not old],
    )
    moved = [(*row, old) for old, row in rows if old]
    changed = transaction.change_many(
        "UPDATE sfumato_state SET sequence = ?, version = ?, salt = ?, data = ? "
        "WHERE name = ? AND version = ?",
        moved,
    )
    _all_changed(changed, len(moved), "states")


def allowances(
    transaction: Transaction, analysts: Iterable[str] | None = None
) -> Iterator[AllowanceRow]:
    """Yield the allowances of these analysts, or all."""
    query = "SELECT analyst, budget, spent, pure_spent FROM sfumato_allowance"
    if analysts is None:
        rows = transaction.rows(query + " ORDER BY analyst")
    else:
        rows = transaction.find(query + " WHERE analyst IN (?)", analysts)
    for analyst, budget, spent, pure_spent in rows:
        try:
            document = json.loads(budget)
            events = exact(document.pop("delta_spent", 0), "delta_spent")
            allowance = Budget.from_json(document)
        except (ValueError, TypeError, AttributeError, BudgetError):
            raise LedgerError(
                "an allowance of the ledger is damaged; restore the newest backup"
            ) from None
        yield AllowanceRow(analyst, Account(allowance, spent, pure_spent, events))


def _allowance_json(account: Account) -> str:
    """The budget of an allowance; with what events took of its delta, which had no column."""
    events = {"delta_spent": str(account.delta_spent)} if account.delta_spent else {}
    return canonical_json(account.budget.as_json() | events)


def move_allowances(
    transaction: Transaction, moves: Sequence[tuple[AllowanceRow | None, AllowanceRow]]
) -> None:
    """Write the new rows of analysts, only where the old ones are still there."""
    new = [
        (r.analyst, _allowance_json(r.account), r.account.spent, r.account.pure_spent)
        for old, r in moves
        if old is None
    ]  # fmt: skip
    transaction.change_many(
        "INSERT INTO sfumato_allowance (analyst, budget, spent, pure_spent) VALUES (?, ?, ?, ?)",
        new,
    )
    moved = [
        (_allowance_json(r.account), r.account.spent, r.account.pure_spent, r.analyst,
         old.account.spent)
        for old, r in moves
        if old is not None
    ]  # fmt: skip
    changed = transaction.change_many(
        "UPDATE sfumato_allowance SET budget = ?, spent = ?, pure_spent = ? "
        "WHERE analyst = ? AND spent = ?",
        moved,
    )
    _all_changed(changed, len(moved), "allowances")


def drop_allowances(transaction: Transaction, rows: Sequence[AllowanceRow]) -> None:
    """Delete the rows of analysts, only where they are still as they were read."""
    changed = transaction.change_many(
        "DELETE FROM sfumato_allowance WHERE analyst = ? AND spent = ?",
        [(row.analyst, row.account.spent) for row in rows],
    )
    _all_changed(changed, len(rows), "allowances")


def _all_changed(changed: int, rows: int, what: str) -> None:
    if changed != rows:
        raise LedgerError(f"{what} changed while they were locked; nothing was written; ask again")


def _bytes(value: object) -> bytes | None:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


def _sealed(name: object, version: object, salt: object, data: object) -> Sealed:
    salt_bytes, data_bytes = _bytes(salt), _bytes(data)
    if salt_bytes is None or data_bytes is None or not isinstance(version, int):
        raise LedgerError("a private state of the ledger is damaged; restore the newest backup")
    return Sealed(State(str(name), version, data_bytes), salt_bytes)


# Definitions of the tables

FIRST: Final = frozenset({"sfumato_record", "sfumato_account", "sfumato_request", "sfumato_answer"})
"""The tables that every ledger has had from the start."""

DEFINITIONS: Final = {
    "sfumato_record": """
        sequence BIGINT NOT NULL PRIMARY KEY,
        hash VARCHAR(64) NOT NULL,
        text TEXT NOT NULL""",
    "sfumato_account": """
        id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
        sequence BIGINT NOT NULL,
        head VARCHAR(64) NOT NULL,
        spent BIGINT NOT NULL,
        total BIGINT NOT NULL,
        CONSTRAINT never_overspent CHECK (spent >= 0 AND spent <= total)""",
    "sfumato_request": """
        key VARCHAR(200) NOT NULL PRIMARY KEY,
        debit BIGINT NOT NULL,
        state VARCHAR(8) NOT NULL,
        closed BIGINT""",
    "sfumato_answer": """
        debit BIGINT NOT NULL PRIMARY KEY,
        data {binary} NOT NULL""",
    "sfumato_free": """
        key VARCHAR(200) NOT NULL PRIMARY KEY,
        sequence BIGINT NOT NULL,
        data {binary} NOT NULL""",
    "sfumato_state": """
        name VARCHAR(200) NOT NULL PRIMARY KEY,
        version BIGINT NOT NULL,
        sequence BIGINT NOT NULL,
        salt {binary} NOT NULL,
        data {binary} NOT NULL""",
    "sfumato_allowance": """
        analyst VARCHAR(200) NOT NULL PRIMARY KEY,
        budget TEXT NOT NULL,
        spent BIGINT NOT NULL,
        pure_spent BIGINT""",
}


def create(transaction: Transaction, names: Iterable[str], binary: str) -> None:
    """Create some of the tables."""
    for name in sorted(names):
        columns = DEFINITIONS[name].replace("{binary}", binary)
        transaction.change(f"CREATE TABLE {name} ({columns})")
