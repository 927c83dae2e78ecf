# SPDX-License-Identifier: Apache-2.0
"""Approximate intervals of projected answers: the release repeated around its own estimate.

Intervals from the law of the noise hold for all data and are as wide as the noise. Projected
answers err less, by how much depends on the data. Here the published answers p take the place of
the truth: noise of the planned law is added to them, the result is projected as the release was,

    p_b = project(p + Z_b),   b = 1 .. B,     half width = the level-quantile of |p_b - p|,

the parametric bootstrap (Efron, Tibshirani 1993, "An introduction to the bootstrap", section 6.5).
It is **approximate**: where p lies on the boundary of what data can have, and the truth does not,
repeated projections err less than the first one did, so the intervals can be too short (Andrews
2000, "Inconsistency of the bootstrap when a parameter is on the boundary of the parameter space").
``python -m bench intervals`` measures how often they hold.

Public arithmetic on released numbers with repeatable public draws: no privacy is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfumato.errors import TooLarge, WorkloadError
from sfumato.plan.forecast import Forecast
from sfumato.refine.cells.grid import Grid
from sfumato.refine.draws import Draws
from sfumato.refine.refined import LISTED, Projection, Refined, has_wide, objective_fit
from sfumato.refine.widths.projected_noise import drawn_noise
from sfumato.wording import shown
from sfumato.workload.constraints import Constraints
from sfumato.workload.normal import Normal
from sfumato.workload.queries import Array

__all__ = ["DRAWS", "Bootstrap", "Intervals", "bootstrapped", "check_intervals"]

DRAWS = 200
MOST_NUMBERS = 2**26  # errors that are kept, a quarter of a GiB

Intervals = Literal["noise", "bootstrap"]
Progress = Callable[[int, int, str], None]
Project = Callable[[Sequence[Array]], Refined | None]


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """The sizes of the errors of repeated releases, sorted, per group: draw x query."""

    sizes: tuple[npt.NDArray[np.float32], ...]

    @property
    def draws(self) -> int:
        """How often the release was repeated."""
        return len(self.sizes[0])

    def describe(self) -> str:
        """How intervals were made, in words."""
        return (
            f"approximate: a bootstrap of {self.draws} draws around the published answers; they "
            "may hold less often than they say"
        )

    def seen(self, normal: Normal) -> Bootstrap:
        """The same errors in the places where the answers were asked."""
        terms = range(len(normal.pieces))
        rows = [[s[i].astype(np.float64) for s in self.sizes] for i in range(self.draws)]
        sizes = [np.array([normal.gather(t, row.__getitem__) for row in rows]) for t in terms]
        return Bootstrap(tuple(each.astype(np.float32) for each in sizes))

    def half_widths(self, term: int, level: float) -> Array:
        """The ``ceil((draws + 1) level)``-th smallest error of every answer of a group."""
        place = ceil((self.draws + 1) * Fraction(level).limit_denominator(10**9))
        if place > self.draws:
            raise WorkloadError(
                f"a bootstrap of {self.draws} draws knows levels up to "
                f"{self.draws / (self.draws + 1):.4f}, got {level!r}; ask for a lower level, or "
                'release with intervals="noise"'
            )
        return np.asarray(self.sizes[term][place - 1], dtype=np.float64)


def check_intervals(
    intervals: object, forecast: Forecast, project: Projection, constraints: Constraints | None
) -> None:
    """Refuse, before anything is spent, intervals that there are not, or not for this plan."""
    if intervals == "noise":
        return
    if intervals != "bootstrap":
        raise WorkloadError(
            'intervals are "noise" (they hold as often as they say) or "bootstrap" (approximate), '
            f"got {shown(intervals)}"
        )
    if project in (False, "bounds"):
        raise WorkloadError(
            "a bootstrap repeats a projection, and this release has none; leave project out, or "
            'use intervals="noise"'
        )
    work = forecast.workload
    if forecast.strategy.records is not None:
        raise WorkloadError(
            "a bootstrap repeats unbiased answers, those of this plan have a bias; leave "
            'allow_bias out, or use intervals="noise"'
        )
    if DRAWS * work.queries > MOST_NUMBERS:
        raise TooLarge(
            f"a bootstrap keeps {DRAWS} errors of every answer, at most {MOST_NUMBERS:,} in all; "
            f'{work.queries:,} queries are too many: use intervals="noise"'
        )
    grid = None
    if not has_wide(work):
        grid = Grid.of(objective_fit(work, [np.zeros(t.rows) for t in work.terms]), constraints)
    if grid is None or grid.size > LISTED:
        raise TooLarge(
            "a bootstrap projects again and again, so the cells of all asked attributes together "
            f'must be at most {LISTED:,}; use intervals="noise", or ask about fewer attributes'
        )


def bootstrapped(
    forecast: Forecast, found: Refined, project: Project, progress: Progress | None = None
) -> Bootstrap:
    """The errors of ``DRAWS`` releases of the published answers.

    ``project`` makes the unbiased answers of one agree. Where it finds none in time, the error is
    that of the unbiased ones, which is larger.
    """
    work = forecast.workload
    centre = np.concatenate(found.answers)
    ends = np.cumsum([t.rows for t in work.terms])[:-1]
    out = np.empty((DRAWS, len(centre)), dtype=np.float32)
    draws = Draws(f"bootstrap {work.digest()} {forecast.mechanism}")
    for b, noise in enumerate(drawn_noise(forecast, draws, DRAWS)):
        again = project(np.split(centre + noise, ends))
        out[b] = np.abs(noise if again is None else np.concatenate(again.answers) - centre)
        if progress is not None:
            progress(b + 1, DRAWS, "bootstrapping")
    out.sort(axis=0)
    return Bootstrap(tuple(np.split(out, ends, axis=1)))
