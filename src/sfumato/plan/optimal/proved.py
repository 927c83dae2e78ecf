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
from sfumato.plan.optimal.mixed import Mixed
from sfumato.plan.optimal.mixture import Mixture
from sfumato.plan.strategy import Norm
from sfumato.workload.queries import Array
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
class Conditions(Mixed):
    """One proved mixture of k conditions, R its inverse.

    ``plain`` measures the same conditions with the same weights, nothing taken away: for replaced
    records.
    """

    plain: Conditions | None = field(default=None, kw_only=True, repr=False)

    def greatest_column(self, norm: Norm, scales: Sequence[float]) -> ColumnNorm:
        """As proved: never too small."""
        return ColumnNorm(self._proved.greatest_column(norm) * scales[0] * ROUND_UP, is_exact=False)

    def _diameters(self, norm: Norm) -> tuple[float, ...]:
        """As proved."""
        if norm != 2:
            return super()._diameters(norm)
        farthest = min(self._proved.farthest, 4 * self._proved.greatest_column(2))
        return (farthest * ROUND_UP,)

    @cached_property
    def _proved(self) -> Proved:
        term = self.blocks[0].term
        if not isinstance(term, Proved):
            raise TypeError("the block of conditions is a mixture with proved bounds")
        return term
