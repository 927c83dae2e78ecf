# SPDX-License-Identifier: Apache-2.0
"""The forecast of a strategy: the error of every answer, known before anything is spent.

For linear mechanisms the forecast is exact, not an estimate: the error of every answer has mean
zero and a variance that depends on the strategy and the noise only, never on the data. Where a
strategy may be biased, its forecast is the worst case over all data sets of its public number of
records, and intervals are as much wider as the bias asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from math import sqrt
from typing import Self, overload

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.planning.calibrate import calibrate, excess_of_unit, laplace_on_grid, privacy_loss
from sfumato.planning.joint_errors import AllWithin, JointErrors
from sfumato.planning.planning_limits import LIMITS
from sfumato.privacy.budget import Budget, may_lose_a_record
from sfumato.privacy.cost import Cost
from sfumato.privacy.gaussian import float_down
from sfumato.privacy.noise_laws import SMOOTH, BlockNoise, NoiseTails, whole_gain
from sfumato.random import Draws
from sfumato.strategy.base import Strategy
from sfumato.strategy.biased import folded_normal_quantile
from sfumato.text import did_you_mean, listing, shown
from sfumato.types import Array, Integers, Neighbours, Noise, Objective
from sfumato.workload.queries import check_entries
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

__all__ = [
    "ALL",
    "Candidate",
    "Candidates",
    "Coefficients",
    "CombinationError",
    "DividedForecast",
    "ErrorPart",
    "Factors",
    "FirstNumber",
    "Forecast",
    "GroupForecast",
    "ShareForecast",
    "Spread",
    "allowed_loss",
    "answer_covariance",
    "combination_error",
    "drawn_noise",
    "drawn_values",
    "noise_covariance",
    "noise_variance",
    "read",
]


ALL = slice(None)


def _over_domain(term: Term) -> Array:
    """The coefficients of a term, a column for each cell of the whole domain."""
    domain = term.domain
    places = [domain.index(name) for name in term.attributes]
    own = term.dense().reshape(term.rows, *(domain.shape[i] for i in places))
    ordered = np.moveaxis(own, range(1, own.ndim), 1 + np.argsort(np.argsort(places)))
    shape = [size if i in places else 1 for i, size in enumerate(domain.shape)]
    whole = np.broadcast_to(ordered.reshape(term.rows, *shape), (term.rows, *domain.shape))
    return np.asarray(whole.reshape(term.rows, -1), dtype=np.float64)


def allowed_loss(budget: Budget, noise: Noise) -> float | None:
    """What noise may lose at a budget: ``mu`` or ``epsilon``; None where it cannot be had."""
    return budget.gaussian_mu if noise == "gaussian" else float_down(budget.pure_epsilon)


@dataclass(frozen=True, slots=True)
class ErrorPart:
    """What blocks with one law of noise add to the mean squared error, at any privacy loss.

    ``scale`` is that of their noise at a loss of 1, ``grid`` the bits after the point of their
    values and of the counts that these are of, ``weight`` the error at unit variance.
    """

    scale: float
    grid: tuple[int, int]
    weight: float

    def squared_error(self, epsilon: float) -> float:
        """Of Laplace noise for an epsilon, on its grid."""
        return self.weight * laplace_on_grid(self.scale / epsilon, *self.grid).variance


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mechanism that was considered: its forecast, or why it does not apply.

    ``algorithm`` is which of its ways a mechanism took, where it has several. ``parts`` make up the
    error where it does not go with the reciprocal of the privacy loss: of Laplace noise.
    """

    mechanism: str
    rmse: float | None
    largest: float | None
    note: str
    is_chosen: bool = False
    algorithm: str = ""
    parts: tuple[ErrorPart, ...] = field(default=(), repr=False, compare=False)

    @property
    def name(self) -> str:
        """The mechanism with its algorithm, for people."""
        return f"{self.mechanism} ({self.algorithm})" if self.algorithm else self.mechanism

    def rmse_at(self, loss: float, before: float) -> float | None:
        """The error at another privacy loss than ``before``, that of this forecast.

        Exact with ``parts`` and for Gaussian noise, but for the rounding of scales; of Laplace
        noise of too many laws it is by the ratio of the losses, as without a grid. None where
        there is none here, or no such noise can be drawn there.
        """
        if self.rmse is None or not self.parts:
            return None if self.rmse is None else self.rmse * before / loss
        try:
            return sqrt(sum(part.squared_error(loss) for part in self.parts))
        except PlanError:
            return None


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """The forecast error of one group of queries, in counts; ``bias`` is the part that is bias.

    All are root mean squares: over the noise, over the queries (but for ``largest``), and in the
    worst case over the data where there is a bias.
    """

    name: str
    queries: int
    rmse: float
    largest: float
    bias: float = 0.0


