# SPDX-License-Identifier: Apache-2.0
"""`Estimates`, the protocol of the numbers of a release, which every output of it reads.

Two sources keep it. A linear reconstruction (``release/linear_estimates.py``) has unbiased answers,
whose errors are known before anything is measured. A learned estimate (``release/learned.py``) has
answers that agree with each other, and intervals where what was measured tells an answer. Frames,
files, charts, reports and quantiles are written against this protocol alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sfumato.domain.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.planning.forecast import ALL, Coefficients, Forecast
from sfumato.refine.consistency import Refined
from sfumato.refine.intervals import Bounds
from sfumato.types import Array
from sfumato.workload.constraints import Constraints
from sfumato.workload.terms import Product, Term
from sfumato.workload.workload import Ratio, SecondMoment, Workload

if TYPE_CHECKING:
    from sfumato.domain.attributes import Attribute
    from sfumato.random import WordSource
    from sfumato.refine.synthesize import Synthetic

__all__ = [
    "Answers",
    "Band",
    "Combination",
    "Derived",
    "Estimates",
    "Further",
    "MeasuredBlock",
    "cell_table",
    "check_level",
]


MeasuredBlock = tuple[str, int, float]  # its name, the number of its values, their noise


def check_level(level: object) -> None:
    """Refuse what is no confidence level."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        named = '; groups of an attribute are asked as "attribute.level"'
        raise WorkloadError(
            f"a confidence level must lie strictly between 0 and 1, got {level!r}; 0.95 is usual"
            + (named if isinstance(level, str) else "")
        )


@dataclass(frozen=True, slots=True)
class Combination:
    """The value of a combination of answers, its standard error, and an interval.

    ``basis`` says what the interval comes from. Of learned estimates the value is that of the
    estimate, its standard error is not known (not-a-number), and so are the ends where nothing that
    was measured tells the combination.
    """

    value: float
    standard_error: float
    low: float
    high: float
    basis: str = field(default="the law of the noise", repr=False)

    def over(self, records: int) -> Combination:
        """The same combination of shares of a public number of records."""
        return Combination(
            self.value / records,
            self.standard_error / records,
            self.low / records,
            self.high / records,
            self.basis,
        )


@dataclass(frozen=True, eq=False)
class Further:
    """Answers to queries that were not asked: columns ``numbers``, and what they are made of."""

    columns: Mapping[str, Array]
    basis: str


@dataclass(frozen=True, eq=False)
class Derived:
    """A statistic that is not linear, row by row, and the numbers that stand beside it.

    ``columns`` are published in their order, the statistic under its own name among them; it is NaN
    where the noisy count is not positive. ``standard_error`` is that of the delta method: exact to
    first order, or an upper bound where the covariances are too many to be listed; NaN for learned
    estimates.
    """

    columns: Mapping[str, Array]
    value: Array
    standard_error: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class Band:
    """Ends that enclose running totals (rows: ``by`` cells) and the number of records.

    The four ends that matter to a quantile miss with probability at most ``1 - level`` in all;
    ``curve`` holds the rising totals that its value is read off.
    """

    lower: Array
    upper: Array
    least: Array
    most: Array
    curve: Array


class Answers(Protocol):
    """The answers of one group; every method gives those of some rows, by default of all."""

    def value(self, rows: slice = ALL) -> Array:
        """The published answers."""
        ...

    def interval(self, level: float, rows: slice = ALL) -> tuple[Array, Array]:
        """Ends that hold each true answer with probability ``level``; NaN where none do."""
        ...

    def numbers(self, level: float, rows: slice = ALL) -> tuple[Array, ...]:
        """All that is published of them, in the order of ``Estimates.numbers``."""
        ...


