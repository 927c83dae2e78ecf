# SPDX-License-Identifier: Apache-2.0
"""How the budget is divided between tables of few and of many attributes, for so many records.

The planned strategy has the least error of unbiased answers, whatever the data. Answers that agree
and are drawn towards independence err less, and by another law: what tables of many attributes add
to those of fewer is drawn back where its noise exceeds it, and budget that was spent on it is lost,
while that on tables of few attributes is not. For a marginal over B the strategy of
``strategy/marginals.py`` measures one piece per set A of attributes within B: what A adds to the
sets within it. Let K be the squared noise of a piece as it is planned, in the table over A, and S
what is expected there of the data. A linear estimate of the least error leaves

    S k / (S + k)        of noise k = K / m,   m times the budget of the plan for this piece,

and with the weights G of the pieces in all asked tables ``sum G S K / (S m + K)`` is least, for as
much budget as before, at

    m = max(m_0, c - K / S)

(water-filling; the plan has G K in proportion to its shares of the budget). S is infinite for the
number of records and for single attributes, which never lose, and ``n^2 s_k`` for n records and k
attributes, as it is on tables of people (``LIMITS.expected_square``). Large tables are mostly empty
and no linear estimate is made of them: of their noise counts what falls on as many cells as matter,
some for all and the root of what there are more. m_0 keeps some budget for every piece, so that all
answers have unbiased ones behind them. As n or the budget grows, m comes near 1.

Which n is a public number, a guess, or a noisy count that is paid for from the same budget and
drawn before all others. Tables differ in S by a factor of hundreds. So where it decides, one number
more is paid for and drawn: the length of all pieces of several attributes together, each with
columns of length 1,

    T = sqrt(sum_A |M_A h|^2 / nu_A),

which a record moves by no more than all pieces together: a fortieth of the budget tells it to a
fraction of what its parts have of noise in sum. S is then n^2 s_k theta, with the theta that is
likely given T. The division is a function of these numbers and of the plan: docs/proofs/
measuring.md, Divided budgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil, exp, floor, ldexp, log, sqrt
from typing import cast

import numpy as np

from sfumato.errors import PlanError
from sfumato.measurement import LENGTH_BITS, Length
from sfumato.planning.calibrate import privacy_loss
from sfumato.planning.forecast import DividedForecast, FirstNumber, Forecast
from sfumato.planning.planning_limits import LIMITS
from sfumato.planning.views import as_asked, cells_of
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.strategy.marginals import Marginals
from sfumato.types import Array

__all__ = ["divided", "divided_below", "length_loss", "length_of", "length_told", "records_of"]


COUNT, LENGTH = "number of records", "length of pieces of several attributes"
NOTHING = BlockNoise("gaussian", 2**60, 0)  # noise that hides all: a block that is not measured


def records_of(forecast: Forecast, total: float) -> int:
    """The number of records to divide for, given their noisy count.

    At least the standard error of the count: so many records may be there in any case.
    """
    return max(1, floor(max(total, forecast.noise[0].scale)))


def divided(
    forecast: Forecast, records: int, *, is_counted: bool, length: float | None = None
) -> Forecast:
    """The same queries at no more cost, with the budget divided for so many records.

    Args:
        forecast: The plan, of marginals.
        records: The number of records: public, a guess, or a noisy count (``records_of``).
        is_counted: Whether they were counted from the same budget, with the noise that the plan has
            for them. Where records are added or removed what is left is divided, for another count
            as well; where they are replaced that count costs next to nothing, and is the only one.
        length: The noisy length of ``length_of``, paid for from the same budget; None where none
            was measured.

    Returns:
        Another forecast, whose noise is that of the new division; the plan itself where that is
        expected to gain less than ``division_gain`` and nothing but the count was paid for.
    """
    if not forecast.is_divisible:
        return forecast
    planned = forecast.in_normal_form
    strategy = planned.strategy
    assert isinstance(strategy, Marginals)  # noqa: S101
    whole = _loss(planned, planned.noise)
    left = _left(planned, whole, is_counted)
    squares = _expected_squares(strategy, records)
    law = None
    if length is not None:
        law = _length_law(planned, strategy, records, whole)
        left -= length_loss(planned, law)
        squares *= _times_expected(strategy, squares, length, law.scale)
    if not left > 0:
        return forecast
    times = _times(planned, strategy, squares, float(left / whole))
    made = None if times is None else _with_times(planned, strategy, times, left)
    if made is None and length is not None:  # what was paid for the length is missing
        made = _as_planned(planned, left, whole)
    if made is None:
        return forecast
    first = []
    if is_counted and made.noise[0] != planned.noise[0]:  # else it is that of the first block
        first.append(FirstNumber(COUNT, float(records), planned.noise[0]))
    if length is not None and law is not None:
        first.append(FirstNumber(LENGTH, length, law))
    made = replace(made, undivided=planned, divided_for=records)
    made = DividedForecast.of(made, tuple(first))
    if forecast.workload is planned.workload:
        return made
    return as_asked(made, forecast.workload, cells_of(forecast))


def _with_times(
    planned: Forecast, strategy: Marginals, times: Array, left: Fraction
) -> Forecast | None:
    """The plan with so much more of the budget for every piece; None where it cannot be had."""
    shares = np.array(strategy.shares) * np.sqrt(times)
    made = replace(planned, strategy=strategy.with_shares(shares))
    try:
        made = made.with_loss(sqrt(left) * (1 - LIMITS.division_slack))
    except PlanError:  # noise beyond what can be drawn
        return None
    if _keeps_total(planned):
        made = replace(made, noise=(planned.noise[0], *made.noise[1:]))
    is_paid = _loss(made, made.noise) <= left
    return made if is_paid and all(law.grid_bits >= 0 for law in made.noise) else None


def _as_planned(planned: Forecast, left: Fraction, whole: Fraction) -> Forecast | None:
    """The plan with what is left of the budget, divided as it was; None where it cannot be had.

    The part of every block is sought by halving where block 0 stays as it is: neighbours that move
    it need not be those that move all blocks the most.
    """
    first = 1 if _keeps_total(planned) else 0

    def with_part(part: float) -> Forecast | None:
        more = (1 + LIMITS.division_slack) / sqrt(part)
        scaled = [replace(law, units=ceil(law.units * more)) for law in planned.noise[first:]]
        made = replace(planned, noise=(*planned.noise[:first], *scaled))
        return made if _loss(made, made.noise) <= left else None

    high = float(left / whole)
    best, low = with_part(high), 0.0
    for _ in range(LIMITS.part_halvings if best is None else 0):
        middle = (low + high) / 2
        made = with_part(middle)
        best, low, high = (best, low, middle) if made is None else (made, middle, high)
    return best


def length_of(forecast: Forecast, records: int, *, is_counted: bool) -> Length | None:
    """The length that is measured before the budget is divided; None where it would not decide.

    Args:
        forecast: The plan, of marginals.
        records: The number of records, as of `divided`.
        is_counted: As of `divided`.

    Returns:
        What counts of every block, and the noise.
    """
    if not forecast.is_divisible:
        return None
    planned = forecast.in_normal_form
    strategy = planned.strategy
    assert isinstance(strategy, Marginals)  # noqa: S101
    several = _has_several(strategy)
    whole = _loss(planned, planned.noise)
    left = _left(planned, whole, is_counted)
    if not (several.any() and left > 0):
        return None
    squares = LIMITS.length_least * _expected_squares(strategy, records)
    times = _times(planned, strategy, squares, float(left / whole), LIMITS.length_gain)
    if times is None:
        return None
    law = _length_law(planned, strategy, records, whole)
    left -= length_loss(planned, law)
    usual = _length(strategy, _expected_squares(strategy, records))
    if not left > 0 or law.scale > 2 * usual:
        return None
    if _as_planned(planned, left, whole) is None:
        return None
    norms = [int(norm) for norm in strategy.piece_norms]
    one = 1 << (2 * LENGTH_BITS)
    weights = (one // norm if many else 0 for norm, many in zip(norms, several, strict=True))
    return Length(tuple(weights), law)


def length_told(division: Mapping[str, object]) -> float | None:
    """The noisy length that is told beside a measurement; None where none was measured."""
    stored = division.get("length")
    if stored is None:
        return None
    steps, bits = cast(Sequence[int], stored)
    return ldexp(int(steps), -int(bits))


def length_loss(forecast: Forecast, law: BlockNoise) -> Fraction:
    """The loss of a noisy length, rounded up: ``(d + step)^2 / s^2``, d the move of the pieces.

    Of all pieces of several attributes, each with columns of length 1, d is what two neighbours
    move at most, and ``(d + e)^2 <= (1 + t) d^2 + (1 + 1/t) e^2``.
    """
    planned = forecast.in_normal_form
    strategy = planned.strategy
    assert isinstance(strategy, Marginals)  # noqa: S101
    pairs = zip(strategy.piece_norms.tolist(), _has_several(strategy), strict=True)
    noise = [_at_most(law.scale * sqrt(norm)) if many else NOTHING for norm, many in pairs]
    slack = Fraction(LIMITS.division_slack)
    step = Fraction(1, law.units) ** 2
    return (1 + slack) * _loss(planned, noise) + (1 + 1 / slack) * step


def _at_most(scale: float) -> BlockNoise:
    """Noise of a scale that is no larger, to a millionth part of a step."""
    return BlockNoise("gaussian", max(1, floor(scale * (1 - 2**-40) * 2**20)), 20)


def _length_law(
    planned: Forecast, strategy: Marginals, records: int, whole: Fraction
) -> BlockNoise:
    """The noise of a length: half of what is usual, for a share of the budget within bounds."""
    bits = LIMITS.length_bits
    unit = length_loss(planned, BlockNoise("gaussian", 1 << bits, bits))
    wanted = LIMITS.length_error * _length(strategy, _expected_squares(strategy, records))
    low, high = (sqrt(float(unit / whole) / share) for share in LIMITS.length_share)
    scale = min(max(wanted, low), high) * (1 + LIMITS.division_slack)
    return BlockNoise("gaussian", floor(scale * 2**bits) + 1, bits)


def _has_several(strategy: Marginals) -> Array:
    """Which pieces are of several attributes."""
    sizes = [len(rows) for rows in strategy.lattice.levels]
    return np.repeat(np.arange(len(sizes)) > 1, sizes)


def _length(strategy: Marginals, squares: Array) -> float:
    several = _has_several(strategy)
    columns = _own_columns(strategy)
    return float(np.sqrt((squares[several] / columns[several]).sum()))


def _own_columns(strategy: Marginals) -> Array:
    """``prod_{i in A} (1 - 1/n_i)``: the squared columns of the pieces in their own tables."""
    sizes = np.array(strategy.workload.domain.shape, dtype=np.float64)
    return strategy.lattice.of_pieces(np.where(sizes > 1, 1 - 1 / sizes, 1.0))


def _times_expected(strategy: Marginals, squares: Array, length: float, error: float) -> float:
    """How many times the expected squares are likely, given a length and its standard error."""
    usual = _length(strategy, squares)
    spread = LIMITS.length_spread
    away = np.linspace(-4 * spread, 4 * spread, 161)
    logs = log(LIMITS.length_usual) + away
    seen = (length - usual * np.exp(logs / 2)) / error
    weights = -0.5 * ((away / spread) ** 2 + seen**2)
    weights = np.exp(weights - weights.max())
    likely = float(weights @ logs / weights.sum())
    times = LIMITS.length_factor * exp(LIMITS.length_power * likely)
    return min(times, LIMITS.length_most)


def divided_below(forecast: Forecast, *, is_counted: bool) -> int:
    """About the number of records from which on a budget stays as it is planned; 0: always.

    From there on `length_of` returns None and `divided` the plan itself.

    Args:
        forecast: The plan, of marginals.
        is_counted: As of `divided`.

    Returns:
        The number, to a hundredth part.
    """
    if not forecast.is_divisible:
        return 0
    planned = forecast.in_normal_form
    strategy = planned.strategy
    assert isinstance(strategy, Marginals)  # noqa: S101
    whole = _loss(planned, planned.noise)
    part = float(_left(planned, whole, is_counted) / whole)
    if part <= 0:
        return 0

    def is_divided_for(records: int) -> bool:
        squares = _expected_squares(strategy, records)
        if _times(planned, strategy, squares, part) is not None:
            return True
        return length_of(planned, records, is_counted=is_counted) is not None

    low, high = 0, 1
    while is_divided_for(high):
        low, high = high, 2 * high
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if is_divided_for(middle) else (low, middle)
    return high if low else 0


def _left(planned: Forecast, whole: Fraction, is_counted: bool) -> Fraction:
    """What is left to divide, once the records were counted."""
    if not is_counted or _keeps_total(planned):
        return whole
    return whole - _loss(planned, (planned.noise[0], *[NOTHING] * (len(planned.noise) - 1)))


def _loss(forecast: Forecast, noise: Sequence[BlockNoise]) -> Fraction:
    whose, drops = (forecast.neighbours, forecast.unit), forecast.may_drop_records
    return privacy_loss(forecast.strategy, noise, *whose, may_drop_records=drops)


def _keeps_total(planned: Forecast) -> bool:
    """Whether the number of records has next to no noise: replaced records hardly move it."""
    return planned.neighbours == "replace-one"


def _times(
    planned: Forecast,
    strategy: Marginals,
    expected: Array,
    part: float,
    gain: float = LIMITS.division_gain,
) -> Array | None:
    """How much more of the budget every piece gets; None where that gains too little."""
    noise, weights = _counting_noise(planned, strategy), strategy.piece_weights
    norms = strategy.piece_norms
    if _keeps_total(planned):
        norms = np.array(strategy.block_diameters(2))
    costs = np.array(strategy.shares) ** 2 * norms
    times = _water_filled(costs / costs.sum(), noise / expected, part)
    if _keeps_total(planned):
        times[0] = 1.0
    before = _risk(noise, expected, weights)
    is_worth_it = _risk(noise / times, expected, weights) < (1 - gain) * before
    return times if is_worth_it else None


def _counting_noise(planned: Forecast, strategy: Marginals) -> Array:
    """The squared noise of every piece in its own table, as far as it counts."""
    squares, cells = strategy.piece_squares(planned.block_variances), strategy.piece_cells
    return squares * np.sqrt(np.minimum(1.0, LIMITS.cells_that_matter / cells))


def _expected_squares(strategy: Marginals, records: int) -> Array:
    """What is expected of every piece of so many records, squared, in its own table."""
    rows = strategy.lattice.levels
    listed = [np.inf, np.inf, *LIMITS.expected_square]
    shares = [listed[min(j, len(listed) - 1)] for j in range(len(rows))]
    return np.repeat(float(records) ** 2 * np.array(shares), [len(r) for r in rows])


def _water_filled(costs: Array, relative: Array, part: float) -> Array:
    """``max(m_0, c - K / S)`` with the c at which ``part`` of all costs is spent."""
    low, high = 0.0, 1 / float(costs[relative == 0].sum())
    for _ in range(LIMITS.division_halvings):
        middle = (low + high) / 2
        times = np.maximum(LIMITS.division_least, middle - relative)
        low, high = (low, middle) if costs @ times > part else (middle, high)
    return np.maximum(LIMITS.division_least, low - relative)


def _risk(noise: Array, expected: Array, weights: Array) -> float:
    """The squared error that is left by the best linear estimate."""
    return float(weights @ (noise / (1 + noise / expected)))  # S infinite: all of the noise
