# SPDX-License-Identifier: Apache-2.0
"""What a count of hits proves: lower bounds on a privacy loss from runs on two neighbours.

An event E was hit ``a`` times in ``runs`` runs on one table and ``b`` times on its neighbour. The
Clopper-Pearson bounds (1934, "The use of confidence or fiducial limits") say, at any confidence,
P(E) >= p and Q(E) <= q, exactly, whatever the mechanism. Then

    pure epsilon-DP         e^epsilon >= p / q
    (epsilon, delta)-DP     e^epsilon >= (p - delta) / q
    mu-GDP                  mu >= Phi^-1(p) - Phi^-1(q)     (Dong, Roth, Su 2022, Definition 4)

A lower bound above the claim refutes it. A bound below it proves nothing: docs/audit.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import exp
from typing import Literal

import numpy as np

from sfumato.privacy.cost import Cost, composed_epsilon, gaussian_delta
from sfumato.privacy.gaussian import float_up, sqrt_up
from sfumato.types import Array

__all__ = [
    "MIXED_DELTA",
    "Claim",
    "chance_of_missing",
    "hit_bounds",
]


Kind = Literal["epsilon", "mu"]

MIXED_DELTA = 1e-2
"""The delta at which a claim of pure and Gaussian parts together is looked at."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a mechanism promises: epsilon-DP (at ``delta``), or mu-GDP.

    >>> Claim.of(Cost.pure(1))
    Claim(kind='epsilon', amount=1.0, delta=0.0)
    """

    kind: Kind
    amount: float
    delta: float = 0.0

    @classmethod
    def of(cls, cost: Cost) -> Claim:
        """The claim that a debited cost makes, rounded up."""
        if not cost.mu_squared:
            return cls("epsilon", float_up(cost.pure_epsilon), float_up(cost.delta))
        if not cost.pure_parts and not cost.delta:
            return cls("mu", sqrt_up(cost.mu_squared))
        delta = float_up(Fraction(str(MIXED_DELTA)) + cost.delta)
        return cls("epsilon", composed_epsilon([cost], delta), delta)

    def minimum_loss(self, p: Array, q: Array) -> Array:
        """The minimum amount that allows P(E) >= p and Q(E) <= q; 0 where that says nothing."""
        if self.kind == "mu":
            from scipy.special import ndtri

            return np.maximum(np.asarray(ndtri(p) - ndtri(q), dtype=np.float64), 0.0)
        with np.errstate(divide="ignore"):
            return np.maximum(np.log(np.maximum(p - self.delta, 0.0) / q), 0.0)

    def delta_at(self, epsilon: float) -> float:
        """The delta that the claim allows at an epsilon, rounded up."""
        if self.kind == "mu":
            return gaussian_delta(self.amount, epsilon)
        if epsilon >= self.amount:
            return self.delta
        # An epsilon-DP mechanism is (e, (e^epsilon - e^e) / (1 + e^epsilon))-DP: the curve of
        # randomized response (Kairouz, Oh, Viswanath 2015, "The composition theorem").
        grown = exp(self.amount)
        return self.delta + (1 - self.delta) * (grown - exp(epsilon)) / (1 + grown)


def hit_bounds(a: Array, b: Array, runs: int, alpha: float) -> tuple[Array, Array]:
    """p and q with P(E) >= p and Q(E) <= q, both at once wrong with probability at most alpha.

    >>> p, q = hit_bounds(np.array([50.0]), np.array([0.0]), 100, 0.001)
    >>> bool(p[0] < 0.5), bool(q[0] > 0)
    (True, True)
    """
    from scipy.special import betainccinv, betaincinv

    half = alpha / 2
    p = np.where(a > 0, betaincinv(np.maximum(a, 1), runs - a + 1, half), 0.0)
    q = np.where(b < runs, betainccinv(b + 1, np.maximum(runs - b, 1), half), 1.0)
    return p, q


def chance_of_missing(claim: Claim, p: float, q: float, runs: int, alpha: float) -> float:
    """An upper bound on the chance that an event of probabilities p and q does not refute a claim.

    The bound grows with the hits on one side and falls with those on the other. So if it refutes
    the claim at a low quantile of the one and at a high one of the other, it is missed at most when
    one of them is beyond its quantile.
    """
    from scipy.stats import binom

    for beta in (10.0**-k for k in range(15, 0, -1)):
        a, b = binom.ppf(beta, runs, p), binom.isf(beta, runs, q)
        bounds = hit_bounds(np.array([a]), np.array([b]), runs, alpha)
        if claim.minimum_loss(*bounds)[0] > claim.amount:
            return 2 * beta
    return 1.0
