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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from sfumato.budget.accounting import Cost
from sfumato.budget.book import Book
from sfumato.budget.budget import Budget, Neighbours, check_neighbours
from sfumato.budget.entries import (
    Answered,
    Burnt,
    Changed,
    Debited,
    Entry,
    Frozen,
    Kept,
    KeptAnswer,
    Opened,
    Unfrozen,
    canonical_json,
    check_name,
    sha256,
)
from sfumato.budget.groups import Groups, Pending
from sfumato.budget.owner import this_process
from sfumato.budget.private import State, commitments, seal_all
from sfumato.errors import LedgerError

if TYPE_CHECKING:
    from sfumato.budget.journal import Clock, Journal
    from sfumato.budget.page import Page
    from sfumato.domain.unit import Unit

__all__ = ["Ledger", "Request"]

Request: TypeAlias = Mapping[str, object] | bytes
"""A public description of what is asked: JSON, as an object or as bytes."""

T = TypeVar("T")


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Ledger(Book):
    """The budget of one table under one neighbour relation and one privacy unit, durable.

    It is kept in a file or a database.

    Made by `create`, `open` or `open_or_create`. Any number of processes and threads may use the
    same ledger at once, and a `Ledger` may be carried across a fork. What threads of a process
    change at the same time is committed together. ``keep_open`` leaves the database open between
    calls, which is faster; without it a ledger file is complete in itself after each call.
    """

    _groups: Groups = field(repr=False)

    @classmethod
    def create(
        cls,
        place: str | Path,
        budget: Budget,
        table_id: str,
        neighbours: Neighbours = "add-remove",
        *,
        unit: Unit | None = None,
        head: str | Path | None = None,
        now: Clock = _utc_now,
        keep_open: bool = False,
    ) -> Ledger:
        """Create a ledger at a path or an address; an existing one is never touched.

        Args:
            place: A path, or the address of a PostgreSQL database.
            budget: The total that all releases together may spend.
            table_id: The public name of the table.
            neighbours: Which two tables must be hard to tell apart.
            unit: Whose presence is protected: ``"row"``, ``"event"`` or a `PrivacyUnit`. Requests
                for another unit are refused. Without it the first debit binds its own.
            head: Where the head file is; ``<path>.head`` unless told. A server database has one
                only if this says where.
            now: What tells the time.
            keep_open: Whether the database stays open between calls.

        Returns:
            The new ledger.

        Raises:
            LedgerError: If there is something at ``place`` already, or it cannot be written.
        """
        bound = _check_unit(unit)
        name = check_name(table_id, "table_id")
        opened = Opened(budget, name, check_neighbours(neighbours), bound)
        journal = _journal(place, head, now, keep_open=keep_open)
        journal.begin(opened)
        return cls._of(journal, opened)

    @classmethod
    def open(
        cls,
        place: str | Path,
        *,
        head: str | Path | None = None,
        now: Clock = _utc_now,
        keep_open: bool = False,
    ) -> Ledger:
        """Open an existing ledger; refuse one that is damaged or behind its head file.

        Debits that dead processes left without an answer become burnt.
        """
        if not cls.exists(place):
            raise LedgerError(f"there is no ledger at {place}; create it, or check the path")
        journal = _journal(place, head, now, keep_open=keep_open)
        ledger = cls._of(journal, journal.opened())
        journal.check()
        journal.store.bring_up_to_date()
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
        unit: Unit | None = None,
        head: str | Path | None = None,
        now: Clock = _utc_now,
        keep_open: bool = False,
    ) -> Ledger:
        """Open the ledger of this table, or create it with ``budget_if_new``.

        An existing ledger keeps its own budget; one of another table, neighbour relation or unit
        is refused.
        """
        check_neighbours(neighbours)
        if not cls.exists(place):
            if budget_if_new is None:
                raise LedgerError(f"there is no ledger at {place}; give a budget to create one")
            given = (place, budget_if_new, table_id, neighbours)
            try:
                return cls.create(*given, unit=unit, head=head, now=now, keep_open=keep_open)
            except LedgerError:
                if not cls.exists(place):  # if it does, another process was faster
                    raise
        ledger = cls.open(place, head=head, now=now, keep_open=keep_open)
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
        if unit is not None:
            ledger.check_unit(unit)
        return ledger

    @classmethod
    def exists(cls, place: str | Path) -> bool:
        """Whether there is a ledger at this place."""
        from sfumato.budget.store import open_store

        return open_store(place).exists()

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
        from sfumato.budget import changes

        commit = partial(journal.commit, journal.opened(), head_may_miss=True)
        Groups(commit).submit(changes.vouch).result()
        return cls.open(place, head=head, now=now)

    @classmethod
    def _of(cls, journal: Journal, opened: Opened) -> Ledger:
        return cls(journal.store.name, opened, journal, Groups(partial(journal.commit, opened)))

    def debit(
        self,
        cost: Cost,
        request: Request,
        key: str,
        *,
        analyst: str | None = None,
        states: Sequence[State] = (),
        unit: Unit | None = None,
    ) -> Entry:
        """Take the units of ``cost`` for a request, before its noise is drawn, or refuse.

        Raises `BudgetExhausted`, with nothing written, if they do not fit into what is left of
        the table's budget, or of the analyst's allowance if there is one; `LedgerFrozen` if the
        curator froze the ledger; `LedgerError` if the key is answered already (read `answer`) or
        is being answered by a live process, or if ``unit``, whose presence the cost protects, is
        not the ledger's; without it the caller promises that it is. ``states`` are written in the
        same transaction.

        Privacy: one conditional UPDATE is check and debit (``docs/proofs/ledger.md``, claim 1);
        the account is a privacy filter (``docs/proofs/accounting.md``, Theorem 4).
        Neighbours: those of the ledger; the cost must have been computed for them.
        """
        from sfumato.budget import changes

        sealed = seal_all(states)
        debited = Debited(
            key=check_name(key, "key"),
            request=_canonical(request),
            cost=cost,
            owner=this_process(),
            analyst=None if analyst is None else check_name(analyst, "analyst"),
            states=commitments(sealed),
            unit=_check_unit(unit),
        )
        return self._do(lambda page: changes.debit(page, debited, sealed), key)

    def store(self, entry: Entry, answer: bytes, *, states: Sequence[State] = ()) -> Entry:
        """Keep the answer of a reserved debit; only after this may it be sent.

        Raises `LedgerError` if the debit is not reserved any more: then the answer must be
        thrown away. ``states`` are written in the same transaction.
        """
        from sfumato.budget import changes

        sealed = seal_all(states)
        answered = Answered(entry.sequence, _check_answer(answer), commitments(sealed))
        self._do(lambda page: changes.close(page, entry, answered, answer, sealed), entry.key)
        return replace(entry, state="answered", answer_sha256=answered.answer_sha256)

    def burn(self, entry: Entry) -> Entry:
        """Declare that a reserved debit will never be answered; its units stay spent."""
        from sfumato.budget import changes

        self._do(lambda page: changes.close(page, entry, Burnt(entry.sequence)), entry.key)
        return replace(entry, state="burnt")

    def keep(
        self,
        key: str,
        request: Request,
        answer: bytes,
        paid_by: Entry,
        *,
        analyst: str | None = None,
        states: Sequence[State] = (),
        is_charged: bool = False,
    ) -> KeptAnswer:
        """Store an answer that costs nothing more; only after this may it be sent.

        If the key has a free answer already, that one is returned and ``states`` are not
        written. Raises `LedgerFrozen`, or `LedgerError` if the key is of another request or the
        debit ``paid_by`` is burnt. With ``is_charged`` the cost of a debit that names nobody counts
        against the allowance of ``analyst``; `BudgetExhausted` if it does not fit.

        Privacy: the caller's proof must say that ``paid_by`` covers the answer, whatever the
        number of such answers (``docs/proofs/ledger.md``, claim 8).
        """
        return self.keep_soon(
            key, request, answer, paid_by, analyst=analyst, states=states, is_charged=is_charged
        ).result()

    def keep_soon(
        self,
        key: str,
        request: Request,
        answer: bytes,
        paid_by: Entry,
        *,
        analyst: str | None = None,
        states: Sequence[State] = (),
        is_charged: bool = False,
    ) -> Pending[KeptAnswer]:
        """Put a free answer in line for `keep`; it may be sent after ``result()`` of what returns.

        The order of the calls is the order in the chain. Who computes answers under a lock calls
        this under the lock and ``result()`` outside it, so that many answers share one commit.
        """
        from sfumato.budget import changes

        sealed = seal_all(states)
        kept = Kept(
            key=check_name(key, "key"),
            request=_canonical(request),
            debit=paid_by.sequence,
            answer_sha256=_check_answer(answer),
            analyst=None if analyst is None else check_name(analyst, "analyst"),
            states=commitments(sealed),
            is_charged=is_charged,
        )
        change = partial(
            changes.keep, kept=kept, answer=answer, paid_key=paid_by.key, states=sealed
        )
        return self._groups.submit(change, (key, paid_by.key))

    def answer_once(
        self,
        cost: Cost,
        request: Request,
        key: str,
        produce: Callable[[], bytes],
        *,
        analyst: str | None = None,
        unit: Unit | None = None,
    ) -> bytes:
        """Return the stored answer of the key, or debit, ``produce`` it, store it, return it.

        Privacy: ``produce`` draws the noise; it runs at most once per debit, after the debit.
        """
        kept = self.answer(key)
        if kept is not None:
            latest = self.entry(key)
            if latest is not None and latest.request != _canonical(request):
                raise LedgerError(
                    f"request key {key!r} was used for another request; choose another key"
                )
            return kept
        entry = self.debit(cost, request, key, analyst=analyst, unit=unit)
        try:
            answer = produce()
            self.store(entry, answer)
        except BaseException:
            with suppress(LedgerError):  # then it stays reserved, and is burnt later
                self.burn(entry)
            raise
        return answer

    def allow(self, analyst: str, budget: Budget) -> None:
        """Give an analyst a budget within that of the table, or change it; recorded in the chain.

        All debits that ever named the analyst count against it.
        """
        from sfumato.budget import changes

        name = check_name(analyst, "analyst")
        self._do(lambda page: changes.allow(page, name, budget))

    def withdraw(self, analyst: str) -> None:
        """Take an analyst's allowance away, as the curator; recorded in the chain.

        From then on only the budget of the table limits them.
        """
        from sfumato.budget import changes

        name = check_name(analyst, "analyst")
        self._do(lambda page: changes.withdraw(page, name))

    def set_total(self, budget: Budget, reason: str, *, by: str = "curator") -> None:
        """Set another total, as the curator; recorded in the chain with who did it and why.

        All debits so far are priced by the new total, in their order. A lower one that is spent
        already leaves nothing; any other must hold what was spent.

        Args:
            budget: The new total; the promise to the people in the table from now on.
            reason: Why, in public words.
            by: Who changes it.

        Raises:
            LedgerError: If what was spent does not fit into a total that is not a lower one.
        """
        from sfumato.budget import changes

        fact = Changed(budget, check_name(by, "by"), check_name(reason, "reason"))
        self._do(lambda page: changes.set_total(page, fact))

    def freeze(self, reason: str) -> None:
        """Stop debits and free answers, as the curator; stored answers are still served."""
        from sfumato.budget import changes

        fact = Frozen(check_name(reason, "reason"))
        self._do(lambda page: changes.set_frozen(page, fact))

    def unfreeze(self, reason: str) -> None:
        """Let debits and free answers go on, as the curator."""
        from sfumato.budget import changes

        fact = Unfrozen(check_name(reason, "reason"))
        self._do(lambda page: changes.set_frozen(page, fact))

    def _do(self, change: Callable[[Page], T], *keys: str) -> T:
        return self._groups.submit(change, keys).result()

    def _burn_lost(self) -> None:
        """Burn the reserved debits whose process is certainly gone."""
        from sfumato.budget import changes, tables

        with self._journal.store.reading() as transaction:
            waiting = [row.key for row in tables.reserved(transaction)]
        lines = [
            self._groups.submit(partial(changes.burn_lost, key=key), (key,)) for key in waiting
        ]
        for pending in lines:
            pending.result()


def _journal(
    place: str | Path, head: str | Path | None, now: Clock, *, keep_open: bool = False
) -> Journal:
    from sfumato.budget.journal import Journal

    return Journal.at(place, head, now, keep_open=keep_open)


def _check_unit(unit: Unit | None) -> Unit | None:
    from sfumato.domain.unit import check_unit

    return None if unit is None else check_unit(unit)


def _check_answer(answer: object) -> str:
    """The hash of an answer, if it is one."""
    if isinstance(answer, bytes):
        return sha256(answer)
    raise LedgerError(f"an answer is bytes, got {type(answer).__name__}; encode it first")


def _canonical(request: Request) -> str:
    try:
        value = json.loads(request) if isinstance(request, bytes) else dict(request)
        return canonical_json(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise LedgerError(
            f"a request must be JSON, an object or bytes ({type(error).__name__}); "
            "describe it with strings, numbers, lists and objects"
        ) from None
