# SPDX-License-Identifier: Apache-2.0
"""Series: a new table with a budget of its own every period, begun by a curator at run time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from fastapi.testclient import TestClient

from sfumato.errors import LedgerError, SchemaError
from sfumato.ledger import periods
from sfumato.ledger.ledger import Ledger
from sfumato_web.server.config import faults, hash_of, read_config
from sfumato_web.server.request_log import RequestLog
from tests.http.served import (
    ADA,
    BOB,
    CORA,
    DORA,
    ROLES,
    asked,
    bearer,
    people,
    served,
    write_served,
)

ANN = "sfu_ann"
SERIES = f"""\
[server]
state = "server.state"

[limits]
planning_seconds = 60.0

[datasets.survey]
source = "survey-{{period}}.csv"
domain = "people.toml"
ledger = "survey-{{period}}.ledger"
period = "2026-03"
create = true
budget = {{epsilon = 2, delta = 1e-9}}

[datasets.others]
source = "others.csv"
domain = "people.toml"
ledger = "others.ledger"
create = true
budget = {{rho = 1}}

[analysts.ada]
token = "{hash_of(ADA)}"
datasets = ["survey"]
allowance.survey = {{epsilon = 1, delta = 1e-9}}

[analysts.bob]
token = "{hash_of(BOB)}"
datasets = ["others"]

[analysts.cora]
token = "{hash_of(CORA)}"
role = "curator"
datasets = "all"

[analysts.carl]
token = "{hash_of(ANN)}"
role = "curator"
datasets = ["others"]

