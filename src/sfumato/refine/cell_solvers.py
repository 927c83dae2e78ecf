# SPDX-License-Identifier: Apache-2.0
"""Solvers of a projection over cells that can be listed, and the certificate of their results.

    minimise f(h) = 1/2 h'Qh - c'h   over h >= 0   (and 1'h = n),     Q = S'VS,

S the margins of a histogram over the sets of the queries, V their Gram matrix (``problem``). Three
solvers return weighted cells; ``cells.nearest`` says which is used when:

* ``fit_support``: few cells in use; those of minimum slope come in one by one.
* ``fit_dense``: all cells, by accelerated gradient steps.
* ``fit_interior``: all cells, by Newton steps in the coordinates of the queries.

``GapBound`` turns the slopes at any histogram into a proved gap to the minimum of f, whatever
solver it came from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, sqrt
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sfumato.refine.problem import Axes, Grid, Quadratic
from sfumato.refine.refine_limits import LIMITS
from sfumato.solve.effort import spend
from sfumato.solve.nonnegative import nonnegative_least_squares, project_to_simplex
from sfumato.solve.tridiagonal import inverse_gram
from sfumato.types import Array, Integers, Mask
from sfumato.workload.queries import QuerySet

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = [
    "Chains",
    "GapBound",
    "Margins",
    "Solve",
    "System",
    "WeightedCells",
    "fit_dense",
    "fit_interior",
    "fit_support",
    "known_total",
    "newton_system",
    "unknown_total",
]


# The certificate


@dataclass(frozen=True, eq=False)
class GapBound:
    r"""What turns slopes into a gap: the total n, or the vector q by its slopes and its length.

    Let ``g = F'W(F h - y)``, ``D = |F h - p|_W`` with p the projection ``F h*``. The parabola f has

        f(h*) = f(h) + <g, h* - h> + D^2 / 2     and     f(h) - f(h*) >= D^2 / 2,

    the second because h* is optimal. Together ``D^2 <= <g, h - h*>`` and
    ``f(h) - f(h*) <= <g, h - h*>``.

    *Known total n.* ``<g, h - h*> <= <g, h> - n min_x g_x``: the gap of Frank, Wolfe 1956, "An
    algorithm for quadratic programming" (Jaggi 2013, "Revisiting Frank-Wolfe"). So
    ``D <= sqrt(gap)``.

    *Unknown total.* Let q be a vector with ``<f_x, q>_W >= 1`` for every column ``f_x`` that is not
    zero and ``e = max(0, -min_x g_x)``. Some optimal h* has no weight on zero columns, so its total
    is at most ``<q, F h*>_W = <q, F h>_W + <q, p - F h>_W <= <q, F h>_W + |q|_W D``. Hence

        D^2 <= <g, h - h*> <= a + b D     with a = max(0, <g, h> + e <q, F h>_W), b = e |q|_W,

    so ``D <= R = (b + sqrt(b^2 + 4 a)) / 2`` and ``f(h) - f(h*) <= a + b R = R^2``: R^2 is the gap
    here. The shortest q is ``p0 / |p0|^2`` for the point p0 of least norm in the hull of the
    columns, which is itself a projection (of y = 0 with total 1); there is none when the hull holds
    zero, as when differences are asked and nothing else. Then nothing is certified unless g >= 0:
    the gap is infinite.

    *Floats.* A slope is a sum of numbers up to ``s = max_x sum_q |F_qx| (|W| |y|)_q``, so it is
    known to a few ulps of s; that is a part of the gap of the same few ulps of ``n s``, or of
    ``|q|_W |y|_W s`` where n is unknown (the projection is no longer than y). Gaps below this
    ``blur`` are noise.
    """

    total: float | None
    lift: Array | None = None
    length: float = inf

    def gap(self, minimum: float, slope: float, t: Array) -> float:
        """The gap, from ``min g``, ``<g, h>`` and the margins of h."""
        if self.total is not None:
            return max(0.0, slope - self.total * minimum)
        e = max(0.0, -minimum)
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
        if self.lift is None:
            return LIMITS.slope_rounding * (0.5 * q.norm(q.values) ** 2)
        return LIMITS.slope_rounding * (self.length * q.norm(q.values) * q.magnitude)


def known_total(total: float) -> GapBound:
    """The bound for histograms of a public number of records."""
    return GapBound(total)


def unknown_total(q: Quadratic, minimum_norm: Callable[[Quadratic], Array]) -> GapBound:
    """The bound for histograms of any size; ``minimum_norm`` gives p0 for y = 0.

    A group of queries of which every cell is in one or more, such as a table, gives a q at once:
    the reciprocal weights; so does one query that has a coefficient on every cell, such as the
    total. The shortest of those is taken if there is one.
    """
    best = GapBound(None)
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
        best = _pointing(q, minimum_norm(q))
    return best


def _pointing(q: Quadratic, pointer: Array) -> GapBound:
    """The bound from a vector, scaled so that its slope is 1 or more on every column."""
    lift = q.adjoint(q.weigh(pointer))
    slopes = q.spread(lift)[q.is_seen]
    minimum = float(slopes.min()) if slopes.size else 1.0
    length = q.norm(pointer)
    if minimum <= 1e-9 * float(np.abs(slopes).max(initial=0.0)) or minimum <= 1e-12 * length:
        return GapBound(None)
    return GapBound(None, lift / minimum, length / minimum)


# Few cells: active set


@dataclass(frozen=True, eq=False)
class WeightedCells:
    """Cells of positive weight, and what is certified of them (``inf``: nothing)."""

    cells: Integers
    weights: Array
    gap: float = inf


def fit_support(
    q: Quadratic,
    bound: GapBound,
    target: Callable[[float], float],
    *,
    start: WeightedCells | None = None,
    maximum: int = 4000,
    only_seen: bool = False,
    watch: Callable[[float, float], None] | None = None,
) -> WeightedCells:
    """Cells and weights with a gap of at most ``target(value)``, or the best that were reached.

    More than ``maximum`` cells, or rounding, may stand in the way.

    Fully corrective Frank-Wolfe: cells of minimum slope come in, all weights are solved for again.
    For a hull of points it is the algorithm of Wolfe 1976, "Finding the nearest point in a
    polytope" (Lacoste-Julien, Jaggi 2015, "On the global linear convergence of Frank-Wolfe
    optimization variants"). An optimum has at most one cell more than there are linearly
    independent queries (Caratheodory), so the weights are a small dense problem however many cells
    there are; a round costs one gradient over all of them.
    """
    columns = _Columns.of(q, start or _first(q, bound, only_seen))
    best, since, constant = (
        WeightedCells(columns.cells, columns.weights),
        0,
        0.5 * q.norm(q.values) ** 2,
    )
    for _ in range(LIMITS.active_set_rounds):
        t = q.stack_of(columns.cells, columns.weights)
        down = q.curve(t) - q.linear
        slopes = q.slopes(down)
        if only_seen:
            slopes = np.where(q.is_seen, slopes, inf)
        slope, minimum = float(down @ t), float(slopes.min())
        gap = bound.gap(minimum, slope, t)
        value = constant + 0.5 * float((down - q.linear) @ t)
        since = 0 if gap < best.gap else since + 1
        if gap <= best.gap:
            best = WeightedCells(columns.cells, columns.weights, gap)
        goal = target(max(value, 0.0))
        if watch is not None:
            watch(gap, goal)
        if gap <= goal or since > LIMITS.active_set_patience or len(columns.cells) > maximum:
            break
        level = slope / bound.total if bound.total else 0.0
        new = _steepest(slopes, level, max(8, len(columns.cells) // 4))
        new = new[~np.isin(new, columns.cells)]
        # To solve for the weights much better than the cells are known would be wasted.
        columns = columns.joined(q, new)
        spend(float(len(columns.cells)) ** 3)
        columns = columns.solved(
            bound.total, LIMITS.active_set_weights_tolerance * (level - minimum)
        )
    return best


def _first(q: Quadratic, bound: GapBound, only_seen: bool) -> WeightedCells:
    """The cell of least slope at zero, with all of the total; nothing where that is unknown."""
    if bound.total is None:
        return WeightedCells(np.zeros(0, dtype=np.int64), np.zeros(0))
    slopes = q.slopes(-q.linear)
    if only_seen:
        slopes = np.where(q.is_seen, slopes, inf)
    return WeightedCells(np.array([int(slopes.argmin())]), np.array([bound.total]))


def _steepest(slopes: Array, level: float, count: int) -> Integers:
    """The cells of least slope, of those below ``level``."""
    if len(slopes) > 4 * count:
        steepest = np.argpartition(slopes, count)[:count]
        steepest = steepest[np.argsort(slopes[steepest])]
    else:
        steepest = np.argsort(slopes)[:count]
    return steepest[slopes[steepest] < level]


@dataclass(frozen=True, eq=False)
class _Columns:
    """The cells in use with their Gram matrix."""

    cells: Integers
    weights: Array
    places: Integers
    gram: Array
    target: Array

    @classmethod
    def of(cls, q: Quadratic, support: WeightedCells) -> _Columns:
        places = q.places(support.cells)
        target = q.linear[places].sum(axis=1)
        gram = q.gram(places, places)
        return cls(support.cells, support.weights, places, gram, target)

    def joined(self, q: Quadratic, new: Integers) -> _Columns:
        """The columns with more cells, of weight 0."""
        more = q.places(new)
        places = np.concatenate([self.places, more])
        old = len(self.cells)
        gram = np.empty((len(places), len(places)))
        gram[:old, :old] = self.gram
        gram[old:] = q.gram(more, places)
        gram[:old, old:] = gram[old:, :old].T
        return _Columns(
            np.concatenate([self.cells, new]),
            np.concatenate([self.weights, np.zeros(len(new))]),
            places,
            gram,
            np.concatenate([self.target, q.linear[more].sum(axis=1)]),
        )

    def solved(self, total: float | None, tolerance: float) -> _Columns:
        """The best weights, slopes within a tolerance; cells without any are dropped."""
        smallest = 1e-14 * max(float(np.abs(self.target).max(initial=0.0)), 1e-300)
        weights = nonnegative_least_squares(
            self.gram, self.target, self.weights, total, max(tolerance, smallest)
        )
        at = np.flatnonzero(weights > 0)
        return _Columns(
            self.cells[at], weights[at], self.places[at], self.gram[np.ix_(at, at)], self.target[at]
        )


# All cells: accelerated gradient


def fit_dense(
    q: Quadratic,
    bound: GapBound,
    target: Callable[[float], float],
    *,
    start: Array | None = None,
    steps: int = 2000,
    watch: Callable[[float, float], None] | None = None,
) -> WeightedCells:
    """A histogram with a gap of at most ``target(value)``, or the best of ``steps`` steps.

    More steps are taken, up to ten times as many, while the gap falls quickly. Accelerated
    projected gradient (Beck, Teboulle 2009, "A fast iterative shrinkage-thresholding algorithm for
    linear inverse problems"), with the restart of O'Donoghue, Candes 2015, "Adaptive restart for
    accelerated gradient schemes". The gap falls as ``2 L |h0 - h*|^2 / t^2`` and faster where the
    active cells settle.
    """
    total = bound.total
    possible = q.grid.possible
    h = _feasible(np.zeros(q.grid.size), total, possible) if start is None else start
    steep = _steepness(q)
    constant = 0.5 * q.norm(q.values) ** 2
    ahead, momentum = h, 1.0
    best, best_gap, last = h, inf, inf
    for step in range(10 * steps):
        slopes = q.spread(q.curve(q.stack(ahead)) - q.linear)
        if possible is not None:
            slopes = np.where(possible, slopes, 0.0)
        new = _feasible(ahead - slopes / steep, total, possible)
        if float(slopes @ (new - h)) > 0:  # it went uphill: forget the momentum
            momentum, ahead = 1.0, new
        else:
            after = (1 + sqrt(1 + 4 * momentum**2)) / 2
            ahead = new + (momentum - 1) / after * (new - h)
            momentum = after
        h = new
        if step % LIMITS.steps_between_bounds == 0:
            gap, value = _gap(q, bound, h, constant)
            goal = target(value)
            if gap < best_gap:
                best, best_gap = h, gap
            if watch is not None:
                watch(gap, goal)
            if gap <= goal or (step >= steps and gap > LIMITS.quick_gap_ratio * last):
                break
            last = gap
    cells = np.flatnonzero(best > 0)
    return WeightedCells(cells, best[cells], best_gap)


def _gap(q: Quadratic, bound: GapBound, h: Array, constant: float) -> tuple[float, float]:
    t = q.stack(h)
    down = q.curve(t) - q.linear
    value = max(0.0, constant + 0.5 * float((down - q.linear) @ t))
    return bound.gap(float(q.slopes(down).min()), float(down @ t), t), value


def _feasible(h: Array, total: float | None, possible: Mask | None) -> Array:
    """The nearest histogram of this total with nothing on impossible cells."""
    if possible is None:
        return np.maximum(h, 0.0) if total is None else project_to_simplex(h, total)
    out = np.zeros(len(h))
    out[possible] = _feasible(h[possible], total, None)
    return out


def _steepness(q: Quadratic) -> float:
    """The greatest eigenvalue of V over cells, a little above: by the power method.

    Where no coefficient is negative, the greatest ``(V x) / x`` of a positive x is a bound for it
    (Collatz 1942).
    """
    x = np.ones(q.grid.size)
    norm_ratio = above = 0.0
    for _ in range(LIMITS.cell_power_steps):
        y = q.spread(q.curve(q.stack(x)))
        norm_ratio = float(np.linalg.norm(y) / np.linalg.norm(x))
        ratio = np.divide(y, x, out=np.zeros_like(y), where=x > 0)
        above = float(ratio.max())
        size = float(np.linalg.norm(y))
        if size == 0:
            return 1.0
        x = y / size
    is_positive = all(p.term.is_nonnegative for p in q.fit.parts) and q.precision is None
    return min(above, 1.2 * norm_ratio) if is_positive else 1.5 * norm_ratio


# The linear systems of Newton steps

Solve = Callable[[Array], Array]


class System(Protocol):
    """A structure of Q in which ``(Q + D) x = b`` is solved, D a positive diagonal over cells.

    Up to ``few`` cells in use are reached sooner one by one.
    """

    @property
    def few(self) -> int:
        """Cells in use up to which an active set is quicker."""
        ...

    def factored(self, ease: Array) -> Solve | None:
        """The map ``b -> (Q + D)^-1 b`` for ``ease = D^-1`` (0: x is 0); None if rounding fails."""
        ...


def newton_system(q: Quadratic) -> System | None:
    """The structure of Q whose Newton steps take about a second or less; None if it has none."""
    chains = Chains.of(q)
    if chains is not None:
        return chains
    pairs = len(q.sets) * (len(q.sets) + 1) // 2
    is_small = (
        q.length <= LIMITS.newton_margins and pairs * q.grid.size <= LIMITS.newton_margin_sums
    )
    return Margins(q) if is_small and q.roots is not None else None


@dataclass(frozen=True, eq=False)
class Margins:
    """The structure of margins: with ``V = L L'`` and Woodbury's identity one matrix suffices.

    It is ``I + L'(S D^-1 S')L``; its entries between two sets are the margins of ``D^-1`` over
    both sets together.
    """

    q: Quadratic

    @property
    def few(self) -> int:
        """Fewer than there are margins: a factorization of their matrix costs more."""
        return max(LIMITS.newton_cells_minimum, self.q.length // 4)

    @cached_property
    def _pairs(self) -> tuple[list[Axes], list[Integers]]:
        """The attributes of every two sets, and where the margins over them stand in the matrix."""
        q = self.q
        unions, places = [], []
        for i, one in enumerate(q.sets):
            for j, other in enumerate(q.sets[: i + 1]):
                union = tuple(sorted({*one, *other}))
                cells = np.arange(q.grid.cells(union))
                codes = np.unravel_index(cells, [q.grid.shape[a] for a in union]) if union else ()
                rows, columns = (
                    q.ends[s] + _flat(q.grid, axes, union, codes)
                    for s, axes in ((i, one), (j, other))
                )
                unions.append(union)
                places.append(rows * q.length + columns)
        return unions, places

    @property
    def _roots(self) -> tuple[tuple[slice, Array], ...]:
        return self.q.roots or ()

    def factored(self, ease: Array) -> Solve | None:
        """``(Q + D)^-1 = D^-1 - D^-1 S'L (I + L'S D^-1 S'L)^-1 L'S D^-1`` (Woodbury)."""
        from scipy.linalg.lapack import dpotrf, dpotrs

        spend(float(self.q.length) ** 3)
        # The transpose is in the order of LAPACK: nothing is copied.
        factor, failed = dpotrf(self.matrix(ease).T, lower=0, clean=0, overwrite_a=1)
        if failed:
            return None

        def solve(b: Array) -> Array:
            w, _ = dpotrs(factor, self.towards(self.q.stack(ease * b)), lower=0)
            return np.asarray(ease * (b - self.q.spread(self.back(w))))

        return solve

    def matrix(self, ease: Array) -> Array:
        """``I + L'(S diag(ease) S')L``: its lower half, the rest is not to be read."""
        out = np.zeros(self.q.length * self.q.length)
        unions, places = self._pairs
        for margin, place in zip(self.q.grid.margins(ease, unions), places, strict=True):
            out[place] = margin
        return self._rooted(out.reshape(self.q.length, self.q.length))

    def _rooted(self, out: Array) -> Array:
        """``I + L'(out)L``, in place."""
        for at, root in self._roots:
            if root.ndim == 1:
                out[at, : at.stop] *= root[:, None]
                out[at.start :, at] *= root
                continue
            lower = np.tril(out[at, at])
            whole = lower + np.tril(lower, -1).T
            out[at, at] = root.T @ whole @ root
            out[at, : at.start] = root.T @ out[at, : at.start]
            out[at.stop :, at] = out[at.stop :, at] @ root
        out[np.diag_indices(self.q.length)] += 1.0
        return out

    def towards(self, t: Array) -> Array:
        """``L't``."""
        parts = [root * t[at] if root.ndim == 1 else root.T @ t[at] for at, root in self._roots]
        return np.concatenate(parts)

    def back(self, w: Array) -> Array:
        """``L w``."""
        parts = [root * w[at] if root.ndim == 1 else root @ w[at] for at, root in self._roots]
        return np.concatenate(parts)


