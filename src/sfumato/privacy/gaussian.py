# SPDX-License-Identifier: Apache-2.0
"""The exact privacy curve of the Gaussian mechanism, decided in ball arithmetic.

A mechanism that is mu-GDP is (epsilon, delta)-DP for every epsilon >= 0 with

    delta(epsilon; mu) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2)

and the Gaussian mechanism with mu = sensitivity / sigma attains it (Balle, Wang 2018, "Improving
the Gaussian mechanism for differential privacy", Theorem 8; Dong, Roth, Su 2019, "Gaussian
differential privacy", Corollary 2.13). Every comparison here is made on balls that contain the
true value, with as many bits as it needs; a comparison that stays open counts against the
mechanism. So a function that ends in ``_up`` is never too small and one that ends in ``_down``
never too large. Proof page: ``docs/proofs/accounting.md``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from sfumato.privacy.balls import ball_of, precision
from sfumato.privacy.privacy_limits import LIMITS

if TYPE_CHECKING:
    from flint import arb

__all__ = [
    "float_down",
    "float_up",
    "gaussian_delta_up",
    "gaussian_epsilon_up",
    "gaussian_mu_down",
    "gaussian_tail_up",
    "gaussian_within",
    "loss_of_mu_down",
    "mu_of_loss_up",
    "mu_of_pure_up",
    "pure_of_mu_down",
    "sqrt_down",
    "sqrt_up",
    "tail_loss_up",
]


_SMALLEST = 5e-324  # the smallest double above 0


def float_up(value: Fraction) -> float:
    """Smallest double that is at least ``value`` (infinity when there is none)."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -1.7976931348623157e308
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def float_down(value: Fraction) -> float:
    """Largest double that is at most ``value``."""
    return -float_up(-value)


def sqrt_down(value: Fraction) -> float:
    """Largest double whose square is at most ``value``."""
    return float_down(_sqrt_bound(value, extra=0))


def sqrt_up(value: Fraction) -> float:
    """A double whose square is at least ``value``, within two units in the last place."""
    return float_up(_sqrt_bound(value, extra=1))


