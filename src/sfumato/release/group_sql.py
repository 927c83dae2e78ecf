# SPDX-License-Identifier: Apache-2.0
"""SQL over released groups: each group is a view in DuckDB, and sums of its answers get intervals.

A statement is run by DuckDB on the published numbers, in memory, without access to files, networks
or variables of the program. Where a column of its result is linear in the answers of one group
(sums, averages, differences, multiples, ``CASE`` and ``FILTER`` and ``WHERE`` on attributes), its
coefficients are found by running the statement once more: with ``e`` linear in the answer v,
``e(v = 1) - e(v = 0)`` is what each row counts for. The combination then has its exact law
(`Estimates.combine`), with all that the errors have in common. Where it is not linear, or where
rows are chosen by released numbers (HAVING, LIMIT: an interval holds for a question that was fixed
before), the answer stands without an interval, and a column says why.

A SELECT that was planned as a workload is answered in its own shape (`statement_frame`): columns as
selected, intervals beside the noisy ones, with HAVING, ORDER BY and LIMIT applied to the released
values: after the noise, at no cost.

Post-processing of what was released (Dwork, Roth 2014, Proposition 2.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sfumato.errors import SqlError, WorkloadError
from sfumato.release.answers import (
    Group,
    check_rows,
    group_frame,
    key_term,
    named_groups,
    totals_quantiles,
)
from sfumato.release.estimates import Estimates
from sfumato.release.export import write_table_csv
from sfumato.release.labels import DERIVED_NUMBERS, label_text, places_along
from sfumato.release.release_limits import LIMITS
from sfumato.text import did_you_mean, listing, shown
from sfumato.types import Array
from sfumato.workload.statements.statement import Column, OutputNumbers, Statement, StatementSource
from sfumato.workload.terms import Term
from sfumato.workload.workload import Workload

if TYPE_CHECKING:
    import pandas as pd
    from duckdb import DuckDBPyConnection
    from sqlglot import exp

__all__ = [
    "GroupViews",
    "ReleasedNumbers",
    "find_statement",
    "sql_frame",
    "statement_columns",
    "statement_document",
    "statement_frame",
    "write_statements",
]


ANSWERS: Final = frozenset({"value", "unbiased"})
"""Columns of answers: sums of them have a law."""
NUMBERS: Final = frozenset({*ANSWERS, "standard_error", "low", "high", *DERIVED_NUMBERS})
ROW: Final = "__row"
HIDDEN: Final = "__part"


def sql_frame(estimates: Estimates, text: str, level: float) -> pd.DataFrame:
    """The result of a statement over released groups, with intervals where it is linear.

    Args:
        estimates: The released numbers.
        text: One SELECT over the views of the groups.
        level: The least probability with which an interval holds the true number.

    Returns:
        The columns of the statement; beside a linear column n stand ``n_standard_error``, ``n_low``
        and ``n_high``, and beside every column of noisy numbers ``n_basis``.

    Raises:
        SqlError: if it is no such statement.
    """
    views = GroupViews(estimates, level)
    statement = _parsed(text)
    used = _used(statement, views)
    connection = views.connection(used)
    try:
        return _answered(views, connection, statement, used)
    finally:
        connection.close()


@dataclass(frozen=True, eq=False)
class GroupViews:
    """The released groups as tables of a database: one view each, named in SQL's way."""

    estimates: Estimates
    level: float

    @cached_property
    def names(self) -> dict[str, Group]:
        """The group of every view; a group has its name, and one that needs no quotes.

        ``age x sex`` is ``"age x sex"`` and ``age_sex``.
        """
        out: dict[str, Group] = {}
        groups = named_groups(self.estimates.workload)
        for group, name in groups.items():
            plain = re.sub(r"\W+", "_", name.replace(" x ", "_")).strip("_").lower() or "answers"
            short, again = plain, 1
            while short in out:
                again += 1
                short = f"{plain}_{again}"
            out[short] = group
        for group, name in groups.items():
            out.setdefault(name.lower(), group)
        return out

    def frame(self, group: Group) -> pd.DataFrame:
        """The rows of a view: labels, groups of their levels as ``attribute_level``, numbers."""
        frame = group_frame(self.estimates, group, self.level)
        term = key_term(self.estimates.workload, group)
        for place, (name, labels) in enumerate(_level_columns(term)):
            if name not in frame:
                frame.insert(place, name, labels)
        for name in frame.columns:
            column = frame[name]
            if column.dtype.kind == "O" and {type(v) for v in column} - {str, type(None)}:
                frame[name] = [None if v is None else label_text(v) for v in column]
        frame[ROW] = np.arange(len(frame))
        return frame

    def connection(self, used: Mapping[str, Group]) -> DuckDBPyConnection:
        """A database in memory that holds these views and can reach nothing else."""
        import duckdb
        import pyarrow as pa

        closed = {
            "enable_external_access": "false",
            "python_enable_replacements": "false",
            "lock_configuration": "true",
        }
        connection = duckdb.connect(":memory:", config=closed)
        for name, group in used.items():
            table = pa.Table.from_pandas(self.frame(group), preserve_index=False)
            connection.register(_base(name), table)
            columns = ", ".join(_quoted(n) for n in table.column_names if n != ROW)
            connection.execute(
                f"CREATE VIEW {_quoted(name)} AS SELECT {columns} FROM {_quoted(_base(name))}"  # noqa: S608  names are quoted
            )
        return connection


