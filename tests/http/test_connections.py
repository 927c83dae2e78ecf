# SPDX-License-Identifier: Apache-2.0
"""Connections on real sockets: heads that are too large or too slow, callers who hang up."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from sfumato_web.server import dataset as dataset_module
from sfumato_web.server.dataset import GuardedDataset
from tests.http.served import ADA, BOB, CONFIG, Running, asked, running, write_served

QUICK = CONFIG.replace("[limits]", "[limits]\nheader_seconds = 0.2")
ONE_WORKER = CONFIG.replace("[limits]", "[limits]\nworkers = 1")


def _served(folder: Path, config: str) -> Any:
    return running(write_served(folder / "served", config))


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Running]:
    with _served(tmp_path, CONFIG) as found:
        yield found


def _status(connection: socket.socket) -> int:
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def _is_cut_off(connection: socket.socket) -> bool:
    """Whether the other side closes the connection before it has got 48 MiB more."""
    try:
        for _ in range(48):
            connection.sendall(b"a" * 2**20)
    except ConnectionError:
        return True
    return False


def _until(holds: Callable[[], bool]) -> None:
    """Wait for something that happens in another thread."""
    patience = monotonic() + 60
    while not holds():
        assert monotonic() < patience, "it did not happen"
        sleep(0.005)


def test_headers_that_are_too_large_are_refused_before_anybody_is_known(patient: Running) -> None:
    with patient.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 20_000)
        assert _status(connection) == 431
        assert connection.recv(1) == b""
    many = b"".join(b"X-%d: a\r\n" % i for i in range(3_000))
    with patient.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n" + many + b"\r\n")
        assert _status(connection) == 431
    with patient.connect() as connection:
        connection.sendall(b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert _status(connection) == 431
    assert patient.ask("GET", "/health")[0] == 200


def test_a_header_without_end_is_cut_off(patient: Running) -> None:
    with patient.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ")
        assert _is_cut_off(connection)


def test_headers_after_the_body_are_cut_off_too(patient: Running) -> None:
    with patient.connect() as connection:
        connection.sendall(
            b"POST /datasets/people/plan HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            b"Authorization: Bearer wrong\r\n\r\n1\r\n1\r\n0\r\nX-Long: "
        )
        assert _is_cut_off(connection)


def test_a_large_body_in_one_piece_with_its_headers_is_no_large_header(patient: Running) -> None:
    pad = {"workload": [{"sql": "SELECT COUNT(*) FROM data WHERE age < 3 " + " " * 60_000}]}
    body = {**pad, "budget": {"epsilon": 1}}
    assert patient.ask("POST", "/datasets/people/plan", ADA, body)[0] in (200, 422)
    with patient.connect() as connection:  # several on one connection, two of them at once
        one = b"GET /health HTTP/1.1\r\nHost: x\r\nX-Some: " + b"a" * 6_000 + b"\r\n\r\n"
        connection.sendall(one)
        assert _status(connection) == 200
        connection.sendall(one)
        assert _status(connection) == 200


@pytest.mark.parametrize("sent", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: b"])
def test_a_head_that_does_not_come_to_its_end_is_closed(tmp_path: Path, sent: bytes) -> None:
    with _served(tmp_path, QUICK) as found, found.connect() as connection:
        connection.sendall(sent)
        assert connection.recv(1) == b""


def test_the_second_head_of_a_connection_has_to_come_to_its_end_as_well(tmp_path: Path) -> None:
    with _served(tmp_path, QUICK) as found, found.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert _status(connection) == 200
        connection.sendall(b"GET /health HTTP/1.1\r\nHo")
        assert connection.recv(1) == b""


class _HeldPlan:
    """Holds planning until it is opened, and counts what passes."""

    def __init__(self) -> None:
        self.begun, self.opened = threading.Semaphore(0), threading.Event()
        self.passed: list[str] = []

    def plan(self, *given: Any, **named: Any) -> Any:
        """In the place of ``plan_of``: stop, then take one step."""
        self.begun.release()
        assert self.opened.wait(60)
        progress = given[5] if len(given) > 5 else None
        if progress is not None:
            progress(0, 1, "a step")
        self.passed.append("planned")
        return self.real(*given, **named)

    real = staticmethod(dataset_module.plan_of)


@pytest.fixture
def held_plan(monkeypatch: pytest.MonkeyPatch) -> Iterator[_HeldPlan]:
    found = _HeldPlan()
    monkeypatch.setattr(dataset_module, "plan_of", found.plan)
    yield found
    found.opened.set()


def test_a_closed_connection_leaves_the_line_and_what_it_asked_for_ends(
    tmp_path: Path, held_plan: _HeldPlan
) -> None:
    with _served(tmp_path, ONE_WORKER) as found:
        plan = "/datasets/people/plan"
        first = found.send("POST", plan, ADA, asked(0.1))
        assert held_plan.begun.acquire(timeout=60)
        others = [found.send("POST", plan, ADA, asked(0.2 + i / 10)) for i in range(5)]
        _until(lambda: found.server._workers.waiting == 5)
        for connection in others:
            connection.close()
        _until(lambda: found.server._workers.waiting == 0)
        first.close()
        last = found.send("POST", "/datasets/others/plan", BOB, asked(0.1))
        _until(lambda: found.server._workers.waiting == 1)
        held_plan.opened.set()
        assert _status(last) == 200
        # The first came to its next step and ended there; the five were never begun.
        assert held_plan.passed == ["planned"]


def test_a_release_that_was_debited_is_finished_though_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, opened = threading.Event(), threading.Event()
    measured = GuardedDataset._measured

    def held(*given: Any) -> Any:
        begun.set()
        assert opened.wait(60)
        return measured(*given)

    monkeypatch.setattr(GuardedDataset, "_measured", held)
    with _served(tmp_path, CONFIG) as found:
        connection = found.send("POST", "/datasets/people/release", ADA, asked())
        assert begun.wait(60)
        connection.close()
        opened.set()
        people = found.server.datasets["people"]
        _until(lambda: bool(people.store.beginning("people", "asked ")))
        entry = people.ledger.entries()[0]
        assert entry.state == "answered"
        status, body = found.ask("POST", "/datasets/people/release", ADA, asked())
        assert (status, len(people.ledger.entries())) == (200, 1)
        assert b'"entry":' in body
