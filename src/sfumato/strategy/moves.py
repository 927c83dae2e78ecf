# SPDX-License-Identifier: Apache-2.0
"""How far a replaced record, or one person, moves every measured block.

Replacing a record moves the histogram by ``e_i - e_j``, or by ``e_i`` alone where one of the two
records falls in no cell: a *move*. The loss is ``max over moves of sum_b s_b |M_b d|^2``: one move
for all blocks together (``BlockMoves``), where adding up the diameters of the blocks
(``squared_diameter``, ``l1_diameter``) would take a different move for each. Two descriptions of
all moves at once:

* ``pair_moves``, for small domains: all pairs of cells, from the columns of the blocks;
* ``set_moves``, for marginals: the columns of a piece A have inner product ``|M_A|^2 prod x_i``,
  over the attributes of A in which the cells differ, ``x_i = -1 / (n_i - 1)``. So only the set of
  attributes in which two cells differ matters. Attributes of one size that are asked alike are
  exchangeable, and of these only the number that differ: their sum over the sets of k is a
  Krawtchouk-like sum.

A privacy unit with at most G groups and r rows in each (``PrivacyUnit``, ``bound_of_groups``) moves
the histogram by ``d = sum_g d_g``, one part for each group, with ``d_g >= 0`` and ``|d_g|_1 <= r``.
The squared distance ``sum_b s_b |M_b d|_2^2`` is convex, so greatest where all rows of a group lie
in one cell: ``d = r sum_g e_{c(g)}``; there it is ``r^2 sum_{g, g'} K(c(g), c(g'))``, K being
the inner products of columns. Three upper bounds on that, none below the truth, of which the least
is taken:

* where no query counts cells of two groups (``Term.separates``), the inner products between groups
  are 0: G times the longest column, and no more;
* else K is known for all pairs of groups, as the greatest inner product of a cell of one and a cell
  of the other: for terms that are products over attributes by kinds of pairs (``_by_kinds``), for
  small domains pair by pair (``_by_cells``). The sum over any G of the groups is at most that of
  the G greatest sums of G of the inner products of a group, and at most G times the greatest
  eigenvalue of K;
* the bound for rows alone: all of them in the longest column.

In L1 groups gain nothing: columns of several groups may all count in full.

Docs: docs/proofs/measuring.md, "Diameters", and docs/proofs/units.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, prod, sqrt
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.solve.farthest import PairDistances, farthest_together
from sfumato.solve.lattice import Lattice
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Neighbours
from sfumato.workload.sensitivity import ROUND_UP, greatest_column_power
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from sfumato.strategy.base import MeasuredQueries

__all__ = [
    "BlockMoves",
    "bound_of_groups",
    "cell_of",
    "farthest_move",
    "l1_diameter",
    "moved_by_groups",
    "pair_moves",
    "set_moves",
    "squared_diameter",
]


# Distances are differences of sums of at most 2^21 squares: their error is below this part of the
# greatest distance of the block, which no centred column exceeds.
DIFFERENCE = 2.0**-30
TINY = 2.0**-44  # of the sum: a distance of cells that do not differ at all
EXACT = 2.0**52  # columns of such integers are floats, and so are their differences


@dataclass(frozen=True, eq=False)
class BlockMoves:
    """``distances[g, v]``: by how much move v moves the blocks of group g, at scale 1.

    Squared in L2, for Gaussian noise; in L1, for Laplace noise, as they are.
    ``group[b]`` is the group of block b and ``norms[b]`` what its scale is multiplied by;
    ``counts[g]`` is the number of blocks of a whole group: blocks that are not there count as
    well, at the greatest scale of those that are, so the distance is never too small.
    """

    distances: Array
    group: Integers
    norms: Array
    counts: Array

    def maximum(self, scales: Sequence[float]) -> float:
        """An upper bound on ``max_v sum_b scales[b] |M_b d_v|^p``; exact where groups are alike."""
        each = np.zeros(len(self.distances))
        np.maximum.at(each, self.group, np.asarray(scales, dtype=np.float64) * self.norms)
        farthest = float((each @ self.distances).max(initial=0.0))
        return farthest * ROUND_UP + DIFFERENCE * float(
            each @ self.distances.max(axis=1, initial=0.0)
        )

    def each(self, weights: Array) -> Array:
        """The mean of ``|M_b d|^2`` of every block over moves of these weights."""
        means = (self.distances @ weights) / self.counts
        return np.asarray(means[self.group] * self.norms, dtype=np.float64)


def pair_moves(terms: Sequence[Term], drops: bool, p: int = 2) -> BlockMoves | None:
    """All pairs of cells of a small domain; None where they are too many.

    Distances are squared for p = 2, and in L1 for p = 1.
    """
    domain = terms[0].domain
    names = domain.in_order(frozenset().union(*(t.attributes for t in terms)))
    shape = [domain[n].size for n in names]
    cells = prod(shape)
    if cells > LIMITS.paired_cells or len(terms) * cells * (cells + 1) // 2 > LIMITS.move_entries:
        return None
    if any(t.slack or t.is_wide for t in terms):
        return None
    if any(t.greatest * 2.0**t.fraction_bits >= EXACT for t in terms):
        return None  # long columns that are nearly equal would seem not to differ
    first, second = np.triu_indices(cells, 1)
    places = np.unravel_index(np.arange(cells), shape) if shape else ()
    rows = []
    for term in terms:
        if term.rows * prod(term.shape) > LIMITS.move_entries:
            return None
        columns = term.dense()
        at = cell_of(term, names, places, cells)
        between = _squares_between(columns) if p == 2 else _sums_between(columns)
        alone = (np.abs(columns) ** p).sum(axis=0)[at] if drops else np.zeros(0)
        rows.append(np.concatenate([between[at[first], at[second]], alone]))
    distances = np.unique(np.array(rows), axis=1)
    ones = np.ones(len(terms))
    return BlockMoves(distances, np.arange(len(terms)), ones, ones)


def _squares_between(columns: Array) -> Array:
    centred = columns - columns[:, :1]
    gram = centred.T @ centred
    own = np.diag(gram)
    return np.maximum(own[:, None] + own[None, :] - 2 * gram, 0.0)


def _sums_between(columns: Array) -> Array:
    """L1 distances of columns of whole steps: the sum of r differences is good to r 2^-53."""
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(columns.T, columns.T, "cityblock"), dtype=np.float64)


def set_moves(
    subsets: Lattice, sizes: Array, norms: Array, scales: Array, drops: bool
) -> BlockMoves | None:
    """The moves by the attributes in which two cells differ; None where there are too many.

    ``norms`` are the squared columns of the pieces; the scales only say which attributes are alike.
    """
    used = np.unique(subsets.levels[1][:, 0]) if len(subsets.levels) > 1 else np.zeros(0, dtype=int)
    alike = [np.array([i]) for i in used]
    if len(used) > 16 or subsets.pieces * 2 ** len(used) > LIMITS.move_entries:
        alike = _alike(subsets, sizes, norms * scales, used)
    kinds = prod(len(c) + 1 for c in alike)
    if kinds > LIMITS.move_kinds:
        return None
    keys, group = _orbits(subsets, alike, len(sizes))
    if len(keys) * kinds > 2 * LIMITS.move_entries:
        return None
    differing = np.unravel_index(np.arange(kinds), [len(c) + 1 for c in alike]) if alike else ()
    full, inner = np.ones(len(keys)), np.ones((len(keys), kinds))
    for members, chosen, moved in zip(alike, keys.T, differing, strict=True):
        n, x = len(members), -1.0 / (float(sizes[members[0]]) - 1)
        most = int(chosen.max(initial=0))
        sums = [
            [
                sum(comb(s, t) * comb(n - s, k - t) * x**t for t in range(k + 1))
                for s in range(n + 1)
            ]
            for k in range(most + 1)
        ]
        inner *= np.array(sums)[chosen][:, moved]
        full *= np.array([comb(n, k) for k in range(most + 1)], dtype=np.float64)[chosen]
    distances = np.maximum(2 * (full[:, None] - inner), 0.0)
    distances[np.abs(distances) < TINY * full[:, None]] = 0.0
    if drops:
        distances = np.concatenate([distances, full[:, None]], axis=1)
    return BlockMoves(distances, group, norms, full)


def _alike(subsets: Lattice, sizes: Array, weights: Array, used: Integers) -> list[Integers]:
    """Attributes of one size whose pieces weigh the same, level by level, up to rounding."""
    sums = np.zeros((len(subsets.levels), len(sizes)))
    first = 0
    for j, rows in enumerate(subsets.levels):
        own = weights[first : first + len(rows)]
        for column in rows.T:
            sums[j] += np.bincount(column, own, len(sizes))
        first += len(rows)
    with np.errstate(divide="ignore"):
        shown = np.round(np.log2(sums[:, used]), 6)
    keys = np.concatenate([sizes[used][None, :], shown])
    label = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)
    return [used[label == k] for k in range(int(label.max(initial=-1)) + 1)]


def _orbits(
    subsets: Lattice, alike: Sequence[Integers], attributes: int
) -> tuple[Integers, Integers]:
    """The different counts of attributes of each kind in a piece, and which piece has which."""
    kind = np.zeros(attributes, dtype=np.int64)
    for k, members in enumerate(alike):
        kind[members] = k
    rows = []
    for level in subsets.levels:
        counts = np.zeros((len(level), len(alike)), dtype=np.int64)
        for column in level.T:
            counts[np.arange(len(level)), kind[column]] += 1
        rows.append(counts)
    members = np.concatenate(rows)
    if not alike:
        return np.zeros((1, 0), dtype=np.int64), np.zeros(len(members), dtype=np.int64)
    keys, group = np.unique(members, axis=0, return_inverse=True)
    return keys, group.reshape(-1)


# Diameters of single blocks


def squared_diameter(term: Term) -> float:
    """An upper bound on ``max_ij |M_i - M_j|_2^2`` of one block, rounded up; exact for tables.

    Replacing a record moves the histogram by ``e_i - e_j``, so what counts is ``max_ij |M_i -
    M_j|_2^2 = max (G_ii + G_jj - 2 G_ij)`` with ``G = M'M``, not twice the longest column squared.
    Blocks add up; the maximum of a sum is at most the sum of the maxima. A block that only reads
    the total does not move at all, if no record can be dropped.

    Columns that are nearly equal and long would cancel in that difference: coefficients 2^30 and
    2^30 + 1 have Gram entries that floats cannot tell apart, and the block would seem to be a
    public total. Where entries are known, columns are therefore compared after the first one is
    taken off, in integers; elsewhere the rounding of the Gram matrix is added unless it is proved
    to have none. 0 is returned for blocks that no move changes, and for no others.

    Laplace noise asks for the diameter in L1. Coefficients are whole steps of ``2^-bits``, and
    ``|k| <= k^2`` for whole k: the squared diameter counted in steps is a bound, exact for
    coefficients 0 and 1. Where entries are given, so is the sum of what each row spans, exact for a
    single row.

    Args:
        term: A group of queries that is measured.

    Returns:
        The bound.
    """
    if term not in _DIAMETERS:
        longest = greatest_column_power([term], [1.0], 2).power
        bounds = [longest * (2.0 if term.is_nonnegative else 4.0)]
        own = term.squared_diameter()
        if own is None:
            own = _farthest(term, 2)
        _DIAMETERS[term] = min(bounds if own is None else [*bounds, own * ROUND_UP])
    return _DIAMETERS[term]


def l1_diameter(term: Term) -> float:
    """An upper bound on ``max_ij |M_i - M_j|_1`` of one block, rounded up; exact for 0 and 1."""
    longest = greatest_column_power([term], [1.0], 1).power
    bounds = [2 * longest, squared_diameter(term) * 2.0**term.fraction_bits]
    own = term.l1_diameter()
    bounds += [] if own is None else [own * ROUND_UP]
    is_listed = term.cells <= LIMITS.paired_cells and _is_held(term)  # by ``pair_moves``
    is_binary = term.is_nonnegative and term.fraction_bits == 0 and term.greatest <= 1
    exact = None if is_listed or is_binary else _farthest(term, 1)
    return min(bounds if exact is None else [*bounds, exact * ROUND_UP])


# Strategies of one workload measure the same terms.
_FARTHEST: WeakKeyDictionary[Term, dict[int, float]] = WeakKeyDictionary()
_DIAMETERS: WeakKeyDictionary[Term, float] = WeakKeyDictionary()


def _farthest(term: Term, p: int) -> float | None:
    """The diameter of stored coefficients, exact while the work is affordable; else a bound."""
    remembered = _FARTHEST.setdefault(term, {})
    if p not in remembered:
        entries = _whole(term)
        if entries is None:
            return None
        steps = PairDistances.of(entries, p).farthest()
        remembered[p] = steps * 2.0 ** (-p * term.fraction_bits)
    return remembered[p]


def _whole(term: Term) -> Integers | csr_matrix | None:
    """The stored coefficients in whole steps, if floats hold them."""
    if term.slack or term.is_wide or term.greatest * 2.0**term.fraction_bits >= EXACT:
        return None
    return term.stored_entries()


def _is_held(term: Term) -> bool:
    return term.rows * term.cells <= LIMITS.move_entries


# All blocks together


def farthest_move(terms: Sequence[Term], scales: Sequence[float], p: int) -> float | None:
    """``max_ij sum_b scales[b] |M_b (e_i - e_j)|_p^p``: one move for all blocks, rounded up.

    Args:
        terms: Several blocks, of which some have stored coefficients.
        scales: What each block counts.
        p: 1 or 2.

    Returns:
        The power, exact while the work is affordable; None where blocks or cells are too many.
    """
    domain = terms[0].domain
    names = domain.in_order(frozenset().union(*(t.attributes for t in terms)))
    shape = [domain[n].size for n in names]
    cells = prod(shape)
    if len(terms) > LIMITS.joint_blocks or cells > LIMITS.joint_cells:
        return None
    stored = [_whole(t) for t in terms]
    if all(s is None for s in stored):
        return None
    blocks, labels, factors = [], [], []
    places = np.unravel_index(np.arange(cells), shape)
    for term, own, scale in zip(terms, stored, scales, strict=True):
        entries = _in_steps(term) if own is None else own
        if entries is None:
            return None
        block = PairDistances.of(entries, p)
        at = cell_of(term, names, places, cells)
        columns = np.arange(term.cells) if own is None else term.column_of_cell()
        blocks.append(block)
        labels.append(block.labels[columns[at]])
        factors.append(scale * 2.0 ** (-p * term.fraction_bits))
    return farthest_together(blocks, factors, labels) * ROUND_UP


def _in_steps(term: Term) -> Integers | None:
    """All coefficients in whole steps, of a term that is known by its structure."""
    if term.slack or term.is_wide or not _is_held(term):
        return None
    if term.greatest * 2.0**term.fraction_bits >= EXACT:
        return None
    return np.rint(np.ldexp(term.dense(), term.fraction_bits)).astype(np.int64)


def cell_of(term: Term, names: Sequence[str], places: Sequence[Integers], cells: int) -> Integers:
    """For each cell of the table over ``names`` the cell of the table that a term reads."""
    coordinates = [places[names.index(n)] for n in term.attributes]
    if not coordinates:
        return np.zeros(cells, dtype=np.int64)
    return np.asarray(np.ravel_multi_index(coordinates, term.shape), dtype=np.int64)


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
