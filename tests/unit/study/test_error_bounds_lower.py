# SPDX-License-Identifier: Apache-2.0
"""The lower bound for every mechanism: its witness, and mechanisms that come near it."""

from __future__ import annotations

from math import exp, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import BudgetError, TooLarge
from sfumato.privacy.noise_laws import laplace_variance
from sfumato.study.error_bounds import lower_bound, unit_error
from sfumato.types import Neighbours

BUDGETS = [
    sf.Budget(epsilon=1),
    sf.Budget(epsilon="0.1"),
    sf.Budget(epsilon=1, delta=1e-6),
    sf.Budget(rho="0.1"),
    sf.Budget(mu="0.3"),
]


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1, 3])
def test_one_number_is_told_no_better_than_the_best_mechanism_does(epsilon: float) -> None:
    """The geometric mechanism reaches the bound of pure epsilon; a tenth more would be wrong."""
    bound = lower_bound(np.eye(5), sf.Budget(epsilon=epsilon)).rmse
    reached = sqrt(laplace_variance(1 / epsilon))
    assert bound == pytest.approx(reached, rel=1e-6)
    assert 1.1 * bound > reached  # the twin: no claim above is true


@given(st.floats(0.05, 3), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_a_bit_by_randomized_response_is_never_below_the_bound(
    epsilon: float, records: int
) -> None:
    """The posterior variance of a bit, by enumeration, for a mechanism with a delta of 1e-9."""
    budget = sf.Budget(epsilon=epsilon, delta=1e-9)
    odds = exp(epsilon * records)
    posterior = odds / (1 + odds)
    assert unit_error(budget, records) >= (1 - 1e-6) * posterior * (1 - posterior)
    # The Gaussian mechanism of the budget tells a number, and is not below the bound.
    assert unit_error(budget, records) <= (records / float(budget.gaussian_mu)) ** 2 / records**2


def test_gaussian_noise_is_near_the_bound_where_the_budget_is_small() -> None:
    for budget, variance in ((sf.Budget(rho="0.001"), 500.0), (sf.Budget(mu="0.01"), 1e4)):
        assert variance * 0.99 < unit_error(budget, 1) < variance


@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.integers(2, 12), st.sampled_from(BUDGETS))
@settings(max_examples=60, deadline=None)
def test_weights_are_below_the_gram_matrix_of_the_directions(
    seed: int, cells: int, queries: int, budget: sf.Budget
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-1, 2, (queries, cells)).astype(float)
    matrix[0, 0] = 1
    bound = lower_bound(matrix, budget)
    images = matrix @ bound.directions.T
    rest = images.T @ images - np.diag(bound.weights)
    assert float(np.linalg.eigvalsh(rest).min()) >= -1e-9
    assert float(bound.weights.min()) >= 0
    errors = [unit_error(budget, int(np.abs(t).sum())) for t in bound.directions]
    assert bound.rmse == pytest.approx(sqrt(float(bound.weights @ errors) / queries))
    # The twin: weights a hundredth larger are no witness, unless the directions are orthogonal.
    assert float(np.linalg.eigvalsh(rest - 0.011 * np.diag(bound.weights)).min()) < 0


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda b: b.describe())
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_no_plan_is_below_the_bound(budget: sf.Budget, neighbours: Neighbours) -> None:
    rng = np.random.default_rng(7)
    domain = sf.Domain({"x": 12})
    for matrix in (np.eye(12), np.tril(np.ones((12, 12))), rng.integers(0, 2, (20, 12))):
        plan = sf.plan(sf.explicit(domain, ["x"], matrix), budget, neighbours=neighbours)
        bound = lower_bound(matrix, budget, neighbours)
        assert 0 < bound.rmse <= plan.rmse * (1 + 1e-9)
        if neighbours == "replace-one":
            assert (bound.directions.sum(axis=1) == 0).all()


def test_running_totals_cost_more_the_more_there_are() -> None:
    budget = sf.Budget(epsilon="0.1")
    errors = [lower_bound(np.tril(np.ones((m, m))), budget).rmse for m in (4, 16, 64, 256)]
    squares = np.diff(np.square(errors))
    assert float(squares.min()) > 10  # each two scales add their share
    assert "second differences" in lower_bound(np.tril(np.ones((64, 64))), budget).kind


def test_bad_input_is_refused() -> None:
    with pytest.raises(BudgetError, match='"add-remove"'):
        lower_bound(np.eye(2), BUDGETS[0], "swap")  # type: ignore[arg-type]
    with pytest.raises(TooLarge, match="at most 2,048"):
        lower_bound(np.ones((1, 3000)), BUDGETS[0])
    with pytest.raises(sf.WorkloadError, match="lower_bound needs"):
        lower_bound([1, 2], BUDGETS[0])
