# SPDX-License-Identifier: Apache-2.0
"""Functions of columns in SQL and conditions on them: ``age / 10``, ``CASE ... END``, WHERE.

`cell_function` computes an expression on every cell of the attributes that it looks at, so that it
can be grouped by and compared like a column: a public map from cells to values. What the cells do
not determine is refused before anything is asked. Nothing of the text reaches an engine.

The type of a number decides what a quotient is: that of two integers is an integer, as in SQLite
and PostgreSQL. NULL stays NULL in every function but COALESCE and CASE; so do values that the
schema does not know (the cell ``(other)``), which no comparison of an expression holds for.

**Conditions** of WHERE are over cells, with SQL's three truth values. A comparison with a missing
value is neither true nor false, so NOT of it does not hold either.
``condition(node, names, truth)`` returns the cells where the node is true, or where it is false;
NOT swaps the two, AND and OR follow De Morgan, and only the leaves look at cells. `sql_condition`
reads a text as SQL's WHERE does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from functools import partial
from math import prod
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from sfumato.domain.attributes import Comparison, Value
from sfumato.domain.domain import Domain
from sfumato.errors import SqlError, TooLarge
from sfumato.text import did_you_mean, shown
from sfumato.types import Mask
from sfumato.workload import cell_values as cells
from sfumato.workload.cell_values import CellState, Span, Undecided, Unknown, matches
from sfumato.workload.predicates import And, Condition, Everything, In, Not, Or, indicator
from sfumato.workload.sql_text import (
    COMPARES,
    Names,
    SqlColumn,
    as_written,
    chain,
    constant,
    only,
    parsed_select,
    refuse,
    without_brackets,
)
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "NOTHING",
    "CellFunction",
    "ConditionReader",
    "cell_function",
    "condition",
    "conjunction",
    "folded",
    "is_expression",
    "mask_condition",
    "sql_condition",
]

States = npt.NDArray[np.object_]
ConditionReader = Callable[[exp.Expression, Names], Condition]
Compute = Callable[..., CellState]

_DECIMAL: Final = re.compile(r"[0-9]*\.[0-9]*[0-9]", re.ASCII)

FUNCTIONS = (
    "functions of columns are made of + - * / %, FLOOR, CEIL, ROUND, TRUNC, ABS, UPPER, LOWER, "
    "LENGTH, TRIM, LEFT, RIGHT, SUBSTR, ||, COALESCE, NULLIF, CASE, DATE_TRUNC, EXTRACT and "
    "STRFTIME"
)


@dataclass(frozen=True, eq=False, slots=True)
class CellFunction:
    """A value for every cell of the table of ``attributes``, which are in the domain's order."""

    names: Names
    attributes: tuple[str, ...]
    states: States
    text: str

    def over(self, names: Sequence[str]) -> States:
        """The values over the table of more attributes, ready to be spread."""
        domain = self.names.domain
        shape = [domain[n].size if n in self.attributes else 1 for n in names]
        return self.states.reshape(shape)

    def compare(self, comparison: Comparison, other: CellFunction, text: str) -> CellFunction:
        """Whether the comparison holds, cell by cell: true, false, or neither."""
        return _applied(text, partial(_holds, comparison), self, other)

    def single_values(self) -> States:
        """The values, each of which is one; a range of values is refused."""
        for state in self.states.reshape(-1):
            if isinstance(state, Span):
                raise _cuts(self.text, self.attributes, "they hold more than one of its values")
        return self.states


def is_expression(node: exp.Expression) -> bool:
    """Whether the node is a function of columns, or of constants, that this module reads."""
    return isinstance(node, tuple(_READERS)) or (
        isinstance(node, exp.Anonymous) and str(node.this).upper() in _NAMED
    )


def cell_function(node: exp.Expression, names: Names, condition: ConditionReader) -> CellFunction:
    """The values of an expression on the cells of its columns.

    Args:
        node: What sqlglot read.
        names: The columns there are.
        condition: What reads the conditions of CASE.

    Raises:
        SqlError: the expression is none that cells determine.
    """
    return _ExpressionReader(names, condition).read(node, 0)


