# SPDX-License-Identifier: Apache-2.0
"""The least largest error of a union of products, through its symmetries.

The problem of ``orbits.py`` with a weight on every orbit of queries (``Orbits``): the Gram matrix
of an invariant subspace follows the weights, and the variance of a query is the sum over the
subspaces it reaches. ``nuclear.py`` finds the weights; the subspaces they end with are an
``OrbitProblem`` again, so the strategy is measured like any other factorization.

Where the workload reads the same backwards (ranges, windows, tables), mirrored cells and queries
share a weight, and every eigenvalue problem falls into an even and an odd one of half the size.

``Reweighted`` is a query set with a weight on each query, and ``row_quadratics`` the variance of
every query of a set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.solve.effort import EIGEN, spend
from sfumato.solve.nuclear import EIGEN_ROUNDING, Certified, CertifiedMinimax, certified_minimax
from sfumato.solve.orbits import (
    CLASS_SUMS,
    Axis,
    OrbitProblem,
    Part,
    Subspace,
    exchangeable,
)
from sfumato.solve.solve_limits import LIMITS
from sfumato.types import Array, Integers, Numbers, SearchProgress
from sfumato.workload.queries import QuerySet, Total
from sfumato.workload.workload import Workload

__all__ = [
    "IntervalOrbits",
    "MinimaxOrbits",
    "Orbits",
    "Reweighted",
    "RowOrbits",
    "minimax_orbits",
    "mirrored",
    "query_orbits",
    "row_quadratics",
    "weighted_gram",
]


# Queries with a weight each, up to symmetry


@dataclass(frozen=True, eq=False)
class Orbits(ABC):
    """The orbits of the queries of one factor, each with how many queries it has.

    Arrays have the orbits (or the two class coordinates) first, any further axes after them.

    The largest error is found with weights on queries (``nuclear.py``), so the Gram matrix must
    follow the weights and every step asks for the variance of every query. Both are linear maps
    between weights and matrices, one the adjoint of the other:

        w -> Q' W Q = sum_q w_q q'q        and        K -> (q K q')_q.

    For intervals both are two running sums over the corners (start, end), O(queries + cells^2);
    other query sets are small enough for their products of coefficients.

    Queries that differ by a permutation of exchangeable cells (``orbits.py``) share a weight: an
    average over the permutations is no worse, as the bound is concave in the weights. They form an
    orbit; a table of counts has one orbit per class.
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
        """``V_ij``: the weight of the intervals from min(i, j) or before to beyond the max."""
        n = self.axis.cells
        corners = np.zeros((n + 1, n + 1, *weights.shape[1:]))
        corners[self.starts, self.stops] = weights
        before = np.cumsum(corners[:n], axis=0)
        upper = np.cumsum(before[:, :0:-1], axis=1)[:, ::-1]
        i = np.arange(n)
        order = np.minimum.outer(i, i), np.maximum.outer(i, i)
        return np.asarray(upper[order], dtype=np.float64)

    def variances(self, label: int, covariance: Array) -> Array:  # noqa: ARG002
        """``q K q'`` by corner sums of K, which need not be symmetric."""
        n = self.axis.cells
        corners = np.zeros((n + 1, n + 1, *covariance.shape[2:]))
        np.cumsum(covariance, axis=0, out=corners[1:, 1:])
        np.cumsum(corners[1:, 1:], axis=1, out=corners[1:, 1:])
        own = corners[np.arange(n + 1), np.arange(n + 1)]
        across = corners[self.starts, self.stops] + corners[self.stops, self.starts]
        return np.asarray(own[self.stops] + own[self.starts] - across, dtype=np.float64)

    @property
    def reached(self) -> tuple[int, ...]:
        """No class: every class is one cell."""
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
        """The sum of outer products; on differences its mean over the n - 1 dimensions."""
        if label != CLASS_SUMS:
            each = self.squares[:, label] / (int(self.axis.sizes[label]) - 1)
            return np.asarray(np.tensordot(each, weights, axes=(0, 0))[None, None])
        gram = np.tensordot(self._products(), weights, axes=(0, 0))
        classes = self.axis.classes
        return np.asarray(gram.reshape(classes, classes, *weights.shape[1:]), dtype=np.float64)

    def variances(self, label: int, covariance: Array) -> Array:
        """``q K q'``; on differences K is a number."""
        if label != CLASS_SUMS:
            return np.asarray(np.multiply.outer(self.squares[:, label], covariance[0, 0]))
        flat = covariance.reshape(-1, *covariance.shape[2:])
        return np.asarray(np.tensordot(self._products(), flat, axes=1), dtype=np.float64)

    def _products(self) -> Array:
        """The products of the coefficients: orbits x classes^2."""
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
        orbits = RowOrbits(axis, sizes, np.diag(sizes**-0.5), np.diag(1 - 1 / sizes))
        return orbits, axis.class_of
    return _dense_orbits(axis, queries.dense())


def _dense_orbits(axis: Axis, dense: Array) -> tuple[Orbits, Integers]:
    """The orbits: queries about one cell by class and coefficient, the others alone."""
    if len(dense) * axis.classes**2 > LIMITS.orbit_products:
        raise TooLarge(
            f"{len(dense):,} queries on {axis.classes:,} classes of cells of {axis.name!r} are too "
            "many for the largest error; their products of coefficients may be "
            f"{LIMITS.orbit_products:,}"
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
    return orbits.gram(CLASS_SUMS, total)


@dataclass(frozen=True, eq=False)
class Reweighted(QuerySet):
    """``W^1/2 Q``: every query of ``base`` times the root of its weight; for planning only."""

    is_exact = False  # roots of weights are rounded

    base: QuerySet
    weights: Array

    @property
    def name(self) -> str:
        """The name of the base."""
        return self.base.name

    @property
    def rows(self) -> int:
        """The number of queries of the base."""
        return self.base.rows

    def apply(self, x: Numbers) -> Numbers:
        """``W^1/2 Q x`` in floats: nothing measured comes from here."""
        return _times(np.sqrt(self.weights), self.base.apply(np.asarray(x, dtype=np.float64)))

    def adjoint(self, y: Numbers) -> Numbers:
        """``Q' W^1/2 y`` in floats."""
        return self.base.adjoint(_times(np.sqrt(self.weights), np.asarray(y, dtype=np.float64)))

    def gram(self) -> Array:
        """``Q' W Q``."""
        return weighted_gram(self.base, self.weights)

    def column_powers(self, p: int) -> Array:
        """The sum of ``|c|^p`` of every column; squares from the Gram matrix."""
        if p == 2:
            return np.diag(self.gram()).copy()
        return np.asarray((np.abs(self.dense()) ** p).sum(axis=0), dtype=np.float64)

    @property
    def greatest(self) -> float:
        """The greatest absolute coefficient."""
        return float(np.sqrt(self.weights.max())) * self.base.greatest

    @property
    def is_nonnegative(self) -> bool:
        """Whether no coefficient of the base is below zero."""
        return self.base.is_nonnegative


def _times(weights: Array, rows: Numbers) -> Array:
    return np.asarray(weights.reshape(-1, *[1] * (rows.ndim - 1)) * rows, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class TermOrbits:
    """The orbits of one term: a product of the orbits of its factors, one for every axis."""

    factors: tuple[Orbits, ...]
    weight: float  # squared

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of orbits of every axis."""
        return tuple(len(f.copies) for f in self.factors)

    @cached_property
    def copies(self) -> Array:
        """The number of queries of every orbit."""
        out = np.ones(())
        for factor in self.factors:
            out = np.multiply.outer(out, factor.copies)
        return out

    def parts(self) -> list[Part]:
        """The subspaces that some query reaches."""
        return list(product(*[[CLASS_SUMS, *f.reached] for f in self.factors]))

    def gram(self, part: Part, weights: Array) -> Array:
        """The Gram matrix on a subspace, for the weight of every query."""
        summed = self.weight * weights * self.copies
        for i, (factor, label) in enumerate(zip(self.factors, part, strict=True)):
            # axes done so far are pairs at the end; the next orbit axis is always the first
            summed = np.moveaxis(factor.gram(label, summed), (0, 1), (-2, -1))
            _check_held(summed.size, i)
        pairs = summed.ndim // 2
        order = [*range(0, 2 * pairs, 2), *range(1, 2 * pairs, 2)]
        side = prod(summed.shape[::2])
        return np.asarray(summed.transpose(order).reshape(side, side), dtype=np.float64)

    def variances(self, part: Part, covariance: Array) -> Array:
        """``q K q'`` of one query of every orbit, K on a subspace."""
        sides = [
            f.axis.classes if label == CLASS_SUMS else 1
            for f, label in zip(self.factors, part, strict=True)
        ]
        summed = covariance.reshape(sides + sides)
        pairs = len(sides)
        summed = summed.transpose([a for i in range(pairs) for a in (i, pairs + i)])
        for i, (factor, label) in enumerate(zip(self.factors, part, strict=True)):
            summed = np.moveaxis(factor.variances(label, summed), 0, -1)
            _check_held(summed.size, i)
        return np.maximum(self.weight * summed, 0.0)  # what has no variance may round below 0


@dataclass(frozen=True, eq=False)
class MinimaxOrbits:
    """All terms over the same axes.

    ``common`` holds, by axis, the query set that all terms ask of it, if they do; ``mirror`` takes
    query orbits to mirrored ones, or is None.
    """

    axes: tuple[Axis, ...]
    terms: tuple[TermOrbits, ...]
    common: tuple[QuerySet | None, ...]
    mirror: Integers | None

    @cached_property
    def frame(self) -> OrbitProblem:
        """The cells: orbits, their sizes, which of them a subspace reaches."""
        return OrbitProblem(self.axes, ())

    @cached_property
    def reaching(self) -> dict[Part, list[int]]:
        """For every subspace, the terms that reach it."""
        out: dict[Part, list[int]] = {}
        for t, term in enumerate(self.terms):
            for part in term.parts():
                out.setdefault(part, []).append(t)
        return out

    @cached_property
    def query_copies(self) -> Array:
        """The number of queries of every orbit, term after term."""
        return np.concatenate([t.copies.reshape(-1) for t in self.terms])

    def solve(
        self,
        tolerance: float,
        starts: Mapping[str, CertifiedMinimax],
        progress: SearchProgress | None = None,
    ) -> tuple[OrbitProblem, Certified]:
        """The subspaces of the best weights, and X on them with the bound on the largest error."""
        return self._answering_all(self.weights(tolerance, starts, progress))

    def weights(
        self,
        tolerance: float,
        starts: Mapping[str, CertifiedMinimax] | None = None,
        progress: SearchProgress | None = None,
    ) -> CertifiedMinimax:
        """The best weights of cells and queries, by orbit.

        ``starts`` gives known weights by axis, for axes of which all terms ask the same.
        """
        cells = self.frame.cells
        at_cells, at_queries = self._tied(len(cells))
        first_cell = _firsts(at_cells)
        first_query = _firsts(at_queries)

        def root_diagonals(v: Array, w: Array) -> tuple[Array, Array]:
            d, e = self.diagonals(v[at_cells], w[at_queries])
            return d[first_cell], e[first_query]

        optimum = certified_minimax(
            root_diagonals,
            len(first_cell),
            len(first_query),
            tolerance,
            cell_copies=_summed(at_cells, cells),
            query_copies=_summed(at_queries, self.query_copies),
            start=self._start(starts) if starts else None,
            progress=progress,
        )
        return replace(optimum, v=optimum.v[at_cells], w=optimum.w[at_queries])

    def _start(self, starts: Mapping[str, CertifiedMinimax]) -> tuple[Array, Array]:
        """Products of the known weights; all others equal, and a term as heavy as any other.

        What all terms ask of an axis splits off the problem as a Kronecker factor.
        """
        v = np.ones(())
        for axis in self.axes:
            start = starts.get(axis.name)
            v = np.multiply.outer(v, 1 / axis.sizes if start is None else start.v)
        parts = []
        for term in self.terms:
            w = np.ones(())
            for axis, factor in zip(self.axes, term.factors, strict=True):
                start = starts.get(axis.name)
                w = np.multiply.outer(w, 1 / factor.copies if start is None else start.w)
            parts.append(w.reshape(-1) / w.size)
        return v.reshape(-1), np.concatenate(parts)

    def _answering_all(self, optimum: CertifiedMinimax) -> tuple[OrbitProblem, Certified]:
        """The problem and weights after spreading some evenly: no direction is lost.

        A query of weight 0 in a direction of its own would not be answered at all, one of very
        little weight badly. The share with the least largest error is kept.
        """
        needed = self._ranks(np.ones(len(optimum.v)), np.ones(len(optimum.w)))
        least, best = np.inf, None
        for share in LIMITS.orbit_spreads:
            v = optimum.v + share / float(self.frame.cells.sum())
            w = optimum.w + share / float(self.query_copies.sum())
            if self._ranks(v, w) != needed:
                continue
            diagonal, errors = self.diagonals(v, w)
            scale = float((diagonal / v).max())
            upper = scale * float((errors / w).max())
            if upper < least:
                least, best = upper, (v, w, scale)
            if upper <= optimum.upper * LIMITS.orbit_spread_error:
                break
        if best is None:
            raise PlanError(
                "some queries matter so little next to others that their share of the noise is "
                "lost to rounding; give the groups more equal weights"
            )
        v, w, scale = best
        subspaces = tuple(Subspace(part, gram) for part, gram in self.grams(w).items())
        certified = Certified(v, scale, least, optimum.lower, optimum.steps)
        return OrbitProblem(self.axes, subspaces), certified

    def _ranks(self, v: Array, w: Array) -> list[int]:
        """The rank of ``D^1/2 V D^1/2`` on every subspace, up to rounding."""
        cells = v.reshape(self.frame.shape)
        out = []
        for part, gram in self.grams(w).items():
            root = np.sqrt(cells[self.frame.where(part)].reshape(-1))
            values = np.linalg.eigvalsh(gram * np.outer(root, root))
            out.append(int((values > values[-1] * len(values) * EIGEN_ROUNDING).sum()))
        return out

    def grams(self, w: Array) -> dict[Part, Array]:
        """The Gram matrix of every subspace."""
        weights = self._by_term(w)
        out: dict[Part, Array] = {}
        for part, terms in self.reaching.items():
            out[part] = np.sum([self.terms[t].gram(part, weights[t]) for t in terms], axis=0)
        return out

    def diagonals(self, v: Array, w: Array) -> tuple[Array, Array]:
        """What ``certified_minimax`` asks: the two root diagonals, by orbit."""
        frame = self.frame
        cells = v.reshape(frame.shape)
        out = np.zeros(frame.shape)
        spread = [np.zeros(t.shape) for t in self.terms]
        for part, gram in self.grams(w).items():
            where = frame.where(part)
            weight = cells[where].reshape(-1)
            root, inverse = self._roots(gram, weight)
            share = frame.spread(part)
            out[where] += share * root.reshape(share.shape)
            for t in self.reaching[part]:
                spread[t] += self.terms[t].variances(part, inverse)
        variances = np.concatenate([s.reshape(-1) for s in spread])
        return out.reshape(-1), w * variances

    def _roots(self, gram: Array, v: Array) -> tuple[Array, Array]:
        """``diag(A^1/2)`` and ``D^1/2 A^-1/2 D^1/2`` for A = D^1/2 V D^1/2."""
        outer = np.outer(np.sqrt(v), np.sqrt(v))
        a = gram * outer
        if self.mirror is None or len(a) == 1:
            root, inverse = _root_and_inverse(a)
            return root, inverse * outer
        even, odd = _folded(a)
        even_root, even_inverse = _root_and_inverse(even)
        odd_root, odd_inverse = _root_and_inverse(odd)
        return _unfolded_diagonal(even_root, odd_root), _unfolded(even_inverse, odd_inverse) * outer

    def _by_term(self, w: Array) -> list[Array]:
        ends = np.cumsum([prod(t.shape) for t in self.terms])
        return [p.reshape(t.shape) for p, t in zip(np.split(w, ends[:-1]), self.terms, strict=True)]

    def _tied(self, cells: int) -> tuple[Integers, Integers]:
        """The number of the weight of every cell orbit and of every query orbit."""
        own = np.arange(cells)
        if self.mirror is None:
            return own, np.arange(len(self.query_copies))
        pairs = np.minimum(np.arange(len(self.mirror)), self.mirror)
        return np.minimum(own, own[::-1]), np.unique(pairs, return_inverse=True)[1].reshape(-1)


def minimax_orbits(workload: Workload) -> MinimaxOrbits:
    """The symmetric problem of a union of products; PlanError where it does not fit."""
    term_factors: list[Mapping[str, QuerySet]] = []
    for term in workload.terms:
        product = term.as_product()
        if product is None:
            raise PlanError(f"the group {term.name!r} is not a product of query sets")
        term_factors.append(dict(product.factors))
    names = workload.domain.in_order({n for factors in term_factors for n in factors})
    axes = tuple(
        exchangeable(n, workload.domain[n].size, [f[n] for f in term_factors if n in f])
        for n in names
    )
    classes = prod(a.classes for a in axes)
    if classes > LIMITS.subspace_size:
        raise TooLarge(
            f"{classes:,} classes of cells, more than {LIMITS.subspace_size:,} for the largest "
            "error; ask about coarser bins or fewer attributes at once"
        )
    orbits_of: dict[tuple[str, int], Orbits] = {}
    terms = []
    for term, factors in zip(workload.terms, term_factors, strict=True):
        factors_of = []
        for axis in axes:
            queries = factors.get(axis.name) or Total(axis.cells)
            key = (axis.name, id(factors.get(axis.name)))
            if key not in orbits_of:
                orbits_of[key] = query_orbits(axis, queries)[0]
            factors_of.append(orbits_of[key])
        terms.append(TermOrbits(tuple(factors_of), term.weight**2))
    count = sum(prod(t.shape) for t in terms)
    if count > LIMITS.orbit_weights:
        raise TooLarge(
            f"{count:,} weights of queries, more than {LIMITS.orbit_weights:,}; ask for fewer"
        )
    common = tuple(_common([f.get(a.name) for f in term_factors]) for a in axes)
    return MinimaxOrbits(axes, tuple(terms), common, _mirror(axes, term_factors, terms))


def _common(sets: Sequence[QuerySet | None]) -> QuerySet | None:
    """The query set that all terms ask of an attribute, if they do."""
    keys = {None if queries is None else queries.key for queries in sets}
    return sets[0] if len(keys) == 1 else None


def _mirror(
    axes: tuple[Axis, ...],
    term_factors: Sequence[Mapping[str, QuerySet]],
    terms: Sequence[TermOrbits],
) -> Integers | None:
    """Where every query orbit goes when all axes of several classes are read backwards."""
    out = []
    start = 0
    for factors, term in zip(term_factors, terms, strict=True):
        numbers = np.arange(prod(term.shape)).reshape(term.shape)
        for i, axis in enumerate(axes):
            if axis.classes == 1:
                continue  # its one class stays where it is
            to = mirrored(axis, factors.get(axis.name))
            if to is None:
                return None
            numbers = numbers.take(to, axis=i)
        out.append(start + numbers.reshape(-1))
        start += numbers.size
    return np.concatenate(out)


def _root_and_inverse(a: Array) -> tuple[Array, Array]:
    """``diag(A^1/2)`` and the pseudo-inverse of ``A^1/2``; what is 0 up to rounding is 0."""
    if a.size == 1:
        root = np.sqrt(np.maximum(a, 0.0))
        return root[0], np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
    spend(EIGEN * float(len(a)) ** 3)
    values, vectors = np.linalg.eigh(a)
    is_positive = values > values[-1] * len(values) * EIGEN_ROUNDING
    root, vectors = np.sqrt(values[is_positive]), vectors[:, is_positive]
    return (vectors * vectors) @ root, (vectors / root) @ vectors.T


def _folded(a: Array) -> tuple[Array, Array]:
    """A matrix that reads the same backwards, on even and on odd vectors."""
    n, half = len(a), len(a) // 2
    near, far = a[:half, :half], a[:half, ::-1][:, :half]
    odd = near - far
    if n % 2 == 0:
        return near + far, odd
    middle = np.sqrt(2) * a[:half, half]
    corner = a[half : half + 1, half : half + 1]
    return np.block([[near + far, middle[:, None]], [middle[None], corner]]), odd


def _unfolded(even: Array, odd: Array) -> Array:
    """The matrix from its parts on even and on odd vectors."""
    half = len(odd)
    n = len(even) + half
    out = np.empty((n, n))
    near, far = (even[:half, :half] + odd) / 2, (even[:half, :half] - odd) / 2
    out[:half, :half], out[:half, n - half :] = near, far[:, ::-1]
    out[n - half :, :half], out[n - half :, n - half :] = far[::-1], near[::-1, ::-1]
    if n % 2:
        middle = even[:half, half] / np.sqrt(2)
        out[half, :half], out[half, half + 1 :] = middle, middle[::-1]
        out[:, half] = np.concatenate([middle, even[half, half:], middle[::-1]])
    return out


def _unfolded_diagonal(even: Array, odd: Array) -> Array:
    half = len(odd)
    mean = (even[:half] + odd) / 2
    return np.concatenate([mean, even[half:], mean[::-1]])


def _firsts(at: Integers) -> Integers:
    """The first place of every number."""
    return np.unique(at, return_index=True)[1]


def _summed(at: Integers, values: Array) -> Array:
    return np.asarray(np.bincount(at, values), dtype=np.float64)


def _check_held(count: int, axis: int) -> None:
    if count > LIMITS.orbit_numbers:
        raise TooLarge(
            f"{count:,} numbers after {axis + 1} attributes, more than {LIMITS.orbit_numbers:,} "
            "for the largest error; ask for fewer queries at once"
        )


# Variances of queries under a covariance of the cells


def row_quadratics(queries: QuerySet, covariance: Array) -> Array:
    """``q K q'`` for every query; for intervals by corner sums of K, without the queries.

    With C the sums of K over leading rows and columns, the variance of cells s..e-1 is
    ``C[e, e] - 2 C[s, e] + C[s, s]``.
    """
    ends = queries.intervals()
    if ends is None:
        dense = queries.dense()
        return np.asarray(((dense @ covariance) * dense).sum(axis=1), dtype=np.float64)
    n = len(covariance)
    corners = np.zeros((n + 1, n + 1))
    corners[1:, 1:] = covariance.cumsum(axis=0).cumsum(axis=1)
    starts, stops = ends
    own = np.diag(corners)
    spread = own[stops] + own[starts] - 2 * corners[starts, stops]
    return np.maximum(spread, 0.0)  # a query without variance may come out below 0 by rounding
