# SPDX-License-Identifier: Apache-2.0
"""Quantiles of |N(b, 1)| against the normal law."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sfumato.strategy.biased import folded_normal_quantile


@pytest.mark.parametrize("level", [0.1, 0.5, 0.95, 0.9999])
def test_the_interval_holds_as_much_as_it_says_and_hardly_more(level: float) -> None:
    ratio = np.array([0.0, 1e-6, 0.1, 0.5, 1.0, 3.0, 30.0])
    c = folded_normal_quantile(ratio, level)
    held = stats.norm.cdf(c - ratio) - stats.norm.cdf(-c - ratio)
    assert (held >= level).all()
    assert held == pytest.approx(np.full(len(ratio), level), abs=1e-7)


def test_less_bias_than_allowed_is_covered_more_often() -> None:
    c = float(folded_normal_quantile(np.array([2.0]), 0.95)[0])
    for b in np.linspace(-2, 2, 21):
        assert stats.norm.cdf(c - b) - stats.norm.cdf(-c - b) >= 0.95
    # An interval that ignores the bias is not.
    assert stats.norm.cdf(1.96 - 2) - stats.norm.cdf(-1.96 - 2) < 0.5


def test_it_lies_between_the_one_sided_and_the_two_sided_quantile_beside_the_bias() -> None:
    ratio = np.linspace(0, 10, 50)
    c = folded_normal_quantile(ratio, 0.95)
    assert (c >= ratio + stats.norm.ppf(0.95) - 1e-9).all()
    assert (c <= ratio + stats.norm.ppf(0.975) + 1e-6).all()
    assert (np.diff(c) > 0).all()
