# SPDX-License-Identifier: Apache-2.0
"""The report of a release: one HTML page that people can read, keep and send around.

It says in plain words what was promised and spent, how large the errors are and how to read them,
and shows the groups of answers; of an adaptive release it says what was measured, in place of the
errors that nobody could forecast. It stays a page that opens at once, whatever the release: charts,
tables and the list of groups each have a share of its bytes, the first rows of a group stand for
the others, and groups without a table are found by their name. All answers are in answers.parquet.
All texts that come from the schema are escaped. The page loads nothing: its content security policy
forbids every connection, so it opens the same from a disk without a network. It follows the
reader's light or dark setting and narrow screens.

`short_frame` and `summary_html` are the same for the columns of a description: a frame with x,
``x_low`` and ``x_high`` beside each other (`sfumato.run.describe`), which here stand in one cell,
``38.6 (38.4 to 38.8)``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from html import escape
from math import floor, isfinite, log10, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sfumato.release.answers import (
    Group,
    group_frame,
    key_term,
    named_groups,
    plural_of,
    share_columns,
)
from sfumato.release.charts import chart_of, chosen_groups
from sfumato.release.labels import DERIVED_NUMBERS, SECOND_MOMENTS, axes_of, label_text
from sfumato.release.linear_estimates import LinearEstimates
from sfumato.release.provenance import (
    constraints_in_words,
    cost_in_words,
    first_numbers_in_words,
    provenance_json,
)
from sfumato.release.release_limits import LIMITS
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.planning.forecast import Forecast
    from sfumato.release.release import Release
    from sfumato.workload.terms import Term

__all__ = [
    "library",
    "neighbours_in_words",
    "number",
    "page",
    "report_html",
    "script_json",
    "sentences",
    "short",
    "short_frame",
    "summary_html",
]


# The frame of a page: style, script and the charting library, all inside one file

# Vega compiles its expressions with `Function`, hence 'unsafe-eval'; nothing can be fetched.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "img-src data: blob:"
)


def page(title: str, body: str, charts: Sequence[dict[str, object]]) -> str:
    """The whole page; ``body`` is HTML whose texts are escaped, ``title`` is plain text."""
    drawing = f"<script>{library()}</script>" if charts else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{_asset('report.css')}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n{drawing}\n"
        f'<script type="application/json" id="charts">{script_json(list(charts))}</script>\n'
        f"<script>{_asset('report.js')}</script>\n</body>\n</html>\n"
    )


def script_json(value: object) -> str:
    """JSON that cannot end the script element it stands in.

    >>> script_json(["</script>"])
    '["\\\\u003c/script>"]'
    """
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


@cache
def _asset(name: str) -> str:
    """A file beside this one, which stands in every page."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


@cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, of the versions that Altair writes for."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    # The default snippet, which makes vegaEmbed global, is the one wanted.
    bundle = str(vl_convert.javascript_bundle(vl_version=version))  # type: ignore[call-arg]
    return bundle.replace("</script", "<\\/script")


_NUMBERS = (*DERIVED_NUMBERS, "value", "standard_error", "low", "high")
_SHARED = ("value", "low", "high")  # numbers whose shares are shown beside them


def neighbours_in_words(neighbours: str, rows: int | None, of_whom: str = "one row") -> str:
    """What two neighbouring tables differ in, and whether they have one number of records.

    >>> neighbours_in_words("replace-one", None)
    'one row replaced by another; the number of rows counted is protected too'
    >>> neighbours_in_words("add-remove", None, "all rows of one person")
    'all rows of one person more or less; the number of rows is protected too'
    """
    if neighbours == "add-remove":
        return f"{of_whom} more or less; the number of rows is protected too"
    other = "another" if of_whom == "one row" else "others"
    if rows is None:
        return f"{of_whom} replaced by {other}; the number of rows counted is protected too"
    return f"{of_whom} replaced by {other}; the number of rows is public"