def folded(node: exp.Expression, names: Names, condition: ConditionReader) -> Value | None:
    """The constant that an expression without columns is; None where it has columns."""
    if node.find(exp.Column) is not None:
        return None
    state = cell_function(node, names, condition).single_values().item()
    return None if state is None else cells.label_of(state)


def mask_condition(domain: Domain, names: Sequence[str], mask: Mask, text: str) -> Condition:
    """The condition that holds in these cells of the table of some attributes."""
    if not names:
        return Everything() if mask.all() else Not(Everything())
    if len(names) == 1:
        return In(names[0], tuple(np.flatnonzero(mask).tolist()), text)
    rows = mask.reshape(mask.shape[0], -1)
    patterns, which = np.unique(rows, axis=0, return_inverse=True)
    parts: list[Condition] = []
    for i, pattern in enumerate(patterns):
        if pattern.any():
            own = In(names[0], tuple(np.flatnonzero(which.reshape(-1) == i).tolist()), text)
            rest = mask_condition(domain, names[1:], pattern.reshape(mask.shape[1:]), text)
            parts.append(And((own, rest)))
    return Or(tuple(parts)) if parts else Not(Everything())


@dataclass(frozen=True, slots=True)
class _ExpressionReader:
    names: Names
    condition: ConditionReader

    def read(self, node: exp.Expression, depth: int) -> CellFunction:
        node = without_brackets(node)
        if depth > LIMITS.condition_depth:
            raise SqlError(
                f"an expression is nested more than {LIMITS.condition_depth} levels deep; write a "
                "shorter one"
            )
        if isinstance(node, exp.Anonymous) and str(node.this).upper() in _NAMED:
            only(node, "this", "expressions")
            return _NAMED[str(node.this).upper()](self, node, depth + 1)
        for kind, read in _READERS.items():
            if type(node) is kind:
                return read(self, node, depth + 1)
        return self.constant(node)

    def constant(self, node: exp.Expression) -> CellFunction:
        if isinstance(node, exp.Null):
            value: CellState = None
        elif isinstance(node, exp.Literal) and _DECIMAL.fullmatch(str(node.this)):
            value = Fraction(str(node.this))  # 0.1 is a tenth
        else:
            value = cells.number_of(constant(node))
        return CellFunction(self.names, (), _objects([value], ()), as_written(node))

    def column(self, node: exp.Expression, depth: int) -> CellFunction:  # noqa: ARG002
        column = self.names.resolve(node)
        names = (column.attribute.name,)
        shape = _shape(self.names, names, str(column))
        states = _objects(_column_states(column), shape)
        return CellFunction(self.names, names, states, str(column))

    def simple(self, node: exp.Expression, depth: int) -> CellFunction:
        """A function of ``this`` and, if there is one, ``expression``."""
        compute, expects = _SIMPLE[type(node)]
        only(node, "this", "expression", "typed", "safe")
        parts = [self.read(p, depth) for p in (node.this, node.args.get("expression")) if p]
        return _applied(as_written(node), compute, *parts, expects=expects)

    def digits(self, node: exp.Expression, depth: int) -> CellFunction:
        """A function of a number and a number of digits."""
        only(node, "this", "decimals")
        digits = self._whole(node.args.get("decimals"), 0)
        if abs(digits) > LIMITS.sql_digits:
            raise SqlError(f"{as_written(node)}: at most {LIMITS.sql_digits} digits are rounded to")
        compute = cells.rounded if isinstance(node, exp.Round) else cells.cut
        own = self.read(node.this, depth)
        return _applied(as_written(node), lambda s: compute(s, digits), own, expects="numbers")

    def coalesce(self, node: exp.Expression, depth: int) -> CellFunction:
        only(node, "this", "expressions")
        parts = [self.read(p, depth) for p in (node.this, *node.expressions)]
        return _applied(as_written(node), _first, *parts, strict=False)

    def nullif(self, node: exp.Expression, depth: int) -> CellFunction:
        only(node, "this", "expression")
        parts = [self.read(p, depth) for p in (node.this, node.expression)]
        return _applied(as_written(node), _unless_equal, *parts, strict=False)

    def substring(self, node: exp.Expression, depth: int) -> CellFunction:
        only(node, "this", "start", "length")
        start = self._whole(node.args.get("start"), 1)
        length = self._whole(node.args.get("length"), None)
        if start < 1 or (length is not None and length < 0):
            raise SqlError(f"{as_written(node)}: a part of a text starts at 1 or later")
        stop = None if length is None else start - 1 + length
        own = self.read(node.this, depth)
        return _applied(
            as_written(node), lambda s: _text(s)[start - 1 : stop], own, expects="texts"
        )

    def side(self, node: exp.Expression, depth: int) -> CellFunction:
        """LEFT and RIGHT."""
        only(node, "this", "expression")
        number = self._whole(node.expression, 0)
        if number < 0:
            raise SqlError(f"{as_written(node)}: the number of characters is not below 0")
        is_left = isinstance(node, exp.Left)
        own = self.read(node.this, depth)

        def part(state: CellState) -> CellState:
            text = _text(state)
            return text[:number] if is_left else text[max(0, len(text) - number) :]

        return _applied(as_written(node), part, own, expects="texts")

    def trim(self, node: exp.Expression, depth: int) -> CellFunction:
        only(node, "this")
        own = self.read(node.this, depth)
        return _applied(as_written(node), lambda s: _text(s).strip(" "), own, expects="texts")

    def concat(self, node: exp.Expression, depth: int) -> CellFunction:
        only(node, "expressions", "safe", "coalesce")
        parts = [self.read(p, depth) for p in node.expressions]
        return _applied(as_written(node), _joined_texts, *parts, expects="texts")

    def cast(self, node: exp.Expression, depth: int) -> CellFunction:
        """CAST of what its type already holds, and of anything to text."""
        only(node, "this", "to")
        kind = getattr(getattr(node.args["to"], "this", None), "name", "")
        if isinstance(without_brackets(node.this), exp.Literal) and kind in _MOMENTS:
            return self.constant(node)
        if kind not in _CASTS:
            raise SqlError(
                f"{as_written(node)}: CAST makes texts of columns (TEXT), whole numbers of whole "
                "numbers (INTEGER), numbers of numbers (DOUBLE) and dates of times (DATE)"
            )
        own = self.read(node.this, depth)
        compute, expects = _CASTS[kind]
        return _applied(as_written(node), compute, own, expects=expects)

    def case(self, node: exp.Expression, depth: int) -> CellFunction:
        only(node, "this", "ifs", "default")
        operand = node.args.get("this")
        branches: list[tuple[Condition, CellFunction]] = []
        for branch in node.args["ifs"]:
            only(branch, "this", "true")
            when = branch.this
            if operand is not None:
                when = exp.EQ(this=operand.copy(), expression=when.copy())
            then = self.read(branch.args["true"], depth)
            branches.append((self.condition(when, self.names), then))
        return self._chosen(node, branches, node.args.get("default"), depth)

    def when(self, node: exp.Expression, depth: int) -> CellFunction:
        """IF and IIF."""
        only(node, "this", "true", "false")
        then = self.read(node.args["true"], depth)
        branch = (self.condition(node.this, self.names), then)
        return self._chosen(node, [branch], node.args.get("false"), depth)

    def _chosen(
        self,
        node: exp.Expression,
        branches: Sequence[tuple[Condition, CellFunction]],
        default: exp.Expression | None,
        depth: int,
    ) -> CellFunction:
        """The value of the first branch that holds in a cell."""
        rest = self.read(exp.Null() if default is None else default, depth)
        domain, text = self.names.domain, as_written(node)
        looked = [a for c, f in branches for a in (*c.attributes, *f.attributes)]
        names = domain.in_order([*looked, *rest.attributes])
        shape = _shape(self.names, names, text)
        states = np.broadcast_to(rest.over(names), shape).copy()
        for when, then in reversed(branches):
            holds = indicator(when, domain, names)
            states = np.where(holds, np.broadcast_to(then.over(names), shape), states)
        return CellFunction(self.names, names, states, text)

    def truncate(self, node: exp.Expression, depth: int) -> CellFunction:
        only(node, "this", "unit")
        unit = _word(node.args.get("unit"))
        return self._in_time(node, node.this, cells.truncated, unit, cells.UNITS, depth)

    def extract(self, node: exp.Expression, depth: int) -> CellFunction:
        only(node, "this", "expression")
        field = _word(node.this)
        return self._in_time(node, node.expression, cells.extracted, field, cells.FIELDS, depth)

    def field(self, node: exp.Expression, depth: int) -> CellFunction:
        """YEAR(day), MONTH(day) and so on."""
        only(node, "this")
        field = type(node).__name__.lower()
        return self._in_time(node, node.this, cells.extracted, field, cells.FIELDS, depth)

    def date_part(self, node: exp.Expression, depth: int) -> CellFunction:
        if len(node.expressions) != 2:
            raise SqlError(f"{as_written(node)}: DATE_PART takes a field and a column")
        field, of = node.expressions
        return self._in_time(node, of, cells.extracted, _word(field), cells.FIELDS, depth)

    def _in_time(
        self,
        node: exp.Expression,
        of: exp.Expression,
        compute: Callable[[CellState, str], CellState],
        word: str,
        allowed: Sequence[str],
        depth: int,
    ) -> CellFunction:
        if word not in allowed:
            raise SqlError(
                f"{as_written(node)}: {shown(word)} is not one of {', '.join(allowed)}"
                f"{did_you_mean(word, allowed)}"
            )
        own = self.read(of, depth)
        return _applied(as_written(node), lambda s: compute(s, word), own, expects="dates or times")

    def strftime(self, node: exp.Expression, depth: int) -> CellFunction:
        only(node, "this", "format")
        pattern = node.args.get("format")
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            raise SqlError(f"{as_written(node)}: STRFTIME takes a format such as '%Y-%m'")
        of = node.this.this if isinstance(node.this, exp.TsOrDsToTimestamp) else node.this
        words = f"dates or times, in a format of {', '.join(cells.DIRECTIVES)}"
        own, text = self.read(of, depth), str(pattern.this)
        return _applied(as_written(node), lambda s: cells.dated(s, text), own, expects=words)

    def _whole(self, node: exp.Expression | None, default: Any) -> Any:
        if node is None:
            return default
        value = constant(node)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 10**6:
            raise SqlError(f"{as_written(node)} is not a whole number")
        return value


