# SPDX-License-Identifier: Apache-2.0
"""Intervals of questions of many answers hold as often as they say, over many sessions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import sfumato as sf
from tests.sessions import begin_session
from tests.shared.words import SeededWords

DOMAIN = sf.Domain([sf.Integer("age", 0, 9), sf.Category("sex", ["F", "M"])])
BUDGET = sf.Budget(epsilon=4, delta=1e-6)
TEXT = "SELECT sex, COUNT(*) AS n, AVG(age) AS years, MEDIAN(age) AS middle FROM t GROUP BY sex"
SESSIONS = 40


def _people() -> pd.DataFrame:
    place = np.arange(900)
    return pd.DataFrame({"age": (place * place) % 10, "sex": np.where(place % 3 == 0, "F", "M")})


@pytest.fixture(scope="module")
def frames() -> list[pd.DataFrame]:
    """The same question in sessions whose noise is independent."""
    out = []
    for seed in range(SESSIONS):
        words = SeededWords(f"coverage {seed}")
        with begin_session(
            _people(), DOMAIN, BUDGET, words, updates=6, questions=50, records=900
        ) as session:
            out.append(session.ask(TEXT).frame())
    return out


def _misses(frames: list[pd.DataFrame], name: str, factor: float = 1.0) -> int:
    """How many of the intervals of one group, by ``factor`` as wide, do not hold the truth."""
    people = _people()
    truth = {
        "n": len(people[people.sex == "M"]),
        "years": people[people.sex == "M"].age.mean(),
        "middle": people[people.sex == "M"].age.median(),
    }[name]
    misses = 0
    for frame in frames:
        row = frame[frame.sex == "M"].iloc[0]
        low, high = (row[name] + factor * (row[f"{name}_{e}"] - row[name]) for e in ("low", "high"))
        misses += not low - 1e-9 <= truth <= high + 1e-9
    return misses


@pytest.mark.parametrize("name", ["n", "years", "middle"])
def test_intervals_of_groups_hold_as_often_as_they_say(
    frames: list[pd.DataFrame], name: str
) -> None:
    """With a chance of 0.95 each, more misses than this come in 1 of 10,000 tests.

    Where 4 of 10 intervals miss, 98 of 100 tests notice.
    """
    assert _misses(frames, name) <= binom.ppf(1 - 1e-4, SESSIONS, 0.05)


@pytest.mark.parametrize("name", ["n", "years"])
def test_intervals_that_are_too_short_would_be_noticed(
    frames: list[pd.DataFrame], name: str
) -> None:
    """The twin: a third of the width."""
    assert _misses(frames, name, 1 / 3) > binom.ppf(1 - 1e-4, SESSIONS, 0.05)
