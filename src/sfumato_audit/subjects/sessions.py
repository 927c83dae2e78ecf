# SPDX-License-Identifier: Apache-2.0
"""Sessions: private multiplicative weights, asked the questions that tell most.

Two attributes that are equal in every record, so that what is learnt of the one says nothing of the
other. Of each two questions are asked, both about the cell that one more record falls in: the first
has a little more than the even estimate and should be found right, the second less and should be
found wrong. A record more moves the first away from its estimate and the second nearer to it, which
is the worst case of the sparse vector; the paid answer tells of it once more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sfumato.domain.attributes import Integer
from sfumato.domain.domain import Domain
from sfumato.errors import BudgetExhausted
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.random import WordSource
from sfumato.session.answering import SessionState
from sfumato.session.epochs import MemoryLedger
from sfumato.session.session import Session
from sfumato.session.session_plan import SessionParameters
from sfumato.types import Array, Neighbours
from sfumato.vault.questions import ExactQuestions
from sfumato.workload.build import predicates
from sfumato.workload.predicates import attribute
from sfumato.workload.question import Question, questions_of
from sfumato_audit.bounds import Claim
from sfumato_audit.examine import Pair, Record, Sampler, Subject, Table
from sfumato_audit.subjects.measured import opened

__all__ = [
    "session_plan",
    "session_subject",
    "session_subjects",
]


# No record is dropped, so that their number is public where records are only replaced.
DOMAIN = Domain([Integer(name, 0, 13, outside="clamp", nulls="missing") for name in ("one", "two")])
CELLS = DOMAIN.shape[0]  # of one attribute, the one for missing values among them
EACH = 40  # records in every cell of an even table
UPDATES = len(DOMAIN)
SLOW = 250
COVERED = "sfumato.vault.questions.ExactQuestions.noisy"


def session_subjects() -> tuple[Subject[Table], ...]:
    """Pure budgets and others; records that are added, and replaced ones."""
    # Large budgets, as runs are slow and so few: a loss of 2 could not be seen.
    pure, gaussian = Budget(epsilon=6), Budget(mu=4)
    return (
        _sound("session, pure", pure, "add-remove", 3, 6),
        _sound("session, pure, replaced records", pure, "replace-one", 3, 6),
        _sound("session", gaussian, "add-remove", 0, 5),
    )


def _sound(
    name: str, budget: Budget, neighbours: Neighbours, above: int, below: int
) -> Subject[Table]:
    plan = session_plan(budget, neighbours)
    return session_subject(name, plan, plan, above, below)


def session_plan(budget: Budget, neighbours: Neighbours) -> SessionParameters:
    """A session of as many paid answers as there are attributes."""
    questions = 2 * UPDATES
    return SessionParameters.of(
        DOMAIN, budget, neighbours, questions=questions, updates=UPDATES, records=CELLS * EACH
    )


def session_subject(
    name: str,
    plan: SessionParameters,
    run_plan: SessionParameters,
    above: int,
    below: int,
    again: Callable[[WordSource], WordSource] | None = None,
    moved: Record = (0,) * UPDATES,
) -> Subject[Table]:
    """The session of ``run_plan`` with the claim of ``plan``: they differ only in wrong ones.

    ``above`` and ``below``: by how much the questions exceed their estimate and fall short of it on
    the table with a record more. ``again`` gives the words of one run, ``moved`` is that record.
    """
    questions = _questions()
    low = 2 * EACH - below - 1  # the exact answer to every second question with a record less

    def sampler(table: Table) -> Sampler:
        exact = ExactQuestions(opened(DOMAIN, table), DOMAIN, plan.neighbours, None)

        def run(runs: int, source: WordSource) -> Array:
            each = (source if again is None else again(source) for _ in range(runs))
            return np.array([_answers(exact, run_plan, questions, w) for w in each])

        return run

    def is_hit(outputs: Array) -> Array:
        """Whether all first questions are found right, all second ones wrong, and these low."""
        answers = outputs.reshape(len(outputs), UPDATES, 4)
        is_free, is_paid = answers[:, :, 0] == 0, answers[:, :, 2] == 1
        return np.asarray((is_free & is_paid & (answers[:, :, 3] <= low + 0.5)).all(axis=1) * 1.0)

    is_broken = run_plan is not plan or again is not None
    covers = frozenset() if is_broken else frozenset({COVERED})
    pairs = (_pair(plan.neighbours, above, below, moved),)
    return Subject(
        name, Claim.of(_cost(plan)), pairs, sampler, covers, None, lambda _: is_hit, SLOW, is_broken
    )


def _pair(neighbours: Neighbours, above: int, below: int, moved: Record) -> Pair[Table]:
    """The cells 0 and 1 together hold ``above`` more than half, 0 and 2 ``below + 1`` less."""
    counts = [EACH, EACH + above, EACH - below - 1]
    counts.append(CELLS * EACH - sum(counts))
    left = tuple((cell,) * UPDATES for cell, count in enumerate(counts) for _ in range(count))
    if neighbours == "replace-one":
        return Pair(f"a record of the last cell moves to {moved}", left, (*left[:-1], moved))
    return Pair(f"one more record in {moved}", left, (*left, moved))


def _questions() -> tuple[Question, ...]:
    conditions = []
    for name in DOMAIN.names:
        value = attribute(DOMAIN, name)
        conditions += [(value == 0) | (value == other) for other in (1, 2)]
    return questions_of(predicates(DOMAIN, conditions))


def _answers(
    exact: ExactQuestions,
    plan: SessionParameters,
    questions: tuple[Question, ...],
    source: WordSource,
) -> list[float]:
    """What was answered by a new session, and which answers were paid for."""
    state = SessionState(
        exact, plan, MemoryLedger(), None, source, "audit", is_dummy=False, take_over=False
    )
    row = []
    with Session(state) as session:
        for question in questions:
            try:
                answer = session.ask(question)
                row += [float(answer.is_paid), answer.value]
            except BudgetExhausted:
                row += [np.nan, np.nan]
    return row


def _cost(plan: SessionParameters) -> Cost:
    """Everything that a session may debit."""
    parts = plan.epoch_cost.parts * plan.updates
    return Cost(parts + (() if plan.records_cost is None else plan.records_cost.parts))
