# SPDX-License-Identifier: Apache-2.0
"""Column norms of M and row norms of R for a filter: what noise it needs, and how well it answers.

Running totals, in O(length J^2) for J memories. A value at step s becomes the probability vector
g_s, which a chain of column-stochastic matrices ``A_t = diag(1 - h_t) + g_t h_t'`` moves on; step t
measures ``k_t h_t' p``. Hence, backwards in time,

    |M_s|^2 = k_s^2 + g_s' O_s g_s,      O_{s-1} = k_s^2 h_s h_s' + A_s' O_s A_s,

and forwards, ``|R_t|^2 = 1' C_t 1`` with ``C_t = diag(1 - h_t) C_{t-1} diag(1 - h_t) +
g_t g_t' / k_t^2``. Every number is at least 0, so floats keep their relative accuracy: n steps of
at most 2 J + 16 roundings each.

Windows have one bank for all time, so up to the scales M and R are Toeplitz, and sums over columns
and rows are convolutions with the squares of their first columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import ceil, log2

import numpy as np

from sfumato.plan.streams.filter import Filter, coefficients
from sfumato.workload.queries import Array, Integers

__all__ = ["column_norm", "columns_squared", "correlate", "responses", "rows_squared"]

ROUNDOFF = 2.0**-52  # twice the unit roundoff: covers (1 + u)^c <= 1 + 2 c u for small c u
OWN_ROUNDINGS = 16  # of one recursion step, besides those of its sums
SCALE_ROUNDING = 2.0**-40  # of the scales as floats (filter.STEEPEST)


def columns_squared(plan: Filter) -> Array:
    """``|M_s|_2^2`` for every step s, in floats."""
    if plan.width is None:
        parts = coefficients(plan.banks)
        return _backward()(*parts, plan.kappa**2, np.array(plan.starts))
    measured, _ = responses(plan)
    return correlate(measured**2, plan.kappa**2)


def rows_squared(plan: Filter) -> Array:
    """``|R_t|_2^2``: the variance of every answer at unit noise."""
    if plan.width is None:
        keep, _, share = coefficients(plan.banks)
        return _forward()(keep, share, plan.kappa**-2, np.array(plan.starts))
    _, answered = responses(plan)
    return correlate(answered**2, plan.kappa[::-1] ** -2)[::-1]


def column_norm(plan: Filter, squared: Array) -> float:
    """An upper bound on the longest column of M, from ``columns_squared``; proof page, Lemma 3."""
    n, size = plan.length, plan.banks[0].size
    longest = float(np.sqrt(squared.max()))
    recursion = n * (size + OWN_ROUNDINGS) * ROUNDOFF + SCALE_ROUNDING
    if plan.width is None or plan.echo is None:
        return longest * (1 + recursion)
    # Signs enter: the error of the response is bounded in L2, that of the transforms in absolute
    # terms (Higham 2002, Theorem 24.2). Two of them err relatively to |m^2|_2 |k^2|_2, the one back
    # to the length of the convolution, at most |m^2|_1 |k^2|_2, which is more than both.
    step = _step_response()(*coefficients(plan.banks[:1]), n)
    visits = n // plan.width + 1
    keep, _, share = coefficients([plan.echo])
    echoes = float((share[0] * _geometric(keep[0], visits)).sum())  # |b|_1, all terms positive
    own = visits * (plan.echo.size + OWN_ROUNDINGS) * ROUNDOFF
    kappa = float(plan.kappa.max())
    response = kappa * 2 * echoes * float(np.linalg.norm(step)) * (recursion + own)
    measured, _ = responses(plan)
    norms = float((measured**2).sum() * np.linalg.norm(plan.kappa**2))
    transform = 64 * log2(4 * n) * ROUNDOFF * norms
    return (float(np.sqrt(squared.max() + transform)) + response) * (1 + 2.0**-30)


def responses(plan: Filter) -> tuple[Array, Array]:
    """The first columns of M and of R for windows, without the scales k_t."""
    assert plan.echo is not None and plan.width is not None  # noqa: S101, PT018
    keep, fade, share = coefficients(plan.banks[:1])
    echo_keep, _, echo_share = coefficients([plan.echo])
    step = _step_response()(keep, fade, share, plan.length)
    moved = step.copy()
    moved[plan.width :] -= step[: -plan.width]
    return _echoed()(echo_keep[0], echo_share[0], keep[0], share[0], moved, plan.width)


def correlate(squares: Array, weights: Array) -> Array:
    """``sum_{t >= s} weights_t squares_{t-s}`` for every s, by Fourier transforms."""
    from scipy.fft import irfft, rfft

    n = len(squares)
    size = 2 ** ceil(log2(2 * n))
    found = irfft(rfft(squares, size) * rfft(weights[::-1], size), size)[:n][::-1]
    return np.asarray(np.maximum(found, 0.0), dtype=np.float64)


def _geometric(ratio: Array, count: int) -> Array:
    """``1 + r + ... + r^(count - 1)``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        total = -np.expm1(count * np.log(ratio)) / (1 - ratio)
    return np.where(ratio == 1, float(count), np.where(ratio == 0, 1.0, total))


