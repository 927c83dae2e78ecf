# SPDX-License-Identifier: Apache-2.0
"""The report of a release: one HTML page that people can read, keep and send around.

It says in plain words what was promised and spent, how large the errors are and how to read them,
and shows every group of answers. All texts that come from the schema are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import floor, isfinite, log10
from typing import TYPE_CHECKING

import numpy as np

from sfumato.release.frames import Group, group_frame, key_term, named_groups
from sfumato.release.labels import label_text
from sfumato.release.page import page
from sfumato.release.pictures import chart_of, chosen_groups
from sfumato.release.provenance import (
    constraints_in_words,
    cost_in_words,
    guarantee,
    provenance_json,
)
from sfumato.workload.queries import DENSE_LIMIT
from sfumato.workload.workload import Ratio

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.plan.forecast import Forecast
    from sfumato.release.release import Release

__all__ = [
    "MOST_TABLED",
    "TABLE_ROWS",
    "cell",
    "fact",
    "group_filter",
    "ledger_words",
    "neighbours_in_words",
    "number",
    "record",
    "report_html",
]

TABLE_ROWS = 50
MOST_TABLED = 10**6  # a larger group is in the files only
MOST_PROVENANCE = 60_000  # characters

_NUMBERS = ("sum", "count", "mean", "value", "standard_error", "low", "high")


def neighbours_in_words(neighbours: str, rows: int | None) -> str:
    """What two neighbouring tables differ in, and whether they have one number of records.

    >>> neighbours_in_words("replace-one", None)
    'one row replaced by another; the number of rows counted is protected too'
    """
    if neighbours == "add-remove":
        return "one row more or less; the number of rows is protected too"
    if rows is None:
        return "one row replaced by another; the number of rows counted is protected too"
    return "one row replaced by another; the number of rows is public"


def report_html(release: Release, level: float) -> str:
    """The whole report as one page that needs no network."""
    workload = release.forecast.workload
    groups = named_groups(workload)
    pictured = chosen_groups(workload, [*groups])
    charts: list[dict[str, object]] = []
    sections = []
    for number, (group, name) in enumerate(groups.items()):
        chart = None
        if group in pictured:
            chart = chart_of(release.estimates, group, level, "container")
        if chart is not None:
            charts.append(_spec(chart.to_dict()))
        place = len(charts) - 1 if chart is not None else None
        is_open = place == 0 or len(groups) <= 3
        sections.append(_section(release, group, f"g{number}", name, level, place, is_open))
    before = [_head(release), _facts(release), _reading(release, level), _forecast(release)]
    after = [_limits(), record(release.provenance)]
    parts = [*before, "<h2>Answers</h2>", group_filter(len(groups)), *sections, *after]
    return page("Private answers", "\n".join(parts), charts)


def _spec(chart: dict[str, object]) -> dict[str, object]:
    """Without the default look, which the page gives, and the address of the schema."""
    return {k: v for k, v in chart.items() if k not in ("config", "$schema")}


def _head(release: Release) -> str:
    forecast = release.forecast
    return (
        f"<h1>{forecast.workload.queries:,} private answers</h1>"
        f'<p class="promise">{escape(guarantee(forecast))}</p>'
    )


def _facts(release: Release) -> str:
    forecast = release.forecast
    unit = forecast.unit
    who = "one row is one person"
    if unit is not None:
        who = f"a person is one {unit.column!r}; at most {unit.rows} of their rows are counted"
    facts = [
        ("Budget", forecast.budget.describe(), "what may be spent on this release"),
        ("Spent", cost_in_words(forecast.cost, forecast.budget), ledger_words(release.provenance)),
        ("Neighbours", forecast.neighbours, neighbours_in_words(forecast.neighbours, release.rows)),
        ("Privacy unit", "row" if unit is None else unit.column, who),
        ("Mechanism", forecast.mechanism, f"{forecast.strategy.noise} noise on a public grid"),
        _typical_error(forecast),
    ]
    if forecast.certificate is not None:
        facts.append(
            (
                "Certificate",
                f"{forecast.certificate:.3f}",
                "times the least error that any such mechanism can have",
            )
        )
    known = constraints_in_words(release.provenance)
    if known:
        facts.append(("Constraints", "kept", known))
    if release.rows is not None:
        facts.append(("Records", f"{release.rows:,}", "public under these neighbours"))
    made = str(release.provenance["created"]).replace("T", "\n").replace("+00:00", " UTC")
    facts.append(("Made", made, "with sfumato " + str(release.provenance["sfumato"])))
    return f'<dl class="facts">{"".join(fact(*one) for one in facts)}</dl>'


def _typical_error(forecast: Forecast) -> tuple[str, str, str]:
    if forecast.workload.has_one_weight:
        words = "root mean square over all answers, in counts, before cutting"
        return "Typical error", f"{forecast.rmse:,.4g}", words
    words = "root mean square by the weights of the groups, in counts, before cutting; each below"
    return "Typical error", f"{forecast.weighted_rmse:,.4g}", words


def fact(name: str, value: str, note: str) -> str:
    """One fact of the head of a report."""
    # Hyphens that do not break, so that 1e-9 stays in one piece.
    shown = escape(value).replace(", ", ",\n").replace(" at ", "\nat ").replace("-", "&#8209;")
    return f"<div><dt>{escape(name)}</dt><dd>{shown}<small>{escape(note)}</small></dd></div>"


def ledger_words(provenance: Mapping[str, object]) -> str:
    """Where the debit stands."""
    entry = provenance["ledger"]
    if isinstance(entry, Mapping) and "sequence" in entry:
        return f"debited before noise was drawn: entry {entry['sequence']} of the ledger"
    return "no ledger was used: nothing keeps the sum over releases"


def _reading(release: Release, level: float) -> str:
    bounds = "at least 0" if release.rows is None else f"between 0 and {release.rows:,}"
    cut = (
        f" Counts are then cut to what is possible (whole numbers {bounds}), and so are the "
        "intervals; this only moves them towards the truth."
        if release.estimates.is_projected
        else " Answers are shown as they came out of the noise, so a count may be below zero."
    )
    agreeing = release.estimates.refined
    together = (
        "Answers from different groups carry different noise and need not add up."
        if agreeing is None
        else "All answers agree with each other: they are those of one table "
        f"({agreeing.describe()}). A <i>value</i> uses what all other answers say, its interval "
        "only what was measured for it; where the value would lie outside, the interval is widened "
        "to it. The <i>unbiased</i> answer stands beside both in answers.parquet."
    )
    held = (
        f"Its interval from <i>low</i> to <i>high</i> holds the true number with probability "
        f"{level:.4g}: of a hundred answers, about {100 * (1 - level):.3g} lie outside theirs. The "
        "width depends on the plan only, not on the people in the table."
    )
    repeated = release.estimates.bootstrap
    if repeated is not None:
        held = (
            f"Its interval from <i>low</i> to <i>high</i>, meant to hold the true number with "
            f"probability {level:.4g}, is <b>{repeated.describe()}</b>. Intervals of chosen ranges "
            "and of quantiles are not: they come from the noise."
        )
    return (
        "<h2>How to read the numbers</h2>"
        f"<p>Every answer is the true number plus random noise. {held} The standard error is the "
        f"typical size of the noise.{cut}</p>"
        "<p>Two answers whose intervals overlap may well be equal. "
        f"{together}</p>"
    )


def _forecast(release: Release) -> str:
    forecast = release.forecast
    rows = "".join(
        f'<tr><td class="label"><a href="#g{i}">{escape(g.name)}</a></td><td>{g.queries:,}</td>'
        f"<td>{g.rmse:,.4g}</td><td>{g.largest:,.4g}</td></tr>"
        for i, g in enumerate(forecast.groups)
    )
    return (
        '<h2>Errors by group</h2><div class="wide tall"><table><thead><tr>'
        '<th class="label">group</th><th>answers</th><th>typical error</th><th>largest</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
        '<p class="note">Known before anything was spent; in counts, or in the unit of the '
        "numbers that are summed.</p>"
    )


def group_filter(groups: int) -> str:
    """A field that finds a group, where there are many."""
    if groups <= 12:
        return ""
    return '<input id="find" type="search" placeholder="Find a group" aria-label="Find a group">'


def _section(
    release: Release,
    group: Group,
    anchor: str,
    name: str,
    level: float,
    chart: int | None,
    is_open: bool,
) -> str:
    rows = key_term(release.forecast.workload, group).rows
    if isinstance(group, Ratio):
        about = f"{rows:,} means"
    else:
        about = f"{rows:,} answers, typical error {release.forecast.groups[group].rmse:,.4g}"
    picture = "" if chart is None else f'<div class="chart" data-chart="{chart}"></div>'
    if rows > DENSE_LIMIT:
        table = (
            '<p class="note">Too many answers to be listed. Running totals, whose differences they '
            "are, are in answers.parquet; single ones with their errors: "
            "<code>release.ranges(...)</code>.</p>"
        )
    elif rows > MOST_TABLED:
        table = '<p class="note">Too many answers for a page; they are in answers.parquet.</p>'
    else:
        table = _table(group_frame(release.estimates, group, level))
    return (
        f'<details id="{anchor}" data-name="{escape(name)}"{" open" if is_open else ""}>'
        f"<summary><b>{escape(name)}</b><span>{escape(about)}</span></summary>"
        f'<div class="inside">{picture}{table}</div></details>'
    )


def _table(frame: pd.DataFrame) -> str:
    """The first rows of a frame, numbers to the digits that their error leaves meaningful."""
    shown = frame.head(TABLE_ROWS)
    numbers = [c for c in _NUMBERS if c in frame.columns]
    labels = [c for c in frame.columns if c not in (*numbers, "unbiased")]
    heads = "".join(f'<th class="label">{escape(c)}</th>' for c in labels)
    heads += "".join(f"<th>{c.replace('_', ' ')}</th>" for c in numbers)
    errors = shown["standard_error"].tolist()
    columns = [[cell(label_text(v)) for v in shown[c].tolist()] for c in labels]
    columns += [
        [f"<td>{number(v, e)}</td>" for v, e in zip(shown[c].tolist(), errors, strict=True)]
        for c in numbers
    ]
    rows = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*columns, strict=True))
    rest = len(frame) - len(shown)
    more = f'<p class="note">{rest:,} more rows are in answers.parquet.</p>' if rest else ""
    head = f"<thead><tr>{heads}</tr></thead>"
    return f'<div class="wide tall"><table>{head}<tbody>{rows}</tbody></table></div>{more}'


def cell(text: str) -> str:
    """A cell of a table that holds a label."""
    return f'<td class="label">{escape(text)}</td>'


def number(value: float, error: float) -> str:
    """A number to two digits of its standard error.

    >>> number(1234.5678, 15.0), number(0.12345, 0.01)
    ('1,235', '0.123')
    """
    if not isfinite(value):
        return "&ndash;" if np.isnan(value) else "&infin;" if value > 0 else "&minus;&infin;"
    digits = 1 - floor(log10(error)) if isfinite(error) and error > 0 else 3
    text = f"{value:,.{min(max(digits, 0), 9)}f}"
    return text.replace("-", "&minus;") if float(text.replace(",", "")) else text.lstrip("-")


def _limits() -> str:
    return (
        "<h2>Known limits</h2><ul>"
        "<li>The promise is about people and this release. Other releases about the same people "
        "add to it; a ledger keeps the sum.</li>"
        "<li>Small groups are drowned by the noise, on purpose. Use a level of a hierarchy or "
        "wider bins where relative errors are too large.</li>"
        "<li>Each interval holds for its own answer. Looking for the largest of many answers and "
        "then reading its interval claims too much.</li>"
        "<li>Records that the schema drops are in no answer; values that it clamps are in the end "
        "bins.</li>"
        "<li>A mean divides two noisy numbers: its interval is exact in coverage or wider, its "
        "value is not unbiased.</li></ul>"
    )


def record(provenance: Mapping[str, object]) -> str:
    """The provenance record, folded."""
    text = provenance_json(provenance)
    note = ""
    if len(text) > MOST_PROVENANCE:
        text, note = text[:MOST_PROVENANCE], '<p class="note">Cut; see provenance.json.</p>'
    return (
        "<h2>Provenance</h2><details><summary><b>The whole record</b><span>also in "
        f'provenance.json</span></summary><div class="inside"><pre>{escape(text)}</pre>{note}'
        "</div></details>"
    )
