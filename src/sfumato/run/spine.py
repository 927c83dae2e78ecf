# SPDX-License-Identifier: Apache-2.0
"""The guarded act, on one screen: the only way from a plan and a table to a published answer.

    check -> open the table -> check its columns -> find the ledger -> stored?
          -> count -> debit -> draw -> store -> publish

Whatever can be refused is refused before the debit, the debit comes before the noise, and an answer
is stored before it is used: docs/proofs/ledger.md. Only `Runnable.count` and `Runnable.draw` see
exact data; everything else is arithmetic on public numbers.

What is run is a `Runnable`: a plan with all that its answer depends on, in the parts that `run`
calls in turn. `PlanRun` and `WorkloadRun` have what most of them share, `ReleasePlan` what people
call. What answers more than once is a `Lasting`: opened like the others, and paid for by `begin`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from sfumato.digest import canonical_json, json_digest
from sfumato.domain.privacy_unit import PrivacyUnit, Unit
from sfumato.errors import LedgerError, PlanError, SfumatoError
from sfumato.ledger.entries import Entry
from sfumato.privacy.budget import Guarantee
from sfumato.privacy.cost import Cost
from sfumato.text import shown
from sfumato.types import Progress

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from sfumato.domain.discovery import OpenDomain
    from sfumato.domain.domain import Domain
    from sfumato.ledger.entries import State
    from sfumato.ledger.ledger import Ledger, LedgerToCreate, Request
    from sfumato.release.provenance import Payable, Promised
    from sfumato.vault.tables import Table

__all__ = [
    "PAYING",
    "Access",
    "DebitLedger",
    "Lasting",
    "PlanRun",
    "ReleasePlan",
    "Runnable",
    "Stored",
    "WorkloadRun",
    "begin",
    "opened",
    "run",
    "stored_answer",
]


PAYING = "paying"
"""The step of a progress function that is told between count and debit."""

Exact = TypeVar("Exact")
Result = TypeVar("Result")
Published = TypeVar("Published", covariant=True)


@dataclass(frozen=True, slots=True)
class Access:
    """One access to a table: which one, where it is recorded, for whom.

    ``name`` is the table's in the ledger, if not its own; ``key`` that of the request, if not the
    plan's; ``analyst`` whose allowance is debited as well. A new ledger is created between count
    and debit.
    """

    table: object
    ledger: Ledger | LedgerToCreate | str | Path | None = None
    name: str | None = None
    key: str | None = None
    analyst: str | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        from sfumato.ledger.ledger import Ledger, LedgerToCreate

        for what, text in (("name", self.name), ("key", self.key), ("analyst", self.analyst)):
            if text is not None and not isinstance(text, str):
                raise PlanError(f"{what} must be a text or None, got {shown(text)}")
        kinds = (str, PathLike, Ledger, LedgerToCreate)
        if self.ledger is not None and not isinstance(self.ledger, kinds):
            raise PlanError(f"ledger must be a path, a Ledger or None, got {shown(self.ledger)}")


def run(plan: Runnable[Exact, Result], access: Access) -> Result:
    """Return what a plan publishes about a table: its stored answer, or a new one, paid for.

    Args:
        plan: What is run.
        access: The table and its ledger. Without a ledger nothing remembers what was spent.

    Returns:
        What the plan publishes.

    Raises:
        LedgerError: The ledger is missing or another table's, or the key is another request's.
        BudgetExhausted: The cost does not fit what is left; nothing was drawn.
    """
    plan = plan.checked(access.table)  # nothing is opened yet
    table, ledger = opened(access, plan.domain, plan.guarantee)
    plan = plan.for_table(table)
    if ledger is not None:
        reading = stored_answer(plan, ledger, access.key)
        if reading is not None:
            stored, plan = reading
            return plan.publish(stored.answer, stored.entry, True, access.progress)
        ledger.check_unit(plan.guarantee.unit)
    if access.ledger is not None:
        plan = plan.for_ledger()
    key = access.key or plan.key()
    answer, entry, is_stored = _measured(plan, table, ledger, key, access)
    del table  # below this line everything is public
    return plan.publish(answer, entry, is_stored, access.progress)


def opened(
    access: Access,
    domain: Domain | OpenDomain | None,
    guarantee: Guarantee,
    *,
    keep_open: bool = False,
) -> tuple[Table | None, Ledger | None]:
    """Return the table, with the columns of the domain, and its ledger; neither is read or changed.

    There is no ledger yet where it is a new one.

    Args:
        access: The table and its ledger.
        domain: The columns that are read; None if there is no table.
        guarantee: What must be that of the ledger.
        keep_open: Whether a ledger that is opened here stays open between calls.
    """
    from sfumato.ledger.ledger import ledger_of
    from sfumato.vault.encode import check_columns
    from sfumato.vault.tables import name_of, open_table

    unit, ledger = guarantee.unit, access.ledger
    table = None if domain is None else open_table(access.table)
    if domain is not None and table is not None:
        check_columns(table, domain, unit if isinstance(unit, PrivacyUnit) else None)
    if ledger is None:
        return table, None
    name = name_of(access.table, access.name)
    whose = (guarantee.neighbours, guarantee.budget, unit)
    return table, ledger_of(ledger, name, *whose, keep_open=keep_open)


def stored_answer(
    plan: Runnable[Exact, Result], ledger: Ledger, key: str | None = None
) -> tuple[Stored, Runnable[Exact, Result]] | None:
    """Return the answer that a ledger has for a request, and what publishes it; spends nothing.

    Raises:
        LedgerError: The key is that of another request, or the answer cannot be read any more.
    """
    own = key or plan.key()
    for name in plan.keys(ledger) if key is None else (key,):
        answer = ledger.answer(name)
        entry = None if answer is None else ledger.entry(name)
        if answer is None or entry is None:
            continue
        stored = Stored(name, answer, entry, is_own=name == own)
        reader = plan.reader(stored)
        if reader is not None:
            return stored, reader
        if stored.is_own:
            raise LedgerError(
                f"request key {name!r} was used for another request; choose another key"
            )
    return None


def _measured(
    plan: Runnable[Exact, object],
    table: Table | None,
    ledger: Ledger | None,
    key: str,
    access: Access,
) -> tuple[bytes, Entry | None, bool]:
    """Return an answer, its debit, and whether it was stored: by a faster process, in the meantime.

    A progress function that raises may stop a run before anything is debited: at a step of the
    count, or for the last time at the step "paying", which is told between count and debit.

    Privacy: `Runnable.draw` runs at most once. With a ledger that is inside `Ledger.answer_once`,
    which debits before and stores after it. What fails for want of memory fails in `count`, before.
    """
    from sfumato.ledger.ledger import LedgerToCreate, paid_entry

    exact = plan.count(table, access.progress)
    if access.progress is not None:
        access.progress(0, 1, PAYING)
    is_stored = True

    def draw() -> bytes:
        nonlocal is_stored
        is_stored = False
        return plan.draw(exact, access.progress)

    if isinstance(access.ledger, LedgerToCreate):
        ledger = access.ledger.made()
    if ledger is None:
        return draw(), None, False
    unit = plan.guarantee.unit
    answer = ledger.answer_once(
        plan.cost, plan.request(), key, draw, analyst=access.analyst, unit=unit
    )
    return answer, paid_entry(ledger, key), is_stored


class DebitLedger(Protocol):
    """The part of `Ledger` that pays for what lasts."""

    def debit(
        self,
        cost: Cost,
        request: Request,
        key: str,
        *,
        analyst: str | None = None,
        unit: Unit | None = None,
    ) -> Entry:
        """Take the cost, before its noise is drawn."""
        ...

    def store(self, entry: Entry, answer: bytes, *, states: Sequence[State] = ()) -> Entry:
        """Store what was paid for."""
        ...

    def burn(self, entry: Entry) -> Entry:
        """Give a debit up."""
        ...


def begin(
    plan: Lasting,
    ledger: DebitLedger,
    cost: Cost,
    request: Request,
    key: str,
    start: Callable[[Entry], tuple[Exact, bytes | None, Sequence[State]]],
    *,
    analyst: str | None = None,
) -> tuple[Entry, Exact]:
    """Return the entry of something that lasts, and what ``start`` made of it after the debit.

    For what answers more than once: a session's epoch, a watch, a stream. ``start`` draws the first
    noise, and returns with it what is stored, None if that comes at the end.

    Privacy: the debit comes first; where ``start`` or the store fails, it is burnt.

    Raises:
        BudgetExhausted: The cost does not fit what is left; nothing was drawn.
    """
    unit = plan.guarantee.unit
    entry = ledger.debit(cost, request, key, analyst=analyst, unit=unit)
    try:
        live, answer, states = start(entry)
        if answer is not None:
            entry = ledger.store(entry, answer, states=states)
    except BaseException:
        with suppress(SfumatoError):  # then it stays reserved, and is burnt later
            ledger.burn(entry)
        raise
    return entry, live


# What can be run


@dataclass(frozen=True, slots=True)
class Stored:
    """An answer in a ledger; ``is_own`` if its key is that of the request, not an alternative."""

    key: str
    answer: bytes
    entry: Entry
    is_own: bool


@runtime_checkable
class Runnable(Protocol[Exact, Published]):
    """A plan with all that its answer depends on: public, of known cost, and ready to be run."""

    @property
    def domain(self) -> Domain | OpenDomain | None:
        """The columns that are read; None where no table is, as for a series of counts."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """What is promised; that of the ledger must be the same."""
        ...

    @property
    def cost(self) -> Cost:
        """What is debited."""
        ...

    def request(self) -> Mapping[str, object]:
        """The canonical description of what is paid for: equal meaning, equal bytes."""
        ...

    def key(self) -> str:
        """The key under which an answer is stored, unless another one is given: a digest."""
        return json_digest(self.request())

    def keys(self, ledger: Ledger) -> Iterable[str]:
        """The keys under which the answer may be stored, also by earlier versions."""
        del ledger
        return (self.key(),)

    def reader(self, stored: Stored) -> Self | None:
        """What publishes a stored answer; None if the answer is that of another request."""
        is_same = stored.entry.request == canonical_json(self.request())
        return self if is_same else None

    def checked(self, table: object) -> Self:
        """This with its arguments read; refuses what can be refused before the table is opened."""
        del table
        return self

    def for_table(self, table: Table | None) -> Self:
        """This as it is run on a table of this kind."""
        del table
        return self

    def for_ledger(self) -> Self:
        """This as a ledger keeps its answer; runs before the debit."""
        return self

    def count(self, table: Table | None, progress: Progress | None) -> Exact:
        """Exact numbers, in the vault; runs before the debit, and fails before it."""
        ...

    def draw(self, exact: Exact, progress: Progress | None) -> bytes:
        """Their noisy form; runs in the vault, once, after the debit."""
        ...

    def publish(
        self, answer: bytes, entry: Entry | None, is_stored: bool, progress: Progress | None
    ) -> Published:
        """The result, from what is stored and public numbers."""
        ...


class PlanRun(Runnable[Exact, Published]):
    """A plan that says itself what it promises and costs."""

    plan: Payable

    @property
    def guarantee(self) -> Guarantee:
        """That of the plan."""
        return Guarantee(self.plan.budget, self.plan.neighbours, self.plan.unit or "row")

    @property
    def cost(self) -> Cost:
        """That of the plan."""
        return self.plan.cost


class WorkloadRun(PlanRun[Exact, Published]):
    """A plan of a workload: what it reads is the domain of its queries."""

    plan: Promised

    @property
    def domain(self) -> Domain:
        """The domain of the workload."""
        return self.plan.workload.domain


class ReleasePlan(ABC, Generic[Published]):
    """A plan whose release is one run: who has it looks for its stored answer, or runs it."""

    @abstractmethod
    def request(self) -> dict[str, object]:
        """The public description of what is paid for, as the ledger keeps it.

        Returns:
            What the ledger keeps of the request, as JSON.
        """

    @abstractmethod
    def runnable(self) -> Runnable[Any, Published]:
        """This plan as `run` runs it.

        Returns:
            The plan in the parts that are called in turn.
        """

    def digest(self) -> str:
        """SHA-256 of the request: equal requests, equal digest.

        Returns:
            64 hexadecimal digits.
        """
        return json_digest(self.request())

    def stored_key(self, ledger: Ledger, *, key: str | None = None) -> str | None:
        """The key under which a ledger has the answer of this request, if it has; spends nothing.

        Args:
            ledger: The ledger of the table.
            key: The one key to look for, as given to `release`.

        Returns:
            The key, or None.

        Raises:
            LedgerError: The key is that of another request.
        """
        reading = stored_answer(self.runnable(), ledger, key)
        return None if reading is None else reading[0].key

    def release(
        self,
        table: object,
        ledger: Ledger | LedgerToCreate | str | Path | None = None,
        *,
        name: str | None = None,
        key: str | None = None,
        analyst: str | None = None,
        progress: Progress | None = None,
    ) -> Published:
        """Run the plan on a table: count, debit, draw, publish.

        As `Plan.release`: the debit comes before any noise, what is drawn is stored before it is
        used, and the same request on the same table returns the stored answer at no further cost.

        Args:
            table: As in `Plan.release`.
            ledger: The ledger of the table, opened or its path. Without one nothing remembers
                what was spent: that is the caller's promise.
            name: The table's in the ledger; needed for a table in memory.
            key: The request's in the ledger; the digest of the request if None.
            analyst: Whose allowance is debited as well.
            progress: Called with what is done and how much of it.

        Returns:
            What was published, and what holds of it.

        Raises:
            TableError: The table cannot be opened, lacks a column, or cannot hold what is wanted.
            BudgetExhausted: The cost does not fit what is left.
            LedgerError: There is no ledger, or it is of another table, neighbour relation or unit.
        """
        return run(self.runnable(), Access(table, ledger, name, key, analyst, progress))


class Lasting(Protocol):
    """A plan of what answers more than once: opened by `opened`, and paid for by `begin`."""

    @property
    def guarantee(self) -> Guarantee:
        """What is promised; that of the ledger must be the same."""
        ...
