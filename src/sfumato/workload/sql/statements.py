# SPDX-License-Identifier: Apache-2.0
"""From one SELECT to a workload: counting queries, sums and means written in SQL.

The text is parsed with sqlglot and turned into terms over the domain; nothing that a person typed
reaches an engine, and what is not a linear query is refused with the name of the construct.

A WHERE that is a conjunction of conditions on one attribute each becomes a product: grouped
attributes cell by cell, filtered ones as one row of coefficients. Anything else is tabulated over
the cells of the attributes that it looks at together, or counted condition by condition.

WHERE decides which groups appear, among the public cells; the data never do.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sfumato.domain.domain import Domain
from sfumato.domain.values import base_of, joined
from sfumato.errors import SqlError
from sfumato.workload.predicates import Everything
from sfumato.workload.sql.aggregates import Aggregate, GroupColumn, aggregate, linear_term
from sfumato.workload.sql.parse import as_written, only, parsed_select, refuse, without_brackets
from sfumato.workload.sql.where import Names, SqlColumn, condition
from sfumato.workload.terms import StructuredLabel, Term
from sfumato.workload.workload import Ratio, Workload
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "select_workload",
    "sql",
]


def select_workload(domain: Domain, text: str, name: str | None, in_bins: bool = False) -> Workload:
    """The queries of one SELECT."""
    select = parsed_select(text)
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
        label = _label(one, suffix, name, len(aggregates) > 1)
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


def _label(one: Aggregate, suffix: str, name: str | None, several: bool) -> str:
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
