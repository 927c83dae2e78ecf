# SPDX-License-Identifier: Apache-2.0
"""A ledger that its first debit creates, for what asks it before: an open session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.domain.privacy_unit import Unit
from sfumato.ledger.account import Account, Remaining
from sfumato.ledger.entries import Entry, KeptAnswer, State
from sfumato.ledger.ledger import LedgerToCreate, Request
from sfumato.ledger.reader import Allowance
from sfumato.ledger.transaction import Pending
from sfumato.privacy.cost import Cost

__all__ = ["UnmadeLedger"]


@dataclass(frozen=True, slots=True)
class UnmadeLedger:
    """The part of a ledger that a session uses, where the first debit creates it: empty before.

    Args:
        new: Whose budget it is, and its place.
    """

    new: LedgerToCreate

    def debit(
        self,
        cost: Cost,
        request: Request,
        key: str,
        *,
        analyst: str | None = None,
        unit: Unit | None = None,
    ) -> Entry:
        """Create the ledger if this is its first debit, and take the cost."""
        return self.new.made().debit(cost, request, key, analyst=analyst, unit=unit)

    def store(self, entry: Entry, answer: bytes, *, states: Sequence[State] = ()) -> Entry:
        """Store what was paid for."""
        return self.new.made().store(entry, answer, states=states)

    def burn(self, entry: Entry) -> Entry:
        """Give a debit up."""
        return self.new.made().burn(entry)

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
        """Store an answer; the debit that pays for it has created the ledger."""
        return self.new.made().keep_soon(
            key, request, answer, paid_by, analyst=analyst, states=states, is_charged=is_charged
        )

    def answer(self, key: str) -> bytes | None:
        """A stored answer."""
        held = self.new.ledger
        return None if held is None else held.answer(key)

    def entry(self, key: str) -> Entry | None:
        """The latest debit of a key."""
        held = self.new.ledger
        return None if held is None else held.entry(key)

    def keys_after(self, after: int, part: str) -> tuple[int, tuple[str, ...]]:
        """Keys of debits since a record whose request has a text in it, and the newest record."""
        held = self.new.ledger
        return (after, ()) if held is None else held.keys_after(after, part)

    def state(self, name: str) -> State | None:
        """A private state."""
        held = self.new.ledger
        return None if held is None else held.state(name)

    def how_many_more(self, cost: Cost, analyst: str | None = None) -> int:
        """How many debits of this cost fit, of the whole budget before the first."""
        held = self.new.ledger
        if held is None:
            return Account(self.new.terms.total).how_many_more(cost)
        return held.how_many_more(cost, analyst)

    def allowance(self, analyst: str) -> Allowance | None:
        """What an analyst may spend; a new ledger has no allowances."""
        held = self.new.ledger
        return None if held is None else held.allowance(analyst)

    def is_frozen(self) -> bool:
        """Whether nothing new may be asked; a new ledger is not frozen."""
        held = self.new.ledger
        return held is not None and held.is_frozen()

    def remaining(self, analyst: str | None = None) -> Remaining:
        """What one more debit may take, of the whole budget before the first."""
        held = self.new.ledger
        return (
            Account(self.new.terms.total).remaining() if held is None else held.remaining(analyst)
        )