def _column_states(column: SqlColumn) -> list[CellState]:
    if column.level is None:
        return cells.states_of(column.attribute)
    groups = column.level.groups
    return [None if g < 0 else groups[g] for g in column.groups.tolist()]


def _applied(
    text: str,
    compute: Compute,
    *parts: CellFunction,
    expects: str = "values that can be compared",
    strict: bool = True,
) -> CellFunction:
    """A function of states, cell by cell; with ``strict`` NULL and unknown values stay as they are.

    ``expects`` are what it takes, for messages.
    """
    every = parts[0].names
    names = every.domain.in_order({a for p in parts for a in p.attributes})
    shape = _shape(every, names, text)
    columns = [np.broadcast_to(p.over(names), shape).reshape(-1) for p in parts]
    out: list[CellState] = []
    computed: dict[tuple[object, ...], CellState] = {}
    try:
        for states in zip(*columns, strict=True):
            if strict and any(s is None for s in states):
                out.append(None)
            elif strict and (unknown := next(filter(_is_unknown, states), None)) is not None:
                out.append(unknown)
            else:
                key = (*states, *map(_type_of, states))
                if key not in computed:
                    computed[key] = compute(*states)
                out.append(computed[key])
    except Undecided as why:
        raise _cuts(text, names, str(why)) from None
    except (TypeError, ValueError, OverflowError):
        raise SqlError(f"{text} takes {expects}; {FUNCTIONS}") from None
    return CellFunction(every, names, _objects(out, shape), text)


