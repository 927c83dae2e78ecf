# SPDX-License-Identifier: Apache-2.0
"""Jobs: plans and releases that go on when nobody waits, how far they are, and how they ended.

A job is ``waiting``, then ``working``, then ``paying`` from just before its debit on, in the end
``done``, ``failed``, ``cancelled`` or, if the server was stopped meanwhile, ``lost``. It can be
cancelled until it pays, and never after: both are decided under one lock, and whatever is debited
is also drawn and stored.

Jobs are kept in the server's state. After a restart one whose answer is stored is ``done``; a
``lost`` one can be sent again, and costs nothing more if it was paid for: the ledger has its answer
under the same key, or none was drawn.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal

from sfumato.errors import SfumatoError
from sfumato.run.spine import PAYING
from sfumato_web.server.problems import Problem, disconnected, problem_of
from sfumato_web.server.server_limits import LIMITS

if TYPE_CHECKING:
    from sfumato.types import Progress
    from sfumato_web.server.config import Analyst
    from sfumato_web.server.responses import ResponseStore
    from sfumato_web.server.scheduler import Scheduler, Ticket

__all__ = ["Facts", "Job", "JobState", "Jobs", "Kind", "Work"]


LOG: Final = logging.getLogger("sfumato.server")

JobState = Literal["waiting", "working", "paying", "done", "failed", "cancelled", "lost"]
Kind = Literal["plan", "release", "select", "describe", "discover"]
Facts = Mapping[str, object]
Work = Callable[["Progress"], tuple[bytes, str | None, Facts]]
"""What a job does, given what its steps are told to: its body, the key under which that is stored
already, if it is, and what lists say of it."""

_OVER: Final = frozenset({"done", "failed", "cancelled", "lost"})
_LOST: Final = {
    "error": "lost",
    "message": "the server was stopped while this job ran; send the request again: what was paid "
    "for is stored and costs nothing more",
}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(eq=False)
class Job:
    """One job of one analyst.

    Attributes:
        document: what is kept of it, and shown: public facts only.
        finished: done when the job is over.
    """

    document: dict[str, Any]
    clock: Callable[[], float] = monotonic
    finished: Future[None] = field(default_factory=Future)
    ticket: Ticket | None = None
    _lock: Lock = field(default_factory=Lock)
    _step: tuple[int, int, str, float] = (0, 0, "", 0.0)
    _began: float = 0.0

    @property
    def id(self) -> str:
        """Its name."""
        return str(self.document["id"])

    @property
    def state(self) -> JobState:
        """How far it is."""
        state: JobState = self.document["state"]
        return state

    def begin(self) -> None:
        """Its turn has come."""
        with self._lock:
            self._check()
            self.document["state"] = "working"
            self._began = self.clock()

    def progress(self, done: int, total: int, what: str) -> None:
        """A step of the work, in its thread; ends it if it was cancelled before its debit."""
        with self._lock:
            if self.state != "paying":
                self._check()
                if what == PAYING:
                    self.document["state"] = "paying"
            begun = self._step[3] if what == self._step[2] else self.clock()
            self._step = (done, total, what, begun)

    def cancel(self, who: str) -> bool:
        """Whether it is cancelled; it is not once it pays."""
        with self._lock:
            if self.state in ("waiting", "working"):
                self.document |= {"state": "cancelled", "finished": _now(), "cancelled_by": who}
            return self.state == "cancelled"

    def end(self, state: JobState, **facts: object) -> bool:
        """Write down how it ended; False if it was over already."""
        with self._lock:
            if self.state in _OVER:
                return False
            self.document |= {"state": state, "finished": _now(), **facts}
            return True

    def shown(self) -> dict[str, object]:
        """The job as it is now, with its step and about how long that step will take.

        Seconds are whole: how long a count takes shows on the grid of times only.
        """
        with self._lock:
            document, (done, total, what, begun) = dict(self.document), self._step
            is_over = self.state in _OVER
        if is_over:
            return document
        now = self.clock()
        left = (now - begun) * (total - done) / done if what and 0 < done <= total else None
        return document | {
            "step": what or None,
            "steps_done": done,
            "steps": total,
            "seconds": math.floor(now - self._began) if self._began else 0,
            "seconds_left_of_step": None if left is None else math.ceil(left),
        }

    def _check(self) -> None:
        if self.state == "cancelled":
            raise disconnected()


class Jobs:
    """All jobs of the server: those that are under way, and those that its state remembers."""

    def __init__(self, store: ResponseStore, workers: Scheduler) -> None:
        self._store, self._workers = store, workers
        self._lock = Lock()
        self._open: dict[str, Job] = {}
        self._recover()

    def submit(
        self,
        kind: Kind,
        who: Analyst,
        dataset: str,
        about: Facts,
        work: Work,
        *,
        key: str | None = None,
        lane: str | None = None,
    ) -> Job:
        """Put a job in line; refused as any other request where too many wait.

        Args:
            kind: what is done.
            who: for whom.
            dataset: of which table.
            about: what was asked, as it is shown in lists.
            work: what is done, given what it tells its steps to.
            key: that of the body, if it is known before.
            lane: jobs of one lane run one at a time.

        Returns:
            The job; nothing of it is in memory once it is over.

        Raises:
            Problem: 429, as many jobs of this analyst wait as may.
        """
        job = Job(
            {
                "id": secrets.token_hex(16),
                "kind": kind,
                "dataset": dataset,
                "analyst": who.name,
                "state": "waiting",
                "created": _now(),
                "finished": None,
                "about": dict(about),
                "key": key,
                "error": None,
            }
        )
        self._keep(job)
        with self._lock:
            self._open[job.id] = job
        try:
            run = self._running(job, work)
            job.ticket = self._workers.submit(who.name, run, lane, job.progress)
        except Problem as problem:
            self._finish(job, "failed", error=json.loads(problem.body()), status=problem.status)
            raise
        return job

    def find(self, who: Analyst, job: str) -> Job:
        """A job that somebody may see; any other is refused in the same words."""
        with self._lock:
            mine = self._open.get(job)
        if mine is None:
            text = self._store.job(job)
            mine = None if text is None else Job(json.loads(text))
        if mine is None or not _may_see(who, mine.document):
            raise Problem(404, "not-found", "no job of this name is yours; GET /jobs lists yours")
        return mine

    def under_way(self, who: Analyst) -> list[Job]:
        """The jobs that are not over and that somebody may see."""
        with self._lock:
            return [job for job in self._open.values() if _may_see(who, job.document)]

    def listed(self, who: Analyst) -> list[dict[str, object]]:
        """The newest jobs that somebody may see, newest first."""
        with self._lock:
            live = dict(self._open)
        documents = (json.loads(text) for text in self._store.jobs(most=LIMITS.jobs_looked_at))
        theirs = (d for d in documents if _may_see(who, d))
        newest = [d for d, _ in zip(theirs, range(LIMITS.jobs_listed), strict=False)]
        return [live[d["id"]].shown() if d["id"] in live else d for d in newest]

    def cancel(self, who: Analyst, job: Job) -> None:
        """Cancel a job before it pays; refused in words after that, or when it is over."""
        was_over = job.state in _OVER
        if was_over or not job.cancel(who.name):
            words = (
                f"this job is over already: {job.state}"
                if was_over
                else "this job has begun to pay, so it is finished and stored; its result follows"
            )
            raise Problem(409, "too-late", words)
        if job.ticket is not None:
            self._workers.abandon(job.ticket)
        self._over(job)

    def result(self, job: Job) -> bytes | None:
        """The body of a job that is done; None if it is not there any more."""
        document = job.document
        dataset, key = str(document["dataset"]), document["key"]
        return None if key is None else self._store.body(dataset, str(key))

    def _running(self, job: Job, work: Work) -> Callable[[], None]:
        def run() -> None:
            try:
                job.begin()
                body, key, facts = work(job.progress)
                if key is None:
                    key = f"job {job.id}"
                    self._store.keep([(str(job.document["dataset"]), key, body)])
                self._finish(job, "done", key=key, **facts)
            except Exception as error:
                problem = problem_of(error)
                if not isinstance(error, Problem) and problem.status >= 500:
                    LOG.error("a job failed: %s", _reason(error))
                self._finish(job, "failed", error=json.loads(problem.body()), status=problem.status)

        return run

    def _finish(self, job: Job, state: JobState, **facts: object) -> None:
        if job.end(state, **facts):
            self._over(job)

    def _over(self, job: Job) -> None:
        """Keep how it ended, and forget it here."""
        try:
            self._keep(job)
        except SfumatoError as error:  # after a restart it is looked up in the ledger's way
            LOG.error("%s", error)
        with self._lock:
            self._open.pop(job.id, None)
        if not job.finished.done():
            job.finished.set_result(None)

    def _keep(self, job: Job) -> None:
        document = job.document
        text = json.dumps(document, separators=(",", ":"))
        names = (str(document["analyst"]), str(document["dataset"]))
        self._store.note_job(job.id, *names, job.state in _OVER, text, LIMITS.jobs_kept)

    def _recover(self) -> None:
        """What became of the jobs of a server that was stopped."""
        for text in self._store.jobs(open_only=True):
            job = Job(json.loads(text))
            if self.result(job) is not None:
                job.end("done")
            else:
                job.end("lost", error=_LOST, status=503)
            self._keep(job)


def _may_see(who: Analyst, document: Mapping[str, Any]) -> bool:
    """Whether a job is theirs, or of a table whose whole ledger they may read."""
    if document["dataset"] not in who.datasets:
        return False
    return who.sees_all or document["analyst"] == who.name


def _reason(error: Exception) -> str:
    from sfumato.errors import place_of

    if isinstance(error, SfumatoError):
        return str(error)
    return f"unexpected {type(error).__name__} at {place_of(error)}"
