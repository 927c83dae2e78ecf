# SPDX-License-Identifier: Apache-2.0
"""Factorization in the local model: every client sends one bit about one row of M, for F = R M.

A. Edmonds, A. Nikolov, J. Ullman, 2020, "The power of factorization mechanisms in local and central
differential privacy". A client draws a row of M, which tells nothing about it, and sends one
randomized bit whose mean is its entry there. The collector returns unbiased answers to all queries
with intervals. `LocalFactorization.of` chooses among several M the one of least error. Proof:
docs/proofs/local-factorization.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import log, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.linalg import hadamard

from sfumato.errors import PlanError, TooLarge
from sfumato.random import WordSource, choose, system_words
from sfumato.study.local_model import (
    COIN_BITS,
    Codes,
    LocalAnswers,
    RandomizedResponse,
    checked_codes,
)
from sfumato.study.matrix_norms import dense_queries, factorize
from sfumato.study.study_limits import LIMITS
from sfumato.types import Array

__all__ = [
    "LocalFactorization",
]


@dataclass(frozen=True, eq=False)
class LocalFactorization:
    """One bit from every client, about a random row of M; ``F = R M + offset``.

    Args:
        epsilon: What a report spends.
        name: Which M was the best: queries, cells, factorization or one of the two rotated.
        R: Reconstructs the answers, a row per query.
        M: Every row with its middle taken off, a column per cell.
        offset: What a record adds to every answer, whatever its cell.
        weights: Whole numbers in proportion to how often a row is drawn.
        thresholds: A coin below it is a bit of 1: a row per row of M, a column per cell.
    """

    epsilon: Fraction
    name: str
    R: Array
    M: Array
    offset: Array
    weights: tuple[int, ...]
    thresholds: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, queries: object, epsilon: Fraction | float) -> LocalFactorization:
        """The mechanism of least error among several factorizations, for a number of clients.

        Args:
            queries: A matrix (dense or scipy sparse), a row per query, or a small workload.
            epsilon: What a report may spend.

        Returns:
            What encodes reports at clients and estimates answers from them.

        Raises:
            BudgetError: Epsilon is out of range.
            WorkloadError: The queries are no matrix of finite numbers.
            TooLarge: There are too many cells or queries.

        >>> import numpy as np, sfumato as sf
        >>> sf.study.LocalFactorization.of(np.tril(np.ones((8, 8))), epsilon=1)
        LocalFactorization(8 queries, epsilon 1: cells rotated, 7 rows)
        """
        matrix = dense_queries(queries, "LocalFactorization")
        if max(matrix.shape) > LIMITS.local_factorization_size:
            raise TooLarge(
                f"LocalFactorization got {matrix.shape[0]:,} queries over {matrix.shape[1]:,} "
                f"cells; at most {LIMITS.local_factorization_size:,} of each are factored: merge "
                "cells that no query tells apart"
            )
        coin = RandomizedResponse(epsilon, 2)
        tried = [(name, *_centred(r, m)) for name, r, m in _factorizations(matrix)]
        scores = [float(_pull(r, m).sum()) for _, r, m, _ in tried]
        name, r, m, offset = tried[int(np.argmin(scores))]
        pull = _pull(r, m)
        parts = np.ceil(pull * (LIMITS.local_row_weight / (pull.max() or 1.0)))
        weights = tuple(max(int(w), 1) for w in parts)
        return cls(
            Fraction(coin.epsilon),
            name,
            r,
            m,
            offset,
            weights,
            _thresholds(m, coin.threshold),
        )

    @property
    def _scales(self) -> Array:
        """What a bit of 1 adds to the estimate of its row."""
        high = Fraction(int(RandomizedResponse(self.epsilon, 2).threshold), 1 << COIN_BITS)
        shares = np.array(self.weights, dtype=np.float64) / sum(self.weights)
        sizes = np.abs(self.M).max(axis=1)
        return np.asarray(sizes / (float(2 * high - 1) * shares), dtype=np.float64)

    def _second_moments(self) -> Array:
        """``E g^2`` of what one report adds to each answer; the same for every cell."""
        shares = np.array(self.weights, dtype=np.float64) / sum(self.weights)
        return np.asarray(self.R**2 @ (shares * self._scales**2), dtype=np.float64)

    def rmse(self, rows: int) -> float:
        """The root mean square error over the queries, for the worst data set of ``rows`` clients.

        Args:
            rows: How many clients report.

        Returns:
            The error in counts, exact for clients that all hold the worst cell.
        """
        means = ((self.R @ self.M) ** 2).sum(axis=0).min()
        return sqrt(rows * max(float(self._second_moments().sum() - means), 0.0) / len(self.R))

    def encode(self, codes: npt.ArrayLike, random: WordSource | None = None) -> Codes:
        """One report for each code, ``2 row + bit``; runs at the client.

        Privacy: each report is epsilon-locally private: Claim 1 of
        docs/proofs/local-factorization.md. Encoding a record again spends epsilon again.
        Neighbours: the code of one client replaced by any other.

        Args:
            codes: One true code per client.
            random: A source of random words; the system's if None.

        Returns:
            One report per client.

        Raises:
            SchemaError: A code is out of range.
        """
        cells = checked_codes(codes, self.M.shape[1], "codes").reshape(-1)
        source = system_words() if random is None else random
        rows = choose(self.weights, cells.size, source)
        coins = source.words(cells.size)
        bits = coins < self.thresholds[rows, cells]
        return np.asarray(2 * rows + bits, dtype=np.int64)

    def estimate(
        self,
        reports: npt.ArrayLike,
        confidence: float = 0.95,
        interval: Literal["finite", "normal"] = "finite",
    ) -> LocalAnswers:
        """Unbiased answers to all queries, in counts, with intervals.

        Privacy: post-processing of reports that are each epsilon-locally private; costs nothing.
        Error: an interval is Bernstein's, valid for every number of clients, or ``"normal"``.

        Args:
            reports: What clients sent.
            confidence: Of each interval.
            interval: ``"finite"`` or ``"normal"``.

        Returns:
            One value per query, with its standard error and interval.

        Raises:
            SchemaError: A report is out of range.
            PlanError: The confidence is not between 0 and 1, or the interval has another name.
        """
        if not 0 < confidence < 1 or interval not in ("finite", "normal"):
            raise PlanError(
                f"confidence is {confidence} and interval {interval!r}; allowed are a number "
                'between 0 and 1, and "finite" or "normal"'
            )
        flat = checked_codes(reports, 2 * len(self.M), "reports").reshape(-1)
        tally = np.bincount(flat, minlength=2 * len(self.M)).reshape(-1, 2)
        counts, signs = tally.sum(axis=1), tally[:, 1] - tally[:, 0]
        n = max(int(counts.sum()), 1)
        moved = self.R @ (signs * self._scales)
        squares = self.R**2 @ (counts * self._scales**2)
        error = np.sqrt(np.maximum(squares - moved**2 / n, 0) * n / max(n - 1, 1))
        if interval == "normal":
            radius = NormalDist().inv_cdf((1 + confidence) / 2) * error
        else:
            tail = log(2 / (1 - confidence))
            most = 2 * (np.abs(self.R) * self._scales).max(axis=1)
            radius = np.sqrt(2 * n * self._second_moments() * tail) + most * tail / 3
        value = moved + n * self.offset
        return LocalAnswers(
            value, error, value - radius, value + radius, confidence, interval, False
        )

    def __repr__(self) -> str:
        return (
            f"LocalFactorization({len(self.R):,} queries, epsilon {float(self.epsilon):g}: "
            f"{self.name}, {len(self.M):,} rows)"
        )


def _factorizations(matrix: Array) -> list[tuple[str, Array, Array]]:
    """Name, R and M of every factorization that is tried."""
    distinct, number = np.unique(matrix, axis=0, return_inverse=True)
    best = factorize(matrix)
    plain = [
        ("queries", np.eye(len(distinct))[number.reshape(-1)], distinct),
        ("cells", matrix, np.eye(matrix.shape[1])),
        ("factorization", best.R, best.M),
    ]
    turned = [(f"{name} rotated", *_rotated(r, m)) for name, r, m in plain[1:]]
    return plain + turned


def _rotated(r: Array, m: Array) -> tuple[Array, Array]:
    """``R H'`` and ``H M`` for a Hadamard matrix H over its root, so that entries are alike."""
    size = 1
    while size < len(m):
        size *= 2
    turn = hadamard(size)[:, : len(m)] / sqrt(size)
    return r @ turn.T, turn @ m


