# SPDX-License-Identifier: Apache-2.0
"""What SQL is read as, and what is refused."""

from __future__ import annotations

import logging
from datetime import datetime

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.attributes import Boolean, Category, DateTime, Integer, Level, Numeric
from sfumato.domain.domain import Domain
from sfumato.errors import SqlError, TooLarge, WorkloadError
from sfumato.workload.queries import Groups, Identity, Matrix
from sfumato.workload.sql_expressions import sql_condition
from sfumato.workload.terms import Explicit, Predicates, Product
from sfumato.workload.workload import Ratio
from tests.shared.dense import dense_workload

HALF = Level("half", ("young", "old"), (0, 0, 1, 1))
DOMAIN = Domain(
    [
        Integer("age", 0, 3, nulls="missing", levels=(HALF,)),
        Category("native-country", ("US", "DE"), outside="other"),
        Boolean("married"),
        Numeric("income", (0, 10, 20)),
        DateTime("day", datetime(2024, 1, 1), datetime(2024, 5, 1), "month"),
    ]
)


def ask(text: str, name: str | None = None) -> sf.Workload:
    return sf.sql(DOMAIN, text, name)


def row(text: str, column: str) -> list[float]:
    """The coefficients of the one query of ``SELECT ... `` over one attribute."""
    (term,) = ask(text).terms
    assert isinstance(term, Product)
    factor = dict(term.factors)[column]
    assert factor.rows == 1
    return factor.dense()[0].tolist()


@pytest.mark.parametrize(
    ("condition", "column", "cells"),
    [
        ("age = 2", "age", [0, 0, 1, 0, 0]),
        ("NOT age = 2", "age", [1, 1, 0, 1, 0]),
        ("age <> 2", "age", [1, 1, 0, 1, 0]),
        ("age != 2", "age", [1, 1, 0, 1, 0]),
        ("1 < age", "age", [0, 0, 1, 1, 0]),
        ("age <= -0", "age", [1, 0, 0, 0, 0]),
        ("age BETWEEN 1 AND 2", "age", [0, 1, 1, 0, 0]),
        ("age NOT BETWEEN 1 AND 2", "age", [1, 0, 0, 1, 0]),
        ("age IN (0, 3, 9)", "age", [1, 0, 0, 1, 0]),
        ("age NOT IN (0, 3)", "age", [0, 1, 1, 0, 0]),
        ("age IS NULL", "age", [0, 0, 0, 0, 1]),
        ("age IS NOT NULL", "age", [1, 1, 1, 1, 0]),
        ("NOT age IS NULL", "age", [1, 1, 1, 1, 0]),
        ("NOT (age > 1 OR age IS NULL)", "age", [1, 1, 0, 0, 0]),
        ("NOT (NOT (age > 1))", "age", [0, 0, 1, 1, 0]),
        ("(age > 1 OR age = 0) AND TRUE", "age", [1, 0, 1, 1, 0]),
        ("age > 1 AND 1 = 1 AND 2 > 1.5", "age", [0, 0, 1, 1, 0]),
        ("age.half = 'old'", "age", [0, 0, 1, 1, 0]),
        ("\"age.half\" <> 'old'", "age", [1, 1, 0, 0, 0]),
        ("t.age.half IN ('old')", "age", [0, 0, 1, 1, 0]),
        ("AGE.Half NOT IN ('old')", "age", [1, 1, 0, 0, 0]),
        ("age.half IS NULL", "age", [0, 0, 0, 0, 1]),
        ("\"native-country\" = 'US'", "native-country", [1, 0, 0]),
        ("`native-country` <> 'US'", "native-country", [0, 1, 1]),
        ("t.\"NATIVE-Country\" NOT IN ('US', 'DE')", "native-country", [0, 0, 1]),
        ("married", "married", [0, 1]),
        ("NOT married", "married", [1, 0]),
        ("married IS NOT TRUE", "married", [1, 0]),
        ("married = FALSE", "married", [1, 0]),
        ("income < 10", "income", [1, 0]),
        ("income >= 10.0", "income", [0, 1]),
        ("day >= DATE '2024-03-01'", "day", [0, 0, 1, 1]),
        ("day < '2024-02-01'", "day", [1, 0, 0, 0]),
        ("day <= '2024-01-31'", "day", [1, 0, 0, 0]),
        ("day >= TIMESTAMP '2024-03-01 00:00:00'", "day", [0, 0, 1, 1]),
        ("day BETWEEN '2024-02-01' AND '2024-03-31'", "day", [0, 1, 1, 0]),
        ("day >= CAST('2024-04-01' AS DATE) -- a comment", "day", [0, 0, 0, 1]),
    ],
)
def test_conditions_select_cells(condition: str, column: str, cells: list[int]) -> None:
    """Three truth values: NOT does not match missing values, nor does a comparison."""
    assert row(f"SELECT COUNT(*) FROM t WHERE {condition}", column) == cells
    alone = condition.replace("t.", "data.")  # what a condition may call its table
    assert dense_workload(sf.predicates(Domain([DOMAIN[column]]), [alone])).tolist() == [cells]


