# SPDX-License-Identifier: Apache-2.0
"""Behind a session: where questions are tested, paid for, stored and learnt from.

    stored -> that;   estimate near the truth -> free;   else -> noise, paid for, learnt

Whoever calls holds the session's lock. Every outcome is on its way into the book before the next
question is looked at, and is given out only when it has arrived (`Flight.landed`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from threading import Lock, RLock
from typing import TypeVar

import numpy as np

from sfumato.domain.privacy_unit import unit_of
from sfumato.errors import BudgetExhausted, LedgerError, LedgerFrozen, SfumatoError, TooLarge
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import (
    gaussian_quantile,
    gaussian_variance,
    laplace_quantile,
    laplace_variance,
)
from sfumato.privacy.sparse_vector import NoiseLaw
from sfumato.random import WordSource
from sfumato.session.epochs import Book, Epochs, Waiting
from sfumato.session.histogram import Estimate, Start
from sfumato.session.session_answers import Answer, How, bare_name, paid_answer, paid_bytes
from sfumato.session.session_plan import UNIT, SessionParameters
from sfumato.vault.questions import SCORE_BITS, ExactQuestions, answer_shift, moved_by_one
from sfumato.workload.question import Question

__all__ = [
    "Desk",
    "Flight",
    "caught",
]


REMEMBERED = 2**17  # answers that are held in memory; all are in the ledger
AT_ONCE = 64  # questions tested together
GREATEST_SCALE = 2**40  # steps of noise that can be drawn
A = TypeVar("A")
B = TypeVar("B")


class Flight:
    """An answer that may be given when it is stored."""

    __slots__ = ("_answer", "_desk", "_found", "_lock", "_waiting")

    def __init__(self, desk: Desk, answer: Answer, waiting: Waiting) -> None:
        self._desk, self._answer, self._waiting, self._lock = desk, answer, waiting, Lock()
        self._found: Answer | SfumatoError | None = None

    def landed(self) -> Answer | SfumatoError:
        """Wait for the commit, without the lock of the session; then say what came of it."""
        with self._lock:
            if self._found is None:
                try:
                    kept = self._waiting.result()
                except SfumatoError as error:
                    self._found = error
                    self._desk.lost(self._answer)
                else:
                    # If somebody else's answer was first, it is the answer.
                    self._found = self._answer if kept.is_new else Answer.from_bytes(kept.answer)
                    self._desk.arrived(self._found)
            return self._found


class Desk:
    """The estimate, the epochs and the answers of one session."""

    def __init__(
        self,
        exact: ExactQuestions,
        plan: SessionParameters,
        book: Book,
        start: Start | None,
        words: WordSource,
        name: str,
        *,
        is_dummy: bool,
        take_over: bool,
    ) -> None:
        self.plan, self.book, self.name, self.is_dummy = plan, book, name, is_dummy
        self.lock = RLock()
        self._exact, self._start, self._words = exact, start, words
        self._answers: dict[str, Answer] = {}
        self._paid: dict[str, Answer] = {}
        self.flights: dict[str, Flight] = {}
        self.estimate: Estimate | None = None
        self._whole = Question(plan.domain, "all records", (), (), np.ones((), np.int64), 0)
        # Public under replace-one neighbours; else None, and a noisy number is paid for.
        self._rows = exact.records()
        self.epochs = Epochs(book, plan, name, words, take_over)
        self._learnt = 0  # epochs whose paid answers the estimate has learnt
        self._replay()

    def moved(self, question: Question) -> int:
        """How far one person moves the answer, in its steps."""
        return moved_by_one(question, self.plan.neighbours, self.plan.unit)

    def stored(self, key: str) -> Answer | None:
        """The answer that was given before, if there is one."""
        known = self._paid.get(key) or self._answers.get(key)
        if known is None:
            stored = self.book.answer(f"{self.name} question {key}")
            known = None if stored is None else self._remember(Answer.from_bytes(stored))
        return known

    def begin(
        self, questions: Sequence[Question], analyst: str | None
    ) -> dict[str, Flight | Answer | SfumatoError]:
        """Stored answers, answers on their way, and tests of what is new, by key."""
        found: dict[str, Flight | Answer | SfumatoError] = {}
        new: dict[str, Question] = {}
        for question in questions:
            key = question.key
            if key in found or key in new:
                continue
            known = self.flights.get(key) or self.stored(key)
            if known is None:
                new[key] = question
            else:
                found[key] = replace(known, is_stored=True) if isinstance(known, Answer) else known
        if not new:
            return found
        if analyst is not None and not (analyst.isprintable() and 0 < len(analyst) <= 200):
            raise LedgerError("an analyst is a printable name of 1 to 200 characters")
        if self.book.is_frozen():
            frozen = "the ledger is frozen by its curator; stored answers can still be asked for"
            return found | {key: LedgerFrozen(frozen) for key in new}
        ready = []
        for key, question in new.items():
            fault = caught(self._prepared, question)
            if isinstance(fault, SfumatoError):
                found[key] = fault
            else:
                ready.append(question)
        return found | self._tested(ready, analyst)

    def _prepared(self, question: Question) -> None:
        """See to all that could fail for this question, before it is tested."""
        moved = self.moved(question)
        if _scale(self.plan.noise, moved) > GREATEST_SCALE:
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
            self.flights.pop(answer.key, None)

    def arrived(self, answer: Answer) -> None:
        """A free answer is stored."""
        with self.lock:
            self._remember(answer)
            self.flights.pop(answer.key, None)

    def _tested(
        self, todo: list[Question], analyst: str | None
    ) -> dict[str, Flight | Answer | SfumatoError]:
        """Test question after question; what is found right goes out free, what is wrong paid.

        Privacy: an outcome that may be lost ends its epoch (docs/proofs/online.md, Theorem 2).
        """
        found: dict[str, Flight | Answer | SfumatoError] = {}
        while todo:
            try:
                self._check_allowance(analyst)
                estimate = self._known(analyst)
                vector = self.epochs.open()
                self._learn_paid()  # others may have had the session meanwhile
            except SfumatoError as error:
                return found | {q.key: type(error)(*error.args) for q in todo}
            known = {q.key: self._paid[q.key] for q in todo if q.key in self._paid}
            if known:
                found, todo = found | known, [q for q in todo if q.key not in known]
                continue
            batch = todo[:AT_ONCE]
            try:
                near = [_steps(estimate.answer(q), q) for q in batch]
                scores = self._exact.scores(batch, near)
                outcomes = vector.test_many(scores, [self.plan.threshold] * len(batch))
                for question, steps, is_above in zip(batch, near, outcomes, strict=False):
                    if is_above:
                        found[question.key] = self._pay(question, analyst)
                    else:
                        found[question.key] = self._keep_free(question, steps, analyst)
            except SfumatoError as error:
                self.epochs.give_up()
                left = [q for q in todo if q.key not in found]
                return found | {q.key: type(error)(*error.args) for q in left}
            except BaseException:
                self.epochs.give_up()
                raise
            todo = todo[len(outcomes) :]
        return found

    def _check_allowance(self, analyst: str | None) -> None:
        """Test nobody whom the epoch could not be charged to: any question may end it.

        The account of the table has paid for it by then; allowances are a matter of fairness.
        """
        allowance = None if analyst is None else self.book.allowance(analyst)
        if allowance is None:
            return
        cost = self.plan.epoch_cost
        if self.estimate is None and self.plan.records_cost is not None:
            cost += self.plan.records_cost  # the number of records comes first
        if not allowance.account.how_many_more(cost):
            raise BudgetExhausted(
                f"allowance of analyst {analyst!r}: {allowance.account.refusal(cost)}"
            )

    def _keep_free(self, question: Question, steps: int, analyst: str | None) -> Flight:
        """The estimate, as it was tested, on its way into the book."""
        value = steps * 2.0 ** -(question.bits + SCORE_BITS)
        half = self.plan.free_bound * self.moved(question) * 2.0**-question.bits
        answer = self._answer(question, value, value, half, "free")
        waiting = self.book.keep_soon(
            f"{self.name} question {question.key}",
            {"session": self.name, "question": question.key},
            answer.to_bytes(),
            self.epochs.entry,
            analyst=analyst,
        )
        flight = self.flights[question.key] = Flight(self, answer, waiting)
        return flight

    def _pay(self, question: Question, analyst: str | None) -> Answer:
        """The truth with fresh noise, stored with the end of its epoch; then it is learnt."""
        plan, moved = self.plan, self.moved(question)
        unit = 2.0 ** -(question.bits + answer_shift(moved))
        noisy = self._exact.noisy(question, plan.noise, self._words) * unit
        half, variance = _noise(plan.noise, plan.level, moved)
        answer = self._answer(question, self._possible(question, noisy), noisy, half * unit, "paid")
        kept = self.book.keep_soon(
            f"{self.name} paid {self.epochs.used}",
            {"session": self.name, "question": question.key},
            paid_bytes(answer, question, noisy, variance * unit**2),
            self.epochs.entry,
            analyst=analyst,
            states=[self.epochs.over()],
            is_charged=True,
        ).result()
        if not kept.is_new:
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
        if len(self._answers) >= REMEMBERED:
            self._answers.clear()
        self._answers[answer.key] = answer
        return answer

    def _known(self, analyst: str | None) -> Estimate:
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
        while self.book.entry(self._records_key(number)) is not None:
            number += 1
        self.epochs.lost = (number - 1) * self.plan.epochs_per_count
        if self.epochs.used + self.epochs.lost >= self.plan.updates:
            raise BudgetExhausted("the budget of the session is used up; open another session")
        request = {"session": self.name, "records": self.plan.digest()}
        key, whose = self._records_key(number), unit_of(self.plan.unit)
        entry = self.book.debit(cost, request, key, analyst=analyst, unit=whose)
        unit = 2.0 ** -answer_shift(self.moved(self._whole))
        total = self._exact.noisy(self._whole, law, self._words) * unit
        self.book.store(entry, json.dumps({"records": total}).encode())
        return total

    def _records_key(self, number: int) -> str:
        return f"{self.name} records {number}"

    def _begin_estimate(self, total: float) -> None:
        plan = self.plan
        rate = plan.rate(total) if plan.learning == "hedge" else 0.0
        self.estimate = Estimate(plan.domain, total, self._start, plan.learning, rate)

    def _replay(self) -> None:
        """Learn again what was paid for: the estimate is a function of stored answers."""
        if self._rows is not None:
            self._begin_estimate(float(self._rows))
        else:
            number = 1
            while (stored := self.book.answer(self._records_key(number))) is None:
                if self.book.entry(self._records_key(number)) is None:
                    return
                number += 1
            self.epochs.lost = (number - 1) * self.plan.epochs_per_count
            self._begin_estimate(float(json.loads(stored)["records"]))
        self._learn_paid()

    def _learn_paid(self) -> None:
        """Learn what was paid for since the last time, in the order of the epochs."""
        estimate, used = self.estimate, self.epochs.used
        while estimate is not None and self._learnt < used:
            stored = self.book.answer(f"{self.name} paid {self._learnt + 1}")
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
