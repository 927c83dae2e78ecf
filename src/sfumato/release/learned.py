# SPDX-License-Identifier: Apache-2.0
"""`LearnedEstimates`: answers of an adaptive release, from the transcript of its rounds.

All answers come from one distribution, so they agree with each other, counts are never negative and
tables add up. They are estimates: an answer that a measured step tells has an interval, from the
noise of that step (``refine/learn.py``); one that was not measured is as good as the
model, which no interval can promise, so it has none (not-a-number).

What is derived from several answers has an interval where one is proved, for a share of the misses
that depends on the question alone, never on what was measured (docs/proofs/adaptive.md, Theorem 7):

* Measured tables tell every query about their attributes: ranges, running totals and combinations
  of groups are told as single queries.
* Measured queries tell sums and differences of themselves: every part in its own interval, misses
  added up (Bonferroni). So do combinations of groups that no one table holds.
* A mean lies among the quotients of sum and count over the box of both intervals.

Everything here is public: the transcript is all that left the vault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, nan, sqrt
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.measurement import Transcript
from sfumato.planning.adaptive_costs import asked_domain
from sfumato.planning.forecast import ALL, Coefficients, read
from sfumato.refine.consistency import Refined
from sfumato.refine.intervals import Bounds, TranscriptInterval, TranscriptIntervals, sure_bounds
from sfumato.refine.learn import (
    Boosted,
    ConstrainedRows,
    Hedge,
    Learner,
    MaximumEntropy,
    constrained_rows,
    replay_queries,
    replay_samples,
    replay_tables,
)
from sfumato.refine.synthesize import Synthetic, draw_records
from sfumato.release.answers import rows_along, running_totals
from sfumato.release.estimates import Band, Combination, Derived, Further, MeasuredBlock
from sfumato.release.provenance import Promised, adaptive_provenance, constraints_record
from sfumato.release.ratios import boxed, published_ends, quotient_range
from sfumato.release.release import Release
from sfumato.release.release_limits import LIMITS
from sfumato.text import shown
from sfumato.types import Array, Integers
from sfumato.workload.constraints import Constraints
from sfumato.workload.queries import Identity, QuerySet, Total
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Ratio, SecondMoment, Workload

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from sfumato.domain.attributes import Attribute
    from sfumato.domain.domain import Domain
    from sfumato.ledger.entries import Entry
    from sfumato.random import WordSource

__all__ = ["AdaptivePromise", "LearnedEstimates", "Model", "adaptive_release"]


STEPS_TELL = "the noise of the steps that tell it"
PARTS_TELL = "the intervals of its answers, misses added up (Bonferroni)"
BOTH_TELL = "the noise of the steps that tell it, and the intervals of its answers (Bonferroni)"

Model = Learner | Hedge | Boosted


class Distribution(Protocol):
    """A distribution over cells, seen through its tables."""

    @property
    def domain(self) -> Domain:
        """The attributes it is over."""
        ...

    @property
    def total(self) -> float:
        """The number of records."""
        ...

    def table(self, names: tuple[str, ...]) -> Array:
        """The estimated counts over some attributes."""
        ...


@dataclass(frozen=True, eq=False)
class LearnedEstimates:
    """Answers from a model that was measured where it was worst.

    ``places`` says what each step of the transcript measured; ``cells`` are rows of attribute
    codes, in the order of ``estimate.domain``, and ``weights`` their shares, with sum 1.
    """

    numbers: ClassVar[tuple[str, ...]] = ("value", "low", "high")
    forecast: ClassVar[None] = None

    workload: Workload
    estimate: Distribution
    places: tuple[str, ...]
    cells: Integers
    weights: Array
    intervals: TranscriptIntervals
    constraints: Constraints | None = None

    @property
    def transcript(self) -> Transcript:
        """All that left the vault."""
        return self.intervals.transcript

    @property
    def rows(self) -> int | None:
        """The number of records where it is public."""
        return self.transcript.rows

    @property
    def total(self) -> float:
        """The number of records of the estimate."""
        return self.estimate.total

    @cached_property
    def refined(self) -> Refined:
        """The cells of the estimate and their shares."""
        answers = tuple(self.group(t).value() for t in range(len(self.workload.terms)))
        codes = np.asarray(self.cells, dtype=np.int64)
        return Refined(answers, self.estimate.domain.names, codes, self.weights, "adaptive", inf)

    def bounds(self, term: Term) -> Bounds:
        """What the answers of a group can be."""
        return sure_bounds(term, self.rows, self.constraints)

    def group(self, term: int) -> LearnedAnswers:
        """The answers of a group."""
        return LearnedAnswers(self, term)

    def interval_count(self, term: int) -> int:
        """How many answers of a group are told, or sure."""
        return int(np.isfinite(self.group(term).interval(LIMITS.level)[0]).sum())

    def means(self, ratio: Ratio, level: float) -> Derived:
        """The means of the estimate, NaN where it has no record, and the box of both intervals."""
        over, under = (self.group(t).value() for t in (ratio.numerator, ratio.denominator))
        quotient: Array = np.full(under.shape, np.nan)
        np.divide(over, under, out=quotient, where=under > 0)
        mean = ratio.offset + ratio.scale * quotient
        terms = self.workload.terms
        bounds = quotient_range(terms[ratio.numerator], terms[ratio.denominator])
        low, high = published_ends(ratio, bounds, boxed(self, ratio, level), mean)
        total = ratio.scale * over + ratio.offset * under
        columns = {"sum": total, "count": under, ratio.column: mean}
        return Derived(columns, mean, np.full(mean.shape, np.nan), low, high)

    def second_moments(self, moment: SecondMoment, level: float) -> Derived:
        """Refused: what learns from tables of cells is not asked for them (`workload/bins.py`)."""
        raise WorkloadError(
            f"{moment.name!r} has no interval at {level} here: it is released with sf.plan only"
        )

    def further(self, target: Product, level: float) -> Further | None:
        """Any query about the attributes of the estimate; an interval where steps tell it."""
        if not set(target.attributes) <= set(self.estimate.domain.names):
            return None
        bounds = self.bounds(target)
        value = self._clamped(target.answer(self.table(target.attributes)), bounds)
        if self.intervals.method == "tables":
            work = Workload(self.workload.domain, (target,))
            interval = replace(self.intervals, workload=work).interval(0, level)
        else:
            interval = self._from_parts(target, level)
        ends = _sure(interval, bounds, value)
        columns = dict(zip(self.numbers, (value, *ends), strict=True))
        return Further(columns, "the estimate; intervals where what was measured tells them")

    def _clamped(self, values: Array, bounds: Bounds) -> Array:
        return values if self.constraints is None else bounds.clamp(values)

    def _from_parts(self, target: Product, level: float) -> TranscriptInterval:
        """Sums of released answers, each in its own interval; every group that has them helps."""
        low, high = np.full(target.rows, -np.inf), np.full(target.rows, np.inf)
        groups = [
            (t, parts)
            for t, term in enumerate(self.workload.terms)
            if (product := term.as_product()) is not None
            and (parts := _parts_of(target, product)) is not None
        ]
        is_told = np.zeros(target.rows, dtype=bool)
        for t, parts in groups:
            numbers = np.diff(parts.indptr)
            for number in np.unique(numbers).tolist():
                here = np.flatnonzero(numbers == number)
                share = (1 - level) / (len(groups) * max(number, 1))
                ends = self.group(t).interval(1 - share)
                lowest, highest = _summed(parts[here], *ends)
                has = ~np.isnan(lowest)
                is_told[here] |= has
                low[here] = np.where(has, np.maximum(low[here], lowest), low[here])
                high[here] = np.where(has, np.minimum(high[here], highest), high[here])
        low, high = np.minimum(low, high), np.maximum(low, high)  # where groups exclude each other
        low, high = np.where(is_told, low, np.nan), np.where(is_told, high, np.nan)
        return TranscriptInterval((low + high) / 2, low, high)

    def band(self, attribute: Attribute, by: Sequence[str], level: float) -> Band | None:
        """Running totals of the estimate; where no step tells them, all that is sure.

        Where single queries were measured, some totals are told only. All of them are enclosed
        together, each for an equal share, so that those between may use that totals rise.
        """
        domain, last = self.workload.domain, attribute.value_count
        holds_all = attribute.size == last
        each = level if self.rows is not None and holds_all and not by else (1 + level) / 2
        together = 1 if self.intervals.method == "tables" else last
        target = running_totals(domain, attribute.name, by)
        totals = self.further(target, 1 - (1 - each) / together)
        if totals is None:
            return None
        curve, low, high = (
            rows_along(target, attribute.name, totals.columns[name])[:, :last]
            for name in self.numbers
        )
        low, high = np.nan_to_num(low, nan=0.0), np.nan_to_num(high, nan=inf, posinf=inf)
        if together > 1:
            low = np.maximum.accumulate(low, axis=1)
            high = np.minimum.accumulate(high[:, ::-1], axis=1)[:, ::-1]
        minimum, maximum = low[:, -1:], high[:, -1:]
        if holds_all:
            factors = tuple((n, Identity(domain[n].size)) for n in by)
            number = self.further(Product(domain, "records", 1.0, factors), each)
            assert number is not None  # noqa: S101  the estimate is over these attributes
            minimum = np.nan_to_num(number.columns["low"], nan=0.0)[:, None]
            maximum = np.nan_to_num(number.columns["high"], nan=inf, posinf=inf)[:, None]
        rising = np.maximum.accumulate(np.maximum(curve, 0.0), axis=1)
        return Band(low, high, minimum, maximum, rising)

    def combine(self, coefficients: Mapping[str, Coefficients], level: float) -> Combination:
        """The combination of the estimated answers; told as one query, or from all its answers."""
        by_group = {t: c for t, c in read(self.workload, coefficients).items() if c.any()}
        value = sum(float(c @ self.group(t).value()) for t, c in by_group.items())
        sets = [set(self.workload.terms[t].attributes) for t in by_group]
        one = any(s >= set().union(*sets) for s in sets)  # one group sees all that they see
        ways = {"tables": 1 if one else 2}.get(self.intervals.method, 1)
        low, high, basis = -inf, inf, []
        if self.intervals.method == "tables":
            told_interval = self.intervals.combination(by_group, 1 - (1 - level) / ways)
            if not np.isnan(told_interval.low[0]):
                low, high = float(told_interval.low[0]), float(told_interval.high[0])
                basis.append(STEPS_TELL)
        if ways == 2 or self.intervals.method != "tables":
            number = sum(int(np.count_nonzero(c)) for c in by_group.values())
            share = (1 - level) / (ways * max(number, 1))
            ends = [self._part(t, c, 1 - share) for t, c in by_group.items()]
            first, last = sum(e[0] for e in ends), sum(e[1] for e in ends)
            if not np.isnan(first):
                low, high = max(low, first), min(high, last)
                basis.append(PARTS_TELL)
        if not basis:
            return Combination(value, nan, nan, nan, "nothing that was measured tells it")
        low, high = min(low, high, value), max(low, high, value)
        return Combination(value, nan, low, high, basis[0] if len(basis) == 1 else BOTH_TELL)

    def _part(self, term: int, c: Array, level: float) -> tuple[float, float]:
        """The ends of what one group gives to a combination."""
        at = np.flatnonzero(c)
        low, high = (end[at] for end in self.group(term).interval(level))
        first, last = np.minimum(c[at] * low, c[at] * high), np.maximum(c[at] * low, c[at] * high)
        return float(first.sum()), float(last.sum())

    def covariance(self, group: str, queries: Sequence[int]) -> Array:
        """Refused: errors of a learned estimate depend on the data."""
        raise WorkloadError(
            f"the answers of {shown(group)} were learned, so the covariances of their errors "
            f"depend on the data and are not known (asked for {shown(queries)}); combine(...) has "
            "intervals of what measurements tell"
        )

    def table(self, names: Sequence[str]) -> Array:
        """Estimated counts over these attributes, axes in the order of the domain."""
        attributes = self.estimate.domain.names
        for name in names:
            if name not in attributes:
                raise WorkloadError(
                    f"the release knows {', '.join(attributes)}; it was not asked about "
                    f"{shown(name)}"
                )
        chosen = tuple(n for n in attributes if n in names)
        cells = self.estimate.domain.cells(chosen)
        if cells > LIMITS.learned_table_cells:
            raise TooLarge(
                f"a table of {cells:,} cells takes {8 * cells:,} bytes; at most "
                f"{LIMITS.learned_table_cells:,} cells are made: ask for fewer attributes, or draw "
                "records with synthetic()"
            )
        return self.estimate.table(chosen)

    def listed(self) -> LearnedEstimates:
        """This itself: plans refuse queries that are too many to be listed."""
        return self

    def reduced(self) -> LearnedEstimates:
        """With the rows of the model alone, which is all that is asked of it from here on."""
        weights = self.weights * self.estimate.total
        rows = ConstrainedRows(self.estimate.domain, self.cells.T, weights, True)
        return replace(self, estimate=rows)

    def restored(self) -> LearnedEstimates:
        """These estimates."""
        return self

    def draw(self, rows: int | None, random: WordSource) -> Synthetic:
        """Records from the cells of the estimate."""
        number = max(1, round(self.total)) if rows is None else rows
        counted = replace(self.refined, weights=self.weights * self.total)
        drawn = draw_records(self.workload, counted, number, random, self.constraints)
        if drawn is None:
            raise WorkloadError("the estimate holds no record, so none can be drawn")
        return drawn

    def blocks(self) -> Iterator[MeasuredBlock]:
        """The steps of the transcript."""
        for place, step in zip(self.places, self.transcript.steps, strict=True):
            yield place, step.measurement.units.size, sqrt(step.measurement.noise.variance)


@dataclass(frozen=True, eq=False)
class LearnedAnswers:
    """The answers of one group, each level of intervals made once."""

    estimates: LearnedEstimates
    term: int
    _made: dict[float, tuple[Array, Array]] = field(default_factory=dict)

    @cached_property
    def _bounds(self) -> Bounds:
        return self.estimates.bounds(self.estimates.workload.terms[self.term])

    @cached_property
    def _value(self) -> Array:
        term, estimates = self.estimates.workload.terms[self.term], self.estimates
        values = term.answer(estimates.estimate.table(term.attributes))
        return values if estimates.constraints is None else self._bounds.clamp(values)

    def value(self, rows: slice = ALL) -> Array:
        """The answers of the estimate."""
        return self._value[rows]

    def interval(self, level: float, rows: slice = ALL) -> tuple[Array, Array]:
        """Ends from the noise of the steps that tell an answer."""
        if level not in self._made:
            interval = self.estimates.intervals.interval(self.term, level)
            self._made[level] = _sure(interval, self._bounds, self._value)
        low, high = self._made[level]
        return low[rows], high[rows]

    def numbers(self, level: float, rows: slice = ALL) -> tuple[Array, ...]:
        """Value, low and high."""
        return self.value(rows), *self.interval(level, rows)


def _sure(interval: TranscriptInterval, bounds: Bounds, value: Array) -> tuple[Array, Array]:
    """Intervals cut to what is possible, and of what is published or impossible."""
    is_sure = np.isnan(interval.centre) & (bounds.low == bounds.high)
    centre, low, high = (
        np.where(is_sure, bounds.low, end) for end in (interval.centre, interval.low, interval.high)
    )
    return bounds.interval(low, high, centre, value)


def _summed(parts: csr_matrix, low: Array, high: Array) -> tuple[Array, Array]:
    """The extremes of sums of answers between their ends; NaN where a part has no ends."""
    plus, minus = parts.maximum(0), parts.minimum(0)
    return plus @ low + minus @ high, plus @ high + minus @ low


def _parts_of(target: Product, term: Product) -> csr_matrix | None:
    """Coefficients of a group's answers that give those of the target; None if none do."""
    from scipy.sparse import csr_matrix, kron

    above, below = dict(target.factors), dict(term.factors)
    out = csr_matrix(np.ones((1, 1)))
    for name in target.domain.in_order({*above, *below}):
        whole = Total(target.domain[name].size)
        part = _along(above.get(name, whole), below.get(name, whole))
        if part is None or out.nnz * part.nnz > LIMITS.summed_answers:
            return None
        out = csr_matrix(kron(out, part))
    return out


