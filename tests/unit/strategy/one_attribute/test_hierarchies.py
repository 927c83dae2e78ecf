# SPDX-License-Identifier: Apache-2.0
"""Levels of a hierarchy as one tree: unbiased, as sensitive as stated, near a bound that holds."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.strategy.base import check_unbiased
from sfumato.strategy.matrix import dense
from sfumato.strategy.one_attribute.hierarchies import (
    Hierarchical,
    NodeSums,
    disjoint_parts,
    hierarchy,
    tree_of,
)
from sfumato.workload.queries import Groups, Identity, Matrix, Prefix, QuerySet, Total
from sfumato.workload.workload import Workload

COUNTY = (0, 0, 0, 1, 1, 2, 2, 2, 2, 3, -1, -1)
STATE = (0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, -1)


def groups(assignment: tuple[int, ...]) -> Groups:
    labels = tuple(f"g{i}" for i in range(max(assignment) + 1))
    return Groups(len(assignment), "level", labels, assignment)


def domain() -> sf.Domain:
    """Twelve places in counties and states, some in none, by two small attributes."""
    levels = [
        sf.Level("county", [f"c{i}" for i in range(4)], COUNTY),
        sf.Level("state", [f"s{i}" for i in range(2)], STATE),
    ]
    place = sf.Category("place", [f"p{i}" for i in range(12)], levels=levels)
    return sf.Domain([place, sf.Category("age", ["young", "old", "?"]), sf.Boolean("sex")])


LEVELS = [["place"], ["place.county"], ["place.state"], []]


def levels(others: list[str], kinds: list[list[str]] | None = None) -> Workload:
    return sf.marginals(domain(), [kind + others for kind in kinds or LEVELS])


SETS: list[list[QuerySet | None]] = [
    [Identity(12), groups(COUNTY), groups(STATE), None],
    [groups(COUNTY), groups(STATE)],
    [groups(COUNTY), Total(12)],
    [Identity(12), Matrix.of(np.array([[1] * 6 + [0] * 6, [0] * 6 + [2] * 6, [0] * 11 + [3]]))],
]


@pytest.mark.parametrize("sets", SETS, ids=["all", "no cells", "total", "coefficients"])
def test_a_tree_has_the_energy_of_all_queries(sets: list[QuerySet | None]) -> None:
    """``sum_u g_u 1_u 1_u'`` is the Gram matrix of the weighted queries."""
    weighted = [(1.0 + i, queries) for i, queries in enumerate(sets)]
    tree = tree_of(12, weighted)
    nodes = np.zeros((len(tree.parent), 12))
    for cell, leaf in enumerate(tree.leaf_of.tolist()):
        node = leaf
        while node >= 0:
            nodes[node, cell] = 1
            node = int(tree.parent[node])
    expected = sum(w**2 * (Total(12) if q is None else q).gram() for w, q in weighted)
    assert np.allclose((nodes.T * tree.energy) @ nodes, expected)
    assert len({tuple(row) for row in nodes.tolist()}) == len(nodes)


def test_groups_that_overlap_are_no_tree() -> None:
    crossing = groups((0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1))
    with pytest.raises(PlanError, match="overlap"):
        tree_of(12, [(1.0, groups(COUNTY)), (1.0, crossing)])
    assert disjoint_parts(Prefix(12)) is None
    assert disjoint_parts(Matrix.of(np.array([[1, 2, 0]]))) is None


def measured() -> NodeSums:
    tree = tree_of(12, [(1.0, groups(COUNTY)), (1.0, groups(STATE))])
    random = np.random.default_rng(0)
    weights = random.integers(1, 9, len(tree.parent))
    weights[0] = 0
    return NodeSums(12, tree.parent, weights, tree.leaf_of)


def test_node_sums_are_their_matrix() -> None:
    nodes = measured()
    matrix = nodes.dense()
    assert matrix.shape == (nodes.rows, 12)
    assert np.array_equal(nodes.column_powers(1), np.abs(matrix).sum(axis=0))
    assert np.array_equal(nodes.column_powers(2), (matrix**2).sum(axis=0))
    assert np.array_equal(nodes.row_powers(2), (matrix**2).sum(axis=1))
    low, high = nodes.coefficient_bounds()
    assert np.array_equal(low, matrix.min(axis=1))
    assert np.array_equal(high, matrix.max(axis=1))
    gram = matrix.T @ matrix
    own = np.diag(gram)
    farthest = (own[:, None] + own[None, :] - 2 * gram).max()
    assert nodes.squared_diameter() == pytest.approx(farthest)
    assert nodes.inner_products() == (gram.min(), gram.max())
    inverse = np.linalg.pinv(matrix)
    y = np.random.default_rng(1).normal(size=(nodes.rows, 3))
    assert np.allclose(nodes.least_squares(y), inverse @ y)
    c = nodes.adjoint(y)
    assert np.allclose(nodes.transposed(c), inverse.T @ c)


