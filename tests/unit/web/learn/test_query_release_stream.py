# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato_web.learn.query_release import DAYS, counts, watch_stream
from tests.shared.words import SeededWords

runs = st.builds(
    lambda threshold, epsilon, discoveries, seed: watch_stream(
        threshold, epsilon, discoveries, SeededWords(seed)
    ),
    st.integers(0, 140),
    st.floats(0.1, 8),
    st.integers(1, 10),
    st.integers(0, 10**6),
)


@settings(deadline=None, max_examples=60)
@given(runs)
def test_only_what_is_found_above_is_charged(run):
    spent = run.spent()
    start = run.law.cost.pure_epsilon - run.law.discoveries * run.law.loss
    before = [start, *spent[:-1]]
    for is_above, used, was in zip(run.tests, spent, before, strict=True):
        assert used - was == (run.law.loss if is_above else 0)


@settings(deadline=None, max_examples=60)
@given(runs)
def test_it_ends_with_the_last_discovery_and_within_its_cost(run):
    assert len(run.above) <= run.law.discoveries
    assert run.spent()[-1] <= run.law.cost.pure_epsilon
    if len(run.above) == run.law.discoveries:
        assert run.tests[-1]
        assert run.spent()[-1] == run.law.cost.pure_epsilon
    else:
        assert len(run.tests) == DAYS


def test_the_cost_is_no_more_than_the_given_epsilon():
    run = watch_stream(70, 2.0, 5, SeededWords("cost"))
    assert run.law.cost.pure_epsilon <= Fraction(2)


def test_a_threshold_out_of_reach_costs_the_noise_of_the_threshold_only():
    run = watch_stream(10_000, 2.0, 5, SeededWords("far"))
    assert run.above == ()
    assert set(run.spent()) == {run.law.cost.pure_epsilon - 5 * run.law.loss}
    assert "found above: none" in run.stream_figure()


def test_with_a_large_budget_the_findings_are_right():
    run = watch_stream(70, 400.0, 10, SeededWords("sharp"))
    assert run.above == tuple(day for day, c in enumerate(counts()) if c >= 70)
    assert run.wrong() == 0


@pytest.mark.parametrize("discoveries", [1, 5])
def test_figures_say_what_was_found(discoveries):
    run = watch_stream(70, 2.0, discoveries, SeededWords("figure"))
    assert f"{len(run.tests)} of {DAYS} days tested" in run.stream_figure()
    assert f"{len(run.above)} discoveries" in run.budget_figure()
    assert len(run.notices()) == 4
