# SPDX-License-Identifier: Apache-2.0
"""The ledger: requests on a table, what each cost and what was answered; durable.

    debit  ->  draw noise  ->  store  ->  send

A debit is one conditional UPDATE in one transaction, before noise is drawn; the answer is stored
before it is sent; the same key gets the same bytes for ever. A debit whose answer was lost is
burnt: its units stay spent and its noise is never drawn again under it. Killing the process at
any point can waste budget but never release without a debit. States and proofs:
``docs/proofs/ledger.md``. The ledger never sees the table.

`Ledger` is the public class. `ledger_of` and `Terms` find the ledger that a request on a table is
debited in, and never create one by accident: a typo in a path would be a fresh budget. So a path is
only opened, and the error for one that leads nowhere has the command that creates it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from time import sleep
from typing import Final, TypeAlias, TypeVar

from sfumato.digest import canonical_json, sha256
from sfumato.domain.privacy_unit import PrivacyUnit, Unit, check_unit
from sfumato.errors import KeyHeld, LedgerError
from sfumato.ledger import ledger_tables as tables
from sfumato.ledger import transaction as transaction_module
from sfumato.ledger.entries import (
    Answered,
    Burnt,
    Changed,
    Debited,
    Entry,
    Frozen,
    Kept,
    KeptAnswer,
    Opened,
    State,
    Unfrozen,
    check_name,
    commitments,
    seal_all,
)
from sfumato.ledger.ledger_limits import LIMITS
from sfumato.ledger.reader import LedgerReader
from sfumato.ledger.store import open_store, this_process
from sfumato.ledger.transaction import Clock, GroupCommit, Pending, RecordChain, WriteBatch
from sfumato.privacy.budget import Budget, check_neighbours, number_text
from sfumato.privacy.cost import Cost
from sfumato.types import Neighbours

__all__ = [
    "QUERY_HASH",
    "Ledger",
    "LedgerToCreate",
    "Request",
    "Terms",
    "check_total",
    "ledger_of",
    "obey_total",
    "paid_entry",
    "raise_command",
    "utc_now",
]


Request: TypeAlias = Mapping[str, object] | bytes
"""A public description of what is asked: JSON, as an object or as bytes."""

T = TypeVar("T")


def utc_now() -> datetime:
    """Return the time that records have unless another clock is given."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Ledger(LedgerReader):
    """The budget of one table under one neighbour relation and one privacy unit, durable.

    It is kept in a file or a database.

    Made by `create`, `open` or `open_or_create`. Any number of processes and threads may use the
    same ledger at once, and a `Ledger` may be carried across a fork. What threads of a process
    change at the same time is committed together. ``keep_open`` leaves the database open between
    calls, which is faster; without it a ledger file is complete in itself after each call.

    Args:
        place: Where it is kept, without a password.
        opened: What was read when it was opened.
    """

    _commits: GroupCommit = field(repr=False)

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
        now: Clock = utc_now,
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
        chain = RecordChain.at(place, head, now, keep_open=keep_open)
        chain.begin(opened)
        return cls._of(chain, opened)

    @classmethod
    def open(
        cls,
        place: str | Path,
        *,
        head: str | Path | None = None,
        now: Clock = utc_now,
        keep_open: bool = False,
    ) -> Ledger:
        """Open an existing ledger; refuse one that is damaged or behind its head file.

        Debits that dead processes left without an answer become burnt.

        Args:
            place: The path of its file, or a database.
            head: The path of its head file; beside it if None.
            now: The clock.
            keep_open: Whether the database stays open between calls.

        Returns:
            The ledger.

        Raises:
            LedgerError: There is none, or it is damaged or older than its head file.
        """
        if not cls.exists(place):
            raise LedgerError(f"there is no ledger at {place}; create it, or check the path")
        chain = RecordChain.at(place, head, now, keep_open=keep_open)
        ledger = cls._of(chain, chain.opened())
        chain.check()
        chain.store.bring_up_to_date()
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
        now: Clock = utc_now,
        keep_open: bool = False,
    ) -> Ledger:
        """Open the ledger of this table, or create it with ``budget_if_new``.

        An existing ledger keeps its own budget; one of another table, neighbour relation or unit
        is refused.

        Args:
            place: The path of its file, or a database.
            table_id: What identifies the table.
            neighbours: The neighbour relation of all debits.
            budget_if_new: The total of a new ledger; None refuses to create one.
            unit: Whose presence is protected; the first debit decides if None.
            head: The path of its head file; beside it if None.
            now: The clock.
            keep_open: Whether the database stays open between calls.

        Returns:
            The ledger.

        Raises:
            LedgerError: It is of another table, neighbour relation or unit, or there is none.
        """
        check_neighbours(neighbours)
        if not cls.exists(place):
            if budget_if_new is None:
                raise LedgerError(f"there is no ledger at {place}; give a budget to create one")
            terms = (place, budget_if_new, table_id, neighbours)
            try:
                return cls.create(*terms, unit=unit, head=head, now=now, keep_open=keep_open)
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
        """Whether there is a ledger at this place.

        Args:
            place: The path of its file, or a database.

        Returns:
            Whether `open` would find one.
        """
        return open_store(place).exists()

    @classmethod
    def vouch(
        cls, place: str | Path, *, head: str | Path | None = None, now: Clock = utc_now
    ) -> Ledger:
        """Declare, as the curator, that this copy is the newest, and begin a new head file.

        Only for a ledger whose head file is lost; a ledger behind its head file stays refused.

        Args:
            place: The path of its file, or a database.
            head: The path of the new head file; beside it if None.
            now: The clock.

        Returns:
            The ledger.

        Raises:
            LedgerError: Its head file is there.
        """
        chain = RecordChain.at(place, head, now)
        if not cls.exists(place) or not chain.lacks_witness:
            raise LedgerError(
                f"only a ledger whose head file is lost needs vouching, {place} does not; open it"
            )
        commit = partial(chain.commit, chain.opened(), may_lack_lines=True)
        GroupCommit(commit).submit(transaction_module.vouch).result()
        return cls.open(place, head=head, now=now)

    @classmethod
    def _of(cls, chain: RecordChain, opened: Opened) -> Ledger:
        return cls(chain.store.name, opened, chain, GroupCommit(partial(chain.commit, opened)))

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

        Privacy: one conditional UPDATE is check and debit (``docs/proofs/ledger.md``, claim 1);
        the account is a privacy filter (``docs/proofs/accounting.md``, Theorem 4).
        Neighbours: those of the ledger; the cost must have been computed for them.

        Args:
            cost: What the request costs, rounded up.
            request: Its public description.
            key: What it is stored under.
            analyst: Who asks; their allowance is debited, too.
            states: Private states that are written in the same transaction.
            unit: Whose presence the cost protects; None is the caller's promise that it is the
                ledger's.

        Returns:
            The reserved debit, to be answered by `store`.

        Raises:
            BudgetExhausted: It does not fit what is left of the table's budget or of the analyst's
                allowance; nothing is written.
            LedgerFrozen: The curator froze the ledger.
            LedgerError: The key is answered already (read `answer`) or is being answered by a live
                process, or the unit is not the ledger's.
        """
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
        return self._do(lambda batch: transaction_module.debit(batch, debited, sealed), key)

    def store(self, entry: Entry, answer: bytes, *, states: Sequence[State] = ()) -> Entry:
        """Store the answer of a reserved debit; only after this may it be sent.

        Args:
            entry: The reserved debit.
            answer: The bytes that will be sent.
            states: Private states that are written in the same transaction.

        Returns:
            The debit, answered.

        Raises:
            LedgerError: The debit is not reserved any more: then the answer must be thrown away.
        """
        sealed = seal_all(states)
        answered = Answered(entry.sequence, _check_answer(answer), commitments(sealed))
        self._do(
            lambda batch: transaction_module.close(batch, entry, answered, answer, sealed),
            entry.key,
        )
        return replace(entry, state="answered", answer_sha256=answered.answer_sha256)

    def burn(self, entry: Entry) -> Entry:
        """Declare that a reserved debit will never be answered; its units stay spent.

        Args:
            entry: The reserved debit.

        Returns:
            The debit, burnt.

        Raises:
            LedgerError: It is not reserved any more.
        """
        self._do(
            lambda batch: transaction_module.close(batch, entry, Burnt(entry.sequence)), entry.key
        )
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

        Privacy: the caller's proof must say that ``paid_by`` covers the answer, whatever the
        number of such answers (``docs/proofs/ledger.md``, claim 8).

        Args:
            key: What the answer is stored under.
            request: The public description of what is answered.
            answer: The bytes that will be sent.
            paid_by: The debit that covers it.
            analyst: Who asks.
            states: Private states that are written in the same transaction.
            is_charged: Whether the cost of a debit that names nobody counts against the analyst's
                allowance.

        Returns:
            The stored answer; the earlier one, and no states, if the key has a free answer already.

        Raises:
            LedgerFrozen: The curator froze the ledger.
            LedgerError: The key is of another request, or the debit is burnt.
            BudgetExhausted: The charge does not fit the allowance.
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

        Args:
            key: As in `keep`.
            request: As in `keep`.
            answer: As in `keep`.
            paid_by: As in `keep`.
            analyst: As in `keep`.
            states: As in `keep`.
            is_charged: As in `keep`.

        Returns:
            What waits for the commit; its ``result()`` is what `keep` returns.
        """
        sealed = seal_all(states)
        fact = Kept(
            key=check_name(key, "key"),
            request=_canonical(request),
            debit=paid_by.sequence,
            answer_sha256=_check_answer(answer),
            analyst=None if analyst is None else check_name(analyst, "analyst"),
            states=commitments(sealed),
            is_charged=is_charged,
        )
        change = partial(
            transaction_module.keep, fact=fact, answer=answer, paid_key=paid_by.key, states=sealed
        )
        return self._commits.submit(change, (key, paid_by.key))

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

        Who comes second while another process, or thread, is answering waits for what that one
        stores, and pays nothing.

        Privacy: ``produce`` draws the noise; it runs at most once per debit, after the debit.

        Args:
            cost: What the request costs, rounded up.
            request: Its public description.
            key: What it is stored under.
            produce: Draws the noise and returns the answer; runs at most once per debit, after it.
            analyst: Who asks.
            unit: Whose presence the cost protects.

        Returns:
            The stored answer, new or old.

        Raises:
            BudgetExhausted: The cost does not fit what is left.
            LedgerFrozen: The curator froze the ledger and nothing is stored.
            LedgerError: The key is of another request, or somebody has been answering for long.
        """
        for looks_left in reversed(range(LIMITS.answer_looks)):
            stored = self.answer(key)
            if stored is not None:
                latest = self.entry(key)
                if latest is not None and latest.request != _canonical(request):
                    raise LedgerError(
                        f"request key {key!r} was used for another request; choose another key"
                    )
                return stored
            try:
                entry = self.debit(cost, request, key, analyst=analyst, unit=unit)
                break
            except KeyHeld:
                if not looks_left:
                    raise
            sleep(LIMITS.answer_pause)
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

        Args:
            analyst: The name of an analyst.
            budget: What they may spend.
        """
        name = check_name(analyst, "analyst")
        self._do(lambda batch: transaction_module.allow(batch, name, budget))

    def withdraw(self, analyst: str) -> None:
        """Take an analyst's allowance away, as the curator; recorded in the chain.

        From then on only the budget of the table limits them.

        Args:
            analyst: The name of an analyst.

        Raises:
            LedgerError: They have no allowance.
        """
        name = check_name(analyst, "analyst")
        self._do(lambda batch: transaction_module.withdraw(batch, name))

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
        fact = Changed(budget, check_name(by, "by"), check_name(reason, "reason"))
        self._do(lambda batch: transaction_module.set_total(batch, fact))

    def freeze(self, reason: str) -> None:
        """Stop debits and free answers, as the curator; stored answers are still served.

        Args:
            reason: Why, for the record.
        """
        fact = Frozen(check_name(reason, "reason"))
        self._do(lambda batch: transaction_module.set_frozen(batch, fact))

    def unfreeze(self, reason: str) -> None:
        """Let debits and free answers go on, as the curator.

        Args:
            reason: Why, for the record.
        """
        fact = Unfrozen(check_name(reason, "reason"))
        self._do(lambda batch: transaction_module.set_frozen(batch, fact))

    def _do(self, change: Callable[[WriteBatch], T], *keys: str) -> T:
        return self._commits.submit(change, keys).result()

    def _burn_lost(self) -> None:
        """Burn the reserved debits whose process is certainly gone."""
        with self._chain.store.reading() as transaction:
            waiting = [row.key for row in tables.reserved(transaction)]
        lines = [
            self._commits.submit(partial(transaction_module.burn_lost, key=key), (key,))
            for key in waiting
        ]
        for pending in lines:
            pending.result()


