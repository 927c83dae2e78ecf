# SPDX-License-Identifier: Apache-2.0
"""Noise drawn exactly in integers: discrete Laplace, geometric, the Gaussian rounded to the grid.

`discrete_laplace`, `geometric` and `rounded_gaussian` return such draws, `block_noise` those of the
law that a plan states for a block. The vault adds them to exact integers on a public grid; no float
stands between data and noise (Mironov 2012, "On significance of the least significant bits for
differential privacy"). No data comes here.

All are drawn by inversion: one uniform word gives sign and magnitude, a float filter with a proven
error band decides nearly all draws, ball arithmetic the rest. So a draw takes one word and the same
float operations whatever its value; only a magnitude that lies within the band of an integer step,
or a tail of probability 2^-32, takes the slow way. Three parts: the laws as inversions (`Law`),
polynomials for them with a proven error (`InversionTable`), and the draws (`draw`).

Papers: Canonne, Kamath, Steinke 2020, "The discrete Gaussian for differential privacy" (discrete
Laplace); Dong, Roth, Su 2022, "Gaussian differential privacy". Proofs:
`docs/proofs/discrete-laplace.md`, `docs/proofs/rounded-gaussian.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.privacy.balls import ball_of, precision
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.random import WordSource
from sfumato.vault.vault_limits import LIMITS

if TYPE_CHECKING:
    from flint import arb

__all__ = [
    "BITS",
    "EXPONENTIAL",
    "GAUSSIAN",
    "LAPLACE",
    "LOW_BITS",
    "ROUNDOFF",
    "SCALE_MAXIMUM",
    "InversionTable",
    "Law",
    "block_noise",
    "certified_table",
    "decide",
    "discrete_laplace",
    "draw",
    "filtered",
    "geometric",
    "rounded_gaussian",
]

# The proof of exact draws relies on these: grid steps of the scale of noise. The minimum is for the
# error bounds of the tables; below the maximum a draw beyond 64 bits has a probability below
# exp(-2^22).
SCALE_MINIMUM: Final = Fraction(1, 1 << 10)
SCALE_MAXIMUM: Final = Fraction(1 << 40)


# The laws of noise as inversions


@dataclass(frozen=True, slots=True)
class Law:
    """A symmetric law on the integers with |N| = floor(scale * g(U) + offset(scale)).

    U is uniform on (0, 1). With a fair sign N is the discrete Laplace or the rounded Gaussian;
    without one, |N| of the exponential law is geometric (Canonne, Kamath, Steinke 2020). A law
    states g, its Taylor coefficients and the offset in ball arithmetic (python-flint);
    `certified_table` makes floats of them with a proven error.

    On (0, 1] g is >= 0 and decreasing, and every |d^k g / du^k|, k >= 1, is decreasing: both proof
    pages show it, and the error bound of `certified_table` rests on it.
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
    """Coefficients of x(t) = g(u + step t) from x' = -step / (2 phi(x)) and x'' = x (x')^2.

    The differential equation of the normal quantile: Steinbrecher, Shaw 2008, "Quantile mechanics".
    """
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


# Polynomials for g with a proven error


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
class InversionTable:
    """Rows of coefficients c_0 ... c_7 and a bound on |Horner(t) - g(U)| for every U of the row.

    A uniform is known by 53 bits, v <= 2^53 U < v + 1. Every octave [2^e, 2^(e+1)) of v is cut into
    32 rows; on a row g(2^-53 (v + 1/2)) is a polynomial of degree 7 in t, an exact float made of
    the low 47 bits of v's significand. The derivation is in `docs/proofs/rounded-gaussian.md`.
    Row 0 stands for all U < 2^-32: its error is infinite, so nothing is ever decided there.
    """

    coefficients: NDArray[np.float64]
    error: NDArray[np.float64]
    first_index: int
    """Leading 17 bits of the float 2^(53 - 32), the first v with a row, less one."""