def _is_unknown(state: CellState) -> bool:
    return isinstance(state, Unknown)


def _type_of(state: CellState) -> type:
    """The type of a value: an integer equals its fraction, but is another in a quotient."""
    return type(state.low) if isinstance(state, Span) else type(state)


def _cuts(text: str, names: Sequence[str], why: str) -> SqlError:
    listed = " and ".join(map(repr, names))
    return SqlError(
        f"{text} would cut a bin of {listed} ({why}): it must be the same for all of its values; "
        "use edges of bins (the last numeric one holds its upper edge), or declare narrower ones"
    )


def _shape(every: Names, names: Sequence[str], text: str) -> tuple[int, ...]:
    """The shape of the table of some attributes, on each cell of which a function is computed."""
    shape = tuple(every.domain[n].size for n in names)
    if prod(shape) > LIMITS.sql_expression_cells:
        raise TooLarge(
            f"{text} looks at {', '.join(names)} together, {prod(shape):,} cells; functions are "
            f"computed of at most {LIMITS.sql_expression_cells:,}: group by the columns themselves"
        )
    every.steps[0] += prod(shape)
    if every.steps[0] > LIMITS.sql_expression_steps:
        raise TooLarge(
            f"the functions of columns of one text are computed on {LIMITS.sql_expression_steps:,} "
            "cells together at most, each function on all cells of its columns: ask for less at "
            "once, or declare levels"
        )
    return shape


