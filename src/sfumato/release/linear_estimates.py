# SPDX-License-Identifier: Apache-2.0
"""The numbers of a linear reconstruction: unbiased answers, with intervals from the law of noise.

An answer is ``a = q h + e`` where the law of the error e depends on the plan only. With c the
level-quantile of ``|e|``, the interval ``[a - c, a + c]`` holds the true answer with probability
``level``, whatever the data are. The true answer also lies in the set of possible answers (a count
is a whole number, not negative, nor more than the number of records where that is public; it is 0
where no record can be, and what is published where something is), so cutting both the answer and
its interval to that set moves neither away from the truth: coverage stays. Published answers agree
with each other where there is a projection (``refine/consistency.py``); their errors are
correlated with their values, so intervals are those of the unbiased answers, widened where a
published value would lie outside its own (``refine/intervals.py``).

Further linear queries are answered from what a release already holds. The most precise is taken of

* the queries themselves, if they were released;
* the same queries asked of a measured table, tree or root, or picked from all ranges, with exact
  errors;
* sums of the answers of a released group (``release/answers.py``). Their errors are exact too;
  where too many numbers would have to be followed, standard errors are added up, which is an upper
  bound however they correlate (Minkowski).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.measurement import Measured
from sfumato.planning.forecast import (
    ALL,
    Coefficients,
    Forecast,
    Spread,
    answer_covariance,
    combination_error,
    read,
)
from sfumato.privacy.noise_laws import NoiseTails
from sfumato.refine.consistency import Refined
from sfumato.refine.intervals import Bootstrap, Bounds, Calibrated, sure_bounds
from sfumato.refine.reconstruct import ReleasedTable, reconstruct, released_tables, released_total
from sfumato.refine.synthesize import Synthetic, draw_records, synthesize
from sfumato.release.answers import likely_rollups, rows_along, running_totals
from sfumato.release.estimates import Band, Combination, Derived, Further, MeasuredBlock, cell_table
from sfumato.release.ratios import means_of, second_moments_of
from sfumato.release.release_limits import LIMITS
from sfumato.strategy.base import Strategy
from sfumato.strategy.blockwise import Blockwise, Combined
from sfumato.strategy.measured import Levels
from sfumato.strategy.one_attribute.ordered import Ordered
from sfumato.text import shown
from sfumato.types import Array, Integers
from sfumato.workload.constraints import Constraints
from sfumato.workload.queries import Identity, Intervals, Prefix, Ranges, Total
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Ratio, SecondMoment, Workload, shorter
from sfumato.workload.workload_limits import LIMITS as WORKLOAD_LIMITS

if TYPE_CHECKING:
    from sfumato.domain.attributes import Attribute
    from sfumato.random import WordSource

__all__ = ["LinearEstimates", "Source", "best_source", "half_widths", "widest_quantile"]


_SHAPES = 1 / np.linspace(1e-3, 1, 64)


def half_widths(forecast: Forecast, term: int, level: float) -> Array:
    """Half the width of every interval of a group; never refused, for the answers are paid for.

    Where the exact tails of so many answers do not fit in memory, the widest law that such an
    answer can have takes their place.
    """
    return _GroupLaw.of(forecast, term).half_widths(level)


@dataclass(frozen=True, eq=False)
class _GroupLaw:
    """The law of the errors of a group, or the widest that such answers can have."""

    forecast: Forecast
    spread: Spread
    is_exact: bool

    @classmethod
    def of(cls, forecast: Forecast, term: int) -> _GroupLaw:
        try:
            return cls(forecast, forecast.spread(term), True)
        except TooLarge:
            return cls(forecast, Spread(forecast.variances(term)), False)

    def half_widths(self, level: float, rows: slice = ALL) -> Array:
        if self.is_exact:
            return self.spread.half_widths(level, rows)
        quantile = widest_quantile(self.forecast, level)
        return np.asarray(quantile * self.spread.standard_errors(rows), dtype=np.float64)


def widest_quantile(forecast: Forecast, level: float) -> float:
    """The maximum ``level``-quantile of ``|error|``, in standard errors, of any answer.

    Normal for Gaussian noise. A sum of Laplace draws lies between one draw and the normal law
    (`privacy.noise_laws.NoiseTails`): the maximum over all of these.
    """
    shapes = [np.inf] if forecast.strategy.noise == "gaussian" else [*_SHAPES, np.inf]
    return float(forecast.tails.quantile(np.array(shapes), level).max())


@dataclass(frozen=True, eq=False)
class LinearEstimates:
    """The unbiased answers of every group, and what they say about the truth.

    ``rows`` is the number of records where that is public (``replace-one`` neighbours), ``refined``
    the answers that agree with each other, where there are any, ``constraints`` what all meet.
    With a ``bootstrap`` intervals are approximate, around the published answers. ``laws`` are those
    of the errors of published answers, from which intervals are made where ``is_calibrated``.
    Further queries need what was ``measured``.

    Neighbours: those of the forecast.
    """

    numbers: ClassVar[tuple[str, ...]] = ("value", "standard_error", "low", "high", "unbiased")

    forecast: Forecast
    unbiased: Sequence[Array]
    rows: int | None
    is_projected: bool
    refined: Refined | None = None
    constraints: Constraints | None = None
    bootstrap: Bootstrap | None = None
    measured: Measured | None = None
    laws: Calibrated | None = None
    is_calibrated: bool = False

    @property
    def workload(self) -> Workload:
        """What was asked."""
        return self.forecast.workload

    def bounds(self, term: Term) -> Bounds:
        """What the answers of a group can be."""
        return sure_bounds(term, self.rows, self.constraints)

    def group(self, term: int) -> LinearAnswers:
        """All that is known of a group, to be looked at some rows at a time."""
        unbiased = np.asarray(self.unbiased[term], dtype=np.float64)
        return LinearAnswers(
            self.forecast,
            term,
            unbiased,
            unbiased if self.refined is None else self.refined.answers[term],
            self.bounds(self.forecast.workload.terms[term]) if self.is_projected else None,
            self.bootstrap,
            self.laws if self.is_calibrated else None,
        )

    def value(self, term: int) -> Array:
        """The published answers of a group: those that agree, or unbiased ones, feasible."""
        return self.group(term).value()

    def standard_error(self, term: int) -> Array:
        """The standard deviation of the unbiased answers of a group."""
        return self.forecast.standard_errors(term)

    def interval(self, term: int, level: float) -> tuple[Array, Array]:
        """Ends that enclose each true answer of a group with probability at least ``level``.

        Approximately so, where calibrated or with a bootstrap (``refine/intervals.py``).
        """
        return self.group(term).interval(level)

    @property
    def estimated_error(self) -> float | None:
        """About the root mean square error of published answers; None where nothing tells it.

        By held-out noise (``refine/intervals.py``); groups without a law count with their noise.
        """
        if self.laws is None:
            return None
        pairs = zip(self.laws.laws, self.forecast.groups, strict=True)
        squares = [g.queries * (g.rmse if w is None else w.estimate) ** 2 for w, g in pairs]
        return sqrt(sum(squares) / self.workload.queries)

    def interval_count(self, term: int) -> int:
        """The number of its queries: every answer has an interval."""
        return self.workload.terms[term].rows

    def means(self, ratio: Ratio, level: float) -> Derived:
        """Quotients with intervals from the law of both answers together."""
        return means_of(self, ratio, level)

    def second_moments(self, moment: SecondMoment, level: float) -> Derived:
        """Variances and the like, with intervals from the law of all their answers together."""
        return second_moments_of(self, moment, level)

    def further(self, target: Product, level: float) -> Further | None:
        """The most precise answers to other queries.

        Published values are those of the cells behind all answers, where these agree, so that
        sums of published cells are what is published here; else they are cut to what is feasible.
        """
        source = self._source(target)
        if source is None:
            return None
        half, value = source.half_width(level), source.unbiased
        low, high = value - half, value + half
        if self.is_projected:
            bounds = self.bounds(target)
            value = bounds.clamp(self._agreed(target, value))
            low, high = bounds.interval(low, high, source.unbiased, value)
        columns = (value, source.standard_errors(), low, high, source.unbiased)
        return Further(dict(zip(self.numbers, columns, strict=True)), source.basis)

    def _agreed(self, target: Product, unbiased: Array) -> Array:
        """The answers of the cells behind all published ones, if there are such cells."""
        refined, names = self.refined, target.attributes
        if refined is None or not set(names) <= set(refined.attributes):
            return unbiased
        domain = self.forecast.measured_domain
        if domain.cells(names) > WORKLOAD_LIMITS.array_entries:
            return unbiased
        return target.answer(cell_table(refined, domain, names))

    def band(self, attribute: Attribute, by: Sequence[str], level: float) -> Band | None:
        """The running totals, and the nearest rising curves to them."""
        domain = self.workload.domain
        target = running_totals(domain, attribute.name, by)
        source = self._source(target)
        if source is None:
            return None
        along = partial(rows_along, target, attribute.name)
        totals = Source(
            along(source.unbiased),
            lambda level: along(source.half_width(level)),
            source.rmse,
            lambda: along(source.standard_errors()),
            source.basis,
        )
        number = None
        if attribute.size == attribute.value_count:  # else some records are in no declared cell
            factors = tuple((n, Identity(domain[n].size)) for n in by)
            number = self._source(Product(domain, "records", 1.0, factors))
        holds_all = not by and attribute.size == attribute.value_count
        return _band(totals, number, attribute, self.rows if holds_all else None, level)

    def _source(self, target: Product) -> Source | None:
        if self.measured is None:
            return next(_released(self, target), None)
        return best_source(self, self.measured, target)

    def combine(self, coefficients: Mapping[str, Coefficients], level: float) -> Combination:
        """``c'a`` of the unbiased answers a; what they have in common is counted once."""
        c = read(self.workload, coefficients)
        value = sum(float(numbers @ self.unbiased[term]) for term, numbers in c.items())
        error = combination_error(self.forecast, coefficients)
        half = error.half_width(level)
        return Combination(value, error.standard_error, value - half, value + half)

    def covariance(self, group: str, queries: Sequence[int]) -> Array:
        """The covariance matrix of listed unbiased answers of a group."""
        return answer_covariance(self.forecast, group, queries)

    def table(self, names: Sequence[str]) -> Array:
        """Counts of the cells behind the answers, where these agree."""
        if self.refined is None:
            raise WorkloadError(
                "the answers of this release do not agree with each other, so no table is behind "
                "them; ask for a released one with answers(attribute, by=...)"
            )
        domain = self.forecast.measured_domain
        missing = [n for n in names if n not in self.refined.attributes]
        if missing:
            raise WorkloadError(
                f"the release knows {', '.join(self.refined.attributes)}; it was not asked about "
                f"{shown(missing[0])}"
            )
        chosen = domain.in_order(names)
        if domain.cells(chosen) > WORKLOAD_LIMITS.array_entries:
            raise TooLarge(
                f"a table of {domain.cells(chosen):,} cells is too large to be made; ask for fewer "
                "attributes, or draw records with synthetic()"
            )
        return cell_table(self.refined, domain, chosen)

    @cached_property
    def total(self) -> float:
        """The public number, or an estimate from the answers."""
        if self.constraints is not None and self.constraints.total is not None:
            return self.constraints.total
        if self.rows is None and self.refined is not None:
            return self.refined.total
        return released_total(self._tables, self.rows)

    @cached_property
    def _tables(self) -> list[ReleasedTable]:
        listed = self.listed()
        return released_tables(listed.forecast, listed.unbiased)

    def reduced(self) -> LinearEstimates:
        """Without unbiased answers, which follow from what was measured."""
        return self if self.measured is None else replace(self, unbiased=())

    def restored(self) -> LinearEstimates:
        """With unbiased answers."""
        if self.measured is None:
            return self
        return replace(self, unbiased=reconstruct(self.forecast, self.measured))

    def draw(self, rows: int | None, random: WordSource) -> Synthetic:
        """Records from the table behind answers that agree, else from a tree of tables."""
        how = (round(self.total) if rows is None else rows, random, self.constraints)
        drawn = None if self.refined is None else draw_records(self.workload, self.refined, *how)
        if drawn is None:
            drawn = synthesize(self.workload.domain, self._tables, self.total, *how)
        return drawn

    def blocks(self) -> Iterator[MeasuredBlock]:
        """The measured blocks of the strategy."""
        for block, law in zip(self.forecast.strategy.blocks, self.forecast.noise, strict=True):
            yield block.term.name, block.term.rows, sqrt(law.variance)

    def listed(self) -> LinearEstimates:
        """These estimates with running totals in place of ranges that are too many to be listed."""
        work = self.forecast.workload
        terms = tuple(shorter(t) for t in work.terms)
        if terms == work.terms or self.measured is None:
            return self
        work = replace(work, terms=terms)
        strategy = self.forecast.strategy.asking(work)
        derived = replace(self.forecast, workload=work, strategy=strategy, bound=None)
        unbiased = reconstruct(derived, self.measured)
        return replace(
            self, forecast=derived, unbiased=unbiased, refined=None, bootstrap=None, laws=None
        )


