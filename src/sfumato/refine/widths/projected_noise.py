# SPDX-License-Identifier: Apache-2.0
"""Projection after any Gaussian strategy: the theorem of widths for correlated noise.

Let ``y = a + Z`` be unbiased answers with normal noise ``Z = R z``, as a factorization gives them,
and p the point of ``n K`` nearest to y. As in ``projected_forecast.py``,

    E |p - a|^2 <= E <p - a, Z> <= n E h_K(Z)      and      E |p - a|^2 <= E |Z|^2,

the first because ``E <a, Z> = 0``, the second because projections do not lengthen. The mean is that
of the hull's reach in the directions in which the answers err, which is what a good strategy keeps
short.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np

from sfumato.errors import PlanError
from sfumato.plan.forecast import Forecast
from sfumato.refine.draws import Draws
from sfumato.refine.widths.geometry import Hull
from sfumato.refine.widths.width import Width, student
from sfumato.workload.queries import Array

__all__ = ["ProjectedNoise", "drawn_noise", "drawn_values", "projected_noise"]

DRAWS = 32


@dataclass(frozen=True, slots=True)
class ProjectedNoise:
    """``width`` is ``E h_K(Z)`` in counts; ``rmse`` the error without projection."""

    queries: int
    rmse: float
    width: Width

    def bound_at(self, records: float) -> float:
        """A bound on the root mean square error, in counts, for every data set of n records."""
        return min(self.rmse, sqrt(records * self.width.upper / self.queries))


def projected_noise(forecast: Forecast, draws: int = DRAWS, level: float = 0.95) -> ProjectedNoise:
    """The bound for a planned mechanism with Gaussian noise.

    ``upper`` is the end of Student's interval for the mean of the draws: an approximate one, unlike
    that of ``gaussian_width``.
    """
    if forecast.strategy.noise != "gaussian" or forecast.strategy.records is not None:
        raise PlanError(
            f"widths bound the projection of unbiased answers with Gaussian noise, not of "
            f"{forecast.mechanism!r}"
        )
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 2:
        raise PlanError(f"draws must be a whole number of 2 or more, got {draws!r}")
    hull = Hull.of(forecast.workload)
    source = Draws(f"noise {forecast.workload.digest()} {forecast.mechanism}")
    found = np.array([_ends(hull, z) for z in drawn_noise(forecast, source, draws)])
    error = found.std(axis=0, ddof=1) / sqrt(draws)
    value, reached = found.mean(axis=0)
    upper = float(reached + student(draws, 1 - level) * error[1])
    lower = max(0.0, float(value - student(draws, 1 - level) * error[0]))
    width = Width(float(value), float(error[0]), lower, upper, level, draws, "Monte Carlo")
    return ProjectedNoise(forecast.workload.queries, forecast.rmse, width)


def drawn_noise(forecast: Forecast, source: Draws, count: int) -> Iterator[Array]:
    """The noise of all answers, as public draws."""
    for _ in range(count):
        yield np.concatenate(list(forecast.strategy.answers(drawn_values(forecast, source))))


def drawn_values(forecast: Forecast, source: Draws) -> list[Array]:
    """The noise of all measured values, block by block."""
    values = []
    for rows, noise in zip(forecast.strategy.block_rows, forecast.noise, strict=True):
        drawn = source.normals(rows) if noise.noise == "gaussian" else source.laplaces(rows)
        values.append(drawn * noise.scale)
    return values


def _ends(hull: Hull, noise: Array) -> tuple[float, float]:
    """Half the reach along the noise and against it, from below and from above."""
    if hull.is_small:
        along = noise @ hull.matrix
        half = float(along.max() - along.min()) / 2
        return half, half
    low, high = hull.reach(noise)
    return float(low.mean()), float(high.mean())
