# SPDX-License-Identifier: Apache-2.0
"""The cells a projection works on: those of all asked attributes, alike ones merged.

Attributes that nobody asks about are left out, and cells of an attribute that no query tells apart
become one (the workload-based partition of Zhang, McKenna, Kotsogiannis, Hay, Machanavajjhala,
Miklau 2018, "EKTELO: a framework for defining differentially-private computations"). Both lose
nothing: the answers of a histogram depend on its sums over such cells only, and every non-negative
table of sums is the sum of some non-negative histogram. Cells where no record can be are never
merged with others, and ``possible`` leaves them out.

Margins over many sets of attributes are summed out one attribute at a time, sets that share the
rest together, so all pairs of d attributes cost a few passes over the cells instead of d^2 / 2
(Yates 1937, "The design and analysis of factorial experiments").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.refine.reconstruct import Fit
from sfumato.refine.refine_limits import LIMITS
from sfumato.types import Array, Integers, Mask, Names
from sfumato.workload.constraints import Constraints, Published
from sfumato.workload.predicates import joint_classes
from sfumato.workload.terms import Term

__all__ = [
    "Grid",
    "alike",
]


Axes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Grid:
    """``kept[i]`` are the cells of attribute i that stand for their classes, first cell each.

    ``published`` is what is published and can matter here.
    """

    domain: Domain
    names: Names
    kept: tuple[Integers, ...]
    constraints: Constraints | None = None
    published: tuple[Published, ...] = ()

    @classmethod
    def of(cls, fit: Fit, constraints: Constraints | None = None) -> Grid:
        """The merged cells of all attributes that some part or published table reads."""
        asked = frozenset(n for s in fit.sets for n in s)
        tables = () if constraints is None else constraints.published_for(asked)
        names = fit.domain.in_order(asked.union(*(t.names for t in tables)))
        classes = (alike(fit, name, constraints) for name in names)
        kept = tuple(np.unique(c, return_index=True)[1].astype(np.int64) for c in classes)
        return cls(fit.domain, names, kept, constraints, tables)

    @cached_property
    def possible(self) -> Mask | None:
        """Which merged cells may carry weight, None if all of them.

        Not those of impossible combinations, nor those of a published count of 0.
        """
        if self.constraints is None:
            return None
        out = self.constraints.possible(self.names, self.kept)
        for table in self.published:
            axes = self.axes(table.names)
            is_held = table.values[np.ix_(*(self.kept[a] for a in axes))] > 0
            out &= is_held.reshape([k if a in axes else 1 for a, k in enumerate(self.shape)])
        return None if out.all() else out.reshape(-1)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of merged cells of each attribute."""
        return tuple(len(k) for k in self.kept)

    @cached_property
    def size(self) -> int:
        """The number of merged cells."""
        return prod(self.shape)

    def axes(self, names: Names) -> Axes:
        """The positions of the named attributes."""
        return tuple(self.names.index(n) for n in names)

    def cells(self, axes: Axes) -> int:
        """The number of merged cells of some attributes."""
        return prod(self.shape[a] for a in axes)

    @cached_property
    def _bundles(self) -> tuple[Axes, ...]:
        """Neighbouring attributes with few cells together: they are summed out at once."""
        out: list[Axes] = []
        for axis in range(len(self.shape)):
            if out and self.cells((*out[-1], axis)) <= LIMITS.bundle_cells:
                out[-1] = (*out[-1], axis)
            else:
                out.append((axis,))
        return tuple(out)

    @cached_property
    def _bundle_of(self) -> tuple[int, ...]:
        return tuple(i for i, bundle in enumerate(self._bundles) for _ in bundle)

    def _wide(self, axes: Axes) -> Axes:
        """The bundles that hold some attributes."""
        return tuple(sorted({self._bundle_of[a] for a in axes}))

    def _inside(self, axes: Axes) -> tuple[Axes, tuple[int, ...]]:
        """The attributes of those bundles, and the shape of a table of ``axes`` among them."""
        held = tuple(a for i in self._wide(axes) for a in self._bundles[i])
        return held, tuple(self.shape[a] if a in axes else 1 for a in held)

    def margins(self, table: Array, sets: Sequence[Axes]) -> list[Array]:
        """The sums of a table over all but the attributes of each set, flat."""
        wide = list(dict.fromkeys(self._wide(axes) for axes in sets))
        sizes = tuple(self.cells(bundle) for bundle in self._bundles)
        found: list[Array] = [np.empty(0)] * len(wide)
        _sum_out(table.reshape(-1, 1), sizes, list(enumerate(wide)), found)
        at = dict(zip(wide, found, strict=True))
        out = []
        for axes in sets:
            held, _ = self._inside(axes)
            whole = at[self._wide(axes)].reshape([self.shape[a] for a in held])
            rest = tuple(i for i, a in enumerate(held) if a not in axes)
            out.append(np.asarray(whole.sum(axis=rest) if rest else whole).reshape(-1))
        return out

    def spread(self, tables: Sequence[tuple[Axes, Array]]) -> Array:
        """For every cell the sum of its entries in all tables: the adjoint of ``margins``."""
        wide: dict[Axes, Array] = {}
        for axes, table in tables:
            held, shape = self._inside(axes)
            into = wide.setdefault(self._wide(axes), np.zeros([self.shape[a] for a in held]))
            into += table.reshape(shape)
        sizes = tuple(self.cells(bundle) for bundle in self._bundles)
        whole = _add_up([(a, t.reshape(-1, 1)) for a, t in wide.items()], sizes)
        return np.broadcast_to(whole, (self.size, 1)).reshape(-1)

    def places(self, cells: Integers, sets: Sequence[Axes]) -> Integers:
        """For each cell and set the position in the flat table of that set."""
        strides = np.zeros((len(self.shape), len(sets)), dtype=np.int64)
        for s, axes in enumerate(sets):
            step = 1
            for a in reversed(axes):
                strides[a, s] = step
                step *= self.shape[a]
        if not self.shape:
            return np.zeros((len(cells), len(sets)), dtype=np.int64)
        return np.column_stack(np.unravel_index(cells, self.shape)) @ strides

    def codes(self, cells: Integers) -> Integers:
        """The codes of the attributes, one row per cell: of the cell that stands for its class."""
        if not self.shape:
            return np.zeros((len(cells), 0), dtype=np.int64)
        found = np.unravel_index(cells, self.shape)
        return np.column_stack([k[c] for k, c in zip(self.kept, found, strict=True)])


