# SPDX-License-Identifier: Apache-2.0
"""The account: integer units, one currency at a time, sound for debits chosen one by one."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from sfumato.budget import UNITS, Account, Budget, Cost, curve, fits
from sfumato.budget.account import _text_down, _text_up
from sfumato.budget.losses import _gaussian_deltas
from sfumato.errors import BudgetError

APPROXIMATE = Budget(epsilon=1, delta=1e-9)


def total_mu_squared(budget=APPROXIMATE):
    return Fraction(budget.gaussian_mu) ** 2


@pytest.mark.parametrize("parts", [*range(1, 31), 100, 1000, 10**6, 64, 4096])
def test_even_splits_spend_the_last_unit(parts):
    assert Account(Budget(epsilon=0.7)).how_many_more(Cost.pure(Fraction(7, 10) / parts)) == parts
    assert Account(Budget(rho=2)).how_many_more(Cost.gaussian(Fraction(4) / parts)) == parts
    cost = Cost.gaussian(total_mu_squared() / parts)
    assert Account(APPROXIMATE).how_many_more(cost) == parts


def test_units_are_rounded_up_so_odd_splits_leave_something():
    # UNITS has no factor 31, so each of 31 parts rounds up and only 30 fit.
    assert UNITS % 31 != 0
    assert Account(Budget(epsilon=1)).how_many_more(Cost.pure(Fraction(1, 31))) == 30


@pytest.mark.parametrize(
    ("budget", "cost", "share"),
    [
        (Budget(epsilon=2), Cost.pure(Fraction(1, 2)), Fraction(1, 4)),
        (Budget(rho=1), Cost.gaussian(1), Fraction(1, 2)),  # rho = mu^2 / 2
        (Budget(rho=1), Cost.pure(1), Fraction(1, 2)),  # rho = epsilon^2 / 2
        (Budget(mu=2), Cost.gaussian(1), Fraction(1, 4)),  # mu^2 of 4
        (APPROXIMATE, Cost.pure(Fraction(1, 4)), Fraction(1, 4)),
        (APPROXIMATE, Cost.gaussian(total_mu_squared() / 8), Fraction(1, 8)),
    ],
)
def test_hand_computed_shares(budget, cost, share):
    assert 1 - Account(budget).plus(cost).remaining().share == share


def test_a_pure_budget_refuses_gaussian_noise():
    with pytest.raises(BudgetError, match="pure"):
        Account(Budget(epsilon=1)).plus(Cost.gaussian(Fraction(1, 100)))


def test_a_release_without_a_cost_is_refused():
    with pytest.raises(BudgetError, match="without noise"):
        Account(Budget(rho=1)).plus(Cost(()))


def test_pure_then_gaussian_shifts_the_curve_by_the_epsilon_spent():
    account = Account(APPROXIMATE).plus(Cost.pure(Fraction(2, 5)))
    left = account.remaining()
    # What is left is (3/5, delta): exactly what an own budget of that size would allow.
    assert left.gaussian_mu == Budget(epsilon="3/5", delta=1e-9).gaussian_mu
    assert left.pure_epsilon == Fraction(3, 5)
    full = account.plus(Cost.gaussian(Fraction(left.gaussian_mu) ** 2))
    assert full.left == 0
    assert full.pure_spent == UNITS * 2 // 5


def test_after_gaussian_noise_pure_parts_cost_the_gaussian_that_dominates_them():
    account = Account(APPROXIMATE).plus(Cost.gaussian(total_mu_squared() / 2))
    epsilon = Fraction(1, 20)
    priced = Fraction(curve.mu_of_pure_up(epsilon)) ** 2 / total_mu_squared()
    assert account.plus(Cost.pure(epsilon)).spent - account.spent == math.ceil(priced * UNITS)
    left = account.remaining()
    assert not account.plus(Cost.pure(left.pure_epsilon)).is_overdrawn
    assert account.plus(Cost.pure(left.pure_epsilon * Fraction(1001, 1000))).is_overdrawn


def test_a_mixed_debit_takes_the_cheaper_order():
    small = Cost.gaussian(total_mu_squared() / 4) + Cost.pure(Fraction(1, 1000))
    large = Cost.gaussian(total_mu_squared() / 4) + Cost.pure(Fraction(1, 2))
    assert Account(APPROXIMATE).plus(small).pure_spent == 0
    assert Account(APPROXIMATE).plus(large).pure_spent == UNITS // 2


def test_a_first_debit_may_take_all_that_its_parts_together_fit():
    parts = Cost(tuple(Cost.pure(Fraction(1, 20)).parts) * 30)  # 1.5 added up, below 1 composed
    budget = Budget(epsilon=1, delta="1/1000")
    assert fits([parts], budget)
    assert Account(budget).plus(parts).left == 0
    # Later it may not: its parts were not fixed before the first answer was seen.
    later = Account(budget).plus(Cost.pure(Fraction(1, 10**6)))
    assert later.plus(parts).is_overdrawn


@pytest.mark.parametrize("budget", [Budget(epsilon=1), Budget(rho=1), Budget(mu=1), APPROXIMATE])
def test_an_impossible_cost_overdraws_within_64_bits(budget):
    after = Account(budget).plus(Cost.pure(10**15))
    assert after.is_overdrawn
    assert after.spent < 2**63
    assert Account(budget).how_many_more(Cost.pure(10**15)) == 0


def test_nothing_remains_of_a_spent_account():
    for budget in (Budget(epsilon=1), Budget(rho=1), Budget(mu=1), APPROXIMATE):
        left = Account(budget, spent=UNITS, pure_spent=0).remaining()
        assert left.share == 0
        assert left.pure_epsilon == 0
        assert not left.gaussian_mu


def test_the_refusal_says_cost_remainder_total_and_way_out():
    account = Account(Budget(rho=1), spent=UNITS * 22 // 25)
    assert account.refusal(Cost.gaussian(Fraction(1, 2))) == (
        "budget refused: this release costs 0.25 rho, 0.12 of 1 remains (rho = 1); "
        "lower the cost or ask the curator"
    )
    assert "0.666667 epsilon, 0.5 of 1" in Account(Budget(epsilon=1), spent=UNITS // 2).refusal(
        Cost.pure(Fraction(2, 3))
    )
    assert "mu^2" in Account(APPROXIMATE).refusal(Cost.gaussian(1))
    assert "mu^2" in Account(Budget(mu=1)).refusal(Cost.gaussian(2))
    asked = Account(APPROXIMATE).plus(Cost.gaussian(Fraction(1, 100)))
    left, total = asked.remaining().gaussian_mu, APPROXIMATE.gaussian_mu
    found = re.search(r"([\d.]+) of ([\d.]+) remains", asked.refusal(Cost.gaussian(1)))
    assert [float(g) for g in found.groups()] == pytest.approx([left**2, total**2], rel=1e-5)


# An analyst who chooses the second debit after seeing the first answer. The first debit is
# Gaussian; its loss is normal with mean mu^2/2 and variance mu^2. The second is the best of what
# the account allows, for the loss that came. The delta of the whole is an exact integral.


def adaptive_delta(epsilon, first_mu_squared, gaussian_mu, pure_epsilon):
    mu = math.sqrt(first_mu_squared)

    def best(loss):
        rest = np.array([epsilon - loss])
        by_gaussian = float(_gaussian_deltas(rest, gaussian_mu)[0])
        up = 1 / (1 + math.exp(-pure_epsilon))
        by_pure = sum(
            mass * max(0.0, -math.expm1(rest[0] - moved))
            for mass, moved in ((up, pure_epsilon), (1 - up, -pure_epsilon))
        )
        return max(by_gaussian, by_pure)

    density = stats.norm(mu * mu / 2, mu).pdf
    kinks = [epsilon - pure_epsilon, epsilon, epsilon + pure_epsilon]
    low, high = mu * mu / 2 - 12 * mu, max(mu * mu / 2 + 12 * mu, epsilon + 2 * pure_epsilon)
    edges = sorted({low, high, *(k for k in kinks if low < k < high)})
    return sum(
        integrate.quad(lambda x: density(x) * best(x), a, b, epsabs=1e-16, limit=400)[0]
        for a, b in pairwise(edges)
    )


BUDGET = Budget(epsilon=1, delta="1/100000")


def test_no_choice_of_the_second_debit_breaks_the_budget():
    """docs/proofs/accounting.md, Theorem 4."""
    for share in (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)):
        first = total_mu_squared(BUDGET) * share
        left = Account(BUDGET).plus(Cost.gaussian(first)).remaining()
        spent = adaptive_delta(1.0, float(first), left.gaussian_mu, float(left.pure_epsilon))
        assert spent <= 1e-5 * (1 + 1e-6)


def test_composing_what_was_spent_and_stopping_at_the_curve_would_break_the_budget():
    """The twin: a filter that tests each list of costs as if fixed in advance overspends."""
    first = total_mu_squared(BUDGET) / 2
    low, high = 0.0, 1.0  # the largest pure epsilon that such a filter would admit
    for _ in range(40):
        middle = (low + high) / 2
        costs = [Cost.gaussian(first), Cost.pure(Fraction(middle) or Fraction(1, 10**9))]
        low, high = (middle, high) if fits(costs, BUDGET) else (low, middle)
    assert low > 0.1
    rest = math.sqrt(float(total_mu_squared(BUDGET) - first))
    assert adaptive_delta(1.0, float(first), rest, low) > 1.2e-5


def test_what_remains_is_told_in_words():
    assert Account(Budget(epsilon=1)).remaining().describe() == (
        "100% remains, pure noise up to epsilon = 1"
    )
    half = Account(Budget(rho="1/2"), spent=UNITS // 2).remaining()
    assert half.gaussian_mu == curve.sqrt_down(Fraction(1, 2))
    assert half.describe().startswith("50% remains, Gaussian noise up to mu = 0.707107, pure")


def test_a_budget_that_pure_debits_used_up_admits_no_gaussian_one():
    spent = Account(APPROXIMATE).plus(Cost.pure(1))
    assert (spent.left, spent.is_overdrawn) == (0, False)
    assert spent.plus(Cost.gaussian(Fraction(1, 10**12))).is_overdrawn
    assert spent.how_many_more(Cost.gaussian(Fraction(1, 10**12))) == 0


def test_debits_in_a_row_are_those_one_after_the_other():
    costs = [
        Cost.pure(Fraction(1, 8)),
        Cost.gaussian(Fraction(1, 10**4)),
        Cost.pure(Fraction(1, 9)),
    ]
    account = Account(APPROXIMATE)
    for cost in costs:
        account = account.plus(cost)
    assert Account(APPROXIMATE).plus_all(costs) == account
    assert account.spent > 0


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (Fraction(1, 3), "0.333334", "0.333333"),
        (Fraction(2, 3), "0.666667", "0.666666"),
        (Fraction(10**9 + 1, 10**9), "1.000001", "1"),
        (Fraction(1, 7 * 10**9), "1.42858e-10", "1.42857e-10"),
        (Fraction(123456789), "123456800", "123456700"),
        (Fraction(0), "0", "0"),
        (Fraction(-1, 2), "0", "0"),
    ],
)
def test_amounts_in_refusals_are_rounded_up_and_remainders_down(value, up, down):
    assert float(_text_up(value)) == float(up)
    assert float(_text_down(value)) == float(down)


@pytest.mark.parametrize(
    ("budget", "cost", "words"),
    [
        (Budget(mu="1/4"), Cost.gaussian(Fraction(1, 10)), "costs 0.1 mu^2, 0.0625 of 0.0625"),
        (Budget(rho="1/4"), Cost.gaussian(1), "costs 0.5 rho, 0.25 of 0.25 remains"),
        (Budget(epsilon="1/4"), Cost.pure(1), "costs 1 epsilon, 0.25 of 0.25 remains"),
    ],
)
def test_a_refusal_counts_in_the_currency_of_its_budget(budget, cost, words):
    assert words in Account(budget).refusal(cost)
