# SPDX-License-Identifier: Apache-2.0
"""The least largest error of a union of products, through its symmetries.

The problem of ``orbits.py`` with a weight on every orbit of queries (``reweighted.py``): the Gram
matrix of a sector follows the weights, and the variance of a query is the sum over the sectors it
reaches. ``largest.py`` finds the weights; the sectors they end with are an ``OrbitProblem`` again,
so the strategy is measured like any other factorization.

Where the workload reads the same backwards (ranges, windows, tables), mirrored cells and queries
share a weight, and every eigenvalue problem falls into an even and an odd one of half the size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.plan.effort import EIGEN, spend
from sfumato.plan.solve.largest import CertifiedLargest, certified_largest
from sfumato.plan.solve.optimum import Certified
from sfumato.plan.solve.orbits import EIGEN_ROUNDING, SECTOR_SIZE, OrbitProblem, Part, Sector
from sfumato.plan.solve.reweighted import Orbits, mirrored, query_orbits
from sfumato.plan.solve.symmetry import CLASS_PART, Axis, exchangeable
from sfumato.workload.queries import Array, Integers, QuerySet, Total
from sfumato.workload.workload import Workload

__all__ = ["WeightedOrbits", "weighted_orbits"]

HELD = 2**26  # numbers of one array on the way from weights to a Gram matrix
MOST_WEIGHTS = 2**22
KEPT = (1e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 1e-2)  # weight that may be spread evenly at the end
NEAR = 1 + 1e-5  # squared error over that of the search, below which no other share is tried

Progress = Callable[[int, float], None]


@dataclass(frozen=True, eq=False)
class TermOrbits:
    """The orbits of one term: a product of the orbits of its factors, one for every axis."""

    factors: tuple[Orbits, ...]
    weight: float  # squared

    @property
    def shape(self) -> tuple[int, ...]:
        """Orbits by axis."""
        return tuple(len(f.copies) for f in self.factors)

    @cached_property
    def copies(self) -> Array:
        """The number of queries of every orbit."""
        out = np.ones(())
        for factor in self.factors:
            out = np.multiply.outer(out, factor.copies)
        return out

    def parts(self) -> list[Part]:
        """The sectors that some query reaches."""
        return list(product(*[[CLASS_PART, *f.reached] for f in self.factors]))

    def gram(self, part: Part, weights: Array) -> Array:
        """The Gram matrix on a sector, for the weight of every query."""
        found = self.weight * weights * self.copies
        for i, (factor, label) in enumerate(zip(self.factors, part, strict=True)):
            # axes done so far are pairs at the end; the next orbit axis is always the first
            found = np.moveaxis(factor.gram(label, found), (0, 1), (-2, -1))
            _check_held(found.size, i)
        pairs = found.ndim // 2
        order = [*range(0, 2 * pairs, 2), *range(1, 2 * pairs, 2)]
        side = prod(found.shape[::2])
        return np.asarray(found.transpose(order).reshape(side, side), dtype=np.float64)

    def variances(self, part: Part, covariance: Array) -> Array:
        """``q K q'`` of one query of every orbit, K on a sector."""
        sides = [
            f.axis.classes if label == CLASS_PART else 1
            for f, label in zip(self.factors, part, strict=True)
        ]
        found = covariance.reshape(sides + sides)
        pairs = len(sides)
        found = found.transpose([a for i in range(pairs) for a in (i, pairs + i)])
        for i, (factor, label) in enumerate(zip(self.factors, part, strict=True)):
            found = np.moveaxis(factor.variances(label, found), 0, -1)
            _check_held(found.size, i)
        return np.maximum(self.weight * found, 0.0)  # what has no variance may round below 0


