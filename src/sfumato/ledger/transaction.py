# SPDX-License-Identifier: Apache-2.0
"""The transactions of a ledger: which changes there are, how they share a commit, how it is made.

    `GroupCommit`   callers that come while a transaction is under way share the next one
    `RecordChain`   makes the transaction: append records, witness the last in the head file
    `WriteBatch`    the ledger as the changes of the transaction see it, and what they have added
    `debit`, `close`, `keep`, `allow`, ...   the changes, each one function of a batch

`sfumato.ledger.ledger` submits changes. A change first checks everything, raising with nothing
added, and only then appends. What it reads it reads from the batch, so that changes which share a
transaction see each other. The order of these steps is what the proofs in ``docs/proofs/ledger.md``
rest on.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from sfumato.domain.privacy_unit import Unit, protects_alike, unit_in_words
from sfumato.errors import (
    BudgetError,
    BudgetExhausted,
    KeyHeld,
    LedgerError,
    LedgerFrozen,
    SfumatoError,
    StateChanged,
)
from sfumato.ledger import ledger_tables as tables
from sfumato.ledger.account import UNITS, Account
from sfumato.ledger.entries import (
    EVENTS_VERSION,
    GENESIS,
    RENEWAL_VERSION,
    VERSION,
    Allowed,
    Answered,
    Burnt,
    Changed,
    Debited,
    Entry,
    Fact,
    Frozen,
    Kept,
    KeptAnswer,
    Opened,
    Record,
    Renewed,
    Sealed,
    Stage,
    Unfrozen,
    Vouched,
    Withdrawn,
    entries_of,
    unit_of_debit,
)
from sfumato.ledger.ledger_limits import LIMITS
from sfumato.ledger.ledger_tables import AccountRow, AllowanceRow, FreeRow, RequestRow
from sfumato.ledger.store import LedgerWitness, Store, Transaction, WitnessLine, is_gone, open_store
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost

__all__ = [
    "Clock",
    "GroupCommit",
    "Pending",
    "RecordChain",
    "WriteBatch",
    "account_of",
    "allow",
    "allow_first",
    "bound_unit",
    "burn_lost",
    "check_unit_is",
    "chooses_between_filters",
    "close",
    "debit",
    "keep",
    "renew",
    "set_frozen",
    "set_total",
    "vouch",
    "withdraw",
]


# The batch of one transaction

Row = TypeVar("Row")


class _Rows(Generic[Row]):
    """Rows of one table by key: as they were, and as they are now."""

    __slots__ = ("_before", "_load", "_now")

    def __init__(self, load: Callable[[Iterable[str]], Iterable[tuple[str, Row]]]) -> None:
        self._load = load
        self._before: dict[str, Row | None] = {}
        self._now: dict[str, Row | None] = {}

    def load(self, keys: Iterable[str]) -> None:
        """Read many rows with one statement."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._before]
        if missing:
            self._before |= dict.fromkeys(missing) | dict(self._load(missing))

    def get(self, key: str) -> Row | None:
        if key in self._now:
            return self._now[key]
        if key not in self._before:
            self.load([key])
        return self._before[key]

    def put(self, key: str, row: Row) -> None:
        self.load([key])
        self._now[key] = row

    def drop(self, key: str) -> None:
        self.load([key])
        self._now[key] = None

    def moves(self) -> Iterator[tuple[Row | None, Row]]:
        return ((self._before[key], row) for key, row in self._now.items() if row is not None)

    def dropped(self) -> Iterator[Row]:
        """Rows that were there and are not any more."""
        before = (self._before[key] for key, row in self._now.items() if row is None)
        return (row for row in before if row is not None)


