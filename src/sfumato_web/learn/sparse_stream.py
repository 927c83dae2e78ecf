# SPDX-License-Identifier: Apache-2.0
"""Sparse vector on a stream: many tests against a threshold, paid for by those above only.

A made-up count per day, and the question whether it is above a threshold. The noise of the
threshold is drawn once and kept; every count gets noise of its own for its test. Lyu, Su, Li 2017,
"Understanding the sparse vector technique for differential privacy", Algorithm 1; Y.-X. Wang,
lecture notes "Sparse vector technique and linear query release".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sfumato.planning.sparse_plans import alarm_probability, sparse_of_epsilon
from sfumato.privacy.sparse_vector import SparseLaw
from sfumato.random import WordSource
from sfumato.refine.draws import Draws
from sfumato.vault.sensitive import Sensitive
from sfumato.vault.sparse import SparseVector
from sfumato_web.learn.drawing import Axis, Plot, Point, number

__all__ = [
    "DAYS",
    "Stream",
    "counts",
    "watch_stream",
]


DAYS: Final = 60
USUAL: Final = 40.0
OUTBREAKS: Final = {14: 45, 15: 30, 31: 60, 44: 25, 45: 70, 46: 40, 57: 55}  # made up, on top
MOST = 140.0


def counts() -> tuple[int, ...]:
    """The made-up count of every day."""
    noise = Draws("days of a stream").normals(DAYS)
    usual = [round(USUAL + 7 * float(z)) for z in noise]
    return tuple(max(c + OUTBREAKS.get(day, 0), 0) for day, c in enumerate(usual))


@dataclass(frozen=True, slots=True)
class Stream:
    """One run: whether each tested day was found above; shorter than the stream if it stopped.

    ``shift`` is the noise of the threshold. A mechanism never shows it; here the data are made up.
    """

    law: SparseLaw
    threshold: int
    tests: tuple[bool, ...]
    shift: int

    @property
    def above(self) -> tuple[int, ...]:
        """The days that were found above, counted from 0."""
        return tuple(day for day, is_above in enumerate(self.tests) if is_above)

    def spent(self) -> tuple[Fraction, ...]:
        """The privacy loss up to each day: the threshold's part, and one for each day above."""
        start = self.law.cost.pure_epsilon - self.law.discoveries * self.law.loss
        out, used = [], start
        for is_above in self.tests:
            used += self.law.loss * is_above
            out.append(used)
        return tuple(out)

    def wrong(self) -> int:
        """Days whose finding differs from the truth."""
        pairs = zip(self.tests, counts(), strict=False)
        return sum(is_above != (c >= self.threshold) for is_above, c in pairs)

    def stream_figure(self) -> str:
        """The days, the threshold with and without noise, and what was found."""
        plot = Plot(Axis("day", 0, DAYS), Axis("count", 0, MOST))
        days = list(enumerate(counts()))
        tested = len(self.tests)
        if tested < DAYS:
            plot.bar((tested - 0.5, DAYS), (0, MOST), "grey", "area")
            plot.say((DAYS, MOST * 0.93), "not tested any more", anchor="end", up=0)
        plot.line([(0, self.threshold), (DAYS, self.threshold)], "grey", "threshold")
        noisy = self.threshold + self.shift
        plot.line([(0, noisy), (DAYS, noisy)], "violet", "noisy threshold", "dashed")
        below = [p for p in days if p[0] not in self.above]
        plot.dots(below, "grey", size=2.8, name="below")
        plot.dots([p for p in days if p[0] in self.above], "red", size=5, name="found above")
        return plot.svg(
            f"{tested} of {DAYS} days tested against a threshold of {self.threshold}; found above: "
            f"{', '.join(f'day {d + 1}' for d in self.above) or 'none'}"
        )

    def budget_figure(self) -> str:
        """Privacy loss against the days, beside a noisy answer of the same size every day."""
        total = float(self.law.cost.pure_epsilon)
        plot = Plot(Axis("day", 0, DAYS), Axis("epsilon used", 0, total * 1.15))
        spent: list[Point] = [(d, float(e)) for d, e in enumerate(self.spent())]
        each = float(self.law.loss)
        every = [(0.0, 0.0), (min(total / each, DAYS), min(total, each * DAYS))]
        plot.line(every, "grey", "if every day were paid for", "dashed")
        plot.steps([*spent, (DAYS, spent[-1][1])], "red", "sparse vector")
        plot.rule(y=total, name="the whole budget")
        return plot.svg(
            f"Epsilon used: {number(spent[0][1])} at first, {number(spent[-1][1])} after "
            f"{len(self.above)} discoveries in {len(self.tests)} tests, of {number(total)}"
        )

    def notices(self) -> list[str]:
        """What there is to see, with the numbers of this run."""
        spent = self.spent()
        flat = len(self.tests) - len(self.above)
        usual = alarm_probability(self.law, self.threshold - round(USUAL))
        return [
            f"{flat} of {len(self.tests)} tests were found below and cost nothing; the budget went "
            f"into {len(self.above)} discoveries and the threshold's own noise: "
            f"{number(float(spent[-1]))} of {number(float(self.law.cost.pure_epsilon))} so far.",
            f"After {self.law.discoveries} discoveries it is over, and no further day is tested: "
            "more would need more budget.",
            f"A usual day of {USUAL:.0f} is found above with a chance of {number(100 * usual)}%. "
            f"In this run {self.wrong()} of {len(self.tests)} findings are wrong, by chance: those "
            "near the threshold, or all to one side where the threshold's noise is large.",
            "Only above or below is said. The noisy counts are not shown, and the noisy threshold "
            "is drawn here only because these data are made up.",
        ]


def watch_stream(
    threshold: int, epsilon: float, discoveries: int, source: WordSource | None = None
) -> Stream:
    """Run a sparse vector over the days, as the vault does."""
    exact = Fraction(epsilon).limit_denominator(1000)
    law = sparse_of_epsilon(exact, discoveries, is_monotone=True)
    vector = SparseVector(law, source)
    shift = int(json.loads(vector.state())["noise"])  # made-up data: nothing is given away
    tests = vector.test_many(Sensitive(counts()), [threshold] * DAYS)
    return Stream(law, threshold, tuple(tests), shift)
