# SPDX-License-Identifier: Apache-2.0
"""Several strategies side by side, each for some of the terms, sharing the noise optimally.

If part i has squared error ``E_i`` at unit noise and squared column norm ``c_i``, scaling it by
``f_i`` gives ``E_i / f_i^2``; a record moves all parts, so ``sum f_i^2 c_i = 1`` at most. The least
sum is ``(sum sqrt(E_i c_i))^2``, at ``f_i^2 ~ sqrt(E_i / c_i)``. No strategy for the union errs
less than the best ones for its parts together, so bounds add up.

For the largest error, ``E_i`` is that of a part and ``max_i E_i / f_i^2`` counts: all are equal at
``f_i^2 ~ E_i``, and the least maximum is ``sum E_i c_i``. The greatest bound of a part is for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TypeVar

import numpy as np

from sfumato.strategy.base import Block, Norm, Strategy
from sfumato.strategy.strategy_limits import LIMITS
from sfumato.types import Array, Objective
from sfumato.workload.sensitivity import SensitivityBound
from sfumato.workload.workload import Workload

__all__ = [
    "Combined",
    "combined",
]


T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Combined(Strategy):
    """``places[t]`` is the part that answers term t, and the number of the term there."""

    parts: tuple[Strategy, ...]
    places: tuple[tuple[int, int], ...]

    @property
    def algorithm(self) -> str:
        """Those of the parts."""
        return " + ".join(dict.fromkeys(part.algorithm for part in self.parts))

    def answer(self, term: int, values: Sequence[Array]) -> Array:
        """By the part of the term, from its own blocks."""
        part, local = self.places[term]
        return self.parts[part].answer(local, self._own(part, values))

    def adjoint(self, term: int, coefficients: Array) -> dict[int, Array]:
        """As its part says, by the numbers of all blocks."""
        part, local = self.places[term]
        first = sum(len(s.blocks) for s in self.parts[:part])
        local_weights = self.parts[part].adjoint(local, coefficients)
        return {first + b: weights for b, weights in local_weights.items()}

    def variances(self, term: int, block_variances: Sequence[float]) -> Array:
        """As its part says."""
        part, local = self.places[term]
        return self.parts[part].variances(local, self._own(part, block_variances))

    def total_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """As its part says."""
        part, local = self.places[term]
        return self.parts[part].total_variance(local, self._own(part, block_variances))

    def block_errors(self) -> Array:
        """Part by part."""
        return np.concatenate([part.block_errors() for part in self.parts])

    def greatest_variance(self, term: int, block_variances: Sequence[float]) -> float:
        """As its part says."""
        part, local = self.places[term]
        return self.parts[part].greatest_variance(local, self._own(part, block_variances))

    def effective_terms(self, term: int) -> Array:
        """As its part says."""
        part, local = self.places[term]
        return self.parts[part].effective_terms(local)

    def greatest_column(self, norm: Norm, scales: Sequence[float]) -> SensitivityBound:
        """The sum of the parts' own greatest columns: never less than the greatest together."""
        each = [s.greatest_column(norm, self._own(i, scales)) for i, s in enumerate(self.parts)]
        return SensitivityBound(sum(n.power for n in each), is_exact=False)

    def _diameters(self, norm: Norm) -> tuple[float, ...]:
        """Part by part."""
        return tuple(d for part in self.parts for d in part.block_diameters(norm))

    def _own(self, part: int, listed: Sequence[T]) -> Sequence[T]:
        first = sum(len(s.blocks) for s in self.parts[:part])
        return listed[first : first + len(self.parts[part].blocks)]


def combined(
    mechanism: str,
    workload: Workload,
    parts: Sequence[tuple[Strategy, Sequence[int]]],
    objective: Objective = "rmse",
) -> Combined:
    """Gaussian strategies, each with the terms of the workload it answers, in its own order."""
    places: dict[int, tuple[int, int]] = {}
    for i, (_, terms) in enumerate(parts):
        places.update({term: (i, local) for local, term in enumerate(terms)})
    is_max = objective == "max"
    errors = [s.weighted_error(objective) ** (2 if is_max else 1) for s, _ in parts]
    norms = [strategy.sensitivity(2).power for strategy, _ in parts]
    least = LIMITS.negligible_error * max(
        errors
    )  # a part that answers nothing gets some share all the same
    factors = [
        sqrt(max(e, least)) / c if c > 0 else 0.0 for e, c in zip(errors, norms, strict=True)
    ]
    total = sum(f * c for f, c in zip(factors, norms, strict=True)) or 1.0
    blocks = [
        Block(b.term, b.share * (sqrt(f / total) or 1.0))  # a part of zeros costs nothing
        for (strategy, _), f in zip(parts, factors, strict=True)
        for b in strategy.blocks
    ]
    bounds = [b for b in (s.bound_for(objective) for s, _ in parts) if b is not None]
    bound = (max(bounds) if is_max else sum(bounds)) if bounds else None
    return Combined(
        mechanism,
        "gaussian",
        workload,
        tuple(blocks),
        tuple(s for s, _ in parts),
        tuple(places[t] for t in range(len(workload.terms))),
        bound=bound,
        objective=objective,
    )