def _along(queries: QuerySet, released: QuerySet) -> csr_matrix | None:
    """Intervals of cells as released ones, differences of two of them, or sums of single cells."""
    from scipy.sparse import csr_matrix

    if max(queries.rows, released.rows) > LIMITS.summed_answers:
        return None
    spans, released_spans = queries.intervals(), released.intervals()
    if spans is None or released_spans is None:
        return None
    place = {
        span: i for i, span in enumerate(zip(*(e.tolist() for e in released_spans), strict=True))
    }
    parts: list[tuple[int, int, float]] = []
    for row, (start, end) in enumerate(zip(*(e.tolist() for e in spans), strict=True)):
        if (start, end) in place:
            parts.append((row, place[start, end], 1.0))
        elif (0, start) in place and (0, end) in place:
            parts += [(row, place[0, end], 1.0), (row, place[0, start], -1.0)]
        elif all((i, i + 1) in place for i in range(start, end)):
            parts += [(row, place[i, i + 1], 1.0) for i in range(start, end)]
        else:
            return None
        if len(parts) > LIMITS.summed_answers:
            return None
    rows, places, signs = zip(*parts, strict=True)
    return csr_matrix((signs, (rows, places)), shape=(queries.rows, released.rows))


class AdaptivePromise(Promised, Protocol):
    """What an adaptive plan says beside its promise."""

    @property
    def method(self) -> str:
        """What is measured: "tables", or single queries by "mwem" or "boosting"."""
        ...

    @property
    def mechanism(self) -> str:
        """The method, as the ledger and the record call it."""
        ...

    @property
    def rounds(self) -> int:
        """How often it may choose."""
        ...

    @property
    def domain(self) -> Domain:
        """The attributes that the estimate is over."""
        ...


