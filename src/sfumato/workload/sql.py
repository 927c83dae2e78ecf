# SPDX-License-Identifier: Apache-2.0
"""Counting queries written in SQL.

The text is parsed with sqlglot and turned into terms over the domain; nothing that a person
typed reaches an engine, and what is not a linear query is refused with the name of the construct.
"""

from __future__ import annotations

from sfumato.domain import Domain
from sfumato.workload.predicates import Condition
from sfumato.workload.workload import Workload

__all__ = ["sql", "sql_condition"]


def sql(domain: Domain, text: str, name: str | None = None, *, in_bins: bool = False) -> Workload:
    """The linear queries of one SELECT: counts, sums and means, by groups, under conditions.

    There is one group of queries per aggregate, with one query per combination of public cells
    of the grouped columns: which groups appear does not depend on the data. ``AVG`` becomes a sum,
    a number of records and their ratio. The table may have any name. Sums and means are of the
    values themselves, clamped to the range of the schema; with ``in_bins`` every record counts as
    the middle of its bin instead, and the labels say so.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2})
    >>> work = sf.sql(domain, "SELECT sex, COUNT(*) AS n FROM t WHERE age >= 25 GROUP BY sex")
    >>> [(term.name, term.rows) for term in work.terms]
    [('n', 2)]
    """
    from sfumato.workload.sql_select import select_workload

    return select_workload(domain, text, name, in_bins)


def sql_condition(domain: Domain, text: str) -> Condition:
    """The condition that SQL would write after WHERE.

    >>> import sfumato as sf
    >>> domain = sf.Domain({"age": 100, "sex": 2})
    >>> str(sql_condition(domain, "NOT (age < 25 OR sex = 1)"))
    'age >= 25 and sex != 1'
    """
    from sfumato.workload.sql_select import where_condition

    return where_condition(domain, text)
