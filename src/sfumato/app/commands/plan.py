# SPDX-License-Identifier: Apache-2.0
"""``sfumato plan``: the forecast of a spec file, before anything is spent."""

from __future__ import annotations

from pathlib import Path

from sfumato.app.adaptive import adaptive_document, adaptive_facts
from sfumato.app.output import Output
from sfumato.app.show import candidates_table, groups_table, heading, plan_document, plan_facts
from sfumato.app.spec import Spec, read_spec
from sfumato.errors import PlanError

__all__ = ["plan"]


def plan(
    path: Path,
    mechanism: str | None,
    error: float | None,
    seconds: float | None,
    records: int | None,
    show_all: bool,
    output: Output,
) -> None:
    """Show what a release would answer with.

    Privacy: a function of the spec alone; the table is not opened.
    """
    spec = read_spec(path).asking(mechanism, error, seconds)
    if spec.adaptive is not None:
        _plan_adaptive(spec, records, output)
        return
    with output.bars() as bars:
        found = spec.plan(bars.phase("planning"))
        known = spec.records if records is None else records
        after = None if known is None else found.projected(known)
        document = plan_document(found, after)
    output.result(
        document,
        heading(f"Plan of {path}", "no data touched, nothing spent"),
        plan_facts(found, after),
        "",
        heading("Mechanisms", "forecast errors in counts"),
        candidates_table(found.candidates),
        "",
        heading("Query groups", "forecast errors in counts"),
        groups_table(found.groups, show_all),
    )


def _plan_adaptive(spec: Spec, records: int | None, output: Output) -> None:
    if records is not None:
        raise PlanError(
            f"{spec.path} asks for an adaptive release, which forecasts no error for a number of "
            "records; leave --records out, or take adaptive out of [plan]"
        )
    found = spec.plan_adaptive()
    output.result(
        adaptive_document(found),
        heading(f"Adaptive plan of {spec.path}", "no data touched, nothing spent"),
        adaptive_facts(found),
    )
