# SPDX-License-Identifier: Apache-2.0
"""The one way a ledger grows: append a record in one transaction, witness it in the head file.

Every change reads the head file, begins a transaction that is alone, checks the account against
the last record and the head, lets the caller decide what to append, and appends it by the
conditional UPDATE of `store.advance`. The head line is written after the commit. The order is
what the proofs in ``docs/proofs/ledger.md`` rest on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from sqlalchemy import Connection

from sfumato.budget import store as tables
from sfumato.budget.account import UNITS, Account
from sfumato.budget.budget import Budget
from sfumato.budget.entries import GENESIS, Debited, Fact, Opened, Record
from sfumato.budget.head import Head, append_head, read_last_head
from sfumato.errors import BudgetExhausted, LedgerError

__all__ = ["Clock", "Decide", "Journal"]

Clock: TypeAlias = Callable[[], datetime]

Decide: TypeAlias = Callable[[Connection, Account], tuple[Fact, Account]]
"""Given the account: what to append, and the account after it. May raise; writes nothing."""

_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class Journal:
    """A store with its head file and clock."""

    store: tables.Store
    head_path: Path | None
    now: Clock

    @classmethod
    def at(cls, place: str | Path, head: str | Path | None, now: Clock) -> Journal:
        """Return the journal at a path or URL; its head file is ``<path>.head`` unless given."""
        store, path = tables.open_store(place)
        if head is not None:
            return cls(store, Path(head), now)
        return cls(store, None if path is None else path.with_name(path.name + ".head"), now)

    def begin(self, opened: Opened) -> None:
        """Write the first record; refuse a database that holds anything."""
        first = Record(0, self._time(), GENESIS, 0, None, opened)
        if not self.store.create(first):
            raise LedgerError(
                f"{self.store.name} already holds tables; open it, or choose another path"
            )
        self._witness(first)

    def opened(self) -> Opened:
        """Return the first record."""
        with self.store.reading() as connection:
            first = tables.record_at(connection, 0)
        opened = None if first is None else Record.read(first[1]).fact
        if not isinstance(opened, Opened):
            raise LedgerError(
                f"the ledger {self.store.name} lacks its first record; restore the newest backup"
            )
        return opened

    def append(
        self,
        budget: Budget,
        decide: Decide,
        answer: bytes | None = None,
        *,
        head_may_miss: bool = False,
    ) -> Record:
        """Append what ``decide`` says, or raise with nothing written.

        Privacy: `BudgetExhausted` comes from the UPDATE that would have been the debit.
        """
        for _ in range(_ATTEMPTS):
            head = self._read_head()  # before the transaction, so that it cannot be ahead of it
            with self.store.writing() as connection:
                row, account = self._seen(connection, budget, head, head_may_miss=head_may_miss)
                fact, after = decide(connection, account)
                record = Record(
                    sequence=row.sequence + 1,
                    time=self._time(),
                    previous=row.head,
                    spent=after.spent,
                    pure_spent=after.pure_spent,
                    fact=fact,
                )
                done = tables.advance(connection, row, record)
                if done:
                    tables.index(connection, record, answer)
            if done:
                self._witness(record)
                return record
            if after.is_overdrawn and isinstance(fact, Debited):
                raise BudgetExhausted(account.refusal(fact.cost))
        raise LedgerError(f"the ledger {self.store.name} is too busy; ask again later")

    def account(self, budget: Budget) -> Account:
        """Return the account as it is, checked against the last record and the head file."""
        head = self._read_head()
        with self.store.reading() as connection:
            return self._seen(connection, budget, head)[1]

    def check(self, budget: Budget) -> None:
        """Refuse a ledger that is damaged at its end or behind its head file."""
        head = self._read_head()
        with self.store.reading() as connection:
            row, _ = self._seen(connection, budget, head)
        if self.head_path is not None and head is None:  # a crash came right after the creation
            append_head(self.head_path, Head(row.sequence, row.head))

    @property
    def lacks_head(self) -> bool:
        """Whether a head file belongs here and is missing or empty."""
        return self.head_path is not None and self._read_head() is None

    def _seen(
        self,
        connection: Connection,
        budget: Budget,
        head: Head | None,
        *,
        head_may_miss: bool = False,
    ) -> tuple[tables.AccountRow, Account]:
        row = tables.account(connection)
        self._check_not_behind(connection, row, head, head_may_miss=head_may_miss)
        found = tables.record_at(connection, row.sequence)
        text = "" if found is None else found[1]
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
        return row, Account(budget, last.spent, last.pure_spent)

    def _check_not_behind(
        self,
        connection: Connection,
        row: tables.AccountRow,
        head: Head | None,
        *,
        head_may_miss: bool,
    ) -> None:
        if self.head_path is None or (head is None and (row.sequence == 0 or head_may_miss)):
            return
        if head is None:
            raise LedgerError(
                f"the head file {self.head_path} is missing, so an older copy could not be told "
                "from the newest; restore it, or vouch for this copy with Ledger.vouch"
            )
        found = tables.record_at(connection, head.sequence)
        if found is None or found[0] != head.hash:
            raise LedgerError(
                f"the ledger {self.store.name} is behind its head file: record {head.sequence} is "
                "missing or different, so an older copy was restored; restore the newest one"
            )

    def _read_head(self) -> Head | None:
        return None if self.head_path is None else read_last_head(self.head_path)

    def _witness(self, record: Record) -> None:
        if self.head_path is not None:
            append_head(self.head_path, Head(record.sequence, Record.hash_of(record.text())))

    def _time(self) -> str:
        return self.now().astimezone(UTC).isoformat(timespec="seconds")
