# SPDX-License-Identifier: Apache-2.0
"""The linear mechanisms of the notes: scales, costs, laws and bounds."""

from __future__ import annotations

from itertools import permutations
from math import log, sqrt

import numpy as np
import pytest
from scipy.stats import kstest

import sfumato as sf

study = sf.study
PREFIXES = np.tril(np.ones((8, 8)))
H = np.array([3, 1, 4, 1, 5, 9, 2, 6])


def moves(matrix: np.ndarray, neighbours: str) -> np.ndarray:
    """Every difference of the answers of neighbours, a row each."""
    columns = matrix.T
    if neighbours == "add-remove":
        return columns
    pairs = permutations(range(len(columns)), 2)
    return np.array([columns[i] - columns[j] for i, j in pairs])


MATRICES = {
    "prefixes": PREFIXES,
    "copies": np.tile([1.0, 1, 0, 0, 1], (4, 1)),
    "signs": np.random.default_rng(0).choice([-1.0, 1.0], (6, 7)),
    "quarters": np.random.default_rng(1).integers(-8, 9, (4, 5)) / 4,
    "many": (np.random.default_rng(2).random((40, 9)) < 0.5).astype(float),
}


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES.keys())
def test_no_neighbours_are_told_apart_by_more_than_the_cost_says(matrix, neighbours):
    """The exact losses of the discrete Laplace and of the Gaussian, over all neighbours."""
    h = np.arange(matrix.shape[1])
    laplace = study.laplace_mechanism(matrix, h, epsilon=0.7, neighbours=neighbours)
    scale = laplace.noise["answers"].scale
    loss = max(np.abs(d).sum() for d in moves(matrix, neighbours)) / scale
    assert 0.999 * 0.7 < loss <= float(laplace.cost.pure_epsilon) <= 0.7
    gaussian = study.gaussian_mechanism(matrix, h, mu=0.7, neighbours=neighbours)
    sigma = gaussian.noise["answers"].scale
    mu = max(np.linalg.norm(d) for d in moves(matrix, neighbours)) / sigma
    assert 0.999 * 0.7 < mu <= gaussian.mu <= 0.7


def test_the_worked_example_of_the_slides_has_noise_of_scale_200():
    """K = 100 counting queries at epsilon = 0.5: Lap(200), and the bound of Theorem 3.8."""
    matrix = np.ones((100, 3))
    noisy = study.laplace_mechanism(matrix, [1, 2, 3], epsilon=0.5)
    assert noisy.noise["answers"].scale == pytest.approx(200, rel=1e-4)
    assert noisy.error_bound(0.05) <= 200 * log(100 / 0.05) * 1.001


def test_question_1_of_brown_has_delta_k_for_thresholds_where_records_are_replaced():
    """Delta_1 of d - 1 thresholds is d - 1: the diameter, not twice the longest column."""
    thresholds = PREFIXES[:-1]
    noisy = study.laplace_mechanism(thresholds, H, epsilon=1, neighbours="replace-one")
    assert noisy.noise["answers"].scale == pytest.approx(7, rel=1e-4)
    table = study.laplace_mechanism(np.eye(8), H, epsilon=1, neighbours="replace-one")
    assert table.noise["answers"].scale == pytest.approx(2, rel=1e-4)


def test_answers_follow_their_law_and_a_wrong_scale_would_be_seen():
    words, matrix = study.SeededWords("law"), np.ones((40, 2))

    def noise(mechanism, **budget) -> np.ndarray:
        runs = [mechanism(matrix, [4, 5], random=words, **budget) for _ in range(40)]
        return np.concatenate([r.answers for r in runs]) - 9

    laplace = noise(study.laplace_mechanism, epsilon=1)
    assert kstest(laplace, "laplace", (0, 40)).pvalue > 1e-3
    assert kstest(laplace, "laplace", (0, 28)).pvalue < 1e-3
    gaussian = noise(study.gaussian_mechanism, mu=1)
    assert kstest(gaussian, "norm", (0, sqrt(40))).pvalue > 1e-3
    assert kstest(gaussian, "norm", (0, sqrt(20))).pvalue < 1e-3


