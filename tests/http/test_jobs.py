# SPDX-License-Identifier: Apache-2.0
"""Jobs: plans and releases that go on when nobody waits, and what cancelling and restarts do."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from sfumato.errors import BudgetExhausted, ServerError
from sfumato.session.client import Client
from sfumato_web.server.dataset import GuardedDataset
from sfumato_web.server.jobs import Job
from tests.http.served import ADA, BOB, CORA, DORA, ROLES, asked, bearer, served, write_served
from tests.http.test_client import over

ASYNC = {"Prefer": "respond-async"}
PATIENCE = 60.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with served(write_served(tmp_path / "s", ROLES)) as opened:
        yield opened


def _send(client: TestClient, what: str, body: object, token: str = ADA) -> Any:
    headers = {**bearer(token), **ASYNC}
    reply = client.post(f"/datasets/people/{what}", json=body, headers=headers)
    assert reply.status_code == 202, reply.text
    assert reply.headers["location"] == f"/jobs/{reply.json()['id']}"
    assert reply.headers["preference-applied"] == "respond-async"
    return reply.json()


def _look(client: TestClient, job: Any, part: str = "", token: str = ADA) -> Any:
    return client.get(f"/jobs/{job['id']}{part}", headers=bearer(token))


def _over(client: TestClient, job: Any) -> Any:
    """The job once it is over."""
    end = time.monotonic() + PATIENCE
    while (seen := _look(client, job).json())["state"] in ("waiting", "working", "paying"):
        assert time.monotonic() < end
        time.sleep(0.02)
    return seen


def _debits(client: TestClient) -> int:
    return len(client.app.server.datasets["people"].ledger.entries())  # type: ignore


class Held:
    """A step of releases at which they wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str | None) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        real = GuardedDataset.release

        def release(guarded: Any, task: Any, who: Any, progress: Any = None) -> bytes:
            def held(done: int, total: int, what: str) -> None:
                progress(done, total, what)
                if what == step:
                    self._wait()

            if step is None:
                self._wait()
            return real(guarded, task, who, held)

        monkeypatch.setattr(GuardedDataset, "release", release)

    def _wait(self) -> None:
        self.reached.set()
        assert self.go.wait(PATIENCE)


def test_a_release_is_a_job_with_the_same_answer_as_without(client: TestClient) -> None:
    job = _over(client, _send(client, "release", asked(0.5)))
    assert job["state"] == "done"
    assert (job["kind"], job["analyst"], job["dataset"]) == ("release", "ada", "people")
    assert job["about"]["budget"] == {"epsilon": 0.5}
    assert job["created"] <= job["finished"]
    body = _look(client, job, "/result")
    again = client.post("/datasets/people/release", json=asked(0.5), headers=bearer(ADA))
    assert body.content == again.content
    assert (job["mechanism"], job["rmse"]) == (again.json()["mechanism"], again.json()["rmse"])
    assert job["key"] == again.json()["key"]
    assert _debits(client) == 1
    repeated = _over(client, _send(client, "release", asked(0.5)))
    assert _look(client, repeated, "/result").content == body.content
    assert _debits(client) == 1


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("plan", asked(0.5)),
        ("select", {"workload": [{"marginals": [["age"]]}], "budget": {"epsilon": 0.1}}),
        ("describe", {"budget": {"epsilon": 0.2}, "columns": ["age"]}),
        (
            "discover",
            {
                "domain": {"age": {"kind": "integer", "min": "discover", "max": "discover"}},
                "budget": {"epsilon": 0.1},
            },
        ),
    ],
)
def test_plans_selections_descriptions_and_discoveries_are_jobs_too(
    client: TestClient, what: str, body: object
) -> None:
    job = _over(client, _send(client, what, body))
    assert job["state"] == "done", job
    direct = client.post(f"/datasets/people/{what}", json=body, headers=bearer(ADA))
    result = _look(client, job, "/result")
    if what == "plan":
        assert result.json()["rmse"] == direct.json()["rmse"]
    else:
        assert result.content == direct.content


