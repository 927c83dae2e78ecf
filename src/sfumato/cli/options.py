# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, and how their help is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sfumato.errors import TableError
from sfumato.text import did_you_mean, shown

if TYPE_CHECKING:
    from sfumato.vault.sources import CsvSource

__all__ = [
    "Csv",
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
    "csv_declarations",
    "csv_source",
    "data_lines",
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
Csv = Annotated[
    list[str] | None,
    typer.Option(
        "--csv",
        metavar="KEY=VALUE",
        help="How a CSV file was written, again for more: encoding=cp1252, delimiter=;, "
        "decimal=,, thousands=., date_format=%d.%m.%Y, null_values=NA, quote, header, csv=lines.",
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


_LISTS: Final = ("header", "date_format", "null_values")


def csv_declarations(pairs: Sequence[str]) -> dict[str, Any]:
    """What ``--csv KEY=VALUE`` options say, by the keys that a spec file has for it.

    >>> csv_declarations(["decimal=,", "null_values=NA", "null_values=n/a"])
    {'decimal': ',', 'null_values': ['NA', 'n/a']}
    """
    from sfumato.vault.sources import CsvSource

    keys = ["csv", *(f.name for f in fields(CsvSource) if f.name not in ("source", "records", "_"))]
    declared: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or key not in keys:
            raise TableError(
                f"--csv is KEY=VALUE with one of the keys {', '.join(keys)}, got {shown(pair)}"
                f"{did_you_mean(key, keys)}"
            )
        value = {"\\t": "\t", "tab": "\t"}.get(value, value) if key == "delimiter" else value
        if key in _LISTS:
            declared.setdefault(key, []).append(value)
        elif key in declared:
            raise TableError(f"--csv {key} is given twice; only {', '.join(_LISTS)} may be")
        else:
            declared[key] = value
    return declared


def csv_source(place: str, pairs: Sequence[str]) -> str | CsvSource:
    """The table at a place: with what ``--csv`` options say of it, a declared CSV file."""
    from sfumato.vault.sources import CsvSource

    if not pairs:
        return place
    declared = csv_declarations(pairs)
    return CsvSource(place, declared.pop("csv", None), **declared)


def data_lines(entries: Mapping[str, object]) -> str:
    """Keys of the table ``[data]`` of a spec file with their texts, or lists of texts, as TOML.

    >>> print(data_lines({"decimal": ",", "null_values": ["NA"]}), end="")
    decimal = ","
    null_values = ["NA"]
    """
    from sfumato.toml import toml_text

    lines = []
    for key, value in entries.items():
        texts = [value] if isinstance(value, str) else value
        written = [toml_text(str(text)) for text in texts]  # type: ignore[attr-defined]
        joined = written[0] if isinstance(value, str) else f"[{', '.join(written)}]"
        lines.append(f"{key} = {joined}\n")
    return "".join(lines)
