# SPDX-License-Identifier: Apache-2.0
"""The card of questions: tables by clicking attributes, running totals, ranges, SQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nicegui import ui

from sfumato.errors import WorkloadError
from sfumato_web.page.layout import Visitor, card, labelled, paragraph, showing_refusals
from sfumato_web.page.plan_draft import Draft, in_words
from sfumato_web.server.scheduler import workload_of

if TYPE_CHECKING:
    from sfumato.domain.domain import Domain

__all__ = [
    "Questions",
]


KINDS: Final = {
    "table": "Tables",
    "prefix": "Running totals",
    "ranges": "Ranges",
    "sql": "SQL",
}
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
