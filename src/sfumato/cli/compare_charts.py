# SPDX-License-Identifier: Apache-2.0
"""The charts of ``sfumato compare``: forecasts side by side, and one line per mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from sfumato.cli.compare_command import BETA, Comparison, Crossing, Point, best_of
from sfumato.cli.output import counts

if TYPE_CHECKING:
    import altair as alt

    from sfumato.cli.compare_command import Mark, Scaling

__all__ = [
    "charts_of",
    "epsilon_panels",
    "error_lines",
    "forecast_dots",
    "scaling_lines",
]


if TYPE_CHECKING:
    AnyChart: TypeAlias = alt.Chart | alt.LayerChart | alt.VConcatChart


# The order and the colours of the mechanisms that are set against n and k.
COLOURS = {
    "gaussian": "#8a8a8a",
    "factorization": "#2f7fa3",
    "projection": "#e3a23b",
    "factorization, projected": "#d1603d",
    "multiplicative weights": "#6b4fa0",
}
FAINT = "#eeeeee"
# Of the lines of all mechanisms the best have colours of their own, the others are grey.
PALETTE = ("#2f7fa3", "#d1603d", "#e3a23b", "#6b4fa0", "#3f8f5b", "#b0507a")
PALE = "#c9cdd1"
CHANGE = "#b3261e"
OTHERS = "others"
WORST_SHOWN = 3.0  # times the least error: beyond, a mechanism is no candidate
BOUNDS = ("projection", "factorization, projected", "multiplicative weights")


class Row(TypedDict):
    """A point of a chart: the name in the legend, its own name, and where it is."""

    m: str
    o: str
    x: float
    y: float


def charts_of(found: Comparison) -> dict[str, AnyChart]:
    """The charts that apply, by the name of their file."""
    out: dict[str, AnyChart] = {"forecasts": forecast_dots(found)}
    if found.over_epsilon and found.budget.epsilon is not None:
        delta = f", delta = {float(found.budget.delta):g}" if found.budget.delta else ""
        out["error-over-epsilon"] = epsilon_panels(
            found.over_epsilon,
            found.simulated_over_epsilon,
            found.crossings,
            f"epsilon{delta}",
            f"Error of {found.queries:,} queries against epsilon",
            float(found.budget.epsilon),
            "rmse, in counts" if found.has_one_unit else "rmse by weight, in counts",
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
    tried = "points: drawn noise" if found.note else "points: measured on made-up data"
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
            changes = found.crossings if marked is not None else ()
            if changes:
                subtitle = [*subtitle, "red: where the least line of theory changes"]
            out[name] = scaling_lines(marks, across, up, title, subtitle, marked, changes)
    return out


def scaling_lines(
    marks: Sequence[Mark],
    across: str,
    up: str,
    title: str,
    subtitle: list[str],
    marked: float | None,
    changes: Sequence[Crossing] = (),
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
    layers += _changes(changes)
    heading = alt.Title(title, subtitle=subtitle, anchor="start")
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
        {"m": e.mechanism, "x": e.rmse, "label": counts(e.rmse)}
        for e in sorted(found.entries, key=lambda e: e.rmse or 0.0)
        if e.rmse is not None
    ]
    title = "forecast rmse" + ("" if found.has_one_unit else " by weight") + ", in counts"
    base = alt.Chart(alt.InlineData(values=values)).encode(
        alt.X(
            "x:Q",
            title=title,
            scale=alt.Scale(type="log", padding=24, nice=False),
            axis=alt.Axis(gridColor=FAINT),
        ),
        alt.Y("m:N", title=None, sort=None, axis=alt.Axis(labelLimit=240, ticks=False)),
        tooltip=[alt.Tooltip("m:N", title="mechanism"), alt.Tooltip("label:N", title=title)],
    )
    layers = [base.mark_circle(size=90), base.mark_text(align="left", dx=9).encode(text="label:N")]
    drawn = [{"m": e.mechanism, "x": e.simulated} for e in found.entries if e.simulated is not None]
    subtitle = []
    if drawn:
        ticks = alt.Chart(alt.InlineData(values=drawn)).mark_tick(
            thickness=2, size=16, color=CHANGE, opacity=0.8
        )
        layers.append(ticks.encode(alt.X("x:Q"), alt.Y("m:N", sort=None)))
        subtitle.append("points: forecasts; red: the same by drawn noise")
    if found.least is not None:
        subtitle.append(
            f"dashed: no mechanism with Gaussian noise has less than {counts(found.least)}"
        )
        rule = alt.Chart(alt.InlineData(values=[{"x": found.least}]))
        layers.insert(0, rule.mark_rule(color="#c33", strokeDash=[4, 3]).encode(alt.X("x:Q")))
    heading = alt.Title(
        f"Forecast error of {found.queries:,} queries", subtitle=subtitle, anchor="start"
    )
    return alt.layer(*layers).properties(width=560, height=22 * len(values) + 20, title=heading)


def error_lines(
    points: Sequence[Point], across: str, up: str, title: str, marked: float
) -> alt.LayerChart:
    """Error against a budget or a number of records, with a mark at the one asked for."""
    import altair as alt

    values, names, colours = _coloured(points, marked)
    lines = _lines(values, names, colours, across, up)
    mark = _rule(marked)
    heading = alt.Title(title, anchor="start")
    return alt.layer(mark, lines).properties(width=560, height=320, title=heading)


def epsilon_panels(
    points: Sequence[Point],
    drawn: Sequence[Point],
    changes: Sequence[Crossing],
    across: str,
    title: str,
    marked: float,
    up: str = "rmse, in counts",
) -> alt.VConcatChart:
    """Errors against epsilon above; below the same over the least, where lines can be told apart.

    Points are errors of drawn noise; vertical lines are where the best mechanism changes.
    """
    import altair as alt

    values, names, colours = _coloured(points, marked)
    of = {one: name for name in names for one in name.split(", ")}
    shown = [
        Row(m=of.get(p.mechanism, OTHERS), o=p.mechanism, x=p.at, y=p.error)
        for p in drawn
        if of.get(p.mechanism, OTHERS) != OTHERS
    ]
    least: dict[float, float] = {}
    for p in points:
        least[p.at] = min(p.error, least.get(p.at, p.error))
    ratios = [Row(m=v["m"], o=v["o"], x=v["x"], y=v["y"] / least[v["x"]]) for v in values]
    upper = _lines(values, names, colours, "", up)
    dots = (
        alt.Chart(alt.InlineData(values=shown))
        .mark_circle(size=46, opacity=1, stroke="white", strokeWidth=0.8)
        .encode(alt.X("x:Q"), alt.Y("y:Q"), alt.Color("m:N"))
    )
    lower = _lines(ratios, names, colours, across, "error over the least", most=WORST_SHOWN)
    top, bottom = [_rule(marked), upper], [_rule(marked), lower]
    if shown:
        top.append(dots)
    bottom += _changes(changes)
    notes = [f"lines: forecasts; points: drawn noise; dotted: epsilon = {marked:g}"]
    if changes:
        notes.append("red: where the mechanism of least error changes")
    return alt.vconcat(
        alt.layer(*top).properties(width=560, height=260),
        alt.layer(*bottom).properties(width=560, height=170),
        spacing=8,
        title=alt.Title(title, subtitle=notes, anchor="start"),
    ).resolve_scale(color="shared", x="shared")


def _changes(changes: Sequence[Crossing]) -> list[alt.Chart]:
    """A line and words at every change of the best mechanism."""
    import altair as alt

    if not changes:
        return []
    labels = [{"x": c.at, "t": f"{c.after} from {counts(c.at)} on"} for c in changes]
    out = []
    for i, label in enumerate(labels):  # one below the other, so that near ones can be read
        base = alt.Chart(alt.InlineData(values=[label])).encode(alt.X("x:Q"))
        out.append(base.mark_rule(color=CHANGE, strokeWidth=1.2))
        words = base.mark_text(align="left", dx=4, dy=4 + 14 * i, baseline="top", color=CHANGE)
        out.append(words.encode(alt.Text("t:N"), alt.YValue(0)))
    return out


def _rule(at: float) -> alt.Chart:
    import altair as alt

    data = alt.Chart(alt.InlineData(values=[{"x": at}]))
    return data.mark_rule(color="#888", strokeDash=[2, 2]).encode(alt.X("x:Q"))


def _lines(
    values: list[Row],
    names: list[str],
    colours: list[str],
    across: str,
    up: str,
    most: float | None = None,
) -> alt.Chart:
    """Lines of many mechanisms; those in one colour are told apart by ``o``."""
    import altair as alt

    tips = [
        alt.Tooltip("o:N", title="mechanism"),
        alt.Tooltip("x:Q", title=across or "epsilon", format=",.3~r"),
        alt.Tooltip("y:Q", title=up, format=",.3~r"),
    ]
    scale = alt.Scale(type="log") if most is None else alt.Scale(domain=[1, most], nice=False)
    return (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(strokeWidth=2, clip=True)
        .encode(
            alt.X(
                "x:Q",
                title=across or None,
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(gridColor=FAINT, format="~g", labels=bool(across)),
            ),
            alt.Y("y:Q", title=up, scale=scale, axis=alt.Axis(tickCount=6, gridColor=FAINT)),
            alt.Color(
                "m:N",
                title=None,
                scale=alt.Scale(domain=names, range=colours),
                legend=alt.Legend(labelLimit=300, symbolType="stroke", symbolStrokeWidth=3),
            ),
            alt.Detail("o:N"),
            strokeWidth=alt.condition(f"datum.m == '{OTHERS}'", alt.value(1), alt.value(2.2)),
            tooltip=tips,
        )
    )


def _coloured(points: Sequence[Point], marked: float) -> tuple[list[Row], list[str], list[str]]:
    """A colour for each of the best lines at the mark and on the envelope; grey for the others."""
    merged = _merged(points)
    places = sorted({p.at for p in points})
    near = min(places, key=lambda x: abs(log(x / marked)))
    at = {name: {p.at: p.error for p in line} for name, line in merged.items()}
    order = sorted(merged, key=lambda name: at[name].get(near, inf))
    winners = {best_of(at, x) for x in places}
    chosen = [n for n in order if n in winners]
    chosen += [n for n in order if n not in winners][: max(0, len(PALETTE) - len(chosen))]
    chosen = sorted(chosen[: len(PALETTE)], key=order.index)
    values: list[Row] = [
        Row(m=name if name in chosen else OTHERS, o=name, x=p.at, y=p.error)
        for name in reversed(order)
        for p in merged[name]
    ]
    is_all = len(chosen) == len(order)
    names = chosen if is_all else [*chosen, OTHERS]
    return values, names, [*PALETTE[: len(chosen)], *([] if is_all else [PALE])]


def _merged(points: Sequence[Point]) -> dict[str, list[Point]]:
    """One line per mechanism; mechanisms whose lines coincide share one, under both names."""
    lines: dict[str, list[Point]] = {}
    for point in points:
        lines.setdefault(point.mechanism, []).append(point)
    shared: dict[tuple[str, ...], list[str]] = {}
    for name, line in lines.items():
        shared.setdefault(tuple(f"{p.error:.4g}" for p in line), []).append(name)
    return {", ".join(names): lines[names[0]] for names in shared.values()}
