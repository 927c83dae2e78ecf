# SPDX-License-Identifier: Apache-2.0
"""A fit in the coordinates of residuals, where its curvature is diagonal.

For products of query sets with ``Q'Q = a I + b J`` (tables, totals, centred tables) and one weight
per part, as asked or measured, f is a sum of squares of its own for every residual:

    f(r) = f(c) + 1/2 sum_A h_A |r_A - c_A|^2,
    h_A = sum_{parts over B holding A} w prod_{i in A} a_i prod_{i in B - A} (a_i + n_i b_i) / n_i.

So f is the metric of the true covariance of the noise wherever the measured queries are the
residuals themselves. Other fits have no such form (``diagonal`` is None).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import prod, sqrt

import numpy as np

from sfumato.refine.reconstruct import Fit, Part
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.residuals import Layout, Limits, centred
from sfumato.types import Array, Mask, Names
from sfumato.workload.queries import QuerySet

__all__ = [
    "Curved",
    "Diagonal",
    "agreement",
    "along",
    "curved",
    "diagonal",
    "least_total",
    "model_of",
    "squares_of",
]


Pair = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Diagonal:
    """``heights`` h and ``centres`` c, for the maximal sets and for their proper subsets."""

    layout: Layout
    top_heights: list[Array]
    top_centres: list[Array]
    low_heights: list[Array]
    low_centres: list[Array]
    base: float
    limits: Limits | None = None

    def tells_total(self) -> bool:
        """Whether f bounds the total."""
        return bool(self.low_heights[self.layout.empty][0] > 0)

    def minimise(self, tables: list[Array], pulls: Sequence[Array], total: float | None) -> None:
        """Replace ``v`` by ``E r`` of least ``f(r) + 1/2 sum_S pull_S |x_S - v_S|^2``, in place."""
        layout = self.layout
        own = [layout.own(g, v) for g, v in enumerate(tables)]
        pulled, weights = layout.zeros(), layout.low_weights(pulls)
        for g, parts in enumerate(own):
            layout.gather(pulled, g, parts, pulls[g])
        lows = []
        for h, c, q, e in zip(self.low_heights, self.low_centres, pulled, weights, strict=True):
            lows.append((along(h, c) * c + q) / along(h + e, c))
        if total is not None:
            lows[layout.empty][:] = total
        if self.limits is not None:
            self.limits.hold_lows(lows)
        for g, v in enumerate(tables):
            kept = pulls[g] / (self.top_heights[g] + pulls[g])
            v -= self.top_centres[g]
            v *= along(kept, v)
            v += self.top_centres[g]
            pairs = zip(layout.links[g], own[g], strict=True)
            fields = [lows[k.stack][k.rows] - along(kept, o) * o for k, o in pairs]
            layout.spread(g, fields, v)
        if self.limits is not None:
            self.limits.hold_tops(tables)

    def value(self, tables: Sequence[Array]) -> float:
        """f of tables that agree."""
        layout, found, lows = self.layout, 0.0, self.layout.zeros()
        for g, x in enumerate(tables):
            own = layout.own(g, x)
            # Parts of different subsets are orthogonal: what is left is the top residual.
            squares = squares_of(x - self.top_centres[g])
            for link, part in zip(layout.links[g], own, strict=True):
                squares -= squares_of(part) / layout.dropped(g, link)
                lows[link.stack][link.rows] = part
            found += float(self.top_heights[g] @ np.maximum(squares, 0.0))
        for h, c, r in zip(self.low_heights, self.low_centres, lows, strict=True):
            found += float(h @ squares_of(r - c))
        return self.base + 0.5 * found

    def lower(self, forces: Sequence[Array], total: float | None, upper: float) -> float:  # noqa: ARG002
        """A lower bound on f over agreeing tables, non-negative and of the total.

        For forces of 0 or more ``min f >= min_r f(r) - <forces, E r>``, which is closed form; on
        cells that must be zero forces may have any sign.
        """
        return self.base + self.least(self.seen(forces) if self.unseen(total) else forces, total)

    def least(self, forces: Sequence[Array], total: float | None) -> float:
        """``min_r f(r) - f(c) - <forces, E r>`` over ``r``, its total given or 0 or more.

        Forces on residuals that f does not see must have been taken out (``seen``).
        """
        layout, found, pulled = self.layout, 0.0, self.layout.zeros()
        for g, force in enumerate(forces):
            own = layout.own(g, force)
            layout.gather(pulled, g, own, np.ones(len(force)))
            squares = squares_of(force)
            for link, part in zip(layout.links[g], own, strict=True):
                squares -= squares_of(part) / layout.dropped(g, link)
            h, c = self.top_heights[g], self.top_centres[g]
            if self.limits is not None and self.limits.top_held[g].any():
                held = self.limits.top_held[g]
                known = self.limits.top_residuals(g)[held]
                found += _at(h[held], c[held], force[held], known)
                h, c, force, squares = h[~held], c[~held], force[~held], squares[~held]
            found += _drop(h, np.maximum(squares, 0.0)) - float(np.vdot(force, c))
        for g, (h, c, q) in enumerate(zip(self.low_heights, self.low_centres, pulled, strict=True)):
            if g == layout.empty:
                found += least_total(float(h[0]), float(c[0]), float(q[0]), total)
                continue
            if self.limits is not None and self.limits.low_held[g].any():
                held = self.limits.low_held[g]
                found += _at(h[held], c[held], q[held], self.limits.low_values[g][held])
                h, c, q = h[~held], c[~held], q[~held]
            found += _drop(h, squares_of(q)) - float(np.vdot(q, c))
        return found

    def centre_tables(self, total: float | None) -> list[Array]:
        """``E c``, the least f without constraints; with another total where it is given."""
        lows = list(self.low_centres)
        if total is not None:
            lows[self.layout.empty] = np.full(1, total)
        out = [c.copy() for c in self.top_centres]
        if self.limits is not None:
            lows = [low.copy() for low in lows]
            self.limits.hold_lows(lows)
        for g, links in enumerate(self.layout.links):
            self.layout.spread(g, [lows[k.stack][k.rows] for k in links], out[g])
        if self.limits is not None:
            self.limits.hold_tops(out)
        return out

    def at(self, names: Names) -> tuple[float, Array]:
        """Height and centre of one set; zeros for a set that no part reads."""
        for places, heights, centres in (
            (self.layout.places, self.top_heights, self.top_centres),
            (self.layout.low_places, self.low_heights, self.low_centres),
        ):
            if names in places:
                g, t = places[names]
                return float(heights[g][t]), centres[g][t]
        return 0.0, np.zeros([self.layout.domain[n].size for n in names])

    def raise_height(self, names: Names, height: float) -> Array:
        """Add to the height of one set; its centre, to be changed in place."""
        is_top = names in self.layout.places
        g, t = (self.layout.places if is_top else self.layout.low_places)[names]
        (self.top_heights if is_top else self.low_heights)[g][t] += height
        return (self.top_centres if is_top else self.low_centres)[g][t, ...]

    def precisions(self) -> list[Array]:
        """Per table the inverse of the mean variance of a cell of ``E c``, were f exact."""
        out = []
        for g, (stack, h) in enumerate(zip(self.layout.tops, self.top_heights, strict=True)):
            variance = _inverse(h) * _free(stack.shape) / stack.cells
            for link in self.layout.links[g]:
                low = self.low_heights[link.stack][link.rows]
                size = _free(self.layout.lows[link.stack].shape)
                variance += _inverse(low) * size / (stack.cells * self.layout.dropped(g, link))
            out.append(np.where(variance > 0, 1 / np.maximum(variance, 1e-300), 1.0))
        return out

    def unseen(self, total: float | None) -> bool:
        """Whether some residual of more than one value has no height."""
        lows = any(
            (h == 0).any() and all(n > 1 for n in s.shape)
            for g, (h, s) in enumerate(zip(self.low_heights, self.layout.lows, strict=True))
            if g != self.layout.empty or total is None
        )
        pairs = zip(self.top_heights, self.layout.tops, strict=True)
        return lows or any((h == 0).any() and all(n > 1 for n in s.shape) for h, s in pairs)

    def seen(self, forces: Sequence[Array]) -> list[Array]:
        """The forces without their part on residuals that f does not see, raised to 0 or more."""
        layout, out = self.layout, [np.array(f) for f in forces]
        pulled, weights = layout.zeros(), layout.low_weights([np.ones(len(f)) for f in out])
        for g, force in enumerate(out):
            own = layout.own(g, force)
            layout.gather(pulled, g, own, np.ones(len(force)))
            blind = self.top_heights[g] == 0
            if self.limits is not None:
                blind &= ~self.limits.top_held[g]
            rest = np.zeros_like(force)
            layout.spread(g, own, rest)
            force[blind] = rest[blind]
        hidden = [
            np.where(along(h == 0, q), q / along(e, q), 0.0)
            for h, q, e in zip(self.low_heights, pulled, weights, strict=True)
        ]
        hidden[layout.empty][:] = 0.0
        if self.limits is not None:  # what is known need not be seen
            for low, held in zip(hidden, self.limits.low_held, strict=True):
                low[held] = 0.0
        for g, force in enumerate(out):
            layout.spread(g, [-hidden[k.stack][k.rows] for k in layout.links[g]], force)
            least = force.reshape(len(force), -1).min(axis=1)
            if self.limits is not None:
                least = self.limits.least(g, force)
            force -= along(np.minimum(least, 0.0), force)
        return out


def least_total(height: float, centre: float, force: float, total: float | None) -> float:
    """``min h/2 (t - c)^2 - q t`` at the given total, or over all of 0 or more."""
    if total is None:
        if height == 0:
            return 0.0 if force <= 0 else -np.inf
        total = max(0.0, centre + force / height)
    return 0.5 * height * (total - centre) ** 2 - force * total


def _at(heights: Array, centres: Array, forces: Array, known: Array) -> float:
    """``h/2 |r - c|^2 - <q, r>`` at known residuals."""
    return 0.5 * float(heights @ squares_of(known - centres)) - float(np.vdot(forces, known))


def _drop(heights: Array, squares: Array) -> float:
    """``-sum 1/2 |q|^2 / h`` over the residuals that f sees."""
    sees = heights > 0
    return -0.5 * float((squares[sees] / heights[sees]).sum())


def _inverse(heights: Array) -> Array:
    return np.divide(1.0, heights, out=np.zeros_like(heights), where=heights > 0)


def _free(shape: tuple[int, ...]) -> int:
    return prod(n - 1 for n in shape)


def along(values: Array, stacked: Array) -> Array:
    """One value per table, shaped to go with the stack."""
    return values.reshape(-1, *[1] * (stacked.ndim - 1))


def squares_of(stacked: Array) -> Array:
    """The sum of squares of every table of a stack."""
    flat = stacked.reshape(len(stacked), prod(stacked.shape[1:]))
    return np.asarray(np.einsum("ij,ij->i", flat, flat), dtype=np.float64)


def diagonal(fit: Fit, layout: Layout) -> Diagonal | None:
    """The diagonal form of a fit, where it has one."""
    known: dict[int, Pair | None] = {}
    shapes = [_eigenvalues(part, known) for part in fit.parts]
    if any(found is None for found in shapes):
        return None
    form = _empty_form(layout)
    for part, pairs in zip(fit.parts, shapes, strict=True):
        weight = float(part.weights[0]) if part.weights.size else 0.0
        if weight == 0 or pairs is None:
            continue
        names = part.term.attributes
        pulled = np.asarray(part.term.adjoint(weight * part.values)).reshape(part.term.shape)
        for subset, height, rest in _pieces(names, part.term.shape, pairs):
            if height > 0:
                axes = tuple(i for i, name in enumerate(names) if name not in subset)
                centre = form.raise_height(subset, weight * height)
                centre += centred(pulled.sum(axis=axes) / rest, range(len(subset)))
    tops = zip(form.top_heights, form.top_centres, strict=True)
    for heights, centres in (*tops, *zip(form.low_heights, form.low_centres, strict=True)):
        centres /= along(np.where(heights > 0, heights, 1.0), centres)
    least = fit.value(fit.answers(layout.by_set(form.centre_tables(None), fit.sets)))
    return replace(form, base=least)


def agreement(layout: Layout) -> Diagonal:
    """f = 0: its least values are the projections onto the tables that agree."""
    return _empty_form(layout)


def model_of(fit: Fit, layout: Layout) -> Diagonal:
    """The heights that a fit of any queries would have, were there two eigenvalues per attribute.

    Those off and along the constant, on average; the centres are zero.
    """
    form = _empty_form(layout)
    for part in fit.parts:
        term, product = part.term, part.term.as_product()
        weight = float(part.weights.mean()) if part.weights.size else 0.0
        if product is not None and all(
            q.size <= LIMITS.attribute_gram_cells for _, q in product.factors
        ):
            pairs = [_mean_eigenvalues(q) for _, q in product.factors]
        else:
            each = float(term.row_powers(2).sum()) / term.cells
            pairs = [(each if axis == 0 else 1.0,) * 2 for axis in range(len(term.shape))]
        for subset, height, _ in _pieces(term.attributes, term.shape, pairs):
            form.raise_height(subset, weight * height)
    return form


def _empty_form(layout: Layout) -> Diagonal:
    return Diagonal(
        layout,
        [np.zeros(len(s.sets)) for s in layout.tops],
        [np.zeros((len(s.sets), *s.shape)) for s in layout.tops],
        [np.zeros(len(s.sets)) for s in layout.lows],
        layout.zeros(),
        0.0,
    )


def _pieces(
    names: Names, shape: tuple[int, ...], pairs: Sequence[Pair]
) -> list[tuple[Names, float, float]]:
    """Every subset with its height at weight 1 and the cells along the rest."""
    out = []
    for size in range(len(names) + 1):
        for axes in combinations(range(len(names)), size):
            rest = [i for i in range(len(names)) if i not in axes]
            inside = prod(pairs[i][0] for i in axes)
            outside = prod(pairs[i][1] / shape[i] for i in rest)
            cells = float(prod(shape[i] for i in rest))
            out.append((tuple(names[i] for i in axes), inside * outside, cells))
    return out


def _eigenvalues(part: Part, known: dict[int, Pair | None]) -> list[Pair] | None:
    """Per attribute the eigenvalues of Q'Q off and along the constant, where it has only two."""
    term, weights = part.term.as_product(), part.weights
    if term is None or (weights.size and np.ptp(weights) > 0):
        return None
    found = []
    for _, queries in term.factors:
        if id(queries) not in known:
            known[id(queries)] = _two_eigenvalues(queries)
        pair = known[id(queries)]
        if pair is None:
            return None
        found.append(pair)
    return found


