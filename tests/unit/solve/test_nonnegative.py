# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import brentq

from sfumato.errors import PlanError
from sfumato.solve.nonnegative import onto_weights, project_to_simplex

tables = hnp.arrays(
    np.float64,
    hnp.array_shapes(max_dims=2, max_side=12),
    elements=st.floats(-1e6, 1e6, allow_nan=False),
)
totals = st.floats(0, 1e6)


def by_root_finding(table: np.ndarray, total: float) -> np.ndarray:
    """Independent: the threshold is the root of sum max(x - t, 0) = total."""

    def excess(t: float) -> float:
        return float(np.maximum(table - t, 0).sum()) - total

    low, high = float(table.min()) - total - 1.0, float(table.max())
    return np.maximum(table - brentq(excess, low, high, xtol=1e-12, rtol=1e-14), 0)


@given(tables, totals)
def test_the_projection_is_feasible(table, total):
    projected = project_to_simplex(table, total)
    assert projected.shape == table.shape
    assert (projected >= 0).all()
    assert projected.sum() == pytest.approx(total, rel=1e-9, abs=1e-9)


@given(tables, st.floats(1e-3, 1e6))
def test_the_projection_agrees_with_a_root_finder(table, total):
    expected = by_root_finding(table, total)
    assert project_to_simplex(table, total) == pytest.approx(expected, rel=1e-6, abs=1e-5)


@given(tables, st.floats(1e-3, 1e6))
def test_the_projection_is_idempotent_and_never_farther_from_a_feasible_table(table, total):
    once = project_to_simplex(table, total)
    assert project_to_simplex(once, total) == pytest.approx(once, rel=1e-9, abs=1e-6)
    feasible = np.full(table.shape, total / table.size)
    before, after = np.linalg.norm(table - feasible), np.linalg.norm(once - feasible)
    assert after <= before * (1 + 1e-9) + 1e-6


def test_hand_computed_projections():
    assert project_to_simplex(np.array([0.5, 0.5]), 1).tolist() == [0.5, 0.5]
    assert project_to_simplex(np.array([1.0, 1.0, -1.0]), 1).tolist() == [0.5, 0.5, 0.0]
    assert project_to_simplex(np.array([5.0, -7.0]), 0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("total", [-1.0, float("nan"), float("inf")])
def test_an_impossible_total_is_refused(total):
    with pytest.raises(PlanError, match="cannot have the total"):
        project_to_simplex(np.ones(3), total)


def test_projection_onto_weights_meets_its_optimality_conditions():
    draw = np.random.default_rng(1)
    wanted, metric = draw.normal(size=200), draw.gamma(1, size=200) + 0.01
    found = onto_weights(wanted, metric, 3.0)
    slope = metric * (found - wanted)
    held = found > 0
    assert found.sum() == pytest.approx(3.0)
    assert np.ptp(slope[held]) < 1e-9
    assert (slope[~held] >= slope[held].min() - 1e-9).all()
