# SPDX-License-Identifier: Apache-2.0
"""The planner: the mechanism with the minimum error for a workload and a budget.

`choose` builds every mechanism that fits, forecasts each and returns the forecast of the best;
`smallest_budget` returns the minimum budget that reaches an error. Public arithmetic only: the
choice depends on the workload, the budget and the neighbours, never on data, so it costs nothing.
The certified optimum is tried first, the others in the order of their effort; the rest is left out
once the best so far is within 1% of a lower bound on all of them. Searches are limited in steps
(``effort.py``), so that equal inputs have equal plans on any machine under any load. Only where a
person limits the time a clock is read: what it stops says so, and the plain Laplace and Gaussian
mechanisms are tried all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from math import inf, sqrt
from pathlib import Path

import numpy as np

from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import PlanError, TooLarge
from sfumato.planning.calibrate import calibrate, unit_variances
from sfumato.planning.forecast import (
    Candidate,
    Candidates,
    ErrorPart,
    Forecast,
    allowed_loss,
)
from sfumato.planning.mechanisms import FLOORS, MECHANISMS, named
from sfumato.planning.planning_limits import LIMITS
from sfumato.planning.views import Viewed, as_asked
from sfumato.privacy.budget import Budget, may_lose_a_record
from sfumato.privacy.cost import gaussian_epsilon
from sfumato.privacy.noise_laws import whole_gain
from sfumato.solve.effort import Effort, effort, one_thread
from sfumato.solve.solve_limits import LIMITS as SOLVE_LIMITS
from sfumato.strategy.base import Strategy, check_measured, check_rank, check_unbiased
from sfumato.strategy.biased import approximate
from sfumato.strategy.degrees import is_forecast_only
from sfumato.strategy.moves import bound_of_groups
from sfumato.strategy.neighbours.replace_one import for_replace_one
from sfumato.strategy.pieces import sum_of_bounds
from sfumato.types import Neighbours, Noise, Objective, Progress
from sfumato.workload.representations import Representation
from sfumato.workload.workload import Workload

__all__ = [
    "MECHANISMS",
    "Strategies",
    "choose",
    "objective_error",
    "smallest_budget",
]


BIASED = "approximate"
CERTIFIED = "factorization"
PLAIN = ("laplace", "gaussian")  # tried however little time there is
SLOW = "laplace-optimum"
SINGULAR = "rounding makes its matrices singular; scale the queries and weights alike"


@dataclass(frozen=True, eq=False)
class Strategies:
    """The strategies of one workload and objective: each is built once, for every budget.

    ``steps`` limits the searches of each mechanism; ``until`` is a CPU time of the thread at which
    they return what they have, and no clock is read where it is infinite; ``folder`` is where
    finished searches are kept. With a public number of ``records`` a bias is allowed: how much of
    it pays depends on them and on the privacy loss. ``cells`` is over which cells the sums of the
    workload are written, if not over those that were asked.
    """

    workload: Workload
    objective: Objective = "rmse"
    until: float = inf
    folder: Path | None = None
    records: int | None = None
    steps: float = SOLVE_LIMITS.search_multiplications
    cells: Representation | None = None
    _made: dict[str, Strategy | PlanError] = field(default_factory=dict, repr=False)
    _replaced: dict[tuple[str, bool], Strategy] = field(default_factory=dict, repr=False)
    _late: set[str] = field(default_factory=set, repr=False)
    _is_checked: list[bool] = field(default_factory=list, repr=False)
    _shown: dict[tuple[object, ...], tuple[float, float]] = field(default_factory=dict, init=False)
    _parts: dict[tuple[object, ...], tuple[ErrorPart, ...]] = field(
        default_factory=dict, init=False, repr=False
    )
    _unit: dict[tuple[object, ...], float] = field(default_factory=dict, repr=False)

    def named(self, mechanism: str | None) -> list[str]:
        """The mechanisms of this name: the certified optimum, then in the order of effort."""
        if mechanism == BIASED and self.records is None:
            raise PlanError(
                "approximate answers are biased: say allow_bias = true, and records = the public "
                "number of records"
            )
        names = [] if mechanism == BIASED else named(mechanism)
        names.sort(key=lambda name: name != CERTIFIED)
        is_allowed = mechanism in (None, BIASED) and self.records is not None
        return [*names, BIASED] if is_allowed else names

    def check_rank(self) -> None:
        """Refuse a workload that no table in memory spans; looked at once."""
        if not self._is_checked:
            if not is_forecast_only(self.workload):
                check_rank(self.workload)
            self._is_checked.append(True)

    def is_late(self) -> bool:
        """Whether a person's time for planning is up; reads no clock where there is no limit."""
        return Effort(self.until).must_stop()

    def was_stopped(self, name: str) -> bool:
        """Whether a clock ended a search of this mechanism."""
        return name in self._late

    def of(
        self,
        name: str,
        loss: float,
        neighbours: Neighbours = "add-remove",
        may_drop_records: bool = False,
        watch: Callable[[str], None] | None = None,
    ) -> Strategy:
        """The strategy of a mechanism; PlanError says why it does not fit.

        ``may_drop_records``: a replaced record can fall in no cell.
        """
        key = f"{name}|{self.records}|{loss}" if name == BIASED else name
        if key not in self._made:  # the first of several threads: errors are known by identity
            self._made.setdefault(key, self._built(name, loss, watch))
        strategy = self._made[key]
        if isinstance(strategy, PlanError):
            raise _afresh(strategy)
        if neighbours == "add-remove" or name == BIASED:
            return strategy
        if (name, may_drop_records) not in self._replaced:
            try:
                with self._limited(name, "replacing", None, watch):
                    replaced = for_replace_one(strategy, self.objective, may_drop_records)
            except np.linalg.LinAlgError:
                raise PlanError(SINGULAR) from None
            check_unbiased(replaced)
            self._replaced.setdefault((name, may_drop_records), replaced)
        return self._replaced[name, may_drop_records]

    def at_unit_loss(
        self,
        strategy: Strategy,
        neighbours: Neighbours,
        unit: PrivacyUnit | None,
        may_drop_records: bool,
    ) -> float:
        """The weighted error of a strategy at a privacy loss of 1, without a grid."""
        key = (id(strategy), neighbours, unit, may_drop_records)
        if key not in self._unit:
            drops = may_drop_records
            noise = unit_variances(strategy, neighbours, unit, may_drop_records=drops)
            terms = self.workload.terms
            if self.objective == "max":
                greatest = strategy.maximum_variances(noise)
                error = max(sqrt(v) * t.weight for v, t in zip(greatest, terms, strict=True))
            else:
                pairs = zip(strategy.total_variances(noise), terms, strict=True)
                square = sum(sqrt(v / t.rows) ** 2 * t.rows * t.weight**2 for v, t in pairs)
                error = sqrt(square / _weight(self.workload, "rmse"))
            self._unit[key] = error
        return self._unit[key]

    def shown_at_unit_loss(
        self,
        strategy: Strategy,
        written: Workload | None,
        neighbours: Neighbours,
        unit: PrivacyUnit | None,
        may_drop_records: bool,
    ) -> tuple[float, float]:
        """Mean and largest error at a privacy loss of 1 of the queries as they were asked.

        A query that was asked twice counts twice here, once in what the planner makes small.
        """
        is_planned = self._is_planned(written)
        queries = self.workload if is_planned or written is None else written
        key = (id(strategy), queries.digest(), neighbours, unit, may_drop_records)
        if key not in self._shown:
            drops = may_drop_records
            noise = unit_variances(strategy, neighbours, unit, may_drop_records=drops)
            view = strategy if is_planned else Viewed.of(strategy, queries, self.cells)
            totals, greatest = view.group_variances(noise)
            self._shown[key] = (sqrt(sum(totals) / queries.queries), sqrt(max(greatest)))
        return self._shown[key]

    def error_parts(
        self,
        strategy: Strategy,
        written: Workload | None,
        neighbours: Neighbours,
        unit: PrivacyUnit | None,
        may_drop_records: bool,
    ) -> tuple[ErrorPart, ...]:
        """The error of Laplace noise, part by part, for any epsilon, of the queries as asked.

        None for other noise, nor where blocks with one scale and one grid are of too many kinds.
        """
        if strategy.noise != "laplace" or strategy.records is not None:
            return ()
        workload = written or self.workload
        key = (id(strategy), workload.digest(), neighbours, unit, may_drop_records)
        if key not in self._parts:
            drops = may_drop_records
            unit_noise = unit_variances(strategy, neighbours, unit, may_drop_records=drops)
            scales = [sqrt(variance / 2) for variance in unit_noise]
            laws = list(zip(scales, strategy.block_bits, strategy.block_units, strict=True))
            is_planned = self._is_planned(written)
            view = strategy if is_planned else Viewed.of(strategy, workload, self.cells)
            distinct = list(dict.fromkeys(laws))
            if len(distinct) > LIMITS.candidate_laws:
                distinct = []
            self._parts[key] = tuple(
                ErrorPart(scale, (bits, units), _mean_square(view, [float(x == law) for x in laws]))
                for law in distinct
                for scale, bits, units in [law]
            )
        return self._parts[key]

    def _is_planned(self, written: Workload | None) -> bool:
        """Whether the queries that were asked are those that are planned, group by group."""
        return written is None or (self.cells is None and written.normal.is_in_order)

    @contextmanager
    def _limited(
        self, name: str, key: str, folder: Path | None, watch: Callable[[str], None] | None
    ) -> Iterator[None]:
        """The effort of one mechanism; notes whether a clock ended it."""
        with effort(key, self.until, folder, watch, self.steps) as made:
            try:
                yield
            finally:
                if made.is_late:
                    self._late.add(name)

    def _built(
        self, name: str, loss: float, watch: Callable[[str], None] | None
    ) -> Strategy | PlanError:
        description = f"{self.workload.digest()}|{self.objective}|{name}"
        key = hashlib.sha256(description.encode()).hexdigest()[:32]
        folder = None if name == BIASED else self.folder
        try:
            with self._limited(name, key, folder, watch):
                if name == BIASED and self.records is not None:
                    strategy = approximate(self.workload, loss, self.records, self.objective)
                else:
                    build, noise = MECHANISMS[name]
                    strategy = build(self.workload, noise, self.objective)
            if not is_forecast_only(self.workload):
                _check_memory(strategy)
            check_unbiased(strategy)
        except PlanError as why:
            return _afresh(why)
        except np.linalg.LinAlgError:
            return PlanError(SINGULAR)
        return strategy


