# SPDX-License-Identifier: Apache-2.0
"""Multiplicative weights against the formula of the paper, written out."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge
from sfumato.refine.learn import Hedge

DOMAIN = sf.Domain({"a": 3, "b": 4})
WORK = sf.marginals(DOMAIN, 1) | sf.prefixes(DOMAIN, "b", by=["a"])


def test_one_pass_is_the_update_of_the_paper() -> None:
    hedge = Hedge(DOMAIN, 120.0)
    term = WORK.terms[0]
    coefficients = np.zeros((3, 4))
    coefficients[1] = 1.0
    hedge._measured[term.name, 1] = (term, np.array([0.0, 1.0, 0.0]), 90.0, 1)
    before = hedge.histogram.copy()
    hedge._pass()
    found = before * np.exp(coefficients * (90.0 - 40.0) / (2 * 120.0))
    assert hedge.histogram == pytest.approx(found / found.sum() * 120.0)


def test_measured_queries_are_learnt_and_the_rest_stays_near() -> None:
    rng = np.random.default_rng(0)
    truth = rng.multinomial(500, rng.dirichlet(np.ones(12))).reshape(3, 4)
    hedge = Hedge(DOMAIN, 500.0)
    exact = WORK.evaluate(truth)
    at_first = np.abs(hedge.answers(WORK) - exact).max()
    place = 0
    for term in WORK.terms:
        for query in range(term.rows):
            hedge.learn(term, query, float(exact[place]))
            place += 1
    assert hedge.histogram.sum() == pytest.approx(500.0)
    assert (hedge.histogram >= 0).all()
    assert np.abs(hedge.answers(WORK) - exact).max() < 0.1 * at_first


def test_relative_entropy_to_the_data_falls_with_every_true_answer() -> None:
    """Hardt, Ligett, McSherry 2012: what the error bound rests on."""
    rng = np.random.default_rng(1)
    truth = rng.dirichlet(np.ones(12)).reshape(3, 4) * 300
    hedge, exact = Hedge(DOMAIN, 300.0), WORK.evaluate(truth)

    def entropy() -> float:
        return float((truth * np.log(truth / hedge.histogram)).sum())

    known = entropy()
    for query in range(WORK.terms[-1].rows):
        start = sum(t.rows for t in WORK.terms[:-1])
        hedge.learn(WORK.terms[-1], query, float(exact[start + query]))
        assert entropy() <= known + 1e-9
        known = entropy()


def test_an_answer_heard_twice_is_averaged() -> None:
    hedge = Hedge(DOMAIN, 100.0)
    hedge.learn(WORK.terms[0], 0, 60.0)
    hedge.learn(WORK.terms[0], 0, 40.0)
    assert hedge.table(("a",))[0] == pytest.approx(50.0, abs=0.5)


def test_a_domain_that_cannot_be_listed_is_refused_with_a_way_out() -> None:
    with pytest.raises(TooLarge, match="tables"):
        Hedge(sf.Domain({f"x{i}": 10 for i in range(9)}), 100.0)
