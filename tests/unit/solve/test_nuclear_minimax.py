# SPDX-License-Identifier: Apache-2.0
"""The largest error: bounds that enclose gamma_2, checked against known values and dense X."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sfumato.errors import PlanError
from sfumato.solve.nuclear import certified_minimax
from sfumato.types import Array


def dense(matrix: Array):
    """The two diagonals by a singular value decomposition."""

    def evaluate(v: Array, w: Array) -> tuple[Array, Array]:
        left, singular, right = np.linalg.svd(
            matrix * np.sqrt(v) * np.sqrt(w)[:, None], full_matrices=False
        )
        return (right.T**2) @ singular, (left**2) @ singular

    return evaluate


def found_for(matrix: Array, **options: object):
    return certified_minimax(dense(matrix), matrix.shape[1], len(matrix), **options)


def feasible(matrix: Array, v: Array, w: Array, scale: float) -> Array:
    """The X that the weights describe."""
    b = matrix * np.sqrt(v) * np.sqrt(w)[:, None]
    values, vectors = np.linalg.eigh(b.T @ b)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return root / np.sqrt(np.outer(v, v)) / scale


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        (np.eye(6), 1.0),  # the histogram
        (np.ones((3, 5)), 1.0),  # one query, however often it is asked
        (np.diag([1.0, 2.0, 5.0]), 5.0),  # alone, the largest cell decides
        # a Hadamard matrix of order n: sqrt(n), reached by X = I
        (np.kron([[1, 1], [1, -1]], np.kron([[1, 1], [1, -1]], [[1, 1], [1, -1]])), 8**0.5),
    ],
)
def test_known_values_are_enclosed(matrix: Array, expected: float) -> None:
    found = found_for(np.asarray(matrix, dtype=np.float64), tolerance=1e-5)
    assert found.lower**0.5 <= expected * (1 + 1e-9)
    assert found.upper**0.5 >= expected * (1 - 1e-9)
    assert found.certificate <= 1 + 1e-5


@pytest.mark.parametrize("all_bind", [False, True])
def test_the_weights_describe_a_feasible_x_with_the_stated_error(all_bind: bool) -> None:
    matrix = np.tril(np.ones((24, 24)))
    found = found_for(matrix, all_bind=all_bind)
    x = feasible(matrix, found.v, found.w, found.scale)
    errors = np.einsum("qi,ij,qj->q", matrix, np.linalg.inv(x), matrix)
    assert np.diag(x).max() == pytest.approx(1, abs=1e-9)
    assert errors.max() == pytest.approx(found.upper, rel=1e-8)
    assert found.certificate <= 1.0001


def test_no_factorization_is_below_the_bound() -> None:
    rng = np.random.default_rng(5)
    matrix = rng.integers(-2, 3, (7, 5)).astype(float)
    found = found_for(matrix, tolerance=1e-6)
    for _ in range(300):
        m = rng.normal(size=(5, 5))
        m /= np.linalg.norm(m, axis=0)
        r = matrix @ np.linalg.inv(m)
        assert (r**2).sum(axis=1).max() >= found.lower * (1 - 1e-9)


def test_rows_and_columns_play_the_same_part() -> None:
    matrix = np.tril(np.ones((9, 9)))[::2]
    there, back = found_for(matrix, tolerance=1e-7), found_for(matrix.T.copy(), tolerance=1e-7)
    assert there.upper == pytest.approx(back.upper, rel=1e-6)


def test_copies_stand_for_repeated_blocks() -> None:
    matrix = np.tril(np.ones((10, 10)))
    whole = found_for(np.kron(np.eye(3), matrix), tolerance=1e-6)
    copies = np.full(10, 3.0)
    short = found_for(matrix, tolerance=1e-6, cell_copies=copies, query_copies=copies)
    assert short.lower <= whole.upper
    assert whole.lower <= short.upper


def test_every_step_reports_a_certificate() -> None:
    seen: list[float] = []
    found = found_for(np.tril(np.ones((16, 16))), progress=lambda _, gap: seen.append(gap))
    assert len(seen) == found.steps
    assert seen[-1] == pytest.approx(found.certificate - 1)
    assert all(later <= earlier for earlier, later in itertools.pairwise(seen))


def test_a_zero_workload_is_refused() -> None:
    with pytest.raises(PlanError, match="zero"):
        found_for(np.zeros((2, 3)))