def _level_columns(term: Term) -> Iterator[tuple[str, list[str | None]]]:
    """For every attribute that is asked cell by cell the groups of its levels, row by row."""
    product = term.as_product()
    if product is None:
        return
    shape = product.row_shape
    for axis, (name, queries) in enumerate(product.factors):
        attribute = term.domain[name]
        if not queries.is_identity:
            continue
        for level in attribute.levels:
            of = [level.groups[g] if g >= 0 else None for g in level.group_of]
            of += [None] * (attribute.size - attribute.value_count)
            yield f"{name}_{level.name}", [of[p] for p in places_along(shape, axis)]


def _base(name: str) -> str:
    return f"__released {name}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# Reading a statement


def _parsed(text: str) -> exp.Query:
    """One SELECT, or several joined by UNION and the like."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    if not isinstance(text, str) or not text.strip():
        raise SqlError(f"SQL over released groups is a SELECT as a text, got {shown(text)}")
    try:
        statements = [s for s in sqlglot.parse(text, dialect="duckdb") if s is not None]
    except (SqlglotError, RecursionError) as error:
        raise SqlError(f"the statement cannot be read: {str(error).splitlines()[0]}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise SqlError(
            f"SQL over released groups is one SELECT, got {shown(text)}; it reads published "
            "numbers and changes nothing"
        )
    return statements[0]


def _used(statement: exp.Query, views: GroupViews) -> dict[str, Group]:
    """The views that a statement reads, by their names."""
    from sqlglot import exp

    own = {cte.alias.lower() for cte in statement.find_all(exp.CTE)}
    used: dict[str, Group] = {}
    for table in statement.find_all(exp.Table):
        name = table.name.lower()
        is_plain = isinstance(table.this, exp.Identifier) and not table.db and not table.catalog
        if is_plain and name in own:
            continue
        if not is_plain or name not in views.names:
            names = [n for n, g in views.names.items() if re.fullmatch(r"\w+", n)]
            raise SqlError(
                f"no released group is called {shown(table.sql('duckdb'))}; the views are: "
                f"{listing(names, 100)}{did_you_mean(name, names)}"
            )
        used[name] = views.names[name]
    return used


@dataclass(frozen=True, eq=False)
class _Linear:
    """A column of the result as ``offset + sum_i scale_i sum_rows weight_i answer``.

    All parts are SQL: what is evaluated beside the column. Row by row there is no sum.
    """

    offset: exp.Expr
    scales: tuple[exp.Expr, ...]
    weights: tuple[exp.Expr, ...]


class _NotLinear(Exception):
    """Why a column of the result has no law."""


def _answered(
    views: GroupViews,
    connection: DuckDBPyConnection,
    statement: exp.Query,
    used: Mapping[str, Group],
) -> pd.DataFrame:
    """The result of a statement, and the law of its columns."""
    from sqlglot import exp

    columns = statement.selects if isinstance(statement, exp.Select) else []
    has_star = not columns or any(c.find(exp.Star) and not c.find(exp.Count) for c in columns)
    if has_star:
        return _run(connection, statement)
    if statement.find(exp.Columns, exp.PositionalColumn):
        return _run(connection, statement)  # columns that are not named cannot be followed
    noisy = [i for i, c in enumerate(columns) if _numbers_in(c)]
    laws: dict[int, _Linear | str] = {}
    for i in noisy:
        try:
            _check_plain(statement, used)
            _check_names(statement, connection, next(iter(used)))
            laws[i] = _law(columns[i], _is_grouped(statement))
        except _NotLinear as reason:
            laws[i] = f"no interval: {reason}"
    linear = {i: law for i, law in laws.items() if isinstance(law, _Linear)}
    if not linear:
        return _worded(_run(connection, statement), {i: str(law) for i, law in laws.items()})
    group = next(iter(used.values()))
    whole = _with_parts(statement, linear)
    frame = _run(connection, whole)
    return _with_intervals(views, group, frame, len(columns), laws)


def _run(connection: DuckDBPyConnection, statement: exp.Query) -> pd.DataFrame:
    import duckdb

    try:
        frame: pd.DataFrame = connection.execute(statement.sql("duckdb")).df()
    except duckdb.Error as error:
        first = str(error).splitlines()[0].replace(_base(""), "")
        raise SqlError(f"DuckDB cannot answer the statement: {first}") from None
    return frame


def _numbers_in(node: exp.Expr) -> bool:
    from sqlglot import exp

    return any(c.name.lower() in NUMBERS for c in node.find_all(exp.Column))


def _is_grouped(statement: exp.Query) -> bool:
    """Whether its rows are groups of rows."""
    from sqlglot import exp

    return bool(statement.args.get("group")) or any(
        c.find(exp.AggFunc) is not None for c in statement.selects
    )


def _check_plain(statement: exp.Query, used: Mapping[str, Group]) -> None:
    """Refuse a law where rows are not fixed sets of answers of one group."""
    from sqlglot import exp

    if not isinstance(statement, exp.Select) or len(used) != 1 or statement.args.get("joins"):
        raise _NotLinear("it reads more than one table")
    if next(statement.find_all(exp.CTE, exp.Subquery), None) or len([*_selects(statement)]) > 1:
        raise _NotLinear("it has a query inside a query")
    chosen = [k for k in ("having", "limit", "offset", "qualify") if statement.args.get(k)]
    if chosen:
        raise _NotLinear(f"{chosen[0].upper()} may choose rows by released numbers")
    if statement.args.get("distinct") or statement.find(exp.Window):
        raise _NotLinear("DISTINCT and windows are not linear")
    where, group = statement.args.get("where"), statement.args.get("group")
    if where is not None and _numbers_in(where):
        raise _NotLinear("WHERE chooses rows by released numbers")
    if group is not None and _numbers_in(group):
        raise _NotLinear("rows are grouped by released numbers")
    if any(not isinstance(g, int) for g in used.values()):
        raise _NotLinear("means and variances are not linear; add up the groups behind them")


def _check_names(statement: exp.Query, connection: DuckDBPyConnection, view: str) -> None:
    """Refuse a law where rows may be made by released numbers under another name.

    DuckDB takes aliases of columns of the result, and whole rows by the name of their table, in
    WHERE, GROUP BY and beside other columns. Names of the view, and aliases of what holds no
    number, are harmless anywhere; ORDER BY changes no row.
    """
    from sqlglot import exp

    names = connection.execute(f"SELECT * FROM {_quoted(view)} LIMIT 0").df().columns  # noqa: S608
    harmless = {str(n).lower() for n in names}
    harmless |= {c.alias.lower() for c in statement.selects if c.alias and not _numbers_in(c)}
    for column in statement.find_all(exp.Column):
        if column.name.lower() not in harmless and column.find_ancestor(exp.Order) is None:
            raise _NotLinear(f"{shown(column.name)} is no column of {view}")
    if _is_grouped(statement) and any(
        _numbers_in(c) and c.find(exp.AggFunc) is None for c in statement.selects
    ):
        raise _NotLinear("rows are grouped by released numbers")


def _selects(statement: exp.Query) -> Iterator[exp.Select]:
    from sqlglot import exp

    return statement.find_all(exp.Select)


def _law(column: exp.Expr, is_grouped: bool) -> _Linear:
    """What a column of the result is made of, if it is linear in the answers."""
    from sqlglot import exp

    node = (column.this if isinstance(column, exp.Alias) else column).copy()
    if not is_grouped:
        _check_linear(node, _is_answer)
        return _Linear(_at(node, _is_answer, 0), (), (_slope(node, _is_answer),))
    node = _averages_as_sums(node)
    offset = _at(node, _is_answer, 0)
    parts = [*_sums(node)]
    if not parts:
        raise _NotLinear("it is no sum of answers")
    marked = _marked(node, parts)
    _check_linear(marked, _is_mark)
    scales = tuple(
        _difference(_marks_at(marked, {i: 1}), _marks_at(marked, {})) for i in range(len(parts))
    )
    weights = []
    for part in parts:
        summed, where = _summed(part)
        _check_linear(summed, _is_answer)
        weight = _slope(summed, _is_answer)
        weights.append(weight if where is None else exp.Case().when(where, weight).else_("0"))
    return _Linear(offset, scales, tuple(weights))


def _averages_as_sums(node: exp.Expr) -> exp.Expr:
    """The node with ``SUM(x) / COUNT(x)`` for every ``AVG(x)``, each with its FILTER."""
    from sqlglot import exp

    def divided(n: exp.Expr) -> exp.Expr:
        inner = n.this if isinstance(n, exp.Filter) else n
        if not isinstance(inner, exp.Avg) or isinstance(inner.this, exp.Distinct):
            return n
        halves: list[exp.Expr] = [exp.Sum(this=inner.this), exp.Count(this=inner.this.copy())]
        if isinstance(n, exp.Filter):
            where = n.expression
            halves = [exp.Filter(this=h, expression=where.copy()) for h in halves]
        return exp.paren(exp.Div(this=halves[0], expression=halves[1], typed=False, safe=False))

    return divided(node) if isinstance(node, exp.Avg) else node.transform(divided)


def _sums(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates over answers, each with its FILTER; COUNT is of public rows."""
    from sqlglot import exp

    if isinstance(node, exp.Filter | exp.AggFunc):
        inner = node.this if isinstance(node, exp.Filter) else node
        if not isinstance(inner, exp.Count) and _numbers_in(node):
            yield node
        return
    for child in node.iter_expressions():
        yield from _sums(child)


