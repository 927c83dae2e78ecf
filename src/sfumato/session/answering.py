# SPDX-License-Identifier: Apache-2.0
"""Behind a session: where questions are tested, paid for, stored and learnt from.

    stored -> that;   estimate near the truth -> free;   else -> noise, paid for, learnt

Whoever calls holds the session's lock. Every outcome is on its way into the ledger before the next
question is looked at, and is returned only when it has arrived there (`PendingAnswer.result`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from math import isfinite
from threading import Lock, RLock
from typing import Final, TypeVar

import numpy as np

from sfumato.errors import BudgetExhausted, LedgerError, LedgerFrozen, SfumatoError, TooLarge
from sfumato.ledger.entries import Entry
from sfumato.ledger.store import is_gone
from sfumato.measurement import Measured
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import (
    gaussian_quantile,
    gaussian_variance,
    laplace_quantile,
    laplace_variance,
)
from sfumato.privacy.sparse_vector import NoiseLaw
from sfumato.random import WordSource
from sfumato.release.linear_estimates import LinearEstimates
from sfumato.run.linear import LinearRun, Plan
from sfumato.run.spine import Stored, begin
from sfumato.session.epochs import Epochs, PendingWrite, SessionLedger
from sfumato.session.group_answers import (
    IN_SCOPE,
    GroupAnswer,
    known_answer,
    measured_answer,
    stored_cells_answer,
)
from sfumato.session.group_questions import GroupMeasurement, GroupQuestion
from sfumato.session.histogram import Estimate, Start
from sfumato.session.scope import ScopeMeasured
from sfumato.session.session_answers import Answer, How, bare_name, paid_answer, paid_bytes
from sfumato.session.session_limits import LIMITS
from sfumato.session.session_plan import UNIT, SessionParameters
from sfumato.vault.mechanisms.noise import SCALE_MAXIMUM
from sfumato.vault.mechanisms.questions import (
    SCORE_BITS,
    ExactQuestions,
    answer_shift,
    moved_by_one,
)
from sfumato.workload.question import Question

__all__ = [
    "PendingAnswer",
    "SessionState",
    "caught",
]


_CAME: Final[dict[How, str]] = {
    "paid": "the estimate was found wrong, so noise on the truth was paid for",
    "free": "the estimate was tested against the truth, and found near",
    "known": "",
    "untested": "the estimate as it is, not tested",
}
_FROZEN: Final = "the ledger is frozen by its curator; stored answers can still be asked for"

A = TypeVar("A")
B = TypeVar("B")


class PendingAnswer:
    """An answer that may be returned when it is stored."""

    __slots__ = ("_answer", "_lock", "_outcome", "_state", "_write")

    def __init__(self, state: SessionState, answer: Answer, write: PendingWrite) -> None:
        self._state, self._answer, self._write, self._lock = state, answer, write, Lock()
        self._outcome: Answer | SfumatoError | None = None

    def result(self) -> Answer | SfumatoError:
        """Wait for the commit, without the lock of the session; then say what came of it."""
        with self._lock:
            if self._outcome is None:
                try:
                    stored = self._write.result()
                except SfumatoError as error:
                    self._outcome = error
                    self._state.lost(self._answer)
                else:
                    # If somebody else's answer was first, it is the answer.
                    self._outcome = (
                        self._answer if stored.is_new else Answer.from_bytes(stored.answer)
                    )
                    self._state.arrived(self._outcome)
            return self._outcome


class SessionState:
    """The estimate, the epochs and the answers of one session."""

    def __init__(
        self,
        exact: ExactQuestions,
        plan: SessionParameters,
        ledger: SessionLedger,
        start: Start | None,
        random: WordSource,
        name: str,
        *,
        is_dummy: bool,
        take_over: bool,
    ) -> None:
        self.plan, self.ledger, self.name, self.is_dummy = plan, ledger, name, is_dummy
        self.lock = RLock()
        self._exact, self._start, self._random = exact, start, random
        self._answers: dict[str, Answer] = {}
        self._paid: dict[str, Answer] = {}
        self.pending: dict[str, PendingAnswer] = {}
        self.estimate: Estimate | None = None
        self._whole = Question(plan.domain, "all records", (), (), np.ones((), np.int64), 0)
        # Public under replace-one neighbours; else None, and a noisy number is paid for.
        self._rows = exact.records()
        self._may_drop_records = exact.may_drop_records
        self.epochs = Epochs(ledger, plan, name, random, take_over)
        self._learnt = 0  # epochs whose paid answers the estimate has learnt
        self.groups: dict[str, GroupMeasurement] = {}
        self._group_numbers: dict[str, int] = {}
        self._unlearnt_groups: list[GroupMeasurement] = []
        self._known_groups: dict[str, LinearEstimates | None] = {}
        self.scope: ScopeMeasured | None = None
        self._open_scope()
        self._read_groups()
        self._replay()

    def _open_scope(self) -> None:
        """Read what was measured of the scope, or measure it: debited first, and drawn once.

        A debit without an answer is that of a process that died, or that is about to answer: what
        it took is spent, and the session goes on without a scope.

        Privacy: docs/proofs/online.md, Theorem 6.
        """
        plan = self.plan.scope
        if plan is None:
            return
        assert isinstance(plan, Plan)  # noqa: S101  the planner of a session made it
        key = f"{self.name} scope"
        entry = self.ledger.entry(key)
        if entry is None:
            if self.ledger.is_frozen():
                raise LedgerFrozen(_FROZEN)
            entry = self._measure_scope(plan, key)
        stored = self.ledger.answer(key)
        if stored is None:
            if entry.state == "reserved" and entry.owner and not is_gone(entry.owner):
                raise LedgerError(
                    "another process is opening this session and measures its scope; try again"
                )
            return
        reader = LinearRun(plan).reader(Stored(key, stored, entry, is_own=True))
        if reader is None:
            raise LedgerError(
                "the ledger has another request where the scope of the session should be; restore "
                "the newest backup"
            )
        measured = Measured.from_bytes(stored, reader.plan.noise)
        self.scope = ScopeMeasured(reader.plan, measured, self.plan.level)

    def _measure_scope(self, plan: Plan, key: str) -> Entry:
        plan.resources().check()
        blocks = plan.strategy.blocks
        exact = self._exact.counted(plan.workload.domain, blocks)

        def start(_: Entry) -> tuple[None, bytes, tuple[()]]:
            noisy = self._exact.measured(exact, blocks, plan.noise, self._random)
            return None, noisy.to_bytes(plan.measurement()), ()

        return begin(self.plan, self.ledger, plan.cost, plan.request(), key, start)[0]

    def known(self, question: Question) -> Answer | None:
        """The answer that follows from the scope; None outside of it."""
        number = None if self.scope is None else self.scope.number(question)
        if number is None:
            return None
        value = number.value
        half, safe = number.half_width(self.plan.level), number.joint_half_width
        possible = self._possible(question, value)
        answer = self._answer(question, possible, value, half, "known")
        answer = replace(answer, standard_error=number.standard_error, why=IN_SCOPE)
        if not isfinite(safe):
            return answer
        return replace(
            answer,
            safe_low=min(self._possible(question, value - safe), possible),
            safe_high=max(self._possible(question, value + safe), possible),
        )

    def known_group(self, question: GroupQuestion) -> GroupAnswer | None:
        """The answer to a question of many answers that follows from the scope."""
        if self.scope is None:
            return None
        if question.key not in self._known_groups:
            if len(self._known_groups) >= LIMITS.groups_in_memory:
                self._known_groups.clear()
            self._known_groups[question.key] = self.scope.estimates(question.workload)
        estimates = self._known_groups[question.key]
        if estimates is None:
            return None
        if estimates.workload is not question.workload:  # another writing of the same queries
            estimates = self.scope.estimates(question.workload)
            assert estimates is not None  # noqa: S101
        epoch = self.epochs.used
        return known_answer(question, estimates, self.plan.level, epoch, is_dummy=self.is_dummy)

    def why(self, question: Question, answer: Answer) -> str:
        """Why an answer came about as it did; empty in sessions without a scope."""
        if answer.why or self.plan.scope is None:
            return answer.why
        reason = "the scope was lost by a crash" if self.scope is None else ""
        reason = reason or (self.scope.outside(question) if self.scope is not None else "")
        return f"{reason}; {_CAME[answer.how]}"

    @property
    def may_drop_records(self) -> bool:
        """Whether the source may drop a record that is replaced; public by the kind of it."""
        return self._may_drop_records

    def moved(self, question: Question) -> int:
        """How far one person moves the answer, in its steps."""
        return moved_by_one(question, self.plan.neighbours, self.plan.unit)

    def stored(self, key: str) -> Answer | None:
        """The answer that was given before, if there is one."""
        answer = self._paid.get(key) or self._answers.get(key)
        if answer is None:
            stored = self.ledger.answer(f"{self.name} question {key}")
            answer = None if stored is None else self._remember(Answer.from_bytes(stored))
        return answer

    def begin(
        self, questions: Sequence[Question], analyst: str | None
    ) -> dict[str, PendingAnswer | Answer | SfumatoError]:
        """Stored answers, answers on their way, and tests of what is new, by key."""
        outcomes: dict[str, PendingAnswer | Answer | SfumatoError] = {}
        new: dict[str, Question] = {}
        for question in questions:
            key = question.key
            if key in outcomes or key in new:
                continue
            earlier = self.known(question) or self.pending.get(key) or self.stored(key)
            if earlier is None:
                new[key] = question
            elif isinstance(earlier, Answer):
                outcomes[key] = replace(earlier, is_stored=earlier.how != "known")
            else:
                outcomes[key] = earlier
        if not new:
            return outcomes
        _check_analyst(analyst)
        if self.ledger.is_frozen():
            return outcomes | {key: LedgerFrozen(_FROZEN) for key in new}
        ready = []
        for key, question in new.items():
            fault = caught(self._prepared, question)
            if isinstance(fault, SfumatoError):
                outcomes[key] = fault
            else:
                ready.append(question)
        return outcomes | self._tested(ready, analyst)

    def ask_group(self, question: GroupQuestion, analyst: str | None) -> GroupAnswer:
        """The stored answer to a question of many answers, or a new one: one debit, all or nothing.

        Privacy: docs/proofs/online.md, Theorem 5: the debit comes before the noise, which is that
        of the plan; where the process dies between them, the debit is spent and nothing was told.
        """
        free = self.known_group(question)
        if free is not None:
            return free
        self._read_groups()  # others may have asked meanwhile
        stored = self.stored_group(question)
        if stored is not None:
            return stored
        _check_analyst(analyst)
        if self.ledger.is_frozen():
            raise LedgerFrozen(_FROZEN)
        self.epochs.check_more()
        run = question.run.checked(None)
        plan = run.plan
        blocks = plan.strategy.blocks
        exact = self._exact.counted(plan.workload.domain, blocks)
        number, epochs = self.epochs.measured + 1, self._learnt

        def start(entry: Entry) -> tuple[GroupMeasurement, bytes, tuple[()]]:
            self.epochs.measured = number
            noisy = self._exact.measured(exact, blocks, plan.noise, self._random)
            measured = noisy.to_bytes(plan.measurement())
            release = run.publish(measured, entry, False, None)
            stored = GroupMeasurement(question.key, measured, question.learnt(release), epochs)
            return stored, stored.to_bytes(), ()

        key, request = self._group_key(number), plan.request()
        entry, measurement = begin(
            self.plan, self.ledger, plan.cost, request, key, start, analyst=analyst
        )
        self._add_group(number, measurement)
        self._learn_paid()
        return self._published(question, measurement, entry, is_stored=False)

    def stored_group(self, question: GroupQuestion) -> GroupAnswer | None:
        """The answer that was given before, or whose parts all were; None if there is none."""
        measurement = self.groups.get(question.key)
        if measurement is not None:
            entry = self.ledger.entry(self._group_key(self._group_numbers[question.key]))
            assert entry is not None  # noqa: S101
            return self._published(question, measurement, entry, is_stored=True)
        answers = []
        for cell in question.cells():
            answer = self.stored(cell.key)
            if answer is None:
                return None
            answers.append(replace(answer, is_stored=True).asked_as(cell))
        return stored_cells_answer(question, answers) if answers else None

    def _published(
        self,
        question: GroupQuestion,
        measurement: GroupMeasurement,
        entry: Entry,
        *,
        is_stored: bool,
    ) -> GroupAnswer:
        reader = question.reader(measurement, entry)
        release = reader.publish(measurement.measured, entry, is_stored, None)
        return measured_answer(
            question, release, self.plan.level, measurement.epochs, is_dummy=self.is_dummy
        )

    def _group_key(self, number: int) -> str:
        return f"{self.name} group {number}"

    def _add_group(self, number: int, measurement: GroupMeasurement) -> None:
        self.groups[measurement.key] = measurement
        self._group_numbers[measurement.key] = number
        self._unlearnt_groups.append(measurement)

    def _read_groups(self) -> None:
        """Read the measurements of the session that the ledger has and that are not read yet."""
        while self.ledger.entry(self._group_key(self.epochs.measured + 1)) is not None:
            self.epochs.measured += 1
            stored = self.ledger.answer(self._group_key(self.epochs.measured))
            if stored is not None:  # else its process died between the debit and the answer
                one = GroupMeasurement.from_bytes(stored, self.plan.domain)
                self._add_group(self.epochs.measured, one)

    def _prepared(self, question: Question) -> None:
        """See to all that could fail for this question, before it is tested."""
        moved = self.moved(question)
        if _scale(self.plan.noise, moved) > SCALE_MAXIMUM:
            raise TooLarge(
                f"one person can change the answer to {question.name!r} by {moved:,} steps, too "
                "many for the noise that the budget needs; ask in coarser units"
            )
        self._exact.prepare(question.attributes)

    def forget(self) -> None:
        """Let go of the table: nothing new is asked any more."""
        with self.lock:
            self._exact.forget()

    def lost(self, answer: Answer) -> None:
        """An outcome could not be stored: its epoch is never tested again."""
        with self.lock:
            if self.epochs.used == answer.epoch:
                self.epochs.give_up()
            self.pending.pop(answer.key, None)

    def arrived(self, answer: Answer) -> None:
        """A free answer is stored."""
        with self.lock:
            self._remember(answer)
            self.pending.pop(answer.key, None)

    def _tested(
        self, todo: list[Question], analyst: str | None
    ) -> dict[str, PendingAnswer | Answer | SfumatoError]:
        """Test question after question; a right estimate is free, in place of a wrong one is paid.

        Privacy: an outcome that may be lost ends its epoch (docs/proofs/online.md, Theorem 2).
        """
        answers: dict[str, PendingAnswer | Answer | SfumatoError] = {}
        while todo:
            try:
                self._check_allowance(analyst)
                estimate = self._begun_estimate(analyst)
                vector = self.epochs.open()
                self._learn_paid()  # others may have had the session meanwhile
            except SfumatoError as error:
                return answers | {q.key: type(error)(*error.args) for q in todo}
            paid = {q.key: self._paid[q.key] for q in todo if q.key in self._paid}
            if paid:
                answers, todo = answers | paid, [q for q in todo if q.key not in paid]
                continue
            batch = todo[: LIMITS.questions_at_once]
            try:
                near = [_steps(estimate.answer(q), q) for q in batch]
                scores = self._exact.scores(batch, near)
                outcomes = vector.test_many(scores, [self.plan.threshold] * len(batch))
                for question, steps, is_above in zip(batch, near, outcomes, strict=False):
                    if is_above:
                        answers[question.key] = self._pay(question, analyst)
                    else:
                        answers[question.key] = self._keep_free(question, steps, analyst)
            except SfumatoError as error:
                self.epochs.give_up()
                left = [q for q in todo if q.key not in answers]
                return answers | {q.key: type(error)(*error.args) for q in left}
            except BaseException:
                self.epochs.give_up()
                raise
            todo = todo[len(outcomes) :]
        return answers

    def _check_allowance(self, analyst: str | None) -> None:
        """Test nobody whom the epoch could not be charged to: any question may end it.

        The account of the table has paid for it by then; allowances are a matter of fairness.
        """
        allowance = None if analyst is None else self.ledger.allowance(analyst)
        if allowance is None:
            return
        cost = self.plan.epoch_cost
        if self.estimate is None and self.plan.records_cost is not None:
            cost += self.plan.records_cost  # the number of records comes first
        if not allowance.account.how_many_more(cost):
            raise BudgetExhausted(
                f"allowance of analyst {analyst!r}: {allowance.account.refusal(cost)}"
            )

    def _keep_free(self, question: Question, steps: int, analyst: str | None) -> PendingAnswer:
        """The estimate, as it was tested, on its way into the ledger."""
        value = steps * 2.0 ** -(question.bits + SCORE_BITS)
        half = self.plan.free_bound * self.moved(question) * 2.0**-question.bits
        answer = self._answer(question, value, value, half, "free")
        write = self.ledger.keep_soon(
            f"{self.name} question {question.key}",
            {"session": self.name, "question": question.key},
            answer.to_bytes(),
            self.epochs.entry,
            analyst=analyst,
        )
        pending = self.pending[question.key] = PendingAnswer(self, answer, write)
        return pending

    def _pay(self, question: Question, analyst: str | None) -> Answer:
        """The truth with fresh noise, stored with the end of its epoch; then it is learnt."""
        plan, moved = self.plan, self.moved(question)
        unit = 2.0 ** -(question.bits + answer_shift(moved))
        noisy = self._exact.noisy(question, plan.noise, self._random) * unit
        half, variance = _noise(plan.noise, plan.level, moved)
        answer = self._answer(question, self._possible(question, noisy), noisy, half * unit, "paid")
        stored = self.ledger.keep_soon(
            f"{self.name} paid {self.epochs.used}",
            {"session": self.name, "question": question.key},
            paid_bytes(answer, question, noisy, variance * unit**2),
            self.epochs.entry,
            analyst=analyst,
            states=[self.epochs.over()],
            is_charged=True,
        ).result()
        if not stored.is_new:
            raise LedgerError("another process has ended the session's epoch; ask again")
        self.epochs.end()
        self._learn_paid()
        return answer

    def _answer(
        self, question: Question, value: float, middle: float, half: float, how: How
    ) -> Answer:
        """An answer whose interval is cut to what is possible, and holds its own value."""
        return Answer(
            key=question.key,
            question=bare_name(question.key),  # who asks puts their own words in its place
            value=value,
            low=min(self._possible(question, middle - half), value),
            high=max(self._possible(question, middle + half), value),
            level=self.plan.level,
            how=how,
            epoch=self.epochs.used,
            cost=tuple(self.plan.epoch_cost.as_json()) if how == "paid" else (),
            is_dummy=self.is_dummy,
        )

    def _possible(self, question: Question, value: float) -> float:
        """The nearest value that a table can have, as far as public numbers tell."""
        if self._rows is not None:
            all_records = self._rows * 2.0**-question.bits
            return min(max(value, question.low * all_records), question.high * all_records)
        value = max(value, 0.0) if question.low >= 0 else value
        return min(value, 0.0) if question.high <= 0 else value

    def _remember(self, answer: Answer) -> Answer:
        if len(self._answers) >= LIMITS.answers_in_memory:
            self._answers.clear()
        self._answers[answer.key] = answer
        return answer

    def _begun_estimate(self, analyst: str | None) -> Estimate:
        """The estimate; begun when first needed, with a number of records that is paid for.

        Privacy: that number has noise and a debit of its own, before it is drawn.
        """
        if self.estimate is None:
            self._replay()
        if self.estimate is None:
            law, cost = self.plan.records_noise, self.plan.records_cost
            assert law is not None  # noqa: S101
            assert cost is not None  # noqa: S101
            self._begin_estimate(self._counted(law, cost, analyst))
        assert self.estimate is not None  # noqa: S101
        return self.estimate

    def _counted(self, law: NoiseLaw, cost: Cost, analyst: str | None) -> float:
        """The number of records with noise; a debit whose answer was lost costs epochs."""
        number = 1
        while self.ledger.entry(self._records_key(number)) is not None:
            number += 1
        self.epochs.lost = (number - 1) * self.plan.epochs_per_count
        if self.epochs.used + self.epochs.lost + self.epochs.measured >= self.plan.updates:
            raise BudgetExhausted("the budget of the session is used up; open another session")
        request = {"session": self.name, "records": self.plan.digest()}
        key = self._records_key(number)
        unit = 2.0 ** -answer_shift(self.moved(self._whole))

        def start(_: Entry) -> tuple[float, bytes, tuple[()]]:
            total = self._exact.noisy(self._whole, law, self._random) * unit
            return total, json.dumps({"records": total}).encode(), ()

        return begin(self.plan, self.ledger, cost, request, key, start, analyst=analyst)[1]

    def _records_key(self, number: int) -> str:
        return f"{self.name} records {number}"

    def _begin_estimate(self, total: float) -> None:
        plan = self.plan
        rate = plan.rate(total) if plan.learning == "hedge" else 0.0
        self.estimate = Estimate(plan.domain, total, self._start, plan.learning, rate)

    def _replay(self) -> None:
        """Learn again what was paid for: the estimate is a function of stored answers."""
        total = None if self.scope is None else self.scope.number(self._whole)
        if self._rows is not None:
            self._begin_estimate(float(self._rows))
        elif total is not None:  # the scope tells how many there are
            self._begin_estimate(max(total.value, 1.0))
        else:
            number = 1
            while (stored := self.ledger.answer(self._records_key(number))) is None:
                if self.ledger.entry(self._records_key(number)) is None:
                    return
                number += 1
            self.epochs.lost = (number - 1) * self.plan.epochs_per_count
            self._begin_estimate(float(json.loads(stored)["records"]))
        self._learn_paid()

    def _learn_paid(self) -> None:
        """Learn what was paid for since the last time, in the order of the epochs.

        A measurement of many answers is learnt after the epochs that were learnt when it was made.
        """
        estimate, used, groups = self.estimate, self.epochs.used, self._unlearnt_groups
        while estimate is not None:
            while groups and groups[0].epochs <= self._learnt:
                estimate.learn_all(groups.pop(0).learnt)
            if self._learnt >= used:
                break
            stored = self.ledger.answer(f"{self.name} paid {self._learnt + 1}")
            if stored is None and self._learnt + 1 == used:
                break  # the last epoch may not be over yet; an earlier one was lost
            self._learnt += 1
            if stored is not None:
                answer, question, noisy, variance = paid_answer(stored, self.plan.domain)
                self._paid[answer.key] = answer
                estimate.learn(question, noisy, variance)


def caught(action: Callable[[A], B], argument: A) -> B | SfumatoError:
    """What an action returns, or the fault that it raises on purpose."""
    try:
        return action(argument)
    except SfumatoError as error:
        return error


def _check_analyst(analyst: str | None) -> None:
    if analyst is not None and not (analyst.isprintable() and 0 < len(analyst) <= 200):
        raise LedgerError("an analyst is a printable name of 1 to 200 characters")


def _steps(value: float, question: Question) -> int:
    """An estimate on the grid of scores."""
    return round(value * 2.0 ** (question.bits + SCORE_BITS))


def _scale(law: NoiseLaw, moved: int) -> Fraction:
    """The scale of the noise of an answer that one person moves by so many steps, in its steps."""
    return law.scale * moved * Fraction(2 ** answer_shift(moved), UNIT)


@lru_cache(maxsize=256)
def _noise(law: NoiseLaw, level: float, moved: int) -> tuple[int, float]:
    """Half the width of an interval, and the variance, of a paid answer, in its own steps."""
    scale = _scale(law, moved)
    if law.kind == "gaussian":
        return gaussian_quantile(scale, level), gaussian_variance(scale)
    return laplace_quantile(scale, level), laplace_variance(scale)
