# SPDX-License-Identifier: Apache-2.0
"""``sfumato release``: plan, debit, measure, and write the answers with a report.

Everything that can be refused is refused before anything is spent: folder, columns, key, budget.
The release itself is ``Plan.release`` or ``AdaptivePlan.release``; here is what the command adds:
the ledger that the options name, a question on the terminal, files, and what is printed.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.options import (
    Error,
    Json,
    Key,
    LedgerPath,
    Mechanism,
    Quiet,
    SpecFile,
    Yes,
    command_app,
    examples,
    flag,
)
from sfumato.cli.output import (
    Output,
    budget_document,
    check_folder,
    check_ledger_folder,
    facts,
    heading,
    neighbours_in_words,
)
from sfumato.cli.plan_command import NO_FORECAST, certificate_in_words, rmse_facts
from sfumato.domain.privacy_unit import counted_rows
from sfumato.errors import BudgetExhausted, LedgerError, PlanError, SchemaError
from sfumato.ledger.account import Account
from sfumato.ledger.entries import check_name
from sfumato.ledger.ledger import LedgerToCreate, Terms, obey_total
from sfumato.text import STORED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table as Shown

    from sfumato.cli.spec import LedgerSpec, OpenSpec, Spec
    from sfumato.ledger.ledger import Ledger
    from sfumato.planning.forecast import Forecast
    from sfumato.refine.intervals import Intervals
    from sfumato.release.provenance import Payable
    from sfumato.release.release import Release
    from sfumato.run.adaptive import AdaptivePlan
    from sfumato.run.discover import Discovery
    from sfumato.run.linear import Plan
    from sfumato.types import Progress
    from sfumato.vault.tables import Table

__all__ = [
    "app",
    "check_left",
    "discover_spec",
    "interrupted",
    "ledger_document",
    "ledger_in_words",
    "ledger_terms",
    "ledger_to_be",
    "made_ledger",
    "open_ledger",
    "published",
    "release",
    "spending_question",
]


_NO_LEDGER = "nothing would remember what this release spends"

app = command_app()


@app.command(
    epilog=examples(
        "sfumato release release.toml",
        "sfumato release release.toml --out results --notebook --fact-sheet",
        "sfumato release release.toml --ledger people.ledger --key 2026-q1",
        "sfumato release release.toml --synthetic 10000 --yes",
        "sfumato release release.toml --intervals calibrated",
    )
)
def release(
    path: SpecFile,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the files go (default: release.out of the spec)."),
    ] = None,
    ledger_path: LedgerPath = None,
    no_ledger: Annotated[
        bool, flag("--no-ledger", text="Release without a ledger: you keep track of the budget.")
    ] = False,
    mechanism: Mechanism = None,
    error: Error = None,
    notebook: Annotated[
        bool, flag("--notebook", text="Also write a notebook that reads the release.")
    ] = False,
    facts_page: Annotated[
        bool, flag("--fact-sheet", text="Also write a page of facts for the public, as Markdown.")
    ] = False,
    synthetic: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Also write N synthetic records, at no extra cost."),
    ] = None,
    csv: Annotated[
        bool, flag("--csv", text="Also write answers and synthetic records as CSV files.")
    ] = False,
    shares: Annotated[
        bool,
        flag("--shares", text="Write shares of the public number of records beside the counts."),
    ] = False,
    intervals: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="noise: they hold as often as they say; calibrated: as short as the answers are "
            "sharp, not proved; bootstrap: approximate (default: release.intervals of the spec, "
            "or noise).",
        ),
    ] = None,
    key: Key = None,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count, debit, measure, and write the answers and a report.

    Writes answers.parquet, report.html and provenance.json. The cost is
    debited in the ledger before any noise is drawn. Running the same spec
    again returns the stored answer and costs nothing. On a terminal you are
    asked before anything is spent; without one, --yes is needed.
    """
    from sfumato.cli.spec import ledger_to_debit
    from sfumato.refine.synthesize import check_records
    from sfumato.release.export import replaced, write_notebook
    from sfumato.release.release import FACT_SHEET
    from sfumato.vault.encode import check_columns
    from sfumato.vault.tables import name_of, open_table, public_name

    output = Output(json, quiet)
    at, spec = _closed_spec(path, ledger_path, no_ledger, output, yes)
    spec = spec.with_options(mechanism, error)
    spec = spec.with_shares() if shares else spec
    kind = _intervals(spec, intervals)
    if synthetic is not None:
        check_records(spec.domain, synthetic)
    if key is not None:
        check_name(key, "--key")
    at = at or ledger_to_debit(spec.path, spec.ledger, ledger_path, no_ledger, _NO_LEDGER)
    folder = out or spec.out
    check_folder(folder)
    plan: Plan | AdaptivePlan
    if spec.adaptive is None:
        plan = _linear_plan(spec, at, key, output)
    else:
        plan = _adaptive_plan(spec, notebook, intervals)

    # Refused before anybody is asked and before a ledger is created; a run checks it again.
    table = open_table(spec.table())
    check_columns(table, spec.domain, spec.unit)
    plan = _for_table(plan, table, output)
    _check_shares(spec, table)
    name = name_of(table, spec.name) or public_name(table)
    ledger = None if at is None else open_ledger(at, plan, name, spec)
    is_stored = ledger is not None and plan.stored_key(ledger, key=key) is not None
    if ledger is not None and not is_stored:
        _check_debit(ledger, plan, key)
    if table.untyped:
        output.note(
            f"{table.name}: what cannot be read (not UTF-8, another number of values than the "
            "first line) is a record of nulls, which go where the schema says."
        )
    if not (is_stored or yes):
        output.confirm(spending_question(plan, at, ledger))
    debited = ledger_to_be(at, plan, name, ledger)
    try:
        with output.bars() as bars:
            result = _release(plan, table, debited, spec, kind, name, key, bars.of_release())
            ledger = made_ledger(debited, output)
            files = result.save(
                folder,
                level=spec.level,
                synthetic=synthetic or False,
                csv=csv,
                shares=_has_shares(spec, result, output),
            )
            if facts_page:
                files["fact_sheet"] = folder / FACT_SHEET
                with replaced(files["fact_sheet"]) as hidden:
                    hidden.write_text(result.fact_sheet(), encoding="utf-8")
            if notebook:
                files["notebook"] = folder / "notebook.ipynb"
                write_notebook(files["notebook"], os.path.relpath(path, folder), ".")
            document, shown = published(plan, result, files, ledger)
    except KeyboardInterrupt:
        output.note(interrupted(debited, key or plan.digest()))
        raise
    queries = plan.workload.queries
    answers = "1 answer" if queries == 1 else f"{queries:,} answers"
    remark = STORED if document["is_stored"] else ""
    output.result(document, heading(f"Released {answers}", remark), shown)


