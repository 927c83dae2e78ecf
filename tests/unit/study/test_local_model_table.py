# SPDX-License-Identifier: Apache-2.0
"""Randomized response on the joint cell of several attributes."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import SchemaError, TooLarge, WorkloadError
from sfumato.study.local_model import (
    RandomizedResponse,
    encode_table,
    estimate_reports,
    estimate_table,
    joint_response,
    product_queries,
)


class SeededWords:
    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def words(self, count: int) -> np.ndarray:
        return self.generator.integers(0, 1 << 64, size=count, dtype=np.uint64)


SIZES = (3, 1, 4)


def some_rows(rows: int) -> np.ndarray:
    generator = np.random.default_rng(8)
    return np.stack([generator.integers(0, size, rows) for size in SIZES], axis=1)


def test_a_table_is_encoded_as_its_joint_cells():
    table = some_rows(500)
    cells = np.ravel_multi_index(tuple(table.T), SIZES)
    expected = RandomizedResponse(1, 12).encode(cells, SeededWords(3))
    reports = encode_table(table, SIZES, 1, SeededWords(3))
    assert np.array_equal(np.ravel_multi_index(tuple(reports.T), SIZES), expected)
    joint = estimate_reports(RandomizedResponse(1, 12), expected)
    assert np.array_equal(estimate_table(reports, SIZES, 1).counts, joint.counts)


def test_with_a_huge_epsilon_the_marginals_are_exact():
    table = some_rows(300)
    result = estimate_table(encode_table(table, SIZES, 100, SeededWords(4)), SIZES, 100)
    queries = product_queries(np.eye(3), np.ones((1, 1)), np.ones((1, 4)))
    assert np.allclose(result.answer(queries).value, np.bincount(table[:, 0], minlength=3))
    assert np.allclose(
        result.counts.reshape(SIZES).sum(axis=(0, 1)), np.bincount(table[:, 2], minlength=4)
    )


def test_too_many_joint_cells_are_refused_with_their_true_number():
    with pytest.raises(TooLarge, match=str(10**20)):
        joint_response((10,) * 20, 1)


def test_too_many_product_queries_are_refused():
    with pytest.raises(TooLarge, match="entries"):
        product_queries(np.eye(200), np.eye(200))


@pytest.mark.parametrize("table", [[0, 1], [[0, 1]], [[0, 0, 0, 0]]])
def test_a_table_with_another_number_of_columns_is_refused(table):
    with pytest.raises(SchemaError, match=r"\(rows, 3\)"):
        encode_table(table, SIZES, 1)


def test_codes_outside_an_attribute_are_refused_without_the_value_even_if_the_cell_is_legal():
    """(0, 0, 7) would land on a legal joint cell, so each attribute is checked alone."""
    with pytest.raises(SchemaError) as caught:
        encode_table([[0, 0, 7]], SIZES, 1)
    assert "7" not in str(caught.value)


@pytest.mark.parametrize("sizes", [(0, 2), (2.0, 2), (True, 2)])
def test_sizes_that_are_not_positive_integers_are_refused(sizes):
    with pytest.raises(SchemaError, match="at least 1"):
        joint_response(sizes, 1)


def test_no_factor_or_a_flat_factor_is_refused():
    with pytest.raises(WorkloadError, match="one matrix"):
        product_queries()
    with pytest.raises(WorkloadError, match="one matrix"):
        product_queries([1, 1])
