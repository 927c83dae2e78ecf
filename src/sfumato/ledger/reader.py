# SPDX-License-Identifier: Apache-2.0
"""What a ledger says: stored answers, debits, what is spent and what is left.

`LedgerReader` is the part of `sfumato.ledger.ledger.Ledger` that changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from sfumato.digest import sha256
from sfumato.domain.privacy_unit import Unit, check_unit
from sfumato.errors import LedgerError
from sfumato.ledger import ledger_tables as tables
from sfumato.ledger.account import UNITS, Account, Price, Remaining
from sfumato.ledger.entries import (
    Allowed,
    Answered,
    Changed,
    Debited,
    Entry,
    Fact,
    Frozen,
    Kept,
    Opened,
    Record,
    State,
    Unfrozen,
    Vouched,
    Withdrawn,
    entries_of,
)
from sfumato.ledger.transaction import RecordChain, check_unit_is
from sfumato.ledger.verify import Verification, verify
from sfumato.privacy.budget import Budget, Number, exact
from sfumato.privacy.cost import Cost, composed_epsilon, rho_of
from sfumato.types import Neighbours

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = [
    "Allowance",
    "Change",
    "LedgerReader",
    "Spent",
]


CURATORS: Final = (Allowed, Changed, Frozen, Unfrozen, Vouched, Withdrawn)
"""The kinds of records that only a curator writes."""


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
    event_delta: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Change:
    """What a curator changed, and when."""

    sequence: int
    time: str
    fact: Fact

    def describe(self) -> str:
        """Return it in words, with its reason where one was given."""
        match self.fact:
            case Changed(budget, by, reason):
                return f"total set to {budget.describe()} by {by}: {reason}"
            case Allowed(analyst, budget):
                return f"allowance of {analyst} set to {budget.describe()}"
            case Withdrawn(analyst):
                return f"allowance of {analyst} withdrawn"
            case Frozen(reason):
                return f"frozen: {reason}"
            case Unfrozen(reason):
                return f"unfrozen: {reason}"
            case _:
                return "vouched for, because its head file was lost"


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one analyst may spend within the budget of the table."""

    analyst: str
    account: Account

    @property
    def budget(self) -> Budget:
        """The whole allowance."""
        return self.account.budget

    @property
    def share(self) -> Fraction:
        """The part of it that is spent; above 1 if it was lowered below what was spent."""
        return Fraction(self.account.spent, UNITS)

    def remaining(self) -> Remaining:
        """Return what one more debit may take of it."""
        return self.account.remaining()


