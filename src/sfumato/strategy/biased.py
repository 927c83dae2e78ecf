# SPDX-License-Identifier: Apache-2.0
"""Strategies that trade bias for noise, for a public number of records.

``bounded_bias`` and ``least_worst_case`` find R and M of least worst error over all data sets of n
records, with a certificate (``ApproximateFactorization``). ``approximate`` makes a strategy of
them: M is rounded to integers and measured exactly like every other block, and the bias is computed
from the rounded matrix, so that what is stated about it is true whatever was rounded: ``E = R M -
F`` over all classes of cells, ``n |E e_j|`` in the worst case. Between the data and the noise
nothing is different from an unbiased strategy, so privacy is that of ``planning/calibrate.py``; the
bias is a matter of accuracy only, and post-processing. ``folded_normal_quantile`` gives the
intervals that hold the truth although an answer has a bounded bias.

Which number of records: the bias of h is at most ``n max_j |E_qj|``, so the statement holds for
every data set of at most ``records`` records. Where the number is exactly public (``replace-one``
neighbours), a constant can be added ``records`` times, which halves the bias of shares and more;
then it holds for that number only.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isfinite, prod, sqrt
from typing import ClassVar, Literal

import numpy as np

from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.solve.effort import one_thread
from sfumato.solve.ellipsoid import Ellipsoid, nearest_ellipsoid
from sfumato.solve.orbits import CLASS_SUMS, Axis
from sfumato.strategy.base import Block, GaussianStrategy, Strategy
from sfumato.strategy.conjunctions import conjunctions_by_polynomial, is_conjunctive
from sfumato.strategy.degrees import SymmetricSet, by_degrees, symmetric_set
from sfumato.strategy.measured import Piece
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Objective, SearchProgress
from sfumato.workload.queries import QuerySet, joint_classes
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

__all__ = [
    "ApproximateFactorization",
    "Biased",
    "approximate",
    "bounded_bias",
    "folded_normal_quantile",
    "least_worst_case",
    "trade_off",
]


# Approximate factorization, and its certificate

RANK_ROUNDING = 2.0**-44
SLACK = 1e-9  # relative: covers the float rounding of E


@dataclass(frozen=True, eq=False)
class ApproximateFactorization:
    """``F = R M - bias``, to be used as ``offset + R M h``; all for shares of the records.

    ``lower_bound`` is below what every approximate factorization can reach: the root of the worst
    mean squared error where ``noise`` was given, else gamma at the bias that was allowed.

    Where ``R M`` is not F but near it, the answers ``R (M h + z)`` have a bias ``E h`` with ``E = R
    M - F``, besides the noise ``R z``. For shares of n records (h sums to 1) the mean squared error
    per query is at most, over all data sets,

        max_j |E e_j|^2 / k  +  tau ||R||_F^2 ||M||_{1->2}^2 / k,

    tau the noise variance at unit sensitivity over n^2, because the squared bias is convex in h and
    so greatest where all records are in one cell. Two questions about this pair, one geometry:

    * ``bounded_bias``: the approximate factorization norm gamma_alpha(F), the least ``||R||_F
      ||M||_{1->2} / sqrt(k)`` with ``||R M - F||_{1->2} <= alpha sqrt(k)`` (Definition 2.5 in the
      lecture notes of Smith and Ullman on factorization);
    * ``least_worst_case``: the R and M of least worst error for a given tau. It is the saddle point
      ``max_u min_X tr(V (U^-1 + X / tau)^-1)`` over u in the simplex and X_jj <= 1, and also the
      least of ``alpha^2 + tau gamma_alpha^2`` over alpha.

    Both are least ellipsoids near the columns of F (``solve/ellipsoid.py``).

    References: Edmonds, Nikolov, Ullman 2020, "The power of factorization mechanisms in local and
    central differential privacy"; Donoho 1994, "Statistical estimation and optimal recovery" (the
    trade of bias and variance in the worst case).

    Args:
        R: Reconstructs the answers, a row per query.
        M: Is measured, a column per cell.
        bias: What is off, per record of a cell.
        lower_bound: Is below what every approximate factorization can reach.
        noise: The variance for which it was made; None where a bias was given.
        offset: A public constant that is added.
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

        Args:
            n: How many records there are.
            noise: The variance of the noise at unit sensitivity over n^2; that for which it was
                made if None.

        Returns:
            The error, in counts.
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
    F: Array, alpha: float, tolerance: float = 1e-3, progress: SearchProgress | None = None
) -> ApproximateFactorization:
    """gamma_alpha(F): least gamma with ``||R M - F||_{1->2} <= alpha sqrt(k)``.

    gamma(F) at alpha = 0, falling in alpha, and 0 from ``||F||_{1->2} / sqrt(k)`` on.

    Args:
        F: The queries, a row each.
        alpha: The bias that is allowed, per record, as a root mean square over queries.
        tolerance: How far gamma may be above the least, relatively.
        progress: Called with the step and what was reached.

    Returns:
        The factorization.

    Raises:
        PlanError: An argument is wrong, or the tolerance is not reached.

    >>> import sfumato as sf
    >>> import numpy as np
    >>> found = sf.study.bounded_bias(np.eye(4), 0.25)
    >>> bool(found.lower_bound <= found.gamma), round(found.alpha, 6)
    (True, 0.25)
    """
    matrix = _checked(F)
    _check_tolerance(tolerance)
    if not (isinstance(alpha, int | float) and isfinite(alpha) and alpha >= 0):
        raise PlanError(f"alpha is a bias per record and must be at least 0, got {alpha!r}")
    distance = alpha * sqrt(len(matrix))
    if distance >= sqrt(float((matrix**2).sum(axis=0).max())):
        return _nothing(matrix)
    problem = _Reduced.of(matrix, is_centred=False)
    ellipsoid = nearest_ellipsoid(
        problem.columns,
        distance=distance,
        tolerance=tolerance,
        progress=progress,
        is_growing=True,
    )
    r, m = problem.expanded(ellipsoid)
    lower = sqrt(ellipsoid.lower / len(matrix))
    return _within(ApproximateFactorization(r, m, r @ m - matrix, lower), tolerance)


