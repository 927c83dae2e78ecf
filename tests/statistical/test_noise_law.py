# SPDX-License-Identifier: Apache-2.0
"""Samples against their laws: chi-square at three bin widths, mean and variance; alpha = 1e-6 each.

A scale error of 0.2% moves the variance by 0.4%, which a million Laplace draws cannot see (their
variance is known to 0.22%): the fast twins are wrong by 2%, the slow ones, on 3.2e7 draws, by 0.2%.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtr, ndtri

from sfumato.privacy.noise_laws import gaussian_variance, laplace_variance
from sfumato.vault.mechanisms.noise import (
    GAUSSIAN,
    LAPLACE,
    certified_table,
    discrete_laplace,
    draw,
    rounded_gaussian,
)
from tests.shared.words import SeededWords

ALPHA = 1e-6
BLOCK = 1 << 21
SCALES = [1, 10, 1000, 10**6]
Sampler = Callable[[Fraction, int, SeededWords], NDArray[np.int64]]


@dataclass(frozen=True)
class Reference:
    """The law that a sample must follow: P(N <= k), its variance and kurtosis, steps for bins."""

    cdf: Callable[[NDArray[np.int64], float], NDArray[np.float64]]
    variance: Callable[[float], float]
    kurtosis: float  # at least that of the law for scales >= 1
    inverse: Callable[[NDArray[np.float64]], NDArray[np.float64]]


def laplace_cdf(k: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    q = np.exp(-1 / scale)
    above = np.exp(-(np.maximum(k, 0) + 1) / scale) / (1 + q)
    below = np.exp(np.minimum(k, 0) / scale) / (1 + q)
    return np.where(k >= 0, 1 - above, below)


def gaussian_cdf(k: NDArray[np.int64], sigma: float) -> NDArray[np.float64]:
    return ndtr((k + 0.5) / sigma)


def laplace_inverse(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return -np.sign(p - 0.5) * np.log1p(-2 * np.abs(p - 0.5))


# The kurtosis of the discrete Laplace is 6 + 1 / variance; at scale 1 that is below 6.6.
LAPLACE_LAW = Reference(laplace_cdf, laplace_variance, 6.6, laplace_inverse)
GAUSSIAN_LAW = Reference(gaussian_cdf, gaussian_variance, 3.0, ndtri)
PAIRS = {
    "laplace": (LAPLACE_LAW, discrete_laplace),
    "gaussian": (GAUSSIAN_LAW, rounded_gaussian),
}
both_laws = pytest.mark.parametrize("name", PAIRS)
all_scales = pytest.mark.parametrize("scale", SCALES)


def p_values(law: Reference, scale: float, size: int, take: Callable[[int], NDArray]) -> dict:
    """Draw in blocks; p-values of the chi-square tests and of mean and variance."""
    edges = {}
    for bins in (8, 64, 1024):
        steps = law.inverse(np.arange(1, bins) / bins) * scale
        edges[bins] = np.unique(np.rint(steps).astype(np.int64))
    counts = {bins: np.zeros(edge.size + 1) for bins, edge in edges.items()}
    total = squares = 0.0
    for start in range(0, size, BLOCK):
        sample = take(min(BLOCK, size - start))
        for bins, edge in edges.items():
            # Bin i holds edge[i-1] < N <= edge[i].
            counts[bins] += np.bincount(np.searchsorted(edge, sample), minlength=edge.size + 1)
        total += float(sample.sum())
        squares += float((sample.astype(np.float64) ** 2).sum())
    result = {}
    for bins, edge in edges.items():
        cuts = np.concatenate([[0.0], law.cdf(edge, scale), [1.0]])
        expected = size * np.diff(cuts)
        statistic = ((counts[bins] - expected) ** 2 / expected).sum()
        result[f"{bins} bins"] = float(chdtrc(edge.size, statistic))
    variance = law.variance(scale)
    mean_z = total / np.sqrt(size * variance)
    variance_z = (squares / size / variance - 1) / np.sqrt((law.kurtosis - 1) / size)
    result["mean"] = float(2 * ndtr(-abs(mean_z)))
    result["variance"] = float(2 * ndtr(-abs(variance_z)))
    return result


def sampled(sampler: Sampler, scale: Fraction, seed: str) -> Callable[[int], NDArray]:
    source = SeededWords(seed)
    return lambda count: sampler(scale, count, source)


@both_laws
@all_scales
def test_a_million_draws_follow_the_law(name, scale):
    law, sampler = PAIRS[name]
    values = p_values(law, scale, 10**6, sampled(sampler, Fraction(scale), f"{name} {scale}"))
    assert min(values.values()) > ALPHA, values


@both_laws
@all_scales
def test_a_million_draws_of_a_scale_wrong_by_two_percent_are_rejected(name, scale):
    law, sampler = PAIRS[name]
    wrong = Fraction(scale) * Fraction(102, 100)
    values = p_values(law, scale, 10**6, sampled(sampler, wrong, f"{name} {scale}"))
    assert min(values.values()) < ALPHA, values


@pytest.mark.slow
@both_laws
@all_scales
def test_many_draws_follow_the_law(name, scale):
    law, sampler = PAIRS[name]
    values = p_values(law, scale, 32 * 10**6, sampled(sampler, Fraction(scale), f"many {scale}"))
    assert min(values.values()) > ALPHA, values


@pytest.mark.slow
@both_laws
@all_scales
def test_many_draws_of_a_scale_wrong_by_a_fifth_of_a_percent_are_rejected(name, scale):
    law, sampler = PAIRS[name]
    wrong = Fraction(scale) * Fraction(1002, 1000)
    values = p_values(law, scale, 32 * 10**6, sampled(sampler, wrong, f"many {scale}"))
    assert min(values.values()) < ALPHA, values


def rounded_float_laplace(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    return np.rint(rng.laplace(size=count)).astype(np.int64)


def truncated_float_gaussian(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    return np.trunc(rng.normal(size=count)).astype(np.int64)


def discrete_gaussian(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Mass proportional to exp(-k^2 / 2): close to the rounded Gaussian, yet another law."""
    k = np.arange(-40, 41)
    mass = np.exp(-(k**2) / 2)
    return rng.choice(k, size=count, p=mass / mass.sum())


