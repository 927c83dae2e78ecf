# SPDX-License-Identifier: Apache-2.0
"""Releases that are opened again: from what the ledger keeps, at no cost."""

from __future__ import annotations

import json

import pytest

from tests.http.served import ADA, CORA, asked, bearer


def analyst(client, name):
    return next(a for a in client.app.house.config.analysts if a.name == name)


def test_a_release_is_opened_again_at_no_cost(fresh):
    people = fresh.app.house.datasets["people"]
    ada, cora = analyst(fresh, "ada"), analyst(fresh, "cora")
    assert people.releases(cora) == []
    body = fresh.post("/datasets/people/release", json=asked(0.5), headers=bearer(ADA)).json()
    share = people.book.remaining("ada").share
    ((key, entry, request),) = people.releases(ada)
    assert (key, entry.sequence) == (body["key"], body["entry"])
    assert request.workload == asked()["workload"]
    for is_forgotten in (False, True):
        if is_forgotten:
            people._results._kept.clear()
        _, result = people.released(key)
        values = result.to_arrow(0.95)["value"].to_pylist()
        assert values == pytest.approx(body["answers"]["value"])
    assert people.book.remaining("ada").share == share
    assert people.released("0" * 64) is None
    assert len(people.releases(cora)) == 1


def test_analysts_list_their_own_releases_only(fresh):
    others = fresh.app.house.datasets["others"]
    fresh.post("/datasets/others/release", json=asked(0.1), headers=bearer(CORA)).raise_for_status()
    assert len(others.releases(analyst(fresh, "cora"))) == 1
    assert others.releases(analyst(fresh, "bob")) == []


def test_progress_is_told_and_changes_nothing(fresh):
    people = fresh.app.house.datasets["people"]
    told = []
    wanted = people.read(json.dumps(asked(0.25)).encode())
    body = people.release(wanted, analyst(fresh, "ada"), lambda *step: told.append(step))
    assert told
    assert all(0 <= done <= total for done, total, _ in told)
    again = fresh.post("/datasets/people/release", json=asked(0.25), headers=bearer(ADA))
    assert again.content == body


def test_what_a_debit_would_leave(fresh):
    people = fresh.app.house.datasets["people"]
    plan = people.planned(people.read(json.dumps(asked(0.5)).encode()).asked)
    after = people.book.share_after(plan.cost, "ada")
    assert people.book.share_after(plan.cost) > after
    fresh.post("/datasets/people/release", json=asked(0.5), headers=bearer(ADA)).raise_for_status()
    assert people.book.remaining("ada").share == after
    dear = people.planned(people.read(json.dumps(asked(1.75)).encode()).asked)
    assert people.book.share_after(dear.cost, "ada") is None


def test_a_refusal_stands_for_a_while_as_words_not_as_an_exception(fresh):
    """The frames of an exception would hold every plan that was ever refused."""
    people = fresh.app.house.datasets["people"]
    people._clock = lambda: 7.0
    send = {"json": asked(3.5), "headers": bearer(ADA)}
    first = fresh.post("/datasets/people/release", **send)
    assert first.status_code == 409
    (kept,) = people._refused.values()
    assert not any(isinstance(part, BaseException) for part in kept)
    assert fresh.post("/datasets/people/release", **send).content == first.content
