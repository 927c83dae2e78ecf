# SPDX-License-Identifier: Apache-2.0
"""The answers of a release, made to agree: one histogram or one set of rows behind all of them.

Unbiased answers contradict each other and go below zero. Here they are projected onto what data
can have, in the norm of the plan's objective (``sum_q w_q^2 (a - y)_q^2``): in that norm the result
is never farther from the truth than what came in (Nikolov, Talwar, Zhang 2013, "The geometry of
differential privacy: the sparse and approximate cases", Theorem 1; the truth is in the convex set).
The metric of the noise covariance is the most likely point of the same set, but its error in the
objective's norm may rise above that of the unbiased answers; see ``docs/mechanisms/projection.md``.

``refined`` chooses one of five estimates, by public numbers only; the thresholds stand first in
``refine_limits.py``:

    cells can be listed, the plan is for the maximum error   the minimax histogram (``cells``)
    cells can be listed, noise outweighs the records         the projection, drawn towards guesses
                                                             (``shrink``)
    cells can be listed                                      the projection, with a certified
                                                             distance (``cells``)
    cells cannot, tables of the queries can                  the projection by weighted rows
                                                             (``rows``), mixed with rows that are
                                                             fitted to a prior around independence
                                                             too, as held-out noise says
                                                             (``shrink``)
    neither, or the search did not come near enough          none (``Unrefined`` says why): the
                                                             release publishes unbiased answers

The minimax histogram was never worse in the maximum error than least squares where both were
measured (``bench boosting``). Without ``shrinks`` there is no guess and no prior: the projection,
at any size. Rows come near it as far as their search goes: where they miss the answers by more than
their noise explains, they are not used.

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
from sfumato.planning.forecast import Forecast, noise_variance
from sfumato.planning.planning_limits import LIMITS as PLANNING_LIMITS
from sfumato.planning.public_draws import Draws
from sfumato.refine.cells import CellEstimate, fit_explicit, fit_minimax
from sfumato.refine.problem import Grid, alike
from sfumato.refine.reconstruct import (
    Fit,
    ReleasedTable,
    fit_answers,
    released_tables,
    released_total,
)
from sfumato.refine.refine_limits import LIMITS
from sfumato.refine.row_problem import problem
from sfumato.refine.rows import WeightedRows, fit_rows
from sfumato.refine.shrink import (
    PRIOR,
    HeldOut,
    PublicRecords,
    RowPair,
    Shrunk,
    held_out_count,
    held_out_noise,
    shrunk_towards,
    with_prior,
)
from sfumato.text import shown
from sfumato.types import Array, Integers, Progress
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
    are the guesses that the projection was drawn towards, and how much of each is in the answers.
    """

    answers: tuple[Array, ...]
    attributes: tuple[str, ...]
    codes: Integers
    weights: Array
    method: str
    distance: float
    alike: Mapping[str, Integers] = field(default_factory=dict)
    towards: Mapping[str, float] = field(default_factory=dict)

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
        return replace(self, answers=answers)

    def describe(self) -> str:
        """How the answers were made to agree, in words."""
        if self.method == "adaptive":
            return "one estimate, measured where it was worst"
        if self.method == "rows":
            words = "projected onto the answers of weighted records"
            weight = 1 - self.share
            if not weight:
                return words
            return (
                f"{words} ({self.share:.0%} of the answers), mixed with records fitted to a prior "
                f"around independence ({weight:.0%}, as held-out noise says)"
            )
        words = "projected onto the answers of histograms"
        if self.method == "largest":
            return f"{words}, the largest difference as small as can be"
        if not self.towards:
            return words
        shares = [f"{name} ({share:.0%})" for name, share in self.towards.items() if share > 0]
        return f"{words} ({self.share:.0%} of the answers), then shrunk towards {', '.join(shares)}"


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
        public: Public records, a guess besides even counts and independent attributes.
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

    @property
    def total(self) -> float | None:
        """The public number of records."""
        return None if self.rows is None else float(self.rows)

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
        mixed = shrunk_towards(
            self.forecast,
            self.fit,
            self.nearest,
            self.rows is not None,
            noise=self.noise,
            public=self.public,
            steps=self.steps,
        )
        if mixed is None:
            return self.projected()
        return self._published(mixed, "histogram", inf, mixed.towards)

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
        estimate: CellEstimate | Shrunk,
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


