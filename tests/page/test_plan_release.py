# SPDX-License-Identifier: Apache-2.0
"""From a plan to files, in a real browser: what people click, and what it costs them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import httpx
import pandas as pd
import pytest

from tests.http.served import bearer
from tests.page.conftest import WAIT, check_accessible, picture, sign_in
from tests.page.museum import ADA, BOB, CORA, DAN, Museum, museum_server

BARS = ".chart[data-drawn] svg"


@pytest.fixture(scope="module")
def museum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Museum]:
    """A server whose budget nobody has touched yet."""
    with museum_server(tmp_path_factory.mktemp("museum")) as found:
        yield found


def ask_totals(page) -> None:
    """Running totals of age by ticket, by clicking."""
    page.get_by_role("button", name="Running totals").click()
    page.get_by_role("button", name="age", exact=True).click()
    page.get_by_role("button", name="ticket", exact=True).click()
    page.get_by_role("button", name="Add: Running totals of age, by ticket").click()
    page.get_by_role("cell", name="prefix age by ticket").wait_for()


def spent(museum) -> float:
    found = httpx.get(f"{museum.address}/datasets", headers=bearer(ADA)).json()
    return 1 - next(d["remaining"]["share"] for d in found if d["name"] == "museum")


def typical(page) -> float:
    text = page.locator("dt", has_text="Typical error").locator("+ dd").inner_text()
    return float(re.search(r"[\d.,]+", text)[0].replace(",", ""))


def release_button(page):
    return page.get_by_role("button", name="Release …")


def test_plan_release_download(open_browser, museum, tmp_path):
    page = open_browser(ADA)
    page.get_by_text("No questions yet").wait_for()
    page.get_by_role("button", name="All 1-way tables").click()
    page.get_by_text("Nothing is spent here").wait_for()
    page.locator(BARS).wait_for()
    ask_totals(page)
    before = typical(page)
    page.get_by_role("slider", name="Epsilon").focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    page.get_by_text("It would cost epsilon 0.5").wait_for()
    assert typical(page) == pytest.approx(2 * before, rel=0.05)
    assert spent(museum) == 0
    check_accessible(page)
    picture(page, "plan")

    release_button(page).click()
    page.get_by_role("heading", name="Spend and release?").wait_for()
    page.get_by_text(re.compile(r"80(\.0\d)?%it never grows")).wait_for()
    page.get_by_text(re.compile(r"(20|19\.99|20\.01)%of your budget")).wait_for()  # it takes
    check_accessible(page, "[role=dialog]")
    picture(page, "confirm")
    page.get_by_role("button", name="Spend and release").dblclick()
    page.wait_for_url("**/page/release/museum/*")
    page.locator(BARS).wait_for()
    check_accessible(page)
    picture(page, "release")
    paid = spent(museum)
    assert paid == pytest.approx(0.2, abs=1e-4)

    for name in ("age", "weekday"):
        page.get_by_role("combobox", name="Group").click()
        page.get_by_role("option", name=name, exact=True).click()
        page.get_by_role("region", name=f"Answers of {name}").wait_for()
        page.locator(BARS).wait_for()
    for file in ("answers.parquet", "answers.csv", "synthetic.parquet", "report.html"):
        with page.expect_download() as waiting:
            page.get_by_role("link", name=file).click()
        waiting.value.save_as(tmp_path / file)
    with page.expect_download() as waiting:
        page.get_by_role("link", name="provenance.json").click()
    record = json.loads(waiting.value.path().read_text())
    assert record["neighbours"] == "add-remove"
    assert len(pd.read_parquet(tmp_path / "answers.parquet")) == 90 + 5 + 7 + 2 + 450
    assert set(pd.read_parquet(tmp_path / "synthetic.parquet")) == {
        "age",
        "ticket",
        "weekday",
        "guided",
    }
    assert "private answers" in (tmp_path / "report.html").read_text()

    # Looking again, asking again, in another browser too: nothing more is spent.
    page.reload()
    page.locator(BARS).wait_for()
    page.goto("/page/plan")
    page.get_by_role("button", name="Open the release").click()
    page.wait_for_url("**/page/release/museum/*")
    address = page.url
    other = open_browser(CORA)
    other.goto(address)
    other.locator(BARS).wait_for()
    assert spent(museum) == paid
    page.goto("/page/release")
    page.get_by_role("link", name="museum: All 1-way tables").wait_for()
    stranger = open_browser(BOB)
    stranger.goto(address)
    stranger.get_by_role("alert").get_by_text("No dataset of this name").wait_for()


def test_the_most_is_marked_ways_are_chosen_and_a_draft_is_sent(open_browser, museum):
    page = open_browser(DAN)  # who may spend next to nothing
    page.get_by_text("pure noise up to epsilon 0.000001").wait_for()
    before = spent(museum)
    page = open_browser(CORA)
    page.get_by_role("button", name="All 1-way tables").click()
    page.get_by_text("The most you can spend at once").wait_for()
    assert page.locator(".slider-mark span").first.bounding_box()["width"] > 0
    page.get_by_role("button", name="Choose how").click()
    for name, option in (
        ("Mechanism", "gaussian-groups"),
        ("Make small", "the largest error"),
        ("Intervals", "99%"),
        ("Publish", "never below zero"),
    ):
        page.get_by_role("combobox", name=name).click()
        page.get_by_role("option", name=option).click()
    page.get_by_text("by gaussian-groups").wait_for()
    assert page.get_by_text("pure noise up to").count() == 0
    spend = page.get_by_role("button", name=re.compile("^Spend [0-9.]+$"))
    most = spend.inner_text().removeprefix("Spend ").strip()
    spend.click()
    page.get_by_text(f"It would cost epsilon {most}").wait_for()
    slider = page.get_by_role("slider", name="Epsilon")
    assert slider.get_attribute("aria-valuetext") == most
    check_accessible(page)
    page.get_by_label("Name of the draft").fill("weekly tables")
    page.get_by_role("button", name="Keep").click()
    page.get_by_role("link", name="weekly tables (museum)").wait_for()
    page.get_by_role("button", name="Link to send").click()
    link = page.get_by_label("Link", exact=True)
    page.wait_for_function("document.querySelector('[aria-label=Link]')?.value?.startsWith('http')")
    address = link.input_value()
    check_accessible(page)
    picture(page, "draft")

    ada = open_browser(None)
    ada.goto(address)  # leads to the login and back to the draft
    ada.get_by_label("Your token").fill(ADA)
    ada.get_by_role("button", name="Sign in").click()
    ada.get_by_text("by gaussian-groups").wait_for()
    assert ada.get_by_role("link", name="weekly tables").count() == 0  # hers are her own
    stranger = open_browser(BOB)
    stranger.goto(address)
    stranger.get_by_role("alert").get_by_text("No dataset of this name").wait_for()
    stranger.goto(address[:-9])
    stranger.get_by_role("alert").get_by_text("holds no draft").wait_for()
    page.get_by_role("button", name="Remove the draft weekly tables").click()
    page.get_by_role("link", name="weekly tables").wait_for(state="detached")
    assert spent(museum) == before


def test_a_first_load_is_small(chromium, museum):
    context = chromium.new_context(base_url=museum.address)
    context.set_default_timeout(WAIT)
    page = context.new_page()
    watch = context.new_cdp_session(page)
    watch.send("Network.enable")
    sizes: list[float] = []
    watch.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    sign_in(page, CORA)
    page.get_by_role("button", name="All 1-way tables").click()
    page.locator(BARS).wait_for()
    assert 500_000 < sum(sizes) < 700_000  # the library of charts alone has 300,000
    context.close()


def test_what_is_wrong_is_said_in_its_place(open_browser):
    page = open_browser(ADA)
    page.get_by_role("button", name="SQL", exact=True).click()
    page.get_by_label("SQL").fill("SELECT COUNT(*) FROM data WHERE <b>hue</b> = 3")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("alert").wait_for()
    page.get_by_label("SQL").fill("SELECT COUNT(*) FROM data WHERE agee >= 65")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("alert").get_by_text("did you mean 'age'").wait_for()
    page.get_by_label("SQL").fill(
        "SELECT ticket, COUNT(*) FROM data WHERE age >= 65 GROUP BY ticket"
    )
    page.get_by_role("button", name="Add", exact=True).click()
    page.locator(".asked li").wait_for()
    page.locator(BARS).wait_for()
    assert page.get_by_role("alert").count() == 0


def test_a_select_is_shown_in_its_own_shape(open_browser):
    page = open_browser(ADA)
    page.get_by_role("button", name="SQL", exact=True).click()
    text = "SELECT ticket, COUNT(*) AS n, AVG(age) AS years FROM data GROUP BY ticket"
    page.get_by_label("SQL").fill(f"{text} ORDER BY n DESC LIMIT 3")
    page.get_by_role("button", name="Add", exact=True).click()
    page.locator(".asked li").wait_for()
    page.locator(BARS).wait_for()
    release_button(page).click()
    page.get_by_role("button", name="Spend and release").click()
    page.wait_for_url("**/page/release/museum/*")
    shape = page.get_by_role("table", name="Answer of the SELECT")
    shape.wait_for()
    heads = ["ticket", "n", "n: interval", "years", "years: interval"]
    assert shape.locator("thead th").all_inner_texts() == heads
    assert shape.locator("tbody tr").count() == 3
    check_accessible(page)
    picture(page, "release-statement")


def test_a_release_that_costs_too_much_cannot_be_asked_for(open_browser):
    page = open_browser(BOB)
    page.get_by_role("button", name="All 1-way tables").click()
    page.get_by_text("it will be refused: ").wait_for()
    assert release_button(page).is_disabled()


def test_a_schema_of_ones_own(open_browser):
    page = open_browser(ADA)
    page.get_by_role("combobox", name="Table").click()
    page.get_by_role("option", name="A schema of my own").click()
    page.get_by_text("must be public knowledge").wait_for()
    schema = page.get_by_label("Schema (TOML)")
    schema.fill('[domain.age]\nkind = "integer"\nmin = 0\nmax = "FILL IN: the greatest"\n')
    page.get_by_role("button", name="Use this schema").click()
    page.get_by_role("alert").get_by_text("line 4").wait_for()
    schema.fill('[domain.height]\nkind = "integer"\nmin = 0\nmax = 63\n')
    page.get_by_role("button", name="Use this schema").click()
    page.get_by_role("button", name="All 1-way tables").click()
    page.get_by_text("there is nothing to release").wait_for()
    page.locator(BARS).wait_for()
    check_accessible(page)


def test_a_curator_drafts_a_schema_from_types(open_browser):
    page = open_browser(CORA)
    page.get_by_role("button", name="4 attributes").click()
    page.get_by_role("button", name="Draft a schema").click()
    page.get_by_text("must come from public knowledge").first.wait_for()
    assert "FILL IN" in page.get_by_label("Schema (TOML)").input_value()


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_narrow_and_dark(open_browser, width, dark):
    page = open_browser(ADA, width=width, height=844, dark=dark)
    page.get_by_role("button", name="All 1-way tables").click()
    page.locator(BARS).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    check_accessible(page)
    picture(page, "plan-dark" if dark else "plan-narrow")


def test_login_and_logout(open_browser):
    page = open_browser(None)
    page.goto("/page/ledger")
    page.wait_for_url("**/page/login?next=/page/ledger")
    check_accessible(page)
    picture(page, "login")
    sign_in(page, ADA)
    page.get_by_role("button", name="Switch between light and dark").click()
    page.wait_for_selector("body.body--dark")
    page.get_by_role("button", name="Ranges", exact=True).click()
    page.get_by_text("Pick one").first.wait_for()  # the server has sent something since
    page.wait_for_selector("body.body--dark")
    page.reload()
    page.wait_for_selector("body.body--dark")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/page/login")
    page.goto("/page/plan")
    page.wait_for_url("**/page/login?next=/page/plan")


HELD = """
import time
from pathlib import Path
from sfumato_web.server.dataset import GuardedDataset
real = GuardedDataset.release
def release(self, task, who, progress=None):
    while not Path({go!r}).exists():
        progress(1, 4, "counting")
        time.sleep(0.05)
    return real(self, task, who, progress)
