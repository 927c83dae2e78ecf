# SPDX-License-Identifier: Apache-2.0
"""Private selection by the notes' names: probabilities, costs and bounds."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import exp, log

import numpy as np
import pytest
from scipy.stats import chisquare

import sfumato as sf
from sfumato.vault.count import Sensitive

study = sf.study


def shares(scores: np.ndarray, epsilon: float) -> np.ndarray:
    """The law of the exponential mechanism for scores that move by 1."""
    weights = np.exp(epsilon * (scores - scores.max()) / 2)
    return weights / weights.sum()


def test_the_exponential_mechanism_has_the_probabilities_of_its_definition():
    words, scores = study.SeededWords(1), np.array([3, 5, 4, 5])
    draws = [
        study.exponential_mechanism(scores, epsilon=1, random=words).choice for _ in range(1500)
    ]
    counts = np.bincount(draws, minlength=4)
    assert chisquare(counts, 1500 * shares(scores, 1.0)).pvalue > 1e-3
    # The rate of twice the budget would be seen.
    assert chisquare(counts, 1500 * shares(scores, 2.0)).pvalue < 1e-3


def test_no_neighbours_are_told_apart_by_more_than_epsilon():
    """The exact law on every pair of scores that differ by at most 1 each."""
    for left in product((0, 1, 2), repeat=3):
        for moved in product((-1, 0, 1), repeat=3):
            a, b = shares(np.array(left), 0.8), shares(np.add(left, moved), 0.8)
            assert (a <= exp(0.8) * b * (1 + 1e-12)).all()
    chosen = study.exponential_mechanism([0, 1, 2], epsilon=0.8)
    assert chosen.cost.pure_epsilon <= Fraction(8, 10)
    assert chosen.noise["scores"].scale == pytest.approx(2 / 0.8)


@pytest.mark.parametrize(
    "choose", [study.exponential_mechanism, study.noisy_max, study.permute_and_flip]
)
def test_the_chosen_score_is_within_the_bound_of_the_best(choose):
    words, scores = study.SeededWords(2), np.linspace(0, 30, 40)
    runs = [choose(scores, epsilon=1, random=words) for _ in range(200)]
    behind = scores.max() - scores[[r.choice for r in runs]]
    assert (behind > runs[0].error_bound(0.05)).mean() <= 0.1
    assert behind.max() > 0
    assert runs[0].error_bound(0.05) >= 2 * log(40 / 0.05) - 1e-9


def test_permute_and_flip_is_better_than_the_exponential_mechanism_on_average():
    words, scores = study.SeededWords(3), np.array([10, *[4] * 30])
    hits = [
        np.mean([c(scores, epsilon=1, random=words).choice == 0 for _ in range(400)])
        for c in (study.exponential_mechanism, study.permute_and_flip)
    ]
    assert hits[1] > hits[0] + 0.05


def test_several_choices_share_epsilon_and_differ():
    some = study.exponential_mechanism([1, 900, 800, 2], epsilon=1, count=2)
    assert sorted(some.answers) == [1, 2]
    assert some.noise["scores"].scale == pytest.approx(4)
    assert some.cost.pure_epsilon <= 1


def test_floats_are_rounded_to_a_grid_that_the_sensitivity_counts_in():
    chosen = study.noisy_max([0.1, 0.5, 9.0], epsilon=1, sensitivity=0.01)
    assert chosen.choice == 2
    assert 0.02 < chosen.noise["scores"].scale < 0.02 * (1 + 2**-11)
    assert chosen.cost.pure_epsilon <= 1
    same = study.noisy_max([1, 5, 900], epsilon=1, is_monotone=True)
    assert same.noise["scores"].scale == 1


def test_candidates_may_be_linear_queries():
    chosen = study.exponential_mechanism(np.eye(3), [5, 900, 7], epsilon=1)
    assert chosen.choice == 1
    assert "exponential mechanism" in repr(chosen)


def test_the_earlier_way_of_calling_still_works():
    words = study.SeededWords(4)
    scores = Sensitive(np.array([0, 900]))
    assert study.exponential_mechanism(scores, Fraction(1), words) == (1,)
    assert study.exponential_mechanism(scores, rate=Fraction(1), random=words) == (1,)
    with pytest.raises(sf.PlanError):
        study.exponential_mechanism([0, 900], rate=Fraction(1))
