# SPDX-License-Identifier: Apache-2.0
"""The diameter of a set of columns: how far a replaced record moves what is measured.

``PairDistances`` compares columns of whole numbers, in L1 or squared L2, exactly:

* Equal columns are compared once.
* By the triangle inequality a pair farther apart than ``best`` has both of its ends at least
  ``best - r`` from any centre within ``r`` of all columns; columns nearer to it are left out.
* All other pairs are compared, a square of them at a time. In L2 by a Gram matrix of columns from
  which the first was taken off, in single precision where that is exact. In L1 by compiled sums of
  differences or, where entries have few levels, by the same Gram matrix of the indicators
  ``entry >= level``, since ``|a - b|`` is the number of levels between a and b.

Work is limited in multiplications, never in time. Beyond the limit the rows of the widest ranges,
as many as fit, are compared in all pairs. In the others a pair differs by at most the sum of the
distances of its two ends from the middle of every row's range (in L2: of their lengths), and by at
most the sum of the ranges. That bound is never too small, is exact up to the limit and grows away
from the diameter row by row: there is no size at which it jumps.

``farthest_pair`` is for columns of floats, up to their rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from sfumato.solve.effort import spend
from sfumato.solve.solve_limits import LIMITS
from sfumato.types import Array, Integers, Numbers

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = [
    "PairDistances",
    "farthest_pair",
    "farthest_together",
]

SINGLE = 2**24  # whole numbers below it, and sums of such that stay below it, are exact in float32
DOUBLE = 2.0**53
MIX = np.uint64(0x9E3779B97F4A7C15)  # the golden ratio in 64 bits

T = TypeVar("T", float, Array)


@dataclass(frozen=True, eq=False)
class PairDistances:
    """``|c_i - c_j|_p^p`` of the different columns of a matrix of whole numbers, p = 1 or 2.

    ``entries`` has one row per query and one column per cell, of absolute values below 2^52.
    ``labels[i]`` is the number of cell i's column among the different ones, ``first[c]`` a cell
    that has column c; ``low`` and ``span`` are the least entry and the range of every row.
    ``compared`` are the rows that are compared in all pairs (None: all of them), and ``beyond[c]``
    is ``sum |2 c - middle|^p`` over the others, ``beyond_spans`` the sum of their ranges.
    """

    entries: Integers | csr_matrix
    p: int
    labels: Integers
    first: Integers
    low: Integers
    span: Integers
    compared: Integers | None = None
    beyond: Array | None = None
    beyond_spans: float = 0.0

    @classmethod
    def of(cls, entries: Integers | csr_matrix, p: int) -> PairDistances:
        """The different columns, and the rows that can be afforded for all of their pairs."""
        labels, first = _distinct(entries)
        low, high = _row_ends(entries)
        every = cls(entries, p, labels, first, low, high - low)
        work = every._row_work()
        affordable = LIMITS.pair_multiplications_exact / (len(first) ** 2 / 2)
        if float(work.sum()) <= affordable:
            return every
        order = np.argsort(-every.span, kind="stable")
        fits = int(np.searchsorted(np.cumsum(work[order]), affordable, side="right"))
        rest = np.sort(order[fits:])
        return replace(
            every,
            compared=np.sort(order[:fits]),
            beyond=every.from_middle(rest),
            beyond_spans=_up(float((every.span[rest].astype(np.float64) ** p).sum()), len(rest)),
        )

    @property
    def is_exact(self) -> bool:
        """Whether all rows are compared in all pairs."""
        return self.compared is None

    @cached_property
    def has_levels(self) -> bool:
        """Whether sums of differences are counted level by level."""
        return self.p == 1 and int(self.span.max(initial=0)) <= LIMITS.pair_levels

    def _row_work(self) -> Array:
        """The multiplications of each row for a pair of columns."""
        if self.has_levels:
            return np.maximum(self.span, 1).astype(np.float64)
        return np.full(len(self.span), 1.0 if self.p == 2 else LIMITS.pair_difference_work)

    def from_middle(self, rows: Integers) -> Array:
        """For every column ``sum |2 c - low - high|^p`` over some rows, rounded up."""
        out = np.zeros(len(self.first))
        for at, chunk in self._chunks(np.arange(len(self.first)), rows):
            middle = 2 * self.low[at] + self.span[at]
            out += (np.abs(2 * chunk - middle[:, None]).astype(np.float64) ** self.p).sum(axis=0)
        return np.asarray(_up(out, len(rows)))

    def farthest(self) -> float:
        """At least ``max_ij |c_i - c_j|_p^p``, rounded up; 0 only where all columns are equal."""
        columns = np.arange(len(self.first))
        best = 0.0
        if len(columns) > LIMITS.pair_columns and self.is_exact:
            columns, best = self._outer()
        squares = _squares(columns)
        return max([best, *(float(self.between(a, b).max(initial=0.0)) for a, b in squares)])

    def _outer(self) -> tuple[Integers, float]:
        """The columns that may be farther from another than some pair is, and the latter."""
        away = self.from_middle(np.arange(len(self.span))) ** (1 / self.p)
        one = np.array([int(away.argmax())])
        parts = _parts(np.arange(len(self.first)))
        best = max(float(self.between(one, part).max()) for part in parts)
        # Distances from the middle are doubled, so are those of a pair.
        is_outer = away + away.max() >= 2 * best ** (1 / self.p) * (1 - 2.0**-40)
        return np.flatnonzero(is_outer), best

    def between(self, one: Integers, other: Integers) -> Array:
        """The distances between some different columns and some others, rounded up."""
        spend(float(len(one)) * len(other) * float(self._row_work().sum()))
        out = np.zeros((len(one), len(other)))
        both = np.concatenate([one, other])
        for at, chunk in self._chunks(both, self.compared):
            self._add(out, at, chunk[:, : len(one)], chunk[:, len(one) :])
        if self.beyond is not None:
            a, b = self.beyond[one][:, None], self.beyond[other][None, :]
            far = (a + b) / 2 if self.p == 1 else (np.sqrt(a) + np.sqrt(b)) ** 2 / 4
            out += np.minimum(_up(far, 8), self.beyond_spans)
            out[one[:, None] == other[None, :]] = 0.0
        is_exact = float((self.span.astype(np.float64) ** self.p).sum()) < DOUBLE / 4
        return out if is_exact and self.is_exact else np.asarray(_up(out, len(self.span)))

    def _add(self, out: Array, at: Integers, a: Integers, b: Integers) -> None:
        """Add the distances in some rows."""
        low, span = self.low[at], self.span[at]
        if self.has_levels:
            for level in range(1, int(span.max(initial=0)) + 1):
                some = span >= level
                mark = (low[some] + level)[:, None]
                _add_squares(out, a[some] >= mark, b[some] >= mark, 1)
        elif self.p == 2:
            # The first column is taken off: none is then longer than the diameter.
            first = next(self._chunks(np.zeros(1, dtype=np.int64), at))[1]
            _add_squares(out, a - first, b - first, int(span.max(initial=0)))
        else:
            from sfumato.solve.kernels import add_differences

            add_differences(out, _floats(a - low[:, None]), _floats(b - low[:, None]))

    def _chunks(
        self, columns: Integers, rows: Integers | None
    ) -> Iterator[tuple[Integers, Integers]]:
        """Numbers of rows, a few at a time, and the integers of some columns in them."""
        numbers = np.arange(len(self.span)) if rows is None else rows
        step = max(1, LIMITS.pair_numbers // max(1, len(columns)))
        cells = self.first[columns]
        for start in range(0, len(numbers), step):
            at = numbers[start : start + step]
            # A slice where it is one: nothing is copied before the columns are taken.
            is_run = int(at[-1]) - int(at[0]) + 1 == len(at)
            part = self.entries[at[0] : at[-1] + 1] if is_run else self.entries[at]
            yield at, _dense(part[:, cells])


def farthest_together(
    blocks: Sequence[PairDistances], scales: Sequence[float], labels: Sequence[Integers]
) -> float:
    """At least ``max_ij sum_b scales[b] |M_b (e_i - e_j)|_p^p``: one move for all blocks.

    Args:
        blocks: The distances of every block, all of one p.
        scales: What each block counts.
        labels: For every block, the number of the column that each cell i of the domain has in it.

    Returns:
        The power, rounded up; exact where all blocks are.
    """
    cells = np.unique(np.array(labels), axis=1)
    best = 0.0
    for a, b in _squares(np.arange(cells.shape[1])):
        total = np.zeros((len(a), len(b)))
        for block, scale, own in zip(blocks, scales, cells, strict=True):
            one, at = np.unique(own[a], return_inverse=True)
            other, to = np.unique(own[b], return_inverse=True)
            total += scale * block.between(one, other)[np.ix_(at.reshape(-1), to.reshape(-1))]
        best = max(best, float(total.max(initial=0.0)))
    return float(_up(best, len(blocks)))


def _squares(columns: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Every pair of columns, in squares of pairs."""
    parts = _parts(columns)
    for i, one in enumerate(parts):
        for other in parts[i:]:
            yield one, other


