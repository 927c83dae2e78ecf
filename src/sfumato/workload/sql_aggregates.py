# SPDX-License-Identifier: Apache-2.0
"""From an aggregate of SQL to coefficients: what each record adds to the answer.

``COUNT`` adds 1, ``SUM`` a number that the record's cells determine. Both may look at some
records only (``FILTER``) and may depend on conditions (``CASE``). ``AVG`` is a SUM over a COUNT.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from sqlglot import exp

from sfumato.domain import Domain, Values
from sfumato.domain.attributes import Value
from sfumato.domain.values import with_values
from sfumato.errors import SqlError
from sfumato.workload.build import (
    MeanOfValues,
    has_spread_values,
    hidden_by_bins,
    mean_of_values,
)
from sfumato.workload.predicates import And, Condition, Everything, Not
from sfumato.workload.queries import Array
from sfumato.workload.sql_conditions import Asked, Names, condition, constant
from sfumato.workload.sql_parse import as_written, only, refuse, without_brackets

__all__ = ["MOST_WRITTEN", "Aggregate", "Linear", "aggregate"]

MOST_WRITTEN = 1_000  # characters of an aggregate that are told in an answer

AGGREGATES = (
    "allowed are COUNT(*), COUNT(column), SUM(column), AVG(column) and the three of CASE WHEN "
    "condition THEN number ELSE number END, with FILTER (WHERE condition) if wanted"
)


@dataclass(frozen=True, eq=False, slots=True)
class Linear:
    """A record in ``only`` adds the sum of the numbers of the pieces that it satisfies.

    With a column, that is multiplied by the number of the record's cell in it.
    """

    only: Condition
    pieces: tuple[tuple[Condition, float], ...]
    column: str | None = None
    numbers: Array | None = None
    domain: Domain | None = None
    """The domain with the values that are summed, where the column is one of these."""


@dataclass(frozen=True, eq=False, slots=True)
class Aggregate:
    """One column of the answers: a linear query, or the ratio of two.

    ``label`` is its alias or what was written, ``written`` always the latter.
    """

    written: str
    label: str
    is_named: bool
    value: Linear
    divisor: Linear | None = None
    mean: MeanOfValues | None = None
    hidden: float = 0.0
    binned: str = ""


def aggregate(node: exp.Expression, names: Names, in_bins: bool = False) -> Aggregate:
    """Read one aggregate, with its alias if it has one; ``in_bins`` takes the middles of bins."""
    label, is_named = as_written(node), isinstance(node, exp.Alias)
    if isinstance(node, exp.Alias):
        only(node, "this", "alias")
        label, node = node.alias, node.this
    written = as_written(node, MOST_WRITTEN)
    node = without_brackets(node)
    among: Condition = Everything()
    if isinstance(node, exp.Filter):
        only(node, "this", "expression")
        among = condition(node.expression.this, names)
        node = without_brackets(node.this)
    if type(node) is exp.Count:
        return Aggregate(written, label, is_named, replace(_count(node, names), only=among))
    if type(node) not in (exp.Sum, exp.Avg):
        refuse(node, AGGREGATES)
    only(node, "this")
    is_mean = isinstance(node, exp.Avg)
    column = _spread(without_brackets(node.this), names)
    hidden, binned = 0.0, ""
    if column is not None and in_bins:
        label, written = f"{label} (middles of bins)", f"{written} (middles of bins)"
        hidden, binned, column = hidden_by_bins(names.domain[column]), column, None
    if column is not None and is_mean:
        mean = mean_of_values(names.domain, column)
        parts = (_of_values(mean.domain, mean.values, r) for r in (mean.centred, mean.counted))
        total, number = (replace(part, only=among) for part in parts)
        return Aggregate(written, label, is_named, total, number, mean)
    if column is not None:
        domain, values = with_values(names.domain, column)
        total = _of_values(domain, values, values.powers(1))
        return Aggregate(written, label, is_named, replace(total, only=among))
    total, number = _sum(without_brackets(node.this), names)
    value, divisor = replace(total, only=among), replace(number, only=among)
    divided = divisor if is_mean else None
    return Aggregate(written, label, is_named, value, divided, hidden=hidden, binned=binned)


def _spread(summed: exp.Expression, names: Names) -> str | None:
    """The attribute whose values are summed themselves, if its cells do not tell them."""
    if not isinstance(summed, exp.Column):
        return None
    column = names.resolve(summed)
    is_spread = column.level is None and has_spread_values(column.attribute)
    return column.attribute.name if is_spread else None


def _of_values(domain: Domain, values: Values, coefficients: Array) -> Linear:
    every = ((Everything(), 1.0),)
    return Linear(Everything(), every, values.name, coefficients, domain)


def _count(node: exp.Count, names: Names) -> Linear:
    only(node, "this", "big_int")
    counted = without_brackets(node.this)
    if isinstance(counted, exp.Star):
        only(counted)
        return _always(1.0)
    if isinstance(counted, exp.Case):
        pieces = [(when, then) for when, then in _branches(counted, names) if then is not None]
        return Linear(Everything(), tuple((when, 1.0) for when, _ in pieces))
    if isinstance(counted, exp.Column):
        column = names.resolve(counted)
        return Linear(Everything(), ((column.where(column.known, "is not missing"), 1.0),))
    constant(counted)  # COUNT(1) counts every record
    return _always(1.0)


def _sum(summed: exp.Expression, names: Names) -> tuple[Linear, Linear]:
    """The sum, and the number of records that it is over."""
    if isinstance(summed, exp.Case):
        values = [(when, then) for when, then in _branches(summed, names) if then is not None]
        numbers = [(when, _number(then, summed)) for when, then in values]
        counts = tuple((when, 1.0) for when, _ in values)
        return Linear(Everything(), tuple(numbers)), Linear(Everything(), counts)
    if isinstance(summed, exp.Column):
        column = names.resolve(summed)
        if column.level is not None:
            raise SqlError(
                f"{column} is a level of groups and has no sum; sum {column.attribute.name}"
            )
        attribute = column.attribute
        declared = np.arange(attribute.size) < attribute.value_count
        number = ((column.where(declared, "is a number"), 1.0),)
        every = ((Everything(), 1.0),)
        total = Linear(Everything(), every, attribute.name, attribute.numbers())
        return total, Linear(Everything(), number)
    if isinstance(summed, exp.Distinct | exp.Star | exp.Null):
        refuse(summed, AGGREGATES)
    return _always(_number(constant(summed), summed)), _always(1.0)


def _always(number: float) -> Linear:
    return Linear(Everything(), ((Everything(), number),))


def _number(value: object, node: exp.Expression) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SqlError(f"{as_written(node)} sums what is not a number; {AGGREGATES}")
    return float(value)


def _branches(case: exp.Case, names: Names) -> list[tuple[Condition, Value | None]]:
    """Disjoint conditions with their constants, None for NULL: the first true WHEN decides."""
    only(case, "this", "ifs", "default")
    operand = case.args.get("this")
    earlier: list[Condition] = []
    out: list[tuple[Condition, Value | None]] = []
    for branch in case.args["ifs"]:
        only(branch, "this", "true")
        if operand is None:
            when = condition(branch.this, names)
        else:
            when = _equals(names.resolve(without_brackets(operand)), branch.this)
        out.append((_unless(earlier, when), _constant_or_null(branch.args["true"])))
        earlier.append(when)
    rest = case.args.get("default")
    if rest is not None:
        out.append((_unless(earlier, Everything()), _constant_or_null(rest)))
    return out


def _unless(earlier: list[Condition], when: Condition) -> Condition:
    """``Not`` is the complement in cells here: a WHEN that is unknown is passed over, too."""
    others = tuple(Not(e) for e in earlier)
    return And((when, *others)) if others else when


def _equals(column: Asked, node: exp.Expression) -> Condition:
    value = constant(node)
    return column.where(column.select("=", value), f"= {value}")


def _constant_or_null(node: exp.Expression) -> Value | None:
    node = without_brackets(node)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Column):
        raise SqlError(
            f"THEN {as_written(node)}: CASE gives constants; for a column, write "
            f"SUM({as_written(node)}) FILTER (WHERE condition)"
        )
    return constant(node)
