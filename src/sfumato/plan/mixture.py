# SPDX-License-Identifier: Apache-2.0
"""A measured mixture: an integer matrix applied to the exact answers of asked queries.

``M = C F_B`` for independent asked queries F_B, of any kind: conditions over more cells than can be
listed, given coefficients, products. The vault counts the answers of F_B exactly and multiplies
them by C in integers. What one record moves is known from the distinct columns of F_B
(``columns.py``), so no cell is ever visited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.workload.queries import Array, Integers, Numbers
from sfumato.workload.terms import Predicates, Term

__all__ = ["Mixture"]

AT_ONCE = 2**24  # numbers of one chunk of columns


@dataclass(frozen=True, eq=False)
class Mixture(Term):
    """``entries`` times the answers of the picked queries of ``base``, in the order of ``base``.

    ``picked[t]`` numbers the queries of ``base[t]``; ``columns`` holds all different columns of
    these queries, times ``2^fraction_bits``, and ``sizes`` how many cells have each.
    """

    base: tuple[Term, ...]
    picked: tuple[Integers, ...]
    entries: Integers
    columns: Numbers
    sizes: Array

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of all queries."""
        return self.domain.in_order(frozenset().union(*(t.attributes for t in self.base)))

    @property
    def cells(self) -> int:
        """The cells of the largest table that is counted for it; conditions need none."""
        return max((t.cells for t in self.base if not isinstance(t, Predicates)), default=1)

    @property
    def rows(self) -> int:
        """One per row of the matrix."""
        return len(self.entries)

    @property
    def fraction_bits(self) -> int:
        """The most that a query needs."""
        return max(t.fraction_bits for t in self.base)

    def gathered(self, answers: Sequence[Numbers]) -> Numbers:
        """The picked answers in common steps, each group being given in steps of its own."""
        parts = []
        for term, rows, values in zip(self.base, self.picked, answers, strict=True):
            parts.append(values[rows] * 2 ** (self.fraction_bits - term.fraction_bits))
        return np.concatenate(parts)

    def apply(self, table: Numbers) -> Numbers:
        """``C F_B h`` from a table of all its attributes; exact for integers."""
        numbers = np.asarray(table).reshape(self.shape)
        parts = []
        for term, rows in zip(self.base, self.picked, strict=True):
            rest = tuple(i for i, n in enumerate(self.attributes) if n not in term.attributes)
            part = term.apply(np.asarray(numbers.sum(axis=rest, dtype=numbers.dtype)))
            whole = part.dtype.kind in "iO"
            scale = 2 ** (self.fraction_bits - term.fraction_bits) if whole else 1
            parts.append(part[rows] * scale)
        mixed = np.concatenate(parts)
        return np.asarray(self.entries.astype(mixed.dtype) @ mixed)

    def adjoint(self, y: Numbers) -> Array:
        """The transposed map."""
        back = self.entries.T.astype(np.float64) @ np.asarray(y, dtype=np.float64)
        out, first = np.zeros(self.shape), 0
        for term, rows in zip(self.base, self.picked, strict=True):
            part = np.zeros(term.rows)
            part[rows] = back[first : first + len(rows)]
            first += len(rows)
            along = [self.domain[n].size if n in term.attributes else 1 for n in self.attributes]
            out += term.adjoint(part).reshape(along)
        return out

    def chunks(self) -> Iterator[Array]:
        """The different columns of M, some at a time, in floats."""
        matrix = self.entries.astype(np.float64)
        step = max(1, AT_ONCE // max(self.entries.shape))
        for first in range(0, self.columns.shape[1], step):
            some = self.columns[:, first : first + step].astype(np.float64)
            yield np.ldexp(matrix @ some, -self.fraction_bits)

    def greatest_column(self, p: int) -> float:
        """``max_j |M_j|_p^p``, with the relative error of float sums."""
        return max(float((np.abs(c) ** p).sum(axis=0).max()) for c in self.chunks())

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """The greatest column stands for all: the cells cannot be listed."""
        return [((), np.array(self.greatest_column(p)))]

    def row_powers(self, p: int) -> Array:
        """Sums over the cells."""
        out, first = np.zeros(self.rows), 0
        for chunk in self.chunks():
            out += (np.abs(chunk) ** p) @ self.sizes[first : first + chunk.shape[1]]
            first += chunk.shape[1]
        return out

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """The least and greatest entry of every row over the different columns."""
        ends = [(c.min(axis=1), c.max(axis=1)) for c in self.chunks()]
        low, high = zip(*ends, strict=True)
        return np.min(low, axis=0), np.max(high, axis=0)

    @cached_property
    def greatest(self) -> float:
        """The greatest absolute coefficient."""
        return max(float(np.abs(c).max()) for c in self.chunks())

    @cached_property
    def is_nonnegative(self) -> bool:
        """Whether it only adds up."""
        return all(bool((c >= 0).all()) for c in self.chunks())