def test_a_conjunction_is_a_product_of_single_rows() -> None:
    work = ask("SELECT COUNT(*) AS n FROM t WHERE age >= 1 AND NOT (married OR income < 10)")
    (term,) = work.terms
    assert isinstance(term, Product)
    assert [(n, q.dense().tolist()) for n, q in term.factors] == [
        ("age", [[0, 1, 1, 1, 0]]),
        ("married", [[1, 0]]),
        ("income", [[0, 1]]),
    ]
    assert term.name == "n"
    assert [q.labels for _, q in term.factors if isinstance(q, Matrix)] == [
        ("age >= 1",),
        ("married = False",),
        ("income >= 10",),
    ]


def test_all_public_cells_of_a_group_appear_missing_and_other_too() -> None:
    work = ask('SELECT age, "native-country", COUNT(*) FROM t GROUP BY age, "native-country"')
    (term,) = work.terms
    assert isinstance(term, Product)
    assert all(isinstance(q, Identity) for _, q in term.factors)
    assert len(work) == 5 * 3
    assert term.name == "COUNT(*) by age, native-country"


def test_where_on_a_grouped_column_keeps_the_groups_that_satisfy_it() -> None:
    (term,) = ask("SELECT age, COUNT(*) FROM t WHERE age > 1 AND married GROUP BY age").terms
    assert isinstance(term, Product)
    factor = dict(term.factors)["age"]
    assert isinstance(factor, Matrix)
    assert factor.labels == ("2", "3")
    assert factor.dense().tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 1, 0]]
    (term,) = ask("SELECT age.half, COUNT(*) FROM t WHERE age > 2 GROUP BY age.half").terms
    assert isinstance(term, Product)
    factor = dict(term.factors)["age"]
    assert isinstance(factor, Groups)
    assert (factor.labels, factor.group_of) == (("old",), (-1, -1, -1, 0, -1))


def test_a_large_grouped_column_is_kept_as_groups_not_as_a_matrix() -> None:
    domain = Domain({"id": 100_000})
    (term,) = sf.sql(domain, "SELECT id, COUNT(*) FROM t WHERE id >= 10 GROUP BY id").terms
    assert isinstance(term, Product)
    assert isinstance(term.factors[0][1], Groups)
    assert term.rows == 99_990


def test_filter_and_case_change_coefficients_and_not_the_groups() -> None:
    text = "SELECT age.half, COUNT(*) FILTER (WHERE age > 2), COUNT(*) FROM t GROUP BY age.half"
    first, second = ask(text).terms
    assert first.rows == second.rows == 2
    counts = np.array([1, 2, 4, 8, 16]).reshape(5, 1, 1, 1, 1) * np.ones(DOMAIN.shape, dtype=int)
    scale = DOMAIN.size // 5
    answers = ask(text).evaluate(counts) / scale
    assert answers.tolist() == [0, 8, 3, 12]


def test_groups_can_be_named_by_number_alias_or_level() -> None:
    expected = ask("SELECT age.half, married, COUNT(*) FROM t GROUP BY age.half, married").digest()
    for text in (
        "SELECT age.half, married, COUNT(*) FROM t GROUP BY 1, 2",
        "SELECT married, COUNT(*), age.half FROM t GROUP BY 3, married",
        "SELECT age.half AS h, married m, COUNT(*) FROM t GROUP BY h, M",
        'SELECT "age.half", d.married, COUNT(*) FROM data AS d GROUP BY "age.half", (d.married)',
    ):
        assert ask(text).digest() == expected


