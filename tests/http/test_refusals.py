# SPDX-License-Identifier: Apache-2.0
"""What bad input gets: the right status, words, no trace, no value of the data; early if large."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from sfumato_web.app import ServerState
from tests.http.served import (
    ADA,
    BOB,
    CONFIG,
    CORA,
    Clock,
    asked,
    bearer,
    fixed_headers,
    served,
    write_served,
)

RELEASE = "/datasets/people/release"


def _server(client: TestClient) -> ServerState:
    server: ServerState = client.app.server  # type: ignore[attr-defined]
    return server


@pytest.mark.parametrize("path", ["/datasets", "/datasets/people/schema", "/nowhere", "/metrics"])
def test_a_wrong_token_is_401_in_the_same_words_whoever_it_names(
    client: TestClient, path: str
) -> None:
    replies = [
        client.get(path, headers=headers)
        for headers in ({}, bearer("sfu_nobody"), bearer(""), {"Authorization": f"Basic {ADA}"})
    ]
    assert {r.status_code for r in replies} == {401}
    assert len({r.content for r in replies}) == 1
    assert len({str(fixed_headers(r)) for r in replies}) == 1
    assert replies[0].headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("route", ["schema", "ledger", f"answers/{'0' * 64}"])
def test_foreign_and_unknown_datasets_are_404_alike(client: TestClient, route: str) -> None:
    foreign = client.get(f"/datasets/people/{route}", headers=bearer(BOB))
    unknown = client.get(f"/datasets/nobody/{route}", headers=bearer(BOB))
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.content == unknown.content
    assert fixed_headers(foreign) == fixed_headers(unknown)


def test_a_foreign_dataset_is_404_for_posts_too(client: TestClient) -> None:
    for name in ("people", "nobody"):
        reply = client.post(f"/datasets/{name}/release", headers=bearer(BOB), json=asked())
        assert (reply.status_code, reply.json()["error"]) == (404, "not-found")


BAD_WORKLOADS = [
    ([{"sql": "SELECT MAX(age) FROM data"}], "sql", "MAX"),
    ([{"sql": "SELECT COUNT(*) FROM a JOIN b ON a.x = b.x"}], "sql", "JOIN"),
    ([{"sql": "DROP TABLE data"}], "sql", "DROP"),
    ([{"sql": "SELECT COUNT(*) FROM data WHERE age >"}], "sql", "request: workload #1.sql"),
    ([{"sql": "((((" * 400}], "sql", "workload #1.sql"),
    ([{"marginals": 9}], "workload", "9-way"),
    ([{"prefix": "aeg"}], "workload", "did you mean 'age'"),
    ([{"prefx": "age"}], "request", "did you mean 'prefix'"),
    ([{"prefix": "age", "ranges": "age"}], "request", "at once"),
    ([{}], "request", "says not what is asked"),
]


@pytest.mark.parametrize(("workload", "code", "words"), BAD_WORKLOADS)
def test_what_is_no_query_is_422_with_the_construct_named(
    client: TestClient, workload: list[dict[str, object]], code: str, words: str
) -> None:
    for route in ("plan", "release"):
        send = {"workload": workload, "budget": {"epsilon": 1}}
        reply = client.post(f"/datasets/people/{route}", headers=bearer(ADA), json=send)
        assert reply.status_code == 422, reply.text
        assert reply.json()["error"] == code
        assert words.lower() in reply.json()["message"].lower()


BAD_BODIES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"workload": [{"marginals": 1}]}',
    b'{"workload": [], "budget": {"epsilon": 1}}',
    b'{"workload": [{"marginals": 1}], "budget": {"epsilon": 0}}',
    b'{"workload": [{"marginals": 1}], "budget": {"epsilon": NaN}}',
    b'{"workload": [{"marginals": 1}], "budget": {"epsilon": 1e999}}',
    b'{"workload": [{"marginals": 1}], "budget": {"epsilon": "1e999999"}}',
    b'{"workload": [{"marginals": 1}], "budget": {"epsilon": 1, "rho": 1}}',
    b'{"workload": [{"marginals": 1}], "budget": {"epsilon": 1}, "seed": 7}',
    b'{"workload": [{"marginals": 1}], "budget": {"epsilon": 1}, "level": 1}',
    b'{"workload": [{"marginals": 1}], "budget": {"epsilon": 1}, "mechanism": "magic"}',
    b'{"workload": [{"marginals": ' + b"9" * 5000 + b'}], "budget": {"epsilon": 1}}',
    b'{"workload": [{"sql": "\\ud800"}], "budget": {"epsilon": 1}}',
    b'{"workload": [{"\\ud800": 1}], "budget": {"epsilon": 1}}',
]


@pytest.mark.parametrize("body", BAD_BODIES)
def test_a_body_that_is_no_request_is_422(client: TestClient, body: bytes) -> None:
    headers = bearer(ADA) | {"Content-Type": "application/json"}
    reply = client.post(RELEASE, headers=headers, content=body)
    assert reply.status_code == 422, reply.text
    assert set(reply.json()) == {"error", "message"}


def test_unknown_routes_and_methods_are_refused_in_the_servers_words(client: TestClient) -> None:
    nowhere = client.get("/nowhere", headers=bearer(ADA))
    assert (nowhere.status_code, nowhere.json()["error"]) == (404, "not-found")
    for path in ("ask/more", "release/", "answers", "answers/", "ask/"):
        reply = client.post(f"/datasets/people/{path}", headers=bearer(ADA), json={})
        assert reply.status_code in (404, 405)
    method = client.delete("/datasets", headers=bearer(ADA))
    assert (method.status_code, method.json()["error"]) == (405, "method")
    for key in ("x", "0" * 63, "G" * 64):
        reply = client.get(f"/datasets/people/answers/{key}", headers=bearer(ADA))
        assert reply.status_code == 422


def test_an_exhausted_budget_is_409_with_what_remains(fresh: TestClient) -> None:
    first = fresh.post(RELEASE, headers=bearer(ADA), json=asked(1.5))
    assert first.status_code == 200
    reply = fresh.post(RELEASE, headers=bearer(ADA), json=asked(1.0))
    assert (reply.status_code, reply.json()["error"]) == (409, "budget-exhausted")
    assert reply.json()["remaining"]["pure_epsilon"] == pytest.approx(
        0.5, abs=1e-3
    )  # of the allowance; the table has 2.5
    assert "pure noise up to epsilon = 0.5" in reply.json()["message"]
    plan = fresh.post("/datasets/people/plan", headers=bearer(ADA), json=asked(1.0))
    assert plan.json()["fits"] is False
    other = fresh.post(RELEASE, headers=bearer(CORA), json=asked(1.0))
    assert other.status_code == 200


def test_too_many_requests_are_429_with_a_time_to_wait(tmp_path: Path) -> None:
    limits = "planning_seconds = 60.0\nburst = 3\nrequests_per_second = 0.5"
    path = write_served(tmp_path / "s", CONFIG.replace("planning_seconds = 60.0", limits))
    clock = Clock()
    with served(path, clock) as client:
        statuses = [client.get("/datasets", headers=bearer(ADA)).status_code for _ in range(3)]
        reply = client.get("/datasets", headers=bearer(ADA))
        assert (statuses, reply.status_code) == ([200] * 3, 429)
        assert reply.headers["retry-after"] == "2"
        assert client.get("/datasets", headers=bearer(BOB)).status_code == 200
        clock.now += 2
        assert client.get("/datasets", headers=bearer(ADA)).status_code == 200


async def _called(app: Any, headers: dict[str, str], parts: Iterator[bytes]) -> tuple[Any, int]:
    """One POST over bare ASGI: the first message back, and how often the body was read."""
    reads, sent = 0, []

    async def receive() -> dict[str, object]:
        nonlocal reads
        reads += 1
        part = next(parts, None)
        if part is None:
            await asyncio.Event().wait()  # nothing more ever comes
        return {"type": "http.request", "body": part, "more_body": True}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    raw = [(k.lower().encode(), v.encode()) for k, v in headers.items()]
    scope = {
        "type": "http",
        "method": "POST",
        "path": RELEASE,
        "headers": raw,
        "query_string": b"",
        "http_version": "1.1",
        "scheme": "http",
        "client": None,
        "server": None,
    }
    await app(scope, receive, send)
    return sent, reads


def test_a_declared_gigabyte_is_413_before_a_byte_is_read(client: TestClient) -> None:
    headers = bearer(ADA) | {"content-length": str(2**30)}
    sent, reads = asyncio.run(_called(client.app, headers, iter([])))
    assert (sent[0]["status"], reads) == (413, 0)
    assert (b"connection", b"close") in sent[0]["headers"]


def test_a_body_without_an_end_is_413_at_the_limit(client: TestClient) -> None:
    tracemalloc.start()
    parts = iter(lambda: bytes(2**12), None)
    sent, reads = asyncio.run(
        _called(client.app, bearer(ADA) | {"transfer-encoding": "chunked"}, parts)
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (sent[0]["status"], reads) == (413, 2**16 // 2**12 + 1)
    assert peak < 50 * 2**20


def test_a_body_that_never_comes_is_408(tmp_path: Path) -> None:
    limits = "planning_seconds = 60.0\nbody_seconds = 0.01"
    path = write_served(tmp_path / "s", CONFIG.replace("planning_seconds = 60.0", limits))
    with served(path) as client:
        headers = bearer(ADA) | {"content-length": "10"}
        sent, _ = asyncio.run(_called(client.app, headers, iter([b"{"])))
    assert sent[0]["status"] == 408


def test_an_unknown_caller_is_refused_before_the_body_is_read(client: TestClient) -> None:
    sent, reads = asyncio.run(_called(client.app, {"content-length": "10"}, iter([])))
    assert (sent[0]["status"], reads) == (401, 0)


@pytest.mark.parametrize("opened", ["[", '{"a":'])
def test_deep_json_is_413(client: TestClient, opened: str) -> None:
    body = opened * 10_000
    headers = bearer(ADA) | {"Content-Type": "application/json"}
    reply = client.post(RELEASE, headers=headers, content=body)
    assert (reply.status_code, reply.json()["error"]) == (413, "too-large")


def test_a_workload_beyond_the_limits_is_413(tmp_path: Path) -> None:
    limits = "planning_seconds = 60.0\nqueries = 61"
    path = write_served(tmp_path / "s", CONFIG.replace("planning_seconds = 60.0", limits))
    with served(path) as client:
        reply = client.post(RELEASE, headers=bearer(ADA), json=asked())
        assert (reply.status_code, reply.json()["error"]) == (413, "too-large")
        assert "62 queries" in reply.json()["message"]


def test_too_many_at_once_are_429(tmp_path: Path) -> None:
    limits = "planning_seconds = 60.0\nconcurrent = 1"
    path = write_served(tmp_path / "s", CONFIG.replace("planning_seconds = 60.0", limits))

    async def both(app: Any) -> int:
        headers = bearer(ADA) | {"content-length": "10"}
        waiting = asyncio.create_task(_called(app, headers, iter([])))
        await asyncio.sleep(0)
        sent, _ = await _called(app, headers, iter([]))
        waiting.cancel()
        return int(sent[0]["status"])

    with served(path) as client:
        assert asyncio.run(both(client.app)) == 429
        # The slot of the one that was cancelled is free again.
        assert client.get("/datasets", headers=bearer(ADA)).status_code == 200


@pytest.mark.parametrize(
    "error", [ValueError("104729"), MemoryError("104729"), OSError("104729"), KeyError("104729")]
)
def test_an_unexpected_error_is_500_without_its_text(
    client: TestClient,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(_server(client).datasets["people"], "release", broken)
    reply = client.post(RELEASE, headers=bearer(ADA), json=asked())
    assert (reply.status_code, reply.json()["error"]) == (500, "unexpected")
    assert "104729" not in reply.text + caplog.text
    assert f"unexpected {type(error).__name__} at " in caplog.text


def test_a_table_that_is_gone_is_503_without_its_path(fresh: TestClient) -> None:
    folder = Path(_server(fresh).datasets["people"].config.source).parent
    (folder / "people.csv").unlink()
    reply = fresh.post(RELEASE, headers=bearer(ADA), json=asked())
    assert (reply.status_code, reply.json()["error"]) == (503, "unavailable")
    assert str(folder) not in reply.text


def test_every_response_has_the_security_headers(client: TestClient) -> None:
    replies = [
        client.get("/health"),
        client.get("/datasets"),
        client.get("/datasets", headers=bearer(ADA)),
        client.get("/nowhere", headers=bearer(ADA)),
        client.post(RELEASE, headers=bearer(ADA), content=json.dumps("x" * 2**17)),
    ]
    assert [r.status_code for r in replies] == [200, 401, 200, 404, 413]
    for reply in replies:
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert "server" not in reply.headers
