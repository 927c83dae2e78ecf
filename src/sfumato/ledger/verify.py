# SPDX-License-Identifier: Apache-2.0
"""Proof that a ledger is whole: every record, every unit, every answer, checked again.

`verify` returns a `Verification`. It replays the chain from its first record (`Replay`) by the
rules that it must have kept: each debit is recomputed from its cost, for the table and for its
analyst, and each record must follow from those before it. What the chain says in the end is what
the tables and the head file must hold: the account, the requests, the answers, the states and the
allowances are compared with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sfumato.digest import sha256
from sfumato.errors import BudgetError, LedgerError
from sfumato.ledger import ledger_tables as tables
from sfumato.ledger.account import UNITS, Account
from sfumato.ledger.entries import (
    GENESIS,
    Allowed,
    Answered,
    Burnt,
    Changed,
    Commitment,
    Debited,
    Frozen,
    Kept,
    Opened,
    Record,
    Unfrozen,
    Withdrawn,
    entries_of,
    unit_of_debit,
)
from sfumato.ledger.transaction import account_of, chooses_between_filters
from sfumato.ledger.witness import LedgerWitness, WitnessLine
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost

if TYPE_CHECKING:
    from sfumato.domain.privacy_unit import Unit
    from sfumato.ledger.entries import Entry
    from sfumato.ledger.store import Store, Transaction

__all__ = [
    "Replay",
    "Verification",
    "verify",
]


@dataclass(slots=True)
class Replay:
    """The chain so far, what follows from it, and what is wrong with it."""

    budget: Budget
    account: Account
    chain: list[tuple[Record, str]] = field(default_factory=list)  # without free answers
    free: dict[str, tuple[int, str]] = field(default_factory=dict)  # by key: record, hash of bytes
    hashes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    states: dict[str, tuple[int, Commitment]] = field(default_factory=dict)
    allowances: dict[str, Account] = field(default_factory=dict)
    is_frozen: bool = False
    unit: Unit | None = None
    other_unit: list[int] = field(default_factory=list)  # older debits for another unit
    _is_bound: bool = False  # by a debit, not by the first record
    _all_costs: list[Cost] = field(default_factory=list)
    _total: Budget | None = None  # since the curator has changed it
    _totals: list[Budget] = field(default_factory=list)  # all there were
    _costs: dict[str, list[Cost]] = field(default_factory=dict)
    _of_nobody: dict[int, Cost] = field(default_factory=dict)  # debits that name no analyst
    _open: set[int] = field(default_factory=set)
    _paying: set[int] = field(default_factory=set)
    _held: dict[int, str] = field(default_factory=dict)
    _keys: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, str, str]], budget: Budget) -> Replay:
        """Replay (sequence, hash, text) of all records."""
        replay = cls(budget, Account(budget))
        replay._totals.append(budget)
        for row in rows:
            replay._follow(*row)
        return replay

    def _follow(self, sequence: int, digest: str, text: str) -> None:
        place, previous = len(self.hashes), self.hashes[-1] if self.hashes else GENESIS
        self.hashes.append(digest)
        try:
            record = Record.read(text)
            after = self._account_after(record)
            self.problems += [f"record {sequence}: {message}" for message in self._apply(record)]
        except (LedgerError, BudgetError) as error:
            self.problems.append(f"record {sequence}: {error}")
            return
        checks = {
            "place": (place, sequence),
            "number": (place, record.sequence),
            "previous hash": (previous, record.previous),
            "hash": (Record.hash_of(text), digest),
            "balance": (after.spent, record.spent),
            "pure balance": (after.pure_spent, record.pure_spent),
            "delta balance": (after.delta_spent, record.delta_spent),
            "frozen mark": (self.is_frozen, record.frozen),
        }
        if record.version >= 3:
            checks["bound unit"] = (self.unit if self._is_bound else None, record.unit)
            checks["total"] = (self._total, record.total)
        self.problems += [
            f"record {sequence}: its {part} is wrong"
            for part, (right, seen) in checks.items()
            if right != seen
        ]
        if after.is_overdrawn:
            self.problems.append(f"record {sequence}: more than the budget is spent")
        if isinstance(record.fact, Opened) != (place == 0):
            self.problems.append(f"record {sequence}: a ledger is opened by its first record only")
        if not isinstance(record.fact, Kept):  # of which there may be millions
            self.chain.append((record, digest))
        self.account = Account(self.budget, record.spent, record.pure_spent, record.delta_spent)

    def _account_after(self, record: Record) -> Account:
        fact = record.fact
        if isinstance(fact, Changed):
            self.budget = self._total = fact.budget
            after = account_of(fact.budget, self._all_costs)
            return Account(fact.budget).emptied() if after is None else after
        return self.account.plus(fact.cost) if isinstance(fact, Debited) else self.account

    def _apply(self, record: Record) -> Iterator[str]:
        """Take a record in; yield the rules that it breaks."""
        match record.fact:
            case Opened(unit=unit):
                self.unit = unit
            case Debited():
                yield from self._check_unit(record)
                yield from self._apply_debit(record.sequence, record.fact)
            case Answered(debit=debit):
                yield from self._close_debit(debit)
            case Burnt(debit=debit):
                yield from self._close_debit(debit)
                self._paying.discard(debit)
                self._keys.discard(self._held.get(debit, ""))
            case Kept():
                yield from self._apply_free_answer(record.sequence, record.fact)
            case Allowed(analyst, budget):
                self.allowances[analyst] = Account(budget).plus_all(self._costs.get(analyst, []))
            case Withdrawn(analyst):
                if self.allowances.pop(analyst, None) is None:
                    yield "it withdraws an allowance that was not given"
            case Changed(budget):
                before = self.account.budget
                if not (budget.is_within(before) or account_of(budget, self._all_costs)):
                    yield "what was spent does not fit into its total, which is not a lower one"
                if chooses_between_filters(self._totals, budget, self._all_costs):
                    yield "it chooses between two filters after Gaussian noise was spent"
                self._totals.append(budget)
            case Frozen() | Unfrozen():
                if self.is_frozen == isinstance(record.fact, Frozen):
                    yield "it freezes or unfreezes a ledger that is so already"
                self.is_frozen = isinstance(record.fact, Frozen)
        if isinstance(record.fact, Debited | Answered | Kept):
            for state in record.fact.states:
                held = self.states.get(state.name)
                if state.version != (0 if held is None else held[1].version) + 1:
                    yield f"it writes state {state.name!r} out of order"
                self.states[state.name] = (record.sequence, state)

    def _check_unit(self, record: Record) -> Iterator[str]:
        """Since version 3 a debit must be for the ledger's unit; older ones were not compared."""
        assert isinstance(record.fact, Debited)  # noqa: S101
        unit = unit_of_debit(record.fact)
        if self.unit is None:
            self.unit, self._is_bound = unit, unit is not None
        elif unit not in (None, self.unit):
            self.other_unit.append(record.sequence)
            if record.fact.unit is not None:
                yield "it is for another unit than the ledger's"

    def _apply_debit(self, sequence: int, fact: Debited) -> Iterator[str]:
        self._open.add(sequence)
        self._paying.add(sequence)
        self._held[sequence] = fact.key
        self._all_costs.append(fact.cost)
        yield from self._take_key(fact.key)
        if fact.analyst is None:
            self._of_nobody[sequence] = fact.cost
        else:
            yield from self._apply_charge(fact.analyst, fact.cost)

    def _apply_charge(self, analyst: str, cost: Cost) -> Iterator[str]:
        self._costs.setdefault(analyst, []).append(cost)
        allowance = self.allowances.get(analyst)
        if allowance is not None:
            self.allowances[analyst] = after = allowance.plus(cost)
            if after.is_overdrawn:
                yield "more than the allowance of its analyst is spent"

    def _apply_free_answer(self, sequence: int, fact: Kept) -> Iterator[str]:
        yield from self._take_key(fact.key)
        self.free[fact.key] = (sequence, fact.answer_sha256)
        if fact.debit not in self._paying:
            yield f"debit {fact.debit} does not pay for it"
        if fact.is_charged and fact.analyst is not None and fact.debit in self._of_nobody:
            yield from self._apply_charge(fact.analyst, self._of_nobody[fact.debit])

    def _take_key(self, key: str) -> Iterator[str]:
        if self.is_frozen:
            yield "it came while the ledger was frozen"
        if key in self._keys:
            yield "its key was used before and not burnt"
        self._keys.add(key)

    def _close_debit(self, debit: int) -> Iterator[str]:
        if debit not in self._open:
            yield f"it closes debit {debit}, which is not open"
        self._open.discard(debit)


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


