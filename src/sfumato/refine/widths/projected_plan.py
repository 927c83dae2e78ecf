# SPDX-License-Identifier: Apache-2.0
"""The error of a planned release after projection, before anything is spent.

Let ``y = a + Z`` be the unbiased answers to n records, p the nearest answers that data can have, r
their distance from the truth and h the reach ``max(0, h_K(Z))`` of the hull along the noise, all in
the norm of the objective. As in ``projected_noise.py``, ``r^2 <= <p - a, Z>``.

* n public: ``E r^2 <= n E h_K(Z)``, and no two answers of n records are farther apart than the
  ranges of the queries let them be.
* n private: p lies in the cone of all data and has a total N. Let q have ``<q, f_x> = 1`` for the
  column of every cell: ``N - n = <q, p - a> <= |q| r``. So ``r^2 <= N h - <a, Z> <= |q| h r + n h -
  <a, Z>``, and, as in ``projected_forecast.py``,

      E r^2 <= ((sqrt(A) + sqrt(A + 4 B)) / 2)^2,     A = |q|^2 E h^2,     B = n E h.

Both at most ``E |Z|^2``, the error without projection (Nikolov, Talwar, Zhang 2013, "The geometry
of differential privacy: the sparse and approximate cases"). The means are of draws: each bound has
the end of Student's interval. Beside it stands what the release itself does on made-up data.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, sqrt

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.plan.effort import ADDED_UP, STEPS_PER_SECOND, effort, must_stop
from sfumato.plan.forecast import Forecast
from sfumato.refine.cells.grid import Grid
from sfumato.refine.cells.quadratic import Quadratic
from sfumato.refine.draws import Draws
from sfumato.refine.refined import LISTED, has_wide, objective_fit, refined_listed
from sfumato.refine.widths.geometry import Hull
from sfumato.refine.widths.projected_noise import drawn_noise
from sfumato.refine.widths.width import student
from sfumato.workload.queries import DENSE_LIMIT, Array
from sfumato.workload.workload import Workload

__all__ = ["AfterProjection", "after_projection"]

MOST_RECORDS = 10**15
MOST_QUERIES = 2**22
DRAWS = 32
LEAST_DRAWS = 8
LEVEL = 0.95
RUNS = 4
DRAWN = 10**5  # made-up records; more are as many times heavier
STEPS = 6 * STEPS_PER_SECOND  # multiplications
SPLITS = 500  # times that tables which no order of elimination keeps small are added up


@dataclass(frozen=True, slots=True)
class AfterProjection:
    """Root mean square errors in counts, every query weighing as in the objective.

    ``without`` is the error of the unbiased answers, ``bound`` no less than that of their
    projection for any ``records`` records, ``estimate`` that of ``runs`` releases of made-up
    records. ``note`` says why there is no estimate.
    """

    records: int
    without: float
    bound: float
    estimate: float | None
    runs: int
    note: str = ""

    def describe(self) -> str:
        """In words."""
        least = f"at most {self.bound:,.4g} for any {self.records:,} records"
        if not self.bound < self.without:
            least += ", as without projection"
        if self.estimate is None:
            return f"{least}; {self.note}"
        return f"about {self.estimate:,.4g} counts for made-up records, {least}"

    def as_json(self) -> dict[str, object]:
        """The same as a document."""
        return {
            "records": self.records,
            "without": self.without,
            "bound": self.bound,
            "estimate": self.estimate,
            "runs": self.runs,
            "note": self.note,
        }


def after_projection(forecast: Forecast, records: int, steps: float = STEPS) -> AfterProjection:
    """The forecast for a public (or guessed) number of records, in about so many multiplications.

    Privacy: a function of public inputs; a guess of the number of records, not a count, is asked.
    """
    if isinstance(records, bool) or not isinstance(records, int | np.integer):
        raise PlanError(f"records must be a whole number of 1 or more, got {records!r}")
    if not 1 <= records <= MOST_RECORDS:
        raise PlanError(f"records must be from 1 to {MOST_RECORDS:,}, got {records!r}")
    n, work = int(records), forecast.workload
    if forecast.strategy.records is not None:
        return AfterProjection(
            n, forecast.rmse, forecast.rmse, None, 0, "answers with a bias are not tried out"
        )
    totals, _ = forecast.strategy.group_variances(forecast.block_variances)
    squares = [t.weight**2 for t in work.terms]
    heavy = sum(s * t.rows for s, t in zip(squares, work.terms, strict=True))
    without = sqrt(sum(s * v for s, v in zip(squares, totals, strict=True)) / heavy)
    if work.queries > MOST_QUERIES:
        note = f"{work.queries:,} queries are too many to try out (the limit is {MOST_QUERIES:,})"
        return AfterProjection(n, without, without, None, 0, note)
    farthest = _farthest(work, n) if forecast.total_is_public else inf
    bound = min(without, sqrt(min(farthest, _bound(forecast, n, steps / 2)) / heavy))
    share, runs, note = _tried(forecast, n, steps / 2)
    estimate = None if share is None else min(bound, without * sqrt(share))
    return AfterProjection(n, without, bound, estimate, runs, note)


def _weights(workload: Workload) -> Array:
    return np.concatenate([np.full(t.rows, t.weight**2) for t in workload.terms])


def _farthest(workload: Workload, n: int) -> float:
    """No two answers of n records have a greater squared distance."""
    ranges = [(t.weight, *t.coefficient_bounds()) for t in workload.terms]
    return sum((n * w) ** 2 * float(((high - low) ** 2).sum()) for w, low, high in ranges)


def _bound(forecast: Forecast, n: int, steps: float) -> float:
    """A bound on ``E r^2``; infinite where the hull cannot be searched in so many steps."""
    is_known = forecast.total_is_public
    try:
        hull = Hull.of(forecast.workload)
        squared_q = 0.0 if is_known else _shortest(forecast.workload)
        if not isfinite(squared_q):
            return inf
        weights = _weights(forecast.workload)
        source = Draws(f"reach {forecast.workload.digest()} {forecast.mechanism}")
        found = []
        # Numbers that are added up cost more than multiplications in large products.
        each = 2 * ADDED_UP * hull.effort * (SPLITS if hull.order is None else 1)
        for z in drawn_noise(forecast, source, DRAWS):
            along, against = _reach(hull, weights * z)
            # The noise is symmetric: both ends are draws of the reach.
            if is_known:
                found.append(((along + against) / 2, 0.0))
            else:
                ends = np.maximum(0.0, [along, against])
                found.append((float(ends.mean()), float((ends**2).mean())))
            if len(found) * each > steps:
                break
    except TooLarge:
        return inf
    if len(found) < LEAST_DRAWS:
        return inf
    drawn = np.array(found)
    spread = student(len(found), 1 - LEVEL) * drawn.std(axis=0, ddof=1) / sqrt(len(found))
    first, second = drawn.mean(axis=0) + spread
    a, b = squared_q * float(second), n * float(first)
    return ((sqrt(a) + sqrt(a + 4 * b)) / 2) ** 2


def _reach(hull: Hull, direction: Array) -> tuple[float, float]:
    """Upper bounds on ``h_K`` along a direction and against it."""
    if hull.is_small:
        along = direction @ hull.matrix
        return float(along.max()), float(-along.min())
    _, high = hull.reach(direction)
    return float(high[0]), float(high[1])


def _shortest(workload: Workload) -> float:
    """``|q|^2`` in the norm of the objective for a q that counts the records; infinite if none.

    Made of the groups whose columns all have one sum s, such as tables. A group of k answers and
    weight w counts alone with ``q = 1 / s``, of squared length ``k / (s w)^2`` in the dual norm;
    the shortest mixture of several has a length of the inverse of the sum of the inverses.
    """
    inverses = 0.0
    for term in workload.terms:
        sums = term.adjoint(np.ones(term.rows))
        if sums.size and sums.min() > 0 and sums.max() - sums.min() <= 1e-12 * sums.max():
            inverses += term.weight**2 * float(sums.max()) ** 2 / term.rows
    return 1 / inverses if inverses else inf


def _tried(forecast: Forecast, n: int, steps: float) -> tuple[float | None, int, str]:
    """``sum |released - a|^2 / sum |Z|^2`` over made-up releases, how many, or why there is none.

    A ratio, because both vary together and the mean below is known.
    """
    work = forecast.workload
    if has_wide(work) or any(t.rows > DENSE_LIMIT for t in work.terms):
        return None, 0, "too large for a histogram to be fitted, so not tried out"
    fit = objective_fit(work, [np.zeros(t.rows) for t in work.terms])
    grid = Grid.of(fit)
    if grid.size > LISTED:
        note = f"{grid.size:,} kinds of cells are more than {LISTED:,}, so not tried out"
        return None, 0, note
    weights, ends = _weights(work), np.cumsum([t.rows for t in work.terms])[:-1]
    label = f"made up {work.digest()} {forecast.mechanism} {n}"
    shares = _skewed(grid.size, label)
    quadratic = Quadratic(fit, grid)
    before: list[float] = []
    after: list[float] = []
    with effort("tried", steps=steps) as made:
        for run, noise in enumerate(drawn_noise(forecast, Draws(f"{label} noise"), RUNS)):
            truth = _made_up(quadratic, shares, n, f"{label} {run}")
            left = max(steps / 60, steps - made.spent)
            rows = n if forecast.total_is_public else None
            found = refined_listed(forecast, np.split(truth + noise, ends), rows, steps=left)
            if found is not None:
                before.append(float(weights @ noise**2))
                after.append(float(weights @ (np.concatenate(found.answers) - truth) ** 2))
            if must_stop():
                break
    if not any(before):
        return None, 0, "projections take longer than a forecast should, so none was tried out"
    return sum(after) / sum(before), len(after), ""


def _skewed(size: int, label: str) -> Array:
    """Shares 1, 1/2, 1/3, ... in an arbitrary order of the cells."""
    order = np.argsort(Draws(label).uniforms(size), kind="stable")
    out = 1 / (1.0 + order)
    return np.asarray(out / out.sum(), dtype=np.float64)


def _made_up(quadratic: Quadratic, shares: Array, n: int, label: str) -> Array:
    """The answers to n made-up records."""
    drawn = Draws(label).counts(shares, min(n, DRAWN))
    cells = np.flatnonzero(drawn)
    weights = drawn[cells].astype(np.float64) * (n / min(n, DRAWN))
    return quadratic.answers(quadratic.stack_of(cells, weights))