def discover_spec(
    opened: OpenSpec,
    at: LedgerSpec | None,
    output: Output,
    yes: bool,
    ledgers: list[Ledger | None] | None = None,
) -> Discovery:
    """Discover what a spec leaves open: its stored answer, or a new one, agreed to and debited.

    ``ledgers`` receives the ledger that was debited.

    Privacy: that of ``DiscoveryPlan.release``; what is shown depends on public numbers only.
    """
    from sfumato.vault.encode import check_columns
    from sfumato.vault.tables import name_of, open_table, public_name

    if opened.source is None:
        raise SchemaError(
            f"{opened.path}: data: the key 'source' is missing, so there is nothing to discover; "
            'name the table, for example source = "people.parquet"'
        )
    plan = opened.plan()
    # Refused before anybody is asked and before a ledger is created; a run checks it again.
    source = open_table(opened.source)
    check_columns(source, opened.domain, opened.unit)
    name = name_of(source, opened.name) or public_name(source)
    ledger = None if at is None else open_ledger(at, plan, name, opened)
    is_stored = ledger is not None and plan.stored_key(ledger) is not None
    if ledger is not None and not is_stored:
        ledger.check_unit(plan.unit or "row")
        check_left(ledger, plan, "discovery")
    if not (is_stored or yes):
        question = spending_question(plan, at, ledger, "discovery")
        output.confirm(f"{plan.guarantee}. {question}")
    debited = ledger_to_be(at, plan, name, ledger)
    try:
        with output.bars() as bars:
            result = plan.release(source, debited, name=name, progress=bars.of_release())
    except KeyboardInterrupt:
        output.note(interrupted(debited, plan.digest()))
        raise
    ledger = made_ledger(debited, output)
    if ledgers is not None:
        ledgers.append(ledger)
    return result


def discover_all(
    opened: OpenSpec,
    at: LedgerSpec | None,
    output: Output,
    yes: bool,
    ledgers: list[Ledger | None] | None = None,
) -> tuple[OpenSpec, Discovery]:
    """The last discovery of a spec with its result: the bound of a unit comes before its schema.

    Privacy: that of `discover_spec`, one after the other.
    """
    result = discover_spec(opened, at, output, yes, ledgers)
    following = opened.after(result)
    if following is None:
        return opened, result
    unit = result.unit
    assert unit is not None  # noqa: S101  of a bound
    output.note(f"At most {counted_rows(unit)} counted, of each value of {unit.column!r}.")
    return following, discover_spec(following, at, output, yes, ledgers)


