# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from fractions import Fraction
from math import exp, sqrt

import numpy as np
import pytest
from flint import arb
from scipy import integrate, sparse, special
from scipy.optimize import linprog

from sfumato.errors import PlanError
from sfumato.privacy.noise_laws import (
    BlockNoise,
    NoiseTails,
    _ceiling,
    gaussian_quantile,
    gaussian_variance,
    laplace_mixture_quantile,
    laplace_quantile,
    laplace_tail,
    laplace_variance,
    whole_gain,
)


def laplace_pmf(scale: float, reach: int) -> np.ndarray:
    """P(Z = 0), P(Z = 1), ...: normalised by summing, not by the closed form."""
    weight = np.exp(-np.arange(reach) / scale)
    return weight / (2 * weight.sum() - 1)


def gaussian_pmf(sigma: float, reach: int) -> np.ndarray:
    k = np.arange(reach)
    return special.ndtr(-(k - 0.5) / sigma) - special.ndtr(-(k + 0.5) / sigma)


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0, 7.25, 100.0])
def test_laplace_tail_and_variance_agree_with_the_summed_law(scale):
    pmf = laplace_pmf(scale, math.ceil(60 * scale) + 60)
    for z in (1, 2, 5, math.ceil(3 * scale)):
        assert laplace_tail(scale, z) == pytest.approx(2 * pmf[z:].sum(), rel=1e-12, abs=1e-300)
    squares = np.arange(pmf.size) ** 2
    assert laplace_variance(scale) == pytest.approx(2 * (squares * pmf).sum(), rel=1e-11)


def test_laplace_tail_is_one_up_to_zero():
    assert laplace_tail(3, 0) == laplace_tail(3, -5) == 1.0


@pytest.mark.parametrize("sigma", [0.05, 0.2, 0.3, 0.499, 0.5, 0.7, 1.0, 4.0, 300.0])
def test_gaussian_variance_agrees_with_the_summed_law(sigma):
    pmf = gaussian_pmf(sigma, math.ceil(40 * sigma) + 40)
    squares = np.arange(pmf.size) ** 2
    assert gaussian_variance(sigma) == pytest.approx(2 * (squares * pmf).sum(), rel=1e-11)


def test_both_ways_of_the_gaussian_variance_meet():
    assert gaussian_variance(0.5 - 1e-12) == pytest.approx(gaussian_variance(0.5), rel=1e-10)


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.5, 40.0])
@pytest.mark.parametrize("level", [0.01, 0.5, 0.9, 0.95, 0.999])
def test_quantiles_are_the_first_integer_that_holds_the_level(scale, level):
    for quantile, pmf in ((laplace_quantile, laplace_pmf), (gaussian_quantile, gaussian_pmf)):
        mass = pmf(scale, math.ceil(60 * scale) + 60)
        held = 2 * np.cumsum(mass) - mass[0]
        assert quantile(scale, level) == int(np.argmax(held >= level))


def test_a_quantile_is_exact_where_a_float_would_tie():
    """The level is P(|Z| <= 30) rounded to a float, and the float next to it on either side."""
    held = 1 - laplace_tail(Fraction(10), 31)
    with_slack = [laplace_quantile(Fraction(10), np.nextafter(held, side)) for side in (0, 1)]
    assert with_slack == [30, 31]


def test_a_quantile_of_a_huge_scale_is_an_exact_integer():
    """scale ln 20 = 2^40 * 2.99573227355399...: 52 bits and a rounding, from known decimals."""
    ln_20 = Fraction("2.995732273553990993435223576142540775676601622989028")
    # ln(2 / (1 + q)) = 1/(2 scale) - 1/(8 scale^2) + ..., so k + 1 >= scale ln 20 + 1/2 - 2^-43
    expected = math.ceil((1 << 40) * ln_20 + Fraction(1, 2) - Fraction(1, 1 << 43)) - 1
    assert laplace_quantile(Fraction(1 << 40), Fraction(19, 20)) == expected


def test_an_unresolved_tie_goes_up():
    assert _ceiling(lambda: arb(3, 1e-30)) == 4
    assert _ceiling(lambda: arb(3)) == 3


