# SPDX-License-Identifier: Apache-2.0
"""The error bounds of the lecture notes, as formulas: Laplace and Gaussian noise, noisy tables.

Each function returns an error, or the number of rows that reaches one. All are for normalised
answers (fractions of n records) to k counting queries, with probability ``1 - beta`` for all
queries at once unless said otherwise. They are what ``compare`` draws beside the exact forecasts.
"""

from __future__ import annotations

from math import ceil, log, sqrt

from sfumato.errors import PlanError

__all__ = [
    "gaussian_error",
    "gaussian_rows_needed",
    "laplace_error",
    "laplace_rows_needed",
    "table_error",
    "table_rows_needed",
]


def laplace_error(k: int, n: int, epsilon: float, beta: float, sensitivity: float) -> float:
    """``ln(k / beta) Delta_1 / (epsilon n)`` (Dwork, Roth 2014, Theorem 3.8).

    Args:
        k: How many queries there are.
        n: How many records there are.
        epsilon: The privacy parameter.
        beta: The probability with which the bound may fail.
        sensitivity: How far one record moves the answers, in L1.

    Returns:
        The bound, as a share of the records.

    Raises:
        PlanError: An argument is out of range.
    """
    _check(k=k, n=n, epsilon=epsilon, beta=beta, sensitivity=sensitivity)
    return log(k / beta) * sensitivity / (epsilon * n)


def laplace_rows_needed(
    k: int, alpha: float, epsilon: float, beta: float, sensitivity: float
) -> int:
    """The least n for which ``laplace_error`` is at most alpha.

    Args:
        k: How many queries there are.
        alpha: An error, as a share of the records.
        epsilon: The privacy parameter.
        beta: The probability with which the bound may fail.
        sensitivity: How far one record moves the answers, in L1.

    Returns:
        A number of records.

    Raises:
        PlanError: An argument is out of range.
    """
    _check(k=k, alpha=alpha, epsilon=epsilon, beta=beta, sensitivity=sensitivity)
    return ceil(log(k / beta) * sensitivity / (epsilon * alpha))


def gaussian_error(k: int, n: int, mu: float, beta: float, sensitivity: float) -> float:
    """``sqrt(2 ln(2 k / beta)) Delta_2 / (mu n)``: Gaussian tails and a union bound.

    Args:
        k: How many queries there are.
        n: How many records there are.
        mu: The privacy parameter.
        beta: The probability with which the bound may fail.
        sensitivity: How far one record moves the answers, in L2.

    Returns:
        The bound, as a share of the records.

    Raises:
        PlanError: An argument is out of range.
    """
    _check(k=k, n=n, mu=mu, beta=beta, sensitivity=sensitivity)
    return sqrt(2 * log(2 * k / beta)) * sensitivity / (mu * n)


def gaussian_rows_needed(k: int, alpha: float, mu: float, beta: float, sensitivity: float) -> int:
    """The least n for which ``gaussian_error`` is at most alpha.

    Args:
        k: How many queries there are.
        alpha: An error, as a share of the records.
        mu: The privacy parameter.
        beta: The probability with which the bound may fail.
        sensitivity: How far one record moves the answers, in L2.

    Returns:
        A number of records.

    Raises:
        PlanError: An argument is out of range.
    """
    _check(k=k, alpha=alpha, mu=mu, beta=beta, sensitivity=sensitivity)
    return ceil(sqrt(2 * log(2 * k / beta)) * sensitivity / (mu * alpha))


def table_error(
    k: int, cells: int, n: int, epsilon: float, beta: float, greatest: float = 1.0
) -> float:
    """Queries summed from a table of Laplace counts: at most ``cells`` draws of scale 1/epsilon.

    Chan, Shi, Song 2011, Corollary 2.9 with nu^2 = max(cells, ln(2k/beta)) / epsilon^2, and a union
    bound: ``sqrt(8 ln(2k/beta) max(cells, ln(2k/beta))) / (epsilon n)``, for coefficients up to 1;
    the draws of a query with coefficients up to ``greatest`` are as much larger.

    Args:
        k: How many queries there are.
        cells: How many cells the table has.
        n: How many records there are.
        epsilon: The privacy parameter.
        beta: The probability with which the bound may fail.
        greatest: The greatest coefficient of a query.

    Returns:
        The bound, as a share of the records.

    Raises:
        PlanError: An argument is out of range.
    """
    _check(k=k, cells=cells, n=n, epsilon=epsilon, beta=beta, greatest=greatest)
    per_query = log(2 * k / beta)
    return greatest * sqrt(8 * per_query * max(cells, per_query)) / (epsilon * n)


def table_rows_needed(
    k: int, cells: int, alpha: float, epsilon: float, beta: float, greatest: float = 1.0
) -> int:
    """The least n for which ``table_error`` is at most alpha.

    Args:
        k: How many queries there are.
        cells: How many cells the table has.
        alpha: An error, as a share of the records.
        epsilon: The privacy parameter.
        beta: The probability with which the bound may fail.
        greatest: The greatest coefficient of a query.

    Returns:
        A number of records.

    Raises:
        PlanError: An argument is out of range.
    """
    _check(alpha=alpha)
    return ceil(table_error(k, cells, 1, epsilon, beta, greatest) / alpha)


def _check(**parameters: float) -> None:
    for name, value in parameters.items():
        if not value > 0 or (name == "beta" and value >= 1):
            allowed = "between 0 and 1" if name == "beta" else "above 0"
            raise PlanError(f"{name} must be {allowed}, got {value!r}")
