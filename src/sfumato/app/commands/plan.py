# SPDX-License-Identifier: Apache-2.0
"""``sfumato plan``: the forecast of a spec file, before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.app.adaptive import adaptive_document, adaptive_facts
from sfumato.app.output import Output
from sfumato.app.show import (
    candidates_table,
    counts,
    facts,
    groups_table,
    heading,
    plan_document,
    plan_facts,
    resources_table,
    table,
)
from sfumato.app.spec import Spec, read_spec
from sfumato.errors import LedgerError, PlanError
from sfumato.planning.resources import engine_of, in_bytes

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from sfumato.run.advice import Recommendation
    from sfumato.run.linear import Plan, Purse
    from sfumato.run.spine import Progress

__all__ = [
    "plan",
]


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
        purse, fault = _purse(spec)
        found = spec.plan(bars.phase("planning"), ledger=purse)
        known = spec.records if records is None else records
        after = None if known is None else found.projected(known)
        advice = None if known is None else _advice(spec, found, known, bars.phase("trying"))
        needed = found.resources(known, engine_of(spec.place))
        needed.check()
        document = plan_document(found, after)
        document["resources"] = needed.as_json()
        document["ledger"] = None if found.in_ledger is None else found.in_ledger.as_json()
        document["recommendation"] = None if advice is None else advice.as_json()
    errors = "forecast errors in counts"
    if not found.workload.has_one_weight:
        errors = "forecast errors, of every query in its own unit"
    output.result(
        document,
        heading(f"Plan of {path}", "no data touched, nothing spent"),
        plan_facts(found, after),
        *([] if fault is None else [facts([("ledger", fault)])]),
        "",
        heading("Mechanisms", errors),
        candidates_table(found.candidates),
        "",
        heading("Query groups", errors),
        groups_table(found.groups, show_all),
        "",
        heading(
            "Resources",
            f"{needed.engine}; {needed.in_words}, roughly; at most "
            f"{in_bytes(needed.memory)} of memory",
        ),
        resources_table(needed),
        *([] if advice is None else _advised(advice)),
    )


def _purse(spec: Spec) -> tuple[Purse | None, str | None]:
    """What the ledger of a spec has left, or why it cannot be read; a new one has its total."""
    from sfumato.ledger.ledger import Ledger
    from sfumato.run.linear import Unopened

    at = spec.ledger
    if at is None:
        return None, None
    try:
        if Ledger.exists(at.path):
            return Ledger.open(at.path), None
    except LedgerError as error:
        return None, f"cannot be read, so nothing is said of what is left: {error}"
    total = at.total or spec.budget
    return (None if total is None else Unopened(total)), None


def _advice(
    spec: Spec, found: Plan, records: int, progress: Progress | None
) -> Recommendation | None:
    """What is recommended for so many records; None for more queries than can be tried."""
    from sfumato.run.advice import MOST_QUERIES, recommend
    from sfumato.run.public import check_public

    check_public(spec.public, spec.source)
    if spec.workload.queries > MOST_QUERIES:
        return None
    return recommend(
        spec.workload,
        found.budget,
        records,
        spec.neighbours,
        objective=found.objective,
        unit=spec.unit,
        public=spec.public,
        planned=found,
        progress=progress,
    )


def _advised(advice: Recommendation) -> list[str | Text | Table]:
    """Every way that was tried, best first."""
    rows = [
        (
            o.name,
            "-" if o.rmse is None else f"{counts(o.rmse)} +- {o.standard_error:.2g}",
            counts(o.largest),
            o.note or o.how,
        )
        for o in advice.options
    ]
    tried = f"errors in counts, {advice.runs} runs on {advice.records:,} {advice.surrogate}"
    return [
        "",
        heading("Recommended", tried),
        f" {advice.describe()}",
        table(["way", "rmse", "largest", "how"], rows),
    ]


def _plan_adaptive(spec: Spec, records: int | None, output: Output) -> None:
    if records is not None:
        raise PlanError(
            f"{spec.path} asks for an adaptive release, which forecasts no error for a number of "
            "records; leave --records out, or take adaptive out of [plan]"
        )
    from sfumato.run.linear import InLedger

    found = spec.plan_adaptive()
    purse, fault = _purse(spec)
    document = adaptive_document(found)
    if purse is not None:
        stored = purse.answer(found.digest()) is not None
        price = purse.price(found.cost, delta=found.budget.delta)
        within = InLedger(price, stored, None)
        document["ledger"] = within.as_json()
        fault = within.describe()
    output.result(
        document,
        heading(f"Adaptive plan of {spec.path}", "no data touched, nothing spent"),
        adaptive_facts(found),
        *([] if fault is None else [facts([("ledger", fault)])]),
    )
