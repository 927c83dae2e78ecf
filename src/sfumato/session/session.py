# SPDX-License-Identifier: Apache-2.0
"""A session: questions come one at a time, and most answers cost nothing.

    question -> stored?   the stored answer
             -> estimate  near the truth?  (a sparse vector says; its epoch is paid for)
                 yes      the estimate, free
                 no       the truth with noise; the estimate learns it; the epoch is over

Private multiplicative weights (M. Hardt, G. Rothblum 2010, "A multiplicative weights mechanism for
privacy-preserving data analysis"; C. Dwork, A. Roth 2014, Algorithm 6). Exact answers and
their comparison stay in ``vault/mechanisms/sparse.py``; the estimate is public. Every answer is
stored before it is given. Proof page: ``docs/proofs/online.md``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import numpy as np

from sfumato.domain.domain import Domain, base_of
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import (
    BudgetExhausted,
    LedgerFrozen,
    PlanError,
    SfumatoError,
    TooLarge,
    WorkloadError,
)
from sfumato.ledger.ledger import LedgerToCreate
from sfumato.ledger.unmade_ledger import UnmadeLedger
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.random import Draws, WordSource, system_words
from sfumato.refine.synthesize import Synthetic
from sfumato.release.labels import record_frame
from sfumato.release.release import Release
from sfumato.run.linear import Plan
from sfumato.run.linear import plan as plan_release
from sfumato.run.spine import Access, Lasting, opened
from sfumato.session.answering import PendingAnswer, SessionState, caught
from sfumato.session.epochs import MemoryLedger, SessionLedger
from sfumato.session.group_questions import GroupAnswer, GroupQuestion, labelled_questions
from sfumato.session.histogram import Learning, Start
from sfumato.session.purchases import GroupOffer, Offer, check_error, single_draw
from sfumato.session.scope import Scope, conditions, scope_workload
from sfumato.session.session_answers import (
    Answer,
    Calibration,
    Left,
    QuestionForecast,
    answer_frame,
)
from sfumato.session.session_limits import LIMITS
from sfumato.session.session_plan import SessionParameters
from sfumato.solve.effort import STEPS_PER_SECOND
from sfumato.text import listing, shown
from sfumato.types import Neighbours, Noise
from sfumato.vault.count import public_cells
from sfumato.vault.encode import check_columns
from sfumato.vault.identity import check_apart
from sfumato.vault.mechanisms.sparse import ExactQuestions
from sfumato.vault.tables import Table, open_table
from sfumato.workload.bins import in_bins
from sfumato.workload.question import Question, plain_count
from sfumato.workload.statements.sql import sql
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.ledger.ledger import Ledger
    from sfumato.session.histogram import Estimate
    from sfumato.types import Array

__all__ = ["Asked", "Session", "SessionPlan", "open_session", "plan_session", "start_of"]


Asked = str | Question | GroupQuestion | Workload


class Session:
    """Adaptive questions about a guarded table; made by `sf.open_session`. Safe for threads.

    Privacy: all answers ever given together cost what the session debits: docs/proofs/online.md,
    Theorem 1; restarts, failures and refusals included: Theorem 2.
    Neighbours: those of the plan.

    Args:
        state: What answers, behind a lock.
        closing: Lets go of what was opened for the session.
    """

    def __init__(self, state: SessionState, closing: Callable[[], None] | None = None) -> None:
        self._state, self._closing = state, closing
        self._texts: dict[str, Question | GroupQuestion] = {}
        self._plans: dict[str, Plan] = {}
        self._asked: dict[str, Question | GroupQuestion] = {}
        self._is_closed = False

    @property
    def plan(self) -> SessionParameters:
        """What is spent, how it is decided, what is promised."""
        return self._state.plan

    @property
    def domain(self) -> Domain:
        """What a record may look like."""
        return self._state.plan.domain

    @property
    def name(self) -> str:
        """The session's name in the ledger."""
        return self._state.name

    @property
    def releases(self) -> tuple[str, ...]:
        """The keys in the ledger of the releases that questions are answered from."""
        return tuple(self._state.releases)

    @property
    def is_dummy(self) -> bool:
        """Whether the records are made up."""
        return self._state.is_dummy

    def read(self, request: Asked) -> Question | GroupQuestion:
        """The question behind a text, in canonical form; a text is parsed and planned once.

        Args:
            request: A SELECT, a question or a workload.

        Returns:
            A question of one number; or one of many, such as a GROUP BY, a mean or a quantile, with
            the plan that measures them together.

        Raises:
            WorkloadError: It is none, or is about another domain.
            PlanError: The budget of one answer is too small for it.
        """
        if isinstance(request, GroupQuestion):
            return request
        if isinstance(request, str) and (question := self._texts.get(request)) is not None:
            return question
        question = self._read(request)
        if isinstance(request, str):
            if len(self._texts) >= LIMITS.texts_in_memory:
                self._texts.clear()
            self._texts[request] = question
        return question

    def _read(self, request: Asked) -> Question | GroupQuestion:
        """A question of one number, or of many."""
        if isinstance(request, str) and (plain := plain_count(self.domain, request)) is not None:
            return plain
        work = self._sql(request) if isinstance(request, str) else request
        if not isinstance(work, Workload) or (work.queries == 1 and _is_plain(work)):
            return self.read_all(request)[0]
        if base_of(work.domain) != self.domain:
            raise WorkloadError("the question is about another domain than the session")
        if work.queries > LIMITS.group_queries:
            raise TooLarge(
                f"this needs {work.queries:,} numbers, at most {LIMITS.group_queries:,} are one "
                "question; ask for fewer groups, or release it with sf.plan"
            )
        question = GroupQuestion(
            request if isinstance(request, str) else listing([t.name for t in work.terms]),
            work,
            self.domain,
            lambda: self._plan_of(work),
            partial(self._plan_at, work),
        )
        with self._state.lock:
            if not self._state.is_free_group(question):
                question.plan  # noqa: B018  what cannot be planned is refused here
        return question

    def _sql(self, text: str, *, in_bins: bool = False) -> Workload:
        return sql(self.domain, text, in_bins=in_bins, unit=self.plan.unit)

    def _plan_of(self, work: Workload) -> Plan:
        """The plan of a question of many answers: the same for every writing of it."""
        key = work.normal.key
        plan = self._plans.get(key)
        if plan is None:
            session = self.plan
            budget = session.measurement_budget
            plan = plan_release(
                work,
                budget,
                session.neighbours,
                unit=session.unit,
                may_drop_records=self._state.may_drop_records,
                steps=LIMITS.group_planning_seconds * STEPS_PER_SECOND,
                noise="laplace" if budget.is_pure else "gaussian",
            )
            if len(self._plans) >= LIMITS.groups_in_memory:
                self._plans.clear()
            self._plans[key] = plan
        return plan.for_writing(work)

    def _plan_at(self, work: Workload, budget: Budget) -> Plan:
        """The plan with the least largest error of a question of many answers, at a budget."""
        key = f"{work.normal.key} at {budget.as_json()}"
        plan = self._plans.get(key)
        if plan is None:
            session = self.plan
            plan = plan_release(
                work,
                budget,
                session.neighbours,
                "max",
                unit=session.unit,
                may_drop_records=self._state.may_drop_records,
                steps=LIMITS.group_planning_seconds * STEPS_PER_SECOND,
                noise="laplace" if budget.is_pure else "gaussian",
            )
            if len(self._plans) >= LIMITS.groups_in_memory:
                self._plans.clear()
            self._plans[key] = plan
        return plan.for_writing(work)

    def read_all(self, request: Asked) -> tuple[Question, ...]:
        """All questions of a SELECT (one per group and aggregate) or of a workload.

        Args:
            request: A SELECT, a question or a workload.

        Returns:
            One question per group and aggregate, or per query.

        Raises:
            WorkloadError: It is none, or is about another domain.
        """
        work = self._sql(request, in_bins=True) if isinstance(request, str) else request
        if not isinstance(work, Question | Workload):
            raise WorkloadError(
                f"a question is a SELECT or a workload, got {shown(type(request).__name__)}"
            )
        if isinstance(work, Workload) and base_of(work.domain) is not work.domain:
            work = in_bins(work)
        if work.domain is not self.domain and work.domain != self.domain:
            raise WorkloadError("the question is about another domain than the session")
        if isinstance(work, Question):
            return (work,)
        return labelled_questions(work)

    def ask(
        self,
        request: Asked,
        *,
        error: float | None = None,
        analyst: str | None = None,
        untested: bool = False,
    ) -> Answer | GroupAnswer:
        """Answer one question: stored, free, or paid for.

        With ``error`` the answer is unbiased and has at most this standard error: what is known of
        it is used first, and only the precision that is missing is bought, by one measurement.

        A SELECT of many numbers (GROUP BY, AVG, MEDIAN, several aggregates) is one question, too:
        all of them are planned, paid for and measured together, at most once.

        Privacy: as `Session`. Neighbours: as `Session`.

        Args:
            request: A SELECT, a question or a workload.
            error: The standard error that the answer may have, in what is counted or summed; of
                each number of a GROUP BY. None for an answer that is tested against the estimate.
            analyst: Who asks: what is paid counts against their allowance, too.
            untested: Whether new questions of one number get what the estimate says, marked as
                such, when the budget is used up: no test, no promise.

        Returns:
            The answer with its interval, and how it came about; a `GroupAnswer` to a question of
            many numbers, whose ``frame()`` has the shape of the SELECT.

        Raises:
            BudgetExhausted: The question is new and the budget is used up, or does not suffice for
                this error; then the message says which one can be had.
            WorkloadError: It is no question about this domain.
            PlanError: The session is closed and the question is new; or the error is no number
                above 0, or asked for of a mean or a quantile.
        """
        question = self.read(request)
        (outcome,) = self.ask_many([question], error=error, analyst=analyst)
        if isinstance(outcome, BudgetExhausted) and untested and isinstance(question, Question):
            return self.untested(question)
        if isinstance(outcome, SfumatoError):
            raise outcome
        return outcome

    def ask_all(
        self, request: Asked, *, analyst: str | None = None, untested: bool = False
    ) -> tuple[Answer, ...]:
        """The numbers behind the answer to a SELECT or a workload, one per group and aggregate.

        Privacy: as `Session`. Neighbours: as `Session`.

        Args:
            request: A SELECT, a question or a workload.
            analyst: As in `ask`.
            untested: As in `ask`, for questions of many numbers as well.

        Returns:
            One answer per group and aggregate, in order.

        Raises:
            BudgetExhausted: A question is new and the budget is used up.
            WorkloadError: It is no question about this domain.
        """
        try:
            answer = self.ask(request, analyst=analyst)
        except BudgetExhausted:
            if not untested:
                raise
            return tuple(self.untested(question) for question in self.read_all(request))
        return answer.answers

    def ask_frame(
        self, request: Asked, *, analyst: str | None = None, untested: bool = False
    ) -> pd.DataFrame:
        """The answers of `ask_all` as a frame, with a column for each column of GROUP BY.

        Privacy: as `Session`. Neighbours: as `Session`.

        Args:
            request: A SELECT, a question or a workload.
            analyst: As in `ask`.
            untested: As in `ask_all`.

        Returns:
            One row per answer; ``ask(...).frame()`` has the shape of the SELECT instead.

        Raises:
            BudgetExhausted: A question is new and the budget is used up.
            WorkloadError: It is no question about this domain.
        """
        return answer_frame(self.ask_all(request, analyst=analyst, untested=untested))

    def improve(
        self, answer: Answer | GroupAnswer, error: float, *, analyst: str | None = None
    ) -> Answer | GroupAnswer:
        """An answer at hand with a smaller error: only the precision that is missing is bought.

        Privacy: as `Session`. Neighbours: as `Session`.

        Args:
            answer: What this session answered.
            error: The standard error that it may have, as in `ask`.
            analyst: As in `ask`.

        Returns:
            The answer with at most this error; nothing is spent where what is known has it.

        Raises:
            BudgetExhausted: The budget does not suffice for this error.
            PlanError: The error is no number above 0, the question is a mean or a quantile, or it
                is not known here.
        """
        if not isinstance(answer, Answer | GroupAnswer):
            raise PlanError(f"improve takes an answer, got {shown(type(answer).__name__)}")
        with self._state.lock:
            question = self._asked.get(answer.key) or self._state.question_of(answer.key)
        if question is None:
            raise PlanError(
                "this session does not know the question behind the answer any more; ask it again, "
                f"session.ask(question, error={error!r})"
            )
        return self.ask(question, error=error, analyst=analyst)

    def use(self, release: Release) -> None:
        """Answer from a release in the same ledger as well: what was paid for is used.

        A question that follows from what the release measured is answered with the exact law of its
        noise, for nothing, together with all that the session knows, each by its noise. Unless the
        session was opened with ``releases=()`` it does so itself; this is for releases that it was
        told not to use, or that an earlier version stored, and holds for this session object.

        Privacy: post-processing of what was released. Neighbours: those of the session.

        Args:
            release: Of a linear plan about the same domain; `sf.read_release` reads a saved one.

        Raises:
            PlanError: It is adaptive or biased, or about other records.
            LedgerError: The session's ledger did not pay for it, or stored other numbers.
        """
        with self._state.lock:
            self._state.use(release)

    def ask_many(
        self, requests: Sequence[Asked], *, error: float | None = None, analyst: str | None = None
    ) -> list[Answer | GroupAnswer | SfumatoError]:
        """Answer many questions with few commits; a fault of one is its own result.

        Questions of many numbers come after the others, each with a debit of its own.

        Privacy: as `Session`. Neighbours: as `Session`.

        Args:
            requests: SELECTs, questions or workloads.
            error: As in `ask`, for each of them by itself, with a debit of its own.
            analyst: As in `ask`.

        Returns:
            One answer, or the error of that question, for each.

        Raises:
            PlanError: The session is closed and a question is new; or the error is no number
                above 0.
        """
        questions = [caught(self.read, one) for one in requests]
        for question in questions:
            if not isinstance(question, SfumatoError):
                if len(self._asked) >= LIMITS.texts_in_memory:
                    self._asked.clear()
                self._asked[question.key] = question
        if error is not None:
            wanted = check_error(error)
            return [self._asked_within(one, wanted, analyst) for one in questions]
        single = [q for q in questions if isinstance(q, Question)]
        with self._state.lock:
            if self._is_closed and any(self._is_new(q) for q in questions):
                raise PlanError("the session is closed; open it again to ask what is new")
            outcomes = self._state.begin(single, analyst)
        out: list[Answer | GroupAnswer | SfumatoError] = []
        for question in questions:
            if isinstance(question, GroupQuestion):
                out.append(self._asked_group(question, analyst))
            elif isinstance(question, Question):
                outcome = outcomes[question.key]
                one = outcome.result() if isinstance(outcome, PendingAnswer) else outcome
                if isinstance(one, Answer):
                    with self._state.lock:
                        one = self._state.told(question, one).asked_as(question)
                out.append(one)
            else:
                out.append(question)
        return out

    def _is_new(self, question: Question | GroupQuestion | SfumatoError) -> bool:
        state = self._state
        if isinstance(question, GroupQuestion):
            return not state.is_free_group(question) and state.stored_group(question) is None
        return (
            isinstance(question, Question)
            and state.pending.get(question.key) is None
            and state.earlier(question) is None
        )

    def _asked_group(
        self, question: GroupQuestion, analyst: str | None
    ) -> GroupAnswer | SfumatoError:
        with self._state.lock:
            try:
                return self._state.ask_group(question, analyst)
            except SfumatoError as error:
                return error

    def _asked_within(
        self, question: Question | GroupQuestion | SfumatoError, error: float, analyst: str | None
    ) -> Answer | GroupAnswer | SfumatoError:
        """The answer to one question with at most this error."""
        if isinstance(question, SfumatoError):
            return question
        state = self._state
        with state.lock:
            try:
                if self._is_closed and self._offer(question, error) is not None:
                    raise PlanError("the session is closed; open it again to ask what is new")
                if isinstance(question, GroupQuestion):
                    return state.ask_group_within(question, error, analyst)
                return state.ask_within(question, error, analyst).asked_as(question)
            except SfumatoError as fault:
                return fault

    def _offer(self, question: Question | GroupQuestion, error: float) -> Offer | GroupOffer | None:
        if isinstance(question, GroupQuestion):
            return self._state.group_offer(question, error)
        return self._state.offer(question, error)

    @property
    def measurements(self) -> int:
        """How much was measured so far; while it stays, what was answered is answered alike."""
        return self._state.measurements

    def is_answered(self, request: Asked) -> bool:
        """Whether a question has a stored answer, so that asking it costs nothing.

        Args:
            request: A SELECT, a question or a workload.

        Returns:
            True if it was answered before, by anybody.
        """
        question = self.read(request)
        with self._state.lock:
            return not self._is_new(question)

    def answer(self, key: str) -> Answer | None:
        """The stored answer of a question, by its key; None if it was never answered.

        Args:
            key: The key of a question.

        Returns:
            The answer, or None.
        """
        with self._state.lock:
            return self._state.stored(key)

    def estimate(self, request: Asked, *, error: float | None = None) -> QuestionForecast:
        """What asking would cost and how good the answer would be; spends and tests nothing.

        Args:
            request: A SELECT, a question or a workload.
            error: The standard error that would be asked for, as in `ask`.

        Returns:
            The estimate, the bounds and the cost; with an error, the cost of what is missing for
            it, and the least one that can be had for what is left.

        Raises:
            WorkloadError: It is no question about this domain.
            PlanError: The error is no number above 0, or asked for of a mean or a quantile.
        """
        question, plan = self.read(request), self.plan
        with self._state.lock:
            self._state.refresh()
        if error is not None:
            if isinstance(question, GroupQuestion):
                return self._group_offered(question, check_error(error))
            return self._offered(question, check_error(error))
        if isinstance(question, GroupQuestion):
            return self._group_forecast(question)
        with self._state.lock:
            moved = self._state.moved(question) * 2.0**-question.bits
            estimate = self._state.estimate
            earlier = self._state.earlier(question)
            is_known = earlier is not None and earlier.how == "known"
            number = self._state.knowledge(question) if is_known else None
            value = None if estimate is None else estimate.answer(question)
            free_bound = plan.free_bound * moved
            return QuestionForecast(
                key=question.key,
                question=question.name,
                value=value if number is None else number.value,
                is_stored=self._state.stored(question.key) is not None,
                free_bound=free_bound if number is None else number.half_width(plan.level),
                paid_error=plan.noise_error * moved,
                paid_bound=plan.paid_bound * moved,
                level=plan.level,
                cost=plan.epoch_cost if number is None else Cost(()),
                paid_left=self.left().paid_answers,
                standard_error=None if number is None else number.standard_error,
                why="" if earlier is None or number is None else earlier.why,
                estimate=value,
            )

    def _offered(self, question: Question, error: float) -> QuestionForecast:
        """What an error would cost, beside what is known."""
        state, level = self._state, self.plan.level
        with state.lock:
            number, one = state.knowledge(question), state.offer(question, error)
            least, left = state.least_error(question), self.left().paid_answers
            estimate = state.estimate
            guess = None if estimate is None else estimate.answer(question)
            why = "what is known is enough" if one is None else "the rest would be paid for"
            if one is not None and not state.can_pay(one):
                why = state.too_dear(question, error, one, None)
        had = number.standard_error if one is None and number is not None else error
        bound = number.half_width(level) if number is not None else None
        if one is not None:
            had = one.standard_error
        width = single_draw(0.0, had**2, self.plan.noise.kind, level).half_width(level)
        return QuestionForecast(
            key=question.key,
            question=question.name,
            value=None if number is None else number.value,
            is_stored=one is None,
            free_bound=bound,
            paid_error=0.0 if one is None else sqrt(one.variance),
            paid_bound=width if bound is None or one is not None else bound,
            level=level,
            cost=Cost(()) if one is None else one.cost,
            paid_left=left,
            standard_error=had,
            why=why,
            least_error=least,
            estimate=guess,
        )

    def _group_offered(self, question: GroupQuestion, error: float) -> QuestionForecast:
        """What an error of every number of a question would cost."""
        state, level = self._state, self.plan.level
        with state.lock:
            one = state.group_offer(question, error)
            numbers = [state.knowledge(cell) for cell in question.cells()]
            left = self.left().paid_answers
            why = "what is known is enough" if one is None else "the rest would be paid for"
            if one is not None and not state.can_pay(one):
                why = state.too_dear(question, error, one, None)
            least = state.least_error(question)
        unbiased = [number for number in numbers if number is not None]
        is_known = len(unbiased) == len(numbers)
        had = max(n.standard_error for n in unbiased) if one is None else one.standard_error
        width = single_draw(0.0, had**2, self.plan.noise.kind, level).half_width(level)
        return QuestionForecast(
            key=question.key,
            question=question.text,
            value=None,
            is_stored=one is None,
            free_bound=max(n.half_width(level) for n in unbiased) if is_known else None,
            paid_error=0.0 if one is None else one.plan.rmse,
            paid_bound=width,
            level=level,
            cost=Cost(()) if one is None else one.cost,
            paid_left=left,
            standard_error=had,
            why=why,
            least_error=least,
        )

    def _group_forecast(self, question: GroupQuestion) -> QuestionForecast:
        level = self.plan.level
        with self._state.lock:
            free = self._state.free_group(question)
        if free is not None:
            halves = [(a.high or 0.0) - (a.low or 0.0) for a in free.answers]
            return QuestionForecast(
                key=question.key,
                question=question.text,
                value=None,
                is_stored=free.is_stored,
                free_bound=max(halves) / 2,
                paid_error=0.0,
                paid_bound=0.0,
                level=level,
                cost=Cost(()),
                paid_left=self.left().paid_answers,
                why=free.why,
            )
        plan = question.plan
        widths = [float(plan.half_widths(t, level).max()) for t in range(len(plan.workload.terms))]
        return QuestionForecast(
            key=question.key,
            question=question.text,
            value=None,
            is_stored=not self._is_new(question),
            free_bound=None,
            paid_error=plan.rmse,
            paid_bound=max(widths),
            level=level,
            cost=plan.cost,
            paid_left=self.left().paid_answers,
        )

    def untested(self, request: Asked) -> Answer:
        """What the estimate says, for nothing and without a promise; a stored answer if there is.

        Privacy: a function of answers that were given before.

        Args:
            request: A SELECT, a question or a workload of one query.

        Returns:
            An answer whose interval is what a scope encloses; without one where nothing does.

        Raises:
            PlanError: Nothing was asked yet, so that there is no estimate.
        """
        questions = self.read_all(request)
        if len(questions) != 1:
            raise WorkloadError(
                f"the estimate says {len(questions)} numbers about this; ask_all(..., "
                "untested=True) has all of them"
            )
        (question,) = questions
        with self._state.lock:
            stored = self._state.earlier(question)
            if stored is not None:
                return self._state.told(question, stored).asked_as(question)
            bare = (question.key, question.name, self._learnt().answer(question), None, None, None)
            used = self._state.epochs.used
            answer = Answer(*bare, how="untested", epoch=used, is_dummy=self.is_dummy)
            return self._state.told(question, answer).asked_as(question)

    def left(self, analyst: str | None = None) -> Left:
        """What the session can still do.

        Args:
            analyst: Whose allowance counts, too.

        Returns:
            How many answers can still be paid for, of how many.
        """
        with self._state.lock:
            ledger, epochs, plan = self._state.ledger, self._state.epochs, self.plan
            more = min(epochs.parts_left(), ledger.how_many_more(plan.epoch_cost))
            more = max(0, more) + epochs.has_one()
            allowance = None if analyst is None else ledger.allowance(analyst)
            if allowance is not None:
                more = min(more, allowance.account.how_many_more(plan.epoch_cost))
            share = None if isinstance(ledger, MemoryLedger) else float(ledger.remaining().share)
            return Left(more, plan.updates, share)

    def calibration(self) -> Calibration:
        """How far the estimate was from what was measured, before it learnt that.

        Privacy: a function of answers that were given before.

        Returns:
            Typical differences, for questions that tests found wrong and for what was measured
            whatever the estimate said, each beside the noise of what it was compared with.
        """
        with self._state.lock:
            return self._state.calibration()

    def table(self, *names: str) -> Array:
        """The estimated counts over some attributes: public, costs nothing, promises nothing.

        Args:
            *names: Names of attributes.

        Returns:
            One number per cell of their table, in the order of the domain.

        Raises:
            PlanError: Nothing was asked yet, so that there is no estimate.
        """
        with self._state.lock:
            return self._learnt().table(self.domain.in_order(names)).copy()

    def close(self) -> None:
        """Put the open epoch to rest, and let go of the table and the ledger opened for it.

        The session can be opened again and goes on as it was; stored answers can still be read.
        """
        with self._state.lock:
            if self._is_closed:
                return
            self._is_closed = True  # nothing is tested from here on
            pending = list(self._state.pending.values())
        for answer in pending:  # without the lock, for which those that wait for them may wait
            answer.result()
        try:
            # A frozen ledger takes nothing: then the epoch is lost, as by a crash.
            with self._state.lock, suppress(LedgerFrozen):
                self._state.epochs.close()
        finally:
            if self._closing is not None:
                self._closing()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        kind = "dummy " if self.is_dummy else ""
        paid = f"{self._state.epochs.used} of {self.plan.updates} epochs paid for"
        used = len(self.releases)
        more = f", {used} release{'s' * (used > 1)} of its ledger in use" if used else ""
        return f"<{kind}{self.name}: {paid}{more}>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise SfumatoError(
            "a session holds an open epoch and cannot be copied or pickled; close it and open it "
            "where it is needed"
        )

    def _learnt(self) -> Estimate:
        estimate = self._state.estimate
        if estimate is None:
            raise PlanError("the session knows nothing yet; ask a first question")
        return estimate