def report_html(release: Release, level: float, records: int | None = None, lead: str = "") -> str:
    """The whole report as one page of at most `LIMITS.page_bytes` bytes that needs no network.

    ``records`` is the public number of records of which shares stand beside the numbers; ``lead``
    is HTML that comes before the answers, such as a summary of them.
    """
    workload = release.workload
    groups = named_groups(workload)
    charts = _charts(release, chosen_groups(workload, [*groups]), level)
    places = {group: place for place, group in enumerate(charts)}

    def section(group: Group, anchor: str, name: str, has_table: bool) -> str:
        place = places.get(group)
        is_open = place == 0 or len(groups) <= 3 or (not charts and anchor == "g0")
        return _section(release, group, anchor, name, level, records, place, is_open, has_table)

    sizes = {group: key_term(workload, group).rows for group in groups}
    sections = _sections_of(groups, sizes, [*charts], section)
    forecast = release.estimates.forecast
    if forecast is None:
        kind, reading, limits = (
            "estimates",
            _estimates_reading(release, level),
            _ESTIMATES_KNOWN_LIMITS,
        )
        about = _measured(release)
    else:
        kind, reading, limits = "answers", _reading(release, level), _KNOWN_LIMITS
        about = _forecast(forecast, sections.anchors)
    parts = [
        f"<h1>{workload.queries:,} private {kind}</h1>",
        f'<p class="promise">{escape(str(release.provenance["guarantee"]))}</p>',
        lead,
        _facts(release, records),
        reading + _shares_reading(records),
        about,
        "<h2>Answers</h2>",
        sections.html,
        limits,
        _record(release.provenance),
    ]
    return page(f"Private {kind}", "\n".join(parts), [*charts.values()])


def _charts(
    release: Release, pictured: Collection[Group], level: float
) -> dict[Group, dict[str, object]]:
    """The charts of these groups, as long as their data fit in the page."""
    charts: dict[Group, dict[str, object]] = {}
    left = LIMITS.chart_bytes
    for group in pictured:
        if _label_bytes(key_term(release.workload, group)) > left:
            continue
        chart = chart_of(release.estimates, group, level, "container")
        if chart is None:
            continue
        spec = _spec(chart.to_dict())
        size = len(script_json(spec))
        if size <= left:
            charts[group] = spec
            left -= size
    return charts


def _label_bytes(term: Term) -> int:
    """At least so many bytes are the labels in the data of a chart."""
    return sum(
        term.rows // max(1, axis.rows) * sum(len(label_text(v)) for v in labels.tolist())
        for axis in axes_of(term)
        for _, labels in axis.columns
    )


@dataclass(frozen=True, slots=True)
class _Sections:
    """The answers of a page: tables of some groups, and a search for all of them."""

    html: str
    anchors: Mapping[Group, str]


def _sections_of(
    groups: Mapping[Group, str],
    sizes: Mapping[Group, int],
    first: Collection[Group],
    section: Callable[[Group, str, str, bool], str],
) -> _Sections:
    """A section for as many groups as fit in their bytes, in their order; a list of the others.

    Args:
        groups: All groups with their names.
        sizes: The number of answers of every group.
        first: Groups that get a section before all others do, such as those with a chart.
        section: The HTML of a section from group, anchor, name, and whether it has a table.

    Returns:
        The HTML, and the anchor of every group that has a section.
    """
    numbers = {group: i for i, group in enumerate(groups)}
    made: dict[Group, str] = {}
    left, rows = LIMITS.section_bytes, LIMITS.tables_rows
    for group in dict.fromkeys([*first, *groups]):
        has_table = sizes[group] <= rows
        text = section(group, f"g{numbers[group]}", short(groups[group]), has_table)
        left -= len(text.encode())
        if left < 0:
            break
        rows -= sizes[group] if has_table else 0
        made[group] = text
    anchors = {group: f"g{numbers[group]}" for group in made}
    others = [[short(n), f"{sizes[g]:,} answers"] for g, n in groups.items() if g not in made]
    parts = [_search(len(groups), others), *(made[g] for g in groups if g in made)]
    return _Sections("\n".join(parts), anchors)


