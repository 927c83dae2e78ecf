# SPDX-License-Identifier: Apache-2.0
"""The middleware of the page: sign-in, cookies, origins and rates of browsers, headers of pages.

The JSON routes take a token with each request, which no other site can make a browser send. The
page has a cookie instead, so it is guarded against requests that other sites start:

* the cookie is HttpOnly, SameSite=Strict, and Secure where the proxy speaks TLS;
* whatever may change something (POST, the websocket) must name this host as its Origin;
* a websocket speaks for the pages of its own login only, whatever ids it names;
* all of it is under ``/page``; nothing there answers to a token, nothing elsewhere to the cookie.

``Logins`` are held in memory, by the hash of their cookie; ``login_page`` is the form that needs no
script; ``PageMiddleware`` applies all of this to every request and websocket of a browser.

What leaves has a content security policy that lets the browser speak to this server only. NiceGUI
writes scripts into the page, which get a nonce, and compiles its templates in the browser, which
needs 'unsafe-eval' (so does Vega) and inline styles.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import re
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from http.cookies import CookieError, SimpleCookie
from time import monotonic
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, quote, urlsplit

from starlette.responses import JSONResponse, RedirectResponse, Response

from sfumato_web.page.page_limits import LIMITS
from sfumato_web.server.config import Analyst
from sfumato_web.server.middleware import ANALYST, PAGE
from sfumato_web.server.problems import Problem, no_token, not_in_role, too_many
from sfumato_web.server.request_log import NOTE
from sfumato_web.server.server_limits import Rates

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from sfumato_web.app import ServerState

__all__ = ["COOKIE", "LOGIN", "PREFIX", "Login", "Logins", "PageMiddleware", "login_page"]


def login_page(after: str, is_wrong: bool = False) -> str:
    """The form; ``after`` is where a known token leads."""
    wrong = (
        '<p class="trouble" role="alert" id="wrong">Nobody holds this token. Copy it whole, from '
        "<code>sfu_</code> to its end, or ask your curator for a new one.</p>"
        if is_wrong
        else ""
    )
    described = ' aria-describedby="wrong" aria-invalid="true"' if is_wrong else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Sign in · sfumato</title>
<link rel="stylesheet" href="/page/assets/style.css">
<link rel="icon" href="/page/favicon.ico">
</head>
<body class="plain">
<main class="door">
<h1 class="mark">sfumato</h1>
<p class="lead">Private answers, as sharp as mathematics allows.</p>
<form method="post" action="/page/login?next={escape(after, quote=True)}">
{wrong}
<label for="token">Your token</label>
<input id="token" name="token" type="password" required autofocus autocomplete="current-password"
 maxlength="200" spellcheck="false"{described}>
<button type="submit">Sign in</button>
</form>
<p class="note">Tokens come from the curator of the server. Yours is exchanged for a cookie that
ends after half an hour without use; it is kept nowhere.</p>
</main>
</body>
</html>
"""


# Who is signed in to the page: a random cookie stands for a token that was shown once.
#
# Logins are held in memory, by the hash of their cookie: a restart signs everybody out, and
# nothing that is written down lets anybody in. A login ends when nobody used it for a while.


@dataclass(eq=False)
class Login:
    """One browser of one analyst; ``drafts`` is what they were planning, by dataset.

    ``pages`` are the ids of the pages that were made for this login, the newest of them: only its
    own sockets may speak for them. ``holds`` says whether the token that was shown still does: it
    may have ended or been revoked, or whoever holds it may have another role by now.
    """

    who: Analyst
    used: float
    holds: Callable[[], bool] = field(default=lambda: True)
    is_over: bool = False
    drafts: dict[str, object] = field(default_factory=dict)
    pages: dict[str, None] = field(default_factory=dict)

    def add_page(self, page: str) -> None:
        """Remember a page that was made for this login."""
        self.pages[page] = None
        while len(self.pages) > LIMITS.pages_per_login:
            del self.pages[next(iter(self.pages))]


