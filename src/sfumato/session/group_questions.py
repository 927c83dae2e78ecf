# SPDX-License-Identifier: Apache-2.0
"""Questions of many answers (a GROUP BY, a mean, a quantile) and what is returned for them.

`GroupQuestion` is a workload with the plan by which it would be measured. Groups are disjoint, so
that one person moves few of the answers, and the planner knows: all of them together cost what one
answer does. What the statement makes of them (means, quantiles, HAVING, ORDER BY, LIMIT) is
arithmetic on noisy numbers. There is one plan, one debit, one measurement: docs/proofs/online.md,
Theorem 5. `GroupAnswer` is the answer in the shape of the SELECT, with every number behind it.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isfinite, sqrt
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sfumato.digest import json_digest
from sfumato.domain.domain import Domain
from sfumato.errors import LedgerError, TooLarge, WorkloadError
from sfumato.ledger.entries import Entry
from sfumato.planning.forecast import CombinationError
from sfumato.privacy.budget import Budget
from sfumato.privacy.noise_laws import SMOOTH, NoiseTails
from sfumato.privacy.sparse_vector import NoiseKind
from sfumato.release.group_sql import (
    ReleasedNumbers,
    statement_columns,
    statement_document,
    statement_frame,
)
from sfumato.release.labels import words_of
from sfumato.release.release import Release
from sfumato.run.linear import LinearRun, Plan
from sfumato.run.spine import Stored
from sfumato.session.scope import KnownNumber
from sfumato.session.session_answers import Answer, How, answer_frame
from sfumato.session.session_limits import LIMITS
from sfumato.workload.bins import hidden_in_sums
from sfumato.workload.question import Question, questions_of
from sfumato.workload.statements.statement import OutputNumbers, Statement, StatementSource
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.release.estimates import Estimates

__all__ = [
    "IN_RELEASE",
    "IN_SCOPE",
    "CellNumbers",
    "GroupAnswer",
    "GroupMeasurement",
    "GroupQuestion",
    "Learnt",
    "apart",
    "cells_answer",
    "group_key",
    "known_answer",
    "labelled_questions",
    "laws_of",
    "learnt_of",
    "learnt_row",
    "measured_answer",
    "stored_cells_answer",
]


Learnt = tuple[Question, float, float]
"""A question, its noisy answer, and the variance of that."""


def group_key(workload: Workload) -> str:
    """The key of a question of many answers: equal for every writing of the same queries."""
    return json_digest({"session": "group 1", "workload": workload.normal.key})


@dataclass(frozen=True, eq=False)
class GroupQuestion:
    """All queries of one SELECT, or of a workload, with the plan that measures them together.

    ``text`` is how the person who asks wrote it; it is no part of the meaning. ``workload`` is what
    is asked, in the groups of who asks. ``planned_at`` plans it for its largest error, at a budget.
    """

    text: str
    workload: Workload
    domain: Domain
    planned: Callable[[], Plan]
    planned_at: Callable[[Budget], Plan] | None = None

    @cached_property
    def plan(self) -> Plan:
        """The plan that would measure it; made when it is needed."""
        return self.planned()

    @cached_property
    def key(self) -> str:
        """SHA-256 of the meaning: equal questions, equal keys."""
        return group_key(self.workload)

    @property
    def statement(self) -> Statement | None:
        """The shape of the answer, where it was asked in SQL."""
        statements = self.workload.statements
        return statements[0] if len(statements) == 1 else None

    @property
    def run(self) -> LinearRun:
        """What measures and publishes it."""
        return LinearRun(self.plan)

    def reader(self, measurement: GroupMeasurement, entry: Entry) -> LinearRun:
        """What publishes a stored measurement: by this plan, or by the one that made it.

        Raises:
            LedgerError: No plan of this version reads it.
        """
        stored = Stored(entry.key, measurement.measured, entry, is_own=True)
        reader = self.run.reader(stored)
        if reader is None:
            raise LedgerError(
                "the ledger has another request where this answer of the session should be; "
                "restore the newest backup"
            )
        return reader

    def cells(self) -> tuple[Question, ...]:
        """The answers as questions of their own, as they were once asked; none where they are not.

        Means and quantiles are no linear queries, and many cells were never asked one by one.
        """
        work, statement = self.workload, self.statement
        is_linear = statement is None or all(out.is_linear for out in statement.outputs)
        if not is_linear or work.domain != self.domain or work.queries > LIMITS.group_learnt:
            return ()
        return labelled_questions(work)

    @property
    def can_be_learnt(self) -> bool:
        """Whether the estimate of a session may learn its answers."""
        work, points = self.workload, min(self.domain.size, LIMITS.listed_cells)
        return (
            work.domain == self.domain
            and work.queries <= LIMITS.group_learnt
            and work.queries * points <= LIMITS.group_learnt_points
        )

    def measurement(self, measured: bytes, release: Release, epochs: int) -> GroupMeasurement:
        """What the ledger keeps of it."""
        learnt = self.learnt(release)
        laws = laws_of(self.plan) if learnt else []
        each: dict[str, CombinationError] = {}
        for question, law in zip(questions_of(self.workload) if learnt else (), laws, strict=True):
            each.setdefault(question.key, law)
        return GroupMeasurement(
            self.key,
            measured,
            learnt,
            epochs,
            tuple(law.shape for law in each.values()),
            laws[0].tails if laws else SMOOTH,
            apart(self.plan) if laws else 0.0,
        )

    def learnt(self, release: Release) -> tuple[Learnt, ...]:
        """What the estimate of a session learns from the measurement; nothing where it cannot.

        The estimate knows the cells of the domain alone, not the values inside of them, and learns
        a limited number of answers at a time.
        """
        work = self.workload
        if not self.can_be_learnt:
            return ()
        estimates, terms = release.estimates, range(len(work.terms))
        at = estimates.numbers.index("unbiased")
        values = np.concatenate([estimates.group(t).numbers(LIMITS.level)[at] for t in terms])
        variances = np.concatenate([self.plan.variances(t) for t in terms])
        each: dict[str, Learnt] = {}
        for question, value, variance in zip(questions_of(work), values, variances, strict=True):
            each.setdefault(question.key, (question, float(value), float(variance)))
        return tuple(each.values())


def laws_of(plan: Plan) -> list[CombinationError]:
    """The law of the noise of every answer of a plan."""
    laws = []
    for term in range(len(plan.workload.terms)):
        spread = plan.forecast.spread(term)
        shapes = np.full(len(spread.variances), inf) if spread.shapes is None else spread.shapes
        laws += [
            CombinationError(sqrt(float(variance)), float(shape), 0.0, spread.tails)
            for variance, shape in zip(spread.variances, shapes, strict=True)
        ]
    return laws


def apart(plan: Plan) -> float:
    """How much larger variances are if the answers of a plan count as independent; 0 if not so.

    Those of disjoint cells are: 1, or a little more. Pure noise is if no measured value counts in
    two answers; Gaussian noise with correlations of at most r, such as rounded scales leave, has a
    covariance of at most ``1 + (k - 1) r`` times its diagonal (Gershgorin).
    """
    strategy, variances = plan.strategy, plan.forecast.block_variances
    sizes = [term.rows for term in plan.workload.terms]
    first = np.concatenate([[0], np.cumsum(sizes)])
    covariance = np.zeros((int(first[-1]), int(first[-1])))
    is_shared = False
    for b, variance in enumerate(variances):
        whole = np.zeros((int(first[-1]), strategy.block_rows[b]))
        for term in range(len(sizes)):
            try:
                readings = strategy.readings(term)
            except TooLarge:
                return 0.0
            if b in readings:
                whole[first[term] : first[term + 1]] = readings[b]
        is_shared |= bool(np.count_nonzero(whole, axis=0).max(initial=0) > 1)
        covariance += variance * (whole @ whole.T)
    if strategy.noise != "gaussian":
        return 0.0 if is_shared else 1.0
    errors = np.sqrt(np.diagonal(covariance).clip(1e-300))
    correlated = np.abs(covariance / np.outer(errors, errors) - np.eye(len(errors)))
    most = float(correlated.max(initial=0.0))
    return 1 + (len(errors) - 1) * most if most <= LIMITS.correlation else 0.0


def labelled_questions(workload: Workload) -> tuple[Question, ...]:
    """The questions of a workload, each with its group and its cell, as this asker wrote them."""
    return tuple(
        replace(
            question,
            name=said.name or question.name,
            aggregate=said.aggregate,
            condition=said.condition,
            groups=said.groups,
            hides=hidden_in_sums(question.domain[said.binned]) if said.binned else None,
        )
        for question, said in zip(questions_of(workload), words_of(workload), strict=True)
    )


@dataclass(frozen=True, eq=False)
class GroupMeasurement:
    """What the ledger keeps of a question of many answers.

    Attributes:
        key: Of the question.
        measured: The noisy values, with what says how they were measured.
        learnt: What the estimate learns from them.
        epochs: How many paid answers the estimate had learnt before.
        shapes: How many equal draws the noise of each answer is like; infinite where it is normal.
        tails: How far it reaches.
        apart: How much larger variances are if the answers count as independent; 0 if not so.
    """

    key: str
    measured: bytes
    learnt: tuple[Learnt, ...]
    epochs: int
    shapes: tuple[float, ...] = ()
    tails: NoiseTails = SMOOTH
    apart: float = 0.0

    def numbers(self, kind: NoiseKind, level: float) -> list[tuple[Question, KnownNumber]]:
        """What was learnt, as unbiased numbers; none where the law of their noise is not stored."""
        shapes = self.shapes or ((inf,) * len(self.learnt) if kind == "gaussian" else ())
        out = []
        for (question, value, variance), shape in zip(self.learnt, shapes, strict=False):
            if variance > 0:
                law = CombinationError(sqrt(variance), shape, 0.0, self.tails)
                out.append((question, KnownNumber(value, law, level)))
        return out

    def to_bytes(self) -> bytes:
        """What is stored together with the end of the debit: nobody's words."""
        rows = [learnt_row(*one) for one in self.learnt]
        packed = zlib.compress(json.dumps(rows, separators=(",", ":"), allow_nan=False).encode())
        document = {
            "group": self.key,
            "measured": b64encode(self.measured).decode(),
            "learnt": b64encode(packed).decode(),
            "epochs": self.epochs,
            "shapes": [shape if isfinite(shape) else None for shape in self.shapes],
            "tails": self.tails.as_json(),
            "apart": self.apart,
        }
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, stored: bytes, domain: Domain) -> GroupMeasurement:
        """Read what `to_bytes` wrote."""
        try:
            document = json.loads(stored)
            rows = json.loads(zlib.decompress(b64decode(document["learnt"], validate=True)))
            learnt = tuple(learnt_of(row, domain) for row in rows)
            measured = b64decode(document["measured"], validate=True)
            shapes = tuple(inf if s is None else float(s) for s in document.get("shapes", ()))
            tails = NoiseTails.from_json(document["tails"]) if "tails" in document else SMOOTH
            return cls(
                str(document["group"]),
                measured,
                learnt,
                int(document["epochs"]),
                shapes,
                tails,
                float(document.get("apart", 0.0)),  # earlier versions did not say
            )
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError, zlib.error):
            pass
        raise LedgerError("a measurement of the session cannot be read; restore the newest backup")


