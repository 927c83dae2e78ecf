# SPDX-License-Identifier: Apache-2.0
"""Sessions: what is stored, free, paid for; restarts; refusals; what never shows."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import (
    BudgetExhausted,
    LedgerError,
    LedgerFrozen,
    PlanError,
    SfumatoError,
    SqlError,
    TableError,
    TooLarge,
    WorkloadError,
)
from sfumato.ledger.account import Account
from sfumato.ledger.ledger import Ledger
from sfumato.ledger.reader import LedgerReader
from sfumato.session.session import Session
from sfumato.session.session_answers import Answer
from sfumato.vault.duckdb import DuckDB
from sfumato.vault.mechanisms.sparse import ExactQuestions
from tests.sessions import begin_session
from tests.shared.ledger_home import made
from tests.shared.words import SeededWords

DOMAIN = sf.Domain({"age": 20, "sex": 2})
RNG = np.random.default_rng(3)
TABLE = pd.DataFrame({"age": RNG.binomial(19, 0.2, 4000), "sex": RNG.integers(0, 2, 4000)})
BUDGET = sf.Budget(epsilon=4, delta=1e-9)
ASKED = [
    f"SELECT COUNT(*) FROM t WHERE age BETWEEN {a} AND {a + w} AND sex = {a % 2}"
    for w in (2, 5, 9)
    for a in range(11)
]


def _open(ledger: Path | Ledger | None, seed: str = "s", **given: object) -> Session:
    chosen = {"questions": 200, "updates": 16, "records": 4000, "name": "people", **given}
    table = chosen.pop("table", TABLE)
    budget = chosen.pop("budget", BUDGET)
    if isinstance(ledger, Path):
        made(ledger, budget, "people")
    return begin_session(table, DOMAIN, budget, SeededWords(seed), ledger=ledger, **chosen)


def _truth(text: str) -> int:
    return int(sf.sql(DOMAIN, text).evaluate(_counts(TABLE))[0])


def _counts(table: pd.DataFrame) -> np.ndarray:
    counts = np.zeros(DOMAIN.shape, dtype=np.int64)
    np.add.at(counts, (table["age"], table["sex"]), 1)
    return counts


def test_questions_are_answered_paid_first_and_free_once_they_are_known(tmp_path: Path) -> None:
    with _open(tmp_path / "a.ledger") as session:
        answers = [session.ask(text) for text in ASKED[:20]]
    paid = [a for a in answers if a.is_paid]
    assert 1 <= len(paid) <= 16
    assert len(paid) < len(answers)
    for text, answer in zip(ASKED, answers, strict=False):
        assert answer.low <= _truth(text) <= answer.high  # with these words
        assert answer.low <= answer.value <= answer.high
        assert (answer.cost != ()) == answer.is_paid
        assert answer.level == 0.95


def test_equal_questions_get_the_same_answer_and_spend_nothing(tmp_path: Path) -> None:
    with _open(tmp_path / "a.ledger") as session:
        first = session.ask("SELECT COUNT(*) FROM t WHERE age < 5 AND sex = 1")
        left = session.left()
        again = session.ask("SELECT COUNT(*) FROM data WHERE NOT (sex = 0 OR age >= 5)")
        assert again == first
        assert session.left() == left
        assert session.answer(first.key) == first
        assert session.answer("0" * 64) is None
        assert Answer.from_bytes(first.to_bytes()) == first


def test_a_session_goes_on_after_a_restart_as_if_there_had_been_none(tmp_path: Path) -> None:
    with _open(tmp_path / "whole.ledger", "same words") as session:
        whole = [session.ask(text) for text in ASKED]
    words = SeededWords("same words")
    made(tmp_path / "parts.ledger", BUDGET, "people")
    parts = []
    for place in range(0, len(ASKED), 7):
        again = begin_session(
            TABLE, DOMAIN, BUDGET, words, ledger=tmp_path / "parts.ledger", name="people",
            questions=200, updates=16, records=4000,
        )  # fmt: skip
        with again as session:
            parts += [session.ask(text) for text in ASKED[place : place + 7]]
    assert parts == whole
    assert sum(a.is_paid for a in whole) > 1
    spent = [Ledger.open(tmp_path / f"{n}.ledger").remaining().share for n in ("whole", "parts")]
    assert spent[0] == spent[1]
    for name in ("whole", "parts"):
        assert Ledger.open(tmp_path / f"{name}.ledger").verify().is_whole


def test_one_batch_answers_as_single_questions_do(tmp_path: Path) -> None:
    """Words are taken in another order, so outcomes differ; what holds for answers does not."""
    with _open(tmp_path / "a.ledger") as session:
        found = session.ask_many([*ASKED, ASKED[0], "SELECT nonsense", "SELECT MAX(age) FROM t"])
        assert [type(f) for f in found[-2:]] == [SqlError, SqlError]
        answers = found[:-2]
        assert all(isinstance(f, Answer) for f in answers)
        assert answers[-1] == answers[0]
        assert [session.ask(text) for text in ASKED] == answers[:-1]


def test_every_epoch_is_debited_and_the_budget_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with _open(path, updates=3) as session:
        answers = session.ask_many(ASKED)
        paid = [a for a in answers if isinstance(a, Answer) and a.is_paid]
        refused = [a for a in answers if isinstance(a, BudgetExhausted)]
        assert len(paid) == 3
        assert refused
        assert session.left().paid_answers == 0
        with pytest.raises(BudgetExhausted, match="3 paid answers"):
            session.ask("SELECT COUNT(*) FROM t WHERE age = 7")
        assert session.ask(ASKED[0]) == answers[0]  # stored answers stay
        guess = session.ask("SELECT COUNT(*) FROM t WHERE age = 7", untested=True)
        assert guess.how == "untested"
        assert (guess.low, guess.high, guess.level) == (None, None, None)
        assert session.answer(guess.key) is None
    ledger = Ledger.open(path)
    entries = ledger.entries()
    plan = session.plan
    assert [e.cost for e in entries] == [plan.records_cost] + [plan.epoch_cost] * 3
    assert ledger.remaining().share >= 0
    account = Account(BUDGET)
    for entry in entries:
        account = account.plus(entry.cost)
    assert not account.is_overdrawn


@pytest.mark.parametrize(
    "budget",
    [sf.Budget(epsilon=1), sf.Budget(epsilon=1, delta=1e-6), sf.Budget(rho=0.1), sf.Budget(mu=1)],
    ids=["pure", "approximate", "rho", "mu"],
)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("unit", [None, PrivacyUnit("who", 3)], ids=["row", "person"])
def test_all_epochs_fit_the_budget_they_were_planned_for(
    budget: sf.Budget, neighbours: str, unit: PrivacyUnit | None
) -> None:
    plan = sf.plan_session(DOMAIN, budget, neighbours, unit=unit, updates=37, records=1000)
    account = Account(budget)
    if plan.records_cost is not None:
        account = account.plus(plan.records_cost)
    for _ in range(plan.updates):
        account = account.plus(plan.epoch_cost)
    assert not account.is_overdrawn
    is_public = neighbours == "replace-one" and unit is None and DOMAIN.keeps_every_record
    assert (plan.records_cost is None) == is_public
    # And they use it: one more does not fit.
    assert account.plus(plan.epoch_cost).is_overdrawn


def test_the_ledger_refuses_when_it_has_less_than_the_session_wants(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", BUDGET, "people", "add-remove")
    account = sf.plan_session(DOMAIN, BUDGET, updates=16, questions=200, records=4000)
    while ledger.how_many_more(account.epoch_cost) > 1:
        ledger.debit(account.epoch_cost, {}, f"other {len(ledger.entries())}")
    with _open(ledger) as session:
        found = session.ask_many(ASKED)
    assert any(isinstance(f, BudgetExhausted) for f in found)
    assert ledger.remaining().share >= 0


def test_allowances_of_analysts_are_kept(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", BUDGET, "people", "add-remove", keep_open=True)
    with _open(ledger) as session:
        session.ask(ASKED[0])
        ledger.allow("eve", sf.Budget(epsilon="1/1000000", delta=1e-9))
        found = session.ask_many(ASKED, analyst="eve")
        assert any(isinstance(f, BudgetExhausted) for f in found)
        assert session.left("eve").paid_answers <= 1
        assert any(isinstance(f, Answer) for f in session.ask_many(ASKED, analyst="ann"))
    ledger.close()


def test_nobody_is_tested_whom_an_epoch_could_not_be_charged_to(tmp_path: Path) -> None:
    """Not even by an epoch that somebody else's question began."""
    ledger = Ledger.create(tmp_path / "a.ledger", BUDGET, "people", "add-remove", keep_open=True)
    ledger.allow("eve", sf.Budget(epsilon="1/1000000", delta=1e-9))
    with _open(ledger) as session:
        known = session.ask(ASKED[0], analyst="ann")
        session._state.epochs.open()  # an epoch is paid for and has tested nobody yet
        before = len(ledger.entries())
        found = session.ask_many(ASKED[1:], analyst="eve")
        assert all(isinstance(f, BudgetExhausted) for f in found)
        assert "allowance of analyst 'eve'" in str(found[0])
        assert session.left("eve").paid_answers == 0
        assert session.ask(ASKED[0], analyst="eve") == known  # what is stored is for everybody
        assert len(ledger.entries()) == before
        assert ledger.verify().free == 1  # nothing was answered, so nothing was tested
    ledger.close()


