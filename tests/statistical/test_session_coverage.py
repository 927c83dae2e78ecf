# SPDX-License-Identifier: Apache-2.0
"""Intervals of sessions hold the truth as often as they say, at fixed words; a twin does not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import sfumato as sf
from sfumato.session import answering as module
from tests.sessions import begin_session
from tests.shared.words import SeededWords

DOMAIN = sf.Domain({"age": 12, "sex": 2})
DRAW = np.random.default_rng(8)
TABLE = pd.DataFrame({"age": DRAW.binomial(11, 0.3, 3000), "sex": DRAW.integers(0, 2, 3000)})
COUNTS = np.zeros(DOMAIN.shape)
np.add.at(COUNTS, (TABLE["age"], TABLE["sex"]), 1)
WORK = sf.ranges(DOMAIN, "age", by=["sex"])
TRUTH = WORK.evaluate(COUNTS)
RUNS, LEVEL = 20, 0.8


def _missed(budget: sf.Budget, seed: str) -> tuple[list[bool], list[bool]]:
    """For every paid answer, and for the third free answer of every run, whether it missed."""
    paid, free = [], []
    for run in range(RUNS):
        session = begin_session(
            TABLE, DOMAIN, budget, SeededWords(f"{seed} {run}"), updates=12, questions=156,
            records=3000, level=LEVEL,
        )  # fmt: skip
        order = np.random.default_rng(run).permutation(WORK.queries)[:30]
        questions = session.read_all(WORK)
        for at in order.tolist():
            answer = session.ask(questions[at], untested=True)
            if answer.how == "untested":
                break
            is_missed = not answer.low <= TRUTH[at] <= answer.high
            (paid if answer.is_paid else free).append(is_missed)
    return paid, free


@pytest.mark.parametrize(
    "budget", [sf.Budget(epsilon=2), sf.Budget(epsilon=2, delta=1e-9)], ids=["pure", "gaussian"]
)
def test_intervals_hold_the_truth_as_often_as_they_say(budget: sf.Budget) -> None:
    paid, free = _missed(budget, "coverage")
    assert len(paid) > 100
    assert len(free) > 200
    # Paid answers are cut at 0 only, so the rate is what it says; these words stay within 1e-6.
    assert binom.sf(sum(paid) - 1, len(paid), 1 - LEVEL) > 1e-6
    assert np.mean(free) <= 1 - LEVEL


def test_intervals_of_half_the_width_are_seen_to_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin."""
    plain = module._noise
    monkeypatch.setattr(module, "_noise", lambda *given: (plain(*given)[0] // 2, plain(*given)[1]))
    paid, _ = _missed(sf.Budget(epsilon=2, delta=1e-9), "coverage")
    assert binom.sf(sum(paid) - 1, len(paid), 1 - LEVEL) < 1e-6
