# SPDX-License-Identifier: Apache-2.0
"""``sfumato draft``: a schema to complete, from the names and types of columns."""

from __future__ import annotations

from pathlib import Path

from sfumato.app.files import write_text
from sfumato.app.output import Output
from sfumato.app.shipped import is_shipped, shipped_table
from sfumato.errors import SfumatoError

__all__ = ["draft"]


def draft(source: str, out: Path | None, output: Output) -> None:
    """Write a draft of the domain of a table, and what to know about it.

    Privacy: column names and types are public; no row is read.
    """
    from sfumato.domain.draft import draft as drafted
    from sfumato.vault.tables import column_types

    if out is not None and out.exists():
        raise SfumatoError(
            f"{out} exists and may hold your work; name another file, or remove it first"
        )
    table = str(shipped_table(source)) if is_shipped(source) else source
    found = drafted(column_types(table))
    if out is not None:
        write_text(out, found.text)
    if output.as_json:
        written = None if out is None else str(out)
        output.result({"toml": found.text, "warnings": list(found.warnings), "file": written})
        return
    if out is None:
        output.text(found.text)
    for warning in found.warnings:
        output.note(f"warning: {warning}")
    if out is not None:
        output.note(f"The draft is in {out}: replace every FILL IN, then add what to ask.")
