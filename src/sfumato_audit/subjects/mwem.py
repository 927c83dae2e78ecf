# SPDX-License-Identifier: Apache-2.0
"""MWEM with everything that it tells: what was chosen, what was measured, and from which estimates.

The estimates are public, so the likelihood of a whole transcript is known on any table: that of
every choice given the estimates before it, and that of every number. Its ratio is the score, and no
event tells more (Neyman, Pearson). A release is a millisecond, so runs are few and budgets large.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from sfumato.domain.domain import Domain
from sfumato.measurement import Measurement
from sfumato.planning.adaptive_costs import Spending
from sfumato.privacy.budget import Budget
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.random import WordSource
from sfumato.run.rounds import mwem_rounds
from sfumato.types import Array, Integers, Neighbours
from sfumato.vault.select import ExactAnswers, read_answers
from sfumato.workload.build import prefixes
from sfumato_audit.bounds import Claim
from sfumato_audit.events import Score
from sfumato_audit.examine import Pair, Sampler, Subject, Table
from sfumato_audit.subjects.measured import opened

__all__ = [
    "Purse",
    "mwem_subject",
    "mwem_subjects",
]


Purse = Callable[[], Spending]

WORK = prefixes(Domain({"cell": 3}), "cell")
QUERIES = 3
ROUNDS = 2
NEIGHBOURS: Neighbours = "add-remove"
SLOW = 300
FUNCTIONS = (
    "run.rounds.mwem_rounds",
    "vault.select.ExactAnswers.choose",
    "vault.select.ExactAnswers.measure",
)
COVERED = frozenset({"method:mwem", *(f"sfumato.{function}" for function in FUNCTIONS)})
# One more record in the first cell: the first answer is above an even table's and goes further up,
# the second is below it and comes nearer, so that choices tell as well.
FIRST, SECOND, THIRD = 8, 4, 8
PAIR: Pair[Table] = Pair(
    "one more record in the first cell",
    ((0,),) * FIRST + ((1,),) * SECOND + ((2,),) * THIRD,
    ((0,),) * (FIRST + 1) + ((1,),) * SECOND + ((2,),) * THIRD,
)


def mwem_subjects() -> tuple[Subject[Table], ...]:
    """With both kinds of noise."""
    gaussian, pure = Budget(mu=2), Budget(epsilon=6)
    return (
        mwem_subject("mwem", lambda: Spending.of(gaussian), None),
        mwem_subject("mwem, pure", lambda: Spending.of(pure), 2.25),
    )


def mwem_subject(
    name: str, purse: Purse, minimum: float | None, is_broken: bool = False
) -> Subject[Table]:
    """Two rounds from a purse; ``minimum`` is that of the log-likelihood ratio in a known event."""

    def sampler(table: Table) -> Sampler:
        exact, rows = _Recorded.read(table)

        def run(runs: int, source: WordSource) -> Array:
            out = []
            for _ in range(runs):
                exact.record = []
                mwem_rounds(exact, rows, WORK, NEIGHBOURS, None, ROUNDS, purse(), source)
                out.append(exact.record)
            return np.array(out)

        return run

    def hint(pair: Pair[Table]) -> Score:
        ratio = _likelihood(pair)
        return ratio if minimum is None else lambda o: (ratio(o) >= minimum).astype(np.float64)

    claim, covers = Claim.of(purse().cost), frozenset() if is_broken else COVERED
    return Subject(name, claim, (PAIR,), sampler, covers, None, hint, SLOW, is_broken)


class _Recorded(ExactAnswers):
    """Exact answers that note what is public of a call: estimates, rate, place; number, scale."""

    __slots__ = ("record",)
    record: list[float]

    @classmethod
    def read(cls, table: Table) -> tuple[_Recorded, int | None]:
        exact, rows = read_answers(opened(WORK.domain, table), WORK, NEIGHBOURS)
        return cls(exact._answers, exact._total, exact.bits), rows

    def choose(self, estimates: Integers, rate: Fraction, source: WordSource, is_pure: bool) -> int:
        place = super().choose(estimates, rate, source, is_pure)
        self.record += [*estimates.tolist(), float(rate), place]
        return place

    def measure(self, query: int | None, law: BlockNoise, source: WordSource) -> Measurement:
        measurement = super().measure(query, law, source)
        # The scale of Laplace noise is shown as negative.
        scale = law.scale if law.noise == "gaussian" else -law.scale
        self.record += [float(measurement.values[0]), scale]
        return measurement


def _likelihood(pair: Pair[Table]) -> Score:
    """The log-likelihood ratio of a transcript."""
    sides = [_answers(table) for table in (pair.left, pair.right)]

    def score(outputs: Array) -> Array:
        total, rounds = outputs[:, :2], outputs[:, 2:].reshape(len(outputs), ROUNDS, -1)
        logs = []
        for exact in sides:
            log = _of_number(total[:, 0], total[:, 1], exact[-1:])
            for part in rounds.swapaxes(0, 1):
                near, rate, place = part[:, :QUERIES], part[:, QUERIES], part[:, QUERIES + 1]
                chosen, scale = place.astype(np.int64), part[:, -1]
                log += _of_choice(np.abs(exact - near), rate, chosen, is_pure=scale < 0)
                log += _of_number(part[:, -2], scale, exact[chosen])
            logs.append(log)
        return np.asarray(logs[0] - logs[1])

    return score


def _answers(table: Table) -> Array:
    """The exact answers: running totals."""
    cells = np.array([record[0] for record in table], dtype=np.int64)
    return np.cumsum(np.bincount(cells, minlength=QUERIES)).astype(np.float64)


def _of_number(value: Array, scale: Array, exact: Array) -> Array:
    """The log density of a noisy number, up to what does not depend on the table."""
    far = np.abs(value - exact)
    return np.asarray(np.where(scale > 0, -(far**2) / (2 * scale**2), far / scale))


def _of_choice(
    scores: Array, rate: Array, chosen: Integers, is_pure: npt.NDArray[np.bool_]
) -> Array:
    """The log probability of a choice: by permute-and-flip, or by the exponential mechanism.

    With ``w_j = exp(rate (s_j - max))`` the first chooses i with probability ``w_i`` times the
    integral of ``prod over j != i of (1 - w_j t)`` over t from 0 to 1, the second ``w_i / sum w``.
    """
    weights = np.exp(rate[:, None] * (scores - scores.max(axis=1, keepdims=True)))
    own = np.take_along_axis(weights, chosen[:, None], axis=1)[:, 0]
    others = np.arange(QUERIES) != chosen[:, None]
    nodes, parts = np.polynomial.legendre.leggauss(QUERIES)  # exact for these products
    inner = [np.where(others, 1 - weights * (1 + t) / 2, 1.0).prod(axis=1) for t in nodes]
    flipped = own * (np.array(inner).T @ parts) / 2
    return np.asarray(np.log(np.where(is_pure, flipped, own / weights.sum(axis=1))))
