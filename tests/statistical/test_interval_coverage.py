# SPDX-License-Identifier: Apache-2.0
"""Published intervals hold the truth at least as often as they say, also where projection moves it.

Answers of one release share noise, so trials are releases: of each, one answer is looked at,
another one each time. Intervals that are too short are noticed by the same test.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from scipy import stats

import sfumato as sf
from sfumato.release.release import Release
from tests.shared.made_releases import measured, planned
from tests.shared.words import SeededWords

LEVEL, ALPHA = 0.9, 1e-6
TRIALS = 80  # where 6 of 10 intervals hold, 97 of 100 tests refute it
DOMAIN = sf.Domain({"a": 4, "b": 3, "c": 2})
WORK = sf.marginals(DOMAIN, 2) | sf.prefixes(DOMAIN, "a", by=["c"])
# Few records and many empty cells: here projections move answers most.
COUNTS = np.random.default_rng(5).multinomial(
    40, np.random.default_rng(6).dirichlet(np.full(24, 0.3))
)
COUNTS = COUNTS.reshape(DOMAIN.shape)


def known(kind: str) -> sf.Constraints | None:
    if kind == "none":
        return None
    a, c = COUNTS.sum(axis=(1, 2)), COUNTS.sum(axis=(0, 1))
    empty = [(i, j) for i in range(4) for j in range(3) if not COUNTS[i, j].any()]
    barred = [f"a = {i} and b = {j}" for i, j in empty[:2]]
    return sf.Constraints(DOMAIN, barred, [(["a"], a), (["c"], c)])


@lru_cache
def trials(kind: str, mechanism: str) -> tuple[np.ndarray, np.ndarray]:
    """How far the truth is from the middle of each interval, and half the width of that."""
    forecast = planned(WORK, mechanism, budget=sf.Budget(epsilon=0.5, delta=1e-6))
    places = [(g, q) for g, term in enumerate(WORK.terms) for q in range(term.rows)]
    truth = WORK.evaluate(COUNTS)
    words, away, halves = SeededWords(f"coverage {kind} {mechanism}"), [], []
    for trial in range(TRIALS):
        noisy = measured(forecast, COUNTS, words)
        estimates = Release.of(forecast, noisy, constraints=known(kind)).estimates
        group, query = places[trial % len(places)]
        low, high = (float(end[query]) for end in estimates.interval(group, LEVEL))
        assert low <= estimates.value(group)[query] <= high
        away.append(abs(truth[trial % len(places)] - (low + high) / 2))
        halves.append((high - low) / 2)
    return np.array(away), np.array(halves)


def hits(kind: str, mechanism: str, share: float = 1.0) -> np.ndarray:
    """Which intervals, by ``share`` as wide, hold the truth."""
    away, halves = trials(kind, mechanism)
    return away <= share * halves + 1e-9


def is_rejected(found: np.ndarray) -> bool:
    return bool(stats.binomtest(int(found.sum()), found.size, LEVEL, "less").pvalue < ALPHA)


@pytest.mark.parametrize(
    ("kind", "mechanism"), [("none", "gaussian-table"), ("constraints", "laplace-table")]
)
def test_published_intervals_hold_the_truth(kind, mechanism):
    assert not is_rejected(hits(kind, mechanism))


def test_intervals_that_are_too_short_would_be_noticed():
    assert is_rejected(hits("none", "gaussian-table", share=0.4))
