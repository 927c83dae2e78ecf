# SPDX-License-Identifier: Apache-2.0
"""The card of the table: one of the server's datasets, or a schema at hand to plan with.

Tables are not uploaded: a copy under another name would be a second budget for the same people.
A schema is public, so anybody may bring one; there is then nothing to release.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from nicegui import ui

from sfumato.app.page.draft import Draft, Subject
from sfumato.app.page.shell import Visitor, card, table, told, words
from sfumato.app.show import neighbours_in_words
from sfumato.domain.schema import domain_from
from sfumato.errors import SchemaError
from sfumato.tomlfile import parse_toml

if TYPE_CHECKING:
    from sfumato.app.server.guarded import Guarded
    from sfumato.domain import Domain

__all__ = ["Tables"]

OWN: Final = "A schema of my own (plan only)"
MOST_TEXT: Final = 60_000  # characters of a schema
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
        limits = self.visitor.house.config.limits
        if self.draft.table:
            guarded = self.visitor.dataset(self.draft.table)
            return Subject(guarded.dataset.domain, limits, guarded)
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

    def _show_dataset(self, found: Guarded) -> None:
        about = [found.dataset.about] if found.dataset.about else []
        protected = neighbours_in_words(found.dataset.neighbours, found.dataset.unit)
        words(". ".join([*about, f"Protected: {protected}."]), "note")
        with ui.expansion(f"{len(found.dataset.domain)} attributes").props("dense"):
            _schema_table(found.dataset.domain)
            if self.visitor.who.is_curator:
                words(
                    "Another schema for this table can be drafted from its column types; no row "
                    "is read.",
                    "note",
                )
                ui.button("Draft a schema", on_click=lambda: self._draft(found)).props("outline")

    def _show_own(self) -> None:
        words(_PUBLIC, "warning")
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
        self.text.set_value(str(text)[:MOST_TEXT])

    async def _use(self) -> None:
        with told(self.problem, clear=True):
            self.visitor.check()
            text = str(self.text.value or "")
            if len(text) > MOST_TEXT:
                raise SchemaError(f"a schema has at most {MOST_TEXT:,} characters; shorten it")
            self.draft.schema = text
            self.draft.domain = await asyncio.to_thread(_domain, text)
            self._show()
            await self.changed()

    async def _draft(self, found: Guarded) -> None:
        """Privacy: column names and types are public; no row is read."""
        from sfumato.domain.draft import draft
        from sfumato.vault.tables import open_table

        with told(self.problem, clear=True):
            opened = await self.visitor.work(open_table, found.dataset.source)
            made = draft(opened.column_types, untyped=opened.untyped)
            self.draft.table, self.draft.schema, self.draft.domain = "", made.text, None
            self._show()
            with self.problem:
                for warning in made.warnings:
                    words(warning, "note")
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
