# SPDX-License-Identifier: Apache-2.0
"""What a browser may do before and after the login; the page behind the page_app is a stand-in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocketDisconnect

from sfumato_web.app import BUSY, ServerState, make_app
from sfumato_web.page.auth import (
    LOGIN,
    PageMiddleware,
)
from sfumato_web.page.page_limits import LIMITS
from sfumato_web.server.config import read_config
from sfumato_web.server.middleware import RequestMiddleware
from sfumato_web.server.responses import Grid
from tests.http.served import ADA, BOB, CORA, Clock, bearer, fixed_headers, write_served

ORIGIN = {"Origin": "http://testserver"}
SOCKET = "/page/_nicegui_ws/socket.io/"


async def _who(request):
    return PlainTextResponse(request.scope[LOGIN].who.name)


async def _html(_):
    body = "<script>1</script><p>&lt;script></p><script type=module>2</script>"
    return HTMLResponse(body, headers={"X-NiceGUI-Content": "page"})


async def _echo(websocket):
    await websocket.accept()
    try:
        while True:
            await websocket.send_text(await websocket.receive_text())
    except WebSocketDisconnect:
        pass


async def _open(_):
    return PlainTextResponse("open")


STAND_IN = Starlette(
    routes=[
        Route("/page/who", _who),
        Route("/page/html", _html),
        Route("/page/assets/style.css", _open),
        WebSocketRoute(SOCKET, _echo),
    ]
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def browser(tmp_path, clock) -> Iterator[TestClient]:
    config = read_config(write_served(tmp_path / "served"))
    server = ServerState(config, Grid(config.grid, clock, clock.sleep))
    inner = make_app(server).app
    app = RequestMiddleware(inner, server, BUSY, PageMiddleware(STAND_IN, server, clock))
    with TestClient(app, follow_redirects=False) as client:
        yield client
    server.close()


def log_in(browser: TestClient, token: str = ADA, **headers: str):
    return browser.post("/page/login", data={"token": token}, headers={**ORIGIN, **headers})


def test_nobody_gets_in_without_a_login(browser):
    found = browser.get("/page/who")
    assert (found.status_code, found.headers["location"]) == (303, "/page/login?next=/page/who")
    assert browser.get("/page/who", headers=bearer(ADA)).status_code == 303
    assert browser.get("/page/_nicegui/x.js").status_code == 401
    assert browser.get("/page/assets/style.css").text == "open"
    assert browser.get("/").headers["location"] == "/page/login?next=/"


def test_a_token_is_exchanged_for_a_strict_cookie(browser):
    found = log_in(browser)
    assert (found.status_code, found.headers["location"]) == (303, "/page/plan")
    parts = {part.strip().lower() for part in found.headers["set-cookie"].split(";")}
    assert {"httponly", "samesite=strict", "path=/page"} <= parts
    assert "secure" not in parts
    assert ADA not in found.headers["set-cookie"]
    assert browser.get("/page/who").text == "ada"
    assert browser.get("/page").headers["location"] == "/page/plan"
    proxied = log_in(browser, **{"X-Forwarded-Proto": "https"})
    assert "secure" in proxied.headers["set-cookie"].lower()


def test_the_cookie_opens_the_page_only(browser):
    log_in(browser, CORA)
    for path in ("/datasets", "/metrics", "/datasets/people/ledger"):
        assert browser.get(path).status_code == 401


@pytest.mark.parametrize("token", ["", "sfu_nobody", "sha256:" + "0" * 64, "x" * 5000, "\udcff"])
def test_unknown_tokens_are_refused_alike(browser, token):
    found = browser.post(
        "/page/login", content=f"token={token}".encode("utf-8", "replace"), headers=ORIGIN
    )
    assert found.status_code == 401
    assert "set-cookie" not in found.headers
    assert found.content == log_in(browser, "sfu_other").content


def test_guessing_is_slowed_down_and_locks_nobody_out(browser):
    statuses = [log_in(browser, f"sfu_{i}").status_code for i in range(LIMITS.guesses_burst + 200)]
    assert set(statuses) == {401, 429}
    assert log_in(browser).status_code == 303


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "http://testserver.evil.example", "testserver"]
)
def test_other_sites_cannot_send_forms(browser, origin):
    log_in(browser)
    headers = {} if origin is None else {"Origin": origin}
    for path in ("/page/login", "/page/logout"):
        found = browser.post(path, data={"token": ADA}, headers=headers)
        assert (found.status_code, found.json()["error"]) == (403, "origin")
    assert browser.get("/page/who").text == "ada"


def test_only_two_forms_exist(browser):
    log_in(browser)
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert browser.request(method, "/page/who", headers=ORIGIN).status_code == 405
    assert browser.post("/page/login", content=b"a" * 70_000, headers=ORIGIN).status_code == 413


@pytest.mark.parametrize("after", ["//evil.example", "https://evil.example", "/page/../x", "/x"])
def test_a_login_leads_to_the_page_only(browser, after):
    found = browser.post(f"/page/login?next={after}", data={"token": ADA}, headers=ORIGIN)
    assert found.headers["location"] == "/page/plan"


def test_a_login_ends(browser, clock):
    log_in(browser)
    clock.now += LIMITS.login_seconds - 1
    assert browser.get("/page/who").text == "ada"
    clock.now += LIMITS.login_seconds - 1
    assert browser.get("/page/who").text == "ada"
    clock.now += LIMITS.login_seconds + 1
    assert browser.get("/page/who").status_code == 303
    log_in(browser)
    cookie = dict(browser.cookies)
    browser.post("/page/logout", headers=ORIGIN)
    browser.cookies.update(cookie)
    assert browser.get("/page/who").status_code == 303


def test_logins_of_one_person_are_few(browser):
    log_in(browser)
    first = dict(browser.cookies)
    for _ in range(LIMITS.logins_per_analyst):
        browser.cookies.clear()
        log_in(browser)
    browser.cookies.clear()
    browser.cookies.update(first)
    assert browser.get("/page/who").status_code == 303


def test_scripts_of_the_page_have_a_nonce_and_others_none(browser):
    log_in(browser)
    one, two = browser.get("/page/html"), browser.get("/page/html")
    policy = one.headers["content-security-policy"]
    nonce = re.search("'nonce-([^']+)'", policy)[1]
    assert one.text.count(f'<script nonce="{nonce}"') == 2
    assert "&lt;script>" in one.text
    assert nonce not in two.headers["content-security-policy"]
    scripts = re.search("script-src ([^;]*)", policy)[1]
    assert scripts == f"'self' 'nonce-{nonce}' 'unsafe-eval'"
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert one.headers["cache-control"] == "no-store"
    for path in ("/page/login", "/page/who"):
        assert "script-src 'none'" in browser.get(path).headers["content-security-policy"]


def test_the_page_speaks_over_websockets_only(browser):
    log_in(browser)
    assert browser.get(f"{SOCKET}?transport=polling").status_code == 404


@pytest.mark.parametrize(
    ("is_in", "headers"), [(False, ORIGIN), (True, {}), (True, {"Origin": "http://evil.example"})]
)
def test_sockets_of_strangers_are_closed(browser, is_in, headers):
    if is_in:
        log_in(browser)
    with pytest.raises(WebSocketDisconnect), browser.websocket_connect(SOCKET, headers=headers):
        pass


def test_a_socket_is_limited_and_ends_with_the_login(browser, clock):
    log_in(browser)
    with browser.websocket_connect(SOCKET, headers=ORIGIN) as socket:
        socket.send_text("hello")
        assert socket.receive_text() == "hello"
        clock.now += LIMITS.login_seconds + 1
        socket.send_text("still there?")
        with pytest.raises(WebSocketDisconnect):
            socket.receive_text()


def test_a_flood_of_messages_ends_a_socket(browser):
    log_in(browser, BOB)
    with browser.websocket_connect(SOCKET, headers=ORIGIN) as socket:
        for _ in range(LIMITS.messages_burst):
            socket.send_text("x")
            assert socket.receive_text() == "x"
        socket.send_text("x")
        with pytest.raises(WebSocketDisconnect):
            socket.receive_text()


def test_sockets_of_one_person_are_few(browser):
    log_in(browser)
    with ExitStack() as opened:
        for _ in range(LIMITS.sockets_per_analyst):
            opened.enter_context(browser.websocket_connect(SOCKET, headers=ORIGIN))
        with pytest.raises(WebSocketDisconnect), browser.websocket_connect(SOCKET, headers=ORIGIN):
            pass


def test_the_routes_answer_alike_with_a_page_and_without(browser, client):
    for method, path in (
        ("GET", "/health"),
        ("GET", "/openapi.json"),
        ("GET", "/datasets/people/schema"),
        ("GET", "/datasets/nobody/schema"),
        ("POST", "/datasets/people/ask"),
        ("GET", "/nowhere"),
    ):
        for headers in ({}, bearer(ADA)):
            one = browser.request(method, path, headers=headers)
            two = client.request(method, path, headers=headers)
            assert (one.status_code, one.content) == (two.status_code, two.content)
            assert fixed_headers(one) == fixed_headers(two)
    assert client.get("/page/plan").status_code == 401
    assert client.get("/").status_code == 401
