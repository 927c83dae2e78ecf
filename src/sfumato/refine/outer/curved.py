# SPDX-License-Identifier: Apache-2.0
"""A fit of any queries in the coordinates of residuals: least values by conjugate gradients.

Prefixes, ranges, groups, explicit matrices and uneven weights have a curvature ``H = E'F'WFE``
that mixes residuals. What the splitting of ``local.py`` needs of it are solutions of
``(H + E'PE) r = b``; E'PE is diagonal, and the diagonal form that H would have if every ``Q'Q``
had two eigenvalues is the preconditioner (Hestenes, Stiefel 1952, "Methods of conjugate gradients
for solving linear systems").

Solutions are approximate, bounds are not. For any r0 with ``g = grad f(r0)`` and any tables
``lambda`` with ``E' lambda = E' g``, convexity gives for all agreeing x >= 0 of total t

    f(x) >= f(r0) - <g, r0> + <lambda, x> >= f(r0) - <g, r0> + t sum_S min lambda_S.

Multipliers that miss ``E' lambda = E' g`` a little are moved onto it, which is closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import sqrt

import numpy as np

from sfumato.refine.fit import Fit
from sfumato.refine.outer.curvature import Diagonal, along, model_of
from sfumato.refine.outer.limits import Limits
from sfumato.refine.outer.residuals import Layout
from sfumato.workload.predicates import Mask
from sfumato.workload.queries import Array

__all__ = ["Curved", "curved"]

TURNS = 60  # of conjugate gradients, for one step
FIRST_TURNS = 300
ROUNDING = 1e-13  # of what a gradient is the difference of
REDUCTION = 1e-2  # of the residual, for one step


@dataclass(eq=False)
class Curved:
    """The fit, its diagonal model, and the solution of the last step, where the next one starts."""

    fit: Fit
    layout: Layout
    model: Diagonal
    heights: Array
    centre: Array
    limits: Limits | None = None
    last: Array = field(init=False)
    last_dual: Array = field(init=False)

    def __post_init__(self) -> None:
        self.last, self.last_dual = self.centre.copy(), self.centre.copy()

    def within(self, limits: Limits) -> Curved:
        """The same with known residuals and cells that are zero."""
        return replace(self, limits=limits)

    def precisions(self) -> list[Array]:
        """Those of the model."""
        return self.model.precisions()

    def tells_total(self) -> bool:
        """Whether the total of tables of bounded f is bounded."""
        return bool(np.isfinite(self.greatest_total(1.0)))

    def centre_tables(self, total: float | None) -> list[Array]:
        """The least f without constraints, nearly."""
        r = self.centre.copy()
        if total is not None:
            r[self._empty] = total
        self._hold(r)
        return self.push(r)

    def minimise(self, tables: list[Array], pulls: Sequence[Array], total: float | None) -> None:
        """Replace ``v`` by ``E r`` of nearly least ``f + 1/2 sum_S pull_S |x_S - v_S|^2``."""
        weights = self._diagonal(pulls)
        wanted = self.pull([along(p, v) * v for p, v in zip(pulls, tables, strict=True)])
        self.last = self._solve(self.last, weights, wanted, total, TURNS)
        for table, found in zip(tables, self.push(self.last), strict=True):
            table[...] = found

    def value(self, tables: Sequence[Array]) -> float:
        """f of tables that agree."""
        return self.fit.value(self.fit.answers(self.layout.by_set(tables, self.fit.sets)))

    def lower(self, forces: Sequence[Array], total: float | None, upper: float) -> float:
        """A lower bound on f over agreeing tables, non-negative and of the total, from forces."""
        none = np.zeros_like(self.heights)
        ones = self._diagonal([np.ones(len(f)) for f in forces])
        r = self._solve(self.last_dual, none, self.pull(forces), total, FIRST_TURNS)
        # Rounding may have left the residuals; the bound is about residuals.
        r = self.last_dual = self.pull(self.push(r)) / ones
        tables = self.push(r)
        slope = self._slope(tables)
        missing = slope - self.pull(forces)
        known = self.known(missing, r)
        # E (E'E)^-1 of what is missing: afterwards E' of the forces is the slope.
        moved = self.push(missing / ones)
        least = 0.0
        for g, (f, m) in enumerate(zip(forces, moved, strict=True)):
            every = (f + m).reshape(len(f), -1).min(axis=1)
            least += float((every if self.limits is None else self.limits.least(g, f + m)).sum())
        if total is None:
            total = 0.0 if least >= 0 else self.greatest_total(upper)
        return self.value(tables) - float(slope @ r) + total * least + known

    def known(self, missing: Array, r: Array) -> float:
        """``<missing, r>`` over known residuals, which then need not be matched: set to 0 there."""
        if self.limits is None:
            return 0.0
        held = self._held
        found = float(missing[held] @ r[held])
        missing[held] = 0.0
        return found

    def greatest_total(self, upper: float) -> float:
        """A bound on the total of non-negative tables with f at most ``upper``.

        If the queries of a part add up to at least c in every cell, then ``c t <= 1'F x`` and
        ``1'F x <= 1'y + sqrt(1'W^-1 1) sqrt(2 f)``.
        """
        found = np.inf
        for part in self.fit.parts:
            sums = np.asarray(part.term.adjoint(np.ones(part.term.rows)))
            least = float(sums.min())
            if least > 0 and (part.weights > 0).all():
                spread = sqrt(2 * max(upper, 0.0) * float((1 / part.weights).sum()))
                found = min(found, (float(part.values.sum()) + spread) / least)
        return max(found, 0.0)

    def push(self, r: Array) -> list[Array]:
        """``E r`` as stacked tables."""
        tops, lows = self._views(r)
        out = [t.copy() for t in tops]
        for g, links in enumerate(self.layout.links):
            self.layout.spread(g, [lows[k.stack][k.rows] for k in links], out[g])
        return out

    def pull(self, tables: Sequence[Array]) -> Array:
        """``E'`` of stacked tables."""
        r = np.zeros_like(self.heights)
        tops, lows = self._views(r)
        for g, table in enumerate(tables):
            own = self.layout.own(g, table)
            self.layout.gather(lows, g, own, np.ones(len(table)))
            tops[g][...] = table
            self.layout.spread(g, [-part for part in own], tops[g])
        return r

    def _slope(self, tables: Sequence[Array], *, curves: bool = False) -> Array:
        """The gradient of f by residuals; with ``curves`` its linear part alone, ``H r``."""
        read = self.layout.by_set(tables, self.fit.sets)
        answers = self.fit.answers(read)
        if curves:
            pairs = zip(answers, self.fit.parts, strict=True)
            answers = [a + p.values for a, p in pairs]
        out = [np.zeros((len(s.sets), *s.shape)) for s in self.layout.tops]
        for names, table in self.fit.gradient(answers).items():
            whole = self.layout.holders[names]
            g, t = self.layout.places[whole]
            kept = [
                n if name in names else 1 for name, n in zip(whole, out[g].shape[1:], strict=True)
            ]
            out[g][t] += table.reshape(kept)
        return self.pull(out)

    def _solve(
        self, start: Array, weights: Array, wanted: Array, total: float | None, turns: int
    ) -> Array:
        """``argmin f(r) + 1/2 r'diag(weights) r - wanted'r``, from ``start``, at the total."""
        r = start.copy()
        if total is not None:
            r[self._empty] = total
        self._hold(r)
        scale = self.heights + weights
        inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        inverse[self._empty] *= total is None
        if self.limits is not None:
            inverse[self._held] = 0.0
        slope = self._slope(self.push(r))
        rest = wanted - weights * r - slope
        ready = inverse * rest
        direction, size = ready.copy(), float(rest @ ready)
        # Steps along what rounding leaves of a gradient go anywhere.
        largest = np.abs(wanted) + np.abs(weights * r) + np.abs(slope)
        enough = max(size * REDUCTION**2, ROUNDING**2 * float(inverse @ largest**2))
        for _ in range(turns):
            if not size > enough:
                break
            bent = self._slope(self.push(direction), curves=True) + weights * direction
            curvature = float(direction @ bent)
            if not curvature > 0:
                break
            step = size / curvature
            r += step * direction
            rest -= step * bent
            ready = inverse * rest
            before, size = size, float(rest @ ready)
            direction = ready + (size / before) * direction
        return r

    def _hold(self, r: Array) -> None:
        """Set the known residuals, in place."""
        if self.limits is not None:
            tops, lows = self._views(r)
            self.limits.hold_lows(lows)
            for g, (top, held) in enumerate(zip(tops, self.limits.top_held, strict=True)):
                top[held] = self.limits.top_residuals(g)[held]

    @property
    def _held(self) -> Mask:
        """Which coordinates are known."""
        marks = np.zeros_like(self.heights)
        if self.limits is not None:
            for views, helds in zip(
                self._views(marks), (self.limits.top_held, self.limits.low_held), strict=True
            ):
                for view, held in zip(views, helds, strict=True):
                    view[held] = 1.0
        return np.asarray(marks > 0)

    @property
    def _empty(self) -> int:
        return len(self.heights) - 1

    def _diagonal(self, pulls: Sequence[Array]) -> Array:
        """``E' diag(pulls) E``."""
        out = np.empty_like(self.heights)
        tops, lows = self._views(out)
        for top, pull in zip(tops, pulls, strict=True):
            top[...] = along(pull, top)
        for low, weight in zip(lows, self.layout.low_weights(pulls), strict=True):
            low[...] = along(weight, low)
        return out

    def _views(self, r: Array) -> tuple[list[Array], list[Array]]:
        return _views(self.layout, r)


def _views(layout: Layout, r: Array) -> tuple[list[Array], list[Array]]:
    """The stacks within one vector; the total comes last."""
    at = 0

    def cut(sizes: tuple[int, ...]) -> Array:
        nonlocal at
        size = int(np.prod(sizes))
        at += size
        return r[at - size : at].reshape(sizes)

    tops = [cut((len(s.sets), *s.shape)) for s in layout.tops]
    order = [g for g in range(len(layout.lows)) if g != layout.empty] + [layout.empty]
    lows = {g: cut((len(layout.lows[g].sets), *layout.lows[g].shape)) for g in order}
    return tops, [lows[g] for g in range(len(layout.lows))]


def curved(fit: Fit, layout: Layout) -> Curved:
    """The general form, started from the least squares without constraints."""
    model = model_of(fit, layout)
    count = layout.cells + sum(len(s.sets) * s.cells for s in layout.lows)
    heights, nothing = np.zeros(count), np.zeros(count)
    tops, lows = _views(layout, heights)
    for views, given in ((tops, model.top_heights), (lows, model.low_heights)):
        for view, h in zip(views, given, strict=True):
            view[...] = along(h, view)
    form = Curved(fit, layout, model, heights, nothing)
    form.centre = form._solve(nothing, nothing, nothing, None, FIRST_TURNS)
    form.last = form.centre.copy()
    form.last_dual = form.centre.copy()
    return form
