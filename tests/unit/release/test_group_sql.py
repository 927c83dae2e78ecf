# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import sfumato as sf
from sfumato.domain.attributes import Category, Integer, Level
from sfumato.domain.domain import Domain
from sfumato.errors import SqlError
from sfumato.release.release import Release
from tests.shared.made_releases import BUDGET, measured, planned, released, some_counts
from tests.shared.words import SeededWords


def leveled() -> Domain:
    decades = Level("decade", ("20s", "30s"), tuple(i // 10 for i in range(20)))
    return Domain(
        [
            Integer("age", 20, 39, levels=(decades,)),
            Category("sex", ("Female", "Male"), nulls="missing"),
        ]
    )


@pytest.fixture(scope="module")
def release() -> Release:
    domain = leveled()
    work = sf.marginals(domain, 2) | sf.prefixes(domain, "age") | sf.means(domain, "age")
    return released(work, some_counts(domain))


def test_sums_by_group_are_rolled_up_answers(release):
    frame = release.sql("SELECT sex, SUM(value) AS n FROM age_sex GROUP BY sex ORDER BY sex")
    assert frame.columns.tolist() == ["sex", "n", "n_standard_error", "n_low", "n_high", "n_basis"]
    cells = release.answers(group="age x sex")
    assert frame["n"].to_numpy() == pytest.approx(cells.groupby("sex")["value"].sum().to_numpy())
    for i, sex in enumerate(frame["sex"]):
        at = {int(k): 1.0 for k in np.flatnonzero(cells["sex"] == sex)}
        whole = release.combine({"age x sex": at})
        assert frame["n_standard_error"][i] == pytest.approx(whole.standard_error)
        assert frame["n_low"][i] == pytest.approx(min(whole.low, frame["n"][i]))
        assert frame["n_high"][i] == pytest.approx(max(whole.high, frame["n"][i]))
    assert set(frame["n_basis"]) == {"the law of the noise"}


STATEMENTS = {
    "filters": (
        "SELECT SUM(value) FILTER (WHERE sex = 'Male') - 3 * SUM(value) FILTER (WHERE age < 25)"
        " AS d FROM age_sex",
        lambda f: (f.sex == "Male") * 1.0 - 3.0 * (f.age < 25),
    ),
    "case": (
        "SELECT -SUM(CASE WHEN age < 25 THEN value WHEN sex = 'Male' THEN value / 2 END) + 7 AS d"
        " FROM age_sex",
        lambda f: -np.where(f.age < 25, 1.0, np.where(f.sex == "Male", 0.5, 0.0)),
    ),
    "average": (
        "SELECT AVG(value) FILTER (WHERE sex <> 'Female') AS d FROM age_sex",
        lambda f: (f.sex != "Female") / (f.sex != "Female").sum(),
    ),
    "labels": ("SELECT SUM(age * value) / 10 AS d FROM age_sex t", lambda f: f.age / 10.0),
    "levels": (
        "SELECT SUM(value) AS d FROM \"age x sex\" WHERE age_decade = '30s'",
        lambda f: (f.age >= 30) * 1.0,
    ),
    "counted": ("SELECT SUM(value) / COUNT(*) AS d FROM age_sex", lambda f: f.age * 0 + 1 / 60),
    "unbiased": ("SELECT SUM(unbiased) AS d FROM age_sex", lambda f: f.age * 0 + 1.0),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_linear_statements_have_the_error_of_their_combination(release, name):
    text, coefficients = STATEMENTS[name]
    frame = release.sql(text)
    cells = release.answers(group="age x sex")
    c = np.asarray(coefficients(cells), dtype=np.float64)
    whole = release.combine({"age x sex": c})
    offset = 7.0 if name == "case" else 0.0
    number = cells["unbiased" if name == "unbiased" else "value"].to_numpy()
    assert frame["d"][0] == pytest.approx(float(c @ number) + offset)
    assert frame["d_standard_error"][0] == pytest.approx(whole.standard_error)
    assert frame["d_low"][0] == pytest.approx(min(whole.low + offset, frame["d"][0]))
    assert frame["d_high"][0] == pytest.approx(max(whole.high + offset, frame["d"][0]))


def test_subtotals_have_the_errors_of_their_sums(release):
    frame = release.sql("SELECT age, SUM(value) AS n FROM age_sex GROUP BY ROLLUP (age)")
    total = frame[frame["age"].isna()]
    whole = release.combine({"age x sex": np.ones(60)})
    assert total["n_standard_error"].iloc[0] == pytest.approx(whole.standard_error)


def test_rows_by_themselves_have_their_own_errors(release):
    frame = release.sql("SELECT age, 2 * value AS v FROM prefix_age WHERE age >= 38 ORDER BY age")
    errors = release.answers(group="prefix age")["standard_error"].to_numpy()
    assert frame["v_standard_error"].to_numpy() == pytest.approx(2 * errors[-2:])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT SUM(value * value) AS n FROM age_sex", "not linear"),
        ("SELECT MAX(value) AS n FROM age_sex", "MAX is not linear"),
        ("SELECT SUM(value) / SUM(unbiased) AS n FROM age_sex", "not linear"),
        ("SELECT SQRT(SUM(value)) AS n FROM age_sex", "not linear"),
        ("SELECT SUM(low) AS n FROM age_sex", "no law"),
        ("SELECT SUM(DISTINCT value) AS n FROM age_sex", "not linear"),
        ("SELECT SUM(value) AS n FROM age_sex WHERE value > 3", "WHERE chooses"),
        ("SELECT SUM(value) FILTER (WHERE value > 3) AS n FROM age_sex", "FILTER chooses"),
        ("SELECT SUM(CASE WHEN value > 3 THEN value END) AS n FROM age_sex", "not linear"),
        ("SELECT age, SUM(value) AS n FROM age_sex GROUP BY 1 HAVING SUM(value) > 1", "HAVING"),
        ("SELECT age, SUM(value) AS n FROM age_sex GROUP BY 1 ORDER BY n LIMIT 2", "LIMIT"),
        ("SELECT DISTINCT value AS n FROM age_sex", "DISTINCT"),
        ("SELECT SUM(value) OVER () AS n FROM age_sex", "windows"),
        ("SELECT ROUND(value) AS r, SUM(value) AS n FROM age_sex GROUP BY ROUND(value)", "grouped"),
        ("SELECT ROUND(value) AS r, SUM(value) AS n FROM age_sex GROUP BY 1", "grouped"),
        ("SELECT ROUND(value) AS r, SUM(value) AS n FROM age_sex GROUP BY ALL", "grouped"),
        ("SELECT ROUND(value) AS r, SUM(value) AS n FROM age_sex GROUP BY r", "no column"),
        ("SELECT value AS v, value AS n FROM age_sex WHERE v > 3", "no column"),
        ("SELECT value AS n FROM age_sex t WHERE STRUCT_EXTRACT(t, 'value') > 3", "no column"),
        ("SELECT SUM(mean) AS n FROM mean_age", "means and variances"),
        ("SELECT SUM(a.value) AS n FROM age_sex a JOIN prefix_age b USING (age)", "one table"),
        ("SELECT SUM(value) AS n FROM (SELECT value FROM age_sex)", "inside a query"),
        ("WITH t AS (SELECT * FROM age_sex) SELECT SUM(value) AS n FROM t", "inside a query"),
    ],
)
def test_what_is_not_linear_is_answered_without_an_interval_and_says_so(release, text, reason):
    frame = release.sql(text)
    assert "n" in frame
    assert "n_low" not in frame
    assert reason in frame["n_basis"].iloc[0]


def test_columns_that_are_not_named_are_answered_as_they_are(release):
    for text in (
        "SELECT value AS n FROM age_sex WHERE COLUMNS('value') > 3",
        "SELECT value AS n FROM age_sex WHERE #4 > 3",
    ):
        assert release.sql(text).columns.tolist() == ["n"]


def test_labels_may_be_named_anew(release):
    frame = release.sql("SELECT sex AS s, SUM(value) AS n FROM age_sex GROUP BY s ORDER BY n")
    assert "n_low" in frame


def test_all_columns_are_those_of_the_view(release):
    frame = release.sql("SELECT * FROM age_sex")
    assert frame.columns.tolist()[:3] == ["age_decade", "age", "sex"]
    assert not [name for name in frame if name.startswith("__")]
    union = release.sql("SELECT age FROM age_sex UNION SELECT age FROM prefix_age")
    assert len(union) == 20


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT 1 FROM read_csv('secret.csv')", "no released group"),
        ("SELECT 1 FROM 'secret.parquet'", "no released group"),
        ("SELECT 1 FROM secret", "no released group"),
        ("SELECT 1 FROM main.age_sex", "no released group"),
        ("SELECT * FROM duckdb_settings()", "no released group"),
        ("SELECT * FROM agesex", "did you mean 'age_sex'"),
        ("DROP VIEW age_sex", "one SELECT"),
        ("COPY age_sex TO 'out.csv'", "one SELECT"),
        ("ATTACH 'x.db'", "one SELECT"),
        ("SELECT 1 FROM age_sex; SELECT 2", "one SELECT"),
        ("SELECT nothing FROM age_sex", "DuckDB cannot answer"),
        ("SELECT FROM WHERE", "."),
        ("", "as a text"),
    ],
)
def test_what_is_no_statement_over_released_groups_is_refused(release, text, words):
    secret = pd.DataFrame({"a": [1]})  # a variable of the program is no table either
    with pytest.raises(SqlError, match=words):
        release.sql(text)
    assert len(secret) == 1


