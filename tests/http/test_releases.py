# SPDX-License-Identifier: Apache-2.0
"""Releases that are opened again: from what the ledger keeps, at no cost."""

from __future__ import annotations

import io
import json
from fractions import Fraction
from functools import partial

import duckdb
import pandas as pd
import pytest

from sfumato.privacy.cost import Cost
from sfumato.release.release import Release
from tests.http.served import ADA, BOB, CONFIG, CORA, WORKLOAD, asked, bearer, served, write_served


def analyst(client, name):
    return next(a for a in client.app.server.config.analysts if a.name == name)


def test_a_release_is_opened_again_at_no_cost(fresh):
    people = fresh.app.server.datasets["people"]
    ada, cora = analyst(fresh, "ada"), analyst(fresh, "cora")
    assert people.releases(cora) == []
    body = fresh.post("/datasets/people/release", json=asked(0.5), headers=bearer(ADA)).json()
    share = people.ledger.remaining("ada").share
    (past,) = people.releases(ada)
    key = past.key
    assert (key, past.entry.sequence) == (body["key"], body["entry"])
    assert past.request.workload == asked()["workload"]
    for is_forgotten in (False, True):
        if is_forgotten:
            people._results._things.clear()
        _, result = people.released(key)
        values = result.to_arrow(0.95)["value"].to_pylist()
        assert values == pytest.approx(body["answers"]["value"])
    assert people.ledger.remaining("ada").share == share
    assert people.released("0" * 64) is None
    assert len(people.releases(cora)) == 1


def test_analysts_list_their_own_releases_only(fresh):
    others = fresh.app.server.datasets["others"]
    fresh.post("/datasets/others/release", json=asked(0.1), headers=bearer(CORA)).raise_for_status()
    assert len(others.releases(analyst(fresh, "cora"))) == 1
    assert others.releases(analyst(fresh, "bob")) == []


def test_the_list_of_releases_says_who_when_how_good_and_what_it_cost(fresh):
    body = fresh.post("/datasets/people/release", json=asked(0.5), headers=bearer(ADA)).json()
    for token in (ADA, CORA):
        (past,) = fresh.get("/datasets/people/releases", headers=bearer(token)).json()
        assert past["analyst"] == "ada"
        assert past["budget"] == {"epsilon": 0.5}
        assert {n: past[n] for n in ("key", "entry", "queries", "mechanism", "rmse", "cost")} == {
            n: body[n] for n in ("key", "entry", "queries", "mechanism", "rmse", "cost")
        }
    assert fresh.get("/datasets/others/releases", headers=bearer(CORA)).json() == []
    assert fresh.get("/datasets/people/releases", headers=bearer(BOB)).status_code == 404


def test_files_of_a_release_are_written_once_and_spend_nothing(fresh, monkeypatch):
    body = fresh.post("/datasets/people/release", json=asked(0.5), headers=bearer(ADA)).json()
    share = fresh.app.server.datasets["people"].ledger.remaining("ada").share
    saved, save = [], Release.save
    monkeypatch.setattr(Release, "save", lambda *a, **k: saved.append(1) or save(*a, **k))
    at = f"/datasets/people/releases/{body['key']}/files"
    files = {
        name: fresh.get(f"{at}/{name}", headers=bearer(ADA))
        for name in ("answers.parquet", "answers.csv", "report.html", "provenance.json")
    }
    assert saved == [1]
    assert {r.status_code for r in files.values()} == {200}
    values = pd.read_parquet(io.BytesIO(files["answers.parquet"].content))["value"].tolist()
    assert values == pytest.approx(body["answers"]["value"])
    assert files["answers.csv"].headers["content-disposition"].endswith('"answers.csv"')
    records = fresh.get(f"{at}/synthetic.parquet", headers=bearer(ADA))
    assert len(pd.read_parquet(io.BytesIO(records.content))) > 0
    assert fresh.get(f"{at}/report.html", headers=bearer(ADA)).status_code == 200
    assert saved == [1, 1]
    assert fresh.app.server.datasets["people"].ledger.remaining("ada").share == share
    for wrong, status in (
        (f"{at}/answers.exe", 404),
        (f"/datasets/people/releases/{'0' * 64}/files/answers.csv", 404),
        (f"/datasets/others/releases/{body['key']}/files/answers.csv", 404),
        ("/datasets/people/releases/nothing/files/answers.csv", 422),
    ):
        assert fresh.get(wrong, headers=bearer(CORA)).status_code == status