def _afresh(error: PlanError) -> PlanError:
    """The same error without where it came up: that would hold open tables for as long as it."""
    return type(error)(*error.args)


def choose(
    workload: Workload,
    budget: Budget,
    neighbours: Neighbours,
    objective: Objective = "rmse",
    mechanism: str | None = None,
    unit: PrivacyUnit | None = None,
    progress: Progress | None = None,
    noise_only: Noise | None = None,
    strategies: Strategies | None = None,
    may_drop_records: bool = False,
    written: Workload | None = None,
) -> Forecast:
    """The forecast of the best mechanism for the workload, with all that were considered.

    The errors of those are of the queries of ``written``, where ``workload`` is its normal form.
    """
    if objective not in ("rmse", "max"):
        raise PlanError(f"objective must be 'rmse' or 'max', got {objective!r}")
    strategies = strategies or Strategies(workload, objective)
    names = [w for w in strategies.named(mechanism) if noise_only in (None, _noise(w))]
    if all(t.greatest == 0 for t in workload.terms):
        raise PlanError("all queries are zero on every cell: there is nothing to measure")
    if BIASED not in names:
        strategies.check_rank()
    weight = _weight(workload, objective)
    race = _Race(strategies, budget, neighbours, unit, weight, may_drop_records, written)
    considered: list[Callable[[], Candidate]] = []
    # Thousands of small products and eigenvalue problems: threads would wait for each other.
    with one_thread():
        for i, name in enumerate(names):
            if progress is not None:
                progress(i, len(names), name)
            watch = None if progress is None else partial(_watched, progress, i, len(names), name)
            considered.append(race.run(name, watch))
    if race.best is None:
        reasons = _reasons([candidate() for candidate in considered])
        raise PlanError(f"no mechanism fits this workload and budget: {reasons}")
    best = replace(race.best, stopped_early=race.is_stopped)
    if best.bound is None and objective == "rmse" and neighbours == "add-remove":
        best = replace(best, bound=sum_of_bounds(workload) or None)
    return replace(best, candidates=Candidates(considered, best.mechanism))


