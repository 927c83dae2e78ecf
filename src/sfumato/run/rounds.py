# SPDX-License-Identifier: Apache-2.0
"""The loops that alternate measuring and learning: adaptive tables, MWEM, boosting.

A loop holds an opaque object of the vault (`ExactTables`, `ExactAnswers`) and asks it to choose or
to measure, each step paid for before it is drawn; exact answers never come here. Every
number that steers a loop (noise scales, handicaps, when to spend more per round) is a function of
public inputs and earlier answers. All costs are mu^2 of Gaussian differential privacy or a pure
epsilon, fixed in total and debited before the first draw. Proof: docs/proofs/adaptive.md.

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
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import ceil, log, log2, prod, sqrt
from typing import Final, Protocol

import numpy as np

from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.measurement import Measurement, Step, Transcript
from sfumato.planning.adaptive_costs import (
    FINEST_GRID_BITS,
    Moves,
    Spending,
    answer_moves,
    joint_moves,
    moves_of,
)
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.random import WordSource
from sfumato.refine.learn import Boosted, Hedge, Learner, begun_total, learn_query, learn_sample
from sfumato.run.run_limits import LIMITS
from sfumato.types import Array, Integers, Names, Neighbours, Noise, Progress
from sfumato.vault.mechanisms.select import (
    GRID_BITS,
    MAXIMUM_SCORE,
    MAXIMUM_WEIGHT,
    ExactAnswers,
    SummedErrors,
)
from sfumato.workload.constraints import Constraints
from sfumato.workload.scans import RECORD_BITS, WORD_BITS
from sfumato.workload.workload import Workload

__all__ = [
    "Sampling",
    "Tables",
    "Task",
    "adaptive_rounds",
    "boosting_rounds",
    "mwem_rounds",
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
