# SPDX-License-Identifier: Apache-2.0
"""A small server for tests: two tables, three people, a clock that only moves when told."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fastapi.testclient import TestClient

from sfumato.app.server.app import make_app
from sfumato.app.server.config import read_config
from sfumato.app.server.grid import Grid
from sfumato.app.server.house import House
from sfumato.app.server.limits import Rates
from sfumato.app.server.tokens import hash_of

ADA, BOB, CORA = "sfu_ada", "sfu_bob", "sfu_cora"

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
budget = {{epsilon = 4}}

[datasets.others]
source = "others.csv"
domain = "people.toml"
ledger = "others.ledger"
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

WORKLOAD = [{"marginals": 1}, {"prefix": "age", "by": ["sex"]}]


def asked(epsilon: float = 1.0, **more: object) -> dict[str, object]:
    """A release request."""
    return {"workload": WORKLOAD, "budget": {"epsilon": epsilon}, **more}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


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
def served(path: Path, clock: Clock | None = None) -> Iterator[TestClient]:
    """The server behind an ASGI transport; ``client.app.house`` is its house."""
    clock = clock or Clock()
    config = read_config(path)
    limits = config.limits
    grid = Grid(config.grid, clock, clock.sleep)
    house = House(config, grid, Rates(limits.requests_per_second, limits.burst, clock))
    try:
        with TestClient(make_app(house), raise_server_exceptions=True) as client:
            yield client
    finally:
        house.close()


def keys() -> Iterator[str]:
    return (f"key-{i}" for i in itertools.count())
