# SPDX-License-Identifier: Apache-2.0
"""How a discovery spends its budget, and how well it goes: laws of keys, of ranges, of bounds.

All rules look at public numbers only: the budget, the number of columns, how many keys one person
may have, and the neighbours. `key_law` publishes keys. `bins_for` is the public rule for the bins
of a range, and `forecast_range` simulates a search on records of a declared shape, by public draws:
what it may find, and how far from the truth, before anything is spent. `bound_law` finds how many
rows of one unit are counted, `bound_share` says for how much, and `persons_in_balance` what it aims
at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.domain.range_grids import NumberGrid
from sfumato.errors import PlanError
from sfumato.planning.planning_limits import LIMITS
from sfumato.planning.sparse_plans import centred, sparse_of_epsilon, tolerance
from sfumato.privacy.budget import Budget
from sfumato.privacy.discovery_laws import (
    KeyLaw,
    OptimalKeys,
    RangeLaw,
    gaussian_keys,
    people_for,
)
from sfumato.privacy.gaussian import gaussian_mu_down
from sfumato.privacy.sparse_vector import SparseLaw
from sfumato.random import Draws
from sfumato.text import shown
from sfumato.types import Array, Neighbours

__all__ = [
    "RangeForecast",
    "Shape",
    "bins_for",
    "bound_law",
    "bound_share",
    "discovery_share",
    "forecast_range",
    "key_law",
    "key_laws",
    "persons_in_balance",
    "taken_of",
]


def discovery_share(total: Budget, columns: int, needs_delta: bool) -> tuple[Budget, Budget]:
    """Return what a discovery takes of a budget for everything, and what is left to answer with.

    Of epsilon, c columns take c/(c + 4), and at most a half: the people that a key needs and the
    errors of answers both grow with one over their part, and answers are many. Of delta they take a
    half, if they need any: a key needs people by its logarithm only, and so do errors.

    Privacy: none is spent here; the two add up to the total.

    >>> discovery_share(Budget(epsilon=1, delta="1e-6"), 1, True)
    (Budget(epsilon = 0.2, delta = 5e-7), Budget(epsilon = 0.8, delta = 5e-7))
    """
    if total.epsilon is None or (needs_delta and not total.delta):
        raise PlanError(
            f"to discover values takes epsilon and delta of the budget, got {total.describe()}; "
            "give epsilon and delta"
        )
    epsilon = total.epsilon * min(Fraction(columns, columns + 4), Fraction(1, 2))
    delta = (total.delta or Fraction(0)) / 2 if needs_delta else Fraction(0)
    return taken_of(total, Budget(epsilon, delta))


def taken_of(total: Budget, part: Budget) -> tuple[Budget, Budget]:
    """Return a part of a total, and the rest; PlanError where nothing is left to answer with."""
    if total.epsilon is None or part.epsilon is None:
        raise PlanError(
            "a discovery and the answers share a budget of epsilon and delta; got "
            f"{total.describe()} and {part.describe()}"
        )
    epsilon = total.epsilon - part.epsilon
    delta = (total.delta or Fraction(0)) - (part.delta or Fraction(0))
    if epsilon <= 0 or delta < 0:
        raise PlanError(
            f"the discovery takes {part.describe()} of {total.describe()}, which leaves nothing to "
            "answer with; raise [budget], or lower [discovery]"
        )
    return part, Budget(epsilon, delta)


def key_law(
    number: int,
    epsilon: Fraction,
    delta: Fraction,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
) -> KeyLaw:
    """Return the law that publishes the keys of each of ``number`` columns, all in one budget.

    Of the two laws it is the one that needs fewer people to publish a key every other time.

    Privacy: ``number`` times its cost is within (epsilon, delta): docs/proofs/keys.md, Theorem 5.
    Neighbours: those that are named, of one row or of a unit with up to ``unit.rows`` keys.
    """
    return key_laws(number, epsilon, delta, neighbours, unit)[0]


def key_laws(
    number: int,
    epsilon: Fraction,
    delta: Fraction,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
) -> Sequence[KeyLaw]:
    """Return both laws where they can be drawn, the better first."""
    new = 1 if unit is None else unit.rows
    moved = 2 * new if neighbours == "replace-one" else new
    laws: list[KeyLaw] = []
    refused = ""
    half = delta / 2
    mu = Fraction(gaussian_mu_down(epsilon, half))
    try:
        optimal = OptimalKeys(epsilon / (number * moved), delta / (number * moved), moved)
        laws.append(_drawable(optimal))
    except PlanError as error:
        refused = str(error)
    if mu:
        try:
            gaussian = gaussian_keys(mu**2 / number, half / number, moved, new)
            laws.append(_drawable(gaussian))
        except PlanError as error:
            refused = refused or str(error)
    if not laws:
        raise PlanError(refused)
    return sorted(laws, key=lambda law: people_for(law, 0.5))


def _drawable(law: KeyLaw) -> KeyLaw:
    """The law, if it can be drawn; PlanError if not."""
    people_for(law, 0.5)
    return law


# Searches for a bound on the rows of a unit


def bound_law(epsilon: Fraction, steps: int) -> SparseLaw:
    """Return the law of a walk over so many bounds that costs exactly ``epsilon``.

    Its scores are numbers of units with more rows: one unit more or less, or another one in its
    place, moves all of them in one direction, so that either kind of neighbours costs the same.

    Privacy: docs/proofs/units.md, Theorem 8.
    Neighbours: all rows of one unit added or removed, or replaced by other rows.

    >>> from sfumato.planning.sparse_plans import tolerance
    >>> tolerance(bound_law(Fraction(1, 10), 75), 75, 0.05)
    110
    """
    law = sparse_of_epsilon(epsilon, is_monotone=True, threshold="exponential", query="exponential")
    return centred(law, steps, LIMITS.bound_miss)


def persons_in_balance(queries: int, rmse: float, column: float) -> int:
    """Return about how many units may have more rows than are counted, for these answers.

    With a bound r all answers together err by ``queries * rmse * r`` of noise, rmse that of the
    answers where one row counts. A row that is not counted is missed by ``column`` answers. One row
    more for everybody costs ``queries * rmse`` and brings back a row of each unit that has more: so
    the sum of both is least where ``queries * rmse / column`` units have more.

    >>> persons_in_balance(100, 1.5, 1)
    150
    """
    return max(1, round(queries * rmse / column))


def bound_share(total: Budget, persons: int, steps: int) -> tuple[Budget, Budget]:
    """Return what the search for a bound takes of a budget, and what is left to answer with.

    As much as makes it sure, 19 times in 20, to within as many units as may lose rows; but at least
    a fiftieth and at most a fifth of epsilon. It needs no delta.

    Privacy: none is spent here; the two add up to the total.

    >>> bound_share(Budget(epsilon=1), 220, 75)
    (Budget(epsilon = 0.05), Budget(epsilon = 0.95))
    """
    if total.epsilon is None:
        raise PlanError(
            "to discover how many rows of a unit are counted takes epsilon of the budget, got "
            f"{total.describe()}; give epsilon"
        )
    # The tolerance goes with one over epsilon: read off where noise is many steps.
    fine = Fraction(1, 1000)
    reach = tolerance(bound_law(fine, steps), steps, LIMITS.bound_miss) * fine
    least, most = (share * total.epsilon for share in LIMITS.bound_shares)
    wanted = Fraction(f"{float(reach / persons):.2g}")
    return taken_of(total, Budget(min(max(wanted, least), most)))


Shape: TypeAlias = Literal["normal", "lognormal", "pareto", "uniform", "constant"]
"""A declared shape of records: that of a made-up column."""

# Searches for ranges


_SHAPES: Final[dict[str, Callable[[Array, Array], Array]]] = {
    "normal": lambda _, z: z,
    "lognormal": lambda _, z: np.exp(z),
    "pareto": lambda u, _: 1 / u,
    "uniform": lambda u, _: u,
    "constant": lambda u, _: np.ones(u.size),
}


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
    return _forecast_range(law, records, shape)


@lru_cache(maxsize=256)  # columns that share a budget have one law
def _forecast_range(law: RangeLaw, records: int, shape: Shape) -> RangeForecast:
    """`forecast_range` of checked arguments."""
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
