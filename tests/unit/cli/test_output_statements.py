# SPDX-License-Identifier: Apache-2.0
"""The answer of a SELECT as texts of a table, on the command line and on the page."""

from __future__ import annotations

from sfumato.cli.output import statement_cells


def _column(name, values, low=None, high=None):
    return {"name": name, "values": values, "low": low, "high": high}


def test_labels_stand_first_and_noisy_numbers_have_their_interval_beside_them():
    columns = [
        _column("sex", ["Female", "Male"]),
        _column("n", [1234.5, None], [1200.0, None], [1300.0, None]),
        _column("one", [1, 1]),
    ]
    heads, rows = statement_cells(columns)
    assert heads == ["sex", "n", "n: interval", "one"]
    assert rows == [("Female", "1,234", "1,200 to 1,300", "1"), ("Male", "-", "- to -", "1")]


def test_moments_are_shown_as_they_are_sent():
    columns = [_column("middle", ["2024-05-01"], ["2024-04-01"], ["2024-06-01"])]
    assert statement_cells(columns)[1] == [("2024-05-01", "2024-04-01 to 2024-06-01")]


def test_no_row_is_no_row():
    assert statement_cells([_column("sex", []), _column("n", [], [], [])])[1] == []
