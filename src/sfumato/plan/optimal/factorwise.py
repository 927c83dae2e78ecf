# SPDX-License-Identifier: Apache-2.0
"""One product of query sets, measured as the product of strategies for its factors.

``F = (x) F_i`` with ``F_i = R_i M_i`` gives ``F = (x) R_i (x) M_i``. Column norms, sums of squares
and largest row norms of a Kronecker product are products, and so are the least mean and the least
largest error (weights that are products show it, see ``maximum.py``): the product of optimal
strategies is optimal, and their bounds multiply. Neither the domain nor the Gram matrix is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from sfumato.errors import PlanError
from sfumato.plan.optimal.factorization import Factorization
from sfumato.plan.optimal.piece import Piece
from sfumato.plan.solve.quadratic import row_quadratics
from sfumato.plan.solve.symmetry import CLASS_PART
from sfumato.plan.strategy import Block, GaussianStrategy, Objective, Strategy
from sfumato.workload.coefficients import Matrix
from sfumato.workload.queries import Array, Integers, QuerySet
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = ["FactorBlock", "Factorwise", "factorwise"]

LISTED = 2**24  # queries whose variances are listed one by one
RANK = 1e-9  # singular values below this part of the greatest are zero: rows of differences


@dataclass(frozen=True, eq=False)
class FactorBlock:
    """Measured along one attribute: the asked queries themselves, or a matrix with its inverse."""

    measured: QuerySet
    share: float
    inverse: Array | None  # cells x measured rows; None where the queries are measured as asked

    def answer(self, queries: QuerySet, y: Array) -> Array:
        """The part of the answers along the first axis that follows from measured values y."""
        if self.inverse is None:
            return y
        return np.asarray(queries.apply(np.tensordot(self.inverse, y, axes=1)), dtype=np.float64)

    def adjoint(self, queries: QuerySet, c: Array) -> Array:
        """The transposed map, from answers to measured values."""
        if self.inverse is None:
            return c
        cells = np.asarray(queries.adjoint(c), dtype=np.float64)
        return np.tensordot(self.inverse.T, cells, axes=1)

    @cached_property
    def covariance(self) -> Array:
        """Of the cells, at unit noise."""
        if self.inverse is None:
            raise TypeError("queries that are measured as asked need no cells")
        return self.inverse @ self.inverse.T

    def variances(self, queries: QuerySet) -> Array:
        """Of every query, at unit noise."""
        if self.inverse is None:
            return np.ones(queries.rows)
        return row_quadratics(queries, self.covariance)


@dataclass(frozen=True, eq=False)
class Factorwise(GaussianStrategy):
    """One term; block ``combinations[b]`` takes one block of every factor."""

    factors: tuple[tuple[FactorBlock, ...], ...]
    _spreads: dict[tuple[int, int], Array] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def combinations(self) -> tuple[tuple[int, ...], ...]:
        """In the order of the blocks."""
        return tuple(product(*[range(len(f)) for f in self.factors]))

    @property
    def _asked(self) -> Product:
        term = self.workload.terms[0].as_product()
        if term is None:
            raise TypeError("the workload of a product strategy is one product")
        return term

    def answer(self, term: int, values: Sequence[Array]) -> Array:  # noqa: ARG002  there is one
        """Axis by axis, summed over the combinations."""
        asked = self._asked
        out = np.zeros(asked.row_shape)
        for b, chosen in enumerate(self.combinations):
            blocks = [f[i] for f, i in zip(self.factors, chosen, strict=True)]
            part = np.asarray(values[b], dtype=np.float64)
            part = part.reshape([block.measured.rows for block in blocks])
            for axis, (block, (_, queries)) in enumerate(zip(blocks, asked.factors, strict=True)):
                part = np.moveaxis(block.answer(queries, np.moveaxis(part, axis, 0)), 0, axis)
            out = out + part
        return out.reshape(-1)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:  # noqa: ARG002
        """Axis by axis, for every combination."""
        asked = self._asked
        found = {}
        for b, chosen in enumerate(self.combinations):
            part = np.asarray(coefficients, dtype=np.float64).reshape(asked.row_shape)
            for axis, (i, (_, queries)) in enumerate(zip(chosen, asked.factors, strict=True)):
                block = self.factors[axis][i]
                part = np.moveaxis(block.adjoint(queries, np.moveaxis(part, axis, 0)), 0, axis)
            found[b] = part.reshape(-1)
        return found

    def covariance(
        self,
        term: int,  # noqa: ARG002
        queries: Sequence[int],
        block_variances: Sequence[float],
    ) -> Array:
        """Entrywise products of the covariances along every axis, summed over combinations."""
        asked = self._asked
        places = np.unravel_index(np.asarray(queries, dtype=np.int64), asked.row_shape)
        kernels: list[list[Array]] = []
        for axis, ((_, found), rows) in enumerate(zip(asked.factors, places, strict=True)):
            listed, which = np.unique(rows, return_inverse=True)
            units = (np.arange(found.rows)[:, None] == listed[None, :]).astype(np.float64)
            read = [
                block.adjoint(found, units)[:, which.reshape(-1)] for block in self.factors[axis]
            ]
            kernels.append([r.T @ r for r in read])
        out = np.zeros((len(queries), len(queries)))
        for b, chosen in enumerate(self.combinations):
            part = np.full_like(out, block_variances[b])
            for axis, i in enumerate(chosen):
                part *= kernels[axis][i]
            out += part
        return out

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:  # noqa: ARG002
        """Products of the variances of the factors."""
        out = np.zeros(self._asked.rows)
        for b, chosen in enumerate(self.combinations):
            part = np.full(1, float(block_variances[b]))
            for axis, i in enumerate(chosen):
                part = np.multiply.outer(part, self._spread(axis, i)).reshape(-1)
            out += part
        return out

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:  # noqa: ARG002
        """Products of sums."""
        return float(self._unit_totals @ np.asarray(block_variances, dtype=np.float64))

    def block_errors(self) -> Array:
        """There is one term."""
        return self._asked.weight**2 * self._unit_totals

    @cached_property
    def _unit_totals(self) -> Array:
        totals = [
            prod(float(self._spread(axis, i).sum()) for axis, i in enumerate(chosen))
            for chosen in self.combinations
        ]
        return np.array(totals)

    def greatest_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The product of the greatest; for several blocks and very many queries a bound on it."""
        if len(self.combinations) > 1 and self._asked.rows <= LISTED:
            return float(self.variances(term, block_variances).max())
        return sum(
            float(block_variances[b])
            * prod(float(self._spread(axis, i).max()) for axis, i in enumerate(chosen))
            for b, chosen in enumerate(self.combinations)
        )

    def _spread(self, axis: int, i: int) -> Array:
        """The variances of the queries of a factor from one of its blocks."""
        key = (axis, i)
        if key not in self._spreads:
            queries = self._asked.factors[axis][1]
            self._spreads[key] = self.factors[axis][i].variances(queries)
        return self._spreads[key]


