# SPDX-License-Identifier: Apache-2.0
"""A comparison of all mechanisms on one workload, with the known bounds and how errors scale.

``compare_mechanisms`` returns a ``Comparison``: the forecast of every mechanism at one budget,
bounds on the error of all answers at once, curves over epsilon, records and queries, and where the
best mechanism changes. ``compare_command`` prints and draws it. It is public
arithmetic only: a function of the spec and of a number of records; no table is opened.

A mechanism's error is its error at one budget times the ratio of privacy losses (1/epsilon for
Laplace noise, 1/mu for Gaussian noise), so one plan per mechanism gives a whole curve.

The bounds hold for all queries at once with probability ``1 - BETA``: one for each mechanism, that
of its plan (``planning/joint_errors.py``), and W. Hoeffding, 1963, for randomized response.

Against the records and the queries there are five ways: Gaussian noise on the queries, the best
factorization, either of them projected onto the hull of possible answers, and private
multiplicative weights. The first two are exact forecasts; the others are bounds that hold for every
data set (``study/widths``). Points are measured on data drawn from a public surrogate, never on
the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, exp, inf, log, log10
from typing import TYPE_CHECKING, Final

from sfumato.cli.cli_limits import LIMITS
from sfumato.errors import PlanError, SfumatoError

if TYPE_CHECKING:
    from sfumato.cli.spec import Spec
    from sfumato.privacy.budget import Budget
    from sfumato.run.advice import Recommendation
    from sfumato.run.linear import Plan
    from sfumato.study.local_model import RandomizedResponse
    from sfumato.study.projection_forecast import ProjectionForecast
    from sfumato.study.simulated import MadeUp, MeasuredError
    from sfumato.study.widths import Hull, ProjectedNoise
    from sfumato.types import Progress
    from sfumato.workload.workload import Workload

__all__ = [
    "BETA",
    "BOTH",
    "PROJECTION",
    "SHARE",
    "WAYS",
    "WEIGHTS",
    "Bound",
    "Comparison",
    "Crossing",
    "Mark",
    "MechanismErrors",
    "Point",
    "Scaling",
    "best_of",
    "compare_mechanisms",
    "crossings",
]

BETA: Final = 0.05
SHARE: Final = 0.01  # "rows needed" is for every answer within 1% of the records

LOCAL: Final = "local model"  # randomized response at the client
GAUSSIAN: Final = "gaussian"
FACTORIZATION: Final = "factorization"
PROJECTION: Final = "projection"
BOTH: Final = "factorization, projected"
WEIGHTS: Final = "multiplicative weights"
WAYS: Final = (GAUSSIAN, FACTORIZATION, PROJECTION, BOTH, WEIGHTS)


@dataclass(frozen=True, slots=True)
class MechanismErrors:
    """One mechanism: its forecast in counts, or why it does not apply.

    ``rmse`` is by the weights of the groups where they differ, as for sums beside counts: what the
    planner makes small. ``largest`` and ``bound`` are of every query in its own unit.
    ``simulated`` is the error of draws of its noise that were reconstructed, ``simulated_error``
    its standard error; None where that would be too many numbers. ``rows_needed`` is the number of
    records of which the bound is ``SHARE``, ``proof`` what proves the bound.
    """

    mechanism: str
    rmse: float | None
    largest: float | None
    bound: float | None
    note: str
    simulated: float | None = None
    simulated_error: float | None = None
    rows_needed: int | None = None
    proof: str = ""


@dataclass(frozen=True, slots=True)
class Bound:
    """What needs no plan: the local model, in counts of ``rows`` records, and rows needed."""

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
class Mark(Point):
    """An error as a share of the records, at a number of records or of queries."""

    is_measured: bool


@dataclass(frozen=True, slots=True)
class Crossing:
    """From ``at`` on, ``after`` errs less than ``before``, which was the best up to there."""

    at: float
    error: float
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Scaling:
    """Errors against records and against queries; ``note`` says what is left out, and why.

    ``crossings`` are the numbers of records from which another line of theory is the least.
    """

    records: int
    noise: float
    projected: float
    crossover: float
    weights_crossover: float | None
    rows_needed: int
    width: float
    over_rows: tuple[Mark, ...]
    over_queries: tuple[Mark, ...]
    note: str
    crossings: tuple[Crossing, ...] = ()


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
    entries: tuple[MechanismErrors, ...]
    bounds: tuple[Bound, ...]
    over_epsilon: tuple[Point, ...]
    over_rows: tuple[Point, ...]
    scaling: Scaling | None
    simulated_over_epsilon: tuple[Point, ...]
    crossings: tuple[Crossing, ...]
    tried: Recommendation | None
    has_one_unit: bool

    @property
    def question(self) -> str:
        """What is compared, in one line."""
        rest = f", {self.rows:,} records" if self.rows is not None else ""
        return f"{self.queries:,} queries, {self.budget.describe()}{rest}"


# Every mechanism at one budget, and along epsilon and the records.


def compare_mechanisms(
    spec: Spec, rows: int | None, progress: Progress | None = None
) -> Comparison:
    """Plan a spec with every mechanism, one after the other.

    Privacy: a function of the spec and of the given number of rows; the table is not opened.
    """
    from sfumato.planning.mechanisms import MECHANISMS

    def step(done: int, label: str) -> None:
        if progress is not None:
            progress(done, len(MECHANISMS), label)

    budget = spec.plan().budget if spec.budget is None else spec.budget
    fixed = replace(spec, budget=budget, error=None, adaptive=None, rounds=None)
    plans: dict[str, Plan] = {}
    entries = []
    for i, name in enumerate(MECHANISMS):
        step(i, name)
        try:
            plan = plans[name] = replace(fixed, mechanism=name).plan()
        except PlanError as error:
            reason = str(error).rpartition("budget: ")[2].removesuffix(f" ({name})")
            entries.append(MechanismErrors(name, None, None, None, reason))
            continue
        drawn = _drawn(plan)
        bound = plan.all_within(BETA)
        entries.append(
            MechanismErrors(
                name,
                _error(plan),
                plan.largest_error,
                bound.counts,
                "",
                simulated=None if drawn is None else drawn.rmse,
                simulated_error=None if drawn is None else drawn.standard_error,
                rows_needed=ceil(bound.counts / SHARE),
                proof=bound.proof,
            )
        )
    if not plans:
        raise PlanError("no mechanism fits this workload and budget; sfumato plan says why")
    response, trouble = _response(fixed, budget)
    over_epsilon = _over_epsilon(plans, budget)
    first = sorted(plans, key=lambda name: _error(plans[name]))[: LIMITS.simulated_mechanisms]
    step(len(MECHANISMS), "projection")
    scaling = _scaling(fixed, plans, rows)
    if rows is not None:
        step(len(MECHANISMS), "made-up records")
    return Comparison(
        queries=spec.workload.queries,
        budget=budget,
        rows=rows,
        least=_lower_bound(plans),
        entries=tuple(entries),
        bounds=(_local_bound(spec, response, trouble, rows),),
        over_epsilon=over_epsilon,
        over_rows=() if rows is None else tuple(_over_rows(plans, spec, response, rows)),
        scaling=scaling,
        simulated_over_epsilon=_over_epsilon(
            {name: plans[name] for name in first}, budget, _drawn_error, 5
        ),
        crossings=crossings(over_epsilon),
        tried=None if rows is None else _tried(fixed, budget, plans, rows),
        has_one_unit=spec.workload.has_one_weight,
    )


def _tried(spec: Spec, budget: Budget, plans: dict[str, Plan], rows: int) -> Recommendation | None:
    """Projection, shrinkage, a bias and adaptive rounds, on as many made-up records as given."""
    from sfumato.run.advice import recommend

    best = min(plans.values(), key=_error)
    try:
        return recommend(
            spec.workload,
            budget,
            rows,
            spec.neighbours,
            unit=spec.unit,
            runs=LIMITS.trial_runs,
            planned=best,
        )
    except SfumatoError:
        return None


def _error(plan: Plan, _: float = 0.0) -> float:
    return plan.rmse if plan.workload.has_one_weight else plan.weighted_rmse


def _drawn(plan: Plan, label: str = "") -> MeasuredError | None:
    from sfumato.study.simulated import simulated_noise

    return simulated_noise(plan, label, by_weight=not plan.workload.has_one_weight)


def _drawn_error(plan: Plan, epsilon: float) -> float | None:
    drawn = _drawn(plan, f"epsilon {epsilon:.6g}")
    return None if drawn is None else drawn.rmse


def _lower_bound(plans: dict[str, Plan]) -> float | None:
    """The maximum of the certified lower bounds on errors with Gaussian noise, if any is known."""
    certified = [p for p in plans.values() if p.strategy.noise == "gaussian" and p.certificate]
    of_rmse = [_error(p) / (p.certificate or 1.0) for p in certified if p.objective == "rmse"]
    return max(of_rmse, default=None)


def _grid(low: float, high: float, points: int) -> list[float]:
    """Evenly spaced on a logarithmic scale."""
    step = (log10(high) - log10(low)) / (points - 1)
    return [10 ** (log10(low) + step * i) for i in range(points)]


def _over_epsilon(
    plans: dict[str, Plan],
    budget: Budget,
    error: Callable[[Plan, float], float | None] = _error,
    points: int = 21,
) -> tuple[Point, ...]:
    """The error of every mechanism at other epsilons, the delta staying the same.

    ``error`` is that at the budget of a plan, None where it is not known. It changes by the ratio
    of the privacy losses, that of Laplace noise as its law on the grid does.
    """
    from sfumato.privacy.budget import Budget

    if budget.epsilon is None:
        return ()
    out = []
    for epsilon in _grid(float(budget.epsilon) / 10, float(budget.epsilon) * 10, points):
        other = Budget(epsilon=epsilon, delta=budget.delta)
        for name, plan in plans.items():
            here, ratio = error(plan, epsilon), _error_ratio(plan, other)
            if here is not None and ratio is not None:
                out.append(Point(name, epsilon, here * ratio))
    return tuple(out)


def _error_ratio(plan: Plan, other: Budget) -> float | None:
    """The error of a plan's strategy at another budget over that of the plan."""
    if plan.strategy.noise == "gaussian":
        return (plan.budget.gaussian_mu or 0.0) / (other.gaussian_mu or 1.0)
    there = plan.forecast.at(other)
    if there is None:
        return None
    if plan.workload.has_one_weight:
        return there.rmse / plan.rmse
    return there.weighted_rmse / plan.weighted_rmse