def _check_tolerance(tolerance: object) -> None:
    if not (isinstance(tolerance, int | float) and isfinite(tolerance) and tolerance > 0):
        raise PlanError(f"tolerance is a relative error above 0, such as 1e-4, got {tolerance!r}")


def _within(best: ApproximateFactorization, tolerance: float) -> ApproximateFactorization:
    """The factorization, if its certificate proves the tolerance."""
    if best.certificate > (1 + tolerance) * (1 + 16 * RANK_ROUNDING):
        raise PlanError(
            f"an approximate factorization is proved to be within {best.certificate - 1:.2g} of "
            f"the least, and not within {tolerance:.2g}: ask for a tolerance of "
            f"{2 * (best.certificate - 1):.1g} or more, or for fewer queries"
        )
    return best


def least_worst_case(
    F: Array,
    noise: float,
    offset: Array | Literal["best"] | None = None,
    tolerance: float = LIMITS.biased_tolerance,
    progress: SearchProgress | None = None,
) -> ApproximateFactorization:
    """``min over R, M of max_j |E e_j|^2 / k + noise ||R||_F^2 ||M||_{1->2}^2 / k``.

    ``noise`` is tau: the variance of the noise at unit sensitivity over n^2; for Gaussian noise of
    mu-GDP and add-remove neighbours ``1 / (mu n)^2``.

    With ``offset``, a public guess h0 of the shares of the cells, the answers are
    ``F h0 + R M h``: without data they fall back to the guess instead of zero. The worst case is
    still over all data sets, near the guess or not; ``bias`` is then ``F h0 1' + R M - F``. With
    ``"best"`` the constant itself is optimised. Either needs n to be known: in counts, the
    constant is added n times.

    Args:
        F: The queries, a row each.
        noise: The variance of the noise at unit sensitivity over n^2.
        offset: A public guess of the shares of the cells, or ``"best"``.
        tolerance: How far the error may be above the least, relatively.
        progress: Called with the step and what was reached.

    Returns:
        The factorization.

    Raises:
        PlanError: An argument is wrong, or the tolerance is not reached.
    """
    _check_tolerance(tolerance)
    best = _worst_case(F, noise, offset, tolerance, progress)
    if best.certificate > 1 + tolerance:
        other = _worst_case(F, noise, offset, tolerance, progress, is_growing=True)
        best = min(best, other, key=lambda f: f.certificate)
    return _within(best, tolerance)


