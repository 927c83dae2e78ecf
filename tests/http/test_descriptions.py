# SPDX-License-Identifier: Apache-2.0
"""Descriptions and discoveries over HTTP: cost first, paid for once, by those who may."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from sfumato.domain.domain import Domain
from sfumato.errors import BudgetExhausted, SchemaError
from sfumato.session.client import Client
from tests.http.served import ADA, BOB, CONFIG, CORA, bearer, served, write_served
from tests.http.test_client import over
from tests.shared.words import SeededWords

OPEN = CONFIG.replace("budget = {epsilon = 4}", "budget = {epsilon = 40, delta = 1e-4}").replace(
    'ledger = "people.ledger"', 'ledger = "people.ledger"\ndescribe = ["city"]'
)
OPEN = OPEN.replace("allowance.people = {epsilon = 2}", "")
BUDGET = {"epsilon": 4, "delta": 1e-5}
CITY = {"city": {"kind": "category", "values": "discover"}}
DESCRIBE, DISCOVER = "/datasets/people/describe", "/datasets/people/discover"


def _people(rows: int = 2000) -> str:
    cities = ("Rome", "Rome", "Oslo")
    lines = [
        f"{(i * 7) % 20},{'Female' if i % 3 else 'Male'},{cities[i % 3]},secret{i}"
        for i in range(rows)
    ]
    return "age,sex,city,diagnosis\n" + "\n".join(lines) + "\n"


def _served(folder: Path, table: str | None = None) -> Path:
    path = write_served(folder, OPEN)
    (folder / "people.csv").write_text(_people() if table is None else table)
    return path


@pytest.fixture(scope="module")
def describing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with served(_served(tmp_path_factory.mktemp("describing"))) as client:
        yield client


def _debits(client: TestClient) -> int:
    return len(list(client.app.server.datasets["people"].ledger.entries()))


def test_a_forecast_says_columns_error_and_cost_and_spends_nothing(describing: TestClient) -> None:
    before = _debits(describing)
    reply = describing.post(f"{DESCRIBE}/plan", headers=bearer(ADA), json={"budget": BUDGET})
    assert reply.status_code == 200, reply.text
    document = reply.json()
    assert document["columns"] == {"age": "integer", "sex": "category", "city": "category"}
    assert document["fits"]
    assert document["standard_error"] > 0
    assert _debits(describing) == before


def test_a_description_is_paid_for_once_and_has_every_column(
    describing: TestClient, tmp_path: Path
) -> None:
    before = _debits(describing)
    send = {"budget": BUDGET}
    reply = describing.post(DESCRIBE, headers=bearer(ADA), json=send)
    assert reply.status_code == 200, reply.text
    document = reply.json()
    assert document["answers"]["column"] == ["age", "sex", "city"]
    assert document["records"]["low"] <= 2000 <= document["records"]["high"]
    assert set(document["histograms"]) == {"age", "sex", "city"}
    assert "Rome" in document["histograms"]["city"]["city"]
    schema = tmp_path / "schema.toml"
    schema.write_text(document["toml"])
    assert Domain.from_toml(schema).names == ("age", "sex", "city")
    spent = len(document["entries"])
    assert spent == 3  # a vote on the kinds of a CSV, discovery and answers
    assert _debits(describing) == before + spent
    again = describing.post(DESCRIBE, headers=bearer(CORA), json=send)
    assert again.content == reply.content
    stored = describing.get(f"/datasets/people/answers/{document['key']}", headers=bearer(ADA))
    assert stored.content == reply.content
    forecast = describing.post(f"{DESCRIBE}/plan", headers=bearer(ADA), json=send)
    assert "nothing spent" in forecast.json()["ledger"]
    assert _debits(describing) == before + spent


def test_values_and_ranges_are_found_over_http(describing: TestClient) -> None:
    send = {"domain": CITY, "budget": BUDGET}
    forecast = describing.post(f"{DISCOVER}/plan", headers=bearer(ADA), json=send).json()
    assert forecast["searches"][0]["people_for_half"] < 20
    reply = describing.post(DISCOVER, headers=bearer(ADA), json=send)
    assert reply.status_code == 200, reply.text
    counts = dict(
        zip(reply.json()["answers"]["key"], reply.json()["answers"]["count"], strict=True)
    )
    # 1,334 and 666 by construction; the noise has a deviation below one.
    assert counts == {"Rome": pytest.approx(1334, abs=20), "Oslo": pytest.approx(666, abs=20)}
    assert describing.post(DISCOVER, headers=bearer(CORA), json=send).content == reply.content
    ranged = {
        "domain": {"age": {"kind": "integer", "min": "discover", "max": "discover"}},
        "budget": {"epsilon": 1},
    }
    found = describing.post(DISCOVER, headers=bearer(ADA), json=ranged)
    assert found.status_code == 200, found.text
    assert "age" in found.json()["toml"]


@pytest.mark.parametrize("route", [DESCRIBE, f"{DESCRIBE}/plan"])
@pytest.mark.parametrize("column", ["diagnosis", "nowhere"])
def test_a_column_that_was_not_opened_is_refused_as_one_that_is_not_there(
    describing: TestClient, route: str, column: str
) -> None:
    before = _debits(describing)
    send = {"budget": BUDGET, "columns": [column]}
    reply = describing.post(route, headers=bearer(ADA), json=send)
    assert reply.status_code == 422
    assert reply.json()["message"].count("diagnosis") == (column == "diagnosis")
    domain = {column: {"kind": "category", "values": "discover"}}
    found = describing.post(
        DISCOVER, headers=bearer(ADA), json={"domain": domain, "budget": BUDGET}
    )
    assert found.status_code == 422
    assert _debits(describing) == before


@pytest.mark.parametrize("route", [DESCRIBE, f"{DESCRIBE}/plan", DISCOVER, f"{DISCOVER}/plan"])
def test_who_may_not_see_a_dataset_may_not_describe_it(describing: TestClient, route: str) -> None:
    is_discovery = "discover" in route
    send = {"budget": BUDGET, **({"domain": CITY} if is_discovery else {})}
    assert describing.post(route, headers=bearer(BOB), json=send).status_code == 404
    assert describing.post(route, json=send).status_code == 401
    assert describing.post(route, headers=bearer(ADA), json={"budgets": 1}).status_code == 422


def test_what_does_not_fit_is_refused_before_the_first_part_is_debited(
    describing: TestClient,
) -> None:
    client = Client("http://x", ADA, transport=over(describing))
    before = _debits(describing)
    assert not client.plan_description("people", epsilon=60, delta=1e-5)["fits"]
    with pytest.raises(BudgetExhausted):
        client.describe("people", epsilon=60, delta=1e-5)
    assert _debits(describing) == before
    with pytest.raises(SchemaError, match="may be described"):
        client.describe("people", columns=["diagnosis"])


def test_the_client_describes_and_discovers(describing: TestClient) -> None:
    client = Client("http://x", ADA, transport=over(describing))
    summary = client.describe("people", epsilon=4, delta=1e-5)
    assert summary.answers["column"].tolist() == ["age", "sex", "city"]
    assert client.plan_discovery("people", CITY, epsilon=4, delta=1e-5)["fits"]
    assert "Rome" in client.discover("people", CITY, epsilon=4, delta=1e-5).answers["key"].tolist()


def _shape(value: object) -> object:
    """A document without its numbers: they are what was paid for."""
    if isinstance(value, dict):
        return {k: _shape(v) for k, v in value.items() if k not in ("toml", "histograms")}
    if isinstance(value, list):
        return [_shape(v) for v in value]
    return "number" if isinstance(value, float | int) else value


def test_bodies_on_neighbouring_tables_differ_in_what_was_paid_for_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = []
    for place, table in enumerate([_people(2000), _people(1999)]):
        words = SeededWords("described")
        monkeypatch.setattr("sfumato.random.system_words", lambda words=words: words)
        with served(_served(tmp_path / str(place), table)) as client:
            sends = [
                (f"{DESCRIBE}/plan", {"budget": BUDGET}),
                (f"{DISCOVER}/plan", {"domain": CITY, "budget": BUDGET}),
                (DESCRIBE, {"budget": BUDGET, "columns": ["diagnosis"]}),
                (DESCRIBE, {"budget": {"epsilon": 90, "delta": 1e-5}}),
                (DESCRIBE, {"budget": BUDGET}),
            ]
            replies.append([client.post(r, headers=bearer(ADA), json=s) for r, s in sends])
    for one, other in list(zip(*replies, strict=True))[:-1]:
        assert one.content == other.content
    paid = [run[-1].json() for run in replies]
    assert json.dumps(_shape(paid[0])) == json.dumps(_shape(paid[1]))
    assert all(b"secret" not in reply.content for run in replies for reply in run)