@dataclass(frozen=True, eq=False)
class LinearAnswers:
    """The answers of one group; every method gives those of some rows, by default of all."""

    forecast: Forecast
    term: int
    unbiased: Array
    agreed: Array
    bounds: Bounds | None
    bootstrap: Bootstrap | None
    laws: Calibrated | None = None

    @cached_property
    def _law(self) -> _GroupLaw:
        return _GroupLaw.of(self.forecast, self.term)

    def value(self, rows: slice = ALL) -> Array:
        """The published answers."""
        agreed = np.asarray(self.agreed[rows], dtype=np.float64)
        return agreed if self.bounds is None else self.bounds.at(rows).clamp(agreed)

    def standard_error(self, rows: slice = ALL) -> Array:
        """The standard deviations of the unbiased answers."""
        return self._law.spread.standard_errors(rows)

    def interval(self, level: float, rows: slice = ALL) -> tuple[Array, Array]:
        """The ends of the intervals."""
        value = centre = self.value(rows)
        if self.bootstrap is None:
            low, high = self._of_noise(rows, level)
            centre = self.unbiased[rows]
        else:
            half = self.bootstrap.half_widths(self.term, level)[rows]
            low, high = centre - half, centre + half
        if self.laws is not None:
            proved = partial(self._possible, rows)
            errors = self.standard_error(rows)
            low, high = self.laws.interval(self.term, level, value, errors, proved)
            centre = np.where((low <= value) & (value <= high), value, centre)
        if self.bounds is None:
            return low, high
        return self.bounds.at(rows).interval(low, high, centre, value)

    def _possible(self, rows: slice, level: float) -> tuple[Array, Array]:
        """The interval of the noise, cut to what is sure."""
        ends = self._of_noise(rows, level)
        if self.bounds is None:
            return ends
        bounds = self.bounds.at(rows)
        return bounds.clamp(ends[0]), bounds.clamp(ends[1])

    def _of_noise(self, rows: slice, level: float) -> tuple[Array, Array]:
        """The interval of the noise, uncut."""
        centre, half = self.unbiased[rows], self._law.half_widths(level, rows)
        return centre - half, centre + half

    def numbers(self, level: float, rows: slice = ALL) -> tuple[Array, ...]:
        """Value, standard error, low, high and the unbiased answer."""
        low, high = self.interval(level, rows)
        return self.value(rows), self.standard_error(rows), low, high, self.unbiased[rows]


