# SPDX-License-Identifier: Apache-2.0
"""Projection without a histogram: weighted rows whose margins fit noisy answers.

    min f(h) = 1/2 sum_parts sum_q w_q (F h - y)_q^2    over h >= 0 with 1'h = n,

on domains of any size. h is never built: a few ten thousand rows with weights stand for it, and f
is seen through their margins. Three moves, none of which lets f rise:

1. *Moving rows.* One attribute of one row at a time goes to the cell of least value under a
   quadratic bound on f whose curvature is diagonal over the cells of every set; the gradient
   follows each move at once (Gauss-Seidel). Few heavy rows first, then each is split in two.
2. *Weights* of the rows, by accelerated projected gradient (``solve_weights``).
3. *New rows*, where the gradient is least: coordinate descent from rows there are (conditional
   gradient: Frank, Wolfe 1956, "An algorithm for quadratic programming"; for relaxed projections
   onto synthetic records see Aydore et al. 2021, "Differentially private query release through
   adaptive projection").

Finding the least score of a row is hard in general; where it is known (small domains) or bounded
(the least entry of every table), ``bound`` is a proved lower bound on the least value of f.
Everything here is arithmetic on public numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, prod, sqrt

import numpy as np

from sfumato.errors import PlanError, WorkloadError
from sfumato.random import Draws
from sfumato.refine.reconstruct import Fit
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.row_problem import (
    Codes,
    Gradient,
    OnRows,
    RowProblem,
    layout,
    make_possible,
    meet_published,
    problem,
    with_published,
)
from sfumato.solve.effort import deadline, effort, must_stop, spend
from sfumato.solve.nonnegative import onto_weights
from sfumato.types import Array, Integers, Names, Progress
from sfumato.workload.constraints import Constraints, agreed_total

__all__ = [
    "RowSearch",
    "WeightedRows",
    "best_product",
    "draw_product",
    "fit_rows",
    "merged",
    "merged_rows",
    "minimum_score",
    "search",
    "solve_weights",
]


# Where rows start


def best_product(problem: RowProblem) -> list[Array]:
    """The best product of one-way tables: a distribution per attribute.

    Attributes that no table part reads stay uniform. Among the histograms ``n p_1 x ... x p_d``, f
    is least squares in every ``p_i`` while the others stay. All of them take multiplicative steps
    (Kivinen, Warmuth 1997, "Exponentiated gradient versus gradient descent for linear predictors"),
    kept only if f falls; a start need not be the best one.
    """
    shares = [np.full(n, 1 / n) for n in problem.layout.sizes.tolist()]
    value, gradient = problem.gradient(_product_margins(problem, shares))
    pace = 0.0
    for _ in range(
        LIMITS.product_rounds
        if problem.layout.length <= LIMITS.row_tables_large
        else LIMITS.product_rounds_large
    ):
        slopes = _slopes(problem, shares, gradient.cells)
        slopes = [g - float(g @ p) for g, p in zip(slopes, shares, strict=True)]
        steepest = max((float(np.abs(g).max()) for g in slopes), default=0.0)
        if steepest == 0:
            break
        pace = pace * LIMITS.product_step_growth if pace else 1 / steepest
        before = value
        while pace * steepest > LIMITS.product_step_minimum:
            trial = [_stepped(p, pace * g) for p, g in zip(shares, slopes, strict=True)]
            seen = _product_margins(problem, trial)
            value_of_trial = problem.value(seen)
            if value_of_trial < value:
                shares, (value, gradient) = trial, problem.gradient(seen)
                break
            pace /= 4
        if before - value <= LIMITS.product_gain * value:
            break
    return shares


def _stepped(share: Array, by: Array) -> Array:
    """``p exp(-by)``, summing to 1; no cell falls to 0 for good."""
    out = share * np.exp(
        -np.clip(by, -LIMITS.product_exponent, LIMITS.product_exponent)
    ) + LIMITS.product_share_minimum / len(share)
    return np.asarray(out / out.sum(), dtype=np.float64)


def _product_margins(problem: RowProblem, shares: list[Array]) -> Gradient:
    """The margins of the product; wide conditions have their own values, and so pull nowhere."""
    places = problem.layout
    entries, columns = np.empty(len(places.blocks.source)), np.concatenate(shares)
    for rest, run, part in places.pieces(places.blocks, entries):
        np.multiply.outer(_product(shares, rest, problem.total), columns[run], out=part)
    return Gradient(places.from_blocks(entries, problem.total), problem.conditions.values)


def _slopes(problem: RowProblem, shares: list[Array], cells: Array) -> list[Array]:
    """The derivatives of f by every distribution: tables contracted with all the others."""
    places = problem.layout
    entries = places.whole_blocks.entries(cells)
    out = np.zeros(int(places.starts[-1]))
    for rest, run, part in places.pieces(places.whole_blocks, entries):
        out[run] += _product(shares, rest, problem.total) @ part
    return np.split(out, places.starts[1:-1])


def _product(shares: list[Array], attributes: Sequence[int], total: float) -> Array:
    """The table of independent attributes, flat."""
    out = np.full(1, total)
    for a in attributes:
        out = np.multiply.outer(out, shares[a]).reshape(-1)
    return out


def draw_product(shares: list[Array], rows: int, draws: Draws) -> Codes:
    """Rows whose one-way tables are as close to the shares as whole rows can be.

    Per attribute the quantiles at ``(i + 1/2) / rows``, in an order of its own: the pairs are
    independent, the one-way tables have no sampling error.
    """
    at = (np.arange(rows) + 0.5) / rows
    out = np.empty((len(shares), rows), dtype=np.int64)
    for a, share in enumerate(shares):
        edges = np.cumsum(share)
        cells = np.searchsorted(edges / edges[-1], at, side="right").astype(np.int64)
        out[a] = np.minimum(cells, len(share) - 1)[_shuffled(rows, draws)]
    return out


def _shuffled(rows: int, draws: Draws) -> Integers:
    """A uniform order: 53-bit keys sorted, which hardly ever collide."""
    return np.argsort(draws.uniforms(rows), kind="stable").astype(np.int64)


# Weights of rows


def solve_weights(
    problem: RowProblem, codes: Codes, weights: Array, steps: int
) -> tuple[Array, float]:
    """Weights of the rows whose f is no larger than before, and that f.

    Least squares over ``w >= 0, sum w = n``: accelerated projected gradient with restarts (Beck,
    Teboulle 2009, "A fast iterative shrinkage-thresholding algorithm for linear inverse problems";
    O'Donoghue, Candes 2015, "Adaptive restart for accelerated gradient schemes"), in the diagonal
    metric c with

        H = A'F'WFA <= A' diag(curvature) A <= diag(c),   c_r = (A' diag(curvature) A u)_r / u_r

    for any ``u > 0`` (A: from weights to margins, no negative entry). Rows in rare cells so take
    long steps. Every value is below the one before.
    """
    on = OnRows(problem, codes)
    best = weights
    value, gradient = problem.gradient(on.margins(best))
    if problem.total == 0:
        return best, value
    metric = _metric(on, weights)
    ahead, pace, scale = best, 1.0, 1.0
    for _ in range(steps):
        if must_stop():
            break
        scores = on.scores(gradient)
        step = onto_weights(ahead - scores / (scale * metric), scale * metric, problem.total)
        value_of_step, slope = problem.gradient(on.margins(step))
        if value_of_step > value:
            if ahead is best:  # the metric was too short: power iteration stops below
                scale *= 2
                if scale > 2**10:
                    break
            else:  # momentum overshot: start again from the best point
                ahead, pace = best, 1.0
                value, gradient = problem.gradient(on.margins(best))
            continue
        faster = (1 + np.sqrt(1 + 4 * pace * pace)) / 2
        beyond = (pace - 1) / faster
        moved = step - best
        gain, best, value, pace = value - value_of_step, step, value_of_step, faster
        if gain <= LIMITS.row_weights_gain * value and beyond > 0:
            break
        if beyond > 0:
            ahead = step + beyond * moved
            _, gradient = problem.gradient(on.margins(ahead))
        else:
            ahead, gradient = best, slope
    return best, value


def _metric(on: OnRows, weights: Array) -> Array:
    """``c`` at u halfway between the weights and their mean."""
    spread = 0.5 * (weights + weights.mean())
    seen = on.margins(spread)
    bend, conditions = on.problem.curvature, on.problem.conditions
    bent = Gradient(bend * seen.cells, conditions.weights * seen.pull)
    metric = on.scores(bent) / spread
    floor = 1e-12 * float(metric.max(initial=0.0)) + 1e-300
    return np.asarray(np.maximum(metric, floor), dtype=np.float64)


# The search for rows


@dataclass(frozen=True, eq=False)
class RowSearch:
    """Rows, weights, f, the gap as far as was seen, and a proved lower bound on min f."""

    codes: Codes
    weights: Array
    value: float
    gap: float
    bound: float


def search(
    problem: RowProblem,
    codes: Codes,
    weights: Array,
    draws: Draws,
    *,
    gap: float,
    rounds: int,
    progress: Progress | None = None,
) -> RowSearch:
    """Rows and weights after rounds that weigh the rows and look for better ones; f never rises.

    f is convex, so for every h' of the same total ``f(h') >= f(h) + <G, h' - h>``, and the right
    side is minimal when all of h' is one row of minimum score (Frank, Wolfe 1956; Jaggi 2013,
    "Revisiting Frank-Wolfe", gives the difference its name, the gap). A minimum score that is only
    found by descent gives an estimate of the gap; one that is known to be minimal, or bounded,
    gives a proved bound.
    """
    codes, weights = merged(codes, weights)
    before, seen_gap, bound = inf, inf, 0.0
    steps = (
        LIMITS.row_weights_steps
        if problem.layout.length <= LIMITS.row_tables_large
        else LIMITS.row_weights_steps_large
    )
    for turn in range(rounds + 1):
        weights, _ = solve_weights(problem, codes, weights, steps)
        codes, weights = _without_light(codes, weights, problem.total)
        value, gradient = problem.gradient(problem.margins(codes, weights))
        mean = float(problem.scores(codes, gradient) @ weights) / max(problem.total, 1e-300)
        new, scores, floor = _candidates(problem, codes, weights, gradient, draws)
        seen_gap = problem.total * max(0.0, mean - float(scores.min(initial=mean)))
        bound = max(bound, value - problem.total * (mean - floor))
        if progress is not None:
            progress(turn, rounds, f"value {value:,.4g}, could fall by {seen_gap:,.4g}")
        if min(seen_gap, LIMITS.row_round_pays * (before - value)) <= gap * value:
            break
        if turn == rounds or must_stop():
            break
        before = value
        better = scores < mean
        codes = np.concatenate([codes, new[:, better]], axis=1)
        codes, weights = merged(codes, np.append(weights, np.zeros(int(better.sum()))))
    return RowSearch(codes, weights, value, seen_gap, min(bound, value))


def minimum_score(problem: RowProblem, gradient: Gradient) -> float:
    """A score that no possible row is below: minima of all tables, all negative pulls together."""
    minimum = 0.0
    for s, possible in enumerate(problem.possible):
        entries = gradient.cells[problem.layout.slice_of(s)]
        minimum += float((entries if possible is None else entries[possible]).min())
    return minimum + float(np.minimum(gradient.pull, 0.0).sum())


def merged(codes: Codes, weights: Array) -> tuple[Codes, Array]:
    """Equal rows once, in sorted order, with the sum of their weights."""
    order = np.lexsort(codes[::-1])
    ordered = codes[:, order]
    starts = np.append(True, (ordered[:, 1:] != ordered[:, :-1]).any(axis=0))
    first = np.flatnonzero(starts)
    return np.ascontiguousarray(ordered[:, first]), np.add.reduceat(weights[order], first)


def _without_light(codes: Codes, weights: Array, total: float) -> tuple[Codes, Array]:
    """The rows without those that weigh next to nothing."""
    held = weights > LIMITS.row_weight_minimum * total / len(weights)
    if held.all() or not held.any():
        return codes, weights
    heavy = weights[held]
    return np.ascontiguousarray(codes[:, held]), heavy * (total / float(heavy.sum()))


def _candidates(
    problem: RowProblem, codes: Codes, weights: Array, gradient: Gradient, draws: Draws
) -> tuple[Codes, Array, float]:
    """Rows of low score, their scores, and a score that no row is below."""
    sizes = problem.layout.sizes.tolist()
    if prod(sizes) <= LIMITS.scores_listed:
        every = np.array(np.unravel_index(np.arange(prod(sizes)), sizes), dtype=np.int64)
        every = every[:, problem.are_possible(every)]
        scores = problem.scores(every, gradient)
        best = np.argsort(scores, kind="stable")[: LIMITS.rows_added]
        return every[:, best], scores[best], float(scores[best[0]])
    starts = _starts(codes, weights, problem.layout.sizes, draws)
    starts = np.ascontiguousarray(starts[:, problem.are_possible(starts)])
    _descend(problem, starts, gradient)
    starts, _ = merged(starts, np.ones(starts.shape[1]))
    return starts, problem.scores(starts, gradient), minimum_score(problem, gradient)


def _starts(codes: Codes, weights: Array, sizes: Integers, draws: Draws) -> Codes:
    """Rows drawn by weight: half of them as they are, half with a few new cells."""
    places = np.cumsum(weights / weights.sum())
    chosen = np.minimum(
        np.searchsorted(places, draws.uniforms(LIMITS.rows_added), side="right"), len(weights) - 1
    )
    out = np.ascontiguousarray(codes[:, chosen])
    changed = np.arange(LIMITS.rows_added // 2, LIMITS.rows_added)
    for _ in range(min(LIMITS.row_attributes_changed, len(sizes))):
        attribute = draws.below(len(sizes), len(changed))
        for a, size in enumerate(sizes.tolist()):
            here = changed[attribute == a]
            out[a, here] = draws.below(size, len(here))
    return out


def _descend(problem: RowProblem, codes: Codes, gradient: Gradient) -> None:
    """Every row to a locally least score, in place."""
    from sfumato.solve.row_kernels import descend

    p, b, c = problem.layout, problem.layout.whole_blocks, problem.guarded
    spend(LIMITS.row_descents * p.sweep * codes.shape[1])
    entries = b.entries(gradient.cells)
    descend(
        codes, entries, p.starts, b.origin, b.first, b.last, b.member_start,
        b.member, b.stride, b.held_start, b.held_block, b.held_stride, c.look_start,
        c.look_clause, c.look_mask, c.masks, c.condition, problem.guard(gradient.pull),
        LIMITS.row_descents,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Weighted rows, cells by attribute, and how well they fit.

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
    def distance(self) -> float:
        """The answers are proved to be this close to the projection, in the metric of f."""
        return sqrt(2 * max(0.0, self.value - self.bound))

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
        """The margins over several sets of attributes."""
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
    steps: float = LIMITS.search_multiplications,
    gap: float = LIMITS.row_gap,
    rounds: int = LIMITS.row_rounds,
    constraints: Constraints | None = None,
    progress: Progress | None = None,
) -> WeightedRows:
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
    row_problem = problem(with_published(fit, constraints), n, constraints)
    with effort("rows", deadline(seconds), steps=steps):
        state = _begin(row_problem, start, weights, rows, draws)
        state = _settle(row_problem, state, progress)
        result = search(
            row_problem,
            state.codes,
            state.weights,
            draws,
            gap=gap,
            rounds=rounds,
            progress=progress,
        )
    if constraints is None or not constraints.published:
        codes, weights, off, value = result.codes, result.weights, 0.0, result.value
    else:
        met = meet_published(constraints, result.codes, result.weights)
        codes, weights, off = met.codes, met.weights, met.off
        value = fit.value(problem(fit, n).answers(codes, weights))
    # Where the published margins are met, their parts add nothing to f: bounds carry over.
    above = max(0.0, result.gap + (value - result.value))
    return WeightedRows(
        fit, codes, weights, value, above, min(result.bound, value), state.sweeps, off
    )


def merged_rows(estimates: Sequence[tuple[WeightedRows, float]]) -> tuple[Codes, Array]:
    """The rows of a mixture of several, each with its share of the weight."""
    used = [(rows.codes, share * rows.weights) for rows, share in estimates if share > 0]
    codes, weights = (np.concatenate(x, axis=-1) for x in zip(*used, strict=True))
    return merged(codes, weights)


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
    problem: RowProblem,
    start: Mapping[str, Integers] | None,
    weights: Array | None,
    rows: int | None,
    draws: Draws,
) -> _State:
    total = problem.total
    if start is None:
        count = (
            rows
            if rows is not None
            else int(min(max(total, LIMITS.rows_minimum), LIMITS.rows_maximum))
        )
        splits = next(s for s in (2, 1, 0) if 2**s <= min(LIMITS.rows_splits, count))
        count = -(-count // 2**splits)
        shares = best_product(problem)
        codes = _possible(problem, draw_product(shares, count, draws), shares, draws)
        return _State(codes, np.full(count, total / count), splits)
    codes = _checked_codes(problem, start)
    sizes = problem.layout.sizes.tolist()
    shares = [np.bincount(c, minlength=k) / len(c) for c, k in zip(codes, sizes, strict=True)]
    codes = _possible(problem, codes, shares, draws)
    if weights is None:
        return _State(codes, np.full(codes.shape[1], total / codes.shape[1]), 0)
    numbers = np.asarray(weights, dtype=np.float64)
    if numbers.shape != codes.shape[1:] or not (np.isfinite(numbers) & (numbers >= 0)).all():
        raise WorkloadError(
            f"{codes.shape[1]:,} rows need as many weights of 0 or more, got shape {numbers.shape}"
        )
    if not numbers.sum() > 0:
        raise WorkloadError("the weights of the rows to start from add up to 0")
    return _State(codes, numbers * (total / numbers.sum()), 0)


def _possible(problem: RowProblem, codes: Codes, shares: Sequence[Array], draws: Draws) -> Codes:
    if problem.constraints is None:
        return codes
    return make_possible(problem.constraints, codes, shares, draws.uniforms)


def _checked_codes(problem: RowProblem, start: Mapping[str, Integers]) -> Codes:
    domain = problem.fit.domain
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


def _settle(problem: RowProblem, state: _State, progress: Progress | None) -> _State:
    """The rows after moves until those gain little, each row then split in two, and again.

    Between two sweeps over all rows there are some over the rows nearest to a move: late in the
    search one row in a hundred moves, mostly the same ones again.
    """
    codes, weights, sweeps = state.codes, state.weights, 0
    seen = problem.margins(codes, weights)
    value, gradient = problem.gradient(seen)
    longer = 1.0
    for left in range(state.splits, -1, -1):
        every, slack = np.arange(len(weights)), np.zeros(len(weights))
        which, again = every, 0
        for sweep in range(LIMITS.row_sweeps):
            if must_stop():
                break
            moved = codes.copy()
            _move(problem, moved, weights, gradient, longer, which, slack)
            seen_after = _margins_after(problem, seen, codes, moved, weights)
            value_after, slope = problem.gradient(seen_after)
            sweeps += 1
            if progress is not None:
                progress(
                    sweep,
                    LIMITS.row_sweeps,
                    f"{len(weights):,} rows, value {min(value_after, value):,.4g}",
                )
            if value_after > value:  # the curvature was too small: power iteration stops below
                longer *= 2
                which, again = every, 0
                continue
            gain, codes, value, gradient = value - value_after, moved, value_after, slope
            seen = seen_after
            if again == 0 and gain <= LIMITS.row_sweep_gain * value * (5 if left else 1):
                break
            again = (again + 1) % (1 + LIMITS.row_sweeps_again)
            which = _nearest_to_move(slack) if again else every
        if left:
            codes, weights = np.repeat(codes, 2, axis=1), np.repeat(weights / 2, 2)
    return replace(state, codes=codes, weights=weights, value=value, sweeps=sweeps, splits=0)


def _margins_after(
    problem: RowProblem, seen: Gradient, before: Codes, after: Codes, weights: Array
) -> Gradient:
    """The margins after some rows have moved; only those are looked at where they are few."""
    moved = np.flatnonzero((before != after).any(axis=0))
    if len(moved) > LIMITS.row_moves_few * len(weights):
        return problem.margins(after, weights)
    some = np.ascontiguousarray(np.concatenate([before[:, moved], after[:, moved]], axis=1))
    change = problem.margins(some, np.concatenate([-weights[moved], weights[moved]]))
    return Gradient(seen.cells + change.cells, seen.pull + change.pull)


def _nearest_to_move(slack: Array) -> Integers:
    """The rows of least slack, in their order."""
    count = max(1, int(LIMITS.row_sweep_share * len(slack)))
    return np.sort(np.argpartition(slack, count - 1)[:count])


def _move(
    problem: RowProblem,
    codes: Codes,
    weights: Array,
    gradient: Gradient,
    longer: float,
    which: Integers,
    slack: Array,
) -> tuple[float, int]:
    """One sweep over some rows, in place: what the model fell by, and how often rows moved."""
    from sfumato.solve.row_kernels import fill_levels, move_rows

    p, b, c = problem.layout, problem.layout.whole_blocks, problem.guarded
    spend(p.sweep * len(which))
    unit = float(weights[0])  # all rows weigh the same but where a search begins with others
    level, bend = np.empty(len(b.source)), np.empty(len(b.source))
    curvature = problem.curvature if longer == 1 else problem.curvature * longer
    fill_levels(b.source, gradient.cells, curvature, 0.5 * unit, level, bend)
    gain, moves = move_rows(
        codes, weights, which, slack, level, unit, bend, problem.even_curvature * longer,
        p.starts, b.origin, b.first, b.last, b.member_start, b.member, b.stride, b.held_start,
        b.held_block, b.held_stride, b.run_start, b.run_block, c.look_start, c.look_clause,
        c.look_mask, c.masks, c.condition, problem.guard(gradient.pull), c.weights,
    )  # fmt: skip
    return float(gain), int(moves)
