# SPDX-License-Identifier: Apache-2.0
"""What a session needs of a ledger, and a stand-in that forgets everything with the process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from sfumato.budget import Cost
from sfumato.budget.account import Remaining
from sfumato.budget.book import Allowance
from sfumato.budget.entries import Entry, KeptAnswer
from sfumato.budget.ledger import Request
from sfumato.budget.private import State
from sfumato.domain.unit import Unit
from sfumato.errors import LedgerError

__all__ = ["Book", "MemoryBook", "Waiting"]


class Waiting(Protocol):
    """An answer on its way into the book."""

    def result(self) -> KeptAnswer:
        """Wait until it is stored."""
        ...


class Book(Protocol):
    """The part of `Ledger` that a session uses."""

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
        """Keep what was paid for."""
        ...

    def burn(self, entry: Entry) -> Entry:
        """Give a debit up."""
        ...

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
    ) -> Waiting:
        """Store an answer that costs nothing more, and charge its debit to an allowance."""
        ...

    def answer(self, key: str) -> bytes | None:
        """A stored answer."""
        ...

    def entry(self, key: str) -> Entry | None:
        """The latest debit of a key."""
        ...

    def state(self, name: str) -> State | None:
        """A private state."""
        ...

    def how_many_more(self, cost: Cost, analyst: str | None = None) -> int:
        """How many debits of this cost still fit."""
        ...

    def allowance(self, analyst: str) -> Allowance | None:
        """What an analyst may spend; None if nothing but the table binds."""
        ...

    def is_frozen(self) -> bool:
        """Whether nothing new may be asked."""
        ...

    def remaining(self, analyst: str | None = None) -> Remaining:
        """What one more debit may take."""
        ...


@dataclass(frozen=True, slots=True)
class _Done:
    kept: KeptAnswer

    def result(self) -> KeptAnswer:
        return self.kept


@dataclass(slots=True)
class MemoryBook:
    """A book without a ledger: nothing remembers what was spent. Limits are the session's own."""

    _entries: dict[str, Entry] = field(default_factory=dict)
    _answers: dict[str, bytes] = field(default_factory=dict)
    _states: dict[str, State] = field(default_factory=dict)

    def debit(
        self,
        cost: Cost,
        request: Request,
        key: str,
        *,
        analyst: str | None = None,
        unit: Unit | None = None,  # noqa: ARG002
    ) -> Entry:
        """Note that a cost was taken."""
        if key in self._entries:
            raise LedgerError(f"request key {key!r} is in use; choose another key")
        entry = Entry(
            sequence=len(self._entries) + 1,
            time="",
            key=key,
            request=str(request),
            cost=cost,
            owner="",
            state="reserved",
            answer_sha256=None,
            hash="",
            analyst=analyst,
        )
        self._entries[key] = entry
        return entry

    def store(self, entry: Entry, answer: bytes, *, states: Sequence[State] = ()) -> Entry:
        """Keep what was paid for."""
        self._answers[entry.key] = answer
        self._write(states)
        return entry

    def burn(self, entry: Entry) -> Entry:
        """A burnt debit stays a debit."""
        return entry

    def keep_soon(
        self,
        key: str,
        request: Request,  # noqa: ARG002
        answer: bytes,
        paid_by: Entry,  # noqa: ARG002
        *,
        analyst: str | None = None,  # noqa: ARG002
        states: Sequence[State] = (),
        is_charged: bool = False,  # noqa: ARG002
    ) -> Waiting:
        """Store an answer at once."""
        is_new = key not in self._answers
        if is_new:
            self._answers[key] = answer
            self._write(states)
        return _Done(KeptAnswer(key, self._answers[key], is_new))

    def answer(self, key: str) -> bytes | None:
        """A stored answer."""
        return self._answers.get(key)

    def entry(self, key: str) -> Entry | None:
        """The debit of a key."""
        return self._entries.get(key)

    def state(self, name: str) -> State | None:
        """A private state."""
        return self._states.get(name)

    def how_many_more(self, cost: Cost, analyst: str | None = None) -> int:  # noqa: ARG002
        """Without a ledger nothing else limits a session."""
        return 2**31

    def allowance(self, analyst: str) -> Allowance | None:  # noqa: ARG002
        """Nobody has one."""
        return None

    def is_frozen(self) -> bool:
        """Nobody can."""
        return False

    def remaining(self, analyst: str | None = None) -> Remaining:  # noqa: ARG002
        """Everything, for nothing is counted."""
        return Remaining(Fraction(1), None, Fraction(1))

    def _write(self, states: Sequence[State]) -> None:
        self._states |= {state.name: state for state in states}
