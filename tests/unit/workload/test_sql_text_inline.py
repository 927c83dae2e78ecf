# SPDX-License-Identifier: Apache-2.0
"""WITH and subqueries in FROM mean what the SELECT over the table itself means."""

from __future__ import annotations

import pytest

import sfumato as sf
from sfumato.errors import SqlError

HALF = sf.Level("half", ("young", "old"), (0, 0, 0, 1, 1, 1))
DOMAIN = sf.Domain([sf.Integer("age", 0, 5, levels=(HALF,)), sf.Category("sex", ("F", "M"))])

EQUAL = {
    "WITH q AS (SELECT * FROM t WHERE age > 1) SELECT sex, COUNT(*) AS n FROM q GROUP BY sex": (
        "SELECT sex, COUNT(*) AS n FROM t WHERE age > 1 GROUP BY sex"
    ),
    "SELECT d, COUNT(*) AS n FROM (SELECT age / 2 AS d, sex FROM t) AS q WHERE q.sex = 'F' "
    "GROUP BY d": ("SELECT age / 2 AS d, COUNT(*) AS n FROM t WHERE sex = 'F' GROUP BY age / 2"),
    "WITH a AS (SELECT age + 1 AS b FROM t WHERE sex = 'F' OR age = 0), "
    "c AS (SELECT b * 2 AS e FROM a WHERE b < 4) SELECT COUNT(*) FROM c WHERE e > 2": (
        "SELECT COUNT(*) FROM t WHERE (sex = 'F' OR age = 0) AND age + 1 < 4 AND (age + 1) * 2 > 2"
    ),
    "SELECT x.half AS h, AVG(x) AS n FROM (SELECT age AS x FROM t) GROUP BY x.half": (
        "SELECT age.half AS h, AVG(age) AS n FROM t GROUP BY age.half"
    ),
    "WITH t AS (SELECT sex AS age, age AS sex FROM t) SELECT age, COUNT(*) FROM t GROUP BY age": (
        "SELECT sex AS age, COUNT(*) FROM t GROUP BY sex"
    ),
    "SELECT d, COUNT(*) AS n FROM (SELECT age / 2 AS d FROM t) GROUP BY d HAVING n > 3 "
    "ORDER BY n": ("SELECT age / 2 AS d, COUNT(*) AS n FROM t GROUP BY d HAVING n > 3 ORDER BY n"),
    "SELECT age // 2, COUNT(*) FROM t GROUP BY age // 2": (
        "SELECT age / 2, COUNT(*) FROM t GROUP BY age / 2"
    ),
}


@pytest.mark.parametrize(("nested", "plain"), EQUAL.items(), ids=range(len(EQUAL)))
def test_projections_and_filters_are_put_in_their_place(nested: str, plain: str) -> None:
    one, other = sf.sql(DOMAIN, nested), sf.sql(DOMAIN, plain)
    assert one.normal.key == other.normal.key
    titles = one.statements[0].titles()
    assert [t for t in titles if t.isidentifier()] == [
        t for t in other.statements[0].titles() if t.isidentifier()
    ]


def test_expressions_that_double_in_every_subquery_are_refused_in_time() -> None:
    inner = "SELECT age AS a0 FROM t"
    for i in range(30):
        inner = f"SELECT a{i} + a{i} AS a{i + 1} FROM ({inner})"
    with pytest.raises(SqlError, match="grow too long"):
        sf.sql(DOMAIN, f"SELECT COUNT(*) FROM ({inner}) WHERE a30 > 1")
