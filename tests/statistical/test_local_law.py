# SPDX-License-Identifier: Apache-2.0
"""Reports of a seeded word source follow the claimed law; each test has a twin that must fail.

alpha = 1e-6 for every test.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sfumato.study.local_model import (
    RandomizedResponse,
    estimate_reports,
    forecast_radius,
    response_error,
    row_variances,
)

ALPHA = 1e-6


class SeededWords:
    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def words(self, count: int) -> np.ndarray:
        return self.generator.integers(0, 1 << 64, size=count, dtype=np.uint64)


def law_p_value(response: RandomizedResponse, code: int, reports: np.ndarray) -> float:
    """Chi-square of the reports of one true code against the claimed law."""
    expected = np.full(response.size, float(response.other))
    expected[code] = float(response.keep)
    observed = np.bincount(reports, minlength=response.size)
    return float(stats.chisquare(observed, expected * reports.size).pvalue)


def bias_p_value(response: RandomizedResponse, truth: np.ndarray, counts: np.ndarray) -> float:
    """Chi-square of ``counts - truth`` under the exact covariance, whose rank is size - 1."""
    other, gap, size = float(response.other), float(response.gap), response.size
    centring = np.eye(size) - 1 / size
    weights = (truth.sum() * other + gap * (1 - gap) * truth) / gap**2
    covariance = centring @ np.diag(weights) @ centring
    error = centring @ (counts - truth)
    return float(stats.chi2.sf(error @ np.linalg.pinv(covariance) @ error, size - 1))


@pytest.mark.parametrize(("epsilon", "size"), [(0.5, 2), (1, 3), (1, 5), (2, 10), (1, 129)])
def test_reports_follow_the_law(epsilon, size):
    response = RandomizedResponse(epsilon, size)
    for code in {0, size // 2, size - 1}:
        reports = response.encode(np.full(300_000, code), SeededWords(1000 + code))
        assert law_p_value(response, code, reports) > ALPHA


def test_reports_that_may_fall_back_on_the_true_code_are_caught():
    """Twin: 'otherwise uniform among ALL codes' keeps too often."""
    response = RandomizedResponse(1, 5)
    generator = np.random.default_rng(1)
    kept = generator.random(300_000) < float(response.keep)
    reports = np.where(kept, 2, generator.integers(0, 5, 300_000))
    assert law_p_value(response, 2, reports) < ALPHA


def test_reports_that_always_move_to_the_next_code_are_caught():
    """Twin: the right coin with a broken offset."""
    response = RandomizedResponse(1, 5)
    kept = np.random.default_rng(2).random(300_000) < float(response.keep)
    assert law_p_value(response, 2, np.where(kept, 2, 3)) < ALPHA


@pytest.mark.parametrize(("epsilon", "size"), [(0.3, 2), (1, 4), (3, 20)])
def test_the_estimate_is_unbiased_with_the_claimed_covariance(epsilon, size):
    response = RandomizedResponse(epsilon, size)
    truth = np.random.default_rng(size).multinomial(
        400_000, np.arange(1, size + 1) / (size * (size + 1) / 2)
    )
    codes = np.repeat(np.arange(size), truth)
    reports = response.encode(codes, SeededWords(size))
    assert bias_p_value(response, truth, estimate_reports(response, reports).counts) > ALPHA
    # Twin: the bare tally, without the correction.
    assert bias_p_value(response, truth, np.bincount(reports, minlength=size)) < ALPHA


def test_a_correction_with_the_wrong_keep_probability_is_caught():
    """Twin: estimating with 1.1 epsilon what was encoded with epsilon."""
    response, wrong = RandomizedResponse(1, 4), RandomizedResponse(1.1, 4)
    truth = np.array([200_000, 100_000, 50_000, 50_000])
    reports = response.encode(np.repeat(np.arange(4), truth), SeededWords(6))
    assert bias_p_value(response, truth, estimate_reports(response, reports).counts) > ALPHA
    assert bias_p_value(response, truth, estimate_reports(wrong, reports).counts) < ALPHA


def misses(epsilon, size, rows, runs, interval, shrink) -> int:
    """How many of ``runs`` intervals of 95% for one query, shrunk by a factor, miss the truth."""
    response = RandomizedResponse(epsilon, size)
    codes = np.arange(rows) % size
    query = (np.arange(size) == 0).astype(float)[None, :]
    truth = float((codes == 0).sum())
    reports = response.encode(np.tile(codes, (runs, 1)), SeededWords(11))
    missed = 0
    for row in reports:
        answers = estimate_reports(response, row).answer(query, 0.95, interval)
        missed += abs(answers.value[0] - truth) > shrink * (answers.high[0] - answers.value[0])
    return missed


@pytest.mark.parametrize(("epsilon", "size", "rows"), [(1, 2, 50), (1, 2, 400), (2, 6, 200)])
@pytest.mark.parametrize("interval", ["finite", "hoeffding"])
def test_finite_sample_intervals_cover_at_least_as_claimed(epsilon, size, rows, interval):
    runs = 1500
    missed = misses(epsilon, size, rows, runs, interval, 1.0)
    assert stats.binomtest(missed, runs, 0.05, alternative="greater").pvalue > ALPHA
    # Twin: an interval of 0.3 times the width must be seen to fail.
    missed = misses(epsilon, size, rows, runs, interval, 0.3)
    assert stats.binomtest(missed, runs, 0.05, alternative="greater").pvalue < ALPHA


def test_normal_intervals_cover_as_claimed_neither_more_nor_less():
    runs = 3000
    missed = misses(1, 4, 1500, runs, "normal", 1.0)
    assert stats.binomtest(missed, runs, 0.05).pvalue > ALPHA
    for shrink in (0.8, 1.3):
        missed = misses(1, 4, 1500, runs, "normal", shrink)
        assert stats.binomtest(missed, runs, 0.05).pvalue < ALPHA


def test_all_queries_at_once_stay_within_the_error_bound():
    """Max over 200 random counting queries; the twin without the union bound must be caught."""
    response, rows, runs, beta = RandomizedResponse(1, 16), 500, 400, 0.3
    generator = np.random.default_rng(3)
    codes = generator.integers(0, 16, rows)
    queries = generator.integers(0, 2, size=(200, 16)).astype(float)
    truth = queries @ np.bincount(codes, minlength=16)
    reports = response.encode(np.tile(codes, (runs, 1)), SeededWords(13))
    answers = np.array([queries @ estimate_reports(response, row).counts for row in reports])
    worst = np.abs(answers - truth).max(axis=1)
    within = response_error(response, rows, queries=200, beta=beta)
    single = response_error(response, rows, queries=1, beta=beta)
    assert stats.binomtest(int((worst > within).sum()), runs, beta, "greater").pvalue > ALPHA
    assert stats.binomtest(int((worst > single).sum()), runs, beta, "greater").pvalue < ALPHA


def test_the_tail_is_below_hoeffding_and_bernstein_at_every_level():
    """P(|error| > radius(beta)) <= beta for a ladder of beta; also the exact binomial says so."""
    response, rows = RandomizedResponse(1, 2), 60
    keep, gap = float(response.keep), float(response.gap)
    # All clients hold code 1, so the number of reports of 1 is binomial: exact, no simulation.
    reports_of_one = np.arange(rows + 1)
    errors = np.abs((reports_of_one - rows * (1 - keep)) / gap - rows)
    chance = stats.binom.pmf(reports_of_one, rows, keep)
    for beta in (0.5, 0.1, 1e-2, 1e-4, 1e-8):
        for interval in ("finite", "hoeffding"):
            radius = forecast_radius(response, [[0, 1]], rows, beta, interval)[0]
            assert chance[errors >= radius].sum() <= beta
        # Twin: half of Hoeffding's radius is no bound (once beta is small enough to show it).
        half = forecast_radius(response, [[0, 1]], rows, beta, "hoeffding")[0] / 2
        assert beta == 0.5 or chance[errors >= half].sum() > beta


def test_the_forecast_variance_is_the_empirical_one():
    response, runs = RandomizedResponse(1, 5), 4000
    codes = np.array([0] * 120 + [1] * 50 + [4] * 30)
    query = np.array([[1.0, 1.0, 2.0, 1.0, 0.0]])
    variance = float(row_variances(response, query)[0] @ np.bincount(codes, minlength=5))
    reports = response.encode(np.tile(codes, (runs, 1)), SeededWords(14))
    values = np.array([estimate_reports(response, row).answer(query).value[0] for row in reports])
    statistic = (runs - 1) * values.var(ddof=1)
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], runs - 1)
    assert low < statistic / variance < high
    # Twin: the variance of independent cells, without the covariances, is not it.
    independent = float(
        (query[0] ** 2) @ np.diag(estimate_reports(response, reports[0]).covariance())
    )
    assert not low < statistic / independent < high


def audited_epsilon(reports_of_zero: np.ndarray, reports_of_one: np.ndarray) -> float:
    """A lower bound on epsilon from the event 'the report is 0', by Clopper-Pearson at alpha."""
    runs = len(reports_of_zero)
    high_event, low_event = int((reports_of_zero == 0).sum()), int((reports_of_one == 0).sum())
    least = stats.beta.ppf(ALPHA / 2, high_event, runs - high_event + 1)
    most = stats.beta.ppf(1 - ALPHA / 2, low_event + 1, runs - low_event)
    return math.log(least / most)


@pytest.mark.parametrize("size", [2, 6])
def test_an_audit_finds_nearly_all_of_epsilon_and_never_more(size):
    response, runs = RandomizedResponse(1, size), 600_000
    zeros = response.encode(np.zeros(runs, dtype=int), SeededWords(21))
    ones = response.encode(np.ones(runs, dtype=int), SeededWords(22))
    assert 0.9 < audited_epsilon(zeros, ones) <= 1
    # Twin: half the randomisation, claimed as epsilon 1, must be convicted.
    half = float(1 - (1 - response.keep) / 2)
    assert audited_epsilon(*(float_reports(code, half, size, runs) for code in (0, 1))) > 1


def float_reports(code: int, keep: float, size: int, runs: int) -> np.ndarray:
    """Reports of a k-ary response with any keep probability, independent of the package."""
    generator = np.random.default_rng(code)
    moved = (code + generator.integers(1, size, runs)) % size
    return np.where(generator.random(runs) < keep, code, moved)