def _closed_spec(
    path: Path, ledger_path: str | None, no_ledger: bool, output: Output, yes: bool
) -> tuple[LedgerSpec | None, Spec]:
    """The spec on a closed domain: what its schema leaves open is discovered first, and paid for.

    With the ledger of a discovery, if there was one: its total is that of both.
    """
    from sfumato.cli.spec import ledger_to_debit, open_spec, read_spec

    opened = open_spec(path)
    if opened is None:
        return None, read_spec(path)
    at = ledger_to_debit(opened.path, opened.ledger, ledger_path, no_ledger, _NO_LEDGER)
    if at is not None and at.total is None and at.total_if_new is None:
        at = replace(at, total_if_new=opened.total)
    opened, result = discover_all(opened, at, output, yes)
    spec = opened.closed(result)
    open_columns = (a for a in opened.domain.open if not opened.is_of_bound)
    left_out = [a.name for a in open_columns if not set(a.columns) & set(spec.domain.names)]
    if left_out:
        output.note(f"{', '.join(left_out)}: no value is shared by enough people; left out.")
    return at, spec


def _release(
    plan: Plan | AdaptivePlan,
    table: Table,
    ledger: Ledger | LedgerToCreate | None,
    spec: Spec,
    intervals: Intervals,
    name: str,
    key: str | None,
    progress: Progress | None,
) -> Release:
    """Count, debit, measure, publish.

    Privacy: that of ``Plan.release``; what is shown depends on public numbers only.
    """
    from sfumato.run.linear import Plan

    if not isinstance(plan, Plan):
        return plan.release(
            table,
            ledger=ledger,
            constraints=spec.constraints,
            name=name,
            key=key,
            progress=progress,
        )
    return plan.release(
        table,
        ledger=ledger,
        project=spec.project,
        constraints=spec.constraints,
        intervals=intervals,
        public=spec.public,
        name=name,
        key=key,
        progress=progress,
    )


def _linear_plan(spec: Spec, at: LedgerSpec | None, key: str | None, output: Output) -> Plan:
    """The plan, one that fits what is left in an existing ledger."""
    from sfumato.ledger.ledger import Ledger

    ledger = Ledger.open(at.path) if at is not None and Ledger.exists(at.path) else None
    with output.bars() as bars:
        return spec.plan(bars.phase("planning"), ledger=ledger, key=key)


def _adaptive_plan(spec: Spec, notebook: bool, intervals: str | None) -> AdaptivePlan:
    if notebook:
        raise PlanError(
            "a notebook shows a forecast, and an adaptive release has none; leave --notebook out"
        )
    if intervals is not None:
        raise PlanError(
            "an adaptive release has intervals for what it measured, from its noise; leave "
            "--intervals out"
        )
    return spec.plan_adaptive()


def _intervals(spec: Spec, option: str | None) -> Intervals:
    if option is None:
        return spec.intervals
    kinds: tuple[Intervals, ...] = ("noise", "calibrated", "bootstrap")
    for kind in kinds:
        if option == kind:
            return kind
    raise PlanError(
        "--intervals is noise (they hold as often as they say), calibrated (as short as the "
        f"answers are sharp, not proved) or bootstrap (approximate), got {option!r}"
    )


def _for_table(plan: Plan | AdaptivePlan, table: Table, output: Output) -> Plan | AdaptivePlan:
    """The plan for this very table: of a view, records may be missing, as of a query."""
    from sfumato.run.linear import Plan

    own = plan.for_source(table) if isinstance(plan, Plan) else plan
    if own is not plan:
        output.note(
            f"{table.name} is a view or an expression, which may drop records: their number is "
            "private under replace-one neighbours, and the release is planned for that."
        )
    return own


def _check_shares(spec: Spec, table: Table) -> None:
    """Refuse shares of a number of records that is private as this very table drops some."""
    if spec.shares and table.may_drop_records:
        raise PlanError(
            f"{spec.path} asks for shares of a public number of records, and {table.name} is a "
            "view or an expression, which may drop records: their number is private; name a stored "
            "table, or ask for no shares"
        )


