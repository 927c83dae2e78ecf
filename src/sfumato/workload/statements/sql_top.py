# SPDX-License-Identifier: Apache-2.0
"""The top few groups of a SELECT: ``GROUP BY ... ORDER BY COUNT(*) DESC LIMIT n``.

The groups are the public cells of the grouped columns, so the candidates do not depend on the data.
The order says by which aggregate and in which direction, LIMIT how many; whether that aggregate is
selected says whether its noisy values are told.

Of columns whose values nobody has declared, `top_keys` reads the same statement as what is to be
discovered: the groups are then the values that many people share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from sfumato.domain.discovery import OpenCategory, top
from sfumato.domain.domain import Domain
from sfumato.domain.domain_limits import LIMITS as DOMAIN_LIMITS
from sfumato.domain.privacy_unit import PrivacyUnit
from sfumato.errors import SqlError
from sfumato.workload.build import check_domain
from sfumato.workload.sql_text import as_written, only, parsed_select, without_brackets
from sfumato.workload.statements.sql import workload_of
from sfumato.workload.workload import Workload

__all__ = [
    "TopQuery",
    "top_keys",
    "top_select",
]


ALLOWED = (
    "a selection is SELECT columns [, COUNT(*)] FROM table [WHERE condition] GROUP BY columns "
    "ORDER BY COUNT(*) DESC LIMIT n"
)


ALLOWED_OPEN = (
    "values that nobody has declared are discovered by SELECT columns [, COUNT(*)] FROM table "
    "GROUP BY columns ORDER BY COUNT(*) DESC LIMIT n"
)


@dataclass(frozen=True, eq=False, slots=True)
class TopQuery:
    """The candidates of a SELECT, how many of them, which, and whether their counts are told."""

    workload: Workload
    top: int
    which: Literal["largest", "smallest"]
    counts: bool


def top_select(domain: Domain, text: str) -> TopQuery:
    """Read a SELECT of the top few groups.

    Args:
        domain: What a record may look like.
        text: One SELECT with ORDER BY and LIMIT.

    Returns:
        One candidate per group, in the order of the cells.

    Raises:
        SqlError: The text is no such SELECT; with what is allowed.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"job": 15, "sex": 2})
    >>> query = top_select(domain, "SELECT job FROM t GROUP BY job ORDER BY COUNT(*) DESC LIMIT 3")
    >>> query.workload.queries, query.top, query.which, query.counts
    (15, 3, 'largest', False)
    """
    check_domain(domain, "a selection in SQL")
    select = parsed_select(text, "order", "limit")
    top = _limit(select)
    ordered = _ordered(select)
    if select.args.get("group") is None:
        raise SqlError(f"a selection without GROUP BY has one candidate; {ALLOWED}")
    plain = [node for node in select.expressions if isinstance(_inner(node), exp.Column)]
    others = [node for node in select.expressions if node not in plain]
    chosen = _aggregate(ordered.this, select)
    if any(_inner(node) != chosen for node in others):
        raise SqlError(
            f"{as_written(others[0])} is selected but not what the order is by; select the columns "
            f"and the aggregate of ORDER BY alone: {ALLOWED}"
        )
    counting = select.copy()
    for clause in ("order", "limit"):
        counting.set(clause, None)
    counting.set("expressions", [*(node.copy() for node in plain), chosen.copy()])
    which: Literal["largest", "smallest"] = "largest" if ordered.args.get("desc") else "smallest"
    return TopQuery(workload_of(domain, counting, None), top, which, bool(others))


def top_keys(text: str, unit: PrivacyUnit | None = None) -> OpenCategory:
    """Read a SELECT of the most common values of columns that are to be discovered.

    The counts of a discovery are told in any case, so that COUNT(*) may be selected or not. With a
    privacy unit they are of units: COUNT(DISTINCT unit).

    Args:
        text: One SELECT with GROUP BY, ORDER BY and LIMIT.
        unit: Whose presence is protected; one row if None.

    Returns:
        What is to be discovered: the tuples of the grouped columns, and how many.

    Raises:
        SqlError: The text is no such SELECT; with what is allowed.

    >>> top_keys("SELECT city FROM t GROUP BY city ORDER BY COUNT(*) DESC LIMIT 3")
    OpenCategory(columns=('city',), outside='other', nulls='missing', most=3)
    """
    select = parsed_select(text, "order", "limit")
    if select.args.get("where") is not None:
        raise SqlError(
            f"WHERE cannot be asked of values that are to be discovered; {ALLOWED_OPEN}. A query "
            "as the source (sf.SqlSource) can choose the records"
        )
    many = _limit(select)
    if many > DOMAIN_LIMITS.keys_published:
        raise SqlError(
            f"LIMIT {many:,} is more than the {DOMAIN_LIMITS.keys_published:,} values that a "
            "discovery publishes at most"
        )
    ordered = _ordered(select)
    if not ordered.args.get("desc"):
        raise SqlError(
            "the least common values of an undeclared column are those of single people, which "
            f"cannot be published; order by COUNT(*) DESC: {ALLOWED_OPEN}"
        )
    chosen = _aggregate(ordered.this, select)
    _check_people(chosen, unit)
    plain = [node for node in select.expressions if isinstance(_inner(node), exp.Column)]
    others = [node for node in select.expressions if node not in plain]
    if any(_inner(node) != chosen for node in others):
        raise SqlError(
            f"{as_written(others[0])} is selected but not what the order is by; {ALLOWED_OPEN}"
        )
    names = _grouped(select)
    selected = [_inner(node).name for node in plain]
    if selected and sorted(selected) != sorted(names):
        raise SqlError(
            f"selected are {', '.join(selected)} and grouped {', '.join(names)}; select the "
            f"columns of GROUP BY: {ALLOWED_OPEN}"
        )
    return top(many, selected or names)


def _grouped(select: exp.Select) -> list[str]:
    """The names of the grouped columns, by name or by number."""
    group = select.args.get("group")
    if group is None:
        raise SqlError(f"GROUP BY says whose values are discovered; {ALLOWED_OPEN}")
    only(group, "expressions")
    names: list[str] = []
    for written in group.expressions:
        node = without_brackets(written)
        if isinstance(node, exp.Literal) and not node.is_string:
            node = _selected_at(str(node.this), select)
        if not isinstance(node, exp.Column):
            raise SqlError(
                f"{as_written(written)} is not a column; values are discovered of columns as they "
                f"are: {ALLOWED_OPEN}"
            )
        names.append(node.name)
    return names


def _check_people(node: exp.Expression, unit: PrivacyUnit | None) -> None:
    """Refuse an order by anything but what a discovery counts: rows, or units where there are."""
    written = as_written(node)
    counted = without_brackets(node.this) if isinstance(node, exp.Count) else None
    if unit is None:
        if isinstance(counted, exp.Star):
            return
        raise SqlError(f"{written} cannot order values to be discovered; {ALLOWED_OPEN}")
    if isinstance(counted, exp.Distinct) and len(counted.expressions) == 1:
        column = without_brackets(counted.expressions[0])
        if isinstance(column, exp.Column) and column.name == unit.column:
            return
    raise SqlError(
        f"{written} cannot order values to be discovered: with a privacy unit each is counted once "
        f"for a unit that has it, which is COUNT(DISTINCT {unit.column})"
    )


def _limit(select: exp.Select) -> int:
    """How many are asked for."""
    limit = select.args.get("limit")
    if limit is None:
        raise SqlError(f"a selection needs LIMIT, which says how many; {ALLOWED}")
    if not isinstance(limit, exp.Limit):
        raise SqlError(f"{as_written(limit)} cannot be asked; {ALLOWED}")
    only(limit, "expression")
    number = limit.expression
    text = str(number.this) if isinstance(number, exp.Literal) and not number.is_string else ""
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        raise SqlError(f"LIMIT must be a whole number of at least 1, got {as_written(number)}")
    return int(text)


def _ordered(select: exp.Select) -> exp.Ordered:
    """What the order is by; one expression."""
    order = select.args.get("order")
    if order is None:
        raise SqlError(f"a selection needs ORDER BY, which says by what; {ALLOWED}")
    only(order, "expressions")
    if len(order.expressions) != 1 or not isinstance(order.expressions[0], exp.Ordered):
        raise SqlError(
            "a selection is ordered by one aggregate alone: ties are broken by noise, not by a "
            f"second column; {ALLOWED}"
        )
    ordered: exp.Ordered = order.expressions[0]
    only(ordered, "this", "desc", "nulls_first")
    return ordered


def _aggregate(node: exp.Expression, select: exp.Select) -> exp.Expression:
    """The aggregate that the order is by: itself, or a selected one by its alias or number."""
    node = without_brackets(node)
    listed = list(select.expressions)
    if isinstance(node, exp.Column) and not node.args.get("table"):
        for each in listed:
            if isinstance(each, exp.Alias) and each.alias.casefold() == node.name.casefold():
                node = _inner(each)
                break
    elif isinstance(node, exp.Literal) and not node.is_string:
        node = _selected_at(str(node.this), select)
    if isinstance(node, exp.Column | exp.Literal):
        raise SqlError(
            f"ORDER BY {as_written(node)} orders by a column, which is public; order by COUNT(*) "
            f"or SUM(...): {ALLOWED}"
        )
    return node


def _selected_at(text: str, select: exp.Select) -> exp.Expression:
    """What is selected at a place, from 1 on."""
    place = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    if not 1 <= place <= len(select.expressions):
        raise SqlError(
            f"{text[:20]} in ORDER BY or GROUP BY is not the number of a selected column"
        )
    return _inner(select.expressions[place - 1])


def _inner(node: exp.Expression) -> exp.Expression:
    return without_brackets(node.this if isinstance(node, exp.Alias) else node)
