# SPDX-License-Identifier: Apache-2.0
"""Means: quotients of two released answers, with an interval that is valid however they correlate.

Both ends come from a box. With probability at least ``level`` the sum lies in its interval and the
count in its own, when each is taken at ``(1 + level) / 2`` (Bonferroni: no independence is used);
the quotient then lies between the extremes over the box. The mean of numbers in [a, b] lies in
[a, b] as well, known from the coefficients alone, and the interval is cut to that, and widened to
the published mean where that lies outside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.plan.blockwise import Blockwise
from sfumato.release.estimates import Estimates
from sfumato.workload.coefficients import Groups
from sfumato.workload.queries import Array, Identity, Prefix, QuerySet, Ranges, Total, Windows
from sfumato.workload.terms import Explicit, Product, Term
from sfumato.workload.workload import Ratio

__all__ = ["Means", "means_of", "quotient_range"]

MOST_ENTRIES = 2**22  # coefficients of one attribute that are compared one by one


@dataclass(frozen=True, eq=False)
class Means:
    """The quotients of a ratio, row by row; ``mean`` is NaN where the noisy count is not positive.

    ``standard_error`` is that of the delta method: exact to first order when sum and count carry
    independent noise, an upper bound otherwise.
    """

    sum: Array
    count: Array
    mean: Array
    standard_error: Array
    low: Array
    high: Array


def means_of(estimates: Estimates, ratio: Ratio, level: float) -> Means:
    """``mean = sum / count`` and ends that enclose the true mean with probability ``level``.

    Where there is no record the true mean is undefined and nothing is claimed.
    """
    terms = estimates.forecast.workload.terms
    over, under = ratio.numerator, ratio.denominator
    bounds = quotient_range(terms[over], terms[under])
    each = (1 + level) / 2
    low, high = _quotients(
        estimates.interval(over, each), estimates.interval(under, each), terms[under]
    )
    total, count = estimates.unbiased[over], estimates.unbiased[under]
    is_known = count > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.where(is_known, total / count, np.nan)
        error = _delta_error(estimates, ratio, quotient) / np.abs(count)
    mean = np.clip(quotient, *bounds)
    return Means(
        sum=estimates.value(over),
        count=estimates.value(under),
        mean=mean,
        standard_error=np.where(is_known, error, np.nan),
        low=np.fmin(np.clip(low, *bounds), mean),
        high=np.fmax(np.clip(high, *bounds), mean),
    )


def quotient_range(numerator: Term, denominator: Term) -> tuple[Array, Array]:
    """The least and greatest quotient of the two answers on any table with records to count.

    If every coefficient below is at least 0 and those above vanish wherever it does, then
    ``sum n_c h_c / sum d_c h_c`` is an average of the ``n_c / d_c``. Infinite where that fails.
    """
    unknown = np.full(numerator.rows, -np.inf), np.full(numerator.rows, np.inf)
    if isinstance(numerator, Product) and isinstance(denominator, Product):
        found = _product_range(numerator, denominator)
    elif (
        isinstance(numerator, Explicit)
        and isinstance(denominator, Explicit)
        and numerator.over == denominator.over
    ):
        pairs = zip(numerator.matrix, denominator.matrix, strict=True)
        ends = [_row_range(n.toarray(), d.toarray()) for n, d in pairs]
        found = np.concatenate([e[0] for e in ends]), np.concatenate([e[1] for e in ends])
    else:
        found = None
    return unknown if found is None or len(found[0]) != numerator.rows else found


def _product_range(numerator: Product, denominator: Product) -> tuple[Array, Array] | None:
    """Quotients of products are products of quotients; extremes are at the ends of the factors."""
    above, below = dict(numerator.factors), dict(denominator.factors)
    low, high = np.ones(1), np.ones(1)
    for name in numerator.domain.in_order([*above, *below]):
        size = numerator.domain[name].size
        n, d = above.get(name, Total(size)), below.get(name, Total(size))
        if n.rows != d.rows:
            return None
        a, b = _factor_range(n, d)
        ends = [np.outer(x, y).reshape(-1) for x in (low, high) for y in (a, b)]
        low, high = np.min(ends, axis=0), np.max(ends, axis=0)
    return low, high


def _factor_range(n: QuerySet, d: QuerySet) -> tuple[Array, Array]:
    if _are_same(n, d):
        return np.ones(n.rows), np.ones(n.rows)
    if n.rows * n.size > MOST_ENTRIES:
        return np.full(n.rows, -np.inf), np.full(n.rows, np.inf)
    return _row_range(n.dense(), d.dense())


def _are_same(n: QuerySet, d: QuerySet) -> bool:
    if isinstance(n, Groups) and isinstance(d, Groups):
        return n.group_of == d.group_of
    is_plain = isinstance(n, Total | Identity | Prefix | Ranges | Windows)
    return n is d or (is_plain and type(n) is type(d) and n.name == d.name)


def _row_range(n: Array, d: Array) -> tuple[Array, Array]:
    is_average = (d >= 0).all(axis=1) & ((n == 0) | (d > 0)).all(axis=1) & (d > 0).any(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = n / d
    low = np.where(d > 0, quotient, np.inf).min(axis=1)
    high = np.where(d > 0, quotient, -np.inf).max(axis=1)
    return np.where(is_average, low, -np.inf), np.where(is_average, high, np.inf)


def _quotients(
    above: tuple[Array, Array], below: tuple[Array, Array], denominator: Term
) -> tuple[Array, Array]:
    """Extremes of x / y for x in [a, b] and y in (0, inf) and in [c, d]."""
    (a, b), (c, d) = above, below
    if not denominator.is_nonnegative:
        # y could have either sign: bounded only where the interval stays off zero.
        with np.errstate(divide="ignore", invalid="ignore"):
            corners = [x / y for x in (a, b) for y in (c, d)]
        away = (c > 0) | (d < 0)
        low = np.where(away, np.min(corners, axis=0), -np.inf)
        return low, np.where(away, np.max(corners, axis=0), np.inf)
    c, d = np.maximum(c, 0.0), np.maximum(d, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # x / y falls in y where x > 0 and rises where x < 0, so each end is at a corner.
        low = np.where(a >= 0, a / d, a / c)
        high = np.where(b >= 0, b / c, b / d)
    # 0 / 0 is the limit of 0 / y. An interval that leaves no record to count says nothing.
    low = np.where(d > 0, np.nan_to_num(low, nan=0.0, posinf=np.inf, neginf=-np.inf), -np.inf)
    high = np.where(d > 0, np.nan_to_num(high, nan=0.0, posinf=np.inf, neginf=-np.inf), np.inf)
    return low, high


def _delta_error(estimates: Estimates, ratio: Ratio, quotient: Array) -> Array:
    """The standard deviation of ``sum - quotient * count``."""
    above = estimates.standard_error(ratio.numerator)
    below = np.abs(quotient) * estimates.standard_error(ratio.denominator)
    strategy = estimates.forecast.strategy
    if isinstance(strategy, Blockwise):
        source = strategy.source
        if source[ratio.numerator] != source[ratio.denominator]:
            return np.hypot(above, below)
    return np.asarray(above + below, dtype=np.float64)  # Minkowski: any correlation
