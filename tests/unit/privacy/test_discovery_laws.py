# SPDX-License-Identifier: Apache-2.0
"""The laws that publish keys: exact on their grid, optimal, and within what they cost."""

from __future__ import annotations

from fractions import Fraction
from math import exp

import pytest

from sfumato.errors import PlanError
from sfumato.privacy.cost import Cost
from sfumato.privacy.discovery_laws import (
    BITS,
    GaussianKeys,
    OptimalKeys,
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


def tail(law: OptimalKeys, noise: int) -> int:
    """P(noise >= z) in steps of 2^-BITS."""
    place = law.reach - noise
    return 0 if place < 0 else law.noise_tails[min(place, 2 * law.reach)]


def published(law: OptimalKeys, people: int) -> int:
    """P(a key of so many people is published) in steps of 2^-BITS."""
    return 0 if people == 0 else law.published[min(people, len(law.published)) - 1]


def excess(left: dict[object, int], right: dict[object, int], factor: Fraction) -> Fraction:
    """sum (P - factor Q)+: the delta of a pair at log(factor)."""
    return sum(
        (max(Fraction(0), p - factor * right.get(out, 0)) for out, p in left.items()), Fraction(0)
    )


def outcomes(law: OptimalKeys, people: int, lowest: int | None = None) -> dict[object, int]:
    """The law of what is published of a key: its noisy number, or nothing."""
    lowest = law.threshold if lowest is None else lowest
    out: dict[object, int] = {None: (1 << BITS) - published(law, people)}
    if people == 0:
        return out
    for number in range(lowest + 1, people + law.reach + 1):
        out[number] = tail(law, number - people) - tail(law, number + 1 - people)
    out[lowest] = published(law, people) - tail(law, lowest + 1 - people)
    return out


@pytest.mark.parametrize("law", LAWS)
def test_one_person_more_changes_no_key_by_more_than_epsilon_and_delta(law: OptimalKeys) -> None:
    # e^epsilon, rounded down, so that what is shown is a little more than the claim.
    factor = Fraction(exp(float(law.epsilon)) * (1 - 2**-50))
    allowed = law.delta * (1 << BITS)
    for people in range(2 * len(law.published)):
        one, other = outcomes(law, people), outcomes(law, people + 1)
        assert sum(one.values()) == 1 << BITS
        assert min(one.values()) >= 0
        assert excess(one, other, factor) <= allowed
        assert excess(other, one, factor) <= allowed


def test_a_threshold_that_is_one_lower_breaks_the_claim() -> None:
    # The same noise, published from one person less on: a new key comes out e^epsilon as often.
    law = LAWS[2]
    allowed = law.delta * (1 << BITS)
    single = {None: (1 << BITS) - tail(law, law.threshold - 1), 1: tail(law, law.threshold - 1)}
    assert excess(single, {None: 1 << BITS}, Fraction(exp(float(law.epsilon)))) > 2 * allowed


@pytest.mark.parametrize("law", LAWS)
def test_no_law_of_the_same_promise_publishes_a_key_more_often(law: OptimalKeys) -> None:
    # Desfontaines, Voss, Gipson, Mandayam 2020, Theorem 1: this recursion is the most of all.
    e, delta, best = exp(float(law.epsilon)), float(law.delta), 0.0
    for people in range(1, len(law.published) + 1):
        best = min(e * best + delta, 1 - (1 - best - delta) / e, 1.0)
        assert law.chance(people) == pytest.approx(best, rel=1e-6)


def test_the_noise_is_symmetric_and_its_spread_is_that_of_the_geometric_law() -> None:
    for law in LAWS:
        for noise in range(-law.reach, law.reach + 1):
            assert tail(law, noise) + tail(law, 1 - noise) == 1 << BITS
    q = exp(-1)
    # Discrete Laplace noise of epsilon 1 has the variance 2 q / (1 - q)^2; here it is truncated.
    assert LAWS[0].standard_error == pytest.approx((2 * q) ** 0.5 / (1 - q), rel=1e-3)
    assert LAWS[0].standard_error < (2 * q) ** 0.5 / (1 - q)


def test_a_key_of_nobody_is_never_published_and_one_of_many_always() -> None:
    for law in LAWS:
        assert law.chance(0) == 0
        assert law.chance(2 * law.reach + 1) == 1


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
    # Exact sums over what is published, for every true count: the claim of Theorem 4.
    for people in range(1, 3 * law.threshold):
        every = law.chance(people)
        held = plain = 0.0
        at_least = every
        for number in range(law.threshold, people + law.least + law.tails.size):
            above = law.tails[max(0, number + 1 - people - law.least) :][:1]
            more = float(above[0]) if above.size else 0.0
            low, high = count_interval(law, number, 0.9)
            held += (at_least - more) * (low <= people <= high)
            plain += (at_least - more) * (abs(number - people) <= 1.7 * law.standard_error)
            at_least = more
        assert held >= 0.9 * every * (1 - 1e-9)
        if people == law.threshold // 2:  # an interval that forgets the selection fails
            assert plain < 0.5 * every


def test_what_cannot_be_drawn_is_refused_with_what_to_do() -> None:
    with pytest.raises(PlanError, match="raise epsilon, or bound a person"):
        people_for(OptimalKeys(Fraction(1, 10**7), Fraction(1, 10**9), 1), 0.5)
    with pytest.raises(PlanError, match="at least 1e-50"):
        people_for(OptimalKeys(Fraction(1), Fraction(1, 10**76), 1), 0.5)
    with pytest.raises(PlanError, match="raise the budget"):
        gaussian_keys(Fraction(1, 10**20), Fraction(1, 10**9), 1, 1)
