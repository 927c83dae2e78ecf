# SPDX-License-Identifier: Apache-2.0
"""Prefixes and ranges along one attribute, of any length: the certified optimum, measured.

For prefixes with any weights on the queries, for all ranges, and for ranges with prefixes, the
inverse Gram matrix is a chain of conductances (``solve/tridiagonal.py``). The optimal weights of
the cells come from ``solve/nuclear.py`` in O(cells) a step, the measured root (``Rooted``) is a
rational function of a tridiagonal matrix (``solve/tridiagonal.py``), answers and variances are
differences of running totals (``Points``), all in O(cells). Other attributes, asked cell by cell,
repeat the whole along every line: the product of the optima (``by`` of a workload).

Over running totals P in place of cells, prefixes with weights w have the Gram matrix ``diag(w)``,
all ranges ``(n + 1) I - J``, both together ``E I - J`` with E = n + 1 + w. Differences take P to
cells. They make of a diagonal inverse a chain without ground at its first cell, and of
``(E I - J)^-1 = I / E + J / (E (E - n))`` the same chain with one.

``ordered`` is for the mean error, ``ordered_minimax`` for the largest error of one group of
intervals, and ``minimax_strategy`` chooses among all ways to the least largest error.

References: Hale, Higham, Trefethen 2008, "Computing A^alpha, log(A), and related matrix functions
by contour integrals"; Li, Miklau, Hay, McGregor, Rastogi 2015, "The matrix mechanism".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod, sqrt
from typing import ClassVar

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, TooLarge
from sfumato.solve.minimax_orbits import minimax_orbits, query_orbits
from sfumato.solve.nuclear import CertifiedMinimax, certified_optimum
from sfumato.solve.solve_limits import LIMITS as SOLVE_LIMITS
from sfumato.solve.tridiagonal import (
    RELATIVE,
    Chain,
    PartialFractions,
    Root,
    Tridiagonal,
    applied,
    covariances,
    diagonals,
    inverse_fourth_root,
    inverse_root_poles,
    pole_count,
    potentials,
    root_diagonal,
)
from sfumato.strategy.base import Block, GaussianStrategy, Norm, Strategy
from sfumato.strategy.factorization import Factorization, factorization, factorwise
from sfumato.strategy.pieces import FactorMinimax, minimax_pieces
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Numbers, SearchProgress
from sfumato.workload.queries import Prefix, QuerySet, Ranges, Total, check_entries
from sfumato.workload.sensitivity import ROUND_UP, SensitivityBound
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

__all__ = [
    "Ordered",
    "Points",
    "Rooted",
    "column_bounds",
    "minimax_strategy",
    "ordered",
    "ordered_chain",
    "ordered_minimax",
    "prefix_inverse_gram",
    "prefix_weights",
    "range_bound",
    "range_points",
]


# The measured root

GRID_BITS = 30
RECORDS = 2**44  # a table has fewer records
HIGH_BITS = 40  # a value is split at 2^40 steps: either part is a float and an int64
# The bound of rounding, and so the sensitivity, relies on these.
MAXIMUM_POLES = 128  # of a measured root
EXTREME = 2.0**100  # floats between its inverse and it leave room for every product


@dataclass(frozen=True, eq=False)
class Rooted(Term):
    """``chain`` and ``mass`` are over the cells of ``along``; ``by`` are counted cell by cell.

    The coefficients ``M = diag(d) sum_j c_j (K + s_j diag(v))^-1`` are positive and given by floats
    that are taken as exact numbers, so M is an exact real matrix, never built and never rounded.
    What is rounded is ``M h``: it is computed to 100 bits (``solve/tridiagonal.py``), then to the
    grid of ``2^-30``. ``slack`` bounds what both can add to the distance of two tables, and
    ``planning/calibrate.py`` counts it. Proof: docs/proofs/rational-root.md.
    """

    along: str
    by: tuple[str, ...]
    chain: Chain
    mass: Array
    root: Root

    def __post_init__(self) -> None:
        positive = [self.mass, self.chain.links, self.root.shifts, self.root.weights]
        ground = self.chain.ground[self.chain.ground != 0]
        for numbers in [*positive, ground]:
            if not ((numbers > 1 / EXTREME) & (numbers < EXTREME)).all():
                raise PlanError("the weights of the cells are too uneven to be measured exactly")
        if not (np.diff(self.root.shifts) > 0).all():
            # Equal poles would have a double one in r^2, which ``Root.squared`` does not count.
            raise PlanError("the poles of a measured root must increase; round the weights")
        if len(self.root.shifts) > MAXIMUM_POLES:
            raise PlanError(f"at most {MAXIMUM_POLES} poles, got {len(self.root.shifts)}")

    @property
    def attributes(self) -> tuple[str, ...]:
        """The long attribute and the others, in the order of the domain."""
        return self.domain.in_order([self.along, *self.by])

    def separates(self, names: Sequence[str]) -> bool:
        """Whether the attributes are among those that are counted cell by cell."""
        return set(names) <= set(self.by)

    @property
    def rows(self) -> int:
        """The number of measured values: one per cell."""
        return prod(self.shape)

    @property
    def axis(self) -> int:
        """The position of the long attribute among them."""
        return self.attributes.index(self.along)

    def apply(self, table: Numbers) -> Numbers:
        """``M h`` in steps of the grid, within ``slack``, for counts; to rounding for floats."""
        if np.asarray(table).dtype.kind == "f":
            return self._each(self._in_floats, np.asarray(table)).reshape(-1)
        return self._each(self._rounded, np.asarray(table)).reshape(-1)

    def adjoint(self, y: Numbers) -> Array:
        """``M' y``, to the rounding of floats."""
        return np.asarray(self._each(self._back, np.asarray(y, dtype=np.float64)))

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """Sums of powers of every column along the attribute, or bounds on the squares."""
        powers = self._columns if p == 2 else (np.abs(self._dense()) ** p).sum(axis=0)
        return [((self.along,), powers)]

    def row_powers(self, p: int) -> Array:
        """The sum of ``|c|^p`` along every row, from the whole matrix; for few cells."""
        return self._spread((self._dense() ** p).sum(axis=1))

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """The least and greatest of every row, from the whole matrix; for few cells."""
        dense = self._dense()
        low = dense.min(axis=1) if self.rows == self.chain.nodes else np.zeros(len(dense))
        return self._spread(low), self._spread(dense.max(axis=1))

    @property
    def fraction_bits(self) -> int:
        """The bits after the point of the values (the coefficients are on no grid)."""
        return GRID_BITS

    @property
    def greatest(self) -> float:
        """A bound on every coefficient: the norm of the longest column."""
        return sqrt(float(self._columns.max()))

    @property
    def is_nonnegative(self) -> bool:
        """True: inverses of M-matrices have no negative entry."""
        return True

    @property
    def slack(self) -> float:
        """How far values may be off in L2: a step of the grid each, and the error of arithmetic."""
        step = (1 + 2.0**-13) * 2.0**-GRID_BITS
        arithmetic = 2 * RELATIVE * (self.chain.nodes + 8) * RECORDS * self.greatest
        return step * sqrt(self.rows) + arithmetic

    @cached_property
    def _columns(self) -> Array:
        return column_bounds(self.chain, self.mass, self.root)

    @cached_property
    def _width(self) -> Array:
        return np.sqrt(self.mass)

    def _each(self, one: Callable[[Numbers], Numbers], table: Numbers) -> Numbers:
        """A map of the cells of the long attribute, on every line."""
        lines = np.moveaxis(table.reshape(self.shape), self.axis, 0)
        flat = lines.reshape(len(lines), -1)
        mapped = np.stack([one(np.ascontiguousarray(column)) for column in flat.T], axis=1)
        return np.moveaxis(mapped.reshape(lines.shape), 0, self.axis)

    def _in_floats(self, line: Numbers) -> Numbers:
        u, _ = potentials(self.chain, self.mass, self.root.shifts, self.root.weights, line)
        return self._width * u

    def _back(self, line: Numbers) -> Numbers:
        sources = self._width * line
        return potentials(self.chain, self.mass, self.root.shifts, self.root.weights, sources)[0]

    def _rounded(self, line: Numbers) -> Numbers:
        # Counts beyond the most records there can be are cut, which moves no two tables apart.
        counts = np.clip(line, 0, RECORDS).astype(np.float64)
        high, low = applied(self.chain, self.mass, self.root, self._width, counts)
        return on_grid(high, low)

    def _dense(self) -> Array:
        n = self.chain.nodes
        check_entries(n * n, f"the matrix of a root over {n:,} cells")
        return np.stack([self._in_floats(unit) for unit in np.eye(n)], axis=1)

    def _spread(self, along: Array) -> Array:
        shape = [1] * len(self.shape)
        shape[self.axis] = len(along)
        return np.broadcast_to(along.reshape(shape), self.shape).reshape(-1)


