# SPDX-License-Identifier: Apache-2.0
"""How well a sparse vector finds what is above: false alarms and misses, before it is spent.

The notes bound the noise of all comparisons by a union bound; here the laws themselves are summed:
for every value of the threshold's noise, the probability that all scores' noise stays near it.
Proof page: ``docs/proofs/sparse-vector.md``, Theorem 5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import ceil, expm1, log, log1p
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.sparse import NoiseLaw, SparseLaw
from sfumato.errors import PlanError

__all__ = ["alarm_probability", "alarmed", "centred", "failure_probability", "missed", "tolerance"]

PIECES: Final = 2**14  # of the threshold's law; wider than one step only at scales above some 100
FEW_PIECES: Final = 2**9  # while searching for an offset
SHARES: Final = (0.05, 0.15, 0.3, 0.5, 0.7, 0.9)
"""Parts of beta that misses may take, tried to centre one-sided noise."""

Floats = NDArray[np.float64]


@lru_cache(maxsize=256)
def tolerance(law: SparseLaw, queries: int, beta: float, epochs: int = 1) -> int:
    """The least ``alpha`` such that with probability ``1 - beta`` all of so many tests are right.

    Right means: a score found above is at least ``threshold - alpha``, one found below is less than
    ``threshold + alpha``; in steps. ``epochs`` sparse vectors of this law share the queries.

    >>> from fractions import Fraction
    >>> from sfumato.plan.sparse import sparse_of_epsilon
    >>> tolerance(sparse_of_epsilon(Fraction(1), is_monotone=True), queries=100, beta=0.05)
    17
    """
    return _least(lambda x: failure_probability(law, queries, x, epochs), beta, law)


@lru_cache(maxsize=256)
def missed(law: SparseLaw, queries: int, beta: float, epochs: int = 1, pieces: int = PIECES) -> int:
    """The least x such that with probability ``1 - beta`` no score above by x is found below.

    In steps; below 0 where noise lifts most scores. ``tolerance`` counts false alarms too, which
    cost budget but tell nothing wrong.

    >>> from fractions import Fraction
    >>> from sfumato.plan.sparse import sparse_of_epsilon
    >>> law = sparse_of_epsilon(Fraction(1), threshold="exponential", query="exponential")
    >>> missed(law, 1, 0.05), missed(sparse_of_epsilon(Fraction(1)), 1, 0.05)
    (6, 10)
    """
    return _least(
        lambda x: _outside(law, queries, law.offset - x, None, epochs, pieces),
        beta,
        law,
        -_far(law),
    )


@lru_cache(maxsize=256)
def alarmed(law: SparseLaw, queries: int, beta: float, epochs: int = 1) -> int:
    """The least x such that with probability ``1 - beta`` no score below by x is found above."""
    return _least(
        lambda x: _outside(law, queries, None, law.offset + x, epochs), beta, law, -_far(law)
    )


def _far(law: SparseLaw) -> int:
    """Steps that noise hardly ever reaches."""
    return int(80 * (law.threshold.scale + law.query.scale)) + abs(law.offset) + 1


def _least(failure: Callable[[int], float], beta: float, law: SparseLaw, low: int = -1) -> int:
    """The least distance, above ``low``, at which the probability of a failure is at most beta."""
    if not 0 < beta < 1:
        raise PlanError(f"beta, the probability of a failure, must lie in (0, 1), got {beta!r}")
    high = max(1, int(8 * (law.threshold.scale + law.query.scale)) + abs(law.offset))
    while failure(high) > beta:
        low, high = high, 2 * high
        if high > 2**50:
            raise PlanError(
                "no tolerance makes so many tests right with this probability: the reach of the "
                "query noise is too short; ask for a smaller false_alarm"
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if failure(middle) > beta else (low, middle)
    return high


def failure_probability(law: SparseLaw, queries: int, alpha: int, epochs: int = 1) -> float:
    """A bound on the probability that some of ``queries`` tests errs by more than ``alpha`` steps.

    It is attained, for moderate scales, if every score may err on both sides.
    """
    if queries < 1 or epochs < 1 or alpha < 0:
        raise PlanError("queries and epochs are at least 1, alpha at least 0")
    return _outside(law, queries, law.offset - alpha, law.offset + alpha, epochs)


def centred(law: SparseLaw, queries: int, beta: float, epochs: int = 1) -> SparseLaw:
    """The same law with the offset that makes its `tolerance` about as small as can be.

    One-sided noise errs mostly upwards; a public shift of all thresholds shares the error between
    false alarms and misses. Symmetric laws keep their offset of 0.

    >>> from fractions import Fraction
    >>> from sfumato.plan.sparse import sparse_of_epsilon
    >>> kind = {"threshold": "exponential", "query": "exponential"}
    >>> law = centred(sparse_of_epsilon(Fraction(1), is_monotone=True, **kind), 100, 0.05)
    >>> tolerance(law, 100, 0.05)  # 17 with Laplace noise
    11
    """
    if "exponential" not in (law.threshold.kind, law.query.kind):
        return law
    best: tuple[int, int] | None = None
    for part in SHARES:
        # Misses: the threshold's noise is beyond -low. False alarms: the least high that is left.
        low = -_quantile(law.threshold, part * beta / epochs)
        if law.query.kind != "exponential":
            low -= _quantile(law.query, part * beta / queries)
        start, end = low, low + int(80 * (law.threshold.scale + law.query.scale)) + 2
        if _outside(law, queries, low, end, epochs, FEW_PIECES) > beta:
            continue
        while end - start > 1:
            middle = (start + end) // 2
            is_wide = _outside(law, queries, low, middle, epochs, FEW_PIECES) <= beta
            start, end = (start, middle) if is_wide else (middle, end)
        if best is None or end - low < best[1] - best[0]:
            best = low, end
    return law if best is None else replace(law, offset=(best[0] + best[1]) // 2)


def _outside(
    law: SparseLaw,
    queries: int,
    low: int | None,
    high: int | None,
    epochs: int,
    pieces: int = PIECES,
) -> float:
    """P(the noise of some score, minus the threshold's, is not within low to high), or more.

    None: nothing is outside on that side.
    """
    left, right, mass, rest = _pieces(law.threshold, pieces)
    outside = np.zeros(len(left))
    if high is not None:
        outside += _survival(law.query, left + high + 1)
        if law.reach is not None:
            outside = np.maximum(outside, _survival(law.query, np.array([law.reach])))
    if low is not None:
        outside += _below(law.query, right + low - 1)
    outside = np.minimum(outside, 1.0)
    with np.errstate(divide="ignore"):
        some = -np.expm1(queries / epochs * np.log1p(-outside))
    once = min(float((mass * some).sum()) + rest, 1.0)
    return -expm1(epochs * log1p(-once)) if once < 1 else 1.0


def alarm_probability(law: SparseLaw, gap: int, pieces: int = PIECES) -> float:
    """P(a score ``gap`` steps below its threshold is found above); a negative gap is above it.

    >>> from fractions import Fraction
    >>> from sfumato.plan.sparse import sparse_of_epsilon
    >>> round(alarm_probability(sparse_of_epsilon(Fraction(1)), 0), 3)
    0.544
    """
    left, right, mass, _ = _pieces(law.threshold, pieces)
    gaps = gap + law.offset + (left + right) // 2
    if law.reach is not None:
        gaps = np.minimum(gaps, law.reach)
    return float((mass * _survival(law.query, gaps)).sum())


@lru_cache(maxsize=64)
def _pieces(
    law: NoiseLaw, pieces: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, float]:
    """First and last value of every piece of the law, its probability, and what lies beyond all."""
    end = int((9 if law.kind == "gaussian" else 40) * law.scale) + 2
    width = -(-(2 * end + 1) // pieces)
    if law.kind == "exponential":
        left = np.arange(0, end + 1, width, dtype=np.int64)
        right = left + width - 1
        upper = _survival(law, np.append(left, right[-1] + 1))
        return left, right, upper[:-1] - upper[1:], float(upper[-1])
    left = np.arange(-end, end + 1, width, dtype=np.int64)
    right = left + width - 1
    upper = _survival(law, np.where(left > 0, left, -right))
    beyond = _survival(law, np.where(left > 0, right + 1, 1 - left))
    # On the side of 0 where nothing cancels; a piece around 0 takes what its sides leave.
    mass = np.where((left > 0) | (right < 0), upper - beyond, 0.0)
    middle = (left <= 0) & (right >= 0)
    mass[middle] = 1 - _survival(law, right[middle] + 1) - _survival(law, 1 - left[middle])
    return left, right, mass, float(2 * _survival(law, np.array([end + 1]))[0])


def _survival(law: NoiseLaw, at: NDArray[np.int64]) -> Floats:
    """P(N >= at) in floats."""
    if law.kind == "gaussian":
        from scipy.special import ndtr

        return np.asarray(ndtr((0.5 - at) / float(law.scale)))
    rate = 1 / float(law.scale)
    if law.kind == "exponential":
        return np.asarray(np.exp(-rate * np.maximum(at, 0)))
    tail = np.exp(-rate * np.abs(np.where(at > 0, at, 1 - at))) / (1 + np.exp(-rate))
    return np.asarray(np.where(at > 0, tail, 1 - tail))


def _below(law: NoiseLaw, at: NDArray[np.int64]) -> Floats:
    """P(N <= at) in floats."""
    if law.kind == "exponential":
        return np.asarray(-np.expm1(-np.maximum(at + 1, 0) / float(law.scale)))
    return _survival(law, -at)


def _quantile(law: NoiseLaw, beyond: float) -> int:
    """The least z, about, with P(N > z) at most this."""
    if law.kind == "gaussian":
        from scipy.special import ndtri

        return ceil(-float(ndtri(beyond)) * float(law.scale))
    return ceil(-log(beyond) * float(law.scale))
