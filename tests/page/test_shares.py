# SPDX-License-Identifier: Apache-2.0
"""Where the number of records is public, the page shows errors and answers as shares of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.page.conftest import check_accessible
from tests.page.museum import ADA, Museum, museum_server

BARS = ".chart[data-drawn] svg"


@pytest.fixture(scope="module")
def museum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Museum]:
    """A server whose table has a public number of visitors."""
    with museum_server(tmp_path_factory.mktemp("public"), number_is_public=True) as server:
        yield server


def number_of(page, title: str) -> float:
    text = page.locator("dt", has_text=title).locator("+ dd").inner_text()
    return float(re.search(r"[\d.,]+", text)[0].replace(",", ""))


def test_shares_stand_beside_counts_in_the_plan_and_in_the_release(open_browser) -> None:
    page = open_browser(ADA)
    page.get_by_role("button", name="All 1-way tables").click()
    page.locator(BARS).wait_for()
    page.locator("dt", has_text="As a share").wait_for()
    people = float(
        page.get_by_role("spinbutton", name="Made-up people").input_value().replace(",", "")
    )
    counts, share = number_of(page, "Typical error"), number_of(page, "As a share")
    assert share == pytest.approx(counts / people, rel=0.02)
    check_accessible(page)
    _picture(page, "plan")
    page.get_by_role("button", name="Release …").click()
    page.get_by_role("button", name="Spend and release").click()
    page.wait_for_url("**/page/release/museum/*")
    page.locator(BARS).wait_for()
    page.get_by_text("4,000 records, whose number is public").wait_for()
    page.get_by_role("columnheader", name="share", exact=True).wait_for()
    page.get_by_role("columnheader", name="share low").wait_for()
    check_accessible(page)
    _picture(page, "release")


def _picture(page, name: str) -> None:
    """A screenshot for whoever wants to look."""
    folder = os.environ.get("SFUMATO_LOOK")
    if folder:
        page.screenshot(path=Path(folder) / f"shares-{name}.png", full_page=True)
