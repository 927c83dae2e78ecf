# SPDX-License-Identifier: Apache-2.0
"""The list of releases: names, two of them compared; what their debits lead to."""

from __future__ import annotations

import httpx

from tests.http.served import bearer
from tests.page.conftest import check_accessible, picture
from tests.page.museum import ADA, BOB

WORKLOAD = [{"marginals": [["weekday"]]}, {"marginals": [["weekday", "guided"]]}]


def test_releases_are_named_compared_and_found_from_their_debits(open_browser, museum):
    keys = []
    for epsilon in (0.05, 0.06):
        body = {"workload": WORKLOAD, "budget": {"epsilon": epsilon}}
        address = f"{museum.address}/datasets/museum/release"
        keys.append(httpx.post(address, headers=bearer(ADA), json=body, timeout=120).json()["key"])
    page = open_browser(ADA)
    page.goto(f"/page/release/museum/{keys[0]}")
    page.get_by_label("Name of the release").fill("First <quarter>")
    page.get_by_role("button", name="Keep the name").click()
    page.get_by_text("It is called so in the lists now").wait_for()
    listed = httpx.get(f"{museum.address}/datasets/museum/releases", headers=bearer(ADA)).json()
    assert {r["key"]: r["name"] for r in listed}[keys[0]] == "First <quarter>"

    page.goto("/page/release")
    compare = page.get_by_role("button", name="Compare two")
    compare.wait_for()
    assert compare.is_disabled()
    page.get_by_role("checkbox", name="First <quarter>").focus()
    page.keyboard.press("Space")
    page.get_by_role("checkbox", name="Table of weekday, Table of weekday x guided").focus()
    page.keyboard.press("Space")
    check_accessible(page)
    picture(page, "releases")
    compare.click()
    page.get_by_role("table", name="Two releases of weekday", exact=True).wait_for()
    page.get_by_text("differ by more than the noise of both explains").wait_for()
    check_accessible(page)
    picture(page, "compare")
    page.get_by_role("combobox", name="Group").click()
    page.get_by_role("option", name="weekday x guided", exact=True).click()
    page.get_by_role("table", name="Two releases of weekday x guided", exact=True).wait_for()
    address = page.url
    page.goto("/page/ledger")
    page.get_by_role("link", name="First <quarter>").click()
    page.wait_for_url(f"**/{keys[0]}")

    stranger = open_browser(BOB)
    stranger.goto(address)
    stranger.get_by_role("alert").get_by_text("No dataset of this name").wait_for()
    narrow = open_browser(ADA, width=390, dark=True)
    narrow.goto(address)
    narrow.get_by_role("table", name="Facts of two releases").wait_for()
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 390
    check_accessible(narrow)
