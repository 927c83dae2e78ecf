# SPDX-License-Identifier: Apache-2.0
"""A server with made-up visitors of a museum, in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import re
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from threading import Thread

from sfumato_web.server.config import hash_of

ADA, BOB, CORA, DAN = "sfu_ada", "sfu_bob", "sfu_cora", "sfu_dan"

DOMAIN = """\
[domain.age]
kind = "integer"
min = 0
max = 89

[domain.ticket]
kind = "category"
values = ["adult", "child", "student", "member", "free"]

[domain.weekday]
kind = "category"
values = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]

[domain.guided]
kind = "boolean"
"""

CONFIG = f"""\
[server]
state = "server.state"

[limits]
planning_seconds = 60.0

[datasets.museum]
about = "Visitors of a museum, made up"
source = "museum.csv"
domain = "museum.toml"
ledger = "museum.ledger"
create = true
budget = {{epsilon = 4, delta = 1e-9}}

[datasets.museum.session]
epsilon = 1
delta = 1e-9
questions = 100
updates = 4

[datasets.archive]
about = "Loans of an archive, with little budget"
source = "archive.csv"
domain = "museum.toml"
ledger = "archive.ledger"
create = true
budget = {{epsilon = 0.2, delta = 1e-9}}

[datasets.archive.session]
epsilon = 0.1
delta = 1e-9
questions = 2
updates = 1

[analysts.ada]
token = "{hash_of(ADA)}"
datasets = ["museum", "archive"]
allowance.museum = {{epsilon = 2.5, delta = 1e-9}}

[analysts.bob]
token = "{hash_of(BOB)}"
datasets = ["archive"]

[analysts.dan]
token = "{hash_of(DAN)}"
datasets = ["museum"]
allowance.museum = {{epsilon = 1e-6, delta = 1e-15}}

[analysts.cora]
token = "{hash_of(CORA)}"
role = "curator"
datasets = "all"
"""

TICKETS = ("adult", "child", "student", "member", "free")
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def visitors(rows: int) -> str:
    """Made-up records, the same every time: two humps of age, busy weekends."""
    lines = []
    for i in range(rows):
        hump = 9 if i % 3 == 0 else 41
        age = min(89, max(0, hump + (i * 7919 % 37) - 18 + (i * 104729 % 23) - 11))
        ticket = "child" if age < 15 else "student" if age < 25 else TICKETS[i * 31 % 5 % 4 - 1]
        day = DAYS[max(i * 613 % 7, i * 389 % 7)]
        lines.append(f"{age},{ticket},{day},{'true' if i * 17 % 10 < 3 else 'false'}")
    return "age,ticket,weekday,guided\n" + "\n".join(lines) + "\n"


def write_museum(folder: Path, rows: int = 4_000, number_is_public: bool = False) -> Path:
    """Tables, their domain and the configuration; returns the path of the latter.

    With ``number_is_public`` one visitor may be replaced, and none is dropped.
    """
    folder.mkdir(exist_ok=True)
    (folder / "museum.csv").write_text(visitors(rows))
    (folder / "archive.csv").write_text(visitors(300))
    inside = 'records = "all-inside"\n\n' if number_is_public else ""
    (folder / "museum.toml").write_text(inside + DOMAIN)
    about = 'about = "Visitors of a museum, made up"'
    replaced = f'{about}\nneighbours = "replace-one"' if number_is_public else about
    (folder / "server.toml").write_text(CONFIG.replace(about, replaced))
    return folder / "server.toml"


@dataclass(frozen=True)
class Museum:
    """A running server: its address, its folder, and what it logged so far."""

    address: str
    folder: Path
    log: list[str]
    process: ForkServerProcess

    def stop(self) -> None:
        """Ask it to end, as an operator does, and wait for that."""
        self.process.terminate()
        self.process.join(60)


@cache
def _forks() -> ForkServerContext:
    """Children of one process that has imported all that a server does; a start takes seconds."""
    context = multiprocessing.get_context("forkserver")
    needed = ["sfumato.cli.main", "sfumato_web.app", "sfumato_web.page", "ibis", "duckdb"]
    context.set_forkserver_preload([*needed, "tests.page.museum"])
    return context


def _serve(arguments: Sequence[str], before: str, log: Connection) -> None:
    """``python -m sfumato`` with these arguments, after some Python; errors go to the log."""
    os.dup2(log.fileno(), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    exec(before, {})  # noqa: S102
    sys.argv = ["sfumato", *arguments]
    runpy.run_module("sfumato", run_name="__main__", alter_sys=True)


@contextmanager
def museum_server(
    folder: Path, port: int = 0, before: str = "", number_is_public: bool = False
) -> Iterator[Museum]:
    """Start the server on a free port (or this one), as a user would; stop it at the end.

    ``before`` is Python that runs in its process before it starts. ``tests/http/test_obeyed.py``
    starts a whole program.
    """
    config = write_museum(folder, number_is_public=number_is_public)
    reads, writes = multiprocessing.Pipe(duplex=False)
    arguments = ["serve", str(config), "--port", str(port)]
    process = _forks().Process(target=_serve, args=(arguments, before, writes))
    process.start()
    writes.close()
    log: list[str] = []
    found = None
    try:
        with os.fdopen(os.dup(reads.fileno())) as lines:
            for line in lines:
                log.append(line)
                found = re.search(r"running on http://127\.0\.0\.1:(\d+)", line)
                if found:
                    break
            assert found, "the server did not start:\n" + "".join(log)
            reading = Thread(target=lambda: log.extend(lines), daemon=True)
            reading.start()
            museum = Museum(f"http://127.0.0.1:{found[1]}", folder, log, process)
            yield museum
            museum.stop()
            reading.join(60)
    finally:
        process.terminate()
        reads.close()
