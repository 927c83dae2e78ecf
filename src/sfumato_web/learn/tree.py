# SPDX-License-Identifier: Apache-2.0
"""The tree on eight cells: which dyadic sums make up a range, and what that costs in error.

Every sum has noise; a range is the sum of the fewest nodes that tile it. Plain counts need as many
terms as the range is long, prefix sums only two, but one record moves all eight of them. G. Brown,
lecture notes "Linear queries and the binary tree mechanism"; the mechanism is by Dwork, Naor,
Pitassi, Rothblum 2010 and by Chan, Shi, Song 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count
from math import sqrt
from typing import Final

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.privacy.budget import Budget
from sfumato.random import WordSource, system_words
from sfumato.run.linear import plan
from sfumato.strategy.one_attribute.stream_filters import binary_tree
from sfumato.strategy.trees import Tree
from sfumato.types import Array, Integers
from sfumato.vault.mechanisms.noise import discrete_laplace
from sfumato.workload.build import ranges
from sfumato_web.learn.drawing import Axis, Plot, number, picture

__all__ = [
    "CELLS",
    "COUNTS",
    "SIZES",
    "Node",
    "RangeOnTree",
    "cells_where_the_tree_wins",
    "nodes_of",
    "nodes_of_all_ranges",
    "range_on_tree",
    "unit_noise",
]


CELLS: Final = 8
COUNTS: Final = (3, 9, 14, 22, 17, 11, 6, 4)  # made up
LEVELS: Final = 4
GRID: Final = 2**20
SIZES: Final = tuple(1 << i for i in range(3, 18, 2))


def unit_noise(source: WordSource | None = None) -> Array:
    """Laplace noise of scale 1 for all 15 nodes, from the vault, on a fine grid."""
    source = system_words() if source is None else source
    return discrete_laplace(Fraction(GRID), 2 * CELLS - 1, source) / GRID


@dataclass(frozen=True, slots=True)
class Node:
    """A node: the cells from ``first`` on, ``width`` of them; ``place`` is its row in the tree."""

    level: int
    first: int
    width: int
    place: int

    @property
    def name(self) -> str:
        """The cells it sums, counted from 1."""
        last = self.first + self.width
        return str(last) if self.width == 1 else f"{self.first + 1}-{last}"


@lru_cache(maxsize=1)
def nodes_of() -> tuple[Node, ...]:
    """All nodes, single cells first, as the library measures them."""
    out: list[Node] = []
    for level in range(LEVELS):
        width = 2**level
        for i in range(CELLS // width):
            out.append(Node(level, i * width, width, len(out)))
    return tuple(out)


@dataclass(frozen=True, eq=False)
class RangeOnTree:
    """The range of cells from ``first`` to ``last`` (from 1, both in it) and its nodes."""

    first: int
    last: int
    epsilon: Fraction
    noise: Array

    @property
    def chosen(self) -> tuple[Node, ...]:
        """The fewest nodes that tile the range."""
        tree = binary_tree(CELLS, self.last - self.first + 1)
        places = {(n.level, n.first): n for n in nodes_of()}
        nodes = [
            places[level, (start + i) * 2**level]
            for level, start, number_of in tree.tiles(self.last)
            for i in range(number_of)
        ]
        return tuple(sorted(nodes, key=lambda n: n.first))

    @property
    def truth(self) -> int:
        """The exact number of made-up records in the range."""
        return sum(COUNTS[self.first - 1 : self.last])

    def sums(self) -> Integers:
        """The exact sums of all nodes."""
        return np.asarray(Tree(CELLS, branching=2).apply(np.array(COUNTS)), dtype=np.int64)

    def noisy_sums(self) -> Array:
        """The sums with their noise: a record is in one node of each of four levels."""
        return np.asarray(self.sums() + LEVELS / float(self.epsilon) * self.noise)

    def answer(self) -> float:
        """The range from the chosen nodes."""
        return float(self.noisy_sums()[[n.place for n in self.chosen]].sum())

    def errors(self) -> dict[str, float]:
        """The standard error of this range in three ways, in counts."""
        length = self.last - self.first + 1
        prefixes = 1 if self.first == 1 else 2
        terms = {
            "tree": (len(self.chosen), LEVELS),
            "plain counts": (length, 1),
            "prefix sums": (prefixes, CELLS),
        }
        one = sqrt(2) / float(self.epsilon)
        return {name: one * scale * sqrt(summed) for name, (summed, scale) in terms.items()}

    def tree_figure(self) -> str:
        """The tree, cells at the bottom; the chosen nodes are filled."""
        chosen = {n.place for n in self.chosen}
        sums, noisy = self.sums(), self.noisy_sums()
        parts = []
        for node in nodes_of():
            x, y = _middle(node)
            if node.level < LEVELS - 1:
                above = (x - 4) // (2 * _WIDE * node.width) * 2 * _WIDE * node.width
                parent = 4 + above + _WIDE * node.width
                parts.append(f'<path class="hair" d="M{x:g},{y - 19:g}L{parent:g},{y - 43:g}"/>')
        parts += [_box(n, int(sums[n.place]), float(noisy[n.place]), chosen) for n in nodes_of()]
        for cell in range(CELLS):
            label = f"cell {cell + 1}" if cell == 0 else str(cell + 1)
            is_in = self.first <= cell + 1 <= self.last
            look = ' class="ink" font-weight="700"' if is_in else ""
            x = 4 + _WIDE * (cell + 0.5)
            parts.append(f'<text{look} x="{x:g}" y="250" text-anchor="middle">{label}</text>')
        about = (
            f"A tree of sums over {CELLS} cells. Cells {self.first} to {self.last} are the sum of "
            f"{len(chosen)} of its nodes: {', '.join(n.name for n in self.chosen)}"
        )
        return picture(8 + _WIDE * CELLS, 258, parts, about)

    def error_figure(self) -> str:
        """Error over all ranges against the number of cells, in three ways and the library's."""
        errors = {m: _errors_at(m, self.epsilon) for m in SIZES}
        most = max(max(e.values()) for e in errors.values())
        least = min(min(e.values()) for e in errors.values())
        plot = Plot(
            Axis("cells", SIZES[0], SIZES[-1], is_log=True),
            Axis("error over all ranges, in counts", least / 1.3, most * 1.3, is_log=True),
        )
        plot.line([(m, e["prefix sums"]) for m, e in errors.items()], "gold", "prefix sums")
        plot.line([(m, e["plain counts"]) for m, e in errors.items()], "red", "plain counts")
        plot.line([(m, e["tree"]) for m, e in errors.items()], "blue", "binary tree, fewest nodes")
        plot.line(
            [(m, e["best"]) for m, e in errors.items()], "violet", "the planner's tree", "dashed"
        )
        return plot.svg(
            "Error over all ranges against the number of cells; the binary tree errs less than "
            f"plain counts from {cells_where_the_tree_wins():,} cells on"
        )

    def notices(self) -> list[str]:
        """What there is to see, with the numbers of this setting."""
        errors = self.errors()
        listed = ", ".join(f"{name} {number(e)}" for name, e in errors.items())
        names = " + ".join(n.name for n in self.chosen)
        return [
            f"Cells {self.first} to {self.last} are {names}: {len(self.chosen)} noisy sums instead "
            f"of {self.last - self.first + 1}. The truth is {self.truth}, the noisy answer "
            f"{number(self.answer())}.",
            f"Standard errors of this range, in counts: {listed}.",
            "A record is in one node of every level, so each node needs the noise of four levels. "
            "On 8 cells that price is higher than what it buys: plain counts win.",
            f"From {cells_where_the_tree_wins():,} cells on the tree wins, and by more and more: "
            "its error grows with a power of log m, that of plain counts with the square root of "
            "m. The planner takes more children per node and combines all nodes by least squares.",
        ]


