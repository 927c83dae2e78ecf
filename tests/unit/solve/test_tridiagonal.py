# SPDX-License-Identifier: Apache-2.0
"""The rational fourth root and the functions that follow from it, against plain evaluation."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.solve.tridiagonal import Root, inverse_fourth_root, inverse_root_poles, pole_count

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


@pytest.mark.parametrize("ratio", [1.5, 1e3, 1e9, 1e13, 6e13, 1e15, 1e18])
@pytest.mark.parametrize("extra", [0, 1])
def test_the_poles_of_the_square_root_keep_their_accuracy_on_wide_spectra(
    ratio: float, extra: int
) -> None:
    """Elliptic functions lose all digits near their quarter period; their symmetry does not."""
    count = pole_count(1.0, ratio, 1e-9) + extra
    shifts, weights = inverse_root_poles(1.0, ratio, count)
    assert len(shifts) == len(weights) == count
    x = sampled(1.0, ratio)
    assert np.abs(Root(shifts, weights).at(x) * np.sqrt(x) - 1).max() < 1e-9
