# SPDX-License-Identifier: Apache-2.0
"""Ask, be answered, ask again, be refused; in a real browser.

Whether an answer is free or paid is decided by noise, so nothing here depends on it. Each test has
a dataset to itself, for they may run in any order.
"""

from __future__ import annotations

import re

from tests.page.conftest import check_accessible, picture
from tests.page.museum import ADA, BOB, CORA, DAN

YOUNG = "SELECT COUNT(*) FROM data WHERE age < 18"


def _ask(page, text):
    page.get_by_label("Question in SQL").fill(text)
    page.get_by_role("button", name="Ask", exact=True).click()


def test_ask_then_answer_then_refusal(open_browser):
    dan = open_browser(DAN)  # may spend next to nothing
    dan.goto("/page/ask")
    _ask(dan, YOUNG)
    refused = dan.get_by_role("alert")
    refused.get_by_text("Allowance of analyst 'dan': budget refused").wait_for()
    refused.get_by_text("ask your curator for more").wait_for()
    check_accessible(dan)

    ada = open_browser(ADA)
    ada.goto("/page/ask")
    ada.get_by_role("heading", name="No answers yet").wait_for()
    check_accessible(ada)
    ada.get_by_role("button", name="What would it cost?").click()
    ada.get_by_text("Nothing was spent to say this.").wait_for()
    _ask(ada, YOUNG)
    first = ada.get_by_role("region", name="Answer", exact=True)
    first.get_by_text("with 95% confidence").wait_for()
    value = first.locator("dd").first.inner_text()
    assert not ada.get_by_role("alert").is_visible()
    check_accessible(ada)
    picture(ada, "ask")

    ada.get_by_role("button", name="Ask", exact=True).dblclick()
    ada.get_by_text("It was answered before, so it cost nothing").wait_for()
    assert first.locator("dd").first.inner_text() == value
    ada.reload()
    first.get_by_text("with 95% confidence").wait_for()
    assert first.locator("dd").first.inner_text() == value
    assert first.count() == 1

    _ask(ada, "SELECT MAX(age) FROM data")
    ada.get_by_role("alert").get_by_text("MAX").wait_for()
    ada.get_by_role("alert").get_by_text("Nothing was spent").wait_for()

    _ask(dan, YOUNG)  # is stored now
    answer = dan.get_by_role("region", name="Answer", exact=True)
    answer.get_by_text("It was answered before").wait_for()
    assert answer.locator("dd").first.inner_text() == value


def test_groups_means_and_medians_are_one_question_and_one_table(open_browser):
    page = open_browser(ADA)
    page.goto("/page/ask")
    text = "SELECT ticket, COUNT(*) AS n, AVG(age) AS years, MEDIAN(age) AS middle FROM data"
    page.get_by_label("Question in SQL").fill(f"{text} GROUP BY ticket ORDER BY n DESC")
    page.get_by_role("button", name="What would it cost?").click()
    page.get_by_text("Measured together").wait_for()
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_text("planned and measured together, and paid for once").wait_for()
    shape = page.get_by_role("table", name="Answer of the SELECT").first
    heads = ["ticket", "n", "n: interval", "years", "years: interval"]
    assert shape.locator("thead th").all_inner_texts()[:5] == heads
    assert shape.locator("tbody tr").count() == 5
    check_accessible(page)
    picture(page, "ask-groups")
    page.goto("/page/ledger")  # the debit leads back to the question, which costs nothing again
    page.get_by_role("link", name="SELECT ticket, COUNT(*) AS n").first.click()
    page.get_by_text("the same question costs nothing").wait_for()
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_text("It was answered before, so it cost nothing").wait_for()


def test_accuracy_is_paid_for(open_browser):
    page = open_browser(ADA)
    page.goto("/page/ask")
    page.get_by_label("Question in SQL").fill("SELECT COUNT(*) FROM data WHERE age > 70")
    page.get_by_label("Error to pay for").fill("200")
    page.get_by_role("button", name="What would that cost?").click()
    page.get_by_text("It would cost").wait_for()
    page.get_by_role("button", name="Pay for ±200", exact=True).click()
    page.get_by_text("missing for an error of 200 was paid for").wait_for()
    page.get_by_role("button", name="Pay for ±200", exact=True).click()  # again: nothing is missing
    page.get_by_text("It was answered before, so it cost nothing").wait_for()
    check_accessible(page)
    picture(page, "ask-error")
    spent = page.get_by_role("meter", name="Budget left").get_attribute("aria-valuenow")
    sharper = page.get_by_role("button", name="Sharper: ").first
    error = re.search(r"±([0-9.]+)", sharper.inner_text())[1]
    assert 0 < float(error) < 110  # half of 200 or less: what was measured before helps
    sharper.click()
    pay = page.get_by_role("button", name=f"Pay for ±{error} now")
    pay.wait_for()
    page.get_by_text("It would cost").wait_for()
    assert page.get_by_role("meter", name="Budget left").get_attribute("aria-valuenow") == spent
    pay.click()
    page.get_by_text(f"missing for an error of {error} was paid for").wait_for()