def _objects(states: Sequence[CellState], shape: tuple[int, ...]) -> States:
    out = np.empty(len(states), dtype=object)
    out[:] = states
    return out.reshape(shape)


def _holds(comparison: Comparison, left: CellState, right: CellState) -> CellState:
    left, right = _instant_like(left, right), _instant_like(right, left)
    return cells.compared(left, comparison, right)


def _instant_like(state: CellState, other: CellState) -> CellState:
    """A text as the instant that it writes, beside a date or time."""
    beside = other.low if isinstance(other, Span) else other
    is_written = isinstance(state, str) and isinstance(beside, datetime)
    return datetime.fromisoformat(str(state)) if is_written else state


def _first(*states: CellState) -> CellState:
    return next((s for s in states if s is not None), None)


def _unless_equal(state: CellState, other: CellState) -> CellState:
    return None if _holds("=", state, other) else state


def _text(state: CellState) -> str:
    if not isinstance(state, str):
        raise TypeError("not a text")
    return state


def _written(state: CellState) -> str:
    """A value as a text."""
    if isinstance(state, str):
        return state
    if isinstance(state, bool) or not isinstance(state, int):
        raise TypeError("not a text or a whole number")
    return str(state)


def _joined_texts(*states: CellState) -> CellState:
    return "".join(map(_written, states))


def _whole_number(state: CellState) -> CellState:
    own = cells.as_numbers(state)
    if not isinstance(own.low, int):
        raise TypeError("not a whole number")
    return own.simplest


def _real_number(state: CellState) -> CellState:
    own = cells.as_numbers(state)
    return own.mapped(lambda n: Fraction(n) if isinstance(n, int) else n)


_MOMENTS: Final = ("DATE", "TIMESTAMP", "DATETIME", "TIMESTAMPNTZ")
_CASTS: Final[dict[str, tuple[Compute, str]]] = {
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR"), (_written, "texts and whole numbers")),
    **dict.fromkeys(("INT", "BIGINT", "SMALLINT", "TINYINT"), (_whole_number, "whole numbers")),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL", "REAL"), (_real_number, "numbers")),
    "DATE": (lambda s: cells.truncated(s, "day"), "dates or times"),
}

_SIMPLE: Final[dict[type[exp.Expression], tuple[Compute, str]]] = {
    exp.Add: (lambda a, b: cells.as_numbers(a) + b, "numbers"),
    exp.Sub: (lambda a, b: cells.as_numbers(a) + cells.negated(b), "numbers"),
    exp.Mul: (lambda a, b: cells.as_numbers(a) * b, "numbers"),
    exp.Div: (lambda a, b: cells.as_numbers(a) / b, "numbers"),
    exp.IntDiv: (lambda a, b: _quotient(a, b), "numbers"),
    exp.Mod: (lambda a, b: cells.as_numbers(a) % b, "numbers"),
    exp.Neg: (cells.negated, "numbers"),
    exp.Abs: (cells.absolute, "numbers"),
    exp.Floor: (cells.floored, "numbers"),
    exp.Ceil: (cells.ceiled, "numbers"),
    exp.Upper: (lambda s: _text(s).upper(), "texts"),
    exp.Lower: (lambda s: _text(s).lower(), "texts"),
    exp.Length: (lambda s: len(_text(s)), "texts"),
    exp.DPipe: (_joined_texts, "texts"),
}


def _quotient(a: CellState, b: CellState) -> CellState:
    exact = cells.as_numbers(a) / b
    return None if exact is None else cells.whole(exact)


