# SPDX-License-Identifier: Apache-2.0
"""Draw |N| = floor(scale g(U) + offset) with a fair sign, exactly, one word a draw.

Word by word: the lowest bit is the sign, the top 53 bits are the leading bits v of U. The filter
computes a float y and a half-width d with |y - (scale g(U) + offset)| <= d for every U that begins
with v. Where y - d and y + d have the same floor, that floor is |N|. Elsewhere ball arithmetic
decides, and U gets 64 more bits from the word source as often as it takes. The value of a draw is a
function of U alone, so the filter changes the time taken and nothing else.
Proofs: `docs/proofs/rounded-gaussian.md`, `docs/proofs/discrete-laplace.md`.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sfumato.balls import ball_of, precision
from sfumato.errors import PlanError
from sfumato.randomness import WordSource
from sfumato.vault.noise.laws import Law
from sfumato.vault.noise.table import BITS, LOW_BITS, REACH, ROUNDOFF, Table

__all__ = ["decide", "draw", "filtered"]

_BLOCK = 1 << 14  # words at a time: the working arrays stay in the processor's cache
_LOW_MASK = (1 << LOW_BITS) - 1
_SPARE_BITS = np.uint64(64 - BITS)


def draw(
    law: Law, table: Table, scale: Fraction, size: int, words: WordSource
) -> NDArray[np.int64]:
    """Draw `size` independent N: fair sign times floor(scale g(U) + offset(scale)).

    Privacy: noise only; the mechanism's claim is stated where the law is named.
    Neighbours: none are involved; no data comes here.
    """
    offset = _float_offset(law, scale)
    drawn = np.empty(size, dtype=np.int64)
    for start in range(0, size, _BLOCK):
        block = words.words(min(_BLOCK, size - start))
        leading = (block >> _SPARE_BITS).astype(np.int64)
        magnitude, undecided = filtered(table, float(scale), offset, leading)
        for place in undecided:
            exact = decide(law, scale, int(leading[place]), BITS, words)
            if exact >= 1 << 63:  # probability below exp(-2^22)
                raise PlanError(
                    f"a {law.name} draw of scale {scale} left the 64-bit integers; draw again"
                )
            magnitude[place] = exact
        negative = -(block & np.uint64(1)).astype(np.int64)
        drawn[start : start + block.size] = (magnitude ^ negative) - negative
    return drawn


def filtered(
    table: Table, scale: float, offset: float, leading: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Give floor(scale g(U) + offset) where all U in [v, v + 1] / 2^53 share it; name other places.

    At the other places the magnitude is 0 and must be replaced by `decide`.
    """
    bits = leading.astype(np.float64).view(np.int64)  # exact: v < 2^53
    row = bits >> LOW_BITS
    row -= table.first_index
    t = (bits & _LOW_MASK).astype(np.float64)
    t -= REACH
    y = table.coefficients[-1].take(row, mode="clip")  # v = 0 and the far tail clip to row 0
    for coefficient in table.coefficients[-2::-1]:
        y *= t
        y += coefficient.take(row, mode="clip")
    y *= scale
    y += offset
    band = table.error.take(row, mode="clip")
    band *= scale
    band += 8 * ROUNDOFF * offset
    above = np.floor(y + band)
    y -= band
    below = np.floor(y, out=y)
    undecided = np.flatnonzero(below != above)
    below[undecided] = 0.0
    return below.astype(np.int64), undecided


def decide(law: Law, scale: Fraction, leading: int, bits: int, words: WordSource) -> int:
    """Give floor(scale g(U) + offset), U a real uniform on [leading, leading + 1] / 2^bits.

    g is decreasing, so the two ends of the interval enclose the value; as long as their balls do
    not share one floor, U is extended by the next word of the source.
    """
    from flint import arb

    while True:
        if leading > 0:
            with precision(leading.bit_length() + 128):
                factor, offset = ball_of(scale), law.offset(scale)
                unit = arb(2) ** -bits
                least = (factor * law.value((leading + 1) * unit) + offset).floor().unique_fmpz()
                most = (factor * law.value(leading * unit) + offset).floor().unique_fmpz()
            if least is not None and least == most:
                return int(least)
        leading = (leading << 64) | int(words.words(1)[0])
        bits += 64


@lru_cache(maxsize=256)
def _float_offset(law: Law, scale: Fraction) -> float:
    """Round the offset to a float of relative error at most 2 u, checked in ball arithmetic."""
    from flint import arb

    with precision(128):
        offset = law.offset(scale)
        number = float(offset)
        if not abs(offset - arb(number)) <= 2 * ROUNDOFF * arb(number):  # pragma: no cover
            raise PlanError(f"the offset of scale {scale} could not be rounded to a float")
    return number
