# SPDX-License-Identifier: Apache-2.0
"""One attribute, split into its total and a rest: the parts that unions are put together from.

Let X be a strategy Gram matrix of the attribute. The largest multiple of ``J = 1 1'`` that can be
taken out of it, ``X = p J + S'S`` with ``p = 1 / (1' X^-1 1)``, leaves S of rank n - 1 with
``S z = 0`` for ``z = X^-1 1``. Every query is then uniquely ``q = alpha 1' + r S``, with
``alpha = q z / 1'z``: measured are the total on the one hand and S on the other. For a table of
counts X = I and S is the centring ``I - J / n``; for other query sets the split is oblique.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np

from sfumato.plan.optimum import certified_optimum
from sfumato.plan.quadratic import row_quadratics
from sfumato.workload.coefficients import Groups, Matrix
from sfumato.workload.queries import (
    Array,
    Identity,
    Numbers,
    Prefix,
    QuerySet,
    Ranges,
    Total,
    Windows,
)
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = ["Centred", "Split", "centred_split", "entry_bits", "optimal_split", "query_key"]

ENTRY_BITS = (14, 20)  # least and most of rounded coefficients
ROOM = 42  # bits of a coefficient up to which vault.measure computes with machine words


def entry_bits(workload: Workload) -> int:
    """Bits for the coefficients along one attribute, so that products of them stay quick.

    Differences of n cells, along attributes asked cell by cell, take log2(n) bits.
    """
    most = ENTRY_BITS[1]
    for term in workload.terms:
        asked = [q for _, q in term.factors] if isinstance(term, Product) else []
        rounded = sum(not isinstance(q, Identity | Total | Groups) for q in asked)
        if rounded:
            taken = sum(q.size.bit_length() for q in asked if isinstance(q, Identity))
            most = min(most, (ROOM - taken) // rounded)
    return max(most, ENTRY_BITS[0])


def query_key(queries: QuerySet) -> str | int:
    """Equal for equal query sets of one attribute, where the kind says all; else the object."""
    is_plain = isinstance(queries, Identity | Prefix | Ranges | Total | Windows)
    return queries.name if is_plain else id(queries)


@dataclass(frozen=True, eq=False)
class Centred(QuerySet):
    """``n I - J``: n times the difference of every cell to the mean, in integers."""

    @property
    def name(self) -> str:
        """``centred``."""
        return "centred"

    @property
    def rows(self) -> int:
        """One per cell."""
        return self.size

    def apply(self, x: Numbers) -> Numbers:
        """``n x - sum(x)``."""
        return np.asarray(self.size * x - x.sum(axis=0, keepdims=True, dtype=x.dtype))

    def adjoint(self, y: Numbers) -> Numbers:
        """The matrix is symmetric."""
        return self.apply(y)

    def column_powers(self, p: int) -> Array:
        """``(n - 1)^p + (n - 1)``."""
        return np.full(self.size, float((self.size - 1) ** p + self.size - 1))

    def row_powers(self, p: int) -> Array:
        """The matrix is symmetric."""
        return self.column_powers(p)

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """-1 and n - 1."""
        return np.full(self.size, -1.0), np.full(self.size, self.size - 1.0)

    @property
    def greatest(self) -> float:
        """``n - 1``."""
        return float(max(self.size - 1, 1))

    @property
    def is_nonnegative(self) -> bool:
        """Differences have both signs."""
        return self.size == 1


@dataclass(frozen=True, eq=False)
class Split:
    """The measured rest S of an attribute (as integers times ``unit``) and how to read queries.

    ``direction`` is z, the vector that S does not see; ``inverse`` the pseudo-inverse of the
    integers.
    """

    measured: QuerySet
    unit: float
    direction: Array

    @cached_property
    def inverse(self) -> Array:
        """Cells x measured rows."""
        if isinstance(self.measured, Centred):
            n = self.measured.size
            return (np.eye(n) - 1 / n) / n
        return np.asarray(np.linalg.pinv(self.measured.dense(), rcond=1e-10), dtype=np.float64)

    @cached_property
    def unseen(self) -> Array:
        """z, scaled to sum 1: what S does not see."""
        return np.asarray(self.direction / self.direction.sum(), dtype=np.float64)

    def totals(self, queries: QuerySet) -> Array:
        """``alpha`` of every query."""
        return np.asarray(queries.apply(self.unseen), dtype=np.float64)

    def cells(self, y: Array) -> Array:
        """``S^+ y`` along the first axis, S being the integers."""
        if isinstance(self.measured, Centred):
            return np.asarray((y - y.mean(axis=0, keepdims=True)) / self.measured.size)
        return np.tensordot(self.inverse, y, axes=1)

    def cells_adjoint(self, x: Array) -> Array:
        """The transposed map, from cells to measured values."""
        if isinstance(self.measured, Centred):
            return self.cells(x)
        return np.tensordot(self.inverse.T, x, axes=1)

    def rest(self, queries: QuerySet, y: Array) -> Array:
        """``r y`` along the first axis of measured values y: the queries beyond alpha."""
        cells = self.cells(y)
        alpha = self.totals(queries).reshape(-1, *[1] * (y.ndim - 1))
        return np.asarray(queries.apply(cells) - alpha * cells.sum(axis=0, keepdims=True))

    def rest_adjoint(self, queries: QuerySet, c: Array) -> Array:
        """``r' c`` along the first axis: from queries to measured values."""
        alpha = np.tensordot(self.totals(queries), c, axes=1)
        return self.cells_adjoint(np.asarray(queries.adjoint(c)) - alpha[None])

    def rest_squares(self, queries: QuerySet) -> Array:
        """``|r|^2`` of every query, r with respect to the integers."""
        n = self.measured.size
        centre = np.eye(n) - np.outer(self.unseen, np.ones(n))
        centred = centre @ self.inverse
        return row_quadratics(queries, centred @ centred.T)

    def squares(self, gram: Array) -> tuple[float, float]:
        """``sum alpha^2`` and ``sum |r|^2`` over queries of this Gram matrix, r in units of S."""
        z = self.unseen
        residual = (np.eye(len(z)) - np.outer(z, np.ones(len(z)))) @ self.inverse
        rest = float((residual * (gram @ residual)).sum())
        return float(z @ gram @ z), rest / self.unit**2

    @cached_property
    def cost(self) -> float:
        """The greatest squared column norm of S."""
        return float(self.measured.column_powers(2).max()) * self.unit**2


