# SPDX-License-Identifier: Apache-2.0
"""Local consistency: project noisy answers onto tables that could be margins, as far as pairs tell.

The answers that data can have form a convex body K; projecting noisy ones onto it never adds error
(Nikolov, Talwar, Zhang 2013, "The geometry of differential privacy: the sparse and approximate
cases"). K has no small description once tables overlap, so this projects onto the body

    L = {a table for every maximal asked set: non-negative, of total n, the same on shared margins},

which holds K and which linear constraints describe (Wainwright, Jordan 2008, "Graphical models,
exponential families, and variational inference", section 4.1). Every property of a projection that
rests on the truth being in the body holds for L too.

    x  <-  argmin over agreeing tables of  f(x) + 1/2 sum_S p_S |x_S - v_S|^2,    v = |w|
    w  <-  w + step (x - max(w, 0))

is the splitting of Douglas and Rachford (Eckstein, Bertsekas 1992): agreement is closed form in
residuals (``residuals.Diagonal``; for other fits ``Curved``), non-negativity in cells. Its
multipliers ``p max(-w, 0)`` are feasible for the dual, so every check gives a lower bound on the
minimum of f, and tables made feasible (``feasible_tables``, ``ConstrainedTables``) an upper one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite, sqrt

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.random import Draws
from sfumato.refine.reconstruct import Fit
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.residuals import (
    Diagonal,
    TableConstraints,
    TableLayout,
    agreement,
    along,
    constraints_on,
    layout,
    model_of,
    parted,
)
from sfumato.refine.row_problem import layout as row_layout
from sfumato.refine.row_problem import make_possible, meet_published
from sfumato.solve.effort import ADDED_UP, deadline, effort, must_stop, spend
from sfumato.types import Array, Integers, Mask, Names, SearchProgress
from sfumato.workload.constraints import Constraints, agreed_total
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

__all__ = [
    "ConstrainedTables",
    "Curved",
    "LocalTables",
    "curved",
    "feasible_tables",
    "project_locally",
]


@dataclass(frozen=True, eq=False)
class LocalTables:
    """Tables that agree, are non-negative and have one total; ``tables`` by maximal set.

    ``value`` is f at them and exceeds the least over all such tables by at most ``gap``; so in the
    metric of f they are within ``distance`` of the projection.
    """

    domain: Domain
    tables: dict[Names, Array]
    answers: list[Array]
    value: float
    gap: float
    steps: int

    @property
    def total(self) -> float:
        """The common total."""
        return float(next(iter(self.tables.values())).sum())

    @property
    def lower(self) -> float:
        """No locally consistent tables, so no data, have f below this."""
        return max(0.0, self.value - self.gap)

    @property
    def distance(self) -> float:
        """``|F x - F x*|_W <= sqrt(2 gap)``: f is strongly convex in its own metric."""
        return sqrt(2 * self.gap)

    def margin(self, names: Sequence[str]) -> Array:
        """The margin over any attributes that were asked about together, axes in domain order."""
        ordered = self.domain.in_order(names)
        for whole, table in self.tables.items():
            if set(ordered) <= set(whole):
                rest = tuple(i for i, n in enumerate(whole) if n not in ordered)
                return np.asarray(table.sum(axis=rest), dtype=np.float64)
        raise WorkloadError(
            f"no table holds {', '.join(ordered)} together; margins are known within: "
            + "; ".join(" x ".join(s) for s in list(self.tables)[:8])
        )


def project_locally(
    fit: Fit,
    n: float | None,
    *,
    gap: float = LIMITS.relaxation_gap,
    enough: float = 0.0,
    steps: int = LIMITS.local_steps,
    seconds: float | None = None,
    constraints: Constraints | None = None,
    progress: SearchProgress | None = None,
) -> LocalTables:
    """The locally consistent tables of total ``n`` (None: any) of least f, within ``gap`` of it.

    ``gap`` is relative to the value (an absolute one of ``enough`` will do as well); the result
    has the gap that was reached, for the search ends after ``steps`` (about five minutes at most)
    or ``seconds`` (None: no clock) too. With ``constraints``, published
    tables are margins of the result, and a cell is zero where no record can be in it; what is
    impossible only across tables is not seen.
    """
    _check(fit, n, gap)
    n = agreed_total(n, constraints)
    sets = fit.sets if any(fit.sets) else (_shortest(fit.domain),)
    named = {name for names in sets for name in names}
    published = () if constraints is None else constraints.published_for(named)
    shape = layout(fit.domain, (*sets, *(t.names for t in published)))
    plain, mixing = parted(fit, shape)
    form: Diagonal | Curved = curved(fit, shape, plain, mixing) if mixing.parts else plain
    fixed = None if constraints is None else constraints_on(constraints, shape, published)
    if fixed is not None:
        form = form.within(fixed)
    if n is None and not form.tells_total():
        raise WorkloadError(
            "the queries do not bound the total; give the number of records, or measure it"
        )
    inside = None
    if fixed is not None and constraints is not None:
        inside = ConstrainedTables(fixed, constraints, _one_way(shape, form.centre_tables(n)))
    with effort("local", deadline(seconds), steps=LIMITS.relaxation_multiplications):
        return _Splitting(fit, shape, form, n, inside).run(gap, enough, steps, progress)


def _one_way(shape: TableLayout, tables: Sequence[Array]) -> dict[str, Array]:
    names = [(name,) for name in {n for stack in shape.tops for s in stack.sets for n in s}]
    return {s[0]: t for s, t in shape.by_set(tables, names).items()}


def _shortest(domain: Domain) -> Names:
    """An attribute to stand for a table when only the total is asked."""
    return (min(domain.names, key=lambda name: domain[name].size),)


def _check(fit: Fit, n: float | None, gap: float) -> None:
    if n is not None and not (isfinite(n) and n >= 0):
        raise WorkloadError(f"the number of records must be 0 or more, got {n}; None if not public")
    if not (isfinite(gap) and gap >= 0):
        raise WorkloadError(f"the gap must be a number of 0 or more, got {gap}")
    if not fit.parts:
        raise WorkloadError("there is nothing to project: the fit has no parts")
    for part in fit.parts:
        if not (np.isfinite(part.values).all() and np.isfinite(part.weights).all()):
            raise WorkloadError(f"group {part.term.name!r} has a value that is not a finite number")


class _Splitting:
    """The state of one projection: w per stack, the pull of each table, the best lower bound."""

    def __init__(
        self,
        fit: Fit,
        shape: TableLayout,
        form: Diagonal | Curved,
        n: float | None,
        inside: ConstrainedTables | None = None,
    ) -> None:
        self.fit, self.shape, self.form, self.n, self.inside = fit, shape, form, n, inside
        is_cut = inside is not None and inside.fixed.has_zeros
        self.zeros = inside.fixed.zeros if inside is not None and is_cut else None
        self.pulls = [LIMITS.local_pull * p for p in form.precisions()]
        self.w = form.centre_tables(n)
        self.lower = 0.0  # f is a sum of squares

    def run(
        self, gap: float, enough: float, steps: int, progress: SearchProgress | None
    ) -> LocalTables:
        whole = self.fit.value([np.zeros_like(p.values) for p in self.fit.parts])
        floor = max(LIMITS.gap_rounding * whole, enough)
        cells = float(sum(w.size for w in self.w))
        step, check, changes, raised = 0, LIMITS.steps_between_bounds, LIMITS.local_changes, 0
        while True:
            step += 1
            spend(16 * ADDED_UP * cells)  # several passes over all tables
            x = self._reflected()
            self.form.minimise(x, self.pulls, self.n)
            last = step >= steps or must_stop()
            if step < check and not last:
                self._move(x)
                continue
            check = step + max(LIMITS.steps_between_bounds, step // 5)
            relaxed = self.form.value(x)
            upper, best = self._feasible(x)
            self.lower = max(self.lower, self.form.lower(self._forces(), self.n, upper))
            reached = upper - self.lower
            if progress is not None:
                progress(step, reached / max(upper, floor, LIMITS.gap_denominator))
            if reached <= max(gap * upper, floor) or last:
                return self._result(best, step)
            self._move(x)
            # Stronger pulls help feasibility, weaker ones the multipliers: even the two out, but
            # never below the start, where x follows w too slowly.
            infeasible, unproved = upper - relaxed, abs(relaxed - self.lower)
            if infeasible > LIMITS.local_balance * unproved and changes > 0:
                changes -= 1
                raised += 1
                self._rebalance(2.0)
            elif unproved > LIMITS.local_balance * infeasible and raised > 0:
                raised -= 1
                self._rebalance(0.5)

    def _reflected(self) -> list[Array]:
        """``2 P(w) - w``, P the nearest table that is non-negative, and zero where it must be."""
        out = [np.abs(w) for w in self.w]
        if self.zeros is not None:
            for v, w, zero in zip(out, self.w, self.zeros, strict=True):
                v[zero] = -w[zero]
        return out

    def _nearest(self, g: int) -> Array:
        """``P(w)``."""
        out = np.maximum(self.w[g], 0.0)
        if self.zeros is not None:
            out[self.zeros[g]] = 0.0
        return out

    def _move(self, x: list[Array]) -> None:
        for g, (w, solution) in enumerate(zip(self.w, x, strict=True)):
            solution -= self._nearest(g)
            solution *= LIMITS.local_step
            w += solution

    def _rebalance(self, factor: float) -> None:
        """Other pulls with the same multipliers."""
        for g, w in enumerate(self.w):
            self.pulls[g] = self.pulls[g] * factor
            multiplies = w < 0 if self.zeros is None else (w < 0) | self.zeros[g]
            self.w[g] = np.where(multiplies, w / factor, w)

    def _forces(self) -> list[Array]:
        pairs = enumerate(zip(self.pulls, self.w, strict=True))
        return [along(p, w) * (self._nearest(g) - w) for g, (p, w) in pairs]

    def _feasible(self, x: list[Array]) -> tuple[float, list[Array]]:
        """The best of the feasible tables that are found, and of the lines between them."""
        total = max(0.0, float(x[0][0].sum())) if self.n is None else self.n
        if self.inside is not None:
            only = self.inside.feasible(x, total)
            return self.form.value(only), only
        made = feasible_tables(self.shape, x, total)
        best = next(made)
        value = self.form.value(best)
        for other in made:
            end = self.form.value(other)
            middle = self.form.value([(a + b) / 2 for a, b in zip(best, other, strict=True)])
            # f along the line is the parabola through its values at 0, 1/2 and 1.
            bend = value + end - 2 * middle
            share = (3 * value + end - 4 * middle) / (4 * bend) if bend > 0 else float(end < value)
            share = min(max(share, 0.0), 1.0)
            for a, b in zip(best, other, strict=True):
                a *= 1 - share
                a += share * b
            value = self.form.value(best)
        return value, best

    def _result(self, best: list[Array], step: int) -> LocalTables:
        answers = self.fit.answers(self.shape.by_set(best, self.fit.sets))
        value = self.fit.value(answers)
        tables = {s: best[g][t] for s, (g, t) in self.shape.places.items()}
        gap = max(0.0, value - self.lower)
        return LocalTables(self.fit.domain, tables, answers, value, gap, step)


# Fits that mix residuals


@dataclass(eq=False)
class Curved:
    """A fit of any queries in the coordinates of residuals: minima by conjugate gradients.

    Prefixes, ranges, groups, explicit matrices and uneven weights have a curvature ``H = E'F'WFE``
    that mixes residuals. What the splitting needs of it are solutions of ``(H + E'PE) r = b``; E'PE
    is diagonal, and the diagonal form that H would have if every ``Q'Q`` had two eigenvalues
    (``model``) is the preconditioner (Hestenes, Stiefel 1952, "Methods of conjugate gradients for
    solving linear systems"). ``last`` is the solution of the last step, where the next one starts.
    Parts whose ``Q'Q`` have two eigenvalues have the slope ``plain_heights (r - plain_centres)``;
    only the ``mixing`` parts are answered, by the residuals of their own sets.

    Solutions are approximate, bounds are not. For any r0 with ``g = grad f(r0)`` and any tables
    ``lambda`` with ``E' lambda = E' g``, convexity gives for all agreeing x >= 0 of total t

        f(x) >= f(r0) - <g, r0> + <lambda, x> >= f(r0) - <g, r0> + t sum_S min lambda_S.

    Multipliers that miss ``E' lambda = E' g`` a little are moved onto it, which is closed form.
    """

    fit: Fit
    layout: TableLayout
    model: Diagonal
    heights: Array
    centre: Array
    plain_heights: Array
    plain_centres: Array
    mixing: MixingParts
    constraints: TableConstraints | None = None
    last: Array = field(init=False)
    last_dual: Array = field(init=False)

    def __post_init__(self) -> None:
        self.last, self.last_dual = self.centre.copy(), self.centre.copy()

    def within(self, constraints: TableConstraints) -> Curved:
        """The same form with fixed residuals and cells that are zero."""
        return replace(self, constraints=constraints)

    def precisions(self) -> list[Array]:
        """The precisions of the model, per table."""
        return self.model.precisions()

    def tells_total(self) -> bool:
        """Whether the total of tables of bounded f is bounded."""
        return bool(np.isfinite(self.maximum_total(1.0)))

    def centre_tables(self, total: float | None) -> list[Array]:
        """The tables of minimum f without constraints, nearly."""
        r = self.centre.copy()
        if total is not None:
            r[self._empty] = total
        self._hold(r)
        return self.push(r)

    def minimise(self, tables: list[Array], pulls: Sequence[Array], total: float | None) -> None:
        """Replace ``v`` by ``E r`` of nearly least ``f + 1/2 sum_S pull_S |x_S - v_S|^2``."""
        weights = self._diagonal(pulls)
        goal = self.pull([along(p, v) * v for p, v in zip(pulls, tables, strict=True)])
        self.last = self._solve(self.last, weights, goal, total, LIMITS.step_turns)
        for table, solution in zip(tables, self.push(self.last), strict=True):
            table[...] = solution

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
        slope = self._slope(r)
        missing = slope - self.pull(forces)
        fixed_part = self._fixed_product(missing, r)
        # E (E'E)^-1 of what is missing: afterwards E' of the forces is the slope.
        moved = self.push(missing / ones)
        minimum = 0.0
        for g, (f, m) in enumerate(zip(forces, moved, strict=True)):
            every = (f + m).reshape(len(f), -1).min(axis=1)
            minimum += float(
                (every if self.constraints is None else self.constraints.minimum(g, f + m)).sum()
            )
        if total is None:
            total = 0.0 if minimum >= 0 else self.maximum_total(upper)
        return self.value(tables) - float(slope @ r) + total * minimum + fixed_part

    def _fixed_product(self, missing: Array, r: Array) -> float:
        """``<missing, r>`` over fixed residuals, which then need not be matched: set to 0 there."""
        if self.constraints is None:
            return 0.0
        held = self._held
        product = float(missing[held] @ r[held])
        missing[held] = 0.0
        return product

    def maximum_total(self, upper: float) -> float:
        """A bound on the total of non-negative tables with f at most ``upper``.

        If the queries of a part add up to at least c in every cell, then ``c t <= 1'F x`` and
        ``1'F x <= 1'y + sqrt(1'W^-1 1) sqrt(2 f)``.
        """
        bound = np.inf
        for part in self.fit.parts:
            sums = np.asarray(part.term.adjoint(np.ones(part.term.rows)))
            minimum = float(sums.min())
            if minimum > 0 and (part.weights > 0).all():
                spread = sqrt(2 * max(upper, 0.0) * float((1 / part.weights).sum()))
                bound = min(bound, (float(part.values.sum()) + spread) / minimum)
        return max(bound, 0.0)

    def push(self, r: Array) -> list[Array]:
        """``E r`` as stacked tables."""
        return _push(self.layout, r)

    def pull(self, tables: Sequence[Array]) -> Array:
        """``E'`` of stacked tables."""
        return _pull(self.layout, tables)

    def _slope(self, r: Array, *, curves: bool = False) -> Array:
        """The gradient of f by residuals; with ``curves`` its linear part alone, ``H r``."""
        out = self.plain_heights * (r if curves else r - self.plain_centres)
        self.mixing.add_slope(out, r, curves=curves)
        return out

    def _solve(
        self, start: Array, weights: Array, goal: Array, total: float | None, turns: int
    ) -> Array:
        """``argmin f(r) + 1/2 r'diag(weights) r - goal'r``, from ``start``, at the total."""
        r = start.copy()
        if total is not None:
            r[self._empty] = total
        self._hold(r)
        scale = self.heights + weights
        inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        inverse[self._empty] *= total is None
        if self.constraints is not None:
            inverse[self._held] = 0.0
        slope = self._slope(r)
        rest = goal - weights * r - slope
        ready = inverse * rest
        direction, size = ready.copy(), float(rest @ ready)
        # Steps along what rounding leaves of a gradient go anywhere.
        sizes = np.abs(goal) + np.abs(weights * r) + np.abs(slope)
        enough = max(
            size * LIMITS.turn_reduction**2,
            LIMITS.gradient_rounding**2 * float(inverse @ sizes**2),
        )
        for _ in range(turns):
            if not size > enough:
                break
            bent = self._slope(direction, curves=True) + weights * direction
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
        """Set the fixed residuals, in place."""
        if self.constraints is not None:
            tops, lows = self._views(r)
            self.constraints.hold_lows(lows)
            for g, (top, held) in enumerate(zip(tops, self.constraints.top_held, strict=True)):
                top[held] = self.constraints.top_residuals(g)[held]

    @property
    def _held(self) -> Mask:
        """Which coordinates are fixed."""
        marks = np.zeros_like(self.heights)
        if self.constraints is not None:
            for views, helds in zip(
                self._views(marks),
                (self.constraints.top_held, self.constraints.low_held),
                strict=True,
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


@dataclass(frozen=True, eq=False)
class MixingParts:
    """The parts of a fit that mix residuals, over the subsets of their own attributes alone.

    ``places`` says where the residuals of ``layout`` stand among those of the whole fit: a margin
    of a table has the residuals of its subsets and no others.
    """

    fit: Fit
    layout: TableLayout
    places: Integers

    def add_slope(self, out: Array, r: Array, *, curves: bool) -> None:
        """Add the gradient of these parts by residuals, or its linear part, in place."""
        tables = _push(self.layout, r[self.places])
        answers = self.fit.answers(self.layout.by_set(tables, self.fit.sets))
        if curves:
            answers = [a + p.values for a, p in zip(answers, self.fit.parts, strict=True)]
        slopes = [np.zeros((len(s.sets), *s.shape)) for s in self.layout.tops]
        for names, table in self.fit.gradient(answers).items():
            whole = self.layout.holders[names]
            g, t = self.layout.places[whole]
            shape = [
                n if name in names else 1
                for name, n in zip(whole, slopes[g].shape[1:], strict=True)
            ]
            slopes[g][t] += table.reshape(shape)
        out[self.places] += _pull(self.layout, slopes)


def _mixing(fit: Fit, whole: TableLayout, count: int) -> MixingParts:
    """Mixing parts placed among the ``count`` residuals of a layout."""
    own = layout(fit.domain, fit.sets if any(fit.sets) else whole.tops[0].sets[:1])
    tops, lows = _views(whole, np.arange(count, dtype=np.float64))
    places = []
    for stacks in (own.tops, [own.lows[g] for g in _low_order(own)]):
        for names in (n for stack in stacks for n in stack.sets):
            views, at = (tops, whole.places) if names in whole.places else (lows, whole.low_places)
            g, t = at[names]
            places.append(views[g][t].reshape(-1))
    return MixingParts(fit, own, np.concatenate(places).astype(np.int64))


def _push(layout: TableLayout, r: Array) -> list[Array]:
    tops, lows = _views(layout, r)
    out = [t.copy() for t in tops]
    for g, links in enumerate(layout.links):
        layout.spread(g, [lows[k.stack][k.rows] for k in links], out[g])
    return out


def _pull(layout: TableLayout, tables: Sequence[Array]) -> Array:
    r = np.zeros(layout.cells + sum(len(s.sets) * s.cells for s in layout.lows))
    tops, lows = _views(layout, r)
    for g, table in enumerate(tables):
        own = layout.own(g, table)
        layout.gather(lows, g, own, np.ones(len(table)))
        tops[g][...] = table
        layout.spread(g, [-part for part in own], tops[g])
    return r


def _views(layout: TableLayout, r: Array) -> tuple[list[Array], list[Array]]:
    """The stacks within one vector; the total comes last."""
    at = 0

    def cut(sizes: tuple[int, ...]) -> Array:
        nonlocal at
        size = int(np.prod(sizes))
        at += size
        return r[at - size : at].reshape(sizes)

    tops = [cut((len(s.sets), *s.shape)) for s in layout.tops]
    lows = {g: cut((len(layout.lows[g].sets), *layout.lows[g].shape)) for g in _low_order(layout)}
    return tops, [lows[g] for g in range(len(layout.lows))]


def _low_order(layout: TableLayout) -> list[int]:
    return [g for g in range(len(layout.lows)) if g != layout.empty] + [layout.empty]


def curved(fit: Fit, layout: TableLayout, plain: Diagonal, mixing: Fit) -> Curved:
    """The form of a fit of a diagonal and a mixing part, started from its free least squares."""
    model = model_of(fit, layout)
    count = layout.cells + sum(len(s.sets) * s.cells for s in layout.lows)
    heights, plain_heights, plain_centres = np.zeros((3, count))
    for vector, form in ((heights, model), (plain_heights, plain)):
        tops, lows = _views(layout, vector)
        for views, of_form in ((tops, form.top_heights), (lows, form.low_heights)):
            for view, h in zip(views, of_form, strict=True):
                view[...] = along(h, view)
    tops, lows = _views(layout, plain_centres)
    for view, centre in zip((*tops, *lows), (*plain.top_centres, *plain.low_centres), strict=True):
        view[...] = centre
    nothing = np.zeros(count)
    parts = _mixing(mixing, layout, count)
    out = Curved(fit, layout, model, heights, nothing, plain_heights, plain_centres, parts)
    out.centre = out._solve(nothing, nothing, nothing, None, LIMITS.bound_turns)
    out.last = out.centre.copy()
    out.last_dual = out.centre.copy()
    return out


# Tables made feasible


def feasible_tables(
    layout: TableLayout, tables: Sequence[Array], total: float
) -> Iterator[list[Array]]:
    """Candidates: non-negative tables of this total that agree, near agreeing ``tables``.

    An upper bound on a constrained minimum needs a point that keeps every constraint. Tables over
    two attributes are rounded to common one-way margins as transport plans are (Altschuler, Weed,
    Rigollet 2017, "Near-linear time approximation algorithms for optimal transport via Sinkhorn
    iteration", Algorithm 2): the change is at most twice the difference of the margins. Wider
    tables are mixed with the margins of a histogram that is positive wherever they are negative: a
    little of the uniform and the sum over all tables of what is negative still, spread evenly along
    the other attributes; or independence of all attributes, which is best while noise is all there
    is.
    """
    if total == 0:
        yield [np.zeros_like(x) for x in tables]
        return
    margins = _one_way_tables(layout, tables, total)
    if all(len(s.shape) <= 2 for s in layout.tops):
        yield _rounded(layout, tables, margins)
        return
    for share in LIMITS.even_shares:
        even = [np.full_like(x, total / s.cells) for x, s in zip(tables, layout.tops, strict=True)]
        for x, p in zip(tables, even, strict=True):
            p *= share
            p += (1 - share) * x
        yield _mixed(even, _patches(layout, even), total)
    yield _mixed(tables, _products(layout, margins, total), total)


def _one_way_tables(layout: TableLayout, tables: Sequence[Array], total: float) -> dict[str, Array]:
    """The one-way margins, cut at zero and scaled to the total."""
    out: dict[str, Array] = {}
    for stack, stacked in zip(layout.tops, tables, strict=True):
        for t, names in enumerate(stack.sets):
            for axis, name in enumerate(names):
                if name not in out:
                    others = tuple(i for i in range(len(names)) if i != axis)
                    out[name] = np.maximum(stacked[t].sum(axis=others), 0.0)
    for name, margin in out.items():
        mass = float(margin.sum())
        out[name] = (
            margin * (total / mass) if mass > 0 else np.full(len(margin), total / len(margin))
        )
    return out


def _rounded(
    layout: TableLayout, tables: Sequence[Array], margins: dict[str, Array]
) -> list[Array]:
    out = []
    for stack, stacked in zip(layout.tops, tables, strict=True):
        if len(stack.shape) < 2:
            out.append(np.stack([margins[names[0]] for names in stack.sets]))
            continue
        x = np.maximum(stacked, 0.0)
        first = np.stack([margins[names[0]] for names in stack.sets])
        second = np.stack([margins[names[1]] for names in stack.sets])
        x *= _shrink(first, x.sum(axis=2))[:, :, None]
        x *= _shrink(second, x.sum(axis=1))[:, None, :]
        rows = np.maximum(first - x.sum(axis=2), 0.0)
        columns = np.maximum(second - x.sum(axis=1), 0.0)
        missing = columns.sum(axis=1)
        scale = np.divide(1.0, missing, out=np.zeros_like(missing), where=missing > 0)
        x += (rows * scale[:, None])[:, :, None] * columns[:, None, :]
        out.append(x)
    return out


def _shrink(goal: Array, got: Array) -> Array:
    return np.minimum(1.0, np.divide(goal, got, out=np.ones_like(got), where=got > 0))


def _products(layout: TableLayout, margins: dict[str, Array], total: float) -> list[Array]:
    """Products of one-way shares, each mixed with the uniform: positive, and they agree."""
    shares = {
        k: (1 - LIMITS.independence_floor) * m / total + LIMITS.independence_floor / len(m)
        for k, m in margins.items()
    }
    out = []
    for stack in layout.tops:
        stacked = np.empty((len(stack.sets), *stack.shape))
        for t, names in enumerate(stack.sets):
            table = np.full((), total)
            for name in names:
                table = table[..., None] * shares[name]
            stacked[t] = table
        out.append(stacked)
    return out


def _patches(layout: TableLayout, tables: Sequence[Array]) -> list[Array]:
    """The margins of ``sum_S (negative part of x_S) (x) uniform``."""
    sums = layout.zeros()
    out, own = [np.maximum(-x, 0.0) for x in tables], []
    for g, patch in enumerate(out):
        own.append(layout.own(g, patch))
        for link, part in zip(layout.links[g], own[g], strict=True):
            np.add.at(sums[link.stack], link.rows, part)
    for g, patch in enumerate(out):
        pairs = zip(layout.links[g], own[g], strict=True)
        layout.spread(g, [sums[k.stack][k.rows] - part for k, part in pairs], patch)
        np.maximum(patch, 0.0, out=patch)  # rounding: a margin of a histogram is non-negative
    return out


def _mixed(tables: Sequence[Array], patch: list[Array], total: float) -> list[Array]:
    """``x + s p``, scaled to the total, with the least s that leaves no cell negative; in p."""
    share = 0.0
    for x, p in zip(tables, patch, strict=True):
        low = x < 0
        if low.any():
            share = max(share, float((-x[low] / p[low]).max()))
    mass = float(patch[0][0].sum())
    for x, p in zip(tables, patch, strict=True):
        p *= share
        p += x
        p *= total / (total + share * mass)
        np.maximum(p, 0.0, out=p)  # rounding
    return patch


@dataclass(frozen=True, eq=False)
class ConstrainedTables:
    """Tables that agree, are non-negative and meet constraints, near tables that nearly do.

    First the nearest agreeing tables with the fixed margins whose impossible cells are zero: a
    linear problem. With P the projection onto agreeing differences (closed form) and Z the
    impossible cells, ``x + P v`` for the v on Z with ``(P v)_Z = -x_Z``, by conjugate gradients
    (Hestenes, Stiefel 1952). Then as little as suffices of the margins of a histogram that meets
    the constraints and is positive in every possible cell of every table: possible rows in each of
    them and others drawn from the product of the one-way ``margins``, raked to what is published.
    """

    fixed: TableConstraints
    constraints: Constraints
    margins: dict[str, Array]

    def feasible(self, tables: Sequence[Array], total: float) -> list[Array]:
        """Tables of this total that meet the constraints, near agreeing ones with fixed margins."""
        if total == 0:
            return [np.zeros_like(x) for x in tables]
        moved = self._without_zeros(tables, total)
        share = 0.0
        for x, p in zip(moved, self._positive, strict=True):
            low = x < 0
            if low.any():
                share = max(share, float((-x[low] / (total * p[low] - x[low])).max()))
        out = []
        for x, p, zero in zip(moved, self._positive, self.fixed.zeros, strict=True):
            mixed = np.maximum((1 - share) * x + (share * total) * p, 0.0)  # rounding
            mixed[zero] = 0.0
            out.append(mixed)
        return out

    def _without_zeros(self, tables: Sequence[Array], total: float) -> list[Array]:
        """The nearest agreeing tables without anything on impossible cells."""
        out = [x.copy() for x in tables]
        zeros = self.fixed.zeros
        rest = [np.where(z, -x, 0.0) for x, z in zip(out, zeros, strict=True)]
        direction, size = [r.copy() for r in rest], _dot(rest, rest)
        enough = (LIMITS.zero_rounding * total) ** 2
        for _ in range(LIMITS.zero_turns):
            if not size > enough:
                break
            pushed = self._agreeing(direction)
            bend = _dot(pushed, direction)
            if not bend > 0:
                break
            step = size / bend
            for x, r, p, z in zip(out, rest, pushed, zeros, strict=True):
                x += step * p
                r -= np.where(z, step * p, 0.0)
            before, size = size, _dot(rest, rest)
            direction = [r + (size / before) * d for r, d in zip(rest, direction, strict=True)]
        for x, z in zip(out, zeros, strict=True):
            x[z] = 0.0
        return out

    @cached_property
    def _differences(self) -> TableConstraints:
        return self.fixed.differences()

    def _agreeing(self, tables: Sequence[Array]) -> list[Array]:
        """The nearest differences of agreeing tables with the same fixed margins."""
        form = replace(agreement(self.fixed.layout), constraints=self._differences)
        out = [x.copy() for x in tables]
        form.minimise(out, [np.ones(len(x)) for x in out], 0.0)
        return out

    @cached_property
    def _positive(self) -> list[Array]:
        """The margins of a histogram of total 1 that is positive in every possible cell."""
        codes, weights = self._rows()
        if self.constraints.published:
            met = meet_published(self.constraints, codes, weights)
            if met.off > WORKLOAD_LIMITS.published_gap:
                raise WorkloadError(
                    f"the published tables could not be met: counts are off by {met.off:.2g} of "
                    "all records; leave one of them out"
                )
            codes, weights = met.codes, met.weights / met.weights.sum()
        sizes = {a.name: a.size for a in self.constraints.domain}
        out = []
        for stack in self.fixed.layout.tops:
            tables = [row_layout(sizes, (s,)).margins(codes, weights) for s in stack.sets]
            out.append(np.stack(tables).reshape(len(tables), *stack.shape))
        return out

    def _rows(self) -> tuple[Integers, Array]:
        constraints, domain = self.constraints, self.constraints.domain
        cells = sum(int((~z).sum()) for z in self.fixed.zeros)
        if cells > LIMITS.inside_rows:
            raise TooLarge(
                f"the tables have {cells:,} possible cells together, at most "
                f"{LIMITS.inside_rows:,} are filled to keep constraints; ask about fewer "
                "attributes at once"
            )
        made = []
        for stack, zero in zip(self.fixed.layout.tops, self.fixed.zeros, strict=True):
            for names, z in zip(stack.sets, zero, strict=True):
                made.append(constraints.completed(names, np.argwhere(~z)))
        shares = []
        for a in domain:
            even = np.full(a.size, 1 / a.size)
            own = np.maximum(self.margins.get(a.name, even), 0.0)
            own = own / own.sum() if own.sum() > 0 else even
            shares.append((1 - LIMITS.inside_even_share) * own + LIMITS.inside_even_share * even)
        draws = Draws("local consistency")
        drawn = np.stack([_picked(p, draws.uniforms(LIMITS.inside_rows_drawn)) for p in shares])
        made.append(make_possible(constraints, drawn, shares, draws.uniforms))
        weights = np.full(
            cells + LIMITS.inside_rows_drawn,
            (1 - LIMITS.inside_cells_share) / LIMITS.inside_rows_drawn,
        )
        weights[:cells] = LIMITS.inside_cells_share / cells
        total = constraints.total
        return np.concatenate(made, axis=1), weights * (1.0 if total is None else total)


def _picked(share: Array, at: Array) -> Integers:
    edges = np.cumsum(share)
    places = np.searchsorted(edges, at * edges[-1], side="right")
    return np.asarray(np.minimum(places, len(share) - 1), dtype=np.int64)


def _dot(one: Sequence[Array], other: Sequence[Array]) -> float:
    return sum(float(np.vdot(a, b)) for a, b in zip(one, other, strict=True))