class Estimates(Protocol):
    """Answers to the workload and to further linear queries, and what they say about the truth.

    Privacy: functions of what left the vault and of public numbers (post-processing: Dwork, Roth
    2014, Proposition 2.1).
    """

    @property
    def workload(self) -> Workload:
        """What was asked."""
        ...

    @property
    def forecast(self) -> Forecast | None:
        """The errors that were known beforehand; None where they depend on the data."""
        ...

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of numbers that every answer has."""
        ...

    @property
    def rows(self) -> int | None:
        """The number of records where that is public."""
        ...

    @property
    def constraints(self) -> Constraints | None:
        """What all answers meet."""
        ...

    @property
    def refined(self) -> Refined | None:
        """The weighted cells behind answers that agree with each other, None where there are none.

        The weights of a learned estimate are shares, with sum 1.
        """
        ...

    @property
    def total(self) -> float:
        """The number of records: the public one, or an estimate."""
        ...

    def group(self, term: int) -> Answers:
        """All that is known of a group."""
        ...

    def interval_count(self, term: int) -> int:
        """How many answers of a group have an interval; the same at every level."""
        ...

    def means(self, ratio: Ratio, level: float) -> Derived:
        """The quotients of a ratio, with ends that hold the true ones."""
        ...

    def second_moments(self, moment: SecondMoment, level: float) -> Derived:
        """Variances, covariances or correlations, with ends that hold the true ones."""
        ...

    def bounds(self, term: Term) -> Bounds:
        """What the answers of a group can be, whatever the data are."""
        ...

    def further(self, target: Product, level: float) -> Further | None:
        """Answers to queries with coefficients 0 and 1; None if it cannot tell."""
        ...

    def band(self, attribute: Attribute, by: Sequence[str], level: float) -> Band | None:
        """The running totals of an attribute for every cell of ``by``; None if it cannot tell."""
        ...

    def combine(self, coefficients: Mapping[str, Coefficients], level: float) -> Combination:
        """A linear combination of answers of named groups."""
        ...

    def covariance(self, group: str, queries: Sequence[int]) -> Array:
        """The covariances of listed answers of a group, where the law of their errors is known."""
        ...

    def table(self, names: Sequence[str]) -> Array:
        """Counts over attributes, of the cells behind all answers."""
        ...

    def listed(self) -> Estimates:
        """What is written down: groups that nobody can list in a shorter form."""
        ...

    def reduced(self) -> Estimates:
        """What a file holds: what `restored` cannot compute again."""
        ...

    def restored(self) -> Estimates:
        """The whole of what was `reduced`."""
        ...

    def draw(self, rows: int | None, random: WordSource) -> Synthetic:
        """Records like those that the answers describe."""
        ...

    def blocks(self) -> Iterator[MeasuredBlock]:
        """What was measured, in order, and the standard deviation of its noise in counts."""
        ...


def cell_table(refined: Refined, domain: Domain, names: Sequence[str]) -> Array:
    """The weighted cells over some attributes; cells that are not told apart share their class.

    Where the answers come from tables, one that holds all of the attributes tells its margin.
    """
    for whole, table in refined.tables.items():
        if set(names) <= set(whole):
            rest = tuple(i for i, name in enumerate(whole) if name not in names)
            left = [name for name in whole if name in names]
            turned = table.sum(axis=rest).transpose([left.index(name) for name in names])
            return np.asarray(turned, dtype=np.float64)
    if not names:
        return np.asarray(refined.weights.sum(), dtype=np.float64)
    shape = tuple(domain[n].size for n in names)
    at = [refined.codes[:, refined.attributes.index(n)] for n in names]
    alike = refined.alike
    classes = [np.asarray(alike.get(n, np.arange(s))) for n, s in zip(names, shape, strict=True)]
    merged = np.zeros([int(c.max()) + 1 for c in classes])
    places = tuple(c[column] for c, column in zip(classes, at, strict=True))
    np.add.at(merged, places, refined.weights)
    sizes = np.ones(())
    for c in classes:
        sizes = np.multiply.outer(sizes, np.bincount(c)[c])
    spread = merged[np.ix_(*classes)] if prod(shape) else merged
    return np.asarray(spread / sizes, dtype=np.float64)
