# SPDX-License-Identifier: Apache-2.0
"""Windows read from a measured convolution, noise and all, against the forecast variances."""

from __future__ import annotations

import numpy as np

import sfumato as sf
from sfumato.domain.domain import Domain
from sfumato.measurement import Measurement
from sfumato.planning.calibrate import calibrate
from sfumato.strategy.one_attribute.windows import Sliding, windows
from sfumato.vault.mechanisms.measure import add_noise, exact_values
from tests.shared.words import SeededWords

RUNS = 400
CELLS, WIDTH = 120, 9
# Per query RUNS times the mean of the squared standardised errors is chi-square with RUNS degrees:
# all queries within 6 standard deviations of it, with probability above 1 - 1e-6.
LIMIT = 6 * np.sqrt(2 / RUNS)


def errors(made: Sliding, words: SeededWords) -> np.ndarray:
    """Standardised errors of all answers over RUNS real measurements."""
    counts = np.random.default_rng(8).integers(0, 50, CELLS)
    law = calibrate(made, 0.7, "add-remove")[0]
    term = made.blocks[0].term
    exact = exact_values(term, counts)
    truth = made.workload.terms[0].answer(counts)
    values = [Measurement(add_noise(exact, term, law, words), law).values for _ in range(RUNS)]
    found = np.array([made.answer(0, [v]) - truth for v in values])
    return np.asarray(found / np.sqrt(made.variances(0, [law.variance])))


def off_by(found: np.ndarray) -> float:
    return float(np.abs((found**2).mean(axis=0) - 1).max())


def test_errors_have_the_forecast_variances_and_not_others() -> None:
    made = windows(sf.product(Domain({"day": CELLS}), {"day": f"windows({WIDTH})"}))
    found = errors(made, SeededWords("sliding"))
    assert off_by(found) < LIMIT
    assert np.abs(found.mean(axis=0)).max() < 6 / np.sqrt(RUNS)
    # The twins: noise half as strong again, and a bias of one standard error, are found out.
    assert off_by(found * 1.5) > LIMIT
    assert np.abs((found + 1).mean(axis=0)).max() > 6 / np.sqrt(RUNS)
