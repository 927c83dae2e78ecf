# SPDX-License-Identifier: Apache-2.0
"""``sfumato compare``: every mechanism on the same workload."""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from pathlib import Path

from sfumato.app.comparison import BETA, SHARE, Comparison, Entry
from sfumato.app.comparison import compare as compared
from sfumato.app.crossings import Crossing
from sfumato.app.files import check_folder, filled_folder
from sfumato.app.output import Output
from sfumato.app.show import budget_document, counts, facts, heading, table
from sfumato.app.spec import Spec, read_spec

__all__ = [
    "compare",
]


Cells = tuple[list[str], list[list[str]]]

_FORECASTS = (
    f"'drawn': the rmse of noise that was drawn and reconstructed; 'all within' bounds all errors "
    f"at once, with {1 - BETA:.0%}"
)
_PROJECTION = "of Gaussian answers onto what records can answer: rmse, for any data"
_BOUNDS = f"on all errors at once, with probability {1 - BETA:.0%}"


def compare(path: Path, out: Path | None, rows: int | None, output: Output) -> None:
    """Show forecasts and bounds side by side, and draw them.

    Privacy: a function of the spec and of the given number of rows; the table is not opened.
    """
    spec = read_spec(path)
    if out is not None:
        check_folder(out)
    with output.bars() as bars:
        found = compared(spec, rows, bars.phase("planning"))
    written = [] if out is None else _write(found, out)
    output.result(
        _document(found, written),
        heading(f"Mechanisms for {path}", "no data touched, nothing spent"),
        facts([("asked", _asked(found))]),
        "",
        heading("Forecasts", _unit(found)),
        table(*_forecasts(found)),
        *_agreement(found),
        *_least(found),
        *_not_fitting(found),
        *_changes(found),
        *_adaptive(spec),
        *(() if found.tried is None else ("", heading("Tried", _records(found)))),
        *(() if found.tried is None else (table(*_tried(found)),)),
        "",
        heading("Known bounds", _BOUNDS),
        table(*_bounds(found)),
        *(f" {b.name}: {b.note}" for b in found.bounds if b.note),
        *((heading("Projection", _PROJECTION),) if found.scaling else ()),
        *_projection(found),
        *(f"Written: {file}" for file in written),
    )


def _asked(found: Comparison) -> str:
    rest = f", {found.rows:,} records" if found.rows is not None else ""
    return f"{found.queries:,} queries, {found.budget.describe()}{rest}"


def _unit(found: Comparison) -> str:
    unit = "in counts"
    if not found.has_one_unit:
        unit = "rmse in counts, by the weights of the groups; the rest in the unit of each query"
    return f"{unit}; {_FORECASTS}"


def _forecasts(found: Comparison) -> Cells:
    least = min((e.rmse for e in found.entries if e.rmse is not None), default=None)
    columns = ["mechanism", "rmse", "drawn", "largest", "all within"]
    columns += [] if found.rows is None else ["of records"]
    rows = []
    for e in found.entries:
        if e.rmse is not None:
            share = [] if found.rows is None else [_share(e.bound, found.rows)]
            note = "least error" if e.rmse == least else ""
            numbers = [counts(e.rmse), _drawn(e), counts(e.largest), counts(e.bound)]
            rows.append([e.mechanism, *numbers, *share, note])
    return [*columns, "note"], rows


def _drawn(entry: Entry) -> str:
    if entry.simulated is None:
        return "-"
    return counts(entry.simulated)


def _agreement(found: Comparison) -> list[str]:
    """How far drawn errors are from their forecasts, at most."""
    apart = [
        abs(e.simulated - e.rmse) / e.simulated_error
        for e in found.entries
        if e.rmse is not None and e.simulated is not None and e.simulated_error
    ]
    if not apart:
        return []
    return [f" drawn and forecast differ by {max(apart):.1f} standard errors of 'drawn' at most"]


def _changes(found: Comparison) -> list[str]:
    """Where the mechanism of least error changes, along epsilon."""
    if found.budget.epsilon is None:
        return []
    if not found.crossings:
        low, high = float(found.budget.epsilon) / 10, float(found.budget.epsilon) * 10
        return [f" the same mechanism is best from epsilon = {low:g} to {high:g}"]
    return [
        f" from epsilon = {c.at:.3g} on {c.after} errs less than {c.before}"
        for c in found.crossings
    ]


def _tried(found: Comparison) -> Cells:
    """Ways whose error depends on the records, on made-up ones."""
    assert found.tried is not None  # noqa: S101  seen to by the caller
    rows = [
        [o.name, "-", "-", o.note]
        if o.rmse is None
        else [o.name, f"{counts(o.rmse)} +- {o.standard_error:.2g}", counts(o.largest), o.note]
        for o in found.tried.options
    ]
    return ["way", "rmse", "largest", "note"], rows


def _records(found: Comparison) -> str:
    assert found.tried is not None  # noqa: S101  seen to by the caller
    unit = "" if found.has_one_unit else ", errors by the weights of the groups"
    return (
        f"on {found.tried.records:,} made-up records, {found.tried.runs} runs{unit}; the best, or "
        "the usual way if it is within chance of it, comes first"
    )