def _sum_out(
    table: Array, shape: tuple[int, ...], wanted: list[tuple[int, Axes]], out: list[Array]
) -> None:
    """Sum the last attribute out for the sets without it; keep it aside for those with it."""
    if not any(axes for _, axes in wanted):
        total = table.sum(axis=0) if len(table) > 1 else table[0]
        for i, _ in wanted:
            out[i] = total
        return
    last, size = len(shape) - 1, shape[-1]
    cut = table.reshape(-1, size, table.shape[1])
    without = [(i, axes) for i, axes in wanted if last not in axes]
    if without:
        _sum_out(_summed(cut), shape[:-1], without, out)
    held = [(i, axes[:-1]) for i, axes in wanted if last in axes]
    if held:
        _sum_out(cut.reshape(len(cut), -1), shape[:-1], held, out)


def _summed(cut: Array) -> Array:
    """The sum over the middle axis."""
    if cut.shape[1] > LIMITS.slices_added_singly:
        return np.asarray(cut.sum(axis=1))
    out = cut[:, 0].copy()
    for i in range(1, cut.shape[1]):
        out += cut[:, i]
    return out


def _add_up(pieces: list[tuple[Axes, Array]], shape: tuple[int, ...]) -> Array:
    """The adjoint of ``_sum_out``; a result of one row stands for all rows alike."""
    if not any(axes for axes, _ in pieces):
        return np.asarray(sum(t for _, t in pieces)).reshape(1, -1)
    last, size = len(shape) - 1, shape[-1]
    rows = prod(shape[:-1])
    without = [(axes, t) for axes, t in pieces if last not in axes]
    held = [(axes[:-1], t.reshape(-1, size * t.shape[1])) for axes, t in pieces if last in axes]
    width = pieces[0][1].shape[1]
    out = np.zeros((1, 1, 1))
    if held:
        out = _add_up(held, shape[:-1]).reshape(-1, size, width)
    if without:
        out = out + _add_up(without, shape[:-1])[:, None, :]
    return np.broadcast_to(out, (rows, size, width)).reshape(rows * size, width)


def alike(fit: Fit, name: str, constraints: Constraints | None = None) -> Integers:
    """The class of every cell of an attribute: equal for cells that nothing tells apart.

    Neither a part of the fit, nor an impossible condition, nor a published table.
    """
    labels = [_labels(p.term, name) for p in fit.parts if name in p.term.attributes]
    if constraints is not None:
        known = constraints.labels()
        labels += [known[name]] if name in known else []
        if any(name in table.names for table in constraints.published):
            labels.append(np.arange(fit.domain[name].size))
    return joint_classes(labels)


def _labels(term: Term, name: str) -> Integers:
    """Cells of an attribute with one label have the same coefficients in every query."""
    classes = term.cell_classes(name)
    return np.arange(term.domain[name].size) if classes is None else classes
