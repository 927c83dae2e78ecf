# SPDX-License-Identifier: Apache-2.0
"""Sockets of the page: whose they are, and what a page says when it has none; behind a real proxy.

The proxy and the service of the documents are run, or checked, as they stand in docs/server.md.
"""

from __future__ import annotations

import asyncio
import configparser
import http.client
import json
import re
import shutil
import socket
import subprocess
import tomllib
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import pytest

from tests.page.conftest import WAIT, sign_in
from tests.page.museum import ADA, BOB, CORA, Museum, museum_server

T = TypeVar("T")

DOCS = Path(__file__).parents[2] / "docs" / "server.md"


def _block(kind: str) -> str:
    """The one block of code of this kind that stands below "TLS and running it"."""
    text = DOCS.read_text().partition("## TLS and running it")[2]
    found = re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)
    assert len(found) == 1
    return str(found[0])


@contextmanager
def _context(chromium, base: str) -> Iterator:
    """A browser of its own, whose console may complain of a server that is away."""
    context = chromium.new_context(base_url=base, ignore_https_errors=True)
    context.set_default_timeout(WAIT)
    try:
        yield context
    finally:
        context.close()


def test_after_a_restart_an_open_page_leads_to_the_login_and_back(chromium, tmp_path) -> None:
    with museum_server(tmp_path / "m") as first:
        port = int(first.address.rpartition(":")[2])
        with _context(chromium, first.address) as context:
            page = context.new_page()
            sign_in(page, CORA)
            page.goto("/page/ledger")
            page.get_by_role("heading", level=1, name="Ledger").wait_for()
            page.wait_for_function("window.did_handshake")
            first.stop()
            with museum_server(tmp_path / "m", port):
                page.wait_for_url("**/page/login?next=*")
                page.get_by_label("Your token").fill(CORA)
                page.get_by_role("button", name="Sign in").click()
                page.wait_for_url("**/page/ledger")
                page.get_by_role("heading", level=1, name="Ledger").wait_for()


def _cookie(museum: Museum, token: str) -> str:
    """The cookie of a new login."""
    host = museum.address.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=60)
    headers = {"Origin": museum.address, "Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/page/login", urlencode({"token": token}), headers)
    answer = connection.getresponse()
    assert answer.status == 303
    return str(answer.headers["Set-Cookie"]).partition(";")[0]


def _page_id(museum: Museum, cookie: str) -> str:
    """The id of a page that is made for a login."""
    host = museum.address.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", "/page/learn", headers={"Cookie": cookie})
    text = connection.getresponse().read().decode()
    found = re.search(r"client_id[^0-9a-f]{1,12}([0-9a-f-]{36})", text)
    assert found
    return found[1]


def _socket(museum: Museum, cookie: str, **query: str):
    from websockets.asyncio.client import connect

    asked = urlencode({"EIO": "4", "transport": "websocket", **query})
    address = museum.address.replace("http", "ws")
    return connect(
        f"{address}/page/_nicegui_ws/socket.io/?{asked}",
        origin=museum.address,
        additional_headers={"Cookie": cookie},
    )


