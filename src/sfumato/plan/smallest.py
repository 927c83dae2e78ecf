# SPDX-License-Identifier: Apache-2.0
"""From an error one can live with to the least budget that reaches it; public arithmetic."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from sfumato.budget import Budget, Neighbours
from sfumato.budget.accounting import gaussian_epsilon
from sfumato.domain.unit import PrivacyUnit
from sfumato.errors import PlanError, TooLarge
from sfumato.plan.forecast import Forecast
from sfumato.plan.planner import BIASED, Strategies, choose
from sfumato.plan.view import as_asked
from sfumato.privacy.noise_laws import Noise
from sfumato.workload.workload import Workload

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
    asked: Workload | None = None,
    noise_only: Noise | None = None,
    *,
    may_drop_records: bool = False,
) -> Budget:
    """The least epsilon whose plan errs by at most ``error``, root mean square over what was asked.

    ``known`` has the strategies for the normal form of ``asked``, if that is another workload.

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
        if noise_only not in (None, noise):
            continue
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
                may_drop_records=may_drop_records,
            )
        except TooLarge:  # for any noise
            raise
        except PlanError:
            continue
        rmse = _rmse(found, asked)
        if noise == "gaussian":
            least = max(gaussian_epsilon(rmse / error, delta), LEAST)
            options.append(Budget(epsilon=least, delta=delta))
        else:
            options.append(Budget(epsilon=rmse / error))
    if not options:
        raise PlanError(f"no mechanism fits this workload (mechanism = {mechanism!r})")
    budget = min(options, key=lambda b: b.epsilon or 0)
    rest = (neighbours, objective, mechanism, unit)
    while True:
        found = choose(
            work,
            budget,
            *rest,
            noise_only=noise_only,
            strategies=known,
            may_drop_records=may_drop_records,
        )
        rmse = _rmse(found, asked)
        if rmse <= error:
            return budget
        # Mostly rounding; another mechanism may have won, by its own objective. mu is concave in
        # epsilon: a factor of epsilon lowers the error by no more than this factor.
        step = max(Fraction(100001, 100000), Fraction(rmse / error))
        budget = Budget(epsilon=(budget.epsilon or 0) * step, delta=budget.delta)


def _rmse(found: Forecast, asked: Workload | None) -> float:
    return found.rmse if asked is None else as_asked(found, asked).rmse
