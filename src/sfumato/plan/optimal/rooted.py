# SPDX-License-Identifier: Apache-2.0
"""A measured term: ``r(T) D^-1/2`` along one attribute, single cells along others.

The coefficients ``M = diag(d) sum_j c_j (K + s_j diag(v))^-1`` are positive and given by floats
that are taken as exact numbers, so M is an exact real matrix, never built and never rounded. What
is rounded is ``M h``: it is computed to 100 bits (``doubled.py``), then to the grid of ``2^-30``.
``slack`` bounds what both can add to the distance of two tables, and ``plan.calibrate`` counts it.
Proof: docs/proofs/rational-root.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod, sqrt

import numpy as np

from sfumato.errors import PlanError
from sfumato.plan.solve.chain import Chain, diagonals, potentials
from sfumato.plan.solve.doubled import MOST_POLES, RELATIVE, applied
from sfumato.plan.solve.rational import Root
from sfumato.workload.queries import Array, Integers, Numbers, check_entries
from sfumato.workload.term import Term

__all__ = ["Rooted", "column_bounds"]

GRID_BITS = 30
RECORDS = 2**44  # a table has fewer records
HIGH_BITS = 40  # a value is split at 2^40 steps: either part is a float and an int64
EXTREME = 2.0**100  # floats between its inverse and it leave room for every product


@dataclass(frozen=True, eq=False)
class Rooted(Term):
    """``chain`` and ``mass`` are over the cells of ``along``; ``by`` are counted cell by cell."""

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
        if len(self.root.shifts) > MOST_POLES:
            raise PlanError(f"at most {MOST_POLES} poles, got {len(self.root.shifts)}")

    @property
    def attributes(self) -> tuple[str, ...]:
        """Both kinds, in the order of the domain."""
        return self.domain.in_order([self.along, *self.by])

    @property
    def rows(self) -> int:
        """One value per cell."""
        return prod(self.shape)

    @property
    def axis(self) -> int:
        """Where the long attribute is."""
        return self.attributes.index(self.along)

    def apply(self, table: Numbers) -> Numbers:
        """``M h`` in steps of the grid, within ``slack``, for counts; to rounding for floats."""
        if np.asarray(table).dtype.kind == "f":
            return self._each(self._plain, np.asarray(table)).reshape(-1)
        return self._each(self._rounded, np.asarray(table)).reshape(-1)

    def adjoint(self, y: Numbers) -> Array:
        """The transposed map, to the rounding of floats."""
        return np.asarray(self._each(self._back, np.asarray(y, dtype=np.float64)))

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """The same along every line: sums of coefficients, or upper bounds of their squares."""
        powers = self._columns if p == 2 else (np.abs(self._dense()) ** p).sum(axis=0)
        return [((self.along,), powers)]

    def row_powers(self, p: int) -> Array:
        """From the whole matrix; for few cells."""
        return self._spread((self._dense() ** p).sum(axis=1))

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """From the whole matrix; for few cells."""
        dense = self._dense()
        low = dense.min(axis=1) if self.rows == self.chain.nodes else np.zeros(len(dense))
        return self._spread(low), self._spread(dense.max(axis=1))

    @property
    def fraction_bits(self) -> int:
        """The grid of the values (the coefficients are on none)."""
        return GRID_BITS

    @property
    def greatest(self) -> float:
        """No coefficient is greater than the norm of its column."""
        return sqrt(float(self._columns.max()))

    @property
    def is_nonnegative(self) -> bool:
        """Inverses of M-matrices have no negative entry."""
        return True

    @property
    def slack(self) -> float:
        """Rounding moves the difference of two values by one step; arithmetic errs relatively."""
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
        found = np.stack([one(np.ascontiguousarray(column)) for column in flat.T], axis=1)
        return np.moveaxis(found.reshape(lines.shape), 0, self.axis)

    def _plain(self, line: Numbers) -> Numbers:
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
        return np.stack([self._plain(unit) for unit in np.eye(n)], axis=1)

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
