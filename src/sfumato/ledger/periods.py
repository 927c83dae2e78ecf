# SPDX-License-Identifier: Apache-2.0
"""Periods: a new budget for data that is new, and what is promised to who is in several.

A survey that is held every month makes a table every month. Each table has a ledger and a total of
its own; `begin_period` records in the ledger of one period that the next was begun, by whom and
why, and creates its ledger. So the ledgers of a series are a chain of chains: each names the tables
before it and the hash of the record that began it, and each begins at most one other. No clock
begins anything.

`promise_over_periods` says what the totals come to. Theorem 10 of ``docs/proofs/accounting.md``:
who is in the table of one period only is promised the total of that one, whatever the others
spend; who is in k of them is promised the sum of k totals (of epsilons and deltas, of rhos, of
squares of mu), even where answers of all periods are asked for in turn, each question chosen after
all earlier answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import isqrt
from pathlib import Path

from sfumato.errors import LedgerError
from sfumato.ledger import transaction as transaction_module
from sfumato.ledger.entries import Changed, Opened, Period, Renewed, check_name
from sfumato.ledger.ledger import Ledger, utc_now
from sfumato.ledger.transaction import RecordChain
from sfumato.privacy.budget import Budget
from sfumato.privacy.gaussian import sqrt_up

__all__ = ["PeriodTotal", "begin_period", "check_series", "period_total", "promise_over_periods"]


@dataclass(frozen=True, slots=True)
class PeriodTotal:
    """A period of a series, and what was promised to the people of its table.

    Attributes:
        period: Its name; None of the first, which no ledger began.
        table_id: The name of its table.
        total: The largest total that its ledger ever had.
    """

    period: str | None
    table_id: str
    total: Budget


def begin_period(
    ledger: Ledger,
    place: str | Path,
    table_id: str,
    period: str,
    reason: str,
    *,
    by: str = "curator",
    budget: Budget | None = None,
    head: str | Path | None = None,
    keep_open: bool = False,
) -> Ledger:
    """Begin the next period, as the curator: a new table, with a ledger of its own.

    It is recorded in the ledger before, once, with who did it and why; then the new ledger is
    created, with the same neighbours, unit and allowances. The same call again, after a process was
    killed in between, makes what is missing. The ledger before goes on as it was.

    Privacy: ``docs/proofs/accounting.md``, Theorem 10. Which rows are in which table, and the
    totals, must be fixed without looking at answers.
    Neighbours: those of the ledger; of who is in several tables all records may change at once.

    Args:
        ledger: That of the period before.
        place: Where the new ledger will be.
        table_id: The public name of the new table, which no period before may have had.
        period: The public name of the period, such as ``"2026-04"``.
        reason: Why, in public words.
        by: Who begins it.
        budget: The total of the new ledger; that of the period before if None.
        head: Where the head file of the new ledger is.
        keep_open: Whether the new ledger stays open between calls.

    Returns:
        The ledger of the new period.

    Raises:
        LedgerError: Another period was begun after this one, a period before had this table, there
            is something else at ``place``, or the total is of another kind.
    """
    opened = ledger.opened
    earlier = () if opened.period is None else opened.period.tables
    tables = (*earlier, opened.table_id)
    if check_name(table_id, "table_id") in tables:
        raise LedgerError(
            f"the table {table_id!r} has a ledger in this series already, and a second one would "
            "be a second budget for the same people; name the new table"
        )
    held = ledger.renewal()
    if Ledger.exists(place):
        _check_whose(place, None if held is None else held[1])
    names = (check_name(period, "period"), table_id)
    why = (check_name(by, "by"), check_name(reason, "reason"))
    change = partial(_renewed, names=names, budget=budget, why=why)
    made, digest = ledger._do(change)
    of_series = Period(made.period, digest, tables)
    first = Opened(made.budget, made.table_id, opened.neighbours, ledger.unit, of_series)
    return _successor(ledger, place, first, made, head, keep_open=keep_open)


def _renewed(
    batch: transaction_module.WriteBatch,
    names: tuple[str, str],
    budget: Budget | None,
    why: tuple[str, str],
) -> tuple[Renewed, str]:
    return transaction_module.renew(batch, *names, budget, *why)


def _successor(
    ledger: Ledger,
    place: str | Path,
    first: Opened,
    made: Renewed,
    head: str | Path | None,
    *,
    keep_open: bool,
) -> Ledger:
    """Return the ledger that a record has begun, created or completed."""
    now = ledger._chain.now
    chain = RecordChain.at(place, head, now)
    if "://" not in str(place):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
    try:
        chain.begin(first)
    except LedgerError:  # it is there: another process was faster, or one was killed here
        if not Ledger.exists(place):
            raise
    finally:
        chain.store.close()
    assert first.period is not None  # noqa: S101
    _check_whose(place, first.period.after)
    new = Ledger.open(place, head=head, now=now, keep_open=keep_open)
    new._do(lambda batch: transaction_module.allow_first(batch, made.allowances))
    return new


def _check_whose(place: str | Path, began: str | None) -> None:
    """Refuse a ledger that is not that of the next period."""
    chain = RecordChain.at(place, None, utc_now)
    try:
        period = chain.opened().period
    finally:
        chain.store.close()
    if period is None or period.after != began:
        raise LedgerError(
            f"there is a ledger at {place} already, which is not that of the next period; choose "
            "another place"
        )


def promise_over_periods(totals: Sequence[Budget], periods: int | None = None) -> Budget:
    """Return what is promised to who is in so many periods, whichever they are.

    Privacy: ``docs/proofs/accounting.md``, Theorem 10; rounded up.

    Args:
        totals: The totals of all periods, of one kind.
        periods: In how many of them a person can be; all if None.

    Returns:
        The sum of the largest totals, without lanes.

    Raises:
        LedgerError: There are none, or they are of several kinds.

    >>> import sfumato as sf
    >>> sf.promise_over_periods([sf.Budget(epsilon=1, delta=1e-9)] * 12, 2).describe()
    'epsilon = 2, delta = 2e-9'
    >>> sf.promise_over_periods([sf.Budget(mu=3), sf.Budget(mu=4)]).describe()
    'mu = 5'
    """
    most = len(totals) if periods is None else periods
    if not 1 <= most <= len(totals):
        raise LedgerError(
            f"who is in {most} periods, of {len(totals)}? give a number from 1 to {len(totals)}"
        )
    kinds = sorted({total.currency for total in totals})
    if len(kinds) > 1:
        raise LedgerError(
            f"totals in {' and '.join(kinds)} have no common sum; give periods totals of one kind"
        )

    def sum_of(values: Sequence[Fraction | None]) -> Fraction:
        present = sorted((v for v in values if v is not None), reverse=True)
        return sum(present[:most], Fraction(0))

    if kinds == ["rho"]:
        return Budget(rho=sum_of([t.rho for t in totals]))
    if kinds == ["mu"]:
        return Budget(mu=_root_up(sum_of([None if t.mu is None else t.mu**2 for t in totals])))
    epsilon, delta = sum_of([t.epsilon for t in totals]), sum_of([t.delta for t in totals])
    if delta >= 1:
        raise LedgerError(
            "the deltas of these periods add up to 1 or more, which promises nothing; give periods "
            "smaller ones"
        )
    return Budget(epsilon=epsilon, delta=delta)


def period_total(ledger: Ledger) -> PeriodTotal:
    """Return a period with the largest total that it ever had, which is what was promised.

    Args:
        ledger: The ledger of the period.

    Returns:
        Its name, its table, and the largest of its totals in each parameter.
    """
    opened, now = ledger.opened, ledger.budget
    changed = [c.fact.budget for c in ledger.changes() if isinstance(c.fact, Changed)]
    # A total in another currency was only replaced while nothing was spent.
    totals = [t for t in (opened.budget, *changed) if t.currency == now.currency]
    name = None if opened.period is None else opened.period.name
    largest = {
        part: max(value for t in totals if (value := getattr(t, part)) is not None)
        for part in ("epsilon", "delta", "rho", "mu")
        if getattr(now, part) is not None
    }
    return PeriodTotal(name, opened.table_id, Budget(**largest))


def check_series(ledgers: Sequence[Ledger]) -> None:
    """Refuse ledgers that are not one series, oldest first, each begun by the one before.

    Args:
        ledgers: The ledgers of a series.

    Raises:
        LedgerError: One was not begun by the record of the one before it.
    """
    for one, other in pairwise(ledgers):
        held, period = one.renewal(), other.opened.period
        if held is None or period is None or period.after != held[1]:
            raise LedgerError(
                f"the ledger {other.place} was not begun by {one.place}; give the ledgers of one "
                "series, oldest first"
            )


def _root_up(square: Fraction) -> Fraction:
    """The square root, exact where it is a fraction, else rounded up."""
    top, bottom = isqrt(square.numerator), isqrt(square.denominator)
    root = Fraction(top, bottom)
    return root if root**2 == square else Fraction(sqrt_up(square))
