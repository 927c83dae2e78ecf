# SPDX-License-Identifier: Apache-2.0
"""What an operator and an auditor see: the log, the metrics, the audit trail."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from sfumato.errors import LedgerError
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.reader import verify_export
from sfumato_web.server.request_log import RequestLog
from tests.http.served import (
    ADA,
    CORA,
    DORA,
    ROLES,
    SAM,
    Clock,
    asked,
    bearer,
    served,
    write_served,
)

SESSION = ROLES.replace(
    "budget = {epsilon = 4}\n",
    "budget = {epsilon = 4, delta = 1e-9}\n\n[datasets.people.session]\nepsilon = 1\n"
    "delta = 1e-9\nquestions = 50\nupdates = 3\n",
    1,
).replace("allowance.people = {epsilon = 2}", "allowance.people = {epsilon = 2, delta = 1e-9}")
SQL = "SELECT COUNT(*) FROM data WHERE age < 13"


@contextmanager
def _logged(folder: Path, config: str = SESSION) -> Iterator[tuple[TestClient, list[str]]]:
    """A server, and the lines of its log once it is closed."""
    texts: list[str] = []
    log = RequestLog("json", texts.append)
    lines: list[str] = []
    with served(write_served(folder / "s", config), log=log) as client:
        yield client, lines
    lines += "".join(texts).splitlines()


def test_requests_refusals_debits_and_freezes_are_lines_of_json(tmp_path: Path) -> None:
    with _logged(tmp_path) as (client, lines):
        send = {"headers": bearer(ADA)}
        paid = client.post("/datasets/people/release", json=asked(0.5), **send)
        client.post("/datasets/people/release", json=asked(0.5), **send)
        client.post("/datasets/people/release", json=asked(50), **send)
        client.post("/datasets/people/ask", json={"sql": SQL}, **send)
        client.post("/datasets/people/ask", json={"sql": SQL + " AND nothing = 1"}, **send)
        client.get("/datasets/secret-name/schema", **send)
        client.get("/secret-path", **send)
        client.get("/datasets", headers=bearer("sfu_a-guessed-token"))
        why = {"reason": "a private word"}
        client.post("/datasets/people/freeze", json=why, headers=bearer(CORA))
    told: list[dict[str, Any]] = [json.loads(line) for line in lines]
    requests = [x for x in told if x["event"] == "request"]
    seen = [(x["status"], x.get("error"), x["route"], x.get("analyst")) for x in requests]
    release, ask = "/datasets/{name}/release", "/datasets/{name}/ask"
    assert seen == [
        (200, None, release, "ada"),
        (200, None, release, "ada"),
        (409, "budget-exhausted", release, "ada"),
        (200, None, ask, "ada"),
        (422, "sql", ask, "ada"),
        (404, "not-found", "/datasets/{name}/schema", "ada"),
        (404, "not-found", "none", "ada"),
        (401, "no-token", "none", None),
        (200, None, "/datasets/{name}/freeze", "cora"),
    ]
    assert requests[0]["request"] == paid.headers["x-request-id"]
    entry = paid.json()["entry"]
    cost = paid.json()["cost"]
    assert requests[0]["spent"] == [{"dataset": "people", "entry": entry, "cost": cost}]
    assert "spent" not in requests[1]
    assert [x.get("dataset") for x in requests[4:7]] == ["people", None, None]
    debits = [x for x in told if x["event"] == "debit"]
    assert (debits[0]["request"], debits[0]["act"]) == (requests[0]["request"], "release")
    assert (debits[0]["entry"], debits[0]["cost"]) == (entry, cost)
    (freeze,) = [x for x in told if x["event"] == "freeze"]
    assert (freeze["dataset"], freeze["analyst"]) == ("people", "cora")
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", x["time"]) for x in told)


def test_no_line_has_a_query_a_key_a_token_a_path_or_a_number_of_an_answer(tmp_path: Path) -> None:
    with _logged(tmp_path) as (client, lines):
        send = {"headers": {**bearer(ADA), "Idempotency-Key": "my-own-key"}}
        bodies = [
            client.post("/datasets/people/release", json=asked(0.5), headers=bearer(ADA)).json(),
            client.post("/datasets/people/ask", json={"sql": SQL}, **send).json(),
        ]
        client.get(f"/datasets/people/answers/{bodies[0]['key']}", headers=bearer(ADA))
        client.get("/datasets?secret=query", headers=bearer("sfu_a-guessed-token"))
    text = "\n".join(lines)
    value = str(bodies[1]["answers"][0]["value"])
    for secret in ("age", "13", "SELECT", "my-own-key", "sfu_", "guessed", "secret", "prefix"):
        spot = [x for x in lines if secret in re.sub(r'"(time|request)":"[^"]*"|[\d.]+', "", x)]
        assert not spot, secret
    assert bodies[0]["key"] not in text
    assert f'"{value}"' not in text


def test_a_wrong_log_would_be_caught(tmp_path: Path) -> None:
    """The twin: a log that writes the path of a request has the key of an answer."""
    with _logged(tmp_path) as (client, lines):
        key = client.post("/datasets/people/release", json=asked(0.5), headers=bearer(ADA)).json()
        client.app.server.log.add("request", path=f"/answers/{key['key']}")
    assert key["key"] in "\n".join(lines)


def _sample(text: str, name: str) -> float:
    (line,) = [x for x in text.splitlines() if x.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


def test_metrics_have_latencies_queues_analysts_and_the_process(tmp_path: Path) -> None:
    clock = Clock()
    with served(write_served(tmp_path / "s", SESSION), clock) as client:
        for _ in range(3):
            client.post("/datasets/people/release", json=asked(0.5), headers=bearer(ADA))
        client.post("/datasets/people/release", json=asked(50), headers=bearer(ADA))
        text = client.get("/metrics", headers=bearer(SAM)).text
    route = 'route="/datasets/{name}/release"'
    assert _sample(text, f"sfumato_request_seconds_count{{{route}}}") == 4
    assert _sample(text, f'sfumato_request_seconds_bucket{{{route},le="+Inf"}}') == 4
    assert _sample(text, f"sfumato_request_seconds_sum{{{route}}}") == pytest.approx(0.04)
    assert _sample(text, 'sfumato_analyst_requests_total{analyst="ada",outcome="ok"}') == 3
    assert _sample(text, 'sfumato_analyst_requests_total{analyst="ada",outcome="refused"}') == 1
    assert _sample(text, 'sfumato_debits_total{dataset="people",analyst="ada"}') == 1
    left = _sample(text, 'sfumato_allowance_remaining_share{dataset="people",analyst="ada"}')
    assert left == pytest.approx(0.75, abs=1e-3)
    assert _sample(text, "sfumato_requests_in_flight") == 1
    assert _sample(text, 'sfumato_queue_waiting{pool="work"}') == 0
    assert _sample(text, "process_resident_memory_bytes") > 10**6
    assert _sample(text, "process_open_fds") > 3


def test_metrics_can_be_parsed_by_others(tmp_path: Path) -> None:
    with served(write_served(tmp_path / "s", SESSION)) as client:
        client.get("/datasets", headers=bearer(ADA))
        text = client.get("/metrics", headers=bearer(SAM)).text
    name = r"[a-z_]+(\{([a-z_]+=\"[^\"\n]*\",?)*\})?"
    for line in text.splitlines():
        assert re.fullmatch(rf"# (HELP|TYPE) [a-z_]+ .+|{name} [0-9.e+-]+", line), line
    helps = re.findall(r"# TYPE ([a-z_]+)", text)
    assert len(helps) == len(set(helps))


def test_the_dashboard_asks_for_metrics_and_labels_that_there_are(tmp_path: Path) -> None:
    board = json.loads((Path(__file__).parents[2] / "docs" / "grafana.json").read_text())
    queries = [t["expr"] for panel in board["panels"] for t in panel["targets"]]
    with served(write_served(tmp_path / "s", SESSION)) as client:
        client.post("/datasets/people/release", json=asked(0.5), headers=bearer(ADA))
        client.app.server.metrics.signed_in("ok")
        text = client.get("/metrics", headers=bearer(SAM)).text
    for query in queries:
        names = re.findall(r"(?:sfumato|process)_[a-z_]+", query)
        assert names, query
        for name in names:
            lines = [x for x in text.splitlines() if re.match(rf"{name}[{{ ]", x)]
            assert lines, name
            labels = re.findall(r"by \(([a-z, ]+)\)", query)
            for label in (part for each in labels for part in each.split(", ")):
                assert f'{label}="' in lines[0], (name, label)


def test_metrics_survive_the_failure_of_one_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(write_served(tmp_path / "s", SESSION)) as client:
        others = client.app.server.datasets["others"].ledger

        def fails(self: Ledger, *_: object) -> object:
            if self is others:
                raise LedgerError("gone")
            return real(self)

        real = Ledger.allowances
        monkeypatch.setattr(Ledger, "allowances", fails)
        reply = client.get("/metrics", headers=bearer(SAM))
    assert reply.status_code == 200
    assert _sample(reply.text, 'sfumato_ledger_up{dataset="others"}') == 0
    assert _sample(reply.text, 'sfumato_ledger_up{dataset="people"}') == 1


def test_the_audit_trail_can_be_checked_without_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sfumato_web.server import server_limits

    monkeypatch.setattr("sfumato_web.app.LIMITS", server_limits.ServerLimits(audit_records=2))
    with served(write_served(tmp_path / "s", SESSION)) as client:
        for epsilon in (0.5, 0.25):
            client.post("/datasets/people/release", json=asked(epsilon), headers=bearer(ADA))
        client.post("/datasets/people/freeze", json={"reason": "why"}, headers=bearer(CORA))
        lines: list[str] = []
        while True:
            send = {"headers": bearer(DORA), "params": {"after": len(lines) - 1}}
            page = client.get("/datasets/people/audit", **send).text.splitlines()
            if not page:
                break
            assert len(page) <= 2
            lines += page
        ledger = client.app.server.datasets["people"].ledger
        assert len(lines) == ledger.version() + 1
    replay = verify_export(lines)
    assert replay.problems == []
    assert replay.hashes[-1] == Ledger.open(tmp_path / "s" / "people.ledger").verify().head
    kinds = [json.loads(line)["record"]["kind"] for line in lines]
    assert kinds[0] == "opened"
    assert kinds.count("debited") >= 2
    assert kinds[-1] == "frozen"
    # twins: a changed analyst, a record left out, none at all
    for wrong in ([x.replace('"ada"', '"bob"') for x in lines], [*lines[:2], *lines[3:]]):
        assert verify_export(wrong).problems
    for wrong in ([], lines[1:], ["nothing"], ["[" * 10_000]):
        with pytest.raises(LedgerError):
            verify_export(wrong)
