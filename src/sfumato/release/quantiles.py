# SPDX-License-Identifier: Apache-2.0
"""Quantiles and medians from released running totals, with intervals.

Let C(t) be the true number of records in cells 0..t of an ordered attribute, n the number in all
its declared cells, and ``q = min {t : C(t) >= p n}`` the p-quantile. Then

    C(q) >= p n       and       C(q - 1) < p n.

A cell t is kept when the released intervals do not contradict this: the upper end of C(t) reaches
p times the lower end of n, and the lower end of C(t - 1) stays below p times the upper end of n.
q is fixed by the data, so only four one-sided intervals matter, those of C(q), C(q - 1) and n
(twice); with each missing its truth with probability at most (1 - level) / 4, the kept cells hold
q with probability at least ``level``: pointwise intervals are enough, and no independence is used.
Where n is public only two of them are left, with (1 - level) / 2 each. Reported is the hull of
the kept cells, from the lower end of the first bin to the upper end of the last.

The value itself comes from the nearest rising curve (isotonic regression: Barlow, Bartholomew,
Bremner, Brunk 1972, "Statistical inference under order restrictions"), linear inside a bin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sfumato.domain import Attribute, DateTime, Integer
from sfumato.errors import WorkloadError
from sfumato.plan.blockwise import Blockwise
from sfumato.plan.tree import Tree
from sfumato.refine.measurement import Measured
from sfumato.release.estimates import Estimates, half_widths, widest_quantile
from sfumato.release.labels import Labels, cell_labels, has_whole_days, lower_ends, upper_ends
from sfumato.wording import listing
from sfumato.workload.queries import Array, Identity, Integers, Prefix
from sfumato.workload.terms import Product
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["quantile_frame"]


@dataclass(frozen=True, eq=False)
class RunningTotals:
    """Unbiased running totals: one row per ``by`` cell, one column per cell of the attribute."""

    unbiased: Array
    half_width: Callable[[float], Array]


def quantile_frame(
    estimates: Estimates,
    measured: Measured,
    attr: str,
    probabilities: Sequence[float],
    by: Sequence[str],
    level: float,
) -> pd.DataFrame:
    """Quantiles of an attribute for each cell of the ``by`` attributes.

    The true quantile is enclosed by ``low`` and ``high`` with probability at least ``level``;
    where there is no record it is undefined and nothing is claimed.
    """
    import pandas as pd

    domain = estimates.forecast.workload.domain
    attribute = domain[attr]
    if not attribute.is_ordered:
        raise WorkloadError(
            f"attribute {attr!r} is a {attribute.kind} and has no order; quantiles need an "
            "integer, numeric or datetime attribute"
        )
    if attr in by:
        raise WorkloadError(f"{attr!r} cannot be both the attribute and in by")
    if not probabilities or not all(0 < p < 1 for p in probabilities):
        raise WorkloadError(
            f"quantiles need probabilities strictly between 0 and 1, got {list(probabilities)}"
        )
    order = domain.in_order(by)
    totals = _running_totals(estimates, measured, attr, order)
    points, lows, highs, inside = _invert(estimates, totals, attribute, probabilities, level, by)
    values = _values_at(attribute, points, inside)
    columns: dict[str, Labels] = {}
    shape = [domain[name].size for name in order]
    cells = np.indices(shape).reshape(len(shape), -1) if shape else np.zeros((0, 1), dtype=np.int64)
    for name in by:
        labels = cell_labels(domain[name])[cells[order.index(name)]]
        columns[name] = np.repeat(labels, len(probabilities))
    columns["probability"] = np.tile(np.asarray(probabilities, dtype=np.float64), len(lows))
    frame = pd.DataFrame(columns)
    frame["value"] = pd.Series(values).where(pd.Series(points.reshape(-1) >= 0))
    frame["low"] = lower_ends(attribute)[lows.reshape(-1)]
    frame["high"] = upper_ends(attribute)[highs.reshape(-1)]
    return frame


def _invert(
    estimates: Estimates,
    totals: RunningTotals,
    attribute: Attribute,
    probabilities: Sequence[float],
    level: float,
    by: Sequence[str],
) -> tuple[Integers, Integers, Integers, Array]:
    """Cells of the value, of the ends, and where inside its bin the value lies.

    Arrays of one row per ``by`` cell and one column per probability; a value of -1 is unknown.
    """
    last = attribute.value_count
    rows = estimates.rows
    is_total_public = rows is not None and not by and attribute.size == last
    miss = 1 - level
    half = totals.half_width(level if is_total_public else 1 - miss / 2)[:, :last]
    unbiased = totals.unbiased[:, :last]
    ceiling = np.inf if rows is None else float(rows)
    lower = np.clip(unbiased - half, 0.0, ceiling)
    upper = np.clip(unbiased + half, 0.0, ceiling)
    if is_total_public:
        lower[:, -1] = upper[:, -1] = ceiling
    rising = _rising(unbiased, half, ceiling, is_total_public)

    shape = (len(unbiased), len(probabilities))
    points, lows, highs = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    inside = np.zeros(shape)
    before = np.concatenate([np.full((len(lower), 1), -np.inf), lower[:, :-1]], axis=1)
    for j, p in enumerate(probabilities):
        kept = (upper >= p * lower[:, -1:]) & (before < p * upper[:, -1:])
        target = p * rising[:, -1:]
        point = np.argmax(rising >= target, axis=1)
        kept[np.arange(len(kept)), point] = True  # a wider set keeps the claim
        is_known = rising[:, -1] > 0
        kept[~is_known] = True
        lows[:, j] = np.argmax(kept, axis=1)
        highs[:, j] = last - 1 - np.argmax(kept[:, ::-1], axis=1)
        each = np.arange(len(point))
        start = np.where(point > 0, rising[each, point - 1], 0.0)
        step = rising[each, point] - start
        with np.errstate(divide="ignore", invalid="ignore"):
            inside[:, j] = np.where(step > 0, (target[:, 0] - start) / step, 0.5)
        points[:, j] = np.where(is_known, point, -1)
    return points, lows, highs, np.clip(inside, 0.0, 1.0)


def _rising(unbiased: Array, half: Array, ceiling: float, is_total_public: bool) -> Array:
    """The nearest rising curves with values from 0 to the number of records."""
    from scipy.optimize import isotonic_regression

    weights = 1 / np.maximum(half, 1e-300) ** 2
    weights = np.minimum(weights / weights.max(axis=1, keepdims=True), 1.0)
    curves = np.array(
        [
            isotonic_regression(y, weights=np.maximum(w, 1e-12)).x
            for y, w in zip(unbiased, weights, strict=True)
        ]
    )
    curves = np.asarray(np.clip(curves, 0.0, ceiling), dtype=np.float64)
    if is_total_public:
        curves[:, -1] = ceiling
    return curves


def _values_at(attribute: Attribute, cells: Integers, inside: Array) -> Labels:
    """The point of each bin at the given part of its width, as the attribute's own kind."""
    at = np.maximum(cells.reshape(-1), 0)
    part = inside.reshape(-1)
    low, high = lower_ends(attribute)[at], upper_ends(attribute)[at]
    if isinstance(attribute, DateTime):
        steps = (high - low).astype(np.int64) * part
        moments = low + steps.astype("timedelta64[us]")
        if has_whole_days(attribute):
            return np.asarray(moments.astype("datetime64[D]").astype("datetime64[us]"))
        return np.asarray(moments)
    if isinstance(attribute, Integer):
        return low + np.floor((high - low).astype(np.float64) * part).astype(np.int64)
    return np.asarray(low + (high - low) * part, dtype=np.float64)