_Read = Callable[[_ExpressionReader, Any, int], CellFunction]
_READERS: Final[dict[type[exp.Expression], _Read]] = {
    exp.Column: _ExpressionReader.column,
    **dict.fromkeys(_SIMPLE, _ExpressionReader.simple),
    exp.Round: _ExpressionReader.digits,
    exp.Trunc: _ExpressionReader.digits,
    exp.Coalesce: _ExpressionReader.coalesce,
    exp.Nullif: _ExpressionReader.nullif,
    exp.Substring: _ExpressionReader.substring,
    exp.Left: _ExpressionReader.side,
    exp.Right: _ExpressionReader.side,
    exp.Trim: _ExpressionReader.trim,
    exp.Concat: _ExpressionReader.concat,
    exp.Cast: _ExpressionReader.cast,
    exp.Case: _ExpressionReader.case,
    exp.If: _ExpressionReader.when,
    exp.DateTrunc: _ExpressionReader.truncate,
    exp.TimestampTrunc: _ExpressionReader.truncate,
    exp.Extract: _ExpressionReader.extract,
    exp.Year: _ExpressionReader.field,
    exp.Quarter: _ExpressionReader.field,
    exp.Month: _ExpressionReader.field,
    exp.Week: _ExpressionReader.field,
    exp.Day: _ExpressionReader.field,
    exp.Hour: _ExpressionReader.field,
    exp.Minute: _ExpressionReader.field,
    exp.TimeToStr: _ExpressionReader.strftime,
}
_NAMED: Final[dict[str, _Read]] = {
    "DATE_PART": _ExpressionReader.date_part,
    "DATEPART": _ExpressionReader.date_part,
}


def _word(node: exp.Expression | None) -> str:
    """A unit or a field, written as a word or as a text."""
    return "" if node is None else node.name.lower()


NOTHING = Not(Everything())

_COMPARISONS: dict[type[exp.Expression], Comparison] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_NEGATED: dict[Comparison, Comparison] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}
_MIRRORED: dict[Comparison, Comparison] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    ">": "<",
    "<=": ">=",
    ">=": "<=",
}


def condition(node: exp.Expression, names: Names, truth: bool = True) -> Condition:
    """The condition that holds where a SQL condition is true, or where it is false.

    Args:
        node: what sqlglot read.
        names: the columns there are.
        truth: True for the cells where it is true, False for those where it is false.

    Raises:
        SqlError: the node is no condition that can be asked.
    """
    node = without_brackets(node)
    if isinstance(node, exp.Not):
        only(node, "this")
        return condition(node.this, names, not truth)
    if isinstance(node, exp.And | exp.Or):
        parts = [condition(part, names, truth) for part in chain(node)]
        joined = And if isinstance(node, exp.And) == truth else Or
        return joined(tuple(parts))
    if isinstance(node, exp.Boolean):
        return Everything() if bool(node.this) == truth else NOTHING
    if isinstance(node, exp.Null):
        return NOTHING
    if isinstance(node, exp.Column):
        return _boolean_column(names.resolve(node), truth)
    if isinstance(node, exp.Is):
        return _is(node, names, truth)
    if isinstance(node, exp.In):
        return _in(node, names, truth)
    if isinstance(node, exp.Between):
        return _between(node, names, truth)
    if isinstance(node, exp.Like | exp.ILike | exp.Escape):
        return _like(node, names, truth)
    if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
        return _same(node, names, truth)
    for kind, comparison in _COMPARISONS.items():
        if isinstance(node, kind):
            return _comparison(node, comparison if truth else _NEGATED[comparison], names)
    return refuse(node, COMPARES)


def _comparison(node: exp.Expression, comparison: Comparison, names: Names) -> Condition:
    only(node, "this", "expression")
    left, right = without_brackets(node.this), without_brackets(node.expression)
    if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
        left, right, comparison = right, left, _MIRRORED[comparison]
    if isinstance(left, exp.Column) and right.find(exp.Column) is None:
        column, value = names.resolve(left), _constant(right, names)
        return column.where(column.select(comparison, value), f"{comparison} {value}")
    if not is_expression(left) and not is_expression(right):
        return _compare_constants(constant(left), comparison, constant(right))
    text = f"{as_written(left)} {comparison} {as_written(right)}"
    return _compared(left, comparison, right, names, text)


