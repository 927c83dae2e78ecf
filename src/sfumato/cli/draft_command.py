# SPDX-License-Identifier: Apache-2.0
"""``sfumato draft``: a schema to complete, from the names and types of columns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import (
    Csv,
    Json,
    Source,
    command_app,
    csv_declarations,
    csv_source,
    data_lines,
    examples,
)
from sfumato.cli.output import Output, write_text
from sfumato.domain.shipped_tables import is_shipped
from sfumato.errors import SfumatoError

__all__ = ["app", "draft"]


app = command_app()


@app.command(
    epilog=examples(
        "sfumato draft people.parquet",
        "sfumato draft people.csv --out schema.toml --release release.toml",
        "sfumato draft survey.duckdb::answers --out schema.toml",
        "sfumato draft postgres://me@host/survey::public.answers",
    )
)
def draft(
    source: Source,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the draft here instead of to stdout.")
    ] = None,
    release: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a release file for the draft here; needs --out."),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(metavar="SELECT", help="What to read of the source, in place of a table."),
    ] = None,
    csv: Csv = None,
    json: Json = False,
) -> None:
    """Draft a schema from column types, for you to complete.

    Files without types (CSV) are guessed from the names of their columns.
    Ranges and lists of values are left open on purpose: they must come from
    public knowledge, and would not be public if they were read off the data.
    """
    from sfumato.domain.draft import draft as draft_domain
    from sfumato.vault.sources import SqlSource
    from sfumato.vault.tables import open_table, public_name

    output = Output(json)
    for file in (out, release):
        if file is not None and file.exists():
            raise SfumatoError(
                f"{file} exists and may hold your work; name another file, or remove it first"
            )
    if release is not None and out is None:
        raise SfumatoError(
            "--release writes a file that names the schema; say where that is to be: "
            "--out schema.toml"
        )
    if query is not None and csv:
        raise SfumatoError("a CSV file has no types, so no query runs on it; leave --query out")
    declared = csv_source(source, csv or ())
    table = open_table(declared if query is None else SqlSource(source, query))
    if not table.column_types:
        raise SfumatoError(
            f"{table.name}: the names of its fields stand in its records, which a draft does not "
            "read; declare the fields that are asked about, each in a table [domain.NAME] "
            "(docs/domain.md)"
        )
    schema = draft_domain(table.column_types, untyped=table.untyped)
    if out is not None:
        write_text(out, schema.text)
    spec = None
    if release is not None and out is not None:
        said = csv_declarations(csv or ())
        spec = _release(source, query, out, release, public_name(table), said)
        write_text(release, spec)
    if output.as_json:
        document: dict[str, object] = {"toml": schema.text, "warnings": list(schema.warnings)}
        document["file"] = None if out is None else str(out)
        if release is not None:
            document |= {"release": spec, "release_file": str(release)}
        output.result(document)
        return
    if out is None:
        output.text(schema.text)
    for columns, warning in _grouped(schema.warnings).items():
        output.note(f"warning: {columns}: {warning}")
    if out is not None:
        then = "then add what to ask" if release is None else f"then plan {release}"
        output.note(f"The draft is in {out}: replace every FILL IN, {then}.")


def _release(
    source: str,
    query: str | None,
    out: Path,
    release: Path,
    name: str,
    declared: Mapping[str, object],
) -> str:
    """The text of the release file; paths in it start at its own folder."""
    from sfumato.domain.draft import release_file
    from sfumato.toml import toml_text
    from sfumato.vault.sources import engine_source, file_source

    is_file = not is_shipped(source) and engine_source(source) is None
    folder = release.absolute().parent
    place = os.path.relpath(Path(source).absolute(), folder) if is_file else source
    schema = os.path.relpath(out.absolute(), folder)
    is_csv = is_file and file_source(source).kind == "csv"
    text = release_file(name, place, schema, release.name, is_csv=is_csv and not declared)
    more = {**({} if query is None else {"query": query}), **declared}
    line = f"source = {toml_text(place)}\n"
    return text.replace(line, line + data_lines(more), 1)


def _grouped(warnings: Sequence[str]) -> dict[str, str]:
    """Columns that get the same warning, in one line."""
    columns: dict[str, list[str]] = {}
    for text in warnings:
        column, _, warning = text.partition(": ")
        columns.setdefault(warning, []).append(column)
    return {", ".join(names): warning for warning, names in columns.items()}