def _run(work: Coroutine[Any, Any, T]) -> T:
    """In a thread: the browser has an event loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result(120)


def _query(page: str) -> dict[str, str]:
    more = {"tab_id": "a", "document_id": "b", "next_message_id": "0"}
    return {"client_id": page, "implicit_handshake": "true", **more}


def test_a_socket_with_the_page_of_somebody_else_does_not_connect(museum: Museum) -> None:
    from websockets.exceptions import InvalidStatus

    ada, bob = _cookie(museum, ADA), _cookie(museum, BOB)
    page = _page_id(museum, ada)

    async def try_it(cookie: str) -> bool:
        try:
            async with _socket(museum, cookie, **_query(page)) as opened:
                await opened.recv()
                await opened.send("40")
                return str(await opened.recv()).startswith("40")
        except InvalidStatus:
            return False

    assert _run(try_it(bob)) is False
    assert _run(try_it(_cookie(museum, ADA))) is False  # another browser of hers
    assert _run(try_it(ada)) is True


def test_a_socket_cannot_speak_for_the_page_of_somebody_else(museum: Museum) -> None:
    ada, bob = _cookie(museum, ADA), _cookie(museum, BOB)
    hers, his = _page_id(museum, ada), _page_id(museum, bob)

    async def try_it(page: str) -> str:
        async with _socket(museum, bob, client_id=his) as opened:
            await opened.recv()
            await opened.send("40")
            await opened.recv()
            asked = {"client_id": page, "tab_id": "a", "document_id": "b", "next_message_id": 0}
            await opened.send("420" + json.dumps(["handshake", asked]))
            while not (text := str(await opened.recv())).startswith("430"):
                pass
            return text

    assert _run(try_it(hers)) == "430[false]"
    assert _run(try_it(his)) == "430[true]"


def test_one_tab_too_many_is_told_so_and_goes_on_when_another_closes(
    chromium, tmp_path: Path
) -> None:
    # Tabs are counted: those of other tests may still be closing at a server that is shared.
    with (
        museum_server(tmp_path / "m") as museum,
        _context(chromium, museum.address) as context,
    ):
        page = context.new_page()
        sign_in(page, ADA)
        page.goto("about:blank")
        cookie = next(c for c in context.cookies() if c["name"] == "sfumato")
        header = f"sfumato={cookie['value']}"

        # Fifteen other tabs, and a sixteenth: sockets without a browser, held in a thread.
        import threading

        from websockets.exceptions import InvalidStatus

        ready, done = threading.Event(), threading.Event()

        async def tab() -> Any:
            for _ in range(600):  # the page that was left may still be open there
                with suppress(InvalidStatus):
                    return await _socket(museum, header)
                await asyncio.sleep(0.1)
            raise TimeoutError("no room for another tab")

        async def hold() -> None:
            sockets = [await tab() for _ in range(16)]
            ready.set()
            await asyncio.to_thread(done.wait)
            for each in sockets:
                await each.close()

        holding = threading.Thread(target=lambda: asyncio.run(hold()), daemon=True)
        holding.start()
        try:
            assert ready.wait(120)
            page.goto("/page/ledger")
            alert = page.locator("p.trouble.connection")
            alert.wait_for()
            assert "16 pages" in alert.inner_text()
        finally:
            done.set()
            holding.join(120)
        alert.wait_for(state="detached")


def test_the_focus_stays_on_an_attribute_that_was_picked(browser_page) -> None:
    page = browser_page
    chips = page.get_by_role("group", name="Attributes")
    for name in ("age", "ticket"):
        chip = chips.get_by_role("button", name=name, exact=True)
        chip.focus()
        page.keyboard.press("Enter")
        page.wait_for_function(
            "name => [...document.querySelectorAll('button.pick[aria-pressed=true]')]"
            ".some((b) => b.textContent.trim() === name)",
            arg=name,
        )
        assert page.evaluate("document.activeElement.textContent.trim()") == name
    kinds = page.get_by_role("group", name="Kind of question")
    kind = kinds.get_by_role("button", name="Ranges")
    kind.focus()
    page.keyboard.press("Enter")
    page.get_by_text("every interval of it is asked").wait_for()
    assert page.evaluate("document.activeElement.textContent.trim()") == "Ranges"


def test_the_focus_moves_on_when_what_had_it_goes_away(browser_page) -> None:
    page = browser_page
    chips = page.get_by_role("group", name="Attributes")
    chips.get_by_role("button", name="guided", exact=True).click()
    add = page.get_by_role("button", name="Add: Table of guided")
    add.focus()
    page.keyboard.press("Enter")
    remove = page.get_by_role("button", name="Remove: Table of guided")
    remove.wait_for()
    page.wait_for_function("document.activeElement.closest('[aria-label=Attributes]') !== null")
    remove.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.classList.contains('pick')")


WATCHED = """
import asyncio, sys
import sqlglot
from sfumato.ledger.store import Store
from sfumato_web.server.responses import ResponseStore

def watched(real, name):
    def call(*given, **named):
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            frames = []
            frame = sys._getframe(1)
            while frame is not None and len(frames) < 12:
                frames.append(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}")
                frame = frame.f_back
            print("ON THE LOOP", name, " < ".join(frames), file=sys.stderr, flush=True)
        return real(*given, **named)
    return call

