# SPDX-License-Identifier: Apache-2.0
"""A fit seen from rows: margins of weighted rows, the value, its gradient, and a curvature.

Rows are cells with weights; a histogram of any number of cells is known by the few that weigh
something. The derivative of f by the weight of a row is the sum of one entry of the gradient per
set of attributes (its score). ``curvature`` has one number per entry with

    f(h + e) <= f(h) + <G, e> + 1/2 sum_x curvature_x e_x^2        (e: a change of the margins),

for ``F'WF <= diag(F'WF 1)`` where F has no negative entry (Gershgorin), and ``<= lambda_max I``
always.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from sfumato.errors import TooLarge
from sfumato.plan.effort import ADDED_UP, spend
from sfumato.refine.fit import Fit, Names, Part
from sfumato.refine.rows.conditions import (
    Codes,
    Conditions,
    is_wide,
    joined,
    read_conditions,
    read_impossible,
)
from sfumato.workload.constraints import Constraints
from sfumato.workload.predicates import Mask
from sfumato.workload.queries import DENSE_LIMIT, Array, Integers

__all__ = ["Gradient", "Layout", "OnRows", "Problem", "layout", "problem"]

POWER_STEPS = 10
MOST_TRUTH = 2**23  # truth values of conditions on rows that are kept (64 MB)
ABOVE = 1.1  # power iteration approaches the greatest eigenvalue from below


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the cells of every set stand in one flat vector, and which sets hold an attribute."""

    sizes: Integers
    sets: tuple[Names, ...]
    offset: Integers
    cells: Integers
    member_start: Integers
    member: Integers
    stride: Integers
    held_start: Integers
    held_set: Integers
    held_stride: Integers

    @property
    def length(self) -> int:
        """Cells of all sets together."""
        return int(self.cells.sum())

    @cached_property
    def sweep(self) -> float:
        """Multiplications of one row when all cells of all of its attributes are tried, about."""
        readers = np.diff(self.held_start)
        return ADDED_UP * float((self.sizes * (readers + 1)).sum())

    def slice_of(self, s: int) -> slice:
        """The cells of one set."""
        return slice(int(self.offset[s]), int(self.offset[s] + self.cells[s]))

    def margins(self, codes: Codes, weights: Array) -> Array:
        """The margins of weighted rows over all sets."""
        from sfumato.refine.rows.kernels import add_margins

        out = np.zeros(self.length)
        spend(ADDED_UP * len(self.member) * codes.shape[1])
        add_margins(codes, weights, self.offset, self.member_start, self.member, self.stride, out)
        return out

    def scores(self, codes: Codes, gradient: Array) -> Array:
        """For every row the sum of the entries of its cells."""
        from sfumato.refine.rows.kernels import add_scores

        out = np.zeros(codes.shape[1])
        spend(ADDED_UP * len(self.member) * codes.shape[1])
        add_scores(codes, gradient, self.offset, self.member_start, self.member, self.stride, out)
        return out


def layout(sizes: dict[str, int], sets: tuple[Names, ...]) -> Layout:
    """The layout of sets of attributes; refused when their tables do not fit in memory."""
    number = {name: a for a, name in enumerate(sizes)}
    cells = [prod(sizes[n] for n in names) for names in sets]
    if sum(cells) > DENSE_LIMIT:
        raise TooLarge(
            f"the tables of {len(sets):,} sets of attributes hold {sum(cells):,} cells together, "
            f"the limit is {DENSE_LIMIT:,}; ask about fewer or coarser attributes"
        )
    starts, member, stride = [0], [], []
    held: list[list[tuple[int, int]]] = [[] for _ in sizes]
    for s, names in enumerate(sets):
        step = cells[s]
        for name in names:
            step //= sizes[name]
            member.append(number[name])
            stride.append(step)
            held[number[name]].append((s, step))
        starts.append(len(member))
    flat = [pair for pairs in held for pair in pairs]
    return Layout(
        np.array(list(sizes.values()), dtype=np.int64),
        sets,
        np.cumsum([0, *cells], dtype=np.int64)[:-1],
        np.array(cells, dtype=np.int64),
        np.array(starts, dtype=np.int64),
        np.array(member, dtype=np.int64),
        np.array(stride, dtype=np.int64),
        np.cumsum([0, *map(len, held)], dtype=np.int64),
        np.array([s for s, _ in flat], dtype=np.int64),
        np.array([step for _, step in flat], dtype=np.int64),
    )


@dataclass(frozen=True, eq=False)
class Gradient:
    """One number per cell of every set, and one per wide condition."""

    cells: Array
    pull: Array


@dataclass(frozen=True, eq=False)
class OnRows:
    """A problem seen from rows that stay as they are: which conditions hold is looked up once."""

    asked: Problem
    codes: Codes

    @cached_property
    def _truth(self) -> Array | None:
        conditions = self.asked.conditions
        if not 0 < conditions.count * self.codes.shape[1] <= MOST_TRUTH:
            return None
        return conditions.truth(self.codes).astype(np.float64)

    def margins(self, weights: Array) -> Gradient:
        """What the parts read of the rows with these weights."""
        if self._truth is None:
            return self.asked.margins(self.codes, weights)
        return Gradient(self.asked.layout.margins(self.codes, weights), weights @ self._truth)

    def scores(self, gradient: Gradient) -> Array:
        """The derivative of f by the weight of every row."""
        if self._truth is None:
            return self.asked.scores(self.codes, gradient)
        return self.asked.layout.scores(self.codes, gradient.cells) + self._truth @ gradient.pull