class WriteBatch:
    """The ledger as the changes of one transaction see it, with what they have added so far.

    Each change must see those before it although nothing is written yet: the account after their
    debits, the keys they took, the states and allowances they moved. So whatever is read is read
    through the batch; at the end `write` brings all of it to the tables at once, the account by one
    conditional UPDATE. Made by `RecordChain.commit`.
    """

    __slots__ = (
        "_allowances", "_answers", "_free", "_head", "_pending", "_requests", "_seen", "_sequence",
        "_states", "_time", "_transaction", "account", "bound", "is_frozen", "opened",
        "total",
    )  # fmt: skip

    def __init__(
        self,
        transaction: Transaction,
        seen: AccountRow,
        last: Record,
        opened: Opened,
        account: Account,
        time: str,
    ) -> None:
        self._transaction = transaction
        self._seen = seen
        self._time = time
        self._sequence, self._head = seen.sequence, seen.head
        self.account = account
        self.opened = opened
        self.bound = bound_unit(transaction, opened, last)
        self.total = last.total
        self.is_frozen = last.frozen
        self._pending: list[tuple[int, str, str]] = []
        self._answers: list[tuple[int, bytes]] = []
        self._requests: _Rows[RequestRow] = _Rows(
            lambda keys: ((row.key, row) for row in tables.requests(transaction, keys))
        )
        self._free: _Rows[FreeRow] = _Rows(
            lambda keys: ((row.key, row) for row in tables.free_rows(transaction, keys))
        )
        self._states: _Rows[int | tuple[int, Sealed]] = _Rows(
            lambda names: tables.state_versions(transaction, names)
        )
        self._allowances: _Rows[AllowanceRow] = _Rows(
            lambda names: ((row.analyst, row) for row in tables.allowances(transaction, names))
        )

    @property
    def unit(self) -> Unit | None:
        """The unit that debits must be for; None before the first debit that names one."""
        return self.bound if self.opened.unit is None else self.opened.unit

    @property
    def last(self) -> int:
        """The number of the last record, also of one that was just added."""
        return self._sequence

    @property
    def length(self) -> int:
        """How many records were added."""
        return len(self._pending)

    def look_up(self, keys: Sequence[str]) -> None:
        """Read the rows of many keys at once; without it each is read when it is needed."""
        self._requests.load(keys)
        self._free.load(keys)

    def request(self, key: str) -> RequestRow | None:
        """Return the latest debit of a key."""
        return self._requests.get(key)

    def free(self, key: str) -> FreeRow | None:
        """Return the free answer of a key."""
        return self._free.get(key)

    def free_data(self, row: FreeRow) -> bytes | None:
        """Return the bytes of a free answer."""
        return row.data if row.data is not None else tables.free_data(self._transaction, row.key)

    def state_version(self, name: str) -> int:
        """Return the version of a private state; 0 if there is none."""
        held = self._states.get(name)
        return held[1].state.version if isinstance(held, tuple) else held or 0

    def allowance(self, analyst: str) -> AllowanceRow | None:
        """Return the allowance of an analyst."""
        return self._allowances.get(analyst)

    def record(self, sequence: int) -> Record | None:
        """Return a record, also one that was just added."""
        first = self._seen.sequence + 1
        if sequence >= first:
            return Record.read(self._pending[sequence - first][2])
        row = tables.record_at(self._transaction, sequence)
        return None if row is None else Record.read(row[1])

    def debits_of(self, analyst: str | None) -> Iterator[Debited]:
        """Yield all debits that name an analyst, or all there are, oldest first."""
        texts = [text for _, text in tables.debits(self._transaction, analyst=analyst)]
        texts += [text for _, _, text in self._pending]
        for text in texts:
            fact = Record.read(text).fact
            if isinstance(fact, Debited) and analyst in (None, fact.analyst):
                yield fact

    def texts(self, *kinds: str) -> list[str]:
        """Return the records of some kinds that there were, and all that were added, in order."""
        texts = tables.by_kind(self._transaction, kinds)
        return [*texts, *(text for _, _, text in self._pending)]

    def totals(self) -> list[Budget]:
        """Return all totals that the ledger has had, oldest first."""
        facts = [Record.read(text).fact for text in self.texts("changed")]
        changed = [fact.budget for fact in facts if isinstance(fact, Changed)]
        return [self.opened.budget, *changed]

    def costs_of(self, analyst: str) -> Iterator[Cost]:
        """Yield what was charged to an analyst, by a debit or by the answer that it paid for."""
        texts = [text for _, text in tables.debits(self._transaction, analyst=analyst)]
        texts += [text for _, _, text in self._pending]
        for text in texts:
            fact = Record.read(text).fact
            if isinstance(fact, Debited) and fact.analyst == analyst:
                yield fact.cost
            elif isinstance(fact, Kept) and fact.is_charged and fact.analyst == analyst:
                record = self.record(fact.debit)
                paid = None if record is None else record.fact
                if isinstance(paid, Debited) and paid.analyst is None:
                    yield paid.cost

    def append(
        self,
        fact: Fact,
        *,
        account: Account | None = None,
        allowance: AllowanceRow | None = None,
        answer: bytes | None = None,
        states: Sequence[Sealed] = (),
    ) -> tuple[Record, str]:
        """Add a record with all that goes with it; return it and its hash.

        Everything was checked before: a change appends only when nothing can refuse any more.
        """
        if account is not None:
            self.account = account
        if isinstance(fact, Frozen | Unfrozen):
            self.is_frozen = isinstance(fact, Frozen)
        if isinstance(fact, Debited) and self.unit is None:
            self.bound = unit_of_debit(fact)
        if isinstance(fact, Changed):
            self.total = fact.budget
        record = Record(
            sequence=self._sequence + 1,
            time=self._time,
            previous=self._head,
            spent=self.account.spent,
            pure_spent=self.account.pure_spent,
            fact=fact,
            frozen=self.is_frozen,
            unit=self.bound,
            total=self.total,
            version=_version(fact, self.account),
            delta_spent=self.account.delta_spent,
        )
        text = record.text()
        digest = Record.hash_of(text)
        self._pending.append((record.sequence, digest, text))
        self._sequence, self._head = record.sequence, digest
        self._index(record, answer)
        if allowance is not None:
            self._allowances.put(allowance.analyst, allowance)
        for sealed in states:
            self._states.put(sealed.state.name, (record.sequence, sealed))
        return record, digest

    def _index(self, record: Record, answer: bytes | None) -> None:
        """Bring the rows of requests and answers up to a record."""
        place = record.sequence
        match record.fact:
            case Debited(key=key):
                self._requests.put(key, RequestRow(key, place, "reserved", None))
            case Kept(key=key):
                self._free.put(key, FreeRow(key, place, answer))
            case Answered(debit=debit):
                self._close(debit, "answered", place)
                self._answers.append((debit, answer or b""))
            case Burnt(debit=debit):
                self._close(debit, "burnt", place)
            case Withdrawn(analyst=analyst):
                self._allowances.drop(analyst)
            case _:
                pass

    def _close(self, debit: int, stage: Stage, place: int) -> None:
        opened = self.record(debit)
        if opened is None or not isinstance(opened.fact, Debited):
            raise LedgerError(f"debit {debit} is not in the chain; verify the ledger")
        key = opened.fact.key
        held = self._requests.get(key)
        if held is None or (held.debit, held.state) != (debit, "reserved"):
            raise LedgerError(f"debit {debit} is not reserved any more; nothing was written")
        self._requests.put(key, replace(held, state=stage, closed=place))

    def write(self) -> tuple[int, str]:
        """Write all that was added; return the number and the hash of the last record.

        Privacy: one conditional UPDATE is check and debit of all changes together.
        """
        transaction = self._transaction
        if not tables.advance(
            transaction, self._seen, self._sequence, self._head, self.account.spent
        ):
            raise LedgerError(
                "the account moved while it was locked, or the budget does not allow this; "
                "nothing was written; ask again"
            )
        tables.add_records(transaction, self._pending)
        tables.move_requests(transaction, list(self._requests.moves()))
        tables.add_answers(transaction, self._answers)
        tables.add_free(transaction, [row for _, row in self._free.moves()])
        tables.move_states(
            transaction,
            [
                (old if isinstance(old, int) else 0, *new)
                for old, new in self._states.moves()
                if isinstance(new, tuple)
            ],
        )
        tables.move_allowances(transaction, list(self._allowances.moves()))
        tables.drop_allowances(transaction, list(self._allowances.dropped()))
        return self._sequence, self._head


