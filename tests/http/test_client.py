# SPDX-License-Identifier: Apache-2.0
"""The Python client, against the server itself and against one that loses requests."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
import uvicorn
from fastapi.testclient import TestClient

from bench import server as load
from sfumato.domain.domain import domain_from
from sfumato.errors import (
    BudgetExhausted,
    LedgerFrozen,
    SchemaError,
    ServerError,
    SfumatoError,
    SqlError,
    TooLarge,
    WorkloadError,
)
from sfumato.session.client import Client, Reply, Transport
from sfumato.toml import parse_toml
from sfumato.workload.question import plain_count
from sfumato_web.app import ServerState, make_app
from sfumato_web.server.config import read_config
from tests.http.served import ADA, CONFIG, CORA, WORKLOAD, bearer, served, write_served

SESSION = CONFIG.replace(
    "[datasets.others]",
    "[datasets.people.session]\nepsilon = 1\nquestions = 100\nupdates = 8\n\n[datasets.others]",
)


def over(client: TestClient) -> Transport:
    """A transport that calls the application in this process."""

    def send(method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        reply = client.request(method, path, headers=dict(headers), content=body)
        return Reply(reply.status_code, dict(reply.headers), reply.content)

    return send


def _client(server: TestClient, token: str = ADA, **more: object) -> Client:
    return Client("http://test", token, transport=over(server), **more)  # type: ignore[arg-type]


def test_a_session_with_the_client(fresh: TestClient) -> None:
    ada = _client(fresh)
    assert list(ada.datasets()["name"]) == ["people"]
    assert "domain.age" in str(ada.schema("people")["toml"])
    assert ada.plan("people", WORKLOAD, epsilon=1)["fits"] is True
    made = ada.release("people", WORKLOAD, epsilon=1)
    assert isinstance(made.answers, pd.DataFrame)
    assert len(made.answers) == 62
    assert ada.answers("people", made.key).document == made.document
    book = ada.ledger("people")
    assert list(book["analyst"]) == ["ada"]
    assert book.attrs["remaining"]["pure_epsilon"] == pytest.approx(1.0, abs=1e-3)


def test_the_client_needs_the_standard_library_only() -> None:
    """Without numpy, pandas and the like: it runs where only answers as JSON are wanted."""
    heavy = {"numpy", "pandas", "pyarrow", "scipy", "numba", "duckdb", "pydantic", "sqlglot"}
    program = "import sfumato as sf, sys; sf.Client; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "sfumato.session.client" in loaded
    assert heavy.isdisjoint(loaded)


def test_a_question_is_estimated(tmp_path: Path) -> None:
    with served(write_served(tmp_path, SESSION)) as server:
        ada = _client(server)
        text = "SELECT COUNT(*) FROM data WHERE age >= 3"
        forecast = ada.estimate("people", text)
        assert forecast["paid_answers_left"] == 8
        (question,) = ada.estimate("people", text, error=50)["questions"]
        assert question["cost"]
        with pytest.raises(SqlError):
            ada.estimate("people", "SELECT MAX(age) FROM data")


def test_refusals_are_the_errors_of_the_library(fresh: TestClient) -> None:
    ada, cora = _client(fresh), _client(fresh, CORA)
    with pytest.raises(SqlError, match="MAX"):
        ada.plan("people", [{"sql": "SELECT MAX(age) FROM data"}], epsilon=1)
    with pytest.raises(WorkloadError, match="9-way"):
        ada.plan("people", [{"marginals": 9}], epsilon=1)
    with pytest.raises(SchemaError, match="workload"):
        ada.plan("people", [], epsilon=1)
    with pytest.raises(BudgetExhausted, match="remains") as refused:
        ada.release("people", WORKLOAD, epsilon=3)
    assert refused.value.remaining is not None
    assert refused.value.remaining["pure_epsilon"] == pytest.approx(2, abs=1e-3)
    with pytest.raises(SchemaError, match="private"):
        ada.release("people", WORKLOAD, epsilon=0.5, shares=True)
    with pytest.raises(TooLarge, match="bytes"):
        ada.plan("people", [{"sql": "x" * 2**17}], epsilon=1)
    with pytest.raises(ServerError, match="404"):
        ada.schema("others")
    with pytest.raises(ServerError, match="401"):
        _client(fresh, "wrong").datasets()
    with pytest.raises(ServerError, match="403"):
        ada.freeze("people", "because")
    cora.freeze("people", "because")
    with pytest.raises(LedgerFrozen, match="frozen"):
        ada.release("people", WORKLOAD, epsilon=0.5)
    cora.unfreeze("people", "over")


class Flaky:
    """Does what it is asked, but loses replies: the request arrived, its answer did not."""

    def __init__(self, inner: Transport, losses: int) -> None:
        self.inner, self.losses, self.keys = inner, losses, list[str | None]()

    def __call__(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        self.keys.append(headers.get("Idempotency-Key"))
        reply = self.inner(method, path, headers, body)
        if len(self.keys) <= self.losses:
            raise ConnectionResetError
        return reply


def test_a_lost_answer_is_asked_for_again_under_the_same_key_and_paid_once(
    fresh: TestClient,
) -> None:
    slept: list[float] = []
    flaky = Flaky(over(fresh), 2)
    ada = Client("http://test", ADA, transport=flaky, sleep=slept.append)
    ada.release("people", WORKLOAD, epsilon=1)
    assert len(flaky.keys) == 3
    assert len(set(flaky.keys)) == 1
    assert flaky.keys[0]
    assert slept == [0.2, 0.4]
    entries = fresh.get("/datasets/people/ledger", headers=bearer(CORA)).json()["entries"]
    assert len(entries) == 1


def test_a_server_that_is_gone_is_an_error_after_the_last_try(client: TestClient) -> None:
    slept: list[float] = []
    ada = Client("http://test", ADA, transport=Flaky(over(client), 99), sleep=slept.append, tries=3)
    with pytest.raises(ServerError, match="tried 3 times"):
        ada.datasets()
    assert len(slept) == 2


def test_the_client_waits_as_long_as_it_is_told() -> None:
    slept: list[float] = []
    replies = iter([Reply(429, {"retry-after": "7"}, b"{}"), Reply(200, {}, b"[]")])
    ada = Client("http://x", ADA, transport=lambda *_: next(replies), sleep=slept.append)
    assert ada.datasets().empty
    assert slept == [7.0]


def test_answers_that_are_no_json_are_errors() -> None:
    page = Reply(200, {}, b"<html>")
    with pytest.raises(ServerError, match="something else than JSON"):
        Client("http://x", ADA, transport=lambda *_: page).datasets()
    with pytest.raises(ServerError, match="no JSON object"):
        Client("http://x", ADA, transport=lambda *_: Reply(200, {}, b"[]")).schema("a")


@pytest.mark.parametrize("url", ["people", "ftp://x", "http://", "file:///etc/passwd"])
def test_a_server_has_a_web_address(url: str) -> None:
    with pytest.raises(SchemaError, match="a server is"):
        Client(url, ADA)


@contextmanager
def listening(app: object) -> Iterator[str]:
    """A real server on a free port, in a thread; yields its address."""
    is_up = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: object = None) -> None:
            await super().startup(sockets)  # type: ignore[arg-type]
            is_up.set()

    config = uvicorn.Config(app, port=0, log_config=None, lifespan="off")  # type: ignore[arg-type]
    server = Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert is_up.wait(60)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(60)


def test_the_client_and_a_real_server(fresh: TestClient) -> None:
    with listening(fresh.app) as url:
        ada = Client(url, ADA)
        made = ada.release("people", WORKLOAD, epsilon=1)
        assert ada.answers("people", made.key).document == made.document
        with pytest.raises(TooLarge):
            ada.plan("people", [{"sql": "x" * 2**20}], epsilon=1)
        assert list(ada.datasets()["name"]) == ["people"]  # a new connection was opened
        with pytest.raises(ServerError, match="401"):
            Client(url, "wrong").datasets()


def test_a_server_that_is_shut_down_puts_its_sessions_to_rest(tmp_path: Path) -> None:
    server = ServerState(read_config(write_served(tmp_path / "s")))
    with TestClient(make_app(server, closes=True)) as client:
        assert client.get("/health").status_code == 200
    with pytest.raises(SfumatoError, match="cannot be read"):
        server.store.body("people", "key")


def test_load_is_made_of_questions_that_nobody_asked_before() -> None:
    texts = {load._sql(number)["sql"] for number in range(20_000)}
    assert len(texts) == 20_000
    domain = domain_from(parse_toml(load.SPEC))
    assert all(plain_count(domain, text) for text in sorted(texts)[:50])
