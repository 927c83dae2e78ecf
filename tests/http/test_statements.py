# SPDX-License-Identifier: Apache-2.0
"""A SELECT comes back in its own shape over HTTP, beside all that was released for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from sfumato.errors import WorkloadError
from sfumato.session.client import Client
from tests.http.served import ADA, CONFIG, bearer, served, write_served
from tests.http.test_client import over

BY_SEX = "SELECT sex, COUNT(*) AS n, AVG(age) AS mean, MEDIAN(age) AS middle FROM t GROUP BY sex"
RELEASE = "/datasets/people/release"


def _asked(*texts: str, epsilon: float = 1.0) -> dict[str, object]:
    return {"workload": [{"sql": text} for text in texts], "budget": {"epsilon": epsilon}}


def _columns(statement: dict) -> dict[str, dict]:
    return {column["name"]: column for column in statement["columns"]}


def test_a_release_has_every_select_in_its_own_shape(fresh: TestClient) -> None:
    reply = fresh.post(RELEASE, headers=bearer(ADA), json=_asked(BY_SEX))
    assert reply.status_code == 200, reply.text
    (statement,) = reply.json()["statements"]
    assert statement["sql"] == BY_SEX
    columns = _columns(statement)
    assert list(columns) == ["sex", "n", "mean", "middle"]
    assert columns["sex"]["values"] == ["Female", "Male"]
    assert columns["sex"]["low"] is None
    for name in ("n", "mean", "middle"):
        ends = columns[name]
        for low, value, high in zip(ends["low"], ends["values"], ends["high"], strict=True):
            assert low <= value <= high
    people = fresh.app.server.datasets["people"]
    _, result = people.released(reply.json()["key"])
    frame = result.statement(0, 0.95)
    assert columns["n"]["values"] == frame["n"].tolist()
    assert columns["mean"]["high"] == frame["mean_high"].tolist()


def test_having_and_order_are_another_shape_of_the_same_paid_answers(fresh: TestClient) -> None:
    people = fresh.app.server.datasets["people"]
    send = {"headers": bearer(ADA)}
    every = "SELECT age, COUNT(*) AS n FROM t GROUP BY age"
    first = fresh.post(RELEASE, json=_asked(every), **send)
    debits = len(list(people.ledger.entries()))
    second = fresh.post(RELEASE, json=_asked(f"{every} ORDER BY n DESC LIMIT 3"), **send)
    assert len(list(people.ledger.entries())) == debits
    assert second.json()["answers"]["value"] == first.json()["answers"]["value"]
    assert second.json()["key"] != first.json()["key"]
    largest = _columns(second.json()["statements"][0])["n"]["values"]
    assert largest == sorted(first.json()["answers"]["value"], reverse=True)[:3]


def test_a_release_that_was_not_asked_in_sql_has_no_statements(fresh: TestClient) -> None:
    send = {"workload": [{"marginals": 1}], "budget": {"epsilon": 1}}
    assert "statements" not in fresh.post(RELEASE, headers=bearer(ADA), json=send).json()


UNIT = CONFIG.replace(
    'ledger = "people.ledger"', 'ledger = "people.ledger"\nunit = "person"\nrows_per_unit = 1'
)


def test_the_server_counts_persons_by_its_privacy_unit(tmp_path: Path) -> None:
    text = "SELECT sex, COUNT(DISTINCT person) AS persons FROM t GROUP BY sex"
    path = write_served(tmp_path, UNIT)
    rows = [f"{i % 20},{'Female' if i % 3 else 'Male'},p{i}" for i in range(300)]
    (tmp_path / "people.csv").write_text("age,sex,person\n" + "\n".join(rows) + "\n")
    with served(path) as client:
        reply = client.post(RELEASE, headers=bearer(ADA), json=_asked(text))
        assert reply.status_code == 200, reply.text
        persons = _columns(reply.json()["statements"][0])["persons"]["values"]
        # Laplace noise of scale 1 at epsilon 1: beyond 30 with chance 2 exp(-30).
        assert persons == pytest.approx([200, 100], abs=30)
        refused = client.post(
            RELEASE, headers=bearer(ADA), json=_asked("SELECT COUNT(DISTINCT age) FROM t")
        )
        assert refused.status_code == 422
        assert "privacy unit" in refused.json()["message"]


def test_without_a_privacy_unit_distinct_values_are_refused(fresh: TestClient) -> None:
    text = "SELECT COUNT(DISTINCT person) FROM t"
    assert fresh.post(RELEASE, headers=bearer(ADA), json=_asked(text)).status_code == 422


def test_the_client_has_the_shape_as_a_frame(fresh: TestClient) -> None:
    client = Client("http://test", ADA, transport=over(fresh))
    got = client.release("people", [{"sql": BY_SEX}, {"marginals": 0}], epsilon=1)
    frame = got.statement()
    assert list(frame)[:5] == ["sex", "n", "n_low", "n_high", "mean"]
    assert (frame["n_low"] <= frame["n"]).all()
    with pytest.raises(WorkloadError, match="numbered from 0"):
        got.statement(1)
