# SPDX-License-Identifier: Apache-2.0
"""Hedge: its regret against any mixture of experts, for losses of an adversary."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.privacy.budget import Budget
from sfumato.study.experts import (
    Experts,
    best_rate,
    hedge,
    multiplicative_weights,
    weights_error,
)


class _TenTimesTheRate(Experts):
    """Broken: moves by ten times the rate that its bound is for."""

    def learn(self, losses: np.ndarray) -> float:
        own = super().learn(losses)
        self._logs = self._logs - 9 * self.rate * losses
        return own


def _spiteful(experts: Experts, rounds: int) -> None:
    """Every round the expert that is trusted most loses."""
    for _ in range(rounds):
        losses = np.zeros(experts.shares.size)
        losses[int(np.argmax(experts.shares))] = 1.0
        experts.learn(losses)


@given(
    st.integers(2, 12),
    st.floats(0.01, 1.0),
    st.lists(st.lists(st.floats(0, 1), min_size=12, max_size=12), min_size=1, max_size=40),
    st.lists(st.floats(0.001, 1), min_size=12, max_size=12),
)
@settings(max_examples=200, deadline=None)
def test_regret_stays_below_the_bound_whatever_the_losses(
    count: int, rate: float, losses: list[list[float]], mixture: list[float]
) -> None:
    experts = Experts(count, rate)
    for loss in losses:
        experts.learn(np.array(loss[:count]))
    mixed = np.array(mixture[:count])
    mixed /= mixed.sum()
    for held in (mixed, *np.eye(count)):
        assert experts.regret(held) <= experts.regret_bound(held) + 1e-9


@pytest.mark.parametrize("count", [2, 10, 100])
def test_an_adversary_that_sees_the_shares_does_not_beat_the_bound(count: int) -> None:
    rounds = 400
    experts = Experts(count, best_rate(count, rounds))
    _spiteful(experts, rounds)
    worst = max(experts.regret(e) for e in np.eye(count))
    assert worst <= 2 * sqrt(rounds * log(count))
    assert worst > 0  # and is no easy one


def test_losses_may_be_negative_down_to_one_over_the_rate() -> None:
    experts = Experts(3, 0.5)
    for sign in (1, -1, -1, 1, -1):
        experts.learn(sign * np.array([1.0, 0.5, -0.25]))
    for held in np.eye(3):
        assert experts.regret(held) <= experts.regret_bound(held)
    with pytest.raises(PlanError, match="below -1 / rate"):
        experts.learn(np.array([-2.1, 0.0, 0.0]))


def test_the_check_sees_a_wrong_rate() -> None:
    """The twin: whoever moves ten times as fast as stated breaks the bound."""
    for kind, is_broken in ((Experts, False), (_TenTimesTheRate, True)):
        experts = kind(2, 0.1)
        _spiteful(experts, 400)
        worst = max(experts.regret(e) - experts.regret_bound(e) for e in np.eye(2))
        assert (worst > 0) == is_broken


def test_shares_start_where_they_are_told() -> None:
    experts = Experts(3, 0.1, np.array([2.0, 1.0, 1.0]))
    np.testing.assert_allclose(experts.shares, [0.5, 0.25, 0.25])
    assert experts.learn(np.array([1.0, 0.0, 0.0])) == pytest.approx(0.5)
    assert experts.loss == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("count", "rate", "shares"),
    [
        (0, 1.0, None),
        (2, 0.0, None),
        (2, float("inf"), None),
        (2, 1.0, [1.0]),
        (2, 1.0, [0.0, 0.0]),
    ],
)
def test_impossible_experts_are_refused(
    count: int, rate: float, shares: list[float] | None
) -> None:
    with pytest.raises(PlanError):
        Experts(count, rate, None if shares is None else np.array(shares))


def test_a_rate_needs_a_choice_and_a_round() -> None:
    with pytest.raises(PlanError):
        best_rate(1, 10)
    with pytest.raises(PlanError):
        best_rate(2, 0)


def test_hedge_over_given_losses_is_the_one_round_at_a_time() -> None:
    losses = np.random.default_rng(1).random((50, 6))
    run = hedge(losses)
    experts = Experts(6, run.rate)
    own = [experts.learn(loss) for loss in losses]
    np.testing.assert_allclose(run.losses, own)
    np.testing.assert_allclose(run.final, experts.shares)
    assert run.best == losses.sum(axis=0).argmin()
    assert run.regret == pytest.approx(sum(own) - losses.sum(axis=0).min())
    assert run.regret <= run.regret_bound <= 2 * sqrt(50 * log(6)) + 1e-9
    assert run.shares.shape == (50, 6)
    assert "regret" in repr(run)
    for wrong in ([1.0, 2.0], [[-1.0, 0.0]], [[np.nan]]):
        with pytest.raises(PlanError):
            hedge(wrong)


@pytest.mark.parametrize("seed", range(4))
def test_multiplicative_weights_without_privacy_update_no_more_often_than_they_can(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.random((400, 16)) < rng.random((400, 1))
    counts = rng.integers(0, 1000, 16) ** 2
    learnt = multiplicative_weights(matrix, counts, alpha=0.1)
    truth = matrix @ counts
    assert np.abs(learnt.answers - truth).max() <= 0.1 * counts.sum()
    assert len(learnt.updates) <= learnt.updates_bound == min(400, int(log(16) / (2 * 0.1**2)))
    assert learnt.histogram.sum() == pytest.approx(counts.sum())
    slow = multiplicative_weights(matrix, counts, alpha=0.1, rate=0.1)
    assert len(slow.updates) <= slow.updates_bound
    assert "without privacy" in repr(learnt)


def test_multiplicative_weights_of_a_workload_are_those_of_its_matrix_and_no_table_is_read() -> (
    None
):
    domain = sf.Domain({"sex": 2, "age": 4})
    counts = np.array([[300, 10, 250, 40], [5, 60, 70, 265]])
    workload = sf.ranges(domain, "age")
    matrix = _rows_of(workload, (2, 4))
    by_matrix = multiplicative_weights(matrix, counts.ravel(), alpha=0.02)
    by_workload = multiplicative_weights(workload, counts, alpha=0.02)
    np.testing.assert_allclose(by_workload.answers, by_matrix.answers)
    assert by_workload.updates == by_matrix.updates
    table = pd.DataFrame({"sex": [0, 1], "age": [2, 3]})
    with pytest.raises(PlanError, match="reads tables"):
        multiplicative_weights(workload, table, alpha=0.02)


def _rows_of(workload: sf.Workload, shape: tuple[int, int]) -> np.ndarray:
    """The matrix of a workload from its answers to every unit table."""
    units = np.eye(shape[0] * shape[1]).reshape(-1, *shape)
    answers = [[np.ravel(a) for a in workload.evaluate(u)] for u in units]
    return np.stack([np.concatenate(a) for a in answers], axis=1)


def test_the_earlier_call_of_multiplicative_weights_is_the_theorem() -> None:
    budget = Budget(epsilon=1, delta=1e-6)
    assert multiplicative_weights(100, 64, 1e6, budget) == weights_error(100, 64, 1e6, budget)
    for wrong in (
        lambda: multiplicative_weights(100, 64),
        lambda: multiplicative_weights([[1, 0]], [1, 2, 3], alpha=0.1),
        lambda: multiplicative_weights([[1, 0]], [0, 0], alpha=0.1),
        lambda: multiplicative_weights([[1, 0]], [1, 1]),
        lambda: multiplicative_weights([[1, 0]], [1, 1], alpha=-1),
    ):
        with pytest.raises(PlanError):
            wrong()  # type: ignore[no-untyped-call]
