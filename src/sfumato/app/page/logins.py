# SPDX-License-Identifier: Apache-2.0
"""Who is signed in to the page: a random cookie stands for a token that was shown once.

Logins are held in memory, by the hash of their cookie: a restart signs everybody out, and nothing
that is written down lets anybody in. A login ends when nobody used it for a while.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from sfumato.app.server.config import Analyst

__all__ = ["LIFE_SECONDS", "Login", "Logins"]

LIFE_SECONDS: Final = 30 * 60.0  # without use
MOST_LOGINS: Final = 16  # of one analyst; the oldest ends
MOST_PAGES: Final = 1_000  # of one login, to which a socket can belong


@dataclass(eq=False)
class Login:
    """One browser of one analyst; ``drafts`` is what they were planning, by dataset.

    ``pages`` are the ids of the pages that were made for this login, the newest of them: only its
    own sockets may speak for them.
    """

    who: Analyst
    used: float
    is_over: bool = False
    drafts: dict[str, object] = field(default_factory=dict)
    pages: dict[str, None] = field(default_factory=dict)

    def add_page(self, page: str) -> None:
        """Remember a page that was made for this login."""
        self.pages[page] = None
        while len(self.pages) > MOST_PAGES:
            del self.pages[next(iter(self.pages))]


class Logins:
    """All logins of the server."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._open: dict[str, Login] = {}

    def begin(self, who: Analyst) -> str:
        """A new login; returns its cookie."""
        self._end_old()
        theirs = [key for key, login in self._open.items() if login.who is who]
        for key in theirs[: len(theirs) + 1 - MOST_LOGINS]:
            self._end(key)
        cookie = secrets.token_urlsafe(32)
        self._open[_digest(cookie)] = Login(who, self._clock())
        return cookie

    def find(self, cookie: str) -> Login | None:
        """The login of a cookie, which counts as use of it; None if there is none."""
        login = self._open.get(_digest(cookie))
        return login if login is not None and self.use(login) else None

    def use(self, login: Login) -> bool:
        """Whether a login still holds; it then holds for another while."""
        now = self._clock()
        if login.is_over or now - login.used > LIFE_SECONDS:
            login.is_over = True
            return False
        login.used = now
        return True

    def end(self, cookie: str) -> None:
        """Sign out."""
        self._end(_digest(cookie))

    def _end(self, key: str) -> None:
        login = self._open.pop(key, None)
        if login is not None:
            login.is_over = True

    def _end_old(self) -> None:
        now = self._clock()
        old = [k for k, login in self._open.items() if now - login.used > LIFE_SECONDS]
        for key in old:
            self._end(key)


def _digest(cookie: str) -> str:
    # Only hashes of secrets are looked up, so time tells nothing of a cookie.
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()
