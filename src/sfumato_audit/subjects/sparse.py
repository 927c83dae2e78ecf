# SPDX-License-Identifier: Apache-2.0
"""Subjects of the audit: sparse vectors, scores against a threshold of 0 up to the last discovery.

A table is the list of exact scores in counts; a count is ``STEPS`` grid steps. The pairs are those
that break the known-wrong variants: some scores move up and others down, which a threshold that is
noised once cannot follow. For vectors of several discoveries the worst case of the proof is tried:
early scores are below and late ones above, and both come nearer to each other on the neighbour. Its
sizes are those at which the event "nothing early, everything late" proves most in the fast mode, by
its probabilities (sums over the threshold's noise: tests/audit/test_sparse_events.py).

Sessions are private multiplicative weights, asked the questions that tell most. Two attributes are
equal in every record, so that what is learnt of the one says nothing of the other. Of each two
questions are asked, both about the cell that one more record falls in: the first has a little more
than the even estimate and should be found right, the second less and should be found wrong. A
record more moves the first away from its estimate and the second nearer to it, which is the worst
case of the sparse vector; the paid answer tells of it once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sfumato.domain.attributes import Integer
from sfumato.domain.domain import Domain
from sfumato.errors import BudgetExhausted
from sfumato.planning.sparse_plans import noise_of, sparse_of_epsilon, sparse_of_mu_squared
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.privacy.sparse_vector import NoiseLaw, SparseLaw, noise_cost
from sfumato.random import WordSource
from sfumato.session.answering import SessionState
from sfumato.session.epochs import MemoryLedger
from sfumato.session.session import Session
from sfumato.session.session_plan import SessionParameters
from sfumato.types import Array, Neighbours
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.sparse import ExactQuestions, SparseVector, above_threshold, answer
from sfumato.workload.build import predicates
from sfumato.workload.predicates import attribute
from sfumato.workload.question import Question, questions_of
from sfumato_audit.examine import Claim, Pair, Record, Sampler, Score, Subject, Table
from sfumato_audit.subjects.measured import opened

__all__ = [
    "Worst",
    "session_plan",
    "session_subject",
    "session_subjects",
    "sparse_laws",
    "sparse_subjects",
    "vector_subject",
]

Scores = tuple[int, ...]

STEPS = 16
SLOW = 24
FIRST_TOTAL = Fraction(2)  # epsilon of AboveThreshold
TOTAL = Fraction(4)  # epsilon, or mu: large, as outcomes tell little
MODULE = "sfumato.vault.mechanisms.sparse"
TESTED = frozenset({f"{MODULE}.SparseVector", f"{MODULE}.SparseVector.test_many"})


@dataclass(frozen=True, slots=True)
class Worst:
    """``early`` scores of ``low`` and ``late`` ones of ``high``, which move as told on the left."""

    early: int
    low: int
    late: int
    high: int
    moves_late: bool = True

    def pair(self) -> Pair[Scores]:
        """The table on which nothing early and everything late is likelier, and its neighbour."""
        raised = self.high + self.moves_late
        left = (self.low,) * self.early + (raised,) * self.late
        right = (self.low + 1,) * self.early + (self.high,) * self.late
        return Pair("low ones early, high ones late; or nearer to each other", left, right)

    def is_hit(self, outputs: Array, discoveries: int) -> Array:
        """Whether nothing early was found, and late all that may be."""
        nothing = (outputs[:, : self.early] == 0).all(axis=1)
        return np.asarray(nothing & (np.nansum(outputs, axis=1) == discoveries), dtype=np.float64)


def sparse_laws() -> dict[str, tuple[SparseLaw, Worst]]:
    """Sparse vectors with every pair of laws, each with its worst case."""
    few = Fraction(1, 16)
    gaussian = sparse_of_epsilon(TOTAL, 2, STEPS, query="gaussian", false_alarm=few)
    squared = sparse_of_mu_squared(TOTAL**2, 2, STEPS)
    monotone = sparse_of_epsilon(TOTAL, 3, STEPS, is_monotone=True)
    return {
        "sparse vector of 3": (sparse_of_epsilon(TOTAL, 3, STEPS), Worst(6, -1, 6, -1)),
        "sparse vector of 3, monotone": (monotone, Worst(8, -1, 6, 0, moves_late=False)),
        "sparse vector of 2, Gaussian queries": (gaussian, Worst(12, -3, 5, -2)),
        "sparse vector of 2, Gaussian threshold": (squared, Worst(4, -1, 5, -1)),
    }


def sparse_subjects() -> tuple[Subject[Scores], ...]:
    """AboveThreshold, sparse vectors with every pair of laws, and with numeric answers."""
    half = FIRST_TOTAL / 2
    pure = sparse_of_epsilon(half, 1, STEPS), noise_of(half, "laplace", STEPS)
    squared = sparse_of_mu_squared(half, 1, STEPS), noise_of(half, "gaussian", STEPS)
    return (
        _first(sparse_of_epsilon(FIRST_TOTAL, 1, STEPS)),
        *(vector_subject(name, law, worst) for name, (law, worst) in sparse_laws().items()),
        _numeric("numeric sparse", *pure),
        _numeric("numeric sparse, Gaussian", *squared),
    )


_PAIRS: tuple[Pair[Scores], ...] = (
    Pair("all equal, or 3 higher and 3 lower", (0,) * 6, (1,) * 3 + (-1,) * 3),
    Pair("12 below and 3 at it, or nearer", (-2,) * 12 + (0,) * 3, (-1,) * 15),
    Pair("0 and 1, or 1 and 0", (0, 1), (1, 0)),
    # The worst case of the proof, which is reached as those below grow many.
    Pair("only the last is high, or only it is low", (0,) * 4 + (1,), (1,) * 4 + (0,)),
)


def _known(pair: Pair[Scores]) -> Score:
    """Whether the first that is above is the first that is higher on the left."""
    above = np.array(pair.left) > np.array(pair.right)
    first = float(above.argmax()) if above.any() else -1.0
    return lambda outputs: np.asarray(outputs[:, 0] == first, dtype=np.float64)


def _exact(scores: Scores) -> Sensitive[Sequence[int]]:
    return Sensitive([STEPS * s for s in scores])


def _first(law: SparseLaw) -> Subject[Scores]:
    """AboveThreshold: the place of the first score above."""

    def sampler(scores: Scores) -> Sampler:
        exact, zeros = _exact(scores), [0] * len(scores)

        def run(runs: int, source: WordSource) -> Array:
            places = [above_threshold(exact, zeros, law, source) for _ in range(runs)]
            return np.array([[-1.0 if f is None else f] for f in places])

        return run

    covers = TESTED | {f"{MODULE}.above_threshold"}
    claim = Claim.of(law.cost)
    return Subject("AboveThreshold", claim, _PAIRS, sampler, covers, None, _known, SLOW)


def vector_subject(name: str, law: SparseLaw, worst: Worst) -> Subject[Scores]:
    """All outcomes, NaN after the last discovery; half way the state is stored and restored."""

    def sampler(scores: Scores) -> Sampler:
        half = len(scores) // 2
        parts = [_exact(scores[:half]), _exact(scores[half:])]
        rest = len(scores) - half

        def run(runs: int, source: WordSource) -> Array:
            out = np.full((runs, len(scores)), np.nan)
            for row in out:
                vector = SparseVector(law, source)
                early = vector.test_many(parts[0], [0] * half)
                row[: len(early)] = early
                if vector.left:
                    again = SparseVector.restored(law, vector.state(), source)
                    late = again.test_many(parts[1], [0] * rest)
                    row[half : half + len(late)] = late
            return out

        return run

    covers = TESTED | {f"{MODULE}.SparseVector.restored"}

    def known(outputs: Array) -> Array:
        return worst.is_hit(outputs, law.discoveries)

    claim, pairs = Claim.of(law.cost), (worst.pair(),)
    return Subject(name, claim, pairs, sampler, covers, None, lambda _: known, 2 * SLOW)


def _numeric(name: str, law: SparseLaw, noise: NoiseLaw) -> Subject[Scores]:
    """The place of the first score above, and its value with fresh noise."""

    def sampler(scores: Scores) -> Sampler:
        each = [Sensitive(STEPS * s) for s in scores]

        def run(runs: int, source: WordSource) -> Array:
            out = np.full((runs, 2), np.nan)
            for row in out:
                vector = SparseVector(law, source)
                for place, score in enumerate(each):
                    if vector.test(score, 0):
                        row[:] = place, answer(score, noise, source)
                        break
            return out

        return run

    covers = TESTED | {f"{MODULE}.SparseVector.test", f"{MODULE}.answer"}
    cost = law.cost + noise_cost(noise, STEPS)
    return Subject(name, Claim.of(cost), _PAIRS, sampler, covers, slowness=2 * SLOW)


# No record is dropped, so that their number is public where records are only replaced.
DOMAIN = Domain([Integer(name, 0, 13, outside="clamp", nulls="missing") for name in ("one", "two")])
CELLS = DOMAIN.shape[0]  # of one attribute, the one for missing values among them
EACH = 40  # records in every cell of an even table
UPDATES = len(DOMAIN)
SESSION_SLOW = 250
COVERED = "sfumato.vault.mechanisms.sparse.ExactQuestions.noisy"


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
        name,
        Claim.of(_cost(plan)),
        pairs,
        sampler,
        covers,
        None,
        lambda _: is_hit,
        SESSION_SLOW,
        is_broken,
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
                row += [float(answer.is_paid), answer.answers[0].value]
            except BudgetExhausted:
                row += [np.nan, np.nan]
    return row


def _cost(plan: SessionParameters) -> Cost:
    """Everything that a session may debit."""
    parts = plan.epoch_cost.parts * plan.updates
    return Cost(parts + (() if plan.records_cost is None else plan.records_cost.parts))
