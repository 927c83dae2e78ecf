# SPDX-License-Identifier: Apache-2.0
"""Good filters for streams: the certified optimum of running totals, square roots for windows.

**Running totals.** Error and sensitivity of ``F = R M`` depend on ``X = M'M`` only, and M may be
taken lower triangular, then so is R: a stream need not err more than the unrestricted optimum X of
``optimum.py``. At the optimum the noise of the answers has covariance ``K = (F D F')^1/2``, the
inverse of F D F' is tridiagonal, hence ``K = sum_j c_j ((F D F')^-1 + s_j)^-1`` with few poles:
the law of a sum of J independent chains. Its triangular root is found by the Kalman filter of that
model: with the predicted covariance P of the chains, ``g = P 1 / 1'P1`` and ``k = (1'P1)^-1/2``.
Chains and gains are held fixed over stretches of time that grow geometrically from both ends, and
the scales k_t, joined by lines, are corrected until all columns of M are about equally long.

**Toeplitz.** ``(1 - z)^-1/2`` as a bank with fixed coefficients: the square root of the running
total (Fichtenberger, Henzinger, Upadhyay 2023, "Constant matters: fine-grained error bound on
differentially private continual observation").

**Windows.** ``F = (1 - z^w) / (1 - z)``. Both factors are its square root, M up to scales k_t and
``R = (1 - z)^-1/2 / (1 - z^w)^-1/2``: one bank for the first factor and, on every w-th step, the
same for the second (the echoes). With k_t = 1 this is optimal as the length grows: ``X`` and the
singular value bound then both have the spectral density |F|. The scales that are best for a
finite stream solve a convex program, by its dual.

References: Kalman 1960, "A new approach to linear filtering and prediction problems"; Denisov,
McMahan, Rush, Smith, Thakurta 2022, "Improved differential privacy for SGD via optimal private
linear operators on adaptive streams".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil, sqrt

import numpy as np

from sfumato.plan.solve.optimum import certified_optimum
from sfumato.plan.solve.tridiagonal import (
    inverse_gram,
    inverse_root_poles,
    pole_count,
    root_diagonal,
)
from sfumato.plan.streams.error import columns_squared, correlate, responses, rows_squared
from sfumato.plan.streams.filter import Filter, make_filter
from sfumato.workload.queries import Array, Integers, Prefix

__all__ = ["optimal_totals", "optimal_windows", "square_root"]

TOLERANCE = 1e-4
POLES = 1e-4  # relative accuracy of the poles: it costs about that much error
STRETCH = 1.06  # by what factor stretches of time grow
CORRECTIONS = 8  # of the scales of running totals
ENOUGH = 1.5e-4  # above the bound
DAMPING = 0.3
KINKS = 4  # the scales of windows bend at the end and this many widths before it
PROFILE = 16  # beyond this many widths the middle of a stream is uniform
DUAL_STEPS = 80  # of the scales of windows
DUAL_POWER = 1.5
ROOT_POLES = 1e-10  # on the positive axis; on the unit circle, where it is used, about its root


def optimal_totals(
    length: int, progress: Callable[[int, float], None] | None = None
) -> tuple[Filter, float]:
    """A filter within about 2e-4 of the least error, and the lower bound on ``k gamma^2``."""
    inverse, gram_diagonal = inverse_gram(Prefix(length)) or (None, None)
    assert inverse is not None and gram_diagonal is not None  # noqa: S101, PT018
    if length == 1:
        ones = np.ones((1, 1))
        return make_filter(np.array([0, 1]), ones, ones, np.ones(2)), 1.0
    found = certified_optimum(
        root_diagonal(inverse, gram_diagonal), length, TOLERANCE, all_bind=True, progress=progress
    )
    starts = _stretches(length, [0, length])
    fades, shares, spread = _gains(found.v * found.scale**2, starts)
    kappa_at = 1 / np.sqrt(spread)
    best, least = None, np.inf
    for _ in range(CORRECTIONS):
        tried = make_filter(starts, fades, shares, kappa_at)
        columns = columns_squared(tried)
        error = float(rows_squared(tried).sum() * columns.max())
        if error < least:
            best, least = _normed(tried, columns), error
        if error <= found.lower * (1 + ENOUGH) ** 2:
            break
        at_knots = columns[np.minimum(starts, length - 1)]
        kappa_at = kappa_at * (at_knots / columns.mean()) ** -DAMPING
    assert best is not None  # noqa: S101
    return best, found.lower


def square_root(length: int, width: int | None = None) -> Filter:
    """The square-root factorization with equal scales: ``(1 - z)^-1/2`` and its echoes."""
    starts = np.array([0, length])
    fades, shares = _root_bank(length)
    echo = None if width is None else _root_bank(-(-length // width))
    bank = (fades[None, :], shares[None, :])
    plain = make_filter(starts, *bank, np.ones(2), width, echo)
    return _normed(plain, columns_squared(plain))


def optimal_windows(length: int, width: int) -> tuple[Filter, Array]:
    """The square-root factorization with the best scales; also the dual weights of the steps.

    Far from both ends the best scales are constant, so a long stream takes those of a shorter one.
    """
    plain = square_root(length, width)
    short = min(length, PROFILE * width)
    measured, answered = (column[:short] for column in responses(plain))
    kappa2, dual = (_lengthened(c, length) for c in _best_scales(measured**2, answered**2))
    ends = [length - k * width for k in range(KINKS) if k * width < length]
    starts = _stretches(length, [0, *ends])
    at = np.sqrt(kappa2)[np.minimum(starts, length - 1)]
    ones = np.ones((len(starts) - 1, 1))
    scales = make_filter(starts, ones, ones, at).scales
    tried = replace(
        plain, starts=tuple(starts.tolist()), scales=scales, banks=plain.banks * len(scales)
    )
    tried = _normed(tried, columns_squared(tried))
    best = min(tried, plain, key=lambda f: float(rows_squared(f).sum()))
    return best, dual


def _lengthened(profile: Array, length: int) -> Array:
    """The two halves of a profile, with its middle value between them."""
    half = len(profile) // 2
    middle = np.full(length - len(profile), profile[half])
    return np.concatenate([profile[:half], middle, profile[half:]])


def _best_scales(measured2: Array, answered2: Array) -> tuple[Array, Array]:
    """Minimise ``sum_s a_s / q_s`` subject to ``sum_t q_t m_{t-s}^2 <= 1``, q the squared scales.

    For dual weights l >= 0 of the columns the best is ``q_s = (a_s / sum_c l_c m_{s-c}^2)^1/2``;
    l grows where a column is long.
    """
    asked = np.cumsum(answered2)[::-1]  # a_s: the squares of R's column s
    dual = np.ones(len(asked))
    best, least = (dual, dual), np.inf
    for _ in range(DUAL_STEPS):
        price = correlate(measured2, dual[::-1])[::-1]
        squares = np.sqrt(asked / price)
        columns = correlate(measured2, squares)
        error = float((asked / squares).sum() * columns.max())
        if error < least:
            best, least = (squares, dual), error
        dual = dual * (columns / columns.max()) ** DUAL_POWER
        dual = np.maximum(dual, dual.max() * 1e-12)
    return best


def _normed(plan: Filter, columns: Array) -> Filter:
    """The same filter with its longest column about 1."""
    factor = 1 / sqrt(float(columns.max()))
    scales = tuple((round(a * factor), round(b * factor)) for a, b in plan.scales)
    return replace(plan, scales=scales)


def _stretches(length: int, centres: Sequence[int]) -> Integers:
    """Starts of stretches of time, the length at the end; they grow away from the centres."""
    offsets, at = [], 0
    while at <= length / 2:
        offsets.append(at)
        at = max(at + 1, ceil(at * STRETCH))
    away = np.array(offsets, dtype=np.int64)
    points = np.concatenate([sign * away + c for c in centres for sign in (1, -1)])
    inside = points[(points >= 0) & (points <= length)]
    return np.unique(np.concatenate([inside, [0, length]]))


def _root_bank(length: int) -> tuple[Array, Array]:
    """Fades and shares with ``sum_j g_j (1 - h_j)^t`` close to the coefficients of (1 - z)^-1/2.

    ``x^-1/2 = sum_j c_j / (x + s_j)`` at x = 1 - z, of modulus between about 1 / length and 2.
    """
    least = 0.5 / length
    shifts, weights = inverse_root_poles(least, 2.0, pole_count(least, 2.0, ROOT_POLES))
    return shifts / (1 + shifts), weights / (1 + shifts)


def _gains(v: Array, starts: Integers) -> tuple[Array, Array, Array]:
    """Fades and shares of every stretch, and the innovation's variance at its start (and the end).

    ``v`` are the optimal cell weights, scaled so that ``K = (F D F')^1/2``.
    """
    n = len(v)
    inverse_v = 1 / v
    diagonal = inverse_v.copy()
    diagonal[:-1] += inverse_v[1:]
    beside = np.append(inverse_v, 0.0)
    # 1 / lambda_min is at most the trace of F D F'
    least = 1 / float(np.arange(n, 0, -1) @ v)
    largest = float((diagonal + beside[:-1] * (np.arange(n) > 0) + beside[1:]).max())
    shifts, weights = inverse_root_poles(least, largest, pole_count(least, largest, POLES))
    keep, fresh = _chains()(diagonal, inverse_v, shifts, starts)
    shares, spread = _kalman()(keep, fresh * weights, starts)
    return 1 - keep, shares, spread


@lru_cache(maxsize=1)
def _chains() -> Callable[[Array, Array, Array, Integers], tuple[Array, Array]]:
    """The chains with precision ``T + s_j``: what they keep of a step and how much is new.

    Pivots from the end: ``delta_t = a_t + s - b_{t+1}^2 / delta_{t+1}``; given its predecessor a
    chain has mean ``(b_t / delta_t) u_{t-1}`` and variance ``1 / delta_t``. Averages by stretch.
    """
    from numba import njit

    @njit(cache=True)
    def chains(diagonal, beside, shifts, starts):  # type: ignore[no-untyped-def]  # pragma: no cover
        stretches, size = len(starts) - 1, len(shifts)
        keep, fresh = np.zeros((stretches, size)), np.zeros((stretches, size))
        pivot = np.full(size, np.inf)
        after = 0.0
        for k in range(stretches - 1, -1, -1):
            steps = starts[k + 1] - starts[k]
            for t in range(starts[k + 1] - 1, starts[k] - 1, -1):
                for j in range(size):
                    pivot[j] = diagonal[t] + shifts[j] - after * after / pivot[j]
                    keep[k, j] += beside[t] / pivot[j] / steps
                    fresh[k, j] += 1 / pivot[j] / steps
                after = beside[t]
        return np.minimum(keep, 1.0), fresh

    return chains  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _kalman() -> Callable[[Array, Array, Integers], tuple[Array, Array]]:
    """The Kalman filter of the sum of the chains: gains by stretch, variances at the starts."""
    from numba import njit

    @njit(cache=True)
    def filtered(keep, fresh, starts):  # type: ignore[no-untyped-def]  # pragma: no cover
        stretches, size = keep.shape
        shares, spread = np.zeros((stretches, size)), np.zeros(stretches + 1)
        p = np.zeros((size, size))
        gain = np.zeros(size)
        for k in range(stretches):
            f = keep[k]
            for t in range(starts[k], starts[k + 1]):
                variance = 0.0
                for i in range(size):
                    gain[i] = 0.0
                    for j in range(size):
                        p[i, j] *= f[i] * f[j]
                    p[i, i] += fresh[k, i]
                    for j in range(size):
                        gain[i] += p[i, j]
                    variance += gain[i]
                for i in range(size):
                    for j in range(size):
                        p[i, j] -= gain[i] * gain[j] / variance
                for j in range(size):
                    shares[k, j] += max(gain[j], 0.0) / variance / (starts[k + 1] - starts[k])
                if t == starts[k]:
                    spread[k] = variance
                spread[stretches] = variance
        return shares, spread

    return filtered  # type: ignore[no-any-return]
