# SPDX-License-Identifier: Apache-2.0
"""Strategies by interactions: unbiased, as sensitive as they say, near a bound that holds."""

from __future__ import annotations

from functools import reduce
from itertools import combinations, product
from math import sqrt

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge
from sfumato.strategy.interactions import Interactions, interactions
from sfumato.strategy.marginals import marginals_optimum
from sfumato.strategy.matrix import dense
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

SMALL = sf.Domain({"a": 4, "b": 3, "c": 5})


def sums(domain: sf.Domain, first: str, second: str) -> np.ndarray:
    """``i + j <= c`` for every c, a row each."""
    i, j = np.indices((domain[first].size, domain[second].size))
    return np.array([(i + j <= c).reshape(-1) for c in range(int((i + j).max()) + 1)], dtype=float)


def affine(domain: sf.Domain) -> Workload:
    """Running totals of every attribute, and of the sum of every two."""
    parts = [sf.prefixes(domain, name) for name in domain.names]
    pairs = combinations(domain.names, 2)
    parts += [sf.explicit(domain, list(pair), sums(domain, *pair)) for pair in pairs]
    return reduce(Workload.__or__, parts)


def mixed() -> Workload:
    """Products, coefficients with a point and conditions on one, two and three attributes."""
    given = np.array([[0.5, -1.25, 3.0], [0.0, 2.0, -0.75]])
    conditions = ["a < 2 OR b = 1", "c > 1 AND b <> 0", "a = 3", "a = 0 AND b = 2 AND c = 4"]
    return (
        affine(SMALL)
        | sf.marginals(SMALL, [("a", "c")])
        | sf.explicit(SMALL, ["b"], given)
        | sf.predicates(SMALL, conditions)
    )


def matrix(workload: Workload) -> np.ndarray:
    """All queries over the cells of the domain, found by counting each cell by itself."""
    rows = []
    for cell in product(*(range(n) for n in workload.domain.shape)):
        column = []
        for term in workload.terms:
            table = np.zeros(term.shape)
            table[tuple(cell[workload.domain.names.index(n)] for n in term.attributes)] = 1
            column.append(term.answer(table))
        rows.append(np.concatenate(column))
    return np.array(rows).T


def measured(strategy: Interactions) -> np.ndarray:
    """What is measured, likewise."""
    terms = tuple(block.term for block in strategy.blocks)
    return matrix(Workload(strategy.workload.domain, terms))


def reconstruction(strategy: Interactions) -> np.ndarray:
    """R, one measured value after the other."""
    columns = []
    for b, rows in enumerate(strategy.block_rows):
        for i in range(rows):
            values = [np.zeros(n) for n in strategy.block_rows]
            values[b][i] = 1.0
            columns.append(np.concatenate(strategy.answers(values)))
    return np.array(columns).T


def test_answers_are_those_of_the_queries() -> None:
    strategy = interactions(mixed())
    whole = matrix(strategy.workload)
    assert np.abs(reconstruction(strategy) @ measured(strategy) - whole).max() < 1e-9


def test_variances_adjoints_and_readings_are_those_of_the_matrix() -> None:
    strategy = interactions(mixed())
    variances = [1.0 + b for b in range(len(strategy.blocks))]
    noise = np.repeat(variances, strategy.block_rows)
    whole, first = reconstruction(strategy), 0
    for t, term in enumerate(strategy.workload.terms):
        own = whole[first : first + term.rows]
        first += term.rows
        assert np.allclose(strategy.variances(t, variances), (own**2) @ noise)
        weights = np.arange(1.0, term.rows + 1)
        back = strategy.adjoint(t, weights)
        blocks = [back.get(b, np.zeros(n)) for b, n in enumerate(strategy.block_rows)]
        assert np.allclose(np.concatenate(blocks), own.T @ weights)
        readings = strategy.readings(t)
        columns = [
            readings.get(b, np.zeros((term.rows, n))) for b, n in enumerate(strategy.block_rows)
        ]
        assert np.allclose(np.concatenate(columns, axis=1), own)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_no_record_moves_more_than_the_sensitivity(neighbours: str) -> None:
    strategy = interactions(mixed())
    scaled = measured(strategy) * np.repeat(strategy.shares, strategy.block_rows)[:, None]
    gram = scaled.T @ scaled
    own = np.diag(gram)
    moved = own if neighbours == "add-remove" else own[:, None] + own[None, :] - 2 * gram
    stated = strategy.sensitivity(2, neighbours).power  # type: ignore[arg-type]
    assert moved.max() <= stated
    if neighbours == "add-remove":  # and not by much: the bound adds up the longest columns
        assert stated <= 1.1 * moved.max()


def test_the_bound_is_below_the_optimum_and_the_error_near_it() -> None:
    work = mixed()
    strategy, optimum = interactions(work), dense(work)
    best = optimum.weighted_error()
    assert strategy.bound is not None
    assert optimum.bound is not None
    assert strategy.bound <= best * (1 + 1e-9)
    assert optimum.bound <= strategy.weighted_error() * (1 + 1e-9)
    assert strategy.weighted_error() <= 1.15**2 * best


