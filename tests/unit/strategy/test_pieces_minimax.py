# SPDX-License-Identifier: Apache-2.0
"""Unions in pieces for the largest error: shares that no others beat, answers that are exact."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.solve.minimax_orbits import Reweighted
from sfumato.strategy.one_attribute.ordered import _factor, minimax_strategy
from sfumato.strategy.pieces import Pieces, _hull, _shared, minimax_pieces, pieces
from sfumato.workload.queries import Identity, Prefix, Ranges
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload
from tests.shared.dense import dense_workload
from tests.unit.strategy.one_attribute.test_ordered_minimax import answers, dense_strategy

SMALL = sf.Domain({"x": 6, "y": 5, "z": 3})
WIDE = sf.Domain({"x": 60, "y": 50, "z": 4, "u": 7})


def union(domain: sf.Domain) -> Workload:
    return (
        sf.product(domain, {"x": "prefix", "y": "ranges"})
        | sf.prefixes(domain, "x", by=["z"])
        | 2 * sf.marginals(domain, [("z",), ("y", "z")])
        | sf.product(domain, {"x": "identity"})
    )


def test_what_is_stated_is_what_the_dense_matrices_do() -> None:
    work = union(SMALL)
    strategy = minimax_pieces(work, _factor)
    m, f = dense_strategy(strategy), dense_workload(work)
    terms = range(len(work.terms))
    unit = [share**-2 for share in strategy.shares]
    r = f @ np.linalg.pinv(m, rcond=1e-10)
    np.testing.assert_allclose(r @ m, f, atol=1e-7)
    stated = np.concatenate([strategy.variances(t, unit) for t in terms])
    np.testing.assert_allclose(stated, (r**2).sum(axis=1), rtol=1e-6)
    assert (m**2).sum(axis=0).max() <= strategy.sensitivity(2).power * (1 + 1e-12)
    counts = np.random.default_rng(1).integers(0, 99, size=SMALL.shape)
    np.testing.assert_allclose(answers(strategy, counts), work.evaluate(counts), atol=1e-6)


def test_error_and_bound_enclose_the_optimum_found_through_symmetries() -> None:
    work = union(SMALL)
    strategy, best = minimax_pieces(work, _factor), minimax_strategy(work)
    assert strategy.objective == best.objective == "max"
    assert strategy.bound is not None
    assert best.bound is not None
    assert strategy.bound <= best.weighted_error("max") * (1 + 1e-9)
    assert best.bound <= strategy.weighted_error("max") * (1 + 1e-9)
    assert strategy.weighted_error("max") <= 1.3 * best.weighted_error("max")


def test_large_unions_are_planned_in_pieces_and_beat_those_of_the_mean_error() -> None:
    work = union(WIDE)
    strategy = minimax_strategy(work)
    assert isinstance(strategy, Pieces)
    of_the_mean = pieces(work)
    assert of_the_mean is not None
    assert strategy.bound is not None
    assert strategy.weighted_error("max") < 0.9 * of_the_mean.weighted_error("max")
    assert strategy.weighted_error("max") >= strategy.bound
    assert of_the_mean.weighted_error("max") >= strategy.bound


def test_marginals_with_prefixes_are_nearly_optimal() -> None:
    numeric = sf.product(WIDE, {"x": "prefix", "y": "prefix"})
    mixed = sf.prefixes(WIDE, "x", by=["z"]) | sf.prefixes(WIDE, "y", by=["u"])
    strategy = minimax_strategy(numeric | mixed | sf.marginals(WIDE, [("z", "u")]))
    assert isinstance(strategy, Pieces)
    assert 1 <= sqrt(strategy.weighted_error("max") / (strategy.bound or 1.0)) < 1.1


def test_no_other_shares_of_the_noise_are_better_for_the_same_splits() -> None:
    work = union(SMALL)
    guess = pieces(work)
    assert guess is not None
    strategy, emphasis = _shared(work, guess)
    best = strategy.weighted_error("max")
    assert emphasis.sum() == pytest.approx(1, abs=1e-6)
    rng = np.random.default_rng(2)
    for _ in range(100):
        factors = np.exp(0.3 * rng.normal(size=len(strategy.blocks)))
        pairs = zip(strategy.blocks, factors, strict=True)
        moved = tuple(replace(b, share=b.share * float(c)) for b, c in pairs)
        other = replace(strategy, blocks=moved)
        assert other.weighted_error("max") >= best * (1 - 5e-3)


def test_a_hull_holds_the_greatest_of_every_positive_combination() -> None:
    rng = np.random.default_rng(3)
    angle = rng.uniform(0, np.pi / 2, 200)
    x, y = np.cos(angle) + 0.1, 3 * np.sin(angle) + 0.2
    hull = _hull(x, y)
    assert len(hull) < 50
    for a, b in rng.random((50, 2)):
        assert (hull @ [a, b]).max() >= (a * x + b * y).max() * (1 - 1e-3)
    assert _hull(np.array([1.0, 2.0, 1.5]), np.array([1.0, 2.0, 1.0])).tolist() == [[2.0, 2.0]]


def test_equal_objects_on_two_attributes_are_split_apart() -> None:
    """One query set may serve two attributes that are asked differently otherwise."""
    domain = sf.Domain({"x": 9, "y": 9, "z": 2})
    shared, other = Prefix(9), Prefix(9)

    def work(second: Prefix) -> Workload:
        heavy = Product(domain, "heavy", 5.0, (("x", shared), ("z", Identity(2))))
        both = Product(domain, "both", 1.0, (("x", shared), ("y", second)))
        return Workload(domain, (heavy, both, Product(domain, "z", 1.0, (("z", Identity(2)),))))

    same, apart = pieces(work(shared)), pieces(work(other))
    assert same is not None
    assert apart is not None
    assert same.weighted_error() == pytest.approx(apart.weighted_error(), rel=1e-9)


def test_reweighted_queries_are_the_queries_times_the_roots_of_their_weights() -> None:
    weights = np.random.default_rng(4).random(10)
    queries = Reweighted(4, Ranges(4), weights)
    dense = np.sqrt(weights)[:, None] * Ranges(4).dense()
    np.testing.assert_allclose(queries.dense(), dense)
    np.testing.assert_allclose(queries.adjoint(np.eye(10)), dense.T)
    np.testing.assert_allclose(queries.gram(), dense.T @ dense)
    np.testing.assert_allclose(queries.column_powers(2), (dense**2).sum(axis=0))
    np.testing.assert_allclose(queries.column_powers(1), dense.sum(axis=0))
    assert queries.greatest == pytest.approx(dense.max())
    assert (queries.name, queries.rows, queries.is_nonnegative) == ("ranges", 10, True)


def test_groups_that_are_no_products_are_refused() -> None:
    x = sf.attribute(SMALL, "x")
    with pytest.raises(PlanError, match="not a product"):
        minimax_pieces(sf.predicates(SMALL, [x < 3]), _factor)