def _summed(part: exp.Expr) -> tuple[exp.Expr, exp.Expr | None]:
    """What an aggregate adds up, and where."""
    from sqlglot import exp

    where = None
    if isinstance(part, exp.Filter):
        where = part.expression.this
        part = part.this
        if _numbers_in(where):
            raise _NotLinear("FILTER chooses rows by released numbers")
    if not isinstance(part, exp.Sum) or isinstance(part.this, exp.Distinct):
        raise _NotLinear(f"{part.sql('duckdb').split('(')[0]} is not linear")
    return part.this, where


def _marked(node: exp.Expr, parts: Sequence[exp.Expr]) -> exp.Expr:
    """The node with a column ``__part i`` for every aggregate over answers."""
    from sqlglot import exp

    places = {id(part): i for i, part in enumerate(parts)}
    if id(node) in places:
        return exp.column(f"{HIDDEN} {places[id(node)]}")
    return node.transform(
        lambda n: exp.column(f"{HIDDEN} {places[id(n)]}") if id(n) in places else n, copy=False
    )


def _is_answer(node: exp.Expr) -> bool:
    from sqlglot import exp

    return isinstance(node, exp.Column) and node.name.lower() in ANSWERS


def _is_mark(node: exp.Expr) -> bool:
    from sqlglot import exp

    return isinstance(node, exp.Column) and node.name.startswith(HIDDEN)