@pytest.mark.parametrize(
    ("aggregate", "column", "coefficients"),
    [
        ("COUNT(age)", "age", [1, 1, 1, 1, 0]),
        ("COUNT(age.half)", "age", [1, 1, 1, 1, 0]),
        ("SUM(age)", "age", [0, 1, 2, 3, 0]),
        ("SUM(married)", "married", [0, 1]),
        ("SUM(income)", "values of income", [0, 20]),
        ("SUM(income) FILTER (WHERE income < 10)", "values of income", [0, 20]),
        ("SUM(income) FILTER (WHERE income < 10)", "income", [1, 0]),
        ("SUM(CASE WHEN age > 1 THEN 1 ELSE 0 END)", "age", [0, 0, 1, 1, 0]),
        ("SUM(CASE WHEN age > 1 THEN 2.5 ELSE -1 END)", "age", [-1, -1, 2.5, 2.5, -1]),
        ("SUM(CASE WHEN NOT age > 1 THEN 1 END)", "age", [1, 1, 0, 0, 0]),
        ("SUM(CASE WHEN age > 1 THEN 1 WHEN age > 0 THEN 10 END)", "age", [0, 10, 1, 1, 0]),
        ("SUM(CASE WHEN age > 1 THEN NULL ELSE 4 END)", "age", [4, 4, 0, 0, 4]),
        ("SUM(CASE age WHEN 1 THEN 7 WHEN 2 THEN 8 ELSE 9 END)", "age", [9, 7, 8, 9, 9]),
        ("COUNT(CASE WHEN age > 1 THEN 'x' END)", "age", [0, 0, 1, 1, 0]),
        ("COUNT(CASE WHEN age > 1 THEN NULL ELSE 0 END)", "age", [1, 1, 0, 0, 1]),
    ],
)
def test_aggregates_are_coefficients(
    aggregate: str, column: str, coefficients: list[float]
) -> None:
    assert row(f"SELECT {aggregate} FROM t", column) == coefficients


def test_a_constant_is_summed_for_every_record() -> None:
    for text, number in (("SUM(2)", 2), ("SUM(-0.5)", -0.5), ("COUNT(1)", 1), ("COUNT(TRUE)", 1)):
        work = ask(f"SELECT {text} FROM t")
        assert (dense_workload(work) == number).all()
    grouped = ask("SELECT married, SUM(3) FROM t GROUP BY married")
    assert grouped.evaluate(np.ones(DOMAIN.shape)).tolist() == [3 * DOMAIN.size / 2] * 2


def test_a_mean_is_a_ratio_of_two_groups_of_queries() -> None:
    work = ask("SELECT married, AVG(age) AS mean_age, COUNT(*) FROM t GROUP BY married")
    assert [t.name for t in work.terms] == [
        "mean_age: sum",
        "mean_age: number",
        "COUNT(*) by married",
    ]
    assert work.ratios == (Ratio("mean_age", 0, 1),)
    counts = np.zeros(DOMAIN.shape)
    counts[1, 0, 0, 0, 0], counts[3, 0, 0, 0, 0], counts[4, 0, 0, 0, 0] = 1, 2, 100
    answers = work.evaluate(counts)
    assert (answers[0], answers[2]) == (7, 3)  # the missing age counts in neither
    share = ask("SELECT AVG(CASE WHEN married THEN 1 ELSE 0 END) FROM t")
    assert share.ratios == (Ratio("AVG(CASE WHEN married THEN 1 ELSE 0 END)", 0, 1),)


def test_conditions_across_columns_are_tabulated() -> None:
    work = ask("SELECT COUNT(*) FROM t WHERE age = 1 OR married")
    (term,) = work.terms
    assert isinstance(term, Predicates)
    assert term.labels == ("COUNT(*) where age = 1 OR married",)
    (term,) = ask("SELECT married, COUNT(*) FROM t WHERE age = 1 OR married GROUP BY married").terms
    assert isinstance(term, Explicit)
    assert term.labels == ("married = False", "married = True")
    assert term.row_powers(1).tolist() == [1, 5]
    text = "SELECT SUM(CASE WHEN age = 1 AND married THEN 0.5 WHEN income < 10 THEN 2 END) FROM t"
    (term,) = ask(text).terms
    assert isinstance(term, Explicit)
    assert term.attributes == ("age", "married", "income")
    assert sorted(set(term.matrix.toarray()[0].tolist())) == [0, 0.5, 2]


