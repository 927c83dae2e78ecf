"""Splits of one attribute and the pieces of unions, against dense linear algebra."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge
from sfumato.strategy.pieces import Pieces, pieces
from sfumato.strategy.splits import (
    Centred,
    Split,
    centred_split,
    entry_bits,
    optimal_split,
    split_optimum,
)
from sfumato.workload.queries import Identity, Prefix, QuerySet, Ranges
from sfumato.workload.workload import Workload

DOMAIN = sf.Domain({"a": 9, "b": 4, "c": 7})
WORK = (
    sf.prefixes(DOMAIN, "a", by=["b"])
    | sf.marginals(DOMAIN, 2)
    | 2 * sf.ranges(DOMAIN, "c")
    | sf.marginals(DOMAIN, [()])
)


def built(work: Workload) -> Pieces:
    found = pieces(work)
    assert found is not None
    return found


def dense_strategy(strategy: Pieces) -> np.ndarray:
    rows = []
    for block in strategy.blocks:
        drop = tuple(i for i, n in enumerate(DOMAIN.names) if n not in block.term.attributes)
        units = (e.reshape(DOMAIN.shape).sum(axis=drop) for e in np.eye(DOMAIN.size))
        rows.append(block.share * np.array([block.term.answer(u) for u in units]).T)
    return np.vstack(rows)


def of_optimum(queries: QuerySet, total_weight: float, bits: int = 14) -> Split:
    return optimal_split(split_optimum([queries], [queries.gram()], total_weight), bits)


@pytest.mark.parametrize(
    ("split", "queries"),
    [
        (centred_split(6), Identity(6)),
        (centred_split(6), Prefix(6)),
        (of_optimum(Prefix(9), 3.0), Prefix(9)),
        (of_optimum(Ranges(9), 0.0), Ranges(9)),
        (of_optimum(Prefix(9), 30.0), Identity(9)),
    ],
)
def test_every_query_is_its_total_part_and_its_rest(split: Split, queries: QuerySet) -> None:
    alpha = split.totals(queries)
    r = split.rest(queries, np.eye(split.measured.rows))
    np.testing.assert_allclose(split.rest_squares(queries), (r**2).sum(axis=1), atol=1e-14)
    rebuilt = alpha[:, None] + r @ split.measured.dense()
    np.testing.assert_allclose(rebuilt, queries.dense(), atol=1e-9)
    sums = split.squares(queries.gram())
    assert sums[0] == pytest.approx((alpha**2).sum())
    assert sums[1] == pytest.approx((r**2).sum() / split.unit**2)
    assert split.measured.dense() @ split.direction == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("queries", [Prefix(12), Ranges(12), Identity(12)])
@pytest.mark.parametrize("weight", [0.0, 2.0])
def test_the_squares_of_an_optimum_are_those_of_its_split(queries: QuerySet, weight: float) -> None:
    found = split_optimum([queries], [queries.gram()], weight)
    np.testing.assert_allclose(found.x @ found.inverse, np.eye(12), atol=1e-6)
    assert np.diag(found.x).max() == pytest.approx(1)
    split = optimal_split(found, 24)
    totals, rests = found.squares([queries.gram()])
    exact = split.squares(queries.gram())
    assert totals[0] == pytest.approx(exact[0], rel=1e-4)
    assert rests[0] == pytest.approx(exact[1] * split.cost, rel=1e-4)


def test_the_greatest_variance_is_that_of_some_query() -> None:
    strategy = built(WORK)
    unit = [b.share**-2 for b in strategy.blocks]
    for t in range(len(WORK.terms)):
        listed = strategy.variances(t, unit)
        assert strategy.maximum_variance(t, unit) == pytest.approx(listed.max(), rel=1e-12)


def test_coefficients_have_as_many_bits_as_products_of_them_allow() -> None:
    assert entry_bits(sf.prefixes(DOMAIN, "a")) == 20
    both = sf.product(DOMAIN, {"a": "prefix", "b": "identity", "c": "ranges"})
    assert entry_bits(both) == 20
    wide = sf.product(DOMAIN, {"a": "prefix", "b": "prefix", "c": "ranges"})
    assert entry_bits(wide) == 14


def test_the_centred_matrix_is_what_it_says() -> None:
    centred = Centred(5)
    dense = 5 * np.eye(5) - np.ones((5, 5))
    np.testing.assert_array_equal(centred.dense(), dense)
    np.testing.assert_array_equal(centred.column_powers(2), (dense**2).sum(axis=0))
    np.testing.assert_array_equal(centred.column_powers(1), np.abs(dense).sum(axis=0))
    np.testing.assert_array_equal(centred.coefficient_bounds()[1], dense.max(axis=1))


def test_without_noise_every_answer_is_exact() -> None:
    strategy = built(WORK)
    counts = np.random.default_rng(0).integers(0, 99, size=DOMAIN.shape)
    values = []
    for block in strategy.blocks:
        drop = tuple(i for i, n in enumerate(DOMAIN.names) if n not in block.term.attributes)
        values.append(block.term.answer(counts.sum(axis=drop)))
    answers = np.concatenate([strategy.answer(t, values) for t in range(len(WORK.terms))])
    np.testing.assert_allclose(answers, WORK.evaluate(counts), atol=1e-7)


def test_variances_and_norms_are_those_of_the_dense_matrices() -> None:
    strategy = built(WORK)
    m = dense_strategy(strategy)
    f = np.array([WORK.evaluate(e.reshape(DOMAIN.shape)) for e in np.eye(DOMAIN.size)]).T
    r = f @ np.linalg.pinv(m, rcond=1e-9)
    np.testing.assert_allclose(r @ m, f, atol=1e-8)
    unit = [b.share**-2 for b in strategy.blocks]
    variances = np.concatenate([strategy.variances(t, unit) for t in range(len(WORK.terms))])
    np.testing.assert_allclose(variances, (r**2).sum(axis=1), rtol=1e-8)
    for t in range(len(WORK.terms)):
        assert strategy.total_variance(t, unit) == pytest.approx(strategy.variances(t, unit).sum())
    columns = (m**2).sum(axis=0).max()
    assert columns <= strategy.sensitivity(2).power <= columns * 1.001


def test_one_product_reaches_the_product_of_the_optima() -> None:
    work = sf.product(DOMAIN, {"a": "prefix", "b": "identity", "c": "ranges"})
    strategy = built(work)
    assert strategy.bound is not None
    assert strategy.weighted_error() / strategy.bound <= 1.001**2


def pairs_with_prefixes(sizes: list[int], prefixes: int) -> Workload:
    """All 2-way marginals, the first attributes by prefixes."""
    domain = sf.Domain({f"x{i}": s for i, s in enumerate(sizes)})
    kind = {n: "prefix" if i < prefixes else "identity" for i, n in enumerate(domain.names)}
    terms = [
        sf.product(domain, {n: kind[n] for n in pair}).terms[0]
        for pair in combinations(domain.names, 2)
    ]
    return Workload(domain, tuple(terms))


def test_marginals_with_prefixes_are_near_their_bound() -> None:
    plan = sf.plan(
        pairs_with_prefixes([30, 20, 20, 12, 9, 5, 4, 2], 3),
        sf.Budget(mu=1),
        mechanism="factorization",
    )
    assert plan.certificate is not None
    assert 1 <= plan.certificate < 1.051
    assert plan.gamma < 7.06


@pytest.mark.slow
def test_marginals_with_prefixes_beat_the_orthogonal_split() -> None:
    """All 2-way marginals, five attributes by prefixes: 17.62 is the orthogonal split's error."""
    work = pairs_with_prefixes([100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2], 5)
    plan = sf.plan(work, sf.Budget(mu=1), mechanism="factorization")
    assert plan.gamma < 16.78
    assert plan.certificate is not None
    assert plan.certificate >= 1


def test_the_bound_is_below_the_optimum_of_the_union() -> None:
    strategy = built(WORK.normal.workload)
    plan = sf.plan(WORK, sf.Budget(mu=1), mechanism="factorization")
    assert strategy.bound is not None
    assert strategy.bound <= plan.strategy.weighted_error()
    assert plan.strategy.weighted_error() <= strategy.weighted_error() * (1 + 1e-6)


def test_what_is_too_large_is_refused() -> None:
    domain = sf.Domain({"t": 5000, "u": 5000})
    with pytest.raises(TooLarge, match="5,000 cells"):
        pieces(sf.prefixes(domain, "t", by=["u"]))
    many = sf.Domain({f"x{i}": 2 for i in range(20)})
    with pytest.raises(TooLarge, match="pieces"):
        pieces(sf.marginals(many, 20))
