# SPDX-License-Identifier: Apache-2.0
"""Strategies that tests share: equal workloads have equal ones, and most tests look at neither."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf

from sfumato.errors import PlanError
from sfumato.planning.planner import BIASED, Strategies
from sfumato.strategy.base import Strategy

__all__ = ["share_strategies"]

CELLS = 10_000  # larger ones hold memory
BUILT = Strategies._built


@lru_cache(maxsize=256)
def _place(*_: object) -> list[Strategy | PlanError]:
    return []


def _built_once(
    self: Strategies, name: str, loss: float, watch: Callable[[str], None] | None
) -> Strategy | PlanError:
    if self.until < inf or name == BIASED or self.folder or self.workload.domain.size > CELLS:
        return BUILT(self, name, loss, watch)
    place = _place(self.workload.digest(), self.objective, name, self.steps)
    if not place:
        place.append(BUILT(self, name, loss, watch))
    return place[0]


def share_strategies(*, are_shared: bool) -> None:
    """Let the strategies of equal workloads be built once in this process, or by everyone."""
    Strategies._built = _built_once if are_shared else BUILT  # type: ignore[method-assign]
