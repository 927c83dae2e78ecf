# SPDX-License-Identifier: Apache-2.0
"""People and budgets that change while the server runs, and the record of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from sfumato.errors import SfumatoError
from sfumato_web.page.auth import Logins
from sfumato_web.server.people import Change
from tests.http.served import (
    ADA,
    BOB,
    CORA,
    DORA,
    ROLES,
    asked,
    bearer,
    running,
    served,
    write_served,
)

WHY = {"reason": "a test"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with served(write_served(tmp_path / "s", ROLES)) as opened:
        yield opened


def _post(client: TestClient, path: str, token: str = CORA, **body: object) -> Any:
    return client.post(path, json={**WHY, **body}, headers=bearer(token))


def _eve(client: TestClient, **more: object) -> Any:
    reply = _post(client, "/people", **{"name": "eve", "datasets": ["people"], **more})
    assert reply.status_code == 200, reply.text
    return reply.json()


def _may(client: TestClient, token: str, method: str = "GET", path: str = "/datasets") -> int:
    return client.request(method, path, headers=bearer(token), json=None).status_code


def test_somebody_who_is_let_in_may_ask_at_once_and_after_a_restart(tmp_path: Path) -> None:
    path = write_served(tmp_path / "s", ROLES)
    with served(path) as client:
        eve = _eve(client)
        assert (eve["role"], eve["datasets"], eve["set_in"]) == ("analyst", ["people"], "server")
        reply = client.post(
            "/datasets/people/release", json=asked(0.5), headers=bearer(eve["token"])
        )
        assert reply.status_code == 200
        assert _may(client, eve["token"], path="/datasets/others/schema") == 404
        listed = client.get("/people", headers=bearer(CORA)).json()
        assert [p["name"] for p in listed] == ["ada", "bob", "cora", "dora", "eve", "sam"]
        assert "sha256" not in json.dumps(listed)
        assert eve["token"] not in json.dumps(listed)
    with served(path) as client:
        assert _may(client, eve["token"]) == 200
    state = (path.parent / "server.state").read_bytes()
    state += b"".join(f.read_bytes() for f in path.parent.glob("server.state-*"))
    assert eve["token"].encode() not in state


def test_a_role_a_dataset_and_a_person_are_taken_away_at_once(client: TestClient) -> None:
    token = _eve(client)["token"]
    assert _post(client, "/people/eve", role="auditor").json()["role"] == "auditor"
    refused = client.post("/datasets/people/release", json=asked(0.5), headers=bearer(token))
    assert (refused.status_code, refused.json()["error"]) == (403, "not-in-role")
    _post(client, "/people/eve", role="analyst", datasets=["others"])
    assert _may(client, token, path="/datasets/people/schema") == 404
    assert _may(client, token, path="/datasets/others/schema") == 200
    assert _post(client, "/people/eve/remove").json() == {"is_removed": True}
    assert _may(client, token) == 401
    again = _post(client, "/people", name="eve", datasets=["people"])
    assert again.status_code == 422
    assert "somebody's" in again.json()["message"]
    assert client.app.server.datasets["people"].ledger.entries() == ()


def test_tokens_are_renewed_revoked_and_end(client: TestClient) -> None:
    eve = _eve(client, expires_days=30)
    ends = datetime.fromisoformat(eve["tokens"][0]["expires"])
    assert timedelta(days=29) < ends - datetime.now(UTC) <= timedelta(days=30)
    other = _post(client, "/people/eve/tokens", eve["token"]).json()  # by herself
    assert [_may(client, t["token"]) for t in (eve, other)] == [200, 200]
    old = eve["tokens"][0]["id"]
    _post(client, f"/people/eve/tokens/{old}/revoke", other["token"])
    assert [_may(client, t["token"]) for t in (eve, other)] == [401, 200]
    assert _post(client, f"/people/eve/tokens/{old}/revoke").status_code == 404
    short = _post(client, "/people/eve/tokens", expires_days=1).json()["token"]
    people = client.app.server.people
    people._now = lambda: datetime.now(UTC) + timedelta(hours=23)
    assert _may(client, short) == 200
    people._now = lambda: datetime.now(UTC) + timedelta(hours=25)
    assert _may(client, short) == 401
    assert _may(client, other["token"]) == 200


def test_a_login_ends_with_its_token_or_its_role(client: TestClient) -> None:
    server = client.app.server
    token, logins = _eve(client)["token"], Logins()
    who = server.tokens.holder(f"Bearer {token}")
    cookie = logins.begin(who, lambda: server.tokens.holder(f"Bearer {token}") is who)
    assert logins.find(cookie) is not None
    _post(client, "/people/eve", datasets=["others"])
    assert logins.find(cookie) is None


def test_a_curator_manages_whom_they_may_and_nobody_else(tmp_path: Path) -> None:
    path = write_served(tmp_path / "s", ROLES)
    with served(path) as client:
        fred = _post(client, "/people", name="fred", role="curator", datasets=["people"]).json()
        token = fred["token"]
        for body, status in (
            ({"name": "x", "datasets": ["others"]}, 422),  # not fred's
            ({"name": "x", "datasets": ["nothing"]}, 422),
            ({"name": "ada", "datasets": []}, 422),  # in the configuration
            ({"name": "not a name", "datasets": []}, 422),
            ({"name": "x", "datasets": [], "role": "king"}, 422),
            ({"name": "x", "datasets": [], "reason": ""}, 422),
            ({"name": "x", "datasets": [], "expires_days": 0}, 422),
        ):
            assert _post(client, "/people", token, **body).status_code == status, body
        _post(client, "/people", name="gil", datasets=["others"])
        for person, status in (("gil", 404), ("nobody", 404), ("ada", 409), ("fred", 403)):
            for act in ("", "/remove"):
                assert _post(client, f"/people/{person}{act}", token).status_code == status
        assert _post(client, "/people/fred/tokens", token).status_code == 200  # their own
        assert _post(client, "/people/gil/tokens", token).status_code == 404
        assert _post(client, "/people/gil/tokens", ADA).status_code == 403
        assert client.get("/changes", headers=bearer(token)).status_code == 403
        shown = client.get("/people", headers=bearer(token)).json()
        assert "gil" not in [p["name"] for p in shown]
        assert _may(client, ADA, path="/people") == 403


def test_an_allowance_is_set_changed_and_withdrawn(client: TestClient) -> None:
    token = _eve(client)["token"]
    at = "/datasets/people/allowances/eve"
    shown = _post(client, at, budget={"epsilon": 0.5}).json()
    assert {a["analyst"]: a["budget"] for a in shown["allowances"]}["eve"] == {"epsilon": 0.5}
    send = {"headers": bearer(token)}
    assert client.post("/datasets/people/release", json=asked(1.0), **send).status_code == 409
    assert _post(client, at, budget={"epsilon": 2}).status_code == 200
    assert client.post("/datasets/people/release", json=asked(1.0), **send).status_code == 200
    too_large = _post(client, at, budget={"epsilon": 50})
    assert (too_large.status_code, "lower it" in too_large.json()["message"]) == (422, True)
    assert _post(client, at, budget={"epsilon": -1}).status_code == 422
    assert _post(client, at, budget=None).status_code == 200
    assert client.app.server.datasets["people"].ledger.allowance("eve") is None
    assert _post(client, "/datasets/people/allowances/ada", budget=None).status_code == 409
    assert _post(client, "/datasets/others/allowances/eve", budget=None).status_code == 409
    _post(client, "/people/eve", role="scraper")
    assert _post(client, at, budget={"epsilon": 1}).status_code == 409
    lines = client.get("/changes", headers=bearer(CORA)).text.splitlines()
    acts = [json.loads(line)["record"]["act"] for line in lines]
    assert acts == ["add", "allowance", "allowance", "allowance", "undone", "allowance", "change"]


def test_a_total_is_raised_with_a_reason_that_the_ledger_keeps(client: TestClient) -> None:
    _post(client, "/datasets/people/total", budget={"epsilon": 8}, reason="board of May")
    ledger = client.app.server.datasets["people"].ledger
    assert float(ledger.budget.epsilon) == 8
    assert ledger.changes()[-1].describe().endswith("by cora: board of May")
    client.post("/datasets/people/release", json=asked(2), headers=bearer(CORA)).raise_for_status()
    refused = _post(client, "/datasets/people/total", budget={"rho": 1e-6})
    assert (refused.status_code, refused.json()["error"]) == (409, "total")
    assert float(ledger.budget.epsilon) == 8


def test_each_change_is_a_record_of_who_and_why_and_a_changed_one_is_found(tmp_path: Path) -> None:
    path = write_served(tmp_path / "s", ROLES)
    with served(path) as client:
        _eve(client, reason="joins the team")
        _post(client, "/people/eve", role="curator", reason="leads it")
        lines = client.get("/changes", headers=bearer(CORA)).text.splitlines()
        assert client.get("/changes?after=0", headers=bearer(CORA)).text.splitlines() == lines[1:]
    told = [json.loads(line) for line in lines]
    assert [(r["record"]["by"], r["record"]["reason"]) for r in told] == [
        ("cora", "joins the team"),
        ("cora", "leads it"),
    ]
    for one in told:
        text = json.dumps(one["record"], sort_keys=True, separators=(",", ":"))
        assert Change.hash_of(text) == one["hash"]
    assert told[1]["record"]["previous"] == told[0]["hash"]
    database = sqlite3.connect(path.parent / "server.state")
    text = told[0]["record"] | {"role": "curator"}
    wrong = json.dumps(text, sort_keys=True, separators=(",", ":"))
    database.execute("UPDATE change SET text = ? WHERE sequence = 0", (wrong,))
    database.commit()
    with pytest.raises(SfumatoError, match="change 0 of people"), served(path):
        pass
    database.execute("DELETE FROM change WHERE sequence = 0")
    database.commit()
    database.close()
    with pytest.raises(SfumatoError, match="left out"), served(path):
        pass


def test_a_name_in_both_places_is_refused_at_the_start(tmp_path: Path) -> None:
    path = write_served(tmp_path / "s", ROLES)
    with served(path) as client:
        _eve(client)
    path.write_text(ROLES.replace("[analysts.dora]", "[analysts.eve]"))
    with pytest.raises(SfumatoError, match="choose another name"), served(path):
        pass


def test_the_command_line_does_what_the_routes_do(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from sfumato_web.admin_command import admin_app

    with running(write_served(tmp_path / "s", ROLES)) as server:
        (tmp_path / "token").write_text(f"{CORA}\n")

        def run(*arguments: str, token: str = "") -> Any:
            env = {"SFUMATO_URL": f"http://127.0.0.1:{server.port}", "SFUMATO_TOKEN": token}
            where = () if token else ("--token-file", str(tmp_path / "token"))
            return CliRunner().invoke(admin_app, [*arguments, *where], env=env)

        def document(*arguments: str) -> Any:
            ran = run(*arguments, "--json")
            assert ran.exit_code == 0, (ran.output, ran.exception)
            return json.loads(ran.stdout)

        why = ("--reason", "a test")
        eve = document("add", "eve", "--dataset", "people", "--expires-days", "9", *why)
        assert server.ask("GET", "/datasets", eve["token"])[0] == 200
        shown = document("allow", "eve", "people", "--epsilon", "0.5", *why)
        assert [a["analyst"] for a in shown["allowances"]] == ["ada", "eve"]
        other = document("token", "eve", *why)
        left = document("revoke", "eve", eve["tokens"][0]["id"], *why)
        assert [t["id"] for t in left["tokens"]] == [other["tokens"][1]["id"]]
        assert document("change", "eve", "--role", "auditor", *why)["role"] == "auditor"
        assert document("total", "people", "--epsilon", "9", *why)["budget"] == {"epsilon": 9.0}
        assert "auditor" in run("people").stdout
        assert "sfu_" not in run("people").stdout
        document("remove", "eve", *why)
        acts = [line["record"]["act"] for line in document("record")["changes"]]
        assert acts == ["add", "allowance", "token", "revoke", "change", "remove"]
        refused = run("people", token=ADA)
        assert refused.exit_code != 0
        assert "curator" in str(refused.exception)
        assert run("people", "--url", "nothing").exit_code != 0


def test_nobody_gains_by_asking(client: TestClient) -> None:
    """Analysts and auditors change nothing, whatever they send."""
    before = client.get("/people", headers=bearer(CORA)).json()
    for token in (ADA, BOB, DORA):
        for path, body in (
            ("/people", {"name": "x", "datasets": ["people"], "role": "curator"}),
            ("/people/ada", {"role": "curator"}),
            ("/people/cora/remove", {}),
            ("/datasets/people/total", {"budget": {"epsilon": 100}}),
            ("/datasets/people/allowances/ada", {"budget": {"epsilon": 4}}),
        ):
            assert _post(client, path, token, **body).status_code in (403, 404)
    assert client.get("/people", headers=bearer(CORA)).json() == before
    assert client.get("/changes", headers=bearer(CORA)).text == ""