def factorwise(
    workload: Workload, solve: Callable[[Workload], Strategy], objective: Objective = "rmse"
) -> Factorwise:
    """The product of what ``solve`` finds for every factor alone, for the objective.

    Tables, totals and disjoint groups are measured as they are: no strategy is better.
    """
    term = workload.terms[0].as_product()
    if len(workload.terms) > 1 or term is None:
        raise PlanError("only a workload of one product is measured as a product of strategies")
    known: dict[tuple[int, str | int], tuple[tuple[FactorBlock, ...], float | None]] = {}
    for name, queries in term.factors:
        key = _key(queries)
        if key in known:
            continue
        if queries.is_disjoint:
            asked = int((queries.row_powers(1) > 0).sum())
            bound: float | None = asked if objective == "rmse" else min(asked, 1)
            known[key] = (FactorBlock(queries, 1.0, None),), bound
            continue
        alone = Product(workload.domain, name, 1.0, ((name, queries),))
        found = solve(Workload(workload.domain, (alone,)))
        known[key] = _blocks(found, name), found.bound_for(objective)
    factors = tuple(known[_key(q)][0] for _, q in term.factors)
    bounds = [known[_key(q)][1] for _, q in term.factors]
    whole = prod([b for b in bounds if b is not None], start=term.weight**2)
    return Factorwise(
        "factorization",
        "gaussian",
        workload,
        tuple(_combined(workload, term, chosen) for chosen in product(*factors)),
        factors,
        bound=None if None in bounds else whole,
        objective=objective,
    )


def _key(queries: QuerySet) -> tuple[int, str | int]:
    """The same for equal query sets, on whichever attribute."""
    return queries.size, queries.key


def _blocks(found: Strategy, name: str) -> tuple[FactorBlock, ...]:
    """The pieces along one attribute as matrices over its cells, with their inverses."""
    if not isinstance(found, Factorization):
        raise PlanError(f"the strategy for {name!r} alone is not made of pieces")
    out = []
    for block, inverse in zip(found.blocks, found.inverses, strict=True):
        piece = block.term
        if not isinstance(piece, Piece):
            raise TypeError("the blocks of a factorization are pieces")
        size = piece.domain[name].size
        if not piece.axes:  # the total
            rows = piece.entries * np.ones((1, size), dtype=np.int64)
        else:
            rows = _cells(piece, size)
        if all(label == CLASS_PART for label in piece.part) and len(rows) == size:
            whole = inverse[piece.axes[0].class_of] if piece.axes else inverse
        else:
            whole = np.linalg.pinv(rows.astype(np.float64), rcond=RANK)
        out.append(FactorBlock(Matrix(size, rows, 0), block.share, whole))
    return tuple(out)


def _cells(piece: Piece, size: int) -> Integers:
    """The coefficients of a piece of one attribute on its cells."""
    axis = piece.axes[0]
    if piece.part[0] == CLASS_PART:
        return np.asarray(piece.entries[:, axis.class_of], dtype=np.int64)
    return np.stack([piece.apply(cell) for cell in np.eye(size, dtype=np.int64)], axis=1)


def _combined(workload: Workload, term: Product, chosen: Sequence[FactorBlock]) -> Block:
    names = term.attributes
    factors = tuple((n, b.measured) for n, b in zip(names, chosen, strict=True))
    title = " x ".join(names)
    return Block(Product(workload.domain, title, 1.0, factors), prod(b.share for b in chosen))