def learnt_row(question: Question, value: float, variance: float) -> dict[str, object]:
    """A question with its noisy answer, as the ledger keeps it: nobody's words."""
    return {
        "attributes": question.attributes,
        "class_of": [c.tolist() for c in question.class_of],
        "shape": question.table.shape,
        "table": question.table.reshape(-1).tolist(),
        "bits": question.bits,
        "value": value,
        "variance": variance,
    }


def learnt_of(row: dict[str, object], domain: Domain) -> Learnt:
    """Read what `learnt_row` wrote."""
    shape, class_of, names = row["shape"], row["class_of"], row["attributes"]
    assert isinstance(class_of, Sequence)  # noqa: S101
    assert isinstance(names, Sequence)  # noqa: S101
    table = np.array(row["table"], dtype=np.int64).reshape(shape)  # type: ignore[call-overload]
    classes = tuple(np.array(c, dtype=np.int64) for c in class_of)
    question = Question(domain, "", tuple(names), classes, table, int(str(row["bits"])))
    return question, float(str(row["value"])), float(str(row["variance"]))


IN_SCOPE: Final = "in the scope: an unbiased estimate from what was measured at opening"
IN_RELEASE: Final = "in a release of the same ledger: an unbiased estimate from what it measured"


@dataclass(frozen=True, eq=False)
class GroupAnswer:
    """The answer to a SELECT with groups, means or quantiles: one question, paid for once.

    ``frame()`` is the answer in the shape of the SELECT, ``answers`` are the numbers behind it, one
    per group and aggregate, each with an interval that holds the true one with chance ``level``.
    ``cost`` is what was debited for all of them together. The rest is as in `Answer`.
    """

    key: str
    question: str
    answers: tuple[Answer, ...]
    statement: Statement | None
    source: StatementSource = field(repr=False)
    level: float
    how: How
    epoch: int
    cost: tuple[Mapping[str, object], ...]
    is_dummy: bool = False
    is_stored: bool = False
    why: str = ""

    @property
    def is_paid(self) -> bool:
        """Whether budget was spent on this answer itself."""
        return self.how == "paid"

    @cached_property
    def columns(self) -> Mapping[str, OutputNumbers]:
        """The columns as selected, by title, with the ends of their intervals where noisy.

        Raises:
            WorkloadError: It was not asked in SQL.
        """
        if self.statement is None:
            raise WorkloadError("this was asked as a workload, which has no columns; see answers")
        return statement_columns(self.statement, self.source)

    def frame(self) -> pd.DataFrame:
        """The answer in the shape of its SELECT: a row per group that HAVING and LIMIT leave.

        Beside a noisy column ``n`` stand ``n_low`` and ``n_high``. What was asked as a workload has
        one row per query.

        Returns:
            A dataframe.
        """
        if self.statement is None:
            return answer_frame(self.answers)
        return statement_frame(self.statement, self.source)

    @property
    def value(self) -> object:
        """The one value of a SELECT of one aggregate without groups, such as ``AVG(age)``.

        Raises:
            WorkloadError: There is more than one, or none.
        """
        return self._single().value[0]

    @property
    def low(self) -> object:
        """The lower end of its interval."""
        low = self._single().low
        return None if low is None else low[0]

    @property
    def high(self) -> object:
        """The upper end of its interval."""
        high = self._single().high
        return None if high is None else high[0]

    def _single(self) -> OutputNumbers:
        noisy = [one for one in self.columns.values() if one.low is not None]
        if len(noisy) != 1 or len(noisy[0].value) != 1:
            raise WorkloadError(
                "this answer has several rows or columns, and so no one value; take frame()"
            )
        return noisy[0]

    def as_json(self) -> dict[str, object]:
        """The answer as JSON, for who asked."""
        return {
            "key": self.key,
            "answers": [answer.as_json() for answer in self.answers],
            "cost": [dict(part) for part in self.cost],
            **({"statements": self.statements} if self.statements else {}),
        }

    @cached_property
    def statements(self) -> list[dict[str, Any]]:
        """The SELECT in its own shape, as JSON; none where it was asked as a workload."""
        if self.statement is None:
            return []
        return [statement_document(self.statement, self.columns)]


