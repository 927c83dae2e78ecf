# SPDX-License-Identifier: Apache-2.0
"""Questions of many analysts, answered together: one thread, one commit for all that wait.

SQL is read in a thread of its own, in turn for each analyst, and the question queued; another
thread takes some of each analyst's that wait, asks the session at once and hands the answers back.
An answer is in the ledger before it is handed back. What nobody waits for any more is not asked.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Condition, Thread
from typing import TYPE_CHECKING

from sfumato.cli.output import forecasts_document
from sfumato.digest import json_digest
from sfumato.errors import BudgetExhausted
from sfumato.session.session_answers import bare_name
from sfumato.workload.question import Question, plain_count
from sfumato.workload.statements.sql import sql
from sfumato_web.server.models import canonical
from sfumato_web.server.problems import Problem, exhausted, key_reused
from sfumato_web.server.request_log import NOTE
from sfumato_web.server.responses import NewestCache
from sfumato_web.server.scheduler import Scheduler
from sfumato_web.server.server_limits import LIMITS, check_questions

if TYPE_CHECKING:
    from sfumato.ledger.ledger import Ledger
    from sfumato.session.group_questions import GroupAnswer, GroupQuestion
    from sfumato.session.session import Session
    from sfumato.session.session_answers import Answer
    from sfumato_web.server.config import Analyst
    from sfumato_web.server.request_log import RequestLog, RequestNote
    from sfumato_web.server.responses import Metrics, ResponseStore
    from sfumato_web.server.server_limits import LimitsTable

__all__ = ["QuestionBatcher", "without_words"]


@dataclass(frozen=True, slots=True)
class ParsedText:
    """The question that a text asks, and its keys.

    Attributes:
        key: by which the answer can be read again: of the question of one number, or of that of
            many as this asker wrote it.
        view: of the body, which has the asker's own words.
        former: the key that a list had when it did not depend on the words.
        question: what is asked.
        nbytes: about the memory that it takes: an attribute can have a million cells.
        is_single: whether it is a question of one number, which the ledger keeps by its key.
        error: the standard error that is asked for, if one is.
    """

    key: str
    view: str
    former: str
    question: Question | GroupQuestion
    nbytes: int
    is_single: bool
    error: float | None = None

    def within(self, error: float | None) -> ParsedText:
        """The same with an error: another request, whose body is kept."""
        if error is None:
            return self
        view = json_digest({"view": self.view, "error": repr(float(error))})
        return replace(self, key=view, view=view, former=view, is_single=False, error=error)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request in the queue, and where its body goes."""

    parsed: ParsedText
    analyst: str
    name: str | None
    loop: asyncio.AbstractEventLoop
    body: asyncio.Future[bytes]
    note: RequestNote | None = None


