# SPDX-License-Identifier: Apache-2.0
"""``sfumato describe``: every column of a table summarised, from nothing but the table.

What is found and at which price is said before anything is spent, on a terminal with a question.
The description itself is ``DescriptionPlan.release``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sfumato.cli.cli_limits import LIMITS
from sfumato.cli.options import (
    Csv,
    Json,
    Quiet,
    Source,
    Yes,
    command_app,
    csv_declarations,
    csv_source,
    data_lines,
    examples,
    flag,
)
from sfumato.cli.output import Output, check_folder, check_ledger_folder, facts, heading, write_text
from sfumato.cli.release_command import ledger_in_words, made_ledger
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.domain.shipped_tables import is_shipped
from sfumato.errors import LedgerError, PlanError
from sfumato.privacy.budget import Budget
from sfumato.text import STORED, listing

if TYPE_CHECKING:
    from rich.table import Table as Shown

    from sfumato.ledger.ledger import Ledger, LedgerToCreate
    from sfumato.run.describe import Description, DescriptionPlan

__all__ = ["app", "describe"]

NEXT: Final = "release.toml"
"""The file for what is released next, beside the completed schema."""

app = command_app()


@app.command(
    epilog=examples(
        "sfumato describe people.parquet --epsilon 1 --ledger people.ledger --create",
        "sfumato describe people.csv --kind age=integer --kind visit=datetime --no-ledger",
        "sfumato describe demo:adult --columns age --columns sex --no-ledger --out out",
        "sfumato describe people.parquet --dry-run --records 10000 --shape pareto",
        "sfumato describe leute.csv --csv encoding=cp1252 --csv decimal=, --no-ledger",
        "sfumato describe people.csv --ledger people.ledger --create --total-epsilon 3 --out first",
    )
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
    total_epsilon: Annotated[
        str | None,
        typer.Option(metavar="E", help="Total of a new ledger, for what follows as well."),
    ] = None,
    total_delta: Annotated[
        str | None, typer.Option(metavar="D", help="Its delta (default: that of --delta).")
    ] = None,
    no_ledger: Annotated[
        bool, flag("--no-ledger", text="Describe without a ledger: you keep track of the budget.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write report.html, schema.toml, the answers and release.toml, a file for what "
            "is released next, here.",
        ),
    ] = None,
    csv: Csv = None,
    dry_run: Annotated[
        bool, flag("--dry-run", text="Say what may be found, and spend nothing.")
    ] = False,
    records: Annotated[
        int, typer.Option(metavar="N", min=0, help="Records of a made-up table, for --dry-run.")
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
    nothing, and schema.toml holds what was found, for further releases:
    release.toml beside it can be planned and released as it is.
    """
    from sfumato.run.describe import plan_description
    from sfumato.vault.tables import name_of, open_table, public_name

    output = Output(json, quiet)
    person = _unit(unit, rows_per_unit)
    opened = open_table(csv_source(source, csv or ()))
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
        with output.bars() as bars:
            simulated = plan.simulated(records, shape, bars.phase("forecasting"))
        about = {"records": records, "found": simulated, "standard_errors": plan.noise_range}
        output.result(
            {**plan.as_json(), "simulated": about},
            heading("Nothing was spent"),
            _forecast(plan, simulated, records),
        )
        return
    if out is not None:
        check_folder(out)
    name = name_of(opened) or public_name(opened)
    total = _total(budget, total_epsilon, total_delta, create)
    ledger = _ledger(plan, name, ledger_path, total if create else None, no_ledger, output, yes)
    with output.bars() as bars:
        result = plan.release(opened, ledger, name=name, progress=bars.of_release())
    ledger = made_ledger(ledger, output)
    files = {} if out is None else result.save(out)
    if out is not None and (out / NEXT).exists():
        output.note(f"{out / NEXT} was there and may hold your work: it was left as it is.")
    elif out is not None:
        write_text(out / NEXT, _next(result, source, csv or (), name, ledger, out))
        files[NEXT] = out / NEXT
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


def _total(budget: Budget, epsilon: str | None, delta: str | None, create: bool) -> Budget:
    """The total of a ledger that is created: that of the description, or a larger one."""
    if epsilon is None and delta is None:
        return budget
    if not create:
        raise PlanError("--total-epsilon and --total-delta are for a new ledger; give --create")
    total = Budget(
        budget.epsilon if epsilon is None else epsilon, budget.delta if delta is None else delta
    )
    if not budget.is_within(total):
        raise PlanError(
            f"the description takes {budget.describe()}, and the total of the ledger is to be "
            f"{total.describe()}; raise the total"
        )
    return total