def _search(groups: int, others: list[list[str]]) -> str:
    """A field that finds groups, where there are many, also those that have no section."""
    if groups <= 12:
        return ""
    field = '<input id="find" type="search" placeholder="Find a group" aria-label="Find a group">'
    if not others:
        return field
    size = 0
    listed = []
    for other in others:
        size += len(script_json(other)) + 1
        if size > LIMITS.list_bytes:
            break
        listed.append(other)
    note = f"{groups - len(others):,} of {groups:,} groups are shown here. All answers are in "
    note += "<code>answers.parquet</code>"
    if len(listed) < len(others):
        note += f"; the search knows the first {len(listed):,} of the others"
    return (
        f'{field}<p class="note">{note}.</p><div id="others" aria-live="polite"></div>'
        f'<script type="application/json" id="groups">{script_json(listed)}</script>'
    )


def short(text: str) -> str:
    """A text of at most `LIMITS.label_characters` characters.

    >>> len(short("x" * 10**6)), short("age x sex")
    (200, 'age x sex')
    """
    return (
        text
        if len(text) <= LIMITS.label_characters
        else text[: LIMITS.label_characters - 3] + "..."
    )


def _spec(chart: dict[str, object]) -> dict[str, object]:
    """Without the default look, which the page gives, and the address of the schema."""
    return {k: v for k, v in chart.items() if k not in ("config", "$schema")}


def _facts(release: Release, records: int | None) -> str:
    record, forecast = release.provenance, release.estimates.forecast
    unit = record["privacy_unit"]
    column, who, of_whom = "row", "one row is one person", "one row"
    if isinstance(unit, Mapping):
        column, of_whom = str(unit["column"]), "all rows of one person"
        who = f"a person is one {column!r}; at most {unit['rows']} of their rows are counted"
        if "groups" in unit:
            by = ", ".join(str(name) for name in unit["by"])
            who += f", in at most {unit['groups']} groups by {by}, {unit['rows_per_group']} in each"
    neighbours = str(record["neighbours"])
    facts = [
        ("Budget", release.budget.describe(), "what may be spent on this release"),
        ("Spent", cost_in_words(release.cost, release.budget), _ledger_words(record)),
        ("Neighbours", neighbours, neighbours_in_words(neighbours, release.rows, of_whom)),
        ("Privacy unit", column, who),
    ]
    if forecast is None:
        steps = sum(1 for _ in release.estimates.blocks())
        facts += [
            ("Mechanism", str(record["mechanism"]), str(record["strategy"])),
            ("Measured", f"{steps:,} times", "listed below"),
            ("Typical error", "not known", "it depends on the data"),
        ]
    else:
        noise = f"{forecast.strategy.noise} noise on a public grid"
        facts += [("Mechanism", forecast.mechanism, noise), _typical_error(forecast)]
        if forecast.certificate is not None:
            least = f"times the least error of any factorization with {forecast.certified_among}"
            facts.append(("Certificate", f"{forecast.certificate:.3f}", least))
    constraints = constraints_in_words(record)
    if constraints:
        facts.append(("Constraints", "kept", constraints))
    if release.rows is not None:
        facts.append(("Records", f"{release.rows:,}", "public under these neighbours"))
    if records is not None and forecast is not None:
        error = _typical(forecast) / records
        words = f"shares of the {records:,} public records: root mean square, before cutting"
        facts.append(("Typical error of shares", f"{error:,.4g}", words))
    made = str(record["created"]).replace("T", "\n").replace("+00:00", " UTC")
    facts.append(("Made", made, "with sfumato " + str(record["sfumato"])))
    return f'<dl class="facts">{"".join(_fact(*one) for one in facts)}</dl>'


def _typical_error(forecast: Forecast) -> tuple[str, str, str]:
    if forecast.workload.has_one_weight:
        words = "root mean square over all answers, in counts, before cutting"
        return "Typical error", f"{_typical(forecast):,.4g}", words
    words = "root mean square by the weights of the groups, in counts, before cutting; each below"
    return "Typical error", f"{_typical(forecast):,.4g}", words


