# SPDX-License-Identifier: Apache-2.0
"""Word sources for tests: repeatable ones, which the package itself must not have."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from itertools import count

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from sfumato import random

__all__ = ["GivenWords", "SeededWords", "key_noise", "system_noise"]

SYSTEM_STREAM, SYSTEM_WORDS = random._new_stream, random.system_words


def key_noise(name: str) -> None:
    """Key the noise of this process by a name: each has a stream of its own, always the same."""
    number, here = count(), os.getpid()

    def stream() -> CipherContext:
        fork = "" if os.getpid() == here else f" in {os.getpid()}"
        key = hashlib.sha512(f"{name} {next(number)}{fork}".encode()).digest()
        return Cipher(algorithms.AES256(key[:32]), modes.CTR(key[32:48])).encryptor()

    random._new_stream = stream
    SYSTEM_WORDS()._forget()


def system_noise() -> None:
    """Give this process the noise of the operating system again."""
    random._new_stream = SYSTEM_STREAM
    SYSTEM_WORDS()._forget()


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
