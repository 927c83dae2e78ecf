# SPDX-License-Identifier: Apache-2.0
"""Queries that are millions of times larger than others: none is lost, none costs the others.

All against dense matrices that are written out query by query (``every_mechanism.py``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.solve.nuclear import _spanning, _Weighted
from sfumato.strategy.base import check_unbiased
from sfumato.strategy.matrix import dense as dense_strategy
from sfumato.strategy.pieces import pieces
from sfumato.workload.predicates import Everything
from tests.shared.every_mechanism import dense, kept

LINE = sf.Domain({"x": 3})
MULTIPLES = {
    "a count and 2^30 times it": [[2.0**30, 2.0**30, 0], [1, 1, 0], [0, 1, 1]],
    "2^20 and 2^-20": [[2.0**20, 0, 0], [2.0**-20, 0, 0], [0, 1, 1]],
    "a sum and a small part of it": [[1e6, 3e6, 0], [1, 0, 1], [2.0**-18, 3 * 2.0**-18, 0]],
}


def row_bias(plan: sf.Plan) -> float:
    """The greatest wrong coefficient of any query, in greatest coefficients of the query."""
    seen = dense(plan)
    off = np.abs(sum(r @ m for r, m in zip(seen.r, seen.m, strict=True)) - seen.f)
    return float((off.max(axis=1) / np.abs(seen.f).max(axis=1)).max())


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("objective", ["rmse", "max"])
@pytest.mark.parametrize("rows", MULTIPLES.values(), ids=MULTIPLES)
def test_a_small_multiple_of_a_large_query_keeps_its_answer(
    rows: list[list[float]], objective: str, neighbours: str
) -> None:
    """The coordinate of the small one, 2^-30, was once taken for a rounded 0."""
    work = sf.explicit(LINE, ["x"], rows)
    plan = sf.plan(work, sf.Budget(mu=1), neighbours, objective, "factorization", cache=False)
    assert row_bias(plan) < 1e-9
    assert min(plan.standard_errors(0)) > 0
    assert plan.certificate is not None
    assert plan.certificate < 1.001


def test_counts_beside_coefficients_of_millions_are_answered() -> None:
    """The Gram matrix holds squares: ranges drowned in it, and were answered by half."""
    domain = sf.Domain({"a": 2, "b": 6})
    large = sf.product(domain, {"b": [[2.0**22, -(2.0**23), 3 * 2.0**23, -(2.0**23), 2.0**23, 5]]})
    work = sf.ranges(domain, "b") | sf.marginals(domain, [("a",)]) | 0.01 * large
    plan = sf.plan(work, sf.Budget(mu=1), mechanism="factorization", cache=False)
    assert row_bias(plan) < 1e-9
    assert plan.certificate is not None
    assert plan.certificate < 1.001


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("objective", ["rmse", "max"])
@pytest.mark.parametrize(("small", "large"), [(1e-3, 1.0), (1e-3, 1e6), (1e-6, 1e3)])
def test_small_queries_do_not_cost_the_optimum(
    small: float, large: float, objective: str, neighbours: str
) -> None:
    """Measured with a millionth of the length of large ones they erred up to 10^9 times as much."""
    rng = np.random.default_rng(0)
    domain = kept({"x": 6})
    few, many = rng.normal(size=(2, 6)) * small, np.round(rng.normal(size=(3, 6)) * large * 4) / 4
    work = 1e-4 * sf.explicit(domain, ["x"], few) | sf.explicit(domain, ["x"], many)
    plan = sf.plan(work, sf.Budget(mu=1), neighbours, objective, "factorization", cache=False)
    assert row_bias(plan) < 1e-6
    assert plan.certificate is not None
    assert 1 <= plan.certificate < 1.002


@pytest.mark.parametrize("objective", ["rmse", "max"])
@pytest.mark.parametrize("cells", [2, 3, 5])
def test_a_public_total_of_any_coefficients_is_used(cells: int, objective: str) -> None:
    """As many queries as cells: the total follows from them, but not with fractions."""
    rng = np.random.default_rng(cells)
    rows = np.round(rng.normal(size=(cells + 1, cells)) * 4000) / 4
    work = sf.explicit(kept({"x": cells}), ["x"], rows)
    plan = sf.plan(work, sf.Budget(mu=1), "replace-one", objective, "factorization", cache=False)
    assert plan.certificate is not None
    assert 1 <= plan.certificate < 1.002


@pytest.mark.parametrize("objective", ["rmse", "max"])
def test_where_records_can_be_dropped_a_total_has_a_certificate(objective: str) -> None:
    work = sf.marginals(LINE, [()])
    plan = sf.plan(work, sf.Budget(mu=1), "replace-one", objective, "factorization", cache=False)
    assert plan.certificate == pytest.approx(1)


@pytest.mark.parametrize("objective", ["rmse", "max"])
@pytest.mark.parametrize("mechanism", ["gaussian", "gaussian-groups", "factorization"])
@pytest.mark.parametrize("domain", [LINE, kept({"x": 3})], ids=["dropped", "kept"])
def test_the_total_asked_in_two_ways_is_planned_for_replaced_records(
    domain: sf.Domain, mechanism: str, objective: str
) -> None:
    """No attribute is looked at, so there are no pairs of cells: no weights were left to share."""
    work = sf.marginals(domain, [()]) | sf.predicates(domain, [Everything()])
    plan = sf.plan(work, sf.Budget(mu=1), "replace-one", objective, mechanism, cache=False)
    assert row_bias(plan) < 1e-9
    assert 0.9 < plan.rmse < 2.1


def test_an_attribute_of_one_cell_has_no_split() -> None:
    """Reached where large coefficients keep a union of products from other ways."""
    with pytest.raises(PlanError, match="one cell"):
        pieces(sf.product(sf.Domain({"one": 1}), {"one": [[3.0]]}))


def test_columns_that_add_no_direction_in_floats_end_the_search() -> None:
    """The second query is lost in the squares of the first: its columns joined for ever."""
    large, small = np.repeat([1.0, 0.0], 20), np.ones(40)
    matrix = _Weighted(np.array([1e9 * large, small]), np.ones(2))
    found = _spanning(matrix, np.array([0]))
    assert set(found) <= set(range(40))


def test_a_strategy_that_loses_a_query_is_refused() -> None:
    """One row of the reconstruction is 0: the twin of a query that was lost in rounding."""
    strategy = dense_strategy(sf.prefixes(LINE, "x"))
    check_unbiased(strategy)
    broken = strategy.reconstruction.copy()
    broken[1] = 0.0
    with pytest.raises(PlanError, match="'prefix x' are lost in rounding"):
        check_unbiased(replace(strategy, reconstruction=broken))


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian", "factorization"])
def test_queries_that_are_zero_on_every_cell_are_refused_in_words(mechanism: str) -> None:
    x = sf.attribute(LINE, "x")
    work = sf.predicates(LINE, [(x == 0) & (x == 1)])
    with pytest.raises(PlanError, match="zero"):
        sf.plan(work, sf.Budget(epsilon=1, delta=1e-9), mechanism=mechanism)
