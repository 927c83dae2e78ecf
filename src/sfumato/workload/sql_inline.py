# SPDX-License-Identifier: Apache-2.0
"""WITH and subqueries in FROM: projections and filters of the table are put in their place.

    WITH adults AS (SELECT age / 10 AS decade, sex FROM people WHERE age >= 18)
    SELECT decade, COUNT(*) FROM adults GROUP BY decade

is the same as counting ``people`` by ``age / 10`` under ``age >= 18``. What does more than choose
records and name columns, and what aggregates, is refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from sfumato.errors import SqlError
from sfumato.text import did_you_mean, listing, shown
from sfumato.workload.workload_limits import LIMITS

__all__ = ["inlined"]

ALLOWED = (
    "a subquery, or a table of WITH, may choose records and name columns: SELECT columns or "
    "expressions [AS name] FROM table [WHERE condition]"
)


def inlined(select: exp.Select) -> exp.Select:
    """The SELECT over the table itself, without WITH and without subqueries in FROM.

    Raises:
        SqlError: one of them does more than choose records and name columns.
    """
    clause = select.args.get("with_") or select.args.get("with")
    source = _source(select)
    if clause is None and not isinstance(source, exp.Subquery):
        return select
    select = select.copy()
    tables: dict[str, exp.Select] = {}
    if clause is not None:
        if clause.args.get("recursive"):
            raise SqlError("WITH RECURSIVE cannot be asked: " + ALLOWED)
        for one in clause.expressions:
            if one.args.get("alias") is None or one.args["alias"].args.get("columns"):
                raise SqlError(f"names of columns after a table of WITH are not read: {ALLOWED}")
            tables[one.alias.casefold()] = _projection(one.this, one.alias)
        for key in ("with", "with_"):
            select.set(key, None)
    return _over_the_table(select, tables, 0)


def _source(select: exp.Select) -> exp.Expression | None:
    clause = select.args.get("from_") or select.args.get("from")
    return None if clause is None else clause.this


def _projection(node: exp.Expression, name: str) -> exp.Select:
    """The SELECT of a subquery, if it only chooses records and names columns."""
    what = shown(name) if name else "the subquery"
    if not isinstance(node, exp.Select):
        raise SqlError(f"{what} is no SELECT; {ALLOWED}")
    for key, value in node.args.items():
        clause = key.rstrip("_")
        if value and clause not in ("expressions", "from", "where"):
            raise SqlError(f"{what} has {clause.upper()}; {ALLOWED}")
    if _source(node) is None:
        raise SqlError(f"{what} names no table; {ALLOWED}")
    for column in node.expressions:
        if column.find(exp.AggFunc, exp.Window) is not None:
            raise SqlError(
                f"{what} aggregates; {ALLOWED}. Aggregates of aggregates are asked of the released "
                "answers (release.sql), conditions on an aggregate with HAVING"
            )
    return node


def _over_the_table(select: exp.Select, tables: Mapping[str, exp.Select], depth: int) -> exp.Select:
    if depth > LIMITS.sql_depth:
        raise SqlError(f"subqueries are nested more than {LIMITS.sql_depth} levels deep")
    source = _source(select)
    if isinstance(source, exp.Subquery):
        inner, names = _projection(source.this, source.alias), {source.alias.casefold()}
        others = tables
    elif isinstance(source, exp.Table) and not source.args.get("db"):
        name = source.name.casefold()
        if name not in tables:
            return select
        inner, names = tables[name], {name, source.alias.casefold()}
        # A table of WITH sees those before it; its own name means the table itself.
        earlier = list(tables)[: list(tables).index(name)]
        others = {one: tables[one] for one in earlier}
    else:
        return select
    return _joined(select, _over_the_table(inner.copy(), others, depth + 1), names - {""})


@dataclass(frozen=True, slots=True)
class _InnerColumns:
    """What the columns of a subquery are, by their names; ``rest`` are those of the table."""

    expressions: dict[str, exp.Expression]
    rest: bool
    tables: set[str]

    def of(self, node: exp.Column, titles: set[str]) -> exp.Expression | None:
        """What a column of the outer SELECT is; None where it stays."""
        table = node.args.get("table")
        name = node.name.casefold()
        if table is None or table.name.casefold() in self.tables:
            if name in self.expressions:
                return self.expressions[name].copy()
            if table is None and (name in titles or self.rest):
                return None
            if self.rest:
                return exp.Column(this=node.this.copy())
            listed = list(self.expressions)
            raise SqlError(
                f"the subquery selects no column {shown(node.name)}; it selects {listing(listed)}"
                f"{did_you_mean(name, listed)}"
            )
        whole = self.expressions.get(table.name.casefold())  # attribute.level
        if isinstance(whole, exp.Column):
            return exp.Column(this=node.this.copy(), table=whole.this.copy())
        return None


def _joined(select: exp.Select, inner: exp.Select, tables: set[str]) -> exp.Select:
    """The outer SELECT with the columns of the inner one in place of their names."""
    expressions: dict[str, exp.Expression] = {}
    rest = False
    for column in inner.expressions:
        if isinstance(column, exp.Star):
            rest = True
        elif isinstance(column, exp.Alias):
            expressions[column.alias.casefold()] = column.this
        elif isinstance(column, exp.Column) and not isinstance(column.this, exp.Star):
            expressions[column.name.casefold()] = column
        else:
            raise SqlError(f"a column of a subquery has no name; give it one with AS: {ALLOWED}")
    columns = _InnerColumns(expressions, rest, tables)
    titles = {c.alias.casefold() for c in select.expressions if isinstance(c, exp.Alias)}
    _check_size(select, expressions)
    for clause in ("expressions", "where", "group", "having", "order"):
        value = select.args.get(clause)
        if clause == "expressions":
            own: set[str] = set()
            parts = [_titled(part, columns, own) for part in select.expressions]
            select.set(clause, parts)
        elif value is not None:
            visible = set() if clause == "where" else titles
            select.set(clause, _replaced(value, columns, visible))
    where = inner.args.get("where")
    if where is not None:
        outer = select.args.get("where")
        both = (
            where.this
            if outer is None
            else exp.And(this=exp.Paren(this=where.this), expression=exp.Paren(this=outer.this))
        )
        select.set("where", exp.Where(this=both))
    for key in ("from_", "from"):
        if inner.args.get(key) is not None:
            select.set(key, inner.args[key])
    return select


def _titled(part: exp.Expression, columns: _InnerColumns, titles: set[str]) -> exp.Expression:
    """A selected column that keeps the name it had."""
    replaced = _replaced(part, columns, titles)
    is_same = replaced == part or isinstance(part, exp.Alias)
    if is_same or not isinstance(part, exp.Column):
        return replaced
    return exp.Alias(this=replaced, alias=exp.to_identifier(part.name, quoted=True))


def _replaced(node: exp.Expression, columns: _InnerColumns, titles: set[str]) -> exp.Expression:
    def place(part: exp.Expression) -> exp.Expression:
        if not isinstance(part, exp.Column) or isinstance(part.this, exp.Star):
            return part
        inner = columns.of(part, titles)
        if inner is None:
            return part
        return inner if isinstance(inner, exp.Column) else exp.Paren(this=inner)

    return node.copy().transform(place)


def _check_size(select: exp.Select, expressions: Mapping[str, exp.Expression]) -> None:
    """Refuse expressions that grow beyond reading when they are put in each other's place."""
    sizes = {name: sum(1 for _ in node.walk()) for name, node in expressions.items()}
    total = sum(sizes.get(c.name.casefold(), 1) for c in select.find_all(exp.Column))
    if total > LIMITS.sql_characters:
        raise SqlError(
            "the expressions of subqueries grow too long when they are put in each other's place; "
            "write the SELECT over the table itself"
        )
