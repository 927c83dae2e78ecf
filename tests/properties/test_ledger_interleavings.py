# SPDX-License-Identifier: Apache-2.0
"""Any interleaving of debits, answers, burns, states, allowances and freezing adds up."""

from __future__ import annotations

import itertools
from fractions import Fraction

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sfumato.errors import BudgetExhausted, LedgerError, LedgerFrozen, StateChanged
from sfumato.ledger.entries import State
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost

KEYS = st.sampled_from(["a", "b", "c", "d"])
SHARES = st.sampled_from([Fraction(1, 10), Fraction(1, 7), Fraction(1, 100)])
ANALYSTS = st.sampled_from([None, "ann", "bob"])


class Interleavings(RuleBasedStateMachine):
    """A ledger beside a model of it: exact fractions, and a state per key."""

    def __init__(self, home):
        super().__init__()
        self.home = home
        self.ledger = home.create(Budget(rho=1), keep_open=True)
        self.second = home.open()
        self.debits = []  # (analyst, share)
        self.charges = []  # (analyst, share) of debits of nobody, by the answers they paid for
        self.open, self.answers, self.paid = {}, {}, []
        self.allowed = {}
        self.burnt = 0
        self.version, self.is_frozen = 0, False

    def teardown(self):
        self.ledger.close()
        self.second.close()

    def pick(self, first):
        return self.ledger if first else self.second

    def spent(self, analyst=None):
        charged = [] if analyst is None else self.charges
        return sum(share for name, share in self.debits + charged if analyst in (None, name))

    def fits(self, share, analyst):
        allowed = self.allowed.get(analyst, 1)
        return self.spent() + share <= 1 and (
            analyst not in self.allowed or self.spent(analyst) + share <= allowed
        )

    @rule(key=KEYS, share=SHARES, analyst=ANALYSTS, first=st.booleans())
    def debit(self, key, share, analyst, first):
        cost = Cost.gaussian(2 * share)  # rho = mu^2 / 2
        try:
            entry = self.pick(first).debit(cost, {"key": key}, key, analyst=analyst)
        except LedgerFrozen:
            assert self.is_frozen
        except BudgetExhausted:
            assert not self.fits(share, analyst)
        except LedgerError:
            assert key in self.open or key in self.answers
        else:
            assert self.fits(share, analyst)
            assert not self.is_frozen
            assert key not in self.open
            assert key not in self.answers
            self.debits.append((analyst, share))
            self.open[key] = entry

    @rule(key=KEYS, answer=st.binary(max_size=20), first=st.booleans())
    def store(self, key, answer, first):
        if key in self.open:
            self.paid.append(self.pick(first).store(self.open.pop(key), answer))
            self.answers[key] = answer

    @rule(key=KEYS, first=st.booleans())
    def burn(self, key, first):
        if key in self.open:
            self.pick(first).burn(self.open.pop(key))
            self.burnt += 1

    @rule(key=KEYS, answer=st.binary(max_size=20), step=st.sampled_from([1, 1, 0, 2]))
    def keep(self, key, answer, step):
        """A free answer in a group with one of the same key: the first one stays."""
        if not self.paid:
            return
        state = State("s", self.version + step, answer)
        kept = self.ledger.keep_soon(key, {"key": key}, answer, self.paid[-1], states=[state])
        again = self.ledger.keep_soon(key, {"key": key}, b"other", self.paid[-1])
        outcomes = []
        for pending in (kept, again):
            try:
                outcomes.append(pending.result())
            except (LedgerFrozen, StateChanged) as error:
                outcomes.append(error)
            except LedgerError:
                assert key in self.open or key in self.answers
                return
        for outcome, given in zip(outcomes, (answer, b"other"), strict=True):
            if isinstance(outcome, LedgerFrozen):
                assert self.is_frozen
            elif isinstance(outcome, StateChanged):
                assert step != 1
            elif outcome.is_new:
                self.answers[key] = given
                self.version += given is answer
            else:
                assert outcome.answer == self.answers[key]

    @rule(key=KEYS, analyst=st.sampled_from(["ann", "bob"]), first=st.booleans())
    def charge(self, key, analyst, first):
        """An answer that charges the allowance of its analyst for a debit of nobody."""
        if not self.paid:
            return
        payer = self.paid[-1]
        share = Fraction(0) if payer.analyst is not None else payer.cost.mu_squared / 2
        fits = analyst not in self.allowed or (
            self.spent(analyst) + share <= self.allowed[analyst] or not share
        )
        try:
            kept = self.pick(first).keep(
                key, {"key": key}, b"charged", payer, analyst=analyst, is_charged=True
            )
        except LedgerFrozen:
            assert self.is_frozen
        except BudgetExhausted:
            assert not fits
        except LedgerError:
            assert key in self.open or key in self.answers
        else:
            if kept.is_new:
                assert fits
                self.answers[key] = b"charged"
                self.charges += [(analyst, share)] if share else []

    @rule(analyst=st.sampled_from(["ann", "bob"]), share=st.sampled_from(["1/5", "1/2", "2"]))
    def allow(self, analyst, share):
        self.second.allow(analyst, Budget(rho=share))
        self.allowed[analyst] = Fraction(share)

    @rule()
    def freeze_or_unfreeze(self):
        (self.ledger.unfreeze if self.is_frozen else self.ledger.freeze)("as it comes")
        self.is_frozen = not self.is_frozen

    @rule()
    def reopen(self):
        self.ledger, self.second = self.second, self.home.open()

    @invariant()
    def the_ledger_is_whole_and_agrees_with_the_model(self):
        report = self.ledger.verify()
        assert report.problems == ()
        assert Fraction(report.spent_units, report.total_units) == self.spent()
        counts = (len(self.paid), len(self.open), self.burnt)
        assert (report.answered, report.reserved, report.burnt) == counts
        assert report.free == len(self.answers) - len(self.paid)
        assert report.is_frozen == self.is_frozen
        for key in "abcd":
            assert self.second.answer(key) == self.answers.get(key)
        state = self.second.state("s")
        assert (0 if state is None else state.version) == self.version
        found = {each.analyst: each.share for each in self.second.allowances()}
        assert set(found) == set(self.allowed)
        for analyst, share in found.items():
            assert abs(share - min(2, self.spent(analyst) / self.allowed[analyst])) < 1e-15


def test_any_interleaving_adds_up_and_verifies(home, tmp_path):
    numbers = itertools.count()
    run_state_machine_as_test(
        lambda: Interleavings(home.another(tmp_path, f"m{next(numbers)}")),
        settings=settings(
            max_examples=12,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