def _compared(
    left: exp.Expression, comparison: Comparison, right: exp.Expression, names: Names, text: str
) -> Condition:
    """A comparison of functions of columns, cell by cell."""
    one, other = (cell_function(node, names, condition) for node in (left, right))
    return _where(one.compare(comparison, other, text), names)


def _where(truth: CellFunction, names: Names) -> Condition:
    """The cells where it is true; neither those where it is false nor those where it is open."""
    mask = np.equal(truth.states, True).astype(np.bool_)
    return mask_condition(names.domain, truth.attributes, mask, truth.text)


def _constant(node: exp.Expression, names: Names) -> Value:
    """A constant that is written out, or computed of such: ``1 + 1``."""
    if not is_expression(node) or isinstance(node, exp.Cast | exp.Neg):
        return constant(node)
    value = folded(node, names, condition)
    return constant(exp.Null()) if value is None else value


def _compare_constants(left: Value, comparison: Comparison, right: Value) -> Condition:
    """A comparison of two constants, such as ``1 = 1``, as programs write it."""
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        raise SqlError(f"{shown(left)} and {shown(right)} cannot be compared; {COMPARES}")
    below, same = left < right, left == right
    holds = {
        "=": same,
        "!=": not same,
        "<": below,
        "<=": below or same,
        ">": not (below or same),
        ">=": not below,
    }
    return Everything() if holds[comparison] else NOTHING


def _boolean_column(column: SqlColumn, truth: bool) -> Condition:
    if column.level is not None or column.attribute.kind != "boolean":
        raise SqlError(f"{column} alone is not a condition, as it is not boolean; {COMPARES}")
    return column.where(column.select("=", truth), f"= {truth}")


def _is(node: exp.Is, names: Names, truth: bool) -> Condition:
    only(node, "this", "expression")
    subject, what = without_brackets(node.this), without_brackets(node.expression)
    if is_expression(subject) and not isinstance(subject, exp.Column):
        return _is_null(node, subject, what, names, truth)
    column = names.resolve(subject)
    if isinstance(what, exp.Null):
        cells = ~column.not_null if truth else column.not_null
        return column.where(cells, "is missing" if truth else "is not missing")
    if not isinstance(what, exp.Boolean) or column.attribute.kind != "boolean":
        raise SqlError(f"{as_written(node)}: IS takes NULL, or TRUE or FALSE on a boolean column")
    cells = column.select("=", bool(what.this))
    word = f"is {'' if truth else 'not '}{bool(what.this)}"
    return column.where(cells if truth else ~cells, word)


def _is_null(
    node: exp.Is, subject: exp.Expression, what: exp.Expression, names: Names, truth: bool
) -> Condition:
    if not isinstance(what, exp.Null):
        raise SqlError(f"{as_written(node)}: IS takes NULL, or TRUE or FALSE on a boolean column")
    own = cell_function(subject, names, condition)
    mask = np.array([(state is None) == truth for state in own.states.reshape(-1)], dtype=np.bool_)
    word = "is missing" if truth else "is not missing"
    shaped = mask.reshape(own.states.shape)
    return mask_condition(names.domain, own.attributes, shaped, f"{own.text} {word}")


def _in(node: exp.In, names: Names, truth: bool) -> Condition:
    only(node, "this", "expressions", "query")
    if node.args.get("query"):
        refuse(exp.Subquery())
    subject = without_brackets(node.this)
    if is_expression(subject) and not isinstance(subject, exp.Column):
        if not node.expressions:
            raise SqlError(f"the list after IN of {as_written(subject)} is empty")
        comparison: Comparison = "=" if truth else "!="
        text = as_written(node) if truth else f"not {as_written(node)}"
        each = [_compared(subject, comparison, e, names, text) for e in node.expressions]
        return Or(tuple(each)) if truth else And(tuple(each))
    column = names.resolve(subject)
    values = [_constant(without_brackets(e), names) for e in node.expressions]
    if not values:
        raise SqlError(f"the list after IN of {column} is empty; list at least one value")
    cells = column.select("=", values[0])
    for value in values[1:]:
        cells = cells | column.select("=", value)
    text = f"in ({', '.join(map(str, values))})"
    if truth:
        return column.where(cells, text)
    return column.where(column.not_null & ~cells, f"not {text}")


