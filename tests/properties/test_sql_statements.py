# SPDX-License-Identifier: Apache-2.0
"""Whole statements against DuckDB on random tables: functions of columns, HAVING, ORDER BY, LIMIT.

DuckDB runs the same text on the rows; the statement reads exact counts. What DuckDB answers must be
what the statement shows, but for groups without records, which the schema lists and DuckDB cannot
know. ``/`` of whole numbers is ``//`` in DuckDB alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import SqlError
from tests.shared.exact_statements import exact_frame

DOMAIN = sf.Domain(
    [
        sf.Integer("age", 0, 5, nulls="missing"),
        sf.Integer("y", -4, 7, 4, outside="clamp"),
        sf.Numeric("x", (0, 10, 20, 30)),
        sf.Category("city", ("Ann", "Bob", "Anna"), nulls="missing"),
        sf.Boolean("flag", nulls="missing"),
        sf.DateTime("day", datetime(2023, 11, 1), datetime(2024, 3, 1), "month", nulls="missing"),
    ]
)
COLUMNS = ("age", "y", "x", "city", "flag", "day")
DAYS = st.dates(date(2023, 11, 1), date(2024, 2, 29))
# Any value that the schema knows, not only middles of bins: a bin that is cut would show.
RECORD = st.tuples(
    st.none() | st.integers(0, 5),
    st.integers(-9, 12),
    st.floats(0, 30, width=32),
    st.none() | st.sampled_from(["Ann", "Bob", "Anna"]),
    st.none() | st.booleans(),
    st.none() | DAYS,
)
GROUPS = [
    *("age", "city", "flag", "age / 2", "age % 2", "(age + 1) * 2", "-age", "ABS(age - 3)"),
    *("FLOOR(age / 2) * 2", "age / 2 * 2", "COALESCE(age, -1)", "NULLIF(age, 2)", "7 - age"),
    "CASE WHEN age < 2 THEN 'young' WHEN age < 4 THEN 'older' END",
    "CASE age WHEN 1 THEN 'one' ELSE 'not one' END",
    "CASE WHEN flag AND age < 3 THEN 'a' WHEN flag THEN 'b' ELSE 'c' END",
    "CASE WHEN age < 3 THEN city ELSE 'rest' END",
    *("UPPER(city)", "LOWER(city) || '!'", "LENGTH(city)", "SUBSTR(city, 1, 2)", "LEFT(city, 1)"),
    *("EXTRACT(YEAR FROM day)", "EXTRACT(MONTH FROM day)", "EXTRACT(QUARTER FROM day)"),
    *("date_trunc('year', day)", "date_trunc('month', day)", "date_trunc('quarter', day)"),
    *("FLOOR(x / 40)", "(y + 4) / 4", "CASE WHEN y < 0 THEN 'low' ELSE 'high' END"),
    *("CAST(age AS TEXT)", "ROUND(age / 2.0)", "CEIL(age / 2.0)", "IF(age < 3, 'x', 'z')"),
]
LEAVES = [
    *("age * 2 < 6", "age + 1 BETWEEN 2 AND 4", "age % 2 = 0", "age / 2 IN (0, 2)", "7 > age + 3"),
    *(
        "age / 2 NOT IN (1)",
        "age / 2 IS NULL",
        "age - 1 IS NOT NULL",
        "age < 1 + 2",
        "age * age > 5",
    ),
    *("city LIKE 'A%'", "city NOT LIKE '_n%'", "city ILIKE 'b__'", "NOT city LIKE 'Ann'"),
    *("LENGTH(city) IN (3)", "UPPER(city) = 'ANN'", "UPPER(city) <> 'ANN'", "city || 'x' = 'Bobx'"),
    *("EXTRACT(MONTH FROM day) >= 11", "EXTRACT(YEAR FROM day) = 2024", "day >= '2024-01-01'"),
    *("date_trunc('year', day) = DATE '2024-01-01'", "date_trunc('month', day) < '2024-01-01'"),
    *("x * 2 < 40", "FLOOR(x / 10) <> 1", "x / 10 >= 1", "y + 4 >= 4", "y * 2 < 8"),
    *("age IS DISTINCT FROM 2", "age IS NOT DISTINCT FROM 2", "COALESCE(age, 9) > 4"),
    *("CASE WHEN age < 3 THEN 1 ELSE 0 END = 1", "y < 4", "flag", "age < 3", "city IN ('Bob')"),
    *("COALESCE(age, 3) < LENGTH(city)", "age + 1 > LENGTH(city)", "age <> LENGTH(city)"),
]
CONDITION = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds(lambda a, b: f"({a}) AND ({b})", inner, inner),
        st.builds(lambda a, b: f"({a}) OR ({b})", inner, inner),
        st.builds(lambda a: f"NOT ({a})", inner),
    ),
    max_leaves=4,
)
AGGREGATES = ["COUNT(*)", "COUNT(age)", "SUM(age)", "SUM(CASE WHEN flag THEN 2 ELSE 1 END)"]
AGGREGATES += ["AVG(age)", "COUNT(*) FILTER (WHERE age * 2 < 6)", "COUNT_IF(LENGTH(city) = 3)"]


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        kinds = "age INT, y INT, x DOUBLE, city TEXT, flag BOOL, day DATE"
        connection.execute(f"CREATE TABLE t ({kinds})")
        yield connection


def fill(db: duckdb.DuckDBPyConnection, records: list[tuple[object, ...]]) -> np.ndarray:
    """The records as rows for DuckDB, clamped as the schema says, and as counts of cells."""
    counts = np.zeros(DOMAIN.shape, dtype=np.int64)
    db.execute("DELETE FROM t")
    for age, y, x, city, flag, day in records:
        inside = min(7, max(-4, y))  # type: ignore[type-var]
        months = [date(2023, 11, 1), date(2023, 12, 1), date(2024, 1, 1), date(2024, 2, 1)]
        cell = (
            6 if age is None else age,
            (inside + 4) // 4,  # type: ignore[operator]
            min(2, int(float(str(x)) // 10)),
            3 if city is None else ("Ann", "Bob", "Anna").index(str(city)),
            2 if flag is None else int(bool(flag)),
            4 if day is None else sum(m <= day for m in months) - 1,  # type: ignore[operator]
        )
        counts[cell] += 1
        db.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", [age, inside, x, city, flag, day])
    return counts


def in_duckdb(text: str) -> str:
    """The same statement for DuckDB, whose quotient of whole numbers is ``//``."""
    for part in ("age / 2.0", "x / 10", "x / 40"):
        text = text.replace(part, part.replace("/", "{}"))
    among = "COUNT(*) FILTER (WHERE LENGTH(city) = 3)"
    text = text.replace("COUNT_IF(LENGTH(city) = 3)", among)  # NULL for no record in DuckDB
    text = text.replace("SUM(age)", "COALESCE(SUM(age), 0)")  # a sum over no record is 0 here
    return text.replace("/", "//").replace("{}", "/")