def test_a_job_that_is_refused_says_so_as_its_request_would(client: TestClient) -> None:
    job = _over(client, _send(client, "release", asked(50)))
    assert (job["state"], job["error"]["error"]) == ("failed", "budget-exhausted")
    result = _look(client, job, "/result")
    direct = client.post("/datasets/people/release", json=asked(50), headers=bearer(ADA))
    assert (result.status_code, result.json()) == (direct.status_code, direct.json())
    assert result.status_code == 409
    assert _debits(client) == 0
    bad = client.post(
        "/datasets/people/release", json={"workload": 1}, headers={**bearer(ADA), **ASYNC}
    )
    assert bad.status_code == 422


@pytest.mark.parametrize("step", [None, "counting"])
def test_a_job_is_cancelled_before_it_pays_and_spends_nothing(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, step: str | None
) -> None:
    held = Held(monkeypatch, step)
    job = _send(client, "release", asked(0.5))
    assert held.reached.wait(PATIENCE)
    waiting = _look(client, job, "/result")
    assert (waiting.status_code, waiting.headers["retry-after"]) == (202, "1")
    gone = client.delete(f"/jobs/{job['id']}", headers=bearer(ADA))
    assert (gone.status_code, gone.json()["state"]) == (200, "cancelled")
    held.go.set()
    client.app.server._workers.close()  # what is at work ends
    assert _look(client, job).json()["state"] == "cancelled"
    assert _look(client, job, "/result").status_code == 410
    assert _debits(client) == 0
    twice = client.delete(f"/jobs/{job['id']}", headers=bearer(ADA))
    assert (twice.status_code, twice.json()["error"]) == (409, "too-late")


def test_a_job_that_pays_is_never_cancelled(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, "paying")
    job = _send(client, "release", asked(0.5))
    assert held.reached.wait(PATIENCE)
    assert _debits(client) == 0  # the point of no return is before the debit
    late = client.delete(f"/jobs/{job['id']}", headers=bearer(ADA))
    assert (late.status_code, late.json()["error"]) == (409, "too-late")
    held.go.set()
    assert _over(client, job)["state"] == "done"
    assert _debits(client) == 1


def test_cancelling_and_paying_are_decided_once() -> None:
    """Whichever comes first: a job is cancelled, or its step "paying" returns, never both."""
    from sfumato_web.server.problems import Problem

    for i in range(200):
        job = Job({"id": "a", "state": "working"})
        outcomes, start = [], threading.Barrier(2)

        def pay(job: Job = job, outcomes: list = outcomes, start: Any = start) -> None:
            start.wait()
            try:
                job.progress(0, 1, "paying")
                outcomes.append("paid")
            except Problem:
                pass

        thread = threading.Thread(target=pay)
        thread.start()
        start.wait()
        if i % 2:
            time.sleep(0)
        if job.cancel("ada"):
            outcomes.append("cancelled")
        thread.join()
        assert len(outcomes) == 1


def test_who_sees_and_cancels_which_job(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, None)
    job = _send(client, "release", asked(0.5))
    assert held.reached.wait(PATIENCE)
    for token in (ADA, CORA, DORA):
        assert _look(client, job, token=token).status_code == 200
        listed = client.get("/jobs", headers=bearer(token)).json()
        assert [j["id"] for j in listed] == [job["id"]]
    assert client.get("/jobs", headers=bearer(BOB)).json() == []
    foreign = _look(client, job, token=BOB)
    absent = client.get(f"/jobs/{'0' * 32}", headers=bearer(BOB))
    assert (foreign.status_code, foreign.content) == (404, absent.content)
    assert client.delete(f"/jobs/{job['id']}", headers=bearer(BOB)).status_code == 404
    assert client.delete(f"/jobs/{job['id']}", headers=bearer(DORA)).status_code == 403
    assert client.delete(f"/jobs/{job['id']}", headers=bearer(CORA)).status_code == 200
    held.go.set()


