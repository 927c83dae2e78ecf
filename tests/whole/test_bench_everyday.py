# SPDX-License-Identifier: Apache-2.0
"""The everyday bench: lines are counted as written, and errors are what they say."""

from __future__ import annotations

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
