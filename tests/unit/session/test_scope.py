# SPDX-License-Identifier: Apache-2.0
"""A session with a scope: one measurement at opening, and all that follows from it is free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import LedgerError, PlanError, TooLarge, WorkloadError
from sfumato.ledger.ledger import Ledger
from sfumato.planning.adaptive_costs import Spending
from sfumato.planning.forecast import CombinationError
from sfumato.session.scope import KnownNumber, conditions, enclosure_of, span_weights
from sfumato.vault.mechanisms.sparse import ExactQuestions
from sfumato.vault.tables import open_table
from sfumato.workload.question import Question, questions_of
from sfumato.workload.workload import marginal
from tests.shared.examples import examples
from tests.shared.ledger_home import made

DOMAIN = sf.Domain(
    [sf.Integer("age", 0, 7), sf.Category("sex", ["F", "M"]), sf.Category("kind", ["a", "b", "c"])]
)
GAUSSIAN = sf.Budget(epsilon=2, delta=1e-6)
PURE = sf.Budget(epsilon=4)
INSIDE = [
    "SELECT COUNT(*) FROM t",
    "SELECT COUNT(*) FROM t WHERE age BETWEEN 2 AND 5 AND sex = 'F'",
    "SELECT COUNT(*) FROM t WHERE age IN (1, 4) OR kind = 'b'",
    "SELECT COUNT(*) FROM t WHERE kind <> 'c' AND sex = 'M'",
]
OUTSIDE = "SELECT COUNT(*) FROM t WHERE age < 4 AND sex = 'F' AND kind = 'a'"


def _people(rows: int = 1200) -> pd.DataFrame:
    place = np.arange(rows)
    return pd.DataFrame(
        {
            "age": (place * 7) % 8,
            "sex": np.where(place % 3 == 0, "F", "M"),
            "kind": np.array(["a", "b", "c"])[(place // 5) % 3],
        }
    )


def _plan(budget: sf.Budget = GAUSSIAN, **more: object) -> sf.SessionPlan:
    chosen = {"scope": 2, "records": 1200, "questions": 100, "updates": 4} | more
    return sf.plan_session(DOMAIN, budget, **chosen)  # type: ignore[arg-type]


PLANS = {"gaussian": _plan(), "pure": _plan(PURE)}


@pytest.fixture(params=["gaussian", "pure"])
def plan(request: pytest.FixtureRequest) -> sf.SessionPlan:
    """One with Gaussian, one with Laplace noise."""
    return PLANS[request.param]


def _opened(plan: sf.SessionPlan, ledger: Path) -> sf.Session:
    made(str(ledger), plan.budget, "people")
    return plan.open(_people(), ledger, name="people")


def _debits(ledger: Path) -> list[str]:
    return [entry.key.split(" ", 2)[2] for entry in Ledger.open(ledger).entries()]


def _truth(text: str) -> float:
    (question,) = questions_of(sf.sql(DOMAIN, text))
    codes = {"sex": ["F", "M"], "kind": ["a", "b", "c"], "age": list(range(8))}
    people = _people()
    columns = [people[n].map(codes[n].index).to_numpy() for n in question.attributes]
    return float(question.at(columns, len(people)).sum())


def test_what_follows_from_the_scope_is_free_however_often(
    plan: sf.SessionPlan, tmp_path: Path
) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(plan, ledger) as session:
        assert _debits(ledger) == ["scope"]
        answers = [session.ask(text) for text in INSIDE * 3]
        assert _debits(ledger) == ["scope"]
        assert {a.how for a in answers} == {"known"}
        assert answers[: len(INSIDE)] == answers[len(INSIDE) : 2 * len(INSIDE)]
        for text, answer in zip(INSIDE, answers, strict=False):
            assert "in the scope" in answer.why
            assert answer.low <= answer.value <= answer.high
            assert abs(answer.value - _truth(text)) < 8 * answer.standard_error
        assert session.estimate(INSIDE[0]).cost.as_json() == []
        assert session.is_answered(INSIDE[1])
    assert session.ask(INSIDE[2]) == answers[2]  # closed: it needs no table
    with _opened(plan, ledger) as session:
        assert [session.ask(text) for text in INSIDE] == answers[: len(INSIDE)]
    assert _debits(ledger) == ["scope"]
    assert Ledger.open(ledger).verify().is_whole


def test_groups_means_and_coarser_tables_of_the_scope_are_free(
    plan: sf.SessionPlan, tmp_path: Path
) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(plan, ledger) as session:
        fine = session.ask("SELECT age, sex, COUNT(*) AS n FROM t GROUP BY age, sex")
        coarse = session.ask("SELECT sex, COUNT(*) AS n, AVG(age) AS years FROM t GROUP BY sex")
        again = session.ask("select count(*) as m, sex from t group by sex")
        assert [a.how for a in (fine, coarse, again)] == ["known"] * 3
        assert _debits(ledger) == ["scope"]
        assert session.estimate("SELECT sex, COUNT(*) FROM t GROUP BY sex").why
        # One measurement: the coarser table is the sum of the finer one, before any cutting.
        estimates = session._state.scope.estimates
        cells = estimates(sf.marginals(DOMAIN, [("age", "sex")])).unbiased[0].reshape(8, 2)
        totals = estimates(sf.marginals(DOMAIN, [("sex",)])).unbiased[0]
        assert cells.sum(axis=0) == pytest.approx(totals)
        row = coarse.frame().iloc[0]
        assert row["years_low"] <= 3.5 <= row["years_high"]


def test_outside_the_scope_questions_are_tested_and_say_so(
    plan: sf.SessionPlan, tmp_path: Path
) -> None:
    ledger = tmp_path / "people.ledger"
    with _opened(plan, ledger) as session:
        answer = session.ask(OUTSIDE)
        assert answer.how in ("free", "paid")
        assert "outside the scope: nothing in it is about" in answer.why
        # The scope tells how many records there are: nothing is paid for that.
        assert _debits(ledger) == ["scope", "epoch 1"]
        assert session.ask(OUTSIDE).is_stored


def test_the_estimate_is_the_best_linear_unbiased_one() -> None:
    """Against least squares over all cells, written out (Aitken)."""
    plan = PLANS["gaussian"].scope
    blocks = [block.term for block in plan.strategy.blocks]
    cells = np.indices(DOMAIN.shape).reshape(3, -1)

    def over(term: object) -> np.ndarray:
        own = [DOMAIN.names.index(n) for n in term.attributes]
        at = np.ravel_multi_index(tuple(cells[i] for i in own), term.shape) if own else 0
        dense = term.dense()
        return dense[:, at] if own else np.repeat(dense, cells.shape[1], axis=1)

    m = np.concatenate([over(term) for term in blocks])
    scale = np.repeat(np.asarray(plan.block_variances) ** -0.5, [t.rows for t in blocks])
    inverse = np.linalg.pinv(scale[:, None] * m)
    with PLANS["gaussian"].open(_people()) as session:
        values = np.concatenate([m.values for m in session._state.scope.measured.measurements])
        for text in INSIDE:
            (question,) = questions_of(sf.sql(DOMAIN, text))
            q = question.at([cells[DOMAIN.names.index(n)] for n in question.attributes], 48)
            row = (q @ inverse) * scale
            number = session._state.scope.number(question)
            assert number.value == pytest.approx(float(row @ values), rel=1e-6, abs=1e-6)
            variance = ((row / scale) ** 2).sum()
            assert number.standard_error == pytest.approx(np.sqrt(variance), rel=1e-6)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_coefficients_over_the_scope_give_the_question_back(data: st.DataObject) -> None:
    ages = data.draw(st.sets(st.integers(0, 7), min_size=1, max_size=7))
    kinds = data.draw(st.sets(st.sampled_from("abc"), min_size=1, max_size=2))
    word = data.draw(st.sampled_from(["AND", "OR"]))
    text = (
        f"SELECT COUNT(*) FROM t WHERE age IN ({', '.join(map(str, sorted(ages)))}) {word} "
        f"kind IN ({', '.join(repr(k) for k in sorted(kinds))})"
    )
    (question,) = questions_of(sf.sql(DOMAIN, text))
    (term,) = (t for t in conditions(DOMAIN, 2).terms if t.attributes == ("age", "kind"))
    weights = span_weights(term, question)
    assert weights is not None
    back = weights @ term.dense()
    assert back == pytest.approx(question.coefficients().reshape(-1).astype(float), abs=1e-9)


@st.composite
def _numbers_of_three(draw: st.DrawFn) -> Question:
    """Any coefficients over three attributes that all matter: conditions, sums, differences."""
    entries = draw(st.lists(st.integers(-2, 3), min_size=48, max_size=48))
    table = np.array(entries, dtype=np.int64).reshape(8, 2, 3)
    table[0, 0, 0], table[1, 1, 1] = 4, -3  # tells along every attribute
    classes = tuple(np.arange(size) for size in table.shape)
    return Question(DOMAIN, "any", DOMAIN.names, classes, table, 0)


def _exact(
    whole: Question, counts: np.ndarray
) -> Callable[[Sequence[str], np.ndarray], KnownNumber]:
    """What is known of coefficients over fewer attributes of a question, without noise."""

    def known(names: Sequence[str], table: np.ndarray) -> KnownNumber:
        question = whole.over(names, table)
        value = float(question.answer(marginal(counts, DOMAIN, question.attributes)))
        law = CombinationError(0.0, np.inf)
        return KnownNumber(value * 2.0**-question.bits, law, 0.95)

    return known


@settings(max_examples=examples(60), deadline=None)
@given(_numbers_of_three(), st.integers(0, 2**32 - 1))
def test_what_encloses_a_question_does_so_on_every_table(question: Question, seed: int) -> None:
    counts = np.random.default_rng(seed).integers(0, 30, DOMAIN.shape)
    enclosure = enclosure_of(question, _exact(question, counts))
    assert enclosure is not None
    assert len(enclosure.above) == 3
    low, high = enclosure.ends(0.95)
    assert low <= question.answer(counts) <= high


def test_counts_below_zero_are_not_enclosed() -> None:
    """The twin: that records are not negative is what the bounds rest on."""
    (question,) = questions_of(sf.sql(DOMAIN, OUTSIDE))
    counts = np.ones(DOMAIN.shape, dtype=np.int64)
    counts[:, 1], counts[:, :, 1:] = -1, -1
    enclosure = enclosure_of(question, _exact(question, counts))
    assert enclosure is not None
    low, high = enclosure.ends(0.95)
    answer = question.answer(marginal(counts, DOMAIN, question.attributes))
    assert not low <= answer <= high


def test_outside_the_scope_intervals_are_kept_to_what_it_tells(plan: sf.SessionPlan) -> None:
    with plan.open(_people()) as session:
        state = session._state
        for kind in "abc":
            text = OUTSIDE.replace("'a'", repr(kind))
            guess = session.untested(text)
            assert guess.how == "untested"
            assert guess.level == plan.level
            assert guess.low <= guess.value <= guess.high
            answer = session.ask(text)
            (question,) = questions_of(sf.sql(DOMAIN, text))
            if answer.how == "free":
                bare = state.stored(question.key)
                assert bare is not None
                assert answer.high - answer.low < bare.high - bare.low
                assert session.ask(text) == answer == session.untested(text)


@pytest.mark.parametrize("kind", ["gaussian", "pure"])
def test_enclosed_answers_have_an_interval_for_whoever_chases_the_noise(kind: str) -> None:
    """It holds the narrow one, and is never wider than the promise of the test alone."""
    with PLANS[kind].open(_people()) as session:
        for letter in "abc":
            text = OUTSIDE.replace("'a'", repr(letter))
            answer, (question,) = session.ask(text), questions_of(sf.sql(DOMAIN, text))
            if answer.how != "free":
                assert (answer.safe_low, answer.safe_high) == (answer.low, answer.high)
                continue
            promise = session._state.stored(question.key)
            assert promise is not None
            assert answer.has_two_intervals
            assert answer.safe_low <= answer.low <= answer.high <= answer.safe_high
            both = (answer.safe_low, answer.safe_high), (promise.low, promise.high)
            assert both[0] == both[1] if kind == "pure" else np.diff(both[0]) < np.diff(both[1])
            alone = session.answer(question.key)  # by its key: the promise, for any question
            assert alone is not None
            assert (alone.safe_low, alone.safe_high) == (promise.low, promise.high)
            assert not alone.has_two_intervals
            assert {"safe_low", "safe_high"} <= answer.as_json().keys()


def test_joint_ends_are_those_of_every_number_at_once() -> None:
    """Each number at its joint bound: with no chance to miss left they are infinite."""
    (question,) = questions_of(sf.sql(DOMAIN, OUTSIDE))
    with PLANS["gaussian"].open(_people()) as session:
        enclosure = session._state._knowledge.enclosure(question)
        assert enclosure is not None
        low, high = enclosure.safe_ends(0.95)
        assert high == min(one.value + one.joint_half_width for one in enclosure.above)
        wider, higher = enclosure.safe_ends(0.999)
        assert wider < low < enclosure.ends(0.95)[0]
        assert higher > high > enclosure.ends(0.95)[1]


def test_levels_that_are_too_coarse_do_not_tell_a_question() -> None:
    """The twin: pairs of ages tell pairs apart, and nothing finer."""
    pairs = np.kron(np.eye(4), np.ones((1, 2)))
    (term,) = sf.product(DOMAIN, {"age": pairs}).terms
    (coarse,) = questions_of(sf.sql(DOMAIN, "SELECT COUNT(*) FROM t WHERE age IN (2, 3, 6, 7)"))
    (fine,) = questions_of(sf.sql(DOMAIN, "SELECT COUNT(*) FROM t WHERE age IN (2, 3, 6)"))
    assert span_weights(term, coarse) == pytest.approx([0, 1, 0, 1])
    assert span_weights(term, fine) is None


def test_single_conditions_of_a_scope_are_told_as_they_are() -> None:
    asked = sf.predicates(DOMAIN, ["age < 3 OR sex = 'F'", "kind = 'a' AND age > 5"])
    plan = sf.plan_session(DOMAIN, GAUSSIAN, scope=asked, records=1200, updates=4, questions=100)
    with plan.open(_people()) as session:
        assert session.ask("SELECT COUNT(*) FROM t WHERE age < 3 OR sex = 'F'").how == "known"
        answer = session.ask("SELECT COUNT(*) FROM t WHERE age < 4 OR sex = 'F'")
        assert "tells records apart" in answer.why


def test_scope_and_parts_keep_the_budget_of_the_session(plan: sf.SessionPlan) -> None:
    """The scope, the count of records and all parts: amounts of one kind add up."""
    spending = Spending.of(plan.budget)
    part = plan.scope.cost.parts[0]
    scope = part.mu_squared if spending.law == "gaussian" else part.epsilon
    left = (1 - plan.scope_share) * spending.total
    assert scope <= plan.scope_share * spending.total
    assert plan.updates * plan.part <= left * 49 / 50  # a fiftieth is for the number of records


def test_a_session_without_a_scope_is_the_one_it_was() -> None:
    plain = sf.plan_session(DOMAIN, GAUSSIAN, records=1200, questions=100)
    assert "scope" not in plain.as_json()
    assert plain.digest() == sf.plan_session(DOMAIN, GAUSSIAN, records=1200, questions=100).digest()
    assert plain.digest() != PLANS["gaussian"].digest()
    assert plain.measurement_budget == sf.Budget(rho=plain.part / 2)
    with plain.open(_people()) as session:
        assert session.ask(OUTSIDE).as_json().keys() == {
            "key", "question", "aggregate", "condition", "groups", "value", "low", "high",
            "level", "how", "epoch", "cost", "is_dummy", "safe_low", "safe_high",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("scope", "share", "fault", "words"),
    [
        (0, 0.9, PlanError, "from 1 to 3"),
        ("all", 0.9, PlanError, "a workload, a number"),
        (2, 1.0, PlanError, "scope_share must lie"),
        (2, True, PlanError, "scope_share must be"),
        (sf.marginals(sf.Domain({"age": 8}), 1), 0.9, WorkloadError, "another domain"),
    ],
)
def test_scopes_that_are_none_are_refused(
    scope: object, share: object, fault: type[Exception], words: str
) -> None:
    with pytest.raises(fault, match=words):
        _plan(scope=scope, scope_share=share)


def test_a_default_scope_follows_from_the_domain_and_the_budget() -> None:
    assert {len(t.attributes) for t in _plan(scope="auto").scope.workload.terms} == {3}
    small = _plan(sf.Budget(epsilon="1/50", delta=1e-6), scope="auto", records=100)
    assert {len(t.attributes) for t in small.scope.workload.terms} == {1}
    with pytest.raises(TooLarge, match="cells"):
        conditions(sf.Domain({f"a{i}": 100 for i in range(12)}), 3)


def test_a_scope_whose_noise_could_not_be_stored_is_lost_and_not_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, plan = tmp_path / "people.ledger", PLANS["gaussian"]

    def full(*_: object, **__: object) -> None:
        raise LedgerError("the ledger could not be written (disk full)")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "store", full)
        with pytest.raises(LedgerError, match="disk full"):
            _opened(plan, ledger)
    with _opened(plan, ledger) as session:
        answer = session.ask(INSIDE[1])
        assert answer.how in ("free", "paid")
        assert "the scope was lost" in answer.why
    assert _debits(ledger).count("scope") == 1


def test_made_up_records_have_a_scope_too() -> None:
    with PLANS["gaussian"].open(None, dummy=True) as session:
        answer = session.ask(INSIDE[1])
        assert answer.is_dummy
        assert answer.how == "known"


def _loss(plan: sf.Plan, tables: list[pd.DataFrame]) -> tuple[float, float]:
    """The exact loss of the measurement between two tables, and what is debited for it."""
    values = []
    for table in tables:
        exact = ExactQuestions(open_table(table), DOMAIN, plan.neighbours, None)
        values.append(exact.counted(DOMAIN, plan.strategy.blocks).values.reveal())
    loss = 0.0
    for one, other, noise, bits in zip(*values, plan.noise, plan.strategy.block_bits, strict=True):
        moved = np.abs(np.asarray(one - other, dtype=np.float64)) * 2.0**-bits
        scale = float(noise.scale)
        loss += ((moved / scale) ** 2).sum() if noise.noise == "gaussian" else (moved / scale).sum()
    part = plan.cost.parts[0]
    return float(loss), float(getattr(part, "epsilon", 0) or part.mu_squared)


@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from("FM"), st.sampled_from("abc")),
        min_size=1,
        max_size=9,
    ),
    st.integers(0, 8),
)
@settings(max_examples=15, deadline=None)
def test_one_record_moves_the_scope_by_no_more_than_is_debited(
    records: list[tuple[int, str, str]], gone: int
) -> None:
    rest = [r for i, r in enumerate(records) if i != gone % len(records)]
    tables = [pd.DataFrame(rows, columns=["age", "sex", "kind"]) for rows in (records, rest)]
    for plan in PLANS.values():
        loss, debited = _loss(plan.scope, tables)
        assert loss <= debited * (1 + 1e-9)


def test_the_comparison_sees_two_records_for_the_debit_of_one() -> None:
    """The twin: two equal records more are told apart by more than was paid."""
    tables = [_people(20), pd.concat([_people(20), _people(1), _people(1)])]
    for plan in PLANS.values():
        loss, debited = _loss(plan.scope, tables)
        assert loss > 1.5 * debited
