# SPDX-License-Identifier: Apache-2.0
"""Every kind of term against its dense matrix, by one registry."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import sfumato as sf
from sfumato.domain.attributes import Category
from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.workload.predicates import And, Everything, In, Not, Or
from sfumato.workload.queries import Identity, Matrix, Prefix, Ranges, Total, Windows
from sfumato.workload.terms import Explicit, Predicates, Product, Term
from tests.shared.dense import dense_term

DOMAIN = Domain(
    [
        *Domain({"a": 4, "b": 3}),
        Category("c", ("x", "y"), outside="other", nulls="missing"),
    ]
)
HALVES = Matrix.of([[0.5, 0, -1], [2, 1, 0.25]])
SPARSE = csr_matrix(np.array([[1, 0, 0, -2, 0, 3, 0, 0, 0, 0, 0, 0], [0] * 12]))


def product(*factors: tuple[str, object]) -> Product:
    return Product(DOMAIN, "p", 1.0, factors)  # type: ignore[arg-type]


def predicates(*conditions: object) -> Predicates:
    return Predicates(DOMAIN, "w", 1.0, conditions)  # type: ignore[arg-type]


REGISTRY: dict[str, Term] = {
    "total": product(),
    "one axis": product(("b", Prefix(3))),
    "two axes": product(("a", Ranges(4)), ("b", Identity(3))),
    "an axis in the middle": product(("a", Windows(4, 2)), ("b", HALVES), ("c", Total(4))),
    "only shrinking": product(("a", Matrix.of([[1, 1, 0, 0]])), ("c", Total(4))),
    "explicit": Explicit(DOMAIN, "e", 1.0, ("a", "b"), SPARSE, 1),
    "explicit over nothing": Explicit(DOMAIN, "e", 1.0, (), csr_matrix([[3]]), 0),
    "explicit of zeros": Explicit(DOMAIN, "e", 1.0, ("b",), csr_matrix((2, 3), dtype=int), 0),
    "conditions": predicates(
        And((In("a", (1, 2)), Not(In("c", (0,))))),
        Or((In("a", (0,)), In("b", (2,)), In("c", (3,)))),
        Everything(),
        Not(Everything()),
        In("b", ()),
    ),
    "conditions on nothing": predicates(Everything()),
    "an empty and, an empty or": predicates(And(()), Or(())),
    "condition that names a cell twice": predicates(In("a", (1, 1, 2))),
}

terms = pytest.mark.parametrize("term", REGISTRY.values(), ids=REGISTRY.keys())


@terms
def test_apply_is_the_matrix_product(term: Term) -> None:
    table = np.random.default_rng(1).normal(size=term.shape)
    expected = dense_term(term) @ table.reshape(-1)
    assert term.rows == len(expected)
    np.testing.assert_allclose(term.apply(table), expected, atol=1e-12)
    np.testing.assert_allclose(term.answer(table), expected, atol=1e-12)


@terms
def test_adjoint_passes_the_dot_test(term: Term) -> None:
    rng = np.random.default_rng(2)
    for _ in range(5):
        table, y = rng.normal(size=term.shape), rng.normal(size=term.rows)
        back = term.adjoint(y)
        assert back.shape == term.shape
        assert term.apply(table) @ y == pytest.approx(float((table * back).sum()), abs=1e-10)


@terms
def test_integers_stay_exact(term: Term) -> None:
    scaled = np.rint(np.ldexp(dense_term(term), term.fraction_bits)).astype(int)
    rng = np.random.default_rng(3)
    small = rng.integers(0, 2**20, size=term.shape)
    out = term.apply(small)
    assert out.dtype == np.int64
    np.testing.assert_array_equal(out, scaled @ small.reshape(-1))
    flat = [int(n) * 10**25 + 7 for n in small.reshape(-1)]
    large = np.array(flat, dtype=object).reshape(term.shape)
    expected = [sum(int(a) * b for a, b in zip(row, flat, strict=True)) for row in scaled]
    assert term.apply(large).tolist() == expected
    np.testing.assert_allclose(
        term.answer(large), np.array(expected, float) / 2**term.fraction_bits
    )


@terms
@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.uint64])
def test_small_integer_types_do_not_wrap_around(term: Term, kind: type) -> None:
    table = np.full(term.shape, 120, dtype=kind)
    np.testing.assert_array_equal(term.apply(table), term.apply(table.astype(np.int64)))


@terms
@pytest.mark.parametrize("p", [1, 2])
def test_column_factors_multiply_to_the_column_powers(term: Term, p: int) -> None:
    expected = (np.abs(dense_term(term)) ** p).sum(axis=0).reshape(term.shape)
    out = np.ones(term.shape)
    for names, values in term.column_factors(p):
        assert values.shape == tuple(DOMAIN[n].size for n in names)
        spread = [DOMAIN[n].size if n in names else 1 for n in term.attributes]
        out = out * values.reshape(spread)
    np.testing.assert_allclose(out, expected, rtol=1e-14)


@terms
@pytest.mark.parametrize("p", [1, 2, 4])
def test_row_powers_are_sums_over_the_table(term: Term, p: int) -> None:
    expected = (np.abs(dense_term(term)) ** p).sum(axis=1)
    np.testing.assert_allclose(term.row_powers(p), expected, rtol=1e-14)


@terms
def test_bounds_are_the_least_and_greatest_coefficients(term: Term) -> None:
    """Also where every query of a factor covers all cells only together with the others."""
    dense = dense_term(term)
    low, high = term.coefficient_bounds()
    np.testing.assert_allclose(low, dense.min(axis=1), atol=1e-15)
    np.testing.assert_allclose(high, dense.max(axis=1), atol=1e-15)
    assert term.greatest >= np.abs(dense).max()
    assert term.is_nonnegative or (dense < 0).any()
    assert not (term.is_nonnegative and (dense < 0).any())


@terms
def test_every_coefficient_is_a_multiple_of_the_grid(term: Term) -> None:
    scaled = np.ldexp(dense_term(term), term.fraction_bits)
    np.testing.assert_array_equal(scaled, np.rint(scaled))


def test_the_gram_of_a_product_is_applied_axis_by_axis() -> None:
    for term in REGISTRY.values():
        if isinstance(term, Product):
            dense = dense_term(term)
            table = np.random.default_rng(4).normal(size=term.shape)
            expected = (dense.T @ dense @ table.reshape(-1)).reshape(term.shape)
            np.testing.assert_allclose(term.gram_apply(table), expected, atol=1e-10)


def test_answers_that_overflow_64_bits_are_computed_in_python_integers() -> None:
    term = Product(Domain({"a": 2}), "p", 1.0, (("a", Matrix.of([[2.0**30 + 2.0**-20, 1.0]])),))
    table = np.array([2**40, 2**40])
    exact = (2**50 + 1) * 2**40 + 2**40 * 2**20  # times 2^-20
    assert exact >= 2**63
    assert term.answer(table)[0] == exact / 2**20


def test_a_product_shrinks_before_it_grows() -> None:
    """All ranges of 1,000 cells times 5,000 others would hold 2.5e9 numbers before the sum."""
    domain = Domain({"a": 1_000, "b": 5_000})
    term = Product(domain, "p", 1.0, (("a", Ranges(1_000)), ("b", Total(5_000))))
    table = np.zeros((1_000, 5_000), dtype=np.int8)
    table[0, 5] = 3
    assert term.apply(table).sum() == 3 * 1_000  # the ranges that start at cell 0
    assert term.adjoint(np.ones(term.rows)).shape == (1_000, 5_000)


def test_a_wide_condition_is_not_tabulated_but_its_norms_are_known() -> None:
    domain = Domain({"a": 10**5, "b": 10**5})
    age, other = sf.attribute(domain, "a"), sf.attribute(domain, "b")
    term = sf.predicates(domain, [(age < 10) | (other >= 5), age >= 7]).terms[0]
    assert isinstance(term, Predicates)
    assert term.is_wide
    assert term.cells == 10**10
    # a splits into [0,7), [7,10), [10,..), b into [0,5), [5,..)
    assert term.classes.shape == (3, 2)
    assert term.row_powers(2).tolist() == [
        10 * 10**5 + (10**5 - 10) * (10**5 - 5),
        (10**5 - 7) * 1e5,
    ]
    assert term.class_counts.max() == 2


def test_conditions_that_tell_too_many_cells_apart_are_refused() -> None:
    domain = Domain({"a": 2_000, "b": 2_000})
    listed = [In("a", (i,)) for i in range(2_000)] + [In("b", (i,)) for i in range(2_000)]
    term = Predicates(domain, "w", 1.0, tuple(listed))
    with pytest.raises(TooLarge, match="tell 4,000,000 cells apart"):
        term.row_powers(1)
    assert term.coefficient_bounds()[1].tolist() == [1.0] * 4_000


@pytest.mark.parametrize(
    "make",
    [
        lambda: product(("b", Identity(3)), ("a", Identity(4))),
        lambda: product(("a", Identity(4)), ("a", Identity(4))),
        lambda: product(("a", Identity(3))),
        lambda: product(("z", Identity(3))),
        lambda: Explicit(DOMAIN, "e", 1.0, ("b", "a"), csr_matrix((1, 12)), 0),
        lambda: Explicit(DOMAIN, "e", 1.0, ("a",), csr_matrix((1, 5)), 0),
        lambda: Explicit(DOMAIN, "e", 1.0, ("a",), csr_matrix((1, 4)), 0, ("x", "y")),
        lambda: predicates(),
        lambda: predicates("a = 1"),
        lambda: predicates(In("a", (4,))),
        lambda: predicates(In("a", (-1,))),
        lambda: predicates(In("z", (0,))),
        lambda: Predicates(DOMAIN, "w", 1.0, (Everything(),), ("x", "y")),
        lambda: Product(
            Domain({f"x{i}": 2 for i in range(20)}),
            "p",
            1.0,
            tuple((f"x{i}", Matrix.of([[1 / 3, 1]])) for i in range(20)),
        ),
    ],
)
def test_terms_that_do_not_fit_the_domain_are_refused(make: object) -> None:
    with pytest.raises(WorkloadError):
        make()  # type: ignore[operator]


def test_conditions_nested_too_deeply_are_refused_before_anything_walks_them() -> None:
    deep = In("a", (0,))
    for i in range(5_000):
        deep = And((deep, In("b", (0,)))) if i % 2 else Not(deep)  # type: ignore[assignment]
    with pytest.raises(WorkloadError, match="more than 100 levels"):
        predicates(deep)
    with pytest.raises(WorkloadError, match="more than 100 levels"):
        sf.predicates(DOMAIN, [deep])


def test_long_chains_of_one_operator_stay_flat() -> None:
    a = sf.attribute(DOMAIN, "a")
    chain = a == 0
    for _ in range(3_000):
        chain = chain | (a == 1)
    assert sf.predicates(DOMAIN, [chain]).terms[0].answer(np.array([1, 2, 4, 8])).tolist() == [3.0]


def test_groups_of_more_queries_than_memory_are_refused() -> None:
    domain = Domain({"a": 10_000, "b": 10_000, "c": 10_000})
    term = sf.product(domain, dict.fromkeys("abc", "identity")).terms[0]
    assert term.rows == 10**12
    for ask in (lambda: term.row_powers(2), term.coefficient_bounds):
        with pytest.raises(TooLarge, match="1,000,000,000,000"):
            ask()
