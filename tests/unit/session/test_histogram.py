# SPDX-License-Identifier: Apache-2.0
"""The public estimate: it answers as its histogram does and learns what it is told."""

from __future__ import annotations

import dataclasses
import doctest
from importlib import import_module

import numpy as np
import pytest
from scipy.optimize import minimize

import sfumato as sf
from sfumato.errors import WorkloadError
from sfumato.session import histogram as module
from sfumato.session.histogram import Cells, Estimate, Rows, Start, support_of
from sfumato.session.session_limits import LIMITS
from sfumato.study.experts import Experts
from sfumato.workload.question import Question, questions_of
from sfumato.workload.workload import marginal

DOMAIN = sf.Domain({"a": 4, "b": 3, "c": 2})
WORK = sf.marginals(DOMAIN, 2) | sf.prefixes(DOMAIN, "a", by=["c"])
QUESTIONS = questions_of(WORK)
TRUTH = np.random.default_rng(5).integers(0, 80, DOMAIN.shape)


def _truth(question: Question) -> float:
    return question.answer(marginal(TRUTH, DOMAIN, question.attributes)) * 2.0**-question.bits


def _dense(question: Question) -> np.ndarray:
    shape = [a.size if a.name in question.attributes else 1 for a in DOMAIN]
    table = question.coefficients().reshape(shape) * 2.0**-question.bits
    return np.broadcast_to(table, DOMAIN.shape).reshape(-1).astype(float)


@pytest.mark.parametrize(
    "name",
    ["session.histogram", "session.session", "session.session_answers", "workload.question"],
)
def test_the_examples_of_the_docstrings_hold(name: str) -> None:
    found = doctest.testmod(import_module(f"sfumato.{name}"))
    assert found.attempted > 0
    assert found.failed == 0


def test_an_even_estimate_answers_by_numbers_of_cells() -> None:
    found = Estimate(DOMAIN, 240.0)
    for question in QUESTIONS:
        assert found.answer(question) == pytest.approx(10 * _dense(question).sum())
    np.testing.assert_allclose(found.table(("b",)), [80, 80, 80])
    np.testing.assert_allclose(found.table(()), 240)


