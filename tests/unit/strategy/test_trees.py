"""The tree's closed forms against dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.strategy.trees import Tree
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

SIZES = [1, 2, 5, 8, 13, 27]
BRANCHINGS = [2, 3, 5]


def asked(n: int) -> list[QuerySet]:
    coefficients = np.random.default_rng(n).normal(size=(3, n))
    halves = Groups(n, "half", ("a", "b"), tuple(c % 2 for c in range(n)))
    some: list[QuerySet] = [Prefix(n), Ranges(n), Identity(n), Total(n), Windows(n, min(2, n))]
    return [*some, Matrix.of(coefficients), halves]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("b", BRANCHINGS)
def test_the_nodes_are_sums_of_cells_and_the_adjoint_is_the_transpose(n: int, b: int) -> None:
    tree = Tree(n, b)
    dense = tree.dense()
    y = np.random.default_rng(0).normal(size=tree.rows)
    assert dense.shape == (tree.rows, n)
    assert set(np.unique(dense)) <= {0.0, 1.0}
    np.testing.assert_allclose(tree.adjoint(y), dense.T @ y)
    np.testing.assert_allclose(tree.column_powers(2), (dense**2).sum(axis=0))
    np.testing.assert_allclose(tree.row_powers(1), dense.sum(axis=1))
    np.testing.assert_allclose(tree.coefficient_bounds(), (dense.min(axis=1), dense.max(axis=1)))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("b", BRANCHINGS)
def test_least_squares_and_variances_equal_the_pseudo_inverse(n: int, b: int) -> None:
    tree = Tree(n, b)
    whole = Tree(tree.padded, b).dense()
    normal_inverse = np.linalg.inv(whole.T @ whole)
    y = np.random.default_rng(1).normal(size=tree.rows)
    np.testing.assert_allclose(tree.least_squares(y), (normal_inverse @ whole.T @ y)[:n])
    for queries in asked(n):
        padded = np.zeros((queries.rows, tree.padded))
        padded[:, :n] = queries.dense()
        reconstruction = padded @ normal_inverse @ whole.T
        squares = (reconstruction**2).sum(axis=1)
        np.testing.assert_allclose(tree.row_variances(queries), squares, atol=1e-12)
        np.testing.assert_allclose(tree.total_variance(queries), squares.sum())
        fourths = (reconstruction**4).sum(axis=1)
        np.testing.assert_allclose(tree.row_fourths(queries), fourths, atol=1e-12)


def test_least_squares_recovers_the_cells_when_there_is_no_noise() -> None:
    tree = Tree(11, 3)
    cells = np.arange(11)
    np.testing.assert_allclose(tree.least_squares(tree.apply(cells).astype(float)), cells)


def test_the_binary_tree_on_prefixes_has_the_known_error() -> None:
    """Root mean square error of the consistent binary tree at unit noise, dense reference."""
    for n in (64, 256):
        tree = Tree(n, 2)
        dense = tree.dense()
        prefix = np.tril(np.ones((n, n)))
        reconstruction = prefix @ np.linalg.pinv(dense)
        expected = np.sqrt((reconstruction**2).sum() / n * (tree.height + 1))
        forecast = np.sqrt(tree.total_variance(Prefix(n)) / n * tree.column_powers(2).max())
        assert forecast == pytest.approx(expected, rel=1e-10)


def test_integers_stay_exact_beyond_the_floats() -> None:
    cells = np.array([2**60, 1, -(2**59), 3], dtype=np.int64)
    assert Tree(4, 2).apply(cells)[-1] == 2**60 + 1 - 2**59 + 3