def _worst_case(
    F: Array,
    noise: float,
    offset: Array | Literal["best"] | None = None,
    tolerance: float = LIMITS.biased_tolerance,
    progress: SearchProgress | None = None,
    is_growing: bool = False,
) -> ApproximateFactorization:
    """`least_worst_case` as far as the search comes: what is proved of it is true anyway."""
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
    ellipsoid = nearest_ellipsoid(
        problem.columns,
        tau=noise,
        is_centred=is_best,
        tolerance=tolerance,
        progress=progress,
        is_growing=is_growing,
    )
    r, m = problem.expanded(ellipsoid)
    if is_best:
        constant = problem.middle + problem.basis @ ellipsoid.centre
    bias = r @ m + constant[:, None] - matrix
    lower = sqrt(ellipsoid.lower / k)
    return ApproximateFactorization(
        r, m, bias, lower, float(noise), None if offset is None else constant
    )


def trade_off(
    F: Array, noise: float, alphas: Sequence[float], tolerance: float = 1e-3
) -> list[tuple[float, float]]:
    """``sqrt(alpha^2 + noise gamma_alpha^2)`` for every alpha: convex, falling, then rising.

    Its least value, over all alpha, is that of ``least_worst_case``.

    Args:
        F: The queries, a row each.
        noise: The variance of the noise at unit sensitivity over n^2.
        alphas: Biases, per record.
        tolerance: How far gamma may be above the least, relatively.

    Returns:
        Pairs of a bias and the error at it.

    >>> import sfumato as sf
    >>> import numpy as np
    >>> [round(error, 2) for _, error in sf.study.trade_off(np.eye(2), 1.0, [0.0, 0.5, 1.0])]
    [1.0, 0.58, 1.0]
    """
    factorizations = [(float(a), bounded_bias(F, a, tolerance)) for a in alphas]
    return [(a, sqrt(a**2 + noise * f.gamma**2)) for a, f in factorizations]


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
        with one_thread():
            left, singular, _ = np.linalg.svd(columns, full_matrices=False)
        basis = left[:, singular > singular[0] * max(columns.shape) * RANK_ROUNDING]
        if basis.shape[1] > LIMITS.approximate_rank:
            raise TooLarge(
                f"an approximate factorization of a matrix of rank {basis.shape[1]:,}; the limit "
                f"is {LIMITS.approximate_rank:,}: ask for fewer queries or coarser cells"
            )
        return cls(basis, basis.T @ columns, middle, where.reshape(-1).astype(np.int64))

    def expanded(self, ellipsoid: Ellipsoid) -> tuple[Array, Array]:
        """R and M of the whole matrix, from an ellipsoid near its distinct columns."""
        return self.basis @ ellipsoid.root, np.ascontiguousarray(ellipsoid.inside[:, self.where])


def _checked(matrix: object) -> Array:
    numbers = np.asarray(matrix)
    if numbers.ndim != 2 or numbers.dtype.kind not in "biuf" or not numbers.size:
        raise WorkloadError(
            f"an approximate factorization needs a matrix of numbers with a row per query, got "
            f"shape {numbers.shape} of {numbers.dtype}"
        )
    if numbers.size > LIMITS.approximate_entries:
        raise TooLarge(
            f"a matrix of {numbers.size:,} entries is too large for an approximate factorization; "
            f"the limit is {LIMITS.approximate_entries:,}: ask for fewer queries or coarser cells"
        )
    out = numbers.astype(np.float64)
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
    """The factorization that answers zero: the bias may be as large as the queries."""
    k, m = matrix.shape
    return ApproximateFactorization(np.zeros((k, 1)), np.zeros((1, m)), -matrix, 0.0)


def _exact(matrix: Array, constant: Array, noise: float) -> ApproximateFactorization:
    """The factorization that answers the constant: all columns are equal."""
    k, m = matrix.shape
    bias = constant[:, None] - matrix
    return ApproximateFactorization(
        np.zeros((k, 1)), np.zeros((1, m)), bias, 0.0, float(noise), constant
    )


