# SPDX-License-Identifier: Apache-2.0
"""The middleware of the server: who asks, how often and how much; when responses leave, and how.

In this order, before the body is read: the token, too many at once, the rate, the declared size.
Then the body, up to its limit in bytes, seconds and nesting. On the way out: the time grid for
whatever touched data, the same security headers for all, and a refusal without details for any
exception that nobody expected. ``connection_class`` is the protocol of connections, which bounds
the head of a request before there is one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sfumato.errors import SfumatoError, place_of
from sfumato_web.server.problems import (
    Problem,
    disconnected,
    no_token,
    not_in_role,
    problem_of,
    too_many,
)
from sfumato_web.server.request_log import NOTE, RequestNote
from sfumato_web.server.server_limits import is_too_deep

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from sfumato_web.app import ServerState
    from sfumato_web.server.config import Analyst
    from sfumato_web.server.server_limits import LimitsTable

__all__ = [
    "ANALYST",
    "METRICS",
    "ON_GRID",
    "OPEN_PATHS",
    "PAGE",
    "SERVER",
    "Handler",
    "RequestMiddleware",
    "connection_class",
]


LOG: Final = logging.getLogger("sfumato.server")
ANALYST: Final = "sfumato.analyst"
ON_GRID: Final = "sfumato.on_grid"
SERVER: Final = "sfumato.state"
ROUTE: Final = "sfumato.route"
_BUSY: Final = re.compile("/datasets/(?P<name>[^/]+)/(?P<route>[a-z]+)(?:/(?P<key>[^/]+))?")
PAGE: Final = "/page"
METRICS: Final = "/metrics"
VERSION_PREFIX: Final = "/v1"
GONE: Final = 499  # of a request whose connection was closed before its answer, as in nginx
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OPEN_PATHS: Final = frozenset({"/health", "/ready", "/openapi.json", "/api"})
ANYBODY: Final = ""  # no analyst has this name

_POLICY: Final = b"content-security-policy"
_SECURITY: Final = (
    (b"cache-control", b"no-store"),
    (_POLICY, b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
_BUT_POLICY: Final = tuple(pair for pair in dict(_SECURITY).items() if pair[0] != _POLICY)


Handler = Callable[[Request], Awaitable[Response]]


class RequestMiddleware:
    """The application around all routes.

    ``busy`` are the routes that are called directly, by method and path; going through the
    framework takes twice the time that they take themselves. ``page_app`` is the application of
    browsers, if there is a page: it has its own rules about who may enter.
    """

    def __init__(
        self,
        app: ASGIApp,
        server: ServerState,
        busy: Mapping[tuple[str, str], Handler] | None = None,
        page_app: ASGIApp | None = None,
    ) -> None:
        self.app, self.server = app, server
        self._busy = dict(busy or {})
        self._page = page_app
        self._inside = server.inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""
        scope[SERVER] = self.server
        if scope["type"] != "http":
            is_browser = scope["type"] == "websocket"
            inner = (self._page or self.app) if is_browser else self.app
            await inner(scope, receive, send)
            return
        scope["path"] = _unversioned(scope["path"])
        note = RequestNote()
        NOTE.set(note)
        sender = _ResponseSender(scope, send, self.server, note)
        name: str | None = None
        try:
            headers = dict(scope["headers"])
            name = self._enter(scope, headers)
            body = b"" if scope["path"] in OPEN_PATHS else await self._body(headers, receive)
            await self._inner(scope)(scope, _replayed(body, receive), sender.send)
        except Exception as error:
            _log(error)
            await sender.refuse(problem_of(error))
        finally:
            if name is not None:
                self._inside[name] -= 1
            sender.finish()

    def _inner(self, scope: Scope) -> ASGIApp:
        """The page, a busy route, or the framework with all the others."""
        if ROUTE in scope and self._page is not None:
            return self._page
        path = _BUSY.fullmatch(scope["path"])
        if path is None:
            return self.app
        route = "/datasets/{name}/" + path["route"] + ("/{key}" if path["key"] else "")
        handler = self._busy.get((scope["method"], route))
        if handler is None:
            return self.app
        scope["path_params"], scope[ROUTE] = path.groupdict(), route
        return partial(_called, handler)

    def _enter(self, scope: Scope, headers: dict[bytes, bytes]) -> str | None:
        """Under which name a request is inside; refused if it is nobody's or one too many."""
        if self._page is not None and _is_page(scope["path"]):
            scope[ROUTE] = PAGE
            # Anybody may send a form, so these are counted together; pages have their own limits.
            return self._counted(ANYBODY) if scope["method"] == "POST" else None
        if scope["path"] in OPEN_PATHS:
            return None
        who = self.server.tokens.holder(headers.get(b"authorization", b"").decode("latin-1"))
        if who is None:
            raise no_token()
        scope[ANALYST] = who
        _check_role(who, scope["method"], scope["path"])
        # Curators can always reach the brake, however many others there are.
        if not who.is_curator and self._inside.total() >= self.server.config.limits.concurrent:
            raise too_many(1)
        wait = self.server.rates.wait(who.name)
        if wait > 0:
            raise too_many(math.ceil(wait))
        return self._counted(who.name)

    def _counted(self, name: str) -> str:
        limits = self.server.config.limits
        if self._inside[name] >= min(limits.concurrent, limits.concurrent_per_analyst):
            raise too_many(1)
        self._inside[name] += 1
        return name

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        limits = self.server.config.limits
        declared = headers.get(b"content-length", b"0")
        if not declared.isdigit() or len(declared) > 18 or int(declared) > limits.body_bytes:
            raise _too_large(limits.body_bytes)
        if declared == b"0" and b"transfer-encoding" not in headers:
            return b""
        try:
            async with asyncio.timeout(limits.body_seconds):
                body = await _read(receive, limits.body_bytes)
        except TimeoutError:
            message = f"the body did not arrive within {limits.body_seconds:g} s; send it at once"
            raise Problem(408, "slow", message, headers={"Connection": "close"}) from None
        if is_too_deep(body, limits.json_depth):
            raise Problem(
                413,
                "too-large",
                f"the JSON is nested more than {limits.json_depth} deep; write it flatter",
            )
        return body