def _centred(r: Array, m: Array) -> tuple[Array, Array, Array]:
    """R and M with the middle of every row taken off, rows that never vary left out, the offset."""
    middle = (m.max(axis=1) + m.min(axis=1)) / 2
    rest = m - middle[:, None]
    used = _pull(r, rest) > LIMITS.local_row_tolerance
    used[0] |= not used.any()  # all cells are alike: one row that says nothing
    return r[:, used], rest[used], r @ middle


def _pull(r: Array, m: Array) -> Array:
    """``|M_j|_inf |R_j|_2`` for every row j: the best chances are in proportion to it."""
    return np.asarray(np.abs(m).max(axis=1) * np.sqrt((r**2).sum(axis=0)), dtype=np.float64)


def _thresholds(m: Array, high: int) -> npt.NDArray[np.uint64]:
    """Whole numbers from ``2^64 - high`` to ``high``, in proportion to the entries."""
    low = (1 << COIN_BITS) - high
    sizes = np.abs(m).max(axis=1, keepdims=True)
    shares = np.where(sizes > 0, (m / np.where(sizes > 0, sizes, 1) + 1) / 2, 0.5)
    units = np.clip(np.rint(shares * 2**52), 0, 2**52).astype(np.int64)
    exact = [[low + (high - low) * int(u) // 2**52 for u in row] for row in units]
    return np.array(exact, dtype=np.uint64)
