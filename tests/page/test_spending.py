# SPDX-License-Identifier: Apache-2.0
"""Roles are kept by what is done, not by what is shown."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from fractions import Fraction

import pytest

from sfumato.privacy.cost import Cost
from sfumato_web.page.ask_page import ask
from sfumato_web.page.ledger_page import allowances, budget_chart, freeze, spending, verified
from sfumato_web.page.release_page import Progress
from sfumato_web.server.problems import Problem
from tests.page.visiting import server_of, visit

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def server(tmp_path):
    with server_of(tmp_path / "museum") as found:
        yield found


@pytest.fixture
def spent(server):
    """The same after ada and cora have asked."""
    for name, age in (("ada", 18), ("cora", 65)):
        visitor = visit(server, name)
        text = f"SELECT COUNT(*) FROM data WHERE age < {age}"
        asyncio.run(ask(visitor, visitor.dataset("museum"), text))
    return server


def test_a_curator_sees_what_the_ledger_has(spent):
    cora, dataset = visit(spent, "cora"), spent.datasets["museum"]
    found = spending(dataset, cora.who)
    assert found.entries == tuple(dataset.ledger.entries())
    assert found.budget == dataset.ledger.budget
    assert list(found.shares) == sorted(found.shares)
    assert found.shares[-1] == pytest.approx(1 - float(found.remaining.share), abs=1e-12)


def test_an_analyst_sees_their_own_debits_against_their_allowance(spent):
    ada, dataset = visit(spent, "ada"), spent.datasets["museum"]
    found = spending(dataset, ada.who)
    assert {e.analyst for e in found.entries} == {"ada"}
    assert found.is_own
    assert found.budget == ada.who.allowances["museum"]
    assert found.shares[-1] == pytest.approx(1 - float(found.remaining.share), abs=1e-12)
    nothing = spending(dataset, visit(spent, "dan").who)
    assert (nothing.entries, nothing.points(NOW)) == ((), [])


def test_the_chart_begins_at_nothing_and_ends_now(spent):
    found = spending(spent.datasets["museum"], visit(spent, "cora").who)
    points = found.points(NOW)
    assert points[0] == (found.entries[0].time, 0.0)
    assert points[-1] == ("2030-01-01T00:00:00+00:00", found.shares[-1])
    assert len(points) == len(found.entries) + 2
    drawn = budget_chart(found, NOW).to_dict()
    assert len(drawn["layer"]) == 2
    (rows,) = drawn["datasets"].values()
    assert rows[-1]["s"] == found.shares[-1]


def test_curators_verify_freeze_and_unfreeze(spent):
    cora = visit(spent, "cora")
    assert asyncio.run(verified(cora, "museum")).is_whole
    asyncio.run(freeze(cora, "museum", True, " quarterly review "))
    assert spending(spent.datasets["museum"], cora.who).is_frozen
    asyncio.run(freeze(cora, "museum", False, "done"))
    assert not spent.datasets["museum"].ledger.is_frozen()
    assert asyncio.run(verified(cora, "museum")).is_whole


def test_analysts_do_none_of_this(spent):
    ada = visit(spent, "ada")
    for action in (
        lambda: asyncio.run(verified(ada, "museum")),
        lambda: asyncio.run(freeze(ada, "museum", True, "because")),
        lambda: allowances(ada, spent.datasets["museum"]),
    ):
        with pytest.raises(Problem) as refused:
            action()
        assert (refused.value.status, refused.value.code) == (403, "not-curator")
    assert not spent.datasets["museum"].ledger.is_frozen()


def test_a_reason_is_needed(server):
    cora = visit(server, "cora")
    for reason in ("", "   ", "x" * 201, "two\nlines"):
        with pytest.raises(Problem) as refused:
            asyncio.run(freeze(cora, "museum", True, reason))
        assert (refused.value.status, refused.value.code) == (422, "request")
    assert not server.datasets["museum"].ledger.is_frozen()


def test_a_curator_sees_who_may_ask(server):
    rows = allowances(visit(server, "cora"), server.datasets["museum"])
    assert [row[0] for row in rows] == ["ada", "dan", "cora"]
    assert rows[2][1:3] == ("curator", "the table's")
    assert rows[0][1:3] == ("analyst", "epsilon = 2.5, delta = 1e-9")


def test_debits_of_one_second_are_not_drawn_on_top_of_each_other(server):
    """Vega adds up areas that share a time, unless it is told not to: 8.3% were drawn as 16.6%."""
    dataset = server.datasets["museum"]
    for key in ("a", "b"):
        dataset.ledger.answer_once(Cost.pure(Fraction(1, 10)), {"q": key}, key, lambda: b"x")
    found = spending(dataset, visit(server, "cora").who)
    layers = budget_chart(found).to_dict()["layer"]
    assert [layer["encoding"]["y"]["stack"] for layer in layers] == [None, None]


def test_what_an_analyst_spent_and_what_is_gone_add_up(server):
    dataset = server.datasets["archive"]
    for who, key in (("bob", "a"), ("ada", "b")):
        cost = Cost.pure(Fraction(1, 100))
        dataset.ledger.answer_once(cost, {"q": key}, key, lambda: b"x", analyst=who)
    gone, own = spending(dataset, visit(server, "bob").who).spent
    assert 0 < own < gone
    assert gone == pytest.approx(1 - float(dataset.ledger.remaining("bob").share))


def test_progress_never_runs_backwards():
    progress, seen = Progress(), []
    for done, total, what in (
        (1, 20, "counting"),
        (20, 20, "counting"),
        (3, 3, "measuring"),
        *((i % 3, 40, "projecting") for i in range(30)),
        (40, 40, "projecting"),
        (0, 0, ""),
    ):
        progress(done, total, what)
        seen.append(progress.share)
    assert seen == sorted(seen)
    assert seen[0] > 0
    assert seen[-1] <= 1
