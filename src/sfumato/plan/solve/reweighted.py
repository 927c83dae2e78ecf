# SPDX-License-Identifier: Apache-2.0
"""Queries with a weight each, up to symmetry: their Gram matrix and their variances.

The largest error is found with weights on queries (``largest.py``), so the Gram matrix must follow
the weights and every step asks for the variance of every query. Both are linear maps between
weights and matrices, one the adjoint of the other:

    w -> Q' W Q = sum_q w_q q'q        and        K -> (q K q')_q.

For intervals both are two running sums over the corners (start, end), O(queries + cells^2); other
query sets are small enough for their products of coefficients.

Queries that differ by a permutation of exchangeable cells (``symmetry.py``) share a weight: an
average over the permutations is no worse, as the bound is concave in the weights. They form an
orbit; a table of counts has one orbit per class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from sfumato.errors import TooLarge
from sfumato.plan.solve.symmetry import CLASS_PART, Axis
from sfumato.workload.queries import (
    Array,
    Integers,
    Numbers,
    QuerySet,
)

__all__ = [
    "IntervalOrbits",
    "Orbits",
    "Reweighted",
    "RowOrbits",
    "mirrored",
    "query_orbits",
    "weighted_gram",
]

HELD = 2**25  # products of coefficients that are held for one query set


@dataclass(frozen=True, eq=False)
class Orbits(ABC):
    """The orbits of the queries of one factor, each with how many queries it has.

    Arrays have the orbits (or the two class coordinates) first, any further axes after them.
    """

    axis: Axis
    copies: Array

    @abstractmethod
    def gram(self, label: int, weights: Array) -> Array:
        """``sum_q w_q q'q`` on class coordinates, or the number it is on differences.

        ``weights`` holds the weight of all queries of an orbit together. The result has two class
        axes of length 1 for differences within class ``label``.
        """

    @abstractmethod
    def variances(self, label: int, covariance: Array) -> Array:
        """``q K q'`` of one query of every orbit, K on the part ``label`` of the axis."""

    @property
    @abstractmethod
    def reached(self) -> tuple[int, ...]:
        """The classes whose differences some query sees."""


@dataclass(frozen=True, eq=False)
class IntervalOrbits(Orbits):
    """Intervals on an axis whose cells all differ: every query is its own orbit."""

    starts: Integers
    stops: Integers

    def gram(self, label: int, weights: Array) -> Array:  # noqa: ARG002  there are no differences
        """``V_ij`` is the weight of the intervals from min(i, j) or before to beyond the max."""
        n = self.axis.cells
        corners = np.zeros((n + 1, n + 1, *weights.shape[1:]))
        corners[self.starts, self.stops] = weights
        before = np.cumsum(corners[:n], axis=0)
        upper = np.cumsum(before[:, :0:-1], axis=1)[:, ::-1]
        i = np.arange(n)
        order = np.minimum.outer(i, i), np.maximum.outer(i, i)
        return np.asarray(upper[order], dtype=np.float64)

    def variances(self, label: int, covariance: Array) -> Array:  # noqa: ARG002
        """Corner sums, as in ``quadratic.py``; a part of a matrix need not be symmetric."""
        n = self.axis.cells
        corners = np.zeros((n + 1, n + 1, *covariance.shape[2:]))
        np.cumsum(covariance, axis=0, out=corners[1:, 1:])
        np.cumsum(corners[1:, 1:], axis=1, out=corners[1:, 1:])
        own = corners[np.arange(n + 1), np.arange(n + 1)]
        across = corners[self.starts, self.stops] + corners[self.stops, self.starts]
        return np.asarray(own[self.stops] + own[self.starts] - across, dtype=np.float64)

    @property
    def reached(self) -> tuple[int, ...]:
        """None: every class is one cell."""
        return ()


@dataclass(frozen=True, eq=False)
class RowOrbits(Orbits):
    """One row per orbit: coefficients on normalised class vectors, squares of the differences.

    ``rows`` is orbits x classes; ``squares[o, c]`` is the squared length of query o within class c
    after its mean there is taken off.
    """

    rows: Array
    squares: Array

    def gram(self, label: int, weights: Array) -> Array:
        """A sum of outer products; on differences the mean over the n - 1 dimensions."""
        if label != CLASS_PART:
            each = self.squares[:, label] / (int(self.axis.sizes[label]) - 1)
            return np.asarray(np.tensordot(each, weights, axes=(0, 0))[None, None])
        found = np.tensordot(self._products(), weights, axes=(0, 0))
        classes = self.axis.classes
        return np.asarray(found.reshape(classes, classes, *weights.shape[1:]), dtype=np.float64)

    def variances(self, label: int, covariance: Array) -> Array:
        """``q K q'``; on differences K is a number."""
        if label != CLASS_PART:
            return np.asarray(np.multiply.outer(self.squares[:, label], covariance[0, 0]))
        flat = covariance.reshape(-1, *covariance.shape[2:])
        return np.asarray(np.tensordot(self._products(), flat, axes=1), dtype=np.float64)

    def _products(self) -> Array:
        """Orbits x classes^2."""
        return (self.rows[:, :, None] * self.rows[:, None, :]).reshape(len(self.rows), -1)

    @property
    def reached(self) -> tuple[int, ...]:
        """The classes in which a query treats the cells unequally."""
        return tuple(int(c) for c in np.flatnonzero(self.squares.max(axis=0) > 0))


