# SPDX-License-Identifier: Apache-2.0
"""Real streams against their standard errors, and against the covariance R R'; alpha = 1e-6.

A counter of many dimensions is many independent runs of one stream.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import chdtrc

import sfumato.vault.mechanisms.stream_noise as vault
from sfumato.privacy.budget import Budget
from sfumato.run.stream import Stream
from tests.shared.dense_streams import dense
from tests.shared.words import SeededWords

ALPHA = 1e-6
RUNS = 1500
STEPS = 24
CASES = [("optimal", None), ("toeplitz", None), ("tree", None), ("optimal", 5), ("tree", 5)]


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault, "system_words", lambda: SeededWords("streams"))


def errors(strategy: str, window: int | None) -> tuple[np.ndarray, Stream]:
    """Answers less exact sums, a row per step, a column per run."""
    values = np.arange(STEPS) * 7 % 5
    counter = Stream(
        STEPS, Budget(mu=1), strategy, dimensions=RUNS, largest=4, window=window, keep=False
    )
    answers = counter.add_many(np.tile(values[:, None], (1, RUNS)))
    running = np.cumsum(values)
    if window is not None:
        running = running - np.concatenate([np.zeros(window, dtype=int), running[:-window]])
    return answers - running[:, None], counter


def p_value(found: np.ndarray, standard_errors: np.ndarray) -> float:
    """Of all steps together, two-sided: sums of squares over runs are chi-square (RUNS)."""
    squares = ((found / standard_errors[:, None]) ** 2).sum(axis=1)
    upper = chdtrc(RUNS, squares)
    return float(min(1.0, 2 * STEPS * np.minimum(upper, 1 - upper).min()))


@pytest.mark.parametrize(("strategy", "window"), CASES)
def test_a_stream_errs_as_stated(strategy: str, window: int | None) -> None:
    found, counter = errors(strategy, window)
    stated = counter.forecast.standard_errors
    assert p_value(found, stated) > ALPHA
    centred = found.mean(axis=1) / (stated / np.sqrt(RUNS))
    assert np.abs(centred).max() < 6  # below 1e-7 for 24 normal means
    # twins: noise that is 12% smaller or larger than stated is noticed
    assert p_value(found * 0.88, stated) < ALPHA
    assert p_value(found * 1.12, stated) < ALPHA


def whitened(found: np.ndarray, counter: Stream) -> np.ndarray:
    """``R^-1 (answers - F x)``, the noise itself, from an independent dense R."""
    r, _ = dense(counter.forecast.shape)  # type: ignore[arg-type]
    return np.linalg.solve(r, found) / np.sqrt(counter.forecast.noise.variance)


def correlation_p(noise: np.ndarray) -> float:
    """Neighbouring steps of white noise: sum of products over RUNS is normal."""
    z = (noise[1:] * noise[:-1]).sum(axis=1) / np.sqrt(RUNS)
    return float(chdtrc(len(z), (z**2).sum()))


@pytest.mark.parametrize("window", [None, 5])
def test_the_noise_of_a_filter_is_white_before_the_reconstruction(window: int | None) -> None:
    found, counter = errors("optimal", window)
    noise = whitened(found, counter)
    assert correlation_p(noise) > ALPHA
    assert p_value(noise, np.ones(STEPS)) > ALPHA
    # twin: each step reusing a fifth of the noise before it is noticed
    reused = noise.copy()
    reused[1:] += 0.2 * noise[:-1]
    assert correlation_p(reused) < ALPHA
