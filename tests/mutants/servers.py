# SPDX-License-Identifier: Apache-2.0
"""One PostgreSQL server and one session of Spark for all mutants: both are slow to start."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from sfumato.errors import TableError
from sfumato.vault.spark import spark_session
from tests.shared import postgres_server
from tests.shared.engine_tables import SMALL_SPARK

_TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def servers() -> Iterator[None]:
    """While they run, the fixtures of the tests get them, in this process and in its forks."""
    session = _spark()
    own = postgres_server.postgres_server
    try:
        with own() as address:
            postgres_server.postgres_server = lambda **_: nullcontext(address)
            yield
    except postgres_server.NoServer as error:
        print(f"NO POSTGRESQL SERVER, its tests kill nothing: {error}")
        yield
    finally:
        postgres_server.postgres_server = own
        if session is not None:
            session.sparkContext.stop()


def _spark():
    try:
        session = spark_session(SMALL_SPARK)
    except TableError as error:
        print(f"NO SPARK, its tests kill nothing: {error}")
        return None
    type(session).stop = lambda _: None  # as the fixture of the tests would
    client = session.sparkContext._gateway._gateway_client

    def forget_connections() -> None:  # a fork must not read the answers to its parent
        client.thread_connection, client.deque = threading.local(), deque()

    os.register_at_fork(after_in_child=forget_connections)
    return session


def ticks(process: int) -> int:
    """Processor time of a process and of its ended children."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def seconds() -> float:
    """Processor time of this process, its ended children, and Spark."""
    from pyspark import SparkContext

    own = sum(os.times()[:4])
    gateway = SparkContext._gateway
    return own if gateway is None else own + ticks(gateway.proc.pid) / _TICKS
