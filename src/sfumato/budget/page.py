# SPDX-License-Identifier: Apache-2.0
"""The ledger as the changes of one transaction see it, and what they have added so far.

Many changes may share a transaction (`groups.py`). Each must see those before it although nothing
is written yet: the account after their debits, the keys they took, the states and allowances they
moved. So whatever is read is read through a `Page`, which remembers what was added; at the end
`write` brings all of it to the tables at once, the account by one conditional UPDATE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from sfumato.budget import tables
from sfumato.budget.account import Account
from sfumato.budget.accounting import Cost
from sfumato.budget.budget import Budget
from sfumato.budget.entries import (
    Answered,
    Burnt,
    Changed,
    Debited,
    Fact,
    Frozen,
    Kept,
    Opened,
    Record,
    Stage,
    Unfrozen,
    Withdrawn,
    unit_of_debit,
)
from sfumato.budget.private import Sealed
from sfumato.budget.store import Transaction
from sfumato.budget.tables import AccountRow, AllowanceRow, FreeRow, RequestRow
from sfumato.errors import LedgerError

if TYPE_CHECKING:
    from sfumato.domain.unit import Unit

__all__ = ["Page", "bound_unit"]

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
        wanted = [key for key in dict.fromkeys(keys) if key not in self._before]
        if wanted:
            self._before |= dict.fromkeys(wanted) | dict(self._load(wanted))

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


class Page:
    """One transaction's view; made by the journal."""

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
    def length(self) -> int:
        """How many records were added."""
        return len(self._pending)

    def look_up(self, keys: Sequence[str]) -> None:
        """Read what is known of many keys at once; without it each is read when it is needed."""
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
        found = tables.record_at(self._transaction, sequence)
        return None if found is None else Record.read(found[1])

    def debits_of(self, analyst: str | None) -> Iterator[Debited]:
        """Yield all debits that name an analyst, or all there are, oldest first."""
        texts = [text for _, text in tables.debits(self._transaction, analyst=analyst)]
        texts += [text for _, _, text in self._pending]
        for text in texts:
            fact = Record.read(text).fact
            if isinstance(fact, Debited) and analyst in (None, fact.analyst):
                yield fact

    def totals(self) -> list[Budget]:
        """Return all totals that the ledger has had, oldest first."""
        texts = tables.by_kind(self._transaction, ["changed"])
        texts += [text for _, _, text in self._pending]
        facts = [Record.read(text).fact for text in texts]
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
