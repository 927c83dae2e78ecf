# SPDX-License-Identifier: Apache-2.0
"""The open connections of one database in this process; none is open across a fork.

A SQLite connection that is carried into a forked child loses its locks there, and a connection to
a server would be shared by two processes. So a fork waits until no thread is inside a
transaction, closes what is idle, and lets the child begin with nothing.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

__all__ = ["Connections", "Driver"]

Driver: TypeAlias = Any
"""A DB-API connection: of `sqlite3` or of `psycopg`."""


class Connections:
    """Connections by turns: one per transaction, kept for the next only if ``keep_open``."""

    __slots__ = ("__weakref__", "_changed", "_connect", "_idle", "_keep_open", "_paused", "_users")

    def __init__(self, connect: Callable[[], Driver], *, keep_open: bool) -> None:
        self._connect = connect
        self._keep_open = keep_open
        self._begin_anew()
        _ALL.add(self)

    def _begin_anew(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._idle: list[Driver] = []
        self._users: list[int] = []
        self._paused = False

    @contextmanager
    def one(self, begin: Callable[[Driver], None]) -> Iterator[Driver]:
        """A connection on which ``begin`` succeeded; closed if anything fails."""
        self._enter()
        connection: Driver | None = None
        fine = False
        try:
            connection = self._begun(begin)
            yield connection
            fine = True
        finally:
            self._leave(connection, fine=fine)

    def __del__(self) -> None:
        with suppress(Exception):  # not made to the end, or too late in the life of the process
            self.close()

    def close(self) -> None:
        """Close the idle connections."""
        with self._changed:
            idle, self._idle = self._idle, []
        for connection in idle:
            _close(connection)

    def _begun(self, begin: Callable[[Driver], None]) -> Driver:
        with self._changed:
            kept = self._idle.pop() if self._idle else None
        if kept is not None:
            try:
                begin(kept)
                return kept
            except Exception:  # a server may have ended it meanwhile: a new one tells
                _close(kept)
        connection = self._connect()
        try:
            begin(connection)
        except BaseException:
            _close(connection)
            raise
        return connection

    def _enter(self) -> None:
        with self._changed:
            while self._paused:
                self._changed.wait()
            self._users.append(threading.get_ident())

    def _leave(self, connection: Driver | None, *, fine: bool) -> None:
        kept = fine and self._keep_open and not self._paused
        if connection is not None and not kept:
            _close(connection)
        with self._changed:
            if connection is not None and kept:
                self._idle.append(connection)
            self._users.remove(threading.get_ident())
            self._changed.notify_all()

    def _pause(self) -> None:
        me = threading.get_ident()
        with self._changed:
            self._paused = True
            while any(user != me for user in self._users):
                self._changed.wait()
        self.close()

    def _resume(self) -> None:
        with self._changed:
            self._paused = False
            self._changed.notify_all()


def _close(connection: Driver) -> None:
    with suppress(Exception):
        connection.close()


_ALL: weakref.WeakSet[Connections] = weakref.WeakSet()


def _pause_all() -> None:
    for connections in list(_ALL):
        connections._pause()


def _resume_all() -> None:
    for connections in list(_ALL):
        connections._resume()


def _begin_all_anew() -> None:
    for connections in list(_ALL):
        connections._begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_pause_all, after_in_parent=_resume_all, after_in_child=_begin_all_anew
    )
