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
`row_certificate` returns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.refine.local_consistency import LocalTables, project_locally
from sfumato.refine.reconstruct import Fit, Tables
from sfumato.refine.residuals import TableLayout, agreement, layout
from sfumato.refine.semidefinite import moment_bound
from sfumato.study.study_limits import LIMITS
from sfumato.types import Array, Names

__all__ = [
    "RowCertificate",
    "SupportBound",
    "row_certificate",
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
