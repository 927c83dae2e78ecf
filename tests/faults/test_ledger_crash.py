# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every named point and at random times: never a release without a debit."""

from __future__ import annotations

import os
import random
import signal
import time
from fractions import Fraction

import pytest

from sfumato.budget import Budget, Ledger
from tests.faults.ledger_children import (
    COST,
    POINTS,
    Killer,
    answer_and_send,
    fork,
    put_points,
    released,
    send,
)


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "k.ledger", Budget(epsilon=2), "t", "add-remove")


def kill_at(ledger, sent, point, visit, key, serve=answer_and_send):
    """One child serves one key and dies at the point; True if it was killed."""

    def work():
        at = Killer(point, visit)
        put_points(at)
        serve(ledger, key, sent, at)

    _, status = os.waitpid(fork(work), 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def released_without_debit(ledger, sent):
    """Answers that left although no debit of their key is answered with these bytes."""
    kept = {entry.key for entry in ledger.entries() if entry.state == "answered"}
    wrong = 0
    for key, answer in released(sent):
        stored = ledger.answer(key)
        wrong += key not in kept or stored is None or not stored.decode().startswith(answer)
    return wrong


def check_after_kill(place, sent, kills):
    """Open as a new process would, and check every promise."""
    ledger = Ledger.open(place)
    report = ledger.verify()
    assert report.problems == ()
    assert report.reserved == 0
    assert report.burnt <= kills
    debits = report.answered + report.burnt
    assert Fraction(report.spent_units, report.total_units) == COST.pure_epsilon * debits / 2
    assert released_without_debit(ledger, sent) == 0
    return ledger


def retry_gives_the_same_bytes(ledger, sent, key):
    before = ledger.answer(key)
    answer_and_send(ledger, key, sent)
    after = ledger.answer(key)
    assert before in (None, after)
    assert released(sent)[-1] == (key, after.decode())


@pytest.mark.parametrize("point", POINTS)
def test_kill_at_a_named_point_never_releases_without_a_debit(ledger, tmp_path, point):
    sent = tmp_path / "sent"
    kills = 0
    for visit in (1, 2, 3, 4):  # the first visits are of the debit, the later ones of the store
        key = f"{point} {visit}".replace(" ", "-")
        kills += kill_at(ledger, sent, point, visit, key)
        opened = check_after_kill(ledger.place, sent, kills)
        if sent.exists() and not sent.read_bytes().endswith(b"\n"):
            with sent.open("ab") as file:
                file.write(b"\n")
        retry_gives_the_same_bytes(opened, sent, key)
    assert kills >= 1


def send_then_debit(ledger, key, sent, at):
    """The wrong order: the answer leaves before it is paid for."""
    answer = os.urandom(8).hex().encode()
    send(key, answer, sent, at)
    ledger.store(ledger.debit(COST, {"key": key}, key), answer)


def test_the_same_kills_find_a_server_that_sends_before_it_debits(ledger, tmp_path):
    """The twin: if this passes the harness is blind."""
    sent = tmp_path / "sent"
    for point in ("after send", "after begin", "before commit"):
        assert kill_at(ledger, sent, point, 1, point.replace(" ", "-"), send_then_debit)
    assert released_without_debit(Ledger.open(ledger.place), sent) == 3


def serve_until_killed(ledger, sent, seed):
    def work():
        for number in range(10_000):
            answer_and_send(ledger, f"{seed}-{number}", sent)

    return fork(work)


def kill_at_random_times(ledger, tmp_path, kills):
    sent = tmp_path / "sent"
    chance = random.Random(20240229)
    for number in range(kills):
        size = sent.stat().st_size if sent.exists() else 0
        child = serve_until_killed(ledger, sent, number)
        while chance.random() < 0.999 and not (sent.exists() and sent.stat().st_size > size):
            time.sleep(0.002)  # mostly until an answer left, sometimes before that
        time.sleep(chance.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if sent.exists() and not sent.read_bytes().endswith(b"\n"):
            with sent.open("ab") as file:
                file.write(b"\n")
    return check_after_kill(ledger.place, sent, kills), sent


def test_kills_at_random_times_never_release_without_a_debit(ledger, tmp_path):
    opened, sent = kill_at_random_times(ledger, tmp_path, 20)
    assert len(released(sent)) > 5
    assert len(opened.entries()) >= len({key for key, _ in released(sent)})


@pytest.mark.slow
def test_a_thousand_kills_never_release_without_a_debit(tmp_path):
    place = tmp_path / "k.ledger"
    ledger = Ledger.create(place, Budget(epsilon=100), "t", "add-remove")
    sent = tmp_path / "sent"
    kills = 0
    for number in range(600):
        point, visit = POINTS[number % len(POINTS)], 1 + (number // len(POINTS)) % 2
        kills += kill_at(ledger, sent, point, visit, f"n{number}")
        if sent.exists() and not sent.read_bytes().endswith(b"\n"):
            with sent.open("ab") as file:
                file.write(b"\n")
    assert kills >= 480
    for part in range(8):
        folder = tmp_path / f"random-{part}"
        folder.mkdir()
        random_ledger = Ledger.create(folder / "k.ledger", Budget(epsilon=2), "t", "add-remove")
        kill_at_random_times(random_ledger, folder, 65)
        kills += 65
    assert kills >= 1000
    opened = Ledger.open(place)
    report = opened.verify()
    assert report.problems == ()
    assert report.reserved == 0
    assert released_without_debit(opened, sent) == 0
    debits = report.answered + report.burnt
    assert Fraction(report.spent_units, report.total_units) == COST.pure_epsilon * debits / 100