@pytest.mark.parametrize(
    ("law", "wrong"),
    [
        (LAPLACE_LAW, rounded_float_laplace),
        (GAUSSIAN_LAW, truncated_float_gaussian),
        (GAUSSIAN_LAW, discrete_gaussian),
    ],
)
def test_noise_of_a_neighbouring_law_is_rejected_at_scale_one(law, wrong):
    rng = np.random.default_rng(11)
    values = p_values(law, 1, 10**6, lambda count: wrong(rng, count))
    assert min(values.values()) < ALPHA, values


@both_laws
def test_the_law_is_kept_when_one_draw_in_ten_is_forced_the_slow_way(name):
    reference, _ = PAIRS[name]
    law = {"laplace": LAPLACE, "gaussian": GAUSSIAN}[name]
    table = certified_table(law)
    wide = replace(table, error=table.error + 0.05 / 10)
    source = SeededWords("forced")
    values = p_values(
        reference, 10, 50_000, lambda count: draw(law, wide, Fraction(10), count, source)
    )
    assert min(values.values()) > ALPHA, values


def test_discrete_laplace_agrees_with_the_sampler_of_opendp():
    """Two samples, two programs, two algorithms (OpenDP: Canonne, Kamath, Steinke by rejection)."""
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    size = 100_000
    theirs = np.array(dp.m.make_laplace(*space, scale=4.0)([0] * size))
    ours = discrete_laplace(Fraction(4), size, SeededWords("opendp"))
    twin = discrete_laplace(Fraction(42, 10), size, SeededWords("opendp"))
    edges = np.arange(-20, 21)

    def p_value(sample: NDArray[np.int64]) -> float:
        table = [np.bincount(np.searchsorted(edges, s), minlength=42) for s in (sample, theirs)]
        first, second = np.array(table, dtype=float)
        return float(chdtrc(41, ((first - second) ** 2 / (first + second)).sum()))

    assert p_value(ours) > ALPHA
    assert p_value(twin) < ALPHA
