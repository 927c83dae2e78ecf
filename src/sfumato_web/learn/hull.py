# SPDX-License-Identifier: Apache-2.0
"""Projection in two dimensions: possible answers are a polygon, and noise leaves it.

Two queries on seven kinds of records. What a data set of n records can answer, as shares, is the
convex hull of what single records answer. A noisy point is moved to the nearest point of it, which
never leads farther from the truth. A. Nikolov, lecture notes "Projection mechanism", section 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import sqrt
from typing import Final

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.privacy.budget import Budget
from sfumato.random import WordSource
from sfumato.refine.project import project
from sfumato.run.linear import plan
from sfumato.types import Array
from sfumato.workload.build import explicit
from sfumato.workload.workload import Workload
from sfumato_web.learn.drawing import Axis, Plot, Point, number
from sfumato_web.learn.repeated import unit_noise

__all__ = [
    "KINDS",
    "Projection",
    "corners",
    "draws",
    "error_against_noise",
    "projection",
    "queries",
]


KINDS: Final = (
    (0.0625, 0.125),
    (0.375, 0.0),
    (0.875, 0.1875),
    (1.0, 0.625),
    (0.6875, 0.9375),
    (0.1875, 0.875),
    (0.5, 0.5),
)
"""What a record of each kind answers to the two queries."""
SHARES: Final = (0.02, 0.08, 0.3, 0.45, 0.1, 0.02, 0.03)  # made up
DELTA: Final = Fraction(1, 10**6)
DRAWS: Final = 12
NOISES: Final = (3.0, 1.5, 0.8, 0.4, 0.2, 0.1, 0.05, 0.02)  # standard deviations, as shares
FEWEST, MOST = 5, 2_000
ACROSS, UP = (-0.88, 1.88), (-0.6, 1.6)  # the same scale on both axes


def draws(source: WordSource | None = None) -> Array:
    """Noise of unit deviation, a row for each run; the largest comes first and is drawn boldest."""
    drawn = unit_noise(2 * DRAWS, source).reshape(DRAWS, 2)
    return np.asarray(drawn[np.argsort(-np.square(drawn).sum(axis=1), kind="stable")])


@lru_cache(maxsize=1)
def queries() -> Workload:
    """The two queries."""
    return explicit(Domain({"kind": len(KINDS)}), ["kind"], np.array(KINDS).T)


def corners() -> list[Point]:
    """The corners of the polygon of possible answers, in order."""
    from scipy.spatial import ConvexHull

    return [KINDS[i] for i in ConvexHull(np.array(KINDS)).vertices]


def nearest(point: Array) -> Array:
    """The possible answers nearest to a pair of shares, by the library's projection."""
    return np.asarray(project(point, queries(), n=1).answers)


@dataclass(frozen=True, eq=False)
class Projection:
    """Noisy points and where they are projected to, all as shares of ``records`` records."""

    records: int
    deviation: float
    truth: Array
    noisy: Array
    projected: Array
    unit: Array

    def errors(self) -> tuple[float, float]:
        """Root mean square errors before and after, over all runs and both queries."""
        return _rms(self.noisy - self.truth), _rms(self.projected - self.truth)

    def hull_figure(self) -> str:
        """The polygon with all runs; the first one is drawn strongest."""
        plot = Plot(
            Axis("first query, share of the records", *ACROSS, is_share=True),
            Axis("second query", *UP, is_share=True),
            height=380,
        )
        edge = corners()
        plot.area(edge, "grey")
        plot.line([*edge, edge[0]], "grey", "possible answers")
        for i, (noisy, projected) in enumerate(zip(self.noisy, self.projected, strict=True)):
            look = "dotted" if i == 0 else "dotted faint"
            plot.line([_point(noisy), _point(projected)], "red", look=look)
        plot.dots([_point(p) for p in self.noisy[1:]], "red", size=2.8, look="faint")
        plot.dots([_point(p) for p in self.projected[1:]], "blue", size=2.8, look="faint")
        plot.dots([_point(self.noisy[0])], "red", size=5, name="noisy")
        plot.dots([_point(self.projected[0])], "blue", size=5, name="projected")
        plot.dots([_point(self.truth)], "violet", size=5, name="truth")
        before, after = self.errors()
        return plot.svg(
            f"The polygon of possible answers; {len(self.noisy)} noisy points around the truth, "
            f"root mean square error {number(before)}, and their projections, {number(after)}"
        )

    def error_figure(self) -> str:
        """Error against the number of records, before and after projection."""
        counts = self.deviation * self.records
        plot = Plot(
            Axis("records n", FEWEST, MOST, is_log=True),
            Axis("error, as a share of the records", 1e-3, 10, is_log=True, is_share=True),
            height=380,
        )
        ns = np.geomspace(FEWEST, MOST, 30)
        plot.line([(n, counts / n) for n in ns], "red", "noise alone")
        errors = error_against_noise(self.unit.tobytes())
        after = [(counts / s, e) for s, e in errors if FEWEST <= counts / s <= MOST]
        plot.line(after, "blue", "projected, in these runs")
        plot.dots(after, "blue")
        plot.rule(x=self.records, name=f"n = {self.records:,}")
        return plot.svg(
            "Error against the number of records: that of the noise falls with 1/n, after "
            "projection it stays below the size of the polygon"
        )

    def notices(self) -> list[str]:
        """What there is to see, with the numbers of this setting."""
        before, after = self.errors()
        outside = int((np.abs(self.noisy - self.projected).max(axis=1) > 1e-6).sum())
        return [
            f"With {self.records:,} records the noise has a standard deviation of "
            f"{number(100 * self.deviation)}% of them. {outside} of {len(self.noisy)} noisy points "
            "fall outside of the polygon, where no data set has its answers.",
            f"Projection takes the root mean square error from {number(100 * before)}% to "
            f"{number(100 * after)}%. It costs no privacy: it uses only what is published.",
            "No projected point is farther from the truth than its noisy point, because the "
            "polygon is convex and the truth lies in it.",
            "Few records: the polygon does nearly all the work, and points beyond the figure are "
            "drawn at its edge. Many records: the noise stays inside, projection changes nothing.",
        ]


def projection(records: int, epsilon: float, unit: Array) -> Projection:
    """All runs at so many records and (epsilon, 10^-6), with the noise of `draws`."""
    deviation = _noise_in_counts(epsilon) / records
    truth = np.array(SHARES) @ np.array(KINDS)
    noisy = truth + deviation * unit
    projected = np.array([nearest(point) for point in noisy])
    return Projection(records, deviation, truth, noisy, projected, unit)


@lru_cache(maxsize=128)
def _noise_in_counts(epsilon: float) -> float:
    budget = Budget(epsilon=Fraction(epsilon).limit_denominator(1000), delta=DELTA)
    return plan(queries(), budget, "replace-one", mechanism="gaussian", cache=False).rmse


@lru_cache(maxsize=64)
def error_against_noise(unit: bytes) -> tuple[tuple[float, float], ...]:
    """For each standard deviation of the noise, the error after projection, over all runs."""
    noise = np.frombuffer(unit, dtype=np.float64).reshape(-1, 2)
    truth = np.array(SHARES) @ np.array(KINDS)
    return tuple(
        (s, _rms(np.array([nearest(truth + s * z) for z in noise]) - truth)) for s in NOISES
    )


def _point(shares: Array) -> Point:
    return float(shares[0]), float(shares[1])


def _rms(errors: Array) -> float:
    return sqrt(float(np.mean(np.square(errors))))
