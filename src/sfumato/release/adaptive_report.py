# SPDX-License-Identifier: Apache-2.0
"""The report of an adaptive release: what was promised, what was measured, every answer.

It says which answers have an interval, and has no charts. All texts that come from the schema are
escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from sfumato.release.adaptive import ADAPTIVE_NUMBERS
from sfumato.release.answers import Group, key_term, named_groups
from sfumato.release.labels import columns_of, label_text
from sfumato.release.provenance import constraints_in_words
from sfumato.release.report import (
    TABLE_ROWS,
    cell,
    fact,
    ledger_words,
    neighbours_in_words,
    number,
    page,
    record,
    sections_of,
)
from sfumato.types import Array
from sfumato.workload.workload import Ratio

if TYPE_CHECKING:
    from sfumato.release.adaptive import AdaptiveRelease

__all__ = [
    "adaptive_report_html",
]


MEASURED = 1000  # steps that are listed
COUNTED = 100_000  # answers whose intervals are counted for the page


def adaptive_report_html(release: AdaptiveRelease, level: float) -> str:
    """The whole report as one page that needs no network."""
    groups = named_groups(release.workload)

    def section(group: Group, anchor: str, name: str, has_table: bool) -> str:
        is_open = len(groups) <= 3 or anchor == "g0"
        return _section(release, group, anchor, name, is_open, level, has_table)

    sizes = {group: key_term(release.workload, group).rows for group in groups}
    sections = sections_of(groups, sizes, (), section)
    parts = [
        f"<h1>{release.workload.queries:,} private estimates</h1>",
        f'<p class="promise">{escape(str(release.provenance["guarantee"]))}</p>',
        _facts(release),
        _reading(release, level),
        _measured(release),
        "<h2>Answers</h2>",
        sections.html,
        _LIMITS,
        record(release.provenance),
    ]
    return page("Private estimates", "\n".join(parts), [])


def _reading(release: AdaptiveRelease, level: float) -> str:
    work = release.workload
    have = "Answers that the measurements tell have an interval"
    if work.queries <= COUNTED:
        number = sum(release.told_count(t) for t in range(len(work.terms)))
        have = f"{number:,} of {work.queries:,} answers have an interval"
    return (
        "<h2>How to read the numbers</h2>"
        "<p>All answers come from one estimate of the table, which was measured, with noise, where "
        "it was worst. So they agree with each other, and counts are never negative. They are not "
        f"unbiased. <b>{have}</b>, from <i>low</i> to <i>high</i>: what was measured "
        "tells them, and the interval holds the true "
        f"number with probability {level:.4g} or more, though what is measured was chosen on the "
        "way. The others have <b>no interval</b>: they are as good as the estimate, and how good "
        "that is depends on the people in the table.</p>"
    )


_LIMITS = (
    "<h2>Known limits</h2><ul>"
    "<li>The promise is about people and this release. Other releases about the same people add to "
    "it; a ledger keeps the sum.</li>"
    "<li>What is seen only in tables that were not measured may be missing from the estimate, and "
    "from records drawn from it.</li>"
    "<li>Records that the schema drops are in no answer; values that it clamps are in the end "
    "bins.</li></ul>"
)


def _facts(release: AdaptiveRelease) -> str:
    known = release.provenance
    unit = known["privacy_unit"]
    column, who = "row", "one row is one person"
    if isinstance(unit, Mapping):
        column = str(unit["column"])
        who = f"a person is one {column!r}; at most {unit['rows']} of their rows are counted"
    neighbours = str(known["neighbours"])
    made = str(known["created"]).replace("T", "\n").replace("+00:00", " UTC")
    kept = constraints_in_words(known)
    facts = [
        *([("Constraints", "kept", kept)] if kept else []),
        ("Spent", str(known["cost_in_words"]), ledger_words(known)),
        ("Neighbours", neighbours, neighbours_in_words(neighbours, release.transcript.rows)),
        ("Privacy unit", column, who),
        ("Mechanism", str(known["mechanism"]), str(known["strategy"])),
        ("Measured", f"{len(release.transcript.steps):,} times", "listed below"),
        ("Typical error", "not known", "it depends on the data"),
        ("Made", made, "with sfumato " + str(known["sfumato"])),
    ]
    return f'<dl class="facts">{"".join(fact(*one) for one in facts)}</dl>'


def _measured(release: AdaptiveRelease) -> str:
    columns = release.measured()
    rows = "".join(
        f"<tr>{cell(name)}<td>{cells:,}</td><td>{noise:,.4g}</td></tr>"
        for name, cells, noise in columns.head(MEASURED).itertuples(index=False)
    )
    rest = len(columns) - MEASURED
    more = f" {rest:,} more are in provenance.json." if rest > 0 else ""
    return (
        '<h2>What was measured</h2><div class="wide tall"><table><thead><tr>'
        '<th class="label">measured</th><th>values</th><th>noise of each</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
        f'<p class="note">In this order; noise is the standard deviation, in counts.{more}</p>'
    )


def _section(
    release: AdaptiveRelease,
    group: Group,
    anchor: str,
    name: str,
    is_open: bool,
    level: float,
    has_table: bool,
) -> str:
    rows = key_term(release.workload, group).rows
    about = f"{rows:,} {'means, no intervals' if isinstance(group, Ratio) else 'answers'}"
    inside = '<p class="note">Too many answers for a page; they are in answers.parquet.</p>'
    if has_table:
        numbers = release.numbers(group, level)
        if not isinstance(group, Ratio):
            about += f", {np.isfinite(numbers[1]).sum():,} with an interval"
        inside = _table(release, group, numbers)
    return (
        f'<details id="{anchor}" data-name="{escape(name)}"{" open" if is_open else ""}>'
        f"<summary><b>{escape(name)}</b><span>{about}</span></summary>"
        f'<div class="inside">{inside}</div></details>'
    )


def _table(release: AdaptiveRelease, group: Group, numbers: Sequence[Array]) -> str:
    """The first rows of a group: counts to one digit behind the point, means to three."""
    labels = columns_of(key_term(release.workload, group), slice(TABLE_ROWS))
    about = nan if isinstance(group, Ratio) else 1.0
    columns = [[cell(label_text(v)) for v in c.tolist()] for c in labels.values()]
    columns += [[f"<td>{number(v, about)}</td>" for v in n[:TABLE_ROWS].tolist()] for n in numbers]
    heads = "".join(f'<th class="label">{escape(name)}</th>' for name in labels)
    rows = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*columns, strict=True))
    rest = len(numbers[0]) - TABLE_ROWS
    more = f'<p class="note">{rest:,} more rows are in answers.parquet.</p>' if rest > 0 else ""
    heads += "".join(f"<th>{name}</th>" for name in ADAPTIVE_NUMBERS)
    head = f"<thead><tr>{heads}</tr></thead>"
    return f'<div class="wide tall"><table>{head}<tbody>{rows}</tbody></table></div>{more}'