def _typical(forecast: Forecast) -> float:
    """The error that stands at the head of a report, in counts."""
    return forecast.rmse if forecast.workload.has_one_weight else forecast.weighted_rmse


def _fact(name: str, value: str, note: str) -> str:
    """One fact of the head of a report."""
    # Hyphens that do not break, so that 1e-9 stays in one piece.
    shown = escape(value).replace(", ", ",\n").replace(" at ", "\nat ").replace("-", "&#8209;")
    return f"<div><dt>{escape(name)}</dt><dd>{shown}<small>{escape(note)}</small></dd></div>"


def _ledger_words(provenance: Mapping[str, object]) -> str:
    """Where the debit stands."""
    entry = provenance["ledger"]
    if isinstance(entry, Mapping) and "sequence" in entry:
        return f"debited before noise was drawn: entry {entry['sequence']} of the ledger"
    return "no ledger was used: nothing keeps the sum over releases"


def _reading(release: Release, level: float) -> str:
    estimates = release.estimates
    assert isinstance(estimates, LinearEstimates)  # noqa: S101
    bounds = "at least 0" if release.rows is None else f"between 0 and {release.rows:,}"
    cut = (
        f" Counts are then cut to what is possible (whole numbers {bounds}), and so are the "
        "intervals; this only moves them towards the truth."
        if estimates.is_projected
        else " Answers are shown as they came out of the noise, so a count may be below zero."
    )
    agreeing = estimates.refined
    together = (
        "Answers from different groups carry different noise and need not add up."
        if agreeing is None
        else "All answers agree with each other: they are those of one table "
        f"({agreeing.describe()}). A <i>value</i> uses what all other answers say, its interval "
        "only what was measured for it; where the value would lie outside, the interval is widened "
        "to it. The <i>unbiased</i> answer stands beside both in answers.parquet."
    )
    divided_for = release.forecast.divided_for
    width = (
        "The width depends on the plan only, not on the people in the table."
        if divided_for is None
        else f"The budget was divided between tables for about {divided_for:,} records; the width "
        "depends on the plan and on numbers that are public only."
    )
    first = first_numbers_in_words(release.provenance)
    width += f" To divide it, these were measured first, with noise: {escape(first)}." * bool(first)
    held = (
        f"Its interval from <i>low</i> to <i>high</i> holds the true number with probability "
        f"{level:.4g}: of a hundred answers, about {100 * (1 - level):.3g} lie outside theirs. "
        f"{width}"
    )
    repeated = estimates.bootstrap
    if repeated is not None:
        held = (
            f"Its interval from <i>low</i> to <i>high</i>, meant to hold the true number with "
            f"probability {level:.4g}, is <b>{repeated.describe()}</b>. Intervals of chosen ranges "
            "and of quantiles are not: they come from the noise."
        )
    elif estimates.is_calibrated and estimates.laws is not None:
        held = (
            f"Its interval from <i>low</i> to <i>high</i>, meant to hold the true number with "
            f"probability {level:.4g}, is <b>{estimates.laws.describe()}</b>. Intervals of chosen "
            "ranges and of quantiles are proved: they come from the noise."
        )
    sharper = ""
    if (error := estimates.estimated_error) is not None:
        sharper = (
            f"<p><b>Published answers are off by about {error:,.3g} counts</b> (root mean square, "
            "estimated from held-out noise); the noise by itself is "
            f"{estimates.forecast.rmse:,.3g}."
            + (
                ""
                if estimates.is_calibrated
                else ' Release with intervals="calibrated" for intervals around published answers '
                "that are as short as these are sharp, calibrated and not proved; that is free."
            )
            + "</p>"
        )
    return (
        "<h2>How to read the numbers</h2>"
        f"<p>Every answer is the true number plus random noise. {held} The standard error is the "
        f"typical size of the noise.{cut}</p>{sharper}"
        "<p>Two answers whose intervals overlap may well be equal. "
        f"{together}</p>"
    )


