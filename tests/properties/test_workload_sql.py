# SPDX-License-Identifier: Apache-2.0
"""SQL against DuckDB on random tables with nulls and unknown values, and any text at all.

DuckDB is an independent reader of the same text: what it answers on the rows must be what the
workload answers on their counts, three truth values, grouping and all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.domain.attributes import Boolean, Category, Integer, Level, Numeric
from sfumato.domain.domain import Domain
from sfumato.errors import SqlError, TooLarge, WorkloadError
from sfumato.workload.queries import Groups, Matrix
from sfumato.workload.terms import Product, Term

HALF = Level("half", ("young", "old"), (0, 0, 0, 1, 1, -1))
DOMAIN = Domain(
    [
        Integer("age", 0, 5, nulls="missing", levels=(HALF,)),
        Category("sex", ("F", "M"), outside="other", nulls="missing"),
        Boolean("flag", nulls="missing"),
        Numeric("x", (0.0, 10.0, 20.0, 50.0)),
    ]
)
COLUMNS = [
    [0, 1, 2, 3, 4, 5, None],
    ["F", "M", "zzz", None],  # zzz is a value that the schema does not know
    [False, True, None],
    [5.0, 15.0, 35.0],
]


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.execute("CREATE TABLE t (age INT, sex TEXT, flag BOOL, x DOUBLE, age_half TEXT)")
        yield connection


def fill(db: duckdb.DuckDBPyConnection, cells: list[tuple[int, ...]]) -> np.ndarray:
    """The same records as rows for DuckDB and as counts for the workload."""
    db.execute("DELETE FROM t")
    counts = np.zeros(DOMAIN.shape, dtype=np.int64)
    rows = []
    for cell in cells:
        counts[cell] += 1
        group = HALF.group_of[cell[0]] if cell[0] < 6 else -1
        values = [column[code] for column, code in zip(COLUMNS, cell, strict=True)]
        rows.append([*values, HALF.groups[group] if group >= 0 else None])
    if rows:
        db.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
    return counts


records = st.lists(
    st.tuples(*(st.integers(0, size - 1) for size in DOMAIN.shape)), min_size=0, max_size=12
)

comparison = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])
number = st.integers(-2, 7)
leaf = st.one_of(
    st.builds(lambda op, n: f"age {op} {n}", comparison, number),
    st.builds(lambda op, n: f"{n} {op} AGE", comparison, number),
    st.builds(lambda op, n: f"age {op} {n}.5", comparison, st.integers(0, 5)),
    st.builds(lambda a, b: f"age BETWEEN {a} AND {b}", number, number),
    st.builds(lambda a, b: f"t.age NOT BETWEEN {a} AND {b}", number, number),
    st.builds(lambda v: f"age IN ({', '.join(map(str, v))})", st.lists(number, min_size=1)),
    st.builds(lambda op, v: f"sex {op} '{v}'", st.sampled_from(["=", "<>"]), st.sampled_from("FM")),
    st.sampled_from(
        ["sex IN ('F')", "\"sex\" NOT IN ('F', 'M')", "`sex` IS NULL".replace("`", "")]
    ),
    st.sampled_from(["sex IS NOT NULL", "NOT sex IN ('M')"]),
    st.sampled_from(["flag", "NOT flag", "flag = TRUE", "flag <> FALSE", "flag IS NOT TRUE"]),
    st.sampled_from(["flag IS FALSE", "flag IS NULL", "TRUE", "FALSE", "NULL", "1 = 1", "2 < 1"]),
    st.sampled_from(["x < 10", "x >= 20", "x < 0", "x <= 50", "x > 50", "x BETWEEN 0 AND 50"]),
    st.sampled_from(["age.half = 'old'", "age.half <> 'old'", "age.half IS NULL"]),
    st.sampled_from(["age.half IN ('young', 'old')", "age.half NOT IN ('young')"]),
)
condition = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.builds(lambda a, b: f"{a} AND {b}", inner, inner),
        st.builds(lambda a, b: f"{a} OR {b}", inner, inner),
        st.builds(lambda a: f"NOT ({a})", inner),
        st.builds(lambda a: f"NOT {a}", inner),
        st.builds(lambda a: f"({a})", inner),
    ),
    max_leaves=6,
)
value = st.sampled_from(["1", "0", "-2", "0.5", "NULL", "3"])


@st.composite
def cases(draw: st.DrawFn) -> str:
    branches = draw(st.lists(st.tuples(condition, value), min_size=1, max_size=3))
    rest = draw(st.none() | value)
    whens = " ".join(f"WHEN {c} THEN {v}" for c, v in branches)
    return f"CASE {whens}{'' if rest is None else f' ELSE {rest}'} END"


simple_case = st.builds(
    lambda v, w: f"CASE sex WHEN 'F' THEN {v} WHEN 'M' THEN {w} END", value, value
)
aggregate = st.builds(
    lambda body, among: body if among is None else f"{body} FILTER (WHERE {among})",
    st.one_of(
        st.sampled_from(["COUNT(*)", "COUNT(1)", "COUNT(age)", "COUNT(sex)", "COUNT(flag)"]),
        st.sampled_from(["SUM(age)", "SUM(x)", "AVG(age)", "AVG(x)", "SUM(2)", "count(age.half)"]),
        st.builds(
            lambda f, c: f"{f}({c})",
            st.sampled_from(["SUM", "COUNT", "AVG"]),
            cases() | simple_case,
        ),
    ),
    st.none() | condition,
)
groups = st.lists(st.sampled_from(["sex", "flag", "x", "age|age.half"]), unique=True, max_size=2)


@st.composite
def queries(draw: st.DrawFn) -> tuple[list[str], list[str], str]:
    by = [draw(st.sampled_from(g.split("|"))) for g in draw(groups)]
    asked = draw(st.lists(aggregate, min_size=1, max_size=2))
    where = draw(st.none() | condition)
    text = f"SELECT {', '.join([*by, *asked])} FROM t"
    text += "" if where is None else f" WHERE {where}"
    text += f" GROUP BY {', '.join(by)}" if by else ""
    return by, asked, text


def group_keys(term: Term, by: list[str]) -> list[tuple[str, ...]]:
    """The labels of the groups of every row, in the order of the SELECT."""
    if isinstance(term, Product):
        axes = []
        for name, queries in term.factors:
            column = next((b for b in by if b.split(".")[0] == name), None)
            if column is None:
                assert queries.rows == 1
            else:
                labels = queries.labels if isinstance(queries, Groups | Matrix) else None
                axes.append([(column, str(v)) for v in labels or DOMAIN[name].labels])
        found = [dict(choice) for choice in product(*axes)]
    else:
        written = getattr(term, "labels", ())
        between = re.compile(r", (?=(?:age|age\.half|sex|flag|x) = )")
        found = [dict(p.split(" = ") for p in between.split(w)) if by else {} for w in written]
    return [tuple(row[b] for b in by) for row in found]


def label(column: str, given: object) -> str | None:
    """What the workload calls a value that DuckDB groups by; None for a level's NULL."""
    if given is None:
        return None if column == "age.half" else "(missing)"
    if given == "zzz":
        return "(other)"
    if column == "x":
        return {5.0: "[0, 10)", 15.0: "[10, 20)", 35.0: "[20, 50]"}[float(str(given))]
    return str(given)


