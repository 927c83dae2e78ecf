# SPDX-License-Identifier: Apache-2.0
"""What the lecture notes state and work out by hand, asked of the library: see ``docs/map.md``.

Smith and Ullman on factorization and projection; Nikolov on the projection mechanism; Wang on the
sparse vector technique; Brown on linear queries and the binary tree.
"""

from __future__ import annotations

from itertools import product
from math import comb, exp, log, sinh, sqrt

import numpy as np
import pytest

import sfumato as sf
from sfumato.strategy.moves import squared_diameter
from sfumato.study.error_bounds import (
    gaussian_rows_needed,
    laplace_error,
    laplace_rows_needed,
    table_error,
)
from sfumato.study.experts import weights_rows_needed
from sfumato.study.local_model import RandomizedResponse, response_error
from sfumato.study.widths import closed_form

CELLS = sf.Domain({"u": 5})


def random_queries(seed: int, k: int = 6, cells: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, size=(k, cells)).astype(float)


# Smith and Ullman, Section 1


def test_a_linear_query_is_a_product_with_the_histogram() -> None:
    """Equations (1), (7), (9), (10) and Exercise 1.3; the notes' example 1, 3, 3, 2, 3."""
    records = np.array([1, 3, 3, 2, 3]) - 1
    histogram = np.bincount(records, minlength=5)
    assert (histogram[:3] / 5).tolist() == [1 / 5, 1 / 5, 3 / 5]
    queries = random_queries(1)
    by_records = [np.mean([row[x] for x in records]) for row in queries]
    work = sf.explicit(CELLS, ["u"], queries)
    assert np.allclose(work.evaluate(histogram) / len(records), by_records)


def test_the_sensitivity_is_the_longest_column_and_replacing_moves_two_of_them() -> None:
    """Equations (4), (8), (12) to (16): at most 2 |F|_{1->2}, or the diameter."""
    for seed in range(20):
        queries = random_queries(seed)
        work = sf.explicit(CELLS, ["u"], queries)
        longest = np.linalg.norm(queries, axis=0).max()
        assert work.sensitivity(2) == pytest.approx(longest)
        steps = [(i, j) for i, j in product(range(5), repeat=2) if i != j]
        assert max(abs(np.eye(5)[i] - np.eye(5)[j]).sum() for i, j in steps) == 2
        farthest = max(np.linalg.norm(queries[:, i] - queries[:, j]) for i, j in steps)
        assert farthest <= sqrt(squared_diameter(work.terms[0])) * (1 + 1e-9) <= 2 * longest
    thresholds = sf.prefixes(CELLS, "u").terms[0]  # columns i and j differ in |i - j| entries
    assert squared_diameter(thresholds) == pytest.approx(4)


# Smith and Ullman, Section 2


def test_nearly_equal_queries_are_measured_as_one() -> None:
    """Equations (36) and (37): entries 1 +- alpha, a bias of alpha, and the noise of one query."""
    alpha = 0.05
    signs = np.random.default_rng(3).choice([-1.0, 1.0], size=(12, 30))
    nearly = 1 + alpha * signs
    exact = sf.factorize(nearly)
    close = sf.factorize(nearly, alpha=alpha)
    assert close.alpha <= alpha * (1 + 1e-6)
    assert close.gamma <= 1 + 1e-6
    assert exact.gamma > 1.1


def test_answers_to_two_thresholds_are_put_in_order() -> None:
    """Equation (40): after projection 0 <= a_1 <= a_2 <= n, and nearer to the truth."""
    n = 10
    work = sf.product(sf.Domain({"u": 3}), {"u": [[1, 0, 0], [1, 1, 0]]})
    for noisy in ([7.0, 4.0], [-3.0, 12.0], [3.0, 14.0], [2.0, 5.0]):
        found = sf.project(noisy, work, n=n).answers
        assert -1e-6 <= found[0] <= found[1] + 1e-6 <= n + 2e-6
        for first in range(n + 1):
            for second in range(first, n + 1):
                truth = np.array([first, second])
                off = np.linalg.norm(found - truth)
                assert off <= np.linalg.norm(noisy - truth) + 1e-6  # Equation (43)
    assert np.allclose(sf.project([2.0, 5.0], work, n=n).answers, [2, 5], atol=1e-6)


