# SPDX-License-Identifier: Apache-2.0
"""The limits of the page in one place, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["LIMITS", "PageLimits"]


@dataclass(frozen=True, slots=True)
class PageLimits:
    """Who may be signed in and for how long, and how much one page shows."""

    # auth, of logins and sockets
    login_seconds: float = 30 * 60.0
    """Without use, after which a login ends; the form says so."""
    logins_per_analyst: int = 16
    """Browsers of one analyst; the oldest login ends."""
    pages_per_login: int = 1_000
    """Pages of one login to which a socket can belong, the newest."""
    sockets_per_analyst: int = 16
    """Open pages of one analyst."""
    messages_per_second: float = 50.0
    """Of one socket: a slider that moves sends twenty."""
    messages_burst: int = 400
    """Of one socket, at once."""
    packed_files: int = 64
    """Scripts and styles that are held as they are sent: a first load has some twenty."""
    guesses_per_second: float = 2.0
    """Unknown tokens of everybody together."""
    guesses_burst: int = 20
    """Unknown tokens of everybody together, at once."""

    # ask_page, of questions
    listed_values: int = 60
    """Values of an attribute that a control lists; more are written in SQL."""
    answers_shown: int = 100
    """Questions of one login and dataset that are shown again."""
    off_middle: float = 0.05
    """Of an interval, beyond which an answer is said to stand off its middle."""
    error_first: float = 50.0
    """The standard error to pay for that the form begins with."""

    link_characters: int = 60
    """Of a question or a release in a table of debits."""

    # ledger_page, of debits
    chart_points: int = 2_000
    """Of the budget over time: more than a screen has dots across."""
    entries_shown: int = 200
    """Debits in the table, the newest; GET /datasets/NAME/ledger has all."""

    # plan_page, of schemas and sliders
    schema_characters: int = 60_000
    """Of a schema at hand, below what one message of the socket may have."""
    rest_seconds: float = 0.35
    """After which a slider is taken to rest, and a plan is made."""
    draft_characters: int = 8_000
    """Of a draft in an address: half of what the headers of a request may have."""
    draft_name: int = 60
    """Characters of the name of a draft."""
    drafts_kept: int = 100
    """Of one analyst; more are not found again in a list."""

    # forecasts, of the preview
    preview_cells: int = 2**20
    """Of a made-up table: 8 MiB."""

    # release_page, of answers
    rows_shown: int = 200
    """Of a table on the page; the files have all."""
    statements_shown: int = 20
    """SELECTs of one release in their own shape; the files have all."""
    group_rows: int = 100_000
    """Of a group that is shown at all."""
    seconds_shown: int = 3
    """Left of a step before it is said how many: below, they would only flicker."""


LIMITS: Final = PageLimits()
