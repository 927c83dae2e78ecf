# SPDX-License-Identifier: Apache-2.0
"""Sessions that are killed or cannot write: nothing is told twice, nothing is told unpaid."""

from __future__ import annotations

import gc
import json
import multiprocessing
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import LedgerError
from sfumato.ledger.ledger import Ledger
from sfumato.session.epochs import Epochs
from sfumato.session.session_answers import Answer
from sfumato.vault.mechanisms.sparse import SparseVector
from tests.faults.session_child import (
    ASKED,
    BUDGET,
    ERRORS,
    GROUP_POINTS,
    GROUPED,
    POINTS,
    PURCHASE_POINTS,
    SCOPE_POINTS,
    UPDATES,
    ask_until,
    opened,
)

ROOT = Path(__file__).parents[2]
# Children are forks of one process that has imported everything, and opened nothing.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.faults.session_child", "sfumato.vault.duckdb", "ibis"])


def _killed(ledger: Path, point: str, times: int) -> list[dict[str, Any]]:
    """What a process said before it died."""
    told = ledger.with_name("told")
    told.touch()
    child = SERVER.Process(target=ask_until, args=(str(ledger), point, times, told))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    return [json.loads(line) for line in told.read_text("utf-8").splitlines()]


def _epochs(book: Ledger) -> int:
    return sum(" epoch " in entry.key for entry in book.entries())


QUICK = ("after a test", "after noise is drawn", "after an answer is stored")
# How often a point is passed before the kill. The even start is wrong about several questions by
# ten times the noise, so that the first paid answer comes but for a chance below 10^-9.
TIMES = {
    "after the debit": 2,
    "after an epoch is begun": 1,
    "after noise is drawn": 2,
    "before the epoch is put to rest": 1,
}


@pytest.mark.parametrize(
    "point", [p if p in QUICK else pytest.param(p, marks=pytest.mark.slow) for p in POINTS]
)
def test_a_killed_session_loses_one_epoch_and_keeps_its_answers(tmp_path: Path, point: str) -> None:
    ledger = tmp_path / "people.ledger"
    told = _killed(ledger, point, TIMES.get(point, 3))
    book = Ledger.open(ledger)
    before, paid = _epochs(book), sum(a["how"] == "paid" for a in told)
    assert before >= paid  # nothing was told without a debit
    with opened(str(ledger)) as session:
        again = [session.ask(text).as_json() for text in ASKED]
    assert again[: len(told)] == told  # the same answers, for nothing
    now = sum(a["how"] == "paid" for a in again)
    # Every epoch ended with a paid answer, is at rest, or was lost by the one kill.
    assert _epochs(book) <= now + 2
    assert _epochs(book) <= UPDATES
    found = book.verify()
    assert found.is_whole
    assert book.budget == BUDGET
    assert book.remaining().share >= 0


@pytest.mark.parametrize("point", GROUP_POINTS)
def test_groups_that_are_killed_lose_one_debit_and_tell_nothing_twice(
    tmp_path: Path, point: str
) -> None:
    """The second question dies at the point, the first was answered."""
    ledger = tmp_path / "people.ledger"
    said = _killed(ledger, point, 2)
    book = Ledger.open(ledger)
    assert len(said) == 1
    debits = sum(" group " in entry.key for entry in book.entries())
    assert debits == (1 if point == "after groups are counted" else 2)
    with opened(str(ledger)) as session:
        again = [session.ask(text).as_json() for text in GROUPED]
    assert again[0] == said[0]
    lost = {"after the debit of groups", "after the noise of groups is drawn"}
    lost |= {"before groups are stored"}
    now = sum(" group " in entry.key for entry in book.entries())
    assert now == (3 if point in lost else 2)
    assert book.verify().is_whole


@pytest.mark.parametrize("point", SCOPE_POINTS)
def test_a_scope_that_is_killed_is_debited_once_and_drawn_once(tmp_path: Path, point: str) -> None:
    """Before the debit nothing is lost; after it the scope is, unless it was stored."""
    ledger = tmp_path / "people.ledger"
    assert _killed(ledger, point, 1) == []
    book = Ledger.open(ledger)
    is_lost = point not in ("after the scope is counted", "after the scope is stored")
    with opened(str(ledger), scope=2) as session:
        answer = session.ask(ASKED[0])
        assert (answer.how == "known") is not is_lost
        assert ("lost" in answer.why) is is_lost
    assert sum(entry.key.endswith(" scope") for entry in book.entries()) == 1
    assert book.verify().is_whole
    assert book.remaining().share >= 0