def verify(store: Store, witness: LedgerWitness | None, budget: Budget) -> Verification:
    """Replay the chain; raise `LedgerError` only if the ledger is behind its head file."""
    lines = [] if witness is None else list(witness.all())
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
    _check_witness(lines, replay.hashes, store.name)
    if witness is not None and not lines and len(replay.hashes) > 1:
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
        head_file_checked=bool(lines),
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
    hashes = {e.sequence: e.answer_sha256 for e in entries if e.state == "answered"}
    for debit, data in tables.all_answers(transaction):
        if debit not in hashes:
            yield f"answer {debit}: no record says that it was stored"
        elif hashes.pop(debit) != _hash(data):
            yield f"answer {debit}: its bytes changed"
    for debit in hashes:
        yield f"answer {debit}: it is missing"


def _check_free(transaction: Transaction, replay: Replay) -> Iterator[str]:
    recorded = dict(replay.free)
    for row in tables.all_free(transaction):
        if row.key not in recorded:
            yield f"free answer {row.sequence}: no record says that it was stored"
        elif recorded.pop(row.key) != (row.sequence, _hash(row.data)):
            yield f"free answer {row.sequence}: its record or its bytes changed"
    for sequence, _ in recorded.values():
        yield f"free answer {sequence}: it is missing"


def _check_states(transaction: Transaction, replay: Replay) -> Iterator[str]:
    recorded = dict(replay.states)
    for sequence, sealed in tables.all_states(transaction):
        expected = recorded.pop(sealed.state.name, None)
        if expected is None:
            yield f"state {sealed.state.name!r}: no record says that it was written"
        elif expected != (sequence, sealed.commitment):
            yield f"state {sealed.state.name!r}: its record, version or bytes changed"
    for name in recorded:
        yield f"state {name!r}: it is missing"


def _check_allowances(transaction: Transaction, replay: Replay) -> Iterator[str]:
    recorded = dict(replay.allowances)
    for row in tables.allowances(transaction):
        account = recorded.pop(row.analyst, None)
        if account is None:
            yield f"allowance of {row.analyst!r}: no record says that it was given"
        elif account != row.account:
            yield f"allowance of {row.analyst!r}: its budget or the units spent changed"
    for analyst in recorded:
        yield f"allowance of {analyst!r}: it is missing"


def _hash(data: bytes | None) -> str | None:
    return None if data is None else sha256(data)


def _check_witness(lines: list[WitnessLine], hashes: list[str], name: str) -> None:
    for line in lines:
        if line.sequence >= len(hashes) or hashes[line.sequence] != line.hash:
            raise LedgerError(
                f"the ledger {name} is behind its head file: record {line.sequence} is missing or "
                "different, so an older copy was restored; restore the newest one"
            )