def _check_unit(unit: Unit | None) -> Unit | None:
    return None if unit is None else check_unit(unit)


def _check_answer(answer: object) -> str:
    """The hash of an answer; anything but bytes is refused."""
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


# The ledger of a table

QUERY_HASH: Final = re.compile(r"(?<=^query) [0-9a-f]{12}(?= on )")
"""In the name of a query: the hash of its text. Ledgers of earlier versions have it without."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Whose budget a ledger is: table, neighbours and unit, and the total if it is a new one.

    ``head`` is where its head file is, if not beside it.
    """

    table_id: str
    neighbours: Neighbours
    unit: Unit
    total: Budget
    head: Path | None = None

    def open(self, place: str | Path, *, keep_open: bool = False, advice: str = "") -> Ledger:
        """Return the ledger at a place, which must be there and of this table.

        The unit is compared by the first new debit: what is stored stays readable.
        """
        if not Ledger.exists(place):
            raise LedgerError(
                f"there is no ledger at {place}, and nothing was spent. Check the path; a new "
                f"ledger is a new budget, so it is created by a command of its own:\n  "
                f"{self.command(place)}{advice}"
            )
        ledger = Ledger.open(place, head=self.head, keep_open=keep_open)
        _check_whose(ledger, self.table_id, self.neighbours)
        return ledger

    def create(self, place: str | Path, *, keep_open: bool = False) -> Ledger:
        """Create the ledger; its folder too, if it has none."""
        if "://" not in str(place):
            Path(place).parent.mkdir(parents=True, exist_ok=True)
        whose = (self.total, self.table_id, self.neighbours)
        return Ledger.create(place, *whose, unit=self.unit, head=self.head, keep_open=keep_open)

    def open_or_create(self, place: str | Path, *, keep_open: bool = False) -> Ledger:
        """Create the ledger, or open it if another process was faster."""
        try:
            return self.create(place, keep_open=keep_open)
        except LedgerError:
            if not Ledger.exists(place):
                raise
        return self.open(place, keep_open=keep_open)

    def command(self, place: str | Path) -> str:
        """Return the command that creates it."""
        arguments = ["sfumato", "ledger", "create", str(place), "--table", self.table_id]
        arguments += _amounts(self.total)
        if self.neighbours != "add-remove":
            arguments += ["--neighbours", self.neighbours]
        if isinstance(self.unit, str):
            arguments += ["--unit", self.unit]
        else:
            arguments += ["--unit", self.unit.column, "--rows-per-unit", str(self.unit.rows)]
            if self.unit.groups is not None:
                arguments += ["--groups-per-unit", str(self.unit.groups)]
                arguments += ["--rows-per-group", str(self.unit.rows_per_group)]
                arguments += [part for name in self.unit.by for part in ("--groups-by", name)]
        return shlex.join(arguments)


