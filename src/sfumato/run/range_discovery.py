# SPDX-License-Identifier: Apache-2.0
"""How the range of a column is discovered: the search that `sf.plan_discovery` runs for it.

    plan = sf.plan_discovery(sf.Numeric.discover("income"), sf.Budget(epsilon=0.1))
    print(plan)                                     # what it may find, before it is spent
    plan.release("people.parquet", ledger="people.ledger").domain

The column is searched on a public grid (``domain/grids.py``): what leaves the vault is about how
many records have a value, and the two edges between which nearly all of them lie. Mathematics:
docs/mechanisms/ranges.md. Proof: docs/proofs/ranges.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Final

from sfumato.domain.discovery import Findings, OpenAttribute
from sfumato.domain.open_ranges import OpenRange
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.planning.adaptive_costs import moves_of
from sfumato.planning.range_plans import RangeForecast, Shape, bins_for, forecast_range
from sfumato.privacy.cost import Cost
from sfumato.privacy.noise_laws import laplace_quantile
from sfumato.privacy.range_law import RangeLaw, range_law
from sfumato.random import WordSource
from sfumato.types import Neighbours

if TYPE_CHECKING:
    from sfumato.types import Integers
    from sfumato.vault.sensitive import Sensitive
    from sfumato.vault.tables import Table

__all__ = ["RangeSearch", "range_searches"]

_SIZES: Final = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 70.0, 100.0)


@dataclass(frozen=True)
class RangeSearch:
    """The two ends between which nearly all records lie, and about how many have a value."""

    attribute: OpenRange
    law: RangeLaw
    unit: PrivacyUnit | None

    @property
    def cost(self) -> Cost:
        """That of the law."""
        return self.law.cost

    def request(self) -> dict[str, object]:
        """The attribute and the law."""
        return {**self.attribute.request(), "noise": self.law.as_json()}

    def simulated(self, records: int, shape: Shape = "lognormal") -> RangeForecast:
        """How the search goes on so many records of a declared shape; no table is read.

        Args:
            records: How many records have a value.
            shape: ``"normal"``, ``"lognormal"``, ``"pareto"``, ``"uniform"`` or ``"constant"``.

        Returns:
            Shares of simulated searches.

        Raises:
            PlanError: The shape is none of these.
        """
        return forecast_range(self.law, records, shape)

    @cached_property
    def sure_records(self) -> int:
        """How many lognormal records are enough for an octave in 95% of searches, by simulation.

        One of 1, 1.5, 2, 3, 5, ..., 100 times the least records.
        """
        several = (int(self.law.least_records * size) for size in _SIZES)
        enough = (n for n in several if self.simulated(n).octave >= 0.95)
        return next(enough, int(_SIZES[-1] * self.law.least_records))

    def forecast(self) -> dict[str, object]:
        """How many records a range needs."""
        return {
            "columns": list(self.attribute.columns),
            "law": "ranges",
            "epsilon": float(self.law.epsilon),
            "least_records": self.law.least_records,
            "records_for_95": self.sure_records,
        }

    def in_words(self) -> str:
        """How many records a range needs to be found, and to be found well."""
        share = float(self.attribute.tails)
        return (
            f"{self.attribute.name}: with fewer than about {self.law.least_records:,} values the "
            f"default range is used; with {self.sure_records:,} both ends are within an octave of "
            f"the {share:.3g} and {1 - share:.3g} points in 95% of runs"
        )

    def count(self, table: Table) -> Sensitive[Integers]:
        """The exact numbers of records in the cells of the grid, in the vault."""
        from sfumato.vault.range_search import read_grids

        return read_grids(table, [self.attribute.grid], self.unit)[0]

    def draw(self, exact: object, random: WordSource) -> Findings:
        """The ends, the noisy number of records, and how many bins that is enough for."""
        from sfumato.vault.range_search import search_range
        from sfumato.vault.sensitive import Sensitive

        assert isinstance(exact, Sensitive)  # noqa: S101  of count
        grid = self.attribute.grid
        places = search_range(exact, grid, self.law, random)
        is_default = places.number < self.law.least_records
        ends = grid.default if is_default else (grid.value(places.low), grid.value(places.high))
        return {
            "records": places.number,
            "low": ends[0],
            "high": ends[1],
            "bins": bins_for(places.number, float(1 / self.law.epsilon)),
            "default": is_default,
        }

    def rows(
        self, findings: Findings, level: float, most: int | None = None
    ) -> list[dict[str, object]]:
        """One row: the range, and the number of records with a value."""
        del most  # one row is never too many
        number = findings["records"]
        assert isinstance(number, int)  # noqa: S101  JSON of draw
        half = laplace_quantile(self.law.number.scale, Fraction(level))
        low, high = self.attribute.ends(findings)
        default = " (default: too few records)" if findings["default"] else ""
        return [
            {
                "column": self.attribute.name,
                "key": f"{low} to {high}{default}",
                "count": number,
                "standard_error": 2**0.5 * float(self.law.number.scale),
                "low": max(number - half, 0),
                "high": max(number + half, 0),
            }
        ]


def range_searches(
    attributes: Sequence[OpenAttribute],
    epsilon: Fraction,
    delta: Fraction,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
) -> list[RangeSearch]:
    """A search for every range, each with as much epsilon; ranges need no delta."""
    del delta
    moves = moves_of(neighbours, unit).l1
    each = epsilon / len(attributes)
    ranges = [a for a in attributes if isinstance(a, OpenRange)]
    return [RangeSearch(a, range_law(each, moves, a.tails), unit) for a in ranges]
