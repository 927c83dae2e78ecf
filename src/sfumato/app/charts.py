# SPDX-License-Identifier: Apache-2.0
"""The charts of ``sfumato compare``: forecasts side by side, and one line per mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sfumato.app.comparison import BETA, Comparison, Point

if TYPE_CHECKING:
    import altair as alt

    from sfumato.app.scaling import Mark, Scaling

__all__ = ["charts_of", "error_lines", "forecast_dots", "scaling_lines"]

# The order and the colours of the mechanisms that are set against n and k.
COLOURS = {
    "gaussian": "#8a8a8a",
    "factorization": "#2f7fa3",
    "projection": "#e3a23b",
    "factorization, projected": "#d1603d",
    "multiplicative weights": "#6b4fa0",
}
FAINT = "#eeeeee"
BOUNDS = ("projection", "factorization, projected", "multiplicative weights")


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
    if found.scaling is not None:
        out |= _scaling_charts(found.scaling, found.queries)
    return out


def _scaling_charts(found: Scaling, queries: int) -> dict[str, alt.Chart | alt.LayerChart]:
    notes = ["lines: theory (dashed: bounds for any data; multiplicative weights: on all queries)"]
    tried = "points: measured on made-up data"
    up = "root mean square error, as a share of the records"
    out: dict[str, alt.Chart | alt.LayerChart] = {}
    for name, marks, across, title, marked in (
        (
            "error-against-n",
            found.over_rows,
            "records n",
            f"Error of {queries:,} queries against the number of records",
            float(found.records),
        ),
        (
            "error-against-k",
            found.over_queries,
            "queries k",
            f"Error on {found.records:,} records against the number of queries",
            None,
        ),
    ):
        if marks:
            has_points = any(m.is_measured for m in marks)
            subtitle = [*notes, tried] if has_points else notes
            if marked is not None:
                subtitle = [*subtitle, f"dotted: {found.records:,} records"]
            out[name] = scaling_lines(marks, across, up, title, subtitle, marked)
    return out


def scaling_lines(
    marks: Sequence[Mark],
    across: str,
    up: str,
    title: str,
    subtitle: list[str],
    marked: float | None,
) -> alt.LayerChart:
    """Theory as lines and measurements as points of the same colour, both axes logarithmic."""
    import altair as alt

    values = [
        {"m": m.mechanism, "x": m.at, "y": m.error, "t": "measured" if m.is_measured else "theory"}
        for m in marks
    ]
    x, y = _axes(marks, across, up)
    names = [k for k in COLOURS if any(m.mechanism == k for m in marks)]
    colour = alt.Color(
        "m:N",
        title=None,
        scale=alt.Scale(domain=names, range=[COLOURS[k] for k in names]),
        legend=alt.Legend(labelLimit=300, symbolType="stroke", symbolStrokeWidth=3),
    )
    tips = [
        alt.Tooltip("m:N", title="mechanism"),
        alt.Tooltip("t:N", title="what"),
        alt.Tooltip("x:Q", title=across, format=",.3~r"),
        alt.Tooltip("y:Q", title="error", format=",.3~r"),
    ]
    dash = alt.condition(
        alt.FieldOneOfPredicate(field="m", oneOf=list(BOUNDS)), alt.value([6, 3]), alt.value([1, 0])
    )
    base = alt.Chart(alt.InlineData(values=values))
    lines = (
        base.transform_filter("datum.t == 'theory'")
        .mark_line(strokeWidth=2, clip=True)
        .encode(x, y, color=colour, strokeDash=dash, tooltip=tips)
    )
    points = (
        base.transform_filter("datum.t == 'measured'")
        .mark_circle(size=60, opacity=1, stroke="white", strokeWidth=1, clip=True)
        .encode(x, y, color=colour, tooltip=tips)
    )
    layers = [lines, points]
    if marked is not None:
        rule = alt.Chart(alt.InlineData(values=[{"x": marked}]))
        layers.insert(0, rule.mark_rule(color="#888", strokeDash=[2, 2]).encode(alt.X("x:Q")))
    heading = alt.Title(title, subtitle=subtitle)
    return alt.layer(*layers).properties(width=560, height=340, title=heading)


def _axes(marks: Sequence[Mark], across: str, up: str) -> tuple[alt.X, alt.Y]:
    import altair as alt

    # Errors beyond the number of records say nothing more; they would squeeze the rest.
    least = min(m.error for m in marks if m.error > 0)
    greatest = min(2.0, 1.5 * max(m.error for m in marks))
    y = alt.Y(
        "y:Q",
        title=up,
        scale=alt.Scale(type="log", domain=[least / 1.5, greatest], nice=False),
        axis=alt.Axis(tickCount=8, format="~g", gridColor=FAINT),
    )
    x = alt.X(
        "x:Q",
        title=across,
        scale=alt.Scale(type="log", nice=False, padding=8),
        axis=alt.Axis(format="~s", gridColor=FAINT),
    )
    return x, y


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
