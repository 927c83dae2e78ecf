# SPDX-License-Identifier: Apache-2.0
"""Every idea opens, says what to notice, and follows its controls; by keyboard, too."""

from __future__ import annotations

from sfumato_web.page.learn_page import IDEAS
from tests.page.conftest import check_accessible, picture

# The slider that is moved, and what is then to be noticed.
MOVED = {
    "three-ways": ("Questions k", "It beats Laplace on 200 queries"),
    "repeated": ("Times it is asked", "the square root of 21"),
    "tree": ("From cell", "Cells 3 to 7 are 3-4 + 5-6 + 7"),
    "projection": ("Records n", "With 15 records"),
    "sparse-vector": ("Discoveries until it stops", "After 6 discoveries"),
    "weights": ("Epsilon of one paid answer", "At the start nothing is known"),
}


def test_every_idea_follows_its_control(browser_page):
    page = browser_page
    for idea in IDEAS:
        page.goto("/page/learn")
        page.get_by_role("link", name=idea.title).click()
        page.get_by_role("heading", level=1, name=idea.title).wait_for()
        figures = page.locator(".figure svg[role=img]")
        figures.nth(1).wait_for()
        assert figures.nth(0).get_attribute("aria-label")
        check_accessible(page)
        slider, noticed = MOVED[idea.name]
        page.get_by_role("slider", name=slider).press("ArrowRight")
        page.locator(".notices li", has_text=noticed).wait_for()
        picture(page, f"learn-{idea.name}")


def test_nodes_can_be_clicked_questions_asked_and_mechanisms_read_about(browser_page):
    page = browser_page
    page.goto("/page/learn/weights")
    for number in (1, 2, 3):
        page.get_by_role("button", name="Next question").click()
        page.get_by_text(f"Question {number} of 16").wait_for()
    page.locator(".notices li", has_text="of 3 answers were paid for").wait_for()
    page.get_by_role("button", name="Start over").click()
    page.locator(".notices li", has_text="At the start nothing is known").wait_for()

    page.goto("/page/learn/repeated")
    for number in (21, 22, 23):  # the slider stays where it was moved to
        page.get_by_role("slider", name="Times it is asked").press("ArrowRight")
        page.locator(".notices li", has_text=f"the square root of {number}").wait_for()

    page.goto("/page/learn/tree")
    page.locator('.figure .node[data-first="5"][data-last="8"]').click()
    page.locator(".notices li", has_text="Cells 5 to 8 are 5-8: 1 noisy sums").wait_for()
    assert page.get_by_role("slider", name="From cell").input_value() == "4"

    page.get_by_role("link", name="The tree mechanism").click()
    page.get_by_role("heading", level=1, name="The tree mechanism").wait_for()
    page.get_by_text("A record lies in one node per level").wait_for()
    check_accessible(page)


def test_ideas_fit_a_narrow_screen_in_the_dark(open_browser):
    page = open_browser(width=390, dark=True)
    page.goto("/page/learn/tree")
    page.locator(".figure svg").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    check_accessible(page)
