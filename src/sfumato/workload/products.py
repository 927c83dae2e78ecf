# SPDX-License-Identifier: Apache-2.0
"""Products of 1-D query sets: the terms that scale to any number of attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.workload.queries import (
    EXACT,
    GRAM_ERROR,
    Array,
    Numbers,
    QuerySet,
    repeated,
    widened,
)
from sfumato.workload.term import Term, check_order

__all__ = ["Product"]

MOST_BITS = 256  # bits after the point of a product of given coefficients


@dataclass(frozen=True, eq=False)
class Product(Term):
    """All combinations of one query per attribute; attributes not named are totalled."""

    factors: tuple[tuple[str, QuerySet], ...]

    def __post_init__(self) -> None:
        check_order(self.domain, self.attributes)
        for name, queries in self.factors:
            if queries.size != self.domain[name].size:
                raise WorkloadError(
                    f"attribute {name!r} has {self.domain[name].size} cells, its queries are over "
                    f"{queries.size}"
                )
        if self.fraction_bits > MOST_BITS:
            raise WorkloadError(
                f"the coefficients of {self.name!r} have {self.fraction_bits} bits after the "
                f"point, the most are {MOST_BITS}; give matrices of whole numbers"
            )

    @property
    def attributes(self) -> tuple[str, ...]:
        """The named attributes."""
        return tuple(name for name, _ in self.factors)

    @cached_property
    def rows(self) -> int:
        """The product of the numbers of queries."""
        return prod(q.rows for _, q in self.factors)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The number of queries per attribute."""
        return tuple(q.rows for _, q in self.factors)

    def apply(self, table: Numbers) -> Numbers:
        """Each query set along its own axis."""
        self._check_rows()
        out = np.asarray(table).reshape(self.shape)
        # Those that shrink their axis most come first: no step is then larger than the table or
        # the answers, whichever is larger.
        order = sorted(range(len(self.factors)), key=lambda i: self._growth(i))
        for axis in order:
            queries = self.factors[axis][1]
            out = np.moveaxis(queries.apply(np.moveaxis(out, axis, 0)), 0, axis)
        return widened(out.reshape(-1))

    def adjoint(self, y: Numbers) -> Array:
        """The adjoints along each axis."""
        out = np.asarray(y, dtype=np.float64).reshape(self.row_shape)
        order = sorted(range(len(self.factors)), key=lambda i: -self._growth(i))
        for axis in order:
            queries = self.factors[axis][1]
            out = np.moveaxis(queries.adjoint(np.moveaxis(out, axis, 0)), 0, axis)
        return out

    def _growth(self, axis: int) -> float:
        queries = self.factors[axis][1]
        return queries.rows / queries.size

    def gram_apply(self, table: Numbers) -> Array:
        """``F'F`` on a table, axis by axis, without the queries."""
        out = np.asarray(table, dtype=np.float64).reshape(self.shape)
        for axis, (_, queries) in enumerate(self.factors):
            out = np.moveaxis(queries.gram_apply(np.moveaxis(out, axis, 0)), 0, axis)
        return out

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """One vector per attribute."""
        return [((name,), q.column_powers(p)) for name, q in self.factors]

    def row_powers(self, p: int) -> Array:
        """The outer product of those of the factors."""
        self._check_rows()
        return _outer([q.row_powers(p) for _, q in self.factors])

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """Products of bounds: the extremes are among the products of the ends."""
        self._check_rows()
        low, high = np.ones(1), np.ones(1)
        bounds = [queries.coefficient_bounds() for _, queries in self.factors]
        is_even = all(np.ptp(a) == 0 and np.ptp(b) == 0 for a, b in bounds)
        for a, b in bounds:
            if is_even:  # as for tables: the same for all queries
                a, b = a[:1], b[:1]
            ends = [np.outer(x, y).ravel() for x in (low, high) for y in (a, b)]
            low, high = np.min(ends, axis=0), np.max(ends, axis=0)
        if is_even:
            return repeated(low[0], self.rows), repeated(high[0], self.rows)
        return low, high

    def squared_diameter(self) -> float | None:
        """``2 max|M_i|^2 - 2 min <M_i, M_j>``, products of intervals for the inner products."""
        if not self.factors:
            return 0.0
        if len(self.factors) == 1:
            return self.factors[0][1].squared_diameter()
        low, high, longest, steps = 1.0, 1.0, 1.0, 1.0
        is_exact = True
        for _, queries in self.factors:
            found = queries.inner_products()
            if found is None:
                return None
            least, greatest = found
            step = 4.0**queries.fraction_bits
            is_exact &= (least * step).is_integer() and (greatest * step).is_integer()
            ends = [low * least, low * greatest, high * least, high * greatest]
            low, high, longest, steps = min(ends), max(ends), longest * greatest, steps * step
        lost = 0.0 if is_exact and 2 * longest * steps < EXACT else GRAM_ERROR * longest
        return 2 * longest - 2 * low + lost

    def l1_diameter(self) -> float | None:
        """That of its query set, where it has one only."""
        return self.factors[0][1].l1_diameter() if len(self.factors) == 1 else None

    @property
    def fraction_bits(self) -> int:
        """The sum of those of the factors."""
        return sum(q.fraction_bits for _, q in self.factors)

    @property
    def greatest(self) -> float:
        """The product of those of the factors."""
        return prod((q.greatest for _, q in self.factors), start=1.0)

    @property
    def is_nonnegative(self) -> bool:
        """Whether all factors are."""
        return all(q.is_nonnegative for _, q in self.factors)

    def as_product(self) -> Product:
        """The term itself."""
        return self

    @property
    def is_table(self) -> bool:
        """Whether it asks for the table of its attributes itself."""
        return all(q.is_identity for _, q in self.factors)


def _outer(vectors: Sequence[Array]) -> Array:
    out = np.ones(1)
    for vector in vectors:
        out = np.outer(out, vector).reshape(-1)
    return out
