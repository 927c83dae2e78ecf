# SPDX-License-Identifier: Apache-2.0
"""How far one person moves every measured block, whose rows lie in a bounded number of groups.

A privacy unit with at most G groups and r rows in each (``PrivacyUnit``) moves the histogram by
``d = sum_g d_g``, one part for each group, with ``d_g >= 0`` and ``|d_g|_1 <= r``. The squared
distance ``sum_b s_b |M_b d|_2^2`` is convex, so it is greatest where all rows of a group lie in one
cell: ``d = r sum_g e_{c(g)}``; there it is ``r^2 sum_{g, g'} K(c(g), c(g'))``, K being the inner
products of columns. Three upper bounds on that, none below the truth, of which the least is taken:

* where no query counts cells of two groups (``Term.separates``), the inner products between groups
  are 0: G times the longest column, and no more;
* else K is known for all pairs of groups, as the greatest inner product of a cell of one and a cell
  of the other: for terms that are products over attributes by kinds of pairs (``_by_kinds``), for
  small domains pair by pair (``_by_cells``). The sum over any G of the groups is at most that of
  the G greatest sums of G of the inner products of a group, and at most G times the greatest
  eigenvalue of K;
* the bound for rows alone: all of them in the longest column.

In L1 groups gain nothing: columns of several groups may all count in full.

Docs: docs/proofs/units.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Protocol

import numpy as np

from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.strategy.base import MeasuredQueries
from sfumato.strategy.moves import cell_of
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Neighbours
from sfumato.workload.sensitivity import ROUND_UP
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

__all__ = [
    "bound_of_groups",
    "moved_by_groups",
]

# An inner product of two columns errs by less than this part of the product of their lengths: sums
# of at most 2^17 products of at most 2^10 blocks, each to 2^-52.
INNER_ERROR = 2.0**-24


def moved_by_groups(
    measured: MeasuredQueries, unit: PrivacyUnit, neighbours: Neighbours, scales: Sequence[float]
) -> float | None:
    """At least ``sum_b scales[b] |M_b (h - h')|_2^2`` of one person with groups; None if unknown.

    Neighbours: all rows of one unit added or removed, or replaced by other rows of one unit; of
    each, at most ``unit.groups`` groups and ``unit.rows_per_group`` rows in each are counted.
    docs/proofs/units.md, Theorems 1 to 3.

    Args:
        measured: The measured blocks.
        unit: A privacy unit with groups.
        neighbours: Which data sets must not be told apart.
        scales: What each block counts.

    Returns:
        The squared distance, rounded up; None where nothing better than rows alone is known.
    """
    longest = measured.maximum_column(2, scales).power
    terms = [b.term for b in measured.blocks]
    ways = 2 if measured.is_nonnegative else 4
    replaced = 1 if neighbours == "add-remove" else ways
    if all(term.separates(unit.by) for term in terms):
        return longest * unit.greatest_square * replaced * ROUND_UP
    key = ("inner products", unit.by)
    inner = measured.computed_once(key, lambda: _inner_products(terms, unit.by))
    if inner is None or unit.groups is None or unit.rows_per_group is None:
        return None
    above, below = inner.between(np.asarray(scales, dtype=np.float64), longest)
    most = min(unit.groups, -(-unit.rows // unit.rows_per_group))
    square = unit.rows_per_group**2
    one = square * _greatest_sum(above, longest, most, inner.group_count)
    if neighbours == "add-remove":
        return one * ROUND_UP
    crossing = square * _greatest_sum(below, None, most, inner.group_count)
    return min(ways * one, 2 * one + 2 * crossing) * ROUND_UP


def bound_of_groups(workload: Workload, unit: PrivacyUnit) -> float:
    """What a lower bound for one record, added or removed, is multiplied by to hold for a person.

    Where the queries do not change when the values of the groups are exchanged, n of them, a person
    with k full groups of r rows counts at least ``r^2 k (n - k) / (n - 1)`` times as much as one
    record; else at least r^2 times. Without groups it is exactly ``rows^2``.

    Docs: docs/proofs/units.md, Theorem 4.
    """
    if unit.rows_per_group is None:
        return float(unit.rows) ** 2
    square = float(unit.rows_per_group) ** 2
    if not all(_is_exchangeable(term, unit.by) for term in workload.terms):
        return square
    n = prod(workload.domain[name].size for name in unit.by)
    k = min(unit.full_groups, (n + 1) // 2)  # more groups than half of all bound nothing more
    return square * max(1.0, k * (n - k) / (n - 1)) if n > 1 else square


def _is_exchangeable(term: Term, names: Sequence[str]) -> bool:
    """Whether a product asks alike for all values of these attributes, or does not ask by them."""
    product = term.as_product()
    if product is None:
        return False
    factors = dict(product.factors)
    return all(
        n not in factors
        or factors[n].is_identity
        or factors[n].rows == 1 == len(np.unique(factors[n].dense()))
        for n in names
    )


class _Inner(Protocol):
    """The greatest inner products of columns of cells of two groups, at scales of the blocks."""

    @property
    def group_count(self) -> int:
        """The number of groups."""
        ...

    def between(self, scales: Array, longest: float) -> tuple[Array, Array]:
        """Upper bounds on K and on -K (at least 0) for pairs of groups.

        A matrix each, of which the diagonal of the first is not used; or one number for all pairs.
        """
        ...


def _greatest_sum(inner: Array, longest: float | None, most: int, group_count: int) -> float:
    """At least the sum over any ``most`` groups and all pairs of them.

    With ``longest`` the diagonal counts as that; without it as it is, and the sum is over pairs of
    two such choices of groups.
    """
    most = min(most, group_count)
    if inner.ndim == 0:
        value = max(float(inner), 0.0)
        return most * most * value if longest is None else most * (longest + (most - 1) * value)
    values = inner.copy()
    if longest is not None:
        np.fill_diagonal(values, longest)
    positive = np.maximum(values, 0.0)
    rows = np.partition(positive, group_count - most, axis=1)[:, group_count - most :].sum(axis=1)
    if longest is not None:
        # The group itself is always in the sum.
        others = positive - np.diag(np.diag(positive))
        left = group_count - most + 1
        rows = longest + np.partition(others, left - 1, axis=1)[:, left:].sum(axis=1)
    total = float(np.partition(rows, group_count - most)[group_count - most :].sum())
    if longest is not None and group_count <= LIMITS.group_eigenvalues:
        greatest = float(np.linalg.eigvalsh(values)[-1])
        total = min(total, most * (greatest + INNER_ERROR * longest * sqrt(group_count)))
    return total


# Inner products of columns by group


def _inner_products(terms: Sequence[Term], by: Sequence[str]) -> _Inner | None:
    if len(terms) > LIMITS.group_blocks:
        return None
    return _by_kinds(terms, by) or _by_cells(terms, by)


@dataclass(frozen=True, eq=False)
class _Kinds:
    """Inner products of products over attributes: what pairs of cells have along each attribute.

    ``along[b, k]`` is that of block b along the attributes of the groups for the kind k of a pair
    of groups, ``rest[b, u]`` that along all others; ``kind_of`` the kind of every pair of groups,
    or none where they are too many, and ``is_other`` whether a kind is of two different groups.
    """

    group_count: int
    along: Array
    rest: Array
    is_other: Array
    kind_of: Integers | None

    def between(self, scales: Array, longest: float) -> tuple[Array, Array]:
        """The greatest and the least of every kind."""
        values = (self.along * scales[:, None]).T @ self.rest
        off = INNER_ERROR * longest
        above, below = values.max(axis=1) + off, np.maximum(-values.min(axis=1), 0.0) + off
        if self.kind_of is None:
            others = above[self.is_other]
            return np.array(others.max(initial=0.0)), np.array(below.max(initial=0.0))
        return above[self.kind_of], below[self.kind_of]


def _by_kinds(terms: Sequence[Term], by: Sequence[str]) -> _Kinds | None:
    """The inner products of terms that are products over attributes; None where one is not."""
    factors = []
    for term in terms:
        matrices = term.inner_factors(LIMITS.group_cells)
        if matrices is None:
            return None
        factors.append(matrices)
    domain = terms[0].domain
    names = domain.in_order(frozenset(by).union(*(own for own in factors)))
    kinds: dict[str, tuple[Array, Integers, Array]] = {}
    for name in names:
        own = _pair_kinds([each.get(name) for each in factors], domain[name].size)
        if own is None:
            return None
        kinds[name] = own
    blocks = len(terms)
    along, is_same = np.ones((blocks, 1)), np.ones(1, dtype=bool)
    rest = np.ones((blocks, 1))
    for name in names:
        values, _, equal = kinds[name]
        held = (along if name in by else rest).shape[1]
        if blocks * held * values.shape[1] > LIMITS.group_products:
            return None
        if name in by:
            along = _paired(along, values)
            is_same = (is_same[:, None] & (equal > 0)[None, :]).reshape(-1)
        else:
            rest = np.unique(_paired(rest, values), axis=1)
    if along.shape[1] * rest.shape[1] > LIMITS.group_products:
        return None
    groups = prod(domain[n].size for n in by)
    kind_of = None
    if groups <= LIMITS.group_cells:
        kind_of = np.zeros((1, 1), dtype=np.int64)
        for name in (n for n in names if n in by):
            values, of_pair, _ = kinds[name]
            size = len(kind_of) * len(of_pair)
            pairs = kind_of[:, None, :, None] * values.shape[1] + of_pair[None, :, None, :]
            kind_of = pairs.reshape(size, size)
    return _Kinds(groups, along, rest, ~is_same, kind_of)


def _paired(left: Array, right: Array) -> Array:
    """The products of every column of one with every column of the other, block by block."""
    return np.asarray((left[:, :, None] * right[:, None, :]).reshape(len(left), -1))


def _pair_kinds(
    matrices: Sequence[Array | None], size: int
) -> tuple[Array, Integers, Array] | None:
    """The different values that pairs of cells have: per block, which pair has which, and equality.

    Blocks that do not read the attribute have 1 for every pair. A pair of one cell with itself is
    never of one kind with a pair of two.
    """
    distinct = {id(m): m for m in matrices if m is not None}
    place = {key: i for i, key in enumerate(distinct)}
    if all(_is_even(m) for m in distinct.values()):  # all cells alike: equal or not
        pairs = [(float(m[0, 0]), float(m[0, -1])) for m in distinct.values()]
        kinds = np.array([*pairs, (1.0, 0.0)])
        # Where there are too many cells nobody asks which pair is which.
        of = 1 - np.eye(size if size <= LIMITS.group_cells else 1, dtype=np.int64)
    else:
        if len(distinct) * size**2 > LIMITS.group_products:
            return None
        rows = [m.reshape(-1) for m in distinct.values()]
        kinds, pair = np.unique([*rows, np.eye(size).reshape(-1)], axis=1, return_inverse=True)
        of = pair.reshape(size, size)
    ones = np.ones(kinds.shape[1])
    values = np.array([ones if m is None else kinds[place[id(m)]] for m in matrices])
    return values, of, kinds[-1]


def _is_even(matrix: Array) -> bool:
    """Whether all pairs of equal cells have one value, and all pairs of different cells one."""
    others = matrix[0, -1]
    is_other = matrix == others
    np.fill_diagonal(is_other, True)
    return bool(is_other.all() and (np.diag(matrix) == matrix[0, 0]).all())


@dataclass(frozen=True, eq=False)
class _Cells:
    """The Gram matrix of every block over all cells of a small domain, sorted by group."""

    group_count: int
    grams: Array
    starts: Integers
    lost: Array

    def between(self, scales: Array, longest: float) -> tuple[Array, Array]:
        """The greatest and the least over all cells of two groups."""
        gram = np.tensordot(scales, self.grams, axes=1)
        off = INNER_ERROR * longest + float(scales @ self.lost)
        return self._over_groups(gram) + off, np.maximum(self._over_groups(-gram) + off, 0.0)

    def _over_groups(self, gram: Array) -> Array:
        first = np.maximum.reduceat(gram, self.starts, axis=0)
        return np.asarray(np.maximum.reduceat(first, self.starts, axis=1))


def _by_cells(terms: Sequence[Term], by: Sequence[str]) -> _Cells | None:
    """The inner products of all pairs of cells; None where they are too many."""
    domain = terms[0].domain
    names = domain.in_order(frozenset(by).union(*(t.attributes for t in terms)))
    shape = [domain[n].size for n in names]
    cells = prod(shape)
    if cells > LIMITS.group_cells or len(terms) * cells**2 > LIMITS.group_products:
        return None
    if any(t.is_wide or t.rows * t.cells > LIMITS.group_products for t in terms):
        return None
    places = np.unravel_index(np.arange(cells), shape)
    group = np.zeros(cells, dtype=np.int64)
    for name in by:
        group = group * domain[name].size + places[names.index(name)]
    order = np.argsort(group, kind="stable")
    grams, lost = [], []
    for term in terms:
        columns = term.dense()
        at = cell_of(term, names, places, cells)[order]
        gram = columns.T @ columns
        grams.append(gram[np.ix_(at, at)])
        # Values that are no exact integers are within ``slack`` of those of the columns.
        lost.append(2 * sqrt(float(gram.max(initial=0.0))) * term.slack + term.slack**2)
    starts = np.unique(group[order], return_index=True)[1]
    return _Cells(len(starts), np.array(grams), starts, np.array(lost))