def adaptive_release(
    plan: AdaptivePromise,
    transcript: Transcript,
    estimate: Model | None,
    entry: Entry | None,
    constraints: Constraints | None = None,
    *,
    is_stored: bool = False,
) -> Release:
    """Return what the estimate publishes: that of the rounds, or the same learnt once more."""
    model = _estimated(plan, transcript, estimate, constraints)
    cells, weights = _cells(plan, model)
    distribution: Distribution = model
    are_met = True
    if constraints is not None:
        domain = asked_domain(plan.workload)
        cells = cells[:, [plan.domain.index(name) for name in domain.names]]
        distribution = rows = constrained_rows(constraints, domain, cells, weights, model.total)
        cells, weights, are_met = rows.codes.T, rows.weights / rows.total, rows.are_met
    places = tuple(_place(plan, step.place) for step in transcript.steps)
    blocks = [
        (name, _attributes(plan, s.place), s.measurement.units.size, s.measurement.noise)
        for name, s in zip(places, transcript.steps, strict=True)
    ]
    record = adaptive_provenance(
        plan,
        plan.mechanism,
        plan.rounds,
        blocks,
        rows=transcript.rows,
        constraints=constraints_record(constraints, are_met),
        entry=entry,
    )
    intervals = TranscriptIntervals(plan.workload, plan.method, plan.domain, transcript)
    estimates = LearnedEstimates(
        plan.workload, distribution, places, cells, weights, intervals, constraints
    )
    return Release(estimates, record, plan.budget, plan.cost, is_stored, entry)


