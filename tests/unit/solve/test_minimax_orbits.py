# SPDX-License-Identifier: Apache-2.0
"""Weights on orbits of queries: every map against dense matrices."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError, TooLarge
from sfumato.solve.minimax_orbits import (
    MinimaxOrbits,
    _folded,
    _unfolded,
    minimax_orbits,
    mirrored,
    query_orbits,
    weighted_gram,
)
from sfumato.solve.orbits import CLASS_SUMS, Axis, exchangeable
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
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload
from tests.shared.dense import dense_workload

SETS: list[QuerySet] = [
    Prefix(7),
    Ranges(6),
    Windows(8, 3),
    Identity(5),
    Total(4),
    Groups(6, "level", ("x", "y"), (0, 1, 1, -1, 0, 0)),
    Matrix.of([[1, -2, 0.5], [0, 0, 3], [1, 1, 1], [0, -3, 0]]),
]
DOMAIN = sf.Domain({"a": 6, "b": 3, "c": 4})
HALVES = [[1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1], [0, 0, 1, 0, 0, 0], [0, 0, 0, -1, 0, 0]]
UNIONS = {
    "mixed": sf.prefixes(DOMAIN, "a", by=["b"]) | sf.marginals(DOMAIN, 2) | sf.ranges(DOMAIN, "c"),
    "two wide axes": sf.product(DOMAIN, {"a": "prefix", "c": "ranges"})
    | 3 * sf.product(DOMAIN, {"a": "windows(2)", "b": "identity"}),
    "mirrored": sf.product(DOMAIN, {"a": "ranges", "b": "identity", "c": "windows(3)"})
    | 2 * sf.marginals(DOMAIN, 1),
    "grouped": sf.product(DOMAIN, {"a": HALVES, "b": "identity"})
    | sf.marginals(DOMAIN, [("a",), ("c",)]),
    "marginals": sf.marginals(DOMAIN, 2) | 2 * sf.marginals(DOMAIN, 1),
}


@pytest.mark.parametrize("queries", SETS, ids=lambda q: q.name)
def test_the_weighted_gram_matrix_is_the_dense_one(queries: QuerySet) -> None:
    weights = np.random.default_rng(1).random(queries.rows)
    dense = queries.dense()
    expected = dense.T @ (weights[:, None] * dense)
    np.testing.assert_allclose(weighted_gram(queries, weights), expected, atol=1e-12)


@pytest.mark.parametrize("queries", SETS, ids=lambda q: q.name)
def test_variances_of_parts_of_a_matrix_need_no_symmetry(queries: QuerySet) -> None:
    """A block of a covariance over two attributes is symmetric only together with its mirror."""
    rng = np.random.default_rng(2)
    orbits, orbit_of = query_orbits(Axis("x", np.arange(queries.size)), queries)
    covariance = rng.normal(size=(queries.size, queries.size, 2))
    dense = queries.dense()
    expected = np.einsum("qi,ijr,qj->qr", dense, covariance, dense)
    found = orbits.variances(CLASS_SUMS, covariance)[orbit_of]
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_queries_that_symmetry_swaps_share_an_orbit() -> None:
    axis = exchangeable("a", 6, [Matrix.of(HALVES), Identity(6)])
    orbits, orbit_of = query_orbits(axis, Identity(6))
    assert orbits.copies.tolist() == [2, 2, 2]
    assert orbit_of.tolist() == axis.class_of.tolist()
    both, where = query_orbits(
        exchangeable("x", 3, [Matrix.of(np.diag([2, -2, 2.0]))]), Matrix.of(np.diag([2, -2, 2.0]))
    )
    assert both.copies.tolist() == [3], "the sign of a query does not matter"
    assert where.tolist() == [0, 0, 0]


def orbit_numbers(problem: MinimaxOrbits, work: Workload) -> tuple[np.ndarray, np.ndarray]:
    """The orbit of every cell and of every query, in the order of the dense matrix."""
    names = {a.name: a for a in problem.axes}
    classes = [names[n].class_of for n in DOMAIN.names]
    sizes = [names[n].classes for n in DOMAIN.names]
    cells = np.ravel_multi_index(np.meshgrid(*classes, indexing="ij"), sizes).reshape(-1)
    queries, first = [], 0
    for term, orbits in zip(work.terms, problem.terms, strict=True):
        assert isinstance(term, Product)
        asked = dict(term.factors)
        numbers = []
        for axis in problem.axes:
            found = asked.get(axis.name, Total(axis.cells))
            numbers.append(query_orbits(axis, found)[1])
        grid = np.meshgrid(*numbers, indexing="ij")
        queries.append(first + np.ravel_multi_index(grid, orbits.shape).reshape(-1))
        first += int(np.prod(orbits.shape))
    return cells, np.concatenate(queries)


@pytest.mark.parametrize("name", UNIONS)
def test_both_root_diagonals_are_those_of_the_dense_matrix(name: str) -> None:
    work = UNIONS[name]
    problem = minimax_orbits(work)
    cells, queries = orbit_numbers(problem, work)
    rng = np.random.default_rng(3)
    v, w = rng.random(len(problem.frame.cells)) + 0.1, rng.random(len(problem.query_copies)) + 0.1
    if problem.mirror is not None:
        v, w = (v + v[::-1]) / 2, (w + w[problem.mirror]) / 2
    weights = np.concatenate([np.full(t.rows, t.weight) for t in work.terms])
    f = dense_workload(work) * weights[:, None]
    b = np.sqrt(w[queries])[:, None] * f * np.sqrt(v[cells])
    left, singular, right = np.linalg.svd(b, full_matrices=False)
    at_cells, at_queries = problem.diagonals(v, w)
    np.testing.assert_allclose(at_cells[cells], right.T**2 @ singular, rtol=1e-7)
    np.testing.assert_allclose(at_queries[queries], left**2 @ singular, rtol=1e-6, atol=1e-9)
    assert np.bincount(cells).tolist() == problem.frame.cells.tolist()
    assert np.bincount(queries).tolist() == problem.query_copies.tolist()


def test_only_what_reads_the_same_backwards_is_mirrored() -> None:
    found = {name: minimax_orbits(work).mirror is not None for name, work in UNIONS.items()}
    assert found == {
        "mixed": False,
        "two wide axes": False,
        "mirrored": True,
        "grouped": False,
        "marginals": True,
    }
    axis = Axis("x", np.arange(6))
    to = mirrored(axis, Ranges(6))
    assert to is not None
    starts, stops = Ranges(6).intervals()
    assert (starts[to] == 6 - stops).all()
    assert (stops[to] == 6 - starts).all()
    assert mirrored(axis, Prefix(6)) is None


@pytest.mark.parametrize("size", [2, 3, 8, 9])
def test_folding_halves_a_matrix_and_keeps_its_spectrum(size: int) -> None:
    rng = np.random.default_rng(4)
    a = rng.normal(size=(size, size))
    a = a + a.T
    a = a + a[::-1, ::-1]
    even, odd = _folded(a)
    both = np.concatenate([np.linalg.eigvalsh(even), np.linalg.eigvalsh(odd)])
    np.testing.assert_allclose(np.sort(both), np.linalg.eigvalsh(a), atol=1e-10)
    np.testing.assert_allclose(_unfolded(even, odd), a, atol=1e-12)


def test_what_does_not_fit_is_refused_with_its_size() -> None:
    wide = sf.Domain({"a": 100, "b": 100})
    with pytest.raises(TooLarge, match="10,000 classes"):
        minimax_orbits(sf.product(wide, {"a": "prefix", "b": "prefix"}))
    rows = np.random.default_rng(5).integers(0, 2, size=(900, 300)).tolist()
    with pytest.raises(TooLarge, match="900 queries"):
        minimax_orbits(sf.product(sf.Domain({"a": 300}), {"a": rows}))
    a = sf.attribute(DOMAIN, "a")
    with pytest.raises(PlanError, match="not a product"):
        minimax_orbits(sf.predicates(DOMAIN, [a < 3]))


def test_weights_of_products_multiply() -> None:
    """The Gram matrix of a product with product weights is the product of Gram matrices."""
    rng = np.random.default_rng(6)
    sets: list[QuerySet] = [Prefix(4), Ranges(3), Identity(2)]
    domain = sf.Domain({"x": 4, "y": 3, "z": 2})
    term = Product(domain, "all", 1.0, tuple(zip(domain.names, sets, strict=True)))
    problem = minimax_orbits(Workload(domain, (term,)))
    weights = [rng.random(4), rng.random(6), np.full(2, 0.5)]
    joint = reduce(np.multiply.outer, [weights[0], weights[1], weights[2][:1]])
    part = (CLASS_SUMS,) * 3
    found = problem.terms[0].gram(part, joint)
    # the table of two cells is one class: its class part sees the mean of the weights
    expected = np.kron(weighted_gram(sets[0], weights[0]), weighted_gram(sets[1], weights[1])) * 0.5
    np.testing.assert_allclose(found, expected, rtol=1e-12)
