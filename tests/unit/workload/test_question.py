# SPDX-License-Identifier: Apache-2.0
"""Questions: one form for all ways of writing them, and exact answers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import TooLarge
from sfumato.workload.predicates import And, Condition, In, Not, Or
from sfumato.workload.question import Question, questions_of
from sfumato.workload.workload import marginal

DOMAIN = sf.Domain({"a": 5, "b": 3, "c": 4})
RNG = np.random.default_rng(7)
COUNTS = RNG.integers(0, 50, DOMAIN.shape)


def _one(text: str, domain: sf.Domain = DOMAIN) -> Question:
    (found,) = questions_of(sf.sql(domain, f"SELECT {text}"))
    return found


def _exact(question: Question, counts: np.ndarray) -> Fraction:
    table = marginal(counts, question.domain, question.attributes)
    return Fraction(int(question.answer(table)), 2**question.bits)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("COUNT(*) FROM t WHERE a < 2 AND b = 1", "COUNT(*) FROM t WHERE NOT (b <> 1 OR a >= 2)"),
        ("COUNT(*) FROM t WHERE a < 2", "COUNT(*) FROM t WHERE a IN (1, 0) AND c >= 0"),
        ("COUNT(*) FROM t", "COUNT(*) FROM t WHERE a < 9 OR b = 2"),
        ("COUNT(*) FROM t WHERE a = 1 OR b = 1", "COUNT(*) FROM t WHERE NOT (a <> 1 AND b <> 1)"),
        ("SUM(a) FROM t WHERE b = 1", "SUM(a) FROM t WHERE b = 1 AND c IN (0, 1, 2, 3)"),
    ],
)
def test_equal_meanings_have_equal_keys(first: str, second: str) -> None:
    assert _one(first).key == _one(second).key


def test_a_cell_of_a_marginal_and_a_row_of_a_matrix_are_the_same_question() -> None:
    written = _one("COUNT(*) FROM t WHERE b = 1 AND c = 2")
    cells = questions_of(sf.marginals(DOMAIN, 2))
    assert [q.key for q in cells].count(written.key) == 1
    row = np.zeros((1, 12))
    row[0, 1 * 4 + 2] = 1
    (given_row,) = questions_of(sf.explicit(DOMAIN, ["b", "c"], row))
    assert given_row.key == written.key


def test_different_meanings_and_domains_have_different_keys() -> None:
    asked = ["COUNT(*) FROM t", "COUNT(*) FROM t WHERE a < 2", "COUNT(*) FROM t WHERE a < 3"]
    asked += ["COUNT(*) FROM t WHERE b < 2", "SUM(a) FROM t"]
    keys = {_one(text).key for text in asked}
    assert len(keys) == len(asked)
    other = sf.Domain({"a": 6, "b": 3, "c": 4})
    assert _one(asked[1], other).key != _one(asked[1]).key


@st.composite
def _conditions(draw: st.DrawFn, depth: int = 2) -> Condition:
    if depth == 0 or draw(st.booleans()):
        name = draw(st.sampled_from(DOMAIN.names))
        codes = draw(st.sets(st.integers(0, DOMAIN[name].size - 1)))
        return In(name, tuple(sorted(codes)))
    if draw(st.booleans()):
        return Not(draw(_conditions(depth - 1)))
    parts = tuple(draw(st.lists(_conditions(depth - 1), min_size=1, max_size=3)))
    return And(parts) if draw(st.booleans()) else Or(parts)


@given(_conditions())
@settings(max_examples=150, deadline=None)
def test_answers_are_those_of_the_workload_and_double_negation_changes_nothing(
    condition: Condition,
) -> None:
    work = sf.predicates(DOMAIN, [condition])
    (question,) = questions_of(work)
    assert _exact(question, COUNTS) == Fraction(work.evaluate(COUNTS)[0])
    codes = np.stack(np.unravel_index(np.arange(COUNTS.size), COUNTS.shape), 1)
    columns = [codes[:, DOMAIN.index(n)] for n in question.attributes]
    listed = int((question.at(columns, COUNTS.size) * COUNTS.reshape(-1)).sum())
    assert listed == _exact(question, COUNTS)
    (same,) = questions_of(sf.predicates(DOMAIN, [Not(Or((Not(condition), Not(condition))))]))
    assert same.key == question.key


@pytest.mark.parametrize(
    "work",
    [
        sf.marginals(DOMAIN, 2) | sf.prefixes(DOMAIN, "a", by=["b"]),
        sf.ranges(DOMAIN, "c") | sf.windows(DOMAIN, "a", 2),
        sf.means(DOMAIN, "a", by=["b"]),
        sf.explicit(DOMAIN, ["a"], np.array([[0.5, -0.25, 0, 1.5, 0], [1, 1, 1, 1, 1]])),
    ],
    ids=["tables", "ranges", "means", "matrix"],
)
def test_every_query_of_a_workload_is_answered_exactly(work: sf.Workload) -> None:
    found = [float(_exact(q, COUNTS)) for q in questions_of(work)]
    np.testing.assert_array_equal(found, work.evaluate(COUNTS))
    assert len({q.key for q in questions_of(work)}) <= work.queries


def test_coefficients_beyond_words_are_summed_exactly() -> None:
    domain = sf.Domain({"a": 2})
    work = sf.explicit(domain, ["a"], np.array([[2.0**30, 3.0]]))
    (question,) = questions_of(work)
    counts = np.array([2**40, 5])
    assert question.answer(counts) == (2**70 + 15) << question.bits


def test_one_cell_with_a_coefficient_beyond_words_is_multiplied_exactly() -> None:
    """In 64 bits the product would begin anew at 2^63, and one record would move it by 2^64."""
    domain = sf.Domain({"a": 2, "b": 2})
    (question,) = questions_of(sf.product(domain, {"a": [[0, 2**24]], "b": [[0, 2**25 - 1]]}))
    factor = 2**24 * (2**25 - 1)
    counts = np.zeros((2, 2), dtype=np.int64)
    for records in (2**14, 2**14 + 1, 2**15, 2**43):
        counts[1, 1] = records
        assert question.answer(counts) == factor * records
        assert question.answer(counts.astype(object)) == factor * records
    assert question.answer(counts.astype(float)) == float(factor) * 2**43


@pytest.mark.parametrize("factor", [0, 1, -7, 2**18, 2**30 - 1, -(2**29)])
def test_a_number_for_every_record_is_multiplied_exactly(factor: int) -> None:
    (question,) = questions_of(sf.explicit(DOMAIN, ["a"], np.full((1, 5), float(factor))))
    assert question.attributes == ()
    for records in (0, 3, 2**43):
        assert question.answer(np.array(records)) == factor * records
        assert question.answer(np.array(records, dtype=object)) == factor * records
        assert question.answer(np.array(float(records))) == float(factor * records)


def test_what_is_too_large_to_ask_is_refused() -> None:
    with pytest.raises(TooLarge, match="at most"):
        questions_of(sf.marginals(sf.Domain({"a": 20_000}), 1))
    wide = sf.Domain({f"x{i}": 3 for i in range(24)})
    condition = And(tuple(In(name, (0,)) for name in wide.names))
    with pytest.raises(TooLarge, match="fewer attributes"):
        questions_of(sf.predicates(wide, [condition]))
