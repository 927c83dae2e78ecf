# SPDX-License-Identifier: Apache-2.0
"""How much noise a strategy needs for a budget, and what it then costs.

Privacy: adding ``N(0, s_b^2)`` to block b of ``M h`` is mu-GDP with
``mu^2 = max over neighbours of sum_b |M_b (h - h')|_2^2 / s_b^2`` (Dong, Roth, Su 2022, "Gaussian
differential privacy", applied to the blocks divided by their scales). Adding Laplace noise of
scale ``s_b`` is epsilon-DP with ``epsilon = max sum_b |M_b (h - h')|_1 / s_b`` (Dwork, McSherry,
Nissim, Smith 2006, "Calibrating noise to sensitivity in private data analysis").
Rounding a Gaussian to the grid is post-processing; the discrete Laplace on the grid obeys the
same bound because what is measured lies on the grid (Ghosh, Roughgarden, Sundararajan 2012). It is
drawn on the grid of the measured values themselves, the integers for counts: no finer noise of the
same epsilon has a smaller variance (docs/proofs/discrete-laplace.md, Theorem 4). A Gaussian rounded
to a coarse grid would have a larger one: its grid is fine.

Neighbours: ``add-remove`` moves h by one cell, so the maximum is over columns of M.
``replace-one`` moves it by ``e_i - e_j``: mu^2 takes the squared diameter of the columns of all
blocks together where the moves can be listed (``sensitivity.py``), else the sum of those of the
blocks (``sensitivity.py``), never more than 2 (for coefficients without negative ones) or 4 times
the longest column; epsilon takes the diameter in L1, never more than twice the longest. Where a
rule of the domain or the source itself drops records, or a person may have fewer rows than allowed,
the replaced record can fall in no cell at all: then both take at least the longest column. A
privacy unit of r rows moves h by r such steps at once: r times the norm; one with groups by what
its groups can move together (``moves.py``). Public totals, which no move changes, may have
next to no noise (``replace_one.py``).

A block whose coefficients are so fine that noise on their own grid could not be drawn (scales
beyond 2^40 steps) is rounded to a coarser grid, of 2^30 steps per standard deviation, before the
Gaussian noise is added. Rounding moves the difference of two values by at most one step, so by
the triangle inequality ``mu`` grows by at most ``sqrt(values rounded) * step / s``. A term whose
values are not exact integers says how far off they may be (``Term.slack``), which is added alike.
Sums of values (``domain.values``) are counted in steps of 2^-50 records, and rounded alike before
Laplace noise, too: equal values stay equal, so epsilon grows by at most ``changes * step / s``,
where ``changes`` is how many values of the block one record can change.

Every rounding goes the safe way: scales up, sensitivities up, costs up. Proof:
docs/proofs/measuring.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor, isfinite, ldexp, log2, sqrt
from typing import Final

from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import PlanError
from sfumato.planning.planning_limits import LIMITS
from sfumato.privacy.budget import may_lose_a_record
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.privacy.privacy_limits import LIMITS as PRIVACY_LIMITS
from sfumato.strategy.base import Strategy
from sfumato.strategy.moves import bound_of_groups, moved_by_groups
from sfumato.types import Neighbours, Noise

__all__ = [
    "calibrate",
    "excess_of_unit",
    "laplace_on_grid",
    "privacy_loss",
    "unit_variances",
]

# The proof that noise is exact and within the budget relies on these.
SENSITIVITY_SLACK: Final = 1 + 2.0**-24  # the float rounding of a sensitivity is far below 2^-30
DRAWN_BITS: Final = 40  # the maximum scale that is drawn, in steps, as a power of 2
MAXIMUM_SCALE: Final = 2.0**60  # above it noise would not fit a 64-bit integer


def calibrate(
    strategy: Strategy,
    loss: float,
    neighbours: Neighbours,
    unit: PrivacyUnit | None = None,
    *,
    may_drop_records: bool = False,
    is_fine: bool = False,
) -> tuple[BlockNoise, ...]:
    """The least noise for a privacy loss: ``mu`` for Gaussian noise, ``epsilon`` for Laplace.

    Args:
        strategy: What is measured.
        loss: ``mu`` or ``epsilon``.
        neighbours: Which two tables must be hard to tell apart.
        unit: Whose presence is protected; one row if None.
        may_drop_records: Whether the source is a query, a view or an expression, so that a replaced
            record may not be counted at all.
        is_fine: Whether all grids are fine beside the noise, as they were in earlier versions.

    Returns:
        The noise of every measured block.
    """
    p = strategy.norm
    shares = [share**p for share in strategy.shares]
    moved = _moved(strategy, shares, neighbours, unit, may_drop_records)
    if moved == 0:
        raise PlanError("all queries are zero on every cell: there is nothing to measure")
    scale = moved ** (1 / p) / loss * SENSITIVITY_SLACK
    noise = _scaled(strategy, scale, is_fine)
    rounding = _rounding(strategy, noise, neighbours, unit)
    if rounding:
        noise = _scaled(strategy, scale * loss / (loss - rounding), is_fine)
    allowed = Fraction(loss) ** p
    paid = privacy_loss(strategy, noise, neighbours, unit, may_drop_records=may_drop_records)
    if paid > allowed:
        raise PlanError(
            "the noise scale could not be rounded within the budget; please report this"
        )
    return noise


def unit_variances(
    strategy: Strategy,
    neighbours: Neighbours,
    unit: PrivacyUnit | None = None,
    *,
    may_drop_records: bool = False,
) -> tuple[float, ...]:
    """The least noise variance of every block at a privacy loss of 1, were there no grid.

    At a loss of x they are ``1 / x^2`` times these, and `calibrate` never has less, but for the
    rounding of floats.
    """
    p = strategy.norm
    shares = [share**p for share in strategy.shares]
    moved = _moved(strategy, shares, neighbours, unit, may_drop_records)
    power = moved ** (2 / p) * (2 if p == 1 else 1)  # Laplace noise of scale b has 2 b^2
    return tuple(power / share**2 for share in strategy.shares)


def laplace_on_grid(scale: float, fraction_bits: int, unit_bits: int) -> BlockNoise:
    """Laplace noise of a scale in counts, rounded up, for values with so many bits after the point.

    ``unit_bits`` are those of the counts that they are of, above 0 for sums of values.
    """
    return _on_grid("laplace", scale, fraction_bits, unit_bits, is_fine=False)


def excess_of_unit(strategy: Strategy, unit: PrivacyUnit | None, neighbours: Neighbours) -> float:
    """How much more a unit with groups costs than a lower bound on it, next to one record.

    The squared sensitivity for the unit over that for one record, over what a lower bound for one
    record is multiplied by to hold for the unit; 1 without groups, where both are ``rows^2``.
    docs/proofs/units.md, Theorem 4.
    """
    if unit is None or unit.groups is None:
        return 1.0
    p = strategy.norm
    shares = [share**p for share in strategy.shares]
    whole = _moved(strategy, shares, neighbours, unit, may_drop_records=True)
    one = strategy.noise_sensitivity(neighbours, True, shares)
    workload = strategy.in_normal_form.workload
    return float((whole / one) ** (2 / p) / bound_of_groups(workload, unit))


def privacy_loss(
    strategy: Strategy,
    noise: Sequence[BlockNoise],
    neighbours: Neighbours,
    unit: PrivacyUnit | None = None,
    *,
    may_drop_records: bool = False,
) -> Fraction:
    """``mu^2`` (Gaussian) or ``epsilon`` (Laplace) of measuring with this noise, rounded up.

    Args:
        strategy: What is measured.
        noise: The noise of every measured block.
        neighbours: Which two tables must be hard to tell apart.
        unit: Whose presence is protected; one row if None.
        may_drop_records: As in `calibrate`.

    Returns:
        The loss, an upper bound.
    """
    p = strategy.norm
    power = _moved(strategy, [n.scale**-p for n in noise], neighbours, unit, may_drop_records)
    rounding = _rounding(strategy, noise, neighbours, unit)
    loss = (power ** (1 / p) + rounding) ** p if rounding else power
    # 2^-30 more than the float result covers the few roundings since.
    return Fraction(loss) * (1 + Fraction(1, 2**30))


def _scaled(strategy: Strategy, scale: float, is_fine: bool) -> tuple[BlockNoise, ...]:
    parts = zip(strategy.shares, strategy.block_bits, strategy.block_units, strict=True)
    law = strategy.noise
    return tuple(_on_grid(law, scale / share, bits, units, is_fine) for share, bits, units in parts)


def _rounding(
    strategy: Strategy,
    noise: Sequence[BlockNoise],
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
) -> float:
    """By how much rounding can move the measured values, in scales of the noise.

    Gaussian: per block ``sqrt(values) step / s`` where they are rounded to a coarser grid, and
    ``slack / s`` where they are no exact integers to begin with; the root of the sum of squares of
    all blocks. Laplace: ``changes step / s``, added up.
    """
    parts = zip(strategy.block_bits, strategy.block_units, noise, strict=True)
    coarse = [law.grid_bits < bits + units for bits, units, law in parts]
    slacks = strategy.block_slacks
    if any(s and u for s, u in zip(slacks, strategy.block_units, strict=True)):
        raise PlanError("values that are no exact integers cannot be measured with sums of values")
    if strategy.noise == "laplace":
        sums = zip(strategy.block_units, coarse, slacks, strict=True)
        if any(slack or (is_coarse and not units) for units, is_coarse, slack in sums):
            raise PlanError("values that are rounded before the noise need Gaussian noise")
        if not any(coarse):
            return 0.0
        most = (1 if neighbours == "add-remove" else 2) * (1 if unit is None else unit.rows)
        changes = zip(strategy.block_changes(most), noise, coarse, strict=True)
        return sum(count / law.units for count, law, is_coarse in changes if is_coarse)
    total = 0.0
    for count, slack, law, is_coarse in zip(
        strategy.block_rows, slacks, noise, coarse, strict=True
    ):
        if slack or is_coarse:
            steps = sqrt(count) / law.units if is_coarse else 0.0
            total += (steps + slack / law.scale) ** 2
    return sqrt(total)


def _moved(
    strategy: Strategy,
    scales: Sequence[float],
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
    may_drop_records: bool,
) -> float:
    """The p-th power of how far neighbours move the blocks, block b counting ``scales[b]``."""
    drops = may_lose_a_record(strategy.workload.domain, unit, may_drop_records)
    key = ("moved", tuple(scales), neighbours, drops)
    power = strategy.remembered(key, lambda: strategy.noise_sensitivity(neighbours, drops, scales))
    by_rows = power * (1.0 if unit is None else float(unit.rows)) ** strategy.norm
    if unit is None or unit.groups is None or strategy.norm != 2:
        return by_rows
    grouped = ("moved by groups", tuple(scales), neighbours, unit)
    planned = strategy.in_normal_form
    by_groups = planned.remembered(
        grouped, lambda: moved_by_groups(planned, unit, neighbours, scales)
    )
    return by_rows if by_groups is None else min(by_rows, by_groups)


def _on_grid(
    noise: Noise, scale: float, fraction_bits: int, unit_bits: int, is_fine: bool
) -> BlockNoise:
    """The scale rounded up, on a grid that holds the measured values.

    Sums of values are far finer than noise needs to be: they are rounded to the grid.
    """
    if not (isfinite(scale) and LIMITS.minimum_scale <= scale <= MAXIMUM_SCALE):
        raise PlanError(
            f"a noise scale of {scale:.3g} counts is outside the range 2^-40 to 2^60 that can be "
            "drawn exactly; change the budget"
        )
    if noise == "laplace" and not unit_bits and not is_fine:
        # A finer grid would have more variance at the same scale, so that errors grew with epsilon.
        scale = max(scale, ldexp(1.0, PRIVACY_LIMITS.whole_steps_log2 - fraction_bits))
        finer = LIMITS.whole_scale_bits - floor(log2(scale)) - fraction_bits
        if finer > 0:
            scaled = ceil(ldexp(scale, fraction_bits + finer))
            return BlockNoise(noise, scaled, fraction_bits, finer)
    bits = max(LIMITS.scale_bits - floor(log2(scale)), fraction_bits)
    if unit_bits or bits + floor(log2(scale)) >= DRAWN_BITS:
        if noise == "laplace" and not unit_bits:
            raise PlanError("the coefficients are too fine for Laplace noise; round the queries")
        bits = LIMITS.rounded_bits - floor(log2(scale))
    # Exact: a multiplication by a power of two, far from the ends of the range of floats.
    return BlockNoise(noise, ceil(ldexp(scale, bits)), bits)