def _is_plain(work: Workload) -> bool:
    """Whether a workload of one query is that number and nothing more."""
    return not work.ratios and all(
        statement.is_plain and all(out.is_linear for out in statement.outputs)
        for statement in work.statements
    )


# Open a session: on a guarded table, or on made-up records to try questions out


@dataclass(frozen=True, eq=False, repr=False)
class SessionPlan(SessionParameters, Lasting):
    """A session that can be opened: its parameters are public and known before it begins.

    Args:
        domain: What a record may look like.
        budget: What all answers together may spend.
        neighbours: Which two tables must be hard to tell apart.
        unit: Whose presence is protected; one row if None.
        questions: How many are expected.
        updates: How many answers are paid for.
        sparse: The law of the sparse vector of one epoch.
        noise: The law of the noise of a paid answer.
        records_noise: The law of the noise of the number of records; None where that is public.
        threshold: How far an estimate may be off before it is corrected, in steps.
        level: The probability with which an interval holds the truth.
        beta: The probability with which a promise about all questions may fail.
        learning: How the estimate learns.
        records: The public guess of how many records there are.
        fixed_updates: The number of paid answers that was asked for.
        scope: The plan of what is measured at opening; None where there is no scope.
        scope_share: The part of the budget that it takes.
        scope_planner: Plans it again for a source that may drop records.
    """

    def open(
        self,
        table: object,
        ledger: Ledger | LedgerToCreate | str | Path | None = None,
        *,
        start: Release | Start | None = None,
        public: object = None,
        name: str | None = None,
        label: str = "",
        dummy: bool = False,
        take_over: bool = False,
        releases: Sequence[Release] | None = None,
    ) -> Session:
        """Open a session on a table, or go on with the one that its ledger knows.

        Args:
            table: The guarded table; not opened if ``dummy``.
            ledger: What is debited epoch by epoch and remembers everything. Without a ledger
                nothing remembers what was spent: that is the caller's promise.
            start: An earlier release, from which the estimate starts.
            public: A table that is declared public, from which the estimate starts.
            name: The table's in the ledger.
            label: Tells sessions with equal arguments apart.
            dummy: Whether the records are made up and nothing is spent.
            take_over: Go on although the process that has the session may still live, because it
                is known to be gone.
            releases: Releases in the same ledger, from which questions are answered, too; None for
                all that it has of this domain, also those that come later, and () for none.

        Returns:
            The session; close it when it is to go on in another process.
        """
        begun = _start(start, public, table, self.domain)
        access = Access(table, ledger, name)
        session = self.begin(
            access,
            system_words(),
            begun,
            label,
            dummy=dummy,
            take_over=take_over,
            uses_releases=releases is None,
        )
        try:
            for release in releases or ():
                session.use(release)
        except BaseException:
            session.close()
            raise
        return session

    def begin(
        self,
        access: Access,
        random: WordSource,
        start: Start | None,
        label: str = "",
        *,
        dummy: bool = False,
        take_over: bool = False,
        uses_releases: bool = True,
    ) -> Session:
        """`open` with a start and a source of random words of one's own.

        Args:
            access: The table, the ledger and their names.
            random: A source of random words.
            start: What the estimate starts from; None for even.
            label: Tells sessions with equal arguments apart.
            dummy: Whether the records are made up and nothing is spent.
            take_over: Whether to go on although another process may have the session.
            uses_releases: Whether questions are answered from releases in the ledger, too.

        Returns:
            The session.
        """
        if dummy:
            made_up = _made_up(self.domain, self.unit, self.records)
            exact = ExactQuestions(made_up, self.domain, self.neighbours, self.unit)
            settings = (self, MemoryLedger(), start, random, self._title(start, label))
            state = SessionState(exact, *settings, is_dummy=True, take_over=False)
            return Session(state, state.forget)
        table, ledger = opened(access, self.domain, self.guarantee, keep_open=True)
        assert table is not None  # noqa: S101
        with ExitStack() as closing:  # an error may be kept for long, and a connection with it
            if ledger is not None and ledger is not access.ledger:
                closing.callback(ledger.close)
            plan = self.for_source(may_drop_records=table.may_drop_records)
            title = plan._title(start, label)
            if ledger is not None and not _has_begun(ledger, title):
                ledger.check_unit(self.guarantee.unit)
            exact = ExactQuestions(table, plan.domain, plan.neighbours, plan.unit)
            paid_by: SessionLedger = MemoryLedger() if ledger is None else ledger
            if ledger is None and isinstance(access.ledger, LedgerToCreate):
                paid_by = UnmadeLedger(access.ledger)
            state = SessionState(
                exact,
                plan,
                paid_by,
                start,
                random,
                title,
                is_dummy=False,
                take_over=take_over,
                uses_releases=uses_releases,
            )
            closing.callback(state.forget)
            return Session(state, closing.pop_all().close)

    def _title(self, start: Start | None, label: str) -> str:
        """The name of the session in its ledger."""
        marks = (self.digest(), "even" if start is None else start.digest(), label)
        return f"session {hashlib.sha256('|'.join(marks).encode()).hexdigest()[:16]}"


