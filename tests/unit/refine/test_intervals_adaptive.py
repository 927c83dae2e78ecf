# SPDX-License-Identifier: Apache-2.0
"""Intervals of what an adaptive release measured: exact tails, and a loop that tries to cheat."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import sfumato as sf
from sfumato.measurement import Measurement, Step, Transcript
from sfumato.privacy.noise_laws import BlockNoise, laplace_tail
from sfumato.refine.intervals import TranscriptIntervals, half_widths

DOMAIN = sf.Domain({"a": 3, "b": 2})
ALPHA = 1e-6


def one(values: float) -> np.ndarray:
    return np.array([values])


@pytest.mark.parametrize("miss", [0.3, 0.05, 0.01, 1e-4])
@pytest.mark.parametrize(("units", "bits"), [(3, 0), (40, 2), (5, 3), (2**16, 12)])
def test_a_single_laplace_draw_misses_no_more_often_than_allowed(units, bits, miss):
    """Exactly, by the tail of the discrete law."""
    law = BlockNoise("laplace", units, bits)
    half = float(half_widths(law, one(1.0), one(1.0), one(1.0), one(miss))[0])
    beyond = int(np.floor(half * 2**bits)) + 1  # the least number of steps that is outside
    assert laplace_tail(units, beyond) <= miss
    # The twin: nine tenths of it would miss too often.
    short = int(np.floor(0.8 * half * 2**bits)) + 1
    assert laplace_tail(units, short) > miss


@pytest.mark.parametrize("cells", [2, 5])
@pytest.mark.parametrize("miss", [0.2, 0.01])
def test_sums_of_laplace_draws_miss_no_more_often_than_allowed(cells, miss):
    """By the exact law of the sum, a convolution."""
    units = 4
    reach = np.arange(-400, 401)
    q = np.exp(-1 / units)
    draw = (1 - q) / (1 + q) * q ** np.abs(reach)
    law = draw
    for _ in range(cells - 1):
        law = np.convolve(law, draw)
    at = np.arange(len(law)) - len(law) // 2
    given = (BlockNoise("laplace", units, 0), one(cells), one(cells), one(1.0), one(miss))
    half = float(half_widths(*given)[0])
    assert law[np.abs(at) > half].sum() <= miss
    assert law[np.abs(at) > half / 3].sum() > miss


@pytest.mark.parametrize("cells", [1, 6])
def test_gaussian_widths_are_exact_up_to_the_grid(cells):
    law, miss = BlockNoise("gaussian", 2**16, 14), 0.03
    half = half_widths(law, one(cells), one(cells), one(1.0), one(miss))[0]
    exact = stats.norm.isf(miss / 2) * 4 * np.sqrt(cells)
    assert exact <= half <= exact + cells * 2.0**-15 + 1e-12


def measured(values: np.ndarray, law: BlockNoise) -> Measurement:
    units = np.rint(np.asarray(values) * 2**law.grid_bits).astype(np.int64)
    return Measurement(units, law)


def told(work: sf.Workload, steps: list[Step], method: str = "tables") -> TranscriptIntervals:
    return TranscriptIntervals(work, method, DOMAIN, Transcript(tuple(steps), None))


def test_tables_tell_sums_of_their_cells_and_nothing_else():
    law = BlockNoise("gaussian", 2**10, 10)
    step = Step((0, 1), measured(np.arange(6.0), law))
    work = sf.marginals(DOMAIN, [["a", "b"], ["a"], []]) | sf.prefixes(DOMAIN, "a")
    expected = [np.arange(6.0), [1, 5, 9], [15], [1, 6, 15]]
    for group, values in enumerate(expected):
        found = told(work, [step]).interval(group, 0.9)
        assert found.centre.tolist() == pytest.approx(list(values))
        assert (found.low < found.centre).all()
    single = Step((1,), measured(np.arange(2.0), law))
    assert np.isnan(told(work, [single]).interval(1, 0.9).low).all()
    single = Step((0,), measured(np.arange(3.0), law))
    assert np.isfinite(told(work, [single]).interval(1, 0.9).low).all()


def enclosed(claim: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which pairs lie in intervals of ``claim`` times the noise; no step measured the pairs."""
    rng = np.random.default_rng(seed)
    truth = np.array([[40.0, 0.0], [3.0, 25.0], [0.0, 2.0]])
    work = sf.marginals(DOMAIN, [["a", "b"]])
    law, said = BlockNoise("gaussian", 2**14, 10), BlockNoise("gaussian", int(2**14 * claim), 10)
    steps = []
    for place, table in (((0,), truth.sum(axis=1)), ((1,), truth.sum(axis=0))):
        noisy = table + law.scale * rng.standard_normal(len(table))
        steps.append(Step(place, measured(noisy, said)))
    found = told(work, steps).interval(0, 0.9)
    flat = truth.reshape(-1)
    return (found.low <= flat) & (flat <= found.high), found.high - np.maximum(found.low, 0)


