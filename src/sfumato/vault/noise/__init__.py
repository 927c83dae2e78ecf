# SPDX-License-Identifier: Apache-2.0
"""Exact noise in integers: discrete Laplace, geometric, and the Gaussian rounded to the grid.

The vault adds these to exact integers on a public grid; no float stands between data and noise
(Mironov 2012, "On significance of the least significant bits for differential privacy").
All are drawn by inversion: one uniform word gives sign and magnitude, a float filter with a proven
error band decides nearly all draws, ball arithmetic the rest (`inversion`, `table`, `laws`).
So a draw takes one word and the same float operations whatever its value; only a magnitude that
lies within the band of an integer step, or a tail of probability 2^-32, takes the slow way.

Papers: Canonne, Kamath, Steinke 2020, "The discrete Gaussian for differential privacy" (discrete
Laplace); Dong, Roth, Su 2022, "Gaussian differential privacy". Proofs:
`docs/proofs/discrete-laplace.md`, `docs/proofs/rounded-gaussian.md`.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.randomness import WordSource
from sfumato.vault.noise.inversion import draw
from sfumato.vault.noise.laws import EXPONENTIAL, GAUSSIAN, LAPLACE
from sfumato.vault.noise.table import certified_table

__all__ = [
    "LARGEST_SCALE",
    "SMALLEST_SCALE",
    "discrete_laplace",
    "geometric",
    "rounded_gaussian",
]

SMALLEST_SCALE = Fraction(1, 1 << 10)
LARGEST_SCALE = Fraction(1 << 40)


def discrete_laplace(scale: Fraction, size: int, words: WordSource) -> NDArray[np.int64]:
    """Draw `size` independent integers with P(z) = tanh(1 / (2 scale)) exp(-|z| / scale), exactly.

    Privacy: added to integers that move by at most D in L1, each draw independent, the sum is
    (D / scale)-DP: the geometric mechanism of Ghosh, Roughgarden, Sundararajan 2012. Proof:
    docs/proofs/discrete-laplace.md, Theorem 2.
    Neighbours: any; the caller states the L1 sensitivity that goes with them.
    Error: variance 2 q / (1 - q)^2 with q = exp(-1 / scale), `privacy.noise_laws.laplace_variance`.
    """
    _check(scale, size)
    return draw(LAPLACE, certified_table(LAPLACE), Fraction(scale), size, words)


def geometric(scale: Fraction, size: int, words: WordSource) -> NDArray[np.int64]:
    """Draw `size` independent integers z >= 0 with P(N >= z) = exp(-z / scale), exactly.

    Privacy: none for numbers, for it is one-sided: x + N is never below x. It serves comparisons,
    whose tail it moves by a factor exp(1 / scale) a step: docs/proofs/discrete-laplace.md,
    Theorem 3; docs/proofs/sparse-vector.md, Lemma 1.
    Neighbours: none are involved; no data comes here.
    """
    _check(scale, size)
    return np.abs(draw(EXPONENTIAL, certified_table(EXPONENTIAL), Fraction(scale), size, words))


def rounded_gaussian(sigma: Fraction, size: int, words: WordSource) -> NDArray[np.int64]:
    """Draw `size` independent integers round(sigma Z), Z a real standard normal, exactly.

    Privacy: added to integers that move by at most D in L2, the sum is the rounding of the sum with
    real noise, hence mu-GDP with mu = D / sigma: Dong, Roth, Su 2022 (the Gaussian mechanism, and
    closure of f-DP under post-processing). Proof: docs/proofs/rounded-gaussian.md, Theorem 2.
    Neighbours: any; the caller states the L2 sensitivity that goes with them.
    Error: variance sigma^2 + 1/12 to exponentially small terms (`gaussian_variance`).
    """
    _check(sigma, size)
    return draw(GAUSSIAN, certified_table(GAUSSIAN), Fraction(sigma), size, words)


def _check(scale: Fraction, size: int) -> None:
    # A float scale is refused: what is accounted and what is drawn must be the same number.
    if not isinstance(scale, (Fraction, int)):
        raise PlanError(
            f"noise scale {scale!r} is a {type(scale).__name__}; give an exact fractions.Fraction"
        )
    if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
        raise PlanError(
            f"noise scale {scale} grid steps is outside 2^-10 to 2^40; choose another grid"
        )
    if size < 0:
        raise PlanError(f"cannot draw {size} values: the number must be 0 or more")
