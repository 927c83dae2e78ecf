# SPDX-License-Identifier: Apache-2.0
"""The answer of a SELECT as a table: columns as selected, each noisy number with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from sfumato.cli.output import statement_cells
from sfumato_web.page.layout import paragraph, table
from sfumato_web.page.page_limits import LIMITS

__all__ = ["statement_table"]


def statement_table(columns: Sequence[Mapping[str, Any]]) -> None:
    """Show the answer of a SELECT; rows beyond those of a page are in the files."""
    heads, rows = statement_cells(columns)
    labels = len(list(takewhile(lambda column: column["low"] is None, columns)))
    table(heads, rows[: LIMITS.rows_shown], "Answer of the SELECT", texts=labels)
    if not rows:
        paragraph("No group is left by HAVING, LIMIT or OFFSET.", "note")
    if len(rows) > LIMITS.rows_shown:
        paragraph(f"{len(rows) - LIMITS.rows_shown:,} more rows are not shown.", "note")