def test_controls_write_the_question(open_browser):
    page = open_browser(ADA)
    page.goto("/page/ask")
    text = page.get_by_label("Question in SQL")
    page.get_by_role("combobox", name="Count records where").click()
    page.get_by_role("option", name="ticket").click()
    page.get_by_role("combobox", name="is one of").click()
    page.get_by_role("option", name="'child'").click()
    page.keyboard.press("Escape")
    page.wait_for_function(
        """() => document.querySelector('textarea[aria-label="Question in SQL"]').value
             === `SELECT COUNT(*) FROM data WHERE "ticket" = 'child'`"""
    )
    page.get_by_role("button", name="One more condition").click()
    page.get_by_role("combobox", name="and where (2)").click()
    page.get_by_role("option", name="age").click()
    page.get_by_label("from (2)").fill("5")
    page.wait_for_function(
        """() => document.querySelector('textarea[aria-label="Question in SQL"]').value
             === `SELECT COUNT(*) FROM data WHERE "ticket" = 'child' AND "age" >= 5`"""
    )
    assert text.input_value()
    page.get_by_role("cell", name="Mon, Tue, Wed, Thu, Fri, Sat, Sun").wait_for()
    check_accessible(page)
    picture(page, "ask-controls")


def _choose(page, path, dataset):
    page.goto(path)
    page.get_by_role("combobox", name="Dataset").click()
    page.get_by_role("option", name=dataset).click()


def test_a_curator_freezes_and_nobody_is_answered(open_browser):
    cora = open_browser(CORA)
    _choose(cora, "/page/ask", "archive")
    cora.get_by_text("Loans of an archive").wait_for()
    _ask(cora, YOUNG)
    cora.get_by_role("region", name="Answer", exact=True).wait_for()

    _choose(cora, "/page/ledger", "archive")
    cora.get_by_role("button", name="Freeze archive").wait_for()
    cora.get_by_role("button", name="Verify the ledger").click()
    cora.get_by_text("The ledger is whole").wait_for()
    cora.locator(".chart svg").wait_for()
    check_accessible(cora)
    picture(cora, "ledger")
    cora.get_by_role("button", name="Freeze archive").click()
    dialog = cora.get_by_role("dialog", name="Freeze archive")
    dialog.get_by_role("button", name="Freeze now").click()
    dialog.get_by_role("alert").get_by_text("reason").wait_for()  # one is needed
    dialog.get_by_label("Reason").fill("a test")
    dialog.get_by_role("button", name="Freeze now").click()
    cora.get_by_text("archive is frozen: no new answers are given").wait_for()
    dialog.wait_for(state="detached")

    ada = open_browser(ADA)
    _choose(ada, "/page/ask", "archive")
    ada.get_by_text("Loans of an archive").wait_for()
    _ask(ada, "SELECT COUNT(*) FROM data WHERE age >= 65")
    ada.get_by_role("alert").get_by_text("has frozen this dataset").wait_for()

    cora.get_by_role("button", name="Unfreeze archive").click()
    again = cora.get_by_role("dialog", name="Unfreeze archive")
    again.get_by_label("Reason").fill("the test is over")
    again.get_by_role("button", name="Unfreeze now").click()
    cora.get_by_role("button", name="Freeze archive").wait_for()
    history = cora.get_by_role("table", name="Changes")
    history.get_by_text("unfrozen: by cora: the test is over").wait_for()
    history.get_by_text("frozen: by cora: a test", exact=True).wait_for()


def test_an_analyst_sees_their_own_ledger_and_no_brake(open_browser):
    page = open_browser(BOB, width=390, dark=True)
    page.goto("/page/ledger")
    page.get_by_role("heading", name="Nothing was spent yet").wait_for()
    assert page.get_by_role("button", name="Verify the ledger").count() == 0
    assert page.get_by_role("button", name="Freeze").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    check_accessible(page)
