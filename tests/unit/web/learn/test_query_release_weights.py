# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.privacy.sparse_vector import noise_cost
from sfumato_web.learn.query_release import COUNTS, QUESTIONS, Weights
from tests.shared.words import SeededWords


def _walked(epsilon: float, seed: object) -> Weights:
    weights = Weights(epsilon, SeededWords(str(seed)))
    while not weights.is_over:
        weights.next()
    return weights


@settings(deadline=None, max_examples=25)
@given(st.floats(0.05, 2), st.integers(0, 10**6))
def test_weights_sum_to_the_records_and_stay_positive(epsilon, seed):
    for step in _walked(epsilon, seed).steps:
        assert float(step.after.sum()) == pytest.approx(sum(COUNTS))
        assert (step.after > 0).all()


@settings(deadline=None, max_examples=25)
@given(st.floats(0.05, 2), st.integers(0, 10**6))
def test_only_paid_answers_move_weights_and_budget(epsilon, seed):
    weights = _walked(epsilon, seed)
    for before, step in zip([None, *weights.steps], weights.steps, strict=False):
        first, last = step.cells
        if not step.is_paid:
            np.testing.assert_array_equal(step.before, step.after)
            assert step.value == step.estimate
        if before is not None and not before.is_paid and not step.is_paid:
            assert step.spent == before.spent  # the epoch goes on
        if step.is_paid:
            moved = step.after[first : last + 1].sum() - step.before[first : last + 1].sum()
            assert np.sign(round(moved, 9)) == np.sign(step.value - step.estimate)


@settings(deadline=None, max_examples=25)
@given(st.floats(0.05, 2), st.integers(0, 10**6))
def test_what_is_spent_is_epochs_and_paid_answers(epsilon, seed):
    weights = _walked(epsilon, seed)
    paid = sum(s.is_paid for s in weights.steps)
    epochs = paid + (not weights.steps[-1].is_paid)
    answers = noise_cost(weights.noise, 1).pure_epsilon
    assert weights.spent == epochs * weights.law.cost.pure_epsilon + paid * answers


@settings(deadline=None, max_examples=25)
@given(st.floats(0.05, 2), st.integers(0, 10**6))
def test_the_regret_keeps_the_bound_of_hedge(epsilon, seed):
    weights = _walked(epsilon, seed)
    assert weights.regret() <= weights.bound() + 1e-9


def test_the_histogram_comes_nearer_to_the_truth():
    weights = _walked(2.0, "near")
    assert weights.error() < 0.5 * Weights(2.0).error()


def test_paid_answers_are_those_that_were_far_off():
    weights = _walked(40.0, "sharp")  # hardly any noise
    for step in weights.steps:
        truth = sum(COUNTS[step.cells[0] : step.cells[1] + 1])
        assert step.is_paid is (abs(truth - round(step.estimate)) >= 60)


def test_figures_follow_the_steps():
    weights = Weights(1.0, SeededWords("figure"))
    assert "all ages have the same weight" in weights.notices()[0]
    weights.next()
    assert weights.progress_figure().count("<circle") == 2 + 2  # the start, and two in the legend
    assert "20-29" in weights.histogram_figure()
    assert "1 answers were paid" in weights.notices()[1] or "of 1 answers" in weights.notices()[1]
    assert len(QUESTIONS) == 16
