# SPDX-License-Identifier: Apache-2.0
"""The page Ask: one question at a time, with its interval, paid or free."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, cast

from nicegui import ui

from sfumato.app.page import asked
from sfumato.app.page.chart import Chart
from sfumato.app.page.shell import Visitor, card, empty, facts, page, table, told, words
from sfumato.app.server.problems import Problem, problem_of
from sfumato.app.show import counts
from sfumato.errors import SfumatoError

if TYPE_CHECKING:
    from sfumato.app.page.asked import Asked
    from sfumato.app.server.guarded import Guarded

__all__ = ["register"]

EVERYONE = "(all records)"
NOTHING = "(no groups)"


def register() -> None:
    """Make the page."""

    @page("/ask", "Ask", "One question at a time. What the public estimate knows costs nothing.")
    async def _ask(visitor: Visitor) -> None:
        theirs = [d for d in visitor.datasets if asked.takes_questions(d)]
        if not theirs:
            empty(
                "No dataset of yours takes single questions",
                "Its curator has to give them a budget. Plan a release instead.",
            )
            return
        await _Asking(visitor, theirs).build()


class _Asking:
    """The question to the left, what is left and what was answered to the right."""

    def __init__(self, visitor: Visitor, datasets: list[Guarded]) -> None:
        self.visitor, self.datasets, self.dataset = visitor, datasets, datasets[0]
        self.is_asking = False

    async def build(self) -> None:
        with ui.element("div").classes("split"):
            with ui.element("div").classes("stack loose"):
                self._build_question()
                with card("Columns", "What a record may look like: public, from the schema."):
                    self.columns = ui.element("div")
            with ui.element("div").classes("stack loose"):
                with card("What is left"):
                    self.left = ui.element("div").classes("stack").props("aria-live=polite")
                self.answers = ui.element("div").classes("stack loose").props("aria-live=polite")
        await self._choose(self.dataset.name)

    def _build_question(self) -> None:
        with card("Your question"):
            if len(self.datasets) > 1:
                names = [d.name for d in self.datasets]
                ui.select(
                    names,
                    label="Dataset",
                    value=names[0],
                    on_change=lambda e: self._choose(e.value),
                ).props('aria-label="Dataset"')
            self.about = words("", "note")
            self.controls = ui.element("div").classes("stack")
            # With its value from the start: a later one would come upon what is being typed.
            first = asked.counting_sql(self.dataset.dataset.domain)
            self.text = (
                ui.textarea("Question in SQL", value=first)
                .props('autogrow spellcheck=false aria-label="Question in SQL"')
                .classes("mono")
                .on("keydown.ctrl.enter", self.ask)
            )
            with ui.element("div").classes("line"):
                self.button = ui.button("Ask", on_click=self.ask)
                ui.button("What would it cost?", on_click=self.forecast).props("outline")
            self.status = ui.element("div").classes("stack").props("aria-live=polite")

    async def _choose(self, name: str) -> None:
        self.dataset = self.visitor.dataset(name)
        self.about.content = escape(self.dataset.dataset.about)
        self.status.clear()
        self._build_controls()
        self._show_columns()
        await self._show()

    # a question by controls

    def _build_controls(self) -> None:
        domain = self.dataset.dataset.domain
        self.controls.clear()
        with self.controls:
            with ui.element("div").classes("halves tight"):
                self.where = ui.select(
                    [EVERYONE, *domain.names], label="Count records where", value=EVERYONE
                ).props('aria-label="Count records where"')
                self.by = ui.select(
                    [NOTHING, *domain.names], label="For each", value=NOTHING
                ).props('aria-label="For each"')
            self.condition = ui.element("div")
        self.where.on_value_change(self._build_condition)
        self.by.on_value_change(self._write)
        self._build_condition()

    def _build_condition(self) -> None:
        """Values to choose from, or the ends of a range."""
        self.values: ui.select | None = None
        self.ends: list[ui.number] = []
        self.condition.clear()
        if self.where.value != EVERYONE:
            attribute = self.dataset.dataset.domain[self.where.value]
            listed = asked.listed(attribute)
            with self.condition:
                if listed is not None:
                    self.values = ui.select(
                        listed, label="is one of", multiple=True, value=[], on_change=self._write
                    ).props('use-chips aria-label="is one of"')
                elif attribute.kind in ("integer", "numeric"):
                    with ui.element("div").classes("halves tight"):
                        self.ends = [
                            ui.number(name, on_change=self._write) for name in ("from", "to")
                        ]
                else:
                    words("Write the condition on a time in SQL below.", "note")
        self._write()

    def _write(self) -> None:
        """The question of the controls, as SQL in its place."""
        low, high = (e.value for e in self.ends) if self.ends else (None, None)
        self.text.value = asked.counting_sql(
            self.dataset.dataset.domain,
            None if self.where.value == EVERYONE else self.where.value,
            values=[] if self.values is None else self.values.value,
            low=low,
            high=high,
            by=None if self.by.value == NOTHING else self.by.value,
        )

    def _show_columns(self) -> None:
        rows = []
        for attribute in self.dataset.dataset.domain:
            first = str(attribute.value_label(0))
            last = str(attribute.value_label(attribute.value_count - 1))
            rows.append((attribute.name, attribute.kind, f"{first} ... {last}"))
        self.columns.clear()
        with self.columns:
            table(("column", "kind", "values"), rows, "Columns of the dataset", texts=3)

    # asking

    async def ask(self) -> None:
        """Ask; while that is under way another click does nothing, later ones cost nothing."""
        if self.is_asking:
            return
        self.is_asking = True
        self.button.disable()
        try:
            with told(self.status, clear=True):
                try:
                    await asked.ask(self.visitor, self.dataset, self.text.value or "")
                except (Problem, SfumatoError) as error:
                    _refused(problem_of(error))
            await self._show()
        finally:
            self.is_asking = False
            self.button.enable()

    async def forecast(self) -> None:
        """What asking would cost; spends nothing."""
        with told(self.status, clear=True):
            try:
                found = await self.visitor.work(self.dataset.asking.forecast, self.text.value or "")
            except (Problem, SfumatoError) as error:
                _refused(problem_of(error))
                return
            _forecast(cast(list[dict[str, Any]], found["questions"]))

    async def _show(self) -> None:
        """What is left, and everything asked so far."""
        dataset, name = self.dataset, self.visitor.who.name
        with told(self.left, clear=True):
            self.visitor.check()
            left, share = await dataset.on_session(
                self.visitor.who,
                lambda: (
                    dataset.asking.session.left(name),
                    float(dataset.book.remaining(name).share),
                ),
            )
            gauge("Budget left", share, "of what you may spend, releases and questions together")
            part = left.paid_answers / max(left.updates, 1)
            more = "what the estimate does not know is refused" if not left.paid_answers else ""
            note = f"{left.paid_answers} of {left.updates}" + (f": {more}" if more else "")
            gauge("Paid answers left", part, note)
        with told(self.answers, clear=True):
            kept = asked.history(self.visitor, dataset)
            if not kept:
                empty("No answers yet", "Ask, and the answer appears here with its interval.")
            for number, one in enumerate(kept):
                self._answer(one, is_newest=number == 0)

    def _answer(self, one: Asked, *, is_newest: bool) -> None:
        with card("Answer" if is_newest else "Earlier answer", one.what_it_cost) as panel:
            panel.classes("answer")
            ui.html(f"<code>{escape(one.sql)}</code>", sanitize=False, tag="p")
            first = one.answers[0]
            level = f"{first['level']:.0%}" if first["level"] is not None else ""
            if len(one.answers) == 1:
                note = f"{asked.interval_of(first)}, with {level} confidence"
                facts([("Answer", counts(first["value"]), note), ("Cost", one.how, "")])
            else:
                words(f"{len(one.answers)} answers, {one.how}; intervals of {level}.", "note")
                if is_newest:
                    _bars(one)
                heads = (*one.columns, "answer", "interval", "how")
                table(heads, one.rows(), "Answers", texts=len(one.columns))

            def again() -> None:
                self.text.value = one.sql

            if not is_newest:
                with ui.element("div").classes("line"):
                    ui.button("Edit this question", on_click=again).props("outline dense")


def gauge(name: str, share: float, note: str) -> None:
    """A bar that shows how much is left."""
    percent = round(100 * min(max(share, 0.0), 1.0), 1)
    ui.html(
        f'<div class="gauge-head"><span>{escape(name)}</span><b>{percent:g}%</b></div>'
        f'<div class="gauge" role="meter" aria-label="{escape(name, quote=True)}" '
        f'aria-valuemin="0" aria-valuemax="100" aria-valuenow="{percent:g}">'
        f'<span style="width: {percent:g}%"></span></div><p class="note">{escape(note)}</p>',
        sanitize=False,
    )


def _refused(problem: Problem) -> None:
    """A refusal: what came and what is allowed, then what to do."""
    message, what_to_do = asked.problem_words(problem)
    inside = f"<p>{escape(message)}</p><p>{escape(what_to_do)}</p>"
    ui.html(inside, sanitize=False).classes("trouble").props("role=alert")


def _forecast(questions: list[dict[str, Any]]) -> None:
    """The forecast of a question, or the widest of several."""
    words("Nothing was spent to say this.", "promise")
    free, paid = (max(float(q[k]) for q in questions) for k in ("free_bound", "paid_bound"))
    known = sum(bool(q["is_stored"]) for q in questions)
    now = questions[0]["value"] if len(questions) == 1 else None
    facts(
        [
            *([("Estimate now", counts(now), "not tested yet")] if now is not None else []),
            ("If the estimate is right", "free", f"within {counts(free)} of the truth"),
            ("If it is not", "paid", f"within {counts(paid)} of the truth"),
            ("Answered before", f"{known} of {len(questions)}", "these cost nothing"),
        ]
    )


def _bars(one: Asked) -> None:
    import pandas as pd

    from sfumato.release.charts import interval_bars

    names = one.labels()
    frame = pd.DataFrame(
        {
            "group": names,
            "value": [a["value"] for a in one.answers],
            "low": [a["low"] for a in one.answers],
            "high": [a["high"] for a in one.answers],
        }
    )
    drawn = interval_bars(frame, "group", width="container")
    Chart(drawn, f"Bars of {len(names)} answers with their intervals")
