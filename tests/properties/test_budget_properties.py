# SPDX-License-Identifier: Apache-2.0
"""Accounting for all parameters: monotone, composing, on the safe side, as dp-accounting says."""

from __future__ import annotations

import json
import math
from fractions import Fraction

from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sfumato.ledger.account import UNITS, Account, fits
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import (
    Cost,
    composed_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    mu_squared_of,
    rho_of,
)

FEW = settings(max_examples=30, deadline=None)
MORE = settings(max_examples=100, deadline=None)


def amounts(low, high):
    """Fractions spread evenly over orders of magnitude."""
    exponents = st.floats(math.log10(low), math.log10(high))
    return exponents.map(lambda x: Fraction(10.0**x).limit_denominator(10**9) or Fraction(1, 10**9))


gaussians = amounts(1e-4, 4).map(Cost.gaussian)
pures = st.builds(Cost.pure, amounts(1e-3, 2), st.sampled_from([1, 1, 2, 7, 5000]))
costs = st.one_of(gaussians, pures)
deltas = st.sampled_from([Fraction(1, 10**k) for k in (2, 5, 9, 20)])
budgets = st.one_of(
    st.builds(lambda e: Budget(epsilon=e), amounts(1e-3, 20)),
    st.builds(lambda e, d: Budget(epsilon=e, delta=d), amounts(1e-3, 20), deltas),
    st.builds(
        lambda e, d, part: Budget(epsilon=e, delta=d, pure=e * part / 8),
        amounts(1e-3, 20),
        deltas,
        st.integers(0, 7),
    ),
    st.builds(lambda r: Budget(rho=r), amounts(1e-4, 20)),
    st.builds(lambda m: Budget(mu=m), amounts(1e-2, 10)),
)


@MORE
@given(budgets)
def test_budgets_survive_json(budget):
    assert Budget.from_json(json.loads(json.dumps(budget.as_json()))) == budget


@MORE
@given(amounts(1e-3, 50), deltas)
def test_the_mu_of_a_budget_costs_at_most_the_budget(epsilon, delta):
    mu = Budget(epsilon=epsilon, delta=delta).gaussian_mu
    assert gaussian_delta(Fraction(mu), epsilon) <= float(delta) * (1 + 1e-15)
    assert Fraction(gaussian_epsilon(Fraction(mu), delta)) <= epsilon * (1 + Fraction(1, 10**15))


@MORE
@given(amounts(1e-3, 20), amounts(1e-3, 20), deltas)
def test_less_noise_never_costs_less(one, other, delta):
    low, high = sorted((one, other))
    assert gaussian_epsilon(low, delta) <= gaussian_epsilon(high, delta)
    assert gaussian_delta(low, 1) <= gaussian_delta(high, 1)
    small, large = Budget(epsilon=low, delta=delta), Budget(epsilon=high, delta=delta)
    assert small.gaussian_mu <= large.gaussian_mu


@FEW
@given(st.lists(costs, min_size=1, max_size=6), costs, deltas)
@example([Cost.pure(1)], Cost.pure(Fraction(1, 100)), Fraction(1, 100))
def test_one_more_part_never_costs_less_and_never_more_than_alone(parts, extra, delta):
    before, after = composed_epsilon(parts, delta), composed_epsilon([*parts, extra], delta)
    assert before <= after * (1 + 1e-9)
    if extra.pure_parts:
        assert after <= (before + float(extra.pure_epsilon)) * (1 + 1e-2) + 1e-9


@FEW
@given(st.lists(costs, max_size=4), amounts(1e-2, 2), amounts(1e-2, 2), deltas, st.booleans())
def test_a_part_with_less_noise_never_costs_less(others, one, other, delta, gaussian):
    make = Cost.gaussian if gaussian else Cost.pure
    low, high = sorted((one, other))
    small = composed_epsilon([*others, make(low)], delta)
    assert small <= composed_epsilon([*others, make(high)], delta) * (1 + 1e-9)


@FEW
@given(st.lists(costs, min_size=2, max_size=6), st.randoms(use_true_random=False), deltas)
def test_the_order_of_parts_does_not_matter(parts, random, delta):
    shuffled = list(parts)
    random.shuffle(shuffled)
    assert composed_epsilon(parts, delta) == composed_epsilon(shuffled, delta)
    assert rho_of(sum(parts, Cost(()))) == rho_of(sum(shuffled, Cost(())))