def expected_square(forecast: Forecast) -> float:
    """``E |unbiased - truth|^2`` in the norm of the objective."""
    totals, _ = forecast.strategy.group_variances(forecast.block_variances)
    pairs = zip(forecast.workload.terms, totals, strict=True)
    return sum(t.weight**2 * float(v) for t, v in pairs)


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
        numbers = _Numbers(self.forecast, self.unbiased)
        # Answers with a bias were shrunk when they were planned.
        if self.forecast.strategy.records is not None or not numbers.has_prior:
            return self._projected()
        total = self._total(numbers)
        if not total > 0:
            return Unrefined.NO_RECORDS
        pair = self._pair(numbers, total, LIMITS.row_search_share * self.steps)

        def again(noisier: _Numbers, steps: float) -> Array:
            count = self._total(noisier)
            if not count > 0:
                return np.zeros_like(pair.answers)
            return self._pair(noisier, count, steps, is_quick=True).answers

        weight = _prior_weight(numbers, pair.answers, again, self.steps)
        codes, weights = pair.mixed(weight)
        off = max(pair.nearest.off, pair.prior.off)
        towards = {PRIOR: weight} if weight > 0 else {}
        return self._published(codes, weights, off, inf, towards)

    def _total(self, numbers: _Numbers) -> float:
        """The number of records: public, or as the tables have it."""
        public = None if self.rows is None else float(self.rows)
        if self.constraints is not None:
            public = agreed_total(public, self.constraints)
        return released_total(numbers.tables, None) if public is None else public

    def _pair(
        self, numbers: _Numbers, total: float, steps: float, is_quick: bool = False
    ) -> RowPair:
        near = self._nearest(numbers, total, steps, is_quick=is_quick)
        fit = numbers.with_prior(total)
        return RowPair(near, self._by_rows(fit, total, steps, is_quick=is_quick))

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
        # At the truth every query adds its variance times its precision, 1, on average.
        if 2 * fit.value(answers) > LIMITS.rows_misfit * workload.queries:
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

    @property
    def has_prior(self) -> bool:
        """Whether there is a table for the prior to speak of."""
        return any(len(t.attributes) > 1 and not t.is_spread for t in self.tables)

    @cached_property
    def by_variance(self) -> Fit:
        """The answers, each by its inverse variance."""
        precisions = [p / self.noise**2 for p in _precisions(self.forecast)]
        return fit_answers(self.forecast.workload, list(self.answers), precisions)

    def with_prior(self, total: float) -> Fit:
        """The same and the prior around independence."""
        return with_prior(self.by_variance, self.tables, total)

    def split(self, noise: Array) -> _Numbers:
        """What estimates are made of whose judge is the rest (``HeldOut``)."""
        scale = LIMITS.held_out_scale
        ends = np.cumsum([len(a) for a in self.answers])[:-1]
        noisier = np.split(self.values + scale * noise, ends)
        return _Numbers(self.forecast, noisier, self.noise * sqrt(1 + scale**2))


def _prior_weight(
    numbers: _Numbers, points: Array, again: Callable[[_Numbers, float], Array], steps: float
) -> float:
    """How much of the estimate with the prior is mixed with the projection.

    Args:
        numbers: The unbiased answers.
        points: The answers of both estimates, a row each.
        again: The same estimates of other numbers, by at most so many multiplications each.
        steps: Multiplications of a release.

    Returns:
        A weight from 0 to 1.
    """
    forecast = numbers.forecast
    terms = forecast.workload.terms
    metric = np.concatenate([np.full(t.rows, t.weight**2) for t in terms])
    evidence = HeldOut(numbers.values, metric, points)
    variance = noise_variance(forecast, metric * (points[1] - points[0]))
    error = evidence.error(variance)
    count = held_out_count(error if error < inf else 0.0)
    share = LIMITS.held_out_share * steps / (2 * count)
    for noise in held_out_noise(forecast, count):
        evidence.add(noise, again(numbers.split(noise), share))
    return evidence.weight(variance)


def _precisions(forecast: Forecast) -> list[Array]:
    """The inverse variances of all answers, exact ones like very good ones."""
    variances = [forecast.standard_errors(t) ** 2 for t in range(len(forecast.workload.terms))]
    smallest = LIMITS.exact_variance * max(float(v.max(initial=0.0)) for v in variances)
    return [1 / np.maximum(v, smallest or 1.0) for v in variances]
