# SPDX-License-Identifier: Apache-2.0
"""The page Plan: see the error before anything is spent."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from nicegui import background_tasks, ui

from sfumato.app.page.chart import Chart
from sfumato.app.page.confirm import Confirm
from sfumato.app.page.draft import DELTAS, EPSILONS, draft_of
from sfumato.app.page.forecasts import Preview, Rescaled, rescaled
from sfumato.app.page.questions import Questions
from sfumato.app.page.shell import (
    Visitor,
    card,
    empty,
    facts_html,
    labelled,
    page,
    table_html,
    told,
    words,
)
from sfumato.app.page.slider import slider
from sfumato.app.page.tables import Tables
from sfumato.app.show import STOPPED, counts

if TYPE_CHECKING:
    from sfumato.app.server.config import Analyst
    from sfumato.flow import Plan

__all__ = ["register"]

REST_SECONDS = 0.35  # after which a slider is taken to rest


def register() -> None:
    """Make the page."""

    @page("/plan", "Plan", "See the error before you spend.")
    async def _plan(visitor: Visitor) -> None:
        await _Planning(visitor).build()


class _Planning:
    """Controls to the left, the forecast to the right."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor, self.draft = visitor, draft_of(visitor)
        self.tables = Tables(visitor, self.draft, self.retabled)
        self.questions = Questions(visitor, self.draft, self.replan)
        self.confirm = Confirm(visitor, self.draft)
        self.plan: Plan | None = None
        self.preview: Preview | None = None
        self.ratio = 1.0
        self.is_picked = False  # whether somebody chose what the preview shows
        self._wanted = self._moves = 0
        self._is_planning = False

    async def build(self) -> None:
        """Everything; the forecast follows when the browser is there."""
        with ui.element("div").classes("split"):
            with ui.element("div").classes("stack loose"):
                self.tables.build()
                self.questions.build()
            with ui.element("div").classes("stack loose") as self.right:
                self._build_forecast()
        subject = self.tables.subject()
        await self.questions.set_domain(None if subject is None else subject.domain)
        ui.context.client.on_connect(self.replan)

    # the budget

    def _build_budget(self) -> None:
        draft = self.draft
        with ui.element("div").classes("halves tight"):
            slider("Epsilon", EPSILONS, draft.epsilon, partial(self._slid, "epsilon"))
            deltas = ["0 (pure)" if d == "0" else d for d in DELTAS]
            slider("Delta", deltas, draft.delta, partial(self._slid, "delta"))

    def _slid(self, which: str, value: int) -> None:
        """While the slider moves: the same strategy at another budget, at once."""
        setattr(self.draft, which, value)
        scaled = None if self.plan is None else rescaled(self.plan, self.draft.budget)
        if scaled is not None:
            self._show(scaled)
        self.confirm.stale()
        self._moves += 1
        background_tasks.create(self._settle(self._moves), name="settle")

    async def _settle(self, move: int) -> None:
        """Once the slider rests, plan for where it stands: another way may be better there."""
        await asyncio.sleep(REST_SECONDS)
        if move == self._moves:
            await self.replan()

    # the forecast

    def _build_forecast(self) -> None:
        with card("Forecast") as self.forecast:
            words(
                "Nothing is spent here: a plan reads no data. Smaller budgets protect people "
                "better, and answers are less exact.",
                "promise",
            )
            self._build_budget()
            self.status = ui.element("div").props("aria-live=polite").classes("stack")
            self.facts = ui.html("", sanitize=False, tag="dl").classes("facts")
            self.confirm.build()
        self.empty = empty("No questions yet", "Add one, and its error is forecast here.")
        with card("Preview", "Made-up people with the error bars of this plan.") as self.pictured:
            with ui.element("div").classes("line"):
                self.group = ui.select({}, label="Answers", on_change=self._show_chart)
                self.group.on("update:model-value", self._picked)
                self.group.classes("grow")
                self.records = ui.number(
                    "Made-up people", value=self.draft.records, min=1, max=10**9, format="%.0f"
                )
                self.records.on("change", self._repeople)
            self.chart = Chart(None, "Preview")
        with card("By question", "Typical and largest error of a group, in counts.") as self.groups:
            self.group_table = _table_place("Forecast by group of questions")
        with card("Ways to answer", "Every mechanism that was tried.") as self.ways:
            self.way_table = _table_place("Mechanisms side by side")
        self._unveil(False)

    def _unveil(self, has_plan: bool) -> None:
        for part in (self.facts, self.pictured, self.groups, self.ways):
            part.set_visibility(has_plan)
        self.empty.set_visibility(not self.draft.entries)
        self.confirm.unveil(has_plan)

    async def retabled(self) -> None:
        """Another table: its questions and its plan."""
        subject = self.tables.subject()
        await self.questions.set_domain(None if subject is None else subject.domain)
        await self.replan()

    async def replan(self) -> None:
        """Plan for what is asked now; what changes meanwhile is planned next, one at a time."""
        self._wanted += 1
        if self._is_planning:
            return
        self._is_planning = True
        self.right.classes(add="busy")
        try:
            mine = 0
            while mine != self._wanted:
                mine = self._wanted
                await self._plan_once(mine)
        finally:
            self._is_planning = False
            self.right.classes(remove="busy")

    async def _plan_once(self, mine: int) -> None:
        subject = self.tables.subject()
        if not self.draft.entries or subject is None:
            self.plan = None
            self.status.clear()
            self._unveil(False)
            return
        with told(self.status, clear=True):
            self.empty.set_visibility(False)
            if self.plan is None:
                words("Planning: mechanisms are built and compared.", "note")
            asked = self.draft.asked()
            how = (subject, asked, self.draft.records, self.visitor.who)
            found = await self.visitor.work(_planned, *how)
            if mine == self._wanted:
                self.status.clear()
                self.plan, self.preview = found
                self._show_plan()
                await self.confirm.offer(subject.guarded, self.plan)

    def _show_plan(self) -> None:
        assert self.plan is not None  # noqa: S101
        assert self.preview is not None  # noqa: S101
        self._unveil(True)
        options = {str(t): name for t, name in self.preview.groups.items()}
        is_kept = self.is_picked and self.group.value in options
        value = self.group.value if is_kept else next(iter(options), None)
        self.group.set_options(options, value=value)
        self.pictured.set_visibility(bool(options))
        self._show(Rescaled(self.plan, self.plan.budget, 1.0))

    def _show(self, scaled: Rescaled) -> None:
        self.ratio = scaled.ratio
        self.facts.set_content(facts_html(_facts(scaled)))
        groups = [(n, f"{k:,}", counts(rmse), counts(most)) for n, k, rmse, most in scaled.groups]
        self.group_table.set_content(
            table_html(["group", "answers", "typical", "largest"], groups, "Forecast by group")
        )
        ways = scaled.candidates
        chosen = next((i for i, way in enumerate(ways) if way[3]), None)
        rows = [(n, counts(e), "chosen" if is_it else why) for n, e, why, is_it in ways]
        self.way_table.set_content(
            table_html(["mechanism", "typical", "note"], rows, "Mechanisms", chosen=chosen)
        )
        self._show_chart()

    def _show_chart(self) -> None:
        if self.preview is None or self.group.value is None or self.plan is None:
            return
        group = int(self.group.value)
        name = self.preview.groups.get(group)
        if name is not None:
            label = f"Preview of {name} on made-up people, with intervals of 95%"
            self.chart.show(self.preview.spec(group, self.ratio), label)

    def _picked(self) -> None:
        self.is_picked = True

    def _repeople(self) -> None:
        self.draft.records = max(1, int(self.records.value or 1))
        if self.plan is not None:
            self.preview = Preview(self.plan, self.draft.records)
            self._show_chart()


