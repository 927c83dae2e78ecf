# SPDX-License-Identifier: Apache-2.0
"""The rational fourth root and the functions that follow from it, against plain evaluation."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.plan.rational import Root, inverse_fourth_root

SPECTRA = [(1.0, 1.5), (1e-3, 1e2), (1e-7, 10.0), (1e-13, 4.0), (3e-17, 5.0)]


def sampled(least: float, largest: float) -> np.ndarray:
    return np.geomspace(least, largest, 2003)


@pytest.mark.parametrize(("least", "largest"), SPECTRA)
def test_the_root_is_near_the_fourth_root_with_positive_poles_and_weights(
    least: float, largest: float
) -> None:
    root, x = inverse_fourth_root(least, largest), sampled(least, largest)
    assert (root.weights > 0).all()
    assert (np.diff(root.shifts) > 0).all()
    assert root.shifts[0] > 0
    assert np.abs(root.at(x) * x**0.25 - 1).max() < 2e-5


@pytest.mark.parametrize(("least", "largest"), SPECTRA)
def test_square_reciprocal_and_their_quotient_follow_to_rounding(
    least: float, largest: float
) -> None:
    root, x = inverse_fourth_root(least, largest), sampled(least, largest)
    r = root.at(x)
    np.testing.assert_allclose(root.squared.at(x), r**2, rtol=1e-13)
    np.testing.assert_allclose(root.reciprocal.at(x), 1 / r, rtol=1e-13)
    np.testing.assert_allclose(root.reciprocal.squared_over_x.at(x), 1 / (x * r**2), rtol=1e-13)


def test_the_reciprocal_of_two_poles_is_the_one_found_by_hand() -> None:
    """1 / (1/(x+1) + 1/(x+3)) = (x+1)(x+3) / (2 (x+2)) = 3/4 + x/2 + x/4 / (x+2)."""
    found = Root(np.array([1.0, 3.0]), np.ones(2)).reciprocal
    assert found.constant == pytest.approx(0.75)
    assert found.slope == pytest.approx(0.5)
    np.testing.assert_allclose(found.shifts, [2.0])
    np.testing.assert_allclose(found.gains, [0.25])