def test_progress_is_told_and_changes_nothing(fresh):
    people = fresh.app.server.datasets["people"]
    told = []
    wanted = people.read(json.dumps(asked(0.25)).encode())
    body = people.release(wanted, analyst(fresh, "ada"), lambda *step: told.append(step))
    assert told
    assert all(0 <= done <= total for done, total, _ in told)
    again = fresh.post("/datasets/people/release", json=asked(0.25), headers=bearer(ADA))
    assert again.content == body


def test_what_a_debit_would_leave(fresh):
    people = fresh.app.server.datasets["people"]
    plan = people.planned(people.read(json.dumps(asked(0.5)).encode()).request)
    after = people.ledger.share_after(plan.cost, "ada")
    assert people.ledger.share_after(plan.cost) > after
    fresh.post("/datasets/people/release", json=asked(0.5), headers=bearer(ADA)).raise_for_status()
    assert people.ledger.remaining("ada").share == after
    dear = people.planned(people.read(json.dumps(asked(1.75)).encode()).request)
    assert people.ledger.share_after(dear.cost, "ada") is None


def test_a_refusal_stands_for_a_while_as_words_not_as_an_exception(fresh):
    """The frames of an exception would hold every plan that was ever refused."""
    people = fresh.app.server.datasets["people"]
    people._clock = lambda: 7.0
    send = {"json": asked(3.5), "headers": bearer(ADA)}
    first = fresh.post("/datasets/people/release", **send)
    assert first.status_code == 409
    (kept,) = people._refused.values()
    assert not any(isinstance(part, BaseException) for part in kept)
    assert fresh.post("/datasets/people/release", **send).content == first.content


MIXED = CONFIG.replace("budget = {epsilon = 4}", "budget = {epsilon = 4, delta = 1e-9}")


def test_a_plan_says_what_it_takes_and_a_release_is_one_that_fits(tmp_path):
    """One Gaussian debit, and the best plan would be refused with 99% of the budget left."""
    request = {"workload": WORKLOAD, "budget": {"epsilon": 1, "delta": "1e-9"}}
    with served(write_served(tmp_path / "served", MIXED)) as client:
        book = client.app.server.datasets["people"].ledger
        before = client.post("/datasets/people/plan", json=request, headers=bearer(CORA)).json()
        assert before["fits"]
        assert before["ledger"]["takes"] == pytest.approx(0.25, rel=1e-3)
        book.debit(Cost.gaussian(Fraction(1, 1000)), {}, "a paid question")
        plan = client.post("/datasets/people/plan", json=request, headers=bearer(CORA)).json()
        assert plan["fits"]
        assert plan["ledger"]["instead_of"] == before["mechanism"]
        assert "will be refused" in plan["ledger"]["words"]
        body = client.post("/datasets/people/release", json=request, headers=bearer(CORA))
        assert body.json()["mechanism"] == plan["mechanism"] != before["mechanism"]
        again = client.post("/datasets/people/release", json=request, headers=bearer(CORA))
        assert again.content == body.content
        listed = client.get("/datasets/people/ledger", headers=bearer(CORA)).json()
        assert len(listed["entries"]) == 2
        dear = request | {"mechanism": before["mechanism"]}
        refused = client.post("/datasets/people/release", json=dear, headers=bearer(CORA))
        assert refused.status_code == 409
        assert "pure noise up to epsilon" in refused.text
        assert refused.json()["remaining"]["gaussian_epsilon"] > 3


def test_lanes_are_shown_and_kept_apart(tmp_path):
    lanes = CONFIG.replace(
        "budget = {epsilon = 4}", "budget = {epsilon = 4, delta = 1e-9, pure = 3}"
    )
    request = {"workload": WORKLOAD, "budget": {"epsilon": 3, "delta": "1e-9"}}
    with served(write_served(tmp_path / "served", lanes)) as client:
        book = client.app.server.datasets["people"].ledger
        book.debit(Cost.gaussian(Fraction(1, 1000)), {}, "a paid question")
        listed = client.get("/datasets", headers=bearer(CORA)).json()
        people = next(d for d in listed if d["name"] == "people")
        assert people["remaining"]["pure_lane"] == 1
        assert people["remaining"]["pure_epsilon"] == 3
        assert 0.9 < people["remaining"]["gaussian_lane"] < 1
        body = client.post("/datasets/people/release", json=request, headers=bearer(CORA))
        assert body.status_code == 200
        assert body.json()["mechanism"].startswith("laplace")


