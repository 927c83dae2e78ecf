# SPDX-License-Identifier: Apache-2.0
"""Many processes at a barrier race for the last units: exactly as many as fit are granted."""

from __future__ import annotations

import multiprocessing
import os
import time
from fractions import Fraction

import pytest

from sfumato.errors import BudgetExhausted
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost

PROCESSES = 16
FORK = multiprocessing.get_context("fork")


def race(work, processes=PROCESSES):
    """Run ``work(number)`` in all processes at once; return their results."""
    barrier, results = FORK.Barrier(processes), FORK.SimpleQueue()

    def run(number):
        barrier.wait()
        try:
            results.put(work(number))
        except Exception as error:  # a child that fails must not leave the others waiting
            results.put(error)

    children = [FORK.Process(target=run, args=(number,)) for number in range(processes)]
    for child in children:
        child.start()
    found = [results.get() for _ in children]
    for child in children:
        child.join()
    assert not [result for result in found if isinstance(result, Exception)]
    return found


def debit_until_refused(ledger, cost, number, analyst=None):
    granted = 0
    while True:
        try:
            ledger.debit(cost, {"n": granted}, f"{number}-{granted}", analyst=analyst)
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
def test_exactly_as_many_debits_as_fit_are_granted(home, budget, cost, fit):
    ledger = home.create(budget)
    granted = race(lambda number: debit_until_refused(ledger, cost, number))
    assert sum(granted) == fit
    report = home.open().verify()
    assert report.problems == ()
    assert report.reserved + report.burnt == fit


def test_exactly_as_many_debits_as_fit_the_allowances_and_the_table_are_granted(home):
    """Three analysts may spend 7, 5 and 20 parts of a table of 20."""
    ledger = home.create(Budget(epsilon=1))
    cost = Cost.pure(Fraction(1, 20))
    parts = {"ann": 7, "bob": 5, "eve": 20}
    for analyst, part in parts.items():
        ledger.allow(analyst, Budget(epsilon=Fraction(part, 20)))

    def spend(number):
        analyst = list(parts)[number % 3]
        return analyst, debit_until_refused(ledger, cost, number, analyst)

    granted = race(spend)
    assert sum(count for _, count in granted) == 20
    spent = {allowance.analyst: allowance.share for allowance in ledger.allowances()}
    for analyst, part in parts.items():
        found = sum(count for name, count in granted if name == analyst)
        assert found <= part
        assert spent[analyst] == Fraction(found, part)
    assert home.open().verify().problems == ()


def race_for_the_last_units(home, processes, fit):
    """All but a little more than ``fit`` debits is spent; every process asks once."""
    ledger = home.create(Budget(epsilon=1))
    cost = Fraction(1, 100)
    ledger.debit(Cost.pure(1 - fit * cost - cost / 2), {}, "most of it")

    def one(number):
        try:
            ledger.debit(Cost.pure(cost), {}, str(number))
        except BudgetExhausted:
            return 0
        return 1

    granted = sum(race(one, processes))
    assert home.open().verify().problems == ()
    return granted


def test_the_last_units_are_granted_once_in_every_round(home, tmp_path):
    for fit in (1, 3):
        place = home.another(tmp_path, f"round-{fit}")
        assert race_for_the_last_units(place, PROCESSES, fit) == fit


@pytest.mark.slow
def test_64_processes_are_granted_exactly_what_fits_in_a_hundred_rounds(home, tmp_path):
    for number in range(100):
        fit = 1 + number % 10
        place = home.another(tmp_path, f"round-{number}")
        assert race_for_the_last_units(place, 64, fit) == fit


def unlocked_overspends(home, processes):
    """Check first, write later, no condition; all have read before one writes."""
    home.change("CREATE TABLE account (spent INTEGER, total INTEGER)")
    home.change("INSERT INTO account VALUES (0, 100)")
    all_have_read = FORK.Barrier(processes)

    def debit_unlocked(_number):
        ((spent, total),) = home.rows("SELECT spent, total FROM account")
        all_have_read.wait()
        if spent + 10 > total:
            return 0
        home.change("UPDATE account SET spent = ?", (spent + 10,))
        return 1

    return sum(race(debit_unlocked, processes)) > 10


def test_a_ledger_that_reads_then_writes_overspends(home):
    """The twin: without the condition in the UPDATE the same race overspends."""
    assert unlocked_overspends(home, PROCESSES)


@pytest.mark.slow
def test_64_processes_overspend_a_ledger_that_reads_then_writes(home):
    assert unlocked_overspends(home, 64)


def test_one_key_asked_by_all_is_debited_once_and_answered_the_same(home):
    ledger = home.create(Budget(epsilon=1))

    def drawn():
        time.sleep(0.3)  # a release draws for longer than it debits
        return os.urandom(16)

    def ask(_number):
        return ledger.answer_once(Cost.pure(Fraction(1, 4)), {"q": 1}, "same", drawn)

    answers = race(ask)
    assert len(set(answers)) == 1
    assert [entry.state for entry in ledger.entries()] == ["answered"]


def test_one_free_answer_kept_by_all_is_kept_once(home):
    ledger = home.create(Budget(epsilon=1))
    epoch = ledger.debit(Cost.pure(Fraction(1, 4)), {}, "epoch")

    def keep(_number):
        kept = ledger.keep("same", {"q": 1}, os.urandom(16), epoch)
        return kept.answer, kept.is_new

    found = race(keep)
    assert len({answer for answer, _ in found}) == 1
    assert sum(is_new for _, is_new in found) == 1
    assert ledger.verify().free == 1


def test_one_ledger_created_by_all_is_created_once(home):
    def open_and_debit(number):
        ledger = home.open_or_create("t", "add-remove", Budget(epsilon=1))
        ledger.debit(Cost.pure(Fraction(1, 16)), {}, str(number))
        return 1

    assert sum(race(open_and_debit)) == PROCESSES
    report = home.open().verify()
    assert report.problems == ()
    assert report.spent_units == report.total_units
