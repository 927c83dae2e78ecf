# SPDX-License-Identifier: Apache-2.0
"""Terms: groups of linear queries over the table of a few attributes.

A term reads the exact table (the marginal) of its attributes and nothing else. Three kinds:

* ``Product``: one 1-D query set per attribute; its queries are all combinations. Attributes that
  are not named are totalled.
* ``Explicit``: given coefficients over the cells of its attributes.
* ``Predicates``: conditions, each one counting query; never built when its attributes have too
  many cells together.

Workloads (what is asked) and strategies (what is measured) are both unions of terms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.workload.predicates import Condition, indicator
from sfumato.workload.queries import Array, Identity, Integers, Numbers, QuerySet

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = ["Explicit", "Predicates", "Product", "Term"]

WIDE_CELLS = 2**20  # conditions over more cells than this are counted one by one, never tabulated


@dataclass(frozen=True, eq=False)
class Term(ABC):
    """A group of linear queries over the table of ``attributes``.

    ``weight`` says how much the queries matter to the planner; it does not scale the answers.
    """

    domain: Domain
    name: str
    weight: float

    @property
    @abstractmethod
    def attributes(self) -> tuple[str, ...]:
        """The attributes it looks at, in the order of the domain."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """The number of queries."""

    @abstractmethod
    def apply(self, table: Numbers) -> Numbers:
        """The answers on a table of shape ``shape``; integers stay exact, scaled by 2^bits."""

    @abstractmethod
    def adjoint(self, y: Numbers) -> Array:
        """The transposed map: a value per query to a value per cell of the table."""

    @abstractmethod
    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """Arrays over attributes whose product is, per cell, the sum of ``|q|^p`` over queries."""

    @abstractmethod
    def row_powers(self, p: int) -> Array:
        """For each query, the sum of ``|q|^p`` over the cells of the table."""

    @abstractmethod
    def coefficient_bounds(self) -> tuple[Array, Array]:
        """The least and the greatest coefficient of each query."""

    @property
    @abstractmethod
    def fraction_bits(self) -> int:
        """Every coefficient is a multiple of 2^-fraction_bits."""

    @property
    @abstractmethod
    def greatest(self) -> float:
        """The greatest absolute coefficient."""

    @property
    @abstractmethod
    def is_nonnegative(self) -> bool:
        """Whether no coefficient is below zero."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table it reads."""
        return tuple(self.domain[a].size for a in self.attributes)

    @property
    def cells(self) -> int:
        """The number of cells of the table it reads."""
        return prod(self.shape)

    def weighted(self, factor: float) -> Term:
        """The same queries, mattering ``factor`` times as much."""
        return replace(self, weight=self.weight * factor)

    def answer(self, table: Numbers) -> Array:
        """The answers on a table, as floats."""
        values = self.apply(table)
        if table.dtype.kind in "iuO":
            return np.ldexp(values.astype(np.float64), -self.fraction_bits)
        return np.asarray(values, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Product(Term):
    """All combinations of one query per attribute; attributes not named are totalled."""

    factors: tuple[tuple[str, QuerySet], ...]

    def __post_init__(self) -> None:
        for name, queries in self.factors:
            if queries.size != self.domain[name].size:
                raise WorkloadError(
                    f"attribute {name!r} has {self.domain[name].size} cells, its queries are over "
                    f"{queries.size}"
                )

    @property
    def attributes(self) -> tuple[str, ...]:
        """The named attributes."""
        return tuple(name for name, _ in self.factors)

    @property
    def rows(self) -> int:
        """The product of the numbers of queries."""
        return prod(q.rows for _, q in self.factors)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The number of queries per attribute."""
        return tuple(q.rows for _, q in self.factors)

    def apply(self, table: Numbers) -> Numbers:
        """Each query set along its own axis."""
        out = np.asarray(table).reshape(self.shape)
        for axis, (_, queries) in enumerate(self.factors):
            out = np.moveaxis(queries.apply(np.moveaxis(out, axis, 0)), 0, axis)
        return out.reshape(-1)

    def adjoint(self, y: Numbers) -> Array:
        """The adjoints along each axis."""
        out = np.asarray(y, dtype=np.float64).reshape(self.row_shape)
        for axis, (_, queries) in enumerate(self.factors):
            out = np.moveaxis(queries.adjoint(np.moveaxis(out, axis, 0)), 0, axis)
        return out

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
        return _outer([q.row_powers(p) for _, q in self.factors])

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """Products of bounds: the extremes are among the products of the ends."""
        low, high = np.ones(1), np.ones(1)
        for _, queries in self.factors:
            a, b = queries.coefficient_bounds()
            ends = [np.outer(x, y).ravel() for x in (low, high) for y in (a, b)]
            low, high = np.min(ends, axis=0), np.max(ends, axis=0)
        return low, high

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

    @property
    def is_table(self) -> bool:
        """Whether it asks for the table of its attributes itself."""
        return all(isinstance(q, Identity) for _, q in self.factors)


@dataclass(frozen=True, eq=False)
class Explicit(Term):
    """Given coefficients over the cells of the attributes: integers times 2^-bits."""

    over: tuple[str, ...]
    entries: csr_matrix
    bits: int
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.entries.shape[1] != self.domain.cells(self.over):
            raise WorkloadError(
                f"the attributes {', '.join(self.over)} have {self.domain.cells(self.over)} cells, "
                f"the matrix has {self.entries.shape[1]} columns"
            )
        if self.labels and len(self.labels) != self.rows:
            raise WorkloadError(f"{self.rows} queries were given with {len(self.labels)} labels")

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of its cells."""
        return self.over

    @property
    def rows(self) -> int:
        """One per row of the matrix."""
        return int(self.entries.shape[0])

    @cached_property
    def matrix(self) -> csr_matrix:
        """The coefficients as floats."""
        return self.entries.astype(np.float64) * 2.0**-self.bits

    def apply(self, table: Numbers) -> Numbers:
        """``F x``; exact integers for integer tables."""
        x = np.asarray(table).reshape(-1)
        if x.dtype.kind == "O":
            rows = [self.entries[i] for i in range(self.rows)]
            sums = [
                sum(int(v) * x[j] for v, j in zip(r.data, r.indices, strict=True)) for r in rows
            ]
            return np.array(sums, dtype=object)
        return np.asarray((self.entries if x.dtype.kind in "iu" else self.matrix) @ x)

    def adjoint(self, y: Numbers) -> Array:
        """``F' y``."""
        return np.asarray(self.matrix.T @ np.asarray(y, dtype=np.float64)).reshape(self.shape)

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """One joint array."""
        powers = abs(self.matrix).power(p).sum(axis=0)
        return [(self.over, np.asarray(powers, dtype=np.float64).reshape(self.shape))]

    def row_powers(self, p: int) -> Array:
        """Sums along the rows."""
        return np.asarray(abs(self.matrix).power(p).sum(axis=1), dtype=np.float64).reshape(-1)

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """Smallest and largest entry of each row."""
        low = self.matrix.min(axis=1).toarray().reshape(-1)
        high = self.matrix.max(axis=1).toarray().reshape(-1)
        return low, high

    @property
    def fraction_bits(self) -> int:
        """Bits after the point."""
        return self.bits

    @property
    def greatest(self) -> float:
        """The greatest absolute entry."""
        return float(abs(self.matrix).max())

    @property
    def is_nonnegative(self) -> bool:
        """Whether no entry is below zero."""
        return bool(self.entries.min() >= 0)


@dataclass(frozen=True, eq=False)
class Predicates(Term):
    """One counting query per condition."""

    conditions: tuple[Condition, ...]
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.conditions:
            raise WorkloadError("predicates need at least one condition")
        for condition in self.conditions:
            if not isinstance(condition, Condition):
                raise WorkloadError(
                    f"{condition!r} is not a condition; build one with sf.attribute(domain, name)"
                )
        if self.labels and len(self.labels) != self.rows:
            raise WorkloadError(f"{self.rows} conditions were given with {len(self.labels)} labels")

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """All attributes that some condition looks at."""
        return self.domain.in_order(frozenset().union(*(c.attributes for c in self.conditions)))

    @property
    def rows(self) -> int:
        """One per condition."""
        return len(self.conditions)

    @property
    def is_wide(self) -> bool:
        """Whether its table is too large to build; the engine then counts each condition."""
        return self.cells > WIDE_CELLS

    @cached_property
    def tabulated(self) -> Explicit:
        """The same queries by their coefficients."""
        from scipy.sparse import csr_matrix

        if self.is_wide:
            raise TooLarge(
                f"conditions over {', '.join(self.attributes)} span {self.cells:,} cells, more "
                f"than the {WIDE_CELLS:,} that are tabulated; ask about fewer attributes at once"
            )
        rows: Sequence[Integers] = [
            indicator(c, self.domain, self.attributes).reshape(-1).astype(np.int64)
            for c in self.conditions
        ]
        entries = csr_matrix(np.array(rows))
        return Explicit(
            self.domain, self.name, self.weight, self.attributes, entries, 0, self.labels
        )

    def apply(self, table: Numbers) -> Numbers:
        """Sums of the cells where each condition holds."""
        return self.tabulated.apply(table)

    def adjoint(self, y: Numbers) -> Array:
        """``F' y``."""
        return self.tabulated.adjoint(y)

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """The number of conditions that hold in each cell; all of them, when too wide to say."""
        if self.is_wide:
            return [((), np.full((), float(self.rows)))]
        return self.tabulated.column_factors(p)

    def row_powers(self, p: int) -> Array:
        """The number of cells where each condition holds."""
        return self.tabulated.row_powers(p)

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """0 and 1."""
        return np.zeros(self.rows), np.ones(self.rows)

    @property
    def fraction_bits(self) -> int:
        """Counts are whole."""
        return 0

    @property
    def greatest(self) -> float:
        """One."""
        return 1.0

    @property
    def is_nonnegative(self) -> bool:
        """Counts are."""
        return True


def _outer(vectors: Sequence[Array]) -> Array:
    out = np.ones(1)
    for vector in vectors:
        out = np.outer(out, vector).reshape(-1)
    return out
