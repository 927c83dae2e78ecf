# SPDX-License-Identifier: Apache-2.0
"""Proof that a ledger is whole: every record, every unit, every answer, checked again.

`verify` replays the chain from its first record, recomputes each debit from its cost, and
compares the account, the requests, the answers and the head file with what the chain says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sfumato.budget import tables
from sfumato.budget.account import UNITS, Account
from sfumato.budget.entries import (
    GENESIS,
    Answered,
    Burnt,
    Debited,
    Entry,
    Opened,
    Record,
    entries_of,
    sha256,
)
from sfumato.budget.head import Head, Witness
from sfumato.errors import BudgetError, LedgerError

if TYPE_CHECKING:
    from sfumato.budget.budget import Budget
    from sfumato.budget.store import Store, Transaction

__all__ = ["Verification", "verify"]


@dataclass(frozen=True, slots=True)
class Verification:
    """What a replay of a ledger found; no ``problems`` means it is whole."""

    records: int
    answered: int
    reserved: int
    burnt: int
    spent_units: int
    total_units: int
    head: str
    head_file_checked: bool
    problems: tuple[str, ...] = field(default=())

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing, changed or overspent."""
        return not self.problems


def verify(store: Store, witness: Witness | None, budget: Budget) -> Verification:
    """Replay the chain; raise `LedgerError` only if the ledger is behind its head file."""
    heads = [] if witness is None else list(witness.all())
    with store.reading() as transaction:
        chain, hashes, problems = _replay(transaction, budget)
        entries = entries_of(chain)
        problems += _check_account(transaction, chain, hashes)
        problems += _check_requests(transaction, chain, entries)
        problems += _check_answers(transaction, entries)
    _check_heads(heads, hashes, store.name)
    if witness is not None and not heads and len(hashes) > 1:
        problems.append("the head file is missing or empty")
    states = [entry.state for entry in entries]
    return Verification(
        records=len(hashes),
        answered=states.count("answered"),
        reserved=states.count("reserved"),
        burnt=states.count("burnt"),
        spent_units=chain[-1][0].spent if chain else 0,
        total_units=UNITS,
        head=hashes[-1] if hashes else GENESIS,
        head_file_checked=bool(heads),
        problems=tuple(problems),
    )


def _replay(
    transaction: Transaction, budget: Budget
) -> tuple[list[tuple[Record, str]], list[str], list[str]]:
    """Read the chain and recompute the account after each record."""
    chain: list[tuple[Record, str]] = []
    hashes: list[str] = []
    problems: list[str] = []
    previous, account, open_debits = GENESIS, Account(budget), set[int]()
    for place, (sequence, digest, text) in enumerate(tables.all_records(transaction)):
        hashes.append(digest)
        try:
            record = Record.read(text)
            after = _account_after(account, record, open_debits)
        except (LedgerError, BudgetError) as error:
            problems.append(f"record {sequence}: {error}")
            previous = digest
            continue
        named = (place, place, previous, Record.hash_of(text), after.spent, after.pure_spent)
        found = (
            sequence,
            record.sequence,
            record.previous,
            digest,
            record.spent,
            record.pure_spent,
        )
        words = ("place", "number", "previous hash", "hash", "balance", "pure balance")
        problems += [
            f"record {sequence}: its {word} is wrong"
            for word, right, seen in zip(words, named, found, strict=True)
            if right != seen
        ]
        if after.is_overdrawn:
            problems.append(f"record {sequence}: more than the budget is spent")
        if isinstance(record.fact, Opened) != (place == 0):
            problems.append(f"record {sequence}: a ledger is opened by its first record only")
        chain.append((record, digest))
        previous, account = digest, Account(budget, record.spent, record.pure_spent)
    return chain, hashes, problems


def _account_after(account: Account, record: Record, open_debits: set[int]) -> Account:
    """The account after a record; a debit is closed at most once and only if it is open."""
    match record.fact:
        case Debited(cost=cost):
            open_debits.add(record.sequence)
            return account.plus(cost)
        case Answered(debit=debit) | Burnt(debit=debit):
            if debit not in open_debits:
                raise LedgerError(f"it closes debit {debit}, which is not open")
            open_debits.remove(debit)
    return account


def _check_account(
    transaction: Transaction, chain: list[tuple[Record, str]], hashes: list[str]
) -> Iterator[str]:
    row = tables.account(transaction)
    if not chain or (row.sequence, row.head) != (len(hashes) - 1, hashes[-1]):
        yield "the account does not point to the last record"
    if chain and row.spent != chain[-1][0].spent:
        yield "the units spent in the account are not those of the last record"
    if row.total != UNITS:
        yield "the total units of the account are wrong"


def _check_requests(
    transaction: Transaction, chain: list[tuple[Record, str]], entries: tuple[Entry, ...]
) -> Iterator[str]:
    closing = {
        record.fact.debit: record.sequence
        for record, _ in chain
        if isinstance(record.fact, Answered | Burnt)
    }
    latest = {entry.key: entry for entry in entries}  # a key may come again after a burnt debit
    for row in tables.all_requests(transaction):
        entry = latest.pop(row.key, None)
        if entry is None:
            yield f"request {row.debit}: no record names its key"
        elif (row.debit, row.state, row.closed) != (
            entry.sequence,
            entry.state,
            closing.get(entry.sequence),
        ):
            yield f"request {row.debit}: its state is not that of its record"
    for entry in latest.values():
        yield f"record {entry.sequence}: its request is missing"
    held: set[str] = set()
    for entry in entries:
        if entry.key in held:
            yield f"record {entry.sequence}: its key was debited before and not burnt"
        if entry.state != "burnt":
            held.add(entry.key)


def _check_answers(transaction: Transaction, entries: tuple[Entry, ...]) -> Iterator[str]:
    wanted = {e.sequence: e.answer_sha256 for e in entries if e.state == "answered"}
    for debit, data in tables.all_answers(transaction):
        if debit not in wanted:
            yield f"answer {debit}: no record says that it was stored"
        elif data is None or wanted.pop(debit) != sha256(data):
            yield f"answer {debit}: its bytes changed"
    for debit in wanted:
        yield f"answer {debit}: it is missing"


def _check_heads(heads: list[Head], hashes: list[str], name: str) -> None:
    for head in heads:
        if head.sequence >= len(hashes) or hashes[head.sequence] != head.hash:
            raise LedgerError(
                f"the ledger {name} is behind its head file: record {head.sequence} is missing or "
                "different, so an older copy was restored; restore the newest one"
            )