def _shares_reading(records: int | None) -> str:
    """What shares are, where they are shown."""
    if records is None:
        return ""
    return (
        f"<p><b>Shares of the {records:,} public records</b> stand beside the counts: the number "
        f"and the ends of its interval, divided by {records:,}. A sum becomes the average over all "
        "records; a mean is no share and has none. One replaced record moves the histogram of "
        f"shares by 2/n = {2 / records:.4g} in all.</p>"
    )


_NO_INTERVAL = (
    " The others have <b>no interval</b>: they are as good as the estimate, and how good that is "
    "depends on the people in the table."
)


def _estimates_reading(release: Release, level: float) -> str:
    work = release.workload
    have, others = "Answers that the measurements tell have an interval", _NO_INTERVAL
    if work.queries <= LIMITS.intervals_counted:
        count = sum(release.estimates.interval_count(t) for t in range(len(work.terms)))
        have = f"{count:,} of {work.queries:,} answers have an interval"
        others = _NO_INTERVAL if count < work.queries else ""
    return (
        "<h2>How to read the numbers</h2>"
        "<p>All answers come from one estimate of the table, which was measured, with noise, where "
        "it was worst. So they agree with each other, and counts are never negative. They are not "
        f"unbiased. <b>{have}</b>, from <i>low</i> to <i>high</i>: what was measured "
        "tells them, and the interval holds the true "
        f"number with probability {level:.4g} or more, though what is measured was chosen on the "
        f"way.{others}</p>"
    )


def _measured(release: Release) -> str:
    columns = release.measured()
    rows = "".join(
        f"<tr>{_cell(name)}<td>{cells:,}</td><td>{noise:,.4g}</td></tr>"
        for name, cells, noise in columns.head(LIMITS.steps_listed).itertuples(index=False)
    )
    rest = len(columns) - LIMITS.steps_listed
    more = f" {rest:,} more are in provenance.json." if rest > 0 else ""
    return (
        '<h2>What was measured</h2><div class="wide tall"><table><thead><tr>'
        '<th class="label">measured</th><th>values</th><th>noise of each</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
        f'<p class="note">In this order; noise is the standard deviation, in counts.{more}</p>'
    )


def _forecast(forecast: Forecast, anchors: Mapping[Group, str]) -> str:
    groups = [*enumerate(forecast.groups)]
    heading, note = "Errors by group", ""
    is_planned = forecast.divided_for is None
    first = "anything was spent" if is_planned else "any table was measured, from their division"
    if len(groups) > LIMITS.errors_listed:
        shown = sorted(groups, key=lambda pair: (-pair[1].rmse, pair[0]))[: LIMITS.table_rows]
        note = f" The {len(shown)} of {len(groups):,} groups with the greatest typical error."
        groups = shown
    rows = "".join(
        f'<tr><td class="label">{_link(short(g.name), anchors.get(i))}</td><td>{g.queries:,}</td>'
        f"<td>{g.rmse:,.4g}</td><td>{g.largest:,.4g}</td></tr>"
        for i, g in groups
    )
    return (
        f'<h2>{heading}</h2><div class="wide tall"><table><thead><tr>'
        '<th class="label">group</th><th>answers</th><th>typical error</th><th>largest</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
        f'<p class="note">Known before {first}; in counts, or in the unit of the '
        f"numbers that are summed.{note}</p>"
    )


def _link(text: str, anchor: str | None) -> str:
    return escape(text) if anchor is None else f'<a href="#{anchor}">{escape(text)}</a>'


