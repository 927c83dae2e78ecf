# SPDX-License-Identifier: Apache-2.0
"""The answer of a SELECT as a table: columns as selected, each noisy number with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.cli.output import counts
from sfumato.release.labels import label_text
from sfumato_web.page.layout import paragraph, table
from sfumato_web.page.page_limits import LIMITS

__all__ = [
    "statement_rows",
    "statement_table",
]


def statement_rows(
    columns: Sequence[Mapping[str, Any]],
) -> tuple[list[str], list[tuple[str, ...]], int]:
    """The heads, the rows as texts, and how many columns of labels come first.

    Args:
        columns: Those of a statement as the server sends them.

    >>> statement_rows([
    ...     {"name": "sex", "values": ["F"], "low": None, "high": None},
    ...     {"name": "n", "values": [41.2], "low": [30.0], "high": [52.5]},
    ... ])
    (['sex', 'n', 'n: interval'], [('F', '41.2', '30.0 to 52.5')], 1)
    """
    heads: list[str] = []
    texts: list[list[str]] = []
    labels = 0
    for column in columns:
        heads.append(column["name"])
        low, high = column["low"], column["high"]
        if low is None or high is None:
            texts.append([_text(value, label_text) for value in column["values"]])
            labels += labels == len(heads) - 1
            continue
        texts.append([_text(value, _number) for value in column["values"]])
        heads.append(f"{column['name']}: interval")
        ends = zip(low, high, strict=True)
        texts.append([f"{_text(a, _number)} to {_text(b, _number)}" for a, b in ends])
    return heads, list(zip(*texts, strict=True)), labels


def statement_table(columns: Sequence[Mapping[str, Any]]) -> None:
    """Show the answer of a SELECT; rows beyond those of a page are in the files."""
    heads, rows, labels = statement_rows(columns)
    table(heads, rows[: LIMITS.rows_shown], "Answer of the SELECT", texts=labels)
    if not rows:
        paragraph("No group is left by HAVING, LIMIT or OFFSET.", "note")
    if len(rows) > LIMITS.rows_shown:
        paragraph(f"{len(rows) - LIMITS.rows_shown:,} more rows are not shown.", "note")


def _text(value: object, written: Any) -> str:
    return "-" if value is None else str(written(value))


def _number(value: object) -> str:
    return counts(value) if isinstance(value, int | float) else label_text(value)
