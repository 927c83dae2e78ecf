# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a server with jobs at work: none is paid for twice, none is lost without a word."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from sfumato.ledger.ledger import Ledger
from tests.http.served import ADA, ROLES, asked, bearer, running, write_served

FORK = multiprocessing.get_context("fork")
AT_ONCE = 3
OPEN = ("waiting", "working", "paying")


class Serving:
    """A server in a process of its own, until it is killed or told to stop."""

    def __init__(self, path: Path) -> None:
        ours, theirs = FORK.Pipe()
        self._process = FORK.Process(target=_serve, args=(path, theirs))
        self._process.start()
        theirs.close()
        assert ours.poll(120), "the server did not start"
        self.port = ours.recv()
        self._tell = ours

    def send(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = None if body is None else json.dumps(body)
        head = {**bearer(ADA), "Content-Type": "application/json", **headers}
        try:
            connection.request(method, path, data, head)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def job(self, epsilon: float) -> str:
        """The id of a new job that releases at this epsilon."""
        path = "/datasets/people/release"
        status, body = self.send("POST", path, asked(epsilon), Prefer="respond-async")
        assert status == 202, body
        return str(json.loads(body)["id"])

    def wait_for(self, jobs: Iterable[str], many: int) -> None:
        """Wait until so many of these jobs are done."""
        end = time.monotonic() + 120
        while sum(b'"done"' in self.send("GET", f"/jobs/{job}")[1] for job in jobs) < many:
            assert time.monotonic() < end
            time.sleep(0.02)

    def kill(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()

    def stop(self) -> None:
        self._tell.send("stop")
        self._process.join()
        assert self._process.exitcode == 0


def _serve(path: Path, pipe: object) -> None:
    with running(path) as server:
        pipe.send(server.port)  # type: ignore[attr-defined]
        pipe.recv()  # type: ignore[attr-defined]


def _bytes_of(server: Serving, jobs: dict[str, float]) -> dict[float, bytes]:
    """The answers of jobs that are done, by their epsilon; the others were lost, and say so."""
    bodies = {}
    for job, epsilon in jobs.items():
        state = json.loads(server.send("GET", f"/jobs/{job}")[1])["state"]
        assert state not in OPEN, state
        status, body = server.send("GET", f"/jobs/{job}/result")
        assert status == (200 if state == "done" else 410), (state, body)
        if status == 200:
            bodies[epsilon] = body
    return bodies


def kill_again_and_again(path: Path, rounds: int, seed: int) -> tuple[int, int]:
    """Kill so many servers with jobs at work; how many jobs were lost, and how many done."""
    draw, lost, ended = random.Random(seed), 0, 0
    answers: dict[float, bytes] = {}
    jobs: dict[str, float] = {}
    for number in range(rounds + 1):
        server = Serving(path)
        done = _bytes_of(server, jobs)
        lost, ended = lost + len(jobs) - len(done), ended + len(done)
        assert all(answers.setdefault(e, body) == body for e, body in done.items())
        if number == rounds:
            break
        epsilons = [(AT_ONCE * number + i + 1) / 100_000 for i in range(AT_ONCE)]
        again = [draw.choice([*answers, *epsilons])] if number else []
        jobs = {server.job(epsilon): epsilon for epsilon in (*epsilons, *again)}
        server.wait_for(jobs, draw.randrange(len(jobs)))
        time.sleep(draw.uniform(0, 0.2))
        server.kill()
        ledger = Ledger.open(path.parent / "people.ledger")
        assert ledger.verify().problems == ()
        assert all(e.state != "reserved" for e in ledger.entries())
        ledger.close()
    for epsilon in [(i + 1) / 100_000 for i in range(AT_ONCE * rounds)]:
        status, body = server.send("POST", "/datasets/people/release", asked(epsilon))
        assert status == 200
        assert answers.setdefault(epsilon, body) == body
    server.stop()
    ledger = Ledger.open(path.parent / "people.ledger")
    paid = [e.key for e in ledger.entries() if e.state == "answered"]
    assert len(paid) == len(set(paid)) == AT_ONCE * rounds
    burnt = [e for e in ledger.entries() if e.state == "burnt"]
    assert len(burnt) <= rounds  # one release of a table is at work at a time
    assert ledger.verify().problems == ()
    ledger.close()
    return lost, ended


def test_a_killed_job_is_done_or_lost_and_never_paid_for_twice(tmp_path: Path) -> None:
    _, ended = kill_again_and_again(write_served(tmp_path / "s", ROLES), 6, 1)
    assert ended > 0


@pytest.mark.slow
def test_many_killed_jobs_are_done_or_lost_and_never_paid_for_twice(tmp_path: Path) -> None:
    lost, ended = kill_again_and_again(write_served(tmp_path / "s", ROLES), 60, 2)
    assert min(lost, ended) > 0