def test_where_over_several_columns_leaves_out_groups_that_cannot_be() -> None:
    text = "SELECT age, COUNT(*) FROM t WHERE (age = 1 AND married) OR age = 3 GROUP BY age"
    (term,) = ask(text).terms
    assert isinstance(term, Explicit)
    assert term.labels == ("age = 1", "age = 3")


def test_conditions_too_wide_to_tabulate_are_counted_one_by_one() -> None:
    domain = Domain({"a": 5_000, "b": 5_000, "c": 3})
    (term,) = sf.sql(domain, "SELECT COUNT(*) FROM t WHERE a < 10 OR b < 10").terms
    assert isinstance(term, Predicates)
    assert term.is_wide
    text = "SELECT c, COUNT(*) FROM t WHERE (a < 10 OR b < 10) AND c > 0 GROUP BY c"
    (term,) = sf.sql(domain, text).terms
    assert isinstance(term, Predicates)
    assert term.labels == ("c = 1", "c = 2")
    assert term.row_powers(1).tolist() == [10 * 5_000 * 2 - 100] * 2
    for text in (
        "SELECT a, COUNT(*) FROM t WHERE a < 4000 OR b < 10 GROUP BY a",
        "SELECT SUM(a) FROM t WHERE a < 10 OR b < 10",
    ):
        with pytest.raises(TooLarge, match="cells, more than the 1,048,576"):
            sf.sql(domain, text)


def test_both_halves_of_a_mean_have_the_same_groups_however_they_are_counted() -> None:
    """The sum looks at 12,000 cells, the number at 24 million; WHERE leaves out c = 0 in both."""
    domain = Domain({"a": 2_000, "b": 2_000, "c": 3, "d": 2})
    work = sf.sql(
        domain,
        "SELECT c, AVG(CASE WHEN a < 5 THEN 1 WHEN b < 5 THEN 0 END) AS m FROM t "
        "WHERE (c = 1 AND d = 1) OR c = 2 GROUP BY c",
    )
    above, below = work.terms
    assert isinstance(above, Explicit)
    assert isinstance(below, Predicates)
    assert above.labels == below.labels == ("c = 1", "c = 2")
    assert above.row_powers(1).tolist() == [5, 2 * 5]
    either = 5 * 2_000 + 1_995 * 5
    assert below.row_powers(1).tolist() == [either, 2 * either]


def test_a_column_may_have_a_dot_in_its_name() -> None:
    domain = Domain({"a.b": 3, "c": 2})
    for name in ("a.b", '"a.b"', 't."a.b"', "A.B"):
        assert len(sf.sql(domain, f"SELECT {name}, COUNT(*) FROM t GROUP BY {name}")) == 3


def test_names_come_from_the_caller_the_alias_or_the_text() -> None:
    one, two = "SELECT COUNT(*) FROM t", "SELECT COUNT(*) AS n, SUM(age) FROM t"
    assert ask(one).terms[0].name == "COUNT(*)"
    assert ask(one, "all").terms[0].name == "all"
    assert [t.name for t in ask(two).terms] == ["n", "SUM(age)"]
    assert [t.name for t in ask(two, "q").terms] == ["q: n", "q: SUM(age)"]
    long = ask(f"SELECT COUNT(*) FROM t WHERE age IN ({', '.join(map(str, range(99)))})")
    assert len(long.terms[0].name) < 90


