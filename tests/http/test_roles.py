# SPDX-License-Identifier: Apache-2.0
"""Who may use which route: every route of the server, every role."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from sfumato_web.app import routes
from sfumato_web.server.config import read_config
from tests.http.served import (
    ADA,
    BOB,
    CONFIG,
    CORA,
    DORA,
    ROLES,
    SAM,
    asked,
    bearer,
    served,
    write_served,
)

ASK = {"sql": "SELECT COUNT(*) FROM data WHERE age < 5"}
SELECT = {"workload": [{"marginals": [["age"]]}], "budget": {"epsilon": 0.01}}
DESCRIBE = {"budget": {"epsilon": 0.01}, "columns": ["age"]}
DISCOVER = {
    "domain": {"age": {"kind": "integer", "min": "discover", "max": "discover"}},
    "budget": {"epsilon": 0.01},
}
WHY = {"reason": "a test"}
KEY = "0" * 64
ANALYSTS, CURATORS = {"analyst", "curator"}, {"curator"}
READERS, AUDITORS = {"analyst", "curator", "auditor"}, {"curator", "auditor"}
SCRAPERS, ALL = {"curator", "scraper"}, {"analyst", "curator", "auditor", "scraper", "nobody"}

ALLOWED: dict[tuple[str, str], tuple[set[str], Any]] = {
    ("GET", "/health"): (ALL, None),
    ("GET", "/ready"): (ALL, None),
    ("GET", "/api"): (ALL, None),
    ("GET", "/metrics"): (SCRAPERS, None),
    ("GET", "/datasets"): (READERS, None),
    ("GET", "/datasets/{name}/schema"): (READERS, None),
    ("GET", "/datasets/{name}/ledger"): (READERS, None),
    ("GET", "/datasets/{name}/audit"): (AUDITORS, None),
    ("GET", "/datasets/{name}/releases"): (READERS, None),
    ("GET", "/datasets/{name}/releases/{key}/files/{file}"): (READERS, None),
    ("GET", "/datasets/{name}/answers/{key}"): (READERS, None),
    ("GET", "/people"): (AUDITORS, None),
    ("GET", "/changes"): (AUDITORS, None),
    ("POST", "/people"): (CURATORS, {"name": "eve", "datasets": [], **WHY}),
    ("POST", "/people/{person}"): (CURATORS, WHY),
    ("POST", "/people/{person}/remove"): (CURATORS, WHY),
    ("POST", "/people/{person}/tokens"): (CURATORS, WHY),
    ("POST", "/people/{person}/tokens/{token}/revoke"): (CURATORS, WHY),
    ("POST", "/datasets/{name}/allowances/{person}"): (CURATORS, {"budget": None, **WHY}),
    ("POST", "/datasets/{name}/total"): (CURATORS, {"budget": {"epsilon": 9}, **WHY}),
    ("GET", "/series"): (READERS, None),
    ("POST", "/series/{name}/periods"): (CURATORS, {"period": "2026-04", **WHY}),
    ("GET", "/jobs"): (READERS, None),
    ("GET", "/jobs/{job}"): (READERS, None),
    ("GET", "/jobs/{job}/result"): (READERS, None),
    ("DELETE", "/jobs/{job}"): (ANALYSTS, None),
    ("POST", "/datasets/{name}/plan"): (ANALYSTS, asked(0.01)),
    ("POST", "/datasets/{name}/release"): (ANALYSTS, asked(0.01)),
    ("POST", "/datasets/{name}/estimate"): (ANALYSTS, ASK),
    ("POST", "/datasets/{name}/ask"): (ANALYSTS, ASK),
    ("POST", "/datasets/{name}/select/plan"): (ANALYSTS, SELECT),
    ("POST", "/datasets/{name}/select"): (ANALYSTS, SELECT),
    ("POST", "/datasets/{name}/describe/plan"): (ANALYSTS, DESCRIBE),
    ("POST", "/datasets/{name}/describe"): (ANALYSTS, DESCRIBE),
    ("POST", "/datasets/{name}/discover/plan"): (ANALYSTS, DISCOVER),
    ("POST", "/datasets/{name}/discover"): (ANALYSTS, DISCOVER),
    ("POST", "/datasets/{name}/freeze"): (CURATORS, WHY),
    ("POST", "/datasets/{name}/unfreeze"): (CURATORS, WHY),
}
"""For every route: whose tokens it answers, and what is sent."""

AT = {
    "name": "people",
    "key": KEY,
    "file": "answers.csv",
    "job": "0" * 32,
    "person": "bob",
    "token": "0" * 12,
}
TOKENS = {"nobody": None, "analyst": ADA, "curator": CORA, "auditor": DORA, "scraper": SAM}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with served(write_served(tmp_path_factory.mktemp("roles") / "s", ROLES)) as opened:
        yield opened


def _sent(client: TestClient, method: str, path: str, token: str | None, body: object) -> Any:
    headers = {} if token is None else bearer(token)
    at = path.format(**AT)
    return client.request(method, at, headers=headers, json=body)


def _spent(client: TestClient) -> list[int]:
    datasets = client.app.server.datasets.values()  # type: ignore[attr-defined]
    return [d.ledger.version() for d in datasets]


def test_every_route_has_a_line_in_the_table() -> None:
    listed = {(m, r.path) for r in routes.routes for m in r.methods - {"HEAD"}}  # type: ignore
    assert listed == set(ALLOWED)


@pytest.mark.parametrize("route", ALLOWED, ids=" ".join)
def test_each_role_gets_what_is_its_own_and_nothing_else(
    client: TestClient, route: tuple[str, str]
) -> None:
    allowed, body = ALLOWED[route]
    for role, token in TOKENS.items():
        if role in allowed and route[0] == "GET":
            reply = _sent(client, *route, token, body)
            if (role, route[1]) == ("auditor", "/changes"):
                assert reply.status_code == 403  # dora is not the auditor of all datasets
                continue
            assert reply.status_code in (200, 404, 503), (role, reply.text)
        elif role not in allowed:
            before = _spent(client)
            reply = _sent(client, *route, token, body)
            assert reply.status_code == (401 if role == "nobody" else 403), (role, reply.text)
            assert _spent(client) == before


@pytest.mark.parametrize("route", [r for r in ALLOWED if "{name}" in r[1]], ids=" ".join)
def test_a_foreign_dataset_and_none_are_refused_alike(
    client: TestClient, route: tuple[str, str]
) -> None:
    body = ALLOWED[route][1]
    at = route[1].format(**AT)
    replies = [
        client.request(route[0], path, headers=bearer(BOB), json=body)
        for path in (at, at.replace("people", "nothing"))
    ]
    assert replies[0].status_code in (403, 404)
    assert len({(r.status_code, r.content) for r in replies}) == 1


def test_an_auditor_and_a_scraper_have_no_allowance(tmp_path: Path) -> None:
    from sfumato.errors import SchemaError

    text = ROLES.replace('role = "auditor"', 'role = "auditor"\nallowance.people = {epsilon = 1}')
    with pytest.raises(SchemaError, match="who cannot spend"):
        read_config(write_served(tmp_path / "s", text))
    assert "auditor" not in CONFIG


def test_an_auditor_sees_the_whole_ledger_of_its_datasets_only(client: TestClient) -> None:
    client.post("/datasets/people/release", headers=bearer(ADA), json=asked(0.02))
    shown = client.get("/datasets/people/ledger", headers=bearer(DORA)).json()
    assert [e["analyst"] for e in shown["entries"]] == ["ada"]
    assert client.get("/datasets/others/audit", headers=bearer(DORA)).status_code == 404
    (past,) = client.get("/datasets/people/releases", headers=bearer(DORA)).json()
    assert past["analyst"] == "ada"
