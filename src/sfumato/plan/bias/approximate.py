# SPDX-License-Identifier: Apache-2.0
"""Approximate factorization: a little bias for much less noise, with its certificate.

Where ``R M`` is not F but near it, the answers ``R (M h + z)`` have a bias ``E h`` with
``E = R M - F``, besides the noise ``R z``. For shares of n records (h sums to 1) the mean squared
error per query is at most, over all data sets,

    max_j |E e_j|^2 / k  +  tau ||R||_F^2 ||M||_{1->2}^2 / k,

tau the noise variance at unit sensitivity over n^2, because the squared bias is convex in h and so
greatest where all records are in one cell. Two questions about this pair, one geometry:

* ``bounded_bias``: the approximate factorization norm gamma_alpha(F), the least
  ``||R||_F ||M||_{1->2} / sqrt(k)`` with ``||R M - F||_{1->2} <= alpha sqrt(k)`` (Definition 2.5
  in the lecture notes of Smith and Ullman on factorization);
* ``least_worst_case``: the R and M of least worst error for a given tau. It is the saddle point
  ``max_u min_X tr(V (U^-1 + X / tau)^-1)`` over u in the simplex and X_jj <= 1, and also the least
  of ``alpha^2 + tau gamma_alpha^2`` over alpha.

Both are least ellipsoids near the columns of F (``ellipsoid.py``). For study and comparison;
``biased.py`` makes strategies that can be measured.

References: Edmonds, Nikolov, Ullman 2020, "The power of factorization mechanisms in local and
central differential privacy"; Donoho 1994, "Statistical estimation and optimal recovery" (the
trade of bias and variance in the worst case).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, sqrt
from typing import Literal

import numpy as np

from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.plan.bias.ellipsoid import Ellipsoid, Progress, nearest_ellipsoid
from sfumato.workload.queries import Array, Integers

__all__ = ["ApproximateFactorization", "bounded_bias", "least_worst_case", "trade_off"]

LARGEST_RANK = 1024  # of a matrix that is factorized approximately
LARGEST = 2**24  # entries of a matrix that is held
RANK_ROUNDING = 2.0**-44


@dataclass(frozen=True, eq=False)
class ApproximateFactorization:
    """``F = R M - bias``, to be used as ``offset + R M h``; all for shares of the records.

    ``lower_bound`` is below what every approximate factorization can reach: the root of the worst
    mean squared error where ``noise`` was given, else gamma at the bias that was allowed.
    """

    R: Array
    M: Array
    bias: Array
    lower_bound: float
    noise: float | None = None
    offset: Array | None = None

    @cached_property
    def sensitivity(self) -> float:
        """``||M||_{1->2}``: the longest column of M."""
        return float(np.sqrt((self.M**2).sum(axis=0).max(initial=0.0)))

    @cached_property
    def variances(self) -> Array:
        """The variance of every answer when M is measured with noise of its sensitivity."""
        return np.asarray((self.R**2).sum(axis=1) * self.sensitivity**2, dtype=np.float64)

    @property
    def gamma(self) -> float:
        """``||R||_F ||M||_{1->2} / sqrt(k)``."""
        return sqrt(float(self.variances.mean()))

    @cached_property
    def alpha(self) -> float:
        """``||E||_{1->2} / sqrt(k)``: the root mean square bias in the worst case, per record."""
        return sqrt(float((self.bias**2).mean(axis=0).max()))

    @cached_property
    def bias_bounds(self) -> Array:
        """``max_j |E_qj|``: how far each answer can be off on average, per record."""
        return np.asarray(np.abs(self.bias).max(axis=1), dtype=np.float64)

    def worst_error(self, n: float = 1.0, noise: float | None = None) -> float:
        """``n sqrt(alpha^2 + noise gamma^2)``: root mean square error over queries, all data sets.

        In counts for n records, where M is measured with noise of standard deviation
        ``n sqrt(noise)`` times its sensitivity.
        """
        tau = self.noise if noise is None else noise
        if tau is None:
            raise PlanError("worst_error needs the noise variance at unit sensitivity over n^2")
        return n * sqrt(self.alpha**2 + tau * self.gamma**2)

    @property
    def certificate(self) -> float:
        """What is reached over ``lower_bound``: at least 1, and how far the best may be."""
        reached = self.gamma if self.noise is None else self.worst_error()
        return reached / self.lower_bound if reached > 0 else 1.0

    def __repr__(self) -> str:
        k, m = self.bias.shape
        return (
            f"ApproximateFactorization({k:,} queries, {m:,} cells: gamma {self.gamma:.5f} at alpha "
            f"{self.alpha:.5f}, certificate {self.certificate:.5f})"
        )


def bounded_bias(
    F: Array, alpha: float, tolerance: float = 1e-3, progress: Progress | None = None
) -> ApproximateFactorization:
    """gamma_alpha(F): least gamma with ``||R M - F||_{1->2} <= alpha sqrt(k)``.

    gamma(F) at alpha = 0, falling in alpha, and 0 from ``||F||_{1->2} / sqrt(k)`` on.

    >>> import numpy as np
    >>> found = bounded_bias(np.eye(4), 0.25)
    >>> bool(found.lower_bound <= found.gamma), round(found.alpha, 6)
    (True, 0.25)
    """
    matrix = _checked(F)
    if not (isinstance(alpha, int | float) and isfinite(alpha) and alpha >= 0):
        raise PlanError(f"alpha is a bias per record and must be at least 0, got {alpha!r}")
    distance = alpha * sqrt(len(matrix))
    if distance >= sqrt(float((matrix**2).sum(axis=0).max())):
        return _nothing(matrix)
    problem = _Reduced.of(matrix, is_centred=False)
    found = nearest_ellipsoid(
        problem.columns, distance=distance, tolerance=tolerance, progress=progress
    )
    r, m = problem.expanded(found)
    return ApproximateFactorization(r, m, r @ m - matrix, sqrt(found.lower / len(matrix)))


def least_worst_case(
    F: Array,
    noise: float,
    offset: Array | Literal["best"] | None = None,
    tolerance: float = 1e-3,
    progress: Progress | None = None,
) -> ApproximateFactorization:
    """``min over R, M of max_j |E e_j|^2 / k + noise ||R||_F^2 ||M||_{1->2}^2 / k``.

    ``noise`` is tau: the variance of the noise at unit sensitivity over n^2; for Gaussian noise of
    mu-GDP and add-remove neighbours ``1 / (mu n)^2``.

    With ``offset``, a public guess h0 of the shares of the cells, the answers are
    ``F h0 + R M h``: without data they fall back to the guess instead of zero. The worst case is
    still over all data sets, near the guess or not; ``bias`` is then ``F h0 1' + R M - F``. With
    ``"best"`` the constant itself is optimised. Either needs n to be known: in counts, the
    constant is added n times.
    """
    matrix = _checked(F)
    if not (isinstance(noise, int | float) and isfinite(noise) and noise > 0):
        raise PlanError(
            f"noise is the noise variance at unit sensitivity over n^2 and must be above 0, got "
            f"{noise!r}"
        )
    k = len(matrix)
    is_best = isinstance(offset, str)
    if is_best and offset != "best":
        raise PlanError(f"offset is a vector of shares or 'best', got {offset!r}")
    constant = np.zeros(k) if offset is None or is_best else _guess(matrix, np.asarray(offset))
    target = matrix - constant[:, None]
    spread = target - target[:, :1] if is_best else target
    if not np.any(np.abs(spread) > RANK_ROUNDING * np.abs(matrix).max()):
        return _exact(matrix, matrix[:, 0].copy(), noise)
    problem = _Reduced.of(target, is_centred=is_best)
    found = nearest_ellipsoid(
        problem.columns, tau=noise, is_centred=is_best, tolerance=tolerance, progress=progress
    )
    r, m = problem.expanded(found)
    if is_best:
        constant = problem.middle + problem.basis @ found.centre
    bias = r @ m + constant[:, None] - matrix
    lower = sqrt(found.lower / k)
    return ApproximateFactorization(
        r, m, bias, lower, float(noise), None if offset is None else constant
    )


def trade_off(
    F: Array, noise: float, alphas: Sequence[float], tolerance: float = 1e-3
) -> list[tuple[float, float]]:
    """``sqrt(alpha^2 + noise gamma_alpha^2)`` for every alpha: convex, falling, then rising.

    Its least value, over all alpha, is that of ``least_worst_case``.

    >>> import numpy as np
    >>> [round(error, 2) for _, error in trade_off(np.eye(2), 1.0, [0.0, 0.5, 1.0])]
    [1.0, 0.58, 1.0]
    """
    found = [(float(a), bounded_bias(F, a, tolerance)) for a in alphas]
    return [(a, sqrt(a**2 + noise * f.gamma**2)) for a, f in found]


@dataclass(frozen=True, eq=False)
class _Reduced:
    """``F = middle + basis @ columns[:, where]``: equal columns once, in the space they span.

    Neither changes a distance between columns or the trace of C. The middle is 0 unless a constant
    may be added, which then lies in the span too.
    """

    basis: Array
    columns: Array
    middle: Array
    where: Integers

    @classmethod
    def of(cls, matrix: Array, is_centred: bool) -> _Reduced:
        columns, where = np.unique(matrix, axis=1, return_inverse=True)
        middle = columns.mean(axis=1) if is_centred else np.zeros(len(columns))
        columns = columns - middle[:, None]
        left, singular, _ = np.linalg.svd(columns, full_matrices=False)
        basis = left[:, singular > singular[0] * max(columns.shape) * RANK_ROUNDING]
        if basis.shape[1] > LARGEST_RANK:
            raise TooLarge(
                f"an approximate factorization of a matrix of rank {basis.shape[1]:,}; the limit "
                f"is {LARGEST_RANK:,}: ask for fewer queries or coarser cells"
            )
        return cls(basis, basis.T @ columns, middle, where.reshape(-1).astype(np.int64))

    def expanded(self, found: Ellipsoid) -> tuple[Array, Array]:
        """R and M of the whole matrix."""
        return self.basis @ found.root, np.ascontiguousarray(found.inside[:, self.where])


def _checked(matrix: object) -> Array:
    given = np.asarray(matrix)
    if given.ndim != 2 or given.dtype.kind not in "biuf" or not given.size:
        raise WorkloadError(
            f"an approximate factorization needs a matrix of numbers with a row per query, got "
            f"shape {given.shape} of {given.dtype}"
        )
    if given.size > LARGEST:
        raise TooLarge(
            f"a matrix of {given.size:,} entries is too large for an approximate factorization; "
            f"the limit is {LARGEST:,}: ask for fewer queries or coarser cells"
        )
    out = given.astype(np.float64)
    if not np.isfinite(out).all() or not out.any():
        raise WorkloadError("factorize needs finite numbers, not all of them zero")
    return out


def _guess(matrix: Array, shares: Array) -> Array:
    """``F h0`` for a public guess of the shares of the cells."""
    m = matrix.shape[1]
    is_numeric = shares.dtype.kind in "biuf" and shares.shape == (m,)
    if not is_numeric or (shares < 0).any() or abs(float(shares.sum()) - 1) > 1e-9:
        raise PlanError(
            f"an offset is a share for each of the {m:,} cells, none below 0, that sum to 1; got "
            f"shape {shares.shape} with sum {float(shares.sum()) if is_numeric else 'unknown'}"
        )
    return np.asarray(matrix @ shares, dtype=np.float64)


def _nothing(matrix: Array) -> ApproximateFactorization:
    """Answer zero: the bias is allowed to be as large as the queries."""
    k, m = matrix.shape
    return ApproximateFactorization(np.zeros((k, 1)), np.zeros((1, m)), -matrix, 0.0)


def _exact(matrix: Array, constant: Array, noise: float) -> ApproximateFactorization:
    """All columns are equal: the constant is the answer, whatever the data are."""
    k, m = matrix.shape
    bias = constant[:, None] - matrix
    return ApproximateFactorization(
        np.zeros((k, 1)), np.zeros((1, m)), bias, 0.0, float(noise), constant
    )
