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
drawn before all others. The division is a function of that number and of the plan: docs/proofs/
measuring.md, Divided budgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor, sqrt

import numpy as np

from sfumato.errors import PlanError
from sfumato.planning.calibrate import privacy_loss
from sfumato.planning.forecast import Forecast
from sfumato.planning.planning_limits import LIMITS
from sfumato.planning.views import as_asked, cells_of
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.strategy.marginals import Marginals
from sfumato.types import Array

__all__ = ["divided", "divided_below", "records_of"]


NOTHING = BlockNoise("gaussian", 2**60, 0)  # noise that hides all: a block that is not measured


def records_of(forecast: Forecast, total: float) -> int:
    """The number of records to divide for, given their noisy count.

    At least the standard error of the count: so many records may be there in any case.
    """
    return max(1, floor(max(total, forecast.noise[0].scale)))


def divided(forecast: Forecast, records: int, *, is_counted: bool) -> Forecast:
    """The same queries at no more cost, with the budget divided for so many records.

    Args:
        forecast: The plan, of marginals.
        records: The number of records: public, a guess, or a noisy count (``records_of``).
        is_counted: Whether they were counted from the same budget, with the noise that the plan has
            for them. Where records are added or removed what is left is divided, for another count
            as well; where they are replaced that count costs next to nothing, and is the only one.

    Returns:
        Another forecast, whose noise is that of the new division; the plan itself where that is
        expected to gain less than ``division_gain``.
    """
    if not forecast.is_divisible:
        return forecast
    planned = forecast.in_normal_form
    strategy = planned.strategy
    assert isinstance(strategy, Marginals)  # noqa: S101
    whole = _loss(planned, planned.noise)
    keeps_total = _keeps_total(planned)
    left = _left(planned, whole, is_counted)
    if not left > 0:
        return forecast
    times = _times(planned, strategy, records, float(left / whole))
    if times is None:
        return forecast
    shares = np.array(strategy.shares) * np.sqrt(times)
    made = replace(planned, strategy=strategy.with_shares(shares))
    try:
        made = made.with_loss(sqrt(left) * (1 - LIMITS.division_slack))
    except PlanError:  # noise beyond what can be drawn
        return forecast
    if keeps_total:
        made = replace(made, noise=(planned.noise[0], *made.noise[1:]))
    if _loss(made, made.noise) > left or any(law.grid_bits < 0 for law in made.noise):
        return forecast
    made = replace(made, undivided=planned, divided_for=records)
    if forecast.workload is planned.workload:
        return made
    return as_asked(made, forecast.workload, cells_of(forecast))


def divided_below(forecast: Forecast, *, is_counted: bool) -> int:
    """About the number of records from which on `divided` returns the plan itself; 0: always.

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
    low, high = 0, 1
    while _times(planned, strategy, high, part) is not None:
        low, high = high, 2 * high
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        is_divided = _times(planned, strategy, middle, part) is not None
        low, high = (middle, high) if is_divided else (low, middle)
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


def _times(planned: Forecast, strategy: Marginals, records: int, part: float) -> Array | None:
    """How much more of the budget every piece gets; None where that gains too little."""
    noise, weights = _counting_noise(planned, strategy), strategy.piece_weights
    expected = _expected_squares(strategy, records)
    norms = strategy.piece_norms
    if _keeps_total(planned):
        norms = np.array(strategy.block_diameters(2))
    costs = np.array(strategy.shares) ** 2 * norms
    times = _water_filled(costs / costs.sum(), noise / expected, part)
    if _keeps_total(planned):
        times[0] = 1.0
    before = _risk(noise, expected, weights)
    is_worth_it = _risk(noise / times, expected, weights) < (1 - LIMITS.division_gain) * before
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
