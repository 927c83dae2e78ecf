# SPDX-License-Identifier: Apache-2.0
"""The answers of a histogram whose largest difference from the given ones is least.

    minimise max_q s_q |F h - y|_q   over h >= 0, and 1'h = n where n is known

as a game between a histogram and a distribution w over queries. Against w the best histogram is a
weighted projection; then queries gain weight where it is worst, which is boosting over queries
(Dwork, Rothblum, Vadhan 2010, "Boosting and differential privacy") with projection as the learner
that is good on average, and the reweighting of Lawson 1961, "Contributions to the theory of linear
least maximum approximation". With ``r = s |F h - y|`` of any h and any w, for every histogram h*

    max_q r*_q  >=  (sum_q w_q r_q^2 - gap) / sum_q w_q r_q       (n known)
    max_q r*_q  >=  sqrt(sum_q w_q r_q^2 - 2 gap)                 (always),

``gap`` that of ``certificate`` for the weights w s^2. So every round has a lower bound, whatever
found it, and the best histogram seen is certified. Proofs: ``docs/mechanisms/boosting.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from threadpoolctl import threadpool_limits

from sfumato.errors import WorkloadError
from sfumato.refine.active_set import Support
from sfumato.refine.cells import Estimate, bound_of, nearest
from sfumato.refine.grid import Grid
from sfumato.refine.problem import Bound, Quadratic
from sfumato.refine.reconstruct import Fit
from sfumato.refine.refine_limits import LIMITS
from sfumato.types import Array, Progress

__all__ = [
    "fit_largest",
]


def fit_largest(
    fit: Fit, grid: Grid, total: float | None, *, gap: float, progress: Progress | None = None
) -> Estimate:
    """The estimate whose value ``max_q s_q |F h - y|_q`` is certified to be nearly the least one.

    ``s^2`` are the weights of the fit. The wanted gap is ``gap * (value + 1e-4 max_q s_q |y_q|)``.
    """
    game = _Game.of(fit, grid, total)
    w = game.even
    with threadpool_limits(limits=1, user_api="blas"):  # the matrices are small
        best = found = game.played(w, None, gap)
        lower, since = found.lower, 0
        for turn in range(1, LIMITS.minimax_rounds):
            lower = min(lower, best.largest)
            if progress is not None:
                progress(turn, LIMITS.minimax_rounds, f"{best.largest:.4g}, at least {lower:.4g}")
            if (
                best.largest - lower <= game.wanted(best.largest, gap)
                or since > LIMITS.minimax_patience
            ):
                break
            w = game.reweighted(w, found.sizes)
            found = game.played(w, found.support, gap)
            since = 0 if found.largest < best.largest or found.lower > lower else since + 1
            best = found if found.largest < best.largest else best
            lower = max(lower, found.lower)
    size = game.unit * game.greatest
    return Estimate(
        grid,
        best.support.cells,
        best.support.weights * game.unit,
        best.answers * game.unit,
        best.largest * size,
        max(0.0, best.largest - lower) * size,
        game.wanted(best.largest, gap) * size,
        "boosting",
    )


@dataclass(frozen=True, eq=False)
class _Round:
    """A histogram, its differences, and what its distribution proves of every histogram."""

    support: Support
    answers: Array
    sizes: Array
    lower: float

    @property
    def largest(self) -> float:
        return float(self.sizes.max())


@dataclass(frozen=True, eq=False)
class _Game:
    """The problem in units in which answers and scales are near 1."""

    fit: Fit
    grid: Grid
    total: float | None
    scales: Array
    unit: float
    greatest: float

    @classmethod
    def of(cls, fit: Fit, grid: Grid, total: float | None) -> _Game:
        values = np.concatenate([p.values for p in fit.parts])
        scales = np.sqrt(np.concatenate([p.weights for p in fit.parts]))
        if not scales.any():
            raise WorkloadError("all weights are 0: there is no largest difference")
        unit = max(float(np.abs(values).max(initial=0.0)), total or 0.0) or 1.0
        greatest = float(scales.max())
        parts = tuple(replace(p, values=p.values / unit) for p in fit.parts)
        known = None if total is None else total / unit
        return cls(replace(fit, parts=parts), grid, known, scales / greatest, unit, greatest)

    @property
    def whole(self) -> float:
        """The largest ``s |y|``."""
        values = np.concatenate([p.values for p in self.fit.parts])
        return float((self.scales * np.abs(values)).max())

    @property
    def even(self) -> Array:
        """The distribution at first: all queries that count weigh the same."""
        return np.where(self.scales > 0, 1.0, 0.0) / np.count_nonzero(self.scales)

    def reweighted(self, w: Array, sizes: Array) -> Array:
        """More weight on what the last histogram got wrong, by how much it did."""
        moved = w * (sizes / sizes.max()) ** LIMITS.minimax_step
        raised = np.where(
            self.scales > 0, np.maximum(moved / moved.sum(), LIMITS.minimax_weight_minimum), 0.0
        )
        return np.asarray(raised / raised.sum())

    def wanted(self, value: float, gap: float) -> float:
        """The gap at which the game ends."""
        return gap * (value + LIMITS.minimax_floor * self.whole)

    def played(self, w: Array, start: Support | None, gap: float) -> _Round:
        """The weighted projection against a distribution; half of the gap is left to it."""
        q = Quadratic(self._weighted(w), self.grid)
        floor = (LIMITS.minimax_floor * self.whole) ** 2

        def target(value: float) -> float:
            return 0.5 * gap * (value + floor)

        bound = bound_of(q, self.total)
        support, _ = nearest(q, bound, target, start=start)
        t = q.stack_of(support.cells, support.weights)
        answers = q.answers(t)
        sizes = self.scales * np.abs(answers - q.values)
        return _Round(support, answers, sizes, _lower(q, bound, w, t, answers, sizes))

    def _weighted(self, w: Array) -> Fit:
        # Scaled to a mean of 1: the solvers of projections know sizes near it.
        weights = len(w) * w * self.scales**2
        cuts = np.cumsum([p.term.rows for p in self.fit.parts])[:-1]
        pairs = zip(self.fit.parts, np.split(weights, cuts), strict=True)
        return replace(self.fit, parts=tuple(replace(p, weights=v) for p, v in pairs))


def _lower(q: Quadratic, bound: Bound, w: Array, t: Array, answers: Array, sizes: Array) -> float:
    """What every histogram's largest difference is at least (the module's two bounds)."""
    if bound.total == 0:
        return float(sizes.max())  # there is one histogram
    down = q.adjoint(q.weigh(answers - q.values)) / len(w)
    least, slope = float(q.slopes(down).min()), float(down @ t)
    square, mean = float(w @ sizes**2), float(w @ sizes)
    if bound.total is not None:
        gap = max(0.0, slope - bound.total * least)
        return max(0.0, (square - gap) / mean) if mean > 0 else 0.0
    gap = bound.gap(least * len(w), slope * len(w), t) / len(w)
    return sqrt(max(0.0, square - 2 * gap))
