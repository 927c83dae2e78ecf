# SPDX-License-Identifier: Apache-2.0
"""Weighted trees and wavelets: closed forms against dense linear algebra, weights by search."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import PlanError
from sfumato.strategy.measured import Levels, energies
from sfumato.strategy.trees import (
    Tree,
    Wavelet,
    WeightedTree,
    best_tree,
    best_wavelet,
    best_weights,
)
from sfumato.workload.queries import (
    Groups,
    Identity,
    Matrix,
    Prefix,
    QuerySet,
    Ranges,
    Total,
    Windows,
)

STRATEGIES = [
    Wavelet(1, (3,)),
    Wavelet(2, (2, 5)),
    Wavelet(8, (4, 3, 2, 1)),
    Wavelet(13, (7, 1, 3, 2, 5)),
    WeightedTree(1, (1,), (4,)),
    WeightedTree(9, (1, 3, 9), (3, 2, 1)),
    WeightedTree(11, (1, 4), (5, 3)),
    WeightedTree(13, (1, 2, 6), (1, 7, 2)),
    WeightedTree(10, (1, 5, 20), (2, 3, 1)),
    Tree(11, 3),
]


def asked(n: int) -> list[QuerySet]:
    coefficients = np.random.default_rng(n).normal(size=(3, n))
    thirds = Groups(n, "third", ("a", "b", "c"), tuple(c % 3 for c in range(n)))
    some: list[QuerySet] = [Prefix(n), Ranges(n), Identity(n), Total(n), Windows(n, min(3, n))]
    return [*some, Matrix.of(coefficients), thirds]


def padded_dense(strategy: Levels) -> np.ndarray:
    """The matrix on all leaves, padding included."""
    return np.asarray(strategy._measured(np.eye(strategy.padded)))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: f"{s.name} on {s.size}")
def test_the_matrix_is_what_the_strategy_says_of_itself(strategy: Levels) -> None:
    dense = strategy.dense()
    y = np.random.default_rng(0).normal(size=(strategy.rows, 2))
    assert dense.shape == (strategy.rows, strategy.size)
    np.testing.assert_allclose(dense, padded_dense(strategy)[:, : strategy.size])
    np.testing.assert_allclose(strategy.adjoint(y), dense.T @ y)
    for p in (1, 2, 4):
        np.testing.assert_allclose(strategy.column_powers(p), (np.abs(dense) ** p).sum(axis=0))
        np.testing.assert_allclose(strategy.row_powers(p), (np.abs(dense) ** p).sum(axis=1))
    np.testing.assert_allclose(
        strategy.coefficient_bounds(), (dense.min(axis=1), dense.max(axis=1))
    )
    assert strategy.greatest == np.abs(dense).max()
    assert strategy.is_nonnegative == bool((dense >= 0).all())
    gram = dense.T @ dense
    low, high = strategy.inner_products()
    assert low <= gram.min()
    assert high == gram.max()


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: f"{s.name} on {s.size}")
def test_estimates_variances_and_fourth_powers_equal_the_pseudo_inverse(strategy: Levels) -> None:
    whole = padded_dense(strategy)
    inverse = np.linalg.inv(whole.T @ whole) @ whole.T
    y = np.random.default_rng(1).normal(size=strategy.rows)
    np.testing.assert_allclose(strategy.least_squares(y), (inverse @ y)[: strategy.size])
    c = np.random.default_rng(2).normal(size=(strategy.size, 2))
    np.testing.assert_allclose(strategy.transposed(c), inverse[: strategy.size].T @ c, atol=1e-12)
    for queries in asked(strategy.size):
        padded = np.zeros((queries.rows, strategy.padded))
        padded[:, : strategy.size] = queries.dense()
        rows = padded @ inverse
        squares, fourths = (rows**2).sum(axis=1), (rows**4).sum(axis=1)
        np.testing.assert_allclose(strategy.row_variances(queries), squares, atol=1e-12)
        np.testing.assert_allclose(strategy.total_variance(queries), squares.sum(), rtol=1e-9)
        np.testing.assert_allclose(strategy.row_fourths(queries), fourths, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 7, 24, 50])
@pytest.mark.parametrize("width", [1, 2, 3, 8, 60])
def test_energies_are_those_of_the_averaged_queries(n: int, width: int) -> None:
    leaves = -(-n // width) * width
    average = np.kron(np.eye(leaves // width), np.full((width, width), 1 / width))
    for queries in asked(n):
        padded = np.zeros((queries.rows, leaves))
        padded[:, :n] = queries.dense()
        expected = ((padded @ average) ** 2).sum()
        np.testing.assert_allclose(energies(queries, (width,))[0], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("p", [1, 2])
def test_no_other_weights_of_a_wavelet_err_less(p: int) -> None:
    queries = [(2.0, Prefix(20)), (0.5, Ranges(20))]
    best = best_wavelet(queries, p)

    def error(weights: np.ndarray) -> float:
        scaled = Wavelet(20, tuple(int(w) for w in np.maximum(np.rint(weights), 1)))
        total = sum(c * scaled.total_variance(q) for c, q in queries)
        return total * float(scaled.column_powers(p).max()) ** (2 / p)

    least = error(np.array(best.weights))
    rng = np.random.default_rng(2)
    for _ in range(200):
        other = np.array(best.weights) * np.exp(0.3 * rng.normal(size=len(best.weights)))
        assert least <= error(other) * (1 + 1e-5)


@pytest.mark.parametrize("p", [1, 2])
def test_level_weights_are_a_minimum(p: int) -> None:
    widths = (1, 4, 16, 64)
    energy = energies(Prefix(50), widths)
    value, best = best_weights(energy, widths, p)

    def error(w: np.ndarray) -> float:
        details = energy - np.append(energy[1:], 0.0)
        parts = details / np.cumsum(w**2 * np.array(widths))
        return float(parts.sum() * (w**p).sum() ** (2 / p))

    assert error(best) == pytest.approx(value)
    rng = np.random.default_rng(3)
    for _ in range(300):
        other = np.abs(best + 0.05 * rng.normal(size=4))
        assert value <= error(other) * (1 + 1e-6)


@pytest.mark.parametrize("queries", [Prefix(60), Ranges(60), Windows(60, 9)])
@pytest.mark.parametrize("p", [1, 2])
def test_the_weighted_tree_is_no_worse_than_any_uniform_tree(queries: QuerySet, p: int) -> None:
    def error(strategy: Levels) -> float:
        norm = float(strategy.column_powers(p).max())
        return strategy.total_variance(queries) * norm ** (2 / p)

    best = error(best_tree([(1.0, queries)], p))
    for b in range(2, 17):
        assert best <= error(Tree(60, b)) * (1 + 1e-4)


def test_under_l2_a_binary_tree_with_weights_has_the_spectrum_of_a_wavelet() -> None:
    """``c^2 = lambda / norm of the row``: the same errors at the same column norm."""
    tree = WeightedTree(16, (1, 2, 4, 8, 16), (5, 4, 3, 2, 1))
    norms = np.array([2.0, 4.0, 8.0, 16.0, 16.0])
    squares = np.array(tree.eigenvalues) / norms
    assert squares.sum() == pytest.approx(sum(w**2 for w in tree.weights))


def test_a_million_cells_need_no_matrix() -> None:
    tree = WeightedTree(10**6, (1, 16, 192, 2304), (4, 3, 3, 5))
    counts = np.zeros(10**6, dtype=np.int64)
    counts[::1000] = 7
    np.testing.assert_allclose(
        tree.least_squares(tree.apply(counts).astype(float)), counts, atol=1e-8
    )
    assert len(tree.row_fourths(Windows(10**6, 1000))) == 999_001


def test_integers_stay_exact_beyond_the_floats() -> None:
    cells = np.array([2**55, 1, -(2**54), 3], dtype=np.int64)
    assert Wavelet(4, (1, 1, 3)).apply(cells)[-1] == 3 * (2**55 + 1 - 2**54 + 3)
    assert WeightedTree(4, (1, 4), (1, 3)).apply(cells)[-1] == 3 * (2**55 + 1 - 2**54 + 3)


@pytest.mark.parametrize(
    ("widths", "weights"), [((2, 4), (1, 1)), ((1, 2, 3), (1, 1, 1)), ((1, 2), (1,)), ((1,), (0,))]
)
def test_levels_that_are_not_nested_are_refused(widths: tuple, weights: tuple) -> None:
    with pytest.raises(PlanError, match="each dividing the next"):
        WeightedTree(8, widths, weights)


def test_a_wavelet_with_missing_weights_is_refused() -> None:
    with pytest.raises(PlanError, match="needs 4 weights"):
        Wavelet(8, (1, 1))
