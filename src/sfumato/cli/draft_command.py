# SPDX-License-Identifier: Apache-2.0
"""``sfumato draft``: a schema to complete, from the names and types of columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import Json, command_app, examples
from sfumato.cli.output import Output, write_text
from sfumato.cli.shipped_tables import is_shipped, shipped_table
from sfumato.errors import SfumatoError

__all__ = [
    "app",
    "draft",
]


app = command_app()


@app.command(
    epilog=examples(
        "sfumato draft people.parquet",
        "sfumato draft people.csv --out schema.toml",
        "sfumato draft survey.duckdb::answers --out schema.toml",
        "sfumato draft postgres://me@host/survey::public.answers",
    ),
)
def draft(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="CSV, Parquet (globs too), FILE.duckdb::TABLE, "
            "postgres://USER@HOST/DATABASE::TABLE or spark:TABLE.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the draft here instead of to stdout."),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(metavar="SELECT", help="What to read of the source, in place of a table."),
    ] = None,
    json: Json = False,
) -> None:
    """Draft a schema from column types, for you to complete.

    Ranges and lists of values are left open on purpose: they must come from
    public knowledge, and would not be public if they were read off the data.
    """
    from sfumato.domain.draft import draft as draft_domain
    from sfumato.vault.sources import SqlSource
    from sfumato.vault.tables import open_table

    output = Output(json)
    if out is not None and out.exists():
        raise SfumatoError(
            f"{out} exists and may hold your work; name another file, or remove it first"
        )
    place = str(shipped_table(source)) if is_shipped(source) else source
    table = open_table(place if query is None else SqlSource(place, query))
    if not table.column_types:
        raise SfumatoError(
            f"{table.name}: the names of its fields stand in its records, which a draft does not "
            "read; declare the fields that are asked about, each in a table [domain.NAME] "
            "(docs/domain.md)"
        )
    schema = draft_domain(table.column_types, untyped=table.untyped)
    if out is not None:
        write_text(out, schema.text)
    if output.as_json:
        written = None if out is None else str(out)
        output.result({"toml": schema.text, "warnings": list(schema.warnings), "file": written})
        return
    if out is None:
        output.text(schema.text)
    for columns, warning in _grouped(schema.warnings).items():
        output.note(f"warning: {columns}: {warning}")
    if out is not None:
        output.note(f"The draft is in {out}: replace every FILL IN, then add what to ask.")


def _grouped(warnings: Sequence[str]) -> dict[str, str]:
    """Columns that get the same warning, in one line."""
    columns: dict[str, list[str]] = {}
    for text in warnings:
        column, _, warning = text.partition(": ")
        columns.setdefault(warning, []).append(column)
    return {", ".join(names): warning for warning, names in columns.items()}