@dataclass(frozen=True, slots=True)
class LedgerReader:
    """A ledger to be read; see `sfumato.ledger.ledger.Ledger`."""

    place: str
    opened: Opened
    _chain: RecordChain = field(repr=False)

    @property
    def budget(self) -> Budget:
        """The total that all debits together may take, as of now."""
        return self._chain.last().total or self.opened.budget

    @property
    def table_id(self) -> str:
        """The name of the table."""
        return self.opened.table_id

    @property
    def neighbours(self) -> Neighbours:
        """Which two tables must be hard to tell apart."""
        return self.opened.neighbours

    @property
    def unit(self) -> Unit | None:
        """Whose presence is protected; None before the first debit if nobody has said."""
        unit = self.opened.unit
        return self._chain.bound(self.opened) if unit is None else unit

    def check_unit(self, unit: Unit) -> None:
        """Refuse a unit that debits could not be made for, before any work is done.

        The debit itself checks again, in its transaction.

        Args:
            unit: Whose presence a debit would protect.

        Raises:
            LedgerError: The ledger is for another unit.
        """
        check_unit_is(self.unit, check_unit(unit))

    def answer(self, key: str) -> bytes | None:
        """Return the stored answer of a key, the same bytes for ever; None if there is none.

        Args:
            key: The key of a request.

        Returns:
            The bytes that were stored, or None.
        """
        with self._chain.store.reading() as transaction:
            row = tables.answer_with_record(transaction, key)
            if row is None:
                row = tables.free_with_record(transaction, key)
        if row is None:
            return None
        data, text = row
        fact = Record.read(text).fact
        if (
            data is None
            or not isinstance(fact, Answered | Kept)
            or fact.answer_sha256 != sha256(data)
        ):
            raise LedgerError(
                f"the stored answer of request key {key!r} is damaged; restore the newest backup"
            )
        return data

    def entries(
        self, *, analyst: str | None = None, after: int = 0, at_most: int | None = None
    ) -> tuple[Entry, ...]:
        """Return the debits, oldest first, and what became of them.

        ``analyst`` selects those that were charged to one, by the debit or by the answer it paid
        for; ``after`` and ``at_most`` page through a long ledger, by the sequence number of the
        last entry seen.

        Args:
            analyst: Whose debits; None for all.
            after: The sequence number of the last entry that was seen.
            at_most: How many are returned; None for all.

        Returns:
            The debits, oldest first.
        """
        with self._chain.store.reading() as transaction:
            charged = _charged(tables.charges(transaction))
            mine = [debit for debit, who in charged.items() if who == analyst and debit > after]
            texts = [(text, digest) for digest, text in tables.records_at(transaction, mine)]
            texts += [
                (text, digest)
                for digest, text in tables.debits(transaction, after, at_most, analyst)
            ]
            debits = [(Record.read(text), digest) for text, digest in texts]
            debits.sort(key=lambda each: each[0].sequence)
            entries = entries_of(debits)
            held = {
                row.debit: row for row in tables.requests(transaction, (e.key for e in entries))
            }
            closing = tables.records_at(
                transaction, (row.closed for row in held.values() if row.closed is not None)
            )
            chain = debits + [(Record.read(text), digest) for digest, text in closing]
        named = (
            replace(entry, analyst=entry.analyst or charged.get(entry.sequence))
            for entry in entries_of(chain)
        )
        # A debit whose key was debited again was burnt before that.
        return tuple(
            entry if entry.sequence in held else replace(entry, state="burnt")
            for entry in named
            if analyst is None or entry.analyst == analyst
        )[:at_most]

    def entry(self, key: str) -> Entry | None:
        """Return the latest debit of a key.

        Args:
            key: The key of a request.

        Returns:
            Its latest debit, or None.
        """
        with self._chain.store.reading() as transaction:
            held = next(tables.requests(transaction, [key]), None)
            places = [] if held is None else [held.debit, held.closed]
            rows = tables.records_at(transaction, (p for p in places if p is not None))
            chain = [(Record.read(text), digest) for digest, text in rows]
        return next(iter(entries_of(chain)), None)

    def state(self, name: str) -> State | None:
        """Return a private state; None if there is none.

        Args:
            name: The name of a state.

        Returns:
            What was last written, or None.
        """
        with self._chain.store.reading() as transaction:
            row = tables.state_with_record(transaction, name)
        if row is None:
            return None
        sealed, text = row
        fact = Record.read(text).fact
        written = fact.states if isinstance(fact, Debited | Answered | Kept) else ()
        if sealed.commitment not in written:
            raise LedgerError(f"private state {name!r} is damaged; restore the newest backup")
        return sealed.state

    def allowances(self) -> tuple[Allowance, ...]:
        """Return what each analyst may spend and has spent, by name.

        Returns:
            One allowance per analyst, by name.
        """
        with self._chain.store.reading() as transaction:
            rows = list(tables.allowances(transaction))
        return tuple(Allowance(row.analyst, row.account) for row in rows)

    def allowance(self, analyst: str) -> Allowance | None:
        """Return what one analyst may spend and has spent; None if nothing but the table binds.

        Args:
            analyst: The name of an analyst.

        Returns:
            The allowance, or None.
        """
        with self._chain.store.reading() as transaction:
            rows = list(tables.allowances(transaction, [analyst]))
        return Allowance(rows[0].analyst, rows[0].account) if rows else None

    def changes(self) -> tuple[Change, ...]:
        """Return what the curator has changed: totals, allowances, freezing; oldest first.

        Returns:
            The changes, oldest first.
        """
        with self._chain.store.reading() as transaction:
            kinds = [kind.__name__.lower() for kind in CURATORS]
            records = [Record.read(text) for text in tables.by_kind(transaction, kinds)]
        return tuple(
            Change(record.sequence, record.time, record.fact)
            for record in records
            if isinstance(record.fact, CURATORS)
        )

    def is_frozen(self) -> bool:
        """Whether the curator has frozen the ledger.

        Returns:
            Whether debits are refused.
        """
        return self._chain.last().frozen

    def version(self) -> int:
        """Return the number of the newest record; while it is equal nothing has changed.

        Returns:
            A number that grows with every record.
        """
        return self._chain.last().sequence

    def check(self) -> None:
        """Begin a change and undo it.

        Raises:
            LedgerError: the ledger cannot be written, and why.
        """
        with self._chain.store.writing() as transaction:
            transaction.is_kept = False

    def spent(self, delta: Number | None = None) -> Spent:
        """Return what was spent; ``delta`` is the budget's unless given.

        Args:
            delta: At which delta epsilon is computed; the budget's if None.

        Returns:
            What the debits come to, as one guarantee.
        """
        last = self._chain.last()
        share = Fraction(last.spent, UNITS)
        costs = [entry.cost for entry in self.entries()]
        budget = last.total or self.opened.budget
        at = budget.delta if delta is None else exact(delta, "delta")
        total = Cost(tuple(part for cost in costs for part in cost.parts))
        return Spent(
            share=share,
            debits=len(costs),
            epsilon=None if at is None else composed_epsilon(costs, at),
            delta=at,
            rho=rho_of(total),
            mu_squared=total.mu_squared,
            pure_epsilon=total.pure_epsilon,
            event_delta=total.delta,
        )

    def dp_event(self) -> DpEvent:
        """Return all debits as one event of the library dp-accounting (`Cost.dp_event`).

        An accountant there composes parts that were fixed in advance. Where later debits were
        chosen after earlier answers, only the ledger's own filter promises its total
        (docs/proofs/accounting.md).

        Returns:
            The event: no operation if nothing was debited.

        Raises:
            BudgetError: A debit has a delta of its own, or the library is not installed.
        """
        return Cost(tuple(p for entry in self.entries() for p in entry.cost.parts)).dp_event()

    def remaining(self, analyst: str | None = None) -> Remaining:
        """Return what one more debit may take, of the table and of the analyst's allowance.

        Args:
            analyst: Whose allowance counts, too.

        Returns:
            What is left, as a share of the budget and as costs that would fit.
        """
        left = [account.remaining() for account in self._accounts(analyst)]
        mus = [each.gaussian_mu for each in left]
        return Remaining(
            share=left[-1].share,
            gaussian_mu=None if None in mus else min(mu for mu in mus if mu is not None),
            pure_epsilon=min(each.pure_epsilon for each in left),
            delta=left[0].delta,
            lanes=left[-1].lanes,
            event_delta=min(
                (each.event_delta for each in left if each.event_delta is not None), default=None
            ),
        )

    def price(
        self, cost: Cost, analyst: str | None = None, *, delta: Fraction | None = None
    ) -> Price:
        """Return what one more debit of this cost takes, or what would fit in its place.

        Args:
            cost: The cost of the release.
            analyst: Whose allowance it must fit as well; the shares are those of the allowance if
                there is one, as in ``remaining``.
            delta: The delta of the release's budget, in which the epsilon that fits is told.

        Returns:
            The share of the budget that it takes and leaves; None for both if it is refused.
        """
        prices = [account.price(cost, delta) for account in self._accounts(analyst)]
        refused = [price for price in prices if not price.fits]
        if not refused:
            return prices[-1]
        left = self.remaining(analyst)
        pure = left.epsilon("pure")
        gaussian = left.epsilon("gaussian", delta) if delta or left.delta else None
        both = (gaussian, pure) if refused[0].kind == "gaussian" else (pure, gaussian)
        return Price(refused[0].kind, None, None, both[0], both[1], refused[0].reason)

    def how_many_more(self, cost: Cost, analyst: str | None = None) -> int:
        """Return how many debits of this cost still fit, one after the other.

        Args:
            cost: What each would cost.
            analyst: Whose allowance counts, too.

        Returns:
            A number of debits.
        """
        return min(account.how_many_more(cost) for account in self._accounts(analyst))

    def share_after(self, cost: Cost, analyst: str | None = None) -> Fraction | None:
        """Return the share that one more debit of this cost would leave; None if it does not fit.

        Of the analyst's allowance if there is one, as in ``remaining``.

        Args:
            cost: What the debit would cost.
            analyst: Whose allowance counts, too.

        Returns:
            A share of the budget between 0 and 1, or None.
        """
        accounts = self._accounts(analyst)
        if not all(account.how_many_more(cost) for account in accounts):
            return None
        return accounts[-1].plus(cost).remaining().share

    def _accounts(self, analyst: str | None) -> list[Account]:
        """The accounts that a debit must fit: the table's, then the analyst's."""
        last = self._chain.last()
        total = last.total or self.opened.budget
        accounts = [Account(total, last.spent, last.pure_spent, last.delta_spent)]
        if analyst is not None:
            with self._chain.store.reading() as transaction:
                accounts += [row.account for row in tables.allowances(transaction, [analyst])]
        return accounts

    def verify(self) -> Verification:
        """Replay the whole chain and compare every table with it; see `Verification`.

        Returns:
            What was checked, and every fault.
        """
        return verify(self._chain.store, self._chain.witness, self.opened.budget)

    def close(self) -> None:
        """Release the database; the ledger opens it again when it is used."""
        self._chain.store.close()


def _charged(texts: Iterable[str]) -> dict[int, str]:
    """The analysts who were charged by answers, by the sequence number of the debit."""
    facts = (Record.read(text).fact for text in texts)
    return {
        fact.debit: fact.analyst
        for fact in facts
        if isinstance(fact, Kept) and fact.is_charged and fact.analyst is not None
    }
