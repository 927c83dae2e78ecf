# SPDX-License-Identifier: Apache-2.0
"""The log of the server, as lines of JSON: requests, sign-ins, refusals, debits, freezes, messages.

Every line has ``time`` and ``event``. A ``request`` has its id (that of the header X-Request-Id),
who sent it, the template of its route, its status, the code of a refusal, milliseconds, and what it
spent. A line never has a value of the data, a text of a query, a body, a path, a token or a key of
an answer: only names of the configuration and words of this package.

Lines are written by a thread of their own, so that no answer waits for whoever reads them; a kill
loses the last tenth of a second of them. The ledger, not this log, is the record of what was spent.
"""

from __future__ import annotations

import json
import logging
import secrets
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event, Lock, Thread
from time import sleep
from typing import Final, Literal

from sfumato.errors import place_of

__all__ = ["NOTE", "EventFormatter", "LogFormat", "RequestLog", "RequestNote"]


LogFormat = Literal["json", "text"]
_PAUSE: Final = 0.1  # seconds between two writes


@dataclass(eq=False, slots=True)
class RequestNote:
    """What a request leaves for its line in the log: an id, why it was refused, what it spent."""

    request: str = field(default_factory=lambda: secrets.token_hex(8))
    code: str | None = None
    spent: list[dict[str, object]] = field(default_factory=list)


NOTE: Final[ContextVar[RequestNote | None]] = ContextVar("sfumato request", default=None)
"""The note of the request that is being answered, in whatever thread; None on pages."""


def _now() -> datetime:
    return datetime.now(UTC)


def _line(event: str, fields: Mapping[str, object], kind: LogFormat, now: datetime) -> str:
    """One line; what is None is left out.

    >>> at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    >>> _line("freeze", {"dataset": "people", "analyst": None}, "json", at)
    '{"time":"2026-01-02T03:04:05.000Z","event":"freeze","dataset":"people"}'
    """
    time = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"time": time, "event": event, **{k: v for k, v in fields.items() if v is not None}}
    if kind == "json":
        return json.dumps(line, separators=(",", ":"))
    words = (v if isinstance(v, str) else json.dumps(v) for v in list(line.values())[2:])
    pairs = (f"{k}={w}" for k, w in zip(list(line)[2:], words, strict=True))
    return " ".join([time, event, *pairs]).replace("\n", " ")


class RequestLog:
    """Where lines go; ``write`` and ``now`` are passed in by tests. Without a kind, nowhere."""

    def __init__(
        self,
        kind: LogFormat | None,
        write: Callable[[str], object] | None = None,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._kind, self._write, self._now = kind, write or _to_stderr, now
        self._lines: list[str] = []
        self._lock, self._writing = Lock(), Lock()
        self._some, self._is_over = Event(), Event()
        self._thread: Thread | None = None
        if kind is not None:
            self._thread = Thread(target=self._run, name="sfumato log", daemon=True)
            self._thread.start()

    def add(self, event: str, **fields: object) -> None:
        """One line; takes microseconds."""
        if self._kind is None or self._is_over.is_set():
            return
        line = _line(event, fields, self._kind, self._now())
        with self._lock:
            self._lines.append(line)
        if not self._some.is_set():
            self._some.set()

    def paid(self, dataset: str, analyst: str, entry: int | None, cost: object, act: str) -> None:
        """Something was spent: a line of its own, and part of that of the request."""
        note = NOTE.get()
        self.spent(note, dataset, analyst, entry, cost, act)

    def spent(
        self,
        note: RequestNote | None,
        dataset: str,
        analyst: str,
        entry: int | None,
        cost: object,
        act: str,
    ) -> None:
        """As ``debit``, for the request that left this note."""
        if note is not None:
            note.spent.append({"dataset": dataset, "entry": entry, "cost": cost})
        self.add(
            "debit",
            request=None if note is None else note.request,
            dataset=dataset,
            analyst=analyst,
            act=act,
            entry=entry,
            cost=cost,
        )

    def flush(self) -> None:
        """Write what waits."""
        with self._writing:
            self._some.clear()
            with self._lock:
                lines, self._lines = self._lines, []
            if lines:
                with suppress(OSError, ValueError):  # nobody reads any more; answers go on
                    self._write("\n".join(lines) + "\n")

    def close(self) -> None:
        """Write the last lines."""
        self._is_over.set()
        self._some.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._some.wait()
            if not self._is_over.is_set():
                sleep(_PAUSE)
            self.flush()


def _to_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


class EventFormatter(logging.Formatter):
    """Messages of the server and of what it stands on, as lines of the same kind.

    Of an exception only its type and place are written: its text could quote a value of the data.
    """

    def __init__(self, kind: LogFormat) -> None:
        super().__init__()
        self._kind: LogFormat = kind

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        error = record.exc_info[1] if record.exc_info else None
        message = record.getMessage()
        if isinstance(error, Exception):
            message = f"unexpected {type(error).__name__} at {place_of(error)}"
        fields = {"level": record.levelname.lower(), "logger": record.name, "message": message}
        return _line("message", fields, self._kind, datetime.fromtimestamp(record.created, UTC))
