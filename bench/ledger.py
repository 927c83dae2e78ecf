# SPDX-License-Identifier: Apache-2.0
"""The ledger, operations per second: durable debits, free answers, stored answers, refusals.

Every debit and every free answer is on the disk before its caller goes on; with 64 threads many of
them share one commit. SQLite in the folder for temporary files, PostgreSQL on a socket with its
default durability. CPU is that of this process, so the server's is not in it.
``python -m bench ledger`` prints it.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from bench.tell import show
from sfumato.errors import BudgetExhausted
from sfumato.ledger.ledger import Ledger
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from tests.shared.postgres_server import NoServer, postgres_server

__all__ = ["Row", "main", "run"]

THREADS = (1, 64)
SECONDS = 3.0
TINY = Cost.pure(Fraction(1, 10**9))
TOO_MUCH = Cost.pure(2)


@dataclass(frozen=True)
class Row:
    """What one database reached."""

    database: str
    what: str
    threads: int
    per_second: float
    cpu_microseconds: float


def rate(work: Callable[[str], object], threads: int, seconds: float) -> tuple[float, float]:
    """Operations per second, and CPU microseconds of each, of threads that repeat ``work``."""
    done = [0] * threads
    end = time.perf_counter() + seconds

    def repeat(number: int) -> None:
        for turn in itertools.count(1):
            work(f"{threads}-{number}-{turn}")
            done[number] = turn
            if time.perf_counter() > end:
                return

    workers = [threading.Thread(target=repeat, args=(number,)) for number in range(threads)]
    start, cpu = time.perf_counter(), time.process_time()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    wall, used = time.perf_counter() - start, time.process_time() - cpu
    return sum(done) / wall, 1e6 * used / sum(done)


def run(place: str, database: str, seconds: float = SECONDS) -> list[Row]:
    """One row per operation and number of threads, on a new ledger."""
    ledger = Ledger.create(place, Budget(epsilon=1), "bench", "add-remove", keep_open=True)
    epoch = ledger.store(ledger.debit(TINY, {"epoch": 1}, "epoch"), b"open")
    answer = b'{"value": 104.25, "standard_error": 3.5, "is_paid": false}'
    request = {"sql": "SELECT COUNT(*) FROM data WHERE age BETWEEN 25 AND 44"}

    def refused(key: str) -> None:
        with suppress(BudgetExhausted):
            ledger.debit(TOO_MUCH, request, key)

    operations: dict[str, Callable[[str], object]] = {
        "debit": lambda key: ledger.debit(TINY, request, f"d{key}"),
        "free answer": lambda key: ledger.keep(f"f{key}", request, answer, epoch),
        "stored answer": lambda _: ledger.answer("epoch"),
        "refusal": refused,
    }
    rows = [
        Row(database, what, threads, *rate(work, threads, seconds))
        for what, work in operations.items()
        for threads in THREADS
    ]
    assert ledger.verify().is_whole
    ledger.close()
    return rows


@contextmanager
def places() -> Iterator[list[tuple[str, str]]]:
    """A place for a ledger on each database that can be had."""
    with tempfile.TemporaryDirectory() as folder:
        found = [(str(Path(folder) / "bench.ledger"), "SQLite")]
        try:
            with postgres_server(durable=True) as address:
                yield [*found, (address, "PostgreSQL")]
        except NoServer as error:
            print(f"PostgreSQL is left out: {error}")
            yield found


def main() -> None:
    """Print the rows."""
    from rich.table import Table

    shown = Table(title="The ledger, operations per second")
    for heading in ("database", "operation", "threads", "per second", "CPU us each"):
        shown.add_column(
            heading, justify="left" if heading in ("database", "operation") else "right"
        )
    with places() as found:
        for place, database in found:
            for row in run(place, database):
                figures = (f"{row.per_second:,.0f}", f"{row.cpu_microseconds:,.0f}")
                shown.add_row(row.database, row.what, str(row.threads), *figures)
    show(shown)
