# SPDX-License-Identifier: Apache-2.0
"""Subjects of the audit: watched series of counts, corrected predictions, streams, sessions.

Streams are the private side of ``sf.Stream``, many streams of equal values at once. Of sessions:
what a question of many answers tells by its one measurement, for one debit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import exp

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.ledger.account import Account
from sfumato.planning.sparse_plans import SparseForecast, plan_sparse
from sfumato.planning.stream_plans import STRATEGIES, StreamForecast, forecast_stream
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost
from sfumato.random import WordSource, integers_below, system_words
from sfumato.run.correct import Correction, correct
from sfumato.run.linear import Plan, plan
from sfumato.run.watch import Watch, Watching, watch
from sfumato.session.answering import SessionState
from sfumato.session.epochs import MemoryLedger
from sfumato.session.group_questions import GroupQuestion
from sfumato.session.session import Session, plan_session
from sfumato.session.session_plan import SessionParameters
from sfumato.types import Array, Neighbours
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.measure import Exact
from sfumato.vault.mechanisms.noise import rounded_gaussian
from sfumato.vault.mechanisms.select import read_answers
from sfumato.vault.mechanisms.sparse import Discoverer, ExactQuestions, times
from sfumato.vault.mechanisms.stream_noise import PrivateStream
from sfumato.workload.build import marginals
from sfumato.workload.question import Question, questions_of
from sfumato.workload.statements.sql import sql
from sfumato_audit.examine import (
    Claim,
    Pair,
    Sampler,
    Subject,
    Table,
    listed_pairs,
    pairs_at_random,
)
from sfumato_audit.subjects.measured import Measuring, opened

__all__ = [
    "LANES",
    "broken_group_subjects",
    "broken_purchase_subjects",
    "broken_whole_session_subjects",
    "filter_subject",
    "group_subjects",
    "online_subjects",
    "purchase_subjects",
    "stream_subjects",
    "whole_session_subjects",
]


Values = tuple[int, ...]

LENGTH = 4
SLOW = 32
MEASURE = "sfumato.vault.mechanisms.stream_noise.PrivateStream.measure"


def stream_subjects() -> tuple[Subject[Values], ...]:
    """Every strategy, and windows; added values, and values moved to another step."""
    pure, mu = Budget(epsilon=1), Budget(mu=1)
    plain = [
        _stream(
            name, forecast_stream(LENGTH, pure if name == "laplace-tree" else mu, strategy=name)
        )
        for name in STRATEGIES
    ]
    moved = forecast_stream(LENGTH, mu, strategy="optimal", neighbours="replace-one")
    window = forecast_stream(LENGTH, mu, strategy="optimal", width=2)
    return (*plain, _stream("optimal", moved), _stream("window", window))


def _stream(name: str, plan: StreamForecast) -> Subject[Values]:
    def sampler(values: Values) -> Sampler:
        def run(runs: int, source: WordSource) -> Array:
            private = PrivateStream(plan, runs, source)
            steps = [private.measure([value] * runs) for value in values]
            return np.concatenate([np.array(s, dtype=np.float64) for s in steps], axis=1)

        return run

    covers = frozenset({f"stream:{name}", MEASURE})
    pairs = _pairs(plan.neighbours)
    shown = f"stream {name} ({plan.neighbours})"
    random = None if plan.neighbours == "replace-one" else _random
    return Subject(shown, Claim.of(plan.cost), pairs, sampler, covers, random, None, SLOW)


def _pairs(neighbours: Neighbours) -> tuple[Pair[Values], ...]:
    if neighbours == "replace-one":
        return (
            Pair("first value moves to the last step", (1, 0, 0, 0), (0, 0, 0, 1)),
            Pair("first value moves to the second step", (1, 0, 0, 0), (0, 1, 0, 0)),
        )
    return (
        Pair("nothing, or one in the first step", (0, 0, 0, 0), (1, 0, 0, 0)),
        Pair("nothing, or one in the last step", (0, 0, 0, 0), (0, 0, 0, 1)),
        Pair("ones, or none in the second step", (1, 1, 1, 1), (1, 0, 1, 1)),
    )


def _random(source: WordSource) -> Pair[Values]:
    values = integers_below(2, LENGTH, source)
    step = int(integers_below(LENGTH, 1, source)[0])
    other = values.copy()
    other[step] ^= 1
    return Pair(f"at random, step {step + 1}", tuple(values.tolist()), tuple(other.tolist()))


Counts = tuple[int, ...]

LANES = Budget(epsilon=3, delta="0.3", pure="2.7")  # large: what is too much must be seen
FIRST = Budget(epsilon="0.3", delta="0.3")  # the first Gaussian answer, which fills its lane
RESERVE = Budget(epsilon=3, delta="0.4", event_delta="0.2")  # half of delta for events
UNLUCKY = 1.0  # the loss above which pure noise tells more than Gaussian noise
CERTAIN = 1000.0  # the loss of what tells the table
STEPS = 16  # grid steps of one count
SLOW_WATCH = 48
SLOW_RELEASE = 240
VAULT = "sfumato.vault"
DAYS: tuple[Pair[Counts], ...] = (
    Pair("low counts, one record more on the first day", (0,) * 6, (1, *(0,) * 5)),
    Pair("low counts, one record more on every day", (0,) * 6, (1,) * 6),
    Pair("high counts, one record less on every day", (2,) * 6, (1,) * 6),
)


def online_subjects() -> tuple[Subject[Table] | Subject[Counts], ...]:
    """Watches and corrections, with pure budgets and with others."""
    # Large budgets, as runs are slow and so few: a loss of 2 could not be seen.
    pure, gaussian = Budget(epsilon=6), Budget(mu=4)
    return (
        _watch("watch, pure", pure),
        _watch("watch", gaussian),
        _watch("watch, killed half way", gaussian, is_killed=True),
        _alerts("sf.watch, pure", pure),
        _alerts("sf.watch", gaussian),
        _running("sf.watch, as counts come", gaussian),
        _correction("sf.correct, pure", pure),
        _correction("sf.correct", gaussian),
        filter_subject("ledger: Gaussian and pure noise from two lanes", LANES),
        filter_subject("ledger: one currency after Gaussian noise", LANES.promise),
        filter_subject("ledger: an event from a reserve, after Gaussian noise", RESERVE),
    )


def filter_subject(
    name: str, total: Budget, second: Budget | None = None, *, is_broken: bool = False
) -> Subject[Counts]:
    """A Gaussian answer, and then what the account of a total still admits and tells most.

    Pure noise (randomized response) where the first answer was unlucky, Gaussian noise elsewhere;
    with lanes both. ``second`` is another total, whose account is asked for the Gaussian noise.
    With a reserve of delta an event of that probability, last of all, tells which table it is.
    """
    first = Fraction(FIRST.gaussian_mu or 0.0) ** 2
    left = Account(total).plus(Cost.gaussian(first)).remaining()
    other = left if second is None else Account(second).plus(Cost.gaussian(first)).remaining()
    pure, rest = float(left.pure_epsilon), other.gaussian_mu or 0.0

    def sampler(counts: Counts) -> Sampler:
        def run(runs: int, source: WordSource) -> Array:
            seen = counts[0] + _gaussian(FIRST.gaussian_mu or 0.0, runs, source)
            loss = (seen - 0.5) * float(first)
            is_unlucky = loss > UNLUCKY
            flipped = source.words(runs) < np.uint64(2**63 / (1 + exp(pure)) * 2)
            bits = np.where(flipped, 1 - counts[0], counts[0]).astype(np.float64)
            gaussian = np.zeros(runs)
            if rest:
                gaussian = (counts[0] + _gaussian(rest, runs, source) - 0.5) * rest**2
            pure_loss = pure * (2 * bits - 1)
            second_loss = np.where(is_unlucky, pure_loss, gaussian)
            if total.event_delta is not None:
                happens = source.words(runs) < np.uint64(int(total.event_delta * 2**64))
                second_loss = np.where(happens, CERTAIN * (2 * counts[0] - 1), second_loss)
            return np.stack([loss, is_unlucky, second_loss], axis=1)

        return run

    assert total.epsilon is not None  # noqa: S101
    claim = Claim("epsilon", float(total.epsilon), float(total.delta or 0))
    pairs = [Pair("a record more", (1,), (0,))]
    hint = lambda _: _whole_loss  # noqa: E731
    return Subject(name, claim, pairs, sampler, hint=hint, is_broken=is_broken)


def _gaussian(mu: float, runs: int, source: WordSource) -> Array:
    """Gaussian noise of deviation 1/mu, on a grid of 2^-12."""
    return rounded_gaussian(Fraction(4096) / Fraction(mu), runs, source) / 4096.0


def _whole_loss(outputs: Array) -> Array:
    """The privacy loss of all that was told."""
    return np.asarray(outputs[:, 0] + outputs[:, 2])


def _watch(name: str, budget: Budget, *, is_killed: bool = False) -> Subject[Counts]:
    """Counts against limits of 1, two alerts with their numbers; the state is restored half way.

    If the process is killed then, the next sparse vector goes on instead.
    """
    plan = plan_sparse(budget, 2, 6, STEPS, is_monotone=True, with_numbers=True)

    def sampler(counts: Counts) -> Sampler:
        half = len(counts) // 2
        parts: list[Sensitive[Sequence[int]]] = [Sensitive(counts[:half]), Sensitive(counts[half:])]
        return lambda runs, source: np.array(
            [_watched(plan, parts, half, source, is_killed) for _ in range(runs)]
        )

    methods = ["Discoverer", "Discoverer.test_many", "Discoverer.numbers"]
    methods.append("Discoverer.after_loss" if is_killed else "Discoverer.restored")
    covers = frozenset(f"{VAULT}.mechanisms.sparse.{method}" for method in methods)
    claim = Claim.of(plan.cost)
    return Subject(name, claim, DAYS, sampler, covers, None, lambda _: _sum, SLOW_WATCH)


def _alerts(name: str, budget: Budget) -> Subject[Counts]:
    """Counts by ``sf.watch``: alerts where a count is 1 or more, with their numbers."""

    def planned() -> Watch:
        return watch(6, budget, 1, alerts=2, counts=True)

    def sampler(counts: Counts) -> Sampler:
        plan, exact = planned(), Sensitive[Sequence[int]](counts)
        return lambda runs, source: np.array(
            [_row(plan.drawn(exact, source), "alerts", plan.steps) for _ in range(runs)]
        )

    covers = frozenset({"sfumato.run.watch.watch", "sfumato.run.watch.Watch.drawn"})
    claim = Claim.of(planned().plan.cost)
    return Subject(name, claim, DAYS, sampler, covers, None, lambda _: _sum, SLOW_RELEASE)


def _running(name: str, budget: Budget) -> Subject[Counts]:
    """Counts one by one: what a running watch tells of each, until all alerts were given."""

    def planned() -> Watch:
        return watch(6, budget, 1, alerts=2, counts=True)

    def sampler(counts: Counts) -> Sampler:
        plan = planned()

        def run_once(source: WordSource) -> list[float]:
            row: list[float] = []
            with Watching(plan, None, "series", "watch", random=source) as running:
                for count in counts:
                    if not running.alerts_left:
                        row += [np.nan, np.nan]
                        continue
                    alert = running.add(count)
                    value = np.nan if alert is None or alert.value is None else alert.value
                    row += [float(alert is not None), value]
            return row

        return lambda runs, source: np.array([run_once(source) for _ in range(runs)])

    covers = frozenset({"sfumato.run.watch.Watching"})
    claim = Claim.of(planned().plan.cost)
    return Subject(name, claim, DAYS, sampler, covers, None, lambda _: _sum, SLOW_RELEASE)


def _correction(name: str, budget: Budget) -> Subject[Table]:
    """Four counts predicted by the answer before them, two of them corrected."""
    work = marginals(Domain({"age": 4}), 1)

    def planned() -> Correction:
        return correct(work, budget, 1, corrections=2)

    def sampler(table: Table) -> Sampler:
        plan = planned()
        exact, _ = read_answers(opened(work.domain, table), work, plan.neighbours)

        def run(runs: int, source: WordSource) -> Array:
            drawn = [plan.drawn(exact, _as_before, None, source) for _ in range(runs)]
            return np.array([_row(each, "corrected", work.queries) for each in drawn])

        return run

    few = ((3,),) * 4
    pairs = (
        Pair("four records, one in the first cell more", few, (*few, (0,))),
        Pair("two records in the first cell, or three", ((0,),) * 2, ((0,),) * 3),
    )
    covers = frozenset({"sfumato.run.correct.correct", "sfumato.run.correct.Correction.drawn"})
    claim = Claim.of(planned().plan.cost)
    return Subject(name, claim, pairs, sampler, covers, None, lambda _: _sum, SLOW_RELEASE)


def _as_before(_: int, answers: Sequence[float]) -> float:
    return answers[-1] if answers else 0.0


def _row(stored: bytes, kind: str, steps: int) -> list[float]:
    """What is stored of a watch or a correction: per step whether it was found, and its number."""
    document = json.loads(stored)
    numbers = dict(zip(document[kind], document["numbers"], strict=True))
    row: list[float] = []
    for step in range(steps):
        is_found = float(step in numbers) if step < document["tested"] else np.nan
        row += [is_found, numbers.get(step, np.nan)]
    return row


def _sum(outputs: Array) -> Array:
    """All numbers together: a record more moves them up."""
    return np.asarray(np.nansum(outputs[:, 1::2], axis=1))


def _watched(
    plan: SparseForecast,
    parts: list[Sensitive[Sequence[int]]],
    half: int,
    source: WordSource,
    is_killed: bool,
) -> list[float]:
    finder: Discoverer | None = Discoverer(plan, source)
    row: list[float] = []
    for i, part in enumerate(parts):
        if i and finder is not None:
            finder = (
                Discoverer.after_loss(plan, finder.begun, source)
                if is_killed
                else Discoverer.restored(plan, finder.state(), source)
            )
        steps = times(part, STEPS)
        if finder is None:
            row += [np.nan] * (2 * half)
            continue
        tests = finder.test_many(steps, [STEPS] * half) if finder.left else []
        places = [place for place, is_above in enumerate(tests) if is_above]
        numbers = dict(zip(places, finder.numbers(steps, places) or [], strict=True))
        for place in range(half):
            row += [float(tests[place]) if place < len(tests) else np.nan]
            row += [float(numbers.get(place, np.nan))]
    return row


GROUP_COVERED = "sfumato.vault.mechanisms.sparse.ExactQuestions.measured"
GROUP_DOMAIN = Domain({"age": 6, "sex": 2})
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
        _group_subject("session: groups, pure", GROUPED, pure, "add-remove"),
        _group_subject("session: groups", GROUPED, gaussian, "replace-one"),
        _group_subject("session: means and medians by group", MIXED, gaussian, "add-remove"),
        _group_subject("session: means and medians by group, pure", MIXED, pure, "replace-one"),
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
NOISY = "sfumato.vault.mechanisms.sparse.ExactQuestions.noisy"


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
        GROUP_DOMAIN, budget, "add-remove", questions=8, updates=1, records=100
    )
    (question,) = questions_of(sql(GROUP_DOMAIN, BOUGHT))

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
        exact = ExactQuestions(opened(GROUP_DOMAIN, table), GROUP_DOMAIN, "add-remove", None)
        parts = [[error] for error in errors] if is_forgetful else [errors]
        return lambda runs, source: np.array([asked(exact, source, parts)[0] for _ in range(runs)])

    weights = np.array(errors) ** -2.0 if is_forgetful else np.eye(len(errors))[-1]
    exact = ExactQuestions(opened(GROUP_DOMAIN, ()), GROUP_DOMAIN, "add-remove", None)
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


# Whole sessions: a scope, known and tested answers, a purchase and groups, each chosen by the last

CROWD = 8  # records of the first table in the cell that gets one more, and in every other one
WHOLE_SLOW = 750
WHOLE_DOMAIN = Domain({"age": 4, "sex": 2, "kind": 2})
WHOLE_GROUPS = tuple(
    f"SELECT {one}, kind, COUNT(*) FROM t GROUP BY {one}, kind"  # noqa: S608  never run
    for one in ("sex", "age")
)
Told = list[tuple[float, float]]
"""The numbers of a conversation, each with its precision; 0 where it has none of its own."""


def whole_session_subjects() -> tuple[Subject[Table], ...]:
    """An analyst who asks by what was answered, with all that a session offers."""
    return (
        _whole_session("session: all of it, pure", Budget(epsilon=8)),
        _whole_session("session: all of it", Budget(mu=4)),
    )


def broken_whole_session_subjects() -> tuple[Subject[Table], ...]:
    """A session that begins anew whenever it is opened, and remembers the first debits alone."""
    return (_whole_session("session: begun anew by restarts", Budget(mu=2), 13),)


def _whole_session(name: str, budget: Budget, openings: int = 1) -> Subject[Table]:
    """All answers of one session, and a claim of all that it may debit.

    Of many openings, each of which forgets that there was one, what is known at once.
    """
    session = plan_session(
        WHOLE_DOMAIN,
        budget,
        scope=1,
        scope_share=Fraction(1, 2),
        questions=8,
        updates=3,
        records=16 * CROWD,
    )
    leading = [_one(f"{n} = 1") for n in WHOLE_DOMAIN.names]
    tested = [_one("sex = 1 AND kind = 1"), _one("sex = 1 AND age = 1")]
    bought = [_one("age = 1 AND kind = 1"), _one("age >= 1 AND kind = 1")]
    first = _state(_exact_questions(()), session, system_words())
    groups = [_group(first, text) for text in WHOLE_GROUPS]
    paid = session.noise_error**-2

    def told_of(asking: Session) -> Told:
        answers = [asking.ask(question).answers[0] for question in leading]
        return [(one.value, (one.standard_error or 1.0) ** -2) for one in answers]

    def talk(exact: ExactQuestions, source: WordSource) -> Told:
        """One conversation: every question depends on the answers before it."""
        with _state(exact, session, source) as asking:
            first_answers = told_of(asking)
            row = [*first_answers]
            second = asking.ask(tested[int(first_answers[1][0] > first_answers[2][0])])
            row += [(float(second.is_paid), 0.0)]
            row += [(second.answers[0].value, paid if second.is_paid else 0.0)]
            third = asking.ask(bought[int(second.is_paid)], error=session.noise_error)
            row.append((third.answers[0].value, paid))
            question, place = groups[int(third.answers[0].value > 2 * CROWD)]
            cell = asking.ask(question, error=session.noise_error).answers[place]
            row.append((cell.value, paid))
        return row

    def openings_of(exact: ExactQuestions, source: WordSource) -> Told:
        """What is known at once, of sessions that are opened one after the other."""
        return [part for _ in range(openings) for part in told_of(_state(exact, session, source))]

    said = talk if openings == 1 else openings_of

    def sampler(table: Table) -> Sampler:
        exact = _exact_questions(table)

        def run(runs: int, source: WordSource) -> Array:
            return np.array([said(exact, source) for _ in range(runs)]).reshape(runs, -1)

        return run

    def telling(outputs: Array) -> Array:
        """Every number by its precision: nearly the likelihood ratio of a record more."""
        return np.asarray((outputs[:, ::2] * outputs[:, 1::2]).sum(axis=1))

    crowd = tuple(np.ndindex(*WHOLE_DOMAIN.shape)) * CROWD
    return Subject(
        name,
        Claim.of(_all_debits(session)),
        (Pair("one record more", crowd, (*crowd, (1, 1, 1))),),
        sampler,
        frozenset() if openings > 1 else frozenset({NOISY, GROUP_COVERED}),
        None,
        lambda _: telling,
        WHOLE_SLOW,
        openings > 1,
    )


def _group(session: Session, text: str) -> tuple[GroupQuestion, int]:
    """A GROUP BY, and the place of the record's group."""
    question = session.read(text)
    assert isinstance(question, GroupQuestion)  # noqa: S101 - there are several groups
    cells = [dict(cell.groups) for cell in question.cells()]
    place = next(i for i, cell in enumerate(cells) if set(cell.values()) == {1})
    return question, place


