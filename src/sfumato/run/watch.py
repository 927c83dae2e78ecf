# SPDX-License-Identifier: Apache-2.0
"""Watching a series of counts: an alert where one is above what was expected, paid per alert.

    watch = sf.watch(365, sf.Budget(epsilon=1), threshold=60, expected=100, alerts=3)
    print(watch)                                    # what it will notice, before it is spent
    seen = watch.release("visits.parquet", domain, "day", ledger="visits.ledger")
    seen.alerts()                                   # dataframe

Quiet steps cost nothing: a sparse vector (``vault/mechanisms/sparse.py``) pays for alerts, at most
so many. Exact counts stay in the vault; the debit comes before the noise. `Watch.release` and
`Watch.values` watch a whole series at once, `Watch.begin` one whose counts arrive one at a time
(`Watching`). Mathematics: docs/mechanisms/sparse-vector.md. Proof: docs/proofs/sparse-vector.md.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf, ldexp
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeAlias
from weakref import WeakValueDictionary, finalize

import numpy as np

from sfumato.digest import canonical_json
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import LedgerError, LedgerFrozen, PlanError, SfumatoError, TableError
from sfumato.ledger.entries import State
from sfumato.ledger.store import is_gone, this_process
from sfumato.planning.planning_limits import LIMITS as PLANNING_LIMITS
from sfumato.planning.sparse_plans import SparseForecast, plan_sparse
from sfumato.privacy.budget import Budget, Guarantee, check_neighbours
from sfumato.privacy.cost import Cost
from sfumato.run.run_limits import LIMITS
from sfumato.run.spine import Access, Lasting, Runnable, begin, opened, run
from sfumato.text import STORED
from sfumato.types import Neighbours, Progress
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.sparse import Discoverer, cell_counts, times

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.ledger.entries import Entry
    from sfumato.ledger.ledger import Ledger
    from sfumato.random import WordSource
    from sfumato.vault.tables import Table

__all__ = ["Alert", "SeriesWatch", "Side", "TableWatch", "Watch", "Watched", "Watching", "watch"]


Side: TypeAlias = Literal["above", "below"]

STEP = 2**PLANNING_LIMITS.sparse_grid_bits


@dataclass(frozen=True, slots=True)
class Alert:
    """A step whose count was found beyond its limit; ``value`` only if counts were asked for."""

    step: int
    limit: float
    value: float | None
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class Watch(Lasting):
    """What is watched for, and how well it will be noticed: public, known before it is spent.

    Args:
        plan: The sparse vectors, their noise and what they promise.
        expected: What is expected at each step, in steps of 2^-8.
        thresholds: By how much a count must differ, in steps of 2^-8.
        side: ``"above"`` or ``"below"`` what is expected.
        neighbours: Which two tables must be hard to tell apart.
    """

    plan: SparseForecast
    expected: tuple[int, ...]
    """What is expected at each step, and by how much a count must differ; in steps of 2^-8."""
    thresholds: tuple[int, ...]
    side: Side
    neighbours: Neighbours

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to who is in one count of a series; a table has rows, or people."""
        return Guarantee(self.plan.budget, self.neighbours, "event")

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
        return float(self.plan.tolerance / STEP)

    def limit(self, place: int) -> int:
        """Where the alert of a step begins, in steps of 2^-8.

        Args:
            place: The number of a step, from 0.

        Returns:
            The limit.
        """
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

    def release(
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

        Args:
            table: The guarded table.
            domain: What its records may look like.
            attribute: Whose cells are the steps: as many as the watch has.
            ledger: The ledger that is debited and stores the outcome. Without one nothing
                remembers what was spent: that is the caller's promise.
            unit: Whose presence is protected; one row if None.
            name: The table's in the ledger; needed for a table in memory.
            key: The request's in the ledger; the digest of the request if None.

        Returns:
            The alerts, and how far the watch came.

        Raises:
            PlanError: The attribute has another number of cells, or a person too many rows.
            TableError: The table cannot be opened or lacks the column.
            BudgetExhausted: The cost does not fit what is left.
        """
        return run(TableWatch(self, domain, attribute, unit), Access(table, ledger, name, key))

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
        """`release` by its name of before.

        Args:
            table: As in `release`.
            domain: As in `release`.
            attribute: As in `release`.
            ledger: As in `release`.
            unit: As in `release`.
            name: As in `release`.
            key: As in `release`.

        Returns:
            What `release` returns.
        """
        warnings.warn("Watch.table is now Watch.release", DeprecationWarning, stacklevel=2)
        return self.release(table, domain, attribute, ledger, unit=unit, name=name, key=key)

    def values(
        self,
        values: Sequence[int],
        ledger: Ledger | str | Path | None = None,
        *,
        name: str | None = None,
        key: str | None = None,
    ) -> Watched:
        """Watch given counts, whole numbers of at least 0, one for every step.

        Args:
            values: One count per step; that a person adds at most ``largest`` to each is the
                caller's promise.
            ledger: The ledger that is debited and stores the outcome.
            name: The series' in its ledger, which needs it: counts have no name of their own.
            key: The request's in the ledger; the digest of the request if None.

        Returns:
            The alerts, and how far the watch came.

        Raises:
            TableError: They are no counts, or not as many as there are steps.
            BudgetExhausted: The cost does not fit what is left.
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

        return Watching(self, ledger, name, key, take_over=take_over)

    def request(self) -> dict[str, object]:
        """The public description of what is watched, as the ledger keeps it.

        Returns:
            What the ledger keeps of the request, as JSON.
        """
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
        """The alert at a place: its limit, and the interval that holds its count.

        Args:
            place: The number of a step, from 0.
            number: Its noisy count, in steps of 2^-8; None if it is not told.

        Returns:
            The alert.
        """
        limit, reach = self.limit(place) / STEP, self.tolerance
        low, high = (limit - reach, inf) if self.side == "above" else (-inf, limit + reach)
        value = None if number is None else ldexp(number, -PLANNING_LIMITS.sparse_grid_bits)
        if value is not None:
            half = self.plan.half_width / STEP
            low, high = max(low, value - half), min(high, value + half)
        return Alert(place + 1, limit, value, low, max(low, high))

    def drawn(self, counts: Sensitive[Sequence[int]], random: WordSource | None = None) -> bytes:
        """Which counts gave alerts, and their noisy numbers if the plan pays for them, as JSON.

        Privacy: costs ``plan.cost``, which is debited before: docs/proofs/sparse-vector.md.
        Neighbours: those of ``watch``.

        Args:
            counts: The exact counts.
            random: A source of random words; the system's if None.

        Returns:
            JSON.
        """
        finder = Discoverer(self.plan, random)
        limits = [self.sign * self.limit(i) for i in range(self.steps)]
        outcomes = finder.test_many(times(counts, self.sign * STEP), limits)
        alerts = [i for i, is_above in enumerate(outcomes) if is_above]
        numbers = finder.numbers(times(counts, STEP), alerts)
        outcome = {"tested": len(outcomes), "alerts": alerts, "numbers": numbers}
        return json.dumps(outcome).encode()

    def check_table(self, domain: Domain, attribute: str, unit: PrivacyUnit | None) -> None:
        """Refuse an attribute, or rows of a person, that the watch is not for.

        Args:
            domain: What a record may look like.
            attribute: The name of the attribute that is watched.
            unit: Whose presence is protected.

        Raises:
            PlanError: It has another number of cells, or a person may have too many rows.
        """
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
    events: tuple[Alert, ...]
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
            for a in self.events
        ]
        names = [self.label_name, "expected", "limit", "value", "low", "high"]
        return pd.DataFrame(rows, columns=names)

    def frame(self) -> pd.DataFrame:
        """A row per step: alert, quiet, or not watched because the last alert came before it."""
        import pandas as pd

        outcomes = np.array(["quiet"] * self.watch.steps, dtype=object)
        outcomes[self.tested :] = "not watched"
        outcomes[[a.step - 1 for a in self.events]] = "alert"
        limits = [self.watch.limit(i) / STEP for i in range(self.watch.steps)]
        return pd.DataFrame(
            {self.label_name: list(self.labels), "limit": limits, "outcome": outcomes}
        )

    def __repr__(self) -> str:
        return (
            f"Watched {self.tested:,} of {self.watch.steps:,} counts: {len(self.events):,} of at "
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
        return Guarantee(self.watch.plan.budget, self.watch.neighbours, self.person or "row")

    def request(self) -> dict[str, object]:
        """What is watched, and where."""
        column: dict[str, object] = {"domain": self.columns.digest(), "attribute": self.attribute}
        if self.person is not None:
            about = f"{self.person.column}: {self.person.rows}"
            column["unit"] = about if self.person.groups is None else self.person.as_json()
        return self.watch.request() | column

    def checked(self, table: object) -> TableWatch:
        """Refuse an attribute, or rows of a person, that the watch is not for."""
        del table
        self.watch.check_table(self.columns, self.attribute, self.person)
        return self

    def count(self, table: Table | None, progress: Progress | None) -> Sensitive[Sequence[int]]:
        """The number of records of every cell."""
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
        return self.watch.guarantee

    def request(self) -> dict[str, object]:
        """That of the watch: its ledger is that of the series."""
        return self.watch.request()

    def count(self, table: Table | None, progress: Progress | None) -> Sensitive[Sequence[int]]:
        """The counts, from here on guarded."""
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

    Privacy: everything that the watch ever says is within ``budget``:
    docs/proofs/sparse-vector.md, Theorems 1, 3 and 4.
    Neighbours: a person adds at most ``largest`` to each count, to as many counts as may be.

    Args:
        steps: How many counts are watched.
        budget: What the whole watch may spend.
        threshold: By how much a count must differ, one number or one per step.
        expected: What is expected, one number or one per step.
        alerts: The most alerts; after the last one nothing more is watched.
        counts: Whether an alert also tells the count, with fresh noise and a budget of its own.
        side: ``"above"`` or ``"below"`` what is expected.
        largest: The most that a person adds to one count.
        neighbours: Which two tables must be hard to tell apart.
        confidence: With which probability everything that is said is right, up to the tolerance.

    Returns:
        The watch: ``release`` runs it on a table, ``values`` on counts, ``begin`` on counts to
        come.

    Raises:
        PlanError: An argument is wrong.

    >>> import sfumato as sf
    >>> sf.watch(365, sf.Budget(epsilon=1), threshold=50, alerts=2).alerts
    2
    """
    if (
        isinstance(steps, bool)
        or not isinstance(steps, int)
        or not 1 <= steps <= LIMITS.watch_steps
    ):
        raise PlanError(
            f"steps must be a whole number from 1 to {LIMITS.watch_steps:,}, got {steps!r}"
        )
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
    limits = (on_grid(expected, steps, "expected"), on_grid(threshold, steps, "threshold"))
    return Watch(plan, *limits, side, neighbours)


def on_grid(values: float | Sequence[float], steps: int, name: str) -> tuple[int, ...]:
    """Public numbers in steps of 2^-8, one for each step."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.array(np.nan)
    if numbers.ndim == 0:
        numbers = np.full(steps, numbers)
    if numbers.shape != (steps,) or not bool((np.abs(numbers) < LIMITS.count_maximum).all()):
        raise PlanError(
            f"{name} must be one number, or {steps:,} numbers, each of less than "
            f"{LIMITS.count_maximum:,}"
        )
    return tuple(np.rint(numbers * STEP).astype(np.int64).tolist())


def whole_counts(values: Sequence[int]) -> list[int]:
    """Counts as Python integers; messages never hold them."""
    try:
        numbers = np.asarray(values)
        is_whole = numbers.ndim == 1 and (numbers.dtype.kind in "iu" or not numbers.size)
    except (TypeError, ValueError):
        is_whole = False
    if not is_whole or bool((numbers < 0).any()) or bool((numbers >= LIMITS.count_maximum).any()):
        raise TableError(
            f"counts must be whole numbers from 0 to {LIMITS.count_maximum - 1:,}, in a sequence; "
            "nothing was tested"
        )
    return [int(v) for v in numbers]


# Counts as they come: each is tested at once, and outcomes survive a restart


AlertAt: TypeAlias = "tuple[int, int | None]"
"""The place of an alert and its number in steps, None where the plan has no numbers."""


class _Tests:
    """The running tests of a watch and what its ledger has of them.

        debit -> draw the threshold -> note "in use" -> test, store the outcome, return it ...
                                                     -> at rest, when the watch is closed

    With a ledger every outcome is stored before it is returned. The noisy threshold is in the
    ledger only while the watch is at rest; whoever goes on takes it out first, in the transaction
    that notes who uses it. So a threshold of which an outcome may be unknown (the process was
    killed, the disk was full) is never tested again: it is given up with the alerts it had left,
    and the next of the plan's sparse vectors begins: docs/proofs/sparse-vector.md, Theorem 6.
    Without a ledger a watch lives in its process.
    """

    def __init__(
        self, watch: Watch, ledger: Ledger | None, key: str, random: WordSource | None
    ) -> None:
        self.watch, self.ledger, self.key, self.random = watch, ledger, key, random
        self.token, self.owner = secrets.token_hex(8), this_process()
        self.version, self.step, self.begun = 0, 0, 1
        self.alerts: list[AlertAt] = []
        self.entry: Entry | None = None
        self.finder: Discoverer | None = None
        self.is_at_rest = False
        _LIVE[self.token] = self

    @property
    def left(self) -> int:
        """How many alerts may still come."""
        if self.finder is not None:
            return self.finder.left
        if self.is_at_rest:
            return self.watch.alerts - len(self.alerts)
        plan = self.watch.plan
        return (plan.epochs - self.begun) * plan.law.discoveries

    def begin(self, *, take_over: bool) -> None:
        """Begin after a debit, go on from a rest, or begin the next sparse vector after a loss."""
        ledger, request = self.ledger, self.watch.request() | {"begun": self.key}
        if ledger is None:
            self.finder = Discoverer(self.watch.plan, self.random)
            return
        entry = ledger.entry(self.key)
        if entry is None or entry.state != "answered":
            self._begin_new(ledger, request)
            return
        stored = ledger.state(self.key)
        if entry.request != canonical_json(request) or stored is None:
            raise LedgerError(
                f"request key {self.key!r} is of another request; begin this watch with its own"
            )
        self.entry, self.version = entry, stored.version
        noted = json.loads(stored.data)
        self.step, self.alerts = noted["step"], [(p, n) for p, n in noted["alerts"]]
        self.begun = _begun_of(noted)
        if noted.get("phase") == "at rest":
            self._note("use", "in use", self.begun)  # from here on the ledger has no threshold
            state = noted["finder"].encode()
            self.finder = Discoverer.restored(self.watch.plan, state, self.random)
            return
        self._check_lost(noted, take_over=take_over)
        following = Discoverer.after_loss(self.watch.plan, self.begun, self.random)
        if following is not None:
            self._note("use", "in use", following.begun)
            self.begun, self.finder = following.begun, following

    def _begin_new(self, ledger: Ledger, request: dict[str, object]) -> None:
        plan = self.watch.plan

        def start(_: Entry) -> tuple[Discoverer, bytes, list[State]]:
            return Discoverer(plan, self.random), b"begun", [self._state("in use", 1)]

        self.entry, self.finder = begin(self.watch, ledger, plan.cost, request, self.key, start)
        self.version = 1

    def _check_lost(self, noted: dict[str, object], *, take_over: bool) -> None:
        """Refuse to go on while somebody else does; a state of an older form says nothing."""
        if "phase" not in noted or take_over:
            return
        if noted["owner"] == this_process():
            other = _LIVE.get(str(noted["token"]))
            is_lost = other is None or other.finder is None
        else:
            is_lost = is_gone(str(noted["owner"]))
        if not is_lost:
            raise LedgerError(
                f"another process or object goes on with the watch {self.key!r}; close it there, "
                "or begin with take_over=True if it is known to be gone (its threshold is lost)"
            )

    def test(self, counted: Sensitive[Sequence[int]]) -> AlertAt | None:
        """Test the next count; the outcome is stored before it is returned."""
        finder = self.finder
        assert finder is not None  # noqa: S101
        self.finder, self.begun = None, finder.begun  # whatever fails below, it is given up
        place, sign = self.step, self.watch.sign
        [is_alert] = finder.test_many(times(counted, sign * STEP), [sign * self.watch.limit(place)])
        numbers = finder.numbers(times(counted, STEP), [0]) if is_alert else None
        alert = (place, numbers[0] if numbers else None) if is_alert else None
        self.begun = finder.begun
        if alert is not None:
            self.alerts.append(alert)
        self.step = place + 1
        try:
            self._store(alert)
        except BaseException:
            self.step = place
            self.alerts = [each for each in self.alerts if each[0] != place]
            raise
        self.finder = finder
        return alert

    def _store(self, alert: AlertAt | None) -> None:
        """Write an outcome and what is public of the state; refused if another process did."""
        if self.ledger is None or self.entry is None:
            return
        stored = self.ledger.keep(
            f"{self.key} step {self.step}",
            {"watch": self.key, "step": self.step},
            json.dumps(alert).encode(),
            self.entry,
            states=[self._state("in use", self.begun)],
        )
        if not stored.is_new:
            raise LedgerError(
                f"another process went on with the watch {self.key!r}; begin it again here"
            )
        self.version += 1

    def rest(self) -> None:
        """Put the threshold into the ledger, for whoever goes on; from then on it is not here."""
        finder, self.finder = self.finder, None
        if this_process() != self.owner:  # a fork: the threshold is its parent's
            return
        if finder is not None and self.ledger is not None and self.entry is not None:
            self.begun = finder.begun
            try:
                self._note("rest", "at rest", finder.begun, finder.state())
            except LedgerFrozen:
                self.finder = finder  # nothing was written: it can be closed later
                raise
        self.is_at_rest = finder is not None
        _LIVE.pop(self.token, None)

    def _note(self, word: str, phase: str, begun: int, finder: bytes = b"") -> None:
        assert self.ledger is not None  # noqa: S101
        assert self.entry is not None  # noqa: S101
        state = self._state(phase, begun, finder)
        stored = self.ledger.keep(
            f"{self.key} {word} {state.version}",
            {"watch": self.key, word: state.version},
            b"{}",
            self.entry,
            states=[state],
        )
        if not stored.is_new:
            raise LedgerError(
                f"another process went on with the watch {self.key!r}; begin it again here"
            )
        self.version = state.version

    def _state(self, phase: str, begun: int, finder: bytes = b"") -> State:
        noted = {
            "phase": phase,
            "owner": this_process(),
            "token": self.token,
            "step": self.step,
            "alerts": self.alerts,
            "begun": begun,
            "finder": finder.decode(),
        }
        return State(self.key, self.version + 1, json.dumps(noted).encode())


_LIVE: Final[WeakValueDictionary[str, _Tests]] = WeakValueDictionary()


class Watching:
    """A running watch: `add` takes the next count and tells whether it gave an alert.

    Close it, or use it in a ``with`` block, so that it can go on elsewhere; a normal end of the
    process closes it as well. After a kill the threshold in use is given up (see the module).

    Privacy: everything it says is within the watch's budget, also when later counts depend on
    earlier outcomes and when processes are killed: docs/proofs/sparse-vector.md, Theorem 6.
    Neighbours: those of ``sfumato.run.watch.watch``.
    """

    def __init__(
        self,
        watch: Watch,
        ledger: Ledger | str | Path | None,
        name: str,
        key: str,
        *,
        take_over: bool = False,
        random: WordSource | None = None,
    ) -> None:
        self._watch, self._lock = watch, Lock()
        _, record = opened(Access(None, ledger, name, key), None, watch.guarantee)
        self._tests = _Tests(watch, record, key, random)
        self._tests.begin(take_over=take_over)
        self._closing = finalize(self, _rest, self._tests)  # also at the end of the process

    @property
    def step(self) -> int:
        """How many counts have come."""
        return self._tests.step

    @property
    def alerts_left(self) -> int:
        """How many alerts may still come; fewer after a loss of the threshold in use."""
        return self._tests.left

    def add(self, count: int) -> Alert | None:
        """Test the next count; the alert it gave, or None. A refused count changes nothing."""
        counted: Sensitive[Sequence[int]] = Sensitive(whole_counts([count]))
        with self._lock:
            self._check_running()
            alert = self._tests.test(counted)
        return None if alert is None else self._watch.alert(*alert)

    def watched(self) -> Watched:
        """What was noticed so far."""
        tests = self._tests
        alerts = tuple(self._watch.alert(p, n) for p, n in tests.alerts)
        labels = tuple(range(1, self._watch.steps + 1))
        return Watched(self._watch, tests.step, alerts, tests.entry, labels, "step")

    def close(self) -> None:
        """Put the watch to rest: its threshold goes into the ledger, and `begin` goes on there."""
        with self._lock:
            self._tests.rest()
            self._closing.detach()

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"Watching(step {self.step:,} of {self._watch.steps:,}: {len(self._tests.alerts):,} of "
            f"at most {self._watch.alerts:,} alerts)"
        )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise SfumatoError(
            "a running watch cannot be copied or pickled: two copies would find twice as much. "
            "Begin it with a ledger, and begin it again where it is to go on"
        )

    def _check_running(self) -> None:
        tests = self._tests
        if tests.step == self._watch.steps:
            raise PlanError(f"all {self._watch.steps:,} counts have come; plan a new watch")
        if len(tests.alerts) == self._watch.alerts:
            raise PlanError(f"all {self._watch.alerts:,} alerts were given; plan a new watch")
        if tests.is_at_rest:
            raise PlanError("this watch was closed; begin it again: it goes on where it stood")
        if not tests.left:
            raise PlanError(
                "the alerts that were left are lost with a threshold whose last outcome may be "
                "unknown, as a process was killed; plan a new watch, with a key of its own"
            )
        if tests.finder is None:
            raise PlanError(
                "this watch was interrupted while a count was tested; begin it again: with a "
                "ledger it goes on with another threshold, if its plan has one left"
            )


def _rest(tests: _Tests) -> None:
    """At the end of the object or of the process; what cannot be put to rest is lost."""
    with suppress(SfumatoError):
        tests.rest()


def _begun_of(noted: dict[str, object]) -> int:
    """How many sparse vectors were begun; a state of an older form has it in its tests."""
    if "begun" in noted:
        return int(str(noted["begun"]))
    return int(json.loads(str(noted["finder"]))["begun"])