@pytest.mark.parametrize("point", PURCHASE_POINTS)
def test_a_purchase_that_is_killed_is_spent_once_and_drawn_once(tmp_path: Path, point: str) -> None:
    """The second of three errors dies at the point; what is known afterwards is what was stored."""
    ledger = tmp_path / "people.ledger"
    said = _killed(ledger, point, 2)
    assert [a["how"] for a in said] == ["paid"]
    book = Ledger.open(ledger)
    debits = [entry.cost.mu_squared for entry in book.entries()]
    assert len(debits) == (1 if point == "before the debit of a purchase" else 2)
    with opened(str(ledger)) as session:
        state = session._state
        assert state.epochs.amount_left() == UPDATES * session.plan.part - sum(debits)
        is_stored = point == "after a purchase is stored"
        forecast = session.estimate(ASKED[0], error=ERRORS[1])
        assert (forecast.cost.parts == ()) is is_stored
        if not is_stored:  # the same answer as before the kill, for nothing
            known = session.ask(ASKED[0], error=ERRORS[0])
            assert [known.value, known.low, known.high] == [
                said[0][n] for n in ("value", "low", "high")
            ]
        again = [session.ask(ASKED[0], error=error) for error in ERRORS]
        assert [a.standard_error <= error for a, error in zip(again, ERRORS, strict=True)] == [
            True
        ] * 3
    with opened(str(ledger)) as session:
        assert session.ask(ASKED[0], error=ERRORS[-1]).value == again[-1].value
        spent = [entry.cost.mu_squared for entry in book.entries()]
        assert session._state.epochs.amount_left() == UPDATES * session.plan.part - sum(spent)
    lost = point not in ("before the debit of a purchase", "after a purchase is stored")
    assert len(spent) == 3 + lost
    assert book.verify().is_whole


