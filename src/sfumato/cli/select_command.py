# SPDX-License-Identifier: Apache-2.0
"""``sfumato select``: the best few of public candidates, and nothing about the others.

The candidates are the queries of a spec file, or the groups of a SELECT; [selection] and the
options say how many. What holds of the chosen ones is said before anything is spent, on a terminal
with a question. The selection itself is ``SelectionPlan.release``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.options import (
    Json,
    Key,
    LedgerPath,
    Quiet,
    SpecFile,
    Yes,
    command_app,
    examples,
    flag,
)
from sfumato.cli.output import Output, counts, facts, heading, neighbours_in_words, table
from sfumato.cli.release_command import (
    check_left,
    interrupted,
    ledger_document,
    ledger_in_words,
    ledger_to_be,
    made_ledger,
    open_ledger,
    spending_question,
)
from sfumato.errors import PlanError
from sfumato.ledger.entries import check_name
from sfumato.text import STORED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table as Shown

    from sfumato.cli.spec import Spec
    from sfumato.ledger.ledger import Ledger
    from sfumato.run.choose import Selection, SelectionPlan

__all__ = ["app", "select"]


_NO_LEDGER = "nothing would remember what this selection spends"
_BY_SQL = "SELECT sex, age FROM data GROUP BY sex, age ORDER BY COUNT(*) DESC LIMIT 3"

app = command_app()


@app.command(
    epilog=examples(
        "sfumato select people.toml --top 3",
        "sfumato select people.toml --top 3 --counts --estimate",
        f'sfumato select people.toml --sql "{_BY_SQL}" --yes',
        "sfumato select people.toml --smallest --mechanism exponential --json",
    )
)
def select(
    path: SpecFile,
    sql: Annotated[
        str | None,
        typer.Option(
            metavar="SELECT",
            help="Choose among the groups of SELECT ... GROUP BY ... ORDER BY COUNT(*) DESC "
            "LIMIT N, in place of the queries of the spec.",
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="How many are chosen (default: of the spec, or 1)."),
    ] = None,
    smallest: Annotated[
        bool, flag("--smallest", text="Choose the smallest instead of the largest.")
    ] = False,
    nearest: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Choose what is nearest to this share of all records: of running totals, 0.5 is "
            "the median.",
        ),
    ] = None,
    with_counts: Annotated[
        bool, flag("--counts", text="Also tell the counts of the chosen ones, with intervals.")
    ] = False,
    mechanism: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="permute-and-flip, exponential, laplace-counts or gaussian-counts; default is "
            "the best forecast.",
        ),
    ] = None,
    estimate: Annotated[
        bool, flag("--estimate", text="Say how good the chosen ones would be; spends nothing.")
    ] = False,
    ledger_path: LedgerPath = None,
    no_ledger: Annotated[
        bool, flag("--no-ledger", text="Select without a ledger: you keep track of the budget.")
    ] = False,
    key: Key = None,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Choose the best few of public candidates, such as the most common values.

    Candidates are the queries of the spec, or the groups of a SELECT. Which
    ones are chosen is told, and how much better another one can be; nothing
    is told about the others. The cost is debited in the ledger before any
    noise is drawn, and the same selection again costs nothing.
    """
    from sfumato.cli.spec import ledger_to_debit, read_spec

    output = Output(json, quiet)
    spec = read_spec(path, needs_workload=sql is None)
    if key is not None:
        check_name(key, "--key")
    plan = _plan(spec, sql, _changes(top, smallest, nearest, with_counts, mechanism))
    if estimate:
        output.result(plan.as_json(), heading("Nothing was spent"), _forecast(plan))
        return
    at = ledger_to_debit(spec.path, spec.ledger, ledger_path, no_ledger, _NO_LEDGER)
    from sfumato.vault.encode import check_columns
    from sfumato.vault.tables import name_of, open_table, public_name

    # Refused before anybody is asked and before a ledger is created; a run checks it again.
    source = open_table(spec.table())
    check_columns(source, plan.workload.domain, spec.unit)
    name = name_of(source, spec.name) or public_name(source)
    ledger = None if at is None else open_ledger(at, plan, name, spec)
    plan = plan if ledger is None else plan.fitting(ledger, key=key)
    is_stored = ledger is not None and plan.stored_key(ledger, key=key) is not None
    if ledger is not None and not is_stored:
        ledger.check_unit(plan.unit or "row")
        check_left(ledger, plan, "selection")
    if not (is_stored or yes):
        promise = f"{plan.guarantee[0].upper()}{plan.guarantee[1:]}."
        output.confirm(f"{promise} {spending_question(plan, at, ledger, 'selection')}")
    debited = ledger_to_be(at, plan, name, ledger)
    try:
        with output.bars() as bars:
            result = plan.release(source, debited, name=name, key=key, progress=bars.of_release())
    except KeyboardInterrupt:
        output.note(interrupted(debited, key or plan.digest()))
        raise
    ledger = made_ledger(debited, output)
    title = f"Selected {plan.top:,} of {plan.candidates:,} candidates"
    output.result(
        _document(result, ledger),
        heading(title, STORED if result.is_stored else ""),
        _choices(result),
        _facts(result, ledger),
    )