class Candidates(Sequence[Candidate]):
    """Every mechanism that was considered, in order; forecast when somebody looks.

    ``forecasts`` make them, each once. What they need is let go then.
    """

    def __init__(self, forecasts: Iterable[Callable[[], Candidate]], chosen: str) -> None:
        """Those with the name ``chosen`` are marked so."""
        self._forecasts = tuple(forecasts)
        self._chosen = chosen
        self._all: tuple[Candidate, ...] | None = None

    def all(self) -> tuple[Candidate, ...]:
        """All of them."""
        forecasts = self._forecasts  # before the look at what another thread may have made
        if self._all is None:
            made = [forecast() for forecast in forecasts]
            self._all = tuple(replace(c, is_chosen=c.mechanism == self._chosen) for c in made)
            self._forecasts = ()
        return self._all

    @overload
    def __getitem__(self, index: int) -> Candidate: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...

    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        """One of them, or several."""
        return self.all()[index]

    def __len__(self) -> int:
        """How many there are."""
        forecasts = self._forecasts
        return len(forecasts if self._all is None else self._all)


@dataclass(frozen=True, eq=False)
class Factors:
    """The factorization ``F = R M`` of a plan as matrices, cells in row-major order.

    Attributes:
        queries: F, a row for each query, a column for each cell of the domain.
        measured: M, a row for each measured value.
        reconstruction: R, a row for each query, a column for each measured value.
        noise: The standard deviation of the noise of each measured value.
    """

    queries: Array
    measured: Array
    reconstruction: Array
    noise: Array

    @property
    def standard_errors(self) -> Array:
        """That of every query: the lengths of the rows of R, by the noise."""
        return np.asarray(np.linalg.norm(self.reconstruction * self.noise, axis=1))