IsVariable = Callable[[Any], bool]


def _check_linear(node: exp.Expr, is_variable: IsVariable) -> None:
    """Refuse what is not affine in its variables, by its form."""
    from sqlglot import exp

    if not any(is_variable(n) for n in node.walk()):
        if _numbers_in(node) and node.find(exp.Count) is None:
            raise _NotLinear("ends of intervals and standard errors have no law of their own")
        return
    if is_variable(node):
        return
    if isinstance(node, exp.Add | exp.Sub | exp.Paren | exp.Neg):
        for child in node.iter_expressions():
            _check_linear(child, is_variable)
        return
    if isinstance(node, exp.Mul | exp.Div):
        left, right = node.left, node.right
        if isinstance(node, exp.Mul) and not any(is_variable(n) for n in left.walk()):
            left, right = right, left
        if not any(is_variable(n) for n in right.walk()):
            _check_linear(left, is_variable)
            _check_linear(right, is_variable)
            return
    if isinstance(node, exp.Cast) and node.to.this in (exp.DataType.Type.DOUBLE,):
        _check_linear(node.this, is_variable)
        return
    if isinstance(node, exp.Case) and node.this is None:
        branches = node.args.get("ifs") or []
        if not any(_numbers_in(b.this) for b in branches):
            for value in [*(b.args["true"] for b in branches), node.args.get("default")]:
                if value is not None:
                    _check_linear(value, is_variable)
            return
    raise _NotLinear(f"{shown(node.sql('duckdb'))} is not linear in the answers")


