# SPDX-License-Identifier: Apache-2.0
"""K-norm noise: its norm, its law, its error, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import sfumato as sf
from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.types import Neighbours
from sfumato.vault.mechanisms.k_norm import KNorm
from tests.shared.words import SeededWords

SKEWED = np.array([[1, 1, 0, 2], [0, 1, 1, -1]])


def _moves(matrix: np.ndarray, neighbours: Neighbours) -> list[np.ndarray]:
    columns = list(matrix.T)
    if neighbours == "replace-one":
        columns = [a - b for a in columns for b in columns]
    return [sign * c for c in columns for sign in (1, -1)]


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(2, 9),
    st.sampled_from(["add-remove", "replace-one"]),
)
@settings(max_examples=60, deadline=None)
def test_no_move_of_a_record_changes_the_norm_by_more_than_one(
    seed: int, queries: int, cells: int, neighbours: Neighbours
) -> None:
    """The claim of privacy, in fractions; a norm a hundredth larger breaks it."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-2, 3, (queries, cells))
    matrix[0, 0] = 1
    try:
        mechanism = KNorm.of(matrix, 1, neighbours)
    except (TooLarge, WorkloadError):
        return
    moves = _moves(mechanism.measured, neighbours)
    points = rng.integers(-20, 21, (30, len(mechanism.measured)))
    before = mechanism.norm(points)
    steps = [
        abs(a - b)
        for move in moves
        for a, b in zip(mechanism.norm(points + move), before, strict=True)
    ]
    assert max(steps) <= 1
    assert max(mechanism.norm(np.array(moves))) == 1
    assert mechanism.norm(-points) == pytest.approx(before, rel=2e-3)
    facets, denominator = 100 * mechanism.facets, 99 * mechanism.denominator
    wrong = replace(mechanism, facets=facets, denominator=denominator)
    assert max(wrong.norm(np.array(moves))) > 1


def _chance(mechanism: KNorm, drawn: np.ndarray) -> float:
    """The p-value of the drawn noise against the law, over whole numbers near zero."""
    near = 3
    grid = np.array(list(product(range(-60, 61), repeat=2)))
    weights = np.array([exp(-float(mechanism.rate * n)) for n in mechanism.norm(grid)])
    law = weights / weights.sum()
    inside = (np.abs(grid) <= near).all(axis=1)
    counts = [int((drawn == z).all(axis=1).sum()) for z in grid[inside]]
    expected = np.append(law[inside], 1 - law[inside].sum()) * len(drawn)
    return float(chisquare([*counts, len(drawn) - sum(counts)], expected).pvalue)


def test_the_noise_has_the_law_that_is_claimed() -> None:
    mechanism = KNorm.of(SKEWED, 1)
    drawn = mechanism.noise(20_000, SeededWords("law"))
    assert _chance(mechanism, drawn) > 1e-6
    # The twin: the proposals themselves, none of them rejected, have another law.
    flat = sf.study.discrete_laplace(mechanism.reach / mechanism.rate, 40_000, SeededWords("law"))
    assert _chance(mechanism, flat.reshape(-1, 2)) < 1e-12


@pytest.mark.parametrize(
    "matrix",
    [SKEWED, np.tril(np.ones((4, 4))), np.ones((5, 3)), [[1, 0, 1, 1, 0], [1, 1, 0, 1, 0]]],
    ids=["skewed", "totals", "copies", "two"],
)
def test_the_error_is_as_forecast(matrix: np.ndarray) -> None:
    mechanism = KNorm.of(matrix, 0.25)
    cells = np.shape(matrix)[1]
    exact = np.asarray(matrix) @ np.arange(cells)
    words = SeededWords("error")
    runs = [mechanism.measure(np.arange(cells), words) - exact for _ in range(3000)]
    measured = float(np.sqrt(np.mean(np.square(runs))))
    assert measured == pytest.approx(mechanism.rmse, rel=0.06)
    assert abs(float(np.mean(runs))) < 0.1 * mechanism.rmse


def test_few_queries_over_many_cells_cost_less_than_a_plan_of_laplace_noise() -> None:
    matrix = np.random.default_rng(0).integers(0, 2, (5, 20))
    workload = sf.explicit(sf.Domain({"x": 20}), ["x"], matrix)
    plan = sf.plan(workload, sf.Budget(epsilon=0.5))
    assert KNorm.of(matrix, 0.5).rmse < 0.9 * plan.rmse


def test_epsilon_is_rounded_down_and_told() -> None:
    for epsilon in (0.1, 1, 3.3, 0.00724):
        rate = KNorm.of(SKEWED, epsilon).rate
        assert Fraction(epsilon) * Fraction(2047, 2048) <= rate <= Fraction(epsilon)
        assert KNorm.of(SKEWED, epsilon).cost == sf.Cost.pure(rate)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(TooLarge, match="at most 6"):
        KNorm.of(np.eye(7), 1)
    with pytest.raises(TooLarge, match="raise epsilon"):
        KNorm.of(400 * SKEWED, 0.0021)
    with pytest.raises(WorkloadError, match="whole numbers"):
        KNorm.of([[0.5, 1]], 1)
    with pytest.raises(PlanError, match="epsilon"):
        KNorm.of(SKEWED, 0)
    with pytest.raises(WorkloadError, match="never changes"):
        KNorm.of([[1, 1], [1, 0]], 1, "replace-one")
    with pytest.raises(WorkloadError, match="4 cells"):
        KNorm.of(SKEWED, 1).measure([1, 2])


def test_the_name_of_before_warns_and_measures():
    mechanism = KNorm.of(SKEWED, 1)
    counts = np.arange(SKEWED.shape[1])
    with pytest.warns(DeprecationWarning, match="now KNorm.measure"):
        released = mechanism.release(counts, SeededWords("k-norm"))
    assert np.array_equal(released, mechanism.measure(counts, SeededWords("k-norm")))
