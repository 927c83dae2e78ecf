# SPDX-License-Identifier: Apache-2.0
"""A comparison of all mechanisms on one workload, with the known bounds and how errors scale.

``compare_mechanisms`` returns a ``Comparison``: the forecast of every mechanism at one budget,
bounds on the error of all answers at once, curves over epsilon, records and queries, and where the
best mechanism changes. ``compare_command`` prints and draws it. It is public
arithmetic only: a function of the spec and of a number of records; no table is opened.

A mechanism's error is its error at one budget times the ratio of privacy losses (1/epsilon for
Laplace noise, 1/mu for Gaussian noise), so one plan per mechanism gives a whole curve.

The bounds hold for all queries at once with probability ``1 - BETA`` (C. Dwork, A. Roth, 2014,
"The algorithmic foundations of differential privacy", Theorem 3.8, for Laplace noise; Gaussian
tails and a union bound; T-H. H. Chan, E. Shi, D. Song, 2011, "Private and continual release of
statistics", for sums; W. Hoeffding, 1963, for randomized response).

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
from math import ceil, exp, inf, log, log10, sqrt
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
    "simulated_noise",
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
        numbers = (None, None) if drawn is None else (drawn.rmse, drawn.standard_error)
        bound = plan.error_bound(BETA)
        entries.append(MechanismErrors(name, _error(plan), plan.largest_error, bound, "", *numbers))
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
        bounds=(*_central_bounds(fixed, budget), _local_bound(spec, response, trouble, rows)),
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
    return simulated_noise(plan, label, by_weight=not plan.workload.has_one_weight)


def _drawn_error(plan: Plan, epsilon: float) -> float | None:
    drawn = _drawn(plan, f"epsilon {epsilon:.6g}")
    return None if drawn is None else drawn.rmse


def simulated_noise(
    plan: Plan, label: str = "", *, by_weight: bool = False
) -> MeasuredError | None:
    """The error of noise drawn for a plan and taken through its reconstruction.

    Public draws that protect nothing, the same on every call; no table is read. What is forecast is
    an expectation, what is drawn here one sample of it. None where it would be too much.

    Args:
        plan: A plan.
        label: Tells draws for one plan apart.
        by_weight: Whether queries weigh as their groups do.

    Returns:
        The error, in counts, with its own standard error, or None.
    """
    from sfumato.refine.draws import Draws
    from sfumato.study.simulated import measure_noise

    queries = plan.workload.queries
    size = queries + sum(plan.strategy.block_rows)
    if size > LIMITS.simulated_size:
        return None
    runs = min(
        LIMITS.simulated_runs_maximum,
        ceil(LIMITS.simulated_answers / queries),
        LIMITS.simulated_numbers // size,
    )
    runs = max(LIMITS.simulated_runs_minimum, runs)
    source = Draws(f"simulated {plan.workload.digest()} {plan.mechanism} {label}")
    return measure_noise(plan.forecast, source, runs, by_weight=by_weight)


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

    ``error`` is that at the budget of the plan, None where it is not known.
    """
    from sfumato.privacy.budget import Budget

    if budget.epsilon is None:
        return ()
    out = []
    for epsilon in _grid(float(budget.epsilon) / 10, float(budget.epsilon) * 10, points):
        other = Budget(epsilon=epsilon, delta=budget.delta)
        for name, plan in plans.items():
            here = error(plan, epsilon)
            if here is not None:
                out.append(Point(name, epsilon, here * _loss_ratio(plan, budget, other)))
    return tuple(out)


def _loss_ratio(plan: Plan, budget: Budget, other: Budget) -> float:
    if plan.strategy.noise == "laplace":
        return float(budget.pure_epsilon / other.pure_epsilon)
    return (budget.gaussian_mu or 0.0) / (other.gaussian_mu or 1.0)


def _over_rows(
    plans: dict[str, Plan], spec: Spec, response: RandomizedResponse | None, rows: int
) -> Iterator[Point]:
    """The bound on the error of all answers, as a share of n records."""
    from sfumato.study.local_model import response_error

    sizes = _grid(max(rows / 100, 10), max(rows * 100, 1000), 21)
    for name, plan in plans.items():
        yield from (Point(name, n, plan.error_bound(BETA) / n) for n in sizes)
    if response is not None:
        k, spread = spec.workload.queries, _spread(spec)
        for n in sizes:
            bound = response_error(response, round(n), k, BETA, spread)
            yield Point(LOCAL, n, bound / round(n))


def _central_bounds(spec: Spec, budget: Budget) -> Iterator[Bound]:
    from sfumato.privacy.gaussian import float_down
    from sfumato.study import error_bounds as bounds

    work, k = spec.workload, spec.workload.queries
    loss_1, loss_2 = float_down(budget.pure_epsilon), budget.gaussian_mu
    steps = _rows_per_unit(spec) * (1 if spec.neighbours == "add-remove" else 2)
    delta_1 = work.sensitivity(1) * steps
    cells = work.domain.cells(_attributes(spec))
    magnitude = max(t.greatest for t in work.terms)
    yield Bound(
        "Laplace on the queries",
        "ln(k/beta) Delta_1 / epsilon",
        bounds.laplace_error(k, 1, loss_1, BETA, delta_1),
        bounds.laplace_rows_needed(k, SHARE, loss_1, BETA, delta_1),
    )
    if loss_2 is not None:
        delta_2 = work.sensitivity(2) * _gaussian_steps(spec)
        yield Bound(
            "Gaussian on the queries",
            "sqrt(2 ln(2k/beta)) Delta_2 / mu",
            bounds.gaussian_error(k, 1, loss_2, BETA, delta_2),
            bounds.gaussian_rows_needed(k, SHARE, loss_2, BETA, delta_2),
        )
    yield Bound(
        "Laplace on the table",
        "max|q| sqrt(8 ln(2k/beta) m) / epsilon, m cells",
        bounds.table_error(k, cells, 1, loss_1 / steps, BETA, magnitude),
        bounds.table_rows_needed(k, cells, SHARE, loss_1 / steps, BETA, magnitude),
    )


def _attributes(spec: Spec) -> tuple[str, ...]:
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
    from sfumato.refine.draws import Draws
    from sfumato.workload.build import explicit

    total = spec.workload.queries
    order = np.argsort(Draws(f"order {spec.workload.digest()}").uniforms(total), kind="stable")
    cells = Domain({"cell": hull.cells})
    for k in sorted({round(x) for x in _grid(1, total, 7)} if total > 1 else {1}):
        yield explicit(cells, ["cell"], hull.matrix[np.sort(order[:k])])


def _some_groups(spec: Spec) -> Iterator[Workload]:
    import numpy as np

    from sfumato.refine.draws import Draws
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