@pytest.mark.slow
def test_whenever_a_session_is_killed_its_state_is_that_of_its_ledger(tmp_path: Path) -> None:
    """It asks, buys, groups and releases; a kill comes at any moment, again and again."""
    ledger, draw, told = tmp_path / "people.ledger", np.random.default_rng(1), []
    for seed in range(20):
        arguments = ["-m", "tests.faults.session_child", str(ledger), str(seed)]
        with subprocess.Popen(
            [sys.executable, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as child:
            assert child.stdout is not None
            lines = [child.stdout.readline() for _ in range(int(draw.integers(1, 12)))]
            sleep(float(draw.random()) * 0.05)
            child.kill()
            lines += child.stdout.read().splitlines(keepends=True)
        told += [json.loads(line) for line in lines if line.endswith("\n")]
        book = Ledger.open(ledger)
        assert book.verify().is_whole
        with opened(str(ledger)) as session:
            _check_state(session, book)
    with opened(str(ledger)) as session:
        spent = len(book.entries())
        for step in told:  # nothing that was told costs again, or is worse than it was
            answer = session.ask(step["sql"], error=step.get("error"))
            before = step["said"].get("answers", [step["said"]])
            for one, old in zip(answer.answers, before, strict=True):
                if old.get("standard_error") is not None:
                    assert one.standard_error <= old["standard_error"] * (1 + 1e-6)
                elif one.how == old["how"]:
                    assert one.value == old["value"]
        assert len(book.entries()) == spent


def _check_state(session: sf.Session, book: Ledger) -> None:
    """What the session thinks it has spent is what the ledger has debited for it."""
    plan, epochs = session.plan, session._state.epochs
    mine = [entry for entry in book.entries() if entry.key.startswith(session.name)]
    bought = [e for e in mine if "bought" in json.loads(e.request)]
    grouped = [e for e in mine if " group " in e.key and e not in bought]
    tested = [e for e in mine if " epoch " in e.key]
    assert (epochs.used, epochs.measured) == (len(tested), len(grouped))
    assert epochs.bought == sum(entry.cost.mu_squared for entry in bought)
    assert sum(entry.cost.mu_squared for entry in mine) <= plan.budget.gaussian_mu**2
    assert epochs.amount_left() >= 0
    paid = [book.answer(f"{session.name} paid {n}") for n in range(1, epochs.used + 1)]
    assert sum(one is not None for one in paid) <= epochs.used


def test_a_threshold_outlives_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When an outcome cannot be stored, the next test has another threshold, debited anew."""
    ledger = str(tmp_path / "people.ledger")
    session = opened(ledger)
    at = next(i for i, text in enumerate(ASKED) if session.ask(text).how == "free")
    book = Ledger.open(ledger)
    used = _epochs(book)
    vector = session._state.epochs._vector
    assert vector is not None

    def full(*_: object, **__: object) -> None:
        raise LedgerError("the ledger could not be written (disk full); nothing was released")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "keep_soon", full)
        with pytest.raises(LedgerError, match="disk full"):
            session.ask(ASKED[at + 1])
    assert session._state.epochs._vector is None
    assert _epochs(book) == used
    session.ask(ASKED[at + 1])
    assert _epochs(book) == used + 1
    assert session._state.epochs._vector is not vector
    session.close()


def test_a_commit_that_fails_later_gives_the_epoch_up_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = str(tmp_path / "people.ledger")
    session = opened(ledger)
    at = next(i for i, text in enumerate(ASKED) if session.ask(text).how == "free")
    vector = session._state.epochs._vector

    class Failing:
        def result(self) -> None:
            raise LedgerError("the ledger could not be written (disk full); ask again")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "keep_soon", lambda *_, **__: Failing())
        found = session.ask_many(ASKED[at + 1 : at + 3])
        assert [type(f) for f in found] == [LedgerError, LedgerError]
    again = session.ask_many(ASKED[at + 1 : at + 3])
    assert all(isinstance(f, Answer) for f in again)
    assert session._state.epochs._vector is not vector
    session.close()


def test_a_session_that_goes_on_after_a_failure_would_be_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: without giving epochs up, the same threshold is tested again."""
    monkeypatch.setattr(Epochs, "give_up", lambda _: None)
    ledger = str(tmp_path / "people.ledger")
    session = opened(ledger)
    at = next(i for i, text in enumerate(ASKED) if session.ask(text).how == "free")
    vector = session._state.epochs._vector

    def full(*_: object, **__: object) -> None:
        raise LedgerError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "keep_soon", full)
        with pytest.raises(LedgerError):
            session.ask(ASKED[at + 1])
    assert session._state.epochs._vector is vector  # which the tests above would refuse
    session.close()


def test_the_ledger_has_no_threshold_while_the_session_is_in_use(tmp_path: Path) -> None:
    ledger = str(tmp_path / "people.ledger")
    session = opened(ledger)
    next(text for text in ASKED if session.ask(text).how == "free")
    vector = session._state.epochs._vector
    assert isinstance(vector, SparseVector)
    secret = vector.state().hex()
    book = Ledger.open(ledger)
    assert json.loads(book.state(session.name).data)["vector"] == ""
    session.close()
    assert json.loads(book.state(session.name).data)["vector"] == secret
    again = opened(ledger)
    again.ask("SELECT COUNT(*) FROM t WHERE age = 11 AND sex = 1")
    assert json.loads(book.state(session.name).data)["vector"] == ""
    again.close()


def test_a_session_that_is_forgotten_is_lost_but_not_stuck(tmp_path: Path) -> None:
    ledger = str(tmp_path / "people.ledger")
    session = opened(ledger)
    next(text for text in ASKED if session.ask(text).how == "free")
    used = _epochs(Ledger.open(ledger))
    other = opened(ledger)
    with pytest.raises(LedgerError, match="in use"):
        other.ask("SELECT COUNT(*) FROM t WHERE age = 11")
    taken = opened(ledger, take_over=True)
    taken.ask("SELECT COUNT(*) FROM t WHERE age = 11")
    assert _epochs(Ledger.open(ledger)) == used + 1
    taken.close()
    del session
    gc.collect()
    other.ask("SELECT COUNT(*) FROM t WHERE age = 12")
    other.close()
