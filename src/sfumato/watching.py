# SPDX-License-Identifier: Apache-2.0
"""A watch of counts as they come: each is tested at once, and the state survives a restart.

With a ledger the watch is debited when it begins; then every count is tested, and its outcome and
the private state of the sparse vector are written in one transaction before the outcome is told. A
count whose process was killed in between is tested again when it is added again: nobody saw the
first outcome. Without a ledger a watch lives in its process.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NoReturn

from sfumato.alerts import STEP, Alert, Watch, Watched, whole_counts
from sfumato.errors import LedgerError, PlanError, SfumatoError
from sfumato.vault.discover import Discoverer, times
from sfumato.vault.sensitive import Sensitive

if TYPE_CHECKING:
    from sfumato.budget.entries import Entry
    from sfumato.budget.ledger import Ledger

__all__ = ["Watching"]


class Watching:
    """A running watch: `add` takes the next count and tells whether it gave an alert.

    Privacy: everything it says is within the watch's budget, also when later counts depend on
    earlier outcomes: docs/proofs/sparse-vector.md.
    Neighbours: those of ``sfumato.alerts.watch``.
    """

    def __init__(
        self, watch: Watch, ledger: Ledger | str | Path | None, name: str, key: str
    ) -> None:
        from sfumato.budget.opening import ledger_of

        self._watch, self._key, self._lock = watch, key, Lock()
        self._step, self._version = 0, 1
        self._found: list[tuple[int, int | None]] = []
        self._entry: Entry | None = None
        self._book = ledger_of(ledger, name, True, watch.neighbours, watch.plan.budget, "event")
        self._finder: Discoverer | None = self._begun()

    @property
    def step(self) -> int:
        """How many counts have come."""
        return self._step

    @property
    def alerts_left(self) -> int:
        """How many alerts may still come."""
        return self._watch.alerts - len(self._found)

    def add(self, count: int) -> Alert | None:
        """Test the next count; the alert it gave, or None. A refused count changes nothing."""
        counted: Sensitive[Sequence[int]] = Sensitive(whole_counts([count]))
        with self._lock:
            finder = self._running()
            self._finder = None  # whatever fails below, this state is not continued
            place, sign = self._step, self._watch.sign
            [is_alert] = finder.test_many(
                times(counted, sign * STEP), [sign * self._watch.limit(place)]
            )
            numbers = finder.numbers(times(counted, STEP), [0]) if is_alert else None
            alert = (place, numbers[0] if numbers else None) if is_alert else None
            self._keep(finder, place, alert)
            self._step += 1
            self._finder = finder
            if alert is None:
                return None
            self._found.append(alert)
            return self._watch.alert(*alert)

    def watched(self) -> Watched:
        """What was noticed so far."""
        alerts = tuple(self._watch.alert(p, n) for p, n in self._found)
        labels = tuple(range(1, self._watch.steps + 1))
        return Watched(self._watch, self._step, alerts, self._entry, labels, "step")

    def __repr__(self) -> str:
        return (
            f"Watching(step {self._step:,} of {self._watch.steps:,}: {len(self._found):,} of at "
            f"most {self._watch.alerts:,} alerts)"
        )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise SfumatoError(
            "a running watch cannot be copied or pickled: two copies would find twice as much. "
            "Begin it with a ledger, and begin it again where it is to go on"
        )

    def _running(self) -> Discoverer:
        if self._finder is None:
            raise PlanError(
                "this watch was interrupted while a count was tested; begin it again: with a "
                "ledger it goes on where it stood"
            )
        if not self.alerts_left:
            raise PlanError(f"all {self._watch.alerts:,} alerts were given; plan a new watch")
        if self._step == self._watch.steps:
            raise PlanError(f"all {self._watch.steps:,} counts have come; plan a new watch")
        return self._finder

    def _begun(self) -> Discoverer:
        """The tests at their beginning, after the debit, or where the ledger says they stood."""
        from sfumato.budget.entries import canonical_json
        from sfumato.budget.private import State

        book, request = self._book, self._watch.request() | {"begun": self._key}
        if book is None:
            return Discoverer(self._watch.plan)
        entry = book.entry(self._key)
        if entry is None or entry.state != "answered":
            entry = book.debit(self._watch.plan.cost, request, self._key, unit="event")
            try:
                finder = Discoverer(self._watch.plan)
                state = State(self._key, 1, self._state(finder))
                self._entry = book.store(entry, b"begun", states=[state])
            except BaseException:
                with suppress(LedgerError):  # then it stays reserved, and is burnt later
                    book.burn(entry)
                raise
            return finder
        kept = book.state(self._key)
        if entry.request != canonical_json(request) or kept is None:
            raise LedgerError(
                f"request key {self._key!r} is of another request; begin this watch with its own"
            )
        self._entry, self._version = entry, kept.version
        told = json.loads(kept.data)
        self._step, self._found = told["step"], [(p, n) for p, n in told["alerts"]]
        return Discoverer.restored(self._watch.plan, told["finder"].encode())

    def _keep(self, finder: Discoverer, place: int, alert: tuple[int, int | None] | None) -> None:
        """Write the outcome and the private state together; refused if another process did."""
        from sfumato.budget.private import State

        if self._book is None or self._entry is None:
            return
        found = [*self._found, *([] if alert is None else [alert])]
        state = State(self._key, self._version + 1, self._state(finder, place + 1, found))
        kept = self._book.keep(
            f"{self._key} step {place + 1}",
            {"watch": self._key, "step": place + 1},
            json.dumps(alert).encode(),
            self._entry,
            states=[state],
        )
        if not kept.is_new:
            raise LedgerError(
                f"another process went on with the watch {self._key!r}; begin it again here"
            )
        self._version += 1

    def _state(
        self,
        finder: Discoverer,
        step: int = 0,
        found: list[tuple[int, int | None]] | None = None,
    ) -> bytes:
        told = {"step": step, "alerts": found or [], "finder": finder.state().decode()}
        return json.dumps(told).encode()
