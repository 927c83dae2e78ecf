# SPDX-License-Identifier: Apache-2.0
"""The application: the routes inside the middleware, its OpenAPI document, and how it is run.

The body of every route is a call of a function that Python has, too:

GET  /api                              these routes, as a page to read
GET  /health                           is it there
GET  /ready                            can it open what it needs
GET  /datasets                         what is open to me, and what may I still spend
GET  /datasets/NAME/schema             what its records may look like
POST /datasets/NAME/plan               forecast, free
POST /datasets/NAME/release            plan, debit, measure, answer
GET  /datasets/NAME/releases           what was released before
GET  /datasets/NAME/releases/KEY/files/FILE   a file of it
POST /datasets/NAME/select/plan        how good the chosen ones would be, free
POST /datasets/NAME/select             plan, debit, choose the best few candidates
POST /datasets/NAME/describe/plan      what a description would say and cost, free
POST /datasets/NAME/describe           debit, find values and ranges, summarise columns
POST /datasets/NAME/discover/plan      what could be found, and its cost, free
POST /datasets/NAME/discover           debit, find values and ranges
GET  /datasets/NAME/answers/KEY        a stored answer, the same bytes for ever
GET  /datasets/NAME/ledger             what was spent
POST /datasets/NAME/freeze, unfreeze   curators only
GET  /datasets/NAME/audit              every record of the ledger, auditors and curators
GET  /people                           who may do what, curators and auditors
POST /people, /people/NAME, /people/NAME/remove   let in, change, remove: curators
POST /people/NAME/tokens, /tokens/ID/revoke       new tokens, old ones ended
POST /datasets/NAME/allowances/PERSON, /total     what may be spent: curators
GET  /series                           tables that are new every month, and what they promise
POST /series/NAME/periods              begin the next one: curators
GET  /changes                          the record of these changes
GET  /jobs                             what was sent with Prefer: respond-async
GET  /jobs/JOB, /jobs/JOB/result       how far it is; its answer
DELETE /jobs/JOB                       cancel it, before it pays
GET  /metrics                          Prometheus, curators and scrapers

`ServerState` is everything that a running server holds: its datasets, who may see them, and its
workers. Routes and pages find a dataset in it by who asks, and run what takes time through it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from math import floor
from time import time
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeVar

from fastapi import APIRouter, Body, Depends, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from sfumato.cli.spec import json_schema
from sfumato.errors import SfumatoError, place_of
from sfumato.ledger.reader import export_lines
from sfumato.privacy.budget import Budget
from sfumato.version import VERSION
from sfumato_web.server.api_page import API_POLICY, TAGS, api_page, tag_of
from sfumato_web.server.config import Analyst, Config, DatasetConfig, Tokens
from sfumato_web.server.dataset import FILES, GuardedDataset, file_of
from sfumato_web.server.formats import ARROW, JSON, PARQUET, accepted_format, reply
from sfumato_web.server.jobs import Facts, Job, Jobs, Kind, Work
from sfumato_web.server.middleware import (
    ANALYST,
    METRICS,
    ON_GRID,
    OPEN_PATHS,
    SERVER,
    Handler,
    RequestMiddleware,
)
from sfumato_web.server.models import (
    AllowanceAsked,
    Answer,
    AskAsked,
    DatasetShown,
    Described,
    DescriptionAsked,
    DescriptionShown,
    Discovered,
    DiscoveryAsked,
    DiscoveryShown,
    Estimated,
    FreezeAsked,
    JobShown,
    LedgerShown,
    PastReleaseShown,
    PeriodAsked,
    PersonAsked,
    PersonChangeAsked,
    PersonShown,
    PlanAsked,
    PlanShown,
    Readiness,
    ReleaseAsked,
    Released,
    SchemaShown,
    Selected,
    SelectionAsked,
    SelectionShown,
    SeriesShown,
    TokenAsked,
    TotalAsked,
    Trouble,
    canonical,
)
from sfumato_web.server.people import People
from sfumato_web.server.problems import (
    Problem,
    disconnected,
    no_dataset,
    not_curator,
    not_in_role,
    not_valid,
    problem_of,
)
from sfumato_web.server.request_log import NOTE, EventFormatter, RequestLog
from sfumato_web.server.responses import Grid, Left, Metrics, ResponseStore, Sample, process_gauges
from sfumato_web.server.scheduler import Scheduler
from sfumato_web.server.series import Series
from sfumato_web.server.server_limits import LIMITS, Rates

if TYPE_CHECKING:
    from sfumato.types import Progress

__all__ = ["BUSY", "ServerState", "make_app", "routes", "run", "settings"]

T = TypeVar("T")

LOG: Final = logging.getLogger("sfumato.server")


class ServerState:
    """The server without its routes; ``grid`` and ``rates`` are passed in by tests.

    Nothing that can wait runs on the event loop. ``work`` is for what takes long, ``read`` for what
    is short and needs no ledger; each ``GuardedDataset`` has threads of its own for its ledger and
    its session, so that no dataset waits for the database of another, and no freeze for a plan.
    """

    def __init__(
        self,
        config: Config,
        grid: Grid | None = None,
        rates: Rates | None = None,
        log: RequestLog | None = None,
    ) -> None:
        limits = config.limits
        self.log = log or RequestLog(None)
        self.inside: Counter[str] = Counter()
        self._began = time()
        self.config = config
        self.grid = grid or Grid(config.grid)
        self.rates = rates or Rates(limits.requests_per_second, limits.burst)
        self.metrics = Metrics()
        self.store = ResponseStore(config.state, limits.kept_bytes)
        try:
            self.people = People(config.analysts, config.rights, self.store)
        except BaseException:
            self.store.close()
            raise
        self.tokens = Tokens(self.people.holder)
        self._workers = Scheduler(limits.workers, limits.workers_per_analyst, limits.waiting)
        self._readers = Scheduler(LIMITS.reader_threads, 1, limits.concurrent, "sfumato reader")
        self.datasets: dict[str, GuardedDataset] = {}
        self.series: dict[str, Series] = {}
        try:
            self.jobs = Jobs(self.store, self._workers)
            for dataset in config.datasets.values():
                self._serve(dataset)
            for name, make in config.series.items():
                first = next(d for d in config.datasets.values() if d.series == name)
                self.series[name] = Series(name, self.datasets[first.name], make, self._serve)
        except BaseException:  # those that were opened must not hold sessions and tables
            self.close()
            raise
        self._looking: asyncio.Future[dict[str, str]] | None = None

    def _serve(self, dataset: DatasetConfig) -> GuardedDataset:
        """Open a dataset for callers."""
        made = GuardedDataset(dataset, self.config, self.store, self.metrics, self.log)
        self.datasets = {**self.datasets, dataset.name: made}  # whoever walks over them goes on
        return made

    def dataset(self, who: Analyst, name: str) -> GuardedDataset:
        """A dataset that is theirs; any other name is refused in the same words."""
        if name not in who.datasets or name not in self.datasets:
            raise no_dataset()
        return self.datasets[name]

    def series_of(self, who: Analyst, name: str) -> Series:
        """A series that is theirs; any other name is refused in the words of a dataset."""
        if name not in who.datasets or name not in self.series:
            raise no_dataset()
        return self.series[name]

    async def begin_period(
        self, who: Analyst, series: Series, period: str, reason: str
    ) -> dict[str, object]:
        """Begin a period, off the event loop, and log that it was done."""

        def begin() -> dict[str, object]:
            others = [dataset.config for dataset in self.datasets.values()]
            series.begin(who, period, reason, others)
            return series.shown(who)

        shown = await self.work(who, begin, lane=f"series {series.name}")
        self.log.add("period", analyst=who.name, dataset=f"{series.name}@{period}")
        return shown

    async def work(
        self, who: Analyst, function: Callable[..., T], *arguments: object, lane: str | None = None
    ) -> T:
        """Run what can take long in a worker thread, in turn with those of other analysts."""
        return await self._workers.run(who.name, partial(function, *arguments), lane)

    async def read(self, who: Analyst, function: Callable[..., T], *arguments: object) -> T:
        """Run what is short and reads no ledger off the event loop: SQL, keys, stored answers."""
        return await self._readers.run(who.name, partial(function, *arguments))

    async def begin(
        self,
        kind: Kind,
        who: Analyst,
        dataset: GuardedDataset,
        about: Facts,
        work: Work,
        *,
        key: str | None = None,
        lane: str | None = None,
    ) -> Job:
        """Put a job in line, which goes on when nobody waits for it."""
        submit = partial(self.jobs.submit, key=key, lane=lane)
        return await self.read(who, submit, kind, who, dataset.name, about, work)

    async def administer(
        self, who: Analyst, act: str, person: str, function: Callable[..., T], *arguments: object
    ) -> T:
        """Change people, off the event loop, and log that it was done."""
        result = await self.read(who, function, who, *arguments)
        self.log.add("people", act=act, analyst=who.name, person=person)
        return result

    async def left(self, dataset: GuardedDataset, who: Analyst) -> Left:
        """What is left of a dataset, for the metrics; nothing where its ledger cannot be read."""

        def look() -> Left:
            allowances = {
                a.analyst: max(0.0, 1 - float(a.share)) for a in dataset.ledger.allowances()
            }
            return Left(float(dataset.ledger.remaining().share), allowances)

        what = f"the ledger of {dataset.name}"
        return await _or_none(what, dataset.on_ledger(who, look)) or Left(None)

    def gauges(self) -> dict[str, tuple[str, str, Iterable[Sample]]]:
        """What the server does now, and what its process takes."""
        pools = {"work": self._workers, "read": self._readers}
        return {
            "sfumato_info": ("gauge", "the version that runs", [({"version": VERSION}, 1)]),
            "sfumato_start_time_seconds": ("gauge", "when it started", [({}, floor(self._began))]),
            "sfumato_requests_in_flight": (
                "gauge",
                "requests that are being answered",
                [({}, self.inside.total())],
            ),
            "sfumato_queue_waiting": (
                "gauge",
                "plans and releases, and short looks, in line",
                [({"pool": name}, pool.waiting) for name, pool in pools.items()],
            ),
            "sfumato_queue_at_work": (
                "gauge",
                "plans and releases, and short looks, at work",
                [({"pool": name}, pool.at_work) for name, pool in pools.items()],
            ),
            **process_gauges(),
        }

    async def shown(self, dataset: GuardedDataset, who: Analyst) -> dict[str, object]:
        """What the list of datasets says of one, without what cannot be read now."""
        ledger, paid = await asyncio.gather(
            _or_none(
                f"the ledger of {dataset.name}", dataset.on_ledger(who, dataset.spendable, who)
            ),
            _or_none(
                f"the session of {dataset.name}", dataset.on_session(who, dataset.paid_answers, who)
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
        self.log.close()


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


routes = APIRouter()


# Dependencies are coroutines because FastAPI would run plain functions in a thread each.


async def _server(request: Request) -> ServerState:
    server: ServerState = request.scope[SERVER]
    return server


async def _who(request: Request) -> Analyst:
    who: Analyst = request.scope[ANALYST]
    return who


async def _curator(request: Request) -> Analyst:
    who = await _who(request)
    if not who.is_curator:
        raise not_curator()
    return who


async def _dataset(
    request: Request, name: Annotated[str, Path(max_length=64, examples=["adult"])]
) -> GuardedDataset:
    server, who = await _server(request), await _who(request)
    return server.dataset(who, name)


async def _on_grid(request: Request) -> None:
    """For what waits for a worker or a session: they may be busy with an answer from the data."""
    request.scope[ON_GRID] = True


Server = Annotated[ServerState, Depends(_server)]
Who = Annotated[Analyst, Depends(_who)]
Curator = Annotated[Analyst, Depends(_curator)]
Dataset = Annotated[GuardedDataset, Depends(_dataset)]
JobName = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
WAITS: Final = [Depends(_on_grid)]

# The busiest routes read their parameters by hand, which takes half the time; what FastAPI then
# does not see is said here for the OpenAPI document.
_NAME: Final = {
    "name": "name",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "maxLength": 64, "examples": ["adult"]},
}
_ANSWER_KEYS: Final = re.compile("[0-9a-f]{64}")
_ANSWER_KEY: Final = {
    "name": "key",
    "in": "path",
    "required": True,
    "description": "`key` of an answer",
    "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
}
_KEYS: Final = re.compile(r"[\x21-\x7e]{1,100}")
_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "the same key and request: the same bytes; another request: 409",
    "schema": {"type": "string", "pattern": r"^[\x21-\x7e]{1,100}$"},
}

_PREFER: Final = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`respond-async`: 202 and a job at once, which goes on when nobody waits",
    "schema": {"type": "string"},
}

Asked = TypeVar("Asked")


def _documented(
    model: str, parameters: Sequence[object] = (_NAME, _KEY, _PREFER)
) -> dict[str, Any]:
    body = {"application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}}}
    return {"parameters": list(parameters), "requestBody": {"required": True, "content": body}}


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    return name


def _key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and _KEYS.fullmatch(key) is None:
        where = ("header", "Idempotency-Key")
        raise not_valid([{"loc": where, "msg": "1 to 100 printable ASCII characters, no blanks"}])
    return key


async def _body(request: Request, read: Callable[[bytes], Asked]) -> Asked:
    body = await request.body()

    async def read_it() -> Asked:
        return read(body)

    return await _valid(read_it())


async def _valid(read: Awaitable[T]) -> T:
    """What was read from a body, or what is wrong with it."""
    try:
        return await read
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
    raise not_valid([{**f, "loc": ("body", *f["loc"])} for f in faults])


async def _while_there(request: Request, work: Awaitable[T]) -> T:
    """The result of what takes long; it is given up when the caller closes the connection."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(request.receive())
    try:
        while not working.done():
            await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and not working.done():
                if gone.result()["type"] == "http.disconnect":
                    raise disconnected()
                gone = asyncio.ensure_future(request.receive())
        return working.result()
    finally:
        for task in (working, gone):
            task.cancel()


