# SPDX-License-Identifier: Apache-2.0
"""Proof that a ledger is whole: every record, every unit, every answer, checked again.

`verify` replays the chain from its first record (`replay.py`) and compares the account, the
requests, the answers, the states, the allowances and the head file with what the chain says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sfumato.budget import tables
from sfumato.budget.account import UNITS
from sfumato.budget.entries import GENESIS, Answered, Burnt, entries_of, sha256
from sfumato.budget.head import Head, Witness
from sfumato.budget.replay import Replay
from sfumato.errors import LedgerError

if TYPE_CHECKING:
    from sfumato.budget.budget import Budget
    from sfumato.budget.entries import Entry
    from sfumato.budget.store import Store, Transaction
    from sfumato.domain.unit import Unit

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
    free: int = 0
    states: int = 0
    is_frozen: bool = False
    unit: Unit | None = None
    other_unit: tuple[int, ...] = ()  # debits of older versions that were made for another unit

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing, changed or overspent."""
        return not self.problems


def verify(store: Store, witness: Witness | None, budget: Budget) -> Verification:
    """Replay the chain; raise `LedgerError` only if the ledger is behind its head file."""
    heads = [] if witness is None else list(witness.all())
    with store.reading() as transaction:
        replay = Replay.of(tables.all_records(transaction), budget)
        entries = entries_of(replay.chain)
        problems = [
            *replay.problems,
            *_check_account(transaction, replay),
            *_check_requests(transaction, replay, entries),
            *_check_answers(transaction, entries),
            *_check_free(transaction, replay),
            *_check_states(transaction, replay),
            *_check_allowances(transaction, replay),
        ]
    _check_heads(heads, replay.hashes, store.name)
    if witness is not None and not heads and len(replay.hashes) > 1:
        problems.append("the head file is missing or empty")
    stages = [entry.state for entry in entries]
    return Verification(
        records=len(replay.hashes),
        answered=stages.count("answered"),
        reserved=stages.count("reserved"),
        burnt=stages.count("burnt"),
        spent_units=replay.account.spent,
        total_units=UNITS,
        head=replay.hashes[-1] if replay.hashes else GENESIS,
        head_file_checked=bool(heads),
        problems=tuple(problems),
        free=len(replay.free),
        states=len(replay.states),
        is_frozen=replay.is_frozen,
        unit=replay.unit,
        other_unit=tuple(replay.other_unit),
    )


def _check_account(transaction: Transaction, replay: Replay) -> Iterator[str]:
    row = tables.account(transaction)
    hashes = replay.hashes
    if not replay.chain or (row.sequence, row.head) != (len(hashes) - 1, hashes[-1]):
        yield "the account does not point to the last record"
    if replay.chain and row.spent != replay.account.spent:
        yield "the units spent in the account are not those of the last record"
    if row.total != UNITS:
        yield "the total units of the account are wrong"


def _check_requests(
    transaction: Transaction, replay: Replay, entries: tuple[Entry, ...]
) -> Iterator[str]:
    closing = {
        record.fact.debit: record.sequence
        for record, _ in replay.chain
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


def _check_answers(transaction: Transaction, entries: tuple[Entry, ...]) -> Iterator[str]:
    wanted = {e.sequence: e.answer_sha256 for e in entries if e.state == "answered"}
    for debit, data in tables.all_answers(transaction):
        if debit not in wanted:
            yield f"answer {debit}: no record says that it was stored"
        elif wanted.pop(debit) != _hash(data):
            yield f"answer {debit}: its bytes changed"
    for debit in wanted:
        yield f"answer {debit}: it is missing"


def _check_free(transaction: Transaction, replay: Replay) -> Iterator[str]:
    wanted = dict(replay.free)
    for row in tables.all_free(transaction):
        if row.key not in wanted:
            yield f"free answer {row.sequence}: no record says that it was stored"
        elif wanted.pop(row.key) != (row.sequence, _hash(row.data)):
            yield f"free answer {row.sequence}: its record or its bytes changed"
    for sequence, _ in wanted.values():
        yield f"free answer {sequence}: it is missing"


def _check_states(transaction: Transaction, replay: Replay) -> Iterator[str]:
    wanted = dict(replay.states)
    for sequence, sealed in tables.all_states(transaction):
        known = wanted.pop(sealed.state.name, None)
        if known is None:
            yield f"state {sealed.state.name!r}: no record says that it was written"
        elif known != (sequence, sealed.commitment):
            yield f"state {sealed.state.name!r}: its record, version or bytes changed"
    for name in wanted:
        yield f"state {name!r}: it is missing"


def _check_allowances(transaction: Transaction, replay: Replay) -> Iterator[str]:
    wanted = dict(replay.allowances)
    for row in tables.allowances(transaction):
        account = wanted.pop(row.analyst, None)
        if account is None:
            yield f"allowance of {row.analyst!r}: no record says that it was given"
        elif account != row.account:
            yield f"allowance of {row.analyst!r}: its budget or the units spent changed"
    for analyst in wanted:
        yield f"allowance of {analyst!r}: it is missing"


def _hash(data: bytes | None) -> str | None:
    return None if data is None else sha256(data)


def _check_heads(heads: list[Head], hashes: list[str], name: str) -> None:
    for head in heads:
        if head.sequence >= len(hashes) or hashes[head.sequence] != head.hash:
            raise LedgerError(
                f"the ledger {name} is behind its head file: record {head.sequence} is missing or "
                "different, so an older copy was restored; restore the newest one"
            )
