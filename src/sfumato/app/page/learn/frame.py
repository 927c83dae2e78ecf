# SPDX-License-Identifier: Apache-2.0
"""How an idea is shown: what it says, its controls, its figures, what to notice, what to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeVar

from nicegui import ui

from sfumato.app.page.dial import Dial
from sfumato.app.page.porch import PREFIX
from sfumato.app.page.shell import Visitor, card, told, words

__all__ = ["Drawn", "Exhibit", "Idea"]

T = TypeVar("T")
Drawn = tuple[Sequence[str], Sequence[str]]
"""Figures as SVG, and what to notice about them."""


@dataclass(frozen=True, slots=True)
class Idea:
    """One idea of the notes: its place under /learn, its words, and what to read on."""

    name: str
    title: str
    lead: str
    text: tuple[str, ...]
    reading: tuple[str, ...]
    notes: str


class Exhibit:
    """The places of one idea on its page; made in this order: controls, then ``draw``."""

    def __init__(self, visitor: Visitor, idea: Idea) -> None:
        self._visitor, self._idea = visitor, idea
        self._make: Callable[[], Drawn] | None = None
        self._is_drawing = self._is_late = False
        with ui.element("div").classes("explained"):
            for paragraph in idea.text:
                words(paragraph)
        with card("Try it", "All data are made up. Nothing is spent."):
            self.controls = ui.element("div").classes("controls")
            self.buttons = ui.element("div").classes("line")
            self._trouble = ui.element("div")
        with card("What happens"):
            self.above = ui.element("div").props("aria-live=polite")
            self._figures = ui.element("div").classes("halves")
        self.figures: list[ui.html] = []
        with card("What to notice"):
            self._notices = ui.html("", sanitize=False, tag="ul").classes("notices")
            self._notices.props("aria-live=polite")
        _read_on(idea)

    def dial(
        self, name: str, values: Sequence[T], start: T, shown: Callable[[T], str] = str
    ) -> Dial[T]:
        """A slider among the controls, which draws anew when it moves."""
        with self.controls:
            made = Dial(name, values, start, shown)
        made.on_change(self.redraw)
        return made

    def button(self, name: str, pressed: Callable[[], object]) -> ui.button:
        """A button below the controls."""
        with self.buttons:
            return ui.button(name, on_click=pressed).props("outline")

    async def draw(self, make: Callable[[], Drawn]) -> None:
        """Draw for the first time, and by ``make`` from now on."""
        self._make = make
        await self.redraw()

    async def redraw(self) -> None:
        """Draw anew; while that is under way further calls only ask for one more time."""
        if self._is_drawing:
            self._is_late = True
            return
        self._is_drawing = True
        try:
            while True:
                self._is_late = False
                await self._once()
                if not self._is_late:
                    break
        finally:
            self._is_drawing = False

    async def _once(self) -> None:
        make = self._make
        if make is None:
            return
        with told(self._trouble, clear=True):
            figures, notices = await self._visitor.work(make)
            with self._figures:
                while len(self.figures) < len(figures):
                    self.figures.append(ui.html("", sanitize=False).classes("figure"))
            for place, svg in zip(self.figures, figures, strict=True):
                place.content = svg
            self._notices.content = "".join(f"<li>{escape(n)}</li>" for n in notices)


def _read_on(idea: Idea) -> None:
    from sfumato.app.page.learn.reading import title_of

    links = [
        f'<a href="{PREFIX}/learn/read/{name}">{escape(title)}</a>'
        for name in idea.reading
        if (title := title_of(name)) is not None
    ]
    more = f"Read on: {', '.join(links)}. " if links else ""
    told_ = f'{more}From the notes: {escape(idea.notes)}. <a href="{PREFIX}/learn">All ideas</a>'
    ui.html(told_, sanitize=False, tag="p").classes("note")
