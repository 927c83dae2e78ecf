# SPDX-License-Identifier: Apache-2.0
"""The error bounds of the lecture notes, as formulas, and the sample sizes of their theorems.

Each function returns an error, or the number of rows that reaches one. All are for normalised
answers (fractions of n records) to k counting queries, with probability ``1 - beta`` for all
queries at once unless said otherwise: root mean squares are said to be. They are what ``compare``
draws beside the exact forecasts; `sample_sizes` lists all of them side by side, and
`conjunction_errors` says what a bias is worth for 2^d conjunctions (Remark 2.4 on factorization).

`lower_bound` returns an error that no private mechanism can stay below, whatever it does. The
certificate of a plan compares it with the best factorization. This bound holds for every
mechanism: biased, not linear, adaptive to the data, of any noise. It is the argument of discrepancy
(Muthukrishnan, Nikolov 2012, "Optimal private halfspace counting via discrepancy"; Nikolov, Talwar,
Zhang 2013, "The geometry of differential privacy: the small database and approximate cases") in the
form of an estimation problem, with its constants: directions are sought in which the data can move
by few records while answers move far and not alike. Proof: docs/proofs/lower-bounds.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, exp, expm1, isfinite, log, log2, sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import eigh, eigvalsh, qr

from sfumato.errors import PlanError, TooLarge
from sfumato.privacy.budget import Budget, check_neighbours
from sfumato.strategy.degrees import best_shares, least_gamma, optimal_error
from sfumato.study.matrix_norms import dense_queries
from sfumato.study.study_limits import LIMITS
from sfumato.types import Array, Integers, Neighbours

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ConjunctionError",
    "LowerBound",
    "approximate_rows_needed",
    "conjunction_errors",
    "factorization_rows_needed",
    "gaussian_error",
    "gaussian_rows_needed",
    "laplace_error",
    "laplace_rows_needed",
    "lower_bound",
    "projection_error",
    "projection_rows_needed",
    "sample_sizes",
    "sparse_error",
    "sparse_rows_needed",
    "table_error",
    "table_rows_needed",
    "tree_error",
    "tree_rows_needed",
    "unit_error",
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


def tree_error(d: int, n: int, epsilon: float) -> float:
    """The root mean square error of intervals by the binary tree with Laplace noise, at most.

    ``2 sqrt(l) (l + 1) / (epsilon n)`` with ``l = ceil(log2 d)``: an interval is the sum of at most
    2 l nodes, each with noise ``Lap((l + 1) / epsilon)`` (Brown, Question 4). Least squares, as in
    `binary_tree`, errs less.

    Args:
        d: How many cells there are.
        n: How many records there are.
        epsilon: The privacy parameter.

    Returns:
        The bound, as a share of the records.

    Raises:
        PlanError: An argument is out of range.
    """
    _check(d=d, n=n, epsilon=epsilon)
    levels = max(1, ceil(log2(d)))
    return 2 * sqrt(levels) * (levels + 1) / (epsilon * n)


def tree_rows_needed(d: int, alpha: float, epsilon: float) -> int:
    """The least n for which ``tree_error`` is at most alpha.

    Args:
        d: How many cells there are.
        alpha: A root mean square error, as a share of the records.
        epsilon: The privacy parameter.

    Returns:
        A number of records.

    Raises:
        PlanError: An argument is out of range.
    """
    _check(alpha=alpha)
    return ceil(tree_error(d, 1, epsilon) / alpha)


def factorization_rows_needed(gamma: float, alpha: float, mu: float, moved: float = 1.0) -> int:
    """The least n with a root mean square error of alpha (Smith, Ullman, Theorem 2.3).

    ``gamma(F) / (mu alpha)`` times how far neighbours move M beside its longest column: 1 where a
    record is added, at most 2 where one is replaced (equation (8)).

    Args:
        gamma: The factorization norm of the queries.
        alpha: A root mean square error, as a share of the records.
        mu: The privacy parameter: 1 / c_{epsilon,delta}.
        moved: 1, or 2 for replaced records.

    Returns:
        A number of records.

    Raises:
        PlanError: An argument is out of range.
    """
    _check(gamma=gamma, alpha=alpha, mu=mu, moved=moved)
    return ceil(moved * gamma / (mu * alpha))


def approximate_rows_needed(
    gamma: float, bias: float, alpha: float, mu: float, moved: float = 1.0
) -> int:
    """The least n with a root mean square error of alpha (Smith, Ullman, Theorem 2.6).

    ``gamma_bias(F) / (mu (alpha - bias))``: what the bias leaves is the noise's.

    Args:
        gamma: The approximate factorization norm at this bias.
        bias: The bias of the factorization, below alpha.
        alpha: A root mean square error, as a share of the records.
        mu: The privacy parameter.
        moved: 1, or 2 for replaced records.

    Returns:
        A number of records.

    Raises:
        PlanError: An argument is out of range, or the bias is not below alpha.
    """
    if not 0 <= bias < alpha:
        raise PlanError(f"the bias must be at least 0 and below alpha, got {bias!r} and {alpha!r}")
    return factorization_rows_needed(gamma, alpha - bias, mu, moved)


def projection_error(
    k: int, cells: int, n: int, mu: float, width: float | None = None, sensitivity: float = 0.0
) -> float:
    """The root mean square error of the projection mechanism (Theorems 4 and 8; Theorem 3.1).

    ``sqrt(Delta_2 l*(K) / (mu k n))`` with ``l*(K) <= sqrt(2 k ln m)`` and ``Delta_2 <= sqrt(k)``:
    ``(sqrt(2 ln m) / (mu n))^(1/2)`` whatever the number of queries; and never more than the
    noise's, ``Delta_2 / (mu n)``.

    Args:
        k: How many queries there are.
        cells: m, how many cells there are.
        n: How many records there are.
        mu: The privacy parameter.
        width: The Gaussian width of the hull (Theorem 8); that of the proof of Theorem 4 if None.
        sensitivity: How far neighbours move the answers, in L2; ``sqrt(k)`` if 0.

    Returns:
        The bound, as a share of the records.

    Raises:
        PlanError: An argument is out of range.
    """
    _check(k=k, cells=cells, n=n, mu=mu)
    moved = sensitivity or sqrt(k)
    reach = sqrt(2 * k * log(cells)) if width is None else width
    if moved < 0 or reach < 0:
        raise PlanError(f"width and sensitivity must be at least 0, got {width!r}, {sensitivity!r}")
    return min(sqrt(moved * reach / (mu * k * n)), moved / (mu * n))


def projection_rows_needed(
    k: int,
    cells: int,
    alpha: float,
    mu: float,
    width: float | None = None,
    sensitivity: float = 0.0,
) -> int:
    """The least n for which ``projection_error`` is at most alpha (Nikolov, Theorems 4 and 8).

    Args:
        k: How many queries there are.
        cells: m, how many cells there are.
        alpha: A root mean square error, as a share of the records.
        mu: The privacy parameter.
        width: As in `projection_error`.
        sensitivity: As in `projection_error`.

    Returns:
        A number of records.

    Raises:
        PlanError: An argument is out of range.
    """
    _check(alpha=alpha, k=k, cells=cells, mu=mu)
    moved = sensitivity or sqrt(k)
    reach = sqrt(2 * k * log(cells)) if width is None else width
    by_width, by_noise = moved * reach / (mu * k * alpha**2), moved / (mu * alpha)
    return max(1, ceil(min(by_width, by_noise)))


def sparse_error(k: int, n: int, epsilon: float, beta: float, c: int = 1) -> float:
    """``8 c (ln k + ln(2 c / beta)) / (epsilon n)``: all tests of SparseVector are right up to it.

    Dwork, Roth 2014, Theorems 3.24 and 3.26 for queries of sensitivity 1/n. `sparse_vector` knows
    the least such number for its noise.

    Args:
        k: How many queries are tested.
        n: How many records there are.
        epsilon: The privacy parameter.
        beta: The probability with which the bound may fail.
        c: How many discoveries there may be.

    Returns:
        The bound, as a share of the records.

    Raises:
        PlanError: An argument is out of range.
    """
    _check(k=k, n=n, epsilon=epsilon, beta=beta, c=c)
    return 8 * c * (log(k) + log(2 * c / beta)) / (epsilon * n)


def sparse_rows_needed(k: int, alpha: float, epsilon: float, beta: float, c: int = 1) -> int:
    """The least n for which ``sparse_error`` is at most alpha.

    Args:
        k: How many queries are tested.
        alpha: An error, as a share of the records.
        epsilon: The privacy parameter.
        beta: The probability with which the bound may fail.
        c: How many discoveries there may be.

    Returns:
        A number of records.

    Raises:
        PlanError: An argument is out of range.
    """
    _check(alpha=alpha)
    return ceil(sparse_error(k, 1, epsilon, beta, c) / alpha)


def sample_sizes(
    k: int,
    cells: int,
    alpha: float,
    *,
    epsilon: float,
    delta: float = 1e-9,
    beta: float = 0.05,
    gamma: float | None = None,
    width: float | None = None,
) -> pd.DataFrame:
    """How many records every mechanism of the notes needs for an error of alpha, side by side.

    For k counting queries (coefficients from 0 to 1) on ``cells`` cells, neighbours that add or
    remove a record, and answers as shares of n. ``error`` says of what: all queries at once with
    probability 1 - beta, or the root mean square over them.

    Args:
        k: How many queries there are.
        cells: How many cells there are.
        alpha: The error, as a share of the records.
        epsilon: The privacy parameter.
        delta: Of the mechanisms with Gaussian noise, and of multiplicative weights.
        beta: The probability with which a bound for all queries may fail.
        gamma: The factorization norm of the queries, for a line of Theorem 2.3.
        width: The Gaussian width of their hull, for a line of Theorem 8.

    Returns:
        A dataframe: mechanism, theorem, records, error.

    Raises:
        PlanError: An argument is out of range.

    >>> import sfumato as sf
    >>> table = sf.study.sample_sizes(k=1000, cells=2**10, alpha=0.05, epsilon=1)
    >>> int(table.set_index("mechanism").loc["Laplace mechanism", "records"])
    198070
    """
    import pandas as pd

    from sfumato.privacy.budget import Budget
    from sfumato.study.experts import weights_rows_needed
    from sfumato.study.local_model import RandomizedResponse, response_rows_needed

    budget = Budget(epsilon, delta)
    mu = budget.gaussian_mu or 0.0
    everyone, average = f"all, with probability {1 - beta:g}", "root mean square"
    response = RandomizedResponse(epsilon, cells if cells >= 2 else 2)
    lines: list[tuple[str, str, int, str]] = [
        (
            "Laplace mechanism",
            "Theorem 3.8",
            laplace_rows_needed(k, alpha, epsilon, beta, k),
            everyone,
        ),
        (
            "Gaussian mechanism",
            "Gaussian tails",
            gaussian_rows_needed(k, alpha, mu, beta, sqrt(k)),
            everyone,
        ),
        (
            "contingency table",
            "sums of Laplace draws",
            table_rows_needed(k, cells, alpha, epsilon, beta),
            everyone,
        ),
        (
            "randomized response",
            "Hoeffding",
            response_rows_needed(response, alpha, beta, k),
            everyone,
        ),
        (
            "private multiplicative weights",
            "Hardt, Rothblum",
            weights_rows_needed(k, cells, alpha, budget, beta=beta),
            everyone,
        ),
        (
            "projection mechanism",
            "Theorems 3.1 and 4",
            projection_rows_needed(k, cells, alpha, mu),
            average,
        ),
    ]
    if width is not None:
        records = projection_rows_needed(k, cells, alpha, mu, width)
        lines.append(("projection mechanism", "Theorem 8", records, average))
    if gamma is not None:
        records = factorization_rows_needed(gamma, alpha, mu)
        lines.append(("factorization mechanism", "Theorem 2.3", records, average))
    return pd.DataFrame(lines, columns=["mechanism", "theorem", "records", "error"])


def _check(**parameters: float) -> None:
    for name, value in parameters.items():
        if not value > 0 or (name == "beta" and value >= 1):
            allowed = "between 0 and 1" if name == "beta" else "above 0"
            raise PlanError(f"{name} must be {allowed}, got {value!r}")


# What no private mechanism can stay below


_MARGIN = 1e-13
"""What is taken off a least eigenvalue, as a part of the trace, so that rounding errors of
eigenvalues never raise a bound: Theorem 1 of docs/proofs/lower-bounds.md needs that order."""


@dataclass(frozen=True, eq=False)
class LowerBound:
    """An error below which no mechanism of the budget stays on all data sets, with its witness.

    Args:
        rmse: The root mean square error over the queries, in counts.
        kind: Which family the directions are of.
        directions: Whole numbers of records that the data move by, a row per direction.
        weights: ``w >= 0`` with ``diag(w) <= (F T')' (F T')`` for the directions T.
        unit_errors: For each direction the least mean squared error in units of it.
    """

    rmse: float
    kind: str
    directions: Integers
    weights: Array
    unit_errors: Array

    def __repr__(self) -> str:
        return (
            f"LowerBound(root mean square error at least {self.rmse:.4g} counts, by "
            f"{len(self.directions):,} directions: {self.kind})"
        )


def lower_bound(
    queries: object, budget: Budget, neighbours: Neighbours = "add-remove"
) -> LowerBound:
    """An error that no mechanism of this budget can stay below on all data sets.

    Theorem 1 of docs/proofs/lower-bounds.md: for whole-numbered directions ``t_i`` and weights with
    ``diag(w) <= T F'F T'``, every mechanism has on some data set a mean squared error of at least
    ``sum_i w_i v_i / k``, where ``v_i`` is the least error with which one whole number can be told
    when it may change the data by ``|t_i|`` records a step.

    Args:
        queries: A matrix (dense or scipy sparse), a row per query, or a small workload.
        budget: What a mechanism may spend.
        neighbours: Data sets that differ by a record more or less, or by a record replaced.

    Returns:
        The best of several families of directions, with all that is needed to check it.

    Raises:
        BudgetError: Neighbours are neither of the two.
        WorkloadError: The queries are no matrix of finite numbers.
        TooLarge: There are too many cells.

    >>> import numpy as np, sfumato as sf
    >>> round(sf.study.lower_bound(np.eye(8), sf.Budget(epsilon=1)).rmse, 4)
    1.357
    """
    check_neighbours(neighbours)
    matrix = dense_queries(queries, "lower_bound")
    k, cells = matrix.shape
    if cells > LIMITS.bound_cells:
        raise TooLarge(
            f"lower_bound got {cells:,} cells; at most {LIMITS.bound_cells:,} are searched: merge "
            "cells that no query tells apart, or give some of the columns (a bound for them holds "
            "for all)"
        )
    gram = matrix.T @ matrix
    best = LowerBound(0.0, "none", np.zeros((0, cells), dtype=np.int64), np.zeros(0), np.zeros(0))
    for kind, directions in _families(gram, neighbours):
        moves = np.abs(directions).sum(axis=1)
        records = moves // 2 if neighbours == "replace-one" else moves
        errors = np.array([unit_error(budget, int(steps)) for steps in records])
        weights = _diagonal_below(directions @ gram @ directions.T, errors)
        value = sqrt(max(float(weights @ errors), 0.0) / k)
        if value > best.rmse:
            best = LowerBound(value, kind, directions, weights, errors)
    return best


def unit_error(budget: Budget, records: int) -> float:
    """The least mean squared error of telling one whole number, a step of it being ``records``.

    Lemma 1 of docs/proofs/lower-bounds.md. Pure epsilon: the variance of the geometric mechanism,
    which is best for every prior (Ghosh, Roughgarden, Sundararajan 2012). With a delta: one bit,
    by the mechanism that every other can be computed from (Kairouz, Oh, Viswanath 2015).
    rho and mu: 1 / chi-squared, by the inequality of Hammersley, Chapman and Robbins.
    """
    if budget.epsilon is not None:
        rate = float(budget.epsilon) * records
        if rate > LIMITS.bound_exponent:
            return 0.0
        if budget.is_pure:
            return 2 * exp(-rate) / expm1(-rate) ** 2
        return _bit_error(float(budget.epsilon), float(budget.delta or 0), records)
    loss = 2 * float(budget.rho) if budget.rho is not None else float(budget.mu or 0) ** 2
    exponent = loss * records**2
    return 0.0 if exponent > LIMITS.bound_exponent else 1 / expm1(exponent)


def _bit_error(epsilon: float, delta: float, records: int) -> float:
    """The greatest error of one bit that says whether N steps were made, over N."""
    furthest = max(1, int(LIMITS.bound_bit_exponent / (epsilon * records)))
    steps = np.unique(np.geomspace(1, furthest, LIMITS.bound_bit_lengths).astype(np.int64))
    rates = epsilon * records * steps
    reveals = delta * np.expm1(rates) / expm1(epsilon)  # group privacy
    errors = np.maximum(1 - reveals, 0) * steps**2 * np.exp(-rates) / (1 + np.exp(-rates)) ** 2
    return float(errors.max())


def _families(gram: Array, neighbours: Neighbours) -> Iterator[tuple[str, Integers]]:
    """Families of linearly independent directions, cheapest moves first."""
    cells = len(gram)
    order = _most_independent(gram)
    counts = _sizes(len(order))
    identity = np.eye(cells, dtype=np.int64)
    if neighbours == "add-remove":
        for r in counts:
            yield "single cells", identity[order[:r]]
    for r in counts:
        chosen = np.sort(order[:r])
        if r > 1:
            yield "one cell against the next", identity[chosen[:-1]] - identity[chosen[1:]]
        if r > 2:
            waves = _waves(r)[:, : r + 1]
            wide = np.zeros((len(waves), cells), dtype=np.int64)
            wide[:, chosen] = waves[:, :r]
            wide = wide[np.abs(wide).sum(axis=1) > 0]
            if neighbours == "replace-one":
                wide = wide[wide.sum(axis=1) == 0]
            if len(wide):
                yield "second differences at every scale", wide


def _most_independent(gram: Array) -> Integers:
    """Cells in the order of how far each column is from the span of those before (pivoted QR)."""
    values, vectors = eigh(gram)
    root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    triangle, order = qr(root, mode="r", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    rank = int((sizes > LIMITS.bound_rank_tolerance * sizes[0]).sum())
    return np.asarray(order[:rank], dtype=np.int64)


def _sizes(rank: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ... and the rank itself."""
    sizes = {rank}
    power = 1
    while power <= rank:
        sizes |= {power, min(power + power // 2, rank)}
        power *= 2
    return sorted(sizes)


def _waves(cells: int) -> Integers:
    """``e_a - 2 e_b + e_c`` for every dyadic interval [a, c) of middle b, and ``e_0``.

    Running totals turn them into the orthogonal wavelets of Haar. An index past the last cell
    falls away.
    """
    size = 1
    while size < cells:
        size *= 2
    rows = [np.zeros(size + 1, dtype=np.int64)]
    rows[0][0] = 1
    width = size
    while width > 1:
        for start in range(0, size, width):
            row = np.zeros(size + 1, dtype=np.int64)
            row[start] += 1
            row[start + width // 2] -= 2
            row[start + width] += 1
            rows.append(row)
        width //= 2
    waves = np.array(rows)
    return np.asarray(waves[(waves[:, :cells] != 0).any(axis=1)], dtype=np.int64)


def _diagonal_below(gram: Array, values: Array) -> Array:
    """Weights ``w >= 0`` with ``diag(w) <= gram`` and a large ``sum(w values)``.

    For a positive scaling d the largest c with ``c diag(d) <= gram`` is the least eigenvalue of
    ``gram`` scaled by ``d^(-1/2)``; the best of some scalings is taken, less a margin for rounding.
    """
    best, most = np.zeros(len(gram)), 0.0
    for scaling in _scalings(gram):
        root = 1 / np.sqrt(scaling)
        scaled = gram * np.outer(root, root)
        least = float(eigvalsh(scaled, subset_by_index=[0, 0])[0])
        weights = max(least - _MARGIN * float(scaled.trace()), 0.0) * scaling
        if (value := float(weights @ values)) > most:
            best, most = weights, value
    return best


def _scalings(gram: Array) -> Iterator[Array]:
    diagonal = np.diag(gram)
    if float(diagonal.min()) <= 0:
        return
    yield diagonal
    yield np.full(len(gram), float(diagonal.mean()))
    if np.linalg.cond(gram) < LIMITS.bound_condition:
        inverse = np.diag(np.linalg.inv(gram))
        yield 1 / inverse
        yield np.sqrt(diagonal / inverse)


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
