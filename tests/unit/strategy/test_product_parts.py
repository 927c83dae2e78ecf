# SPDX-License-Identifier: Apache-2.0
"""Unions of products in parts: unbiased, as sensitive as they say, and above a bound that holds."""

from __future__ import annotations

from functools import reduce
from itertools import combinations
from math import sqrt

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import TooLarge
from sfumato.solve.nuclear import certified_optimum, root_diagonal
from sfumato.strategy.pieces import pieces
from sfumato.strategy.product_parts import ProductParts, product_parts
from sfumato.workload.workload import Workload

DOMAIN = sf.Domain({"a": 6, "b": 4, "c": 5})
ROWS = [[1, 2, 0, 0, -1], [0, 0, 1, 1, 0.5]]


def union(*products: dict[str, object], domain: sf.Domain = DOMAIN) -> Workload:
    """A union of products of query sets."""
    parts = [sf.product(domain, p) for p in products]  # type: ignore[arg-type]
    return reduce(Workload.__or__, parts)


WORKS = {
    "one part": union({"a": "prefix", "b": "identity"}, {"a": "ranges", "b": "identity"}),
    "far apart": union({"a": "ranges", "c": ROWS}, {"b": "ranges", "c": "windows(3)"}),
    "totals": union({"a": "prefix"}, {"b": "prefix"}, {"a": "identity", "b": "ranges", "c": ROWS}),
    "with the total": union({"a": "prefix", "b": "prefix"}, {"b": "ranges", "c": ROWS})
    | sf.marginals(DOMAIN, [()]),
    "weights": union({"a": "prefix", "c": "prefix"}) | 9 * union({"b": "identity", "c": ROWS}),
}


def matrix(workload: Workload) -> np.ndarray:
    """All queries, with their weights, over the cells of the domain."""
    cells = np.eye(workload.domain.size)
    rows = [workload.evaluate(cell.reshape(workload.domain.shape)) for cell in cells]
    weights = np.concatenate([np.full(t.rows, t.weight) for t in workload.terms])
    return np.array(rows).T * weights[:, None]


def measured(strategy: ProductParts) -> np.ndarray:
    """What is measured, over the cells of the domain."""
    terms = tuple(block.term for block in strategy.blocks)
    return matrix(Workload(strategy.workload.domain, terms))


@pytest.mark.parametrize("name", list(WORKS))
def test_answers_are_those_of_the_queries(name: str) -> None:
    strategy = product_parts(WORKS[name])
    whole = matrix(Workload(DOMAIN, tuple(t for t in WORKS[name].terms)))
    ends = np.cumsum(strategy.block_rows)[:-1]
    weights = np.concatenate([np.full(t.rows, t.weight) for t in WORKS[name].terms])
    answers = [np.concatenate(strategy.answers(np.split(m, ends))) for m in measured(strategy).T]
    assert np.abs(np.array(answers).T * weights[:, None] - whole).max() < 1e-9 * whole.max() + 1e-9


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("name", list(WORKS))
def test_no_record_moves_more_than_the_sensitivity(name: str, neighbours: str) -> None:
    strategy = product_parts(WORKS[name])
    scaled = measured(strategy) * np.repeat(strategy.shares, strategy.block_rows)[:, None]
    gram = scaled.T @ scaled
    own = np.diag(gram)
    moved = own if neighbours == "add-remove" else own[:, None] + own[None, :] - 2 * gram
    stated = strategy.sensitivity(2, neighbours).power  # type: ignore[arg-type]
    assert moved.max() <= stated
    if neighbours == "add-remove":
        assert stated <= 1.1 * moved.max()


@pytest.mark.parametrize("name", list(WORKS))
def test_the_bound_is_below_the_optimum_and_the_error_near_it(name: str) -> None:
    work = WORKS[name]
    strategy = product_parts(work)
    rows = matrix(work)
    optimum = certified_optimum(root_diagonal(rows), rows.shape[1], 1e-4)
    assert strategy.bound is not None
    assert strategy.bound <= optimum.upper
    assert strategy.bound >= 0.95**2 * optimum.lower
    assert strategy.weighted_error() >= optimum.lower
    assert strategy.weighted_error() <= 1.15**2 * optimum.upper


@pytest.mark.slow
def test_the_bound_is_below_the_optimum_of_an_independent_program() -> None:
    """``min tr(V Y)`` over ``Y X >= I``, ``X_jj <= 1``, by a solver of semidefinite programs."""
    domain = sf.Domain({"a": 4, "b": 3})
    work = union({"a": "ranges"}, {"a": "prefix", "b": [[1, 2, 0]]}, {"b": "prefix"}, domain=domain)
    strategy, rows = product_parts(work), matrix(work)
    assert _program(rows) >= (strategy.bound or 0.0) * (1 - 1e-6)


