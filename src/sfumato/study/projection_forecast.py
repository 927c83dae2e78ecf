# SPDX-License-Identifier: Apache-2.0
"""The error of projected answers, before anything is spent: of the mechanism, and of a plan.

`forecast_projection` returns what theory says of the projection mechanism, `after_projection` what
projection will make of a planned release.

The mechanism: answer with Gaussian noise, ``y = a + sigma G``, and return the point p of ``n K``
nearest to y, K the hull of the columns (A. Nikolov, K. Talwar, L. Zhang 2013, "The geometry of
differential privacy: the sparse and approximate cases"). For every data set of n records, every
subspace E of dimension j and its complement E':

    E |p - a|^2 <= ((sqrt(A) + sqrt(A + 4 B)) / 2)^2,   A = j sigma^2,   B = n sigma l*(P_E' K)

j = 0 is the theorem of the notes, ``n sigma l*(K)``; E the whole space of the hull gives
``d sigma^2``, no more than without projection. In between, E takes the few directions in which K is
long.

Proof. p is nearest to y in the convex set n K, which holds a, so ``|p - a|^2 <= <p - a, sigma G>``.
Split G into its parts in E and E': the first is at most ``|p - a| sigma |P_E G|``; the second has
mean ``sigma E <p, P_E' G> - 0 <= n sigma E h_K(P_E' G) = B``. So ``r^2 <= r x + y`` with ``E x^2 =
A``, ``E y <= B``; for every t in (0, 1) ``r^2 <= (x^2 / (4 t) + y) / (1 - t)``. Take expectations,
then the best t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, inf, isfinite, ldexp, log, prod, sqrt

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.measurement import LENGTH_BITS, Length, Measured
from sfumato.planning.calibrate import calibrate
from sfumato.planning.forecast import Forecast, drawn_noise
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.privacy.budget import Budget, check_neighbours
from sfumato.random import Draws
from sfumato.refine.consistency import (
    Unrefined,
    is_listed,
    objective_fit,
    refined,
    refined_listed,
)
from sfumato.refine.problem import Grid, Quadratic
from sfumato.refine.row_problem import problem
from sfumato.solve.effort import ADDED_UP, effort, must_stop
from sfumato.study.experts import Weights, weights_error
from sfumato.study.study_limits import LIMITS
from sfumato.study.widths import (
    Hull,
    Width,
    dimension_bound,
    gaussian_width,
    half_diameter,
    principal,
    student,
)
from sfumato.types import Array, Integers, Neighbours
from sfumato.workload.workload import Workload

__all__ = [
    "AfterProjection",
    "ProjectionForecast",
    "WidthSplit",
    "after_projection",
    "check_records",
    "forecast_projection",
    "gaussian_noise",
    "made_up_length",
]


@dataclass(frozen=True, slots=True)
class WidthSplit:
    """The width of the hull across ``dimension`` directions that are left to the noise."""

    dimension: int
    width: float
    upper: float


@dataclass(frozen=True, eq=False)
class ProjectionForecast:
    """What theory says of the projection mechanism; errors are root mean squares, in counts.

    Args:
        workload: What is asked.
        budget: What the Gaussian noise may spend.
        neighbours: Which two tables must be hard to tell apart.
        records: How many records there are.
        noise: Sigma, the error without projection.
        dimension: That of the hull.
        width: Its Gaussian width.
        splits: The widths of parts of the hull.
        unit: Whose presence is protected; one row if None.
    """

    workload: Workload
    budget: Budget
    neighbours: Neighbours
    records: int
    noise: float
    dimension: int
    width: Width
    splits: tuple[WidthSplit, ...]
    unit: PrivacyUnit | None = None

    @property
    def queries(self) -> int:
        """The number of queries, k."""
        return self.workload.queries

    @property
    def bound(self) -> float:
        """The bound for ``records``: no data set of so many has a greater error."""
        return self.bound_at(self.records)

    @property
    def estimate(self) -> float:
        """The bound with widths as they were drawn, not as they are at most."""
        return sqrt(min(self._squares(self.records, is_upper=False)) / self.queries)

    def __float__(self) -> float:
        return self.bound

    @property
    def gain(self) -> float:
        """How many times less error than without projection the theory promises; 1 or more."""
        return self.noise / self.bound if self.bound else inf

    def bound_at(self, records: float) -> float:
        """The bound for another number of records, at the same noise.

        Args:
            records: A number of records.

        Returns:
            The bound on the error, in counts.
        """
        return sqrt(min(self._squares(records, is_upper=True)) / self.queries)

    def _squares(self, n: float, is_upper: bool) -> list[float]:
        # No two answers of n records are farther apart than this.
        out = [min(4 * self._half_diameter**2, self.queries * self._spread**2) * n**2]
        for split in self.splits:
            a = split.dimension * self.noise**2
            b = n * self.noise * (split.upper if is_upper else split.width)
            out.append(((sqrt(a) + sqrt(a + 4 * b)) / 2) ** 2)
        return out

    @cached_property
    def _half_diameter(self) -> float:
        return half_diameter(self.workload)

    @cached_property
    def _spread(self) -> float:
        """The maximal range of a query."""
        pairs = [t.coefficient_bounds() for t in self.workload.terms]
        return max(float((high - low).max()) for low, high in pairs)

    @property
    def moved(self) -> float:
        """How far neighbours move a single query."""
        rows = 1 if self.unit is None else self.unit.rows
        greatest = max(t.greatest for t in self.workload.terms)
        if self.neighbours == "add-remove":
            return rows * greatest
        # A replaced record may fall in no cell, where a rule of the domain drops it.
        stays = self.unit is None and self.workload.domain.keeps_every_record
        return rows * (self._spread if stays else max(self._spread, greatest))

    @property
    def crossover(self) -> float:
        """Below this many records ``n sigma l*(K)`` is less than ``d sigma^2``."""
        return self.dimension * self.noise / self.width.upper if self.width.upper else inf

    def rows_needed(self, alpha: float) -> int:
        """The least number of records with an error of at most ``alpha`` of them.

        Args:
            alpha: An error, as a share of the records.

        Returns:
            A number of records.
        """
        return _minimum_rows(lambda n: self.bound_at(n) / n, alpha)

    def weights(self, records: float | None = None, beta: float = 0.05) -> Weights:
        """Private multiplicative weights at the same budget (errors as fractions of records).

        Args:
            records: A number of records; that of the forecast if None.
            beta: The probability with which the promise may fail.

        Returns:
            The error and its parameters.
        """
        spread = self._spread
        if not spread:
            return Weights(0.0, 0.0, inf, 0, 0.0, 0.0)
        return weights_error(
            self.queries,
            self.workload.domain.cells(n for t in self.workload.terms for n in t.attributes),
            self.records if records is None else records,
            self.budget,
            beta=beta,
            spread=spread,
            sensitivity=self.moved,
        )

    def weights_crossover(self, beta: float = 0.05) -> float | None:
        """The least n, up to 10^15, from which multiplicative weights promise less; if any.

        They promise it of every query with probability ``1 - beta``; projection of the root mean
        square.

        Args:
            beta: The probability with which the promise may fail.

        Returns:
            A number of records, or None.
        """
        grid = [10 ** (e / 4) for e in range(61)]

        def is_less(n: float) -> bool:
            return self.weights(n, beta).error < (1 - 1e-9) * self.bound_at(n) / n

        first = next((i for i, n in enumerate(grid) if is_less(n)), None)
        if first is None:
            return None
        low, high = grid[max(first - 1, 0)], grid[first]
        for _ in range(40):
            middle = sqrt(low * high)
            low, high = (low, middle) if is_less(middle) else (middle, high)
        return high


def forecast_projection(
    workload: Workload,
    budget: Budget,
    records: int,
    neighbours: Neighbours = "add-remove",
    *,
    unit: PrivacyUnit | None = None,
    draws: int | None = None,
    level: float = 0.95,
) -> ProjectionForecast:
    """The error of Gaussian answers projected onto what ``records`` records can answer.

    Privacy: a function of public inputs. The number of records must be public (with ``add-remove``
    neighbours: declared, not counted).

    Args:
        workload: What is asked.
        budget: What the Gaussian noise may spend.
        records: How many records there are.
        neighbours: Which two tables must be hard to tell apart.
        unit: Whose presence is protected; one row if None.
        draws: How often the width is drawn; None for about a second.
        level: The probability with which the bounds hold over the draws.

    Returns:
        The bound, an estimate of the error, and from how many records on noise alone is better.

    Raises:
        PlanError: The budget has no place for Gaussian noise.
        WorkloadError: An argument is wrong.
        TooLarge: The hull is too large.

    >>> import sfumato as sf
    >>> work = sf.conjunctions(sf.Domain({f"q{i}": 2 for i in range(8)}), 3)
    >>> forecast = sf.forecast_projection(work, sf.Budget(epsilon=1, delta=1e-6), 100)
    >>> forecast.bound < forecast.noise / 2.5
    True
    """
    neighbours = check_neighbours(neighbours)
    if isinstance(records, bool) or not isinstance(records, int | np.integer):
        raise WorkloadError(f"records must be a whole number of 1 or more, got {records!r}")
    most = LIMITS.forecast_records
    if not 1 <= records <= most:
        raise WorkloadError(f"records must be from 1 to {most:,}, got {records!r}")
    width = gaussian_width(workload, draws=draws, level=level)
    noise = gaussian_noise(workload, budget, neighbours, unit)
    dimension = dimension_bound(workload)
    splits = [WidthSplit(0, width.value, width.upper), WidthSplit(dimension, 0.0, 0.0)]
    splits += _between(workload, LIMITS.split_draws if draws is None else draws, level)
    return ProjectionForecast(
        workload, budget, neighbours, int(records), noise, dimension, width, tuple(splits), unit
    )


def gaussian_noise(
    workload: Workload, budget: Budget, neighbours: Neighbours, unit: PrivacyUnit | None = None
) -> float:
    """sigma of Gaussian noise that is the same on every query, calibrated as a release is."""
    mu = budget.gaussian_mu
    if mu is None:
        raise PlanError("projection of Gaussian answers needs delta > 0, rho or mu in the budget")
    build, noise = MECHANISMS["gaussian"]
    strategy = build(workload, noise, "rmse")
    return max(n.scale for n in calibrate(strategy, mu, neighbours, unit))


def _between(workload: Workload, draws: int, level: float) -> list[WidthSplit]:
    """Splits by the principal directions of the columns, where these can be written out."""
    hull = Hull.of(workload)
    if not draws or not hull.is_small or hull.cells < 2:
        return []
    along = principal(hull, dimension_bound(workload))
    if along is None:
        return []
    rank = len(along)
    normals = Draws(f"splits {workload.digest()}").normals(rank * draws).reshape(rank, draws)
    dimensions = sorted({2**i for i in range(rank.bit_length()) if 2**i < rank} | {0})
    # Half of what may fail is left to the width without a split.
    beta = (1 - level) / (2 * len(dimensions))
    out = [WidthSplit(rank, 0.0, 0.0)]
    reached = along.T @ normals
    done = 0
    for j in dimensions[: rank + 1]:
        reached -= along[done:j].T @ normals[done:j]
        done = j
        # Half the diameter of what is left is at most its radius about the mean.
        slope = float(np.sqrt((along[j:] ** 2).sum(axis=0).max(initial=0.0)))
        width = float((reached.max(axis=0) - reached.min(axis=0)).mean() / 2)
        out.append(WidthSplit(j, width, width + slope * sqrt(2 * log(1 / beta) / draws)))
    return out


def _minimum_rows(share_at: Callable[[float], float], alpha: float) -> int:
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not isfinite(alpha):
        raise PlanError(f"alpha must be a number above 0, got {alpha!r}")
    if not alpha > 0:
        raise PlanError(f"alpha must be a number above 0, got {alpha!r}")
    high = 1.0
    while share_at(high) > alpha:
        high *= 2
        if high > 2.0**200:
            raise PlanError(f"no number of records reaches an error of {alpha!r} of them")
    low = high / 2
    while high - low > max(0.5, 1e-9 * high):
        middle = (low + high) / 2
        low, high = (low, middle) if share_at(middle) <= alpha else (middle, high)
    return ceil(high)


# A planned release after projection


@dataclass(frozen=True, slots=True)
class AfterProjection:
    """Root mean square errors in counts, every query weighing as in the objective.

    ``without`` is the error of the unbiased answers, ``bound`` no less than that of their
    projection for any ``records`` records, ``estimate`` that of ``runs`` releases of made-up
    records, and ``model`` says how those were made up. ``note`` says why there is no estimate, or
    where a release would publish unbiased answers.
    """

    records: int
    without: float
    bound: float
    estimate: float | None
    runs: int
    note: str = ""
    model: str = ""

    def describe(self) -> str:
        """The forecast as a phrase for people."""
        bound = f"at most {self.bound:,.4g} for any {self.records:,} records"
        if not self.bound < self.without:
            bound += ", as without projection"
        if self.estimate is None:
            return f"{bound}; {self.note}"
        about = f"about {self.estimate:,.4g} counts for made-up records ({self.model}), {bound}"
        return f"{about}; {self.note}" if self.note else about

    def as_json(self) -> dict[str, object]:
        """The forecast as a JSON document."""
        return {
            "records": self.records,
            "without": self.without,
            "bound": self.bound,
            "estimate": self.estimate,
            "runs": self.runs,
            "note": self.note,
            "model": self.model,
        }


LISTED_MODEL = "shares 1, 1/2, 1/3, ... of all combinations"
ROWS_MODEL = "ten kinds of records, shares 1, 0.35, 0.19, ... in every attribute"


def after_projection(
    forecast: Forecast, records: int, steps: float = LIMITS.after_projection_multiplications
) -> AfterProjection:
    """The forecast for a public (or guessed) number of records, in about so many multiplications.

    Let ``y = a + Z`` be the unbiased answers to n records, p the nearest answers that data can
    have, r their distance from the truth and h the reach ``max(0, h_K(Z))`` of the hull along the
    noise, all in the norm of the objective. As in `widths`, ``r^2 <= <p - a, Z>``.

    * n public: ``E r^2 <= n E h_K(Z)``, and no two answers of n records are farther apart than the
      ranges of the queries let them be.
    * n private: p lies in the cone of all data and has a total N. Let q have ``<q, f_x> = 1`` for
      the column of every cell: ``N - n = <q, p - a> <= |q| r``. So ``r^2 <= N h - <a, Z> <= |q| h r
      + n h - <a, Z>``, and, as for the projection mechanism,

          E r^2 <= ((sqrt(A) + sqrt(A + 4 B)) / 2)^2,     A = |q|^2 E h^2,     B = n E h.

    Both at most ``E |Z|^2``, the error without projection (Nikolov, Talwar, Zhang 2013, "The
    geometry of differential privacy: the sparse and approximate cases"). The means are of draws:
    each bound has the end of Student's interval. Beside it stands what the release itself does on
    made-up data: over the combinations of cells where these can be listed, else on records
    (``_typical``), the same estimate that the release would publish.

    Privacy: a function of public inputs; a guess of the number of records, not a count, is asked.
    """
    n, work = check_records(records), forecast.workload
    if forecast.strategy.records is not None:
        return AfterProjection(
            n, forecast.rmse, forecast.rmse, None, 0, "answers with a bias are not tried out"
        )
    totals, _ = forecast.strategy.group_variances(forecast.block_variances)
    squares = [t.weight**2 for t in work.terms]
    heavy = sum(s * t.rows for s, t in zip(squares, work.terms, strict=True))
    without = sqrt(sum(s * v for s, v in zip(squares, totals, strict=True)) / heavy)
    if work.queries > (limit := LIMITS.forecast_queries):
        note = f"{work.queries:,} queries are too many to try out (the limit is {limit:,})"
        return AfterProjection(n, without, without, None, 0, note)
    farthest = _farthest(work, n) if forecast.total_is_public else inf
    bound = min(without, sqrt(min(farthest, _bound(forecast, n, steps / 2)) / heavy))
    model = LISTED_MODEL if is_listed(work) else ROWS_MODEL
    tried = _tried if model == LISTED_MODEL else _tried_on_rows
    share, runs, note = tried(forecast, n, steps / 2)
    if share is None:
        return AfterProjection(n, without, bound, None, runs, note)
    return AfterProjection(n, without, bound, min(bound, without * sqrt(share)), runs, note, model)


def check_records(records: object) -> int:
    """A number of records to forecast for; refused if it is none."""
    if isinstance(records, bool) or not isinstance(records, int | np.integer):
        raise PlanError(f"records must be a whole number of 1 or more, got {records!r}")
    most = LIMITS.forecast_records
    if not 1 <= records <= most:
        raise PlanError(f"records must be from 1 to {most:,}, got {records!r}")
    return int(records)


def made_up_length(forecast: Forecast, records: int, length: Length) -> float | None:
    """The length that a release would measure of the made-up records, before its noise.

    Of the first release that `after_projection` tries out: noise adds nothing to it in the mean.

    Args:
        forecast: The plan, of marginals, before its budget is divided.
        records: How many records there are.
        length: What counts of every block, and the grid.

    Returns:
        The length; None where the queries are too many for anything to be tried out.
    """
    work, planned = forecast.workload, forecast.in_normal_form
    if work.queries > LIMITS.forecast_queries:
        return None
    domain = planned.workload.domain
    if not is_listed(work) or work.domain.digest() != domain.digest():  # or over other cells
        work = planned.workload
    codes = _made_up_codes(work, forecast.mechanism, records)
    drawn, square = codes.shape[1], 0.0
    for block, weight in zip(planned.strategy.blocks, length.weights, strict=True):
        if weight:
            rows = [domain.names.index(name) for name in block.term.attributes]
            cells = np.ravel_multi_index(tuple(codes[rows]), block.term.shape)
            table = np.bincount(cells, minlength=prod(block.term.shape)).astype(np.float64)
            values = block.term.apply(table)
            square += ldexp(weight, -2 * LENGTH_BITS) * float(np.dot(values, values))
    bits = length.noise.grid_bits
    steps = floor(ldexp(sqrt(square), bits))
    return ldexp(steps, -bits) * (records / float(drawn))


def _made_up_codes(work: Workload, mechanism: str, n: int) -> Integers:
    """The cells of the records of the first made-up table, attribute by attribute."""
    label = f"made up {work.digest()} {mechanism} {n}"
    if not is_listed(work):
        return _typical(work.domain, min(n, LIMITS.records_drawn), f"{label} 0")
    grid = Grid.of(objective_fit(work, [np.zeros(t.rows) for t in work.terms]))
    counts = _counts_of(_skewed(grid.size, label), n, f"{label} 0")
    merged = np.unravel_index(np.repeat(np.arange(grid.size), counts), grid.shape)
    out = np.zeros((len(work.domain.names), int(counts.sum())), dtype=np.int64)
    for name, places, cells in zip(grid.names, merged, grid.representatives, strict=True):
        out[work.domain.names.index(name)] = cells[places]
    return out


def _weights(workload: Workload) -> Array:
    return np.concatenate([np.full(t.rows, t.weight**2) for t in workload.terms])


def _farthest(workload: Workload, n: int) -> float:
    """The maximal squared distance of two answers of n records."""
    ranges = [(t.weight, *t.coefficient_bounds()) for t in workload.terms]
    return sum((n * w) ** 2 * float(((high - low) ** 2).sum()) for w, low, high in ranges)


def _bound(forecast: Forecast, n: int, steps: float) -> float:
    """A bound on ``E r^2``; infinite where the hull cannot be searched in so many steps."""
    is_public = forecast.total_is_public
    try:
        hull = Hull.of(forecast.workload)
        squared_q = 0.0 if is_public else _shortest(forecast.workload)
        if not isfinite(squared_q):
            return inf
        weights = _weights(forecast.workload)
        source = Draws(f"reach {forecast.workload.digest()} {forecast.mechanism}")
        reaches = []
        # Numbers that are added up cost more than multiplications in large products.
        each = 2 * ADDED_UP * hull.effort * (LIMITS.reach_sums if hull.order is None else 1)
        for z in drawn_noise(forecast, source, LIMITS.projected_noise_draws):
            along, against = _reach(hull, weights * z)
            # The noise is symmetric: both ends are draws of the reach.
            if is_public:
                reaches.append(((along + against) / 2, 0.0))
            else:
                ends = np.maximum(0.0, [along, against])
                reaches.append((float(ends.mean()), float((ends**2).mean())))
            if len(reaches) * each > steps:
                break
    except TooLarge:
        return inf
    count = len(reaches)
    if count < LIMITS.reach_draws_minimum:
        return inf
    drawn = np.array(reaches)
    spread = student(count, 1 - LIMITS.reach_level) * drawn.std(axis=0, ddof=1) / sqrt(count)
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
    fit = objective_fit(work, [np.zeros(t.rows) for t in work.terms])
    grid = Grid.of(fit)
    weights, ends = _weights(work), np.cumsum([t.rows for t in work.terms])[:-1]
    label = f"made up {work.digest()} {forecast.mechanism} {n}"
    shares = _skewed(grid.size, label)
    quadratic = Quadratic(fit, grid)
    before: list[float] = []
    after: list[float] = []
    with effort("tried", steps=steps) as made:
        for run, noise in enumerate(
            drawn_noise(forecast, Draws(f"{label} noise"), LIMITS.releases_tried)
        ):
            truth = _made_up(quadratic, shares, n, f"{label} {run}")
            left = max(steps / 60, steps - made.spent)
            rows = n if forecast.total_is_public else None
            fitted = refined_listed(forecast, np.split(truth + noise, ends), rows, steps=left)
            if not isinstance(fitted, Unrefined):
                before.append(float(weights @ noise**2))
                after.append(float(weights @ (np.concatenate(fitted.answers) - truth) ** 2))
            if must_stop():
                break
    if not any(before):
        return None, 0, "projections take longer than a forecast should, so none was tried out"
    return sum(after) / sum(before), len(after), ""


def _tried_on_rows(forecast: Forecast, n: int, steps: float) -> tuple[float | None, int, str]:
    """The same where combinations cannot be listed: made-up records, and the release's own search.

    The first release is tried whatever it takes, as long as a release does; more of them only
    within the steps.
    """
    planned = forecast.in_normal_form
    work = planned.workload
    weights, ends = _weights(work), np.cumsum([t.rows for t in work.terms])[:-1]
    label = f"made up {work.digest()} {planned.mechanism} {n}"
    before, after, runs, note = 0.0, 0.0, 0, ""
    with effort("tried", steps=steps):
        noises = drawn_noise(planned, Draws(f"{label} noise"), LIMITS.releases_tried)
        for run, noise in enumerate(noises):
            codes = _typical(work.domain, min(n, LIMITS.records_drawn), f"{label} {run}")
            count = np.full(codes.shape[1], n / codes.shape[1])
            try:
                fit = objective_fit(work, [np.zeros(t.rows) for t in work.terms])
                truth = np.concatenate(problem(fit, float(n)).answers(codes, count))
                seen = Measured((), n if planned.total_is_public else None)
                outcome = refined(planned, seen, np.split(truth + noise, ends), shrinks=True)
            except TooLarge as error:
                return None, 0, str(error)
            square = float(weights @ noise**2)
            runs, before = runs + 1, before + square
            if isinstance(outcome, Unrefined):  # then the unbiased answers are published
                after, note = after + square, f"unbiased answers where {outcome.value}"
            else:
                after += float(weights @ (np.concatenate(outcome.answers) - truth) ** 2)
            if must_stop():
                break
    return after / before if before else 1.0, runs, note


def _typical(domain: Domain, rows: int, label: str) -> Integers:
    """The cells of made-up records, attribute by attribute.

    ``typical_kinds`` kinds of records, of shares 1, 1/2, 1/3, ... In every attribute the shares of
    cells fall as ``rank^-typical_skew``; for the part ``typical_common`` of the records in an order
    that all kinds have in common, for the others in one of their kind. So most records look alike,
    and attributes hang together as they do in tables of people: chosen by hand to agree with Adult
    at epsilon 0.1 and 1 (docs/mechanisms/projection.md has the errors beside the forecasts).
    """
    draws = Draws(f"typical {label}")
    kind = _places(draws, 1 / np.arange(1.0, LIMITS.typical_kinds + 1), rows)
    out = np.empty((len(domain.names), rows), dtype=np.int64)
    for a, attribute in enumerate(domain):
        common = _ranks(draws, attribute.size)
        shares = np.asarray((1.0 + np.arange(attribute.size)) ** -LIMITS.typical_skew, np.float64)
        is_common = draws.uniforms(rows) < LIMITS.typical_common
        rank = _places(draws, shares, rows)
        own = np.stack([_ranks(draws, attribute.size) for _ in range(LIMITS.typical_kinds)])
        out[a] = np.where(is_common, common[rank], own[kind, rank])
    return out


def _ranks(draws: Draws, size: int) -> Integers:
    """An arbitrary order."""
    return np.argsort(draws.uniforms(size), kind="stable").astype(np.int64)


def _places(draws: Draws, shares: Array, count: int) -> Integers:
    """Independent places with these shares."""
    edges = np.cumsum(shares, dtype=np.float64)
    at = np.searchsorted(edges, draws.uniforms(count) * edges[-1], side="right")
    return np.asarray(np.minimum(at, len(shares) - 1), dtype=np.int64)


def _skewed(size: int, label: str) -> Array:
    """Shares 1, 1/2, 1/3, ... in an arbitrary order of the cells."""
    order = np.argsort(Draws(label).uniforms(size), kind="stable")
    out = 1 / (1.0 + order)
    return np.asarray(out / out.sum(), dtype=np.float64)


def _made_up(quadratic: Quadratic, shares: Array, n: int, label: str) -> Array:
    """The answers to n made-up records."""
    drawn = _counts_of(shares, n, label)
    cells = np.flatnonzero(drawn)
    weights = drawn[cells].astype(np.float64) * (n / min(n, LIMITS.records_drawn))
    return quadratic.answers(quadratic.stack_of(cells, weights))


def _counts_of(shares: Array, n: int, label: str) -> Integers:
    """How many of n made-up records, or of as many as are drawn, fall in each cell."""
    return Draws(label).counts(shares, min(n, LIMITS.records_drawn))
