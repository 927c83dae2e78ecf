# SPDX-License-Identifier: Apache-2.0
"""What leaves the server on neighbouring tables, with the same random words: refusals are equal
byte for byte, answers have the same shape and leave at the same time; an exact count is nowhere.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from sfumato_web.app import ServerState
from tests.examples.test_canary import CANARY, _is_seen
from tests.http.served import (
    ADA,
    BOB,
    CORA,
    Clock,
    asked,
    bearer,
    fixed_headers,
    people,
    served,
    write_served,
)
from tests.http.test_ask import ASK, COUNT, SESSION
from tests.http.test_ask import BAD as BAD_QUESTIONS
from tests.http.test_refusals import BAD_BODIES, BAD_WORKLOADS
from tests.shared.words import SeededWords


def _corpus(client: TestClient) -> list[httpx.Response]:
    """Good requests, then every kind of bad ones, with what they come to after the good ones."""
    release, ada = "/datasets/people/release", bearer(ADA)
    raw = ada | {"Content-Type": "application/json"}
    replies = [client.post(release, headers=ada, json=asked(1.5))]
    replies += [client.post(release, headers=ada, json=asked(1.5, project=False))]
    replies += [client.post(release, headers=ada, json=asked(e, project=False)) for e in (1.0, 0.1)]
    replies += [client.post(release, headers=raw, content=body) for body in BAD_BODIES]
    for workload, _, _ in BAD_WORKLOADS:
        for route in ("plan", "release", "select", "select/plan"):
            send = {"workload": workload, "budget": {"epsilon": 0.1}}
            replies.append(client.post(f"/datasets/people/{route}", headers=ada, json=send))
    for text, _, _, _ in BAD_QUESTIONS:
        for route in ("ask", "estimate"):
            send = {"sql": text}
            replies.append(client.post(f"/datasets/people/{route}", headers=ada, json=send))
    for who in (ADA, BOB, CORA, "nobody"):
        for path in ("schema", "ledger", f"answers/{'0' * 64}"):
            replies.append(client.get(f"/datasets/people/{path}", headers=bearer(who)))
    replies.append(client.get("/datasets", headers=ada))
    replies.append(client.get("/metrics", headers=bearer(CORA)))
    return replies


def _shape(value: object) -> object:
    """A document without the values of its answers, times, hashes and process names."""
    if isinstance(value, dict):
        return {k: _shape(v) for k, v in value.items() if k not in ("time", "hash")}
    if isinstance(value, list):
        return [_shape(v) for v in value]
    return "number" if isinstance(value, float) else value


def _ran(folder: Path, table: str, monkeypatch: pytest.MonkeyPatch) -> list[httpx.Response]:
    words = SeededWords("neighbours")
    monkeypatch.setattr("sfumato.random.system_words", lambda: words)
    path = write_served(folder, SESSION)
    (folder / "people.csv").write_text(table)
    with served(path) as client:
        return _corpus(client)


def test_refusals_are_equal_and_answers_have_one_shape_on_neighbouring_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [people(400), people(399), people(400) + "999,Neither\n"]
    runs = [_ran(tmp_path / str(i), t, monkeypatch) for i, t in enumerate(tables)]
    for replies in zip(*runs, strict=True):
        assert len({r.status_code for r in replies}) == 1
        names = [[k for k, _ in r.headers.multi_items()] for r in replies]
        assert all(n == names[0] for n in names)
        if replies[0].status_code != 200:
            assert len({r.content for r in replies}) == 1
            assert len({str(fixed_headers(r)) for r in replies}) == 1
        elif replies[0].headers["content-type"] == "application/json":
            shapes = [json.dumps(_shape(r.json())) for r in replies]
            assert len(set(shapes)) == 1
        else:
            assert len({_figures(r.text) for r in replies}) == 1


def _figures(text: str) -> str:
    """Metrics without those of the machine: its memory, its threads, when it was started."""
    lines = text.splitlines()
    return "\n".join(
        x for x in lines if not x.startswith(("process_", "sfumato_start_time_seconds"))
    )


def test_the_comparison_would_notice_a_count_in_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: a server that says how many rows it read must be caught."""
    from sfumato_web.server import problems

    bodies = []
    for rows in (400, 399):
        with served(write_served(tmp_path / str(rows), rows=rows)) as client:
            told = f"no dataset, but {rows} rows"
            monkeypatch.setattr(
                "sfumato_web.app.no_dataset",
                lambda told=told: problems.Problem(404, "not-found", told),
            )
            bodies.append(client.get("/datasets/nobody/schema", headers=bearer(ADA)).content)
    assert len(set(bodies)) == 2