def _unversioned(path: str) -> str:
    """A path without its version: routes are the same under /v1 and without it; pages have none.

    >>> _unversioned("/v1/datasets"), _unversioned("/v1/page"), _unversioned("/v1")
    ('/datasets', '/v1/page', '/v1')
    """
    rest = path.removeprefix(VERSION_PREFIX)
    return rest if rest != path and rest.startswith("/") and not _is_page(rest) else path


def _check_role(who: Analyst, method: str, path: str) -> None:
    """What roles that never spend may not even try; what is left is for each route to say."""
    if who.role == "scraper" and path != METRICS:
        raise not_in_role(who.role)
    if who.role == "auditor" and (method not in ("GET", "HEAD") or path == METRICS):
        raise not_in_role(who.role)


def _is_page(path: str) -> bool:
    """Whether a path is one of the page, where there is one."""
    return path == "/" or path == PAGE or path.startswith(PAGE + "/")


async def _called(handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
    response = await handler(Request(scope, receive))
    await response(scope, receive, send)


async def _read(receive: Receive, most: int) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise disconnected()
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > most:
            raise _too_large(most)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(most: int) -> Problem:
    message = f"the body may have at most {most:,} bytes; ask for less at once"
    return Problem(413, "too-large", message, headers={"Connection": "close"})


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once more, for the routes; after it nothing but the end of the connection."""
    messages: Iterator[Message] = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replay() -> Message:
        for message in messages:
            return message
        while (message := await receive())["type"] == "http.request":
            pass  # an empty body that nobody has read yet
        return message

    return replay


class _ResponseSender:
    """Sends the response of one request: at its time, with security headers, once."""

    def __init__(self, scope: Scope, send: Send, server: ServerState, note: RequestNote) -> None:
        self._scope, self._send, self._server, self._note = scope, send, server, note
        self._arrived = server.grid.clock()
        self._has_left = False
        self._status = GONE
        self._seconds = 0.0

    async def send(self, message: Message) -> None:
        """Pass a message on; the first one waits for its time and gets the headers."""
        if message["type"] == "http.response.start":
            if ON_GRID in self._scope:
                await self._server.grid.wait(self._arrived)
            self._has_left = True
            headers = message.get("headers", ())
            own = dict(headers)
            if self._scope.get(ROUTE) != PAGE or _POLICY not in own:
                headers = [*headers, *(_SECURITY if _POLICY not in own else _BUT_POLICY)]
            identity = (b"x-request-id", self._note.request.encode())
            message = {**message, "headers": [*headers, identity]}
            self._status, self._seconds = message["status"], self._took()
        await self._send(message)

    def _took(self) -> float:
        """Seconds since the request came: whole steps of the grid for what waits for it."""
        grid = self._server.grid
        seconds = grid.clock() - self._arrived
        return grid.step * round(seconds / grid.step) if ON_GRID in self._scope else seconds

    def finish(self) -> None:
        """Count the request, and log it."""
        scope, server, who = self._scope, self._server, self._scope.get(ANALYST)
        route = str(scope.get(ROUTE, getattr(scope.get("route"), "path", "none")))
        name = None if who is None else who.name
        server.metrics.request(route, self._status, self._seconds, name)
        dataset = scope.get("path_params", {}).get("name")
        is_theirs = who is not None and dataset in who.datasets and dataset in server.datasets
        server.log.add(
            "request",
            request=self._note.request,
            analyst=name,
            role=None if who is None else who.role,
            method=scope["method"] if scope["method"] in _METHODS else "other",
            route=route,
            dataset=dataset if is_theirs else None,
            status=self._status,
            error=self._note.code,
            milliseconds=round(1000 * self._seconds, 1),
            spent=self._note.spent or None,
        )

    async def refuse(self, problem: Problem) -> None:
        """Send a refusal, unless an answer is on its way already."""
        if self._has_left:
            return
        self._note.code = problem.code
        body = problem.body()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *((k.lower().encode(), v.encode()) for k, v in problem.headers.items()),
        ]
        start = {"type": "http.response.start", "status": problem.status, "headers": headers}
        await self.send(start)
        await self.send({"type": "http.response.body", "body": body})


def _log(error: Exception) -> None:
    """The log gets what the caller must not: words of ours, or the type and place of others."""
    if isinstance(error, Problem):
        return
    if not isinstance(error, SfumatoError):
        LOG.error("unexpected %s at %s", type(error).__name__, place_of(error))
    elif problem_of(error).status == 503:
        LOG.error("%s: %s", type(error).__name__, error)


# Connections before there is a request.
#
# Nobody has shown a token yet, so whatever is held or done here is done for anybody. A head that
# is larger than ``header_bytes`` gets 431; one that is not whole after ``header_seconds`` (since
# the connection was made, or since its first byte on one that is kept alive) is closed without a
# word.


class _TooLarge(Exception):
    """The head of a request has more bytes than it may."""


class _Connection(HttpToolsProtocol):
    """A connection whose heads are bounded; ``limits`` is set by ``connection_class``."""

    limits: LimitsTable
    _arrived = 0  # bytes of this request that are none of its body
    _read = 0  # bytes of its path and headers
    _begins_with = 0  # bytes that came at once with the first of a request
    _is_in_head = True
    _is_between = True  # before the first byte of a request
    _is_too_large = False
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; refuse a head that grows too large."""
        self._begins_with = len(data) if self._is_between else 0
        self._arrived += len(data)
        super().data_received(data)
        if self.transport.is_closing() or self.parser is None:
            return
        # Between the parts of a body stand their lengths, and after the last one more headers.
        most = self.limits.header_bytes + (0 if self._is_in_head else 8 * self.limits.body_bytes)
        if self._arrived > most:
            self._refuse()
        elif self._is_in_head and self._patience is None:
            self._wait()

    def on_message_begin(self) -> None:
        """The head of the next request."""
        # Of one that begins in the middle of what came, the rest of it is not counted here.
        self._arrived, self._read, self._begins_with = self._begins_with, 0, 0
        self._is_in_head, self._is_between = True, False
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the path."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._is_in_head = False
        self._wait_no_more()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body, whose size ``RequestMiddleware`` limits."""
        self._arrived -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._is_between = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read; 431 where there was too much of it."""
        if self._is_too_large:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _count(self, size: int) -> None:
        self._read += size
        if self._read > self.limits.header_bytes:
            self._is_too_large = True
            raise _TooLarge  # the parser stops, and send_400_response is called

    def _refuse(self) -> None:
        most = self.limits.header_bytes
        message = f"the headers of a request may have at most {most:,} bytes; send fewer"
        body = json.dumps({"error": "too-large", "message": message}).encode()
        head = (
            "HTTP/1.1 431 Request Header Fields Too Large\r\n"
            "content-type: application/json\r\ncache-control: no-store\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self._wait_no_more()
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _wait(self) -> None:
        self._patience = self.loop.call_later(self.limits.header_seconds, self._give_up)

    def _wait_no_more(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        """Close, unless an earlier request of this connection is still being answered."""
        self._patience = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait()
        elif self._is_in_head and not self.transport.is_closing():
            self.transport.close()


def connection_class(limits: LimitsTable) -> type[asyncio.Protocol]:
    """The protocol of connections under these limits, for uvicorn."""
    named: dict[str, Any] = {"limits": limits}
    return type("Connection", (_Connection,), named)