def _at(node: exp.Expr, is_variable: IsVariable, value: int) -> exp.Expr:
    """The node with a number in place of every variable."""
    from sqlglot import exp

    number = exp.cast(exp.Literal.number(value), "DOUBLE")
    if is_variable(node):
        return number.copy()
    return node.copy().transform(lambda n: number.copy() if is_variable(n) else n)


def _marks_at(node: exp.Expr, values: Mapping[int, int]) -> exp.Expr:
    from sqlglot import exp

    def number(n: exp.Expr) -> exp.Expr:
        if not _is_mark(n):
            return n
        place = int(n.name.removeprefix(HIDDEN))
        return exp.cast(exp.Literal.number(values.get(place, 0)), "DOUBLE")

    return node.copy().transform(number)


def _difference(a: exp.Expr, b: exp.Expr) -> exp.Expr:
    from sqlglot import exp

    return exp.Sub(this=exp.paren(a), expression=exp.paren(b))


def _slope(node: exp.Expr, is_variable: IsVariable) -> exp.Expr:
    """``e(v = 1) - e(v = 0)``: what a row counts for."""
    return _difference(_at(node, is_variable, 1), _at(node, is_variable, 0))


# Running it


def _with_parts(statement: exp.Query, linear: Mapping[int, _Linear]) -> exp.Query:
    """The statement on tables with numbered rows, and the parts of its linear columns after it."""
    from sqlglot import exp

    whole = statement.copy()
    assert isinstance(whole, exp.Select)  # noqa: S101  `_check_plain` has seen to it
    for table in whole.find_all(exp.Table):
        base = exp.to_identifier(_base(table.name.lower()), quoted=True)
        name = table.alias or table.name
        table.replace(exp.alias_(exp.Table(this=base), name, table=True, quoted=True))
    row = exp.column(ROW)
    for i, law in linear.items():
        hidden = [(f"{HIDDEN} {i} offset", law.offset)]
        for k, weight in enumerate(law.weights):
            if law.scales:
                hidden.append((f"{HIDDEN} {i} scale {k}", law.scales[k]))
                fields = (("r", row.copy()), ("w", weight))
                pair = exp.Struct(
                    expressions=[
                        exp.PropertyEQ(this=exp.to_identifier(field), expression=part)
                        for field, part in fields
                    ]
                )
                hidden.append((f"{HIDDEN} {i} rows {k}", exp.ArrayAgg(this=pair)))
            else:
                hidden.append((f"{HIDDEN} {i} row", row.copy()))
                hidden.append((f"{HIDDEN} {i} weight", weight))
        for name, node in hidden:
            whole = whole.select(exp.alias_(node, name, quoted=True), copy=False)
    return whole