class Logins:
    """All logins of the server."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._open: dict[str, Login] = {}

    def begin(self, who: Analyst, holds: Callable[[], bool] = lambda: True) -> str:
        """A new login for as long as a token holds; returns its cookie."""
        self._end_old()
        theirs = [key for key, login in self._open.items() if login.who is who]
        for key in theirs[: len(theirs) + 1 - LIMITS.logins_per_analyst]:
            self._end(key)
        cookie = secrets.token_urlsafe(32)
        self._open[_digest(cookie)] = Login(who, self._clock(), holds)
        return cookie

    def find(self, cookie: str) -> Login | None:
        """The login of a cookie, which counts as use of it; None if there is none."""
        login = self._open.get(_digest(cookie))
        return login if login is not None and self.use(login) else None

    def use(self, login: Login) -> bool:
        """Whether a login still holds; it then holds for another while."""
        now = self._clock()
        if login.is_over or now - login.used > LIMITS.login_seconds or not login.holds():
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
        old = [k for k, login in self._open.items() if now - login.used > LIMITS.login_seconds]
        for key in old:
            self._end(key)


def _digest(cookie: str) -> str:
    # Only hashes of secrets are looked up, so time tells nothing of a cookie.
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()


PREFIX: Final = PAGE
COOKIE: Final = "sfumato"
LOGIN: Final = "sfumato.login"
SOCKETS: Final = f"{PREFIX}/_nicegui_ws/"
CONNECTION: Final = f"{PREFIX}/connection"
OPEN: Final = frozenset({f"{PREFIX}/assets/style.css", f"{PREFIX}/favicon.ico"})

TOO_MANY_TABS: Final = (
    f"You have {LIMITS.sockets_per_analyst} pages of this server open already, so this one is not "
    "connected. Close another one, and it goes on by itself."
)
_NEXT: Final = re.compile(rf"{PREFIX}(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*/?")
_STATIC: Final = (f"{PREFIX}/assets/", f"{PREFIX}/_nicegui/")
_PACKED: Final = (b"text/javascript", b"application/javascript", b"text/css")
_SCRIPT: Final = re.compile(rb"<script(?=[\s>])")

_HEADERS: Final = (
    # With no-referrer, browsers would hide the origin of the login's own form.
    (b"referrer-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


def policy(nonce: str | None) -> str:
    """The content security policy; without a nonce no script runs at all."""
    scripts = "'none'" if nonce is None else f"'self' 'nonce-{nonce}' 'unsafe-eval'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


class PageMiddleware:
    """The application around the page."""

    def __init__(
        self, app: ASGIApp, server: ServerState, clock: Callable[[], float] = monotonic
    ) -> None:
        self.app, self.server, self.logins = app, server, Logins(clock)
        self._clock = clock
        self._guesses = Rates(LIMITS.guesses_per_second, LIMITS.guesses_burst, clock)
        self._sockets: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a browser in, or send it to the login."""
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        login = self.logins.find(_cookie(headers.get("cookie", "")))
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send, headers, login)
        else:
            await self._request(scope, receive, send, headers, login)

    async def _request(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: dict[str, str],
        login: Login | None,
    ) -> None:
        """One request over HTTP; a refusal is raised for ``RequestMiddleware`` to send."""
        path, method = scope["path"], scope["method"]
        if login is not None:
            scope[ANALYST] = login.who
        leave = _PageResponse(send, is_packed=_may_pack(path, headers)).send
        if method not in ("GET", "HEAD"):
            _check_change(path, method, headers)
        if path == f"{PREFIX}/login":
            response = await self._login(scope, receive, headers)
            await response(scope, receive, leave)
        elif path == f"{PREFIX}/logout" and method == "POST":
            if login is not None:
                self.server.log.add("sign-out", analyst=login.who.name)
            self.logins.end(_cookie(headers.get("cookie", "")))
            gone = _to(f"{PREFIX}/login")
            gone.delete_cookie(COOKIE, path=PREFIX)
            await gone(scope, receive, leave)
        elif path == CONNECTION:
            state = self._state(login, parse_qs(scope.get("query_string", b"").decode("latin-1")))
            await JSONResponse(state)(scope, receive, leave)
        elif path.startswith(SOCKETS):
            raise Problem(404, "not-found", "the page speaks over websockets only")
        elif path in OPEN:
            await self.app(scope, receive, leave)
        elif login is None:
            if path.startswith(f"{PREFIX}/_nicegui"):
                raise no_token()
            await _to(f"{PREFIX}/login?next={quote(path)}")(scope, receive, leave)
        elif path in ("/", PREFIX, f"{PREFIX}/"):
            await _to(f"{PREFIX}/plan")(scope, receive, leave)
        else:
            if not path.startswith(f"{PREFIX}/_nicegui/"):
                self._count(login)
            scope[LOGIN] = login
            await self.app(scope, receive, leave)

    def _state(self, login: Login | None, query: dict[str, list[str]]) -> dict[str, str]:
        """Why a page has no connection, for the script that tells people; says nothing else."""
        if login is None:
            return {"state": "signed-out"}
        if (query.get("client_id") or [""])[0] not in login.pages:
            return {"state": "unknown"}
        if self._sockets[login.who.name] >= LIMITS.sockets_per_analyst:
            return {"state": "too-many", "message": TOO_MANY_TABS}
        return {"state": "fine"}

    def _count(self, login: Login) -> None:
        wait = self.server.rates.wait(login.who.name)
        if wait > 0:
            raise too_many(math.ceil(wait))

    async def _login(self, scope: Scope, receive: Receive, headers: dict[str, str]) -> Response:
        """The form, or what came in it."""
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        after = (query.get("next") or [""])[0]
        after = after if _NEXT.fullmatch(after) else f"{PREFIX}/plan"
        if scope["method"] != "POST":
            return Response(login_page(after), media_type="text/html")
        body = (await receive()).get("body", b"")  # the middleware has read it and knows its size
        token = (parse_qs(body.decode("latin-1")).get("token") or [""])[0].strip()
        who = self.server.tokens.holder(f"Bearer {token}")
        self._tell(who)
        if who is not None and not who.may_ask:
            raise not_in_role(who.role)
        if who is None:
            wait = self._guesses.wait("")
            if wait > 0:
                raise too_many(math.ceil(wait))
            return Response(login_page(after, is_wrong=True), 401, media_type="text/html")
        wait = self.server.rates.wait(who.name)
        if wait > 0:
            raise too_many(math.ceil(wait))
        response = _to(after)
        response.set_cookie(
            COOKIE,
            self.logins.begin(who, lambda: self.server.tokens.holder(f"Bearer {token}") is who),
            path=PREFIX,
            httponly=True,
            samesite="strict",
            # Only ever makes the cookie stricter, so it does not matter who says it.
            secure=headers.get("x-forwarded-proto") == "https",
        )
        return response

    def _tell(self, who: Analyst | None) -> None:
        """Count and log a login, or one that is refused."""
        outcome = "refused" if who is None or not who.may_ask else "ok"
        self.server.metrics.signed_in(outcome)
        note = NOTE.get()
        self.server.log.add(
            "sign-in",
            request=None if note is None else note.request,
            analyst=None if who is None else who.name,
            outcome=outcome,
        )

    async def _socket(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: dict[str, str],
        login: Login | None,
    ) -> None:
        """The websocket of a page: of somebody signed in, from this site, not too many."""
        is_fine = scope["path"].startswith(SOCKETS) and _is_own(headers)
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        is_theirs = login is not None and set(query.get("client_id", ())) <= set(login.pages)
        if (
            not is_fine
            or not is_theirs
            or login is None
            or self._sockets[login.who.name] >= LIMITS.sockets_per_analyst
        ):
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        messages = Rates(LIMITS.messages_per_second, LIMITS.messages_burst, self._clock)

        async def limited() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive" and (
                messages.wait("") > 0 or not self.logins.use(login)
            ):
                await send({"type": "websocket.close", "code": 1008})
                return {"type": "websocket.disconnect", "code": 1008}
            return message

        # Whatever is said over this socket has to be about pages of this login.
        scope[LOGIN] = login
        self._sockets[login.who.name] += 1
        try:
            await self.app(scope, limited, send)
        finally:
            self._sockets[login.who.name] -= 1