def _one(condition: str) -> Question:
    """The number of records that meet a condition."""
    # Read by the library like any question; no database ever gets it.
    text = f"SELECT COUNT(*) FROM t WHERE {condition}"  # noqa: S608
    return questions_of(sql(WHOLE_DOMAIN, text))[0]


def _exact_questions(table: Table) -> ExactQuestions:
    return ExactQuestions(opened(WHOLE_DOMAIN, table), WHOLE_DOMAIN, "add-remove", None)


def _state(exact: ExactQuestions, session: SessionParameters, source: WordSource) -> Session:
    """A session with a ledger of its own in memory."""
    settings = (exact, session, MemoryLedger(), None, source, "audit")
    return Session(SessionState(*settings, is_dummy=False, take_over=False))


def _all_debits(session: SessionParameters) -> Cost:
    """The scope, which tells how many records there are, and all parts."""
    scope = session.scope
    assert isinstance(scope, Plan)  # noqa: S101
    return scope.cost + Cost(session.epoch_cost.parts * session.updates)


def _plan(text: str, budget: Budget, neighbours: Neighbours) -> Plan:
    """The plan of a question in a session that spends all of its budget on one."""
    parameters = SessionParameters.of(
        GROUP_DOMAIN, budget, neighbours, questions=8, updates=1, records=100
    )
    exact = ExactQuestions(opened(GROUP_DOMAIN, ()), GROUP_DOMAIN, neighbours, None)
    settings = (exact, parameters, MemoryLedger(), None, system_words(), "audit")
    question = Session(SessionState(*settings, is_dummy=False, take_over=False)).read(text)
    assert isinstance(question, GroupQuestion)  # noqa: S101 - the texts above have many answers
    return question.plan


