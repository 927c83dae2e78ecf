# SPDX-License-Identifier: Apache-2.0
"""``sfumato audit``: lower bounds on every privacy loss, beside what is claimed.

Registered as an entry point of ``sfumato.commands``. The charts show bounds beside claims, and
(epsilon, delta) curves.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.options import Json, Quiet, command_app, examples, flag
from sfumato.cli.output import Output, check_folder, filled_folder, heading, table
from sfumato.errors import PlanError

if TYPE_CHECKING:
    import altair as alt

    from sfumato_audit.examine import Finding, Subject

__all__ = ["app", "audit", "claims_chart", "curves_chart"]


SOUND, WRONG = "sound", "known to be wrong"
COLOURS = {SOUND: "#1f6f8b", WRONG: "#c0392b"}
FARTHEST = 3.0  # times the claim: bounds beyond are drawn here

_NOTE = "lower bounds hold with 99.9%; what is not refuted is not proved"
_COLUMNS = ["mechanism", "claim", "bound", "share", "pairs", "runs", "seconds", "note"]

app = command_app()


@app.command(
    epilog=examples(
        "sfumato audit",
        "sfumato audit --only gaussian",
        "sfumato audit --full --out audit",
        "sfumato audit --workers 1",
        "sfumato audit --json > audit.json",
    )
)
def audit(
    full: Annotated[
        bool, flag("--full", text="Many more runs and pairs (an hour of processor time).")
    ] = False,
    only: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only mechanisms whose name holds this text.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the charts (PNG) here.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Processes; one per core unless said otherwise."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Try to break every privacy claim, on made-up tables.

    Lower bounds on the privacy loss of every mechanism, from many runs on
    neighbouring tables, beside its claim; and mechanisms known to be wrong,
    which must be caught. Exit code 1 if a claim is refuted, a wrong one is
    not caught, or a mechanism has no audit.
    """
    from sfumato_audit.examine import FAST, FULL
    from sfumato_audit.registry import audit as examine
    from sfumato_audit.registry import subjects, uncovered

    output = Output(json, quiet)
    if out is not None:
        check_folder(out)
    every = subjects()
    missing = sorted(uncovered(every))
    chosen = _chosen(every, only)
    effort = FULL if full else FAST
    with output.bars() as bars:
        each = workers or os.cpu_count() or 1
        findings = examine(chosen, effort, progress=bars.phase("auditing"), workers=each)
    written = [] if out is None else _write(findings, out)
    wrong = [f for f in findings if not f.is_as_expected]
    output.result(
        _document(findings, missing, full, written),
        heading("Privacy audit", _NOTE),
        table(_COLUMNS, [_row(f) for f in findings if not f.is_broken]),
        "",
        heading("Known to be wrong", "an audit that passes one of these is blind"),
        table(_COLUMNS, [_row(f) for f in findings if f.is_broken]),
        *(f"Not as it should be: {f.name}" for f in wrong),
        *(f"Without an audit: {name}" for name in missing),
        _verdict(findings, wrong),
        *(f"Written: {file}" for file in written),
    )
    if wrong or missing:
        raise typer.Exit(1)


def _chosen(subjects: list[Subject[Any]], only: str | None) -> list[Subject[Any]]:
    if only is None:
        return subjects
    chosen = [s for s in subjects if only.lower() in s.name.lower()]
    if not chosen:
        names = ", ".join(s.name for s in subjects)
        raise PlanError(f"no mechanism is called like {only!r}; there are {names}")
    return chosen


def _row(f: Finding) -> list[str]:
    note = "REFUTED" if f.is_refuted else ""
    if f.is_broken:
        note = f"caught: {f.event}" if f.is_refuted else "NOT CAUGHT"
    share = f"{f.bound / f.claim.amount:.2f}"
    claim = f"{f.claim.kind} {f.claim.amount:.4g}"
    runs = f"{f.runs:,}"
    return [f.name, claim, f"{f.bound:.3f}", share, str(f.pairs), runs, f"{f.seconds:.1f}", note]


def _verdict(findings: Sequence[Finding], wrong: Sequence[Finding]) -> str:
    seconds = sum(f.seconds for f in findings)
    sound = [f for f in findings if not f.is_broken]
    standing = sum(f.is_as_expected for f in sound)
    caught = sum(f.is_refuted for f in findings if f.is_broken)
    broken = len(findings) - len(sound)
    text = f"{standing} of {len(sound)} claims stand, {caught} of {broken} wrong ones"
    return f"{text} are caught, in {seconds:.0f} CPU seconds" + ("" if wrong else ": all is well")