def _version(fact: Fact, account: Account) -> int:
    """Return the version of a record: the lowest whose readers know all that it says."""
    if isinstance(fact, Renewed):
        return RENEWAL_VERSION
    return EVENTS_VERSION if account.delta_spent else VERSION


def bound_unit(transaction: Transaction, opened: Opened, last: Record) -> Unit | None:
    """Return the unit that a debit has bound; None if none has, or the first record names it.

    Since version 3 every record carries it. An older ledger has the unit of its first debit that
    tells one.
    """
    if opened.unit is not None or last.unit is not None or last.version >= 3:
        return last.unit
    for _, text in tables.debits(transaction):
        fact = Record.read(text).fact
        unit = unit_of_debit(fact) if isinstance(fact, Debited) else None
        if unit is not None:
            return unit
    return None


# The changes


def debit(batch: WriteBatch, debited: Debited, states: Sequence[Sealed]) -> Entry:
    """Take the units of a debit from the table and from its analyst, or refuse.

    Privacy: both accounts are checked, in the transaction that moves them; so is the unit, for
    costs of different units do not add up (``docs/proofs/ledger.md``, claim 14).
    """
    _check_not_frozen(batch)
    check_unit_is(batch.unit, debited.unit)
    lost = _check_key_is_open(batch, debited.key)
    _check_versions(batch, states)
    after = batch.account.plus(debited.cost)
    if after.is_overdrawn:
        raise BudgetExhausted(batch.account.refusal(debited.cost))
    allowance = None if debited.analyst is None else batch.allowance(debited.analyst)
    if allowance is not None:
        allowance = _allowance_after(allowance, debited.cost)
    if lost is not None:
        batch.append(Burnt(lost))
    appended = batch.append(debited, account=after, allowance=allowance, states=states)
    return entries_of([appended])[0]