def on_grid(high: Array, low: Array) -> Numbers:
    """``high + low`` in whole steps of the grid, to within 1/2 + 2^-14 of a step.

    Scaling by a power of two is exact. ``top 2^40`` is the nearest multiple of 2^40 to the high
    part, which differs from it by a float of at most 2^39; to that the low part is added with an
    error of half a unit in its last place, at most 2^-14, and rounded.
    """
    scaled = np.ldexp(high, GRID_BITS)
    top = np.rint(np.ldexp(scaled, -HIGH_BITS))
    rest = np.rint((scaled - np.ldexp(top, HIGH_BITS)) + np.ldexp(low, GRID_BITS))
    return np.asarray(_objects(top) * 2**HIGH_BITS + _objects(rest))


def _objects(whole: Array) -> Numbers:
    integers: Integers = whole.astype(np.int64)
    return integers.astype(object)


def column_bounds(chain: Chain, mass: Array, root: Root) -> Array:
    """Upper bounds on the squared column norms of M, a few roundings per node above them.

    ``M'M = D^-1/2 r(T)^2 D^-1/2``, whose diagonal is a difference of two sums of positive numbers,
    each good to ``(n + 32) 2^-48`` relatively.
    """
    plus, minus = diagonals(chain, mass, root.squared)
    error = (chain.nodes + 32) * 2.0**-48
    return np.asarray(plus - minus + error * (plus + minus), dtype=np.float64)


