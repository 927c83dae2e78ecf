# SPDX-License-Identifier: Apache-2.0
"""What every kind of term can do: the interface that plans, vault and release code against."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from sfumato.domain import Domain
from sfumato.domain.values import unit_bits
from sfumato.errors import WorkloadError
from sfumato.workload.queries import Array, Numbers, check_entries, widened

if TYPE_CHECKING:
    from sfumato.workload.predicates import Condition
    from sfumato.workload.products import Product

__all__ = ["Said", "Term", "check_order"]


class Said(str):
    """A text for people that knows its parts, so that nobody has to take it apart again.

    The name of a group of queries knows what is computed and under which condition; the label of a
    query knows its group: a value for each column. ``binned`` is the attribute whose records a sum
    counts as the middles of their bins, if any.
    """

    aggregate: str
    condition: str
    groups: tuple[tuple[str, object], ...]
    binned: str

    def __new__(
        cls,
        text: str,
        aggregate: str = "",
        condition: str = "",
        groups: tuple[tuple[str, object], ...] = (),
        binned: str = "",
    ) -> Said:
        """The text with its parts."""
        self = super().__new__(cls, text)
        self.aggregate, self.condition, self.groups = aggregate, condition, groups
        self.binned = binned
        return self

    def renamed(self, text: str) -> Said:
        """Another text for the same parts."""
        return Said(text, self.aggregate, self.condition, self.groups, self.binned)


@dataclass(frozen=True, eq=False)
class Term(ABC):
    """A group of linear queries over the table of ``attributes``.

    ``weight`` says how much the queries matter to the planner; it does not scale the answers.
    """

    domain: Domain
    name: str
    weight: float

    @property
    @abstractmethod
    def attributes(self) -> tuple[str, ...]:
        """The attributes it looks at, in the order of the domain."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """The number of queries."""

    @abstractmethod
    def apply(self, table: Numbers) -> Numbers:
        """The answers on a table of shape ``shape``, as a vector.

        Integer tables give exact integers, scaled by 2^fraction_bits: in 64 bits while ``greatest
        * 2^fraction_bits`` times the total of the table is below 2^63, which the caller sees to;
        at any size for arrays of Python integers.
        """

    @abstractmethod
    def adjoint(self, y: Numbers) -> Array:
        """The transposed map: a value per query to a value per cell of the table."""

    @abstractmethod
    def column_factors(self, p: int) -> list[tuple[tuple[str, ...], Array]]:
        """Arrays over attributes whose product is, per cell, the sum of ``|q|^p`` over queries."""

    @abstractmethod
    def row_powers(self, p: int) -> Array:
        """For each query, the sum of ``|q|^p`` over the cells of the table."""

    @abstractmethod
    def coefficient_bounds(self) -> tuple[Array, Array]:
        """The least and the greatest coefficient of each query."""

    @property
    @abstractmethod
    def fraction_bits(self) -> int:
        """Every coefficient is a multiple of 2^-fraction_bits."""

    @property
    @abstractmethod
    def greatest(self) -> float:
        """The greatest absolute coefficient."""

    @property
    @abstractmethod
    def is_nonnegative(self) -> bool:
        """Whether no coefficient is below zero."""

    def as_product(self) -> Product | None:
        """The term as all combinations of one query per attribute.

        Returns:
            A product of query sets with these queries, or None where the term is no such product:
            strategies that work attribute by attribute do not take it then.
        """
        return None

    def as_conditions(self) -> tuple[Condition, ...]:
        """The conditions whose records it counts.

        Returns:
            One condition per query, or none where the queries are no conditions.
        """
        return ()

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of the answers: the queries along every attribute, where they are a product."""
        return (self.rows,)

    @property
    def is_table(self) -> bool:
        """Whether it asks for the table of its attributes itself."""
        return False

    @property
    def is_wide(self) -> bool:
        """Whether its table is too large to build; the engine then counts each condition."""
        return False

    @property
    def has_small_classes(self) -> bool:
        """Whether a table of all cells that its queries tell apart can be built."""
        return True

    def sources(self) -> tuple[Term, ...]:
        """The terms whose exact answers determine its own.

        Returns:
            The term itself, where its answers are read off the table of its attributes; others
            where they are combined from what these ask.
        """
        return (self,)

    def combine(self, answers: Sequence[Numbers], fits: bool) -> Numbers:  # noqa: ARG002
        """Its own answers from those of its sources, exactly.

        Args:
            answers: one array per term of ``sources``, integers in steps of 2^-fraction_bits of
                that term.
            fits: whether 64 bits hold the result; partial sums may then wrap around.

        Returns:
            Integers in steps of 2^-fraction_bits; Python integers unless ``fits``.
        """
        return answers[0]

    def gram_apply(self, table: Numbers) -> Array:
        """``F'F`` on a table of shape ``shape``, in floats."""
        return self.adjoint(self.apply(table))

    def squared_norm(self) -> float:
        """The sum of all squared coefficients over the table of its attributes."""
        return prod(float(v.sum()) for _, v in self.column_factors(2))

    def squared_diameter(self) -> float | None:
        """``max_ij |M_i - M_j|_2^2`` over pairs of columns: what one replaced record moves.

        Returns:
            An upper bound by the structure of the term, but for the last roundings, or None;
            0 only where all columns are equal.
        """
        return None

    def l1_diameter(self) -> float | None:
        """The same for ``max_ij |M_i - M_j|_1``, but for the last roundings; None if not known."""
        return None

    @property
    def slack(self) -> float:
        """How much farther apart, in L2, the values of two tables can be than ``M (h - h')``.

        0 where values are exact; where they are not, ``apply`` gives integers within this bound.
        """
        return 0.0

    @property
    def unit_bits(self) -> int:
        """The vault counts its table in steps of 2^-unit_bits records: 0, but for `Values`.

        Exact integers of ``apply`` on such a table are in steps of 2^-(fraction_bits + unit_bits).
        """
        return unit_bits(self.domain, self.attributes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table it reads."""
        return tuple(self.domain[a].size for a in self.attributes)

    @property
    def cells(self) -> int:
        """The number of cells of the table it reads."""
        return prod(self.shape)

    def weighted(self, factor: float) -> Term:
        """The same queries, mattering ``factor`` times as much."""
        return replace(self, weight=self.weight * factor)

    def in_its_own_unit(self) -> Term:
        """The same queries, an error of their greatest coefficient mattering as one count does.

        Sums of money and counts of people have no common unit; without this, noise would be shared
        out as if an error of one coin mattered as much as one person.
        """
        return self.weighted(1 / self.greatest) if self.greatest > 0 else self

    def answer(self, table: Numbers) -> Array:
        """The answers on a table, as floats; those on integers are computed exactly first."""
        numbers = widened(np.asarray(table))
        if numbers.dtype.kind not in "iO":
            return np.asarray(self.apply(numbers), dtype=np.float64)
        # No partial sum exceeds this, and floats of it err by far less than the factor 2 kept.
        reach = float(np.abs(numbers.astype(np.float64)).sum()) * self.greatest
        if numbers.dtype.kind == "i" and reach * 2.0**self.fraction_bits >= 2.0**62:
            numbers = numbers.astype(object)
        return np.ldexp(np.asarray(self.apply(numbers), dtype=np.float64), -self.fraction_bits)

    def _check_rows(self) -> None:
        check_entries(self.rows, f"group {self.name!r} of {self.rows:,} queries")


def check_order(domain: Domain, names: tuple[str, ...]) -> None:
    """Refuse attributes that are unknown, named twice, or not in the order of the domain."""
    if domain.in_order(names) != names:
        raise WorkloadError(
            f"the attributes of a term must be named once each, in the order of the domain: "
            f"{', '.join(domain.in_order(names))}; got {', '.join(names)}"
        )
