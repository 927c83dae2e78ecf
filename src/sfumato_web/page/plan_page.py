# SPDX-License-Identifier: Apache-2.0
"""The page Plan: see the error before anything is spent.

It has a card of questions (tables by clicking attributes, running totals, ranges, SQL), the budget
and the forecast.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nicegui import background_tasks, ui

from sfumato.cli.output import counts, neighbours_in_words
from sfumato.cli.plan_command import STOPPED
from sfumato.domain.domain import domain_from
from sfumato.errors import SchemaError, WorkloadError
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.toml import parse_toml
from sfumato_web.page.auth import PREFIX
from sfumato_web.page.layout import (
    Chart,
    RangeSlider,
    Visitor,
    card,
    empty,
    facts_html,
    labelled,
    page,
    paragraph,
    set_paragraph,
    showing_refusals,
    table,
    table_html,
)
from sfumato_web.page.page_limits import LIMITS
from sfumato_web.page.plan_draft import (
    BEST,
    DELTAS,
    EPSILONS,
    LEVELS,
    PROJECTIONS,
    Draft,
    KeptDraft,
    Preview,
    Rescaled,
    Subject,
    code_of,
    draft_of,
    draft_of_code,
    forget_draft,
    in_words,
    keep_draft,
    kept_drafts,
    most_of,
    place_of_epsilon,
    rescaled,
)
from sfumato_web.page.release_page import Confirm
from sfumato_web.server.scheduler import workload_of

if TYPE_CHECKING:
    from sfumato.domain.domain import Domain
    from sfumato.ledger.account import Remaining
    from sfumato.run.linear import Plan
    from sfumato_web.server.config import Analyst
    from sfumato_web.server.dataset import GuardedDataset

__all__ = ["Questions", "Tables", "register"]

KINDS: Final = {"table": "Tables", "prefix": "Running totals", "ranges": "Ranges", "sql": "SQL"}
_ABOUT: Final = {
    "table": "Pick the attributes of one table, or add all tables of a size.",
    "prefix": "Pick one attribute with an order to run along; any others split it.",
    "ranges": "Pick one attribute with an order; every interval of it is asked. Others split it.",
    "sql": "COUNT, SUM or AVG with WHERE and GROUP BY. It is read, never run.",
}


class Questions:
    """The workload of a draft, built with controls; ``changed`` is called after each change."""

    def __init__(
        self, visitor: Visitor, draft: Draft, changed: Callable[[], Awaitable[None]]
    ) -> None:
        self.visitor, self.draft, self.changed = visitor, draft, changed
        self.domain: Domain | None = None
        self.kind = "table"
        self.picked: list[str] = []
        self.kind_buttons: dict[str, ui.element] = {}
        self.attribute_buttons: dict[str, ui.element] = {}

    def build(self) -> None:
        """The card."""
        with card("Questions", "What the release will answer."):
            self.listed = ui.element("ul").classes("asked").props('aria-label="Questions so far"')
            self.kinds = labelled(ui.element("div").classes("line"), "Kind of question", "group")
            self.controls = ui.element("div").classes("stack")
            self.problem = ui.element("div").props("aria-live=polite")
        self.show()

    async def set_domain(self, domain: Domain | None) -> None:
        """Questions about another domain; those that cannot be asked there are dropped."""
        if self.domain is not None and domain is not None:
            server, who = self.visitor.server, self.visitor.who
            entries = list(self.draft.entries)
            fit = await server.read(who, lambda: [self._fits(e, domain) for e in entries])
            self.draft.entries[:] = [e for e, fits in zip(entries, fit, strict=True) if fits]
        self.domain, self.picked = domain, []
        self.show()

    def _fits(self, entry: dict[str, Any], domain: Domain) -> bool:
        try:
            workload_of([entry], domain, self.visitor.server.config.limits)
        except Exception:
            return False
        return True

    def show(self) -> None:
        """Everything anew."""
        self._show_list()
        self.kinds.clear()
        with self.kinds:
            self.kind_buttons = {
                kind: self._button(name, kind == self.kind, partial(self._set_kind, kind))
                for kind, name in KINDS.items()
            }
        self._show_controls()

    def _show_controls(self) -> None:
        """The controls of this kind of question anew."""
        self.controls.clear()
        self.attribute_buttons = {}
        with self.controls:
            paragraph(_ABOUT[self.kind], "note")
            if self.domain is None:
                paragraph("Choose a table or a schema first.", "note")
            elif self.kind == "sql":
                self._show_sql()
            else:
                self._show_attributes(self.domain)

    def _button(self, name: str, is_on: bool, act: Callable[[], object]) -> ui.element:
        button = ui.element("button").classes("pick").props("type=button")
        _press(button, is_on)
        with button:
            ui.label(name)
        return button.on("click", act)

    def _set_kind(self, kind: str) -> None:
        """The buttons stay, and with them the focus; what depends on the kind is made anew."""
        self.kind, self.picked = kind, []
        self.problem.clear()
        for name, button in self.kind_buttons.items():
            _press(button, name == kind)
        self._show_controls()

    def _show_list(self) -> None:
        self.listed.clear()
        self.remove_buttons: list[ui.element] = []
        with self.listed:
            for place, entry in enumerate(self.draft.entries):
                with ui.element("li"):
                    ui.label(in_words(entry)).classes("mono" if "sql" in entry else "")
                    remove = ui.element("button").classes("quiet").props("type=button")
                    remove.props["aria-label"] = f"Remove: {in_words(entry)}"
                    with remove:
                        ui.label("✕")
                    remove.on("click", partial(self._remove, place))
                    self.remove_buttons.append(remove)

    def _show_attributes(self, domain: Domain) -> None:
        with labelled(ui.element("div").classes("line"), "Attributes", "group"):
            self.attribute_buttons = {
                name: self._button(name, name in self.picked, partial(self._pick, name))
                for name in domain.names
            }
        with ui.element("div").classes("line"):
            self.add_button = ui.button("", on_click=self._add_picked)
            self._show_picked()
            if self.kind == "table":
                for ways in range(1, min(3, len(domain)) + 1):
                    entry = {"marginals": ways}
                    every = ui.button(in_words(entry), on_click=partial(self.add, entry))
                    every.props("outline")

    def _show_sql(self) -> None:
        text = ui.textarea("SQL", placeholder="SELECT COUNT(*) FROM data WHERE ...")
        text.props('input-class="mono" rows=3 autogrow spellcheck=false').classes("grow")
        ui.button("Add", on_click=lambda: self.add({"sql": str(text.value or "")}))

    async def _pick(self, name: str) -> None:
        if name in self.picked:
            self.picked.remove(name)
        else:
            self.picked.append(name)
        self._show_picked()

    def _show_picked(self) -> None:
        """What is picked, in the buttons that are there: the focus stays where it is."""
        for name, button in self.attribute_buttons.items():
            _press(button, name in self.picked)
        what = f"Add: {in_words(self._entry())}" if self.picked else "Pick attributes"
        self.add_button.set_text(what)
        self.add_button.set_enabled(bool(self.picked))

    def _entry(self) -> dict[str, Any]:
        assert self.domain is not None  # noqa: S101
        if self.kind == "table":
            return {"marginals": [list(self.domain.in_order(self.picked))]}
        along = self._along(self.picked, self.domain)
        by = [name for name in self.picked if name != along]
        return {self.kind: along, "by": by}

    def _along(self, picked: Sequence[str], domain: Domain) -> str:
        """The attribute to run along: the first with an order."""
        return next((n for n in picked if domain[n].is_ordered), picked[0])

    async def _add_picked(self) -> None:
        await self.add(self._entry())

    async def add(self, entry: dict[str, Any]) -> None:
        """One more question, if it can be asked; else the reason is said in place."""
        with showing_refusals(self.problem, clear=True):
            self.visitor.check()
            if self.domain is None:
                return
            if entry in self.draft.entries:
                raise WorkloadError("this is asked already; each question is answered once")
            limits = self.visitor.server.config.limits
            entries = [*self.draft.entries, entry]
            server, who = self.visitor.server, self.visitor.who
            await server.read(who, workload_of, entries, self.domain, limits)
            self.draft.entries.append(entry)
            self.picked = []
            self._show_list()
            if self.attribute_buttons:
                self._show_picked()
                # A button that is switched off loses the focus; the next table begins here.
                next(iter(self.attribute_buttons.values())).run_method("focus")
            else:
                self._show_controls()
            await self.changed()

    async def _remove(self, place: int) -> None:
        del self.draft.entries[place]
        self.problem.clear()
        self._show_list()
        left = [*self.remove_buttons[place:], *self.remove_buttons[:place][::-1]]
        for button in [*left, *self.kind_buttons.values()][:1]:
            button.run_method("focus")
        await self.changed()


def _press(button: ui.element, is_on: bool) -> None:
    """Show whether a button is pressed."""
    button.props["aria-pressed"] = "true" if is_on else "false"
    button.update()


# The card of the table: one of the server's datasets, or a schema at hand to plan with.
#
# Tables are not uploaded: a copy under another name would be a second budget for the same people.
# A schema is public, so anybody may bring one; there is then nothing to release.


OWN: Final = "A schema of my own (plan only)"
_EXAMPLE: Final = """[domain.age]
kind = "integer"
min = 0
max = 110

