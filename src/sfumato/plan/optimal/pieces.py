# SPDX-License-Identifier: Apache-2.0
"""Unions of products over many attributes, in pieces: one per set of attributes.

Every attribute is split into its total and a rest S (``split.py``). The piece of a set A of
attributes measures the product of the rests of A, totalled over all other attributes. A query of
a term B is the sum over A within B of ``prod_{i in A} r_i S_i  prod_{i in B - A} alpha_i``, so with
``c_A`` the squared coefficients of all queries on piece A and ``cost_A`` its squared column norm,

    error = sum_A c_A / theta_A   subject to   sum_A theta_A cost_A = 1,

which is least, ``(sum_A sqrt(c_A cost_A))^2``, at ``theta_A ~ sqrt(c_A / cost_A)``. For marginals
this is the optimal residual split, for one product the product of the optima; in between it is
no optimum but needs neither the domain nor its classes. Pieces are keyed by attribute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, combinations
from math import prod, sqrt

import numpy as np

from sfumato.errors import TooLarge
from sfumato.plan.optimal.lower import sum_of_bounds
from sfumato.plan.optimal.pinching import pinched_bound
from sfumato.plan.optimal.split import Split
from sfumato.plan.optimal.splitting import union_of_splits
from sfumato.plan.strategy import Block, GaussianStrategy, Norm
from sfumato.workload.queries import Array, QuerySet
from sfumato.workload.sensitivity import ROUND_UP, ColumnNorm
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = ["Pieces", "pieces"]

MOST_PIECES = 2**18
LISTED = 2**24  # queries of a term whose variances are listed one by one

Subset = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Pieces(GaussianStrategy):
    """One block per set of attributes, and how every attribute is split."""

    splits: Mapping[str, Split]
    subsets: tuple[Subset, ...]
    _read: dict[tuple[str, str | int], tuple[Array, Array]] = field(
        default_factory=dict, init=False, repr=False
    )
    _summed: dict[tuple[str, str | int], tuple[float, float]] = field(
        default_factory=dict, init=False, repr=False
    )
    _edge: dict[tuple[str, str | int], tuple[Array, Array]] = field(
        default_factory=dict, init=False, repr=False
    )

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """The sum over the pieces within the term."""
        asked = self._asked(term)
        out = np.zeros([q.rows for q in asked.values()])
        for b, inside in self._within(asked):
            shape = [self.splits[n].measured.rows for n in inside]
            part = values[b].reshape(shape)
            for axis, name in enumerate(inside):
                rest = self.splits[name].rest(asked[name], np.moveaxis(part, axis, 0))
                part = np.moveaxis(rest, 0, axis)
            out = out + self._completed(part, inside, asked, power=1)
        return out.reshape(-1)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """Rests along the attributes of a piece, totals along the others."""
        asked = self._asked(term)
        table = np.asarray(coefficients, dtype=np.float64)
        table = table.reshape([q.rows for q in asked.values()])
        found = {}
        for b, inside in self._within(asked):
            part = table
            for axis, (name, queries) in reversed(list(enumerate(asked.items()))):
                moved = np.moveaxis(part, axis, 0)
                if name in inside:
                    rest = self.splits[name].rest_adjoint(queries, moved)
                    part = np.moveaxis(rest, 0, axis)
                else:
                    part = np.tensordot(self._coefficients(name, queries)[0], moved, axes=1)
            found[b] = np.asarray(part, dtype=np.float64).reshape(-1)
        return found

    def covariance(
        self, term: int, queries: Sequence[int], block_variances: Sequence[float]
    ) -> Array:
        """Products of ``r r'`` and ``alpha alpha'``, summed over the pieces."""
        asked = self._asked(term)
        shape = [q.rows for q in asked.values()]
        places = np.unravel_index(np.asarray(queries, dtype=np.int64), shape) if shape else ()
        kernels: dict[str, tuple[Array, Array]] = {}
        for (name, found), rows in zip(asked.items(), places, strict=True):
            alpha = self._coefficients(name, found)[0][rows]
            listed, which = np.unique(rows, return_inverse=True)
            units = (np.arange(found.rows)[:, None] == listed[None, :]).astype(np.float64)
            read = self.splits[name].rest_adjoint(found, units)[:, which.reshape(-1)]
            kernels[name] = np.outer(alpha, alpha), read.T @ read
        out = np.zeros((len(queries), len(queries)))
        for b, inside in self._within(asked):
            part = np.full_like(out, block_variances[b])
            for name, (totals, rests) in kernels.items():
                part *= rests if name in inside else totals
            out += part
        return out

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """Products of ``|r|^2`` and ``alpha^2``, summed over the pieces."""
        asked = self._asked(term)
        out = np.zeros([q.rows for q in asked.values()])
        for b, inside in self._within(asked):
            part = np.ones(())
            for name in inside:
                part = np.multiply.outer(part, self._coefficients(name, asked[name])[1])
            out = out + block_variances[b] * self._completed(part, inside, asked, power=2)
        return out.reshape(-1)

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The same with sums of squares."""
        return sum(block_variances[b] * value for b, value in self._unit_totals(term))

    def block_errors(self) -> Array:
        """Piece by piece of every term."""
        out = np.zeros(len(self.blocks))
        for t, term in enumerate(self.workload.terms):
            for b, value in self._unit_totals(t):
                out[b] += term.weight**2 * value
        return out

    def _unit_totals(self, term: int) -> Iterator[tuple[int, float]]:
        """What unit noise on each block adds to the total variance of a term."""
        asked = self._asked(term)
        for b, inside in self._within(asked):
            sums = (self._sums(n, q)[1 if n in inside else 0] for n, q in asked.items())
            yield b, prod(sums)

    def greatest_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The greatest of ``variances``; for very many queries an upper bound on it.

        A variance grows with ``alpha^2`` and ``|r|^2`` of every attribute, linearly in each pair,
        so the greatest is among queries on the frontier of these pairs.
        """
        asked = self._asked(term)
        pairs = [self._frontier(name, queries) for name, queries in asked.items()]
        if prod(len(alpha) for alpha, _ in pairs) > LISTED:
            pairs = [(a.max(keepdims=True), r.max(keepdims=True)) for a, r in pairs]
        out = np.zeros([len(alpha) for alpha, _ in pairs])
        for b, inside in self._within(asked):
            part = np.full((), block_variances[b])
            for name, (alpha, rest) in zip(asked, pairs, strict=True):
                part = np.multiply.outer(part, rest if name in inside else alpha)
            out += part
        return float(out.max())

    def greatest_column(self, norm: Norm, scales: Sequence[float]) -> ColumnNorm:
        """Sums of products of the greatest columns: exact where columns are equal, never less."""
        greatest = {n: float(s.measured.column_powers(norm).max()) for n, s in self.splits.items()}
        pairs = zip(scales, self.subsets, strict=True)
        power = sum(scale * prod(greatest[n] for n in inside) for scale, inside in pairs)
        return ColumnNorm(power * ROUND_UP, is_exact=False)

    def _asked(self, term: int) -> dict[str, QuerySet]:
        found = self.workload.terms[term].as_product()
        return {} if found is None else dict(found.factors)

    @cached_property
    def _at(self) -> dict[Subset, int]:
        return {inside: b for b, inside in enumerate(self.subsets)}

    def _within(self, asked: Mapping[str, QuerySet]) -> list[tuple[int, Subset]]:
        at = self._at
        return [(at[inside], inside) for inside in _subsets(tuple(asked)) if inside in at]

    def _coefficients(self, name: str, queries: QuerySet) -> tuple[Array, Array]:
        """``alpha`` and ``|r|^2`` of every query."""
        key = (name, queries.key)
        if key not in self._read:
            split = self.splits[name]
            self._read[key] = split.totals(queries), split.rest_squares(queries)
        return self._read[key]

    def _frontier(self, name: str, queries: QuerySet) -> tuple[Array, Array]:
        """``alpha^2`` and ``|r|^2`` of the queries that no other exceeds in both."""
        key = (name, queries.key)
        if key not in self._edge:
            alpha, rest = self._coefficients(name, queries)
            self._edge[key] = _upper_right(alpha**2, rest)
        return self._edge[key]

    def _sums(self, name: str, queries: QuerySet) -> tuple[float, float]:
        """``sum alpha^2`` and ``sum |r|^2``, r with respect to the integers."""
        key = (name, queries.key)
        if key not in self._summed:
            split = self.splits[name]
            if queries.is_identity and split.is_centred:
                n = queries.size
                self._summed[key] = 1 / n, (n - 1) / n**2
            else:
                totals, rests = split.squares(queries.gram())
                self._summed[key] = totals, rests * split.unit**2
        return self._summed[key]

    def _completed(
        self, part: Array, inside: Subset, asked: Mapping[str, QuerySet], power: int
    ) -> Array:
        """Put the axes in the order asked and multiply in the totals of the others."""
        sizes = dict(zip(inside, part.shape, strict=True))
        out = part.reshape([sizes.get(n, 1) for n in asked])
        for position, (name, queries) in enumerate(asked.items()):
            if name not in sizes:
                alpha, _ = self._coefficients(name, queries)
                along = [1] * len(asked)
                along[position] = len(alpha)
                out = out * (alpha**power).reshape(along)
        return out


def pieces(workload: Workload) -> Pieces | None:
    """The best pieces for a union of products; None when a term is no product."""
    asked: list[Mapping[str, QuerySet]] = []
    shared: dict[tuple[str, str | int], QuerySet] = {}  # equal query sets become one object
    for group in workload.terms:
        term = group.as_product()
        if term is None:
            return None
        factors = term.factors
        asked.append({n: shared.setdefault((n, q.key), q) for n, q in factors})
    count = sum(2 ** len(f) for f in asked)
    if count > MOST_PIECES:
        raise TooLarge(f"up to {count:,} pieces, more than {MOST_PIECES:,}")
    found = union_of_splits(workload, asked)
    splits = found.splits
    kept = np.flatnonzero(found.c > 0).tolist()
    weight = {found.subsets[i]: sqrt(found.c[i] / found.cost[i]) for i in kept}
    total = sum(sqrt(found.c[i] * found.cost[i]) for i in kept)
    blocks = []
    for inside, w in weight.items():
        factors = tuple((n, splits[n].measured) for n in inside)
        title = " x ".join(f"~{n}" for n in inside) or "total"
        unit = prod(splits[n].unit for n in inside)
        measured = Product(workload.domain, title, 1.0, factors)
        blocks.append(Block(measured, sqrt(w / total) * unit))
    return Pieces(
        "factorization",
        "gaussian",
        workload,
        tuple(blocks),
        splits,
        tuple(weight),
        bound=max(pinched_bound(workload, found.cells), sum_of_bounds(workload)),
    )


def _subsets(names: Subset) -> chain[Subset]:
    return chain.from_iterable(combinations(names, k) for k in range(len(names) + 1))


def _upper_right(x: Array, y: Array) -> tuple[Array, Array]:
    """The corners of the hull of points where a positive combination of x and y is greatest."""
    order = np.lexsort((y, x))[::-1]
    x, y = x[order], y[order]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(y)[:-1]])
    corners: list[tuple[float, float]] = []
    for point in zip(x[y > before].tolist(), y[y > before].tolist(), strict=True):
        while len(corners) > 1 and _is_below(corners[-1], corners[-2], point):
            corners.pop()
        corners.append(point)
    found = np.array(corners)
    return found[:, 0], found[:, 1]


def _is_below(
    middle: tuple[float, float], right: tuple[float, float], left: tuple[float, float]
) -> bool:
    """Whether a point lies on or below the line between two others, right and left of it."""
    rise = (middle[1] - right[1]) * (right[0] - left[0])
    return rise <= (left[1] - right[1]) * (right[0] - middle[0])