_WIDE: Final = 56.0


def _middle(node: Node) -> tuple[float, float]:
    x = 4 + _WIDE * (node.first + node.width / 2)
    return x, 212.0 - 62 * node.level


def _box(node: Node, exact: int, noisy: float, chosen: set[int]) -> str:
    x, y = _middle(node)
    is_in = node.place in chosen
    look = 'class="f-blue"' if is_in else 'class="paper s-grey"'
    ink = 'class="on"' if is_in else 'class="ink"'
    title = f"cells {node.name}: {exact} records, {noisy:.1f} with noise"
    return (
        f'<g data-first="{node.first + 1}" data-last="{node.first + node.width}" '
        f'class="node{" chosen" if is_in else ""}"><title>{title}</title>'
        f'<rect {look} x="{x - 25:g}" y="{y - 19:g}" width="50" height="38" rx="6"/>'
        f'<text {ink} x="{x:g}" y="{y - 2:g}" text-anchor="middle">{noisy:.1f}</text>'
        f'<text {ink} x="{x:g}" y="{y + 13:g}" text-anchor="middle" opacity=".8">({exact})</text>'
        "</g>"
    )


@lru_cache(maxsize=1)
def cells_where_the_tree_wins() -> int:
    """The first power of two at which the binary tree errs less than plain counts."""
    sizes = (1 << i for i in count(3))
    return next(m for m in sizes if _terms_at(m)["tree"] < _terms_at(m)["plain counts"])


@lru_cache(maxsize=64)
def _terms_at(cells: int) -> dict[str, float]:
    """Mean squared errors over all ranges, in variances of Laplace noise of scale 1/epsilon."""
    lengths = np.arange(1, cells + 1)
    how_many = cells - lengths + 1
    levels = cells.bit_length()
    nodes = nodes_of_all_ranges(levels - 1)
    total = cells * (cells + 1) / 2
    return {
        "tree": levels**2 * nodes / total,
        "plain counts": float((how_many * lengths).sum()) / total,
        "prefix sums": cells**2 * (2 * total - cells) / total,
    }


def nodes_of_all_ranges(height: int) -> int:
    """How many nodes all ranges of ``2^height`` cells take together.

    A range lies in one half, or it joins an end of the left half with a beginning of the right one;
    p cells at the beginning take as many nodes as p has binary ones, both halves together one.

    >>> nodes_of_all_ranges(1)  # two single cells, and the root for both
    3
    """
    if height == 0:
        return 1
    half = 1 << (height - 1)
    ones = (height - 1) * half // 2 + 1  # of the numbers 1 to half, together
    return 2 * nodes_of_all_ranges(height - 1) + 2 * half * ones - 1


@lru_cache(maxsize=64)
def _planned(cells: int) -> float:
    """The error of the planner's tree over all ranges at epsilon 1."""
    work = ranges(Domain({"cell": cells}), "cell")
    best = plan(work, Budget(epsilon=1), mechanism="laplace-tree", cache=False)
    return best.rmse


def _errors_at(cells: int, epsilon: Fraction) -> dict[str, float]:
    one = sqrt(2) / float(epsilon)
    out = {name: one * sqrt(terms) for name, terms in _terms_at(cells).items()}
    return out | {"best": _planned(cells) / float(epsilon)}


def range_on_tree(first: int, last: int, epsilon: float, noise: Array) -> RangeOnTree:
    """The range between two cells, in whichever order they are given."""
    low, high = sorted((min(max(first, 1), CELLS), min(max(last, 1), CELLS)))
    return RangeOnTree(low, high, Fraction(epsilon).limit_denominator(1000), noise)
