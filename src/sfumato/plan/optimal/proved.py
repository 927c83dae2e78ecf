# SPDX-License-Identifier: Apache-2.0
"""A mixture of conditions whose columns are not known, only how long they are at most.

``Mixture`` keeps all different columns and reads its sensitivity off them. Where these are too
many, a proof takes their place (``conditions.py``): the integers C are the same kind of matrix and
the vault measures ``C F_B h`` in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sfumato.errors import TooLarge
from sfumato.plan.optimal.mixture import Mixture
from sfumato.plan.strategy import Strategy
from sfumato.workload.queries import Array, Integers
from sfumato.workload.sensitivity import ROUND_UP, ColumnNorm

__all__ = ["Conditions", "Proved"]


@dataclass(frozen=True, eq=False)
class Proved(Mixture):
    """``norms`` bounds ``|M_j|_1`` and ``|M_j|_2^2`` of every column.

    ``farthest`` bounds the squared distance of two columns. All of the base are conditions, so
    that the coefficients mixed are 0 and 1; ``columns`` and ``sizes`` say nothing here.
    """

    norms: tuple[float, float]
    farthest: float

    def greatest_column(self, p: int) -> float:
        """As proved."""
        return self.norms[p - 1]

    def _bounded_chunks(self) -> Iterator[tuple[Array, Array]]:
        raise TooLarge(
            f"the different columns of {self.name} are too many to list; only bounds on them are "
            "known"
        )

    def coefficient_bounds(self) -> tuple[Array, Array]:
        """All conditions of one sign at once: no cell goes beyond."""
        numbers = self.entries.astype(np.float64)
        return np.minimum(numbers, 0.0).sum(axis=1), np.maximum(numbers, 0.0).sum(axis=1)

    @cached_property
    def greatest(self) -> float:
        """No coefficient exceeds this."""
        low, high = self.coefficient_bounds()
        return float(max(-low.min(), high.max())) * ROUND_UP

    @cached_property
    def is_nonnegative(self) -> bool:
        """Whether it surely only adds up."""
        return bool((self.entries >= 0).all())


@dataclass(frozen=True, eq=False)
class Conditions(Strategy):
    """One proved mixture of k conditions, ``inverse`` its inverse.

    ``places[t][i]`` numbers query i of term t among the k; -1 for one that never holds. ``plain``
    measures the same conditions with the same weights, nothing taken away: for replaced records.
    """

    places: tuple[Integers, ...]
    inverse: Array
    plain: Conditions | None = field(default=None, kw_only=True, repr=False)

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """``C^-1 y``."""
        return self._taken(term, self.inverse @ np.asarray(values[0], dtype=np.float64))

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """Squared rows of the inverse."""
        return block_variances[0] * self._taken(term, self._squares)

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """Their sum."""
        return float(self.variances(term, block_variances).sum())

    def greatest_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """Their maximum."""
        return float(self.variances(term, block_variances).max())

    def effective_terms(self, term: int) -> Array:
        """Gaussian noise adds up to Gaussian noise."""
        return np.full(self.workload.terms[term].rows, np.inf)

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """``C^-1' c``."""
        place, c = self.places[term], np.asarray(coefficients, dtype=np.float64)
        kept = place >= 0
        summed = np.bincount(place[kept], weights=c[kept], minlength=len(self.inverse))
        weights = np.asarray(self.inverse.T @ summed, dtype=np.float64)
        return {0: weights} if weights.any() else {}

    def column_power(self, p: int, scales: Sequence[float]) -> ColumnNorm:
        """As proved: never too small."""
        return ColumnNorm(self._proved.greatest_column(p) * scales[0] * ROUND_UP, is_exact=False)

    @cached_property
    def diameters(self) -> tuple[float, ...]:
        """As proved."""
        farthest = min(self._proved.farthest, 4 * self._proved.greatest_column(2))
        return (farthest * ROUND_UP,)

    @cached_property
    def _proved(self) -> Proved:
        term = self.blocks[0].term
        if not isinstance(term, Proved):
            raise TypeError("the block of conditions is a mixture with proved bounds")
        return term

    @cached_property
    def _squares(self) -> Array:
        return np.asarray((self.inverse**2).sum(axis=1), dtype=np.float64)

    def _taken(self, term: int, values: Array) -> Array:
        return np.append(values, 0.0)[self.places[term]]