def _over_rows(
    plans: dict[str, Plan], spec: Spec, response: RandomizedResponse | None, rows: int
) -> Iterator[Point]:
    """The bound on the error of all answers, as a share of n records."""
    from sfumato.study.local_model import response_error

    sizes = _grid(max(rows / 100, 10), max(rows * 100, 1000), 21)
    for name, plan in plans.items():
        bound = plan.error_bound(BETA)
        yield from (Point(name, n, bound / n) for n in sizes)
    if response is not None:
        k, spread = spec.workload.queries, _spread(spec)
        for n in sizes:
            error = response_error(response, round(n), k, BETA, spread)
            yield Point(LOCAL, n, error / round(n))


def _attributes(spec: Spec) -> tuple[str, ...]:
    """All attributes that some query looks at."""
    return spec.domain.in_order(n for t in spec.workload.terms for n in t.attributes)


def _rows_per_unit(spec: Spec) -> int:
    return 1 if spec.unit is None else spec.unit.rows


def _response(spec: Spec, budget: Budget) -> tuple[RandomizedResponse | None, str]:
    """The response over the joint cells of all attributes of the queries, or why there is none."""
    from sfumato.study.local_model import joint_response

    names = _attributes(spec)
    sizes = [spec.domain[name].size for name in names]
    try:
        return joint_response(sizes, budget.pure_epsilon / _rows_per_unit(spec)), ""
    except SfumatoError:
        return None, f"{spec.domain.cells(names):,} joint cells are too many for one report"


