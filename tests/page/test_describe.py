# SPDX-License-Identifier: Apache-2.0
"""The page Describe: cost first, then a table of what columns hold."""

from __future__ import annotations

import pytest

from sfumato_web.page.describe_page import request_of, summary_rows
from sfumato_web.server.problems import Problem
from tests.page.conftest import check_accessible, picture
from tests.page.museum import ADA


def test_the_cost_is_shown_before_anything_can_be_spent(open_browser):
    page = open_browser(ADA)
    page.goto("/page/describe")
    spend = page.get_by_role("button", name="Spend and describe")
    spend.wait_for()
    assert spend.is_disabled()
    page.get_by_label("epsilon").fill("0.2")
    page.get_by_label("delta").fill("0")
    page.get_by_role("combobox", name="Columns").click()
    page.get_by_role("option", name="age").click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="What would it cost?").click()
    page.get_by_text("Nothing was spent to say this").wait_for()
    check_accessible(page)
    picture(page, "describe")
    spend.click()
    described = page.get_by_role("table", name="Columns described")
    described.wait_for()
    assert described.locator("tbody tr").count() == 1
    assert described.locator("tbody td").first.inner_text() == "age"
    check_accessible(page)


def test_controls_that_are_no_request_are_refused():
    assert request_of([], 1, "0").budget.delta is None
    with pytest.raises(Problem, match="epsilon"):
        request_of([], -1, "1e-6")


def test_what_is_not_known_of_a_column_is_a_dash():
    columns = {
        "column": ["city", "name"],
        "kind": ["category", ""],
        "note": ["", "identifiers"],
        "records": [90.0, None],
        "keys": [2.0, None],
        "top": ["Rome", None],
    }
    city, name = summary_rows(columns)
    assert city[4] == "2 values, most often Rome"
    assert name == ("name", "-", "-", "-", "-", "-", "-", "identifiers")