def check_unit_is(bound: Unit | None, unit: Unit | None) -> None:
    """Refuse a cost that was computed for others than the ledger protects.

    Another bound on the rows of the same persons is no other promise: claim 14.
    """
    if bound is None or unit is None or protects_alike(bound, unit):
        return
    raise LedgerError(
        f"the ledger protects {unit_in_words(bound)}, this request protects {unit_in_words(unit)}; "
        "costs of different units do not add up, and nothing was spent: plan with the ledger's "
        "unit, or create another ledger, whose budget is a promise of its own"
    )


def _check_key_is_open(batch: WriteBatch, key: str) -> int | None:
    """Refuse a key that is held; return the debit to burn first, if its process is gone."""
    if batch.free(key) is not None:
        raise KeyHeld(f"request key {key!r} is answered; read it with answer(key)")
    held = batch.request(key)
    if held is None or held.state == "burnt":
        return None
    if held.state == "answered":
        raise KeyHeld(f"request key {key!r} is answered; read it with answer(key)")
    if is_gone(_owner(batch, held)):
        return held.debit
    raise KeyHeld(
        f"request key {key!r} is being answered by another caller; ask again, or burn "
        "its entry if that caller is known to be gone"
    )


def _owner(batch: WriteBatch, held: RequestRow) -> str:
    record = batch.record(held.debit)
    return record.fact.owner if record and isinstance(record.fact, Debited) else ""


def close(
    batch: WriteBatch,
    entry: Entry,
    fact: Answered | Burnt,
    answer: bytes | None = None,
    states: Sequence[Sealed] = (),
) -> None:
    """Answer or burn a debit that is reserved, once."""
    held = batch.request(entry.key)
    if held is None or held.debit != entry.sequence or held.state != "reserved":
        stage = "burnt" if held is None or held.debit != entry.sequence else held.state
        raise LedgerError(
            f"debit {entry.sequence} of request key {entry.key!r} is {stage}, not "
            "reserved; its answer must not be sent: read answer(key) or debit again"
        )
    _check_versions(batch, states)
    batch.append(fact, answer=answer, states=states)


def burn_lost(batch: WriteBatch, key: str) -> None:
    """Burn the debit of a key if it is reserved by a process that is certainly gone."""
    held = batch.request(key)
    if held is not None and held.state == "reserved" and is_gone(_owner(batch, held)):
        batch.append(Burnt(held.debit))


def keep(
    batch: WriteBatch, fact: Kept, answer: bytes, paid_key: str, states: Sequence[Sealed]
) -> KeptAnswer:
    """Store an answer that costs nothing more; the first one of a key stays for ever.

    Privacy: the answer is covered by the debit that it names, which must not be burnt: what it
    draws on was paid for (``docs/proofs/ledger.md``, claim 8).
    """
    stored = batch.free(fact.key)
    if stored is not None:
        record = batch.record(stored.sequence)
        data = batch.free_data(stored)
        if record is None or not isinstance(record.fact, Kept) or data is None:
            raise LedgerError(
                f"the stored answer of request key {fact.key!r} is damaged; restore the newest "
                "backup"
            )
        if record.fact.request != fact.request:
            raise LedgerError(
                f"request key {fact.key!r} was used for another request; choose another key"
            )
        return KeptAnswer(fact.key, data, is_new=False)
    _check_not_frozen(batch)
    held = batch.request(fact.key)
    if held is not None and held.state != "burnt":
        raise LedgerError(
            f"request key {fact.key!r} has a debit of its own; read answer(key), or choose another"
        )
    payer = batch.request(paid_key)
    if payer is None or payer.debit != fact.debit or payer.state == "burnt":
        raise LedgerError(
            f"debit {fact.debit} does not pay for a free answer: it is burnt or not of this "
            "ledger; debit again"
        )
    _check_versions(batch, states)
    charged = _allowance_after_charge(batch, fact) if fact.is_charged else None
    batch.append(fact, answer=answer, states=states, allowance=charged)
    return KeptAnswer(fact.key, answer, is_new=True)


