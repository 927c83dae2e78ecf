# SPDX-License-Identifier: Apache-2.0
"""Moments of yes/no attributes: one matrix that all one- and two-way tables are read from.

With ``z_0 = 1`` and ``z_i = -1`` in the first cell, ``+1`` in the second, the moments of data are
``M = sum z z'``, and the cell (s, t) of the table over i, j is ``(M_00 + s M_0i + t M_0j + st M_ij)
/ 4``. Entries of M are residuals in other units: ``|r_i|^2 = M_0i^2 / 2``, ``|r_ij|^2 = M_ij^2 /
4``. So a fit that is diagonal in residuals is ``1/2 sum_{a<b} h_ab (M_ab - C_ab)^2`` here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, sqrt

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.refine.fit import Names, Tables
from sfumato.refine.outer.curvature import Diagonal
from sfumato.workload.queries import Array, Integers

__all__ = ["Moments", "moment_bound", "positive_part"]

SIGNS = np.array([-1.0, 1.0])
# The cells (s, t) of a table as combinations of M_00, M_0i, M_0j, M_ij, times 4.
CELLS = np.array([[1.0, s, t, s * t] for s in SIGNS for t in SIGNS])
SWEEPS = 1000
SETTLED = 1e-10
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Moments:
    """The attributes in order; M has one row more, the constant."""

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
        found = cells @ CELLS / 4
        out = np.zeros((len(self.names) + 1,) * 2)
        out[i, j] = found[:, 3]
        np.add.at(out[0], i, found[:, 1])
        np.add.at(out[0], j, found[:, 2])
        return out + out.T, float(found[:, 0].sum())

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
        """The same score per record: ``const + sum_{a<b} C_ab z_a z_b``."""
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
    kept = values > 0
    if kept.sum() * 2 > len(values):  # the smaller side is the cheaper one
        lost = vectors[:, ~kept]
        return np.asarray(matrix - (lost * values[~kept]) @ lost.T)
    held = vectors[:, kept]
    return np.asarray((held * values[kept]) @ held.T)


def moment_bound(scores: Tables) -> float:
    """An upper bound on the greatest score of a record of yes/no attributes.

    ``max sum_{a<b} C_ab z_a z_b`` over signs is at most its maximum over unit vectors in place of
    signs, and that at most ``1/2 (sum(y) + m max(0, lambda_max(C - diag y)))`` for any y: weak
    duality, so this holds however well the vectors were found (Goemans, Williamson 1995, "Improved
    approximation algorithms for maximum cut"). They are found one at a time (Wang, Chang, Kolter
    2017, "The mixing method: low-rank coordinate descent for semidefinite programming").
    """
    names = tuple(dict.fromkeys(n for s in scores for n in s))
    for given, table in scores.items():
        if np.shape(table) != (2,) * len(given) or len(given) > 2:
            raise WorkloadError("moments bound scores of one or two yes/no attributes only")
        if not np.isfinite(table).all():
            raise WorkloadError(f"a score over {', '.join(given)} is not a finite number")
    costs, constant = Moments(names).scores(scores)
    size = len(costs)
    vectors = _start(size, min(size, ceil(sqrt(2 * size)) + 1))
    before = -np.inf
    for _ in range(SWEEPS):
        for a in range(size):
            pull = costs[a] @ vectors
            length = float(np.linalg.norm(pull))
            if length > 0:
                vectors[a] = pull / length
        lengths = np.linalg.norm(costs @ vectors, axis=1)
        value = float(lengths.sum())
        if value - before <= SETTLED * abs(value):
            break
        before = value
    excess = float(np.linalg.eigvalsh(costs - np.diag(lengths))[-1])
    slack = ROUNDING * (abs(constant) + float(np.abs(costs).sum()))
    return constant + 0.5 * (float(lengths.sum()) + size * max(0.0, excess)) + slack


def _start(size: int, rank: int) -> Array:
    """Unit vectors in different directions, the same on every run."""
    grid = np.outer(np.arange(1, size + 1), np.arange(1, rank + 1))
    vectors = np.cos(grid * sqrt(2) + np.arange(rank))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
