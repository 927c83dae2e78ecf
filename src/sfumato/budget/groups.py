# SPDX-License-Identifier: Apache-2.0
"""Group commit: callers that come while a transaction is under way share the next one.

There is no thread of its own. Whoever waits first leads: it takes all that is in line (up to
`LARGEST`), commits it, wakes its callers and hands the lead to one of those who came meanwhile. A
single caller leads at once and pays nothing for it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from sfumato.errors import LedgerError, SfumatoError

__all__ = ["LARGEST", "Groups", "Pending"]

LARGEST: Final = 256
"""The most changes of one transaction."""

T = TypeVar("T")


class Pending(Generic[T]):
    """A change in line; `result` waits for the commit, in any number of threads."""

    __slots__ = ("_error", "_groups", "_is_done", "_line", "_value", "change", "keys")

    def __init__(self, groups: Groups, change: Callable[[Any], T], keys: tuple[str, ...]) -> None:
        self.change = change
        self.keys = keys
        self._groups = groups
        self._line = groups._line
        self._is_done = False
        self._value: T | None = None
        self._error: Exception | None = None

    def result(self) -> T:
        """Return what the change returned, after its commit; raise what it raised."""
        self._groups._wait_for(self)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set by `succeed`

    def succeed(self, value: T) -> None:
        """Say what `result` returns."""
        self._value, self._error = value, None

    def fail(self, error: Exception) -> None:
        """Say what `result` raises: an error of its own, never one that other callers raise."""
        self._value, self._error = None, error


class _Wait:
    """One caller that waits for a change, or was told to lead."""

    __slots__ = ("leads", "pending", "wake")

    def __init__(self, pending: Pending[Any], *, leads: bool) -> None:
        self.pending = pending
        self.leads = leads
        self.wake = threading.Lock()
        self.wake.acquire()


class Groups:
    """A line of changes and the one caller that commits them."""

    __slots__ = ("__weakref__", "_commit", "_has_leader", "_line", "_lock", "_waits")

    def __init__(self, commit: Callable[[Sequence[Pending[Any]]], None]) -> None:
        self._commit = commit
        self._begin_anew()
        _ALL.add(self)

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._line: deque[Pending[Any]] = deque()
        self._waits: dict[_Wait, None] = {}  # in the order in which they came
        self._has_leader = False

    def submit(self, change: Callable[[Any], T], keys: tuple[str, ...] = ()) -> Pending[T]:
        """Put a change in line, in the order of the calls; ``keys`` are those it will look at."""
        pending: Pending[T] = Pending(self, change, keys)
        with self._lock:
            self._line.append(pending)
        return pending

    def _wait_for(self, pending: Pending[Any]) -> None:
        with self._lock:
            if pending._is_done:
                return
            if pending._line is not self._line:
                raise LedgerError(
                    "this change was put in line before a fork and belongs to the parent process; "
                    "ask again"
                )
            wait = _Wait(pending, leads=not self._has_leader)
            self._has_leader = True
            if not wait.leads:
                self._waits[wait] = None
        try:
            if not wait.leads:
                wait.wake.acquire()
            while not pending._is_done:
                self._lead()
        finally:
            self._step_back(wait)

    def _lead(self) -> None:
        with self._lock:
            group = [self._line.popleft() for _ in range(min(LARGEST, len(self._line)))]
        try:
            self._commit(group)
        except BaseException as error:
            for pending in group:
                pending.fail(_copy(error))
            if not isinstance(error, Exception):
                raise  # of this caller alone, such as KeyboardInterrupt
        finally:
            with self._lock:
                self._finish(group)

    def _finish(self, done: Sequence[Pending[Any]]) -> None:
        """Wake all who wait for these; the lock is held."""
        for pending in done:
            pending._is_done = True
        for wait in [wait for wait in self._waits if wait.pending._is_done]:
            del self._waits[wait]
            wait.wake.release()

    def _step_back(self, wait: _Wait) -> None:
        """Hand the lead on; take the change out of the line if the wait was interrupted."""
        with self._lock:
            self._waits.pop(wait, None)
            pending = wait.pending
            if not pending._is_done and pending in self._line:
                self._line.remove(pending)
                pending.fail(LedgerError("the wait for this change was interrupted; ask again"))
                self._finish([pending])
            if not wait.leads:
                return
            self._has_leader = False
            following = next(iter(self._waits), None)
            if following is not None:
                del self._waits[following]
                following.leads = self._has_leader = True
                following.wake.release()


def _copy(error: BaseException) -> Exception:
    """The same error again, since each caller raises its own."""
    if isinstance(error, SfumatoError):
        return type(error)(*error.args)
    return LedgerError(
        f"the ledger could not be written ({type(error).__name__}); nothing was released; ask again"
    )


_ALL: weakref.WeakSet[Groups] = weakref.WeakSet()


def _begin_all_anew() -> None:
    for groups in list(_ALL):
        groups._begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_all_anew)