def _changes(
    top: int | None, smallest: bool, nearest: str | None, with_counts: bool, mechanism: str | None
) -> dict[str, object]:
    """What the options say in the place of [selection]."""
    changes: dict[str, object] = {}
    if mechanism is not None:
        changes["mechanism"] = mechanism
    if top is not None:
        changes["top"] = top
    if smallest:
        changes |= {"which": "smallest", "nearest": None}
    if nearest is not None:
        changes |= {"nearest": nearest, "which": "smallest" if smallest else None}
    if with_counts:
        changes["counts"] = True
    return changes


def _plan(spec: Spec, sql: str | None, changes: Mapping[str, object]) -> SelectionPlan:
    """The plan of the spec, with what the options say in its place."""
    if sql is not None and set(changes) - {"mechanism"}:
        raise PlanError(
            "--sql says by LIMIT how many, by the order which, and by COUNT(*) whether counts are "
            "told; leave --top, --smallest, --nearest and --counts out"
        )
    chosen = spec.selection.model_copy(update=dict(changes))
    return replace(spec, selection=chosen).plan_selection(sql)


def _forecast(plan: SelectionPlan) -> Shown:
    """What the plan promises, and what the other mechanisms would."""
    from sfumato.release.provenance import cost_in_words

    best = {each.mechanism: each for each in reversed(plan.mechanisms)}
    others = "; ".join(
        f"{each.mechanism}: {counts(each.tolerance)}"
        + ("" if each.half_width is None else f", counts within {counts(each.half_width)}")
        for each in plan.mechanisms
        if each is best[each.mechanism]
    )
    return facts(
        [
            ("candidates", f"{plan.candidates:,}, of which the {plan.top:,} {plan.aim}"),
            ("budget", plan.budget.describe()),
            ("neighbours", neighbours_in_words(plan.neighbours, plan.unit)),
            ("cost", cost_in_words(plan.cost, plan.budget)),
            ("mechanism", plan.mechanism),
            ("promise", plan.guarantee),
            ("another is better by at most", others),
        ]
    )


def _choices(result: Selection) -> Shown:
    """The chosen ones, one on a line."""
    names = ["candidate", "rank", *(["value", "low", "high"] if result.plan.counts else [])]
    rows = []
    for choice in result.choices:
        row = [choice.name, str(choice.rank)]
        if choice.value is not None:
            row += [counts(choice.value), counts(choice.low), counts(choice.high)]
        rows.append(row)
    return table(names, rows)


def _facts(result: Selection, ledger: Ledger | None) -> Shown:
    from sfumato.release.provenance import cost_in_words

    plan = result.plan
    cost = cost_in_words(plan.cost, plan.budget)
    spent = f"nothing now; {cost} when it was first selected" if result.is_stored else cost
    return facts(
        [
            ("promise", plan.guarantee),
            ("budget", plan.budget.describe()),
            ("neighbours", neighbours_in_words(plan.neighbours, plan.unit)),
            ("spent", spent),
            ("mechanism", plan.mechanism),
            ("ledger", ledger_in_words(ledger)),
        ]
    )


def _document(result: Selection, ledger: Ledger | None) -> dict[str, object]:
    """A selection as JSON: what was chosen, what holds of it, and what it left."""
    paid = result.entry
    entry = None if paid is None else {"sequence": paid.sequence, "hash": paid.hash}
    return {
        **result.as_json(),
        "is_stored": result.is_stored,
        "ledger": ledger_document(entry, ledger),
    }
