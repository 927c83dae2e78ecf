# SPDX-License-Identifier: Apache-2.0
"""How unions in pieces split every attribute: the best extra weight on its total.

With ``a_t^2`` the squares of the totals and ``b_t^2`` those of the rests times their cost, the
error of pieces (``pieces.py``) is the square of

    sum_A sqrt( sum_{t holding A} w_t^2 prod_{i in A} b_ti^2 prod_{i in t - A} a_ti^2 ).

The split of attribute i is that of the optimum of its query sets with more or less weight on the
total (``split.py``), so a and b are curves in one number. They are smooth in the logarithm of the
weight: a few optima and a polynomial through them are enough to search all attributes together,
and only the weights found in the end are split and rounded. Attributes that every group asks alike
are split without extra weight: the optimum is then a product, and theirs a factor of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log, log2
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

from sfumato.errors import TooLarge
from sfumato.plan.optimal.split import (
    Optimum,
    Split,
    centred_split,
    entry_bits,
    optimal_split,
    short_basis,
    split_optimum,
)
from sfumato.plan.solve.lattice import Lattice, lattice
from sfumato.workload.queries import Array, Integers, QuerySet
from sfumato.workload.workload import Workload

__all__ = ["SplitUnion", "Union", "union", "union_of_splits"]

LARGEST_AXIS = 1024  # cells of an attribute whose split is found by dense algebra
NODES = 7  # weights at which an attribute is solved
WEIGHTS = (-6.0, 5.0)  # range of the logarithm of the extra weight on a total
ROUGH, FINE = 3e-4, 5e-7  # how well an attribute is solved while searching, and at the end
ROUNDS = 2
DRAWN = 52  # bits of a product of coefficients: noise of 2^60 of them can be drawn
FEWEST = 8  # bits of a coefficient
NO_REST = 1e-20  # of the squared coefficients: a rest that is rounding

Asked = Sequence[Mapping[str, QuerySet]]


@dataclass(frozen=True, eq=False)
class Union:
    """Which query sets the terms ask, by number, and all pairs of a term and a subset of it.

    ``used`` belongs to ``known.asked``: the numbers of the query sets, in place of the attributes.
    """

    known: Lattice
    used: tuple[Integers, ...]
    weights: Array

    def squares(self, inside: Array, outside: Array) -> Array:
        """``sum_t w_t^2 prod_{A} inside prod_{t - A} outside`` of every piece A."""
        pairs = self.known.of_pairs([inside[u] for u in self.used], [outside[u] for u in self.used])
        found = np.bincount(
            self.known.piece, self.weights[self.known.term] * pairs, self.known.pieces
        )
        return np.asarray(found, dtype=np.float64)

    def root(self, inside: Array, outside: Array) -> float:
        """The sum of the roots of ``squares``."""
        return float(np.sqrt(self.squares(inside, outside)).sum())


def union(
    sets: Sequence[tuple[int, ...]], symbols: Sequence[tuple[int, ...]], weights: Array
) -> Union:
    """The union of terms over these attributes, with these numbers of query sets."""
    known = lattice(sets)
    used = []
    for terms, rows in known.asked:
        listed = np.array([symbols[t] for t in terms.tolist()], dtype=np.int64)
        used.append(listed.reshape(len(terms), rows.shape[1]))
    return Union(known, tuple(used), weights)


@dataclass(frozen=True, eq=False)
class _Family:
    """Query sets that are asked along one attribute, or along several of that size."""

    sets: tuple[QuerySet, ...]

    @cached_property
    def grams(self) -> list[Array]:
        return [q.gram() for q in self.sets]

    @cached_property
    def scale(self) -> float:
        """The unit of extra weights: the mean of the diagonal."""
        return sum(float(np.trace(g)) for g in self.grams) / self.sets[0].size

    def optimum(self, weight: float, tolerance: float, start: Array | None = None) -> Optimum:
        basis = self.short[weight > 0]
        rank = None if basis is None else len(basis)
        return split_optimum(self.sets, self.grams, weight * self.scale, tolerance, start, rank)

    @cached_property
    def short(self) -> tuple[Integers | None, Integers | None]:
        """Independent queries where they span less than all cells; without and with the total."""
        return short_basis(self.sets, has_total=False), short_basis(self.sets, has_total=True)

    @cached_property
    def curve(self) -> Array:
        """Chebyshev coefficients of the roots of all a^2, all b^2, over the range of weights."""
        places = np.cos(np.pi * (np.arange(NODES) + 0.5) / NODES)
        low, high = WEIGHTS
        values, start = [], None
        for place in places:
            weight = exp(low + (place + 1) / 2 * (high - low))
            found = self.optimum(weight, ROUGH, start)
            start = found.v
            values.append(np.sqrt(np.maximum(np.concatenate(found.squares(self.grams)), 0.0)))
        return np.asarray(chebyshev.chebfit(places, np.array(values), NODES - 1))

    def at(self, log_weight: float) -> tuple[Array, Array]:
        """About a^2 and b^2 of every set."""
        low, high = WEIGHTS
        place = 2 * (log_weight - low) / (high - low) - 1
        found = np.asarray(chebyshev.chebval(place, self.curve), dtype=np.float64) ** 2
        return found[: len(self.sets)], found[len(self.sets) :]


class SplitUnion(NamedTuple):
    """The splits of all attributes, with ``c_A`` and ``cost_A`` of every piece A.

    ``cells`` are the weights of the cells of the optima that were split.
    """

    splits: dict[str, Split]
    cells: dict[str, Array]
    subsets: list[tuple[str, ...]]
    c: Array
    cost: Array


def union_of_splits(workload: Workload, asked: Asked) -> SplitUnion:
    """The best splits for a union of products; TooLarge where an attribute has too many cells."""
    numbers: dict[tuple[str, int], int] = {}  # one set may serve two attributes
    sets: dict[str, list[QuerySet]] = {}
    for factors in asked:
        for name, queries in factors.items():
            if (name, id(queries)) not in numbers:
                numbers[name, id(queries)] = len(numbers)
                sets.setdefault(name, []).append(queries)
    place = {name: i for i, name in enumerate(workload.domain.names)}
    made = union(
        [tuple(place[n] for n in factors) for factors in asked],
        [tuple(numbers[n, id(q)] for n, q in factors.items()) for factors in asked],
        np.array([t.weight**2 for t in workload.terms]),
    )
    found = _Search(workload, asked, sets, numbers, made)
    splits = found.best_splits()
    rests, totals = np.ones(len(numbers)), np.ones(len(numbers))
    cost = np.ones(len(workload.domain.names))
    for name, listed in sets.items():
        cost[place[name]] = splits[name].cost
        for queries in listed:
            number = numbers[name, id(queries)]
            totals[number], rests[number] = _read(splits[name], queries)
    names = workload.domain.names
    subsets = [tuple(names[i] for i in row) for rows in made.known.levels for row in rows.tolist()]
    c = made.squares(rests, totals)
    return SplitUnion(splits, found.cells, subsets, c, made.known.of_pieces(cost))


def _read(split: Split, queries: QuerySet) -> tuple[float, float]:
    """``sum alpha^2`` and ``sum |r|^2`` over the queries."""
    n = queries.size
    if queries.is_identity and split.is_centred:
        return 1 / n, float(n - 1)
    gram = queries.gram()
    totals, rests = split.squares(gram)
    # Queries that are multiples of the total have no rest; noise for what rounding leaves of one
    # could not be drawn.
    is_total = rests * split.cost <= NO_REST * float(np.trace(gram))
    return totals, 0.0 if is_total else rests


class _Search:
    """The extra weight of every attribute."""

    def __init__(
        self,
        workload: Workload,
        asked: Asked,
        sets: Mapping[str, Sequence[QuerySet]],
        numbers: Mapping[tuple[str, int], int],
        made: Union,
    ) -> None:
        self.domain, self.sets, self.numbers, self.union = workload.domain, sets, numbers, made
        self.a, self.b = np.ones(len(numbers)), np.ones(len(numbers))
        self.families: dict[str, _Family] = {}
        self.cells: dict[str, Array] = {}
        known: dict[tuple[int, tuple[str | int, ...]], _Family] = {}
        for name, found in sets.items():
            size = workload.domain[name].size
            if all(q.is_identity for q in found):
                continue
            if size > LARGEST_AXIS:
                raise TooLarge(f"attribute {name!r} has {size:,} cells, more than {LARGEST_AXIS:,}")
            key = (size, tuple(q.key for q in found))
            self.families[name] = known.setdefault(key, _Family(tuple(found)))
        self.bits = min(entry_bits(workload), self._drawn_bits(asked))
        everywhere = {n for n in sets if all(n in factors for factors in asked)}
        self.is_fixed = {n for n in everywhere if len(sets[n]) == 1}

    def _drawn_bits(self, asked: Asked) -> int:
        """Bits that leave the noise on every piece in the range that can be drawn.

        A piece multiplies the coefficients of its attributes, and its noise grows with them: those
        of a split that is rounded, n - 1 for n cells that are compared with their mean.
        """
        bits = DRAWN
        for factors in asked:
            rounded = sum(n in self.families for n in factors)
            taken = sum(log2(self.domain[n].size) for n in factors if n not in self.families)
            if rounded:
                bits = min(bits, int(DRAWN - taken) // rounded)
        return max(bits, FEWEST)

    def best_splits(self) -> dict[str, Split]:
        """Attribute by attribute, the extra weight that lowers the error most."""
        splits = {}
        for name, listed in self.sets.items():
            size = self.domain[name].size
            if name not in self.families:
                splits[name] = centred_split(size)
                for queries in listed:
                    number = self.numbers[name, id(queries)]
                    self.a[number], self.b[number] = 1 / size, (size - 1) ** 2 / size
        searched = [n for n in self.families if n not in self.is_fixed]
        chosen = dict.fromkeys(searched, 0.0)
        for name in searched:
            self._set(name, 0.0)
        for _ in range(ROUNDS if len(searched) > 1 else 1):
            for name in searched:
                chosen[name] = self._best(name)
        made: dict[tuple[int, float], tuple[Split, Array]] = {}
        for name, family in self.families.items():
            weight = exp(chosen[name]) if name in chosen else 0.0
            key = (id(family), weight)
            if key not in made:
                found = family.optimum(weight, FINE)
                basis = family.short[weight > 0]
                split = optimal_split(found, self.bits, basis, weight > 0)
                made[key] = split, found.v
            splits[name], self.cells[name] = made[key]
        return splits

    def _set(self, name: str, log_weight: float) -> None:
        family = self.families[name]
        for queries, a, b in zip(self.sets[name], *family.at(log_weight), strict=True):
            number = self.numbers[name, id(queries)]
            self.a[number], self.b[number] = a, b

    def _best(self, name: str) -> float:
        """The weight of least error, given those of the other attributes."""
        from scipy.optimize import minimize_scalar

        def error(log_weight: float) -> float:
            self._set(name, log_weight)
            return log(self.union.root(self.b, self.a))

        found = minimize_scalar(error, bounds=WEIGHTS, method="bounded", options={"xatol": 0.05})
        best = round(float(found.x) / 0.05) * 0.05
        self._set(name, best)
        return best
