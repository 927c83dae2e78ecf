# SPDX-License-Identifier: Apache-2.0
"""Watching a series of counts: an alert where one is above what was expected, paid per alert.

    watch = sf.watch(365, sf.Budget(epsilon=1), threshold=60, expected=100, alerts=3)
    print(watch)                                    # what it will notice, before it is spent
    seen = watch.table("visits.parquet", domain, "day", ledger="visits.ledger")
    seen.alerts()                                   # dataframe

Quiet steps cost nothing: a sparse vector (``vault/sparse.py``) pays for alerts, at most so many.
Exact counts stay in the vault; the debit comes before the noise. Values that arrive one at a time
are watched by `Watch.begin` (``watching.py``). Mathematics: docs/mechanisms/sparse-vector.md.
Proof: docs/proofs/sparse-vector.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, ldexp
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from sfumato.budget import Budget, Cost, Neighbours, check_neighbours
from sfumato.domain import Domain
from sfumato.domain.unit import PrivacyUnit, unit_of
from sfumato.errors import PlanError, TableError
from sfumato.plan.sparse_plan import GRID_BITS, SparsePlan, plan_sparse
from sfumato.run.spine import Access, Guarantee, Progress, Runnable, run
from sfumato.wording import STORED

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.budget.entries import Entry
    from sfumato.budget.ledger import Ledger
    from sfumato.randomness import WordSource
    from sfumato.vault.sensitive import Sensitive
    from sfumato.vault.tables import Table
    from sfumato.watching import Watching

__all__ = ["Alert", "SeriesWatch", "Side", "TableWatch", "Watch", "Watched", "watch"]

Side: TypeAlias = Literal["above", "below"]

GREATEST = 2**44  # counts and limits are below this, as a table has fewer records
MOST_STEPS = 2**22
STEP = 2**GRID_BITS


@dataclass(frozen=True, slots=True)
class Alert:
    """A step whose count was found beyond its limit; ``value`` only if counts were asked for."""

    step: int
    limit: float
    value: float | None
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class Watch:
    """What is watched for, and how well it will be noticed: public, known before it is spent."""

    plan: SparsePlan
    expected: tuple[int, ...]
    """What is expected at each step, and by how much a count must differ; in steps of 2^-8."""
    thresholds: tuple[int, ...]
    side: Side
    neighbours: Neighbours

    @property
    def steps(self) -> int:
        """How many counts are watched."""
        return len(self.expected)

    @property
    def alerts(self) -> int:
        """The most alerts; after the last one nothing more is watched."""
        return self.plan.discoveries

    @property
    def tolerance(self) -> float:
        """With probability ``plan.confidence`` every alert and every silence is right up to this.

        A count that gave an alert is beyond its limit, or short of it by at most this much; one
        that gave none is less than this beyond it.
        """
        return self.plan.tolerance / STEP

    def limit(self, place: int) -> int:
        """Where the alert of a step begins, in steps of 2^-8."""
        return self.expected[place] + self.sign * self.thresholds[place]

    def __repr__(self) -> str:
        number = (
            "" if self.plan.number is None else f", counts +-{self.plan.half_width / STEP:,.1f}"
        )
        return (
            f"Watch of {self.steps:,} counts for at most {self.alerts:,} alerts at "
            f"{self.plan.budget.describe()}: right up to {self.tolerance:,.1f} counts{number}, all "
            f"together with probability {self.plan.confidence:g}"
        )

    def table(
        self,
        table: object,
        domain: Domain,
        attribute: str,
        ledger: Ledger | str | Path | None = None,
        *,
        unit: PrivacyUnit | None = None,
        name: str | None = None,
        key: str | None = None,
    ) -> Watched:
        """Watch the number of records of every cell of an attribute (a date), in order.

        With a ledger, the whole watch is debited before any noise is drawn; the same watch on the
        same table returns the stored outcome at no further cost, unless another ``key`` is given.
        """
        return run(TableWatch(self, domain, attribute, unit), Access(table, ledger, name, key))

    def values(
        self,
        values: Sequence[int],
        ledger: Ledger | str | Path | None = None,
        *,
        name: str | None = None,
        key: str | None = None,
    ) -> Watched:
        """Watch given counts, whole numbers of at least 0, one for every step.

        ``name`` names the series in its ledger, which needs it: counts have no name of their own.
        That a person adds at most ``largest`` to each
        count is the caller's promise.
        """
        counts = whole_counts(values)
        if len(counts) != self.steps:
            raise TableError(f"the watch is for {self.steps:,} counts, got {len(counts):,}")
        return run(SeriesWatch(self, counts), Access(None, ledger, name, key))

    def begin(
        self,
        ledger: Ledger | str | Path | None = None,
        *,
        name: str = "series",
        key: str = "watch",
        take_over: bool = False,
    ) -> Watching:
        """Watch counts as they come; with a ledger, go on where the watch of this key stood.

        The whole watch is debited now; every value that is added is durable with its outcome.

        Args:
            ledger: The ledger that is debited and remembers the watch.
            name: What the ledger calls the series.
            key: Names the watch in its ledger.
            take_over: Go on although the process that has the watch may still live, because it is
                known to be gone. Its threshold is given up, as after a kill.

        Returns:
            The running watch; close it when it is to go on in another process.
        """
        from sfumato.watching import Watching

        return Watching(self, ledger, name, key, take_over=take_over)

    def request(self) -> dict[str, object]:
        """The public description of what is watched, as the ledger keeps it."""
        limits = json.dumps([self.expected, self.thresholds]).encode()
        return {
            **self.plan.request(),
            "watch": self.side,
            "limits": hashlib.sha256(limits).hexdigest(),
            "neighbours": self.neighbours,
        }

    @property
    def sign(self) -> int:
        """Counts times this are compared with limits times this: alerts are always above."""
        return 1 if self.side == "above" else -1

    def alert(self, place: int, number: int | None) -> Alert:
        """The alert at a place: its limit, and the interval that holds its count."""
        limit, reach = self.limit(place) / STEP, self.tolerance
        low, high = (limit - reach, inf) if self.side == "above" else (-inf, limit + reach)
        value = None if number is None else ldexp(number, -GRID_BITS)
        if value is not None:
            half = self.plan.half_width / STEP
            low, high = max(low, value - half), min(high, value + half)
        return Alert(place + 1, limit, value, low, max(low, high))

    def drawn(self, counts: Sensitive[Sequence[int]], random: WordSource | None = None) -> bytes:
        """Which counts gave alerts, and their noisy numbers if they are told, as JSON.

        Privacy: costs ``plan.cost``, which is debited before: docs/proofs/sparse-vector.md.
        Neighbours: those of ``watch``.
        """
        from sfumato.vault.discover import Discoverer, times

        finder = Discoverer(self.plan, random)
        limits = [self.sign * self.limit(i) for i in range(self.steps)]
        outcomes = finder.test_many(times(counts, self.sign * STEP), limits)
        alerts = [i for i, is_above in enumerate(outcomes) if is_above]
        numbers = finder.numbers(times(counts, STEP), alerts)
        told = {"tested": len(outcomes), "alerts": alerts, "numbers": numbers}
        return json.dumps(told).encode()

    def check_table(self, domain: Domain, attribute: str, unit: PrivacyUnit | None) -> None:
        """Refuse an attribute, or rows of a person, that the watch is not for."""
        size = domain[attribute].size
        if size != self.steps:
            raise PlanError(
                f"the watch is for {self.steps:,} counts, attribute {attribute!r} has {size:,} "
                f"cells; say sf.watch({size}, ...)"
            )
        moved = self.plan.law.sensitivity // STEP
        if unit is not None and unit.rows > moved:
            raise PlanError(
                f"a person may have {unit.rows:,} rows and move a count by as much, the watch is "
                f"for {moved:,}; say sf.watch(..., largest={unit.rows})"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Watched:
    """What was noticed: the alerts, and how far the watch came; all of it is public."""

    watch: Watch
    tested: int
    found: tuple[Alert, ...]
    entry: Entry | None
    labels: tuple[object, ...]
    label_name: str
    is_stored: bool = False  # the ledger had this outcome: nothing was spent on it now

    def alerts(self) -> pd.DataFrame:
        """A row per alert: its step, what was expected, the limit, and what holds its count."""
        import pandas as pd

        rows = [
            {
                self.label_name: self.labels[a.step - 1],
                "expected": self.watch.expected[a.step - 1] / STEP,
                "limit": a.limit,
                "value": np.nan if a.value is None else a.value,
                "low": a.low,
                "high": a.high,
            }
            for a in self.found
        ]
        names = [self.label_name, "expected", "limit", "value", "low", "high"]
        return pd.DataFrame(rows, columns=names)

    def frame(self) -> pd.DataFrame:
        """A row per step: alert, quiet, or not watched because the last alert came before it."""
        import pandas as pd

        said = np.array(["quiet"] * self.watch.steps, dtype=object)
        said[self.tested :] = "not watched"
        said[[a.step - 1 for a in self.found]] = "alert"
        limits = [self.watch.limit(i) / STEP for i in range(self.watch.steps)]
        return pd.DataFrame({self.label_name: list(self.labels), "limit": limits, "outcome": said})

    def __repr__(self) -> str:
        return (
            f"Watched {self.tested:,} of {self.watch.steps:,} counts: {len(self.found):,} of at "
            f"most {self.watch.alerts:,} alerts{f'; {STORED}' if self.is_stored else ''}"
        )


class WatchRun(Runnable["Sensitive[Sequence[int]]", Watched]):
    """A watch with what it watches."""

    watch: Watch

    @property
    def cost(self) -> Cost:
        """That of all tests and all alerts."""
        return self.watch.plan.cost

    def key(self) -> str:
        """The digest of the request, which says that it is one of a watch."""
        canonical = json.dumps(self.request(), sort_keys=True).encode()
        return f"watch {hashlib.sha256(canonical).hexdigest()}"

    def draw(self, exact: Sensitive[Sequence[int]], progress: Progress | None) -> bytes:
        """Which counts give alerts, and their noisy numbers."""
        del progress
        return self.watch.drawn(exact)

    def publish(
        self, answer: bytes, entry: Entry | None, is_stored: bool, progress: Progress | None
    ) -> Watched:
        """The alerts, by the labels of their steps."""
        del progress
        stored = json.loads(answer)
        numbers = stored["numbers"] or [None] * len(stored["alerts"])
        pairs = zip(stored["alerts"], numbers, strict=True)
        alerts = tuple(self.watch.alert(place, number) for place, number in pairs)
        labels, label_name = self.labels()
        return Watched(self.watch, stored["tested"], alerts, entry, labels, label_name, is_stored)

    def labels(self) -> tuple[tuple[object, ...], str]:
        """What the steps are called, one by one and together."""
        return tuple(range(1, self.watch.steps + 1)), "step"


@dataclass(frozen=True, eq=False)
class TableWatch(WatchRun):
    """A watch of the number of records of every cell of an attribute."""

    watch: Watch
    columns: Domain
    attribute: str
    person: PrivacyUnit | None

    @property
    def domain(self) -> Domain:
        """The domain of the table."""
        return self.columns

    @property
    def guarantee(self) -> Guarantee:
        """For the rows of the table, or of a person."""
        return Guarantee(self.watch.plan.budget, self.watch.neighbours, unit_of(self.person))

    def request(self) -> dict[str, object]:
        """What is watched, and where."""
        column = {"domain": self.columns.digest(), "attribute": self.attribute}
        if self.person is not None:
            column["unit"] = f"{self.person.column}: {self.person.rows}"
        return self.watch.request() | column

    def checked(self, table: object) -> TableWatch:
        """Refuse an attribute, or rows of a person, that the watch is not for."""
        del table
        self.watch.check_table(self.columns, self.attribute, self.person)
        return self

    def count(self, table: Table | None, progress: Progress | None) -> Sensitive[Sequence[int]]:
        """The number of records of every cell."""
        from sfumato.vault.discover import cell_counts

        del progress
        assert table is not None  # noqa: S101
        return cell_counts(table, self.columns, self.attribute, self.person)

    def labels(self) -> tuple[tuple[object, ...], str]:
        """The cells of the attribute."""
        from sfumato.release.labels import cell_labels

        return tuple(cell_labels(self.columns[self.attribute]).tolist()), self.attribute


@dataclass(frozen=True, eq=False)
class SeriesWatch(WatchRun):
    """A watch of given counts."""

    watch: Watch
    counts: list[int]

    @property
    def domain(self) -> None:
        """No table is read."""
        return

    @property
    def guarantee(self) -> Guarantee:
        """For what one person adds to the counts."""
        return Guarantee(self.watch.plan.budget, self.watch.neighbours, "event")

    def request(self) -> dict[str, object]:
        """That of the watch: its ledger is that of the series."""
        return self.watch.request()

    def count(self, table: Table | None, progress: Progress | None) -> Sensitive[Sequence[int]]:
        """The counts, from here on guarded."""
        from sfumato.vault.sensitive import Sensitive

        del table, progress
        return Sensitive(self.counts)


def watch(
    steps: int,
    budget: Budget,
    threshold: float | Sequence[float],
    *,
    expected: float | Sequence[float] = 0,
    alerts: int = 1,
    counts: bool = False,
    side: Side = "above",
    largest: int = 1,
    neighbours: Neighbours = "add-remove",
    confidence: float = 0.95,
) -> Watch:
    """Plan alerts where a count is ``threshold`` or more above (or below) what was expected.

    ``expected`` and ``threshold`` are public, one for all steps or one for each. With ``counts`` an
    alert also tells the count, with fresh noise and a budget of its own. Nothing is spent yet.

    Privacy: everything that the watch ever says is within ``budget``:
    docs/proofs/sparse-vector.md, Theorems 1, 3 and 4.
    Neighbours: a person adds at most ``largest`` to each count, to as many counts as may be.

    >>> watch(365, Budget(epsilon=1), threshold=50, alerts=2).alerts
    2
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= MOST_STEPS:
        raise PlanError(f"steps must be a whole number from 1 to {MOST_STEPS:,}, got {steps!r}")
    if side not in ("above", "below"):
        raise PlanError(f'side must be "above" or "below", got {side!r}')
    if isinstance(largest, bool) or not isinstance(largest, int) or not 1 <= largest < 2**20:
        raise PlanError(f"largest must be a whole number from 1 to 2^20, got {largest!r}")
    plan = plan_sparse(
        budget,
        alerts,
        steps,
        largest * STEP,
        is_monotone=check_neighbours(neighbours) == "add-remove",
        with_numbers=counts,
        confidence=confidence,
    )
    told = (on_grid(expected, steps, "expected"), on_grid(threshold, steps, "threshold"))
    return Watch(plan, *told, side, neighbours)


def on_grid(given: float | Sequence[float], steps: int, name: str) -> tuple[int, ...]:
    """Public numbers in steps of 2^-8, one for each step."""
    try:
        numbers = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.array(np.nan)
    if numbers.ndim == 0:
        numbers = np.full(steps, numbers)
    if numbers.shape != (steps,) or not bool((np.abs(numbers) < GREATEST).all()):
        raise PlanError(
            f"{name} must be one number, or {steps:,} numbers, each of less than {GREATEST:,}"
        )
    return tuple(np.rint(numbers * STEP).astype(np.int64).tolist())


def whole_counts(values: Sequence[int]) -> list[int]:
    """Counts as Python integers; messages never hold them."""
    try:
        found = np.asarray(values)
        is_whole = found.ndim == 1 and (found.dtype.kind in "iu" or not found.size)
    except (TypeError, ValueError):
        is_whole = False
    if not is_whole or bool((found < 0).any()) or bool((found >= GREATEST).any()):
        raise TableError(
            f"counts must be whole numbers from 0 to {GREATEST - 1:,}, in a sequence; nothing was "
            "tested"
        )
    return [int(v) for v in found]
