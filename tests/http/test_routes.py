# SPDX-License-Identifier: Apache-2.0
"""Each route once, as its users call it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from fastapi.testclient import TestClient

from sfumato.ledger.ledger import Ledger
from tests.http.served import ADA, BOB, CORA, asked, bearer, served, write_served


def test_health_needs_no_token(client: TestClient) -> None:
    reply = client.get("/health")
    assert reply.status_code == 200
    assert reply.json()["status"] == "ok"


def test_datasets_lists_only_ones_own(client: TestClient) -> None:
    for token, names in ((ADA, ["people"]), (BOB, ["others"]), (CORA, ["people", "others"])):
        found = client.get("/datasets", headers=bearer(token)).json()
        assert [d["name"] for d in found] == names
    assert found[0]["cells"] == "40"


def test_remaining_is_the_tighter_of_table_and_allowance(client: TestClient) -> None:
    ada = client.get("/datasets", headers=bearer(ADA)).json()[0]["remaining"]
    cora = client.get("/datasets", headers=bearer(CORA)).json()[0]["remaining"]
    assert (ada["pure_epsilon"], cora["pure_epsilon"]) == (2.0, 4.0)


def test_schema_is_the_public_domain(client: TestClient) -> None:
    found = client.get("/datasets/people/schema", headers=bearer(ADA)).json()
    assert [(a["name"], a["size"]) for a in found["attributes"]] == [("age", 20), ("sex", 2)]
    assert "[domain.age]" in found["toml"]


def test_a_plan_is_a_forecast_and_spends_nothing(fresh: TestClient) -> None:
    reply = fresh.post("/datasets/people/plan", headers=bearer(ADA), json=asked())
    assert reply.status_code == 200, reply.text
    assert reply.json()["queries"] == 62
    assert reply.json()["fits"] is True
    left = fresh.get("/datasets", headers=bearer(ADA)).json()[0]["remaining"]
    assert left["pure_epsilon"] == 2.0


def test_a_release_is_debited_once_and_comes_back_as_the_same_bytes(fresh: TestClient) -> None:
    first = fresh.post("/datasets/people/release", headers=bearer(ADA), json=asked())
    assert first.status_code == 200, first.text
    again = fresh.post("/datasets/people/release", headers=bearer(ADA), json=asked())
    assert again.content == first.content
    frame = pd.DataFrame(first.json()["answers"])
    assert len(frame) == 62
    assert {"group", "value", "standard_error", "low", "high", "age", "sex"} <= set(frame.columns)
    book = fresh.get("/datasets/people/ledger", headers=bearer(ADA)).json()
    assert [e["analyst"] for e in book["entries"]] == ["ada"]
    assert book["remaining"]["pure_epsilon"] == pytest.approx(1.0, abs=1e-3)


def test_projection_and_level_are_free_once_paid(fresh: TestClient) -> None:
    bodies = [
        fresh.post("/datasets/people/release", headers=bearer(ADA), json=asked(**more)).json()
        for more in ({"project": False}, {"project": False, "level": 0.5}, {"project": "bounds"})
    ]
    assert len({b["key"] for b in bodies}) == 3
    assert len({b["entry"] for b in bodies}) == 1
    assert bodies[0]["answers"]["unbiased"] == bodies[1]["answers"]["unbiased"]


def test_a_stored_answer_is_found_by_its_key(fresh: TestClient) -> None:
    first = fresh.post("/datasets/people/release", headers=bearer(ADA), json=asked())
    key = first.json()["key"]
    assert fresh.get(f"/datasets/people/answers/{key}", headers=bearer(CORA)).content == (
        first.content
    )
    foreign = fresh.get(f"/datasets/others/answers/{key}", headers=bearer(CORA))
    assert foreign.status_code == 404


def test_answers_survive_a_restart_as_the_same_bytes(tmp_path: Path) -> None:
    path = write_served(tmp_path / "served")
    send = {"headers": bearer(ADA) | {"Idempotency-Key": "mine"}, "json": asked()}
    with served(path) as client:
        first = client.post("/datasets/people/release", **send)
    with served(path) as client:
        assert client.post("/datasets/people/release", **send).content == first.content
        other = {**send, "json": asked(0.5)}
        assert client.post("/datasets/people/release", **other).status_code == 409


def test_a_lost_store_is_made_again_from_the_ledger(tmp_path: Path) -> None:
    path = write_served(tmp_path / "served")
    send = {"headers": bearer(ADA), "json": asked()}
    with served(path) as client:
        first = client.post("/datasets/people/release", **send)
    for file in path.parent.glob("server.state*"):
        file.unlink()
    with served(path) as client:
        again = client.post("/datasets/people/release", **send)
        spent = client.get("/datasets/people/ledger", headers=bearer(CORA)).json()["entries"]
    assert again.json() == first.json()
    assert len(spent) == 1


def test_the_same_key_with_another_request_is_refused(fresh: TestClient) -> None:
    headers = bearer(ADA) | {"Idempotency-Key": "k1"}
    first = fresh.post("/datasets/people/release", headers=headers, json=asked())
    assert first.status_code == 200
    same = fresh.post("/datasets/people/release", headers=headers, json=asked())
    assert same.content == first.content
    other = fresh.post("/datasets/people/release", headers=headers, json=asked(0.25))
    assert (other.status_code, other.json()["error"]) == (409, "key-reused")
    cora = fresh.post(
        "/datasets/people/release",
        headers=bearer(CORA) | {"Idempotency-Key": "k1"},
        json=asked(0.25),
    )
    assert cora.status_code == 200  # keys of one person are not those of another


def test_a_curator_sees_the_whole_ledger_an_analyst_their_own(fresh: TestClient) -> None:
    for token, epsilon in ((ADA, 1.0), (CORA, 0.5)):
        fresh.post("/datasets/people/release", headers=bearer(token), json=asked(epsilon))
    cora = fresh.get("/datasets/people/ledger", headers=bearer(CORA)).json()
    ada = fresh.get("/datasets/people/ledger", headers=bearer(ADA)).json()
    assert [e["analyst"] for e in cora["entries"]] == ["ada", "cora"]
    assert [e["analyst"] for e in ada["entries"]] == ["ada"]
    assert [a["analyst"] for a in cora["allowances"]] == ["ada"]
    after = cora["entries"][0]["sequence"]
    rest = fresh.get(f"/datasets/people/ledger?after={after}", headers=bearer(CORA)).json()
    assert [e["analyst"] for e in rest["entries"]] == ["cora"]


def test_a_frozen_dataset_answers_only_what_is_stored(fresh: TestClient) -> None:
    first = fresh.post("/datasets/people/release", headers=bearer(ADA), json=asked(0.5))
    why = {"reason": "review"}
    refused = fresh.post("/datasets/people/freeze", headers=bearer(ADA), json=why)
    assert (refused.status_code, refused.json()["error"]) == (403, "not-curator")
    frozen = fresh.post("/datasets/people/freeze", headers=bearer(CORA), json=why)
    assert frozen.json() == {"is_frozen": True}
    again = fresh.post("/datasets/people/freeze", headers=bearer(CORA), json=why)
    assert again.json() == {"is_frozen": True}
    new = fresh.post("/datasets/people/release", headers=bearer(ADA), json=asked(0.25))
    assert (new.status_code, new.json()["error"]) == (423, "frozen")
    again = fresh.post("/datasets/people/release", headers=bearer(ADA), json=asked(0.5))
    assert again.content == first.content
    opened = fresh.post("/datasets/people/unfreeze", headers=bearer(CORA), json=why)
    assert opened.json() == {"is_frozen": False}
    new = fresh.post("/datasets/people/release", headers=bearer(ADA), json=asked(0.25))
    assert new.status_code == 200


def test_metrics_are_for_curators(client: TestClient) -> None:
    assert client.get("/metrics", headers=bearer(ADA)).status_code == 403
    reply = client.get("/metrics", headers=bearer(CORA))
    assert reply.headers["content-type"].startswith("text/plain")
    assert 'sfumato_budget_remaining_share{dataset="people"} 1\n' in reply.text
    assert 'sfumato_requests_total{route="/metrics",status="403"} 1\n' in reply.text


def test_the_openapi_document_has_examples_and_asks_for_a_token(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    release = document["paths"]["/datasets/{name}/release"]["post"]
    assert release["security"] == [{"token": []}]
    assert {"200", "401", "404", "409", "413", "422", "423", "429"} <= set(release["responses"])
    assert "prefix" in json.dumps(document["components"]["schemas"]["ReleaseAsked"])


def test_the_ledger_of_a_served_table_is_whole(tmp_path: Path) -> None:
    path = write_served(tmp_path / "served")
    with served(path) as client:
        client.post("/datasets/people/release", headers=bearer(ADA), json=asked())
    assert Ledger.open(path.parent / "people.ledger").verify().is_whole
