# SPDX-License-Identifier: Apache-2.0
"""The frame of the page in a real browser."""

from __future__ import annotations

import pytest

from tests.page.conftest import check_accessible


@pytest.mark.parametrize("name", ["Plan", "Release", "Ask", "Describe", "Ledger", "Learn"])
def test_every_page_opens(open_browser, name):
    page = open_browser()
    page.get_by_role("link", name=name, exact=True).click()
    page.wait_for_url(f"**/page/{name.lower()}")
    page.get_by_role("heading", level=1, name=name).wait_for()
    check_accessible(page)