def _flat(grid: Grid, axes: Axes, union: Axes, codes: tuple[Integers, ...]) -> Integers:
    """The cell of a table over some attributes, for the cells of one over more."""
    out = np.zeros(1, dtype=np.int64)
    for a in axes:
        out = out * grid.shape[a] + codes[union.index(a)]
    return out


@dataclass(frozen=True, eq=False)
class Chains:
    """The structure of running totals and ranges along attributes of one table.

    ``T = Q^-1`` is the Kronecker product of matrices with at most three diagonals, so ``T + D^-1``
    has a narrow ``band`` where the attributes stand in the right ``order``, and
    ``(T + D^-1) v = D^-1 b`` gives ``x = T v = D^-1 (b - v)``.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    inverse: csr_matrix
    band: int
    few: int = 2 * LIMITS.newton_cells_minimum

    @classmethod
    def of(cls, q: Quadratic) -> Chains | None:
        """The chains of one group of evenly weighted products over all attributes; else None."""
        from scipy.sparse import csr_matrix, kron

        term, weights = q.fit.parts[0].term.as_product(), q.fit.parts[0].weights
        is_one = len(q.fit.parts) == 1 and q.precision is None
        if not is_one or term is None or term.shape != q.grid.shape:
            return None
        if not (weights[0] > 0 and (weights == weights[0]).all()):
            return None
        inverses = [_inverse(queries) for _, queries in term.factors]
        banded = [f for f in inverses if f is not None]
        if len(banded) < len(inverses) or not any(f.nnz > f.shape[0] for f in banded):
            return None
        # What is only cells comes first, then the longest: offsets along the others are small.
        order = sorted(
            range(len(banded)), key=lambda i: (banded[i].nnz > banded[i].shape[0], -term.shape[i])
        )
        whole = csr_matrix(np.full((1, 1), 1 / float(weights[0])))
        for i in order:
            whole = kron(whole, banded[i], format="csr")
        rows = np.repeat(np.arange(whole.shape[0]), np.diff(whole.indptr))
        band = int(np.abs(rows - whole.indices).max())
        size = q.grid.size
        if (
            size * (band + 1) > LIMITS.newton_band_entries
            or size * float(band + 1) ** 2 > LIMITS.newton_band_multiplications
        ):
            return None
        return cls(term.shape, tuple(order), whole, band)

    def factored(self, ease: Array) -> Solve | None:
        """The map ``b -> (Q + D)^-1 b``, by the factors of ``T + D^-1``."""
        from scipy.linalg.lapack import dpbtrf, dpbtrs

        here = self._ordered(ease)
        spend(float(self.band + 1) ** 2 * len(here))
        banded = np.zeros((self.band + 1, len(here)), order="F")
        coo = self.inverse.tocoo()
        below = coo.row >= coo.col
        rows, columns = coo.row[below], coo.col[below]
        banded[rows - columns, columns] = coo.data[below]
        banded[0] += here
        factor, failed = dpbtrf(banded, lower=1, overwrite_ab=1)
        if failed:
            return None

        def solve(b: Array) -> Array:
            ordered = self._ordered(b)
            v, _ = dpbtrs(factor, here * ordered, lower=1)
            # Both are x; each is the more exact where its factors are small.
            x = np.where(here < 1, here * (ordered - v), self.inverse @ v)
            return self._back(x)

        return solve

    def _ordered(self, x: Array) -> Array:
        return np.ascontiguousarray(x.reshape(self.shape).transpose(self.order)).reshape(-1)

    def _back(self, x: Array) -> Array:
        turned = x.reshape([self.shape[i] for i in self.order])
        return np.ascontiguousarray(turned.transpose(np.argsort(self.order))).reshape(-1)


def _inverse(queries: QuerySet) -> csr_matrix | None:
    """``(F'F)^-1`` of one attribute, where it has at most three diagonals."""
    from scipy.sparse import diags_array, eye_array

    if queries.is_identity:
        return eye_array(queries.size, format="csr")
    bands = inverse_gram(queries)
    if bands is None:
        return None
    beside = bands[0].beside
    return diags_array([beside, bands[0].diagonal, beside], offsets=[-1, 0, 1], format="csr")


# All cells: interior point


def fit_interior(
    q: Quadratic,
    system: System,
    bound: GapBound,
    target: Callable[[float], float],
    *,
    watch: Callable[[float, float], None] | None = None,
) -> WeightedCells:
    """A histogram with a gap of at most ``target(value)``, or the best that rounding allows.

    A primal-dual interior point method (Mehrotra 1992, "On the implementation of a primal-dual
    interior point method"): cells and slopes ``s = Qh - c - level`` are kept positive, with
    ``h_x s_x`` near a number that goes to 0. Its steps solve with ``Q + D``, D diagonal over cells,
    by the given ``system``: a few passes over the cells and one factorization, and some twenty
    steps do, however many cells are in use.
    """
    point = _InteriorPoint.of(q, bound)
    best, best_gap, minima, since = point, inf, np.full(3, inf), 0
    for _ in range(LIMITS.newton_steps):
        gap, value = point.certified(point.h)
        goal = target(value)
        if gap < best_gap:
            best, best_gap = point, gap
        if watch is not None:
            watch(gap, goal)
        left = np.array([gap, point.product, np.abs(point.off).max()])
        since = 0 if (left < 0.9 * minima).any() else since + 1
        minima = np.minimum(minima, left)
        if gap <= goal or since > LIMITS.newton_patience:
            break
        after = _stepped(point, system)
        if after is None:
            break
        point = after
    return best.support(best_gap, target)


@dataclass(frozen=True, eq=False)
class _InteriorPoint:
    """``h`` and ``s`` over the cells that may carry weight, and the level of the slopes."""

    q: Quadratic
    bound: GapBound
    possible: Integers
    h: Array
    s: Array
    level: float

    @classmethod
    def of(cls, q: Quadratic, bound: GapBound) -> _InteriorPoint:
        """The even histogram, with slopes that are positive."""
        mask, total = q.grid.possible, bound.total
        possible = np.arange(q.grid.size) if mask is None else np.flatnonzero(mask)
        ones = np.full(len(possible), 1 / len(possible))
        one = cls(q, bound, possible, ones, ones, 0.0)
        even = replace(one, h=one.h * (one.best_scale() if total is None else total))
        spread = float(np.abs(even.slopes).mean()) or 1.0
        if total is None:
            return replace(even, s=np.maximum(even.slopes, spread))
        level = float(even.slopes.min()) - spread
        return replace(even, s=even.slopes - level, level=level)

    def best_scale(self) -> float:
        """The number that h is to be multiplied by for the least value; not too small a one."""
        bend = float(self.curved(self.h) @ self.h)
        return max(1e-3, float(self.spread(self.q.linear) @ self.h) / bend) if bend > 0 else 1.0

    @property
    def product(self) -> float:
        """``h's``."""
        return float(self.h @ self.s)

    @cached_property
    def off(self) -> Array:
        """How far s is from the slopes above the level."""
        return self.slopes - self.level - self.s

    def whole(self, part: Array) -> Array:
        """Numbers of possible cells as numbers of all cells, 0 where no weight may be."""
        if len(part) == self.q.grid.size:
            return part
        out = np.zeros(self.q.grid.size)
        out[self.possible] = part
        return out

    def spread(self, t: Array) -> Array:
        """For each possible cell the sum of its entries in a stack of tables."""
        entries = self.q.spread(t)
        return entries if len(self.possible) == len(entries) else entries[self.possible]

    def curved(self, x: Array) -> Array:
        """``Q x``."""
        return self.spread(self.q.curve(self.q.stack(self.whole(x))))

    @cached_property
    def slopes(self) -> Array:
        """``Q h - c``."""
        return self.curved(self.h) - self.spread(self.q.linear)

    def certified(self, h: Array) -> tuple[float, float]:
        """The gap and the value of a histogram."""
        q = self.q
        t = q.stack(self.whole(h))
        down = q.curve(t) - q.linear
        constant = 0.5 * q.norm(q.values) ** 2
        value = max(0.0, constant + 0.5 * float((down - q.linear) @ t))
        return self.bound.gap(float(self.spread(down).min()), float(down @ t), t), value

    def support(self, gap: float, target: Callable[[float], float]) -> WeightedCells:
        """The weighted cells; without those on their way to 0, as far as the gap allows it."""
        for ratio in LIMITS.weightless_ratios:
            held = self.h > ratio * self.s
            weights = np.where(held, self.h, 0.0)
            if self.bound.total is not None:
                if not weights.any():
                    continue
                weights *= self.bound.total / float(weights.sum())
            reached, value = self.certified(weights)
            if reached <= max(gap, target(value)):
                return WeightedCells(self.possible[held], weights[held], reached)
        return WeightedCells(self.possible, self.h, gap)


def _stepped(at: _InteriorPoint, system: System) -> _InteriorPoint | None:
    """One predictor and corrector step; None where rounding does not allow it."""
    h, s, total = at.h, at.s, at.bound.total
    solver = _Newton.of(at, system)
    if solver is None:
        return None
    if total is not None and not solver.spread > 0:
        return None
    missing = 0.0 if total is None else total - float(h.sum())
    mean = at.product / len(h)
    dh, ds, _ = solver.moves(-at.off - s, missing, -s)
    reach = min(1.0, _reach(h, dh), _reach(s, ds))
    after = float((h + reach * dh) @ (s + reach * ds)) / len(h)
    bend = ((after / mean) ** 3 * mean - dh * ds) / h
    dh, ds, dl = solver.moves(-at.off - s + bend, missing, bend - s)
    reach = min(1.0, LIMITS.newton_step_share * min(_reach(h, dh), _reach(s, ds)))
    if not reach > 1e-10:
        return None
    return replace(at, h=h + reach * dh, s=s + reach * ds, level=at.level + reach * dl)


def _reach(x: Array, move: Array) -> float:
    """The step at which some entry is 0."""
    falling = move < 0
    return float((x[falling] / -move[falling]).min(initial=inf))


@dataclass(frozen=True, eq=False)
class _Newton:
    """Solves with ``Q + D``, ``ease`` being ``D^-1 = h / s``."""

    at: _InteriorPoint
    ease: Array
    once: Solve

    @classmethod
    def of(cls, at: _InteriorPoint, system: System) -> _Newton | None:
        ease = at.h / at.s
        once = system.factored(at.whole(ease))
        return None if once is None else cls(at, ease, once)

    def solved(self, b: Array) -> Array:
        """``(Q + D)^-1 b``, refined once."""
        x = self._solved(b)
        return x + self._solved(b - self.at.curved(x) - x / self.ease)

    def _solved(self, b: Array) -> Array:
        x = self.once(self.at.whole(b))
        return x if len(x) == len(b) else x[self.at.possible]

    @cached_property
    def _ones(self) -> Array:
        return self.solved(np.ones(len(self.ease)))

    @property
    def spread(self) -> float:
        """``1' (Q + D)^-1 1``: above 0, but for rounding."""
        return float(self._ones.sum())

    def moves(self, b: Array, missing: float, to: Array) -> tuple[Array, Array, float]:
        """The moves of h, of s, and of the level."""
        dh, dl = self.solved(b), 0.0
        if self.at.bound.total is not None:
            dl = (missing - float(dh.sum())) / self.spread
            dh = dh + dl * self._ones
        return dh, to - dh / self.ease, dl
