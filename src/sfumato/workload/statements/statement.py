# SPDX-License-Identifier: Apache-2.0
"""The shape of a SELECT: its groups, its columns, and what is done with released values.

A column of GROUP BY is an attribute, a level of it, or a function of columns; each gives every cell
a *key*. Columns that share an attribute, as the year and the month of one date do, are grouped by
together: a `GroupAxis` has a group for every combination of their keys that some cell has. Axes
share no attribute, so groups are all combinations of one group per axis. Which groups there are
depends on the schema and on WHERE alone, never on the data.

A `Statement` says for every selected column where its numbers are among the answers of a workload:
the label of a group, a constant, a group of queries, a mean, a quantile. HAVING, ORDER BY and LIMIT
look at these columns after the noise was added, so they cost nothing and change no answer
(post-processing: Dwork, Roth 2014, Proposition 2.1).

To have the largest groups found by the mechanism itself, which costs less than the counts of all
groups, ask for a selection (`sql_top.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from sfumato.domain.attributes import MISSING, OTHER, Value
from sfumato.domain.domain import Domain
from sfumato.errors import SfumatoError, SqlError, TooLarge
from sfumato.types import Array, Integers, Mask
from sfumato.workload.cell_values import CellState, label_of
from sfumato.workload.sql_expressions import CellFunction
from sfumato.workload.sql_text import (
    Names,
    SqlColumn,
    as_written,
    chain,
    check_nesting,
    constant,
    only,
    without_brackets,
)
from sfumato.workload.workload_limits import LIMITS

if TYPE_CHECKING:
    from sfumato.workload.statements.sql import Aggregate

__all__ = [
    "AFTERWARDS",
    "AnswerOutput",
    "Column",
    "Columns",
    "ConstantOutput",
    "GroupAxis",
    "GroupKey",
    "GroupRows",
    "LabelOutput",
    "MeanOutput",
    "OutputNumbers",
    "QuantileOutput",
    "SelectOutput",
    "SelectedColumn",
    "SortKey",
    "Statement",
    "StatementSource",
    "along",
    "as_floats",
    "axes_of_keys",
    "finished",
    "is_null",
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


Column = npt.NDArray[Any]
Columns = Sequence[Column]


@dataclass(frozen=True, eq=False, slots=True)
class OutputNumbers:
    """A column of an answer: values, and the ends of their intervals where they are noisy."""

    value: Column
    low: Column | None = None
    high: Column | None = None

    def at(self, rows: Integers) -> OutputNumbers:
        """The same column with these rows alone, in this order."""
        low, high = (None if end is None else end[rows] for end in (self.low, self.high))
        return OutputNumbers(self.value[rows], low, high)


class StatementSource(Protocol):
    """What the numbers of a statement are read off: a release, or the answers of a session."""

    def answer(self, term: int) -> OutputNumbers:
        """The answers of a group of queries."""
        ...

    def mean(self, ratio: int) -> OutputNumbers:
        """The quotients of a ratio."""
        ...

    def quantile(self, term: int, attribute: str, probability: float) -> OutputNumbers:
        """The quantiles of an attribute, by the groups of its running totals."""
        ...


@dataclass(frozen=True, eq=False)
class SelectOutput(ABC):
    """A selected column, by its title."""

    title: str

    @property
    def is_linear(self) -> bool:
        """Whether its numbers are answers themselves, or labels; not computed from several."""
        return True

    @abstractmethod
    def numbers(self, source: StatementSource) -> OutputNumbers:
        """Its values, one per group."""

    def shifted(self, terms: int, ratios: int) -> SelectOutput:  # noqa: ARG002
        """The same column where so many terms and ratios stand before those of the statement."""
        return self


@dataclass(frozen=True, eq=False)
class LabelOutput(SelectOutput):
    """The value of a group: ``labels`` has one for every group of an axis."""

    axis: int
    labels: npt.NDArray[np.object_]
    rows: GroupRows

    def numbers(self, source: StatementSource) -> OutputNumbers:  # noqa: ARG002
        """The labels."""
        column = self.labels[self.rows.along(self.axis)]
        kinds = {type(v) for v in column.tolist()}
        whole = kinds == {int} and all(abs(v) < 2**62 for v in column.tolist())
        return OutputNumbers(column.astype(np.int64) if whole else column)


@dataclass(frozen=True, eq=False)
class ConstantOutput(SelectOutput):
    """The same constant for every group."""

    constant: Value | None
    rows: int

    def numbers(self, source: StatementSource) -> OutputNumbers:  # noqa: ARG002
        """The constant."""
        return OutputNumbers(np.array([self.constant] * self.rows))


@dataclass(frozen=True, eq=False)
class AnswerOutput(SelectOutput):
    """A count or a sum: the answers of a term."""

    term: int

    def numbers(self, source: StatementSource) -> OutputNumbers:
        """The answers."""
        return source.answer(self.term)

    def shifted(self, terms: int, ratios: int) -> SelectOutput:  # noqa: ARG002
        """The term after others."""
        return replace(self, term=self.term + terms)


@dataclass(frozen=True, eq=False)
class MeanOutput(SelectOutput):
    """A mean: the quotients of a ratio."""

    ratio: int

    @property
    def is_linear(self) -> bool:
        """False: a quotient."""
        return False

    def numbers(self, source: StatementSource) -> OutputNumbers:
        """The quotients."""
        return source.mean(self.ratio)

    def shifted(self, terms: int, ratios: int) -> SelectOutput:  # noqa: ARG002
        """The ratio after others."""
        return replace(self, ratio=self.ratio + ratios)


@dataclass(frozen=True, eq=False)
class QuantileOutput(SelectOutput):
    """A quantile, read off the running totals of a term."""

    term: int
    attribute: str
    probability: float

    @property
    def is_linear(self) -> bool:
        """False: an inverse of running totals."""
        return False

    def numbers(self, source: StatementSource) -> OutputNumbers:
        """The quantiles."""
        return source.quantile(self.term, self.attribute, self.probability)

    def shifted(self, terms: int, ratios: int) -> SelectOutput:  # noqa: ARG002
        """The term after others."""
        return replace(self, term=self.term + terms)


@dataclass(frozen=True, eq=False, slots=True)
class SortKey:
    """What rows are sorted by, in which direction, and where NULL comes."""

    value: Callable[[Columns], Column]
    is_falling: bool = False
    nulls_first: bool = False

    def order(self, columns: Columns, rows: Integers) -> Integers:
        """The rows sorted by this key; rows that are equal in it stay in their order."""
        values = self.value(columns)[rows].tolist()
        ranks = {v: i for i, v in enumerate(sorted({v for v in values if not is_null(v)}, key=_by))}
        nowhere = -1 if self.nulls_first else len(ranks)
        sign = -1 if self.is_falling else 1
        keys = [nowhere if is_null(v) else sign * ranks[v] for v in values]
        if self.is_falling:
            last = 1 if not self.nulls_first else -len(ranks) - 1
            keys = [last if is_null(v) else k for v, k in zip(values, keys, strict=True)]
        return rows[np.argsort(np.array(keys, dtype=np.int64), kind="stable")]


def is_null(value: object) -> bool:
    """Whether a value of a row is missing."""
    return value is None or value == MISSING or value != value


def _by(value: Any) -> tuple[bool, str, Any]:
    """Values of one kind in their own order; ``(other)`` after them."""
    is_number = isinstance(value, int | float)
    return value == OTHER, "" if is_number else type(value).__name__, value


@dataclass(frozen=True, eq=False)
class Statement:
    """A SELECT: its columns in order, and what HAVING, ORDER BY, OFFSET and LIMIT do with them.

    ``having`` says for every row whether the condition holds for its released values. ``rows`` is
    the number of groups before that, and ``chooses`` says whether released values decide which of
    them are shown.
    """

    text: str
    outputs: tuple[SelectOutput, ...]
    rows: int
    having: Callable[[Columns], Mask] | None = None
    order: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    chooses: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether all groups are shown, whatever their values are."""
        return self.having is None and self.limit is None and not self.offset

    def level(self, level: float) -> float:
        """The level of each interval, so that those of the rows that are shown hold with ``level``.

        Where released values decide which rows are shown, an interval by itself does not say it for
        a row that was chosen: noise that lifted it may be why. So all rows have intervals that hold
        together (Bonferroni), whichever are chosen.
        """
        return 1 - (1 - level) / max(1, self.rows) if self.chooses else level

    def rows_after(self, columns: Columns) -> Integers:
        """The rows of the answer, in order, by the released values of its columns."""
        rows = np.arange(len(columns[0]), dtype=np.int64)
        if self.having is not None:
            rows = np.flatnonzero(self.having(columns))
        for key in reversed(self.order):
            rows = key.order(columns, rows)
        stop = None if self.limit is None else self.offset + self.limit
        return rows[self.offset : stop]

    def shifted(self, terms: int, ratios: int) -> Statement:
        """The statement where so many terms and ratios stand before its own."""
        return replace(self, outputs=tuple(o.shifted(terms, ratios) for o in self.outputs))

    def titles(self) -> tuple[str, ...]:
        """The names of the columns, each of its own."""
        taken: list[str] = []
        for output in self.outputs:
            title, again = output.title, 1
            while title in taken:
                again += 1
                title = f"{output.title} ({again})"
            taken.append(title)
        return tuple(taken)


