# SPDX-License-Identifier: Apache-2.0
"""Sheets of spreadsheets: rows are records, empty ones are none."""

from __future__ import annotations

import sys
from datetime import date, datetime, timedelta

import pytest

from sfumato.domain.attributes import Category, DateTime, Numeric
from sfumato.domain.domain import Domain
from sfumato.errors import TableError
from sfumato.privacy.budget import Budget
from sfumato.run.describe import plan_description
from sfumato.vault.count import count_marginals
from sfumato.vault.sources import SqlSource
from sfumato.vault.tables import open_table, public_name

openpyxl = pytest.importorskip("openpyxl")
pytest.importorskip("python_calamine")

AGE = Numeric("age", (0, 10, 40), outside="other", nulls="missing")
DAY = DateTime("day", datetime(2024, 1, 1), datetime(2025, 1, 1), "month", nulls="missing")
WHO = Category("who", ("7", "true", "a\nb"), outside="other", nulls="missing")


def saved(tmp_path, rows, sheets=("people",)):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name in sheets:
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    path = tmp_path / "people.xlsx"
    book.save(path)
    return path


def counted(source, *attributes) -> list[int]:
    domain = Domain(attributes)
    exact = count_marginals(open_table(source), domain, [domain.names]).reveal(domain.names)
    return exact.ravel().tolist()


HEADER = ["age", "day", "who", None, "note"]
ROWS = [
    [30, date(2024, 3, 31), 7, "x", timedelta(hours=30)],
    [30.5, datetime(2024, 3, 1, 10, 30), True, None, None],
    [None, None, "a\nb", None, None],
    ["n/a", None, "else", None, None],
]


def test_cells_are_read_as_the_schema_says(tmp_path):
    path = saved(tmp_path, [HEADER, *ROWS])
    assert counted(path, AGE) == [0, 2, 1, 1]
    assert counted(path, WHO) == [1, 1, 1, 1, 0]
    assert counted(path, DAY)[2] == 2
    assert counted(path, DAY)[-1] == 2
    assert open_table(path).column_types == dict.fromkeys(["age", "day", "who", "note"], "string")


def test_one_row_more_is_one_record_more_wherever_it_stands(tmp_path):
    """The twin counts every row of the used range: a row far below makes records of nobody."""
    one = counted(saved(tmp_path, [HEADER, *ROWS]), AGE)
    far = [HEADER, *ROWS, *[[]] * 500, [5]]
    path = saved(tmp_path, far)
    assert counted(path, AGE) == [one[0] + 1, *one[1:]]
    rows_of_the_range = openpyxl.load_workbook(path).active.max_row - 1
    assert rows_of_the_range - len(ROWS) == 501
    assert open_table(path).may_drop_records, "a record of no values is no row"


def test_sheets_are_named_like_tables(tmp_path):
    path = saved(tmp_path, [HEADER, *ROWS], ("people", "more people"))
    assert counted(f"{path}::more people", AGE) == [0, 2, 1, 1]
    assert public_name(f"{path}::more people") == "people.xlsx::more people"
    with pytest.raises(TableError, match="holds 2 sheets: 'people', 'more people'"):
        open_table(path)
    with pytest.raises(TableError, match=r"no sheet 'peeple'.*did you mean 'people'"):
        open_table(f"{path}::peeple")


def test_what_is_no_sheet_of_named_columns_is_refused(tmp_path, monkeypatch):
    with pytest.raises(TableError, match="no first row"):
        open_table(saved(tmp_path, [[], [1]]))
    with pytest.raises(TableError, match="twice"):
        open_table(saved(tmp_path, [["a", "A"]]))
    with pytest.raises(TableError, match="no query runs on it"):
        open_table(SqlSource(tmp_path / "people.xlsx", "SELECT 1"))
    (tmp_path / "bad.xlsx").write_bytes(b"104729")
    with pytest.raises(TableError, match="is no spreadsheet") as caught:
        open_table(tmp_path / "bad.xlsx")
    assert "104729" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(TableError, match=r"pip install 'sfumato\[excel\]'"):
        open_table(tmp_path / "bad.xlsx")


def test_a_table_may_begin_below_a_title_and_beside_a_margin(tmp_path):
    """Sheet!B3 as spreadsheets write it; what stands above or left of it is no record."""
    title = [["Survey 2024"], [], *([None, *row] for row in (HEADER, *ROWS))]
    path = saved(tmp_path, title)
    for corner in ("!B3", "people!B3", "people!$B$3"):
        source = f"{path}::{corner}"
        assert counted(source, AGE) == [0, 2, 1, 1]
        assert list(open_table(source).column_types) == ["age", "day", "who", "note"]
    assert public_name(f"{path}::people!B3") == public_name(f"{path}::people")
    assert public_name(f"{path}::!B3") == public_name(path) == "people.xlsx"
    with pytest.raises(TableError, match="the cell in which the names begin"):
        open_table(f"{path}::people!AA200")
    named = saved(tmp_path, [HEADER, *ROWS], ["a!B3"])  # a sheet of that name comes first
    assert counted(f"{named}::a!B3", AGE) == [0, 2, 1, 1]


def test_a_title_is_not_described_as_if_it_were_a_column(tmp_path):
    path, budget = saved(tmp_path, [["Survey 2024"], HEADER, *ROWS]), Budget(epsilon=1, delta=1e-6)
    with pytest.raises(TableError, match=r"names one column alone, 'Survey 2024'.*::!A3"):
        plan_description(path, budget)
    assert list(plan_description(f"{path}::!A2", budget).kinds) == ["age", "day", "who"]
    assert list(plan_description(f"{path}::!A1", budget).kinds) == ["Survey 2024"]
    assert list(plan_description(path, budget, columns=["Survey 2024"]).kinds) == ["Survey 2024"]
