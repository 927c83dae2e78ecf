# SPDX-License-Identifier: Apache-2.0
"""What curators do to people and budgets from the page, and nobody else does; without a browser."""

from __future__ import annotations

import asyncio

import pytest

from sfumato_web.page.people_page import PeopleActions, budget_asked, request_of
from sfumato_web.server.models import (
    AllowanceAsked,
    FreezeAsked,
    PersonAsked,
    PersonChangeAsked,
    TokenAsked,
    TotalAsked,
)
from sfumato_web.server.problems import Problem
from tests.page.visiting import server_of, visit


@pytest.fixture
def server(tmp_path):
    with server_of(tmp_path / "museum") as found:
        yield found


def _acts(people: PeopleActions, dataset):
    why = {"reason": "because"}
    budget = {"epsilon": "0.1"}
    return [
        people.listed(),
        people.records(),
        people.add(request_of(PersonAsked, name="eve", datasets=["museum"], **why)),
        people.change("eve", request_of(PersonChangeAsked, role="auditor", **why)),
        people.renew("eve", request_of(TokenAsked, **why)),
        people.revoke("eve", "0" * 12, request_of(FreezeAsked, **why)),
        people.allow(dataset, "eve", request_of(AllowanceAsked, budget=budget, **why)),
        people.set_total(dataset, request_of(TotalAsked, budget=budget, **why)),
        people.remove("eve", request_of(FreezeAsked, **why)),
    ]


@pytest.mark.parametrize("name", ["ada", "bob", "dan"])
def test_who_is_no_curator_does_none_of_it(server, name):
    dataset = server.datasets["museum"]
    before = (dataset.ledger.version(), server.people.all(), dataset.ledger.budget)
    for act in _acts(PeopleActions(visit(server, name)), dataset):
        with pytest.raises(Problem) as refused:
            asyncio.run(act)
        assert (refused.value.status, refused.value.code) == (403, "not-curator")
    assert (dataset.ledger.version(), server.people.all(), dataset.ledger.budget) == before


def test_changes_hold_at_once_and_are_recorded(server):
    people, dataset = PeopleActions(visit(server, "cora")), server.datasets["museum"]
    asked = request_of(PersonAsked, name="eve", datasets=["museum"], reason="new")
    token = asyncio.run(people.add(asked))
    assert server.tokens.holder(f"Bearer {token}").name == "eve"
    budget = budget_asked("1/8", " 1e-10 ")
    asyncio.run(
        people.allow(dataset, "eve", request_of(AllowanceAsked, budget=budget, reason="a look"))
    )
    assert float(dataset.ledger.allowance("eve").budget.epsilon) == 0.125
    asyncio.run(
        people.allow(dataset, "eve", request_of(AllowanceAsked, budget=None, reason="no more"))
    )
    assert dataset.ledger.allowance("eve") is None
    total = request_of(TotalAsked, budget={"epsilon": "5", "delta": "1e-9"}, reason="new wave")
    asyncio.run(people.set_total(dataset, total))
    assert dataset.ledger.budget.epsilon == 5
    second = asyncio.run(people.renew("eve", request_of(TokenAsked, expires_days=3, reason="old")))
    first_id = next(p for p in asyncio.run(people.listed()) if p["name"] == "eve")["tokens"][0]
    asyncio.run(people.revoke("eve", first_id["id"], request_of(FreezeAsked, reason="lost")))
    assert server.tokens.holder(f"Bearer {token}") is None
    assert server.tokens.holder(f"Bearer {second}").name == "eve"
    acts = [change["act"] for change in asyncio.run(people.records())]
    assert acts == ["revoke", "token", "allowance", "allowance", "add"]


def test_the_people_of_the_configuration_and_odd_requests_are_refused(server):
    people, dataset = PeopleActions(visit(server, "cora")), server.datasets["museum"]
    with pytest.raises(Problem) as refused:
        asyncio.run(people.remove("ada", request_of(FreezeAsked, reason="no")))
    assert refused.value.code == "in-configuration"
    for fields in ({"name": ""}, {"name": "a b"}, {"name": "x", "role": "king"}):
        with pytest.raises(Problem) as refused:
            request_of(PersonAsked, datasets=[], reason="x", **fields)
        assert refused.value.status == 422
    large = request_of(AllowanceAsked, budget={"epsilon": "99"}, reason="x")
    asyncio.run(people.add(request_of(PersonAsked, name="eve", datasets=["museum"], reason="x")))
    with pytest.raises(Problem) as refused:
        asyncio.run(people.allow(dataset, "eve", large))
    assert refused.value.status == 422
