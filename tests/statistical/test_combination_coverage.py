# SPDX-License-Identifier: Apache-2.0
"""Intervals of combinations of answers hold the truth as often as they say.

One plan, many draws of its noise; the twin takes the errors of the answers for independent.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy import stats

import sfumato as sf
from sfumato.release.release import Release
from tests.shared.made_releases import measured, planned, some_counts
from tests.shared.words import SeededWords

ALPHA = 1e-6
LEVEL = 0.9
DRAWS = 1500


@cache
def combined(mechanism: str) -> tuple[float, float, tuple[tuple[float, float, float], ...]]:
    """A combination: its true value, half an interval of independent errors, and of many releases
    its value, low and high."""
    domain = sf.Domain({"a": 4, "b": 3, "c": 2})
    work = sf.marginals(domain, 2) | sf.prefixes(domain, "a", by=["b"])
    counts = some_counts(domain, rows=500)
    plan = planned(work, mechanism)
    # the difference of two running totals, and what two tables say of the same people
    c = {"prefix a by b": {0: -1.0, 3: 1.0}, "a x b": {3: 2.0}, "a x c": {2: -1.0, 3: -1.0}}
    truth = 0.0
    exact = work.evaluate(counts)
    places = {t.name: first for t, first in zip(work.terms, _starts(work), strict=True)}
    for name, listed in c.items():
        truth += sum(w * exact[places[name] + q] for q, w in listed.items())
    names = [t.name for t in work.terms]
    squares = [
        (w * plan.standard_errors(names.index(name))[q]) ** 2
        for name, listed in c.items()
        for q, w in listed.items()
    ]
    half = float(np.sqrt(sum(squares)) * stats.norm.ppf((1 + LEVEL) / 2))
    several = []
    for draw in range(DRAWS):
        result = Release.of(plan, measured(plan, counts, SeededWords(draw)), project=False)
        one = result.combine(c, level=LEVEL)
        several.append((one.value, one.low, one.high))
    return truth, half, tuple(several)


def covered(mechanism: str, independent: bool) -> int:
    """Of so many releases, how often the interval of a combination holds its true value."""
    truth, half, several = combined(mechanism)
    ends = [(v - half, v + half) if independent else (low, high) for v, low, high in several]
    return sum(low <= truth <= high for low, high in ends)


def _starts(work: sf.Workload) -> list[int]:
    return np.cumsum([0, *(t.rows for t in work.terms)])[:-1].tolist()


@pytest.mark.parametrize("mechanism", ["factorization", "gaussian-table"])
def test_combinations_are_covered_as_often_as_they_say(mechanism: str) -> None:
    hits = covered(mechanism, independent=False)
    assert stats.binomtest(hits, DRAWS, LEVEL).pvalue > ALPHA


@pytest.mark.parametrize("mechanism", ["factorization", "gaussian-table"])
def test_errors_taken_for_independent_are_found_out(mechanism: str) -> None:
    hits = covered(mechanism, independent=True)
    assert stats.binomtest(hits, DRAWS, LEVEL).pvalue < ALPHA
