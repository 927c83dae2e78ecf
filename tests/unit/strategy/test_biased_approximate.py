# SPDX-License-Identifier: Apache-2.0
"""Approximate factorizations against semidefinite programs, brute force and random rivals."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.strategy.biased import (
    ApproximateFactorization,
    bounded_bias,
    least_worst_case,
    trade_off,
)
from sfumato.study.matrix_norms import factorize


def prefix(n: int) -> np.ndarray:
    return np.tril(np.ones((n, n)))


def signs(k: int, m: int, seed: int = 0) -> np.ndarray:
    return np.sign(np.random.default_rng(seed).normal(size=(k, m)))


def near_copies() -> np.ndarray:
    return 1 + 0.05 * np.random.default_rng(1).normal(size=(12, 8))


MATRICES = {
    "prefix": prefix(12),
    "signs": signs(20, 9),
    "near copies": near_copies(),
    "wide": (np.random.default_rng(2).random((4, 12)) < 0.4).astype(float),
    "rank deficient": np.repeat(prefix(5), 2, axis=0)[:, [0, 0, 1, 2, 3, 4]],
    "with an unasked cell": np.hstack([prefix(6), np.zeros((6, 1))]),
}


def semidefinite_gamma(matrix: np.ndarray, alpha: float) -> float:
    """By an interior point method: [[C, G], [G', X]] >= 0 says G = R M with tr C = |R|^2."""
    import cvxpy as cp

    k, m = matrix.shape
    joint = cp.Variable((k + m, k + m), PSD=True)
    near = joint[:k, k:]
    limits = [cp.diag(joint[k:, k:]) <= 1]
    limits += [cp.norm(near[:, j] - matrix[:, j]) <= alpha * sqrt(k) for j in range(m)]
    problem = cp.Problem(cp.Minimize(cp.trace(joint[:k, :k])), limits)
    problem.solve(solver="CLARABEL")
    return sqrt(max(problem.value, 0) / k)


def semidefinite_worst_case(matrix: np.ndarray, tau: float, is_best: bool = False) -> float:
    import cvxpy as cp

    k, m = matrix.shape
    joint = cp.Variable((k + m, k + m), PSD=True)
    bias, constant = cp.Variable(), cp.Variable(k)
    near = joint[:k, k:]
    limits = [cp.diag(joint[k:, k:]) <= 1]
    for j in range(m):
        moved = near[:, j] - matrix[:, j] + (constant if is_best else 0)
        limits.append(cp.norm(moved) <= bias)
    problem = cp.Problem(cp.Minimize(cp.square(bias) + tau * cp.trace(joint[:k, :k])), limits)
    problem.solve(solver="CLARABEL")
    return sqrt(problem.value / k)


def is_consistent(found: ApproximateFactorization, matrix: np.ndarray) -> bool:
    constant = 0 if found.offset is None else found.offset[:, None]
    return np.allclose(found.R @ found.M + constant - matrix, found.bias, atol=1e-10)


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("alpha", [0.02, 0.2])
def test_gamma_alpha_is_enclosed_and_equals_a_semidefinite_program(name: str, alpha: float) -> None:
    matrix = MATRICES[name]
    found = bounded_bias(matrix, alpha)
    exact = semidefinite_gamma(matrix, alpha)
    assert is_consistent(found, matrix)
    assert found.alpha <= alpha * (1 + 1e-9)
    assert found.certificate <= 1.0011
    assert found.lower_bound <= exact * (1 + 1e-5)
    assert found.gamma >= exact * (1 - 1e-5)


def conjunctions(d: int) -> np.ndarray:
    bits = np.arange(2**d)
    return ((bits[None, :] & bits[:, None]) == bits[:, None]).astype(float)


FAMILIES = {
    "prefix": prefix(48),
    "bits": np.random.default_rng(5).integers(0, 2, (40, 40)).astype(float),
    "signs": signs(40, 40),
    "conjunctions": conjunctions(5),
    "wide": np.random.default_rng(6).integers(0, 2, (12, 160)).astype(float),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_tolerance_is_obeyed_in_few_steps(name: str) -> None:
    """Each step is an eigenvalue problem; before the power grew some took over 2,000 steps."""
    matrix = FAMILIES[name]
    top = sqrt((matrix**2).mean(axis=0).max())
    for share in (0.001, 0.02, 0.3, 0.8):
        steps = [0]
        best = bounded_bias(
            matrix, share * top, 1e-4, progress=lambda step, _, s=steps: s.append(step)
        )
        assert 1 - 1e-9 <= best.certificate <= 1 + 1e-4
        assert best.alpha <= share * top * (1 + 1e-9)
        assert max(steps) < 1000


def test_a_tolerance_that_is_not_reached_is_refused() -> None:
    with pytest.raises(PlanError, match=r"within .*e-.* of the least, and not within 1e-15: ask"):
        bounded_bias(prefix(8), 0.1, 1e-15)
    with pytest.raises(PlanError, match="not within 1e-15"):
        least_worst_case(prefix(8), 0.1, tolerance=1e-15)
    for tolerance in (0, -1e-3, float("nan")):
        with pytest.raises(PlanError, match="tolerance is a relative error above 0"):
            bounded_bias(prefix(3), 0.1, tolerance)
    assert factorize(prefix(8), 1e-6, alpha=0.05).certificate <= 1 + 1e-6


def test_linear_algebra_runs_on_one_thread() -> None:
    from threadpoolctl import threadpool_info

    seen: list[int] = []

    def progress(step: int, gap: float) -> None:  # noqa: ARG001
        seen.extend(i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas")

    bounded_bias(prefix(6), 0.1, progress=progress)
    assert set(seen) == {1}


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("tau", [1e-3, 0.1, 2.0])
def test_the_least_worst_case_equals_a_semidefinite_program(name: str, tau: float) -> None:
    matrix = MATRICES[name]
    found = least_worst_case(matrix, tau)
    exact = semidefinite_worst_case(matrix, tau)
    assert is_consistent(found, matrix)
    assert found.certificate <= 1.0011
    assert found.lower_bound <= exact * (1 + 1e-5)
    assert found.worst_error() >= exact * (1 - 1e-5)


@pytest.mark.parametrize("name", ["prefix", "signs", "near copies", "wide"])
def test_the_best_constant_equals_a_semidefinite_program(name: str) -> None:
    matrix = MATRICES[name]
    found = least_worst_case(matrix, 0.1, "best")
    exact = semidefinite_worst_case(matrix, 0.1, is_best=True)
    assert is_consistent(found, matrix)
    assert found.certificate <= 1.0011
    assert found.lower_bound <= exact * (1 + 1e-5)
    assert found.worst_error() >= exact * (1 - 1e-5)


@pytest.mark.parametrize(
    ("matrix", "tau", "reached"),
    # What a prototype of the saddle point reached, and less than the best unbiased (0.571, 4.66).
    [(prefix(24), 0.1, 0.3684), (signs(60, 24), 1.0, 0.9765)],
)
def test_a_little_bias_saves_much_noise(matrix: np.ndarray, tau: float, reached: float) -> None:
    found = least_worst_case(matrix, tau)
    assert found.worst_error() <= reached
    assert found.worst_error() <= sqrt(tau) * factorize(matrix).lower_bound * 0.7
    assert found.certificate <= 1.0011


@pytest.mark.parametrize("name", MATRICES)
def test_without_bias_it_is_the_factorization_norm(name: str) -> None:
    matrix = MATRICES[name]
    found, plain = bounded_bias(matrix, 0.0), factorize(matrix)
    assert np.abs(found.bias).max() < 1e-9
    assert found.lower_bound <= plain.gamma * (1 + 1e-9)
    assert plain.lower_bound <= found.gamma * (1 + 1e-9)


def test_gamma_alpha_falls_to_zero_at_the_longest_column() -> None:
    matrix = signs(20, 9)
    found = [bounded_bias(matrix, a) for a in np.linspace(0, 1, 11)]
    for before, after in pairwise(found):
        assert after.lower_bound <= before.gamma
        assert after.gamma <= before.gamma
    assert found[-1].gamma == 0  # columns of signs have length sqrt(k)
    assert found[-1].alpha == pytest.approx(1)
    assert bounded_bias(matrix, 0.999).gamma > 0


def test_little_noise_needs_no_bias_and_much_noise_answers_zero() -> None:
    matrix = prefix(12)
    gamma = factorize(matrix).lower_bound
    little = least_worst_case(matrix, 1e-8)
    assert little.worst_error() == pytest.approx(1e-4 * gamma, rel=2e-3)
    much = least_worst_case(matrix, 1e8)
    assert much.worst_error() == pytest.approx(1.0, rel=2e-3)  # the last prefix counts every record


@pytest.mark.parametrize("offset", [None, "best", "guess"])
def test_no_data_set_is_answered_worse_than_stated(offset: str | None) -> None:
    """All histograms of 6 records on 4 cells, and some data set is as bad as stated."""
    matrix = prefix(4)
    guess = np.array([0.4, 0.3, 0.2, 0.1])
    found = least_worst_case(matrix, 0.2, guess if offset == "guess" else offset)
    n, noise = 6, 0.2 * 6**2  # the variance in counts at unit sensitivity
    constant = 0.0 if found.offset is None else found.offset
    errors = []
    for cells in combinations_with_replacement(range(4), n):
        h = np.bincount(cells, minlength=4).astype(float)
        bias = n * constant + found.R @ (found.M @ h) - matrix @ h
        covariance = noise * found.sensitivity**2 * found.R @ found.R.T
        errors.append(sqrt((bias @ bias + np.trace(covariance)) / 4))
    assert max(errors) == pytest.approx(found.worst_error(n), rel=1e-9)
    # Leaving the bias out of the statement would be noticed.
    assert max(errors) > n * sqrt(found.noise or 0) * found.gamma * 1.01


def test_a_guess_is_exact_when_nothing_can_be_measured() -> None:
    matrix = prefix(6)
    guess = np.full(6, 1 / 6)
    found = least_worst_case(matrix, 1e6, guess)
    assert found.offset == pytest.approx(matrix @ guess)
    assert found.gamma < 1e-3
    assert found.worst_error() < least_worst_case(matrix, 1e6).worst_error()
    best = least_worst_case(matrix, 1e6, "best")
    assert best.worst_error() <= found.worst_error()


@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.floats(1e-4, 10),
    st.integers(0, 2**32 - 1),
)
def test_no_random_mechanism_beats_the_lower_bounds(k: int, m: int, tau: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-2, 3, size=(k, m)).astype(float)
    if not matrix.any():
        matrix[0, 0] = 1
    found = least_worst_case(matrix, tau)
    assert found.lower_bound <= found.worst_error() * (1 + 1e-9)
    for _ in range(8):
        strategy = rng.normal(size=(rng.integers(1, 7), m))
        strategy /= np.sqrt((strategy**2).sum(axis=0).max())
        u = rng.dirichlet(np.ones(m))
        inner = (strategy * u) @ strategy.T + tau * np.eye(len(strategy))
        r = np.linalg.solve(inner, (strategy * u) @ matrix.T).T
        bias = ((r @ strategy - matrix) ** 2).sum(axis=0).max()
        alpha, gamma = sqrt(bias / k), sqrt((r**2).sum() / k)
        assert found.lower_bound <= sqrt(alpha**2 + tau * gamma**2) * (1 + 1e-9)
        assert bounded_bias(matrix, alpha).lower_bound <= gamma * (1 + 1e-9)


def test_a_broken_bound_that_forgets_the_bias_would_be_noticed() -> None:
    """The unbiased optimum at this noise is no lower bound on biased mechanisms."""
    matrix = prefix(24)
    wrong = sqrt(0.1) * factorize(matrix).lower_bound
    assert least_worst_case(matrix, 0.1).worst_error() < wrong


def test_progress_tells_the_gap() -> None:
    seen: list[tuple[int, float]] = []
    least_worst_case(prefix(8), 0.1, progress=lambda step, gap: seen.append((step, gap)))
    assert seen
    assert seen[-1][1] <= 1e-3


def test_what_does_not_fit_is_refused_with_the_way_out() -> None:
    with pytest.raises(PlanError, match="must be above 0, got 0"):
        least_worst_case(prefix(3), 0)
    with pytest.raises(PlanError, match="at least 0, got -1"):
        bounded_bias(prefix(3), -1)
    with pytest.raises(PlanError, match="each of the 3 cells"):
        least_worst_case(prefix(3), 1.0, np.array([0.5, 0.6, 0.2]))
    with pytest.raises(PlanError, match="'best', got 'none'"):
        least_worst_case(prefix(3), 1.0, "none")  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="row per query"):
        bounded_bias(np.zeros(3), 0.1)
    with pytest.raises(WorkloadError, match="not all of them zero"):
        bounded_bias(np.zeros((3, 2)), 0.1)
    with pytest.raises(TooLarge, match="coarser cells"):
        bounded_bias(np.ones((1, 2**24 + 1), dtype=np.int8), 0.1)


def test_the_trade_off_is_never_below_the_least_worst_case_and_comes_near_it() -> None:
    matrix, tau = prefix(10), 0.05
    best = least_worst_case(matrix, tau)
    curve = trade_off(matrix, tau, np.linspace(0, 1, 41).tolist())
    errors = [error for _, error in curve]
    assert min(errors) >= best.lower_bound
    assert min(errors) <= best.worst_error() * 1.01
    assert errors[-1] == pytest.approx(1.0)
