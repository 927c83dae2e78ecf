# SPDX-License-Identifier: Apache-2.0
"""Any interleaving of debits, answers, burns and re-openings adds up and verifies."""

from __future__ import annotations

import shutil
import tempfile
from fractions import Fraction
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sfumato.budget import Budget, Cost, Ledger
from sfumato.errors import BudgetExhausted, LedgerError

KEYS = st.sampled_from(["a", "b", "c", "d"])
SHARES = st.sampled_from([Fraction(1, 10), Fraction(1, 7), Fraction(1, 100)])


class Interleavings(RuleBasedStateMachine):
    """A ledger beside a model of it: a sum of exact fractions and a state per key."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        place = self.folder / "m.ledger"
        self.ledger = Ledger.create(place, Budget(rho=1), "t", "add-remove")
        self.second = Ledger.open(place)
        self.spent = Fraction(0)
        self.open = {}
        self.answers = {}
        self.burnt = 0

    def teardown(self):
        shutil.rmtree(self.folder)

    def pick(self, first):
        return self.ledger if first else self.second

    @rule(key=KEYS, share=SHARES, first=st.booleans())
    def debit(self, key, share, first):
        cost = Cost.gaussian(2 * share)  # rho = mu^2 / 2
        try:
            entry = self.pick(first).debit(cost, {"key": key}, key)
        except BudgetExhausted:
            assert self.spent + share > 1
        except LedgerError:
            assert key in self.open or key in self.answers
        else:
            assert key not in self.open
            assert key not in self.answers
            self.spent += share
            self.open[key] = entry
            assert self.spent <= 1

    @rule(key=KEYS, answer=st.binary(max_size=20), first=st.booleans())
    def store(self, key, answer, first):
        if key in self.open:
            self.pick(first).store(self.open.pop(key), answer)
            self.answers[key] = answer

    @rule(key=KEYS, first=st.booleans())
    def burn(self, key, first):
        if key in self.open:
            self.pick(first).burn(self.open.pop(key))
            self.burnt += 1

    @rule()
    def reopen(self):
        self.ledger, self.second = self.second, Ledger.open(self.ledger.place)

    @invariant()
    def the_ledger_is_whole_and_agrees_with_the_model(self):
        report = self.ledger.verify()
        assert report.problems == ()
        assert Fraction(report.spent_units, report.total_units) == self.spent
        counts = (len(self.answers), len(self.open), self.burnt)
        assert (report.answered, report.reserved, report.burnt) == counts
        for key in "abcd":
            assert self.second.answer(key) == self.answers.get(key)


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(
    max_examples=10,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
