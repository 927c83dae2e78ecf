# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from scipy import integrate, special

from sfumato.errors import PlanError
from sfumato.privacy.noise_laws import (
    _ceiling,
    gaussian_quantile,
    gaussian_variance,
    laplace_mixture_quantile,
    laplace_quantile,
    laplace_tail,
    laplace_variance,
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