def test_answers_that_no_step_tells_are_enclosed_by_coarser_ones():
    """Theorem 8: a cell is at most each of its margins, and at least what margins leave to it."""
    hits = np.concatenate([enclosed(1.0, seed)[0] for seed in range(200)])
    assert stats.binomtest(int(hits.sum()), hits.size, 0.9, "less").pvalue > ALPHA
    wide = enclosed(1.0, 0)[1]
    assert np.isfinite(wide).all()
    assert wide[4] < wide[0]  # a rare value bounds its cells


def test_ends_from_coarser_answers_with_less_noise_than_there_was_would_be_noticed():
    hits = np.stack([enclosed(0.02, seed)[0] for seed in range(200)])
    least = hits.mean(axis=0).min()
    assert stats.binomtest(round(200 * least), 200, 0.9, "less").pvalue < ALPHA


def test_queries_tell_themselves():
    law = BlockNoise("laplace", 2**12, 10)
    work = sf.marginals(DOMAIN, 1)
    steps = [Step((), measured([10.0], law)), Step((1, 0), measured([4.0], law))]
    tools = TranscriptIntervals(work, "mwem", DOMAIN, Transcript(tuple(steps), None))
    assert np.isnan(tools.interval(0, 0.9).centre).all()
    assert tools.interval(1, 0.9).centre.tolist() == pytest.approx([4.0, np.nan], nan_ok=True)
    sample = [Step((1, 3), measured([2.0, 4.0], law))]
    tools = TranscriptIntervals(work, "boosting", DOMAIN, Transcript(tuple(sample), None))
    assert tools.interval(0, 0.9).centre.tolist() == pytest.approx(
        [np.nan, 2.0, np.nan], nan_ok=True
    )
    assert tools.interval(1, 0.9).centre.tolist() == pytest.approx([4.0, np.nan], nan_ok=True)


def test_higher_levels_enclose_lower_ones_even_where_steps_exclude_each_other():
    law = BlockNoise("gaussian", 2**10, 10)
    steps = [Step((0,), measured([v, 0.0, 5.0], law)) for v in (0.0, 9.0, 3.0)]
    work = sf.marginals(DOMAIN, [["a"]])
    before = None
    for level in (0.01, 0.5, 0.9, 0.999, 1 - 1e-12):
        found = told(work, steps).interval(0, level)
        assert (found.low <= found.centre).all()
        assert (found.centre <= found.high).all()
        if before is not None:
            assert (found.low <= before.low).all()
            assert (before.high <= found.high).all()
        before = found


def hits(level: float, is_naive: bool) -> np.ndarray:
    """A loop that measures again and again until an answer is far off, and stops there."""
    rng = np.random.default_rng(8)
    law = BlockNoise("gaussian", 2**12, 12)
    work, truth, out = sf.marginals(DOMAIN, [["a"]]), np.array([20.0, 20.0, 20.0]), []
    for _ in range(600):
        steps: list[Step] = []
        for _ in range(6):
            noisy = truth + rng.normal(0, 1, 3)
            steps.append(Step((0,), measured(noisy, law)))
            if noisy[0] > truth[0] + 1.2:
                break
        kept = steps[-1:] if is_naive else steps
        found = told(work, kept).interval(0, level)
        if is_naive:  # as if the last step had been the only one from the beginning
            half = stats.norm.isf((1 - level) / 2)
            out.append(abs(found.centre[0] - truth[0]) <= half)
        else:
            out.append(found.low[0] <= truth[0] <= found.high[0])
    return np.array(out)


def test_stopping_when_it_looks_bad_breaks_usual_intervals_but_not_these():
    level = 0.8

    def pvalue(found: np.ndarray) -> float:
        return float(stats.binomtest(int(found.sum()), found.size, level, "less").pvalue)

    assert pvalue(hits(level, is_naive=False)) > ALPHA
    assert pvalue(hits(level, is_naive=True)) < ALPHA
