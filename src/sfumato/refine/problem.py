# SPDX-License-Identifier: Apache-2.0
"""A fit as a quadratic function of a histogram over cells: what projections over cells minimise.

    f(h) = 1/2 t'Vt - c't + 1/2 |y|_W^2,       t = the margins of h over every set of the queries,

with ``V`` one block per set (the Gram matrix of its queries), or one matrix over all of them where
the answers have a joint covariance. Solvers (``cell_solvers``) see ``V`` and ``c`` only, so their
cost does not depend on the number of queries; certificates are computed from the answers.

``Grid`` has the cells: attributes that no query reads are left out, and cells of an attribute that
no query tells apart become one (the workload-based partition of Zhang, McKenna, Kotsogiannis, Hay,
Machanavajjhala, Miklau 2018, "EKTELO: a framework for defining differentially-private
computations"). Both lose nothing: the answers of a histogram depend on its sums over such cells
only, and every non-negative table of sums is the sum of some non-negative histogram. Cells where no
record can be are never merged with others, and ``possible`` leaves them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.refine.reconstruct import Fit
from sfumato.refine.refine_limits import LIMITS
from sfumato.solve.effort import ADDED_UP, spend
from sfumato.types import Array, Integers, Mask, Names
from sfumato.workload.constraints import Constraints, Published
from sfumato.workload.queries import QuerySet, check_entries
from sfumato.workload.terms import Term

if TYPE_CHECKING:
    from sfumato.solve.kernels import YatesSums

from sfumato.workload.queries import joint_classes

__all__ = [
    "Grid",
    "Quadratic",
    "alike",
    "check_exact_combinations",
    "inverse_covariance",
    "long_gram",
]


# The grid of merged cells

Axes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Grid:
    """The merged cells of some attributes, and the moves between cells and margins.

    ``representatives[i]`` are the cells of attribute i that stand for their classes, the first cell
    of each; ``published`` are the published tables that can matter here.

    Margins over many sets of attributes are summed out one attribute at a time, sets that share the
    rest together, so all pairs of d attributes cost a few passes over the cells instead of d^2 / 2
    (Yates 1937, "The design and analysis of factorial experiments").
    """

    domain: Domain
    names: Names
    representatives: tuple[Integers, ...]
    constraints: Constraints | None = None
    published: tuple[Published, ...] = ()

    @classmethod
    def of(cls, fit: Fit, constraints: Constraints | None = None) -> Grid:
        """The merged cells of all attributes that some part or published table reads."""
        read = frozenset(n for s in fit.sets for n in s)
        tables = () if constraints is None else constraints.published_for(read)
        names = fit.domain.in_order(read.union(*(t.names for t in tables)))
        classes = (alike(fit, name, constraints) for name in names)
        representatives = tuple(
            np.unique(c, return_index=True)[1].astype(np.int64) for c in classes
        )
        return cls(fit.domain, names, representatives, constraints, tables)

    @cached_property
    def possible(self) -> Mask | None:
        """Which merged cells may carry weight, None if all of them.

        Not those of impossible combinations, nor those of a published count of 0.
        """
        if self.constraints is None:
            return None
        out = self.constraints.possible(self.names, self.representatives)
        for table in self.published:
            axes = self.axes(table.names)
            is_held = table.values[np.ix_(*(self.representatives[a] for a in axes))] > 0
            out &= is_held.reshape([k if a in axes else 1 for a, k in enumerate(self.shape)])
        return None if out.all() else out.reshape(-1)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of merged cells of each attribute."""
        return tuple(len(k) for k in self.representatives)

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

    @cached_property
    def _programs(self) -> dict[tuple[Axes, ...], YatesSums]:
        return {}

    def _compiled(self, sets: Sequence[Axes]) -> YatesSums | None:
        """The sums over many sets of many cells, planned once; None for few, without numba."""
        if len(sets) * self.size < LIMITS.compiled_sums:
            return None
        key = tuple(sets)
        if key not in self._programs:
            from sfumato.solve.kernels import YatesSums

            self._programs[key] = YatesSums(self.shape, key)
        return self._programs[key]

    def margins(self, table: Array, sets: Sequence[Axes]) -> list[Array]:
        """The sums of a table over all but the attributes of each set, flat."""
        compiled = self._compiled(sets)
        if compiled is not None:
            return np.split(compiled.margins(table), compiled.ends[1:-1])
        wide = list(dict.fromkeys(self._wide(axes) for axes in sets))
        sizes = tuple(self.cells(bundle) for bundle in self._bundles)
        sums: list[Array] = [np.empty(0)] * len(wide)
        _sum_out(table.reshape(-1, 1), sizes, list(enumerate(wide)), sums)
        at = dict(zip(wide, sums, strict=True))
        out = []
        for axes in sets:
            held, _ = self._inside(axes)
            whole = at[self._wide(axes)].reshape([self.shape[a] for a in held])
            rest = tuple(i for i, a in enumerate(held) if a not in axes)
            out.append(np.asarray(whole.sum(axis=rest) if rest else whole).reshape(-1))
        return out

    def spread(self, tables: Sequence[tuple[Axes, Array]]) -> Array:
        """For every cell the sum of its entries in all tables: the adjoint of ``margins``."""
        compiled = self._compiled([axes for axes, _ in tables])
        if compiled is not None:
            return compiled.spread(np.concatenate([t.reshape(-1) for _, t in tables]))
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
        indices = np.unravel_index(cells, self.shape)
        return np.column_stack([k[c] for k, c in zip(self.representatives, indices, strict=True)])


