# SPDX-License-Identifier: Apache-2.0
"""From reports to counts and answers: the unbiased estimate, its covariance, its intervals.

The second step of the local model, at the collector. Reports are already private, so everything
here is arithmetic on public numbers and costs nothing more.

S. Warner, 1965, "Randomized response: a survey technique for eliminating evasive answer bias";
P. Kairouz, K. Bonawitz, D. Ramage, 2016, "Discrete distribution estimation under local privacy";
Y.-X. Wang, lecture notes "Sparse vector technique and linear query release".
Proofs of unbiasedness and of the covariance: docs/proofs/randomized-response.md, Claims 2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from sfumato.errors import PlanError, SchemaError, TooLarge
from sfumato.local.accuracy import (
    Floats,
    Interval,
    centred,
    checked_queries,
    forecast_radius,
    normal_quantile,
)
from sfumato.local.randomized_response import Codes, RandomizedResponse, checked_codes

__all__ = [
    "LARGEST_COVARIANCE",
    "LocalAnswers",
    "LocalEstimate",
    "estimate",
    "estimate_from_tally",
]

LARGEST_COVARIANCE = 4096
"""Most cells for which the covariance is written out as a matrix (128 MB)."""


@dataclass(frozen=True, slots=True, eq=False)
class LocalAnswers:
    """Answers to linear queries, one entry for each query: value, standard error, low, high.

    ``confidence`` is that of each interval, or of all of them at once when ``simultaneous``.
    """

    value: Floats
    standard_error: Floats
    low: Floats
    high: Floats
    confidence: float
    interval: Interval
    simultaneous: bool


@dataclass(frozen=True, slots=True, eq=False)
class LocalEstimate:
    """Unbiased counts from reports: ``(tally - other n) / gap``, which sum to n exactly.

    For one bit this is n times the notes' ``0.5 + (Y - 0.5) / (2p - 1)`` averaged over clients.
    Counts may be negative or exceed n; that is the price of being unbiased.
    """

    response: RandomizedResponse
    tally: Codes

    @property
    def rows(self) -> int:
        """n, the number of reports; public in the local model."""
        return int(self.tally.sum())

    @property
    def counts(self) -> Floats:
        """The unbiased estimate of the histogram, one entry for each cell."""
        response = self.response
        # tally - n other = (tally - n/size) + n gap/size, because gap + size other = 1. In this
        # form the large numbers cancel as exact integers, before the division by a small gap.
        deviation = (self.tally * response.size - self.rows) / response.size
        return deviation / float(response.gap) + self.rows / response.size

    def covariance(self) -> Floats:
        """Unbiased estimate of the covariance of ``counts`` given the data: shape (size, size).

        Error: ``C diag(gap other n + (1 - gap) tally) C / gap^2`` with ``C = I - J/size``.
        """
        return self._centred_diagonal(self._cell_weights())

    def covariance_bound(self) -> Floats:
        """A matrix above the covariance of ``counts`` in Loewner order, whatever the data.

        Error: ``n (other + gap (1 - gap)) / gap^2 * C`` with ``C = I - J/size``.
        """
        other, gap = float(self.response.other), float(self.response.gap)
        weight = self.rows * (other + gap * (1 - gap)) / gap**2
        return self._centred_diagonal(np.full(self.response.size, weight))

    def answer(
        self,
        queries: npt.ArrayLike,
        confidence: float = 0.95,
        interval: Interval = "finite",
        simultaneous: bool = False,
    ) -> LocalAnswers:
        """Answer ``q . h`` for each row q of ``queries``: unbiased, with error bars.

        The standard error is the root of an unbiased estimate of the variance given the data.
        The interval is ``value +- forecast_radius`` (valid for every n and every data set), or
        ``value +- z * standard error`` when ``interval`` is "normal". ``simultaneous`` splits the
        failure probability evenly over the queries (union bound).

        >>> answers = estimate_from_tally(RandomizedResponse(1, 2), [400, 600]).answer([[0, 1]])
        >>> [round(float(x[0]), 1) for x in (answers.value, answers.low, answers.high)]
        [716.4, 631.3, 801.5]
        """
        matrix = checked_queries(self.response, queries)
        if not 0 < confidence < 1:
            raise PlanError(f"confidence is {confidence}; it must lie between 0 and 1, e.g. 0.95")
        beta = (1 - confidence) / (len(matrix) if simultaneous else 1)
        value = matrix @ self.counts
        standard_error = np.sqrt(centred(matrix) ** 2 @ self._cell_weights())
        if interval == "normal":
            radius = normal_quantile(beta) * standard_error
        else:
            radius = forecast_radius(self.response, matrix, self.rows, beta, interval)
        return LocalAnswers(
            value=value,
            standard_error=standard_error,
            low=value - radius,
            high=value + radius,
            confidence=confidence,
            interval=interval,
            simultaneous=simultaneous,
        )

    def _cell_weights(self) -> Floats:
        """``(gap other n + (1 - gap) tally) / gap^2``: no entry is negative, whatever the tally."""
        other, gap = float(self.response.other), float(self.response.gap)
        weights = (gap * other * self.rows + (1 - gap) * self.tally) / gap**2
        return cast(Floats, weights)

    def _centred_diagonal(self, weights: Floats) -> Floats:
        """``C diag(weights) C`` with ``C = I - J/size``."""
        size = self.response.size
        if size > LARGEST_COVARIANCE:
            raise TooLarge(
                f"a covariance of {size} x {size} cells was asked; at most {LARGEST_COVARIANCE} "
                "cells are written out; ask for the standard errors of the queries instead"
            )
        matrix = np.diag(weights)
        matrix -= weights / size
        matrix -= weights[:, None] / size
        matrix += weights.sum() / size**2
        return matrix


def estimate(response: RandomizedResponse, reports: npt.ArrayLike) -> LocalEstimate:
    """``h = (tally(reports) - other n) / gap``: unbiased counts from the clients' reports.

    Privacy: post-processing of reports that are each epsilon-locally private; costs nothing.
    Neighbours: the code of one client replaced by any other.
    """
    flat = checked_codes(reports, response.size, "reports").reshape(-1)
    return _frozen_estimate(response, np.bincount(flat, minlength=response.size))


def estimate_from_tally(response: RandomizedResponse, tally: npt.ArrayLike) -> LocalEstimate:
    """The same from the number of reports of each code, for a collector that keeps sums only.

    Privacy: post-processing, costs nothing. Neighbours: as in ``estimate``.
    """
    array = np.asarray(tally)
    if array.shape != (response.size,) or array.dtype.kind not in "iu":
        raise SchemaError(
            f"tally has shape {array.shape} and type {array.dtype}; allowed is one integer for "
            f"each of the {response.size} codes"
        )
    if bool((array < 0).any()):
        raise SchemaError("tally holds a negative number of reports; give numbers of reports")
    return _frozen_estimate(response, array)


def _frozen_estimate(response: RandomizedResponse, tally: npt.NDArray[np.integer]) -> LocalEstimate:
    own = tally.astype(np.int64)
    own.setflags(write=False)
    return LocalEstimate(response, own)