def as_floats(column: Column) -> Array:
    """A column of numbers; not-a-number where a value is missing."""
    return np.array([np.nan if is_null(v) else float(v) for v in column.tolist()])


AFTERWARDS = ("distinct", "having", "order", "limit", "offset")
"""The clauses that look at released values."""

ALLOWED = (
    "HAVING and ORDER BY look at the released values of selected columns: compare them with "
    "constants or each other, join comparisons with AND, OR and NOT"
)

Reading = Callable[[Columns], Any]


@dataclass(frozen=True, eq=False, slots=True)
class SelectedColumn:
    """A column of SELECT: the value of a group, an aggregate or a constant."""

    title: str
    node: exp.Expression
    is_named: bool
    key: GroupKey | None = None
    aggregate: Aggregate | None = None
    constant: Value | None = None

    def is_called(self, name: str) -> bool:
        """Whether this is its alias, whatever the case."""
        return self.is_named and self.title.casefold() == name.casefold()


def finished(
    select: exp.Select, statement: Statement, columns: Sequence[SelectedColumn], names: Names
) -> Statement:
    """The statement with what its last clauses do."""
    distinct = select.args.get("distinct")
    if distinct is not None:
        only(distinct)  # groups are distinct; DISTINCT ON is refused
    reader, sorter = _ReleasedReader(columns, names, set()), _ReleasedReader(columns, names, set())
    having, order = select.args.get("having"), select.args.get("order")
    for clause in (having, order):
        if clause is not None:
            check_nesting(clause)
    limit, offset = select.args.get("limit"), select.args.get("offset")
    keys: list[SortKey] = []
    if order is not None:
        only(order, "expressions")
        keys = [sorter.sort_key(ordered) for ordered in order.expressions]
    if limit is not None and not isinstance(limit, exp.Limit):
        raise SqlError(f"{as_written(limit)} cannot be asked; write LIMIT and a whole number")
    holds = None if having is None else reader.condition(having.this, True)
    read = reader.read | (sorter.read if limit is not None or offset is not None else set())
    return replace(
        statement,
        having=holds,
        order=tuple(keys),
        limit=None if limit is None else _number(limit, "LIMIT"),
        offset=0 if offset is None else _number(offset, "OFFSET"),
        chooses=any(columns[place].aggregate is not None for place in read),
    )


