# SPDX-License-Identifier: Apache-2.0
"""The groups of GROUP BY: public maps from cells to groups, and the rows that they make.

A column of GROUP BY is an attribute, a level of it, or a function of columns; each gives every cell
a *key*. Columns that share an attribute, as the year and the month of one date do, are grouped by
together: a `GroupAxis` has a group for every combination of their keys that some cell has. Axes
share no attribute, so groups are all combinations of one group per axis. Which groups there are
depends on the schema and on WHERE alone, never on the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from sfumato.domain.attributes import MISSING, Value
from sfumato.domain.domain import Domain
from sfumato.errors import SqlError, TooLarge
from sfumato.types import Integers, Mask
from sfumato.workload.cell_values import CellState, label_of
from sfumato.workload.sql_expressions import CellFunction
from sfumato.workload.sql_text import SqlColumn
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "GroupAxis",
    "GroupKey",
    "GroupRows",
    "along",
    "axes_of_keys",
    "key_of_column",
    "key_of_function",
    "read_off",
    "tells_apart",
]

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, eq=False)
class GroupKey:
    """A column of GROUP BY, or a selected one: the number of a value for every cell, -1 for none.

    ``column`` is set where it is an attribute or a level itself.
    """

    text: str
    attributes: tuple[str, ...]
    numbers: Integers
    values: tuple[Value, ...]
    column: SqlColumn | None = None

    def over(self, domain: Domain, names: Sequence[str]) -> Integers:
        """The numbers over the table of more attributes."""
        shape = [domain[n].size for n in names]
        own = [domain[n].size if n in self.attributes else 1 for n in names]
        return np.broadcast_to(self.numbers.reshape(own), shape)

    def is_same(self, other: GroupKey) -> bool:
        """Whether it tells the same cells apart, in the same words."""
        return (
            self.attributes == other.attributes
            and self.values == other.values
            and bool((self.numbers == other.numbers).all())
        )


def key_of_column(column: SqlColumn) -> GroupKey:
    """The cells of an attribute, or the groups of a level."""
    values = column.level.groups if column.level else column.attribute.labels
    return GroupKey(str(column), (column.attribute.name,), column.groups, tuple(values), column)


def key_of_function(function: CellFunction) -> GroupKey:
    """The values of an expression, in the order of the first cells that have them."""
    states = function.single_values().reshape(-1).tolist()
    number: dict[tuple[bool, CellState], int] = {}
    places = [number.setdefault((isinstance(s, bool), s), len(number)) for s in states]
    listed = [state for _, state in number]
    order = sorted(number.values(), key=lambda i: listed[i] is None)  # NULL is the last group
    rank = {old: new for new, old in enumerate(order)}
    values = tuple(label_of(listed[old]) for old in order)
    numbers = np.array([rank[p] for p in places], dtype=np.int64).reshape(function.states.shape)
    return GroupKey(function.text, function.attributes, numbers, values)


@dataclass(frozen=True, eq=False)
class GroupAxis:
    """Columns of GROUP BY that share attributes: their groups, and the group of every cell.

    ``groups[g, k]`` is the value number of group g in the k-th of its ``keys``.
    """

    domain: Domain
    keys: tuple[GroupKey, ...]
    attributes: tuple[str, ...]
    group_of: Integers
    groups: Integers

    @property
    def name(self) -> str:
        """The attribute, of an axis with one."""
        return self.attributes[0]

    @property
    def is_single(self) -> bool:
        """Whether it looks at one attribute, as the factor of a product does."""
        return len(self.attributes) == 1

    @property
    def is_cells(self) -> bool:
        """Whether its groups are the cells of one attribute."""
        column = self.keys[0].column
        return len(self.keys) == 1 and column is not None and column.level is None

    @property
    def level(self) -> str:
        """What the groups are called: the name of the level, or the expressions."""
        column = self.keys[0].column
        if len(self.keys) == 1 and column is not None:
            return column.level.name if column.level else self.name
        return ", ".join(key.text for key in self.keys)

    @property
    def title(self) -> str:
        """What stands before the label of a group; empty for ``attribute.level``."""
        is_column = len(self.keys) == 1 and self.keys[0].column is not None
        return "" if is_column else self.level

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What the groups are called."""
        columns = [[str(v) for v in key.values] for key in self.keys]
        return tuple(
            ", ".join(column[i] for column, i in zip(columns, group, strict=True))
            for group in self.groups.tolist()
        )

    def holding(self, cells: Mask) -> Integers:
        """The groups that hold some of these cells."""
        return np.unique(self.group_of[cells & (self.group_of >= 0)])

    def among(self, cells: Mask) -> tuple[tuple[str, ...], Integers]:
        """The labels and the renumbered cells of the groups that hold some of these cells."""
        groups = self.holding(cells)
        number = np.full(len(self.labels) + 1, -1, dtype=np.int64)
        number[groups] = np.arange(len(groups))
        return tuple(self.labels[g] for g in groups), number[self.group_of]

    def pairs(self, group: int) -> Iterator[tuple[str, str]]:
        """The columns and the values of a group."""
        for key, i in zip(self.keys, self.groups[group].tolist(), strict=True):
            yield key.text, str(key.values[i])