class LedgerToCreate:
    """A ledger that is created by its first debit, so that what is refused before leaves none.

    Args:
        terms: Whose budget it is, and the total.
        place: The path of its file, or a database, where there is none yet.
        keep_open: Whether it stays open between calls, until who made this closes it.
    """

    def __init__(self, terms: Terms, place: str | Path, *, keep_open: bool = False) -> None:
        self.terms, self.place, self._keep_open = terms, place, keep_open
        self._ledger: Ledger | None = None

    @property
    def table_id(self) -> str:
        """The public name of the table."""
        return self.terms.table_id

    @property
    def neighbours(self) -> Neighbours:
        """Which two tables must be hard to tell apart."""
        return self.terms.neighbours

    @property
    def ledger(self) -> Ledger | None:
        """The ledger, once it is there."""
        return self._ledger

    def made(self) -> Ledger:
        """Return the ledger: created, or opened if another process was faster."""
        if self._ledger is None:
            self._ledger = self.terms.open_or_create(self.place, keep_open=self._keep_open)
        return self._ledger

    def close(self) -> None:
        """Close the ledger, if it is there."""
        if self._ledger is not None:
            self._ledger.close()


def raise_command(place: str | Path, total: Budget) -> str:
    """Return the command that sets a larger total."""
    arguments = ["sfumato", "ledger", "raise", str(place), *_amounts(total)]
    return f"{shlex.join(arguments)} --reason 'WHY'"


