# SPDX-License-Identifier: Apache-2.0
"""``sfumato describe``: every column of a table summarised, from nothing but the table.

What is found and at which price is said before anything is spent, on a terminal with a question.
The description itself is ``DescriptionPlan.release``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.options import Json, Quiet, Source, Yes, command_app, examples, flag
from sfumato.cli.output import Output, check_folder, facts, heading
from sfumato.cli.release_command import ledger_in_words
from sfumato.cli.shipped_tables import is_shipped, shipped_table
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import LedgerError, PlanError
from sfumato.privacy.budget import Budget
from sfumato.text import STORED

if TYPE_CHECKING:
    from rich.table import Table as Shown

    from sfumato.ledger.ledger import Ledger
    from sfumato.run.describe import Description, DescriptionPlan

__all__ = [
    "app",
    "describe",
]

app = command_app()


@app.command(
    epilog=examples(
        "sfumato describe people.parquet --epsilon 1 --ledger people.ledger --create",
        "sfumato describe people.csv --kind age=integer --kind visit=datetime --no-ledger",
        "sfumato describe demo:adult --columns age --columns sex --no-ledger --out out",
        "sfumato describe people.parquet --dry-run --records 10000 --shape pareto",
    ),
)
def describe(
    source: Source,
    epsilon: Annotated[
        str, typer.Option(metavar="E", help="The epsilon of the whole description.")
    ] = "1",
    delta: Annotated[
        str,
        typer.Option(metavar="D", help="Its delta; 0 for pure epsilon, without columns of texts."),
    ] = "0.000001",
    columns: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A column to describe (again for more; default: all)."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=KIND",
            help="What a column is, where its type does not say it, in place of a vote: category, "
            "integer, numeric, datetime or boolean.",
        ),
    ] = None,
    neighbours: Annotated[
        str, typer.Option(metavar="WORD", help="add-remove or replace-one.")
    ] = "add-remove",
    unit: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Protect all rows that share a value of this column."),
    ] = None,
    rows_per_unit: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="The most rows of one unit that are counted."),
    ] = None,
    ledger_path: Annotated[
        str | None, typer.Option("--ledger", metavar="PATH", help="The ledger to debit.")
    ] = None,
    create: Annotated[
        bool,
        flag("--create", text="Create the ledger, with this budget as its total, if it is new."),
    ] = False,
    no_ledger: Annotated[
        bool, flag("--no-ledger", text="Describe without a ledger: you keep track of the budget.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write report.html, schema.toml and the answers here."),
    ] = None,
    dry_run: Annotated[
        bool, flag("--dry-run", text="Say what may be found, and spend nothing.")
    ] = False,
    records: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Records of a made-up table, for --dry-run."),
    ] = 10_000,
    shape: Annotated[
        str,
        typer.Option(
            metavar="WORD",
            help="Shape of its numbers: normal, lognormal, pareto, uniform or constant.",
        ),
    ] = "lognormal",
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Describe every column: counts, missing values, ranges, means, quartiles.

    Nothing has to be declared. A part of the budget finds what columns without
    types are (CSV), the values of texts that many people share and the ranges of
    numbers and dates; the rest counts them. The same description again costs
    nothing, and schema.toml holds what was found, for further releases.
    """
    from sfumato.run.describe import plan_description
    from sfumato.vault.tables import name_of, open_table, public_name

    output = Output(json, quiet)
    person = _unit(unit, rows_per_unit)
    place = str(shipped_table(source)) if is_shipped(source) else source
    opened = open_table(place)
    budget = Budget(epsilon=epsilon) if not float(delta) else Budget(epsilon=epsilon, delta=delta)
    plan = plan_description(
        opened,
        budget,
        neighbours,  # type: ignore[arg-type]
        columns=columns,
        kinds=_kinds(kind or ()),
        unit=person,
    )
    if dry_run:
        simulated = plan.simulated(records, shape)
        output.result(
            {**plan.as_json(), "simulated": {"records": records, "found": simulated}},
            heading("Nothing was spent"),
            _forecast(plan, simulated, records),
        )
        return
    if out is not None:
        check_folder(out)
    name = name_of(opened) or public_name(opened)
    ledger = _ledger(plan, name, ledger_path, create, no_ledger, output, yes)
    with output.bars() as bars:
        result = plan.release(opened, ledger, name=name, progress=bars.of_release())
    files = {} if out is None else result.save(out)
    output.result(
        _document(result, files),
        heading(f"Described {source}", STORED if result.is_stored else ""),
        _summary(result),
        _facts(result, ledger, files),
    )


