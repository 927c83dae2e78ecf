# SPDX-License-Identifier: Apache-2.0
"""The nearest answers of histograms with given margins.

    minimise f(h) = 1/2 |F h - y|_W^2   over possible h >= 0 with M h = b,

M the published tables, b their counts. By the method of multipliers (Hestenes 1969, "Multiplier and
gradient methods"; Powell 1969): projections of y together with ``b - mu / rho``, the published
queries weighing rho, with ``mu`` moved by ``rho (M h - b)`` after each. The weights of every one
are raked to b, so what is returned has the published margins up to rounding.

Certificate: for any mu, any feasible h and h*, and ``g = F'W(F h - y)``,

    f(h) - f(h*) <= <g, h - h*> = <g + M'mu, h - h*> <= <g + M'mu, h> - n min_x (g + M'mu)_x,

since ``M h = M h*``, the minimum over possible cells: the gap of ``certificate.py`` for the slopes
``g + M'mu``, and ``|F h - F h*|_W^2`` is below it as there. n is known: every table gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Protocol

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.refine.cells.active_set import Support
from sfumato.refine.cells.certificate import Bound, known_total
from sfumato.refine.cells.grid import Grid
from sfumato.refine.cells.quadratic import Quadratic
from sfumato.refine.fit import Fit, Part
from sfumato.refine.rows.raking import rake
from sfumato.workload.constraints import CLOSE
from sfumato.workload.queries import Array, Integers

__all__ = ["Met", "fit_published", "published_cells"]

ROUNDS = 40
HEAVY = 10.0  # rho at first, against the greatest weight of an answer
HEAVIEST = 1e6
SLOW = 0.25  # rho grows where less of the difference than this is gone after a round
FINE = 0.2  # of the wanted gap: how well a round is solved
TINY = 1e-16  # half the squared difference from counts near 1 that counts as none
MIXED = 1e-3  # how much of a feasible histogram is mixed in where raking alone does not get there

Target = Callable[[float], float]


class Nearest(Protocol):
    """A projection without published tables."""

    def __call__(
        self,
        q: Quadratic,
        bound: Bound,
        target: Target,
        *,
        start: Support | None = None,
        watch: Callable[[float, float], None] | None = None,
    ) -> tuple[Support, str]: ...


@dataclass(frozen=True, eq=False)
class Met:
    """Weighted cells with the published margins, and their certified gap."""

    support: Support
    value: float
    method: str

    @property
    def gap(self) -> float:
        """Of the support."""
        return self.support.gap


def fit_published(
    q: Quadratic,
    unit: float,
    total: float,
    target: Target,
    nearest: Nearest,
    watch: Callable[[float, float], None] | None = None,
) -> Met:
    """The nearest histogram with the published tables of the grid, in a given unit of counts."""
    problem = _Problem.of(q, unit, total)
    rho = HEAVY * max(float(np.abs(q.weigh(np.ones(len(q.values)))).max()), 1e-9)
    inner, mu = problem.joined(rho), np.zeros(len(problem.counts))
    found: Support | None = None
    feasible: Support | None = None
    best: Met | None = None
    off = inf
    for _ in range(ROUNDS):
        inner = inner.towards(np.concatenate([q.values, problem.counts - mu / rho]))
        wanted = FINE * target(0.0 if best is None else best.value)
        found, method = nearest(inner, known_total(total), _always(wanted), start=found)
        miss = problem.miss(found)
        mu = mu + rho * miss
        met = problem.raked(found, feasible)
        if met is None and feasible is None:
            feasible = problem.feasible(nearest)
            met = problem.raked(found, feasible)
        if met is not None:
            gap = problem.gap(met, mu)
            if best is None or gap < best.gap:
                best = Met(replace(met, gap=gap), problem.value(met), f"{method}, multipliers")
            if watch is not None:
                watch(best.gap, target(best.value))
            if best.gap <= target(best.value):
                break
        before, off = off, float(np.linalg.norm(miss))
        if off > SLOW * before and rho < HEAVIEST:
            rho *= 4
            inner = problem.joined(rho)
    if best is None:
        raise WorkloadError(
            "the published tables could not be met to a billionth of all records, though nothing "
            "shows that they contradict each other; leave one of them out"
        )
    return best


def published_cells(grid: Grid, nearest: Nearest) -> Support:
    """Weighted cells with the published margins of a grid; refused where there are none."""
    total = max((t.total for t in grid.published), default=0.0)
    unit = total or 1.0
    none = Quadratic(Fit(grid.domain, ()), grid)
    found = _Problem.of(none, unit, total / unit).feasible(nearest)
    return Support(found.cells, found.weights * unit)


def _always(gap: float) -> Target:
    return lambda _: gap


@dataclass(frozen=True, eq=False)
class _Problem:
    """The answers ``q``, and the published tables in the same unit."""

    q: Quadratic
    parts: tuple[Part, ...]
    total: float

    @classmethod
    def of(cls, q: Quadratic, unit: float, total: float) -> _Problem:
        tables = [(t.term(q.grid.domain), t.values.reshape(-1) / unit) for t in q.grid.published]
        return cls(q, tuple(Part(term, b, np.ones(len(b))) for term, b in tables), total)

    @property
    def counts(self) -> Array:
        """b."""
        return np.concatenate([p.values for p in self.parts])

    def joined(self, rho: float) -> Quadratic:
        """The answers and the published counts, those of weight rho."""
        heavy = tuple(replace(p, weights=np.full(len(p.values), rho)) for p in self.parts)
        fit = replace(self.q.fit, parts=(*self.q.fit.parts, *heavy))
        return Quadratic(fit, self.q.grid, self.q.precision)

    def feasible(self, nearest: Nearest) -> Support:
        """A histogram with the published margins; refused where there is none."""
        grid = self.q.grid
        cells = np.arange(grid.size) if grid.possible is None else np.flatnonzero(grid.possible)
        even = np.full(len(cells), self.total / max(1, len(cells)))
        spread = rake(even, self.places(cells), [p.values for p in self.parts])
        if spread.off <= CLOSE:
            return Support(cells, spread.weights)
        alone = Quadratic(Fit(grid.domain, self.parts), grid)
        bound = known_total(self.total)
        found, _ = nearest(alone, bound, lambda value: 1e-3 * value + TINY)
        t = alone.stack_of(found.cells, found.weights)
        miss = alone.answers(t) - self.counts
        down = alone.adjoint(miss)
        value = 0.5 * float(miss @ miss)
        gap = bound.gap(float(alone.slopes(down).min()), float(down @ t), t)
        if value - gap > 10 * TINY:
            raise _infeasible(grid, sqrt(2 * (value - gap)) / max(self.total, 1e-300))
        return found

    def places(self, cells: Integers) -> list[Integers]:
        """For every table the cell of each cell of the grid."""
        grid = self.q.grid
        sets = [grid.axes(p.term.attributes) for p in self.parts]
        return list(grid.places(cells, sets).T)

    def miss(self, support: Support) -> Array:
        """``M h - b``."""
        pairs = zip(self.parts, self.places(support.cells), strict=True)
        sums = [np.bincount(at, support.weights, minlength=len(p.values)) for p, at in pairs]
        return np.concatenate(sums) - self.counts

    def raked(self, support: Support, feasible: Support | None) -> Support | None:
        """The cells with weights that have the published margins; None if none were found."""
        wanted = [p.values for p in self.parts]
        for share in (0.0, MIXED):
            cells, weights = support.cells, support.weights
            if share:
                if feasible is None:
                    break
                cells = np.concatenate([cells, feasible.cells])
                weights = np.concatenate([(1 - share) * weights, share * feasible.weights])
                cells, at = np.unique(cells, return_inverse=True)
                weights = np.bincount(at, weights).astype(np.float64)
            found = rake(weights, self.places(cells), wanted)
            if found.off <= CLOSE:
                held = found.weights > 0
                return Support(cells[held], found.weights[held])
        return None

    def value(self, support: Support) -> float:
        """f."""
        rest = self.q.answers(self.q.stack_of(support.cells, support.weights)) - self.q.values
        return max(0.0, 0.5 * float(rest @ self.q.weigh(rest)))

    def gap(self, support: Support, mu: Array) -> float:
        """What is certified of a feasible histogram by multipliers."""
        both = self.joined(1.0)
        t = both.stack_of(support.cells, support.weights)
        rest = both.answers(t)[: len(self.q.values)] - self.q.values
        down = both.adjoint(np.concatenate([self.q.weigh(rest), mu]))
        return known_total(self.total).gap(float(both.slopes(down).min()), float(down @ t), t)


def _infeasible(grid: Grid, off: float) -> WorkloadError:
    named = " and ".join(" x ".join(t.names) for t in grid.published)
    is_cut = grid.constraints is not None and grid.constraints.impossible
    return WorkloadError(
        f"no data set has the published {named}{' without an impossible record' if is_cut else ''}:"
        f" the nearest counts are off by {off:.2g} of all records; correct the tables or leave one "
        "of them out"
    )