def _has_shares(spec: Spec, result: Release, output: Output) -> bool:
    """Whether shares are written; what was paid for is published also where there are none."""
    if spec.shares and not result.rows:
        output.note("The table has no records, so there are no shares of them.")
    return spec.shares and bool(result.rows)


def ledger_terms(at: LedgerSpec, plan: Payable, table_id: str) -> Terms:
    """What the ledger of this release is opened with if it is new."""
    total = at.total or at.total_if_new or plan.budget
    return Terms(table_id, plan.neighbours, plan.unit or "row", total)


def ledger_to_be(
    at: LedgerSpec | None, plan: Payable, table_id: str, ledger: Ledger | None
) -> Ledger | LedgerToCreate | None:
    """The ledger of this table, or the one that its first debit creates."""
    if at is None or ledger is not None:
        return ledger
    return LedgerToCreate(ledger_terms(at, plan, table_id), at.path)


def made_ledger(ledger: Ledger | LedgerToCreate | None, output: Output) -> Ledger | None:
    """The ledger that was debited; says so if it is new."""
    if not isinstance(ledger, LedgerToCreate):
        return ledger
    made = ledger.ledger
    if made is not None:
        total = made.budget.describe()
        output.note(f"Created the ledger {ledger.place} with a total of {total}.")
    return made


def open_ledger(
    at: LedgerSpec, plan: Payable, table_id: str, spec: Spec | OpenSpec
) -> Ledger | None:
    """The ledger of this table; None if the spec says that it is to be created.

    A new one is created only if this release fits into it, and after somebody has agreed.
    """
    from sfumato.ledger.ledger import Ledger

    terms = ledger_terms(at, plan, table_id)
    if not at.create or Ledger.exists(at.path):
        advice = f"\nor add create = true to the table [ledger] of {spec.path}"
        ledger = terms.open(at.path, advice=advice if spec.ledger == at else "")
        if at.total is not None:
            obey_total(ledger, at.total, str(spec.path))
        return ledger
    fresh = Account(terms.total)
    if fresh.plus(plan.cost).is_overdrawn:
        raise BudgetExhausted(fresh.refusal(plan.cost))
    check_ledger_folder(at.path)
    return None


def _check_debit(ledger: Ledger, plan: Plan | AdaptivePlan, key: str | None) -> None:
    """Refuse a debit of another unit, of a request that was paid for, or of more than is left."""
    ledger.check_unit(plan.unit or "row")
    if key is None:
        _check_new(ledger, plan)
    check_left(ledger, plan)


def _check_new(ledger: Ledger, plan: Plan | AdaptivePlan) -> None:
    """Refuse to pay twice for one request unless a key says that this is meant.

    A time limit, or the rounding of another machine, can lead to another strategy: then the plan
    has another digest though nothing else was asked for.
    """
    request = json.loads(json.dumps(plan.request()))
    for entry in ledger.entries():
        stored = json.loads(entry.request)
        if entry.state == "answered" and _without_strategy(stored) == _without_strategy(request):
            how = (
                f"give --key {entry.key} to read its answer for nothing"
                if stored == request
                else "by another strategy, as a time limit or another machine can lead to; read "
                "the files of that release"
            )
            raise LedgerError(
                f"entry {entry.sequence} of {ledger.place} has released these questions with this "
                f"budget already; {how}, or --key with a new name to spend again"
            )


def _without_strategy(request: Mapping[str, object]) -> dict[str, object]:
    """A request, without what the planner made of it."""
    return {name: value for name, value in request.items() if name not in ("strategy", "noise")}


def check_left(ledger: Ledger, plan: Payable, what: str = "release") -> None:
    """Refuse before the table is read; the debit itself checks again, in one transaction."""
    from sfumato.release.provenance import cost_in_words

    price = ledger.price(plan.cost, delta=plan.budget.delta)
    if not price.fits:
        raise BudgetExhausted(
            f"budget refused: this {what} costs {cost_in_words(plan.cost, plan.budget)}, it "
            f"{price.describe()}; of the total {ledger.budget.describe()} in {ledger.place}, "
            f"{ledger.remaining().describe()}; lower the cost or ask the curator"
        )


def interrupted(ledger: Ledger | LedgerToCreate | None, key: str) -> str:
    """What an interrupted release has spent."""
    if ledger is None:
        return "There is no ledger: unless it was still counting, take the budget as spent."
    if isinstance(ledger, LedgerToCreate):
        if ledger.ledger is None:
            return "Nothing was spent."
        ledger = ledger.ledger
    if ledger.answer(key) is not None:
        return "The answer is in the ledger: the same command again costs nothing."
    if any(entry.key == key for entry in ledger.entries()):
        return f"The debit is in {ledger.place}, its answer is lost: that much is spent."
    return "Nothing was spent."


