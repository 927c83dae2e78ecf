# SPDX-License-Identifier: Apache-2.0
"""The sets of attributes that marginals ask about, and all their subsets, as arrays.

A marginal over B is put together from one piece per subset A of B. What the planner needs are sums
over pairs ``A within B``, so all pairs are listed once, as two arrays of numbers; a sum over the
sets above or below is then one weighted count, however many marginals there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from sfumato.errors import TooLarge
from sfumato.solve.solve_limits import LIMITS
from sfumato.types import Array, Integers
from sfumato.workload.workload import Workload

__all__ = [
    "Lattice",
    "lattice",
    "marginal_sets",
]


CODED = 2**62  # codes of sets stay below


@dataclass(frozen=True, eq=False)
class Lattice:
    """Asked sets and their subsets (the pieces), by size of the set.

    ``by_size`` numbers the terms of each number of attributes and lists these; ``levels[j]``
    lists the attributes of the pieces of size j, one row each. Pieces are numbered level by level.
    Pair i says that piece ``piece[i]`` lies within term ``term[i]``.
    """

    terms: int
    by_size: tuple[tuple[Integers, Integers], ...]
    levels: tuple[Integers, ...]
    piece: Integers
    term: Integers

    @property
    def pieces(self) -> int:
        """The number of pieces."""
        return sum(len(rows) for rows in self.levels)

    def of_pieces(self, values: Array) -> Array:
        """``prod_{i in A} values[i]`` of every piece A."""
        return np.concatenate([values[rows].prod(axis=1) for rows in self.levels])

    def of_terms(self, values: Array) -> Array:
        """``prod_{i in B} values[i]`` of every term B."""
        out = np.ones(self.terms)
        for numbers, rows in self.by_size:
            out[numbers] = values[rows].prod(axis=1)
        return out

    def of_pairs(self, inside: Sequence[Array], outside: Sequence[Array]) -> Array:
        """``prod_{i in A} inside_i prod_{i in B - A} outside_i`` of every pair, A within B.

        The arrays belong to the entries of ``by_size``: a row per term, a column per attribute.
        """
        out = []
        for j in range(len(self.levels)):
            for chosen in (c for c in zip(inside, outside, strict=True) if c[0].shape[1] >= j):
                k = chosen[0].shape[1]
                listed = list(combinations(range(k), j))
                within = np.array(listed, dtype=np.int64).reshape(len(listed), j)
                others = [[i for i in range(k) if i not in c] for c in listed]
                beyond = np.array(others, dtype=np.int64).reshape(len(listed), k - j)
                parts = chosen[0][:, within].prod(axis=2) * chosen[1][:, beyond].prod(axis=2)
                out.append(parts.reshape(-1))
        return np.concatenate(out)

    def above(self, values: Array) -> Array:
        """The sum over the terms that hold each piece."""
        summed = np.bincount(self.piece, values[self.term], self.pieces)
        return np.asarray(summed, dtype=np.float64)

    def below(self, values: Array) -> Array:
        """The sum over the pieces within each term."""
        summed = np.bincount(self.term, values[self.piece], self.terms)
        return np.asarray(summed, dtype=np.float64)

    def within(self, term: int) -> Integers:
        """The pieces of one term, smallest sets first."""
        order, first = self._by_term
        return self.piece[order[first[term] : first[term + 1]]]

    def members(self, piece: int) -> Integers:
        """The attributes of a piece."""
        level = int(np.searchsorted(self._starts, piece, side="right")) - 1
        rows: Integers = self.levels[level]
        return np.asarray(rows[piece - int(self._starts[level])])

    @cached_property
    def _starts(self) -> Integers:
        return np.cumsum([0, *(len(rows) for rows in self.levels)])[:-1]

    @cached_property
    def _by_term(self) -> tuple[Integers, Integers]:
        counts = np.bincount(self.term, minlength=self.terms)
        return np.argsort(self.term, kind="stable"), np.cumsum([0, *counts])


def marginal_sets(workload: Workload) -> list[tuple[int, ...]] | None:
    """The attributes (by number) of every term that is a marginal; None when one is not.

    An attribute of a single cell is left out: its table is the total.
    """
    place = {name: i for i, name in enumerate(workload.domain.names)}
    sets: list[tuple[int, ...]] = []
    for term in workload.terms:
        product = term.as_product()
        if product is None:
            return None
        members = []
        for name, queries in product.factors:
            if queries.is_identity:
                if queries.size > 1:
                    members.append(place[name])
            elif not queries.is_total:
                return None
        sets.append(tuple(members))
    return sets


def lattice(sets: Sequence[tuple[int, ...]]) -> Lattice:
    """All subsets of the given sets of numbers, and which lies in which."""
    lengths = np.array([len(s) for s in sets])
    pairs = int((2.0**lengths).sum())
    if pairs > LIMITS.lattice_pairs:
        raise TooLarge(
            f"the asked tables have {pairs:,} subsets of attributes, the most are "
            f"{LIMITS.lattice_pairs:,}; ask for tables of fewer attributes"
        )
    by_size = []
    for k in np.unique(lengths):
        numbers = np.flatnonzero(lengths == k)
        rows = np.array([sets[i] for i in numbers.tolist()], dtype=np.int64)
        by_size.append((numbers, rows.reshape(len(numbers), int(k))))
    levels, piece, term = [], [], []
    count = 0
    for j in range(int(lengths.max()) + 1):
        rows, above = _subsets(by_size, j)
        first, number = _distinct(rows)
        levels.append(rows[first])
        piece.append(number + count)
        term.append(above)
        count += len(first)
    if count > LIMITS.lattice_sets:
        raise TooLarge(
            f"{count:,} pieces would be measured, the most are {LIMITS.lattice_sets:,}; ask for "
            "fewer tables"
        )
    return Lattice(
        len(sets), tuple(by_size), tuple(levels), np.concatenate(piece), np.concatenate(term)
    )


def _subsets(by_size: Sequence[tuple[Integers, Integers]], j: int) -> tuple[Integers, Integers]:
    """All subsets of size j of the asked sets, and the terms that they come from."""
    rows, above = [], []
    for numbers, sets in by_size:
        k = sets.shape[1]
        if k >= j:
            chosen = np.array(list(combinations(range(k), j)), dtype=np.int64)
            above.append(np.repeat(numbers, len(chosen)))
            rows.append(sets[:, chosen].reshape(len(above[-1]), j))
    return np.concatenate(rows), np.concatenate(above)


def _distinct(rows: Integers) -> tuple[Integers, Integers]:
    """Where every distinct row is first, and the number of each row among these."""
    base = int(rows.max(initial=0)) + 1
    code = np.zeros(len(rows), dtype=np.int64)
    reach = 1
    for column in rows.T:
        if reach * base > CODED:  # number afresh what has been seen so far
            code = np.unique(code, return_inverse=True)[1].reshape(-1)
            reach = len(rows)
        code = code * base + column
        reach *= base
    _, first, number = np.unique(code, return_index=True, return_inverse=True)
    return first, number.reshape(-1)
