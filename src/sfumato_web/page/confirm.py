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
from sfumato_web.page.layout import Visitor, facts, paragraph, set_paragraph, showing_refusals
from sfumato_web.page.plan_draft import Draft
from sfumato_web.server.models import canonical

if TYPE_CHECKING:
    from sfumato.ledger.account import Price, Remaining
    from sfumato.planning.forecast import Forecast
    from sfumato.run.linear import Plan
    from sfumato_web.server.dataset import GuardedDataset, ReleaseTask

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
        self.share, self.text = 0.0, "Waiting for its turn"
        self._parts: dict[str, tuple[float, float]] = {}

    def __call__(self, done: int, total: int, what: str) -> None:
        """Called by the flow: ``done`` of ``total`` steps."""
        kind = what.split(maxsplit=1)[0] if what.strip() else ""
        if kind not in self._parts:
            self._parts[kind] = (self.share, self.share + 0.6 * (1 - self.share))
        begin, end = self._parts[kind]
        part = min(1.0, max(0.0, done / total)) if total else 0.0
        self.share = max(self.share, begin + part * (end - begin))
        self.text = what[:1].upper() + what[1:]


class Confirm:
    """The button below a forecast, and the dialog behind it."""

    def __init__(self, visitor: Visitor, draft: Draft) -> None:
        self.visitor, self.draft = visitor, draft
        self.plan: Plan | None = None
        self.dataset: GuardedDataset | None = None

    def build(self) -> None:
        """The line below the forecast, hidden until there is a plan."""
        with ui.element("div").classes("line apart") as self.line:
            self.note = paragraph("", "note").classes("grow")
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

    async def offer(self, dataset: GuardedDataset | None, plan: Plan) -> None:
        """Say what a release would cost, and whether it can be had."""
        self.dataset, self.plan = dataset, plan
        if dataset is None:
            set_paragraph(self.note, "A schema without a table: there is nothing to release.")
            self.button.set_enabled(False)
            return
        who, body = self.visitor.who, canonical(self.draft.request())

        def looked() -> bool:
            return dataset.body(dataset.read(body)) is not None

        is_stored = await dataset.on_ledger(who, looked)
        within = plan.in_ledger
        cost = " ".join(spent(plan.forecast)).strip()
        if is_stored or within is None:
            text = "Released before: opening it again costs nothing."
        else:
            text = f"It would cost {cost}: it {within.describe()}."
        set_paragraph(self.note, text)
        self.button.set_text("Open the release" if is_stored else "Release …")
        self.button.set_enabled(is_stored or within is None or within.fits)

    async def ask(self) -> None:
        """The dialog that says what is about to be spent."""
        dataset, plan = self.dataset, self.plan
        if dataset is None or plan is None:
            return
        who, body = self.visitor.who, canonical(self.draft.request())

        def looked() -> tuple[ReleaseTask, bool, Remaining, Price]:
            task, ledger = dataset.read(body), dataset.ledger
            is_stored = dataset.body(task) is not None
            price = ledger.price(plan.cost, who.name, delta=plan.budget.delta)
            return task, is_stored, ledger.remaining(who.name), price

        self.visitor.check()
        task, is_stored, left, price = await dataset.on_ledger(who, looked)
        if is_stored:
            ui.navigate.to(f"/release/{dataset.name}/{task.key}")
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
            paragraph(guarantee(plan), "note")
            self.place = ui.element("div").classes("stack").props("aria-live=polite")
            with ui.element("div").classes("line") as self.choices:
                ui.button("Spend and release", on_click=lambda: self._release(dataset, task))
                cancel = ui.element("button").classes("pick").props("type=button")
                with cancel.on("click", self.dialog.close):
                    ui.label("Cancel")
        self.dialog.open()

    async def _release(self, dataset: GuardedDataset, task: ReleaseTask) -> None:
        """Debit, measure, and go to the answers."""
        self.choices.set_visibility(False)  # one click is enough; a second would be free
        self.dialog.props("persistent")
        visitor, progress = self.visitor, Progress()
        with showing_refusals(self.place, clear=True):
            bar = ui.linear_progress(value=0, show_value=False)
            bar.props["aria-label"] = "Progress of the release"
            note = paragraph(progress.text, "note")
            timer = ui.timer(0.25, lambda: _show(progress, bar, note))
            try:
                began = visitor.now()
                visitor.check()
                who, server = visitor.who, visitor.server
                if await server.read(who, dataset.stored_body, task, who, None) is None:
                    await server.work(who, dataset.release, task, who, progress, lane=dataset.lane)
                await visitor.on_grid(began)
            finally:
                timer.deactivate()
                self.dialog.props(remove="persistent")
            ui.navigate.to(f"/release/{dataset.name}/{task.key}")


def _show(progress: Progress, bar: ui.linear_progress, note: ui.html) -> None:
    bar.set_value(progress.share)
    set_paragraph(note, progress.text)