def plan_session(
    domain: Domain,
    budget: Budget,
    neighbours: Neighbours = "add-remove",
    *,
    unit: PrivacyUnit | None = None,
    questions: int = LIMITS.questions_expected,
    updates: int | None = None,
    records: int | None = None,
    level: float = LIMITS.level,
    beta: float = LIMITS.beta,
    learning: Learning = "fit",
    may_drop_records: bool = False,
    scope: Scope | Literal["auto"] | None = None,
    scope_share: float | Fraction = LIMITS.scope_share,
) -> SessionPlan:
    """The parameters of a session, from its budget; touches no data and costs nothing.

    Args:
        domain: What a record may look like.
        budget: What all answers together may spend.
        neighbours: Which two tables must be hard to tell apart.
        unit: Whose presence is protected; one row if None.
        questions: How many are expected, 10,000 unless given; more may come.
        updates: How many answers are paid for; None for the number with the least bound.
        records: A public guess of how many records there are.
        level: The probability with which an interval holds the truth; 0.95 unless given.
        beta: The probability with which a promise about all questions may fail; 0.05 unless given.
        learning: How the estimate learns: ``"fit"``, or ``"hedge"`` as in the theorem.
        may_drop_records: Whether the source is a query, a view or an expression, whose number of
            records is private under ``replace-one`` neighbours, too.
        scope: What will be asked about: a workload, or a number k for every condition on up to k
            attributes, or ``"auto"`` for the most of them that the budget makes sharp. It is
            measured once, at opening; every question that follows from it is free, unbiased and has
            an exact interval. Without one all questions are tested.
        scope_share: The part of the budget that the scope takes, 0.95 unless given; the rest pays
            for questions outside of it.

    Returns:
        The plan; its ``open`` opens the session.

    Raises:
        PlanError: An argument is wrong, or the budget is too small.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2})
    >>> plan = sf.plan_session(domain, sf.Budget(epsilon=1), records=50_000)
    >>> plan.updates, plan.epoch_cost.pure_epsilon * plan.updates <= 1
    (59, True)
    """
    planner = None
    if scope is not None:
        guess = records or LIMITS.records_guessed
        planner = partial(_planned_scope, domain, scope, guess, neighbours, unit)
    return SessionPlan.of(
        domain,
        budget,
        neighbours,
        unit=unit,
        questions=questions,
        updates=updates,
        records=records,
        level=level,
        beta=beta,
        learning=learning,
        may_drop_records=may_drop_records,
        scope=planner,
        scope_share=scope_share,
    )


