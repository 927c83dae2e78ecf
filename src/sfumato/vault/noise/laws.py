# SPDX-License-Identifier: Apache-2.0
"""The laws of noise as inversions: |N| = floor(scale * g(U) + offset), U uniform on (0, 1).

With a fair sign, N is then the discrete Laplace or the rounded Gaussian; without one, |N| of the
exponential law is geometric. A law states g, its Taylor coefficients and the offset in ball
arithmetic (python-flint); `table` turns them into floats with a proven error, `inversion` draws.
Canonne, Kamath, Steinke 2020; Steinbrecher, Shaw 2008, "Quantile mechanics" (the differential
equation of the normal quantile).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from sfumato.balls import ball_of

if TYPE_CHECKING:
    from flint import arb

__all__ = ["EXPONENTIAL", "GAUSSIAN", "LAPLACE", "Law"]


@dataclass(frozen=True, slots=True)
class Law:
    """A symmetric law on the integers with |N| = floor(scale * g(U) + offset(scale)).

    On (0, 1] g is >= 0 and decreasing, and every |d^k g / du^k|, k >= 1, is decreasing: both proof
    pages show it, and the error bound of `table` rests on it.
    """

    name: str
    value: Callable[[arb], arb]
    taylor: Callable[[arb, arb, int], list[arb]]
    """(u, step, order) -> coefficients of t^0 ... t^order in g(u + step * t)."""
    offset: Callable[[Fraction], arb]


def _log_value(u: arb) -> arb:
    """g(u) = -ln u: a standard exponential variable."""
    return -u.log()


def _log_taylor(u: arb, step: arb, order: int) -> list[arb]:
    """-ln(u + step t) = -ln u + sum_k (-step / u)^k t^k / k."""
    ratio = -step / u
    coefficients, power = [_log_value(u)], 1
    for k in range(1, order + 1):
        power = power * ratio
        coefficients.append(power / k)
    return coefficients


def _laplace_offset(scale: Fraction) -> arb:
    """scale * ln(2 / (1 + q)) with q = exp(-1 / scale), written so that nothing cancels."""
    ball = ball_of(scale)
    return -ball * ((-1 / ball).expm1() / 2).log1p()


def _normal_value(u: arb) -> arb:
    """g(u) = the x >= 0 with P(|Z| > x) = u: half-normal."""
    from flint import arb

    return u.erfcinv() * arb(2).sqrt()


def _normal_taylor(u: arb, step: arb, order: int) -> list[arb]:
    """Coefficients of x(t) = g(u + step t) from x' = -step / (2 phi(x)) and x'' = x (x')^2."""
    from flint import arb

    x = [_normal_value(u)]
    density = (-x[0] * x[0] / 2).exp() / (2 * arb.pi()).sqrt()
    slope = [-step / (2 * density)]
    squares: list[arb] = []
    for k in range(order):
        x.append(slope[k] / (k + 1))
        squares.append(_convolution(slope, slope, k))
        slope.append(_convolution(x, squares, k) / (k + 1))
    return x


def _convolution(left: list[arb], right: list[arb], k: int) -> arb:
    return sum((left[i] * right[k - i] for i in range(1, k + 1)), left[0] * right[k])


def _half(scale: Fraction) -> arb:  # noqa: ARG001 - every law's offset takes the scale
    """Rounding to nearest is the floor after adding one half."""
    from flint import arb

    return arb(0.5)


def _nothing(scale: Fraction) -> arb:  # noqa: ARG001 - every law's offset takes the scale
    from flint import arb

    return arb(0)


EXPONENTIAL = Law("geometric", _log_value, _log_taylor, _nothing)
LAPLACE = Law("discrete Laplace", _log_value, _log_taylor, _laplace_offset)
GAUSSIAN = Law("rounded Gaussian", _normal_value, _normal_taylor, _half)
