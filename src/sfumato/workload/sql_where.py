# SPDX-License-Identifier: Apache-2.0
"""From SQL's WHERE to a condition over cells, with SQL's three truth values.

A comparison with a missing value is neither true nor false, so NOT of it does not hold either.
``condition(node, names, truth)`` returns the cells where the node is true, or where it is false;
NOT swaps the two, AND and OR follow De Morgan, and only the leaves look at cells. `sql_condition`
reads a text as SQL's WHERE does.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sfumato.domain.attributes import Comparison, Value
from sfumato.domain.domain import Domain
from sfumato.errors import SqlError
from sfumato.text import shown
from sfumato.workload.predicates import And, Condition, Everything, Not, Or
from sfumato.workload.sql_text import (
    COMPARES,
    Names,
    SqlColumn,
    as_written,
    constant,
    only,
    parsed_select,
    refuse,
    without_brackets,
)

__all__ = [
    "NOTHING",
    "condition",
    "conjunction",
    "sql_condition",
]

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
        parts = [condition(part, names, truth) for part in _chain(node)]
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
    for kind, comparison in _COMPARISONS.items():
        if isinstance(node, kind):
            return _comparison(node, comparison if truth else _NEGATED[comparison], names)
    return refuse(node, COMPARES)


def _chain(node: exp.Expression) -> list[exp.Expression]:
    """The parts of a AND b AND c ..., without one call per part."""
    parts: list[exp.Expression] = []
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if type(part) is type(node):
            only(part, "this", "expression")
            waiting += [part.expression, part.this]
        else:
            parts.append(part)
    return parts


def _comparison(node: exp.Expression, comparison: Comparison, names: Names) -> Condition:
    only(node, "this", "expression")
    left, right = without_brackets(node.this), without_brackets(node.expression)
    if isinstance(right, exp.Column) and isinstance(left, exp.Column):
        names.resolve(left), names.resolve(right)
        raise SqlError(f"{as_written(node)} compares two columns: {COMPARES}")
    if isinstance(right, exp.Column):
        left, right, comparison = right, left, _MIRRORED[comparison]
    if not isinstance(left, exp.Column):
        return _compare_constants(constant(left), comparison, constant(right))
    column, value = names.resolve(left), constant(right)
    return column.where(column.select(comparison, value), f"{comparison} {value}")


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
    column, what = names.resolve(without_brackets(node.this)), without_brackets(node.expression)
    if isinstance(what, exp.Null):
        cells = ~column.not_null if truth else column.not_null
        return column.where(cells, "is missing" if truth else "is not missing")
    if not isinstance(what, exp.Boolean) or column.attribute.kind != "boolean":
        raise SqlError(f"{as_written(node)}: IS takes NULL, or TRUE or FALSE on a boolean column")
    cells = column.select("=", bool(what.this))
    word = f"is {'' if truth else 'not '}{bool(what.this)}"
    return column.where(cells if truth else ~cells, word)


def _in(node: exp.In, names: Names, truth: bool) -> Condition:
    only(node, "this", "expressions", "query")
    if node.args.get("query"):
        refuse(exp.Subquery())
    column = names.resolve(without_brackets(node.this))
    values = [constant(e) for e in node.expressions]
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
    column = names.resolve(without_brackets(node.this))
    low, high = constant(node.args["low"]), constant(node.args["high"])
    text = f"between {low} and {high}"
    if truth:
        return column.where(column.select(">=", low) & column.select("<=", high), text)
    return column.where(column.select("<", low) | column.select(">", high), f"not {text}")


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