@dataclass(frozen=True, eq=False)
class Source:
    """Unbiased answers to a product of queries, and half the width of their intervals by level."""

    unbiased: Array
    half_width: Callable[[float], Array]
    rmse: float
    standard_errors: Callable[[], Array]
    basis: str


def best_source(estimates: LinearEstimates, measured: Measured, target: Product) -> Source | None:
    """The most precise answers to these queries, or None where the release cannot tell.

    The coefficients of the queries must be 0 and 1.
    """
    sources = [*_released(estimates, target), *_from_blocks(estimates, measured, target)]
    sources += [*_from_root(estimates, measured, target)] or [*_picked(estimates, target)]
    sources = sources or [*_from_groups(estimates, measured, target)]
    return min(sources, key=lambda source: source.rmse, default=None)


def _released(estimates: LinearEstimates, target: Product) -> Iterator[Source]:
    """The queries themselves."""
    forecast = estimates.forecast
    keys = [(name, queries.key) for name, queries in target.factors]
    for t, term in enumerate(forecast.workload.terms):
        product = term.as_product()
        if product is not None and [(n, q.key) for n, q in product.factors] == keys:
            half = partial(half_widths, forecast, t)
            errors = partial(forecast.standard_errors, t)
            basis = f"released as {term.name!r}"
            yield Source(estimates.unbiased[t], half, forecast.groups[t].rmse, errors, basis)


