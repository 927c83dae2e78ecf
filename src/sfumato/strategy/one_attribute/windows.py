# SPDX-License-Identifier: Apache-2.0
"""Windows of a fixed width along one attribute, of any length: a convolution near the optimum.

On an endless attribute windows of width w are the convolution with ``f(z) = 1 + ... + z^(w-1)``,
and the optimal X is the Toeplitz matrix of the symbol ``|f|`` over its mean: M is the convolution
with ``f^1/2 = (1 - z^w)^1/2 (1 - z)^-1/2``, whose coefficients fall like n^(-3/2) beyond w. Here
the kernel is cut after a few widths and rounded to integers, M has a row wherever the kernel meets
a cell (``Convolution``), and R is least squares, ``F X^-1 M'``: unbiased whatever was rounded or
cut, and the certificate counts what it cost. What is lost to the optimum is at the two ends, a
share of about w / cells; ``pieces.windows_bound`` is the bound. Other attributes, asked cell by
cell, repeat the whole along every line.

``convolved`` is the exact convolution of integers that the vault measures with.

References: Fichtenberger, Henzinger, Upadhyay 2023, "Constant matters: fine-grained error bound
on differentially private continual observation", for the square root of the symbol of counting.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sfumato.errors import PlanError, TooLarge
from sfumato.strategy.base import Block, GaussianStrategy, Norm
from sfumato.strategy.pieces import windows_bound
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Integers, Numbers
from sfumato.workload.queries import QuerySet, Windows, check_entries, widened
from sfumato.workload.sensitivity import ROUND_UP
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Workload

__all__ = [
    "BITS",
    "LONGEST",
    "Convolution",
    "Sliding",
    "ToeplitzInverse",
    "convolved",
    "windows",
]


# Exact convolution of integers

PRIMES = (2013265921, 2281701377, 3221225473)  # 15, 17 and 24 times 2^27, plus 1
GENERATORS = (31, 3, 5)
LONGEST = 2**27  # entries of a result

Words = npt.NDArray[np.uint64]


def convolved(a: Integers, b: Integers) -> Integers:
    """``a * b``, all ``len(a) + len(b) - 1`` entries: exact while they are below 2^63.

    ``(a * b)_n = sum_i a_i b_{n-i}`` modulo three primes below 2^32, each by a transform of length
    2^l (all three primes are 1 modulo 2^27), then put together by the Chinese remainder theorem.
    The product of the primes exceeds 2^93, so every result below 2^63 in absolute value is exact.
    What the vault measures of fixed-width windows is such a convolution.

    Reference: Pollard 1971, "The fast Fourier transform in a finite field".
    """
    count = len(a) + len(b) - 1
    length = 1 << max(count - 1, 0).bit_length()
    if length > LONGEST:
        raise TooLarge(
            f"a convolution of {count:,} numbers is too long, the most are {LONGEST:,}; use "
            "coarser cells"
        )
    residues = []
    for prime, generator in zip(PRIMES, GENERATORS, strict=True):
        step = pow(generator, (prime - 1) // length, prime)
        forward, back = _powers(step, length, prime), _powers(pow(step, -1, prime), length, prime)
        x, y = _padded(a, length, prime), _padded(b, length, prime)
        _transform()(x, forward, prime)
        _transform()(y, forward, prime)
        x = x * y % np.uint64(prime)
        _transform()(x, back, prime)
        residues.append(x[:count] * np.uint64(pow(length, -1, prime)) % np.uint64(prime))
    return _joined(residues)


def _padded(a: Integers, length: int, prime: int) -> Words:
    out = np.zeros(length, dtype=np.uint64)
    out[: len(a)] = np.mod(a, prime).astype(np.uint64)
    return out


def _powers(step: int, length: int, prime: int) -> Words:
    """``1, g, ..., g^(length / 2 - 1)``, by doubling."""
    out = np.ones(max(length // 2, 1), dtype=np.uint64)
    filled, power = 1, step
    while filled < len(out):
        out[filled : 2 * filled] = out[:filled] * np.uint64(power) % np.uint64(prime)
        filled, power = 2 * filled, power * power % prime
    return out


def _joined(residues: list[Words]) -> Integers:
    """Garner's mixed digits ``d0 + p0 (d1 + p1 d2)`` in words of 64 bits that wrap around.

    A value below zero is p0 p1 p2 more here: its last digit is above half of p2, for values far
    below half of the product.
    """
    p0, p1, p2 = (np.uint64(p) for p in PRIMES)
    r0, r1, r2 = residues
    inverse01 = np.uint64(pow(PRIMES[0], -1, PRIMES[1]))
    inverse02 = np.uint64(pow(PRIMES[0], -1, PRIMES[2]))
    inverse12 = np.uint64(pow(PRIMES[1], -1, PRIMES[2]))
    d1 = (r1 + p1 - r0 % p1) * inverse01 % p1
    d2 = (r2 + p2 - r0 % p2) * inverse02 % p2
    d2 = (d2 + p2 - d1 % p2) * inverse12 % p2
    whole = np.uint64(PRIMES[0] * PRIMES[1] * PRIMES[2] % 2**64)
    value = r0 + p0 * (d1 + p1 * d2)
    return np.where(d2 > p2 // np.uint64(2), value - whole, value).view(np.int64)


@lru_cache(maxsize=1)
def _transform() -> Callable[[Words, Words, int], Any]:
    """The transform in place: bits of the index reversed, then butterflies of growing width."""
    from numba import njit

    @njit(cache=True)
    def run(x, powers, prime):  # type: ignore[no-untyped-def]  # pragma: no cover
        n = len(x)
        p = np.uint64(prime)
        j = 0
        for i in range(1, n):
            bit = n >> 1
            while j & bit:
                j ^= bit
                bit >>= 1
            j ^= bit
            if i < j:
                x[i], x[j] = x[j], x[i]
        half = 1
        while half < n:
            stride = n // (2 * half)
            for start in range(0, n, 2 * half):
                for i in range(half):
                    u = x[start + i]
                    v = x[start + half + i] * powers[i * stride] % p
                    s = u + v
                    x[start + i] = s - p if s >= p else s
                    x[start + half + i] = u - v if u >= v else u + p - v
            half *= 2

    return run  # type: ignore[no-any-return]


# A measured convolution and its inverse

BITS = 18  # after the point: M h of 2^44 records then fits 62 bits
LIMB_BITS = 32  # Python integers are convolved in parts of this size


@dataclass(frozen=True, eq=False)
class Convolution(QuerySet):
    """``sum_j p_{i-j} h_j`` for every i where it is not empty; ``kernel`` is p in steps 2^-18.

    ``(M h)_i = sum_j p_{i-j} h_j`` for i = 0, ..., n + T - 2, with T integers p (times 2^-18):
    every column of M is the whole kernel, so all columns have the same norm, and ``X = M'M`` is the
    Toeplitz matrix of the autocorrelation x of p. Its inverse is known from its first column g
    (Gohberg, Semencul 1972, "On the inversion of finite Toeplitz matrices and their continuous
    analogues"):

        X^-1 = (A A' - B B') / g_0,

    A and B lower triangular Toeplitz with first columns ``g`` and ``(0, g_{n-1}, ..., g_1)``. The
    variance of a window that ends at cell e is therefore a running sum: with a and b the sums of
    the last w entries of these columns, ``sum_{i <= e} (a_i^2 - b_i^2) / g_0``. The column g comes
    from conjugate gradients with the circulant matrix nearest to X (Chan 1988, "An optimal
    circulant preconditioner for Toeplitz systems").
    """

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
        """The name with a hash of the kernel: a stored answer is read by the same kernel."""
        digest = hashlib.sha256(np.ascontiguousarray(self.kernel).tobytes()).hexdigest()
        return f"convolution({digest[:16]})"

    @property
    def rows(self) -> int:
        """The number of places where the kernel meets a cell."""
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
        """The sum of ``|p_i|^p`` over the kernel, for every cell."""
        sizes = np.abs(self._coefficients)
        return np.full(self.size, float((sizes**p).sum()))

    def row_powers(self, p: int) -> Array:
        """The sum of ``|p_i|^p`` over the part of the kernel that meets cells."""
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
        """The bits after the point of all kernels."""
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
        count = min(self.size, len(exact))
        out[:count] = exact[:count] * 4.0**-BITS
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
    scale = np.maximum(rfft(nearest).real, LIMITS.toeplitz_eigenvalue_minimum * products[0])
    g, r = np.zeros(n), np.zeros(n)
    r[0] = 1.0
    direction = z = irfft(rfft(r) / scale, n)
    power = float(r @ z)
    for _ in range(LIMITS.toeplitz_steps):
        moved = irfft(rfft(direction, length) * spectrum, length)[:n]
        step = power / float(direction @ moved)
        g += step * direction
        r -= step * moved
        if float(np.linalg.norm(r)) < LIMITS.toeplitz_residual:
            return g
        z = irfft(rfft(r) / scale, n)
        power, before = float(r @ z), power
        direction = z + power / before * direction
    raise PlanError(
        f"the inverse of a convolution of {n:,} cells was not found in {LIMITS.toeplitz_steps} "
        "steps"
    )


def _convolved(a: Array, b: Array) -> Array:
    from scipy.fft import irfft, next_fast_len, rfft

    count = len(a) + len(b) - 1
    length = next_fast_len(count, real=True)
    return np.asarray(irfft(rfft(a, length) * rfft(b, length), length)[:count], dtype=np.float64)


def _each(one: Callable[[Numbers], Numbers], x: Numbers) -> Numbers:
    """A map of the first axis, on every line."""
    lines = x.reshape(len(x), -1)
    mapped = np.stack([one(np.ascontiguousarray(line)) for line in lines.T], axis=1)
    return np.asarray(mapped.reshape(-1, *x.shape[1:]))


@dataclass(frozen=True, eq=False)
class Sliding(GaussianStrategy):
    """One measured convolution; every answer is a window of the least-squares estimate."""

    _algorithm: ClassVar[str] = "windows"

    along: str

    @property
    def measured(self) -> Convolution:
        """The convolution along the attribute."""
        queries = self._factors(self.blocks[0].term)[self.along]
        if not isinstance(queries, Convolution):
            raise TypeError("a sliding strategy measures one convolution")
        return queries

    @cached_property
    def width(self) -> int:
        """The number of cells of a window."""
        queries = self._factors(self.workload.terms[0])[self.along]
        ends = queries.intervals()
        if ends is None:
            raise TypeError("a sliding strategy answers windows")
        return int(ends[1][0] - ends[0][0])

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """``F X^-1 M' y`` on every line."""
        del term  # there is one
        lines = self._lines(np.asarray(values[0], dtype=np.float64), self.measured.rows)
        queries = Windows(self.measured.size, self.width)
        answers = [
            queries.apply(self.measured.inverse.apply(self.measured.adjoint(line)))
            for line in lines
        ]
        return self._in_order(np.array(answers))

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``M X^-1 F' c`` on every line."""
        del term
        queries = Windows(self.measured.size, self.width)
        lines = self._lines(np.asarray(coefficients, dtype=np.float64), queries.rows)
        weights = [
            self.measured.apply(self.measured.inverse.apply(queries.adjoint(line)))
            for line in lines
        ]
        return {0: self._in_order(np.array(weights))}

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """``f' X^-1 f`` of every window times the noise, equal on all lines."""
        del term
        repeated = np.broadcast_to(self._each, (prod(self._others), len(self._each)))
        return self._in_order(block_variances[0] * repeated)

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The sum of ``variances``: that of one line times the number of lines."""
        del term
        return block_variances[0] * prod(self._others) * float(self._each.sum())

    def maximum_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """The greatest of ``variances``, which is that of one line."""
        del term
        return block_variances[0] * float(self._each.max())

    def covariance(
        self, term: int, queries: Sequence[int], block_variances: Sequence[float]
    ) -> Array:
        """``f_q' X^-1 f_r`` of windows on the same line, 0 of others."""
        target = self.workload.terms[term]
        shape = target.row_shape
        places = np.unravel_index(np.asarray(queries, dtype=np.int64), shape)
        axis = target.attributes.index(self.along)
        starts: Integers = places[axis].astype(np.int64)
        size = self.measured.size
        check_entries(2 * len(queries) * size, f"{len(queries):,} windows of {size:,} cells")
        units = (np.arange(size) >= starts[:, None]) & (
            np.arange(size) < starts[:, None] + self.width
        )
        solved = np.array([self.measured.inverse.apply(u.astype(np.float64)) for u in units])
        out = units.astype(np.float64) @ solved.T
        for i, place in enumerate(places):
            if i != axis:
                out *= place[:, None] == place
        return np.asarray(block_variances[0] * (out + out.T) / 2, dtype=np.float64)

    def _diameters(self, norm: Norm) -> tuple[float, ...]:
        """``2 (x_0 - min_d x_d)`` along a line; columns of different lines are orthogonal."""
        if norm != 2:
            return super()._diameters(norm)
        x = self.measured.products
        least = float(x[1:].min(initial=x[0]))
        if prod(self._others) > 1:
            least = min(least, 0.0)
        return (2 * (float(x[0]) - least) * ROUND_UP,)

    @cached_property
    def _each(self) -> Array:
        return self.measured.inverse.window_variances(self.width)

    @cached_property
    def _others(self) -> tuple[int, ...]:
        names = self.blocks[0].term.attributes
        return tuple(self.workload.domain[n].size for n in names if n != self.along)

    @staticmethod
    def _factors(term: Term) -> dict[str, QuerySet]:
        product = term.as_product()
        return {} if product is None else dict(product.factors)

    def _lines(self, values: Array, count: int) -> Array:
        """The values by lines: one per cell of the other attributes."""
        axis = self.blocks[0].term.attributes.index(self.along)
        shape = list(self._others)
        shape.insert(axis, count)
        return np.moveaxis(values.reshape(shape), axis, -1).reshape(-1, count)

    def _in_order(self, lines: Array) -> Array:
        axis = self.blocks[0].term.attributes.index(self.along)
        return np.moveaxis(lines.reshape(*self._others, -1), -1, axis).reshape(-1)


def windows(workload: Workload, progress: Callable[[int, float], None] | None = None) -> Sliding:
    """Windows along one attribute, for each cell of others, through the root of their symbol.

    Refused when there are several groups, when the group is no product of windows and single
    cells, or for more than 2^23 cells. ``progress`` hears of every kernel tried: its number, and
    how far the best is from the bound.
    """
    along, queries, term = _read(workload)
    others = [n for n in term.attributes if n != along]
    lines = prod(workload.domain[n].size for n in others)
    bound = term.weight**2 * lines * windows_bound(queries.size, queries.width)
    longest = queries.size + max(LIMITS.kernel_cuts) * queries.width
    check_entries(longest * lines, f"the convolution of {', '.join(term.attributes)}")
    best: Sliding | None = None
    for i, cut in enumerate(
        LIMITS.kernel_cuts
        if queries.size < LIMITS.kernel_long_widths * queries.width
        else LIMITS.kernel_cuts[-1:]
    ):
        root = Convolution(queries.size, _kernel(queries.width, cut * queries.width))
        factors = tuple((n, root if n == along else q) for n, q in term.factors)
        block = Block(
            Product(workload.domain, f"root of {queries.name} {along}", 1.0, factors), 1.0
        )
        candidate = Sliding("factorization", "gaussian", workload, (block,), along, bound=bound)
        if best is None or candidate.weighted_error() < best.weighted_error():
            best = candidate
        if progress is not None:
            progress(i + 1, float(np.sqrt(best.weighted_error() / bound)) - 1)
    if best is None:
        raise PlanError("no kernel was tried")
    return best


def _read(workload: Workload) -> tuple[str, Windows, Product]:
    if len(workload.terms) != 1:
        raise PlanError(
            f"windows are planned by convolution in one group only, got {len(workload.terms)}; ask "
            "for them in separate plans"
        )
    term = workload.terms[0].as_product()
    if term is None:
        raise PlanError(f"group {workload.terms[0].name!r} is no product of query sets")
    long = [(n, q) for n, q in term.factors if isinstance(q, Windows)]
    if len(long) != 1:
        raise PlanError(
            f"windows along exactly one attribute are needed, these are along {len(long)}"
        )
    if not all(q is long[0][1] or q.is_identity for _, q in term.factors):
        raise PlanError(f"group {term.name!r} asks other attributes for more than their cells")
    along, queries = long[0]
    if (
        queries.size > LIMITS.windows_cells
        or max(LIMITS.kernel_cuts) * queries.width > LIMITS.windows_cells * 2
    ):
        raise TooLarge(
            f"{along} has {queries.size:,} cells and windows of {queries.width:,}; allowed are "
            f"{LIMITS.windows_cells:,} cells and windows of {LIMITS.windows_cells // 8:,}, use "
            "coarser cells"
        )
    return along, queries, term


def _kernel(width: int, length: int) -> Integers:
    """The first coefficients of ``(1 - z^w)^1/2 (1 - z)^-1/2``, of norm 1, in steps of 2^-18."""
    n = np.arange(1, length)
    root = np.concatenate([[1.0], np.cumprod((2 * n - 1) / (2 * n))])
    out = np.zeros(length)
    coefficient = 1.0
    for j, start in enumerate(range(0, length, width)):
        out[start:] += coefficient * root[: length - start]
        coefficient *= (j - 0.5) / (j + 1)
    scale = (1 - 2.0**-10) * 2.0**BITS / np.sqrt((out**2).sum())
    return np.asarray(np.rint(out * scale), dtype=np.int64)
