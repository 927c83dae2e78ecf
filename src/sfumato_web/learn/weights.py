# SPDX-License-Identifier: Apache-2.0
"""Multiplicative weights, question by question: a public histogram that learns from its mistakes.

Each question is tested against the estimate by a sparse vector. If the estimate is near, it is the
answer and costs nothing; if not, a noisy answer is paid for, and the weights of the cells that the
question counts are multiplied up or down. M. Hardt, G. Rothblum 2010, "A multiplicative weights
mechanism for privacy-preserving data analysis"; Y.-X. Wang, lecture notes "Sparse vector technique
and linear query release". Sessions do the same with all paid answers at once (docs/mechanisms/
online.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from sfumato.planning.sparse_plans import noise_of, sparse_of_epsilon
from sfumato.privacy.sparse_vector import noise_cost
from sfumato.random import WordSource
from sfumato.study.hedge import Experts
from sfumato.types import Array
from sfumato.vault.sensitive import Sensitive
from sfumato.vault.sparse import SparseVector, answer
from sfumato_web.learn.drawing import Axis, Plot, number

__all__ = [
    "CELLS",
    "COUNTS",
    "QUESTIONS",
    "Step",
    "Weights",
]


CELLS: Final = ("0-9", "10-19", "20-29", "30-39", "40-49", "50-59", "60-69", "70+")
COUNTS: Final = (40, 90, 310, 260, 150, 80, 50, 20)  # made up
QUESTIONS: Final = (
    (2, 3),
    (4, 7),
    (0, 1),
    (2, 2),
    (3, 4),
    (5, 7),
    (0, 3),
    (1, 2),
    (3, 3),
    (6, 7),
    (1, 4),
    (2, 5),
    (4, 4),
    (0, 0),
    (3, 7),
    (1, 1),
)
"""The cells that each question counts, from the first to the last."""
THRESHOLD: Final = 60
RATE: Final = 0.5


@dataclass(frozen=True, eq=False)
class Step:
    """One question, how it was answered, and the histogram after it."""

    question: str
    cells: tuple[int, int]
    estimate: float
    value: float
    is_paid: bool
    before: Array
    after: Array
    spent: Fraction


class Weights:
    """The estimate as it goes through the questions; every paid answer has an epoch of its own.

    >>> Weights(0.5).histogram.tolist()
    [125.0, 125.0, 125.0, 125.0, 125.0, 125.0, 125.0, 125.0]
    """

    def __init__(self, epsilon: float, source: WordSource | None = None) -> None:
        each = Fraction(epsilon).limit_denominator(1000)
        # One record replaced by another moves a count by at most 1, and so its distance to the
        # estimate: up or down, so the scores are not monotone.
        self.law = sparse_of_epsilon(each / 2)
        self.noise = noise_of(each / 2, "laplace")
        self.experts = Experts(len(CELLS), RATE)
        self.steps: list[Step] = []
        self.spent = Fraction(0)
        self._source = source
        self._vector: SparseVector | None = None

    @property
    def total(self) -> int:
        """The public number of records."""
        return sum(COUNTS)

    @property
    def histogram(self) -> Array:
        """The estimated counts; they sum to the number of records."""
        return np.asarray(self.total * self.experts.shares)

    @property
    def is_over(self) -> bool:
        """Whether all questions were asked."""
        return len(self.steps) == len(QUESTIONS)

    def next(self) -> Step:
        """Ask the next question."""
        first, last = QUESTIONS[len(self.steps)]
        query = np.zeros(len(CELLS))
        query[first : last + 1] = 1.0
        before = self.histogram
        guess = round(float(query @ before))
        truth = sum(COUNTS[first : last + 1])
        if self._vector is None:  # an epoch is paid for before its noise is drawn
            self.spent += self.law.cost.pure_epsilon
            self._vector = SparseVector(self.law, self._source)
        is_paid = self._vector.test(Sensitive(abs(truth - guess)), THRESHOLD)
        value = float(guess)
        if is_paid:
            self._vector = None
            self.spent += noise_cost(self.noise, 1).pure_epsilon
            value = float(answer(Sensitive(truth), self.noise, self._source))
            self._learn(query, value - guess)
        step = Step(
            f"How many are {CELLS[first]}?" if first == last else _between(first, last),
            (first, last),
            float(guess),
            value,
            is_paid,
            before,
            self.histogram,
            self.spent,
        )
        self.steps.append(step)
        return step

    def _learn(self, query: Array, lack: float) -> None:
        """Cells that the question counts lose or win, by how much the estimate was off."""
        strength = max(-1.0, min(1.0, 4 * lack / self.total))
        self.experts.learn(-strength * query)

    def error(self) -> float:
        """How far the histogram is from the truth: the records in the wrong cell, as a share."""
        return float(np.abs(self.histogram - COUNTS).sum()) / 2 / self.total

    def histogram_figure(self) -> str:
        """The estimate as bars, the truth as outlines, the question's cells marked."""
        plot = Plot(Axis("age", 0, len(CELLS), is_bare=True), Axis("records", 0, 360))
        step = self.steps[-1] if self.steps else None
        bars = self.histogram
        for i, name in enumerate(CELLS):
            is_asked = step is not None and step.cells[0] <= i <= step.cells[1]
            plot.bar((i + 0.14, i + 0.86), (0, float(bars[i])), "red" if is_asked else "blue")
            plot.bar((i + 0.08, i + 0.92), (0, COUNTS[i]), "grey", "outline")
            plot.say((i + 0.5, 0), name, up=-17)
        plot.name("estimate", "blue")
        plot.name("estimate, just asked for", "red")
        plot.name("truth", "grey", "outline")
        return plot.svg(
            "Estimated records per age: "
            + ", ".join(
                f"{n} {b:.0f} (truth {c})" for n, b, c in zip(CELLS, bars, COUNTS, strict=True)
            )
        )

    def progress_figure(self) -> str:
        """Error and budget, question by question."""
        start = float(np.abs(np.full(len(CELLS), self.total / len(CELLS)) - COUNTS).sum())
        errors = [(0.0, start / 2 / self.total)]
        for i, step in enumerate(self.steps):
            off = float(np.abs(step.after - COUNTS).sum()) / 2 / self.total
            errors.append((i + 1.0, off))
        plot = Plot(
            Axis("questions asked", 0, len(QUESTIONS)),
            Axis("records in the wrong cell", 0, 0.5, is_share=True),
        )
        plot.line(errors, "blue", "estimate")
        plot.dots(errors[:1], "grey", size=4)
        points = list(zip(errors[1:], self.steps, strict=True))
        plot.dots([e for e, s in points if s.is_paid], "red", size=4, name="paid")
        plot.dots([e for e, s in points if not s.is_paid], "blue", size=4, name="free")
        return plot.svg(
            f"After {len(self.steps)} questions {100 * errors[-1][1]:.0f}% of the records are in "
            f"the wrong cell, {100 * errors[0][1]:.0f}% at the start"
        )

    def notices(self) -> list[str]:
        """What there is to see at this point."""
        if not self.steps:
            return ["At the start nothing is known: all ages have the same weight."]
        step, paid = self.steps[-1], sum(s.is_paid for s in self.steps)
        if step.is_paid:
            moved = "up" if step.value > step.estimate else "down"
            outcome = (
                f"The estimate {number(step.estimate)} was found too far off. The noisy answer "
                f"{number(step.value)} was paid for, and the weights of the red cells went {moved}."
            )
        else:
            outcome = (
                f"The estimate {number(step.estimate)} was found near enough: it is the answer, "
                "and neither the budget nor the histogram changes."
            )
        return [
            outcome,
            f"{paid} of {len(self.steps)} answers were paid for; {number(float(self.spent))} of "
            "epsilon is spent. Answers that are right cost nothing, however many there are.",
            f"{number(100 * self.error())}% of the records are in the wrong cell. The weights "
            f"always sum to the {self.total:,} records.",
            f"Hedge promises a regret of at most {number(self.bound())}; so far it is "
            f"{number(self.regret())}.",
        ]

    def regret(self) -> float:
        """What the shares lost more than the true histogram would have."""
        return self.experts.regret(np.array(COUNTS) / self.total)

    def bound(self) -> float:
        """The most that the regret can be, by the theorem of ``Hedge``."""
        return self.experts.regret_bound(np.array(COUNTS) / self.total)


def _between(first: int, last: int) -> str:
    low = CELLS[first].split("-")[0]
    high = CELLS[last].split("-")[-1]
    return f"How many are {low} to {high}?" if high != "70+" else f"How many are {low} or older?"
