# SPDX-License-Identifier: Apache-2.0
"""Forecasts of the local model against enumeration, hand-computed cases and each other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sfumato.errors import PlanError, WorkloadError
from sfumato.study.local_model import (
    RandomizedResponse,
    forecast_radius,
    forecast_rmse,
    response_error,
    response_rows_needed,
    row_variances,
    workload_rmse,
)


def enumerated_variance(response: RandomizedResponse, query: np.ndarray, code: int) -> float:
    """Variance of q[report] / gap for one client, from its law and nothing else."""
    law = np.full(response.size, float(response.other))
    law[code] = float(response.keep)
    scores = query / float(response.gap)
    return float(law @ scores**2 - (law @ scores) ** 2)


@pytest.mark.parametrize("size", [2, 3, 6])
def test_row_variances_are_those_of_the_law_of_one_report(size):
    response = RandomizedResponse(0.7, size)
    queries = np.random.default_rng(size).normal(size=(5, size)) + 3
    expected = [
        [enumerated_variance(response, query, code) for code in range(size)] for query in queries
    ]
    assert np.allclose(row_variances(response, queries), expected, rtol=1e-9)


def test_the_variance_of_one_bit_is_p_times_one_minus_p_over_the_square_of_the_gap():
    """Warner 1965: p (1-p) / (2p-1)^2 for each client; e / (e-1)^2 = 0.920674 for epsilon 1."""
    response = RandomizedResponse(1, 2)
    expected = math.e / (math.e - 1) ** 2
    assert row_variances(response, [[0, 1]])[0] == pytest.approx([expected, expected], rel=1e-12)
    assert forecast_rmse(response, [[0, 1]], 400)[0] == pytest.approx(20 * math.sqrt(expected))


def test_the_variance_of_a_rare_cell_is_that_of_direct_encoding():
    """Wang, Blocki, Li, Jha 2017, direct encoding: (size - 2 + e^epsilon) / (e^epsilon - 1)^2."""
    response = RandomizedResponse(2, 10)
    expected = (10 - 2 + math.exp(2)) / (math.exp(2) - 1) ** 2
    assert row_variances(response, np.eye(10))[0, 1] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("size", [2, 5, 12])
def test_workload_rmse_from_the_gram_matrix_is_that_of_the_explicit_queries(size):
    response = RandomizedResponse(0.9, size)
    queries = np.random.default_rng(size).normal(size=(7, size))
    gram = queries.T @ queries
    got = workload_rmse(response, np.diag(gram), gram.sum(axis=1), queries=7, rows=1000)
    worst = 1000 * row_variances(response, queries).mean(axis=0).max()
    assert got == pytest.approx(math.sqrt(worst), rel=1e-12)


def test_error_bound_is_hoeffding_with_a_union_bound():
    response = RandomizedResponse(1, 2)
    radius = forecast_radius(response, [[0, 1]], 5000, 0.05 / 300, "hoeffding")[0]
    assert response_error(response, rows=5000, queries=300, beta=0.05) == pytest.approx(radius)
    assert response_error(response, 5000, 300, 0.05, spread=7) == pytest.approx(7 * radius)


@pytest.mark.parametrize("size", [2, 4, 30])
@pytest.mark.parametrize("alpha", [0.3, 0.01, 0.0007])
def test_rows_needed_is_the_least_number_that_meets_the_bound(size, alpha):
    response = RandomizedResponse(1, size)
    rows = response_rows_needed(response, alpha, beta=0.05, queries=100)
    assert response_error(response, rows, 100, 0.05) <= alpha * rows
    assert response_error(response, rows - 1, 100, 0.05) > alpha * (rows - 1)


def test_rows_needed_of_the_notes_for_one_query():
    """n = ln(2/beta) / (2 (alpha (2p-1))^2) = 3.688879 / (2 * (0.01 * 0.462117)^2) = 86369.5."""
    assert response_rows_needed(RandomizedResponse(1, 2), alpha=0.01, beta=0.05, queries=1) == 86370


def test_more_privacy_costs_more_error_in_every_forecast():
    queries = np.eye(4)
    rmse = [forecast_rmse(RandomizedResponse(e, 4), queries, 100)[0] for e in (3, 1, 0.3, 0.1)]
    bound = [response_error(RandomizedResponse(e, 4), 100, 4, 0.05) for e in (3, 1, 0.3, 0.1)]
    assert rmse == sorted(rmse)
    assert bound == sorted(bound)


def test_parameters_out_of_range_are_refused_with_what_is_allowed():
    response = RandomizedResponse(1, 2)
    for beta in (0, 1, -1, math.nan):
        with pytest.raises(PlanError, match="between 0 and 1"):
            response_error(response, 10, 1, beta)
        with pytest.raises(PlanError, match="between 0 and 1"):
            forecast_radius(response, [[0, 1]], 10, beta, "normal")
    with pytest.raises(PlanError, match="rows is -1"):
        response_error(response, -1, 1, 0.1)
    with pytest.raises(PlanError, match="queries is 0"):
        response_error(response, 10, 0, 0.1)
    with pytest.raises(PlanError, match="spread"):
        response_error(response, 10, 1, 0.1, spread=math.inf)
    for alpha in (0, -1, math.inf, math.nan):
        with pytest.raises(PlanError, match="alpha"):
            response_rows_needed(response, alpha, 0.1, 1)
    with pytest.raises(WorkloadError, match="one number for each cell"):
        workload_rmse(response, [1, 2, 3], [1, 2, 3], 1, 1)