def _spread(spec: Spec) -> float:
    """The greatest ``max(q) - min(q)`` of any query."""
    pairs = [t.coefficient_bounds() for t in spec.workload.terms]
    return max(float((high - low).max()) for low, high in pairs)


def _local_bound(
    spec: Spec, response: RandomizedResponse | None, trouble: str, rows: int | None
) -> Bound:
    from sfumato.study.local_model import response_error, response_rows_needed

    formula = "sqrt(n ln(2k/beta)/2) / (p - q), n records"
    if response is None:
        return Bound(LOCAL, formula, None, None, trouble)
    k, spread = spec.workload.queries, _spread(spec)
    return Bound(
        LOCAL,
        formula,
        None if rows is None else response_error(response, rows, k, BETA, spread),
        response_rows_needed(response, SHARE, BETA, k, spread),
        "" if rows is not None else "grows with the records; give --rows",
    )


# How errors grow with the queries and shrink with the records.


def _scaling(spec: Spec, plans: dict[str, Plan], rows: int | None) -> Scaling | None:
    """The curves of a spec whose budget allows Gaussian noise; None otherwise."""
    from sfumato.study.simulated import MadeUp
    from sfumato.study.widths import Hull

    if spec.budget is None or spec.budget.gaussian_mu is None or GAUSSIAN not in plans:
        return None
    try:
        forecast = _forecast(spec, spec.workload, 1 if rows is None else rows)
    except SfumatoError:
        return None
    n = rows if rows is not None else max(1, min(LIMITS.records_shown, round(forecast.crossover)))
    hull = Hull.of(spec.workload)
    is_tried = spec.workload.queries * hull.cells <= LIMITS.measured_coefficients
    ways = _Ways.of(forecast, plans, MadeUp.of(spec.workload) if is_tried else None)
    sizes = [round(x) for x in _grid(max(n / 100, 10.0), max(n * 100.0, 1000.0), 31)]
    theory = [mark for size in sizes for mark in ways.theory(size, size)]
    measured = [mark for size in sizes[::5] for mark in ways.measured(size, size)]
    return Scaling(
        records=n,
        noise=forecast.noise,
        projected=forecast.bound_at(n),
        crossover=forecast.crossover,
        weights_crossover=forecast.weights_crossover(),
        rows_needed=forecast.rows_needed(SHARE),
        width=float(forecast.width),
        over_rows=(*theory, *measured),
        over_queries=tuple(_over_queries(spec, hull, n)),
        note="" if is_tried else "too many queries and cells to try projections on made-up data",
        crossings=crossings(theory),
    )


