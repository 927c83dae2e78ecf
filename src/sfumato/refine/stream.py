# SPDX-License-Identifier: Apache-2.0
"""The public side of a stream: measured values in, running totals or window sums out.

``R y`` step by step: R is lower triangular, so the answer after step t needs measured values up to
t only, and a small state holds all of them that still matters. Arithmetic on public numbers.
"""

from __future__ import annotations

from collections import deque
from math import ldexp

from sfumato.plan.streams.filter import STATE_BITS, Filter, decode
from sfumato.plan.streams.planned import StreamPlan
from sfumato.plan.streams.tree import TimeTree

__all__ = ["Follower", "follower"]


class FilterFollower:
    """The memories of a filter, fed with measured values instead of exact ones."""

    def __init__(self, plan: StreamPlan, shape: Filter) -> None:
        self._shape, self._grid_bits = shape, plan.noise.grid_bits
        echoes = 0 if shape.echo is None else shape.echo.size
        self._memories = [0] * shape.banks[0].size
        self._echoes = [[0] * echoes for _ in range(shape.width or 1)]
        self._step = 0

    def answer(self, measured: list[int]) -> float:
        """The next answer, unbiased, in counts."""
        place = self._step % len(self._echoes)
        self._memories, self._echoes[place], total = decode(
            self._shape,
            self._step,
            self._memories,
            self._echoes[place],
            measured[0],
            self._grid_bits,
        )
        self._step += 1
        return total / (1 << STATE_BITS)  # correctly rounded

    @property
    def state_size(self) -> int:
        """How many numbers are kept."""
        return len(self._memories) + sum(map(len, self._echoes))


class TotalsFollower:
    """A tree for running totals: per level, the nodes since the next larger one ended."""

    def __init__(self, plan: StreamPlan, shape: TimeTree) -> None:
        self._grid_bits = plan.noise.grid_bits
        self._sums = [0] * shape.levels

    def answer(self, measured: list[int]) -> float:
        """The next answer: a node that ended replaces the smaller nodes within it."""
        highest = len(measured) - 1
        self._sums[:highest] = [0] * highest
        self._sums[highest] += measured[highest]
        return ldexp(sum(self._sums), -self._grid_bits)

    @property
    def state_size(self) -> int:
        """How many numbers are kept."""
        return len(self._sums)


class WindowsFollower:
    """A tree for windows: the last nodes of every level, as many as a window may need."""

    def __init__(self, plan: StreamPlan, shape: TimeTree) -> None:
        self._shape, self._grid_bits = shape, plan.noise.grid_bits
        width = shape.width or shape.length
        sizes = [shape.branching**level for level in range(shape.levels)]
        self._nodes: list[deque[int]] = [deque(maxlen=width // size + 1) for size in sizes]
        self._ended = [0] * shape.levels
        self._step = 0

    def answer(self, measured: list[int]) -> float:
        """The next answer: the fewest nodes that tile the window."""
        self._step += 1
        for level, value in enumerate(measured):
            self._nodes[level].append(value)
            self._ended[level] += 1
        total = 0
        for level, first, count in self._shape.tiles(self._step):
            nodes = self._nodes[level]
            oldest = self._ended[level] - len(nodes)
            total += sum(nodes[first - oldest + i] for i in range(count))
        return ldexp(total, -self._grid_bits)

    @property
    def state_size(self) -> int:
        """How many numbers are kept, at most."""
        return len(self._ended) + sum(nodes.maxlen or 0 for nodes in self._nodes)


Follower = FilterFollower | TotalsFollower | WindowsFollower


def follower(plan: StreamPlan) -> Follower:
    """The public state of one coordinate before its first step."""
    if isinstance(plan.shape, Filter):
        return FilterFollower(plan, plan.shape)
    return (TotalsFollower if plan.width is None else WindowsFollower)(plan, plan.shape)