def _planned(
    subject: object, asked: dict[str, object], records: int, who: Analyst
) -> tuple[Plan, Preview]:
    """In a worker: the plan, and the first of its charts."""
    from sfumato.app.page.draft import Subject

    assert isinstance(subject, Subject)  # noqa: S101
    plan = subject.plan(asked, who)
    preview = Preview(plan, records)
    for group in list(preview.groups)[:1]:
        preview.spec(group, 1.0)
    return plan, preview


def _facts(scaled: Rescaled) -> list[tuple[str, str, str]]:
    plan = scaled.plan
    stopped = [("Stopped early", "yes", STOPPED)] if plan.stopped_early else []
    return [
        ("Typical error", f"± {counts(scaled.rmse)}", "counts, root mean square"),
        ("Largest error", f"± {counts(scaled.largest)}", "counts, of the worst answer"),
        ("How good", *_certificate(plan)),
        ("Answers", f"{plan.workload.queries:,}", f"by {plan.mechanism}"),
        *stopped,
    ]


def _certificate(plan: Plan) -> tuple[str, str]:
    """How far from the best possible, in words."""
    known = plan.certificate
    if known is None:
        return "not known", "no lower bound for this workload and noise"
    over = known - 1
    if over < 0.0005:
        return "the best possible", "certified: within 0.05%"
    if over < 0.1:
        return f"within {over:.1%}", "of the best possible, certified"
    note = "the least possible error, at most"
    if plan.strategy.noise == "laplace":
        note += "; the bound is loose for Laplace noise"
    return f"{known:.2f} x", note


def _table_place(label: str) -> ui.html:
    return labelled(ui.html("", sanitize=False).classes("wide tall").props("tabindex=0"), label)
