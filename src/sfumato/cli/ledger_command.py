# SPDX-License-Identifier: Apache-2.0
"""``sfumato ledger``: create, raise, renew, show, export, verify, freeze, unfreeze.

A ledger is the durable record of what a table has spent. Its total is changed here alone, by
somebody who gives a reason; whatever releases can only debit it.
"""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.options import Json, examples, flag
from sfumato.cli.output import Output, budget_document, check_ledger_folder, facts, heading, table
from sfumato.domain.privacy_unit import PrivacyUnit, Unit, check_unit, unit_in_words, unit_json
from sfumato.errors import LedgerError
from sfumato.ledger.account import UNITS, percent, shares_of
from sfumato.ledger.ledger import Ledger, Terms
from sfumato.ledger.periods import (
    begin_period,
    check_series,
    period_total,
    promise_over_periods,
)
from sfumato.ledger.reader import export_lines, verify_export
from sfumato.privacy.budget import Budget, check_neighbours

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from fractions import Fraction

    from rich.table import Table

    from sfumato.ledger.account import Remaining
    from sfumato.ledger.entries import Entry
    from sfumato.ledger.reader import Allowance

__all__ = ["app"]


UNBOUND = "not said yet: the first release binds its privacy unit"

app = typer.Typer(
    name="ledger",
    add_completion=False,
    rich_markup_mode="rich",
    help="Create a ledger, look into it, change its total, or freeze it.",
    no_args_is_help=True,
    epilog=examples(
        "sfumato ledger create adult.ledger --table adult.parquet --epsilon 2 --delta 1e-9",
        "sfumato ledger show adult.ledger",
        "sfumato ledger verify adult.ledger",
        "sfumato ledger freeze adult.ledger --reason 'audit of May'",
    ),
)

LedgerFile = Annotated[str, typer.Argument(metavar="LEDGER", help="The ledger file.")]
Reason = Annotated[
    str, typer.Option(metavar="TEXT", help="Why; a public text that the ledger keeps.")
]


def _amount(name: str, text: str) -> object:
    return typer.Option(f"--{name}", metavar="NUMBER", help=text)


Epsilon = Annotated[str | None, _amount("epsilon", "The total: epsilon.")]
Delta = Annotated[str | None, _amount("delta", "Its delta.")]
Rho = Annotated[str | None, _amount("rho", "The total in rho (zero-concentrated).")]
Mu = Annotated[str | None, _amount("mu", "The total in mu (Gaussian).")]
Pure = Annotated[str | None, _amount("pure", "The part of epsilon that is kept for pure noise.")]
Reserve = Annotated[
    str | None,
    _amount("event-delta", "The part of delta that is kept for discovery, after other noise too."),
]


By = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who does it (default: your user name).")
]


