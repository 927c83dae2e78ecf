# SPDX-License-Identifier: Apache-2.0
"""The ledger: who asked what of a table, what it cost, and what was answered; durable.

    debit  ->  draw noise  ->  store  ->  send

A debit is one conditional UPDATE in one transaction, before noise is drawn; the answer is stored
before it is sent; the same key gets the same bytes for ever. A debit whose answer was lost is
burnt: its units stay spent and its noise is never drawn again under it. Killing the process at
any point can waste budget but never release without a debit. States and proofs:
``docs/proofs/ledger.md``. The ledger never sees the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from sfumato.budget.account import UNITS, Account, Remaining
from sfumato.budget.accounting import Cost, composed_epsilon, rho_of
from sfumato.budget.budget import Budget, Neighbours, Number, check_neighbours, exact
from sfumato.budget.entries import (
    Answered,
    Burnt,
    Debited,
    Entry,
    Fact,
    Opened,
    Record,
    Vouched,
    canonical_json,
    entries_of,
    sha256,
)
from sfumato.budget.owner import is_gone, this_process
from sfumato.errors import LedgerError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sfumato.budget.journal import Journal
    from sfumato.budget.verification import Verification

__all__ = ["Clock", "Ledger", "Request", "Spent"]

Request: TypeAlias = Mapping[str, object] | bytes
"""A public description of what is asked: JSON, as an object or as bytes."""

Clock: TypeAlias = Callable[[], datetime]
"""What tells the time of day for the records."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent: the costs so far, composed as if they had been fixed in advance.

    The guarantee is the budget, which holds however the debits were chosen. ``epsilon`` at
    ``delta`` tells the reader what this list of costs amounts to; None where no delta is given.
    """

    share: Fraction
    debits: int
    epsilon: float | None
    delta: Fraction | None
    rho: Fraction
    mu_squared: Fraction
    pure_epsilon: Fraction


@dataclass(frozen=True, slots=True)
class Ledger:
    """The budget of one table under one neighbour relation, in a file or a database.

    Made by `create`, `open` or `open_or_create`. Any number of processes and threads may use the
    same ledger at once, and a `Ledger` may be carried across a fork.
    """

    place: str
    budget: Budget
    table_id: str
    neighbours: Neighbours
    _journal: Journal = field(repr=False)

    @classmethod
    def create(
        cls,
        place: str | Path,
        budget: Budget,
        table_id: str,
        neighbours: Neighbours,
        *,
        head: str | Path | None = None,
        now: Clock = _utc_now,
    ) -> Ledger:
        """Create a ledger at a path or a SQLAlchemy URL; an existing one is never touched.

        ``table_id`` names the table (a public name and a keyed fingerprint). The head file is
        ``<path>.head``; a server database has one only if ``head`` says where.
        """
        opened = Opened(budget, _check_name(table_id, "table_id"), check_neighbours(neighbours))
        journal = _journal(place, head, now)
        journal.begin(opened)
        return cls._of(journal, opened)

    @classmethod
    def open(
        cls, place: str | Path, *, head: str | Path | None = None, now: Clock = _utc_now
    ) -> Ledger:
        """Open an existing ledger; refuse one that is damaged or behind its head file.

        Debits that dead processes left without an answer become burnt.
        """
        if not cls.exists(place):
            raise LedgerError(f"there is no ledger at {place}; create it, or check the path")
        journal = _journal(place, head, now)
        ledger = cls._of(journal, journal.opened())
        journal.check(ledger.budget)
        ledger._burn_lost()
        return ledger

    @classmethod
    def open_or_create(
        cls,
        place: str | Path,
        table_id: str,
        neighbours: Neighbours,
        budget_if_new: Budget | None = None,
        *,
        head: str | Path | None = None,
        now: Clock = _utc_now,
    ) -> Ledger:
        """Open the ledger of this table, or create it with ``budget_if_new``.

        An existing ledger keeps its own budget; one of another table or neighbour relation is
        refused.
        """
        check_neighbours(neighbours)
        if not cls.exists(place):
            if budget_if_new is None:
                raise LedgerError(f"there is no ledger at {place}; give a budget to create one")
            try:
                return cls.create(place, budget_if_new, table_id, neighbours, head=head, now=now)
            except LedgerError:
                if not cls.exists(place):  # if it does, another process was faster
                    raise
        ledger = cls.open(place, head=head, now=now)
        if ledger.table_id != table_id:
            raise LedgerError(
                f"the ledger {ledger.place} belongs to table {ledger.table_id!r}, this table is "
                f"{table_id!r}; use the ledger of this table, or a new path for a new table"
            )
        if ledger.neighbours != neighbours:
            raise LedgerError(
                f"the ledger {ledger.place} counts {ledger.neighbours} neighbours, asked were "
                f"{neighbours}; ask with the ledger's, or use another ledger"
            )
        return ledger

    @classmethod
    def exists(cls, place: str | Path) -> bool:
        """Whether there is a ledger at this place."""
        from sfumato.budget.store import open_store

        store, path = open_store(place)
        return (path is None or path.exists()) and store.exists()

    @classmethod
    def vouch(
        cls, place: str | Path, *, head: str | Path | None = None, now: Clock = _utc_now
    ) -> Ledger:
        """Declare, as the curator, that this copy is the newest, and begin a new head file.

        Only for a ledger whose head file is lost; a ledger behind its head file stays refused.
        """
        journal = _journal(place, head, now)
        if not cls.exists(place) or not journal.lacks_head:
            raise LedgerError(
                f"only a ledger whose head file is lost needs vouching, {place} does not; open it"
            )
        budget = journal.opened().budget
        journal.append(budget, lambda _, account: (Vouched(), account), head_may_miss=True)
        return cls.open(place, head=head, now=now)

    @classmethod
    def _of(cls, journal: Journal, opened: Opened) -> Ledger:
        facts = (opened.budget, opened.table_id, opened.neighbours)
        return cls(journal.store.name, *facts, journal)

    def debit(self, cost: Cost, request: Request, key: str) -> Entry:
        """Take the units of ``cost`` for a request, before its noise is drawn, or refuse.

        Raises `BudgetExhausted`, with nothing written, if they do not fit; `LedgerError` if the
        key is answered already (read `answer`) or is being answered by a live process.

        Privacy: one conditional UPDATE is check and debit (``docs/proofs/ledger.md``, claim 1);
        the account is a privacy filter (``docs/proofs/accounting.md``, Theorem 4).
        Neighbours: those of the ledger; the cost must have been computed for them.
        """
        from sfumato.budget import store as tables

        debited = Debited(_check_name(key, "key"), _canonical(request), cost, this_process())
        self._burn_if_lost(key)

        def decide(connection: Connection, account: Account) -> tuple[Fact, Account]:
            held = tables.request(connection, key)
            if held is not None and held.state == "answered":
                raise LedgerError(f"request key {key!r} is answered; read it with answer(key)")
            if held is not None and held.state == "reserved":
                raise LedgerError(
                    f"request key {key!r} is being answered by another caller; ask again, or burn "
                    "its entry if that caller is known to be gone"
                )
            return debited, account.plus(cost)

        record = self._journal.append(self.budget, decide)
        return entries_of([(record, Record.hash_of(record.text()))])[0]

    def store(self, entry: Entry, answer: bytes) -> Entry:
        """Keep the answer of a reserved debit; only after this may it be sent.

        Raises `LedgerError` if the debit is not reserved any more: then the answer must be
        thrown away.
        """
        if not isinstance(answer, bytes):
            raise LedgerError(f"an answer is bytes, got {type(answer).__name__}; encode it first")
        answered = Answered(entry.sequence, sha256(answer))
        self._close(entry, answered, answer)
        return replace(entry, state="answered", answer_sha256=answered.answer_sha256)

    def burn(self, entry: Entry) -> Entry:
        """Declare that a reserved debit will never be answered; its units stay spent."""
        self._close(entry, Burnt(entry.sequence), None)
        return replace(entry, state="burnt")

    def answer(self, key: str) -> bytes | None:
        """Return the stored answer of a key, the same bytes for ever; None if there is none."""
        from sfumato.budget import store as tables

        with self._journal.store.reading() as connection:
            held = tables.request(connection, key)
            if held is None or held.state != "answered" or held.closed is None:
                return None
            data = tables.answer_of(connection, held.debit)
            closing = tables.record_at(connection, held.closed)
        fact = None if closing is None else Record.read(closing[1]).fact
        if data is None or not isinstance(fact, Answered) or fact.answer_sha256 != sha256(data):
            raise LedgerError(
                f"the stored answer of request key {key!r} is damaged; restore the newest backup"
            )
        return data

    def answer_once(
        self, cost: Cost, request: Request, key: str, produce: Callable[[], bytes]
    ) -> bytes:
        """Return the stored answer of the key, or debit, ``produce`` it, store it, return it.

        Privacy: ``produce`` draws the noise; it runs at most once per debit, after the debit.
        """
        kept = self.answer(key)
        if kept is not None:
            latest = self._latest(key)
            if latest is not None and latest.request != _canonical(request):
                raise LedgerError(
                    f"request key {key!r} was used for another request; choose another key"
                )
            return kept
        entry = self.debit(cost, request, key)
        try:
            answer = produce()
            self.store(entry, answer)
        except BaseException:
            with suppress(LedgerError):  # then it stays reserved, and is burnt later
                self.burn(entry)
            raise
        return answer

    def entries(self) -> tuple[Entry, ...]:
        """Return all debits, oldest first, and what became of them."""
        from sfumato.budget import store as tables

        with self._journal.store.reading() as connection:
            rows = list(tables.all_records(connection))
        return entries_of([(Record.read(text), digest) for _, digest, text in rows])

    def spent(self, delta: Number | None = None) -> Spent:
        """Return what was spent; ``delta`` is the budget's unless given."""
        account, costs = (
            self._journal.account(self.budget),
            [entry.cost for entry in self.entries()],
        )
        at = self.budget.delta if delta is None else exact(delta, "delta")
        total = Cost(tuple(part for cost in costs for part in cost.parts))
        return Spent(
            share=Fraction(account.spent, UNITS),
            debits=len(costs),
            epsilon=None if at is None else composed_epsilon(costs, at),
            delta=at,
            rho=rho_of(total),
            mu_squared=total.mu_squared,
            pure_epsilon=total.pure_epsilon,
        )

    def remaining(self) -> Remaining:
        """Return what one more debit may take."""
        return self._journal.account(self.budget).remaining()

    def how_many_more(self, cost: Cost) -> int:
        """Return how many debits of this cost still fit, one after the other."""
        return self._journal.account(self.budget).how_many_more(cost)

    def verify(self) -> Verification:
        """Replay the whole chain and compare every table with it; see `Verification`."""
        from sfumato.budget.verification import verify

        return verify(self._journal.store, self._journal.head_path, self.budget)

    def close(self) -> None:
        """Release the database; the ledger opens it again when it is used."""
        self._journal.store.close()

    def _close(self, entry: Entry, fact: Answered | Burnt, answer: bytes | None) -> None:
        from sfumato.budget import store as tables

        def decide(connection: Connection, account: Account) -> tuple[Fact, Account]:
            held = tables.request(connection, entry.key)
            if held is None or held.debit != entry.sequence or held.state != "reserved":
                state = "burnt" if held is None or held.debit != entry.sequence else held.state
                raise LedgerError(
                    f"debit {entry.sequence} of request key {entry.key!r} is {state}, not "
                    "reserved; its answer must not be sent: read answer(key) or debit again"
                )
            return fact, account

        self._journal.append(self.budget, decide, answer)

    def _burn_lost(self) -> None:
        """Burn the reserved debits whose process is certainly gone."""
        from sfumato.budget import store as tables

        with self._journal.store.reading() as connection:
            waiting = [row.key for row in tables.reserved(connection)]
        for key in waiting:
            self._burn_if_lost(key)

    def _burn_if_lost(self, key: str) -> None:
        entry = self._latest(key)
        if entry is not None and entry.state == "reserved" and is_gone(entry.owner):
            with suppress(LedgerError):  # another process may have burnt it just now
                self.burn(entry)

    def _latest(self, key: str) -> Entry | None:
        """The latest debit of a key."""
        from sfumato.budget import store as tables

        with self._journal.store.reading() as connection:
            held = tables.request(connection, key)
            places = [] if held is None else [held.debit, held.closed]
            found = [tables.record_at(connection, place) for place in places if place is not None]
        chain = [(Record.read(text), digest) for digest, text in filter(None, found)]
        return next(iter(entries_of(chain)), None)


def _journal(place: str | Path, head: str | Path | None, now: Clock) -> Journal:
    from sfumato.budget.journal import Journal

    return Journal.at(place, head, now)


def _check_name(value: object, name: str) -> str:
    if isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable():
        return value
    raise LedgerError(
        f"{name} must be a printable string of 1 to 200 characters, got "
        f"{type(value).__name__}; give a public name"
    )


def _canonical(request: Request) -> str:
    try:
        value = json.loads(request) if isinstance(request, bytes) else dict(request)
        return canonical_json(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise LedgerError(
            f"a request must be JSON, an object or bytes ({type(error).__name__}); "
            "describe it with strings, numbers, lists and objects"
        ) from None
