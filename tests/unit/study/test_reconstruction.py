# SPDX-License-Identifier: Apache-2.0
"""Reconstruction: answers with little noise are read off, private ones are not."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import PlanError, TooLarge, WorkloadError
from sfumato.study.reconstruction import reconstruct, reconstruction_table


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_all_subsets_within_an_error_tell_all_but_four_errors_worth(
    seed: int, persons: int
) -> None:
    """All but four times the error: the bound of Dinur and Nissim, here for random errors."""
    rng = np.random.default_rng(seed)
    subsets = (np.arange(2**persons)[:, None] >> np.arange(persons)) & 1
    bits = rng.integers(0, 2, persons)
    error = rng.uniform(0, 1)
    guess = reconstruct(subsets, subsets @ bits + rng.uniform(-error, error, len(subsets)))
    assert (guess != bits).sum() <= 4 * error


def test_private_answers_are_guessed_no_better_than_the_bound() -> None:
    """The mean over 1,600 bits; the twin, answers with little noise, breaks it."""
    table = reconstruction_table(40, (4, 40), (0.01,), (1.0, 8.0), runs=40)
    private = [row for row in table.rows if row.epsilon == 1.0]
    for row in private:
        assert row.bound == pytest.approx(exp(1) / (1 + exp(1)))
        assert row.recovered < row.bound
    tight = [row.recovered for row in table.rows if row.epsilon == 8.0]
    assert max(tight) <= exp(8) / (1 + exp(8))
    leaky = [row for row in table.rows if row.epsilon is None and row.queries == 40]
    assert leaky[0].recovered > private[0].bound


def test_the_table_of_the_slides() -> None:
    table = reconstruction_table(100, runs=2)
    by_queries = {k: [r.recovered for r in table.rows if r.queries == k] for k in (10, 100, 800)}
    assert by_queries[800][0] > 0.99  # many queries, error far below 1 / root n
    assert by_queries[100][0] > 0.85
    assert max(by_queries[10]) < 0.7  # few queries: no attack
    assert max(by_queries[800][3:]) < 0.73  # private, however many
    assert "bits recovered" in str(table)
    drawn = table.chart().to_dict()
    assert len(next(iter(drawn["datasets"].values()))) == len(table.rows)
    assert reconstruction_table(30, (30,), runs=1) == reconstruction_table(30, (30,), runs=1)


def test_bad_input_is_refused() -> None:
    with pytest.raises(WorkloadError, match="row per answer"):
        reconstruct(np.eye(2), [1, 2, 3])
    with pytest.raises(WorkloadError, match="finite"):
        reconstruct(np.eye(2), [1, np.nan])
    with pytest.raises(PlanError, match="above 0"):
        reconstruction_table(0)
    with pytest.raises(TooLarge, match="at most"):
        reconstruction_table(10**6)
