# SPDX-License-Identifier: Apache-2.0
"""Private multiplicative weights: its promise, its cost, and what it learns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import sfumato as sf

study = sf.study
M = 32
F = np.random.default_rng(0).integers(0, 2, (200, M)).astype(float)
H = np.array([200_000, *[1000] * (M - 1)])


@pytest.mark.parametrize("budget", [{"epsilon": 1}, {"epsilon": 1, "delta": 1e-6}, {"rho": 0.05}])
def test_all_answers_are_within_the_bound_and_the_cost_within_the_budget(budget):
    words = study.SeededWords(1)
    learnt = study.private_multiplicative_weights(F, H, random=words, **budget)
    assert np.abs(learnt.answers - F @ H).max() <= learnt.error_bound(0.05)
    if "epsilon" in budget:
        assert learnt.epsilon <= budget["epsilon"]
    else:
        assert learnt.rho <= budget["rho"]
    assert learnt.updates
    assert len(learnt.updates) <= learnt.weights.updates
    assert learnt.histogram.sum() == pytest.approx(H.sum())
    # It has learnt: the histogram is nearer to the data than an even one.
    even = np.full(M, H.sum() / M)
    assert np.abs(F @ (learnt.histogram - H)).max() < np.abs(F @ (even - H)).max() / 2
    with pytest.raises(sf.PlanError, match="smaller beta"):
        learnt.error_bound(0.001)


def test_parameters_may_be_chosen_and_then_nothing_is_promised():
    words = study.SeededWords(2)
    learnt = study.private_multiplicative_weights(
        F, H // 1000, epsilon=1, alpha=0.2, c=3, random=words
    )
    assert len(learnt.updates) <= 3
    assert learnt.error_bound() == np.inf
    assert learnt.cost.pure_epsilon <= 1
    assert "within" not in repr(learnt)
    gaussian = study.private_multiplicative_weights(
        F, H // 1000, mu=0.5, alpha=0.2, c=3, random=words
    )
    assert gaussian.mu <= 0.5


def test_a_table_says_its_public_number_of_records():
    domain = sf.Domain([sf.Integer("age", 0, 3, outside="clamp", nulls="missing")])
    table = pd.DataFrame({"age": np.arange(4000) % 4})
    work = sf.prefixes(domain, "age")
    with pytest.raises(sf.PlanError, match="public number of records"):
        study.private_multiplicative_weights(work, table, epsilon=1, alpha=0.1, c=2)
    learnt = study.private_multiplicative_weights(work, table, epsilon=1, alpha=0.1, c=2, n=4000)
    assert learnt.answers.shape == (work.queries,)
