# SPDX-License-Identifier: Apache-2.0
"""All 91 two-way marginals of Adult: sfumato beside bare group-bys in DuckDB.

Every way is run in turn, several times over, in one process; the best time of each is kept. All
may use every core: *seconds* are those that one waits, *CPU s* those of all cores. GROUPING SETS
are run on what sfumato has encoded, so that this way is no whole one.

    python -m bench counting
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import as_file, files
from itertools import combinations
from math import inf
from pathlib import Path

import duckdb

from bench.tell import show
from sfumato.domain.domain import Domain
from sfumato.vault.count import count_marginals
from sfumato.vault.encode import read_records
from sfumato.vault.tables import open_table

SCHEMA = Path(__file__).parent.parent / "examples" / "adult" / "adult.toml"
ROUNDS = 7


@dataclass(frozen=True)
class Row:
    """The best time of one way to count."""

    way: str
    seconds: float
    cpu_seconds: float


def run() -> list[Row]:
    """One row per way of counting; the first is bare."""
    domain = Domain(a for a in Domain.from_toml(SCHEMA) if a.name != "fnlwgt")
    pairs = list(combinations(domain.names, 2))
    with as_file(files("sfumato") / "data" / "adult.parquet") as path:
        ways = _ways(str(path), domain, pairs)
        best = {name: Row(name, inf, inf) for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                start, begun = time.perf_counter(), time.process_time()
                way()
                waited, spent = time.perf_counter() - start, time.process_time() - begun
                old = best[name]
                best[name] = Row(name, min(old.seconds, waited), min(old.cpu_seconds, spent))
    return list(best.values())


def _ways(path: str, domain: Domain, pairs: list[tuple[str, str]]) -> dict[str, Callable[[], None]]:
    memory = duckdb.connect()
    memory.execute(f"CREATE TABLE adult AS SELECT * FROM read_parquet('{path}')")
    held = open_table(path)
    read_records(held, domain, domain.names)

    def group_bys(source: str) -> None:
        for a, b in pairs:
            query = f'SELECT "{a}", "{b}", COUNT(*) FROM {source} GROUP BY 1, 2'
            memory.execute(query).fetchnumpy()

    def from_file() -> None:
        count_marginals(open_table(path), domain, pairs)

    def from_codes() -> None:
        count_marginals(held, domain, pairs)

    def grouping_sets() -> None:
        records = read_records(held, domain, domain.names)
        columns = [records.column(name) for name in domain.names]
        sets = ", ".join(f"({records.column(a)}, {records.column(b)})" for a, b in pairs)
        held.engine.backend.raw_sql(
            f"SELECT GROUPING_ID({', '.join(columns)}), {', '.join(columns)}, COUNT(*) "
            f"FROM {records.name} GROUP BY GROUPING SETS ({sets})"
        ).fetchnumpy()

    return {
        "bare group-bys, Parquet file": lambda: group_bys(f"read_parquet('{path}')"),
        "bare group-bys, table in memory": lambda: group_bys("adult"),
        "sfumato, Parquet file: open, encode, count": from_file,
        "sfumato, counting alone": from_codes,
        "GROUPING SETS on the encoded table": grouping_sets,
    }


def main() -> None:
    """Print the rows of `run` as a table."""
    from rich.table import Table

    shown = Table(title="All 91 two-way marginals of Adult, 48,842 rows")
    shown.add_column("way")
    for head in ("seconds", "ratio", "CPU s", "ratio"):
        shown.add_column(head, justify="right")
    rows = run()
    bare = rows[0]
    for row in rows:
        shown.add_row(
            row.way,
            f"{row.seconds:.3f}",
            f"{row.seconds / bare.seconds:.2f}",
            f"{row.cpu_seconds:.3f}",
            f"{row.cpu_seconds / bare.cpu_seconds:.2f}",
        )
    show(shown)
