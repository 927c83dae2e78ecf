# SPDX-License-Identifier: Apache-2.0
"""The parts of the loss accounting, each against its definition."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import reduce

import mpmath
import numpy as np
import pytest

from sfumato.privacy.cost import (
    PurePart,
    _coins,
    _gaussian_deltas,
    _Losses,
    _minimum,
    _octave,
    _on_grid,
    _power,
    _walk,
    epsilon_up,
)
from sfumato.privacy.privacy_limits import LIMITS

NONE = Fraction(0)
DELTA = Fraction(1, 10**6)


def true_delta(epsilon, mu):
    with mpmath.workdps(60):
        tail = lambda x: mpmath.erfc(x / mpmath.sqrt(2)) / 2  # noqa: E731
        eps, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return tail(eps / m - m / 2) - mpmath.exp(eps) * tail(eps / m + m / 2)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 7.0, 20.0])
def test_gaussian_deltas_are_just_above_the_truth(mu):
    shifts = np.array([-9.0, -2.0, -0.5, -1e-3, 0.0, 1e-3, 0.5, 2.0, 9.0])
    epsilons = np.concatenate([mu * shifts, mu * mu / 2 + mu * shifts])
    found = _gaussian_deltas(epsilons, mu)
    for epsilon, delta in zip(epsilons, found, strict=True):
        truth = true_delta(float(epsilon), mu)
        assert truth <= float(delta) * (1 + 1e-13)
        # What cancels is a part of Phi(-a), not of the difference.
        tail = mpmath.erfc((float(epsilon) / mu - mu / 2) / math.sqrt(2)) / 2
        assert float(delta) <= truth + 1e-11 * truth + 4e-14 * tail


def test_without_gaussian_noise_only_losses_above_epsilon_count():
    found = _gaussian_deltas(np.array([-1.0, -1e-9, 0.0, 1.0]), 0.0)
    assert found == pytest.approx([1 - math.exp(-1), 1e-9, 0.0, 0.0], rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
def test_losses_are_those_of_a_pair_of_distributions(epsilon):
    """Both have mass 1: under the first neighbour, and under the second, e^-loss times as much."""
    pairs = [_coins(epsilon, count) for count in (1, 2, 9)]
    pairs += [_walk(PurePart(Fraction(epsilon), steps)) for steps in (2, 3, 40)]
    for losses, masses in pairs:
        assert masses.sum() == pytest.approx(1, rel=1e-12)
        assert (masses * np.exp(-losses)).sum() == pytest.approx(1, rel=1e-12)
        assert losses[0] == -losses[-1] == losses.max()


def test_coins_and_a_walk_by_hand():
    # Two coins: e^2 : 2 e : 1 out of (1 + e)^2. A walk of 2 steps of 1/2: q = e^-1/2.
    losses, masses = _coins(1.0, 2)
    e, q = math.e, math.exp(-0.5)
    assert losses == pytest.approx([2, 0, -2])
    assert masses == pytest.approx([e * e, 2 * e, 1] / np.full(3, (1 + e) ** 2))
    losses, masses = _walk(PurePart(Fraction(1), 2))
    assert losses == pytest.approx([1, 0, -1])
    assert masses == pytest.approx([1 / (1 + q), q * (1 - q) / (1 + q), q * q / (1 + q)])


@pytest.mark.parametrize("step", [0.25, 0.3, 2.0])
def test_the_grid_keeps_the_mass_under_both_neighbours(step):
    losses, masses = np.array([-1.1, 0.0, 0.26, 2.0, 5.123]), np.array([0.1, 0.2, 0.3, 0.25, 0.15])
    found = _on_grid(losses, masses, step)
    places = step * (found.first + np.arange(found.masses.size))
    assert found.masses.sum() == pytest.approx(masses.sum(), rel=1e-12)
    assert found.masses @ np.exp(-places) == pytest.approx(masses @ np.exp(-losses), rel=1e-12)
    near = np.abs(places[:, None] - losses) < step * (1 + 1e-9)
    assert not found.masses[~near.any(axis=1)].any()
    # Splitting is the only change: a loss on the grid keeps its place.
    alone = _on_grid(np.array([0.0]), np.array([1.0]), step)
    assert (alone.first, alone.masses.tolist()) == (0, [1.0, 0.0])


@pytest.mark.parametrize("size", [3, 300])
def test_losses_of_two_parts_add(size):
    """Few masses are added up one by one, many by numpy."""
    rng = np.random.default_rng(size)
    one, other = rng.random(size), rng.random(size + 50)
    one[1] = 0.0
    for left, right in ((one, other), (other, one)):
        found = _Losses(-4, left).compose(_Losses(7, right))
        assert found.first == 3
        assert found.masses == pytest.approx(np.convolve(left, right), rel=1e-12)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_a_power_is_its_part_over_and_over(steps, count):
    part, step = PurePart(Fraction(1, 2), steps), 1 / 2  # losses of one step lie on the grid
    step = 1 / 6 if steps == 3 else step
    one = _power(part, 1, step)
    found, by_hand = _power(part, count, step), reduce(_Losses.compose, [one] * count)

    def moments(losses):
        places = step * (losses.first + np.arange(losses.masses.size))
        return [losses.masses @ places**k for k in range(3)]

    assert moments(found) == pytest.approx(moments(by_hand), rel=1e-6)
    assert moments(found)[0] == pytest.approx(1)


@pytest.mark.parametrize("exponent", [-40, -1, 0, 1, 9])
def test_octaves_are_rounded_down(exponent):
    power = Fraction(2) ** exponent
    for value in (power, power * Fraction(3, 2), power * Fraction(199, 100)):
        assert _octave(value) == exponent
    assert _octave(power * Fraction(99, 100)) == exponent - 1


@pytest.mark.parametrize("last", [0, 1, 6])
def test_the_minimum_number_is_found_wherever_it_is(last):
    for least in range(last + 1):
        assert _minimum(lambda k, least=least: k >= least, last) == least
    assert _minimum(lambda _: False, last) is None


def test_what_doubles_cannot_hold_is_left_at_the_ceiling():
    one, small = {PurePart(Fraction(1, 10)): 3}, Fraction(1, 10)
    ceiling = Fraction(3, 10)
    assert epsilon_up(NONE, one, Fraction(1, 100), ceiling) < ceiling
    least = Fraction(1, 10**100)
    tiny = {PurePart(least): 1}
    assert epsilon_up(NONE, tiny, DELTA, least) == least
    assert epsilon_up(NONE, one, Fraction(1, 10**201), ceiling) == ceiling
    assert epsilon_up(NONE, {PurePart(Fraction(299)): 1}, DELTA, Fraction(300)) == 300
    wide = {PurePart(Fraction(301)): 1}  # its ceiling is the Gaussian that dominates it
    assert epsilon_up(NONE, wide, DELTA, Fraction(299)) == 299
    many = {PurePart(Fraction(k, 10**8)): 1 for k in range(1, 4098)}
    assert epsilon_up(NONE, many, DELTA, small) == small
    del many[PurePart(Fraction(1, 10**8))]
    assert epsilon_up(NONE, many, DELTA, small) < small / 10
    copies = {PurePart(Fraction(1, 10**8)): 10**6 + 1}
    assert epsilon_up(NONE, copies, Fraction(1, 100), Fraction(1, 50)) == Fraction(1, 50)


def test_many_groups_and_many_copies_are_still_added_up():
    """At the limits that the test above is just beyond of."""
    copies = {PurePart(Fraction(1, 10**8)): 10**6}
    assert epsilon_up(NONE, copies, Fraction(1, 100), Fraction(1, 50)) < Fraction(1, 1000)


def test_the_answer_is_fine_enough_to_be_within_a_thousandth_of_the_truth():
    """100 coins of 1/100 with 1/10 of a Gaussian: the exact sum over the binomial."""
    mu, epsilon, count = 0.1, 0.01, 100
    losses, masses = _coins(epsilon, count)

    def exact(eps):
        return sum(
            float(m) * float(true_delta(eps - x, mu)) for x, m in zip(losses, masses, strict=True)
        )

    part = {PurePart(Fraction(epsilon)): count}
    found = float(epsilon_up(Fraction(mu) ** 2, part, DELTA, Fraction(1)))
    assert exact(found) <= 1e-6
    assert exact(found * 0.999) > 1e-6


def test_as_many_groups_and_copies_as_are_allowed_are_added_up(monkeypatch):
    parts = {PurePart(Fraction(k, 100)): 5 for k in (1, 2, 3)}
    ceiling = Fraction(3, 10)
    for name, most in (("kinds_of_parts", 3), ("copies_of_a_part", 5)):
        with monkeypatch.context() as patch:
            patch.setattr("sfumato.privacy.cost.LIMITS", replace(LIMITS, **{name: most}))
            assert epsilon_up(NONE, parts, Fraction(1, 10), ceiling) < ceiling
            patch.setattr("sfumato.privacy.cost.LIMITS", replace(LIMITS, **{name: most - 1}))
            assert epsilon_up(NONE, parts, Fraction(1, 10), ceiling) == ceiling
