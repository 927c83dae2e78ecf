# SPDX-License-Identifier: Apache-2.0
"""Further linear queries, answered from what a release already holds, with their own intervals.

The most precise of these is taken: the queries themselves, if they were released; or the same
queries asked of what was measured, with exact errors. Failing both, a released table is summed up,
with standard errors that add at most (Minkowski), however they correlate.

A strategy answers other products than those it was made for whenever its blocks determine them.
Whether they do is tried, not assumed: reconstruction and query are both multilinear in the table,
so they are equal if they agree on one generic product table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from sfumato.plan.blockwise import Blockwise
from sfumato.plan.strategy import Strategy
from sfumato.plan.tree import Tree
from sfumato.refine.measurement import Measured
from sfumato.release.estimates import Estimates, half_widths, widest_quantile
from sfumato.workload.queries import Array, Identity
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload

__all__ = ["Source", "best_source"]

MOST_TRIED_CELLS = 2**24


@dataclass(frozen=True, eq=False)
class Source:
    """Unbiased answers to a product of queries, and half the width of their intervals by level."""

    unbiased: Array
    half_width: Callable[[float], Array]
    rmse: float


def best_source(estimates: Estimates, measured: Measured, asked: Product) -> Source | None:
    """The most precise answers to these queries, or None where the release cannot tell."""
    found = [*_released(estimates, asked), *_from_measured(estimates, measured, asked)]
    found = found or [*_from_tables(estimates, asked)]
    return min(found, key=lambda source: source.rmse, default=None)


def _released(estimates: Estimates, asked: Product) -> Iterator[Source]:
    """The queries themselves."""
    forecast = estimates.forecast
    kinds = [(name, type(queries)) for name, queries in asked.factors]
    for t, term in enumerate(forecast.workload.terms):
        if isinstance(term, Product) and [(n, type(q)) for n, q in term.factors] == kinds:
            half = partial(half_widths, forecast, t)
            yield Source(estimates.unbiased[t], half, forecast.groups[t].rmse)


def _from_measured(estimates: Estimates, measured: Measured, asked: Product) -> Iterator[Source]:
    """Another question to the measured blocks: a linear estimate with its exact error."""
    forecast = estimates.forecast
    work = Workload(forecast.workload.domain, (asked,))
    values = [m.values for m in measured.measurements]
    for way in _ways(forecast.strategy, work):
        derived = replace(forecast, workload=work, strategy=way)
        rmse = sqrt(way.total_variance(0, forecast.block_variances) / asked.rows)
        yield Source(way.answer(0, values), partial(half_widths, derived, 0), rmse)


def _ways(strategy: Strategy, work: Workload) -> Iterator[Strategy]:
    """The same measurements, read for another workload of one product."""
    (asked,) = work.terms
    if isinstance(strategy, Blockwise):
        for b, block in enumerate(strategy.blocks):
            term = block.term
            if (
                isinstance(term, Product)
                and set(asked.attributes) <= set(term.attributes)
                and all(isinstance(q, Identity | Tree) for _, q in term.factors)
            ):
                yield replace(strategy, workload=work, source=(b,))
        return
    tabled = [t for t in strategy.workload.terms if set(asked.attributes) <= set(t.attributes)]
    cells = sum(b.term.cells for b in strategy.blocks)
    if tabled and cells <= MOST_TRIED_CELLS:
        # Private fields hold what was computed for the old workload; the new one starts afresh.
        fresh: dict[str, Any] = {f.name: {} for f in fields(strategy) if f.name[0] == "_"}
        way = replace(strategy, workload=work, **fresh)
        if _determines(way, asked):
            yield way


def _determines(way: Strategy, asked: Term) -> bool:
    """Whether the reconstruction gives the queries, tried on a generic product table."""
    names = {n for term in (asked, *(b.term for b in way.blocks)) for n in term.attributes}
    domain = asked.domain
    # Powers of irrational numbers modulo 1: no polynomial identity holds there by accident.
    sides = {}
    for i, name in enumerate(domain.in_order(names)):
        side = 1 + np.modf(sqrt(2 + 3 * i) * np.arange(1, domain[name].size + 1) ** 1.5)[0]
        sides[name] = side / side.sum()  # every attribute totals 1
    values = [b.term.answer(_outer(sides, b.term.attributes)) for b in way.blocks]
    try:
        found = way.answer(0, values)
    except (LookupError, ValueError):  # shapes that do not fit: measured is something else
        return False
    wanted = asked.answer(_outer(sides, asked.attributes))
    return found.shape == wanted.shape and bool(np.abs(found - wanted).max() < 1e-9)


def _outer(sides: dict[str, Array], names: Sequence[str]) -> Array:
    table = np.ones(())
    for name in names:
        table = np.multiply.outer(table, sides[name])
    return table


def _from_tables(estimates: Estimates, asked: Product) -> Iterator[Source]:
    """Sums of released tables."""
    forecast = estimates.forecast
    for t, term in enumerate(forecast.workload.terms):
        if (
            isinstance(term, Product)
            and term.is_table
            and set(asked.attributes) <= set(term.attributes)
        ):
            errors = _summed(forecast.standard_errors(t), term, asked)
            rmse = float(np.sqrt((errors**2).mean()))
            half = partial(_widened, estimates, errors)
            yield Source(_summed(estimates.unbiased[t], term, asked), half, rmse)


def _widened(estimates: Estimates, errors: Array, level: float) -> Array:
    return np.asarray(widest_quantile(estimates.forecast, level) * errors, dtype=np.float64)


def _summed(numbers: Array, term: Product, asked: Product) -> Array:
    """``asked`` on the table of its attributes; its coefficients are 0 and 1."""
    extra = tuple(i for i, n in enumerate(term.attributes) if n not in asked.attributes)
    return asked.answer(np.asarray(numbers, dtype=np.float64).reshape(term.shape).sum(axis=extra))
