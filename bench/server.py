# SPDX-License-Identifier: Apache-2.0
"""The server under load: 64 clients on loopback, the server on one core, with its durable ledger.

    python -m bench server

The server runs in a process of its own, pinned to one core where the system can do that; the
clients share another. A client sends its next request when the answer to the last one is there,
so requests per second and latencies belong together: 64 / (requests/s) is the mean latency. In the
paced row each client waits for its turn, so that all of them ask `PACED` times a second together.
"per CPU s" is what one second of the server's own CPU time answers: on a machine that is busy with
other things it is the steadier figure. The session behind "new free answer" has so small a budget
that every estimate passes its test: each question is new, read, tested on the exact counts, kept in
the ledger, and free. "new known answer" is of a session that measured all three attributes: each
question is new, followed back to what was measured, and neither tested nor stored.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd

from bench.tell import show
from sfumato_web.server.config import hash_of, new_token

T = TypeVar("T")
Answered = tuple[list[tuple[float, int]], int]

CLIENTS = 64
SECONDS = 8.0
WARM = 2.0
PACED = 1200.0  # requests a second of all clients together

CONFIG = """\
[limits]
burst = 1000000000
requests_per_second = 1e9
concurrent = 1024

[datasets.adult]
spec = "adult.toml"

[datasets.adult.session]
epsilon = 0.01
questions = 1000000

[datasets.scoped]
spec = "scoped.toml"

[datasets.scoped.session]
epsilon = 1
delta = 1e-9
scope = 3

[analysts.load]
token = "{token}"
datasets = ["adult", "scoped"]
"""

SPEC = """\
[data]
source = "demo:adult"
name = "adult"

[domain.age]
kind = "integer"
min = 17
max = 90

[domain.sex]
kind = "category"
values = ["Female", "Male"]

[domain.hours-per-week]
kind = "integer"
min = 1
max = 99

[[workload]]
marginals = 1

[budget]
epsilon = 1

[ledger]
path = "adult.ledger"
create = true
epsilon = 1
delta = 1e-9
"""

RECORDS = 48_842
AGES, HOURS, SEXES = (17, 90), (1, 99), ("Female", "Male")
RELEASE = {"workload": [{"marginals": 1}], "budget": {"epsilon": 0.1}, "project": False}
TOO_MUCH = {"workload": [{"marginals": 1}], "budget": {"epsilon": 2.0}}


@dataclass(frozen=True)
class Load:
    """What one kind of request came to."""

    name: str
    per_second: float
    per_cpu_second: float
    p50: float
    p99: float
    statuses: dict[int, int]


def main() -> None:
    """Measure and print."""
    from rich.table import Table

    shown = Table(title=f"{CLIENTS} clients on loopback, {_cores()}, {SECONDS:g} s each")
    for head in ("request", "per second", "per CPU s", "p50 ms", "p99 ms", "statuses"):
        shown.add_column(head, justify="left" if head == "request" else "right")
    for row in run():
        shown.add_row(
            row.name,
            f"{row.per_second:,.0f}",
            f"{row.per_cpu_second:,.0f}",
            f"{1000 * row.p50:.1f}",
            f"{1000 * row.p99:.1f}",
            ", ".join(f"{n:,} x {s}" for s, n in sorted(row.statuses.items())),
        )
    show(shown)


def run(seconds: float = SECONDS, clients: int = CLIENTS) -> Iterator[Load]:
    """One row per kind of request."""
    token = new_token()
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder), token) as (process, port):
        made = json.loads(_once(port, _request("POST", "release", token, RELEASE)))
        stored = _request("GET", f"answers/{made['key']}", token)
        refused = _request("POST", "release", token, TOO_MUCH)
        _once(port, refused)  # plans once
        asked = count()  # no question twice, in all rows together
        new = lambda _: _request("POST", "ask", token, _sql(next(asked)))  # noqa: E731
        known = lambda _: _request("POST", "ask", token, _sql(next(asked)), "scoped")  # noqa: E731
        _once(port, known(0))  # measures the scope
        kinds: list[tuple[str, Callable[[int], bytes], float]] = [
            ("stored answer (200)", lambda _: stored, 0.0),
            ("new free answer (200)", new, 0.0),
            ("new known answer of a scope (200)", known, 0.0),
            (f"free ones, {PACED:,.0f} a second", new, clients / PACED),
            ("exhausted budget (409)", lambda _: refused, 0.0),
            ("wrong token (401)", lambda _: _request("GET", "schema", "wrong"), 0.0),
        ]
        for name, request, pause in kinds:
            load = _load(port, request, seconds, clients, pause)
            yield _measured(name, process.pid, load, seconds)


def _sql(number: int) -> dict[str, str]:
    """A question that was not asked before: a range of ages and of hours, and a sex.

    The number is spread over all such questions by a multiplier without a common factor.
    """
    ages, hours = _ranges(*AGES), _ranges(*HOURS)
    place = number * 7_368_787 % (len(ages) * len(hours) * len(SEXES))
    place, sex = divmod(place, len(SEXES))
    (a, b), (c, d) = ages[place % len(ages)], hours[place // len(ages)]
    text = (
        f"SELECT COUNT(*) FROM data WHERE age BETWEEN {a} AND {b} AND "
        f"\"hours-per-week\" BETWEEN {c} AND {d} AND sex = '{SEXES[sex]}'"
    )
    return {"sql": text}


@cache
def _ranges(low: int, high: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(low, high + 1) for b in range(a, high + 1)]


def _measured(name: str, pid: int, load: Coroutine[Any, Any, Answered], seconds: float) -> Load:
    before = _cpu_seconds(pid)
    found, sent = _loop_runner()(load)
    spent = _cpu_seconds(pid) - before
    times = sorted(took for took, _ in found)
    statuses = Counter(status for _, status in found)
    at = lambda share: times[min(len(times) - 1, int(share * len(times)))]  # noqa: E731
    rates = (len(found) / seconds, sent / spent if spent else float("nan"))
    return Load(name, *rates, at(0.5), at(0.99), dict(statuses))


def _loop_runner() -> Callable[[Coroutine[Any, Any, T]], T]:
    """The faster event loop, if it is there: the clients must not be what is measured."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


