# SPDX-License-Identifier: Apache-2.0
"""Further linear queries, answered from what a release already holds, with their own intervals.

The most precise of these is taken:

* the queries themselves, if they were released;
* the same queries asked of a measured table, tree or root, or picked from all ranges, with exact
  errors;
* sums of a released table. Their errors are exact too, found by following every measured value
  through the reconstruction, which is linear; where those are too many, standard errors are
  added up, which is an upper bound however they correlate (Minkowski).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt

import numpy as np

from sfumato.measurement import Measured
from sfumato.planning.forecast import Forecast
from sfumato.planning.views import planned_strategy
from sfumato.privacy.noise_laws import laplace_mixture_quantile
from sfumato.release.estimates import Estimates, half_widths, widest_quantile
from sfumato.strategy.base import Strategy
from sfumato.strategy.blockwise import Blockwise
from sfumato.strategy.combined import Combined
from sfumato.strategy.measured import Levels
from sfumato.strategy.ordered import Ordered
from sfumato.types import Array, Integers
from sfumato.workload.queries import DENSE_LIMIT, Intervals, Prefix, Ranges, Total
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

__all__ = [
    "Source",
    "best_source",
]


MOST_FOLLOWED = 2**14  # measured values, each taken through the reconstruction once


@dataclass(frozen=True, eq=False)
class Source:
    """Unbiased answers to a product of queries, and half the width of their intervals by level."""

    unbiased: Array
    half_width: Callable[[float], Array]
    rmse: float
    standard_errors: Callable[[], Array]


def best_source(estimates: Estimates, measured: Measured, asked: Product) -> Source | None:
    """The most precise answers to these queries, or None where the release cannot tell.

    The coefficients of the queries must be 0 and 1.
    """
    found = [*_released(estimates, asked), *_from_blocks(estimates, measured, asked)]
    found += [*_from_root(estimates, measured, asked)] or [*_picked(estimates, asked)]
    found = found or [*_from_table(estimates, measured, asked)]
    return min(found, key=lambda source: source.rmse, default=None)


def _released(estimates: Estimates, asked: Product) -> Iterator[Source]:
    """The queries themselves."""
    forecast = estimates.forecast
    keys = [(name, queries.key) for name, queries in asked.factors]
    for t, term in enumerate(forecast.workload.terms):
        product = term.as_product()
        if product is not None and [(n, q.key) for n, q in product.factors] == keys:
            half = partial(half_widths, forecast, t)
            errors = partial(forecast.standard_errors, t)
            yield Source(estimates.unbiased[t], half, forecast.groups[t].rmse, errors)


def _picked(estimates: Estimates, asked: Product) -> Iterator[Source]:
    """Chosen ranges out of all ranges, by other attributes as asked."""
    forecast = estimates.forecast
    for t, term in enumerate(forecast.workload.terms):
        product = term.as_product()
        if product is None or term.rows > DENSE_LIMIT:
            continue
        if term.attributes != asked.attributes:
            continue
        places: list[Integers] = []
        for (_, released), (_, queries) in zip(product.factors, asked.factors, strict=True):
            if isinstance(released, Ranges) and isinstance(queries, Intervals):
                i = queries.starts
                places.append(i * released.size - i * (i - 1) // 2 + queries.ends - i - 1)
            elif released.is_identity and queries.is_identity:
                places.append(np.arange(queries.rows))
        if len(places) == len(asked.factors) and any(
            isinstance(q, Intervals) for _, q in asked.factors
        ):
            at = np.ravel_multi_index(np.ix_(*places), term.row_shape).reshape(-1)
            errors = forecast.standard_errors(t)[at]
            half = partial(_taken, forecast, t, at)
            rmse = float(np.sqrt((errors**2).mean()))
            yield Source(estimates.unbiased[t][at], half, rmse, partial(np.array, errors))


def _taken(forecast: Forecast, term: int, at: Integers, level: float) -> Array:
    return half_widths(forecast, term, level)[at]


def _from_root(estimates: Estimates, measured: Measured, asked: Product) -> Iterator[Source]:
    """Other intervals of a measured root: differences of its running totals."""
    forecast = estimates.forecast
    work = Workload(forecast.workload.domain, (asked,))
    for strategy, first in _roots_of(planned_strategy(forecast.strategy)):
        queries = dict(asked.factors)
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
            rmse = sqrt(way.total_variance(0, derived.block_variances) / asked.rows)
            half = partial(half_widths, derived, 0)
            yield Source(answers, half, rmse, partial(derived.standard_errors, 0))


def _roots_of(strategy: Strategy) -> Iterator[tuple[Ordered, int]]:
    """Measured roots, and where their blocks are."""
    if isinstance(strategy, Ordered):
        yield strategy, 0
    elif isinstance(strategy, Combined):
        first = 0
        for part in strategy.parts:
            yield from ((found, first + at) for found, at in _roots_of(part))
            first += len(part.blocks)


def _from_blocks(estimates: Estimates, measured: Measured, asked: Product) -> Iterator[Source]:
    """Another question to a measured table or tree: its best linear estimate."""
    forecast = estimates.forecast
    strategy = planned_strategy(forecast.strategy)
    if not isinstance(strategy, Blockwise):
        return
    work = Workload(forecast.workload.domain, (asked,))
    for b, block in enumerate(strategy.blocks):
        product = block.term.as_product()
        if (
            product is not None
            and set(asked.attributes) <= set(product.attributes)
            and all(q.is_identity or isinstance(q, Levels) for _, q in product.factors)
        ):
            way = replace(strategy, workload=work, source=(b,))
            derived = replace(forecast, workload=work, strategy=way)
            answers = way.answer(0, [m.values for m in measured.measurements])
            rmse = sqrt(way.total_variance(0, forecast.block_variances) / asked.rows)
            errors = partial(derived.standard_errors, 0)
            yield Source(answers, partial(half_widths, derived, 0), rmse, errors)


def _from_table(estimates: Estimates, measured: Measured, asked: Product) -> Iterator[Source]:
    """Sums of the smallest released table that holds the attributes."""
    forecast = estimates.forecast
    tables = [
        (term.cells, t, product)
        for t, term in enumerate(forecast.workload.terms)
        if (product := term.as_product()) is not None
        and term.is_table
        and set(asked.attributes) <= set(term.attributes)
    ]
    if not tables:
        return
    _, t, term = min(tables, key=lambda found: found[:2])
    answers = _summed(estimates.unbiased[t], term, asked)
    followed = _followed(forecast, measured, t, term, asked)
    if followed is None:
        errors = _summed(forecast.standard_errors(t), term, asked)
        half = partial(_widest, forecast, errors)
    else:
        errors, shapes = followed
        half = partial(_as_mixture, errors, shapes)
    rmse = float(np.sqrt((errors**2).mean()))
    if forecast.strategy.records is not None:
        bias = forecast.strategy.records * _summed(forecast.strategy.bias_bounds(t), term, asked)
        rmse = float(np.sqrt((errors**2 + bias**2).mean()))
        half = partial(_beside, half, bias)
    yield Source(answers, half, rmse, partial(np.array, errors))


def _followed(
    forecast: Forecast, measured: Measured, t: int, term: Product, asked: Product
) -> tuple[Array, Array] | None:
    """Standard errors of the sums, and how many equal draws they are like.

    With ``e_j = r_j^2 v_j``: ``sum e_j`` and ``(sum e_j)^2 / sum e_j^2`` over all measured values
    j, v_j their variance, r_j the asked sum on the reconstruction of a single unit at j.
    """
    zeros = [np.zeros(m.units.size) for m in measured.measurements]
    constant = forecast.strategy.answer(t, zeros)  # of a biased strategy; else zero

    def reached(b: int, values: Array) -> Array:
        answers = forecast.strategy.answer(t, [*zeros[:b], values, *zeros[b + 1 :]])
        return _summed(answers - constant, term, asked)

    # Irrational steps: a block that matters does not cancel on them by accident.
    blocks = [
        b
        for b, zero in enumerate(zeros)
        if reached(b, 1 + np.modf(sqrt(2) * np.arange(1, zero.size + 1))[0]).any()
    ]
    if sum(zeros[b].size for b in blocks) > MOST_FOLLOWED:
        return None
    second, fourth = np.zeros(asked.rows), np.zeros(asked.rows)
    for b in blocks:
        unit = np.zeros(zeros[b].size)
        for j in range(unit.size):
            unit[j] = 1.0
            part = reached(b, unit) ** 2 * forecast.block_variances[b]
            unit[j] = 0.0
            second += part
            fourth += part**2
    shapes = np.divide(second**2, fourth, out=np.ones_like(second), where=fourth > 0)
    return np.sqrt(second), shapes if forecast.strategy.noise == "laplace" else shapes * np.inf


def _beside(half: Callable[[float], Array], bias: Array, level: float) -> Array:
    """Wider by the bias on either side."""
    return np.asarray(half(level) + bias, dtype=np.float64)


def _as_mixture(errors: Array, shapes: Array, level: float) -> Array:
    return np.asarray(errors * laplace_mixture_quantile(shapes, level), dtype=np.float64)


def _widest(forecast: Forecast, errors: Array, level: float) -> Array:
    return np.asarray(widest_quantile(forecast, level) * errors, dtype=np.float64)


def _summed(numbers: Array, term: Product, asked: Product) -> Array:
    """``asked`` on the table of its attributes."""
    extra = tuple(i for i, n in enumerate(term.attributes) if n not in asked.attributes)
    return asked.answer(np.asarray(numbers, dtype=np.float64).reshape(term.shape).sum(axis=extra))
