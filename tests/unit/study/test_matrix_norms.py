"""Factorizations of given matrices: exact, certified, and equal to the known optima."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import sfumato as sf
from sfumato.errors import PlanError, TooLarge, WorkloadError


def random_predicates(k: int, m: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random((k, m)) < 0.4).astype(float)


MATRICES = {
    "prefix": np.tril(np.ones((32, 32))),
    "wide": random_predicates(15, 80),
    "tall": random_predicates(90, 20),
    "copies": np.repeat(random_predicates(4, 30), 7, axis=0),
    "deficient": np.vstack([np.eye(6), np.ones((1, 6)), np.eye(6)[:3] + np.eye(6)[3:]]),
    "zero columns": np.hstack([np.eye(5), np.zeros((5, 3))]),
    "signed": np.random.default_rng(1).normal(size=(12, 9)),
    "ill-conditioned": np.vander(np.linspace(0.5, 1, 12), 8),
}


@pytest.mark.parametrize("name", MATRICES)
def test_the_product_is_the_matrix_and_the_certificate_holds(name: str) -> None:
    matrix = MATRICES[name]
    found = sf.factorize(matrix)
    assert np.abs(found.R @ found.M - matrix).max() <= 1e-9 * np.abs(matrix).max()
    assert 1 <= found.certificate <= 1.0002
    assert found.sensitivity == pytest.approx(np.linalg.norm(found.M, axis=0).max())
    assert found.gamma == pytest.approx(
        np.linalg.norm(found.R) * found.sensitivity / np.sqrt(len(matrix))
    )
    bound = np.linalg.svd(matrix, compute_uv=False).sum() / np.sqrt(matrix.size)
    assert found.lower_bound >= bound * (1 - 1e-9), "no worse than the singular value bound"


def test_copies_of_one_query_have_gamma_1() -> None:
    one = np.array([[1.0, 1, 0, 0, 1]])
    found = sf.factorize(np.repeat(one, 4, axis=0))
    assert found.gamma == pytest.approx(1.0)
    assert len(found.M) == 1


def test_sparse_matrices_and_workloads_are_taken() -> None:
    matrix = MATRICES["wide"]
    assert sf.factorize(csr_matrix(matrix)).gamma == pytest.approx(sf.factorize(matrix).gamma)
    domain = sf.Domain({"x": 64})
    assert sf.factorize(sf.prefixes(domain, "x")).gamma == pytest.approx(2.0999, abs=5e-4)


def test_the_planner_reaches_the_same_error() -> None:
    domain = sf.Domain({"a": 6, "b": 4})
    work = sf.prefixes(domain, "a", by=["b"]) | sf.marginals(domain, 1)
    plan = sf.plan(work, sf.Budget(mu=1), mechanism="factorization")
    best = sf.factorize(work.normal.workload).gamma  # every query once
    assert plan.forecast.in_normal_form.gamma == pytest.approx(best, rel=2e-4)


@pytest.mark.parametrize("bad", [np.zeros((2, 3)), np.ones(3), np.array([["a"]]), [[np.nan]]])
def test_what_is_no_matrix_of_queries_is_refused(bad: object) -> None:
    with pytest.raises(WorkloadError):
        sf.factorize(bad)


def test_what_does_not_fit_is_refused_at_once() -> None:
    domain = sf.Domain({"x": 10**6})
    with pytest.raises(TooLarge, match=r"sf\.plan"):
        sf.factorize(sf.prefixes(domain, "x"))


@pytest.mark.parametrize("name", MATRICES)
def test_the_largest_error_is_certified(name: str) -> None:
    matrix = MATRICES[name]
    found = sf.factorize(matrix, objective="max")
    assert np.abs(found.R @ found.M - matrix).max() <= 1e-9 * np.abs(matrix).max()
    assert 1 <= found.certificate <= 1.0002
    rows = np.linalg.norm(found.R, axis=1).max()
    assert found.gamma == pytest.approx(rows * np.linalg.norm(found.M, axis=0).max())
    mean = sf.factorize(matrix)
    assert found.gamma <= np.sqrt(mean.variances.max()) * (1 + 2e-4)
    assert found.gamma >= mean.lower_bound * (1 - 1e-9)


def test_copies_of_one_query_have_largest_error_1() -> None:
    found = sf.factorize(np.repeat([[1.0, 1, 0, 0, 1]], 4, axis=0), objective="max")
    assert found.gamma == pytest.approx(1.0)


@pytest.mark.parametrize("objective", ["rmse", "max"])
def test_weights_say_what_matters(objective: str) -> None:
    matrix = np.vstack([np.tril(np.ones((12, 12))), np.eye(12)])
    weights = np.repeat([1.0, 5.0], 12)
    plain = sf.factorize(matrix, objective=objective)
    found = sf.factorize(matrix, objective=objective, weights=weights)
    assert np.abs(found.R @ found.M - matrix).max() <= 1e-9
    assert 1 <= found.certificate <= 1.0002
    assert found.variances[12:].mean() < plain.variances[12:].mean()
    scaled = sf.factorize(matrix * weights[:, None], objective=objective)
    norm = np.sqrt(24 / (weights**2).sum()) if objective == "rmse" else 1.0
    assert found.gamma == pytest.approx(scaled.gamma * norm, rel=3e-4)


def test_integer_weights_are_copies() -> None:
    matrix = random_predicates(8, 12)
    copies = np.array([1, 2, 3, 1, 1, 2, 1, 5])
    weighted = sf.factorize(matrix, weights=np.sqrt(copies))
    repeated = sf.factorize(np.repeat(matrix, copies, axis=0))
    assert weighted.gamma == pytest.approx(repeated.gamma, rel=3e-4)


def test_blocks_that_share_no_cell_are_solved_apart() -> None:
    one, two = np.tril(np.ones((10, 10))), random_predicates(6, 9)
    both = np.zeros((16, 19))
    both[:10, :10], both[10:, 10:] = one, two
    for objective in ("rmse", "max"):
        found = sf.factorize(both, objective=objective)
        parts = [sf.factorize(m, objective=objective) for m in (one, two)]
        if objective == "max":
            assert found.gamma == pytest.approx(max(p.gamma for p in parts), rel=3e-4)
        else:
            summed = 10 * parts[0].gamma ** 2 + 6 * parts[1].gamma ** 2
            assert 16 * found.gamma**2 == pytest.approx(summed, rel=6e-4)
        assert not found.M[:, :10].any(axis=1)[found.M[:, 10:].any(axis=1)].any()


def test_many_more_cells_than_queries_are_solved_on_those_that_matter() -> None:
    matrix = (np.random.default_rng(4).random((14, 9000)) < 0.4).astype(float)
    matrix = np.unique(matrix, axis=1)
    assert matrix.shape[1] > 3000
    for objective in ("rmse", "max"):
        found = sf.factorize(matrix, objective=objective)
        assert np.abs(found.R @ found.M - matrix).max() <= 1e-9
        assert 1 <= found.certificate <= 1.0002


@pytest.mark.parametrize(
    "weights", [[1.0, 2], np.full(15, -1.0), np.full(15, np.nan), np.zeros(15), ["a"] * 15]
)
def test_weights_that_are_none_are_refused(weights: object) -> None:
    with pytest.raises(WorkloadError, match="weight"):
        sf.factorize(MATRICES["wide"], weights=weights)  # type: ignore[arg-type]


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(PlanError, match="objective"):
        sf.factorize(np.eye(3), objective="mean")  # type: ignore[arg-type]


def test_great_sparse_matrices_are_refused_before_they_are_filled() -> None:
    with pytest.raises(TooLarge, match="GiB"):
        sf.factorize(csr_matrix((10**6, 10**6)))


def test_a_workload_of_one_query_on_many_cells_is_taken() -> None:
    domain = sf.Domain({"x": 200_000})
    found = sf.factorize(sf.marginals(domain, [()]))
    assert found.gamma == pytest.approx(1.0)


def test_a_bias_may_be_allowed_or_traded_against_noise() -> None:
    matrix = MATRICES["prefix"]
    exact = sf.factorize(matrix)
    biased = sf.factorize(matrix, alpha=0.3)
    assert biased.gamma < exact.gamma
    assert biased.certificate <= 1.01
    traded = sf.factorize(matrix, noise=0.1)
    assert traded.certificate <= 1.01
    assert traded.worst_error() <= exact.gamma * np.sqrt(0.1) * (1 + 1e-9)
    guessed = sf.factorize(matrix, noise=0.1, offset="best")
    assert guessed.worst_error() <= traded.worst_error() * 1.001


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 0.1, "noise": 0.1},
        {"alpha": 0.1, "offset": "best"},
        {"offset": "best"},
        {"alpha": 0.1, "objective": "max"},
        {"noise": 0.1, "weights": np.ones(32)},
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        sf.factorize(MATRICES["prefix"], **options)  # type: ignore[call-overload]


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_numbers_whose_squares_are_no_floats_are_refused(size: float) -> None:
    with pytest.raises(WorkloadError, match="scale the queries"):
        sf.factorize(np.array([[1.0, size], [1.0, 0.0]]))


def test_a_query_that_is_lost_beside_larger_ones_is_refused() -> None:
    """R M would read the second as a part of the first, off by a tenth of itself."""
    with pytest.raises(PlanError, match="of a query"):
        sf.factorize(np.array([[1e12, 1e11], [1.0, 0.0]]))
    found = sf.factorize(np.array([[1e5, 1e4], [1.0, 0.0]]))
    np.testing.assert_allclose(found.R @ found.M, [[1e5, 1e4], [1.0, 0.0]], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["prefix", "wide", "signed"])
def test_the_norms_by_name_are_those_of_the_factorizations(name: str) -> None:
    matrix = MATRICES[name]
    norm = sf.study.factorization_norm(matrix)
    assert float(norm) == sf.factorize(matrix).gamma
    assert norm.lower_bound <= norm.value <= norm.lower_bound * 1.0002
    biased = sf.study.approximate_factorization_norm(matrix, 0.1)
    assert biased.value < norm.value
    assert biased.lower_bound <= biased.value * (1 + 1e-9)
    away = biased.factorization.R @ biased.factorization.M - matrix
    assert np.linalg.norm(away, axis=0).max() <= 0.1 * np.sqrt(len(matrix)) * (1 + 1e-6)
    same = sf.study.approximate_factorization_norm(matrix, 0)
    assert same.value == pytest.approx(norm.value, rel=2e-3)
    assert "gamma_0.1" in repr(biased)
    nothing = sf.study.approximate_factorization_norm(matrix, float(np.abs(matrix).max()))
    assert (nothing.value, nothing.certificate) == (0.0, 1.0)
