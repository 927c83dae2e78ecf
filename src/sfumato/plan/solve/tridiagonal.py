# SPDX-License-Identifier: Apache-2.0
"""Ranges and prefixes on a million cells: A^1/2 from a tridiagonal inverse, in O(cells).

For prefixes with any query weights, and for all ranges, the inverse of the Gram matrix V is
tridiagonal, hence so is ``T = A^-1 = D^-1/2 V^-1 D^-1/2``. Powers of T are sums of shifted
inverses, ``T^-1/2 = sum_j c_j (T + s_j)^-1``, with the nodes of Hale, Higham, Trefethen 2008
("Computing A^alpha, log(A), and related matrix functions by contour integrals", method 3), whose
number grows with the logarithm of the condition number; the diagonal of a shifted inverse costs
two recurrences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log, pi

import numpy as np

from sfumato.plan.effort import spend
from sfumato.workload.queries import Array, QuerySet

__all__ = ["Tridiagonal", "inverse_gram", "inverse_root_poles", "pole_count", "root_diagonal"]

LANES = 8  # poles swept together, for the vector units


@dataclass(frozen=True, eq=False)
class Tridiagonal:
    """A symmetric tridiagonal matrix: its diagonal and the entries beside it."""

    diagonal: Array
    beside: Array

    def scaled(self, v: Array) -> Tridiagonal:
        """``D^-1/2 T D^-1/2`` for D = diag(v)."""
        return Tridiagonal(self.diagonal / v, self.beside / np.sqrt(v[:-1] * v[1:]))

    def largest_bound(self) -> float:
        """An upper bound on the spectrum: Gershgorin's discs."""
        beside = np.abs(self.beside)
        radius = np.concatenate([beside, [0.0]]) + np.concatenate([[0.0], beside])
        return float((self.diagonal + radius).max())

    def dense(self) -> Array:
        """As a full matrix."""
        return np.diag(self.diagonal) + np.diag(self.beside, 1) + np.diag(self.beside, -1)


def inverse_gram(queries: QuerySet) -> tuple[Tridiagonal, Array] | None:
    """``V^-1`` and the diagonal of V, where V^-1 is known to be tridiagonal; else None."""
    bands = queries.inverse_gram()
    return None if bands is None else (Tridiagonal(*bands), queries.column_powers(2))


def root_diagonal(
    inverse: Tridiagonal, gram_diagonal: Array, accuracy: float = 1e-9
) -> Callable[[Array], Array]:
    """The map ``v -> diag(A^1/2)`` for ``certified_optimum``, to relative ``accuracy``."""

    def evaluate(v: Array) -> Array:
        t = inverse.scaled(v)
        # 1 / lambda_min(T) = lambda_max(A) <= tr A
        shifts, weights = _inverse_root_poles(
            1 / float(gram_diagonal @ v), t.largest_bound(), accuracy
        )
        spend(64.0 * len(v) * len(shifts))  # divisions
        return np.asarray(_kernel()(t.diagonal, t.beside, shifts, weights), dtype=np.float64)

    return evaluate


def _inverse_root_poles(least: float, largest: float, accuracy: float) -> tuple[Array, Array]:
    """Shifts and weights with ``x^-1/2 = sum_j c_j / (x + s_j)`` on [least, largest].

    The relative error is below ``4 exp(-2 pi^2 N / (log(largest / least) + 3))``.
    """
    count = pole_count(least, largest, accuracy)
    return inverse_root_poles(least, largest, LANES * ceil(count / LANES))


def pole_count(least: float, largest: float, accuracy: float) -> int:
    """How many poles reach a relative accuracy of ``x^-1/2`` on [least, largest]."""
    return ceil((log(largest / least) + 3) * log(4 / accuracy) / (2 * pi**2))


def inverse_root_poles(least: float, largest: float, count: int) -> tuple[Array, Array]:
    """Shifts and weights of ``count`` poles: Hale, Higham, Trefethen 2008, method 3."""
    from scipy.special import ellipj, ellipkm1

    period = float(ellipkm1(least / largest))
    # Near the quarter period, and for a parameter near 1, elliptic functions are computed badly.
    # Nodes of the lower half are exact; sn(K - u) = cn / dn, cn(K - u) = k' sn / dn and
    # dn(K - u) = k' / dn, with k'^2 = least / largest, give those of the upper half.
    t = (np.arange((count + 1) // 2) + 0.5) * period / count
    sn, cn, dn, _ = ellipj(t, 1 - least / largest)
    step = 2 * period / (pi * count)
    low, low_weights = least * (sn / cn) ** 2, step * np.sqrt(least) * dn / cn**2
    high, high_weights = largest * (cn / sn) ** 2, step * np.sqrt(largest) * dn / sn**2
    kept = slice(count // 2 - 1, None, -1) if count > 1 else slice(0, 0)
    shifts = np.concatenate([low, high[kept]])
    weights = np.concatenate([low_weights, high_weights[kept]])
    return shifts, weights


@lru_cache(maxsize=1)
def _kernel() -> Callable[[Array, Array, Array, Array], Array]:
    """``sum_j c_j diag((T + s_j)^-1)`` by forward and backward pivots, LANES shifts at a time."""
    from numba import njit

    @njit(cache=True, fastmath={"contract", "arcp", "nsz"})
    def diagonal_of_sum(a, b, shifts, weights):  # type: ignore[no-untyped-def]  # pragma: no cover
        n = len(a)
        out = np.zeros(n)
        forward = np.empty((n, LANES))
        x = np.empty(LANES)
        for first in range(0, len(shifts), LANES):
            s = shifts[first : first + LANES]
            c = weights[first : first + LANES]
            for j in range(LANES):
                x[j] = a[0] + s[j]
                forward[0, j] = x[j]
            for i in range(1, n):
                square = b[i - 1] * b[i - 1]
                for j in range(LANES):
                    x[j] = a[i] + s[j] - square / x[j]
                    forward[i, j] = x[j]
            total = 0.0
            for j in range(LANES):
                total += c[j] / forward[n - 1, j]
                x[j] = a[n - 1] + s[j]
            out[n - 1] += total
            for i in range(n - 2, -1, -1):
                square = b[i] * b[i]
                total = 0.0
                for j in range(LANES):
                    q = square / x[j]
                    total += c[j] / (forward[i, j] - q)
                    x[j] = a[i] + s[j] - q
                out[i] += total
        return out

    return diagonal_of_sum  # type: ignore[no-any-return]
