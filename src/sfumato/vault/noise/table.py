# SPDX-License-Identifier: Apache-2.0
"""Piecewise polynomials for g with a proven error: what the float filter of `inversion` looks up.

A uniform is known by 53 bits, v <= 2^53 U < v + 1. Every octave [2^e, 2^(e+1)) of v is cut into 32
rows; on a row g(2^-53 (v + 1/2)) is a polynomial of degree 7 in t, an exact float made of the low
47 bits of v's significand. Coefficients and remainders come from ball arithmetic; the rounding of
Horner's rule is bounded as in Higham 2002, "Accuracy and stability of numerical algorithms",
section 5.1. The derivation is in `docs/proofs/rounded-gaussian.md`. A table is built once per
process and law (about 0.1 s) and holds no scale, so it serves every scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.balls import precision
from sfumato.vault.noise.laws import Law

if TYPE_CHECKING:
    from flint import arb

__all__ = ["BITS", "LOW_BITS", "ROUNDOFF", "Table", "certified_table"]

BITS = 53
"""Bits of the uniform that a draw looks at first: the most that a float holds exactly."""
ORDER = 7
OCTAVES = 32
ROWS_LOG2 = 5
LOW_BITS = 52 - ROWS_LOG2
"""Low bits of a float's significand that place a number within its row."""
REACH = 2.0 ** (LOW_BITS - 1)
"""The largest |t| of a row."""
ROUNDOFF = 2.0**-53
_PRECISION = 96
# Sums and products of non-negative floats below: under 2^7 operations, each with relative error at
# most 2^-53, so the true value is within a factor 1 + 2^-40 of the computed one.
_OUTWARD = 1 + 2.0**-40


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of coefficients c_0 ... c_7 and a bound on |Horner(t) - g(U)| for every U of the row.

    Row 0 stands for all U < 2^-32: its error is infinite, so nothing is ever decided there.
    """

    coefficients: NDArray[np.float64]
    error: NDArray[np.float64]
    first_index: int
    """Leading 17 bits of the float 2^(53 - 32), the first v with a row, less one."""


@cache
def certified_table(law: Law) -> Table:
    """Build the table of `law`; |Horner(t) - g(U)| + 8 u sup|g| <= error on every row, proven."""
    from flint import arb

    rows = 1 << ROWS_LOG2
    coefficients = np.zeros((ORDER + 1, 1 + OCTAVES * rows))
    error = np.full(1 + OCTAVES * rows, np.inf)
    largest = np.zeros_like(error)
    with precision(_PRECISION):
        two = arb(2)
        place = 1
        for exponent in range(BITS - OCTAVES, BITS):
            unit_of_t = two ** (exponent - 52 - BITS)
            half_step = two ** (51 - exponent)  # half a unit of v, in units of t
            for row in range(rows, 2 * rows):
                left = (two**-ROWS_LOG2 * row) * two ** (exponent - BITS)
                middle = left + unit_of_t * (REACH + half_step)
                centre = law.taylor(middle, unit_of_t, ORDER)
                edge = law.taylor(left, unit_of_t, ORDER + 1)
                floats = [float(ball) for ball in centre]
                coefficients[:, place] = floats
                error[place] = _analytic_error(centre, floats, edge, half_step)
                largest[place] = _float_above(edge[0])
                place += 1
    with np.errstate(invalid="ignore"):  # row 0: infinity stays infinity
        error += _horner_error(coefficients)
        error += 8 * ROUNDOFF * (largest + error)
        error *= _OUTWARD
    leading = int(np.float64(2.0 ** (BITS - OCTAVES)).view(np.int64)) >> LOW_BITS
    coefficients.flags.writeable = error.flags.writeable = False
    return Table(coefficients, error, leading - 1)


def _analytic_error(centre: list[arb], floats: list[float], edge: list[arb], half: arb) -> float:
    """Taylor's remainder + the rounding of the coefficients + the unknown bits of U below v.

    The derivatives of g are largest at the row's left edge (see `Law`), so Lagrange's remainder is
    at most |edge_8| reach^8, and g moves by at most |edge_1| times half a unit of v.
    """
    from flint import arb

    reach = arb(REACH)
    total = abs(edge[-1]) * reach ** (ORDER + 1) + abs(edge[1]) * half
    power = arb(1)
    for ball, number in zip(centre, floats, strict=True):
        total += abs(ball - arb(number)) * power
        power *= reach
    return _float_above(total)


def _float_above(ball: arb) -> float:
    """A float that is at least every number of the ball."""
    from flint import arb

    number = float(ball.upper())
    while not arb(number) >= ball:
        number = float(np.nextafter(number, np.inf))
    return number


def _horner_error(coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bound the rounding of r <- r t + c_k over |t| <= reach, with or without fused operations."""
    bound = np.abs(coefficients[-1])
    error = np.zeros_like(bound)
    for row in coefficients[-2::-1]:
        product = REACH * bound * _OUTWARD
        bound = (product + np.abs(row)) * _OUTWARD
        error = REACH * error + ROUNDOFF * (product + bound)
    return np.asarray(error * _OUTWARD)