def _allowance_after_charge(batch: WriteBatch, fact: Kept) -> AllowanceRow | None:
    """The allowance of the analyst whose answer this is, after the debit that pays for it."""
    record = batch.record(fact.debit)
    if fact.analyst is None or record is None or not isinstance(record.fact, Debited):
        return None
    if record.fact.analyst is not None:  # it was charged to somebody when it was debited
        return None
    allowance = batch.allowance(fact.analyst)
    if allowance is None:
        return None
    return _allowance_after(allowance, record.fact.cost)


def _allowance_after(allowance: AllowanceRow, cost: Cost) -> AllowanceRow:
    after = allowance.account.plus(cost)
    if after.is_overdrawn:
        raise BudgetExhausted(
            f"allowance of analyst {allowance.analyst!r}: {allowance.account.refusal(cost)}"
        )
    return AllowanceRow(allowance.analyst, after)


def allow(batch: WriteBatch, analyst: str, budget: Budget) -> None:
    """Give an analyst a budget; all debits that ever named the analyst count against it."""
    account = Account(budget).plus_all(batch.costs_of(analyst))
    batch.append(Allowed(analyst, budget), allowance=AllowanceRow(analyst, account))


def withdraw(batch: WriteBatch, analyst: str) -> None:
    """Take an allowance away: from here on only the table's budget limits the analyst."""
    if batch.allowance(analyst) is None:
        raise LedgerError(f"analyst {analyst!r} has no allowance; there is nothing to withdraw")
    batch.append(Withdrawn(analyst))


def set_total(batch: WriteBatch, changed: Changed) -> None:
    """Set another total; all debits so far are priced by it, in their order.

    A lower total that is spent already leaves nothing; any other must hold what was spent.

    Privacy: after it the account is as if the ledger had been opened with this total and had
    granted the same debits (``docs/proofs/ledger.md``, claim 15).
    """
    costs = [debited.cost for debited in batch.debits_of(None)]
    account = account_of(changed.budget, costs)
    if account is None:
        if not changed.budget.is_within(batch.account.budget):
            raise LedgerError(
                f"what was spent does not fit into a total of {changed.budget.describe()}, and it "
                f"is not a lower one than {batch.account.budget.describe()}; choose a larger one"
            )
        account = Account(changed.budget).emptied()
    elif chooses_between_filters(batch.totals(), changed.budget, costs):
        raise LedgerError(
            f"{changed.budget.describe()} is counted otherwise than a total of before, or leaves "
            "more for one kind of noise and less for the other, and something was spent: that "
            "would be a choice between two filters after answers were seen; change both parts alike"
        )
    batch.append(changed, account=account)


def account_of(budget: Budget, costs: Iterable[Cost]) -> Account | None:
    """Return the account of a total after debits of these costs; None if they do not fit."""
    try:
        account = Account(budget).plus_all(costs)
    except BudgetError:  # Gaussian noise has no place in a pure total
        return None
    return None if account.is_overdrawn else account


def chooses_between_filters(
    totals: Iterable[Budget], budget: Budget, costs: Sequence[Cost]
) -> bool:
    """Whether a new total allows more of one kind of noise and less of the other than some before.

    So does, once something was spent, one that is counted otherwise: rho or mu for epsilon.

    Privacy: totals of which each allows more or less of both kinds than every other keep the
    largest of them (``docs/proofs/accounting.md``, after Theorem 5).
    """
    account = account_of(budget, costs)
    if account is None:  # it leaves nothing to choose
        return False
    totals = list(totals)
    if costs and any(total.currency != budget.currency for total in totals):
        return True
    before = (account_of(total, costs) for total in totals)
    return not all(each is None or each.may_become(account) for each in before)


