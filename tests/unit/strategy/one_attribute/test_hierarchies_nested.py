# SPDX-License-Identifier: Apache-2.0
"""Weights of the nodes of trees: passes against matrices, errors against the dense optimum."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

import sfumato as sf
from sfumato.solve.kernels import (
    depths,
    error_and_slopes,
    longest_apart,
    nested_powers,
    solved,
    spans,
    variances,
)
from sfumato.strategy.one_attribute.hierarchies import (
    nested_bound,
    nested_optimum,
    nested_variances,
)


def tree(seed: int, depth: int, fewest: int, most: int) -> np.ndarray:
    """The parents of a tree whose nodes have between ``fewest`` and ``most`` children."""
    random = np.random.default_rng(seed)
    parents, level = [-1], [0]
    for _ in range(depth):
        children = []
        for node in level:
            for _ in range(int(random.integers(fewest, most + 1))):
                children.append(len(parents))
                parents.append(node)
        level = children
    return np.array(parents)


def members(parent: np.ndarray) -> np.ndarray:
    """Nodes by leaves: which leaves every node holds."""
    is_leaf = np.ones(len(parent), dtype=bool)
    is_leaf[parent[1:]] = False
    out = np.zeros((len(parent), int(is_leaf.sum())))
    for column, leaf in enumerate(np.flatnonzero(is_leaf).tolist()):
        node = leaf
        while node >= 0:
            out[node, column] = 1
            node = int(parent[node])
    return out


TREES = [(0, 2, 2, 5), (1, 3, 1, 4), (2, 3, 2, 3), (3, 1, 7, 7), (4, 4, 1, 3)]


@pytest.fixture(params=TREES, ids=str)
def parent(request: pytest.FixtureRequest) -> np.ndarray:
    return tree(*request.param)


def energies(parent: np.ndarray) -> np.ndarray:
    """Squared weights from 0.1 to 10; one inner node is not asked for."""
    out = 10.0 ** np.random.default_rng(9).uniform(-1, 1, len(parent))
    out[0] = 0
    return out


def random_splits(parent: np.ndarray) -> np.ndarray:
    splits = np.random.default_rng(5).uniform(0.1, 0.9, len(parent))
    is_leaf = np.ones(len(parent), dtype=bool)
    is_leaf[parent[1:]] = False
    splits[is_leaf] = 0
    return splits


def test_powers_add_up_to_one_along_every_path(parent: np.ndarray) -> None:
    powers = nested_powers(parent, random_splits(parent))
    assert np.allclose(powers @ members(parent), 1)


def test_variances_are_those_of_the_inverse_matrix(parent: np.ndarray) -> None:
    nodes, powers = members(parent), nested_powers(parent, random_splits(parent))
    inverse = np.linalg.inv((nodes.T * powers) @ nodes)
    assert np.allclose(nested_variances(parent, powers), np.diag(nodes @ inverse @ nodes.T))


def test_estimates_are_those_of_the_inverse_matrix(parent: np.ndarray) -> None:
    nodes, powers = members(parent), nested_powers(parent, random_splits(parent))
    g, q, _ = variances(parent, powers)
    right = np.random.default_rng(3).normal(size=(len(parent), 2))
    expected = nodes @ np.linalg.solve((nodes.T * powers) @ nodes, nodes.T @ right)
    assert np.allclose(solved(parent, g, q, right), expected)


def test_slopes_are_those_of_small_steps(parent: np.ndarray) -> None:
    splits, energy = random_splits(parent), energies(parent)
    error, slopes = error_and_slopes(parent, energy, splits)
    for node in np.flatnonzero(splits).tolist():
        moved = splits.copy()
        moved[node] += 1e-6
        step = (error_and_slopes(parent, energy, moved)[0] - error) / 1e-6
        assert slopes[node] == pytest.approx(step, rel=1e-3, abs=1e-4 * error)


def test_nodes_hold_the_leaves_between_their_first_and_last(parent: np.ndarray) -> None:
    nodes, (first, last) = members(parent), spans(parent)
    assert np.array_equal(last - first + 1, nodes.sum(axis=1))
    places = first[~np.isin(np.arange(len(parent)), parent)]
    inside = (places >= first[:, None]) & (places <= last[:, None])
    assert np.array_equal(inside, nodes > 0)


def test_two_paths_apart_and_depths_are_those_of_the_columns(parent: np.ndarray) -> None:
    nodes, powers = members(parent), nested_powers(parent, random_splits(parent))
    gram = (nodes.T * powers) @ nodes
    own = np.diag(gram)
    farthest = (own[:, None] + own[None, :] - 2 * gram).max()
    assert longest_apart(parent, powers) == pytest.approx(farthest)
    above = [int(((nodes * nodes[u]).sum(axis=1) == nodes[u].sum()).sum()) for u in range(3)]
    assert depths(parent)[0] == 0
    assert all(depths(parent)[u] <= above[u] for u in range(min(3, len(parent))))


@pytest.mark.parametrize("shape", TREES, ids=str)
def test_the_dense_optimum_lies_between_bound_and_error(shape: tuple[int, int, int, int]) -> None:
    parent = tree(*shape)
    energy = 10.0 ** np.random.default_rng(9).uniform(-1, 1, len(parent))
    optimum = nested_optimum(parent, energy)
    queries = np.sqrt(energy)[:, None] * members(parent)
    dense = sf.factorize(queries)
    least = dense.gamma * sqrt(len(queries))
    assert sqrt(optimum.bound) <= least * (1 + 1e-6)
    assert sqrt(optimum.error) >= dense.lower_bound * sqrt(len(queries)) * (1 - 1e-6)
    assert sqrt(optimum.error / optimum.bound) <= 1.1  # energies are up to a hundred times apart


@pytest.mark.parametrize("shape", TREES, ids=str)
@pytest.mark.parametrize("ratio", [0.2, 1.0, 9.0])
def test_levels_of_irregular_trees_are_within_half_a_percent(
    shape: tuple[int, int, int, int], ratio: float
) -> None:
    """All nodes of a depth are asked alike, as levels are; ``ratio`` is between two depths."""
    parent = tree(*shape)
    optimum = nested_optimum(parent, ratio ** depths(parent).astype(float))
    assert 1 - 1e-6 <= sqrt(optimum.error / optimum.bound) <= 1.005


def test_trees_with_equal_levels_are_at_the_optimum() -> None:
    for children in ((4, 4, 4), (10, 3), (2, 5, 2)):
        parents, level = [-1], [0]
        for count in children:
            level = [len(parents) + i for i in range(len(level) * count)]
            before = (
                [0]
                if len(level) == count
                else list(range(level[0] - len(level) // count, level[0]))
            )
            parents += [node for node in before for _ in range(count)]
        parent = np.array(parents)
        optimum = nested_optimum(parent, np.ones(len(parent)))
        assert sqrt(optimum.error / optimum.bound) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("parent", "energy"),
    [
        ([-1, 0, 0, 0], [1, 1, 1, 0]),
        ([-1, 0, 0, 1, 1, 1, 2, 2, 2, 2], [0, 1, 1, 1, 1, 0, 1, 1, 1, 0]),
        ([-1, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1]),
    ],
    ids=["one region", "two regions", "in part"],
)
def test_leaves_that_nobody_asks_for_keep_the_bound_true(
    parent: list[int], energy: list[float]
) -> None:
    """Cells of a region that are in none of its groups: weights of nodes alone lose up to 10%."""
    nodes, squares = np.array(parent), np.array(energy, dtype=float)
    optimum = nested_optimum(nodes, squares)
    queries = members(nodes)[squares > 0]
    dense = sf.factorize(queries)
    least = dense.gamma * sqrt(len(queries))
    assert sqrt(optimum.bound) <= least * (1 + 1e-6)
    assert least * (1 - 1e-4) <= sqrt(optimum.error) <= 1.15 * least
    assert sqrt(optimum.error / optimum.bound) <= 1.15
    assert nested_bound(nodes, squares) == optimum.bound


def test_a_single_node_is_measured_as_it_is() -> None:
    optimum = nested_optimum(np.array([-1]), np.array([4.0]))
    assert optimum.error == 4
    assert optimum.bound == pytest.approx(4, rel=1e-6)
