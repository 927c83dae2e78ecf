# SPDX-License-Identifier: Apache-2.0
"""Trees of interval sums with weighted levels, solved by least squares in closed form.

Measured are the sums over all nodes, level j times the integer ``w_j``. One record is in one node
per level, so the column norms are ``sum w_j`` (L1) and the root of ``sum w_j^2`` (L2). The normal
matrix is ``sum_j w_j^2 J_j``, J_j having a block of ones for every node of level j; in the words
of ``levels.py`` its eigenvalues are ``lambda_l = sum_{j <= l} w_j^2 s_j``.

``Tree`` is the classical one: b children per node, one root, all weights 1. ``WeightedTree`` may
branch differently at every level and need not have a root. How both are chosen is in
``branching.py``.

References: Hay, Rastogi, Miklau, Suciu 2010, "Boosting the accuracy of differentially private
histograms through consistency"; Dwork, Naor, Pitassi, Rothblum 2010 and Chan, Shi, Song 2011 for
the binary tree mechanism; Qardaji, Yang, Li 2013, "Understanding hierarchical methods for
differentially private histograms", for the branching.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from sfumato.errors import PlanError
from sfumato.plan.transforms.levels import Levels
from sfumato.workload.queries import Array, Integers, Numbers

__all__ = ["BRANCHINGS", "Tree", "WeightedTree"]

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
        """One node per level."""
        return np.full(self.size, float(sum(w**p for w in self.weights)))

    def row_powers(self, p: int) -> Array:
        """The number of (real) cells of each node, times the power of its weight."""
        return self._cells() * self._row_weights() ** p

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """0 and the weight; a node of all cells has the weight twice, an empty one 0 twice."""
        cells, weights = self._cells(), self._row_weights()
        return np.where(cells == self.size, weights, 0.0), np.where(cells > 0, weights, 0.0)

    def inner_products(self) -> tuple[float, float]:
        """Cells share the levels above where their paths part: all of them, or the fewest."""
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
        """From the top down: every leaf gets the sum of its ancestors."""
        end = len(y)
        out: Numbers = np.zeros((1, *y.shape[1:]), dtype=y.dtype)
        for j in range(self.height, -1, -1):
            count = self.padded // self.widths[j]
            out = np.repeat(out, count // len(out), axis=0)
            out = self.weights[j] * y[end - count : end] + out
            end -= count
        return out

    def _interval_fourths(self, starts: Integers, ends: Integers) -> Array:
        """Walk from the top to both ends of every interval.

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
    """The sums over all nodes of the b-ary tree on the cells, leaves first, root last."""

    branching: int = 2

    @property
    def name(self) -> str:
        """``tree(b)``."""
        return f"tree({self.branching})"

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Powers of b up to the first that holds all cells."""
        out = [1]
        while out[-1] < self.size:
            out.append(out[-1] * self.branching)
        return tuple(out)

    @property
    def weights(self) -> tuple[int, ...]:
        """All 1."""
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
        """``tree(width*weight, ...)``."""
        pairs = zip(self.widths, self.weights, strict=True)
        return f"tree({', '.join(f'{s}*{w}' for s, w in pairs)})"
