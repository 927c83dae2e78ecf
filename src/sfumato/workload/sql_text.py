# SPDX-License-Identifier: Apache-2.0
"""What all of SQL is read with: one checked SELECT, its columns and its constants.

`parsed_select` makes one checked SELECT of sqlglot of a text, or a refusal that names the
construct. Every node has a list of the parts that it may have; a part that is not on the list,
known today or added by a later sqlglot, is refused. The text is read as SQLite writes it, which
takes names in double quotes and in backticks alike. `Names` finds the columns of a domain, and
`constant` reads what is written out.

WITH and subqueries in FROM are put in their place by `inlined`, where they are projections and
filters of the table:

    WITH adults AS (SELECT age / 10 AS decade, sex FROM people WHERE age >= 18)
    SELECT decade, COUNT(*) FROM adults GROUP BY decade

is the same as counting ``people`` by ``age / 10`` under ``age >= 18``. What does more than choose
records and name columns, and what aggregates, is refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from math import isfinite
from typing import NoReturn, cast

import numpy as np
import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from sfumato.domain.attributes import Attribute, Comparison, Level, Value
from sfumato.domain.domain import Domain
from sfumato.domain.domain_limits import LIMITS as DOMAIN_LIMITS
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import SqlError, TooLarge
from sfumato.text import did_you_mean, listing, shown
from sfumato.types import Integers, Mask
from sfumato.workload.predicates import Condition, In
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "COMPARES",
    "Names",
    "SqlColumn",
    "as_written",
    "chain",
    "check_nesting",
    "constant",
    "inlined",
    "only",
    "parsed_select",
    "refuse",
    "without_brackets",
]


ALLOWED = (
    "allowed is SELECT columns, aggregates FROM table [WHERE condition] [GROUP BY columns] with "
    "the aggregates COUNT, SUM, AVG and MEDIAN"
)

_CLAUSES = {
    "joins": (
        "a join",
        "one table is asked at a time: join before, and declare the joined columns",
    ),
    "laterals": ("LATERAL", "one table is asked at a time"),
    "having": ("HAVING", "questions are answered one by one: filter the noisy answers afterwards"),
    "qualify": ("QUALIFY", "filter the noisy answers afterwards"),
    "order": (
        "ORDER BY",
        "answers come as a table: sort it afterwards, or ask for the largest few alone "
        "(sf.plan_selection)",
    ),
    "limit": (
        "LIMIT",
        "answers come as a table: cut it afterwards, or ask for the largest few alone "
        "(sf.plan_selection)",
    ),
    "offset": ("OFFSET", "answers come as a table: cut it afterwards"),
    "distinct": ("DISTINCT", "it is not linear in the records"),
    "windows": ("WINDOW", "window functions are not linear in the records"),
    "sample": ("TABLESAMPLE", "all records are counted"),
    "into": ("INTO", "nothing is written to the database"),
}

_QUANTILES = (
    "it is not linear in the records: ask for MEDIAN or QUANTILE_CONT(column, p), or for prefixes"
)
_CONSTRUCTS = {
    "Subquery": ("a subquery", "conditions compare columns with constants"),
    "Select": ("a subquery", "conditions compare columns with constants"),
    "Exists": ("EXISTS", "conditions compare columns with constants"),
    "Union": ("UNION", "join workloads with | instead"),
    "Intersect": ("INTERSECT", "give each SELECT on its own"),
    "Except": ("EXCEPT", "give each SELECT on its own"),
    "Window": ("a window function", "it is not linear in the records"),
    "Distinct": ("DISTINCT", "a count of distinct values is not linear in the records"),
    "Glob": ("GLOB", "use LIKE, or list the values with IN"),
    "SimilarTo": ("SIMILAR TO", "use LIKE, or list the values with IN"),
    "RegexpLike": ("a regular expression", "use LIKE, or list the values with IN"),
    "Min": ("MIN", _QUANTILES),
    "Max": ("MAX", _QUANTILES),
    "PercentileCont": ("PERCENTILE_CONT", _QUANTILES),
    "PercentileDisc": ("PERCENTILE_DISC", _QUANTILES),
    "WithinGroup": ("WITHIN GROUP", _QUANTILES),
    "TableSample": ("TABLESAMPLE", "all records are counted"),
    "Star": ("*", "name the columns"),
    "Rollup": ("ROLLUP", "give each grouping its own SELECT"),
    "Cube": ("CUBE", "give each grouping its own SELECT"),
    "GroupingSets": ("GROUPING SETS", "give each grouping its own SELECT"),
    "Null": ("NULL", "use IS NULL and IS NOT NULL"),
    "Cast": ("CAST", "only DATE '...' and TIMESTAMP '...' are constants with a type"),
    "Placeholder": ("a parameter", "write the constant itself"),
    "Parameter": ("a parameter", "write the constant itself"),
}
_SQLITE = sqlglot.Dialect.get_or_raise("sqlite")
_ARITHMETIC = frozenset(("Add", "Sub", "Mul", "Div", "IntDiv", "Mod", "Pow", "Neg", "DPipe"))
_OPENERS = frozenset(("L_PAREN", "L_BRACKET", "L_BRACE", "CASE"))
_CLOSERS = frozenset(("R_PAREN", "R_BRACKET", "R_BRACE", "END"))
_PREFIXES = frozenset(("NOT", "DASH", "PLUS", "TILDE", "TILDA", "DCOLON"))


def parsed_select(text: object, *more: str) -> exp.Select:
    """The one SELECT that the text holds; ``more`` clauses than those of counting are allowed."""
    if not isinstance(text, str):
        raise SqlError(f"a query in SQL is a text, got {shown(text)}")
    if len(text) > LIMITS.sql_characters:
        raise SqlError(
            f"the SQL has {len(text):,} characters, the most are {LIMITS.sql_characters:,}; "
            "split it up"
        )
    try:
        tokens = _with_quotients(_SQLITE.tokenize(text))
        _check_depth(tokens)
        parsed = cast("list[exp.Expression | None]", _SQLITE.parser().parse(tokens, text))
    except SqlError:
        raise
    except SqlglotError as error:
        raise _not_sql(error) from None
    except Exception:  # a fault of the parser is a text that cannot be read, whatever its kind
        raise SqlError(f"the SQL cannot be read; {ALLOWED}") from None
    statements = [s for s in parsed if s is not None and type(s).__name__ != "Semicolon"]
    if len(statements) != 1:
        raise SqlError(f"one SELECT is needed, got {len(statements)} statements; {ALLOWED}")
    (select,) = statements
    if not isinstance(select, exp.Select):
        refuse(select)
    select = inlined(select)
    for key, value in select.args.items():
        clause = key.rstrip("_")
        if value and clause not in ("expressions", "from", "where", "group", *more):
            word, advice = _CLAUSES.get(clause, (clause.upper(), ALLOWED))
            raise SqlError(f"{word} cannot be asked: {advice}")
    return select


def only(node: exp.Expression, *parts: str) -> None:
    """Refuse a node that has parts besides the listed ones."""
    for key, value in node.args.items():
        if value and not key.startswith("_") and key.rstrip("_") not in parts:
            word = key.strip("_").upper().replace("_", " ")
            raise SqlError(f"{word} in {as_written(node)} cannot be asked; {ALLOWED}")


def refuse(node: exp.Expression, allowed: str = ALLOWED) -> NoReturn:
    """Raise the error that names the construct and says what to do instead."""
    kind = type(node).__name__
    if kind in _CONSTRUCTS:
        word, advice = _CONSTRUCTS[kind]
        raise SqlError(f"{word} cannot be asked: {advice}")
    if kind in _ARITHMETIC or kind.startswith("Bitwise"):
        raise SqlError(
            f"arithmetic ({as_written(node)}) cannot be asked: columns are compared with constants "
            "and summed as they are"
        )
    if isinstance(node, exp.Anonymous):
        name = str(node.this).upper()
        word = name if name.isidentifier() and len(name) <= 40 else shown(name)
        if any(w in name for w in ("MEDIAN", "QUANTILE", "PERCENTILE")):
            raise SqlError(f"{word} cannot be asked: {_QUANTILES}")
        raise SqlError(f"the function {word} cannot be asked: {allowed}")
    if isinstance(node, exp.Func) and not isinstance(node, exp.Case | exp.Connector):
        raise SqlError(f"the function {node.sql_name()} cannot be asked: {allowed}")
    word = kind.upper() if isinstance(node, exp.Query | exp.DDL | exp.DML | exp.Command) else ""
    raise SqlError(f"{word or as_written(node)} cannot be asked: {allowed}")


def without_brackets(node: exp.Expression) -> exp.Expression:
    """The node inside any brackets around it."""
    while isinstance(node, exp.Paren):
        only(node, "this")
        node = node.this
    return node


def as_written(node: exp.Expression, most: int = 60) -> str:
    """The SQL of a node, in at most about ``most`` characters."""
    if isinstance(node, exp.Median):  # SQLite has none, and its writer has other words
        return f"MEDIAN({as_written(node.this, most)})"
    try:
        # Of a copy: the writer of a dialect rewrites what the dialect has not, DISTINCT ON say.
        written = node.sql("sqlite", comments=False, unsupported_level=ErrorLevel.IGNORE)
        text = " ".join(written.split())
    except Exception:  # what the parser reads, its writer may still refuse
        text = type(node).__name__.upper()
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def _with_quotients(tokens: list[sqlglot.Token]) -> list[sqlglot.Token]:
    """The tokens with ``//``, which SQLite has not, as one: a quotient without its fraction."""
    out: list[sqlglot.Token] = []
    slash = sqlglot.TokenType.SLASH
    for token in tokens:
        last = out[-1] if out and token.token_type is slash else None
        if last is not None and last.token_type is slash and last.end + 1 == token.start:
            place = (last.line, last.col, last.start, token.end)
            out[-1] = sqlglot.Token(sqlglot.TokenType.DIV, "DIV", *place)
        else:
            out.append(token)
    return out


