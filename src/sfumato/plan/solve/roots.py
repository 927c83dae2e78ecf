# SPDX-License-Identifier: Apache-2.0
"""The best strategy of an explicit matrix: ``M = H F`` for the least mean or largest error.

The optimal X of ``optimum.py`` and of ``largest.py`` is ``X = F' H'H F``, a mix of the queries:
with B = W^1/2 F D^1/2 = P S Q', ``H = S^-1/2 P' W^1/2`` (W = I for the mean). So a strategy is
known by a matrix with a column per query, whatever the number of cells.

* Queries and cells that hang together in no way are solved apart: a record is in one part only,
  so every part may be as sensitive as the whole, mean squared errors add up and the largest error
  is that of the worst part.
* Where there are many more cells than queries, few of them matter. The problem is solved on some
  of the cells, those whose columns of M came out longest are added, and so on. A bound for fewer
  cells is a bound for all (v = 0 elsewhere); the sensitivity is that of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from sfumato.errors import TooLarge
from sfumato.plan.effort import EIGEN, spend
from sfumato.plan.solve.largest import certified_largest
from sfumato.plan.solve.optimum import certified_optimum
from sfumato.workload.queries import Array, Integers, Numbers

__all__ = ["LARGEST_SIDE", "Root", "best_root", "spanning_cells"]

LARGEST_SIDE = 4096  # the smaller side of a matrix that is decomposed
EIGEN_ROUNDING = 2.0**-50
SINGULAR_ROUNDING = 2.0**-50
PRECISE = 1024  # the smaller side of a matrix that is decomposed by singular values
WELL_CONDITIONED = 1e-8  # the least eigenvalue over the greatest, known to 8 digits then
FEW = 3000  # cells that are solved at once without choosing among them
ADDED = 2500  # cells that join in one round
ROUNDS = 30
LONG = 2**36  # k^2 m of a singular value decomposition that takes minutes
DROPPED = 1e-9  # cells of less weight than this, in greatest weights, leave again
OUTSIDE = 1e-7  # a column with this part of its length outside of a space is not in it
AT_ONCE = 2**24  # numbers of one chunk of a large matrix

Progress = Callable[[int, float], None]


@dataclass(frozen=True, eq=False)
class Root:
    """``M = mixing @ F`` has columns of length at most 1; ``lower`` is below every error.

    Errors are squared and weighted, at unit noise: summed over queries, or the largest of them.
    """

    mixing: Array
    lower: float


def best_root(
    matrix: Numbers,
    weights: Array,
    objective: str = "rmse",
    tolerance: float = 1e-4,
    progress: Progress | None = None,
    spanning: Integers | None = None,
) -> Root:
    """The mixing of queries (rows, with their weights) on distinct cells (columns, none zero).

    ``spanning`` names columns that span all, if they are known.
    """
    rows, columns = _parts(matrix, spanning)
    count = int(rows.max()) + 1
    found = []
    for part in range(count):
        inside = np.flatnonzero(rows == part)
        block = matrix[np.ix_(inside, np.flatnonzero(columns == part))] if count > 1 else matrix
        weighted = _Weighted(block, weights[inside])
        known = spanning if count == 1 else None
        found.append((inside, _connected(weighted, objective, tolerance, progress, known)))
    mixing = np.zeros((sum(len(r.mixing) for _, r in found), len(matrix)))
    first = 0
    for inside, root in found:
        mixing[first : first + len(root.mixing), inside] = root.mixing
        first += len(root.mixing)
    bounds = [root.lower for _, root in found]
    return Root(mixing, max(bounds) if objective == "max" else sum(bounds))


@dataclass(frozen=True, eq=False)
class _Weighted:
    """A matrix whose rows are multiplied by weights, without a copy of all of it."""

    matrix: Numbers
    weights: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Queries, cells."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def some(self, columns: Integers | slice) -> Array:
        """Columns, in floats."""
        chosen = self.matrix[:, columns].astype(np.float64)
        return np.asarray(chosen * self.weights[:, None], dtype=np.float64)


def _parts(matrix: Numbers, spanning: Integers | None) -> tuple[Integers, Integers]:
    """The connected part of every query and of every cell."""
    from scipy.sparse import bmat, csr_matrix
    from scipy.sparse.csgraph import connected_components

    k, m = matrix.shape
    some = matrix if spanning is None else matrix[:, spanning]
    for columns in (some, matrix) if some.shape[1] < m else (matrix,):
        pattern = csr_matrix(columns != 0)
        graph = bmat([[None, pattern], [pattern.T, None]])
        _, labels = connected_components(graph, directed=False)
        # No column is zero: queries that hang together through some cells do so through all.
        if not labels[:k].any():
            return np.zeros(k, dtype=np.int64), np.zeros(m, dtype=np.int64)
    return labels[:k].astype(np.int64), labels[k:].astype(np.int64)


def _connected(
    matrix: _Weighted,
    objective: str,
    tolerance: float,
    progress: Progress | None,
    spanning: Integers | None,
) -> Root:
    k, m = matrix.shape
    if min(k, m) > LARGEST_SIDE:
        raise TooLarge(
            f"{k:,} distinct queries on {m:,} distinct cells hang together: one of them must be at "
            f"most {LARGEST_SIDE:,}; sf.plan uses the structure of a workload instead"
        )
    if m <= max(FEW, 2 * k):
        found = _solved(matrix.some(slice(None)), objective, tolerance, None, progress)
        return Root(found.mixing * matrix.weights / sqrt(found.scale), found.lower)
    return _generated(matrix, objective, tolerance, progress, spanning)


@dataclass(frozen=True, eq=False)
class _Solved:
    """Weights of some cells and of the queries; ``level`` is the error before scaling."""

    v: Array
    w: Array
    mixing: Array
    level: float
    scale: float
    lower: float


def _solved(
    matrix: Array,
    objective: str,
    tolerance: float,
    start: tuple[Array, Array] | None,
    progress: Progress | None,
) -> _Solved:
    """All cells at once."""
    k, m = matrix.shape
    if objective == "max":
        found = certified_largest(
            root_diagonals(matrix), m, k, tolerance, start=start, progress=progress
        )
        v, w, upper, lower, scale = found.v, found.w, found.upper, found.lower, found.scale
    else:
        best = certified_optimum(
            root_diagonal(matrix),
            m,
            tolerance,
            start=None if start is None else start[0],
            progress=progress,
        )
        v, w, upper, lower, scale = best.v, np.ones(k), best.upper, best.lower, best.scale
    return _Solved(v, w, _mixing(matrix, v, w), upper / scale, scale, lower)


def _generated(
    matrix: _Weighted,
    objective: str,
    tolerance: float,
    progress: Progress | None,
    spanning: Integers | None,
) -> Root:
    """Cells join while their columns are too long."""
    k, m = matrix.shape
    chosen, start = _first_cells(matrix) if spanning is None else spanning, None
    lower, best, least, gap = 0.0, np.zeros((0, k)), np.inf, 1.0
    for _ in range(ROUNDS):
        found = _solved(
            matrix.some(chosen), objective, max(tolerance / 3, min(gap / 10, 1e-2)), start, None
        )
        lower = max(lower, found.lower)
        lengths = _squared_lengths(found.mixing, matrix)
        longest = float(lengths.max())
        if found.level * longest < least:
            least, best = found.level * longest, found.mixing / sqrt(longest)
        gap = sqrt(least / lower) - 1
        if progress is not None:
            progress(len(chosen), gap)
        if gap <= tolerance:
            break
        kept = chosen[found.v > DROPPED * found.v.max()]
        joined = np.argpartition(-lengths, min(ADDED, m - 1))[:ADDED]
        # Weights near 0 would be slow to grow again: all begin at the mean or above.
        weights = np.full(m, float(found.v.mean()))
        weights[chosen] = np.maximum(found.v, weights[0])
        chosen = np.union1d(np.union1d(kept, joined), _spanning(matrix, kept))
        start = (weights[chosen], found.w)
    return Root(best * matrix.weights, lower)


def _first_cells(matrix: _Weighted) -> Integers:
    """The longest columns, some of all others, and as many as it takes to span the queries."""
    m = matrix.shape[1]
    lengths = np.abs(matrix.matrix).sum(axis=0)
    longest = np.argpartition(-lengths, ADDED)[:ADDED]
    evenly = np.linspace(0, m - 1, FEW // 2).astype(np.int64)
    # The columns of fewest queries: those where a query is nearly alone tell it from others.
    alone = [_lightest(row, lengths) for row in matrix.matrix]
    first = np.union1d(np.union1d(longest, evenly), np.concatenate(alone))
    return np.asarray(np.union1d(first, _spanning(matrix, first)), dtype=np.int64)


def _lightest(row: Numbers, lengths: Array) -> Integers:
    """The column of a query that counts least in others, and its first one."""
    held = np.flatnonzero(row)
    return held[[0, int(lengths[held].argmin())]] if len(held) else held


def spanning_cells(matrix: Numbers) -> Integers:
    """Some columns of the matrix that span them all, every one of them if they are few."""
    if matrix.shape[1] <= FEW:
        return np.arange(matrix.shape[1])
    return _first_cells(_Weighted(matrix, np.ones(len(matrix))))


def _spanning(matrix: _Weighted, chosen: Integers) -> Integers:
    """Further columns that together with the chosen ones span all columns."""
    from scipy.linalg import qr

    k, m = matrix.shape
    added = np.zeros(0, dtype=np.int64)
    while True:
        block = matrix.some(np.union1d(chosen, added).astype(np.int64))
        basis = _eigen(block @ block.T)[1]
        if basis.shape[1] == k:
            return added
        pool, farthest = np.zeros(0, dtype=np.int64), np.zeros(0)
        for first in range(0, m, AT_ONCE // k):
            some = matrix.some(slice(first, first + AT_ONCE // k))
            own = _squares(some)
            outside = _squares(some - basis @ (basis.T @ some)) / np.where(own > 0, own, 1.0)
            found = np.flatnonzero(outside > OUTSIDE)
            pool = np.concatenate([pool, first + found])
            farthest = np.concatenate([farthest, outside[found]])
        if not len(pool):
            return added
        candidates = pool[np.argsort(-farthest)[: 4 * k]]
        some = matrix.some(candidates)
        rest = some - basis @ (basis.T @ some)
        _, triangle, order = qr(rest, mode="economic", pivoting=True)
        size = np.abs(np.diag(triangle))
        grown = np.union1d(added, candidates[order[: int((size > size[0] * 1e-6).sum())]])
        if len(grown) == len(added):  # what is outside is a small query, lost beside large ones
            return added
        added = grown


def _squared_lengths(mixing: Array, matrix: _Weighted) -> Array:
    """The squared length of every column of ``mixing @ matrix``, to 6 digits for small integers.

    They decide which cells join and when to stop; what is measured is measured again, exactly.
    """
    k, m = matrix.shape
    kind = np.float32 if matrix.matrix.dtype == np.int8 else np.float64
    mixed, out = (mixing * matrix.weights).astype(kind), np.zeros(m)
    step = max(1, AT_ONCE // k)
    for first in range(0, m, step):
        some = slice(first, first + step)
        moved = mixed @ matrix.matrix[:, some].astype(kind)
        out[some] = np.einsum("ij,ij->j", moved, moved)
    return out


def _mixing(matrix: Array, v: Array, w: Array) -> Array:
    """``S^-1/2 P' W^1/2`` from ``W^1/2 F D^1/2 = P S Q'``."""
    b = matrix * np.sqrt(v) * np.sqrt(w)[:, None]
    k, m = matrix.shape
    values, vectors = _eigen(b @ b.T if k <= m else b.T @ b)
    is_plain = len(values) == min(k, m) and values[0] > WELL_CONDITIONED * values[-1]
    if is_plain or k * k * m > LONG:  # several times quicker
        left = vectors if k <= m else (b @ vectors) / np.sqrt(values)
        singular = np.sqrt(values)
    else:
        left, singular, _ = np.linalg.svd(b, full_matrices=False)
        kept = singular > singular[0] * max(matrix.shape) * SINGULAR_ROUNDING
        left, singular = left[:, kept], singular[kept]
    return np.asarray((left / np.sqrt(singular)).T * np.sqrt(w), dtype=np.float64)


def root_diagonal(matrix: Array) -> Callable[[Array], Array]:
    """``v -> diag((D^1/2 F'F D^1/2)^1/2)``, in the smaller of query space and cell space."""
    k, m = matrix.shape
    gram = matrix.T @ matrix if m <= k else np.zeros((0, 0))

    def evaluate(v: Array) -> Array:
        root = np.sqrt(v)
        if m <= k:
            values, vectors = _eigen(gram * np.outer(root, root))
            return np.asarray((vectors**2) @ np.sqrt(values), dtype=np.float64)
        spend(2.0 * k * k * m)
        scaled = matrix * root
        values, vectors = _eigen(scaled @ scaled.T)
        return _squares((vectors * values**-0.25).T @ scaled)

    return evaluate


def root_diagonals(matrix: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
    """``(v, w) -> `` the diagonals of (B'B)^1/2 and (B B')^1/2, B = W^1/2 F D^1/2."""
    k, m = matrix.shape

    def evaluate(v: Array, w: Array) -> tuple[Array, Array]:
        spend(2.0 * min(k, m) ** 2 * max(k, m))
        b = matrix * np.sqrt(v) * np.sqrt(w)[:, None]
        if m <= k:
            b = b.T
        values, vectors = _eigen(b @ b.T)
        if len(values) < len(b) <= PRECISE:
            # Weights of cells and queries can vanish together, and what they describe must not: the
            # square of a small singular value is lost in rounding, the value itself is not.
            spend(2.0 * EIGEN * min(k, m) ** 2 * max(k, m))
            vectors, singular, _ = np.linalg.svd(b, full_matrices=False)
            kept = singular > singular[0] * max(b.shape) * SINGULAR_ROUNDING
            values, vectors = singular[kept] ** 2, vectors[:, kept]
        own = np.asarray((vectors**2) @ np.sqrt(values), dtype=np.float64)
        other = _squares((vectors * values**-0.25).T @ b)
        return (own, other) if m <= k else (other, own)

    return evaluate


def _squares(rows: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->j", rows, rows), dtype=np.float64)


def _eigen(gram: Array) -> tuple[Array, Array]:
    """The eigenvalues that are not zero up to rounding: a lower bound must not count those."""
    spend(EIGEN * float(len(gram)) ** 3)
    values, vectors = np.linalg.eigh(gram)
    kept = values > values[-1] * len(values) * EIGEN_ROUNDING
    return values[kept], vectors[:, kept]
