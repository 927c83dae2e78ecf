# SPDX-License-Identifier: Apache-2.0
"""When answers leave: on a grid of times since the request came.

How long an answer takes may depend on the noise and on the counts by microseconds; the clock of
an analyst shows steps of the grid only (Jin et al. 2022, "Are we there yet? Timing and
floating-point attacks on differential privacy systems").
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic

__all__ = ["Grid"]


@dataclass(frozen=True, slots=True)
class Grid:
    """Steps of ``step`` seconds; clock and sleep are passed in for tests."""

    step: float
    clock: Callable[[], float] = monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    def due(self, arrived: float, now: float) -> float:
        """The first time of the grid that is not before ``now``, at least one step after arrival.

        >>> Grid(0.25).due(10.0, 10.3)
        10.5
        """
        return arrived + self.step * max(1, math.ceil((now - arrived) / self.step))

    async def wait(self, arrived: float) -> None:
        """Sleep until the next time of the grid."""
        while (left := self.due(arrived, now := self.clock()) - now) > 0:
            await self.sleep(left)
            if self.clock() >= now + left:
                return
