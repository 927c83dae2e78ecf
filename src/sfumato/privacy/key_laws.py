# SPDX-License-Identifier: Apache-2.0
"""The laws by which keys are published with their counts: the values that many people share.

A `KeyLaw` adds noise to the exact number of people of every key that somebody has, and publishes
the key with the noisy number if that is at least the threshold. A key that nobody has is not there
and is never published, whatever the noise.

    `OptimalKeys`    noise with a bounded range, one (epsilon, delta) a key: no mechanism of the
                     same promise publishes any key more often (Desfontaines, Voss, Gipson,
                     Mandayam 2020, "Differentially private partition selection", Theorem 1), and
                     the noisy number comes with it for nothing
    `GaussianKeys`   rounded Gaussian noise and a threshold: better where one person has many keys

Of `OptimalKeys`, the probabilities that a key of n people is published are

    pi(0) = 0,  pi(n + 1) = min(e^epsilon pi(n) + delta, 1 - e^-epsilon (1 - pi(n) - delta), 1)

and the noise that publishes so is P(noise = threshold - n) = pi(n) - pi(n - 1). All of it is exact
integer arithmetic on a grid of 2^-BITS, rounded so that the promise holds.

Proof page: ``docs/proofs/keys.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, sqrt
from typing import Final, Protocol

import numpy as np

from sfumato.errors import PlanError
from sfumato.privacy.balls import ball_of, precision
from sfumato.privacy.budget import number_text
from sfumato.privacy.cost import Cost
from sfumato.privacy.gaussian import gaussian_tail_up, sqrt_up
from sfumato.privacy.noise_laws import gaussian_variance
from sfumato.privacy.privacy_limits import LIMITS
from sfumato.types import Array

__all__ = [
    "BITS",
    "GaussianKeys",
    "KeyLaw",
    "OptimalKeys",
    "chance",
    "count_interval",
    "gaussian_keys",
    "people_for",
]


BITS: Final = 256
"""Probabilities of noise are multiples of 2^-256, so that any usual delta is many of them."""

_FACTOR_BITS: Final = 128  # of e^epsilon, rounded down
_SLACK: Final = Fraction(1, 1 << 40)  # of epsilon: more than all roundings of the grid together
_UNITS: Final = 64  # of delta, in steps of the grid: likewise


class KeyLaw(Protocol):
    """How keys are published: what it costs, and how often a key of n people comes out."""

    @property
    def name(self) -> str:
        """The name of the law."""
        ...

    @property
    def threshold(self) -> int:
        """The least noisy number that is published."""
        ...

    @property
    def cost(self) -> Cost:
        """What it costs."""
        ...

    @property
    def mean(self) -> float:
        """The mean of the noise."""
        ...

    @property
    def standard_error(self) -> float:
        """The standard deviation of the noise."""
        ...

    @property
    def least(self) -> int:
        """The least noise, but for a probability of 10^-15."""
        ...

    @property
    def tails(self) -> Array:
        """P(noise >= least + i), i = 0, 1, ...; what is not listed is 0."""
        ...

    def request(self) -> dict[str, object]:
        """The law as JSON, exactly."""
        ...


@dataclass(frozen=True)
class OptimalKeys:
    """Noise that publishes every key as often as (epsilon, delta) a key allows.

    ``moved`` keys change by one between neighbours, so that all of it is (moved epsilon,
    moved delta)-DP: docs/proofs/keys.md, Theorems 1 and 2.

    >>> law = OptimalKeys(Fraction(1), Fraction(1, 10**6), 1)
    >>> law.threshold, people_for(law, 0.5)
    (14, 14)
    """

    epsilon: Fraction
    delta: Fraction
    moved: int

    name = "optimal"

    @property
    def cost(self) -> Cost:
        """That of as many (epsilon, delta) mechanisms as keys are moved."""
        return Cost.pure(self.moved * self.epsilon) + Cost.approximate(self.moved * self.delta)

    def request(self) -> dict[str, object]:
        """The law as JSON, exactly."""
        return {
            "law": self.name,
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "moved": self.moved,
        }

    @cached_property
    def published(self) -> tuple[int, ...]:
        """The probabilities pi(1), pi(2), ..., 1 in steps of 2^-BITS.

        Privacy: docs/proofs/keys.md, Theorem 1: rounded so that every step of one person keeps
        (epsilon, delta).
        """
        whole, bottom = 1 << BITS, 1 << _FACTOR_BITS
        top = _factor_down(self.epsilon * (1 - _SLACK))
        event = int(self.delta * whole) - _UNITS
        if event * self.epsilon * _SLACK < _UNITS:
            raise PlanError(
                f"delta = {number_text(self.delta)} a key is too small to be drawn exactly; give a "
                "delta of at least 1e-50"
            )
        chances = [event]
        while chances[-1] < whole:
            if len(chances) > LIMITS.key_steps:
                raise PlanError(
                    f"epsilon = {number_text(self.epsilon)} a key is too small: the noise would "
                    f"have more than {LIMITS.key_steps:,} values; raise epsilon, or bound a person "
                    "to fewer keys"
                )
            last = chances[-1]
            rest = whole - last - event
            rising = (top * last) // bottom + event
            falling = whole if rest <= 0 else whole + (-rest * bottom) // top
            chances.append(min(rising, falling, whole))
        return tuple(chances)

    @cached_property
    def _mean_people(self) -> Fraction:
        """The number of people with which a key is first published, on average over the noise."""
        steps = len(self.published)
        return steps - Fraction(sum(self.published[:-1]), 1 << BITS)

    @cached_property
    def threshold(self) -> int:
        """The least noisy number that is published, such that the mean of the noise is near 0."""
        return round(self._mean_people)

    @property
    def mean(self) -> float:
        """The mean of the noise, at most 1/2 from 0."""
        return float(self.threshold - self._mean_people)

    @cached_property
    def standard_error(self) -> float:
        """The standard deviation of the noise."""
        places = np.arange(self.least, self.threshold, dtype=np.float64)
        masses = self.tails - np.append(self.tails[1:], 0.0)
        return sqrt(float(masses @ (places - self.mean) ** 2))

    @property
    def least(self) -> int:
        """The least noise: a key of so many people more than the threshold is always published."""
        return self.threshold - len(self.published)

    @cached_property
    def tails(self) -> Array:
        """P(noise >= threshold - n) = pi(n)."""
        return np.array([p / (1 << BITS) for p in reversed(self.published)])


@dataclass(frozen=True)
class GaussianKeys:
    """Rounded Gaussian noise, and a threshold that a new key passes with probability delta / new.

    ``moved`` keys change by one between neighbours, ``new`` of them are in one table alone:
    docs/proofs/keys.md, Theorem 3.

    >>> GaussianKeys(Fraction(4), Fraction(1, 10**6), 1, 1).threshold
    22
    """

    sigma: Fraction
    delta: Fraction
    moved: int
    new: int

    name = "gaussian"
    mean = 0.0

    @property
    def cost(self) -> Cost:
        """That of the noise, and of the event that a new key is published."""
        return Cost.gaussian(self.moved / self.sigma**2) + Cost.approximate(self.delta)

    def request(self) -> dict[str, object]:
        """The law as JSON, exactly."""
        return {
            "law": self.name,
            "sigma": str(self.sigma),
            "delta": str(self.delta),
            "moved": self.moved,
            "new": self.new,
        }

    @cached_property
    def threshold(self) -> int:
        """The least T with P(1 + noise >= T) <= delta / new, in ball arithmetic.

        Privacy: docs/proofs/keys.md, Theorem 3: never too low.
        """
        each = self.delta / self.new
        low, high = 1, 2
        while not self._is_rare(high, each):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if self._is_rare(middle, each):
                high = middle
            else:
                low = middle
        return high

    def _is_rare(self, threshold: int, delta: Fraction) -> bool:
        # round(sigma Z) >= T - 1 exactly when sigma Z >= T - 3/2, but for a set of measure 0.
        tail = gaussian_tail_up((threshold - Fraction(3, 2)) / self.sigma)
        return Fraction(tail) <= delta

    @cached_property
    def standard_error(self) -> float:
        """The standard deviation of the noise."""
        return sqrt(gaussian_variance(self.sigma))

    @cached_property
    def least(self) -> int:
        """Eight standard deviations below 0."""
        return -ceil(8 * self.sigma) - 1

    @cached_property
    def tails(self) -> Array:
        """P(noise >= z) = P(Z >= (z - 1/2) / sigma), to beyond the threshold."""
        from scipy.special import ndtr

        most = max(self.threshold, -self.least) + ceil(8 * self.sigma)
        places = np.arange(self.least, most + 1, dtype=np.float64)
        return np.asarray(ndtr(-(places - 0.5) / float(self.sigma)), dtype=np.float64)


def gaussian_keys(mu_squared: Fraction, delta: Fraction, moved: int, new: int) -> GaussianKeys:
    """Return Gaussian noise of this cost at most; its scale is rounded up."""
    sigma = Fraction(sqrt_up(moved / mu_squared))
    if not LIMITS.key_noise[0] <= sigma <= LIMITS.key_noise[1]:
        raise PlanError(
            f"the noise on the number of people of a key would have a standard deviation of "
            f"{float(sigma):.3g}; raise the budget, or bound a person to fewer keys"
        )
    return GaussianKeys(sigma, delta, moved, new)


def _tail(law: KeyLaw, noise: int) -> float:
    """P(noise >= z)."""
    place = noise - law.least
    if place < 0:
        return 1.0
    return float(law.tails[place]) if place < law.tails.size else 0.0


def chance(law: KeyLaw, people: int) -> float:
    """Return the probability that a key of so many people is published.

    >>> chance(OptimalKeys(Fraction(1), Fraction(1, 10**6), 1), 0)
    0.0
    """
    return 0.0 if people <= 0 else _tail(law, law.threshold - people)


def people_for(law: KeyLaw, probability: float) -> int:
    """Return the least number of people with which a key is published so often."""
    high = law.threshold - law.least
    return _first(lambda people: chance(law, people) >= probability, 1, high)


def count_interval(law: KeyLaw, number: int, level: float) -> tuple[int, int]:
    """Return an interval of the number of people of a published key, from its noisy number.

    Whatever the true number of people, of the runs that publish the key the interval holds it in at
    least ``level``: n is left out if, among the noisy numbers that are published, one as large, or
    as small, as this one has a probability of at most (1 - level) / 2 (docs/proofs/keys.md,
    Theorem 4).

    >>> count_interval(OptimalKeys(Fraction(1), Fraction(1, 10**6), 1), 100, 0.95)
    (97, 103)
    """
    side = (1 - level) / 2

    def is_not_too_small(people: int) -> bool:
        return _tail(law, number - people) > side * _tail(law, law.threshold - people)

    def is_too_large(people: int) -> bool:
        published = _tail(law, law.threshold - people)
        return published - _tail(law, number + 1 - people) <= side * published

    most = number - law.least  # all noise from here on leads above the number
    low = _first(is_not_too_small, 1, most)
    return low, max(low, _first(is_too_large, 1, most + 1) - 1)


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least number from ``low`` to ``high`` with it (false, then true); ``high`` if none."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _factor_down(epsilon: Fraction) -> int:
    """e^epsilon in steps of 2^-128, rounded down; of at most e^64, beyond which nothing changes."""
    with precision(_FACTOR_BITS + 256):
        ball = ball_of(min(epsilon, Fraction(64))).exp() * (1 << _FACTOR_BITS)
        return int(ball.lower().floor().unique_fmpz())