def test_an_epoch_is_charged_to_the_analyst_whose_question_ends_it(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", BUDGET, "people", "add-remove", keep_open=True)
    for analyst in ("ann", "bob"):
        ledger.allow(analyst, sf.Budget(epsilon=4, delta=1e-9))
    paid: dict[str, int] = {"ann": 0, "bob": 0}
    with _open(ledger) as session:
        for i, text in enumerate(ASKED):
            analyst = ("ann", "bob")[i % 2]
            paid[analyst] += session.ask(text, analyst=analyst).is_paid
        cost = session.plan.epoch_cost
        count = session.plan.records_cost
        began = sum(" epoch " in entry.key for entry in ledger.entries())
    assert min(paid.values()) >= 1
    assert began > sum(paid.values())  # the last one tests, and has cost nobody an allowance
    for analyst, number in paid.items():
        allowance = ledger.allowance(analyst)
        assert allowance is not None
        fresh = Account(allowance.budget)
        if analyst == "ann" and count is not None:  # hers was the first question
            fresh = fresh.plus(count)
        assert allowance.account == fresh.plus_all([cost] * number)
        own = [e for e in ledger.entries(analyst=analyst) if " epoch " in e.key]
        assert len(own) == number
        assert {e.analyst for e in own} == {analyst}
    assert sum(e.analyst is None for e in ledger.entries()) == began - sum(paid.values())
    spent = {a.analyst: a.account for a in ledger.allowances()}
    ledger.allow("bob", sf.Budget(epsilon=5, delta=1e-9))  # what was charged before still counts
    again = ledger.allowance("bob")
    assert again is not None
    assert again.account == Account(again.budget).plus_all([cost] * paid["bob"])
    assert again.account.spent < spent["bob"].spent
    assert ledger.verify().problems == ()
    ledger.close()


def test_an_answer_that_its_allowance_cannot_be_charged_for_is_not_given(tmp_path: Path) -> None:
    """The allowance went elsewhere while the question was tested: the epoch is lost."""
    ledger = Ledger.create(tmp_path / "a.ledger", BUDGET, "people", "add-remove", keep_open=True)
    with _open(ledger) as session:
        session.ask(ASKED[0])
        cost = session.plan.epoch_cost
        entry = ledger.debit(cost, {}, "by nobody")
        ledger.store(entry, b"paid")
        ledger.allow("eve", sf.Budget(epsilon="1/1000000", delta=1e-9))
        with pytest.raises(BudgetExhausted, match="allowance of analyst 'eve'"):
            ledger.keep("k", {}, b"answer", entry, analyst="eve", is_charged=True)
        assert ledger.answer("k") is None
    assert ledger.verify().problems == ()
    ledger.close()


def test_a_frozen_ledger_answers_only_what_is_stored(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", BUDGET, "people", "add-remove", keep_open=True)
    with _open(ledger) as session:
        first = session.ask(ASKED[0])
        ledger.freeze("holidays")
        with pytest.raises(LedgerFrozen):
            session.ask(ASKED[1])
        assert session.ask(ASKED[0]) == first
        used = session.left()
        ledger.unfreeze("back")
        session.ask(ASKED[1])
        assert session.left().paid_answers >= used.paid_answers - 1
    ledger.close()


def test_estimates_spend_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with _open(path) as session:
        before = session.estimate(ASKED[0])
        assert before.value is None
        assert not before.is_stored
        assert Ledger.open(path).entries() == ()
        with pytest.raises(PlanError, match="knows nothing yet"):
            session.untested(ASKED[0])
        answer = session.ask(ASKED[0])
        spent = len(Ledger.open(path).entries())
        after = session.estimate(ASKED[1])
        assert session.estimate(ASKED[0]).is_stored
        assert after.value is not None
        assert after.free_bound > after.paid_bound > after.paid_error > 0
        assert len(Ledger.open(path).entries()) == spent
        assert answer.key == before.key
        assert session.table("sex").sum() == pytest.approx(session.table().item())
        sums = session.estimate("SELECT SUM(age) FROM t WHERE sex = 1")
        assert sums.paid_error == pytest.approx(19 * after.paid_error)


def test_a_dummy_session_opens_no_table_and_marks_its_answers() -> None:
    with sf.open_session("no such file.csv", DOMAIN, BUDGET, dummy=True, questions=50) as session:
        answer = session.ask(ASKED[0])
    assert answer.is_dummy
    assert "dummy" in repr(session)


def test_sums_groups_and_workloads(tmp_path: Path) -> None:
    with _open(tmp_path / "a.ledger") as session:
        total = session.ask("SELECT SUM(age) FROM t")
        truth = int(TABLE["age"].sum())
        assert total.low <= truth <= total.high
        groups = session.ask_all("SELECT sex, COUNT(*) FROM t GROUP BY sex")
        assert len(groups) == 2
        assert session.ask("SELECT sex, COUNT(*) FROM t GROUP BY sex").answers == groups
        assert session.ask_all(sf.marginals(DOMAIN, ["sex"])) == groups
        with pytest.raises(WorkloadError, match="another domain"):
            session.ask(sf.marginals(sf.Domain({"x": 1}), 1))
        with pytest.raises(WorkloadError, match="SELECT or a workload"):
            session.ask(3)  # type: ignore[arg-type]


def test_neighbours_with_a_public_number_of_records_pay_for_no_count(tmp_path: Path) -> None:
    domain = DOMAIN
    plan = sf.plan_session(domain, BUDGET, "replace-one")
    if domain.keeps_every_record:
        assert plan.records_noise is None
    kept = sf.Domain.from_toml(_keeping(tmp_path))
    made(tmp_path / "a.ledger", BUDGET, "people", "replace-one")
    session = begin_session(
        TABLE, kept, BUDGET, SeededWords("r"), ledger=tmp_path / "a.ledger", name="people",
        neighbours="replace-one", questions=100, updates=5,
    )  # fmt: skip
    with session:
        assert session.plan.records_noise is None
        answer = session.ask("SELECT COUNT(*) FROM t")
        assert answer.value == 4000  # public, so the estimate has it and intervals are cut to it
        assert (answer.low, answer.high) == (4000, 4000)
    keys = [e.key for e in Ledger.open(tmp_path / "a.ledger").entries()]
    assert not any("records" in key for key in keys)


def _keeping(tmp_path: Path) -> Path:
    path = tmp_path / "domain.toml"
    path.write_text(
        '[domain.age]\nkind = "integer"\nmin = 0\nmax = 19\nnulls = "missing"\noutside = "clamp"\n'
        '[domain.sex]\nkind = "integer"\nmin = 0\nmax = 1\nnulls = "missing"\noutside = "clamp"\n'
    )
    return path


def test_a_person_with_several_rows_moves_answers_and_noise_by_as_many(tmp_path: Path) -> None:
    people = TABLE.assign(who=np.arange(len(TABLE)) // 2)
    with _open(tmp_path / "a.ledger", table=people, unit=PrivacyUnit("who", 2)) as session:
        found = session.estimate(ASKED[0])
        alone = sf.plan_session(DOMAIN, BUDGET, updates=16, questions=200, records=4000)
        assert found.paid_error == pytest.approx(2 * alone.noise_error)
        assert session.ask(ASKED[0]).high is not None


def test_starts_from_public_records_and_from_a_release(tmp_path: Path) -> None:
    with _open(tmp_path / "p.ledger", public=TABLE.sample(2000, random_state=1)) as session:
        found = [session.ask(text) for text in ASKED]
    few = sum(a.is_paid for a in found)  # by the noise of a test
    release = sf.plan(sf.marginals(DOMAIN, 2), sf.Budget(epsilon=20)).release(TABLE)
    with _open(tmp_path / "r.ledger", start=release) as session:
        found = [session.ask(text) for text in ASKED]
    with _open(tmp_path / "u.ledger") as session:
        even = [session.ask(text) for text in ASKED]
    assert max(few, sum(a.is_paid for a in found)) <= 5 < sum(a.is_paid for a in even)
    loose = sf.plan(sf.marginals(DOMAIN, 2), sf.Budget(epsilon=20)).release(TABLE, project=False)
    with pytest.raises(PlanError, match="not projected"):
        _open(None, start=loose)
    with pytest.raises(PlanError, match="not from both"):
        _open(None, start=release, public=TABLE)
    with pytest.raises(PlanError, match="starts from a release"):
        _open(None, start="release")
    with pytest.raises(PlanError, match="no record"):
        _open(None, public=pd.DataFrame(columns=TABLE.columns))


def test_hedge_learns_as_the_theorem_says(tmp_path: Path) -> None:
    with _open(tmp_path / "h.ledger", learning="hedge", updates=20, label="h") as session:
        assert session.plan.updates_bound(4000) >= 1
        answers = session.ask_many(ASKED)
    assert all(isinstance(a, Answer) for a in answers)
    # It has a worse estimate than the fit but the same promise.
    for text, answer in zip(ASKED, answers, strict=True):
        assert answer.low <= _truth(text) <= answer.high


def test_what_a_session_shows_of_itself(tmp_path: Path) -> None:
    with _open(tmp_path / "a.ledger") as session:
        session.ask(ASKED[0])
        assert "1 of 16 epochs" in repr(session)
        with pytest.raises(SfumatoError, match="cannot be copied"):
            pickle.dumps(session)
        assert " of 16 paid answers left, " in session.left().describe()
    session.close()  # twice is once
    with pytest.raises(PlanError, match="closed"):
        session.ask(ASKED[1])
    assert session.ask(ASKED[0]).question.startswith("COUNT(*)")


def test_impossible_plans_are_refused() -> None:
    for given in (
        {"questions": 0}, {"updates": 0}, {"records": 0}, {"level": 1.0}, {"level": 0.4},
        {"beta": 0.0}, {"learning": "guess"}, {"questions": True},
    ):  # fmt: skip
        with pytest.raises(PlanError):
            sf.plan_session(DOMAIN, BUDGET, **given)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="Budget"):
        sf.plan_session(DOMAIN, 1.0)  # type: ignore[arg-type]


def test_a_table_without_the_columns_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    with pytest.raises(TableError):
        _open(tmp_path / "a.ledger", table=TABLE[["age"]])
    assert Ledger.open(tmp_path / "a.ledger").entries() == ()


def test_another_plan_is_another_session(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with _open(path) as first:
        first.ask(ASKED[0])
    with _open(path, updates=9) as second, _open(path, label="mine") as third:
        assert len({first.name, second.name, third.name}) == 3
        assert second.answer(first.read(ASKED[0]).key) is None


def test_more_updates_mean_more_noise_and_a_promise_for_all_questions() -> None:
    few, many = (sf.plan_session(DOMAIN, BUDGET, updates=u, records=4000) for u in (5, 50))
    assert many.noise_error > few.noise_error
    assert many.free_bound > few.free_bound
    assert few.error >= few.free_bound
    assert Fraction(few.noise.scale) < Fraction(many.noise.scale)
    assert few.records_needed(0.05) > 0
    assert 0 < few.promised(10**7).error < 1
    assert few.digest() != many.digest()
    assert "paid answers" in repr(few)


def test_what_noise_cannot_be_drawn_for_is_refused_before_a_test(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    huge = sf.explicit(DOMAIN, ["sex"], np.array([[2.0**28, 0.0]]))
    with _open(path, budget=sf.Budget(epsilon="1e-4")) as session:
        with pytest.raises(TooLarge, match="coarser units"):
            session.ask(huge)
        with pytest.raises(LedgerError, match="printable name"):
            session.ask(ASKED[0], analyst="a\nb")
        assert Ledger.open(path).entries() == ()


def test_a_ledger_that_is_frozen_at_the_end_costs_the_epoch_only(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", BUDGET, "people", "add-remove", keep_open=True)
    with _open(ledger) as first:  # and is not collected as garbage before the second
        at = next(i for i, text in enumerate(ASKED) if first.ask(text).how == "free")
        ledger.freeze("enough")
    ledger.unfreeze("more")
    used = len(ledger.entries())
    with _open(ledger) as session:
        assert session.ask(ASKED[at]).how == "free"
        session.ask(ASKED[at + 1])
    assert len(ledger.entries()) == used + 1
    ledger.close()


def test_hedge_on_a_tiny_table_stays_a_distribution(tmp_path: Path) -> None:
    few = TABLE.head(2)
    with _open(tmp_path / "a.ledger", table=few, learning="hedge", updates=3) as session:
        session.ask_many(ASKED)
        table = session.table("age", "sex")
    assert np.isfinite(table).all()
    assert table.sum() == pytest.approx(session.table().item())


def test_threads_get_one_answer_to_one_question(tmp_path: Path) -> None:
    """Who comes first is up to the threads; there is an epoch for every question."""
    with _open(tmp_path / "a.ledger", updates=40) as session, ThreadPoolExecutor(8) as pool:
        asked = [ASKED[(3 * i + j) % 12] for i in range(8) for j in range(12)]
        found = list(pool.map(session.ask, asked))
        by_text = dict(zip(asked, found, strict=True))
        assert all(by_text[text] == answer for text, answer in zip(asked, found, strict=True))
        lists = [ASKED[12:20], ASKED[14:24], ASKED[10:22]]
        many = list(pool.map(session.ask_many, lists))
        for listed, answers in zip(lists, many, strict=True):
            assert answers == [session.ask(text) for text in listed]
    assert Ledger.open(tmp_path / "a.ledger").verify().is_whole


def test_a_session_in_use_is_not_used_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    first, second = _open(path, "one"), _open(path, "two")
    at = next(i for i, text in enumerate(ASKED) if first.ask(text).how == "free")
    assert second.ask(ASKED[at]) == first.ask(ASKED[at])  # stored answers are for everybody
    with pytest.raises(LedgerError, match="in use"):
        second.ask("SELECT COUNT(*) FROM t WHERE age = 7")
    first.close()
    found = second.ask_many([*ASKED, "SELECT COUNT(*) FROM t WHERE age = 7"])
    assert all(isinstance(f, Answer) for f in found)
    assert found[:at] == [first.ask(text) for text in ASKED[:at]]  # paid for by the first
    second.close()
    third = _open(path, "three")
    assert third.ask_many(ASKED) == found[:-1]
    for name in ("age", "sex"):
        np.testing.assert_array_equal(third.table(name), second.table(name))
    third.close()


def test_a_closed_session_lets_go_of_its_table_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a file stays locked, or a server connected, while somebody holds the session."""
    path = tmp_path / "people.parquet"
    TABLE.to_parquet(path)
    closed: list[DuckDB] = []
    shut = DuckDB.close
    monkeypatch.setattr(DuckDB, "close", lambda engine: (closed.append(engine), shut(engine)))
    session = _open(tmp_path / "people.ledger", table=path)
    answer = session.ask(ASKED[0])
    engine = session._state._exact._table.engine  # others may be collected meanwhile
    assert engine not in closed
    session.close()
    assert engine in closed
    assert session.ask(ASKED[0]) == answer
    with pytest.raises(PlanError, match="closed"):
        session.ask(ASKED[1])
    session.close()


def test_a_session_that_cannot_be_opened_closes_its_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "people.ledger", BUDGET, "people")
    closed: list[LedgerReader] = []
    shut = LedgerReader.close
    monkeypatch.setattr(LedgerReader, "close", lambda ledger: (closed.append(ledger), shut(ledger)))
    counted = ExactQuestions.records

    def fails(_: ExactQuestions) -> None:
        raise TableError("the table could not be counted")

    monkeypatch.setattr(ExactQuestions, "records", fails)
    with pytest.raises(TableError):
        _open(tmp_path / "people.ledger")
    assert len(closed) == 1
    given = Ledger.open(tmp_path / "people.ledger")
    with pytest.raises(TableError):
        _open(given)
    assert len(closed) == 1  # a ledger that was given is the caller's to close
    monkeypatch.setattr(ExactQuestions, "records", counted)
    _open(tmp_path / "people.ledger").close()
    assert len(closed) == 2


def test_a_large_number_for_every_record_is_answered(tmp_path: Path) -> None:
    """It failed after the debit of its epoch, so that every attempt cost one."""
    with _open(tmp_path / "people.ledger") as session:
        first = session.ask("SELECT SUM(300000) FROM t")
        assert first.low <= 300_000 * len(TABLE) <= first.high
        used = len(Ledger.open(tmp_path / "people.ledger").entries())
        assert session.ask("SELECT SUM(300000) FROM t") == first
        assert len(Ledger.open(tmp_path / "people.ledger").entries()) == used


def test_a_plan_opens_the_session_that_its_arguments_open(tmp_path: Path) -> None:
    ledger = made(tmp_path / "a.ledger", BUDGET, "people")
    asked = {"questions": 200, "updates": 16, "records": 4000}
    plan = sf.plan_session(DOMAIN, BUDGET, **asked)
    with plan.open(TABLE, ledger, name="people") as session:
        first = session.ask("SELECT COUNT(*) FROM t")
    with sf.open_session(TABLE, DOMAIN, BUDGET, ledger=ledger, name="people", **asked) as again:
        assert again.name == session.name
        assert again.ask("SELECT COUNT(*) FROM t") == first
    with plan.open(None, dummy=True) as dummy:
        assert dummy.is_dummy
        assert dummy.name == session.name
