# SPDX-License-Identifier: Apache-2.0
"""The page Learn: the ideas of the notes, one page each, on made-up data.

frame.py      how an idea is shown            ideas.py      its words
exhibits.py   the controls of each idea       reading.py    the pages about mechanisms
"""

from __future__ import annotations

from html import escape

from nicegui import ui

from sfumato.app.page.learn import exhibits, reading
from sfumato.app.page.learn.ideas import IDEAS
from sfumato.app.page.porch import PREFIX
from sfumato.app.page.shell import Visitor, page

__all__ = ["register"]


def register() -> None:
    """Make the overview, the pages of the ideas, and those to read on."""

    @page("/learn", "Learn", "Six ideas behind private answers, to try out on made-up data.")
    def _learn(_: Visitor) -> None:
        items = "".join(
            f'<li><a href="{PREFIX}/learn/{idea.name}"><h2>{escape(idea.title)}</h2>'
            f"<p>{escape(idea.lead)}</p></a></li>"
            for idea in IDEAS
        )
        ui.html(items, sanitize=False, tag="ul").classes("ideas")

    exhibits.register()
    reading.register()
