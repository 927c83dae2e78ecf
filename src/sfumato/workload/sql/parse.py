# SPDX-License-Identifier: Apache-2.0
"""From text to one checked SELECT of sqlglot, or a refusal that names the construct.

Every node has a list of the parts that it may have; a part that is not on the list, known today
or added by a later sqlglot, is refused. The text is read as SQLite writes it, which takes names
in double quotes and in backticks alike.
"""

from __future__ import annotations

from typing import NoReturn, cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from sfumato.errors import SqlError
from sfumato.text import shown
from sfumato.workload.workload_limits import LIMITS

__all__ = [
    "as_written",
    "only",
    "parsed_select",
    "refuse",
    "without_brackets",
]


ALLOWED = (
    "allowed is SELECT columns, aggregates FROM table [WHERE condition] [GROUP BY columns] with "
    "the aggregates COUNT, SUM and AVG"
)

_CLAUSES = {
    "with": ("WITH", "name the table itself"),
    "joins": (
        "a join",
        "one table is asked at a time: join before, and declare the joined columns",
    ),
    "laterals": ("LATERAL", "one table is asked at a time"),
    "having": ("HAVING", "which groups are large is private; filter the noisy answers afterwards"),
    "qualify": ("QUALIFY", "filter the noisy answers afterwards"),
    "order": ("ORDER BY", "answers come as a table: sort it afterwards"),
    "limit": ("LIMIT", "answers come as a table: cut it afterwards"),
    "offset": ("OFFSET", "answers come as a table: cut it afterwards"),
    "distinct": ("DISTINCT", "it is not linear in the records"),
    "windows": ("WINDOW", "window functions are not linear in the records"),
    "sample": ("TABLESAMPLE", "all records are counted"),
    "into": ("INTO", "nothing is written to the database"),
}

_QUANTILES = (
    "it is not linear in the records: ask for a CDF with prefixes and read quantiles off it"
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
    "Like": ("LIKE", "list the values with IN"),
    "ILike": ("ILIKE", "list the values with IN"),
    "Glob": ("GLOB", "list the values with IN"),
    "SimilarTo": ("SIMILAR TO", "list the values with IN"),
    "Min": ("MIN", _QUANTILES),
    "Max": ("MAX", _QUANTILES),
    "Median": ("MEDIAN", _QUANTILES),
    "Quantile": ("QUANTILE", _QUANTILES),
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


def parsed_select(text: object) -> exp.Select:
    """The one SELECT that the text holds."""
    if not isinstance(text, str):
        raise SqlError(f"a query in SQL is a text, got {shown(text)}")
    if len(text) > LIMITS.sql_characters:
        raise SqlError(
            f"the SQL has {len(text):,} characters, the most are {LIMITS.sql_characters:,}; "
            "split it up"
        )
    try:
        tokens = _SQLITE.tokenize(text)
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
    for key, value in select.args.items():
        clause = key.rstrip("_")
        if value and clause not in ("expressions", "from", "where", "group"):
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
    try:
        written = node.sql(
            "sqlite", copy=False, comments=False, unsupported_level=ErrorLevel.IGNORE
        )
        text = " ".join(written.split())
    except Exception:  # what the parser reads, its writer may still refuse
        text = type(node).__name__.upper()
    return text if len(text) <= most else f"{text[: most - 4]} ..."


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
    if tokens and tokens[0].token_type.name != "SELECT":
        word = shown(tokens[0].text.upper(), 40)
        advice = _CLAUSES["with"][1] if word == "'WITH'" else ALLOWED
        raise SqlError(f"the SQL begins with {word}, not with SELECT: {advice}")


def _not_sql(error: SqlglotError) -> SqlError:
    first = (getattr(error, "errors", None) or [{}])[0]
    place = ""
    if first.get("line"):
        near = shown(str(first.get("highlight") or ""), 40)
        place = f" at line {first['line']}, column {first['col']}, near {near}"
    return SqlError(f"the SQL cannot be read{place}; {ALLOWED}")