def _noise(name: str) -> Noise:
    return "gaussian" if name == BIASED else MECHANISMS[name].noise


def _watched(progress: Progress, done: int, total: int, name: str, detail: str) -> None:
    progress(done, total, f"{name} {detail}".rstrip())


@dataclass
class _Race:
    """The least error so far, with the greatest lower bound that any strategy came with."""

    strategies: Strategies
    budget: Budget
    neighbours: Neighbours
    unit: PrivacyUnit | None
    weight: float
    may_drop_records: bool = False
    written: Workload | None = None
    best: Forecast | None = None
    least: float = inf
    least_laplace: float = inf
    is_stopped: bool = False

    @cached_property
    def losses(self) -> dict[Noise, float | None]:
        """What each kind of noise may lose at this budget; None where it cannot be had."""
        return {noise: allowed_loss(self.budget, noise) for noise in _UNIT_BUDGETS}

    def run(self, name: str, watch: Callable[[str], None] | None) -> Callable[[], Candidate]:
        """Build, calibrate and forecast one mechanism; it enters the race if it fits.

        Returns:
            What makes its line beside the others: nothing is worked out that nobody looks at.
        """
        noise = _noise(name)
        loss = self.losses[noise]
        if loss is None:
            return partial(Candidate, name, None, None, "needs delta > 0, rho or mu")
        needless = self.needless(name, noise, loss)
        beaten = "" if needless else self.beaten(name, noise, loss)
        if not self.is_large and (beaten or (needless and name in PLAIN)):
            return partial(self.beside, name, loss)
        if needless or beaten:
            return partial(Candidate, name, None, None, needless or beaten)
        try:
            strategy = self.strategy(name, loss, watch)
            rough = self.rough(strategy, loss)
            if rough is not None and rough > self.least * LIMITS.rough_ratio:
                self.note(strategy, rough)
                return partial(self.roughly, name, strategy, loss)
            entry = self.forecast(strategy, loss)
        except PlanError as why:
            return partial(Candidate, name, None, None, str(why))
        finally:
            self.is_stopped |= self.strategies.was_stopped(name)
        self.enter(entry)
        return partial(self.shown, name, entry)

    def strategy(
        self, name: str, loss: float, watch: Callable[[str], None] | None = None
    ) -> Strategy:
        """The strategy of a mechanism; PlanError says why it does not fit."""
        domain = self.strategies.workload.domain
        drops = may_lose_a_record(domain, self.unit, self.may_drop_records)
        strategy = self.strategies.of(name, loss, self.neighbours, drops, watch)
        if self.unit is not None and self.unit.groups is not None:
            strategy = self.of_groups(strategy, name, loss)
        return strategy

    def forecast(self, strategy: Strategy, loss: float) -> Forecast:
        """A strategy with the least noise for a privacy loss."""
        drops = self.may_drop_records
        scales = calibrate(strategy, loss, self.neighbours, self.unit, may_drop_records=drops)
        return Forecast(
            self.strategies.workload,
            self.budget,
            self.neighbours,
            self.strategies.objective,
            self.unit,
            strategy,
            scales,
            (),
            may_drop_records=drops,
        )

    def shown(self, name: str, entry: Forecast) -> Candidate:
        """One forecast beside the others, of the queries as they were asked."""
        cells = self.strategies.cells
        shown = entry if self.written is None else as_asked(entry, self.written, cells)
        parts = self.strategies.error_parts(entry.strategy, *self.whose)
        errors = (shown.rmse, shown.largest_error)
        return Candidate(name, *errors, "", False, entry.strategy.algorithm, parts)

    def roughly(self, name: str, strategy: Strategy, loss: float) -> Candidate:
        """The same up to the rounding of noise scales, of what is far behind the best."""
        mean, largest = self.strategies.shown_at_unit_loss(strategy, *self.whose)
        parts = self.strategies.error_parts(strategy, *self.whose)
        return Candidate(name, mean / loss, largest / loss, "", False, strategy.algorithm, parts)

    def beside(self, name: str, loss: float) -> Candidate:
        """The forecast of a mechanism that cannot win, for those who compare."""
        try:
            with one_thread():
                strategy = self.strategy(name, loss)
                rough = self.rough(strategy, loss)
                if rough is not None and rough > self.least * LIMITS.rough_ratio:
                    return self.roughly(name, strategy, loss)
                return self.shown(name, self.forecast(strategy, loss))
        except PlanError as why:
            return Candidate(name, None, None, str(why))

    @property
    def whose(self) -> tuple[Workload | None, Neighbours, PrivacyUnit | None, bool]:
        """Of which queries errors are, and next to whom."""
        return self.written, self.neighbours, self.unit, self.may_drop_records

    def of_groups(self, strategy: Strategy, name: str, loss: float) -> Strategy:
        """The better of what was made for one replaced record and for one added or removed.

        The former reads differences across groups, which a person with several groups moves most.
        """
        if self.neighbours == "add-remove" or strategy.records is not None:
            return strategy
        plain = self.strategies.of(name, loss)
        errors = [self.strategies.at_unit_loss(s, *self.whose[1:]) for s in (plain, strategy)]
        return plain if errors[0] <= errors[1] else strategy

    def rough(self, strategy: Strategy, loss: float) -> float | None:
        """The weighted error up to the rounding of noise scales, 2^-16 of them.

        It is that at a loss of 1, which is worked out once, over the loss. None where a bias
        does not scale so, nor Laplace noise in whole steps, which errs less at a large loss.
        """
        if self.best is None or strategy.records is not None:
            return None
        if strategy.noise == "laplace" and whole_gain(loss) * LIMITS.whole_ratio < 1:
            return None
        return self.strategies.at_unit_loss(strategy, *self.whose[1:]) / loss

    def note(self, strategy: Strategy, error: float) -> None:
        """What a strategy is known by besides its error: its bound holds for all."""
        if strategy.noise == "laplace":
            self.least_laplace = min(self.least_laplace, error)
        if self.best is None:
            return
        bounds = [
            strategy.bound_for(self.best.objective, self.neighbours),
            self.best.known_bound,
        ]  # of unbiased answers
        bound = max((b for b in bounds if b is not None), default=None)
        if self.neighbours == "replace-one":
            self.best = replace(self.best, replace_one_bound=bound)
        else:
            self.best = replace(self.best, bound=bound)

    def enter(self, entry: Forecast) -> None:
        """Compare with the best; its bound holds for all, whoever wins."""
        error = objective_error(entry)
        if self.best is None or error < self.least:
            bounds = None if self.best is None else (self.best.bound, self.best.replace_one_bound)
            self.best, self.least = entry, error
            if bounds is not None:
                self.best = replace(entry, bound=bounds[0], replace_one_bound=bounds[1])
        self.note(entry.strategy, error)

    @property
    def is_large(self) -> bool:
        """Whether even mechanisms that search for nothing take a while to be built."""
        terms = self.strategies.workload.terms
        return len(terms) > LIMITS.late_terms or sum(t.rows for t in terms) > LIMITS.late_queries

    @property
    def is_matrix(self) -> bool:
        """Whether all queries may be few enough to be one matrix, which gains without limit."""
        work = self.strategies.workload
        return work.queries <= LIMITS.matrix_queries and not all(t.is_table for t in work.terms)

    def needless(self, name: str, noise: Noise, loss: float) -> str:
        """Why the next mechanism need not be tried, or nothing."""
        best = self.best
        if best is None:
            return ""
        if (name == SLOW or self.is_large) and name not in PLAIN and self.strategies.is_late():
            self.is_stopped = True
            return "not tried: the time for planning is up"
        if name == BIASED:  # no bound on unbiased answers holds for it
            return ""
        if name in PLAIN and not self.is_large and noise == "gaussian":  # it may tie
            return ""
        is_hopeless = LIMITS.hopeless_ratio * self.least < self.least_laplace < inf
        if name == SLOW and is_hopeless and not self.is_matrix:
            times = self.least_laplace / self.least
            return f"not tried: other Laplace noise errs {times:.1f} times as much as the best"
        return self.proved_worse(best, noise, loss)

    def proved_worse(self, best: Forecast, noise: Noise, loss: float) -> str:
        """Why no mechanism with this noise need be tried beside the best, by its bound."""
        bound = best.known_bound
        if best.certificate is None or bound is None or best.strategy.noise != "gaussian":
            return ""
        if noise == "gaussian" and best.certificate <= LIMITS.good_certificate:
            return f"not tried: {best.mechanism} is within 1% of the least possible"
        # A column is no shorter in L1 than in L2, and Laplace noise of scale b has variance 2 b^2,
        # in whole steps of a grid less by no more than `whole_gain` squared.
        rows = 1.0 if best.unit is None else sqrt(bound_of_groups(best.workload, best.unit))
        laplace = sqrt(2 * bound / self.weight) * rows / loss * whole_gain(loss)
        if noise == "laplace" and laplace >= self.least:
            return f"not tried: no Laplace mechanism has less error than {best.mechanism}"
        return ""

    def beaten(self, name: str, noise: Noise, loss: float) -> str:
        """Why one mechanism cannot win, by its groups alone.

        For add-remove neighbours; a person with more rows only adds to the error.
        """
        floor = FLOORS.get(name)
        if self.best is None or floor is None or self.neighbours != "add-remove":
            return ""
        unit = sqrt(2) * whole_gain(loss) if noise == "laplace" else 1.0
        least = unit / loss * floor(self.strategies.workload, noise, self.strategies.objective)
        if least < self.least * LIMITS.rough_ratio:
            return ""
        if noise == "laplace":
            self.least_laplace = min(self.least_laplace, least)
        times = least / self.least
        return f"not tried: errs at least {times:.1f} times as much as {self.best.mechanism}"


