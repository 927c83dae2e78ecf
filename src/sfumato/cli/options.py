# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, and how their help is written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Error",
    "Json",
    "Key",
    "LedgerPath",
    "Mechanism",
    "Quiet",
    "Seconds",
    "Source",
    "SpecFile",
    "Yes",
    "command_app",
    "examples",
    "flag",
]


def command_app() -> typer.Typer:
    """A place to declare one command; help texts are written in rich's markup."""
    return typer.Typer(add_completion=False, rich_markup_mode="rich")


def examples(*lines: str) -> str:
    """The epilog of a command: lines that can be pasted into a shell."""
    return "\n".join(
        ["[bold]Examples[/bold]", *(f"[dim]$[/dim] [cyan]{line}[/cyan]" for line in lines)]
    )


def flag(*names: str, text: str) -> object:
    """An option without a value (and without the type that typer would print beside it)."""
    return typer.Option(*names, metavar="", help=text)


SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="The spec file (TOML).")]
Json = Annotated[bool, flag("--json", text="Write the result as JSON to stdout, nothing else.")]
Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="CSV, Parquet (globs too), FILE.duckdb::TABLE, FILE.xlsx::SHEET, "
        "postgres://USER@HOST/DATABASE::TABLE or spark:TABLE.",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Name this request: the same key returns the stored answer, a new one spends.",
    ),
]
Quiet = Annotated[bool, flag("--quiet", "-q", text="Show no progress bars and no remarks.")]
Mechanism = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Use this mechanism, e.g. gaussian-tree or table; default is the best forecast.",
    ),
]
Error = Annotated[
    float | None,
    typer.Option(
        metavar="COUNTS",
        help="Solve the other way: the smallest budget whose typical error is this many counts.",
    ),
]
LedgerPath = Annotated[
    str | None,
    typer.Option(
        "--ledger", metavar="PATH", help="The ledger to debit (default: ledger.path of the spec)."
    ),
]
Yes = Annotated[bool, flag("--yes", "-y", text="Do not ask before spending.")]
Seconds = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        min=0.001,
        help="End planning with the best so far after about N seconds (default: no clock).",
    ),
]
