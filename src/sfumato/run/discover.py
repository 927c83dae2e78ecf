# SPDX-License-Identifier: Apache-2.0
"""Private discovery: values, ranges and kinds of columns that the schema does not declare.

    plan = sf.plan_discovery(sf.Category.discover("city"), sf.Budget(epsilon=1, delta=1e-6))
    print(plan)                                  # how many people a value needs to be found
    found = plan.release("people.parquet", ledger="people.ledger")
    found.counts                                 # the values that many people share
    found.domain                                 # a closed domain: plan on it

An `OpenDomain` says what is to be discovered. Each kind of open attribute is searched by the finder
of its name (`FINDERS`), which returns a `Search`: what it costs, what it counts in the vault, what
it draws after the debit, and how that reads. The plan is run by the spine as all others: the same
discovery on the same table returns the stored one. Mathematics: docs/mechanisms/keys.md. Proof:
docs/proofs/keys.md.

The range of a column is searched on a public grid (``domain/range_grids.py``): about how many
records have a value leaves the vault, and the two edges between which nearly all of them lie.
Mathematics: docs/mechanisms/ranges.md. Proof: docs/proofs/ranges.md.

The kind of a column without types is learnt by votes, as `sf.describe` does: every value is in one
of six classes (`sfumato.domain.column_kinds`); their sizes get Laplace noise, and the kind is a
function of what comes out and of the name of the column. Proof: docs/proofs/kinds.md.

How many rows of one unit are counted is found by a sparse vector over public bounds: the first that
about so many units exceed, or fewer. The unit with this bound is for the plans that follow, in the
same ledger. Proof: docs/proofs/units.md, Theorem 8.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from sfumato.digest import canonical_json
from sfumato.domain.attributes import Attribute
from sfumato.domain.column_kinds import CLASSES, OpenKind, ValueClass, voted
from sfumato.domain.discovery import (
    Findings,
    OpenAttribute,
    OpenCategory,
    OpenDomain,
    OpenRange,
    OpenUnit,
)
from sfumato.domain.domain_limits import LIMITS as DOMAIN_LIMITS
from sfumato.domain.draft import Kind
from sfumato.domain.privacy_unit import PrivacyUnit, check_privacy_unit
from sfumato.errors import PlanError, TableError
from sfumato.planning.adaptive_costs import moves_of
from sfumato.planning.discovery_plans import (
    RangeForecast,
    Shape,
    bins_for,
    bound_law,
    forecast_range,
    key_law,
)
from sfumato.planning.planning_limits import LIMITS as PLANNING_LIMITS
from sfumato.planning.sparse_plans import tolerance
from sfumato.privacy.budget import Budget, check_neighbours
from sfumato.privacy.cost import Cost
from sfumato.privacy.discovery_laws import (
    KeyLaw,
    RangeLaw,
    count_interval,
    people_for,
    range_law,
    shown_level,
)
from sfumato.privacy.noise_laws import laplace_quantile
from sfumato.privacy.sparse_vector import NoiseLaw, SparseLaw
from sfumato.random import Draws, WordSource, system_words
from sfumato.release.provenance import cost_in_words
from sfumato.run.run_limits import LIMITS
from sfumato.run.spine import PlanRun, ReleasePlan
from sfumato.text import STORED, listing, shown
from sfumato.types import Neighbours, Progress
from sfumato.workload.statements.sql_top import top_keys

if TYPE_CHECKING:
    import pandas as pd

    from sfumato.domain.domain import Domain
    from sfumato.ledger.entries import Entry
    from sfumato.types import Integers
    from sfumato.vault.count import Sensitive
    from sfumato.vault.mechanisms.searches import ExactKeys
    from sfumato.vault.tables import Table

__all__ = [
    "FINDERS",
    "BoundSearch",
    "Discovery",
    "DiscoveryPlan",
    "DiscoveryRun",
    "Finder",
    "KeySearch",
    "KindSearch",
    "RangeSearch",
    "Search",
    "kind_searches",
    "plan_discovery",
    "range_searches",
]

_VOTE_SIZES: Final = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20)
_PLAIN: Final[tuple[tuple[ValueClass, Kind], ...]] = (
    ("whole", "integer"),
    ("fraction", "numeric"),
    ("date", "datetime"),
    ("truth", "boolean"),
    ("text", "category"),
)
"""Columns of one class, and what they are."""
_ODD: Final[dict[Kind, tuple[ValueClass, ...]]] = {
    "integer": ("fraction", "date", "truth", "text"),
    "numeric": ("date", "truth", "text"),
    "datetime": ("whole", "bit", "fraction", "truth", "text"),
    "boolean": ("whole", "fraction", "date", "text"),
}
"""Classes whose values a column of the kind cannot hold; a category holds all."""


@dataclass(frozen=True)
class KindSearch:
    """The noisy sizes of the classes of a column."""

    attribute: OpenKind
    law: NoiseLaw
    moves: int
    unit: PrivacyUnit | None

    @property
    def cost(self) -> Cost:
        """That of Laplace noise on a histogram.

        Privacy: docs/proofs/kinds.md, Theorem 1: a record is in one class at most, so that
        neighbours differ by ``moves`` in L1.
        """
        return Cost.pure(self.moves / self.law.scale, steps=self.moves)

    def request(self) -> dict[str, object]:
        """The column and the noise."""
        noise = {"noise": [self.law.kind, str(self.law.scale)], "moves": self.moves}
        return {**self.attribute.request(), **noise}

    def forecast(self) -> dict[str, object]:
        """How large the noise is, and how many records are enough."""
        return {
            "columns": list(self.attribute.columns),
            "law": "kinds",
            "epsilon": float(self.cost.pure_epsilon),
            "standard_error": laplace_quantile(self.law.scale, Fraction(2, 3)),
            "records_for_97": self.sure_records,
        }

    @cached_property
    def sure_records(self) -> int:
        """How many records of one class are enough to name their kind in 97% of votes.

        By simulation with noise of the same scale, for the worst of five plain columns of a name
        that says nothing; one of a few multiples of the scale.
        """
        scale = float(self.law.scale)
        runs = LIMITS.vote_simulations
        noise = scale * Draws("kinds").laplaces(runs * len(CLASSES)).reshape(runs, len(CLASSES))
        for size in _VOTE_SIZES:
            if all(_share_right(noise, size * scale, scale, *plain) >= 0.97 for plain in _PLAIN):
                return int(size * scale) + 1
        return int(_VOTE_SIZES[-1] * scale) + 1

    def in_words(self) -> str:
        """What is asked, and how many records are enough."""
        return (
            f"{self.attribute.name}: whether its texts are whole numbers, numbers, dates, yes or "
            f"no, or other texts; right in 97% of runs with {self.sure_records:,} values of a kind"
        )

    def count(self, table: Table) -> Sensitive[Integers]:
        """The exact sizes of the classes, in the vault."""
        from sfumato.vault.mechanisms.searches import read_classes

        return read_classes(table, self.attribute, self.unit)

    def draw(self, exact: object, random: WordSource) -> Findings:
        """The noisy sizes, by the names of the classes."""
        from sfumato.vault.count import Sensitive
        from sfumato.vault.mechanisms.searches import noisy_classes

        assert isinstance(exact, Sensitive)  # noqa: S101  of count
        sizes = noisy_classes(exact, self.law, random)
        return dict(zip(CLASSES, sizes, strict=True))

    def kind(self, findings: Findings) -> Kind:
        """What the column is, by the vote and its name: arithmetic on what was published."""
        return voted(self.attribute.name, sizes_of(findings), float(self.law.scale))

    def odd_values(self, findings: Findings) -> int:
        """About how many values are none of the kind, where that is more than noise; else 0."""
        sizes, kind = sizes_of(findings), self.kind(findings)
        odd = sum(sizes[name] for name in _ODD.get(kind, ()))
        scale = float(self.law.scale)
        return odd if odd > LIMITS.odd_noise * scale else 0

    def rows(
        self, findings: Findings, level: float, most: int | None = None
    ) -> list[dict[str, object]]:
        """One row for each class with its noisy size and an interval."""
        half = laplace_quantile(self.law.scale, Fraction(level))
        del most
        return [
            {
                "column": self.attribute.name,
                "key": name,
                "count": size,
                "standard_error": float(self.law.scale) * 2**0.5,
                "low": max(size - half, 0),
                "high": max(size + half, 0),
            }
            for name, size in sizes_of(findings).items()
        ]


def sizes_of(findings: Findings) -> Mapping[ValueClass, int]:
    """The noisy sizes of all classes."""
    return {name: int(str(findings[name])) for name in CLASSES}


def _share_right(
    noise: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    records: float,
    scale: float,
    plain: ValueClass,
    kind: Kind,
) -> float:
    exact = np.array([records * (name == plain) for name in CLASSES])
    votes = [voted("", dict(zip(CLASSES, row, strict=True)), scale) for row in noise + exact]
    return sum(vote == kind for vote in votes) / len(votes)


def kind_searches(
    attributes: Sequence[OpenAttribute],
    epsilon: Fraction,
    delta: Fraction,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
) -> list[KindSearch]:
    """A search for each column, all of them together within epsilon; no delta is needed.

    Privacy: docs/proofs/kinds.md, Theorem 1, and basic composition over the columns.
    Neighbours: those that are named, of one row or of a unit with up to ``unit.rows`` rows.
    """
    del delta
    moves = moves_of(neighbours, unit).l1
    law = NoiseLaw("laplace", moves * len(attributes) / epsilon)
    return [KindSearch(a, law, moves, unit) for a in attributes if isinstance(a, OpenKind)]


class Search(Protocol):
    """How one open attribute is discovered: public, of known cost."""

    @property
    def attribute(self) -> OpenAttribute:
        """What is discovered."""
        ...

    @property
    def cost(self) -> Cost:
        """What it costs."""
        ...

    def request(self) -> dict[str, object]:
        """What is paid for, as JSON: equal meaning, equal JSON."""
        ...

    def forecast(self) -> dict[str, object]:
        """What can be expected of it, as JSON, from public numbers."""
        ...

    def in_words(self) -> str:
        """The forecast in one sentence."""
        ...

    def count(self, table: Table) -> object:
        """Exact numbers, in the vault, before the debit."""
        ...

    def draw(self, exact: object, random: WordSource) -> Findings:
        """What is published, as JSON; in the vault, once, after the debit."""
        ...

    def rows(
        self, findings: Findings, level: float, most: int | None = None
    ) -> list[dict[str, object]]:
        """What was published, one row for each key or bound, with intervals at this level.

        At most so many keys of a column, the largest.
        """
        ...


@dataclass(frozen=True)
class KeySearch:
    """The keys that many people share, with their noisy numbers of people."""

    attribute: OpenCategory
    law: KeyLaw
    unit: PrivacyUnit | None

    @property
    def cost(self) -> Cost:
        """That of the law."""
        return self.law.cost

    def request(self) -> dict[str, object]:
        """The attribute and the law."""
        return {**self.attribute.request(), "noise": self.law.request()}

    def forecast(self) -> dict[str, object]:
        """How many people a key needs, and how well they are counted."""
        return {
            "columns": list(self.attribute.columns),
            "law": self.law.name,
            "threshold": self.law.threshold,
            "people_for_half": people_for(self.law, 0.5),
            "people_for_95": people_for(self.law, 0.95),
            "standard_error": self.law.standard_error,
        }

    def in_words(self) -> str:
        """How many people a key needs to be published."""
        half, sure = people_for(self.law, 0.5), people_for(self.law, 0.95)
        return (
            f"{self.attribute.name}: a value that {half:,} people share is published every other "
            f"time, one of {sure:,} in 95% of runs; counts have a standard error of "
            f"{self.law.standard_error:,.3g}"
        )

    def count(self, table: Table) -> ExactKeys:
        """The keys of the table, exact, in the vault; refused where the schema says it is in vain.

        Raises:
            TableError: A constraint says that no two records share a value.
        """
        from sfumato.vault.mechanisms.searches import read_keys

        unique = [name for name in self.attribute.columns if name in table.unique]
        if unique:
            raise TableError(
                f"{table.name}: by a constraint (PRIMARY KEY or UNIQUE) no two records share a "
                f"value of {unique[0]!r}, so nothing was spent, for none can be found; leave it out"
            )
        return read_keys(table, self.attribute.columns, self.unit)

    def draw(self, exact: object, random: WordSource) -> Findings:
        """The published keys and their noisy numbers of people."""
        from sfumato.vault.mechanisms.searches import ExactKeys

        assert isinstance(exact, ExactKeys)  # noqa: S101  of count
        keys, numbers, passed = exact.published(self.law, self.attribute.most, random)
        is_cut = {"passed": passed} if passed > self.attribute.most else {}
        return {"keys": [list(key) for key in keys], "numbers": numbers, **is_cut}

    def rows(
        self, findings: Findings, level: float, most: int | None = None
    ) -> list[dict[str, object]]:
        """The published keys with their counts, standard errors and intervals: the first if cut.

        Where the k largest of m keys are shown, each interval is of the level that makes a share of
        at most 1 - level of the k intervals miss, on average (docs/proofs/keys.md, Theorem 6).
        """
        keys, numbers = findings["keys"], findings["numbers"]
        assert isinstance(keys, Sequence)  # noqa: S101  JSON of draw
        assert isinstance(numbers, Sequence)  # noqa: S101
        passed = int(str(findings.get("passed", len(keys))))
        keys, numbers = keys[:most], numbers[:most]
        level = shown_level(level, len(keys), passed)
        ends = {number: count_interval(self.law, number, level) for number in set(numbers)}
        return [
            {
                "column": self.attribute.name,
                "key": key[0] if len(key) == 1 else tuple(key),
                "count": number - self.law.mean,
                "standard_error": self.law.standard_error,
                "low": ends[number][0],
                "high": ends[number][1],
            }
            for key, number in zip(keys, numbers, strict=True)
        ]


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
        from sfumato.vault.mechanisms.searches import read_grids

        return read_grids(table, [self.attribute.grid], self.unit)[0]

    def draw(self, exact: object, random: WordSource) -> Findings:
        """The ends, the noisy number of records, and how many bins that is enough for."""
        from sfumato.vault.count import Sensitive
        from sfumato.vault.mechanisms.searches import search_range

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


@dataclass(frozen=True)
class BoundSearch:
    """The first bound on the rows of one unit that about so many units exceed, or fewer."""

    attribute: OpenUnit
    law: SparseLaw

    @property
    def bounds(self) -> tuple[int, ...]:
        """The bounds that are tried; beyond them is the largest, which takes no test."""
        return self.attribute.grid[:-1]

    @property
    def cost(self) -> Cost:
        """That of the law.

        Privacy: docs/proofs/units.md, Theorem 8.
        """
        return self.law.cost

    @cached_property
    def persons(self) -> int:
        """How many units may have more rows: at least as many as noise can hide.

        So the walk ends where no unit has more, and does not go on to the largest bound.
        """
        return max(self.attribute.persons, self.tolerance(1 - PLANNING_LIMITS.bound_end))

    def tolerance(self, level: float) -> int:
        """How many units a test is off by, at most, in all tests of a share ``level`` of runs."""
        return tolerance(self.law, len(self.bounds), 1 - level)

    def request(self) -> dict[str, object]:
        """The column, the bounds, the noise, and how many units may have more rows."""
        noise = {"noise": self.law.as_json(), "persons": self.persons}
        return {**self.attribute.request(), **noise}

    def forecast(self) -> dict[str, object]:
        """How many units may have more rows than the bound, and how many surely have."""
        sure = 1 - PLANNING_LIMITS.bound_miss
        return {
            "columns": list(self.attribute.columns),
            "law": "bounds",
            "epsilon": float(self.cost.pure_epsilon),
            "most": self.attribute.most,
            "persons": self.persons,
            "persons_at_most": self.persons + self.tolerance(sure),
        }

    def in_words(self) -> str:
        """What the bound will leave out."""
        sure = 1 - PLANNING_LIMITS.bound_miss
        off, least = self.tolerance(sure), self.persons - self.tolerance(sure)
        smaller = f"and more than {least:,} exceed every smaller one that is tried"
        return (
            f"{self.attribute.name}: the least number of rows that about {self.persons:,} of its "
            f"values exceed; in {sure:.0%} of runs fewer than {self.persons + off:,} exceed it "
            f"{smaller}"
        )

    def count(self, table: Table) -> Sensitive[Integers]:
        """The exact numbers of units that have more rows than each bound, in the vault."""
        from sfumato.vault.mechanisms.searches import read_bounds

        return read_bounds(table, self.attribute.columns[0], self.bounds)

    def draw(self, exact: object, random: WordSource) -> Findings:
        """The bound."""
        from sfumato.vault.count import Sensitive
        from sfumato.vault.mechanisms.searches import search_bound

        assert isinstance(exact, Sensitive)  # noqa: S101  of count
        place = search_bound(exact, self.persons, self.law, random)
        return {"rows": self.attribute.grid[-1 if place is None else place]}

    def rows(
        self, findings: Findings, level: float, most: int | None = None
    ) -> list[dict[str, object]]:
        """One row: the bound, and how many units may have more rows.

        The interval is about these units. All tests hold at once in a share ``level`` of runs, so
        that the choice of the bound does not matter; beyond the largest bound nothing was tested.
        """
        del most  # one row is never too many
        unit = self.attribute.unit(findings)
        is_tested = unit.rows != self.attribute.most
        beyond = self.persons + self.tolerance(level) if is_tested else DOMAIN_LIMITS.rows_per_unit
        return [
            {
                "column": self.attribute.name,
                "key": f"at most {unit.rows:,} rows",
                "count": self.persons,
                "standard_error": 2**0.5 * float(self.law.query.scale),
                "low": 0,
                "high": beyond,
            }
        ]


def _bound_searches(
    attributes: Sequence[OpenAttribute],
    epsilon: Fraction,
    delta: Fraction,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
) -> list[Search]:
    """A search for each bound, each with as much epsilon, for either kind of neighbours."""
    del delta, neighbours, unit
    each = epsilon / len(attributes)
    units = [a for a in attributes if isinstance(a, OpenUnit)]
    return [BoundSearch(a, bound_law(each, max(len(a.grid) - 1, 1))) for a in units]


@dataclass(frozen=True, slots=True)
class Finder:
    """How the open attributes of one kind are searched.

    ``searches`` returns one search for each attribute, all of them together within (epsilon,
    delta); ``needs_delta`` says whether it has any use for a delta of its own.
    """

    searches: Callable[
        [Sequence[OpenAttribute], Fraction, Fraction, Neighbours, PrivacyUnit | None],
        Sequence[Search],
    ]
    needs_delta: bool


def _key_searches(
    attributes: Sequence[OpenAttribute],
    epsilon: Fraction,
    delta: Fraction,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
) -> list[Search]:
    law = key_law(len(attributes), epsilon, delta, neighbours, unit)
    return [KeySearch(a, law, unit) for a in attributes if isinstance(a, OpenCategory)]


FINDERS: Final[dict[str, Finder]] = {
    OpenCategory.mechanism: Finder(_key_searches, needs_delta=True),
    OpenRange.mechanism: Finder(range_searches, needs_delta=False),
    OpenKind.mechanism: Finder(kind_searches, needs_delta=False),
    OpenUnit.mechanism: Finder(_bound_searches, needs_delta=False),
}
"""By `OpenAttribute.mechanism`: who searches what."""


@dataclass(frozen=True, eq=False, repr=False)
class DiscoveryPlan(ReleasePlan["Discovery"]):
    """What is discovered, how, for how much and how well: public, known before it is spent.

    Args:
        domain: What is to be discovered, and what is declared already.
        budget: What the discovery may spend.
        neighbours: Which two tables must be hard to tell apart.
        unit: Whose presence is protected; one row if None.
        searches: How each open attribute is discovered, in a public order.
        confidence: The probability with which an interval of a published count holds.
    """

    domain: OpenDomain
    budget: Budget
    neighbours: Neighbours
    unit: PrivacyUnit | None
    searches: tuple[Search, ...]
    confidence: float

    @cached_property
    def cost(self) -> Cost:
        """What is debited, before any noise is drawn."""
        cost = Cost(())
        for search in self.searches:
            cost = cost + search.cost
        return cost

    @property
    def guarantee(self) -> str:
        """What can be expected, in words."""
        return "; ".join(search.in_words() for search in self.searches)

    def __repr__(self) -> str:
        names = ", ".join(each.name for each in self.domain.open)
        return f"DiscoveryPlan of {names} at {self.budget.describe()}: {self.guarantee}"

    def request(self) -> dict[str, object]:
        """The public description of what is discovered, as the ledger keeps it.

        Returns:
            What the ledger keeps of the request, as JSON.
        """
        unit = self.unit
        return {
            "mechanism": "discovery",
            "searches": [search.request() for search in self.searches],
            "neighbours": self.neighbours,
            "unit": unit and unit.as_json(),
            "budget": self.budget.as_json(),
        }

    def runnable(self) -> DiscoveryRun:
        """This discovery as the spine runs it.

        Returns:
            The plan in the parts that are called in turn.
        """
        return DiscoveryRun(self)

    def as_json(self) -> dict[str, object]:
        """The plan for programs: what `sfumato discover --json` says of it.

        Returns:
            JSON.
        """
        return {
            "searches": [search.forecast() for search in self.searches],
            "confidence": self.confidence,
            "budget": {n: float(Fraction(v)) for n, v in self.budget.as_json().items()},
            "cost": self.cost.as_json(),
            "neighbours": self.neighbours,
        }


@dataclass(frozen=True, eq=False, repr=False)
class Discovery:
    """What was discovered; all of it is public.

    Args:
        plan: What was discovered, and how.
        findings: What each search of the plan published.
        entry: The debit that paid for it; None without a ledger.
        is_stored: Whether the ledger had it already: then nothing was spent now.
    """

    plan: DiscoveryPlan
    findings: tuple[Findings, ...]
    entry: Entry | None
    is_stored: bool = False

    @property
    def cost(self) -> Cost:
        """What it costs, when it is paid for."""
        return self.plan.cost

    @cached_property
    def domain(self) -> Domain:
        """The closed domain: plan on it. A column of which nothing was published is left out."""
        pairs = zip(self.plan.searches, self.findings, strict=True)
        published = {search.attribute.columns: findings for search, findings in pairs}
        return self.plan.domain.closed([published[a.columns] for a in self.plan.domain.open])

    @property
    def unit(self) -> PrivacyUnit | None:
        """Whose presence plans that follow protect: with its bound, where that was discovered.

        Else the unit of the plan; None for one row.
        """
        return self.plan.unit if self._bound is None else self._bound

    @property
    def _bound(self) -> PrivacyUnit | None:
        pairs = zip(self.plan.searches, self.findings, strict=True)
        units = (s.attribute.unit(f) for s, f in pairs if isinstance(s.attribute, OpenUnit))
        return next(units, None)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes that were discovered."""
        pairs = zip(self.plan.searches, self.findings, strict=True)
        return tuple(a for search, findings in pairs for a in search.attribute.closed(findings))

    @cached_property
    def counts(self) -> pd.DataFrame:
        """Every published key with its count: the largest first, column by column.

        ``count`` is the noisy number of people (rows, or privacy units), and ``low`` to ``high``
        an interval of the true one. The intervals are about keys that were published: of the runs
        that publish a key, they hold its true count in at least ``plan.confidence``. Where more
        keys passed than are shown (``sf.top``), they are longer, for those with lucky noise are the
        ones one sees: on average at least that share of the shown intervals holds.
        """
        import pandas as pd

        return pd.DataFrame(self._rows(), columns=list(_COLUMNS))

    def top(self, k: int) -> pd.DataFrame:
        """The k keys of every column with the largest noisy counts; costs nothing more.

        Args:
            k: How many.

        Returns:
            The first rows of ``counts`` of every column, with the intervals of the largest.

        Raises:
            PlanError: k is no number of keys.
        """
        import pandas as pd

        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise PlanError(f"k must be a whole number of at least 1, got {shown(k)}")
        return pd.DataFrame(self._rows(k), columns=list(_COLUMNS))

    def to_toml(self) -> str:
        """The closed domain as the tables of a schema file.

        Returns:
            A text that `sf.Domain.from_toml` reads.
        """
        return self.domain.to_toml()

    def as_json(self) -> dict[str, object]:
        """What was published, for programs.

        Returns:
            JSON.
        """
        rows = [{**row, "key": _key_json(row["key"])} for row in self._rows()]
        unit = {"unit": self._bound.as_json()} if self._bound is not None else {}
        return {**self.plan.as_json(), "keys": rows, **unit}

    def _rows(self, most: int | None = None) -> list[dict[str, object]]:
        pairs = zip(self.plan.searches, self.findings, strict=True)
        level = self.plan.confidence
        return [row for search, findings in pairs for row in search.rows(findings, level, most)]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{a.value_count:,} of {a.name}" for a in self.attributes)
        sizes = sizes if self._bound is None else repr(self._bound)
        spent = STORED if self.is_stored else cost_in_words(self.cost, self.plan.budget)
        return f"Discovery of {sizes or 'no values'} ({spent})"


