# SPDX-License-Identifier: Apache-2.0
"""Cells that a workload cannot tell apart by more than their names.

Two cells of an attribute are exchangeable when swapping them only permutes the asked queries:
every query treats them alike, except queries about a single cell, of which both have the same
ones. Then the Gram matrix is unchanged by the swap, some optimal ``X = M'M`` is too, and the space
of an attribute splits (Schur's lemma) into

* the class part: one coordinate per class of exchangeable cells, the normalised class sum;
* for every class of n > 1 cells the residual part: differences within the class, on which the
  Gram matrix is a number.

For a table of counts the whole attribute is one class: total and residual, the known split of
marginals (Xiao, He, Zhang, Kifer 2023, "An optimal and scalable matrix mechanism for noisy
marginals"). Cells with equal columns are a class with residual 0, hence merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.workload.queries import (
    Array,
    Integers,
    QuerySet,
)

__all__ = ["CLASS_PART", "Axis", "exchangeable"]

CLASS_PART = -1  # the part of the class sums; other parts are differences within a class


@dataclass(frozen=True, eq=False)
class Axis:
    """An attribute with its classes of exchangeable cells."""

    name: str
    class_of: Integers

    @cached_property
    def sizes(self) -> Integers:
        """The number of cells of each class."""
        return np.bincount(self.class_of)

    @property
    def cells(self) -> int:
        """The number of cells."""
        return len(self.class_of)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.sizes)

    def members(self, label: int) -> Integers:
        """The cells of a class."""
        return np.flatnonzero(self.class_of == label)

    @cached_property
    def indicator(self) -> Array:
        """Cells x classes: normalised class vectors as columns."""
        out = np.zeros((self.cells, self.classes))
        out[np.arange(self.cells), self.class_of] = 1 / np.sqrt(self.sizes[self.class_of])
        return out

    def class_gram(self, queries: QuerySet) -> Array:
        """The Gram matrix on the class part."""
        if queries.is_total:
            root = np.sqrt(self.sizes)
            return np.outer(root, root)
        if queries.is_identity:
            return np.eye(self.classes)
        return self.indicator.T @ np.asarray(queries.gram_apply(self.indicator), dtype=np.float64)

    def residual_gram(self, queries: QuerySet) -> Array:
        """For every class, the number by which the Gram matrix acts on its differences."""
        if queries.is_identity:
            return (self.sizes > 1).astype(np.float64)
        out = np.zeros(self.classes)
        if queries.is_disjoint or queries.is_ordered:
            return out
        gram = queries.gram()
        for label in np.flatnonzero(self.sizes > 1):
            first, second = self.members(int(label))[:2]
            out[label] = gram[first, first] - gram[first, second]
        return np.where(np.abs(out) > 1e-12 * np.abs(np.diag(gram)).max(), out, 0.0)


def exchangeable(name: str, size: int, asked: Sequence[QuerySet]) -> Axis:
    """The classes of exchangeable cells under all query sets asked of an attribute."""
    keys: list[Integers] = [np.zeros(size, dtype=np.int64)]
    for queries in asked:
        if queries.is_ordered:
            return Axis(name, np.arange(size))
        keys.append(queries.exchange_classes())
    stacked = np.stack(keys, axis=1)
    _, first, inverse = np.unique(stacked, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))  # classes numbered by their first cell
    return Axis(name, order[inverse.reshape(-1)])
