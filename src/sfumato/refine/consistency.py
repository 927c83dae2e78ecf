# SPDX-License-Identifier: Apache-2.0
"""The answers of a release, made to agree: one histogram or one set of rows behind all of them.

Unbiased answers contradict each other and go below zero. Here they are projected onto what data
can have, in the norm of the plan's objective (``sum_q w_q^2 (a - y)_q^2``): in that norm the result
is never farther from the truth than what came in (Nikolov, Talwar, Zhang 2013, "The geometry of
differential privacy: the sparse and approximate cases", Theorem 1; the truth is in the convex set).
The metric of the noise covariance is the most likely point of the same set, but its error in the
objective's norm may rise above that of the unbiased answers; see ``docs/mechanisms/projection.md``.

``refined`` chooses by public numbers only; the thresholds stand first in ``refine_limits.py``:

    cells can be listed, the plan is for the maximum error   the minimax histogram (``cells``)
    cells can be listed                                      the projection, with a certified
                                                             distance (``cells``)
    cells cannot, tables of the queries can                  the projection by weighted rows
                                                             (``rows``)
    neither, or the search did not come near enough          none (``Unrefined`` says why): the
                                                             release publishes unbiased answers

and with ``shrinks`` mixes the projection, on both sides, with an estimate that follows a prior
around independence, with independent attributes, even counts and public records, as noise says that
was held out (``shrink``). Without ``shrinks`` there is no guess and no prior: the projection, at
any size. Where the search for rows ends far from the projection, tables that agree on what they
share take part too (``local_consistency``), so that what was measured well is not published worse.
The minimax histogram was never worse in the maximum error than least squares where both
were measured (``bench boosting``). Rows come near the projection as far as their search goes: where
they miss the answers by more than their noise explains, they are not used.

Post-processing of released numbers: no privacy is spent (Dwork, Roth 2014, Proposition 2.1), and
the same measurements give the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, partial
from math import inf, log, sqrt
from typing import Literal

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.measurement import Measured
from sfumato.planning.forecast import Forecast, noise_covariance
from sfumato.planning.planning_limits import LIMITS as PLANNING_LIMITS
from sfumato.random import Draws
from sfumato.refine.cells import CellEstimate, fit_explicit, fit_minimax
from sfumato.refine.local_consistency import LocalTables, project_locally
from sfumato.refine.problem import Grid, Quadratic, alike
from sfumato.refine.reconstruct import (
    Fit,
    ReleasedTable,
    fit_answers,
    inner_tables,
    released_tables,
    released_total,
)
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.row_problem import problem
from sfumato.refine.rows import WeightedRows, fit_rows, merged_rows, solve_weights
from sfumato.refine.shrink import (
    EVEN,
    INDEPENDENT,
    LOCAL,
    PRIOR,
    Guesses,
    HeldOut,
    Prior,
    PublicRecords,
    find_prior,
    held_out_count,
    held_out_noise,
    product_answers,
    with_prior,
)
from sfumato.text import shown
from sfumato.types import Array, Integers, Names, Progress
from sfumato.workload.constraints import Constraints, agreed_total
from sfumato.workload.normal_form import Normal
from sfumato.workload.sensitivity import greatest_column_power
from sfumato.workload.workload import Workload
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

__all__ = [
    "Projection",
    "Refined",
    "Unrefined",
    "check_projection",
    "expected_square",
    "has_wide",
    "is_listed",
    "objective_fit",
    "projected_square",
    "refined",
    "refined_listed",
]


Projection = bool | Literal["nearest", "bounds"]


@dataclass(frozen=True, eq=False)
class Refined:
    """Answers of every group that agree, and the weighted cells that have them.

    ``codes[:, i]`` is a cell of ``attributes[i]``; ``method`` names the estimate: "largest" (the
    minimax histogram), "histogram" (the projection), "rows", or "adaptive".

    ``distance`` bounds how far the answers are from the projection of the unbiased ones, in the
    norm of the objective; infinite where they are an estimate of another kind. ``alike`` has the
    classes of cells that no query tells apart, where one cell stands for its class. ``towards``
    are the estimates that the projection was drawn towards, and how much of each is in the answers.
    ``tables`` are those that the answers come from where no histogram has them, by their sets of
    attributes: they agree on what they share, and the weighted cells only come near them.
    ``squares`` are estimates of the squared error of every answer, unbiased to first order and very
    noisy one by one, of the mixture of estimates before large counts were drawn back; empty where
    nothing was weighed, and for listed cells, whose held-out searches end too early for them
    (``refine/intervals.py``).
    """

    answers: tuple[Array, ...]
    attributes: tuple[str, ...]
    codes: Integers
    weights: Array
    method: str
    distance: float
    alike: Mapping[str, Integers] = field(default_factory=dict)
    towards: Mapping[str, float] = field(default_factory=dict)
    tables: Mapping[Names, Array] = field(default_factory=dict)
    squares: tuple[Array, ...] = ()

    @property
    def share(self) -> float:
        """How much of the projection is in the answers."""
        return max(0.0, 1 - sum(self.towards.values()))

    @property
    def total(self) -> float:
        """The number of records."""
        return float(self.weights.sum())

    def seen(self, normal: Normal) -> Refined:
        """The same answers in the order of the workload, from those of its normal form."""
        terms = range(len(normal.pieces))
        answers = tuple(normal.gather(t, self.answers.__getitem__) for t in terms)
        if not self.squares:
            return replace(self, answers=answers)
        squares = tuple(normal.gather(t, self.squares.__getitem__) for t in terms)
        return replace(self, answers=answers, squares=squares)

    def describe(self) -> str:
        """How the answers were made to agree, in words."""
        if self.method == "adaptive":
            return "one estimate, measured where it was worst"
        if self.method == "rows":
            words = "projected onto the answers of weighted records"
        else:
            words = "projected onto the answers of histograms"
        if self.method == "largest":
            return f"{words}, the largest difference as small as can be"
        if not self.towards:
            return words
        shares = ", ".join(f"{name} ({share:.0%})" for name, share in self.towards.items())
        return (
            f"{words} ({self.share:.0%} of the answers), then shrunk towards {shares}, as held-out "
            "noise says"
        )


class Unrefined(Enum):
    """Why there are no answers that agree; a release then publishes the unbiased ones, cut."""

    TOO_MANY_ANSWERS = "the answers are more than are held at once"
    TABLES_TOO_LARGE = "neither the cells nor the tables of the queries fit into memory"
    TOO_FAR = "the search for the projection ended before it was near enough"
    NO_RECORDS = "the total is not above 0, so there are no rows"
    CONSTRAINTS_UNMET = "no rows were found that meet the published tables"
    NOT_EXPLAINED = "rows miss the answers by more than the noise explains"


def check_projection(project: object) -> Projection:
    """The way to publish: True (they agree), "nearest" (never shrunk), "bounds" (cut) or False."""
    if isinstance(project, bool):
        return project
    if project == "bounds":
        return "bounds"
    if project == "nearest":
        return "nearest"
    raise WorkloadError(
        "project is true (answers that agree with each other, drawn towards guesses where noise "
        "outweighs few records), 'nearest' (the projection in any case), 'bounds' (each cut to "
        f"what is possible by itself) or false, got {shown(project)}"
    )


def refined(
    forecast: Forecast,
    measured: Measured,
    unbiased: Sequence[Array],
    *,
    shrinks: bool = False,
    public: PublicRecords | None = None,
    steps: float = LIMITS.search_multiplications,
    constraints: Constraints | None = None,
    progress: Progress | None = None,
) -> Refined | Unrefined:
    """Answers that agree, by the cases of the module.

    Args:
        forecast: The planned strategy, its noise and its workload.
        measured: What the vault released, for the public number of records.
        unbiased: The unbiased answers of every group.
        shrinks: Whether a projection is drawn towards guesses or a prior as far as noise asks, and
            a plan for the maximum error gets the minimax histogram.
        public: Public records, a guess besides even counts and independent attributes, where cells
            can be listed.
        steps: Multiplications of each search, after which its best result is taken or dropped.
        constraints: What the histogram or the rows must meet, up to rounding. Guesses do not, so
            nothing is drawn towards them then.
        progress: Called with what is done.

    Returns:
        The answers, or why there are none that agree.
    """
    workload, memory = forecast.workload, PLANNING_LIMITS.fitted_table_cells
    if (
        any(t.rows > WORKLOAD_LIMITS.array_entries for t in workload.terms)
        or workload.queries > memory
    ):
        return Unrefined.TOO_MANY_ANSWERS
    fit = objective_fit(workload, unbiased)
    grid = None if has_wide(workload) else Grid.of(fit, constraints)
    watch = None if progress is None else partial(_labelled, progress)
    if grid is not None and grid.size <= PLANNING_LIMITS.histogram_cells:
        search = _CellSearch(forecast, fit, grid, measured.rows, public, steps, watch)
        return search.shrunk() if shrinks else search.projected()
    if sum(p.term.cells for p in fit.parts if not p.term.is_wide) <= memory:
        rows = _RowSearch(forecast, unbiased, measured.rows, steps, constraints, watch)
        return rows.outcome(shrinks=shrinks)
    return Unrefined.TABLES_TOO_LARGE


def refined_listed(
    forecast: Forecast,
    unbiased: Sequence[Array],
    rows: int | None,
    *,
    shrinks: bool = False,
    public: PublicRecords | None = None,
    steps: float = LIMITS.search_multiplications,
) -> Refined | Unrefined:
    """Answers that agree where cells can be listed, from the unbiased answers alone.

    ``rows`` is the public number of records, None if it is not public; the other arguments and what
    is returned are those of ``refined``.
    """
    fit = objective_fit(forecast.workload, unbiased)
    search = _CellSearch(forecast, fit, Grid.of(fit), rows, public, steps)
    return search.shrunk() if shrinks else search.projected()


def is_listed(workload: Workload, maximum: int = PLANNING_LIMITS.histogram_cells) -> bool:
    """Whether the kinds of cells that the queries tell apart are few enough to be listed."""
    if has_wide(workload) or any(t.rows > WORKLOAD_LIMITS.array_entries for t in workload.terms):
        return False
    fit = objective_fit(workload, [np.zeros(t.rows) for t in workload.terms])
    return Grid.of(fit).size <= maximum


def objective_fit(workload: Workload, answers: Sequence[Array]) -> Fit:
    """The fit of answers in the norm of the objective."""
    weights = [np.full(t.rows, t.weight**2) for t in workload.terms]
    return fit_answers(workload, list(answers), weights)


def has_wide(workload: Workload) -> bool:
    """Whether some group has too many kinds of cells for tables."""
    return any(t.is_wide for t in workload.terms)


def _labelled(progress: Progress, done: int, total: int, _: str) -> None:
    progress(done, total, "projecting")


@dataclass(frozen=True, eq=False)
class _CellSearch:
    """The estimates over cells that can be listed."""

    forecast: Forecast
    fit: Fit
    grid: Grid
    rows: int | None
    public: PublicRecords | None
    steps: float
    progress: Progress | None = None

    @cached_property
    def total(self) -> float | None:
        """The number of records: public, or measured well enough to be taken for it."""
        return self._total(_Numbers(self.forecast, [p.values for p in self.fit.parts]))

    def _total(self, numbers: _Numbers) -> float | None:
        """As ``total``, of other numbers.

        Where the budget was divided anew (``planning/division.py``) the number of records is known
        far better than the cells, whose noise, cut at zero, would raise it.
        """
        if self.rows is not None:
            return float(self.rows)
        if self.forecast.undivided is None:
            return None
        return max(1.0, released_total(numbers.tables, None))

    @cached_property
    def noise(self) -> float:
        """The expected squared distance of the unbiased answers from the truth."""
        return expected_square(self.forecast)

    @cached_property
    def nearest(self) -> CellEstimate | None:
        """The projection; None where the steps did not suffice to come near enough to it."""
        # Gaps relative to the way that answers moved would say nothing of the error that is left.
        estimate = fit_explicit(
            self.fit,
            self.grid,
            self.total,
            gap=LIMITS.projection_gap,
            enough=LIMITS.projection_error_ignored**2 * self._square,
            steps=self.steps,
            progress=self.progress,
        )
        is_near = estimate.distance_bound <= LIMITS.projection_error_published * sqrt(self.noise)
        return estimate if is_near else None

    def projected(self) -> Refined | Unrefined:
        """The projection itself."""
        if self.nearest is None:
            return Unrefined.TOO_FAR
        return self._published(self.nearest, "histogram", self.nearest.distance_bound)

    def shrunk(self) -> Refined | Unrefined:
        """The minimax histogram, the projection drawn towards guesses, or the projection itself."""
        if self.nearest is None:
            return Unrefined.TOO_FAR
        if self.forecast.objective == "max" and self._is_game:
            minimax = fit_minimax(self.fit, self.grid, self.total, gap=LIMITS.coarse_gap)
            return self._published(minimax, "largest", inf)
        # Answers with a bias were shrunk when they were planned, and no guess keeps constraints.
        is_free = self.forecast.strategy.records is None and self.grid.constraints is None
        if not (is_free and _sum(self.nearest) > 0):
            return self.projected()
        return self._mixed(self.nearest)

    def _mixed(self, nearest: CellEstimate) -> Refined | Unrefined:
        """The projection, the estimate with the prior and guesses, as held-out noise says."""
        numbers = _Numbers(self.forecast, [p.values for p in self.fit.parts])
        total = _sum(nearest)
        guesses = Guesses(Quadratic(self.fit, self.grid), self.public)
        belief = numbers.prior(total)
        estimates = [WeightedAnswers.of(nearest)]
        if belief is not None:
            steps = LIMITS.row_search_share * self.steps
            estimates.append(self._with_prior(numbers, belief, steps, nearest))
        own = np.stack([e.answers for e in estimates])
        points = np.concatenate([own, total * guesses.answers(belief)])

        def again(noisier: _Numbers, steps: float) -> Array:
            near = fit_explicit(
                objective_fit(self.forecast.workload, noisier.answers),
                self.grid,
                self._total(noisier),
                gap=LIMITS.projection_gap,
                enough=LIMITS.held_out_gap**2 * self._square,
                start=nearest,
                steps=steps,
            )
            count = _sum(near)
            if not count > 0:
                return np.zeros_like(points)
            other, own = noisier.prior(count), [near.answers]
            if other is not None:
                start = estimates[1].estimate
                likely = self._with_prior(noisier, other, steps, start, is_quick=True)
                own.append(likely.answers)
            return np.concatenate([np.stack(own), count * guesses.answers(other)])

        start = np.ones(len(points))
        start[0] = _trust(self.forecast)
        if belief is None:  # one-way tables: few answers, and people's are hardly ever even
            start[1:] = 0.0
        shares, _ = _shares(numbers, points, again, self.steps, start)
        if shares[0] == 1:
            return self.projected()
        mixed = np.zeros(self.grid.size)
        for estimate, share in zip(estimates, shares, strict=False):
            np.add.at(mixed, estimate.cells, share * estimate.weights)
        names = guesses.names(belief is not None)
        for name, share in zip(names, shares[len(estimates) :], strict=True):
            if share > 0:
                mixed += share * total * guesses.shares(name, belief)
        cells = np.flatnonzero(mixed > 0)
        towards = _named(((PRIOR,) if belief is not None else ()) + names, shares)
        answers = WeightedAnswers(shares @ points, cells, mixed[cells])
        return self._published(answers, "histogram", inf, towards)

    def _with_prior(
        self,
        numbers: _Numbers,
        belief: Prior,
        steps: float,
        start: CellEstimate | None,
        *,
        is_quick: bool = False,
    ) -> WeightedAnswers:
        """The most likely histogram before and after the answers are seen."""
        fit, own = numbers.with_prior(belief), len(numbers.values)
        if self.grid.size > LIMITS.prior_cells:
            rows = fit_rows(
                fit,
                belief.total,
                draws=Draws(self.forecast.workload.digest()),
                steps=steps,
                rounds=0 if is_quick else LIMITS.row_rounds,
            )
            answers = np.concatenate(rows.answers())[:own]
            return WeightedAnswers(answers, self._places(rows.codes), rows.weights)
        heavy = np.concatenate([p.weights for p in numbers.by_objective.parts]).mean()
        usual = np.concatenate([p.weights for p in self.fit.parts]).mean()
        gap = LIMITS.held_out_gap if is_quick else LIMITS.prior_gap
        estimate = fit_explicit(
            fit,
            self.grid,
            belief.total,
            gap=LIMITS.projection_gap,
            enough=gap**2 * self._square * float(heavy / usual),
            start=start,
            steps=steps,
        )
        return WeightedAnswers.of(estimate, own)

    def _places(self, codes: Integers) -> Integers:
        """The merged cells of rows (attribute x row)."""
        grid, domain = self.grid, self.grid.domain
        merged = [alike(self.fit, n)[codes[domain.index(n)]] for n in grid.names]
        return np.asarray(np.ravel_multi_index(merged, grid.shape), dtype=np.int64)

    @cached_property
    def _square(self) -> float:
        """About how far the projection is from the truth, squared."""
        return projected_square(self.forecast, self.grid.size, self.total)

    @property
    def _is_game(self) -> bool:
        """Whether the maximum difference can be minimised: some forty projections, no tables."""
        has_tables = any(t.names for t in self.grid.published)
        size = max(self.grid.size, self.forecast.workload.queries)
        is_biased = self.forecast.strategy.records is not None
        return not has_tables and not is_biased and size <= LIMITS.minimax_cells

    def _published(
        self,
        estimate: CellEstimate | WeightedAnswers,
        method: str,
        distance: float,
        towards: Mapping[str, float] | None = None,
    ) -> Refined:
        ends = np.cumsum([len(p.values) for p in self.fit.parts])[:-1]
        grid = self.grid
        return Refined(
            tuple(np.split(estimate.answers, ends)),
            grid.names,
            grid.codes(estimate.cells),
            estimate.weights,
            method,
            distance,
            {name: alike(self.fit, name, grid.constraints) for name in grid.names},
            towards or {},
        )


@dataclass(frozen=True, eq=False)
class WeightedAnswers:
    """Weighted cells of a grid and their answers; ``estimate`` is where they come from, if one."""

    answers: Array
    cells: Integers
    weights: Array
    estimate: CellEstimate | None = None

    @classmethod
    def of(cls, estimate: CellEstimate, queries: int | None = None) -> WeightedAnswers:
        """Those of an estimate: its first so many answers."""
        return cls(estimate.answers[:queries], estimate.cells, estimate.weights, estimate)


def _sum(estimate: CellEstimate) -> float:
    return float(estimate.weights.sum())


def _named(names: Sequence[str], shares: Array) -> dict[str, float]:
    """The shares of all estimates but the projection, which is first, where there is some."""
    pairs = zip(names, shares[1:].tolist(), strict=True)
    return {name: share for name, share in pairs if share > 0}


def expected_square(forecast: Forecast) -> float:
    """``E |unbiased - truth|^2`` in the norm of the objective."""
    totals, _ = forecast.strategy.group_variances(forecast.block_variances)
    pairs = zip(forecast.workload.terms, totals, strict=True)
    return sum(t.weight**2 * float(v) for t, v in pairs)


def _trust(forecast: Forecast) -> float:
    """How far a projection is trusted beside an estimate with a prior, before there is evidence.

    As far, as it was planned; where the budget was divided anew (``planning/division.py``) less, as
    all answers together have so much more noise, which the projection cannot tell from data.
    """
    if forecast.undivided is None:
        return 1.0
    return expected_square(forecast.undivided) / expected_square(forecast)


def projected_square(forecast: Forecast, cells: int, total: float | None) -> float:
    """About how far the projection is from the truth, squared, in the norm of the objective.

    At most ``E |z|^2``, z the noise of the answers; of independent noise only as many numbers are
    left as there are independent queries, at most one per cell. With n known it is also at most
    ``E <z, p - a> <= n E max_x <z, f_x>``, p the projection, a the truth and f_x the answers of one
    record (Nikolov, Talwar, Zhang 2013): n times the longest ``|f_x|`` times the standard deviation
    of an answer times ``sqrt(2 log m)``, for independent noise.
    """
    workload = forecast.workload
    totals, greatest = forecast.strategy.group_variances(forecast.block_variances)
    squares = [t.weight**2 for t in workload.terms]
    sigma = max(w * float(v) for w, v in zip(squares, greatest, strict=True))
    whole = sum(w * float(v) for w, v in zip(squares, totals, strict=True))
    left = min(whole, min(cells, workload.queries) * sigma)
    if total is None:
        return left
    longest = greatest_column_power(workload.terms, squares, 2).power
    return min(left, total * sqrt(longest * sigma * 2 * log(max(cells, 2))))


@dataclass(frozen=True, eq=False)
class _RowSearch:
    """The estimates by weighted rows, where cells cannot be listed."""

    forecast: Forecast
    unbiased: Sequence[Array]
    rows: int | None
    steps: float
    constraints: Constraints | None
    progress: Progress | None

    def outcome(self, *, shrinks: bool) -> Refined | Unrefined:
        """The projection, mixed with the prior where it shrinks, or why there is none."""
        try:
            return self._mixed() if shrinks else self._projected()
        except TooLarge:
            return Unrefined.TABLES_TOO_LARGE

    def _projected(self) -> Refined | Unrefined:
        numbers = _Numbers(self.forecast, self.unbiased)
        total = self._total(numbers)
        if not total > 0:
            return Unrefined.NO_RECORDS
        near = self._nearest(numbers, total, self.steps, gap=LIMITS.coarse_gap)
        return self._published(near.codes, near.weights, near.off, near.distance)

    def _mixed(self) -> Refined | Unrefined:
        """The projection, the estimate with the prior and guesses, as held-out noise says."""
        numbers, workload = _Numbers(self.forecast, self.unbiased), self.forecast.workload
        total = self._total(numbers)
        if not total > 0:
            return Unrefined.NO_RECORDS
        belief = numbers.prior(total)
        # Answers with a bias were shrunk when they were planned.
        if self.forecast.strategy.records is not None or belief is None:
            return self._projected()
        has_guesses = self.constraints is None and not has_wide(workload)
        even = product_answers(workload, None) if has_guesses else None
        steps = LIMITS.row_search_share * self.steps
        near = self._nearest(numbers, total, steps)
        gap = LIMITS.row_gap
        if is_far := self._is_far(near):
            gap = LIMITS.coarse_gap
            near = self._nearest(numbers, total, steps, gap=gap)
        likely = self._by_rows(numbers.with_prior(belief), total, steps, gap=gap)
        points = _candidates(workload, near, likely, belief, even)
        local = self._local(numbers, total) if has_guesses and is_far else None
        if local is not None:
            points = np.vstack([points, np.concatenate(local.answers)])

        def again(noisier: _Numbers, steps: float) -> Array:
            count = self._total(noisier)
            other = noisier.prior(count) if count > 0 else None
            if other is None:
                return np.zeros_like(points)
            both = (
                self._nearest(noisier, count, steps, gap=gap, is_quick=not is_far),
                self._by_rows(
                    noisier.with_prior(other), count, steps, gap=gap, is_quick=not is_far
                ),
            )
            estimates = _candidates(workload, *both, other, even)
            if local is None:
                return estimates
            return np.vstack([estimates, np.concatenate(self._local(noisier, count).answers)])

        tables = 0 if local is None else 1
        start = np.ones(len(points))
        start[0] = start[len(points) - tables :] = _trust(self.forecast)
        shares, follows = _shares(numbers, points, again, self.steps, start, tables, near.gap)
        squares = _squared_errors(numbers, shares @ points, follows)
        used = [(near, shares[0]), (likely, shares[1])]
        guessed = float(shares[2:4].sum())
        if guessed > 0:
            ends = np.cumsum([t.rows for t in workload.terms])[:-1]
            fit = objective_fit(workload, np.split(shares[2:4] @ points[2:4] / guessed, ends))
            # Answers without noise are met by the first rows: to search on would gain nothing.
            used.append((self._by_rows(fit, total, steps, is_quick=True), guessed))
        off = max(near.off, likely.off)
        names = (PRIOR, INDEPENDENT, EVEN) if has_guesses else (PRIOR,)
        towards = _named(names if local is None else (*names, LOCAL), shares)
        if local is None or LOCAL not in towards:
            codes, weights = merged_rows(used)
            if self.constraints is None:
                weights = _held(numbers, follows, codes, weights)
            outcome = self._published(codes, weights, off, inf, towards)
        else:
            behind = merged_rows(used if towards[LOCAL] < 1 else [(near, 1.0)])
            outcome = self._by_tables(local, towards, behind)
        return replace(outcome, squares=squares) if isinstance(outcome, Refined) else outcome

    def _is_far(self, near: WeightedRows) -> bool:
        """Whether the search ended so far from the projection that noise is no excuse."""
        noise = sqrt(expected_square(self.forecast))
        return sqrt(2 * near.gap) > LIMITS.rows_far * noise

    def _local(self, numbers: _Numbers, total: float) -> LocalTables:
        """The nearest tables that agree on what they share, which no records need have."""
        fit = objective_fit(self.forecast.workload, numbers.answers)
        return project_locally(fit, total, gap=LIMITS.coarse_gap, steps=LIMITS.local_steps_few)

    def _by_tables(
        self, local: LocalTables, towards: Mapping[str, float], behind: tuple[Integers, Array]
    ) -> Refined | Unrefined:
        """Rows mixed with tables that only agree: published are tables, with rows behind them."""
        codes, weights = behind
        total = local.total
        weights = weights * (total / float(weights.sum()))
        fit = _Numbers(self.forecast, self.unbiased).by_variance
        share = towards[LOCAL]
        own = problem(fit, total).answers(codes, weights)
        pairs = zip(own, local.answers, strict=True)
        answers = tuple((1 - share) * a + share * b for a, b in pairs)
        rows = WeightedRows(fit, codes, weights, 0.0, 0.0, 0.0, 0)
        tables = {s: (1 - share) * rows.table(s) + share * t for s, t in local.tables.items()}
        if not self._is_explained(fit, answers):
            return Unrefined.NOT_EXPLAINED
        names = self.forecast.workload.domain.names
        cells = np.ascontiguousarray(codes.T)
        return Refined(answers, names, cells, weights, "rows", inf, {}, towards, tables)

    def _is_explained(self, fit: Fit, answers: Sequence[Array]) -> bool:
        """Whether noise explains how far the answers are from the unbiased ones."""
        # At the truth every query adds its variance times its precision, 1, on average.
        return 2 * fit.value(list(answers)) <= LIMITS.rows_misfit * self.forecast.workload.queries

    def _total(self, numbers: _Numbers) -> float:
        """The number of records: public, or as the tables have it."""
        public = None if self.rows is None else float(self.rows)
        if self.constraints is not None:
            public = agreed_total(public, self.constraints)
        if public is not None:
            return public
        # Who divided a budget for some records takes them for there.
        least = 0.0 if self.forecast.undivided is None else 1.0
        return max(least, released_total(numbers.tables, None))

    def _nearest(
        self,
        numbers: _Numbers,
        total: float,
        steps: float,
        *,
        gap: float = LIMITS.row_gap,
        is_quick: bool = False,
    ) -> WeightedRows:
        """The projection, in the norm of the objective."""
        fit = objective_fit(self.forecast.workload, numbers.answers)
        return self._by_rows(fit, total, steps, gap=gap, is_quick=is_quick)

    def _by_rows(
        self,
        fit: Fit,
        total: float,
        steps: float,
        *,
        gap: float = LIMITS.row_gap,
        is_quick: bool = False,
    ) -> WeightedRows:
        return fit_rows(
            fit,
            total,
            draws=Draws(self.forecast.workload.digest()),
            steps=steps,
            gap=gap,
            rounds=0 if is_quick else LIMITS.row_rounds,
            constraints=self.constraints,
            progress=None if is_quick else self.progress,
        )

    def _published(
        self,
        codes: Integers,
        weights: Array,
        off: float,
        distance: float,
        towards: Mapping[str, float] | None = None,
    ) -> Refined | Unrefined:
        if off > WORKLOAD_LIMITS.published_gap:
            return Unrefined.CONSTRAINTS_UNMET
        workload = self.forecast.workload
        fit = _Numbers(self.forecast, self.unbiased).by_variance
        answers = problem(fit, float(weights.sum())).answers(codes, weights)
        if not self._is_explained(fit, answers):
            return Unrefined.NOT_EXPLAINED
        return Refined(
            tuple(answers),
            workload.domain.names,
            np.ascontiguousarray(codes.T),
            weights,
            "rows",
            distance,
            towards=towards or {},
        )


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Unbiased answers whose standard errors are ``noise`` times the planned."""

    forecast: Forecast
    answers: Sequence[Array]
    noise: float = 1.0

    @cached_property
    def values(self) -> Array:
        """All answers in one vector."""
        return np.concatenate(list(self.answers))

    @cached_property
    def tables(self) -> list[ReleasedTable]:
        """The tables that follow from the answers."""
        tables = released_tables(self.forecast, self.answers)
        return [replace(t, error=self.noise * t.error) for t in tables]

    def prior(self, total: float) -> Prior | None:
        """The prior of so many records; None where there is no table for it to speak of."""
        if not any(len(t.attributes) > 1 and not t.is_spread for t in self.tables):
            return None
        return find_prior(self.forecast.workload.domain, [*self.tables, *self.inner], total)

    @cached_property
    def inner(self) -> list[ReleasedTable]:
        """Margins that are known better than the tables say."""
        return inner_tables(self.forecast, self.tables)

    @cached_property
    def by_variance(self) -> Fit:
        """The answers, each by its inverse variance."""
        precisions = [p / self.noise**2 for p in _precisions(self.forecast)]
        return fit_answers(self.forecast.workload, list(self.answers), precisions)

    @cached_property
    def by_objective(self) -> Fit:
        """The answers in the norm of the objective, as likely on average as their noise is.

        Inverse variances would make one table of ten cells weigh nothing beside ten thousand cells
        of others, whose noise, cut at zero, then moves its large counts by several of its errors.
        """
        workload = self.forecast.workload
        scale = expected_square(self.forecast) * self.noise**2 / workload.queries
        if not scale > 0:
            return self.by_variance
        weights = [np.full(t.rows, t.weight**2 / scale) for t in workload.terms]
        return fit_answers(workload, list(self.answers), weights)

    def with_prior(self, belief: Prior) -> Fit:
        """The same and the prior around independence."""
        return with_prior(self.by_objective, self.tables, belief.total, belief, self.inner)

    def split(self, noise: Array) -> _Numbers:
        """What estimates are made of whose judge is the rest (``HeldOut``)."""
        scale = LIMITS.held_out_scale
        ends = np.cumsum([len(a) for a in self.answers])[:-1]
        noisier = np.split(self.values + scale * noise, ends)
        return _Numbers(self.forecast, noisier, self.noise * sqrt(1 + scale**2))


