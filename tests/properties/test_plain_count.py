# SPDX-License-Identifier: Apache-2.0
"""Plain counts mean what the parser of SQL says they mean, down to the key and the name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.domain.attributes import Boolean, Category, Integer, Numeric
from sfumato.domain.domain import Domain
from sfumato.errors import SfumatoError
from sfumato.session.group_questions import labelled_questions
from sfumato.workload.question import Question, plain_count, questions_of

DOMAIN = Domain(
    [
        Integer("age", min=0, max=30),
        Category("sex", values=("Female", "Male", "it's"), outside="other", nulls="missing"),
        Numeric("income", edges=(0.0, 10.0, 99.5, 1000.0), nulls="missing"),
        Boolean("is_old"),
        Category("zip", values=(1, 2, 3)),
        Category("select", values=("a", "b")),
        Category("hours-per-week", values=("a b", "c")),
        Integer("T", min=0, max=3),
    ]
)

odd = st.sampled_from(["10.0", "99.5", "007", "0.5", "1e1", "+1", "NULL", "TRUE"])
texts = st.sampled_from(["'Female'", "'Male'", "'it''s'", "''", "'a'", "'a b'", "'x'"])
constants = st.integers(-5, 40).map(str) | odd | texts
columns = st.sampled_from(
    ["age", "AGE", '"age"', "`age`", "t.age", "sex", "income", "is_old", "zip", "T", "t"]
) | st.sampled_from(["select", '"select"', "nothing", "hours-per-week", '"hours-per-week"'])
spaces = st.sampled_from([" ", "  ", "\n", "\t"])


@st.composite
def parts(draw: st.DrawFn) -> str:
    column, gap = draw(columns), draw(spaces)
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return f"{column}{gap}between {draw(constants)} AND{gap}{draw(constants)}"
    if kind == 1:
        listed = f",{gap}".join(draw(st.lists(constants, min_size=1, max_size=3)))
        return f"{column} {draw(st.sampled_from(['IN', 'in', 'NOT IN']))} ({listed})"
    if kind == 2 and draw(st.booleans()):
        return f"NOT {column} = {draw(constants)}"
    word = draw(st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">=", "=="]))
    return f"{column}{draw(st.sampled_from(['', ' ']))}{word}{gap}{draw(constants)}"


@st.composite
def selects(draw: st.DrawFn) -> str:
    start = draw(st.sampled_from(["SELECT COUNT(*) FROM t", "select count( * ) from data"]))
    joined = draw(st.sampled_from([" AND ", " and\n", " OR "]) | st.just(" AND "))
    where = joined.join(draw(st.lists(parts(), min_size=1, max_size=4)))
    end = draw(st.sampled_from(["", "", " ", ";", " ; ", " GROUP BY sex", " -- all", " LIMIT 1"]))
    return f"{start}{draw(spaces)}WHERE {where}{end}"


@settings(deadline=None, max_examples=400)
@given(selects())
def test_a_plain_count_is_the_question_that_the_parser_reads(text: str) -> None:
    found = plain_count(DOMAIN, text)
    if found is None:
        return
    (parsed,) = labelled_questions(sf.sql(DOMAIN, text))
    assert (found.key, *words(found)) == (parsed.key, *words(parsed))
    assert found.attributes == parsed.attributes
    assert found.table.tolist() == parsed.table.tolist()


def words(question: Question) -> tuple[object, ...]:
    """What a question is called by who asks."""
    return (question.name, question.aggregate, question.condition, question.groups, question.hides)


READ = [
    "SELECT COUNT(*) FROM t WHERE age < 9",
    "select count(*) from people where age between 3 and 12 and sex='Male'",
    "SELECT COUNT(*) FROM t WHERE \"hours-per-week\" = 'c' AND zip IN (1, 2) AND sex <> 'Male'",
    "SELECT COUNT(*) FROM t WHERE income >= 10.0 AND income < 99.5;",
    "SELECT COUNT(*) FROM t WHERE age >= 3 AND age <= 6 AND age != 5",
]


@pytest.mark.parametrize("text", READ)
def test_plain_counts_are_read_without_the_parser(text: str) -> None:
    found = plain_count(DOMAIN, text)
    (parsed,) = labelled_questions(sf.sql(DOMAIN, text))
    assert found is not None
    assert (found.key, *words(found)) == (parsed.key, *words(parsed))


LEFT = [
    "SELECT COUNT(*) FROM t",
    "SELECT COUNT(*) FROM t WHERE age < 9 OR sex = 'Male'",
    "SELECT COUNT(*) FROM t WHERE age < 9 -- AND sex = 'Male'",
    "SELECT COUNT(*) FROM t WHERE age < 9 /* x */",
    "SELECT COUNT(*) FROM t WHERE age < 1000",  # everybody
    "SELECT COUNT(*) FROM t WHERE age < 3 AND age > 6",  # nobody
    "SELECT COUNT(*) FROM t WHERE sex = 'it''s'",
    "SELECT COUNT(*) FROM t WHERE select = 'a'",
    "SELECT COUNT(*) FROM t WHERE t.age < 9",
    "SELECT COUNT(*) FROM t WHERE nothing < 9",
    "SELECT COUNT(*) FROM t WHERE age < 'x'",
    "SELECT COUNT(*) FROM t WHERE age < 9; DROP TABLE t",
    "SELECT COUNT(*) FROM t WHERE age < 9 GROUP BY sex",
    "SELECT COUNT(*) FROM t WHERE " + " AND ".join(["age < 9"] * 200),
]


@pytest.mark.parametrize("text", LEFT)
def test_what_leaves_a_doubt_is_left_to_the_parser(text: str) -> None:
    assert plain_count(DOMAIN, text) is None


def test_the_parser_and_the_plain_reader_differ_where_one_of_them_is_broken() -> None:
    """The twin: a question with one cell more has another key."""
    found = plain_count(DOMAIN, "SELECT COUNT(*) FROM t WHERE age < 9")
    (parsed,) = questions_of(sf.sql(DOMAIN, "SELECT COUNT(*) FROM t WHERE age <= 9"))
    assert found is not None
    assert found.key != parsed.key
    with pytest.raises(SfumatoError):
        sf.sql(DOMAIN, "SELECT COUNT(*) FROM t WHERE age < 'x'")