@settings(max_examples=10, deadline=None)
@given(
    amounts(1e-2, 2),
    st.lists(st.tuples(amounts(2e-2, 1), st.sampled_from([1, 3])), min_size=1, max_size=4),
    st.sampled_from([1e-9, 1e-6, 1e-3]),
)
def test_mixtures_agree_with_dp_accounting_within_one_percent(mu_squared, pure, delta):
    # The other library adds up the same losses on a grid by Fourier transforms.
    grid = {"value_discretization_interval": 5e-4}
    total = pld.from_gaussian_mechanism(1 / math.sqrt(mu_squared), **grid)
    for epsilon, steps in pure:
        part = (
            pld.from_privacy_parameters(
                common.DifferentialPrivacyParameters(float(epsilon), 0), **grid
            )
            if steps == 1
            else pld.from_discrete_laplace_mechanism(
                float(epsilon) / steps, sensitivity=steps, **grid
            )
        )
        total = total.compose(part)
    reference = total.get_epsilon_for_delta(delta)
    ours = composed_epsilon(
        [Cost.gaussian(mu_squared), *(Cost.pure(e, steps) for e, steps in pure)], delta
    )
    assert abs(ours - reference) <= 0.01 * reference + 5e-4


@FEW
@given(budgets, st.lists(costs, min_size=1, max_size=12))
def test_debits_the_account_admits_one_by_one_would_also_fit_together(budget, wanted):
    """What is allowed without knowing the future is allowed all the more with a fixed list."""
    account, granted = Account(budget), []
    for cost in wanted:
        if budget.is_pure and cost.mu_squared:
            continue
        after = account.plus(cost)
        assert after.spent >= account.spent
        if not after.is_overdrawn:
            account, granted = after, [*granted, cost]
    assert 0 <= account.spent <= UNITS
    assert not granted or fits(granted, budget)


@FEW
@given(budgets, costs, costs)
def test_a_cheaper_debit_never_takes_more_units(budget, one, other):
    if budget.is_pure and (one.mu_squared or other.mu_squared):
        return
    both = Account(budget).plus(one).plus(other)
    assert both.spent >= Account(budget).plus(one).spent
    if mu_squared_of(one) <= mu_squared_of(other) and bool(one.pure_parts) == bool(
        other.pure_parts
    ):
        assert Account(budget).plus(one).spent <= Account(budget).plus(other).spent


@FEW
@given(budgets, pures, st.integers(0, 3))
def test_how_many_more_is_how_many_are_granted(budget, cost, before):
    account = Account(budget)
    for _ in range(before):
        after = account.plus(cost)
        account = account if after.is_overdrawn else after
    promised = account.how_many_more(cost)
    granted = 0
    while granted <= min(promised, 50) and not (after := account.plus(cost)).is_overdrawn:
        account, granted = after, granted + 1
    assert granted == min(promised, 51)


hundredths = st.integers(1, 300).map(lambda k: Fraction(k, 100))
some_deltas = st.integers(1, 9).map(lambda k: Fraction(k, 10**7))


@FEW
@given(
    st.lists(st.tuples(hundredths, some_deltas), min_size=1, max_size=4),
    st.lists(hundredths, min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_planned_costs_are_admitted_in_any_order_where_their_epsilons_and_deltas_add_up(
    gaussian, pure, random
):
    """docs/proofs/accounting.md, Theorem 6: never worse than adding epsilons and deltas."""
    planned = [Budget(epsilon=e, delta=d) for e, d in gaussian] + [Budget(epsilon=e) for e in pure]
    total = Budget(
        epsilon=sum((e for e, _ in gaussian), Fraction(0)) + sum(pure, Fraction(0)),
        delta=sum((d for _, d in gaussian), Fraction(0)),
    ).with_lanes_for(planned)
    debits = [
        Cost.pure(b.pure_epsilon) if b.is_pure else Cost.gaussian(Fraction(b.gaussian_mu) ** 2)
        for b in planned
    ]
    random.shuffle(debits)
    assert not Account(total).plus_all(debits).is_overdrawn
    assert fits(debits, total)


@FEW
@given(
    st.lists(hundredths.map(Cost.pure), max_size=5),
    st.lists(amounts(1e-6, 1e-2).map(Cost.gaussian), max_size=5),
    st.randoms(use_true_random=False),
)
def test_the_order_of_debits_does_not_matter_within_lanes(pure, gaussian, random):
    lane = sum((cost.pure_epsilon for cost in pure), Fraction(1, 100))
    budget = Budget(epsilon=lane + 2, delta=Fraction(1, 10**6), pure=lane)
    in_turn = Account(budget).plus_all([*pure, *gaussian])
    shuffled = [*pure, *gaussian]
    random.shuffle(shuffled)
    assert Account(budget).plus_all(shuffled) == in_turn