def measured_answer(
    question: GroupQuestion, release: Release, level: float, epoch: int, *, is_dummy: bool
) -> GroupAnswer:
    """The answer from what was measured; everything in it is arithmetic on that."""
    cost: tuple[Mapping[str, object], ...] = tuple(release.cost.as_json())
    is_stored = release.is_stored
    came: _Came = ("paid", epoch, cost, is_dummy, is_stored, "")
    return _estimated(question, release.estimates, level, came)


def known_answer(
    question: GroupQuestion, estimates: Estimates, level: float, epoch: int, *, is_dummy: bool
) -> GroupAnswer:
    """The answer to a question in the scope of a session: free, from what was measured."""
    return _estimated(question, estimates, level, ("known", epoch, (), is_dummy, False, IN_SCOPE))


_Came = tuple[How, int, tuple[Mapping[str, object], ...], bool, bool, str]


def _estimated(
    question: GroupQuestion, estimates: Estimates, level: float, came: _Came
) -> GroupAnswer:
    how, epoch, cost, is_dummy, is_stored, why = came
    statement = question.statement
    each = level if statement is None else statement.level(level)
    answers: list[Answer] = []
    words = words_of(question.workload)
    for t, term in enumerate(question.workload.terms):
        numbers = estimates.group(t)
        ends = (numbers.value(), *numbers.interval(level))
        for value, low, high in zip(*(e.tolist() for e in ends), strict=True):
            said = next(words)
            answers.append(
                Answer(
                    key=question.key,
                    question=said.name or str(term.name),
                    value=value,
                    low=low,
                    high=high,
                    level=level,
                    how=how,
                    epoch=epoch,
                    is_dummy=is_dummy,
                    why=why,
                    aggregate=said.aggregate,
                    condition=said.condition,
                    groups=dict(said.groups),
                    is_stored=is_stored,
                )
            )
    return GroupAnswer(
        question.key,
        question.text,
        tuple(answers),
        statement,
        ReleasedNumbers(estimates, each),
        level,
        how,
        epoch,
        cost,
        is_dummy,
        is_stored,
        why,
    )


