# SPDX-License-Identifier: Apache-2.0
"""The error of any linear combination of answers, and the covariances of chosen ones.

Answers share measured values, so their errors are not independent. A combination ``c'a`` of the
answers ``a = R y`` has the error ``(R'c)'z``: with ``R'c`` (``Strategy.adjoint``) and the noise
variance of every block, its law is known before anything is spent, without R.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.plan.bias.folded import folded_normal_quantile
from sfumato.plan.forecast import Forecast
from sfumato.privacy.noise_laws import laplace_mixture_quantile
from sfumato.wording import did_you_mean, listing, shown
from sfumato.workload.queries import Array, Integers, check_entries

__all__ = ["Coefficients", "CombinationError", "answer_covariance", "combination_error", "read"]

MOST_LISTED = 4096  # answers of one covariance matrix

Coefficients = Mapping[int, float] | Sequence[float] | Array


@dataclass(frozen=True, slots=True)
class CombinationError:
    """The law of the error of a combination; ``shape`` is how many equal draws it is like.

    ``bias`` bounds how far its mean is off, where the strategy is biased.
    """

    standard_error: float
    shape: float
    bias: float = 0.0

    def half_width(self, level: float) -> float:
        """Half the width of the interval that holds the truth with probability ``level``.

        Exact for Gaussian noise (up to the grid) and for single Laplace draws or sums of equal
        ones; kurtosis-matched for other sums of Laplace draws.
        """
        if self.bias > 0:
            if self.standard_error == 0:
                return self.bias
            ratio = np.array([self.bias / self.standard_error])
            return self.standard_error * float(folded_normal_quantile(ratio, level)[0])
        quantile = laplace_mixture_quantile(np.array([self.shape]), level)
        return self.standard_error * float(quantile[0])


def combination_error(
    forecast: Forecast, coefficients: Mapping[str, Coefficients]
) -> CombinationError:
    """``sqrt(sum_j v_j (R'c)_j^2)`` over all measured values j, of answers of one or more groups.

    ``coefficients`` has, for every group by name, a number per answer in the order of the answers,
    or a mapping from numbers of answers to coefficients.
    """
    weights: dict[int, Array] = {}
    bias, records = 0.0, forecast.strategy.records
    for term, c in read(forecast, coefficients).items():
        if records is not None:
            bias += records * float(np.abs(c) @ forecast.strategy.bias_bounds(term))
        for b, found in forecast.strategy.adjoint(term, c).items():
            weights[b] = weights[b] + found if b in weights else found
    squares = {b: w**2 * forecast.block_variances[b] for b, w in weights.items()}
    second = sum(float(e.sum()) for e in squares.values())
    fourth = sum(float((e**2).sum()) for e in squares.values())
    is_gaussian = forecast.strategy.noise == "gaussian" or fourth == 0
    return CombinationError(sqrt(second), np.inf if is_gaussian else second**2 / fourth, bias)


def answer_covariance(forecast: Forecast, group: str, queries: Sequence[int]) -> Array:
    """The covariance matrix of the listed answers of one group, in counts squared."""
    term = _term(forecast, group)
    listed = np.asarray(queries)
    if listed.ndim != 1 or listed.dtype.kind not in "iu" or not 0 < len(listed) <= MOST_LISTED:
        raise WorkloadError(
            f"covariances are of a list of 1 to {MOST_LISTED:,} numbers of answers, got "
            f"{shown(queries)}; ask about fewer answers at a time"
        )
    _check_places(forecast, term, listed)
    places = [int(q) for q in listed]
    return forecast.strategy.covariance(term, places, forecast.block_variances)


def read(forecast: Forecast, coefficients: Mapping[str, Coefficients]) -> dict[int, Array]:
    """A number per answer of every named group; WorkloadError where they do not fit."""
    if not isinstance(coefficients, Mapping) or not coefficients:
        raise WorkloadError(
            "a combination takes coefficients for each group, {'age x sex': [...]}, got "
            f"{shown(coefficients)}"
        )
    return {
        term: _vector(forecast, term, given)
        for term, given in ((_term(forecast, name), c) for name, c in coefficients.items())
    }


def _term(forecast: Forecast, group: str) -> int:
    names = [t.name for t in forecast.workload.terms]
    if group not in names:
        means = [r.name for r in forecast.workload.ratios]
        note = "a mean is not linear: combine its sum and its count" if group in means else ""
        raise WorkloadError(
            f"no group of linear queries is called {shown(group)}; there are: "
            f"{listing(names, 30)}{note and '; ' + note}{did_you_mean(group, names)}"
        )
    return names.index(group)


def _vector(forecast: Forecast, term: int, given: Coefficients) -> Array:
    asked = forecast.workload.terms[term]
    check_entries(asked.rows, f"the coefficients of {asked.rows:,} answers")
    if isinstance(given, Mapping):
        _check_places(forecast, term, np.array(list(given)))
        out = np.zeros(asked.rows)
        out[np.array(list(given), dtype=np.int64)] = _numbers(asked.name, list(given.values()))
        return out
    c = _numbers(asked.name, given)
    if c.shape != (asked.rows,):
        raise WorkloadError(
            f"group {asked.name!r} has {asked.rows:,} answers, got coefficients of shape "
            f"{c.shape}; give one per answer, or a mapping from numbers of answers"
        )
    return c


def _check_places(forecast: Forecast, term: int, places: Integers) -> None:
    rows, name = forecast.workload.terms[term].rows, forecast.workload.terms[term].name
    is_whole = places.dtype.kind in "iu"
    if len(places) and not (is_whole and places.min() >= 0 and places.max() < rows):
        raise WorkloadError(
            f"the answers of group {name!r} are numbered 0 to {rows - 1:,}, got {shown(places)}"
        )


def _numbers(name: str, given: object) -> Array:
    try:
        c = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        c = np.array(np.nan)
    if not np.isfinite(c).all():
        raise WorkloadError(f"the coefficients of group {name!r} must be finite numbers")
    return c