def _check_depth(tokens: list[sqlglot.Token]) -> None:
    """Refuse nesting that would exhaust the stack of the parser, before it is called."""
    depth = row = 0
    last = ""
    for token in tokens:
        kind = token.token_type.name
        depth += (kind in _OPENERS) - (kind in _CLOSERS and depth > 0)
        repeated = kind == last or (kind in _PREFIXES and last in _PREFIXES)
        row = row + 1 if repeated else 0
        last = kind
        if depth > LIMITS.sql_depth or row > LIMITS.sql_depth:
            raise SqlError(
                f"the SQL is nested more than {LIMITS.sql_depth} levels deep; write it with "
                "fewer brackets"
            )
    if tokens and tokens[0].token_type.name not in ("SELECT", "WITH"):
        word = shown(tokens[0].text.upper(), 40)
        raise SqlError(f"the SQL begins with {word}, not with SELECT: {ALLOWED}")


def _not_sql(error: SqlglotError) -> SqlError:
    first = (getattr(error, "errors", None) or [{}])[0]
    place = ""
    if first.get("line"):
        near = shown(str(first.get("highlight") or ""), 40)
        place = f" at line {first['line']}, column {first['col']}, near {near}"
    return SqlError(f"the SQL cannot be read{place}; {ALLOWED}")


