# SPDX-License-Identifier: Apache-2.0
"""Factorization and projection in their smallest examples: measure less, and undo impossible noise.

`repeated`: the same query asked again and again, with noise for each answer or one measurement for
all. That is a factorization ``F = R M``: F has k equal rows, M is one of them, R a column of ones.
Gaussian noise for F has a scale of sqrt(k) times that for M (A. Smith, J. Ullman, lecture notes on
factorization and projection, section 2.1).

`projection`: possible answers are a polygon, and noise leaves it. Two queries on seven kinds of
records. What a data set of n records can answer, as shares, is the convex hull of what single
records answer. A noisy point is moved to the nearest point of it, which never leads farther from
the truth. A. Nikolov, lecture notes "Projection mechanism", section 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from html import escape
from math import sqrt
from typing import Final

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.planning.forecast import Forecast
from sfumato.planning.planner import choose
from sfumato.privacy.budget import Budget
from sfumato.random import WordSource, system_words
from sfumato.refine.project import project
from sfumato.run.linear import Plan, plan
from sfumato.study.matrix_norms import MatrixFactorization, factorize
from sfumato.types import Array
from sfumato.vault.mechanisms.noise import rounded_gaussian
from sfumato.workload.build import explicit
from sfumato.workload.workload import Workload
from sfumato_web.learn.drawing import Axis, Plot, Point, number, picture

__all__ = [
    "KINDS",
    "MOST",
    "QUERY",
    "Projection",
    "Repeated",
    "corners",
    "draws",
    "error_against_noise",
    "projection",
    "queries",
    "repeated",
    "unit_noise",
]

MOST: Final = 64  # times that it may be asked
QUERY: Final = (1, 1, 0, 0, 1)
COUNTS: Final = (34, 21, 55, 13, 8)  # made up
DELTA: Final = Fraction(1, 10**6)
GRID: Final = 2**20  # steps of one standard deviation of the noise that is kept
SHOWN: Final = 8  # rows of a matrix that are drawn


def unit_noise(size: int, source: WordSource | None = None) -> Array:
    """Standard normal noise from the vault, on a fine grid.

    A page keeps it while a control moves, so that what changes is the scale and not the luck.
    """
    drawn = rounded_gaussian(Fraction(GRID), size, system_words() if source is None else source)
    return drawn / GRID


@dataclass(frozen=True, eq=False)
class Repeated:
    """One query asked ``times`` times; ``noise`` has one number for each and one for the last."""

    times: int
    epsilon: float
    apart: Forecast
    once: Plan
    noise: Array

    @property
    def truth(self) -> int:
        """The exact answer on the made-up counts."""
        return int(np.dot(QUERY, COUNTS))

    def answers_apart(self) -> Array:
        """Every answer with noise of its own."""
        return np.asarray(self.truth + self.apart.rmse * self.noise[: self.times])

    def single_answer(self) -> float:
        """One measurement, given as the answer every time."""
        return float(self.truth + self.once.rmse * self.noise[-1])

    def matrices(self) -> MatrixFactorization:
        """``F = R M`` as the library finds it, M scaled to the query."""
        best = factorize(np.tile(QUERY, (self.times, 1)))
        scale = float(best.M[0].max()) or float(best.M[0].min())
        return MatrixFactorization(best.R * scale, best.M / scale, best.lower_bound)

    def answers_figure(self) -> str:
        """All answers beside the truth."""
        reach = 3.0 * _plans(MOST, self.epsilon)[0].rmse
        plot = Plot(
            Axis("asked for the n-th time", 0, self.times + 1),
            Axis("answer, in counts", self.truth - reach, self.truth + reach),
        )
        x = range(1, self.times + 1)
        plot.rule(y=float(self.truth))
        apart = self.answers_apart()
        plot.dots(list(zip(x, apart.tolist(), strict=True)), "red", name="noise for each answer")
        once = self.single_answer()
        plot.line([(0, once), (self.times + 1, once)], "blue", "measured once")
        return plot.svg(
            f"{self.times} answers with noise of their own, between {number(float(apart.min()))} "
            f"and {number(float(apart.max()))}, and one measurement of {number(once)}; the truth "
            f"is {self.truth}"
        )

    def error_figure(self) -> str:
        """Error against the number of times."""
        ks = [1, 2, 4, 8, 16, 32, MOST]
        plans = [_plans(k, self.epsilon) for k in ks]
        top = 1.05 * max(p.rmse for p, _ in plans)
        plot = Plot(
            Axis("times that it is asked, k", 1, MOST),
            Axis("standard error of one answer, in counts", 0, top),
        )
        fine = np.linspace(1, MOST, 40)
        one = plans[0][0].rmse
        plot.line([(k, one * sqrt(k)) for k in fine], "red", "noise for each answer")
        plot.line([(k, one) for k in (1, MOST)], "blue", "measured once")
        plot.dots([(k, p.rmse) for k, (p, _) in zip(ks, plans, strict=True)], "red")
        plot.dots([(k, p.rmse) for k, (_, p) in zip(ks, plans, strict=True)], "blue")
        plot.rule(x=self.times, name=f"k = {self.times}")
        return plot.svg(
            f"Standard error against the number of times: {number(self.apart.rmse)} counts with "
            f"noise for each of {self.times} answers, {number(self.once.rmse)} if measured once"
        )

    def matrix_figure(self) -> str:
        """F = R M, drawn as squares."""
        factors = self.matrices()
        shown = min(self.times, SHOWN)
        parts, x = [], 8.0
        full = np.tile(QUERY, (self.times, 1)).astype(np.float64)
        tall = 26.0 + 18 * shown
        for name, matrix, sign in (
            ("F", full, "="),
            ("R", factors.R, "\u00d7"),
            ("M", factors.M, ""),
        ):
            rows = matrix[:shown]
            top = 26.0 + 9 * (shown - len(rows))
            parts += _grid(name, rows, x, top)
            x += 18 * matrix.shape[1] + 14
            if sign:
                parts.append(f'<text class="ink" x="{x}" y="{tall / 2 + 16}">{sign}</text>')
                x += 22
        more = self.times - shown
        if more:
            parts.append(f'<text x="8" y="{tall + 16}">and {more} more equal rows</text>')
        about = f"F with {self.times} equal rows is a column of ones times one row"
        return picture(460, tall + 24, parts, about)

    def notices(self) -> list[str]:
        """What there is to see, with the numbers of this setting."""
        ratio = self.apart.rmse / self.once.rmse
        return [
            f"The same budget pays for both. With noise for each answer its standard error is "
            f"{number(self.apart.rmse)} counts, measured once it is {number(self.once.rmse)}: "
            f"{number(ratio)} times less, which is the square root of {self.times}.",
            "The average of all the noisy answers is about as good as the one measurement: asking "
            "again buys nothing, it only spreads the budget over copies.",
            f"The factorization was found by the library, not told to it: M has "
            f"{len(self.matrices().M)} row, and its certificate "
            f"{self.matrices().certificate:.4f} says that no other way to measure errs less.",
        ]


def repeated(times: int, epsilon: float, noise: Array) -> Repeated:
    """A query asked so often at (epsilon, 10^-6); ``noise`` from `unit_noise`, MOST + 1 long."""
    apart, once = _plans(times, epsilon)
    return Repeated(times, epsilon, apart, once, noise)


@lru_cache(maxsize=512)
def _plans(times: int, epsilon: float) -> tuple[Forecast, Plan]:
    """The plan with noise on every copy, and the best factorization."""
    cells = Domain({"cell": len(QUERY)})
    work = explicit(cells, ["cell"], np.tile(QUERY, (times, 1)))
    budget = Budget(epsilon=Fraction(epsilon).limit_denominator(1000), delta=DELTA)
    # A plan asks a query once, however often it was written; here it is to be asked again.
    apart = choose(work, budget, "add-remove", mechanism="gaussian")
    return apart, plan(work, budget, mechanism="factorization", cache=False)


def _grid(name: str, matrix: Array, left: float, top: float) -> list[str]:
    out = [f'<text class="ink" x="{left}" y="{top - 8}">{escape(name)}</text>']
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            look = 'class="f-blue"' if abs(value) > 1e-9 else 'class="hair"'
            at = f'x="{left + 18 * j:g}" y="{top + 18 * i:g}" width="16" height="16" rx="2"'
            out.append(f"<rect {look} {at}><title>{value:.3g}</title></rect>")
    return out


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
DRAWS: Final = 12
NOISES: Final = (3.0, 1.5, 0.8, 0.4, 0.2, 0.1, 0.05, 0.02)  # standard deviations, as shares
FEWEST_RECORDS, MOST_RECORDS = 5, 2_000
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
            Axis("records n", FEWEST_RECORDS, MOST_RECORDS, is_log=True),
            Axis("error, as a share of the records", 1e-3, 10, is_log=True, is_share=True),
            height=380,
        )
        ns = np.geomspace(FEWEST_RECORDS, MOST_RECORDS, 30)
        plot.line([(n, counts / n) for n in ns], "red", "noise alone")
        errors = error_against_noise(self.unit.tobytes())
        after = [(counts / s, e) for s, e in errors if FEWEST_RECORDS <= counts / s <= MOST_RECORDS]
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