def _document(
    findings: Sequence[Finding], missing: Sequence[str], is_full: bool, written: Sequence[str]
) -> dict[str, object]:
    return {
        "mode": "full" if is_full else "fast",
        "is_well": not missing and all(f.is_as_expected for f in findings),
        "without_audit": list(missing),
        "findings": [_entry(f) for f in findings],
        "files": list(written),
    }


def _entry(f: Finding) -> dict[str, object]:
    claim: dict[str, object] = {"kind": f.claim.kind, "amount": f.claim.amount}
    if f.claim.delta:
        claim["delta"] = f.claim.delta
    return {
        "name": f.name,
        "claim": claim,
        "bound": f.bound,
        "sure_bound": f.sure_bound,
        "is_refuted": f.is_refuted,
        "is_known_wrong": f.is_broken,
        "is_as_expected": f.is_as_expected,
        "pair": f.pair,
        "event": f.event,
        "hits": list(f.hits),
        "runs": f.runs,
        "pairs": f.pairs,
        "seconds": round(f.seconds, 2),
        "curve": [
            {"epsilon": p.epsilon, "delta_claimed": p.claimed, "delta_bound": p.bound}
            for p in f.curve
        ],
    }


def _write(findings: Sequence[Finding], out: Path) -> list[str]:
    """The charts as PNG files."""
    from sfumato.release.charts import write_chart

    names = []
    with filled_folder(out) as folder:
        charts = {"audit.png": claims_chart(findings), "audit-curves.png": curves_chart(findings)}
        for name, chart in charts.items():
            if chart is not None:
                write_chart(chart, folder / name)
                names.append(str(out / name))
    return names


def claims_chart(findings: Sequence[Finding]) -> alt.LayerChart | None:
    """Every bound as a share of its claim; the rule is the claim itself."""
    import altair as alt

    if not findings:
        return None
    values = [
        {
            "m": f.name,
            "x": min(f.bound / f.claim.amount, FARTHEST),
            "k": WRONG if f.is_broken else SOUND,
            "t": f"{f.claim.kind} {f.claim.amount:.3g}, bound {f.bound:.3g}",
        }
        for f in findings
    ]
    kinds = [k for k in COLOURS if any(v["k"] == k for v in values)]
    scale = alt.Scale(domain=kinds, range=[COLOURS[k] for k in kinds])
    bars = (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar(height=11)
        .encode(
            alt.X("x:Q", title="lower bound, as a share of the claim", scale=alt.Scale(zero=True)),
            alt.Y("m:N", title=None, sort=None, axis=alt.Axis(labelLimit=420, ticks=False)),
            color=alt.Color("k:N", title=None, scale=scale, legend=alt.Legend(orient="top")),
            tooltip=[alt.Tooltip("m:N", title="mechanism"), alt.Tooltip("t:N", title="claim")],
        )
    )
    rule = alt.Chart(alt.InlineData(values=[{"x": 1.0}])).mark_rule(color="#222", strokeDash=[4, 3])
    title = alt.Title(
        "What the audit proves, against what is claimed",
        subtitle=f"beyond the rule a claim is refuted; bounds above {FARTHEST:g} are cut there",
    )
    layers = alt.layer(bars, rule.encode(alt.X("x:Q")))
    return layers.properties(width=420, height=15 * len(values), title=title)


def curves_chart(findings: Sequence[Finding]) -> alt.LayerChart | None:
    """delta at some epsilons for the Gaussian claims of mu = 1: the claim, and lower bounds."""
    import altair as alt

    gaussian = [
        f for f in findings if f.claim.kind == "mu" and abs(f.claim.amount - 1) < 1e-3 and f.curve
    ]
    if not gaussian:
        return None
    claimed = [{"x": p.epsilon, "y": p.claimed} for p in gaussian[0].curve]
    proved = [
        {"m": f.name, "x": p.epsilon, "y": p.bound, "k": WRONG if f.is_broken else SOUND}
        for f in gaussian
        for p in f.curve
        if p.bound > 0
    ]
    y = alt.Y("y:Q", title="delta", scale=alt.Scale(type="log"))
    x = alt.X("x:Q", title="epsilon")
    line = alt.Chart(alt.InlineData(values=claimed)).mark_line(color="#222").encode(x, y)
    colour = alt.Color(
        "k:N",
        title=None,
        scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
        legend=alt.Legend(orient="top"),
    )
    dots = (
        alt.Chart(alt.InlineData(values=proved))
        .mark_point(size=40, filled=True, opacity=0.6)
        .encode(x, y, color=colour, tooltip=[alt.Tooltip("m:N", title="mechanism")])
    )
    title = alt.Title(
        "Gaussian mechanisms with mu = 1",
        subtitle="line: delta as claimed; dots: lower bounds on delta, all at once with 99.9%",
    )
    return alt.layer(line, dots).properties(width=420, height=300, title=title)
