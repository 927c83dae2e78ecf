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
from functools import cached_property
from itertools import product
from math import prod
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from sfumato.domain.attributes import Value
from sfumato.domain.domain import Domain
from sfumato.domain.values import Values, base_of, joined, valued, with_values
from sfumato.errors import SqlError, TooLarge
from sfumato.types import Array, Integers, Mask
from sfumato.workload.bins import hidden_by_bins
from sfumato.workload.build import MeanOfValues, has_spread_values, mean_of_values
from sfumato.workload.predicates import And, Condition, Everything, In, Not, Or, indicator
from sfumato.workload.queries import (
    Groups,
    Identity,
    Matrix,
    QuerySet,
    check_entries,
    integer_entries,
    value_entries,
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
from sfumato.workload.sql_where import condition, conjunction
from sfumato.workload.terms import Explicit, Predicates, Product, StructuredLabel, Term
from sfumato.workload.workload import Ratio, Workload
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "Aggregate",
    "GroupColumn",
    "Linear",
    "aggregate",
    "linear_term",
    "select_workload",
    "sql",
    "workload_of",
]

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
        return Linear(Everything(), ((column.where(column.not_null, "is not missing"), 1.0),))
    constant(counted)  # COUNT(1) counts every record
    return _always(1.0)


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

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, eq=False)
class GroupColumn:
    """A column of GROUP BY: its groups, and the group of every cell (-1 for none)."""

    column: SqlColumn

    @property
    def name(self) -> str:
        """The attribute."""
        return self.column.attribute.name

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What the groups are called."""
        level = self.column.level
        return level.groups if level else tuple(map(str, self.column.attribute.labels))

    @cached_property
    def group_of(self) -> Integers:
        """The group of every cell."""
        return self.column.groups

    def holding(self, cells: Mask) -> Integers:
        """The groups that hold some of these cells."""
        return np.unique(self.group_of[cells & (self.group_of >= 0)])

    def among(self, cells: Mask) -> tuple[tuple[str, ...], Integers]:
        """The labels and the renumbered cells of the groups that hold some of these cells."""
        groups = self.holding(cells)
        number = np.full(len(self.labels) + 1, -1, dtype=np.int64)
        number[groups] = np.arange(len(groups))
        return tuple(self.labels[g] for g in groups), number[self.group_of]


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

    def attributes(self, grouped: Sequence[GroupColumn]) -> tuple[str, ...]:
        """All attributes that the query looks at."""
        conditions = [*self.where, *self.joint, *(c for c, _ in self.pieces)]
        names = [g.name for g in grouped] + [*self.rows, *self.weights]
        return self.domain.in_order([*names, *(a for c in conditions for a in c.attributes)])

    def always_zero(self) -> SqlError:
        """The refusal where no cell of the domain adds to the answer."""
        return SqlError(
            f"{self.name}: by the schema no record can count here, so the answer is always 0; "
            "check the condition"
        )


def linear_term(
    domain: Domain, name: str, grouped: Sequence[GroupColumn], where: Condition, linear: Linear
) -> Term:
    """One query per group: the sum of the coefficients of its records that satisfy WHERE."""
    split = _Split(domain, name, where, linear)
    split.fold_scalar([g.name for g in grouped])
    if split.is_product:
        return _product(split, grouped)
    names = split.attributes(grouped)
    if split.is_counting and (not grouped or domain.cells(names) > LIMITS.cells_tabulated):
        return _conditions(split, grouped)
    return _tabulated(split, grouped, names)


def _product(split: _Split, grouped: Sequence[GroupColumn]) -> Product:
    by_name = {g.name: g for g in grouped}
    factors: list[tuple[str, QuerySet]] = []
    for attr in split.attributes(grouped):
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


def _group_factor(split: _Split, group: GroupColumn, cells: Mask, weights: Array) -> QuerySet:
    """The queries of a column of GROUP BY: the groups that WHERE leaves.

    Other conditions and numbers change only the coefficients.
    """
    if cells.all() and (weights == 1).all() and group.column.level is None:
        return Identity(len(cells))
    labels, group_of = group.among(cells)
    if not (cells & (weights != 0) & (group_of >= 0)).any():
        raise split.always_zero()
    level = group.column.level.name if group.column.level else group.name
    is_small = group.column.level is None and len(labels) * len(cells) <= LIMITS.matrix_entries
    if _is_01(weights) and not is_small:
        chosen = np.where(cells & (weights == 1), group_of, -1)
        return Groups(len(cells), level, labels, tuple(chosen.tolist()))
    check_entries(len(labels) * len(cells), f"a matrix of the groups of {group.name!r}")
    entries = np.zeros((len(labels), len(cells)))
    at = np.flatnonzero(cells & (group_of >= 0))
    entries[group_of[at], at] = weights[at]
    return Matrix.of(entries, labels, "cells of")


def _conditions(split: _Split, grouped: Sequence[GroupColumn]) -> Predicates:
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


def _present(split: _Split, grouped: Sequence[GroupColumn]) -> Mask | None:
    """Which groups WHERE leaves, as ``_tabulated`` would find; None when that is too wide.

    This depends on WHERE alone, so that all aggregates of a SELECT have the same rows.
    """
    inside_where = (a for c in split.where for a in c.attributes)
    names = split.domain.in_order([*(g.name for g in grouped), *inside_where])
    if not split.where or split.domain.cells(names) > LIMITS.cells_tabulated:
        return None
    inside, group = _table(split, grouped, names)
    shape = tuple(len(g.labels) for g in grouped)
    out = np.zeros(prod(shape), dtype=np.bool_)
    out[group[inside & (group >= 0)]] = True
    return out.reshape(shape)


def _table(
    split: _Split, grouped: Sequence[GroupColumn], names: tuple[str, ...]
) -> tuple[Mask, Integers]:
    """For every cell of a table: whether WHERE leaves it, and the number of its group (or -1)."""
    shape = tuple(split.domain[n].size for n in names)
    inside = np.ones(shape, dtype=np.bool_)
    for attr in set(split.rows) & set(names):
        inside &= _along(attr, split.rows[attr], names)
    for part in split.where:
        inside &= indicator(part, split.domain, names)
    group = np.zeros(shape, dtype=np.int64)
    for g in grouped:
        own = _along(g.name, g.group_of, names)
        group = np.where((group < 0) | (own < 0), -1, group * len(g.labels) + own)
    return inside, group


def _tabulated(split: _Split, grouped: Sequence[GroupColumn], names: tuple[str, ...]) -> Explicit:
    """A term of coefficients over all cells of the attributes together."""
    from scipy.sparse import csr_matrix

    domain = split.domain
    if domain.cells(names) > LIMITS.cells_tabulated:
        raise _too_large(split, grouped)
    inside, group = _table(split, grouped, names)
    values = inside.astype(np.float64)
    for attr, weights in split.weights.items():
        values *= _along(attr, weights, names)
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


def _along(attr: str, values: npt.NDArray[Number], names: tuple[str, ...]) -> npt.NDArray[Number]:
    """Values over one attribute, ready to be spread over a table."""
    return values.reshape([-1 if n == attr else 1 for n in names])


def _group_label(grouped: Sequence[GroupColumn], choice: Sequence[int]) -> StructuredLabel:
    pairs = [(str(g.column), g.labels[i]) for g, i in zip(grouped, choice, strict=True)]
    text = ", ".join(f"{column} = {value}" for column, value in pairs)
    return StructuredLabel(text, groups=tuple(pairs))


def _too_large(split: _Split, grouped: Sequence[GroupColumn]) -> TooLarge:
    names = split.attributes(grouped)
    return TooLarge(
        f"{split.name}: the condition looks at {', '.join(names)} together, "
        f"{split.domain.cells(names):,} cells, more than the {LIMITS.cells_tabulated:,} that are "
        "tabulated; join conditions on different columns with AND only, or group by fewer cells"
    )


def _is_01(weights: Array) -> bool:
    return bool(((weights == 0) | (weights == 1)).all())


def select_workload(domain: Domain, text: str, name: str | None, in_bins: bool = False) -> Workload:
    """The queries of one SELECT."""
    return workload_of(domain, parsed_select(text), name, in_bins)


def workload_of(
    domain: Domain, select: exp.Select, name: str | None, in_bins: bool = False
) -> Workload:
    """The queries of a SELECT that was read."""
    domain = base_of(domain)
    names = Names(domain, _tables(select))
    where = select.args.get("where")
    among = condition(where.this, names) if where is not None else Everything()
    columns, aggregates = _columns(select, names, in_bins)
    grouped = _grouped(domain, columns)
    suffix = _suffix(columns, where)
    summed = [one.value.domain for one in aggregates if one.value.domain is not None]
    domain = joined([domain, *summed])
    terms: list[Term] = []
    ratios: list[Ratio] = []
    written_where = "" if where is None else as_written(where.this, LIMITS.sql_label_characters)
    for one in aggregates:
        label = _column_label(one, suffix, name, len(aggregates) > 1)
        if one.divisor is None:
            title = StructuredLabel(label, one.written, written_where, binned=one.binned)
            terms.append(linear_term(domain, title, grouped, among, one.value))
            continue
        what = "sum"
        if one.mean is None:
            ratios.append(Ratio(label, len(terms), len(terms) + 1, hidden=one.hidden))
        else:
            ratios.append(one.mean.ratio(label, len(terms)))
            what = f"sum of {one.mean.text}"
        for part, linear in ((what, one.value), ("number", one.divisor)):
            binned = "" if part == "number" else one.binned
            title = StructuredLabel(
                f"{label}: {part}", f"{one.written}: {part}", written_where, binned=binned
            )
            terms.append(linear_term(domain, title, grouped, among, linear))
    return Workload(domain, tuple(t.in_its_own_unit() for t in terms), tuple(ratios))


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


def _columns(
    select: exp.Select, names: Names, in_bins: bool
) -> tuple[list[SqlColumn], list[Aggregate]]:
    """The grouped columns and the aggregates."""
    plain: list[SqlColumn] = []
    titles: dict[str, SqlColumn] = {}
    listed: list[SqlColumn | None] = []
    aggregates: list[Aggregate] = []
    for node in select.expressions:
        inner = without_brackets(node.this if isinstance(node, exp.Alias) else node)
        if isinstance(inner, exp.Column):
            column = names.resolve(inner)
            plain.append(column)
            listed.append(column)
            if isinstance(node, exp.Alias):
                titles[node.alias.casefold()] = column
        else:
            aggregates.append(aggregate(node, names, in_bins))
            listed.append(None)
    columns = _group_by(select, names, titles, listed)
    for column in plain:
        if column not in columns:
            raise SqlError(f"column {column} is selected but not in GROUP BY; add it there")
    for column in columns:
        if column not in plain:
            raise SqlError(f"column {column} is in GROUP BY but not selected; add it to SELECT")
    if not aggregates:
        raise SqlError("the SELECT asks for no aggregate; add COUNT(*), SUM(...) or AVG(...)")
    return columns, aggregates


def _group_by(
    select: exp.Select,
    names: Names,
    titles: dict[str, SqlColumn],
    listed: Sequence[SqlColumn | None],
) -> list[SqlColumn]:
    group = select.args.get("group")
    if group is None:
        return []
    only(group, "expressions")
    columns: list[SqlColumn] = []
    for expression in group.expressions:
        node = without_brackets(expression)
        if isinstance(node, exp.Literal) and not node.is_string:
            column = _numbered(str(node.this), listed)
        elif isinstance(node, exp.Column) and _is_title(node, names, titles):
            column = titles[node.name.casefold()]
        else:
            column = names.resolve(node)
        if any(column.attribute == c.attribute for c in columns):
            raise SqlError(f"GROUP BY names {column.attribute.name!r} twice")
        columns.append(column)
    return columns


def _is_title(node: exp.Column, names: Names, titles: dict[str, SqlColumn]) -> bool:
    is_plain = not node.args.get("table")
    return is_plain and node.name.casefold() in titles and node.name not in names.domain


def _numbered(text: str, listed: Sequence[SqlColumn | None]) -> SqlColumn:
    """The column of the SELECT with this number, as in ``GROUP BY 1``."""
    position = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    column = listed[position - 1] if 1 <= position <= len(listed) else None
    if column is None:
        raise SqlError(f"GROUP BY {text[:20]} is not the number of a selected column")
    return column


def _grouped(domain: Domain, columns: Sequence[SqlColumn]) -> tuple[GroupColumn, ...]:
    by_name = {c.attribute.name: c for c in columns}
    return tuple(GroupColumn(by_name[n]) for n in domain.in_order(by_name))


def _suffix(columns: Sequence[SqlColumn], where: exp.Expression | None) -> str:
    by = f" by {', '.join(map(str, columns))}" if columns else ""
    return by + (f" where {as_written(where.this)}" if where is not None else "")


def _column_label(one: Aggregate, suffix: str, name: str | None, several: bool) -> str:
    """The label of an aggregate: the name of the call, else the alias, else what was written."""
    if name is not None:
        return f"{name}: {one.label}" if several else name
    return one.label if one.is_named else one.label + suffix


def sql(domain: Domain, text: str, name: str | None = None, *, in_bins: bool = False) -> Workload:
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

    return select_workload(domain, text, name, in_bins)