_COLUMNS: Final = ("column", "key", "count", "standard_error", "low", "high")


def _key_json(key: object) -> object:
    return list(key) if isinstance(key, tuple) else key


@dataclass(frozen=True, eq=False)
class DiscoveryRun(PlanRun["list[object]", Discovery]):
    """A discovery as the spine runs it."""

    plan: DiscoveryPlan

    @property
    def domain(self) -> OpenDomain:
        """The columns that are read."""
        return OpenDomain(self.plan.domain.open)

    def request(self) -> Mapping[str, object]:
        """That of the plan."""
        return self.plan.request()

    def count(self, table: Table | None, progress: Progress | None) -> list[object]:
        """The exact keys of every search, in the vault."""
        assert table is not None  # noqa: S101
        exact = []
        for i, search in enumerate(self.plan.searches):
            if progress is not None:
                progress(i, len(self.plan.searches), "counting")
            exact.append(search.count(table))
        return exact

    def draw(self, exact: list[object], progress: Progress | None) -> bytes:
        """What is published, as JSON."""
        del progress
        return drawn(self.plan, exact)

    def publish(
        self, answer: bytes, entry: Entry | None, is_stored: bool, progress: Progress | None
    ) -> Discovery:
        """What was published, as people read it."""
        del progress
        findings = tuple(json.loads(answer)["findings"])
        return Discovery(self.plan, findings, entry, is_stored)