def read(text: str) -> sf.Workload | None:
    try:
        return sf.sql(DOMAIN, text, in_bins=True)  # DuckDB sums the middles of bins, too
    except SqlError as error:
        if "always 0" not in str(error):
            raise
        return None


@given(records, queries())
@settings(max_examples=250, deadline=None)
def test_answers_are_those_of_duckdb(
    db: duckdb.DuckDBPyConnection,
    cells: list[tuple[int, ...]],
    query: tuple[list[str], list[str], str],
) -> None:
    by, asked, text = query
    counts = fill(db, cells)
    rows = db.execute(text.replace("age.half", "age_half")).fetchall()
    expected: dict[tuple[str | None, ...], list[object]] = {}
    for row in rows:
        key = tuple(label(c, v) for c, v in zip(by, row, strict=False))
        if None not in key:
            expected[key] = list(row[len(by) :])
    work = read(text)
    if work is None:  # refused because no record can count; then DuckDB counts none either
        results = list(zip(*expected.values(), strict=True))
        assert any(all(not v for v in column) for column in results) or not expected, text
        return
    answers = np.split(work.evaluate(counts), np.cumsum([t.rows for t in work.terms])[:-1])
    ratios = {r.numerator: r.denominator for r in work.ratios}
    numerators = [i for i in range(len(work.terms)) if i not in ratios.values()]
    assert len(numerators) == len(asked)
    for position, i in enumerate(numerators):
        keys = group_keys(work.terms[i], by)
        assert set(expected) <= set(keys), text
        for row, key in enumerate(keys):
            truth = expected.get(key, [None] * len(asked))[position]
            if i in ratios:
                sum_, count = answers[i][row], answers[ratios[i]][row]
                assert (count == 0) == (truth is None), text
                if count:
                    assert sum_ / count == pytest.approx(float(str(truth))), text
            else:
                assert answers[i][row] == pytest.approx(float(str(truth or 0))), text


def refused_or_read(text: str) -> None:
    try:
        work = sf.sql(DOMAIN, text)
    except (WorkloadError, TooLarge):
        return
    assert work.queries > 0
    work.digest()


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_is_refused_or_read(text: str) -> None:
    refused_or_read(text)
    refused_or_read("SELECT COUNT(*) FROM t WHERE " + text)
    refused_or_read(f"SELECT {text} FROM t")


WORDS = """
SELECT FROM WHERE GROUP BY COUNT SUM AVG MIN MEDIAN AND OR NOT IN BETWEEN IS NULL TRUE CASE WHEN
THEN ELSE END FILTER AS DISTINCT ALL ANY EXISTS LIKE UNION JOIN ON USING HAVING ORDER LIMIT OVER
WITH VALUES EXCEPT ROLLUP LATERAL UNNEST CAST EXTRACT COALESCE DATE TIMESTAMP INTERVAL
( ) * , . ; = <> < <= > >= != - + / % || :: [ ] { } ? $1 :a @b -- /* */ \\ ' "
age sex flag x age.half t "age" `sex` 'M' 1 2.5 1e9 0x1F '2024-01-01' \x00
"""


@given(st.lists(st.sampled_from(WORDS.split()), max_size=30))
@settings(max_examples=500, deadline=None)
def test_any_mixture_of_words_is_refused_or_read(words: list[str]) -> None:
    refused_or_read(" ".join(words))
    refused_or_read("SELECT COUNT(*) FROM t WHERE " + " ".join(words))
    refused_or_read(f"SELECT {' '.join(words)} FROM t")


@given(queries(), st.data())
@settings(max_examples=300, deadline=None)
def test_a_query_with_a_piece_changed_is_refused_or_read(
    query: tuple[list[str], list[str], str], data: st.DataObject
) -> None:
    text = query[2]
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 10)))
    refused_or_read(text[:start] + data.draw(st.sampled_from(WORDS.split())) + text[stop:])
