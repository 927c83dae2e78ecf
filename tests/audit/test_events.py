# SPDX-License-Identifier: Apache-2.0
"""Scores: each sees what it is there for, and what it must not see it does not."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato_audit.examine import learn_scores, lowest_bits

RUNS = 4000


def normals(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def separation(name: str, left: np.ndarray, right: np.ndarray) -> float:
    """How far the means of a learnt score are apart on fresh runs, in standard deviations."""
    half = len(left) // 2
    score = learn_scores(left[:half], right[:half])[name]
    a, b = score(left[half:]), score(right[half:])
    return float((a.mean() - b.mean()) / (np.concatenate([a - a.mean(), b - b.mean()]).std()))


@pytest.mark.parametrize("name", ["independent", "linear"])
def test_a_shift_is_seen(name):
    left, right = normals(1, RUNS, 3) + np.array([0.5, 0, 0]), normals(2, RUNS, 3)
    assert separation(name, left, right) > 0.3


@pytest.mark.parametrize("name", ["independent", "linear", "pattern", "low bits"])
def test_nothing_is_seen_where_nothing_is(name):
    left, right = normals(1, RUNS, 3), normals(2, RUNS, 3)
    # Means of 2000 each: 0.2 is more than 6 standard errors.
    assert abs(separation(name, left, right)) < 0.2


def test_noise_that_was_used_twice_is_seen_by_the_linear_score_only():
    noise = 5 * normals(1, 2 * RUNS, 1)
    left, right = noise[:RUNS] + np.zeros(2), noise[RUNS:] + np.arange(2)
    assert separation("linear", left, right) > 100
    assert separation("independent", left, right) < 1


def test_which_numbers_were_released_is_a_pattern():
    left, right = normals(1, RUNS, 2), normals(2, RUNS, 2)
    left[:, 1] = np.nan
    assert separation("pattern", left, right) > 1.5
    assert separation("independent", left, right) > 30


def test_an_exclusive_or_is_seen_by_the_pattern_only():
    bits = normals(1, RUNS, 2) > 0
    left = np.stack([bits[:, 0], bits[:, 0]], axis=1).astype(float)
    assert separation("pattern", left, bits.astype(float)) > 1
    assert abs(separation("independent", left, bits.astype(float))) < 0.2


def test_low_bits_are_seen_by_their_score_only():
    right = normals(2, RUNS, 1)
    left = np.rint(normals(1, RUNS, 1) * 2**40) / 2**40
    assert separation("low bits", left, right) > 3
    assert abs(separation("independent", left, right)) < 0.2


def test_the_lowest_set_bit_of_floats_and_integers():
    values = np.array([1.0, -6.0, 0.75, 1 + 2.0**-52, 2.0**40, 3 * 2.0**-30])
    assert lowest_bits(values).tolist() == [0, 1, -2, -52, 40, -30]
    assert lowest_bits(np.array([0.0]))[0] > 100
    assert np.isnan(lowest_bits(np.array([np.nan]))[0])