def _number(node: exp.Expression, clause: str) -> int:
    only(node, "expression")
    number = node.expression
    text = str(number.this) if isinstance(number, exp.Literal) and not number.is_string else ""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise SqlError(f"{clause} must be a whole number, got {as_written(number)}")
    return int(text)


@dataclass(frozen=True, slots=True)
class _ReleasedReader:
    """Reads expressions of selected columns; ``read`` is which of them were read."""

    columns: Sequence[SelectedColumn]
    names: Names
    read: set[int]

    def sort_key(self, ordered: exp.Expression) -> SortKey:
        """What ORDER BY sorts by: a selected column, by its number, its alias or itself."""
        if not isinstance(ordered, exp.Ordered):
            raise SqlError(f"ORDER BY {as_written(ordered)} cannot be asked; {ALLOWED}")
        only(ordered, "this", "desc", "nulls_first")
        node = without_brackets(ordered.this)
        is_falling, nulls_first = (bool(ordered.args.get(k)) for k in ("desc", "nulls_first"))
        if isinstance(node, exp.Literal) and not node.is_string:
            text = str(node.this)
            place = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
            if not 1 <= place <= len(self.columns):
                raise SqlError(f"ORDER BY {text[:20]} is not the number of a selected column")
            return SortKey(self._column(place - 1), is_falling, nulls_first)
        return SortKey(self.value(node), is_falling, nulls_first)

    def value(self, node: exp.Expression) -> Reading:
        """The values of an expression of selected columns, one per row."""
        node = without_brackets(node)
        place = self._place(node)
        if place is not None:
            return self._column(place)
        compute = _ARITHMETIC.get(type(node))
        if compute is not None:
            only(node, "this", "expression", "typed", "safe")
            parts = [self.value(p) for p in (node.this, node.args.get("expression")) if p]
            return lambda columns: compute(*(_floats(part(columns)) for part in parts))
        if isinstance(node, exp.AggFunc | exp.Column | exp.WithinGroup | exp.Filter):
            raise SqlError(
                f"{as_written(node)} is not selected; {ALLOWED}: add it to SELECT, since every "
                "aggregate has its share of the budget"
            )
        number = constant(node)
        return lambda columns: np.array([number] * len(columns[0]))

    def condition(self, node: exp.Expression, truth: bool) -> Callable[[Columns], Mask]:
        """The rows where it is true, or where it is false; neither where a value is missing."""
        node = without_brackets(node)
        if isinstance(node, exp.Not):
            only(node, "this")
            return self.condition(node.this, not truth)
        if isinstance(node, exp.And | exp.Or):
            parts = [self.condition(p, truth) for p in chain(node)]
            join = np.logical_and if isinstance(node, exp.And) == truth else np.logical_or
            return lambda columns: join.reduce([part(columns) for part in parts])
        if isinstance(node, exp.Boolean):
            holds = bool(node.this) == truth
            return lambda columns: np.full(len(columns[0]), holds)
        if isinstance(node, exp.Is) and isinstance(without_brackets(node.expression), exp.Null):
            own = self.value(node.this)
            return lambda columns: np.isnan(_ranked(own(columns))) == truth
        if isinstance(node, exp.Between):
            only(node, "this", "low", "high")
            low = exp.GTE(this=node.this, expression=node.args["low"])
            high = exp.LTE(this=node.this, expression=node.args["high"])
            return self.condition(exp.And(this=low, expression=high), truth)
        if isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
            only(node, "this", "expressions")
            each = [exp.EQ(this=node.this, expression=e) for e in node.expressions]
            masks = [self.condition(one, truth) for one in each]
            any_or_all = np.logical_or if truth else np.logical_and
            return lambda columns: any_or_all.reduce([mask(columns) for mask in masks])
        compare = _COMPARISONS.get(type(node))
        if compare is None:
            raise SqlError(f"{as_written(node)} cannot be asked of released values; {ALLOWED}")
        only(node, "this", "expression")
        left, right = self.value(node.this), self.value(node.expression)
        return lambda columns: _compared(compare, left(columns), right(columns), truth)

    def _column(self, place: int) -> Reading:
        self.read.add(place)
        return lambda columns: columns[place]

    def _place(self, node: exp.Expression) -> int | None:
        """The selected column that an expression is: by its alias, its name or its text."""
        if isinstance(node, exp.Column):
            if not node.args.get("table"):
                for i, column in enumerate(self.columns):
                    if column.is_called(node.name):
                        return i
            try:
                text = str(self.names.resolve(node))
            except SfumatoError:
                text = ""
            for i, column in enumerate(self.columns):
                if column.key is not None and column.key.column and column.key.text == text:
                    return i
            return None
        written = as_written(node, 10_000).casefold()
        for i, column in enumerate(self.columns):
            if as_written(column.node, 10_000).casefold() == written and column.constant is None:
                return i
        return None