def _next(
    result: Description,
    source: str,
    pairs: Sequence[str],
    name: str,
    ledger: Ledger | None,
    out: Path,
) -> str:
    """The text of a spec for what is released next; paths in it start at its folder."""
    from sfumato.domain.draft import next_release_file
    from sfumato.privacy.budget import number_text

    plan, domain = result.plan, result.domain
    assert domain is not None  # noqa: S101  result.save
    data: dict[str, object] = csv_declarations(pairs)
    lines = data_lines(data)
    if plan.unit is not None:
        lines += data_lines({"unit": plan.unit.column}) + f"rows_per_unit = {plan.unit.rows}\n"
    place = None
    if ledger is not None:
        place = ledger.place if "://" in ledger.place else _placed(ledger.place, out)
    epsilon, delta = _left(plan, ledger)
    amounts = {"epsilon": epsilon or plan.budget.epsilon, "delta": delta or plan.budget.delta}
    return next_release_file(
        name,
        _source(source, out),
        "schema.toml",
        NEXT,
        neighbours=plan.neighbours,
        columns=len(domain),
        data=lines,
        budget={key: number_text(Fraction(amount)) for key, amount in amounts.items() if amount},
        left=bool(epsilon),
        ledger=place,
    )


def _source(source: str, out: Path) -> str:
    """A source as a file in the folder has to name it."""
    from sfumato.vault.sources import engine_source

    if is_shipped(source) or engine_source(source) is not None or "://" in source:
        return source
    return _placed(source, out)


def _placed(path: str, folder: Path) -> str:
    """A path as a file in the folder has to name it."""
    return os.path.relpath(Path(path).absolute(), folder.absolute())


def _left(plan: DescriptionPlan, ledger: Ledger | None) -> tuple[Fraction, Fraction | None]:
    """The epsilon and delta that a ledger has left for one more release; 0 where that is little."""
    if ledger is None:
        return Fraction(0), None
    left = ledger.remaining()
    delta = left.delta if left.delta else None
    epsilon = left.epsilon("gaussian" if delta else "pure")
    usable = LIMITS.least_share_left * (plan.budget.epsilon or 0)
    return (epsilon, delta) if epsilon >= usable else (Fraction(0), None)


def _ledger(
    plan: DescriptionPlan,
    name: str,
    path: str | None,
    total: Budget | None,
    no_ledger: bool,
    output: Output,
    yes: bool,
) -> Ledger | LedgerToCreate | None:
    """The ledger that is debited, or is created then; asks before anything is spent."""
    from sfumato.ledger.ledger import Ledger, LedgerToCreate, Terms

    if (path is None) == (not no_ledger):
        raise LedgerError(
            "say where the description is debited: --ledger PATH (with --create for a new one), or "
            "--no-ledger if nothing is to remember what it spends"
        )
    whole = total or plan.budget
    terms = Terms(name, plan.neighbours, plan.unit or "row", whole)
    is_new = path is not None and total is not None and not Ledger.exists(path)
    ledger = None if path is None or is_new else terms.open(path)
    if not yes:
        where = f" The ledger {path} is created for {whole.describe()}." if is_new else ""
        output.confirm(
            f"This description spends at most {plan.budget.describe()}, less if it is stored."
            f"{where}"
        )
    if is_new:
        assert path is not None  # noqa: S101  is_new
        check_ledger_folder(path)
        return LedgerToCreate(terms, path)
    return ledger


def _forecast(plan: DescriptionPlan, simulated: dict[str, str], records: int) -> Shown:
    rows = [("budget", plan.budget.describe())]
    if plan.vote is not None:
        rows.append(("vote", f"{plan.vote.budget.describe()}: {plan.vote_in_words()}"))
    if plan.discovery is not None:
        rows.append(("discovery", plan.discovery.budget.describe()))
    rows += _alike(plan.searches_in_words())
    rows.append(("release", f"{plan.rest.describe()}: {plan.error_in_words()}"))
    made_up = _alike(simulated)
    rows += [(f"{name}, {records:,} made-up records", text) for name, text in made_up]
    rows += [(f"left out: {name}", why) for name, why in plan.left_out.items()]
    return facts(rows)


def _alike(texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """A row for each column, or one for several of which the same is to be said."""
    names: dict[str, list[str]] = {}
    for name, text in texts.items():
        names.setdefault(text, []).append(name)
    return [
        (several[0], text)
        if len(several) == 1
        else (f"{len(several):,} columns", f"{listing(several)}: {text}")
        for text, several in names.items()
    ]


def _summary(result: Description) -> Shown:
    from sfumato.release.report import sentences

    return facts(sentences(result.frame))


def _facts(result: Description, ledger: Ledger | None, files: dict[str, Path]) -> Shown:
    plan = result.plan
    spent = "nothing now" if result.is_stored else f"within {plan.budget.describe()}"
    rows = [("note", result.remark)] if result.remark else []
    rows += [("spent", spent), ("ledger", ledger_in_words(ledger))]
    rows += [(name, str(path)) for name, path in files.items()]
    return facts(rows)


def _document(result: Description, files: dict[str, Path]) -> dict[str, object]:
    import json

    return {
        "columns": json.loads(result.frame.to_json(orient="records", date_format="iso")),
        "left_out": dict(result.plan.left_out),
        "remark": result.remark,
        "is_stored": result.is_stored,
        "schema": None if result.domain is None else result.to_toml(),
        "files": {name: str(path) for name, path in files.items()},
    }
