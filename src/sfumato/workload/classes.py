# SPDX-License-Identifier: Apache-2.0
"""Cells that no condition tells apart, merged attribute by attribute.

A few conditions split even an attribute of a million values into a few classes. Every query of
theirs is constant on products of classes, so the small table of classes holds all there is to
know about them: their answers, their column norms, their meaning. This is the workload-based
partition of Zhang, McKenna, Kotsogiannis, Hay, Machanavajjhala, Miklau 2018, "EKTELO: a framework
for defining differentially-private computations", taken per attribute; it loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from sfumato.domain import Domain
from sfumato.workload.predicates import Condition, In, Mask, leaves, truth_table
from sfumato.workload.queries import Array, Integers, Numbers, widened

__all__ = ["Classes", "joint_classes"]

PACKED = 60  # truth values that fit in one 64-bit key


@dataclass(frozen=True, eq=False)
class Classes:
    """For each attribute, the class of every cell; classes are numbered by their first cell."""

    names: tuple[str, ...]
    class_of: tuple[Integers, ...]

    @classmethod
    def of(cls, conditions: Iterable[Condition], domain: Domain, names: tuple[str, ...]) -> Classes:
        """Cells of an attribute are in one class when every leaf holds for both or neither."""
        found: dict[str, set[tuple[int, ...]]] = {name: set() for name in names}
        for condition in conditions:
            for leaf in leaves(condition):
                found[leaf.attribute].add(leaf.codes)
        maps = tuple(_split(domain[name].size, sorted(found[name])) for name in names)
        return cls(names, maps)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of classes of each attribute."""
        return tuple(int(c.max()) + 1 for c in self.class_of)

    @property
    def cells(self) -> int:
        """The number of cells of the table of classes."""
        return prod(self.shape)

    @cached_property
    def sizes(self) -> Array:
        """The number of domain cells behind each cell of the table of classes."""
        out = np.ones((1,) * len(self.shape))
        for axis, classes in enumerate(self.class_of):
            along = [-1 if i == axis else 1 for i in range(len(self.shape))]
            out = out * np.bincount(classes).astype(np.float64).reshape(along)
        return out

    @cached_property
    def _first_cells(self) -> dict[str, Integers]:
        found = zip(self.names, self.class_of, strict=True)
        return {name: np.unique(classes, return_index=True)[1] for name, classes in found}

    def truth(self, condition: Condition) -> Mask:
        """The condition over the table of classes."""

        def cells_of(leaf: In) -> Mask:
            cells = np.zeros(len(self.class_of[self.names.index(leaf.attribute)]), dtype=np.bool_)
            cells[list(leaf.codes)] = True
            return cells[self._first_cells[leaf.attribute]]

        return truth_table(condition, self.names, self.shape, cells_of)

    def merge(self, table: Numbers) -> Numbers:
        """Sum a table over cells to a table over classes; exact for integers."""
        out = widened(table)
        for axis, (classes, count) in enumerate(zip(self.class_of, self.shape, strict=True)):
            if count == len(classes):
                continue
            moved = np.moveaxis(out, axis, 0)
            sums = np.zeros((count, *moved.shape[1:]), dtype=out.dtype)
            np.add.at(sums, classes, moved)
            out = np.moveaxis(sums, 0, axis)
        return out

    def expand(self, table: Numbers) -> Numbers:
        """The adjoint of ``merge``: every cell gets the value of its class."""
        return table[np.ix_(*self.class_of)] if self.names else table


def joint_classes(keys: Sequence[Integers]) -> Integers:
    """Positions are in one class when all keys agree; classes are numbered by first position."""
    joint = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        # Both numberings are below the number of positions, which is below 2^31.
        _, joint = np.unique(joint * (int(key.max()) + 1) + key, return_inverse=True)
    return _by_first(joint.astype(np.int64).reshape(-1))


def _by_first(classes: Integers) -> Integers:
    _, first, numbers = np.unique(classes, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[numbers.reshape(-1)]


def _split(size: int, listed: Sequence[tuple[int, ...]]) -> Integers:
    """The classes of ``size`` cells that the listed sets of cells tell apart."""
    keys = [np.zeros(size, dtype=np.int64)]
    for start in range(0, len(listed), PACKED):
        packed = np.zeros(size, dtype=np.int64)
        for bit, codes in enumerate(listed[start : start + PACKED]):
            packed[list(set(codes))] += 1 << bit
        keys.append(np.unique(packed, return_inverse=True)[1].astype(np.int64).reshape(-1))
    return joint_classes(keys)
