# SPDX-License-Identifier: Apache-2.0
"""`support_bound` bounds the sum of table entries that one record can have, cell by cell unseen.

For score tables G over sets of attributes the support function of the body of margins is

    s(G) = max over cells x of  sum_S G_S[x_S].

It is hard in general (maximum cut), but any tables G' with the same sum in every cell bound it:
``s(G) <= sum_S max G'_S``. The best of these bounds is the maximum of G over locally consistent
tables of total 1 (linear programming duality; Wainwright, Jordan 2008, "Graphical models,
exponential families, and variational inference", section 8.4); it is s(G) itself when the sets form
a tree. The search is the splitting of `refine.local_consistency` for a linear function (as Martins
et al. 2011, "An augmented Lagrangian approach to constrained MAP inference"); each of its steps
gives such tables G', so a bound holds whenever the search stops.

With it rows, or any other estimate inside the body, have a certificate for ``min f``:
`row_certificate` returns it. `separation_oracle` tells a point inside the hull from one outside,
with a proof of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, WorkloadError
from sfumato.refine.local_consistency import LocalTables, project_locally
from sfumato.refine.project import project
from sfumato.refine.reconstruct import Fit, Tables
from sfumato.refine.residuals import TableLayout, agreement, layout
from sfumato.refine.semidefinite import moment_bound
from sfumato.study.study_limits import LIMITS
from sfumato.study.widths import Hull, half_diameter
from sfumato.types import Array, Integers, Names
from sfumato.workload.build import workload_of
from sfumato.workload.workload import Workload

__all__ = [
    "RowCertificate",
    "Separation",
    "SupportBound",
    "row_certificate",
    "separation_oracle",
    "support_bound",
]


@dataclass(frozen=True, eq=False)
class SupportBound:
    """``bound >= s(G)``, and tables of the same sums whose maxima add up to it."""

    bound: float
    tables: dict[Names, Array]


@dataclass(frozen=True, eq=False)
class RowCertificate:
    """What is proved of an estimate with this ``value`` of f: ``lower <= min f <= value``.

    Its answers are within ``distance`` of the projection, in the metric of f.
    """

    value: float
    lower: float
    distance: float

    @property
    def gap(self) -> float:
        """How far f can be from its minimum."""
        return max(0.0, self.value - self.lower)


@dataclass(frozen=True, eq=False, repr=False)
class Separation:
    """Inside, or a hyperplane: ``<normal, point> > offset >= <normal, y>`` for all y of the hull.

    Args:
        is_inside: Whether the point is in the hull, up to ``tolerance``.
        distance: How far the nearest answers are: at most ``tolerance`` if inside.
        nearest: The nearest answers of the hull.
        normal: Of length 1; None if inside.
        offset: The support of the hull along the normal; None if inside.
        margin: ``<normal, point> - offset``, above 0; None if inside.
        cells: If inside, the cells whose columns mix to ``nearest``, one row of codes each.
        weights: Their shares, which sum to 1.
        tolerance: What counts as inside.
    """

    is_inside: bool
    distance: float
    nearest: Array
    normal: Array | None
    offset: float | None
    margin: float | None
    cells: Integers
    weights: Array
    tolerance: float

    def __bool__(self) -> bool:
        return self.is_inside

    def __repr__(self) -> str:
        if self.is_inside:
            return f"inside: a mixture of {len(self.weights):,} cells is {self.distance:.2g} away"
        return (
            f"outside: a hyperplane separates the point from the hull by {self.margin:.4g} (the "
            f"nearest answers are {self.distance:.4g} away)"
        )


def separation_oracle(
    queries: Workload | npt.ArrayLike, point: npt.ArrayLike, *, tolerance: float | None = None
) -> Separation:
    """Whether a point is in K, the hull of the columns of F; if not, a hyperplane that proves it.

    The notes' oracle (Nikolov, "Marginal queries"): ``"inside"``, or a separating hyperplane. K
    holds answers as shares, of one record: divide counts by n. The point is projected onto K; the
    difference is the normal (the obtuse angle of section 3), and the support function of K along
    it, which no column exceeds, is the proof. A point inside comes with the cells that mix to it.

    Args:
        queries: A workload, or a matrix with a row per query.
        point: One number per query.
        tolerance: The distance within which a point counts as inside; 1e-6 times its length (or
            that of the hull) if None.

    Returns:
        Inside with a mixture of cells, or outside with the hyperplane.

    Raises:
        WorkloadError: The point does not fit the queries.
        TooLarge: The hull is too large.

    >>> import sfumato as sf
    >>> thresholds = [[1, 0, 0], [1, 1, 0]]
    >>> sf.study.separation_oracle(thresholds, [0.2, 0.7]).is_inside
    True
    >>> outside = sf.study.separation_oracle(thresholds, [0.7, 0.2])
    >>> outside.normal.round(3).tolist(), round(outside.margin, 3)
    ([0.707, -0.707], 0.354)
    """
    workload = workload_of(queries)
    hull = Hull.of(workload)
    at = hull.checked(np.asarray(point, dtype=np.float64))
    length = max(float(np.linalg.norm(at)), float(half_diameter(workload)))
    within = LIMITS.inside_tolerance * length if tolerance is None else float(tolerance)
    nearest = at
    for gap in LIMITS.separation_gaps:
        projected = project(at, workload, 1.0, gap=gap)
        nearest, away = projected.answers, at - projected.answers
        distance = float(np.linalg.norm(away))
        if distance <= within:
            cells, shares = projected.cells, projected.weights
            return Separation(True, distance, nearest, None, None, None, cells, shares, within)
        normal = away / distance
        reach = hull.support(normal).upper
        margin = float(normal @ at) - reach - LIMITS.reach_rounding * length
        if margin > 0:
            none = np.zeros((0, 0), dtype=np.int64)
            gone = np.zeros(0)
            return Separation(False, distance, nearest, normal, reach, margin, none, gone, within)
    raise PlanError(
        f"the point is {distance:.2g} from the nearest answers, too near to be told from inside; "
        "ask with a larger tolerance"
    )


def support_bound(
    domain: Domain,
    scores: Tables,
    *,
    steps: int = LIMITS.support_steps,
    close: float = LIMITS.support_close,
) -> SupportBound:
    """A bound on the maximal score of a cell, the best of its kind up to ``close`` relatively.

    Args:
        domain: What a record may look like.
        scores: Tables by the names of their attributes: the score of a cell is the sum of its
            entries.
        steps: The most steps of the search.
        close: How close to the best bound it ends, relatively.

    Returns:
        The bound and the tables that prove it.
    """
    for names, table in scores.items():
        if not np.isfinite(table).all():
            raise WorkloadError(f"a score over {', '.join(names)} is not a finite number")
    sets = [s for s in scores if s] or [domain.names[:1]]
    shape = layout(domain, sets)
    return _SupportSearch(shape, _folded(shape, scores)).run(steps, close)


def row_certificate(
    fit: Fit,
    tables: Tables,
    n: float | None,
    *,
    local: LocalTables | None = None,
    steps: int = LIMITS.support_steps,
) -> RowCertificate:
    """How close rows, given by their margins over ``fit.sets``, are to the projection.

    Two bounds, the better counts. The body K lies in L, so ``min_K f >= min_L f``, which ``local``
    has (made here if it is not given; for the same fit and n). And ``f(h) - min_K f <= <G, h> -
    n min_x G_x`` at the gradient G (Frank, Wolfe 1956), with ``min_x G_x >= -support_bound(-G)``;
    the same number bounds the squared distance.
    """
    answers = fit.answers(tables)
    value = fit.value(answers)
    lower = (project_locally(fit, n, steps=steps) if local is None else local).lower
    distance = sqrt(2 * max(0.0, value - lower))
    if n is not None:
        slope = fit.gradient(answers)
        along = sum(float(np.vdot(g, tables[s])) for s, g in slope.items())
        gap = max(0.0, along + n * _best_bound(fit.domain, slope, steps))
        lower, distance = max(lower, value - gap), min(distance, sqrt(gap))
    return RowCertificate(value, lower, distance)


def _best_bound(domain: Domain, slope: Tables, steps: int) -> float:
    """A bound on the maximum of ``-slope``, by tables; also by moments if attributes are yes/no."""
    scores = {s: -g for s, g in slope.items()}
    bound = support_bound(domain, scores, steps=steps).bound
    if all(len(s) <= 2 and g.shape == (2,) * len(s) for s, g in slope.items()):
        bound = min(bound, moment_bound(scores))
    return bound


def _folded(shape: TableLayout, scores: Tables) -> list[Array]:
    """All scores as tables of the maximal sets."""
    out = [np.zeros((len(s.sets), *s.shape)) for s in shape.tops]
    for names, table in scores.items():
        whole = shape.holders[names]
        g, t = shape.places[whole]
        axes = [n if a in names else 1 for a, n in zip(whole, out[g].shape[1:], strict=True)]
        out[g][t] += np.asarray(table, dtype=np.float64).reshape(axes)
    return out


class _SupportSearch:
    """The splitting: w per stack as in `refine.local_consistency`, ``pull`` its step size.

    ``pull`` is in units of the scores.
    """

    def __init__(self, shape: TableLayout, scores: list[Array]) -> None:
        self.shape, self.scores, self.form = shape, scores, agreement(shape)
        self.pull = max(float(np.ptp(t)) for g in scores for t in g) or 1.0
        self.mean = _mean(scores)
        self.w = [np.full_like(x, 1 / s.cells) for x, s in zip(scores, shape.tops, strict=True)]

    def run(self, steps: int, close: float) -> SupportBound:
        """The best bound of the steps, until bound and score of the relaxation meet."""
        scale = sum(float(np.abs(t).max()) for g in self.scores for t in g)
        best, tables, changes = _bound(self.scores), self.scores, LIMITS.support_changes
        balance = LIMITS.support_balance
        for step in range(1, steps + 1):
            v = [np.abs(w) for w in self.w]
            x = [a + g / self.pull for a, g in zip(v, self.scores, strict=True)]
            ones = [np.ones(len(a)) for a in x]
            self.form.minimise(x, ones, 1.0)
            # What agreement moved, ``x - v - G / pull``, is orthogonal to agreeing tables of total
            # 0: these have the sums of G, up to a constant.
            equal = self._same_mean([self.pull * (a - b) for a, b in zip(x, v, strict=True)])
            bound = _bound(equal)
            if bound < best:
                best, tables = bound, equal
            score = sum(float(np.vdot(a, g)) for a, g in zip(x, self.scores, strict=True))
            ratio, off = self._move(x)
            if off <= close and abs(best - score) <= close * scale:
                break
            is_time = step % LIMITS.support_check == 0
            if is_time and changes and not 1 / balance <= ratio <= balance:
                changes -= 1
                self._rebalance(2.0 if ratio > 1 else 0.5)
        # Sums of tables are the same up to rounding only.
        return SupportBound(best + LIMITS.support_rounding * scale, self._named(tables))

    def _same_mean(self, tables: list[Array]) -> list[Array]:
        missing = (self.mean - _mean(tables)) / len(self.shape.places)
        return [x + missing for x in tables]

    def _move(self, x: list[Array]) -> tuple[float, float]:
        primal = dual = 0.0
        off = 0.0
        for w, change in zip(self.w, x, strict=True):
            z = np.maximum(w, 0.0)
            change -= z
            w += LIMITS.support_step * change
            z -= np.maximum(w, 0.0)
            primal += float(np.vdot(change, change))
            dual += float(np.vdot(z, z))
            off = max(off, float(np.abs(change).max()))
        return (sqrt(primal / dual) if dual > 0 else 1.0), off

    def _rebalance(self, factor: float) -> None:
        self.pull *= factor
        self.w = [np.where(w < 0, w / factor, w) for w in self.w]

    def _named(self, tables: Sequence[Array]) -> dict[Names, Array]:
        return {s: tables[g][t] for s, (g, t) in self.shape.places.items()}


def _bound(tables: Sequence[Array]) -> float:
    return sum(float(x.reshape(len(x), -1).max(axis=1).sum()) for x in tables)


def _mean(tables: Sequence[Array]) -> float:
    """The mean over all cells of the sum of the tables."""
    return sum(float(x.reshape(len(x), -1).mean(axis=1).sum()) for x in tables)
