# SPDX-License-Identifier: Apache-2.0
"""A ledger's chain made again, record by record, by the rules that it must have kept.

Each debit is recomputed from its cost, for the table and for its analyst; each record must follow
from those before it. What the chain says in the end is what the tables must hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sfumato.budget.account import Account
from sfumato.budget.accounting import Cost
from sfumato.budget.budget import Budget
from sfumato.budget.changes import priced, sideways
from sfumato.budget.entries import (
    GENESIS,
    Allowed,
    Answered,
    Burnt,
    Changed,
    Commitment,
    Debited,
    Frozen,
    Kept,
    Opened,
    Record,
    Unfrozen,
    Withdrawn,
    unit_of_debit,
)
from sfumato.errors import BudgetError, LedgerError

if TYPE_CHECKING:
    from sfumato.domain.unit import Unit

__all__ = ["Replay"]


@dataclass(slots=True)
class Replay:
    """The chain so far, what follows from it, and what is wrong with it."""

    budget: Budget
    account: Account
    chain: list[tuple[Record, str]] = field(default_factory=list)  # without free answers
    free: dict[str, tuple[int, str]] = field(default_factory=dict)  # by key: record, hash of bytes
    hashes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    states: dict[str, tuple[int, Commitment]] = field(default_factory=dict)
    allowances: dict[str, Account] = field(default_factory=dict)
    is_frozen: bool = False
    unit: Unit | None = None
    other_unit: list[int] = field(default_factory=list)  # older debits for another unit
    _is_bound: bool = False  # by a debit, not by the first record
    _all_costs: list[Cost] = field(default_factory=list)
    _total: Budget | None = None  # since the curator has changed it
    _totals: list[Budget] = field(default_factory=list)  # all there were
    _costs: dict[str, list[Cost]] = field(default_factory=dict)
    _of_nobody: dict[int, Cost] = field(default_factory=dict)  # debits that name no analyst
    _open: set[int] = field(default_factory=set)
    _paying: set[int] = field(default_factory=set)
    _held: dict[int, str] = field(default_factory=dict)
    _keys: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, str, str]], budget: Budget) -> Replay:
        """Replay (sequence, hash, text) of all records."""
        replay = cls(budget, Account(budget))
        replay._totals.append(budget)
        for row in rows:
            replay._follow(*row)
        return replay

    def _follow(self, sequence: int, digest: str, text: str) -> None:
        place, previous = len(self.hashes), self.hashes[-1] if self.hashes else GENESIS
        self.hashes.append(digest)
        try:
            record = Record.read(text)
            after = self._account_after(record)
            self.problems += [f"record {sequence}: {words}" for words in self._apply(record)]
        except (LedgerError, BudgetError) as error:
            self.problems.append(f"record {sequence}: {error}")
            return
        checks = {
            "place": (place, sequence),
            "number": (place, record.sequence),
            "previous hash": (previous, record.previous),
            "hash": (Record.hash_of(text), digest),
            "balance": (after.spent, record.spent),
            "pure balance": (after.pure_spent, record.pure_spent),
            "frozen mark": (self.is_frozen, record.frozen),
        }
        if record.version >= 3:
            checks["bound unit"] = (self.unit if self._is_bound else None, record.unit)
            checks["total"] = (self._total, record.total)
        self.problems += [
            f"record {sequence}: its {word} is wrong"
            for word, (right, seen) in checks.items()
            if right != seen
        ]
        if after.is_overdrawn:
            self.problems.append(f"record {sequence}: more than the budget is spent")
        if isinstance(record.fact, Opened) != (place == 0):
            self.problems.append(f"record {sequence}: a ledger is opened by its first record only")
        if not isinstance(record.fact, Kept):  # of which there may be millions
            self.chain.append((record, digest))
        self.account = Account(self.budget, record.spent, record.pure_spent)

    def _account_after(self, record: Record) -> Account:
        fact = record.fact
        if isinstance(fact, Changed):
            self.budget = self._total = fact.budget
            after = priced(fact.budget, self._all_costs)
            return Account(fact.budget).emptied() if after is None else after
        return self.account.plus(fact.cost) if isinstance(fact, Debited) else self.account

    def _apply(self, record: Record) -> Iterator[str]:
        """Take a record in; yield the rules that it breaks."""
        match record.fact:
            case Opened(unit=unit):
                self.unit = unit
            case Debited():
                yield from self._for_the_unit(record)
                yield from self._debited(record.sequence, record.fact)
            case Answered(debit=debit):
                yield from self._closed(debit)
            case Burnt(debit=debit):
                yield from self._closed(debit)
                self._paying.discard(debit)
                self._keys.discard(self._held.get(debit, ""))
            case Kept():
                yield from self._kept(record.sequence, record.fact)
            case Allowed(analyst, budget):
                self.allowances[analyst] = Account(budget).plus_all(self._costs.get(analyst, []))
            case Withdrawn(analyst):
                if self.allowances.pop(analyst, None) is None:
                    yield "it withdraws an allowance that was not given"
            case Changed(budget):
                was = self.account.budget
                if not (budget.is_within(was) or priced(budget, self._all_costs)):
                    yield "what was spent does not fit into its total, which is not a lower one"
                if sideways(self._totals, budget, self._all_costs):
                    yield "it chooses between two filters after Gaussian noise was spent"
                self._totals.append(budget)
            case Frozen() | Unfrozen():
                if self.is_frozen == isinstance(record.fact, Frozen):
                    yield "it freezes or unfreezes a ledger that is so already"
                self.is_frozen = isinstance(record.fact, Frozen)
        if isinstance(record.fact, Debited | Answered | Kept):
            for state in record.fact.states:
                held = self.states.get(state.name)
                if state.version != (0 if held is None else held[1].version) + 1:
                    yield f"it writes state {state.name!r} out of order"
                self.states[state.name] = (record.sequence, state)

    def _for_the_unit(self, record: Record) -> Iterator[str]:
        """Since version 3 a debit must be for the ledger's unit; older ones were not compared."""
        assert isinstance(record.fact, Debited)  # noqa: S101
        unit = unit_of_debit(record.fact)
        if self.unit is None:
            self.unit, self._is_bound = unit, unit is not None
        elif unit not in (None, self.unit):
            self.other_unit.append(record.sequence)
            if record.fact.unit is not None:
                yield "it is for another unit than the ledger's"

    def _debited(self, sequence: int, fact: Debited) -> Iterator[str]:
        self._open.add(sequence)
        self._paying.add(sequence)
        self._held[sequence] = fact.key
        self._all_costs.append(fact.cost)
        yield from self._taken(fact.key)
        if fact.analyst is None:
            self._of_nobody[sequence] = fact.cost
        else:
            yield from self._charged(fact.analyst, fact.cost)

    def _charged(self, analyst: str, cost: Cost) -> Iterator[str]:
        self._costs.setdefault(analyst, []).append(cost)
        allowance = self.allowances.get(analyst)
        if allowance is not None:
            self.allowances[analyst] = after = allowance.plus(cost)
            if after.is_overdrawn:
                yield "more than the allowance of its analyst is spent"

    def _kept(self, sequence: int, fact: Kept) -> Iterator[str]:
        yield from self._taken(fact.key)
        self.free[fact.key] = (sequence, fact.answer_sha256)
        if fact.debit not in self._paying:
            yield f"debit {fact.debit} does not pay for it"
        if fact.is_charged and fact.analyst is not None and fact.debit in self._of_nobody:
            yield from self._charged(fact.analyst, self._of_nobody[fact.debit])

    def _taken(self, key: str) -> Iterator[str]:
        if self.is_frozen:
            yield "it came while the ledger was frozen"
        if key in self._keys:
            yield "its key was used before and not burnt"
        self._keys.add(key)

    def _closed(self, debit: int) -> Iterator[str]:
        if debit not in self._open:
            yield f"it closes debit {debit}, which is not open"
        self._open.discard(debit)
