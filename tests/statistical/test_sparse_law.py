# SPDX-License-Identifier: Apache-2.0
"""Forecasts of sparse vectors against real runs, and choices against another implementation."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from sfumato.planning.sparse_plans import (
    SparseForecast,
    alarm_probability,
    failure_probability,
    plan_sparse,
)
from sfumato.privacy.budget import Budget
from sfumato.privacy.selection import choice_cost
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.sparse import Discoverer
from tests.shared.words import SeededWords

RUNS, ALPHA = 1500, 1e-6


def failures(plan: SparseForecast, gap: int, seed: str) -> int:
    """Runs in which some of k scores ``gap`` steps below their thresholds is found above."""
    words = SeededWords(seed)
    box, zeros = Sensitive([-gap] * plan.queries), [0] * plan.queries
    return sum(any(Discoverer(plan, words).test_many(box, zeros)) for _ in range(RUNS))


@pytest.mark.parametrize("budget", [Budget(epsilon=1), Budget(mu="0.5")])
def test_scores_beyond_the_tolerance_fail_no_more_often_than_forecast(budget: Budget) -> None:
    plan = plan_sparse(budget, 1, 20, 16, is_monotone=False, with_numbers=False, confidence=0.8)
    wrong = failures(plan, plan.tolerance + 1, "beyond")
    assert binom.sf(wrong - 1, RUNS, 0.2) > ALPHA
    # The twin: at half of the tolerance failures are more frequent than that.
    assert binom.sf(failures(plan, plan.tolerance // 2, "within") - 1, RUNS, 0.2) < ALPHA


def test_one_alarm_is_as_frequent_as_the_sum_over_both_laws_says() -> None:
    plan = plan_sparse(
        Budget(epsilon=1), 1, 1, 4, is_monotone=True, with_numbers=False, confidence=0.8
    )
    for gap in (-6, 0, 9):
        found = failures(plan, gap, f"gap {gap}")
        law = binom(RUNS, alarm_probability(plan.law, gap))
        assert min(law.cdf(found), law.sf(found - 1)) > ALPHA
        wrong = binom(RUNS, alarm_probability(plan.law, gap + 5))
        assert min(wrong.cdf(found), wrong.sf(found - 1)) < ALPHA
    assert failure_probability(plan.law, 1, 6) == pytest.approx(
        alarm_probability(plan.law, 7) + 1 - alarm_probability(plan.law, -6), abs=1e-9
    )


@pytest.mark.parametrize("scale", [0.5, 1.0, 7.0])
def test_noisy_max_costs_what_opendp_says(scale: float) -> None:
    """OpenDP's noisy max has exponential noise: epsilon = 2 D / scale, and once if monotone."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    for is_monotone in (False, True):
        noisy_max = dp.m.make_noisy_max(
            dp.vector_domain(dp.atom_domain(T=int)),
            dp.linf_distance(T=int, monotonic=is_monotone),
            dp.max_divergence(),
            scale=scale,
        )
        ours = choice_cost("exponential", 1 / Fraction(scale), 3, is_monotone)
        assert float(ours.pure_epsilon) == pytest.approx(noisy_max.map(3), rel=1e-9)


def test_noisy_max_chooses_as_often_as_opendp() -> None:
    """Two samples of the same law, by chi-square; a wrong rate is noticed."""
    import opendp.prelude as dp
    from scipy.stats import chi2_contingency

    from sfumato.vault.mechanisms.select import report_noisy_max

    dp.enable_features("contrib")
    scores, draws = [0, 3, 5, 4, -2], 4000
    peer = dp.m.make_noisy_max(
        dp.vector_domain(dp.atom_domain(T=int)),
        dp.linf_distance(T=int),
        dp.max_divergence(),
        scale=2.0,
    )
    theirs = np.bincount([peer(scores) for _ in range(draws)], minlength=5)

    def ours(rate: Fraction) -> np.ndarray:
        words, box = SeededWords("beside opendp"), Sensitive(np.array(scores))
        places = [report_noisy_max(box, rate, words, "exponential") for _ in range(draws)]
        return np.bincount(places, minlength=5)

    assert chi2_contingency([ours(Fraction(1, 2)), theirs]).pvalue > 1e-7
    assert chi2_contingency([ours(Fraction(5, 6)), theirs]).pvalue < 1e-7