@pytest.mark.parametrize(("noisy", "possible"), [(-1.82, 0.0), (3.5, 3.5), (104.0, 100.0)])
def test_one_count_is_cut_to_what_is_possible(noisy: float, possible: float) -> None:
    """The example before Equation (41): max(min(a, n), 0)."""
    work = sf.product(sf.Domain({"u": 2}), {"u": [[1, 0]]})
    assert sf.project([noisy], work, n=100).answers[0] == pytest.approx(possible, abs=1e-4)


# Nikolov


def test_the_support_function_has_its_three_properties() -> None:
    """Definition 5: homogeneous, subadditive, monotone in the body."""
    rng = np.random.default_rng(5)
    queries = random_queries(5)
    work = sf.explicit(CELLS, ["u"], queries)
    fewer = sf.explicit(sf.Domain({"u": 3}), ["u"], queries[:, :3])
    for _ in range(20):
        x, y = rng.normal(size=(2, len(queries)))
        t = rng.uniform(0, 5)
        assert float(sf.support(work, t * y)) == pytest.approx(t * float(sf.support(work, y)))
        both = float(sf.support(work, x + y))
        assert both <= float(sf.support(work, x)) + float(sf.support(work, y)) + 1e-9
        assert float(sf.support(fewer, y)) <= float(sf.support(work, y)) + 1e-9


def test_the_width_is_at_most_that_of_the_proof_of_theorem_4() -> None:
    """``l*(K) <= sqrt(2 k ln |X|)``: the closed form is never above it."""
    for k, cells in ((4, 5), (30, 16), (3, 200)):
        queries = random_queries(k, k, cells)
        work = sf.explicit(sf.Domain({"u": cells}), ["u"], queries)
        assert closed_form(work)[0] <= sqrt(2 * k * log(cells)) * (1 + 1e-9)


@pytest.mark.parametrize(("d", "k"), [(3, 1), (5, 2), (6, 3)])
def test_k_way_marginal_queries_are_as_many_as_definition_9_says(d: int, k: int) -> None:
    domain = sf.Domain({f"c{i}": 2 for i in range(d)})
    assert len(sf.conjunctions(domain, k)) == comb(d, k) * 2**k


def test_records_for_marginals_grow_as_the_notes_compare() -> None:
    """Gaussian noise as d^(k/2); multiplicative weights as sqrt(d) up to logarithms."""
    budget = sf.Budget(epsilon=1, delta=1e-6)
    mu = budget.gaussian_mu
    assert mu is not None

    def gaussian(d: int) -> int:
        # Delta_2^2: a record is in one cell of each of the C(d, 3) tables.
        return gaussian_rows_needed(comb(d, 3) * 8, 0.05, mu, 0.05, sqrt(comb(d, 3)))

    def weights(d: int) -> int:
        return weights_rows_needed(comb(d, 3) * 8, 2**d, 0.05, budget)

    assert 2**1.5 < gaussian(64) / gaussian(32) < 2**1.5 * 1.2
    assert sqrt(2) < weights(64) / weights(32) < sqrt(2) * 1.25
    assert weights(24) > gaussian(24)  # few attributes: Gaussian noise needs fewer records
    assert weights(10**5) < gaussian(10**5)


# Wang


def test_a_hundred_queries_at_half_an_epsilon_have_noise_of_scale_200() -> None:
    """The worked example: epsilon / K = 0.005 a query, ``Lap(200)``; n = K ln(K/beta)/(alpha e)."""
    assert laplace_error(100, 1, 0.5, 0.05, 100) == pytest.approx(200 * log(100 / 0.05))
    n = laplace_rows_needed(100, 0.1, 0.5, 0.05, 100)
    assert n == pytest.approx(100 * log(100 / 0.05) / (0.1 * 0.5), abs=1)


