# SPDX-License-Identifier: Apache-2.0
"""Lower bounds on the error of every factorization of sliding windows, streaming or not.

With ``D = diag(v)`` the bound of ``optimum.py`` is ``|F D^1/2|_*^2 / sum(v)``, the norm being the
sum of singular values. Short streams: by eigenvalues, with v from the dual of the scales. Any
length, in closed form: ``|G|_* >= tr(U'G)`` for every U with ``|U| <= 1``, and a Toeplitz matrix
has norm at most the maximum of its symbol. The symbol f / |f| of windows of width w has the
coefficients ``u_k = tan(pi a / w) / (pi a)``, ``a = k - (w - 1) / 2``, so with
``c_m = u_0 + ... + u_{min(m, w) - 1}`` and the best v,

    sum_{m = 1}^{length} c_m^2  <=  k gamma^2.

As the length grows this is the square of the Lebesgue constant, about ``(4 / pi^2) log w + 1``.
"""

from __future__ import annotations

from math import pi

import numpy as np

from sfumato.workload.queries import Array

__all__ = ["closed_bound", "windows_bound"]

DENSE = 1024
STEPS = 5
EIGEN_ROUNDING = 2.0**-50


def windows_bound(length: int, width: int, guess: Array) -> float:
    """A lower bound on ``k gamma^2`` of the windows that end at each of ``length`` steps."""
    closed = closed_bound(length, width)
    return closed if length > DENSE else max(closed, _by_eigenvalues(length, width, guess))


def closed_bound(length: int, width: int) -> float:
    """``sum_m c_m^2``, in O(length)."""
    a = np.arange(width) - (width - 1) / 2
    with np.errstate(invalid="ignore"):
        symbol = np.where(a == 0, 1 / width, np.tan(pi * a / width) / (pi * a))
    running = np.cumsum(symbol)
    reach = np.minimum(np.arange(1, length + 1), width)
    return float((running[reach - 1] ** 2).sum()) * (1 - 1e-9)


def _by_eigenvalues(length: int, width: int, v: Array) -> float:
    steps = np.arange(length)
    ago = steps[:, None] - steps[None, :]
    queries = ((ago >= 0) & (ago < width)).astype(np.float64)
    gram = queries.T @ queries
    best = 0.0
    for _ in range(STEPS):
        root = np.sqrt(v)
        values, vectors = np.linalg.eigh(gram * np.outer(root, root))
        kept = values > values[-1] * length * EIGEN_ROUNDING  # the rest is zero up to rounding
        diagonal = (vectors[:, kept] ** 2) @ np.sqrt(values[kept])
        best = max(best, float(diagonal.sum() ** 2 / v.sum()) * (1 - 1e-9))
        v = diagonal * np.sqrt(diagonal / v)
    return best
