# SPDX-License-Identifier: Apache-2.0
"""Any linear combination of released answers, with its own standard error and interval.

Differences, averages and weighted sums of answers, also of several groups. Their errors are exact:
what the answers have in common is counted once (``plan/combination.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sfumato.plan.combination import Coefficients, combination_error, read
from sfumato.release.estimates import Estimates

__all__ = ["Combination", "combine"]


@dataclass(frozen=True, slots=True)
class Combination:
    """An unbiased value, its standard error, and the interval of the asked level."""

    value: float
    standard_error: float
    low: float
    high: float


def combine(
    estimates: Estimates, coefficients: Mapping[str, Coefficients], level: float
) -> Combination:
    """``c'a`` of the unbiased answers a, with ends that hold the truth with chance ``level``.

    Privacy: a function of released measurements and of public numbers (post-processing: Dwork,
    Roth 2014, Proposition 2.1).
    Neighbours: those of the forecast.
    """
    c = read(estimates.forecast, coefficients)
    value = sum(float(numbers @ estimates.unbiased[term]) for term, numbers in c.items())
    error = combination_error(estimates.forecast, coefficients)
    half = error.half_width(level)
    return Combination(value, error.standard_error, value - half, value + half)