KEPT = """
[domain.age]
kind = "integer"
min = 0
max = 19
outside = "clamp"
nulls = "missing"
"""


@pytest.mark.parametrize("kind", ["query", "view", "table"])
def test_a_served_query_keeps_its_number_of_records(kind, tmp_path):
    """Under replace-one neighbours: a record that is replaced may leave a query or a view."""
    write_served(tmp_path)
    with duckdb.connect(str(tmp_path / "p.duckdb")) as database:
        database.execute("CREATE TABLE people AS SELECT range % 20 AS age FROM range(400)")
        database.execute("CREATE VIEW young AS SELECT * FROM people WHERE age < 7")
    source = {"query": "p.duckdb", "view": "p.duckdb::young", "table": "p.duckdb::people"}[kind]
    more = 'query = "SELECT age FROM people WHERE age < 7"\n' if kind == "query" else ""
    config = CONFIG.replace('source = "people.csv"', f'source = "{source}"\n{more}', 1).replace(
        'ledger = "people.ledger"', 'ledger = "people.ledger"\nneighbours = "replace-one"', 1
    )
    (tmp_path / "people.toml").write_text(KEPT)
    (tmp_path / "server.toml").write_text(config)
    wanted = {"workload": [{"marginals": 0}, {"marginals": 1}], "budget": {"epsilon": 1}}
    with served(tmp_path / "server.toml") as client:
        said = client.post("/datasets/people/plan", json=wanted, headers=bearer(ADA)).json()
        body = client.post("/datasets/people/release", json=wanted, headers=bearer(ADA)).json()
        people = client.app.server.datasets["people"]
        _, result = people.released(body["key"])
        assert result.rows == (400 if kind == "table" else None)
        assert result.forecast.may_drop_records == (kind != "table")
        assert body["rmse"] == said["rmse"] == result.forecast.rmse


@pytest.mark.parametrize("kind", ["view", "table"])
def test_shares_are_free_and_only_of_a_public_number_of_records(kind, tmp_path):
    write_served(tmp_path)
    with duckdb.connect(str(tmp_path / "p.duckdb")) as database:
        database.execute("CREATE TABLE people AS SELECT range % 20 AS age FROM range(400)")
        database.execute("CREATE VIEW young AS SELECT * FROM people WHERE age < 7")
    source = {"view": "p.duckdb::young", "table": "p.duckdb::people"}[kind]
    config = CONFIG.replace('source = "people.csv"', f'source = "{source}"', 1).replace(
        'ledger = "people.ledger"', 'ledger = "people.ledger"\nneighbours = "replace-one"', 1
    )
    (tmp_path / "people.toml").write_text(KEPT)
    (tmp_path / "server.toml").write_text(config)
    wanted = {"workload": [{"marginals": 1}], "budget": {"epsilon": 1}}
    with served(tmp_path / "server.toml") as client:
        people = client.app.server.datasets["people"]
        post = partial(client.post, "/datasets/people/release", headers=bearer(ADA))
        shares = post(json=wanted | {"shares": True})
        if kind == "view":
            assert shares.status_code == 422
            assert "private" in shares.text
            assert len(people.ledger.entries()) == 0
            return
        plain, same = post(json=wanted).json(), post(json=wanted | {"shares": False}).json()
        assert shares.json()["key"] != plain["key"] == same["key"]
        assert shares.json()["entry"] == plain["entry"]
        columns = shares.json()["answers"]
        assert [400 * x for x in columns["share"]] == pytest.approx(plain["answers"]["value"])
        assert not any(name.startswith("share") for name in plain["answers"])
        tasks = [people.read(json.dumps(wanted | more).encode()) for more in ({}, {"shares": True})]
        assert tasks[0].paid == tasks[1].paid
        assert tasks[0].former[0] == tasks[1].former[0]
        assert people.released(shares.json()["key"])[0].shares