@lru_cache(maxsize=1)
def _backward() -> Callable[[Array, Array, Array, Array, Integers], Array]:
    from numba import njit

    @njit(cache=True)
    def columns(keep, fade, share, kappa2, starts):  # type: ignore[no-untyped-def]  # pragma: no cover
        size = keep.shape[1]
        gram = np.zeros((size, size))
        out = np.zeros(starts[-1])
        for k in range(len(keep) - 1, -1, -1):
            h, f, g = fade[k], keep[k], share[k]
            for t in range(starts[k + 1] - 1, starts[k] - 1, -1):
                seen = gram @ g
                own = kappa2[t]
                for i in range(size):
                    own += g[i] * seen[i]
                out[t] = own
                for i in range(size):
                    for j in range(size):
                        # h h' k^2 + A' O A with A = diag(f) + g h'; own = k^2 + g' O g
                        gram[i, j] = (
                            f[i] * gram[i, j] * f[j]
                            + f[i] * seen[i] * h[j]
                            + h[i] * seen[j] * f[j]
                            + h[i] * h[j] * own
                        )
        return out

    return columns  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _forward() -> Callable[[Array, Array, Array, Integers], Array]:
    from numba import njit

    @njit(cache=True)
    def rows(keep, share, inverse2, starts):  # type: ignore[no-untyped-def]  # pragma: no cover
        size = keep.shape[1]
        covariance = np.zeros((size, size))
        out = np.zeros(starts[-1])
        for k in range(len(keep)):
            f, g = keep[k], share[k]
            for t in range(starts[k], starts[k + 1]):
                total = 0.0
                for i in range(size):
                    for j in range(size):
                        covariance[i, j] = (
                            f[i] * covariance[i, j] * f[j] + g[i] * g[j] * inverse2[t]
                        )
                        total += covariance[i, j]
                out[t] = total
        return out

    return rows  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _step_response() -> Callable[[Array, Array, Array, int], Array]:
    from numba import njit

    @njit(cache=True)
    def respond(keep, fade, share, length):  # type: ignore[no-untyped-def]  # pragma: no cover
        """What one value adds to every later innovation, were it never to leave the window."""
        f, h, g = keep[0], fade[0], share[0]
        memories = np.zeros(len(f))
        out = np.zeros(length)
        for t in range(length):
            moved = 1.0 if t == 0 else 0.0
            for j in range(len(f)):
                moved += h[j] * memories[j]
            for j in range(len(f)):
                memories[j] = f[j] * memories[j] + g[j] * moved
            out[t] = moved
        return out

    return respond  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _echoed() -> Callable[[Array, Array, Array, Array, Array, int], tuple[Array, Array]]:
    from numba import njit

    @njit(cache=True)
    def respond(f2, g2, f, g, moved, width):  # type: ignore[no-untyped-def]  # pragma: no cover
        """The first columns of M (innovations through the echoes) and of R (back)."""
        length = len(moved)
        echoes = np.zeros((min(width, length), len(f2)))
        back = np.zeros(len(f2))
        memories = np.zeros(len(f))
        measured, answered = np.zeros(length), np.zeros(length)
        for t in range(length):
            row = echoes[t % width]
            total = 0.0
            for j in range(len(f2)):
                row[j] = f2[j] * row[j] + g2[j] * moved[t]
                total += row[j]
            measured[t] = total
            innovation = 0.0
            if t % width == 0:  # the echoes of other residues stay at 0
                innovation = 1.0 if t == 0 else 0.0
                for j in range(len(f2)):
                    innovation -= f2[j] * back[j]
                for j in range(len(f2)):
                    back[j] = f2[j] * back[j] + g2[j] * innovation
            total = 0.0
            for j in range(len(f)):
                memories[j] = f[j] * memories[j] + g[j] * innovation
                total += memories[j]
            answered[t] = total
        return measured, answered

    return respond  # type: ignore[no-any-return]