GuardedDataset.release = release
"""


def test_a_release_shows_its_step_and_is_cancelled_before_it_pays(chromium, tmp_path):
    go = tmp_path / "go"
    with museum_server(tmp_path / "m", before=HELD.format(go=str(go))) as museum:
        context = chromium.new_context(base_url=museum.address, reduced_motion="reduce")
        context.set_default_timeout(WAIT)
        page = context.new_page()
        sign_in(page, ADA)
        page.get_by_role("button", name="All 1-way tables").click()
        release_button(page).click()
        page.get_by_role("button", name="Spend and release").click()
        page.get_by_text("Counting").wait_for()
        other = context.new_page()
        other.goto("/page/release")
        other.get_by_role("heading", name="Under way").wait_for()
        other.get_by_text("museum: All 1-way tables, by ada").wait_for()
        check_accessible(page, "[role=dialog]")
        page.get_by_role("button", name="Cancel, nothing is spent yet").click()
        other.get_by_text("Cancelled; nothing was spent").wait_for()
        page.get_by_role("dialog").wait_for(state="hidden")
        go.touch()
        assert spent(museum) == 0
        jobs = httpx.get(f"{museum.address}/jobs", headers=bearer(ADA)).json()
        assert [j["state"] for j in jobs] == ["cancelled"]
        release_button(page).click()
        page.get_by_role("button", name="Spend and release").click()
        page.wait_for_url("**/page/release/museum/*")
        assert spent(museum) > 0
        context.close()
