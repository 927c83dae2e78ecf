# SPDX-License-Identifier: Apache-2.0
"""The laws that publish keys: exact on their grid, optimal, and within what they cost."""

from __future__ import annotations

from fractions import Fraction
from math import exp

import numpy as np
import pytest

from sfumato.errors import PlanError
from sfumato.privacy.cost import Cost
from sfumato.privacy.key_laws import (
    BITS,
    GaussianKeys,
    OptimalKeys,
    chance,
    count_interval,
    gaussian_keys,
    people_for,
)

LAWS = [
    OptimalKeys(Fraction(1), Fraction(1, 10**6), 1),
    OptimalKeys(Fraction(1, 10), Fraction(1, 1000), 3),
    OptimalKeys(Fraction(3), Fraction(1, 100), 1),
    OptimalKeys(Fraction(7, 3), Fraction(1, 10**9), 2),
]


def masses(law: OptimalKeys) -> dict[int, int]:
    """P(noise = z) in steps of 2^-BITS."""
    before, out = 0, {}
    for people, published in enumerate(law.published, 1):
        out[law.threshold - people] = published - before
        before = published
    return out


def excess(left: dict[object, int], right: dict[object, int], factor: Fraction) -> Fraction:
    """sum (P - factor Q)+: the delta of a pair at log(factor)."""
    return sum(
        (max(Fraction(0), p - factor * right.get(out, 0)) for out, p in left.items()), Fraction(0)
    )


def outcomes(law: OptimalKeys, people: int) -> dict[object, int]:
    """The law of what is published of a key: its noisy number, or nothing."""
    out: dict[object, int] = {}
    for noise, mass in masses(law).items():
        number = people + noise if people + noise >= law.threshold and people else None
        out[number] = out.get(number, 0) + mass
    return out


@pytest.mark.parametrize("law", LAWS)
def test_one_person_more_changes_no_key_by_more_than_epsilon_and_delta(law: OptimalKeys) -> None:
    # e^epsilon, rounded down, so that what is shown is a little more than the claim.
    factor = Fraction(exp(float(law.epsilon)) * (1 - 2**-50))
    allowed = law.delta * (1 << BITS)
    for people in range(2 * len(law.published)):
        one, other = outcomes(law, people), outcomes(law, people + 1)
        assert sum(one.values()) == 1 << BITS
        assert excess(one, other, factor) <= allowed
        assert excess(other, one, factor) <= allowed


def test_a_threshold_that_is_one_lower_breaks_the_claim() -> None:
    law = LAWS[1]
    factor = Fraction(exp(float(law.epsilon)))
    noisy: dict[object, int] = {}
    for noise, mass in masses(law).items():
        number = 1 + noise if 1 + noise >= law.threshold - 1 else None
        noisy[number] = noisy.get(number, 0) + mass
    assert excess(noisy, {None: 1 << BITS}, factor) > 2 * law.delta * (1 << BITS)


@pytest.mark.parametrize("law", LAWS)
def test_no_law_of_the_same_promise_publishes_a_key_more_often(law: OptimalKeys) -> None:
    # Desfontaines, Voss, Gipson, Mandayam 2020, Theorem 1: this recursion is the most of all.
    e, delta, best = exp(float(law.epsilon)), float(law.delta), 0.0
    for people in range(1, len(law.published) + 1):
        best = min(e * best + delta, 1 - (1 - best - delta) / e, 1.0)
        assert chance(law, people) == pytest.approx(best, rel=1e-6)


def test_the_mean_of_the_noise_is_the_one_that_is_subtracted() -> None:
    for law in LAWS:
        mean = Fraction(sum(z * mass for z, mass in masses(law).items()), 1 << BITS)
        assert float(mean) == pytest.approx(law.mean, abs=1e-12)
        assert abs(law.mean) <= 0.5


def test_a_key_of_nobody_is_never_published_and_one_of_many_always() -> None:
    for law in LAWS:
        assert chance(law, 0) == 0
        assert chance(law, law.threshold - law.least) == 1


def test_the_gaussian_threshold_is_the_least_that_hides_new_keys() -> None:
    from mpmath import erfc, mp, mpf, sqrt

    mp.dps = 40
    for sigma, delta, new in ((4, 6, 1), (11, 9, 5), (1, 3, 1)):
        law = GaussianKeys(Fraction(sigma), Fraction(1, 10**delta), new, new)

        def tail(threshold: int, sigma: int = sigma) -> object:
            return erfc((mpf(threshold) - mpf(3) / 2) / sigma / sqrt(2)) / 2

        assert new * tail(law.threshold) <= mpf(10) ** -delta < new * tail(law.threshold - 1)


def test_costs_are_those_of_the_keys_that_move() -> None:
    law = OptimalKeys(Fraction(1, 4), Fraction(1, 10**6), 4)
    assert law.cost == Cost.pure(1) + Cost.approximate(Fraction(4, 10**6))
    gaussian = gaussian_keys(Fraction(1, 2), Fraction(1, 10**6), 8, 4)
    assert Fraction(49, 100) < gaussian.cost.mu_squared <= Fraction(1, 2)
    assert gaussian.cost.delta == Fraction(1, 10**6)


@pytest.mark.parametrize(
    "law", [LAWS[0], LAWS[2], gaussian_keys(Fraction(1), Fraction(1, 1000), 4, 4)]
)
def test_of_the_runs_that_publish_a_key_the_interval_holds_its_count(law) -> None:
    # Exact sums over the noise, for every true count: the claim of Theorem 4, and near it.
    probabilities = law.tails - np.append(law.tails[1:], 0.0)
    for people in range(1, 3 * law.threshold):
        published = held = plain = 0.0
        for place, mass in enumerate(probabilities):
            number = people + law.least + place
            if number < law.threshold or mass == 0:
                continue
            low, high = count_interval(law, number, 0.9)
            published += mass
            held += mass * (low <= people <= high)
            plain += mass * (abs(number - people) <= 1.2 * law.standard_error)
        assert held >= 0.9 * published * (1 - 1e-9)
        if people == law.threshold // 2:  # an interval that forgets the selection fails
            assert plain < 0.5 * published


def test_what_cannot_be_drawn_is_refused_with_what_to_do() -> None:
    with pytest.raises(PlanError, match="raise epsilon, or bound a person"):
        people_for(OptimalKeys(Fraction(1, 10**7), Fraction(1, 10**9), 1), 0.5)
    with pytest.raises(PlanError, match="at least 1e-50"):
        people_for(OptimalKeys(Fraction(1), Fraction(1, 10**76), 1), 0.5)
    with pytest.raises(PlanError, match="raise the budget"):
        gaussian_keys(Fraction(1, 10**20), Fraction(1, 10**9), 1, 1)