@pytest.mark.parametrize("queries", [groups(COUNTY), groups(STATE)], ids=["county", "state"])
def test_variances_of_nodes_are_those_of_the_pseudo_inverse(queries: QuerySet) -> None:
    nodes = measured()
    rows = queries.dense() @ np.linalg.pinv(nodes.dense())
    assert nodes.nodes_of(queries) is not None
    assert np.allclose(nodes.row_variances(queries), (rows**2).sum(axis=1))
    assert np.allclose(nodes.row_fourths(queries), (rows**4).sum(axis=1))


def test_variances_of_other_sets_are_computed_one_by_one() -> None:
    nodes = measured()
    both = Matrix.of(
        np.array([[1] * 3 + [0] * 9, [1] * 5 + [0] * 7, [1] * 3 + [0] * 2 + [1] * 4 + [0] * 3])
    )
    rows = both.dense() @ np.linalg.pinv(nodes.dense())
    assert nodes.nodes_of(both) is None
    assert np.allclose(nodes.row_variances(both), (rows**2).sum(axis=1))


@pytest.mark.parametrize("others", [[], ["age"], ["age", "sex"]], ids=str)
@pytest.mark.parametrize("kinds", [None, [["place.county"], ["place.state"]]], ids=["all", "two"])
def test_levels_are_answered_without_bias_near_the_dense_optimum(
    others: list[str], kinds: list[list[str]] | None
) -> None:
    workload = levels(others, kinds)
    strategy = hierarchy(workload)
    assert isinstance(strategy, Hierarchical)
    assert strategy.algorithm == "hierarchy"
    check_unbiased(strategy)
    least = dense(workload, "rmse")
    assert strategy.bound is not None
    assert least.bound is not None
    assert strategy.bound <= least.weighted_error() * (1 + 1e-6)
    assert strategy.weighted_error() >= least.bound * (1 - 1e-6)
    assert sqrt(strategy.weighted_error() / strategy.bound) < (1.01 if kinds is None else 1.1)


def test_terms_that_are_not_levels_by_one_table_are_refused() -> None:
    for work in (
        levels(["age"]) | sf.marginals(domain(), [["place", "sex"]]),
        sf.marginals(domain(), [["age"], ["sex"]]),
        sf.prefixes(sf.Domain({"x": 9}), "x") | sf.marginals(sf.Domain({"x": 9}), [["x"]]),
    ):
        with pytest.raises(PlanError):
            hierarchy(work)


def geography(cells: int) -> sf.Domain:
    """Places in some fifty counties of uneven size, and those in states."""
    random = np.random.default_rng(3)
    county = np.sort(random.integers(0, 50, cells))
    county = np.unique(county, return_inverse=True)[1]
    state = np.sort(random.integers(0, 6, int(county.max()) + 1))
    state = np.unique(state, return_inverse=True)[1][county]
    declared = [
        sf.Level("county", [f"c{i}" for i in range(int(county.max()) + 1)], county.tolist()),
        sf.Level("state", [f"s{i}" for i in range(int(state.max()) + 1)], state.tolist()),
    ]
    place = sf.Category("place", [f"p{i}" for i in range(cells)], levels=declared)
    return sf.Domain([place, sf.Boolean("sex")])


@pytest.mark.parametrize("cells", [600, 3000])
def test_long_levels_are_planned_as_a_tree_and_released(cells: int) -> None:
    land = geography(cells)
    work = sf.marginals(land, [[*kind, "sex"] for kind in LEVELS])
    plan = sf.plan(work, sf.Budget(mu=1), mechanism="factorization")
    assert plan.strategy.algorithm == "hierarchy"
    assert plan.certificate is not None
    assert plan.certificate < 1.01
    random = np.random.default_rng(0)
    rows = {
        "place": [f"p{i}" for i in random.integers(0, cells, 20_000)],
        "sex": random.integers(0, 2, 20_000).astype(bool).tolist(),
    }
    release = plan.release(pa.table(rows), project=False)
    exact = [t.answer(_table(t.attributes, rows, land)) for t in work.terms]
    errors = np.concatenate([a - b for a, b in zip(release.values(), exact, strict=True)])
    rmse = sqrt(float(np.mean(errors**2)))
    assert rmse == pytest.approx(plan.rmse, rel=0.1)
    assert rmse != pytest.approx(1.3 * plan.rmse, rel=0.1)


def _table(names: tuple[str, ...], rows: dict[str, list[object]], land: sf.Domain) -> np.ndarray:
    table = np.zeros([land[n].size for n in names])
    codes = {
        "place": [int(str(v)[1:]) for v in rows["place"]],
        "sex": [int(bool(v)) for v in rows["sex"]],
    }
    np.add.at(table, tuple(np.array(codes[n]) for n in names), 1)
    return table
