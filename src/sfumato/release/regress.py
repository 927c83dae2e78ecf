# SPDX-License-Identifier: Apache-2.0
"""Least squares from released moments: coefficients, R^2, and what the noise leaves open of them.

The estimand is the fit on the table itself, with its values clamped: intervals are about the noise
of the release, not about a population from which the records were drawn.

With z the regressors (1 and the columns), M the matrix of sums of their products and g that of
their products with y, the coefficients solve ``M b = g``. Let w be the row of ``M^-1`` of
coefficient j, scaled to ``w_j = 1``. Then ``w'(g - M b) = 0`` is linear in the released moments,
and its slopes in w and in the other coefficients are 0 at the truth (Neyman 1959): b_j is a
quotient of two linear functions of the moments whose law is known (`ratios.RatioLaw`), with w and
the other coefficients as unknowns of second order. What these can add, ``|dw' M db|``, is bounded
at a much surer level (Cauchy-Schwarz, and tails of squared normals), and added to both ends. That
bound takes covariances to first order: the intervals are calibrated by simulation
(tests/statistical/test_regress_coverage.py), not proved. R^2 is one less the quotient of the sums
of squares about the fit and about the mean, both of which have slope 0 in their own parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.release.answers import key_term
from sfumato.release.estimates import check_level
from sfumato.release.labels import columns_of
from sfumato.release.linear_estimates import LinearEstimates, widest_quantile
from sfumato.release.ratios import JointLaw, joint_law
from sfumato.release.release_limits import LIMITS
from sfumato.text import listing, shown
from sfumato.types import Array
from sfumato.workload.workload import SecondMoment

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.release.release import Release

__all__ = ["Regression", "regress"]

INTERCEPT = "(intercept)"
CALIBRATED = "intervals are of the noise alone, calibrated by simulation, not proved"


@dataclass(frozen=True, eq=False)
class Regression:
    """Least squares fits of one column on others, from released moments.

    Args:
        coefficients: One row per group and coefficient: ``coefficient``, ``standard_error``,
            ``low`` and ``high``, of the noise alone.
        fits: One row per group: ``count``, ``r_squared`` with ``low`` and ``high``.
        problems: What could not be fitted, in words.
        intervals: What the intervals rest on, in words.
    """

    coefficients: pd.DataFrame
    fits: pd.DataFrame
    problems: tuple[str, ...] = ()
    intervals: str = CALIBRATED

    def __repr__(self) -> str:
        lines = [self.coefficients.to_string(index=False), self.fits.to_string(index=False)]
        return "\n".join([*lines, *self.problems, self.intervals])


def regress(
    release: Release,
    y: str,
    x: str | Sequence[str],
    by: str | Sequence[str] | None = None,
    level: float = LIMITS.level,
) -> Regression:
    """Least squares of one column on others, from moments that were released (``sf.moments``).

    It costs nothing more. Intervals are to hold the coefficients of the fit on the table, its
    values clamped to their ranges, with probability ``level``: calibrated by simulation, not
    proved, as the result says. They are about the noise, not about the sampling of records.

    Privacy: a function of released answers (post-processing: Dwork, Roth 2014, Proposition 2.1).
    Neighbours: those of the release.

    Args:
        release: A release of ``sf.moments`` of all these columns, or of more.
        y: The column that is explained.
        x: The columns that explain it.
        by: The attributes by whose cells the moments were released.
        level: The probability with which an interval holds the coefficient.

    Returns:
        Coefficients and R^2 with standard errors and intervals.

    Raises:
        WorkloadError: Such moments were not released, or a column is named twice.

    >>> import pandas as pd, sfumato as sf
    >>> domain = sf.Domain([sf.Numeric("age", (0, 100)), sf.Numeric("pay", (0, 500))])
    >>> people = pd.DataFrame({"age": range(20, 70), "pay": [5 * a + 50 for a in range(20, 70)]})
    >>> plan = sf.plan(sf.moments(domain, ["age", "pay"]), sf.Budget(mu=200))
    >>> fit = sf.regress(plan.release(people), "pay", "age")
    >>> fit.coefficients["term"].tolist()
    ['(intercept)', 'age']
    """
    check_level(level)
    names = [x] if isinstance(x, str) else list(x)
    groups = [by] if isinstance(by, str) else list(by or ())
    if y in names or len(set(names)) != len(names) or not names:
        raise WorkloadError(
            f"regress explains one column by others, each named once; got y = {shown(y)} and x = "
            f"{shown(names)}"
        )
    estimates = release.estimates
    if not isinstance(estimates, LinearEstimates):
        raise WorkloadError("regress needs moments of a planned release: sf.plan(sf.moments(...))")
    moments = _moments(release, [*names, y], groups)
    return _Fits(estimates, moments, names, y, level).regression(release)


def _moments(
    release: Release, columns: Sequence[str], by: Sequence[str]
) -> dict[tuple[str, str], SecondMoment]:
    """The second moments of all pairs of columns, from one set of groups."""
    workload = release.workload
    attributes = {b.rpartition(".")[0] if b not in workload.domain else b for b in by}
    sets: dict[tuple[int, ...], dict[tuple[str, str], SecondMoment]] = {}
    for each in workload.ratios:
        if isinstance(each, SecondMoment):
            pairs = sets.setdefault(each.terms, {})
            if each.kind in ("variance", "covariance") and not each.lost:
                pairs[each.columns] = pairs[each.columns[::-1]] = each
    for terms, pairs in sets.items():
        names = workload.terms[terms[0]].attributes
        declared = {n for n in names if workload.domain[n].columns == (n,)}
        if declared == attributes and all((a, b) in pairs for a in columns for b in columns):
            return pairs
    by_words = f", by={list(by)!r}" if by else ""
    raise WorkloadError(
        f"the moments of {listing(list(columns))} were not released"
        f"{' by ' + listing(list(by)) if by else ''}; plan sf.moments(domain, "
        f"{list(columns)!r}{by_words}), beside whatever else is asked"
    )


@dataclass(frozen=True, eq=False)
class _Fits:
    """The fits of all groups, from the moments of pairs of columns."""

    estimates: LinearEstimates
    pairs: dict[tuple[str, str], SecondMoment]
    x: Sequence[str]
    y: str
    level: float

    def regression(self, release: Release) -> Regression:
        import pandas as pd

        some = self.pairs[self.y, self.y]
        labels = columns_of(key_term(release.workload, some))
        unbiased = [np.asarray(self.estimates.unbiased[t], dtype=np.float64) for t in some.terms]
        answers = np.stack(unbiased, axis=1)
        law = joint_law(self.estimates, some.terms, with_tails=False)
        coefficients, fits, problems = [], [], []
        for i, moments in enumerate(answers):
            own = {name: column[i] for name, column in labels.items()}
            covariance = None if law is None else self._stretched(law.squares[i])
            fit = _Fit(self._products(), moments, covariance, self.level)
            where = ", ".join(f"{k} = {v}" for k, v in own.items()) or "the table"
            if not fit.is_definite:
                problems.append(
                    f"{where}: the released moments are those of no table, noise outweighs them; "
                    "take fewer columns, larger groups, narrower ranges or more budget"
                )
            for j, term in enumerate([INTERCEPT, *self.x]):
                numbers = self._in_units(j, fit.coefficient(j))
                columns = ("coefficient", "standard_error", "low", "high")
                coefficients.append(own | {"term": term} | dict(zip(columns, numbers, strict=True)))
            share, low, high = fit.r_squared()
            number = float(moments @ self._products()[0, 0])
            fits.append(own | {"count": number, "r_squared": share, "low": low, "high": high})
        return Regression(pd.DataFrame(coefficients), pd.DataFrame(fits), tuple(problems))

    def _stretched(self, covariance: Array) -> Array:
        """The covariances; for Laplace noise so much larger that normal quantiles hold."""
        wide = widest_quantile(self.estimates.forecast, self.level)
        return np.asarray(covariance * (wide / NormalDist().inv_cdf((1 + self.level) / 2)) ** 2)

    def _products(self) -> Array:
        """The sums of products of 1, ``x / half`` and ``(y - middle) / half``, as linear functions.

        ``[i, j]`` are coefficients of the released moments. Columns are not moved: the intercept
        is then a coefficient as all others.
        """
        names = [*self.x, self.y]
        k = len(names) + 1
        number = np.array(self.pairs[self.y, self.y].forms[0])
        plain = np.zeros((k, k, len(number)))
        plain[0, 0] = number
        for i, a in enumerate(names, 1):
            plain[i, 0] = plain[0, i] = np.array(self.pairs[a, a].forms[1])
            for j, b in enumerate(names, 1):
                plain[i, j] = np.array(self.pairs[a, b].forms[3])
        moved = np.eye(k)
        for i, a in enumerate(self.x, 1):
            one = self.pairs[a, a]
            moved[i, 0] = one.middles[0] / one.halves[0]
        return np.asarray(np.einsum("ia,jb,abt->ijt", moved, moved, plain))

    def _in_units(self, j: int, numbers: tuple[float, ...]) -> tuple[float, ...]:
        """A coefficient with its error and ends in the units of the columns."""
        y = self.pairs[self.y, self.y]
        value, error, low, high = numbers
        if j == 0:
            middle, half = y.middles[0], y.halves[0]
            return middle + half * value, half * error, middle + half * low, middle + half * high
        x = self.pairs[self.x[j - 1], self.x[j - 1]]
        scale = y.halves[0] / x.halves[0]
        return scale * value, scale * error, scale * low, scale * high


class _Fit:
    """One fit: ``products[i, j]`` are the linear functions whose values are the moments."""

    def __init__(
        self, products: Array, answers: Array, covariance: Array | None, level: float
    ) -> None:
        self.products, self.covariance, self.level = products, covariance, level
        self.answers = answers
        self.matrix = np.asarray(products @ answers)
        self.k = len(self.matrix) - 1  # regressors; the last is y
        scale = np.sqrt(np.maximum(np.diagonal(self.matrix), 1e-300))
        values = np.linalg.eigvalsh(self.matrix / np.outer(scale, scale))
        self.is_definite = bool(values[0] > 0 and np.isfinite(values).all())
        self.beta = LIMITS.nuisance_share * (1 - level)

    def coefficient(self, j: int) -> tuple[float, float, float, float]:
        """Value, standard error and ends of coefficient j."""
        if not self.is_definite:
            return np.nan, np.nan, -np.inf, np.inf
        own = range(self.k)
        others = [i for i in own if i != j]
        b, b_spread = self._explained(self.k, list(own))
        w, w_spread = self._explained(j, others)
        above, below = self._equation(j, others, w, np.delete(b, j))
        value = float(b[j])
        if self.covariance is None:
            return value, np.nan, -np.inf, np.inf
        law = JointLaw(self.covariance[None], None).pair(above, below)
        total, number = (np.array([c @ self.answers]) for c in (above, below))
        low, high = law.interval(total, number, self.level + self.beta)
        error = float(np.sqrt(law.second(np.array([value]))[0]) / abs(number[0]))
        rest, among = self.matrix[np.ix_(others, others)], np.ix_(others, others)
        shift = sqrt(
            _square_bound(rest, w_spread, self.beta / 2)
            * _square_bound(rest, b_spread[among], self.beta / 2)
        )
        slack = shift / float(number[0]) if number[0] > 0 else np.inf
        return value, error, float(low[0]) - slack, float(high[0]) + slack

    def r_squared(self) -> tuple[float, float, float]:
        """R^2 and its ends, between 0 and 1."""
        if not self.is_definite:
            return np.nan, 0.0, 1.0
        b, spread = self._explained(self.k, list(range(self.k)))
        about_fit = np.append(-b, 1.0)
        mean = self.matrix[0, self.k] / self.matrix[0, 0]
        about_mean = np.zeros(self.k + 1)
        about_mean[0], about_mean[self.k] = -mean, 1.0
        above, below = (
            np.einsum("i,j,ijt->t", v, v, self.products) for v in (about_fit, about_mean)
        )
        left, whole = float(above @ self.answers), float(below @ self.answers)
        value = float(np.clip(1 - left / whole, 0.0, 1.0))
        if self.covariance is None:
            return value, 0.0, 1.0
        law = JointLaw(self.covariance[None], None).pair(above, below)
        low, high = law.interval(np.array([left]), np.array([whole]), self.level + self.beta)
        slack = _square_bound(self.matrix[: self.k, : self.k], spread, self.beta) / whole
        ends = 1 - float(high[0]) - slack, 1 - float(low[0]) + slack
        return value, float(np.clip(ends[0], 0.0, value)), float(np.clip(ends[1], value, 1.0))

    def _explained(self, target: int, others: Sequence[int]) -> tuple[Array, Array]:
        """Coefficients of one column by others, and their covariances to first order."""
        if not others:
            return np.zeros(0), np.zeros((0, 0))
        inverse = np.linalg.inv(self.matrix[np.ix_(others, others)])
        b = inverse @ self.matrix[others, target]
        # The change of M b = g: M db = dg - dM b.
        inner = self.products[others, target] - np.einsum(
            "ijt,j->it", self.products[np.ix_(others, others)], b
        )
        rows = inverse @ inner
        if self.covariance is None:
            return b, np.full((len(b), len(b)), np.nan)
        return b, np.asarray(rows @ self.covariance @ rows.T)

    def _equation(self, j: int, others: Sequence[int], w: Array, b: Array) -> tuple[Array, Array]:
        """Both sides of ``w'(g - M b) = 0`` for b_j, with w_j = 1 and the rest fixed."""
        full = np.zeros(self.k)
        full[j] = 1.0
        full[list(others)] = -w
        rest = self.products[: self.k, self.k] - np.einsum(
            "ijt,j->it", self.products[: self.k][:, list(others)], b
        )
        return full @ rest, full @ self.products[: self.k, j]


def _square_bound(matrix: Array, spread: Array, beta: float) -> float:
    """What ``d'Md`` exceeds with chance ``beta`` at most, d normal with covariances ``spread``.

    Laurent and Massart 2000, Lemma 1, with the eigenvalues of ``M^1/2 spread M^1/2``.
    """
    if not len(matrix):
        return 0.0
    t = log(1 / beta)
    root = np.linalg.cholesky(matrix)
    values = np.maximum(np.linalg.eigvalsh(root.T @ spread @ root), 0.0)
    return float(values.sum() + 2 * sqrt(t * float((values**2).sum())) + 2 * t * values.max())
