# SPDX-License-Identifier: Apache-2.0
"""What the private search for the range of a column costs: a number, a middle, and two ends.

On a public grid the search takes three steps (``vault/mechanisms/searches.py``):

    number   how many records have a value, with Laplace noise
    middle   a cell near the median, by permute-and-flip
    ends     from the middle outwards, the first edge beyond which few records lie: one sparse
             vector below the middle and one above it. They look at different records, so that
             both together cost what one does

Durfee 2023, "Unbounded differentially private quantile and maximum estimation" (arXiv 2305.01177)
walks along a geometric grid by AboveThreshold; Kaplan, Schnapp, Stemmer 2022, "Differentially
private approximate quantiles" split the records at a private median. A walk that begins in the
middle of the records and not at the end of the grid compares few edges with a count that is near
the threshold, and once no record is left every further test ends it. Proof page:
``docs/proofs/ranges.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from sfumato.errors import BudgetError
from sfumato.privacy.cost import Cost
from sfumato.privacy.privacy_limits import LIMITS
from sfumato.privacy.sparse_vector import NoiseLaw, SparseLaw

__all__ = ["RangeLaw", "range_law"]


@dataclass(frozen=True, slots=True)
class RangeLaw:
    """Everything public about the search for one range: its noise, and where a range ends.

    Args:
        number: The Laplace noise of the number of records.
        rate: What scores of the middle are multiplied by.
        ends: The sparse vector of either end; its scores are counts, which are monotone.
        beyond: The share of all records beyond either end at which the walk is to stop.
        moves: How many records neighbours differ in, at most.
    """

    number: NoiseLaw
    rate: Fraction
    ends: SparseLaw
    beyond: Fraction
    moves: int = 1

    def __post_init__(self) -> None:
        if self.number.kind != "laplace" or self.ends.discoveries != 1:
            raise BudgetError("a range needs Laplace noise on its number, and one end per side")
        if not self.ends.is_monotone or self.ends.sensitivity != 1:
            raise BudgetError("the ends of a range compare counts: monotone, of sensitivity 1")
        if not 0 < self.beyond < Fraction(1, 2):
            raise BudgetError(
                f"beyond must be a share between 0 and 1/2 of the records, got {self.beyond}"
            )

    @property
    def cost(self) -> Cost:
        """The cost of the whole search, both ends included.

        Privacy: docs/proofs/ranges.md, Theorem 2: between tables one record apart the number
        costs ``1 / scale``, the middle ``2 rate`` and both ends together ``ends.cost``; tables
        ``moves`` records apart cost as many times more (group privacy).
        """
        return (
            Cost.pure(self.moves / self.number.scale, steps=self.moves)
            + Cost.pure(2 * self.moves * self.rate)
            + Cost.pure(self.moves * self.ends.cost.pure_epsilon)
        )

    @property
    def epsilon(self) -> Fraction:
        """The epsilon of the whole search."""
        return self.cost.pure_epsilon

    @property
    def tails(self) -> Fraction:
        """The share of the records that is to lie beyond either end, about."""
        return self.beyond / LIMITS.range_aim

    def threshold(self, number: int) -> int:
        """The number of records beyond an end, when there are about so many in all.

        At least what noise alone would pass, so that the walk ends where no record is left.
        """
        floor = LIMITS.range_floor * (self.ends.threshold.scale + self.ends.query.scale)
        return ceil(max(self.beyond * number, floor))

    @property
    def least_records(self) -> int:
        """The noisy number of records below which nothing is learnt: the default range is used."""
        return ceil(LIMITS.range_records / self.rate)

    def as_json(self) -> dict[str, object]:
        """The law as JSON, exactly; what a ledger keeps of it."""
        return {
            "number": [self.number.kind, str(self.number.scale)],
            "rate": str(self.rate),
            "ends": self.ends.as_json(),
            "beyond": str(self.beyond),
            "moves": self.moves,
        }


def range_law(epsilon: Fraction, moves: int = 1, tails: Fraction = Fraction(1, 20)) -> RangeLaw:
    """Return the law of a search that costs exactly ``epsilon``.

    The walk aims a little inside of the tails, for it stops at an edge beyond its aim.

    Args:
        epsilon: What the search costs.
        moves: How many records neighbours differ in, at most.
        tails: The share of the records that is to lie beyond either end, about.

    Raises:
        BudgetError: The epsilon is too small, or tails are no share below a quarter.

    >>> range_law(Fraction(1, 10)).cost
    Cost(epsilon = 0.1)
    """
    if not 0 < Fraction(tails) <= Fraction(1, 4):
        raise BudgetError(f"tails must be a share above 0 and at most 1/4, got {tails}")
    each = Fraction(epsilon) / moves
    number, middle = LIMITS.range_number * each, LIMITS.range_middle * each
    end = NoiseLaw("exponential", 2 / (each - number - middle))
    return RangeLaw(
        NoiseLaw("laplace", 1 / number),
        middle / 2,
        SparseLaw(end, end, is_monotone=True),
        LIMITS.range_aim * Fraction(tails),
        moves,
    )
