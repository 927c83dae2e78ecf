# SPDX-License-Identifier: Apache-2.0
"""The likelihood of a transcript of MWEM, and what audits of rounds and sessions see with it."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from sfumato_audit import registry
from sfumato_audit.examine import FAST, examine
from sfumato_audit.subjects import chosen as choosing
from tests.shared.words import SeededWords

SCORES = np.array([[3.0, 1.0, 2.5], [0.0, 0.0, 4.0], [2.0, 2.0, 2.0]])
RATES = np.array([0.7, 1.3, 0.2])


def flipped(weights: np.ndarray, place: int) -> float:
    """Permute-and-flip by its definition: the first in a random order that its coin accepts."""
    orders = list(permutations(range(len(weights))))
    before = [order[: order.index(place)] for order in orders]
    return weights[place] * float(np.mean([np.prod(1 - weights[list(b)]) for b in before]))


@pytest.mark.parametrize("is_pure", [True, False])
def test_choices_have_the_probabilities_of_their_mechanism(is_pure):
    for place in range(3):
        chosen, pure = np.full(3, place), np.full(3, is_pure)
        found = np.exp(choosing._of_choice(SCORES, RATES, chosen, pure))
        for scores, rate, probability in zip(SCORES, RATES, found, strict=True):
            weights = np.exp(rate * (scores - scores.max()))
            own = flipped(weights, place) if is_pure else weights[place] / weights.sum()
            assert probability == pytest.approx(own, rel=1e-12)


PLACES, SCALES = [6, 13], [1, 8, 15]  # columns of a row: what was chosen, how noisy it is


def off(runs: np.ndarray) -> float:
    """How far the mean of ``P_left / P_right`` over runs on the right is from 1, in its errors."""
    ratio = np.exp(choosing._mwem_likelihood(choosing.PAIR)(runs))
    return abs(float(ratio.mean()) - 1) / (float(ratio.std()) / np.sqrt(len(runs)))


def test_the_likelihood_ratio_of_a_transcript_is_one_on_average():
    """And is not, if what was chosen is forgotten or scales are taken for others (the twins)."""
    subject = next(s for s in choosing.mwem_subjects() if s.name == "mwem, pure")
    runs = subject.sampler(choosing.PAIR.right)(600, SeededWords("one"))
    assert off(runs) < 4
    for columns, factor in ((PLACES, 0), (SCALES, 2)):
        wrong = runs.copy()
        wrong[:, columns] *= factor
        assert off(wrong) > 6


@pytest.mark.parametrize("name", ["mwem, pure", "session, pure, replaced records"])
def test_a_third_of_the_fast_mode_sees_a_good_part_of_the_claim(name):
    subject = next(s for s in registry.sound_subjects() if s.name == name)
    third = replace(FAST, search=FAST.search // 2, test=FAST.test // 3)
    found = examine(subject, SeededWords(f"sees {name}"), third)
    assert not found.is_refuted
    assert found.bound > 0.2 * found.claim.amount
