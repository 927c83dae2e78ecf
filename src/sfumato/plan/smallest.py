# SPDX-License-Identifier: Apache-2.0
"""From an error one can live with to the least budget that reaches it; public arithmetic."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from sfumato.budget import Budget, Neighbours
from sfumato.budget.accounting import gaussian_epsilon
from sfumato.domain.unit import PrivacyUnit
from sfumato.errors import PlanError, TooLarge
from sfumato.plan.planner import BIASED, Strategies, choose
from sfumato.plan.strategy import Noise

__all__ = ["smallest_budget"]

LEAST = 1e-9  # epsilon, where delta alone would allow less noise than is asked for

_UNIT_BUDGETS: dict[Noise, Budget] = {"gaussian": Budget(mu=1), "laplace": Budget(epsilon=1)}


def smallest_budget(
    known: Strategies,
    error: float | None,
    neighbours: Neighbours,
    mechanism: str | None,
    delta: float | Fraction,
    unit: PrivacyUnit | None,
) -> Budget:
    """The least epsilon whose plan has a root mean square error of at most ``error``.

    Errors scale as 1/mu (Gaussian noise) and 1/epsilon (Laplace), up to the rounding of the noise
    scale to its grid, which the last loop settles.
    """
    if not isinstance(error, int | float) or not 0 < error < float("inf"):
        raise PlanError(f"error must be a number of counts above 0, got {error!r}")
    if mechanism == BIASED:
        raise PlanError("approximate answers need a budget: their error does not shrink like 1/mu")
    known = replace(known, records=None)
    work, objective = known.workload, known.objective
    options = []
    for noise, unit_budget in _UNIT_BUDGETS.items():
        try:
            found = choose(
                work,
                unit_budget,
                neighbours,
                objective,
                mechanism,
                unit,
                noise_only=noise,
                strategies=known,
            )
        except TooLarge:  # for any noise
            raise
        except PlanError:
            continue
        if noise == "gaussian":
            least = max(gaussian_epsilon(found.rmse / error, delta), LEAST)
            options.append(Budget(epsilon=least, delta=delta))
        else:
            options.append(Budget(epsilon=found.rmse / error))
    if not options:
        raise PlanError(f"no mechanism fits this workload (mechanism = {mechanism!r})")
    budget = min(options, key=lambda b: b.epsilon or 0)
    while (
        rmse := choose(work, budget, neighbours, objective, mechanism, unit, strategies=known).rmse
    ) > error:
        # Mostly rounding; another mechanism may have won, by its own objective. mu is concave in
        # epsilon: a factor of epsilon lowers the error by no more than this factor.
        step = max(Fraction(100001, 100000), Fraction(rmse / error))
        budget = Budget(epsilon=(budget.epsilon or 0) * step, delta=budget.delta)
    return budget
