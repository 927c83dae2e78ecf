# SPDX-License-Identifier: Apache-2.0
"""Rows of the projection benchmark for people: tables, a csv file and a picture."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bench.tell import show

if TYPE_CHECKING:
    from bench.explicit import Reduction
    from bench.projection import Judged, Solved

__all__ = ["judged_table", "picture", "reductions", "short", "solved_table", "written"]

DRAWN = {  # way, colour; in the order of the legend
    "Gaussian on every cell": "#b8c4cc",
    "optimal strategy": "#7f97a6",
    "optimal, each table on its simplex": "#8cc5e3",
    "optimal, local consistency": "#3d9ac7",
    "adaptive": "#1d5b8c",
    "optimal, prior and rows": "#0b2545",
    "MWEM+PGM": "#f3c98b",
    "Gaussian, mixture of products (mbi)": "#ef8a3c",
    "AIM": "#b83227",
}
FIELDS = (
    "case", "way", "is_ours", "where", "attributes", "epsilon", "ways", "judged", "mean_l1",
    "max_abs", "rmse", "excess", "before", "after", "seconds", "megabytes",
)  # fmt: skip
WIDTH, HEIGHT = 560, 440


def short(way: str) -> str:
    """The name of a peer without its settings."""
    if "MixtureOfProducts" in way or "mixture of products" in way:
        return "Gaussian, mixture of products (mbi)"
    return way.split(" (")[0].removeprefix("private-pgm ")


def solved_table(rows: Sequence[Solved]) -> None:
    """Projections of listed cells; ratios of seconds are to sfumato, of what was run here."""
    from rich.table import Table

    title = "Projection of all 2-way marginals of d yes/no attributes, n = 1,000, epsilon = 1"
    shown = Table(title=title)
    shown.add_column("d", justify="right")
    shown.add_column("way", max_width=52, no_wrap=True)
    heads = ("CPU s", "over ours", "certified gap", "error before", "after", "ratio", "MB", "where")
    for head in heads:
        shown.add_column(head, justify="right", no_wrap=True)
    ours = {r.attributes: r.seconds for r in rows if r.is_ours}
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        ratio = row.after / row.before if row.after is not None and row.before else None
        shown.add_row(
            str(row.attributes),
            row.way.split(" (")[0],
            _number(row.seconds, ".3f"),
            _number(None if row.where == "file" else row.seconds / ours[row.attributes], ",.1f"),
            _number(row.excess, ".1e"),
            _number(row.before, ".4f"),
            _number(row.after, ".4f"),
            _number(ratio, ".3f"),
            _number(row.megabytes, ",.0f"),
            row.where,
            end_section=after is None or after.attributes != row.attributes,
        )
    show(shown)


def reductions(rows: Sequence[Reduction]) -> None:
    """Errors before and after projection, by the number of records."""
    from rich.table import Table

    title = "16 yes/no attributes, 480 queries: root mean squared error per record, epsilon = 1"
    shown = Table(title=title)
    for head in ("records", "Gaussian", "projected", "less by", "optimal", "projected", "less by"):
        shown.add_column(head, justify="right")
    shown.add_column("CPU s", justify="right")
    for row in rows:
        shown.add_row(
            f"{row.records:,}",
            _number(row.gaussian, ".4f"),
            _number(row.gaussian_projected, ".4f"),
            _number(row.gaussian / row.gaussian_projected, ".1f") + "x",
            _number(row.optimal, ".4f"),
            _number(row.optimal_projected, ".4f"),
            _number(row.optimal / row.optimal_projected, ".1f") + "x",
            _number(row.seconds, ".2f"),
        )
    show(shown)


def judged_table(rows: Sequence[Judged], best: Judged | None) -> None:
    """All systems at one epsilon, the most accurate first."""
    from rich.table import Table

    if not rows:
        return
    first = rows[0]
    title = f"Adult, all {first.judged}-way marginals, epsilon = {first.epsilon:g}, delta = 1e-9"
    shown = Table(title=title)
    shown.add_column("way", max_width=60, no_wrap=True)
    heads = ("asked", "mean L1", "over best peer", "max", "rmse", "CPU s", "MB", "where")
    for head in heads:
        shown.add_column(head, justify="right", no_wrap=True)
    for row in sorted(rows, key=lambda r: r.mean_l1):
        name = row.way if row.is_ours else short(row.way)
        shown.add_row(
            f"[bold]{name}[/]" if row.is_ours else name,
            f"{row.ways}-way" if row.ways else "nothing",
            _number(row.mean_l1, ".4g"),
            _number(None if best is None else row.mean_l1 / best.mean_l1, ".2f"),
            _number(row.max_abs, ".2g"),
            _number(row.rmse, ".2g"),
            _number(row.seconds, ".2f"),
            _number(row.megabytes, ",.0f"),
            row.where,
        )
    show(shown)


def written(solved: Sequence[Solved], judged: Sequence[Judged], folder: Path) -> Path:
    """All figures as ``projection.csv``."""
    path = folder / "projection.csv"
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, FIELDS, restval="")
        out.writeheader()
        out.writerows({"case": "listed cells", **asdict(row)} for row in solved)
        out.writerows({"case": "Adult", **asdict(row)} for row in judged)
    return path


def picture(rows: Sequence[Judged], folder: Path) -> Path:
    """Mean L1 distance of two-way tables against epsilon, a line per way: ours, peers dashed."""
    import altair as alt
    import pandas as pd

    listed = list(DRAWN)
    marks = [
        {
            "way": short(r.way),
            "epsilon": r.epsilon,
            "distance": r.mean_l1,
            "by": "sfumato" if r.is_ours else "peer",
        }
        for r in rows
        if r.judged == 2 and short(r.way) in listed and (r.is_ours or r.where == "file")
    ]
    ways = [w for w in listed if w in {m["way"] for m in marks}]
    ours = {m["way"] for m in marks if m["by"] == "sfumato"}
    base = alt.Chart(pd.DataFrame(marks)).encode(
        alt.X(
            "epsilon:Q",
            scale=alt.Scale(type="log", domain=[0.09, 11], nice=False),
            axis=alt.Axis(values=[0.1, 1, 10], format="~g", grid=False),
            title="epsilon (delta = 1e-9)",
        ),
        alt.Y(
            "distance:Q",
            scale=alt.Scale(type="log", domain=[0.015, 16], nice=False),
            axis=alt.Axis(values=[0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10], format="~g"),
            title="mean L1 distance of a table from the truth, as shares",
        ),
        alt.Color(
            "way:N",
            scale=alt.Scale(domain=ways, range=[DRAWN[w] for w in ways]),
            legend=alt.Legend(
                title=["solid: sfumato, this run", "dashed: bench/peers"],
                labelLimit=320,
                symbolType="stroke",
                symbolStrokeWidth=3,
            ),
        ),
    )
    dashes = alt.Scale(domain=ways, range=[[1, 0] if w in ours else [6, 4] for w in ways])
    lines = base.mark_line(strokeWidth=2.2).encode(
        alt.StrokeDash("way:N", scale=dashes, legend=None)
    )
    drawn = lines + base.mark_circle(size=55, opacity=1)
    path = folder / "projection.png"
    title = "All 91 two-way marginals of Adult, 48,842 records, 6.4e17 cells"
    drawn.properties(width=WIDTH, height=HEIGHT, title=title).configure_title(
        anchor="start", fontSize=14
    ).save(str(path), format="png", scale_factor=1.5)
    return path


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
