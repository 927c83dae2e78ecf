# SPDX-License-Identifier: Apache-2.0
"""The b-ary tree of interval sums, with the least-squares estimate in closed form.

Measured are the sums over all nodes of a complete tree whose leaves are the cells (padded with
cells that hold nothing, which costs no privacy: no record falls in them). One record is in one
node per level, so the column norms are ``height + 1`` (L1) and its root (L2).

With equal noise on every node the normal matrix is ``T'T = sum_j J_j``, where J_j has a block of
ones for every node of height j. All J_j share their eigenvectors: those constant on nodes of
height l that sum to zero over each parent have eigenvalue ``lambda_l = 1 + b + ... + b^l``. With
``A_l`` the average over the nodes of height l,

    (T'T)^-1 = sum_{l < height} (A_l - A_{l+1}) / lambda_l  +  A_height / lambda_height,

so that estimates and the variance of any query need averages only.

References: Hay, Rastogi, Miklau, Suciu 2010, "Boosting the accuracy of differentially private
histograms through consistency"; Dwork, Naor, Pitassi, Rothblum 2010 and Chan, Shi, Song 2011 for
the binary tree mechanism.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.workload.queries import Array, Integers, Numbers, QuerySet, Ranges

__all__ = ["BRANCHINGS", "Tree"]

BRANCHINGS = tuple(range(2, 17))
ROWS_AT_ONCE = 2**22  # queries x cells held together when a query is not an interval


@dataclass(frozen=True, eq=False)
class Tree(QuerySet):
    """The sums over all nodes of the b-ary tree on the cells, leaves first, root last."""

    branching: int = 2

    @property
    def name(self) -> str:
        """``tree(b)``."""
        return f"tree({self.branching})"

    @cached_property
    def height(self) -> int:
        """The least h with ``branching^h >= size``."""
        h, width = 0, 1
        while width < self.size:
            h, width = h + 1, width * self.branching
        return h

    @property
    def padded(self) -> int:
        """The number of leaves."""
        return int(self.branching**self.height)

    @property
    def rows(self) -> int:
        """The number of nodes."""
        return sum(self.branching**j for j in range(self.height + 1))

    def apply(self, x: Numbers) -> Numbers:
        """Sums level by level; exact for integers."""
        return self._sums(self._pad(x))

    def adjoint(self, y: Numbers) -> Numbers:
        """Every cell sums its ancestors."""
        return self._descend(y)[: self.size]

    def column_powers(self, p: int) -> Array:  # noqa: ARG002  0/1 coefficients: the same for all p
        """One node per level."""
        return np.full(self.size, self.height + 1.0)

    def row_powers(self, p: int) -> Array:  # noqa: ARG002  0/1 coefficients: the same for all p
        """The number of (real) cells of each node."""
        return np.asarray(self.apply(np.ones(self.size)), dtype=np.float64)

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """0 and 1, or 1 and 1 for the root."""
        cells = self.row_powers(1)
        return (cells == self.size).astype(np.float64), (cells > 0).astype(np.float64)

    def least_squares(self, y: Array) -> Array:
        """The best linear unbiased estimate of the cells, ``(T'T)^-1 T' y``."""
        return self._inverse_normal(self._descend(y))[: self.size]

    def row_variances(self, queries: QuerySet) -> Array:
        """Variance of every query at unit noise: ``q (T'T)^-1 q'``."""
        ends = queries.intervals()
        if ends is not None:
            return self._from_energies(lambda j: self._interval_energy(j, *ends))
        dense = queries.dense()
        return self._from_energies(lambda j: self._dense_energy(j, dense))

    def total_variance(self, queries: QuerySet) -> float:
        """The sum of the variances; all ranges cost no more than their end points."""
        if not isinstance(queries, Ranges):
            return float(self.row_variances(queries).sum())
        # A range is the difference of two of the size + 1 prefixes, each pair once:
        # the sum over pairs of |u_s - u_t|^2 is (size + 1) sum |u_t|^2 - |sum u_t|^2.
        ends = np.arange(self.size + 1, dtype=np.int64)
        summed = np.arange(self.size, 0, -1, dtype=np.float64)[None, :]

        def energy(j: int) -> Array:
            prefixes = self._interval_energy(j, np.zeros_like(ends), ends).sum()
            return np.array([(self.size + 1) * prefixes - self._dense_energy(j, summed)[0]])

        return float(self._from_energies(energy)[0])

    def row_fourths(self, queries: QuerySet) -> Array:
        """Sum of fourth powers of each row of the reconstruction (for the tails of Laplace)."""
        out = []
        dense = queries.dense()
        step = max(1, ROWS_AT_ONCE // self.rows)
        for first in range(0, len(dense), step):
            solved = self._inverse_normal(self._pad(dense[first : first + step].T))
            weights = self._sums(solved)
            out.append((weights**4).sum(axis=0))
        return np.concatenate(out)

    def _descend(self, y: Numbers) -> Numbers:
        """From the root down: every leaf gets the sum of its ancestors."""
        end, out = len(y), y[-1:]
        for j in range(self.height - 1, -1, -1):
            width = self.branching ** (self.height - j)
            end -= width // self.branching
            out = y[end - width : end] + np.repeat(out, self.branching, axis=0)
        return out

    def _pad(self, x: Numbers) -> Numbers:
        if self.padded == self.size:
            return x
        return np.concatenate([x, np.zeros((self.padded - self.size, *x.shape[1:]), dtype=x.dtype)])

    def _sums(self, leaves: Numbers) -> Numbers:
        levels = [leaves]
        for _ in range(self.height):
            children = levels[-1].reshape(-1, self.branching, *leaves.shape[1:])
            levels.append(children.sum(axis=1, dtype=leaves.dtype))
        return np.concatenate(levels)

    def _eigenvalue(self, level: int) -> float:
        return float(sum(self.branching**j for j in range(level + 1)))

    def _inverse_normal(self, leaves: Array) -> Array:
        """Apply ``(T'T)^-1`` over the padded cells."""
        shape = leaves.shape
        average = leaves
        out = np.zeros_like(leaves)
        for j in range(self.height):
            coarser = average.reshape(-1, self.branching, *shape[1:]).mean(axis=1)
            detail = average - np.repeat(coarser, self.branching, axis=0)
            out += np.repeat(detail / self._eigenvalue(j), self.branching**j, axis=0)
            average = coarser
        return out + np.repeat(average / self._eigenvalue(self.height), self.padded, axis=0)

    def _from_energies(self, energy: Callable[[int], Array]) -> Array:
        """``sum_l (|A_l q|^2 - |A_{l+1} q|^2) / lambda_l + |A_height q|^2 / lambda_height``."""
        here = energy(0)
        out = np.zeros_like(here)
        for j in range(self.height):
            above = energy(j + 1)
            out += (here - above) / self._eigenvalue(j)
            here = above
        return out + here / self._eigenvalue(self.height)

    def _interval_energy(self, j: int, starts: Integers, ends: Integers) -> Array:
        """``|A_j q|^2`` for intervals: prefixes p_e - p_s, by their closed-form inner products."""
        return (
            self._prefix_product(j, ends, ends)
            - 2 * self._prefix_product(j, starts, ends)
            + self._prefix_product(j, starts, starts)
        )

    def _prefix_product(self, j: int, s: Integers, e: Integers) -> Array:
        """``<A_j p_s, A_j p_e>`` for s <= e: whole nodes of p_s and what is left in its last."""
        width = self.branching**j
        node, rest = np.divmod(s, width)
        share = np.where(e // width > node, 1.0, (e % width) / width)
        return np.asarray(node * width + rest * share, dtype=np.float64)

    def _dense_energy(self, j: int, rows: Array) -> Array:
        width = self.branching**j
        sums = self._pad(rows.T).reshape(-1, width, len(rows)).sum(axis=1)
        return np.asarray((sums**2).sum(axis=0) / width, dtype=np.float64)