def _worded(frame: pd.DataFrame, laws: Mapping[int, str]) -> pd.DataFrame:
    names = list(frame.columns)
    for i, law in laws.items():
        frame[f"{names[i]}_basis"] = law
    return frame


def _with_intervals(
    views: GroupViews,
    group: Group,
    frame: pd.DataFrame,
    columns: int,
    laws: Mapping[int, _Linear | str],
) -> pd.DataFrame:
    """The columns of a statement, with what is known of the linear ones after each other."""
    names = list(frame.columns[:columns])
    out = frame.iloc[:, :columns].copy()
    for i, law in laws.items():
        name = names[i]
        if isinstance(law, str):
            out[f"{name}_basis"] = law
        elif len(frame) > LIMITS.statement_rows:
            out[f"{name}_basis"] = f"no interval: more than {LIMITS.statement_rows:,} rows"
        else:
            numbers = [
                _combined(views, group, row, i, law, float(value))
                for row, value in zip(
                    frame.to_dict("records"), frame.iloc[:, i].to_list(), strict=True
                )
            ]
            for key, column in zip(
                ("standard_error", "low", "high", "basis"), zip(*numbers, strict=True), strict=False
            ):
                out[f"{name}_{key}"] = list(column)
    return out


def _combined(
    views: GroupViews, group: Group, row: Mapping[Any, Any], i: int, law: _Linear, value: float
) -> tuple[float, float, float, str]:
    """Standard error, ends and basis of one number of the result."""
    assert isinstance(group, int)  # noqa: S101  `_check_plain` has seen to it
    term = views.estimates.workload.terms[group]
    coefficients = _coefficients(row, i, law, term.rows)
    offset = float(row[f"{HIDDEN} {i} offset"] or 0.0)
    if not coefficients.any():
        return 0.0, value, value, "a constant"
    whole = views.estimates.combine({term.name: coefficients}, views.level)
    low, high = offset + whole.low, offset + whole.high
    return whole.standard_error, min(low, value), max(high, value), whole.basis


def _coefficients(row: Mapping[Any, Any], i: int, law: _Linear, rows: int) -> Array:
    """How much every answer of the group counts in one number of the result."""
    out = np.zeros(rows)
    if not law.scales:
        out[int(row[f"{HIDDEN} {i} row"])] = float(row[f"{HIDDEN} {i} weight"] or 0.0)
        return out
    for k in range(len(law.scales)):
        scale = float(row[f"{HIDDEN} {i} scale {k}"] or 0.0)
        for pair in row[f"{HIDDEN} {i} rows {k}"]:
            out[pair["r"]] += scale * (pair["w"] or 0.0)
    return out


# A SELECT that was planned, in its own shape


