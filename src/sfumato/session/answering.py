# SPDX-License-Identifier: Apache-2.0
"""The state of a session: it tests questions, pays for answers, stores them and learns from them.

    stored -> that;   estimate near the truth -> free;   else -> noise, paid for, learnt

Whoever calls holds the session's lock. Every outcome is on its way into the ledger before the next
question is looked at, and is returned only when it has arrived there (`PendingAnswer.result`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from math import inf, isfinite, sqrt
from threading import Lock, RLock
from time import sleep
from typing import Final, TypeVar

import numpy as np

from sfumato.errors import (
    BudgetExhausted,
    LedgerError,
    LedgerFrozen,
    PlanError,
    SfumatoError,
    TooLarge,
)
from sfumato.ledger.entries import Entry
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.store import is_gone
from sfumato.measurement import Measured
from sfumato.planning.forecast import CombinationError
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import (
    SMOOTH,
    NoiseTails,
    gaussian_quantile,
    gaussian_variance,
    laplace_quantile,
    laplace_variance,
)
from sfumato.privacy.privacy_limits import LIMITS as PRIVACY_LIMITS
from sfumato.privacy.sparse_vector import NoiseLaw
from sfumato.random import WordSource
from sfumato.release.linear_estimates import LinearEstimates
from sfumato.release.release import Release
from sfumato.release.saved import check_paid
from sfumato.run.linear import LinearRun, Plan
from sfumato.run.spine import Stored, begin
from sfumato.session.epochs import Epochs, MemoryLedger, PendingWrite, SessionLedger
from sfumato.session.group_questions import (
    IN_RELEASE,
    IN_SCOPE,
    GroupAnswer,
    GroupMeasurement,
    GroupQuestion,
    Learnt,
    apart,
    cells_answer,
    known_answer,
    measured_answer,
    stored_cells_answer,
)
from sfumato.session.histogram import Estimate, Start, fitted_start
from sfumato.session.purchases import (
    BoughtNumber,
    GroupOffer,
    Knowledge,
    Offer,
    Purchase,
    amount_of,
    group_offer,
    least_error,
    least_noise,
    missing_variance,
    offer,
    single_draw,
)
from sfumato.session.scope import (
    Enclosure,
    KnownNumber,
    LedgerReleases,
    ScopeMeasured,
    tells_of,
)
from sfumato.session.session_answers import (
    Answer,
    Calibration,
    Differences,
    How,
    bare_name,
    paid_answer,
    paid_bytes,
)
from sfumato.session.session_limits import LIMITS
from sfumato.session.session_plan import UNIT, SessionParameters
from sfumato.text import shown
from sfumato.vault.mechanisms.noise import SCALE_MAXIMUM
from sfumato.vault.mechanisms.sparse import SCORE_BITS, ExactQuestions, answer_shift, moved_by_one
from sfumato.workload.question import Question

__all__ = ["BOUGHT", "PendingAnswer", "SessionState", "caught"]


_CAME: Final[dict[How, str]] = {
    "paid": "the estimate was found wrong, so noise on the truth was paid for",
    "free": "the estimate was tested against the truth, and found near",
    "known": "",
    "untested": "the estimate as it is, not tested",
}
BOUGHT: Final = "from all that was measured about it, each by its noise"
_NOT_LINEAR: Final = (
    f"error= is for counts and sums over cells of the domain, up to {LIMITS.group_learnt} groups "
    "at once; ask for means and quantiles without error=, or for the counts and sums behind them"
)
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
        uses_releases: bool = True,
    ) -> None:
        self.plan, self.ledger, self.name, self.is_dummy = plan, ledger, name, is_dummy
        self.lock = RLock()
        self._exact, self._start, self._random = exact, start, random
        self._answers: dict[str, Answer] = {}
        self._paid: dict[str, Answer] = {}
        self.pending: dict[str, PendingAnswer] = {}
        self._estimate: Estimate | None = None
        self._total: float | None = None  # of records, as far as public or paid for
        self._unlearnt: list[tuple[bool, tuple[Learnt, ...]]] = []
        self._differences: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        self._whole = Question(plan.domain, "all records", (), (), np.ones((), np.int64), 0)
        # Public under replace-one neighbours; else None, and a noisy number is paid for.
        self._rows = exact.records()
        self._may_drop_records = exact.may_drop_records
        self.epochs = Epochs(ledger, plan, name, random, take_over)
        self._read = 0  # epochs whose paid answers were read
        self.groups: dict[str, GroupMeasurement] = {}
        self._group_numbers: dict[str, int] = {}
        self._unread_groups: list[GroupMeasurement | Purchase] = []
        self._takes_over = take_over
        self._sequence = 0  # measurements of many answers, and purchases, in the ledger
        self._purchases: dict[str, list[BoughtNumber]] = {}
        self._bought_keys: set[str] = set()  # of questions, also of those of many answers
        self._knowledge = Knowledge(plan.level)
        self._known_groups: dict[str, tuple[ScopeMeasured, LinearEstimates] | None] = {}
        self._free_bounds: dict[float, float] = {}
        self.scope: ScopeMeasured | None = None
        self.releases: list[str] = []  # keys of those in use
        self._ledger_releases = LedgerReleases(ledger, plan, name) if uses_releases else None
        self._open_scope()
        self.refresh()
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
        self.scope = self._knowledge.add_source(reader.plan.forecast, measured)

    def _measure_scope(self, plan: Plan, key: str) -> Entry:
        plan.resources().check()
        blocks = plan.strategy.blocks
        exact = self._exact.counted(plan.forecast.measured_domain, blocks)

        def start(_: Entry) -> tuple[None, bytes, tuple[()]]:
            noisy = self._exact.measured(exact, blocks, plan.noise, self._random)
            return None, noisy.to_bytes(plan.measurement()), ()

        return begin(self.plan, self.ledger, plan.cost, plan.request(), key, start)[0]

    def known(self, question: Question) -> Answer | None:
        """The answer that follows from all that was paid for; None where nothing was."""
        number = self.knowledge(question)
        return None if number is None else self._known(question, number, self._why_known(question))

    def knowledge(self, question: Question) -> KnownNumber | None:
        """All that was measured about a question, by its noise; None where there is nothing.

        The scope and releases in use, answers of epochs, cells of measurements of many answers,
        what was bought, and linear combinations of these.
        """
        return self._knowledge.number(question)

    def use(self, release: Release) -> None:
        """Take a release in the same ledger as a source of answers.

        Raises:
            PlanError: It has no unbiased answers with a law, or is of other records.
            LedgerError: The ledger did not pay for it.
        """
        estimates = self._usable(release)
        assert estimates.measured is not None  # noqa: S101
        self._knowledge.add_source(estimates.forecast, estimates.measured)
        record = release.provenance.get("ledger")
        key = record.get("key") if isinstance(record, Mapping) else None
        self._used(str(key) if key else "a release without a ledger")

    def _used(self, key: str) -> None:
        """Note a release that is in use."""
        if key not in self.releases:
            self.releases.append(key)
        self._known_groups.clear()

    def refresh(self) -> None:
        """Read what the ledger has got since: measurements of the session, and releases."""
        self._read_groups()
        if self._ledger_releases is None:
            return
        for key, forecast, measured in self._ledger_releases.new():
            self._knowledge.add_source(forecast, measured)
            self._used(key)

    def _usable(self, release: Release) -> LinearEstimates:
        """The estimates of a release that this session may use."""
        if not isinstance(release, Release):
            raise PlanError(
                f"a session uses releases, got {shown(type(release).__name__)}; "
                "sf.read_release(folder) reads one that was saved"
            )
        if self.is_dummy:
            raise PlanError("this session has made-up records, which no release is about")
        estimates = release.estimates
        if (
            not isinstance(estimates, LinearEstimates)
            or estimates.measured is None
            or estimates.forecast.strategy.records is not None
        ):
            raise PlanError(
                "a session uses releases of a linear plan, whose answers are unbiased with a law "
                "that is known; this one is adaptive or biased: sf.open_session(..., "
                "start=release) starts the estimate from it"
            )
        if not tells_of(estimates.forecast, self.plan):
            raise PlanError(
                "the release is about another domain, other neighbours or another privacy unit "
                "than the session (or about values inside of bins); only one about the same "
                "records tells what these questions ask"
            )
        if not isinstance(self.ledger, MemoryLedger):
            if not isinstance(self.ledger, Ledger):
                raise PlanError("the ledger of this session cannot be asked about releases")
            check_paid(release, self.ledger)
        return estimates

    def _known(self, question: Question, number: KnownNumber, why: str) -> Answer:
        value = number.value
        possible = self._possible(question, value)
        answer = self._answer(
            question, possible, value, number.half_width(self.plan.level), "known"
        )
        assert answer.low is not None  # noqa: S101
        assert answer.high is not None  # noqa: S101
        narrow = answer.low, answer.high
        low, high = self._around(question, self._safe(question), narrow)
        error = number.standard_error
        return replace(answer, standard_error=error, why=why, safe_low=low, safe_high=high)

    def _around(
        self, question: Question, safe: tuple[float, float], held: tuple[float, float]
    ) -> tuple[float, float] | tuple[None, None]:
        """The interval for questions that were chosen in any way, which holds the narrow one.

        None where an end is infinite.
        """
        low, high = safe
        if not (isfinite(low) and isfinite(high)):
            return None, None
        return (
            min(self._possible(question, low), held[0]),
            max(self._possible(question, high), held[1]),
        )

    def _safe(self, question: Question) -> tuple[float, float]:
        """What holds the truth however the question was chosen; infinite where that is not known.

        The newest measurement that was bought has noise of its own, given everything before it, and
        so has the answer of an epoch; the joint interval of the scope holds for all questions.
        Where there are both, each misses with half of the chance, and what both hold is taken
        (docs/proofs/online.md, Theorem 9).
        """
        level = self.plan.level
        purchases = self._purchases.get(question.key)
        if not purchases:
            number = self.knowledge(question)
            joint = inf if number is None else number.joint_half_width
            tested = self._knowledge.tested(question)
            if tested is not None and not isfinite(joint):
                number, joint = tested, tested.half_width(level)
            return (-inf, inf) if number is None else (number.value - joint, number.value + joint)
        number = None if self.scope is None else self.scope.number(question)
        last = purchases[-1]
        wider = inf if number is None else number.joint((1 - level) / 2)
        if number is None or not isfinite(wider):
            return last.value - last.half, last.value + last.half
        half = last.number(level).half_width((1 + level) / 2)
        low = max(number.value - wider, last.value - half)
        high = min(number.value + wider, last.value + half)
        return (low, high) if low <= high else (last.value - half, last.value + half)

    def _why_known(self, question: Question) -> str:
        """Where a known answer comes from."""
        number = self.knowledge(question)
        for source in self._knowledge.sources:
            if number is source.number(question):
                return IN_SCOPE if source is self.scope else IN_RELEASE
        return BOUGHT

    def known_group(self, question: GroupQuestion) -> GroupAnswer | None:
        """The answer to a question of many answers that follows from the scope or a release."""
        telling = self._telling(question)
        if telling is None:
            return None
        source, estimates = telling
        if estimates.workload is not question.workload:  # another writing of the same queries
            again = source.estimates(question.workload)
            assert again is not None  # noqa: S101
            estimates = again
        why = IN_SCOPE if source is self.scope else IN_RELEASE
        epoch = self.epochs.used
        answer = known_answer(question, estimates, self.plan.level, epoch, is_dummy=self.is_dummy)
        return replace(
            answer, why=why, answers=tuple(replace(one, why=why) for one in answer.answers)
        )

    def _telling(self, question: GroupQuestion) -> tuple[ScopeMeasured, LinearEstimates] | None:
        """The source that tells all numbers of a question with the least error of them all."""
        key, groups = question.key, self._known_groups
        if key not in groups:
            if len(groups) >= LIMITS.groups_in_memory:
                groups.clear()
            each = ((s, s.estimates(question.workload)) for s in self._knowledge.sources)
            telling = [(s, estimates) for s, estimates in each if estimates is not None]
            groups[key] = min(telling, key=lambda one: one[1].forecast.rmse, default=None)
        return groups[key]

    def told(self, question: Question, answer: Answer) -> Answer:
        """An answer with both of its intervals, and why it came about.

        That of a paid or tested answer holds however its question was chosen. Where known numbers
        enclose a tested or untested one, `low` to `high` is what they leave to a question that was
        not chosen by their noise, and the safe interval what their joint bounds leave to any.

        Privacy: a function of answers that were given. What holds: docs/proofs/online.md,
        Theorems 3 and 11.
        """
        why = self._why(question, answer)
        if answer.how == "known" or (answer.how == "paid" and answer.safe_low is not None):
            return answer if answer.why == why else replace(answer, why=why)
        enclosure = None
        if answer.how in ("free", "untested"):
            enclosure = self._knowledge.enclosure(question)
        if enclosure is not None:
            return self._enclosed(question, answer, enclosure, why)
        return replace(answer, why=why, safe_low=answer.low, safe_high=answer.high)

    def _enclosed(
        self, question: Question, answer: Answer, enclosure: Enclosure, why: str
    ) -> Answer:
        """The intervals of a tested or untested answer that known numbers enclose."""
        level, value, share = self.plan.level, answer.value, LIMITS.enclosure_share
        if answer.how == "untested":
            low, high = enclosure.ends(level)
            safe = enclosure.safe_ends(level)
        else:
            low, high = self._near(question, value, share, enclosure.ends)
            safe = self._near(question, value, LIMITS.safe_share, enclosure.safe_ends)
        low = min(self._possible(question, low), value)
        high = max(self._possible(question, high), value)
        safe_low, safe_high = self._around(question, safe, (low, high))
        return replace(
            answer,
            why=why,
            low=low,
            high=high,
            level=level,
            safe_low=safe_low,
            safe_high=safe_high,
        )

    def _near(
        self,
        question: Question,
        value: float,
        share: float,
        ends: Callable[[float], tuple[float, float]],
    ) -> tuple[float, float]:
        """What ends with a share of the chance to miss, and a test's promise with the rest, leave.

        Where the ends are infinite, as for all questions in pure noise, the test has all of it.
        """
        miss = 1 - self.plan.level
        low, high = ends(1 - share * miss)
        is_told = isfinite(low) or isfinite(high)
        bound = self._free_bound(1 - (1 - share) * miss if is_told else self.plan.level)
        promise = bound * self.moved(question) * 2.0**-question.bits
        return max(low, value - promise), min(high, value + promise)

    def _free_bound(self, level: float) -> float:
        """The promise of a test, in persons, at a level."""
        if level not in self._free_bounds:
            self._free_bounds[level] = self.plan.free_bound_at(level)
        return self._free_bounds[level]

    def _why(self, question: Question, answer: Answer) -> str:
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

    @property
    def measurements(self) -> int:
        """How many sources and single questions were measured."""
        return self._knowledge.measurements

    def stored(self, key: str) -> Answer | None:
        """The answer that was given before, if there is one."""
        answer = self._paid.get(key) or self._answers.get(key)
        if answer is None:
            stored = self.ledger.answer(f"{self.name} question {key}")
            answer = None if stored is None else self._remember(Answer.from_bytes(stored))
        return answer

    def earlier(self, question: Question) -> Answer | None:
        """What a question is answered by for nothing.

        By the scope and by what was bought for it; else by what was stored, which stays; else by
        what was measured of it together with others.
        """
        if self._knowledge.holds(question) or question.key in self._purchases:
            return self.known(question)
        stored = self.stored(question.key)
        if stored is None:
            return self.known(question)
        number = self.knowledge(question)
        if number is None or not self._is_sharper(question, number, stored):
            return stored
        return self.known(question)

    def _is_sharper(self, question: Question, number: KnownNumber, stored: Answer) -> bool:
        """Whether what is known has the narrower interval; widths are public, values are not asked.

        The better of both: a test's promise, or the law of what was measured since.
        """
        tested = self._knowledge.tested(question)
        if tested is not None:  # paid for by an epoch
            return number.standard_error < tested.standard_error * (1 - LIMITS.error_rounding)
        promise = self.plan.free_bound * self.moved(question) * 2.0**-question.bits
        return stored.how == "free" and number.half_width(self.plan.level) < promise

    def begin(
        self, questions: Sequence[Question], analyst: str | None
    ) -> dict[str, PendingAnswer | Answer | SfumatoError]:
        """Stored answers, answers on their way, and tests of what is new, by key."""
        outcomes, new = self._earlier(questions)
        answers = (one for one in outcomes.values() if isinstance(one, Answer))
        if new or any(one.how == "known" for one in answers):
            seen = self.measurements
            self.refresh()
            if self.measurements != seen:
                outcomes, new = self._earlier(questions)
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

    def _earlier(
        self, questions: Sequence[Question]
    ) -> tuple[dict[str, PendingAnswer | Answer | SfumatoError], dict[str, Question]]:
        """What there is for nothing, or is on its way, by key; and what is new."""
        outcomes: dict[str, PendingAnswer | Answer | SfumatoError] = {}
        new: dict[str, Question] = {}
        for question in questions:
            key = question.key
            if key in outcomes or key in new:
                continue
            earlier = self.pending.get(key) or self.earlier(question)
            if earlier is None:
                new[key] = question
            elif isinstance(earlier, Answer):
                outcomes[key] = replace(earlier, is_stored=earlier.how != "known")
            else:
                outcomes[key] = earlier
        return outcomes, new

    def ask_group(self, question: GroupQuestion, analyst: str | None) -> GroupAnswer:
        """The stored answer to a question of many answers, or a new one: one debit, all or nothing.

        Privacy: docs/proofs/online.md, Theorem 5: the debit comes before the noise, which is that
        of the plan; where the process dies between them, the debit is spent and nothing was told.
        """
        _check_analyst(analyst)

        def stored() -> GroupAnswer | None:
            return self.free_group(question) or self.stored_group(question)

        return self._paid_once(stored, lambda number: self._pay_group(question, number, analyst))

    def _pay_group(self, question: GroupQuestion, number: int, analyst: str | None) -> GroupAnswer:
        """Debit, draw and store one measurement of all numbers of a question."""
        if self.ledger.is_frozen():
            raise LedgerFrozen(_FROZEN)
        self.epochs.check_more()
        run = question.run.checked(None)
        plan = run.plan
        blocks = plan.strategy.blocks
        exact = self._exact.counted(plan.forecast.measured_domain, blocks)
        epochs = self._read

        def start(entry: Entry) -> tuple[GroupMeasurement, bytes, tuple[()]]:
            self._sequence = number
            self.epochs.measured += 1
            noisy = self._exact.measured(exact, blocks, plan.noise, self._random)
            measured = noisy.to_bytes(plan.measurement())
            release = replace(run, project=False).publish(measured, entry, False, None)
            stored = question.measurement(measured, release, epochs)
            return stored, stored.to_bytes(), ()

        key, request = self._group_key(number), plan.request()
        entry, measurement = begin(
            self.plan, self.ledger, plan.cost, request, key, start, analyst=analyst
        )
        self._add_group(number, measurement)
        self._read_paid()
        return self._published(question, measurement, entry, is_stored=False)

    def _paid_once(self, answered: Callable[[], A | None], pay: Callable[[int], A]) -> A:
        """What is known by now; else what ``pay`` gives for the next number of the session.

        A number is one debit: whoever comes second waits for what the first one measures, and looks
        again (docs/proofs/online.md, Theorem 5).

        Raises:
            LedgerError: Another process has been measuring for long.
        """
        for _ in range(LIMITS.measurement_looks):
            self.refresh()
            answer = answered()
            if answer is not None:
                return answer
            number = self._sequence + 1
            if not self._is_under_way(self.ledger.entry(self._group_key(number))):
                try:
                    return pay(number)
                except LedgerError:
                    is_taken = self.ledger.entry(self._group_key(number)) is not None
                    if self._sequence == number or not is_taken:
                        raise
            sleep(LIMITS.measurement_pause)
        raise LedgerError(
            "another process is measuring for this session; ask again, or open the session with "
            "take_over=True if that one is known to be gone (what it debited is then spent)"
        )

    def _is_under_way(self, entry: Entry | None) -> bool:
        """Whether somebody who may live is about to answer a debit."""
        if entry is None or entry.state != "reserved" or self._takes_over:
            return False
        return bool(entry.owner) and not is_gone(entry.owner)

    def free_group(self, question: GroupQuestion) -> GroupAnswer | None:
        """The answer to a question of many answers that follows from what was paid for.

        As it was measured, from one source for all of its numbers, or number by number from all
        that is known of each: the first of these with the least typical error.
        """
        ways = self._group_ways(question)
        least = min((error for error, _ in ways), default=0.0)
        for error, way in ways:
            if error <= least * (1 + LIMITS.error_rounding):
                return way()
        return None

    def is_free_group(self, question: GroupQuestion) -> bool:
        """Whether `free_group` has an answer."""
        return bool(self._group_ways(question))

    def _group_ways(
        self, question: GroupQuestion
    ) -> list[tuple[float, Callable[[], GroupAnswer | None]]]:
        """The ways to answer a question of many answers for nothing, with their typical errors."""
        ways: list[tuple[float, Callable[[], GroupAnswer | None]]] = []
        measurement = self.groups.get(question.key)
        if measurement is not None:
            ways.append((question.plan.rmse, lambda: self._measured_group(question, measurement)))
        telling = self._telling(question)
        if telling is not None:
            ways.append((telling[1].forecast.rmse, lambda: self.known_group(question)))
        cells = self._cells_error(question)
        if cells is not None:
            ways.append((cells, lambda: self.group_answer(question, None)))
        return ways

    def _cells_error(self, question: GroupQuestion) -> float | None:
        """The typical error of the numbers of a question, each from all that is known of it."""
        is_apart = len(self._knowledge.sources) > 1 or self._knowledge.has_draws
        if not (is_apart or question.key in self._bought_keys):
            return None
        numbers = [self.knowledge(cell) for cell in question.cells()]
        errors = [number.standard_error for number in numbers if number is not None]
        if not errors or len(errors) < len(numbers):
            return None
        return float(np.sqrt(np.mean(np.square(errors))))

    def _measured_group(
        self, question: GroupQuestion, measurement: GroupMeasurement
    ) -> GroupAnswer:
        """The answer that was measured before."""
        entry = self.ledger.entry(self._group_key(self._group_numbers[question.key]))
        assert entry is not None  # noqa: S101
        return self._published(question, measurement, entry, is_stored=True)

    def stored_group(self, question: GroupQuestion) -> GroupAnswer | None:
        """The answer of which all parts were given before, one by one; None if there is none."""
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
        self._unread_groups.append(measurement)
        for cell, law in measurement.numbers(self.plan.noise.kind, self.plan.level):
            self._knowledge.add(cell, law, apart=measurement.apart)

    def _add_purchase(self, key: str, purchase: Purchase) -> None:
        self._bought_keys.add(key)
        for one in purchase.numbers:
            self._purchases.setdefault(one.question.key, []).append(one)
            number = one.number(self.plan.level)
            self._knowledge.add(one.question, number, apart=purchase.apart)
        self._unread_groups.append(purchase)

    def _read_groups(self) -> None:
        """Read the measurements of the session that the ledger has and that are not read yet.

        In their order: where one is under way elsewhere, later ones wait for it.
        """
        while (entry := self.ledger.entry(self._group_key(self._sequence + 1))) is not None:
            if self._is_under_way(entry):
                break  # its answer will be read in its turn
            self._sequence += 1
            bought = json.loads(entry.request).get("bought")
            if bought is not None:
                self.epochs.bought += amount_of(entry.cost, self.plan.noise.kind)
            else:
                self.epochs.measured += 1
            stored = self.ledger.answer(entry.key)
            if stored is None:  # its process died between the debit and the answer
                continue
            if bought is not None:
                self._add_purchase(bought, Purchase.from_bytes(stored, self.plan.domain))
            else:
                one = GroupMeasurement.from_bytes(stored, self.plan.domain)
                self._add_group(self._sequence, one)

    # Accuracy that is paid for

    def offer(self, question: Question, error: float) -> Offer | None:
        """The one measurement that is missing for an error; None where what is known has it.

        Raises:
            PlanError: The error is finer than the grid of answers.
        """
        number, moved = self.knowledge(question), self.moved(question)
        variance = missing_variance(number, error)
        if variance is None:
            return None
        law = least_noise(variance, moved, question.bits, self.plan.noise.kind)
        half, steps = _noise(law, self.plan.level, moved)
        unit = 2.0 ** -(question.bits + answer_shift(moved))
        return offer(number, law, steps * unit**2, half * unit)

    def least_error(
        self, question: Question | GroupQuestion, analyst: str | None = None
    ) -> float | None:
        """The least error that what is left of session, ledger and allowance buys."""
        kind, amount = self.plan.noise.kind, self.epochs.amount_left()
        if not isinstance(self.ledger, MemoryLedger):
            left = self.ledger.remaining(analyst)
            mine = Fraction(left.gaussian_mu or 0) ** 2 if kind == "gaussian" else left.pure_epsilon
            amount = min(amount, mine)
        if isinstance(question, GroupQuestion):
            cells = self._cells(question)
            plan = self._plan_at(question, self.plan.measurement_budget)
            spent = float(amount_of(plan.cost, kind)) ** (1 if kind == "gaussian" else 2)
            terms = range(len(plan.workload.terms))
            variances = np.concatenate([plan.variances(t) * spent for t in terms]).tolist()
        else:
            cells = (question,)
            moved = self.moved(question) * 2.0**-question.bits
            variances = [moved**2 if kind == "gaussian" else 2 * moved**2]
        return least_error([self.knowledge(cell) for cell in cells], amount, variances, kind)

    def _plan_at(self, question: GroupQuestion, budget: Budget) -> Plan:
        if question.planned_at is None:
            raise PlanError(_NOT_LINEAR)
        return question.planned_at(budget)

    def can_pay(self, one: Offer | GroupOffer, analyst: str | None = None) -> bool:
        """Whether session, ledger and allowance have what a measurement costs."""
        if one.amount > self.epochs.amount_left():
            return False
        return self.ledger.how_many_more(one.cost, analyst) >= 1

    def ask_within(self, question: Question, error: float, analyst: str | None) -> Answer:
        """The answer with at most this standard error; what is missing for it is bought, once.

        Privacy: docs/proofs/online.md, Theorem 8: the debit comes before the noise, which is fresh;
        where the process dies between them, the debit is spent and nothing was told.
        """

        def known() -> Answer | None:
            number = self.knowledge(question)
            if number is None or self.offer(question, error) is not None:
                return None
            why = f"{self._why_known(question)}; its error of {number.standard_error:.3g} is enough"
            answer = self._known(question, number, why)
            return replace(answer, is_stored=question.key in self._purchases)

        def pay(at: int) -> Answer:
            before, one = self.knowledge(question), self.offer(question, error)
            assert one is not None  # noqa: S101  else it is known
            self._check_purchase(one, question, error, analyst)
            self._buy(question, one, (at, error), analyst)
            after = self.knowledge(question)
            assert after is not None  # noqa: S101
            answer = self._known(question, after, _bought_because(before))
            return replace(answer, how="paid", cost=tuple(one.cost.as_json()))

        return self._paid_once(known, pay)

    def ask_group_within(
        self, question: GroupQuestion, error: float, analyst: str | None
    ) -> GroupAnswer:
        """The answer to a question of many counts or sums, each with at most this standard error.

        What is missing is bought for all of them together: one measurement, one debit.

        Privacy: docs/proofs/online.md, Theorem 8.
        """

        def known() -> GroupAnswer | None:
            one = self.group_offer(question, error)
            return self.group_answer(question, None) if one is None else None

        def pay(at: int) -> GroupAnswer:
            one = self.group_offer(question, error)
            assert one is not None  # noqa: S101  else it is known
            self._check_purchase(one, question, error, analyst)
            self._buy_group(question, one, (at, error), analyst)
            return self.group_answer(question, one)

        return self._paid_once(known, pay)

    def group_offer(self, question: GroupQuestion, error: float) -> GroupOffer | None:
        """The one measurement of all cells that is missing for an error; None if none is.

        Raises:
            PlanError: The answers are no counts or sums, or too many.
        """
        numbers = [self.knowledge(cell) for cell in self._cells(question)]
        kind, planned = self.plan.noise.kind, partial(self._plan_at, question)
        return group_offer(planned, numbers, error, self.plan.part, kind)

    def group_answer(self, question: GroupQuestion, one: GroupOffer | None) -> GroupAnswer:
        """What all that was paid for says of every cell."""
        statement, level = question.statement, self.plan.level
        each = level if statement is None else statement.level(level)
        answers, wide = [], []
        how: How = "known" if one is None else "paid"
        for cell in self._cells(question):
            number = self.knowledge(cell)
            assert number is not None  # noqa: S101  measured now, or known before
            answer = self._known(cell, number, self._why_known(cell))
            answer = replace(answer, how=how, is_stored=cell.key in self._purchases and one is None)
            answers.append(answer.asked_as(cell))
            half = number.half_width(each)
            ends = self._answer(cell, answer.value, number.value, half, "known")
            wide.append(replace(ends, level=each).asked_as(cell))
        cost = () if one is None else tuple(one.cost.as_json())
        return cells_answer(question, answers, wide, cost, self.is_dummy)

    def _cells(self, question: GroupQuestion) -> tuple[Question, ...]:
        """The questions behind one of many answers.

        Raises:
            PlanError: There are none.
        """
        cells = question.cells()
        if not cells:
            raise PlanError(_NOT_LINEAR)
        return cells

    def _check_purchase(
        self,
        one: Offer | GroupOffer,
        question: Question | GroupQuestion,
        error: float,
        analyst: str | None,
    ) -> None:
        """Refuse what cannot be paid for, or not be drawn, before anything is spent."""
        _check_analyst(analyst)
        if self.ledger.is_frozen():
            raise LedgerFrozen(_FROZEN)
        if not self.can_pay(one, analyst):
            raise BudgetExhausted(self.too_dear(question, error, one, analyst))
        if isinstance(one, Offer) and isinstance(question, Question):
            moved = self.moved(question)
            if _scale(one.law, moved) > SCALE_MAXIMUM:
                raise TooLarge(
                    f"one person can change the answer to {question.name!r} by {moved:,} steps, "
                    "too many for the noise that this error needs; ask in coarser units"
                )

    def too_dear(
        self,
        question: Question | GroupQuestion,
        error: float,
        one: Offer | GroupOffer,
        analyst: str | None,
    ) -> str:
        """Why an error cannot be paid for, and which one can."""
        currency = "mu^2" if self.plan.noise.kind == "gaussian" else "epsilon"
        words = (
            f"an error of {error:g} would cost {currency} = {float(one.amount):.3g}, more than is "
            "left of the session, the ledger or an allowance; nothing was spent"
        )
        least = self.least_error(question, analyst)
        number = self.knowledge(question) if isinstance(question, Question) else None
        if least is None:
            return f"{words}, and nothing is left that would buy any precision"
        aside = "" if number is None else f" (what is known has {number.standard_error:.3g})"
        if number is not None and least >= number.standard_error:
            return (
                f"{words}; what is known has an error of {number.standard_error:.3g}, for nothing"
            )
        return f"{words}; for what is left an error of {least:.3g} can be had{aside}"

    def _buy(
        self, question: Question, one: Offer, place: tuple[int, float], analyst: str | None
    ) -> None:
        """Debit, draw and store one measurement of a question."""
        moved = self.moved(question)
        self._exact.prepare(question.attributes)
        unit = 2.0 ** -(question.bits + answer_shift(moved))
        steps = _scale(one.law, moved)
        shape, tails = (inf, SMOOTH) if one.law.kind == "gaussian" else (1.0, SMOOTH)
        if one.law.kind == "laplace" and steps < PRIVACY_LIMITS.fine_steps:
            tails = NoiseTails((steps,))
        law = CombinationError(sqrt(one.variance), shape, 0.0, tails)
        about = {"noise": [one.law.kind, str(one.law.scale)]}

        def drawn() -> tuple[BoughtNumber, ...]:
            noisy = self._exact.noisy(question, one.law, self._random) * unit
            return (BoughtNumber(question, noisy, law, one.half),)

        self._bought(question.key, one, place, about, drawn, analyst, (True, 1.0))

    def _buy_group(
        self,
        question: GroupQuestion,
        one: GroupOffer,
        place: tuple[int, float],
        analyst: str | None,
    ) -> None:
        """Debit, draw and store one measurement of all cells of a question."""
        run, cells = LinearRun(one.plan).checked(None), self._cells(question)
        plan = run.plan
        blocks = plan.strategy.blocks
        exact = self._exact.counted(plan.forecast.measured_domain, blocks)

        def drawn() -> tuple[BoughtNumber, ...]:
            noisy = self._exact.measured(exact, blocks, plan.noise, self._random)
            values = [m.values for m in noisy.measurements]
            terms = range(len(plan.workload.terms))
            answers = np.concatenate([plan.strategy.answer(t, values) for t in terms])
            return one.bought(answers.tolist(), cells, self.plan.level)

        about = {"measured": plan.request()}
        use = question.can_be_learnt, apart(plan)
        self._bought(question.key, one, place, about, drawn, analyst, use)

    def _bought(
        self,
        key: str,
        one: Offer | GroupOffer,
        place: tuple[int, float],
        about: Mapping[str, object],
        drawn: Callable[[], tuple[BoughtNumber, ...]],
        analyst: str | None,
        use: tuple[bool, float],
    ) -> None:
        """Debit a measurement, draw it, store it, and learn it.

        ``place``: under which number of the session, and for which error; ``use``: whether the
        estimate learns it, and `Purchase.apart`.

        Privacy: the cost is debited first, under the next number of the session; where what
        follows fails, the debit stays and counts as spent.
        """
        (number, error), epochs = place, self._read
        request = {
            "session": self.name,
            "bought": key,
            "number": number,
            "error": error,
            "plan": self.plan.digest(),
            **about,
        }

        def start(_: Entry) -> tuple[Purchase, bytes, tuple[()]]:
            self._sequence = number
            self.epochs.bought += one.amount
            made = Purchase(drawn(), epochs, *use)
            return made, made.to_bytes(), ()

        entry_key = self._group_key(number)
        made = begin(self.plan, self.ledger, one.cost, request, entry_key, start, analyst=analyst)
        self._add_purchase(key, made[1])
        self._read_paid()

    def question_of(self, key: str) -> Question | None:
        """A question that something was bought for, by its key."""
        purchases = self._purchases.get(key)
        return purchases[-1].question if purchases else None

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
                self._begun_estimate(analyst)
                vector = self.epochs.open()
                self._read_paid()  # others may have had the session meanwhile
                estimate = self._begun_estimate(analyst)
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
        if self._total is None and self.plan.records_cost is not None:
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
        self._read_paid()
        return answer

    def _answer(
        self, question: Question, value: float, middle: float, half: float, how: How
    ) -> Answer:
        """An answer whose interval is cut to what is possible, and holds its own value."""
        answer = Answer(
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
        return answer if how == "known" else answer.as_safe()

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

    @property
    def estimate(self) -> Estimate | None:
        """The estimate, with all that was read learnt; None before there is a number of records.

        It is made when it is first needed: stored and known answers do without.
        """
        if self._total is None:
            return None
        if self._estimate is None:
            plan = self.plan
            rate = plan.rate(self._total) if plan.learning == "hedge" else 0.0
            start = self._start
            if start is None and self.scope is not None:  # what it measured is the start
                start = fitted_start(plan.domain, self.scope.tables())
            self._estimate = Estimate(plan.domain, self._total, start, plan.learning, rate)
        while self._unlearnt:
            is_found_wrong, learnt = self._unlearnt.pop(0)
            for question, noisy, variance in learnt:
                off = self._estimate.answer(question) - noisy
                self._differences[is_found_wrong].append((off, variance))
            self._estimate.learn_all(learnt)
        return self._estimate

    def calibration(self) -> Calibration:
        """How far the estimate was from what was measured, before it learnt that."""
        _ = self.estimate
        return Calibration(
            *(Differences.of(self._differences[is_wrong]) for is_wrong in (True, False))
        )

    def _begun_estimate(self, analyst: str | None) -> Estimate:
        """The estimate; begun when first needed, with a number of records that is paid for.

        Privacy: that number has noise and a debit of its own, before it is drawn.
        """
        if self._total is None:
            self._replay()
        if self._total is None:
            law, cost = self.plan.records_noise, self.plan.records_cost
            assert law is not None  # noqa: S101
            assert cost is not None  # noqa: S101
            self._total = self._counted(law, cost, analyst)
        estimate = self.estimate
        assert estimate is not None  # noqa: S101
        return estimate

    def _counted(self, law: NoiseLaw, cost: Cost, analyst: str | None) -> float:
        """The number of records with noise; a debit whose answer was lost costs epochs."""
        number = 1
        while (entry := self.ledger.entry(self._records_key(number))) is not None:
            if self._is_under_way(entry):
                raise LedgerError(
                    "another process is counting the records for this session; ask again"
                )
            number += 1
        self.epochs.lost = (number - 1) * self.plan.epochs_per_count
        if self.epochs.parts_left() < 1:
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

    def _replay(self) -> None:
        """Read again what was paid for: the estimate is a function of stored answers."""
        total = None if self.scope is None else self.scope.number(self._whole)
        if self._rows is not None:
            self._total = float(self._rows)
        elif total is not None:  # the scope tells how many there are
            self._total = max(total.value, 1.0)
        else:
            number = 1
            while (stored := self.ledger.answer(self._records_key(number))) is None:
                if self.ledger.entry(self._records_key(number)) is None:
                    return
                number += 1
            self.epochs.lost = (number - 1) * self.plan.epochs_per_count
            self._total = float(json.loads(stored)["records"])
        self._read_paid()

    def _read_paid(self) -> None:
        """Read what was paid for since the last time, in the order of the epochs.

        A measurement of many answers is learnt after the epochs that were read when it was made.
        """
        if self._total is None:
            return
        used, groups = self.epochs.used, self._unread_groups
        while True:
            while groups and groups[0].epochs <= self._read:
                self._unlearnt.append((False, groups.pop(0).learnt))
            if self._read >= used:
                break
            stored = self.ledger.answer(f"{self.name} paid {self._read + 1}")
            if stored is None and self._read + 1 == used:
                break  # the last epoch may not be over yet; an earlier one was lost
            self._read += 1
            if stored is not None:
                answer, question, noisy, variance = paid_answer(stored, self.plan.domain)
                self._paid[answer.key] = answer
                if variance > 0:
                    number = single_draw(noisy, variance, self.plan.noise.kind, self.plan.level)
                    self._knowledge.add_tested(answer.key, number)
                self._unlearnt.append((True, ((question, noisy, variance),)))


def caught(action: Callable[[A], B], argument: A) -> B | SfumatoError:
    """What an action returns, or the fault that it raises on purpose."""
    try:
        return action(argument)
    except SfumatoError as error:
        return error


def _bought_because(before: KnownNumber | None) -> str:
    """Why something was bought, in words."""
    if before is None:
        return "nothing was measured of it before, so a measurement was paid for"
    return (
        f"what was measured before had an error of {before.standard_error:.3g}; the precision that "
        "was missing was paid for"
    )


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
