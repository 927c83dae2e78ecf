# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every named point and at random times: never a release without a debit."""

from __future__ import annotations

import os
import random
import signal
import time
from fractions import Fraction

import pytest

from sfumato.privacy.budget import Budget
from tests.faults.ledger_children import (
    COST,
    POINTS,
    Killer,
    answer_and_send,
    fork,
    keep_and_send,
    open_epoch,
    put_points,
    released,
    send,
)


@pytest.fixture
def ledger(home):
    return home.create(Budget(epsilon=2))


def kill_at(ledger, sent, point, visit, key, serve=answer_and_send):
    """One child serves one key and dies at the point; True if it was killed."""

    def work():
        at = Killer(point, visit)
        put_points(at)
        serve(ledger, key, sent, at)

    _, status = os.waitpid(fork(work), 0)
    end_torn_line(sent)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def end_torn_line(sent):
    if sent.exists() and not sent.read_bytes().endswith(b"\n"):
        with sent.open("ab") as file:
            file.write(b"\n")


def released_without_debit(ledger, sent):
    """Answers that left although they are not stored with these bytes."""
    wrong = 0
    for key, answer in released(sent):
        stored = ledger.answer(key)
        wrong += stored is None or not stored.decode().startswith(answer)
    return wrong


def check_after_kill(home, sent, kills):
    """Open as a new process would, and check every promise."""
    home.wait_until_alone()
    ledger = home.open()
    report = ledger.verify()
    assert report.problems == ()
    assert report.reserved == 0
    assert report.burnt <= kills
    debits = report.answered + report.burnt
    share = Fraction(report.spent_units, report.total_units)
    assert share == COST.pure_epsilon * debits / ledger.budget.epsilon
    assert released_without_debit(ledger, sent) == 0
    return ledger


def retry_gives_the_same_bytes(ledger, sent, key, serve):
    before = ledger.answer(key)
    serve(ledger, key, sent)
    after = ledger.answer(key)
    assert before in (None, after)
    assert released(sent)[-1] == (key, after.decode())


@pytest.mark.parametrize("point", POINTS)
def test_kill_at_a_named_point_never_releases_without_a_debit(ledger, home, tmp_path, point):
    sent = tmp_path / "sent"
    kills = 0
    for visit in (1, 2, 3):  # the first visits are of the debit, the later ones of the store
        key = f"{point} {visit}".replace(" ", "-")
        kills += kill_at(ledger, sent, point, visit, key)
        opened = check_after_kill(home, sent, kills)
        retry_gives_the_same_bytes(opened, sent, key, answer_and_send)
    assert kills >= 1


@pytest.mark.parametrize("point", POINTS)
def test_kill_at_a_named_point_never_parts_a_free_answer_from_its_state(
    ledger, home, tmp_path, point
):
    sent = tmp_path / "sent"
    open_epoch(ledger)
    killed = kill_at(ledger, sent, point, 1, "first", keep_and_send)
    opened = check_after_kill(home, sent, 0)
    check_state(opened, ["first"])
    retry_gives_the_same_bytes(opened, sent, "first", keep_and_send)
    check_state(opened, ["first"])
    assert killed
    assert opened.verify().free == 1


def check_state(ledger, keys):
    """The state is that of the last answer which is stored."""
    stored = [answer for key in keys if (answer := ledger.answer(key)) is not None]
    state = ledger.state("session")
    assert (state.version, state.data) == (1 + len(stored), [b"begun", *stored][-1])


def send_then_debit(ledger, key, sent, at):
    """The wrong order: the answer leaves before it is paid for."""
    answer = os.urandom(8).hex().encode()
    send(key, answer, sent, at)
    ledger.store(ledger.debit(COST, {"key": key}, key), answer)


def test_the_same_kills_find_a_server_that_sends_before_it_debits(ledger, home, tmp_path):
    """The twin: if this passes the harness is blind."""
    sent = tmp_path / "sent"
    for point in ("after send", "after begin", "before commit"):
        assert kill_at(ledger, sent, point, 1, point.replace(" ", "-"), send_then_debit)
    assert released_without_debit(home.open(), sent) == 3


def serve_until_killed(ledger, sent, seed):
    def work():
        for number in range(10_000):
            answer_and_send(ledger, f"{seed}-{number}", sent)

    return fork(work)


def kill_at_random_times(ledger, home, sent, kills):
    chance = random.Random(20240229)
    for number in range(kills):
        size = sent.stat().st_size if sent.exists() else 0
        child = serve_until_killed(ledger, sent, number)
        while chance.random() < 0.999 and not (sent.exists() and sent.stat().st_size > size):
            time.sleep(0.002)  # mostly until an answer left, sometimes before that
        time.sleep(chance.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        end_torn_line(sent)
    return check_after_kill(home, sent, kills)


def test_kills_at_random_times_never_release_without_a_debit(ledger, home, tmp_path):
    sent = tmp_path / "sent"
    opened = kill_at_random_times(ledger, home, sent, 10)
    assert len(opened.entries()) >= len({key for key, _ in released(sent)})


@pytest.mark.slow
def test_a_thousand_kills_never_release_without_a_debit(home, tmp_path):
    ledger = home.create(Budget(epsilon=100))
    open_epoch(ledger)
    sent, kills, asked = tmp_path / "sent", 0, []
    for number in range(600):
        serve = keep_and_send if number % 3 == 2 else answer_and_send
        point, visit = POINTS[number % len(POINTS)], 1 + (number // len(POINTS)) % 2
        key = f"n{number}"
        kills += kill_at(ledger, sent, point, 1 if number % 3 == 2 else visit, key, serve)
        asked += [key] * (number % 3 == 2)
        if number % 10 == 9:
            home.wait_until_alone()
            retry_gives_the_same_bytes(ledger, sent, key, serve)
    assert kills >= 480
    opened = check_after_kill(home, sent, kills)
    check_state(opened, asked)
    for number in range(8):
        random_sent = tmp_path / f"sent-{number}"
        random_home = home.another(tmp_path, f"random-{number}")
        kill_at_random_times(random_home.create(Budget(epsilon=2)), random_home, random_sent, 65)
        kills += 65
    assert kills >= 1000
