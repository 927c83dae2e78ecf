# SPDX-License-Identifier: Apache-2.0
"""One measurement of `bench.scale` in a process of its own, so that its peak memory is known.

    python -m bench.scale_ways count "group-bys" people.parquet 12
    python -m bench.scale_ways engine "grouping sets" spark people.parquet
    python -m bench.scale_ways engine sfumato postgres postgresql://host/database::people
    python -m bench.scale_ways release 1000000 folder

Prints one line of JSON: wall seconds, CPU seconds of all threads and of the server, and the peak in
MB, imports and the processes of the server included.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from itertools import combinations
from pathlib import Path

import duckdb

from bench.people import DOMAIN, PAIRS, bare_columns
from bench.servers import Server, connected, peak_kilobytes, spark_of, timed
from sfumato.domain.attributes import Integer
from sfumato.domain.domain import Domain
from sfumato.vault.count import count_marginals
from sfumato.vault.duckdb import DuckDB
from sfumato.vault.encode import read_records
from sfumato.vault.tables import open_table
from sfumato.workload.workload import scanned_tables

__all__ = ["BARE", "SHAPES", "main"]

BARE = ("group-bys", "group-bys of a table", "grouping sets", "union")
SHAPES = {
    10**3: (10, 10, 10),
    10**4: (100, 10, 10),
    10**5: (100, 100, 10),
    10**6: (100, 100, 100),
    10**7: (100, 100, 100, 10),
    10**8: (100, 100, 100, 100),
}
RECORDS = 200_000


def main() -> None:
    """What the command line asks for."""
    what, *given = sys.argv[1:]
    if what == "count":
        way, path, attributes = given
        found: dict[str, float | object] = _count(way, path, int(attributes))
    elif what == "engine":
        found = _engine(*given)
    else:
        found = _release(int(given[0]), Path(given[1]))
    peak = peak_kilobytes(os.getpid()) / 1024
    print(json.dumps({"megabytes": peak, **found}))


def _count(way: str, path: str, attributes: int) -> dict[str, object]:
    """All pairs of the columns of people, or of so many columns x0, x1, ... of ten values."""
    is_people = attributes == len(DOMAIN)
    domain = DOMAIN if is_people else Domain(Integer(f"x{i}", 0, 9) for i in range(attributes))
    columns = bare_columns() if is_people else {name: name for name in domain.names}
    pairs = list(combinations(domain.names, 2))
    ways = {
        "sfumato": partial(_sfumato, path, domain, pairs),
        **{name: partial(_bare, name, path, columns, pairs) for name in BARE},
    }
    DuckDB.start().close()  # imports are no part of counting
    with timed() as spent:
        ways[way]()
    return vars(spent)


def _sfumato(path: str, domain: Domain, pairs: list[tuple[str, str]]) -> None:
    count_marginals(open_table(path), domain, pairs)


def _engine(way: str, name: str, source: str) -> dict[str, object]:
    """All pairs of people on a server: by sfumato, in two steps that are told apart, or bare."""
    if name == "duckdb":
        DuckDB.start().close()  # imports are no part of counting
        return dict(_both_steps(source, None))
    with connected(source) if name == "postgres" else spark_of(Path(source)) as server:
        if way == "sfumato":
            found = _both_steps(server.source, server)
        else:
            with timed(server) as spent:
                server.answer(_grouping_sets(server.table, bare_columns(), PAIRS))
            found = vars(spent)
        here = peak_kilobytes(os.getpid()) / 1024
        return {**found, "megabytes": here + server.megabytes}


def _both_steps(source: str, server: Server | None) -> dict[str, float]:
    """Reading and encoding, then counting; Spark reads when it is first asked."""
    with timed(server) as reading:
        table = open_table(source)
        records = read_records(table, DOMAIN, DOMAIN.names)
        table.engine.fetch(f"SELECT COUNT(*) AS n FROM {records.name}", ["n"])
    with timed(server) as counting:
        count_marginals(table, DOMAIN, PAIRS)
    return {
        "encode": reading.cpu,
        "count": counting.cpu,
        "tables": len(scanned_tables(PAIRS, DOMAIN, table.engine.cells_together)),
        "cpu": reading.cpu + counting.cpu,
        "seconds": reading.seconds + counting.seconds,
    }


def _grouping_sets(source: str, columns: dict[str, str], pairs: list[tuple[str, str]]) -> str:
    made = ", ".join(f"{value} AS {column}" for column, value in columns.items())
    listed, sets = ", ".join(columns), ", ".join(f"({a}, {b})" for a, b in pairs)
    return (
        f"SELECT {listed}, COUNT(*) AS n FROM (SELECT {made} FROM {source}) AS made "
        f"GROUP BY GROUPING SETS ({sets})"
    )


def _bare(name: str, path: str, columns: dict[str, str], pairs: list[tuple[str, str]]) -> None:
    """What somebody writes in DuckDB; texts of a table in memory become an ENUM each."""
    engine = duckdb.connect(config={"preserve_insertion_order": "false"})
    engine.execute("SET enable_progress_bar = false")
    source = f"read_parquet('{path}')"
    if name == "group-bys of a table":
        types = dict(
            engine.execute(
                f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {source})"
            ).fetchall()
        )
        for column in (c for c in columns if types[c] == "VARCHAR"):
            engine.execute(
                f"CREATE TYPE {column}_values AS ENUM (SELECT DISTINCT {column} FROM {source})"
            )
            columns = columns | {column: f"{column}::{column}_values"}
        made = ", ".join(f"{value} AS {column}" for column, value in columns.items())
        engine.execute(f"CREATE TEMP TABLE held AS SELECT {made} FROM {source}")
        source, columns = "held", {column: column for column in columns}
    if name.startswith("group-bys"):
        for a, b in pairs:
            engine.execute(
                f"SELECT {columns[a]}, {columns[b]}, COUNT(*) FROM {source} GROUP BY 1, 2"
            ).fetchnumpy()
    elif name == "grouping sets":
        engine.execute(_grouping_sets(source, columns, pairs)).fetchnumpy()
    else:
        engine.execute(
            " UNION ALL ".join(
                f"SELECT {i}, ({columns[a]})::VARCHAR, ({columns[b]})::VARCHAR, COUNT(*) "
                f"FROM {source} GROUP BY 2, 3"
                for i, (a, b) in enumerate(pairs)
            )
        ).fetchnumpy()


def _release(cells: int, folder: Path) -> dict[str, object]:
    """One table of so many cells, from the plan to the file, step by step."""
    import numpy as np
    import pandas as pd

    import sfumato as sf
    from sfumato.measurement import Measured
    from sfumato.release.release import Release
    from sfumato.vault.mechanisms.measure import count, measure

    domain = Domain({f"x{i}": size for i, size in enumerate(SHAPES[cells])})
    draw = np.random.default_rng(0)
    rows = pd.DataFrame({a.name: draw.integers(0, a.size, RECORDS) for a in domain})
    asked = sf.marginals(domain, len(domain))
    plan = sf.plan(asked, sf.Budget(epsilon=1, delta=1e-9), mechanism="gaussian")
    blocks, steps = plan.strategy.blocks, {}
    DuckDB.start().close()  # imports are no part of counting
    with timed() as steps["count"]:
        exact = count(open_table(rows), domain, blocks, plan.neighbours)
    with timed() as steps["measure"]:
        stored = measure(exact, blocks, plan.noise).to_bytes()
    del exact
    with timed() as steps["reconstruct"]:
        measured = Measured.from_bytes(stored, plan.noise)
        del stored
        result = Release.of(plan.forecast, measured, project="bounds")
    with timed() as steps["write"]:
        result.to_parquet(folder / "answers.parquet")
    stated = plan.resources(records=RECORDS)
    expected = {s.name: s.seconds_for(RECORDS) for s in stated.steps if s.name in steps}
    return {
        "cpu": {k: v.cpu for k, v in steps.items()},
        "expected": expected,
        "stated": stated.memory / 2**20,
    }


if __name__ == "__main__":
    main()