REFUSED = {
    "SELECT COUNT(*) FROM t JOIN u ON t.a = u.a": "join",
    "SELECT COUNT(*) FROM t, u": "join",
    "SELECT COUNT(*) FROM (SELECT 1 FROM t)": "has no name",
    "SELECT age, COUNT(*) FROM (SELECT married FROM t) GROUP BY age": "selects no column 'age'",
    "SELECT COUNT(*) FROM t WHERE age = (SELECT 1)": "subquery",
    "SELECT COUNT(*) FROM t WHERE age IN (SELECT 1)": "subquery",
    "SELECT COUNT(*) FROM t WHERE EXISTS (SELECT 1)": "EXISTS",
    "SELECT COUNT(DISTINCT age) FROM t": "DISTINCT.*not linear",
    "SELECT SUM(DISTINCT age) FROM t": "DISTINCT.*not linear",
    "SELECT COUNT(*) OVER () FROM t": "window function",
    "SELECT SUM(COUNT(*)) OVER (PARTITION BY age) FROM t": "window function",
    "SELECT MIN(age) FROM t": "MIN.*QUANTILE_CONT",
    "SELECT MAX(age) FROM t": "MAX",
    "SELECT my_own(age) FROM t": "MY_OWN",
    "SELECT COUNT(*) + 1 FROM t": "arithmetic",
    "SELECT SUM(age) / COUNT(*) FROM t": "arithmetic",
    "SELECT -SUM(age) FROM t": "arithmetic",
    "SELECT COUNT(*) FROM t WHERE LOWER(married) = 'x'": "LOWER.*takes texts",
    "SELECT COUNT(*) FROM t UNION SELECT COUNT(*) FROM t": r"UNION.*\|",
    "SELECT COUNT(*) FROM t EXCEPT SELECT COUNT(*) FROM t": "EXCEPT",
    "WITH q AS (SELECT 1 AS a) SELECT COUNT(*) FROM q": "no table",
    "WITH q AS (SELECT COUNT(*) AS n FROM t) SELECT COUNT(*) FROM q": "'q' aggregates.*HAVING",
    "WITH q AS (SELECT age FROM t LIMIT 3) SELECT COUNT(*) FROM q": "'q' has LIMIT",
    "WITH q AS (SELECT DISTINCT age FROM t) SELECT COUNT(*) FROM q": "'q' has DISTINCT",
    "WITH q AS (SELECT age FROM t, u) SELECT COUNT(*) FROM q": "'q' has JOINS",
    "WITH RECURSIVE q AS (SELECT age FROM q) SELECT COUNT(*) FROM q": "RECURSIVE",
    "WITH q(a) AS (SELECT age FROM t) SELECT COUNT(*) FROM q": "not read",
    "WITH q AS (SELECT 1 UNION SELECT 2) SELECT COUNT(*) FROM q": "no SELECT",
    "INSERT INTO t VALUES (1)": "INSERT",
    "DROP TABLE t": "DROP",
    "EXPLAIN SELECT COUNT(*) FROM t": "EXPLAIN",
    "PRAGMA table_info(t)": "PRAGMA",
    "(SELECT COUNT(*) FROM t)": r"begins with '\('",
    "SELECT COUNT(*) FROM t; SELECT COUNT(*) FROM t": "2 statements",
    "SELECT COUNT(*) FROM t; DROP TABLE t": "2 statements",
    "": "0 statements",
    "-- nothing": "0 statements",
    "SELECT": "cannot be read|no aggregate|no table",
    "SELECT COUNT(*)": "no table",
    "SELECT * FROM t": "name the columns",
    "SELECT t.* FROM t": "name the columns",
    "SELECT COUNT(t.*) FROM t": "name the columns",
    "SELECT 1 FROM t": "1 cannot be asked|COUNT",
    "SELECT age FROM t GROUP BY age": "no aggregate",
    "SELECT DISTINCT married FROM t": "declared in the schema, and public: False, True",
    "SELECT age, COUNT(*) FROM t": "not in GROUP BY",
    "SELECT COUNT(*) FROM t GROUP BY age": "not selected",
    "SELECT age, COUNT(*) FROM t GROUP BY age.half": "not selected",
    "SELECT age, COUNT(*) FROM t GROUP BY 2": "not the number of a selected column",
    "SELECT age, COUNT(*) FROM t GROUP BY 0": "not the number of a selected column",
    "SELECT age, COUNT(*) FROM t GROUP BY 99999999999999999999": "not the number",
    "SELECT age, COUNT(*) FROM t GROUP BY age + 1": "not selected",
    "SELECT age, COUNT(*) FROM t GROUP BY ROLLUP (age)": "ROLLUP",
    "SELECT age, COUNT(*) FROM t GROUP BY CUBE (age)": "CUBE",
    "SELECT age, COUNT(*) FROM t GROUP BY GROUPING SETS ((age), ())": "GROUPING SETS",
    "SELECT age, COUNT(*) FROM t GROUP BY ALL": "ALL",
    "SELECT COUNT(*) FROM f(1)": "F",
    "SELECT COUNT(*) FROM t TABLESAMPLE (10 PERCENT)": "SAMPLE",
    "SELECT COUNT(*) FROM t AS x(a, b)": "COLUMNS",
    "SELECT COUNT(*) INTO u FROM t": "INTO",
    "SELECT COUNT(*) FROM t WHERE age": "not boolean",
    "SELECT COUNT(*) FROM t WHERE 1": "1 cannot be asked",
    "SELECT COUNT(*) FROM t WHERE 'x'": "cannot be asked",
    "SELECT COUNT(*) FROM t WHERE age = NULL": "IS NULL",
    "SELECT COUNT(*) FROM t WHERE age IN (1, NULL)": "IS NULL",
    "SELECT COUNT(*) FROM t WHERE age IN ()": "empty|cannot be read",
    "SELECT COUNT(*) FROM t WHERE age IS TRUE": "IS takes NULL",
    "SELECT COUNT(*) FROM t WHERE age < income": "would cut a bin of 'age' and 'income'",
    "SELECT COUNT(*) FROM t WHERE (age, income) = (1, 2)": "cannot be asked",
    "SELECT COUNT(*) FROM t WHERE age < married = TRUE": "cannot be asked|constant is needed",
    "SELECT COUNT(*) FROM t WHERE 'a' = 'a'": "cannot be compared",
    "SELECT COUNT(*) FROM t WHERE agee = 1": "unknown column 'agee'.*did you mean 'age'",
    "SELECT COUNT(*) FROM t WHERE u.age = 1": "unknown column 'u.age'",
    "SELECT COUNT(*) FROM t WHERE x.t.age = 1": "unknown column",
    "SELECT COUNT(*) FROM t WHERE a.b.c.d = 1": "cannot be asked|CATALOG|unknown",
    "SELECT COUNT(*) FROM t WHERE age.third = 'x'": "no level 'third'",
    "SELECT COUNT(*) FROM t WHERE \"age.third\" = 'x'": "no level 'third'",
    "SELECT COUNT(*) FROM t WHERE age.half = 'middle'": "no group 'middle'",
    "SELECT COUNT(*) FROM t WHERE age.half < 'old'": "no order",
    "SELECT COUNT(*) FROM t WHERE age.half": "not boolean",
    'SELECT COUNT(*) FROM t WHERE "native-country" = "US"': "single quotes",
    "SELECT COUNT(*) FROM t WHERE \"native-country\" = 'FR'": "no value 'FR'",
    "SELECT COUNT(*) FROM t WHERE \"native-country\" < 'US'": "no order",
    "SELECT COUNT(*) FROM t WHERE age = 'two'": "with a number",
    "SELECT COUNT(*) FROM t WHERE age = -'two'": "not a number",
    "SELECT COUNT(*) FROM t WHERE age < 1e999": "too large",
    "SELECT COUNT(*) FROM t WHERE income < 5": "would cut a bin",
    "SELECT COUNT(*) FROM t WHERE income * 2 < 10": "would cut a bin of 'income'",
    "SELECT FLOOR(income / 10), COUNT(*) FROM t GROUP BY 1": "would cut a bin of 'income'",
    "SELECT FLOOR(income), COUNT(*) FROM t GROUP BY 1": "would cut a bin of 'income'",
    "SELECT date_trunc('day', day), COUNT(*) FROM t GROUP BY 1": "would cut a bin of 'day'",
    "SELECT EXTRACT(DOW FROM day), COUNT(*) FROM t GROUP BY 1": "would cut.*more than one day",
    "SELECT date_trunc('moon', day), COUNT(*) FROM t GROUP BY 1": "'moon' is not one of",
    "SELECT EXTRACT(YEAR FROM age), COUNT(*) FROM t GROUP BY 1": "takes dates or times",
    "SELECT UPPER(age), COUNT(*) FROM t GROUP BY 1": "takes texts",
    "SELECT age + married, COUNT(*) FROM t GROUP BY 1": "takes numbers",
    "SELECT CAST(income AS INT), COUNT(*) FROM t GROUP BY 1": "takes whole numbers",
    "SELECT CAST(age AS BLOB), COUNT(*) FROM t GROUP BY 1": "CAST makes texts",
    "SELECT age + 1, COUNT(*) FROM t": "not in GROUP BY",
    "SELECT age, COUNT(*) FROM t GROUP BY COUNT(*)": "cannot be asked",
    "SELECT COUNT(*) AS n FROM t GROUP BY n": "is an aggregate",
    "SELECT COUNT(*) FROM t WHERE age LIKE '1%'": "holds no texts",
    'SELECT COUNT(*) FROM t WHERE "native-country" LIKE age': "LIKE takes one text",
    "SELECT COUNT(*) FROM t WHERE \"native-country\" LIKE 'a' ESCAPE 'ab'": "one character",
    "SELECT COUNT(*) FROM t WHERE \"native-country\" GLOB 'U*'": "GLOB.*LIKE",
    "SELECT COUNT(*) FROM t WHERE age + 1 = 'two'": "can be compared",
    "SELECT COUNT(*) FROM t HAVING SUM(age) > 3": "SUM.age. is not selected",
    "SELECT COUNT(*) FROM t ORDER BY age": "age is not selected",
    "SELECT COUNT(*) FROM t ORDER BY 2": "not the number of a selected column",
    "SELECT COUNT(*) FROM t LIMIT -1": "whole number",
    "SELECT COUNT(*) FROM t LIMIT 1 OFFSET 'a'": "whole number",
    "SELECT COUNT(*) FROM t HAVING COUNT(*)": "cannot be asked of released values",
    "SELECT DISTINCT ON (age) age, COUNT(*) FROM t GROUP BY age": "ON",
    "SELECT MEDIAN(married) FROM t": "have an order.*boolean",
    "SELECT MEDIAN(age.half) FROM t": "have an order.*level",
    "SELECT QUANTILE(age, 1.5) FROM t": "above 0 and below 1",
    "SELECT QUANTILE_CONT(age) FROM t": "a column and a probability",
    "SELECT MEDIAN(age) FROM t WHERE age < 2 OR married": "joined with AND",
    "SELECT age, MEDIAN(age) FROM t GROUP BY age": "is grouped by, too",
    "SELECT COUNT(*) FROM t WHERE day < DATE '2024-02-30'": "not a date",
    "SELECT COUNT(*) FROM t WHERE day < '2024-02-15'": "would cut",
    "SELECT COUNT(*) FROM t WHERE day < TIMESTAMP 'noon'": "not a timestamp",
    "SELECT COUNT(*) FROM t WHERE day < CAST(age AS DATE)": "DATE.*takes dates or times",
    "SELECT COUNT(*) FROM t WHERE age = ?": "cannot be asked|cannot be read|parameter",
    'SELECT SUM("native-country") FROM t': "sums and means need",
    "SELECT SUM(day) FROM t": "sums and means need",
    "SELECT SUM(age.half) FROM t": "has no sum",
    "SELECT SUM(CASE WHEN married THEN age END) FROM t": "FILTER",
    "SELECT SUM(CASE WHEN married THEN 'x' END) FROM t": "not a number",
    "SELECT SUM(CASE WHEN age THEN 1 END) FROM t": "not boolean",
    "SELECT SUM('x') FROM t": "not a number",
    "SELECT SUM(NULL) FROM t": "NULL",
    "SELECT SUM(*) FROM t": "cannot be|name the columns",
    "SELECT COUNT(NULL) FROM t": "NULL",
    "SELECT COUNT(age, income) FROM t": "EXPRESSIONS",
    "SELECT COUNT(* EXCEPT (age)) FROM t": "EXCEPT",
    "SELECT AVG(DISTINCT age) FROM t": "DISTINCT",
    "SELECT COUNT(*) FROM t WHERE age < 0": "always 0",
    "SELECT COUNT(*) FROM t WHERE FALSE": "always 0",
    "SELECT SUM(0) FROM t": "always 0",
    "SELECT COUNT(*) FILTER (WHERE age = 1 AND age = 2) FROM t": "always 0",
    "SELECT COUNT(*) FROM t WHERE (": "cannot be read at line 1, column",
    "SELECT COUNT(*) FROM t WHERE age = 'x": "cannot be read",
}


