# SPDX-License-Identifier: Apache-2.0
"""Means, variances and correlations from released answers, with intervals that hold.

**Means** are quotients of two answers, with intervals from the law of both together. Let
``D = sum d`` and ``N`` be the true sum and count, D' and N' the unbiased answers. For every m the
error of ``D' - m N'`` as an answer to ``D - m N`` has a known law, and at the true quotient m its
target is 0. So the m with ``|D' - m N'| <= q(m) s(m)``, s the standard error and q the quantile of
that law, hold the true quotient with probability ``level``, whatever the counts are (Fieller 1954,
"Some problems in interval estimation"): a quadratic inequality in m. Where the count is so noisy
that these m are no interval, or where both answers are too many for their covariances to be listed,
the ends come from a box: each answer in its own interval at ``(1 + level) / 2`` (Bonferroni: no
independence is used).

The mean of numbers in [a, b] lies in [a, b], known from the coefficients alone: the interval is
widened by what bins or the grid of values can hide (``Ratio.hidden``), cut to that, and widened to
the published mean where that lies outside.

**Variances, covariances and correlations** come from released moments. Let N, S, T and P be the
true number of records and the true sums of u, v and u v, with primes on their unbiased answers, and
m, n the true means of u and v. Then

    P' - m T' - n S' + (m n - c) N'

is an answer to 0 where c is the covariance, with an error of known law. For fixed m and n the c
that it does not contradict are those of a quotient (`RatioLaw`), the total being
``P' - m T' - n S' + m n N'``. Where m and n are not known, they are taken from intervals that hold
both with probability ``1 - beta``, and the ends are the least and the greatest over these, at level
``level + beta``: they miss with probability at most ``1 - level`` whatever the data are (Berger,
Boos 1994, "P values maximized over a confidence set for the nuisance parameter"). The total moves
by ``N (m - S'/N') (n - T'/N')`` only, which is of second order, so hardly anything is given away
where groups are large beside their noise (docs/proofs/values.md, Theorem 3).

A correlation r makes ``P_c - r (l U_c + V_c / l) / 2`` an answer to 0, with U_c, V_c, P_c the sums
of squares and products about m and n and l the ratio of the standard deviations. Its slope in l is
0 at the true l, so l is one more unknown of second order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import TooLarge, WorkloadError
from sfumato.planning.forecast import Forecast
from sfumato.planning.views import planned_term
from sfumato.privacy.noise_laws import SMOOTH, NoiseTails
from sfumato.release.estimates import Derived, Estimates
from sfumato.release.release_limits import LIMITS
from sfumato.strategy.blockwise import Blockwise
from sfumato.text import listing, shown
from sfumato.types import Array
from sfumato.workload.queries import QuerySet, Total
from sfumato.workload.terms import Explicit, Product, Term
from sfumato.workload.workload import Ratio, SecondMoment, Workload

if TYPE_CHECKING:
    from sfumato.release.linear_estimates import LinearEstimates

__all__ = [
    "JointLaw",
    "RatioLaw",
    "boxed",
    "joint_law",
    "means_of",
    "published_ends",
    "quotient_range",
    "second_moments_of",
    "variance_of",
]


def means_of(estimates: LinearEstimates, ratio: Ratio, level: float) -> Derived:
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
    joint = joint_law(estimates, ratio.terms)
    law = None if joint is None else joint.pair(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
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
    total = ratio.scale * estimates.value(over) + ratio.offset * number
    columns = {"sum": total, "count": number, ratio.column: mean}
    return Derived(columns, mean, ratio.scale * error, low, high)


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
class RatioLaw:
    """The moments of the weights of the measured values in sum and count, row by row.

    ``squares`` holds ``sum v d^2, sum v d n, sum v n^2`` and ``fourths`` ``sum v^2 d^(4-k) n^k``
    for k = 0 to 4, v being the variance of a measured value and d, n its weights; no fourths for
    Gaussian noise.
    """

    squares: Array
    fourths: Array | None
    tails: NoiseTails = SMOOTH

    def second(self, m: Array) -> Array:
        """The variance of ``sum - m count``."""
        a, b, c = self.squares
        return np.asarray(np.maximum(a - 2 * m * b + m * m * c, 0.0), dtype=np.float64)

    def quantile(self, m: Array, level: float) -> Array:
        """The quantile of its error, in standard errors."""
        if self.fourths is None:
            return np.broadcast_to(self.tails.quantile(np.array([np.inf]), level), m.shape)
        signed = zip([1.0, -4.0, 6.0, -4.0, 1.0], self.fourths, strict=True)
        fourth = sum((s * m**k * f for k, (s, f) in enumerate(signed)), np.zeros(m.shape))
        with np.errstate(divide="ignore", invalid="ignore"):
            shape = np.where(fourth > 0, self.second(m) ** 2 / fourth, np.inf)
        return self.tails.quantile(np.maximum(shape, 1.0), level)

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


@dataclass(frozen=True, eq=False)
class JointLaw:
    """Moments of the weights of the measured values in several answers, row by row.

    ``squares[row, i, j] = sum v x_i x_j`` is their covariance matrix, v being the variance of a
    measured value and x_i its weight in answer i; ``fourths`` holds ``sum v^2 x_i x_j x_k x_l``,
    and nothing for Gaussian noise.
    """

    squares: Array
    fourths: Array | None
    tails: NoiseTails = SMOOTH

    def pair(self, above: Array, below: Array) -> RatioLaw:
        """The law of two linear functions of the answers, whose coefficients may vary by row."""
        rows, answers = self.squares.shape[:2]
        d, n = (np.broadcast_to(x, (rows, answers)) for x in (above, below))
        second = [
            np.einsum("rij,ri,rj->r", self.squares, x, y) for x, y in ((d, d), (d, n), (n, n))
        ]
        if self.fourths is None:
            return RatioLaw(np.stack(second), None, self.tails)
        twice = [np.einsum("rijkl,ri,rj->rkl", self.fourths, x, y) for x, y in ((d, d), (n, n))]
        ends = [(twice[0], d, d), (twice[0], d, n), (twice[0], n, n), (twice[1], d, n)]
        fourth = [np.einsum("rkl,rk,rl->r", t, x, y) for t, x, y in (*ends, (twice[1], n, n))]
        return RatioLaw(np.stack(second), np.stack(fourth), self.tails)


Forms = Sequence[Sequence[float]] | None


def joint_law(
    estimates: LinearEstimates,
    terms: Sequence[int],
    forms: Forms = None,
    *,
    with_tails: bool = True,
) -> JointLaw | None:
    """The law of the answers of several groups together, or of linear functions of them.

    None where only bounds are known. Without tails Laplace noise has no fourth moments either.
    """
    forecast = estimates.forecast
    if estimates.bootstrap is not None or forecast.strategy.records is not None:
        return None
    planned = [planned_term(forecast.strategy, t) for t in terms]
    if all(t is not None for t in planned):
        forecast = forecast.in_normal_form
        terms = [t for t in planned if t is not None]
    strategy = forecast.strategy
    mixed = np.eye(len(terms)) if forms is None else np.asarray(forms, dtype=np.float64)
    if isinstance(strategy, Blockwise):
        sources = [strategy.source[t] for t in terms]
        if len(set(sources)) == len(sources):
            return _independent(forecast, terms, mixed, with_tails)
        is_one = len(set(sources)) == 1
        law = _of_one_block(forecast, strategy, terms, mixed, with_tails) if is_one else None
        if law is not None:
            return law
    rows = strategy.workload.terms[terms[0]].rows
    if rows * sum(strategy.block_rows) > LIMITS.followed_weights:
        return None
    try:
        return _followed(forecast, terms, mixed, rows, with_tails)
    except TooLarge:
        return None


def _independent(
    forecast: Forecast, terms: Sequence[int], mixed: Array, with_tails: bool
) -> JointLaw | None:
    """Each from blocks of its own."""
    is_normal = forecast.strategy.noise == "gaussian" or not with_tails
    squares: Array = np.zeros((1, 1, 1))
    fourths: Array = np.zeros((1, 1, 1, 1, 1))
    for term, x in zip(terms, mixed.T, strict=True):
        second = np.asarray(forecast.variances(term), dtype=np.float64)
        shape = np.ones(1)
        if not is_normal:
            try:
                shape = np.asarray(forecast.strategy.effective_terms(term), dtype=np.float64)
            except TooLarge:
                return None
        squares = squares + np.multiply.outer(second, np.multiply.outer(x, x))
        if not is_normal:
            fourths = fourths + np.multiply.outer(second**2 / shape, _fourth(x))
    return JointLaw(squares, None if is_normal else fourths, forecast.tails)


def _fourth(x: Array) -> Array:
    """``x_i x_j x_k x_l``."""
    twice = np.multiply.outer(x, x)
    return np.multiply.outer(twice, twice)


def _of_one_block(
    forecast: Forecast, strategy: Blockwise, terms: Sequence[int], mixed: Array, with_tails: bool
) -> JointLaw | None:
    """All from one table or product: moments multiply over its attributes."""
    b = strategy.source[terms[0]]
    block = strategy.blocks[b].term.as_product()
    products = [strategy.workload.terms[t].as_product() for t in terms]
    whole = [p for p in products if p is not None]
    if block is None or len(whole) < len(terms) or block in whole:
        return None
    factors = [dict(p.factors) for p in whole]
    is_mixed = not np.array_equal(mixed, np.eye(len(terms)))
    is_normal = strategy.noise == "gaussian" or not with_tails
    k, differing = len(mixed), 0
    squares, fourths = [np.ones((1, k**2))], [np.ones((1, k**4))]
    for name, measured in block.factors:
        first, *rest = (queries.get(name, Total(measured.size)) for queries in factors)
        if all(first.is_same(other) for other in rest):
            squares.append(np.repeat(measured.row_variances(first)[:, None], k**2, axis=1))
            if not is_normal:
                fourths.append(np.repeat(measured.row_fourths(first)[:, None], k**4, axis=1))
        elif (
            measured.is_identity
            and all(other.rows == first.rows for other in rest)
            and first.rows * first.size < LIMITS.compared_coefficients
        ):
            differing += 1
            dense = np.stack([q.dense() for q in (first, *rest)])
            x = np.einsum("fr,ric->icf", mixed, dense) if is_mixed else dense.transpose(1, 2, 0)
            twice = x[..., :, None] * x[..., None, :]
            squares.append(twice.sum(1).reshape(len(x), -1))
            if not is_normal:
                flat = twice.reshape(*x.shape[:2], -1)
                fourths.append(np.einsum("icp,icq->ipq", flat, flat).reshape(len(x), -1))
        else:
            return None
    if is_mixed and differing > 1:
        return None
    variance = forecast.block_variances[b]
    second = variance * _outer_rows(squares)
    if is_normal:
        return JointLaw(second.reshape(-1, k, k), None, forecast.tails)
    fourth = (variance**2 * _outer_rows(fourths)).reshape(-1, k, k, k, k)
    return JointLaw(second.reshape(-1, k, k), fourth, forecast.tails)


def _outer_rows(parts: Sequence[Array]) -> Array:
    """The products of one row of each part, for all combinations in order; moments last."""
    out = parts[0]
    for part in parts[1:]:
        out = (out[:, None, :] * part[None, :, :]).reshape(-1, out.shape[1])
    return out


def _followed(
    forecast: Forecast, terms: Sequence[int], mixed: Array, rows: int, with_tails: bool
) -> JointLaw:
    """From the weight of every measured value in every answer."""
    strategy = forecast.strategy
    k, is_normal = len(mixed), strategy.noise == "gaussian" or not with_tails
    squares, fourths = np.zeros((rows, k, k)), np.zeros((0 if is_normal else rows, k, k, k, k))
    for i in range(rows):
        unit = np.zeros(rows)  # anew: a query that is measured itself has this array as its weights
        unit[i] = 1.0
        parts = [strategy.adjoint(t, unit) for t in terms]
        for b in set().union(*(p.keys() for p in parts)):
            v = forecast.block_variances[b]
            zero = np.zeros(strategy.block_rows[b])
            x = mixed @ np.stack([np.asarray(p.get(b, zero)) for p in parts])
            squares[i] += v * (x @ x.T)
            if not is_normal:
                twice = (x[:, None, :] * x[None, :, :]).reshape(k * k, -1)
                fourths[i] += v**2 * (twice @ twice.T).reshape(k, k, k, k)
    return JointLaw(squares, None if is_normal else fourths, forecast.tails)


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


def variance_of(workload: Workload, attr: str, by: Sequence[str]) -> SecondMoment:
    """The variance of a column by these attributes, from whatever a workload asks that tells it.

    Args:
        workload: What was released.
        attr: The column.
        by: Attributes, or ``attribute.level``.

    Returns:
        The statistic, divided by the number of records.

    Raises:
        WorkloadError: Nothing that was asked tells it.
    """
    domain = workload.domain
    attributes = {b if b in domain else b.rpartition(".")[0] for b in by}
    related = []
    for each in workload.ratios:
        if not isinstance(each, SecondMoment) or each.columns != (attr, attr):
            continue
        names = workload.terms[each.terms[0]].attributes
        own = {n for n in names if domain[n].columns == (n,)}
        if own == attributes and (each.kind == "variance" and not each.lost):
            return each
        if own == attributes:
            related.append(replace(each, kind="variance", lost=0))
    if related:
        return related[0]
    by_words = f", by={list(by)!r}" if by else ""
    raise WorkloadError(
        f"the variance of {shown(attr)} was not released"
        f"{' by ' + listing(list(by)) if by else ''}; plan sf.variances(domain, "
        f"{attr!r}{by_words}), beside whatever else is asked"
    )


def second_moments_of(estimates: LinearEstimates, moment: SecondMoment, level: float) -> Derived:
    """The statistic with ends that enclose the true one with probability ``level``.

    Where there is no record, or for a divisor N - 1 no second one, nothing is claimed.
    """
    terms = [np.asarray(estimates.unbiased[t], dtype=np.float64) for t in moment.terms]
    answers = np.asarray(moment.forms) @ np.stack(terms)
    law = joint_law(estimates, moment.terms, moment.forms)
    if law is None:
        low, high = _boxed(estimates, moment, level)
        error = np.full(answers.shape[1], np.nan)
    else:
        inverted = _Inverted(moment, answers, law)
        low, high = inverted.interval(level)
        error = inverted.standard_error
    return _derived(moment, answers, error, low, high)


def _derived(
    moment: SecondMoment, answers: Array, error: Array, low: Array, high: Array
) -> Derived:
    """In the units of the columns: cut to what is possible, with what the grid can hide."""
    number, first = answers[0], answers[1]
    least, most = _range(moment)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(number > 0, np.clip(first / number, -1.0, 1.0), np.nan)
    value = np.clip(_plugged_in(moment, answers), least, most)
    is_missing = np.isnan(low) | np.isnan(high)
    # Of three means of products, the last of them a product of means: 1 + 2 of them, in [-1, 1].
    hidden = 4 * moment.hidden
    low = np.clip(np.where(is_missing, np.nan, low) - hidden, least, most)
    high = np.clip(np.where(is_missing, np.nan, high) + hidden, least, most)
    low, high = np.where(value < low, value, low), np.where(value > high, value, high)
    scale = 1.0 if moment.kind == "correlation" else moment.halves[0] * moment.halves[1]
    value, low, high, error = (scale * x for x in (value, low, high, error))
    if moment.kind == "standard_deviation":
        with np.errstate(divide="ignore", invalid="ignore"):
            error = error / (2 * np.sqrt(value))
        value, low, high = (np.sqrt(x) for x in (value, low, high))
    columns = {"count": number}
    if moment.is_of_one_column:
        columns["mean"] = moment.middles[0] + moment.halves[0] * mean
    return Derived({**columns, moment.column: value}, value, error, low, high)


def _range(moment: SecondMoment) -> tuple[float, float]:
    """What the statistic of values in [-1, 1] can be; a divisor N - 1 makes it at most twice."""
    most = 2.0 if moment.lost else 1.0
    return (0.0 if moment.is_of_one_column else -most), most


def _plugged_in(moment: SecondMoment, answers: Array) -> Array:
    """The statistic of the answers as if they were exact; NaN where their count is not positive."""
    number, first, second, crossed, *squares = answers
    divisor = number - moment.lost
    with np.errstate(divide="ignore", invalid="ignore"):
        centred = crossed - first * second / number
        value = centred / divisor
        if squares:
            u, v = squares[0] - first**2 / number, squares[1] - second**2 / number
            value = centred / np.sqrt(np.maximum(u, 0.0) * np.maximum(v, 0.0))
    return np.where((divisor > 0) & np.isfinite(value), value, np.nan)


@dataclass(frozen=True, eq=False)
class _Inverted:
    """The c, or r, that the answers do not contradict, over all m, n and l that are likely."""

    moment: SecondMoment
    answers: Array
    law: JointLaw

    @property
    def rows(self) -> int:
        return int(self.answers.shape[1])

    def interval(self, level: float) -> tuple[Array, Array]:
        """The least and greatest over a grid of the unknowns, the ends of their ranges among it."""
        beta = LIMITS.nuisance_share * (1 - level)
        inner = level + beta
        low, high = np.full(self.rows, np.inf), np.full(self.rows, -np.inf)
        for above, below in self._totals(beta):
            law = self._pair(above, below)
            total, number = self._value(above), self._value(below) - self.moment.lost
            a, b = law.interval(total, number, inner)
            low, high = np.minimum(low, a), np.maximum(high, b)
        if self.moment.is_of_one_column:
            # Between two points of the grid the parabola falls by at most half their distance^2.
            first, last = self._mean(1, 1 - beta)
            low = low - ((last - first) / (2 * (LIMITS.nuisance_steps - 1))) ** 2
        return low, high

    @cached_property
    def standard_error(self) -> Array:
        """The standard deviation of the statistic to first order."""
        number, first, second = self.answers[:3]
        with np.errstate(divide="ignore", invalid="ignore"):
            m, n = (np.nan_to_num(x / number) for x in (first, second))
            value = np.nan_to_num(_plugged_in(self.moment, self.answers))
            above, below = self._at(m, n, self._plain_slope())
            error = np.sqrt(self._pair(above, below).second(value))
            divisor = np.abs(self._value(below) - self.moment.lost)
            return np.where(number > 0, error / divisor, np.nan)

    def _plain_slope(self) -> Array:
        """The ratio l of the standard deviations as it was measured, 1 where it is no number."""
        if len(self.answers) < 6:
            return np.ones(self.rows)
        number, first, second, _, u, v = self.answers
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.sqrt((v - second**2 / number) / (u - first**2 / number))
        return np.where(np.isfinite(ratio) & (ratio > 0), ratio, 1.0)

    def _totals(self, beta: float) -> Iterator[tuple[Array, Array]]:
        """Coefficients of both halves of the quotient, for every point of the grid."""
        is_one, has_slope = self.moment.is_of_one_column, len(self.answers) > 4
        parts = 1 if is_one else 4 if has_slope else 2
        steps = np.linspace(0.0, 1.0, LIMITS.nuisance_steps if is_one else LIMITS.nuisance_pairs)
        m = self._mean(1, 1 - beta / parts)
        if is_one:
            for at in steps:
                chosen = _between(m, at)
                yield self._at(chosen, chosen, np.ones(self.rows))
            return
        n = self._mean(2, 1 - beta / parts)
        slopes = self._slopes(m, n, 1 - beta / parts) if has_slope else [np.ones(self.rows)]
        for i, j in product(steps, steps):
            for slope in slopes:
                yield self._at(_between(m, i), _between(n, j), slope)

    def _mean(self, form: int, level: float) -> tuple[Array, Array]:
        """The ends of a mean, within [-1, 1]."""
        unit = np.eye(len(self.answers))
        low, high = self._pair(unit[form], unit[0]).interval(
            self.answers[form], self.answers[0], level
        )
        slack = self.moment.hidden
        return np.clip(low - slack, -1.0, 1.0), np.clip(high + slack, -1.0, 1.0)

    def _slopes(self, m: tuple[Array, Array], n: tuple[Array, Array], level: float) -> list[Array]:
        """Ratios of the standard deviations that are likely, from those of both variances.

        The means are within their ends already, which costs nothing more.
        """
        ends = []
        for form, mean, square in ((1, m, 4), (2, n, 5)):
            low, high = np.full(self.rows, np.inf), np.full(self.rows, -np.inf)
            for at in np.linspace(0.0, 1.0, LIMITS.nuisance_pairs):
                chosen = _between(mean, at)
                above = np.zeros((self.rows, len(self.answers)))
                above[:, square], above[:, form], above[:, 0] = 1.0, -2 * chosen, chosen**2
                below = np.eye(len(self.answers))[0]
                a, b = self._pair(above, below).interval(self._value(above), self.answers[0], level)
                low, high = np.minimum(low, a), np.maximum(high, b)
            ends.append((np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)))
        (u_low, u_high), (v_low, v_high) = ends
        tiny = LIMITS.least_variance
        low = np.sqrt(np.maximum(v_low, tiny) / np.maximum(u_high, tiny))
        high = np.sqrt(np.maximum(v_high, tiny) / np.maximum(u_low, tiny))
        steps = np.linspace(0.0, 1.0, LIMITS.nuisance_pairs)
        plain = np.clip(self._plain_slope(), low, high)
        return [plain, *(low ** (1 - at) * high**at for at in steps)]

    def _at(self, m: Array, n: Array, slope: Array) -> tuple[Array, Array]:
        """``P - m T - n S + m n N`` and N; of a correlation, the two sides of its equation."""
        above = np.zeros((self.rows, len(self.answers)))
        above[:, 0], above[:, 3] = m * n, 1.0
        above[:, 1] -= n
        above[:, 2] -= m
        below = np.zeros_like(above)
        if len(self.answers) == 4:
            below[:, 0] = 1.0
            return above, below
        below[:, 4], below[:, 5] = slope / 2, 1 / (2 * slope)
        below[:, 1], below[:, 2] = -m * slope, -n / slope
        below[:, 0] = (slope * m**2 + n**2 / slope) / 2
        return above, below

    def _pair(self, above: Array, below: Array) -> RatioLaw:
        return self.law.pair(above, below)

    def _value(self, coefficients: Array) -> Array:
        return np.asarray((coefficients * self.answers.T).sum(axis=1))


def _between(ends: tuple[Array, Array], at: float) -> Array:
    low, high = ends
    return np.asarray(low + at * (high - low))


def _boxed(estimates: Estimates, moment: SecondMoment, level: float) -> tuple[Array, Array]:
    """Ends from the interval of every asked answer by itself (Bonferroni: no law is used)."""
    each = 1 - (1 - level) / len(moment.terms)
    ends = [estimates.group(t).interval(each) for t in moment.terms]
    lows, highs = (np.stack([end[side] for end in ends]) for side in (0, 1))
    forms = np.asarray(moment.forms)
    up, down = np.maximum(forms, 0.0), np.minimum(forms, 0.0)
    least, most = up @ lows + down @ highs, up @ highs + down @ lows
    is_missing = np.isnan(lows).any(axis=0) | np.isnan(highs).any(axis=0)
    low, high = (np.full(least.shape[1], sign) for sign in (-np.inf, np.inf))
    if moment.kind != "correlation":
        number = np.maximum(least[0], 0.0), most[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            first, second, crossed = (_quotient((least[i], most[i]), number) for i in (1, 2, 3))
        corners = [a * b for a in first for b in second]
        products = np.min(corners, axis=0), np.max(corners, axis=0)
        if moment.is_of_one_column:  # a square
            has_zero = (first[0] <= 0) & (first[1] >= 0)
            products = np.where(has_zero, 0.0, np.maximum(products[0], 0.0)), products[1]
        stretch = (1.0, 2.0 if moment.lost else 1.0)
        both = [
            np.stack([(crossed[0] - products[1]) * s for s in stretch]),
            np.stack([(crossed[1] - products[0]) * s for s in stretch]),
        ]
        low, high = both[0].min(axis=0), both[1].max(axis=0)
    return np.where(is_missing, np.nan, low), np.where(is_missing, np.nan, high)


def _quotient(above: tuple[Array, Array], below: tuple[Array, Array]) -> tuple[Array, Array]:
    """The extremes of a mean in [-1, 1] whose sum and number lie between ends."""
    corners = np.stack([x / y for x in above for y in below])
    is_bounded = below[0] > 0
    low = np.where(is_bounded, corners.min(axis=0), -1.0)
    high = np.where(is_bounded, corners.max(axis=0), 1.0)
    return np.clip(low, -1.0, 1.0), np.clip(high, -1.0, 1.0)
