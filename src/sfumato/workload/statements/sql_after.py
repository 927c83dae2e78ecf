# SPDX-License-Identifier: Apache-2.0
"""What SQL does with released values: DISTINCT, HAVING, ORDER BY, LIMIT and OFFSET.

They look at the selected columns alone, after the noise: which groups HAVING leaves depends on
noisy values and costs nothing. To have the largest groups found by the mechanism itself, which
costs less than the counts of all groups, ask for a selection (`sql_top.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from sfumato.domain.attributes import Value
from sfumato.errors import SfumatoError, SqlError
from sfumato.types import Mask
from sfumato.workload.sql_text import (
    Names,
    as_written,
    chain,
    check_nesting,
    constant,
    only,
    without_brackets,
)
from sfumato.workload.statements.sql_groups import GroupKey
from sfumato.workload.statements.statement import Columns, SortKey, Statement, as_floats, is_null

if TYPE_CHECKING:
    from sfumato.workload.statements.sql import Aggregate

__all__ = [
    "AFTERWARDS",
    "SelectedColumn",
    "finished",
]

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
