# SPDX-License-Identifier: Apache-2.0
"""The page Plan: see the error before anything is spent."""

from __future__ import annotations

from sfumato.app.page.shell import Visitor, empty, page

__all__ = ["register"]


def register() -> None:
    """Make the page."""

    @page("/plan", "Plan", "See the error before you spend.")
    def _plan(_: Visitor) -> None:
        empty("Soon here", "Choose a table and what to ask of it.")
