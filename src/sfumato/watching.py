# SPDX-License-Identifier: Apache-2.0
"""A watch of counts as they come: each is tested at once, and what was found survives a restart.

    debit -> draw the threshold -> note "in use" -> test, store the outcome, tell it ...
                                                 -> at rest, when the watch is closed

With a ledger every outcome is stored before it is told. The noisy threshold is in the ledger only
while the watch is at rest; whoever goes on takes it out first, in the transaction that notes who
uses it. So a threshold of which an outcome may be unknown (the process was killed, the disk was
full) is never tested again: it is given up with the alerts it had left, and the next of the plan's
sparse vectors begins. docs/proofs/sparse-vector.md, Theorem 6. Without a ledger a watch lives in
its process.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, NoReturn
from weakref import WeakValueDictionary, finalize

from sfumato.alerts import STEP, Alert, Watch, Watched, whole_counts
from sfumato.budget.owner import is_gone, this_process
from sfumato.budget.private import State
from sfumato.errors import LedgerError, LedgerFrozen, PlanError, SfumatoError
from sfumato.vault.discover import Discoverer, times
from sfumato.vault.sensitive import Sensitive

if TYPE_CHECKING:
    from sfumato.budget.entries import Entry
    from sfumato.budget.ledger import Ledger

__all__ = ["Watching"]

Found = tuple[int, int | None]
"""The place of an alert and its number in steps, None where numbers are not told."""


class _Tests:
    """The running tests of a watch and what its ledger knows of them."""

    def __init__(self, watch: Watch, book: Ledger | None, key: str) -> None:
        self.watch, self.book, self.key = watch, book, key
        self.token, self.owner = secrets.token_hex(8), this_process()
        self.version, self.step, self.begun = 0, 0, 1
        self.alerts: list[Found] = []
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
        from sfumato.budget.entries import canonical_json

        book, request = self.book, self.watch.request() | {"begun": self.key}
        if book is None:
            self.finder = Discoverer(self.watch.plan)
            return
        entry = book.entry(self.key)
        if entry is None or entry.state != "answered":
            self._begin_new(book, request)
            return
        stored = book.state(self.key)
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
            self.finder = Discoverer.restored(self.watch.plan, noted["finder"].encode())
            return
        self._check_lost(noted, take_over=take_over)
        following = Discoverer.after_loss(self.watch.plan, self.begun)
        if following is not None:
            self._note("use", "in use", following.begun)
            self.begun, self.finder = following.begun, following

    def _begin_new(self, book: Ledger, request: dict[str, object]) -> None:
        entry = book.debit(self.watch.plan.cost, request, self.key, unit="event")
        try:
            finder = Discoverer(self.watch.plan)
            self.entry = book.store(entry, b"begun", states=[self._state("in use", 1)])
        except BaseException:
            with suppress(LedgerError):  # then it stays reserved, and is burnt later
                book.burn(entry)
            raise
        self.version, self.finder = 1, finder

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

    def test(self, counted: Sensitive[Sequence[int]]) -> Found | None:
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

    def _store(self, alert: Found | None) -> None:
        """Write an outcome and what is public of the state; refused if another process did."""
        if self.book is None or self.entry is None:
            return
        stored = self.book.keep(
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
        if finder is not None and self.book is not None and self.entry is not None:
            self.begun = finder.begun
            try:
                self._note("rest", "at rest", finder.begun, finder.state())
            except LedgerFrozen:
                self.finder = finder  # nothing was written: it can be closed later
                raise
        self.is_at_rest = finder is not None
        _LIVE.pop(self.token, None)

    def _note(self, word: str, phase: str, begun: int, finder: bytes = b"") -> None:
        assert self.book is not None  # noqa: S101
        assert self.entry is not None  # noqa: S101
        state = self._state(phase, begun, finder)
        stored = self.book.keep(
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
    Neighbours: those of ``sfumato.alerts.watch``.
    """

    def __init__(
        self,
        watch: Watch,
        ledger: Ledger | str | Path | None,
        name: str,
        key: str,
        *,
        take_over: bool = False,
    ) -> None:
        from sfumato.budget.opening import ledger_of

        self._watch, self._lock = watch, Lock()
        book = ledger_of(ledger, name, watch.neighbours, watch.plan.budget, "event")
        self._tests = _Tests(watch, book, key)
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
