# SPDX-License-Identifier: Apache-2.0
"""Stored responses, caches and metrics of the server, and the grid of times at which answers leave.

``ResponseStore`` holds by key the bytes that were sent, and which request an idempotency key meant.
The ledger holds what was paid for and drawn; the store holds the answer as it went out, so that it
goes out again as the same bytes, on any machine and without another look at the table. All of it
is public. A store that is lost loses no budget: answers are made again from the ledger.
``NewestCache`` keeps the newest few things of a kind in memory. ``Grid`` says when an answer may
leave, so that its time tells nothing.

`Metrics` has the counters of responses, answers and debits, and how long responses took, in the
text format of Prometheus; none of them depends on a value of the data.
"""

from __future__ import annotations

import asyncio
import math
import os
import sqlite3
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from pathlib import Path
from threading import Lock, active_count
from time import monotonic
from typing import Final, Generic, TypeVar

from sfumato.errors import SfumatoError

__all__ = [
    "Grid",
    "Left",
    "Metrics",
    "NewestCache",
    "ResponseStore",
    "Sample",
    "process_gauges",
    "prometheus",
]

_TABLES = """
CREATE TABLE IF NOT EXISTS body (
    dataset TEXT NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (dataset, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bound (
    analyst TEXT NOT NULL, name TEXT NOT NULL, request TEXT NOT NULL, PRIMARY KEY (analyst, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS job (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, analyst TEXT NOT NULL,
    dataset TEXT NOT NULL, is_over INTEGER NOT NULL, document TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS change (
    sequence INTEGER PRIMARY KEY, hash TEXT NOT NULL, text TEXT NOT NULL
);
"""


_FORGET_JOBS: Final = (
    "DELETE FROM body WHERE (dataset, key) IN (SELECT dataset, 'job ' || id FROM job "
    "WHERE is_over = 1 AND number <= (SELECT MAX(number) FROM job) - ?)",
    "DELETE FROM job WHERE is_over = 1 AND number <= (SELECT MAX(number) FROM job) - ?",
)

_REASONS: Final = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_CORRUPT": "the file is damaged",
    "SQLITE_NOTADB": "the file is damaged, or is no database",
    "SQLITE_READONLY": "the file is read-only",
    "SQLITE_BUSY": "another process has locked it",
    "SQLITE_LOCKED": "another connection has locked it",
    "SQLITE_IOERR": "the disk cannot be read or written",
    "SQLITE_CANTOPEN": "the file or its folder cannot be opened",
    "SQLITE_PERM": "the file may not be used",
}


def _reason(error: sqlite3.Error) -> str:
    """Why a statement failed, for the log: the name of the error, never its text."""
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    kind = "_".join(name.split("_")[:2])
    return f"{_REASONS[kind]}, {name}" if kind in _REASONS else name


T = TypeVar("T")


class NewestCache(Generic[T]):
    """The newest things of a kind by key: the longest unused goes first, the last one never.

    Args:
        most: how many things at most.
        most_bytes: how many bytes at most.
        nbytes: about how many one takes.

    >>> cache = NewestCache[int](2)
    >>> cache.put("a", 1), cache.put("b", 2), cache.get("a"), cache.put("c", 3), cache.get("b")
    (1, 2, 1, 3, None)
    """

    def __init__(
        self, most: float = inf, most_bytes: float = inf, nbytes: Callable[[T], int] = lambda _: 0
    ) -> None:
        self._most, self._most_bytes, self._nbytes, self._lock = most, most_bytes, nbytes, Lock()
        self._things: OrderedDict[Hashable, T] = OrderedDict()
        self.held = 0

    def __len__(self) -> int:
        return len(self._things)

    def get(self, key: Hashable) -> T | None:
        """The thing under a key, if it is still there."""
        with self._lock:
            if key in self._things:
                self._things.move_to_end(key)
            return self._things.get(key)

    def drop(self, key: Hashable) -> None:
        """Keep a thing no longer, if it is there."""
        with self._lock:
            if key in self._things:
                self.held -= self._nbytes(self._things.pop(key))

    def put(self, key: Hashable, thing: T) -> T:
        """Keep a thing, and return it."""
        with self._lock:
            if key in self._things:
                self.held -= self._nbytes(self._things.pop(key))
            self._things[key] = thing
            self.held += self._nbytes(thing)
            while len(self) > 1 and (len(self) > self._most or self.held > self._most_bytes):
                self.held -= self._nbytes(self._things.popitem(last=False)[1])
        return thing


