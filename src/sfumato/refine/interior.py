# SPDX-License-Identifier: Apache-2.0
"""Projection with many cells in use: Newton steps in the coordinates of what is asked.

    minimise 1/2 h'Qh - c'h   over h >= 0   (and 1'h = n),     Q = S'VS,

S the margins of a histogram over the asked sets, V = L L' their Gram matrix. A primal-dual interior
point method (Mehrotra 1992, "On the implementation of a primal-dual interior point method"): cells
and slopes ``s = Qh - c - level`` are kept positive, with ``h_x s_x`` near a number that goes to 0.
Its steps solve with ``Q + D``, D diagonal over cells, in the coordinates of what is asked
(``systems``): a few passes over the cells and one factorization, and some twenty steps do, however
many cells are in use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sfumato.refine.active_set import Support
from sfumato.refine.grid import Axes, Grid
from sfumato.refine.problem import Bound, Quadratic
from sfumato.refine.refine_limits import LIMITS
from sfumato.solve.effort import spend
from sfumato.solve.tridiagonal import inverse_gram
from sfumato.types import Array, Integers
from sfumato.workload.queries import QuerySet

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = [
    "Chains",
    "Margins",
    "Solve",
    "System",
    "fit_interior",
    "newton_system",
]


# --------------------
# The linear systems of Newton steps: ``(Q + D) x = b`` for a positive diagonal D over cells.
#
# ``Q = S'VS`` with S the margins over the asked sets and ``V = L L'`` their Gram matrix. Two
# structures are known.
#
# *Margins.* By Woodbury's identity one matrix over the margins suffices, ``I + L'(S D^-1 S')L``:
#   its
# entries between two sets are the margins of ``D^-1`` over both sets together.
#
# *Chains.* Running totals and ranges along attributes of one table, by cells of others: the
#   inverse T
# of Q is the Kronecker product of matrices with at most three diagonals, so ``T + D^-1`` has a
#   narrow
# band, and ``(T + D^-1) v = D^-1 b`` gives ``x = T v = D^-1 (b - v)``.


Solve = Callable[[Array], Array]


class System(Protocol):
    """A structure of Q; up to ``few`` cells in use are found sooner one by one."""

    @property
    def few(self) -> int:
        """A number of cells."""
        ...

    def factored(self, ease: Array) -> Solve | None:
        """The map ``b -> (Q + D)^-1 b`` for ``ease = D^-1`` (0: x is 0); None if rounding won."""
        ...


def newton_system(q: Quadratic) -> System | None:
    """A system whose steps take about a second, or less; None where there is none."""
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
    """The matrix between all margins."""

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
    """``T = Q^-1`` with the attributes in an ``order`` that makes its ``band`` narrow."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    inverse: csr_matrix
    band: int
    few: int = 2 * LIMITS.newton_cells_minimum

    @classmethod
    def of(cls, q: Quadratic) -> Chains | None:
        """Where one group of evenly weighted products over all attributes is asked."""
        from scipy.sparse import csr_matrix, kron

        term, weights = q.fit.parts[0].term.as_product(), q.fit.parts[0].weights
        is_one = len(q.fit.parts) == 1 and q.precision is None
        if not is_one or term is None or term.shape != q.grid.shape:
            return None
        if not (weights[0] > 0 and (weights == weights[0]).all()):
            return None
        found = [_inverse(queries) for _, queries in term.factors]
        known = [f for f in found if f is not None]
        if len(known) < len(found) or not any(f.nnz > f.shape[0] for f in known):
            return None
        # What is only cells comes first, then the longest: offsets along the others are small.
        order = sorted(
            range(len(known)), key=lambda i: (known[i].nnz > known[i].shape[0], -term.shape[i])
        )
        whole = csr_matrix(np.full((1, 1), 1 / float(weights[0])))
        for i in order:
            whole = kron(whole, known[i], format="csr")
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
        """By the factors of ``T + D^-1``."""
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
            given = self._ordered(b)
            v, _ = dpbtrs(factor, here * given, lower=1)
            # Both are x; each is the more exact where its factors are small.
            x = np.where(here < 1, here * (given - v), self.inverse @ v)
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
    found = inverse_gram(queries)
    if found is None:
        return None
    beside = found[0].beside
    return diags_array([beside, found[0].diagonal, beside], offsets=[-1, 0, 1], format="csr")