def test_marginals_are_at_their_optimum() -> None:
    work = sf.marginals(SMALL, 2)
    strategy, optimum = interactions(work), marginals_optimum(work, "rmse")
    assert optimum is not None
    assert strategy.gamma == pytest.approx(optimum.gamma, rel=1e-3)
    assert strategy.bound == pytest.approx(strategy.weighted_error(), rel=1e-3)


def test_ten_attributes_of_ten_values_are_planned_near_their_bound() -> None:
    """QuerySmasher (arXiv 2604.00868) has 8.06 here, the best of every group by itself 28.56."""
    work = affine(sf.Domain({f"x{i}": 10 for i in range(10)}))
    plan = sf.plan(work, sf.Budget(mu=1), mechanism="factorization", cache=False)
    assert plan.rmse <= 7.84
    assert plan.certificate is not None
    assert 1 <= plan.certificate <= 1.1
    (candidate,) = [c for c in plan.candidates if c.mechanism == "factorization"]
    assert candidate.algorithm == "interactions"


def several_products() -> Workload:
    """Three attributes, asked by different products: too many cells together for one matrix."""
    domain = sf.Domain({"a": 9, "b": 8, "c": 7})
    kinds = [
        {"a": "prefix", "b": "identity", "c": "prefix"},
        {"a": "identity", "b": "ranges", "c": "prefix"},
        {"a": "prefix", "c": [[1, 2, 0, 0, 0.5, 0, 0], [0, 0, 1, 1, 1, -1, 0]]},
    ]
    return reduce(Workload.__or__, [sf.product(domain, k) for k in kinds])


def test_different_products_are_measured_attribute_by_attribute() -> None:
    strategy = interactions(several_products())
    last = strategy.blocks[-1].term
    assert isinstance(last, Product)
    assert last.attributes == ("a", "b", "c")
    whole = matrix(strategy.workload)
    measured_cells = measured(strategy)
    answers = [np.concatenate(strategy.answers(_split(strategy, m))) for m in measured_cells.T]
    assert np.abs(np.array(answers).T - whole).max() < 1e-8
    scaled = measured_cells * np.repeat(strategy.shares, strategy.block_rows)[:, None]
    assert (scaled**2).sum(axis=0).max() <= strategy.sensitivity(2).power
    for t, term in enumerate(strategy.workload.terms):
        weights = np.arange(1.0, term.rows + 1) / term.rows
        back = strategy.adjoint(t, weights)
        values = _split(strategy, np.arange(float(len(measured_cells))) / len(measured_cells))
        along = sum(float(values[b] @ part) for b, part in back.items())
        assert along == pytest.approx(float(weights @ strategy.answer(t, values)))


def _split(strategy: Interactions, values: np.ndarray) -> list[np.ndarray]:
    return np.split(values, np.cumsum(strategy.block_rows)[:-1])


def test_the_error_of_different_products_is_near_the_optimum_of_all_cells() -> None:
    """An independent optimum: the fixed point of ``solve/nuclear.py`` over all 504 cells."""
    work = several_products()
    strategy, optimum = interactions(work), _optimum(matrix(work))
    assert strategy.bound is not None
    assert strategy.bound <= optimum * (1 + 1e-6)
    assert strategy.weighted_error() <= 1.15**2 * optimum


def _optimum(queries: np.ndarray) -> float:
    """An upper bound on the least squared error, by plain iteration of ``v = diag(A^1/2)``."""
    gram, v, least = queries.T @ queries, np.ones(queries.shape[1]), np.inf
    for _ in range(60):
        s = np.sqrt(v)
        values, vectors = np.linalg.eigh(gram * np.outer(s, s))
        root = np.sqrt(np.maximum(values, 0.0))
        diagonal = (vectors**2) @ root
        least = min(least, root.sum() * float((diagonal / v).max()))
        v = diagonal
    return float(least)


def test_unions_of_products_far_from_their_bound_are_measured_by_interactions() -> None:
    """Pairs of four attributes, each asked in its own way: pieces err by 3.807 here."""
    domain = sf.Domain(dict.fromkeys("abcd", 12))
    kinds = [
        {"a": "prefix", "b": "identity"},
        {"b": "ranges", "c": "prefix"},
        {"a": "identity", "c": "prefix"},
        {"c": "identity", "d": "ranges"},
        {"a": "ranges", "d": "identity"},
    ]
    work = reduce(Workload.__or__, [sf.product(domain, k) for k in kinds])
    plan = sf.plan(work, sf.Budget(mu=1), mechanism="factorization", cache=False)
    assert plan.rmse <= 3.6
    assert plan.certificate is not None
    assert 1 <= plan.certificate <= 1.07


def test_weights_of_groups_count() -> None:
    heavy = affine(SMALL) | sf.marginals(SMALL, [("a", "b", "c")]) * 100
    of_heavy = interactions(heavy)
    plain = interactions(sf.marginals(SMALL, [("a", "b", "c")]))
    last = len(heavy.terms) - 1
    unit = [share**-2 for share in of_heavy.shares]
    error = of_heavy.total_variance(last, unit) * of_heavy.squared_sensitivity()
    assert sqrt(error / plain.weighted_error()) < 1.15


def test_queries_on_many_attributes_are_refused_in_words() -> None:
    domain = sf.Domain({f"x{i}": 2 for i in range(6)})
    with pytest.raises(TooLarge, match="at most 4 attributes a query"):
        interactions(sf.marginals(domain, 5))