@dataclass(frozen=True, eq=False)
class Spread:
    """The law of the error of every answer of a group; ``shapes`` is None where it is normal.

    Of a large group some rows are looked at a time: arrays that repeat one number take no memory.
    """

    variances: Array
    shapes: Array | None = None
    biases: Array | None = None
    tails: NoiseTails = SMOOTH

    def standard_errors(self, rows: slice = ALL) -> Array:
        """The standard deviations of the noise."""
        return np.sqrt(self.variances[rows])

    def half_widths(self, level: float, rows: slice = ALL) -> Array:
        """Half the width of the confidence intervals: `Forecast.half_widths`."""
        errors = self.standard_errors(rows)
        if self.biases is not None:
            return self._widened(errors, self.biases[rows], level)
        shapes = np.array([np.inf]) if self.shapes is None else self.shapes[rows]
        return np.asarray(errors * self.tails.quantile(shapes, level), dtype=np.float64)

    def _widened(self, errors: Array, biases: Array, level: float) -> Array:
        ratio = np.divide(biases, errors, out=np.zeros_like(errors), where=errors > 0)
        half = errors * folded_normal_quantile(ratio, level)
        return np.asarray(np.where(errors > 0, half, biases), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class FirstNumber:
    """A noisy number that was measured before the budget was divided: of what, and its noise."""

    name: str
    value: float
    law: BlockNoise


@dataclass(frozen=True, eq=False)
class Forecast:
    """A chosen strategy with its noise, what it costs and how well it will answer.

    ``stopped_early`` says that a time limit ended the planning: without one the error may be less.
    ``may_drop_records``: the source is a query, a view or an expression, so that under
    ``replace-one`` a replaced record may leave it, and the number of records is not public.
    ``undivided`` is the plan whose budget was divided anew for ``divided_for`` records
    (``division.py``), if it was.
    """

    workload: Workload
    budget: Budget
    neighbours: Neighbours
    objective: Objective
    unit: PrivacyUnit | None
    strategy: Strategy
    noise: tuple[BlockNoise, ...]
    candidates: Sequence[Candidate]
    bound: float | None = None
    replace_one_bound: float | None = None
    stopped_early: bool = False
    may_drop_records: bool = False
    undivided: Forecast | None = None
    divided_for: int | None = None

    @property
    def first_numbers(self) -> tuple[FirstNumber, ...]:
        """The numbers that were paid for to divide the budget: see `DividedForecast`."""
        return ()

    @property
    def mechanism(self) -> str:
        """The name of the chosen mechanism."""
        return self.strategy.mechanism

    @cached_property
    def cost(self) -> Cost:
        """What a release debits: never more than the budget."""
        if self.undivided is not None:
            return self.undivided.cost
        loss = privacy_loss(
            self.strategy,
            self.noise,
            self.neighbours,
            self.unit,
            may_drop_records=self.may_drop_records,
        )
        return Cost.gaussian(loss) if self.strategy.noise == "gaussian" else Cost.pure(loss)

    @cached_property
    def block_variances(self) -> tuple[float, ...]:
        """The noise variance of every measured block."""
        return tuple(n.variance for n in self.noise)

    @property
    def is_divisible(self) -> bool:
        """Whether the budget can be divided anew (`division`): pieces, for the mean error, once."""
        is_planned = self.objective == "rmse" and self.undivided is None
        return is_planned and self.strategy.in_normal_form.has_pieces

    @property
    def in_normal_form(self) -> Self:
        """The forecast for the normal form: what is projected, the same for all who ask."""
        strategy = self.strategy.in_normal_form
        if self.workload is strategy.workload:
            return self
        return replace(self, workload=strategy.workload, strategy=strategy)

    @property
    def measured_domain(self) -> Domain:
        """The domain of the cells that are measured: sums may be planned over other cells."""
        return self.strategy.in_normal_form.workload.domain

    @property
    def on_fine_grids(self) -> Forecast:
        """The same with Laplace noise on grids that are fine beside it, as it was drawn before."""
        if self.strategy.noise != "laplace":
            return self
        return self.with_loss(float_down(self.budget.pure_epsilon), is_fine=True)

    def at(self, budget: Budget) -> Forecast | None:
        """The same strategy with noise for another budget; None where it cannot be had.

        Its candidates are those at the budget of this forecast.
        """
        loss = allowed_loss(budget, self.strategy.noise)
        try:
            return None if loss is None else replace(self.with_loss(loss), budget=budget)
        except PlanError:
            return None

    def with_loss(self, loss: float, *, is_fine: bool = False) -> Forecast:
        """The same strategy with noise that loses so much: ``mu`` or ``epsilon``."""
        whose, drops = (self.neighbours, self.unit), self.may_drop_records
        noise = calibrate(self.strategy, loss, *whose, may_drop_records=drops, is_fine=is_fine)
        return replace(self, noise=noise)

    @cached_property
    def tails(self) -> NoiseTails:
        """How far sums of the noise reach."""
        return NoiseTails.of(self.noise)

    @cached_property
    def groups(self) -> tuple[GroupForecast, ...]:
        """The forecast of every group of queries."""
        totals = self._total_variances
        if self.strategy.records is not None:
            pairs = zip(self.workload.terms, totals, strict=True)
            return tuple(self._biased_group(t, *pair) for t, pair in enumerate(pairs))
        greatest = _maximum_variances(self.strategy, self.block_variances)
        return tuple(
            GroupForecast(term.name, term.rows, sqrt(total / term.rows), sqrt(largest))
            for term, total, largest in zip(self.workload.terms, totals, greatest, strict=True)
        )

    @property
    def _total_variances(self) -> Sequence[float]:
        """The sum of the variances of every group."""
        return _total_variances(self.strategy, self.block_variances)

    def _biased_group(self, t: int, term: Term, total: float) -> GroupForecast:
        squared = self._records**2 * self.strategy.squared_bias(t)
        worst = self.strategy.maximum_error(t, self.block_variances, self._records)
        return GroupForecast(
            term.name,
            term.rows,
            sqrt((total + squared) / term.rows),
            sqrt(worst),
            sqrt(squared / term.rows),
        )

    @property
    def _records(self) -> int:
        return self.strategy.records or 0

    def biases(self, term: int) -> Array:
        """How far the mean of every answer can be off, in counts."""
        return self._records * self.strategy.bias_bounds(term)

    @cached_property
    def rmse(self) -> float:
        """The root mean square error over all queries, in counts; of the worst data, if biased."""
        totals = self._total_variances
        if self.strategy.records is not None:
            squared = self._records**2 * self.strategy.squared_bias()
            return sqrt((sum(totals) + squared) / self.workload.queries)
        pairs = zip(totals, self.workload.terms, strict=True)
        return sqrt(sum(sqrt(v / t.rows) ** 2 * t.rows for v, t in pairs) / self.workload.queries)

    @property
    def weighted_rmse(self) -> float:
        """The root mean square error by the weights of the groups: what the planner makes small.

        Sums weigh by the reciprocal of their greatest coefficient, so that this is in counts where
        sums of other units are asked, too.
        """
        weights = sum(t.rows * t.weight**2 for t in self.workload.terms)
        if self.strategy.records is not None:
            pairs = [(g.rmse**2, t) for g, t in zip(self.groups, self.workload.terms, strict=True)]
        else:
            terms = self.workload.terms
            totals = self._total_variances
            pairs = [(sqrt(v / t.rows) ** 2, t) for v, t in zip(totals, terms, strict=True)]
        return sqrt(sum(square * t.rows * t.weight**2 for square, t in pairs) / weights)

    @property
    def largest_error(self) -> float:
        """The largest root mean square error of any query, in counts."""
        return max(g.largest for g in self.groups)

    @cached_property
    def gamma(self) -> float:
        """``||R||_F ||M||_{1->2} / sqrt(k)``: the root mean square error at unit noise.

        For replace-one neighbours the diameter of M takes the place of its norm.
        """
        if self.neighbours == "add-remove":
            return self.strategy.gamma
        strategy = self.strategy
        totals = strategy.total_variances([share**-2 for share in strategy.shares])
        power = strategy.squared_sensitivity(self.neighbours, self._drops)
        return sqrt(float(np.sum(totals)) * power / self.workload.queries)

    @property
    def _drops(self) -> bool:
        """Whether a replaced record can fall in no cell, or a person have fewer rows."""
        return may_lose_a_record(self.workload.domain, self.unit, self.may_drop_records)

    @property
    def total_is_public(self) -> bool:
        """Whether a release will know the number of records: no neighbour has another one."""
        return self.neighbours == "replace-one" and not self._drops

    @property
    def known_bound(self) -> float | None:
        """The lower bound for the neighbours of the forecast."""
        return self.bound if self.neighbours == "add-remove" else self.replace_one_bound

    @cached_property
    def certificate(self) -> float | None:
        """Error over a lower bound on the error of every factorization (>= 1), if one is known.

        Every factorization with noise of the kinds of `certified_noise`.

        Known for unbiased answers: then ``bound`` holds a lower bound for add-remove neighbours,
        ``replace_one_bound`` one for replace-one neighbours (of single records, not of persons with
        several), at unit noise, on the weighted squared error of the objective: their sum, or the
        largest. It is one for Laplace noise too, as no column is shorter in L1 than in L2, but a
        loose one; on a grid such noise errs `whole_gain` times as much at least. For a unit with
        groups it is multiplied by what a person adds at least
        (`moves.bound_of_groups`): nearly tight where all groups are asked alike,
        loose elsewhere.
        """
        at_unit_noise = self._certificate_at_unit_noise
        return None if at_unit_noise is None else at_unit_noise * self._over_whole_noise

    @cached_property
    def _certificate_at_unit_noise(self) -> float | None:
        """The same for noise of unit variance, or of Laplace noise without a grid."""
        bound, strategy = self.known_bound, self.strategy
        if not bound or strategy.records is not None:
            return None
        if self.neighbours == "replace-one" and self.unit is not None:
            return None
        error = strategy.weighted_error(self.objective, self.neighbours, self._drops)
        return sqrt(error * excess_of_unit(strategy, self.unit, self.neighbours) / bound)

    @cached_property
    def _over_whole_noise(self) -> float:
        """The error over that of noise without a grid, over the least that this can be.

        Others may draw in whole steps where this plan, by its fine coefficients, cannot.
        """
        if self.strategy.noise != "laplace":
            return 1.0
        least = whole_gain(float(self.budget.pure_epsilon))
        if not self.tails.scales:
            return 1 / least
        planned = self.strategy.in_normal_form  # the bound is of its queries
        smooth = tuple(2 * n.scale**2 for n in self.noise)
        own, real = (self._objective_variance(planned, v) for v in (self.block_variances, smooth))
        return sqrt(own / real) / least * self._over_least_scale(real)

    def _over_least_scale(self, real: float) -> float:
        """The error over that for the whole budget, where the least scale that is drawn costs less.

        ``real``: the objective of noise of the same scales, without a grid. More than that for a
        unit of several rows, whose noise is compared with that for one.
        """
        strategy, epsilon = self.strategy, float(self.budget.pure_epsilon)
        if float(self.cost.pure_epsilon) >= epsilon * (1 - LIMITS.scale_rounded):
            return 1.0
        error = strategy.weighted_error(self.objective, self.neighbours, self._drops)
        error *= excess_of_unit(strategy, self.unit, self.neighbours)
        return max(1.0, sqrt(real / (2 * error)) * epsilon)

    def _objective_variance(self, strategy: Strategy, noise: tuple[float, ...]) -> float:
        """What the objective makes small: the sum, or the greatest, by the weights of the terms."""
        weights = [t.weight**2 for t in strategy.workload.terms]
        if self.objective == "max":
            greatest = _maximum_variances(strategy, noise)
            return float(max(w * v for w, v in zip(weights, greatest, strict=True)))
        totals = _total_variances(strategy, noise)
        return float(sum(w * v for w, v in zip(weights, totals, strict=True)))

    @property
    def certified_noise(self) -> tuple[Noise, ...]:
        """The kinds of noise of the factorizations that the certificate speaks of.

        With a lower bound B at unit noise no factorization errs less than ``sqrt(B) / mu`` with
        Gaussian noise, nor than ``sqrt(2 B) / epsilon`` times `whole_gain` with Laplace noise of
        this budget. The certificate compares with the bound of the plan's own noise; where that is
        the smaller of the two it holds for either noise. It says nothing of other laws of noise,
        nor of answers that are biased.
        """
        own, mu = self.strategy.noise, self.budget.gaussian_mu
        if mu is None:
            return (own,)
        epsilon = float(self.budget.pure_epsilon)
        units: dict[Noise, float] = {
            "gaussian": 1 / mu,
            "laplace": sqrt(2) / epsilon * whole_gain(epsilon),
        }
        return ("gaussian", "laplace") if units[own] == min(units.values()) else (own,)

    @property
    def certified_among(self) -> str:
        """`certified_noise` in words: "Gaussian noise", "Gaussian or Laplace noise"."""
        return " or ".join(noise.capitalize() for noise in self.certified_noise) + " noise"

    @property
    def lower_bound(self) -> float | None:
        """The certified bound at unit noise: on ``gamma``, or on the weighted largest error."""
        bound = self.known_bound
        certificate = self._certificate_at_unit_noise
        if certificate is None or bound is None:
            return None
        return sqrt(bound) if self.objective == "max" else self.gamma / certificate

    def standard_errors(self, term: int) -> Array:
        """The standard error of every answer of a group, unless they are too many to be listed."""
        return Spread(self.variances(term)).standard_errors()

    def variances(self, term: int) -> Array:
        """Their squares."""
        group = self.workload.terms[term]
        check_entries(group.rows, f"the standard errors of group {group.name!r}")
        return self.strategy.variances(term, self.block_variances)

    def spread(self, term: int) -> Spread:
        """The law of the error of every answer of a group."""
        variances = self.variances(term)
        if self.strategy.records is not None:
            return Spread(variances, biases=self.biases(term))
        is_normal = self.strategy.noise == "gaussian"
        shapes = None if is_normal else self.strategy.effective_terms(term)
        return Spread(variances, shapes, tails=self.tails)

    def covariance(self, group: str, queries: Sequence[int]) -> Array:
        """The covariance matrix of the listed answers of a group, by their numbers."""

        return answer_covariance(self, group, queries)

    def factors(self) -> Factors:
        """The factorization as matrices; TooLarge where they have too many entries."""
        workload, strategy = self.workload, self.strategy
        measured, cells = sum(strategy.block_rows), workload.domain.size
        for rows, columns in ((measured, cells), (workload.queries, max(measured, cells))):
            if rows * columns > LIMITS.factor_entries:
                raise TooLarge(
                    f"{rows:,} rows of {columns:,} numbers are too many for a matrix, the most are "
                    f"{LIMITS.factor_entries:,} numbers; ask for a smaller workload, or use "
                    "plan.standard_errors and plan.covariance, which need none"
                )
        read = []
        for term in range(len(workload.terms)):
            readings = strategy.readings(term)
            rows = workload.terms[term].rows
            blocks = [
                readings.get(b, np.zeros((rows, size)))
                for b, size in enumerate(strategy.block_rows)
            ]
            read.append(np.hstack(blocks))
        return Factors(
            np.vstack([_over_domain(term) for term in workload.terms]),
            np.vstack([_over_domain(block.term) for block in strategy.blocks]),
            np.vstack(read),
            np.sqrt(np.repeat(self.block_variances, strategy.block_rows)),
        )

    def combination_error(self, coefficients: Mapping[str, Coefficients]) -> float:
        """The standard error of any linear combination of answers, of one or more groups.

        ``coefficients`` has for every group, by name, a number per answer, or a mapping from
        numbers of answers to coefficients.
        """

        return combination_error(self, coefficients).standard_error

    def half_widths(self, term: int, level: float) -> Array:
        """Half the width of the confidence interval of every answer of a group.

        Exact for Gaussian noise up to the grid (2^-16 of the scale); for Laplace noise exact for
        single draws, whole steps of their grid, kurtosis-matched and half a step wider for
        combinations. Where the strategy is biased it holds for the worst bias (``biased.py``).
        """
        return self.spread(term).half_widths(level)

    def error_bound(self, beta: float) -> float:
        """A bound on the error of every query at once, holding with probability ``1 - beta``.

        The lesser of two proved ones: `all_within` says which.
        """
        return self.all_within(beta).counts

    def as_shares(self, records: int) -> ShareForecast:
        """The errors in shares of a public number of records; refused where it is private."""
        if isinstance(records, bool) or not isinstance(records, int) or records < 1:
            raise PlanError(
                f"records is the public number of records, 1 or more, got {shown(records)}"
            )
        if not self.total_is_public:
            raise PlanError(
                "shares are parts of a public number of records, and here it is private; plan with "
                'neighbours="replace-one" for single rows of a stored table, and a domain that '
                'drops none: sf.Domain(..., records="all-inside")'
            )
        return ShareForecast(self, records)

    def all_within(self, beta: float) -> AllWithin:
        """How far off the farthest answer is with probability ``1 - beta`` at most, and why.

        Of the linear answers, before any projection; the greatest bias, if any, is added.
        """
        return self._joint_errors.within(beta)

    @cached_property
    def _joint_errors(self) -> JointErrors:
        strategy = self.strategy.in_normal_form
        return JointErrors(replace(self, workload=strategy.workload, strategy=strategy))


# The error of any linear combination of answers, and the covariances of chosen ones.
#
# Answers share measured values, so their errors are not independent. A combination ``c'a`` of the
# answers ``a = R y`` has the error ``(R'c)'z``: with ``R'c`` (``Strategy.adjoint``) and the noise
# variance of every block, its law is known before anything is spent, without R.


Coefficients = Mapping[int, float] | Sequence[float] | Array


@dataclass(frozen=True, eq=False)
class ShareForecast:
    """A forecast in shares of a public number n of records: the notes' normalised answers.

    Replacing one of n records moves two entries of the histogram of shares by 1/n each: ``move`` is
    2/n, its distance in L1 (equation (8) of the notes on linear queries).
    """

    forecast: Forecast
    records: int

    @property
    def move(self) -> Fraction:
        """``2 / n``: how far a replaced record moves the histogram of shares, in L1."""
        return Fraction(2, self.records)

    @property
    def rmse(self) -> float:
        """The root mean square error over all queries, in shares."""
        return self.forecast.rmse / self.records

    @property
    def largest_error(self) -> float:
        """The largest root mean square error of any query, in shares."""
        return self.forecast.largest_error / self.records

    def error_bound(self, beta: float) -> float:
        """A bound on the error of every query at once, in shares, with probability ``1 - beta``."""
        return self.forecast.error_bound(beta) / self.records

    def as_json(self) -> dict[str, object]:
        """Public facts: n, the move and the errors, in shares."""
        return {
            "records": self.records,
            "move": float(self.move),
            "rmse": self.rmse,
            "largest": self.largest_error,
        }

    def __str__(self) -> str:
        return (
            f"answers as shares of n = {self.records:,} records, of which one moves the histogram "
            f"by 2/n = {float(self.move):.4g}: typical error {self.rmse:.4g}, largest "
            f"{self.largest_error:.4g}"
        )


@dataclass(frozen=True, slots=True)
class CombinationError:
    """The law of the error of a combination; ``shape`` is how many equal draws it is like.

    ``bias`` bounds how far its mean is off, where the strategy is biased.
    """

    standard_error: float
    shape: float
    bias: float = 0.0
    tails: NoiseTails = SMOOTH

    def half_width(self, level: float) -> float:
        """Half the width of the interval that holds the truth with probability ``level``.

        Exact for Gaussian noise (up to the grid) and for single Laplace draws or sums of equal
        ones; kurtosis-matched for other sums of Laplace draws.
        """
        if self.bias > 0:
            if self.standard_error == 0:
                return self.bias
            ratio = np.array([self.bias / self.standard_error])
            return self.standard_error * float(folded_normal_quantile(ratio, level)[0])
        quantile = self.tails.quantile(np.array([self.shape]), level)
        return self.standard_error * float(quantile[0])


def combination_error(
    forecast: Forecast, coefficients: Mapping[str, Coefficients]
) -> CombinationError:
    """``sqrt(sum_j v_j (R'c)_j^2)`` over all measured values j, of answers of one or more groups.

    ``coefficients`` has, for every group by name, a number per answer in the order of the answers,
    or a mapping from numbers of answers to coefficients.
    """
    weights: dict[int, Array] = {}
    bias, records = 0.0, forecast.strategy.records
    for term, c in read(forecast.workload, coefficients).items():
        if records is not None:
            bias += records * float(np.abs(c) @ forecast.strategy.bias_bounds(term))
        for b, adjoint in forecast.strategy.adjoint(term, c).items():
            weights[b] = weights[b] + adjoint if b in weights else adjoint
    squares = {b: w**2 * forecast.block_variances[b] for b, w in weights.items()}
    second = sum(float(e.sum()) for e in squares.values())
    fourth = sum(float((e**2).sum()) for e in squares.values())
    is_gaussian = forecast.strategy.noise == "gaussian" or fourth == 0
    shape = np.inf if is_gaussian else second**2 / fourth
    return CombinationError(sqrt(second), shape, bias, forecast.tails)


@dataclass(frozen=True, eq=False)
class DividedForecast(Forecast):
    """A forecast whose budget was divided for ``first_numbers``, which were measured to divide it.

    A class of its own, so that what is stored of other forecasts stays as it was.
    """

    first_numbers: tuple[FirstNumber, ...] = ()

    @classmethod
    def of(cls, forecast: Forecast, first: tuple[FirstNumber, ...]) -> Forecast:
        """The forecast with these numbers; itself where there are none."""
        if not first:
            return forecast
        parts = {f.name: getattr(forecast, f.name) for f in fields(Forecast)}
        return cls(**parts, first_numbers=first)


def drawn_noise(forecast: Forecast, source: Draws, count: int) -> Iterator[Array]:
    """Public draws of the noise of all answers, ``count`` times."""
    for _ in range(count):
        yield np.concatenate(list(forecast.strategy.answers(drawn_values(forecast, source))))


def drawn_values(forecast: Forecast, source: Draws) -> list[Array]:
    """A public draw of the noise of all measured values, block by block."""
    values = []
    for rows, noise in zip(forecast.strategy.block_rows, forecast.noise, strict=True):
        drawn = source.normals(rows) if noise.noise == "gaussian" else source.laplaces(rows)
        values.append(drawn * noise.scale)
    return values


def noise_variance(forecast: Forecast, coefficients: Array) -> float:
    """The variance of ``<coefficients, z>``, z the noise of all answers, group after group."""
    pulls = _pulls(forecast, coefficients)
    return sum(float((w**2).sum()) * forecast.block_variances[b] for b, w in pulls.items())


def noise_covariance(forecast: Forecast, coefficients: Array) -> Array:
    """The covariance matrix of ``<c, z>`` for every row c of the coefficients."""
    pulls = [_pulls(forecast, row) for row in coefficients]
    out = np.zeros((len(pulls), len(pulls)))
    for i, one in enumerate(pulls):
        for j, other in enumerate(pulls[: i + 1]):
            shared = (b for b in one if b in other)
            products = (forecast.block_variances[b] * np.vdot(one[b], other[b]) for b in shared)
            out[i, j] = out[j, i] = sum(map(float, products))
    return out


def _pulls(forecast: Forecast, coefficients: Array) -> dict[int, Array]:
    """What a combination of all answers counts of every measured value, by block."""
    pulls: dict[int, Array] = {}
    at = 0
    for t, term in enumerate(forecast.workload.terms):
        own = coefficients[at : at + term.rows]
        at += term.rows
        for b, pull in forecast.strategy.adjoint(t, own).items():
            pulls[b] = pulls[b] + pull if b in pulls else pull
    return pulls


def answer_covariance(forecast: Forecast, group: str, queries: Sequence[int]) -> Array:
    """The covariance matrix of the listed answers of one group, in counts squared."""
    term = _term(forecast.workload, group)
    listed = np.asarray(queries)
    if (
        listed.ndim != 1
        or listed.dtype.kind not in "iu"
        or not 0 < len(listed) <= LIMITS.covariance_answers
    ):
        raise WorkloadError(
            f"covariances are of a list of 1 to {LIMITS.covariance_answers:,} numbers of answers, "
            "got "
            f"{shown(queries)}; ask about fewer answers at a time"
        )
    _check_places(forecast.workload, term, listed)
    places = [int(q) for q in listed]
    return forecast.strategy.covariance(term, places, forecast.block_variances)


def read(workload: Workload, coefficients: Mapping[str, Coefficients]) -> dict[int, Array]:
    """A number per answer of every named group; WorkloadError where they do not fit."""
    if not isinstance(coefficients, Mapping) or not coefficients:
        raise WorkloadError(
            "a combination takes coefficients for each group, {'age x sex': [...]}, got "
            f"{shown(coefficients)}"
        )
    return {
        term: _vector(workload, term, c)
        for term, c in ((_term(workload, name), c) for name, c in coefficients.items())
    }


def _term(workload: Workload, group: str) -> int:
    names = [t.name for t in workload.terms]
    if group not in names:
        means = [r.name for r in workload.ratios]
        note = "a mean is not linear: combine its sum and its count" if group in means else ""
        raise WorkloadError(
            f"no group of linear queries is called {shown(group)}; there are: "
            f"{listing(names, 30)}{note and '; ' + note}{did_you_mean(group, names)}"
        )
    return names.index(group)


def _vector(workload: Workload, term: int, coefficients: Coefficients) -> Array:
    group = workload.terms[term]
    check_entries(group.rows, f"the coefficients of {group.rows:,} answers")
    if isinstance(coefficients, Mapping):
        _check_places(workload, term, np.array(list(coefficients)))
        out = np.zeros(group.rows)
        out[np.array(list(coefficients), dtype=np.int64)] = _numbers(
            group.name, list(coefficients.values())
        )
        return out
    c = _numbers(group.name, coefficients)
    if c.shape != (group.rows,):
        raise WorkloadError(
            f"group {group.name!r} has {group.rows:,} answers, got coefficients of shape "
            f"{c.shape}; give one per answer, or a mapping from numbers of answers"
        )
    return c


def _check_places(workload: Workload, term: int, places: Integers) -> None:
    rows, name = workload.terms[term].rows, workload.terms[term].name
    is_whole = places.dtype.kind in "iu"
    if len(places) and not (is_whole and places.min() >= 0 and places.max() < rows):
        raise WorkloadError(
            f"the answers of group {name!r} are numbered 0 to {rows - 1:,}, got {shown(places)}"
        )


def _numbers(name: str, values: object) -> Array:
    try:
        c = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        c = np.array(np.nan)
    if not np.isfinite(c).all():
        raise WorkloadError(f"the coefficients of group {name!r} must be finite numbers")
    return c


def _total_variances(strategy: Strategy, noise: tuple[float, ...]) -> Sequence[float]:
    return strategy.remembered(("totals", noise), lambda: strategy.total_variances(noise))


def _maximum_variances(strategy: Strategy, noise: tuple[float, ...]) -> Sequence[float]:
    return strategy.remembered(("greatest", noise), lambda: strategy.maximum_variances(noise))