# Running totals and their covariance


@dataclass(frozen=True, eq=False)
class Points:
    """The points of a chain of cells with masses v, of which ``r(T) D^-1/2`` is measured.

    n cells have n + 1 points; ``P_t`` is the total before point t, an interval counts
    ``P_e - P_s``. The chain K of the cells (``solve/tridiagonal.py``) has a conductance at every
    point: the links inside, the ground at both ends. With their inverses W and the differences B
    from points to cells, ``K = B W^-1 B'``. Measured is ``y = r(T) D^-1/2 h + z`` with
    ``T = D^-1/2 K D^-1/2``, so with ``phi = 1 / r`` the estimate of the cells is

        D^1/2 phi(T) y = beta D^1/2 y + K u,
        u = alpha D^-1/2 y + sum_j g_j (K + z_j D)^-1 D^1/2 y,

    whose running totals need the currents of u only. Their covariance is a function of the chain of
    points, which has link ``1 / v_t`` between points t and t + 1 and masses W:

        Cov(P) = W^-1/2 psi(S) W^-1/2,    S = W^-1/2 B' D^-1 B W^-1/2,    psi(x) = phi(x)^2 / x,

    up to a constant, which no interval sees. Where the first cell has no ground (prefixes), point 0
    is pinned: ``P_0 = 0``.
    """

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
        is_zero = starts == 0 if self.is_pinned else np.zeros(len(starts), dtype=bool)
        first, last = starts[~is_zero], ends[~is_zero]
        node = 1 if self.is_pinned else 0
        shared_at = covariances(
            self._chain, 1 / self._conductance, self._terms, first - node, last - node
        )
        beside = np.flatnonzero(last == first + 1)
        at = first[beside]
        both = self._conductance[at - node] * self._conductance[at + 1 - node]
        shared_at[beside] -= self._psi.slope * both / self.mass[at]
        # The pole at 0: min(place_s, place_t), or -|place_s - place_t| / 2 where none is pinned.
        lower = self._place[first]
        at_zero = lower if self.is_pinned else (lower - self._place[last]) / 2
        shared_at += self._psi.first[0] * at_zero
        shared[~is_zero] = shared_at
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
    def maximum_of_ranges(self) -> float:
        """A bound on the variance of every interval: that of all pairs of blocks of points.

        ``psi`` is x^-1/2 up to the accuracy of the root. For x^-1/2, as for every Stieltjes
        function, entries of the covariance fall with the distance of the points. So for s in the
        block [a, b] and e in [c, d], ``C_ss + C_ee - 2 C_se`` is at most the greatest variance of
        either block less ``2 C_ad``. Up to ``LIMITS.point_blocks`` points every block is one
        point, and it is exact.
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
        """The conductance at every point that is not pinned."""
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
        """The partial fractions without the pole at 0, whose part is known in closed form."""
        psi = self._psi
        return PartialFractions(psi.shifts[1:], psi.first[1:], psi.second[1:])


def _block_starts(points: int) -> Integers:
    """The first points of at most ``LIMITS.point_blocks`` blocks.

    Blocks are shorter towards both ends, where variances change fastest.
    """
    if points <= LIMITS.point_blocks:
        return np.arange(points, dtype=np.int64)
    half = np.geomspace(1, points / 2 + 1, LIMITS.point_blocks // 2) - 1
    left = np.unique(half.astype(np.int64))
    return np.unique(np.concatenate([left, points - left[left > 0]]))


@dataclass(frozen=True, eq=False)
class Ordered(GaussianStrategy):
    """One measured root; every answer is a difference of two running totals."""

    _algorithm: ClassVar[str] = "ordered"

    @property
    def rooted(self) -> Rooted:
        """The root that is measured."""
        term = self.blocks[0].term
        if not isinstance(term, Rooted):
            raise TypeError("an ordered strategy measures one root")
        return term

    @cached_property
    def points(self) -> Points:
        """The running totals and their covariance at unit noise."""
        return Points(self.rooted.chain, self.rooted.mass, self.rooted.root)

    def running_totals(self, values: Sequence[Array]) -> Array:
        """One line per cell of the other attributes: totals before the points 0, ..., n."""
        y = np.asarray(values[0], dtype=np.float64).reshape(self.rooted.shape)
        lines = np.moveaxis(y, self.rooted.axis, -1).reshape(-1, self.rooted.chain.nodes)
        return np.stack([self.points.running_totals(np.ascontiguousarray(x)) for x in lines])

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The differences of running totals at the ends of the intervals."""
        self._check_listed(term)
        starts, ends = self._intervals(term)
        totals = self.running_totals(values)
        return self._in_order(term, totals[:, ends] - totals[:, starts])

    def sums_cells(self, term: int) -> bool:  # noqa: ARG002
        """All answers are differences of the same running totals."""
        return True

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """``Var(P_e - P_s)``, the same for every cell of the other attributes."""
        self._check_listed(term)
        each = self.points.of_intervals(*self._intervals(term))
        repeated = np.broadcast_to(each, (self._lines, len(each)))
        return self._in_order(term, block_variances[0] * repeated)

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The sum of ``variances``: all ranges at once from the points, others one by one."""
        if self._is_all_ranges(term):
            total = self.points.total_of_ranges
        else:
            total = float(self.points.of_intervals(*self._intervals(term)).sum())
        return block_variances[0] * self._lines * total

    def maximum_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The greatest of ``variances``; for all ranges a bound on it."""
        if self._is_all_ranges(term):
            return block_variances[0] * self.points.maximum_of_ranges
        return block_variances[0] * float(self.points.of_intervals(*self._intervals(term)).max())

    def effective_terms(self, term: int) -> Array:
        """Infinite for every answer: Gaussian noise adds up to Gaussian noise."""
        self._check_listed(term)
        return np.full(self.workload.terms[term].rows, np.inf)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c`` through the points, line by line."""
        self._check_listed(term)
        starts, ends = self._intervals(term)
        target = self.workload.terms[term]
        shape = target.row_shape
        names = [n for n in target.attributes if n == self.rooted.along]
        lines = np.asarray(coefficients, dtype=np.float64).reshape(shape)
        if names:
            lines = np.moveaxis(lines, target.attributes.index(self.rooted.along), -1)
        n = self.rooted.chain.nodes
        out = []
        for line in lines.reshape(self._lines, -1):
            weights = np.zeros(n + 1)
            np.add.at(weights, ends, line)
            np.subtract.at(weights, starts, line)
            out.append(self.points.transposed(weights))
        cells = [self.workload.domain[b].size for b in self.rooted.by]
        weights_of_cells = np.moveaxis(np.array(out).reshape(*cells, n), -1, self.rooted.axis)
        return {0: weights_of_cells.reshape(-1)}

    def covariance(
        self, term: int, queries: Sequence[int], block_variances: Sequence[float]
    ) -> Array:
        """``Cov(P_b - P_a, P_d - P_c)``: half the variances of ad, bc less those of ac, bd."""
        target = self.workload.terms[term]
        shape = target.row_shape
        places = np.unravel_index(np.array(queries, dtype=np.int64), shape) if shape else ()
        is_along = [n == self.rooted.along for n in target.attributes]
        along = [p for p, k in zip(places, is_along, strict=True) if k]
        starts, ends = self._picked(term, along[0] if along else np.zeros(len(queries), np.int64))
        points, where = np.unique(np.concatenate([starts, ends]), return_inverse=True)
        first, last = np.triu_indices(len(points), 1)
        apart = np.zeros((len(points), len(points)))
        apart[first, last] = self.points.of_intervals(points[first], points[last])
        apart += apart.T
        a, b = np.split(where.reshape(-1), 2)
        out = apart[np.ix_(a, b)] + apart[np.ix_(b, a)] - apart[np.ix_(a, a)] - apart[np.ix_(b, b)]
        for p, k in zip(places, is_along, strict=True):
            out *= 1.0 if k else p[:, None] == p  # other cells have noise of their own
        return np.asarray(block_variances[0] * out / 2, dtype=np.float64)

    def _picked(self, term: int, places: Integers) -> tuple[Integers, Integers]:
        """Starts and ends of some queries along the attribute, by number."""
        queries = self._queries(term)
        if not self._is_all_ranges(term):
            starts, ends = self._intervals(term)
            return starts[places], ends[places]
        # Those that start at i come after i n - i (i - 1) / 2 others.
        before = np.arange(queries.size, dtype=np.int64)
        before = before * queries.size - before * (before - 1) // 2
        starts = np.searchsorted(before, places, side="right") - 1
        return starts, starts + places - before[starts] + 1

    def maximum_column(self, norm: Norm, scales: Sequence[float]) -> SensitivityBound:
        """The greatest of the bounds of all columns."""
        if norm != 2:
            return super().maximum_column(norm, scales)
        return SensitivityBound(scales[0] * self.rooted.greatest**2 * ROUND_UP, is_exact=False)

    def _diameters(self, norm: Norm) -> tuple[float, ...]:
        """``2 |M_j|^2`` of the longest column: no coefficient is negative."""
        if norm != 2:
            return super()._diameters(norm)
        return (2 * self.rooted.greatest**2 * ROUND_UP,)

    @property
    def _lines(self) -> int:
        return prod(self.workload.domain[b].size for b in self.rooted.by)

    def _is_all_ranges(self, term: int) -> bool:
        return isinstance(self._queries(term), Ranges)

    def _queries(self, term: int) -> QuerySet:
        product = self.workload.terms[term].as_product()
        factors = {} if product is None else dict(product.factors)
        return factors.get(self.rooted.along, Total(self.rooted.chain.nodes))

    def _intervals(self, term: int) -> tuple[Integers, Integers]:
        ends = self._queries(term).intervals()
        if ends is None:
            raise TypeError("an ordered strategy answers intervals")
        return ends

    def _in_order(self, term: int, lines: Array) -> Array:
        """From a line per cell of ``by`` to the order of the asked attributes."""
        target = self.workload.terms[term]
        if self.rooted.along not in target.attributes:
            return lines.reshape(-1)
        cells = [self.workload.domain[b].size for b in self.rooted.by]
        place = target.attributes.index(self.rooted.along)
        return np.moveaxis(lines.reshape(*cells, -1), -1, place).reshape(-1)

    def _check_listed(self, term: int) -> None:
        target = self.workload.terms[term]
        if target.rows > WORKLOAD_LIMITS.array_entries:
            raise TooLarge(
                f"group {target.name!r} has {target.rows:,} answers, at most "
                f"{WORKLOAD_LIMITS.array_entries:,} are listed; ask for some of them with "
                f"release.ranges({self.rooted.along!r}, ...)"
            )


def ordered(
    workload: Workload,
    progress: Callable[[int, float], None] | None = None,
    tolerance: float | None = None,
) -> Ordered:
    """The certified optimum of prefixes or ranges along one attribute, for each cell of others.

    Refused when a group is no product, when several attributes are asked by intervals, when other
    attributes are not asked cell by cell in all groups alike, or for more than 2^25 cells.
    """
    along, by, weighted = _read(workload)
    gram = ordered_chain(weighted)
    if gram is None:
        raise PlanError(
            "ranges with prefixes of unequal weights, or with the total, have no tridiagonal "
            "inverse; ask for them in separate plans"
        )
    chain, diagonal = gram
    inverse = Tridiagonal(chain.diagonal(), -chain.links)
    if tolerance is None:
        tolerance = (
            LIMITS.ordered_fine_tolerance
            if chain.nodes <= LIMITS.ordered_fine_cells
            else LIMITS.ordered_tolerance
        )
    v = certified_optimum(
        root_diagonal(inverse, diagonal), chain.nodes, tolerance, all_bind=True, progress=progress
    ).v
    lines = prod(workload.domain[b].size for b in by)
    spectrum = _spectrum(chain, diagonal, v)
    bound = _bound(chain, v, *spectrum) * lines
    blocks = (_measured(workload, along, by, chain, v, spectrum),)
    return Ordered("factorization", "gaussian", workload, blocks, bound=bound)


def ordered_minimax(workload: Workload, tolerance: float = 2 * LIMITS.ordered_tolerance) -> Ordered:
    """A small largest error of prefixes or ranges of one attribute, for each cell of others.

    The same root as in ``ordered``, for the weights of the largest error: the certified optimum for
    prefixes, within a few percent of it for all ranges. Refused for more than one group and for
    other queries.
    """

    along, by, weighted = _read(workload)
    queries, weight = weighted[0]
    if len(weighted) != 1 or not queries.holds_prefixes:
        raise PlanError("the largest error is known in linear time for one group of intervals only")
    if isinstance(queries, Prefix):
        best = prefix_weights(queries.size, tolerance)
        gram = ordered_chain([(queries, best.w)])
        if gram is None:
            raise PlanError("the weights of the prefixes are too uneven")
        chain, diagonal = gram
        v, bound = best.v, best.lower
    else:
        chain, diagonal = _chain_of_points(range_points(queries.size))
        inverse = Tridiagonal(chain.diagonal(), -chain.links)
        solver = root_diagonal(inverse, diagonal)
        v = certified_optimum(solver, queries.size, tolerance, all_bind=True).v
        bound = range_bound(queries.size)
    blocks = (_measured(workload, along, by, chain, v, _spectrum(chain, diagonal, v)),)
    return Ordered(
        "factorization", "gaussian", workload, blocks, bound=bound * weight, objective="max"
    )


def _chain_of_points(weights: Array) -> tuple[Chain, Array]:
    """``V^-1`` and the diagonal of V for ranges that matter as products of weights of their ends.

    Over running totals the Gram matrix is ``diag(w) - w w'`` for weights of sum 1; on differences
    its inverse is ``diag(1 / w)``, for ``(diag(w) - w w') diag(1 / w) = I - w 1'``.
    """
    conductance = 1 / weights
    ground = np.zeros(len(weights) - 1)
    ground[0] += conductance[0]
    ground[-1] += conductance[-1]
    before = np.cumsum(weights)[:-1]
    after = np.cumsum(weights[::-1])[::-1][1:]
    return Chain(conductance[1:-1], ground), before * after


def ordered_chain(weighted: Sequence[tuple[QuerySet, float | Array]]) -> tuple[Chain, Array] | None:
    """``V^-1`` as a chain, and the diagonal of V, for weighted prefixes, totals and ranges.

    Weights are those of the squared errors: one for all queries of a set, or one per prefix. None
    where V^-1 is no chain.
    """
    n = weighted[0][0].size
    weights, even = np.zeros(n), 0.0
    for queries, weight in weighted:
        if isinstance(queries, Ranges):
            even += float(np.asarray(weight))
        elif isinstance(queries, Prefix):
            weights += weight
        elif queries.is_total:
            weights[-1] += float(np.asarray(weight))
        else:
            return None
    held = np.cumsum(weights[::-1])[::-1] + even * Ranges(n).column_powers(2)
    ground = np.zeros(n)
    if even == 0:
        if not (weights > 0).all():
            return None
        ground[-1] = 1 / weights[-1]
        return Chain(1 / weights[:-1], ground), held
    if not (weights == weights[0]).all():
        return None
    each = even * (n + 1) + float(weights[0])
    ground[-1] = 1 / each
    ground[0] += even / (each * (even + float(weights[0])))
    return Chain(np.full(n - 1, 1 / each), ground), held


def _read(workload: Workload) -> tuple[str, tuple[str, ...], list[tuple[QuerySet, float]]]:
    """The attribute of the intervals, the others, and the weighted query sets along it."""
    products = [t.as_product() for t in workload.terms]
    factors = [None if p is None else dict(p.factors) for p in products]
    names = {
        name
        for by_name in factors
        if by_name is not None
        for name, q in by_name.items()
        if q.holds_prefixes
    }
    if len(names) != 1:
        raise PlanError(
            f"intervals along exactly one attribute are needed, these are along {len(names)}"
        )
    along = names.pop()
    weighted: list[tuple[QuerySet, float]] = []
    others: set[tuple[str, ...]] = set()
    size = workload.domain[along].size
    for term, by_name in zip(workload.terms, factors, strict=True):
        if by_name is None:
            raise PlanError(f"group {term.name!r} is no product of query sets")
        queries = by_name.pop(along, Total(size))
        if not (queries.holds_prefixes or queries.is_total):
            raise PlanError(f"group {term.name!r} asks {along} for other queries than intervals")
        if not all(q.is_identity for q in by_name.values()):
            raise PlanError(f"group {term.name!r} asks other attributes for more than their cells")
        weighted.append((queries, term.weight**2))
        others.add(tuple(by_name))
    if len(others) != 1:
        raise PlanError("the groups are not by the same attributes")
    if not 2 <= size <= LIMITS.ordered_cells:
        raise TooLarge(
            f"{along} has {size:,} cells; allowed are 2 to {LIMITS.ordered_cells:,}, use coarser "
            "cells"
        )
    return along, others.pop(), weighted


def _spectrum(chain: Chain, diagonal: Array, v: Array) -> tuple[float, float]:
    """Bounds on the eigenvalues of T: the inverse of the trace of A, and Gershgorin's discs."""
    inverse = Tridiagonal(chain.diagonal(), -chain.links)
    return 1 / float(diagonal @ v), inverse.scaled(v).maximum_bound()


def _measured(
    workload: Workload,
    along: str,
    by: tuple[str, ...],
    chain: Chain,
    v: Array,
    spectrum: tuple[float, float],
) -> Block:
    """The root for these weights of cells, with column norms of at most 1."""
    lines = prod(workload.domain[b].size for b in by)
    check_entries(chain.nodes * lines, f"the table of {', '.join([along, *by])}")
    accuracy = (
        LIMITS.ordered_fine_root
        if chain.nodes <= LIMITS.ordered_fine_cells
        else SOLVE_LIMITS.root_accuracy
    )
    root = inverse_fourth_root(*spectrum, accuracy)
    longest = float(column_bounds(chain, v, root).max())
    scaled = Root(root.shifts, root.weights / np.sqrt(longest))
    term = Rooted(workload.domain, f"root {along}", 1.0, along, by, chain, v, scaled)
    return Block(term, 1.0)


def _bound(chain: Chain, v: Array, least: float, largest: float) -> float:
    """``(tr A^1/2)^2 / sum(v)`` without a subtraction: a lower bound on the squared error."""
    count = pole_count(least, largest, LIMITS.ordered_bound_accuracy)
    shifts, weights = inverse_root_poles(least, largest, count)
    plus, _ = diagonals(chain, v, PartialFractions(shifts, weights, np.zeros(count)))
    return float(v @ plus) ** 2 / float(v.sum()) * (1 - 4 * LIMITS.ordered_bound_accuracy)


# Least largest error


def minimax_strategy(workload: Workload, progress: SearchProgress | None = None) -> Strategy:
    """The strategy of least largest error ``max_q w_q^2 |r_q|^2 ||M||_{1->2}^2``, certified.

    ``bound`` is a lower bound on it for every strategy. Raises PlanError for terms that are no
    products and TooLarge for unions of too many classes of cells.

    ``solve/nuclear.py`` gives the mathematics: weights on queries and on cells, one bound, one
    certificate. Here structure makes it quick:

    * **prefixes**: reading cells and queries backwards takes the prefixes to their own transpose,
      so at an optimum the weights of the queries are those of the cells, backwards (the dual is
      concave: average an optimum with its reflection). With weights w on prefixes the inverse Gram
      matrix is ``diag_i = 1/w_i + 1/w_{i-1}, beside_i = -1/w_i``: still tridiagonal, O(cells) a
      step;
    * **all ranges of a long attribute**: weights that are products over the two ends, ``alpha_s
      beta_e``, keep the inverse Gram matrix tridiagonal too, as V_ij = a_min b_max. Ranges across
      the middle, weighted like the prefixes of either half, give a bound within 0.3% of the optimum
      in O(cells), and like weights on all pairs of points a strategy within a few percent of it;
    * **unions of products** with few classes of cells, such as all ranges of 2,048 cells: weights
      on orbits of queries (``solve/minimax_orbits.py``);
    * **one product** of any number of attributes: gamma_2 of a Kronecker product is the product of
      those of its factors (Lee, Shraibman, Spalek 2008), bounds and strategies multiply.

    The lower bound that a strategy carries is one on ``weighted_error("max")`` of every strategy
    for the same workload.
    """

    if _is_long(workload, Prefix, LIMITS.rational_root_cells) or _is_long(
        workload, Ranges, SOLVE_LIMITS.subspace_size + 1
    ):
        return ordered_minimax(workload, LIMITS.minimax_tolerance)
    try:
        return _by_orbits(workload, progress)
    except TooLarge:
        if len(workload.terms) > 1:
            return minimax_pieces(workload, _factor)
        if len(workload.terms[0].attributes) < 2:
            raise
        return factorwise(workload, lambda alone: _by_orbits(alone, progress), "max")


def _by_orbits(workload: Workload, progress: SearchProgress | None = None) -> Factorization:
    problem = minimax_orbits(workload)
    starts = {
        axis.name: prefix_weights(axis.cells, LIMITS.minimax_tolerance / 2)
        for axis, queries in zip(problem.axes, problem.common, strict=True)
        if isinstance(queries, Prefix)
    }
    subspaces, optimum = problem.solve(LIMITS.minimax_tolerance, starts, progress)
    return replace(factorization(workload, subspaces, optimum), objective="max")


def _factor(queries: QuerySet) -> FactorMinimax:
    """The weights of the queries of one attribute, of at most 2,048 classes of cells."""
    if isinstance(queries, Prefix):
        solved = prefix_weights(queries.size)
        return FactorMinimax(solved.w, solved.lower)
    domain = Domain({"x": queries.size})
    problem = minimax_orbits(Workload(domain, (Product(domain, "x", 1.0, (("x", queries),)),)))
    best = problem.weights(LIMITS.minimax_factor_tolerance)
    orbit_of = query_orbits(problem.axes[0], queries)[1]
    return FactorMinimax(best.w[orbit_of], best.lower)


def _is_long(workload: Workload, kind: type[Prefix] | type[Ranges], least: int) -> bool:
    """Whether the workload asks for such intervals of one long attribute, by cells of others."""
    term = workload.terms[0].as_product()
    if len(workload.terms) > 1 or term is None:
        return False
    long = [q for _, q in term.factors if isinstance(q, kind) and q.size >= least]
    return len(long) == 1 and all(q.is_identity or q is long[0] for _, q in term.factors)


def prefix_weights(size: int, tolerance: float = LIMITS.minimax_tolerance) -> CertifiedMinimax:
    """The weights of cells and of queries for all prefixes of ``size`` cells.

    >>> found = prefix_weights(64)
    >>> found.certificate < 1.0002
    True
    """

    def diagonal(v: Array) -> Array:
        return root_diagonal(*prefix_inverse_gram(v[::-1] / v.sum()))(v)

    # At w = v backwards the certificate of the largest error is the square of that of the mean.
    optimum = certified_optimum(diagonal, size, tolerance / 2, all_bind=True)
    total = float(optimum.v.sum())
    v = optimum.v / total
    # X has diagonal at most 1 and the errors are those of the cells backwards, times the total.
    upper = optimum.scale**2 * total
    return CertifiedMinimax(v, v[::-1].copy(), optimum.scale, upper, optimum.lower, optimum.steps)


def prefix_inverse_gram(weights: Array) -> tuple[Tridiagonal, Array]:
    """``V^-1`` and the diagonal of V for prefixes with weights on the queries."""
    inverse = 1 / weights
    diagonal = inverse.copy()
    diagonal[1:] += inverse[:-1]
    return Tridiagonal(diagonal, -inverse[:-1]), np.cumsum(weights[::-1])[::-1]


def range_bound(size: int, tolerance: float = LIMITS.minimax_factor_tolerance) -> float:
    """A lower bound on the squared largest error of all ranges of ``size`` cells, in O(cells).

    Only ranges from the first half (starts) to the second (ends) count, with product weights.
    """
    half = size // 2
    starts = prefix_weights(half + 1, LIMITS.minimax_rough_tolerance).w[::-1]
    ends = prefix_weights(size - half, LIMITS.minimax_rough_tolerance).w
    a = np.concatenate([np.cumsum(starts), np.full(size - half - 1, starts.sum())])
    b = np.concatenate([np.full(half, ends.sum()), np.cumsum(ends[::-1])[::-1]])
    # Neighbours differ in a left of the middle and in b right of it, so the inverse of
    # a_min b_max needs the weights alone: no small difference of large numbers.
    steps = np.concatenate([starts[1:] * ends.sum(), starts.sum() * ends[:-1]])
    beside = -1 / steps
    diagonal = np.zeros(size)
    diagonal[:-1] -= beside
    diagonal[1:] -= beside
    # Row sums of the inverse: at both ends, and where the halves meet.
    diagonal[0] += 1 / (starts[0] * ends.sum())
    diagonal[-1] += 1 / (starts.sum() * ends[-1])
    diagonal[half] -= 1 / (starts.sum() * ends.sum())
    inverse = Tridiagonal(diagonal, beside)
    optimum = certified_optimum(root_diagonal(inverse, a * b), size, tolerance, all_bind=True)
    return optimum.lower / float(starts.sum() * ends.sum())


def range_points(size: int) -> Array:
    """Weights on the points between cells, of sum 1: a range weighs the product of its ends."""
    half = size // 2
    left = prefix_weights(half + 1, LIMITS.minimax_rough_tolerance).w[::-1] ** LIMITS.point_evenness
    right = prefix_weights(size - half, LIMITS.minimax_rough_tolerance).w ** LIMITS.point_evenness
    both = np.concatenate([left / left.mean(), right / right.mean()])
    return np.asarray(both / both.sum(), dtype=np.float64)
