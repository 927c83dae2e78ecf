# SPDX-License-Identifier: Apache-2.0
"""How a budget is shared between searches, bins, and forecasts on declared shapes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from sfumato.errors import PlanError
from sfumato.planning.discovery_plans import bins_for, forecast_range
from sfumato.privacy.discovery_laws import range_law


def test_bins_grow_with_the_records_and_shrink_with_the_noise():
    """Rice: 2 * 1000^(1/3) = 20; with noise 20, 1000 / (6 * 20) = 8; never below 5."""
    assert bins_for(1000, 0.0) == 20
    assert bins_for(1000, 20.0) == 8
    assert bins_for(1000, 1e9) == 5
    assert bins_for(-3, 1.0) == 5
    assert bins_for(1e12, 1.0) == 50


def test_a_forecast_is_the_same_each_time_and_improves_with_the_records():
    law = range_law(Fraction(1, 10))
    few, many = forecast_range(law, 1000), forecast_range(law, 10_000)
    assert few == forecast_range(law, 1000)
    assert few.octave < 0.9
    assert many.octave >= 0.98
    assert many.default == 0.0


def test_a_forecast_says_where_too_little_is_learnt():
    nothing = forecast_range(range_law(Fraction(1, 10)), 50)
    assert nothing.default > 0.9
    assert "the default range is used" in nothing.describe()


@pytest.mark.parametrize(
    ("records", "shape", "words"),
    [(10, "zipf", "shape must be"), (-1, "normal", "records must be")],
)
def test_shapes_and_sizes_that_are_none_are_refused(records, shape, words):
    with pytest.raises(PlanError, match=words):
        forecast_range(range_law(Fraction(1)), records, shape)
