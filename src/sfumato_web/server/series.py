# SPDX-License-Identifier: Apache-2.0
"""Series of periods on the server: each period is a dataset, begun by a curator while it runs.

A dataset of the configuration with a ``period`` is the first of a series. The next ones are begun
by a curator with a reason, never by a clock; the ledger of the period before records it
(`sfumato.ledger.periods`). Which periods there are follows from those records alone, so a restart
finds them, and completes one that was begun when a process was killed. Whoever has the series has
all its periods; what the configuration allows somebody is theirs in each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from threading import Lock
from typing import TYPE_CHECKING

from sfumato.cli.output import budget_document
from sfumato.ledger.periods import begin_period, period_total, promise_over_periods
from sfumato_web.server.config import (
    Analyst,
    DatasetConfig,
    check_apart,
    check_table,
    terms_of,
)
from sfumato_web.server.problems import Problem, not_valid

if TYPE_CHECKING:
    from sfumato.ledger.ledger import Ledger
    from sfumato_web.server.dataset import GuardedDataset

__all__ = ["Series"]


class Series:
    """The periods of one series, oldest first.

    Args:
        name: That of the series.
        first: Its first period, as it is served.
        make: What a period is, by its name.
        serve: Opens a period for callers.
    """

    def __init__(
        self,
        name: str,
        first: GuardedDataset,
        make: Callable[[str], DatasetConfig],
        serve: Callable[[DatasetConfig], GuardedDataset],
    ) -> None:
        self.name, self._make, self._serve = name, make, serve
        self.periods = [first]
        self._lock = Lock()
        for config in _periods_after(first.ledger, make):
            self.periods.append(serve(config))

    def begin(
        self, who: Analyst, period: str, reason: str, others: Iterable[DatasetConfig]
    ) -> GuardedDataset:
        """Begin a period, or return it if it is the newest: to do it twice is no fault.

        Raises:
            Problem: A period of this name was begun before, another one is under way, or its table
                is that of another dataset.
        """
        with self._lock:
            last = self.periods[-1]
            if last.config.period == period and len(self.periods) > 1:
                return last
            if any(each.config.period == period for each in self.periods):
                raise Problem(
                    409, "period", f"the period {period} was begun before; name a new one"
                )
            config = self._make(period)
            if len(config.name) > 64:
                message = "the names of series and period have more than 63 characters together"
                raise not_valid([{"loc": ("body", "period"), "msg": message}])
            for other in others:
                if check_apart(other, config):
                    message = f"its table or its ledger is that of {other.right}, too"
                    raise Problem(409, "period", f"{message}; name a period that has its own")
            check_table(config)
            held = last.ledger.renewal()
            if held is not None and held[0].period != period:
                message = f"the period {held[0].period} is begun already; finish that one first"
                raise Problem(409, "period", message)
            _begun(last.ledger, config, who.name, reason).close()
            made = self._serve(config)
            self.periods.append(made)
            return made

    def shown(self, who: Analyst) -> dict[str, object]:
        """Its periods and what they promise; by whom and why they were begun for those who may."""
        totals = [period_total(each.ledger) for each in self.periods]
        budgets = [each.total for each in totals]
        begun = [None, *(each.ledger.renewal() for each in self.periods[:-1])]
        periods = []
        for dataset, total, record in zip(self.periods, totals, begun, strict=True):
            fact = None if record is None else record[0]
            why = None if fact is None or not who.sees_all else fact
            periods.append(
                {
                    "dataset": dataset.name,
                    "period": dataset.config.period,
                    "budget": budget_document(total.total),
                    "by": None if why is None else why.by,
                    "reason": None if why is None else why.reason,
                }
            )
        counts = range(1, len(budgets) + 1)
        promised = [budget_document(promise_over_periods(budgets, k)) for k in counts]
        return {"name": self.name, "periods": periods, "promised": promised}


def _periods_after(ledger: Ledger, make: Callable[[str], DatasetConfig]) -> Iterable[DatasetConfig]:
    """Yield the periods after the one of a ledger, as their records say.

    A ledger that a kill has left unmade is made before its period is yielded.
    """
    while (held := ledger.renewal()) is not None:
        config = make(held[0].period)
        with closing(_begun(ledger, config, held[0].by, held[0].reason)) as ledger:
            yield config


def _begun(ledger: Ledger, config: DatasetConfig, by: str, reason: str) -> Ledger:
    """Record a period and return its ledger; it is created, or what was recorded is completed."""
    terms = terms_of(config)
    total = terms.total if ledger.renewal() is None else None
    assert config.period is not None  # noqa: S101
    named = (terms.table_id, config.period, reason)
    return begin_period(ledger, config.ledger, *named, by=by, budget=total, head=config.head)