class ResponseStore:
    """A small database, with the newest bodies in memory (``memory`` bytes of them).

    Only its owner may read the file: it holds who asked what. Whatever goes wrong with it is a
    ``SfumatoError`` that says why, which callers get as 503 and the log in full.
    """

    def __init__(self, path: Path, memory: int) -> None:
        self._lock, self._path = Lock(), path
        self._newest = NewestCache[bytes](most_bytes=memory, nbytes=len)
        try:
            _make_private(path)
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = WAL")
            # The ledger is the durable record; a body that is lost with the power is made again.
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(_TABLES)
        except (sqlite3.Error, OSError) as error:
            why = _reason(error) if isinstance(error, sqlite3.Error) else error.strerror
            raise SfumatoError(
                f"the server's state {path} cannot be opened ({why}); check the folder and its "
                "permissions, or name another file in [server] state"
            ) from None

    def body(self, dataset: str, key: str) -> bytes | None:
        """The bytes that were sent under a key, if any."""
        place = (dataset, key)
        held = self._newest.get(place)
        if held is not None:
            return held
        query = "SELECT data FROM body WHERE dataset = ? AND key = ?"
        with self._using("read"):
            row = self._database.execute(query, place).fetchone()
        return None if row is None else self._newest.put(place, bytes(row[0]))

    def beginning(self, dataset: str, start: str) -> list[tuple[str, bytes]]:
        """All keys of a dataset that begin so, with their bytes."""
        query = "SELECT key, data FROM body WHERE dataset = ? AND substr(key, 1, ?) = ?"
        with self._using("read"):
            rows = self._database.execute(query, (dataset, len(start), start)).fetchall()
        return [(str(key), bytes(data)) for key, data in rows]

    def recent(self, dataset: str, key: str) -> bytes | None:
        """The bytes that are held in memory under a key, if any."""
        return self._newest.get((dataset, key))

    def remember(self, dataset: str, key: str, data: bytes) -> bytes:
        """Hold bytes in memory only: for what the ledger keeps for ever."""
        return self._newest.put((dataset, key), data)

    def keep(self, bodies: Iterable[tuple[str, str, bytes]]) -> list[bytes]:
        """Keep (dataset, key, bytes); where a key is taken, the earlier bytes stay.

        Returns, for each, the bytes that are to be sent.
        """
        insert = "INSERT INTO body VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        query = "SELECT data FROM body WHERE dataset = ? AND key = ?"
        with self._using("written"):
            stored = []
            with self._transaction():
                for dataset, key, data in bodies:
                    if self._database.execute(insert, (dataset, key, data)).rowcount != 1:
                        data = bytes(self._database.execute(query, (dataset, key)).fetchone()[0])
                    stored.append(((dataset, key), data))
            return [self._newest.put(place, data) for place, data in stored]

    def forget(self, dataset: str, key: str) -> None:
        """Keep something no longer that is neither an answer nor a request, such as a draft."""
        with self._using("written"), self._transaction():
            self._database.execute("DELETE FROM body WHERE dataset = ? AND key = ?", (dataset, key))
        self._newest.drop((dataset, key))

    def bind(self, named: Iterable[tuple[str, str, str]]) -> list[bool]:
        """Bind idempotency keys: (analyst, name, request). False where it meant another request."""
        insert = "INSERT INTO bound VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        query = "SELECT request FROM bound WHERE analyst = ? AND name = ?"
        out = []
        with self._using("written"), self._transaction():
            for analyst, name, request in named:
                is_new = self._database.execute(insert, (analyst, name, request)).rowcount == 1
                row = self._database.execute(query, (analyst, name)).fetchone()
                out.append(is_new or row[0] == request)
        return out

    def note_job(
        self, job: str, analyst: str, dataset: str, is_over: bool, text: str, most: int
    ) -> None:
        """Keep what is known of a job, and only the newest ``most`` that are over."""
        change = (
            "INSERT INTO job (id, analyst, dataset, is_over, document) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET is_over = excluded.is_over, "
            "document = excluded.document"
        )
        with self._using("written"), self._transaction():
            self._database.execute(change, (job, analyst, dataset, int(is_over), text))
            for statement in _FORGET_JOBS:
                self._database.execute(statement, (most,))

    def add_change(self, sequence: int, digest: str, text: str) -> None:
        """Keep a change of people; a number that is taken is refused by the database."""
        with self._using("written"), self._transaction():
            self._database.execute("INSERT INTO change VALUES (?, ?, ?)", (sequence, digest, text))

    def changes(self) -> list[tuple[str, str]]:
        """(hash, text) of all changes of people, oldest first."""
        with self._using("read"):
            rows = self._database.execute("SELECT hash, text FROM change ORDER BY sequence")
            return [(str(digest), str(text)) for digest, text in rows.fetchall()]

    def job(self, job: str) -> str | None:
        """What was kept of a job."""
        with self._using("read"):
            row = self._database.execute("SELECT document FROM job WHERE id = ?", (job,)).fetchone()
            return None if row is None else str(row[0])

    def jobs(self, *, most: int = -1, open_only: bool = False) -> list[str]:
        """What was kept of jobs, newest first; -1: all of them."""
        query = "SELECT document FROM job WHERE is_over <= ? ORDER BY number DESC LIMIT ?"
        with self._using("read"):
            rows = self._database.execute(query, (int(not open_only), most)).fetchall()
            return [str(row[0]) for row in rows]

    def check(self) -> None:
        """Write something that means nothing; raises why, if that cannot be done."""
        with self._using("written"), self._transaction():
            version = int(self._database.execute("PRAGMA user_version").fetchone()[0])
            self._database.execute(f"PRAGMA user_version = {1 - version % 2}")

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()

    @contextmanager
    def _using(self, verb: str) -> Iterator[None]:
        """Alone with the database; its errors become one that says why."""
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise SfumatoError(
                    f"the server's state {self._path} cannot be {verb} ({_reason(error)}); make "
                    "room or restore the file; nothing that was paid for is lost"
                ) from None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One transaction: committed at its end, or undone."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # SQLite may have undone it by itself
                self._database.execute("ROLLBACK")
            raise