def plain(value: object) -> object:
    """A value of either side in one form."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "(missing)"
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, Decimal | float | int) and not isinstance(value, bool):
        return round(float(value), 9)
    return value


def rows_of(frame: object) -> list[tuple[object, ...]]:
    return [tuple(map(plain, row)) for row in frame]  # type: ignore[attr-defined]


@st.composite
def statements(draw: st.DrawFn) -> str:
    by = draw(st.lists(st.sampled_from(GROUPS), min_size=1, max_size=3, unique=True))
    aggregates = draw(st.lists(st.sampled_from(AGGREGATES), max_size=2, unique=True))
    where = draw(st.none() | CONDITION)
    names = [f"g{i}" for i in range(len(by))]
    selected = [f"{g} AS {n}" for g, n in zip(by, names, strict=True)]
    asked = [f"{a} AS a{i}" for i, a in enumerate(aggregates)]
    text = f"SELECT {', '.join([*selected, 'COUNT(*) AS n', *asked])} FROM t"
    text += "" if where is None else f" WHERE {where}"
    text += f" GROUP BY {', '.join(draw(st.sampled_from([names, by])))}"
    text += f" HAVING n >= {draw(st.integers(1, 3))}"
    text += draw(st.sampled_from(["", " AND n < 4", " AND NOT (n = 2 OR n > 5)"]))
    way = draw(st.sampled_from(["DESC NULLS LAST", "ASC NULLS FIRST", "ASC NULLS LAST"]))
    text += f" ORDER BY n DESC, {', '.join(f'{n} {way}' for n in names)}"
    return text + draw(st.sampled_from(["", " LIMIT 3", " LIMIT 2 OFFSET 1"]))


@given(st.lists(RECORD, max_size=14), statements())
@settings(max_examples=120, deadline=None)
def test_statements_show_what_duckdb_answers(
    db: duckdb.DuckDBPyConnection, records: list[tuple[object, ...]], text: str
) -> None:
    counts = fill(db, records)
    expected = rows_of(db.execute(in_duckdb(text)).fetchall())
    try:
        work = sf.sql(DOMAIN, text)
    except SqlError as error:
        if "always 0" not in str(error):
            raise
        return  # by the schema no record can count in one of the columns
    shown = exact_frame(work, counts)
    assert rows_of(shown.itertuples(index=False)) == expected, text


@pytest.mark.parametrize(
    "text",
    [
        "SELECT FLOOR(age / 2) * 2, COUNT(*) FROM t WHERE NOT age IS NULL GROUP BY 1",
        "SELECT CASE WHEN age < 2 THEN 'a' WHEN age < 4 THEN 'b' WHEN age < 9 THEN 'c' END AS g, "
        "COUNT(*) FROM t WHERE age + 1 IS NOT NULL GROUP BY g",
    ],
)
def test_equal_groupings_have_equal_keys(text: str) -> None:
    one = sf.sql(DOMAIN, "SELECT age / 2 AS h, COUNT(*) FROM t WHERE age IS NOT NULL GROUP BY h")
    assert sf.sql(DOMAIN, text).normal.key == one.normal.key


def test_a_function_of_a_column_has_the_key_of_the_level_that_is_declared() -> None:
    half = sf.Level("half", ("0", "1", "2"), (0, 0, 1, 1, 2, 2))
    domain = sf.Domain([sf.Integer("age", 0, 5, levels=(half,)), sf.Boolean("flag")])
    declared = sf.sql(domain, "SELECT age.half, flag, COUNT(*) FROM t GROUP BY age.half, flag")
    written = sf.sql(domain, "SELECT flag, age / 2, COUNT(*) FROM t GROUP BY 1, 2")
    assert written.normal.key == declared.normal.key
    again = sf.sql(domain, "SELECT age % 2, flag, COUNT(*) FROM t GROUP BY 1, 2")
    assert again.normal.key != declared.normal.key
