# SPDX-License-Identifier: Apache-2.0
"""``sfumato compare``: every mechanism on one workload, as tables, charts or JSON.

The numbers are those of ``comparison``, the charts those of ``compare_charts``; here is the
command, and how a comparison looks in a terminal and on a page. It touches no data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from sfumato.cli.comparison import (
    BETA,
    SHARE,
    Comparison,
    MechanismErrors,
    Scaling,
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
    from rich.console import RenderableType

    from sfumato.run.advice import Recommendation

__all__ = ["app", "compare"]

app = command_app()


@app.command(
    epilog=examples(
        "sfumato compare release.toml", "sfumato compare release.toml --rows 48842 --out compare"
    ),
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
        "Known bounds",
        f"on all errors at once, with probability {1 - BETA:.0%}",
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
    columns = ["mechanism", "rmse", "drawn", "largest", "all within"]
    columns += [] if records is None else ["of records"]
    rows = []
    for e in fitting:
        numbers = [counts(n) for n in (e.rmse, e.simulated, e.largest, e.bound)]
        share = [] if records is None else [_share(e.bound, records)]
        rows.append([e.mechanism, *numbers, *share, "least error" if e.rmse == minimum else ""])
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
    from sfumato.cli.compare_charts import charts_of
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