@dataclass(frozen=True, eq=False)
class Problem:
    """A fit with its parts split into tables and wide conditions."""

    fit: Fit
    total: float
    tables: tuple[tuple[int, Part], ...]  # with the number of their set
    layout: Layout
    conditions: Conditions
    constraints: Constraints | None = None

    @cached_property
    def guarded(self) -> Conditions:
        """The wide conditions, and after them those that no row may meet."""
        if self.constraints is None:
            return self.conditions
        barred = read_impossible(self.fit.domain, self.constraints.impossible)
        return joined(self.conditions, barred)

    def guard(self, pull: Array) -> Array:
        """The pulls of ``guarded``: infinite where no row may go."""
        barred = np.full(self.guarded.count - self.conditions.count, np.inf)
        return np.concatenate([pull, barred])

    @cached_property
    def possible(self) -> tuple[Mask | None, ...]:
        """For every set, the cells that a row can be in; None if all."""
        if self.constraints is None:
            return (None,) * len(self.layout.sets)
        linked = self.constraints.labels()
        return tuple(
            self.constraints.possible(names).reshape(-1) if linked.keys() & set(names) else None
            for names in self.layout.sets
        )

    def are_possible(self, codes: Codes) -> Mask:
        """Which rows can be records."""
        if self.constraints is None:
            return np.ones(codes.shape[1], dtype=np.bool_)
        return self.constraints.are_possible(codes)

    def margins(self, codes: Codes, weights: Array) -> Gradient:
        """What the parts read of weighted rows."""
        cells = self.layout.margins(codes, weights)
        return Gradient(cells, self.conditions.answers(codes, weights))

    def value(self, seen: Gradient) -> float:
        """f."""
        return self._evaluate(seen, None)

    def gradient(self, seen: Gradient) -> tuple[float, Gradient]:
        """f and its derivatives by the margins."""
        out = np.zeros(self.layout.length)
        value = self._evaluate(seen, out)
        found = self.conditions
        return value, Gradient(out, found.weights * (seen.pull - found.values))

    def scores(self, codes: Codes, gradient: Gradient) -> Array:
        """The derivative of f by the weight of every row."""
        out = self.layout.scores(codes, gradient.cells)
        return out + self.conditions.scores(codes, gradient.pull) if self.conditions.count else out

    def _evaluate(self, seen: Gradient, out: Array | None) -> float:
        spend(2 * ADDED_UP * self.layout.length)
        # Part by part: the answers of one part are all that is held beside the margins.
        found = self.conditions
        value = found.fixed + 0.5 * float(found.weights @ (seen.pull - found.values) ** 2)
        for s, part in self.tables:
            at = self.layout.slice_of(s)
            misfit = part.term.answer(seen.cells[at].reshape(part.term.shape)) - part.values
            pulled = part.weights * misfit
            value += 0.5 * float(pulled @ misfit)
            if out is not None:
                out[at] += np.asarray(part.term.adjoint(pulled), dtype=np.float64).reshape(-1)
        return value

    @cached_property
    def curvature(self) -> Array:
        """The bound of the module docstring, cell by cell."""
        out = np.zeros(self.layout.length)
        for s, part in self.tables:
            out[self.layout.slice_of(s)] += _bend(part)
        return out

    def answers(self, codes: Codes, weights: Array) -> list[Array]:
        """``F h`` of every part, in the order of the fit."""
        seen = self.margins(codes, weights)
        wide = iter(self.conditions.of_parts(seen.pull))
        narrow = iter(self.tables)
        out = []
        for part in self.fit.parts:
            if is_wide(part):
                out.append(next(wide))
            else:
                s, _ = next(narrow)
                table = seen.cells[self.layout.slice_of(s)].reshape(part.term.shape)
                out.append(part.term.answer(table))
        return out


def problem(fit: Fit, total: float, constraints: Constraints | None = None) -> Problem:
    """Split the parts; refuse what does not fit in memory."""
    narrow = [p for p in fit.parts if not is_wide(p)]
    sets = tuple(dict.fromkeys(p.term.attributes for p in narrow))
    number = {names: s for s, names in enumerate(sets)}
    sizes = {a.name: a.size for a in fit.domain}
    return Problem(
        fit,
        total,
        tuple((number[p.term.attributes], p) for p in narrow),
        layout(sizes, sets),
        read_conditions(fit.domain, [p for p in fit.parts if is_wide(p)]),
        constraints,
    )


def _bend(part: Part) -> Array | float:
    """A diagonal matrix above ``F'WF``: the row sums or the greatest eigenvalue, if smaller."""
    term, weights = part.term, part.weights
    if not weights.any():
        return 0.0
    if term.is_table:
        return weights

    def gram(x: Array) -> Array:
        moved = term.adjoint(weights * term.answer(x.reshape(term.shape)))
        return np.asarray(moved, dtype=np.float64).reshape(-1)

    greatest = ABOVE * _greatest(gram, term.cells)
    if not term.is_nonnegative:
        return greatest
    sums = gram(np.ones(term.cells))
    return sums if float(sums.sum()) <= greatest * term.cells else greatest


def _greatest(gram: Callable[[Array], Array], cells: int) -> float:
    """The greatest eigenvalue, from below, by power iteration from a fixed uneven start."""
    x = 1.0 + np.cos(1.7 * np.arange(cells) ** 2)
    found = 0.0
    for _ in range(POWER_STEPS):
        size = float(np.linalg.norm(x))
        if size == 0:
            return found
        x = gram(x / size)
        found = float(np.linalg.norm(x))
    return found
