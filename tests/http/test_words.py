# SPDX-License-Identifier: Apache-2.0
"""Answers carry structure, in the words of who asks: nobody reads what somebody else wrote."""

from __future__ import annotations

import pytest

from sfumato.session.client import Client
from sfumato_web.page.ask_page import Answered
from sfumato_web.server.models import canonical
from tests.http.served import ADA, CORA, bearer, served, write_served
from tests.http.test_ask import ASK, SESSION
from tests.http.test_client import over

FORGED = "COUNT(*) by sex where age < 5: age < 5, sex = Male"
PRIVATE = "my private words"
GROUPED = "SELECT sex, COUNT(*) FROM data WHERE age < 5 GROUP BY sex"


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    with served(write_served(tmp_path_factory.mktemp("words"), SESSION)) as client:
        yield client


def post(client, token, sql):
    reply = client.post(ASK, headers=bearer(token), json={"sql": sql})
    assert reply.status_code == 200, reply.text
    return reply


def test_an_alias_never_labels_the_answer_of_another_analyst(asking):
    forged = f"SELECT COUNT(*) AS \"{FORGED}\" FROM data WHERE age < 5 AND sex = 'Female'"
    first = post(asking, ADA, forged).json()["answers"][0]
    assert first["question"] == FORGED  # one's own words
    answers = post(asking, CORA, GROUPED).json()["answers"]
    assert [a["groups"] for a in answers] == [{"sex": "Female"}, {"sex": "Male"}]
    assert [a["aggregate"] for a in answers] == ["COUNT(*)"] * 2
    assert [a["condition"] for a in answers] == ["age < 5"] * 2
    assert len({a["key"] for a in answers}) == 1  # one question
    assert answers[0]["question"] != answers[1]["question"]
    assert FORGED not in answers[0]["question"]


def test_the_words_of_one_analyst_reach_nobody_else_by_any_route(asking):
    private = f'SELECT COUNT(*) AS "{PRIVATE}" FROM data WHERE age = 7'
    body = post(asking, ADA, private)
    assert PRIVATE in body.text
    key = body.json()["key"]
    listed = post(asking, ADA, f'SELECT sex, COUNT(*) AS "{PRIVATE}" FROM data GROUP BY sex')
    seen = [
        post(asking, CORA, "SELECT COUNT(*) FROM data WHERE age = 7").text,
        asking.get(f"/datasets/people/answers/{key}", headers=bearer(CORA)).text,
        post(asking, CORA, "SELECT sex, COUNT(*) FROM data GROUP BY sex").text,
        asking.get("/datasets/people/ledger", headers=bearer(CORA)).text,
    ]
    assert not any(PRIVATE in text for text in seen)
    again = asking.get(f"/datasets/people/answers/{listed.json()['key']}", headers=bearer(ADA))
    assert again.content == listed.content  # one's own list


def test_a_list_that_was_kept_with_somebodys_words_is_read_without_them(asking):
    server = asking.app.server
    answer = {"key": "f" * 64, "question": PRIVATE, "value": 1.0}
    body = canonical({"key": "e" * 64, "dataset": "people", "answers": [answer]})
    server.datasets["people"].store.keep([("people", "e" * 64, body)])
    for _ in range(2):
        read = asking.get(f"/datasets/people/answers/{'e' * 64}", headers=bearer(CORA))
        assert read.json()["answers"][0]["value"] == 1.0
        assert PRIVATE not in read.text


def test_conditions_on_several_attributes_have_columns_too(asking):
    sql = "SELECT sex, COUNT(*), SUM(age) FROM data WHERE age < 5 OR sex = 'Male' GROUP BY sex"
    answers = post(asking, CORA, sql).json()["answers"]
    assert [a["groups"] for a in answers] == [{"sex": "Female"}, {"sex": "Male"}] * 2
    assert [a["aggregate"] for a in answers] == ["COUNT(*)"] * 2 + ["SUM(age)"] * 2


def test_the_client_has_a_column_for_each_column_of_the_groups(asking):
    client = Client("http://x", CORA, transport=over(asking))
    frame = client.ask("people", GROUPED).answers
    assert frame["sex"].tolist() == ["Female", "Male"]
    assert {"aggregate", "condition", "value", "low", "high"} <= set(frame.columns)


def test_rows_of_a_chart_never_share_a_label():
    answer = {
        "groups": {"sex": "Male"},
        "aggregate": "COUNT(*)",
        "value": 1.0,
        "low": 0.0,
        "high": 2.0,
        "how": "free",
        "question": "sex = Male",
    }
    one = Answered("SELECT 1", (answer, answer, {**answer, "groups": {"sex": "Female"}}), False)
    assert one.labels() == ["Male", "Male (2)", "Female"]
    assert one.columns == ("sex",)
    assert [row[0] for row in one.rows()] == ["Male", "Male", "Female"]
