# SPDX-License-Identifier: Apache-2.0
"""Unions, weights, evaluation, the Gram matrix and the digest."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import sfumato as sf
from sfumato.domain.attributes import Category
from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.workload.predicates import And, Everything, In, Not, Or
from sfumato.workload.queries import Identity, Matrix, Total, Windows
from sfumato.workload.terms import Explicit, Predicates, Product
from sfumato.workload.workload import Ratio
from tests.shared.dense import dense_workload

DOMAIN = Domain([*Domain({"a": 4, "b": 3}), Category("c", ("x", "y"), nulls="missing")])
MIXED = (
    sf.marginals(DOMAIN, 2)
    | 2 * sf.prefixes(DOMAIN, "a", ["c"])
    | sf.ranges(DOMAIN, "b")
    | 0.5 * sf.explicit(DOMAIN, ["c", "a"], np.arange(24).reshape(2, 12) % 5 - 1)
    | sf.predicates(DOMAIN, ["a < 2 OR b = 1", "c IS NULL"])
    | sf.means(DOMAIN, "a", ["b"])
)


def test_the_length_is_the_number_of_queries() -> None:
    tables = 4 * 3 + 4 * 3 + 3 * 3
    assert len(MIXED) == MIXED.queries == tables + 4 * 3 + 6 + 2 + 2 + 3 + 3


def test_every_group_of_a_balanced_workload_matters_alike() -> None:
    """The sum over groups of weight^2 times the mean square is that of the weights before."""
    balanced = MIXED.balanced()
    before = [t.weight for t in MIXED.terms]
    assert [t.weight * t.rows**0.5 for t in balanced.terms] == pytest.approx(before)
    assert balanced.ratios == MIXED.ratios
    work = sf.marginals(DOMAIN, [["a", "b"], []])
    plain, alike = (sf.plan(w, sf.Budget(mu=1)) for w in (work, work.balanced()))
    assert alike.variances(1)[0] < plain.variances(1)[0]  # the total gains
    assert alike.rmse >= plain.rmse


def test_a_length_that_python_cannot_say_is_refused_and_still_known() -> None:
    domain = Domain({f"x{i}": 10**6 for i in range(4)})
    work = sf.product(domain, dict.fromkeys(domain.names, "identity"))
    assert work.queries == 10**24
    assert work
    with pytest.raises(TooLarge, match="queries instead"):
        len(work)


def test_answers_are_the_matrix_product() -> None:
    counts = np.random.default_rng(1).integers(0, 50, size=DOMAIN.shape)
    expected = dense_workload(MIXED) @ counts.reshape(-1)
    np.testing.assert_array_equal(MIXED.evaluate(counts), expected)
    np.testing.assert_allclose(MIXED.evaluate(counts / 7), expected / 7)
    np.testing.assert_array_equal(MIXED.evaluate(counts.astype(np.uint8)), expected)
    np.testing.assert_array_equal(MIXED.evaluate(counts.astype(object)), expected)


def test_counts_near_the_end_of_64_bits_are_summed_exactly() -> None:
    domain = Domain({"a": 4})
    work = sf.prefixes(domain, "a")
    counts = np.full(4, 2**62, dtype=np.int64)
    assert work.evaluate(counts).tolist() == [2.0**62, 2.0**63, 3 * 2.0**62, 2.0**64]
    assert work.evaluate(counts.astype(np.uint64) * 2).tolist()[-1] == 2.0**65


@pytest.mark.parametrize(
    "counts", [np.zeros((4, 3)), np.zeros(36), np.full((4, 3, 3), "x"), np.full((4, 3, 3), None)]
)
def test_what_is_not_counts_of_the_domain_is_refused(counts: np.ndarray) -> None:
    with pytest.raises(WorkloadError):
        MIXED.evaluate(counts)


def test_evaluation_of_a_huge_domain_is_refused_before_the_counts_are_looked_at() -> None:
    domain = Domain({f"x{i}": 1_000 for i in range(6)})
    work = sf.marginals(domain, 1)
    with pytest.raises(TooLarge, match="1,000,000,000,000,000,000 cells"):
        work.evaluate(np.zeros(1))
    with pytest.raises(TooLarge):
        work.gram().apply(np.zeros(1))
    with pytest.raises(TooLarge):
        work.gram().dense()


def test_the_gram_matrix_is_the_weighted_product() -> None:
    weights = np.concatenate([np.full(t.rows, t.weight**2) for t in MIXED.terms])
    dense = dense_workload(MIXED)
    expected = dense.T @ (weights[:, None] * dense)
    gram = MIXED.gram()
    np.testing.assert_allclose(gram.dense(), expected, atol=1e-9)
    x = np.random.default_rng(2).normal(size=DOMAIN.shape)
    np.testing.assert_allclose(gram.apply(x).reshape(-1), expected @ x.reshape(-1), atol=1e-9)
    assert gram.trace() == pytest.approx(np.trace(expected))
    with pytest.raises(WorkloadError, match="36 entries, got 35"):
        gram.apply(np.zeros(35))


def test_the_trace_counts_wide_conditions_exactly_and_any_domain() -> None:
    domain = Domain({"a": 2_000, "b": 2_000, "c": 10})
    work = sf.predicates(domain, ["a < 10 OR b < 1"])
    assert work.gram().trace() == 10 * (10 * 2_000 + 1_990)
    huge = Domain({f"x{i}": 10**6 for i in range(60)})
    assert sf.marginals(huge, 0).gram().trace() == float("inf")


def test_joining_keeps_order_and_moves_ratios() -> None:
    joined = sf.marginals(DOMAIN, 1) | sf.means(DOMAIN, "a") | sf.means(DOMAIN, "b")
    assert joined.ratios == (Ratio("mean a", 3, 4), Ratio("mean b", 5, 6))
    assert joined.terms[3].name == "sum of a"


def test_equal_names_are_told_apart() -> None:
    total = sf.marginals(DOMAIN, 0)
    joined = total | total | total
    assert [t.name for t in joined.terms] == ["total", "total (2)", "total (3)"]
    clash = sf.product(DOMAIN, {}, "total (2)")
    names = [t.name for t in (total | clash | total | total).terms]
    assert len(set(names)) == 4
    assert [t.name for t in (joined | joined).terms][:3] == ["total", "total (2)", "total (3)"]
    assert len({t.name for t in (joined | joined).terms}) == 6


def test_weights_multiply_and_must_be_positive() -> None:
    work = 2 * (sf.marginals(DOMAIN, 0) | 3 * sf.marginals(DOMAIN, 1))
    assert [t.weight for t in work.terms] == [2.0, 6.0, 6.0, 6.0]
    assert (np.float64(2) * sf.marginals(DOMAIN, 0)).terms[0].weight == 2.0
    for weight in (0, -1, float("inf"), float("nan"), "2", None):
        with pytest.raises(WorkloadError, match="finite number above 0"):
            sf.marginals(DOMAIN, 0) * weight  # type: ignore[operator]


def test_different_domains_are_not_joined() -> None:
    with pytest.raises(WorkloadError, match="different domains"):
        sf.marginals(DOMAIN, 1) | sf.marginals(Domain({"a": 4}), 1)
    with pytest.raises(TypeError):
        sf.marginals(DOMAIN, 1) | 3  # type: ignore[operator]


def test_a_workload_asks_something() -> None:
    with pytest.raises(WorkloadError, match="at least one"):
        sf.Workload(DOMAIN, ())


def one(*factors: tuple[str, object]) -> sf.Workload:
    return sf.Workload(DOMAIN, (Product(DOMAIN, "p", 1.0, factors),))  # type: ignore[arg-type]


def asked(*conditions: object) -> sf.Workload:
    return sf.Workload(DOMAIN, (Predicates(DOMAIN, "w", 1.0, conditions),))  # type: ignore[arg-type]


def given(matrix: object, bits: int = 0) -> sf.Workload:
    return sf.Workload(DOMAIN, (Explicit(DOMAIN, "e", 1.0, ("b",), csr_matrix(matrix), bits),))


A, B, C = In("a", (0, 1)), In("b", (1,)), In("c", (0,))

EQUAL = {
    "names do not matter": (one(("a", Identity(4))), sf.marginals(DOMAIN, [["a"]])),
    "totals need not be named": (one(("a", Identity(4)), ("b", Total(3))), one(("a", Identity(4)))),
    "windows of one cell": (one(("a", Windows(4, 1))), one(("a", Identity(4)))),
    "windows of all cells": (one(("a", Windows(4, 4))), one()),
    "weights as numbers": (1 * sf.marginals(DOMAIN, 1), 1.0 * sf.marginals(DOMAIN, 1)),
    "weights that cancel": (0.5 * (2 * sf.marginals(DOMAIN, 1)), sf.marginals(DOMAIN, 1)),
    "more bits than needed": (given([[2, 4, 0]], 1), given([[1, 2, 0]], 0)),
    "matrix with more bits": (
        one(("b", Matrix(3, np.array([[2, 4, 0]]), 1))),
        one(("b", Matrix.of([[1, 2, 0]]))),
    ),
    "order of and": (asked(And((A, B))), asked(And((B, A)))),
    "de morgan": (asked(And((A, B))), asked(Not(Or((Not(A), Not(B)))))),
    "distribution": (asked(And((A, Or((B, C))))), asked(Or((And((A, B)), And((A, C)))))),
    "cells listed in any order": (asked(In("a", (1, 0, 1))), asked(A)),
    "complement": (asked(Not(A)), asked(In("a", (2, 3)))),
    "absorbed": (asked(Or((A, And((A, B))))), asked(A)),
    "always true": (asked(Or((A, Not(A)))), asked(Everything())),
    "never true": (asked(In("a", ())), asked(And((A, Not(A))))),
    "columns in another order": (
        sf.explicit(DOMAIN, ["b", "a"], np.arange(12).reshape(1, 12)),
        sf.explicit(DOMAIN, ["a", "b"], np.arange(12).reshape(3, 4).T.reshape(1, 12)),
    ),
}

DIFFERENT = [
    one(),
    one(("a", Identity(4))),
    one(("a", Windows(4, 2))),
    one(("b", Identity(3))),
    one(("b", Matrix.of([[1, 2, 0]]))),
    one(("b", Matrix.of([[0.5, 1, 0]]))),
    one(("b", Matrix.of([[2, 1, 0]]))),
    sf.product(DOMAIN, {"a": "prefix"}),
    sf.product(DOMAIN, {"a": "ranges"}),
    2 * one(),
    one() | one(("a", Identity(4))),
    one(("a", Identity(4))) | one(),
    given([[1, 2, 0]]),
    given([[1, 2, 0], [0, 0, 0]]),
    given([[1, 0, 2]]),
    asked(A),
    asked(B),
    asked(A, B),
    asked(B, A),
    asked(And((A, B))),
    asked(Or((A, B))),
    asked(Not(A)),
    asked(Everything()),
    asked(Not(Everything())),
    asked(In("a", (0, 2))),
    sf.marginals(Domain({"a": 4, "b": 3}), [["a"]]),
]


@pytest.mark.parametrize(("left", "right"), EQUAL.values(), ids=EQUAL.keys())
def test_equal_meaning_has_an_equal_digest(left: sf.Workload, right: sf.Workload) -> None:
    np.testing.assert_array_equal(dense_workload(left), dense_workload(right))
    assert left.digest() == right.digest()


def test_different_meaning_has_a_different_digest() -> None:
    assert len({w.digest() for w in DIFFERENT}) == len(DIFFERENT)


def test_conditions_too_wide_for_a_truth_table_have_a_digest_of_what_is_written() -> None:
    domain = Domain({"a": 500, "b": 500})
    parts = [And((In("a", (i,)), In("b", (i,)))) for i in range(500)]

    def wide(listed: list[And]) -> str:
        return sf.predicates(domain, [Or(tuple(listed))]).digest()

    assert wide(parts) == wide(parts[::-1])
    assert wide(parts) != wide(parts[1:])


def test_the_representation_says_how_much_is_asked() -> None:
    assert repr(sf.marginals(DOMAIN, 1)) == "Workload(10 queries in 3 groups over 3 attributes)"


def test_weights_whose_squares_are_no_floats_are_refused() -> None:
    work = sf.marginals(sf.Domain({"a": 2}), 1)
    for factor in (1e60, 1e-60):
        with pytest.raises(WorkloadError, match="only their ratios matter"):
            factor * work
    with pytest.raises(WorkloadError, match="only their ratios matter"):
        1e30 * (1e30 * work)
    assert (1e40 * work).terms[0].weight == 1e40