@pytest.mark.parametrize(
    "mechanism",
    [
        lambda words: study.laplace_mechanism(PREFIXES, H, epsilon=1, random=words),
        lambda words: study.gaussian_mechanism(PREFIXES, H, mu=1, random=words),
        lambda words: study.contingency_table(PREFIXES, H, epsilon=1, random=words),
        lambda words: study.contingency_table(PREFIXES, H, mu=1, random=words),
        lambda words: study.binary_tree("prefixes", H, epsilon=1, random=words),
        lambda words: study.binary_tree(PREFIXES, H, mu=1, random=words),
        lambda words: study.factorization_mechanism(PREFIXES, H, mu=1, random=words),
    ],
)
def test_errors_are_as_forecast_and_all_answers_are_within_the_bound(mechanism):
    words = study.SeededWords(1)
    runs = [mechanism(words) for _ in range(30)]
    errors = np.array([r.answers for r in runs]) - PREFIXES @ H
    rmse = sqrt((errors**2).mean())
    assert 0.7 < rmse / runs[0].rmse < 1.4
    outside = (np.abs(errors).max(axis=1) > runs[0].error_bound(0.05)).mean()
    assert outside <= 0.2  # 0.05 and four standard errors
    assert runs[0].cost.describe() in repr(runs[0].cost)


def test_the_tree_measures_its_nodes_and_least_squares_reads_them():
    noisy = study.binary_tree("ranges", H, epsilon=1)
    assert noisy.answers.shape == (36,)
    assert noisy.measured.shape == (15,)
    assert noisy.noise["measured"].scale == pytest.approx(4, rel=1e-4)
    wide = study.binary_tree("prefixes", H, epsilon=1, branching=8)
    assert wide.measured.shape == (9,)
    # A large epsilon leaves the exact answers.
    exact = study.binary_tree("prefixes", H, epsilon=10**6)
    np.testing.assert_allclose(exact.answers, PREFIXES @ H, atol=1e-3)


def test_the_factorization_mechanism_has_the_error_of_the_norm():
    noisy = study.factorization_mechanism(PREFIXES, H, mu=0.5)
    gamma = study.factorization_norm(PREFIXES)
    assert noisy.rmse == pytest.approx(float(gamma) / 0.5, rel=1e-3)


def test_the_factorization_is_made_for_the_neighbours():
    """Replaced records: never worse than the optimum for added ones at its diameter."""
    noisy = study.factorization_mechanism(PREFIXES, H, mu=1, neighbours="replace-one")
    added = study.factorization_mechanism(PREFIXES, H, mu=1)
    # The certified optimum of sf.plan; that for added records would err 1.41 times as much.
    assert noisy.rmse == pytest.approx(1.47794, rel=1e-3)
    assert noisy.rmse < added.rmse == pytest.approx(1.49442, rel=1e-3)


def test_a_bias_pays_for_few_records_and_is_counted_in_the_error():
    matrix, h = np.random.default_rng(4).choice([-1.0, 1.0], (30, 8)), np.array([3, 1, 2] + [0] * 5)
    how = {"mu": 0.3, "neighbours": "replace-one", "random": study.SeededWords(6)}
    exact = study.factorization_mechanism(matrix, h, **how)
    biased = study.factorization_mechanism(matrix, h, approximate=True, **how)
    assert biased.rmse < 0.8 * exact.rmse
    runs = [study.factorization_mechanism(matrix, h, approximate=True, **how) for _ in range(20)]
    errors = np.array([r.answers for r in runs]) - matrix @ h
    assert sqrt((errors**2).mean()) <= 1.1 * biased.rmse
    assert (np.abs(errors).max(axis=1) > biased.error_bound(0.05)).mean() <= 0.2
    added = study.factorization_mechanism(matrix, h, approximate=True, n=6, mu=0.3)
    assert added.cost.mu_squared <= 0.3**2
    with pytest.raises(sf.PlanError, match="public number"):
        study.factorization_mechanism(matrix, h, approximate=True, mu=0.3)


def test_projection_is_never_farther_from_the_truth_and_within_its_bound():
    rng = np.random.default_rng(3)
    matrix = (rng.random((60, 8)) < 0.5).astype(float)
    words = study.SeededWords(2)
    truth = matrix @ H
    outside = 0
    for how in (False, True):
        for _ in range(6):
            result = study.projection_mechanism(
                matrix, H, epsilon=1, delta=1e-6, random=words, factorize=how
            )
            before = np.linalg.norm(result.measured - truth)
            after = np.linalg.norm(result.answers - truth)
            assert after <= before + result.projection.distance_bound + 1e-9
            outside += after / sqrt(60) > result.error_bound(0.05)
            assert study.separation_oracle(matrix, result.shares, tolerance=1e-4).is_inside
    assert outside <= 4
    assert result.n == H.sum()


def test_tables_and_arrays_have_the_same_noise_and_cost():
    import pandas as pd

    domain = sf.Domain({"age": 8})
    table = pd.DataFrame({"age": np.repeat(np.arange(8), H)})
    for mechanism in (study.laplace_mechanism, study.binary_tree, study.contingency_table):
        ours = mechanism(sf.prefixes(domain, "age"), table, epsilon=1)
        array = mechanism(PREFIXES, H, epsilon=1)
        assert ours.noise == array.noise
        assert ours.cost == array.cost
        assert ours.answers.shape == array.answers.shape