def test_an_adaptive_release_answers_statements_with_what_was_measured():
    domain = sf.Domain({"age": 6, "sex": 2})
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"age": rng.integers(0, 6, 900), "sex": rng.integers(0, 2, 900)})
    release = sf.plan_adaptive(sf.marginals(domain, 2), BUDGET).release(table)
    frame = release.sql("SELECT sex, SUM(value) AS n FROM age_sex GROUP BY sex ORDER BY sex")
    assert frame["n"].to_numpy() == pytest.approx(release.table("sex"))
    assert frame["n_standard_error"].isna().all()
    assert "noise of the steps" in frame["n_basis"][0]


def test_intervals_of_statements_hold_as_often_as_they_say_and_shorter_ones_do_not():
    # A gap of two groups; 400 draws of the noise. The twin is eight tenths as wide.
    domain = sf.Domain({"a": 4, "b": 2})
    work = sf.prefixes(domain, "a", by=["b"])
    counts = some_counts(domain, rows=500)
    plan = planned(work, "factorization")
    gap = "SUM(CASE WHEN b = 1 THEN value ELSE -value END)"
    text = f"SELECT {gap} AS gap FROM prefix_a_by_b WHERE a = 3"
    truth = counts[:, 1].sum() - counts[:, 0].sum()
    draws, hits, short = 400, 0, 0
    for draw in range(draws):
        made = Release.of(plan, measured(plan, counts, SeededWords(draw)), project=False)
        (row,) = made.sql(text, level=0.9).itertuples()
        half = (row.gap_high - row.gap_low) / 2
        hits += abs(row.gap - truth) <= half
        short += abs(row.gap - truth) <= 0.75 * half
    assert stats.binomtest(hits, draws, 0.9).pvalue > 1e-6
    assert stats.binomtest(short, draws, 0.9).pvalue < 1e-6
