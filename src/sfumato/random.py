# SPDX-License-Identifier: Apache-2.0
"""Where every random bit of sfumato comes from, and exact draws made of such bits.

Whatever draws at random takes a `WordSource`, which returns uniform 64-bit words; `system_words()`
is the one used outside tests. It is keyed by the operating system and expanded by AES-256 in
counter mode (NIST SP 800-38A; Bernstein 2017, "Fast-key-erasure random-number generators", for the
erasing of words already given out). There is no seed: two calls never give the same stream.
`integers_below` and `choose` draw exactly from finite laws. The claims are proved in
``docs/proofs/randomness.md``.

`Draws` is for Monte Carlo over made-up data, which needs numbers that look random, not numbers that
nobody can guess: the same question gets the same forecast, the same rows, the same guess. They are
expanded from a public label by SHAKE-256 (NIST FIPS 202). What comes out is floats and never a
`WordSource`: nothing that protects data can be fed from there.

This module knows nothing of data; it must not be given any.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.types import Array, Integers

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

__all__ = [
    "LIMITS",
    "Draws",
    "RandomLimits",
    "SystemWords",
    "WordSource",
    "choose",
    "integers_below",
    "system_words",
]


@dataclass(frozen=True, slots=True)
class RandomLimits:
    """How many words are made at a time, and how many under one key."""

    pool_words: int = 1 << 12
    """Words that are made ahead for small requests: one call of the cipher for many of them."""
    slice_words: int = 1 << 16
    """Words of one call of the cipher, whose input of zeros stays within the cache."""
    words_per_key: int = 1 << 27
    """CTR blocks never repeat, truly random ones would: after b blocks of one key the two differ by
    at most b^2 / 2^129 (PRP/PRF switching). At 2^27 words, 2^26 blocks, that is 2^-77."""


LIMITS: Final = RandomLimits()


class WordSource(Protocol):
    """A source of independent uniform 64-bit words."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` words, each of the 2^64 values equally likely."""
        ...


