# SPDX-License-Identifier: Apache-2.0
"""The charts of ``sfumato compare``: one line per mechanism, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sfumato.app.comparison import BETA, Comparison, Point

if TYPE_CHECKING:
    import altair as alt

__all__ = ["charts_of", "error_lines"]


def charts_of(found: Comparison) -> dict[str, alt.Chart | alt.LayerChart]:
    """The charts that apply, by the name of their file."""
    out: dict[str, alt.Chart | alt.LayerChart] = {}
    if found.over_epsilon and found.budget.epsilon is not None:
        delta = f", delta = {float(found.budget.delta):g}" if found.budget.delta else ""
        out["error-over-epsilon"] = error_lines(
            found.over_epsilon,
            f"epsilon{delta}",
            "forecast rmse, in counts",
            f"Forecast error of {found.queries:,} queries",
            float(found.budget.epsilon),
        )
    if found.over_rows and found.rows is not None:
        out["error-over-rows"] = error_lines(
            found.over_rows,
            "records",
            f"share of the records, with probability {1 - BETA:.0%}",
            f"Bound on the error of all {found.queries:,} answers at once",
            found.rows,
        )
    return out


def error_lines(
    points: Sequence[Point], across: str, up: str, title: str, marked: float
) -> alt.LayerChart:
    """Error against a budget or a number of records, with a mark at the one asked for."""
    import altair as alt

    merged = _merged(points)
    names = list(merged)
    values = [{"m": m, "x": p.at, "y": p.error} for m, line in merged.items() for p in line]
    tips = [
        alt.Tooltip("m:N", title="mechanism"),
        alt.Tooltip("x:Q", title=across, format=",.3~r"),
        alt.Tooltip("y:Q", title=up, format=",.3~r"),
    ]
    lines = (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(strokeWidth=2)
        .encode(
            alt.X("x:Q", title=across, scale=alt.Scale(type="log", nice=False)),
            alt.Y("y:Q", title=up, scale=alt.Scale(type="log"), axis=alt.Axis(tickCount=8)),
            color=alt.Color("m:N", title=None, sort=names, legend=alt.Legend(labelLimit=300)),
            tooltip=tips,
        )
    )
    mark = (
        alt.Chart(alt.InlineData(values=[{"x": marked}]))
        .mark_rule(color="#888", strokeDash=[2, 2])
        .encode(alt.X("x:Q"))
    )
    return (mark + lines).properties(width=560, height=320, title=title)


def _merged(points: Sequence[Point]) -> dict[str, list[Point]]:
    """One line per mechanism; mechanisms whose lines coincide share one, under both names."""
    lines: dict[str, list[Point]] = {}
    for point in points:
        lines.setdefault(point.mechanism, []).append(point)
    shared: dict[tuple[str, ...], list[str]] = {}
    for name, line in lines.items():
        shared.setdefault(tuple(f"{p.error:.4g}" for p in line), []).append(name)
    return {", ".join(names): lines[names[0]] for names in shared.values()}