def _section(
    release: Release,
    group: Group,
    anchor: str,
    name: str,
    level: float,
    records: int | None,
    chart: int | None,
    is_open: bool,
    has_table: bool,
) -> str:
    rows, forecast = key_term(release.workload, group).rows, release.estimates.forecast
    about = f"{rows:,} {'answers' if isinstance(group, int) else plural_of(group.column)}"
    if forecast is not None and isinstance(group, int):
        about += f", typical error {forecast.groups[group].rmse:,.4g}"
    elif forecast is None and has_table and isinstance(group, int):
        about += f", {release.estimates.interval_count(group):,} with an interval"
    picture = "" if chart is None else f'<div class="chart" data-chart="{chart}"></div>'
    if rows > WORKLOAD_LIMITS.array_entries:
        table = (
            '<p class="note">Too many answers to be listed. Running totals, whose differences they '
            "are, are in answers.parquet; single ones with their errors: "
            "<code>release.ranges(...)</code>.</p>"
        )
    elif has_table:
        first = group_frame(release.estimates, group, level, LIMITS.table_rows)
        table = _table(first, rows, records if isinstance(group, int) else None)
    else:
        table = '<p class="note">Too many answers for a page; they are in answers.parquet.</p>'
    return (
        f'<details id="{anchor}" data-name="{escape(name)}"{" open" if is_open else ""}>'
        f"<summary><b>{escape(name)}</b><span>{escape(about)}</span></summary>"
        f'<div class="inside">{picture}{table}</div></details>'
    )


def _table(shown: pd.DataFrame, rows_in_all: int, records: int | None) -> str:
    """Rows of answers, numbers to the digits that their error leaves meaningful.

    With ``records``, shares of so many stand beside them.
    """
    import pandas as pd

    numbers = [c for c in _NUMBERS if c in shown.columns]
    labels = [c for c in shown.columns if c not in (*numbers, "unbiased")]
    shares = () if records is None else share_columns(_SHARED)
    titles = [f"{c} (attribute)" if c in shares else c for c in labels]
    heads = "".join(f'<th class="label">{escape(c)}</th>' for c in titles)
    heads += "".join(f"<th>{c.replace('_', ' ')}</th>" for c in (*numbers, *shares))
    # Counts without a standard error are shown to one digit behind the point, means to three.
    unknown = pd.Series(nan if "mean" in numbers else 1.0, index=shown.index)
    errors = shown.get("standard_error", unknown).tolist()
    # The error of a variance says nothing about the digits of the count and mean beside it.
    beside = {"count", "mean"} if {*SECOND_MOMENTS} & {*numbers} else {""}
    columns = [[_cell(label_text(v)) for v in shown[c].tolist()] for c in labels]
    columns += [
        [
            f"<td>{number(v / n, nan if c in beside else e / n)}</td>"
            for v, e in zip(shown[c].tolist(), errors, strict=True)
        ]
        for names, n in ((numbers, 1), (_SHARED, records))
        if n is not None
        for c in names
    ]
    rows = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*columns, strict=True))
    rest = rows_in_all - len(shown)
    more = f'<p class="note">{rest:,} more rows are in answers.parquet.</p>' if rest else ""
    head = f"<thead><tr>{heads}</tr></thead>"
    return f'<div class="wide tall"><table>{head}<tbody>{rows}</tbody></table></div>{more}'


def _cell(text: str) -> str:
    """A cell of a table that holds a label."""
    return f'<td class="label">{escape(short(text))}</td>'


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


