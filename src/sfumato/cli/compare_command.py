# SPDX-License-Identifier: Apache-2.0
"""``sfumato compare``: every mechanism on one workload, as tables, charts or JSON.

The numbers are those of ``comparison``; here is the command, and how a comparison looks in a
terminal, on a page and in charts: forecasts side by side, and one line per mechanism. ``charts_of``
returns the Altair charts that apply to a ``Comparison``, by the names of their files. Nothing here
touches data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from html import escape
from math import inf, log
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias, TypedDict

import typer

from sfumato.cli.cli_limits import LIMITS
from sfumato.cli.comparison import (
    BETA,
    BOTH,
    PROJECTION,
    SHARE,
    WAYS,
    WEIGHTS,
    Comparison,
    Crossing,
    Mark,
    MechanismErrors,
    Point,
    Scaling,
    best_of,
    compare_mechanisms,
)
from sfumato.cli.options import Json, Quiet, SpecFile, command_app, examples
from sfumato.cli.output import (
    Output,
    budget_document,
    check_folder,
    counts,
    facts,
    filled_folder,
    heading,
    table,
)

if TYPE_CHECKING:
    import altair as alt
    from rich.console import RenderableType

    from sfumato.run.advice import Recommendation

    AnyChart: TypeAlias = alt.LayerChart | alt.VConcatChart

__all__ = ["app", "charts_of", "compare"]

# The colours of the ways that are set against n and k.
COLOURS = dict(zip(WAYS, ("#8a8a8a", "#2f7fa3", "#e3a23b", "#d1603d", "#6b4fa0"), strict=True))
# Of the lines of all mechanisms the best have colours of their own, the others are grey.
PALETTE = ("#2f7fa3", "#d1603d", "#e3a23b", "#6b4fa0", "#3f8f5b", "#b0507a")
OTHERS, PALE = "others", "#c9cdd1"
CHANGE = "#b3261e"
FAINT = "#eeeeee"
WIDTH = 560


class Row(TypedDict):
    """A point of a chart: the name in the legend, its own name, and where it is."""

    m: str
    o: str
    x: float
    y: float


def charts_of(comparison: Comparison) -> dict[str, AnyChart]:
    """The charts that apply, by the name of their file."""
    out: dict[str, AnyChart] = {"forecasts": _forecast_bars(comparison)}
    if comparison.over_epsilon and comparison.budget.epsilon is not None:
        out["error-over-epsilon"] = _over_epsilon(comparison, float(comparison.budget.epsilon))
    if comparison.over_rows and comparison.rows is not None:
        values, colours = _coloured(comparison.over_rows, comparison.rows)
        out["error-over-rows"] = _layers(
            [
                _rule(comparison.rows),
                _lines(
                    values,
                    colours,
                    _x("records"),
                    _y(f"share of the records, with probability {1 - BETA:.0%}"),
                ),
            ],
            f"Bound on the error of all {comparison.queries:,} answers at once",
        )
    scaling = comparison.scaling
    if scaling is not None and scaling.over_rows:
        title = f"Error of {comparison.queries:,} queries against the number of records"
        out["error-against-n"] = _against(scaling, scaling.over_rows, "records n", title)
    if scaling is not None and scaling.over_queries:
        title = f"Error on {scaling.records:,} records against the number of queries"
        out["error-against-k"] = _against(scaling, scaling.over_queries, "queries k", title)
    return out


def _forecast_bars(comparison: Comparison) -> alt.LayerChart:
    """The forecast rmse of every mechanism, least first, beside the least that is possible."""
    import altair as alt

    values = [
        {"m": e.mechanism, "x": e.rmse, "label": counts(e.rmse)}
        for e in sorted(comparison.entries, key=lambda e: e.rmse or 0.0)
        if e.rmse is not None
    ]
    title = "forecast rmse" + ("" if comparison.has_one_unit else " by weight") + ", in counts"
    base = _data(values).encode(
        _x(title, "~g", padding=24),
        alt.Y("m:N", title=None, sort=None, axis=alt.Axis(labelLimit=240, ticks=False)),
        tooltip=[alt.Tooltip("m:N", title="mechanism"), alt.Tooltip("label:N", title=title)],
    )
    layers = [base.mark_circle(size=90), base.mark_text(align="left", dx=9).encode(text="label:N")]
    notes = []
    drawn = [{"m": e.mechanism, "x": e.simulated} for e in comparison.entries if e.simulated]
    if drawn:
        ticks = _data(drawn).mark_tick(thickness=2, size=16, color=CHANGE, opacity=0.8)
        layers.append(ticks.encode(alt.X("x:Q"), alt.Y("m:N", sort=None)))
        notes.append("points: forecasts; red: the same by drawn noise")
    if comparison.least is not None:
        least = counts(comparison.least)
        notes.append(f"dashed: no mechanism with Gaussian noise has less than {least}")
        layers.insert(0, _rule(comparison.least, "#c33", [4, 3]))
    title = f"Forecast error of {comparison.queries:,} queries"
    return _layers(layers, title, notes, height=22 * len(values) + 20)


def _over_epsilon(comparison: Comparison, epsilon: float) -> alt.VConcatChart:
    """Errors against epsilon above; below the same over the least, where lines can be told apart.

    Points are errors of drawn noise; vertical lines are where the best mechanism changes.
    """
    import altair as alt

    budget, points, changes = comparison.budget, comparison.over_epsilon, comparison.crossings
    across = "epsilon" + (f", delta = {float(budget.delta):g}" if budget.delta else "")
    up = "rmse, in counts" if comparison.has_one_unit else "rmse by weight, in counts"
    values, colours = _coloured(points, epsilon)
    legend = {one: name for name in colours for one in name.split(", ")}
    drawn = [
        Row(m=legend[p.mechanism], o=p.mechanism, x=p.at, y=p.error)
        for p in comparison.simulated_over_epsilon
        if p.mechanism in legend
    ]
    minimum: dict[float, float] = {}
    for p in points:
        minimum[p.at] = min(p.error, minimum.get(p.at, p.error))
    ratios = [Row(m=v["m"], o=v["o"], x=v["x"], y=v["y"] / minimum[v["x"]]) for v in values]
    above = [_rule(epsilon), _lines(values, colours, _x("", "~g"), _y(up))]
    if drawn:
        above.append(_points(drawn))
    few = alt.Scale(domain=[1, LIMITS.error_ratio_shown], nice=False)
    y = _y("error over the least", few)
    below = [_rule(epsilon), _lines(ratios, colours, _x(across, "~g"), y), *_change_marks(changes)]
    notes = [f"lines: forecasts; points: drawn noise; dotted: epsilon = {epsilon:g}"]
    if changes:
        notes.append("red: where the mechanism of least error changes")
    title = f"Error of {comparison.queries:,} queries against epsilon"
    return alt.vconcat(
        alt.layer(*above).properties(width=WIDTH, height=260),
        alt.layer(*below).properties(width=WIDTH, height=170),
        spacing=8,
        title=alt.Title(title, subtitle=notes, anchor="start"),
    ).resolve_scale(color="shared", x="shared")


def _against(scaling: Scaling, marks: Sequence[Mark], across: str, title: str) -> alt.LayerChart:
    """Theory as lines and measurements as points of the same colour, both axes logarithmic."""
    import altair as alt

    def rows(is_measured: bool) -> list[Row]:
        return [
            Row(m=m.mechanism, o=m.mechanism, x=m.at, y=m.error)
            for m in marks
            if m.is_measured == is_measured
        ]

    # Errors beyond the number of records say nothing more; they would squeeze the rest.
    minimum = min(m.error for m in marks if m.error > 0)
    domain = [minimum / 1.5, min(2.0, 1.5 * max(m.error for m in marks))]
    scale = alt.Scale(type="log", domain=domain, nice=False)
    y = _y("root mean square error, as a share of the records", scale)
    colours = {way: COLOURS[way] for way in WAYS if any(m.mechanism == way for m in marks)}
    layers = [_lines(rows(False), colours, _x(across), y)]
    notes = ["lines: theory (dashed: bounds for any data; multiplicative weights: on all queries)"]
    if rows(True):
        layers.append(_points(rows(True)))
        notes.append("points: drawn noise" if scaling.note else "points: measured on made-up data")
    if marks is scaling.over_rows:
        layers = [_rule(scaling.records), *layers, *_change_marks(scaling.crossings)]
        notes.append(f"dotted: {scaling.records:,} records")
        if scaling.crossings:
            notes.append("red: where the least line of theory changes")
    return _layers(layers, title, notes)


def _data(values: Sequence[object]) -> alt.Chart:
    import altair as alt

    return alt.Chart(alt.InlineData(values=list(values)))


def _layers(
    layers: Sequence[alt.Chart], title: str, notes: Sequence[str] = (), height: int = 340
) -> alt.LayerChart:
    import altair as alt

    heading = alt.Title(title, subtitle=list(notes), anchor="start")
    return alt.layer(*layers).properties(width=WIDTH, height=height, title=heading)


def _x(title: str, format: str = "~s", padding: int = 8) -> alt.X:
    import altair as alt

    axis = alt.Axis(format=format, gridColor=FAINT, labels=bool(title))
    scale = alt.Scale(type="log", nice=False, padding=padding)
    return alt.X("x:Q", title=title or None, scale=scale, axis=axis)


def _y(title: str, scale: alt.Scale | None = None) -> alt.Y:
    import altair as alt

    axis = alt.Axis(tickCount=7, format="~g", gridColor=FAINT)
    return alt.Y("y:Q", title=title, scale=scale or alt.Scale(type="log"), axis=axis)


def _lines(values: list[Row], colours: dict[str, str], x: alt.X, y: alt.Y) -> alt.Chart:
    """Lines of many mechanisms; those in one colour are told apart by ``o``."""
    import altair as alt

    bounds = alt.FieldOneOfPredicate(field="m", oneOf=[PROJECTION, BOTH, WEIGHTS])
    return (
        _data(values)
        .mark_line(clip=True)
        .encode(
            x,
            y,
            alt.Color(
                "m:N",
                title=None,
                scale=alt.Scale(domain=list(colours), range=list(colours.values())),
                legend=alt.Legend(labelLimit=300, symbolType="stroke", symbolStrokeWidth=3),
            ),
            alt.Detail("o:N"),
            strokeDash=alt.condition(bounds, alt.value([6, 3]), alt.value([1, 0])),
            strokeWidth=alt.condition(f"datum.m == '{OTHERS}'", alt.value(1), alt.value(2.2)),
            tooltip=_tips(),
        )
    )


def _points(values: list[Row]) -> alt.Chart:
    """Points in the colours of the lines that they are drawn on."""
    import altair as alt

    circles = _data(values).mark_circle(
        size=50, opacity=1, stroke="white", strokeWidth=0.9, clip=True
    )
    return circles.encode(alt.X("x:Q"), alt.Y("y:Q"), alt.Color("m:N"), tooltip=_tips())


def _tips() -> list[alt.Tooltip]:
    import altair as alt

    names = {"o:N": "mechanism", "x:Q": "at", "y:Q": "error"}
    numbers = {"format": ",.3~r"}
    return [alt.Tooltip(k, title=v, **(numbers if k != "o:N" else {})) for k, v in names.items()]


def _rule(at: float, colour: str = "#888", dash: Sequence[int] = (2, 2)) -> alt.Chart:
    import altair as alt

    rule = _data([{"x": at}]).mark_rule(color=colour, strokeDash=list(dash))
    return rule.encode(alt.X("x:Q"))


def _change_marks(changes: Sequence[Crossing]) -> list[alt.Chart]:
    """A line and its text at every change of the best mechanism."""
    import altair as alt

    out = []
    for i, c in enumerate(changes):  # one below the other, so that near ones can be read
        base = _data([{"x": c.at, "t": f"{c.after} from {counts(c.at)} on"}]).encode(alt.X("x:Q"))
        out.append(base.mark_rule(color=CHANGE, strokeWidth=1.2))
        text = base.mark_text(align="left", dx=4, dy=4 + 14 * i, baseline="top", color=CHANGE)
        out.append(text.encode(alt.Text("t:N"), alt.YValue(0)))
    return out


def _coloured(points: Sequence[Point], marked: float) -> tuple[list[Row], dict[str, str]]:
    """A colour for each of the best lines at the mark and on the envelope; grey for the others."""
    lines = _merged(points)
    places = sorted({p.at for p in points})
    near = min(places, key=lambda x: abs(log(x / marked)))
    order = sorted(lines, key=lambda name: lines[name].get(near, inf))
    winners = {best_of(lines, x) for x in places}
    first = sorted(order, key=lambda name: name not in winners)[: len(PALETTE)]
    colours = dict(zip((n for n in order if n in first), PALETTE, strict=False))
    values = [
        Row(m=name if name in colours else OTHERS, o=name, x=x, y=error)
        for name in reversed(order)
        for x, error in lines[name].items()
    ]
    return values, colours if len(colours) == len(order) else colours | {OTHERS: PALE}


def _merged(points: Sequence[Point]) -> dict[str, dict[float, float]]:
    """One line per mechanism; mechanisms whose lines coincide share one, under both names."""
    lines: dict[str, dict[float, float]] = {}
    for point in points:
        lines.setdefault(point.mechanism, {})[point.at] = point.error
    shared: dict[tuple[str, ...], list[str]] = {}
    for name, line in lines.items():
        shared.setdefault(tuple(f"{error:.4g}" for error in line.values()), []).append(name)
    return {", ".join(names): lines[names[0]] for names in shared.values()}


app = command_app()


@app.command(
    epilog=examples(
        "sfumato compare release.toml", "sfumato compare release.toml --rows 48842 --out compare"
    )
)
def compare(
    path: SpecFile,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the charts (PNG and HTML) here.")
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Also show errors as shares of N records, with the local model beside.",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare all mechanisms on one workload: forecasts, bounds, charts.

    Touches no data and costs nothing.
    """
    from sfumato.cli.spec import read_spec

    output = Output(json, quiet)
    spec = read_spec(path)
    if out is not None:
        check_folder(out)
    with output.bars() as bars:
        comparison = compare_mechanisms(spec, rows, bars.phase("planning"))
    sections = list(_sections(comparison, spec.adaptive))
    written = [] if out is None else _write(comparison, sections, out)
    output.result(
        _document(comparison, written),
        heading(f"Mechanisms for {path}", "no data touched, nothing spent"),
        facts([("asked", comparison.question)]),
        *(part for section in sections for part in section.shown()),
        *(f"Written: {file}" for file in written),
    )