def _planned_scope(
    domain: Domain,
    scope: Scope | Literal["auto"],
    records: int,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
    budget: Budget,
    noise: Noise,
    may_drop_records: bool,
) -> Plan:
    """The plan of a scope.

    "auto": conditions on up to three attributes, or fewer where these have too many cells, or a
    typical error of more than a share of the records.
    """

    def planned(work: Workload) -> Plan:
        return plan_release(
            work, budget, neighbours, unit=unit, may_drop_records=may_drop_records, noise=noise
        )

    if isinstance(scope, Workload | int):
        return planned(scope_workload(domain, scope))
    if scope != "auto":
        raise PlanError(f'scope must be a workload, a number or "auto", got {shown(scope)}')
    ways = min(LIMITS.scope_ways_default, len(domain))
    while ways > 1:
        with suppress(PlanError, TooLarge):
            plan = planned(conditions(domain, ways))
            if plan.rmse <= LIMITS.scope_error_share * records:
                return plan
        ways -= 1
    return planned(conditions(domain, 1))


def open_session(
    table: object,
    domain: Domain,
    budget: Budget,
    *,
    ledger: Ledger | str | Path | None = None,
    neighbours: Neighbours = "add-remove",
    unit: PrivacyUnit | None = None,
    start: Release | Start | None = None,
    public: object = None,
    questions: int = LIMITS.questions_expected,
    updates: int | None = None,
    records: int | None = None,
    level: float = LIMITS.level,
    beta: float = LIMITS.beta,
    learning: Learning = "fit",
    name: str | None = None,
    label: str = "",
    dummy: bool = False,
    take_over: bool = False,
    scope: Scope | Literal["auto"] | None = None,
    scope_share: float | Fraction = LIMITS.scope_share,
    releases: Sequence[Release] | None = None,
) -> Session:
    """A session on a table: ask, and pay only where what is known so far is wrong.

    The same as ``plan_session(...).open(table, ...)``. Opened again with the same arguments and
    ledger, the session goes on where it was.

    Args:
        table: The guarded table, as in `Plan.release`; not opened if ``dummy``.
        domain: What a record may look like.
        budget: What all answers together may spend.
        ledger: Is debited epoch by epoch, up to ``budget`` in all, and remembers everything.
            Without a ledger nothing remembers what was spent: that is the caller's promise.
        neighbours: Which two tables must be hard to tell apart.
        unit: Whose presence is protected; one row if None.
        start: An earlier release, from which the estimate starts.
        public: A table that is declared public, from which the estimate starts.
        questions: How many are expected, 10,000 unless given; more may come.
        updates: How many answers are paid for; None for the number with the least bound.
        records: A public guess of how many records there are.
        level: The probability with which an interval holds the truth; 0.95 unless given.
        beta: The probability with which a promise about all questions may fail; 0.05 unless given.
        learning: How the estimate learns: ``"fit"``, or ``"hedge"`` as in the theorem.
        name: The table's in the ledger.
        label: Tells sessions with equal arguments apart.
        dummy: Whether the records are made up, so that nothing is opened and nothing spent.
        take_over: Go on although the process that has the session may still live, because it is
            known to be gone.
        scope: As in `plan_session`: what is measured at opening, so that questions about it are
            free.
        scope_share: As in `plan_session`.
        releases: Releases in the same ledger that answer questions, too, as in `Session.use`; None
            for all that it has of this domain, also those that come later, and () for none.

    Returns:
        The session; close it when it is to go on in another process.

    Raises:
        PlanError: An argument is wrong, or the budget is too small.
        TableError: The table cannot be opened or lacks a declared column.
        LedgerError: There is no ledger, it is of another table, or another process has the session.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 10, "sex": 2})
    >>> with sf.open_session(None, domain, sf.Budget(epsilon=1), dummy=True) as session:
    ...     answer = session.ask("SELECT COUNT(*) FROM t WHERE age < 3")
    >>> answer.is_dummy, answer.low <= answer.value <= answer.high
    (True, True)
    """
    plan = plan_session(
        domain,
        budget,
        neighbours,
        unit=unit,
        questions=questions,
        updates=updates,
        records=records,
        level=level,
        beta=beta,
        learning=learning,
        scope=scope,
        scope_share=scope_share,
    )
    return plan.open(
        table,
        ledger,
        start=start,
        public=public,
        name=name,
        label=label,
        dummy=dummy,
        take_over=take_over,
        releases=releases,
    )


