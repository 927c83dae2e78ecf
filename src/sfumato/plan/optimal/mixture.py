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

from sfumato.errors import PlanError
from sfumato.workload.queries import Array, Integers, Numbers
from sfumato.workload.terms import Term

__all__ = ["Mixture"]

AT_ONCE = 2**24  # numbers of one chunk of columns
EXACT = 2.0**53  # floats hold all whole numbers up to this


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
        return max((t.cells for t in self.base if not t.as_conditions()), default=1)

    @property
    def rows(self) -> int:
        """One per row of the matrix."""
        return len(self.entries)

    @property
    def fraction_bits(self) -> int:
        """The most that a query needs."""
        return max(t.fraction_bits for t in self.base)

    def sources(self) -> tuple[Term, ...]:
        """The groups whose queries are mixed."""
        return self.base

    def combine(self, answers: Sequence[Numbers], fits: bool) -> Numbers:
        """``C (F_B h)`` from ``F_B h``."""
        parts, entries = [np.asarray(a) for a in answers], self.entries
        if not fits or any(a.dtype.kind == "O" for a in parts):
            parts, entries = [a.astype(object) for a in parts], entries.astype(object)
        return np.asarray(entries @ self.gathered(parts))

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

    def __post_init__(self) -> None:
        reach = max(_reach(self.entries), _reach(self.columns))
        if reach > EXACT:
            raise PlanError(
                f"a mixture needs coefficients of at most 2^53 in common steps of "
                f"2^-{self.fraction_bits}, got {reach:.3g}; ask for queries with so different "
                "coefficients in separate plans, or round them"
            )

    def chunks(self) -> Iterator[Array]:
        """The different columns of M, some at a time, in floats."""
        return (found for found, _ in self._bounded_chunks())

    @cached_property
    def is_exact(self) -> bool:
        """Whether floats hold all products and partial sums of the different columns exactly."""
        rows = float(np.abs(self.entries.astype(np.float64)).sum(axis=1).max())
        return rows * _reach(self.columns) < EXACT / 2

    def _bounded_chunks(self) -> Iterator[tuple[Array, Array]]:
        """The same, with bounds on how far floats are off: coefficients of both signs may cancel.

        A sum of n products errs by less than n u / (1 - n u) times that of the absolute values, in
        any order (Higham 2002, "Accuracy and stability of numerical algorithms", section 3.1).
        """
        matrix = self.entries.astype(np.float64)
        step = max(1, AT_ONCE // max(self.entries.shape))
        unit = 0.0 if self.is_exact else (self.entries.shape[1] + 2) * 2.0**-52
        for first in range(0, self.columns.shape[1], step):
            some = self.columns[:, first : first + step].astype(np.float64)
            found = np.ldexp(matrix @ some, -self.fraction_bits)
            if unit:
                off = unit * np.ldexp(np.abs(matrix) @ np.abs(some), -self.fraction_bits)
            else:
                off = np.zeros((1, 1))
            yield found, off

    def greatest_column(self, p: int) -> float:
        """At least ``max_j |M_j|_p^p``, but for the roundings of the last sum of powers."""
        chunks = self._bounded_chunks()
        return max(float(((np.abs(c) + off) ** p).sum(axis=0).max()) for c, off in chunks)

    @cached_property
    def greatest_error(self) -> float:
        """How far a column of ``chunks`` can be from the exact one, in L2; 0 if none is."""
        if self.is_exact:
            return 0.0
        chunks = self._bounded_chunks()
        return max(float(np.sqrt((off**2).sum(axis=0).max())) for _, off in chunks)

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
        return max(float((np.abs(c) + off).max()) for c, off in self._bounded_chunks())

    @cached_property
    def is_nonnegative(self) -> bool:
        """Whether it only adds up."""
        return all(bool((c >= off).all()) for c, off in self._bounded_chunks())


def _reach(numbers: Numbers) -> float:
    """The greatest absolute number."""
    return max(float(numbers.max()), -float(numbers.min()))