@pytest.mark.parametrize("seed", range(5))
def test_the_fit_is_the_least_of_what_it_says_it_minimises(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a general optimiser over all cells; sweeps are few in a session, many here."""
    settled = dataclasses.replace(LIMITS, settled_errors=1e-9, settled_share=1e-12, fit_sweeps=2000)
    monkeypatch.setattr(module, "LIMITS", settled)
    draw = np.random.default_rng(seed)
    total, variance = float(TRUTH.sum()), 4.0
    found, known = Estimate(DOMAIN, total), []
    for i in draw.choice(len(QUESTIONS), 4, replace=False).tolist():
        value = _truth(QUESTIONS[i]) + draw.normal(0, 2)
        found.learn(QUESTIONS[i], value, variance)
        known.append((_dense(QUESTIONS[i]), value))

    def objective(logits: np.ndarray) -> float:
        p = np.exp(logits - logits.max())
        p /= p.sum()
        apart = float(p @ np.log(np.maximum(p, 1e-300) * p.size))
        loss = sum((total * (q @ p) - y) ** 2 / (2 * variance) for q, y in known)
        return LIMITS.evenness_weight * total * apart + loss

    logits = np.log(np.maximum(found.weights, 1e-300))
    best = minimize(objective, logits, method="L-BFGS-B")
    assert objective(logits) <= best.fun + 1e-6 * (1 + abs(best.fun))
    for paid in found._paid:  # the equation of the docstring, in units of the largest coefficient
        answer = float(_dense(paid.question) @ found.weights) / np.abs(_dense(paid.question)).max()
        pull = LIMITS.evenness_weight * paid.variance * paid.potential
        assert pull == pytest.approx(paid.answer - answer, abs=1e-5)


def test_learning_all_answers_reproduces_the_truth() -> None:
    found = Estimate(DOMAIN, float(TRUTH.sum()))
    for question in QUESTIONS:
        found.learn(question, _truth(question), 1.0)
    errors = [abs(found.answer(q) - _truth(q)) for q in QUESTIONS]
    assert max(errors) < 10
    assert found.table(DOMAIN.names).min() >= 0
    assert found.table(()).item() == pytest.approx(TRUTH.sum())


def test_the_same_answers_in_the_same_order_give_the_same_bits() -> None:
    one, two = (Estimate(DOMAIN, 900.0) for _ in range(2))
    for found in (one, two):
        for question in QUESTIONS[:9]:
            found.learn(question, _truth(question), 3.0)
    np.testing.assert_array_equal(one.weights, two.weights)


def test_a_step_of_hedge_is_one_of_the_experts() -> None:
    """Cells are experts, the question is their loss; classes of cells change nothing."""
    rate, total = 0.3, float(TRUTH.sum())
    found, experts = Estimate(DOMAIN, total, learning="hedge", rate=rate), Experts(24, rate)
    for question in QUESTIONS[:12]:
        largest = max(abs(question.low), abs(question.high)) * 2.0**-question.bits
        sign = -1.0 if _truth(question) > found.answer(question) else 1.0
        found.learn(question, _truth(question), 1.0)
        experts.learn(sign * _dense(question) / largest)
    np.testing.assert_allclose(found.weights / total, experts.shares, rtol=1e-9)


def test_relative_entropy_falls_by_what_the_proof_says() -> None:
    """docs/proofs/online.md, Theorem 4: at least 2 g^2 for an error g and the rate 4 g."""
    total = float(TRUTH.sum())
    p = TRUTH.reshape(-1) / total

    def apart(found: Estimate) -> float:
        held = p > 0
        return float(p[held] @ np.log(p[held] / (found.weights[held] / total)))

    for question in QUESTIONS:
        largest = max(abs(question.low), abs(question.high)) * 2.0**-question.bits
        gap = abs(_truth(question) - Estimate(DOMAIN, total).answer(question)) / largest / total
        found = Estimate(DOMAIN, total, learning="hedge", rate=4 * gap)
        before = apart(found)
        if gap > 1e-6:
            found.learn(question, _truth(question), 1.0)
            assert apart(found) <= before - 2 * gap**2 + 1e-12
            wrong = Estimate(DOMAIN, total, learning="hedge", rate=4 * gap)
            sign = 1 if _truth(question) > wrong.answer(question) else -1
            wrong.learn(question, wrong.answer(question) - sign, 1.0)  # the twin: other side
            assert apart(wrong) > before


def test_a_start_is_spread_over_what_it_does_not_tell_apart() -> None:
    start = Start(
        ("a", "c"),
        np.array([[0, 1], [3, 0]]),
        np.array([3.0, 1.0]),
        {"a": np.array([0, 0, 1, 1])},
    )
    found = Estimate(DOMAIN, 400.0, start)
    table = found.table(("a", "c"))
    even = LIMITS.even_share * 50
    np.testing.assert_allclose(table[:2, 1], (1 - LIMITS.even_share) * 150 + even)
    np.testing.assert_allclose(table[2:, 0], (1 - LIMITS.even_share) * 50 + even)
    np.testing.assert_allclose(table[2:, 1], even)
    np.testing.assert_allclose(found.table(("b",)), 400 / 3)
    assert start.digest() != Start(start.names, start.codes, start.weights).digest()
    with pytest.raises(WorkloadError):
        Start(("a",), np.zeros((2, 1), int), np.zeros(2))


WIDE = sf.Domain({f"x{i}": 8 for i in range(12)})


def _asked(text: str) -> Question:
    return questions_of(sf.sql(WIDE, f"SELECT {text}"))[0]


def test_rows_stand_for_domains_that_cannot_be_listed() -> None:
    assert isinstance(support_of(WIDE, None), Rows)
    assert isinstance(support_of(DOMAIN, None), Cells)
    found = Estimate(WIDE, 10_000.0)
    half = _asked("COUNT(*) FROM t WHERE x0 < 4")
    assert found.answer(half) == pytest.approx(5_000, rel=0.05)
    found.learn(half, 9_000.0, 100.0)
    assert found.answer(half) == pytest.approx(9_000, rel=0.01)
    both = _asked("COUNT(*) FROM t WHERE x0 < 4 AND x1 = 2")
    assert found.answer(both) == pytest.approx(9_000 / 8, rel=0.1)
    total = _asked("SUM(x3) FROM t WHERE x0 < 4")
    found.learn(total, 40_000.0, 100.0)
    assert found.answer(total) == pytest.approx(40_000, rel=0.01)


def test_rare_conditions_get_rows_of_their_own() -> None:
    rare = _asked("COUNT(*) FROM t WHERE " + " AND ".join(f"x{i} = 3" for i in range(7)))
    found = Estimate(WIDE, 10_000.0)
    points = found._support.points
    assert found.answer(rare) < 1
    found.learn(rare, 2_500.0, 100.0)
    assert found._support.points > points
    assert found.answer(rare) == pytest.approx(2_500, rel=0.02)
    single = _asked("COUNT(*) FROM t WHERE x0 = 3")
    assert found.answer(single) > 2_500
    before = found.answer(single)
    other = _asked("COUNT(*) FROM t WHERE " + " AND ".join(f"x{i} = 5" for i in range(5, 12)))
    found.learn(other, 1_000.0, 100.0)  # more rows again: what was learnt stays
    assert found.answer(rare) == pytest.approx(2_500, rel=0.02)
    assert found.answer(single) == pytest.approx(before, rel=0.2)


def test_rows_start_from_weighted_records() -> None:
    draw = np.random.default_rng(1)
    codes = np.minimum(draw.geometric(0.4, (5000, 12)) - 1, 7)
    start = Start(WIDE.names, codes, np.ones(5000))
    found = Estimate(WIDE, 10_000.0, start)
    question = _asked("COUNT(*) FROM t WHERE x0 = 0 AND x5 = 0")
    share = float(((codes[:, 0] == 0) & (codes[:, 5] == 0)).mean())
    assert found.answer(question) == pytest.approx(10_000 * share, rel=0.05)
    many = Start(WIDE.names, np.repeat(codes, 20, axis=0), np.ones(100_000))
    assert Rows(WIDE, many).points <= 60_000


def test_tables_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    small = dataclasses.replace(LIMITS, tables_cells=20, table_cells=10)
    monkeypatch.setattr(module, "LIMITS", small)
    found = Estimate(DOMAIN, 240.0)
    for question in QUESTIONS:
        assert found.answer(question) == pytest.approx(10 * _dense(question).sum())
        assert sum(t.size for t in found._tables.values()) <= 20