def spending_question(
    plan: Payable, at: LedgerSpec | None, ledger: Ledger | None, what: str = "release"
) -> str:
    """What is about to be spent, in one line."""
    from sfumato.release.provenance import cost_in_words

    left = ""
    if ledger is not None:
        price = ledger.price(plan.cost, delta=plan.budget.delta)
        left = f" It {price.describe()} (total {ledger.budget.describe()})."
        within = getattr(plan, "in_ledger", None)
        if within is not None and within.refused is not None:
            left += f" {within.describe().partition('; ')[2]}."
    elif at is not None:
        total = at.total or at.total_if_new or plan.budget
        left = f" The ledger {at.path} is created with a total of {total.describe()}."
    return f"This {what} spends {cost_in_words(plan.cost, plan.budget)}.{left}"


def published(
    plan: Plan | AdaptivePlan, result: Release, files: Mapping[str, Path], ledger: Ledger | None
) -> tuple[dict[str, object], Shown]:
    """A release as JSON and in a few lines: public facts and paths, no answers.

    The document of an adaptive release has the keys of others; those of a forecast are null.
    """
    from sfumato.release.provenance import (
        constraints_in_words,
        cost_in_words,
        first_numbers_in_words,
    )

    forecast = result.estimates.forecast
    made = plan if forecast is None else forecast
    document = _document(made, result)
    places: dict[str, object] = {
        "ledger": ledger_document(result.provenance.get("ledger"), ledger),
        "files": {kind: str(path) for kind, path in files.items()},
    }
    text = constraints_in_words(result.provenance)
    constraints = [("constraints", text)] if text else []
    first = first_numbers_in_words(result.provenance)
    if forecast is not None:
        intervals = result.provenance["intervals"]
        document |= {"intervals": intervals, "constraints": result.provenance["constraints"]}
        document |= places
        rows = [
            *rmse_facts(forecast),
            ("certificate", certificate_in_words(forecast)),
            *constraints,
            ("intervals", str(intervals)),
        ]
    else:
        steps, intervals = len(result.measured()), _intervals_in_words(result)
        document |= places | {"measurements": steps, "intervals": intervals}
        document["constraints"] = result.provenance["constraints"]
        rows = [
            ("measured", f"{steps:,} times, listed in provenance.json"),
            ("intervals", intervals),
            *constraints,
            ("forecast", NO_FORECAST),
        ]
    cost = cost_in_words(made.cost, made.budget)
    spent = f"nothing now; {cost} when it was first released" if result.is_stored else cost
    return document, facts(
        [
            ("budget", made.budget.describe()),
            ("neighbours", neighbours_in_words(made.neighbours, made.unit)),
            ("spent", spent),
            ("mechanism", made.mechanism),
            *([("measured first", first)] if first else []),
            *rows,
            ("ledger", ledger_in_words(ledger)),
            *((kind, str(path)) for kind, path in files.items()),
        ]
    )


def _document(made: Plan | AdaptivePlan | Forecast, result: Release) -> dict[str, object]:
    """What the documents of all releases begin with."""
    forecast = result.estimates.forecast
    return {
        "queries": made.workload.queries,
        "mechanism": made.mechanism,
        "rmse": None if forecast is None else forecast.rmse,
        "largest": None if forecast is None else forecast.largest_error,
        "budget": budget_document(made.budget),
        "cost": made.cost.as_json(),
        "neighbours": made.neighbours,
        "is_stored": result.is_stored,
    }


def _intervals_in_words(result: Release) -> str:
    """How many answers of an adaptive release have an interval."""
    number = sum(map(result.estimates.interval_count, range(len(result.workload.terms))))
    return f"{number:,} of {result.workload.queries:,} answers, from the noise of what was measured"


def ledger_document(entry: object, ledger: Ledger | None) -> dict[str, object] | None:
    """The debit of a release, and what it left."""
    if ledger is None:
        return None
    return {
        "path": ledger.place,
        "entry": entry,
        "remaining_share": float(ledger.remaining().share),
    }


def ledger_in_words(ledger: Ledger | None) -> str:
    """What is left for further releases."""
    if ledger is None:
        return "none: nothing remembers what was spent"
    left = float(100 * ledger.remaining().share)
    return f"{ledger.place}: {left:.4g}% of {ledger.budget.describe()} left"