@dataclass(frozen=True, slots=True)
class ReleasedNumbers:
    """The numbers of statements, read off the answers of a release.

    Privacy: a function of released answers (post-processing: Dwork, Roth 2014, Proposition 2.1).
    """

    estimates: Estimates
    level: float

    def answer(self, term: int) -> OutputNumbers:
        """The answers of a group of queries."""
        answers = self.estimates.group(term)
        return OutputNumbers(answers.value(), *answers.interval(self.level))

    def mean(self, ratio: int) -> OutputNumbers:
        """The means, variances and so on of a statistic."""
        statistic = self.estimates.workload.ratios[ratio]
        derived = statistic.published(self.estimates, self.level)
        return OutputNumbers(derived.value, derived.low, derived.high)

    def quantile(self, term: int, attribute: str, probability: float) -> OutputNumbers:
        """The quantiles of an attribute, by the groups of its running totals."""
        ends = totals_quantiles(self.estimates, term, attribute, probability, self.level)
        return OutputNumbers(*ends)


def find_statement(workload: Workload, which: int) -> Statement:
    """The statement of this number, from 0."""
    statements = workload.statements
    if not statements:
        raise WorkloadError(
            "nothing here was asked in SQL; see answers(), or ask with sf.sql(domain, text)"
        )
    if isinstance(which, bool) or not isinstance(which, int) or which not in range(len(statements)):
        listed = listing([f"{i}: {s.text}" for i, s in enumerate(statements)])
        raise WorkloadError(
            f"there is no statement {shown(which)}; they are numbered from 0: {listed}"
        )
    return statements[which]


def statement_columns(statement: Statement, source: StatementSource) -> dict[str, OutputNumbers]:
    """The columns as selected, by title: one value per group that HAVING and LIMIT leave."""
    numbers = [output.numbers(source) for output in statement.outputs]
    check_rows(len(numbers[0].value))
    rows = statement.rows_after([one.value for one in numbers])
    return {title: one.at(rows) for title, one in zip(statement.titles(), numbers, strict=True)}


def statement_document(
    statement: Statement, columns: Mapping[str, OutputNumbers]
) -> dict[str, Any]:
    """A SELECT and its columns as JSON: what is missing is null, moments are texts of ISO 8601."""
    return {
        "sql": statement.text,
        "columns": [
            {
                "name": name,
                "values": _plain_values(one.value),
                "low": None if one.low is None else _plain_values(one.low),
                "high": None if one.high is None else _plain_values(one.high),
            }
            for name, one in columns.items()
        ],
    }


def _plain_values(column: Column) -> list[object]:
    if column.dtype.kind == "M":
        moments = np.datetime_as_string(column).tolist()
        return [None if text == "NaT" else text for text in moments]
    return [_plain_value(value) for value in column.tolist()]


def _plain_value(value: object) -> object:
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return None
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, int | float | str) else str(value)


def statement_frame(statement: Statement, source: StatementSource) -> pd.DataFrame:
    """One row per group that HAVING and LIMIT leave: the columns as selected.

    Beside a noisy column ``n`` stand ``n_low`` and ``n_high``, the ends of its interval.
    """
    import pandas as pd

    columns: dict[str, object] = {}
    for title, one in statement_columns(statement, source).items():
        columns[title] = one.value
        if one.low is not None and one.high is not None:
            columns |= {f"{title}_low": one.low, f"{title}_high": one.high}
    return pd.DataFrame(columns)


def write_statements(estimates: Estimates, level: float, folder: Path) -> dict[str, Path]:
    """``statement-1.csv`` and so on, one for every SELECT, safe to open in a spreadsheet."""
    import pyarrow as pa

    paths: dict[str, Path] = {}
    for i, statement in enumerate(estimates.workload.statements[: LIMITS.statement_files]):
        if statement.rows > LIMITS.statement_file_rows:
            continue
        source = ReleasedNumbers(estimates, statement.level(level))
        frame = statement_frame(statement, source)
        for name in frame.columns:
            if frame[name].dtype == object:  # numbers and (missing), say
                frame[name] = frame[name].map(label_text)
        path = paths[f"statement_{i + 1}"] = folder / f"statement-{i + 1}.csv"
        write_table_csv(pa.Table.from_pandas(frame, preserve_index=False), path)
    return paths