class _Queue:
    """Requests that wait, by analyst; taken in turns."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: OrderedDict[str, deque[Waiting]] = OrderedDict()
        self._is_over = False

    def put(self, waiting: Waiting) -> None:
        """One more, at the end of the analyst's own queue."""
        with self._changed:
            self._waiting.setdefault(waiting.analyst, deque()).append(waiting)
            self._changed.notify()

    def end(self) -> None:
        """Nothing more will be put in the queue; what waits is still taken."""
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def take(self) -> list[Waiting]:
        """Wait for requests and take the next round of them; none when it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_over)
            most, is_alone = LIMITS.batch_requests, len(self._waiting) == 1
            each = most if is_alone else LIMITS.batch_requests_per_analyst
            batch: list[Waiting] = []
            for analyst in list(self._waiting):
                line = self._waiting[analyst]
                batch += [line.popleft() for _ in range(min(each, most - len(batch), len(line)))]
                del self._waiting[analyst]
                if line:  # behind all others
                    self._waiting[analyst] = line
                if len(batch) >= most:
                    break
            return batch


class QuestionBatcher:
    """The session of one dataset, for many callers."""

    def __init__(
        self,
        dataset: str,
        session: Session,
        ledger: Ledger,
        limits: LimitsTable,
        store: ResponseStore,
        metrics: Metrics,
        log: RequestLog,
    ) -> None:
        self.dataset, self.session, self.ledger = dataset, session, ledger
        self._limits, self._store, self._metrics, self._log = limits, store, metrics, log
        self._texts = NewestCache[ParsedText](
            LIMITS.texts_cached, LIMITS.text_bytes_cached, lambda parsed: parsed.nbytes
        )
        self._readers = Scheduler(1, 1, limits.concurrent, f"reading {dataset}")
        self._queue = _Queue()
        self._thread = Thread(target=self._run, name=f"asking {dataset}", daemon=True)
        self._thread.start()

    def read(self, text: str) -> ParsedText:
        """The questions of a text; refused if there are too many or they cannot be asked."""
        parsed = self._texts.get(text)
        if parsed is not None:
            return parsed
        plain = plain_count(self.session.domain, text)
        if plain is not None:
            return self._texts.put(text, _of_one(plain))
        workload = sql(self.session.domain, text, unit=self.session.plan.unit)
        check_questions(workload, self._limits)
        question = self.session.read(text)
        parsed = _of_one(question) if isinstance(question, Question) else _of_many(question)
        return self._texts.put(text, parsed)

    async def ask(
        self, text: str, who: Analyst, name: str | None, error: float | None = None
    ) -> bytes:
        """The body that answers a text: the stored one, or a new one."""
        cached = self._texts.get(text)
        cached = None if cached is None else cached.within(error)
        if cached is not None and (name is not None or cached.is_single):
            parsed = cached
            stored = None if name is not None else self._held(parsed)
        else:
            parsed, stored = await self._readers.run(
                who.name, partial(self._begun, text, name, error)
            )
        if stored is not None:
            self._metrics.answered(self.dataset, "stored")
            return stored
        loop = asyncio.get_running_loop()
        body: asyncio.Future[bytes] = loop.create_future()
        self._queue.put(Waiting(parsed, who.name, name, loop, body, NOTE.get()))
        return await body

    async def key(self, text: str, who: Analyst) -> str:
        """The key of a text, which is read in a thread."""
        return (await self._readers.run(who.name, partial(self.read, text))).key

    def _begun(
        self, text: str, name: str | None, error: float | None
    ) -> tuple[ParsedText, bytes | None]:
        """In a thread: the questions of a text, and the body that was kept for them."""
        parsed = self.read(text).within(error)
        return parsed, None if name is not None else self._stored_body(parsed)

    def _stored_body(self, parsed: ParsedText) -> bytes | None:
        """A body at hand; the session stores single answers, the response store lists of them."""
        if parsed.is_single:
            return self._held(parsed)
        return self._store.body(self.dataset, parsed.view)

    def _held(self, parsed: ParsedText) -> bytes | None:
        """A body in memory; of a single answer only while the session knows nothing better."""
        view = parsed.view
        if parsed.is_single:
            view = _view_at(view, self.session.measurements)
        return self._store.recent(self.dataset, view)

    def was_answered(self, text: str, error: float | None = None) -> bool:
        """Whether the question of a text has a stored answer, with this error if there is one."""
        if error is not None:
            return self._stored_body(self.read(text).within(error)) is not None
        return self.session.is_answered(self.read(text).question)

    def stored(self, key: str) -> bytes | None:
        """The body of an answer that was given before, by its key."""
        body = self._store.body(self.dataset, key)
        if body is not None:
            return without_words(body)
        answer = self.session.answer(key)
        return None if answer is None else self._body(key, answer)

    def forecast(self, text: str, error: float | None = None) -> dict[str, object]:
        """What asking would cost and how good the answers would be; spends nothing."""
        parsed = self.read(text).within(error)
        forecast = self.session.estimate(parsed.question, error=error)
        document = forecasts_document(self.session, [forecast])
        return {"key": parsed.key, "dataset": self.dataset, **document}

    def close(self) -> None:
        """Answer what waits, then put the session to rest."""
        self._readers.close()
        self._queue.end()
        self._thread.join()
        self.session.close()

    def _run(self) -> None:
        while batch := self._queue.take():
            self._answer(batch)

    def _answer(self, batch: list[Waiting]) -> None:
        """Answer a batch; whatever happens, everybody who waits hears of it."""
        batch = [w for w in batch if not w.body.cancelled()]
        if not batch:
            return
        results: dict[int, bytes | Exception] = {}
        try:
            accepted = self._bind_names(batch, results)
            for analyst in dict.fromkeys(w.analyst for w in accepted):
                theirs = [w for w in accepted if w.analyst == analyst]
                results |= self._ask(theirs, analyst)
        except Exception as error:
            results |= {id(w): error for w in batch if id(w) not in results}
        pairs = [(w.body, results[id(w)]) for w in batch]
        with suppress(RuntimeError):  # the loop has ended: nobody waits any more
            batch[0].loop.call_soon_threadsafe(_hand_over, pairs)

    def _bind_names(
        self, batch: list[Waiting], results: dict[int, bytes | Exception]
    ) -> list[Waiting]:
        """Bind the idempotency keys of a batch; those that meant another request are refused."""
        named = [w for w in batch if w.name is not None]
        if not named:
            return batch
        for keys in ([w.parsed.key for w in named], [w.parsed.former for w in named]):
            bound = self._store.bind(
                (w.analyst, str(w.name), f"{self.dataset} {key}")
                for w, key in zip(named, keys, strict=True)
            )
            named = [w for w, is_ok in zip(named, bound, strict=True) if not is_ok]
            if not named:
                return batch
        results |= {id(w): key_reused() for w in named}
        return [w for w in batch if id(w) not in results]

    def _ask(self, theirs: list[Waiting], analyst: str) -> dict[int, bytes | Exception]:
        """Ask all questions of one analyst at once, then those with an error one by one.

        Privacy: that of ``Session.ask_many``; what is sent is its answers.
        """
        plain = [w for w in theirs if w.parsed.error is None]
        measurements = self.session.measurements  # before: what is bought below is not in these
        outcomes = self.session.ask_many([w.parsed.question for w in plain], analyst=analyst)
        pairs = list(zip(plain, outcomes, strict=True))
        for one in (w for w in theirs if w.parsed.error is not None):
            question, error = one.parsed.question, one.parsed.error
            (outcome,) = self.session.ask_many([question], error=error, analyst=analyst)
            pairs.append((one, outcome))
        results: dict[int, bytes | Exception] = {}
        for waiting, outcome in pairs:
            if isinstance(outcome, Exception):
                results[id(waiting)] = self._refusal(outcome, analyst)
            else:
                self._count(waiting, outcome)
                results[id(waiting)] = self._store_body(waiting.parsed, outcome, measurements)
        return results

    def _refusal(self, fault: Exception, analyst: str) -> Exception:
        if isinstance(fault, BudgetExhausted):
            return exhausted(str(fault), self.ledger.remaining(analyst))
        return fault

    def _count(self, waiting: Waiting, answer: Answer | GroupAnswer) -> None:
        """What it was, for the metrics, and what it cost, for the log."""
        is_stored = answer.is_stored
        self._metrics.answered(self.dataset, "stored" if is_stored else answer.how)
        if answer.is_paid and not is_stored:
            self._metrics.debited(self.dataset, waiting.analyst)
            cost = [dict(part) for part in answer.cost]
            place = (self.dataset, waiting.analyst, None, cost, "ask")
            self._log.spent(waiting.note, *place)

    def _store_body(
        self, parsed: ParsedText, answer: Answer | GroupAnswer, measurements: int
    ) -> bytes:
        """The body; the ledger has all answers for ever, the store keeps words and shapes."""
        body = self._body(parsed.key, answer)
        if parsed.is_single:
            return self._store.remember(self.dataset, _view_at(parsed.view, measurements), body)
        return self._store.keep([(self.dataset, parsed.view, body)])[0]

    def _body(self, key: str, answer: Answer | GroupAnswer) -> bytes:
        document = {"answers": [number.as_json() for number in answer.answers]}
        shapes = {"statements": answer.statements} if answer.statements else {}
        cost = {"cost": [dict(part) for part in answer.cost]} if shapes else {}
        return canonical({"key": key, "dataset": self.dataset, **document, **shapes, **cost})


def _view_at(view: str, measurements: int) -> str:
    """The view of a single answer while so much was measured: more may make it more precise."""
    return f"{view} {measurements}"


def _of_one(question: Question) -> ParsedText:
    """A question of one number, whose key is that of its meaning."""
    groups = [[name, str(value)] for name, value in question.groups]
    words = [[question.name, question.aggregate, question.condition, groups]]
    view = json_digest({"questions": [question.key], "words": words})
    nbytes = 1_000 + sum(a.nbytes for a in (question.table, *question.class_of))
    return ParsedText(question.key, view, question.key, question, nbytes, is_single=True)


def _of_many(question: GroupQuestion) -> ParsedText:
    """A question of many numbers; its body has the shape and the words of one writing."""
    view = json_digest({"question": question.key, "text": " ".join(question.text.split())})
    nbytes = 10_000 + 1_000 * question.workload.queries
    return ParsedText(view, view, view, question, nbytes, is_single=False)


def without_words(body: bytes) -> bytes:
    """A kept body; lists of answers that were once kept under one key for all lose their words."""
    if b'"answers":[' not in body[:1_000] or b'"groups":' in body[:2_000]:
        return body  # a release, or a list in the words of who asks
    document = json.loads(body)
    bare = [{**answer, "question": bare_name(answer["key"])} for answer in document["answers"]]
    return canonical({**document, "answers": bare})


def _hand_over(pairs: list[tuple[asyncio.Future[bytes], bytes | Exception]]) -> None:
    for body, result in pairs:
        if body.cancelled():
            continue
        if isinstance(result, Exception):
            body.set_exception(result)
        else:
            body.set_result(result)


def no_session() -> Problem:
    """A dataset that takes no questions."""
    return Problem(
        404,
        "no-session",
        "this dataset takes no single questions, its curator has not given them a budget; ask for "
        "a release instead",
    )