def test_progress_is_shown_with_what_is_left_of_a_step() -> None:
    now = [100.0]
    job = Job({"id": "a", "state": "waiting"}, lambda: now[0])
    job.begin()
    job.progress(0, 10, "counting")
    now[0] += 4
    job.progress(4, 10, "counting")
    shown = job.shown()
    assert (shown["step"], shown["steps_done"], shown["steps"]) == ("counting", 4, 10)
    assert (shown["seconds"], shown["seconds_left_of_step"]) == (4, 6)
    job.progress(0, 1, "paying")
    assert job.shown()["seconds_left_of_step"] is None


def _state_of(folder: Path, change: Callable[[dict[str, Any]], None], is_over: int) -> None:
    """Change what the state says of its one job."""
    database = sqlite3.connect(folder / "server.state")
    ((text,),) = database.execute("SELECT document FROM job").fetchall()
    document = json.loads(text)
    change(document)
    database.execute("UPDATE job SET document = ?, is_over = ?", (json.dumps(document), is_over))
    database.commit()
    database.close()


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_job_that_was_at_work_when_the_server_died_is_done_or_lost_and_paid_once(
    tmp_path: Path, is_stored: bool
) -> None:
    path = write_served(tmp_path / "s", ROLES)
    with served(path) as client:
        job = _over(client, _send(client, "release", asked(0.5)))
    _state_of(path.parent, lambda d: d.update(state="paying", finished=None), 0)
    if not is_stored:  # killed between the ledger's store and that of the server
        database = sqlite3.connect(path.parent / "server.state")
        database.execute("DELETE FROM body")
        database.commit()
        database.close()
    with served(path) as client:
        seen = _look(client, job).json()
        assert seen["state"] == ("done" if is_stored else "lost")
        result = _look(client, job, "/result")
        assert result.status_code == (200 if is_stored else 410)
        again = _over(client, _send(client, "release", asked(0.5)))
        assert again["state"] == "done"
        assert _debits(client) == 1


def test_jobs_of_before_are_listed_and_the_oldest_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sfumato_web.server import server_limits

    few = server_limits.ServerLimits(jobs_kept=3)
    monkeypatch.setattr("sfumato_web.server.jobs.LIMITS", few)
    path = write_served(tmp_path / "s", ROLES)
    with served(path) as client:
        made = [_over(client, _send(client, "plan", asked(0.1 * i))) for i in range(1, 6)]
    with served(path) as client:
        listed = client.get("/jobs", headers=bearer(ADA)).json()
        assert [j["id"] for j in listed] == [j["id"] for j in made[:1:-1]]
        assert _look(client, made[0]).status_code == 404
        assert _look(client, made[4], "/result").status_code == 200


def test_the_client_returns_a_job(client: TestClient) -> None:
    ada = Client("http://server", ADA, transport=over(client), sleep=lambda s: time.sleep(s / 10))
    job = ada.release("people", [{"marginals": 1}], epsilon=0.25, wait=False)
    seen: list[str] = []
    answer = job.result(progress=lambda status: seen.append(str(status["state"])))
    assert seen[-1] == "done"
    assert answer.answers.equals(ada.release("people", [{"marginals": 1}], epsilon=0.25).answers)
    assert ada.job(job.id).status()["state"] == "done"
    assert list(ada.jobs()["id"]) == [job.id]
    assert list(ada.releases("people")["key"]) == [answer.key]
    assert "done" in repr(job)
    with pytest.raises(ServerError, match="over already"):
        job.cancel()
    refused = ada.release("people", [{"marginals": 1}], epsilon=50, wait=False)
    with pytest.raises(BudgetExhausted):
        refused.result()
    with pytest.raises(ServerError, match="no job of this name"):
        ada.job("0" * 32)
