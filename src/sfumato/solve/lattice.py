# SPDX-License-Identifier: Apache-2.0
"""The sets of attributes that marginals ask about, and all their subsets, as arrays.

A marginal over B is put together from one piece per subset A of B. What the planner needs are sums
over pairs ``A within B``, so all pairs are listed once, as two arrays of numbers; a sum over the
sets above or below is then one weighted count, however many marginals there are.

Where all sets of some sizes are asked, and they are too many for a list, sums of values that depend
on sizes alone are binomial coefficients (``CompleteLattice``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from math import comb

import numpy as np

from sfumato.errors import TooLarge
from sfumato.solve.solve_limits import LIMITS
from sfumato.types import Array, Integers
from sfumato.workload.workload import Workload

__all__ = [
    "CompleteLattice",
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


@dataclass(frozen=True, eq=False)
class CompleteLattice(Lattice):
    """All sets of some sizes of the same attributes, ``base``; no pair is listed.

    A piece of size j lies within ``C(n - j, k - j)`` of the asked sets of size k, and a set of size
    k holds ``C(k, j)`` pieces of size j. Sums of values that differ within a size are taken over
    some terms at a time.
    """

    base: Integers

    def above(self, values: Array) -> Array:
        """The sum over the terms that hold each piece."""
        n, sizes = len(self.base), [(rows.shape[1], values[at]) for at, rows in self.by_size]
        if all(_is_constant(own) for _, own in sizes):
            each = [
                sum(float(own[0]) * comb(n - j, k - j) for k, own in sizes if k >= j)
                for j in range(len(self.levels))
            ]
            return np.repeat(each, [len(rows) for rows in self.levels])
        out = np.zeros(self.pieces)
        for numbers, pieces in self.some_at_a_time():
            np.add.at(out, pieces, values[numbers, None])
        return out

    def below(self, values: Array) -> Array:
        """The sum over the pieces within each term."""
        levels = np.split(values, self._starts[1:])
        out = np.zeros(self.terms)
        if all(_is_constant(own) for own in levels):
            for numbers, rows in self.by_size:
                k = rows.shape[1]
                out[numbers] = sum(comb(k, j) * float(levels[j][0]) for j in range(k + 1))
            return out
        for numbers, pieces in self.some_at_a_time():
            out[numbers] = values[pieces].sum(axis=1)
        return out

    def within(self, term: int) -> Integers:
        """The pieces of one term, smallest sets first."""
        size, at = self._places
        rows: Integers = self.by_size[int(size[term])][1]
        return np.asarray(self.within_sets(rows[int(at[term])][None])[0])

    def within_sets(self, sets: Integers) -> Integers:
        """The pieces of sets of one size, a row each: by size, then as ``combinations`` has them.

        The number of a set ``c_0 < c_1 < ...`` of j numbers among all of them in lexicographic
        order is the sum over i of ``C(n - 1 - v, j - 1 - i)`` for v between c_(i-1) and c_i.
        """
        n, k = len(self.base), sets.shape[1]
        places = np.searchsorted(self.base, sets)
        out: list[Integers] = [np.zeros((len(sets), 1), dtype=np.int64)]
        for j in range(1, k + 1):
            chosen = places[:, np.array(list(combinations(range(k), j)), dtype=np.int64)]
            numbers = np.full(chosen.shape[:2], self._starts[j], dtype=np.int64)
            for i in range(j):
                passed = np.cumsum([0, *(comb(n - 1 - v, j - 1 - i) for v in range(n))])
                numbers += passed[chosen[:, :, i]]
                if i:
                    numbers -= passed[chosen[:, :, i - 1] + 1]
            out.append(numbers)
        return np.concatenate(out, axis=1)

    def some_at_a_time(self) -> Iterator[tuple[Integers, Integers]]:
        """Numbers of terms, and the pieces within each."""
        for numbers, rows in self.by_size:
            step = max(1, LIMITS.lattice_pairs >> (rows.shape[1] + 3))
            for first in range(0, len(numbers), step):
                part = slice(first, first + step)
                yield numbers[part], self.within_sets(rows[part])

    @cached_property
    def _places(self) -> tuple[Integers, Integers]:
        """Of every term: its entry of ``by_size``, and its row there."""
        size, at = np.zeros((2, self.terms), dtype=np.int64)
        for i, (numbers, _) in enumerate(self.by_size):
            size[numbers], at[numbers] = i, np.arange(len(numbers))
        return size, at


def _is_constant(values: Array) -> bool:
    return bool((values == values[0]).all())


def _complete(sets: Sequence[tuple[int, ...]]) -> CompleteLattice | None:
    """The lattice of all sets of some sizes; None where one is missing, or they are too many."""
    base = np.array(sorted({i for s in sets for i in s}), dtype=np.int64)
    by_size = _by_size(sets)
    counts = [(rows.shape[1], len(rows)) for _, rows in by_size]
    if any(count != comb(len(base), k) for k, count in counts) or len(set(sets)) < len(sets):
        return None
    largest = counts[-1][0]
    pieces = sum(comb(len(base), j) for j in range(largest + 1))
    if pieces > LIMITS.complete_sets:
        return None
    levels = []
    for j in range(largest + 1):
        listed = np.fromiter(chain.from_iterable(combinations(base.tolist(), j)), dtype=np.int64)
        levels.append(listed.reshape(comb(len(base), j), j))
    none = np.zeros(0, dtype=np.int64)
    return CompleteLattice(len(sets), by_size, tuple(levels), none, none, base)


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


def lattice(sets: Sequence[tuple[int, ...]], is_listed: bool = True) -> Lattice:
    """All subsets of the given sets of numbers, and which lies in which.

    Unless all pairs have to be listed, more sets are taken where they are all of some sizes.
    """
    lengths = np.array([len(s) for s in sets])
    pairs = int((2.0**lengths).sum())
    if pairs > LIMITS.lattice_pairs:
        complete = None if is_listed else _complete(sets)
        if complete is not None:
            return complete
        raise TooLarge(
            f"the asked tables have {pairs:,} subsets of attributes, the most are "
            f"{LIMITS.lattice_pairs:,}; ask for tables of fewer attributes"
        )
    by_size = _by_size(sets)
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
    return Lattice(len(sets), by_size, tuple(levels), np.concatenate(piece), np.concatenate(term))


def _by_size(sets: Sequence[tuple[int, ...]]) -> tuple[tuple[Integers, Integers], ...]:
    """The numbers of the sets of each size, and their members, a row each."""
    lengths = np.array([len(s) for s in sets])
    out = []
    for k in np.unique(lengths):
        numbers = np.flatnonzero(lengths == k)
        rows = np.array([sets[i] for i in numbers.tolist()], dtype=np.int64)
        out.append((numbers, rows.reshape(len(numbers), int(k))))
    return tuple(out)


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