def _least(found: Comparison) -> list[str]:
    if found.least is None:
        return []
    return [f" least possible with Gaussian noise: rmse {counts(found.least)} (certified)"]


def _not_fitting(found: Comparison) -> list[str]:
    """One line per reason, with the mechanisms that it rules out."""
    reasons: dict[str, list[str]] = {}
    for e in found.entries:
        if e.rmse is None:
            reasons.setdefault(e.note, []).append(e.mechanism)
    return [f" not fitting: {', '.join(names)} ({why})" for why, names in reasons.items()]


def _adaptive(spec: Spec) -> list[str]:
    if spec.adaptive is None:
        return []
    return [f" adaptive-{spec.adaptive} is not shown: its error depends on the data"]


def _bounds(found: Comparison) -> Cells:
    columns = ["mechanism", "counts"]
    columns += [] if found.rows is None else ["share of records"]
    rows = []
    for b in found.bounds:
        share = [] if found.rows is None else [_share(b.counts, found.rows)]
        needed = "-" if b.rows_needed is None else f"{b.rows_needed:,}"
        rows.append([b.name, counts(b.counts), *share, needed])
    return [*columns, f"records for {SHARE:.0%}"], rows


def _projection(found: Comparison) -> list[str]:
    """What theory says of projecting Gaussian answers, in words."""
    known = found.scaling
    if known is None:
        return []
    lines = [
        f" with {known.records:,} records at most {counts(known.projected)} counts, without "
        f"projection {counts(known.noise)}; the hull of answers has Gaussian width "
        f"{known.width:.3g}",
        f" the width decides below {counts(known.crossover)} records; an error of {SHARE:.0%} of "
        f"the records needs {known.rows_needed:,} of them",
        _weights(known.weights_crossover),
        *_records_changes(known.crossings),
    ]
    return [*lines, f" {known.note}"] if known.note else lines


def _records_changes(changes: tuple[Crossing, ...]) -> list[str]:
    return [
        f" from {counts(c.at)} records on {c.after} is below {c.before}, by theory" for c in changes
    ]


def _weights(crossover: float | None) -> str:
    if crossover is None:
        return " private multiplicative weights promise less for no number of records"
    return f" private multiplicative weights promise less from {counts(crossover)} records on"


def _share(bound: float | None, rows: int) -> str:
    if bound is None:
        return "-"
    share = bound / rows
    return "above 1" if share > 1 else f"{share:.3g}"


def _write(found: Comparison, out: Path) -> list[str]:
    """One PNG per chart, and one page with everything, which needs no network."""
    from sfumato.app.charts import charts_of
    from sfumato.release.charts import write_chart
    from sfumato.release.report import page

    charts = charts_of(found)
    title = f"Mechanisms for {found.queries:,} queries"
    body = (
        f"<h1>{escape(title)}</h1><p>{escape(_asked(found))}</p>"
        f"<h2>Forecasts</h2><p>{escape(_unit(found))}</p>{_html(*_forecasts(found))}"
        + "".join(
            f"<p>{escape(line.strip())}</p>"
            for line in [*_agreement(found), *_least(found), *_not_fitting(found), *_changes(found)]
        )
        + "".join(f'<div class="chart" data-chart="{i}"></div>' for i in range(len(charts)))
        + (
            ""
            if found.tried is None
            else f"<h2>Tried</h2><p>{escape(_records(found))}</p>{_html(*_tried(found))}"
        )
        + (f"<h2>Projection</h2><p>{escape(_PROJECTION)}</p>" if found.scaling else "")
        + "".join(f"<p>{escape(line.strip())}</p>" for line in _projection(found))
        + f"<h2>Known bounds</h2><p>{escape(_BOUNDS)}</p>{_html(*_bounds(found))}"
    )
    html = page(title, body, [chart.to_dict() for chart in charts.values()])
    with filled_folder(out) as folder:
        for name, chart in charts.items():
            write_chart(chart, folder / f"{name}.png")
        (folder / "compare.html").write_text(html, encoding="utf-8")
    return [str(out / name) for name in (*(f"{n}.png" for n in charts), "compare.html")]


def _html(columns: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>" for row in rows)
    inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table>{inside}</table></div>'


def _document(found: Comparison, written: list[str]) -> dict[str, object]:
    return {
        "queries": found.queries,
        "budget": budget_document(found.budget),
        "rows": found.rows,
        "least": found.least,
        "beta": BETA,
        "share": SHARE,
        "mechanisms": [asdict(e) for e in found.entries],
        "bounds": [asdict(b) for b in found.bounds],
        "over_epsilon": [asdict(p) for p in found.over_epsilon],
        "over_rows": [asdict(p) for p in found.over_rows],
        "simulated_over_epsilon": [asdict(p) for p in found.simulated_over_epsilon],
        "crossings": [asdict(c) for c in found.crossings],
        "tried": None if found.tried is None else found.tried.as_json(),
        "scaling": None if found.scaling is None else asdict(found.scaling),
        "files": written,
    }