def _estimated(
    plan: AdaptivePromise,
    transcript: Transcript,
    estimate: Model | None,
    constraints: Constraints | None,
) -> MaximumEntropy | Hedge | Boosted:
    if plan.method == "tables":
        learner = estimate if isinstance(estimate, Learner) else None
        if learner is None:
            begun = Learner(plan.domain, transcript.rows, constraints)
            learner = replay_tables(begun, transcript)
        return learner.finish()
    if isinstance(estimate, Hedge | Boosted):
        return estimate
    if plan.method == "mwem":
        return replay_queries(plan.workload, transcript, constraints)
    return replay_samples(plan.workload, transcript, constraints)


def _cells(
    plan: AdaptivePromise, model: MaximumEntropy | Hedge | Boosted
) -> tuple[Integers, Array]:
    """Rows of the estimate and their weights, with sum 1."""
    if isinstance(model, MaximumEntropy):
        return model.codes, model.weights
    cells = np.stack(np.unravel_index(np.arange(plan.domain.size), plan.domain.shape), 1)
    return cells, model.histogram.ravel() / model.total


def _attributes(plan: AdaptivePromise, place: tuple[int, ...]) -> tuple[str, ...]:
    """What a step looked at."""
    if plan.method == "tables":
        return tuple(plan.domain.names[i] for i in place)
    terms = plan.workload.terms
    if plan.method == "mwem":
        return terms[place[0]].attributes if place else ()
    ends = np.cumsum([t.rows for t in terms])
    groups = set(np.searchsorted(ends, place, side="right").tolist())
    return plan.domain.in_order({name for g in groups for name in terms[g].attributes})


def _place(plan: AdaptivePromise, place: tuple[int, ...]) -> str:
    """What a step measured, in words."""
    if plan.method == "tables":
        return " x ".join(plan.domain.names[i] for i in place)
    if not place:
        return "number of records"
    if plan.method == "boosting":
        return f"{len(place)} sampled queries"
    return f"{plan.workload.terms[place[0]].name}, query {place[1]}"