def _reasons(considered: list[Candidate]) -> str:
    """Every reason once, with the mechanisms it holds for."""
    by_note: dict[str, list[str]] = {}
    for candidate in considered:
        by_note.setdefault(candidate.note, []).append(candidate.mechanism)
    return "; ".join(f"{note} ({', '.join(names)})" for note, names in by_note.items())


def objective_error(entry: Forecast) -> float:
    """Return the error of the objective, weighted by what matters to the asker."""
    if entry.objective == "max":
        pairs = zip(entry.groups, entry.workload.terms, strict=True)
        return max(g.largest * t.weight for g, t in pairs)
    return entry.weighted_rmse


def _mean_square(strategy: Strategy, noise: Sequence[float]) -> float:
    """The mean squared error of all answers with noise of these variances on the blocks."""
    terms = range(len(strategy.workload.terms))
    return sum(strategy.total_variance(t, noise) for t in terms) / strategy.workload.queries


def _weight(workload: Workload, objective: Objective) -> float:
    """What the weighted squared error is divided by."""
    if objective == "max":
        return 1.0
    return sum(t.rows * t.weight**2 for t in workload.terms)


def _check_memory(strategy: Strategy) -> None:
    check_measured(sum(strategy.block_rows))
    largest = max(range(len(strategy.block_cells)), key=strategy.block_cells.__getitem__)
    cells = strategy.block_cells[largest]
    if cells > LIMITS.counted_table_cells:
        raise TooLarge(
            f"the table of {', '.join(strategy.blocks[largest].term.attributes)} has {cells:,} "
            f"cells ({8 * cells / 2**30:,.1f} GiB), the limit is "
            f"{LIMITS.counted_table_cells:,}; use fewer attributes "
            "at once or coarser bins"
        )