def _running_totals(
    estimates: Estimates, measured: Measured, attr: str, by: tuple[str, ...]
) -> RunningTotals:
    """From a released CDF; else from what was measured; else from a released table."""
    forecast = estimates.forecast
    workload = forecast.workload
    domain = workload.domain
    names = domain.in_order([attr, *by])
    factors = tuple(
        (n, Prefix(domain[n].size) if n == attr else Identity(domain[n].size)) for n in names
    )
    asked = Product(domain, "running totals", 1.0, factors)
    for t, term in enumerate(workload.terms):
        if isinstance(term, Product) and _is_cdf(term, attr, names):
            half = partial(half_widths, forecast, t)
            return RunningTotals(
                _rows_of(estimates.unbiased[t], asked, attr),
                partial(_half_rows, half, asked, attr),
            )
    derived = _from_blocks(estimates, measured, asked, attr)
    if derived is None:
        derived = _from_table(estimates, asked, attr)
    if derived is None:
        usable = [t.name for t in workload.terms if attr in t.attributes and isinstance(t, Product)]
        raise WorkloadError(
            f"no released group gives the running totals of {attr!r}"
            + (f" by {listing(by)}" if by else "")
            + f"; groups that hold {attr!r} are: {listing(usable, 30) or 'none'}; ask for "
            f"prefixes of {attr!r} or a table over these attributes in the workload"
        )
    return derived


