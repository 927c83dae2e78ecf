# SPDX-License-Identifier: Apache-2.0
"""Measured roots, noise and all, against the variances that were forecast."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.domain import Domain
from sfumato.measurement import Measurement
from sfumato.planning.calibrate import calibrate
from sfumato.strategy.one_attribute.ordered import Ordered, ordered
from sfumato.vault.mechanisms.measure import add_noise, exact_values
from tests.shared.words import SeededWords

RUNS = 400
CELLS = 96
# A sum of squares of RUNS x queries standardised errors, strongly dependent between queries: per
# query it is chi-square with RUNS degrees. All queries within 6 standard deviations of their mean:
# probability below 1e-6 for the thousands of queries here.
LIMIT = 6 * np.sqrt(2 / RUNS)


def errors(made: Ordered, words: SeededWords) -> np.ndarray:
    """Errors of all answers over RUNS real measurements."""
    counts = np.random.default_rng(8).integers(0, 50, CELLS)
    law = calibrate(made, 0.7, "add-remove")[0]
    exact = exact_values(made.rooted, counts)
    truth = made.workload.terms[0].answer(counts)
    out = []
    for _ in range(RUNS):
        values = Measurement(add_noise(exact, made.rooted, law, words), law).values
        out.append(made.answer(0, [values]) - truth)
    return np.array(out)


def off_by(made: Ordered, found: np.ndarray, factor: float) -> float:
    law = calibrate(made, 0.7, "add-remove")[0]
    forecast = factor * made.variances(0, [law.variance])
    return float(np.abs((found**2).mean(axis=0) / forecast - 1).max())


@pytest.mark.parametrize("kind", ["prefixes", "ranges"])
def test_errors_have_the_forecast_variances_and_not_others(kind: str) -> None:
    made = ordered(getattr(sf, kind)(Domain({"age": CELLS}), "age"))
    found = errors(made, SeededWords(f"ordered {kind}"))
    assert off_by(made, found, 1.0) < LIMIT
    mean = found.mean(axis=0) / np.sqrt(made.variances(0, [1.0]))
    assert np.abs(mean).max() < 6 / np.sqrt(RUNS) / 0.5  # sigma is below 2: unbiased
    # The twin: noise that is half as strong again as forecast is found out.
    assert off_by(made, found * 1.5, 1.0) > LIMIT