def _amounts(budget: Budget) -> list[str]:
    parts = [
        part
        for name, value in budget.as_json().items()
        for part in (f"--{name.replace('_', '-')}", value)
    ]
    return [_decimal(part) if not part.startswith("--") else part for part in parts]


def _decimal(value: str) -> str:
    """The fraction as a decimal, if that is exactly the same number."""
    text = number_text(Fraction(value))
    return text if Fraction(text) == Fraction(value) else value


def obey_total(ledger: Ledger, total: Budget, source: str) -> bool:
    """Bring a ledger to the total that its configuration gives; return whether it changed.

    A lower one takes effect and is recorded. Any other is refused with the command that sets it:
    a larger budget is a weaker promise, which nobody should make by editing a file.
    """
    check_total(ledger, total, source)
    total = total.with_lanes_of(ledger.budget)
    if total == ledger.budget:
        return False
    ledger.set_total(total, f"lowered in {Path(source).name}"[:200], by="configuration")
    return True


def check_total(ledger: Ledger, total: Budget, source: str) -> None:
    """Refuse a configured total that is neither the ledger's nor a lower one.

    One without lanes is compared as one with the lanes that the ledger was opened with.
    """
    held = ledger.budget
    if total.with_lanes_of(held).is_within(held):
        return
    raise LedgerError(
        f"{source} gives a total of {total.describe()}, the ledger {ledger.place} has "
        f"{held.describe()}. A total that is not lower is set by a command, which the ledger "
        f"records:\n  {raise_command(ledger.place, total)}\nOr write the ledger's total."
    )