@app.command(
    "create",
    epilog=examples(
        "sfumato ledger create adult.ledger --table adult.parquet --epsilon 2 --delta 1e-9",
        "sfumato ledger create visits.ledger --table visits.parquet --epsilon 2 "
        "--unit patient --rows-per-unit 5",
        "sfumato ledger create --spec release.toml",
    ),
)
def create(
    path: Annotated[
        str | None, typer.Argument(metavar="LEDGER", help="A new file, or the address of a schema.")
    ] = None,
    table_id: Annotated[
        str | None, typer.Option("--table", metavar="NAME", help="The public name of the table.")
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    rho: Rho = None,
    mu: Mu = None,
    pure: Pure = None,
    event_delta: Reserve = None,
    neighbours: Annotated[
        str, typer.Option(metavar="RELATION", help="add-remove or replace-one.")
    ] = "add-remove",
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="UNIT",
            help="Whose presence is protected: row, event, or a column with --rows-per-unit "
            "(default: that of the first release).",
        ),
    ] = None,
    rows_per_unit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Rows of one unit that are counted.")
    ] = None,
    groups_per_unit: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Groups that the rows of one unit lie in."),
    ] = None,
    rows_per_group: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Rows of one unit in one group.")
    ] = None,
    groups_by: Annotated[
        list[str] | None,
        typer.Option(metavar="ATTRIBUTE", help="Whose cells are the groups; may be repeated."),
    ] = None,
    spec_path: Annotated[
        Path | None,
        typer.Option(
            "--spec", metavar="SPEC", help="Take all of it from the spec of a release or session."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Create a ledger: the total budget of one table.

    A ledger is a promise, so nothing else creates one unless a spec says
    create = true. An existing ledger is never touched.
    """
    amounts = {
        "epsilon": epsilon,
        "delta": delta,
        "rho": rho,
        "mu": mu,
        "pure": pure,
        "event_delta": event_delta,
    }
    of_groups = (groups_per_unit, rows_per_group, groups_by)
    if spec_path is None:
        if path is None or table_id is None:
            raise LedgerError(
                "a ledger needs a place and the name of its table: sfumato ledger create LEDGER "
                "--table NAME --epsilon 1, or --spec SPEC to take both from a spec"
            )
        total, protects = _budget(**amounts), _unit(unit, rows_per_unit, *of_groups)
        check_ledger_folder(path)
        ledger = Ledger.create(path, total, table_id, check_neighbours(neighbours), unit=protects)
    else:
        if any(
            v is not None for v in (table_id, unit, rows_per_unit, *of_groups, *amounts.values())
        ):
            raise LedgerError("--spec says all of it; leave the other options out")
        place, terms = _from_spec(spec_path)
        path = path or place
        check_ledger_folder(path)
        ledger = terms.create(path)
    bound = ledger.unit
    Output(json).result(
        {
            "ledger": path,
            "table": ledger.table_id,
            "neighbours": ledger.neighbours,
            "unit": None if bound is None else unit_json(bound),
            "budget": budget_document(ledger.budget),
        },
        heading(f"Created ledger {path}"),
        facts(
            [
                ("table", ledger.table_id),
                ("neighbours", ledger.neighbours),
                ("protects", UNBOUND if bound is None else unit_in_words(bound)),
                ("total", ledger.budget.describe()),
            ]
        ),
    )


def _from_spec(path: Path) -> tuple[str, Terms]:
    """Where the ledger of a spec is, and what it is opened with."""
    from sfumato.cli.spec import read_spec
    from sfumato.vault.tables import name_of, public_name

    spec = read_spec(path, needs_workload=False)
    if spec.ledger is None:
        raise LedgerError(
            f'{path} names no ledger; add a table [ledger] with path = "NAME.ledger", epsilon and '
            "delta to it"
        )
    total = spec.ledger.total or spec.budget
    if total is None:
        raise LedgerError(
            f"{path} asks for an error, not for a budget, so the total of its ledger is not known; "
            "add epsilon and delta to its table [ledger]"
        )
    name = name_of(spec.table(), spec.name) or public_name(spec.table())
    return spec.ledger.path, Terms(name, spec.neighbours, spec.unit or "row", total)


@app.command(
    "raise",
    epilog=examples(
        "sfumato ledger raise adult.ledger --epsilon 4 --delta 1e-9 --reason 'board, 3 May'"
    ),
)
def raise_total(
    path: LedgerFile,
    reason: Reason,
    epsilon: Epsilon = None,
    delta: Delta = None,
    rho: Rho = None,
    mu: Mu = None,
    pure: Pure = None,
    event_delta: Reserve = None,
    by: By = None,
    json: Json = False,
) -> None:
    """Set a larger total, as the curator; who did it and why is recorded.

    The promise to the people in the table is the new total from then on. It
    must be decided without looking at the answers.
    """
    ledger = _opened(path)
    held = ledger.budget
    # What is more is for pure noise, unless --pure is given.
    amounts = _budget(
        epsilon=epsilon, delta=delta, rho=rho, mu=mu, pure=pure, event_delta=event_delta
    )
    total = amounts.with_lanes_of(held)
    if total.is_within(held):
        raise LedgerError(
            f"{total.describe()} is not more than the total of {path}, {held.describe()}; a lower "
            "total takes effect when the spec or the configuration of the server gives it"
        )
    who = by or getpass.getuser()
    ledger.set_total(total, reason, by=who)
    left = ledger.remaining()
    Output(json).result(
        {
            "ledger": path,
            "before": budget_document(held),
            "budget": budget_document(total),
            "by": who,
            "reason": reason,
            "remaining": _remaining_document(left),
        },
        heading(f"Ledger {path} has another total"),
        facts(
            [
                ("before", held.describe()),
                ("total", total.describe()),
                ("by", who),
                ("reason", reason),
                ("left", left.describe()),
            ]
        ),
    )


@app.command(
    "renew",
    epilog=examples(
        "sfumato ledger renew march.ledger april.ledger --table april.parquet --period 2026-04 "
        "--reason 'survey of April'"
    ),
)
def renew(
    path: LedgerFile,
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="A new file, or the address of a schema.")
    ],
    table_id: Annotated[
        str, typer.Option("--table", metavar="NAME", help="The public name of the new table.")
    ],
    period: Annotated[
        str, typer.Option(metavar="NAME", help="The public name of the new period: 2026-04.")
    ],
    reason: Reason,
    epsilon: Epsilon = None,
    delta: Delta = None,
    rho: Rho = None,
    mu: Mu = None,
    pure: Pure = None,
    event_delta: Reserve = None,
    by: By = None,
    json: Json = False,
) -> None:
    """Begin the next period, as the curator: new data, with a budget of its own.

    The old ledger records it, with who did it and why, and goes on as it was.
    The new one has its neighbours, unit and allowances, and its total unless
    another is given. Whoever is in several tables is promised the sum.
    """
    ledger = _opened(path)
    amounts = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
    parts = {**amounts, "pure": pure, "event_delta": event_delta}
    total = _budget(**parts) if any(parts.values()) else None
    who = by or getpass.getuser()
    begun = begin_period(ledger, new, table_id, period, reason, by=who, budget=total)
    Output(json).result(
        {
            "ledger": new,
            "after": path,
            "period": period,
            "table": table_id,
            "budget": budget_document(begun.budget),
            "by": who,
            "reason": reason,
        },
        heading(f"Period {period} has begun"),
        facts(
            [
                ("ledger", new),
                ("table", table_id),
                ("total", begun.budget.describe()),
                ("by", who),
                ("reason", reason),
            ]
        ),
        f"sfumato ledger promise {path} {new}  # what is promised to who is in both",
    )


@app.command(
    "promise",
    epilog=examples("sfumato ledger promise february.ledger march.ledger april.ledger"),
)
def promise(
    paths: Annotated[
        list[str], typer.Argument(metavar="LEDGER...", help="A series of ledgers, oldest first.")
    ],
    json: Json = False,
) -> None:
    """Show what a series promises to people who are in one, two, ... of its tables."""
    ledgers = [_opened(path) for path in paths]
    check_series(ledgers)
    each = [period_total(ledger) for ledger in ledgers]
    totals = [period.total for period in each]
    promised = [promise_over_periods(totals, k) for k in range(1, len(totals) + 1)]
    Output(json).result(
        {
            "neighbours": ledgers[-1].neighbours,
            "periods": [
                {"ledger": path, "period": p.period, "table": p.table_id}
                | {"budget": budget_document(p.total)}
                for path, p in zip(paths, each, strict=True)
            ],
            "promised": [budget_document(budget) for budget in promised],
        },
        heading(f"A series of {len(paths)} tables"),
        facts(
            [(p.period or p.table_id, f"{p.table_id}: {p.total.describe()}") for p in each]
            + [(f"who is in {k}", f"{b.describe()} at most") for k, b in enumerate(promised, 1)]
        ),
    )


def _budget(**amounts: str | None) -> Budget:
    return Budget(**{name: value for name, value in amounts.items() if value is not None})


def _unit(
    named: str | None,
    rows: int | None,
    groups: int | None,
    rows_per_group: int | None,
    by: list[str] | None,
) -> Unit | None:
    if rows is not None or groups is not None or rows_per_group is not None or by:
        if named is None:
            raise LedgerError("--rows-per-unit is the bound of a column; name it with --unit")
        return PrivacyUnit(named, rows, groups, rows_per_group, by or ())
    if named is None or named in ("row", "event"):
        return None if named is None else check_unit(named)
    raise LedgerError(
        f"--unit {named} is a column, and needs a bound on the rows of one unit; give "
        "--rows-per-unit, or --unit row or --unit event"
    )


@app.command("show", epilog=examples("sfumato ledger show adult.ledger --json"))
def show(path: LedgerFile, json: Json = False) -> None:
    """Show the total budget, what was spent by which release, and what is left."""
    ledger = _opened(path)
    entries, spent, remaining = ledger.entries(), ledger.spent(), ledger.remaining()
    changes = ledger.changes()
    shares = shares_of(ledger.budget, (e.cost for e in entries))
    allowances, is_frozen, unit = ledger.allowances(), ledger.is_frozen(), ledger.unit
    document: dict[str, object] = {
        "ledger": path,
        "table": ledger.table_id,
        "neighbours": ledger.neighbours,
        "unit": None if unit is None else unit_json(unit),
        "budget": budget_document(ledger.budget),
        "spent_share": float(spent.share),
        "spent_epsilon": spent.epsilon,
        "remaining": _remaining_document(remaining),
        "is_frozen": is_frozen,
        "allowances": [_allowance_document(a) for a in allowances],
        "entries": [
            _entry_document(e) | {"share": float(share)}
            for e, share in zip(entries, shares, strict=True)
        ],
        "changes": [
            {"sequence": c.sequence, "time": c.time, "what": c.describe()} for c in changes
        ],
    }
    Output(json).result(
        document,
        heading(f"Ledger {path}"),
        facts(
            [
                ("table", ledger.table_id),
                ("neighbours", ledger.neighbours),
                ("protects", UNBOUND if unit is None else unit_in_words(unit)),
                ("total", ledger.budget.describe()),
                ("spent", f"{percent(spent.share)} by {_debits(spent.debits)}"),
                ("left", remaining.describe()),
                *([("frozen", "by its curator: stored answers only")] if is_frozen else []),
            ]
        ),
        *_allowance_tables(allowances),
        _entries_table(ledger.budget, entries, shares),
        *(
            [
                table(
                    ["record", "time", "changed by the curator"],
                    (
                        (str(c.sequence), c.time[:16].replace("T", " "), c.describe())
                        for c in changes
                    ),
                    text_columns=3,
                )
            ]
            if changes
            else []
        ),
    )


def _entries_table(budget: Budget, entries: Sequence[Entry], shares: Sequence[Fraction]) -> Table:
    """Every debit: the share of the total it takes, and what that was in epsilon, rho or mu."""
    from sfumato.release.provenance import cost_in_words

    has_analysts = any(e.analyst for e in entries)
    columns = ["debit", "time", "state", "takes", "cost", *["analyst"][:has_analysts], "key"]
    rows = (
        (
            str(e.sequence),
            e.time[:16].replace("T", " "),
            e.state,
            percent(share),
            cost_in_words(e.cost, budget).partition(" at ")[0],
            *[e.analyst or "-"][:has_analysts],
            e.key if len(e.key) <= 13 else f"{e.key[:12]}…",
        )
        for e, share in zip(entries, shares, strict=True)
    )
    return table(columns, rows, text_columns=len(columns))


@app.command(
    "export",
    epilog=examples(
        "sfumato ledger export adult.ledger --output adult-audit.jsonl",
        "sfumato ledger verify adult-audit.jsonl --export",
    ),
)
def export(
    path: LedgerFile,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A new file (default: standard output).")
    ] = None,
) -> None:
    """Write every record with its hash, one line of JSON each, for an audit.

    Who asked for what, what it cost, what the curator changed and why: all of
    it, from the first record on. No answers and no private states.
    """
    ledger = _opened(path)
    if output is None:
        for line in _exported(ledger):
            typer.echo(line, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            number = sum(1 for line in _exported(ledger) if file.write(line))
    except OSError as error:
        raise LedgerError(
            f"{output} cannot be written ({error.strerror}); name a file that is not there yet, in "
            "a folder that is"
        ) from None
    Output(False).note(f"{number} records of {path} in {output}")


def _exported(ledger: Ledger) -> Iterator[str]:
    """All lines, a page at a time."""
    after = -1
    while records := ledger.records(after):
        yield from export_lines(records)
        after = records[-1][0]


def _verify_export(path: str, output: Output) -> None:
    """Check the lines of an export, without the ledger."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            replay = verify_export(file)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise LedgerError(f"{path} cannot be read ({why}); check the path") from None
    if replay.problems:
        listed = "\n".join(f"  {problem}" for problem in replay.problems[:20])
        raise LedgerError(f"the export {path} was changed, or its ledger is damaged\n{listed}")
    records, head, share = len(replay.hashes), replay.hashes[-1], replay.account.spent / UNITS
    output.result(
        {"export": path, "is_whole": True, "records": records, "head": head, "spent_share": share},
        heading(f"Export {path} is whole"),
        facts(
            [
                ("records", f"{records}, each hash and each cost recomputed"),
                ("spent", f"{100 * share:.4g}%"),
                ("head", f"{head}; compare it with that of the ledger"),
            ]
        ),
    )


@app.command(
    "verify",
    epilog=examples(
        "sfumato ledger verify adult.ledger", "sfumato ledger verify adult-audit.jsonl --export"
    ),
)
def verify(
    path: LedgerFile,
    export: Annotated[
        bool, flag("--export", text="The file is what `sfumato ledger export` wrote.")
    ] = False,
    json: Json = False,
) -> None:
    """Replay the chain of entries and recompute every cost.

    Exit code 2 if anything is off.
    """
    if export:
        _verify_export(path, Output(json))
        return
    state = _opened(path).verify()
    if state.problems:
        listed = "\n".join(f"  {problem}" for problem in state.problems)
        raise LedgerError(
            f"the ledger {path} is damaged; restore the newest backup and do not release from it\n"
            f"{listed}"
        )
    share = state.spent_units / state.total_units
    Output(json).result(
        {
            "ledger": path,
            "is_whole": state.is_whole,
            "records": state.records,
            "answered": state.answered,
            "reserved": state.reserved,
            "burnt": state.burnt,
            "free": state.free,
            "states": state.states,
            "is_frozen": state.is_frozen,
            "unit": None if state.unit is None else unit_json(state.unit),
            "debits_for_another_unit": list(state.other_unit),
            "spent_share": share,
            "head": state.head,
            "head_file_checked": state.head_file_checked,
        },
        heading(f"Ledger {path} is whole"),
        facts(
            [
                ("records", f"{state.records}, each hash and each cost recomputed"),
                (
                    "releases",
                    f"{state.answered} answered, {state.reserved} under way, {state.burnt} burnt",
                ),
                ("free answers", f"{state.free}, each hash recomputed"),
                ("private states", f"{state.states}, each as its salted hash says"),
                ("protects", UNBOUND if state.unit is None else unit_in_words(state.unit)),
                *([("but", _others(state.other_unit))] if state.other_unit else []),
                ("spent", f"{100 * share:.4g}%"),
                ("head", state.head),
                (
                    "head file",
                    "agrees" if state.head_file_checked else "not there: rollback is not excluded",
                ),
            ]
        ),
    )


@app.command(
    "freeze", epilog=examples("sfumato ledger freeze adult.ledger --reason 'audit of May'")
)
def freeze(path: LedgerFile, reason: Reason, json: Json = False) -> None:
    """Stop debits and free answers, as the curator; stored answers are still served.

    Answers that are paid for and under way are still stored. The reason is
    recorded in the ledger.
    """
    _opened(path).freeze(reason)
    _show_frozen(path, reason, Output(json), is_frozen=True)


@app.command(
    "unfreeze", epilog=examples("sfumato ledger unfreeze adult.ledger --reason 'audit is over'")
)
def unfreeze(path: LedgerFile, reason: Reason, json: Json = False) -> None:
    """Let debits and free answers go on, as the curator; the reason is recorded."""
    _opened(path).unfreeze(reason)
    _show_frozen(path, reason, Output(json), is_frozen=False)


def _show_frozen(path: str, reason: str, output: Output, *, is_frozen: bool) -> None:
    state = "frozen: stored answers only" if is_frozen else "not frozen any more"
    document: dict[str, object] = {"ledger": path, "is_frozen": is_frozen, "reason": reason}
    output.result(document, heading(f"Ledger {path} is {state}"))


def _opened(path: str) -> Ledger:
    if not Ledger.exists(path):
        raise LedgerError(f"there is no ledger at {path}; check the path")
    return Ledger.open(path)


def _others(debits: Sequence[int]) -> str:
    """What a reader must know of debits that an older version let in."""
    listed = ", ".join(map(str, debits[:8])) + (", ..." if len(debits) > 8 else "")
    return (
        f"debits of an older version were made for another unit ({listed}): their costs do not add "
        "to the others', so the total is not a promise for this unit"
    )


def _debits(number: int) -> str:
    return "1 release" if number == 1 else f"{number} releases"


def _allowance_tables(allowances: Sequence[Allowance]) -> list[Table]:
    if not allowances:
        return []
    rows = (
        (a.analyst, a.budget.describe(), percent(a.share), a.remaining().describe())
        for a in allowances
    )
    return [table(["analyst", "allowance", "spent", "left"], rows, text_columns=4)]


def _allowance_document(allowance: Allowance) -> dict[str, object]:
    return {
        "analyst": allowance.analyst,
        "budget": budget_document(allowance.budget),
        "spent_share": float(allowance.share),
        "remaining": _remaining_document(allowance.remaining()),
    }


def _remaining_document(left: Remaining) -> dict[str, object]:
    """What one more debit may take; the keys are those of the server."""
    has_epsilon = left.delta and left.gaussian_mu is not None
    return {
        "share": float(left.share),
        "gaussian_mu": left.gaussian_mu,
        "gaussian_epsilon": float(left.epsilon("gaussian")) if has_epsilon else None,
        "pure_epsilon": float(left.pure_epsilon),
        **{f"{lane.kind}_lane": float(lane.left) for lane in left.lanes},
    }


def _entry_document(entry: Entry) -> dict[str, object]:
    return {
        "sequence": entry.sequence,
        "time": entry.time,
        "state": entry.state,
        "cost": entry.cost.as_json(),
        "analyst": entry.analyst,
        "key": entry.key,
        "hash": entry.hash,
    }