@dataclass(frozen=True, eq=False)
class Biased(GaussianStrategy):
    """``R y + records * offset``; ``bias`` holds E over the classes of cells, row by query."""

    _algorithm: ClassVar[str] = "matrix"

    reconstruction: Array
    offset: Array
    bias: Array

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """``R y`` of the rows of the term, plus the constant."""
        rows = self._rows(term)
        estimate = self.reconstruction[rows] @ np.asarray(values[0], dtype=np.float64)
        return np.asarray(estimate + (self.records or 0) * self.offset[rows], dtype=np.float64)

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """The squared rows of R times the noise variance."""
        return block_variances[0] * self._squares[self._rows(term)]

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``: the constant carries no noise."""
        weights = self.reconstruction[self._rows(term)].T @ coefficients
        return {0: np.asarray(weights, dtype=np.float64)} if weights.any() else {}

    def bias_bounds(self, term: int) -> Array:
        """``max_j |E_qj|`` of every query, rounded up."""
        return self._bounds[self._rows(term)]

    def squared_bias(self, term: int | None = None) -> float:
        """``max_j |E e_j|^2`` over the queries of a term, or over all."""
        rows = slice(None) if term is None else self._rows(term)
        return float((self.bias[rows] ** 2).sum(axis=0).max()) * (1 + SLACK)

    def describe(self) -> list[str]:
        """The line of the block, and one that says what the bias comes to."""
        worst = (self.squared_bias() / len(self.bias)) ** 0.5
        bias_line = f"biased by at most {worst:.4g} per record, root mean square over the queries"
        return [*super().describe(), bias_line]

    @cached_property
    def _bounds(self) -> Array:
        return np.asarray(np.abs(self.bias).max(axis=1) * (1 + SLACK), dtype=np.float64)

    @cached_property
    def _squares(self) -> Array:
        return np.asarray((self.reconstruction**2).sum(axis=1), dtype=np.float64)

    def _rows(self, term: int) -> slice:
        first = sum(t.rows for t in self.workload.terms[:term])
        return slice(first, first + self.workload.terms[term].rows)


def approximate(
    workload: Workload,
    loss: float,
    records: int,
    objective: Objective = "rmse",
    *,
    is_exact: bool = False,
) -> Strategy:
    """The strategy of least worst error over all data sets of at most ``records`` records.

    ``loss`` is the mu of the Gaussian noise; ``is_exact`` says that the number of records is
    public and exactly this. Conjunctions of many yes/no attributes go by polynomials; all else
    must be small enough for one matrix. PlanError and TooLarge say what does not fit.
    """
    _check(loss, records, objective)
    family = symmetric_set(workload)
    if family is not None and family.goes_by_degrees:
        return _of_symmetric(workload, family, loss, records, objective)
    try:
        return _as_one_matrix(workload, loss, records, objective, is_exact)
    except TooLarge:
        if not is_conjunctive(workload):
            raise
    return conjunctions_by_polynomial(workload, records, loss, objective)


def _of_symmetric(
    workload: Workload, family: SymmetricSet, loss: float, records: int, objective: Objective
) -> Strategy:
    """All conjunctions of some widths, by degrees, or by polynomials where these err less."""
    strategies: list[Strategy] = [by_degrees(workload, family, records, loss, objective)]
    if is_conjunctive(workload):
        with suppress(PlanError):
            strategies.append(conjunctions_by_polynomial(workload, records, loss, objective))
    if objective == "max":
        return min(strategies, key=lambda s: _largest_error(s, loss, records))
    return min(strategies, key=lambda s: _worst_error(s, loss, records))


def _largest_error(strategy: Strategy, loss: float, records: int) -> float:
    """The greatest squared error of a query, by the weights of the terms."""
    power = strategy.squared_sensitivity() / loss**2
    noise = [power * share**-2 for share in strategy.shares]
    return max(
        term.weight**2 * strategy.maximum_error(t, noise, records)
        for t, term in enumerate(strategy.workload.terms)
    )


def _worst_error(strategy: Strategy, loss: float, records: int) -> float:
    """The squared worst error, weighted by what matters to the asker."""
    weights = [t.weight**2 for t in strategy.workload.terms]
    if len(set(weights)) == 1:
        bias = weights[0] * strategy.squared_bias()
    else:
        bias = sum(w * strategy.squared_bias(t) for t, w in enumerate(weights))
    return records**2 * bias + strategy.weighted_error() / loss**2


def _check(loss: float, records: int, objective: Objective) -> None:
    if not (isinstance(loss, int | float) and isfinite(loss) and loss > 0):
        raise PlanError(f"the privacy loss mu must be a number above 0, got {loss!r}")
    if isinstance(records, bool) or not isinstance(records, int) or records < 1:
        raise PlanError(
            f"a biased strategy is made for a public number of records, at least 1, got "
            f"{records!r}; say records=..."
        )
    if objective not in ("rmse", "max"):
        raise PlanError(f"objective must be 'rmse' or 'max', got {objective!r}")


def _as_one_matrix(
    workload: Workload, loss: float, records: int, objective: Objective, is_exact: bool
) -> Biased:
    axes = _axes(workload)
    matrix = np.concatenate([_coefficients(t, axes) for t in workload.terms])
    query_weights = np.concatenate([np.full(t.rows, t.weight) for t in workload.terms])
    if not matrix.any():
        raise PlanError("all queries are zero on every cell: there is nothing to measure")
    tau = (loss * records) ** -2.0
    if objective == "max":
        factorization = _minimax(matrix, query_weights, tau, is_exact)
    else:
        factorization = _weighted(matrix, query_weights, tau, is_exact)
    if not factorization.R.any():
        raise PlanError(
            f"at mu = {loss:.3g} the noise is so large that nothing measured of {records:,} "
            "records is better than nothing; give more budget or ask less"
        )
    return _rounded(workload, axes, matrix, factorization, records, objective)


def _weighted(
    matrix: Array, weights: Array, tau: float, is_exact: bool
) -> ApproximateFactorization:
    """The least worst case of the queries times their weights, in the queries' own units."""
    factorization = _worst_case(matrix * weights[:, None], tau, "best" if is_exact else None)
    offset = None if factorization.offset is None else factorization.offset / weights
    return replace(
        factorization,
        R=factorization.R / weights[:, None],
        bias=factorization.bias / weights[:, None],
        offset=offset,
    )


