# SPDX-License-Identifier: Apache-2.0
"""A table behind its ledger: what a caller may know of it, forecast, release and look up.

The same functions as the command line calls; here for many callers at once. Functions that can
take long run in a worker of the house, one release of a table at a time. The ledger and the session
have threads of their own: reading the ledger waits for no plan, freezing it for nothing at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

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
from sfumato.run.linear import fitting, request_of
from sfumato_web.server.batcher import Asking, no_session, without_words
from sfumato_web.server.config import Analyst, Config, DatasetConfig, SessionConfig, open_book
from sfumato_web.server.models import (
    PlanAsked,
    ReleaseAsked,
    canonical,
    columns_of,
    entry_document,
    remaining_document,
)
from sfumato_web.server.problems import Problem, exhausted, key_reused
from sfumato_web.server.responses import Newest
from sfumato_web.server.scheduler import Scheduler, check_wanted, plan_of, workload_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sfumato.ledger.account import Remaining
    from sfumato.release.release import Release
    from sfumato.run.linear import Plan
    from sfumato.run.spine import Progress
    from sfumato.session.session import Session
    from sfumato.types import Noise
    from sfumato.workload.workload import Workload
    from sfumato_web.server.metrics import Metrics
    from sfumato_web.server.responses import Shelf

__all__ = [
    "Guarded",
    "ReleaseWanted",
]


T = TypeVar("T")

KEPT_PLANS = 64
KEPT_STRATEGIES = 16  # workloads whose strategies are held for plans at other budgets
KEPT_BODIES = 256  # requests that are not read again if they come in the same bytes
KEPT_RESULTS = 4
ASKED = "asked "  # before the key of a request on the shelf, whose body has the key itself
KEPT_REFUSALS = 4_096
REFUSED_SECONDS = 1.0  # for which a refusal stands without another look into the ledger
PAGE = 1_000  # entries of a ledger in one response


@dataclass(frozen=True, eq=False, slots=True)
class ReleaseWanted:
    """A release request: what it asks, and its keys.

    Attributes:
        paid: of the measurement that it pays for: equal for every writing of the same request.
        key: of its body, which has the asker's own groups, projection and level.
        former: the keys that both had when they were those of one writing, ``paid`` first.
    """

    asked: ReleaseAsked
    workload: Workload
    paid: str
    key: str
    former: tuple[str, str]


def _former_paid(about: str, asked: PlanAsked) -> str:
    """The key of a measurement as it once was: that of the JSON as it came."""
    paid = asked.model_dump(exclude={"project", "level"})
    return json_digest({"about": about, **paid})


class Guarded:
    """One dataset of the server."""

    def __init__(
        self, dataset: DatasetConfig, config: Config, shelf: Shelf, metrics: Metrics
    ) -> None:
        self.name, self.dataset = dataset.name, dataset
        self.limits, self.shelf = config.limits, shelf
        self.book = open_book(dataset, config)
        unit = None if dataset.unit is None else [dataset.unit.column, dataset.unit.rows]
        told = [dataset.table_id, dataset.domain.digest(), dataset.neighbours, unit]
        self._about = json_digest({"table": told})
        self._bodies: Newest[ReleaseWanted] = Newest(KEPT_BODIES)
        self._workloads: Newest[Workload] = Newest(KEPT_PLANS)
        self._plans: Newest[Plan] = Newest(KEPT_PLANS)
        self._strategies: Newest[Strategies] = Newest(KEPT_STRATEGIES)
        self._seen: tuple[int, str] | None = None
        self._remaining: dict[str, tuple[int, Remaining]] = {}
        self._results: Newest[Release] = Newest(KEPT_RESULTS)
        # As words, not as exceptions: those would hold the plans that they were raised about.
        self._refused: dict[tuple[str, str], tuple[float, str, Remaining]] = {}
        self._clock = monotonic
        self._releasing = Lock()
        most = config.limits.concurrent
        self._reads = Scheduler(2, 1, most, f"ledger of {self.name}")
        self._looks = Scheduler(2, 1, most, f"session of {self.name}")
        self._brake = Scheduler(1, 1, most, f"brake of {self.name}")
        self._checks = Scheduler(2, 1, most, f"checks of {self.name}")
        self._asking: Asking | None = None
        if dataset.session is not None:
            session = _session(dataset, dataset.session, self.book)
            self._asking = Asking(self.name, session, self.book, self.limits, shelf, metrics)

    async def on_ledger(self, who: Analyst, function: Callable[..., T], *arguments: object) -> T:
        """Run what reads this ledger, which may be slow or hang, off the event loop."""
        return await self._reads.run(who.name, partial(function, *arguments))

    async def on_session(self, who: Analyst, function: Callable[..., T], *arguments: object) -> T:
        """Run what may have to wait for a session that is counting; nobody else waits for it."""
        return await self._looks.run(who.name, partial(function, *arguments))

    async def freeze(self, who: Analyst, is_frozen: bool, reason: str) -> dict[str, bool]:
        """Stop new answers or let them be asked again, at once, whatever else is waiting."""
        told = f"by {who.name}: {reason}"
        return await self._brake.run(who.name, partial(self.set_frozen, is_frozen, told))

    async def check_ledger(self) -> None:
        """Whether the ledger can be written; raises why, if not. Nothing is."""
        await self._checks.run("ledger", self.book.check)

    async def check_table(self) -> None:
        """Whether the table can be opened and has the columns of its schema; reads no row."""
        await self._checks.run("table", self._open)

    def _open(self) -> None:
        from sfumato.vault.encode import check_columns
        from sfumato.vault.tables import open_table

        check_columns(open_table(self.dataset.source), self.dataset.domain, self.dataset.unit)

    @property
    def lane(self) -> str:
        """Releases of this table run one at a time."""
        return f"release {self.name}"

    @property
    def asking(self) -> Asking:
        """The session of this dataset, for many callers; refused if it has none."""
        if self._asking is None:
            raise no_session()
        return self._asking

    def about(self) -> dict[str, object]:
        """What the list of datasets says of this one while its ledger cannot be read."""
        return {
            "name": self.name,
            "about": self.dataset.about,
            "attributes": len(self.dataset.domain),
            "cells": str(self.dataset.domain.size),
            "neighbours": self.dataset.neighbours,
            "is_frozen": None,
            "paid_answers": None,
            "remaining": None,
        }

    def spendable(self, who: Analyst) -> dict[str, object]:
        """What its ledger adds: whether it is frozen, and what one may still spend."""
        return {
            "is_frozen": self.book.is_frozen(),
            "remaining": remaining_document(self.book.remaining(who.name)),
        }

    def paid_answers(self, who: Analyst) -> int | None:
        """How many questions can still be paid for; waits while the session is counting."""
        return None if self._asking is None else self._asking.session.left(who.name).paid_answers

    def recent(self, key: str) -> bytes | None:
        """The bytes that were sent under a key, if they are at hand; takes no time."""
        held = self.shelf.recent(self.name, key)
        return None if held is None else without_words(held)

    def stored(self, key: str) -> bytes | None:
        """The bytes that were sent under a key: of a release or of a question."""
        known = self.shelf.body(self.name, key)
        if known is not None:
            return without_words(known)
        return None if self._asking is None else self._asking.stored(key)

    def schema(self) -> dict[str, object]:
        """The public domain."""
        unit = self.dataset.unit
        return {
            "name": self.name,
            "neighbours": self.dataset.neighbours,
            "unit": None if unit is None else {"column": unit.column, "rows": unit.rows},
            "attributes": [
                {
                    "name": a.name,
                    "kind": a.kind,
                    "size": a.size,
                    "levels": [level.name for level in a.levels],
                }
                for a in self.dataset.domain
            ],
            "toml": write_domain(self.dataset.domain),
        }

    def forecast(self, asked: PlanAsked, who: Analyst) -> dict[str, object]:
        """The plan, what it takes or what would fit; touches no data and costs nothing."""
        plan = self.planned_for(asked, who)
        within = plan.in_ledger
        assert within is not None  # noqa: S101
        return {**plan_document(plan.forecast), "fits": within.fits, "ledger": within.as_json()}

    def read(self, body: bytes) -> ReleaseWanted:
        """The release request that a body holds."""
        return self._wanted(ReleaseAsked.model_validate_json(body))

    def _wanted(self, asked: ReleaseAsked) -> ReleaseWanted:
        workload = self._workload(asked)
        paid = self._paid_key(asked, workload)
        view = {
            "about": self._about,
            "paid": paid,
            "groups": workload.digest(),
            "names": [[t.name, list(getattr(t, "labels", ()))] for t in workload.terms],
            "means": [[r.name, r.numerator, r.denominator] for r in workload.ratios],
            "project": asked.project,
            "level": asked.level,
        }
        former = json_digest({"about": self._about, **asked.model_dump()})
        keys = (_former_paid(self._about, asked), former)
        return ReleaseWanted(asked, workload, paid, json_digest(view), keys)

    def _workload(self, asked: PlanAsked) -> Workload:
        """The queries of a request; texts are read once."""
        text = json.dumps(asked.workload, sort_keys=True)
        known = self._workloads.get(text)
        if known is not None:
            return known
        found = workload_of(asked.workload, self.dataset.domain, self.limits)
        return self._workloads.put(text, found)

    def _paid_key(self, asked: PlanAsked, workload: Workload) -> str:
        """Equal for requests that one measurement answers, however they are written."""
        budget = Budget(**asked.budget.model_dump())
        whose = self.dataset
        how = (whose.neighbours, asked.objective, asked.mechanism, whose.unit)
        return json_digest(request_of(workload, budget, *how))

    def begin(
        self, body: bytes, who: Analyst, name: str | None
    ) -> tuple[ReleaseWanted, bytes | None]:
        """The release request that a body holds, and its stored body; off the event loop."""
        wanted = self._bodies.put(body.decode("latin-1"), self.read(body))
        return wanted, self.known(wanted, who, name)

    def at_hand(self, body: bytes, who: Analyst) -> bytes | None:
        """The stored body of a request that came in the same bytes before, if it is in memory.

        What was refused within the last second is refused again. Reads no database.
        """
        wanted = self._bodies.get(body.decode("latin-1"))
        if wanted is None:
            return None
        self._check_refused(wanted, who)
        return self.shelf.recent(self.name, wanted.key)

    def _check_refused(self, wanted: ReleaseWanted, who: Analyst) -> None:
        refused = self._refused.get((wanted.paid, who.name))
        if refused is not None and self._clock() < refused[0]:
            raise exhausted(*refused[1:])

    def known(self, wanted: ReleaseWanted, who: Analyst, name: str | None) -> bytes | None:
        """The stored body of this request, if there is one; reads the state, not the ledger.

        What was refused within the last second is refused again here.
        """
        if name is not None:
            self.check_name(who, name, wanted)
        self._check_refused(wanted, who)
        return self.body(wanted)

    def body(self, wanted: ReleaseWanted) -> bytes | None:
        """The bytes that were sent for a request, under the key that it has or once had."""
        kept = self.shelf.body(self.name, wanted.key)
        return self.shelf.body(self.name, wanted.former[1]) if kept is None else kept

    def release(
        self, wanted: ReleaseWanted, who: Analyst, progress: Progress | None = None
    ) -> bytes:
        """Plan, debit, measure and keep the body; or the body that another caller just kept.

        Privacy: that of ``Plan.release``; the body depends on its result and on public numbers.
        """
        asked, key, paid = wanted.asked, wanted.key, wanted.paid
        with self._releasing:
            kept = self.body(wanted)
            if kept is not None:
                return kept
            self._check_affordable(wanted, who)
            plan = self._planned(asked, wanted.workload, paid)
            if plan.stored_key(self.book, wanted.former) is None:
                plan = self._fitting(plan, asked, wanted.workload, paid, who)
                self._check_left(paid, plan, who)
            check_wanted()  # the last time: what is debited below is also drawn and stored
            result = self._measured(plan, wanted, who.name, progress)
            self._results.put(key, result)
            stored = plan.stored_key(self.book, wanted.former)
            entry = None if stored is None else self.book.entry(stored)
            body = self._body(key, asked, result, entry)
            about = {"analyst": who.name, "asked": asked.model_dump(), "paid": stored}
            request = canonical(about)
            kept_bodies = [(self.name, key, body), (self.name, ASKED + key, request)]
            return self.shelf.keep(kept_bodies)[0]

    def released(self, key: str) -> tuple[ReleaseAsked, Release] | None:
        """A release that was made before, from what the ledger keeps of it; spends nothing."""
        request = self.shelf.body(self.name, ASKED + key)
        if request is None:
            return None
        told = json.loads(request)
        asked = ReleaseAsked.model_validate(told["asked"])
        if self.book.answer(told.get("paid") or _former_paid(self._about, asked)) is None:
            return None
        with self._releasing:
            result = self._results.get(key)
            if result is None:
                wanted = self._wanted(asked)
                plan = self._planned(asked, wanted.workload, wanted.paid)
                result = self._measured(plan, wanted, None, None)
                self._results.put(key, result)
        return asked, result

    def releases(self, who: Analyst) -> list[tuple[str, Entry, ReleaseAsked]]:
        """Releases that can be opened again: key, debit, request; all of them for a curator."""
        found = []
        for name, request in self.shelf.beginning(self.name, ASKED):
            told = json.loads(request)
            asked = ReleaseAsked.model_validate(told["asked"])
            entry = self.book.entry(told.get("paid") or _former_paid(self._about, asked))
            if entry is not None and (who.is_curator or told["analyst"] == who.name):
                found.append((name.removeprefix(ASKED), entry, asked))
        return sorted(found, key=lambda each: -each[1].sequence)

    def _measured(
        self, plan: Plan, wanted: ReleaseWanted, analyst: str | None, progress: Progress | None
    ) -> Release:
        """Debit and measure, or read what was measured for this request."""
        return plan.release(
            self.dataset.source,
            ledger=self.book,
            project=wanted.asked.project,
            constraints=self.dataset.constraints,
            name=self.dataset.table_id,
            former=wanted.former,
            analyst=analyst,
            progress=progress,
        )

    def check_name(self, who: Analyst, name: str, wanted: ReleaseWanted) -> None:
        """Refuse an idempotency key that was used for another request."""
        for key in (wanted.key, wanted.former[1]):
            if self.shelf.bind([(who.name, name, f"{self.name} {key}")])[0]:
                return
        raise key_reused()

    def ledger(self, who: Analyst, after: int) -> dict[str, object]:
        """What was spent: all of it for a curator, one's own for an analyst."""
        is_all = who.is_curator
        entries = [
            e
            for e in self.book.entries()
            if e.sequence > after and (is_all or e.analyst == who.name)
        ]
        page, rest = entries[:PAGE], entries[PAGE:]
        allowances = [a for a in self.book.allowances() if is_all or a.analyst == who.name]
        return {
            "dataset": self.name,
            "budget": budget_document(self.book.budget),
            "remaining": remaining_document(self.book.remaining(None if is_all else who.name)),
            "allowances": [
                {
                    "analyst": a.analyst,
                    "budget": budget_document(a.budget),
                    "remaining": remaining_document(a.remaining()),
                }
                for a in allowances
            ],
            "is_frozen": self.book.is_frozen(),
            "frozen": self.frozen() if is_all else None,
            "entries": [entry_document(e) for e in page],
            "next": page[-1].sequence if rest else None,
        }

    def frozen(self) -> str | None:
        """Who froze the ledger, when and why, in words; None if it is not frozen."""
        if not self.book.is_frozen():
            return None
        last = [c for c in self.book.changes() if isinstance(c.fact, Frozen)][-1:]
        return next((f"{c.time[:19].replace('T', ' ')} UTC, {c.describe()}" for c in last), "")

    def set_frozen(self, is_frozen: bool, reason: str) -> dict[str, bool]:
        """Stop new answers, or let them be asked again; to do it twice is no fault."""
        try:
            (self.book.freeze if is_frozen else self.book.unfreeze)(reason)
        except LedgerError:
            if self.book.is_frozen() != is_frozen:
                raise
        return {"is_frozen": is_frozen}

    def close(self) -> None:
        """Put the session to rest and close the ledger."""
        for threads in (self._reads, self._looks, self._brake, self._checks):
            threads.close()
        if self._asking is not None:
            self._asking.close()
        self.book.close()

    def planned(self, asked: PlanAsked) -> Plan:
        """The plan of a request; the newest ones are remembered."""
        workload = self._workload(asked)
        return self._planned(asked, workload, self._paid_key(asked, workload))

    def planned_for(self, asked: PlanAsked, who: Analyst) -> Plan:
        """The plan of a request that fits what is left for somebody, if one does."""
        workload = self._workload(asked)
        key = self._paid_key(asked, workload)
        return self._fitting(self._planned(asked, workload, key), asked, workload, key, who)

    def _fitting(
        self, plan: Plan, asked: PlanAsked, workload: Workload, key: str, who: Analyst
    ) -> Plan:
        def other_noise(noise: Noise) -> Plan:
            return self._planned(asked, workload, key, noise)

        return fitting(plan, self.book, None if asked.mechanism else other_noise, who.name, key=key)

    def _planned(
        self, asked: PlanAsked, workload: Workload, key: str, noise: Noise | None = None
    ) -> Plan:
        """Planned once for all writings, and shown in the groups of this one."""
        name = key if noise is None else f"{key} {noise}"
        known = self._plans.get(name)
        if known is None:
            whose = self.dataset
            how = (whose.neighbours, whose.unit, self.limits, check_wanted)
            built = partial(self._built, f"{asked.objective} {workload.normal.key}")
            drops = self._may_drop_records
            found = plan_of(asked, workload, *how, built, may_drop_records=drops, noise=noise)
            known = self._plans.put(name, found)
        return known.for_writing(workload)

    def _built(self, key: str, new: Strategies) -> Strategies:
        """The strategies of a workload: those that were built for it before, or new ones."""
        return self._strategies.get(key) or self._strategies.put(key, new)

    def planning_lane(self, asked: PlanAsked) -> str:
        """Plans of one workload wait for each other: what the first builds serves all of them."""
        text = json.dumps([asked.objective, asked.workload], sort_keys=True)
        return f"plan {self.name} {text}"

    def _check_affordable(self, wanted: ReleaseWanted, who: Analyst) -> None:
        """Refuse what cannot be had whatever the plan, before it is planned.

        The cost of a plan is its budget, as pure or as Gaussian noise, up to the rounding of noise
        scales (2^-16 of them). What may have been answered before is free, and is never refused
        here.
        """
        if self._may_be_stored(wanted):
            return
        if self.book.is_frozen():
            raise LedgerFrozen("the ledger is frozen by its curator")
        budget, least = Budget(**wanted.asked.budget.model_dump()), 1 - Fraction(1, 2**12)
        kinds = _kinds(wanted.asked.mechanism)
        left = self._left(who)
        if "laplace" in kinds and budget.pure_epsilon * least <= left.pure_epsilon:
            return
        mu = budget.gaussian_mu if "gaussian" in kinds else None
        if mu is None and "laplace" not in kinds:
            return  # no such noise at this budget, whatever is left: the planner says so
        if mu is not None and left.gaussian_mu is not None and mu * least <= left.gaussian_mu:
            return
        words = (
            f"budget refused: a release at {budget.describe()} costs more than is left, by "
            f"{' or '.join(sorted(kinds))} noise; {left.describe()}; lower the cost or ask the "
            "curator"
        )
        raise self._refusal(wanted.paid, who, words, left)

    def _left(self, who: Analyst) -> Remaining:
        """What remains for somebody, worked out once after each change of the ledger."""
        version = self.book.version()
        known = self._remaining.get(who.name)
        if known is None or known[0] != version:
            known = self._remaining[who.name] = (version, self.book.remaining(who.name))
        return known[1]

    def _may_be_stored(self, wanted: ReleaseWanted) -> bool:
        """Whether an entry of the ledger could be of this workload, under whatever key."""
        version = self.book.version()
        seen = self._seen
        if seen is None or seen[0] != version:
            texts = [f"{e.key} {e.request}" for e in self.book.entries()]
            seen = self._seen = (version, "\n".join(texts))
        keys = (wanted.paid, *wanted.former, wanted.workload.normal.key, wanted.workload.digest())
        return any(key in seen[1] for key in keys)

    @cached_property
    def _may_drop_records(self) -> bool:
        """Whether the source is a query or a view; looked up only where it makes a difference."""
        from sfumato.vault.tables import open_table

        whose = self.dataset
        if not total_is_public(whose.neighbours, whose.domain, whose.unit, False):
            return False
        return open_table(whose.source).may_drop_records

    def _check_left(self, paid: str, plan: Plan, who: Analyst) -> None:
        """Refuse before the table is read; the debit itself checks again, in one transaction."""
        if self.book.is_frozen():
            raise LedgerFrozen("the ledger is frozen by its curator")
        price = self.book.price(plan.cost, who.name, delta=plan.budget.delta)
        if price.fits:
            return
        left = self.book.remaining(who.name)
        words = (
            f"budget refused: this release costs {cost_in_words(plan.cost, plan.budget)}, it "
            f"{price.describe()}; {left.describe()}; lower the cost or ask the curator"
        )
        raise self._refusal(paid, who, words, left)

    def _refusal(self, paid: str, who: Analyst, words: str, left: Remaining) -> Problem:
        """A refusal that stands for a moment without another look into the ledger."""
        if len(self._refused) >= KEPT_REFUSALS:
            self._refused.clear()
        self._refused[paid, who.name] = (self._clock() + REFUSED_SECONDS, words, left)
        return exhausted(words, left)

    def _body(self, key: str, asked: ReleaseAsked, result: Release, entry: Entry | None) -> bytes:
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
                "level": asked.level,
                "entry": None if entry is None else entry.sequence,
                "answers": columns_of(result, asked.level),
            }
        )


def _kinds(mechanism: str | None) -> set[str]:
    """The kinds of noise of the mechanisms of this name; all where none is named."""
    if mechanism == BIASED:
        return {"gaussian"}
    return {MECHANISMS[name].noise for name in named(mechanism)}


def _session(dataset: DatasetConfig, wanted: SessionConfig, book: Ledger) -> Session:
    """The session of a dataset, as its configuration wants it; it goes on where it was."""
    whose = (dataset.domain, wanted.budget, dataset.neighbours, dataset.unit)
    plan = wanted.asked.plan(*whose)
    return plan.open(
        dataset.source,
        book,
        public=wanted.public,
        name=dataset.table_id,
        label=wanted.asked.label,
    )