def test_laplace_noise_wins_up_to_about_root_n_queries_and_randomized_response_beyond() -> None:
    """k / n against sqrt(log k / n): the crossing moves with sqrt(n), up to the logarithm."""
    for n in (10**4, 10**6):
        response = RandomizedResponse(1, 2)

        def laplace(k: int, n: int = n) -> float:
            return laplace_error(k, n, 1.0, 0.05, k)

        def local(k: int, n: int = n, response: RandomizedResponse = response) -> float:
            return response_error(response, n, k, 0.05) / n

        few, many = int(0.2 * sqrt(n)), int(3 * sqrt(n))
        assert laplace(few) < local(few)
        assert laplace(many) > local(many)


def test_the_table_wins_when_queries_outnumber_the_root_of_the_cells() -> None:
    """The checkpoint: |Q| log |Q| against sqrt(|X|) log |Q|, both over n epsilon."""
    cells, n = 2**10, 10**5
    for k, is_better in ((20, False), (10**4, True)):
        by_query = laplace_error(k, n, 1, 0.05, k)
        assert (table_error(k, cells, n, 1, 0.05) < by_query) == is_better


def test_a_fair_enough_coin_estimates_a_bit_without_bias() -> None:
    """p = e^epsilon / (1 + e^epsilon) and 1/2 + (Y - 1/2)/(2p - 1), in the mean over the coin."""
    response = RandomizedResponse(1, 2)
    p = float(response.keep)
    assert p == pytest.approx(exp(1) / (1 + exp(1)))
    for bit in (0, 1):
        mean = p * (0.5 + (bit - 0.5) / (2 * p - 1)) + (1 - p) * (0.5 + (0.5 - bit) / (2 * p - 1))
        assert mean == pytest.approx(bit)


# Brown


def test_questions_1_to_3_have_the_errors_of_their_answers() -> None:
    """k thresholds that one record can all move, and a histogram, of which it moves two bins."""
    k, epsilon, n = 32, 0.5, 1000
    work = sf.product(sf.Domain({"u": k + 1}), {"u": np.tril(np.ones((k, k + 1)))})
    laplace = sf.plan(work, sf.Budget(epsilon=epsilon), "add-remove", mechanism="laplace")
    assert (laplace.rmse / n) ** 2 == pytest.approx(2 * k**2 / (epsilon * n) ** 2, rel=1e-3)
    prefixes = sf.prefixes(sf.Domain({"u": k + 1}), "u")
    gaussian = sf.plan(prefixes, sf.Budget(mu=epsilon), "replace-one", mechanism="gaussian")
    # The last of the k + 1 running totals is the number of records, one more query.
    assert (gaussian.rmse / n) ** 2 == pytest.approx((k + 1) / n**2 / epsilon**2, rel=1e-3)
    bins = sf.marginals(sf.Domain({"u": k}), 1)
    histogram = sf.plan(bins, sf.Budget(epsilon=epsilon), "replace-one", mechanism="laplace")
    # On the whole numbers: Var = 1 / (2 sinh^2(1 / (2 b))) at b = 2 / epsilon, 0.5% below 2 b^2.
    assert histogram.rmse == pytest.approx(1 / (sqrt(2) * sinh(epsilon / 4)), rel=1e-3)
    assert histogram.rmse < sqrt(2) * 2 / epsilon


def test_question_4_intervals_by_a_tree_err_by_a_power_of_the_logarithm() -> None:
    """From 64 to 4,096 cells: summing single cells errs 8 times as much, a tree 3 times at most."""
    errors = {}
    for d in (64, 4096):
        work = sf.ranges(sf.Domain({"u": d}), "u")
        for name in ("laplace-table", "laplace-tree"):
            errors[name, d] = sf.plan(work, sf.Budget(epsilon=1), mechanism=name).rmse
    assert errors["laplace-table", 4096] / errors["laplace-table", 64] == pytest.approx(8, rel=0.05)
    assert errors["laplace-tree", 4096] / errors["laplace-tree", 64] < 2**1.5
    assert errors["laplace-tree", 4096] < errors["laplace-table", 4096]
