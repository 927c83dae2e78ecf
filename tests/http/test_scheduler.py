# SPDX-License-Identifier: Apache-2.0
"""Who waits for whom: freezes and ledgers for no plan, analysts in turn, nobody for the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from sfumato.ledger.reader import LedgerReader
from sfumato.ledger.store import Store
from sfumato_web.server.batcher import QuestionBatcher
from sfumato_web.server.dataset import GuardedDataset
from sfumato_web.server.problems import Problem
from sfumato_web.server.scheduler import Scheduler, stop_if_abandoned
from tests.http.served import ADA, BOB, CONFIG, CORA, asked, bearer, served, write_served

SESSION = CONFIG.replace(
    "[datasets.others]",
    "[datasets.people.session]\nepsilon = 1\nquestions = 50\n\n[datasets.others]",
)
PATIENCE = (
    20  # seconds after which a held call goes on by itself, so that old faults fail and do not hang
)


class _Held:
    """Stands in the place of a function and holds every call until it is opened."""

    def __init__(self, real: Callable[..., Any], holds: Callable[..., bool] = lambda *_: True):
        self.real, self.holds = real, holds
        self.opened, self.calls = threading.Event(), threading.Semaphore(0)

    def __get__(self, instance: object, _: type) -> Callable[..., Any]:
        return lambda *given, **named: self(instance, *given, **named)

    def __call__(self, *given: Any, **named: Any) -> Any:
        if self.holds(*given):
            self.calls.release()
            self.opened.wait(PATIENCE)
        return self.real(*given, **named)


def _over(client: TestClient) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(client.app)
    return httpx.AsyncClient(transport=transport, base_url="http://test", timeout=600)


def test_a_freeze_and_a_ledger_wait_for_no_plan(
    fresh: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """66 plans of one analyst are under way or in line; the curator freezes another table."""
    held = _Held(lambda *_: {"a": "plan"})
    monkeypatch.setattr(GuardedDataset, "forecast", held)

    async def all_of_it() -> tuple[list[int], list[int]]:
        async with _over(fresh) as client:
            plans = [
                asyncio.create_task(
                    client.post(
                        "/datasets/people/plan", headers=bearer(ADA), json=asked(0.1 + i / 100)
                    )
                )
                for i in range(66)
            ]
            await asyncio.to_thread(held.calls.acquire)
            why = {"reason": "a look"}
            others = [
                await client.post("/datasets/others/freeze", headers=bearer(CORA), json=why),
                await client.post("/datasets/people/freeze", headers=bearer(CORA), json=why),
                await client.get("/datasets/people/ledger", headers=bearer(CORA)),
                await client.get("/datasets/others/ledger", headers=bearer(BOB)),
                await client.get("/datasets", headers=bearer(BOB)),
                await client.get("/metrics", headers=bearer(CORA)),
                await client.post("/datasets/people/unfreeze", headers=bearer(CORA), json=why),
            ]
            assert not any(plan.done() and plan.result().status_code == 200 for plan in plans)
            held.opened.set()
            return [r.status_code for r in others], [(await p).status_code for p in plans]

    others, plans = asyncio.run(all_of_it())
    assert others == [200] * 7
    assert set(plans) <= {200, 429}


def test_a_plan_of_another_analyst_does_not_wait_for_all_of_the_first(
    fresh: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = _Held(lambda *_: {"a": "plan"}, lambda guarded, *_: guarded.name == "people")
    monkeypatch.setattr(GuardedDataset, "forecast", held)

    async def both() -> int:
        async with _over(fresh) as client:
            send = {"headers": bearer(ADA)}
            plans = [
                asyncio.create_task(
                    client.post("/datasets/people/plan", json=asked(0.1 + i / 100), **send)
                )
                for i in range(60)
            ]
            await asyncio.to_thread(held.calls.acquire)
            other = await client.post("/datasets/others/plan", headers=bearer(BOB), json=asked())
            assert not any(plan.done() for plan in plans)
            held.opened.set()
            await asyncio.gather(*plans)
            return other.status_code

    assert asyncio.run(both()) == 200


def test_analysts_take_turns() -> None:
    """One worker, ten jobs of one analyst in line before the first of two others."""
    order: list[str] = []
    held = threading.Event()

    def job(name: str) -> None:
        if name == "first":
            held.wait(PATIENCE)
        order.append(name)

    async def run() -> None:
        scheduler = Scheduler(1, 1, 64)
        names = ["first", *(f"ada {i}" for i in range(10)), "bob", "cora"]
        jobs = [asyncio.create_task(scheduler.run(n.split()[0], lambda n=n: job(n))) for n in names]
        await asyncio.sleep(0)
        held.set()
        await asyncio.gather(*jobs)
        scheduler.close()

    asyncio.run(run())
    assert set(order[1:4]) == {"ada 0", "bob", "cora"}
    assert [n for n in order if n.startswith("ada")] == [f"ada {i}" for i in range(10)]


def test_one_analyst_never_has_all_workers_nor_all_places() -> None:
    at_work = threading.Semaphore(0)
    held = threading.Event()

    def job() -> None:
        at_work.release()
        held.wait(PATIENCE)

    async def run() -> int:
        scheduler = Scheduler(3, 8, 4)
        mine = [asyncio.create_task(scheduler.run("ada", job)) for _ in range(6)]
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="too many"):
            await scheduler.run("ada", job)
        other = asyncio.create_task(scheduler.run("bob", job))
        for _ in range(3):
            await asyncio.to_thread(at_work.acquire)
        waiting = scheduler.waiting
        held.set()
        await asyncio.gather(*mine, other)
        scheduler.close()
        return waiting

    assert asyncio.run(run()) == 4


def test_jobs_of_one_lane_run_one_at_a_time_and_hold_no_worker_while_they_wait() -> None:
    held, inside, most = threading.Event(), [0], [0]

    def alone() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        held.wait(PATIENCE)
        inside[0] -= 1

    async def run() -> None:
        scheduler = Scheduler(4, 4, 64)
        releases = [asyncio.create_task(scheduler.run("ada", alone, "release")) for _ in range(5)]
        await asyncio.sleep(0)
        assert await scheduler.run("ada", lambda: "a plan") == "a plan"
        held.set()
        await asyncio.gather(*releases)
        scheduler.close()

    asyncio.run(run())
    assert most == [1]


def test_a_job_that_nobody_waits_for_ends_at_its_next_step_or_is_never_begun() -> None:
    begun, held, steps = threading.Event(), threading.Event(), []

    def plan(name: str) -> None:
        begun.set()
        held.wait(PATIENCE)
        stop_if_abandoned(1, 2, "a step")
        steps.append(name)

    async def run() -> None:
        scheduler = Scheduler(1, 1, 64)
        jobs = [asyncio.create_task(scheduler.run("ada", lambda n=n: plan(n))) for n in "abc"]
        await asyncio.to_thread(begun.wait)
        jobs[0].cancel()
        jobs[1].cancel()
        await asyncio.sleep(0)
        assert scheduler.waiting == 1
        held.set()
        await jobs[2]
        scheduler.close()

    asyncio.run(run())
    assert steps == ["c"]


def _healthy_while(client: TestClient, held: _Held, send: Callable[[httpx.AsyncClient], Any]):
    """The status of a request that is held, and whether /health was answered meanwhile."""

    async def both() -> tuple[bool, int]:
        async with _over(client) as http:
            waiting = asyncio.create_task(send(http))
            await asyncio.to_thread(held.calls.acquire)
            healthy = await http.get("/health")
            is_before = not waiting.done() and healthy.status_code == 200
            held.opened.set()
            return is_before, (await waiting).status_code

    return asyncio.run(both())


@pytest.mark.parametrize(
    "question",
    [
        "SELECT COUNT(*) FROM data WHERE age < 5",
        "SELECT sex, COUNT(*) FROM data WHERE age < 5 OR age > 7 GROUP BY sex",
    ],
)
def test_sql_is_read_off_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    held = _Held(QuestionBatcher.read)
    monkeypatch.setattr(QuestionBatcher, "read", held)
    with served(write_served(tmp_path / "s", SESSION)) as client:
        found = _healthy_while(
            client,
            held,
            lambda http: http.post(
                "/datasets/people/ask", headers=bearer(ADA), json={"sql": question}
            ),
        )
    assert found == (True, 200)


def test_metrics_wait_for_a_slow_ledger_off_the_event_loop(
    fresh: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = _Held(LedgerReader.remaining)
    monkeypatch.setattr(LedgerReader, "remaining", held)
    found = _healthy_while(fresh, held, lambda http: http.get("/metrics", headers=bearer(CORA)))
    assert found == (True, 200)


def test_no_route_reads_a_ledger_or_the_state_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every database is used through these two functions; neither may see a running loop."""
    on_loop: list[str] = []

    def watched(real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            try:
                asyncio.get_running_loop()
                on_loop.append(f"{name} {given[1:]}")
            except RuntimeError:
                pass
            return real(*given, **named)

        return call

    with served(write_served(tmp_path / "s", SESSION)) as client:
        import sqlite3

        server = client.app.server
        monkeypatch.setattr(Store, "_transaction", watched(Store._transaction, "ledger"))

        class Watched:
            def __init__(self, real: sqlite3.Connection) -> None:
                self.real = real
                self.execute = watched(lambda _, *given: real.execute(*given), "state").__get__(1)

            def close(self) -> None:
                self.real.close()

        monkeypatch.setattr(server.store, "_database", Watched(server.store._database))
        sql = {"sql": "SELECT sex, COUNT(*) FROM data GROUP BY sex"}
        key = {"Idempotency-Key": "k"}
        for _ in range(2):
            for method, path, body in (
                ("GET", "/datasets", None),
                ("GET", "/datasets/people/schema", None),
                ("POST", "/datasets/people/plan", asked(0.2)),
                ("POST", "/datasets/people/release", asked(0.2)),
                ("POST", "/datasets/people/release", asked(0.2, level=0.9)),
                ("POST", "/datasets/people/release", asked(3.9)),
                ("POST", "/datasets/people/estimate", sql),
                ("POST", "/datasets/people/ask", sql),
                ("GET", f"/datasets/people/answers/{'0' * 64}", None),
                ("GET", "/datasets/people/ledger", None),
                ("POST", "/datasets/people/freeze", {"reason": "a look"}),
                ("POST", "/datasets/people/unfreeze", {"reason": "a look"}),
                ("GET", "/metrics", None),
                ("GET", "/ready", None),
            ):
                for headers in (bearer(CORA), bearer(CORA) | key):
                    reply = client.request(method, path, headers=headers, json=body)
                    assert reply.status_code in (200, 404, 409), (path, reply.text)
    assert on_loop == []