def _held(numbers: _Numbers, follows: Array, codes: Integers, weights: Array) -> Array:
    """The weights of rows, moved so that counts that stand out of their noise are near it.

    Noise that is cut at zero leaves a surplus on empty cells, which large counts of tables that
    share attributes pay for, and a prior draws them towards independence: both can move counts by
    several standard errors whose unbiased answers are off by one. So answers of tables that are
    more than ``count_stands_out`` errors above zero are fitted once more, all others to what they
    are. Between what they are, a, and what was measured, y, the least error is expected at

        a + c (y - a),      c = 1 - (V - X) / D,

    V the variance of the noise, X its covariance with a (``follows``, by held-out noise), and D the
    squared distance, all added up over these answers: the squared error is a parabola in c. Of m
    answers ``1 - 1 / m`` of it is gone: one by itself may stand out because of its noise.
    """
    forecast = numbers.forecast
    workload, base = forecast.workload, numbers.by_objective
    total = float(weights.sum())
    own = problem(base, total).answers(codes, weights)
    held, errors = [], []
    for t, (part, unbiased) in enumerate(zip(base.parts, numbers.answers, strict=True)):
        error = np.broadcast_to(forecast.standard_errors(t), unbiased.shape)
        is_table = greatest_column_power((part.term,), (1.0,), 1).power <= 1  # disjoint counts
        held.append(is_table & (error > 0) & (unbiased > LIMITS.count_stands_out * error))
        errors.append(error)
    chosen = np.concatenate(held)
    metric = np.concatenate([p.weights for p in base.parts])[chosen]
    apart = metric @ (numbers.values - np.concatenate(own))[chosen] ** 2
    noise = metric @ (np.concatenate(errors)[chosen] ** 2 - follows[chosen])
    share = 1 - noise / apart if apart > 0 else 0.0
    share *= 1 - 1 / max(int(chosen.sum()), 1)
    if share <= LIMITS.held_out_ignored:
        return weights
    values, precisions = [], []
    for part, unbiased, mixed, mask, error in zip(
        base.parts, numbers.answers, own, held, errors, strict=True
    ):
        near = LIMITS.count_held / np.where(mask, error, 1.0) ** 2
        values.append(np.where(mask, mixed + min(share, 1.0) * (unbiased - mixed), mixed))
        precisions.append(np.where(mask, near, part.weights))
    fit = problem(fit_answers(workload, values, precisions), total)
    return solve_weights(fit, codes, weights, LIMITS.row_weights_steps)[0]


