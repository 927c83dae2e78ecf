# SPDX-License-Identifier: Apache-2.0
"""``sfumato plan``: the forecast of a spec file, before anything is spent.

It prints the errors by group, every mechanism that was tried, what the release would need and what
it would leave in the ledger; no table is opened. Release, server and page show plans with the same
functions. The document of an adaptive plan has the keys of other plans; those that hold a forecast
are null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.cli_limits import LIMITS
from sfumato.cli.options import (
    Error,
    Json,
    Mechanism,
    Quiet,
    Seconds,
    SpecFile,
    command_app,
    examples,
    flag,
)
from sfumato.cli.output import (
    Output,
    budget_document,
    counts,
    facts,
    heading,
    neighbours_in_words,
    table,
)
from sfumato.domain.discovery import OPEN_BOUND
from sfumato.errors import LedgerError, PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table
    from rich.text import Text

    from sfumato.cli.spec import OpenSpec, Spec
    from sfumato.planning.forecast import Forecast, GroupForecast
    from sfumato.run.adaptive import AdaptivePlan
    from sfumato.run.advice import Recommendation
    from sfumato.run.discover import DiscoveryPlan
    from sfumato.run.linear import Plan, PlanLedger
    from sfumato.study.projection_forecast import AfterProjection
    from sfumato.types import Progress
    from sfumato.workload.workload import Workload

__all__ = [
    "NO_FORECAST",
    "STOPPED",
    "adaptive_document",
    "app",
    "certificate_in_words",
    "discovery_facts",
    "plan",
    "plan_document",
    "rmse_facts",
]


STOPPED = "by the time limit: without one the error may be less"
NO_FORECAST = "none: the error depends on the data; what is measured gets intervals"

_MEASURED = {
    "tables": "tables of attributes, chosen where the estimate is worst",
    "mwem": "single queries, chosen where the estimate is worst",
    "boosting": "samples of queries, drawn where earlier estimates are bad",
}

app = command_app()


@app.command(
    epilog=examples(
        "sfumato plan release.toml",
        "sfumato plan release.toml --error 50",
        "sfumato plan release.toml --records 10000 --shares",
        "sfumato plan release.toml --mechanism gaussian --json",
    )
)
def plan(
    path: SpecFile,
    mechanism: Mechanism = None,
    error: Error = None,
    seconds: Seconds = None,
    records: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Also forecast the error after projection for N records (default: plan.records).",
        ),
    ] = None,
    show_all: Annotated[bool, flag("--all", text="List every group, however many.")] = False,
    shares: Annotated[
        bool,
        flag("--shares", text="Show errors as shares of the records: needs --records, n public."),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Forecast the errors of a release; touches no data, costs nothing.

    The source need not even exist. All mechanisms that fit are shown side by
    side; the one with the least forecast error is chosen.
    """
    from sfumato.cli.spec import open_spec, read_spec

    opened = open_spec(path)
    if opened is not None:
        _plan_discovery(opened, Output(json, quiet))
        return
    spec = read_spec(path).with_options(mechanism, error, seconds)
    if spec.adaptive is None:
        _plan_linear(spec, records, show_all, shares, Output(json, quiet))
        return
    if shares:
        raise PlanError(
            f"{spec.path} asks for an adaptive release, whose errors are not known beforehand, nor "
            "their shares; leave --shares out"
        )
    _plan_adaptive(spec, records, Output(json, quiet))


def _plan_discovery(opened: OpenSpec, output: Output) -> None:
    """Show what a discovery would cost and find; what is asked is planned when it is known."""
    plan = opened.plan()
    later = (
        f"with {opened.rest.describe()}, when the values are known: sfumato release {opened.path} "
        "discovers first, once, and then answers"
        if opened.rest is not None
        else "none are asked for"
    )
    one_row = _error_of_one_row(opened) if opened.is_of_bound else None
    if one_row is not None:
        later += f"; typical error {one_row:,.3g} for each row of a unit that is counted"
    left = None if opened.rest is None else budget_document(opened.rest)
    output.result(
        {"discovery": plan.as_json(), "left": left}
        | ({} if one_row is None else {"rmse_of_one_row": one_row}),
        heading(f"Discovery of {opened.path}", "no data touched, nothing spent"),
        facts([*discovery_facts(plan), ("answers", later)]),
    )


