# SPDX-License-Identifier: Apache-2.0
"""Variances, covariances and correlations from released moments, with intervals that hold.

Let N, S, T and P be the true number of records and the true sums of u, v and u v, with primes on
their unbiased answers, and m, n the true means of u and v. Then

    P' - m T' - n S' + (m n - c) N'

is an answer to 0 where c is the covariance, with an error of known law. For fixed m and n the c
that it does not contradict are those of a quotient (`ratios.RatioLaw`), the total being
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

from sfumato.errors import WorkloadError
from sfumato.release.estimates import Derived, Estimates
from sfumato.release.ratios import JointLaw, RatioLaw, joint_law
from sfumato.release.release_limits import LIMITS
from sfumato.text import listing, shown
from sfumato.types import Array
from sfumato.workload.workload import SecondMoment, Workload

if TYPE_CHECKING:
    from sfumato.release.linear_estimates import LinearEstimates

__all__ = [
    "second_moments_of",
    "variance_of",
]


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