async def _load(
    port: int, request: Callable[[int], bytes], seconds: float, clients: int, pause: float
) -> Answered:
    """(latency, status) of what was answered in ``seconds``, after a time to warm up; all sent."""
    warm = min(WARM, seconds / 2)
    begin = perf_counter() + warm
    load = _Load(request, begin, begin + seconds, pause)
    loop = asyncio.get_running_loop()
    made = [_Client(load, loop.create_future()) for _ in range(clients)]
    for client in made:
        await loop.create_connection(lambda c=client: c, "127.0.0.1", port)
    await asyncio.gather(*(client.done for client in made))
    return load.found, load.sent


@dataclass
class _Load:
    """What all clients share."""

    request: Callable[[int], bytes]
    begin: float
    end: float
    pause: float  # from one request of a client to its next, at least
    sent: int = 0
    found: list[tuple[float, int]] = field(default_factory=list)


class _Client(asyncio.Protocol):
    """One connection: the next request is sent when the answer to the last one is there."""

    def __init__(self, load: _Load, done: asyncio.Future[None]) -> None:
        self.load, self.done = load, done
        self._held, self._began = b"", 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def _send(self) -> None:
        if perf_counter() >= self.load.end:
            self._transport.close()
            return
        request = self.load.request(self.load.sent)
        self.load.sent += 1
        self._began = perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._held += data
        head, gap, body = self._held.partition(b"\r\n\r\n")
        if not gap or len(body) < _length(head):
            return
        now = perf_counter()
        if self.load.begin <= now < self.load.end:
            self.load.found.append((now - self._began, int(head[9:12])))
        self._held = b""
        wait = self._began + self.load.pause - now
        if wait > 0:
            asyncio.get_running_loop().call_later(wait, self._send)
        else:
            self._send()

    def connection_lost(self, why: Exception | None) -> None:
        if why is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(why)


def _length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])


def _request(
    method: str, route: str, token: str, body: object = None, dataset: str = "adult"
) -> bytes:
    """A request as bytes; a keep-alive connection takes it as it is."""
    raw = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} /datasets/{dataset}/{route} HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(raw)}\r\n\r\n"
    )
    return head.encode() + raw


def _once(port: int, request: bytes) -> bytes:
    """One request, outside of the measurement."""

    async def send() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**26)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(_length(head))
        writer.close()
        return body

    return asyncio.run(send())


def _people() -> pd.DataFrame:
    """As many records as in Adult, made up: one table has one ledger."""
    draw = np.random.default_rng(1)
    ages, hours = (draw.integers(low, high + 1, RECORDS) for low, high in (AGES, HOURS))
    sexes = draw.choice(SEXES, RECORDS)
    return pd.DataFrame({"age": ages, "sex": sexes, "hours-per-week": hours})


@contextmanager
def _server(folder: Path, token: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server with a fresh ledger, on a core of its own if there are two."""
    (folder / "adult.toml").write_text(SPEC)
    people = SPEC.replace("demo:adult", "people.parquet").replace("adult", "people")
    (folder / "scoped.toml").write_text(people)
    _people().to_parquet(folder / "people.parquet")
    (folder / "server.toml").write_text(CONFIG.format(token=hash_of(token)))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sfumato", "serve", str(folder / "server.toml")]
    process = subprocess.Popen([*command, "--port", str(port)], stderr=subprocess.DEVNULL)
    cores = _pinnable()
    if len(cores) > 1:
        os.sched_setaffinity(process.pid, {cores[0]})
        os.sched_setaffinity(0, {cores[1]})
    try:
        _wait_until_up(process, port)
        yield process, port
    finally:
        process.terminate()
        process.wait(30)
        if len(cores) > 1:
            os.sched_setaffinity(0, set(cores))


def _wait_until_up(process: subprocess.Popen[bytes], port: int) -> None:
    until = perf_counter() + 120
    while perf_counter() < until:
        if process.poll() is not None:
            raise RuntimeError("the server did not start; run `sfumato serve` to see why")
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
    raise RuntimeError("the server did not listen within two minutes")


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process so far; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pinnable() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _cores() -> str:
    return "server pinned to one core" if len(_pinnable()) > 1 else "server not pinned"