def mixture_tail_by_bessel(shape: float, x: float) -> float:
    """P(|X| > x) from the density |x|^a K_a(|x|) / (sqrt(pi) Gamma(shape) 2^a), a = shape - 1/2."""
    a = shape - 0.5
    constant = math.lgamma(shape) + a * math.log(2) + 0.5 * math.log(math.pi)

    def density(y: float) -> float:
        return math.exp(a * math.log(y) + math.log(special.kve(a, y)) - y - constant)

    return 2 * integrate.quad(density, x, np.inf, epsabs=1e-14, epsrel=1e-12)[0]


@pytest.mark.parametrize("shape", [1.0, 1.37, 2.0, 5.5, 30.0])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_mixture_quantile_agrees_with_the_bessel_density(shape, level):
    q = float(laplace_mixture_quantile(shape, level))
    x = q * math.sqrt(2 * shape)
    tails = mixture_tail_by_bessel(shape, x - 1e-7), mixture_tail_by_bessel(shape, x + 1e-7)
    assert tails[1] < 1 - level < tails[0]


@pytest.mark.parametrize("level", [0.1, 0.5, 0.95, 0.999999, 1 - 1e-10])
def test_mixture_quantile_meets_its_closed_forms(level):
    """Shape 1: P(|X| > x) = e^-x. Shape 2: e^-x (1 + x/2). Infinity: the normal law."""
    one, two, normal = laplace_mixture_quantile([1.0, 2.0, np.inf], level)
    assert one * math.sqrt(2) == pytest.approx(-math.log1p(-level), abs=1e-8)
    x = 2 * two
    assert math.exp(-x) * (1 + x / 2) == pytest.approx(1 - level, rel=2e-8)
    assert normal == pytest.approx(special.ndtri((1 + level) / 2), abs=1e-8)


def test_mixture_quantile_keeps_the_shape_of_its_argument_and_allows_rounding():
    shapes = np.array([[1.0, 2.0, 3.0], [4.0, 1 - 1e-12, 1e15]])
    result = laplace_mixture_quantile(shapes, 0.9)
    assert result.shape == (2, 3)
    assert result[1, 1] == result[0, 0]


@pytest.mark.parametrize("shape", [0.99, -1, np.nan])
def test_mixture_quantile_refuses_a_shape_below_one(shape):
    with pytest.raises(PlanError, match="at least 1"):
        laplace_mixture_quantile([1.0, shape], 0.9)


@pytest.mark.parametrize("level", [0, 1, -0.5, 1.5, np.nan])
@pytest.mark.parametrize("quantile", [laplace_quantile, gaussian_quantile])
def test_a_level_outside_zero_to_one_is_refused(quantile, level):
    with pytest.raises(PlanError, match="between 0 and 1"):
        quantile(1, level)
    with pytest.raises(PlanError, match="between 0 and 1"):
        laplace_mixture_quantile(1.0, level)


@pytest.mark.parametrize("scale", [0, -1, math.inf, math.nan])
def test_a_scale_that_is_not_positive_is_refused(scale):
    for function in (laplace_variance, gaussian_variance):
        with pytest.raises(PlanError, match="positive"):
            function(scale)
    with pytest.raises(PlanError, match="positive"):
        laplace_tail(scale, 1)


# Noise on the grid of the measured values


def _discrete(scale: float, reach: int = 4000) -> np.ndarray:
    """The probabilities of the discrete Laplace law from -reach to reach."""
    q = exp(-1 / scale)
    return np.asarray((1 - q) / (1 + q) * q ** np.abs(np.arange(-reach, reach + 1.0)))


@pytest.mark.parametrize("scale", [0.0625, 0.25, 1.0, 3.7, 100.0])
def test_noise_in_whole_steps_has_the_smaller_variance_by_the_gain_of_its_loss(scale):
    ratio = sqrt(laplace_variance(scale) / (2 * scale**2))
    assert ratio < 1
    assert ratio == pytest.approx(whole_gain(1 / scale), rel=1e-12)
    law = BlockNoise("laplace", round(scale * 2**20), 3, 20)
    assert law.variance == pytest.approx(laplace_variance(scale) / 64, rel=1e-4)
    assert law.scale == pytest.approx(scale / 8, rel=1e-4)


