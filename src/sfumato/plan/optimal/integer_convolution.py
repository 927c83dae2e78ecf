# SPDX-License-Identifier: Apache-2.0
"""Exact convolution of integers: number-theoretic transforms, no float anywhere.

``(a * b)_n = sum_i a_i b_{n-i}`` modulo three primes below 2^32, each by a transform of length 2^l
(all three primes are 1 modulo 2^27), then put together by the Chinese remainder theorem. The
product of the primes exceeds 2^93, so every result below 2^63 in absolute value is exact. What the
vault measures of fixed-width windows is such a convolution (``sliding.py``).

Reference: Pollard 1971, "The fast Fourier transform in a finite field".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.errors import TooLarge
from sfumato.workload.queries import Integers

__all__ = ["LONGEST", "convolved"]

PRIMES = (2013265921, 2281701377, 3221225473)  # 15, 17 and 24 times 2^27, plus 1
GENERATORS = (31, 3, 5)
LONGEST = 2**27  # entries of a result

Words = npt.NDArray[np.uint64]


def convolved(a: Integers, b: Integers) -> Integers:
    """``a * b``, all ``len(a) + len(b) - 1`` entries: exact while they are below 2^63."""
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
    known, power = 1, step
    while known < len(out):
        out[known : 2 * known] = out[:known] * np.uint64(power) % np.uint64(prime)
        known, power = 2 * known, power * power % prime
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