def ledger_of(
    ledger: Ledger | LedgerToCreate | str | Path,
    name: str | None,
    neighbours: Neighbours,
    budget: Budget,
    unit: Unit,
    *,
    keep_open: bool = False,
) -> Ledger | None:
    """Return the ledger of a table; a path must lead to one. None for a new one without a debit.

    Args:
        ledger: An open ledger, one that the first debit creates, a path or an address.
        name: The name of the table; None for one in memory that nobody has named.
        neighbours: Those of the plan.
        budget: That of the plan, for the command that creates a missing ledger.
        unit: That of the plan, likewise.
        keep_open: Whether a ledger that is opened here stays open between calls.

    Raises:
        LedgerError: If there is no ledger, the table has no name, or it is not the ledger's.
    """
    if name is None:
        held = (
            f" (this ledger's table is {ledger.table_id!r})" if isinstance(ledger, Ledger) else ""
        )
        raise LedgerError(
            "a table in memory, or an expression, has no name of its own, so a ledger could not "
            f"tell it from another one and would give the other one's answers; say name=...{held}"
        )
    if isinstance(ledger, LedgerToCreate):
        if ledger.ledger is None:
            _check_whose(ledger, name, neighbours)
            return None
        ledger = ledger.ledger
    if not isinstance(ledger, Ledger):
        return Terms(name, neighbours, unit, budget).open(
            ledger, keep_open=keep_open, advice=_in_python(ledger, name, neighbours, unit, budget)
        )
    _check_whose(ledger, name, neighbours)
    return ledger


def _check_whose(ledger: Ledger | LedgerToCreate, name: str, neighbours: Neighbours) -> None:
    """Refuse the ledger of another table or neighbour relation."""
    if not _is_same_table(ledger.table_id, name):
        raise LedgerError(
            f"the ledger {ledger.place} belongs to table {ledger.table_id!r}, this table is "
            f"{name!r}; use its own ledger, or say name={ledger.table_id!r} if it is the same table"
        )
    if ledger.neighbours != neighbours:
        raise LedgerError(
            f"the ledger {ledger.place} counts {ledger.neighbours} neighbours, the plan "
            f"{neighbours}; plan with the ledger's, or use another ledger"
        )


def _is_same_table(held: str, name: str) -> bool:
    """Whether two names are of one table: a query without the hash of its text is any."""
    if held == name:
        return True
    plain = [QUERY_HASH.sub("", each) for each in (held, name)]
    return plain[0] == plain[1] and (held in plain or name in plain)


def _in_python(
    place: str | Path, name: str, neighbours: Neighbours, unit: Unit, budget: Budget
) -> str:
    parts = ", ".join(f'{key}="{_decimal(v)}"' for key, v in budget.as_json().items())
    about = "" if neighbours == "add-remove" else f', "{neighbours}"'
    whose = repr(unit) if isinstance(unit, str) else f"sf.PrivacyUnit({unit.column!r}, {unit.rows})"
    if isinstance(unit, PrivacyUnit) and unit.groups is not None:
        whose = f"sf.{unit!r}"
    return (
        f"\nor in Python:\n  sf.Ledger.create({str(place)!r}, sf.Budget({parts}), {name!r}{about}, "
        f"unit={whose})"
    )


def paid_entry(ledger: Ledger, key: str) -> Entry:
    """Return the debit that paid for an answer: the last one of its key."""
    entry = ledger.entry(key)
    if entry is None:
        raise LedgerError("the debit of this request has gone from its ledger; verify the ledger")
    return entry
