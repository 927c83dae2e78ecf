# SPDX-License-Identifier: Apache-2.0
"""The page People: what curators do works at once; nobody else does any of it."""

from __future__ import annotations

from tests.page.conftest import check_accessible, picture
from tests.page.museum import CORA


def test_somebody_is_let_in_allowed_something_and_let_out(open_browser):
    cora = open_browser(CORA)
    cora.get_by_role("link", name="People", exact=True).click()
    cora.get_by_role("table", name="People").get_by_role("cell", name="dan").wait_for()
    cora.get_by_label("Name of the person").fill("eve")
    cora.get_by_role("combobox", name="Tables", exact=True).click()
    cora.get_by_role("option", name="museum").click()
    cora.keyboard.press("Escape")
    cora.get_by_role("option", name="museum").wait_for(state="hidden")
    let_in = cora.get_by_role("button", name="Let in")
    let_in.click()
    cora.get_by_role("alert").get_by_text("reason").wait_for()  # one is needed
    cora.get_by_label("Reason to let them in").fill("joined the team")
    let_in.focus()
    cora.keyboard.press("Enter")
    token = cora.get_by_label("Token", exact=True)
    token.wait_for()
    secret = token.input_value()
    assert secret.startswith("sfu_")
    cora.get_by_role("table", name="Changes of people").get_by_text("joined the team").wait_for()
    check_accessible(cora)
    picture(cora, "people")

    cora.get_by_label("Allowed epsilon").fill("0.25")
    cora.get_by_label("Reason of the allowance").fill("a first look")
    cora.get_by_role("combobox", name="Of the table", exact=True).click()
    cora.get_by_role("option", name="museum").click()
    cora.get_by_role("button", name="Set the allowance").click()
    cora.get_by_role("table", name="Allowances").get_by_text("epsilon = 0.25").wait_for()

    eve = open_browser(secret)
    assert eve.get_by_role("link", name="People", exact=True).count() == 0
    eve.get_by_text("pure noise up to epsilon 0.25").wait_for()
    eve.goto("/page/people")
    eve.get_by_role("alert").get_by_text("curator").wait_for()

    cora.get_by_label("Reason of the change").fill("left the team")
    person = cora.get_by_role("region", name="Change somebody")
    person.get_by_role("button", name="Remove", exact=True).click()
    cora.get_by_role("table", name="Changes of people").get_by_text("left the team").wait_for()
    eve.goto("/page/plan")
    eve.wait_for_url("**/page/login?next=/page/plan")

    narrow = open_browser(CORA, width=390, dark=True)
    narrow.goto("/page/people")
    narrow.get_by_role("table", name="Changes of people").wait_for()
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 390
    check_accessible(narrow)
