# SPDX-License-Identifier: Apache-2.0
"""MWEM: choose the query whose estimate is worst, measure it, multiply the weights, again.

Hardt, Ligett, McSherry 2012, "A simple and practical algorithm for differentially private data
release", Figure 1, for any linear queries over an explicit domain. Half of a round goes to the
choice, half to the measurement, as there. With a pure budget the choice is permute-and-flip and the
noise discrete Laplace; otherwise exponential mechanism and Gaussian, accounted together as mu-GDP.
Where the number of records is not public it is measured first. Proof: docs/proofs/adaptive.md.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate
from math import ceil, log2

import numpy as np

from sfumato.budget import Neighbours
from sfumato.domain.unit import PrivacyUnit
from sfumato.measurement import Step, Transcript
from sfumato.plan.adaptive import MOST_GRID_BITS, Moves, Spending, moves_of
from sfumato.randomness import WordSource
from sfumato.refine.learning.hedge import Hedge
from sfumato.refine.learning.replay import begun_total, learn_query
from sfumato.vault.adaptive import ExactAnswers
from sfumato.vault.count import Progress
from sfumato.workload.constraints import Constraints
from sfumato.workload.queries import Integers
from sfumato.workload.scans import RECORD_BITS, WORD_BITS, answer_bits
from sfumato.workload.workload import Workload

__all__ = ["answer_moves", "mwem_rounds"]

TOTAL_SHARE = Fraction(1, 20)  # of the budget, for the number of records where it is not public
GREATEST_STEPS = 2.0**60  # estimates are clamped here before they are compared


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
        far = moves_of(neighbours, unit).l1
        moves = Moves(far, far * far)
        law = purse.noise(TOTAL_SHARE * purse.total, moves)
        purse.take(purse.cost_of_noise(law, moves))
        steps.append(Step((), exact.measure(None, law, words)))
    far_of = answer_moves(workload, neighbours, unit)
    hedge = Hedge(workload.domain, begun_total(steps, rows, constraints), constraints)
    room = WORD_BITS - RECORD_BITS - exact.bits - max(0, ceil(log2(_greatest(workload))))
    share = purse.left / rounds
    for done in range(rounds):
        farthest = int(far_of.max())
        rate = purse.rate(share / 2, farthest)
        price = purse.cost_of_choice(rate, farthest)
        near = np.ldexp(hedge.answers(workload), exact.bits)
        near = np.rint(np.clip(near, -GREATEST_STEPS, GREATEST_STEPS)).astype(np.int64)
        purse.take(price)
        query = exact.choose(near, rate, words, purse.law == "laplace")
        moves = Moves(int(far_of[query]), int(far_of[query]) ** 2)
        law = purse.noise(share - price, moves, max(0, min(room, MOST_GRID_BITS)))
        purse.take(purse.cost_of_noise(law, moves))
        steps.append(Step(_place(workload, query), exact.measure(query, law, words)))
        learn_query(hedge, workload, steps[-1])
        if progress is not None:
            progress(done + 1, rounds, "choosing and measuring")
    return Transcript(tuple(steps), rows), hedge


def answer_moves(
    workload: Workload, neighbours: Neighbours, unit: PrivacyUnit | None = None
) -> Integers:
    """How far one person moves each answer, in steps; at least one step.

    A record moves an answer by its coefficient; a replaced one by the difference of two, or by
    one if the other falls in no cell.
    """
    bits, rows = answer_bits(workload), 1 if unit is None else unit.rows
    found = []
    for term in workload.terms:
        low, high = (np.asarray(b, dtype=np.float64) for b in term.coefficient_bounds())
        far = np.maximum(np.abs(low), np.abs(high))
        if neighbours == "replace-one":
            far = np.maximum(far, high - low)
        found.append(np.maximum(np.ceil(np.ldexp(far, bits)), 1).astype(np.int64) * rows)
    return np.concatenate(found)


def _place(workload: Workload, query: int) -> tuple[int, int]:
    """The group of a query, and its number there."""
    starts = [0, *accumulate(t.rows for t in workload.terms)]
    term = bisect_right(starts, query) - 1
    return term, query - starts[term]


def _greatest(workload: Workload) -> float:
    return max(1.0, *(t.greatest for t in workload.terms))
