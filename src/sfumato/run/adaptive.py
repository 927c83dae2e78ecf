# SPDX-License-Identifier: Apache-2.0
"""Adaptive releases: tables are chosen where the estimate is worst, measured, and learnt from.

    plan = sf.plan_adaptive(sf.marginals(domain, 3), sf.Budget(epsilon=1, delta=1e-9))
    result = plan.release("adult.parquet", ledger="adult.ledger")
    result.answers()

Three methods: ``"tables"`` chooses and measures whole tables, a maximum entropy model on rows
learns them (any domain; docs/mechanisms/adaptive.md); ``"mwem"`` chooses single queries for a
histogram (explicit domains; docs/mechanisms/mwem.md); ``"boosting"`` samples queries where synopses
are bad and takes medians (explicit domains; docs/mechanisms/boosting.md). The whole cost is debited
at once, before any noise is drawn; how it is split over the rounds may depend on earlier answers
(docs/proofs/adaptive.md). Unlike `sf.plan`, the error cannot be forecast: it depends on the data.

Each loop holds an opaque object of the vault (`ExactTables`, `ExactAnswers`) and asks it to choose
or to measure; exact answers never come here. Every number that steers a loop (noise scales,
handicaps, when to spend more per round) is a function of public inputs and earlier answers. All
costs are mu^2 of Gaussian differential privacy or a pure epsilon, fixed in total.

*Tables* (`adaptive_rounds`): choose the table whose estimate is worst, measure it, learn, again, in
the spirit of McKenna, Mullins, Sheldon, Miklau 2022, "AIM: an adaptive and iterative mechanism for
differentially private synthetic data". What differs: the estimate is kept on rows
(``refine/learn.py``), so that no set of measured tables is too entangled; a table is
handicapped by the error that noise would leave in it after projection, not by the raw noise; tables
over one attribute are measured again if they came out poorly.

*MWEM* (`mwem_rounds`): choose the query whose estimate is worst, measure it, multiply the weights,
again. Hardt, Ligett, McSherry 2012, "A simple and practical algorithm for differentially private
data release", Figure 1, for any linear queries over an explicit domain. Half of a round goes to the
choice, half to the measurement, as there. With a pure budget the choice is permute-and-flip and the
noise discrete Laplace; otherwise exponential mechanism and Gaussian, accounted together as mu-GDP.
Where the number of records is not public it is measured first.

*Boosting* (`boosting_rounds`): sample where the synopses so far are bad, measure, learn one more,
vote. Dwork, Rothblum, Vadhan 2010, "Boosting and differential privacy": in every round queries are
drawn from a distribution D, measured, and a synopsis is made of them that is good for most of D;
then D moves towards queries that it got wrong, in proportion to a clipped error, because a
threshold would move by 1 for one record. D itself is never published. A draw from it is the
exponential mechanism whose scores are the summed errors, so it costs what that does, exactly; after
t rounds scores move t times as far as one answer. Answers are medians over synopses. What departs
from the paper: synopses know the queries of earlier rounds too. Proof: docs/proofs/boosting.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import ceil, floor, log, log2, prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

import numpy as np

from sfumato.digest import canonical_json, json_digest
from sfumato.domain.domain import Domain
from sfumato.domain.privacy_unit import PrivacyUnit, check_privacy_unit
from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.measurement import Measurement, Step, Transcript
from sfumato.planning.adaptive_costs import (
    FINEST_GRID_BITS,
    Moves,
    Spending,
    answer_moves,
    asked_domain,
    candidate_sets,
    joint_moves,
    moves_of,
)
from sfumato.privacy.budget import Budget, check_neighbours
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.random import WordSource, system_words
from sfumato.refine.feasibility import witness
from sfumato.refine.learn import Boosted, Hedge, Learner, begun_total, learn_query, learn_sample
from sfumato.refine.project import checked_constraints
from sfumato.refine.refine_limits import LIMITS as REFINE_LIMITS
from sfumato.run.run_limits import LIMITS
from sfumato.run.spine import Access, ReleasePlan, Stored, WorkloadRun, run
from sfumato.types import Array, Integers, Names, Neighbours, Noise, Progress
from sfumato.vault.mechanisms.select import (
    GRID_BITS,
    MAXIMUM_SCORE,
    MAXIMUM_WEIGHT,
    ExactAnswers,
    SummedErrors,
    read_answers,
    read_tables,
)
from sfumato.workload.bins import in_bins
from sfumato.workload.constraints import Constraints, agreed_total
from sfumato.workload.workload import RECORD_BITS, WORD_BITS, Workload

if TYPE_CHECKING:
    from sfumato.ledger.entries import Entry
    from sfumato.ledger.ledger import Ledger, LedgerToCreate
    from sfumato.release.learned import Model
    from sfumato.release.release import Release
    from sfumato.vault.tables import Table

__all__ = [
    "AdaptivePlan",
    "AdaptiveRun",
    "Method",
    "Sampling",
    "Tables",
    "Task",
    "adaptive_rounds",
    "boosting_rounds",
    "mwem_rounds",
    "plan_adaptive",
]


class Tables(Protocol):
    """What a loop may do: choose a table, and measure it.

    Exact ones are `ExactTables` of the vault; `run/advice.py` has made-up ones to try loops on.
    """

    def choose(
        self,
        estimates: Mapping[Names, Integers],
        handicaps: Mapping[Names, int],
        weights: Mapping[Names, int],
        rate: Fraction,
        random: WordSource,
        is_pure: bool,
    ) -> Names:
        """The attributes of a table whose score is near the maximum."""
        ...

    def measure(self, names: Names, law: BlockNoise, random: WordSource) -> Measurement:
        """A table with noise."""
        ...


@dataclass(frozen=True, eq=False)
class Task:
    """What a loop may choose from; all of it public."""

    learner: Learner
    candidates: Mapping[Names, int]  # with their weights, 1 to MAXIMUM_WEIGHT
    rounds: int
    moves: Moves


def adaptive_rounds(
    exact: Tables,
    rows: int | None,
    task: Task,
    spending: Spending,
    random: WordSource,
    progress: Progress | None = None,
) -> Transcript:
    """Measure every attribute, then, round by round, the candidate that is worst estimated.

    Privacy: the whole transcript costs at most ``spending.total`` (mu^2 or epsilon), as every
    choice and measurement is paid for before it is drawn: docs/proofs/adaptive.md, Theorem 1.
    Neighbours: as ``task.moves`` states; ``rows`` is passed on only where it is public.
    """
    loop = _Loop(exact, task, spending, random)
    loop.look_at_attributes()
    share = spending.left / task.rounds
    is_last, missed = not task.candidates, 0
    while not is_last:
        is_last = spending.left < 2 * share
        share = spending.left if is_last else share
        missed = 0 if loop.round(share) else missed + 1
        if missed == LIMITS.misses_in_a_row:
            share, missed = min(LIMITS.round_growth * share, spending.left), 0
        is_last = is_last or spending.left <= LIMITS.unspent_share * spending.total
        if progress is not None:
            done = 1 - float(spending.left / spending.total)
            progress(int(100 * done), 100, "choosing and measuring")
    return Transcript(tuple(loop.steps), rows)


class _Loop:
    """The state of a loop: what was learnt, spent and measured."""

    def __init__(self, exact: Tables, task: Task, spending: Spending, random: WordSource) -> None:
        self.exact, self.task, self.spending, self.random = exact, task, spending, random
        self.steps: list[Step] = []

    @property
    def law(self) -> Noise:
        """The law of the noise that is paid for."""
        return self.spending.law

    def measure(self, names: Names, amount: Fraction) -> None:
        """Pay for a table, measure it, learn from it."""
        noise = self.spending.noise(amount, self.task.moves)
        self.spending.take(self.spending.cost_of_noise(noise, self.task.moves))
        measured = self.exact.measure(names, noise, self.random)
        place = tuple(self.task.learner.domain.index(n) for n in names)
        self.steps.append(Step(place, measured))
        self.task.learner.learn(names, measured)

    def look_at_attributes(self) -> None:
        """Measure all attributes; once more, with more of the budget, if that came out poorly.

        How much more is capped by the share of candidates that one round could not measure anyway:
        where tables are within reach, they teach the attributes too.
        """
        learner, total = self.task.learner, self.spending.total
        if not self.task.candidates:
            self._attributes(total)
            return
        self._attributes(LIMITS.first_share * total)
        noise = self.spending.noise(self.spending.left / self.task.rounds, self.task.moves)
        beyond = [
            self.handicap(learner.independent(names), noise.scale)
            > LIMITS.reachable_error * learner.total
            for names in self.task.candidates
        ]
        maximum = float(LIMITS.first_share) + LIMITS.second_share_maximum * float(np.mean(beyond))
        short = float(np.mean(list(learner.single_errors().values()))) / LIMITS.attribute_error
        needed = float(LIMITS.first_share) * short ** (2 if self.law == "gaussian" else 1)
        more = Fraction(min(needed, maximum)).limit_denominator(1000) - LIMITS.first_share
        if more > LIMITS.first_share / 5:
            self._attributes(more * total)

    def handicap(self, table: Array, scale: float) -> float:
        """The L1 error that noise of this scale would leave in a table like this one.

        Margins were learnt before, so noise counts by what it adds beyond them.
        """
        own = prod((n - 1) / n for n in table.shape)
        return self.task.learner.expected_noise(table, own**0.5 * scale, self.law)

    def _attributes(self, amount: Fraction) -> None:
        """Measure every attribute, each for its share of an amount.

        The error is proportional to cells / sqrt(mu^2) or cells / epsilon, so that the sum of all
        is least for shares in proportion to cells^(2/3) or cells^(1/2).
        """
        domain = self.task.learner.domain
        power = 2 / 3 if self.law == "gaussian" else 1 / 2
        parts = [Fraction(round(1000 * size**power)) for size in domain.shape]
        for name, part in zip(domain.names, parts, strict=True):
            self.measure((name,), amount * part / sum(parts))

    def round(self, amount: Fraction) -> bool:
        """Choose a candidate and measure it; whether that taught more than its noise."""
        learner, spending = self.task.learner, self.spending
        moved = MAXIMUM_WEIGHT * 2**GRID_BITS * self.task.moves.l1
        rate = spending.rate(LIMITS.choice_share * amount, moved)
        price = spending.cost_of_choice(rate, moved)
        noise = spending.noise(amount - price, self.task.moves)
        estimates, handicaps = {}, {}
        for names in self.task.candidates:
            table = learner.model.table(names)
            estimates[names] = np.rint(np.ldexp(table, GRID_BITS)).astype(np.int64)
            handicaps[names] = round(self.handicap(table, noise.scale) * 2**GRID_BITS)
        spending.take(price)
        chosen = self.exact.choose(
            estimates, handicaps, self.task.candidates, rate, self.random, self.law == "laplace"
        )
        before = learner.model.table(chosen)
        self.measure(chosen, amount - price)
        taught = float(np.abs(learner.model.table(chosen) - before).sum())
        return taught > handicaps[chosen] / 2**GRID_BITS


def mwem_rounds(
    exact: ExactAnswers,
    rows: int | None,
    workload: Workload,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
    rounds: int,
    spending: Spending,
    random: WordSource,
    progress: Progress | None = None,
    constraints: Constraints | None = None,
) -> tuple[Transcript, Hedge]:
    """Choose and measure ``rounds`` queries; what was measured, and the histogram that learnt it.

    Privacy: the whole transcript costs at most ``spending.total`` (mu^2 or epsilon):
    docs/proofs/adaptive.md, Theorem 1; how far a choice's scores move: Theorem 3.
    Neighbours: as given; ``rows`` is passed on only where it is public.
    """
    steps: list[Step] = []
    if rows is None:
        steps.append(_measured_total(exact, moves_of(neighbours, unit).l1, spending, random))
    far_of = answer_moves(workload, neighbours, unit)
    hedge = Hedge(workload.domain, begun_total(steps, rows, constraints), constraints)
    grid_bits = _grid_bits(workload, exact.bits)
    share = spending.left / rounds
    for done in range(rounds):
        farthest = int(far_of.max())
        rate = spending.rate(share / 2, farthest)
        price = spending.cost_of_choice(rate, farthest)
        near = _in_steps(hedge.answers(workload), exact.bits)
        spending.take(price)
        query = exact.choose(near, rate, random, spending.law == "laplace")
        moves = Moves(int(far_of[query]), int(far_of[query]) ** 2)
        law = spending.noise(share - price, moves, grid_bits)
        spending.take(spending.cost_of_noise(law, moves))
        steps.append(Step(_place(workload, query), exact.measure(query, law, random)))
        learn_query(hedge, workload, steps[-1])
        if progress is not None:
            progress(done + 1, rounds, "choosing and measuring")
    return Transcript(tuple(steps), rows), hedge


@dataclass(frozen=True, slots=True)
class Sampling:
    """How queries are drawn: ``samples`` a round, by ``exp(rate * summed errors)``.

    ``span`` is the error beyond which a query counts as wholly wrong, in steps. Rounds after the
    first draw at ``rate``; in the first all queries are alike, which costs nothing.
    """

    rounds: int
    samples: int
    farthest: int
    rate: Fraction
    span: int

    @classmethod
    def of(
        cls, queries: int, rounds: int, samples: int, farthest: int, spending: Spending
    ) -> Sampling:
        """The maximum rate that the share for choices pays for.

        A round's weights are multiplied by ``exp(-alpha a)`` with a from 1 (right) to -1 (wrong)
        and ``alpha = 1/2 log((1 + 2 eta) / (1 - 2 eta))``. If every synopsis is right on
        ``1/2 + eta`` of its distribution, T rounds leave no query on which more than half are
        wrong once ``(1 - 4 eta^2)^(T/2) < 1 / queries``: the eta for which T just suffices.
        """
        if rounds == 1:
            return cls(1, samples, farthest, Fraction(1), 0)
        amount = LIMITS.draw_share * spending.left
        high = spending.rate(amount / samples, farthest * (rounds - 1))
        low, steps = Fraction(0), 2**LIMITS.rate_halvings
        for step in (steps >> (i + 1) for i in range(LIMITS.rate_halvings)):
            tried = low + Fraction(step, steps) * high
            fits = _cost(spending, tried, rounds, samples, farthest) <= amount
            low = tried if fits else low
        twice = sqrt(1 - queries ** (-2 / rounds)) if queries > 1 else 0.5
        alpha = 0.5 * log((1 + twice) / (1 - twice))
        span = min(ceil(2 * alpha / low), MAXIMUM_SCORE // rounds)
        return cls(rounds, samples, farthest, low, span)

    def price(self, spending: Spending, after: int) -> Fraction:
        """What the draws of one round cost after so many rounds."""
        return self.samples * spending.cost_of_choice(self.rate, after * self.farthest)


def boosting_rounds(
    exact: ExactAnswers,
    rows: int | None,
    workload: Workload,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
    rounds: int,
    samples: int,
    spending: Spending,
    random: WordSource,
    progress: Progress | None = None,
    constraints: Constraints | None = None,
) -> tuple[Transcript, Boosted]:
    """Draw, measure and learn ``rounds`` times; what was measured, and the synopses.

    Privacy: the whole transcript costs at most ``spending.total`` (mu^2 or epsilon):
    docs/proofs/boosting.md, Theorem 1.
    Neighbours: as given; ``rows`` is passed on only where it is public.
    """
    steps: list[Step] = []
    if rows is None:
        steps.append(_measured_total(exact, moves_of(neighbours, unit).l1, spending, random))
    boosted = Boosted(workload, begun_total(steps, rows, constraints), constraints)
    farthest = int(answer_moves(workload, neighbours, unit).max())
    sampling = Sampling.of(workload.queries, rounds, samples, farthest, spending)
    share = spending.left * (1 if rounds == 1 else 1 - LIMITS.draw_share) / rounds
    grid_bits = _grid_bits(workload, exact.bits)
    errors = SummedErrors(exact, workload.queries)
    for done in range(rounds):
        if done:
            spending.take(sampling.price(spending, done))
        drawn = errors.draw(sampling.rate, samples, random)
        moves = joint_moves(workload, drawn, neighbours, unit)
        law = spending.noise(share, moves, grid_bits)
        spending.take(spending.cost_of_noise(law, moves))
        steps.append(Step(drawn, exact.measure_some(drawn, law, random)))
        answers = learn_sample(boosted, workload, steps[-1])
        # An error within the noise is no error of the synopsis.
        low = ceil(law.variance**0.5)
        errors.add(_in_steps(answers, exact.bits), low, sampling.span)
        if progress is not None:
            progress(done + 1, rounds, "sampling and measuring")
    return Transcript(tuple(steps), rows), boosted


def _measured_total(exact: ExactAnswers, far: int, spending: Spending, random: WordSource) -> Step:
    """Pay for the number of records, which moves by at most ``far``, and measure it."""
    moves = Moves(far, far * far)
    law = spending.noise(LIMITS.total_share * spending.total, moves)
    spending.take(spending.cost_of_noise(law, moves))
    return Step((), exact.measure(None, law, random))


def _grid_bits(workload: Workload, bits: int) -> int:
    """How fine the grid of the noise may be for answers in steps of ``2^-bits`` to fit a word."""
    maximum = max(1.0, *(t.greatest for t in workload.terms))
    room = WORD_BITS - RECORD_BITS - bits - max(0, ceil(log2(maximum)))
    return max(0, min(room, FINEST_GRID_BITS))


ESTIMATE_MAXIMUM: Final = 2.0**60
"""The privacy claim relies on it: steps at which estimates are clamped, so that 64 bits hold a
score."""


def _in_steps(answers: Array, bits: int) -> Integers:
    """Estimated answers as whole steps of ``2^-bits``, clamped to what 64 bits hold."""
    near = np.clip(np.ldexp(answers, bits), -ESTIMATE_MAXIMUM, ESTIMATE_MAXIMUM)
    return np.asarray(np.rint(near).astype(np.int64))


def _place(workload: Workload, query: int) -> tuple[int, int]:
    """The group of a query, and its number there."""
    starts = [0, *accumulate(t.rows for t in workload.terms)]
    term = bisect_right(starts, query) - 1
    return term, query - starts[term]


def _cost(spending: Spending, rate: Fraction, rounds: int, samples: int, farthest: int) -> Fraction:
    """What all draws of all rounds cost at a rate."""
    prices = (spending.cost_of_choice(rate, after * farthest) for after in range(1, rounds))
    return samples * sum(prices, Fraction(0))


Method = Literal["tables", "mwem", "boosting"]


@dataclass(frozen=True, eq=False, repr=False)
class AdaptivePlan(ReleasePlan["Release"]):
    """What will be measured, for how much, in how many rounds: known before anything is spent.

    Args:
        workload: What is asked.
        budget: What the release may spend.
        neighbours: Which two tables must be hard to tell apart.
        unit: Whose presence is protected; one row if None.
        method: What is measured: ``"tables"``, ``"mwem"`` or ``"boosting"``.
        rounds: How often something is chosen and measured.
    """

    workload: Workload
    budget: Budget
    neighbours: Neighbours
    unit: PrivacyUnit | None
    method: Method
    rounds: int

    def __repr__(self) -> str:
        return (
            f"AdaptivePlan of {self.workload.queries:,} queries by {self.method!r} at "
            f"{self.budget.describe()}: up to {self.rounds} rounds, about "
            f"{self.memory / 2**20:,.0f} MiB and {self.seconds:,.0f} s; the error depends on the "
            "data"
        )

    @property
    def mechanism(self) -> str:
        """The method, as the ledger and the record call it."""
        return f"adaptive-{self.method}"

    @cached_property
    def domain(self) -> Domain:
        """The attributes that the estimate is over: all that are asked about."""
        return asked_domain(self.workload) if self.method == "tables" else self.workload.domain

    @cached_property
    def candidates(self) -> dict[tuple[str, ...], float]:
        """The tables that may be chosen, and how much each matters; none where queries are."""
        return candidate_sets(self.workload) if self.method == "tables" else {}

    @property
    def cost(self) -> Cost:
        """What is debited, before any noise is drawn: all that the budget allows."""
        return Spending.of(self.budget).cost

    @property
    def memory(self) -> int:
        """Bytes that the release holds at once, about."""
        if self.method != "tables":
            votes = self.rounds if self.method == "boosting" else 0
            return 32 * self.workload.domain.size + (24 + 8 * votes) * self.workload.queries
        cells = sum(self.domain.cells(s) for s in self.candidates)
        measured = min(self.rounds, len(self.candidates)) + len(self.domain)
        return 24 * cells + REFINE_LIMITS.final_rows * (8 * len(self.domain) + 4 * measured + 24)

    @property
    def seconds(self) -> float:
        """Time after counting, roughly, from the operations that are done in every round."""
        if self.method == "mwem":
            passes = 20 * self.rounds**2 / 2  # about 20 for every query known so far
            return 1e-8 * passes * self.workload.domain.size + 1e-7 * self.workload.queries
        if self.method == "boosting":
            passes = (
                300
                * self.rounds
                * min(len(self.workload.terms), LIMITS.boosting_samples * self.rounds)
            )
            drawn = 1e-7 * self.rounds * LIMITS.boosting_samples * self.workload.queries
            return 3e-8 * passes * self.workload.domain.size + drawn
        sets, d = len(self.candidates), len(self.domain)
        cells = sum(self.domain.cells(s) for s in self.candidates)
        measured = min(self.rounds, sets)
        scored = self.rounds * (1.5e-7 * cells + 4e-9 * sets * REFINE_LIMITS.loop_rows)
        fitted = self.rounds * 6e-9 * measured * REFINE_LIMITS.loop_rows
        settled = (
            REFINE_LIMITS.final_rounds * REFINE_LIMITS.final_rows * (8e-9 * measured + 1.5e-7 * d)
        )
        return scored + fitted + settled

    def task(self, learner: Learner) -> Task:
        """What the rounds may choose from, and how much each table matters.

        Args:
            learner: What learns from measurements.

        Returns:
            The candidates and their weights.
        """
        top = max(self.candidates.values(), default=1.0)
        weights = {s: max(1, round(MAXIMUM_WEIGHT * w / top)) for s, w in self.candidates.items()}
        return Task(learner, weights, self.rounds, moves_of(self.neighbours, self.unit))

    def request(self) -> dict[str, object]:
        """The public description of what is asked, as the ledger keeps it.

        Measured tables say the same to every writing of the same queries; measured queries are
        known by their places among the groups, so that their order is a part of the request.

        Returns:
            What the ledger keeps of the request, as JSON.
        """
        if self.method != "tables":
            return self.as_written()
        request = {**self.as_written(), "workload": self.workload.normal.key}
        del request["queries"]
        return request

    def as_written(self) -> dict[str, object]:
        """The request as it once was: that of one writing of the workload.

        Returns:
            JSON.
        """
        unit = self.unit
        return {
            **({"samples": LIMITS.boosting_samples} if self.method == "boosting" else {}),
            "workload": self.workload.digest(),
            "queries": self.workload.queries,
            "mechanism": self.mechanism,
            "rounds": self.rounds,
            "neighbours": self.neighbours,
            "unit": unit and unit.as_json(),
            "budget": self.budget.as_json(),
        }

    def runnable(self) -> AdaptiveRun:
        """This plan as the spine runs it, without constraints.

        Returns:
            The plan in the parts that are called in turn.
        """
        return AdaptiveRun(self)

    def release(
        self,
        table: object,
        ledger: Ledger | LedgerToCreate | str | Path | None = None,
        *,
        constraints: Constraints | None = None,
        name: str | None = None,
        key: str | None = None,
        analyst: str | None = None,
        progress: Progress | None = None,
    ) -> Release:
        """The learned answers: table -> exact tables -> debit -> choose and measure, in rounds.

        As `Plan.release`: the debit comes before any noise, the transcript is stored before it is
        used, and the same plan on the same table returns the stored one at no further cost.
        ``constraints`` are kept by all answers, and refused before anything is spent if no data set
        meets them.

        Args:
            table: As in `Plan.release`.
            ledger: The ledger of the table, opened or its path.
            constraints: Public knowledge that all answers keep, refused before anything is spent if
                no data set meets it.
            name: The table's in the ledger; needed for a table in memory.
            key: The request's in the ledger; the digest of the request if None.
            analyst: Whose allowance is debited as well.
            progress: Called with what is done and how much of it.

        Returns:
            The answers, their intervals, and the provenance that states the guarantee.

        Raises:
            TableError: The table cannot be opened or lacks a declared column.
            BudgetExhausted: The cost does not fit what is left.
            LedgerError: There is no ledger, or it is of another table, neighbour relation or unit.
        """
        access = Access(table, ledger, name, key, analyst, progress)
        return run(AdaptiveRun(self, constraints), access)


Rounds: TypeAlias = "Callable[[WordSource], tuple[Transcript, Model]]"
"""The rounds, with all that they may look at counted: what they measured, and what they learnt."""


@dataclass(eq=False)
class AdaptiveRun(WorkloadRun[Rounds, "Release"]):
    """An adaptive plan with the constraints that its answers keep.

    ``estimate`` is what the rounds of a new release have learnt; a stored one is learnt again.
    """

    plan: AdaptivePlan
    constraints: Constraints | None = None
    estimate: Model | None = None

    def request(self) -> dict[str, object]:
        """That of the plan: constraints are a view of the same transcript."""
        return self.plan.request()

    def keys(self, ledger: Ledger) -> Iterable[str]:
        """The key of this very writing, which was the only one once, and the plan's own."""
        del ledger
        return dict.fromkeys([json_digest(self.plan.as_written()), self.key()])

    def reader(self, stored: Stored) -> AdaptiveRun | None:
        """This, if the request is the plan's or that of its writing."""
        requests = (self.request(), self.plan.as_written())
        return self if stored.entry.request in map(canonical_json, requests) else None

    def checked(self, table: object) -> AdaptiveRun:
        """Refuse constraints that no data set meets, or only an empty one."""
        del table
        if self.constraints is None:
            return self
        constraints = checked_constraints(self.constraints, self.plan.workload)
        _check_met(constraints)
        return replace(self, constraints=constraints)

    def count(self, table: Table | None, progress: Progress | None) -> Rounds:
        """Count all that rounds may look at; refuses a public total that constraints contradict."""
        assert table is not None  # noqa: S101
        is_tables = self.plan.method == "tables"
        rows, rounds = (self._tables if is_tables else self._queries)(table, progress)
        agreed_total(rows, self.constraints)
        return rounds

    def draw(self, exact: Rounds, progress: Progress | None) -> bytes:
        """Run the rounds, and remember what they learnt."""
        del progress
        transcript, self.estimate = exact(system_words())
        return transcript.to_bytes()

    def publish(
        self, answer: bytes, entry: Entry | None, is_stored: bool, progress: Progress | None
    ) -> Release:
        """The answers of the estimate."""
        from sfumato.release.learned import adaptive_release

        del progress
        transcript = Transcript.from_bytes(answer)
        agreed_total(transcript.rows, self.constraints)
        estimate = None if is_stored else self.estimate
        return adaptive_release(
            self.plan, transcript, estimate, entry, self.constraints, is_stored=is_stored
        )

    def _tables(self, table: Table, progress: Progress | None) -> tuple[int | None, Rounds]:

        plan = self.plan
        sets = [*((name,) for name in plan.domain.names), *plan.candidates]
        whose = (plan.neighbours, plan.unit)
        exact, rows = read_tables(table, plan.workload.domain, sets, *whose, progress)
        learner = Learner(plan.domain, rows, self.constraints)
        task = plan.task(learner)

        def rounds(random: WordSource) -> tuple[Transcript, Model]:
            spending = Spending.of(plan.budget)
            return adaptive_rounds(exact, rows, task, spending, random, progress), learner

        return rows, rounds

    def _queries(self, table: Table, progress: Progress | None) -> tuple[int | None, Rounds]:

        plan, constraints = self.plan, self.constraints
        work, whose = plan.workload, (plan.neighbours, plan.unit)
        exact, rows = read_answers(table, work, *whose, progress)
        task = (exact, rows, work, *whose, plan.rounds)

        def rounds(random: WordSource) -> tuple[Transcript, Model]:
            spending = (Spending.of(plan.budget), random, progress, constraints)
            if plan.method == "mwem":
                return mwem_rounds(*task, *spending)
            return boosting_rounds(*task, LIMITS.boosting_samples, *spending)

        return rows, rounds


