# SPDX-License-Identifier: Apache-2.0
"""The guarded act, on one screen: the only way from a plan and a table to a published answer.

    check -> open the table -> check its columns -> find the ledger -> stored?
          -> count -> debit -> draw -> store -> publish

Whatever can be refused is refused before the debit, the debit comes before the noise, and an answer
is stored before it is used: docs/proofs/ledger.md. Only `Runnable.count` and `Runnable.draw` see
exact data; everything else is arithmetic on public numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, runtime_checkable

from sfumato.digest import canonical_json
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit, Unit
from sfumato.errors import LedgerError, PlanError
from sfumato.ledger.entries import Entry
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.text import shown
from sfumato.types import Neighbours

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from sfumato.ledger.ledger import Ledger
    from sfumato.vault.tables import Table

__all__ = [
    "Access",
    "Guarantee",
    "Progress",
    "Runnable",
    "Stored",
    "opened",
    "run",
    "stored_answer",
]


Progress: TypeAlias = Callable[[int, int, str], None]
Exact = TypeVar("Exact")
Result = TypeVar("Result", covariant=True)


@dataclass(frozen=True, slots=True)
class Access:
    """One access to a table: which one, where it is recorded, for whom.

    ``name`` is the table's in the ledger, if not its own; ``key`` that of the request, if not the
    plan's; ``analyst`` whose allowance is debited as well.
    """

    table: object
    ledger: Ledger | str | Path | None = None
    name: str | None = None
    key: str | None = None
    analyst: str | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        from sfumato.ledger.ledger import Ledger

        for what, text in (("name", self.name), ("key", self.key), ("analyst", self.analyst)):
            if text is not None and not isinstance(text, str):
                raise PlanError(f"{what} must be a text or None, got {shown(text)}")
        if self.ledger is not None and not isinstance(self.ledger, str | PathLike | Ledger):
            raise PlanError(f"ledger must be a path, a Ledger or None, got {shown(self.ledger)}")


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What is promised to the people in a table."""

    budget: Budget
    neighbours: Neighbours
    unit: Unit


@dataclass(frozen=True, slots=True)
class Stored:
    """An answer in a ledger; ``is_own`` if its key is that of the request, not an alternative."""

    key: str
    answer: bytes
    entry: Entry
    is_own: bool


@runtime_checkable
class Runnable(Protocol[Exact, Result]):
    """A plan with all that its answer depends on: public, of known cost, and ready to be run."""

    @property
    def domain(self) -> Domain | None:
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
        ...

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

    def count(self, table: Table | None, progress: Progress | None) -> Exact:
        """Exact numbers, in the vault; runs before the debit, and fails before it."""
        ...

    def draw(self, exact: Exact, progress: Progress | None) -> bytes:
        """Their noisy form; runs in the vault, once, after the debit."""
        ...

    def publish(
        self, answer: bytes, entry: Entry | None, is_stored: bool, progress: Progress | None
    ) -> Result:
        """The result, from what is stored and public numbers."""
        ...


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
    from sfumato.ledger.ledger import paid_entry

    plan = plan.checked(access.table)
    table, ledger = opened(access, plan.domain, plan.guarantee)
    plan = plan.for_table(table)
    if ledger is not None:
        reading = stored_answer(plan, ledger, access.key)
        if reading is not None:
            stored, plan = reading
            return plan.publish(stored.answer, stored.entry, True, access.progress)
        ledger.check_unit(plan.guarantee.unit)
    key = access.key or plan.key()
    answer, is_stored = _measured(plan, table, ledger, key, access)
    del table  # below this line everything is public
    entry = None if ledger is None else paid_entry(ledger, key)
    return plan.publish(answer, entry, is_stored, access.progress)


def _measured(
    plan: Runnable[Exact, object],
    table: Table | None,
    ledger: Ledger | None,
    key: str,
    access: Access,
) -> tuple[bytes, bool]:
    """A new answer, debited before it is drawn and stored after; or that of a faster process."""
    exact = plan.count(table, access.progress)  # what can fail for want of memory comes first
    is_stored = True

    def draw() -> bytes:
        nonlocal is_stored
        is_stored = False
        return plan.draw(exact, access.progress)

    if ledger is None:
        return draw(), False
    unit = plan.guarantee.unit
    answer = ledger.answer_once(
        plan.cost, plan.request(), key, draw, analyst=access.analyst, unit=unit
    )
    return answer, is_stored


def opened(
    access: Access, domain: Domain | None, guarantee: Guarantee, *, keep_open: bool = False
) -> tuple[Table | None, Ledger | None]:
    """Return the table, with the columns of the domain, and its ledger; neither is read or changed.

    Args:
        access: The table and its ledger.
        domain: The columns that are read; None if there is no table.
        guarantee: What must be that of the ledger.
        keep_open: Whether a ledger that is opened here stays open between calls.
    """
    from sfumato.ledger.ledger import ledger_of
    from sfumato.vault.encode import check_columns
    from sfumato.vault.tables import name_of, open_table

    unit = guarantee.unit
    table = None if domain is None else open_table(access.table)
    if domain is not None and table is not None:
        check_columns(table, domain, unit if isinstance(unit, PrivacyUnit) else None)
    name = name_of(access.table, access.name)
    whose = (guarantee.neighbours, guarantee.budget, unit)
    return table, ledger_of(access.ledger, name, *whose, keep_open=keep_open)


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