@dataclass(frozen=True, slots=True)
class CellNumbers:
    """The numbers of a statement of counts and sums, whose answers were given one by one."""

    rows: tuple[int, ...]
    answers: Sequence[Answer]

    def answer(self, term: int) -> OutputNumbers:
        """The answers of a group of queries."""
        first = sum(self.rows[:term])
        own = self.answers[first : first + self.rows[term]]
        value, low, high = (
            np.array([np.nan if v is None else v for v in column], dtype=np.float64)
            for column in zip(*((a.value, a.low, a.high) for a in own), strict=True)
        )
        return OutputNumbers(value, low, high)

    def mean(self, ratio: int) -> OutputNumbers:
        """None: means were not answered one by one."""
        raise WorkloadError(f"mean {ratio} is not among answers that were given one by one")

    def quantile(self, term: int, attribute: str, probability: float) -> OutputNumbers:
        """None: quantiles were not answered one by one."""
        raise WorkloadError(
            f"quantile {probability} of {attribute!r} (group {term}) is not among answers that "
            "were given one by one"
        )


def stored_cells_answer(question: GroupQuestion, answers: Sequence[Answer]) -> GroupAnswer:
    """The answer to a question all of whose parts were answered one by one before."""
    rows = tuple(term.rows for term in question.workload.terms)
    first = answers[0]
    paid = any(answer.is_paid for answer in answers)
    return GroupAnswer(
        question.key,
        question.text,
        tuple(answers),
        question.statement,
        CellNumbers(rows, answers),
        1.0 if first.level is None else first.level,
        "paid" if paid else "free",
        max(answer.epoch for answer in answers),
        tuple(part for answer in answers for part in answer.cost),
        first.is_dummy,
        is_stored=True,
    )


def cells_answer(
    question: GroupQuestion,
    answers: Sequence[Answer],
    wide: Sequence[Answer],
    cost: tuple[Mapping[str, object], ...],
    is_dummy: bool,
) -> GroupAnswer:
    """The answer to a question of counts and sums by all that was paid for about each of them.

    ``wide`` has the same numbers with intervals for rows that released values may choose.
    """
    rows, first = tuple(term.rows for term in question.workload.terms), answers[0]
    reasons = {answer.why for answer in answers}
    return GroupAnswer(
        question.key,
        question.text,
        tuple(answers),
        question.statement,
        CellNumbers(rows, wide),
        1.0 if first.level is None else first.level,
        first.how,
        first.epoch,
        cost,
        is_dummy,
        is_stored=all(answer.is_stored for answer in answers),
        why=first.why if len(reasons) == 1 else "from all that was measured about each number",
    )
