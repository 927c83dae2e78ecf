# SPDX-License-Identifier: Apache-2.0
"""Many questions about one table: three ways to count, a sparse vector, multiplicative weights.

Ideas of Y.-X. Wang, lecture notes "Sparse vector technique and linear query release".

`three_ways`: Laplace noise on the queries, on the contingency table, or at the source. ``queries``
counting questions on ``cells`` cells, each about half of them, all of them about the first cell:
the worst case, in which one record moves every answer. Errors are root mean squares, as shares of
the records; those of the two central ways are exact, that of randomized response is for the worst
data set.

`Weights`: a public histogram that learns from its mistakes, question by question. Each question is
tested against the estimate by a sparse vector. If the estimate is near, it is the answer and costs
nothing; if not, a noisy answer is paid for, and the weights of the cells that the question counts
are multiplied up or down. M. Hardt, G. Rothblum 2010, "A multiplicative weights mechanism for
privacy-preserving data analysis". Sessions do the same with all paid answers at once
(docs/mechanisms/online.md).

`watch_stream`: a sparse vector on a stream, many tests against a threshold, paid for by those above
only. A made-up count per day, and the question whether it is above a threshold. The noise of the
threshold is drawn once and kept; every count gets noise of its own for its test. Lyu, Su, Li 2017,
"Understanding the sparse vector technique for differential privacy", Algorithm 1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt, sqrt
from typing import Final

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.planning.sparse_plans import alarm_probability, noise_of, sparse_of_epsilon
from sfumato.privacy.sparse_vector import SparseLaw, noise_cost
from sfumato.random import Draws, WordSource, system_words
from sfumato.study.experts import Experts
from sfumato.study.local_model import RandomizedResponse, estimate_reports, forecast_rmse
from sfumato.types import Array, Integers
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.noise import discrete_laplace
from sfumato.vault.mechanisms.sparse import SparseVector, answer
from sfumato.workload.build import explicit
from sfumato.workload.workload import Workload
from sfumato_web.learn.drawing import Axis, Hue, Plot, Point, number

__all__ = [
    "CELLS",
    "COUNTS",
    "DAYS",
    "LINES",
    "QUESTIONS",
    "WAYS",
    "Step",
    "Stream",
    "ThreeWays",
    "Weights",
    "counts",
    "three_ways",
    "watch_stream",
]

WAYS: Final = ("Laplace on the queries", "contingency table", "randomized response")
HUES: Final[dict[str, Hue]] = dict(zip(WAYS, ("red", "blue", "gold"), strict=True))
LINES: Final = 25  # points of a line
FEWEST, MOST = 10, 10**6  # records
MOST_QUERIES = 10**4
GRID: Final = 2**10  # steps of noise to a count: what is left of the grid is not seen
TRIED_QUERIES = 64  # that are written out for a run
TRIED_RECORDS: Final = (30, 300, 3_000, 30_000)


@dataclass(frozen=True, slots=True)
class ThreeWays:
    """A setting, and what each way makes of it."""

    epsilon: Fraction
    cells: int
    queries: int
    records: int

    def rmse(self, way: str, *, queries: int | None = None, records: int | None = None) -> float:
        """The root mean square error in counts; elsewhere, if another number is given."""
        k, n = queries or self.queries, records or self.records
        if way == WAYS[0]:  # one record is in all k queries
            return sqrt(2) * k / float(self.epsilon)
        if way == WAYS[1]:  # one record is in one cell, a query sums half of them
            return sqrt(self.cells) / float(self.epsilon)
        return float(forecast_rmse(self._response(), self.matrix(1), n)[0])

    def share(self, way: str, *, queries: int | None = None, records: int | None = None) -> float:
        """The same as a share of the records."""
        n = records or self.records
        return self.rmse(way, queries=queries, records=n) / n

    def best(self) -> str:
        """The way with the least error."""
        return min(WAYS, key=self.rmse)

    def queries_where_the_table_wins(self) -> int:
        """The least number of queries from which the table errs less than noise on the queries."""
        return isqrt(self.cells // 2) + 1  # sqrt(2) k > sqrt(cells)

    def records_where_it_wins(self, way: str) -> int:
        """The least number of records from which a central way beats randomized response.

        Its error in counts stays the same, that of randomized response grows with sqrt(n).
        """
        return max(1, ceil((self.rmse(way) / self.rmse(WAYS[2], records=1)) ** 2))

    def matrix(self, queries: int) -> Integers:
        """So many queries as rows of 0 and 1: the first cell and half of the others' number."""
        out = np.zeros((queries, self.cells), dtype=np.int64)
        out[:, 0] = 1
        draws = Draws(f"three ways {self.cells}")
        for row in out:
            order = 1 + np.argsort(draws.uniforms(self.cells - 1), kind="stable")
            row[order[: self.cells // 2 - 1]] = 1
        return out

    def workload(self) -> Workload:
        """The queries for a plan."""
        cells = Domain({"cell": self.cells})
        return explicit(cells, ["cell"], self.matrix(self.queries))

    def tried(self, records: int, source: WordSource | None = None) -> dict[str, float]:
        """The errors of one run on made-up records, as shares: exact counts, then the noise."""
        source = system_words() if source is None else source
        k = min(self.queries, TRIED_QUERIES)
        queries = self.matrix(k)
        shares = np.asarray(1.0 / (1.0 + np.arange(self.cells)), dtype=np.float64)
        counts = Draws(f"records {records} {self.cells}").counts(shares, records)
        truth = queries @ counts
        on_queries = discrete_laplace(GRID * self.queries / self.epsilon, k, source) / GRID
        on_cells = discrete_laplace(GRID / self.epsilon, self.cells, source) / GRID
        reports = self._response().encode(np.repeat(np.arange(self.cells), counts), source)
        local = queries @ estimate_reports(self._response(), reports).counts
        off = (on_queries, queries @ on_cells, local - truth)
        return {way: _rms(errors) / records for way, errors in zip(WAYS, off, strict=True)}

    def against_records(self, source: WordSource | None = None) -> str:
        """Error against n, with the points of one run on made-up data."""
        sizes = np.geomspace(FEWEST, MOST, LINES)
        plot = Plot(
            Axis("records n", FEWEST, MOST, is_log=True),
            Axis("error, as a share of the records", 1e-6, 1e3, is_log=True, is_share=True),
        )
        for way in WAYS:
            line = [(float(n), self.share(way, records=round(n))) for n in sizes]
            plot.line(line, HUES[way], way)
        for n in TRIED_RECORDS:
            for way, error in self.tried(n, source).items():
                plot.dots([(n, error)], HUES[way])
        plot.rule(y=1.0, name="all of the records: the answer says nothing")
        cross = self.records_where_it_wins(WAYS[0])
        if FEWEST < cross < MOST:
            plot.dots([(cross, self.share(WAYS[0], records=cross))], "grey", size=6, look="hollow")
        return plot.svg(
            f"Error of {self.queries:,} queries against the number of records, for three ways to "
            f"count; Laplace on the queries and randomized response cross at {cross:,} records"
        )

    def against_queries(self) -> str:
        """Error against k at this number of records."""
        ks = sorted({round(k) for k in np.geomspace(1, MOST_QUERIES, LINES)})
        lines = {way: [(k, self.share(way, queries=k)) for k in ks] for way in WAYS}
        errors = [error for line in lines.values() for _, error in line]
        plot = Plot(
            Axis("queries k", 1, MOST_QUERIES, is_log=True),
            Axis(
                "error, as a share of the records",
                10.0 ** np.floor(np.log10(min(errors))),
                10.0 ** np.ceil(np.log10(max(errors))),
                is_log=True,
                is_share=True,
            ),
        )
        for way in WAYS:
            plot.line(lines[way], HUES[way], way)
        cross = self.queries_where_the_table_wins()
        plot.dots([(cross, self.share(WAYS[0], queries=cross))], "grey", size=6, look="hollow")
        plot.rule(x=self.queries, name=f"k = {self.queries:,}")
        return plot.svg(
            f"Error on {self.records:,} records against the number of queries, for three ways to "
            f"count; from {cross:,} queries on the table errs less than noise on the queries"
        )

    def notices(self) -> list[str]:
        """What there is to see, with the numbers of this setting."""
        table = self.queries_where_the_table_wins()
        local, few = (self.records_where_it_wins(way) for way in WAYS[:2])
        against_table = f"the table only below {few:,}" if few > 2 else "never the table"
        return [
            f"From {table:,} queries on, noise on the {self.cells} cells of the table is better "
            "than noise on the queries: the table is paid for once, however many queries are "
            "summed from it. About the square root of half the cells, at any epsilon.",
            f"Randomized response trusts nobody, and its error falls only with the square root of "
            f"n. It beats Laplace on {self.queries:,} queries below {number(local)} records "
            f"(the ring), and {against_table}.",
            "Doubling epsilon halves the error of the first two; twice the records do so, too.",
            f"The least error here: {self.best()}, {100 * self.share(self.best()):.3g}% of "
            f"{self.records:,} records.",
        ]

    def _response(self) -> RandomizedResponse:
        return RandomizedResponse(self.epsilon, self.cells)


def three_ways(epsilon: float, attributes: int, queries: int, records: int) -> ThreeWays:
    """A setting: so many yes/no attributes, hence ``2^attributes`` cells."""
    exact = Fraction(epsilon).limit_denominator(1000)
    return ThreeWays(exact, 2**attributes, queries, records)


def _rms(errors: Array | Integers) -> float:
    return float(np.sqrt(np.mean(np.square(errors.astype(np.float64)))))


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


DAYS: Final = 60
USUAL: Final = 40.0
OUTBREAKS: Final = {14: 45, 15: 30, 31: 60, 44: 25, 45: 70, 46: 40, 57: 55}  # made up, on top
HIGHEST = 140.0


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
        plot = Plot(Axis("day", 0, DAYS), Axis("count", 0, HIGHEST))
        days = list(enumerate(counts()))
        tested = len(self.tests)
        if tested < DAYS:
            plot.bar((tested - 0.5, DAYS), (0, HIGHEST), "grey", "area")
            plot.say((DAYS, HIGHEST * 0.93), "not tested any more", anchor="end", up=0)
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
