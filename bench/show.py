# SPDX-License-Identifier: Apache-2.0
"""Rows of the factorization benchmark for people: a table, a csv file and a picture."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.cases import KINDS
from bench.tell import show

if TYPE_CHECKING:
    import altair as alt

    from bench.factorization import Row
    from bench.million import Large

__all__ = ["large", "picture", "table", "written"]

OURS, PEER, BOUND = "#2f7fa3", "#d1603d", "#777777"
FIELDS = ("kind", "workload", "error", "certificate", "seconds", "peer", "peer_error")
FIELDS += ("error_ratio", "peer_seconds", "is_peer_here", "speed_up", "note")
SHOWN = (0.85, 1.6)  # peers beyond these are drawn at them, bounds are left out


def table(title: str, rows: Sequence[Row]) -> None:
    """Print the rows; a dash where there is no figure. Seconds of other machines have no ratio."""
    from rich.table import Table

    if not rows:
        return
    is_live = any(row.is_peer_here for row in rows)
    shown = Table(title=title)
    shown.add_column("workload", no_wrap=True)
    heads = ("error", "certificate", "peer's", "ratio", "CPU s")
    for heading in (*heads, *(("peer's", "speed-up") if is_live else ("peer's, elsewhere",))):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("peer", no_wrap=True)
    for row in rows:
        speed_up = [_number(row.speed_up, ",.1f" if (row.speed_up or 0) >= 10 else ".2f")]
        refused = f"{row.workload} [refused: {row.note}]" if row.error is None else row.workload
        shown.add_row(
            refused.replace("[", r"\["),
            _number(row.error, ".4f"),
            _number(row.certificate, ".5f"),
            _number(row.peer_error, ".4f"),
            _number(row.error_ratio, ".4f"),
            _number(row.seconds, ".3f"),
            _number(row.peer_seconds, ".3f"),
            *(speed_up if is_live else []),
            (row.peer or "-").replace("[", r"\["),
        )
    show(shown)


def large(rows: Sequence[Large]) -> None:
    """Print the runs of a million cells, from the plan to the answers."""
    from rich.table import Table

    shown = Table(title="A million cells: planned, measured, reconstructed")
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
    show(shown)


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
        named = alt.Y("workload:N", sort=None, title=None, axis=alt.Axis(labelLimit=480))
        bare = alt.Y("workload:N", sort=None, title=None, axis=None)
        parts.append(
            alt.hconcat(
                _errors(alt.Chart(frame).encode(named)).properties(width=300, title=title),
                _seconds(alt.Chart(frame).encode(bare)).properties(width=300),
            )
        )
    path = folder / "factorization.png"
    alt.vconcat(*parts).save(str(path), format="png", scale_factor=1.5)
    return path


def _errors(base: alt.Chart) -> alt.LayerChart:
    """Ours is 1; right of it is worse, left of the grey tick is impossible."""
    import altair as alt

    scale = alt.Scale(type="log", domain=list(SHOWN), nice=False)
    axis = alt.Axis(values=[0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5], format=".1f")
    title = "error over ours: ours (blue), peer (orange), lower bound (grey)"
    ours = base.mark_tick(color=OURS, thickness=3).encode(
        alt.X("one:Q", scale=scale, title=title, axis=axis)
    )
    bound = base.mark_tick(color=BOUND, thickness=2).encode(alt.X("bound:Q", scale=scale))
    peer = base.mark_circle(color=PEER, size=45, opacity=1).encode(alt.X("peer:Q", scale=scale))
    return ours + bound + peer


def _seconds(base: alt.Chart) -> alt.LayerChart:
    import altair as alt

    scale = alt.Scale(type="log", domain=[1e-4, 500], nice=False)
    axis = alt.Axis(values=[1e-3, 0.01, 0.1, 1, 10, 100], format="~g")
    title = "CPU seconds: ours (blue), peer elsewhere (orange)"
    ours = alt.X("seconds:Q", scale=scale, title=title, axis=axis)
    peer = alt.X("peer_seconds:Q", scale=scale)
    dots = base.mark_circle(color=OURS, size=45, opacity=1).encode(ours)
    return dots + base.mark_circle(color=PEER, size=45, opacity=1).encode(peer)


def _marks(row: Row) -> dict[str, object]:
    ratio = row.error_ratio
    bound = 0.0 if row.certificate is None else 1 / row.certificate
    return {
        "workload": row.workload,
        "one": 1.0,
        "bound": bound if bound >= SHOWN[0] else None,
        "peer": None if ratio is None else min(SHOWN[1], max(SHOWN[0], 1 / ratio)),
        "seconds": row.seconds,
        "peer_seconds": row.peer_seconds,
    }


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
