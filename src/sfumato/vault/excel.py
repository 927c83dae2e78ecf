# SPDX-License-Identifier: Apache-2.0
"""Sheets of a spreadsheet: `sheet_columns` returns the names of columns, `sheet_texts` their texts.

Cells have types of their own, one by one, so that a column has none: every cell is a text, as in
CSV (12, 12.5, true, 2024-01-31), and the schema says what it means. A row without any value is no
record: between two records and behind the last one a sheet has as many as one likes. So a record
that is replaced by nothing leaves the table, and the number of records is not public.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from sfumato.errors import TableError
from sfumato.text import did_you_mean, listing, shown
from sfumato.vault.sensitive import sealed
from sfumato.vault.sources import TABLE_MARK, check_column_names

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "sheet_columns",
    "sheet_texts",
]


def sheet_columns(path: str, sheet: str) -> list[str]:
    """The names in the first row of a sheet, empty where it has none."""
    first = _rows(path, sheet, 1)
    names = [str(_text(cell) or "").strip() for cell in (first[0] if first else [])]
    if not any(names):
        raise TableError(
            f"{shown(path)} has no first row with the names of the columns; add one, and nothing "
            "above it"
        )
    check_column_names([name for name in names if name], path)
    return names


def sheet_texts(path: str, sheet: str, numbers: Sequence[int]) -> pa.Table:
    """Some columns, by number, of all rows after the first that hold any value.

    What becomes of a row is a function of its cells, so sheets that differ in one row are read as
    tables that do (`tests/unit/vault/test_excel.py`).
    """
    import pyarrow as pa

    rows = [row for row in _rows(path, sheet)[1:] if any(cell not in ("", None) for cell in row)]

    def column(number: int) -> pa.Array:
        cells = (row[number] if number < len(row) else None for row in rows)
        return pa.array([_text(cell) for cell in cells], pa.string())

    return pa.table({f"x{number}": column(number) for number in numbers})


def _rows(path: str, sheet: str, most: int | None = None) -> list[list[Any]]:
    """The rows of a sheet from the first one on, with all their cells."""
    try:
        from python_calamine import CalamineWorkbook
    except ImportError:
        raise TableError(
            f"{shown(path)} is a spreadsheet, which needs an extra: pip install 'sfumato[excel]'; "
            "or save the sheet as CSV"
        ) from None
    unread = f"{shown(path)} is no spreadsheet, or is damaged or locked by a password"
    book = sealed(lambda: CalamineWorkbook.from_path(path), unread)
    names: list[str] = list(book.sheet_names)
    if not sheet and len(names) != 1:
        raise TableError(
            f"{shown(path)} holds {len(names)} sheets: {listing(names)}; name one as "
            f"{shown(f'{path}{TABLE_MARK}SHEET')}"
        )
    if sheet and sheet not in names:
        raise TableError(
            f"{shown(path)} has no sheet {shown(sheet)}; it has {listing(names)}"
            f"{did_you_mean(sheet, names)}"
        )

    def read() -> list[list[Any]]:
        held = book.get_sheet_by_name(sheet or names[0])
        return list(held.to_python(skip_empty_area=False, nrows=most))

    return sealed(read, unread)


def _text(cell: object) -> str | None:
    """A cell as a text; null if it is empty."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        is_whole = cell.is_integer() and abs(cell) < 2**53
        return str(int(cell)) if is_whole else repr(cell)
    if isinstance(cell, datetime | date | time):
        return cell.isoformat()
    if isinstance(cell, timedelta):
        return f"{cell // timedelta(microseconds=1)} microseconds"
    try:
        text = str(cell)
        text.encode()
    except Exception:  # whatever it says may hold the value
        return None
    return text.replace("\0", "")
