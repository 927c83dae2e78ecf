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
Where n is public only two of them are left, with (1 - level) / 2 each. n is read off the end of the
curve, or off a more precise table if one was released; no matter which, the argument holds.
Reported is the hull of the kept cells, from the lower end of the first bin to the upper end of the
last.

The value itself comes from the nearest rising curve (isotonic regression: Barlow, Bartholomew,
Bremner, Brunk 1972, "Statistical inference under order restrictions"), linear inside a bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sfumato.domain.attributes import Attribute, DateTime, Integer
from sfumato.domain.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.release.estimates import Band, Estimates
from sfumato.release.labels import Labels, cell_labels, has_whole_days, lower_ends, upper_ends
from sfumato.text import listing
from sfumato.types import Array, Integers
from sfumato.workload.queries import Identity, Prefix
from sfumato.workload.terms import Product

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "quantile_frame",
    "rows_along",
    "running_totals",
    "totals_quantiles",
]


def quantile_frame(
    estimates: Estimates,
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

    domain = estimates.workload.domain
    attribute = domain[attr]
    if not attribute.is_ordered:
        raise WorkloadError(
            f"attribute {attr!r} is a {attribute.kind} and has no order; quantiles need an "
            "integer, numeric or datetime attribute"
        )
    if attr in by:
        raise WorkloadError(f"{attr!r} cannot be both the attribute and in by")
    numbers = [isinstance(p, int | float) and 0 < p < 1 for p in probabilities]
    if not numbers or not all(numbers):
        raise WorkloadError(
            f"quantiles need probabilities strictly between 0 and 1, got {list(probabilities)}"
        )
    order = domain.in_order(by)
    band = estimates.band(attribute, order, level)
    if band is None:
        products = [p for t in estimates.workload.terms if (p := t.as_product()) is not None]
        usable = [p.name for p in products if attr in p.attributes]
        raise WorkloadError(
            f"no released group gives the running totals of {attr!r}"
            + (f" by {listing(order)}" if order else "")
            + f"; groups that hold {attr!r} are: {listing(usable, 30) or 'none'}; ask for "
            f"prefixes of {attr!r} or a table over these attributes in the workload"
        )
    points, lows, highs, inside = _invert(band, probabilities)
    values = _values_at(attribute, points, inside)
    # A published quantile lies in its own interval; where there is none, its cell is -1.
    lows, highs = np.where(points >= 0, np.minimum(lows, points), lows), np.maximum(highs, points)
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


def totals_quantiles(
    estimates: Estimates, term: int, attr: str, probability: float, level: float
) -> tuple[Labels, Labels, Labels]:
    """Quantiles read off the running totals of a group of queries: values, low and high ends.

    Let ``x_1 <= ... <= x_n`` be the values. SQL's PERCENTILE_DISC is x_k for ``k = ceil(p n)``,
    PERCENTILE_CONT lies between x_k and x_(k+1) for ``k = floor(1 + p (n - 1))``. So every value
    that one of them can be lies between two values x_j whose number has ``p (n - 1) < j`` and
    ``j <= p (n - 1) + 2``. The cell t of such a value has ``C(t) >= j`` and ``C(t - 1) < j``, so it
    is kept when the upper end of C(t) is above ``p (n - 1)`` at the lower end of n, and the lower
    end of C(t - 1) is below ``p (n - 1) + 2`` at the upper end of n. Two cells matter, hence the
    intervals of four totals and of n, each of which misses with probability (1 - level) / 5.
    """
    product = estimates.workload.terms[term].as_product()
    if product is None:
        raise WorkloadError(f"group {term} holds no running totals of {attr!r}")
    attribute = estimates.workload.domain[attr]
    answers = estimates.group(term)
    ends = answers.interval(1 - (1 - level) / 5)
    rows = [rows_along(product, attr, n) for n in (answers.value(), *ends)]
    value, lower, upper = (n[:, : attribute.value_count] for n in rows)
    # Learned answers have no ends where nothing that was measured tells them.
    lower = np.where(np.isnan(lower), 0.0, np.maximum(lower, 0.0))
    upper = np.where(np.isnan(upper), np.inf, np.maximum(upper, 0.0))
    curve = np.maximum.accumulate(np.maximum(value, 0.0), axis=1)
    p = probability
    least = np.maximum(p * (lower[:, -1:] - 1), 0.0) / p
    most = (p * (upper[:, -1:] - 1) + 2) / p
    band = Band(lower, upper, least, most, curve)
    points, lows, highs, inside = _invert(band, [p])
    values = _values_at(attribute, points, inside)
    lows, highs = np.where(points >= 0, np.minimum(lows, points), lows), np.maximum(highs, points)
    is_known = points.reshape(-1) >= 0
    empty = np.datetime64("NaT") if values.dtype.kind == "M" else np.nan
    shown = values if is_known.all() else np.where(is_known, values, empty)
    low, high = lower_ends(attribute)[lows.reshape(-1)], upper_ends(attribute)[highs.reshape(-1)]
    return shown, low, high


def _invert(
    band: Band, probabilities: Sequence[float]
) -> tuple[Integers, Integers, Integers, Array]:
    """Cells of the value, of the ends, and where inside its bin the value lies.

    Arrays of one row per ``by`` cell and one column per probability; a value of -1 is unknown.
    """
    rows, cells = band.curve.shape
    points, lows, highs = (np.zeros((rows, len(probabilities)), dtype=np.int64) for _ in range(3))
    inside = np.zeros((rows, len(probabilities)))
    before = np.concatenate([np.full((rows, 1), -np.inf), band.lower[:, :-1]], axis=1)
    each = np.arange(rows)
    is_known = band.curve[:, -1] > 0
    for j, p in enumerate(probabilities):
        possible = (band.upper >= p * band.least) & (before < p * band.most)
        target = p * band.curve[:, -1:]
        point = np.argmax(band.curve >= target, axis=1)
        possible[each, point] = True  # a wider set keeps the claim
        possible[~is_known] = True
        lows[:, j] = np.argmax(possible, axis=1)
        highs[:, j] = cells - 1 - np.argmax(possible[:, ::-1], axis=1)
        start = np.where(point > 0, band.curve[each, point - 1], 0.0)
        step = band.curve[each, point] - start
        with np.errstate(divide="ignore", invalid="ignore"):
            inside[:, j] = np.where(step > 0, (target[:, 0] - start) / step, 0.5)
        points[:, j] = np.where(is_known, point, -1)
    return points, lows, highs, np.clip(inside, 0.0, 1.0)


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


def running_totals(domain: Domain, attr: str, by: Sequence[str]) -> Product:
    """The queries behind quantiles: records up to each cell, for every cell of ``by``."""
    factors = tuple(
        (n, Prefix(domain[n].size) if n == attr else Identity(domain[n].size))
        for n in domain.in_order([attr, *by])
    )
    return Product(domain, "running totals", 1.0, factors)


def rows_along(product: Product, attr: str, numbers: Array) -> Array:
    """Numbers of a product: one row per ``by`` cell, one column per query about the attribute."""
    table = np.asarray(numbers, dtype=np.float64).reshape(product.row_shape)
    turned = np.moveaxis(table, product.attributes.index(attr), -1)
    return turned.reshape(-1, turned.shape[-1])
