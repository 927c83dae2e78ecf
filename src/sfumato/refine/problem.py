# SPDX-License-Identifier: Apache-2.0
"""A fit as a quadratic function of the margins of a histogram, over the cells of a grid.

    f(h) = 1/2 t'Vt - c't + 1/2 |y|_W^2,       t = the margins of h over every asked set, stacked,

with ``V`` one block per set (the Gram matrix of its queries), or one matrix over all of them where
the answers have a joint covariance. Solvers see ``V`` and ``c`` only, so their cost does not
depend on the number of queries; certificates are computed from the answers themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, sqrt

import numpy as np
import numpy.typing as npt

from sfumato.errors import WorkloadError
from sfumato.refine.grid import Axes, Grid
from sfumato.refine.reconstruct import Fit
from sfumato.refine.refine_limits import LIMITS
from sfumato.solve.effort import ADDED_UP, spend
from sfumato.types import Array, Integers
from sfumato.workload.queries import check_entries
from sfumato.workload.terms import Term

__all__ = [
    "Bound",
    "Quadratic",
    "Reduced",
    "check_exact_combinations",
    "inverse_covariance",
    "known_total",
    "unknown_total",
]


# --------------------
# Terms on merged cells: the same queries on the flat table of the classes of a grid.
#
# Every class is stood for by one of its cells, so a column of the reduced term is a column of the
# term. Nothing of the size of the unmerged table is built for products, conditions and matrices.


@dataclass(frozen=True, eq=False)
class Reduced:
    """A term over the cells ``kept`` of each of its attributes."""

    term: Term
    kept: tuple[Integers, ...]

    @classmethod
    def of(cls, term: Term, grid: Grid) -> Reduced:
        """The term on the cells of a grid."""
        return cls(term, tuple(grid.kept[a] for a in grid.axes(term.attributes)))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The merged cells of each attribute."""
        return tuple(len(k) for k in self.kept)

    @cached_property
    def is_whole(self) -> bool:
        """Whether no cells are merged."""
        return self.shape == self.term.shape

    @cached_property
    def _flat(self) -> Integers:
        """The kept cells as positions in the whole table."""
        out = np.zeros(1, dtype=np.int64)
        for size, kept in zip(self.term.shape, self.kept, strict=True):
            out = (out[:, None] * size + kept[None, :]).reshape(-1)
        return out

    def apply(self, table: Array) -> Array:
        """The answers on a flat merged table."""
        cut = table.reshape(self.shape)
        if self.is_whole:
            return np.asarray(self.term.apply(cut), dtype=np.float64)
        return self.term.apply_at(self.kept, cut)

    def adjoint(self, y: Array) -> Array:
        """The transposed map, to a flat merged table."""
        if self.is_whole:
            return np.asarray(self.term.adjoint(y), dtype=np.float64).reshape(-1)
        return self.term.adjoint_at(self.kept, y).reshape(-1)

    def gram_apply(self, table: Array) -> Array:
        """``F'F`` on a flat merged table."""
        return self.term.gram_apply_at(self.kept, table.reshape(self.shape)).reshape(-1)

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
        pairs = zip(product.factors, self.kept, strict=True)
        return tuple(q.gram()[np.ix_(kept, kept)] for (_, q), kept in pairs)

    def gram_entries(self, rows: Integers, columns: Integers) -> Array:
        """Entries of ``F'F`` between merged cells."""
        if self.grams is not None:
            out = np.ones((len(rows), len(columns)))
            at, to = np.unravel_index(rows, self.shape), np.unravel_index(columns, self.shape)
            for gram, i, j in zip(self.grams, at, to, strict=True):
                out *= gram[np.ix_(i, j)]
            return out
        out = np.empty((len(rows), len(columns)))
        for row in np.unique(rows):
            out[rows == row] = self.gram_apply(_unit(len(self._flat), row))[columns]
        return out

    def matrix(self) -> Array:
        """The coefficients: one row per query, one column per merged cell."""
        cells = len(self._flat)
        return np.column_stack([self.apply(_unit(cells, c)) for c in range(cells)])

    def column_sums(self, rows: npt.NDArray[np.bool_]) -> Array:
        """For each merged cell a sum of ``|q|`` over the chosen rows, or a larger one over all."""
        if self.term.is_nonnegative or not rows.any():
            return self.adjoint(rows.astype(np.float64))
        if self.term.rows * len(self._flat) <= LIMITS.coefficients_inspected:
            return np.asarray(np.abs(self.matrix())[rows].sum(axis=0))
        return self._column_powers(1)

    def most(self, sizes: Array) -> Array:
        """For each merged cell a bound on ``sum_q |q| sizes_q``, sizes of 0 or more."""
        if self.term.is_nonnegative:
            return self.adjoint(sizes)
        each = float(sizes.max(initial=0.0)) * self._column_powers(1)
        return np.minimum(each, float(np.linalg.norm(sizes)) * np.sqrt(self._column_powers(2)))

    def _column_powers(self, p: int) -> Array:
        """For each merged cell the sum of ``|q|^p`` over all rows."""
        out = np.ones((1,) * len(self.kept))
        for names, powers in self.term.column_factors(p):
            at = [self.term.attributes.index(n) for n in names]
            cut = powers[np.ix_(*(self.kept[i] for i in at))] if at else powers
            shape = [len(k) if i in at else 1 for i, k in enumerate(self.kept)]
            out = out * cut.reshape(shape)
        return np.broadcast_to(out, self.shape).reshape(-1)