def renew(
    batch: WriteBatch, period: str, table_id: str, budget: Budget | None, by: str, reason: str
) -> tuple[Renewed, str]:
    """Record the next period, and return its record with its hash; once in the life of a ledger.

    The same call again, after a process was killed before the new ledger was there, returns the
    record that was made. Without ``budget`` the new total is that of this ledger now.
    """
    for text in batch.texts("renewed"):
        held = Record.read(text).fact
        if isinstance(held, Renewed):
            is_same = (held.period, held.table_id) == (period, table_id)
            if is_same and budget in (None, held.budget):
                return held, Record.hash_of(text)
            raise LedgerError(
                f"after this period {held.period!r} was begun already, with the table "
                f"{held.table_id!r} and {held.budget.describe()}; go on from the ledger of that one"
            )
    now, total = batch.account.budget, budget or batch.account.budget
    if total.currency != now.currency:
        raise LedgerError(
            f"the new period would have {total.describe()}, this one has {now.describe()}; periods "
            "are composed, so give a total of the same kind"
        )
    allowances: dict[str, Budget] = {}
    for text in batch.texts("allowed", "withdrawn"):
        fact = Record.read(text).fact
        if isinstance(fact, Allowed):
            allowances[fact.analyst] = fact.budget
        elif isinstance(fact, Withdrawn):
            del allowances[fact.analyst]
    renewed = Renewed(period, table_id, total, tuple(sorted(allowances.items())), by, reason)
    return renewed, batch.append(renewed)[1]


def allow_first(batch: WriteBatch, allowances: Sequence[tuple[str, Budget]]) -> None:
    """Give the allowances that a ledger is begun with, unless anything else came into it since."""
    if batch.last > len(allowances):
        return
    records = [batch.record(place) for place in range(1, batch.last + 1)]
    if all(record is not None and isinstance(record.fact, Allowed) for record in records):
        for analyst, budget in allowances[batch.last :]:
            allow(batch, analyst, budget)


def set_frozen(batch: WriteBatch, fact: Frozen | Unfrozen) -> None:
    """Freeze or unfreeze."""
    if batch.is_frozen == isinstance(fact, Frozen):
        raise LedgerError(
            "the ledger is frozen already; unfreeze it first, or leave it"
            if batch.is_frozen
            else "the ledger is not frozen; there is nothing to unfreeze"
        )
    batch.append(fact)


def vouch(batch: WriteBatch) -> None:
    """Record that the curator declared this copy to be the newest."""
    batch.append(Vouched())


def _check_not_frozen(batch: WriteBatch) -> None:
    if batch.is_frozen:
        raise LedgerFrozen(
            "the ledger is frozen by its curator: stored answers only; ask the curator"
        )


def _check_versions(batch: WriteBatch, states: Sequence[Sealed]) -> None:
    for sealed in states:
        held = batch.state_version(sealed.state.name)
        if sealed.state.version != held + 1:
            raise StateChanged(
                f"private state {sealed.state.name!r} is at version {held}, version "
                f"{sealed.state.version} cannot follow; read it again and go on from there"
            )


# Group commit

T = TypeVar("T")


class Pending(Generic[T]):
    """A change in line; `result` waits for the commit, in any number of threads."""

    __slots__ = ("_commits", "_error", "_is_done", "_line", "_value", "change", "keys")

    def __init__(
        self, commits: GroupCommit, change: Callable[[Any], T], keys: tuple[str, ...]
    ) -> None:
        self.change = change
        self.keys = keys
        self._commits = commits
        self._line = commits._line
        self._is_done = False
        self._value: T | None = None
        self._error: Exception | None = None

    def result(self) -> T:
        """Return what the change returned, after its commit; raise what it raised."""
        self._commits._wait_for(self)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set by `succeed`

    def succeed(self, value: T) -> None:
        """Say what `result` returns."""
        self._value, self._error = value, None

    def fail(self, error: Exception) -> None:
        """Say what `result` raises: an error of its own, never one that other callers raise."""
        self._value, self._error = None, error


class _Wait:
    """One caller that waits for a change, or leads."""

    __slots__ = ("leads", "pending", "wake")

    def __init__(self, pending: Pending[Any], *, leads: bool) -> None:
        self.pending = pending
        self.leads = leads
        self.wake = threading.Lock()
        self.wake.acquire()


