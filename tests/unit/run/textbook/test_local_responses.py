# SPDX-License-Identifier: Apache-2.0
"""Randomized response by the notes' name, on arrays and tables, with and without a ledger."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.errors import SfumatoError
from sfumato.run.textbook.local_responses import randomized_response
from sfumato.study.local_model import RandomizedResponse, UnaryEncoding
from sfumato.vault.count import Sensitive
from sfumato.vault.mechanisms.measure import tallied_reports
from tests.shared.words import SeededWords


@pytest.mark.parametrize("encoding", ["direct", "unary", "symmetric-unary"])
def test_randomized_response_is_unbiased_over_codes_and_within_its_bound(encoding):
    words, codes = SeededWords(11), np.repeat(np.arange(5), [400, 300, 200, 100, 0])
    runs = [
        randomized_response(codes, epsilon=2, size=5, encoding=encoding, random=words)
        for _ in range(60)
    ]
    answers = np.array([r.answers for r in runs])
    truth = np.bincount(codes, minlength=5)
    off = np.abs(answers - truth).max(axis=1)
    assert (off > runs[0].error_bound(0.05)).mean() <= 0.15
    spread = answers.std(axis=0) / np.sqrt(len(runs))
    assert (np.abs(answers.mean(axis=0) - truth) < 5 * spread).all()
    assert runs[0].epsilon == 2
    assert runs[0].reports.shape == ((1000,) if encoding == "direct" else (1000, 5))
    assert "Hoeffding" in repr(runs[0])


def test_queries_over_persons_are_sums_of_unbiased_bits():
    """The notes' 0.5 + (Y - 0.5) / (2p - 1), summed over the persons of a query."""
    bits = np.arange(2000) % 3 == 0
    queries = np.random.default_rng(1).integers(0, 2, (8, 2000))
    result = randomized_response(bits, queries, epsilon=1, over="persons", random=SeededWords(12))
    p = float(result.response.keep)
    by_hand = queries @ (0.5 + (result.reports - 0.5) / (2 * p - 1))
    np.testing.assert_allclose(result.answers, by_hand)
    assert np.abs(result.answers - queries @ bits).max() <= result.error_bound(1e-6)
    total = randomized_response(bits, epsilon=1, over="persons", random=SeededWords(13))
    assert abs(total.answers[0] - bits.sum()) <= total.error_bound(1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: randomized_response([0, 2], epsilon=1),
        lambda: randomized_response([[0, 1]], epsilon=1),
        lambda: randomized_response([0, 1], [[1, 0, 0]], epsilon=1, size=2),
        lambda: randomized_response([0, 1], [[1, 0, 0]], epsilon=1, over="persons"),
        lambda: randomized_response([0, 1], epsilon=1, over="tables"),
        lambda: randomized_response([0, 1], epsilon=1, encoding="binary"),
        lambda: randomized_response([0, 1], epsilon=1, size=3, over="persons"),
        lambda: UnaryEncoding(1, 3, "other"),
        lambda: UnaryEncoding(1, 3).estimate([[0, 1]]),
        lambda: randomized_response([0, 1], epsilon=0),
    ],
)
def test_what_is_no_randomized_response_is_refused(call):
    with pytest.raises(SfumatoError):
        call()


DOMAIN = sf.Domain({"sex": 2, "age": 4}, records="all-inside")
COUNTS = np.array([300, 10, 250, 40, 5, 60, 70, 265])


