# SPDX-License-Identifier: Apache-2.0
"""`recommend` compares the ways to answer a workload by their errors on made-up records.

A forecast knows the error of unbiased answers. What projection, shrinkage, a bias or adaptive
rounds make of it depends on the records. So each way answers made-up records (or public ones that
are given), as often as asked, and the errors are set side by side. Effort is counted in runs and
steps, never in seconds, and draws are repeatable: the same question gets the same recommendation.

Nothing here protects anything: no exact table is read, and no draw of it is ever a release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import inf, sqrt

import numpy as np

from sfumato.domain.domain import base_of
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import PlanError, SfumatoError, TooLarge
from sfumato.measurement import Measured, Measurement
from sfumato.planning.adaptive_costs import Spending, asked_domain
from sfumato.planning.forecast import drawn_noise, drawn_values
from sfumato.privacy.budget import Budget
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.random import Draws, WordSource, system_words
from sfumato.refine.consistency import Unrefined, is_listed, refined, refined_listed
from sfumato.refine.learn import Learner
from sfumato.refine.shrink import PublicRecords
from sfumato.run.adaptive import AdaptivePlan, adaptive_rounds, plan_adaptive
from sfumato.run.linear import Plan, plan
from sfumato.run.public_records import public_records
from sfumato.run.run_limits import LIMITS
from sfumato.study.simulated import SurrogateRecords, made_up, resampled
from sfumato.text import shown
from sfumato.types import Array, Integers, Names, Neighbours, Objective, Progress
from sfumato.vault.mechanisms.select import GRID_BITS
from sfumato.workload.workload import Workload

__all__ = ["Option", "Recommendation", "recommend"]


USUAL = "plan, shrunk"  # what a release does unless told otherwise


@dataclass(frozen=True, slots=True)
class Option:
    """One way to answer, and its error on the surrogate records, in counts.

    ``rmse`` is a root mean square over runs and queries, weighted as in the objective,
    ``standard_error`` its own; ``largest`` the mean over runs of the largest error. ``squares`` are
    the squares of what the objective asks about, run by run. ``how`` is the call that runs it. An
    option that was not tried has no errors, and ``note`` says why.
    """

    name: str
    how: str
    rmse: float | None = None
    standard_error: float = 0.0
    largest: float | None = None
    squares: tuple[float, ...] = ()
    note: str = ""


@dataclass(frozen=True, eq=False)
class Recommendation:
    """The best option first, then the others by their error; what was not tried comes last.

    The best is that of least error; but if the release as it is by default is within chance of
    it, it is that one.
    """

    records: int
    runs: int
    surrogate: str
    objective: Objective
    options: tuple[Option, ...]

    @property
    def best(self) -> Option:
        """What is recommended."""
        return self.options[0]

    @property
    def margin(self) -> float:
        """The error of the next option over that of the best; infinite if there is no other."""
        tried = [float(np.mean(o.squares)) for o in self.options if o.squares]
        return sqrt(tried[1] / tried[0]) if len(tried) > 1 and tried[0] > 0 else inf

    @property
    def is_clear(self) -> bool:
        """Whether the next option is behind by more than the runs differ among themselves."""
        tried = [o for o in self.options if o.squares]
        return len(tried) < 2 or _is_behind(tried[1], tried[0])

    def __repr__(self) -> str:
        return "\n".join([self.describe(), *(f"  {_line(o)}" for o in self.options)])

    def describe(self) -> str:
        """In a sentence or two."""
        sentence = (
            f"{self.best.name}, by {self.runs} runs on {self.records:,} {self.surrogate}: "
            f"{self.best.how}"
        )
        if self.margin == inf:
            return sentence
        second = self.options[1].name
        if not self.is_clear:
            return f"{sentence}; {second} is within chance of it"
        return f"{sentence}; {second} has {self.margin:.3g} times the error"

    def as_json(self) -> dict[str, object]:
        """The same as a document."""
        return {
            "records": self.records,
            "runs": self.runs,
            "surrogate": self.surrogate,
            "objective": self.objective,
            "best": self.best.name,
            "how": self.best.how,
            "margin": None if self.margin == inf else self.margin,
            "is_clear": self.is_clear,
            "options": [
                {
                    "name": o.name,
                    "how": o.how,
                    "rmse": o.rmse,
                    "standard_error": o.standard_error,
                    "largest": o.largest,
                    "note": o.note,
                }
                for o in self.options
            ],
        }


def recommend(
    workload: Workload,
    budget: Budget,
    records: int,
    neighbours: Neighbours = "add-remove",
    *,
    objective: Objective = "rmse",
    unit: PrivacyUnit | None = None,
    public: object = None,
    runs: int = LIMITS.trial_runs,
    planned: Plan | None = None,
    progress: Progress | None = None,
) -> Recommendation:
    """Which way to answer ``records`` records (a public or guessed number) errs least.

    Tried are the best plan, unbiased, projected and shrunk, the best plan with a bias, and adaptive
    rounds. ``public`` are records that anybody may see (a table, a dataframe, an earlier release):
    then they are what is tried on, and shrinkage is towards them too. ``planned`` is a plan that is
    there already, for the same question.

    Privacy: a function of public inputs; nothing is read of the table and nothing is spent.

    Args:
        workload: What is asked.
        budget: What the release may spend.
        records: How many records there are: a public number, or a guess.
        neighbours: Which two tables must be hard to tell apart.
        objective: What is made small: ``"rmse"`` or ``"max"``.
        unit: Whose presence is protected; one row if None.
        public: Records that anybody may see (a table, a dataframe, an earlier release): they are
            then what is tried on, and shrinkage is towards them too.
        runs: How often every way is tried; 6 times unless given, and at most twice where the
            combinations of cells are too many to be listed.
        planned: A plan that is there already, for the same question.
        progress: Called with what is done and how much of it.

    Returns:
        Every way with its error, and the best of them.

    Raises:
        PlanError: An argument is wrong.

    >>> import sfumato as sf
    >>> work = sf.marginals(sf.Domain({f"q{i}": 2 for i in range(6)}), 2)
    >>> found = sf.recommend(work, sf.Budget(epsilon=1, delta=1e-6), 10, "replace-one", runs=2)
    >>> found.best.name != "plan, unbiased"
    True
    """
    _check(records, runs)
    if not isinstance(workload, Workload):
        raise PlanError(
            f"recommend needs a workload such as sf.marginals(domain, 2), got {shown(workload)}"
        )
    if workload.queries > LIMITS.trial_queries:
        raise TooLarge(
            f"{workload.queries:,} queries are too many to try out, the limit is "
            f"{LIMITS.trial_queries:,}; ask about fewer at a time"
        )
    base = planned
    if base is None or base.strategy.records is not None:  # a bias is an option of its own
        base = plan(
            workload,
            budget,
            neighbours,
            objective,
            unit=unit,
            may_drop_records=base is not None and base.may_drop_records,
            seconds=None,
            cache=False,
        )
    guess = None if public is None else public_records(public, workload)
    trial = _Trial(base, int(records), runs, objective, guess, progress)
    if not trial.is_listed:  # every projection takes as long as that of a release
        runs = min(runs, LIMITS.trial_runs_rows)
        trial = replace(trial, runs=runs)
    options = trial.options()
    tried = sorted((o for o in options if o.squares), key=lambda o: float(np.mean(o.squares)))
    usual = next((o for o in tried if o.name == USUAL), tried[0])
    best = tried[0] if _is_behind(usual, tried[0]) else usual
    rest = [o for o in (*tried, *(o for o in options if not o.squares)) if o is not best]
    surrogate = "made-up records" if guess is None else "records drawn from the public ones"
    return Recommendation(trial.records, runs, surrogate, objective, (best, *rest))


def _is_behind(one: Option, other: Option) -> bool:
    """Whether an option errs more than another: not slightly, not by chance (runs are paired)."""
    apart = np.array(one.squares) - np.array(other.squares)
    spread = float(np.std(apart, ddof=1)) / sqrt(len(apart))
    minimum = LIMITS.slight_difference * float(np.mean(other.squares))
    return float(np.mean(apart)) > max(LIMITS.chance_errors * spread, minimum)


def _check(records: object, runs: object) -> None:
    if isinstance(records, bool) or not isinstance(records, int | np.integer):
        raise PlanError(f"records must be a whole number of 1 or more, got {records!r}")
    if not 1 <= records <= LIMITS.trial_records:
        raise PlanError(f"records must be from 1 to {LIMITS.trial_records:,}, got {records!r}")
    if (
        isinstance(runs, bool)
        or not isinstance(runs, int)
        or not 2 <= runs <= LIMITS.trial_runs_maximum
    ):
        raise PlanError(
            f"runs must be a whole number from 2 to {LIMITS.trial_runs_maximum:,}, got {runs!r}"
        )


def _line(option: Option) -> str:
    if option.rmse is None:
        return f"{option.name}: {option.note}"
    return f"{option.name}: rmse {option.rmse:,.4g} (+- {option.standard_error:.2g})"


@dataclass(frozen=True, eq=False)
class _Trial:
    """The ways, each on the same surrogate records."""

    plan: Plan
    records: int
    runs: int
    objective: Objective
    public: PublicRecords | None
    progress: Progress | None

    @cached_property
    def is_listed(self) -> bool:
        """Whether projections are tried over cells; over rows if not."""
        return is_listed(self.plan.workload, LIMITS.trial_projected_cells)

    def options(self) -> list[Option]:
        """Every way, in the order of its simplicity."""
        base, option = self.plan, self._option
        out = [option("plan, unbiased", "plan.release(table, project=False)", self._unbiased)]
        near = 'plan.release(table, project="nearest")'
        shares = "" if self.public is None else ", public=public"
        shrunk = f"plan.release(table{shares})"
        if base.workload.queries > LIMITS.trial_projected_answers:
            note = "too many answers to try projections on"
            out.append(Option(USUAL, "plan.release(table)", note=note))
        elif self.is_listed:
            out.append(option("plan, projected", near, lambda run: self._projected(base, run)))
            out.append(option(USUAL, shrunk, lambda run: self._projected(base, run, True)))
            out.append(self._biased())
        else:
            out.append(option(USUAL, shrunk, lambda run: self._projected(base, run, True)))
        out.append(self._adaptive())
        return out

    def _option(self, name: str, how: str, answers: Callable[[int], Array | None]) -> Option:
        """The errors of some answers over all runs."""
        work = self.plan.workload
        weights = _weights(work)
        squares, largest = [], []
        for run in range(self.runs):
            if self.progress is not None:
                self.progress(run, self.runs, name)
            estimate = answers(run)
            if estimate is None:
                return Option(name, how, note="no answers were near enough to be published")
            off = estimate - np.concatenate(self.surrogate(run).answers(work))
            squares.append(float(weights @ off**2) / float(weights.sum()))
            largest.append(float((np.sqrt(weights) * np.abs(off)).max()))
        judged = np.array(largest) ** 2 if self.objective == "max" else np.array(squares)
        rmse = sqrt(float(np.mean(squares)))
        # The error of a root is that of the square over twice the root.
        spread = float(np.std(squares, ddof=1)) / sqrt(self.runs)
        error = spread / (2 * rmse) if rmse else 0.0
        return Option(name, how, rmse, error, float(np.mean(largest)), tuple(judged.tolist()))

    def surrogate(self, run: int) -> SurrogateRecords:
        """The records of a run."""
        domain, label = asked_domain(self.plan.workload), self.plan.workload.digest()
        if self.public is not None:
            return resampled(domain, self.public, self.records, run, label)
        return made_up(domain, self.records, run, label)

    def _draws(self, what: str, run: int) -> Draws:
        return Draws(f"recommend {what} {self.plan.workload.digest()} {self.records} {run}")

    def _unbiased(self, run: int) -> Array:
        truth = np.concatenate(self.surrogate(run).answers(self.plan.workload))
        return truth + next(
            drawn_noise(self.plan.forecast, self._draws(self.plan.mechanism, run), 1)
        )

    def _projected(self, chosen: Plan, run: int, shrinks: bool = False) -> Array | None:
        work = chosen.workload
        surrogate, draws = self.surrogate(run), self._draws(chosen.mechanism, run)
        if chosen.strategy.records is None:
            noise = next(drawn_noise(chosen.forecast, draws, 1))
            noisy = np.concatenate(surrogate.answers(work)) + noise
        else:
            pairs = zip(chosen.strategy.blocks, drawn_values(chosen.forecast, draws), strict=True)
            values = [b.term.answer(surrogate.table(b.term.attributes)) + z for b, z in pairs]
            noisy = np.concatenate(chosen.strategy.answers(values))
        ends = np.cumsum([t.rows for t in work.terms])[:-1]
        rows = self.records if chosen.total_is_public else None
        public = self.public if shrinks else None
        groups = np.split(noisy, ends)
        if self.is_listed:
            outcome = refined_listed(
                chosen.forecast, groups, rows, shrinks=shrinks, public=public, steps=inf
            )
        else:
            outcome = refined(chosen.forecast, Measured((), rows), groups, shrinks=shrinks)
            if isinstance(outcome, Unrefined):  # what a release then publishes
                return noisy
        return None if isinstance(outcome, Unrefined) else np.concatenate(outcome.answers)

    def _biased(self) -> Option:
        base = self.plan
        name = "plan with a bias, projected"
        how = f"sf.plan(..., allow_bias=True, records={self.records})"
        try:
            biased = plan(
                base.workload,
                base.budget,
                base.neighbours,
                base.objective,
                "approximate",
                unit=base.unit,
                allow_bias=True,
                records=self.records,
                may_drop_records=base.may_drop_records,
                seconds=None,
                cache=False,
            )
        except SfumatoError as error:
            return Option(name, how, note=str(error))
        if any(b.term.sources() != (b.term,) for b in biased.strategy.blocks):
            return Option(name, how, note="its measurements are not tried out")
        return self._option(name, how, lambda run: self._projected(biased, run))

    def _adaptive(self) -> Option:
        base = self.plan
        name, how = "adaptive", "sf.plan_adaptive(workload, budget).release(table)"
        if base_of(base.workload.domain) is not base.workload.domain:
            note = "it puts every record in the middle of its bin, which hides more than noise does"
            return Option(name, how, note=note)
        try:
            adaptive = plan_adaptive(base.workload, base.budget, base.neighbours, unit=base.unit)
        except SfumatoError as error:
            return Option(name, how, note=str(error))
        if adaptive.seconds > LIMITS.trial_adaptive_seconds:
            return Option(name, how, note=f"a run takes about {adaptive.seconds:,.0f} s: not tried")
        return self._option(name, how, lambda run: self._rounds(adaptive, run))

    def _rounds(self, chosen: AdaptivePlan, run: int) -> Array:
        surrogate = self.surrogate(run)
        rows = self.records if self.plan.total_is_public else None
        learner = Learner(chosen.domain, rows)
        tables = _Tables(surrogate, self._draws("adaptive", run))
        spending = Spending.of(chosen.budget)
        # Randomness is for exact tables; these draw from a public stream.
        adaptive_rounds(tables, rows, chosen.task(learner), spending, system_words())
        model = learner.finish()
        terms = chosen.workload.terms
        return np.concatenate([t.answer(model.table(t.attributes)) for t in terms])


@dataclass(frozen=True, eq=False)
class _Tables:
    """Tables of surrogate records that a loop asks as it would exact ones; draws are public."""

    surrogate: SurrogateRecords
    draws: Draws

    def choose(
        self,
        estimates: Mapping[Names, Integers],
        handicaps: Mapping[Names, int],
        weights: Mapping[Names, int],
        rate: Fraction,
        random: WordSource,  # noqa: ARG002
        is_pure: bool,
    ) -> Names:
        """As ``vault.mechanisms.select.ExactTables.choose``, in floats."""
        scores = [
            weights[s] * (np.abs(np.ldexp(self.surrogate.table(s), GRID_BITS) - near).sum() - h)
            for (s, near), h in zip(estimates.items(), handicaps.values(), strict=True)
        ]
        exponential = -np.log(self.draws.uniforms(len(scores)))
        noise = exponential if is_pure else -np.log(exponential)
        return list(estimates)[int(np.argmax(float(rate) * np.array(scores) + noise))]

    def measure(self, names: Names, law: BlockNoise, random: WordSource) -> Measurement:  # noqa: ARG002
        """As ``vault.mechanisms.select.ExactTables.measure``."""
        exact = self.surrogate.table(names).ravel()
        draw = self.draws.normals if law.noise == "gaussian" else self.draws.laplaces
        noisy = exact + law.scale * draw(exact.size)
        return Measurement(np.rint(np.ldexp(noisy, law.grid_bits)).astype(np.int64), law)


def _weights(workload: Workload) -> Array:
    return np.concatenate([np.full(t.rows, t.weight**2) for t in workload.terms])
