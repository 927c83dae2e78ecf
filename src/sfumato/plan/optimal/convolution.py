# SPDX-License-Identifier: Apache-2.0
"""A measured convolution along one attribute, and its least-squares inverse, in O(n log n).

``(M h)_i = sum_j p_{i-j} h_j`` for i = 0, ..., n + T - 2, with T integers p (times 2^-18): every
column of M is the whole kernel, so all columns have the same norm, and ``X = M'M`` is the
Toeplitz matrix of the autocorrelation x of p. Its inverse is known from its first column g
(Gohberg, Semencul 1972, "On the inversion of finite Toeplitz matrices and their continuous
analogues"):

    X^-1 = (A A' - B B') / g_0,

A and B lower triangular Toeplitz with first columns ``g`` and ``(0, g_{n-1}, ..., g_1)``. The
variance of a window that ends at cell e is therefore a running sum: with a and b the sums of the
last w entries of these columns, ``sum_{i <= e} (a_i^2 - b_i^2) / g_0``. The column g comes from
conjugate gradients with the circulant matrix nearest to X (Chan 1988, "An optimal circulant
preconditioner for Toeplitz systems").
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.errors import PlanError, TooLarge
from sfumato.plan.optimal.integer_convolution import LONGEST, convolved
from sfumato.workload.queries import Array, Integers, Numbers, QuerySet, widened

__all__ = ["BITS", "Convolution", "ToeplitzInverse"]

BITS = 18  # after the point: M h of 2^44 records then fits 62 bits
LIMB_BITS = 32  # Python integers are convolved in parts of this size
MOST_STEPS = 400
RESIDUAL = 1e-12  # of the first column of the inverse
LEAST_EIGENVALUE = 1e-9  # of the preconditioner


@dataclass(frozen=True, eq=False)
class Convolution(QuerySet):
    """``sum_j p_{i-j} h_j`` for every i where it is not empty; ``kernel`` is p in steps 2^-18."""

    kernel: Integers

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < float((self.kernel.astype(np.float64) ** 2).sum()) <= 4.0**BITS:
            raise PlanError("the kernel of a convolution must have a norm of at most 1")
        if 2 * self.rows > LONGEST:
            raise TooLarge(
                f"a convolution of {self.size:,} cells is too long; the most are {LONGEST // 4:,}, "
                "use coarser cells"
            )

    @property
    def name(self) -> str:
        """With a hash of the kernel, so that a stored answer is read by the kernel that made it."""
        digest = hashlib.sha256(np.ascontiguousarray(self.kernel).tobytes()).hexdigest()
        return f"convolution({digest[:16]})"

    @property
    def rows(self) -> int:
        """One per place where the kernel meets a cell."""
        return self.size + len(self.kernel) - 1

    def apply(self, x: Numbers) -> Numbers:
        """``M x``; exact for integers, in steps of 2^-18."""
        x = widened(np.asarray(x))
        if x.dtype.kind == "O":
            low = np.array(x & (2**LIMB_BITS - 1), dtype=np.int64)
            high = x >> LIMB_BITS
            is_small = all(abs(int(v)) < 2**LIMB_BITS for v in high.reshape(-1))
            above = self.apply(high.astype(np.int64) if is_small else high)
            return np.asarray(self.apply(low).astype(object) + above.astype(object) * 2**LIMB_BITS)
        one = self._filtered if x.dtype.kind == "f" else self._counted
        return _each(one, x)

    def adjoint(self, y: Numbers) -> Numbers:
        """``M' y``: the kernel backwards, where it lies inside."""
        return _each(self._gathered, np.asarray(y, dtype=np.float64))

    def column_powers(self, p: int) -> Array:
        """The same for all cells."""
        sizes = np.abs(self._coefficients)
        return np.full(self.size, float((sizes**p).sum()))

    def row_powers(self, p: int) -> Array:
        """Sums over the part of the kernel that meets cells."""
        sizes = np.abs(self._coefficients)
        running = np.concatenate([[0.0], np.cumsum(sizes**p)])
        last = np.arange(self.rows)
        length = len(self.kernel)
        first = np.maximum(last - self.size + 1, 0)
        return np.asarray(
            running[np.minimum(last + 1, length)] - running[np.minimum(first, length)]
        )

    @property
    def fraction_bits(self) -> int:
        """As all kernels."""
        return BITS

    @property
    def greatest(self) -> float:
        """The greatest entry of the kernel."""
        return float(np.abs(self.kernel).max()) * 2.0**-BITS

    @property
    def is_nonnegative(self) -> bool:
        """Whether the kernel has no entry below zero."""
        return bool((self.kernel >= 0).all())

    @cached_property
    def _coefficients(self) -> Array:
        return np.ldexp(self.kernel.astype(np.float64), -BITS)

    @cached_property
    def products(self) -> Array:
        """``x_d``: the inner products of columns d apart, exact up to one rounding."""
        exact = convolved(self.kernel, self.kernel[::-1])[len(self.kernel) - 1 :]
        out = np.zeros(self.size)
        kept = min(self.size, len(exact))
        out[:kept] = exact[:kept] * 4.0**-BITS
        return out

    @cached_property
    def inverse(self) -> ToeplitzInverse:
        """``(M'M)^-1``."""
        return ToeplitzInverse(self.products)

    def _counted(self, x: Numbers) -> Numbers:
        return convolved(x, self.kernel)

    def _filtered(self, x: Numbers) -> Numbers:
        return _convolved(x, self._coefficients)

    def _gathered(self, y: Numbers) -> Numbers:
        length = len(self.kernel)
        return _convolved(y, self._coefficients[::-1])[length - 1 : length - 1 + self.size]


