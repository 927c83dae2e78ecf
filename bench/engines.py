# SPDX-License-Identifier: Apache-2.0
"""All pairs of some attributes on PostgreSQL and on Spark: sfumato beside ways of bare SQL.

Real servers on this machine. Every way is run twice and its best time is kept.

    python -m bench engines             10^6 rows, 8 attributes of 10 values
    python -m bench engines --quick     10^5 rows
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.tell import Effort, show
from sfumato.domain import Domain
from sfumato.vault.count import count_marginals
from sfumato.vault.tables import open_table

ROWS = 10**6
NAMES = [f"x{i}" for i in range(8)]
PAIRS = list(combinations(NAMES, 2))
ROUNDS = 2

Row = dict[str, str | float]
Run = Callable[[str], int]


def run(rows: int = ROWS) -> list[Row]:
    """One row per engine and way, with the ratio of its time to that of a query per pair."""
    found: list[Row] = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        some = np.random.default_rng(1)
        pq.write_table(
            pa.table({name: some.integers(0, 10, rows).astype(np.int16) for name in NAMES}), path
        )
        for engine in (_postgres, _spark):
            with engine(path, rows) as (name, source, answer):
                found += _measured(name, source, answer)
    return found


def _measured(name: str, source: str, answer: Run) -> list[Row]:
    best = {
        way: min(_seconds(act, source, answer) for _ in range(ROUNDS)) for way, act in _WAYS.items()
    }
    first = next(iter(best.values()))
    return [
        {"engine": name, "way": way, "seconds": spent, "ratio": spent / first}
        for way, spent in best.items()
    ]


def _seconds(act: Callable[[str, Run], None], source: str, answer: Run) -> float:
    start = time.perf_counter()
    act(source, answer)
    return time.perf_counter() - start


def _one_by_one(_: str, answer: Run) -> None:
    for a, b in PAIRS:
        answer(f"SELECT {a}, {b}, COUNT(*) AS n FROM bare GROUP BY {a}, {b}")


def _grouping_sets(_: str, answer: Run) -> None:
    columns, sets = ", ".join(NAMES), ", ".join(f"({a}, {b})" for a, b in PAIRS)
    answer(f"SELECT {columns}, COUNT(*) AS n FROM bare GROUP BY GROUPING SETS ({sets})")


def _sfumato(source: str, _: Run) -> None:
    count_marginals(open_table(source), Domain(dict.fromkeys(NAMES, 10)), PAIRS)


_WAYS = {
    "bare, a query per pair": _one_by_one,
    "bare, GROUPING SETS": _grouping_sets,
    "sfumato: open, encode, count": _sfumato,
}


@contextmanager
def _postgres(path: Path, rows: int) -> Iterator[tuple[str, str, Run]]:
    import psycopg

    from tests.postgres_server import postgres_server

    columns = ", ".join(f"{name} smallint" for name in NAMES)
    with postgres_server() as address, psycopg.connect(address, autocommit=True) as server:
        server.execute(f"CREATE TABLE bare ({columns})")
        with server.cursor().copy("COPY bare FROM STDIN") as copy:
            for row in zip(*(c.to_pylist() for c in pq.read_table(path).columns), strict=True):
                copy.write_row(row)
        server.execute("ANALYZE bare")

        def answer(query: str) -> int:
            return len(server.execute(query.encode()).fetchall())

        yield f"PostgreSQL, {rows:,} rows", f"{address}::bare", answer


@contextmanager
def _spark(path: Path, rows: int) -> Iterator[tuple[str, str, Run]]:
    from sfumato.vault.spark_session import spark_session

    session = spark_session({"spark.sql.shuffle.partitions": "4"})
    session.read.parquet(str(path)).createOrReplaceTempView("bare")
    yield (
        f"Spark, local, {rows:,} rows",
        f"spark:{path}",
        lambda query: int(session.sql(query).toArrow().num_rows),
    )
    session.stop()


def main(effort: Effort = "usual") -> None:
    """Print the rows of `run` as a table."""
    from rich.table import Table

    shown = Table(title=f"All {len(PAIRS)} pairs of {len(NAMES)} attributes of 10 values")
    for column in ("engine", "way", "seconds", "ratio"):
        shown.add_column(column, justify="right" if column in ("seconds", "ratio") else "left")
    for row in run(ROWS // 10 if effort == "quick" else ROWS):
        shown.add_row(
            str(row["engine"]), str(row["way"]), f"{row['seconds']:.2f}", f"{row['ratio']:.2f}"
        )
    show(shown)
