# SPDX-License-Identifier: Apache-2.0
"""Functions of columns as groups and in conditions, where DuckDB is no judge: (other), sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import SqlError, TooLarge
from sfumato.workload import sql_expressions
from sfumato.workload.terms import Explicit, Product
from tests.shared.exact_statements import exact_frame

DOMAIN = sf.Domain(
    [
        sf.Integer("age", 0, 3, outside="other", nulls="missing"),
        sf.Category("city", ("Ann", "Bob"), outside="other"),
        sf.Boolean("flag"),
    ]
)
ONES = np.ones(DOMAIN.shape, dtype=np.int64)


def counted(condition: str) -> int:
    """How many of the 36 cells satisfy the condition."""
    work = sf.sql(DOMAIN, f"SELECT COUNT(*) FROM t WHERE {condition}")
    return int(work.evaluate(ONES)[0])


def test_unknown_values_and_nulls_have_groups_of_their_own() -> None:
    work = sf.sql(
        DOMAIN, "SELECT age / 2 AS half, UPPER(city) AS c, COUNT(*) AS n FROM t GROUP BY 1, 2"
    )
    frame = exact_frame(work, ONES)
    assert frame["half"].drop_duplicates().tolist() == [0, 1, "(other)", "(missing)"]
    assert frame["c"].tolist()[:3] == ["ANN", "BOB", "(other)"]
    assert frame["n"].tolist() == [4.0] * 6 + [2.0] * 6


@pytest.mark.parametrize(
    ("condition", "cells"),
    [
        ("age + 0 = 1", 6),
        ("age + 0 <> 1", 18),  # three known ages: neither unknown nor missing ones
        ("age <> 1", 24),  # the column itself: an unknown value is none of the declared
        ("NOT (age + 0 <> 1)", 6),
        ("city LIKE 'A%'", 12),
        ("city NOT LIKE 'A%'", 12),
        ("age + 0 IS NULL", 6),
        ("age + 0 IS NOT NULL", 30),
        ("COALESCE(age, 0) = 0", 12),
        ("age IS DISTINCT FROM 1", 30),
    ],
)
def test_no_comparison_of_an_expression_holds_for_values_that_are_not_known(
    condition: str, cells: int
) -> None:
    assert counted(condition) == cells


def test_values_that_did_not_parse_have_a_group_of_their_own() -> None:
    domain = sf.Domain([sf.Integer("age", 0, 3, nulls="missing", unparsed="cell")])
    work = sf.sql(domain, "SELECT age / 2 AS h, COUNT(*) AS n FROM t GROUP BY h")
    frame = exact_frame(work, np.array([1, 2, 4, 8, 16, 32]))
    assert dict(zip(frame["h"], frame["n"], strict=True)) == {
        0: 3,
        1: 12,
        "(missing)": 16,
        "(unparsed)": 32,
    }


def test_functions_of_one_column_are_products_those_of_several_are_tabulated() -> None:
    (one,) = sf.sql(DOMAIN, "SELECT age / 2, flag, COUNT(*) FROM t GROUP BY 1, 2").terms
    assert isinstance(one, Product)
    text = "CASE WHEN flag AND age < 2 THEN 'a' ELSE 'b' END"
    (several,) = sf.sql(DOMAIN, f"SELECT {text}, COUNT(*) FROM t GROUP BY 1").terms
    assert isinstance(several, Explicit)
    assert several.attributes == ("age", "flag")


def test_selected_columns_may_be_functions_of_those_grouped_by() -> None:
    text = "SELECT age / 2 * 10 AS tens, age / 2 AS half, 'all' AS who, COUNT(*) AS n FROM t "
    text += "GROUP BY half"
    frame = exact_frame(sf.sql(DOMAIN, text), ONES)
    assert frame["tens"].tolist() == [0, 10, "(other)", "(missing)"]
    assert frame["who"].tolist() == ["all"] * 4
    assert list(frame.columns) == ["tens", "half", "who", "n"]
    with pytest.raises(SqlError, match="grouped by apart"):
        sf.sql(DOMAIN, "SELECT city, age, city || CAST(age AS TEXT), COUNT(*) FROM t GROUP BY 1, 2")


def test_large_columns_are_refused_with_the_limit() -> None:
    domain = sf.Domain({"id": 100_000, "a": 500, "b": 500})
    with pytest.raises(TooLarge, match="65,536"):
        sf.sql(domain, "SELECT id / 10, COUNT(*) FROM t GROUP BY 1")
    with pytest.raises(TooLarge, match="65,536"):
        sf.sql(domain, "SELECT COUNT(*) FROM t WHERE a + 1 < b")


def test_many_functions_of_large_columns_are_refused_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = replace(sql_expressions.LIMITS, sql_expression_steps=2**18)
    monkeypatch.setattr(sql_expressions, "LIMITS", few)
    domain = sf.Domain({"id": 60_000})
    listed = " OR ".join(f"id + {i} = 1" for i in range(500))
    with pytest.raises(TooLarge, match="cells together at most"):
        sf.sql(domain, f"SELECT COUNT(*) FROM t WHERE {listed}")
    text = "SELECT COUNT(*) FROM t WHERE id + 1.5e-300000000 > 3.0"
    assert sf.sql(domain, text).evaluate(np.ones(60_000)).tolist() == [60_000 - 4]


def test_long_expressions_never_exhaust_the_stack() -> None:
    with pytest.raises(SqlError, match="nested more than 100"):
        sf.sql(DOMAIN, f"SELECT COUNT(*) FROM t WHERE age{' + 1' * 3_000} = 1")
    with pytest.raises(SqlError, match="nested more than 100"):
        sf.sql(DOMAIN, f"SELECT COUNT(*) AS n FROM t HAVING n{' + 1' * 3_000} > 1")
    chain = " AND ".join(["n > 1"] * 1_000)
    assert sf.sql(DOMAIN, f"SELECT COUNT(*) AS n FROM t HAVING {chain}").queries == 1