def _error_of_one_row(opened: OpenSpec) -> float | None:
    """The typical error of the answers for each row of a unit that is counted.

    None where the schema is to be discovered, too.
    """
    from sfumato.cli.spec import open_spec, read_spec

    if open_spec(opened.path, unit=opened.unit, budget=opened.rest) is not None:
        return None
    return read_spec(opened.path, unit=opened.unit, budget=opened.rest).plan().rmse


def discovery_facts(plan: DiscoveryPlan) -> list[tuple[str, str]]:
    """What a discovery costs and finds, for people."""
    from sfumato.release.provenance import cost_in_words

    is_of_bound = any(each.mechanism == OPEN_BOUND for each in plan.domain.open)
    return [
        ("budget", plan.budget.describe()),
        ("neighbours", neighbours_in_words(plan.neighbours, plan.unit, counted=not is_of_bound)),
        ("cost", cost_in_words(plan.cost, plan.budget)),
        *((each.attribute.name, each.in_words().partition(": ")[2]) for each in plan.searches),
    ]


def _plan_linear(
    spec: Spec, records: int | None, show_all: bool, in_shares: bool, output: Output
) -> None:
    """Show what a release would answer with; the table is not opened."""
    from sfumato.planning.resources import as_rows, engine_of, in_bytes

    with output.bars() as bars:
        ledger, fault = _ledger_of(spec)
        best = spec.plan(bars.phase("planning"), ledger=ledger)
        number = spec.records if records is None else records
        if in_shares and number is None:
            raise PlanError(
                f"{spec.path} does not say of how many records errors are shares; give --records N "
                "beside --shares, or records in [plan]"
            )
        after = None if number is None else best.projected(number)
        advice = None if number is None else _advice(spec, best, number, bars.phase("trying"))
        needed = best.resources(number, engine_of(spec.place))
        needed.check()
        document = plan_document(best.forecast, after)
        document["resources"] = needed.as_json()
        document["ledger"] = None if best.in_ledger is None else best.in_ledger.as_json()
        document["recommendation"] = None if advice is None else advice.as_json()
        has_shares = in_shares or best.total_is_public
        shares = best.as_shares(number) if number and has_shares else None
        if shares is not None:
            document["shares"] = shares.as_json()
    errors, records_shown = "forecast errors in counts", 1
    if not best.workload.has_one_weight:
        errors = "forecast errors, of every query in its own unit"
    if in_shares and number:
        errors, records_shown = f"forecast errors as shares of {number:,} records", number
    output.result(
        document,
        heading(f"Plan of {spec.path}", "no data touched, nothing spent"),
        _plan_facts(best, after),
        *([best.division[0].upper() + best.division[1:] + "."] if best.division else []),
        *([] if shares is None else [f"Shares: {shares}"]),
        *_ledger_fault(fault),
        "",
        heading("Mechanisms", errors),
        table(
            ["mechanism", "rmse", "largest", "note"],
            (
                (
                    c.name,
                    _error(c.rmse, records_shown),
                    _error(c.largest, records_shown),
                    "chosen" if c.is_chosen else c.note,
                )
                for c in best.candidates
            ),
        ),
        "",
        heading("Query groups", errors),
        _groups_table(best.groups, show_all, records_shown),
        "",
        heading(
            "Resources",
            f"{needed.engine}; {needed.in_words}, roughly; at most "
            f"{in_bytes(needed.memory)} of memory",
        ),
        table(["step", "scans", "cells", "memory", "time"], as_rows(needed)),
        *([] if advice is None else _advised(advice)),
    )


