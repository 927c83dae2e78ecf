# SPDX-License-Identifier: Apache-2.0
"""How soon the page follows a slider: from the move to the drawn chart, in a real browser.

A server with a made-up table of museum visitors and Chromium, both on this machine; the workload is
all 2-way tables and the running totals of age by ticket.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

MOVES = 200

_MOVE = """async (moves) => {
  const slider = document.querySelector("input[type=range]");
  const chart = document.querySelector(".chart");
  const times = [];
  for (let i = 0; i < moves; i++) {
    const began = performance.now();
    const drawn = new Promise((resolve) => {
      const watch = new MutationObserver(() => { watch.disconnect(); resolve(); });
      watch.observe(chart, { attributes: true, attributeFilter: ["data-drawn"] });
    });
    slider.value = String(5 + (i * 7) % 25);
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    await drawn;
    times.push(performance.now() - began);
  }
  return times;
}"""


def run(moves: int = MOVES) -> list[float]:
    """Milliseconds from each move of the slider to the chart, in order of size."""
    from playwright.sync_api import sync_playwright

    from tests.page.conftest import chromium_path, sign_in
    from tests.page.museum import ADA, museum_server

    executable = chromium_path()
    if executable is None:
        raise RuntimeError("no Chromium; install it, or name one in SFUMATO_CHROMIUM")
    with (
        TemporaryDirectory() as folder,
        museum_server(Path(folder)) as museum,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = browser.new_context(base_url=museum.address).new_page()
        page.set_default_timeout(120_000)
        sign_in(page, ADA)
        page.get_by_role("button", name="All 2-way tables").click()
        page.locator(".chart[data-drawn] svg").wait_for()
        page.get_by_role("button", name="Running totals").click()
        page.get_by_role("button", name="age", exact=True).click()
        page.get_by_role("button", name="ticket", exact=True).click()
        page.get_by_role("button", name="Add: Running totals of age, by ticket").click()
        page.get_by_role("cell", name="prefix age by ticket").wait_for()
        times = sorted(page.evaluate(_MOVE, moves))
        browser.close()
    return times


def main() -> None:
    """Print the times."""
    from rich.table import Table

    from bench.tell import show

    times = run()
    shown = Table(title="From the move of a slider to the drawn chart, milliseconds")
    for head in ("moves", "median", "95%", "largest"):
        shown.add_column(head, justify="right")
    at = (times[len(times) // 2], times[int(0.95 * len(times))], times[-1])
    shown.add_row(str(len(times)), *(f"{t:.0f}" for t in at))
    show(shown)
