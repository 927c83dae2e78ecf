# SPDX-License-Identifier: Apache-2.0
"""The top few groups of a SELECT: what is read off it, and what is refused."""

from __future__ import annotations

import pytest

import sfumato as sf
from sfumato.errors import SqlError
from sfumato.workload.statements.sql_top import top_select

DOMAIN = sf.Domain(
    [sf.Category("job", ["cook", "nurse", "smith"]), sf.Integer("age", 0, 9), sf.Boolean("ill")]
)
JOBS = sf.marginals(DOMAIN, [["job"]])


@pytest.mark.parametrize(
    ("text", "top", "which", "counts"),
    [
        ("SELECT job FROM t GROUP BY job ORDER BY COUNT(*) DESC LIMIT 2", 2, "largest", False),
        ("SELECT job FROM t GROUP BY 1 ORDER BY COUNT(*) LIMIT 1", 1, "smallest", False),
        ("SELECT job, COUNT(*) FROM t GROUP BY job ORDER BY 2 DESC LIMIT 2", 2, "largest", True),
        ("SELECT job, COUNT(*) AS n FROM t GROUP BY job ORDER BY N ASC LIMIT 2", 2, "smallest",
         True),
        ("SELECT job AS j FROM t AS x GROUP BY j ORDER BY (COUNT(*)) DESC LIMIT 1", 1, "largest",
         False),
    ],
)  # fmt: skip
def test_order_and_limit_say_what_is_selected(
    text: str, top: int, which: str, counts: bool
) -> None:
    query = top_select(DOMAIN, text)
    assert (query.top, query.which, query.counts) == (top, which, counts)
    assert query.workload.normal.key == JOBS.normal.key


def test_conditions_and_sums_are_those_of_counting_queries() -> None:
    query = top_select(
        DOMAIN,
        "SELECT job, ill FROM t WHERE age > 3 GROUP BY job, ill ORDER BY SUM(age) DESC LIMIT 1",
    )
    counted = sf.sql(DOMAIN, "SELECT job, ill, SUM(age) FROM t WHERE age > 3 GROUP BY job, ill")
    assert query.workload.normal.key == counted.normal.key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT job FROM t GROUP BY job ORDER BY COUNT(*) DESC", "needs LIMIT"),
        ("SELECT job FROM t GROUP BY job LIMIT 2", "needs ORDER BY"),
        ("SELECT COUNT(*) FROM t ORDER BY COUNT(*) LIMIT 1", "one candidate"),
        ("SELECT job FROM t GROUP BY job ORDER BY COUNT(*) LIMIT 0", "at least 1"),
        ("SELECT job FROM t GROUP BY job ORDER BY COUNT(*) LIMIT 2.5", "at least 1"),
        ("SELECT job FROM t GROUP BY job ORDER BY COUNT(*) LIMIT -1", "at least 1"),
        ("SELECT job FROM t GROUP BY job ORDER BY COUNT(*) LIMIT 'a'", "at least 1"),
        ("SELECT job FROM t GROUP BY job ORDER BY COUNT(*) LIMIT 2 OFFSET 1", "OFFSET"),
        ("SELECT job FROM t GROUP BY job ORDER BY job LIMIT 2", "orders by a column"),
        ("SELECT job FROM t GROUP BY job ORDER BY 1 LIMIT 2", "orders by a column"),
        ("SELECT job FROM t GROUP BY job ORDER BY 7 LIMIT 2", "not the number"),
        ("SELECT job FROM t GROUP BY job ORDER BY COUNT(*), job LIMIT 2", "one aggregate alone"),
        ("SELECT job, SUM(age) FROM t GROUP BY job ORDER BY COUNT(*) LIMIT 2", "not what the"),
        ("SELECT job FROM t GROUP BY job ORDER BY MAX(age) LIMIT 2", "MAX cannot be asked"),
        ("SELECT job FROM t GROUP BY job HAVING COUNT(*) > 1 ORDER BY COUNT(*) LIMIT 1", "HAVING"),
        ("DELETE FROM t", "begins with 'DELETE'"),
    ],
)
def test_other_statements_are_refused_with_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        top_select(DOMAIN, text)


def test_counting_queries_order_and_cut_what_was_released() -> None:
    for clause in ("ORDER BY COUNT(*)", "LIMIT 3"):
        work = sf.sql(DOMAIN, f"SELECT job, COUNT(*) FROM t GROUP BY job {clause}")
        assert work.normal.key == JOBS.normal.key  # all groups are counted
