# SPDX-License-Identifier: Apache-2.0
"""The top few groups of a SELECT: ``GROUP BY ... ORDER BY COUNT(*) DESC LIMIT n``.

The groups are the public cells of the grouped columns, so the candidates do not depend on the data.
The order says by which aggregate and in which direction, LIMIT how many; whether that aggregate is
selected says whether its noisy values are told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from sfumato.domain.domain import Domain
from sfumato.errors import SqlError
from sfumato.workload.build import check_domain
from sfumato.workload.sql import workload_of
from sfumato.workload.sql_text import as_written, only, parsed_select, without_brackets
from sfumato.workload.workload import Workload

__all__ = [
    "TopQuery",
    "top_select",
]


ALLOWED = (
    "a selection is SELECT columns [, COUNT(*)] FROM table [WHERE condition] GROUP BY columns "
    "ORDER BY COUNT(*) DESC LIMIT n"
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
        text = str(node.this)
        place = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
        if not 1 <= place <= len(listed):
            raise SqlError(f"ORDER BY {text[:20]} is not the number of a selected column")
        node = _inner(listed[place - 1])
    if isinstance(node, exp.Column | exp.Literal):
        raise SqlError(
            f"ORDER BY {as_written(node)} orders by a column, which is public; order by COUNT(*) "
            f"or SUM(...): {ALLOWED}"
        )
    return node


def _inner(node: exp.Expression) -> exp.Expression:
    return without_brackets(node.this if isinstance(node, exp.Alias) else node)
