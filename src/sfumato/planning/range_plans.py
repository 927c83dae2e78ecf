# SPDX-License-Identifier: Apache-2.0
"""Plan the search for ranges: how a budget is shared, into how many bins, and how well it will go.

`law_for` is the law of each of several searches that fit a budget together. `bins_for` is the
public rule for the bins of a range. `forecast_range` simulates a search on records of a declared
shape, by public draws: what it may find, and how far from the truth, before anything is spent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from sfumato.domain.grids import NumberGrid
from sfumato.errors import PlanError
from sfumato.planning.planning_limits import LIMITS
from sfumato.planning.public_draws import Draws
from sfumato.privacy.budget import Budget
from sfumato.privacy.cost import Cost, composed_epsilon, mu_squared_of, rho_of
from sfumato.privacy.range_law import RangeLaw, range_law
from sfumato.text import shown
from sfumato.types import Array

__all__ = [
    "RangeForecast",
    "Shape",
    "bins_for",
    "fits_budget",
    "forecast_range",
    "law_for",
]

Shape: TypeAlias = Literal["normal", "lognormal", "pareto", "uniform", "constant"]
"""A declared shape of records: that of a made-up column."""

_SHAPES: Final[dict[str, Callable[[Array, Array], Array]]] = {
    "normal": lambda _, z: z,
    "lognormal": lambda _, z: np.exp(z),
    "pareto": lambda u, _: 1 / u,
    "uniform": lambda u, _: u,
    "constant": lambda u, _: np.ones(u.size),
}


def fits_budget(cost: Cost, budget: Budget) -> bool:
    """Whether a cost, taken alone, is within a budget."""
    if budget.epsilon is not None:
        if budget.delta:
            return composed_epsilon([cost], budget.delta) <= budget.epsilon
        return not cost.mu_squared and cost.pure_epsilon <= budget.epsilon
    if budget.rho is not None:
        return rho_of(cost) <= budget.rho
    return mu_squared_of(cost) <= Fraction(budget.gaussian_mu or 0.0) ** 2


def law_for(
    budget: Budget, columns: int, moves: int, tails: Fraction = Fraction(1, 20)
) -> RangeLaw:
    """Return the law of one of so many equal searches that a budget pays for together.

    Args:
        budget: What all of them may spend.
        columns: How many there are.
        moves: How many records neighbours differ in, at most.
        tails: The share of the records that is to lie beyond either end, about.

    Raises:
        BudgetError: The budget is too small for so many.

    >>> law_for(Budget(epsilon=1), 4, 1).epsilon
    Fraction(1, 4)
    """
    if budget.epsilon is not None and not budget.delta:
        return range_law(min(budget.epsilon / columns, _most()), moves, tails)
    # Not pure: the largest epsilon of one search such that all together fit, on a fixed grid.
    low, high = 0, 1 << LIMITS.range_bits
    while high - low > 1:
        middle = (low + high) // 2
        each = range_law(_dyadic(middle), moves, tails).cost
        is_within = fits_budget(Cost(each.parts * columns), budget)
        low, high = (middle, high) if is_within else (low, middle)
    return range_law(_dyadic(max(low, 1)), moves, tails)


def _most() -> Fraction:
    return Fraction(LIMITS.range_epsilon)


def _dyadic(step: int) -> Fraction:
    """Step of a grid from 0 to the largest epsilon, finer for smaller ones."""
    return _most() * Fraction(step, 1 << LIMITS.range_bits) ** 2


def bins_for(number: float, noise: float) -> int:
    """Return the number of bins for about so many records, each counted with so much noise.

    Twice the cube root of the records (the rule of Rice), unless an average bin would then hold
    less than a few times the noise of its count.

    >>> bins_for(32_000, 10.0), bins_for(500, 10.0)
    (50, 8)
    """
    most = min(2 * float(np.cbrt(max(number, 1.0))), number / (LIMITS.bin_noise * max(noise, 1e-9)))
    return int(min(max(most, LIMITS.least_bins), LIMITS.most_bins))


@dataclass(frozen=True, slots=True)
class RangeForecast:
    """How a search goes on records of a declared shape, by simulation.

    Attributes:
        shape: The declared shape.
        records: How many records with a value there are.
        tails: The share of them that is to lie beyond either end.
        octave: The share of searches with both ends within an octave of the two tails' points.
        inside: The share of records within the range, on average.
        width: The range over the distance of the two points, the median of all searches; NaN if
            they are equal.
        default: The share of searches that learn too little, and use the default range.
    """

    shape: Shape
    records: int
    tails: float
    octave: float
    inside: float
    width: float
    default: float

    def describe(self) -> str:
        """The forecast in words."""
        if self.default > 0.5:
            return (
                f"with {self.records:,} {self.shape} records too little is learnt: in "
                f"{self.default:.0%} of searches the default range is used"
            )
        return (
            f"with {self.records:,} {self.shape} records both ends are within an octave of the "
            f"{self.tails:.3g} and {1 - self.tails:.3g} points in {self.octave:.0%} of searches; "
            f"{self.inside:.1%} of records lie inside"
        )


def forecast_range(law: RangeLaw, records: int, shape: Shape = "lognormal") -> RangeForecast:
    """Return how searches by a law go on so many records of a declared shape.

    No table is read: records are made up from public draws, and the noise is simulated in floats.

    Args:
        law: The law of the search.
        records: How many records have a value.
        shape: ``"normal"``, ``"lognormal"``, ``"pareto"``, ``"uniform"`` or ``"constant"``.

    Raises:
        PlanError: The shape is none of these, or records is no whole number.
    """
    if shape not in get_args(Shape):
        raise PlanError(
            f"shape must be one of {', '.join(map(repr, get_args(Shape)))}, got {shown(shape)}"
        )
    if isinstance(records, bool) or not isinstance(records, int) or records < 0:
        raise PlanError(f"records must be a whole number of at least 0, got {shown(records)}")
    draws = Draws(f"range|{shape}|{records}|{law.as_json()}")
    sample = min(records, LIMITS.range_sample)
    values = _SHAPES[shape](draws.uniforms(sample), draws.normals(sample))
    grid = NumberGrid("x")
    edges = np.array(grid.edges)
    codes = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, grid.cells - 1)
    counts = np.bincount(codes, minlength=grid.cells).astype(np.float64)
    if sample:
        counts *= records / sample
    tails = float(law.tails)
    low, high = np.quantile(values, [tails, 1 - tails]) if sample else (0.0, 0.0)
    hits, inside, widths, defaults = 0, 0.0, [], 0
    for _ in range(LIMITS.range_simulations):
        number, first, last = _simulated(counts, grid, law, draws)
        defaults += number < law.least_records
        if number < law.least_records:
            first, last = (grid.edges.index(end) for end in grid.default)
        start, end = edges[first], edges[last]
        hits += _is_near(start, low) and _is_near(end, high)
        inside += counts[first:last].sum() / max(records, 1)
        widths.append((end - start) / (high - low) if high > low else np.nan)
    runs = LIMITS.range_simulations
    octave, within, default = (float(part / runs) for part in (hits, inside, defaults))
    width = float(np.median(widths))
    return RangeForecast(shape, records, tails, octave, within, width, default)


def _simulated(
    counts: Array, grid: NumberGrid, law: RangeLaw, draws: Draws
) -> tuple[float, int, int]:
    """One search in floats: the number of records and the edges of the range."""
    before = np.concatenate([[0.0], np.cumsum(counts)])
    total = before[-1]
    number = total + float(law.number.scale) * draws.laplaces(1)[0]
    apart = np.maximum(np.maximum(2 * before[:-1] - total, total - 2 * before[1:]), 0)
    middle = int(np.argmax(-float(law.rate) * apart - np.log(draws.uniforms(apart.size))))
    threshold = law.threshold(int(number))
    ends = []
    for edges, tails in zip(grid.outward(middle), (before, total - before), strict=True):
        noise = -np.log(draws.uniforms(len(edges) + 1))
        shift = float(law.ends.query.scale) * noise[1:]
        bar = threshold - float(law.ends.threshold.scale) * noise[0]
        below = np.flatnonzero(tails[list(edges)] - shift <= bar)
        ends.append(edges[int(below[0]) if below.size else -1])
    return number, ends[0], ends[1]


def _is_near(end: float, point: float) -> bool:
    """Whether an end is within an octave of a point."""
    return end == point or (end * point > 0 and 0.5 <= end / point <= 2)
