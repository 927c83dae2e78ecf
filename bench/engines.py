# SPDX-License-Identifier: Apache-2.0
"""All pairs of some attributes on PostgreSQL and on Spark: sfumato beside ways of bare SQL.

Real servers on this machine. Every way is run three times in turn, in one session, and its least
CPU seconds (of the server and of this process) and least seconds by the clock are kept. Bare SQL
groups whatever is in the columns; sfumato drops records outside of the domain, for which bare SQL
needs a condition on every column: both are measured.

    python -m bench engines --quick     10^5 rows of 8 attributes of 10 values
    python -m bench engines             10^6 rows
    python -m bench engines --all       10^6 and 10^7 rows
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.people import write_wide
from bench.servers import Server, Spent, postgres_of, spark_of, timed
from bench.tell import Effort, show
from sfumato.vault.count import count_marginals
from sfumato.vault.tables import open_table

ROWS: dict[Effort, tuple[int, ...]] = {
    "quick": (10**5,),
    "usual": (10**6,),
    "all": (10**6, 10**7),
}
NAMES = [f"x{i}" for i in range(8)]
PAIRS = list(combinations(NAMES, 2))
ROUNDS = 3
OURS = "sfumato: open, encode, count"

Row = dict[str, str | float]


def run(effort: Effort = "usual") -> list[Row]:
    """One row per engine, size and way, with the ratio of its CPU to that of the best bare way."""
    found: list[Row] = []
    with TemporaryDirectory() as folder:
        for rows in ROWS[effort]:
            path = Path(folder) / f"rows-{rows}.parquet"
            domain = write_wide(len(NAMES), rows, path)

            def sfumato(server: Server, domain=domain) -> None:
                count_marginals(open_table(server.source), domain, PAIRS)

            for name, start in (("PostgreSQL", postgres_of), ("Spark, local", spark_of)):
                with start(path) as server:
                    best = _measured(server, BARE | {OURS: sfumato})
                found += _rows(f"{name}, {rows:,} rows", best)
    return found


def _measured(server: Server, ways: dict[str, Callable[[Server], None]]) -> dict[str, Spent]:
    best = {way: Spent(float("inf"), float("inf")) for way in ways}
    for _ in range(ROUNDS):
        for way, act in ways.items():
            with timed(server) as spent:
                act(server)
            best[way].cpu = min(best[way].cpu, spent.cpu)
            best[way].seconds = min(best[way].seconds, spent.seconds)
    return best


def _rows(engine: str, best: dict[str, Spent]) -> list[Row]:
    cpu, seconds = (
        min(getattr(spent, what) for way, spent in best.items() if way != OURS)
        for what in ("cpu", "seconds")
    )
    return [
        {
            "engine": engine,
            "way": way,
            "CPU s": spent.cpu,
            "to the best bare one": spent.cpu / cpu,
            "wall s": spent.seconds,
            "wall to the best": spent.seconds / seconds,
        }
        for way, spent in best.items()
    ]


def _one_by_one(server: Server) -> None:
    for a, b in PAIRS:
        server.answer(f"SELECT {a}, {b}, COUNT(*) AS n FROM {server.table} GROUP BY {a}, {b}")


def _grouping_sets(server: Server, where: str = "") -> None:
    columns, sets = ", ".join(NAMES), ", ".join(f"({a}, {b})" for a, b in PAIRS)
    rows = f"{server.table} {where}"
    server.answer(f"SELECT {columns}, COUNT(*) AS n FROM {rows} GROUP BY GROUPING SETS ({sets})")


def _inside(server: Server) -> None:
    _grouping_sets(server, "WHERE " + " AND ".join(f"{name} BETWEEN 0 AND 9" for name in NAMES))


BARE = {
    "bare, a query per pair": _one_by_one,
    "bare, GROUPING SETS": _grouping_sets,
    "bare, GROUPING SETS WHERE all are inside": _inside,
}


def main(effort: Effort = "usual") -> None:
    """Print the rows of `run` as a table."""
    from rich.table import Table

    shown = Table(title=f"All {len(PAIRS)} pairs of {len(NAMES)} attributes of 10 values")
    rows = run(effort)
    for column, value in rows[0].items():
        shown.add_column(column, justify="left" if isinstance(value, str) else "right")
    for row in rows:
        shown.add_row(*(v if isinstance(v, str) else f"{v:.2f}" for v in row.values()))
    show(shown)
