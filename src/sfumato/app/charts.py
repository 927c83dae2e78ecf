# SPDX-License-Identifier: Apache-2.0
"""The charts of ``sfumato compare``: forecasts side by side, and one line per mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sfumato.app.comparison import BETA, Comparison, Point

if TYPE_CHECKING:
    import altair as alt

__all__ = ["charts_of", "error_lines", "forecast_dots"]


def charts_of(found: Comparison) -> dict[str, alt.Chart | alt.LayerChart]:
    """The charts that apply, by the name of their file."""
    out: dict[str, alt.Chart | alt.LayerChart] = {"forecasts": forecast_dots(found)}
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


def forecast_dots(found: Comparison) -> alt.LayerChart:
    """The forecast rmse of every mechanism, least first, beside the least that is possible."""
    import altair as alt

    values = [
        {"m": e.mechanism, "x": e.rmse, "label": f"{e.rmse:,.3g}"}
        for e in sorted(found.entries, key=lambda e: e.rmse or 0.0)
        if e.rmse is not None
    ]
    title = "forecast rmse, in counts"
    base = alt.Chart(alt.InlineData(values=values)).encode(
        alt.X(
            "x:Q", title=title, scale=alt.Scale(type="log", padding=24), axis=alt.Axis(grid=True)
        ),
        alt.Y("m:N", title=None, sort=None, axis=alt.Axis(labelLimit=240, ticks=False)),
        tooltip=[alt.Tooltip("m:N", title="mechanism"), alt.Tooltip("label:N", title=title)],
    )
    layers = [base.mark_circle(size=90), base.mark_text(align="left", dx=9).encode(text="label:N")]
    subtitle = ""
    if found.least is not None:
        subtitle = f"dashed: no mechanism with Gaussian noise has less than {found.least:,.3g}"
        rule = alt.Chart(alt.InlineData(values=[{"x": found.least}]))
        layers.insert(0, rule.mark_rule(color="#c33", strokeDash=[4, 3]).encode(alt.X("x:Q")))
    heading = alt.Title(f"Forecast error of {found.queries:,} queries", subtitle=subtitle)
    return alt.layer(*layers).properties(width=560, height=22 * len(values) + 20, title=heading)


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
