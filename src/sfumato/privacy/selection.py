# SPDX-License-Identifier: Apache-2.0
"""What a private choice among candidates costs.

The exponential mechanism promises more than epsilon-DP: its privacy losses on two neighbours all
lie in one interval of length epsilon (it has *bounded range*: Durfee, Rogers 2019, "Practical
differentially private top-k selection with pay-what-you-get composition"). In zCDP this is worth
a factor 4 (Cesar, Rogers 2021, "Bounding, concentrating, and truncating: unifying privacy loss
composition for data analytics"); here it is accounted as Gaussian differential privacy, so that
choices and Gaussian measurements share one currency, in which costs may be chosen one by one.
Proof page: ``docs/proofs/selection.md``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, Literal, TypeAlias, get_args

from sfumato.errors import BudgetError
from sfumato.privacy import gaussian
from sfumato.privacy.cost import Cost

__all__ = [
    "MAXIMUM_RATE",
    "ChoiceNoise",
    "choice_cost",
    "range_of_mu_squared_down",
    "selection_cost",
]


MAXIMUM_RATE: Final = 2**20
"""The maximum rate of a choice: times the greatest score it is below 2^80, which floats hold."""

ChoiceNoise: TypeAlias = Literal["gumbel", "exponential", "laplace"]
"""The noise of report-noisy-max: exponential mechanism, permute-and-flip, plain."""


def choice_cost(
    noise: ChoiceNoise, rate: Fraction, sensitivity: Fraction | int, is_monotone: bool = False
) -> Cost:
    """Return the cost of one noisy maximum of scores that move by at most ``sensitivity``.

    Gumbel noise by its bounded range, the others by their epsilon: both are twice the rate times
    the sensitivity, or once for scores that all move in one direction together.

    Privacy: docs/proofs/selection.md, Theorems 2 to 6.

    >>> choice_cost("laplace", Fraction(1, 20), 1)
    Cost(epsilon = 0.1)
    """
    if noise not in get_args(ChoiceNoise):
        raise BudgetError(f'noise must be "gumbel", "exponential" or "laplace", got {noise!r}')
    if not isinstance(rate, Fraction | int) or not isinstance(sensitivity, Fraction | int):
        raise BudgetError("rate and sensitivity of a choice must be exact; pass Fraction(x)")
    reach = (1 if is_monotone else 2) * Fraction(rate) * sensitivity
    return selection_cost(reach) if noise == "gumbel" else Cost.pure(reach)


def selection_cost(bounded_range: Fraction) -> Cost:
    """Return the cost of a choice with bounded range eta.

    It is mu-GDP with ``Phi(-mu/2) = 1/(1 + e^(eta/2))``.

    Privacy: docs/proofs/selection.md, Theorem 3. For small eta, ``mu^2/2 = pi eta^2/16``.

    >>> selection_cost(Fraction(1, 10))
    Cost(mu^2 = 0.00392663973084)
    """
    if not isinstance(bounded_range, Fraction | int) or not bounded_range > 0:
        raise BudgetError(
            f"a bounded range must be an exact number above 0, got {bounded_range!r}; it is twice "
            "the rate times the sensitivity of the scores"
        )
    mu = Fraction(gaussian.mu_of_pure_up(Fraction(bounded_range) / 2))
    return Cost.gaussian(mu * mu)


def range_of_mu_squared_down(mu_squared: Fraction) -> Fraction:
    """Return the largest bounded range, rounded down, whose cost is at most ``mu_squared``."""
    if not isinstance(mu_squared, Fraction | int) or not mu_squared > 0:
        raise BudgetError(f"mu^2 must be an exact number above 0, got {mu_squared!r}")
    return 2 * Fraction(
        gaussian.pure_of_mu_down(Fraction(gaussian.sqrt_down(Fraction(mu_squared))))
    )
