# SPDX-License-Identifier: Apache-2.0
"""Margins of one table over many sets of attributes, and their adjoint, compiled.

Attributes are summed out one at a time, the last one first, and all sets that leave out the same
ones share the sums (Yates 1937, "The design and analysis of factorial experiments"): all triples of
16 yes/no attributes cost some thirty additions per cell in place of 560. Which sums those are is
planned once per family of sets, as a short program; the loops that run it are compiled, so this is
imported when first used, for numba takes a while.

A step of the program is a row of numbers. ``SUM``: the table at ``source`` of shape (outer, size,
inner) is summed over its middle axis into the one at ``target``. ``LEAF``: the table at ``source``
is the margin that begins at ``target`` of the stack, of ``inner`` entries. ``END``: all that is
made of the ``SUM`` with the same numbers is done, and its place is free. The adjoint runs the same
program: ``SUM`` clears its target, ``LEAF`` adds a margin, ``END`` adds the target back to every
slice of its source.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numba import njit

from sfumato.types import Array, Integers

__all__ = ["YatesSums"]

SUM, LEAF, END = 0, 1, 2


class YatesSums:
    """The margins of a table of this shape over sets of axes, in rising order, and the adjoint."""

    def __init__(self, shape: Sequence[int], sets: Sequence[tuple[int, ...]]) -> None:
        self.shape, self.cells = tuple(shape), prod(shape)
        ends = np.cumsum([0, *(prod(shape[a] for a in axes) for axes in sets)])
        self.ends: Integers = ends.astype(np.int64)
        self._room = self.cells
        steps: list[tuple[int, ...]] = []
        self._plan(steps, 0, len(self.shape), 1, list(enumerate(sets)), self.cells)
        self._steps: Integers = np.array(steps, dtype=np.int64).reshape(-1, 6)

    def margins(self, table: Array) -> Array:
        """All margins, one after the other."""
        room, out = np.empty(self._room), np.empty(int(self.ends[-1]))
        room[: self.cells] = table
        _sum_out(self._steps, room, out)
        return out

    def spread(self, margins: Array) -> Array:
        """For every cell the sum of its entries in all margins."""
        room = np.empty(self._room)
        room[: self.cells] = 0.0
        _add_up(self._steps, room, margins)
        return room[: self.cells].copy()

    def _plan(
        self,
        steps: list[tuple[int, ...]],
        source: int,
        left: int,
        inner: int,
        sets: list[tuple[int, tuple[int, ...]]],
        free: int,
    ) -> None:
        """The steps for sets of the first ``left`` axes; ``inner`` cells of later ones are held."""
        if not any(axes for _, axes in sets):
            outer = prod(self.shape[:left])
            place = source if outer == 1 else free
            step = (source, place, 1, outer, inner)
            if outer > 1:
                self._room = max(self._room, free + inner)
                steps.append((SUM, *step))
            steps += [(LEAF, place, int(self.ends[i]), 1, 1, inner) for i, _ in sets]
            if outer > 1:
                steps.append((END, *step))
            return
        size, rest = self.shape[left - 1], left - 1
        held = [(i, axes[:-1]) for i, axes in sets if axes and axes[-1] == rest]
        if held:
            self._plan(steps, source, rest, inner * size, held, free)
        without = [(i, axes) for i, axes in sets if not (axes and axes[-1] == rest)]
        if without:
            outer = prod(self.shape[:rest])
            step = (source, free, outer, size, inner)
            after = free + outer * inner
            self._room = max(self._room, after)
            steps.append((SUM, *step))
            self._plan(steps, free, rest, inner, without, after)
            steps.append((END, *step))


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _sum_out(steps, room, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Run the program: every margin of the table at the start of ``room`` into ``out``."""
    for k in range(len(steps)):
        kind, source, target = steps[k, 0], steps[k, 1], steps[k, 2]
        outer, size, inner = steps[k, 3], steps[k, 4], steps[k, 5]
        if kind == LEAF:
            out[target : target + inner] = room[source : source + inner]
        elif kind == SUM and inner == 1:
            for o in range(outer):
                slices, total = room[source + o * size : source + (o + 1) * size], 0.0
                for s in range(size):
                    total += slices[s]
                room[target + o] = total
        elif kind == SUM:
            for o in range(outer):
                x, y = source + o * size * inner, target + o * inner
                into = room[y : y + inner]
                into[:] = room[x : x + inner]
                for s in range(1, size):
                    one = room[x + s * inner : x + (s + 1) * inner]
                    for i in range(inner):
                        into[i] += one[i]


@njit(cache=True, error_model="numpy")  # type: ignore[untyped-decorator,unused-ignore]
def _add_up(steps, room, margins):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Run the program of the adjoint: into the table at the start of ``room``."""
    for k in range(len(steps)):
        kind, source, target = steps[k, 0], steps[k, 1], steps[k, 2]
        outer, size, inner = steps[k, 3], steps[k, 4], steps[k, 5]
        if kind == SUM:
            room[target : target + outer * inner] = 0.0
        elif kind == LEAF:
            into, one = room[source : source + inner], margins[target : target + inner]
            for i in range(inner):
                into[i] += one[i]
        else:
            for o in range(outer):
                one = room[target + o * inner : target + (o + 1) * inner]
                for s in range(size):
                    x = source + (o * size + s) * inner
                    into = room[x : x + inner]
                    for i in range(inner):
                        into[i] += one[i]