def _program(rows: np.ndarray) -> float:
    count, cells = rows.shape
    x, t = cp.Variable((cells, cells), symmetric=True), cp.Variable((count, count), symmetric=True)
    holds = [cp.bmat([[x, rows.T], [rows, t]]) >> 0, cp.diag(x) <= 1]
    problem = cp.Problem(cp.Minimize(cp.trace(t)), holds)
    problem.solve(cp.CLARABEL)
    return float(problem.value)


KINDS = ("total", "identity", "prefix", "ranges", "windows(2)", [[1, -1, 2, 0], [0, 1, 1, 3]])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=4, unique=True))
def test_random_unions_are_unbiased_and_bounded(chosen: list[tuple[int, ...]]) -> None:
    domain = sf.Domain({"a": 4, "b": 4, "c": 4})
    products = []
    for kinds in chosen:
        own = {n: KINDS[k] for n, k in zip("abc", kinds, strict=True) if k}
        products.append(own or {"a": "identity"})
    work = union(*products, domain=domain)
    strategy, rows = product_parts(work), matrix(work)
    values = [block.term.answer(_table(block.term)) for block in strategy.blocks]
    asked = [term.answer(_table(term)) for term in work.terms]
    answers = strategy.answers(values)
    for given_answer, answer in zip(answers, asked, strict=True):
        assert np.allclose(given_answer, answer, rtol=1e-8, atol=1e-8)
    scaled = measured(strategy) * np.repeat(strategy.shares, strategy.block_rows)[:, None]
    assert (scaled**2).sum(axis=0).max() <= strategy.sensitivity(2).power
    optimum = certified_optimum(root_diagonal(rows[:, np.abs(rows).max(axis=0) > 0]), 64, 1e-3)
    assert (strategy.bound or 0.0) <= optimum.upper


def _table(term: object) -> np.ndarray:
    """The counts of made-up records by the attributes of a term."""
    counts = np.random.default_rng(3).integers(0, 9, (4, 4, 4)).astype(float)
    away = tuple(i for i, n in enumerate("abc") if n not in term.attributes)  # type: ignore[attr-defined]
    return np.asarray(counts.sum(axis=away))


def test_products_far_from_each_other_are_measured_apart() -> None:
    """Running totals of one attribute and ranges of another: pieces err 1.6 times as much."""
    domain = sf.Domain({"x": 48, "y": 16, "z": 10, "w": 48})
    rows = [[int(i % k == 0) for i in range(48)] for k in (2, 3, 5)]
    work = union(
        {"x": "prefix", "y": "ranges", "w": rows},
        {"z": "identity", "w": "prefix"},
        {"x": rows, "y": "windows(4)", "z": "prefix"},
        domain=domain,
    )
    strategy, other = product_parts(work), pieces(work)
    assert other is not None
    assert len(strategy.blocks) > 1
    assert strategy.weighted_error() < 0.8 * other.weighted_error()
    plan = sf.plan(work, sf.Budget(mu=1), mechanism="factorization", cache=False)
    assert plan.rmse <= sqrt(strategy.weighted_error() / work.queries) * 1.0001


def test_what_is_no_union_of_few_products_is_refused() -> None:
    with pytest.raises(TooLarge, match="not a product"):
        product_parts(sf.predicates(DOMAIN, ["a < 2 OR b = 1"]))
    wide = sf.Domain(dict.fromkeys("abcdefg", 3))
    pairs = [{a: "prefix", b: "ranges"} for a, b in combinations("abcdefg", 2)]
    with pytest.raises(TooLarge, match="at most 16"):
        product_parts(union(*pairs, domain=wide))
    with pytest.raises(TooLarge, match="total alone"):
        product_parts(sf.marginals(DOMAIN, [()]))
    with pytest.raises(TooLarge, match="at most 512"):
        product_parts(union({"l": "prefix"}, domain=sf.Domain({"l": 600})))


def test_queries_split_over_several_groups_are_bounded_as_one() -> None:
    whole = union({"a": "prefix", "b": "ranges", "c": "prefix"}, {"a": "identity", "c": ROWS})
    starts, ends = np.tril(np.ones((6, 6)))[:3].tolist(), np.tril(np.ones((6, 6)))[3:].tolist()
    halves = [{"a": rows, "b": "ranges", "c": "prefix"} for rows in (starts, ends)]
    split = union(*halves, {"a": "identity", "c": ROWS})
    one, other = product_parts(whole), product_parts(split)
    assert other.bound == pytest.approx(one.bound, rel=1e-6)
    assert other.weighted_error() == pytest.approx(one.weighted_error(), rel=1e-2)


def test_six_attributes_keep_within_the_noise_that_can_be_drawn() -> None:
    domain = sf.Domain({"a": 8, "b": 24, "c": 12, "d": 7, "e": 6, "f": 4})
    work = union(
        dict.fromkeys("abcdef", "prefix"),
        dict.fromkeys("abc", "ranges") | dict.fromkeys("def", "windows(3)"),
        domain=domain,
    )
    strategy = product_parts(work)
    assert strategy.sensitivity(2).power <= 2.0
    assert all((b.term.column_factors(2) is not None) for b in strategy.blocks)