@pytest.mark.parametrize("scale", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("t", [0.05, 0.2])
def test_exponential_moments_are_at_most_those_of_the_real_law(scale, t):
    """E exp(t L) = 1 / (1 - t^2 s^2): Theorem 4 of docs/proofs/discrete-laplace.md."""
    places = np.arange(-4000, 4001.0)
    with np.errstate(under="ignore"):
        moment = float(_discrete(scale) @ np.cosh(np.minimum(np.abs(t * places), 700)))
    assert moment <= 1 / (1 - (t * scale) ** 2) * (1 + 1e-9)


@pytest.mark.parametrize("scale", [0.3, 0.5, 1.0, 2.0, 7.5])
@pytest.mark.parametrize("weights", [[1], [1, 1], [2, 1], [3, 2, 1], [5, 1, 1, 1], [1] * 12])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_quantiles_of_sums_in_whole_steps_hold_their_level(scale, weights, level):
    """Against the exact law of the sum: a convolution of discrete Laplace laws."""
    reach = 40 + int(40 * scale)
    law = np.ones(1)
    for weight in weights:
        spread = np.zeros(2 * weight * reach + 1)
        spread[::weight] = _discrete(scale, reach)
        law = np.convolve(law, spread)
    places = np.abs(np.arange(len(law)) - len(law) // 2)
    deviation = sqrt(laplace_variance(scale) * sum(w * w for w in weights))
    shape = sum(w**2 for w in weights) ** 2 / sum(w**4 for w in weights)
    tails = NoiseTails((Fraction(scale),))
    half = float(tails.quantile([shape], level)[0]) * deviation
    assert law[places <= half * (1 + 1e-12)].sum() >= level - 1e-9
    if shape == 1:  # a twin that must fail: a step less
        assert law[places <= half - weights[0]].sum() < level


def test_sums_of_smooth_noise_have_the_quantiles_of_before():
    laws = [BlockNoise("gaussian", 2**16, 10), BlockNoise("laplace", 2**16, 10)]
    tails = NoiseTails.of(laws)
    assert tails.scales == ()
    shapes = [1.0, 2.5, np.inf]
    np.testing.assert_array_equal(
        tails.quantile(shapes, 0.95), laplace_mixture_quantile(shapes, 0.95)
    )


def test_a_single_draw_of_unlike_blocks_has_the_wider_of_their_quantiles():
    whole, smooth = BlockNoise("laplace", 1, 0, 1), BlockNoise("laplace", 2**16, 10)
    both = NoiseTails.of([whole, smooth]).quantile([1.0], 0.95)[0]
    alone = NoiseTails.of([whole]).quantile([1.0], 0.95)[0]
    assert both == max(alone, laplace_mixture_quantile(1.0, 0.95))


def least_variance(epsilon, delta, reach=40):
    """The least E z^2 of noise on -reach to reach that is (epsilon, delta)-DP for steps of 1.

    A linear program: the excess of each number over e^epsilon times its neighbour adds up to delta
    at most. Numbers at the ends have no neighbour outside, so this bounds noise of any reach.
    """
    z = np.arange(-reach, reach + 1)
    n = len(z)
    up = sparse.eye(n - 1, n) - exp(epsilon) * sparse.eye(n - 1, n, k=1)
    down = sparse.eye(n - 1, n, k=1) - exp(epsilon) * sparse.eye(n - 1, n)
    excess = sparse.hstack([sparse.vstack([up, down]), -sparse.eye(2 * (n - 1))])
    zeros, ones = np.zeros(n), np.ones(n - 1)
    whole = [np.r_[zeros, ones, 0 * ones], np.r_[zeros, 0 * ones, ones]]
    solved = linprog(
        np.r_[z.astype(float) ** 2, np.zeros(2 * (n - 1))],
        A_ub=sparse.vstack([excess, sparse.csr_matrix(np.array(whole))]),
        b_ub=np.r_[np.zeros(2 * (n - 1)), delta, delta],
        A_eq=sparse.csr_matrix(np.r_[np.ones(n), np.zeros(2 * (n - 1))][None]),
        b_eq=[1],
    )
    return solved.fun


@pytest.mark.parametrize("epsilon", [0.5, 1, 2])
def test_no_noise_on_a_count_has_less_variance(epsilon):
    """docs/proofs/discrete-laplace.md, Theorem 6; a delta of 1e-6 gains next to nothing."""
    a = exp(-epsilon)
    law = 2 * a / (1 - a) ** 2
    assert least_variance(epsilon, 0.0) == pytest.approx(law, rel=1e-4)
    assert least_variance(epsilon, 0.01) < 0.99 * law  # where delta is much, it is seen


def test_a_small_delta_gains_next_to_nothing():
    a = exp(-1)
    gain = least_variance(1, 1e-6) / (2 * a / (1 - a) ** 2)
    assert gain**0.5 == pytest.approx(0.99993, abs=1e-5)