def _plan_adaptive(spec: Spec, records: int | None, output: Output) -> None:
    if records is not None:
        raise PlanError(
            f"{spec.path} asks for an adaptive release, which forecasts no error for a number of "
            "records; leave --records out, or take adaptive out of [plan]"
        )
    from sfumato.run.linear import InLedger

    best = spec.plan_adaptive()
    ledger, fault = _ledger_of(spec)
    document = adaptive_document(best)
    if ledger is not None:
        stored = ledger.answer(best.digest()) is not None
        within = InLedger(ledger.price(best.cost, delta=best.budget.delta), stored, None)
        document["ledger"] = within.as_json()
        fault = within.describe()
    output.result(
        document,
        heading(f"Adaptive plan of {spec.path}", "no data touched, nothing spent"),
        _adaptive_facts(best),
        *_ledger_fault(fault),
    )


def _ledger_fault(fault: str | None) -> list[Table]:
    return [] if fault is None else [facts([("ledger", fault)])]


def _ledger_of(spec: Spec) -> tuple[PlanLedger | None, str | None]:
    """What the ledger of a spec has left, or why it cannot be read; a new one has its total."""
    from sfumato.ledger.ledger import Ledger
    from sfumato.run.linear import NewLedger

    at = spec.ledger
    if at is None:
        return None, None
    try:
        if Ledger.exists(at.path):
            return Ledger.open(at.path), None
    except LedgerError as error:
        return None, f"cannot be read, so nothing is said of what is left: {error}"
    total = at.total or spec.budget
    return (None if total is None else NewLedger(total)), None


