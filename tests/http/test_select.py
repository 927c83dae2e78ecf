# SPDX-License-Identifier: Apache-2.0
"""Selections over HTTP: forecast, debited once, the same bytes, refusals, the client."""

from __future__ import annotations

import json

import pytest

import sfumato as sf
from tests.http.served import ADA, BOB, CORA, bearer
from tests.http.test_client import over

AGES = [{"marginals": [["age"]]}]
TOP = "SELECT age, COUNT(*) FROM data GROUP BY age ORDER BY COUNT(*) DESC LIMIT 2"
ROUTE = "/datasets/people/select"


def asked(epsilon=0.5, **more):
    return {"workload": AGES, "budget": {"epsilon": epsilon}, **more}


def test_a_selection_is_forecast_then_debited_once_and_comes_back_as_the_same_bytes(fresh):
    people, ada = fresh.app.server.datasets["people"], bearer(ADA)
    plan = fresh.post(f"{ROUTE}/plan", json=asked(top=2, counts=True), headers=ada).json()
    assert (plan["candidates"], plan["top"], plan["fits"]) == (20, 2, True)
    assert "takes 25% of the budget" in plan["ledger"]  # of the allowance
    assert people.ledger.remaining("ada").share == 1
    first = fresh.post(ROUTE, json=asked(top=2, counts=True), headers=ada)
    assert first.status_code == 200, first.text
    body = first.json()
    assert list(body["answers"]) == ["rank", "age", "query", "value", "low", "high"]
    assert body["answers"]["rank"] == [1, 2]
    assert body["guarantee"] == plan["guarantee"]
    assert float(people.ledger.remaining("ada").share) == pytest.approx(0.75)
    again = fresh.post(ROUTE, json=asked("1/2", top=2, counts=True), headers=ada)
    assert again.content == first.content
    kept = fresh.get(f"/datasets/people/answers/{body['key']}", headers=ada)
    assert kept.content == first.content
    stored = fresh.post(f"{ROUTE}/plan", json=asked(top=2, counts=True), headers=ada).json()
    assert (stored["fits"], stored["ledger"]) == (True, "stored answer, nothing spent")
    assert len(people.ledger.entries()) == 1


def test_sql_and_a_workload_of_the_same_groups_are_one_request(fresh):
    ada = bearer(ADA)
    written = fresh.post(ROUTE, json={"sql": TOP, "budget": {"epsilon": 0.5}}, headers=ada).json()
    tabled = fresh.post(ROUTE, json=asked(top=2, counts=True), headers=ada).json()
    assert written["answers"]["value"] == tabled["answers"]["value"]
    assert written["entry"] == tabled["entry"]
    assert len(fresh.app.server.datasets["people"].ledger.entries()) == 1


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"budget": {"epsilon": 1}}, 422, "one of workload and sql"),
        ({"workload": AGES, "sql": TOP, "budget": {"epsilon": 1}}, 422, "one of workload and sql"),
        (asked(top=20), 422, "whole number from 1 to 19"),
        (asked(top=0), 422, "greater than or equal to 1"),
        (asked(which="best"), 422, "largest"),
        (asked(mechanism="magic"), 422, "permute-and-flip"),
        (asked(mechanism="gaussian-counts"), 422, "allows permute-and-flip"),
        (asked(unknown=1), 422, "unknown"),
        (asked(nearest=2), 422, "less than or equal to 1"),
        (asked(nearest="half"), 422, "from 0 to 1"),
        ({"sql": TOP, "top": 2, "budget": {"epsilon": 1}}, 422, "itself"),
        ({"sql": "SELECT age FROM t GROUP BY age", "budget": {"epsilon": 1}}, 422, "needs LIMIT"),
        ({"workload": [{"magic": 1}], "budget": {"epsilon": 1}}, 422, "give one of marginals"),
        (asked(3.5), 409, "budget refused: this release costs"),
    ],
)
def test_what_cannot_be_selected_is_refused_and_costs_nothing(client, body, status, words):
    reply = client.post(ROUTE, json=body, headers=bearer(ADA))
    assert reply.status_code == status, reply.text
    assert words in reply.text
    assert client.app.server.datasets["people"].ledger.entries() == ()


def test_a_key_is_of_one_request_and_a_frozen_dataset_selects_only_what_is_stored(fresh):
    ada = bearer(ADA) | {"Idempotency-Key": "one"}
    first = fresh.post(ROUTE, json=asked(0.25), headers=ada)
    assert fresh.post(ROUTE, json=asked(0.25), headers=ada).content == first.content
    assert fresh.post(ROUTE, json=asked(0.25, top=3), headers=ada).status_code == 409
    freeze = {"json": {"reason": "review"}, "headers": bearer(CORA)}
    fresh.post("/datasets/people/freeze", **freeze).raise_for_status()
    assert fresh.post(ROUTE, json=asked(0.25), headers=bearer(ADA)).content == first.content
    assert fresh.post(ROUTE, json=asked(0.125), headers=bearer(ADA)).status_code == 423
    assert fresh.post(ROUTE, json=asked(), headers=bearer(BOB)).status_code == 404


def test_the_client_selects_as_the_library_does(fresh):
    client = sf.Client("http://test", ADA, transport=over(fresh))
    forecast = client.plan_selection("people", TOP, epsilon=0.5)
    domain = fresh.app.server.datasets["people"].config.domain
    plan = sf.plan_selection(TOP, sf.Budget(epsilon=0.5), domain=domain)
    assert forecast["guarantee"] == plan.guarantee
    chosen = client.select("people", AGES, epsilon=0.5, top=2, counts=True, key="k")
    assert chosen.answers["rank"].tolist() == [1, 2]
    assert (chosen.answers["low"] <= chosen.answers["value"]).all()
    assert json.loads(json.dumps(chosen.document))["tolerance"] == plan.tolerance
    median = client.plan_selection("people", [{"prefix": "age"}], epsilon=0.1, nearest=0.5)
    assert median["mechanism"] == "permute-and-flip"
    with pytest.raises(sf.BudgetExhausted):
        client.select("people", AGES, epsilon=3)
