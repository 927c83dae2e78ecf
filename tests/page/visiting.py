# SPDX-License-Identifier: Apache-2.0
"""Visitors of the page without a browser: the same server, login and checks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from sfumato_web.app import ServerState
from sfumato_web.page.auth import Logins
from sfumato_web.page.layout import Visitor
from sfumato_web.server.config import read_config
from tests.page.museum import write_museum


@contextmanager
def server_of(folder: Path) -> Iterator[ServerState]:
    """The museum, open; closed at the end."""
    server = ServerState(read_config(write_museum(folder)))
    try:
        yield server
    finally:
        server.close()


def visit(server: ServerState, name: str) -> Visitor:
    """Somebody who has just signed in."""
    who = next(a for a in server.config.analysts if a.name == name)
    logins = Logins()
    login = logins.find(logins.begin(who))
    assert login is not None
    return Visitor(server, login, logins, cast(Any, None))
