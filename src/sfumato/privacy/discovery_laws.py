# SPDX-License-Identifier: Apache-2.0
"""The laws of discovery: by which keys are published, and what the search for a range costs.

**Keys** are the values that many people share. A `KeyLaw` adds noise to the exact number of people
of every key that somebody has, and publishes the key with the noisy number if that is large enough.
A key that nobody has is not there and is never published, whatever the noise.

    `OptimalKeys`    truncated geometric noise, one (epsilon, delta) a key: no mechanism of the same
                     promise publishes any key more often (Desfontaines, Voss, Gipson, Mandayam
                     2020, "Differentially private partition selection", Theorem 1), and the noisy
                     number comes with it for nothing
    `GaussianKeys`   rounded Gaussian noise and a threshold: better where one person has many keys

Of `OptimalKeys`, the probabilities that a key of n people is published are

    pi(0) = 0,  pi(n + 1) = min(e^epsilon pi(n) + delta, 1 - e^-epsilon (1 - pi(n) - delta), 1)

With one uniform number u, a key is published if u < pi(n). Its number is n + z with z the noise at
u, symmetric on -k to k, if that is above k, and else k, the least that is told. All of it is exact
integer arithmetic on a grid of 2^-BITS, rounded so that the promise holds.

Proof page: ``docs/proofs/keys.md``.

**Ranges** cost a number, a middle and two ends (`RangeLaw`). On a public grid the search takes
three steps (``vault/mechanisms/searches.py``):

    number   how many records have a value, with Laplace noise
    middle   a cell near the median, by permute-and-flip
    ends     from the middle outwards, the first edge beyond which few records lie: one sparse
             vector below the middle and one above it. They look at different records, so that
             both together cost what one does

Durfee 2023, "Unbounded differentially private quantile and maximum estimation" (arXiv 2305.01177)
walks along a geometric grid by AboveThreshold; Kaplan, Schnapp, Stemmer 2022, "Differentially
private approximate quantiles" split the records at a private median. A walk that begins in the
middle of the records and not at the end of the grid compares few edges with a count that is near
the threshold, and once no record is left every further test ends it. Proof page:
``docs/proofs/ranges.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import ceil, sqrt
from typing import Final, Protocol

import numpy as np

from sfumato.errors import BudgetError, PlanError
from sfumato.privacy.balls import ball_of, precision
from sfumato.privacy.budget import number_text
from sfumato.privacy.cost import Cost
from sfumato.privacy.gaussian import gaussian_tail_up, sqrt_up
from sfumato.privacy.noise_laws import gaussian_variance
from sfumato.privacy.privacy_limits import LIMITS
from sfumato.privacy.sparse_vector import NoiseLaw, SparseLaw
from sfumato.types import Array

__all__ = [
    "BITS",
    "GaussianKeys",
    "KeyLaw",
    "OptimalKeys",
    "RangeLaw",
    "count_interval",
    "gaussian_keys",
    "people_for",
    "range_law",
    "shown_level",
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

    def chance(self, people: int) -> float:
        """The probability that a key of so many people is published."""
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
    >>> law.threshold, round(law.chance(14), 3), round(law.standard_error, 3)
    (14, 0.7, 1.357)
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

    @property
    def _event(self) -> int:
        """delta in steps of 2^-BITS, less what roundings may add to it."""
        event = int(self.delta * (1 << BITS)) - _UNITS
        if event * self.epsilon * _SLACK < _UNITS:
            raise PlanError(
                f"delta = {number_text(self.delta)} a key is too small to be drawn exactly; give a "
                "delta of at least 1e-50"
            )
        return event

    def _too_small(self) -> PlanError:
        return PlanError(
            f"epsilon = {number_text(self.epsilon)} a key is too small: the noise would have more "
            f"than {LIMITS.key_steps:,} values; raise epsilon, or bound a person to fewer keys"
        )

    @cached_property
    def published(self) -> tuple[int, ...]:
        """The probabilities pi(1), pi(2), ..., 1 in steps of 2^-BITS.

        Privacy: docs/proofs/keys.md, Theorem 1: rounded so that every step of one person keeps
        (epsilon, delta).
        """
        whole, bottom = 1 << BITS, 1 << _FACTOR_BITS
        top = _factor_down(self.epsilon * (1 - _SLACK))
        event = self._event
        chances = [event]
        while chances[-1] < whole:
            if len(chances) > LIMITS.key_steps:
                raise self._too_small()
            last = chances[-1]
            rest = whole - last - event
            rising = (top * last) // bottom + event
            falling = whole if rest <= 0 else whole + (-rest * bottom) // top
            chances.append(min(rising, falling, whole))
        return tuple(chances)

    @cached_property
    def reach(self) -> int:
        """The least k for which noise of -k to k ends with a probability of at most delta."""
        event = self._event
        low, high = 0, 1
        while self._end(high) > event:
            low, high = high, 2 * high
            if high > LIMITS.key_steps:
                raise self._too_small()
        while high - low > 1:
            middle = (low + high) // 2
            if self._end(middle) > event:
                low = middle
            else:
                high = middle
        return high

    def _end(self, reach: int) -> int:
        """The probability of the largest noise of this reach, in steps of 2^-BITS."""
        with precision(BITS + 64):
            ratio = (-ball_of(self.epsilon * (1 - _SLACK))).exp()
            end = ratio**reach * (1 - ratio) / (1 + ratio - 2 * ratio ** (reach + 1))
            return int((end * (1 << BITS)).upper().ceil().unique_fmpz())

    @cached_property
    def noise_tails(self) -> tuple[int, ...]:
        """P(noise >= k), ..., P(noise >= -k) = 1 in steps of 2^-BITS: a truncated geometric law.

        Privacy: docs/proofs/keys.md, Theorem 1: neighbouring values differ by e^epsilon at most.
        """
        reach, whole = self.reach, 1 << BITS
        with precision(BITS + 64):
            ratio = (-ball_of(self.epsilon * (1 - _SLACK))).exp()
            mass = (1 - ratio) / (1 + ratio - 2 * ratio ** (reach + 1)) * whole
            side = []
            for _ in range(reach):
                mass = mass * ratio
                side.append(int(mass.lower().floor().unique_fmpz()))
        outer = list(accumulate(reversed(side)))  # what is left over goes to 0
        return (*outer, *(whole - p for p in reversed(outer)), whole)

    @property
    def threshold(self) -> int:
        """The least number that is published: all below that are published are told as it."""
        return self.reach

    @property
    def mean(self) -> float:
        """Zero: the noise is symmetric."""
        return 0.0

    @cached_property
    def standard_error(self) -> float:
        """The standard deviation of the noise."""
        places = np.arange(-self.reach, self.reach + 1, dtype=np.float64)
        masses = self.tails - np.append(self.tails[1:], 0.0)
        return sqrt(float(masses @ places**2))

    @property
    def least(self) -> int:
        """The least noise."""
        return -self.reach

    @cached_property
    def tails(self) -> Array:
        """P(noise >= -k), ..., P(noise >= k)."""
        return np.array([p / (1 << BITS) for p in reversed(self.noise_tails)])

    def chance(self, people: int) -> float:
        """The probability that a key of so many people is published."""
        if people <= 0:
            return 0.0
        return self.published[min(people, len(self.published)) - 1] / (1 << BITS)


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

    def chance(self, people: int) -> float:
        """The probability that a key of so many people is published."""
        return 0.0 if people <= 0 else _tail(self, self.threshold - people)

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


def people_for(law: KeyLaw, probability: float) -> int:
    """Return the least number of people with which a key is published so often.

    >>> people_for(OptimalKeys(Fraction(1), Fraction(1, 10**6), 1), 0.5)
    14
    """
    high = 2 * (law.threshold - law.least)
    return _first(lambda people: law.chance(people) >= probability, 1, high)


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

    def at_least(bound: int, people: int) -> float:
        """P(the key is published with a number of at least this)."""
        if bound <= law.threshold:
            return law.chance(people)
        return _tail(law, bound - people)

    def is_not_too_small(people: int) -> bool:
        return at_least(number, people) > side * law.chance(people)

    def is_too_large(people: int) -> bool:
        published = law.chance(people)
        return published - at_least(number + 1, people) <= side * published

    most = number - law.least  # all noise from here on leads above the number
    low = _first(is_not_too_small, 1, most)
    return low, max(low, _first(is_too_large, 1, most + 1) - 1)


def shown_level(level: float, shown: int, passed: int) -> float:
    """Return the level of each interval where the ``shown`` largest of ``passed`` keys are shown.

    At 1 - (1 - level) shown / passed a share of at most 1 - level of the shown intervals misses, on
    average over runs (docs/proofs/keys.md, Theorem 6).

    >>> round(shown_level(0.95, 2, 10), 6), shown_level(0.95, 10, 10)
    (0.99, 0.95)
    """
    return 1 - (1 - level) * shown / passed if 0 < shown < passed else level


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


@dataclass(frozen=True, slots=True)
class RangeLaw:
    """Everything public about the search for one range: its noise, and where a range ends.

    Args:
        number: The Laplace noise of the number of records.
        rate: What scores of the middle are multiplied by.
        ends: The sparse vector of either end; its scores are counts, which are monotone.
        beyond: The share of all records beyond either end at which the walk is to stop.
        moves: How many records neighbours differ in, at most.
    """

    number: NoiseLaw
    rate: Fraction
    ends: SparseLaw
    beyond: Fraction
    moves: int = 1

    def __post_init__(self) -> None:
        if self.number.kind != "laplace" or self.ends.discoveries != 1:
            raise BudgetError("a range needs Laplace noise on its number, and one end per side")
        if not self.ends.is_monotone or self.ends.sensitivity != 1:
            raise BudgetError("the ends of a range compare counts: monotone, of sensitivity 1")
        if not 0 < self.beyond < Fraction(1, 2):
            raise BudgetError(
                f"beyond must be a share between 0 and 1/2 of the records, got {self.beyond}"
            )

    @property
    def cost(self) -> Cost:
        """The cost of the whole search, both ends included.

        Privacy: docs/proofs/ranges.md, Theorem 2: between tables one record apart the number
        costs ``1 / scale``, the middle ``2 rate`` and both ends together ``ends.cost``; tables
        ``moves`` records apart cost as many times more (group privacy).
        """
        return (
            Cost.pure(self.moves / self.number.scale, steps=self.moves)
            + Cost.pure(2 * self.moves * self.rate)
            + Cost.pure(self.moves * self.ends.cost.pure_epsilon)
        )

    @property
    def epsilon(self) -> Fraction:
        """The epsilon of the whole search."""
        return self.cost.pure_epsilon

    @property
    def tails(self) -> Fraction:
        """The share of the records that is to lie beyond either end, about."""
        return self.beyond / LIMITS.range_aim

    def threshold(self, number: int) -> int:
        """The number of records beyond an end, when there are about so many in all.

        At least what noise alone would pass, so that the walk ends where no record is left.
        """
        floor = LIMITS.range_floor * (self.ends.threshold.scale + self.ends.query.scale)
        return ceil(max(self.beyond * number, floor))

    @property
    def least_records(self) -> int:
        """The noisy number of records below which nothing is learnt: the default range is used."""
        return ceil(LIMITS.range_records / self.rate)

    def as_json(self) -> dict[str, object]:
        """The law as JSON, exactly; what a ledger keeps of it."""
        return {
            "number": [self.number.kind, str(self.number.scale)],
            "rate": str(self.rate),
            "ends": self.ends.as_json(),
            "beyond": str(self.beyond),
            "moves": self.moves,
        }


def range_law(epsilon: Fraction, moves: int = 1, tails: Fraction = Fraction(1, 20)) -> RangeLaw:
    """Return the law of a search that costs exactly ``epsilon``.

    The walk aims a little inside of the tails, for it stops at an edge beyond its aim.

    Args:
        epsilon: What the search costs.
        moves: How many records neighbours differ in, at most.
        tails: The share of the records that is to lie beyond either end, about.

    Raises:
        BudgetError: The epsilon is too small, or tails are no share below a quarter.

    >>> range_law(Fraction(1, 10)).cost
    Cost(epsilon = 0.1)
    """
    if not 0 < Fraction(tails) <= Fraction(1, 4):
        raise BudgetError(f"tails must be a share above 0 and at most 1/4, got {tails}")
    each = Fraction(epsilon) / moves
    number, middle = LIMITS.range_number * each, LIMITS.range_middle * each
    end = NoiseLaw("exponential", 2 / (each - number - middle))
    return RangeLaw(
        NoiseLaw("laplace", 1 / number),
        middle / 2,
        SparseLaw(end, end, is_monotone=True),
        LIMITS.range_aim * Fraction(tails),
        moves,
    )
