# SPDX-License-Identifier: Apache-2.0
"""From a plan to a release: what it costs, what remains, one button, and a bar while it runs.

The release goes the way of ``POST /datasets/NAME/release``: its key is made of what is asked, so a
second click, a reload or another browser gets the stored answer and spends nothing.
"""

from __future__ import annotations

from math import ceil, log10
from typing import TYPE_CHECKING

from nicegui import ui

from sfumato.ledger.account import percent
from sfumato.privacy.budget import number_text
from sfumato.privacy.cost import composed_epsilon
from sfumato.release.provenance import cost_in_words, guarantee
from sfumato_web.page.layout import Visitor, facts, say, told, words
from sfumato_web.page.plan_draft import Draft
from sfumato_web.server.models import canonical

if TYPE_CHECKING:
    from sfumato.ledger.account import Price, Remaining
    from sfumato.planning.forecast import Forecast
    from sfumato.run.linear import Plan
    from sfumato_web.server.dataset import Guarded, ReleaseWanted

__all__ = [
    "Confirm",
    "spent",
]


_OF_IT = "of your budget for this table"
_NEVER_GROWS = "it never grows"


def spent(forecast: Forecast) -> tuple[str, str]:
    """What a release costs, rounded up, and the rest of the sentence.

    >>> import sfumato as sf
    >>> spent(sf.plan(sf.marginals(sf.Domain({"age": 9}), 1), sf.Budget(epsilon=1)).forecast)
    ('epsilon 1', '')
    """
    budget = forecast.budget
    if budget.epsilon is None:
        return cost_in_words(forecast.cost, budget), ""
    delta = budget.delta if forecast.cost.mu_squared else 0
    exact = composed_epsilon([forecast.cost], delta or 0)
    digits = 3 - ceil(log10(exact))
    text = f"epsilon {ceil(exact * 10**digits) / 10**digits:.12g}"
    return text, f"at delta {number_text(budget.delta)}" if delta and budget.delta else ""


class Progress:
    """How far a release is; written by a worker, read by the page now and then.

    Each kind of step has a part of the bar, six tenths of what is left of it when its first step
    begins, as nobody knows which kinds will follow. The bar never runs backwards.

    >>> progress = Progress()
    >>> shown = []
    >>> for done, what in ((1, "counting"), (4, "counting"), (2, "projecting"), (0, "projecting")):
    ...     progress(done, 4, what)
    ...     shown.append(round(progress.share, 2))
    >>> shown
    [0.15, 0.6, 0.72, 0.72]
    """

    def __init__(self) -> None:
        self.share, self.words = 0.0, "Waiting for its turn"
        self._parts: dict[str, tuple[float, float]] = {}

    def __call__(self, done: int, total: int, what: str) -> None:
        """Called by the flow: ``done`` of ``total`` steps."""
        kind = what.split(maxsplit=1)[0] if what.strip() else ""
        if kind not in self._parts:
            self._parts[kind] = (self.share, self.share + 0.6 * (1 - self.share))
        begin, end = self._parts[kind]
        part = min(1.0, max(0.0, done / total)) if total else 0.0
        self.share = max(self.share, begin + part * (end - begin))
        self.words = what[:1].upper() + what[1:]


