# SPDX-License-Identifier: Apache-2.0
"""Every mechanism on one workload: forecasts, the bounds of the notes, and how they scale.

Public arithmetic only. A mechanism's error is its error at one budget times the ratio of privacy
losses (1/epsilon for Laplace noise, 1/mu for Gaussian noise), so one plan per mechanism gives a
whole curve.

The bounds hold for all queries at once with probability ``1 - BETA`` (C. Dwork, A. Roth, 2014,
"The algorithmic foundations of differential privacy", Theorem 3.8, for Laplace noise; Gaussian
tails and a union bound; T-H. H. Chan, E. Shi, D. Song, 2011, "Private and continual release of
statistics", for sums; W. Hoeffding, 1963, for randomized response).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log10, sqrt
from typing import TYPE_CHECKING, Final

from sfumato.app.crossings import Crossing, crossings
from sfumato.app.simulation import simulated
from sfumato.errors import PlanError, SfumatoError
from sfumato.planning import bounds
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.privacy.budget import Budget
from sfumato.privacy.gaussian import float_down

if TYPE_CHECKING:
    from sfumato.app.scaling import Scaling
    from sfumato.app.spec import Spec
    from sfumato.run.advice import Recommendation
    from sfumato.run.linear import Plan
    from sfumato.run.spine import Progress
    from sfumato.study.local_model import RandomizedResponse
    from sfumato.study.simulated import Measured

__all__ = [
    "BETA",
    "SHARE",
    "Bound",
    "Comparison",
    "Entry",
    "Point",
    "compare",
]


BETA: Final = 0.05
TRIED_RUNS: Final = 4  # on made-up records
DRAWN_MECHANISMS: Final = 6  # whose errors are drawn along epsilon
SHARE: Final = 0.01  # "rows needed" is for every answer within 1% of the records

LOCAL: Final = "local model"  # randomized response at the client


@dataclass(frozen=True, slots=True)
class Entry:
    """One mechanism: its forecast in counts, or why it does not apply.

    ``rmse`` is by the weights of the groups where they differ, as for sums beside counts: what the
    planner makes small. ``largest`` and ``bound`` are of every query in its own unit.
    ``simulated`` is the error of draws of its noise that were reconstructed, ``simulated_error``
    its standard error; None where that would be too many numbers.
    """

    mechanism: str
    rmse: float | None
    largest: float | None
    bound: float | None
    note: str
    simulated: float | None = None
    simulated_error: float | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of the notes: in counts (of ``rows`` records in the local model), and rows needed."""

    name: str
    formula: str
    counts: float | None
    rows_needed: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve of the charts."""

    mechanism: str
    at: float
    error: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Forecasts and bounds of a workload, and the curves of the charts.

    ``least`` is a lower bound on the error of every mechanism with Gaussian noise, where known;
    ``crossings`` are changes of the best mechanism along epsilon; ``tried`` are ways whose error
    depends on the records, on made-up ones, where a number of records was given;
    ``has_one_unit`` where all is in counts, and not sums beside them.
    """

    queries: int
    budget: Budget
    rows: int | None
    least: float | None
    entries: tuple[Entry, ...]
    bounds: tuple[Bound, ...]
    over_epsilon: tuple[Point, ...]
    over_rows: tuple[Point, ...]
    scaling: Scaling | None = None
    simulated_over_epsilon: tuple[Point, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    tried: Recommendation | None = None
    has_one_unit: bool = True


def compare(spec: Spec, rows: int | None, progress: Progress | None = None) -> Comparison:
    """Plan a spec with every mechanism, one after the other."""
    budget = spec.plan().budget if spec.budget is None else spec.budget
    fixed = replace(spec, budget=budget, error=None, adaptive=None, rounds=None)
    plans: dict[str, Plan] = {}
    entries = []
    for i, name in enumerate(MECHANISMS):
        if progress is not None:
            progress(i, len(MECHANISMS), name)
        try:
            found = replace(fixed, mechanism=name).plan()
        except PlanError as error:
            reason = str(error).rpartition("budget: ")[2].removesuffix(f" ({name})")
            entries.append(Entry(name, None, None, None, reason))
            continue
        plans[name] = found
        drawn = _drawn(found)
        entries.append(
            Entry(
                name,
                _error(found),
                found.largest_error,
                found.error_bound(BETA),
                "",
                None if drawn is None else drawn.rmse,
                None if drawn is None else drawn.standard_error,
            )
        )
    if not plans:
        raise PlanError("no mechanism fits this workload and budget; sfumato plan says why")
    response, trouble = _response(fixed, budget)
    over_epsilon = tuple(_over_epsilon(plans, budget))
    return Comparison(
        queries=spec.workload.queries,
        budget=budget,
        rows=rows,
        least=_least(plans),
        entries=tuple(entries),
        bounds=(*_central_bounds(fixed, budget), _local_bound(spec, response, trouble, rows)),
        over_epsilon=over_epsilon,
        over_rows=() if rows is None else tuple(_over_rows(plans, spec, response, rows)),
        scaling=_scaling(fixed, plans, rows, progress),
        simulated_over_epsilon=tuple(_drawn_over_epsilon(plans, budget)),
        crossings=crossings(over_epsilon),
        tried=_tried(fixed, plans, rows, progress),
        has_one_unit=spec.workload.has_one_weight,
    )


def _scaling(
    spec: Spec, plans: dict[str, Plan], rows: int | None, progress: Progress | None
) -> Scaling | None:
    from sfumato.app.scaling import scaling

    if progress is not None:
        progress(len(MECHANISMS), len(MECHANISMS), "projection")
    return scaling(spec, plans, rows, SHARE)


def _tried(
    spec: Spec, plans: dict[str, Plan], rows: int | None, progress: Progress | None
) -> Recommendation | None:
    """Projection, shrinkage, a bias and adaptive rounds, on as many made-up records as given."""
    from sfumato.run.advice import recommend

    if rows is None or spec.budget is None:
        return None
    if progress is not None:
        progress(len(MECHANISMS), len(MECHANISMS), "made-up records")
    best = min(plans.values(), key=_error)
    try:
        return recommend(
            spec.workload,
            spec.budget,
            rows,
            spec.neighbours,
            unit=spec.unit,
            runs=TRIED_RUNS,
            planned=best,
        )
    except SfumatoError:
        return None


def _error(plan: Plan) -> float:
    return plan.rmse if plan.workload.has_one_weight else plan.weighted_rmse


def _drawn(plan: Plan, label: str = "") -> Measured | None:
    return simulated(plan, label, by_weight=not plan.workload.has_one_weight)


def _least(plans: dict[str, Plan]) -> float | None:
    """The greatest certified lower bound."""
    certified = [p for p in plans.values() if p.strategy.noise == "gaussian" and p.certificate]
    of_rmse = [_error(p) / (p.certificate or 1.0) for p in certified if p.objective == "rmse"]
    return max(of_rmse, default=None)


def _central_bounds(spec: Spec, budget: Budget) -> list[Bound]:
    work, k = spec.workload, spec.workload.queries
    loss_1, loss_2 = float_down(budget.pure_epsilon), budget.gaussian_mu
    steps = _rows_per_unit(spec) * (1 if spec.neighbours == "add-remove" else 2)
    delta_1 = work.sensitivity(1) * steps
    cells = work.domain.cells(_asked(spec))
    greatest = max(t.greatest for t in work.terms)
    out = [
        Bound(
            "Laplace on the queries",
            "ln(k/beta) Delta_1 / epsilon",
            bounds.laplace_error(k, 1, loss_1, BETA, delta_1),
            bounds.laplace_rows_needed(k, SHARE, loss_1, BETA, delta_1),
        )
    ]
    if loss_2 is not None:
        delta_2 = work.sensitivity(2) * _gaussian_steps(spec)
        out.append(
            Bound(
                "Gaussian on the queries",
                "sqrt(2 ln(2k/beta)) Delta_2 / mu",
                bounds.gaussian_error(k, 1, loss_2, BETA, delta_2),
                bounds.gaussian_rows_needed(k, SHARE, loss_2, BETA, delta_2),
            )
        )
    out.append(
        Bound(
            "Laplace on the table",
            "max|q| sqrt(8 ln(2k/beta) m) / epsilon, m cells",
            bounds.table_error(k, cells, 1, loss_1 / steps, BETA, greatest),
            bounds.table_rows_needed(k, cells, SHARE, loss_1 / steps, BETA, greatest),
        )
    )
    return out


def _asked(spec: Spec) -> tuple[str, ...]:
    """All attributes that some query looks at."""
    return spec.domain.in_order(n for t in spec.workload.terms for n in t.attributes)


def _rows_per_unit(spec: Spec) -> int:
    return 1 if spec.unit is None else spec.unit.rows


def _gaussian_steps(spec: Spec) -> float:
    """How far neighbours move a column in L2: once, or the distance of two columns."""
    if spec.neighbours == "add-remove":
        return float(_rows_per_unit(spec))
    is_nonnegative = all(t.is_nonnegative for t in spec.workload.terms)
    return _rows_per_unit(spec) * (sqrt(2) if is_nonnegative else 2)


def _response(spec: Spec, budget: Budget) -> tuple[RandomizedResponse | None, str]:
    """The response over the joint cells of all asked attributes, or why there is none."""
    from sfumato.study.local_model import joint_response

    sizes = [spec.domain[name].size for name in _asked(spec)]
    try:
        return joint_response(sizes, budget.pure_epsilon / _rows_per_unit(spec)), ""
    except SfumatoError:
        return None, f"{spec.domain.cells(_asked(spec)):,} joint cells are too many for one report"


def _spread(spec: Spec) -> float:
    """The greatest ``max(q) - min(q)`` of any query."""
    pairs = [t.coefficient_bounds() for t in spec.workload.terms]
    return max(float((high - low).max()) for low, high in pairs)


def _local_bound(
    spec: Spec, response: RandomizedResponse | None, trouble: str, rows: int | None
) -> Bound:
    from sfumato.study.local_model import error_bound, rows_needed

    formula = "sqrt(n ln(2k/beta)/2) / (p - q), n records"
    if response is None:
        return Bound(LOCAL, formula, None, None, trouble)
    k, spread = spec.workload.queries, _spread(spec)
    return Bound(
        LOCAL,
        formula,
        None if rows is None else error_bound(response, rows, k, BETA, spread),
        rows_needed(response, SHARE, BETA, k, spread),
        "" if rows is not None else "grows with the records; give --rows",
    )


def _grid(low: float, high: float, points: int) -> list[float]:
    """Evenly spaced on a logarithmic scale."""
    step = (log10(high) - log10(low)) / (points - 1)
    return [10 ** (log10(low) + step * i) for i in range(points)]


def _over_epsilon(plans: dict[str, Plan], budget: Budget) -> list[Point]:
    """The rmse of every mechanism at other epsilons, the delta staying the same."""
    if budget.epsilon is None:
        return []
    points = []
    for epsilon in _grid(float(budget.epsilon) / 10, float(budget.epsilon) * 10, 21):
        other = Budget(epsilon=epsilon, delta=budget.delta)
        for name, plan in plans.items():
            points.append(Point(name, epsilon, _error(plan) * _loss_ratio(plan, budget, other)))
    return points


def _drawn_over_epsilon(plans: dict[str, Plan], budget: Budget) -> list[Point]:
    """Drawn errors at a few epsilons, of the mechanisms that forecasts put first."""
    if budget.epsilon is None:
        return []
    first = sorted(plans, key=lambda name: _error(plans[name]))[:DRAWN_MECHANISMS]
    points = []
    for epsilon in _grid(float(budget.epsilon) / 10, float(budget.epsilon) * 10, 5):
        other = Budget(epsilon=epsilon, delta=budget.delta)
        for name in first:
            drawn = _drawn(plans[name], f"epsilon {epsilon:.6g}")
            if drawn is not None:
                error = drawn.rmse * _loss_ratio(plans[name], budget, other)
                points.append(Point(name, epsilon, error))
    return points


def _loss_ratio(plan: Plan, budget: Budget, other: Budget) -> float:
    if plan.strategy.noise == "laplace":
        return float(budget.pure_epsilon / other.pure_epsilon)
    return (budget.gaussian_mu or 0.0) / (other.gaussian_mu or 1.0)


def _over_rows(
    plans: dict[str, Plan], spec: Spec, response: RandomizedResponse | None, rows: int
) -> list[Point]:
    """The bound on the error of all answers, as a share of n records."""
    from sfumato.study.local_model import error_bound

    sizes: Sequence[float] = _grid(max(rows / 100, 10), max(rows * 100, 1000), 21)
    points = [
        Point(name, n, plan.error_bound(BETA) / n) for name, plan in plans.items() for n in sizes
    ]
    if response is not None:
        k, spread = spec.workload.queries, _spread(spec)
        for n in sizes:
            bound = error_bound(response, round(n), k, BETA, spread)
            points.append(Point(LOCAL, n, bound / round(n)))
    return points
