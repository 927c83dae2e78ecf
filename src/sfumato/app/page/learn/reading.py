# SPDX-License-Identifier: Apache-2.0
"""The pages about mechanisms, from the documentation that is shipped with the package.

They are our own texts; nothing that a visitor writes is ever shown this way.
"""

from __future__ import annotations

import re
import sysconfig
from functools import cache
from pathlib import Path
from typing import Final

from nicegui import ui

from sfumato.app.page.porch import PREFIX
from sfumato.app.page.shell import Visitor, page

__all__ = ["register", "text_of", "title_of"]

FOLDERS: Final = (
    Path(__file__).resolve().parents[5] / "docs" / "mechanisms",
    Path(sysconfig.get_path("data")) / "share" / "sfumato" / "mechanisms",
)
"""In a checkout, and where a wheel puts them."""
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")


@cache
def _pages() -> dict[str, str]:
    """The text of every page by its name."""
    folder = next((f for f in FOLDERS if f.is_dir()), None)
    files = [] if folder is None else sorted(folder.glob("[a-z]*.md"))
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


def title_of(name: str) -> str | None:
    """The title of a page; None if it is not there."""
    text = _pages().get(name)
    return None if text is None else text.partition("\n")[0].removeprefix("# ").strip()


def text_of(name: str) -> str:
    """A page without its title; links to other pages lead there, all others are plain words."""
    body = _pages()[name].partition("\n")[2]

    def linked(found: re.Match[str]) -> str:
        words, target = found[1], found[2].partition("#")[0].removesuffix(".md")
        if found[0].startswith("!"):
            return ""
        return f"[{words}]({PREFIX}/learn/read/{target})" if target in _pages() else words

    return _LINK.sub(linked, body)


def register() -> None:
    """Make a page of every text."""
    for name in _pages():
        _one(name, title_of(name) or name)


def _one(name: str, title: str) -> None:
    @page(f"/learn/read/{name}", title, at="Learn")
    def _read(_: Visitor) -> None:
        with ui.element("article").classes("card"):
            ui.markdown(text_of(name), extras=["fenced-code-blocks", "tables"]).classes("reading")