def drawn(plan: DiscoveryPlan, exact: Sequence[object], random: WordSource | None = None) -> bytes:
    """What every search publishes, as JSON.

    Privacy: costs ``plan.cost``, which is debited before: docs/proofs/keys.md, Theorem 5.
    Neighbours: those of ``plan_discovery``.
    """
    random = system_words() if random is None else random
    pairs = zip(plan.searches, exact, strict=True)
    return canonical_json({"findings": [s.draw(e, random) for s, e in pairs]}).encode()


def plan_discovery(
    domain: OpenDomain | OpenAttribute | Sequence[Attribute | OpenAttribute] | str,
    budget: Budget,
    neighbours: Neighbours = "add-remove",
    *,
    unit: PrivacyUnit | None = None,
    confidence: float = 0.95,
) -> DiscoveryPlan:
    """Plan to discover what columns hold; touches no data, costs nothing.

    Privacy: none is spent here; a release is within ``budget``: docs/proofs/keys.md, Theorem 5.
    Error: `DiscoveryPlan.guarantee`: how many people a key needs to be published.

    Args:
        domain: What is to be discovered: `sf.OpenDomain`, ``sf.Category.discover("city")``,
            ``sf.top(3, "city")``, or a SELECT of the most common values: ``SELECT city FROM t GROUP
            BY city ORDER BY COUNT(*) DESC LIMIT 3``; or, by itself, how many rows of a unit to
            count: ``sf.PrivacyUnit.discover("patient", persons=100)``.
        budget: What the discovery may spend: epsilon and delta. Columns share it alike. Ranges and
            bounds need no delta.
        neighbours: Which two tables must be hard to tell apart.
        unit: Whose presence is protected; one row if None. With a unit, counts are of units, of
            which each counts for at most ``rows`` different keys of a column.
        confidence: The probability with which the interval of a published count holds.

    Returns:
        The plan; ``release`` runs it on a table.

    Raises:
        PlanError: An argument is wrong, or the budget does not fit.
        SchemaError: Nothing is to be discovered.
        SqlError: A text is no SELECT of the most common values.

    >>> import sfumato as sf
    >>> plan = sf.plan_discovery(sf.Category.discover("city"), sf.Budget(epsilon=1, delta=1e-6))
    >>> plan.as_json()["searches"][0]["people_for_half"]
    14
    """
    unit, neighbours = check_privacy_unit(unit), check_neighbours(neighbours)
    if isinstance(domain, str):
        domain = top_keys(domain, unit)
    if isinstance(domain, OpenAttribute):
        domain = OpenDomain([domain])
    elif not isinstance(domain, OpenDomain):
        domain = OpenDomain(domain)
    if not isinstance(budget, Budget):
        raise PlanError(f"budget must be sf.Budget(epsilon=..., delta=...), got {shown(budget)}")
    is_number = isinstance(confidence, int | float) and not isinstance(confidence, bool)
    if not is_number or not 0 < confidence < 1:
        raise PlanError(f"confidence must lie between 0 and 1, got {shown(confidence)}")
    unit = _searched_for(domain, unit)
    if unit is not None and not isinstance(domain.open[0], OpenUnit):
        same = [a.name for a in domain.open if unit.column in a.columns]
        if same:
            raise PlanError(
                f"{listing(same)} holds the privacy unit {unit.column!r}: each of its values "
                "belongs to one person, so that none can be published; leave it out"
            )
    # What is to be discovered has no cells yet, hence no groups: rows are bounded in any of them.
    counted = None if unit is None else unit.rows_alone
    searches = _searches(domain.open, budget, neighbours, counted)
    return DiscoveryPlan(domain, budget, neighbours, unit, searches, float(confidence))


