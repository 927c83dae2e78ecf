# SPDX-License-Identifier: Apache-2.0
"""Choose how to ask: build every mechanism that fits, forecast each, keep the best.

Public arithmetic only: the choice depends on the workload, the budget and the neighbours, never
on data, so it costs nothing. Mechanisms are tried in the order of their effort; the rest is left
out once the best so far is within 1% of a lower bound on all of them, or time is up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, sqrt
from pathlib import Path
from time import monotonic

from threadpoolctl import threadpool_limits

from sfumato.budget import Budget, Neighbours
from sfumato.budget.curve import float_down
from sfumato.domain.unit import PrivacyUnit
from sfumato.errors import PlanError, TooLarge
from sfumato.plan.calibrate import calibrate
from sfumato.plan.effort import effort
from sfumato.plan.forecast import Candidate, Forecast
from sfumato.plan.lower import sum_of_bounds
from sfumato.plan.mechanisms import MECHANISMS, named
from sfumato.plan.strategy import Noise, Strategy
from sfumato.workload.terms import Predicates
from sfumato.workload.workload import Workload

__all__ = ["MECHANISMS", "Strategies", "choose"]

MEASURED = 2**27  # values measured in one release
GOOD_ENOUGH = 1.01  # the certificate at which no further mechanism is tried

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class Strategies:
    """The strategies of one workload and objective: each is built once, for every budget.

    ``until`` is the monotonic time at which searches return what they have; ``folder`` is where
    they remember how far they came.
    """

    workload: Workload
    objective: str = "rmse"
    until: float = inf
    folder: Path | None = None
    _made: dict[str, Strategy | PlanError] = field(default_factory=dict, repr=False)

    def of(self, name: str, watch: Callable[[str], None] | None = None) -> Strategy:
        """The strategy of a mechanism; PlanError says why it does not fit."""
        if name not in self._made:
            self._made[name] = self._built(name, watch)
        found = self._made[name]
        if isinstance(found, PlanError):
            raise found
        return found

    def _built(self, name: str, watch: Callable[[str], None] | None) -> Strategy | PlanError:
        build, noise = MECHANISMS[name]
        asked = f"{self.workload.digest()}|{self.objective}|{name}"
        key = hashlib.sha256(asked.encode()).hexdigest()[:32]
        try:
            # Thousands of small eigenvalue problems: threads would wait for each other.
            with (
                effort(key, self.until, self.folder, watch),
                threadpool_limits(limits=1, user_api="blas"),
            ):
                strategy = build(self.workload, noise, self.objective)
            _check_memory(strategy)
        except PlanError as why:
            return why
        return strategy


def choose(
    workload: Workload,
    budget: Budget,
    neighbours: Neighbours,
    objective: str = "rmse",
    mechanism: str | None = None,
    unit: PrivacyUnit | None = None,
    progress: Progress | None = None,
    noise_only: Noise | None = None,
    strategies: Strategies | None = None,
) -> Forecast:
    """The forecast of the best mechanism for the workload, with all that were considered."""
    if objective not in ("rmse", "max"):
        raise PlanError(f"objective must be 'rmse' or 'max', got {objective!r}")
    strategies = strategies or Strategies(workload, objective)
    wanted = [w for w in named(mechanism) if noise_only in (None, MECHANISMS[w].noise)]
    found: list[Forecast] = []
    considered: list[Candidate] = []
    for i, name in enumerate(wanted):
        if progress is not None:
            progress(i, len(wanted), name)
        noise = MECHANISMS[name].noise
        loss = budget.gaussian_mu if noise == "gaussian" else float_down(budget.pure_epsilon)
        if loss is None:
            considered.append(Candidate(name, None, None, "needs delta > 0, rho or mu"))
            continue
        needless = _needless(found, noise, loss, strategies.until)
        if needless:
            considered.append(Candidate(name, None, None, needless))
            continue
        try:
            watch = None if progress is None else partial(_watched, progress, i, len(wanted), name)
            strategy = strategies.of(name, watch)
            scales = calibrate(strategy, loss, neighbours, unit)
        except PlanError as why:
            considered.append(Candidate(name, None, None, str(why)))
            continue
        forecast = Forecast(workload, budget, neighbours, objective, unit, strategy, scales, ())
        considered.append(Candidate(name, forecast.rmse, forecast.largest_error, ""))
        found.append(forecast)
    if not found:
        raise PlanError(f"no mechanism fits this workload and budget: {_reasons(considered)}")
    best = _best(found)
    if best.bound is None and best.strategy.noise == "gaussian" and objective == "rmse":
        best = replace(best, bound=sum_of_bounds(workload) or None)
    shown = tuple(replace(c, is_chosen=c.mechanism == best.mechanism) for c in considered)
    return replace(best, candidates=shown)


def _watched(progress: Progress, done: int, total: int, name: str, detail: str) -> None:
    progress(done, total, f"{name} {detail}".rstrip())


def _best(found: list[Forecast]) -> Forecast:
    """The least error, with the greatest lower bound that any strategy came with."""
    best = min(found, key=_objective_value)
    bounds = [f.strategy.bound_for(f.objective) for f in found]
    return replace(best, bound=max((b for b in bounds if b is not None), default=None))


def _needless(found: list[Forecast], noise: Noise, loss: float, until: float) -> str:
    """Why the next mechanism need not be tried, or nothing."""
    if not found:
        return ""
    best = _best(found)
    if monotonic() > until:
        return "not tried: the time for planning is up"
    if best.certificate is None or best.bound is None:
        return ""
    if noise == "gaussian" and best.strategy.noise == "gaussian":
        if best.certificate <= GOOD_ENOUGH:
            return f"not tried: {best.mechanism} is within 1% of the least possible"
    elif noise == "laplace":
        # A column is no shorter in L1 than in L2, and Laplace noise of scale b has variance 2 b^2.
        rows = 1 if best.unit is None else best.unit.rows
        least = sqrt(2 * best.bound / _weight(best)) * rows / loss
        if least >= _objective_value(best):
            return f"not tried: no Laplace mechanism has less error than {best.mechanism}"
    return ""


def _reasons(considered: list[Candidate]) -> str:
    """Every reason once, with the mechanisms it holds for."""
    by_note: dict[str, list[str]] = {}
    for candidate in considered:
        by_note.setdefault(candidate.note, []).append(candidate.mechanism)
    return "; ".join(f"{note} ({', '.join(names)})" for note, names in by_note.items())


def _objective_value(forecast: Forecast) -> float:
    """Weighted by what matters to the asker."""
    pairs = list(zip(forecast.groups, forecast.workload.terms, strict=True))
    if forecast.objective == "max":
        return max(g.largest * t.weight for g, t in pairs)
    squares = sum(g.rmse**2 * g.queries * t.weight**2 for g, t in pairs)
    return sqrt(squares / _weight(forecast))


def _weight(forecast: Forecast) -> float:
    """What the weighted squared error is divided by."""
    if forecast.objective == "max":
        return 1.0
    return sum(t.rows * t.weight**2 for t in forecast.workload.terms)


def _check_memory(strategy: Strategy) -> None:
    measured = sum(b.term.rows for b in strategy.blocks)
    if measured > MEASURED:
        raise TooLarge(
            f"{measured:,} values would be measured ({8 * measured / 2**30:,.1f} GiB), the limit "
            f"is {MEASURED:,}; ask for fewer or coarser queries"
        )
    for block in strategy.blocks:
        wide = isinstance(block.term, Predicates) and block.term.is_wide
        if block.term.cells > MEASURED and not wide:
            raise TooLarge(
                f"the table of {', '.join(block.term.attributes)} has {block.term.cells:,} cells "
                f"({8 * block.term.cells / 2**30:,.1f} GiB), the limit is {MEASURED:,}; use fewer "
                "attributes at once or coarser bins"
            )
