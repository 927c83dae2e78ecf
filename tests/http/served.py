# SPDX-License-Identifier: Apache-2.0
"""A small server for tests: two tables, three people, a clock that only moves when told."""

from __future__ import annotations

import http.client
import itertools
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import uvicorn
from fastapi.testclient import TestClient

from sfumato_web.app import ServerState, make_app, settings
from sfumato_web.server.config import hash_of, read_config
from sfumato_web.server.request_log import RequestLog
from sfumato_web.server.responses import Grid
from sfumato_web.server.server_limits import Rates

ADA, BOB, CORA = "sfu_ada", "sfu_bob", "sfu_cora"
DORA, SAM = "sfu_dora", "sfu_sam"

DOMAIN = """\
[domain.age]
kind = "integer"
min = 0
max = 19

[domain.sex]
kind = "category"
values = ["Female", "Male"]
"""

CONFIG = f"""\
[server]
state = "server.state"

[limits]
planning_seconds = 60.0

[datasets.people]
about = "made-up people"
source = "people.csv"
domain = "people.toml"
ledger = "people.ledger"
create = true
budget = {{epsilon = 4}}

[datasets.others]
source = "others.csv"
domain = "people.toml"
ledger = "others.ledger"
create = true
budget = {{rho = 1}}

[analysts.ada]
token = "{hash_of(ADA)}"
datasets = ["people"]
allowance.people = {{epsilon = 2}}

[analysts.bob]
token = "{hash_of(BOB)}"
datasets = ["others"]

[analysts.cora]
token = "{hash_of(CORA)}"
role = "curator"
datasets = "all"
"""

ROLES = f"""{CONFIG}
[analysts.dora]
token = "{hash_of(DORA)}"
role = "auditor"
datasets = ["people"]

[analysts.sam]
token = "{hash_of(SAM)}"
role = "scraper"
datasets = "all"
"""

WORKLOAD = [{"marginals": 1}, {"prefix": "age", "by": ["sex"]}]


def asked(epsilon: float = 1.0, **more: object) -> dict[str, object]:
    """A release request."""
    return {"workload": WORKLOAD, "budget": {"epsilon": epsilon}, **more}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def fixed_headers(reply: httpx.Response) -> list[tuple[str, str]]:
    """The headers without the random id of the request."""
    return sorted((k, v) for k, v in reply.headers.multi_items() if k != "x-request-id")


def people(rows: int = 400) -> str:
    lines = [f"{(i * 7) % 20},{'Female' if i % 3 else 'Male'}" for i in range(rows)]
    return "age,sex\n" + "\n".join(lines) + "\n"


def write_served(folder: Path, config: str = CONFIG, rows: int = 400) -> Path:
    """The tables, their domain and the configuration; returns the path of the latter."""
    folder.mkdir(exist_ok=True)
    (folder / "people.csv").write_text(people(rows))
    (folder / "others.csv").write_text(people(50))
    (folder / "people.toml").write_text(DOMAIN)
    (folder / "server.toml").write_text(config)
    return folder / "server.toml"


@dataclass
class Clock:
    """Time that moves by sleeping, and by a step at each look."""

    step: float = 0.0
    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        self.now += self.step
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@contextmanager
def served(
    path: Path, clock: Clock | None = None, log: RequestLog | None = None
) -> Iterator[TestClient]:
    """The server behind an ASGI transport; ``client.app.server`` is its state."""
    clock = clock or Clock()
    config = read_config(path)
    limits = config.limits
    grid = Grid(config.grid, clock, clock.sleep)
    rates = Rates(limits.requests_per_second, limits.burst, clock)
    state = ServerState(config, grid, rates, log)
    try:
        with TestClient(make_app(state), raise_server_exceptions=True) as client:
            yield client
    finally:
        state.close()


@dataclass
class Running:
    """A server on a real socket, in a thread of this process."""

    port: int
    server: ServerState

    def connect(self) -> socket.socket:
        """A connection; nothing here waits for longer than half a minute."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def send(
        self, method: str, path: str, token: str | None = None, body: object = None
    ) -> socket.socket:
        """Send a request, and leave the connection open."""
        connection = self.connect()
        data = b"" if body is None else json.dumps(body).encode()
        who = "" if token is None else f"Authorization: Bearer {token}\r\n"
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{who}Content-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return connection

    def ask(self, *given: object) -> tuple[int, bytes]:
        """Send a request; the status and the body of the answer."""
        with self.send(*given) as connection:
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            return answer.status, answer.read()


@contextmanager
def running(path: Path) -> Iterator[Running]:
    """The server on a free port of the loopback interface, as ``sfumato serve`` runs it."""
    config = replace(read_config(path), port=0, page=False)
    state = ServerState(config)
    server = uvicorn.Server(uvicorn.Config(make_app(state, closes=True), **settings(config)))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            thread.join(0.01)
        yield Running(server.servers[0].sockets[0].getsockname()[1], state)
    finally:
        server.should_exit = True
        thread.join()


def keys() -> Iterator[str]:
    return (f"key-{i}" for i in itertools.count())