@cache
def certified_table(law: Law) -> InversionTable:
    """The table of a law: |Horner(t) - g(U)| + 8 u sup|g| <= error on every row, proven.

    Coefficients and remainders come from ball arithmetic. Built once per process and law (about
    0.1 s); it holds no scale, so it serves every scale.
    """
    from flint import arb

    rows = 1 << ROWS_LOG2
    coefficients = np.zeros((ORDER + 1, 1 + OCTAVES * rows))
    error = np.full(1 + OCTAVES * rows, np.inf)
    supremum = np.zeros_like(error)
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
                supremum[place] = _float_above(edge[0])
                place += 1
    with np.errstate(invalid="ignore"):  # row 0: infinity stays infinity
        error += _horner_error(coefficients)
        error += 8 * ROUNDOFF * (supremum + error)
        error *= _OUTWARD
    leading = int(np.float64(2.0 ** (BITS - OCTAVES)).view(np.int64)) >> LOW_BITS
    coefficients.flags.writeable = error.flags.writeable = False
    return InversionTable(coefficients, error, leading - 1)


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
    """A bound on the rounding of r <- r t + c_k over |t| <= reach, fused operations or not.

    As in Higham 2002, "Accuracy and stability of numerical algorithms", section 5.1.
    """
    bound = np.abs(coefficients[-1])
    error = np.zeros_like(bound)
    for row in coefficients[-2::-1]:
        product = REACH * bound * _OUTWARD
        bound = (product + np.abs(row)) * _OUTWARD
        error = REACH * error + ROUNDOFF * (product + bound)
    return np.asarray(error * _OUTWARD)


# Draws

_LOW_MASK = (1 << LOW_BITS) - 1
_SPARE_BITS = np.uint64(64 - BITS)


def draw(
    law: Law, table: InversionTable, scale: Fraction, size: int, random: WordSource
) -> NDArray[np.int64]:
    """`size` independent N: fair sign times floor(scale g(U) + offset(scale)), one word each.

    The lowest bit of a word is the sign, its top 53 bits are the leading bits v of U. `filtered`
    computes a float y and a half-width d with |y - (scale g(U) + offset)| <= d for every U that
    begins with v. Where y - d and y + d have the same floor, that floor is |N|. Elsewhere `decide`
    does, in ball arithmetic, and U gets 64 more bits from the source as often as it takes. The
    value of a draw is a function of U alone, so the filter changes the time taken and nothing else.

    Privacy: noise only; the mechanism's claim is stated where the law is named.
    Neighbours: none are involved; no data comes here.
    """
    offset = _float_offset(law, scale)
    drawn = np.empty(size, dtype=np.int64)
    for start in range(0, size, LIMITS.draws_at_once):
        block = random.words(min(LIMITS.draws_at_once, size - start))
        leading = (block >> _SPARE_BITS).astype(np.int64)
        magnitude, undecided = filtered(table, float(scale), offset, leading)
        for place in undecided:
            exact = decide(law, scale, int(leading[place]), BITS, random)
            if exact >= 1 << 63:  # probability below exp(-2^22)
                raise PlanError(
                    f"a {law.name} draw of scale {scale} left the 64-bit integers; draw again"
                )
            magnitude[place] = exact
        negative = -(block & np.uint64(1)).astype(np.int64)
        drawn[start : start + block.size] = (magnitude ^ negative) - negative
    return drawn