@dataclass(frozen=True, eq=False)
class WeightedOrbits:
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
        """The cells: orbits, their sizes, which of them a sector reaches."""
        return OrbitProblem(self.axes, ())

    @cached_property
    def reaching(self) -> dict[Part, list[int]]:
        """For every sector, the terms that reach it."""
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
        starts: Mapping[str, CertifiedLargest],
        progress: Progress | None = None,
    ) -> tuple[OrbitProblem, Certified]:
        """The sectors of the best weights, and X on them with the bound on the largest error."""
        return self._kept(self.weights(tolerance, starts, progress))

    def weights(
        self,
        tolerance: float,
        starts: Mapping[str, CertifiedLargest] | None = None,
        progress: Progress | None = None,
    ) -> CertifiedLargest:
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

        found = certified_largest(
            root_diagonals,
            len(first_cell),
            len(first_query),
            tolerance,
            cell_copies=_summed(at_cells, cells),
            query_copies=_summed(at_queries, self.query_copies),
            start=self._start(starts) if starts else None,
            progress=progress,
        )
        return replace(found, v=found.v[at_cells], w=found.w[at_queries])

    def _start(self, starts: Mapping[str, CertifiedLargest]) -> tuple[Array, Array]:
        """Products of the known weights; all others equal, and a term as heavy as any other.

        What all terms ask of an axis splits off the problem as a Kronecker factor.
        """
        v = np.ones(())
        for axis in self.axes:
            known = starts.get(axis.name)
            v = np.multiply.outer(v, 1 / axis.sizes if known is None else known.v)
        parts = []
        for term in self.terms:
            w = np.ones(())
            for axis, factor in zip(self.axes, term.factors, strict=True):
                known = starts.get(axis.name)
                w = np.multiply.outer(w, 1 / factor.copies if known is None else known.w)
            parts.append(w.reshape(-1) / w.size)
        return v.reshape(-1), np.concatenate(parts)

    def _kept(self, found: CertifiedLargest) -> tuple[OrbitProblem, Certified]:
        """Spread some weight evenly, so that no direction of the workload is left out.

        A query of weight 0 in a direction of its own would not be answered at all, one of very
        little weight badly. The share with the least largest error is kept.
        """
        needed = self._ranks(np.ones(len(found.v)), np.ones(len(found.w)))
        least, best = np.inf, None
        for share in KEPT:
            v = found.v + share / float(self.frame.cells.sum())
            w = found.w + share / float(self.query_copies.sum())
            if self._ranks(v, w) != needed:
                continue
            diagonal, errors = self.diagonals(v, w)
            scale = float((diagonal / v).max())
            upper = scale * float((errors / w).max())
            if upper < least:
                least, best = upper, (v, w, scale)
            if upper <= found.upper * NEAR:
                break
        if best is None:
            raise PlanError(
                "some queries matter so little next to others that their share of the noise is "
                "lost to rounding; give the groups more equal weights"
            )
        v, w, scale = best
        sectors = tuple(Sector(part, gram) for part, gram in self.grams(w).items())
        certified = Certified(v, scale, least, found.lower, found.steps)
        return OrbitProblem(self.axes, sectors), certified

    def _ranks(self, v: Array, w: Array) -> list[int]:
        """The rank of ``D^1/2 V D^1/2`` on every sector, up to rounding."""
        cells = v.reshape(self.frame.shape)
        out = []
        for part, gram in self.grams(w).items():
            root = np.sqrt(cells[self.frame.where(part)].reshape(-1))
            values = np.linalg.eigvalsh(gram * np.outer(root, root))
            out.append(int((values > values[-1] * len(values) * EIGEN_ROUNDING).sum()))
        return out

    def grams(self, w: Array) -> dict[Part, Array]:
        """The Gram matrix of every sector."""
        weights = self._by_term(w)
        out: dict[Part, Array] = {}
        for part, terms in self.reaching.items():
            out[part] = np.sum([self.terms[t].gram(part, weights[t]) for t in terms], axis=0)
        return out

    def diagonals(self, v: Array, w: Array) -> tuple[Array, Array]:
        """What ``certified_largest`` asks: the two root diagonals, by orbit."""
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


def weighted_orbits(workload: Workload) -> WeightedOrbits:
    """The symmetric problem of a union of products; PlanError where it does not fit."""
    asked: list[Mapping[str, QuerySet]] = []
    for term in workload.terms:
        product = term.as_product()
        if product is None:
            raise PlanError(f"the group {term.name!r} is not a product of query sets")
        asked.append(dict(product.factors))
    names = workload.domain.in_order({n for factors in asked for n in factors})
    axes = tuple(
        exchangeable(n, workload.domain[n].size, [f[n] for f in asked if n in f]) for n in names
    )
    classes = prod(a.classes for a in axes)
    if classes > SECTOR_SIZE:
        raise TooLarge(
            f"{classes:,} classes of cells, more than {SECTOR_SIZE:,} for the largest error; ask "
            "about coarser bins or fewer attributes at once"
        )
    known: dict[tuple[str, int], Orbits] = {}
    terms = []
    for term, factors in zip(workload.terms, asked, strict=True):
        found = []
        for axis in axes:
            queries = factors.get(axis.name) or Total(axis.cells)
            key = (axis.name, id(factors.get(axis.name)))
            if key not in known:
                known[key] = query_orbits(axis, queries)[0]
            found.append(known[key])
        terms.append(TermOrbits(tuple(found), term.weight**2))
    count = sum(prod(t.shape) for t in terms)
    if count > MOST_WEIGHTS:
        raise TooLarge(f"{count:,} weights of queries, more than {MOST_WEIGHTS:,}; ask for fewer")
    common = tuple(_common([f.get(a.name) for f in asked]) for a in axes)
    return WeightedOrbits(axes, tuple(terms), common, _mirror(axes, asked, terms))


def _common(asked: Sequence[QuerySet | None]) -> QuerySet | None:
    """The query set that all terms ask."""
    keys = {None if queries is None else queries.key for queries in asked}
    return asked[0] if len(keys) == 1 else None


def _mirror(
    axes: tuple[Axis, ...], asked: Sequence[Mapping[str, QuerySet]], terms: Sequence[TermOrbits]
) -> Integers | None:
    """Where every query orbit goes when all axes of several classes are read backwards."""
    out = []
    start = 0
    for factors, term in zip(asked, terms, strict=True):
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
    kept = values > values[-1] * len(values) * EIGEN_ROUNDING
    root, vectors = np.sqrt(values[kept]), vectors[:, kept]
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
    """The inverse of ``_folded``."""
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
    if count > HELD:
        raise TooLarge(
            f"{count:,} numbers after {axis + 1} attributes, more than {HELD:,} for the largest "
            "error; ask for fewer queries at once"
        )
