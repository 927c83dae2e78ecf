# SPDX-License-Identifier: Apache-2.0
"""Puts the page on the application of the server: assets, pages, NiceGUI's settings."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI
from nicegui import app as pages
from nicegui import core, ui
from starlette.responses import Response

from sfumato.errors import SfumatoError, place_of
from sfumato.release.report import library
from sfumato_web.page import (
    ask_page,
    describe_page,
    learn_page,
    ledger_page,
    plan_page,
    release_page,
)
from sfumato_web.page.auth import LOGIN, PREFIX, PageMiddleware
from sfumato_web.page.layout import LOGINS, paragraph

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from sfumato_web.app import ServerState

__all__ = [
    "open_page",
]


ASSETS: Final = Path(__file__).parent / "assets"
_KEPT: Final = {"Cache-Control": "public, max-age=3600"}
_FAVICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><defs><radialGradient id="g" '
    'cx="40%" cy="40%"><stop offset="25%" stop-color="#2f7fa3"/><stop offset="100%" '
    'stop-color="#2f7fa3" stop-opacity="0"/></radialGradient></defs>'
    '<circle cx="16" cy="16" r="16" fill="url(#g)"/></svg>'
)


def open_page(app: FastAPI, server: ServerState) -> PageMiddleware:
    """The page on an application, inside its middleware. NiceGUI has one page a process."""
    _quieten()
    _look()
    _assets()
    for part in (plan_page, release_page, ask_page, describe_page, ledger_page, learn_page):
        part.register()
    pages.config.socket_io_js_transports = ["websocket"]
    # A bar without a name at every request: nothing that a screen reader could say of it.
    pages.config.quasar_config["loadingBar"] = {"skipHijack": True}
    _bind_sockets()
    core.sio.eio.max_http_buffer_size = server.config.limits.body_bytes
    ui.run_with(
        app,
        title="sfumato",
        favicon=_FAVICON,
        dark=None,
        language="en-US",
        mount_path=PREFIX,
        tailwind=False,
        binding_refresh_interval=None,
        reconnect_timeout=30.0,
        gzip_middleware_factory=None,
        show_welcome_message=False,
    )

    async def inside(scope: Scope, receive: Receive, send: Send) -> None:
        scope[LOGINS] = page_app.logins
        await app(scope, receive, send)

    page_app = PageMiddleware(inside, server)
    return page_app


def _look() -> None:
    """How the controls of all pages look."""
    ui.add_head_html(f'<link rel="stylesheet" href="{PREFIX}/assets/style.css">', shared=True)
    ui.add_head_html(f'<script src="{PREFIX}/assets/connection.js"></script>', shared=True)
    ui.button.default_props("no-caps unelevated")
    for control in (ui.input, ui.number, ui.select, ui.textarea):
        control.default_props("outlined dense")
    pages.colors(primary="#23708f")


def _assets() -> None:
    @cache
    def script() -> bytes:
        return library().encode()

    @pages.get("/assets/style.css")
    def _style() -> Response:
        return Response((ASSETS / "style.css").read_bytes(), media_type="text/css", headers=_KEPT)

    @pages.get("/assets/connection.js")
    def _connection() -> Response:
        text = (ASSETS / "connection.js").read_bytes()
        return Response(text, media_type="text/javascript", headers=_KEPT)

    @pages.get("/assets/vega.js")
    def _vega() -> Response:
        return Response(script(), media_type="text/javascript", headers=_KEPT)


def _bind_sockets() -> None:
    """Let a socket speak for the pages of its own login only.

    Every message names the page it is about, by an id that also stands in addresses and so in the
    logs of proxies; knowing one must not be enough to see or press anything there.
    """
    handlers = core.sio.handlers["/"]
    for event in ("handshake", "event", "javascript_response", "ack", "log"):
        handlers[event] = _bound(handlers[event])


def _bound(handle: Callable[[str, Any], Any]) -> Callable[[str, Any], Awaitable[Any]]:
    async def checked(socket: str, message: Any) -> Any:
        scope = core.sio.get_environ(socket)["asgi.scope"]
        page = message.get("client_id") if isinstance(message, dict) else None
        if page not in scope[LOGIN].pages:
            return False
        result = handle(socket, message)
        return await result if inspect.isawaitable(result) else result

    return checked


def _quieten() -> None:
    """What NiceGUI would log or show of an exception could quote a value of the data."""
    pages._exception_handlers[:] = [_tell]
    pages.on_page_exception(_show)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_without_details)


def _tell(error: Exception) -> None:
    if isinstance(error, SfumatoError):
        return
    logging.getLogger("sfumato.page").error(
        "unexpected %s at %s", type(error).__name__, place_of(error)
    )


def _show(_: Exception) -> None:
    paragraph(
        "This page could not be made; the server's log has the place of the error.", "trouble"
    )


def _without_details(record: logging.LogRecord) -> bool:
    """Log records of others without texts of exceptions and addresses of websockets."""
    if record.name.startswith("uvicorn") and record.levelno <= logging.INFO:
        text = str(record.msg)
        if "WebSocket" in text or text.startswith("connection "):
            return False
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, Exception):
        record.msg = f"unexpected {type(error).__name__} at {place_of(error)}"
        record.args, record.exc_info, record.exc_text = None, None, None
    return True