def _candidates(
    workload: Workload,
    near: WeightedRows,
    likely: WeightedRows,
    belief: Prior,
    even: Array | None,
) -> Array:
    """The answers of both rows, of independent attributes and of even counts, a row each."""
    parts = len(near.fit.parts)
    out = [np.concatenate(near.answers()), np.concatenate(likely.answers()[:parts])]
    if even is not None:
        out += [belief.total * each for each in (product_answers(workload, belief), even)]
    return np.stack(out)


def _shares(
    numbers: _Numbers,
    points: Array,
    again: Callable[[_Numbers, float], Array],
    steps: float,
    start: Array,
    tables: int = 0,
    gap: float = 0.0,
) -> tuple[Array, Array]:
    """How much of every estimate is in the answers, and how these follow the noise.

    Args:
        numbers: The unbiased answers.
        points: The answers of the estimates, a row each.
        again: The same estimates of other numbers, by at most so many multiplications each.
        steps: Multiplications of a release.
        start: The shares that are expected before the evidence, up to a factor.
        tables: How many of the estimates, the last ones, no histogram has: they are left out
            unless they matter.
        gap: What the search for the projection left of its value.

    Returns:
        Shares of 0 or more that add up to 1, the projection's first, and the covariance of every
        answer of the mixture with its noise.
    """
    forecast = numbers.forecast
    metric = np.concatenate([np.full(t.rows, t.weight**2) for t in forecast.workload.terms])
    histograms = len(points) - tables
    square, covariance = expected_square(forecast) + 2 * gap, partial(noise_covariance, forecast)
    evidence = HeldOut(numbers.values, metric, points, start, square, covariance)
    apart = float(metric @ (points[1] - points[0]) ** 2)
    error = sqrt(evidence.own[0, 0]) / apart if apart > 0 else 0.0
    count = held_out_count(error, len(metric))
    share = LIMITS.held_out_share * steps / (2 * count)
    for noise in held_out_noise(forecast, count):
        evidence.add(noise, again(numbers.split(noise), share))
    shares = evidence.shares()
    if 0 < float(shares[histograms:].sum()) < LIMITS.tables_matter:
        shares = np.append(evidence.shares(histograms), np.zeros(tables))
    return shares, evidence.covariances(shares)


def _squared_errors(numbers: _Numbers, answers: Array, follows: Array) -> tuple[Array, ...]:
    """``(y - x)^2 - v + 2 cov(x, z)``: the squared error of every answer x, on average.

    With y = a + z measured, ``(y - x)^2 = (a - x)^2 + 2 z (a - x) + z^2``, whose mean is that of
    the squared error and ``v - 2 cov(x, z)`` (Stein 1981); ``follows`` is that covariance.
    """
    forecast = numbers.forecast
    errors = [
        np.broadcast_to(forecast.standard_errors(t), len(a)) for t, a in enumerate(numbers.answers)
    ]
    squares = (numbers.values - answers) ** 2 - np.concatenate(errors) ** 2 + 2 * follows
    return tuple(np.split(squares, np.cumsum([len(e) for e in errors])[:-1]))


def _precisions(forecast: Forecast) -> list[Array]:
    """The inverse variances of all answers, exact ones like very good ones."""
    variances = [forecast.standard_errors(t) ** 2 for t in range(len(forecast.workload.terms))]
    smallest = LIMITS.exact_variance * max(float(v.max(initial=0.0)) for v in variances)
    return [1 / np.maximum(v, smallest or 1.0) for v in variances]
