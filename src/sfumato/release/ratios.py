# SPDX-License-Identifier: Apache-2.0
"""Means: quotients of two released answers, with intervals from the law of both together.

Let ``D = sum d`` and ``N`` be the true sum and count, D' and N' the unbiased answers. For every m
the error of ``D' - m N'`` as an answer to ``D - m N`` has a known law, and at the true quotient m
its target is 0. So the m with ``|D' - m N'| <= q(m) s(m)``, s the standard error and q the quantile
of that law, hold the true quotient with probability ``level``, whatever the counts are (Fieller
1954, "Some problems in interval estimation"): a quadratic inequality in m. Where the count is so
noisy that these m are no interval, or where both answers are too many for their covariances to be
listed, the ends come from a box: each answer in its own interval at ``(1 + level) / 2``
(Bonferroni: no independence is used).

The mean of numbers in [a, b] lies in [a, b], known from the coefficients alone: the interval is
widened by what bins or the grid of values can hide (``Ratio.hidden``), cut to that, and widened to
the published mean where that lies outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import TooLarge
from sfumato.planning.forecast import Forecast
from sfumato.planning.views import as_planned, planned_term
from sfumato.privacy.noise_laws import laplace_mixture_quantile
from sfumato.release.estimates import Estimates, Means
from sfumato.release.release_limits import LIMITS
from sfumato.strategy.blockwise import Blockwise
from sfumato.types import Array
from sfumato.workload.queries import QuerySet, Total
from sfumato.workload.terms import Explicit, Product, Term
from sfumato.workload.workload import Ratio

if TYPE_CHECKING:
    from sfumato.release.linear_estimates import LinearEstimates

__all__ = [
    "boxed",
    "means_of",
    "published_ends",
    "quotient_range",
]


def means_of(estimates: LinearEstimates, ratio: Ratio, level: float) -> Means:
    """``mean = sum / count`` and ends that enclose the true mean with probability ``level``.

    Where there is no record the true mean is undefined and nothing is claimed.
    """
    terms = estimates.forecast.workload.terms
    over, under = ratio.numerator, ratio.denominator
    bounds = quotient_range(terms[over], terms[under])
    total, count = (np.asarray(estimates.unbiased[t], dtype=np.float64) for t in (over, under))
    is_known = count > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.where(is_known, total / count, np.nan)
    law = _law(estimates, ratio)
    if law is None:
        low, high = boxed(estimates, ratio, level)
        error = _maximum_error(estimates, ratio, quotient)
    else:
        low, high = law.interval(total, count, level)
        error = np.sqrt(law.second(np.nan_to_num(quotient)))
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(is_known, error / np.abs(count), np.nan)
    mean = ratio.offset + ratio.scale * np.clip(quotient, *bounds)
    low, high = published_ends(ratio, bounds, (low, high), mean)
    number = estimates.value(under)
    return Means(
        sum=ratio.scale * estimates.value(over) + ratio.offset * number,
        count=number,
        mean=mean,
        standard_error=ratio.scale * error,
        low=low,
        high=high,
    )


def published_ends(
    ratio: Ratio, bounds: tuple[Array, Array], ends: tuple[Array, Array], mean: Array
) -> tuple[Array, Array]:
    """Ends of quotients as those of means: with what is hidden, possible, and with the mean.

    Not-a-number stays so.
    """
    least, most = (ratio.offset + ratio.scale * b for b in bounds)
    low, high = (ratio.offset + ratio.scale * np.clip(end, *bounds) for end in ends)
    low = np.clip(low - ratio.hidden, least, most)
    high = np.clip(high + ratio.hidden, least, most)
    return np.where(mean < low, mean, low), np.where(mean > high, mean, high)


@dataclass(frozen=True, eq=False)
class _RatioLaw:
    """The moments of the weights of the measured values in sum and count, row by row.

    ``squares`` holds ``sum v d^2, sum v d n, sum v n^2`` and ``fourths`` ``sum v^2 d^(4-k) n^k``
    for k = 0 to 4, v being the variance of a measured value and d, n its weights; no fourths for
    Gaussian noise.
    """

    squares: Array
    fourths: Array | None

    def second(self, m: Array) -> Array:
        """The variance of ``sum - m count``."""
        a, b, c = self.squares
        return np.asarray(np.maximum(a - 2 * m * b + m * m * c, 0.0), dtype=np.float64)

    def quantile(self, m: Array, level: float) -> Array:
        """The quantile of its error, in standard errors."""
        if self.fourths is None:
            return np.broadcast_to(laplace_mixture_quantile(np.array([np.inf]), level), m.shape)
        signed = zip([1.0, -4.0, 6.0, -4.0, 1.0], self.fourths, strict=True)
        fourth = sum((s * m**k * f for k, (s, f) in enumerate(signed)), np.zeros(m.shape))
        with np.errstate(divide="ignore", invalid="ignore"):
            shape = np.where(fourth > 0, self.second(m) ** 2 / fourth, np.inf)
        return laplace_mixture_quantile(np.maximum(shape, 1.0), level)

    def interval(self, total: Array, count: Array, level: float) -> tuple[Array, Array]:
        """The m that the answers do not contradict; everything where these are no interval."""
        with np.errstate(divide="ignore", invalid="ignore"):
            start = np.where(count != 0, total / count, 0.0)
        low = high = start
        for _ in range(1 if self.fourths is None else LIMITS.quantile_steps):
            low = self._end(total, count, self.quantile(_finite(low, start), level), -1.0)
            high = self._end(total, count, self.quantile(_finite(high, start), level), 1.0)
        return low, high

    def _end(self, total: Array, count: Array, z: Array, side: float) -> Array:
        dd, dn, nn = self.squares
        a, b, c = (x - z * z * v for x, v in ((count**2, nn), (total * count, dn), (total**2, dd)))
        with np.errstate(divide="ignore", invalid="ignore"):
            end = (b + side * np.sqrt(np.maximum(b * b - a * c, 0.0))) / a
        return np.where((a > 0) & (count > 0), end, side * np.inf)


def _finite(end: Array, otherwise: Array) -> Array:
    return np.where(np.isfinite(end), end, otherwise)


def _law(estimates: LinearEstimates, ratio: Ratio) -> _RatioLaw | None:
    """The law of both answers together, or None where only bounds are known."""
    forecast = estimates.forecast
    if estimates.bootstrap is not None or forecast.strategy.records is not None:
        return None
    above, below = (
        planned_term(forecast.strategy, t) for t in (ratio.numerator, ratio.denominator)
    )
    if above is not None and below is not None:
        forecast = as_planned(forecast)
        ratio = replace(ratio, numerator=above, denominator=below)
    strategy = forecast.strategy
    if isinstance(strategy, Blockwise):
        if strategy.source[ratio.numerator] != strategy.source[ratio.denominator]:
            return _independent(forecast, ratio)
        law = _of_one_block(forecast, strategy, ratio)
        if law is not None:
            return law
    rows = strategy.workload.terms[ratio.numerator].rows
    if rows * sum(strategy.block_rows) > LIMITS.followed_weights:
        return None
    try:
        return _followed(forecast, ratio, rows)
    except TooLarge:
        return None


def _independent(forecast: Forecast, ratio: Ratio) -> _RatioLaw | None:
    spreads = []
    for term in (ratio.numerator, ratio.denominator):
        second = np.asarray(forecast.variances(term), dtype=np.float64)
        shape = np.ones(1)
        if forecast.strategy.noise == "laplace":
            try:
                shape = np.asarray(forecast.strategy.effective_terms(term), dtype=np.float64)
            except TooLarge:
                return None
        spreads.append((second, second**2 / shape))
    (dd, above), (nn, below) = spreads
    zero = np.zeros_like(dd)
    is_normal = forecast.strategy.noise == "gaussian"
    fourths = None if is_normal else np.stack([above, zero, zero, zero, below])
    return _RatioLaw(np.stack([dd, zero, nn]), fourths)


def _of_one_block(forecast: Forecast, strategy: Blockwise, ratio: Ratio) -> _RatioLaw | None:
    """Both from one table or product: moments multiply over its attributes."""
    b = strategy.source[ratio.numerator]
    block = strategy.blocks[b].term.as_product()
    above = strategy.workload.terms[ratio.numerator].as_product()
    below = strategy.workload.terms[ratio.denominator].as_product()
    if block is None or above is None or below is None or block in (above, below):
        return None
    factors = dict(above.factors), dict(below.factors)
    squares, fourths = [np.ones((1, 3))], [np.ones((1, 5))]
    for name, measured in block.factors:
        n, d = (queries.get(name, Total(measured.size)) for queries in factors)
        if n.is_same(d):
            squares.append(np.repeat(measured.row_variances(n)[:, None], 3, axis=1))
            fourths.append(np.repeat(measured.row_fourths(n)[:, None], 5, axis=1))
        elif (
            measured.is_identity
            and n.rows == d.rows
            and n.rows * n.size < LIMITS.compared_coefficients
        ):
            x, y = n.dense(), d.dense()
            squares.append(np.stack([(x ** (2 - k) * y**k).sum(1) for k in range(3)], 1))
            fourths.append(np.stack([(x ** (4 - k) * y**k).sum(1) for k in range(5)], 1))
        else:
            return None
    variance = forecast.block_variances[b]
    is_normal = strategy.noise == "gaussian"
    return _RatioLaw(
        variance * _outer_rows(squares),
        None if is_normal else variance**2 * _outer_rows(fourths),
    )


def _outer_rows(parts: Sequence[Array]) -> Array:
    """The products of one row of each part, for all combinations in order; moments first."""
    out = parts[0]
    for part in parts[1:]:
        out = (out[:, None, :] * part[None, :, :]).reshape(-1, out.shape[1])
    return out.T


def _followed(forecast: Forecast, ratio: Ratio, rows: int) -> _RatioLaw:
    """From the weight of every measured value in every answer."""
    strategy = forecast.strategy
    squares, fourths = np.zeros((3, rows)), np.zeros((5, rows))
    unit = np.zeros(rows)
    for i in range(rows):
        unit[i] = 1.0
        d, n = (strategy.adjoint(t, unit) for t in (ratio.numerator, ratio.denominator))
        unit[i] = 0.0
        for b in d.keys() | n.keys():
            v = forecast.block_variances[b]
            zero = np.zeros(strategy.block_rows[b])
            x, y = np.asarray(d.get(b, zero)), np.asarray(n.get(b, zero))
            squares[:, i] += [v * float((x ** (2 - k) * y**k).sum()) for k in range(3)]
            fourths[:, i] += [v**2 * float((x ** (4 - k) * y**k).sum()) for k in range(5)]
    return _RatioLaw(squares, None if strategy.noise == "gaussian" else fourths)


def boxed(estimates: Estimates, ratio: Ratio, level: float) -> tuple[Array, Array]:
    """The extremes over the box of both intervals; not-a-number where one of them is missing."""
    each = (1 + level) / 2
    above, below = (estimates.group(t).interval(each) for t in (ratio.numerator, ratio.denominator))
    denominator = estimates.workload.terms[ratio.denominator]
    is_missing = np.isnan(above[0]) | np.isnan(below[0])
    low, high = _quotients(above, below, denominator)
    return np.where(is_missing, np.nan, low), np.where(is_missing, np.nan, high)


def quotient_range(numerator: Term, denominator: Term) -> tuple[Array, Array]:
    """The minimum and maximum quotient of the two answers on any table with records to count.

    If every coefficient below is at least 0 and those above vanish wherever it does, then
    ``sum n_c h_c / sum d_c h_c`` is an average of the ``n_c / d_c``. Infinite where that fails.
    """
    unknown = np.full(numerator.rows, -np.inf), np.full(numerator.rows, np.inf)
    above, below = numerator.as_product(), denominator.as_product()
    if above is not None and below is not None:
        quotients = _product_range(above, below)
    elif (
        isinstance(numerator, Explicit)
        and isinstance(denominator, Explicit)
        and numerator.over == denominator.over
    ):
        pairs = zip(numerator.matrix, denominator.matrix, strict=True)
        ends = [_row_range(n.toarray(), d.toarray()) for n, d in pairs]
        quotients = np.concatenate([e[0] for e in ends]), np.concatenate([e[1] for e in ends])
    else:
        quotients = None
    return unknown if quotients is None or len(quotients[0]) != numerator.rows else quotients


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
    if n.is_same(d):
        return np.ones(n.rows), np.ones(n.rows)
    if n.rows * n.size > LIMITS.compared_coefficients:
        return np.full(n.rows, -np.inf), np.full(n.rows, np.inf)
    return _row_range(n.dense(), d.dense())


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


def _maximum_error(estimates: LinearEstimates, ratio: Ratio, quotient: Array) -> Array:
    """The standard deviation of ``sum - quotient * count`` for any correlation (Minkowski)."""
    above = estimates.standard_error(ratio.numerator)
    below = np.abs(quotient) * estimates.standard_error(ratio.denominator)
    return np.asarray(above + below, dtype=np.float64)