def _unit(column: str | None, rows: int | None) -> PrivacyUnit | None:
    if column is None and rows is None:
        return None
    if column is None or rows is None:
        raise PlanError("--unit COLUMN and --rows-per-unit N belong together; give both")
    return PrivacyUnit(column, rows)


def _kinds(pairs: Sequence[str]) -> dict[str, Any]:
    kinds = {}
    for pair in pairs:
        name, equals, kind = pair.rpartition("=")
        if not equals or not name:
            raise PlanError(f"--kind is NAME=KIND, such as age=integer, got {pair!r}")
        kinds[name] = kind
    return kinds


def _ledger(
    plan: DescriptionPlan,
    name: str,
    path: str | None,
    create: bool,
    no_ledger: bool,
    output: Output,
    yes: bool,
) -> Ledger | None:
    """The ledger that is debited, created if that was asked for; asks before anything is spent."""
    from sfumato.ledger.ledger import Ledger, Terms

    if (path is None) == (not no_ledger):
        raise LedgerError(
            "say where the description is debited: --ledger PATH (with --create for a new one), or "
            "--no-ledger if nothing is to remember what it spends"
        )
    terms = Terms(name, plan.neighbours, plan.unit or "row", plan.budget)
    is_new = path is not None and create and not Ledger.exists(path)
    ledger = None if path is None or is_new else terms.open(path)
    if not yes:
        where = f" The ledger {path} is created with that total." if is_new else ""
        output.confirm(
            f"This description spends at most {plan.budget.describe()}, less if it is stored."
            f"{where}"
        )
    if is_new:
        assert path is not None  # noqa: S101  is_new
        ledger = terms.open_or_create(path)
        output.note(f"Created the ledger {path} with a total of {ledger.budget.describe()}.")
    return ledger


def _forecast(plan: DescriptionPlan, simulated: dict[str, str], records: int) -> Shown:
    rows = [("budget", plan.budget.describe())]
    if plan.vote is not None:
        rows.append(("vote", f"{plan.vote.budget.describe()}: {plan.vote_in_words()}"))
    if plan.discovery is not None:
        rows.append(("discovery", plan.discovery.budget.describe()))
        for search in plan.discovery.searches:
            name = search.attribute.name
            rows.append((name, search.in_words().removeprefix(f"{name}: ")))
    rows.append(("release", f"{plan.rest.describe()}: {plan.error_in_words()}"))
    rows += [(f"{name}, {records:,} made-up records", text) for name, text in simulated.items()]
    rows += [(f"left out: {name}", why) for name, why in plan.left_out.items()]
    return facts(rows)


def _summary(result: Description) -> Shown:
    from sfumato.release.report import sentences

    return facts(sentences(result.frame))


def _facts(result: Description, ledger: Ledger | None, files: dict[str, Path]) -> Shown:
    plan = result.plan
    spent = "nothing now" if result.is_stored else f"within {plan.budget.describe()}"
    rows = [("spent", spent), ("ledger", ledger_in_words(ledger))]
    rows += [(name, str(path)) for name, path in files.items()]
    return facts(rows)


def _document(result: Description, files: dict[str, Path]) -> dict[str, object]:
    import json

    return {
        "columns": json.loads(result.frame.to_json(orient="records", date_format="iso")),
        "left_out": dict(result.plan.left_out),
        "is_stored": result.is_stored,
        "schema": None if result.domain is None else result.to_toml(),
        "files": {name: str(path) for name, path in files.items()},
    }
