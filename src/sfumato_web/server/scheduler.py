# SPDX-License-Identifier: Apache-2.0
"""Worker threads for what takes long, shared fairly between the analysts who wait.

A free thread takes a job of the analyst who has the fewest at work; among equals it goes round. One
analyst has at most so many at work and so many in line, however many requests they send. Jobs of
one lane (the releases of one table) run one at a time and hold no thread while they wait for it.

A job that nobody waits for any more leaves the line at once. One that is at work ends at its next
``stop_if_abandoned``, which planning calls at each step and nothing calls after a debit.

``workload_of`` and ``plan_of`` are such jobs: the queries and the plan of a request, on any domain.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sfumato.privacy.budget import Budget
from sfumato.toml import TomlFile
from sfumato.types import Neighbours
from sfumato.workload.statements.workload_file import workload_from
from sfumato_web.server.problems import disconnected, too_many
from sfumato_web.server.server_limits import LimitsTable, check_entries, check_workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sfumato.domain.domain import Domain
    from sfumato.domain.privacy_unit import PrivacyUnit
    from sfumato.planning.planner import Strategies
    from sfumato.run.linear import Plan
    from sfumato.types import Noise, Progress
    from sfumato.workload.workload import Workload
    from sfumato_web.server.models import PlanAsked

__all__ = ["Scheduler", "Ticket", "plan_of", "stop_if_abandoned", "workload_of"]


T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Ticket:
    """A call that somebody waits for, unless ``is_abandoned`` is set.

    ``steps`` is called with the steps of what is at work, and may raise to end it before a debit.
    """

    analyst: str
    lane: str | None
    call: Callable[[], Any]
    result: Future[Any] = field(default_factory=Future)
    context: Context = field(default_factory=copy_context)
    is_abandoned: Event = field(default_factory=Event)
    steps: Progress | None = None


_AT_WORK: Final[ContextVar[Ticket | None]] = ContextVar("sfumato job", default=None)


def stop_if_abandoned(done: int = 0, total: int = 0, what: str = "") -> None:
    """End the job at work if nobody waits for it any more; to be called before a debit only.

    Takes the arguments of a progress function, and passes them on to whoever looks at the job.

    Raises:
        Problem: the connection that asked for it was closed.
    """
    job = _AT_WORK.get()
    if job is not None and job.is_abandoned.is_set():
        raise disconnected()
    if job is not None and job.steps is not None and what:
        job.steps(done, total, what)


class Scheduler:
    """At most ``workers`` jobs at once, ``per_analyst`` of one analyst, and ``waiting`` in line.

    With more than one worker, one is always left for the others.
    """

    def __init__(self, workers: int, per_analyst: int, waiting: int, name: str = "sfumato") -> None:
        self._workers, self._waiting = workers, waiting
        self._per_analyst = min(per_analyst, max(1, workers - 1))
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._lock = Lock()
        self._lines: OrderedDict[str, deque[Ticket]] = OrderedDict()
        self._at_work: Counter[str] = Counter()
        self._lanes: set[str] = set()

    async def run(
        self, analyst: str, call: Callable[[], T], lane: str | None = None, *, urgent: bool = False
    ) -> T:
        """The result of a call that is made in a thread when its turn comes.

        Args:
            analyst: whose turn it takes.
            call: what is done.
            lane: jobs of one lane run one at a time.
            urgent: it is put before the other jobs of this analyst.

        Returns:
            What the call returned.

        Raises:
            Problem: 429, as many jobs of this analyst wait as may.
        """
        job = self._put(Ticket(analyst, lane, call), urgent)
        try:
            result: T = await asyncio.wrap_future(job.result)
            return result
        except asyncio.CancelledError:
            self.abandon(job)
            raise

    def submit(
        self,
        analyst: str,
        call: Callable[[], object],
        lane: str | None = None,
        steps: Progress | None = None,
    ) -> Ticket:
        """Put a call in line that goes on when nobody waits; as ``run``, from any thread."""
        return self._put(Ticket(analyst, lane, call, steps=steps))

    @property
    def waiting(self) -> int:
        """How many jobs are in line."""
        with self._lock:
            return sum(len(line) for line in self._lines.values())

    @property
    def at_work(self) -> int:
        """How many jobs are at work."""
        with self._lock:
            return self._at_work.total()

    def close(self) -> None:
        """Finish what is in line and at work."""
        while True:
            with self._lock:
                pending = [job.result for line in self._lines.values() for job in line]
            if not pending:
                break
            for result in pending:
                if not result.cancelled():
                    result.exception()
        self._threads.shutdown(wait=True)

    def _put(self, job: Ticket, urgent: bool = False) -> Ticket:
        with self._lock:
            line = self._lines.setdefault(job.analyst, deque())
            if len(line) >= self._waiting:
                raise too_many(1)
            (line.appendleft if urgent else line.append)(job)
            self._start()
        return job

    def abandon(self, job: Ticket) -> None:
        """Take a job out of the line; one that is at work ends at its next step before a debit."""
        job.is_abandoned.set()
        job.result.cancel()
        with self._lock:
            line = self._lines.get(job.analyst)
            if line is not None and job in line:
                line.remove(job)
                self._tidy(job.analyst)

    def _start(self) -> None:
        """Start what can be started; the lock is held."""
        while self._at_work.total() < self._workers:
            job = self._next()
            if job is None:
                return
            self._at_work[job.analyst] += 1
            if job.lane is not None:
                self._lanes.add(job.lane)
            self._threads.submit(self._work, job)

    def _next(self) -> Ticket | None:
        """The first job that may start, of the analyst with the fewest at work."""
        for analyst in sorted(self._lines, key=lambda name: self._at_work[name]):
            if self._at_work[analyst] >= self._per_analyst:
                return None
            line = self._lines[analyst]
            job = next((j for j in line if j.lane not in self._lanes), None)
            if job is not None:
                line.remove(job)
                self._lines.move_to_end(analyst)
                self._tidy(analyst)
                return job
        return None

    def _tidy(self, analyst: str) -> None:
        if not self._lines[analyst]:
            del self._lines[analyst]

    def _work(self, job: Ticket) -> None:
        try:
            if job.result.set_running_or_notify_cancel():
                self._call(job)
        finally:
            with self._lock:
                self._at_work[job.analyst] -= 1
                if not self._at_work[job.analyst]:
                    del self._at_work[job.analyst]
                if job.lane is not None:
                    self._lanes.discard(job.lane)
                self._start()

    @staticmethod
    def _call(job: Ticket) -> None:
        try:
            result = job.context.run(_made, job)
        except BaseException as error:
            job.result.set_exception(error)
        else:
            job.result.set_result(result)


def _made(job: Ticket) -> object:
    """The result of a job, in the context of who asked for it."""
    _AT_WORK.set(job)
    return job.call()


# The plan of a request, on any domain: sizes are checked before anything is built.


def workload_of(
    entries: Sequence[Mapping[str, object]],
    domain: Domain,
    limits: LimitsTable,
    unit: PrivacyUnit | None = None,
) -> Workload:
    """The queries that a request asks; refused if they are too many or cannot be asked."""
    check_entries(entries, domain, limits)
    workload = workload_from(TomlFile("request", "", {"workload": list(entries)}), domain, unit)
    check_workload(workload, limits)
    return workload


def plan_of(
    request: PlanAsked,
    workload: Workload,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
    limits: LimitsTable,
    progress: Progress | None = None,
    built: Callable[[Strategies], Strategies] | None = None,
    *,
    may_drop_records: bool = False,
    noise: Noise | None = None,
) -> Plan:
    """The best plan within a number of steps, whatever else the machine does; costs nothing.

    ``limits.planning_seconds`` are those of one undisturbed core, counted in multiplications: a
    clock would give one request two plans, and two keys. ``built`` gives back the strategies that
    were built for this workload at another budget.
    """
    from sfumato.run.linear import plan
    from sfumato.solve.effort import STEPS_PER_SECOND

    return plan(
        workload,
        Budget(**request.budget.model_dump()),
        neighbours,
        request.objective,
        request.mechanism,
        unit=unit,
        may_drop_records=may_drop_records,
        steps=limits.planning_seconds * STEPS_PER_SECOND,
        progress=progress,
        reuse=built,
        noise=noise,
    )
