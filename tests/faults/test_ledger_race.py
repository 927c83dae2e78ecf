# SPDX-License-Identifier: Apache-2.0
"""Sixteen processes at a barrier race for the last units: exactly as many as fit are granted."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import time
from fractions import Fraction

import pytest

from sfumato.budget import Budget, Cost, Ledger
from sfumato.errors import BudgetExhausted, LedgerError

PROCESSES = 16
FORK = multiprocessing.get_context("fork")


def race(work):
    """Run ``work(number)`` in all processes at once; return their results."""
    barrier, results = FORK.Barrier(PROCESSES), FORK.SimpleQueue()

    def run(number):
        barrier.wait()
        try:
            results.put(work(number))
        except Exception as error:  # a child that fails must not leave the others waiting
            results.put(error)

    children = [FORK.Process(target=run, args=(number,)) for number in range(PROCESSES)]
    for child in children:
        child.start()
    found = [results.get() for _ in children]
    for child in children:
        child.join()
    assert not [result for result in found if isinstance(result, Exception)]
    return found


def debit_until_refused(ledger, cost, number):
    granted = 0
    while True:
        try:
            ledger.debit(cost, {"n": granted}, f"{number}-{granted}")
        except BudgetExhausted:
            return granted
        granted += 1


@pytest.mark.parametrize(
    ("budget", "cost", "fit"),
    [
        (Budget(epsilon=1), Cost.pure(Fraction(1, 20)), 20),
        (Budget(rho=1), Cost.gaussian(Fraction(6, 50)), 16),  # rho = 3/50; 50 / 3
        (
            Budget(epsilon=1, delta=1e-9),
            Cost.gaussian(Fraction(Budget(epsilon=1, delta=1e-9).gaussian_mu) ** 2 / 18),
            18,
        ),
    ],
)
def test_exactly_as_many_debits_as_fit_are_granted(tmp_path, budget, cost, fit):
    ledger = Ledger.create(tmp_path / "r.ledger", budget, "t", "add-remove")
    granted = race(lambda number: debit_until_refused(ledger, cost, number))
    assert sum(granted) == fit
    report = Ledger.open(ledger.place).verify()
    assert report.problems == ()
    assert report.reserved + report.burnt == fit


def last_unit(place):
    ledger = Ledger.create(place, Budget(epsilon=1), "t", "add-remove")
    ledger.debit(Cost.pure(Fraction(2, 3)), {}, "most of it")

    def one(number):
        try:
            ledger.debit(Cost.pure(Fraction(1, 3)), {}, str(number))
        except BudgetExhausted:
            return 0
        return 1

    return sum(race(one))


def test_the_last_unit_is_granted_once_in_every_round(tmp_path):
    assert [last_unit(tmp_path / f"{n}.ledger") for n in range(3)] == [1] * 3


@pytest.mark.slow
def test_the_last_unit_is_granted_once_in_a_hundred_rounds(tmp_path):
    assert [last_unit(tmp_path / f"{n}.ledger") for n in range(100)] == [1] * 100


def test_a_ledger_that_reads_then_writes_overspends(tmp_path):
    """The twin: check first, write later, no condition. If it held, the race would be too slow."""
    place = tmp_path / "unlocked.db"
    connection = sqlite3.connect(place)
    connection.execute("CREATE TABLE account (spent INTEGER, total INTEGER)")
    connection.execute("INSERT INTO account VALUES (0, 200)")
    connection.commit()
    connection.close()

    def debit_unlocked(_number):
        granted = 0
        own = sqlite3.connect(place, timeout=60, isolation_level=None)
        for _ in range(5):
            spent, total = own.execute("SELECT spent, total FROM account").fetchone()
            time.sleep(0.001)  # what computing a cost takes
            if spent + 10 <= total:
                own.execute("UPDATE account SET spent = ?", (spent + 10,))
                granted += 1
        own.close()
        return granted

    assert sum(race(debit_unlocked)) > 20


def test_one_key_asked_by_all_is_debited_once_and_answered_the_same(tmp_path):
    ledger = Ledger.create(tmp_path / "k.ledger", Budget(epsilon=1), "t", "add-remove")

    def ask(_number):
        while True:
            try:
                return ledger.answer_once(
                    Cost.pure(Fraction(1, 4)), {"q": 1}, "same", lambda: os.urandom(16)
                )
            except LedgerError:  # another process is answering it
                time.sleep(0.005)

    answers = race(ask)
    assert len(set(answers)) == 1
    assert [entry.state for entry in ledger.entries()] == ["answered"]


def test_one_ledger_created_by_all_is_created_once(tmp_path):
    place = tmp_path / "c.ledger"

    def open_and_debit(number):
        ledger = Ledger.open_or_create(place, "t", "add-remove", Budget(epsilon=1))
        ledger.debit(Cost.pure(Fraction(1, 16)), {}, str(number))
        return 1

    assert sum(race(open_and_debit)) == PROCESSES
    report = Ledger.open(place).verify()
    assert report.problems == ()
    assert report.spent_units == report.total_units
