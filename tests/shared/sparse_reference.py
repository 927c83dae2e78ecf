# SPDX-License-Identifier: Apache-2.0
"""Exact output probabilities of sparse vectors, right and wrong ones, for tests only.

A comparison finds a score with gap g (threshold minus score) above iff ``noise >= g + rho``. With
the discrete Laplace law of ratio q, P(noise >= a) = q^a / (1 + q) for a >= 1; so beyond all gaps an
outcome's probability is a polynomial in q^rho, and the sum over rho ends in geometric series: with
rational ratios everything is a Fraction, with nothing cut off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import prod

import numpy as np
from numpy.typing import NDArray

from sfumato.privacy.sparse_vector import NoiseLaw, SparseLaw

__all__ = [
    "Pattern",
    "above_or_below",
    "law_of_patterns",
    "mass",
    "one_sided_probability",
    "pattern_probability",
    "patterns",
    "survival",
    "tail",
]

Pattern = tuple[bool, ...]


def patterns(length: int, discoveries: int) -> Iterator[Pattern]:
    """All that a sparse vector can say about so many scores: it ends with its last discovery."""

    def grown(said: Pattern) -> Iterator[Pattern]:
        if len(said) == length or sum(said) == discoveries:
            yield said
            return
        for outcome in (False, True):
            yield from grown((*said, outcome))

    yield from grown(())


def tail(ratio: Fraction, at: int) -> Fraction:
    """P(N >= at) of the discrete Laplace law."""
    return ratio**at / (1 + ratio) if at > 0 else 1 - ratio ** (1 - at) / (1 + ratio)


def mass(ratio: Fraction, at: int) -> Fraction:
    """P(N = at)."""
    return (1 - ratio) / (1 + ratio) * ratio ** abs(at)


def above_or_below(ratio: Fraction, gap: int, is_above: bool) -> Fraction:
    """P(N >= gap), or of the contrary."""
    found = tail(ratio, gap)
    return found if is_above else 1 - found


def pattern_probability(
    first: Fraction, second: Fraction, gaps: Sequence[int], said: Pattern
) -> Fraction:
    """sum over rho of P(rho) prod_i P(outcome i | rho), exactly; ratios of threshold and scores."""
    pairs = list(zip(gaps, said, strict=False))
    high = max([1, *(1 - g for g, _ in pairs)])
    low = min([-1, *(-g for g, _ in pairs)])
    middle = sum(
        (
            mass(first, z) * prod(above_or_below(second, g + z, a) for g, a in pairs)
            for z in range(low + 1, high)
        ),
        Fraction(0),
    )
    part = (1 - first) / (1 + first)
    # z >= high: every P(N >= g + z) is second^g / (1 + second) times w, w = second^z.
    upper = _product([_linear(second**g / (1 + second), a) for g, a in pairs])
    # z <= low: every P(N < g + z) is second^(1 - g) / (1 + second) times w, w = second^-z.
    lower = _product([_linear(second ** (1 - g) / (1 + second), not a) for g, a in pairs])
    for series, start in ((upper, high), (lower, -low)):
        for j, c in enumerate(series):
            step = first * second**j
            middle += part * c * step**start / (1 - step)
    return middle


def one_sided_probability(
    first: Fraction, second: Fraction, gaps: Sequence[int], said: Pattern
) -> Fraction:
    """The same for geometric noise on both sides: P(N >= a) = ratio^a for a >= 0, else 1."""
    pairs = list(zip(gaps, said, strict=False))
    high = max([0, *(-g for g, _ in pairs)])

    def outcome(gap: int, is_above: bool) -> Fraction:
        found = second ** max(gap, 0)
        return found if is_above else 1 - found

    total = sum(
        ((1 - first) * first**z * prod(outcome(g + z, a) for g, a in pairs) for z in range(high)),
        Fraction(0),
    )
    for j, c in enumerate(_product([_linear(second**g, a) for g, a in pairs])):
        step = first * second**j
        total += (1 - first) * c * step**high / (1 - step)
    return total


def _linear(slope: Fraction, is_tail: bool) -> list[Fraction]:
    """``slope w`` or ``1 - slope w`` as coefficients."""
    return [Fraction(0), slope] if is_tail else [Fraction(1), -slope]


def _product(factors: list[list[Fraction]]) -> list[Fraction]:
    out = [Fraction(1)]
    for low, high in factors:
        raised = [Fraction(0), *(high * c for c in out)]
        out = [low * c + r for c, r in zip([*out, Fraction(0)], raised, strict=True)]
    return out


def law_of_patterns(
    law: SparseLaw, gaps: Sequence[int], cap: int | None = None
) -> dict[Pattern, float]:
    """The probability of every pattern under any pair of laws, in floats (summed to 1e-15)."""
    far = int(60 * law.threshold.scale) + 60
    z = np.arange(-far, far + 1)
    weight = survival(law.threshold, z) - survival(law.threshold, z + 1)
    out = {}
    for said in patterns(len(gaps), law.discoveries if cap is None else cap):
        chance = weight.copy()
        for g, a in zip(gaps, said, strict=False):
            shown = g + z if law.reach is None else np.minimum(g + z, law.reach)
            above = survival(law.query, shown)
            chance *= above if a else 1 - above
        out[said] = float(chance.sum())
    return out


def survival(law: NoiseLaw, at: NDArray[np.int64]) -> NDArray[np.float64]:
    """P(N >= at) in floats."""
    from scipy.special import erfc

    if law.kind == "gaussian":
        return np.asarray(erfc((at - 0.5) / float(law.scale) / 2**0.5) / 2)
    q = np.exp(-1 / float(law.scale))
    if law.kind == "exponential":
        return np.asarray(q ** np.maximum(at, 0))
    tails = q ** np.where(at > 0, at, 1 - at) / (1 + q)
    return np.asarray(np.where(at > 0, tails, 1 - tails))
