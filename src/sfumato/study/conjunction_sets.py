# SPDX-License-Identifier: Apache-2.0
"""Remark 2.4 of the notes on factorization, in numbers: what a bias is worth for 2^d conjunctions.

Errors against the number d of attributes, the number n of records and the bias alpha, each the
least of all factorizations with a certificate (``strategy/degrees.py``): in seconds up to d = 30
and beyond, as no matrix has more than d + 1 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np

from sfumato.errors import PlanError
from sfumato.strategy.degrees import best_shares, least_gamma, optimal_error
from sfumato.study.study_limits import LIMITS

__all__ = [
    "ConjunctionError",
    "conjunction_errors",
]


@dataclass(frozen=True, slots=True)
class ConjunctionError:
    """One row of ``conjunction_errors``; all errors are root mean squares in counts.

    Args:
        attributes: d.
        records: n.
        alpha: The bias, per record, as a root mean square over the queries in the worst case.
        error: The least error of all factorizations, at this bias or at the best one.
        lower: A proved bound below ``error``.
        exact: The least error of all factorizations without bias.
        by_degrees: The error of what a plan with ``allow_bias`` measures: characters, with one
            share for each degree. It has its own bias; NaN where alpha was given.
    """

    attributes: int
    records: int
    alpha: float
    error: float
    lower: float
    exact: float
    by_degrees: float


def conjunction_errors(
    attributes: int | Sequence[int],
    records: int | Sequence[int],
    alphas: float | Sequence[float] | None = None,
    loss: float = 1.0,
    ways: int | None = None,
    tolerance: float = 1e-2,
) -> list[ConjunctionError]:
    """The error of all monotone conjunctions of d attributes, against d, n and the bias alpha.

    Without bias the error of all 2^d is ``((1 + sqrt 5) / sqrt 8)^d / mu = 1.1441^d / mu`` for any
    number of records; with one it is at most ``n sqrt(alpha^2 + gamma_alpha^2 / (mu n)^2)``.

    Args:
        attributes: d, or several.
        records: n, or several: at most so many records are in the table.
        alphas: Biases per record; None for the one of least error.
        loss: mu of the Gaussian noise, for neighbours that differ by one record more or less.
        ways: All conjunctions of so many attributes; None for all 2^d.
        tolerance: How far an error may be above the least, relatively; ``lower`` says how far it
            is.

    Returns:
        A row for every d, n and alpha, in this order.

    Raises:
        PlanError: An argument is out of range.

    >>> import sfumato as sf
    >>> row = sf.study.conjunction_errors(20, 100)[0]
    >>> round(row.exact, 1), round(row.error), row.lower <= row.error <= row.by_degrees
    (14.8, 8, True)
    """
    every = _listed(attributes, "attributes", 1, LIMITS.conjunction_attributes)
    sizes = _listed(records, "records", 1, 10**15)
    if not (isinstance(loss, int | float) and isfinite(loss) and loss > 0):
        raise PlanError(f"loss is the mu of the noise, a number above 0, got {loss!r}")
    biases: list[float | None] = [None]
    if alphas is not None:
        biases = [alphas] if isinstance(alphas, int | float) else list(alphas)
    for alpha in biases:
        if alpha is not None and not (isfinite(alpha) and alpha >= 0):
            raise PlanError(f"alpha is a bias per record and must be at least 0, got {alpha!r}")
    out = []
    for d in every:
        weights = _weights(d, ways)
        exact = least_gamma(weights, 0.0, tolerance).error / loss
        for alpha in biases:
            gamma = None if alpha is None else least_gamma(weights, alpha, tolerance)
            for n in sizes:
                tau = (loss * n) ** -2.0
                if gamma is None:
                    best = optimal_error(weights, tau, tolerance)
                    degrees = sqrt(best_shares(np.array(weights), tau).error)
                    bias, error, lower = best.bias, best.error, best.lower
                else:
                    bias, degrees = gamma.bias, float("nan")
                    error = sqrt(bias**2 + tau * gamma.error**2)
                    lower = sqrt(bias**2 + tau * gamma.lower**2)
                out.append(ConjunctionError(d, n, bias, n * error, n * lower, exact, n * degrees))
    return out


def _weights(d: int, ways: int | None) -> list[float]:
    if ways is None:
        return [1.0] * (d + 1)
    if isinstance(ways, bool) or not isinstance(ways, int) or not 0 <= ways <= d:
        raise PlanError(f"conjunctions of {ways!r} of {d} attributes; allowed are 0 to {d}")
    return [float(w == ways) for w in range(d + 1)]


def _listed(values: int | Sequence[int], what: str, least: int, most: int) -> list[int]:
    out = [values] if isinstance(values, int) else list(values)
    for value in out:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise PlanError(f"{what} are whole numbers from {least:,} to {most:,}, got {value!r}")
    return out
