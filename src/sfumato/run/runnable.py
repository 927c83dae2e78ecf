# SPDX-License-Identifier: Apache-2.0
"""What can be run on a table: the parts of a plan that `run/spine.py` calls in turn.

A `Runnable` is a plan with all that its answer depends on. All of its parts are public but two:
`count` and `draw` pass on exact numbers, which only the vault looks into. `WorkloadRun` has what
plans of a workload share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from sfumato.digest import canonical_json, json_digest
from sfumato.domain.privacy_unit import Unit, unit_of
from sfumato.ledger.entries import Entry
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.types import Neighbours, Progress

if TYPE_CHECKING:
    from typing import Self

    from sfumato.domain.discovery import OpenDomain
    from sfumato.domain.domain import Domain
    from sfumato.ledger.ledger import Ledger
    from sfumato.release.provenance import Promised
    from sfumato.vault.tables import Table

__all__ = [
    "Guarantee",
    "Runnable",
    "Stored",
    "WorkloadRun",
]


Exact = TypeVar("Exact")
Result = TypeVar("Result", covariant=True)


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


class WorkloadRun(Runnable[Exact, Result]):
    """A plan of a workload: what it reads, promises and costs is the plan's."""

    plan: Promised

    @property
    def domain(self) -> Domain:
        """The domain of the workload."""
        return self.plan.workload.domain

    @property
    def guarantee(self) -> Guarantee:
        """That of the plan."""
        return Guarantee(self.plan.budget, self.plan.neighbours, unit_of(self.plan.unit))

    @property
    def cost(self) -> Cost:
        """That of the plan."""
        return self.plan.cost