def _advice(
    spec: Spec, best: Plan, records: int, progress: Progress | None
) -> Recommendation | None:
    """What is recommended for so many records; None for more queries than can be tried."""
    from sfumato.run.advice import recommend
    from sfumato.run.public_records import check_public
    from sfumato.run.run_limits import LIMITS as RUN_LIMITS

    check_public(spec.public, spec.source)
    if spec.workload.queries > RUN_LIMITS.trial_queries:
        return None
    return recommend(
        spec.workload,
        best.budget,
        records,
        spec.neighbours,
        objective=best.objective,
        unit=spec.unit,
        public=spec.public,
        planned=best,
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


def certificate_in_words(plan: Forecast) -> str:
    """How far the error is from the best possible, if that is known.

    A factorization is any linear unbiased mechanism with noise of the kinds that are named.
    """
    if plan.certificate is None:
        return "not known for this workload, noise and objective"
    return (
        f"{plan.certificate:.4f} times a lower bound on the error of every factorization with "
        f"{plan.certified_among}"
    )


def rmse_facts(plan: Forecast) -> list[tuple[str, str]]:
    """The forecast error; groups of unequal weight, such as sums beside counts, by it as well."""
    if plan.workload.has_one_weight:
        return [("forecast rmse", f"{counts(plan.rmse)} counts, over all queries")]
    return [
        ("forecast rmse", f"{counts(plan.rmse)} over all queries, each in its own unit"),
        ("weighted rmse", f"{counts(plan.weighted_rmse)} counts: what was made small; see groups"),
    ]


def _queries_in_words(work: Workload) -> str:
    return f"{work.queries:,} in {len(work.terms):,} groups over {len(work.domain)} attributes"


def _plan_facts(plan: Plan, after: AfterProjection | None) -> Table:
    """The plan in a few lines."""
    from sfumato.release.provenance import cost_in_words

    work = plan.workload
    unit = " counts" if work.has_one_weight else ""
    return facts(
        [
            ("queries", _queries_in_words(work)),
            ("budget", plan.budget.describe()),
            ("neighbours", neighbours_in_words(plan.neighbours, plan.unit)),
            ("mechanism", plan.mechanism),
            *rmse_facts(plan.forecast),
            *(() if after is None else [("after projection", after.describe())]),
            ("largest error", f"{counts(plan.largest_error)}{unit}, of the worst query"),
            ("gamma", f"{plan.gamma:.4g} (the rmse at unit noise)"),
            ("certificate", certificate_in_words(plan.forecast)),
            *([("stopped early", STOPPED)] if plan.stopped_early else []),
            ("cost", cost_in_words(plan.cost, plan.budget)),
            *([] if plan.in_ledger is None else [("ledger", plan.in_ledger.describe())]),
        ]
    )


def _error(value: float | None, records: int) -> str:
    """An error in counts, or as a share of so many records."""
    return counts(None if value is None else value / records)


def _groups_table(groups: Sequence[GroupForecast], show_all: bool, records: int = 1) -> Table:
    """The forecast of each group; of many groups the first and the last few."""
    rows = [
        (g.name, f"{g.queries:,}", _error(g.rmse, records), _error(g.largest, records))
        for g in groups
    ]
    first, last = LIMITS.first_groups, LIMITS.last_groups
    hidden = len(rows) - first - last
    if hidden > 1 and not show_all:
        rows[first:-last] = [(f"... {hidden} more, see --all", "", "", "")]
    return table(["group", "queries", "rmse", "largest"], rows)


def _adaptive_facts(plan: AdaptivePlan) -> Table:
    """The plan in a few lines."""
    from sfumato.release.provenance import cost_in_words

    rows = [
        ("queries", _queries_in_words(plan.workload)),
        ("budget", plan.budget.describe()),
        ("neighbours", neighbours_in_words(plan.neighbours, plan.unit)),
        ("mechanism", plan.mechanism),
        ("measured", _MEASURED[plan.method]),
        ("rounds", f"up to {plan.rounds:,}" if plan.method == "tables" else f"{plan.rounds:,}"),
    ]
    if plan.candidates:
        rows.append(("candidates", f"{len(plan.candidates):,} tables may be chosen"))
    return facts(
        [
            *rows,
            ("memory", f"about {plan.memory / 2**20:,.0f} MiB"),
            ("time", f"about {plan.seconds:,.0f} s after counting"),
            ("forecast", NO_FORECAST),
            ("cost", cost_in_words(plan.cost, plan.budget)),
        ]
    )


def plan_document(plan: Forecast, after: AfterProjection | None = None) -> dict[str, object]:
    """A plan as JSON: the keys are described in docs/cli.md and stay stable."""
    unit = plan.unit
    return {
        "queries": plan.workload.queries,
        "mechanism": plan.mechanism,
        "rmse": plan.rmse,
        "largest": plan.largest_error,
        "gamma": plan.gamma,
        "certificate": plan.certificate,
        "certified_noise": None if plan.certificate is None else list(plan.certified_noise),
        "stopped_early": plan.stopped_early,
        "objective": plan.objective,
        "budget": budget_document(plan.budget),
        "cost": plan.cost.as_json(),
        "neighbours": plan.neighbours,
        "unit": unit and unit.as_json(),
        "groups": [
            {"name": g.name, "queries": g.queries, "rmse": g.rmse, "largest": g.largest}
            for g in plan.groups
        ],
        "candidates": [
            {
                "mechanism": c.mechanism,
                "algorithm": c.algorithm or None,
                "rmse": c.rmse,
                "largest": c.largest,
                "note": c.note,
                "is_chosen": c.is_chosen,
            }
            for c in plan.candidates
        ],
        "after_projection": None if after is None else after.as_json(),
    }


def adaptive_document(plan: AdaptivePlan) -> dict[str, object]:
    """The plan as JSON: the keys are described in docs/cli.md and stay stable."""
    unit = plan.unit
    return {
        "queries": plan.workload.queries,
        "mechanism": plan.mechanism,
        **dict.fromkeys(
            ("rmse", "largest", "gamma", "certificate", "certified_noise", "objective")
        ),
        "stopped_early": False,
        "budget": budget_document(plan.budget),
        "cost": plan.cost.as_json(),
        "neighbours": plan.neighbours,
        "unit": unit and unit.as_json(),
        "groups": [
            {"name": t.name, "queries": t.rows, "rmse": None, "largest": None}
            for t in plan.workload.terms
        ],
        "candidates": [],
        "after_projection": None,
        "recommendation": None,
        "resources": None,
        "ledger": None,
        "rounds": plan.rounds,
        "candidate_tables": len(plan.candidates),
        "memory": plan.memory,
        "seconds": plan.seconds,
    }
