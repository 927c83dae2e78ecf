# SPDX-License-Identifier: Apache-2.0
"""Trees over time: sums of b^l neighbouring steps, each measured when its last step has come.

The binary tree is the classical mechanism for running totals (Dwork, Naor, Pitassi, Rothblum 2010,
"Differential privacy under continual observation"; Chan, Shi, Song 2011, "Private and continual
release of statistics"), and the baseline of ``stream.py``. A value lies in one node per level, so
noise is calibrated to the number of levels (Laplace) or its square root (Gaussian); an answer is
the sum of the fewest nodes that tile its steps. With Laplace noise it serves pure budgets, and
then wide nodes and few levels pay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np

from sfumato.workload.queries import Array

__all__ = ["TimeTree", "best_laplace_tree", "binary_tree"]

WIDEST = 64


@dataclass(frozen=True, eq=False)
class TimeTree:
    """Levels 0 to ``levels - 1``; a node of level l sums ``branching^l`` steps."""

    length: int
    width: int | None
    branching: int
    levels: int

    def completed(self, step: int) -> int:
        """How many nodes end with a step (counted from 1): those of the lowest levels."""
        count, size = 1, self.branching
        while count < self.levels and step % size == 0:
            count, size = count + 1, size * self.branching
        return count

    @cached_property
    def rows_squared(self) -> Array:
        """How many nodes make up every answer."""
        high = np.arange(1, self.length + 1)
        low = np.zeros_like(high) if self.width is None else np.maximum(high - self.width, 0)
        total = np.zeros(self.length)
        for _ in range(self.levels - 1):
            left = np.minimum(-low % self.branching, high - low)
            low = low + left
            right = np.minimum(high % self.branching, high - low)
            total += left + right
            low, high = -(-low // self.branching), (high - right) // self.branching
            high = np.maximum(low, high)  # nothing is left: the window lies within one node
        return total + (high - low)

    def tiles(self, step: int) -> list[tuple[int, int, int]]:
        """The nodes of the answer after ``step``: level, first node, number of nodes."""
        high, low = step, 0 if self.width is None else max(step - self.width, 0)
        found = []
        for level in range(self.levels - 1):
            left = min(-low % self.branching, high - low)
            low += left
            right = min(high % self.branching, high - low)
            found += [(level, low - left, left), (level, high - right, right)]
            low, high = -(-low // self.branching), (high - right) // self.branching
            high = max(low, high)  # nothing is left: the window lies within one node
        return [tile for tile in (*found, (self.levels - 1, low, high - low)) if tile[2]]

    def norm(self, power: int) -> float:
        """The Lp norm of a column of M: a value lies in one node per level."""
        return float(self.levels) if power == 1 else sqrt(self.levels) * (1 + 2.0**-50)

    @property
    def state_size(self) -> int:
        """Open nodes, and for every level what answers may still need of it."""
        if self.width is None:
            return 2 * self.levels
        sizes = [int(self.branching**level) for level in range(self.levels)]
        return self.levels + sum(self.width // size + 1 for size in sizes)


def binary_tree(length: int, width: int | None) -> TimeTree:
    """The binary tree up to the largest node that fits an answer."""
    return TimeTree(length, width, 2, (length if width is None else width).bit_length())


def best_laplace_tree(length: int, width: int | None) -> TimeTree:
    """The branching and height with the least error under Laplace noise: levels^2 times nodes."""
    reach = length if width is None else width
    options = [TimeTree(length, width, 2, 1)]
    for branching in range(2, min(WIDEST, reach) + 1):
        size, levels = branching, 2
        while size <= reach:
            options.append(TimeTree(length, width, branching, levels))
            size, levels = size * branching, levels + 1
    return min(options, key=lambda t: t.levels**2 * float(t.rows_squared.sum()))
