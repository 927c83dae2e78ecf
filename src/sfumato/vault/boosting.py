# SPDX-License-Identifier: Apache-2.0
"""Boosting over queries: sample where the synopses so far are bad, measure, learn one more, vote.

Dwork, Rothblum, Vadhan 2010, "Boosting and differential privacy": in every round queries are drawn
from a distribution D, measured, and a synopsis is made of them that is good for most of D; then D
moves towards queries that it got wrong, in proportion to a clipped error, because a threshold would
move by 1 for one record. D itself is never published. A draw from it is the exponential mechanism
whose scores are the summed errors, so it costs what that does, exactly; after t rounds scores move
t times as far as one answer. Answers are medians over synopses. What departs from the paper:
synopses know the queries of earlier rounds too, and costs are mu^2 of Gaussian differential privacy
or a pure epsilon, debited at once. Proof: docs/proofs/boosting.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log, log2, sqrt

import numpy as np

from sfumato.budget import Neighbours
from sfumato.domain.unit import PrivacyUnit
from sfumato.measurement import Step, Transcript
from sfumato.plan.adaptive import MOST_GRID_BITS, Moves, Spending, moves_of
from sfumato.randomness import WordSource
from sfumato.refine.learning.boosting import Boosted
from sfumato.refine.learning.replay import begun_total, learn_sample
from sfumato.vault.adaptive import ExactAnswers
from sfumato.vault.count import Progress
from sfumato.vault.mwem import GREATEST_STEPS, TOTAL_SHARE, answer_moves
from sfumato.vault.select import GREATEST_SCORE, exponential_mechanism
from sfumato.vault.sensitive import Sensitive
from sfumato.workload.constraints import Constraints
from sfumato.workload.gram import spread
from sfumato.workload.queries import Integers
from sfumato.workload.scans import RECORD_BITS, WORD_BITS, answer_bits
from sfumato.workload.workload import Workload

__all__ = ["Sampling", "boosting_rounds", "joint_moves"]

CHOICE_SHARE = Fraction(1, 2)  # of the budget, for drawing queries; the rest measures them
HALVINGS = 24


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
        amount = CHOICE_SHARE * purse.left
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
        far = moves_of(neighbours, unit).l1
        law = purse.noise(TOTAL_SHARE * purse.total, Moves(far, far * far))
        purse.take(purse.cost_of_noise(law, Moves(far, far * far)))
        steps.append(Step((), exact.measure(None, law, words)))
    boosted = Boosted(workload, begun_total(steps, rows, constraints), constraints)
    farthest = int(answer_moves(workload, neighbours, unit).max())
    sampling = Sampling.of(workload.queries, rounds, samples, farthest, purse)
    share = purse.left * (1 if rounds == 1 else 1 - CHOICE_SHARE) / rounds
    room = WORD_BITS - RECORD_BITS - exact.bits - max(0, ceil(log2(_greatest(workload))))
    wrong = Sensitive(np.zeros(workload.queries, dtype=np.int64))
    for done in range(rounds):
        if done:
            purse.take(sampling.price(purse, done))
        drawn = _drawn(wrong, sampling, words)
        moves = joint_moves(workload, drawn, neighbours, unit)
        law = purse.noise(share, moves, max(0, min(room, MOST_GRID_BITS)))
        purse.take(purse.cost_of_noise(law, moves))
        steps.append(Step(drawn, exact.measure_some(drawn, law, words)))
        found = learn_sample(boosted, workload, steps[-1])
        near = np.rint(np.clip(np.ldexp(found, exact.bits), -GREATEST_STEPS, GREATEST_STEPS))
        # An error within the noise is no error of the synopsis.
        low = ceil(law.variance**0.5)
        more = exact.errors(near.astype(np.int64), low, sampling.span)
        wrong = Sensitive(wrong.reveal() + more.reveal())
        if progress is not None:
            progress(done + 1, rounds, "sampling and measuring")
    return Transcript(tuple(steps), rows), boosted


def joint_moves(
    workload: Workload,
    queries: Sequence[int],
    neighbours: Neighbours,
    unit: PrivacyUnit | None = None,
) -> Moves:
    """How far one person moves the answers of some queries together, in steps, or a bound on it.

    A record moves them by a column of their coefficients c; a replaced one by a difference of two,
    ``|c - c'|^2 <= |c|^2 + |c'|^2`` where none is negative, else at most twice as far as one.
    """
    bits, rows = answer_bits(workload), 1 if unit is None else unit.rows
    sums, squares = (np.zeros(workload.domain.shape, dtype=np.int64) for _ in range(2))
    start, is_positive = 0, True
    for term in workload.terms:
        inside = [q - start for q in queries if start <= q < start + term.rows]
        start += term.rows
        one, two = (np.zeros(term.shape, dtype=np.int64) for _ in range(2))
        for query in inside:
            unit_vector = np.zeros(term.rows)
            unit_vector[query] = 1.0
            exact = np.asarray(term.adjoint(unit_vector), dtype=np.float64).reshape(term.shape)
            is_positive &= bool((exact >= 0).all())
            size = np.ceil(np.ldexp(np.abs(exact), bits)).astype(np.int64)
            one, two = one + size, two + size * size
        if inside:
            sums += spread(one, workload.domain, term.attributes)
            squares += spread(two, workload.domain, term.attributes)
    ways = 1 if neighbours == "add-remove" else 2
    squared = ways if is_positive else ways * ways
    far, square = max(1, int(sums.max())), max(1, int(squares.max()))
    return Moves(ways * rows * far, squared * rows * rows * square)


def _drawn(wrong: Sensitive[Integers], sampling: Sampling, words: WordSource) -> tuple[int, ...]:
    """Independent draws by ``exp(rate * wrong)``; what came more than once counts once."""
    found = {exponential_mechanism(wrong, sampling.rate, words)[0] for _ in range(sampling.samples)}
    return tuple(sorted(found))


def _cost(purse: Spending, rate: Fraction, rounds: int, samples: int, farthest: int) -> Fraction:
    """What all draws of all rounds cost at a rate."""
    prices = (purse.cost_of_choice(rate, after * farthest) for after in range(1, rounds))
    return samples * sum(prices, Fraction(0))


def _greatest(workload: Workload) -> float:
    return max(1.0, *(t.greatest for t in workload.terms))
