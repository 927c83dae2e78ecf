# SPDX-License-Identifier: Apache-2.0
"""The everyday bench: lines are counted as written, and errors are what they say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bench import everyday


def test_lines_are_those_of_a_body_without_its_docstring() -> None:
    # Counted by hand in bench/everyday.py.
    assert everyday.lines_of(everyday.our_histogram) == 3
    assert everyday.lines_of(everyday.their_histogram) == 10


def test_errors_of_exact_answers_are_none_and_of_wrong_ones_are_not() -> None:
    table = everyday.people()
    for task in everyday.tasks(table):
        if task.error is everyday._regret:
            best = sorted(task.truth, key=lambda k: -task.truth[k])
            exact, wrong = dict.fromkeys(best[:10], 1.0), dict.fromkeys(best[1:11], 1.0)
        else:
            exact, wrong = task.truth, {k: v + 3.0 for k, v in task.truth.items()}
        assert task.error(task.truth, exact) == pytest.approx(0)
        assert task.error(task.truth, wrong) > 0


def test_both_sides_answer_all_that_is_asked() -> None:
    everyday.dp.enable_features("contrib")
    table = everyday.people()
    histogram, means, _, quantiles, _, top = everyday.tasks(table)
    for task in (histogram, means, quantiles):
        for answered in (task.ours(table), task.theirs(table)):
            assert set(task.truth) <= set(dict(answered))
    assert len(dict(top.ours(table))) == len(dict(top.theirs(table))) == everyday.K


def test_losses_by_law_are_those_of_many_releases() -> None:
    """One key of n people, released by both sides; the twin is a threshold that is one lower."""
    lawful = everyday.lawful_threshold()
    assert lawful == 15
    rng = np.random.default_rng(1)
    noise = rng.geometric(1 - np.exp(-1), 10**6) - rng.geometric(1 - np.exp(-1), 10**6)
    for n in (1, 12, 15, 40):
        numbers = n + noise
        lost = np.where(numbers >= lawful, abs(noise), n).mean()
        assert everyday.their_loss(n, lawful) == pytest.approx(lost, rel=0.01)
    assert everyday.our_loss(13) < everyday.their_loss(13, lawful)
    assert everyday.our_loss(200) == pytest.approx(everyday.their_loss(200, lawful), rel=1e-4)
    table = pd.DataFrame({"word": ["a"] * 14, "sex": "f"})
    mean = np.mean([abs(everyday.our_crosstab(table).get(("a", "f"), 0) - 14) for _ in range(300)])
    assert everyday.our_loss(14) == pytest.approx(mean, rel=0.25)


def test_at_one_delta_less_is_lost_of_the_cross_tab_than_with_a_threshold() -> None:
    ours, stated, lawfully = everyday.lost_by_law(everyday.people())
    assert ours < 0.985 * lawfully
    assert stated < ours < 1.005 * stated
