# SPDX-License-Identifier: Apache-2.0
"""Repeatable public draws: the same question gets the same forecast, the same rows, the same guess.

Monte Carlo over made-up data needs numbers that look random, not numbers that nobody can guess.
They are expanded from a public label by SHAKE-256 (NIST FIPS 202). What comes out is floats and
never a ``WordSource``: nothing that protects data can be fed from here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from sfumato.types import Array, Integers

if TYPE_CHECKING:
    from sfumato.planning.forecast import Forecast

__all__ = ["Draws", "drawn_noise", "drawn_values"]


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


def drawn_noise(forecast: Forecast, source: Draws, count: int) -> Iterator[Array]:
    """Public draws of the noise of all answers, ``count`` times."""
    for _ in range(count):
        yield np.concatenate(list(forecast.strategy.answers(drawn_values(forecast, source))))


def drawn_values(forecast: Forecast, source: Draws) -> list[Array]:
    """A public draw of the noise of all measured values, block by block."""
    values = []
    for rows, noise in zip(forecast.strategy.block_rows, forecast.noise, strict=True):
        drawn = source.normals(rows) if noise.noise == "gaussian" else source.laplaces(rows)
        values.append(drawn * noise.scale)
    return values
