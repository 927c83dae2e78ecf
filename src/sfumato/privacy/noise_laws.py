# SPDX-License-Identifier: Apache-2.0
"""The noise of a block of measurements: scale, variance, tails and quantiles on its grid.

Public arithmetic, no noise is drawn. Planning calibrates a `BlockNoise`, the vault draws it, and
forecasts and intervals read its quantiles. Three laws:
the discrete Laplace (Canonne, Kamath, Steinke 2020, "The discrete Gaussian for differential
privacy"), the Gaussian rounded to integers, and the symmetric variance-gamma law, a sum of
Laplace variables continued to real numbers of terms (Kotz, Kozubowski, Podgorski 2001, "The Laplace
distribution and generalizations", section 4.1), which matches variance and kurtosis of any linear
combination of Laplace noise. Scales are in grid steps.

A Laplace variable of scale b is a discrete one of the same scale plus an independent symmetric rest
within a step: whole parts of exponential variables are independent of what is left of them. So on
the grid of the measured values noise of the same epsilon has a smaller variance and smaller
exponential moments: ``docs/proofs/discrete-laplace.md``, Theorem 4. `NoiseTails` has the quantiles
of its sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.errors import PlanError
from sfumato.privacy.balls import ball_of, precision
from sfumato.privacy.privacy_limits import LIMITS
from sfumato.types import Noise

if TYPE_CHECKING:
    from flint import arb

__all__ = [
    "SMOOTH",
    "BlockNoise",
    "NoiseTails",
    "gaussian_quantile",
    "gaussian_variance",
    "laplace_mixture_quantile",
    "laplace_quantile",
    "laplace_tail",
    "laplace_variance",
    "whole_gain",
]


@dataclass(frozen=True, slots=True)
class BlockNoise:
    """Noise of scale ``units 2^-scale_bits`` grid steps, of multiples of ``2^-grid_bits``.

    The scale is the standard deviation of the Gaussian, or the ``b`` of the Laplace law. It is
    finer than the grid (``scale_bits`` above 0) where noise is drawn on the grid of the measured
    values themselves, the whole numbers for counts.
    """

    noise: Noise
    units: int
    grid_bits: int
    scale_bits: int = 0

    @property
    def scale(self) -> float:
        """The scale in counts (exact: a float holds it)."""
        return math.ldexp(self.units, -self.grid_bits - self.scale_bits)

    @property
    def steps(self) -> Fraction:
        """The scale in grid steps, exactly."""
        return Fraction(self.units, 1 << self.scale_bits)

    @property
    def is_smooth(self) -> bool:
        """Whether a step is next to nothing beside the scale."""
        return self.steps >= LIMITS.fine_steps

    def as_json(self) -> list[object]:
        """The law, exactly, as requests and measurements state it."""
        finer = [self.scale_bits] if self.scale_bits else []
        return [self.noise, self.units, self.grid_bits, *finer]

    @property
    def variance(self) -> float:
        """The exact variance of the noise on the grid, in counts squared."""
        if self.noise == "laplace":
            on_grid = laplace_variance(self.steps)
        elif self.steps < LIMITS.smooth_units:
            on_grid = gaussian_variance(self.steps)
        else:
            on_grid = float(self.steps) ** 2 + 1 / 12
        return math.ldexp(on_grid, -2 * self.grid_bits)


@dataclass(frozen=True, slots=True)
class NoiseTails:
    """How far sums of draws reach, in their standard deviations.

    ``scales`` are those of the Laplace laws whose grid is no small part of them, in its steps;
    ``is_mixed`` says that there are other laws besides.
    """

    scales: tuple[Fraction, ...] = ()
    is_mixed: bool = False

    def as_json(self) -> list[object]:
        """As JSON."""
        return [[str(scale) for scale in self.scales], self.is_mixed]

    @classmethod
    def from_json(cls, stored: Sequence[Any]) -> NoiseTails:
        """Read what `as_json` wrote."""
        scales, is_mixed = stored
        return cls(tuple(Fraction(scale) for scale in scales), bool(is_mixed))

    @classmethod
    def of(cls, laws: Iterable[BlockNoise]) -> NoiseTails:
        """The tails of sums of draws of these laws."""
        different = set(laws)
        coarse = {law for law in different if law.noise == "laplace" and not law.is_smooth}
        return cls(tuple(sorted({law.steps for law in coarse})), different != coarse)

    def quantile(self, shape: ArrayLike, level: float) -> NDArray[np.float64]:
        """Return q with P(|X| <= q sd(X)) >= level, X like a sum of `shape` equal draws.

        Where a grid is coarse beside its noise a single draw (shape 1) is exact: a whole number of
        steps. Any other X is at most a above ``|X + a U|``, U uniform on [-1, 1]: the quantile of
        that sum, which has no steps if a is half of the greatest one, and a. No step exceeds the
        root of ``sum e^2 = sd^4 / shape``, e the variances of the draws, over its own variance.
        docs/proofs/discrete-laplace.md, Theorem 5.

        >>> tails = NoiseTails((Fraction(1),))
        >>> [round(float(q * math.sqrt(laplace_variance(1))), 3) for q in tails.quantile([1], 0.95)]
        [3.0]
        """
        smooth = laplace_mixture_quantile(shape, level)
        if not self.scales:
            return smooth
        shapes = np.maximum(np.asarray(shape, dtype=np.float64), 1.0)
        variance, single = _single_draws(self.scales, level)
        half_step = shapes**-0.25 / (2 * math.sqrt(variance))
        wide = smooth * np.sqrt(1 + half_step**2 / 3) + half_step
        if self.is_mixed:
            single = max(single, float(laplace_mixture_quantile(1.0, level)))
        return np.where(shapes <= 1 + 1e-9, single, wide)


@lru_cache(maxsize=1024)
def _single_draws(scales: tuple[Fraction, ...], level: float) -> tuple[float, float]:
    """Of single draws with these scales: the least variance, the largest quantile in deviations."""
    variances = [laplace_variance(scale) for scale in scales]
    pairs = zip(scales, variances, strict=True)
    return min(variances), max(laplace_quantile(s, level) / math.sqrt(v) for s, v in pairs)


SMOOTH: Final = NoiseTails()
"""Tails of noise whose grids are fine beside it."""


def whole_gain(loss: float) -> float:
    """Return the least sd(Z) / sd(L) of noise of scale b >= 1 / loss steps: x / sinh x, x = loss/2.

    Z is discrete, L a real Laplace variable of the same scale. With epsilon = loss no block that is
    measured has noise of a smaller scale in steps of its grid: one record moves it by a step at
    least. Less than 1/16 of a step is never drawn. docs/proofs/discrete-laplace.md, Theorem 4.

    >>> round(whole_gain(1.0), 6) == round(math.sqrt(laplace_variance(1) / 2), 6)
    True
    """
    half = min(loss, 2.0**-LIMITS.whole_steps_log2) / 2
    return half / math.sinh(half) if half else 1.0


def laplace_tail(scale: Fraction | float, z: int) -> float:
    """P(|Z| >= z) = 2 q^z / (1 + q) for z >= 1, q = exp(-1 / scale), Z discrete Laplace.

    >>> round(laplace_tail(1, 1), 6)
    0.537883
    """
    rate = 1 / float(_positive(scale))
    return 1.0 if z <= 0 else 2 * math.exp(-z * rate) / (1 + math.exp(-rate))


def laplace_quantile(scale: Fraction | float, level: Fraction | float) -> int:
    """Return the smallest integer k >= 0 with P(|Z| <= k) >= level, Z discrete Laplace, exactly.

    >>> laplace_quantile(10, 0.95)
    30
    """
    exact_scale, tail = _positive(scale), 1 - _inside(level)

    def crossing() -> arb:
        # P(|Z| > k) = 2 q^(k+1) / (1 + q) <= tail  iff  k + 1 >= scale * ln(2 / ((1 + q) tail))
        s = ball_of(exact_scale)
        return -s * (((-1 / s).expm1() / 2).log1p() + ball_of(tail).log()) - 1

    return max(0, _ceiling(crossing))


def gaussian_quantile(sigma: Fraction | float, level: Fraction | float) -> int:
    """Return the smallest integer k >= 0 with P(|round(sigma Z)| <= k) >= level, exactly.

    >>> gaussian_quantile(10, 0.95)
    20
    """
    exact_sigma, exact_level = _positive(sigma), _inside(level)

    def crossing() -> arb:
        # P(|round(sigma Z)| <= k) = erf((k + 1/2) / (sigma sqrt 2))
        from flint import arb

        return ball_of(exact_sigma) * arb(2).sqrt() * ball_of(exact_level).erfinv() - arb(0.5)

    return max(0, _ceiling(crossing))


def laplace_variance(scale: Fraction | float) -> float:
    """Var Z = 2 q / (1 - q)^2, q = exp(-1 / scale), Z discrete Laplace.

    >>> round(laplace_variance(1), 6)
    1.841347
    """
    rate = 1 / float(_positive(scale))
    return float(2 * math.exp(-rate) / math.expm1(-rate) ** 2)


def gaussian_variance(sigma: Fraction | float) -> float:
    """Var round(sigma Z) = sigma^2 + 1/12 + sum_m (-1)^m e^(-2 a_m^2 sigma^2) (4 sigma^2 + a_m^-2).

    Here a_m = pi m: it is the Fourier series of the sawtooth x - round(x). Below sigma = 1/2 it is
    slow, and the variance is summed as sum_k (2k - 1) P(|round(sigma Z)| >= k) instead.

    >>> round(gaussian_variance(1) - 13 / 12, 9)
    -1.1e-08
    """
    s = float(_positive(sigma))
    if s < 0.5:
        # At k = 20 the argument is above 27, where erfc is below 10^-300.
        return math.fsum(
            (2 * k - 1) * math.erfc((k - 0.5) / (s * math.sqrt(2))) for k in range(1, 21)
        )
    waves = (
        (-1) ** m * math.exp(-2 * (math.pi * m * s) ** 2) * (4 * s * s + 1 / (math.pi * m) ** 2)
        for m in range(1, 5)  # at m = 5 and sigma = 1/2 a term is below 10^-53
    )
    return s * s + 1 / 12 + math.fsum(waves)


def laplace_mixture_quantile(shape: ArrayLike, level: float) -> NDArray[np.float64]:
    """Return q with P(|X| <= q sd(X)) = level, X a sum of `shape` independent Laplace variables.

    X has characteristic function (1 + t^2)^-shape and variance 2 shape; real shapes from 1 up lead
    from the Laplace (1) to the normal law (infinity). For a linear combination sum r_i Z_i of
    Laplace noise, shape = (sum r^2)^2 / sum r^4 matches its kurtosis. The result has the shape of
    `shape`; it is accurate to 10^-8 for levels up to 1 - 10^-12.

    >>> [round(float(q), 6) for q in laplace_mixture_quantile([1, 2, np.inf], 0.95)]
    [2.118303, 2.056502, 1.959964]
    """
    shapes = np.asarray(shape, dtype=np.float64)
    # A shape computed from ratios may fall short of 1 by rounding only.
    if not bool(np.all(shapes >= 1 - 1e-9)):
        raise PlanError("shape of a Laplace mixture must be at least 1 (Cauchy-Schwarz)")
    series = _mixture_series(float(_inside(level)))
    inverse = 1 / np.maximum(shapes, 1.0)
    return np.asarray(np.polynomial.chebyshev.chebval(2 * inverse - 1, series), dtype=np.float64)


@lru_cache(maxsize=1024)  # half a kilobyte each; the levels of a session are many
def _mixture_series(level: float) -> NDArray[np.float64]:
    """Chebyshev coefficients of the quantile as a function of 1 / shape on [0, 1]."""
    nodes = np.polynomial.chebyshev.chebpts1(LIMITS.mixture_nodes)
    values = _mixture_quantile(2 / (nodes + 1), level)
    series = np.polynomial.chebyshev.chebfit(nodes, values, LIMITS.mixture_nodes - 1)
    return np.asarray(series, dtype=np.float64)


def _mixture_quantile(shape: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """Solve P(|X| > q sd) = 1 - level by bisection, all shapes at once.

    X given G is normal with variance 2 G, G gamma(shape): the tail is the mean of
    erfc(q sd / (2 sqrt G)). With G = shape e^w the density of w is proportional to
    exp(-shape (e^w - 1 - w)), and the trapezoidal rule converges geometrically. Outside
    [-(c + sqrt(2c)), sqrt(2c)], c = 40 / shape, that density is below e^-40 of its peak.
    """
    from scipy.special import erfc

    c = 40 / shape[:, None]
    low, high = -(c + np.sqrt(2 * c)), np.sqrt(2 * c)
    w = low + (high - low) * np.linspace(0, 1, LIMITS.mixture_points)
    weight = np.exp(-shape[:, None] * (np.expm1(w) - w))
    weight /= weight.sum(axis=1, keepdims=True)
    spread = np.exp(-w / 2) / math.sqrt(2)  # sd / (2 sqrt G)
    tail = 1 - level
    below = np.zeros_like(shape)
    # P(|X| > q sd) <= 2 / (1 - lambda^2)^shape e^(-lambda q sd) at lambda = 1 / sqrt(2 shape) is at
    # most 4 e^-q, so the quantile is at most ln(4 / tail).
    above = np.full_like(shape, math.log(4 / tail))
    for _ in range(52):
        middle = (below + above) / 2
        is_below = (weight * erfc(middle[:, None] * spread)).sum(axis=1) > tail
        below, above = np.where(is_below, middle, below), np.where(is_below, above, middle)
    return (below + above) / 2


def _ceiling(crossing: Callable[[], arb]) -> int:
    """Ceiling of a real number that can be had to any precision; an unresolved tie goes up."""
    for bits in (64, 128, 256, 512, 1024, 2048):
        with precision(bits):
            number = crossing()
            whole = number.ceil().unique_fmpz()
            if whole is not None:
                return int(whole)
            highest = number.upper().ceil().unique_fmpz()
    return int(highest)


def _positive(scale: Fraction | float) -> Fraction:
    if not (math.isfinite(scale) and scale > 0):
        raise PlanError(f"noise scale {scale} must be a positive number")
    return Fraction(scale)


def _inside(level: Fraction | float) -> Fraction:
    if not 0 < level < 1:
        raise PlanError(f"confidence level {level} must lie strictly between 0 and 1")
    return Fraction(level)