def _scope(budget: Budget, neighbours: Neighbours, share: Fraction = Fraction(19, 20)) -> Plan:
    """The plan of what a session measures at opening."""
    session = plan_session(
        GROUP_DOMAIN,
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
    run = GroupMeasuring(GROUP_DOMAIN, drawn.strategy.blocks, drawn.noise, "add-remove")
    pairs, claim = listed_pairs(GROUP_DOMAIN.shape, "add-remove"), Claim.of(paid.cost)
    name = "session: a scope with the noise of more than its share"
    return Subject(name, claim, pairs, run.sampler, hint=run.hint, is_broken=True)


def _group_subject(name: str, text: str, budget: Budget, neighbours: Neighbours) -> Subject[Table]:
    return _measuring(name, _plan(text, budget, neighbours), neighbours)


def _measuring(name: str, planned: Plan, neighbours: Neighbours) -> Subject[Table]:
    run = GroupMeasuring(GROUP_DOMAIN, planned.strategy.blocks, planned.noise, neighbours)
    return Subject(
        f"{name} ({neighbours})",
        Claim.of(planned.cost),
        listed_pairs(GROUP_DOMAIN.shape, neighbours),
        run.sampler,
        frozenset({GROUP_COVERED}),
        pairs_at_random(GROUP_DOMAIN.shape, neighbours),
        run.hint,
    )


def _as_disjoint(name: str, budget: Budget) -> Subject[Table]:
    """Running totals as they are, each with the noise that cells of a table need."""
    cells = _plan(GROUPED, budget, "add-remove")
    totals = sql(GROUP_DOMAIN, "SELECT sex, MEDIAN(age) FROM t GROUP BY sex")
    direct = plan(totals, budget, mechanism=cells.strategy.noise)
    wrong = tuple(
        replace(law, units=int(cells.noise[0].scale * 2 ** (law.grid_bits + law.scale_bits)))
        for law in direct.noise
    )
    run = GroupMeasuring(GROUP_DOMAIN, direct.strategy.blocks, wrong, "add-remove")
    pairs = listed_pairs(GROUP_DOMAIN.shape, "add-remove")
    claim = Claim.of(cells.cost)
    return Subject(name, claim, pairs, run.sampler, hint=run.hint, is_broken=True)