def _minimax(
    matrix: Array, query_weights: Array, tau: float, is_exact: bool
) -> ApproximateFactorization:
    """The minimum of ``max_q w_q^2 (tau |r_q|^2 + max_j E_qj^2)`` over some rounds of weights."""
    weights = query_weights
    best, least = _weighted(matrix, weights, tau, is_exact), inf
    current = best
    for _ in range(LIMITS.biased_rounds):
        errors = query_weights * np.sqrt(tau * current.variances + current.bias_bounds**2)
        worst = float(errors.max())
        if worst < least:
            best, least = current, worst
        if float(errors.min()) > worst * (1 - LIMITS.biased_evenness):
            break
        weights = weights * np.sqrt(np.maximum(errors / worst, LIMITS.biased_weight_minimum))
        current = _weighted(matrix, weights, tau, is_exact)
    return best


def _rounded(
    workload: Workload,
    axes: tuple[Axis, ...],
    matrix: Array,
    factorization: ApproximateFactorization,
    records: int,
    objective: Objective,
) -> Biased:
    """M as integers times a unit, and E of what is measured then."""
    used = np.linalg.norm(factorization.R, axis=0) * np.abs(factorization.M).max(axis=1)
    is_used = used > used.max() * LIMITS.biased_negligible
    aim_squared = factorization.worst_error() ** 2 * (1 + LIMITS.biased_rounding)
    offset = np.zeros(len(matrix)) if factorization.offset is None else factorization.offset
    for bits in LIMITS.entry_bits:
        unit = float(np.abs(factorization.M[is_used]).max()) / 2**bits
        entries = np.rint(factorization.M[is_used] / unit).astype(np.int64)
        reconstruction, whole = factorization.R[:, is_used] * unit, entries.astype(np.float64)
        bias = reconstruction @ whole + offset[:, None] - matrix
        noise = (factorization.noise or 0.0) * float((reconstruction**2).sum() * _longest(whole))
        if float((bias**2).sum(axis=0).max()) + noise <= aim_squared * len(matrix):
            break
    name = "approximation of " + " x ".join(a.name for a in axes)
    piece = Piece(workload.domain, name, 1.0, axes, (CLASS_SUMS,) * len(axes), entries)
    return Biased(
        "approximate",
        "gaussian",
        workload,
        (Block(piece, unit),),
        reconstruction,
        offset,
        bias,
        objective=objective,
        records=records,
    )


def _longest(matrix: Array) -> float:
    return float((matrix**2).sum(axis=0).max())


