# SPDX-License-Identifier: Apache-2.0
"""Trees of interval sums with weighted levels, solved by least squares in closed form.

Measured are the sums over all nodes, level j times the integer ``w_j``. One record is in one node
per level, so the column norms are ``sum w_j`` (L1) and the root of ``sum w_j^2`` (L2). The normal
matrix is ``sum_j w_j^2 J_j``, J_j having a block of ones for every node of level j; in the words
of ``measured.Levels`` its eigenvalues are ``lambda_l = sum_{j <= l} w_j^2 s_j``.

``Tree`` is the classical one: b children per node, one root, all weights 1. ``WeightedTree`` may
branch differently at every level and need not have a root. ``best_tree`` chooses the
widths and weights; ``Wavelet`` is the Haar wavelet on the same nodes.

References: Hay, Rastogi, Miklau, Suciu 2010, "Boosting the accuracy of differentially private
histograms through consistency"; Dwork, Naor, Pitassi, Rothblum 2010 and Chan, Shi, Song 2011 for
the binary tree mechanism; Qardaji, Yang, Li 2013, "Understanding hierarchical methods for
differentially private histograms", for the branching.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from math import sqrt

import numpy as np

from sfumato.errors import PlanError
from sfumato.solve.effort import must_stop
from sfumato.strategy.measured import Levels, energies, energy_by_width
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Numbers
from sfumato.workload.queries import QuerySet

__all__ = [
    "BRANCHINGS",
    "Tree",
    "Wavelet",
    "WeightedTree",
    "best_tree",
    "best_wavelet",
    "best_weights",
]


BRANCHINGS = tuple(range(2, 17))


@dataclass(frozen=True, eq=False)
class _Nodes(Levels):
    """The sums over all nodes, level by level, single cells first."""

    @property
    @abstractmethod
    def weights(self) -> tuple[int, ...]:
        """The factor of every level."""

    @cached_property
    def eigenvalues(self) -> tuple[float, ...]:
        """``sum_{j <= l} w_j^2 s_j``."""
        parts = [float(w**2 * s) for w, s in zip(self.weights, self.widths, strict=True)]
        return tuple(np.cumsum(parts).tolist())

    @property
    def rows(self) -> int:
        """The number of nodes."""
        return sum(self.padded // s for s in self.widths)

    @property
    def greatest(self) -> float:
        """The greatest weight."""
        return float(max(self.weights))

    def column_powers(self, p: int) -> Array:
        """``sum_j w_j^p`` for every cell: it is in one node per level."""
        return np.full(self.size, float(sum(w**p for w in self.weights)))

    def row_powers(self, p: int) -> Array:
        """The number of (real) cells of each node, times the power of its weight."""
        return self._cells() * self._row_weights() ** p

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """0 and the weight; a node of all cells has the weight twice, an empty one 0 twice."""
        cells, weights = self._cells(), self._row_weights()
        return np.where(cells == self.size, weights, 0.0), np.where(cells > 0, weights, 0.0)

    def inner_products(self) -> tuple[float, float]:
        """The sums of squared weights of the levels that two cells share: fewest and most."""
        squares = [float(w**2) for w in self.weights]
        if self.size == 1:
            return sum(squares), sum(squares)
        shared = [s for s, width in zip(squares, self.widths, strict=True) if width >= self.size]
        return sum(shared), sum(squares)

    def _cells(self) -> Array:
        nodes = [np.arange(self.padded // s + 1) * s for s in self.widths]
        return np.concatenate([np.diff(np.minimum(ends, self.size)) for ends in nodes]).astype(
            np.float64
        )

    def _row_weights(self) -> Array:
        counts = [self.padded // s for s in self.widths]
        return np.repeat(np.array(self.weights, dtype=np.float64), counts)

    def _measured(self, leaves: Numbers) -> Numbers:
        sums, levels = leaves, []
        for j, weight in enumerate(self.weights):
            if j:
                children = sums.reshape(-1, self.widths[j] // self.widths[j - 1], *leaves.shape[1:])
                sums = children.sum(axis=1, dtype=leaves.dtype)
            levels.append(sums if weight == 1 else weight * sums)
        return np.concatenate(levels)

    def _spread(self, y: Numbers) -> Numbers:
        """``M' y`` from the top down: every leaf gets the sum of its ancestors."""
        end = len(y)
        out: Numbers = np.zeros((1, *y.shape[1:]), dtype=y.dtype)
        for j in range(self.height, -1, -1):
            count = self.padded // self.widths[j]
            out = np.repeat(out, count // len(out), axis=0)
            out = self.weights[j] * y[end - count : end] + out
            end -= count
        return out

    def _interval_fourths(self, starts: Integers, ends: Integers) -> Array:
        """Sums of fourth powers, on walks from the top to both ends of every interval.

        A row of the reconstruction at a node of level j is ``w_j s_j g`` with
        ``g(node) = g(parent) + (a(node) - a(parent)) / lambda_j``, a the part of the node that lies
        in the interval. Below a node that is wholly inside or outside, g does not change: the whole
        subtree counts ``g^4`` times a constant of its level.
        """
        ratios = [b // a for a, b in pairwise(self.widths)]
        ratios.append(self.padded // self.widths[-1])
        out = np.zeros(len(starts))
        joined = np.ones(len(starts), dtype=bool)
        paths = [
            _Path(position, np.zeros(len(starts)), np.zeros(len(starts)))
            for position in (starts, ends)
        ]
        for j in range(self.height, -1, -1):
            width, own, below = self.widths[j], self._node_power(j), self._subtree_power(j)
            at = [np.minimum(p.position // width, self.padded // width - 1) for p in paths]
            split = joined & (at[0] < at[1])
            for side, path in enumerate(paths):
                first = at[side] % ratios[j]
                # children wholly inside: right of the start, left of the end, between both
                inside = np.where(
                    joined, at[1] - at[0] - 1, ratios[j] - 1 - first if side == 0 else first
                )
                inside = np.where(joined & ~split, 0, inside)
                outside = ratios[j] - 1 - inside - split
                low, high = at[side] * width, (at[side] + 1) * width
                part = (np.clip(ends, low, high) - np.clip(starts, low, high)) / width
                step = path.g - path.part / self.eigenvalues[j]
                hanging = inside * (step + 1 / self.eigenvalues[j]) ** 4 + outside * step**4
                g = step + part / self.eigenvalues[j]
                once = joined if side == 1 else np.zeros_like(joined)
                out += np.where(once, 0.0, hanging * below)
                out += np.where(once & ~split, 0.0, own * g**4)
                paths[side] = _Path(path.position, g, part)
            joined = joined & ~split
        return out

    def _node_power(self, j: int) -> float:
        return float(self.weights[j] * self.widths[j]) ** 4

    def _subtree_power(self, j: int) -> float:
        return sum(self.widths[j] / self.widths[i] * self._node_power(i) for i in range(j + 1))


@dataclass(frozen=True, slots=True)
class _Path:
    """Where the walk to an end of the intervals has come to: ``g`` and ``a`` of its node."""

    position: Integers
    g: Array
    part: Array


@dataclass(frozen=True, eq=False)
class Tree(_Nodes):
    """The sums over all nodes of the b-ary tree on the cells, leaves first, root last.

    Args:
        size: How many cells there are.
        branching: How many children a node has.
    """

    branching: int = 2

    @property
    def name(self) -> str:
        """The name ``tree(b)``."""
        return f"tree({self.branching})"

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The powers of b up to the first that holds all cells."""
        out = [1]
        while out[-1] < self.size:
            out.append(out[-1] * self.branching)
        return tuple(out)

    @property
    def weights(self) -> tuple[int, ...]:
        """1 for every level."""
        return (1,) * len(self.widths)


@dataclass(frozen=True, eq=False)
class WeightedTree(_Nodes):
    """Nodes of given widths (each divides the next, from 1 on) with given weights of levels."""

    widths: tuple[int, ...] = (1,)
    weights: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        super().__post_init__()
        nested = self.widths[0] == 1 and all(b > a and b % a == 0 for a, b in pairwise(self.widths))
        if not nested or len(self.weights) != len(self.widths) or min(self.weights) < 1:
            raise PlanError(
                "a weighted tree needs widths from 1 on, each dividing the next, and one weight "
                f"of at least 1 for each, got widths {self.widths} and weights {self.weights}"
            )

    @property
    def name(self) -> str:
        """The name ``tree(width*weight, ...)``."""
        pairs = zip(self.widths, self.weights, strict=True)
        return f"tree({', '.join(f'{s}*{w}' for s, w in pairs)})"


# The best tree


Widths = tuple[int, ...]


def best_tree(weighted: Sequence[tuple[float, QuerySet]], p: int) -> WeightedTree:
    """The widths and weights found best for weighted query sets under the L_p column norm.

    With weights w (scaled to column norm 1) a tree of widths s errs by ``sum_l D_l / (sum_{j <= l}
    w_j^2 s_j)``. Under L2 this is an isotonic problem with a closed form; under L1 it is not
    convex, and levels may end with weight 0, so the search starts from several weights. The widths
    are found by hill climbing from the b-ary trees: one width of the chain is changed, dropped or
    added at a time. Nothing here is larger than the number of levels once the energies of a width
    are known.
    """
    size = weighted[0][1].size

    parts = [(c, energy_by_width(queries)) for c, queries in weighted]

    @cache
    def energy(width: int) -> float:
        return sum(c * part(width) for c, part in parts)

    @cache
    def solved(widths: Widths) -> tuple[float, tuple[float, ...]]:
        least, weights = best_weights(
            np.array([energy(s) for s in widths]), widths, p, LIMITS.tree_starts[:1]
        )
        return least, tuple(weights.tolist())

    best = min(_uniform(size), key=lambda widths: solved(widths)[0])
    improved = True
    while improved and solved.cache_info().currsize < LIMITS.trees_tried and not must_stop():
        best = _without_light_levels(best, solved(best)[1])
        around = (widths for widths in _neighbours(best, size) if widths[-1] < 2 * size)
        near = min(around, key=lambda widths: solved(widths)[0], default=best)
        improved = solved(near)[0] < solved(best)[0] * (1 - 1e-6)
        best = near if improved else best
    best = _without_light_levels(best, solved(best)[1])
    _, weights = best_weights(np.array([energy(s) for s in best]), best, p)
    scaled = np.rint(weights * (2**LIMITS.tree_weight_bits / weights.max()))
    return WeightedTree(size, best, tuple(int(max(w, 1)) for w in scaled))


def best_weights(
    energy: Array, widths: Widths, p: int, starts: Sequence[float] = LIMITS.tree_starts
) -> tuple[float, Array]:
    """The least error found and its weights, of L_p norm 1; the cells keep a weight above 0.

    Under L2 exact; under L1 the best end of geometric starts.
    """
    s = np.array(widths, dtype=np.float64)
    details = np.maximum(energy - np.append(energy[1:], 0.0), 0.0)
    if p == 2:
        return _under_l2(details, s)
    best, weights = np.inf, np.ones(len(s))
    for ratio in starts:
        error, candidate = _under_l1(details, s, np.geomspace(1, ratio, len(s)))
        if error < best:
            best, weights = error, candidate
    return best, weights / float(weights.sum())


def _under_l2(details: Array, s: Array) -> tuple[float, Array]:
    """``min sum D_l / lambda_l`` over non-decreasing lambda with ``sum c_l lambda_l = 1``.

    ``sum w_j^2`` is linear in the eigenvalues, ``c_l = 1 / s_l - 1 / s_{l+1}``; levels that would
    decrease are pooled, and a pool has ``lambda ~ sqrt(sum D / sum c)``.
    """
    cost = 1 / s - np.append(1 / s[1:], 0.0)
    # A level that nobody asks about is kept apart from 0; of queries that are zero, all are.
    floor = float(details.sum()) * LIMITS.tree_level_minimum**4 or 1.0
    pools: list[tuple[float, float, int]] = []
    for d, c in zip(np.maximum(details, floor), cost, strict=True):
        pools.append((float(d), float(c), 1))
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            (d1, c1, n1), (d2, c2, n2) = pools[-2:]
            pools[-2:] = [(d1 + d2, c1 + c2, n1 + n2)]
    lam = np.concatenate([np.full(n, sqrt(d / c)) for d, c, n in pools])
    lam /= float(cost @ lam)
    squares = np.diff(lam, prepend=0.0) / s
    return float((details / lam).sum()), np.sqrt(np.maximum(squares, 0.0))


def _under_l1(details: Array, s: Array, start: Array) -> tuple[float, Array]:
    from scipy.optimize import minimize

    def error(w: Array) -> tuple[float, Array]:
        norm = float(w.sum())
        lam = np.cumsum(w**2 * s)
        value = float((details / lam).sum())
        slope = -np.cumsum((details / lam**2)[::-1])[::-1] * s * 2 * w
        return value * norm**2, slope * norm**2 + value * 2 * norm

    bounds = [(1e-3, None)] + [(0.0, None)] * (len(s) - 1)
    end = minimize(error, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return float(end.fun), np.asarray(end.x)


def _uniform(size: int) -> Iterator[Widths]:
    """The widths of the b-ary trees."""
    for b in BRANCHINGS[: max(1, size - 1)]:
        widths = [1]
        while widths[-1] < size:
            widths.append(widths[-1] * b)
        yield tuple(widths)


def _without_light_levels(widths: Widths, weights: Sequence[float]) -> Widths:
    pairs = zip(widths, weights, strict=True)
    return tuple(s for s, w in pairs if s == 1 or w > LIMITS.tree_level_minimum * max(weights))


def _neighbours(widths: Widths, size: int) -> Iterator[Widths]:
    """The widths with one branching changed, one level dropped, or one added."""
    ratios = [b // a for a, b in pairwise(widths)]
    for i, ratio in enumerate(ratios):
        yield _chain([*ratios[:i], *ratios[i + 1 :]])
        for change in LIMITS.tree_changes:
            if ratio + change >= 2:
                yield _chain([*ratios[:i], ratio + change, *ratios[i + 1 :]])
        for b in (2, 3, 4):
            if ratio >= 2 * b:
                yield _chain([*ratios[:i], b, ratio // b, *ratios[i + 1 :]])
    for b in (2, 4, 8):
        if widths[-1] < size:
            yield _chain([*ratios, b])


def _chain(ratios: Sequence[int]) -> Widths:
    out = [1]
    for ratio in ratios:
        out.append(out[-1] * ratio)
    return tuple(out)


# The Haar wavelet


@dataclass(frozen=True, eq=False)
class Wavelet(Levels):
    """Differences of halves, narrow nodes first, then the total; ``weights`` in the same order.

    Measured are the total of all cells and, for every node of the binary tree, its left half minus
    its right half, level j times the integer ``c_j``. One record is in one node per level, so the
    column norms are ``sum c_j`` (L1) and the root of ``sum c_j^2`` (L2). Rows are orthogonal: in
    the words of ``measured.Levels`` the differences on nodes of width ``2 s_l`` have eigenvalue
    ``lambda_l = 2 s_l c^2``, the total ``s_h c^2``. The best weights are in closed form (Lagrange):
    ``c_l^(p + 2) ~ D_l / 2 s_l``, and ``D_h / s_h`` for the total.

    Under L2 every binary tree with weighted levels has the spectrum of a wavelet with the same
    column norm (choose ``c_{l+1}^2 = lambda_l / 2 s_l``), so the wavelet is at least as good as any
    of them.

    Reference: Xiao, Wang, Gehrke 2010, "Differential privacy via wavelet transforms".
    """

    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.weights) != len(self.widths) or min(self.weights) < 1:
            raise PlanError(
                f"a wavelet on {self.size} cells needs {len(self.widths)} weights of at least 1, "
                f"got {self.weights}"
            )

    @property
    def name(self) -> str:
        """The name ``wavelet(weights)``."""
        return f"wavelet({', '.join(str(w) for w in self.weights)})"

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Powers of 2 up to the first that holds all cells."""
        return tuple(2**j for j in range((self.size - 1).bit_length() + 1))

    @cached_property
    def eigenvalues(self) -> tuple[float, ...]:
        """``2 s_l c^2`` of the differences, ``s_h c^2`` of the total."""
        norms = [*(2 * s for s in self.widths[:-1]), self.widths[-1]]
        return tuple(float(w**2 * n) for w, n in zip(self.weights, norms, strict=True))

    @property
    def rows(self) -> int:
        """The number of queries: one per padded cell."""
        return self.padded

    @property
    def greatest(self) -> float:
        """The greatest weight."""
        return float(max(self.weights))

    @property
    def is_nonnegative(self) -> bool:
        """Whether there is one cell: only the total has no negative coefficient."""
        return self.size == 1

    def column_powers(self, p: int) -> Array:
        """``sum_j c_j^p`` for every cell: one difference per level, and the total."""
        return np.full(self.size, float(sum(w**p for w in self.weights)))

    def row_powers(self, p: int) -> Array:
        """The number of (real) cells of each node, times the power of its weight."""
        left, right, weights = self._halves()
        return (left + right) * weights**p

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """Minus and plus the weight, where there are such cells."""
        left, right, weights = self._halves()
        low = np.where(right > 0, -weights, np.where(left == self.size, weights, 0.0))
        high = np.where(left > 0, weights, np.where(right == self.size, -weights, 0.0))
        return low, high

    def inner_products(self) -> tuple[float, float]:
        """The extremes for cells that part at one difference and share all above it."""
        squares = np.array([float(w**2) for w in self.weights])
        parted = [float(squares[j + 1 :].sum() - squares[j]) for j in range(self.height)]
        return min([*parted, float(squares.sum())]), float(squares.sum())

    def _halves(self) -> tuple[Array, Array, Array]:
        """The (real) cells of the left and the right half of every row, and its weight."""
        left, right, weights = [], [], []
        for width, weight in zip(self.widths[:-1], self.weights[:-1], strict=True):
            ends = np.minimum(np.arange(self.padded // width + 1) * width, self.size)
            cells = np.diff(ends).reshape(-1, 2)
            left.append(cells[:, 0])
            right.append(cells[:, 1])
            weights.append(np.full(len(cells), weight))
        left.append(np.array([self.size]))
        right.append(np.array([0]))
        weights.append(np.array(self.weights[-1:]))
        joined = [np.concatenate(part).astype(np.float64) for part in (left, right, weights)]
        return joined[0], joined[1], joined[2]

    def _measured(self, leaves: Numbers) -> Numbers:
        sums, levels = leaves, []
        for weight in self.weights[:-1]:
            left, right = sums[0::2], sums[1::2]
            levels.append(weight * (left - right))
            sums = left + right
        return np.concatenate([*levels, self.weights[-1] * sums])

    def _spread(self, y: Numbers) -> Numbers:
        end = len(y) - 1
        out = self.weights[-1] * y[end:]
        for weight in self.weights[-2::-1]:
            half = weight * y[end - len(out) : end]
            end -= len(out)
            out = np.stack([out + half, out - half], axis=1).reshape(-1, *y.shape[1:])
        return out

    def _interval_fourths(self, starts: Integers, ends: Integers) -> Array:
        """Sums of fourth powers: only nodes that hold an end see a difference."""
        out = (self.weights[-1] * (ends - starts) / self.eigenvalues[-1]) ** 4
        for j, width in enumerate(self.widths[:-1]):
            first, last = starts // (2 * width), ends // (2 * width)
            factor = self.weights[j] / self.eigenvalues[j]
            for node, counts in ((first, True), (last, first != last)):
                low = node * 2 * width
                cut = [np.clip(p, low, low + width) for p in (starts, ends)]
                more = [np.clip(p, low + width, low + 2 * width) for p in (starts, ends)]
                difference = (cut[1] - cut[0]) - (more[1] - more[0])
                out = out + np.where(counts, (factor * difference) ** 4, 0.0)
        return np.asarray(out, dtype=np.float64)


def best_wavelet(weighted: list[tuple[float, QuerySet]], p: int) -> Wavelet:
    """The weights with the least error for weighted query sets under the L_p column norm."""
    unweighted = Wavelet(weighted[0][1].size, (1,) * ((weighted[0][1].size - 1).bit_length() + 1))
    energy = np.sum([c * energies(queries, unweighted.widths) for c, queries in weighted], axis=0)
    details = np.maximum(energy - np.append(energy[1:], 0.0), 0.0)
    best = (details / np.array(unweighted.eigenvalues)) ** (1 / (p + 2))
    best = best if best.any() else np.ones_like(best)  # queries that are zero
    scaled = np.rint(best * (2**LIMITS.tree_weight_bits / best.max()))
    return Wavelet(unweighted.size, tuple(int(max(w, 1)) for w in scaled))
