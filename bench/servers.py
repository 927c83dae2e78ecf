# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL and Spark on this machine with a table of some Parquet file, and what they spend.

A server works in processes of its own: its CPU seconds are those of all of them, ended ones too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

__all__ = ["Server", "Spent", "connected", "peak_kilobytes", "postgres_of", "spark_of", "timed"]

_TICKS = os.sysconf("SC_CLK_TCK")
_POSTGRES = {"DOUBLE": "double precision", "VARCHAR": "text", "TINYINT": "smallint"}


@dataclass(frozen=True)
class Server:
    """A table on a server: its source for sfumato, a way to run SQL on it, its first process."""

    source: str
    table: str
    answer: Callable[[str], int]
    process: int

    @property
    def cpu(self) -> float:
        """CPU seconds of all its processes so far."""
        return sum(sum(map(int, f[11:15])) for f in self._processes().values()) / _TICKS

    @property
    def megabytes(self) -> float:
        """The most memory that each of its processes had, summed over those that still run."""
        return sum(map(peak_kilobytes, self._processes())) / 1024

    def _processes(self) -> dict[int, list[str]]:
        """The server's process and all below it, with the fields of their status."""
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    found[int(folder.name)] = _fields(int(folder.name))
                except OSError:  # it has just ended
                    continue
        mine = {self.process}
        while more := {p for p, f in found.items() if int(f[1]) in mine} - mine:
            mine |= more
        return {p: f for p, f in found.items() if p in mine}


@dataclass
class Spent:
    """Seconds by the clock, and of all cores: this process's and its server's."""

    seconds: float = 0.0
    cpu: float = 0.0


@contextmanager
def timed(server: Server | None = None) -> Iterator[Spent]:
    """What happens inside, told when it has ended."""
    spent = Spent()
    before = 0.0 if server is None else server.cpu
    wall, cpu = time.perf_counter(), time.process_time()
    yield spent
    spent.seconds = time.perf_counter() - wall
    spent.cpu = time.process_time() - cpu + (0.0 if server is None else server.cpu - before)


@contextmanager
def postgres_of(path: Path) -> Iterator[Server]:
    """The rows of a Parquet file as the table ``bare`` of a new server."""
    from tests.shared.postgres_server import postgres_server

    with postgres_server() as address:
        _load(address, path)
        with connected(f"{address}::bare") as server:
            yield server


@contextmanager
def connected(source: str) -> Iterator[Server]:
    """A table of a server that runs already."""
    import psycopg

    address, _, table = source.rpartition("::")
    with psycopg.connect(address, autocommit=True) as connection:
        first = int(_fields(connection.info.backend_pid)[1])
        yield Server(source, table, lambda q: len(connection.execute(q).fetchall()), first)


def _load(address: str, path: Path) -> None:
    import psycopg

    rows = duckdb.sql(f"FROM read_parquet('{path}')")
    made = ", ".join(
        f"{name} {_POSTGRES.get(str(kind), str(kind))}"
        for name, kind in zip(rows.columns, rows.types, strict=True)
    )
    with psycopg.connect(address, autocommit=True) as connection, TemporaryDirectory() as folder:
        connection.execute(f"CREATE TABLE bare ({made})")
        text = Path(folder) / "rows.csv"
        rows.write_csv(str(text), header=False)
        with (
            text.open("rb") as lines,
            connection.cursor().copy("COPY bare FROM STDIN (FORMAT csv)") as copy,
        ):
            while block := lines.read(2**20):
                copy.write(block)
        connection.execute("VACUUM ANALYZE bare")


@contextmanager
def spark_of(path: Path) -> Iterator[Server]:
    """The rows of a Parquet file in a local session of Spark, as sfumato starts it."""
    from sfumato.vault.spark import spark_session

    session = spark_session()
    session.read.parquet(str(path)).createOrReplaceTempView("bare")
    java = session._jvm.java.lang.ProcessHandle.current().pid()
    yield Server(f"spark:{path}", "bare", lambda q: session.sql(q).toArrow().num_rows, java)
    session.stop()


def peak_kilobytes(pid: int) -> int:
    """The most memory of a process; 0 if it has just ended. (getrusage tells its parent's, too.)"""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
