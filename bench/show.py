# SPDX-License-Identifier: Apache-2.0
"""Rows of the factorization benchmark for people: a table, a csv file and a picture."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.cases import KINDS

if TYPE_CHECKING:
    from bench.factorization import Row
    from bench.million import Large

__all__ = ["large", "picture", "table", "written"]

OURS, PEER, BOUND = "#2f7fa3", "#d1603d", "#777777"
FIELDS = ("kind", "workload", "error", "certificate", "seconds", "peer", "peer_error")
FIELDS += ("error_ratio", "peer_seconds", "speed_up", "note")
WORST = 4.0  # ratios beyond this are drawn at it


def table(title: str, rows: Sequence[Row]) -> None:
    """Print the rows; a dash where there is no figure."""
    from rich.console import Console
    from rich.table import Table

    if not rows:
        return
    shown = Table(title=title, title_justify="left")
    shown.add_column("workload", max_width=60)
    for heading in ("error", "certificate", "peer's", "ratio", "CPU s", "peer's", "speed-up"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("peer", max_width=34)
    for row in rows:
        refused = f"{row.workload} [refused: {row.note}]" if row.error is None else row.workload
        shown.add_row(
            refused.replace("[", r"\["),
            _number(row.error, ".4f"),
            _number(row.certificate, ".5f"),
            _number(row.peer_error, ".4f"),
            _number(row.error_ratio, ".4f"),
            _number(row.seconds, ".3f"),
            _number(row.peer_seconds, ".3f"),
            _number(row.speed_up, ",.1f"),
            row.peer or "-",
        )
    Console(width=170).print(shown)


def large(rows: Sequence[Large]) -> None:
    """Print the runs of a million cells, from the plan to the answers."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(title="A million cells: planned, measured, reconstructed", title_justify="left")
    shown.add_column("workload", no_wrap=True)
    for heading in ("error", "certificate", "plan, CPU s", "measure + reconstruct", "peak MB"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        shown.add_row(
            row.workload if not row.refused else f"{row.workload} (refused: {row.refused})",
            _number(row.error, ".4f"),
            _number(row.certificate, ".5f"),
            _number(row.plan_seconds, ".2f"),
            _number(row.release_seconds, ".2f"),
            _number(row.megabytes, ",.0f"),
        )
    Console(width=170).print(shown)


def written(rows: Sequence[Row], folder: Path) -> Path:
    """All rows as ``factorization.csv``."""
    path = folder / "factorization.csv"
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(FIELDS)
        out.writerows([getattr(row, f) for f in FIELDS] for row in rows)
    return path


def picture(rows: Sequence[Row], folder: Path) -> Path:
    """The peer's error over ours beside the certified bound, and CPU seconds, per workload."""
    import altair as alt
    import pandas as pd

    parts = []
    for kind, title in KINDS.items():
        found = [r for r in rows if r.kind == kind and r.error is not None]
        if not found:
            continue
        frame = pd.DataFrame([_marks(r) for r in found])
        y = alt.Y("workload:N", sort=None, title=None, axis=alt.Axis(labelLimit=420))
        base = alt.Chart(frame).encode(y)
        parts.append(
            alt.hconcat(
                _errors(base).properties(width=300, title=title),
                _seconds(base).properties(width=300),
            ).resolve_scale(y="shared")
        )
    path = folder / "factorization.png"
    alt.vconcat(*parts).save(str(path), format="png", scale_factor=1.5)
    return path


def _errors(base):  # type: ignore[no-untyped-def]
    """Ours is 1; right of it is worse, left of the tick is impossible."""
    import altair as alt

    scale = alt.Scale(type="log", domain=[0.8, WORST], nice=False)
    axis = alt.Axis(values=[0.8, 1, 1.2, 1.5, 2, 3, 4])
    title = "error over ours: peer (dot), lower bound (tick)"
    line = base.mark_rule(color=OURS).encode(alt.X("one:Q", scale=scale, title=title, axis=axis))
    bound = base.mark_tick(color=BOUND, thickness=2).encode(alt.X("bound:Q", scale=scale))
    peer = base.mark_circle(color=PEER, size=45, opacity=1).encode(alt.X("peer:Q", scale=scale))
    return line + bound + peer


def _seconds(base):  # type: ignore[no-untyped-def]
    import altair as alt

    title = "CPU seconds: ours (blue), peer (orange)"
    x = alt.X("seconds:Q", scale=alt.Scale(type="log"), title=title, axis=alt.Axis(format="~g"))
    ours = base.mark_circle(color=OURS, size=45, opacity=1).encode(x)
    other = x.copy()
    other.shorthand = "peer_seconds:Q"
    return ours + base.mark_circle(color=PEER, size=45, opacity=1).encode(other)


def _marks(row: Row) -> dict[str, object]:
    ratio = row.error_ratio
    return {
        "workload": row.workload,
        "one": 1.0,
        "bound": None if row.certificate is None else max(0.8, 1 / row.certificate),
        "peer": None if ratio is None else min(WORST, max(0.8, 1 / ratio)),
        "seconds": row.seconds,
        "peer_seconds": row.peer_seconds,
    }


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
