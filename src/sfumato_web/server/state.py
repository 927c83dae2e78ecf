# SPDX-License-Identifier: Apache-2.0
"""Everything that a running server holds: its datasets, who may see them, and its workers.

Routes and pages get the one ``ServerState``, find a dataset in it by who asks, and run what takes
time through it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from sfumato.errors import SfumatoError, place_of
from sfumato_web.server.config import Analyst, Config
from sfumato_web.server.dataset import GuardedDataset
from sfumato_web.server.problems import no_dataset
from sfumato_web.server.responses import Grid, Metrics, ResponseStore
from sfumato_web.server.scheduler import Scheduler
from sfumato_web.server.server_limits import LIMITS, Rates
from sfumato_web.server.tokens import Tokens

__all__ = [
    "ServerState",
]


T = TypeVar("T")

LOG: Final = logging.getLogger("sfumato.server")


class ServerState:
    """The server without its routes; ``grid`` and ``rates`` are passed in by tests.

    Nothing that can wait runs on the event loop. ``work`` is for what takes long, ``read`` for what
    is short and needs no ledger; each ``GuardedDataset`` has threads of its own for its ledger and
    its session, so that no dataset waits for the database of another, and no freeze for a plan.
    """

    def __init__(
        self, config: Config, grid: Grid | None = None, rates: Rates | None = None
    ) -> None:
        limits = config.limits
        self.config = config
        self.grid = grid or Grid(config.grid)
        self.rates = rates or Rates(limits.requests_per_second, limits.burst)
        self.tokens = Tokens((a.token, a) for a in config.analysts)
        self.metrics = Metrics()
        self.store = ResponseStore(config.state, limits.kept_bytes)
        self._workers = Scheduler(limits.workers, limits.workers_per_analyst, limits.waiting)
        self._readers = Scheduler(LIMITS.reader_threads, 1, limits.concurrent, "sfumato reader")
        self.datasets: dict[str, GuardedDataset] = {}
        try:
            for name, dataset in config.datasets.items():
                self.datasets[name] = GuardedDataset(dataset, config, self.store, self.metrics)
        except BaseException:  # those that were opened must not hold sessions and tables
            self.close()
            raise
        self._looking: asyncio.Future[dict[str, str]] | None = None

    def dataset(self, who: Analyst, name: str) -> GuardedDataset:
        """A dataset that is theirs; any other name is refused in the same words."""
        if name not in who.datasets:
            raise no_dataset()
        return self.datasets[name]

    async def work(
        self, who: Analyst, function: Callable[..., T], *arguments: object, lane: str | None = None
    ) -> T:
        """Run what can take long in a worker thread, in turn with those of other analysts."""
        return await self._workers.run(who.name, partial(function, *arguments), lane)

    async def read(self, who: Analyst, function: Callable[..., T], *arguments: object) -> T:
        """Run what is short and reads no ledger off the event loop: SQL, keys, stored answers."""
        return await self._readers.run(who.name, partial(function, *arguments))

    async def share(self, dataset: GuardedDataset, who: Analyst) -> float | None:
        """The share of a dataset's budget that is left; None where its ledger cannot be read."""
        return await _or_none(
            f"the ledger of {dataset.name}",
            dataset.on_ledger(who, lambda: float(dataset.ledger.remaining().share)),
        )

    async def shown(self, dataset: GuardedDataset, who: Analyst) -> dict[str, object]:
        """What the list of datasets says of one, without what cannot be read now."""
        ledger, paid = await asyncio.gather(
            _or_none(
                f"the ledger of {dataset.name}",
                dataset.on_ledger(who, dataset.spendable, who),
            ),
            _or_none(
                f"the session of {dataset.name}",
                dataset.on_session(who, dataset.paid_answers, who),
            ),
        )
        return {**dataset.about(), **(ledger or {}), "paid_answers": paid}

    async def ready(self) -> dict[str, str]:
        """Which kinds of parts can be opened: ``ok``, or how many of them cannot.

        Which of them it is, and why, is written to the log, as anybody may ask whether a server is
        ready. One look at a time, whoever asks.
        """
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        return await asyncio.shield(self._looking)

    async def _look(self) -> dict[str, str]:
        datasets = self.datasets.values()
        kinds = {
            "state": [_is_fine("the state", self._readers.run("", self.store.check))],
            "ledgers": [_is_fine(f"the ledger of {d.name}", d.check_ledger()) for d in datasets],
            "tables": [_is_fine(f"the table of {d.name}", d.check_table()) for d in datasets],
        }
        parts = {}
        for kind, checks in kinds.items():
            failed = (await asyncio.gather(*checks)).count(False)
            one = (
                "cannot be used"
                if len(checks) == 1
                else f"{failed} of {len(checks)} cannot be used"
            )
            parts[kind] = "ok" if not failed else one
        return parts

    def close(self) -> None:
        """Finish what is under way, then close the ledgers and the store."""
        self._workers.close()
        self._readers.close()
        for dataset in self.datasets.values():
            dataset.close()
        self.store.close()


async def _or_none(what: str, look: Awaitable[T], seconds: float = LIMITS.part_seconds) -> T | None:
    """What a ledger says, or None where it cannot be read in time; the log has the reason."""
    try:
        async with asyncio.timeout(seconds):
            return await look
    except Exception as error:
        LOG.error("%s cannot be used: %s", what, _reason(error, seconds))
    return None


async def _is_fine(what: str, check: Awaitable[object]) -> bool:
    async def checked() -> bool:
        await check
        return True

    return await _or_none(what, checked(), LIMITS.ready_seconds) is True


def _reason(error: Exception, seconds: float) -> str:
    """For the log: words of ours, or the type and place of the errors of others."""
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:g} s"
    if isinstance(error, SfumatoError):
        return str(error)
    return f"unexpected {type(error).__name__} at {place_of(error)}"
