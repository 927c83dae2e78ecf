# SPDX-License-Identifier: Apache-2.0
"""`lower_bound` returns an error that no private mechanism can stay below, whatever it does.

The certificate of a plan compares it with the best factorization. This bound holds for every
mechanism: biased, not linear, adaptive to the data, of any noise. It is the argument of discrepancy
(Muthukrishnan, Nikolov 2012, "Optimal private halfspace counting via discrepancy"; Nikolov, Talwar,
Zhang 2013, "The geometry of differential privacy: the small database and approximate cases") in the
form of an estimation problem, with its constants: directions are sought in which the data can move
by few records while answers move far and not alike. Proof: docs/proofs/lower-bounds.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, expm1, sqrt

import numpy as np
from scipy.linalg import eigh, eigvalsh, qr

from sfumato.errors import TooLarge
from sfumato.privacy.budget import Budget, check_neighbours
from sfumato.study.matrix_norms import dense_queries
from sfumato.study.study_limits import LIMITS
from sfumato.types import Array, Integers, Neighbours

__all__ = [
    "LowerBound",
    "lower_bound",
    "unit_error",
]

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