def _forecast(
    spec: Spec, workload: Workload, n: int, draws: int | None = None
) -> ProjectionForecast:
    from sfumato.study.projection_forecast import forecast_projection

    assert spec.budget is not None  # noqa: S101  seen to by the caller
    return forecast_projection(  # as the plans beside it, which ask every query once
        workload.normal.workload, spec.budget, n, spec.neighbours, unit=spec.unit, draws=draws
    )


@dataclass(frozen=True, slots=True)
class _Ways:
    """The ways to answer one workload: what theory says of their errors, and what data show.

    ``made_up`` is None where the cells are too many for made-up data.
    """

    forecast: ProjectionForecast
    plans: dict[str, Plan]
    made_up: MadeUp | None
    both: ProjectedNoise | None

    @classmethod
    def of(
        cls, forecast: ProjectionForecast, plans: dict[str, Plan], made_up: MadeUp | None
    ) -> _Ways:
        """Gaussian noise and the factorization, where there are plans of them, and the rest."""
        from sfumato.study.widths import projected_noise

        linear: dict[str, Plan] = {n: plans[n] for n in WAYS[:2] if n in plans}
        has_both = made_up is not None and FACTORIZATION in plans
        both = projected_noise(plans[FACTORIZATION].forecast) if has_both else None
        return cls(forecast, linear, made_up, both)

    def theory(self, n: float, at: float) -> Iterator[Mark]:
        """Forecasts and bounds for n records, marked at ``at``."""
        errors = {name: plan.rmse for name, plan in self.plans.items()}
        errors[PROJECTION] = self.forecast.bound_at(n)
        if self.both is not None:
            errors[BOTH] = self.both.bound_at(n)
        yield from (Mark(name, at, error / n, False) for name, error in errors.items())
        weights = self.forecast.weights(n)
        if weights.first_epsilon:
            yield Mark(WEIGHTS, at, weights.error, False)

    def measured(self, n: int, at: float) -> Iterator[Mark]:
        """Errors on n made-up records; of drawn noise alone where there are none."""
        for name, error in self._errors(n).items():
            if error is not None:
                yield Mark(name, at, error.rmse / n, True)

    def _errors(self, n: int) -> dict[str, MeasuredError | None]:
        from sfumato.study.simulated import (
            measure_forecast,
            measure_projected,
            measure_projection,
            measure_weights,
            simulated_noise,
        )

        made_up, plans = self.made_up, self.plans
        if made_up is None:
            return {name: simulated_noise(plan, f"records {n}") for name, plan in plans.items()}
        runs = max(LIMITS.measured_runs_minimum, LIMITS.measured_answers // self.forecast.queries)
        runs = min(LIMITS.measured_runs_maximum, runs)
        out: dict[str, MeasuredError | None] = {
            name: measure_forecast(plan.forecast, made_up, n, runs) for name, plan in plans.items()
        }
        out[PROJECTION] = measure_projection(self.forecast, made_up, n, runs)
        if FACTORIZATION in plans:
            out[BOTH] = measure_projected(plans[FACTORIZATION].forecast, made_up, n, runs)
        if self.forecast.weights(n).first_epsilon:
            out[WEIGHTS] = measure_weights(self.forecast, made_up, n, runs)
        return out


def _over_queries(spec: Spec, hull: Hull, n: int) -> Iterator[Mark]:
    """More and more of the queries, in an arbitrary order; of the groups, where they are many."""
    from sfumato.study.simulated import MadeUp

    is_tried = (
        spec.workload.queries * hull.cells <= LIMITS.measured_coefficients
        and hull.cells <= LIMITS.part_cells
    )
    for work in _some_queries(spec, hull) if is_tried else _some_groups(spec):
        forecast = _forecast(spec, work, n, draws=None if is_tried else 0)
        made_up = MadeUp.of(work) if is_tried else None
        ways = _Ways.of(forecast, _plans_of_part(spec, work), made_up)
        yield from ways.theory(n, work.queries)
        if is_tried:
            yield from ways.measured(n, work.queries)


def _some_queries(spec: Spec, hull: Hull) -> Iterator[Workload]:
    import numpy as np

    from sfumato.domain.domain import Domain
    from sfumato.random import Draws
    from sfumato.workload.build import explicit

    total = spec.workload.queries
    order = np.argsort(Draws(f"order {spec.workload.digest()}").uniforms(total), kind="stable")
    cells = Domain({"cell": hull.cells})
    for k in sorted({round(x) for x in _grid(1, total, 7)} if total > 1 else {1}):
        yield explicit(cells, ["cell"], hull.matrix[np.sort(order[:k])])


def _some_groups(spec: Spec) -> Iterator[Workload]:
    import numpy as np

    from sfumato.random import Draws
    from sfumato.workload.workload import Workload

    terms = spec.workload.terms
    if len(terms) < 3:
        return
    order = np.argsort(Draws(f"groups {spec.workload.digest()}").uniforms(len(terms)))
    for count in sorted({round(x) for x in _grid(1, len(terms), 6)}):
        chosen = sorted(order[:count].tolist())
        yield Workload(spec.workload.domain, tuple(terms[i] for i in chosen))


def _plans_of_part(spec: Spec, work: Workload) -> dict[str, Plan]:
    """Gaussian noise and the factorization for part of the queries, where they fit."""
    from sfumato.run.linear import plan
    from sfumato.solve.effort import STEPS_PER_SECOND

    plans: dict[str, Plan] = {}
    for name in (GAUSSIAN, FACTORIZATION):
        try:
            plans[name] = plan(
                work,
                spec.budget,
                spec.neighbours,
                mechanism=name,
                unit=spec.unit,
                may_drop_records=spec.is_query,
                steps=LIMITS.part_seconds * STEPS_PER_SECOND,
                cache=False,
            )
        except PlanError:
            continue
    return plans


# Where the best mechanism changes: the corners of the lower envelope of curves, which are known at
# points and straight between them on logarithmic axes, as errors nearly are.


def crossings(points: Iterable[Point]) -> tuple[Crossing, ...]:
    """All changes of the best curve, from left to right."""
    curves: dict[str, dict[float, float]] = {}
    for p in points:
        if p.error > 0:
            curves.setdefault(p.mechanism, {})[p.at] = p.error
    places = sorted({x for curve in curves.values() for x in curve})
    out: list[Crossing] = []
    best = best_of(curves, places[0]) if places else ""
    for left, right in pairwise(places):
        here = {n: (c[left], c[right]) for n, c in curves.items() if left in c and right in c}
        at = 0.0
        while best in here:
            meets = {
                name: max(_meeting(here[best], ends), at)
                for name, ends in here.items()
                if ends[1] < here[best][1] * (1 - LIMITS.equal_curves)
            }
            if not meets:
                break
            after = min(meets, key=lambda name: (meets[name], here[name][1]))
            at = meets[after]
            error = exp((1 - at) * log(here[after][0]) + at * log(here[after][1]))
            out.append(Crossing(left * (right / left) ** at, error, best, after))
            best = after
    return tuple(out)


def best_of(curves: dict[str, dict[float, float]], at: float) -> str:
    """The name of the curve with the minimum error at one of its points."""
    return min(curves, key=lambda name: curves[name].get(at, inf))


def _meeting(one: tuple[float, float], other: tuple[float, float]) -> float:
    """The share of the way from which ``other``, which ends lower, is lower, on logarithms."""
    start = log(one[0] / other[0])
    return 0.0 if start >= 0 else -start / (log(one[1] / other[1]) - start)