class SystemWords:
    """AES-256-CTR under a key from the operating system: uniform words that never repeat.

    Safe for threads (one lock) and for forks (the child takes a new key before its first word).
    A copy or an unpickled source is a new source with its own key, so no stream exists twice.

    >>> first, second = SystemWords(), SystemWords()
    >>> bool((first.words(4) == second.words(4)).any())
    False
    """

    __slots__ = ("__weakref__", "_left", "_lock", "_next", "_pid", "_pool", "_stream")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool = np.empty(0, dtype=np.uint64)
        self._next = 0
        self._left = 0
        self._pid = -1
        self._stream: CipherContext | None = None
        _SOURCES.add(self)

    def __reduce__(self) -> tuple[type[SystemWords], tuple[()]]:
        return (SystemWords, ())

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` words, each of the 2^64 values equally likely."""
        _check_size(count)
        with self._lock:
            if self._pid != os.getpid():
                self._forget()
            if count > LIMITS.pool_words:
                return self._expand(count)
            if self._pool.size - self._next < count:
                self._pool, self._next = self._expand(LIMITS.pool_words), 0
            part = self._pool[self._next : self._next + count]
            taken = part.copy()
            part[:] = 0  # a word that was given out is nowhere else in memory
            self._next += count
            return taken

    def _expand(self, count: int) -> NDArray[np.uint64]:
        """Encrypt zeros, slice by slice; the lock is held."""
        # update_into may ask for room of one block more than it writes.
        out = np.empty(count + 2, dtype=np.uint64)
        for start in range(0, count, LIMITS.slice_words):
            size = min(LIMITS.slice_words, count - start)
            if self._stream is None or self._left < size:
                self._stream, self._left = _new_stream(), LIMITS.words_per_key
            self._left -= size
            room = out[start : start + size + 2].view(np.uint8).data
            written = self._stream.update_into(bytes(8 * size), room)
            if written != 8 * size:  # pragma: no cover - a broken cipher must not pass as zeros
                raise PlanError(f"the key stream gave {written} bytes instead of {8 * size}")
        return out[:count]

    def _forget(self) -> None:
        """Drop key and pool: the next word comes from a new key of this process."""
        self._pool, self._next = np.empty(0, dtype=np.uint64), 0
        self._stream, self._left = None, 0
        self._pid = os.getpid()

    def _after_fork(self) -> None:
        # Another thread of the parent may have held the lock; in the child nobody would free it.
        self._lock = threading.Lock()
        self._forget()


_SOURCES: weakref.WeakSet[SystemWords] = weakref.WeakSet()


def _renew_all_after_fork() -> None:
    for source in _SOURCES:
        source._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all_after_fork)


def _new_stream() -> CipherContext:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(os.urandom(16))).encryptor()


@cache
def system_words() -> SystemWords:
    """Return the word source of this process, keyed by the operating system.

    Returns:
        A source of random words.
    """
    return SystemWords()


def integers_below(bound: int, size: int, source: WordSource) -> NDArray[np.int64]:
    """Draw `size` independent integers, uniform on {0, ..., bound - 1} exactly.

    Each word is cut to the bits of ``bound - 1`` and rejected when it is not below `bound`, so what
    is accepted is uniform; fewer than 2 words a draw are used on average.

    >>> bool((integers_below(6, 1000, system_words()) < 6).all())
    True
    """
    if not 1 <= bound <= 1 << 63:
        raise PlanError(f"cannot draw integers below {bound}: the bound must be 1 to 2^63")
    _check_size(size)
    mask = np.uint64((1 << (bound - 1).bit_length()) - 1)
    out = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        drawn = source.words(size - filled) & mask
        accepted = drawn[drawn <= np.uint64(bound - 1)]
        out[filled : filled + accepted.size] = accepted.astype(np.int64)
        filled += accepted.size
    return out


def choose(weights: Sequence[int], size: int, source: WordSource) -> NDArray[np.int64]:
    """Draw `size` independent indices, i with probability weights[i] / sum(weights) exactly.

    >>> choose([0, 5, 0], 3, system_words()).tolist()
    [1, 1, 1]
    """
    cumulative = list(accumulate(int(weight) for weight in weights))
    if not cumulative or min(weights) < 0 or not 1 <= cumulative[-1] < 1 << 63:
        raise PlanError("weights must be non-negative integers with a sum from 1 to 2^63 - 1")
    drawn = integers_below(cumulative[-1], size, source)
    indices = np.searchsorted(np.array(cumulative, dtype=np.int64), drawn, side="right")
    return indices.astype(np.int64)


def _check_size(size: int) -> None:
    if size < 0:
        raise PlanError(f"cannot draw {size} values: the number must be 0 or more")


# Repeatable public draws


_AT_ONCE: Final = 1 << 17  # numbers of one call of the hash: part of what a label means


class Draws:
    """A stream of uniform and normal floats that a public label fixes.

    >>> bool((Draws("a").normals(3) == Draws("a").normals(3)).all())
    True
    """

    def __init__(self, label: str) -> None:
        self._label, self._calls = label, 0

    def uniforms(self, count: int) -> Array:
        """Numbers strictly between 0 and 1."""
        parts = [self._part(min(_AT_ONCE, count - i)) for i in range(0, count, _AT_ONCE)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def normals(self, count: int) -> Array:
        """Standard normal numbers (Box, Muller 1958)."""
        half = (count + 1) // 2
        radius = np.sqrt(-2 * np.log(self.uniforms(half)))
        angle = 2 * np.pi * self.uniforms(half)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]

    def laplaces(self, count: int) -> Array:
        """Laplace numbers of scale 1."""
        u = self.uniforms(count) - 0.5
        return np.asarray(-np.sign(u) * np.log1p(-2 * np.abs(u)), dtype=np.float64)

    def below(self, bound: int, count: int) -> Integers:
        """Whole numbers from 0 to bound - 1."""
        return np.minimum((self.uniforms(count) * bound).astype(np.int64), bound - 1)

    def counts(self, shares: Array, total: int) -> Integers:
        """How often each place comes up among ``total`` draws with these shares."""
        edges = np.cumsum(shares, dtype=np.float64)
        out = np.zeros(shares.size, dtype=np.int64)
        for start in range(0, total, _AT_ONCE):
            u = self.uniforms(min(_AT_ONCE, total - start)) * edges[-1]
            at = np.minimum(np.searchsorted(edges, u, side="right"), shares.size - 1)
            out += np.bincount(at, minlength=shares.size)
        return out

    def _part(self, count: int) -> Array:
        self._calls += 1
        seed = f"sfumato public draws|{self._label}|{self._calls}".encode()
        words = np.frombuffer(hashlib.shake_256(seed).digest(8 * count), dtype="<u8")
        return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
