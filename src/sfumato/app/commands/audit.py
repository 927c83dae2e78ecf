# SPDX-License-Identifier: Apache-2.0
"""``sfumato audit``: lower bounds on every privacy loss, beside what is claimed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.app.files import check_folder, filled_folder
from sfumato.app.output import Output
from sfumato.app.show import heading, table
from sfumato.errors import PlanError

if TYPE_CHECKING:
    from sfumato_audit.examine import Finding, Subject

__all__ = [
    "audit",
]


_NOTE = "lower bounds hold with 99.9%; what is not refuted is not proved"
_COLUMNS = ["mechanism", "claim", "bound", "share", "pairs", "runs", "seconds", "note"]


def audit(
    out: Path | None, only: str | None, is_full: bool, workers: int | None, output: Output
) -> int:
    """Examine all subjects; 1 if a claim is refuted, a wrong one stands, or something is left out.

    Privacy: runs on made-up tables only.
    """
    from sfumato_audit.examine import FAST, FULL
    from sfumato_audit.registry import audit as examined
    from sfumato_audit.registry import subjects, uncovered

    if out is not None:
        check_folder(out)
    known = subjects()
    missing = sorted(uncovered(known))
    chosen = _chosen(known, only)
    effort = FULL if is_full else FAST
    with output.bars() as bars:
        each = workers or os.cpu_count() or 1
        found = examined(chosen, effort, progress=bars.phase("auditing"), workers=each)
    written = [] if out is None else _write(found, out)
    wrong = [f for f in found if not f.is_as_expected]
    output.result(
        _document(found, missing, is_full, written),
        heading("Privacy audit", _NOTE),
        table(_COLUMNS, [_row(f) for f in found if not f.is_broken]),
        "",
        heading("Known to be wrong", "an audit that passes one of these is blind"),
        table(_COLUMNS, [_row(f) for f in found if f.is_broken]),
        *(f"Not as it should be: {f.name}" for f in wrong),
        *(f"Without an audit: {name}" for name in missing),
        _verdict(found, wrong),
        *(f"Written: {file}" for file in written),
    )
    return 1 if wrong or missing else 0


def _chosen(known: list[Subject[Any]], only: str | None) -> list[Subject[Any]]:
    if only is None:
        return known
    chosen = [s for s in known if only.lower() in s.name.lower()]
    if not chosen:
        names = ", ".join(s.name for s in known)
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


def _verdict(found: Sequence[Finding], wrong: Sequence[Finding]) -> str:
    seconds = sum(f.seconds for f in found)
    sound = [f for f in found if not f.is_broken]
    kept = sum(f.is_as_expected for f in sound)
    caught = sum(f.is_refuted for f in found if f.is_broken)
    told = f"{kept} of {len(sound)} claims stand, {caught} of {len(found) - len(sound)} wrong ones"
    return f"{told} are caught, in {seconds:.0f} CPU seconds" + ("" if wrong else ": all is well")


def _document(
    found: Sequence[Finding], missing: Sequence[str], is_full: bool, written: Sequence[str]
) -> dict[str, object]:
    return {
        "mode": "full" if is_full else "fast",
        "is_well": not missing and all(f.is_as_expected for f in found),
        "without_audit": list(missing),
        "findings": [_entry(f) for f in found],
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


def _write(found: Sequence[Finding], out: Path) -> list[str]:
    """The charts as PNG files."""
    from sfumato.app.audit_charts import claims_chart, curves_chart
    from sfumato.release.charts import write_chart

    names = []
    with filled_folder(out) as folder:
        charts = {"audit.png": claims_chart(found), "audit-curves.png": curves_chart(found)}
        for name, chart in charts.items():
            if chart is not None:
                write_chart(chart, folder / name)
                names.append(str(out / name))
    return names