class Confirm:
    """The button below a forecast, and the dialog behind it."""

    def __init__(self, visitor: Visitor, draft: Draft) -> None:
        self.visitor, self.draft = visitor, draft
        self.plan: Plan | None = None
        self.guarded: Guarded | None = None

    def build(self) -> None:
        """The line below the forecast, hidden until there is a plan."""
        with ui.element("div").classes("line apart") as self.line:
            self.said = words("", "note").classes("grow")
            self.button = ui.button("Release …", on_click=self.ask)
        with ui.dialog() as self.dialog, ui.card().classes("confirm"):
            self.dialog.props["aria-label"] = "Spend and release?"
            self.inside = ui.element("div").classes("stack")

    def unveil(self, is_shown: bool) -> None:
        """Show or hide it."""
        self.line.set_visibility(is_shown)

    def stale(self) -> None:
        """The budget moves: nothing can be released until there is a plan for it."""
        self.button.set_enabled(False)

    async def offer(self, guarded: Guarded | None, plan: Plan) -> None:
        """Say what a release would cost, and whether it can be had."""
        self.guarded, self.plan = guarded, plan
        if guarded is None:
            say(self.said, "A schema without a table: there is nothing to release.")
            self.button.set_enabled(False)
            return
        who, asked = self.visitor.who, canonical(self.draft.asked())

        def looked() -> bool:
            return guarded.body(guarded.read(asked)) is not None

        is_known = await guarded.on_ledger(who, looked)
        within = plan.in_ledger
        cost = " ".join(spent(plan.forecast)).strip()
        if is_known or within is None:
            said = "Released before: opening it again costs nothing."
        else:
            said = f"It would cost {cost}: it {within.describe()}."
        say(self.said, said)
        self.button.set_text("Open the release" if is_known else "Release …")
        self.button.set_enabled(is_known or within is None or within.fits)

    async def ask(self) -> None:
        """The dialog that says what is about to be spent."""
        guarded, plan = self.guarded, self.plan
        if guarded is None or plan is None:
            return
        who, asked = self.visitor.who, canonical(self.draft.asked())

        def looked() -> tuple[ReleaseWanted, bool, Remaining, Price]:
            wanted, book = guarded.read(asked), guarded.book
            is_known = guarded.body(wanted) is not None
            price = book.price(plan.cost, who.name, delta=plan.budget.delta)
            return wanted, is_known, book.remaining(who.name), price

        self.visitor.check()
        wanted, is_known, left, price = await guarded.on_ledger(who, looked)
        if is_known:
            ui.navigate.to(f"/release/{guarded.name}/{wanted.key}")
            return
        self.inside.clear()
        with self.inside:
            ui.html("Spend and release?", sanitize=False, tag="h2")
            facts(
                [
                    ("It costs", *spent(plan.forecast)),
                    ("It takes", "-" if price.share is None else percent(price.share), _OF_IT),
                    ("Left now", percent(left.share), _OF_IT),
                    ("Left then", "-" if price.left is None else percent(price.left), _NEVER_GROWS),
                ]
            )
            words(guarantee(plan), "note")
            self.place = ui.element("div").classes("stack").props("aria-live=polite")
            with ui.element("div").classes("line") as self.choices:
                ui.button("Spend and release", on_click=lambda: self._release(guarded, wanted))
                cancel = ui.element("button").classes("pick").props("type=button")
                with cancel.on("click", self.dialog.close):
                    ui.label("Cancel")
        self.dialog.open()

    async def _release(self, guarded: Guarded, wanted: ReleaseWanted) -> None:
        """Debit, measure, and go to the answers."""
        self.choices.set_visibility(False)  # one click is enough; a second would be free
        self.dialog.props("persistent")
        visitor, progress = self.visitor, Progress()
        with told(self.place, clear=True):
            bar = ui.linear_progress(value=0, show_value=False)
            bar.props["aria-label"] = "Progress of the release"
            said = words(progress.words, "note")
            timer = ui.timer(0.25, lambda: _show(progress, bar, said))
            try:
                began = visitor.now()
                visitor.check()
                who, house = visitor.who, visitor.house
                if await house.read(who, guarded.known, wanted, who, None) is None:
                    await house.work(who, guarded.release, wanted, who, progress, lane=guarded.lane)
                await visitor.on_grid(began)
            finally:
                timer.deactivate()
                self.dialog.props(remove="persistent")
            ui.navigate.to(f"/release/{guarded.name}/{wanted.key}")


def _show(progress: Progress, bar: ui.linear_progress, said: ui.html) -> None:
    bar.set_value(progress.share)
    say(said, progress.words)
