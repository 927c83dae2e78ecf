"""Every solver is judged by its certificate, and the certificate by independent means."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.solve.nuclear import certified_optimum
from sfumato.solve.tridiagonal import Tridiagonal, inverse_gram, root_diagonal
from sfumato.workload.queries import Prefix, QuerySet, Ranges, Windows


def dense_root_diagonal(gram: np.ndarray):  # type: ignore[no-untyped-def]
    def evaluate(v: np.ndarray) -> np.ndarray:
        root = np.sqrt(v)
        values, vectors = np.linalg.eigh(gram * np.outer(root, root))
        values = np.where(values > values[-1] * len(values) * 2.0**-50, values, 0)
        return np.asarray((vectors**2) @ np.sqrt(values))

    return evaluate


def singular_value_bound(matrix: np.ndarray) -> float:
    """Li and Miklau 2013: (sum of singular values)^2 / cells <= k gamma^2."""
    return float(np.linalg.svd(matrix, compute_uv=False).sum() ** 2 / matrix.shape[1])


@pytest.mark.parametrize(
    ("queries", "known"),
    # The optima on record for these workloads (root mean square error at unit noise).
    [
        (Prefix(64), 2.0999),
        (Ranges(64), 2.3022),
        (Windows(64, 32), 2.0584),
        (Prefix(256), 2.5244),
        (Ranges(256), 2.9014),
    ],
)
def test_the_dense_optimum_is_certified_and_equals_the_known_one(
    queries: QuerySet, known: float
) -> None:
    found = certified_optimum(dense_root_diagonal(queries.gram()), queries.size)
    assert found.certificate <= 1.0001
    assert np.sqrt(found.upper / queries.rows) == pytest.approx(known, rel=2e-4)
    assert found.upper >= found.lower


@pytest.mark.parametrize("shape", [(40, 60), (60, 40), (30, 200)])
def test_random_predicates_are_certified_and_the_bound_beats_the_singular_values(
    shape: tuple[int, int],
) -> None:
    matrix = (np.random.default_rng(5).random(shape) < 0.3).astype(float)
    found = certified_optimum(dense_root_diagonal(matrix.T @ matrix), shape[1], tolerance=1e-3)
    assert found.certificate <= 1.001
    assert found.lower >= singular_value_bound(matrix) * (1 - 1e-9)


def test_the_bound_holds_for_every_strategy_tried() -> None:
    """No random factorization, nor the workload or the identity, beats the certified bound."""
    rng = np.random.default_rng(6)
    prefix = np.tril(np.ones((12, 12)))
    found = certified_optimum(dense_root_diagonal(prefix.T @ prefix), 12)
    tries = [np.eye(12), prefix, *(rng.normal(size=(12, 12)) for _ in range(200))]
    for strategy in tries:
        columns = (strategy**2).sum(axis=0).max()
        error = (np.linalg.solve(strategy.T, prefix.T) ** 2).sum() * columns
        assert error >= found.lower * (1 - 1e-9)


def test_the_bound_agrees_with_a_semidefinite_program() -> None:
    """min tr(V X^-1), X_jj <= 1, by an independent solver."""
    cp = pytest.importorskip("cvxpy")
    matrix = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 1, 1.0], [1, 0, 0, 0]])
    x = cp.Variable((4, 4), PSD=True)
    objective = sum(cp.matrix_frac(row, x) for row in matrix)
    problem = cp.Problem(cp.Minimize(objective), [cp.diag(x) <= 1])
    problem.solve()
    found = certified_optimum(dense_root_diagonal(matrix.T @ matrix), 4, tolerance=1e-6)
    assert found.lower == pytest.approx(problem.value, rel=1e-4)
    assert found.upper == pytest.approx(problem.value, rel=1e-4)


@pytest.mark.parametrize("queries", [Prefix(2), Prefix(33), Ranges(2), Ranges(33)])
def test_the_inverse_gram_is_tridiagonal(queries: QuerySet) -> None:
    known = inverse_gram(queries)
    assert known is not None
    inverse, diagonal = known
    np.testing.assert_allclose(inverse.dense() @ queries.gram(), np.eye(queries.size), atol=1e-10)
    np.testing.assert_allclose(diagonal, np.diag(queries.gram()))


@pytest.mark.parametrize("queries", [Prefix(50), Ranges(50)])
def test_the_tridiagonal_root_equals_the_dense_one(queries: QuerySet) -> None:
    known = inverse_gram(queries)
    assert known is not None
    v = np.random.default_rng(7).uniform(0.1, 3, size=50)
    fast = root_diagonal(*known)(v)
    np.testing.assert_allclose(fast, dense_root_diagonal(queries.gram())(v), rtol=1e-8)


@pytest.mark.parametrize("queries", [Prefix(5000), Ranges(5000)])
def test_thousands_of_cells_are_certified_in_linear_time(queries: QuerySet) -> None:
    known = inverse_gram(queries)
    assert known is not None
    found = certified_optimum(root_diagonal(*known), queries.size, all_bind=True)
    assert found.certificate <= 1.0001


def test_windows_have_no_tridiagonal_inverse() -> None:
    assert inverse_gram(Windows(9, 2)) is None


def test_gershgorin_bounds_the_spectrum() -> None:
    t = Tridiagonal(np.array([2.0, 5.0, 1.0]), np.array([-1.0, 3.0]))
    assert t.maximum_bound() >= np.linalg.eigvalsh(t.dense()).max()
