# SPDX-License-Identifier: Apache-2.0
"""Questions of many answers in a session: what one measurement tells, for one debit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.random import WordSource, system_words
from sfumato.run.linear import Plan, plan
from sfumato.session.answering import SessionState
from sfumato.session.epochs import MemoryLedger
from sfumato.session.group_questions import GroupQuestion
from sfumato.session.session import Session, plan_session
from sfumato.session.session_plan import SessionParameters
from sfumato.types import Array, Neighbours
from sfumato.vault.mechanisms.measure import Exact
from sfumato.vault.mechanisms.questions import ExactQuestions
from sfumato.vault.sensitive import Sensitive
from sfumato.workload.question import questions_of
from sfumato.workload.statements.sql import sql
from sfumato_audit.bounds import Claim
from sfumato_audit.examine import Pair, Sampler, Subject, Table, listed_pairs, pairs_at_random
from sfumato_audit.subjects.measured import Measuring, opened

__all__ = [
    "broken_group_subjects",
    "broken_purchase_subjects",
    "group_subjects",
    "purchase_subjects",
]

COVERED = "sfumato.vault.mechanisms.questions.ExactQuestions.measured"
DOMAIN = Domain({"age": 6, "sex": 2})
GROUPED = "SELECT age, sex, COUNT(*) FROM t GROUP BY age, sex"
MIXED = "SELECT sex, COUNT(*), AVG(age), MEDIAN(age) FROM t GROUP BY sex"


@dataclass(frozen=True, eq=False)
class GroupMeasuring(Measuring):
    """The measurement of a question of many answers, as a session counts and draws it."""

    def exact(self, table: Table) -> Exact:
        """Count a table, once, as a session does."""
        if table not in self.counted:
            questions = self._questions(table)
            self.counted[table] = questions.counted(self.domain, self.blocks)
        return self.counted[table]

    def measured(self, exact: Exact, runs: int, source: WordSource) -> Array:
        """Noisy values in steps of their grid, a row per run."""
        again = Exact(Sensitive(tuple(np.tile(v, runs) for v in exact.values.reveal())), exact.rows)
        questions = self._questions(())
        outputs = questions.measured(again, self.blocks, self.noise, source)
        columns = [m.units.astype(np.float64).reshape(runs, -1) for m in outputs.measurements]
        rows = np.nan if outputs.rows is None else float(outputs.rows)
        return np.concatenate([*columns, np.full((runs, 1), rows)], axis=1)

    def _questions(self, table: Table) -> ExactQuestions:
        return ExactQuestions(opened(self.domain, table), self.domain, self.neighbours, None)


def group_subjects() -> tuple[Subject[Table], ...]:
    """Cells, means and medians by group, and the scope of a session; both kinds of noise."""
    pure, gaussian = Budget(epsilon=1), Budget(mu=1)
    return (
        _subject("session: groups, pure", GROUPED, pure, "add-remove"),
        _subject("session: groups", GROUPED, gaussian, "replace-one"),
        _subject("session: means and medians by group", MIXED, gaussian, "add-remove"),
        _subject("session: means and medians by group, pure", MIXED, pure, "replace-one"),
        _measuring("session: scope", _scope(gaussian, "add-remove"), "add-remove"),
        _measuring("session: scope, pure", _scope(pure, "replace-one"), "replace-one"),
    )


def broken_group_subjects() -> tuple[Subject[Table], ...]:
    """Running totals with the noise of disjoint cells, and a scope that takes more than it pays."""
    return (
        _as_disjoint("session: medians with the noise of disjoint cells", Budget(epsilon=1)),
        _as_disjoint("session: medians with the Gaussian noise of disjoint cells", Budget(mu=1)),
        _as_whole(),
    )


# Accuracy that is paid for

BOUGHT = "SELECT COUNT(*) FROM t WHERE age < 3 AND sex = 1"
SEVERAL = 20  # records of the first table: far from 0, where answers are cut
PURCHASE_SLOW = 250
NOISY = "sfumato.vault.mechanisms.questions.ExactQuestions.noisy"


def purchase_subjects() -> tuple[Subject[Table], ...]:
    """One answer that is made sharper twice; both kinds of noise."""
    return (
        _purchases("session: purchases, pure", Budget(epsilon=8), (2.0, 1.2, 0.9)),
        _purchases("session: purchases", Budget(mu=4), (1.5, 0.8, 0.5)),
    )


def broken_purchase_subjects() -> tuple[Subject[Table], ...]:
    """A session that forgets what was bought: all precision is drawn, the missing part is paid."""
    errors = tuple(1 - step / 10_000 for step in range(8))
    return (
        _purchases(
            "session: purchases forgotten, pure", Budget(epsilon=8), errors, is_forgetful=True
        ),
        _purchases(
            "session: purchases forgotten",
            Budget(mu=4),
            tuple(0.7 * error for error in errors),
            is_forgetful=True,
        ),
    )


def _purchases(
    name: str, budget: Budget, errors: Sequence[float], *, is_forgetful: bool = False
) -> Subject[Table]:
    """The answers with each error in turn, and a claim of all that is debited for them."""
    parameters = SessionParameters.of(
        DOMAIN, budget, "add-remove", questions=8, updates=1, records=100
    )
    (question,) = questions_of(sql(DOMAIN, BOUGHT))

    def asked(
        exact: ExactQuestions, source: WordSource, parts: Sequence[Sequence[float]]
    ) -> tuple[list[float], Cost]:
        row, cost = [], Cost(())
        for wanted in parts:
            settings = (exact, parameters, MemoryLedger(), None, source, "audit")
            session = Session(SessionState(*settings, is_dummy=False, take_over=False))
            answers = [session.ask(question, error=error) for error in wanted]
            row += [answer.answers[0].value for answer in answers]
            cost = sum((Cost.from_json(list(a.cost)) for a in answers), cost)
        return row, cost

    def sampler(table: Table) -> Sampler:
        exact = ExactQuestions(opened(DOMAIN, table), DOMAIN, "add-remove", None)
        parts = [[error] for error in errors] if is_forgetful else [errors]
        return lambda runs, source: np.array([asked(exact, source, parts)[0] for _ in range(runs)])

    weights = np.array(errors) ** -2.0 if is_forgetful else np.eye(len(errors))[-1]
    exact = ExactQuestions(opened(DOMAIN, ()), DOMAIN, "add-remove", None)
    claim = Claim.of(asked(exact, system_words(), [errors])[1])
    many = ((1, 1),) * SEVERAL
    return Subject(
        name,
        claim,
        (Pair("one record more", many, (*many, (1, 1))),),
        sampler,
        frozenset() if is_forgetful else frozenset({NOISY}),
        None,
        lambda _: lambda outputs: np.asarray(outputs @ weights),
        PURCHASE_SLOW,
        is_forgetful,
    )


def _plan(text: str, budget: Budget, neighbours: Neighbours) -> Plan:
    """The plan of a question in a session that spends all of its budget on one."""
    parameters = SessionParameters.of(
        DOMAIN, budget, neighbours, questions=8, updates=1, records=100
    )
    exact = ExactQuestions(opened(DOMAIN, ()), DOMAIN, neighbours, None)
    settings = (exact, parameters, MemoryLedger(), None, system_words(), "audit")
    question = Session(SessionState(*settings, is_dummy=False, take_over=False)).read(text)
    assert isinstance(question, GroupQuestion)  # noqa: S101 - the texts above have many answers
    return question.plan


def _scope(budget: Budget, neighbours: Neighbours, share: Fraction = Fraction(19, 20)) -> Plan:
    """The plan of what a session measures at opening."""
    session = plan_session(
        DOMAIN,
        budget,
        neighbours,
        questions=8,
        updates=1,
        records=100,
        scope=2,
        scope_share=share,
    )
    assert isinstance(session.scope, Plan)  # noqa: S101
    return session.scope


def _as_whole() -> Subject[Table]:
    """A scope that is debited by its share of the budget and drawn with the noise of all of it."""
    paid = _scope(Budget(epsilon=1), "add-remove", Fraction(1, 2))
    drawn = _scope(Budget(epsilon=4), "add-remove", Fraction(1, 2))
    run = GroupMeasuring(DOMAIN, drawn.strategy.blocks, drawn.noise, "add-remove")
    pairs, claim = listed_pairs(DOMAIN.shape, "add-remove"), Claim.of(paid.cost)
    name = "session: a scope with the noise of more than its share"
    return Subject(name, claim, pairs, run.sampler, hint=run.hint, is_broken=True)


def _subject(name: str, text: str, budget: Budget, neighbours: Neighbours) -> Subject[Table]:
    return _measuring(name, _plan(text, budget, neighbours), neighbours)


def _measuring(name: str, planned: Plan, neighbours: Neighbours) -> Subject[Table]:
    run = GroupMeasuring(DOMAIN, planned.strategy.blocks, planned.noise, neighbours)
    return Subject(
        f"{name} ({neighbours})",
        Claim.of(planned.cost),
        listed_pairs(DOMAIN.shape, neighbours),
        run.sampler,
        frozenset({COVERED}),
        pairs_at_random(DOMAIN.shape, neighbours),
        run.hint,
    )


def _as_disjoint(name: str, budget: Budget) -> Subject[Table]:
    """Running totals as they are, each with the noise that cells of a table need."""
    cells = _plan(GROUPED, budget, "add-remove")
    totals = sql(DOMAIN, "SELECT sex, MEDIAN(age) FROM t GROUP BY sex")
    direct = plan(totals, budget, mechanism=cells.strategy.noise)
    wrong = tuple(
        replace(law, units=int(cells.noise[0].scale * 2 ** (law.grid_bits + law.scale_bits)))
        for law in direct.noise
    )
    run = GroupMeasuring(DOMAIN, direct.strategy.blocks, wrong, "add-remove")
    pairs = listed_pairs(DOMAIN.shape, "add-remove")
    claim = Claim.of(cells.cost)
    return Subject(name, claim, pairs, run.sampler, hint=run.hint, is_broken=True)