def _floats(column: Any) -> Any:
    try:
        return as_floats(np.asarray(column))
    except (TypeError, ValueError):
        raise SqlError(f"arithmetic of released values needs numbers; {ALLOWED}") from None


def _ranked(column: Any) -> Any:
    """Not-a-number where a value is missing, some number elsewhere."""
    return np.array([np.nan if is_null(v) else 0.0 for v in np.asarray(column).tolist()])


def _compared(compare: Callable[[Any, Any], bool], left: Any, right: Any, truth: bool) -> Mask:
    out = np.zeros(len(left), dtype=np.bool_)
    pairs = zip(np.asarray(left).tolist(), np.asarray(right).tolist(), strict=True)
    for row, (a, b) in enumerate(pairs):
        if is_null(a) or is_null(b):
            continue
        try:
            out[row] = compare(a, b) == truth
        except TypeError:
            raise SqlError(
                "a condition on released values compares a number with a text; " + ALLOWED
            ) from None
    return out


_COMPARISONS: dict[type[exp.Expression], Callable[[Any, Any], bool]] = {
    exp.EQ: lambda a, b: a == b,
    exp.NEQ: lambda a, b: a != b,
    exp.LT: lambda a, b: a < b,
    exp.LTE: lambda a, b: a <= b,
    exp.GT: lambda a, b: a > b,
    exp.GTE: lambda a, b: a >= b,
}


def _quotient(a: Any, b: Any) -> Any:
    return np.divide(a, b, out=np.full(len(a), np.nan), where=b != 0)


_ARITHMETIC: dict[type[exp.Expression], Callable[..., Any]] = {
    exp.Add: lambda a, b: a + b,
    exp.Sub: lambda a, b: a - b,
    exp.Mul: lambda a, b: a * b,
    exp.Div: _quotient,
    exp.Neg: lambda a: -a,
    exp.Abs: np.abs,
}
