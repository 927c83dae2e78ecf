# SPDX-License-Identifier: Apache-2.0
"""How time and memory grow: with records, attributes and cells; beside the bare engine.

    python -m bench scale --quick      a minute
    python -m bench scale              up to 10^7 records and cells
    python -m bench scale --all        10^8 records of 12 columns (1.1 GB of Parquet), 10^8 cells

* Records: all 66 pairs of 12 columns of made-up people (`bench.people`), from a Parquet file, by
  sfumato and in four ways that people write in DuckDB.
* Engines: the same on PostgreSQL and Spark, beside GROUPING SETS there; and on each engine the CPU
  seconds to encode a value and to count a record in one table, beside the rates of `resources`.
* Attributes: all pairs of 5 to 100 columns of ten values, at 10^5 records.
* Cells: one table, measured, stored, reconstructed and written, beside what the plan states.

Every row is a process of its own. Ratios are of CPU seconds of one run, which hardly depend on what
else the machine does. Files go to a temporary folder, or to the one that SFUMATO_BENCH names.
``bench/results`` gets ``scale.json`` and ``scale.png``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.people import DOMAIN, write_people, write_wide
from bench.scale_ways import BARE, SHAPES
from bench.servers import postgres_of
from bench.tell import Effort, show
from sfumato.planning.resources import ENGINES

__all__ = ["main"]

ROWS: dict[Effort, tuple[int, ...]] = {
    "quick": (10**5, 10**6),
    "usual": (10**5, 10**6, 10**7),
    "all": (10**5, 10**6, 10**7, 10**8),
}
ENGINE_ROWS: dict[Effort, tuple[int, ...]] = {
    "quick": (),
    "usual": (10**6,),
    "all": (10**6, 10**7),
}
ATTRIBUTES: dict[Effort, tuple[int, ...]] = {
    "quick": (5, 20),
    "usual": (5, 10, 20, 50, 100),
    "all": (5, 10, 20, 50, 100),
}
MOST_CELLS: dict[Effort, int] = {"quick": 10**6, "usual": 10**7, "all": 10**8}
LONG = 10**7  # records from which the slowest bare ways are left out
WIDE_ROWS = 10**5
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    """One measurement."""

    section: str
    size: int
    way: str
    cpu: float
    seconds: float
    megabytes: float
    stated: float | None = None
    encode: float | None = None  # CPU seconds per value
    count: float | None = None  # CPU seconds per record and table


def main(effort: Effort = "usual") -> None:
    """Run, print, draw."""
    kept = os.environ.get("SFUMATO_BENCH")
    with tempfile.TemporaryDirectory(prefix="sfumato-scale-") as made:
        folder = Path(kept or made)
        rows: list[Row] = []
        RESULTS.mkdir(exist_ok=True)
        for section in (_engines, _records, _cells, _attributes):
            rows += section(folder, effort)
            found = json.dumps([vars(r) for r in rows], indent=1)
            (RESULTS / "scale.json").write_text(found + "\n")  # so that nothing is lost
    _tables(rows)
    print(f"\nPicture: {_picture(rows, RESULTS / 'scale.png')}")


def _records(folder: Path, effort: Effort) -> list[Row]:
    found = []
    for rows in ROWS[effort]:
        path = folder / f"people-{rows}.parquet"
        write_people(rows, path)
        slow = ("grouping sets", "union")
        ways = [w for w in ("sfumato", *BARE) if rows < LONG or w not in slow]
        for way in ways:
            print(f"counting {rows:,} records: {way}", flush=True)
            found.append(_row("records", rows, way, "count", way, str(path), str(len(DOMAIN))))
    return found


def _engines(folder: Path, effort: Effort) -> list[Row]:
    found = []
    for rows in ENGINE_ROWS[effort]:
        path = folder / f"people-{rows}.parquet"
        write_people(rows, path)
        with postgres_of(path) as server:
            sources = {"duckdb": str(path), "postgres": server.source, "spark": str(path)}
            for engine, source in sources.items():
                is_short = engine != "duckdb" and rows < LONG
                for way in ("sfumato", "grouping sets") if is_short else ("sfumato",):
                    print(f"counting {rows:,} records on {engine}: {way}", flush=True)
                    one = _run("engine", way, engine, source)
                    rates = {}
                    if way == "sfumato":
                        rates["encode"] = one["encode"] / rows / len(DOMAIN)
                        rates["count"] = one["count"] / rows / one["tables"]
                    spent = (one["cpu"], one["seconds"], one["megabytes"])
                    found.append(Row("engines", rows, f"{engine}: {way}", *spent, **rates))
    return found


def _attributes(folder: Path, effort: Effort) -> list[Row]:
    found = []
    for count in ATTRIBUTES[effort]:
        path = folder / f"wide-{count}.parquet"
        write_wide(count, WIDE_ROWS, path)
        for way in ("sfumato", "group-bys", "group-bys of a table"):
            print(f"counting all pairs of {count} attributes: {way}", flush=True)
            found.append(_row("attributes", count, way, "count", way, str(path), str(count)))
    return found


def _cells(folder: Path, effort: Effort) -> list[Row]:
    found = []
    for cells in (c for c in SHAPES if c <= MOST_CELLS[effort]):
        print(f"releasing {cells:,} cells", flush=True)
        one = _run("release", str(cells), str(folder))
        peak, stated = float(one["megabytes"]), float(one["stated"])
        for step, cpu in one["cpu"].items():
            found.append(Row("cells", cells, step, cpu, one["expected"][step], peak, stated))
        (folder / "answers.parquet").unlink(missing_ok=True)
    return found


def _row(section: str, size: int, way: str, *asked: str) -> Row:
    one = _run(*asked)
    return Row(section, size, way, one["cpu"], one["seconds"], one["megabytes"])


def _run(*asked: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.scale_ways", *asked],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(asked)} failed:\n{done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _tables(rows: list[Row]) -> None:
    for section, what in (("records", "12 columns"), ("attributes", f"{WIDE_ROWS:,} records")):
        shown = _table(f"All pairs by {section} ({what})", [section, "way"])
        for row in (r for r in rows if r.section == section):
            mine = [r for r in rows if (r.section, r.size) == (section, row.size)]
            best = min(r.cpu for r in mine if r.way != "sfumato")
            shown.add_row(
                f"{row.size:,}",
                row.way,
                f"{row.cpu:.2f}",
                f"{row.seconds:.2f}",
                f"{row.cpu / best:.2f}",
                f"{row.megabytes:,.0f}",
            )
        show(shown)
    _engine_table([r for r in rows if r.section == "engines"])
    shown = _table("One table, released", ["cells", "step"], ["CPU s", "stated s"])
    shown.add_column("peak MB", justify="right")
    shown.add_column("stated MB", justify="right")
    for row in (r for r in rows if r.section == "cells"):
        numbers = (f"{row.cpu:.2f}", f"{row.seconds:.2f}")
        shown.add_row(
            f"{row.size:,}", row.way, *numbers, f"{row.megabytes:,.0f}", f"{row.stated:,.0f}"
        )
    show(shown)


def _engine_table(rows: list[Row]) -> None:
    """Rates in nanoseconds, beside those that plans are made with."""
    numbers = ["CPU s", "wall s", "peak MB", "encode ns", "stated", "count ns", "stated"]
    shown = _table("All pairs of 12 columns by engine", ["records", "engine and way"], numbers)
    for row in rows:
        told = [f"{row.cpu:.2f}", f"{row.seconds:.2f}", f"{row.megabytes:,.0f}"]
        if row.encode is not None and row.count is not None:
            stated = ENGINES[row.way.partition(":")[0]]
            told += [f"{row.encode * 1e9:.0f}", f"{stated.encode * 1e9:.0f}"]
            told += [f"{row.count * 1e9:.0f}", f"{stated.count * 1e9:.0f}"]
        shown.add_row(f"{row.size:,}", row.way, *told)
    if rows:
        show(shown)


def _table(title: str, texts: list[str], numbers: list[str] | None = None):
    from rich.table import Table

    shown = Table(title=title)
    for text in texts:
        shown.add_column(text)
    for number in numbers or ["CPU s", "wall s", "to the best bare one", "peak MB"]:
        shown.add_column(number, justify="right")
    return shown


def _picture(rows: list[Row], path: Path) -> Path:
    """CPU seconds and memory, on logarithmic scales: a straight line grows in proportion."""
    import altair as alt
    import pandas as pd

    frame = pd.DataFrame([vars(r) for r in rows])
    panels = []
    for section in ("records", "attributes", "cells"):
        part = frame[frame["section"] == section]
        memory = part
        if section == "cells":
            peak, stated = part.assign(way="measured"), part.assign(way="stated by the plan")
            memory = pd.concat([peak, stated.assign(megabytes=part["stated"])])
        sizes = sorted(part["size"].unique().tolist())
        marks = alt.Axis(values=sizes, format="d" if section == "attributes" else "~e")
        for column, title, data in (("cpu", "CPU seconds", part), ("megabytes", "peak MB", memory)):
            ways = list(dict.fromkeys(data["way"]))
            panels.append(
                alt.Chart(data, title=f"{title} by {section}", width=280, height=200)
                .mark_line(point=True)
                .encode(
                    x=alt.X("size:Q", scale=alt.Scale(type="log", nice=False), axis=marks).title(
                        section
                    ),
                    y=alt.Y(f"{column}:Q", scale=alt.Scale(type="log"), title=title),
                    color=alt.Color("way:N", title=None, sort=ways),
                )
            )
    pairs = [
        alt.hconcat(*panels[i : i + 2]).resolve_scale(color="independent")
        for i in range(0, len(panels), 2)
    ]
    drawn = alt.vconcat(*pairs).resolve_scale(color="independent")
    drawn.save(str(path), format="png", scale_factor=1.5)
    return path