class _Section(NamedTuple):
    """A table under a heading, and lines below it."""

    title: str
    remark: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    lines: Sequence[str]

    def shown(self) -> Iterator[RenderableType]:
        """For a terminal."""
        if self.columns:
            yield ""
        yield heading(self.title, self.remark)
        if self.columns:
            yield table(self.columns, self.rows)
        yield from (f" {line}" for line in self.lines)

    def html(self) -> str:
        """For a page."""
        text = f"<h2>{escape(self.title)}</h2><p>{escape(self.remark)}</p>"
        if self.columns:
            head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
            cells = ("".join(f"<td>{escape(c)}</td>" for c in row) for row in self.rows)
            body = "".join(f"<tr>{row}</tr>" for row in cells)
            inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
            text += f'<div class="wide"><table>{inside}</table></div>'
        return text + "".join(f"<p>{escape(line)}</p>" for line in self.lines)


def _sections(comparison: Comparison, adaptive: str | None) -> Iterator[_Section]:
    unit = "in counts"
    if not comparison.has_one_unit:
        unit = "rmse in counts, by the weights of the groups; the rest in the unit of each query"
    yield _Section(
        "Forecasts",
        f"{unit}; 'drawn': the rmse of noise that was drawn and reconstructed; 'all within' bounds "
        f"all errors at once, with {1 - BETA:.0%}",
        *_forecasts(comparison),
        [
            *_agreement(comparison.entries),
            *_lower_bound_in_words(comparison.least),
            *_not_fitting(comparison.entries),
            *_changes(comparison),
            *_adaptive(adaptive),
        ],
    )
    if comparison.tried is not None:
        yield _tried_section(comparison.tried, comparison.has_one_unit)
    yield _Section(
        "Without a curator",
        f"a bound on all errors at once, with probability {1 - BETA:.0%}",
        *_bounds(comparison),
        [f"{b.name}: {b.note}" for b in comparison.bounds if b.note],
    )
    if comparison.scaling is not None:
        remark = "of Gaussian answers onto what records can answer: rmse, for any data"
        yield _Section("Projection", remark, (), (), _projection(comparison.scaling))


