# SPDX-License-Identifier: Apache-2.0
"""`factorize` returns the optimal factorization of a matrix, with its certificate.

``F = R M`` with ``||R||_F ||M||_{1->2} / sqrt(k)`` (root mean square error at unit noise) or
``||R||_{2->inf} ||M||_{1->2}`` (maximum error) within the certificate of the minimum: gamma(F) and
gamma_2(F), Definition 2.2 in the lecture notes of Smith and Ullman on factorization. Equal columns
are merged first, which loses nothing, and equal rows become weights. For study and comparison:
releases measure on a grid, by the strategies of `strategy`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf, sqrt
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import numpy.typing as npt

from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.solve.effort import one_thread
from sfumato.solve.nuclear import best_root
from sfumato.study.study_limits import LIMITS
from sfumato.types import Array, Integers, Objective, SearchProgress
from sfumato.workload.workload import Workload, spread

if TYPE_CHECKING:
    from sfumato.strategy.biased import ApproximateFactorization

__all__ = [
    "FactorizationNorm",
    "MatrixFactorization",
    "approximate_factorization_norm",
    "dense_queries",
    "factorization_norm",
    "factorize",
]


@dataclass(frozen=True, eq=False)
class MatrixFactorization:
    """``F = R M``; ``lower_bound`` is below what any R and M reach, ``gamma`` is what these reach.

    Args:
        R: Reconstructs the answers, a row per query.
        M: Is measured, a column per cell.
        lower_bound: Is below what any R and M reach.
        objective: ``"rmse"`` or ``"max"``.
        weights: How much every query matters; None stands for ones.
    """

    R: Array
    M: Array
    lower_bound: float
    objective: Objective = "rmse"
    weights: Array | None = field(default=None, repr=False)

    @cached_property
    def sensitivity(self) -> float:
        """``||M||_{1->2}``: the longest column of M."""
        return float(np.sqrt((self.M**2).sum(axis=0).max()))

    @cached_property
    def variances(self) -> Array:
        """The variance of every answer when M is measured with noise of its sensitivity."""
        return np.asarray((self.R**2).sum(axis=1) * self.sensitivity**2, dtype=np.float64)

    @cached_property
    def gamma(self) -> float:
        """The error at unit noise: ``sqrt(sum w^2 var / sum w^2)``, or ``max w sqrt(var)``."""
        squares = np.ones(len(self.R)) if self.weights is None else self.weights**2
        weighted = squares * self.variances
        if self.objective == "max":
            return sqrt(float(weighted.max()))
        return sqrt(float(weighted.sum() / squares.sum()))

    @property
    def certificate(self) -> float:
        """``gamma / lower_bound``: at least 1, and how far this may be from the best."""
        return self.gamma / self.lower_bound

    def __repr__(self) -> str:
        k, m = len(self.R), self.M.shape[1]
        what = "gamma" if self.objective == "rmse" else "largest error"
        return (
            f"MatrixFactorization({k:,} queries, {m:,} cells, {len(self.M):,} measured: "
            f"{what} {self.gamma:.5f}, certificate {self.certificate:.5f})"
        )


@overload
def factorize(
    queries: object,
    tolerance: float = ...,
    progress: SearchProgress | None = ...,
    *,
    objective: Objective = ...,
    weights: npt.ArrayLike | None = ...,
    alpha: None = ...,
    noise: None = ...,
    offset: None = ...,
) -> MatrixFactorization: ...


@overload
def factorize(
    queries: object,
    tolerance: float = ...,
    progress: SearchProgress | None = ...,
    *,
    objective: Objective = ...,
    weights: npt.ArrayLike | None = ...,
    alpha: float | None = ...,
    noise: float | None = ...,
    offset: Array | Literal["best"] | None = ...,
) -> MatrixFactorization | ApproximateFactorization: ...


def factorize(
    queries: object,
    tolerance: float = 1e-4,
    progress: SearchProgress | None = None,
    *,
    objective: Objective = "rmse",
    weights: npt.ArrayLike | None = None,
    alpha: float | None = None,
    noise: float | None = None,
    offset: Array | Literal["best"] | None = None,
) -> MatrixFactorization | ApproximateFactorization:
    """The factorization ``F = R M`` of least error, with a lower bound on that of all others.

    Args:
        queries: A matrix (dense or scipy sparse), a row per query, or a small workload.
        tolerance: How far gamma may be above the least, relatively.
        progress: Called with the step and what was reached.
        objective: ``"rmse"``, or ``"max"`` for the largest error.
        weights: How much every query matters; a workload brings its own.
        alpha: A bias per record that answers may have.
        noise: The variance of the noise at unit sensitivity over n^2: bias and noise are then
            traded.
        offset: A public guess of the shares of the cells, or ``"best"``.

    Returns:
        R, M and a lower bound; an `ApproximateFactorization` where answers may be biased.

    Raises:
        PlanError: An argument is wrong.
        WorkloadError: The queries are no matrix of finite numbers, or all of them are zero.
        TooLarge: The matrix has too many entries.

    >>> import sfumato as sf
    >>> import numpy as np
    >>> found = sf.factorize(np.ones((5, 8)))
    >>> round(found.gamma, 6)
    1.0
    """
    if objective not in ("rmse", "max"):
        raise PlanError(f"objective must be 'rmse' or 'max', got {objective!r}")
    if alpha is not None or noise is not None or offset is not None:
        if objective == "max" or weights is not None:
            raise PlanError("alpha, noise and offset are for the plain root mean square error")
        return _approximate(dense_queries(queries), alpha, noise, offset, tolerance, progress)
    matrix = dense_queries(queries)
    query_weights = _weights(queries, weights, len(matrix))
    columns, where = np.unique(matrix, axis=1, return_inverse=True)
    counted = np.abs(columns).max(axis=0) > 0  # a column of zeros needs no measuring
    rows, number = np.unique(columns[:, counted], axis=0, return_inverse=True)
    number = number.reshape(-1).astype(np.int64)
    matters = _summed(query_weights, number, len(rows), objective)
    used = (np.abs(rows).max(axis=1) > 0) & (matters > 0)
    if not used.any():
        raise WorkloadError("no query that is not zero has a weight above 0")
    with one_thread():
        root = best_root(rows[used], matters[used], objective, tolerance, progress)
    measured = root.mixing @ rows[used]
    r = _read_off(rows, measured)[number]
    wide = np.zeros((len(measured), len(counted)))
    wide[:, counted] = measured
    scale = 1.0 if objective == "max" else float((query_weights**2).sum())
    return MatrixFactorization(
        r,
        np.ascontiguousarray(wide[:, where.reshape(-1)]),
        sqrt(root.lower / scale),
        objective,
        None if bool((query_weights == 1).all()) else query_weights,
    )


@dataclass(frozen=True, slots=True)
class FactorizationNorm:
    """gamma(F), or gamma_alpha(F): what a factorization reaches, and a bound that none is below.

    As a number it is ``value``.

    Args:
        value: ``||R||_F ||M||_{1->2} / sqrt(k)`` of the factorization.
        lower_bound: No factorization (of that bias) has less.
        alpha: The allowed bias; 0 for exact factorizations.
        factorization: R and M.
    """

    value: float
    lower_bound: float
    alpha: float
    factorization: MatrixFactorization | ApproximateFactorization

    @property
    def certificate(self) -> float:
        """``value / lower_bound``: at least 1, and how far this may be from the least.

        1 where nothing need be measured, so that the norm is 0.
        """
        if not self.value:
            return 1.0
        return self.value / self.lower_bound if self.lower_bound else inf

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        name = f"gamma_{self.alpha:g}" if self.alpha else "gamma"
        return f"{name} = {self.value:.6g} (at least {self.lower_bound:.6g})"


def factorization_norm(queries: object, *, tolerance: float = 1e-4) -> FactorizationNorm:
    """gamma(F), Definition 2.2 of Smith and Ullman: the least ``||R||_F ||M||_{1->2} / sqrt(k)``.

    Theorem 2.3: Gaussian noise on M and reconstruction by R err by ``c gamma(F) / n`` on average
    (`factorization_mechanism`).

    Args:
        queries: A matrix with a row per query, or a small workload.
        tolerance: How far it may be above the least, relatively.

    Returns:
        The norm with its certificate, R and M.

    Raises:
        WorkloadError: The queries are no matrix of finite numbers, or all of them are zero.
        TooLarge: The matrix has too many entries.

    >>> import numpy as np
    >>> import sfumato as sf
    >>> round(float(sf.study.factorization_norm(np.ones((5, 8)))), 6)
    1.0
    """
    best = factorize(queries, tolerance)
    return FactorizationNorm(best.gamma, best.lower_bound, 0.0, best)


def approximate_factorization_norm(
    queries: object, alpha: float, *, tolerance: float = LIMITS.approximate_tolerance
) -> FactorizationNorm:
    """gamma_alpha(F), Definition 2.5: the same over all R, M with ``||RM - F||_{1->2}`` bounded.

    The bound is ``alpha sqrt(k)``. Theorem 2.6: the mechanism then errs by at most
    ``alpha + c gamma_alpha(F) / n`` on average.

    Args:
        queries: A matrix with a row per query, or a small workload.
        alpha: The bias per record that answers may have, as a root mean square.
        tolerance: How far it may be above the least, relatively.

    Returns:
        The norm with its certificate, R and M.

    Raises:
        PlanError: Alpha or the tolerance is out of range.
        WorkloadError: The queries are no matrix of finite numbers, or all of them are zero.
        TooLarge: The matrix has too many entries.

    >>> import numpy as np
    >>> import sfumato as sf
    >>> nearly = np.array([[1.0, 1.02, 0.99], [0.98, 1.0, 1.01]])
    >>> sf.study.approximate_factorization_norm(nearly, alpha=0.03).value < 1
    True
    """
    if alpha == 0:
        return factorization_norm(queries, tolerance=tolerance)
    best = factorize(queries, tolerance, alpha=alpha)
    assert not isinstance(best, MatrixFactorization)  # noqa: S101
    return FactorizationNorm(best.gamma, best.lower_bound, float(alpha), best)


def _approximate(
    matrix: Array,
    alpha: float | None,
    noise: float | None,
    offset: Array | Literal["best"] | None,
    tolerance: float,
    progress: SearchProgress | None,
) -> ApproximateFactorization:
    """A factorization with a bias within ``alpha``, or traded against noise."""
    from sfumato.strategy.biased import bounded_bias, least_worst_case

    if (alpha is None) == (noise is None):
        raise PlanError("give either alpha, a bound on the bias, or noise; offset goes with noise")
    if noise is not None:
        return least_worst_case(matrix, noise, offset, tolerance, progress)
    if offset is not None or alpha is None:
        raise PlanError("offset goes with noise: a bound on the bias needs no guess")
    return bounded_bias(matrix, alpha, tolerance, progress)


def _summed(weights: Array, number: Integers, count: int, objective: str) -> Array:
    """The weight of every distinct query: squares add up, or the maximum counts."""
    if objective == "max":
        out = np.zeros(count)
        np.maximum.at(out, number, weights)
        return out
    return np.sqrt(np.bincount(number, weights=weights**2, minlength=count))


def _read_off(rows: Array, measured: Array) -> Array:
    """R with ``F = R M``, by an orthogonal basis of the rows of M."""
    from scipy.linalg import solve_triangular

    basis, triangle = np.linalg.qr(measured.T)
    r = solve_triangular(triangle, (rows @ basis).T).T
    sizes = np.abs(rows).max(axis=1)
    off = float((np.abs(r @ measured - rows).max(axis=1) / np.where(sizes > 0, sizes, 1)).max())
    if off > LIMITS.reconstruction_error:
        raise PlanError(
            f"R M differs from F by {off:.1e} of a query: one of weight 0 does not follow from the "
            "others, or queries differ too little; change the weights or scale the queries"
        )
    return np.asarray(r, dtype=np.float64)


def _weights(queries: object, weights: object, count: int) -> Array:
    if weights is None:
        if isinstance(queries, Workload):
            return np.concatenate([np.full(t.rows, t.weight) for t in queries.terms])
        return np.ones(count)
    array = np.asarray(weights)
    if array.dtype.kind not in "biuf" or array.shape != (count,):
        raise WorkloadError(
            f"weights need a number for each of the {count:,} queries, got shape {array.shape} of "
            f"{array.dtype}"
        )
    numbers = array.astype(np.float64)
    if not (np.isfinite(numbers).all() and (numbers >= 0).all() and numbers.any()):
        raise WorkloadError("weights must be finite numbers, none below 0 and not all of them 0")
    return numbers


def _check(rows: int, cells: int) -> None:
    if rows * cells > LIMITS.matrix_entries:
        raise TooLarge(
            f"a matrix of {rows:,} queries on {cells:,} cells has {rows * cells:,} entries "
            f"({8 * rows * cells / 2**30:,.1f} GiB), more than {LIMITS.matrix_entries:,}; sf.plan "
            "factorizes a workload without building it"
        )


def dense_queries(queries: object, caller: str = "factorize") -> Array:
    """The matrix of queries as floats; ``caller`` is named where it cannot be one."""
    from scipy.sparse import issparse

    if isinstance(queries, Workload):
        return _of_workload(queries)
    if issparse(queries):
        _check(*queries.shape)  # type: ignore[attr-defined]
        queries = queries.toarray()  # type: ignore[attr-defined]
    matrix = np.asarray(queries)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise WorkloadError(
            f"{caller} needs a matrix of numbers with a row per query, got shape {matrix.shape} "
            f"of {matrix.dtype}"
        )
    _check(*matrix.shape)
    matrix = matrix.astype(np.float64)
    if not np.isfinite(matrix).all() or not matrix.any():
        raise WorkloadError(f"{caller} needs finite numbers, not all of them zero")
    sizes = np.abs(matrix[matrix != 0])
    most = LIMITS.coefficient_maximum
    if float(sizes.max()) > most or float(sizes.min()) < 1 / most:
        raise WorkloadError(
            f"{caller} takes numbers of size {1 / most:.0e} to {most:.0e}, or 0; got "
            f"{sizes.min():.3g} to {sizes.max():.3g}: scale the queries"
        )
    return matrix


def _of_workload(workload: Workload) -> Array:
    """The matrix of a workload, from queries or from cells, whichever are fewer."""
    domain = workload.domain
    _check(workload.queries, domain.size)
    if domain.size <= workload.queries:
        unit = np.eye(domain.size).reshape(domain.size, *domain.shape)
        return np.array([workload.evaluate(cell) for cell in unit]).T
    rows = [
        spread(term.adjoint(one), domain, term.attributes).reshape(-1)
        for term in workload.terms
        for one in np.eye(term.rows)
    ]
    return np.array(rows, dtype=np.float64)
