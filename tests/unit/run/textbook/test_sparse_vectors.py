# SPDX-License-Identifier: Apache-2.0
"""The sparse vectors of the notes: scales, costs, places and bounds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from sfumato.vault.count import Sensitive

study = sf.study
SCORES = [3, 8, 5, 900, 20, 950, 7]


@pytest.mark.parametrize(
    ("variant", "threshold", "scores"),
    [("slides", 2 * 3, 4 * 3), ("dwork-roth", 2 * 3, 4 * 3), ("lyu-su-li", 2, 4 * 3)],
)
def test_scales_are_those_that_were_published(variant, threshold, scores):
    """Lyu, Su, Li 2017, Figure 1, Algorithms 1 and 2; Wang's slides; epsilon = 1, c = 3."""
    some = study.sparse_vector(SCORES, T=500, epsilon=1, c=3, variant=variant)
    assert some.noise["threshold"].scale == pytest.approx(threshold, rel=1e-3)
    assert some.noise["scores"].scale == pytest.approx(scores, rel=1e-3)
    assert some.cost.pure_epsilon <= 1
    assert some.epsilon > 0.99
    assert some.places == (3, 5)
    assert some.answers == [False, False, False, True, False, True, False]


def test_above_threshold_has_the_noise_of_the_slides_and_halts_at_the_first():
    first = study.above_threshold(SCORES, T=500, epsilon=0.5)
    assert first.noise["threshold"].scale == pytest.approx(4, rel=1e-3)
    assert first.noise["scores"].scale == pytest.approx(8, rel=1e-3)
    assert first.place == 3
    assert first.answers == [False, False, False, True]
    assert study.above_threshold([1, 2], T=10_000, epsilon=1).place is None
    assert study.above_threshold(SCORES, T=[1e4] * 5 + [500, 500], epsilon=1).place == 5


def test_scales_grow_with_the_sensitivity_and_shrink_for_monotone_scores():
    wide = study.above_threshold(SCORES, T=500, epsilon=1, sensitivity=10)
    assert wide.noise["scores"].scale == pytest.approx(40, rel=1e-3)
    same = study.above_threshold(SCORES, T=500, epsilon=1, is_monotone=True)
    assert same.noise["scores"].scale == pytest.approx(2, rel=1e-3)


def test_any_pair_of_private_noises_generalises_it():
    for noise in ("exponential", ("laplace", "exponential"), ("laplace", "gaussian")):
        first = study.above_threshold(SCORES, T=500, epsilon=1, noise=noise)
        assert first.place == 3
        assert first.cost.pure_epsilon <= 1
    gaussian = study.above_threshold(SCORES, T=500, mu=1, noise="gaussian")
    assert gaussian.place == 3
    assert gaussian.mu <= 1


def test_a_delta_is_never_worse_than_without_and_better_for_many_discoveries():
    for c in (1, 3, 2000):
        pure = study.sparse_vector(SCORES, T=500, epsilon=1, c=c)
        both = study.sparse_vector(SCORES, T=500, epsilon=1, delta=1e-6, c=c)
        assert both.noise["scores"].scale <= pure.noise["scores"].scale
        assert both.epsilon <= 1
    assert both.noise["scores"].scale < pure.noise["scores"].scale / 2


def test_numbers_have_fresh_noise_and_half_of_the_budget():
    some = study.numeric_sparse(SCORES, T=500, epsilon=2, c=2)
    assert some.noise["numbers"].scale == pytest.approx(2, rel=1e-3)
    assert [a is None for a in some.answers] == [True, True, True, False, True, False]
    assert abs(some.answers[3] - 900) < 100
    assert some.cost.pure_epsilon <= 2
    with pytest.raises(sf.PlanError):
        study.numeric_sparse(SCORES, T=500, epsilon=2, c=2, number_share=Fraction(2))


def test_all_tests_are_right_up_to_the_bound():
    """Scores at T +- bound are told apart in at least 95% of runs, and not at half of it."""
    words = study.SeededWords(5)
    law = study.above_threshold([0] * 20, T=0, epsilon=1, random=words)
    alpha = law.error_bound(0.05)

    def wrong(distance: float) -> float:
        scores = [-distance] * 19 + [distance]
        runs = [study.above_threshold(scores, T=0, epsilon=1, random=words) for _ in range(200)]
        return float(np.mean([r.place != 19 for r in runs]))

    assert wrong(alpha) <= 0.1
    assert wrong(alpha / 3) > 0.1


def test_linear_queries_know_their_sensitivity():
    matrix = 3 * np.tril(np.ones((4, 4)))
    first = study.above_threshold(matrix, [5, 0, 700, 3], T=1000, epsilon=1)
    assert first.place == 2
    assert first.noise["scores"].scale == pytest.approx(12, rel=1e-3)
    monotone = study.above_threshold(matrix, [5, 0, 700, 3], T=1000, epsilon=1, is_monotone=None)
    assert monotone.noise["scores"].scale == pytest.approx(6, rel=1e-3)


def test_the_earlier_way_of_calling_still_works():
    law = study.sparse_of_epsilon(Fraction(1))
    assert study.above_threshold(Sensitive([0, 0, 9000]), [100] * 3, law) == 2
    with pytest.raises(sf.PlanError):
        study.above_threshold([0, 0], [1, 1], law)
