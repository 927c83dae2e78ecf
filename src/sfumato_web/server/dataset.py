# SPDX-License-Identifier: Apache-2.0
"""A table behind its ledger: what a caller may know of it, forecast, release and look up.

The same functions as the command line calls; here for many callers at once. Functions that can
take long run in a worker of the server, one release of a table at a time. Ledger and session have
threads of their own: reading the ledger waits for no plan, freezing it for nothing at all.

`file_of` returns one file of a release from what the ledger keeps of it; nothing is spent, and no
row is read. All files are written together and held in memory beside the stored answers, within
``kept_bytes``, so that the second file of a release takes no time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from tempfile import TemporaryDirectory
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from sfumato.cli.output import budget_document
from sfumato.cli.plan_command import plan_document
from sfumato.digest import json_digest
from sfumato.domain.domain import write_domain
from sfumato.errors import LedgerError, LedgerFrozen
from sfumato.ledger.entries import Entry, Frozen
from sfumato.ledger.ledger import Ledger
from sfumato.planning.mechanisms import MECHANISMS, named
from sfumato.planning.planner import BIASED, Strategies
from sfumato.privacy.budget import Budget, total_is_public
from sfumato.release.provenance import cost_in_words
from sfumato.run.choose import Selection, SelectionPlan, plan_selection
from sfumato.run.linear import fitting, request_of
from sfumato.text import STORED
from sfumato.workload.statements.sql_top import top_select
from sfumato_web.server.batcher import QuestionBatcher, no_session, without_words
from sfumato_web.server.config import (
    Analyst,
    Config,
    DatasetConfig,
    SessionConfig,
    is_larger,
    larger_in_words,
    open_ledger,
)
from sfumato_web.server.descriptions import TableDescriber
from sfumato_web.server.models import (
    PlanAsked,
    ReleaseAsked,
    SelectionAsked,
    canonical,
    columns_of,
    entry_document,
    frame_columns,
    remaining_document,
    statements_document,
)
from sfumato_web.server.problems import Problem, exhausted, key_reused, not_valid
from sfumato_web.server.responses import NewestCache
from sfumato_web.server.scheduler import Scheduler, plan_of, stop_if_abandoned, workload_of
from sfumato_web.server.server_limits import LIMITS, check_workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sfumato.ledger.account import Remaining
    from sfumato.privacy.cost import Cost
    from sfumato.release.provenance import Promised
    from sfumato.release.release import Release
    from sfumato.run.linear import Plan
    from sfumato.session.session import Session
    from sfumato.types import Noise, Progress
    from sfumato.workload.workload import Workload
    from sfumato_web.server.jobs import Work
    from sfumato_web.server.request_log import RequestLog
    from sfumato_web.server.responses import Metrics, ResponseStore

__all__ = ["FILES", "GuardedDataset", "PastRelease", "ReleaseTask", "file_of", "opened"]


T = TypeVar("T")

_PRIVATE_TOTAL = "the number of records that shares are parts of is private here; leave shares out"
NAMED = "name "  # before the key of a release, of what it is called
ASKED = "asked "  # before the key of a stored request; its answer is stored under the key itself


@dataclass(frozen=True, eq=False, slots=True)
class ReleaseTask:
    """A release that may have to be made: its request, its queries and its keys.

    Attributes:
        request: what was sent.
        workload: its queries.
        paid: of the measurement that it pays for: equal for every writing of the same request.
        key: of its body, which has the asker's own groups, projection, level and shares.
        former: the keys that both had when they were those of one writing, ``paid`` first.
    """

    request: ReleaseAsked
    workload: Workload
    paid: str
    key: str
    former: tuple[str, str]


@dataclass(frozen=True, eq=False, slots=True)
class PastRelease:
    """A release that can be opened again.

    Attributes:
        key: of its body.
        entry: the debit that paid for it.
        analyst: who asked for it first in these words.
        request: what was asked.
        summary: queries, mechanism and error; empty for releases of earlier versions.
        name: what who asked for it calls it, if anything.
    """

    key: str
    entry: Entry
    analyst: str
    request: ReleaseAsked
    summary: Mapping[str, object]
    name: str | None = None

    def as_json(self) -> dict[str, object]:
        """What the list of releases says of it."""
        return {
            "key": self.key,
            "name": self.name,
            "entry": self.entry.sequence,
            "time": self.entry.time,
            "analyst": self.analyst,
            "workload": self.request.workload,
            "budget": self.request.budget.model_dump(exclude_none=True),
            "cost": self.entry.cost.as_json(),
            **{name: self.summary.get(name) for name in ("queries", "mechanism", "rmse")},
            "files": list(FILES),
        }


def _former_paid(about: str, request: PlanAsked) -> str:
    """The key of a measurement as it once was: that of the JSON as it came."""
    paid = request.model_dump(exclude={"project", "level", "shares"})
    return json_digest({"about": about, **paid})


def _fields(request: ReleaseAsked) -> dict[str, object]:
    """What was asked; shares only where they were, so that keys of other requests stay theirs."""
    return request.model_dump(exclude=None if request.shares else {"shares"})


class GuardedDataset:
    """One dataset of the server."""

    def __init__(
        self,
        dataset: DatasetConfig,
        server: Config,
        store: ResponseStore,
        metrics: Metrics,
        log: RequestLog,
    ) -> None:
        self.name, self.config = dataset.name, dataset
        self._metrics, self._log = metrics, log
        self.limits, self.store = server.limits, store
        self.ledger = open_ledger(dataset, server)
        unit = None if dataset.unit is None else list(dataset.unit.as_json().values())
        table = [dataset.table_id, dataset.domain.digest(), dataset.neighbours, unit]
        self._about = json_digest({"table": table})
        self._bodies: NewestCache[ReleaseTask] = NewestCache(LIMITS.bodies_cached)
        self._workloads: NewestCache[Workload] = NewestCache(LIMITS.plans_cached)
        self._plans: NewestCache[Plan] = NewestCache(LIMITS.plans_cached)
        self._strategies: NewestCache[Strategies] = NewestCache(LIMITS.strategies_cached)
        self._seen: tuple[int, str] | None = None
        self._remaining: dict[str, tuple[int, Remaining]] = {}
        self._results: NewestCache[Release] = NewestCache(LIMITS.results_cached)
        # As words, not as exceptions: those would hold the plans that they were raised about.
        self._refused: dict[tuple[str, str], tuple[float, str, Remaining]] = {}
        self._clock = monotonic
        self._releasing = Lock()
        most = server.limits.concurrent
        self._reads = Scheduler(2, 1, most, f"ledger of {self.name}")
        self._looks = Scheduler(2, 1, most, f"session of {self.name}")
        self._brake = Scheduler(1, 1, most, f"brake of {self.name}")
        self._checks = Scheduler(2, 1, most, f"checks of {self.name}")
        self.describer = TableDescriber(
            self._about, dataset, self.ledger, store, self.check_fits, self.pay_once
        )
        self._batcher: QuestionBatcher | None = None
        if dataset.session is not None:
            session = _session(dataset, dataset.session, self.ledger)
            self._batcher = QuestionBatcher(
                self.name, session, self.ledger, self.limits, store, metrics, log
            )

    async def on_ledger(self, who: Analyst, function: Callable[..., T], *arguments: object) -> T:
        """Run what reads this ledger, which may be slow or hang, off the event loop."""
        return await self._reads.run(who.name, partial(function, *arguments))

    async def on_session(self, who: Analyst, function: Callable[..., T], *arguments: object) -> T:
        """Run what may have to wait for a session that is counting; nobody else waits for it."""
        return await self._looks.run(who.name, partial(function, *arguments))

    async def freeze(self, who: Analyst, is_frozen: bool, reason: str) -> dict[str, bool]:
        """Stop new answers or let them be asked again, at once, whatever else is waiting."""
        said = f"by {who.name}: {reason}"
        state = await self._brake.run(who.name, partial(self.set_frozen, is_frozen, said))
        self._log.add("freeze" if is_frozen else "unfreeze", dataset=self.name, analyst=who.name)
        return state

    def _note_debits(
        self, before: int, entries: Iterable[Entry | None], who: Analyst, act: str
    ) -> None:
        """Log the debits that are newer than this version of the ledger."""
        for entry in entries:
            if entry is not None and entry.sequence > before:
                self._metrics.debited(self.name, who.name)
                self._log.paid(self.name, who.name, entry.sequence, entry.cost.as_json(), act)

    async def check_ledger(self) -> None:
        """Whether the ledger can be written; raises why, if not. Nothing is."""
        await self._checks.run("ledger", self.ledger.check)

    async def check_table(self) -> None:
        """Whether the table can be opened and has the columns of its schema; reads no row."""
        await self._checks.run("table", self._open)

    def _open(self) -> None:
        from sfumato.vault.encode import check_columns
        from sfumato.vault.tables import open_table

        check_columns(open_table(self.config.source), self.config.domain, self.config.unit)

    @property
    def lane(self) -> str:
        """Releases of this table run one at a time."""
        return f"release {self.name}"

    @property
    def batcher(self) -> QuestionBatcher:
        """The session of this dataset, for many callers; refused if it has none."""
        if self._batcher is None:
            raise no_session()
        return self._batcher

    def about(self) -> dict[str, object]:
        """What the list of datasets says of this one while its ledger cannot be read."""
        return {
            "name": self.name,
            "about": self.config.about,
            "attributes": len(self.config.domain),
            "cells": str(self.config.domain.size),
            "neighbours": self.config.neighbours,
            "is_frozen": None,
            "paid_answers": None,
            "remaining": None,
        }

    def spendable(self, who: Analyst) -> dict[str, object]:
        """What its ledger adds: whether it is frozen, and what one may still spend."""
        return {
            "is_frozen": self.ledger.is_frozen(),
            "remaining": remaining_document(self.ledger.remaining(who.name)),
        }

    def paid_answers(self, who: Analyst) -> int | None:
        """How many questions can still be paid for; waits while the session is counting."""
        return None if self._batcher is None else self._batcher.session.left(who.name).paid_answers

    def recent(self, key: str) -> bytes | None:
        """The bytes that were sent under a key, if they are at hand; takes no time."""
        held = self.store.recent(self.name, key)
        return None if held is None else without_words(held)

    def stored(self, key: str) -> bytes | None:
        """The bytes that were sent under a key: of a release or of a question."""
        body = self.store.body(self.name, key)
        if body is not None:
            return without_words(body)
        return None if self._batcher is None else self._batcher.stored(key)

    def schema(self) -> dict[str, object]:
        """The public domain."""
        unit = self.config.unit
        return {
            "name": self.name,
            "neighbours": self.config.neighbours,
            "unit": unit and unit.as_json(),
            "attributes": [
                {
                    "name": a.name,
                    "kind": a.kind,
                    "size": a.size,
                    "levels": [level.name for level in a.levels],
                }
                for a in self.config.domain
            ],
            "toml": write_domain(self.config.domain),
        }

    def forecast(self, request: PlanAsked, who: Analyst) -> dict[str, object]:
        """The plan, what it takes or what would fit; touches no data and costs nothing."""
        plan = self.planned_for(request, who)
        within = plan.in_ledger
        assert within is not None  # noqa: S101
        return {**plan_document(plan.forecast), "fits": within.fits, "ledger": within.as_json()}

    def read(self, body: bytes) -> ReleaseTask:
        """The release request that a body holds."""
        return self._task(ReleaseAsked.model_validate_json(body))

    def _task(self, request: ReleaseAsked) -> ReleaseTask:
        workload = self._workload(request)
        paid = self._paid_key(request, workload)
        view = {
            "about": self._about,
            "paid": paid,
            "groups": workload.digest(),
            "names": [[t.name, list(getattr(t, "labels", ()))] for t in workload.terms],
            "means": [r.key for r in workload.ratios],
            "project": request.project,
            "level": request.level,
            **({"shares": True} if request.shares else {}),
            **({"statements": shapes} if (shapes := [s.text for s in workload.statements]) else {}),
        }
        former = json_digest({"about": self._about, **_fields(request)})
        keys = (_former_paid(self._about, request), former)
        return ReleaseTask(request, workload, paid, json_digest(view), keys)

    def _workload(self, request: PlanAsked) -> Workload:
        """The queries of a request; texts are read once."""
        text = json.dumps(request.workload, sort_keys=True)
        workload = self._workloads.get(text)
        if workload is not None:
            return workload
        config = self.config
        workload = workload_of(request.workload, config.domain, self.limits, config.unit)
        return self._workloads.put(text, workload)

    def _paid_key(self, request: PlanAsked, workload: Workload) -> str:
        """Equal for requests that one measurement answers, however they are written."""
        budget = Budget(**request.budget.model_dump())
        config = self.config
        how = (config.neighbours, request.objective, request.mechanism, config.unit)
        return json_digest(request_of(workload, budget, *how))

    def begin(
        self, body: bytes, who: Analyst, name: str | None
    ) -> tuple[ReleaseTask, bytes | None]:
        """The release request that a body holds, and its stored body; off the event loop."""
        task = self._bodies.put(body.decode("latin-1"), self.read(body))
        return task, self.stored_body(task, who, name)

    def at_hand(self, body: bytes, who: Analyst) -> bytes | None:
        """The stored body of a request that came in the same bytes before, if it is in memory.

        What was refused within the last second is refused again. Reads no database.
        """
        task = self._bodies.get(body.decode("latin-1"))
        if task is None:
            return None
        self._check_refused(task.paid, who)
        return self.store.recent(self.name, task.key)

    def _check_refused(self, paid: str, who: Analyst) -> None:
        refused = self._refused.get((paid, who.name))
        if refused is not None and self._clock() < refused[0]:
            raise exhausted(*refused[1:])

    def stored_body(self, task: ReleaseTask, who: Analyst, name: str | None) -> bytes | None:
        """The stored body of this request, if there is one; reads the state, not the ledger.

        What was refused within the last second is refused again here.
        """
        if name is not None:
            self.check_name(who, name, task)
        self._check_refused(task.paid, who)
        return self.body(task)

    def body(self, task: ReleaseTask) -> bytes | None:
        """The bytes that were sent for a request, under the key that it has or once had."""
        body = self.store.body(self.name, task.key)
        return self.store.body(self.name, task.former[1]) if body is None else body

    def release(self, task: ReleaseTask, who: Analyst, progress: Progress | None = None) -> bytes:
        """Plan, debit, measure and keep the body; or the body that another caller just kept.

        Privacy: that of ``Plan.release``; the body depends on its result and on public numbers.
        """
        request, key, paid = task.request, task.key, task.paid
        with self._releasing:
            stored = self.body(task)
            if stored is not None:
                return stored
            self._check_affordable(task, who)
            plan = self._planned(request, task.workload, paid)
            if request.shares and not plan.total_is_public:
                raise not_valid([{"loc": ("body", "shares"), "msg": _PRIVATE_TOTAL}])
            if plan.stored_key(self.ledger, task.former) is None:
                plan = self._fitting(plan, request, task.workload, paid, who)
                self._check_left(paid, plan, who)
            before = self.ledger.version()
            stop_if_abandoned()  # the last time: what is debited below is also drawn and stored
            result = self._measured(plan, task, who.name, progress)
            self._results.put(key, result)
            stored_key = plan.stored_key(self.ledger, task.former)
            entry = None if stored_key is None else self.ledger.entry(stored_key)
            self._note_debits(before, [entry], who, "release")
            body = self._body(key, request, result, entry)
            forecast = result.forecast
            summary = {
                "queries": forecast.workload.queries,
                "mechanism": forecast.mechanism,
                "rmse": forecast.rmse,
            }
            record = {"analyst": who.name, "asked": _fields(request), "paid": stored_key}
            record |= {"summary": summary}
            bodies = [(self.name, key, body), (self.name, ASKED + key, canonical(record))]
            return self.store.keep(bodies)[0]

    def forecast_selection(self, request: SelectionAsked, who: Analyst) -> dict[str, object]:
        """What would hold of the chosen ones, and what it takes; costs nothing."""
        plan = self._selection(request).fitting(self.ledger, analyst=who.name)
        price = self.ledger.price(plan.cost, who.name, delta=plan.budget.delta)
        is_stored = plan.stored_key(self.ledger) is not None
        words = STORED if is_stored else price.describe()
        return {**plan.as_json(), "fits": is_stored or price.fits, "ledger": words}

    def select(
        self,
        request: SelectionAsked,
        who: Analyst,
        name: str | None,
        progress: Progress | None = None,
    ) -> bytes:
        """Plan, debit, choose and keep the body; or the body that was kept for an equal request.

        Privacy: that of ``SelectionPlan.release``; the body depends on its result and on public
        numbers.
        """
        plan = self._selection(request).fitting(self.ledger, analyst=who.name)
        paid = plan.digest()
        key = json_digest(
            {
                "about": self._about,
                "selection": paid,
                "groups": plan.workload.digest(),
                "names": [[t.name, list(t.row_labels)] for t in plan.workload.terms],
                "confidence": plan.confidence,
            }
        )

        def check() -> None:
            if plan.stored_key(self.ledger) is None:
                self._check_refused(paid, who)
                self._check_left(paid, plan, who)

        def shown(result: Selection) -> tuple[list[Entry | None], dict[str, object]]:
            entry = None if result.entry is None else result.entry.sequence
            document = {"key": key, "dataset": self.name, **plan.as_json(), "entry": entry}
            return [result.entry], {**document, "answers": frame_columns(result.frame())}

        return self.pay_once("select", key, who, name, check, plan.release, shown, progress)

    def pay_once(
        self,
        act: str,
        key: str,
        who: Analyst,
        name: str | None,
        check: Callable[[], None],
        release: Callable[..., T],
        shown: Callable[[T], tuple[Iterable[Entry | None], dict[str, object]]],
        progress: Progress | None,
    ) -> bytes:
        """Check, release and keep the body; or the one that was kept under this key.

        ``check`` refuses before the table is read, ``shown`` returns the debits and the body of
        what was released. ``name`` is the idempotency key of a request.
        """
        if name is not None and not self.store.bind([(who.name, name, f"{self.name} {key}")])[0]:
            raise key_reused()
        with self._releasing:
            stored = self.store.body(self.name, key)
            if stored is not None:
                return stored
            check()
            before = self.ledger.version()
            stop_if_abandoned()  # the last time: what is debited below is also drawn and stored
            result = release(
                self.config.source,
                self.ledger,
                name=self.config.table_id,
                analyst=who.name,
                progress=progress,
            )
            entries, document = shown(result)
            self._note_debits(before, entries, who, act)
            return self.store.keep([(self.name, key, canonical(document))])[0]

    def _selection(self, request: SelectionAsked) -> SelectionPlan:
        """The plan of a selection; sizes are checked before anything is built."""
        config, candidates = self.config, request.sql
        if (request.sql is None) == (request.workload is None):
            where = ("body", "workload" if request.workload is None else "sql")
            raise not_valid([{"loc": where, "msg": "give one of workload and sql"}])
        if request.sql is not None:
            check_workload(top_select(config.domain, request.sql).workload, self.limits)
        return plan_selection(
            workload_of(request.workload or [], config.domain, self.limits, config.unit)
            if candidates is None
            else candidates,
            Budget(**request.budget.model_dump()),
            config.neighbours,
            top=request.top,
            which=request.which,
            nearest=request.nearest,
            counts=request.counts,
            domain=None if candidates is None else config.domain,
            unit=config.unit,
            mechanism=request.mechanism,
            confidence=request.confidence,
        )

    def released(self, key: str) -> tuple[ReleaseAsked, Release] | None:
        """A release that was made before, from what the ledger keeps of it; spends nothing."""
        data = self.store.body(self.name, ASKED + key)
        if data is None:
            return None
        record = json.loads(data)
        request = ReleaseAsked.model_validate(record["asked"])
        if self.ledger.answer(record.get("paid") or _former_paid(self._about, request)) is None:
            return None
        with self._releasing:
            result = self._results.get(key)
            if result is None:
                task = self._task(request)
                plan = self._planned(request, task.workload, task.paid)
                result = self._measured(plan, task, None, None)
                self._results.put(key, result)
        return request, result

    def release_job(self, task: ReleaseTask, who: Analyst) -> Work:
        """What a job does that releases: the body, its key, and how good it is."""

        def work(progress: Progress) -> tuple[bytes, str | None, Mapping[str, object]]:
            body = self.release(task, who, progress)
            record = self.store.body(self.name, ASKED + task.key)
            return body, task.key, {} if record is None else json.loads(record).get("summary", {})

        return work

    def releases(self, who: Analyst) -> list[PastRelease]:
        """Releases that can be opened again, newest first; all of them for a curator."""
        releases = []
        names = dict(self.store.beginning(self.name, NAMED))
        for name, data in self.store.beginning(self.name, ASKED):
            record = json.loads(data)
            request = ReleaseAsked.model_validate(record["asked"])
            entry = self.ledger.entry(record.get("paid") or _former_paid(self._about, request))
            if entry is not None and (who.sees_all or record["analyst"] == who.name):
                key, summary = name.removeprefix(ASKED), record.get("summary", {})
                called = names.get(NAMED + key)
                title = None if called is None else called.decode()
                releases.append(PastRelease(key, entry, record["analyst"], request, summary, title))
        return sorted(releases, key=lambda each: -each.entry.sequence)

    def call_release(self, who: Analyst, key: str, name: str) -> None:
        """Give a release another name, or none; for who asked for it, and for curators.

        Raises:
            Problem: it is not theirs, or the name is too long or not printable.
        """
        most = LIMITS.name_characters
        if len(name) > most or not name.isprintable():
            message = f"a name has at most {most} printable characters, in one line"
            raise not_valid([{"loc": ("body", "name"), "msg": message}])
        if key not in {each.key for each in self.releases(who)}:
            raise Problem(403, "not-yours", "only who asked for a release, or a curator, names it")
        self.store.forget(self.name, NAMED + key)
        if name:
            self.store.keep([(self.name, NAMED + key, name.encode())])

    def _measured(
        self, plan: Plan, task: ReleaseTask, analyst: str | None, progress: Progress | None
    ) -> Release:
        """Debit and measure, or read what was measured for this request."""
        return plan.release(
            self.config.source,
            ledger=self.ledger,
            project=task.request.project,
            constraints=self.config.constraints,
            name=self.config.table_id,
            former=task.former,
            analyst=analyst,
            progress=progress,
        )

    def check_name(self, who: Analyst, name: str, task: ReleaseTask) -> None:
        """Refuse an idempotency key that was used for another request."""
        for key in (task.key, task.former[1]):
            if self.store.bind([(who.name, name, f"{self.name} {key}")])[0]:
                return
        raise key_reused()

    def ledger_document(self, who: Analyst, after: int) -> dict[str, object]:
        """What was spent: all of it for a curator, one's own for an analyst."""
        is_all = who.sees_all
        entries = [
            e
            for e in self.ledger.entries()
            if e.sequence > after and (is_all or e.analyst == who.name)
        ]
        page, rest = entries[: LIMITS.ledger_entries], entries[LIMITS.ledger_entries :]
        allowances = [a for a in self.ledger.allowances() if is_all or a.analyst == who.name]
        return {
            "dataset": self.name,
            "budget": budget_document(self.ledger.budget),
            "remaining": remaining_document(self.ledger.remaining(None if is_all else who.name)),
            "allowances": [
                {
                    "analyst": a.analyst,
                    "budget": budget_document(a.budget),
                    "remaining": remaining_document(a.remaining()),
                }
                for a in allowances
            ],
            "is_frozen": self.ledger.is_frozen(),
            "frozen": self.frozen() if is_all else None,
            "entries": [entry_document(e) for e in page],
            "next": page[-1].sequence if rest else None,
        }

    def frozen(self) -> str | None:
        """Who froze the ledger, when and why, in words; None if it is not frozen."""
        if not self.ledger.is_frozen():
            return None
        last = [c for c in self.ledger.changes() if isinstance(c.fact, Frozen)][-1:]
        return next((f"{c.time[:19].replace('T', ' ')} UTC, {c.describe()}" for c in last), "")

    def set_frozen(self, is_frozen: bool, reason: str) -> dict[str, bool]:
        """Stop new answers, or let them be asked again; to do it twice is no fault."""
        try:
            (self.ledger.freeze if is_frozen else self.ledger.unfreeze)(reason)
        except LedgerError:
            if self.ledger.is_frozen() != is_frozen:
                raise
        return {"is_frozen": is_frozen}

    def set_allowance(self, analyst: str, budget: Budget | None) -> None:
        """Give somebody an allowance, change it, or take it away; to do it twice is no fault."""
        if budget is not None and is_larger(budget, self.ledger.budget):
            message = larger_in_words(repr(analyst), budget, self.ledger.budget)
            raise not_valid([{"loc": ("body", "budget"), "msg": message}])
        if budget is not None:
            self.ledger.allow(analyst, budget)
        elif self.ledger.allowance(analyst) is not None:
            self.ledger.withdraw(analyst)
        self._refused.clear()

    def set_total(self, budget: Budget, reason: str, who: Analyst) -> dict[str, object]:
        """Set another total, with who did it and why; refused where what was spent forbids it."""
        total = budget.with_lanes_of(self.ledger.budget)
        try:
            self.ledger.set_total(total, reason, by=who.name)
        except LedgerError:
            self.ledger.check()  # a ledger that cannot be written is another refusal
            message = (
                f"a total of {total.describe()} cannot be set after what was spent: it does not "
                "hold it, or would be counted by another rule; choose a larger one of the same kind"
            )
            raise Problem(409, "total", message) from None
        self._refused.clear()
        return self.ledger_document(who, 2**62)

    def close(self) -> None:
        """Put the session to rest and close the ledger."""
        for threads in (self._reads, self._looks, self._brake, self._checks):
            threads.close()
        if self._batcher is not None:
            self._batcher.close()
        self.ledger.close()

    def planned(self, request: PlanAsked) -> Plan:
        """The plan of a request; the newest ones are remembered."""
        workload = self._workload(request)
        return self._planned(request, workload, self._paid_key(request, workload))

    def planned_for(self, request: PlanAsked, who: Analyst) -> Plan:
        """The plan of a request that fits what is left for somebody, if one does."""
        workload = self._workload(request)
        key = self._paid_key(request, workload)
        return self._fitting(self._planned(request, workload, key), request, workload, key, who)

    def _fitting(
        self, plan: Plan, request: PlanAsked, workload: Workload, key: str, who: Analyst
    ) -> Plan:
        def other_noise(noise: Noise) -> Plan:
            return self._planned(request, workload, key, noise)

        return fitting(
            plan, self.ledger, None if request.mechanism else other_noise, who.name, key=key
        )

    def _planned(
        self, request: PlanAsked, workload: Workload, key: str, noise: Noise | None = None
    ) -> Plan:
        """Planned once for all writings, and shown in the groups of this one."""
        name = key if noise is None else f"{key} {noise}"
        plan = self._plans.get(name)
        if plan is None:
            how = (self.config.neighbours, self.config.unit, self.limits, stop_if_abandoned)
            built = partial(self._built, f"{request.objective} {workload.normal.key}")
            drops = self._may_drop_records
            plan = plan_of(request, workload, *how, built, may_drop_records=drops, noise=noise)
            self._plans.put(name, plan)
        return plan.for_writing(workload)

    def _built(self, key: str, new: Strategies) -> Strategies:
        """The strategies of a workload: those that were built for it before, or new ones."""
        return self._strategies.get(key) or self._strategies.put(key, new)

    def planning_lane(self, request: PlanAsked) -> str:
        """Plans of one workload wait for each other: what the first builds serves all of them."""
        text = json.dumps([request.objective, request.workload], sort_keys=True)
        return f"plan {self.name} {text}"

    def _check_affordable(self, task: ReleaseTask, who: Analyst) -> None:
        """Refuse what cannot be had whatever the plan, before it is planned.

        The cost of a plan is its budget, as pure or as Gaussian noise, up to the rounding of noise
        scales (2^-16 of them). What may have been answered before is free, and is never refused
        here.
        """
        if self._may_be_stored(task):
            return
        if self.ledger.is_frozen():
            raise LedgerFrozen("the ledger is frozen by its curator")
        budget, least = Budget(**task.request.budget.model_dump()), 1 - Fraction(1, 2**12)
        kinds = _kinds(task.request.mechanism)
        left = self._left(who)
        if "laplace" in kinds and budget.pure_epsilon * least <= left.pure_epsilon:
            return
        mu = budget.gaussian_mu if "gaussian" in kinds else None
        if mu is None and "laplace" not in kinds:
            return  # no such noise at this budget, whatever is left: the planner says so
        if mu is not None and left.gaussian_mu is not None and mu * least <= left.gaussian_mu:
            return
        message = (
            f"budget refused: a release at {budget.describe()} costs more than is left, by "
            f"{' or '.join(sorted(kinds))} noise; {left.describe()}; lower the cost or ask the "
            "curator"
        )
        raise self._refusal(task.paid, who, message, left)

    def _left(self, who: Analyst) -> Remaining:
        """What remains for somebody, worked out once after each change of the ledger."""
        version = self.ledger.version()
        cached = self._remaining.get(who.name)
        if cached is None or cached[0] != version:
            cached = self._remaining[who.name] = (version, self.ledger.remaining(who.name))
        return cached[1]

    def _may_be_stored(self, task: ReleaseTask) -> bool:
        """Whether an entry of the ledger could be of this workload, under whatever key."""
        version = self.ledger.version()
        seen = self._seen
        if seen is None or seen[0] != version:
            texts = [f"{e.key} {e.request}" for e in self.ledger.entries()]
            seen = self._seen = (version, "\n".join(texts))
        keys = (task.paid, *task.former, task.workload.normal.key, task.workload.digest())
        return any(key in seen[1] for key in keys)

    @cached_property
    def _may_drop_records(self) -> bool:
        """Whether the source is a query or a view; looked up only where it makes a difference."""
        from sfumato.vault.tables import open_table

        config = self.config
        if not total_is_public(config.neighbours, config.domain, config.unit, False):
            return False
        return open_table(config.source).may_drop_records

    def _check_left(self, paid: str, plan: Promised, who: Analyst) -> None:
        self.check_fits(paid, plan.cost, plan.budget, who)

    def check_fits(self, paid: str, cost: Cost, budget: Budget, who: Analyst) -> None:
        """Refuse before the table is read; the debit itself checks again, in one transaction."""
        if self.ledger.is_frozen():
            raise LedgerFrozen("the ledger is frozen by its curator")
        price = self.ledger.price(cost, who.name, delta=budget.delta)
        if price.fits:
            return
        left = self.ledger.remaining(who.name)
        message = (
            f"budget refused: this release costs {cost_in_words(cost, budget)}, it "
            f"{price.describe()}; {left.describe()}; lower the cost or ask the curator"
        )
        raise self._refusal(paid, who, message, left)

    def _refusal(self, paid: str, who: Analyst, message: str, left: Remaining) -> Problem:
        """A refusal that stands for a moment without another look into the ledger."""
        if len(self._refused) >= LIMITS.refusals_cached:
            self._refused.clear()
        until = self._clock() + LIMITS.refusal_seconds
        self._refused[paid, who.name] = (until, message, left)
        return exhausted(message, left)

    def _body(self, key: str, request: ReleaseAsked, result: Release, entry: Entry | None) -> bytes:
        plan = result.forecast  # the one that was measured by, which may be one that still fitted
        return canonical(
            {
                "key": key,
                "dataset": self.name,
                "queries": plan.workload.queries,
                "mechanism": plan.mechanism,
                "rmse": plan.rmse,
                "budget": budget_document(plan.budget),
                "cost": plan.cost.as_json(),
                "neighbours": plan.neighbours,
                "level": request.level,
                "entry": None if entry is None else entry.sequence,
                "answers": columns_of(result, request.level, request.shares),
                **statements_document(result, request.level),
            }
        )