def _parts(columns: Integers) -> list[Integers]:
    # In quarters, so that few pairs are looked at in both orders.
    step = min(LIMITS.pair_columns, max(LIMITS.pair_columns // 8, -(-len(columns) // 4)))
    return [columns[i : i + step] for i in range(0, len(columns), step)]


def _up(value: T, terms: int) -> T:
    """A sum of so many numbers of 0 or more, above its exact value."""
    return value * (1 + (terms + 8) * 2.0**-49)


def _dense(part: Integers | csr_matrix) -> Integers:
    dense = part if isinstance(part, np.ndarray) else part.toarray()
    return np.asarray(dense, dtype=np.int64)


def _floats(chunk: Integers) -> Array:
    return np.ascontiguousarray(chunk, dtype=np.float64)


def _add_squares(out: Array, a: Numbers, b: Numbers, reach: int) -> None:
    """Add ``|a_i - b_j|^2``; differences of entries are at most ``reach``."""
    rows = SINGLE // (4 * max(1, reach) ** 2)
    is_single = rows >= LIMITS.pair_single_rows
    step = rows if is_single else max(1, len(a))
    for start in range(0, len(a), step):
        x, y = (np.asarray(z[start : start + step], dtype=np.float64) for z in (a, b))
        own, its = (np.einsum("ij,ij->j", z, z) for z in (x, y))
        if is_single:
            between = np.asarray(x.astype(np.float32).T @ y.astype(np.float32), dtype=np.float64)
        else:
            between = x.T @ y
        out += own[:, None] + its[None, :] - 2.0 * between


def _row_ends(entries: Integers | csr_matrix) -> tuple[Integers, Integers]:
    low, high = entries.min(axis=1), entries.max(axis=1)
    return _dense(low).reshape(-1), _dense(high).reshape(-1)


def _distinct(entries: Integers | csr_matrix) -> tuple[Integers, Integers]:
    """The number of every column among the different ones, and the first column of each number.

    Columns with equal sums of hashed rows are compared entry by entry: those that differ all the
    same stay apart.
    """
    rows, cells = entries.shape
    mixed = (np.arange(1, rows + 1, dtype=np.uint64) * MIX) ^ (MIX >> np.uint64(7))
    hashes = ((mixed ^ (mixed >> np.uint64(29))) * MIX).view(np.int64)
    keys = np.asarray(entries.T @ hashes).reshape(-1)  # modulo 2^64
    _, first, labels = np.unique(keys, return_index=True, return_inverse=True)
    head = first[labels.reshape(-1)]
    later = np.flatnonzero(head != np.arange(cells))
    step = max(1, LIMITS.pair_numbers // max(1, rows))
    for start in range(0, len(later), step):
        some = later[start : start + step]
        differs = (_dense(entries[:, some]) != _dense(entries[:, head[some]])).any(axis=0)
        head[some[differs]] = some[differs]
    first, labels = np.unique(head, return_inverse=True)
    return labels.reshape(-1).astype(np.int64), first


# Columns of floats


def farthest_pair(columns: Array) -> float:
    """``max_ij |c_i - c_j|^2`` over the columns of a matrix, up to float rounding; or a bound.

    Exact, by comparing pairs, of which most need no look: with all columns within distance d of a
    centre, a pair at distance D has both of its ends at least D - d away from the centre. Where too
    many pairs are left, the distance ``2 d`` of opposite ends stands for all: never too small.
    """
    centre = columns.mean(axis=1, keepdims=True)
    for _ in range(3):  # towards the middle of the farthest: a smaller ball
        away = _lengths(columns - centre)
        centre = centre + (columns[:, [int(away.argmax())]] - centre) * 0.25
    moved = columns - centre
    away = np.sqrt(_lengths(moved))
    radius = float(away.max())
    # A first pair: what is farthest from the farthest.
    start = moved[:, [int(away.argmax())]]
    best = sqrt(float(_lengths(moved - start).max()))
    rest = moved[:, away >= best - radius]
    n = rest.shape[1]
    if n * n * len(rest) > LIMITS.pair_multiplications:
        return 4 * radius**2
    own, farthest = _lengths(rest), best**2
    step = max(1, LIMITS.numbers_at_once // n)
    for first in range(0, n, step):
        some = slice(first, first + step)
        between = own[some, None] + own[None, :] - 2 * rest[:, some].T @ rest
        farthest = max(farthest, float(between.max()))
    return farthest


def _lengths(columns: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->j", columns, columns), dtype=np.float64)
