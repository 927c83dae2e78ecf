# SPDX-License-Identifier: Apache-2.0
"""A fit as a quadratic function of the margins of a histogram, over the cells of a grid.

    f(h) = 1/2 t'Vt - c't + 1/2 |y|_W^2,       t = the margins of h over every asked set, stacked,

with ``V`` one block per set (the Gram matrix of its queries), or one matrix over all of them where
the answers have a joint covariance. Solvers see ``V`` and ``c`` only, so their cost does not
depend on the number of queries; certificates are computed from the answers themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sfumato.plan.effort import ADDED_UP, spend
from sfumato.refine.cells.grid import Axes, Grid
from sfumato.refine.cells.reduced import Reduced
from sfumato.refine.fit import Fit
from sfumato.workload.queries import Array, Integers

__all__ = ["Quadratic"]

MOST_DENSE = 1536  # cells of a set whose Gram matrix is written out (18 MB)
MOST_ENTRIES = 2**24  # coefficients that may be written out to get it
MOST_JOINT = 4096  # margins in all whose joint Gram matrix is written out (128 MB)


@dataclass(frozen=True, eq=False)
class _Block:
    """The Gram matrix of one set: its diagonal, the matrix, or neither (operators then)."""

    parts: tuple[tuple[Reduced, Array], ...]
    diagonal: Array | None
    dense: Array | None

    @classmethod
    def of(cls, parts: Sequence[tuple[Reduced, Array]], cells: int) -> _Block:
        """The simplest form."""
        if all(r.term.is_table for r, _ in parts):
            return cls(tuple(parts), np.sum([w for _, w in parts], axis=0), None)
        small = cells <= MOST_DENSE and all(
            _is_simple(r, w) or r.term.rows * cells <= MOST_ENTRIES for r, w in parts
        )
        dense = np.sum([_dense_gram(r, w) for r, w in parts], axis=0) if small else None
        return cls(tuple(parts), None, dense)

    def apply(self, t: Array) -> Array:
        """``V t``."""
        if self.diagonal is not None:
            return self.diagonal * t
        if self.dense is not None:
            return self.dense @ t
        out = np.zeros(len(t))
        for reduced, weights in self.parts:
            if _is_even(weights):
                out += weights[0] * reduced.gram_apply(t)
            else:
                out += reduced.adjoint(weights * reduced.apply(t))
        return out

    def entries(self, rows: Integers, columns: Integers, cells: int) -> Array:
        """``V[rows, columns]``, of a block that is not diagonal."""
        if self.dense is not None:
            return np.asarray(self.dense[np.ix_(rows, columns)])
        out = np.zeros((len(rows), len(columns)))
        for reduced, weights in self.parts:
            if _is_even(weights):
                out += weights[0] * reduced.gram_entries(rows, columns)
                continue
            for row in np.unique(rows):
                unit = np.zeros(cells)
                unit[row] = 1.0
                found = reduced.adjoint(weights * reduced.apply(unit))
                out[rows == row] += found[columns]
        return out


@dataclass(frozen=True, eq=False)
class Quadratic:
    """The function, and the moves between cells, margins and answers.

    ``precision`` is the inverse of the covariance of the first answers, as many as it has rows;
    the parts after those are weighted as the fit says.
    """

    fit: Fit
    grid: Grid
    precision: Array | None = None

    @cached_property
    def sets(self) -> tuple[Axes, ...]:
        """The asked sets of attributes."""
        return tuple(self.grid.axes(names) for names in self.fit.sets)

    @cached_property
    def reduced(self) -> tuple[Reduced, ...]:
        """Every part on the merged cells."""
        return tuple(Reduced.of(p.term, self.grid) for p in self.fit.parts)

    @cached_property
    def _set_of(self) -> tuple[int, ...]:
        order = {names: i for i, names in enumerate(self.fit.sets)}
        return tuple(order[p.term.attributes] for p in self.fit.parts)

    @cached_property
    def ends(self) -> Integers:
        """Where the margins of each set begin and end in the stack."""
        return np.cumsum([0, *(self.grid.cells(axes) for axes in self.sets)])

    @property
    def length(self) -> int:
        """The number of margins in the stack."""
        return int(self.ends[-1])

    @property
    def cell_weights(self) -> Array | None:
        """The diagonal of V, if what is asked is one table over all cells; else None."""
        is_whole = len(self.sets) == 1 and self.sets[0] == tuple(range(len(self.grid.names)))
        return self._blocks[0].diagonal if is_whole and self._blocks is not None else None

    @cached_property
    def roots(self) -> tuple[tuple[slice, Array], ...] | None:
        """Square L with ``V = L L'``, block by block (a vector: its diagonal); None if unknown."""
        if self._blocks is None:
            return None if self._joint is None else ((slice(0, self.length), _root(self._joint)),)
        out = []
        for s, block in enumerate(self._blocks):
            at = slice(int(self.ends[s]), int(self.ends[s + 1]))
            if block.diagonal is not None:
                out.append((at, np.sqrt(block.diagonal)))
            elif block.dense is not None:
                out.append((at, _root(block.dense)))
            else:
                return None
        return tuple(out)

    @cached_property
    def freedom(self) -> int:
        """A bound on the number of independent queries."""
        rows = [0] * len(self.sets)
        for part, s in zip(self.fit.parts, self._set_of, strict=True):
            rows[s] += part.term.rows
        cells = [self.grid.cells(axes) for axes in self.sets]
        return min(self.grid.size, sum(map(min, rows, cells)))

    @cached_property
    def values(self) -> Array:
        """``y``: what all queries are wanted to be."""
        return np.concatenate([p.values for p in self.fit.parts])

    @cached_property
    def _weights(self) -> Array:
        return np.concatenate([p.weights for p in self.fit.parts])

    def weigh(self, x: Array) -> Array:
        """``W x``."""
        if self.precision is None:
            return self._weights * x
        joint = len(self.precision)
        return np.concatenate([self.precision @ x[:joint], self._weights[joint:] * x[joint:]])

    def norm(self, x: Array) -> float:
        """``|x|_W``."""
        return float(np.sqrt(max(0.0, float(x @ self.weigh(x)))))

    def answers(self, t: Array) -> Array:
        """``F h`` from the margins of h."""
        tables = np.split(t, self.ends[1:-1])
        pairs = zip(self.reduced, self._set_of, strict=True)
        return np.concatenate([r.apply(tables[s]) for r, s in pairs])

    def adjoint(self, x: Array) -> Array:
        """``F'x`` as tables, stacked."""
        out = np.zeros(self.ends[-1])
        start = 0
        for reduced, s in zip(self.reduced, self._set_of, strict=True):
            rows = reduced.term.rows
            out[self.ends[s] : self.ends[s + 1]] += reduced.adjoint(x[start : start + rows])
            start += rows
        return out

    @cached_property
    def wanted(self) -> Array:
        """``c = F'W y``, stacked."""
        return self.adjoint(self.weigh(self.values))

    @cached_property
    def _blocks(self) -> tuple[_Block, ...] | None:
        """Nothing where one covariance joins the sets."""
        if self.precision is not None:
            return None
        found: list[list[tuple[Reduced, Array]]] = [[] for _ in self.sets]
        for reduced, part, s in zip(self.reduced, self.fit.parts, self._set_of, strict=True):
            found[s].append((reduced, part.weights))
        pairs = zip(found, self.sets, strict=True)
        return tuple(_Block.of(parts, self.grid.cells(axes)) for parts, axes in pairs)

    @cached_property
    def _joint(self) -> Array | None:
        """V as one matrix, for a joint covariance on few margins."""
        if self.ends[-1] > MOST_JOINT:
            return None
        return np.array([self._through_answers(row) for row in np.eye(self.ends[-1])])

    def _through_answers(self, t: Array) -> Array:
        return self.adjoint(self.weigh(self.answers(t)))

    def curve(self, t: Array) -> Array:
        """``V t``."""
        spend(ADDED_UP * self.length)
        if self._blocks is None:
            return self._through_answers(t) if self._joint is None else self._joint @ t
        tables = np.split(t, self.ends[1:-1])
        pairs = zip(self._blocks, tables, strict=True)
        return np.concatenate([block.apply(table) for block, table in pairs])

    def stack(self, h: Array) -> Array:
        """The margins of a histogram over all cells."""
        spend(ADDED_UP * self.grid.size * len(self.sets))
        return np.concatenate(self.grid.margins(h, self.sets))

    def stack_of(self, cells: Integers, weights: Array) -> Array:
        """The margins of a histogram with these cells only."""
        places = self.places(cells)
        spread = np.repeat(weights, len(self.sets))
        found = np.bincount(places.reshape(-1), spread, minlength=self.ends[-1])
        return np.asarray(found, dtype=np.float64)

    def places(self, cells: Integers) -> Integers:
        """For each cell its position in the stack, set by set."""
        return self.grid.places(cells, self.sets) + self.ends[:-1]

    def spread(self, t: Array) -> Array:
        """Over all cells, the sum of the entries of each in a stack of tables."""
        spend(ADDED_UP * self.grid.size * len(self.sets))
        tables = np.split(t, self.ends[1:-1])
        return self.grid.spread(list(zip(self.sets, tables, strict=True)))

    def slopes(self, t: Array) -> Array:
        """``spread`` for a gradient: infinite where no weight may be."""
        out = self.spread(t)
        return out if self.grid.possible is None else np.where(self.grid.possible, out, np.inf)

    def towards(self, values: Array) -> Quadratic:
        """The same queries, wanted elsewhere; what does not depend on that is kept."""
        cuts = np.cumsum([p.term.rows for p in self.fit.parts])[:-1]
        pairs = zip(self.fit.parts, np.split(values, cuts), strict=True)
        parts = tuple(replace(p, values=v) for p, v in pairs)
        out = Quadratic(replace(self.fit, parts=parts), self.grid, self.precision)
        kept = ("reduced", "_blocks", "_joint", "_diagonal", "is_seen")
        vars(out).update({k: v for k, v in vars(self).items() if k in kept})
        return out

    @cached_property
    def is_seen(self) -> npt.NDArray[np.bool_]:
        """Whether some query of positive weight has a coefficient on each possible cell."""
        out = np.zeros(self.ends[-1])
        for reduced, part, s in zip(self.reduced, self.fit.parts, self._set_of, strict=True):
            out[self.ends[s] : self.ends[s + 1]] += reduced.column_sums(part.weights > 0)
        found = self.spread(out) > 0
        return found if self.grid.possible is None else found & self.grid.possible

    @cached_property
    def magnitude(self) -> float:
        """``max_x sum_q |F_qx| (|W| |y|)_q``: of the numbers that a slope is the small sum of."""
        sizes = self._weights * np.abs(self.values)
        if self.precision is not None:
            joint = len(self.precision)
            sizes[:joint] = np.abs(self.precision) @ np.abs(self.values[:joint])
        out, start = np.zeros(self.ends[-1]), 0
        for reduced, s in zip(self.reduced, self._set_of, strict=True):
            rows = reduced.term.rows
            out[self.ends[s] : self.ends[s + 1]] += reduced.most(sizes[start : start + rows])
            start += rows
        return float(self.spread(out).max(initial=0.0))

    def gram(self, rows: Integers, columns: Integers) -> Array:
        """``<f_x, f_y>_W`` between the columns of cells, given by their ``places``."""
        if self._blocks is not None:
            out = self._agreement(rows, columns)
            for s, block in enumerate(self._blocks):
                if block.diagonal is None:
                    start, end = self.ends[s], self.ends[s + 1]
                    at, to = rows[:, s] - start, columns[:, s] - start
                    out += block.entries(at, to, int(end - start))
            return out
        out = np.zeros((len(rows), len(columns)))
        for i, row in enumerate(rows):
            unit = np.zeros(self.ends[-1])
            unit[row] = 1.0
            out[i] = self.curve(unit)[columns].sum(axis=1)
        return out

    @cached_property
    def _diagonal(self) -> tuple[Integers, Array]:
        """The sets whose tables are asked for, and their weights in the stack (0 elsewhere)."""
        found = self._blocks or ()
        sets = [s for s, block in enumerate(found) if block.diagonal is not None]
        weights = np.zeros(self.ends[-1])
        for s in sets:
            weights[self.ends[s] : self.ends[s + 1]] = found[s].diagonal
        return np.array(sets, dtype=np.int64), weights

    def _agreement(self, rows: Integers, columns: Integers) -> Array:
        """The part of ``gram`` from tables: the weight of the margins that two cells share."""
        sets, weights = self._diagonal
        out = np.zeros((len(rows), len(columns)))
        shared = columns[:, sets]
        for i, row in enumerate(rows[:, sets]):
            out[i] = (shared == row) @ weights[row]
        return out


def _root(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _dense_gram(reduced: Reduced, weights: Array) -> Array:
    if _is_simple(reduced, weights):
        return np.asarray(weights[0] * reduced.gram())
    dense = reduced.matrix()
    return np.asarray(dense.T @ (weights[:, None] * dense))


def _is_simple(reduced: Reduced, weights: Array) -> bool:
    """Whether the Gram matrix follows from those of the attributes."""
    return reduced.term.as_product() is not None and _is_even(weights)


def _is_even(weights: Array) -> bool:
    return bool((weights == weights[0]).all())