sqlglot.Dialect.parse = watched(sqlglot.Dialect.parse, "sql")
Store._transaction = watched(Store._transaction, "ledger")
ResponseStore._using = watched(ResponseStore._using, "state")
"""


def test_no_page_reads_a_ledger_the_state_or_sql_on_the_event_loop(chromium, tmp_path) -> None:
    with (
        museum_server(tmp_path / "m", before=WATCHED) as museum,
        _context(chromium, museum.address) as context,
    ):
        started = len(museum.log)
        page = context.new_page()
        sign_in(page, CORA)
        chips = page.get_by_role("group", name="Attributes")
        chips.get_by_role("button", name="ticket", exact=True).click()
        page.get_by_role("button", name="Add: Table of ticket").click()
        page.get_by_role("group", name="Kind of question").get_by_role("button", name="SQL").click()
        sql = "SELECT weekday, COUNT(*) FROM data WHERE age < 9 OR age > 70 GROUP BY weekday"
        page.get_by_label("SQL").fill(sql)
        page.get_by_role("button", name="Add", exact=True).click()
        page.get_by_text("Typical error", exact=True).wait_for()
        button = page.get_by_role("button", name="Release …")
        button.click()
        page.get_by_role("button", name="Spend and release").click()
        page.wait_for_url("**/page/release/museum/*")
        page.get_by_text("answers.parquet").wait_for()
        page.goto("/page/release")
        page.get_by_text("Table of ticket").first.wait_for()
        page.goto("/page/ask")
        page.get_by_role("button", name="Ask", exact=True).click()
        page.locator(".answer").first.wait_for()
        page.get_by_role("button", name="What would it cost?").click()
        page.get_by_text("Nothing was spent to say this").wait_for()
        page.goto("/page/ledger")
        page.get_by_role("button", name="Verify the ledger").click()
        page.get_by_text("The ledger is whole").wait_for()
        seen = [line for line in museum.log[started:] if "ON THE LOOP" in line]
    assert seen == []


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextmanager
def _proxy(folder: Path, upstream: int) -> Iterator[str]:
    """nginx with the lines of the documents; only ports and the place of the certificate differ."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    openssl = shutil.which("openssl")
    if program is None or openssl is None:
        pytest.skip("NO NGINX, the documented proxy is not tested: apt-get install nginx-light")
    port = _free_port()
    key, certificate = folder / "privkey.pem", folder / "fullchain.pem"
    subject = ["-subj", "/CN=stats.example.org", "-days", "2", "-nodes", "-newkey", "rsa:2048"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, "req", "-x509", *subject, *files], check=True, capture_output=True)
    lines = _block("nginx")
    for old, new in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("http://127.0.0.1:8321", f"http://127.0.0.1:{upstream}"),
        ("/etc/letsencrypt/live/stats.example.org/", f"{folder}/"),
    ):
        assert old in lines
        lines = lines.replace(old, new)
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\n"
        f"error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{paths}{lines}\n}}\n"
    )
    command = [program, "-p", str(folder), "-c", str(folder / "nginx.conf")]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    with subprocess.Popen(command) as process:
        try:
            for _ in range(1_000):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert process.poll() is None, (folder / "error.log").read_text()
            yield f"https://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)


def test_the_nginx_lines_of_the_documents_serve_page_and_routes(
    chromium, museum: Museum, tmp_path: Path
) -> None:
    upstream = int(museum.address.rpartition(":")[2])
    with _proxy(tmp_path, upstream) as address, _context(chromium, address) as context:
        reply = context.request.get("/datasets", headers={"Authorization": f"Bearer {ADA}"})
        assert reply.status == 200
        page = context.new_page()
        sockets: list[str] = []
        page.on("websocket", lambda opened: sockets.append(opened.url))
        sign_in(page, ADA)
        assert next(c for c in context.cookies() if c["name"] == "sfumato")["secure"]
        page.wait_for_function("window.did_handshake")
        chips = page.get_by_role("group", name="Attributes")
        chips.get_by_role("button", name="age", exact=True).click()
        page.get_by_role("button", name="Add: Table of age").wait_for()
        assert sockets
        assert all(url.startswith(address.replace("https", "wss")) for url in sockets)


def test_the_service_of_the_documents_can_write_its_state_and_ledgers(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(_block("ini"))
    assert unit.sections() == ["Unit", "Service", "Install"]
    service = unit["Service"]
    assert service["ProtectSystem"] == "strict"
    writable = Path("/var/lib") / service["StateDirectory"]
    config = tomllib.loads(_block("toml"))
    # Relative paths start at the folder of the configuration, which may not be written.
    folder = Path(service["ExecStart"].split()[-1]).parent
    written = [config["server"]["state"], *(d["ledger"] for d in config["datasets"].values())]
    assert all((folder / path).is_relative_to(writable) for path in written)
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        program = service["ExecStart"].split()[0]
        text = _block("ini").replace(program, "/bin/true").replace("User=sfumato", "User=root")
        path = tmp_path / "sfumato.service"
        path.write_text(text)
        found = subprocess.run(
            [analyze, "verify", str(path)], capture_output=True, text=True, check=False
        )
        assert "sfumato.service" not in found.stderr, found.stderr