def _axes(workload: Workload) -> tuple[Axis, ...]:
    """The attributes with the classes of their cells that some query tells apart."""
    keys: dict[str, list[Integers]] = {}
    for term in workload.terms:
        product = term.as_product()
        sets = {} if product is None else dict(product.factors)
        for name in term.attributes:
            if name in sets:
                classes: Integers | None = _classes(sets[name])
            else:
                classes = term.cell_classes(name) if term.as_conditions() else None
            own = np.arange(workload.domain[name].size) if classes is None else classes
            keys.setdefault(name, []).append(own)
    every_axis = [Axis(n, joint_classes(keys[n])) for n in workload.domain.in_order(keys)]
    axes = tuple(a for a in every_axis if a.classes > 1)
    if not axes:
        raise PlanError("the queries do not tell any two cells apart: only totals are asked")
    count, cells = prod(a.classes for a in axes), prod(a.cells for a in axes)
    if (
        count > LIMITS.biased_classes
        or count * workload.queries > LIMITS.biased_entries
        or cells > LIMITS.biased_cells
    ):
        raise TooLarge(
            f"{workload.queries:,} queries that tell {count:,} classes of cells apart, in a "
            f"table of {cells:,}; approximate factorization takes at most "
            f"{LIMITS.biased_classes:,} "
            f"classes, {LIMITS.biased_entries:,} coefficients and {LIMITS.biased_cells:,} cells: "
            "ask about fewer attributes at once"
        )
    return axes


def _classes(queries: QuerySet) -> Integers:
    """A number for every cell, equal for cells with equal columns."""
    if queries.rows * queries.size > LIMITS.biased_entries and not queries.is_disjoint:
        return np.arange(queries.size)
    classes = queries.cell_classes()
    if classes is not None:
        return classes
    return np.unique(queries.dense(), axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _coefficients(term: Term, axes: tuple[Axis, ...]) -> Array:
    """A row per query, a column per product of classes, read off the first cell of each."""
    firsts = {a.name: np.unique(a.class_of, return_index=True)[1] for a in axes}
    names = [a.name for a in axes if a.name in term.attributes]
    one = np.zeros(1, dtype=np.int64)
    own = term.dense_at([firsts.get(n, one) for n in term.attributes])
    spread = own.reshape(term.rows, *(len(firsts[a.name]) if a.name in names else 1 for a in axes))
    whole = np.broadcast_to(spread, (term.rows, *(a.classes for a in axes)))
    return np.ascontiguousarray(whole.reshape(term.rows, -1))


# Intervals under a bound on the bias

SAFE = 1e-9  # relative, far above the error of Newton's method


def folded_normal_quantile(ratio: Array, level: float) -> Array:
    """The c with ``P(|N(ratio, 1)| <= c) = level``, rounded up.

    If an answer is ``truth + b + s Z`` with Z standard normal and ``|b| <= B``, then ``P(|answer -
    truth| <= c)`` falls in ``|b|``, so the least c that works for every such b is the quantile of
    ``|N(B, s^2)|``. It is at most ``B + s q``, q the two-sided normal quantile, and near ``B + s
    q_1`` with the one-sided quantile where the bias is large, since only one tail then counts.

    Reference: Armstrong, Kolesar 2018, "Optimal inference in a class of regression models"
    (fixed-length intervals under a bound on the bias).

    >>> import numpy as np
    >>> [round(float(c), 2) for c in folded_normal_quantile(np.array([0.0, 5.0]), 0.95)]
    [1.96, 6.64]
    """
    from scipy.special import ndtr, ndtri

    b = np.asarray(ratio, dtype=np.float64)
    # P is concave in c from b on, and below the level at the one-sided quantile: Newton's method
    # from there never passes the root.
    c = b + ndtri(level)
    c = np.maximum(c, ndtri((1 + level) / 2))
    for _ in range(LIMITS.quantile_steps):
        missing = level - (ndtr(c - b) - ndtr(-c - b))
        density = (np.exp(-((c - b) ** 2) / 2) + np.exp(-((c + b) ** 2) / 2)) / np.sqrt(2 * np.pi)
        step = missing / density
        c = c + step
        if float(np.abs(step).max(initial=0.0)) <= 1e-13:
            break
    return np.asarray(c * (1 + SAFE), dtype=np.float64)
