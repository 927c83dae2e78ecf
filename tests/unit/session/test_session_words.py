# SPDX-License-Identifier: Apache-2.0
"""The words of an answer are those of who asks; what is stored has nobody's."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import sfumato as sf
from sfumato.ledger.ledger import Ledger
from sfumato.session.session_answers import Answer, answer_frame, paid_answer
from tests.sessions import begin_session
from tests.shared.words import SeededWords

DOMAIN = sf.Domain({"age": 6, "value": 2})
TABLE = pd.DataFrame({"age": [0, 1, 2, 3, 4, 5] * 100, "value": [0, 1, 1] * 200})
PRIVATE = "somebody's private words"


@pytest.fixture
def ledger(tmp_path):
    return Ledger.open_or_create(
        tmp_path / "a.ledger", "people", "add-remove", sf.Budget(epsilon=8, delta=1e-9)
    )


def opened(ledger):
    return begin_session(
        TABLE,
        DOMAIN,
        sf.Budget(epsilon=4, delta=1e-9),
        SeededWords("s"),
        ledger=ledger,
        questions=100,
        updates=8,
        records=600,
        name="people",
    )


def test_an_answer_is_given_in_the_words_of_who_asks_and_stored_in_nobodys(ledger):
    session = opened(ledger)
    first = session.ask(f'SELECT COUNT(*) AS "{PRIVATE}" FROM t WHERE age < 3', analyst="ada")
    second = session.ask("SELECT COUNT(*) FROM people WHERE NOT age >= 3", analyst="bob")
    assert (first.question, first.condition) == (PRIVATE, "age < 3")
    assert PRIVATE not in str(second.as_json())
    assert second.condition == "NOT age >= 3"
    assert (first.key, first.value, first.low) == (second.key, second.value, second.low)
    assert PRIVATE not in str(session.answer(first.key).as_json())
    assert PRIVATE not in first.to_bytes().decode()
    session.close()
    again = opened(ledger)
    assert PRIVATE not in str(again.answer(first.key).as_json())
    assert again.ask("SELECT COUNT(*) FROM t WHERE age < 3").value == first.value


def test_groups_are_columns_and_keep_clear_of_the_columns_of_answers(ledger):
    session = opened(ledger)
    frame = session.ask_frame("SELECT value, COUNT(*) FROM t WHERE age < 3 GROUP BY value")
    assert frame["value (attribute)"].tolist() == [0, 1]
    assert frame["aggregate"].tolist() == ["COUNT(*)"] * 2
    assert frame["value"].dtype == float
    several = session.ask_all(sf.marginals(DOMAIN, [("age", "value")]))
    assert dict(several[3].groups) == {"age": 1, "value (attribute)": 1}
    assert len(answer_frame(several)) == 12


def test_answers_that_earlier_versions_stored_with_words_are_read_without_them(ledger):
    session = opened(ledger)
    answer = session.ask("SELECT COUNT(*) FROM t WHERE age < 3")
    old = {**json.loads(answer.to_bytes()), "question": PRIVATE}
    read = Answer.from_bytes(json.dumps(old).encode())
    assert (read.value, read.key) == (answer.value, answer.key)
    assert PRIVATE not in read.question
    learnt = {
        "attributes": ["age"],
        "class_of": [[0, 0, 0, 1, 1, 1]],
        "shape": [2],
        "table": [1, 0],
        "bits": 0,
        "value": 1.0,
        "variance": 1.0,
    }
    stored = json.dumps({"answer": old, "learnt": learnt}).encode()
    assert PRIVATE not in paid_answer(stored, DOMAIN)[0].question
