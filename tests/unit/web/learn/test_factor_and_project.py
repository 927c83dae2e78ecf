# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from sfumato_web.learn.factor_and_project import MOST, QUERY, repeated, unit_noise
from tests.shared.words import SeededWords


@pytest.fixture(scope="module")
def noise():
    return unit_noise(MOST + 1, SeededWords("repeated"))


@pytest.mark.parametrize("times", [1, 2, 9, 64])
def test_noise_for_each_answer_grows_with_the_root_and_one_measurement_stays(noise, times):
    asked = repeated(times, 1.0, noise)
    assert asked.apart.rmse / asked.once.rmse == pytest.approx(sqrt(times), rel=1e-3)
    assert asked.once.rmse == pytest.approx(repeated(1, 1.0, noise).once.rmse, rel=1e-3)


def test_both_ways_cost_no_more_than_the_same_budget(noise):
    asked = repeated(16, 1.0, noise)
    assert asked.apart.budget == asked.once.budget
    assert asked.apart.cost.mu_squared == pytest.approx(asked.once.cost.mu_squared, rel=1e-4)


@pytest.mark.parametrize("times", [1, 7])
def test_the_factorization_is_one_row_copied(noise, times):
    found = repeated(times, 1.0, noise).matrices()
    np.testing.assert_allclose(found.M, [QUERY], atol=1e-9)
    np.testing.assert_allclose(found.R, np.ones((times, 1)), atol=1e-9)
    assert found.certificate == pytest.approx(1, abs=1e-6)


def test_the_average_of_noisy_answers_is_as_good_as_one_measurement(noise):
    asked = repeated(MOST, 1.0, noise)
    assert asked.apart.rmse / sqrt(MOST) == pytest.approx(asked.once.rmse, rel=1e-3)


def test_the_same_noise_is_scaled_while_a_control_moves(noise):
    few, many = repeated(8, 1.0, noise), repeated(8, 0.5, noise)
    ratio = (many.answers_apart() - many.truth) / (few.answers_apart() - few.truth)
    np.testing.assert_allclose(ratio, many.apart.rmse / few.apart.rmse)


def test_unit_noise_is_standard_normal():
    drawn = unit_noise(20_000, SeededWords("unit"))
    assert abs(float(drawn.mean())) < 5 / sqrt(20_000)
    assert float(drawn.std()) == pytest.approx(1, abs=5 / sqrt(2 * 20_000))


def test_figures_show_all_answers_and_the_equal_rows(noise):
    asked = repeated(20, 1.0, noise)
    assert asked.answers_figure().count("<circle") == 20 + 1  # and one in the legend
    assert "and 12 more equal rows" in asked.matrix_figure()
    assert "k = 20" in asked.error_figure()
    assert "4.47 times less" in asked.notices()[0]
