# SPDX-License-Identifier: Apache-2.0
"""Select: exact scores in, the place of a nearly best one out.

Report the place of the largest ``rate * score + Z`` with independent noise Z (`report_noisy_max`,
whatever the law). Gumbel noise makes it the exponential mechanism (McSherry, Talwar 2007,
"Mechanism design via differential privacy"), exponential noise permute-and-flip (McKenna, Sheldon
2020, "Permute-and-flip: a new mechanism for differentially private selection"; equal in law: Ding
et al. 2021, "The permute-and-flip mechanism is identical to report-noisy-max with exponential
noise"). Laplace noise is the report-noisy-max of Dwork, Roth 2014, "The algorithmic foundations of
differential privacy".

Scores are exact integers. Laplace noise is discrete, drawn on the integers, and ties are broken by
words of their own. Other noise is real: a decreasing function of a uniform U that is known by as
many bits as it takes: floats with a proven band decide nearly always, ball arithmetic and further
words the rest, so the place is that of the real noise and ties do not exist. Every choice takes one
word per candidate (Laplace: two), whatever the scores. Proof page: ``docs/proofs/selection.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from sfumato.balls import ball_of, precision
from sfumato.budget.selection import ChoiceNoise
from sfumato.errors import PlanError
from sfumato.randomness import WordSource
from sfumato.vault.noise import discrete_laplace
from sfumato.vault.sensitive import Sensitive

if TYPE_CHECKING:
    from flint import arb

__all__ = ["GREATEST_SCORE", "exponential_mechanism", "permute_and_flip", "report_noisy_max"]

GREATEST_SCORE: Final = 2**60
"""Scores are clamped at plus and minus this: a clamped score moves by at most what it did."""

_BITS = 53
_SPARE_BITS = np.uint64(64 - _BITS)
# The float value errs by a few units in the last place of its two terms: below 2^-40 of them.
_BAND = 2.0**-40

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Noise:
    """A real law as a decreasing function of a uniform: in floats, and in ball arithmetic."""

    rough: Callable[[Floats], Floats]
    exact: Callable[[arb], arb]


def _gumbel(u: Floats) -> Floats:
    """``-log(-log(1 - u))``: P(Z <= z) = exp(-exp(-z))."""
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(-np.log1p(-u)))


def _exponential(u: Floats) -> Floats:
    """``-log u``: P(Z > z) = exp(-z)."""
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(u))


_GUMBEL = _Noise(_gumbel, lambda u: -(-(-u).log1p()).log())
_EXPONENTIAL = _Noise(_exponential, lambda u: -u.log())


def report_noisy_max(
    scores: Sensitive[Integers], rate: Fraction, words: WordSource, noise: ChoiceNoise
) -> int:
    """Choose the place of the largest ``rate * scores[i] + Z_i`` with noise of this law.

    ``"gumbel"`` is the exponential mechanism, ``"exponential"`` permute-and-flip, ``"laplace"`` has
    the discrete Laplace law of scale ``1 / rate`` on the scores; of equal noisy scores each is then
    as likely (up to 2^-64).

    Privacy: ``budget.selection.choice_cost(noise, rate, D)``: docs/proofs/selection.md, Theorems 3,
    4 and 5; half of the range or epsilon for monotone scores, Theorem 6.
    Neighbours: any; the caller states D, the most that one score moves between neighbours.
    Error: exponential noise is never worse than Gumbel noise in expectation (McKenna, Sheldon
    2020), which is cheaper where budgets are not pure.
    """
    if noise == "gumbel":
        return exponential_mechanism(scores, rate, words)[0]
    if noise == "exponential":
        return permute_and_flip(scores, rate, words)
    if noise != "laplace":
        raise PlanError(f'noise must be "gumbel", "exponential" or "laplace", got {noise!r}')
    exact = _clamped(scores, rate, 1)
    drawn = discrete_laplace(1 / Fraction(rate), exact.size, words)
    # |noise| is below 2^62 but for a probability of exp(-2^22); int64 holds the sum.
    noisy = exact + np.clip(drawn, -(2**62), 2**62)
    order = words.words(exact.size)
    best = np.flatnonzero(noisy == noisy.max())
    return int(best[np.argmax(order[best])])


def exponential_mechanism(
    scores: Sensitive[Integers], rate: Fraction, words: WordSource, count: int = 1
) -> tuple[int, ...]:
    """Choose place i with probability ``exp(rate * scores[i]) / sum_j exp(rate * scores[j])``.

    With ``count`` above 1 that many different places are chosen, one after the other, each among
    those that are left (one draw of the noise serves all: docs/proofs/selection.md, Theorem 1).

    Privacy: each choice has bounded range ``eta = 2 rate D``, hence is eta-DP, and costs
    ``budget.selection.selection_cost(eta)``: docs/proofs/selection.md, Theorems 2 and 3.
    Neighbours: any; the caller states D, the most that one score moves between neighbours.
    Error: with k places, a chosen score is within ``(log k + t) / rate`` of the best with
    probability at least ``1 - e^-t`` (McSherry, Talwar 2007).
    """
    return _noisy_largest(scores, rate, words, count, _GUMBEL)


def permute_and_flip(scores: Sensitive[Integers], rate: Fraction, words: WordSource) -> int:
    """Choose the place of the largest ``rate * scores[i] + Z_i``, Z standard exponential.

    Privacy: ``2 rate D``-DP (McKenna, Sheldon 2020; docs/proofs/selection.md, Theorem 4). Its
    losses may span more than that, so it costs ``Cost.pure(2 rate D)``.
    Neighbours: any; the caller states D, the most that one score moves between neighbours.
    Error: in expectation never worse than the exponential mechanism's (McKenna, Sheldon 2020).
    """
    return _noisy_largest(scores, rate, words, 1, _EXPONENTIAL)[0]


def _noisy_largest(
    scores: Sensitive[Integers], rate: Fraction, words: WordSource, count: int, noise: _Noise
) -> tuple[int, ...]:
    race = _Race(_clamped(scores, rate, count), Fraction(rate), noise, words)
    return tuple(race.next_place() for _ in range(count))


class _Race:
    """Noisy scores known by enclosures, from which the largest is taken again and again."""

    def __init__(
        self,
        scores: Integers,
        rate: Fraction,
        noise: _Noise,
        words: WordSource,
        band: float = _BAND,
    ) -> None:
        self._scores, self._rate, self._noise, self._words = scores, rate, noise, words
        self._leading = leading = words.words(scores.size) >> _SPARE_BITS
        # Places looked at in ball arithmetic: their leading bits, and how many.
        self._uniforms: dict[int, tuple[int, int]] = {}
        # Noise decreases in u, so the two ends of [v, v + 1] / 2^53 enclose it.
        u = leading.astype(np.float64) * 2.0**-_BITS
        base = float(rate) * (scores - scores.max()).astype(np.float64)
        low, high = noise.rough(u + 2.0**-_BITS), noise.rough(u)
        wide = band * (1 + np.abs(base))
        self._low = base + low - wide - band * np.abs(low)
        self._high = base + high + wide + band * np.abs(high)

    def next_place(self) -> int:
        """Take the place of the largest noisy score among those not yet taken."""
        contenders = np.flatnonzero(self._high >= self._low.max())
        place = int(contenders[0]) if contenders.size == 1 else self._decide(contenders.tolist())
        self._low[place], self._high[place] = -np.inf, np.nan  # no contender any more
        return place

    def _decide(self, contenders: list[int]) -> int:
        """Extend the uniforms of all contenders by a word until one of them is the largest."""
        while True:
            balls = {i: self._enclosure(i) for i in contenders}
            best = contenders[0]
            for i in contenders:
                best = i if balls[i][0] > balls[best][0] else best
            contenders = [i for i in contenders if not balls[i][1] < balls[best][0]]
            if len(contenders) == 1:
                return contenders[0]
            for i in contenders:
                leading, bits = self._uniform(i)
                more = int(self._words.words(1)[0])
                self._uniforms[i] = ((leading << 64) | more, bits + 64)

    def _uniform(self, place: int) -> tuple[int, int]:
        return self._uniforms.get(place, (int(self._leading[place]), _BITS))

    def _enclosure(self, place: int) -> tuple[arb, arb]:
        """Balls around both ends of what is known of a noisy score; an unknown end is infinite."""
        from flint import arb

        leading, bits = self._uniform(place)
        with precision(bits + 192):
            base = ball_of(self._rate * (int(self._scores[place]) - int(self._scores.max())))
            unit = arb(2) ** -bits
            low, high = arb("-inf"), arb("inf")
            if leading + 1 < 1 << bits:
                low = base + self._noise.exact((leading + 1) * unit)
            if leading > 0:
                high = base + self._noise.exact(leading * unit)
            return low, high


def _clamped(scores: Sensitive[Integers], rate: Fraction, count: int) -> Integers:
    exact = np.clip(np.asarray(scores.reveal()), -GREATEST_SCORE, GREATEST_SCORE)
    # A float rate is refused: what is accounted and what is drawn must be the same number.
    if not isinstance(rate, Fraction | int) or not 0 < rate <= 2**20:
        raise PlanError(f"a rate of choice must be an exact number from 0 to 2^20, got {rate!r}")
    if exact.ndim != 1 or not 1 <= count <= exact.size:
        raise PlanError(
            f"cannot choose {count} of {exact.size} candidates; choose 1 to {exact.size}"
        )
    return exact.astype(np.int64)