# From an error one can live with to the least budget that reaches it; public arithmetic.


_UNIT_BUDGETS: dict[Noise, Budget] = {"gaussian": Budget(mu=1), "laplace": Budget(epsilon=1)}


def smallest_budget(
    strategies: Strategies,
    error: float | None,
    neighbours: Neighbours,
    mechanism: str | None,
    delta: float | Fraction,
    unit: PrivacyUnit | None,
    written: Workload | None = None,
    noise_only: Noise | None = None,
    *,
    may_drop_records: bool = False,
) -> Budget:
    """The least epsilon whose plan errs by at most ``error``, root mean square over what was asked.

    ``strategies`` are those of the normal form of ``written``, if that is another workload.

    Errors scale as 1/mu (Gaussian noise), up to the rounding of the noise scale to its grid, which
    the last loop settles; of Laplace noise, which errs less at a large epsilon, it is searched for.
    """
    if not isinstance(error, int | float) or not 0 < error < float("inf"):
        raise PlanError(f"error must be a number of counts above 0, got {error!r}")
    if mechanism == BIASED:
        raise PlanError("approximate answers need a budget: their error does not shrink like 1/mu")
    strategies = replace(strategies, records=None)
    work, objective = strategies.workload, strategies.objective
    options, is_too_small = [], False
    for noise, unit_budget in _UNIT_BUDGETS.items():
        if noise_only not in (None, noise):
            continue
        try:
            forecast = choose(
                work,
                unit_budget,
                neighbours,
                objective,
                mechanism,
                unit,
                noise_only=noise,
                strategies=strategies,
                may_drop_records=may_drop_records,
            )
        except TooLarge:  # for any noise
            raise
        except PlanError:
            continue
        rmse = _rmse(forecast, written, strategies.cells)
        if noise == "gaussian":
            least = max(gaussian_epsilon(rmse / error, delta), LIMITS.smallest_epsilon)
            options.append(Budget(epsilon=least, delta=delta))
        else:
            epsilon = _laplace_epsilon(forecast, written, rmse, error, strategies.cells)
            if epsilon is not None:
                options.append(Budget(epsilon=epsilon))
            is_too_small = epsilon is None
    if not options and is_too_small:
        raise PlanError(
            f"an error of {error:g} counts is below what Laplace noise is drawn for (noise is 0 "
            "but for 1 in 4 million draws then); ask for a larger error"
        )
    if not options:
        raise PlanError(f"no mechanism fits this workload (mechanism = {mechanism!r})")
    budget = min(options, key=lambda b: b.epsilon or 0)
    rest = (neighbours, objective, mechanism, unit)
    while True:
        forecast = choose(
            work,
            budget,
            *rest,
            noise_only=noise_only,
            strategies=strategies,
            may_drop_records=may_drop_records,
        )
        rmse = _rmse(forecast, written, strategies.cells)
        if rmse <= error:
            return budget
        # Mostly rounding; another mechanism may have won, by its own objective. mu is concave in
        # epsilon: a factor of epsilon lowers the error by no more than this factor.
        step = max(Fraction(100001, 100000), Fraction(rmse / error))
        budget = Budget(epsilon=(budget.epsilon or 0) * step, delta=budget.delta)


def _laplace_epsilon(
    forecast: Forecast,
    written: Workload | None,
    unit_error: float,
    error: float,
    cells: Representation | None,
) -> float | None:
    """The least epsilon at which the strategy of a forecast for epsilon = 1 errs by ``error``.

    None where it does not at any: no scale below 1/16 of a step is drawn.

    Epsilon times the error falls with epsilon, from no more than its value without a grid. Noise
    for epsilon = 1 can be drawn: where none can it is too large below 1, and too small above.
    """
    smooth = 1 / whole_gain(1.0)
    low, high = 0.0, unit_error * smooth / error
    for _ in range(LIMITS.budget_bisections):
        middle = (low + high) / 2
        try:
            is_enough = _rmse(forecast.with_loss(middle), written, cells) <= error
        except PlanError:
            is_enough = middle > 1
        low, high = (low, middle) if is_enough else (middle, high)
    try:
        is_reached = _rmse(forecast.with_loss(high), written, cells) <= error * LIMITS.error_reached
    except PlanError:
        is_reached = high <= 1
    return high if is_reached else None


def _rmse(
    forecast: Forecast, written: Workload | None, cells: Representation | None = None
) -> float:
    return forecast.rmse if written is None else as_asked(forecast, written, cells).rmse