@pytest.mark.parametrize(("text", "says"), REFUSED.items(), ids=REFUSED.keys())
def test_everything_else_is_refused_by_name(
    text: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(WorkloadError, match=says):
        ask(text)
    assert not caplog.records


def test_a_query_is_a_text() -> None:
    for given in (None, 3, b"SELECT COUNT(*) FROM t", ["SELECT"]):
        with pytest.raises(SqlError, match="is a text"):
            ask(given)  # type: ignore[arg-type]


CHAIN = " OR ".join(["age = 1"] * 1_500)
DEEP = {
    "brackets": "SELECT COUNT(*) FROM t WHERE " + "(" * 9_000 + "age = 1" + ")" * 9_000,
    "open brackets": "SELECT COUNT(*) FROM t WHERE " + "(" * 19_000,
    "not": "SELECT COUNT(*) FROM t WHERE " + "NOT " * 4_500 + "married",
    "minus": "SELECT COUNT(*) FROM t WHERE age = " + "- " * 9_000 + "1",
    "minus and plus": "SELECT COUNT(*) FROM t WHERE age = " + "- + ~ " * 3_000 + "1",
    "case": "SELECT SUM(" + "CASE WHEN married THEN " * 800 + "1" + " END" * 800 + ") FROM t",
    "subqueries": "SELECT COUNT(*) FROM " + "(SELECT COUNT(*) FROM " * 800 + "t" + ")" * 800,
    "functions": "SELECT " + "f(" * 6_000 + "1" + ")" * 6_000 + " FROM t",
    "unions": "SELECT COUNT(*) FROM t" + " UNION SELECT COUNT(*) FROM t" * 650,
    "joins": "SELECT COUNT(*) FROM t" + " JOIN t" * 2_500,
    "casts": "SELECT COUNT(*) FROM t WHERE age = 1" + "::INT" * 3_000,
    "comparisons": "SELECT COUNT(*) FROM t WHERE age" + " = age" * 3_000,
    "arithmetic": "SELECT COUNT(*) FROM t WHERE age = 1" + " + 1" * 4_000,
    "is null": "SELECT COUNT(*) FROM t WHERE age" + " IS NULL" * 2_000,
    "dots": "SELECT COUNT(*) FROM t WHERE a" + ".a" * 9_000 + " = 1",
    "selects": "SELECT " * 2_500,
    "too long": "SELECT COUNT(*) FROM t WHERE " + " " * 20_000 + "married",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_nesting_is_refused_and_never_exhausts_the_stack(text: str) -> None:
    with pytest.raises(SqlError):
        ask(text)


def test_long_flat_conditions_are_read() -> None:
    assert row(f"SELECT COUNT(*) FROM t WHERE {CHAIN}", "age") == [0, 1, 0, 0, 0]
    values = ", ".join(str(i) for i in range(3_000))
    assert row(f"SELECT COUNT(*) FROM t WHERE age IN ({values})", "age") == [1, 1, 1, 1, 0]
    mixed = " OR ".join(["age = 1 AND married"] * 500)
    assert len(ask(f"SELECT COUNT(*) FROM t WHERE {mixed}")) == 1


def test_columns_that_differ_only_in_case_must_be_written_exactly() -> None:
    domain = Domain({"Age": 3, "AGE": 4})
    assert sf.sql(domain, "SELECT Age, COUNT(*) FROM t GROUP BY Age").queries == 3
    with pytest.raises(SqlError, match="Age, AGE; write it exactly"):
        sf.sql(domain, "SELECT age, COUNT(*) FROM t GROUP BY age")


def test_a_table_may_have_the_name_of_a_column() -> None:
    text = "SELECT age.age, age.half, COUNT(*) FROM age WHERE age.married GROUP BY 1"
    assert len(ask(text)) == 5  # the half is a function of the age
    assert len(ask("SELECT age.age, COUNT(*) FROM age GROUP BY age.age")) == 5


@pytest.mark.parametrize("text", ["", "  ", None, 3])
def test_a_condition_says_something(text: object) -> None:
    with pytest.raises(SqlError, match="is a text such as"):
        sql_condition(DOMAIN, text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        *("age = 1 GROUP BY age", "age = 1; DROP TABLE t", "age = 1 UNION SELECT 1"),
        *("COUNT(*) > 1", "age = 1 ORDER BY 1", "age = 1) OR (married", "-- nothing"),
    ],
)
def test_a_condition_is_nothing_more(text: str) -> None:
    with pytest.raises(SqlError):
        sql_condition(DOMAIN, text)
