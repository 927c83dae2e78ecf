# SPDX-License-Identifier: Apache-2.0
"""How far a replaced record moves every measured block.

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

Docs: docs/proofs/measuring.md, "Diameters".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, prod
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from sfumato.solve.farthest import PairDistances, farthest_together
from sfumato.solve.lattice import Lattice
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers
from sfumato.workload.sensitivity import ROUND_UP, greatest_column_power
from sfumato.workload.terms import Term

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = [
    "BlockMoves",
    "cell_of",
    "farthest_move",
    "l1_diameter",
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
