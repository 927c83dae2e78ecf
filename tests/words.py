# SPDX-License-Identifier: Apache-2.0
"""Word sources for tests: repeatable ones, which the package itself must not have."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

__all__ = ["GivenWords", "SeededWords"]


class SeededWords:
    """An AES-256-CTR key stream whose key is the hash of a seed: the same words on every run."""

    def __init__(self, seed: int | str) -> None:
        key = hashlib.sha256(f"sfumato test words {seed}".encode()).digest()
        self._stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def words(self, count: int) -> NDArray[np.uint64]:
        stream = np.frombuffer(self._stream.update(bytes(8 * count)), dtype="<u8")
        return stream.astype(np.uint64)


class GivenWords:
    """The words of a list, once each, in order; asking for more is a failure of the test."""

    def __init__(self, given: Iterable[int]) -> None:
        self._given = np.array(list(given), dtype=np.uint64)
        self.used = 0

    def words(self, count: int) -> NDArray[np.uint64]:
        assert self.used + count <= self._given.size, "the sampler asked for an unplanned word"
        taken = self._given[self.used : self.used + count]
        self.used += count
        return taken.copy()