def _is_async(request: Request) -> bool:
    """Whether a caller asks for a job (RFC 7240)."""
    wishes = request.headers.get("prefer", "").lower().split(",")
    return any(wish.partition(";")[0].strip() == "respond-async" for wish in wishes)


async def _accepted(
    request: Request, kind: Kind, body: _Budgeted, work: Work, *, lane: str | None = None
) -> Response:
    """A job in place of an answer: 202, and where it is."""
    dataset = await _dataset(request, _name(request))
    server, who = await _server(request), await _who(request)
    about = body.model_dump(exclude_none=True, exclude_defaults=True)
    return _job_reply(await server.begin(kind, who, dataset, about, work, lane=lane))


async def _paid_once(
    request: Request, kind: Kind, make: Callable[..., bytes], body: _Budgeted
) -> Response:
    """The body that is made and kept for a request, or a job that makes it."""
    key, server, who = _key(request), await _server(request), await _who(request)
    accepted = _kind(request)
    lane = server.dataset(who, _name(request)).lane
    if _is_async(request):
        return await _accepted(request, kind, body, _paying(make, body, who, key), lane=lane)
    made = await _while_there(request, server.work(who, make, body, who, key, lane=lane))
    return _stored(made, request, accepted)


def _job_reply(job: Job) -> Response:
    headers = {"Location": f"/jobs/{job.id}", "Preference-Applied": "respond-async"}
    return Response(canonical(job.shown()), 202, headers, "application/json")


