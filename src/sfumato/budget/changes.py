# SPDX-License-Identifier: Apache-2.0
"""What may be appended to a ledger, and when it is refused.

Each function is one change. It is called inside a transaction with the `Page` of that moment,
first checks everything, raising with nothing added, and only then appends. What it reads it reads
from the page, so that changes which share a transaction see each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sfumato.budget.account import Account
from sfumato.budget.accounting import Cost
from sfumato.budget.budget import Budget
from sfumato.budget.entries import (
    Allowed,
    Answered,
    Burnt,
    Changed,
    Debited,
    Entry,
    Frozen,
    Kept,
    KeptAnswer,
    Unfrozen,
    Vouched,
    Withdrawn,
    entries_of,
)
from sfumato.budget.owner import is_gone
from sfumato.budget.page import Page
from sfumato.budget.private import Sealed
from sfumato.budget.tables import AllowanceRow, RequestRow
from sfumato.errors import BudgetError, BudgetExhausted, LedgerError, LedgerFrozen, StateChanged

if TYPE_CHECKING:
    from sfumato.domain.unit import Unit

__all__ = [
    "allow",
    "burn_lost",
    "check_unit_is",
    "close",
    "debit",
    "keep",
    "priced",
    "set_frozen",
    "set_total",
    "sideways",
    "vouch",
    "withdraw",
]


def debit(page: Page, debited: Debited, states: Sequence[Sealed]) -> Entry:
    """Take the units of a debit from the table and from its analyst, or refuse.

    Privacy: both accounts are checked, in the transaction that moves them; so is the unit, for
    costs of different units do not add up (``docs/proofs/ledger.md``, claim 14).
    """
    _check_not_frozen(page)
    check_unit_is(page.unit, debited.unit)
    lost = _check_key_is_open(page, debited.key)
    _check_versions(page, states)
    after = page.account.plus(debited.cost)
    if after.is_overdrawn:
        raise BudgetExhausted(page.account.refusal(debited.cost))
    allowance = None if debited.analyst is None else page.allowance(debited.analyst)
    if allowance is not None:
        allowance = _taken_from(allowance, debited.cost)
    if lost is not None:
        page.append(Burnt(lost))
    appended = page.append(debited, account=after, allowance=allowance, states=states)
    return entries_of([appended])[0]


def check_unit_is(bound: Unit | None, unit: Unit | None) -> None:
    """Refuse a cost that was computed for another unit than the ledger's."""
    from sfumato.domain.unit import unit_in_words

    if bound is None or unit is None or unit == bound:
        return
    raise LedgerError(
        f"the ledger protects {unit_in_words(bound)}, this request protects {unit_in_words(unit)}; "
        "costs of different units do not add up, and nothing was spent: plan with the ledger's "
        "unit, or create another ledger, whose budget is a promise of its own"
    )


def _check_key_is_open(page: Page, key: str) -> int | None:
    """Refuse a key that is held; return the debit to burn first, if its process is gone."""
    if page.free(key) is not None:
        raise LedgerError(f"request key {key!r} is answered; read it with answer(key)")
    held = page.request(key)
    if held is None or held.state == "burnt":
        return None
    if held.state == "answered":
        raise LedgerError(f"request key {key!r} is answered; read it with answer(key)")
    if is_gone(_owner(page, held)):
        return held.debit
    raise LedgerError(
        f"request key {key!r} is being answered by another caller; ask again, or burn "
        "its entry if that caller is known to be gone"
    )


def _owner(page: Page, held: RequestRow) -> str:
    record = page.record(held.debit)
    return record.fact.owner if record and isinstance(record.fact, Debited) else ""


def close(
    page: Page,
    entry: Entry,
    fact: Answered | Burnt,
    answer: bytes | None = None,
    states: Sequence[Sealed] = (),
) -> None:
    """Answer or burn a debit that is reserved, once."""
    held = page.request(entry.key)
    if held is None or held.debit != entry.sequence or held.state != "reserved":
        stage = "burnt" if held is None or held.debit != entry.sequence else held.state
        raise LedgerError(
            f"debit {entry.sequence} of request key {entry.key!r} is {stage}, not "
            "reserved; its answer must not be sent: read answer(key) or debit again"
        )
    _check_versions(page, states)
    page.append(fact, answer=answer, states=states)


def burn_lost(page: Page, key: str) -> None:
    """Burn the debit of a key if it is reserved by a process that is certainly gone."""
    held = page.request(key)
    if held is not None and held.state == "reserved" and is_gone(_owner(page, held)):
        page.append(Burnt(held.debit))