def _is_cdf(term: Product, attr: str, names: tuple[str, ...]) -> bool:
    kinds = (type(q) is (Prefix if n == attr else Identity) for n, q in term.factors)
    return term.attributes == names and all(kinds)


def _from_blocks(
    estimates: Estimates, measured: Measured, asked: Product, attr: str
) -> RunningTotals | None:
    """The running totals as further queries to a measured table or tree, with their own errors."""
    forecast = estimates.forecast
    strategy = forecast.strategy
    if not isinstance(strategy, Blockwise):
        return None
    options = []
    for b, block in enumerate(strategy.blocks):
        term = block.term
        if (
            isinstance(term, Product)
            and set(asked.attributes) <= set(term.attributes)
            and all(isinstance(q, Identity | Tree) for _, q in term.factors)
        ):
            work = Workload(forecast.workload.domain, (asked,))
            way = replace(strategy, workload=work, source=(b,))
            options.append(replace(forecast, workload=work, strategy=way))
    if not options:
        return None
    best = min(options, key=lambda f: f.strategy.total_variance(0, f.block_variances))
    answers = best.strategy.answer(0, [m.values for m in measured.measurements])
    half = partial(half_widths, best, 0)
    return RunningTotals(_rows_of(answers, asked, attr), partial(_half_rows, half, asked, attr))


def _from_table(estimates: Estimates, asked: Product, attr: str) -> RunningTotals | None:
    """Sums of a released table; standard errors add up at most (Minkowski), however correlated."""
    forecast = estimates.forecast
    tables = [
        t
        for t, term in enumerate(forecast.workload.terms)
        if isinstance(term, Product)
        and term.is_table
        and set(asked.attributes) <= set(term.attributes)
    ]
    if not tables:
        return None
    best = min(tables, key=lambda t: float(forecast.standard_errors(t).sum()))
    term = forecast.workload.terms[best]
    extra = tuple(i for i, n in enumerate(term.attributes) if n not in asked.attributes)

    def summed(numbers: Array) -> Array:
        return _rows_of(asked.answer(numbers.reshape(term.shape).sum(axis=extra)), asked, attr)

    def half_width(level: float) -> Array:
        return widest_quantile(forecast, level) * summed(forecast.standard_errors(best))

    return RunningTotals(summed(estimates.unbiased[best]), half_width)


def _half_rows(half: Callable[[float], Array], asked: Product, attr: str, level: float) -> Array:
    return _rows_of(half(level), asked, attr)


def _rows_of(numbers: Array, asked: Product, attr: str) -> Array:
    """One row per ``by`` cell, one column per cell of the attribute."""
    table = np.asarray(numbers, dtype=np.float64).reshape(asked.row_shape)
    turned = np.moveaxis(table, asked.attributes.index(attr), -1)
    return turned.reshape(-1, turned.shape[-1])
