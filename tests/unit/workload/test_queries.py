# SPDX-License-Identifier: Apache-2.0
"""Every query set against its dense matrix, by one registry."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import TooLarge, WorkloadError
from sfumato.workload.queries import (
    Groups,
    Identity,
    Matrix,
    Prefix,
    QuerySet,
    Ranges,
    Total,
    Windows,
    integer_entries,
    joint_classes,
    widened,
)
from tests.shared.dense import dense_queries

THIRDS = [[1 / 3, 0.25, -2.0, 0.0, 7.5], [0.0, 0.0, 1.0, 1e-7, 3.0]]

REGISTRY: dict[str, QuerySet] = {
    "total": Total(5),
    "total of one cell": Total(1),
    "identity": Identity(5),
    "identity of one cell": Identity(1),
    "prefix": Prefix(5),
    "prefix of one cell": Prefix(1),
    "ranges": Ranges(5),
    "ranges of one cell": Ranges(1),
    "windows of 1": Windows(5, 1),
    "windows of 3": Windows(5, 3),
    "windows of all": Windows(5, 5),
    "groups": Groups(5, "g", ("a", "b", "c"), (0, 2, 0, -1, 2)),
    "groups with an empty one": Groups(5, "g", ("a", "b"), (0, 0, 0, 0, 0)),
    "groups of nothing": Groups(2, "g", ("a",), (-1, -1)),
    "matrix of whole numbers": Matrix.of([[1, 2, 3, 4, 5], [0, 0, 1, -1, 0]]),
    "matrix of zeros": Matrix.of([[0, 0, 0]]),
    "matrix of fractions": Matrix.of(THIRDS),
    "matrix of large numbers": Matrix.of([[2.0**30 + 0.5, -(2.0**30), 1 / 3]]),
}

queries = pytest.mark.parametrize("q", REGISTRY.values(), ids=REGISTRY.keys())


@queries
def test_dense_is_the_definition(q: QuerySet) -> None:
    expected = dense_queries(q)
    assert expected.shape == (q.rows, q.size)
    np.testing.assert_array_equal(q.dense(), expected)


@queries
def test_apply_is_the_matrix_product_along_the_first_axis(q: QuerySet) -> None:
    x = np.random.default_rng(1).normal(size=(q.size, 2, 3))
    expected = np.tensordot(dense_queries(q), x, axes=1)
    np.testing.assert_allclose(q.apply(x), expected, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(q.apply(x[:, 0, 0]), expected[:, 0, 0], rtol=1e-12, atol=1e-9)


@queries
def test_adjoint_passes_the_dot_test(q: QuerySet) -> None:
    rng = np.random.default_rng(2)
    for _ in range(5):
        x, y = rng.normal(size=q.size), rng.normal(size=q.rows)
        left, right = q.apply(x) @ y, x @ q.adjoint(y)
        scale = np.abs(dense_queries(q)).sum() + 1
        assert abs(left - right) < 1e-12 * scale * 10


@queries
def test_adjoint_is_the_transposed_matrix(q: QuerySet) -> None:
    y = np.random.default_rng(3).normal(size=(q.rows, 2))
    np.testing.assert_allclose(q.adjoint(y), dense_queries(q).T @ y, rtol=1e-12, atol=1e-9)


@queries
def test_gram_is_the_product_of_both(q: QuerySet) -> None:
    expected = dense_queries(q).T @ dense_queries(q)
    np.testing.assert_allclose(q.gram(), expected, rtol=1e-12)
    x = np.random.default_rng(4).normal(size=(q.size, 2))
    np.testing.assert_allclose(q.gram_apply(x), expected @ x, rtol=1e-12, atol=1e-6)


@queries
def test_gram_of_integers_is_not_scaled_by_the_fraction_bits(q: QuerySet) -> None:
    x = np.arange(q.size)
    expected = dense_queries(q).T @ dense_queries(q) @ x
    np.testing.assert_allclose(q.gram_apply(x), expected, rtol=1e-12, atol=1e-9)


@queries
@pytest.mark.parametrize("p", [1, 2, 4])
def test_powers_are_sums_over_rows_and_columns(q: QuerySet, p: int) -> None:
    powers = np.abs(dense_queries(q)) ** p
    np.testing.assert_allclose(q.column_powers(p), powers.sum(axis=0), rtol=1e-14)
    np.testing.assert_allclose(q.row_powers(p), powers.sum(axis=1), rtol=1e-14)


@queries
def test_bounds_are_the_least_and_greatest_coefficients(q: QuerySet) -> None:
    dense = dense_queries(q)
    low, high = q.coefficient_bounds()
    np.testing.assert_array_equal(low, dense.min(axis=1))
    np.testing.assert_array_equal(high, dense.max(axis=1))
    assert q.greatest >= np.abs(dense).max()
    assert q.is_nonnegative == (dense >= 0).all()


@queries
def test_intervals_are_the_rows_when_given(q: QuerySet) -> None:
    ends = q.intervals()
    if ends is None:
        assert isinstance(q, Groups | Matrix)
        return
    cells = np.arange(q.size)
    expected = (cells >= ends[0][:, None]) & (cells < ends[1][:, None])
    np.testing.assert_array_equal(dense_queries(q), expected)


@queries
def test_integers_stay_exact_in_64_bits(q: QuerySet) -> None:
    x = np.random.default_rng(5).integers(-(2**10), 2**10, size=(q.size, 2))
    scaled = np.rint(np.ldexp(dense_queries(q), q.fraction_bits)).astype(np.int64)
    out = q.apply(x)
    assert out.dtype == np.int64
    np.testing.assert_array_equal(out, scaled @ x)


@queries
def test_python_integers_stay_exact_at_any_size(q: QuerySet) -> None:
    x = np.array([(-1) ** i * 10**30 + i for i in range(q.size)], dtype=object)
    scaled = np.ldexp(dense_queries(q), q.fraction_bits)
    expected = [sum(int(a) * b for a, b in zip(row, x, strict=True)) for row in scaled]
    out = q.apply(x)
    assert out.dtype == object
    assert out.tolist() == expected


@queries
@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.uint64, np.bool_])
def test_small_integer_types_do_not_wrap_around(q: QuerySet, kind: type) -> None:
    x = np.full(q.size, 1 if kind is np.bool_ else 120).astype(kind)
    np.testing.assert_array_equal(q.apply(x), q.apply(x.astype(np.int64)))


def test_unsigned_counts_beyond_63_bits_become_python_integers() -> None:
    assert widened(np.array([2**63], dtype=np.uint64)).tolist() == [2**63]
    assert widened(np.array([2**63 - 1], dtype=np.uint64)).dtype == np.int64


def test_ranges_of_a_million_cells_cost_their_cells_not_their_queries() -> None:
    """5.5e11 queries: anything that lists them would not return."""
    q = Ranges(2**20)
    assert q.rows == 2**20 * (2**20 + 1) // 2
    i = np.array([0, 1, 2**19, 2**20 - 1])
    np.testing.assert_array_equal(q.column_powers(2)[i], (i + 1.0) * (2**20 - i))
    spike = np.zeros(2**20)
    spike[3] = 1.0
    # Cells 3 and 7 are together in 4 starts times size - 7 ends.
    assert q.gram_apply(spike)[7] == 4.0 * (2**20 - 7)
    with pytest.raises(TooLarge, match="ranges of 1,048,576 cells"):
        q.intervals()


@pytest.mark.parametrize("kind", [Total, Identity, Prefix, Ranges, lambda n: Windows(n, 2)])
def test_an_axis_that_cannot_be_held_is_refused_at_once(kind: type) -> None:
    with pytest.raises(TooLarge, match="the limit is"):
        kind(10**18)


def test_dense_matrices_are_refused_by_size() -> None:
    with pytest.raises(TooLarge, match="GiB"):
        Identity(2**20).dense()
    with pytest.raises(TooLarge, match="Gram"):
        Prefix(2**20).gram()


@pytest.mark.parametrize("width", [0, -1, 6])
def test_windows_must_fit(width: int) -> None:
    with pytest.raises(WorkloadError, match="allowed are 1 to 5"):
        Windows(5, width)


@pytest.mark.parametrize(
    ("labels", "group_of"),
    [(("a",), (0,)), (("a",), (0, 1)), (("a",), (0, -2)), ((), (-1, -1))],
)
def test_groups_must_say_one_known_group_per_cell(
    labels: tuple[str, ...], group_of: tuple[int, ...]
) -> None:
    with pytest.raises(WorkloadError):
        Groups(2, "g", labels, group_of)


@pytest.mark.parametrize(
    "given",
    [
        [[1, 2], [3]],
        [[np.nan, 1]],
        [[np.inf, 1]],
        [["a", "b"]],
        [[1j, 0]],
        [[2.0**31, 0]],
        np.zeros((0, 2)),
        np.zeros((1, 1, 2)),
        [],
        None,
        [[10**30, 0]],
    ],
)
def test_matrices_that_are_not_coefficients_are_refused(given: object) -> None:
    with pytest.raises(WorkloadError):
        Matrix.of(given)


def test_coefficients_keep_the_fewest_bits_that_hold_them() -> None:
    assert integer_entries(np.array([1.0, 2.0]))[1] == 0
    entries, bits = integer_entries(np.array([0.5, 0.75]))
    assert (entries.tolist(), bits) == ([2, 3], 2)
    # 1/3 has no end in binary: it is rounded to the nearest multiple of 2^-20.
    entries, bits = integer_entries(np.array([1 / 3]))
    assert (entries.tolist(), bits) == ([round(2**20 / 3)], 20)


def test_power_sums_beyond_64_bits_are_never_too_small() -> None:
    """Squares of 2^51 overflow 64 bits: the float sum is rounded up instead."""
    rows = 2**12
    q = Matrix.of(np.full((rows, 2), 2.0**31 - 1 - 2.0**-20))
    exact = rows * ((2**31 - 1) * 2**20 - 1) ** 2  # times 2^-40
    assert int(q.column_powers(2)[0] * 2**40) >= exact
    assert q.column_powers(2)[0] * 2**40 <= exact * (1 + 1e-9)


def test_a_matrix_cannot_be_changed_after_it_was_checked() -> None:
    q = Matrix.of([[1, 2]])
    with pytest.raises(ValueError, match="read-only"):
        q.entries[0, 0] = 5
    q.dense()[0, 0] = 9.0  # a copy
    assert q.apply(np.array([1.0, 0.0]))[0] == 1.0


def test_large_matrices_of_zeros_are_multiplied_without_them() -> None:
    """Levels of a long attribute, as one matrix: the same products, along any further axes."""
    size = 1200
    groups = np.arange(size) // 12
    entries = np.concatenate([np.eye(size), groups == np.arange(100)[:, None]]).astype(np.int64)
    queries = Matrix.of(entries)
    x = np.random.default_rng(0).normal(size=(size, 3, 2))
    y = np.random.default_rng(1).normal(size=(len(entries), 2))
    np.testing.assert_allclose(queries.apply(x), np.tensordot(entries, x, axes=1), atol=1e-12)
    np.testing.assert_allclose(queries.adjoint(y), entries.T @ y, atol=1e-12)
    whole = np.arange(size)
    assert np.array_equal(queries.apply(whole), entries @ whole)


def test_joint_classes_are_numbered_by_their_first_position() -> None:
    keys = [np.array([5, 5, 1, 1, 5]), np.array([0, 0, 0, 3, 0])]
    assert joint_classes(keys).tolist() == [0, 0, 1, 2, 0]
