# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato_web.learn.factor_and_project import (
    KINDS,
    SHARES,
    corners,
    draws,
    error_against_noise,
    nearest,
    projection,
    queries,
)
from tests.shared.words import SeededWords

TRUTH = np.array(SHARES) @ np.array(KINDS)
UNIT = draws(SeededWords("hull"))
numbers = st.floats(-5, 5)


def _nearest_of_polygon(point: np.ndarray) -> np.ndarray:
    """By hand: the point itself if it is inside, else the nearest point of an edge."""
    edge = np.array(corners())
    following = np.roll(edge, -1, axis=0)
    along, to = following - edge, point - edge
    if (along[:, 0] * to[:, 1] - along[:, 1] * to[:, 0] >= 0).all():  # left of every edge
        return point
    part = np.clip((to * along).sum(axis=1) / (along**2).sum(axis=1), 0, 1)
    feet = edge + part[:, None] * along
    return feet[np.argmin(((feet - point) ** 2).sum(axis=1))]


@settings(deadline=None, max_examples=40)
@given(numbers, numbers)
def test_the_library_projects_onto_the_polygon(x, y):
    point = np.array([x, y])
    np.testing.assert_allclose(nearest(point), _nearest_of_polygon(point), atol=2e-3)


@settings(deadline=None, max_examples=40)
@given(numbers, numbers, st.lists(st.floats(0.01, 1), min_size=7, max_size=7))
def test_a_projected_point_is_never_farther_from_a_possible_truth(x, y, weights):
    truth = np.array(weights) / sum(weights) @ np.array(KINDS)
    noisy = np.array([x, y])
    after = np.linalg.norm(nearest(noisy) - truth)
    assert after <= np.linalg.norm(noisy - truth) + 2e-3


@settings(deadline=None, max_examples=20)
@given(numbers, numbers)
def test_the_corners_are_those_of_the_support_function(x, y):
    direction = np.array([x, y])
    most = max(float(np.dot(direction, c)) for c in corners())
    assert most == pytest.approx(float(sf.support(queries(), direction)), abs=1e-9)


def test_noise_shrinks_with_the_records_and_projection_only_helps():
    few, many = projection(5, 1.0, UNIT), projection(500, 1.0, UNIT)
    assert few.deviation == pytest.approx(100 * many.deviation)
    assert few.errors()[1] < few.errors()[0]
    np.testing.assert_allclose(many.projected, many.noisy, atol=1e-3)


def test_the_error_after_projection_stays_below_the_polygon():
    found = error_against_noise(UNIT.tobytes())
    widest = max(np.linalg.norm(np.subtract(a, b)) for a in corners() for b in corners())
    for deviation, error in found:
        noise = deviation * float(np.sqrt(np.mean(UNIT**2)))
        assert error <= min(noise, float(widest)) + 1e-3


def test_the_noise_is_that_of_the_planner():
    budget = sf.Budget(epsilon=1, delta=1e-6)
    plan = sf.plan(queries(), budget, "replace-one", mechanism="gaussian")
    assert projection(50, 1.0, UNIT).deviation == pytest.approx(plan.rmse / 50, rel=1e-6)


def test_figures_say_what_they_show():
    found = projection(20, 1.0, UNIT)
    assert "12 noisy points" in found.hull_figure()
    assert "n = 20" in found.error_figure()
    assert len(found.notices()) == 4
