# SPDX-License-Identifier: Apache-2.0
"""The semidefinite relaxation for two-way tables of yes/no attributes.

Write a record as ``z`` with ``z_0 = 1`` and ``z_i = +-1``. Data of n records have moments
``M = sum z z'``: positive semidefinite, n on the diagonal. All one- and two-way answers are linear
in M. The body L = {M >= 0, M_ii = n} holds all data and lies within a constant times the hull of
``x y'`` over signs x, y (Grothendieck's inequality), so projecting onto it has the error of the
projection mechanism up to that constant, in polynomial time (Dwork, Nikolov, Talwar 2015,
"Efficient algorithms for privately releasing marginals via convex relaxations"). With
``cells=True`` tables must be non-negative too, which cuts L further.

    M  <-  argmin f(M) + p/2 |M - V|^2          elementwise: f is diagonal in the moments
    V  <-  reflection of its positive semidefinite part      (one eigendecomposition)

is the splitting of ``local_consistency``. The negative parts are dual feasible, so every check has
a lower bound; moments scaled to an exact diagonal are an upper one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil, isfinite, sqrt

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.refine.reconstruct import Fit, Tables
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.residuals import Diagonal, diagonal, layout, minimum_at_total
from sfumato.solve.effort import EIGEN, deadline, effort, must_stop, spend
from sfumato.types import Array, Integers, Names

__all__ = [
    "MomentMatrix",
    "SemidefiniteMoments",
    "moment_bound",
    "positive_part",
    "project_semidefinitely",
]


# Moments

SIGNS = np.array([-1.0, 1.0])
# The cells (s, t) of a table as combinations of M_00, M_0i, M_0j, M_ij, times 4.
CELLS = np.array([[1.0, s, t, s * t] for s in SIGNS for t in SIGNS])


@dataclass(frozen=True, eq=False)
class MomentMatrix:
    """The matrix of moments of yes/no attributes, which all one- and two-way tables are read from.

    With ``z_0 = 1`` and ``z_i = -1`` in the first cell, ``+1`` in the second, the moments of data
    are ``M = sum z z'``, and the cell (s, t) of the table over i, j is
    ``(M_00 + s M_0i + t M_0j + st M_ij) / 4``. Entries of M are residuals in other units:
    ``|r_i|^2 = M_0i^2 / 2``, ``|r_ij|^2 = M_ij^2 / 4``. So a fit that is diagonal in residuals is
    ``1/2 sum_{a<b} h_ab (M_ab - C_ab)^2`` here. ``names`` are the attributes in order; M has one
    row more, the constant.
    """

    names: Names

    @cached_property
    def pairs(self) -> tuple[Integers, Integers]:
        """Rows and columns of M for every pair of attributes."""
        first, second = np.triu_indices(len(self.names), 1)
        return first.astype(np.int64) + 1, second.astype(np.int64) + 1

    def coordinates(self, form: Diagonal) -> tuple[Array, Array]:
        """``h`` and ``C``, symmetric; the diagonal is zero."""
        size = len(self.names) + 1
        heights, centres = np.zeros((size, size)), np.zeros((size, size))
        for b, name in enumerate(self.names, 1):
            h, c = form.at((name,))
            heights[0, b], centres[0, b] = h / 2, SIGNS @ c
            for a, other in enumerate(self.names[: b - 1], 1):
                h, c = form.at((other, name))
                heights[a, b], centres[a, b] = h / 4, SIGNS @ c @ SIGNS
        return heights + heights.T, centres + centres.T

    def cells(self, matrix: Array) -> Array:
        """The four cells of the table of every pair."""
        i, j = self.pairs
        ones = np.full(len(i), matrix[0, 0])
        entries = np.stack([ones, matrix[0, i], matrix[0, j], matrix[i, j]], axis=1)
        return np.asarray(entries @ CELLS.T / 4, dtype=np.float64)

    def adjoint(self, cells: Array) -> tuple[Array, float]:
        """The transposed map: the entries off the diagonal, each pair once, and the total."""
        i, j = self.pairs
        entries = cells @ CELLS / 4
        out = np.zeros((len(self.names) + 1,) * 2)
        out[i, j] = entries[:, 3]
        np.add.at(out[0], i, entries[:, 1])
        np.add.at(out[0], j, entries[:, 2])
        return out + out.T, float(entries[:, 0].sum())

    def weights(self) -> tuple[Array, float]:
        """``cells`` followed by ``adjoint`` is diagonal: its entries, and that of the total."""
        out = np.full((len(self.names) + 1,) * 2, 0.25)
        out[0, 1:] = out[1:, 0] = (len(self.names) - 1) / 4
        np.fill_diagonal(out, 0.0)
        return out, len(self.pairs[0]) / 4

    def table(self, matrix: Array, names: Names) -> Array:
        """The table of at most two attributes, axes in the order they are named."""
        at = [self.names.index(n) + 1 for n in names]
        total = matrix[0, 0]
        if not at:
            return np.asarray(total)
        if len(at) == 1:
            return np.asarray((total + SIGNS * matrix[0, at[0]]) / 2)
        i, j = at
        entries = np.array([total, matrix[0, i], matrix[0, j], matrix[i, j]])
        return np.asarray(entries @ CELLS.T / 4, dtype=np.float64).reshape(2, 2)

    def scores(self, tables: Tables) -> tuple[Array, float]:
        """C and the constant of the score of a record, ``const + sum_{a<b} C_ab z_a z_b``."""
        out, constant = np.zeros((len(self.names) + 1,) * 2), 0.0
        for names, table in tables.items():
            at = [self.names.index(n) + 1 for n in names]
            values = np.asarray(table, dtype=np.float64)
            constant += float(values.mean())
            if len(at) == 1:
                out[0, at[0]] += SIGNS @ values / 2
            elif len(at) == 2:
                out[0, at[0]] += float((SIGNS @ values).sum()) / 4
                out[0, at[1]] += float((values @ SIGNS).sum()) / 4
                out[min(at), max(at)] += float(SIGNS @ values @ SIGNS) / 4
        return out + out.T, constant


def positive_part(matrix: Array) -> Array:
    """The nearest positive semidefinite matrix: negative eigenvalues are dropped."""
    values, vectors = np.linalg.eigh(matrix)
    is_positive = values > 0
    if is_positive.sum() * 2 > len(values):  # the smaller side is the cheaper one
        lost = vectors[:, ~is_positive]
        return np.asarray(matrix - (lost * values[~is_positive]) @ lost.T)
    held = vectors[:, is_positive]
    return np.asarray((held * values[is_positive]) @ held.T)


def moment_bound(scores: Tables) -> float:
    """An upper bound on the greatest score of a record of yes/no attributes.

    ``max sum_{a<b} C_ab z_a z_b`` over signs is at most its maximum over unit vectors in place of
    signs, and that at most ``1/2 (sum(y) + m max(0, lambda_max(C - diag y)))`` for any y: weak
    duality, so this holds however well the vectors were found (Goemans, Williamson 1995, "Improved
    approximation algorithms for maximum cut"). They are found one at a time (Wang, Chang, Kolter
    2017, "The mixing method: low-rank coordinate descent for semidefinite programming").
    """
    names = tuple(dict.fromkeys(n for s in scores for n in s))
    for names_of, table in scores.items():
        if np.shape(table) != (2,) * len(names_of) or len(names_of) > 2:
            raise WorkloadError("moments bound scores of one or two yes/no attributes only")
        if not np.isfinite(table).all():
            raise WorkloadError(f"a score over {', '.join(names_of)} is not a finite number")
    costs, constant = MomentMatrix(names).scores(scores)
    size = len(costs)
    vectors = _start(size, min(size, ceil(sqrt(2 * size)) + 1))
    before = -np.inf
    for _ in range(LIMITS.mixing_sweeps):
        for a in range(size):
            pull = costs[a] @ vectors
            length = float(np.linalg.norm(pull))
            if length > 0:
                vectors[a] = pull / length
        lengths = np.linalg.norm(costs @ vectors, axis=1)
        value = float(lengths.sum())
        if value - before <= LIMITS.mixing_settled * abs(value):
            break
        before = value
    excess = float(np.linalg.eigvalsh(costs - np.diag(lengths))[-1])
    slack = LIMITS.mixing_rounding * (abs(constant) + float(np.abs(costs).sum()))
    return constant + 0.5 * (float(lengths.sum()) + size * max(0.0, excess)) + slack


def _start(size: int, rank: int) -> Array:
    """Unit vectors in different directions, the same on every run."""
    grid = np.outer(np.arange(1, size + 1), np.arange(1, rank + 1))
    vectors = np.cos(grid * sqrt(2) + np.arange(rank))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class SemidefiniteMoments:
    """``matrix``: moments of (1, attributes), +1 for the second cell; f within ``gap`` of least."""

    names: Names
    matrix: Array
    answers: list[Array]
    value: float
    gap: float
    steps: int

    @property
    def distance(self) -> float:
        """The answers are this close to the projection, in the metric of f."""
        return sqrt(2 * self.gap)

    def margin(self, names: Names) -> Array:
        """The table of at most two of the attributes."""
        unknown = [n for n in names if n not in self.names]
        if unknown or len(set(names)) != len(names) or len(names) > 2:
            raise WorkloadError(
                f"moments give tables of at most two of {', '.join(self.names)}; got "
                f"{', '.join(names)}"
            )
        return MomentMatrix(self.names).table(self.matrix, names)


def project_semidefinitely(
    fit: Fit,
    n: float | None,
    *,
    cells: bool = False,
    gap: float = LIMITS.relaxation_gap,
    enough: float = 0.0,
    steps: int = LIMITS.moment_steps,
    seconds: float | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> SemidefiniteMoments:
    """The moments of least f with ``n`` (None: any equal number) on the diagonal.

    For fits of one- and two-way tables, totals and residuals of yes/no attributes. ``gap`` is
    relative to the value (an absolute one of ``enough`` will do as well); what was reached is in
    the result.
    """
    names, form = _checked(fit, n, gap)
    search = _MomentSearch(fit, MomentMatrix(names), form, n, cells)
    with effort("moments", deadline(seconds), steps=LIMITS.relaxation_multiplications):
        return search.run(gap, enough, steps, progress)


def _checked(fit: Fit, n: float | None, gap: float) -> tuple[Names, Diagonal]:
    if n is not None and not (isfinite(n) and n >= 0):
        raise WorkloadError(f"the number of records must be 0 or more, got {n}; None if not public")
    if not (isfinite(gap) and gap >= 0):
        raise WorkloadError(f"the gap must be a number of 0 or more, got {gap}")
    for part in fit.parts:
        if not (np.isfinite(part.values).all() and np.isfinite(part.weights).all()):
            raise WorkloadError(f"group {part.term.name!r} has a value that is not a finite number")
    names = fit.domain.in_order({a for s in fit.sets for a in s})
    wide = [a for a in names if fit.domain[a].size != 2]
    if not names or wide or any(len(s) > 2 for s in fit.sets):
        raise WorkloadError(
            "the semidefinite relaxation is for tables of one or two yes/no attributes; "
            + (f"{wide[0]!r} has {fit.domain[wide[0]].size} cells" if wide else "got other sets")
            + "; use local consistency instead"
        )
    if len(names) > LIMITS.moment_attributes:
        raise TooLarge(
            f"{len(names):,} attributes need eigendecompositions of that order, the limit is "
            f"{LIMITS.moment_attributes:,}; use local consistency instead"
        )
    form = diagonal(fit, layout(fit.domain, fit.sets))
    if form is None:
        raise WorkloadError(
            "the semidefinite relaxation is for tables, totals and residuals with one weight per "
            "group; use local consistency instead"
        )
    if n is None and not form.tells_total():
        raise WorkloadError("the queries do not tell the total; give the number of records")
    return names, form


class _MomentSearch:
    """The state: w for the moments and, with ``cells``, for the cells of all pairs."""

    def __init__(
        self, fit: Fit, moments: MomentMatrix, form: Diagonal, n: float | None, cells: bool
    ) -> None:
        self.fit, self.moments, self.form, self.n = fit, moments, form, n
        self.heights, self.centres = moments.coordinates(form)
        height, centre = form.at(())
        self.total_height, self.total_centre = height, float(centre)
        self.cells = cells and len(moments.names) > 1
        size = len(moments.names) + 1
        seen = self.heights[self.heights > 0]
        self.pull = float(np.median(seen)) if seen.size else 1.0
        start = self.centres.copy()
        np.fill_diagonal(start, max(self.total_centre, 0.0) if n is None else n)
        self.w = start
        self.v = moments.cells(start) if self.cells else np.zeros((0, 4))
        self.size, self.lower = size, 0.0

    def run(
        self,
        gap: float,
        enough: float,
        steps: int,
        progress: Callable[[int, float], None] | None,
    ) -> SemidefiniteMoments:
        """The moments when the bounds meet, or when the steps are used up."""
        whole = self.fit.value([np.zeros_like(p.values) for p in self.fit.parts])
        floor = max(LIMITS.gap_rounding * whole, enough)
        step, changes, positive = 0, LIMITS.moment_changes, positive_part(self.w)
        while True:
            step += 1
            spend(EIGEN * float(self.size) ** 3)
            table = np.maximum(self.v, 0.0)
            x = self._minimise(2 * positive - self.w, 2 * table - self.v)
            last = step >= steps or must_stop()
            if step % LIMITS.steps_between_bounds == 0 or last:
                made = self._feasible(positive, float(x[0, 0]))
                upper = self._value(made)
                forces = self.pull * (positive - self.w), self.pull * (table - self.v)
                self.lower = max(self.lower, self.dual(*forces))
                if progress is not None:
                    progress(step, (upper - self.lower) / max(upper, floor, LIMITS.gap_denominator))
                if upper - self.lower <= max(gap * upper, floor) or last:
                    return self._result(made, step)
            positive, ratio = self._move(x, positive, table)
            if (
                step % LIMITS.steps_between_bounds == 0
                and changes
                and not 1 / LIMITS.moment_balance <= ratio <= LIMITS.moment_balance
            ):
                changes -= 1
                self._rebalance(2.0 if ratio > 1 else 0.5, positive)

    def _minimise(self, v: Array, t: Array) -> Array:
        """The moments of least f with pulls towards v and towards cells t."""
        height = self.heights + 2 * self.pull
        goal = self.heights * self.centres + 2 * self.pull * v
        total_height = self.total_height + self.pull * self.size
        total = self.total_height * self.total_centre + self.pull * float(np.trace(v))
        if self.cells:
            back, whole = self.moments.adjoint(t)
            each, all_pairs = self.moments.weights()
            height, goal = height + self.pull * each, goal + self.pull * back
            total_height, total = (
                total_height + self.pull * all_pairs,
                total + self.pull * whole,
            )
        x = goal / height
        np.fill_diagonal(x, total / total_height if self.n is None else self.n)
        return x

    def _move(self, x: Array, positive: Array, table: Array) -> tuple[Array, float]:
        """The step of w; its positive part, and the ratio of the primal residual to the dual."""
        off = x - positive
        self.w = self.w + LIMITS.moment_step * off
        following = positive_part(self.w)
        primal = float(np.vdot(off, off))
        dual = float(np.vdot(following - positive, following - positive))
        if self.cells:
            gone = self.moments.cells(x) - table
            self.v = self.v + LIMITS.moment_step * gone
            change = np.maximum(self.v, 0.0) - table
            primal += float(np.vdot(gone, gone))
            dual += float(np.vdot(change, change))
        return following, sqrt(primal / dual) if dual > 0 else 1.0

    def _rebalance(self, factor: float, positive: Array) -> None:
        """Another pull with the same multipliers."""
        self.pull *= factor
        self.w = positive + (self.w - positive) / factor
        self.v = np.where(self.v < 0, self.v / factor, self.v)

    def dual(self, matrix: Array, cells: Array) -> float:
        """A lower bound on f from a matrix that is positive semidefinite and cells of 0 or more.

        ``min_M f(M) - <Z, M> - <lambda, cells(M)>``, in closed form. Where f does not see an entry
        the force on it is taken out of Z, which then is lifted by its least eigenvalue.
        """
        force, whole = 2 * matrix, 0.0
        if self.cells:
            back, whole = self.moments.adjoint(cells)
            force = force + back
        off = ~np.eye(self.size, dtype=bool)
        blind = off & (self.heights == 0)
        repaired = np.where(blind, matrix - force / 2, matrix)
        minimum = float(np.linalg.eigvalsh(repaired)[0])
        lifted = float(np.trace(matrix)) + self.size * max(0.0, -minimum)
        seen = self.heights > 0
        drop = (
            force[seen] ** 2 / (2 * self.heights[seen]) + force[seen] * self.centres[seen]
        ).sum()
        rest = minimum_at_total(self.total_height, self.total_centre, lifted + whole, self.n)
        return self.form.base - 0.5 * float(drop) + rest

    def _feasible(self, positive: Array, total: float) -> Array:
        """Moments with the exact diagonal; mixed with independent ones where cells are negative."""
        total = max(0.0, total) if self.n is None else self.n
        diagonal_of = np.diagonal(positive)
        if total == 0 or not (diagonal_of > 0).all():
            return total * np.eye(self.size)
        scale = np.sqrt(total / diagonal_of)
        made = positive * np.outer(scale, scale)
        np.fill_diagonal(made, total)
        if self.cells:
            minimum = float(self.moments.cells(made).min())
            share = -minimum / (total / 4 - minimum) if minimum < 0 else 0.0
            made = (1 - share) * made + share * total * np.eye(self.size)
        return np.asarray(made, dtype=np.float64)

    def _value(self, matrix: Array) -> float:
        squares = self.heights * (matrix - self.centres) ** 2
        total = self.total_height * (float(matrix[0, 0]) - self.total_centre) ** 2
        return self.form.base + 0.25 * float(squares.sum()) + 0.5 * total

    def _result(self, made: Array, step: int) -> SemidefiniteMoments:
        tables = {s: self.moments.table(made, s) for s in self.fit.sets}
        answers = self.fit.answers(tables)
        value = self.fit.value(answers)
        gap = max(0.0, value - self.lower)
        return SemidefiniteMoments(self.moments.names, made, answers, value, gap, step)
