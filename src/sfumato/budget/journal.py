# SPDX-License-Identifier: Apache-2.0
"""The one way a ledger grows: append records in one transaction, witness the last in the head file.

Every transaction reads the head file, begins alone, checks the account against the last record
and the head, lets the changes that share it append one after the other (`changes.py`), and writes
all of them with one conditional UPDATE of the account (`Page.write`). The head line is written
after the commit and before any caller returns. The order is what the proofs in
``docs/proofs/ledger.md`` rest on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from sfumato.budget import tables
from sfumato.budget.account import UNITS, Account
from sfumato.budget.entries import GENESIS, Opened, Record
from sfumato.budget.groups import Pending
from sfumato.budget.head import Head, Witness
from sfumato.budget.page import Page, bound_unit
from sfumato.budget.store import Store, Transaction, open_store
from sfumato.budget.tables import AccountRow
from sfumato.errors import LedgerError, SfumatoError

if TYPE_CHECKING:
    from sfumato.domain.unit import Unit

__all__ = ["Clock", "Journal"]

Clock: TypeAlias = Callable[[], datetime]
"""What tells the time of day for the records."""


@dataclass(frozen=True, slots=True)
class Journal:
    """A store with its head file and clock."""

    store: Store
    witness: Witness | None
    now: Clock

    @classmethod
    def at(
        cls, place: str | Path, head: str | Path | None, now: Clock, *, keep_open: bool = False
    ) -> Journal:
        """Return the journal at a path or URL; its head file is ``<path>.head`` unless given."""
        store = open_store(place, keep_open=keep_open)
        if head is None and store.path is not None:
            head = store.path.with_name(store.path.name + ".head")
        return cls(store, None if head is None else Witness(Path(head)), now)

    def begin(self, opened: Opened) -> None:
        """Write the first record; refuse a database that holds anything."""
        first = Record(0, self._time(), GENESIS, 0, None, opened)
        if not self.store.create(first):
            raise LedgerError(
                f"{self.store.name} already holds tables; open it, or choose another path"
            )
        self._testify(Head(0, Record.hash_of(first.text())))

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
        self, opened: Opened, group: Sequence[Pending[Any]], *, head_may_miss: bool = False
    ) -> None:
        """Make the changes of a group in one transaction; raise if none of them was kept.

        A change that is refused fails alone. Privacy: no caller returns before the commit and the
        head line; a commit that fails fails all of its callers, also those who were refused
        because of what the others had taken.
        """
        head = self._last_head()  # before the transaction, so that it cannot be ahead of it
        with self.store.writing() as transaction:
            row, last = self._seen(transaction, head, head_may_miss=head_may_miss)
            account = Account(last.total or opened.budget, last.spent, last.pure_spent)
            page = Page(transaction, row, last, opened, account, self._time())
            page.look_up([key for pending in group for key in pending.keys])
            for pending in group:
                length = page.length
                try:
                    pending.succeed(pending.change(page))
                except SfumatoError as error:
                    if page.length != length:  # half a change must not be kept
                        raise
                    pending.fail(error)
            written = page.write() if page.length else None
            transaction.is_kept = written is not None  # a refusal need not wait for the disk
        if written is not None:
            self._testify(Head(*written))

    def last(self) -> Record:
        """Return the last record, checked against the account and the head file."""
        head = self._last_head()
        with self.store.reading() as transaction:
            return self._seen(transaction, head)[1]

    def bound(self, opened: Opened) -> Unit | None:
        """Return the unit that a debit has bound, if the ledger was opened without one."""
        head = self._last_head()
        with self.store.reading() as transaction:
            return bound_unit(transaction, opened, self._seen(transaction, head)[1])

    def check(self) -> None:
        """Refuse a ledger that is damaged at its end or behind its head file."""
        head = self._last_head()
        with self.store.reading() as transaction:
            row, _ = self._seen(transaction, head)
        if head is None:  # a crash came right after the creation
            self._testify(Head(row.sequence, row.head))

    @property
    def lacks_head(self) -> bool:
        """Whether a head file belongs here and is missing or empty."""
        return self.witness is not None and self._last_head() is None

    def _seen(
        self, transaction: Transaction, head: Head | None, *, head_may_miss: bool = False
    ) -> tuple[AccountRow, Record]:
        row = tables.account(transaction)
        self._check_not_behind(transaction, row, head, head_may_miss=head_may_miss)
        found = tables.record_at(transaction, row.sequence)
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
        return row, last

    def _check_not_behind(
        self, transaction: Transaction, row: AccountRow, head: Head | None, *, head_may_miss: bool
    ) -> None:
        if self.witness is None or (head is None and (row.sequence == 0 or head_may_miss)):
            return
        if head is None:
            raise LedgerError(
                f"the head file {self.witness.path} is missing, so an older copy could not be told "
                "from the newest; restore it, or vouch for this copy with Ledger.vouch"
            )
        if (row.sequence, row.head) == (head.sequence, head.hash):
            return  # the last record itself, whose hash is checked next
        found = tables.record_at(transaction, head.sequence)
        if found is None or found[0] != head.hash:
            raise LedgerError(
                f"the ledger {self.store.name} is behind its head file: record {head.sequence} is "
                "missing or different, so an older copy was restored; restore the newest one"
            )

    def _last_head(self) -> Head | None:
        return None if self.witness is None else self.witness.last()

    def _testify(self, head: Head) -> None:
        if self.witness is not None:
            self.witness.append(head)

    def _time(self) -> str:
        return self.now().astimezone(UTC).isoformat(timespec="seconds")