def _check_met(constraints: Constraints) -> None:
    """Refuse, before anything is spent, what no data set meets, or only an empty one."""
    witness(constraints)
    if constraints.total == 0:
        raise WorkloadError("the published tables hold no record, so there is nothing to estimate")


def plan_adaptive(
    workload: Workload,
    budget: Budget,
    neighbours: Neighbours = "add-remove",
    *,
    method: Method = "tables",
    unit: PrivacyUnit | None = None,
    rounds: int | None = None,
) -> AdaptivePlan:
    """Plan a release that measures where its estimate is worst; touches no data, costs nothing.

    Args:
        workload: What is asked.
        budget: What the release may spend.
        neighbours: Which two tables must be hard to tell apart.
        method: ``"tables"`` measures tables of attributes, on a domain of any size; ``"mwem"``
            single queries and ``"boosting"`` samples of queries, on a domain whose cells can be
            listed.
        unit: Whose presence is protected; one row if None.
        rounds: The most measurements after the first look at every attribute (tables), or their
            number (the others); None for the default.

    Returns:
        The plan.

    Raises:
        PlanError: An argument is wrong, or the method does not fit the workload.
        TooLarge: The domain has too many cells for the method.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2, "job": 15})
    >>> plan = sf.plan_adaptive(sf.marginals(domain, 2), sf.Budget(epsilon=1, delta=1e-9))
    >>> plan.rounds, len(plan.candidates)
    (3, 3)
    """
    if not isinstance(workload, Workload):
        raise PlanError(
            f"plan_adaptive needs a workload such as sf.marginals(domain, 3), got "
            f"{type(workload).__name__}"
        )
    if not isinstance(budget, Budget):
        raise PlanError(f"budget must be sf.Budget(epsilon=..., delta=...), got {budget!r}")
    unit = check_privacy_unit(unit, workload.domain.attributes)
    if method not in ("tables", "mwem", "boosting"):
        raise PlanError(f'method must be "tables", "mwem" or "boosting", got {method!r}')
    if method != "tables" and workload.domain.size > REFINE_LIMITS.learned_cells:
        raise TooLarge(
            f"{method!r} holds all {workload.domain.size:,} cells of the domain, at most "
            f'{REFINE_LIMITS.learned_cells:,} are allowed; use method="tables", or fewer attributes'
        )
    workload = in_bins(workload)
    domain = asked_domain(workload)
    if method == "tables" and len(domain) > LIMITS.learned_attributes:
        raise TooLarge(
            f"an adaptive release keeps rows of at most {LIMITS.learned_attributes} attributes, "
            f"the queries look at {len(domain)}; ask about fewer at a time"
        )
    widest = max(workload.terms, key=lambda t: t.cells)
    if widest.cells > LIMITS.learned_table_cells:
        raise TooLarge(
            f"group {widest.name!r} looks at a table of {widest.cells:,} cells, at most "
            f"{LIMITS.learned_table_cells:,} can be estimated; ask about fewer attributes at a time"
        )
    number = _rounds(workload, method, len(domain)) if rounds is None else rounds
    if (
        isinstance(number, bool)
        or not isinstance(number, int)
        or not 1 <= number <= LIMITS.rounds_maximum
    ):
        raise PlanError(
            f"rounds must be a whole number from 1 to {LIMITS.rounds_maximum}, got {rounds!r}"
        )
    return AdaptivePlan(workload, budget, check_neighbours(neighbours), unit, method, number)


def _rounds(workload: Workload, method: Method, attributes: int) -> int:
    """Rounds unless told: of the order of the attributes, or of the logarithm of the queries."""
    if method == "mwem":
        return max(1, min(workload.queries, 4 + floor(2 * log2(workload.queries))))
    if method == "boosting":
        return LIMITS.boosting_rounds
    return max(1, min(LIMITS.rounds_per_attribute * attributes, len(candidate_sets(workload))))
