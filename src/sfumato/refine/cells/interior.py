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

import numpy as np

from sfumato.refine.cells.active_set import Support
from sfumato.refine.cells.certificate import Bound
from sfumato.refine.cells.quadratic import Quadratic
from sfumato.refine.cells.systems import Solve, System
from sfumato.workload.queries import Array, Integers

__all__ = ["fit_interior"]

STEPS = 100
NEAR = 0.995  # of the way to the nearest boundary
RATIOS = (1.0, 1e-2, 1e-4, 1e-6, 1e-8)  # of h to s: where a cell counts as one without weight
PATIENCE = 5  # steps that bring nothing: rounding is all that is left


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
    for _ in range(STEPS):
        gap, value = point.certified(point.h)
        wanted = target(value)
        if gap < best_gap:
            best, best_gap = point, gap
        if watch is not None:
            watch(gap, wanted)
        left = np.array([gap, point.product, np.abs(point.off).max()])
        since = 0 if (left < 0.9 * least).any() else since + 1
        least = np.minimum(least, left)
        if gap <= wanted or since > PATIENCE:
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
        for ratio in RATIOS:
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
    reach = min(1.0, NEAR * min(_reach(h, dh), _reach(s, ds)))
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