def _picked(estimates: LinearEstimates, target: Product) -> Iterator[Source]:
    """Chosen ranges out of all ranges, by other attributes as in the target."""
    forecast = estimates.forecast
    for t, term in enumerate(forecast.workload.terms):
        product = term.as_product()
        if product is None or term.rows > WORKLOAD_LIMITS.array_entries:
            continue
        if term.attributes != target.attributes:
            continue
        places: list[Integers] = []
        for (_, released), (_, queries) in zip(product.factors, target.factors, strict=True):
            if isinstance(released, Ranges) and isinstance(queries, Intervals):
                i = queries.starts
                places.append(i * released.size - i * (i - 1) // 2 + queries.ends - i - 1)
            elif released.is_identity and queries.is_identity:
                places.append(np.arange(queries.rows))
        if len(places) == len(target.factors) and any(
            isinstance(q, Intervals) for _, q in target.factors
        ):
            at = np.ravel_multi_index(np.ix_(*places), term.row_shape).reshape(-1)
            errors = forecast.standard_errors(t)[at]
            half = partial(_taken, forecast, t, at)
            rmse = float(np.sqrt((errors**2).mean()))
            errors_at = partial(np.array, errors)
            basis = f"released in {term.name!r}"
            yield Source(estimates.unbiased[t][at], half, rmse, errors_at, basis)


def _taken(forecast: Forecast, term: int, at: Integers, level: float) -> Array:
    return half_widths(forecast, term, level)[at]


def _from_root(estimates: LinearEstimates, measured: Measured, target: Product) -> Iterator[Source]:
    """Other intervals of a measured root: differences of its running totals."""
    forecast = estimates.forecast
    work = Workload(forecast.workload.domain, (target,))
    for strategy, first in _roots_of(forecast.strategy.in_normal_form):
        queries = dict(target.factors)
        along = queries.pop(strategy.rooted.along, None)
        if along is None or tuple(queries) != strategy.rooted.by:
            continue
        if not isinstance(along, Prefix | Intervals | Total):
            continue
        if all(q.is_identity for q in queries.values()):
            way = strategy.asking(work)
            law = forecast.noise[first : first + 1]
            derived = replace(forecast, workload=work, strategy=way, noise=law)
            answers = way.answer(0, [measured.measurements[first].values])
            rmse = sqrt(way.total_variance(0, derived.block_variances) / target.rows)
            half = partial(half_widths, derived, 0)
            basis = f"measured running totals of {strategy.rooted.along!r}"
            yield Source(answers, half, rmse, partial(derived.standard_errors, 0), basis)


def _roots_of(strategy: Strategy) -> Iterator[tuple[Ordered, int]]:
    """Measured roots, and where their blocks are."""
    if isinstance(strategy, Ordered):
        yield strategy, 0
    elif isinstance(strategy, Combined):
        first = 0
        for part in strategy.parts:
            yield from ((root, first + at) for root, at in _roots_of(part))
            first += len(part.blocks)


def _from_blocks(
    estimates: LinearEstimates, measured: Measured, target: Product
) -> Iterator[Source]:
    """Another question to a measured table or tree: its best linear estimate."""
    forecast = estimates.forecast
    strategy = forecast.strategy.in_normal_form
    if not isinstance(strategy, Blockwise):
        return
    work = Workload(forecast.workload.domain, (target,))
    for b, block in enumerate(strategy.blocks):
        product = block.term.as_product()
        if (
            product is not None
            and set(target.attributes) <= set(product.attributes)
            and all(q.is_identity or isinstance(q, Levels) for _, q in product.factors)
        ):
            way = replace(strategy, workload=work, source=(b,))
            derived = replace(forecast, workload=work, strategy=way)
            answers = way.answer(0, [m.values for m in measured.measurements])
            rmse = sqrt(way.total_variance(0, forecast.block_variances) / target.rows)
            errors = partial(derived.standard_errors, 0)
            basis = f"measured {block.term.name!r}"
            yield Source(answers, partial(half_widths, derived, 0), rmse, errors, basis)


def _from_groups(
    estimates: LinearEstimates, measured: Measured, target: Product
) -> Iterator[Source]:
    """Sums and differences of the answers of released groups that hold the attributes."""
    forecast = estimates.forecast
    values = [m.units.size for m in measured.measurements]
    for rollup in likely_rollups(forecast, target):
        t = rollup.term
        group = forecast.workload.terms[t].name
        law = rollup.errors(forecast, values)
        if law is None:
            if rollup.factor_entries > LIMITS.rollup_entries:
                continue
            errors = rollup.bounds(forecast.standard_errors(t))
            half = partial(_widest, forecast, errors)
            basis = f"sums of {group!r}; their standard errors are upper bounds (Minkowski)"
        else:
            errors, shapes = law
            half = partial(_as_mixture, errors, shapes, forecast.tails)
            basis = f"sums of {group!r}, with what their errors have in common"
        rmse = float(np.sqrt((errors**2).mean()))
        if forecast.strategy.records is not None:
            bias = forecast.strategy.records * rollup.bounds(forecast.strategy.bias_bounds(t))
            rmse = float(np.sqrt((errors**2 + bias**2).mean()))
            half = partial(_beside, half, bias)
        yield Source(
            rollup.answers(estimates.unbiased[t]), half, rmse, partial(np.array, errors), basis
        )


def _beside(half: Callable[[float], Array], bias: Array, level: float) -> Array:
    """Wider by the bias on either side."""
    return np.asarray(half(level) + bias, dtype=np.float64)


def _as_mixture(errors: Array, shapes: Array, tails: NoiseTails, level: float) -> Array:
    return np.asarray(errors * tails.quantile(shapes, level), dtype=np.float64)


def _widest(forecast: Forecast, errors: Array, level: float) -> Array:
    return np.asarray(widest_quantile(forecast, level) * errors, dtype=np.float64)


def _band(
    totals: Source, number: Source | None, attribute: Attribute, public: int | None, level: float
) -> Band:
    """Intervals whose four ends miss with probability at most ``1 - level`` in all.

    ``public`` is the number of records where it is known and there is one curve only.
    """
    last = attribute.value_count
    each = level if public is not None else (1 + level) / 2
    half = totals.half_width(each)[:, :last]
    unbiased = totals.unbiased[:, :last]
    lower, upper = np.maximum(unbiased - half, 0.0), np.maximum(unbiased + half, 0.0)
    curve = _rising(unbiased, half)
    if public is not None:
        records = np.full((1, 1), float(public))
        curve = np.minimum(curve, records)
        curve[:, -1] = public
        return Band(lower, upper, records, records, curve)
    spread = None if number is None else number.half_width(each)
    if number is None or spread is None or (spread**2).sum() >= (half[:, -1] ** 2).sum():
        return Band(lower, upper, lower[:, -1:], upper[:, -1:], curve)
    minimum = np.maximum(number.unbiased - spread, 0.0)[:, None]
    maximum = np.maximum(number.unbiased + spread, 0.0)[:, None]
    likely = np.maximum(number.unbiased, 0.0)[:, None]
    curve = np.concatenate([np.minimum(curve, likely)[:, :-1], likely], axis=1)
    return Band(lower, upper, minimum, maximum, curve)


def _rising(unbiased: Array, half: Array) -> Array:
    """The nearest rising curves from zero up, precise values weighing more."""
    from scipy.optimize import isotonic_regression

    weights = (half.max(axis=1, keepdims=True) / np.maximum(half, 1e-300)) ** 2
    weights = np.clip(np.nan_to_num(weights), 1e-12, 1e12)
    curves = [isotonic_regression(y, weights=w).x for y, w in zip(unbiased, weights, strict=True)]
    return np.maximum(np.array(curves, dtype=np.float64), 0.0)
