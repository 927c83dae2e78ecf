# SPDX-License-Identifier: Apache-2.0
"""From one SELECT to a workload: counting queries, sums and means written in SQL.

The text is parsed with sqlglot and turned into terms over the domain; nothing that a person typed
reaches an engine, and what is not a linear query is refused with the name of the construct.

A WHERE that is a conjunction of conditions on one attribute each becomes a product: grouped
attributes cell by cell, filtered ones as one row of coefficients. Anything else is tabulated over
the cells of the attributes that it looks at together, or counted condition by condition.

WHERE decides which groups appear, among the public cells; the data never do.

An aggregate becomes a term: what each record adds to the answer of its group. ``COUNT`` adds 1,
``SUM`` a number that the record's cells determine. Both may look at some records only (``FILTER``)
and may depend on conditions (``CASE``). ``AVG`` is a SUM over a COUNT. `aggregate` reads one
aggregate; `linear_term` makes a term of it, of the groups and of the WHERE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod

import numpy as np
from sqlglot import exp

from sfumato.domain.attributes import Value
from sfumato.domain.domain import Domain, base_of, joined, valued, with_values
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.domain.values import Fractional
from sfumato.errors import SqlError, TooLarge
from sfumato.text import listing, shown
from sfumato.types import Array, Integers, Mask
from sfumato.workload.bins import hidden_by_bins
from sfumato.workload.build import MeanOfValues, has_spread_values, mean_of_values
from sfumato.workload.predicates import And, Condition, Everything, In, Not, Or, indicator
from sfumato.workload.queries import (
    Groups,
    Identity,
    Matrix,
    Prefix,
    QuerySet,
    check_entries,
    integer_entries,
    value_entries,
)
from sfumato.workload.sql_expressions import (
    CellFunction,
    cell_function,
    condition,
    conjunction,
    is_expression,
)
from sfumato.workload.sql_text import (
    Names,
    SqlColumn,
    as_written,
    constant,
    only,
    parsed_select,
    refuse,
    without_brackets,
)
from sfumato.workload.statements.sql_moments import (
    MeanOfPolynomial,
    Polynomial,
    SqlMoment,
    polynomial,
    second_moment,
)
from sfumato.workload.statements.statement import (
    AFTERWARDS,
    AnswerOutput,
    ConstantOutput,
    GroupAxis,
    GroupKey,
    GroupRows,
    LabelOutput,
    MeanOutput,
    QuantileOutput,
    SelectedColumn,
    SelectOutput,
    Statement,
    along,
    axes_of_keys,
    finished,
    key_of_column,
    key_of_function,
    read_off,
    tells_apart,
)
from sfumato.workload.terms import Explicit, Predicates, Product, StructuredLabel, Term
from sfumato.workload.workload import Ratio, Statistic, Workload
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "Aggregate",
    "Linear",
    "aggregate",
    "linear_term",
    "select_workload",
    "sql",
    "workload_of",
]

AGGREGATES = (
    "allowed are COUNT(*), COUNT(column), SUM(column), AVG(column) and the three of CASE WHEN "
    "condition THEN number ELSE number END, SUM and AVG of sums and products of columns and "
    "constants, VARIANCE, STDDEV, COVAR_POP, CORR and their kin, with FILTER (WHERE condition) if "
    "wanted"
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
    of_persons: bool = False
    """Whether persons are counted, so that each must be counted once in every group."""


@dataclass(frozen=True, slots=True)
class QuantileOf:
    """The quantile of an ordered attribute at a probability."""

    attribute: str
    probability: float


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
    mean: MeanOfValues | MeanOfPolynomial | None = None
    hidden: float = 0.0
    binned: str = ""
    quantile: QuantileOf | None = None
    moment: SqlMoment | None = None


def aggregate(node: exp.Expression, names: Names, in_bins: bool = False) -> Aggregate:
    """One aggregate as coefficients, with its alias if it has one.

    With ``in_bins`` a record counts as the middle of its bin.
    """
    label, is_named = as_written(node), isinstance(node, exp.Alias)
    if isinstance(node, exp.Alias):
        only(node, "this", "alias")
        label, node = node.alias, node.this
    written = as_written(node, LIMITS.sql_label_characters)
    node = without_brackets(node)
    among: Condition = Everything()
    if isinstance(node, exp.Filter):
        only(node, "this", "expression")
        among = condition(node.expression.this, names)
        node = without_brackets(node.this)
    if type(node) is exp.Count:
        return Aggregate(written, label, is_named, replace(_count(node, names), only=among))
    if type(node) is exp.CountIf:
        only(node, "this")
        counted = Linear(among, ((condition(node.this, names), 1.0),))
        return Aggregate(written, label, is_named, counted)
    quantile = _quantile(node, names)
    if quantile is not None:
        if in_bins:
            raise SqlError(
                f"{written.split('(')[0]} cannot be asked one by one: it is read off running "
                "totals, which are released together; use sf.plan or sfumato release"
            )
        return Aggregate(
            written, label, is_named, Linear(among, ((Everything(), 1.0),)), quantile=quantile
        )
    moment = second_moment(node, names)
    if moment is not None:
        _refuse_in_bins(written, in_bins)
        of = _rows_of_moments(moment, among)[0][1]
        return Aggregate(written, label, is_named, of, moment=moment)
    if type(node) not in (exp.Sum, exp.Avg):
        refuse(node, AGGREGATES)
    only(node, "this")
    is_mean = isinstance(node, exp.Avg)
    summed = polynomial(without_brackets(node.this), names)
    if summed is not None:
        _refuse_in_bins(written, in_bins)
        return _of_polynomial(summed, among, is_mean, Aggregate(written, label, is_named, _NOTHING))
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


def _quantile(node: exp.Expression, names: Names) -> QuantileOf | None:
    """The quantile that an aggregate is, None where it is none."""
    parts = _quantile_parts(node)
    if parts is None:
        return None
    of, probability, is_falling = parts
    column = names.resolve(without_brackets(of))
    if column.level is not None or not column.attribute.is_ordered:
        raise SqlError(
            f"{as_written(node)}: quantiles are of columns that have an order: integer, numeric or "
            f"datetime; {column} is a {'level' if column.level else column.attribute.kind}"
        )
    p = constant(probability)
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0 < p < 1:
        raise SqlError(f"{as_written(node)}: a probability is above 0 and below 1, got {shown(p)}")
    return QuantileOf(column.attribute.name, float(1 - p if is_falling else p))


def _quantile_parts(
    node: exp.Expression,
) -> tuple[exp.Expression, exp.Expression, bool] | None:
    """What it is of, the probability, and whether that counts from the top."""
    if isinstance(node, exp.Median):
        only(node, "this")
        return node.this, exp.Literal.number("0.5"), False
    if isinstance(node, exp.Quantile | exp.ApproxQuantile):
        only(node, "this", "quantile")
        return node.this, node.args["quantile"], False
    if isinstance(node, exp.Anonymous) and str(node.this).upper() in _QUANTILE_NAMES:
        only(node, "this", "expressions")
        if len(node.expressions) != 2:
            raise SqlError(f"{as_written(node)} takes a column and a probability")
        return node.expressions[0], node.expressions[1], False
    inner = node.this if isinstance(node, exp.WithinGroup) else None
    if not isinstance(inner, exp.PercentileCont | exp.PercentileDisc):
        return None
    only(node, "this", "expression")
    only(inner, "this")
    listed = node.expression.expressions if isinstance(node.expression, exp.Order) else []
    if len(listed) != 1 or not isinstance(listed[0], exp.Ordered):
        raise SqlError(f"{as_written(node)}: WITHIN GROUP (ORDER BY column) names one column")
    only(listed[0], "this", "desc", "nulls_first")
    return listed[0].this, inner.this, bool(listed[0].args.get("desc"))


_QUANTILE_NAMES = ("QUANTILE_CONT", "QUANTILE_DISC", "PERCENTILE", "APPROX_PERCENTILE")


def _spread(summed: exp.Expression, names: Names) -> str | None:
    """The attribute whose values are summed themselves, if its cells do not tell them."""
    if not isinstance(summed, exp.Column):
        return None
    column = names.resolve(summed)
    is_spread = column.level is None and has_spread_values(column.attribute)
    return column.attribute.name if is_spread else None


def _of_values(
    domain: Domain, values: Fractional, coefficients: Array, among: Condition | None = None
) -> Linear:
    every = ((Everything(), 1.0),)
    only = Everything() if among is None else among
    return Linear(only, every, values.name, coefficients, domain)


def _of_polynomial(
    summed: Polynomial, among: Condition, is_mean: bool, aggregated: Aggregate
) -> Aggregate:
    """The sum of a polynomial of columns, or its mean."""
    over = partial(_of_values, summed.domain, summed.cells, among=among)
    if not is_mean:
        return replace(aggregated, value=over(summed.coefficients))
    mean = summed.mean()
    return replace(aggregated, value=over(mean.centred), divisor=over(summed.counted), mean=mean)


def _rows_of_moments(moment: SqlMoment, among: Condition) -> list[tuple[str, Linear]]:
    """What a variance is asked as: words and coefficients."""
    parts = moment.parts
    over = partial(_of_values, parts.domain, parts.moments, among=among)
    return [(f"sum of {text}", over(row)) for text, row in parts.queries]


def _refuse_in_bins(written: str, in_bins: bool) -> None:
    if in_bins:
        raise SqlError(
            f"{written} needs the values themselves, and what is asked one by one knows bins only; "
            "use sf.plan or sfumato release"
        )


def _count(node: exp.Count, names: Names) -> Linear:
    only(node, "this", "big_int")
    counted = without_brackets(node.this)
    if isinstance(counted, exp.Distinct) and names.unit is not None:
        _check_persons(counted, names.unit)
        return replace(_always(1.0), of_persons=True)
    if isinstance(counted, exp.Star):
        only(counted)
        return _always(1.0)
    if isinstance(counted, exp.Case):
        pieces = [(when, then) for when, then in _branches(counted, names) if then is not None]
        return Linear(Everything(), tuple((when, 1.0) for when, _ in pieces))
    if isinstance(counted, exp.Column):
        column = names.resolve(counted)
        return Linear(Everything(), ((column.where(column.not_null, "is not missing"), 1.0),))
    constant(counted)  # COUNT(1) counts every record
    return _always(1.0)


def _check_persons(counted: exp.Distinct, unit: PrivacyUnit) -> None:
    """Refuse to count distinct values of anything but the privacy unit."""
    only(counted, "expressions")
    listed = [without_brackets(each) for each in counted.expressions]
    if len(listed) != 1 or not isinstance(listed[0], exp.Column) or listed[0].name != unit.column:
        raise SqlError(
            f"COUNT({as_written(counted)}): distinct values are counted of the privacy unit alone, "
            f"COUNT(DISTINCT {unit.column}); other columns have public values"
        )


def _check_once(
    aggregates: Sequence[Aggregate], axes: Sequence[GroupAxis], unit: PrivacyUnit | None
) -> None:
    """Refuse to count persons where one may be counted several times in a group."""
    if unit is None or not any(one.value.of_persons for one in aggregates) or unit.is_one_row:
        return
    if unit.rows_per_group != 1 or not tells_apart(axes, unit.by):
        by = ", ".join(unit.by) or "day"
        raise SqlError(
            f"COUNT(DISTINCT {unit.column}) needs a privacy unit that counts a person once in every"
            f" group: sf.PrivacyUnit({unit.column!r}, groups=..., rows_per_group=1, by=[...]) with "
            f"GROUP BY {by}, or sf.PrivacyUnit({unit.column!r}, 1) for any groups"
        )


def _sum(summed: exp.Expression, names: Names) -> tuple[Linear, Linear]:
    """The coefficients of the sum, and of the number of records that it is over."""
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


_NOTHING = _always(0.0)


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
    """The WHEN where no earlier one holds.

    ``Not`` is the complement in cells here: a WHEN that is unknown is passed over, too.
    """
    others = tuple(Not(e) for e in earlier)
    return And((when, *others)) if others else when


def _equals(column: SqlColumn, node: exp.Expression) -> Condition:
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


# From coefficients, groups and a WHERE to one term over the cells


class _Split:
    """The parts of a linear query: those on single attributes, and those on several."""

    def __init__(self, domain: Domain, name: str, where: Condition, linear: Linear) -> None:
        self.domain = domain
        self.name = name
        self.rows: dict[str, Mask] = {}  # cells of one attribute that WHERE leaves
        self.weights: dict[str, Array] = {}  # coefficients that depend on one attribute
        self.texts: dict[str, list[str]] = {}  # conditions on an attribute as written
        self.where: list[Condition] = []  # conditions of WHERE on several attributes
        self.joint: list[Condition] = []  # other conditions on several attributes
        self.pieces: tuple[tuple[Condition, float], ...] = ()  # numbers on several attributes
        self.scalar = 1.0
        for part in conjunction([where]):
            cells = self._single(part)
            if cells is None:
                self.where.append(part)
            elif cells:
                ((attr, mask),) = cells.items()
                self.rows[attr] = self.rows.get(attr, True) & mask
        self._require([linear.only])
        self._add_pieces([piece for piece in linear.pieces if piece[1] != 0])
        if linear.column is not None and linear.numbers is not None:
            self._weigh(linear.column, linear.numbers)

    def _single(self, part: Condition) -> dict[str, Mask] | None:
        """The cells of the one attribute of a condition; nothing where it always holds."""
        if len(part.attributes) > 1:
            return None
        if not part.attributes:
            if not indicator(part, self.domain, ()):
                raise self.always_zero()
            return {}
        (attr,) = part.attributes
        self.texts.setdefault(attr, []).append(str(part))
        return {attr: indicator(part, self.domain, (attr,))}

    def _require(self, conditions: Sequence[Condition]) -> None:
        for part in conjunction(conditions):
            cells = self._single(part)
            if cells is None:
                self.joint.append(part)
            else:
                for attr, mask in cells.items():
                    self._weigh(attr, mask.astype(np.float64))

    def _add_pieces(self, pieces: Sequence[tuple[Condition, float]]) -> None:
        attributes = frozenset().union(*(c.attributes for c, _ in pieces))
        if not pieces:
            raise self.always_zero()
        if len(attributes) <= 1:
            names = tuple(attributes)
            value = sum(number * indicator(c, self.domain, names) for c, number in pieces)
            if names:
                self.texts.setdefault(names[0], []).extend(str(c) for c, _ in pieces)
                self._weigh(names[0], np.asarray(value, dtype=np.float64))
            else:
                self.scalar = float(np.asarray(value))
                if self.scalar == 0:
                    raise self.always_zero()
        elif len(pieces) == 1:
            self.scalar = pieces[0][1]
            self._require([pieces[0][0]])
        else:
            self.pieces = tuple(pieces)

    def _weigh(self, attr: str, values: Array) -> None:
        self.weights[attr] = self.weights.get(attr, 1.0) * values

    def fold_scalar(self, grouped: Sequence[str]) -> None:
        """Put a number that all records share on one attribute."""
        if self.scalar == 1.0:
            return
        smallest = min(self.domain.names, key=lambda n: self.domain[n].size)
        attr = next(iter((*self.weights, *self.rows, *grouped)), smallest)
        self._weigh(attr, np.full(self.domain[attr].size, self.scalar))

    @property
    def is_product(self) -> bool:
        """Whether every part is about one attribute."""
        return not self.where and not self.joint and not self.pieces

    @property
    def is_counting(self) -> bool:
        """Whether all coefficients are 0 or 1, of whole records; branches of CASE are disjoint."""
        return (
            all(_is_01(w) for w in self.weights.values())
            and all(number == 1 for _, number in self.pieces)
            and not valued(self.domain, self.weights)
        )

    def cells(self, attr: str) -> Mask:
        """The cells of an attribute that WHERE leaves."""
        return self.rows.get(attr, np.ones(self.domain[attr].size, dtype=np.bool_))

    def counted(self, attr: str) -> Mask:
        """The cells that WHERE leaves and that have the coefficient 1."""
        return np.asarray(self.cells(attr) & (self.weights.get(attr, np.ones(1)) == 1))

    def attributes(self, grouped: Sequence[GroupAxis]) -> tuple[str, ...]:
        """All attributes that the query looks at."""
        conditions = [*self.where, *self.joint, *(c for c, _ in self.pieces)]
        names = [*_names(grouped), *self.rows, *self.weights]
        return self.domain.in_order([*names, *(a for c in conditions for a in c.attributes)])

    def always_zero(self) -> SqlError:
        """The refusal where no cell of the domain adds to the answer."""
        return SqlError(
            f"{self.name}: by the schema no record can count here, so the answer is always 0; "
            "check the condition"
        )


def _names(grouped: Sequence[GroupAxis]) -> list[str]:
    return [name for axis in grouped for name in axis.attributes]


def linear_term(
    domain: Domain, name: str, grouped: Sequence[GroupAxis], where: Condition, linear: Linear
) -> Term:
    """One query per group: the sum of the coefficients of its records that satisfy WHERE."""
    split = _Split(domain, name, where, linear)
    split.fold_scalar(_names(grouped))
    are_single = all(axis.is_single for axis in grouped)
    if split.is_product and are_single:
        return _product(split, grouped)
    names = split.attributes(grouped)
    if not are_single and domain.cells(names) > LIMITS.cells_tabulated:
        raise _too_large(split, grouped)
    if split.is_counting and (not grouped or domain.cells(names) > LIMITS.cells_tabulated):
        return _conditions(split, grouped)
    return _tabulated(split, grouped, names)


def _product(split: _Split, grouped: Sequence[GroupAxis], without: str = "") -> Product:
    by_name = {g.name: g for g in grouped}
    factors: list[tuple[str, QuerySet]] = []
    for attr in split.attributes(grouped):
        if attr == without:
            continue
        cells = split.cells(attr)
        weights = split.weights.get(attr, np.ones(len(cells)))
        if attr in by_name:
            factors.append((attr, _group_factor(split, by_name[attr], cells, weights)))
            continue
        row = cells * weights
        if not row.any():
            raise split.always_zero()
        text = " and ".join(split.texts.get(attr, [attr]))
        if valued(split.domain, [attr]):
            factors.append((attr, Matrix.of_values(row, (text,), "sum of")))
        elif (row != 1).any():
            factors.append((attr, Matrix.of(row, (text,), "where")))
    return Product(split.domain, split.name, 1.0, tuple(factors))


def _group_factor(split: _Split, group: GroupAxis, cells: Mask, weights: Array) -> QuerySet:
    """The queries of a column of GROUP BY: the groups that WHERE leaves.

    Other conditions and numbers change only the coefficients.
    """
    if cells.all() and (weights == 1).all() and group.is_cells:
        return Identity(len(cells))
    labels, group_of = group.among(cells)
    if not (cells & (weights != 0) & (group_of >= 0)).any():
        raise split.always_zero()
    is_small = group.is_cells and len(labels) * len(cells) <= LIMITS.matrix_entries
    if _is_01(weights) and not is_small:
        chosen = np.where(cells & (weights == 1), group_of, -1)
        return Groups(len(cells), group.level, labels, tuple(chosen.tolist()), group.title)
    check_entries(len(labels) * len(cells), f"a matrix of the groups of {group.name!r}")
    entries = np.zeros((len(labels), len(cells)))
    at = np.flatnonzero(cells & (group_of >= 0))
    entries[group_of[at], at] = weights[at]
    return Matrix.of(entries, labels, "cells of")


def totals_term(
    domain: Domain,
    name: str,
    grouped: Sequence[GroupAxis],
    where: Condition,
    linear: Linear,
    of: QuantileOf,
) -> Term:
    """The running totals of an attribute by groups, which its quantiles are read off."""
    split = _Split(domain, name, where, linear)
    if not split.is_product or any(not axis.is_single for axis in grouped):
        raise SqlError(
            f"{name}: quantiles are asked under conditions on one column each, joined with AND, "
            "and by columns or functions of one column each"
        )
    if of.attribute in _names(grouped):
        raise SqlError(
            f"{name}: {of.attribute} is grouped by, too; quantiles are of a column that is not"
        )
    by = _product(split, grouped, of.attribute)
    attribute = domain[of.attribute]
    cells = split.cells(of.attribute) * split.weights.get(of.attribute, np.ones(1))
    queries: QuerySet = Prefix(attribute.size)
    if not cells.all():
        check_entries(attribute.value_count * attribute.size, f"the running totals of {name!r}")
        labels = tuple(f"up to {attribute.label(c)}" for c in range(attribute.value_count))
        totals = np.tril(np.ones((attribute.value_count, attribute.size))) * cells
        if not totals.any():
            raise split.always_zero()
        queries = Matrix.of(totals, labels, "totals of")
    factors = dict(by.factors) | {of.attribute: queries}
    return replace(by, factors=tuple((n, factors[n]) for n in domain.in_order(factors)))


def _conditions(split: _Split, grouped: Sequence[GroupAxis]) -> Predicates:
    """A term of one condition per group, where cells are too many or nothing is grouped."""
    always: list[Condition] = [*split.where, *split.joint]
    if split.pieces:
        always.append(Or(tuple(c for c, _ in split.pieces)))
    by_name = {g.name: g for g in grouped}
    counted = {name: split.counted(name) for name in (*by_name, *split.rows, *split.weights)}
    for attr in split.domain.in_order(set(counted) - set(by_name)):
        text = " and ".join(split.texts.get(attr, [attr]))
        always.append(In(attr, tuple(np.flatnonzero(counted[attr]).tolist()), text))
    choices = [g.holding(split.cells(g.name)).tolist() for g in grouped]
    if prod(map(len, choices)) > LIMITS.sql_conditions:
        raise _too_large(split, grouped)
    present = _present(split, grouped)
    conditions, labels = [], []
    for choice in product(*choices):
        if present is not None and not present[choice]:
            continue
        own = [
            In(g.name, tuple(np.flatnonzero(counted[g.name] & (g.group_of == i)).tolist()))
            for g, i in zip(grouped, choice, strict=True)
        ]
        conditions.append(And((*own, *always)))
        labels.append(_group_label(grouped, choice) or split.name)
    if not conditions:
        raise split.always_zero()
    return Predicates(split.domain, split.name, 1.0, tuple(conditions), tuple(labels))


def _present(split: _Split, grouped: Sequence[GroupAxis]) -> Mask | None:
    """Which groups WHERE leaves, as ``_tabulated`` would find; None when that is too wide.

    This depends on WHERE alone, so that all aggregates of a SELECT have the same rows.
    """
    inside_where = (a for c in split.where for a in c.attributes)
    names = split.domain.in_order([*_names(grouped), *inside_where])
    if not split.where or split.domain.cells(names) > LIMITS.cells_tabulated:
        return None
    inside, group = _table(split, grouped, names)
    shape = tuple(len(g.labels) for g in grouped)
    out = np.zeros(prod(shape), dtype=np.bool_)
    out[group[inside & (group >= 0)]] = True
    return out.reshape(shape)


def _table(
    split: _Split, grouped: Sequence[GroupAxis], names: tuple[str, ...]
) -> tuple[Mask, Integers]:
    """For every cell of a table: whether WHERE leaves it, and the number of its group (or -1)."""
    shape = tuple(split.domain[n].size for n in names)
    inside = np.ones(shape, dtype=np.bool_)
    for attr in set(split.rows) & set(names):
        inside &= along([attr], split.rows[attr], names)
    for part in split.where:
        inside &= indicator(part, split.domain, names)
    group = np.zeros(shape, dtype=np.int64)
    for g in grouped:
        own = along(g.attributes, g.group_of, names)
        group = np.where((group < 0) | (own < 0), -1, group * len(g.labels) + own)
    return inside, group


def _tabulated(split: _Split, grouped: Sequence[GroupAxis], names: tuple[str, ...]) -> Explicit:
    """A term of coefficients over all cells of the attributes together."""
    from scipy.sparse import csr_matrix

    domain = split.domain
    if domain.cells(names) > LIMITS.cells_tabulated:
        raise _too_large(split, grouped)
    inside, group = _table(split, grouped, names)
    values = inside.astype(np.float64)
    for attr, weights in split.weights.items():
        values *= along([attr], weights, names)
    for part in split.joint:
        values *= indicator(part, domain, names)
    if split.pieces:
        values *= sum(number * indicator(c, domain, names) for c, number in split.pieces)
    groups = np.unique(group[inside & (group >= 0)])
    if not len(groups) or not values.any():
        raise split.always_zero()
    columns = np.flatnonzero((values != 0) & (group >= 0))
    entries_of = value_entries if valued(domain, names) else integer_entries
    data, bits = entries_of(values.reshape(-1)[columns])
    rows = np.searchsorted(groups, group.reshape(-1)[columns])
    entries = csr_matrix((data, (rows, columns)), shape=(len(groups), values.size))
    numbers = np.unravel_index(groups, [len(g.labels) for g in grouped] or [1])
    choices = zip(*(n.tolist() for n in numbers[: len(grouped)]), strict=True)
    labels = (
        tuple(_group_label(grouped, choice) for choice in choices) if grouped else (split.name,)
    )
    return Explicit(domain, split.name, 1.0, names, entries, bits, labels)


def _group_label(grouped: Sequence[GroupAxis], choice: Sequence[int]) -> StructuredLabel:
    pairs = [pair for g, i in zip(grouped, choice, strict=True) for pair in g.pairs(i)]
    text = ", ".join(f"{column} = {value}" for column, value in pairs)
    return StructuredLabel(text, groups=tuple(pairs))


def group_rows(domain: Domain, grouped: Sequence[GroupAxis], where: Condition) -> GroupRows:
    """The groups that WHERE leaves: the rows of every term of a SELECT, in their order."""
    split = _Split(domain, "SELECT", where, _always(1.0))
    every = tuple(np.arange(len(axis.groups)) for axis in grouped)
    if all(axis.is_single for axis in grouped) and not split.where:
        return GroupRows(tuple(axis.holding(split.cells(axis.name)) for axis in grouped))
    inside_where = (a for c in split.where for a in c.attributes)
    names = domain.in_order([*_names(grouped), *inside_where])
    if grouped and domain.cells(names) <= LIMITS.cells_tabulated:
        inside, group = _table(split, grouped, names)
        return GroupRows(every, np.unique(group[inside & (group >= 0)]))
    return GroupRows(tuple(axis.holding(split.cells(axis.name)) for axis in grouped))


def _too_large(split: _Split, grouped: Sequence[GroupAxis]) -> TooLarge:
    names = split.attributes(grouped)
    return TooLarge(
        f"{split.name}: the condition looks at {', '.join(names)} together, "
        f"{split.domain.cells(names):,} cells, more than the {LIMITS.cells_tabulated:,} that are "
        "tabulated; join conditions on different columns with AND only, or group by fewer cells"
    )


def _is_01(weights: Array) -> bool:
    return bool(((weights == 0) | (weights == 1)).all())


def select_workload(
    domain: Domain,
    text: str,
    name: str | None,
    in_bins: bool = False,
    unit: PrivacyUnit | None = None,
) -> Workload:
    """The queries of one SELECT."""
    more = ("distinct",) if in_bins else AFTERWARDS  # questions are asked and answered one by one
    return workload_of(domain, parsed_select(text, *more), name, in_bins, text, unit)


def workload_of(
    domain: Domain,
    select: exp.Select,
    name: str | None,
    in_bins: bool = False,
    text: str = "",
    unit: PrivacyUnit | None = None,
) -> Workload:
    """The queries of a SELECT that was read, from ``text``."""
    domain = base_of(domain)
    names = Names(domain, _tables(select), unit)
    where = select.args.get("where")
    among = condition(where.this, names) if where is not None else Everything()
    columns = _selected(select, names, in_bins)
    keys = _group_by(select, names, columns)
    grouped = axes_of_keys(domain, keys)
    rows = group_rows(domain, grouped, among)
    suffix = _suffix(keys, where)
    aggregates = [c.aggregate for c in columns if c.aggregate is not None]
    _check_once(aggregates, grouped, unit)
    summed = [one.value.domain for one in aggregates if one.value.domain is not None]
    domain = joined([domain, *summed])
    queries = _Aggregates(domain, grouped, among, [], [])
    written_where = "" if where is None else as_written(where.this, LIMITS.sql_label_characters)
    outputs: list[SelectOutput] = []
    for column in columns:
        if column.aggregate is not None:
            label = _column_label(column.aggregate, suffix, name, len(aggregates) > 1)
            outputs.append(queries.add(column.aggregate, label, written_where, column.title))
        elif column.key is not None:
            at = read_off(names.domain, column.key, grouped)
            if at is None:
                raise SqlError(
                    f"column {column.key.text} is selected but not in GROUP BY; add it there"
                )
            outputs.append(LabelOutput(column.title, *at, rows))
        else:
            outputs.append(ConstantOutput(column.title, column.constant, rows.rows))
    shape = Statement(" ".join(text.split()), tuple(outputs), rows.rows)
    statement = finished(select, shape, columns, names)
    terms = tuple(t.in_its_own_unit() for t in queries.terms)
    return Workload(domain, terms, tuple(queries.ratios), (statement,))


@dataclass(frozen=True, slots=True)
class _Aggregates:
    """The terms and ratios of the aggregates of a SELECT."""

    domain: Domain
    grouped: Sequence[GroupAxis]
    where: Condition
    terms: list[Term]
    ratios: list[Statistic]

    def add(self, one: Aggregate, label: str, condition: str, title: str) -> SelectOutput:
        """Ask for an aggregate; return where its column is read off."""
        at = len(self.terms)
        if one.quantile is not None:
            self.terms.append(self._term(f"{label}: running totals", one, condition, one.value))
            return QuantileOutput(title, at, one.quantile.attribute, one.quantile.probability)
        if one.moment is not None:
            queries = _rows_of_moments(one.moment, one.value.only)
            for part, linear in queries:
                self.terms.append(self._term(label, one, condition, linear, part))
            places = range(at, at + len(queries))
            self.ratios.append(one.moment.statistic.placed(places).renamed(label))
            return MeanOutput(title, len(self.ratios) - 1)
        if one.divisor is None:
            self.terms.append(self._term(label, one, condition, one.value))
            return AnswerOutput(title, at)
        what = "sum"
        if one.mean is None:
            self.ratios.append(Ratio(label, at, at + 1, hidden=one.hidden))
        else:
            self.ratios.append(one.mean.ratio(label, at))
            what = f"sum of {one.mean.text}"
        for part, linear in ((what, one.value), ("number", one.divisor)):
            self.terms.append(self._term(label, one, condition, linear, part))
        return MeanOutput(title, len(self.ratios) - 1)

    def _term(
        self, label: str, one: Aggregate, condition: str, linear: Linear, part: str = ""
    ) -> Term:
        after = f": {part}" if part else ""
        binned = "" if part == "number" else one.binned
        name = StructuredLabel(f"{label}{after}", f"{one.written}{after}", condition, binned=binned)
        if one.quantile is not None:
            return totals_term(self.domain, name, self.grouped, self.where, linear, one.quantile)
        return linear_term(self.domain, name, self.grouped, self.where, linear)


def _tables(select: exp.Select) -> tuple[str, ...]:
    """The names of the table: its own and its alias."""
    source = select.args.get("from") or select.args.get("from_")
    if source is None:
        raise SqlError("the SELECT names no table; write FROM and any name")
    table = source.this
    if not isinstance(table, exp.Table):
        refuse(table)
    if not isinstance(table.this, exp.Identifier):
        refuse(table.this)
    only(table, "this", "alias", "db", "catalog")
    alias = table.args.get("alias")
    if alias is not None:
        only(alias, "this")
    return tuple(n.casefold() for n in (table.name, table.alias) if n)


def _selected(select: exp.Select, names: Names, in_bins: bool) -> list[SelectedColumn]:
    """The selected columns: values of groups, constants and aggregates."""
    columns: list[SelectedColumn] = []
    for node in select.expressions:
        inner = without_brackets(node.this if isinstance(node, exp.Alias) else node)
        alias = node.alias if isinstance(node, exp.Alias) else ""
        title = alias or as_written(inner)
        if isinstance(inner, exp.Column):
            key = key_of_column(names.resolve(inner))
            columns.append(SelectedColumn(alias or key.text, inner, bool(alias), key=key))
        elif isinstance(inner, exp.Literal | exp.Boolean):
            columns.append(SelectedColumn(title, inner, bool(alias), constant=constant(inner)))
        elif is_expression(inner) and inner.find(exp.AggFunc) is None:
            function = cell_function(inner, names, condition)
            columns.append(_computed(title, inner, bool(alias), function))
        else:
            one = aggregate(node, names, in_bins)
            columns.append(SelectedColumn(title, inner, bool(alias), aggregate=one))
    if all(column.aggregate is None for column in columns):
        raise _no_aggregate(columns)
    return columns


def _computed(
    title: str, node: exp.Expression, is_named: bool, function: CellFunction
) -> SelectedColumn:
    """A function of columns, or a constant that is computed."""
    key = key_of_function(function)
    if function.attributes:
        return SelectedColumn(title, node, is_named, key=key)
    return SelectedColumn(title, node, is_named, constant=key.values[0])


def _no_aggregate(columns: Sequence[SelectedColumn]) -> SqlError:
    message = "the SELECT asks for no aggregate; add COUNT(*), SUM(...) or AVG(...)"
    keys = [column.key for column in columns if column.key is not None]
    if not keys:
        return SqlError(message)
    return SqlError(
        f"{message}. Which values {keys[0].text} can have needs no question: they are declared in "
        f"the schema, and public: {listing(keys[0].values)}"
    )


def _group_by(
    select: exp.Select, names: Names, columns: Sequence[SelectedColumn]
) -> list[GroupKey]:
    group = select.args.get("group")
    keys: list[GroupKey] = []
    if group is not None:
        only(group, "expressions")
        for expression in group.expressions:
            key = _group_key(without_brackets(expression), names, columns)
            if key is not None and not any(key.is_same(other) for other in keys):
                keys.append(key)
    selected = [c.key for c in columns if c.key is not None]
    for key in keys:
        if not any(key.is_same(one) for one in selected):
            raise SqlError(f"column {key.text} is in GROUP BY but not selected; add it to SELECT")
    return keys


def _group_key(
    node: exp.Expression, names: Names, columns: Sequence[SelectedColumn]
) -> GroupKey | None:
    """The key of a column of GROUP BY; None for a constant, which groups nothing."""
    column: SelectedColumn | None = None
    if isinstance(node, exp.Literal) and not node.is_string:
        column = _numbered(str(node.this), columns)
    elif isinstance(node, exp.Column) and node.name not in names.domain:
        is_alone = not node.args.get("table")
        column = next((c for c in columns if is_alone and c.is_called(node.name)), None)
    if column is not None:
        if column.aggregate is not None:
            raise SqlError(f"GROUP BY {as_written(node)} is an aggregate, not a column")
        return column.key
    if is_expression(node) and not isinstance(node, exp.Column):
        return key_of_function(cell_function(node, names, condition))
    return key_of_column(names.resolve(node))


def _numbered(text: str, columns: Sequence[SelectedColumn]) -> SelectedColumn:
    """The column of the SELECT with this number, as in ``GROUP BY 1``."""
    position = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    column = columns[position - 1] if 1 <= position <= len(columns) else None
    if column is None or column.aggregate is not None:
        raise SqlError(f"GROUP BY {text[:20]} is not the number of a selected column")
    return column


def _suffix(keys: Sequence[GroupKey], where: exp.Expression | None) -> str:
    by = f" by {', '.join(key.text for key in keys)}" if keys else ""
    return by + (f" where {as_written(where.this)}" if where is not None else "")


def _column_label(one: Aggregate, suffix: str, name: str | None, several: bool) -> str:
    """The label of an aggregate: the name of the call, else the alias, else what was written."""
    if name is not None:
        return f"{name}: {one.label}" if several else name
    return one.label if one.is_named else one.label + suffix


def sql(
    domain: Domain,
    text: str,
    name: str | None = None,
    *,
    in_bins: bool = False,
    unit: PrivacyUnit | None = None,
) -> Workload:
    """The linear queries of one SELECT: counts, sums and means, by groups, under conditions.

    There is one group of queries per aggregate, with one query per combination of public cells
    of the grouped columns: which groups appear does not depend on the data. ``AVG`` becomes a sum,
    a number of records and their ratio. The table may have any name. Sums and means are of the
    values themselves, clamped to the range of the schema; with ``in_bins`` every record counts as
    the middle of its bin instead, and the labels say so.

    Args:
        domain: What a record may look like.
        text: One SELECT.
        name: What the group is called; the alias of the aggregate if None.
        in_bins: Whether sums and means take every record as the middle of its bin.
        unit: The privacy unit that is planned with, for ``COUNT(DISTINCT unit)``: the number of
            persons, where the unit counts each of them once in every group (`sf.persons`).

    Returns:
        One group of queries per aggregate.

    Raises:
        SqlError: The text is not a linear query; with what is allowed.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2})
    >>> work = sf.sql(domain, "SELECT sex, COUNT(*) AS n FROM t WHERE age >= 25 GROUP BY sex")
    >>> [(term.name, term.rows) for term in work.terms]
    [('n', 2)]
    """

    return select_workload(domain, text, name, in_bins, unit)