def people() -> pd.DataFrame:
    cells = np.random.default_rng(5).permutation(np.repeat(np.arange(8), COUNTS))
    return pd.DataFrame({"sex": cells // 4, "age": cells % 4})


@pytest.mark.parametrize("encoding", ["direct", "unary", "symmetric-unary"])
def test_a_table_has_the_answers_of_its_codes(encoding):
    """At an epsilon where all reports but a few are true, and within the bound at a small one."""
    queries = sf.prefixes(DOMAIN, "age")
    truth = np.concatenate([np.ravel(a) for a in queries.evaluate(COUNTS.reshape(2, 4))])
    exact = randomized_response(people(), queries, epsilon=60, encoding="direct")
    np.testing.assert_allclose(exact.answers, truth, atol=1e-6)
    assert exact.n == 1000
    assert exact.tally.tolist() == COUNTS.tolist()
    noisy = randomized_response(people(), queries, epsilon=2, encoding=encoding)
    assert np.abs(noisy.answers - truth).max() <= noisy.error_bound(1e-9)
    assert noisy.reports.size == 0  # records of a table have no order
    assert noisy.epsilon == 2
    assert noisy.neighbours == "replace-one"


def test_reports_are_stored_and_every_further_query_is_free(tmp_path):
    book = sf.Ledger.create(
        tmp_path / "a.ledger", sf.Budget(epsilon=2), "made up", neighbours="replace-one"
    )
    first = randomized_response(
        people(), sf.prefixes(DOMAIN, "age"), epsilon=1, ledger=book, name="made up"
    )
    other = randomized_response(
        people(), sf.marginals(DOMAIN, 2), epsilon=1, ledger=book, name="made up"
    )
    assert (first.tally == other.tally).all()
    assert len(other.answers) == 8
    assert book.spent().pure_epsilon == 1
    with pytest.raises(sf.BudgetExhausted):
        randomized_response(
            people(), sf.marginals(DOMAIN, 2), epsilon=1.5, ledger=book, name="made up"
        )


@pytest.mark.parametrize("encoding", ["direct", "unary"])
def test_reports_of_an_array_are_stored_in_their_order(encoding, tmp_path):
    book = sf.Ledger.create(
        tmp_path / "a.ledger", sf.Budget(epsilon=3), "made up", neighbours="replace-one"
    )
    codes = np.arange(37) % 3
    ask = {"epsilon": 1, "encoding": encoding, "ledger": book, "name": "made up"}
    first = randomized_response(codes, np.eye(3), **ask)
    again = randomized_response(codes, [[1, 1, 0]], **ask)
    assert (first.reports == again.reports).all()
    assert first.reports.shape == ((37,) if encoding == "direct" else (37, 3))
    assert (again.tally == first.tally).all()
    assert again.answers[0] == pytest.approx(first.answers[0] + first.answers[1])
    with pytest.raises(sf.PlanError, match="repeatable words"):
        randomized_response(codes, np.eye(3), random=SeededWords(1), **ask)


def test_the_number_of_codes_is_that_of_the_columns_and_a_bit_has_two():
    codes = np.arange(30) % 3
    assert randomized_response(codes, np.eye(3), epsilon=1).response.size == 3
    assert randomized_response(codes > 1, epsilon=1).response.size == 2
    with pytest.raises(sf.SfumatoError, match="3 finite columns"):
        randomized_response(codes, np.eye(4), epsilon=1, size=3)


def test_a_table_whose_records_may_be_dropped_is_refused():
    open_domain = sf.Domain({"sex": 2, "age": 4})
    with pytest.raises(sf.PlanError, match="all-inside"):
        randomized_response(people(), sf.prefixes(open_domain, "age"), epsilon=1)
    with pytest.raises(sf.SfumatoError, match="no order"):
        randomized_response(people(), sf.prefixes(DOMAIN, "age"), epsilon=1, over="persons")
    with pytest.raises(sf.SfumatoError, match="with a workload"):
        randomized_response(people(), epsilon=1)


@pytest.mark.parametrize("make", [RandomizedResponse, UnaryEncoding])
def test_the_tally_has_the_law_of_reports_in_any_order(make):
    """Sums over blocks of records are the sums over all of them, whatever their order."""
    response, counts = make(1, 4), [3, 0, 5, 2]
    codes = np.repeat(np.arange(4), counts)
    runs = 4000
    words = SeededWords(3)
    box = Sensitive(counts)
    tallies = np.array(
        [tallied_reports(box, response.encode, 4, words)[0] for _ in range(runs)], float
    )
    p, q = float(response.keep), float(response.other)
    mean = np.array([sum(p if c == j else q for c in codes) for j in range(4)])
    variance = np.array([sum((x := p if c == j else q) * (1 - x) for c in codes) for j in range(4)])
    assert (np.abs(tallies.mean(axis=0) - mean) < 5 * np.sqrt(variance / runs)).all()
    np.testing.assert_allclose(tallies.var(axis=0), variance, rtol=0.12)
    assert tallied_reports(box, response.encode, 4, words)[1] == 10
    wrong = mean + (np.arange(4) == 0)  # one record more: would be seen
    assert not (np.abs(tallies.mean(axis=0) - wrong) < 5 * np.sqrt(variance / runs)).all()
