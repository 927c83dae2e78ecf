# SPDX-License-Identifier: Apache-2.0
"""Running totals at the points between cells, and how exactly a measured root knows them.

n cells have n + 1 points; ``P_t`` is the total before point t, an interval counts ``P_e - P_s``.
The chain K of the cells (``chain.py``) has a conductance at every point: the links inside, the
ground at both ends. With their inverses W and the differences B from points to cells,
``K = B W^-1 B'``. Measured is ``y = r(T) D^-1/2 h + z`` with ``T = D^-1/2 K D^-1/2``, so with
``phi = 1 / r`` the estimate of the cells is

    D^1/2 phi(T) y = beta D^1/2 y + K u,
    u = alpha D^-1/2 y + sum_j g_j (K + z_j D)^-1 D^1/2 y,

whose running totals need the currents of u only. Their covariance is a function of the chain of
points, which has link ``1 / v_t`` between points t and t + 1 and masses W:

    Cov(P) = W^-1/2 psi(S) W^-1/2,    S = W^-1/2 B' D^-1 B W^-1/2,    psi(x) = phi(x)^2 / x,

up to a constant, which no interval sees. Where the first cell has no ground (prefixes), point 0 is
pinned: ``P_0 = 0``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.plan.solve.chain import Chain, covariances, diagonals, potentials
from sfumato.plan.solve.rational import PartialFractions, Root
from sfumato.workload.queries import Array, Integers

__all__ = ["Points"]

BLOCKS = 1024  # of points, whose pairs bound the variances of all intervals


@dataclass(frozen=True, eq=False)
class Points:
    """The points of a chain of cells with masses v, of which ``r(T) D^-1/2`` is measured."""

    cells: Chain
    mass: Array
    root: Root

    def running_totals(self, y: Array) -> Array:
        """``P_0 = 0, ..., P_n`` from measured values."""
        phi = self.root.reciprocal
        width = np.sqrt(self.mass)
        u, current = potentials(self.cells, self.mass, phi.shifts, phi.gains, width * y)
        scaled = y / width
        u += phi.slope * scaled
        current += phi.slope * self.cells.links * (scaled[:-1] - scaled[1:])
        inner = phi.constant * np.cumsum(width * y)
        inner[:-1] += current
        inner[-1] += self.cells.ground[-1] * u[-1]
        return np.concatenate([[0.0], inner + self.cells.ground[0] * u[0]])

    def transposed(self, weights: Array) -> Array:
        """How much every measured value counts in ``sum_t weights_t P_t``."""
        phi = self.root.reciprocal
        width = np.sqrt(self.mass)
        # The weights on cells, and then phi(T) D^1/2, which is symmetric up to D.
        q = np.cumsum(weights[:0:-1])[::-1]
        links = self.cells.links * (q[:-1] - q[1:])
        sources = self.cells.ground * q
        sources[:-1] += links
        sources[1:] -= links
        u, _ = potentials(self.cells, self.mass, phi.shifts, phi.gains, sources)
        return np.asarray(
            phi.constant * width * q + phi.slope * sources / width + width * u, dtype=np.float64
        )

    @property
    def is_pinned(self) -> bool:
        """Whether the first point is known."""
        return not self.cells.ground[0] > 0

    @cached_property
    def variances(self) -> Array:
        """The diagonal of the covariance of all points, up to the constant if none is pinned."""
        plus, minus = diagonals(self._chain, 1 / self._conductance, self._terms)
        psi = self._psi
        out = plus - minus + psi.constant * self._conductance
        out += psi.slope * self._chain.diagonal() * self._conductance**2
        if not self.is_pinned:
            return np.asarray(out, dtype=np.float64)
        return np.concatenate([[0.0], out + psi.first[0] * self._place[1:]])

    def of_intervals(self, starts: Integers, ends: Integers) -> Array:
        """The variance of ``P_e - P_s`` for given pairs s < e."""
        shared = np.zeros(len(starts))
        known = starts == 0 if self.is_pinned else np.zeros(len(starts), dtype=bool)
        first, last = starts[~known], ends[~known]
        node = 1 if self.is_pinned else 0
        found = covariances(
            self._chain, 1 / self._conductance, self._terms, first - node, last - node
        )
        beside = np.flatnonzero(last == first + 1)
        at = first[beside]
        both = self._conductance[at - node] * self._conductance[at + 1 - node]
        found[beside] -= self._psi.slope * both / self.mass[at]
        # The pole at 0: min(place_s, place_t), or -|place_s - place_t| / 2 where none is pinned.
        lower = self._place[first]
        at_zero = lower if self.is_pinned else (lower - self._place[last]) / 2
        found += self._psi.first[0] * at_zero
        shared[~known] = found
        return np.asarray(
            self.variances[starts] + self.variances[ends] - 2 * shared, dtype=np.float64
        )

    @cached_property
    def total_of_ranges(self) -> float:
        """The sum of the variances of all intervals: ``(n + 1) sum_t C_tt - sum_st C_st``."""
        mass = 1 / self._conductance
        ones = np.ones(len(mass))
        everything = 0.0
        is_even = not self.is_pinned and bool((mass == mass[0]).all())
        for z, a, b in zip(self._terms.shifts, self._terms.first, self._terms.second, strict=True):
            if is_even:  # the chain has no ground: constants stay constant
                u = ones / (z * mass)
            else:
                u, _ = potentials(self._chain, mass, np.array([z]), np.ones(1), ones)
            everything += a * float(u.sum()) + b * float(mass @ u**2)
        psi, c = self._psi, self._conductance
        links = self._chain.links * np.diff(c) ** 2
        everything += psi.slope * float(links.sum() + self._chain.ground @ c**2)
        everything += psi.constant * float(c.sum())
        n = self.cells.nodes
        left = np.arange(1.0, n + 1)
        if self.is_pinned:  # sum_st min(place_s, place_t)
            everything += psi.first[0] * float(self.mass @ (n + 1 - left) ** 2)
        else:  # sum_st -|place_s - place_t| / 2
            everything -= psi.first[0] * float(self.mass @ (left * (n + 1 - left)))
        return (n + 1) * float(self.variances.sum()) - float(everything)

    @cached_property
    def greatest_of_ranges(self) -> float:
        """A bound on the variance of every interval: that of all pairs of blocks of points.

        ``psi`` is x^-1/2 up to the accuracy of the root. For x^-1/2, as for every Stieltjes
        function, entries of the covariance fall with the distance of the points. So for s in the
        block [a, b] and e in [c, d], ``C_ss + C_ee - 2 C_se`` is at most the greatest variance of
        either block less ``2 C_ad``. Up to BLOCKS points every block is one point, and it is exact.
        """
        first = _block_starts(len(self.variances))
        last = np.append(first[1:], len(self.variances)) - 1
        greatest = np.maximum.reduceat(self.variances, first)
        one, other = np.triu_indices(len(first))
        apart = last[other] > first[one]
        one, other = one[apart], other[apart]
        far = first[one], last[other]
        shared = (self.variances[far[0]] + self.variances[far[1]] - self.of_intervals(*far)) / 2
        return float((greatest[one] + greatest[other] - 2 * shared).max())

    @cached_property
    def _conductance(self) -> Array:
        """At every point that is not pinned."""
        ground = self.cells.ground
        inner = np.concatenate([self.cells.links, ground[-1:]])
        return inner if self.is_pinned else np.concatenate([ground[:1], inner])

    @cached_property
    def _chain(self) -> Chain:
        """The chain of the points that are not pinned."""
        links = 1 / self.mass
        if not self.is_pinned:
            return Chain(links, np.zeros(len(links) + 1))
        ground = np.zeros(len(links))
        ground[0] = links[0]
        return Chain(links[1:], ground)

    @cached_property
    def _place(self) -> Array:
        """The resistance between points 0 and t: the masses in between."""
        return np.concatenate([[0.0], np.cumsum(self.mass)])

    @property
    def _psi(self) -> PartialFractions:
        return self.root.reciprocal.squared_over_x

    @cached_property
    def _terms(self) -> PartialFractions:
        """Without the pole at 0, whose part is known in closed form."""
        psi = self._psi
        return PartialFractions(psi.shifts[1:], psi.first[1:], psi.second[1:])


def _block_starts(points: int) -> Integers:
    """At most BLOCKS blocks, shorter towards both ends, where variances change fastest."""
    if points <= BLOCKS:
        return np.arange(points, dtype=np.int64)
    half = np.geomspace(1, points / 2 + 1, BLOCKS // 2) - 1
    left = np.unique(half.astype(np.int64))
    return np.unique(np.concatenate([left, points - left[left > 0]]))