def centred_split(size: int) -> Split:
    """The split of a table of counts; of two cells the one difference is measured, once."""
    if size == 2:
        return Split(Matrix(2, np.array([[1, -1]], dtype=np.int64), 0), sqrt(0.5), np.ones(2))
    return Split(Centred(size), 1 / size, np.ones(size))


def optimal_split(
    gram: Array, total_weight: float, tolerance: float = 1e-5, bits: int = ENTRY_BITS[0]
) -> Split:
    """The split of the optimum of ``gram`` with ``total_weight`` more on the total."""
    n = len(gram)
    v = gram + total_weight * np.ones((n, n))

    def root_diagonal(weights: Array) -> Array:
        root = np.sqrt(weights)
        values, vectors = np.linalg.eigh(v * np.outer(root, root))
        return np.asarray((vectors**2) @ np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)

    found = certified_optimum(root_diagonal, n, tolerance, 60)
    root = np.sqrt(found.v)
    values, vectors = np.linalg.eigh(v * np.outer(root, root))
    values = np.maximum(values, values[-1] * 1e-12)
    x = (vectors * np.sqrt(values)) @ vectors.T / np.outer(root, root) / found.scale
    z = np.linalg.solve(x, np.ones(n))
    rest = x - np.ones((n, n)) / z.sum()
    values, vectors = np.linalg.eigh(rest)
    s = (vectors[:, 1:] * np.sqrt(np.maximum(values[1:], 0.0))).T  # the least one belongs to z
    unit = float(np.abs(s).max()) / 2**bits
    entries = np.rint(s / unit).astype(np.int64)
    # z of the rounded matrix: what it does not see
    _, _, right = np.linalg.svd(entries.astype(np.float64), full_matrices=True)
    return Split(Matrix(n, entries, 0), unit, right[-1] * np.sign(right[-1].sum()))
