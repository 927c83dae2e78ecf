# SPDX-License-Identifier: Apache-2.0
"""The adaptive loop: choose the table whose estimate is worst, measure it, learn, again.

In the spirit of McKenna, Mullins, Sheldon, Miklau 2022, "AIM: an adaptive and iterative mechanism
for differentially private synthetic data". What differs: the estimate is kept on rows
(``refine/rows/entropy.py``), so that no set of measured tables is too entangled; a table is
handicapped by the error that noise would leave in it after projection, not by the raw noise; tables
over one attribute are measured again if they came out poorly; and all costs are mu^2 of Gaussian
differential privacy (or a pure epsilon), fixed in total and debited before the first draw.

Every number that steers the loop (noise scales, handicaps, when to spend more per round) is a
function of public inputs and earlier answers. Proof: docs/proofs/adaptive.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Protocol

import numpy as np

from sfumato.measurement import Measurement, Step, Transcript
from sfumato.plan.adaptive import Moves, Spending
from sfumato.privacy.noise_laws import BlockNoise, Noise
from sfumato.randomness import WordSource
from sfumato.refine.fit import Names
from sfumato.refine.learning.learner import Learner
from sfumato.vault.adaptive import GREATEST_WEIGHT, GRID_BITS
from sfumato.vault.count import Progress
from sfumato.workload.queries import Array, Integers

__all__ = ["Tables", "Task", "adaptive_rounds"]

FIRST_SHARE = Fraction(1, 10)  # of the budget, for a first look at every attribute
MOST_MORE = 0.6  # of the budget, for a second look, where no table is within reach
REACHED = 0.2  # of all records: L1 error within which a table is worth a round
KNOWN = 0.04  # mean L1 error at which attributes are known well enough
CHOICE_SHARE = Fraction(1, 10)  # of a round, for choosing what to measure
MISSES = 2  # rounds in a row that taught no more than their noise, after which
RAISE = 4  # times the budget of a round is spent
LAST = Fraction(1, 10**6)  # of the budget: what is left unspent


class Tables(Protocol):
    """What a loop asks: ``vault.adaptive.ExactTables``, or made-up ones that are tried out."""

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
