"""Factorizations of given matrices: exact, certified, and equal to the known optima."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import sfumato as sf
from sfumato.errors import TooLarge, WorkloadError


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
    assert plan.gamma == pytest.approx(sf.factorize(work).gamma, rel=2e-4)


@pytest.mark.parametrize("bad", [np.zeros((2, 3)), np.ones(3), np.array([["a"]]), [[np.nan]]])
def test_what_is_no_matrix_of_queries_is_refused(bad: object) -> None:
    with pytest.raises(WorkloadError):
        sf.factorize(bad)


def test_what_does_not_fit_is_refused_at_once() -> None:
    domain = sf.Domain({"x": 10**6})
    with pytest.raises(TooLarge, match=r"sf\.plan"):
        sf.factorize(sf.prefixes(domain, "x"))
