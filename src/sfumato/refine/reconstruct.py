# SPDX-License-Identifier: Apache-2.0
"""From measurements to unbiased answers.

Post-processing of what the vault released: nothing here can cost privacy (Dwork, Roth 2014,
Proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from sfumato.measurement import Measured
from sfumato.plan.forecast import Forecast
from sfumato.plan.strategy import Strategy
from sfumato.workload.queries import DENSE_LIMIT, Array

__all__ = ["reconstruct"]


def reconstruct(forecast: Forecast, measured: Measured) -> Sequence[Array]:
    """The unbiased answers ``R (M h + z)`` of every group.

    Too many answers for the memory are computed, or refused, group by group when they are looked
    at, not before: what is paid for can still be asked in part.
    """
    values = [m.values for m in measured.measurements]
    if sum(term.rows for term in forecast.workload.terms) <= DENSE_LIMIT:
        return forecast.strategy.answers(values)
    return _OnDemand(forecast.strategy, values)


@dataclass(frozen=True, eq=False)
class _OnDemand(Sequence[Array]):
    """The answers of every group, computed when they are looked at."""

    strategy: Strategy
    values: Sequence[Array]

    def __len__(self) -> int:
        return len(self.strategy.workload.terms)

    @overload
    def __getitem__(self, index: int) -> Array: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Array]: ...

    def __getitem__(self, index: int | slice) -> Array | Sequence[Array]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.strategy.answer(range(len(self))[index], self.values)
