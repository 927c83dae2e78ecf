# SPDX-License-Identifier: Apache-2.0
"""The planned sparse vectors keep the budget and are the best of those that were considered."""

from __future__ import annotations

from fractions import Fraction

import pytest

from sfumato.errors import PlanError
from sfumato.ledger.account import Account, fits
from sfumato.planning.sparse_plans import (
    SparseForecast,
    _keeps,
    centred,
    plan_sparse,
    sparse_of_epsilon,
    sparse_of_mu_squared,
    tolerance,
)
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import laplace_tail
from sfumato.privacy.sparse_vector import noise_cost

BUDGETS = [
    Budget(epsilon=1),
    Budget(epsilon="0.1", delta=1e-6),
    Budget(rho="0.02"),
    Budget(mu=2),
]


def planned(budget: Budget, discoveries: int, with_numbers: bool = False) -> SparseForecast:
    return plan_sparse(budget, discoveries, 500, 256, is_monotone=False, with_numbers=with_numbers)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("with_numbers", [False, True])
@pytest.mark.parametrize("discoveries", [1, 4, 60])
def test_a_plan_keeps_the_budget_and_the_account_admits_it_once(
    budget: Budget, discoveries: int, with_numbers: bool
) -> None:
    plan = planned(budget, discoveries, with_numbers)
    assert plan.discoveries == discoveries
    assert fits([plan.cost], budget)
    spent = Account(budget).plus(plan.cost)
    assert not spent.is_overdrawn
    assert spent.plus(plan.cost).is_overdrawn
    if plan.number is not None:
        parts = noise_cost(plan.number, 256)
        whole = plan.law.cost.mu_squared * plan.epochs + parts.mu_squared * discoveries
        assert plan.cost.mu_squared == whole
        pure = plan.law.cost.pure_epsilon * plan.epochs + parts.pure_epsilon * discoveries
        assert plan.cost.pure_epsilon == pure


def test_pure_budgets_use_one_sparse_vector_and_others_several_when_that_is_better() -> None:
    assert planned(Budget(epsilon=1), 60).epochs == 1
    assert planned(Budget(mu=1), 60).epochs == 60
    # A tiny delta is worth nothing to few discoveries: pure noise at the same epsilon is better.
    assert not planned(Budget(epsilon=1, delta=1e-9), 2).cost.mu_squared
    assert planned(Budget(epsilon=1, delta=1e-9), 1000).cost.mu_squared


@pytest.mark.parametrize("discoveries", [2, 30])
def test_no_other_candidate_is_better(discoveries: int) -> None:
    best = planned(Budget(mu=1), discoveries).tolerance
    beta = 1 - 0.95
    one = sparse_of_mu_squared(Fraction(1), discoveries, 256, query="exponential")
    many = sparse_of_mu_squared(Fraction(1, discoveries), 1, 256, query="exponential")
    pure = sparse_of_epsilon(
        Budget(mu=1).pure_epsilon, discoveries, 256, threshold="exponential", query="exponential"
    )
    found = [
        tolerance(centred(law, 500, beta, epochs), 500, beta, epochs)
        for law, epochs in ((one, 1), (many, discoveries), (pure, 1))
    ]
    assert best == min(found)
    # Symmetric noise is worse, by about a third.
    plain = sparse_of_mu_squared(Fraction(1, discoveries), 1, 256)
    assert best < 0.75 * tolerance(plain, 500, beta, discoveries)


def test_numbers_share_the_probability_of_a_failure_with_the_tests() -> None:
    plan = planned(Budget(epsilon=1), 4, with_numbers=True)
    assert plan.number is not None
    beyond = laplace_tail(plan.number.scale, plan.half_width + 1)
    assert 4 * beyond <= 0.025 + 1e-12
    assert 4 * laplace_tail(plan.number.scale, plan.half_width) > 0.025
    with pytest.raises(PlanError, match="no numbers"):
        _ = planned(Budget(epsilon=1), 4).half_width


def test_more_budget_fewer_discoveries_or_queries_never_tolerate_more() -> None:
    here = planned(Budget(epsilon=1), 4).tolerance
    assert planned(Budget(epsilon=2), 4).tolerance < here
    assert planned(Budget(epsilon=1), 3).tolerance < here
    fewer = plan_sparse(Budget(epsilon=1), 4, 50, 256, is_monotone=False, with_numbers=False)
    monotone = plan_sparse(Budget(epsilon=1), 4, 500, 256, is_monotone=True, with_numbers=False)
    assert fewer.tolerance < here
    assert monotone.tolerance < here


def test_a_candidate_that_costs_more_than_the_budget_is_dropped() -> None:
    """Calibration never makes one; the last check does not rely on it."""
    assert _keeps(Cost.pure(Fraction(1)), Budget(epsilon=1))
    assert not _keeps(Cost.pure(Fraction(1001, 1000)), Budget(epsilon=1))
    assert _keeps(Cost.gaussian(Fraction(1)), Budget(mu=1))
    assert not _keeps(Cost.gaussian(Fraction(1001, 1000)), Budget(mu=1))
    assert not _keeps(Cost.gaussian(Fraction(1, 10**6)), Budget(epsilon=1))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(PlanError, match="fits"):
        planned(Budget(epsilon="1e-12"), 4)
    with pytest.raises(PlanError, match="discoveries"):
        planned(Budget(epsilon=1), 0)
    with pytest.raises(PlanError, match="confidence"):
        plan_sparse(
            Budget(epsilon=1), 1, 5, 1, is_monotone=False, with_numbers=False, confidence=1.0
        )
