# SPDX-License-Identifier: Apache-2.0
"""Strategies in which every asked term is answered from one measured block.

Three ways for a block to answer a term:

* ``asked``: the block measures the term's own queries, R = I (Laplace or Gaussian on the queries);
* ``table``: the block measures a contingency table that holds the term's attributes;
* ``product``: the block measures a tree, a wavelet or a template (``measured.py``) along some
  attributes and single cells along the others; the table is its least-squares estimate, and the
  squared rows of the reconstruction multiply over the attributes.

How the noise is shared among blocks is optimal for the asked objective and the bound "a record
moves every block by its greatest column": shares that minimise ``sum e_b / s_b^2`` subject to
``sum c_b^p s_b^p = 1`` are ``s_b^(p+2) ~ e_b / c_b^p`` (Lagrange).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from sfumato.strategy.base import Block, Strategy, check_measured
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.strategy.trees import Tree
from sfumato.types import Array, Noise, Objective
from sfumato.workload.queries import Identity, QuerySet, Total, repeated
from sfumato.workload.sensitivity import greatest_column_power
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload

__all__ = [
    "Blockwise",
    "shared_noise",
    "table_block",
    "tree_block",
]


@dataclass(frozen=True, eq=False)
class Blockwise(Strategy):
    """Term t is answered from block ``source[t]``."""

    source: tuple[int, ...]

    @property
    def algorithm(self) -> str:
        """Where a mechanism has other ways as well: each group for itself."""
        return {"factorization": "groups", "laplace-optimum": "templates"}.get(self.mechanism, "")

    def _pair(self, term: int) -> tuple[Term, Product | None]:
        """The asked term, and the block it is computed from (None when measured as asked)."""
        target, block = self.workload.terms[term], self.blocks[self.source[term]].term
        if block is target:
            return target, None
        measured = block.as_product()
        if measured is None:
            raise TypeError("a block that answers other terms than its own must be a product")
        return target, measured

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """Read off, sum up, or solve and sum up."""
        target, block = self._pair(term)
        y = values[self.source[term]]
        if block is None:
            return y
        table = np.asarray(y, dtype=np.float64).reshape(block.row_shape)
        for axis, (_, queries) in enumerate(block.factors):
            table = np.moveaxis(queries.least_squares(np.moveaxis(table, axis, 0)), 0, axis)
        extra = tuple(i for i, n in enumerate(block.attributes) if n not in target.attributes)
        return target.answer(table.sum(axis=extra))

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """To the cells of the table, the same along what it totals, to what was solved for them."""
        target, block = self._pair(term)
        c = np.asarray(coefficients, dtype=np.float64)
        if block is None:
            return {self.source[term]: c}
        shape = dict(zip(block.attributes, block.shape, strict=True))
        along = [n if a in target.attributes else 1 for a, n in shape.items()]
        table = np.broadcast_to(target.adjoint(c).reshape(along), block.shape)
        for axis, (_, queries) in enumerate(block.factors):
            table = np.moveaxis(queries.transposed(np.moveaxis(table, axis, 0)), 0, axis)
        return {self.source[term]: table.reshape(-1)}

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """``|r|^2`` times the noise variance of the block."""
        target, block = self._pair(term)
        noise = block_variances[self.source[term]]
        if block is None:
            return repeated(noise, target.rows)
        product = target.as_product()
        if product is None:
            return noise * _outside(target, block) * target.row_powers(2)
        parts = [m.row_variances(q) for m, q in _aligned(product, block)]
        return noise * _outside(target, block) * _outer(parts)

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The same, summed factor by factor."""
        target, block = self._pair(term)
        noise = block_variances[self.source[term]]
        if block is None:
            return noise * target.rows
        product = target.as_product()
        if product is None:
            return float(self.variances(term, block_variances).sum())
        parts = [m.total_variance(q) for m, q in _aligned(product, block)]
        return noise * _outside(target, block) * prod(parts)

    def block_errors(self) -> Array:
        """Every term counts for its one block."""
        ones = [1.0] * len(self.blocks)
        out = np.zeros(len(self.blocks))
        for t, (term, b) in enumerate(zip(self.workload.terms, self.source, strict=True)):
            out[b] += term.weight**2 * self.total_variance(t, ones)
        return out

    def greatest_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The greatest of a product is the product of the greatest."""
        target, block = self._pair(term)
        noise = block_variances[self.source[term]]
        if block is None:
            return noise
        product = target.as_product()
        if product is None:
            return float(self.variances(term, block_variances).max())
        parts = [m.greatest_variance(q) for m, q in _aligned(product, block)]
        return noise * _outside(target, block) * prod(parts)

    def effective_terms(self, term: int) -> Array:
        """``(sum r^2)^2 / sum r^4``; both multiply over the factors of a product."""
        target, block = self._pair(term)
        if block is None:
            return repeated(1.0, target.rows)
        outside = _outside(target, block) ** 2 / _outside_fourths(target, block)
        product = target.as_product()
        if product is None:
            squares, fourths = target.row_powers(2), target.row_powers(4)
        else:
            pairs = _aligned(product, block)
            squares = _outer([m.row_variances(q) for m, q in pairs])
            fourths = _outer([m.row_fourths(q) for m, q in pairs])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = outside * squares**2 / fourths
        return np.where(fourths > 0, ratio, 1.0)


def table_block(workload: Workload, names: Sequence[str]) -> Product:
    """The contingency table of the named attributes."""
    domain = workload.domain
    order = domain.in_order(names)
    factors = tuple((n, Identity(domain[n].size)) for n in order)
    return Product(domain, "table " + " x ".join(order), 1.0, factors)


def tree_block(term: Product, attribute: str, branching: int) -> Product:
    """A tree along one attribute of the term, single cells along its others."""
    factors: list[tuple[str, QuerySet]] = []
    for name, queries in term.factors:
        measured = Tree(queries.size, branching) if name == attribute else Identity(queries.size)
        factors.append((name, measured))
    return Product(term.domain, f"tree({branching}) {term.name}", 1.0, tuple(factors))


def shared_noise(
    mechanism: str,
    noise: Noise,
    workload: Workload,
    blocks: Sequence[Term],
    source: Sequence[int],
    objective: Objective = "rmse",
) -> Blockwise:
    """The blocks with the best shares for the objective, scaled to column norm 1."""
    check_measured(sum(b.rows for b in blocks))
    p = 2 if noise == "gaussian" else 1
    plain = Blockwise(
        mechanism, noise, workload, tuple(Block(b, 1.0) for b in blocks), tuple(source)
    )
    ones = [1.0] * len(blocks)
    errors = np.zeros(len(blocks))
    for t, (term, b) in enumerate(zip(workload.terms, source, strict=True)):
        if objective == "max":
            errors[b] = max(errors[b], plain.greatest_variance(t, ones) * term.weight**2)
        else:
            errors[b] += plain.total_variance(t, ones) * term.weight**2
    if len(blocks) == 1:
        return plain
    columns = np.array([greatest_column_power([b], [1.0], p).power for b in blocks])
    # Conditions that nobody fulfils make blocks of zeros, or blocks that answer nothing: they get
    # a finite share all the same.
    columns = np.where(columns > 0, columns, 1.0)
    errors = np.where(errors > 0, errors, LIMITS.negligible_error * (errors.max() or 1.0))
    # max: equal errors everywhere, s_b^2 ~ e_b; rmse: s_b^(p+2) ~ e_b / c_b^p.
    shares = np.sqrt(errors) if objective == "max" else (errors / columns) ** (1 / (p + 2))
    norm = float((columns * shares**p).sum()) ** (1 / p)
    scaled = tuple(Block(b, float(s / norm)) for b, s in zip(blocks, shares, strict=True))
    return replace(plain, blocks=scaled)


def _aligned(target: Product, block: Product) -> list[tuple[QuerySet, QuerySet]]:
    """Measured and asked query sets of every attribute of the term."""
    measured = dict(block.factors)
    return [(measured[name], queries) for name, queries in target.factors]


def _outside(target: Term, block: Product) -> float:
    """Noise added up over the attributes that are measured but totalled by the term."""
    extra = [_variance_of_sum(q) for name, q in block.factors if name not in target.attributes]
    return prod(extra, start=1.0)


def _outside_fourths(target: Term, block: Product) -> float:
    """The same with fourth powers of the coefficients."""
    extra = [q for name, q in block.factors if name not in target.attributes]
    return prod((float(q.row_fourths(Total(q.size))[0]) for q in extra), start=1.0)


def _variance_of_sum(measured: QuerySet) -> float:
    return float(measured.row_variances(Total(measured.size))[0])


def _outer(vectors: Sequence[Array]) -> Array:
    out = np.ones(1)
    for vector in vectors:
        out = np.outer(out, vector).reshape(-1)
    return out