def keep(
    page: Page, kept: Kept, answer: bytes, paid_key: str, states: Sequence[Sealed]
) -> KeptAnswer:
    """Store an answer that costs nothing more; the first one of a key stays for ever.

    Privacy: the answer is covered by the debit that it names, which must not be burnt: what it
    draws on was paid for (``docs/proofs/ledger.md``, claim 8).
    """
    stored = page.free(kept.key)
    if stored is not None:
        record = page.record(stored.sequence)
        data = page.free_data(stored)
        if record is None or not isinstance(record.fact, Kept) or data is None:
            raise LedgerError(
                f"the stored answer of request key {kept.key!r} is damaged; restore the newest "
                "backup"
            )
        if record.fact.request != kept.request:
            raise LedgerError(
                f"request key {kept.key!r} was used for another request; choose another key"
            )
        return KeptAnswer(kept.key, data, is_new=False)
    _check_not_frozen(page)
    held = page.request(kept.key)
    if held is not None and held.state != "burnt":
        raise LedgerError(
            f"request key {kept.key!r} has a debit of its own; read answer(key), or choose another"
        )
    payer = page.request(paid_key)
    if payer is None or payer.debit != kept.debit or payer.state == "burnt":
        raise LedgerError(
            f"debit {kept.debit} does not pay for a free answer: it is burnt or not of this "
            "ledger; debit again"
        )
    _check_versions(page, states)
    charged = _charged(page, kept) if kept.is_charged else None
    page.append(kept, answer=answer, states=states, allowance=charged)
    return KeptAnswer(kept.key, answer, is_new=True)


def _charged(page: Page, kept: Kept) -> AllowanceRow | None:
    """The allowance of the analyst whose answer this is, after the debit that pays for it."""
    record = page.record(kept.debit)
    if kept.analyst is None or record is None or not isinstance(record.fact, Debited):
        return None
    if record.fact.analyst is not None:  # it was charged to somebody when it was debited
        return None
    allowance = page.allowance(kept.analyst)
    if allowance is None:
        return None
    return _taken_from(allowance, record.fact.cost)


def _taken_from(allowance: AllowanceRow, cost: Cost) -> AllowanceRow:
    after = allowance.account.plus(cost)
    if after.is_overdrawn:
        raise BudgetExhausted(
            f"allowance of analyst {allowance.analyst!r}: {allowance.account.refusal(cost)}"
        )
    return AllowanceRow(allowance.analyst, after)


def allow(page: Page, analyst: str, budget: Budget) -> None:
    """Give an analyst a budget; all debits that ever named the analyst count against it."""
    account = Account(budget).plus_all(page.costs_of(analyst))
    page.append(Allowed(analyst, budget), allowance=AllowanceRow(analyst, account))


def withdraw(page: Page, analyst: str) -> None:
    """Take an allowance away: from here on only the table's budget limits the analyst."""
    if page.allowance(analyst) is None:
        raise LedgerError(f"analyst {analyst!r} has no allowance; there is nothing to withdraw")
    page.append(Withdrawn(analyst))


def set_total(page: Page, changed: Changed) -> None:
    """Set another total; all debits so far are priced by it, in their order.

    A lower total that is spent already leaves nothing; any other must hold what was spent.

    Privacy: after it the account is as if the ledger had been opened with this total and had
    granted the same debits (``docs/proofs/ledger.md``, claim 15).
    """
    costs = [debited.cost for debited in page.debits_of(None)]
    account = priced(changed.budget, costs)
    if account is None:
        if not changed.budget.is_within(page.account.budget):
            raise LedgerError(
                f"what was spent does not fit into a total of {changed.budget.describe()}, and it "
                f"is not a lower one than {page.account.budget.describe()}; choose a larger one"
            )
        account = Account(changed.budget).emptied()
    elif sideways(page.totals(), changed.budget, costs):
        raise LedgerError(
            f"{changed.budget.describe()} is counted otherwise than a total of before, or leaves "
            "more for one kind of noise and less for the other, and something was spent: that "
            "would be a choice between two filters after answers were seen; change both parts alike"
        )
    page.append(changed, account=account)


def priced(budget: Budget, costs: Iterable[Cost]) -> Account | None:
    """Return the account of a total after debits of these costs; None if they do not fit."""
    try:
        account = Account(budget).plus_all(costs)
    except BudgetError:  # Gaussian noise has no place in a pure total
        return None
    return None if account.is_overdrawn else account


def sideways(totals: Iterable[Budget], budget: Budget, costs: Sequence[Cost]) -> bool:
    """Whether a new total allows more of one kind of noise and less of the other than some before.

    So does, once something was spent, one that is counted otherwise: rho or mu for epsilon.

    Privacy: totals of which each allows more or less of both kinds than every other keep the
    largest of them (``docs/proofs/accounting.md``, after Theorem 5).
    """
    totals = list(totals)
    if costs and any(total.currency != budget.currency for total in totals):
        return True
    account = priced(budget, costs)
    before = (priced(total, costs) for total in totals)
    return account is not None and not all(
        each is None or each.may_become(account) for each in before
    )


def set_frozen(page: Page, fact: Frozen | Unfrozen) -> None:
    """Freeze or unfreeze."""
    if page.is_frozen == isinstance(fact, Frozen):
        raise LedgerError(
            "the ledger is frozen already; unfreeze it first, or leave it"
            if page.is_frozen
            else "the ledger is not frozen; there is nothing to unfreeze"
        )
    page.append(fact)


def vouch(page: Page) -> None:
    """Record that the curator declared this copy to be the newest."""
    page.append(Vouched())


def _check_not_frozen(page: Page) -> None:
    if page.is_frozen:
        raise LedgerFrozen(
            "the ledger is frozen by its curator: stored answers only; ask the curator"
        )


def _check_versions(page: Page, states: Sequence[Sealed]) -> None:
    for sealed in states:
        held = page.state_version(sealed.state.name)
        if sealed.state.version != held + 1:
            raise StateChanged(
                f"private state {sealed.state.name!r} is at version {held}, version "
                f"{sealed.state.version} cannot follow; read it again and go on from there"
            )
