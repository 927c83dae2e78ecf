# SPDX-License-Identifier: Apache-2.0
"""The loops that alternate measuring and learning: adaptive tables, MWEM, boosting.

A loop holds an opaque object of the vault (`ExactTables`, `ExactAnswers`) and asks it to choose or
to measure, each step paid for from a purse before it is drawn; exact answers never come here. Every
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
from typing import Protocol

import numpy as np

from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.measurement import Measurement, Step, Transcript
from sfumato.planning.adaptive_costs import Moves, Spending, answer_moves, joint_moves, moves_of
from sfumato.planning.planning_limits import LIMITS
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.random import WordSource
from sfumato.refine.learn import Boosted, Hedge, Learner, begun_total, learn_query, learn_sample
from sfumato.types import Array, Integers, Names, Neighbours, Noise, Progress
from sfumato.vault.select import (
    GREATEST_SCORE,
    GREATEST_WEIGHT,
    GRID_BITS,
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


# Tables.
FIRST_SHARE = Fraction(1, 10)  # of the budget, for a first look at every attribute
MOST_MORE = 0.6  # of the budget, for a second look, where no table is within reach
REACHED = 0.2  # of all records: L1 error within which a table is worth a round
KNOWN = 0.04  # mean L1 error at which attributes are known well enough
CHOICE_SHARE = Fraction(1, 10)  # of a round, for choosing what to measure
MISSES = 2  # rounds in a row that taught no more than their noise, after which
RAISE = 4  # times the budget of a round is spent
LAST = Fraction(1, 10**6)  # of the budget: what is left unspent
# Queries: MWEM and boosting.
TOTAL_SHARE = Fraction(1, 20)  # of the budget, for the number of records where it is not public
GREATEST_STEPS = 2.0**60  # estimates are clamped here before they are compared
# Boosting.
DRAW_SHARE = Fraction(1, 2)  # of the budget, for drawing queries; the rest measures them
HALVINGS = 24


class Tables(Protocol):
    """What a loop asks: ``vault.select.ExactTables``, or made-up ones that are tried out."""

    def choose(
        self,
        estimates: Mapping[Names, Integers],
        handicaps: Mapping[Names, int],
        weights: Mapping[Names, int],
        rate: Fraction,
        words: WordSource,
        is_pure: bool,
    ) -> Names:
        """A set with a nearly largest score."""
        ...

    def measure(self, names: Names, law: BlockNoise, words: WordSource) -> Measurement:
        """A table with noise."""
        ...


@dataclass(frozen=True, eq=False)
class Task:
    """What a loop may choose from; all of it public."""

    learner: Learner
    candidates: Mapping[Names, int]  # with their weights, 1 to GREATEST_WEIGHT
    rounds: int
    moves: Moves


def adaptive_rounds(
    exact: Tables,
    rows: int | None,
    task: Task,
    purse: Spending,
    words: WordSource,
    progress: Progress | None = None,
) -> Transcript:
    """Measure every attribute, then, round by round, the candidate that is worst estimated.

    Privacy: the whole transcript costs at most ``purse.total`` (mu^2 or epsilon), as every choice
    and measurement is taken from the purse before it is drawn: docs/proofs/adaptive.md, Theorem 1.
    Neighbours: as ``task.moves`` states; ``rows`` is passed on only where it is public.
    """
    loop = _Loop(exact, task, purse, words)
    loop.look_at_attributes()
    share = purse.left / task.rounds
    is_last, missed = not task.candidates, 0
    while not is_last:
        is_last = purse.left < 2 * share
        share = purse.left if is_last else share
        missed = 0 if loop.round(share) else missed + 1
        if missed == MISSES:
            share, missed = min(RAISE * share, purse.left), 0
        is_last = is_last or purse.left <= LAST * purse.total
        if progress is not None:
            done = 1 - float(purse.left / purse.total)
            progress(int(100 * done), 100, "choosing and measuring")
    return Transcript(tuple(loop.steps), rows)


class _Loop:
    """The state of a loop: what is known, what is spent, what was measured."""

    def __init__(self, exact: Tables, task: Task, purse: Spending, words: WordSource) -> None:
        self.exact, self.task, self.purse, self.words = exact, task, purse, words
        self.steps: list[Step] = []

    @property
    def law(self) -> Noise:
        """The law of the noise that the purse pays for."""
        return self.purse.law

    def measure(self, names: Names, amount: Fraction) -> None:
        """Pay for a table, measure it, learn from it."""
        noise = self.purse.noise(amount, self.task.moves)
        self.purse.take(self.purse.cost_of_noise(noise, self.task.moves))
        found = self.exact.measure(names, noise, self.words)
        place = tuple(self.task.learner.domain.index(n) for n in names)
        self.steps.append(Step(place, found))
        self.task.learner.learn(names, found)

    def look_at_attributes(self) -> None:
        """Measure all attributes; once more, with more of the budget, if that came out poorly.

        How much more is capped by the share of candidates that one round could not measure anyway:
        where tables are within reach, they teach the attributes too.
        """
        learner, total = self.task.learner, self.purse.total
        if not self.task.candidates:
            self._attributes(total)
            return
        self._attributes(FIRST_SHARE * total)
        noise = self.purse.noise(self.purse.left / self.task.rounds, self.task.moves)
        beyond = [
            self.handicap(learner.independent(names), noise.scale) > REACHED * learner.total
            for names in self.task.candidates
        ]
        most = float(FIRST_SHARE) + MOST_MORE * float(np.mean(beyond))
        short = float(np.mean(list(learner.single_errors().values()))) / KNOWN
        wanted = float(FIRST_SHARE) * short ** (2 if self.law == "gaussian" else 1)
        more = Fraction(min(wanted, most)).limit_denominator(1000) - FIRST_SHARE
        if more > FIRST_SHARE / 5:
            self._attributes(more * total)

    def handicap(self, table: Array, scale: float) -> float:
        """The L1 error that noise of this scale would leave in a table like this one.

        Margins are known from before, so noise counts by what it adds beyond them.
        """
        own = prod((n - 1) / n for n in table.shape)
        return self.task.learner.expected_noise(table, own**0.5 * scale, self.law)

    def _attributes(self, amount: Fraction) -> None:
        """The error is proportional to cells / sqrt(mu^2) or cells / epsilon, so the sum of all is
        least for shares in proportion to cells^(2/3) or cells^(1/2).
        """
        domain = self.task.learner.domain
        power = 2 / 3 if self.law == "gaussian" else 1 / 2
        parts = [Fraction(round(1000 * size**power)) for size in domain.shape]
        for name, part in zip(domain.names, parts, strict=True):
            self.measure((name,), amount * part / sum(parts))

    def round(self, amount: Fraction) -> bool:
        """Choose a candidate and measure it; whether that taught more than its noise."""
        learner, purse = self.task.learner, self.purse
        moved = GREATEST_WEIGHT * 2**GRID_BITS * self.task.moves.l1
        rate = purse.rate(CHOICE_SHARE * amount, moved)
        price = purse.cost_of_choice(rate, moved)
        noise = purse.noise(amount - price, self.task.moves)
        estimates, handicaps = {}, {}
        for names in self.task.candidates:
            table = learner.model.table(names)
            estimates[names] = np.rint(np.ldexp(table, GRID_BITS)).astype(np.int64)
            handicaps[names] = round(self.handicap(table, noise.scale) * 2**GRID_BITS)
        purse.take(price)
        chosen = self.exact.choose(
            estimates, handicaps, self.task.candidates, rate, self.words, self.law == "laplace"
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
    purse: Spending,
    words: WordSource,
    progress: Progress | None = None,
    constraints: Constraints | None = None,
) -> tuple[Transcript, Hedge]:
    """Choose and measure ``rounds`` queries; what was measured, and the histogram that learnt it.

    Privacy: the whole transcript costs at most ``purse.total`` (mu^2 or epsilon):
    docs/proofs/adaptive.md, Theorem 1; how far a choice's scores move: Theorem 3.
    Neighbours: as given; ``rows`` is passed on only where it is public.
    """
    steps: list[Step] = []
    if rows is None:
        steps.append(_measured_total(exact, moves_of(neighbours, unit).l1, purse, words))
    far_of = answer_moves(workload, neighbours, unit)
    hedge = Hedge(workload.domain, begun_total(steps, rows, constraints), constraints)
    grid_bits = _most_grid_bits(workload, exact.bits)
    share = purse.left / rounds
    for done in range(rounds):
        farthest = int(far_of.max())
        rate = purse.rate(share / 2, farthest)
        price = purse.cost_of_choice(rate, farthest)
        near = _in_steps(hedge.answers(workload), exact.bits)
        purse.take(price)
        query = exact.choose(near, rate, words, purse.law == "laplace")
        moves = Moves(int(far_of[query]), int(far_of[query]) ** 2)
        law = purse.noise(share - price, moves, grid_bits)
        purse.take(purse.cost_of_noise(law, moves))
        steps.append(Step(_place(workload, query), exact.measure(query, law, words)))
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
        cls, queries: int, rounds: int, samples: int, farthest: int, purse: Spending
    ) -> Sampling:
        """The greatest rate that the share for choices pays for.

        A round's weights are multiplied by ``exp(-alpha a)`` with a from 1 (right) to -1 (wrong)
        and ``alpha = 1/2 log((1 + 2 eta) / (1 - 2 eta))``. If every synopsis is right on
        ``1/2 + eta`` of its distribution, T rounds leave no query on which more than half are
        wrong once ``(1 - 4 eta^2)^(T/2) < 1 / queries``: the eta for which T just suffices.
        """
        if rounds == 1:
            return cls(1, samples, farthest, Fraction(1), 0)
        amount = DRAW_SHARE * purse.left
        high = purse.rate(amount / samples, farthest * (rounds - 1))
        low, steps = Fraction(0), 2**HALVINGS
        for step in (steps >> (i + 1) for i in range(HALVINGS)):
            tried = low + Fraction(step, steps) * high
            fits = _cost(purse, tried, rounds, samples, farthest) <= amount
            low = tried if fits else low
        twice = sqrt(1 - queries ** (-2 / rounds)) if queries > 1 else 0.5
        alpha = 0.5 * log((1 + twice) / (1 - twice))
        span = min(ceil(2 * alpha / low), GREATEST_SCORE // rounds)
        return cls(rounds, samples, farthest, low, span)

    def price(self, purse: Spending, after: int) -> Fraction:
        """What the draws of one round cost after so many rounds."""
        return self.samples * purse.cost_of_choice(self.rate, after * self.farthest)


def boosting_rounds(
    exact: ExactAnswers,
    rows: int | None,
    workload: Workload,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
    rounds: int,
    samples: int,
    purse: Spending,
    words: WordSource,
    progress: Progress | None = None,
    constraints: Constraints | None = None,
) -> tuple[Transcript, Boosted]:
    """Draw, measure and learn ``rounds`` times; what was measured, and the synopses.

    Privacy: the whole transcript costs at most ``purse.total`` (mu^2 or epsilon):
    docs/proofs/boosting.md, Theorem 1.
    Neighbours: as given; ``rows`` is passed on only where it is public.
    """
    steps: list[Step] = []
    if rows is None:
        steps.append(_measured_total(exact, moves_of(neighbours, unit).l1, purse, words))
    boosted = Boosted(workload, begun_total(steps, rows, constraints), constraints)
    farthest = int(answer_moves(workload, neighbours, unit).max())
    sampling = Sampling.of(workload.queries, rounds, samples, farthest, purse)
    share = purse.left * (1 if rounds == 1 else 1 - DRAW_SHARE) / rounds
    grid_bits = _most_grid_bits(workload, exact.bits)
    errors = SummedErrors(exact, workload.queries)
    for done in range(rounds):
        if done:
            purse.take(sampling.price(purse, done))
        drawn = errors.draw(sampling.rate, samples, words)
        moves = joint_moves(workload, drawn, neighbours, unit)
        law = purse.noise(share, moves, grid_bits)
        purse.take(purse.cost_of_noise(law, moves))
        steps.append(Step(drawn, exact.measure_some(drawn, law, words)))
        answers = learn_sample(boosted, workload, steps[-1])
        # An error within the noise is no error of the synopsis.
        low = ceil(law.variance**0.5)
        errors.add(_in_steps(answers, exact.bits), low, sampling.span)
        if progress is not None:
            progress(done + 1, rounds, "sampling and measuring")
    return Transcript(tuple(steps), rows), boosted


def _measured_total(exact: ExactAnswers, far: int, purse: Spending, words: WordSource) -> Step:
    """Pay for the number of records, which moves by at most ``far``, and measure it."""
    moves = Moves(far, far * far)
    law = purse.noise(TOTAL_SHARE * purse.total, moves)
    purse.take(purse.cost_of_noise(law, moves))
    return Step((), exact.measure(None, law, words))


def _most_grid_bits(workload: Workload, bits: int) -> int:
    """How fine the grid of the noise may be for answers in steps of ``2^-bits`` to fit a word."""
    greatest = max(1.0, *(t.greatest for t in workload.terms))
    room = WORD_BITS - RECORD_BITS - bits - max(0, ceil(log2(greatest)))
    return max(0, min(room, LIMITS.adaptive_grid_bits))


def _in_steps(answers: Array, bits: int) -> Integers:
    """Estimated answers as whole steps of ``2^-bits``, clamped to what 64 bits hold."""
    near = np.clip(np.ldexp(answers, bits), -GREATEST_STEPS, GREATEST_STEPS)
    return np.asarray(np.rint(near).astype(np.int64))


def _place(workload: Workload, query: int) -> tuple[int, int]:
    """The group of a query, and its number there."""
    starts = [0, *accumulate(t.rows for t in workload.terms)]
    term = bisect_right(starts, query) - 1
    return term, query - starts[term]


def _cost(purse: Spending, rate: Fraction, rounds: int, samples: int, farthest: int) -> Fraction:
    """What all draws of all rounds cost at a rate."""
    prices = (purse.cost_of_choice(rate, after * farthest) for after in range(1, rounds))
    return samples * sum(prices, Fraction(0))