def axes_of_keys(domain: Domain, keys: Sequence[GroupKey]) -> tuple[GroupAxis, ...]:
    """The axes of GROUP BY, in the order of the domain."""
    parts: list[tuple[set[str], list[GroupKey]]] = []
    for key in keys:
        shared = [part for part in parts if part[0] & set(key.attributes)]
        names = set(key.attributes).union(*(part[0] for part in shared))
        listed = [k for part in shared for k in part[1]]
        parts = [part for part in parts if part not in shared]
        parts.append((names, [*listed, key]))
    axes = [_axis(domain, domain.in_order(names), listed) for names, listed in parts if names]
    return tuple(sorted(axes, key=lambda axis: domain.index(axis.name)))


def _axis(domain: Domain, names: tuple[str, ...], keys: Sequence[GroupKey]) -> GroupAxis:
    if len(keys) == 1:
        numbers = keys[0].numbers
        groups = np.arange(len(keys[0].values), dtype=np.int64)[:, None]
        return GroupAxis(domain, tuple(keys), names, numbers, groups)
    if domain.cells(names) > LIMITS.cells_tabulated:
        raise TooLarge(
            f"GROUP BY looks at {', '.join(names)} together, {domain.cells(names):,} cells, more "
            f"than the {LIMITS.cells_tabulated:,} that are tabulated; group by fewer cells"
        )
    columns = np.stack([key.over(domain, names).reshape(-1) for key in keys], axis=1)
    inside = (columns >= 0).all(axis=1)
    groups, first, which = np.unique(
        columns[inside], axis=0, return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    group_of = np.full(len(columns), -1, dtype=np.int64)
    group_of[inside] = rank[which.reshape(-1)]
    shape = [domain[n].size for n in names]
    return GroupAxis(domain, tuple(keys), names, group_of.reshape(shape), groups[order])


def tells_apart(axes: Sequence[GroupAxis], names: Iterable[str]) -> bool:
    """Whether no group has cells of two combinations of these attributes."""
    by_name = {name: axis for axis in axes for name in axis.attributes}
    for name in names:
        axis = by_name.get(name)
        if axis is None:
            return False
        place = np.indices(axis.group_of.shape)[axis.attributes.index(name)]
        inside = axis.group_of >= 0
        pairs = np.unique(np.stack([axis.group_of[inside], place[inside]]), axis=1)
        if len(np.unique(pairs[0])) < pairs.shape[1]:
            return False
    return True


def along(
    attributes: Sequence[str], values: npt.NDArray[Number], names: Sequence[str]
) -> npt.NDArray[Number]:
    """Values over the table of some attributes, ready to be spread over a larger one."""
    sizes = iter(values.shape)
    return values.reshape([next(sizes) if n in attributes else 1 for n in names])


def read_off(
    domain: Domain, key: GroupKey, axes: Sequence[GroupAxis]
) -> tuple[int, npt.NDArray[np.object_]] | None:
    """The axis that determines a selected value, and the value of each of its groups.

    Returns:
        None where GROUP BY does not determine it.

    Raises:
        SqlError: it looks at columns of several axes.
    """
    touched = [i for i, axis in enumerate(axes) if set(axis.attributes) & set(key.attributes)]
    if len(touched) > 1:
        raise SqlError(
            f"{key.text} joins columns that are grouped by apart; select them one by one, or put "
            "the expression into GROUP BY"
        )
    if not touched or not set(key.attributes) <= set(axes[touched[0]].attributes):
        return None
    axis = axes[touched[0]]
    numbers = key.over(domain, axis.attributes).reshape(-1)
    groups = axis.group_of.reshape(-1)
    chosen = np.full(len(axis.groups), -2, dtype=np.int64)
    chosen[groups[groups >= 0]] = numbers[groups >= 0]
    if (chosen[groups[groups >= 0]] != numbers[groups >= 0]).any():
        return None
    labels = np.empty(len(key.values) + 2, dtype=object)
    labels[:-2] = key.values
    labels[-2:] = MISSING
    return touched[0], labels[chosen]


@dataclass(frozen=True, eq=False)
class GroupRows:
    """The rows of an answer: a group of every axis for each, in the order of the queries.

    ``choices`` are the groups of every axis that WHERE leaves; ``present`` which of their
    combinations, None for all.
    """

    choices: tuple[Integers, ...]
    present: Integers | None = None

    @property
    def rows(self) -> int:
        """The number of rows."""
        return prod(map(len, self.choices)) if self.present is None else len(self.present)

    def along(self, axis: int) -> Integers:
        """The group of every row in one axis."""
        shape = [len(c) for c in self.choices]
        places = np.arange(self.rows) if self.present is None else self.present
        at = places // prod(shape[axis + 1 :]) % shape[axis]
        return self.choices[axis][at]
