# SPDX-License-Identifier: Apache-2.0
"""How well the projection mechanism will answer, before anything is spent.

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
from math import ceil, inf, isfinite, log, sqrt

import numpy as np

from sfumato.budget import Budget, Neighbours, check_neighbours
from sfumato.domain.unit import PrivacyUnit
from sfumato.errors import PlanError, WorkloadError
from sfumato.plan.calibrate import calibrate
from sfumato.plan.mechanisms import MECHANISMS
from sfumato.refine.cells.principal import principal
from sfumato.refine.draws import Draws
from sfumato.refine.widths.geometry import Hull
from sfumato.refine.widths.multiplicative import Weights, multiplicative_weights
from sfumato.refine.widths.width import Width, dimension_bound, gaussian_width, half_diameter
from sfumato.workload.workload import Workload

__all__ = ["ProjectionForecast", "Split", "forecast_projection", "gaussian_noise"]

DRAWS = 256
MOST_RECORDS = 10**15


@dataclass(frozen=True, slots=True)
class Split:
    """The width of the hull across ``dimension`` directions that are left to the noise."""

    dimension: int
    width: float
    upper: float


@dataclass(frozen=True, eq=False)
class ProjectionForecast:
    """What theory says of the projection mechanism; errors are root mean squares, in counts.

    ``noise`` is sigma, the error without projection. Bounds hold for every data set of ``records``
    records, with probability ``width.level`` over the draws of the width.
    """

    workload: Workload
    budget: Budget
    neighbours: Neighbours
    records: int
    noise: float
    dimension: int
    width: Width
    splits: tuple[Split, ...]
    unit: PrivacyUnit | None = None

    @property
    def queries(self) -> int:
        """k."""
        return self.workload.queries

    @property
    def bound(self) -> float:
        """No data set of this many records has a greater error."""
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
        """The bound for another number of records, at the same noise."""
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
        """The greatest range of a query."""
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
        kept = self.unit is None and self.workload.domain.keeps_every_record
        return rows * (self._spread if kept else max(self._spread, greatest))

    @property
    def crossover(self) -> float:
        """Below this many records ``n sigma l*(K)`` is less than ``d sigma^2``."""
        return self.dimension * self.noise / self.width.upper if self.width.upper else inf

    def rows_needed(self, alpha: float) -> int:
        """The least number of records with an error of at most ``alpha`` of them."""
        return _least_rows(lambda n: self.bound_at(n) / n, alpha)

    def weights(self, records: float | None = None, beta: float = 0.05) -> Weights:
        """Private multiplicative weights at the same budget (errors as fractions of records)."""
        spread = self._spread
        if not spread:
            return Weights(0.0, 0.0, inf, 0, 0.0, 0.0)
        return multiplicative_weights(
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

    >>> import sfumato as sf
    >>> work = sf.conjunctions(sf.Domain({f"q{i}": 2 for i in range(8)}), 3)
    >>> forecast = forecast_projection(work, sf.Budget(epsilon=1, delta=1e-6), 100)
    >>> forecast.bound < forecast.noise / 2.5
    True
    """
    neighbours = check_neighbours(neighbours)
    if isinstance(records, bool) or not isinstance(records, int | np.integer):
        raise WorkloadError(f"records must be a whole number of 1 or more, got {records!r}")
    if not 1 <= records <= MOST_RECORDS:
        raise WorkloadError(f"records must be from 1 to {MOST_RECORDS:,}, got {records!r}")
    width = gaussian_width(workload, draws=draws, level=level)
    noise = gaussian_noise(workload, budget, neighbours, unit)
    dimension = dimension_bound(workload)
    splits = [Split(0, width.value, width.upper), Split(dimension, 0.0, 0.0)]
    splits += _between(workload, DRAWS if draws is None else draws, level)
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


def _between(workload: Workload, draws: int, level: float) -> list[Split]:
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
    out = [Split(rank, 0.0, 0.0)]
    reached = along.T @ normals
    done = 0
    for j in dimensions[: rank + 1]:
        reached -= along[done:j].T @ normals[done:j]
        done = j
        # Half the diameter of what is left is at most its radius about the mean.
        slope = float(np.sqrt((along[j:] ** 2).sum(axis=0).max(initial=0.0)))
        found = float((reached.max(axis=0) - reached.min(axis=0)).mean() / 2)
        out.append(Split(j, found, found + slope * sqrt(2 * log(1 / beta) / draws)))
    return out


def _least_rows(share_at: Callable[[float], float], alpha: float) -> int:
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
