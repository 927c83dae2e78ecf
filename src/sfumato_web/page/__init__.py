# SPDX-License-Identifier: Apache-2.0
"""The web page of ``sfumato serve``: for people who write no Python. Needs the extra ``web``.

It calls the same functions as the JSON routes do and holds no data of its own. Everything is under
``/page``, served from this process, and works without a network.

auth.py         every request of a browser: cookie, origin, rates, headers; who is signed in
__init__.py     puts the page on the application   layout.py        the frame, how things are shown
plan_page.py    see the error before you spend     release_page.py  answers, charts, files
ask_page.py     one question at a time             ledger_page.py   what was spent
describe_page.py  what columns hold                people_page.py   who may spend what, for curators
assets/         style and the script of charts     ../learn/        one page per idea

**How a page is written.** A module has ``register()``, which `open_page` calls, and in it::

    @page("/ask", "Ask", "One question at a time.")         # path, title, lead
    async def _ask(visitor: Visitor) -> None:               # may be async; the frame is there
        with card("Your question", "in SQL"):               # a panel with a heading
            text = ui.textarea("SQL").props("aria-label=SQL")
            answer = ui.element("div").classes("stack").props("aria-live=polite")

            async def estimate() -> None:
                with showing_refusals(answer, clear=True):  # refusals appear in this place
                    forecast = await visitor.work(dataset.batcher.forecast, text.value)
                    facts([("Value", "1,234", "between 1,200 and 1,268")])
                    Chart(altair_chart, "what a screen reader says of it")

            ui.button("What would it cost?", on_click=estimate)

* ``visitor.who`` is the signed-in ``Analyst``; ``visitor.datasets`` are theirs, ``visitor.dataset(
  name)`` one of them. ``visitor.check()`` begins every action (login still holds, rate kept);
  ``await visitor.work(f, ...)`` does it and runs ``f`` in a worker of the server. Answers that
  touched data wait for ``await visitor.on_grid(arrived)``, as over HTTP.
* Sub-pages: ``@page("/learn/tree", "The tree", at="Learn")``. Parameters of a path such as
  ``/release/{name}`` are in ``visitor.request.path_params``.
* Shown by ``layout``: ``card``, ``facts``, ``table``, ``paragraph`` (kinds note, lead,
  promise, warning), ``empty`` (nothing there yet), ``trouble`` (a refusal), ``showing_refusals``
  (catches them).
  Numbers: ``sfumato.cli.output.counts``. All texts are escaped there; never pass user text to
  ``ui.html`` or ``ui.markdown`` yourself.
* Layout classes (style.css): split (5:7), halves, stack, stack loose, line, line apart, grow. They
  fold at 960 px and 736 px. Colours are the variables --ink --soft --line --panel --accent --wash.
* Charts: ``Chart(drawn, label)`` takes Altair charts made with ``width="container"``;
  ``.show(drawn, label)`` draws another one in the same place without a flicker. Leave colours of
  text and axes out, the page gives them for light and dark.
* Every control has a visible label or an aria-label; what changes by itself stands in an
  ``aria-live=polite`` place. NiceGUI runs without Tailwind: use the classes above.
* Tests: ``tests/page`` has a server and a browser (``browser_page``) that fail on console errors
  and on requests to other hosts; ``check_accessible(page)`` runs axe.
"""

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
    people_page,
    plan_page,
    release_page,
)
from sfumato_web.page.auth import LOGIN, PREFIX, PageMiddleware
from sfumato_web.page.layout import LOGINS, paragraph

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from sfumato_web.app import ServerState

__all__ = ["open_page"]


ASSETS: Final = Path(__file__).parent / "assets"
_KEPT: Final = {"Cache-Control": "public, max-age=3600"}
_DOWN: Final = "M7 10l5 5 5-5z"
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
    parts = (plan_page, release_page, ask_page, describe_page, ledger_page, people_page, learn_page)
    for part in parts:
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
    # As paths: the font of these two arrows alone has 129 KB.
    ui.select.default_props(f'dropdown-icon="{_DOWN}"')
    ui.expansion.default_props(f'expand-icon="{_DOWN}"')
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
