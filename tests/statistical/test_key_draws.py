# SPDX-License-Identifier: Apache-2.0
"""How often keys come out, and how often intervals of published counts hold: with twins."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, chisquare

import sfumato as sf
from sfumato.privacy.discovery_laws import GaussianKeys, OptimalKeys, count_interval, shown_level
from sfumato.vault.mechanisms.searches import published_numbers
from tests.shared.words import SeededWords

SURE = 1e-9
SINGLES = 10**6
LAWS = [
    OptimalKeys(Fraction(1), Fraction(1, 10**4), 1),
    GaussianKeys(Fraction(4), Fraction(1, 10**4), 1, 1),
]


def came_out(law, words: str) -> int:
    places, _ = published_numbers(np.ones(SINGLES, np.int64), law, SeededWords(words))
    return places.size


@pytest.mark.parametrize("law", LAWS, ids=["optimal", "gaussian"])
def test_of_a_million_keys_of_one_person_no_more_come_out_than_delta_says(law) -> None:
    # P(Binomial(10^6, delta) >= hits) would be below 10^-9 if the rate were above delta.
    assert binom.sf(came_out(law, "singles") - 1, SINGLES, float(law.delta)) > SURE


@pytest.mark.parametrize("law", LAWS, ids=["optimal", "gaussian"])
def test_a_law_of_a_larger_delta_would_be_noticed(law) -> None:
    wrong = (
        OptimalKeys(law.epsilon, 2 * law.delta, 1)
        if isinstance(law, OptimalKeys)
        else GaussianKeys(law.sigma, 6 * law.delta, 1, 1)
    )
    assert binom.sf(came_out(wrong, "twice") - 1, SINGLES, float(law.delta)) < SURE


def test_at_one_in_a_million_a_million_singles_stay_hidden() -> None:
    law = OptimalKeys(Fraction(1), Fraction(1, 10**6), 1)
    assert binom.sf(came_out(law, "million") - 1, SINGLES, 1e-6) > SURE


@pytest.mark.parametrize("people", [1, 3, 6, 8])
def test_the_numbers_that_come_out_have_the_law_that_is_proved(people) -> None:
    law = OptimalKeys(Fraction(1, 2), Fraction(1, 20), 1)
    runs = 200_000
    places, numbers = published_numbers(np.full(runs, people), law, SeededWords(f"law {people}"))
    most = people + law.reach
    tails = [law.chance(people)]
    above = range(law.threshold + 1, most + 1)
    tails += [float(law.tails[max(0, v - people + law.reach)]) for v in above]
    expected = -np.diff([*tails, 0.0]) * runs
    counted = np.bincount(numbers - law.threshold, minlength=expected.size)
    both = [np.append(counted, runs - places.size), np.append(expected, runs * (1 - tails[0]))]
    kept = both[1] > 5
    assert both[0][~kept].sum() < 100
    scaled = both[1][kept] * both[0][kept].sum() / both[1][kept].sum()
    assert chisquare(both[0][kept], scaled).pvalue > SURE
    shifted = np.roll(scaled, 1)
    assert chisquare(both[0][kept], shifted * scaled.sum() / shifted.sum()).pvalue < SURE


def test_intervals_of_published_counts_hold_and_those_of_the_noise_alone_do_not() -> None:
    # Zipf's law: most keys that come out hardly passed the threshold.
    people = (3000 / np.arange(1, 2000)).astype(np.int64)
    law = OptimalKeys(Fraction(1), Fraction(1, 10**3), 1)
    held = short = every = 0
    for run in range(30):
        places, numbers = published_numbers(people, law, SeededWords(f"zipf {run}"))
        for truth, number in zip(people[places].tolist(), numbers.tolist(), strict=True):
            low, high = count_interval(law, number, 0.95)
            held += low <= truth <= high
            short += abs(number - truth) <= 1.96 * law.standard_error / 2
            every += 1
    assert binom.sf(every - held - 1, every, 0.05) > SURE
    assert binom.sf(every - short - 1, every, 0.05) < SURE


def test_from_a_table_to_its_counts_intervals_hold() -> None:
    truth = {f"w{i}": 3 + 2 * i for i in range(40)}
    words = [word for word, number in truth.items() for _ in range(number)]
    frame = pd.DataFrame({"word": pd.array(words, dtype="string")})
    plan = sf.plan_discovery(sf.Category.discover("word"), sf.Budget(epsilon=1, delta="0.001"))
    misses = every = 0
    for _ in range(12):
        counts = plan.release(frame).counts
        true = counts["key"].map(truth)
        misses += int(((true < counts["low"]) | (true > counts["high"])).sum())
        every += len(counts)
    assert binom.sf(misses - 1, every, 0.05) > SURE


@pytest.mark.parametrize("law", LAWS, ids=["optimal", "gaussian"])
def test_intervals_of_the_largest_of_many_keys_hold_and_uncorrected_ones_do_not(law) -> None:
    # 200 keys of 60 people, the two largest shown: without Theorem 6 nearly all of them miss.
    people, runs, most = np.full(200, 60), 300, 2
    held = short = 0
    for run in range(runs):
        _, numbers = published_numbers(people, law, SeededWords(f"largest {run}"))
        level = shown_level(0.95, most, numbers.size)
        for number in np.sort(numbers)[-most:].tolist():
            low, high = count_interval(law, number, level)
            held += low <= 60 <= high
            low, high = count_interval(law, number, 0.95)
            short += low <= 60 <= high
    # The two of one run are not independent: at worst they miss together, runs times.
    assert binom.cdf(held // most, runs, 0.95) > SURE
    assert binom.cdf(short // most, runs, 0.95) < SURE
