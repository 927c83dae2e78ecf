# SPDX-License-Identifier: Apache-2.0
"""The local model by randomized response: reports of clients, and counts and answers from them.

A client holds one code in ``0 .. size-1`` and sends one report (`RandomizedResponse.encode`, of
several attributes `encode_table`). Nobody is trusted with exact data, so there is no vault, no
ledger and no noise added later. The collector returns unbiased counts and answers with intervals
(`estimate_reports`, `estimate_table`); `response_error` and the other forecasts say beforehand how
exact they will be.

S. Warner, 1965, "Randomized response: a survey technique for eliminating evasive answer bias"
(size 2); P. Kairouz, K. Bonawitz, D. Ramage, 2016, "Discrete distribution estimation under local
privacy" (any size).

No probability here is a float: the coin is a 64-bit word compared with an integer threshold that
is rounded towards more privacy. Proof: docs/proofs/randomized-response.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import NormalDist
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from sfumato.errors import BudgetError, PlanError, SchemaError, TooLarge, WorkloadError
from sfumato.random import WordSource, integers_below, system_words
from sfumato.study.study_limits import LIMITS

__all__ = [
    "COIN_BITS",
    "Codes",
    "Floats",
    "Interval",
    "LocalAnswers",
    "LocalEstimate",
    "RandomizedResponse",
    "UnaryEncoding",
    "centred",
    "checked_queries",
    "encode_table",
    "estimate_from_tally",
    "estimate_reports",
    "estimate_table",
    "exp_down",
    "forecast_radius",
    "forecast_rmse",
    "joint_response",
    "keep_threshold",
    "normal_quantile",
    "product_queries",
    "respond",
    "response_error",
    "response_rows_needed",
    "row_variances",
    "workload_rmse",
]


Codes = npt.NDArray[np.int64]

COIN_BITS = 64
"""Bits of one coin: a whole word."""

# exp(128) * 2**-COIN_BITS exceeds the cells of any response, so beyond this epsilon the threshold
# is 2**64 - 1 whatever epsilon is; a smaller exponent only lowers a threshold, never privacy.
_MAXIMUM_EXPONENT = Fraction(128)
_EXP_BITS = 256


def exp_down(exponent: Fraction, bits: int = _EXP_BITS) -> Fraction:
    """A multiple of ``2^-bits``, at most ``exp(exponent)`` and close to it, for exponent >= 0.

    All Taylor terms are positive, so cutting the series and rounding each term down can only
    lower the sum: the bound is certain, not merely likely.

    >>> exp_down(Fraction(0))
    Fraction(1, 1)
    >>> float(exp_down(Fraction(1)))
    2.718281828459045
    """
    if exponent < 0:
        raise BudgetError(f"exp_down got the exponent {float(exponent)}; it must be at least 0")
    numerator, denominator = exponent.numerator, exponent.denominator
    term = total = 1 << bits
    order = 0
    while term:
        order += 1
        term = term * numerator // (denominator * order)
        total += term
    return Fraction(total, 1 << bits)


def keep_threshold(epsilon: Fraction, size: int, bits: int = COIN_BITS) -> int:
    """The maximal ``a`` with ``p = a / 2^bits <= e^epsilon / (e^epsilon + size - 1)``.

    Privacy: rounding p down keeps ``p (size-1) / (1-p) <= e^epsilon`` (Claim 1 of the proof page).
    A p below ``1/size`` would turn the inequality round and carries no signal: refused.
    """
    odds = exp_down(min(epsilon, _MAXIMUM_EXPONENT))
    threshold = math.floor((1 << bits) * odds / (odds + (size - 1)))
    if threshold * size <= 1 << bits:
        raise BudgetError(
            f"epsilon {float(epsilon):.3g} is too small for {size} codes: a coin of {bits} bits "
            "cannot tell the true code from the others; raise epsilon or merge codes"
        )
    return threshold


def respond(
    codes: Codes, coins: npt.NDArray[np.uint64], offsets: Codes, threshold: int, size: int
) -> Codes:
    """``code if coin < threshold else (code + 1 + offset) mod size``, element by element.

    Written as sums and products, the same for every outcome: a selection by mask (``np.where``)
    branches on the coin, and its time varies with the pattern of kept codes.
    """
    moves = (coins >= np.uint64(threshold)).astype(np.int64)
    reports = codes + moves * (1 + offsets)
    # code + 1 + offset < 2 size, so one subtraction is the remainder.
    reports -= size * (reports >= size).astype(np.int64)
    return reports


@dataclass(frozen=True, slots=True)
class RandomizedResponse:
    """Report the true code with probability p, any other with probability (1-p)/(size-1) each.

    Privacy: epsilon-local differential privacy of every single report (Kairouz, Bonawitz, Ramage
    2016; Claim 1 of docs/proofs/randomized-response.md), exactly, with no delta.
    Neighbours: any code of one client replaced by any other; that a client reports is public.
    A float epsilon stands for the exact binary number that it is.

    Args:
        epsilon: What a report spends.
        size: How many codes there are.

    Raises:
        BudgetError: Epsilon is out of range.
        SchemaError: The size is.

    >>> import sfumato as sf
    >>> response = sf.study.RandomizedResponse(epsilon=1, size=4)
    >>> round(float(response.keep), 6), round(float(response.other), 6)
    (0.475367, 0.174878)
    """

    epsilon: Fraction | float
    size: int
    threshold: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        epsilon, size = _exact_epsilon(self.epsilon), _checked_size(self.size)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "threshold", keep_threshold(epsilon, size))

    @property
    def keep(self) -> Fraction:
        """p, the exact probability that the report is the true code."""
        return Fraction(self.threshold, 1 << COIN_BITS)

    @property
    def other(self) -> Fraction:
        """(1 - p) / (size - 1), the exact probability of each other code."""
        return (1 - self.keep) / (self.size - 1)

    @property
    def gap(self) -> Fraction:
        """``keep - other``, the share of signal in a report; 2p - 1 for one bit."""
        return self.keep - self.other

    @property
    def likelihood_ratio(self) -> Fraction:
        """``keep / other``, the maximal ratio of probabilities of one report; at most e^epsilon."""
        return self.keep / self.other

    def encode(self, codes: npt.ArrayLike, random: WordSource | None = None) -> Codes:
        """One report for each code, independently; runs at the client.

        Privacy: each report is epsilon-locally private. Encoding the same record again spends
        epsilon again (basic composition): store the report and repeat it, not the coin.
        Neighbours: the code of one record replaced by any other.

        Args:
            codes: One true code per record.
            random: A source of random words; the system's if None.

        Returns:
            One report per record.

        Raises:
            SchemaError: A code is out of range.
        """
        true = checked_codes(codes, self.size, "codes")
        source = system_words() if random is None else random
        flat = true.reshape(-1)
        reports = np.empty_like(flat)
        for start in range(0, flat.size, LIMITS.reports_at_once):
            block = flat[start : start + LIMITS.reports_at_once]
            coins = source.words(block.size)
            # Offsets are drawn for kept codes too: how many words are used must not depend on
            # the coins. With two codes there is only one other, and nothing to draw.
            offsets = (
                integers_below(self.size - 1, block.size, source)
                if self.size > 2
                else np.zeros(block.size, dtype=np.int64)
            )
            reports[start : start + block.size] = respond(
                block, coins, offsets, self.threshold, self.size
            )
        return reports.reshape(true.shape)


def checked_codes(codes: npt.ArrayLike, size: int, name: str) -> Codes:
    """The codes as int64 when all are integers in ``0 .. size-1``; the message holds no value."""
    array = np.asarray(codes)
    if array.size and array.dtype.kind not in "iub":
        raise SchemaError(
            f"{name} are not all integers; allowed are integers 0 to {size - 1}; "
            "map each value to its code first"
        )
    if array.size and bool((array < 0).any() | (array >= size).any()):
        raise SchemaError(
            f"{name} hold at least one number outside 0 to {size - 1}; "
            "map values outside the domain to a code of their own first"
        )
    return cast(Codes, array.astype(np.int64))


def _exact_epsilon(epsilon: object) -> Fraction:
    number = epsilon.item() if isinstance(epsilon, np.number) else epsilon
    if isinstance(number, bool) or not isinstance(number, int | float | Fraction):
        raise BudgetError(
            f"epsilon is of type {type(epsilon).__name__}; give an int, a float or a Fraction"
        )
    if number <= 0 or (isinstance(number, float) and not math.isfinite(number)):
        raise BudgetError(f"epsilon is {number}; it must be finite and greater than 0")
    return Fraction(number)


def _checked_size(size: int) -> int:
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 2:
        raise SchemaError(f"size is {size!r}; randomized response needs an integer of at least 2")
    if size > LIMITS.response_cells:
        raise TooLarge(
            f"randomized response over {size} cells was asked; at most {LIMITS.response_cells} are "
            "allowed; report fewer attributes together, or coarser ones"
        )
    return int(size)


# Forecasts: public arithmetic on the law of the response, which needs no report. Errors are against
# the exact histogram h of the clients' true codes, in counts, unless said otherwise. Formulas:
# docs/proofs/randomized-response.md.

Floats = npt.NDArray[np.float64]

Interval = Literal["finite", "hoeffding", "normal"]
"""``finite``: the smaller of Hoeffding and Bernstein, valid for every n; ``normal``: the limit."""


def checked_queries(response: RandomizedResponse, queries: npt.ArrayLike) -> Floats:
    """The queries as a float matrix of shape (queries, size)."""
    matrix = np.asarray(queries)
    if matrix.ndim != 2 or matrix.shape[1] != response.size or matrix.shape[0] == 0:
        raise WorkloadError(
            f"queries have shape {matrix.shape}; allowed is (queries, {response.size}) with at "
            "least one query: one row for each query, one column for each cell"
        )
    if matrix.dtype.kind not in "iubf" or not bool(np.isfinite(matrix).all()):
        raise WorkloadError("queries hold entries that are not finite numbers; give numbers only")
    return cast(Floats, matrix.astype(np.float64))


def centred(queries: Floats) -> Floats:
    """``q - mean(q)`` for each query: since the estimate sums to n, the noise of q is the same."""
    return cast(Floats, queries - queries.mean(axis=1, keepdims=True))


def row_variances(response: RandomizedResponse, queries: npt.ArrayLike) -> Floats:
    """Variance that one client of true code j adds to query q: matrix of shape (queries, size).

    ``(other |c|^2 + gap (1 - gap) c_j^2) / gap^2`` with c the centred query (Claim 3).
    """
    c = centred(checked_queries(response, queries))
    other, gap = float(response.other), float(response.gap)
    squares = c * c
    total = squares.sum(axis=1, keepdims=True)
    return cast(Floats, (other * total + gap * (1 - gap) * squares) / gap**2)


def forecast_rmse(response: RandomizedResponse, queries: npt.ArrayLike, rows: int) -> Floats:
    """Root mean squared error of each query, for the worst data set of ``rows`` rows.

    Error: ``sqrt(rows * max_j row_variances[q, j])``, attained when all clients hold that j.
    """
    variances = row_variances(response, queries)
    return cast(Floats, np.sqrt(_checked_rows(rows) * variances.max(axis=1)))


def workload_rmse(
    response: RandomizedResponse,
    gram_diagonal: npt.ArrayLike,
    gram_row_sums: npt.ArrayLike,
    queries: int,
    rows: int,
) -> float:
    """Root mean squared error over all queries of F, for the worst data set of ``rows`` rows.

    Takes ``diag(F^T F)`` and ``F^T F 1``, both known to a structured workload without its matrix.
    Error: ``sqrt(rows (other |FC|_F^2 + gap (1-gap) max_j |FC e_j|^2) / (queries gap^2))`` with
    ``C = I - J/size`` (Claim 3).
    """
    size = response.size
    diagonal = np.asarray(gram_diagonal, dtype=np.float64)
    sums = np.asarray(gram_row_sums, dtype=np.float64)
    if diagonal.shape != (size,) or sums.shape != (size,):
        raise WorkloadError(
            f"gram_diagonal and gram_row_sums have shapes {diagonal.shape} and {sums.shape}; "
            f"both must be ({size},), one number for each cell"
        )
    columns = np.maximum(diagonal - 2 * sums / size + sums.sum() / size**2, 0.0)
    other, gap = float(response.other), float(response.gap)
    worst = other * float(columns.sum()) + gap * (1 - gap) * float(columns.max())
    return math.sqrt(_checked_rows(rows) * worst / (_checked_number(queries) * gap**2))


def response_error(
    response: RandomizedResponse, rows: int, queries: int, beta: float, spread: float = 1.0
) -> float:
    """With probability 1 - beta all ``queries`` answers are within this of the truth, in counts.

    ``(spread / gap) sqrt(rows ln(2 queries / beta) / 2)``: Hoeffding for sums of reports in a range
    of ``spread / gap`` and a union bound; for every data set (W. Hoeffding, 1963, "Probability
    inequalities for sums of bounded random variables"; Y.-X. Wang, lecture notes "Sparse vector
    technique and linear query release"). ``spread`` is the maximal ``max(q) - min(q)``, 1 for
    counting queries. Divide by rows for the error of shares.

    Args:
        response: How reports are made.
        rows: How many reports there are.
        queries: How many queries are answered.
        beta: The probability with which the bound may fail.
        spread: The largest ``max(q) - min(q)``.

    Returns:
        The bound, in counts.

    Raises:
        PlanError: An argument is out of range.

    >>> import sfumato as sf
    >>> response = sf.study.RandomizedResponse(1, 2)
    >>> round(sf.study.response_error(response, rows=10_000, queries=100, beta=0.05), 1)
    440.7
    """
    log_term = math.log(2 * _checked_number(queries) / _checked_beta(beta))
    if not (math.isfinite(spread) and spread >= 0):
        raise PlanError(f"spread is {spread}; it must be a finite number of at least 0")
    return spread / float(response.gap) * math.sqrt(_checked_rows(rows) * log_term / 2)


def response_rows_needed(
    response: RandomizedResponse, alpha: float, beta: float, queries: int, spread: float = 1.0
) -> int:
    """The least n whose ``response_error`` is at most ``alpha n``: all shares within alpha.

    ``ceil((spread / (alpha gap))^2 ln(2 queries / beta) / 2)``.

    Args:
        response: How reports are made.
        alpha: An error, as a share of the reports.
        beta: The probability with which the bound may fail.
        queries: How many queries are answered.
        spread: The largest ``max(q) - min(q)``.

    Returns:
        A number of reports.

    Raises:
        PlanError: An argument is out of range.

    >>> import sfumato as sf
    >>> response = sf.study.RandomizedResponse(1, 2)
    >>> sf.study.response_rows_needed(response, alpha=0.05, beta=0.05, queries=100)
    7768
    """
    if not (math.isfinite(alpha) and alpha > 0):
        raise PlanError(f"alpha is {alpha}; it must be a finite number greater than 0")
    # response_error grows with sqrt(n), alpha n with n: the bound of one row says where they cross.
    rows = max(1, math.ceil((response_error(response, 1, queries, beta, spread) / alpha) ** 2))
    # The float square may be off by one unit in the last place; settle it on the bound itself.
    while response_error(response, rows, queries, beta, spread) > alpha * rows:
        rows += max(1, rows >> 50)
    return rows


def forecast_radius(
    response: RandomizedResponse,
    queries: npt.ArrayLike,
    rows: int,
    beta: float,
    interval: Interval = "finite",
) -> Floats:
    """Half-width of an interval that misses each query with probability at most beta.

    Let L = ln(2/beta), b = spread/gap, V the worst variance of the sum (``forecast_rmse`` squared).
    hoeffding: ``b sqrt(n L / 2)``; finite: the smaller of that and Bernstein's
    ``b L/3 + sqrt((b L/3)^2 + 2 V L)``, both for every n; normal: ``z_(1-beta/2) sqrt(V)``.
    All depend on public numbers only, so taking the smaller costs no confidence.
    """
    matrix = checked_queries(response, queries)
    if interval == "normal":
        return normal_quantile(beta) * forecast_rmse(response, matrix, rows)
    ranges = np.ptp(matrix, axis=1) / float(response.gap)
    log_term = math.log(2 / _checked_beta(beta))
    hoeffding = cast(Floats, ranges * math.sqrt(_checked_rows(rows) * log_term / 2))
    if interval == "hoeffding":
        return hoeffding
    if interval != "finite":
        raise PlanError(f"interval is {interval!r}; allowed are 'finite', 'hoeffding', 'normal'")
    linear = ranges * log_term / 3
    variances = forecast_rmse(response, matrix, rows) ** 2
    bernstein = linear + np.sqrt(linear**2 + 2 * variances * log_term)
    return cast(Floats, np.minimum(hoeffding, bernstein))


def normal_quantile(beta: float) -> float:
    """z with ``P(|Z| > z) = beta`` for a standard normal Z.

    >>> round(normal_quantile(0.05), 6)
    1.959964
    """
    return -NormalDist().inv_cdf(_checked_beta(beta) / 2)


def _checked_beta(beta: float) -> float:
    if not 0 < beta < 1:
        raise PlanError(f"the failure probability beta is {beta}; it must lie between 0 and 1")
    return beta


def _checked_rows(rows: int) -> int:
    if rows < 0:
        raise PlanError(f"rows is {rows}; it must be at least 0")
    return rows


def _checked_number(queries: int) -> int:
    if queries < 1:
        raise PlanError(f"queries is {queries}; it must be at least 1")
    return queries


# Estimates, at the collector: reports are already private, so that all of it is arithmetic on
# public numbers and costs nothing more


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

    For one bit this is n times ``0.5 + (Y - 0.5) / (2p - 1)`` averaged over clients (Y.-X. Wang,
    lecture notes "Sparse vector technique and linear query release"). Unbiasedness and covariance:
    docs/proofs/randomized-response.md, Claims 2 and 3. Counts may be negative or exceed n; that is
    the price of being unbiased.
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
        if size > (most := LIMITS.covariance_cells):
            raise TooLarge(
                f"a covariance of {size} x {size} cells was asked; at most {most} "
                "cells are written out; ask for the standard errors of the queries instead"
            )
        matrix = np.diag(weights)
        matrix -= weights / size
        matrix -= weights[:, None] / size
        matrix += weights.sum() / size**2
        return matrix


def estimate_reports(response: RandomizedResponse, reports: npt.ArrayLike) -> LocalEstimate:
    """``h = (tally(reports) - other n) / gap``: unbiased counts from the clients' reports.

    Privacy: post-processing of reports that are each epsilon-locally private; costs nothing.
    Neighbours: the code of one client replaced by any other.

    Args:
        response: How the reports were made.
        reports: One code per client.

    Returns:
        Counts, their covariance, and answers with intervals.

    Raises:
        SchemaError: A report is out of range.
    """
    flat = checked_codes(reports, response.size, "reports").reshape(-1)
    return _frozen_estimate(response, np.bincount(flat, minlength=response.size))


def estimate_from_tally(response: RandomizedResponse, tally: npt.ArrayLike) -> LocalEstimate:
    """Unbiased counts from the number of reports of each code, of a collector that keeps sums only.

    Privacy: post-processing, costs nothing. Neighbours: as in ``estimate_reports``.
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


# Several attributes at once


def joint_response(sizes: Sequence[int], epsilon: Fraction | float) -> RandomizedResponse:
    """Randomized response over the ``prod(sizes)`` joint cells; the last attribute moves fastest.

    One coin for the whole row, so that one report spends epsilon once and every product query (any
    marginal, any conjunction) has an unbiased answer. The error grows with the number of joint
    cells: keep the attributes few and coarse.

    Args:
        sizes: How many codes each attribute has.
        epsilon: What a report spends.

    Returns:
        The randomized response.

    Raises:
        TooLarge: There are too many joint cells.

    >>> import sfumato as sf
    >>> sf.study.joint_response((3, 2), 1).size
    6
    """
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise SchemaError(f"sizes hold {size!r}; each must be an integer of at least 1")
    # Python ints: a product beyond 64 bits must be refused with its true size.
    cells = math.prod(int(size) for size in sizes)
    if cells > (most := LIMITS.response_cells):
        raise TooLarge(
            f"the {len(sizes)} attributes have {cells} joint cells; at most {most} are "
            "allowed; report fewer attributes together, or coarser ones"
        )
    return RandomizedResponse(epsilon, cells)


def encode_table(
    codes: npt.ArrayLike,
    sizes: Sequence[int],
    epsilon: Fraction | float,
    random: WordSource | None = None,
) -> Codes:
    """One report for each row of ``codes`` (n x d), again a row of d codes; runs at the client.

    Privacy: the whole row is epsilon-locally private (``RandomizedResponse`` on its joint cell).
    Neighbours: all codes of one row replaced by any others.

    Args:
        codes: One row of true codes per record.
        sizes: How many codes each attribute has.
        epsilon: What a report spends.
        random: A source of random words; the system's if None.

    Returns:
        One row of codes per record.
    """
    response = joint_response(sizes, epsilon)
    reports = response.encode(_cells(codes, sizes, "codes"), random)
    return cast(Codes, np.stack(np.unravel_index(reports, tuple(sizes)), axis=1).astype(np.int64))


def estimate_table(
    reports: npt.ArrayLike, sizes: Sequence[int], epsilon: Fraction | float
) -> LocalEstimate:
    """Unbiased counts of the joint cells from the rows that ``encode_table`` reported.

    ``result.counts.reshape(sizes)`` is the table; ``product_queries`` gives its marginals.
    Privacy: post-processing, costs nothing. Neighbours: as in ``encode_table``.

    Args:
        reports: One row of codes per client.
        sizes: How many codes each attribute has.
        epsilon: What a report spent.

    Returns:
        Counts of the joint cells, their covariance, and answers with intervals.
    """
    return estimate_reports(joint_response(sizes, epsilon), _cells(reports, sizes, "reports"))


def product_queries(*factors: npt.ArrayLike) -> Floats:
    """The Kronecker product of one query set for each attribute: rows are all product queries.

    An identity matrix asks for every value, a row of ones sums the attribute out.

    Args:
        *factors: A matrix per attribute, a row per query.

    Returns:
        One row per product query, one column per joint cell.

    Raises:
        TooLarge: The product has too many entries.

    >>> import numpy as np
    >>> import sfumato as sf
    >>> sf.study.product_queries(np.eye(2), np.ones((1, 3)))
    array([[1., 1., 1., 0., 0., 0.],
           [0., 0., 0., 1., 1., 1.]])
    """
    matrices = [np.asarray(factor, dtype=np.float64) for factor in factors]
    if not matrices or any(matrix.ndim != 2 for matrix in matrices):
        raise WorkloadError(
            f"product_queries got factors of shapes {[matrix.shape for matrix in matrices]}; "
            "allowed is one matrix of shape (queries, size) for each attribute"
        )
    entries = math.prod(int(matrix.size) for matrix in matrices)
    if entries > (most := LIMITS.product_entries):
        raise TooLarge(
            f"the product queries have {entries} entries; at most {most} are written "
            "out; ask for fewer of them at a time"
        )
    product: Floats = matrices[0]
    for matrix in matrices[1:]:
        product = cast(Floats, np.kron(product, matrix))
    return product


def _cells(table: npt.ArrayLike, sizes: Sequence[int], name: str) -> Codes:
    """The joint cell of each row, in row-major order of the attributes."""
    array = np.asarray(table)
    if array.ndim != 2 or array.shape[1] != len(sizes):
        raise SchemaError(
            f"{name} have shape {array.shape}; allowed is (rows, {len(sizes)}): one column for "
            "each attribute"
        )
    cells = np.zeros(len(array), dtype=np.int64)
    for column, size in zip(array.T, sizes, strict=True):
        cells = cells * size + checked_codes(column, size, name)
    return cells


# Unary encoding: a bit for every code


@dataclass(frozen=True, slots=True)
class UnaryEncoding:
    """Report a bit for every code: 1 with probability p at the true one, q at each other.

    ``"symmetric"`` flips every bit by randomized response at epsilon/2: p = 1 - q. ``"optimized"``
    has p = 1/2 and the least q, ``1 / (e^epsilon + 1)``, which has the least variance for rare
    codes (Wang, Blocki, Li, Jha 2017, "Locally differentially private protocols for frequency
    estimation").

    Privacy: epsilon-local differential privacy of every report: two codes differ in two bits, and
    ``p (1 - q) / (q (1 - p)) <= e^epsilon`` (docs/proofs/randomized-response.md, Claim 5). No
    probability is a float: q is rounded up, p down, to multiples of 2^-64.
    Neighbours: any code of one client replaced by any other; that a client reports is public.

    Args:
        epsilon: What a report spends.
        size: How many codes there are.
        kind: ``"symmetric"`` or ``"optimized"``.

    Raises:
        BudgetError: Epsilon is out of range.
        SchemaError: The size or the kind is.

    >>> import sfumato as sf
    >>> unary = sf.study.UnaryEncoding(epsilon=1, size=100)
    >>> round(float(unary.keep), 6), round(float(unary.other), 6)
    (0.5, 0.268941)
    """

    epsilon: Fraction | float
    size: int
    kind: Literal["symmetric", "optimized"] = "optimized"
    threshold: tuple[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        epsilon, size = _exact_epsilon(self.epsilon), _checked_size(self.size)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "size", size)
        whole = 1 << COIN_BITS
        if self.kind == "optimized":
            pair = (whole // 2, whole - keep_threshold(epsilon, 2))
        elif self.kind == "symmetric":
            same = keep_threshold(epsilon / 2, 2)
            pair = (same, whole - same)
        else:
            raise SchemaError(f'kind is "symmetric" or "optimized", got {self.kind!r}')
        object.__setattr__(self, "threshold", pair)

    @property
    def keep(self) -> Fraction:
        """p, the exact probability of a 1 at the true code."""
        return Fraction(self.threshold[0], 1 << COIN_BITS)

    @property
    def other(self) -> Fraction:
        """q, the exact probability of a 1 at each other code."""
        return Fraction(self.threshold[1], 1 << COIN_BITS)

    @property
    def gap(self) -> Fraction:
        """``keep - other``, the share of signal in a bit."""
        return self.keep - self.other

    @property
    def likelihood_ratio(self) -> Fraction:
        """The maximal ratio of probabilities of one report; at most e^epsilon."""
        return self.keep * (1 - self.other) / (self.other * (1 - self.keep))

    def encode(self, codes: npt.ArrayLike, random: WordSource | None = None) -> Codes:
        """One row of bits for each code, independently; runs at the client.

        Privacy: as the class says. Neighbours: as the class says.

        Args:
            codes: One true code per record.
            random: A source of random words; the system's if None.

        Returns:
            A row of 0 and 1 per record, a column per code.

        Raises:
            SchemaError: A code is out of range.
            TooLarge: There are too many bits.
        """
        true = checked_codes(codes, self.size, "codes").reshape(-1)
        if true.size * self.size > (most := LIMITS.product_entries):
            raise TooLarge(
                f"{true.size:,} reports of {self.size:,} bits were asked for, the most bits are "
                f"{most:,}; report fewer at a time"
            )
        source = system_words() if random is None else random
        coins = source.words(true.size * self.size).reshape(true.size, self.size)
        p, q = (np.uint64(t) for t in self.threshold)
        # Both comparisons for every bit, then a sum: the same work whatever the code.
        is_own = (np.arange(self.size)[None, :] == true[:, None]).astype(np.int64)
        return cast(Codes, is_own * (coins < p) + (1 - is_own) * (coins < q))

    def estimate(self, reports: npt.ArrayLike) -> Floats:
        """Unbiased counts: ``(ones of each code - n other) / gap``.

        Privacy: post-processing, costs nothing. Neighbours: as the class says.

        Args:
            reports: A row of bits per client.

        Returns:
            One number per code.

        Raises:
            SchemaError: They are no rows of bits.
        """
        bits = checked_codes(reports, 2, "reports")
        if bits.ndim != 2 or bits.shape[1] != self.size:
            raise SchemaError(
                f"reports have shape {bits.shape}; allowed is (clients, {self.size}): a bit for "
                "each code"
            )
        ones, n = bits.sum(axis=0), len(bits)
        return cast(Floats, (ones - n * float(self.other)) / float(self.gap))