def _sum_out(
    table: Array, shape: tuple[int, ...], sets: list[tuple[int, Axes]], out: list[Array]
) -> None:
    """Sum the last attribute out for the sets without it; keep it aside for those with it."""
    if not any(axes for _, axes in sets):
        total = table.sum(axis=0) if len(table) > 1 else table[0]
        for i, _ in sets:
            out[i] = total
        return
    last, size = len(shape) - 1, shape[-1]
    cut = table.reshape(-1, size, table.shape[1])
    without = [(i, axes) for i, axes in sets if last not in axes]
    if without:
        _sum_out(_summed(cut), shape[:-1], without, out)
    held = [(i, axes[:-1]) for i, axes in sets if last in axes]
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
        linked = constraints.labels()
        labels += [linked[name]] if name in linked else []
        if any(name in table.names for table in constraints.published):
            labels.append(np.arange(fit.domain[name].size))
    return joint_classes(labels)


def _labels(term: Term, name: str) -> Integers:
    """Cells of an attribute with one label have the same coefficients in every query."""
    classes = term.cell_classes(name)
    return np.arange(term.domain[name].size) if classes is None else classes


# Terms on merged cells


@dataclass(frozen=True, eq=False)
class Reduced:
    """A term on the flat table of merged cells, ``cells`` of each of its attributes.

    Every class is stood for by one of its cells, so a column of the reduced term is a column of the
    term. Nothing of the size of the unmerged table is built for products, conditions and matrices.
    """

    term: Term
    cells: tuple[Integers, ...]

    @classmethod
    def of(cls, term: Term, grid: Grid) -> Reduced:
        """The term on the cells of a grid."""
        return cls(term, tuple(grid.representatives[a] for a in grid.axes(term.attributes)))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The merged cells of each attribute."""
        return tuple(len(k) for k in self.cells)

    @cached_property
    def is_whole(self) -> bool:
        """Whether no cells are merged."""
        return self.shape == self.term.shape

    @cached_property
    def _is_table(self) -> bool:
        """Whether the answers are the cells themselves."""
        return self.is_whole and self.term.is_table

    @cached_property
    def flat(self) -> Integers:
        """The cells of the representatives as positions in the whole table."""
        out = np.zeros(1, dtype=np.int64)
        for size, cells in zip(self.term.shape, self.cells, strict=True):
            out = (out[:, None] * size + cells[None, :]).reshape(-1)
        return out

    def apply(self, table: Array) -> Array:
        """The answers on a flat merged table."""
        if self._is_table:
            return np.array(table, dtype=np.float64)
        cut = table.reshape(self.shape)
        if self.is_whole:
            return np.asarray(self.term.apply(cut), dtype=np.float64)
        return self.term.apply_at(self.cells, cut)

    def adjoint(self, y: Array) -> Array:
        """The transposed map, to a flat merged table."""
        if self._is_table:
            return np.array(y, dtype=np.float64)
        if self.is_whole:
            return np.asarray(self.term.adjoint(y), dtype=np.float64).reshape(-1)
        return self.term.adjoint_at(self.cells, y).reshape(-1)

    def gram_apply(self, table: Array) -> Array:
        """``F'F`` on a flat merged table."""
        return self.term.gram_apply_at(self.cells, table.reshape(self.shape)).reshape(-1)

    def gram(self) -> Array:
        """``F'F`` as a matrix over the merged cells."""
        if self.grams is not None:
            out: Array = np.ones((1, 1))
            for gram in self.grams or ():
                out = np.asarray(np.kron(out, gram))
            return out
        dense = self.matrix()
        return dense.T @ dense

    @cached_property
    def grams(self) -> tuple[Array, ...] | None:
        """``F'F`` of a product by attribute, where those are small."""
        product = self.term.as_product()
        if product is None or max(self.shape, default=0) > LIMITS.attribute_gram_cells:
            return None
        pairs = zip(product.factors, self.cells, strict=True)
        return tuple(q.gram()[np.ix_(cells, cells)] for (_, q), cells in pairs)

    def gram_entries(self, rows: Integers, columns: Integers) -> Array:
        """Entries of ``F'F`` between merged cells."""
        if self.grams is not None:
            out = np.ones((len(rows), len(columns)))
            at, to = np.unravel_index(rows, self.shape), np.unravel_index(columns, self.shape)
            for gram, i, j in zip(self.grams, at, to, strict=True):
                out *= gram[np.ix_(i, j)]
            return out
        product = self.term.as_product()
        out = np.ones((len(rows), len(columns)))
        if product is not None:
            at, to = np.unravel_index(rows, self.shape), np.unravel_index(columns, self.shape)
            factors = zip(product.factors, self.cells, at, to, strict=True)
            for (_, queries), cells, i, j in factors:
                out *= long_gram(queries, cells[i], cells[j])
            return out
        for row in np.unique(rows):
            out[rows == row] = self.gram_apply(_unit(len(self.flat), row))[columns]
        return out

    def matrix(self) -> Array:
        """The coefficients: one row per query, one column per merged cell."""
        cells = len(self.flat)
        return np.column_stack([self.apply(_unit(cells, c)) for c in range(cells)])

    @cached_property
    def is_tall(self) -> bool:
        """Whether its coefficients are stored, and few enough to be multiplied with each other."""
        work = float(self.term.rows) * len(self.flat) ** 2
        return work <= LIMITS.gram_multiplications and self.term.stored_entries() is not None

    def tall_gram(self, weights: Array) -> Array:
        """``F'WF`` from stored coefficients, some queries at a time."""
        entries, cells = self.term.stored_entries(), self.term.column_of_cell()[self.flat]
        if entries is None:
            raise TypeError("the coefficients are not stored")
        out = np.zeros((len(cells), len(cells)))
        step = max(1, LIMITS.gram_coefficients // max(1, len(cells)))
        for start in range(0, self.term.rows, step):
            part = entries[start : start + step][:, cells]
            dense = np.asarray(part if isinstance(part, np.ndarray) else part.toarray())
            chunk = dense.astype(np.float64)
            out += chunk.T @ (weights[start : start + step, None] * chunk)
        return np.ldexp(out, -2 * self.term.fraction_bits)

    def column_sums(self, rows: npt.NDArray[np.bool_]) -> Array:
        """For each merged cell a sum of ``|q|`` over the chosen rows, or a larger one over all."""
        if self.term.is_nonnegative or not rows.any():
            return self.adjoint(rows.astype(np.float64))
        if self.term.rows * len(self.flat) <= LIMITS.coefficients_inspected:
            return np.asarray(np.abs(self.matrix())[rows].sum(axis=0))
        return self._column_powers(1)

    def column_bound(self, sizes: Array) -> Array:
        """For each merged cell a bound on ``sum_q |q| sizes_q``, sizes of 0 or more."""
        if self.term.is_nonnegative:
            return self.adjoint(sizes)
        each = float(sizes.max(initial=0.0)) * self._column_powers(1)
        return np.minimum(each, float(np.linalg.norm(sizes)) * np.sqrt(self._column_powers(2)))

    def _column_powers(self, p: int) -> Array:
        """For each merged cell the sum of ``|q|^p`` over all rows."""
        out = np.ones((1,) * len(self.cells))
        for names, powers in self.term.column_factors(p):
            at = [self.term.attributes.index(n) for n in names]
            cut = powers[np.ix_(*(self.cells[i] for i in at))] if at else powers
            shape = [len(k) if i in at else 1 for i, k in enumerate(self.cells)]
            out = out * cut.reshape(shape)
        return np.broadcast_to(out, self.shape).reshape(-1)


def _unit(size: int, place: int) -> Array:
    out = np.zeros(size)
    out[place] = 1.0
    return out


# The quadratic function


def long_gram(queries: QuerySet, rows: Integers, columns: Integers) -> Array:
    """Entries of ``Q'Q`` of a long attribute, some of its cells at a time."""
    own, which = np.unique(rows, return_inverse=True)
    out = np.empty((len(own), len(columns)))
    step = max(1, LIMITS.gram_coefficients // queries.size)
    for start in range(0, len(own), step):
        part = own[start : start + step]
        units = np.zeros((queries.size, len(part)))
        units[part, np.arange(len(part))] = 1.0
        out[start : start + step] = np.asarray(queries.gram_apply(units))[columns].T
    return out[which.reshape(-1)]


@dataclass(frozen=True, eq=False)
class _GramBlock:
    """The Gram matrix of one set: its diagonal, the matrix, or neither (operators then)."""

    parts: tuple[tuple[Reduced, Array], ...]
    diagonal: Array | None
    dense: Array | None

    @classmethod
    def of(cls, parts: Sequence[tuple[Reduced, Array]], cells: int) -> _GramBlock:
        """The Gram matrix of weighted terms in the simplest form they allow."""
        if all(r.term.is_table for r, _ in parts):
            return cls(tuple(parts), np.sum([w for _, w in parts], axis=0), None)
        small = cells <= LIMITS.set_gram_cells and all(
            _is_simple(r, w) or r.term.rows * cells <= LIMITS.gram_coefficients or r.is_tall
            for r, w in parts
        )
        small |= cells <= LIMITS.product_gram_cells and all(_is_simple(r, w) for r, w in parts)
        dense = np.sum([_dense_gram(r, w) for r, w in parts], axis=0) if small else None
        return cls(tuple(parts), None, dense)

    def apply(self, t: Array) -> Array:
        """``V t``."""
        if self.diagonal is not None:
            return self.diagonal * t
        if self.dense is not None and len(t) <= LIMITS.set_gram_cells:
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
                column = reduced.adjoint(weights * reduced.apply(unit))
                out[rows == row] += column[columns]
        return out


@dataclass(frozen=True, eq=False)
class Quadratic:
    """The function f of a fit over a grid, and the moves between cells, margins and answers.

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
                is_small = len(block.dense) <= LIMITS.set_gram_cells
                out.append((at, (_root if is_small else _grouped_root)(block.dense)))
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
    def unreachable(self) -> float:
        """A part of f that no histogram can lower: of the answers beyond the span of the queries.

        With ``V = L L'`` it is ``1/2 (|y|_W^2 - |L^+ c|^2)``, the least value without signs and
        total; 0 where L is unknown. Of many noisy answers to queries on few cells it is nearly all.
        """
        if self.roots is None:
            return 0.0
        inside = 0.0
        for at, root in self.roots:
            # The columns of L are orthogonal (``_root``).
            squares = root**2 if root.ndim == 1 else (root**2).sum(axis=0)
            along = root * self.linear[at] if root.ndim == 1 else root.T @ self.linear[at]
            used = squares > LIMITS.singular_variance * float(squares.max(initial=0.0))
            inside += float(((along[used] / squares[used]) ** 2).sum())
        return max(0.0, 0.5 * (self.norm(self.values) ** 2 - inside))

    @cached_property
    def values(self) -> Array:
        """``y``: the noisy answers to all queries."""
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
    def linear(self) -> Array:
        """``c = F'W y``, stacked."""
        return self.adjoint(self.weigh(self.values))

    @cached_property
    def _blocks(self) -> tuple[_GramBlock, ...] | None:
        """Nothing where one covariance joins the sets."""
        if self.precision is not None:
            return None
        by_set: list[list[tuple[Reduced, Array]]] = [[] for _ in self.sets]
        for reduced, part, s in zip(self.reduced, self.fit.parts, self._set_of, strict=True):
            by_set[s].append((reduced, part.weights))
        pairs = zip(by_set, self.sets, strict=True)
        return tuple(_GramBlock.of(parts, self.grid.cells(axes)) for parts, axes in pairs)

    @cached_property
    def _joint(self) -> Array | None:
        """V as one matrix, for a joint covariance on few margins."""
        if self.ends[-1] > LIMITS.joint_gram_margins:
            return None
        return np.array([self._through_answers(row) for row in np.eye(self.ends[-1])])

    def _through_answers(self, t: Array) -> Array:
        return self.adjoint(self.weigh(self.answers(t)))

    def curve(self, t: Array) -> Array:
        """``V t``."""
        spend(ADDED_UP * self.length)
        if self._blocks is None:
            return self._through_answers(t) if self._joint is None else self._joint @ t
        if len(self._diagonal[0]) == len(self._blocks):  # one product for all tables
            return np.asarray(self._diagonal[1] * t)
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
        margins = np.bincount(places.reshape(-1), spread, minlength=self.ends[-1])
        return np.asarray(margins, dtype=np.float64)

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
        """The quadratic of the same queries with other values ``y``; Gram matrices are shared."""
        cuts = np.cumsum([p.term.rows for p in self.fit.parts])[:-1]
        pairs = zip(self.fit.parts, np.split(values, cuts), strict=True)
        parts = tuple(replace(p, values=v) for p, v in pairs)
        out = Quadratic(replace(self.fit, parts=parts), self.grid, self.precision)
        shared = ("reduced", "_blocks", "_joint", "_diagonal", "is_seen")
        vars(out).update({k: v for k, v in vars(self).items() if k in shared})
        return out

    @cached_property
    def is_seen(self) -> npt.NDArray[np.bool_]:
        """Whether some query of positive weight has a coefficient on each possible cell."""
        out = np.zeros(self.ends[-1])
        for reduced, part, s in zip(self.reduced, self.fit.parts, self._set_of, strict=True):
            out[self.ends[s] : self.ends[s + 1]] += reduced.column_sums(part.weights > 0)
        seen = self.spread(out) > 0
        return seen if self.grid.possible is None else seen & self.grid.possible

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
            out[self.ends[s] : self.ends[s + 1]] += reduced.column_bound(
                sizes[start : start + rows]
            )
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
        blocks = self._blocks or ()
        sets = [s for s, block in enumerate(blocks) if block.diagonal is not None]
        weights = np.zeros(self.ends[-1])
        for s in sets:
            weights[self.ends[s] : self.ends[s + 1]] = blocks[s].diagonal
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
    """L with orthogonal columns and ``L L'`` the matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _grouped_root(matrix: Array) -> Array:
    """The same for a large matrix, group by group of cells that have no entries with others."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    _, group = connected_components(csr_array(matrix), directed=False)
    out = np.zeros_like(matrix)
    order = np.argsort(group, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        if len(at) == 1:
            out[at[0], at[0]] = sqrt(max(0.0, float(matrix[at[0], at[0]])))
        else:
            out[np.ix_(at, at)] = _root(matrix[np.ix_(at, at)])
    return out


def _dense_gram(reduced: Reduced, weights: Array) -> Array:
    if _is_simple(reduced, weights):
        return np.asarray(weights[0] * reduced.gram())
    if reduced.term.rows * len(reduced.flat) > LIMITS.gram_coefficients:
        return reduced.tall_gram(weights)
    dense = reduced.matrix()
    return np.asarray(dense.T @ (weights[:, None] * dense))


def _is_simple(reduced: Reduced, weights: Array) -> bool:
    """Whether the Gram matrix follows from those of the attributes."""
    return reduced.term.as_product() is not None and _is_even(weights)


def _is_even(weights: Array) -> bool:
    return bool((weights == weights[0]).all())


# The metric of a covariance


def inverse_covariance(covariance: Array, queries: int) -> tuple[Array, Array]:
    """The (pseudo-)inverse of a covariance and, as columns, the combinations without noise.

    With normal noise of covariance S the projection in the norm ``|x|^2 = x'S^-1 x`` is the most
    likely answer that some data set has (Gauss, Markov: without the constraints it is least
    squares). Answers made from fewer measurements than there are queries have a singular S: some
    combinations of them carry no noise. Those say nothing when they vanish for every data set, as
    they do when the queries are as dependent as their answers; the pseudo-inverse is then the
    metric. When they fix the answers beyond that, ``check_exact_combinations`` refuses them.
    """
    matrix = np.asarray(covariance)
    if matrix.shape != (queries, queries):
        raise WorkloadError(
            f"a covariance of {queries:,} answers has {queries:,} rows and columns, got an array "
            f"of shape {matrix.shape}"
        )
    check_entries(queries * queries, f"a covariance of {queries:,} answers")
    if matrix.dtype.kind not in "iuf" or not np.isfinite(matrix).all():
        raise WorkloadError("a covariance holds finite numbers only")
    exact = np.asarray(matrix, dtype=np.float64)
    scale = float(np.abs(exact).max(initial=0.0))
    if scale == 0:
        raise WorkloadError(
            "a covariance of zeros says that the answers are exact; they need no projection"
        )
    if float(np.abs(exact - exact.T).max()) > 1e-8 * scale:
        raise WorkloadError("a covariance is symmetric, this one is not; give (S + S') / 2")
    values, vectors = np.linalg.eigh((exact + exact.T) / 2)
    if values[0] < -1e-8 * values[-1]:
        raise WorkloadError(
            f"a covariance has no negative eigenvalue, this one has {values[0]:.3g}; its greatest "
            f"is {values[-1]:.3g}"
        )
    noisy = values > LIMITS.singular_variance * values[-1]
    half = vectors[:, noisy] / np.sqrt(values[noisy])
    return half @ half.T, vectors[:, ~noisy]


def check_exact_combinations(q: Quadratic, exact: Array, total: float | None) -> None:
    """Refuse combinations without noise unless all data sets (of this total) agree with them.

    Three combinations of them with coefficients in general position stand for all: the others
    vanish where these do, but for coefficients of measure zero.
    """
    if not exact.shape[1]:
        return
    joint = len(exact)
    answers = q.values[:joint]
    scale = max(float(np.abs(answers).max(initial=0.0)), total or 0.0)
    for turn in (1.0, 2.0, 3.0):
        mixed = exact @ np.cos(turn + np.sqrt(2.0) * turn * np.arange(exact.shape[1]) ** 2)
        wide = np.concatenate([mixed, np.zeros(len(q.values) - joint)])
        columns = q.spread(q.adjoint(wide))
        columns = columns if q.grid.possible is None else columns[q.grid.possible]
        size = float(np.abs(mixed).sum())
        is_even = float(np.ptp(columns)) <= LIMITS.exact_combination_error * size
        is_zero = float(np.abs(columns).max()) <= LIMITS.exact_combination_error * size
        reached = float(columns.mean()) * (total or 0.0)
        limit = LIMITS.exact_combination_error * size * max(scale, 1e-300)
        is_met = abs(float(mixed @ answers) - reached) <= limit
        if not (is_met and (is_zero or (is_even and total is not None))):
            raise WorkloadError(
                "the covariance is singular: some combination of the answers is said to be exact, "
                "but data sets do not agree on it; add the variance that it really has, or leave "
                "out queries that follow from others"
            )