def _searched_for(domain: OpenDomain, unit: PrivacyUnit | None) -> PrivacyUnit | None:
    """Whose presence a discovery protects; a bound is searched for by itself, and for its unit."""
    bounds = [each for each in domain.open if isinstance(each, OpenUnit)]
    if not bounds:
        return unit
    if len(domain.open) > 1 or domain.attributes:
        raise PlanError(
            "how many rows of a unit are counted is discovered first, by itself, because all else "
            "takes noise for it: plan what follows with unit=discovery.unit"
        )
    if unit is not None and unit.column != bounds[0].columns[0]:
        raise PlanError(
            f"a bound on the rows of {bounds[0].name!r} protects the values of that column, not "
            f"of {unit.column!r}; leave unit out"
        )
    return bounds[0].person


def _searches(
    attributes: Sequence[OpenAttribute],
    budget: Budget,
    neighbours: Neighbours,
    unit: PrivacyUnit | None,
) -> tuple[Search, ...]:
    """A search for every attribute: each gets as much epsilon, and those that need it the delta."""
    ordered = sorted(attributes, key=lambda a: canonical_json(a.request()))
    by_finder: dict[str, list[OpenAttribute]] = {}
    for attribute in ordered:
        by_finder.setdefault(attribute.mechanism, []).append(attribute)
    needs = sum(len(v) for k, v in by_finder.items() if FINDERS[k].needs_delta)
    if budget.epsilon is None or (needs and not budget.delta):
        names = ", ".join(a.name for a in ordered)
        raise PlanError(
            f"to discover {names} takes epsilon and delta: a value of one person may come out with "
            f"probability delta; got {budget.describe()}; give "
            "sf.Budget(epsilon=..., delta=...)"
        )
    delta = budget.delta or Fraction(0)
    made: dict[tuple[str, ...], Search] = {}
    for name, members in by_finder.items():
        finder = FINDERS[name]
        share = budget.epsilon * len(members) / len(ordered)
        events = delta * len(members) / needs if finder.needs_delta else Fraction(0)
        for search in finder.searches(members, share, events, neighbours, unit):
            made[search.attribute.columns] = search
    return tuple(made[a.columns] for a in ordered)