_KNOWN_LIMITS = (
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

_ESTIMATES_KNOWN_LIMITS = (
    "<h2>Known limits</h2><ul>"
    "<li>The promise is about people and this release. Other releases about the same people add to "
    "it; a ledger keeps the sum.</li>"
    "<li>What is seen only in tables that were not measured may be missing from the estimate, and "
    "from records drawn from it.</li>"
    "<li>Records that the schema drops are in no answer; values that it clamps are in the end "
    "bins.</li></ul>"
)


def _record(provenance: Mapping[str, object]) -> str:
    """The provenance record, folded."""
    text = provenance_json(provenance)
    note = ""
    if len(text) > LIMITS.provenance_characters:
        text, note = (
            text[: LIMITS.provenance_characters],
            '<p class="note">Cut; see provenance.json.</p>',
        )
    return (
        "<h2>Provenance</h2><details><summary><b>The whole record</b><span>also in "
        f'provenance.json</span></summary><div class="inside"><pre>{escape(text)}</pre>{note}'
        "</div></details>"
    )


# The columns of a description


_HEADS: Final = {
    "column": "column",
    "kind": "kind",
    "records": "with a value",
    "nulls": "missing",
    "values": "values",
    "mean": "mean",
    "q25": "lower quartile",
    "median": "median",
    "q75": "upper quartile",
    "note": "",
}


def short_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame of a description in few columns of text, intervals beside their numbers."""
    import pandas as pd

    rows = [_cells(row) for row in frame.to_dict("records")]
    names = [n for n in _HEADS if any(row[n] for row in rows)]
    return pd.DataFrame(
        {_HEADS[n] or "note": [row[n] for row in rows] for n in names}, dtype=object
    )


def sentences(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """Every column with what is said of it in one sentence, for narrow places."""
    return [(str(row["column"]), _sentence(_cells(row))) for row in frame.to_dict("records")]


def _sentence(cells: Mapping[str, str]) -> str:
    parts = [", ".join(part for part in (cells["kind"], cells["values"]) if part)]
    if cells["mean"]:
        parts.append(f"mean {cells['mean']}")
    if cells["median"]:
        parts.append(f"quartiles {cells['q25']}, {cells['median']}, {cells['q75']}")
    if cells["nulls"]:
        parts.append(f"missing {cells['nulls']}")
    return "; ".join(part for part in (*parts, cells["note"]) if part)


def summary_html(frame: pd.DataFrame, title: str, promise: str = "") -> str:
    """The summary as a section of a page; ``promise`` says what all of it spends together."""
    table = short_frame(frame)
    heads = "".join(f"<th class='label'>{escape(str(name))}</th>" for name in table.columns)
    classes = ["label prose" if name == "note" else "label" for name in table.columns]
    body = "".join(
        "<tr>"
        + "".join(
            f"<td class='{kind}'>{escape(str(cell))}</td>"
            for kind, cell in zip(classes, row, strict=True)
        )
        + "</tr>"
        for row in table.itertuples(index=False)
    )
    return (
        f"<h2>{escape(title)}</h2><div class='wide'><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
        f"<p class='note'>{escape(promise)}</p>"
        "<p class='note'>In brackets: intervals that hold the truth with 95% each. Means and "
        "quartiles are those of values clamped to the range; the first of the values is the one "
        "that discovery counted most often.</p>"
    )


def _cells(row: Mapping[Any, Any]) -> dict[str, str]:
    out = {"column": str(row["column"]), "kind": str(row["kind"])}
    out["records"] = _number(row.get("records"), 10.0)
    out["nulls"] = _with_interval(row, "nulls")
    out["values"] = _values(row)
    for key in ("mean", "q25", "median", "q75"):
        out[key] = _with_interval(row, key)
    out["note"] = _text(row.get("note"))
    return out


def _values(row: Mapping[Any, Any]) -> str:
    """The keys, or the range."""
    if _is_there(row.get("keys")):
        count = _number(row.get("top_count"), 10.0)
        more = int(row["keys"]) - 1
        others = f" and {more:,} more" if more else ""
        return f"{row['top']} ({count}){others}"
    if _is_there(row.get("low")):
        return f"{_value(row['low'])} to {_value(row['high'])}"
    return ""


def _with_interval(row: Mapping[Any, Any], key: str) -> str:
    value = row.get(key)
    if not _is_there(value):
        return ""
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    if not _is_there(low) or not _is_there(high):
        return _value(value)
    if isinstance(value, date):
        return f"{_value(value)} ({_value(low)} to {_value(high)})"
    width = float(high) - float(low)  # type: ignore[arg-type]
    step = width / 4 if width > 0 else 10.0
    return f"{_number(value, step)} ({_number(low, step)} to {_number(high, step)})"


def _number(value: Any, step: float) -> str:
    """A number to two digits of a step."""
    if not _is_there(value):
        return ""
    digits = 1 - int(log10(step) // 1) if step > 0 and isfinite(step) else 3
    text = f"{float(value):,.{min(max(digits, 0), 9)}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _value(value: Any) -> str:
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == datetime.min.time() else str(value)
    if isinstance(value, float) and not (value.is_integer() and abs(value) < 1e15):
        return f"{value:g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_there(value: Any) -> bool:
    """Whether it is neither None nor NaN nor NaT."""
    return value is not None and value == value
