# SPDX-License-Identifier: Apache-2.0
"""Which sparse vector, and how many, for a budget: forecast side by side, the best one kept.

At most c discoveries may be found by one sparse vector, which costs in proportion to c, or by c
sparse vectors of one discovery each, which compose like a square root where the budget is not pure.
A pure epsilon may be spent without Gaussian noise, also from a budget with a delta. The noise of
comparisons is one-sided where that costs the same, which halves its variance (Liu et al. 2024,
"Unleash the power of ellipsis: accuracy-enhanced sparse vector technique with exponential noise").
All of it is known, and debited, before the first score is tested. Proof page:
``docs/proofs/sparse-vector.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from sfumato.budget import Budget, Cost
from sfumato.budget.sparse import NoiseKind, NoiseLaw, SparseLaw, noise_cost
from sfumato.errors import PlanError
from sfumato.plan.discovery import centred, tolerance
from sfumato.plan.sparse import noise_of, sparse_of_epsilon, sparse_of_mu_squared
from sfumato.privacy.noise_laws import gaussian_quantile, laplace_quantile

__all__ = ["GRID_BITS", "SparsePlan", "plan_sparse"]

GRID_BITS: Final = 8
"""Scores are compared in steps of 2^-8."""

SHARES: Final = (Fraction(1, 2), Fraction(1, 4), Fraction(1, 8))
"""Parts of the budget that are tried for numbers, where they are asked for."""


@dataclass(frozen=True, slots=True)
class SparsePlan:
    """``epochs`` sparse vectors of one law, and perhaps a number with fresh noise per discovery.

    Everything in grid steps. ``queries`` is the most scores that will be tested; it is needed for
    the forecast only, for tests below the threshold cost nothing.
    """

    budget: Budget
    law: SparseLaw
    epochs: int
    number: NoiseLaw | None
    queries: int
    confidence: float

    @property
    def discoveries(self) -> int:
        """How many scores may be found above, over all epochs."""
        return self.epochs * self.law.discoveries

    @property
    def cost(self) -> Cost:
        """The cost of all epochs and of all numbers, debited before the first noise."""
        parts = [*self.law.cost.parts] * self.epochs
        if self.number is not None:
            parts += [*noise_cost(self.number, self.law.sensitivity).parts] * self.discoveries
        whole = Cost(tuple(parts))
        # Gaussian parts are one, of all mu^2 together; pure ones are accounted one by one.
        gaussian = () if not whole.mu_squared else Cost.gaussian(whole.mu_squared).parts
        return Cost((*gaussian, *whole.pure_parts))

    @property
    def tolerance(self) -> int:
        """With probability ``confidence`` all tests are right up to so many steps."""
        return tolerance(self.law, self.queries, self._beta, self.epochs)

    @property
    def half_width(self) -> int:
        """Half of the interval of a number: all of them hold, with the tests, at ``confidence``."""
        if self.number is None:
            raise PlanError("this sparse vector gives no numbers; ask for them")
        quantile = gaussian_quantile if self.number.kind == "gaussian" else laplace_quantile
        return quantile(self.number.scale, 1 - self._beta / self.discoveries)

    @property
    def _beta(self) -> float:
        """The part of 1 - confidence that the tests may use; the numbers use the other half."""
        return (1 - self.confidence) / (1 if self.number is None else 2)

    def centred(self) -> SparsePlan:
        """The same plan with the offset that suits its queries and its confidence."""
        law = centred(self.law, self.queries, self._beta, self.epochs)
        return replace(self, law=law)

    def request(self) -> dict[str, object]:
        """The public description, as the ledger keeps it."""
        number = None if self.number is None else [self.number.kind, str(self.number.scale)]
        return {
            "mechanism": "sparse vector",
            "law": self.law.as_json(),
            "epochs": self.epochs,
            "number": number,
            "queries": self.queries,
            "budget": self.budget.as_json(),
        }


def plan_sparse(
    budget: Budget,
    discoveries: int,
    queries: int,
    sensitivity: int,
    *,
    is_monotone: bool,
    with_numbers: bool,
    confidence: float = 0.95,
) -> SparsePlan:
    """The sparse vectors with the least tolerance that keep the budget.

    >>> plan = plan_sparse(Budget(mu=1), 3, 100, 1, is_monotone=True, with_numbers=False)
    >>> plan.epochs, plan.law.discoveries
    (3, 1)
    """
    if not isinstance(budget, Budget):
        raise PlanError(f"budget must be sf.Budget(epsilon=..., delta=...), got {budget!r}")
    for name, value in (("discoveries", discoveries), ("queries", queries)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**31:
            raise PlanError(f"{name} must be a whole number from 1 to 2^31, got {value!r}")
    if not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise PlanError(f"confidence must lie between 0 and 1, got {confidence!r}")
    found = [
        SparsePlan(budget, law, epochs, number, queries, float(confidence)).centred()
        for share in (SHARES if with_numbers else (Fraction(0),))
        for law, epochs, number in _candidates(budget, discoveries, sensitivity, is_monotone, share)
    ]
    kept = [plan for plan in found if _keeps(plan.cost, budget)]
    if not kept:
        raise PlanError(
            f"no sparse vector with {discoveries:,} discoveries fits {budget.describe()}; use a "
            "larger budget or fewer discoveries"
        )
    return min(kept, key=lambda p: p.tolerance + (0 if p.number is None else p.half_width))


def _candidates(
    budget: Budget, discoveries: int, sensitivity: int, is_monotone: bool, share: Fraction
) -> Iterator[tuple[SparseLaw, int, NoiseLaw | None]]:
    """Laws, epochs, and the noise of a number, each within the budget by its own currency."""
    kinds: list[tuple[NoiseKind, Fraction, int, int]] = [
        ("laplace", budget.pure_epsilon, discoveries, 1)
    ]
    if budget.gaussian_mu:
        whole = Fraction(budget.gaussian_mu) ** 2
        kinds += [("gaussian", whole, discoveries, 1), ("gaussian", whole, 1, discoveries)]
    for kind, amount, each, epochs in kinds:
        rest, part = (1 - share) * amount / epochs, share * amount / discoveries
        with suppress(PlanError):  # a scale that cannot be drawn
            law = _law(kind, rest, each, sensitivity, is_monotone)
            yield law, epochs, noise_of(part, kind, sensitivity) if share else None


def _law(
    kind: NoiseKind, amount: Fraction, discoveries: int, sensitivity: int, is_monotone: bool
) -> SparseLaw:
    if kind == "gaussian":
        return sparse_of_mu_squared(
            amount, discoveries, sensitivity, is_monotone=is_monotone, query="exponential"
        )
    return sparse_of_epsilon(
        amount,
        discoveries,
        sensitivity,
        is_monotone=is_monotone,
        threshold="exponential",
        query="exponential",
    )


def _keeps(cost: Cost, budget: Budget) -> bool:
    """Whether the cost is within the budget, in the currency it was calibrated for."""
    if not cost.mu_squared:
        return cost.pure_epsilon <= budget.pure_epsilon
    return cost.mu_squared <= Fraction(budget.gaussian_mu or 0.0) ** 2
