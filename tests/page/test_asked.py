# SPDX-License-Identifier: Apache-2.0
"""How the page asks: the path of HTTP, nothing paid twice, refusals with a way out."""

from __future__ import annotations

import asyncio

import pytest

import sfumato as sf
from sfumato.errors import SqlError
from sfumato_web.page.ask_page import (
    Condition,
    advice,
    ask,
    counting_sql,
    history,
    listed_values,
    price,
    problem_words,
    safe_interval_of,
    sharper_error,
    takes_questions,
    values_in_words,
)
from sfumato_web.server.problems import _KINDS, Problem
from tests.page.museum import DOMAIN
from tests.page.visiting import server_of, visit

YOUNG = "SELECT COUNT(*) FROM data WHERE age < 18"


@pytest.fixture
def server(tmp_path):
    with server_of(tmp_path / "museum") as found:
        yield found


@pytest.fixture
def domain(tmp_path):
    path = tmp_path / "museum.toml"
    path.write_text(DOMAIN)
    return sf.Domain.from_toml(path)


def _ask(visitor, name, text):
    return asyncio.run(ask(visitor, visitor.dataset(name), text))


def test_an_answer_has_an_interval_and_is_remembered(server):
    ada = visit(server, "ada")
    found = _ask(ada, "museum", YOUNG)
    (answer,) = found.answers
    assert answer["low"] <= answer["value"] <= answer["high"]
    assert found.how in ("free", "paid")
    assert (answer["safe_low"], answer["safe_high"]) == (answer["low"], answer["high"])
    assert history(ada, ada.dataset("museum")) == [found]
    assert len(found.rows()) == 1
    stored = ada.dataset("museum").stored(answer["key"])  # what HTTP gives
    assert stored is not None
    assert answer["key"].encode() in stored


def test_a_second_interval_is_shown_where_it_is_another_one():
    one = {"low": 3.0, "high": 9.0, "safe_low": 1.0, "safe_high": 12.0}
    assert safe_interval_of(one) == "1 to 12.0"
    assert safe_interval_of({"low": 3.0, "high": 9.0}) == "not known"  # known, in pure noise
    assert safe_interval_of(one | {"safe_low": 3.0, "safe_high": 9.0}) is None
    assert safe_interval_of({"low": None, "high": None}) is None


def test_accuracy_is_paid_for_once(server):
    ada = visit(server, "ada")
    dataset = ada.dataset("museum")
    offered = dataset.batcher.forecast(YOUNG, 100.0)["questions"][0]
    assert price(offered["cost"]).startswith(("mu", "epsilon"))
    bought = asyncio.run(ask(ada, dataset, YOUNG, 100.0))
    assert bought.how == "paid"
    assert "100 was paid for" in bought.what_it_cost
    again = asyncio.run(ask(ada, dataset, YOUNG, 100.0))
    assert (again.how, again.answers) == ("stored", bought.answers)
    assert "cost nothing" in again.what_it_cost
    larger = asyncio.run(ask(ada, dataset, YOUNG, 150.0))
    assert (larger.how, larger.answers[0]["value"]) == ("known", bought.answers[0]["value"])
    assert "follows from what was measured" in larger.what_it_cost
    assert price(dataset.batcher.forecast(YOUNG, 100.0)["questions"][0]["cost"]) == "nothing"
    with pytest.raises(Problem):
        asyncio.run(ask(ada, dataset, YOUNG, 0.0))


def test_the_same_question_again_is_stored_and_costs_nothing(server):
    ada, cora = visit(server, "ada"), visit(server, "cora")
    first = _ask(ada, "museum", YOUNG)
    before = len(server.datasets["museum"].ledger.entries())
    for visitor, text in ((ada, YOUNG), (cora, YOUNG), (ada, f"{YOUNG} ")):
        again = _ask(visitor, "museum", text)
        assert (again.how, again.answers) == ("stored", first.answers)
    assert len(server.datasets["museum"].ledger.entries()) == before
    assert [a.sql for a in history(ada, ada.dataset("museum"))] == [f"{YOUNG} ", YOUNG]


def test_two_clicks_at_once_are_one_question(server):
    ada = visit(server, "ada")

    async def twice():
        dataset = ada.dataset("museum")
        return await asyncio.gather(*(ask(ada, dataset, YOUNG) for _ in range(2)))

    first, second = asyncio.run(twice())
    assert first.answers == second.answers
    epochs = [e for e in server.datasets["museum"].ledger.entries() if "epoch" in e.key]
    assert len(epochs) == 1