def query_orbits(axis: Axis, queries: QuerySet) -> tuple[Orbits, Integers]:
    """The orbits of a query set, and the orbit of every query."""
    ends = queries.intervals()
    if axis.classes == axis.cells and ends is not None and not queries.is_total:
        own = np.arange(queries.rows)
        return IntervalOrbits(axis, np.ones(queries.rows), *ends), own
    if queries.is_total:
        rows, orbit_of = np.sqrt(axis.sizes.astype(np.float64))[None], np.zeros(1, dtype=np.int64)
        return RowOrbits(axis, np.ones(1), rows, np.zeros((1, axis.classes))), orbit_of
    if queries.is_identity:
        sizes = axis.sizes.astype(np.float64)
        kept = RowOrbits(axis, sizes, np.diag(sizes**-0.5), np.diag(1 - 1 / sizes))
        return kept, axis.class_of
    return _dense_orbits(axis, queries.dense())


def _dense_orbits(axis: Axis, dense: Array) -> tuple[Orbits, Integers]:
    """Queries about one cell go by class and size of their coefficient, the others are alone."""
    if len(dense) * axis.classes**2 > HELD:
        raise TooLarge(
            f"{len(dense):,} queries on {axis.classes:,} classes of cells of {axis.name!r} are too "
            f"many for the largest error; their products of coefficients may be {HELD:,}"
        )
    single = (dense != 0).sum(axis=1) == 1
    where = np.abs(dense).argmax(axis=1)
    keys = np.zeros((len(dense), 3))
    keys[single, 1] = axis.class_of[where[single]]
    keys[single, 2] = np.abs(dense).max(axis=1)[single]
    keys[~single, 0] = np.arange(1, 1 + int((~single).sum()))
    _, first, orbit_of = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    orbit_of = orbit_of.reshape(-1)
    chosen = dense[first]
    rows = chosen @ axis.indicator
    whole = chosen**2 @ (axis.indicator > 0)
    squares = np.maximum(whole - rows**2, 0.0)
    squares = np.where(squares > 1e-12 * np.maximum(whole, rows**2), squares, 0.0)
    return RowOrbits(axis, np.bincount(orbit_of).astype(np.float64), rows, squares), orbit_of


def mirrored(axis: Axis, queries: QuerySet | None) -> Integers | None:
    """Where every orbit goes when the cells are read backwards; None when it leaves the set."""
    if queries is None or queries.is_total:
        return np.zeros(1, dtype=np.int64)
    if axis.classes == 1:
        return np.zeros(1, dtype=np.int64) if queries.is_identity else None
    ends = queries.intervals() if queries.is_mirrored else None
    if axis.classes != axis.cells or ends is None:
        return None
    starts, stops = ends
    at = starts * (axis.cells + 1) + stops
    flipped = (axis.cells - stops) * (axis.cells + 1) + (axis.cells - starts)
    order = np.argsort(at)
    return np.asarray(order[np.searchsorted(at, flipped, sorter=order)], dtype=np.int64)


def weighted_gram(queries: QuerySet, weights: Array) -> Array:
    """``Q' W Q`` for weights on the queries."""
    axis = Axis("", np.arange(queries.size))
    orbits, orbit_of = query_orbits(axis, queries)
    total = np.zeros(len(orbits.copies))
    np.add.at(total, orbit_of, weights)
    return orbits.gram(CLASS_PART, total)


@dataclass(frozen=True, eq=False)
class Reweighted(QuerySet):
    """``W^1/2 Q``: every query of ``base`` times the root of its weight; for planning only."""

    base: QuerySet
    weights: Array

    @property
    def name(self) -> str:
        """That of the base."""
        return self.base.name

    @property
    def is_exact(self) -> bool:
        """Roots of weights are rounded."""
        return False

    @property
    def rows(self) -> int:
        """As many as those of the base."""
        return self.base.rows

    def apply(self, x: Numbers) -> Numbers:
        """In floats: nothing measured comes from here."""
        return _times(np.sqrt(self.weights), self.base.apply(np.asarray(x, dtype=np.float64)))

    def adjoint(self, y: Numbers) -> Numbers:
        """The transposed map."""
        return self.base.adjoint(_times(np.sqrt(self.weights), np.asarray(y, dtype=np.float64)))

    def gram(self) -> Array:
        """``Q' W Q``."""
        return weighted_gram(self.base, self.weights)

    def column_powers(self, p: int) -> Array:
        """For squares the diagonal of the Gram matrix."""
        if p == 2:
            return np.diag(self.gram()).copy()
        return np.asarray((np.abs(self.dense()) ** p).sum(axis=0), dtype=np.float64)

    @property
    def greatest(self) -> float:
        """The greatest absolute coefficient."""
        return float(np.sqrt(self.weights.max())) * self.base.greatest

    @property
    def is_nonnegative(self) -> bool:
        """As the base."""
        return self.base.is_nonnegative


def _times(weights: Array, rows: Numbers) -> Array:
    return np.asarray(weights.reshape(-1, *[1] * (rows.ndim - 1)) * rows, dtype=np.float64)
