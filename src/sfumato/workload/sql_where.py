# SPDX-License-Identifier: Apache-2.0
"""From SQL's WHERE to a condition over cells, with SQL's three truth values.

A comparison with a missing value is neither true nor false, so NOT of it does not hold either.
``condition(node, names, truth)`` returns the cells where the node is true, or where it is false;
NOT swaps the two, AND and OR follow De Morgan, and only the leaves look at cells. `sql_condition`
reads a text as SQL's WHERE does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from sqlglot import exp

from sfumato.domain.attributes import Comparison, Value
from sfumato.domain.domain import Domain
from sfumato.errors import SqlError
from sfumato.text import shown
from sfumato.workload.cell_values import Unknown, matches
from sfumato.workload.predicates import And, Condition, Everything, Not, Or
from sfumato.workload.sql_expressions import (
    CellFunction,
    cell_function,
    folded,
    is_expression,
    mask_condition,
)
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
