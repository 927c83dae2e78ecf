# SPDX-License-Identifier: Apache-2.0
"""Projection without a histogram: weighted rows whose margins fit noisy answers.

    min f(h) = 1/2 sum_parts sum_q w_q (F h - y)_q^2    over h >= 0 with 1'h = n,

on domains of any size. h is never built: a few ten thousand rows with weights stand for it, and f
is seen through their margins. Three moves, none of which lets f rise:

1. *Moving rows.* One attribute of one row at a time goes to the cell of least value under a
   quadratic bound on f whose curvature is diagonal over the cells of every set; the gradient
   follows each move at once (Gauss-Seidel). Few heavy rows first, then each is split in two.
2. *Weights* of the rows, by accelerated projected gradient (``weights.py``).
3. *New rows*, where the gradient is least: coordinate descent from rows there are (conditional
   gradient: Frank, Wolfe 1956, "An algorithm for quadratic programming"; for relaxed projections
   onto synthetic records see Aydore et al. 2021, "Differentially private query release through
   adaptive projection").

Finding the least score of a row is hard in general; where it is known (small domains) or bounded
(the least entry of every table), ``bound`` is a proved lower bound on the least value of f.
Everything here is arithmetic on public numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

import numpy as np

from sfumato.errors import PlanError, WorkloadError
from sfumato.plan.effort import STEPS_PER_SECOND, deadline, effort, must_stop, spend
from sfumato.refine.cells.explicit import agreed_total
from sfumato.refine.draws import Draws
from sfumato.refine.fit import Fit, Names
from sfumato.refine.rows.conditions import Codes
from sfumato.refine.rows.possible import make_possible, meet_published, with_published
from sfumato.refine.rows.problem import Gradient, Problem, layout, problem
from sfumato.refine.rows.search import search
from sfumato.refine.rows.start import best_product, draw_product
from sfumato.workload.constraints import Constraints
from sfumato.workload.queries import Array, Integers

__all__ = ["Rows", "fit_rows"]

FEWEST, MOST = 5_000, 25_000  # rows, unless it is said
COARSEST = 4  # the first rows weigh this many times the last ones
SWEEPS = 40
STEPS = 60 * STEPS_PER_SECOND  # multiplications of one search
SETTLED = 1e-3  # a sweep that lowers f by less, relatively, is the last

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class Rows:
    """Cells by attribute, their weights, and what is known about them.

    ``value`` is f, ``gap`` how much lower it could be as far as the search could see, ``bound`` a
    proved lower bound on the least value (0 at least). ``off`` is the largest difference from a
    published count, relative to all records.
    """

    fit: Fit
    codes: Codes
    weights: Array
    value: float
    gap: float
    bound: float
    sweeps: int
    off: float = 0.0

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.weights)

    @property
    def columns(self) -> dict[str, Integers]:
        """The cells by the name of the attribute."""
        return dict(zip(self.fit.domain.names, self.codes, strict=True))

    def table(self, names: Names) -> Array:
        """The margin over any attributes, axes in the order of the domain."""
        ordered = self.fit.domain.in_order(names)
        sizes = {a.name: a.size for a in self.fit.domain}
        cells = layout(sizes, (ordered,)).margins(self.codes, self.weights)
        return cells.reshape([sizes[n] for n in ordered])

    def tables(self, sets: Sequence[Names]) -> dict[Names, Array]:
        """Several margins."""
        return {names: self.table(names) for names in sets}

    def answers(self) -> list[Array]:
        """``F h`` of every part of the fit."""
        total = float(self.weights.sum())
        return problem(self.fit, total).answers(self.codes, self.weights)


def fit_rows(
    fit: Fit,
    n: float,
    *,
    draws: Draws,
    start: Mapping[str, Integers] | None = None,
    weights: Array | None = None,
    rows: int | None = None,
    seconds: float | None = None,
    steps: float = STEPS,
    gap: float = 0.05,
    rounds: int = 20,
    constraints: Constraints | None = None,
    progress: Progress | None = None,
) -> Rows:
    """Weighted rows of total weight n with a small value of f.

    ``start`` are rows to begin with (public data, an earlier release), ``rows`` how many to use.
    New rows are looked for in at most ``rounds`` rounds, until f is within ``gap`` of the least
    value as far as can be seen, relatively, or a round lowers it by less than a tenth of that, or
    ``steps`` multiplications are made (by default about a minute of one core), or ``seconds`` have
    passed (None: no clock). The same draws give the same rows unless time runs out.

    With ``constraints`` no row is impossible, and the weights are raked to the published tables at
    the end (``off`` says how well that went); n must be the published one.
    """
    _check(n, rows, seconds, gap)
    n = agreed_total(float(n), constraints) or 0.0
    asked = problem(with_published(fit, constraints), n, constraints)
    with effort("rows", deadline(seconds), steps=steps):
        state = _begin(asked, start, weights, rows, draws)
        state = _settle(asked, state, progress)
        found = search(
            asked,
            state.codes,
            state.weights,
            draws,
            gap=gap,
            rounds=rounds,
            progress=progress,
        )
    if constraints is None or not constraints.published:
        codes, weights, off, value = found.codes, found.weights, 0.0, found.value
    else:
        met = meet_published(constraints, found.codes, found.weights)
        codes, weights, off = met.codes, met.weights, met.off
        value = fit.value(problem(fit, n).answers(codes, weights))
    # Where the published margins are met, their parts add nothing to f: bounds carry over.
    above = max(0.0, found.gap + (value - found.value))
    return Rows(fit, codes, weights, value, above, min(found.bound, value), state.sweeps, off)


@dataclass(frozen=True, eq=False)
class _State:
    codes: Codes
    weights: Array
    splits: int
    value: float = inf
    sweeps: int = 0


def _check(n: float, rows: int | None, seconds: float | None, gap: float) -> None:
    if not (isfinite(n) and n >= 0):
        raise PlanError(f"the total of the rows must be a number of 0 or more, got {n}")
    if rows is not None and rows < 1:
        raise PlanError(f"the number of rows must be 1 or more, got {rows}")
    if (seconds is not None and not seconds >= 0) or not gap >= 0:
        raise PlanError(f"seconds and gap must be 0 or more, got {seconds} and {gap}")


def _begin(
    asked: Problem,
    start: Mapping[str, Integers] | None,
    weights: Array | None,
    rows: int | None,
    draws: Draws,
) -> _State:
    total = asked.total
    if start is None:
        count = rows if rows is not None else int(min(max(total, FEWEST), MOST))
        splits = next(s for s in (2, 1, 0) if 2**s <= min(COARSEST, count))
        count = -(-count // 2**splits)
        shares = best_product(asked)
        codes = _possible(asked, draw_product(shares, count, draws), shares, draws)
        return _State(codes, np.full(count, total / count), splits)
    codes = _given_codes(asked, start)
    sizes = asked.layout.sizes.tolist()
    shares = [np.bincount(c, minlength=k) / len(c) for c, k in zip(codes, sizes, strict=True)]
    codes = _possible(asked, codes, shares, draws)
    if weights is None:
        return _State(codes, np.full(codes.shape[1], total / codes.shape[1]), 0)
    given = np.asarray(weights, dtype=np.float64)
    if given.shape != codes.shape[1:] or not (np.isfinite(given) & (given >= 0)).all():
        raise WorkloadError(
            f"{codes.shape[1]:,} rows need as many weights of 0 or more, got shape {given.shape}"
        )
    if not given.sum() > 0:
        raise WorkloadError("the weights of the rows to start from add up to 0")
    return _State(codes, given * (total / given.sum()), 0)


def _possible(asked: Problem, codes: Codes, shares: Sequence[Array], draws: Draws) -> Codes:
    if asked.constraints is None:
        return codes
    return make_possible(asked.constraints, codes, shares, draws.uniforms)


def _given_codes(asked: Problem, start: Mapping[str, Integers]) -> Codes:
    domain = asked.fit.domain
    missing = [n for n in domain.names if n not in start]
    if missing:
        raise WorkloadError(f"the rows to start from lack the attributes {', '.join(missing)}")
    columns = [np.asarray(start[n]) for n in domain.names]
    if len({c.shape for c in columns}) != 1 or columns[0].ndim != 1 or not columns[0].size:
        raise WorkloadError("the rows to start from must be columns of one length, 1 or more")
    for name, column in zip(domain.names, columns, strict=True):
        size = domain[name].size
        if column.dtype.kind not in "iu" or column.min() < 0 or column.max() >= size:
            raise WorkloadError(
                f"the rows to start from must be cells 0 to {size - 1} of {name!r}, as integers"
            )
    return np.array(columns, dtype=np.int64)


def _settle(asked: Problem, state: _State, progress: Progress | None) -> _State:
    """Move rows until it does not pay, split them, and again."""
    codes, weights, sweeps = state.codes, state.weights, 0
    value, gradient = asked.gradient(asked.margins(codes, weights))
    longer = 1.0
    for left in range(state.splits, -1, -1):
        for sweep in range(SWEEPS):
            if must_stop():
                break
            moved = codes.copy()
            _move(asked, moved, weights, gradient, longer)
            found, slope = asked.gradient(asked.margins(moved, weights))
            sweeps += 1
            if progress is not None:
                progress(sweep, SWEEPS, f"{len(weights):,} rows, value {min(found, value):,.4g}")
            if found > value:  # the curvature was too small: power iteration stops below
                longer *= 2
                value, gradient = asked.gradient(asked.margins(codes, weights))
                continue
            gain, codes, value, gradient = value - found, moved, found, slope
            if gain <= SETTLED * value * (5 if left else 1):
                break
        if left:
            codes, weights = np.repeat(codes, 2, axis=1), np.repeat(weights / 2, 2)
    return replace(state, codes=codes, weights=weights, value=value, sweeps=sweeps, splits=0)


def _move(asked: Problem, codes: Codes, weights: Array, gradient: Gradient, longer: float) -> None:
    """One sweep over the rows, in place."""
    from sfumato.refine.rows.kernels import move_rows

    p, c = asked.layout, asked.guarded
    spend(p.sweep * codes.shape[1])
    bend = asked.curvature if longer == 1 else asked.curvature * longer
    move_rows(
        codes, weights, gradient.cells, bend, p.sizes, p.offset, p.member_start, p.member,
        p.stride, p.held_start, p.held_set, p.held_stride, c.look_start, c.look_clause,
        c.look_mask, c.masks, c.condition, asked.guard(gradient.pull), c.weights,
    )  # fmt: skip