def _two_eigenvalues(queries: QuerySet) -> Pair | None:
    n = queries.size
    if queries.is_identity:
        return 1.0, 1.0
    if n > LIMITS.attribute_gram_cells:
        return None
    off, along_constant = _mean_eigenvalues(queries)
    model = np.full((n, n), (along_constant - off) / n)
    model[np.diag_indices(n)] += off
    slack = LIMITS.eigenvalue_rounding * n * max(off, along_constant)
    return (off, along_constant) if np.allclose(queries.gram(), model, rtol=0, atol=slack) else None


def _mean_eigenvalues(queries: QuerySet) -> Pair:
    """Of Q'Q: the mean off the constant, and that along it."""
    n, gram = queries.size, queries.gram()
    along_constant = float(gram.sum()) / n
    off = (float(np.trace(gram)) - along_constant) / (n - 1) if n > 1 else along_constant
    greatest = max(abs(off), abs(along_constant))
    # Coefficients are multiples of a power of two: only rounding makes an eigenvalue this small.
    off, along_constant = (
        0.0 if abs(e) <= LIMITS.eigenvalue_rounding * greatest else e for e in (off, along_constant)
    )
    return off, along_constant


# --------------------
# A fit of any queries in the coordinates of residuals: least values by conjugate gradients.
#
# Prefixes, ranges, groups, explicit matrices and uneven weights have a curvature ``H = E'F'WFE``
# that mixes residuals. What the splitting of ``local.py`` needs of it are solutions of ``(H +
# E'PE) r = b``; E'PE is diagonal, and the diagonal form that H would have if every ``Q'Q`` had two
# eigenvalues is the preconditioner (Hestenes, Stiefel 1952, "Methods of conjugate gradients for
# solving linear systems").
#
# Solutions are approximate, bounds are not. For any r0 with ``g = grad f(r0)`` and any tables
# ``lambda`` with ``E' lambda = E' g``, convexity gives for all agreeing x >= 0 of total t
#
# |   f(x) >= f(r0) - <g, r0> + <lambda, x> >= f(r0) - <g, r0> + t sum_S min lambda_S.
#
# Multipliers that miss ``E' lambda = E' g`` a little are moved onto it, which is closed form.


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
        self.last = self._solve(self.last, weights, wanted, total, LIMITS.step_turns)
        for table, found in zip(tables, self.push(self.last), strict=True):
            table[...] = found

    def value(self, tables: Sequence[Array]) -> float:
        """f of tables that agree."""
        return self.fit.value(self.fit.answers(self.layout.by_set(tables, self.fit.sets)))

    def lower(self, forces: Sequence[Array], total: float | None, upper: float) -> float:
        """A lower bound on f over agreeing tables, non-negative and of the total, from forces."""
        none = np.zeros_like(self.heights)
        ones = self._diagonal([np.ones(len(f)) for f in forces])
        r = self._solve(self.last_dual, none, self.pull(forces), total, LIMITS.bound_turns)
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
        enough = max(
            size * LIMITS.turn_reduction**2,
            LIMITS.gradient_rounding**2 * float(inverse @ largest**2),
        )
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
    form.centre = form._solve(nothing, nothing, nothing, None, LIMITS.bound_turns)
    form.last = form.centre.copy()
    form.last_dual = form.centre.copy()
    return form
