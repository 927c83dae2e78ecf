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
residuals, non-negativity in cells. Its multipliers ``p max(-w, 0)`` are feasible for the dual, so
every check gives a lower bound on the least f, and tables made feasible an upper one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import Final

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.plan.effort import (
    ADDED_UP,
    STEPS_PER_SECOND,
    deadline,
    effort,
    must_stop,
    spend,
)
from sfumato.refine.cells.explicit import agreed_total
from sfumato.refine.fit import Fit, Names
from sfumato.refine.outer.curvature import Diagonal, along, diagonal
from sfumato.refine.outer.curved import Curved, curved
from sfumato.refine.outer.feasible import feasible_tables
from sfumato.refine.outer.inside import Inside
from sfumato.refine.outer.limits import limits_of
from sfumato.refine.outer.residuals import Layout, layout
from sfumato.workload.constraints import Constraints
from sfumato.workload.queries import Array

__all__ = ["LocalTables", "Progress", "project_locally"]

Progress = Callable[[int, float], None]

GAP: Final = 1e-6
STEPS: Final = 4000
MOST: Final = 300 * STEPS_PER_SECOND  # multiplications
FIRST_CHECK: Final = 10
STEP: Final = 1.8  # any below 2 converges
PULL: Final = 3.0  # against the precision of a cell
BALANCE: Final = 5.0  # how far two parts of the gap may differ before the pulls are changed
CHANGES: Final = 12
ROUNDING: Final = 1e-13
SMALLEST: Final = 1e-300


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
        wanted = self.domain.in_order(names)
        for whole, table in self.tables.items():
            if set(wanted) <= set(whole):
                rest = tuple(i for i, n in enumerate(whole) if n not in wanted)
                return np.asarray(table.sum(axis=rest), dtype=np.float64)
        raise WorkloadError(
            f"no table holds {', '.join(wanted)} together; margins are known within: "
            + "; ".join(" x ".join(s) for s in list(self.tables)[:8])
        )


def project_locally(
    fit: Fit,
    n: float | None,
    *,
    gap: float = GAP,
    enough: float = 0.0,
    steps: int = STEPS,
    seconds: float | None = None,
    constraints: Constraints | None = None,
    progress: Progress | None = None,
) -> LocalTables:
    """The locally consistent tables of total ``n`` (None: any) of least f, within ``gap`` of it.

    ``gap`` is relative to the value (an absolute one of ``enough`` will do as well); what was
    reached is in the result, whatever was asked for, for the search ends after ``steps`` (about
    five minutes at most) or ``seconds`` (None: no clock) too. With ``constraints``, published
    tables are margins of the result, and a cell is zero where no record can be in it; what is
    impossible only across tables is not seen.
    """
    _check(fit, n, gap)
    n = agreed_total(n, constraints)
    asked = fit.sets if any(fit.sets) else (_shortest(fit.domain),)
    named = {name for names in asked for name in names}
    published = () if constraints is None else constraints.published_for(named)
    shape = layout(fit.domain, (*asked, *(t.names for t in published)))
    form = diagonal(fit, shape) or curved(fit, shape)
    limits = None if constraints is None else limits_of(constraints, shape, published)
    if limits is not None:
        form = replace(form, limits=limits) if isinstance(form, Diagonal) else form.within(limits)
    if n is None and not form.tells_total():
        raise WorkloadError(
            "the queries do not bound the total; give the number of records, or measure it"
        )
    inside = None
    if limits is not None and constraints is not None:
        inside = Inside(limits, constraints, _one_way(shape, form.centre_tables(n)))
    with effort("local", deadline(seconds), steps=MOST):
        return _Splitting(fit, shape, form, n, inside).run(gap, enough, steps, progress)


def _one_way(shape: Layout, tables: Sequence[Array]) -> dict[str, Array]:
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
        shape: Layout,
        form: Diagonal | Curved,
        n: float | None,
        inside: Inside | None = None,
    ) -> None:
        self.fit, self.shape, self.form, self.n, self.inside = fit, shape, form, n, inside
        is_cut = inside is not None and inside.limits.has_zeros
        self.zeros = inside.limits.zeros if inside is not None and is_cut else None
        self.pulls = [PULL * p for p in form.precisions()]
        self.w = form.centre_tables(n)
        self.lower = 0.0  # f is a sum of squares

    def run(self, gap: float, enough: float, steps: int, progress: Progress | None) -> LocalTables:
        whole = self.fit.value([np.zeros_like(p.values) for p in self.fit.parts])
        floor = max(ROUNDING * whole, enough)
        cells = float(sum(w.size for w in self.w))
        step, check, changes, raised = 0, FIRST_CHECK, CHANGES, 0
        while True:
            step += 1
            spend(16 * ADDED_UP * cells)  # several passes over all tables
            x = self._reflected()
            self.form.minimise(x, self.pulls, self.n)
            last = step >= steps or must_stop()
            if step < check and not last:
                self._move(x)
                continue
            check = step + max(FIRST_CHECK, step // 5)
            relaxed = self.form.value(x)
            upper, best = self._feasible(x)
            self.lower = max(self.lower, self.form.lower(self._forces(), self.n, upper))
            reached = upper - self.lower
            if progress is not None:
                progress(step, reached / max(upper, floor, SMALLEST))
            if reached <= max(gap * upper, floor) or last:
                return self._result(best, step)
            self._move(x)
            # Stronger pulls help feasibility, weaker ones the multipliers: even the two out, but
            # never below the start, where x follows w too slowly.
            infeasible, unproved = upper - relaxed, abs(relaxed - self.lower)
            if infeasible > BALANCE * unproved and changes > 0:
                changes -= 1
                raised += 1
                self._rebalance(2.0)
            elif unproved > BALANCE * infeasible and raised > 0:
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
        for g, (w, found) in enumerate(zip(self.w, x, strict=True)):
            found -= self._nearest(g)
            found *= STEP
            w += found

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