def _kinds(mechanism: str | None) -> set[str]:
    """The kinds of noise of the mechanisms of this name; all where none is named."""
    if mechanism == BIASED:
        return {"gaussian"}
    return {MECHANISMS[name].noise for name in named(mechanism)}


def _session(dataset: DatasetConfig, config: SessionConfig, ledger: Ledger) -> Session:
    """The session of a dataset by its configuration; it goes on where it was."""
    settings = config.settings
    plan = settings.plan(dataset.domain, config.budget, dataset.neighbours, dataset.unit)
    return plan.open(
        dataset.source,
        ledger,
        public=config.public,
        name=dataset.table_id,
        label=settings.label,
        releases=None if settings.releases else (),
    )


FILES: Final = {
    "answers.parquet": ("answers", "application/vnd.apache.parquet", "all answers"),
    "answers.csv": ("answers_csv", "text/csv", "all answers"),
    "synthetic.parquet": ("synthetic", "application/vnd.apache.parquet", "made-up records"),
    "report.html": ("report", "text/html", "to read and send around"),
    "provenance.json": ("provenance", "application/json", "how it was made"),
}
"""Name: the kind of a saved release, its media type, what it is for."""


def opened(dataset: GuardedDataset, key: str) -> tuple[ReleaseAsked, Release]:
    """The request and the release of a key; refused if there is none."""
    release = dataset.released(key)
    if release is None:
        raise Problem(404, "not-found", "no release has this key; the list of releases has yours")
    return release


def file_of(dataset: GuardedDataset, key: str, file: str) -> bytes:
    """One file of a release; all of it is public."""
    if file not in FILES:
        raise Problem(404, "not-found", f"there is no such file; there are {', '.join(FILES)}")
    held = dataset.store.recent(dataset.name, _place(key, file))
    if held is not None:
        return held
    return _written(dataset, key, has_records=FILES[file][0] == "synthetic")[file]


def _written(dataset: GuardedDataset, key: str, *, has_records: bool) -> dict[str, bytes]:
    """All files of a release, in a folder that is gone afterwards; made-up records where wanted."""
    request, result = opened(dataset, key)
    files = {}
    with TemporaryDirectory(prefix="sfumato-") as folder:
        shares = request.shares and bool(result.rows)
        paths = result.save(
            folder, level=request.level, shares=shares, csv=True, synthetic=has_records
        )
        for file, (kind, _, _) in FILES.items():
            if kind in paths:
                data = paths[kind].read_bytes()
                files[file] = dataset.store.remember(dataset.name, _place(key, file), data)
    return files


def _place(key: str, file: str) -> str:
    return f"file {key} {file}"