class ToeplitzInverse:
    """``X^-1`` of a symmetric positive definite Toeplitz matrix, known from its first column."""

    def __init__(self, products: Array) -> None:
        self.column = _first_column(products)
        self._mirrored = np.concatenate([[0.0], self.column[:0:-1]])

    def apply(self, u: Array) -> Array:
        """``X^-1 u``."""
        n = len(self.column)
        out = np.zeros(n)
        for sign, column in ((1.0, self.column), (-1.0, self._mirrored)):
            # L L' u for the lower triangular Toeplitz matrix L of the column
            inner = _convolved(u, column[::-1])[n - 1 :]
            out += sign * _convolved(inner, column)[:n]
        return np.asarray(out / self.column[0], dtype=np.float64)

    def window_variances(self, width: int) -> Array:
        """``f' X^-1 f`` of every window of this many cells, in the order of their starts."""
        a, b = _windows(self.column, width), _windows(self._mirrored, width)
        return np.asarray(np.cumsum(a * a - b * b)[width - 1 :] / self.column[0])


def _windows(column: Array, width: int) -> Array:
    """Sums of the last ``width`` entries, fewer at the beginning."""
    running = np.cumsum(column)
    running[width:] -= running[:-width].copy()
    return running


def _first_column(products: Array) -> Array:
    """g with ``X g = e_0``: preconditioned conjugate gradients."""
    from scipy.fft import irfft, next_fast_len, rfft

    n = len(products)
    length = next_fast_len(2 * n, real=True)
    circle = np.zeros(length)
    circle[:n], circle[length - n + 1 :] = products, products[:0:-1]
    spectrum = rfft(circle).real
    j = np.arange(n)
    nearest = ((n - j) * products + j * np.roll(products[::-1], 1)) / n
    scale = np.maximum(rfft(nearest).real, LEAST_EIGENVALUE * products[0])
    g, r = np.zeros(n), np.zeros(n)
    r[0] = 1.0
    direction = z = irfft(rfft(r) / scale, n)
    power = float(r @ z)
    for _ in range(MOST_STEPS):
        moved = irfft(rfft(direction, length) * spectrum, length)[:n]
        step = power / float(direction @ moved)
        g += step * direction
        r -= step * moved
        if float(np.linalg.norm(r)) < RESIDUAL:
            return g
        z = irfft(rfft(r) / scale, n)
        power, before = float(r @ z), power
        direction = z + power / before * direction
    raise PlanError(
        f"the inverse of a convolution of {n:,} cells was not found in {MOST_STEPS} steps"
    )


def _convolved(a: Array, b: Array) -> Array:
    from scipy.fft import irfft, next_fast_len, rfft

    count = len(a) + len(b) - 1
    length = next_fast_len(count, real=True)
    return np.asarray(irfft(rfft(a, length) * rfft(b, length), length)[:count], dtype=np.float64)


def _each(one: Callable[[Numbers], Numbers], x: Numbers) -> Numbers:
    """A map of the first axis, on every line."""
    lines = x.reshape(len(x), -1)
    found = np.stack([one(np.ascontiguousarray(line)) for line in lines.T], axis=1)
    return np.asarray(found.reshape(-1, *x.shape[1:]))