COMPARES = (
    "conditions are made of comparisons of columns with constants (=, <>, <, <=, >, >=, BETWEEN, "
    "IN, LIKE, IS NULL), AND, OR, NOT, TRUE and FALSE"
)


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column of the SQL text: an attribute, or a level of it."""

    attribute: Attribute
    level: Level | None = None

    def __post_init__(self) -> None:
        if self.attribute.size > DOMAIN_LIMITS.cells_listed:
            raise TooLarge(
                f"column {self.attribute.name!r} has {self.attribute.size:,} cells, the most that "
                f"are listed one by one are {DOMAIN_LIMITS.cells_listed:,}: give it wider bins"
            )

    def __str__(self) -> str:
        return f"{self.attribute.name}.{self.level.name}" if self.level else self.attribute.name

    @property
    def not_null(self) -> Mask:
        """The cells that are not NULL: not missing, or in some group of the level."""
        cells = self.groups >= 0
        if self.level is None and self.attribute.missing_code is not None:
            cells[self.attribute.missing_code] = False
        return cells

    @property
    def groups(self) -> Integers:
        """The group of every cell, -1 for none; without a level, every cell is a group."""
        if self.level is None:
            return np.arange(self.attribute.size, dtype=np.int64)
        extra = (-1,) * (self.attribute.size - self.attribute.value_count)
        return np.array(self.level.group_of + extra, dtype=np.int64)

    def select(self, comparison: Comparison, value: Value) -> Mask:
        """The cells where the comparison holds."""
        if self.level is None:
            return self.attribute.select(comparison, value)
        if comparison not in ("=", "!="):
            raise SqlError(f"groups of {self} have no order: use =, <> or IN, not {comparison}")
        groups = self.level.groups
        if value not in groups:
            raise SqlError(
                f"{self} has no group {shown(value)}; it has {listing(groups)}"
                f"{did_you_mean(value, groups)}"
            )
        same = self.groups == groups.index(str(value))
        return np.asarray(same if comparison == "=" else self.not_null & ~same)

    def where(self, cells: Mask, text: str) -> Condition:
        """The condition that holds in these cells; ``text`` says so to people."""
        codes = tuple(np.flatnonzero(cells).tolist())
        return In(self.attribute.name, codes, f"{self} {text}")


@dataclass(frozen=True, slots=True)
class Names:
    """What the columns of a SELECT may be called: ``tables`` are the names of its table.

    ``steps`` adds up the cells on which functions of columns were computed.
    """

    domain: Domain
    tables: tuple[str, ...]
    unit: PrivacyUnit | None = None
    steps: list[int] = field(default_factory=lambda: [0], compare=False, repr=False)

    def resolve(self, column: exp.Expression) -> SqlColumn:
        """The column of a name in SQL.

        A name is ``attribute``, ``table.attribute``, ``attribute.level`` or
        ``table.attribute.level``.
        """
        if not isinstance(column, exp.Column):
            refuse(column)
        only(column, "this", "table", "db")
        if isinstance(column.this, exp.Star):
            refuse(column.this)
        path = [part.name for part in (column.args.get("db"), column.args.get("table")) if part]
        name = column.this.name
        if len(path) > 1 and not self._is_table(path.pop(0)):
            raise self._unknown(as_written(column))
        if path:
            attribute = self._attribute(path[0])
            if attribute is not None and self._level(attribute, name) is not None:
                return SqlColumn(attribute, self._level(attribute, name))
            if not self._is_table(path[0]):
                dotted = self._attribute(f"{path[0]}.{name}")
                if dotted is not None:
                    return SqlColumn(dotted)
                if attribute is None:
                    raise self._unknown(f"{path[0]}.{name}")
                attribute.level(name)  # raises: lists the levels there are
        return self._alone(name, column)

    def _alone(self, name: str, column: exp.Column) -> SqlColumn:
        attribute = self._attribute(name)
        if attribute is not None:
            return SqlColumn(attribute)
        before, dot, after = name.rpartition(".")
        inner = self._attribute(before) if dot else None
        if inner is not None:
            level = self._level(inner, after)
            return SqlColumn(inner, level or inner.level(after))
        if getattr(column.this, "quoted", False):
            raise self._unknown(name, "; text is written in single quotes")
        raise self._unknown(name)

    def _attribute(self, name: str) -> Attribute | None:
        if name in self.domain:
            return self.domain[name]
        near = [n for n in self.domain.names if n.casefold() == name.casefold()]
        if len(near) > 1:
            raise SqlError(f"column {shown(name)} is one of {', '.join(near)}; write it exactly")
        return self.domain[near[0]] if near else None

    def _level(self, attribute: Attribute, name: str) -> Level | None:
        levels = attribute.levels
        exact = [v for v in levels if v.name == name]
        near = [v for v in levels if v.name.casefold() == name.casefold()]
        return exact[0] if exact else near[0] if len(near) == 1 else None

    def _is_table(self, name: str) -> bool:
        return name.casefold() in self.tables

    def _unknown(self, name: str, advice: str = "") -> SqlError:
        names = self.domain.names
        return SqlError(
            f"unknown column {shown(name)}; the columns are {listing(names, 30)}"
            f"{did_you_mean(name, names)}{advice}"
        )


def constant(node: exp.Expression) -> Value:
    """A number, text, truth value, date or time that is written out."""
    node = without_brackets(node)
    if isinstance(node, exp.Neg):
        value = constant(node.this)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SqlError(f"{as_written(node)} is not a number")
        return -value
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else _number(str(node.this))
    if isinstance(node, exp.Cast) and type(node) is exp.Cast:
        return _moment(node)
    if isinstance(node, exp.Column):
        raise SqlError(
            f"{as_written(node)} is a column where a constant is needed: {COMPARES}; text is "
            "written in single quotes"
        )
    return refuse(node, COMPARES)


def _number(text: str) -> int | float:
    digits = text.replace("_", "")
    try:
        value = int(digits) if digits.isdigit() and len(digits) <= 38 else float(digits)
    except ValueError:
        raise SqlError(f"{shown(text)} is not a number") from None
    if not isfinite(value):
        raise SqlError(f"{shown(text)} is too large a number")
    return value


def _moment(node: exp.Cast) -> Value:
    """The value of ``DATE '2024-01-31'`` or ``TIMESTAMP '2024-01-31 12:00:00'``."""
    only(node, "this", "to")
    kind = getattr(getattr(node.args["to"], "this", None), "name", "")
    text = without_brackets(node.this)
    readers = {"DATE": date.fromisoformat}
    readers |= dict.fromkeys(("TIMESTAMP", "DATETIME", "TIMESTAMPNTZ"), datetime.fromisoformat)
    if kind not in readers or not isinstance(text, exp.Literal) or not text.is_string:
        refuse(node)
    try:
        return readers[kind](str(text.this))
    except ValueError:
        raise SqlError(
            f"{shown(str(text.this))} is not a {kind.lower()} such as "
            f"'2024-01-31{'' if kind == 'DATE' else ' 12:00:00'}'"
        ) from None


def chain(node: exp.Expression) -> list[exp.Expression]:
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


def check_nesting(node: exp.Expression) -> None:
    """Refuse an expression that is too deep to walk over; chains of AND and OR are flat."""
    waiting = [(node, 1)]
    while waiting:
        part, depth = waiting.pop()
        if depth > LIMITS.condition_depth:
            raise SqlError(
                f"an expression is nested more than {LIMITS.condition_depth} levels deep; write a "
                "shorter one"
            )
        for child in part.iter_expressions():
            is_flat = isinstance(child, exp.Connector) and type(child) is type(part)
            waiting.append((child, depth + (not is_flat)))


# WITH and subqueries in FROM


INNER = (
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
            raise SqlError("WITH RECURSIVE cannot be asked: " + INNER)
        for one in clause.expressions:
            if one.args.get("alias") is None or one.args["alias"].args.get("columns"):
                raise SqlError(f"names of columns after a table of WITH are not read: {INNER}")
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
        raise SqlError(f"{what} is no SELECT; {INNER}")
    for key, value in node.args.items():
        clause = key.rstrip("_")
        if value and clause not in ("expressions", "from", "where"):
            raise SqlError(f"{what} has {clause.upper()}; {INNER}")
    if _source(node) is None:
        raise SqlError(f"{what} names no table; {INNER}")
    for column in node.expressions:
        if column.find(exp.AggFunc, exp.Window) is not None:
            raise SqlError(
                f"{what} aggregates; {INNER}. Aggregates of aggregates are asked of the released "
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
            raise SqlError(f"a column of a subquery has no name; give it one with AS: {INNER}")
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
