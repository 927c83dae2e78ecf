# SPDX-License-Identifier: Apache-2.0
"""``sfumato draft``: a schema to complete, from the names and types of columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sfumato.app.files import write_text
from sfumato.app.output import Output
from sfumato.app.shipped import is_shipped, shipped_table
from sfumato.errors import SfumatoError

__all__ = [
    "draft",
]


def draft(source: str, out: Path | None, output: Output, query: str | None = None) -> None:
    """Write a draft of the domain of a table, and what to know about it.

    Privacy: column names and types are public; no row is read.
    """
    from sfumato.domain.draft import draft as drafted
    from sfumato.vault.tables import open_table
    from sfumato.vault.warehouse import SqlSource

    if out is not None and out.exists():
        raise SfumatoError(
            f"{out} exists and may hold your work; name another file, or remove it first"
        )
    named = str(shipped_table(source)) if is_shipped(source) else source
    table = open_table(named if query is None else SqlSource(named, query))
    found = drafted(table.column_types, untyped=table.untyped)
    if out is not None:
        write_text(out, found.text)
    if output.as_json:
        written = None if out is None else str(out)
        output.result({"toml": found.text, "warnings": list(found.warnings), "file": written})
        return
    if out is None:
        output.text(found.text)
    for columns, warning in _grouped(found.warnings).items():
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