def _start(start: object, public: object, table: object, domain: Domain) -> Start | None:
    """What the estimate starts from: an earlier release or a public table, not both."""
    if start is not None and public is not None:
        raise PlanError("a session starts from a release or from a public table, not from both")
    check_apart(public, table)
    return start_of(start, domain) if public is None else _public_start(public, domain)


def _has_begun(ledger: Ledger, title: str) -> bool:
    """Whether the ledger has debits of this session; their answers stay, whatever its unit."""
    return any(
        ledger.entry(f"{title} {first}") is not None for first in ("records 1", "epoch 1", "scope")
    )


def start_of(start: object, domain: Domain) -> Start | None:
    """The weighted cells behind an earlier release, or none."""
    if start is None or isinstance(start, Start):
        return start
    if isinstance(start, Release):
        behind = start.estimates.refined
        if behind is None:
            raise PlanError(
                "the release was not projected, so no table is behind its answers; release it with "
                "project=True, or start from a public table"
            )
        begun = Start(behind.attributes, behind.codes, behind.weights, behind.alike)
    else:
        raise PlanError(f"a session starts from a release, got {shown(type(start).__name__)}")
    for name in begun.names:
        if name not in domain:
            raise WorkloadError(f"the release is about {name!r}, which the domain does not have")
    return begun


def _public_start(public: object, domain: Domain) -> Start:
    """The records of a table that its owner declares public."""
    table = open_table(public)
    check_columns(table, domain, None)
    codes, counts = public_cells(table, domain, domain.names)
    if not counts.size:
        raise PlanError("the public table has no record to start from; leave it out")
    return Start(domain.names, codes, counts)


def _made_up(domain: Domain, unit: PrivacyUnit | None, records: object) -> Table:
    """A table of made-up records: every attribute by itself, its first cells the likeliest."""
    rows = records if isinstance(records, int) else LIMITS.records_guessed
    rows = min(rows, LIMITS.dummy_records)
    draws = Draws("made-up records of a dummy session")
    codes = {}
    for attribute in domain:
        shares = 1.0 / np.arange(1, attribute.size + 1)
        edges = np.cumsum(shares / shares.sum())
        at = np.searchsorted(edges, draws.uniforms(rows), side="right")
        codes[attribute.name] = np.minimum(at, attribute.size - 1).astype(np.int64)
    frame = record_frame(domain, Synthetic(codes, ("made up",)), system_words())
    if unit is not None:
        frame[unit.column] = np.arange(rows)
    return open_table(frame)
