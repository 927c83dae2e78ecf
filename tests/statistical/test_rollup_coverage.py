# SPDX-License-Identifier: Apache-2.0
"""Intervals of rolled-up answers hold the truth as often as they say.

One plan, many draws of its noise. Twins: the variances of the summed answers added up, as if
their errors were independent (Gaussian noise on an optimal factorization; the Laplace optimum
measures cells here, whose errors are), and intervals of eight tenths of the width.
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
DRAWS = 800
CASES = [("factorization", "gaussian"), ("laplace-optimum", "laplace")]


@cache
def totals(mechanism: str) -> tuple[int, float, tuple[tuple[float, float, float], ...]]:
    """The number of records, half an interval as if the errors of cells were independent, and of
    many releases the total with its interval."""
    domain = sf.Domain({"a": 6, "b": 2})
    work = sf.prefixes(domain, "a", by=["b"])
    counts = some_counts(domain, rows=500)
    plan = planned(work, mechanism)
    several = []
    for draw in range(DRAWS):
        release = Release.of(plan, measured(plan, counts, SeededWords(draw)), project=False)
        frame = release.answers((), level=LEVEL)
        several.append((frame["value"][0], frame["low"][0], frame["high"][0]))
    # Sums of cells, which are differences of running totals; their errors are those of the plan.
    errors = release.answers("a")["standard_error"]
    half = float(np.sqrt((errors**2).sum()) * stats.norm.ppf((1 + LEVEL) / 2))
    return int(counts.sum()), half, tuple(several)


def covered(mechanism: str, independent: bool = False, part: float = 1.0) -> int:
    """Of so many releases, how often the interval of a total holds the number of records."""
    truth, wide, several = totals(mechanism)
    hits = 0
    for value, low, high in several:
        first, last = (value - wide, value + wide) if independent else (low, high)
        middle, half = (first + last) / 2, part * (last - first) / 2
        hits += middle - half <= truth <= middle + half
    return hits


@pytest.mark.parametrize(("mechanism", "noise"), CASES)
def test_roll_ups_are_covered_as_often_as_they_say(mechanism: str, noise: str) -> None:
    domain = sf.Domain({"a": 6, "b": 2})
    assert planned(sf.prefixes(domain, "a", by=["b"]), mechanism).strategy.noise == noise
    hits = covered(mechanism)
    assert stats.binomtest(hits, DRAWS, LEVEL).pvalue > ALPHA


def test_variances_added_up_are_found_out() -> None:
    hits = covered("factorization", independent=True)
    assert stats.binomtest(hits, DRAWS, LEVEL).pvalue < ALPHA


@pytest.mark.parametrize(("mechanism", "noise"), CASES)
def test_shorter_intervals_are_found_out(mechanism: str, noise: str) -> None:  # noqa: ARG001
    hits = covered(mechanism, part=0.8)
    assert stats.binomtest(hits, DRAWS, LEVEL).pvalue < ALPHA
