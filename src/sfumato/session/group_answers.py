# SPDX-License-Identifier: Apache-2.0
"""The answer to a question of many answers: the shape of its SELECT, and every number behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sfumato.errors import WorkloadError
from sfumato.release.group_sql import (
    ReleasedNumbers,
    statement_columns,
    statement_document,
    statement_frame,
)
from sfumato.release.labels import words_of
from sfumato.session.session_answers import Answer, How, answer_frame
from sfumato.workload.statements.statement import OutputNumbers, Statement, StatementSource

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.release.estimates import Estimates
    from sfumato.release.release import Release
    from sfumato.session.group_questions import GroupQuestion

__all__ = [
    "IN_RELEASE",
    "IN_SCOPE",
    "CellNumbers",
    "GroupAnswer",
    "cells_answer",
    "known_answer",
    "measured_answer",
    "stored_cells_answer",
]


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