def _unit(size: int, place: int) -> Array:
    out = np.zeros(size)
    out[place] = 1.0
    return out


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
        small = cells <= LIMITS.set_gram_cells and all(
            _is_simple(r, w) or r.term.rows * cells <= LIMITS.gram_coefficients for r, w in parts
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


# --------------------
# Distances that know the noise: the inverse of the covariance of the answers.
#
# With normal noise of covariance S the projection in the norm ``|x|^2 = x'S^-1 x`` is the most
# likely answer that some data set has (Gauss, Markov: without the constraints it is least
# squares).
#
# Answers made from fewer measurements than there are queries have a singular S: some combinations
# of them carry no noise. Those say nothing when they vanish for every data set, as they do when
# the queries are as dependent as their answers; the pseudo-inverse is then the metric. When they
# fix the answers beyond that, they are refused.


def inverse_covariance(covariance: Array, queries: int) -> tuple[Array, Array]:
    """The (pseudo-)inverse and, as columns, the combinations without noise."""
    given = np.asarray(covariance)
    if given.shape != (queries, queries):
        raise WorkloadError(
            f"a covariance of {queries:,} answers has {queries:,} rows and columns, got an array "
            f"of shape {given.shape}"
        )
    check_entries(queries * queries, f"a covariance of {queries:,} answers")
    if given.dtype.kind not in "iuf" or not np.isfinite(given).all():
        raise WorkloadError("a covariance holds finite numbers only")
    exact = np.asarray(given, dtype=np.float64)
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
    kept = values > LIMITS.singular_variance * values[-1]
    half = vectors[:, kept] / np.sqrt(values[kept])
    return half @ half.T, vectors[:, ~kept]


def check_exact_combinations(q: Quadratic, exact: Array, total: float | None) -> None:
    """Refuse combinations without noise unless all data sets (of this total) agree with them.

    Three combinations of them with coefficients in general position stand for all: the others
    vanish where these do, but for coefficients of measure zero.
    """
    if not exact.shape[1]:
        return
    joint = len(exact)
    given = q.values[:joint]
    scale = max(float(np.abs(given).max(initial=0.0)), total or 0.0)
    for turn in (1.0, 2.0, 3.0):
        mixed = exact @ np.cos(turn + np.sqrt(2.0) * turn * np.arange(exact.shape[1]) ** 2)
        wide = np.concatenate([mixed, np.zeros(len(q.values) - joint)])
        columns = q.spread(q.adjoint(wide))
        columns = columns if q.grid.possible is None else columns[q.grid.possible]
        size = float(np.abs(mixed).sum())
        is_even = float(np.ptp(columns)) <= LIMITS.exact_combination_error * size
        is_zero = float(np.abs(columns).max()) <= LIMITS.exact_combination_error * size
        reached = float(columns.mean()) * (total or 0.0)
        is_met = abs(float(mixed @ given) - reached) <= LIMITS.exact_combination_error * size * max(
            scale, 1e-300
        )
        if not (is_met and (is_zero or (is_even and total is not None))):
            raise WorkloadError(
                "the covariance is singular: some combination of the answers is said to be exact, "
                "but data sets do not agree on it; add the variance that it really has, or leave "
                "out queries that follow from others"
            )


# --------------------
# How far from the projection an estimate can be, whatever solver found it.
#
# Let ``g = F'W(F h - y)``, ``D = |F h - p|_W`` with p the projection ``F h*``. The parabola f has
#
# |   f(h*) = f(h) + <g, h* - h> + D^2 / 2     and     f(h) - f(h*) >= D^2 / 2,
#
# the second because h* is optimal. Together ``D^2 <= <g, h - h*>`` and ``f(h) - f(h*) <= <g, h -
# h*>``.
#
# *Known total n.* ``<g, h - h*> <= <g, h> - n min_x g_x``: the gap of Frank, Wolfe 1956, "An
# algorithm for quadratic programming" (Jaggi 2013, "Revisiting Frank-Wolfe"). So ``D <=
#   sqrt(gap)``.
#
# *Unknown total.* Let q be a vector with ``<f_x, q>_W >= 1`` for every column ``f_x`` that is not
# zero and ``e = max(0, -min_x g_x)``. Some optimal h* has no weight on zero columns, so its total
#   is
# at most ``<q, F h*>_W = <q, F h>_W + <q, p - F h>_W <= <q, F h>_W + |q|_W D``. Hence
#
# |   D^2 <= <g, h - h*> <= a + b D     with a = max(0, <g, h> + e <q, F h>_W), b = e |q|_W,
#
# so ``D <= R = (b + sqrt(b^2 + 4 a)) / 2`` and ``f(h) - f(h*) <= a + b R = R^2``: R^2 is the gap
# here. The shortest q is ``p0 / |p0|^2`` for the point p0 of least norm in the hull of the
# columns, which is itself a projection (of y = 0 with total 1); there is none when the hull holds
# zero, as when differences are asked and nothing else. Then nothing is certified unless g >= 0:
# the gap is infinite.
#
# *Floats.* A slope is a sum of numbers up to ``s = max_x sum_q |F_qx| (|W| |y|)_q``, so it is
#   known
# to a few ulps of s; that is a part of the gap of the same few ulps of ``n s``, or of ``|q|_W
#   |y|_W
# s`` where n is unknown (the projection is no longer than y). Gaps below this ``blur`` are noise.


@dataclass(frozen=True, eq=False)
class Bound:
    """What turns slopes into a gap: the total n, or the vector q by its slopes and its length."""

    total: float | None
    lift: Array | None = None
    length: float = inf

    def gap(self, least: float, slope: float, t: Array) -> float:
        """The gap, from ``min g``, ``<g, h>`` and the margins of h."""
        if self.total is not None:
            return max(0.0, slope - self.total * least)
        e = max(0.0, -least)
        if e == 0:
            return max(0.0, slope)
        if self.lift is None:
            return inf
        a, b = max(0.0, slope + e * float(self.lift @ t)), e * self.length
        return ((b + sqrt(b * b + 4 * a)) / 2) ** 2

    def blur(self, q: Quadratic) -> float:
        """The gap that floats cannot tell from none."""
        if self.total is not None:
            return LIMITS.slope_rounding * self.total * q.magnitude
        least = 0.5 * q.norm(q.values) ** 2
        return LIMITS.slope_rounding * (
            least if self.lift is None else self.length * q.norm(q.values) * q.magnitude
        )


def known_total(total: float) -> Bound:
    """For histograms of a public number of records."""
    return Bound(total)


def unknown_total(q: Quadratic, least_norm: Callable[[Quadratic], Array]) -> Bound:
    """For histograms of any size; ``least_norm`` finds the point p0 of a quadratic with y = 0.

    A group of queries of which every cell is in one or more, such as a table, gives a q at once:
    the reciprocal weights; so does one query that has a coefficient on every cell, such as the
    total. The shortest of those is taken if there is one.
    """
    best = Bound(None)
    starts = np.cumsum([0, *(p.term.rows for p in q.fit.parts)])
    for i in sorted(range(len(q.fit.parts)), key=lambda i: q.fit.parts[i].term.rows)[
        : LIMITS.groups_tried_for_length
    ]:
        part, rows = q.fit.parts[i], np.arange(starts[i], starts[i + 1])
        if (part.weights > 0).all() and part.term.is_nonnegative and q.precision is None:
            pointers = [(rows, 1 / part.weights)]
            reach = part.term.coefficient_bounds()[0] * np.sqrt(part.weights)
            if reach.max() > 0:
                pointers.append((rows[[reach.argmax()]], np.ones(1)))
            for at, values in pointers:
                pointer = np.zeros(len(q.values))
                pointer[at] = values
                best = min(best, _pointing(q, pointer), key=lambda b: b.length)
    if best.lift is None:
        best = _pointing(q, least_norm(q))
    return best


def _pointing(q: Quadratic, pointer: Array) -> Bound:
    """The bound from a vector, scaled so that its slope is 1 or more on every column."""
    lift = q.adjoint(q.weigh(pointer))
    slopes = q.spread(lift)[q.is_seen]
    least = float(slopes.min()) if slopes.size else 1.0
    length = q.norm(pointer)
    if least <= 1e-9 * float(np.abs(slopes).max(initial=0.0)) or least <= 1e-12 * length:
        return Bound(None)
    return Bound(None, lift / least, length / least)