def _make_private(path: Path) -> None:
    """Create the file for its owner alone, or take from others what an earlier version gave them.

    SQLite gives the files beside it the same rights, so those are left from an earlier run only.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600))
    for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        if each.exists() and each.stat().st_mode & 0o077:
            each.chmod(0o600)


@dataclass(frozen=True, slots=True)
class Grid:
    """The times at which answers leave: whole steps of ``step`` seconds after the request came.

    How long an answer takes may depend on the noise and on the counts by microseconds; the clock of
    an analyst shows steps of the grid only (Jin et al. 2022, "Are we there yet? Timing and
    floating-point attacks on differential privacy systems"). Clock and sleep are passed in for
    tests.
    """

    step: float
    clock: Callable[[], float] = monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    def due(self, arrived: float, now: float) -> float:
        """The first time of the grid that is not before ``now``, at least one step after arrival.

        >>> Grid(0.25).due(10.0, 10.3)
        10.5
        """
        return arrived + self.step * max(1, math.ceil((now - arrived) / self.step))

    async def wait(self, arrived: float) -> None:
        """Sleep until the next time of the grid."""
        while (left := self.due(arrived, now := self.clock()) - now) > 0:
            await self.sleep(left)
            if self.clock() >= now + left:
                return


BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds: the upper ends of the buckets of latencies."""

Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a dataset: of the table, and of each allowance; None if not readable now."""

    share: float | None
    allowances: Mapping[str, float] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Latency:
    """How often a route answered within each bucket, and how long it took in all."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0

    def samples(self, route: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """The lines of a histogram: (suffix, labels, value)."""
        ends = (*(f"{end:g}" for end in BUCKETS), "+Inf")
        for end, number in zip(ends, accumulate(self.counts), strict=True):
            yield "_bucket", {"route": route, "le": end}, number
        yield "_sum", {"route": route}, self.seconds
        yield "_count", {"route": route}, sum(self.counts)


_COUNTERS: Final = {
    "sfumato_requests_total": ("responses by route and status", ("route", "status")),
    "sfumato_analyst_requests_total": (
        "responses by analyst: ok, refused, failed",
        ("analyst", "outcome"),
    ),
    "sfumato_answers_total": ("answers to questions by dataset and kind", ("dataset", "kind")),
    "sfumato_debits_total": (
        "debits by dataset and analyst, since the server started",
        ("dataset", "analyst"),
    ),
    "sfumato_sign_ins_total": ("logins of the page by outcome", ("outcome",)),
}
"""The counters by name: what they count, and by which labels."""


class Metrics:
    """Requests by route, status and analyst, how long they took, debits, questions by kind.

    Latencies are those that callers see: of whatever touched data, whole steps of the grid.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[str, Counter[tuple[str, ...]]] = {name: Counter() for name in _COUNTERS}
        self._latencies: dict[str, _Latency] = {}

    def request(self, route: str, status: int, seconds: float, analyst: str | None) -> None:
        """Count one response."""
        outcome = "ok" if status < 400 else "refused" if status < 500 else "failed"
        with self._lock:
            self._counts["sfumato_requests_total"][route, str(status)] += 1
            if analyst is not None:
                self._counts["sfumato_analyst_requests_total"][analyst, outcome] += 1
            latency = self._latencies.setdefault(route, _Latency())
            latency.counts[bisect_left(BUCKETS, seconds)] += 1
            latency.seconds += seconds

    def answered(self, dataset: str, kind: str) -> None:
        """Count an answer: ``paid``, ``free``, ``stored`` and so on."""
        self._count("sfumato_answers_total", dataset, kind)

    def debited(self, dataset: str, analyst: str) -> None:
        """Count a debit."""
        self._count("sfumato_debits_total", dataset, analyst)

    def signed_in(self, outcome: str) -> None:
        """Count a login of the page: ``ok`` or ``refused``."""
        self._count("sfumato_sign_ins_total", outcome)

    def _count(self, name: str, *labels: str) -> None:
        with self._lock:
            self._counts[name][labels] += 1

    def text(
        self,
        left: Mapping[str, Left],
        analysts: Collection[str] = (),
        gauges: Mapping[str, tuple[str, str, Iterable[Sample]]] | None = None,
    ) -> str:
        """The counters, with the share of each budget that remains.

        Args:
            left: what is left of each dataset that may be seen. Counters of other datasets are
                left out.
            analysts: those of whom the caller may see how much they ask.
            gauges: by name: kind, meaning and samples of what is measured now.

        Returns:
            The text that Prometheus reads.
        """
        with self._lock:
            counts = {name: sorted(count.items()) for name, count in self._counts.items()}
            latencies = [
                (f"sfumato_request_seconds{suffix}", labels, value)
                for route in sorted(self._latencies)
                for suffix, labels, value in self._latencies[route].samples(route)
            ]
        about = "how long responses took, in steps of the time grid where they touched data"
        # Counters of a dataset or an analyst that the caller may not see are left out.
        seen = {"dataset": left, "analyst": analysts}
        of_all: dict[str, tuple[str, str, Iterable[Sample]]] = {
            name: (
                "counter",
                meaning,
                [
                    (dict(zip(labels, key, strict=True)), number)
                    for key, number in counts[name]
                    if key[0] in seen.get(labels[0], key)
                ],
            )
            for name, (meaning, labels) in _COUNTERS.items()
        }
        of_all |= {
            "sfumato_budget_remaining_share": (
                "gauge",
                "the share of each budget that is left; missing while a ledger cannot be read",
                (({"dataset": d}, x.share) for d, x in left.items() if x.share is not None),
            ),
            "sfumato_allowance_remaining_share": (
                "gauge",
                "the share of each allowance that is left",
                (
                    ({"dataset": d, "analyst": a}, share)
                    for d, x in left.items()
                    for a, share in sorted(x.allowances.items())
                ),
            ),
            "sfumato_ledger_up": (
                "gauge",
                "whether the ledger of a dataset could be read",
                (({"dataset": d}, float(x.share is not None)) for d, x in left.items()),
            ),
            **(gauges or {}),
        }
        texts = [prometheus(name, *rest) for name, rest in of_all.items()]
        head = f"# HELP sfumato_request_seconds {about}\n# TYPE sfumato_request_seconds histogram\n"
        return "".join([*texts, head, *(_sample(*line) for line in latencies)])


def process_gauges() -> dict[str, tuple[str, str, Iterable[Sample]]]:
    """Figures of this process, under the names that dashboards know; missing where unknown.

    Processor time is in whole seconds: how long one count took shows on the grid of times only.
    """
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.floor(used.ru_utime + used.ru_stime)
    gauges: dict[str, tuple[str, str, Iterable[Sample]]] = {
        "process_cpu_seconds_total": ("counter", "processor time, whole seconds", [({}, seconds)]),
        "process_threads": ("gauge", "threads", [({}, active_count())]),
    }
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        memory = pages * resource.getpagesize()
        gauges["process_resident_memory_bytes"] = ("gauge", "resident memory", [({}, memory)])
    with suppress(OSError):
        number = sum(1 for _ in Path("/proc/self/fd").iterdir())
        gauges["process_open_fds"] = ("gauge", "open file descriptors", [({}, number)])
    return gauges


def prometheus(
    name: str, kind: str, about: str, samples: Iterable[tuple[Mapping[str, str], float]]
) -> str:
    r"""One metric as text.

    >>> prometheus("a_total", "counter", "all", [({"route": "/x"}, 2)])
    '# HELP a_total all\n# TYPE a_total counter\na_total{route="/x"} 2\n'
    """
    head = f"# HELP {name} {about}\n# TYPE {name} {kind}\n"
    return head + "".join(_sample(name, labels, value) for labels, value in samples)


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value:.12g}\n" if inside else f"{name} {value:.12g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
