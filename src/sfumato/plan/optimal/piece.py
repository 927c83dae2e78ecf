# SPDX-License-Identifier: Apache-2.0
"""A measured piece: class sums of some attributes mixed by a matrix, differences of others.

Along an attribute a piece reads either the sums of its classes of exchangeable cells or the
differences within one class (``n g - sum(g)`` for the n cells g of the class: n times the
orthogonal residual, in integers). The class sums of all attributes together are multiplied by
one integer matrix. Everything is an integer, so the vault measures it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from sfumato.plan.solve.symmetry import CLASS_PART, Axis
from sfumato.workload.queries import GRAM_ERROR, Array, Integers, Numbers, widest
from sfumato.workload.terms import Term

__all__ = ["Piece"]


@dataclass(frozen=True, eq=False)
class Piece(Term):
    """``entries`` times the class sums of some attributes, by differences of the others.

    ``part[i]`` is CLASS_PART or the class whose differences are read along ``axes[i]``.
    """

    axes: tuple[Axis, ...]
    part: tuple[int, ...]
    entries: Integers

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of its axes."""
        return tuple(a.name for a in self.axes)

    @cached_property
    def mixed(self) -> tuple[int, ...]:
        """The axes that are read by class."""
        return tuple(i for i, label in enumerate(self.part) if label == CLASS_PART)

    @cached_property
    def compared(self) -> tuple[int, ...]:
        """The axes that are read by differences within a class."""
        return tuple(i for i, label in enumerate(self.part) if label != CLASS_PART)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Rows of the matrix, then the cells of each compared class."""
        members = (int(self.axes[i].sizes[self.part[i]]) for i in self.compared)
        return (len(self.entries), *members)

    @property
    def rows(self) -> int:
        """The number of measured values."""
        return prod(self.row_shape)

    def apply(self, table: Numbers) -> Numbers:
        """Class sums and differences axis by axis, then the matrix; exact for integers."""
        out = np.asarray(table).reshape(self.shape)
        for i, (axis, label) in enumerate(zip(self.axes, self.part, strict=True)):
            moved = np.moveaxis(out, i, 0)
            if label == CLASS_PART:
                sums = np.zeros((axis.classes, *moved.shape[1:]), dtype=out.dtype)
                np.add.at(sums, axis.class_of, moved)
                out = np.moveaxis(sums, 0, i)
            else:
                within = moved[axis.members(label)]
                total = within.sum(axis=0, keepdims=True, dtype=out.dtype)
                out = np.moveaxis(len(within) * within - total, 0, i)
        ordered = out.transpose(*self.mixed, *self.compared)
        flat = ordered.reshape(self.entries.shape[1], -1)
        return np.asarray(self.entries.astype(out.dtype) @ flat).reshape(-1)

    def adjoint(self, y: Numbers) -> Array:
        """The transposed map."""
        rows = np.asarray(y, dtype=np.float64).reshape(self.row_shape)
        classes = [self.axes[i].classes for i in self.mixed]
        out = np.tensordot(self.entries.T.astype(np.float64), rows, axes=1)
        out = out.reshape(*classes, *self.row_shape[1:])
        out = out.transpose(np.argsort((*self.mixed, *self.compared)))
        for i, (axis, label) in enumerate(zip(self.axes, self.part, strict=True)):
            moved = np.moveaxis(out, i, 0)
            if label == CLASS_PART:
                out = np.moveaxis(moved[axis.class_of], 0, i)
            else:
                cells = np.zeros((axis.cells, *moved.shape[1:]))
                cells[axis.members(label)] = len(moved) * moved - moved.sum(axis=0, keepdims=True)
                out = np.moveaxis(cells, 0, i)
        return out

    def squared_diameter(self) -> float:
        """Class columns by residuals: the inner product of two residual columns is an extreme.

        Columns of ``n I - J`` have squared norm n (n - 1) and inner product -n; over several axes
        the least product is reached by differing along one axis only, the shortest.
        """
        members = self.row_shape[1:]
        norm = float(prod(n * (n - 1) for n in members))
        farthest = norm * widest(self.entries)  # cells that differ in their classes only
        if not members:
            return farthest
        least = -norm / (min(members) - 1)
        columns = self.entries.astype(np.float64)
        gram = columns.T @ columns
        own = np.diag(gram)
        sums = own[:, None] + own[None, :]
        apart = float((norm * sums - 2 * least * gram).max())
        # Cells outside the compared classes have column 0, which is no farther than another column.
        alone = norm * float(own.max())
        return max(farthest, apart + GRAM_ERROR * alone, alone)

    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """One joint array over the class axes, one vector for every other."""
        factors: list[tuple[tuple[str, ...], Array]] = []
        if self.mixed:
            powers = (np.abs(self.entries.astype(np.float64)) ** p).sum(axis=0)
            joint = powers.reshape([self.axes[i].classes for i in self.mixed])
            for position, i in enumerate(self.mixed):
                joint = joint.take(self.axes[i].class_of, axis=position)
            factors.append((tuple(self.axes[i].name for i in self.mixed), joint))
        else:
            only = float(np.abs(self.entries).astype(np.float64).item() ** p)
            factors.append(((), np.array(only)))
        for i in self.compared:
            axis, n = self.axes[i], int(self.axes[i].sizes[self.part[i]])
            vector = np.where(axis.class_of == self.part[i], _difference_power(n, p), 0.0)
            factors.append(((axis.name,), vector))
        return factors

    def row_powers(self, p: int) -> Array:
        """Sums over the cells."""
        sizes = np.ones(1)
        for i in self.mixed:
            sizes = np.outer(sizes, self.axes[i].sizes).reshape(-1)
        mixed = (np.abs(self.entries.astype(np.float64)) ** p) @ sizes
        members = [int(n) for n in self.row_shape[1:]]
        each = prod(_difference_power(n, p) for n in members)
        return np.repeat(mixed * each, prod(members))

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """The extremes of products of the ends."""
        low, high = self.entries.min(axis=1).astype(float), self.entries.max(axis=1).astype(float)
        if self.compared:
            greatest = prod(n - 1 for n in self.row_shape[1:])
            widest = np.maximum(np.abs(low), np.abs(high)) * greatest
            low, high = -widest, widest
        members = prod(self.row_shape[1:])
        return np.repeat(low, members), np.repeat(high, members)

    @property
    def fraction_bits(self) -> int:
        """All coefficients are whole."""
        return 0

    @property
    def greatest(self) -> float:
        """The greatest absolute coefficient."""
        return float(np.abs(self.entries).max()) * prod(n - 1 for n in self.row_shape[1:])

    @property
    def is_nonnegative(self) -> bool:
        """Whether it only adds up."""
        return not self.compared and bool((self.entries >= 0).all())


def _difference_power(n: int, p: int) -> float:
    """The sum of ``|c|^p`` over the column of one cell of ``n I - J``."""
    return float((n - 1) ** p + (n - 1))