def filtered(
    table: InversionTable, scale: float, offset: float, leading: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """floor(scale g(U) + offset) where all U in [v, v + 1] / 2^53 share it, and the other places.

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


def decide(law: Law, scale: Fraction, leading: int, bits: int, random: WordSource) -> int:
    """floor(scale g(U) + offset), U a real uniform on [leading, leading + 1] / 2^bits.

    g is decreasing, so the two ends of the interval enclose the value; as long as their balls do
    not share one floor, U is extended by the next word of the source.
    """
    from flint import arb

    while True:
        if leading > 0:
            with precision(leading.bit_length() + 128):
                factor, offset = ball_of(scale), law.offset(scale)
                unit = arb(2) ** -bits
                low = (factor * law.value((leading + 1) * unit) + offset).floor().unique_fmpz()
                high = (factor * law.value(leading * unit) + offset).floor().unique_fmpz()
            if low is not None and low == high:
                return int(low)
        leading = (leading << 64) | int(random.words(1)[0])
        bits += 64


@lru_cache(maxsize=256)
def _float_offset(law: Law, scale: Fraction) -> float:
    """The offset as a float of relative error at most 2 u, checked in ball arithmetic."""
    from flint import arb

    with precision(128):
        offset = law.offset(scale)
        number = float(offset)
        if not abs(offset - arb(number)) <= 2 * ROUNDOFF * arb(number):  # pragma: no cover
            raise PlanError(f"the offset of scale {scale} could not be rounded to a float")
    return number


def block_noise(law: BlockNoise, size: int, random: WordSource) -> NDArray[np.int64]:
    """`size` draws of the law of a block, in steps of its grid; the law says what they cost."""
    drawn = rounded_gaussian if law.noise == "gaussian" else discrete_laplace
    return drawn(law.steps, size, random)


def discrete_laplace(scale: Fraction, size: int, random: WordSource) -> NDArray[np.int64]:
    """Draw `size` independent integers with P(z) = tanh(1 / (2 scale)) exp(-|z| / scale), exactly.

    Privacy: added to integers that move by at most D in L1, each draw independent, the sum is
    (D / scale)-DP: the geometric mechanism of Ghosh, Roughgarden, Sundararajan 2012. Proof:
    docs/proofs/discrete-laplace.md, Theorem 2.
    Neighbours: any; the caller states the L1 sensitivity that goes with them.
    Error: variance 2 q / (1 - q)^2 with q = exp(-1 / scale), `privacy.noise_laws.laplace_variance`.

    Args:
        scale: The scale of the law.
        size: How many integers are drawn.
        random: A source of random words.

    Returns:
        The integers.
    """
    _check(scale, size)
    return draw(LAPLACE, certified_table(LAPLACE), Fraction(scale), size, random)


def geometric(scale: Fraction, size: int, random: WordSource) -> NDArray[np.int64]:
    """Draw `size` independent integers z >= 0 with P(N >= z) = exp(-z / scale), exactly.

    Privacy: none for numbers, for it is one-sided: x + N is never below x. It serves comparisons,
    whose tail it moves by a factor exp(1 / scale) a step: docs/proofs/discrete-laplace.md,
    Theorem 3; docs/proofs/sparse-vector.md, Lemma 1.
    Neighbours: none are involved; no data comes here.
    """
    _check(scale, size)
    return np.abs(draw(EXPONENTIAL, certified_table(EXPONENTIAL), Fraction(scale), size, random))


def rounded_gaussian(sigma: Fraction, size: int, random: WordSource) -> NDArray[np.int64]:
    """Draw `size` independent integers round(sigma Z), Z a real standard normal, exactly.

    Privacy: added to integers that move by at most D in L2, the sum is the rounding of the sum with
    real noise, hence mu-GDP with mu = D / sigma: Dong, Roth, Su 2022 (the Gaussian mechanism, and
    closure of f-DP under post-processing). Proof: docs/proofs/rounded-gaussian.md, Theorem 2.
    Neighbours: any; the caller states the L2 sensitivity that goes with them.
    Error: variance sigma^2 + 1/12 to exponentially small terms (`gaussian_variance`).

    Args:
        sigma: The standard deviation.
        size: How many integers are drawn.
        random: A source of random words.

    Returns:
        The integers.
    """
    _check(sigma, size)
    return draw(GAUSSIAN, certified_table(GAUSSIAN), Fraction(sigma), size, random)


def _check(scale: Fraction, size: int) -> None:
    # A float scale is refused: what is accounted and what is drawn must be the same number.
    if not isinstance(scale, (Fraction, int)):
        raise PlanError(
            f"noise scale {scale!r} is a {type(scale).__name__}; give an exact fractions.Fraction"
        )
    if not SCALE_MINIMUM <= scale <= SCALE_MAXIMUM:
        raise PlanError(
            f"noise scale {scale} grid steps is outside 2^-10 to 2^40; choose another grid"
        )
    if size < 0:
        raise PlanError(f"cannot draw {size} values: the number must be 0 or more")