class GroupCommit:
    """A line of changes and the one caller that commits them.

    Callers that come while a transaction is under way share the next one. There is no thread of its
    own: whoever waits first leads. It takes all that is in line, up to a limit, commits it, wakes
    its callers and hands the lead to one of those who came meanwhile. A single caller leads at
    once.
    """

    __slots__ = ("__weakref__", "_commit", "_has_leader", "_line", "_lock", "_waits")

    def __init__(self, commit: Callable[[Sequence[Pending[Any]]], None]) -> None:
        self._commit = commit
        self._begin_anew()
        _ALL.add(self)

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._line: deque[Pending[Any]] = deque()
        self._waits: dict[_Wait, None] = {}  # in the order in which they came
        self._has_leader = False

    def submit(self, change: Callable[[Any], T], keys: tuple[str, ...] = ()) -> Pending[T]:
        """Put a change in line, in the order of the calls; ``keys`` are those it will look at."""
        pending: Pending[T] = Pending(self, change, keys)
        with self._lock:
            self._line.append(pending)
        return pending

    def _wait_for(self, pending: Pending[Any]) -> None:
        with self._lock:
            if pending._is_done:
                return
            if pending._line is not self._line:
                raise LedgerError(
                    "this change was put in line before a fork and belongs to the parent process; "
                    "ask again"
                )
            wait = _Wait(pending, leads=not self._has_leader)
            self._has_leader = True
            if not wait.leads:
                self._waits[wait] = None
        try:
            if not wait.leads:
                wait.wake.acquire()
            while not pending._is_done:
                self._lead()
        finally:
            self._step_back(wait)

    def _lead(self) -> None:
        with self._lock:
            size = min(LIMITS.changes_per_transaction, len(self._line))
            group = [self._line.popleft() for _ in range(size)]
        try:
            self._commit(group)
        except BaseException as error:
            for pending in group:
                pending.fail(_copy(error))
            if not isinstance(error, Exception):
                raise  # of this caller alone, such as KeyboardInterrupt
        finally:
            with self._lock:
                self._finish(group)

    def _finish(self, done: Sequence[Pending[Any]]) -> None:
        """Wake all who wait for these; the lock is held."""
        for pending in done:
            pending._is_done = True
        for wait in [wait for wait in self._waits if wait.pending._is_done]:
            del self._waits[wait]
            wait.wake.release()

    def _step_back(self, wait: _Wait) -> None:
        """Hand the lead on; take the change out of the line if the wait was interrupted."""
        with self._lock:
            self._waits.pop(wait, None)
            pending = wait.pending
            if not pending._is_done and pending in self._line:
                self._line.remove(pending)
                pending.fail(LedgerError("the wait for this change was interrupted; ask again"))
                self._finish([pending])
            if not wait.leads:
                return
            self._has_leader = False
            following = next(iter(self._waits), None)
            if following is not None:
                del self._waits[following]
                following.leads = self._has_leader = True
                following.wake.release()


def _copy(error: BaseException) -> Exception:
    """A new error of the same type and message, since each caller raises its own."""
    if isinstance(error, SfumatoError):
        return type(error)(*error.args)
    return LedgerError(
        f"the ledger could not be written ({type(error).__name__}); nothing was released; ask again"
    )


_ALL: weakref.WeakSet[GroupCommit] = weakref.WeakSet()


def _begin_all_anew() -> None:
    for commits in list(_ALL):
        commits._begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_all_anew)


# The chain of records

Clock: TypeAlias = Callable[[], datetime]
"""What tells the time of day for the records."""


