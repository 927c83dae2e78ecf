# SPDX-License-Identifier: Apache-2.0
"""The page Ask: one question at a time."""

from __future__ import annotations

from sfumato.app.page.shell import Visitor, empty, page

__all__ = ["register"]


def register() -> None:
    """Make the page."""

    @page("/ask", "Ask")
    def _ask(_: Visitor) -> None:
        empty("Soon here", "Choose a table and what to ask of it.")
