# SPDX-License-Identifier: Apache-2.0
"""Terms on merged cells: the same queries on the flat table of the classes of a grid.

Every class is stood for by one of its cells, so a column of the reduced term is a column of the
term. Nothing of the size of the unmerged table is built for products, conditions and matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sfumato.refine.cells.grid import Grid
from sfumato.workload.classes import Classes
from sfumato.workload.queries import Array, Integers, QuerySet
from sfumato.workload.terms import Explicit, Predicates, Product, Term

__all__ = ["Reduced"]

MOST_ENTRIES = 2**22  # coefficients that may be written out to look at
MOST_LONG = 2048  # cells of an attribute whose Gram matrix is written out (32 MB)


@dataclass(frozen=True, eq=False)
class Reduced:
    """A term over the cells ``kept`` of each of its attributes."""

    term: Term
    kept: tuple[Integers, ...]

    @classmethod
    def of(cls, term: Term, grid: Grid) -> Reduced:
        """The term on the cells of a grid."""
        return cls(term, tuple(grid.kept[a] for a in grid.axes(term.attributes)))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The merged cells of each attribute."""
        return tuple(len(k) for k in self.kept)

    @cached_property
    def is_whole(self) -> bool:
        """Whether no cells are merged."""
        return self.shape == self.term.shape

    @cached_property
    def _classes(self) -> Classes | None:
        """For conditions, the class of every kept cell."""
        if not isinstance(self.term, Predicates):
            return None
        old = self.term.classes
        pairs = zip(old.class_of, self.kept, strict=True)
        return Classes(old.names, tuple(c[k] for c, k in pairs))

    @cached_property
    def _flat(self) -> Integers:
        """The kept cells as positions in the whole table."""
        out = np.zeros(1, dtype=np.int64)
        for size, kept in zip(self.term.shape, self.kept, strict=True):
            out = (out[:, None] * size + kept[None, :]).reshape(-1)
        return out

    def apply(self, table: Array) -> Array:
        """The answers on a flat merged table."""
        cut = table.reshape(self.shape)
        if isinstance(self.term, Predicates) and self._classes is not None:
            merged = self._classes.merge(cut).reshape(-1)
            return np.asarray(self.term.by_class @ merged, dtype=np.float64)
        if self.is_whole:
            return np.asarray(self.term.apply(cut), dtype=np.float64)
        if isinstance(self.term, Explicit):
            return np.asarray(self.term.matrix[:, self._flat] @ table)
        if isinstance(self.term, Product):
            for axis in self._order(self.term, 1):
                queries = self.term.factors[axis][1]
                moved = _applied(queries, self.kept[axis], np.moveaxis(cut, axis, 0))
                cut = np.moveaxis(moved, 0, axis)
            return cut.reshape(-1)
        whole = np.zeros(self.term.cells)
        whole[self._flat] = table
        return np.asarray(self.term.apply(whole.reshape(self.term.shape)), dtype=np.float64)

    def adjoint(self, y: Array) -> Array:
        """The transposed map, to a flat merged table."""
        if isinstance(self.term, Predicates) and self._classes is not None:
            by_class = np.asarray(self.term.by_class.T @ y)
            whole = self._classes.expand(by_class.reshape(self.term.classes.shape))
            return np.asarray(whole, dtype=np.float64).reshape(-1)
        if isinstance(self.term, Product) and not self.is_whole:
            cut = y.reshape(self.term.row_shape)
            for axis in self._order(self.term, -1):
                queries = self.term.factors[axis][1]
                back = np.asarray(queries.adjoint(np.moveaxis(cut, axis, 0)))
                cut = np.moveaxis(back[self.kept[axis]], 0, axis)
            return cut.reshape(-1)
        found = np.asarray(self.term.adjoint(y), dtype=np.float64).reshape(-1)
        return found if self.is_whole else found[self._flat]

    def gram_apply(self, table: Array) -> Array:
        """``F'F`` on a flat merged table."""
        if isinstance(self.term, Product):
            cut = table.reshape(self.shape)
            for axis, (_, queries) in enumerate(self.term.factors):
                kept, moved = self.kept[axis], np.moveaxis(cut, axis, 0)
                whole = np.asarray(queries.gram_apply(_placed(queries, kept, moved)))
                cut = np.moveaxis(whole[kept], 0, axis)
            return cut.reshape(-1)
        return self.adjoint(self.apply(table))

    def gram(self) -> Array:
        """``F'F`` as a matrix over the merged cells."""
        if self.grams is not None:
            out: Array = np.ones((1, 1))
            for gram in self.grams or ():
                out = np.asarray(np.kron(out, gram))
            return out
        dense = self.matrix()
        return dense.T @ dense

    @cached_property
    def grams(self) -> tuple[Array, ...] | None:
        """``F'F`` of a product by attribute, where those are small."""
        if not isinstance(self.term, Product) or max(self.shape, default=0) > MOST_LONG:
            return None
        pairs = zip(self.term.factors, self.kept, strict=True)
        return tuple(q.gram()[np.ix_(kept, kept)] for (_, q), kept in pairs)

    def gram_entries(self, rows: Integers, columns: Integers) -> Array:
        """Entries of ``F'F`` between merged cells."""
        if self.grams is not None:
            out = np.ones((len(rows), len(columns)))
            at, to = np.unravel_index(rows, self.shape), np.unravel_index(columns, self.shape)
            for gram, i, j in zip(self.grams, at, to, strict=True):
                out *= gram[np.ix_(i, j)]
            return out
        out = np.empty((len(rows), len(columns)))
        for row in np.unique(rows):
            out[rows == row] = self.gram_apply(_unit(len(self._flat), row))[columns]
        return out

    def matrix(self) -> Array:
        """The coefficients: one row per query, one column per merged cell."""
        cells = len(self._flat)
        return np.column_stack([self.apply(_unit(cells, c)) for c in range(cells)])

    def column_sums(self, rows: npt.NDArray[np.bool_]) -> Array:
        """For each merged cell a sum of ``|q|`` over the chosen rows, or a larger one over all."""
        if self.term.is_nonnegative or not rows.any():
            return self.adjoint(rows.astype(np.float64))
        if self.term.rows * len(self._flat) <= MOST_ENTRIES:
            return np.asarray(np.abs(self.matrix())[rows].sum(axis=0))
        return self._column_powers(1)

    def most(self, sizes: Array) -> Array:
        """For each merged cell a bound on ``sum_q |q| sizes_q``, sizes of 0 or more."""
        if self.term.is_nonnegative:
            return self.adjoint(sizes)
        each = float(sizes.max(initial=0.0)) * self._column_powers(1)
        return np.minimum(each, float(np.linalg.norm(sizes)) * np.sqrt(self._column_powers(2)))

    def _column_powers(self, p: int) -> Array:
        """For each merged cell the sum of ``|q|^p`` over all rows."""
        out = np.ones((1,) * len(self.kept))
        for names, powers in self.term.column_factors(p):
            at = [self.term.attributes.index(n) for n in names]
            cut = powers[np.ix_(*(self.kept[i] for i in at))] if at else powers
            shape = [len(k) if i in at else 1 for i, k in enumerate(self.kept)]
            out = out * cut.reshape(shape)
        return np.broadcast_to(out, self.shape).reshape(-1)

    def _order(self, term: Product, sign: int) -> list[int]:
        """Axes that shrink most come first."""
        growth = [q.rows / len(k) for (_, q), k in zip(term.factors, self.kept, strict=True)]
        return sorted(range(len(growth)), key=lambda i: sign * growth[i])


def _applied(queries: QuerySet, kept: Integers, cut: Array) -> Array:
    return np.asarray(queries.apply(_placed(queries, kept, cut)), dtype=np.float64)


def _placed(queries: QuerySet, kept: Integers, cut: Array) -> Array:
    """The values of kept cells at their places along the first axis, 0 elsewhere."""
    if len(kept) == queries.size:
        return cut
    whole = np.zeros((queries.size, *cut.shape[1:]))
    whole[kept] = cut
    return whole


def _unit(size: int, place: int) -> Array:
    out = np.zeros(size)
    out[place] = 1.0
    return out
