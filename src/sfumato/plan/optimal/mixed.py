# SPDX-License-Identifier: Apache-2.0
"""Strategies of one mixture: the reconstruction is a matrix R, answers are rows of ``R y``.

How long the columns of the mixture are is known exactly (``dense.py``) or proved (``proved.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.plan.strategy import GaussianStrategy
from sfumato.workload.queries import Array, Integers

__all__ = ["Mixed"]


@dataclass(frozen=True, eq=False)
class Mixed(GaussianStrategy):
    """One block; row ``places[t][i]`` of the reconstruction answers query i of term t.

    Queries without a place (-1) are zero on all cells.
    """

    places: tuple[Integers, ...]
    reconstruction: Array

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """``R y``."""
        found = self.reconstruction @ np.asarray(values[0], dtype=np.float64)
        return self._taken(term, found)

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """Squared rows of R."""
        return block_variances[0] * self._taken(term, self._squares)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``R'c``."""
        place, c = self.places[term], np.asarray(coefficients, dtype=np.float64)
        kept = place >= 0
        summed = np.bincount(place[kept], weights=c[kept], minlength=len(self.reconstruction))
        weights = np.asarray(self.reconstruction.T @ summed, dtype=np.float64)
        return {0: weights} if weights.any() else {}

    @cached_property
    def _squares(self) -> Array:
        return np.asarray((self.reconstruction**2).sum(axis=1), dtype=np.float64)

    def _taken(self, term: int, values: Array) -> Array:
        return np.append(values, 0.0)[self.places[term]]