[domain.sex]
kind = "category"
values = ["Female", "Male"]
"""
_READ_FILE: Final = """(event) => {
  const file = event.target.files[0];
  if (file && file.size < 60000) file.text().then((text) => emit(text));
}"""
_PUBLIC: Final = (
    "Ranges and lists of values must be public knowledge: the form, a code book, a legal limit. "
    "What is read off the data reveals which values occur."
)


class Tables:
    """Which domain is planned for; ``changed`` is called when it is another one."""

    def __init__(
        self, visitor: Visitor, draft: Draft, changed: Callable[[], Awaitable[None]]
    ) -> None:
        self.visitor, self.draft, self.changed = visitor, draft, changed

    def build(self) -> None:
        """The card."""
        names = {d.name: d.name for d in self.visitor.datasets}
        with card("Table", "Tables stay where they are; the server counts them only to release."):
            ui.select(
                {**names, "": OWN}, value=self.draft.table, label="Table", on_change=self._choose
            )
            self.inside = ui.element("div").classes("stack")
            self.problem = ui.element("div").props("aria-live=polite")
        self._show()

    def subject(self) -> Subject | None:
        """What is planned for, if anything can be."""
        limits = self.visitor.server.config.limits
        if self.draft.table:
            dataset = self.visitor.dataset(self.draft.table)
            return Subject(dataset.config.domain, limits, dataset)
        return None if self.draft.domain is None else Subject(self.draft.domain, limits, None)

    async def _choose(self, event: object) -> None:
        self.draft.table = str(getattr(event, "value", "") or "")
        self.problem.clear()
        self._show()
        await self.changed()

    def _show(self) -> None:
        self.inside.clear()
        with self.inside:
            if self.draft.table:
                self._show_dataset(self.visitor.dataset(self.draft.table))
            else:
                self._show_own()

    def _show_dataset(self, dataset: GuardedDataset) -> None:
        about = [dataset.config.about] if dataset.config.about else []
        protected = neighbours_in_words(dataset.config.neighbours, dataset.config.unit)
        paragraph(". ".join([*about, f"Protected: {protected}."]), "note")
        with ui.expansion(f"{len(dataset.config.domain)} attributes").props("dense"):
            _schema_table(dataset.config.domain)
            if self.visitor.who.is_curator:
                paragraph(
                    "Another schema for this table can be drafted from its column types; no row "
                    "is read.",
                    "note",
                )
                ui.button("Draft a schema", on_click=lambda: self._draft(dataset)).props("outline")

    def _show_own(self) -> None:
        paragraph(_PUBLIC, "warning")
        self.text = ui.textarea("Schema (TOML)", value=self.draft.schema or _EXAMPLE)
        self.text.props('input-class="mono" rows=9 spellcheck=false')
        with ui.element("div").classes("line"):
            ui.button("Use this schema", on_click=self._use)
            pick = ui.element("input").props('type=file accept=".toml" aria-label="Schema file"')
            pick.classes("file").on("change", self._loaded, js_handler=_READ_FILE)
        if self.draft.domain is not None:
            _schema_table(self.draft.domain)

    def _loaded(self, event: object) -> None:
        text = getattr(event, "args", "")
        self.text.set_value(str(text)[: LIMITS.schema_characters])

    async def _use(self) -> None:
        with showing_refusals(self.problem, clear=True):
            self.visitor.check()
            text = str(self.text.value or "")
            most = LIMITS.schema_characters
            if len(text) > most:
                raise SchemaError(f"a schema has at most {most:,} characters; shorten it")
            self.draft.schema = text
            self.draft.domain = await asyncio.to_thread(_domain, text)
            self._show()
            await self.changed()

    async def _draft(self, dataset: GuardedDataset) -> None:
        """Privacy: column names and types are public; no row is read."""
        from sfumato.domain.draft import draft
        from sfumato.vault.tables import open_table

        with showing_refusals(self.problem, clear=True):
            opened = await self.visitor.work(open_table, dataset.config.source)
            made = draft(opened.column_types, untyped=opened.untyped)
            self.draft.table, self.draft.schema, self.draft.domain = "", made.text, None
            self._show()
            with self.problem:
                for warning in made.warnings:
                    paragraph(warning, "note")
            await self.changed()


def _domain(text: str) -> Domain:
    return domain_from(parse_toml(text, "the schema"))


def _schema_table(domain: Domain) -> None:
    table(
        ["attribute", "kind", "cells"],
        [(a.name, a.kind, f"{a.size:,}") for a in domain],
        "Attributes of the schema",
        texts=2,
    )


class Drafts:
    """Plans to come back to: a link to send, and a list that is kept with the server's state.

    A draft is what is asked and how, never an answer; whoever opens one plans it as themselves.
    """

    def __init__(self, visitor: Visitor, draft: Draft) -> None:
        self.visitor, self.draft = visitor, draft

    async def build(self) -> None:
        """The card."""
        with card("Drafts", "A plan to come back to or to send; it holds no answers."):
            with ui.element("div").classes("line"):
                self.name = ui.input("Name").props('aria-label="Name of the draft" maxlength=60')
                self.name.classes("grow")
                ui.button("Keep", on_click=self.keep).props("outline")
                ui.button("Link to send", on_click=self.link).props("outline")
            self.place = ui.element("div").classes("stack").props("aria-live=polite")
            self.listed = ui.element("ul").classes("asked").props('aria-label="Drafts"')
        await self.show()

    async def show(self) -> None:
        """The kept drafts anew."""
        visitor = self.visitor
        with showing_refusals(self.listed, clear=True):
            drafts = await visitor.server.read(visitor.who, kept_drafts, visitor)
            for each in drafts:
                with ui.element("li"):
                    ui.link(f"{each.name} ({each.table})", f"/plan/{each.code}")
                    remove = ui.element("button").classes("quiet").props("type=button")
                    remove.props["aria-label"] = f"Remove the draft {each.name}"
                    with remove.on("click", partial(self.remove, each)):
                        ui.label("✕")

    async def keep(self) -> None:
        """Keep it under its name."""
        visitor = self.visitor
        with showing_refusals(self.place, clear=True):
            visitor.check()
            name = str(self.name.value or "")
            await visitor.server.read(visitor.who, keep_draft, visitor, self.draft, name)
            self.name.set_value("")
        await self.show()

    async def remove(self, one: KeptDraft) -> None:
        """Forget one of them."""
        visitor = self.visitor
        with showing_refusals(self.place, clear=True):
            visitor.check()
            await visitor.server.read(visitor.who, forget_draft, visitor, one)
        await self.show()

    def link(self) -> None:
        """Its address, to be copied."""
        with showing_refusals(self.place, clear=True):
            self.visitor.check()
            path = f"{PREFIX}/plan/{code_of(self.draft)}"
            paragraph("Whoever may use this table sees the same plan there; nothing is spent.")
            field = ui.input(value=path).props('readonly aria-label="Link" input-class="mono"')
            script = f'getHtmlElement({field.id}).querySelector("input")'
            ui.run_javascript(
                f"{{ const field = {script} ?? getHtmlElement({field.id}); "
                "field.value = location.origin + field.value; field.select?.(); }"
            )


def register() -> None:
    """Make the page."""

    @page("/plan", "Plan", "See the error before you spend.")
    async def _plan(visitor: Visitor) -> None:
        await _Planning(visitor).build()

    @page("/plan/{code}", "Plan", "See the error before you spend.")
    async def _draft(visitor: Visitor) -> None:
        code = str(visitor.request.path_params["code"])
        draft = await visitor.server.read(visitor.who, draft_of_code, visitor, code)
        visitor.login.drafts["plan"] = draft
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
        self.scaled: Rescaled | None = None
        self.remaining: Remaining | None = None
        self.most = ""  # the largest epsilon that is left at this delta
        self.is_picked = False  # whether somebody chose what the preview shows
        self._wanted = self._moves = 0
        self._is_planning = False

    async def build(self) -> None:
        """Everything; the forecast follows when the browser is there."""
        with ui.element("div").classes("split"):
            with ui.element("div").classes("stack loose"):
                self.tables.build()
                self.questions.build()
                self.left = ui.element("div").classes("stack loose")
            with ui.element("div").classes("stack loose") as self.right:
                self._build_forecast()
        with self.left:
            await Drafts(self.visitor, self.draft).build()
        subject = self.tables.subject()
        await self.questions.set_domain(None if subject is None else subject.domain)
        ui.context.client.on_connect(self.replan)

    # the budget

    def _build_budget(self) -> None:
        draft = self.draft
        with ui.element("div").classes("halves tight"):
            slid = partial(self._slid, "epsilon")
            self.epsilon = RangeSlider("Epsilon", EPSILONS, draft.epsilon, slid)
            if draft.exactly:
                self.epsilon.stand(draft.epsilon, draft.exactly)
            deltas = ["0 (pure)" if d == "0" else d for d in DELTAS]
            RangeSlider("Delta", deltas, draft.delta, partial(self._slid, "delta"))
        with ui.element("div").classes("line apart") as self.most_line:
            self.most_note = paragraph("", "note").classes("grow")
            self.most_button = ui.button("", on_click=self._spend_most).props("outline dense")
        self.most_line.set_visibility(False)

    async def _look_at_most(self) -> None:
        """Read what is left for them of this table; a schema alone has no budget."""
        name, who = self.draft.table, self.visitor.who
        self.remaining = None
        if name:
            dataset = self.visitor.dataset(name)
            self.remaining = await self.visitor.on_ledger(
                dataset, dataset.ledger.remaining, who.name
            )
        self._show_most()

    def _show_most(self) -> None:
        """The green line below the slider, and the largest epsilon at the delta that is chosen."""
        self.most_line.set_visibility(self.remaining is not None)
        if self.remaining is None:
            self.epsilon.mark(None)
            return
        draft = self.draft
        noise = MECHANISMS[draft.mechanism].noise if draft.mechanism != BEST else None
        self.most, words = most_of(self.remaining, DELTAS[draft.delta], noise)
        said = f"The most you can spend at once: {' or '.join(words)}."
        set_paragraph(self.most_note, said if words else "Nothing is left of this budget.")
        self.epsilon.mark(place_of_epsilon(float(self.most)) if self.most else 0.0)
        self.most_button.set_text(f"Spend {self.most}")
        self.most_button.set_visibility(bool(self.most))

    async def _spend_most(self) -> None:
        """Plan with all that is left."""
        self.draft.spend(self.most)
        self.epsilon.stand(self.draft.epsilon, self.most)
        self.confirm.stale()
        await self.replan()

    # how it is answered

    def _build_choices(self) -> None:
        """What may be chosen and rarely is: by which way, for which error, how it is published."""
        draft = self.draft
        choices: list[tuple[str, str, dict[str, str]]] = [
            ("Mechanism", "mechanism", {BEST: "the best one", **{m: m for m in MECHANISMS}}),
            ("Make small", "objective", {"rmse": "the typical error", "max": "the largest error"}),
            ("Intervals", "level", LEVELS),
            ("Publish", "project", PROJECTIONS),
        ]
        with ui.expansion("Choose how").props("dense"), ui.element("div").classes("halves tight"):
            for label, name, options in choices:
                chosen = partial(self._chose, name)
                field = ui.select(options, label=label, value=getattr(draft, name))
                field.on_value_change(chosen).props["aria-label"] = label

    async def _chose(self, name: str, event: object) -> None:
        setattr(self.draft, name, str(getattr(event, "value", "")))
        self.confirm.stale()
        await self.replan()

    def _slid(self, which: str, value: int) -> None:
        """While the slider moves: the same strategy at another budget, at once."""
        setattr(self.draft, which, value)
        if which == "epsilon":
            self.draft.exactly = ""
        else:
            self._show_most()
        scaled = None if self.plan is None else rescaled(self.plan, self.draft.budget)
        if scaled is not None:
            self._show(scaled)
        self.confirm.stale()
        self._moves += 1
        background_tasks.create(self._settle(self._moves), name="settle")

    async def _settle(self, move: int) -> None:
        """Once the slider rests, plan for where it stands: another way may be better there."""
        await asyncio.sleep(LIMITS.rest_seconds)
        if move == self._moves:
            await self.replan()

    # the forecast

    def _build_forecast(self) -> None:
        with card("Forecast") as self.forecast:
            paragraph(
                "Nothing is spent here: a plan reads no data. Smaller budgets protect people "
                "better, and answers are less exact.",
                "promise",
            )
            self._build_budget()
            self._build_choices()
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
        with showing_refusals(self.status, clear=True):
            await self._look_at_most()
            if not self.draft.entries or subject is None:
                self.plan = None
                self._unveil(False)
                return
            self.empty.set_visibility(False)
            if self.plan is None:
                paragraph("Planning: mechanisms are built and compared.", "note")
            draft = self.draft
            how = (subject, draft.forecast_request(), self._people(), self.visitor.who)
            planned = await self.visitor.work(_planned, *how)
            if mine == self._wanted:
                self.status.clear()
                self.plan, self.preview = planned
                self._show_plan()
                await self.confirm.offer(subject.dataset, self.plan)

    def _show_plan(self) -> None:
        assert self.plan is not None  # noqa: S101
        assert self.preview is not None  # noqa: S101
        self._unveil(True)
        options = {str(t): name for t, name in self.preview.groups.items()}
        is_kept = self.is_picked and self.group.value in options
        value = self.group.value if is_kept else next(iter(options), None)
        self.group.set_options(options, value=value)
        self.pictured.set_visibility(bool(options))
        self._show(Rescaled(self.plan, self.plan.forecast))

    def _show(self, scaled: Rescaled) -> None:
        self.scaled = scaled
        self.facts.set_content(facts_html(_facts(scaled, self.draft.records)))
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
        if self.preview is None or self.group.value is None or self.scaled is None:
            return
        group = int(self.group.value)
        name = self.preview.groups.get(group)
        if name is not None:
            level = LEVELS[self.draft.level]
            label = f"Preview of {name} on made-up people, with intervals of {level}"
            self.chart.show(self.preview.spec(group, self.scaled.ratio), label)

    def _picked(self) -> None:
        self.is_picked = True

    def _people(self) -> tuple[int, float]:
        """How many the preview is made up of, and how sure its intervals are."""
        return self.draft.records, float(self.draft.level)

    def _repeople(self) -> None:
        self.draft.records = max(1, int(self.records.value or 1))
        if self.plan is not None:
            self.preview = Preview(self.plan, *self._people())
            if self.scaled is not None:
                self.facts.set_content(facts_html(_facts(self.scaled, self.draft.records)))
            self._show_chart()


def _planned(
    subject: Subject, request: dict[str, object], people: tuple[int, float], who: Analyst
) -> tuple[Plan, Preview]:
    """In a worker: the plan, and the first of its charts."""
    plan = subject.plan(request, who)
    preview = Preview(plan, *people)
    for group in list(preview.groups)[:1]:
        preview.spec(group, 1.0)
    return plan, preview


def _facts(scaled: Rescaled, records: int) -> list[tuple[str, str, str]]:
    """What is forecast; also as shares of so many people where their number will be public."""
    plan = scaled.plan
    about = f"of {records:,} people, root mean square; one moves the histogram by 2/n"
    share = ("As a share", f"± {counts(scaled.rmse / records)}", about)
    stopped = [("Stopped early", "yes", STOPPED)] if plan.stopped_early else []
    return [
        ("Typical error", f"± {counts(scaled.rmse)}", "counts, root mean square"),
        *([share] if plan.total_is_public else []),
        ("Largest error", f"± {counts(scaled.largest)}", "counts, of the worst answer"),
        ("How good", *_certificate(scaled)),
        ("Answers", f"{plan.workload.queries:,}", f"by {plan.mechanism}"),
        *stopped,
    ]


def _certificate(scaled: Rescaled) -> tuple[str, str]:
    """How far from the best possible, in words."""
    certificate = scaled.certificate
    if certificate is None:
        return "not known", "no lower bound for this workload and noise"
    over, among = certificate - 1, scaled.forecast.certified_among
    if over < 0.0005:
        return "the best possible", f"with {among}; certified: within 0.05%"
    if over < 0.1:
        return f"within {over:.1%}", f"of the best possible with {among}, certified"
    note = f"the least possible error with {among}, at most"
    if scaled.plan.strategy.noise == "laplace":
        note += "; the bound is loose for Laplace noise"
    return f"{certificate:.2f} x", note


def _table_place(label: str) -> ui.html:
    return labelled(ui.html("", sanitize=False).classes("wide tall").props("tabindex=0"), label)