def _between(node: exp.Between, names: Names, truth: bool) -> Condition:
    only(node, "this", "low", "high")
    subject, low, high = (without_brackets(node.args[part]) for part in ("this", "low", "high"))
    ends = any(end.find(exp.Column) is not None for end in (low, high))
    if ends or (is_expression(subject) and not isinstance(subject, exp.Column)):
        first, last = (">=", "<=") if truth else ("<", ">")
        text = as_written(node) if truth else f"not {as_written(node)}"
        parts = (
            _compared(subject, cast("Comparison", first), low, names, text),
            _compared(subject, cast("Comparison", last), high, names, text),
        )
        return And(parts) if truth else Or(parts)
    column = names.resolve(subject)
    least, most = _constant(low, names), _constant(high, names)
    text = f"between {least} and {most}"
    if truth:
        return column.where(column.select(">=", least) & column.select("<=", most), text)
    return column.where(column.select("<", least) | column.select(">", most), f"not {text}")


def _like(node: exp.Expression, names: Names, truth: bool) -> Condition:
    """LIKE and ILIKE on the declared values; unlike in SQLite, LIKE minds the case of letters."""
    text, escape = as_written(node), ""
    if isinstance(node, exp.Escape):
        only(node, "this", "expression")
        escape = str(constant(node.expression))
        if len(escape) != 1:
            raise SqlError(f"{text}: ESCAPE takes one character")
        node = node.this
    if not isinstance(node, exp.Like | exp.ILike):
        refuse(node, COMPARES)
    only(node, "this", "expression", "negate")
    pattern = without_brackets(node.expression)
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        raise SqlError(f"{text}: LIKE takes one text such as 'A%'")
    any_case = isinstance(node, exp.ILike)
    like = str(pattern.this).lower() if any_case else str(pattern.this)
    own = cell_function(node.this, names, condition)
    is_wanted = truth != bool(node.args.get("negate"))
    mask = np.zeros(own.states.shape, dtype=np.bool_)
    for place, state in np.ndenumerate(own.states):
        if isinstance(state, str):
            value = state.lower() if any_case else state
            mask[place] = matches(like, value, escape) == is_wanted
        elif state is not None and not isinstance(state, Unknown):
            raise SqlError(
                f"{text}: {own.text} holds no texts; compare numbers and dates with =, < or BETWEEN"
            )
    return mask_condition(names.domain, own.attributes, mask, text if truth else f"not ({text})")


def _same(node: exp.Expression, names: Names, truth: bool) -> Condition:
    """IS [NOT] DISTINCT FROM: a comparison for which NULL is a value."""
    only(node, "this", "expression")
    is_equal = isinstance(node, exp.NullSafeEQ) == truth
    one = cell_function(node.this, names, condition)
    other = cell_function(node.expression, names, condition)
    text = as_written(node) if truth else f"not ({as_written(node)})"
    equal = _where(one.compare("=", other, text), names)
    nulls = [
        _is_null(exp.Is(), side, exp.Null(), names, truth=True)
        for side in (node.this, node.expression)
    ]
    same = Or((equal, And(tuple(nulls))))
    return same if is_equal else Not(same)


def conjunction(conditions: Sequence[Condition]) -> list[Condition]:
    """The parts of an AND of conditions, nested ones opened."""
    parts: list[Condition] = []
    waiting = list(reversed(conditions))
    while waiting:
        part = waiting.pop()
        if isinstance(part, And):
            waiting += reversed(part.parts)
        else:
            parts.append(part)
    return parts


def sql_condition(domain: Domain, text: str) -> Condition:
    """The condition that SQL would write after WHERE.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2})
    >>> str(sql_condition(domain, "NOT (age < 25 OR sex = 1)"))
    'age >= 25 and sex != 1'
    """
    if not isinstance(text, str) or not text.strip():
        raise SqlError(f'a condition is a text such as "age >= 25", got {shown(text)}')
    # Parsed here and never sent to an engine; what is more than a condition is refused below.
    select = parsed_select(f"SELECT COUNT(*) FROM data WHERE {text}")  # noqa: S608
    if select.args.get("group") or not select.args.get("where"):
        raise SqlError(f"{shown(text)} is more than a condition; leave out all that follows it")
    return condition(select.args["where"].this, Names(domain, ("data",)))
