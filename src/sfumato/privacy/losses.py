# SPDX-License-Identifier: Apache-2.0
r"""The privacy loss of pure mechanisms and Gaussian noise together, bounded from above.

The delta of a composition is an average of the delta of one part, shifted by the loss of the
others. With all Gaussian parts merged into one, and L the loss of all pure parts together,

    delta(epsilon) = sum over l of P(L = l) delta_mu(epsilon - l)

so the Gaussian is never discretised and only the pure losses need a grid. A pure part of m steps
is dominated by the discrete Laplace mechanism that moves by m (proof page, Lemma 2), whose losses
are (epsilon/m) (m - 2 J). Each loss between two grid points is split between them so that its
probability under both neighbours is kept: merging the two outputs again gives the old mechanism
back, so the new one dominates it (as the "connect the dots" of Doroshenko, Ghazi, Kamath, Kumar,
Manurangsi 2022). All terms are positive, so rounding errors stay relative and no convolution
needs a Fourier transform; the sum is inflated by more than they can be.

Proof page: ``docs/proofs/accounting.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from sfumato.privacy import gaussian
from sfumato.privacy.privacy_limits import LIMITS
from sfumato.types import Array

if TYPE_CHECKING:
    from sfumato.privacy.cost import PurePart

__all__ = [
    "epsilon_up",
]


_INFLATION = 1 + 1e-6  # relative; the sums below err by less than 1e-7
_ROUNDING = 1e-15  # relative, of a loss
_CANCELLATION = 1e-14  # of Phi(-a): what the difference of two tails may lose


def epsilon_up(
    mu_squared: Fraction, pure: Mapping[PurePart, int], delta: Fraction, ceiling: Fraction
) -> Fraction:
    """Return the smallest epsilon on a fine public grid that the losses can prove.

    It is at most ``ceiling``, and equals it when the parts are too many or too extreme for doubles.
    """
    spread = sum((part.epsilon * count for part, count in pure.items()), Fraction(0))
    if (
        not Fraction(1, 10**100) < ceiling < 300
        or delta < Fraction(1, 10**200)
        or spread > 300
        or len(pure) > LIMITS.kinds_of_parts
        or max(pure.values()) > LIMITS.copies_of_a_part
    ):
        return ceiling
    # Powers of two that only grow with the cost: coarser grids nest in finer ones and dominate
    # them, so a larger cost never gets a smaller epsilon.
    step = 2.0 ** (max(_octave(ceiling) - 11, _octave(spread) - 14))
    losses = _Losses(0, np.ones(1))
    for part, count in sorted(pure.items(), key=lambda item: (item[0].epsilon, item[0].steps)):
        losses = losses.compose(_power(part, count, step))
    mu = gaussian.sqrt_up(mu_squared)
    allowed = gaussian.float_down(delta)
    values = step * (losses.first + np.arange(losses.masses.size, dtype=np.float64))

    def fits(epsilon: float) -> bool:
        deltas = _gaussian_deltas(epsilon - values, mu)
        return float(losses.masses @ deltas) * _INFLATION <= allowed

    unit = step * 2.0**-20
    units = _minimum(lambda k: fits(k * unit), math.floor(ceiling / Fraction(unit)))
    return ceiling if units is None else Fraction(units) * Fraction(unit)


@dataclass(frozen=True, slots=True)
class _Losses:
    """Probabilities of the losses ``step * (first + i)`` under the first neighbour."""

    first: int
    masses: Array

    def compose(self, other: _Losses) -> _Losses:
        """The loss of both together: losses add (independent parts of one composition)."""
        few, many = sorted((self.masses, other.masses), key=np.count_nonzero)
        (places,) = np.nonzero(few)
        if places.size > 256:
            return _Losses(self.first + other.first, np.convolve(few, many))
        out = np.zeros(few.size + many.size - 1)
        for place in places:
            out[place : place + many.size] += few[place] * many
        return _Losses(self.first + other.first, out)


def _power(part: PurePart, count: int, step: float) -> _Losses:
    """The loss of ``count`` copies of one pure part."""
    if part.steps == 1:  # a binomial number of losses -epsilon among +epsilon
        return _on_grid(*_coins(gaussian.float_up(part.epsilon), count), step)
    base, result = _on_grid(*_walk(part), step), _Losses(0, np.ones(1))
    while count:
        if count & 1:
            result = result.compose(base)
        count >>= 1
        if count:
            base = base.compose(base)
    return result


def _coins(epsilon: float, count: int) -> tuple[Array, Array]:
    """Losses and probabilities of ``count`` randomized responses."""
    from scipy.special import gammaln

    lost = np.arange(count + 1, dtype=np.float64)
    log_choose = gammaln(count + 1) - gammaln(lost + 1) - gammaln(count - lost + 1)
    log_masses = log_choose - lost * epsilon - count * math.log1p(math.exp(-epsilon))
    return epsilon * (count - 2 * lost), np.exp(log_masses)


def _walk(part: PurePart) -> tuple[Array, Array]:
    """Losses and probabilities of the discrete Laplace mechanism that moves by ``steps``."""
    steps, rate = _coarser(part)
    ratio = math.exp(-rate)  # of neighbouring probabilities
    moved = np.arange(steps + 1, dtype=np.float64)
    masses = np.exp(-rate * moved) / (1 + ratio)
    masses[1:-1] *= -math.expm1(-rate)
    return rate * (steps - 2 * moved), masses


def _coarser(part: PurePart) -> tuple[int, float]:
    """Join unit steps in groups: fewer, larger steps cover the path and promise less."""
    minimum = -(-part.steps // LIMITS.steps_of_a_part)
    size = min(range(minimum, minimum + 64), key=lambda s: (-(-part.steps // s) * s, s))
    return -(-part.steps // size), gaussian.float_up(part.epsilon * size / part.steps)


def _on_grid(losses: Array, masses: Array, step: float) -> _Losses:
    """Split each loss between its two grid points, keeping its mass under both neighbours."""
    losses = losses + _ROUNDING * np.abs(losses)  # a product rounded down must not hide a loss
    below = np.floor(losses / step)
    raised = masses * np.expm1(below * step - losses) / math.expm1(-step)
    raised = np.clip(raised, 0.0, masses)
    place = below.astype(np.int64)
    first = int(place.min())
    out = np.zeros(int(place.max()) - first + 2)
    np.add.at(out, place - first, masses - raised)
    np.add.at(out, place - first + 1, raised)
    return _Losses(first, out)


def _gaussian_deltas(epsilon: Array, mu: float) -> Array:
    """``delta(epsilon; mu)`` for any real epsilon, from above."""
    if mu == 0:
        return np.where(epsilon < 0, -np.expm1(np.minimum(epsilon, 0.0)), 0.0)
    from scipy.special import erfcx, log_ndtr, ndtr

    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    out = np.empty_like(a)
    left = a <= 0
    tail = ndtr(-a[left])
    lost = np.exp(np.minimum(epsilon[left] + log_ndtr(-b[left]), 0.0))
    out[left] = tail - lost + _CANCELLATION * tail
    # phi(a) = e^epsilon phi(b), so both tails share a factor: Mills ratios subtract safely.
    x, y = a[~left], b[~left]
    ratio = erfcx(x / math.sqrt(2))
    gap = ratio - erfcx(y / math.sqrt(2)) + _CANCELLATION * ratio
    out[~left] = np.exp(-x * x / 2) / 2 * gap
    return np.clip(out, 0.0, 1.0)


def _minimum(holds: Callable[[int], bool], last: int) -> int | None:
    """Smallest k in [0, last] with ``holds(k)`` (false, then true); None if there is none."""
    if not holds(last):
        return None
    low, high = -1, last
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def _octave(value: Fraction) -> int:
    """floor(log2(value))."""
    estimate = value.numerator.bit_length() - value.denominator.bit_length()
    return estimate if Fraction(2) ** estimate <= value else estimate - 1
