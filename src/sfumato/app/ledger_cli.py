# SPDX-License-Identifier: Apache-2.0
"""The commands of ``sfumato ledger``; each body is a function in ``commands``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.app.options import Json, examples
from sfumato.app.output import Output

__all__ = [
    "ledger_app",
]


ledger_app = typer.Typer(
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


@ledger_app.command(
    "create",
    epilog=examples(
        "sfumato ledger create adult.ledger --table adult.parquet --epsilon 2 --delta 1e-9",
        "sfumato ledger create visits.ledger --table visits.parquet --epsilon 2 "
        "--unit patient --rows-per-unit 5",
        "sfumato ledger create --spec release.toml",
    ),
)
def ledger_create(
    path: Annotated[
        str | None, typer.Argument(metavar="LEDGER", help="A new file, or the address of a schema.")
    ] = None,
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="The public name of the table.")
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    rho: Rho = None,
    mu: Mu = None,
    pure: Pure = None,
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
    spec: Annotated[
        Path | None,
        typer.Option(metavar="SPEC", help="Take all of it from the spec of a release or session."),
    ] = None,
    json: Json = False,
) -> None:
    """Create a ledger: the total budget of one table.

    A ledger is a promise, so nothing else creates one unless a spec says
    create = true. An existing ledger is never touched.
    """
    from sfumato.app.commands.ledger import create

    amounts = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu, "pure": pure}
    create(path, table, amounts, neighbours, unit, rows_per_unit, spec, Output(json))


@ledger_app.command(
    "raise",
    epilog=examples(
        "sfumato ledger raise adult.ledger --epsilon 4 --delta 1e-9 --reason 'board, 3 May'"
    ),
)
def ledger_raise(
    path: LedgerFile,
    reason: Reason,
    epsilon: Epsilon = None,
    delta: Delta = None,
    rho: Rho = None,
    mu: Mu = None,
    pure: Pure = None,
    by: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who raises it (default: your user name).")
    ] = None,
    json: Json = False,
) -> None:
    """Set a larger total, as the curator; who did it and why is recorded.

    The promise to the people in the table is the new total from then on. It
    must be decided without looking at the answers.
    """
    from sfumato.app.commands.ledger import raise_total

    amounts = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu, "pure": pure}
    raise_total(path, amounts, reason, by, Output(json))


@ledger_app.command("show", epilog=examples("sfumato ledger show adult.ledger --json"))
def ledger_show(path: LedgerFile, json: Json = False) -> None:
    """Show the total budget, what was spent by which release, and what is left."""
    from sfumato.app.commands.ledger import show

    show(path, Output(json))


@ledger_app.command("verify", epilog=examples("sfumato ledger verify adult.ledger"))
def ledger_verify(path: LedgerFile, json: Json = False) -> None:
    """Replay the chain of entries and recompute every cost.

    Exit code 2 if anything is off.
    """
    from sfumato.app.commands.ledger import verify

    verify(path, Output(json))


@ledger_app.command(
    "freeze", epilog=examples("sfumato ledger freeze adult.ledger --reason 'audit of May'")
)
def ledger_freeze(path: LedgerFile, reason: Reason, json: Json = False) -> None:
    """Stop debits and free answers, as the curator; stored answers are still served.

    Answers that are paid for and under way are still stored. The reason is
    recorded in the ledger.
    """
    from sfumato.app.commands.ledger import freeze

    freeze(path, reason, Output(json))


@ledger_app.command(
    "unfreeze", epilog=examples("sfumato ledger unfreeze adult.ledger --reason 'audit is over'")
)
def ledger_unfreeze(path: LedgerFile, reason: Reason, json: Json = False) -> None:
    """Let debits and free answers go on, as the curator; the reason is recorded."""
    from sfumato.app.commands.ledger import unfreeze

    unfreeze(path, reason, Output(json))