class _Budgeted(Protocol):
    """The body of a request that can be a job."""

    def model_dump(self, *, exclude_none: bool, exclude_defaults: bool) -> dict[str, Any]:
        """The request as JSON."""
        ...


def _plain(make: Callable[[], bytes]) -> Work:
    """The work of a job whose body has no key: it is kept for the job."""

    def work(_: Progress) -> tuple[bytes, str | None, Facts]:
        return make(), None, {}

    return work


def _paying(make: Callable[..., bytes], body: object, who: Analyst, name: str | None) -> Work:
    """The work of a job that pays, and tells its steps."""

    def work(progress: Progress) -> tuple[bytes, str | None, Facts]:
        made = make(body, who, name, progress)
        return made, str(json.loads(made)["key"]), {}

    return work


def _answers(model: Any, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documented responses of a route: its model, and refusals."""
    about = {
        403: "only a curator may do this",
        404: "no such dataset, or not yours",
        409: "the budget is exhausted, or the Idempotency-Key was used for another request",
        423: "the dataset is frozen",
        503: "the table or its ledger cannot be used now",
    }
    always = {
        401: "no known token",
        408: "the body came too slowly",
        413: "too large: body, nesting or number of queries",
        422: "not a valid request; the message names the construct",
        429: "too many requests",
    }
    all_refusals = {**{s: about[s] for s in statuses}, **always}
    refusals: dict[int | str, dict[str, Any]] = {
        s: {"model": Trouble, "description": text} for s, text in sorted(all_refusals.items())
    }
    return {200: {"model": model}, **refusals}


def _in_formats(model: Any, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documented responses of a route whose answers can be had as tables, too."""
    documented = _answers(model, *statuses)
    tables: dict[str, Any] = {kind: {} for kind in (ARROW, PARQUET)}
    documented[200]["content"] = tables
    about = "neither JSON, an Arrow stream nor Parquet is accepted"
    return {**documented, 406: {"model": Trouble, "description": about}}


_JOB: Final[dict[int | str, dict[str, Any]]] = {
    202: {"model": JobShown, "description": "a job, where `respond-async` is preferred"}
}


def _json(document: object) -> Response:
    return Response(canonical(document), media_type="application/json")


def _stored(
    body: bytes, request: Request | None = None, kind: str = JSON, *, is_kept: bool = False
) -> Response:
    """A stored body, in the format that was accepted before anything was spent."""
    if request is None:
        return Response(body, media_type=JSON)
    return reply(body, request.headers, kind, is_kept=is_kept)


def _kind(request: Request) -> str:
    return accepted_format(request.headers.get("accept"))


@routes.post(
    "/datasets/{name}/ask",
    responses=_in_formats(Answer, 404, 409, 423, 503),
    openapi_extra=_documented("AskAsked", [_NAME, _KEY]),
)
async def ask(request: Request) -> Response:
    """Answer a question: stored, free if the session's estimate is right, else paid for."""
    dataset, who, key = await _dataset(request, _name(request)), await _who(request), _key(request)
    kind = _kind(request)
    question = await _body(request, AskAsked.model_validate_json)
    request.scope[ON_GRID] = True
    answered = dataset.batcher.ask(question.sql, who, key, question.error)
    return _stored(await _while_there(request, answered), request, kind)


@routes.get(
    "/datasets/{name}/answers/{key}",
    responses=_in_formats(dict[str, Any], 404),
    openapi_extra={"parameters": [_NAME, _ANSWER_KEY]},
)
async def answers(request: Request) -> Response:
    """A stored answer by its key."""
    dataset = await _dataset(request, _name(request))
    key, kind = request.path_params["key"], _kind(request)
    if _ANSWER_KEYS.fullmatch(key) is None:
        raise not_valid([{"loc": ("path", "key"), "msg": "64 hexadecimal digits are needed"}])
    body = dataset.recent(key)
    if body is None:
        await _on_grid(request)
        who = await _who(request)
        body = await _while_there(request, dataset.on_session(who, dataset.stored, key))
    if body is None:
        raise Problem(404, "not-found", "no answer has this key; it is in the answer's `key`")
    return _stored(body, request, kind, is_kept=True)


@routes.post(
    "/datasets/{name}/release",
    responses=_in_formats(Released, 404, 409, 423, 503) | _JOB,
    openapi_extra=_documented("ReleaseAsked"),
)
async def release(request: Request) -> Response:
    """Debit the cost, measure, and answer; an equal request gets the same bytes, free."""
    dataset, who, key = await _dataset(request, _name(request)), await _who(request), _key(request)
    body, server, kind = await request.body(), await _server(request), _kind(request)
    request.scope[ON_GRID] = True
    is_at_once = key is None and not _is_async(request)
    stored = dataset.at_hand(body, who) if is_at_once else None
    if stored is not None:
        return _stored(stored, request, kind)
    task, stored = await _valid(server.read(who, dataset.begin, body, who, key))
    if _is_async(request):
        about = task.request.model_dump(exclude_none=True, exclude_defaults=True)
        work, how = dataset.release_job(task, who), {"key": task.key, "lane": dataset.lane}
        return _job_reply(await server.begin("release", who, dataset, about, work, **how))
    if stored is None:
        released = server.work(who, dataset.release, task, who, lane=dataset.lane)
        stored = await _while_there(request, released)
    return _stored(stored, request, kind)


@routes.get(
    "/datasets/{name}/releases",
    dependencies=WAITS,
    responses=_answers(list[PastReleaseShown], 404, 503),
)
async def releases(request: Request, dataset: Dataset, who: Who) -> Response:
    """What was released before, newest first: all of it for a curator, one's own for an analyst."""

    def listed() -> list[dict[str, object]]:
        return [each.as_json() for each in dataset.releases(who)]

    return _json(await _while_there(request, dataset.on_ledger(who, listed)))


@routes.get(
    "/datasets/{name}/releases/{key}/files/{file}",
    dependencies=WAITS,
    response_class=Response,
    responses=_answers(None, 404, 503),
)
async def release_file(
    request: Request,
    dataset: Dataset,
    who: Who,
    server: Server,
    key: Annotated[str, Path(pattern="^[0-9a-f]{64}$")],
    file: Annotated[str, Path(max_length=64, examples=["answers.parquet"])],
) -> Response:
    """A file of a release: answers, made-up records, report or provenance; spends nothing."""
    body = await _while_there(request, server.work(who, file_of, dataset, key, file))
    headers = {"Content-Disposition": f'attachment; filename="{file}"'}
    return Response(body, headers=headers, media_type=FILES[file][1])


@routes.head("/api", include_in_schema=False)
@routes.get("/api", include_in_schema=False)
async def api(request: Request) -> Response:
    """The OpenAPI document as a page to read."""
    headers = {"content-security-policy": API_POLICY}
    return Response(api_page(request.app.openapi()), headers=headers, media_type="text/html")


@routes.head("/health", include_in_schema=False)
@routes.get("/health", responses={200: {"model": dict[str, str]}})
async def health() -> Response:
    """Whether the server is there; says nothing of the data."""
    return _json({"status": "ok", "version": VERSION})


@routes.head("/ready", include_in_schema=False)
@routes.get(
    "/ready",
    responses={
        200: {"model": Readiness},
        503: {"model": Readiness, "description": "a part cannot be used; the log has the reason"},
    },
)
async def ready(server: Server) -> Response:
    """Whether state, ledgers and tables can be opened; which of these kinds cannot, if any."""
    parts = await server.ready()
    is_ready = all(part == "ok" for part in parts.values())
    status = "ready" if is_ready else "not ready"
    body = canonical({"status": status, "parts": parts})
    return Response(body, 200 if is_ready else 503, media_type="application/json")


@routes.get("/datasets", dependencies=WAITS, responses=_answers(list[DatasetShown], 503))
async def datasets(request: Request, who: Who, server: Server) -> Response:
    """The datasets that are open to the caller."""
    theirs = [d for d in server.datasets.values() if d.name in who.datasets]
    shown = asyncio.gather(*(server.shown(d, who) for d in theirs))
    return _json(await _while_there(request, shown))


@routes.get("/datasets/{name}/schema", responses=_answers(SchemaShown, 404))
async def schema(dataset: Dataset) -> Response:
    """What a record may look like: public, it comes from the schema file."""
    return _json(dataset.schema())


@routes.post(
    "/datasets/{name}/plan",
    responses=_answers(PlanShown, 404, 503) | _JOB,
    openapi_extra=_documented("PlanAsked", [_NAME, _PREFER]),
)
async def plan(request: Request) -> Response:
    """Forecast the errors and the cost of a release; touches no data and costs nothing."""
    dataset, who = await _dataset(request, _name(request)), await _who(request)
    server = await _server(request)
    body = await _body(request, PlanAsked.model_validate_json)
    request.scope[ON_GRID] = True
    lane = dataset.planning_lane(body)
    if _is_async(request):
        work = _plain(lambda: canonical(dataset.forecast(body, who)))
        return await _accepted(request, "plan", body, work, lane=lane)
    forecast = server.work(who, dataset.forecast, body, who, lane=lane)
    return _json(await _while_there(request, forecast))


@routes.post(
    "/datasets/{name}/estimate", dependencies=WAITS, responses=_answers(Estimated, 404, 503)
)
async def estimate(
    request: Request,
    question: Annotated[AskAsked, Body()],
    dataset: Dataset,
    who: Who,
    server: Server,
) -> Response:
    """What a question would cost and how good its answer would be; spends nothing."""
    forecast = server.work(who, dataset.batcher.forecast, question.sql, question.error)
    return _json(await _while_there(request, forecast))


@routes.post(
    "/datasets/{name}/select/plan", dependencies=WAITS, responses=_answers(SelectionShown, 404, 503)
)
async def plan_selection(
    request: Request,
    body: Annotated[SelectionAsked, Body()],
    dataset: Dataset,
    who: Who,
    server: Server,
) -> Response:
    """Forecast a selection: what would hold of the chosen ones, and its cost; spends nothing."""
    forecast = server.work(who, dataset.forecast_selection, body, who)
    return _json(await _while_there(request, forecast))


@routes.post(
    "/datasets/{name}/select",
    dependencies=WAITS,
    responses=_in_formats(Selected, 404, 409, 423, 503) | _JOB,
    openapi_extra={"parameters": [_KEY, _PREFER]},
)
async def select(
    request: Request, body: Annotated[SelectionAsked, Body()], dataset: Dataset
) -> Response:
    """Debit the cost and choose the best few candidates; an equal request gets the same bytes."""
    return await _paid_once(request, "select", dataset.select, body)


@routes.post(
    "/datasets/{name}/describe/plan",
    dependencies=WAITS,
    responses=_answers(DescriptionShown, 404, 503),
)
async def plan_description(
    request: Request,
    body: Annotated[DescriptionAsked, Body()],
    dataset: Dataset,
    who: Who,
    server: Server,
) -> Response:
    """Forecast a description: kinds of columns, errors and cost; reads no row, spends nothing."""
    forecast = server.work(who, dataset.describer.forecast, body, who)
    return _json(await _while_there(request, forecast))


@routes.post(
    "/datasets/{name}/describe",
    dependencies=WAITS,
    responses=_in_formats(Described, 404, 409, 423, 503) | _JOB,
    openapi_extra={"parameters": [_KEY, _PREFER]},
)
async def describe(
    request: Request, body: Annotated[DescriptionAsked, Body()], dataset: Dataset
) -> Response:
    """Debit the cost and summarise columns; an equal request gets the same bytes."""
    return await _paid_once(request, "describe", dataset.describer.describe, body)


@routes.post(
    "/datasets/{name}/discover/plan",
    dependencies=WAITS,
    responses=_answers(DiscoveryShown, 404, 503),
)
async def plan_discovery(
    request: Request,
    body: Annotated[DiscoveryAsked, Body()],
    dataset: Dataset,
    who: Who,
    server: Server,
) -> Response:
    """Forecast a discovery: how many people a value needs to be found, and its cost."""
    forecast = server.work(who, dataset.describer.forecast_search, body, who)
    return _json(await _while_there(request, forecast))


@routes.post(
    "/datasets/{name}/discover",
    dependencies=WAITS,
    responses=_in_formats(Discovered, 404, 409, 423, 503) | _JOB,
    openapi_extra={"parameters": [_KEY, _PREFER]},
)
async def discover(
    request: Request, body: Annotated[DiscoveryAsked, Body()], dataset: Dataset
) -> Response:
    """Debit the cost and find values and ranges; an equal request gets the same bytes."""
    return await _paid_once(request, "discover", dataset.describer.discover, body)


@routes.get(
    "/datasets/{name}/ledger", dependencies=WAITS, responses=_answers(LedgerShown, 404, 503)
)
async def ledger(
    request: Request, dataset: Dataset, who: Who, after: Annotated[int, Query(ge=-1, lt=2**62)] = -1
) -> Response:
    """What was spent: all of it for a curator, one's own for an analyst."""
    shown = dataset.on_ledger(who, dataset.ledger_document, who, after)
    return _json(await _while_there(request, shown))


@routes.post(
    "/datasets/{name}/freeze",
    dependencies=WAITS,
    responses=_answers(dict[str, bool], 403, 404, 503),
)
async def freeze(body: Annotated[FreezeAsked, Body()], dataset: Dataset, who: Curator) -> Response:
    """Stop all new answers; stored ones stay readable."""
    return _json(await dataset.freeze(who, True, body.reason))


@routes.post(
    "/datasets/{name}/unfreeze",
    dependencies=WAITS,
    responses=_answers(dict[str, bool], 403, 404, 503),
)
async def unfreeze(
    body: Annotated[FreezeAsked, Body()], dataset: Dataset, who: Curator
) -> Response:
    """Let new answers be asked again."""
    return _json(await dataset.freeze(who, False, body.reason))


@routes.get(
    "/datasets/{name}/audit",
    dependencies=WAITS,
    response_class=Response,
    responses={
        **_answers(None, 403, 404, 503),
        200: {
            "description": "one record a line, oldest first; none: there are no more",
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        },
    },
)
async def audit(
    request: Request, dataset: Dataset, who: Who, after: Annotated[int, Query(ge=-1, lt=2**62)] = -1
) -> Response:
    """The records of a ledger with their hashes, for auditors and curators.

    The lines of all pages together are what `sfumato ledger export` writes, and what
    `sfumato ledger verify --export` checks without the ledger.
    """
    if not who.sees_all:
        raise not_in_role(who.role)

    def page() -> bytes:
        return "".join(export_lines(dataset.ledger.records(after, LIMITS.audit_records))).encode()

    body = await _while_there(request, dataset.on_ledger(who, page))
    return Response(body, media_type="application/x-ndjson")


@routes.get(METRICS, response_class=Response, responses=_answers(None, 403))
async def metrics(request: Request, who: Who, server: Server) -> Response:
    """Figures for Prometheus, of the caller's datasets; for curators and scrapers."""
    if not who.may_scrape:
        raise not_in_role(who.role)
    theirs = [d for d in server.datasets.values() if d.name in who.datasets]
    parts = await _while_there(request, asyncio.gather(*(server.left(d, who) for d in theirs)))
    left = {d.name: part for d, part in zip(theirs, parts, strict=True)}
    analysts = {a.name for a in server.people.all() if a.datasets & who.datasets}
    text = server.metrics.text(left, analysts, server.gauges())
    return Response(text, media_type="text/plain; version=0.0.4")


@routes.get("/jobs", dependencies=WAITS, responses=_answers(list[JobShown], 503))
async def jobs(request: Request, who: Who, server: Server) -> Response:
    """The newest jobs: one's own, or of all who use the tables whose ledgers one reads."""
    return _json(await _while_there(request, server.read(who, server.jobs.listed, who)))


@routes.get("/jobs/{job}", dependencies=WAITS, responses=_answers(JobShown, 404, 503))
async def job(request: Request, who: Who, server: Server, job: JobName) -> Response:
    """How far a job is, or how it ended."""
    one = await _while_there(request, server.read(who, server.jobs.find, who, job))
    return _json(one.shown())


@routes.get(
    "/jobs/{job}/result",
    dependencies=WAITS,
    responses={
        **_answers(dict[str, Any], 404, 409, 423, 503),
        202: {"model": JobShown, "description": "it is not over yet"},
        410: {"model": Trouble, "description": "it was cancelled or lost, or its answer is gone"},
    },
)
async def job_result(request: Request, who: Who, server: Server, job: JobName) -> Response:
    """The answer of a job as its request would have got it, or its refusal."""
    kind = _kind(request)
    one = await _while_there(request, server.read(who, server.jobs.find, who, job))
    state = one.state
    if state in ("waiting", "working", "paying"):
        return Response(canonical(one.shown()), 202, {"Retry-After": "1"}, "application/json")
    if state == "failed":
        error = dict(one.document["error"])
        words = (one.document["status"], error.pop("error"), error.pop("message"))
        raise Problem(*words, more=error)
    body = None if state != "done" else await server.read(who, server.jobs.result, one)
    if body is None:
        what = {"cancelled": "was cancelled before it paid", "lost": "was lost in a restart"}
        how = what.get(state, "is done, but its answer is not kept any more")
        message = f"this job {how}; send the request again, what was paid for is free"
        raise Problem(410, "gone", message)
    # A plan has no answers, so it is JSON.
    return _stored(body, request, JSON if one.document["kind"] == "plan" else kind)


@routes.delete("/jobs/{job}", dependencies=WAITS, responses=_answers(JobShown, 404, 409, 503))
async def cancel_job(who: Who, server: Server, job: JobName) -> Response:
    """Cancel a job that has not begun to pay; nothing is spent."""

    def cancel() -> Job:
        one = server.jobs.find(who, job)
        server.jobs.cancel(who, one)
        return one

    return _json((await server.read(who, cancel)).shown())


# People, and what they may spend: changed by curators while the server runs, each with a reason.

_PERSON: Final[dict[int | str, dict[str, Any]]] = _answers(PersonShown, 403, 404, 409, 503)
PersonName = Annotated[str, Path(max_length=64, examples=["eve"])]


@routes.get("/people", dependencies=WAITS, responses=_answers(list[PersonShown], 403, 503))
async def people(who: Who, server: Server) -> Response:
    """Those with whom one shares a dataset: role, datasets, tokens by id; curators, auditors."""
    return _json(await server.read(who, server.people.listed, who))


@routes.post("/people", dependencies=WAITS, responses=_PERSON)
async def add_person(
    body: Annotated[PersonAsked, Body()], who: Curator, server: Server
) -> Response:
    """Let somebody in; the answer has their token, which is shown once and kept nowhere."""
    what = (body.name, body.role, body.datasets, body.expires_days, body.reason)
    return _json(await server.administer(who, "add", body.name, server.people.add, *what))


@routes.post("/people/{person}", dependencies=WAITS, responses=_PERSON)
async def change_person(
    body: Annotated[PersonChangeAsked, Body()], person: PersonName, who: Curator, server: Server
) -> Response:
    """Give somebody another role or other datasets; they are signed out of the page."""
    what = (person, body.role, body.datasets, body.reason)
    return _json(await server.administer(who, "change", person, server.people.change, *what))


@routes.post(
    "/people/{person}/remove",
    dependencies=WAITS,
    responses=_answers(dict[str, bool], 403, 404, 409, 503),
)
async def remove_person(
    body: Annotated[FreezeAsked, Body()], person: PersonName, who: Curator, server: Server
) -> Response:
    """Let somebody in no more; what was spent and answered stays."""
    await server.administer(who, "remove", person, server.people.remove, person, body.reason)
    return _json({"is_removed": True})


@routes.post("/people/{person}/tokens", dependencies=WAITS, responses=_PERSON)
async def renew_token(
    body: Annotated[TokenAsked, Body()], person: PersonName, who: Who, server: Server
) -> Response:
    """One more token, of somebody or of oneself; the old ones hold until they are revoked."""
    what = (person, body.expires_days, body.reason)
    return _json(await server.administer(who, "token", person, server.people.renew, *what))


@routes.post("/people/{person}/tokens/{token}/revoke", dependencies=WAITS, responses=_PERSON)
async def revoke_token(
    body: Annotated[FreezeAsked, Body()],
    person: PersonName,
    token: Annotated[str, Path(pattern="^[0-9a-f]{12}$")],
    who: Who,
    server: Server,
) -> Response:
    """End a token, of somebody or of oneself, at once."""
    what = (person, token, body.reason)
    return _json(await server.administer(who, "revoke", person, server.people.revoke, *what))


@routes.post(
    "/datasets/{name}/allowances/{person}",
    dependencies=WAITS,
    responses=_answers(LedgerShown, 403, 404, 409, 503),
)
async def allow(
    body: Annotated[AllowanceAsked, Body()],
    person: PersonName,
    dataset: Dataset,
    who: Curator,
    server: Server,
) -> Response:
    """Set what somebody may spend of a table; all that they ever spent counts against it."""
    budget = None if body.budget is None else Budget(**body.budget.model_dump())

    def change() -> dict[str, object]:
        server.people.allow(
            who,
            person,
            dataset.name,
            None if budget is None else budget.as_json(),
            body.reason,
            partial(dataset.set_allowance, person, budget),
        )
        return dataset.ledger_document(who, 2**62)

    shown = await dataset.on_ledger(who, change)
    server.log.add("people", act="allowance", analyst=who.name, person=person, dataset=dataset.name)
    return _json(shown)


@routes.post(
    "/datasets/{name}/total",
    dependencies=WAITS,
    responses=_answers(LedgerShown, 403, 404, 409, 503),
)
async def set_total(
    body: Annotated[TotalAsked, Body()], dataset: Dataset, who: Curator, server: Server
) -> Response:
    """Set what all may spend of a table together; the ledger records who did it and why.

    A larger total is a weaker promise to the people in the table, and must be decided without
    looking at answers. Write it into the configuration, too: a lower one there takes effect at the
    next start.
    """
    budget = Budget(**body.budget.model_dump())
    shown = await dataset.on_ledger(who, dataset.set_total, budget, body.reason, who)
    server.log.add("total", analyst=who.name, dataset=dataset.name)
    return _json(shown)


@routes.get("/series", dependencies=WAITS, responses=_answers(list[SeriesShown], 503))
async def series(request: Request, who: Who, server: Server) -> Response:
    """The series that are open to the caller: their periods, and what those promise together."""
    theirs = [each for each in server.series.values() if each.name in who.datasets]

    def listed() -> list[dict[str, object]]:
        return [each.shown(who) for each in theirs]

    return _json(await _while_there(request, server.work(who, listed)))


@routes.post(
    "/series/{name}/periods",
    dependencies=WAITS,
    responses=_answers(SeriesShown, 403, 404, 409, 503),
)
async def begin_period(
    body: Annotated[PeriodAsked, Body()],
    name: Annotated[str, Path(max_length=64, examples=["survey"])],
    who: Curator,
    server: Server,
) -> Response:
    """Begin the next period of a series: a new table, with a ledger and a budget of its own.

    The ledger of the period before records who did it and why. The table must be there, and must
    not have been chosen by looking at answers; whoever is in several is promised the sum.
    """
    one = server.series_of(who, name)
    return _json(await server.begin_period(who, one, body.period, body.reason))


@routes.get(
    "/changes",
    dependencies=WAITS,
    response_class=Response,
    responses={
        **_answers(None, 403, 503),
        200: {
            "description": "one record a line, oldest first",
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        },
    },
)
async def changes(
    who: Who, server: Server, after: Annotated[int, Query(ge=-1, lt=2**31)] = -1
) -> Response:
    """Who changed people and allowances, when and why, with the hash of each record."""
    records = await server.read(who, server.people.records, who, after)
    lines = "".join(f'{{"hash":"{digest}","record":{text}}}\n' for digest, text in records)
    return Response(lines, media_type="application/x-ndjson")


BUSY: Final[dict[tuple[str, str], Handler]] = {
    ("POST", "/datasets/{name}/ask"): ask,
    ("POST", "/datasets/{name}/plan"): plan,
    ("POST", "/datasets/{name}/release"): release,
    ("GET", "/datasets/{name}/answers/{key}"): answers,
}
"""Routes that the middleware calls directly."""


def make_app(server: ServerState, *, closes: bool = False, page: bool = False) -> RequestMiddleware:
    """The ASGI application of a server; with ``closes`` it closes the server when it is shut down.

    With ``page`` it has the web page, too, which a process can have once.
    """

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        if closes:
            server.close()

    app = FastAPI(
        title="sfumato",
        version=VERSION,
        description="Private answers to linear queries. TLS is the reverse proxy's.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=life,
        exception_handlers={
            HTTPException: _refused,
            RequestValidationError: _not_valid,
            Exception: _other,
        },
    )
    app.include_router(routes)
    _describe(app)
    page_app = None
    if page:
        from sfumato_web.page import open_page

        page_app = open_page(app, server)
    return RequestMiddleware(app, server, BUSY, page_app)


def run(config: Config, say: Callable[[], None]) -> None:
    """Serve until interrupted; then finish what is under way and put the sessions to rest.

    ``say`` is called when everything is open.
    """
    import uvicorn

    handler = logging.StreamHandler()
    handler.setFormatter(EventFormatter(config.log or "json"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    state = ServerState(config, log=RequestLog(config.log))
    app = make_app(state, closes=True, page=config.page)
    # What is loaded by now stays: without this, looking through it for garbage stops all answers
    # for a tenth of a second now and then.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    say()
    uvicorn.run(app, **settings(config))


def settings(config: Config) -> dict[str, Any]:
    """How uvicorn is run: what it may say, and how long it waits for whom."""
    from sfumato_web.server.middleware import connection_class

    return {
        "host": config.host,
        "port": config.port,
        "http": connection_class(config.limits),
        "access_log": False,
        "server_header": False,
        "date_header": False,
        "log_config": None,
        "timeout_keep_alive": 30,
        "proxy_headers": False,  # nothing depends on the caller's address
        "lifespan": "on",
        "ws": "websockets-sansio" if config.page else "none",
        "ws_max_size": config.limits.body_bytes,
    }


def _reply(problem: Problem) -> Response:
    note = NOTE.get()
    if note is not None:
        note.code = problem.code
    return Response(problem.body(), problem.status, problem.headers, "application/json")


async def _other(_: Request, error: Exception) -> Response:
    """The refusal for an exception, which the framework raises again for the middleware."""
    return _reply(problem_of(error))


async def _refused(_: Request, error: Exception) -> Response:
    """Unknown routes and methods, and bodies that are no JSON, in the words of the server."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    words = {
        404: ("not-found", "there is no such route; GET /openapi.json lists them"),
        405: ("method", "this route has another method; GET /openapi.json lists them"),
    }
    if status in words:
        headers = dict(getattr(error, "headers", None) or {})
        return _reply(Problem(status, *words[status], headers=headers))
    return _reply(Problem(422, "request", "the body is not JSON that can be read; check it"))


async def _not_valid(_: Request, error: Exception) -> Response:
    """What is wrong with a request, place by place; it says nothing of the data."""
    return _reply(not_valid(error.errors() if isinstance(error, RequestValidationError) else []))


def _type_workload(schemas: dict[str, Any], model: str) -> None:
    """Say of the workload of a model which tables it may have, as the schema of a spec says it."""
    spec: dict[str, Any] = json_schema("spec")
    texts = {name: json.dumps(part) for name, part in spec["$defs"].items()}
    wanted = [each["$ref"] for each in spec["properties"]["workload"]["items"]["anyOf"]]
    names = {ref.rpartition("/")[2] for ref in wanted}
    while more := {n for n in texts for held in names if f'"#/$defs/{n}"' in texts[held]} - names:
        names |= more
    for name in names:
        text = re.sub(r'"#/\$defs/_?(\w+)"', r'"#/components/schemas/Workload\1"', texts[name])
        schemas[f"Workload{name.lstrip('_')}"] = json.loads(text)
    refs = [ref.rpartition("/")[2].lstrip("_") for ref in wanted]
    items = {"anyOf": [{"$ref": f"#/components/schemas/Workload{name}"} for name in refs]}
    workload = schemas[model]["properties"]["workload"]
    part = next((p for p in workload.get("anyOf", ()) if p.get("type") == "array"), workload)
    part["items"] = items


def _describe(app: FastAPI) -> None:
    """Say in the OpenAPI document that a token is needed."""
    made = app.openapi

    @cache
    def described() -> dict[str, Any]:
        document = made()
        parts = document.setdefault("components", {})
        for model in (
            AskAsked,
            PlanAsked,
            ReleaseAsked,
        ):  # of the routes that read their bodies by hand
            made_of = model.model_json_schema(ref_template="#/components/schemas/{model}")
            parts["schemas"] |= {**made_of.pop("$defs", {}), model.__name__: made_of}
        for name in ("PlanAsked", "ReleaseAsked", "SelectionAsked"):
            _type_workload(parts["schemas"], name)
        document["tags"] = [{"name": n, "description": text} for n, text in TAGS.items()]
        document["servers"] = [{"url": "/v1"}, {"url": "/"}]
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, methods in document["paths"].items():
            for operation in methods.values():
                operation["tags"] = [tag_of(path)]
                operation["security"] = [] if path in OPEN_PATHS else [{"token": []}]
        return document

    app.openapi = described  # type: ignore[method-assign]
