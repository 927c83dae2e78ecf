# SPDX-License-Identifier: Apache-2.0
"""The limits of the privacy arithmetic in one place, each with its reason.

None of them loosens a promise: what lies beyond is refused, or bounded by a simpler formula.
Bounds on rounding errors are part of a proof and stand beside the code that they are proved for.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

__all__ = [
    "LIMITS",
    "PrivacyLimits",
]


@dataclass(frozen=True, slots=True)
class PrivacyLimits:
    """Ranges of privacy parameters, and how far sums and precisions go."""

    # budget: beyond these a promise means nothing; within them every bound takes milliseconds
    maximum_epsilon: int = 10**6
    """Nothing private is left at this epsilon."""
    maximum_rho: int = 10**6
    """Nothing private is left at this rho."""
    maximum_mu: int = 10**3
    """Nothing private is left at this mu, whose square compares with rho."""
    minimum_parameter: Fraction = Fraction(1, 10**100)
    """No table is large enough for answers at a smaller epsilon, rho or mu."""
    minimum_delta: Fraction = Fraction(1, 10**300)
    """A smaller delta is not told from 0 by doubles."""
    parameter_bits: int = 13_000
    """Bits of a numerator or denominator; longer ones could not be written out and read again."""

    # cost: one part of a release
    minimum_cost: Fraction = Fraction(1, 10**250)
    """A smaller part is lost in the units of any ledger, which would round it up."""
    maximum_cost: Fraction = Fraction(10**15)
    """Above the square of any budget, so that nothing that fits is refused."""

    # gaussian: comparisons of balls
    ball_bits: tuple[int, ...] = tuple(96 * 2**step for step in range(9))
    """Working precisions, tried until a ball decides; the last is enough within these limits."""
    closed_form_from: int = 10**7
    """From here closed bounds are used: nothing private is left, and balls get slow."""

    # cost: sums of the privacy losses of pure parts
    steps_of_a_part: int = 1024
    """Steps of a discrete Laplace mechanism that are followed one by one; more are joined."""
    kinds_of_parts: int = 4096
    """Different pure parts of one composition; more are bounded by the simple sums."""
    copies_of_a_part: int = 10**6
    """Copies of one pure part; more are bounded by the simple sums."""

    # key laws
    key_steps: int = 2**20
    """Values of the noise on the number of people of a key: a second of exact arithmetic."""
    key_noise: tuple[Fraction, Fraction] = (Fraction(1, 2**8), Fraction(2**20))
    """Standard deviations of Gaussian noise on that number, whose tails are listed."""

    # range law: how the epsilon of one range is divided, and where its walks end
    range_number: Fraction = Fraction(1, 20)
    """Share for the number of records: of a twentieth of it the threshold needs a twentieth."""
    range_middle: Fraction = Fraction(3, 20)
    """Share for the middle, which half of the records tell apart; the ends have only the tails."""
    range_aim: Fraction = Fraction(13, 10)
    """The threshold in tails: walks stop at an edge beyond it, and too far costs more steps."""
    range_floor: Fraction = Fraction(3, 5)
    """Least threshold in scales of the noise: without records six tests in seven end a walk."""
    range_records: int = 5
    """Least noisy number of records times the rate of the middle: below it is a guess."""

    # noise laws: quantiles and variances
    mixture_nodes: int = 64
    """Chebyshev nodes in 1 / shape of a Laplace mixture's quantile: accurate to 1e-8."""
    mixture_points: int = 512
    """Points of the trapezoidal rule of its tail, which converges geometrically."""
    smooth_units: int = 16
    """Grid steps from which the waves of ``gaussian_variance`` are below 10^-2000."""
    fine_steps: int = 2**12
    """Grid steps of a scale from which an interval owes less than 2^-13 of its width to a step."""
    whole_steps_log2: int = -4
    """Least scale in steps of a grid: below it noise is 0 but for 1 in 4 million draws."""


LIMITS: Final = PrivacyLimits()