def fit_interior(
    q: Quadratic,
    system: System,
    bound: Bound,
    target: Callable[[float], float],
    *,
    watch: Callable[[float, float], None] | None = None,
) -> Support:
    """A histogram with a gap of at most ``target(value)``, or the best that rounding allows."""
    point = _Point.of(q, bound)
    best, best_gap, least, since = point, inf, np.full(3, inf), 0
    for _ in range(LIMITS.newton_steps):
        gap, value = point.certified(point.h)
        wanted = target(value)
        if gap < best_gap:
            best, best_gap = point, gap
        if watch is not None:
            watch(gap, wanted)
        left = np.array([gap, point.product, np.abs(point.off).max()])
        since = 0 if (left < 0.9 * least).any() else since + 1
        least = np.minimum(least, left)
        if gap <= wanted or since > LIMITS.newton_patience:
            break
        after = _stepped(point, system)
        if after is None:
            break
        point = after
    return best.support(best_gap, target)


@dataclass(frozen=True, eq=False)
class _Point:
    """``h`` and ``s`` over the cells that may carry weight, and the level of the slopes."""

    q: Quadratic
    bound: Bound
    possible: Integers
    h: Array
    s: Array
    level: float

    @classmethod
    def of(cls, q: Quadratic, bound: Bound) -> _Point:
        """An even histogram."""
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
        return max(1e-3, float(self.spread(self.q.wanted) @ self.h) / bend) if bend > 0 else 1.0

    @property
    def product(self) -> float:
        """``h's``."""
        return float(self.h @ self.s)

    @cached_property
    def off(self) -> Array:
        """How far s is from the slopes above the level."""
        return self.slopes - self.level - self.s

    def whole(self, part: Array) -> Array:
        """Over all cells, 0 where no weight may be."""
        if len(part) == self.q.grid.size:
            return part
        out = np.zeros(self.q.grid.size)
        out[self.possible] = part
        return out

    def spread(self, t: Array) -> Array:
        """Of a stack of tables, over the possible cells."""
        found = self.q.spread(t)
        return found if len(self.possible) == len(found) else found[self.possible]

    def curved(self, x: Array) -> Array:
        """``Q x``."""
        return self.spread(self.q.curve(self.q.stack(self.whole(x))))

    @cached_property
    def slopes(self) -> Array:
        """``Q h - c``."""
        return self.curved(self.h) - self.spread(self.q.wanted)

    def certified(self, h: Array) -> tuple[float, float]:
        """The gap and the value of a histogram."""
        q = self.q
        t = q.stack(self.whole(h))
        down = q.curve(t) - q.wanted
        constant = 0.5 * q.norm(q.values) ** 2
        value = max(0.0, constant + 0.5 * float((down - q.wanted) @ t))
        return self.bound.gap(float(self.spread(down).min()), float(down @ t), t), value

    def support(self, gap: float, target: Callable[[float], float]) -> Support:
        """The weighted cells; without those on their way to 0, as far as the gap allows it."""
        for ratio in LIMITS.weightless_ratios:
            held = self.h > ratio * self.s
            kept = np.where(held, self.h, 0.0)
            if self.bound.total is not None:
                if not kept.any():
                    continue
                kept *= self.bound.total / float(kept.sum())
            found, value = self.certified(kept)
            if found <= max(gap, target(value)):
                return Support(self.possible[held], kept[held], found)
        return Support(self.possible, self.h, gap)


def _stepped(at: _Point, system: System) -> _Point | None:
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

    at: _Point
    ease: Array
    once: Solve

    @classmethod
    def of(cls, at: _Point, system: System) -> _Newton | None:
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
        """Those of h, of s, and of the level."""
        dh, dl = self.solved(b), 0.0
        if self.at.bound.total is not None:
            dl = (missing - float(dh.sum())) / self.spread
            dh = dh + dl * self._ones
        return dh, to - dh / self.ease, dl
