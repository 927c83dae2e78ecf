# SPDX-License-Identifier: Apache-2.0
"""One request, one answer: page, HTTP, client, command line and Python pay for a release once."""

from __future__ import annotations

import json
import random

import pytest

import sfumato as sf
from sfumato.cli.main import main
from sfumato.digest import json_digest
from sfumato.ledger.ledger import Ledger
from sfumato.session.client import Client
from sfumato_web.page.plan_draft import EPSILONS, Draft
from sfumato_web.server.models import canonical
from tests.http.served import ADA, CORA, asked, bearer, served, write_served
from tests.http.test_client import over

RELEASE = "/datasets/people/release"
WORKLOADS = [
    [{"marginals": [["age", "sex"], ["sex"]]}],
    [{"marginals": [["sex"]]}, {"marginals": [["sex", "age"]]}],
    [{"sql": "SELECT sex, age, COUNT(*) FROM data GROUP BY sex, age"}, {"marginals": [["sex"]]}],
    [
        {"sql": "select count(*) as men from data where sex = 'Male'"},
        {"sql": "SELECT COUNT(*) FROM data WHERE sex IN ('Female')"},
        {"marginals": 2},
    ],
]
BUDGETS = [0.25, "0.25", "1/4", "25e-2"]


def cells(body):
    """Every number of a body by the cell that it counts, whatever it is called."""
    columns, found = body["answers"], {}
    for i, value in enumerate(columns["value"]):
        ages = columns.get("age", [None] * len(columns["value"]))
        text = columns["query"][i]
        sex = "Female" if "Female" in text else "Male"
        found[ages[i], sex] = (value, columns["low"][i], columns["high"][i])
    return found


@pytest.mark.parametrize("seed", range(3))
def test_every_writing_over_http_is_debited_once_and_has_the_same_numbers(seed, fresh):
    rng = random.Random(seed)
    writings = [(w, b) for w in WORKLOADS for b in BUDGETS]
    found, bodies = {}, {}
    for workload, epsilon in rng.sample(writings, 10):
        send = {"workload": workload, "budget": {"epsilon": epsilon}}
        if rng.random() < 0.5:
            send["objective"] = "rmse"
        reply = fresh.post(RELEASE, json=send, headers=bearer(rng.choice([ADA, CORA])))
        assert reply.status_code == 200, reply.text
        for cell, numbers in cells(reply.json()).items():
            assert found.setdefault(cell, numbers) == numbers
        same = bodies.setdefault(json.dumps(workload), reply.content)
        assert reply.content == same  # the budget's writing does not show
    assert len(fresh.app.server.datasets["people"].ledger.entries()) == 1


def test_page_client_command_line_and_python_pay_once(tmp_path):
    path = write_served(tmp_path / "served")
    folder = path.parent
    with served(path) as client:
        people = client.app.server.datasets["people"]
        ada = next(a for a in client.app.server.config.analysts if a.name == "ada")
        draft = Draft("people", entries=[{"marginals": [["age", "sex"], ["sex"]]}])
        draft.epsilon = EPSILONS.index("0.25")
        draft.delta = 0
        page = json.loads(people.release(people.read(canonical(draft.request())), ada))
        by_client = Client("http://x", ADA, transport=over(client)).release(
            "people", WORKLOADS[1], epsilon=0.25
        )
        assert by_client.document["entry"] == page["entry"]
        assert cells(by_client.document) == cells(page)
    domain = sf.Domain.from_toml(folder / "people.toml")
    ledger = Ledger.open(folder / "people.ledger")
    work = sf.marginals(domain, [("sex",)]) | sf.marginals(domain, [("sex", "age")])
    release = sf.plan(work, sf.Budget(epsilon="1/4")).release(
        folder / "people.csv", ledger=ledger, name=ledger.table_id
    )
    assert release.is_stored
    (folder / "spec.toml").write_text(
        '[data]\nsource = "people.csv"\ndomain = "people.toml"\n'
        "[budget]\nepsilon = 0.250\n"
        '[ledger]\npath = "people.ledger"\nepsilon = 4\n'
        '[[workload]]\nsql = "SELECT age, sex, COUNT(*) FROM t GROUP BY 1, 2"\n'
        '[[workload]]\nmarginals = [["sex"]]\n'
    )
    with pytest.raises(SystemExit) as ended:
        main(["release", str(folder / "spec.toml"), "--yes"])
    assert ended.value.code == 0
    assert len(ledger.entries()) == 1
    assert ledger.verify().problems == ()


def test_a_release_that_was_stored_by_the_json_as_it_came_is_found(fresh):
    """What a server kept before requests had a normal form: its keys, its bodies, its names."""
    people = fresh.app.server.datasets["people"]
    request = asked(0.5, mechanism="laplace")
    wanted = people.read(json.dumps(request).encode())
    domain, book = people.config.domain, people.ledger
    plan = people.planned(wanted.request)
    plan.release(people.config.source, ledger=book, name=book.table_id, key=wanted.former[0])
    entries = len(book.entries())
    people.store.bind([("ada", "mine", f"people {wanted.former[1]}")])
    headers = {**bearer(ADA), "Idempotency-Key": "mine"}
    reply = fresh.post(RELEASE, json=request, headers=headers)
    assert reply.status_code == 200, reply.text
    assert reply.json()["entry"] == book.entry(wanted.former[0]).sequence
    assert len(book.entries()) == entries
    about = [book.table_id, domain.digest(), people.config.neighbours, None]
    dumped = wanted.request.model_dump(exclude={"project", "level", "shares"})
    former = json_digest({"about": json_digest({"table": about}), **dumped})
    assert former == wanted.former[0]


def test_another_budget_mechanism_or_workload_is_another_request(fresh):
    """The twin: what is not the same is paid for."""
    usual = {"workload": WORKLOADS[0], "budget": {"epsilon": 0.25}}
    others = [
        {"budget": {"epsilon": "0.250001"}},
        {"mechanism": "laplace"},
        {"objective": "max"},
        {"workload": [{"marginals": [["age", "sex"]]}]},
    ]
    for send in (usual, *({**usual, **other} for other in others)):
        reply = fresh.post(RELEASE, json=send, headers=bearer(CORA))
        assert reply.status_code == 200, reply.text
    assert len(fresh.app.server.datasets["people"].ledger.entries()) == 5