def _forecasts(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    records = comparison.rows
    fitting = [e for e in comparison.entries if e.rmse is not None]
    minimum = min((e.rmse for e in fitting if e.rmse is not None), default=None)
    columns = ["mechanism", "rmse", "drawn", "largest", "all within", f"records for {SHARE:.0%}"]
    columns += [] if records is None else ["of records"]
    rows = []
    for e in fitting:
        numbers = [counts(n) for n in (e.rmse, e.simulated, e.largest, e.bound)]
        share = [] if records is None else [_share(e.bound, records)]
        note = "least error" if e.rmse == minimum else ""
        rows.append([e.mechanism, *numbers, f"{e.rows_needed or 0:,}", *share, note])
    return [*columns, "note"], rows


def _agreement(entries: Iterable[MechanismErrors]) -> list[str]:
    """How far drawn errors are from their forecasts, at most."""
    apart = [
        abs(e.simulated - e.rmse) / e.simulated_error
        for e in entries
        if e.rmse is not None and e.simulated is not None and e.simulated_error
    ]
    if not apart:
        return []
    return [f"drawn and forecast differ by {max(apart):.1f} standard errors of 'drawn' at most"]


def _lower_bound_in_words(bound: float | None) -> list[str]:
    if bound is None:
        return []
    return [f"least possible with Gaussian noise: rmse {counts(bound)} (certified)"]


def _not_fitting(entries: Iterable[MechanismErrors]) -> list[str]:
    """One line per reason, with the mechanisms that it rules out."""
    reasons: dict[str, list[str]] = {}
    for e in entries:
        if e.rmse is None:
            reasons.setdefault(e.note, []).append(e.mechanism)
    return [f"not fitting: {', '.join(names)} ({why})" for why, names in reasons.items()]


def _changes(comparison: Comparison) -> list[str]:
    """Where the mechanism of least error changes, along epsilon."""
    epsilon = comparison.budget.epsilon
    if epsilon is None:
        return []
    if not comparison.crossings:
        low, high = float(epsilon) / 10, float(epsilon) * 10
        return [f"the same mechanism is best from epsilon = {low:g} to {high:g}"]
    return [
        f"from epsilon = {c.at:.3g} on {c.after} errs less than {c.before}"
        for c in comparison.crossings
    ]


def _adaptive(method: str | None) -> list[str]:
    if method is None:
        return []
    return [f"adaptive-{method} is not shown: its error depends on the data"]


def _tried_section(tried: Recommendation, has_one_unit: bool) -> _Section:
    """Ways whose error depends on the records, on made-up ones."""
    unit = "" if has_one_unit else ", errors by the weights of the groups"
    remark = (
        f"on {tried.records:,} made-up records, {tried.runs} runs{unit}; the best, or the usual "
        "way if it is within chance of it, comes first"
    )
    rows = [
        [o.name, "-", "-", o.note]
        if o.rmse is None
        else [o.name, f"{counts(o.rmse)} +- {o.standard_error:.2g}", counts(o.largest), o.note]
        for o in tried.options
    ]
    return _Section("Tried", remark, ["way", "rmse", "largest", "note"], rows, [])


def _bounds(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    records = comparison.rows
    columns = ["mechanism", "counts", *([] if records is None else ["share of records"])]
    rows = []
    for b in comparison.bounds:
        share = [] if records is None else [_share(b.counts, records)]
        needed = "-" if b.rows_needed is None else f"{b.rows_needed:,}"
        rows.append([b.name, counts(b.counts), *share, needed])
    return [*columns, f"records for {SHARE:.0%}"], rows


def _share(bound: float | None, rows: int) -> str:
    if bound is None:
        return "-"
    share = bound / rows
    return "above 1" if share > 1 else f"{share:.3g}"


def _projection(scaling: Scaling) -> list[str]:
    """What theory says of projecting Gaussian answers, in words."""
    weights = "private multiplicative weights promise less "
    if scaling.weights_crossover is None:
        weights += "for no number of records"
    else:
        weights += f"from {counts(scaling.weights_crossover)} records on"
    return [
        f"with {scaling.records:,} records at most {counts(scaling.projected)} counts, without "
        f"projection {counts(scaling.noise)}; the hull of answers has Gaussian width "
        f"{scaling.width:.3g}",
        f"the width decides below {counts(scaling.crossover)} records; an error of {SHARE:.0%} of "
        f"the records needs {scaling.rows_needed:,} of them",
        weights,
        *(
            f"from {counts(c.at)} records on {c.after} is below {c.before}, by theory"
            for c in scaling.crossings
        ),
        *([scaling.note] if scaling.note else []),
    ]


def _write(comparison: Comparison, sections: Sequence[_Section], out: Path) -> list[str]:
    """One PNG per chart, and one page with everything, which needs no network."""
    from sfumato.release.charts import write_chart
    from sfumato.release.report import page

    charts = charts_of(comparison)
    title = f"Mechanisms for {comparison.queries:,} queries"
    first, *others = (section.html() for section in sections)
    places = (f'<div class="chart" data-chart="{i}"></div>' for i in range(len(charts)))
    top = f"<h1>{escape(title)}</h1><p>{escape(comparison.question)}</p>"
    html = page(
        title, "".join([top, first, *places, *others]), [c.to_dict() for c in charts.values()]
    )
    with filled_folder(out) as folder:
        for name, chart in charts.items():
            write_chart(chart, folder / f"{name}.png")
        (folder / "compare.html").write_text(html, encoding="utf-8")
    return [str(out / name) for name in (*(f"{n}.png" for n in charts), "compare.html")]


def _document(comparison: Comparison, written: list[str]) -> dict[str, object]:
    tried, scaling = comparison.tried, comparison.scaling
    return {
        "queries": comparison.queries,
        "budget": budget_document(comparison.budget),
        "rows": comparison.rows,
        "least": comparison.least,
        "beta": BETA,
        "share": SHARE,
        "mechanisms": [asdict(e) for e in comparison.entries],
        "bounds": [asdict(b) for b in comparison.bounds],
        "over_epsilon": [asdict(p) for p in comparison.over_epsilon],
        "over_rows": [asdict(p) for p in comparison.over_rows],
        "simulated_over_epsilon": [asdict(p) for p in comparison.simulated_over_epsilon],
        "crossings": [asdict(c) for c in comparison.crossings],
        "tried": None if tried is None else tried.as_json(),
        "scaling": None if scaling is None else asdict(scaling),
        "files": written,
    }
