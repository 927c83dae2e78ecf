# SPDX-License-Identifier: Apache-2.0
"""Subjects of the audit: a table for every period, with a ledger and a budget of its own.

The tables of three periods are tuples of cells; a person may be in any of them, with a record in
each. Real ledgers are begun one after the other and asked until they refuse, the periods in turn;
what they grant is measured and seen together. Who is in one table is promised one total, who is in
two of them the sum of two (``docs/proofs/accounting.md``, Theorem 10).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from sfumato.domain.domain import Domain
from sfumato.errors import BudgetExhausted, LedgerError
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.periods import begin_period, promise_over_periods
from sfumato.planning.calibrate import calibrate
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.types import Neighbours
from sfumato.vault.mechanisms.measure import count
from sfumato.vault.tables import open_table
from sfumato.workload.build import marginals
from sfumato_audit.examine import Claim, Pair, Sampler, Subject
from sfumato_audit.subjects.measured import COUNTING_AND_MEASURING, Measuring

__all__ = ["Series", "broken_period_subject", "period_subjects"]


Series = tuple[tuple[int, ...], ...]
"""The cells of the records of each period, oldest first."""

PERIODS = 3
DOMAIN = Domain({"cell": 3})
TOTAL = Budget(epsilon=1)
COST = Fraction(1, 2)  # of a question
COVERED = frozenset({"ledger:periods"}) | COUNTING_AND_MEASURING


def period_subjects() -> tuple[Subject[Series], ...]:
    """Somebody who is in one of the tables, and somebody who is in two of them."""
    subjects = []
    for neighbours in ("add-remove", "replace-one"):
        for changed in ((1,), (0, 2)):
            name = f"a budget for each period, in {len(changed)} of {PERIODS} ({neighbours})"
            claim = Claim.of(Cost.pure(_promised(len(changed))))
            pairs = (_pair(changed, neighbours),)
            sampler = _sampler(neighbours, lambda series: series)
            subjects.append(Subject(name, claim, pairs, sampler, COVERED))
    return tuple(subjects)


def broken_period_subject() -> Subject[Series]:
    """A new budget for the same table under another name, promised as if it were a new table."""
    return Subject(
        "a budget for each period, of the same data",
        Claim.of(Cost.pure(_promised(1))),
        (_pair((0,), "add-remove"),),
        _sampler("add-remove", lambda series: series[:1] * PERIODS),
        COVERED,
        is_broken=True,
    )


def _promised(periods: int) -> Fraction:
    epsilon = promise_over_periods([TOTAL] * PERIODS, periods).epsilon
    assert epsilon is not None  # noqa: S101
    return epsilon


def _pair(changed: tuple[int, ...], neighbours: Neighbours) -> Pair[Series]:
    """Series that differ in one record of each of some periods."""
    one: Series = ((1, 2), (2,), (1, 1))
    new = 0
    if neighbours == "add-remove":
        other = tuple((*t, new) if i in changed else t for i, t in enumerate(one))
    else:
        other = tuple((new, *t[1:]) if i in changed else t for i, t in enumerate(one))
    return Pair(f"another record in {len(changed)} of {PERIODS} tables", one, other)


@cache
def _granted() -> tuple[int, ...]:
    """The periods of the debits that real ledgers granted, when all were asked in turn."""
    granted = []
    with TemporaryDirectory() as folder:
        first = Ledger.create(Path(folder) / "0", TOTAL, "table 0", unit="row")
        ledgers = [first]
        for number in range(1, PERIODS):
            new = (Path(folder) / f"{number}", f"table {number}", f"period {number}")
            ledgers.append(begin_period(ledgers[-1], *new, "audit"))
        try:
            begin_period(ledgers[-1], Path(folder) / "again", "table 0", "again", "audit")
        except LedgerError:
            pass
        else:  # a second budget for a table that has one
            granted += [0, 0]
        for question in range(4):
            for number, ledger in enumerate(ledgers):
                try:
                    ledger.debit(Cost.pure(COST), {}, f"{question}", unit="row")
                    granted.append(number)
                except BudgetExhausted:
                    continue
        for ledger in ledgers:
            ledger.close()
    return tuple(granted)


def _sampler(
    neighbours: Neighbours, tables: Callable[[Series], Series]
) -> Callable[[Series], Sampler]:
    """Everything that the ledgers granted, in its order."""
    strategy = MECHANISMS["laplace-table"].build(marginals(DOMAIN, 1), "laplace", "rmse")
    noise = calibrate(strategy, float(COST), neighbours)
    run = Measuring(DOMAIN, strategy.blocks, noise, neighbours)

    def sampler(series: Series) -> Sampler:
        frames = [pd.DataFrame({DOMAIN.names[0]: np.array(t, np.int64)}) for t in tables(series)]
        exact = [count(open_table(f), DOMAIN, strategy.blocks, neighbours) for f in frames]
        return lambda runs, source: np.hstack(
            [run.measured(exact[period], runs, source) for period in _granted()]
        )

    return sampler
