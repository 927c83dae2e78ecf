# SPDX-License-Identifier: Apache-2.0
"""Sample sizes: each is the least that reaches its bound, and the theorems hold in simulation."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest

import sfumato as sf

study = sf.study


@pytest.mark.parametrize(
    ("error", "needed"),
    [
        (lambda n: study.tree_error(100, n, 0.5), lambda a: study.tree_rows_needed(100, a, 0.5)),
        (
            lambda n: study.sparse_error(50, n, 0.5, 0.1, c=3),
            lambda a: study.sparse_rows_needed(50, a, 0.5, 0.1, c=3),
        ),
        (
            lambda n: study.projection_error(500, 64, n, 0.3),
            lambda a: study.projection_rows_needed(500, 64, a, 0.3),
        ),
        (
            lambda n: study.projection_error(500, 64, n, 0.3, width=20.0, sensitivity=9.0),
            lambda a: study.projection_rows_needed(500, 64, a, 0.3, 20.0, 9.0),
        ),
        (lambda n: 3.5 / (0.3 * n), lambda a: study.factorization_rows_needed(3.5, a, 0.3)),
        (
            lambda n: 0.01 + 3.5 / (0.3 * n),
            lambda a: study.approximate_rows_needed(3.5, 0.01, a, 0.3),
        ),
    ],
)
@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.3])
def test_rows_needed_are_the_least_that_reach_the_error(error, needed, alpha):
    n = needed(alpha)
    assert error(n) <= alpha * (1 + 1e-12)
    assert n == 1 or error(n - 1) > alpha * (1 - 1e-9)


def test_the_projection_needs_no_more_records_for_more_queries():
    """Theorem 3.1: error independent of k, where Gaussian noise alone grows with its root."""
    few, many = (study.projection_error(k, 64, 200, 0.3) for k in (10**4, 10**6))
    assert few == many == pytest.approx(sqrt(sqrt(2 * log(64)) / (0.3 * 200)))
    assert study.projection_error(4, 64, 10**6, 0.3) == pytest.approx(2 / (0.3 * 10**6))


def test_the_projection_mechanism_keeps_its_theorem_on_data():
    rng = np.random.default_rng(0)
    matrix = (rng.random((400, 32)) < 0.5).astype(float)
    h = rng.multinomial(200, rng.dirichlet(np.ones(32) / 4))
    words = study.SeededWords(0)
    errors = []
    for _ in range(10):
        result = study.projection_mechanism(matrix, h, mu=0.3, random=words)
        errors.append(((result.shares - matrix @ h / 200) ** 2).mean())
    sigma = result.noise["answers"].scale
    bound = study.projection_error(400, 32, 200, 1 / sigma, sensitivity=1.0)
    assert sqrt(np.mean(errors)) <= bound < sigma / 200


def test_the_tree_errs_no_more_than_question_4_says():
    noisy = study.binary_tree("ranges", [5] * 64, epsilon=1)
    assert noisy.rmse <= study.tree_error(64, 1, 1)


def test_all_sample_sizes_stand_side_by_side():
    table = study.sample_sizes(1000, 1024, 0.05, epsilon=1, gamma=3.0, width=20.0)
    assert list(table.columns) == ["mechanism", "theorem", "records", "error"]
    assert len(table) == 8
    assert (table["records"] > 0).all()
    by = table.set_index("theorem")["records"]
    assert by["Theorem 8"] <= by["Theorems 3.1 and 4"]
    assert by["Theorem 3.8"] == study.laplace_rows_needed(1000, 0.05, 1, 0.05, 1000)


@pytest.mark.parametrize(
    "call",
    [
        lambda: study.tree_error(0, 10, 1),
        lambda: study.sparse_error(10, 10, 1, 2),
        lambda: study.projection_error(10, 10, 10, 1, width=-1.0),
        lambda: study.approximate_rows_needed(1, 0.2, 0.1, 1),
        lambda: study.factorization_rows_needed(-1, 0.2, 0.1),
        lambda: study.sample_sizes(0, 10, 0.1, epsilon=1),
    ],
)
def test_what_is_out_of_range_is_refused(call):
    with pytest.raises(sf.PlanError):
        call()
