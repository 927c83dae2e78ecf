# SPDX-License-Identifier: Apache-2.0
"""Everything that a running server holds: its datasets, who may see them, and its workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sfumato.app.server.config import Analyst, Config
from sfumato.app.server.grid import Grid
from sfumato.app.server.guarded import Guarded
from sfumato.app.server.limits import Rates
from sfumato.app.server.metrics import Metrics
from sfumato.app.server.problems import no_dataset, too_many
from sfumato.app.server.shelf import Shelf
from sfumato.app.server.tokens import Tokens

__all__ = ["House"]

T = TypeVar("T")

LOOKS = 4  # threads for what may have to wait for a session


class House:
    """The server without its routes; ``grid`` and ``rates`` are passed in by tests."""

    def __init__(
        self, config: Config, grid: Grid | None = None, rates: Rates | None = None
    ) -> None:
        limits = config.limits
        self.config = config
        self.grid = grid or Grid(config.grid)
        self.rates = rates or Rates(limits.requests_per_second, limits.burst)
        self.tokens = Tokens((a.token, a) for a in config.analysts)
        self.metrics = Metrics()
        self.shelf = Shelf(config.state, limits.kept_bytes)
        self.datasets = {
            name: Guarded(dataset, config, self.shelf, self.metrics)
            for name, dataset in config.datasets.items()
        }
        self._workers = ThreadPoolExecutor(limits.workers, thread_name_prefix="sfumato")
        self._looks = ThreadPoolExecutor(LOOKS, thread_name_prefix="sfumato look")
        self._most = limits.workers + limits.waiting
        self._working = 0

    def dataset(self, who: Analyst, name: str) -> Guarded:
        """A dataset that is theirs; any other name is refused in the same words."""
        if name not in who.datasets:
            raise no_dataset()
        return self.datasets[name]

    async def work(self, function: Callable[..., T], *arguments: object) -> T:
        """Run what can take long in a worker thread; refuse when too many wait."""
        if self._working >= self._most:
            raise too_many(1)
        self._working += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._workers, function, *arguments)
        finally:
            self._working -= 1

    async def look(self, function: Callable[..., T], *arguments: object) -> T:
        """Run what is short but may wait for a session that is counting: others do not wait."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._looks, function, *arguments)

    def close(self) -> None:
        """Finish what is under way, then close the ledgers and the shelf."""
        self._workers.shutdown(wait=True)
        self._looks.shutdown(wait=True)
        for dataset in self.datasets.values():
            dataset.close()
        self.shelf.close()
