# SPDX-License-Identifier: Apache-2.0
"""How errors grow with the queries and shrink with the records: theory, and made-up data beside.

Gaussian noise on the queries, the best factorization, either of them projected onto the hull of
possible answers, and private multiplicative weights. The first two are exact forecasts; the others
are bounds that hold for every data set (``refine/widths``: ``projection_forecast.py``,
``widths.py``, ``multiplicative_weights.py``). Points are measured on data drawn from a public
surrogate, never on the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log10
from typing import TYPE_CHECKING, Final

import numpy as np

from sfumato.app.crossings import Crossing, crossings
from sfumato.app.simulation import simulated
from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, SfumatoError
from sfumato.refine.draws import Draws
from sfumato.refine.widths import Hull, ProjectedNoise, projected_noise
from sfumato.solve.effort import STEPS_PER_SECOND
from sfumato.study.projection_forecast import ProjectionForecast, forecast_projection
from sfumato.study.simulated import (
    MadeUp,
    Measured,
    measure_forecast,
    measure_projected,
    measure_projection,
    measure_weights,
)
from sfumato.workload.build import explicit
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    from sfumato.app.spec import Spec
    from sfumato.run.linear import Plan

__all__ = [
    "KINDS",
    "Mark",
    "Scaling",
    "scaling",
]


GAUSSIAN: Final = "gaussian"
FACTORIZATION: Final = "factorization"
PROJECTION: Final = "projection"
BOTH: Final = "factorization, projected"
WEIGHTS: Final = "multiplicative weights"
KINDS: Final = (GAUSSIAN, FACTORIZATION, PROJECTION, BOTH, WEIGHTS)

TRIED = 2**20  # coefficients up to which mechanisms are tried out
RUNS = 3  # of many queries; few queries say less each time and are tried more often
MOST_RUNS = 8
ANSWERS = 100
STEPS = 2 * STEPS_PER_SECOND  # for planning part of the queries
DENSE = 1024  # cells up to which part of the queries is planned
MOST = 10**12


@dataclass(frozen=True, slots=True)
class Mark:
    """An error as a share of the records, at a number of records or of queries."""

    mechanism: str
    at: float
    error: float
    is_measured: bool


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


def scaling(spec: Spec, plans: dict[str, Plan], rows: int | None, share: float) -> Scaling | None:
    """The curves of a spec whose budget allows Gaussian noise; None otherwise."""
    if spec.budget is None or spec.budget.gaussian_mu is None or GAUSSIAN not in plans:
        return None
    try:
        forecast = _forecast(spec, spec.workload, 1 if rows is None else rows)
    except SfumatoError:
        return None
    n = rows if rows is not None else max(1, min(MOST, round(forecast.crossover)))
    hull = Hull.of(spec.workload)
    is_tried = spec.workload.queries * hull.cells <= TRIED
    made_up = MadeUp.of(spec.workload) if is_tried else None
    note = "" if is_tried else "too many queries and cells to try projections on made-up data"
    over_rows = _over_rows(forecast, plans, made_up, n)
    return Scaling(
        records=n,
        noise=forecast.noise,
        projected=forecast.bound_at(n),
        crossover=forecast.crossover,
        weights_crossover=forecast.weights_crossover(),
        rows_needed=forecast.rows_needed(share),
        width=float(forecast.width),
        over_rows=tuple(over_rows),
        over_queries=tuple(_over_queries(spec, hull, n)),
        note=note,
        crossings=crossings(m for m in over_rows if not m.is_measured),
    )


def _forecast(
    spec: Spec, workload: Workload, n: int, draws: int | None = None
) -> ProjectionForecast:
    assert spec.budget is not None  # noqa: S101  seen to by the caller
    return forecast_projection(  # as the plans beside it, which ask every query once
        workload.normal.workload, spec.budget, n, spec.neighbours, unit=spec.unit, draws=draws
    )


def _over_rows(
    forecast: ProjectionForecast, plans: dict[str, Plan], made_up: MadeUp | None, rows: int
) -> list[Mark]:
    sizes = [round(x) for x in _grid(max(rows / 100, 10.0), max(rows * 100.0, 1000.0), 31)]
    both = _both(plans) if made_up is not None else None
    marks = [m for n in sizes for m in _theory(forecast, plans, both, n, n)]
    if made_up is not None:
        marks += [m for n in sizes[::5] for m in _tried(forecast, plans, made_up, n, n)]
    else:
        marks += [m for n in sizes[::5] for m in _drawn(plans, n)]
    return marks


def _drawn(plans: dict[str, Plan], n: int) -> list[Mark]:
    """Unbiased mechanisms by noise alone, where the cells are too many for made-up data."""
    linear = [plans[name] for name in (GAUSSIAN, FACTORIZATION) if name in plans]
    found = [(plan.mechanism, simulated(plan, f"records {n}")) for plan in linear]
    return [Mark(name, n, m.rmse / n, True) for name, m in found if m is not None]


def _both(plans: dict[str, Plan]) -> ProjectedNoise | None:
    return projected_noise(plans[FACTORIZATION]) if FACTORIZATION in plans else None


def _theory(
    forecast: ProjectionForecast,
    plans: dict[str, Plan],
    both: ProjectedNoise | None,
    n: float,
    at: float,
) -> list[Mark]:
    errors: dict[str, float] = {
        name: plans[name].rmse for name in (GAUSSIAN, FACTORIZATION) if name in plans
    }
    errors[PROJECTION] = forecast.bound_at(n)
    if both is not None:
        errors[BOTH] = both.bound_at(n)
    marks = [Mark(name, at, error / n, False) for name, error in errors.items()]
    weights = forecast.weights(n)
    if weights.first_epsilon:
        marks.append(Mark(WEIGHTS, at, weights.error, False))
    return marks


def _tried(
    forecast: ProjectionForecast, plans: dict[str, Plan], made_up: MadeUp, n: int, at: float
) -> list[Mark]:
    runs = min(MOST_RUNS, max(RUNS, ANSWERS // forecast.queries))
    found: dict[str, Measured] = {
        name: measure_forecast(plans[name], made_up, n, runs)
        for name in (GAUSSIAN, FACTORIZATION)
        if name in plans
    }
    found[PROJECTION] = measure_projection(forecast, made_up, n, runs)
    if FACTORIZATION in plans:
        found[BOTH] = measure_projected(plans[FACTORIZATION], made_up, n, runs)
    if forecast.weights(n).first_epsilon:
        found[WEIGHTS] = measure_weights(forecast, made_up, n, runs)
    return [Mark(name, at, m.rmse / n, True) for name, m in found.items()]


def _over_queries(spec: Spec, hull: Hull, n: int) -> list[Mark]:
    """More and more of the queries, in an arbitrary order; of the groups, where they are many."""
    total = spec.workload.queries
    if total * hull.cells > TRIED or hull.cells > DENSE:
        return _over_groups(spec, n)
    order = np.argsort(Draws(f"order {spec.workload.digest()}").uniforms(total), kind="stable")
    cells = Domain({"cell": hull.cells})
    marks = []
    for k in sorted({round(x) for x in _grid(1, total, 7)} if total > 1 else {1}):
        work = explicit(cells, ["cell"], hull.matrix[np.sort(order[:k])])
        marks += _part(spec, work, n, is_tried=True)
    return marks


def _over_groups(spec: Spec, n: int) -> list[Mark]:
    terms = spec.workload.terms
    if len(terms) < 3:
        return []
    order = np.argsort(Draws(f"groups {spec.workload.digest()}").uniforms(len(terms)))
    marks = []
    for count in sorted({round(x) for x in _grid(1, len(terms), 6)}):
        chosen = sorted(order[:count].tolist())
        work = Workload(spec.workload.domain, tuple(terms[i] for i in chosen))
        marks += _part(spec, work, n, is_tried=False)
    return marks


def _part(spec: Spec, work: Workload, n: int, is_tried: bool) -> list[Mark]:
    """The marks of part of the queries, at their number."""
    from sfumato.run.linear import plan

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
                steps=STEPS,
                cache=False,
            )
        except PlanError:
            continue
    forecast = _forecast(spec, work, n, draws=None if is_tried else 0)
    both = _both(plans) if is_tried else None
    marks = _theory(forecast, plans, both, n, work.queries)
    return marks + (_tried(forecast, plans, MadeUp.of(work), n, work.queries) if is_tried else [])


def _grid(low: float, high: float, points: int) -> list[float]:
    step = (log10(high) - log10(low)) / (points - 1)
    return [10 ** (log10(low) + step * i) for i in range(points)]