def _check_change(path: str, method: str, headers: dict[str, str]) -> None:
    """Two forms change something; no other site may send them."""
    if method != "POST" or path not in (f"{PREFIX}/login", f"{PREFIX}/logout"):
        raise Problem(405, "method", "the page is read with GET", headers={"Allow": "GET, HEAD"})
    if not _is_own(headers):
        raise Problem(403, "origin", "this request was started by another site; open the page")


def _to(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303)


def _cookie(header: str) -> str:
    try:
        morsel = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


def _is_own(headers: dict[str, str]) -> bool:
    """Whether a request was started by a page of this host."""
    origin = urlsplit(headers.get("origin", ""))
    return origin.scheme in ("http", "https") and origin.netloc == headers.get("host")


def _may_pack(path: str, headers: dict[str, str]) -> bool:
    """Whether a response is a script or style that is the same for all, for a browser that unpacks.

    Pages themselves are not packed: the length of a packed text tells of what stands in it.
    """
    wanted = headers.get("accept-encoding", "").split(",")
    return path.startswith(_STATIC) and any(each.strip() == "gzip" for each in wanted)


@lru_cache(maxsize=LIMITS.packed_files)
def _packed(body: bytes) -> bytes:
    return gzip.compress(body, 9, mtime=0)


class _PageResponse:
    """Sends one response with security headers; packs scripts and styles.

    The scripts of a page get a nonce.
    """

    def __init__(self, send: Send, is_packed: bool) -> None:
        self._send, self._is_packed = send, is_packed
        self._start: Message | None = None
        self._parts: list[bytes] = []
        self._nonce: str | None = None

    async def send(self, message: Message) -> None:
        """Pass a message on; the parts of a page or a script are held until it is whole."""
        if message["type"] == "http.response.start":
            named = dict(message.get("headers", ()))
            kind = named.get(b"content-type", b"")
            is_page = kind.startswith(b"text/html") and b"x-nicegui-content" in named
            is_text = message["status"] == 200 and kind.startswith(_PACKED)
            if is_page:
                self._nonce = secrets.token_urlsafe(16)
            if is_page or (self._is_packed and is_text):
                self._start = message
                return
            await self._send({**message, "headers": _with(list(message.get("headers", ())), None)})
        elif self._start is not None:
            self._parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                await self._whole(self._start, b"".join(self._parts))
        else:
            await self._send(message)

    async def _whole(self, start: Message, body: bytes) -> None:
        dropped = {b"content-length", b"accept-ranges"}
        headers = [(k, v) for k, v in start.get("headers", ()) if k not in dropped]
        if self._nonce is None:
            body = _packed(body)
            # The bytes are others than those of the file, which its ETag speaks of.
            headers = [(k, b"W/" + v if k == b"etag" else v) for k, v in headers]
            headers += [(b"content-encoding", b"gzip"), (b"vary", b"accept-encoding")]
        else:
            body = _SCRIPT.sub(f'<script nonce="{self._nonce}"'.encode(), body)
        headers.append((b"content-length", str(len(body)).encode()))
        await self._send({**start, "headers": _with(headers, self._nonce)})
        await self._send({"type": "http.response.body", "body": body})


def _with(headers: list[tuple[bytes, bytes]], nonce: str | None) -> list[tuple[bytes, bytes]]:
    """The headers of a response and those that all have."""
    if b"cache-control" not in dict(headers):
        headers = [*headers, (b"cache-control", b"no-store")]
    return [*headers, (b"content-security-policy", policy(nonce).encode()), *_HEADERS]
