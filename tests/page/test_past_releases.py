# SPDX-License-Identifier: Apache-2.0
"""Names of releases, what debits lead to, and how two releases differ; without a browser."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato_web.page.ask_page import ask, asked_for
from sfumato_web.page.ledger_page import spending
from sfumato_web.page.release_page import difference_of, title_of
from sfumato_web.server.problems import Problem
from tests.page.visiting import server_of, visit

WORKLOAD = [{"marginals": [["weekday"]]}, {"marginals": [["weekday", "guided"]]}]


@pytest.fixture
def server(tmp_path):
    with server_of(tmp_path / "museum") as found:
        yield found


def _released(visitor, epsilon="0.05"):
    dataset = visitor.dataset("museum")
    body = {"workload": WORKLOAD, "budget": {"epsilon": epsilon}}
    task = dataset.read(json.dumps(body).encode())
    dataset.release(task, visitor.who)
    return dataset, task.key


def test_a_release_is_named_by_who_asked_for_it_and_by_curators(server):
    ada = visit(server, "ada")
    dataset, key = _released(ada)
    dan, cora = visit(server, "dan").who, visit(server, "cora").who
    with pytest.raises(Problem) as refused:
        dataset.call_release(dan, key, "mine")
    assert refused.value.status == 403
    for name in ("two\nlines", "x" * 61):
        with pytest.raises(Problem, match="60 printable characters"):
            dataset.call_release(ada.who, key, name)
    for who, name in ((ada.who, "one"), (ada.who, "two"), (cora, "three"), (ada.who, "")):
        dataset.call_release(who, key, name)
        (one,) = dataset.releases(ada.who)
        assert one.name == (name or None)
        assert title_of(one) == (name or "Table of weekday, Table of weekday x guided")


def test_a_debit_leads_to_the_words_of_who_asked_and_to_nobody_elses(server):
    ada, cora = visit(server, "ada"), visit(server, "cora")
    dataset, key = _released(ada)
    text = "SELECT ticket, COUNT(*) FROM data GROUP BY ticket"
    asyncio.run(ask(ada, ada.dataset("museum"), text))
    (number,) = asked_for(dataset, ada.who)
    assert asked_for(dataset, ada.who)[number].sql == text
    assert asked_for(dataset, cora.who) == {}
    links = spending(dataset, ada.who).links
    assert links[number].path == f"/ask/museum/{number}"
    assert [link.path for n, link in links.items() if n != number] == [f"/release/museum/{key}"]
    assert number not in spending(dataset, cora.who).links


def test_two_measurements_of_one_table_differ_by_their_noise_and_by_what_changed():
    domain = sf.Domain({"age": 200})
    plan = sf.plan(sf.marginals(domain, 1), sf.Budget(mu=1))
    codes = np.arange(20_000) % 200
    one, two = (plan.release(pd.DataFrame({"age": codes})) for _ in range(2))
    found = difference_of(one, two, "age", 0.95)
    assert found.by_chance == pytest.approx(10)
    assert found.noteworthy < 30  # 10 in the mean, 6 standard deviations are 19
    assert not found.is_one
    moved = plan.release(pd.DataFrame({"age": np.where(codes < 50, codes + 100, codes)}))
    assert difference_of(one, moved, "age", 0.95).noteworthy > 60  # 100 cells changed by 100
    again = difference_of(one, replace(one), "age", 0.95)
    assert again.is_one
    assert again.noteworthy == 0