@pytest.mark.parametrize("took", [0.0001, 0.0019, 0.0097])
def test_answers_leave_at_the_same_time_however_long_the_noise_took(
    tmp_path: Path, took: float
) -> None:
    clock = Clock()
    with served(write_served(tmp_path / "s"), clock) as client:
        server: ServerState = client.app.server  # type: ignore[attr-defined]

        def slow(*_: object) -> bytes:
            clock.now += took
            return b"{}"

        server.datasets["people"].release = slow  # type: ignore[method-assign]
        before = clock.now
        assert (
            client.post("/datasets/people/release", headers=bearer(ADA), json=asked()).status_code
            == 200
        )
        assert clock.now - before == pytest.approx(0.01)
        # Without the grid the difference shows: what is not behind it leaves as it comes.
        before = clock.now
        server.datasets["people"].schema = lambda: {"size": len(slow())}  # type: ignore[method-assign]
        client.get("/datasets/people/schema", headers=bearer(ADA))
        assert clock.now - before == pytest.approx(took)


def _sung(folder: Path, replies: list[httpx.Response], log: str) -> set[str]:
    """Where the canary is seen: responses, headers, the log, and every file but the table."""
    texts = [r.text + str(r.headers) for r in replies]
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "people.csv"]
    found = {p.name for p in files if _is_seen(p.read_bytes())}
    found |= {"response" for t in texts if _is_seen(t.encode())}
    found |= {"log"} if _is_seen(log.encode()) else set()
    numbers = re.findall(r"\d+", log + "".join(texts))
    return found | ({"number"} if str(CANARY) in numbers else set())


def test_an_exact_count_is_in_no_response_header_log_or_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    words = SeededWords("canary over http")
    monkeypatch.setattr("sfumato.random.system_words", lambda: words)
    folder = tmp_path / "served"
    # Noise far larger than the count: the number cannot come out by honest chance.
    path = write_served(folder, SESSION.replace("epsilon = 4", "epsilon = 4e-7"))
    path.write_text(path.read_text().replace("epsilon = 2", "epsilon = 2e-7"))
    monkeypatch.setattr("sfumato.random.system_words", lambda: words)
    (folder / "people.csv").write_text("age,sex\n" + "7,Male\n" * CANARY)
    ada, release = bearer(ADA), "/datasets/people/release"

    def failing(exact: object, *_: object) -> object:
        raise ValueError(repr(exact) + str(CANARY))

    with served(path) as client:
        replies = [client.post(release, headers=ada, json=asked(1e-7))]
        assert replies[0].status_code == 200
        with monkeypatch.context() as patched:
            patched.setattr("sfumato.vault.mechanisms.measure.add_noise", failing)
            replies.append(client.post(release, headers=ada, json=asked(5e-8)))
            assert replies[-1].status_code == 500
        replies.append(client.post(release, headers=ada, json=asked(2e-7)))
        assert replies[-1].status_code == 409
        asks = [{"sql": COUNT.format(age)} for age in (7, 8)]
        replies += [client.post(ASK, headers=bearer(CORA), json=sql) for sql in asks]
        assert {r.status_code for r in replies[-2:]} <= {200, 409}
        replies += [
            client.get(p, headers=bearer(CORA))
            for p in ("/datasets", "/datasets/people/ledger", "/metrics", "/datasets/people/schema")
        ]
    assert "unexpected ValueError" in caplog.text
    assert _sung(folder, replies, caplog.text) == set()


def test_the_search_for_the_canary_finds_it(tmp_path: Path) -> None:
    (tmp_path / "server.state").write_text(f"exactly {CANARY}")
    reply = httpx.Response(200, headers={"x": str(CANARY)}, text="nothing")
    assert _sung(tmp_path, [reply], "104,729 rows") == {
        "server.state",
        "response",
        "log",
        "number",
    }