def _sqrt_bound(value: Fraction, extra: int) -> Fraction:
    """Round ``sqrt(value)`` down (``extra = 0``) or up (``extra = 1``) with 128 good bits."""
    if value == 0:
        return Fraction(0)
    bits = value.denominator.bit_length() - value.numerator.bit_length()
    shift = 128 + max(0, (bits + 1) // 2)
    scaled = (value.numerator << (2 * shift)) // value.denominator
    root = math.isqrt(scaled)
    exact = root * root * value.denominator == value.numerator << (2 * shift)
    return Fraction(root if exact else root + extra, 1 << shift)


def gaussian_within(mu_squared: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    """True only if ``delta(epsilon; sqrt(mu_squared)) <= delta``, proven on balls."""
    if mu_squared == 0:
        return delta >= 0
    if delta >= 1:
        return True
    if delta <= 0:
        return False
    return _decide(lambda: _delta_ball(mu_squared, epsilon) - ball_of(delta))


def gaussian_delta_up(mu_squared: Fraction, epsilon: Fraction) -> float:
    """``delta(epsilon; sqrt(mu_squared))``, rounded up to a double."""
    if mu_squared == 0:
        return 0.0
    return min(1.0, _float_above(lambda: _delta_ball(mu_squared, epsilon)))


@lru_cache(maxsize=1024)
def gaussian_epsilon_up(mu_squared: Fraction, delta: Fraction) -> float:
    """Smallest double epsilon >= 0 with ``delta(epsilon; sqrt(mu_squared)) <= delta``."""
    mu = sqrt_up(mu_squared)
    # mu^2/2-zCDP implies (mu^2/2 + mu sqrt(2 log 1/delta), delta)-DP: Bun, Steinke 2016,
    # Proposition 1.3.
    bound = mu * mu / 2 + mu * math.sqrt(2 * _log_inverse(delta))
    if mu_squared > LIMITS.closed_form_from:
        return bound * (1 + 1e-12)
    if gaussian_within(mu_squared, Fraction(0), delta):
        return 0.0
    _, above = _boundary(lambda x: not gaussian_within(mu_squared, Fraction(x), delta), bound)
    return above


@lru_cache(maxsize=1024)
def gaussian_mu_down(epsilon: Fraction, delta: Fraction) -> float:
    """Largest double mu with ``delta(epsilon; mu) <= delta``.

    Args:
        epsilon: The epsilon of (epsilon, delta)-DP.
        delta: Its delta.

    Returns:
        Mu, rounded down.
    """
    logarithm, eps = _log_inverse(delta), float(epsilon)
    # The bound of zero-concentrated DP and the bound at epsilon = 0 bracket within a few octaves.
    guess = math.sqrt(2) * eps / (math.sqrt(logarithm + eps) + math.sqrt(logarithm))
    guess = max(guess, 2.5 * float(delta))

    def holds(mu: float) -> bool:
        return gaussian_within(Fraction(mu) ** 2, epsilon, delta)

    near = _nearly(lambda mu: _float_delta(mu, eps) <= float(delta), guess)
    below, _ = _boundary(holds, guess) if near is None else _boundary_near(holds, near)
    return below


@lru_cache(maxsize=1024)
def mu_of_pure_up(epsilon: Fraction) -> float:
    """Smallest double mu such that epsilon-DP implies mu-GDP: ``Phi(-mu/2) <= 1/(1+e^epsilon)``.

    The trade-off curve of epsilon-DP is two chords that meet on the diagonal at 1/(1+e^epsilon);
    the convex curve of mu-GDP lies below them as soon as it passes below that corner.
    """
    if epsilon > LIMITS.closed_form_from:
        # Phi(-mu/2) <= e^(-mu^2/8)/2 <= 1/(1+e^epsilon) for mu^2 = 8 epsilon
        return sqrt_up(8 * epsilon)

    def too_small(mu: float) -> bool:
        return not _decide(
            lambda: _upper_tail(ball_of(Fraction(mu) / 2)) * (1 + ball_of(epsilon).exp()) - 1
        )

    return _boundary(too_small, min(1.26 * float(epsilon), 3 * math.sqrt(float(epsilon))))[1]


@lru_cache(maxsize=1024)
def pure_of_mu_down(mu: Fraction) -> float:
    """Largest double epsilon such that epsilon-DP implies mu-GDP."""

    def negative() -> arb:
        tail = _upper_tail(ball_of(mu / 2))
        return -((1 - tail) / tail).log()

    return -_float_above(negative)


@lru_cache(maxsize=1024)
def mu_of_loss_up(mu_squared: Fraction, loss: Fraction) -> float:
    """Smallest double mu with ``e^loss Phi(-mu/2) <= Phi(mu/2 - kappa)``, kappa^2 = ``mu_squared``.

    A mechanism whose losses, for both orders of every two neighbours, are at most ``loss`` more
    than those of a kappa-GDP one is mu-GDP: docs/proofs/sparse-vector.md, Theorem 3. kappa = 0
    is `mu_of_pure_up`.
    """
    if max(mu_squared, loss) > LIMITS.closed_form_from:
        # The excess over kappa is largest at kappa = 0.
        return float_up(Fraction(sqrt_up(mu_squared)) + Fraction(mu_of_pure_up(loss)))

    def too_small(mu: float) -> bool:
        def excess() -> arb:
            half, kappa = ball_of(Fraction(mu) / 2), ball_of(mu_squared).sqrt()
            return ball_of(loss).exp() * _upper_tail(half) - _upper_tail(kappa - half)

        return not _decide(excess)

    return _boundary(too_small, sqrt_up(mu_squared) + mu_of_pure_up(loss))[1]


@lru_cache(maxsize=1024)
def loss_of_mu_down(mu: Fraction, mu_squared: Fraction) -> float:
    """Largest double loss whose `mu_of_loss_up` with ``mu_squared`` is at most ``mu``, or 0."""
    if mu * mu <= mu_squared:
        return 0.0

    def negative() -> arb:
        half, kappa = ball_of(mu / 2), ball_of(mu_squared).sqrt()
        return -(_upper_tail(kappa - half) / _upper_tail(half)).log()

    return max(0.0, -_float_above(negative))


@lru_cache(maxsize=1024)
def tail_loss_up(near: Fraction, far: Fraction) -> float:
    """``log(P(Z >= near) / P(Z >= far))`` of a standard normal Z, rounded up."""
    return _float_above(lambda: (_upper_tail(ball_of(near)) / _upper_tail(ball_of(far))).log())


def gaussian_tail_up(x: Fraction) -> float:
    """Return ``P(Z >= x)`` of a standard normal Z, rounded up."""
    return _float_above(lambda: _upper_tail(ball_of(x)))


def _log_inverse(delta: Fraction) -> float:
    return math.log(delta.denominator) - math.log(delta.numerator)


def _upper_tail(x: arb) -> arb:
    """``Phi(-x)``."""
    from flint import arb

    return (x / arb(2).sqrt()).erfc() / 2


def _delta_ball(mu_squared: Fraction, epsilon: Fraction) -> arb:
    mu, eps = ball_of(mu_squared).sqrt(), ball_of(epsilon)
    return _upper_tail(eps / mu - mu / 2) - eps.exp() * _upper_tail(eps / mu + mu / 2)


def _decide(difference: Callable[[], arb]) -> bool:
    """True only if the difference is proven to be at most zero; an open comparison is False."""
    for bits in LIMITS.ball_bits:
        with precision(bits):
            ball = difference()
            if ball <= 0:
                return True
            if ball > 0:
                return False
    return False


def _float_above(value: Callable[[], arb]) -> float:
    """A double at least as large as the value, the nearest such in all but hopeless cases."""
    above = math.inf
    for bits in LIMITS.ball_bits:
        with precision(bits):
            ball = value()
            above = min(above, _double_above(ball.upper()))
            if ball.rel_accuracy_bits() >= 60:
                return above
    return above


def _double_above(exact: arb) -> float:
    if not exact.is_finite():
        return math.inf
    mantissa, exponent = (int(part) for part in exact.man_exp())
    size = mantissa.bit_length() + exponent
    if size < -1080:  # far below the smallest double; a Fraction of it could fill the memory
        return _SMALLEST if mantissa > 0 else 0.0
    if size > 1100:
        return math.inf if mantissa > 0 else -1.7976931348623157e308
    return float_up(mantissa * Fraction(2) ** exponent)


def _boundary(holds: Callable[[float], bool], guess: float) -> tuple[float, float]:
    """Neighbouring doubles (low, high) with ``holds(low)`` and not ``holds(high)``.

    ``holds`` is true below some positive point and false above it; low may be 0.
    """
    low = high = guess
    while low > 0 and not holds(low):
        high, low = low, low / 2
    while high == low or holds(high):
        low, high = high, high * 2
        if math.isinf(high):
            return low, high
    return _halved(holds, _bits_of(low), _bits_of(high))


def _float_delta(mu: float, epsilon: float) -> float:
    """``delta(epsilon; mu)`` in doubles: good enough to know where to look, proves nothing."""
    near, far = (epsilon / mu - mu / 2) / math.sqrt(2), (epsilon / mu + mu / 2) / math.sqrt(2)
    return math.erfc(near) / 2 - math.exp(epsilon) * math.erfc(far) / 2


def _nearly(holds: Callable[[float], bool], guess: float) -> float | None:
    """About where a predicate on doubles turns; None where doubles cannot tell."""
    try:
        low, high = guess, guess
        for _ in range(60):
            if holds(low):
                break
            low /= 2
        for _ in range(60):
            if not holds(high):
                break
            high *= 2
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if holds(middle) else (low, middle)
    except (OverflowError, ZeroDivisionError):
        return None
    return low if low > 0 and math.isfinite(low) else None


def _boundary_near(holds: Callable[[float], bool], guess: float) -> tuple[float, float]:
    """What `_boundary` returns, quickly from a guess that is nearly right."""
    first = last = _bits_of(guess)
    step = 2**8
    if holds(guess):
        while holds(_double_of(last := first + step)):
            first, step = last, step * 2**6
            if math.isinf(_double_of(first + step)):
                return _boundary(holds, _double_of(first))
    else:
        while not holds(_double_of(first := max(0, last - step))):
            last, step = first, step * 2**6
            if not first:
                return _boundary(holds, guess)
    return _halved(holds, first, last)


def _halved(holds: Callable[[float], bool], first: int, last: int) -> tuple[float, float]:
    """Neighbouring doubles between two places, of which it holds at the first alone."""
    while last - first > 1:
        middle = (first + last) // 2
        if holds(_double_of(middle)):
            first = middle
        else:
            last = middle
    return _double_of(first), _double_of(last)


def _bits_of(value: float) -> int:
    """Order of a non-negative double among all non-negative doubles."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def _double_of(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])