def test_who_may_not_spend_reads_what_is_stored(server):
    first = _ask(visit(server, "ada"), "museum", YOUNG)
    found = _ask(visit(server, "dan"), "museum", YOUNG)
    assert (found.how, found.answers) == ("stored", first.answers)


def test_nobody_pays_beyond_their_allowance(server):
    dan = visit(server, "dan")
    with pytest.raises(Problem) as refused:
        _ask(dan, "museum", YOUNG)
    assert (refused.value.status, refused.value.code) == (409, "budget-exhausted")
    assert "budget refused" in refused.value.message
    message, what_to_do = problem_words(refused.value)
    assert message.startswith("Allowance of analyst 'dan'")
    assert "curator" in what_to_do
    assert server.datasets["museum"].ledger.entries() == ()


def test_what_is_no_question_is_refused_as_over_http(server):
    ada = visit(server, "ada")
    for text in ("", "x" * 4001):
        with pytest.raises(Problem) as refused:
            _ask(ada, "museum", text)
        assert (refused.value.status, refused.value.code) == (422, "request")
    with pytest.raises(SqlError, match="MAX"):
        _ask(ada, "museum", "SELECT MAX(age) FROM data")
    with pytest.raises(Problem, match="no dataset of this name"):
        visit(server, "bob").dataset("museum")
    assert all(takes_questions(d) for d in server.datasets.values())


def test_a_frozen_dataset_gives_stored_answers_only(server):
    ada = visit(server, "ada")
    first = _ask(ada, "museum", YOUNG)
    server.datasets["museum"].set_frozen(True, "review")
    assert _ask(ada, "museum", YOUNG).answers == first.answers
    with pytest.raises(Exception, match="frozen"):
        _ask(ada, "museum", "SELECT COUNT(*) FROM data WHERE age < 40")


def test_there_is_advice_for_every_refusal_of_a_question():
    codes = {code for _, _, code, _ in _KINDS} - {"plan", "budget"}
    assert all(advice(code) for code in codes | {"too-many"})
    assert advice("sql") == advice("workload")


@pytest.mark.parametrize(
    ("conditions", "by", "queries"),
    [
        ([], None, 1),
        ([Condition("age", low=18, high=64)], None, 1),
        ([Condition("age", low=65)], None, 1),
        ([Condition("age", high=17)], "ticket", 5),
        ([Condition("ticket", ["'adult'"])], None, 1),
        ([Condition("ticket", ["'adult'", "'child'"])], "weekday", 7),
        ([Condition("guided", ["TRUE"])], None, 1),
        ([Condition("age", low=18), Condition("guided", ["TRUE"])], "ticket", 5),
        ([Condition("age"), Condition("age", low=18), Condition("age", high=30)], None, 1),
        ([], "guided", 2),
    ],
)
def test_controls_write_questions_that_can_be_asked(domain, conditions, by, queries):
    assert sf.sql(domain, counting_sql(*conditions, by=by)).queries == queries


def test_odd_names_are_quoted():
    domain = sf.Domain({'a "b"': 3})
    assert sf.sql(domain, counting_sql(Condition('a "b"', low=1))).queries == 1


def test_values_are_listed_or_their_ends():
    domain = sf.Domain({"age": 90})
    assert values_in_words(domain["age"]) == "0 to 89"
    names = [f"v{i}" for i in range(100)]
    many = sf.Domain([sf.Category("c", names)])["c"]
    assert values_in_words(many).endswith("v59 and 40 more, the last v99")
    few = sf.Domain([sf.Category("c", names[:3])])["c"]
    assert values_in_words(few) == "v0, v1, v2"


def test_half_of_the_error_of_an_answer():
    answer = {"low": -10.0, "high": 382.0, "level": 0.95}
    assert sharper_error(answer) == 50.0
    assert sharper_error({**answer, "low": None}) is None
    assert sharper_error({**answer, "high": -10.0}) is None


def test_few_values_are_listed_as_constants(domain):
    assert listed_values(domain["ticket"])[0] == "'adult'"
    assert listed_values(domain["guided"]) == ["FALSE", "TRUE"]
    assert listed_values(domain["age"]) is None
