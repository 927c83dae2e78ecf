# SPDX-License-Identifier: Apache-2.0
"""`KNorm` adds noise shaped like the queries, for a few of them: the mechanism of Hardt and Talwar.

M. Hardt, K. Talwar, 2010, "On the geometry of differential privacy". With K the hull of the columns
of F and their negatives, noise z has a probability in proportion to ``exp(-epsilon |z|_K)``, where
``|z|_K`` is how far K must be scaled to reach z. Answers are whole numbers and so is the noise, so
that no float is drawn. Proof: docs/proofs/k-norm.md.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, factorial, log2, sqrt

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr
from scipy.spatial import ConvexHull

from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.privacy.budget import check_neighbours
from sfumato.privacy.cost import Cost
from sfumato.random import WordSource, system_words
from sfumato.types import Array, Integers, Neighbours
from sfumato.vault.mechanisms.noise import SCALE_MAXIMUM, discrete_laplace, geometric
from sfumato.vault.vault_limits import LIMITS

__all__ = ["KNorm"]


@dataclass(frozen=True, eq=False)
class KNorm:
    """Noise in the norm whose unit ball holds every move of the answers, of whole-numbered queries.

    `KNorm.of` builds it.

    Args:
        rate: What is spent, at most the epsilon that was given.
        matrix: The queries, whole numbers, a row each.
        measured: What is measured: whole-numbered sums of independent queries, a row each.
        facets: The norm is the maximum of ``facets @ z / denominator`` and ``|z|_1 / reach``.
        denominator: Divides the facets.
        reach: The greatest L1 norm of a move.
        covariance: Of the noise of what is measured at rate 1, for noise of real numbers.
        trials: How many proposals one draw takes on average.
    """

    rate: Fraction
    matrix: Integers
    measured: Integers
    facets: Integers
    denominator: int
    reach: int
    covariance: Array
    trials: float

    @classmethod
    def of(
        cls, queries: npt.ArrayLike, epsilon: float, neighbours: Neighbours = "add-remove"
    ) -> KNorm:
        """The mechanism for a matrix of whole numbers, a row per query.

        Args:
            queries: The matrix; at most six queries may be linearly independent.
            epsilon: What may be spent.
            neighbours: Data sets that differ by a record more or less, or by a record replaced.

        Returns:
            The mechanism, of which cost and error are known.

        Raises:
            PlanError: Epsilon is out of range.
            WorkloadError: The matrix is not one of whole numbers.
            TooLarge: There are too many independent queries, or a draw would take too long.

        >>> import numpy as np, sfumato as sf
        >>> sf.study.KNorm.of(np.tril(np.ones((3, 3))), epsilon=0.5)
        KNorm(3 queries, epsilon 0.5: root mean square error 4)
        """
        check_neighbours(neighbours)
        matrix = _whole(queries)
        measured = _reduced(_independent(matrix), neighbours)
        moves = _moves(measured, neighbours)
        facets, covariance, volume = _hull(moves)
        denominator = int((facets @ moves.T).max())
        reach = int(np.abs(moves).sum(axis=1).max())
        r = len(measured)
        trials = (2 * reach) ** r / factorial(r) / volume
        if trials > LIMITS.k_norm_trials:
            raise TooLarge(
                f"one draw of K-norm noise would take {trials:,.0f} proposals, at most "
                f"{LIMITS.k_norm_trials:,} are made: the moves of these {r} queries are too flat; "
                "ask fewer queries, or plan them with sf.plan"
            )
        rate = _rate(epsilon)
        mechanism = cls(
            rate, matrix, measured, facets, denominator, reach, covariance, max(trials, 1.0)
        )
        if mechanism._scale > SCALE_MAXIMUM:
            raise TooLarge(
                f"records move these queries by up to {reach}, too much for exact noise at epsilon "
                f"{float(rate):.3g}: divide the queries by a common factor, or raise epsilon"
            )
        return mechanism

    @property
    def cost(self) -> Cost:
        """Pure epsilon, the rate of the noise."""
        return Cost.pure(self.rate)

    @cached_property
    def read_off(self) -> Array:
        """R with ``matrix = R @ measured``."""
        solved = np.linalg.lstsq(self.measured.T, self.matrix.T, rcond=None)[0]
        return np.asarray(solved.T, dtype=np.float64)

    @cached_property
    def rmse(self) -> float:
        """The root mean square error over the queries, for noise of real numbers.

        Whole-numbered noise differs from it by less than a hundredth up to epsilon 1/2.
        """
        spread = np.trace(self.read_off @ self.covariance @ self.read_off.T)
        return sqrt(float(spread) / len(self.matrix)) / float(self.rate)

    def norm(self, moves: Integers) -> list[Fraction]:
        """The norm of each row, exactly.

        Args:
            moves: Whole numbers, a row per vector.

        Returns:
            A fraction for each.
        """
        by_facets = (moves @ self.facets.T).max(axis=1)
        sums = np.abs(moves).sum(axis=1)
        return [
            max(Fraction(int(a), self.denominator), Fraction(int(b), self.reach))
            for a, b in zip(by_facets, sums, strict=True)
        ]

    def noise(self, size: int, random: WordSource | None = None) -> Integers:
        """``size`` draws of the noise of what is measured, a row each.

        Proposals are independent discrete Laplace numbers of scale ``reach / rate``, accepted with
        probability ``exp(-rate (norm(z) - |z|_1 / reach))``: von Neumann's rejection, exact.

        Args:
            size: How many are drawn.
            random: A source of random words; the system's if None.

        Returns:
            Whole numbers, a row per draw and a column per row of ``measured``.
        """
        source = system_words() if random is None else random
        r, drawn, rows = len(self.measured), 0, []
        while drawn < size:
            batch = min(ceil(1.2 * self.trials * (size - drawn)) + 8, LIMITS.k_norm_batch)
            z = discrete_laplace(self.reach / self.rate, batch * r, source).reshape(batch, r)
            excess = self._excess(z)
            # P(geometric of this scale >= a) = exp(-a / scale).
            accepted = z[geometric(Fraction(self._scale), batch, source) >= excess]
            rows.append(accepted[: size - drawn])
            drawn += len(rows[-1])
        return np.concatenate(rows) if rows else np.zeros((0, r), dtype=np.int64)

    @property
    def _scale(self) -> int:
        return self.rate.denominator * self.denominator * self.reach

    def _excess(self, z: Integers) -> Integers:
        """``rate (norm(z) - |z|_1 / reach)`` in units of ``1 / _scale``: whole numbers."""
        sums = np.abs(z).sum(axis=1)
        most = (int(np.abs(self.facets).max()) + self.denominator) * self.reach
        if int(sums.max()) * most * self.rate.numerator >= 2**62:  # hardly ever: Python integers
            z, sums = z.astype(object), sums.astype(object)
        by_facets = (z @ self.facets.T).max(axis=1) * self.reach - sums * self.denominator
        return np.asarray(np.maximum(by_facets, 0) * self.rate.numerator)

    def measure(self, histogram: npt.ArrayLike, random: WordSource | None = None) -> Array:
        """Answers to all queries, with noise; the caller bears the accounting of `cost`.

        Privacy: rate-DP, Theorem 1 of docs/proofs/k-norm.md.
        Neighbours: those that the mechanism was built for, of histograms of whole numbers.

        Args:
            histogram: Counts of the cells.
            random: A source of random words; the system's if None.

        Returns:
            One answer per query.

        Raises:
            WorkloadError: The histogram does not fit the queries.
        """
        counts = np.asarray(histogram)
        if counts.shape != (self.matrix.shape[1],) or counts.dtype.kind not in "iu":
            raise WorkloadError(
                f"the histogram has shape {counts.shape} of {counts.dtype}; the queries are over "
                f"{self.matrix.shape[1]} cells of whole counts"
            )
        noisy = self.measured @ counts.astype(np.int64) + self.noise(1, random)[0]
        return np.asarray(self.read_off @ noisy, dtype=np.float64)

    def release(self, histogram: npt.ArrayLike, random: WordSource | None = None) -> Array:
        """`measure` by its name of before; no ledger is debited, as by the release of a plan.

        Args:
            histogram: As in `measure`.
            random: As in `measure`.

        Returns:
            What `measure` returns.
        """
        warnings.warn("KNorm.release is now KNorm.measure", DeprecationWarning, stacklevel=2)
        return self.measure(histogram, random)

    def __repr__(self) -> str:
        return (
            f"KNorm({len(self.matrix)} queries, epsilon {float(self.rate):.4g}: "
            f"root mean square error {self.rmse:.3g})"
        )


def _whole(queries: npt.ArrayLike) -> Integers:
    matrix = np.asarray(queries)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf" or not np.isfinite(matrix).all():
        raise WorkloadError(
            f"K-norm noise needs a matrix of numbers with a row per query, got shape "
            f"{matrix.shape} of {matrix.dtype}"
        )
    whole = np.rint(matrix)
    if not np.array_equal(whole, matrix) or not matrix.any():
        raise WorkloadError(
            "K-norm noise needs queries of whole numbers, not all zero, for no float may be drawn; "
            "multiply the queries by a common denominator"
        )
    if float(np.abs(whole).max()) > LIMITS.k_norm_coefficient:
        raise TooLarge(
            f"K-norm noise takes coefficients up to {LIMITS.k_norm_coefficient}, got "
            f"{np.abs(whole).max():.0f}: divide the queries by a common factor"
        )
    return np.asarray(whole, dtype=np.int64)


def _independent(matrix: Integers) -> Integers:
    triangle, order = qr(matrix.T.astype(np.float64), mode="r", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    rank = int((sizes > 1e-9 * sizes[0]).sum())
    if rank > LIMITS.k_norm_queries:
        raise TooLarge(
            f"{rank} of these queries are linearly independent; K-norm noise is drawn for at most "
            f"{LIMITS.k_norm_queries}: ask fewer, or plan them with sf.plan"
        )
    return np.asarray(matrix[np.sort(order[:rank])], dtype=np.int64)


def _reduced(rows: Integers, neighbours: Neighbours) -> Integers:
    """Sums and differences of the rows with smaller moves; they span the same whole numbers.

    The law of the noise stays the same, and fewer proposals are rejected.
    """
    best, value = rows, _size(rows, neighbours)
    while True:
        steps = [
            _added(best, i, j, sign)
            for i in range(len(best))
            for j in range(len(best))
            for sign in (1, -1)
            if i != j
        ]
        values = [_size(step, neighbours) for step in steps]
        if not steps or min(values) >= value:
            return best
        value = min(values)
        best = steps[values.index(value)]


def _added(rows: Integers, i: int, j: int, sign: int) -> Integers:
    changed = rows.copy()
    changed[i] += sign * rows[j]
    return changed


def _size(rows: Integers, neighbours: Neighbours) -> tuple[int, int]:
    """The greatest L1 norm of a move, then their sum."""
    sizes = np.abs(_moves(rows, neighbours)).sum(axis=1)
    return int(sizes.max()), int(sizes.sum())


def _moves(matrix: Integers, neighbours: Neighbours) -> Integers:
    """What a neighbour may add to the answers, with both signs."""
    columns = np.unique(matrix.T, axis=0)
    if neighbours == "replace-one":
        if len(columns) > LIMITS.k_norm_columns:
            raise TooLarge(
                f"{len(columns)} kinds of cells were given for replaced records, at most "
                f"{LIMITS.k_norm_columns} are compared in pairs: merge cells"
            )
        columns = (columns[:, None, :] - columns[None, :, :]).reshape(-1, matrix.shape[0])
    both = np.unique(np.concatenate([columns, -columns]), axis=0)
    moves: Integers = both[np.abs(both).sum(axis=1) > 0]
    if np.linalg.matrix_rank(moves) < matrix.shape[0]:
        raise WorkloadError(
            "a sum of these queries never changes when a record is replaced; leave one of them out"
        )
    return moves


def _hull(moves: Integers) -> tuple[Integers, Array, float]:
    """Facets on a grid, the second moments of noise at rate 1 by simplices, and the volume."""
    r = moves.shape[1]
    if r == 1:
        reach = float(np.abs(moves).max())
        return np.array([[1], [-1]], dtype=np.int64), np.array([[2 * reach**2]]), 2 * reach
    hull = ConvexHull(moves.astype(np.float64), qhull_options="Qt")
    normals = hull.equations[:, :-1] / -hull.equations[:, -1:]
    scale = float(np.abs(moves).sum(axis=1).max()) * (1 << LIMITS.k_norm_facet_bits)
    facets = np.unique(np.rint(normals * scale).astype(np.int64), axis=0)
    corners = moves[hull.simplices].astype(np.float64)
    volumes = np.abs(np.linalg.det(corners))
    sums = corners.sum(axis=1)
    squares = np.einsum("sir,siq->srq", corners, corners) + np.einsum("sr,sq->srq", sums, sums)
    covariance = np.einsum("s,srq->rq", volumes / volumes.sum(), squares)
    return facets, covariance, float(hull.volume)


def _rate(epsilon: float) -> Fraction:
    """Epsilon rounded down to eleven significant bits or more."""
    if (
        isinstance(epsilon, bool)
        or not LIMITS.k_norm_epsilon <= epsilon <= 1 / LIMITS.k_norm_epsilon
    ):
        raise PlanError(
            f"epsilon must be a number from {LIMITS.k_norm_epsilon:g} to "
            f"{1 / LIMITS.k_norm_epsilon:g}, got {epsilon!r}"
        )
    exact = Fraction(epsilon)
    step = 1 << max(0, ceil(11 - log2(exact)))
    return Fraction(int(exact * step), step)
