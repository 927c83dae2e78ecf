# SPDX-License-Identifier: Apache-2.0
"""The commands of ``sfumato ledger``; each body is a function in ``commands``."""

from __future__ import annotations

from typing import Annotated

import typer

from sfumato.app.options import Json, examples
from sfumato.app.output import Output

__all__ = ["ledger_app"]

ledger_app = typer.Typer(
    help="Look into a ledger: what was spent, what is left, is it intact; or freeze it.",
    no_args_is_help=True,
    epilog=examples(
        "sfumato ledger show adult.ledger",
        "sfumato ledger verify adult.ledger",
        "sfumato ledger freeze adult.ledger --reason 'audit of May'",
    ),
)

LedgerFile = Annotated[str, typer.Argument(metavar="LEDGER", help="The ledger file.")]
Reason = Annotated[
    str, typer.Option(metavar="TEXT", help="Why; a public text that the ledger keeps.")
]


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