@dataclass(frozen=True, slots=True)
class RecordChain:
    """The records of a ledger in their store, with the witness of the last one and a clock.

    `commit` is the one way a ledger grows. It reads the head file, begins a transaction alone,
    checks the account against the last record and the head file, lets the changes that share the
    transaction append one after the other, and writes all of them with one conditional UPDATE of
    the account (`WriteBatch.write`). The line of the head file is written after the commit and
    before any caller returns.
    """

    store: Store
    witness: LedgerWitness | None
    now: Clock

    @classmethod
    def at(
        cls, place: str | Path, head: str | Path | None, now: Clock, *, keep_open: bool = False
    ) -> RecordChain:
        """Return the chain at a path or an address; its head file is ``<path>.head`` by default."""
        store = open_store(place, keep_open=keep_open)
        if head is None and store.path is not None:
            head = store.path.with_name(store.path.name + ".head")
        return cls(store, None if head is None else LedgerWitness(Path(head)), now)

    def begin(self, opened: Opened) -> None:
        """Write the first record; refuse a database that holds anything."""
        first = Record(0, self._time(), GENESIS, 0, None, opened)
        if not self.store.create(first):
            raise LedgerError(
                f"{self.store.name} already holds tables; open it, or choose another path"
            )
        self._witness_record(WitnessLine(0, Record.hash_of(first.text())))

    def opened(self) -> Opened:
        """Return the first record."""
        with self.store.reading() as transaction:
            first = tables.record_at(transaction, 0)
        opened = None if first is None else Record.read(first[1]).fact
        if not isinstance(opened, Opened):
            raise LedgerError(
                f"the ledger {self.store.name} lacks its first record; restore the newest backup"
            )
        return opened

    def commit(
        self, opened: Opened, group: Sequence[Pending[Any]], *, may_lack_lines: bool = False
    ) -> None:
        """Make the changes of a group in one transaction; raise if none of them was kept.

        A change that is refused fails alone. Privacy: no caller returns before the commit and the
        head line; a commit that fails fails all of its callers, also those who were refused
        because of what the others had taken.
        """
        line = self._last_line()  # before the transaction, so that it cannot be ahead of it
        with self.store.writing() as transaction:
            row, last = self._seen(transaction, line, may_lack_lines=may_lack_lines)
            total = last.total or opened.budget
            account = Account(total, last.spent, last.pure_spent, last.delta_spent)
            batch = WriteBatch(transaction, row, last, opened, account, self._time())
            batch.look_up([key for pending in group for key in pending.keys])
            for pending in group:
                length = batch.length
                try:
                    pending.succeed(pending.change(batch))
                except SfumatoError as error:
                    if batch.length != length:  # half a change must not be kept
                        raise
                    pending.fail(error)
            written = batch.write() if batch.length else None
            transaction.is_kept = written is not None  # a refusal need not wait for the disk
        if written is not None:
            self._witness_record(WitnessLine(*written))

    def last(self) -> Record:
        """Return the last record, checked against the account and the head file."""
        line = self._last_line()
        with self.store.reading() as transaction:
            return self._seen(transaction, line)[1]

    def bound(self, opened: Opened) -> Unit | None:
        """Return the unit that a debit has bound, if the ledger was opened without one."""
        line = self._last_line()
        with self.store.reading() as transaction:
            return bound_unit(transaction, opened, self._seen(transaction, line)[1])

    def check(self) -> None:
        """Refuse a ledger that is damaged at its end or behind its head file."""
        line = self._last_line()
        with self.store.reading() as transaction:
            row, _ = self._seen(transaction, line)
        if line is None:  # a crash came right after the creation
            self._witness_record(WitnessLine(row.sequence, row.head))

    @property
    def lacks_witness(self) -> bool:
        """Whether a head file belongs here and is missing or empty."""
        return self.witness is not None and self._last_line() is None

    def _seen(
        self, transaction: Transaction, line: WitnessLine | None, *, may_lack_lines: bool = False
    ) -> tuple[AccountRow, Record]:
        """The account and the last record, which match each other and the head file."""
        row = tables.account(transaction)
        self._check_not_behind(transaction, row, line, may_lack_lines=may_lack_lines)
        stored = tables.record_at(transaction, row.sequence)
        text = "" if stored is None else stored[1]
        if Record.hash_of(text) != row.head:
            raise LedgerError(
                f"the last record of the ledger {self.store.name} does not match its account; "
                "verify it and restore the newest backup"
            )
        last = Record.read(text)
        if (last.spent, UNITS) != (row.spent, row.total):
            raise LedgerError(
                f"the units spent in the ledger {self.store.name} do not match its last record; "
                "verify it and restore the newest backup"
            )
        return row, last

    def _check_not_behind(
        self,
        transaction: Transaction,
        row: AccountRow,
        line: WitnessLine | None,
        *,
        may_lack_lines: bool,
    ) -> None:
        if self.witness is None or (line is None and (row.sequence == 0 or may_lack_lines)):
            return
        if line is None:
            raise LedgerError(
                f"the head file {self.witness.path} is missing, so an older copy could not be told "
                "from the newest; restore it, or vouch for this copy with Ledger.vouch"
            )
        if (row.sequence, row.head) == (line.sequence, line.hash):
            return  # the last record itself, whose hash is checked next
        stored = tables.record_at(transaction, line.sequence)
        if stored is None or stored[0] != line.hash:
            raise LedgerError(
                f"the ledger {self.store.name} is behind its head file: record {line.sequence} is "
                "missing or different, so an older copy was restored; restore the newest one"
            )

    def _last_line(self) -> WitnessLine | None:
        return None if self.witness is None else self.witness.last()

    def _witness_record(self, line: WitnessLine) -> None:
        if self.witness is not None:
            self.witness.append(line)

    def _time(self) -> str:
        return self.now().astimezone(UTC).isoformat(timespec="seconds")