[analysts.dora]
token = "{hash_of(DORA)}"
role = "auditor"
datasets = ["survey"]
"""
MARCH, APRIL = "survey@2026-03", "survey@2026-04"
NEXT = {"period": "2026-04", "reason": "survey of April"}


def folder_of(tmp_path: Path, config: str = SERIES) -> Path:
    tmp_path.mkdir(exist_ok=True)
    path = write_served(tmp_path / "s", config)
    for number, month in enumerate(("2026-03", "2026-04", "2026-05")):
        (path.parent / f"survey-{month}.csv").write_text(people(300 + 10 * number))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return folder_of(tmp_path)


@pytest.fixture
def client(path: Path) -> Iterator[TestClient]:
    with served(path) as opened:
        yield opened


def begin(client: TestClient, body: Any = NEXT, token: str = CORA, series: str = "survey") -> Any:
    return client.post(f"/series/{series}/periods", headers=bearer(token), json=body)


def names(client: TestClient, token: str) -> list[str]:
    return [d["name"] for d in client.get("/datasets", headers=bearer(token)).json()]


def released(client: TestClient, dataset: str, epsilon: float = 0.5, token: str = ADA) -> Any:
    body = asked(epsilon)
    return client.post(f"/datasets/{dataset}/release", headers=bearer(token), json=body)


def test_a_curator_begins_a_period_and_all_have_a_new_budget_at_once(client: TestClient) -> None:
    assert names(client, ADA) == [MARCH]
    assert released(client, MARCH, 1).status_code == 200
    assert released(client, MARCH, 0.5).status_code == 409  # her allowance is spent
    begun = begin(client)
    assert begun.status_code == 200, begun.text
    assert [p["dataset"] for p in begun.json()["periods"]] == [MARCH, APRIL]
    assert [b["epsilon"] for b in begun.json()["promised"]] == [2, 4]
    assert names(client, ADA) == [MARCH, APRIL]
    assert released(client, APRIL, 1).status_code == 200
    assert released(client, APRIL, 0.5).status_code == 409  # hers goes on in the new period
    assert released(client, MARCH, 0.5).status_code == 409
    assert released(client, MARCH, 1).json() == released(client, MARCH, 1).json()


def test_who_began_it_and_why_is_in_the_ledger_and_shown_to_those_who_read_it(
    client: TestClient,
) -> None:
    begin(client)
    shown = {t: client.get("/series", headers=bearer(t)).json() for t in (ADA, BOB, CORA, DORA)}
    assert shown[BOB] == []
    for token in (CORA, DORA):
        last = shown[token][0]["periods"][-1]
        assert (last["by"], last["reason"]) == ("cora", "survey of April")
    assert shown[ADA][0]["periods"][-1]["by"] is None
    lines = client.get(f"/datasets/{MARCH}/audit", headers=bearer(DORA)).text.splitlines()
    record = json.loads(lines[-1])["record"]
    assert (record["kind"], record["period"], record["by"]) == ("renewed", "2026-04", "cora")


def test_only_a_curator_of_the_series_begins_a_period(client: TestClient) -> None:
    replies = {token: begin(client, token=token) for token in (ADA, DORA, ANN)}
    assert [r.status_code for r in replies.values()] == [403, 403, 404]
    unknown = begin(client, token=ANN, series="nothing")
    assert unknown.content == replies[ANN].content  # a foreign series is as good as none
    for token in (BOB, ANN):
        assert released(client, MARCH, token=token).status_code == 404
    assert begin(client, token=CORA, series="others").status_code == 404
    assert begin(client, token=CORA, series=MARCH).status_code == 404
    assert names(client, CORA) == [MARCH, "others"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"period": "2026-04"},
        {"period": "", "reason": "x"},
        {"period": "../people", "reason": "x"},
        {"period": "a/b", "reason": "x"},
        {"period": "a@b", "reason": "x"},
        {"period": "{period}", "reason": "x"},
        {"period": "x" * 63, "reason": "x"},
        {"period": 4, "reason": "x"},
        {"period": None, "reason": "x"},
        {"period": "2026-04", "reason": "a\nb"},
        {"period": "2026-04", "reason": "x", "budget": {"epsilon": 100}},
        [],
    ],
)
def test_names_that_are_none_are_refused_and_nothing_begins(
    client: TestClient, path: Path, body: Any
) -> None:
    assert begin(client, body).status_code == 422
    assert names(client, ADA) == [MARCH]
    assert len(list(path.parent.glob("*.ledger"))) == 2


def test_a_table_that_is_not_there_begins_nothing(client: TestClient, path: Path) -> None:
    for period in ("2026-06", "2026-07"):
        if period == "2026-07":
            (path.parent / "survey-2026-07.csv").write_text("other\n1\n")
        reply = begin(client, {"period": period, "reason": "x"})
        assert reply.status_code == 503
        assert str(path.parent) not in reply.text
    assert client.app.server.datasets[MARCH].ledger.renewal() is None  # type: ignore[attr-defined]
    assert begin(client).status_code == 200


def test_a_period_of_the_same_data_is_refused(client: TestClient, path: Path) -> None:
    folder = path.parent
    (folder / "survey-2026-06.csv").symlink_to(folder / "survey-2026-03.csv")
    (folder / "survey-2026-08.csv").hardlink_to(folder / "survey-2026-03.csv")
    (folder / "survey-2026-07.csv").symlink_to(folder / "others.csv")
    for period in ("2026-06", "2026-07", "2026-08"):
        reply = begin(client, {"period": period, "reason": "x"})
        assert (reply.status_code, reply.json()["error"]) == (409, "period")
    assert begin(client, {"period": "2026-03", "reason": "x"}).status_code == 409
    assert begin(client).status_code == 200
    assert begin(client, {**NEXT, "reason": "again"}).status_code == 200  # a retry
    assert begin(client, {"period": "2026-05", "reason": "x"}).status_code == 200
    assert begin(client).status_code == 409
    assert names(client, ADA) == [MARCH, APRIL, "survey@2026-05"]


def test_a_restart_finds_the_periods_and_the_answers(path: Path) -> None:
    with served(path) as client:
        begin(client)
        answer = released(client, APRIL).content
    with served(path) as client:
        assert names(client, ADA) == [MARCH, APRIL]
        assert released(client, APRIL).content == answer
        assert begin(client, {"period": "2026-05", "reason": "May"}).status_code == 200
    config = read_config(path)
    assert faults(config) == []
    (path.parent / "survey-2026-04.csv").unlink()
    assert any(APRIL in fault for fault in faults(config))


@pytest.mark.parametrize("where", ["before the ledger", "before it is served"])
def test_a_period_that_was_cut_off_is_completed_by_a_restart_or_a_retry(
    path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def cut(*_: object, **__: object) -> None:
        raise LedgerError("cut off")

    for restarts in (True, False):
        period = {"period": "2026-04" if restarts else "2026-05", "reason": "x"}
        with served(path) as client:
            if not restarts:
                assert APRIL in names(client, ADA)
            with monkeypatch.context() as patched:
                if where == "before the ledger":
                    patched.setattr(periods, "_successor", cut)
                else:
                    one = client.app.server.series["survey"]  # type: ignore[attr-defined]
                    patched.setattr(one, "_serve", cut)
                assert begin(client, period).status_code == 503
            if not restarts:
                assert begin(client, {**period, "period": "other"}).status_code in (409, 503)
                assert begin(client, period).status_code == 200
                assert "survey@2026-05" in names(client, ADA)


def test_curators_at_once_begin_one_period_each_once(client: TestClient) -> None:
    barrier, replies = Barrier(4), []

    def work() -> None:
        barrier.wait()
        replies.append(begin(client).status_code)

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == [200] * 4
    assert names(client, ADA) == [MARCH, APRIL]
    assert len(client.app.server.datasets[MARCH].ledger.changes()) == 2  # type: ignore[attr-defined]


def test_people_who_are_let_in_have_all_periods_and_keep_their_limit(client: TestClient) -> None:
    head = bearer(CORA)
    body = {"name": "eve", "datasets": ["survey"], "reason": "x"}
    eve = client.post("/people", headers=head, json=body).json()["token"]
    limit = {"budget": {"epsilon": 0.25, "delta": 1e-9}, "reason": "x"}
    allowed = client.post(f"/datasets/{MARCH}/allowances/eve", headers=head, json=limit)
    assert allowed.status_code == 200, allowed.text
    begin(client)
    assert names(client, eve) == [MARCH, APRIL]
    assert released(client, APRIL, 0.5, eve).status_code == 409
    assert released(client, APRIL, 0.25, eve).status_code == 200
    wrong = {"name": "kim", "datasets": [APRIL], "reason": "x"}
    assert client.post("/people", headers=head, json=wrong).status_code == 422


def test_equal_requests_of_two_periods_are_two_answers(client: TestClient) -> None:
    begin(client)
    headers = {**bearer(ADA), "Idempotency-Key": "one"}
    replies = [
        client.post(f"/datasets/{d}/release", headers=headers, json=asked(0.5))
        for d in (MARCH, APRIL)
    ]
    assert [r.status_code for r in replies] == [200, 409]  # the key is of a request to March
    assert released(client, APRIL).json()["key"] != replies[0].json()["key"]


def test_the_log_names_the_act_and_no_names_that_callers_make_up(path: Path) -> None:
    out: list[str] = []
    with served(path, log=RequestLog("json", out.append)) as client:
        begin(client)
        client.get("/datasets/survey@canary/schema", headers=bearer(ADA))
    lines = [json.loads(line) for line in "".join(out).splitlines()]
    assert {"event": "period", "analyst": "cora", "dataset": APRIL}.items() <= next(
        line for line in lines if line["event"] == "period"
    ).items()
    assert "canary" not in "".join(out)


def test_what_is_said_of_a_series_does_not_depend_on_a_row(tmp_path: Path) -> None:
    said = []
    for number in range(2):
        path = folder_of(tmp_path / f"{number}")
        (path.parent / "survey-2026-04.csv").write_text(people(300 + number))
        with served(path) as client:
            replies = [
                begin(client, body)
                for body in (NEXT, NEXT, {**NEXT, "period": "2026-03"}, {**NEXT, "period": "none"})
            ]
            replies.append(client.get("/series", headers=bearer(CORA)))
            said.append([(r.status_code, r.content) for r in replies])
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('source = "survey-{period}.csv"', 'source = "survey.csv"', "a table and a ledger of its"),
        ("survey-{period}.ledger", "survey.ledger", "a table and a ledger of its own"),
        ("survey-{period}.csv", "{period}/survey.csv", 'add name = "survey {period}"'),
        ('period = "2026-03"', 'period = "../x"', "period"),
    ],
)
def test_a_series_without_places_of_its_own_is_refused(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    with pytest.raises(SchemaError, match=words):
        read_config(folder_of(tmp_path, SERIES.replace(old, new, 1)))


def test_a_configuration_without_a_series_is_served_as_before(tmp_path: Path) -> None:
    with served(write_served(tmp_path / "s", ROLES)) as client:
        assert client.get("/series", headers=bearer(CORA)).json() == []
        assert begin(client, series="people").status_code == 404
    assert Ledger.open(tmp_path / "s" / "people.ledger").renewal() is None
