# SPDX-License-Identifier: Apache-2.0
"""Variances, covariances and arithmetic in SQL: as DuckDB computes them on the clamped table."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pytest

import sfumato as sf

DOMAIN = sf.Domain(
    [
        sf.Numeric("x", (0, 50, 100), outside="clamp", nulls="missing"),
        sf.Numeric("y", (-2, 2), outside="clamp", nulls="missing"),
        sf.Integer("k", 0, 9, nulls="missing"),
        sf.Category("c", ("a", "b")),
    ]
)
TEXTS = [
    "VARIANCE(x)",
    "VAR_POP(k)",
    "STDDEV(x)",
    "STDDEV_POP(y)",
    "COVAR_SAMP(x, y)",
    "COVAR_POP(x, k)",
    "CORR(x, k)",
    "SUM(x * 2 + 1)",
    "SUM(x * y)",
    "SUM(x + k)",
    "SUM(x * x - 3 * x)",
    "AVG(x / 2 - 1)",
    "AVG(x * k)",
    "SUM(-(x - 50) * y / 4)",
    "VAR_POP(x) FILTER (WHERE k >= 5)",
]


def people() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    k = rng.integers(0, 10, 3000).astype(float)
    k[::50] = np.nan
    x = np.clip(20 + 6 * np.nan_to_num(k) + rng.normal(0, 15, 3000), 0, 100)
    y = np.clip(rng.normal(0, 1, 3000) + (x - 50) / 50, -2, 2)
    return pd.DataFrame({"x": x, "y": y, "k": k, "c": rng.choice(["a", "b"], 3000)})


@pytest.mark.parametrize("aggregate", TEXTS)
def test_answers_are_those_of_an_engine(aggregate):
    table = people()
    text = f"SELECT c, {aggregate} AS v FROM t GROUP BY c"
    release = sf.plan(sf.sql(DOMAIN, text), sf.Budget(mu=1000)).release(table, project=False)
    with duckdb.connect() as engine:
        # Text columns of dataframes with null are floats: nan is null for SQL.
        engine.register("t", table.astype(object).where(table.notna(), None).astype({"c": str}))
        casts = ", ".join(f"CAST({n} AS DOUBLE) AS {n}" for n in ("x", "y", "k"))
        sums = f"SELECT c, {aggregate} AS v FROM (SELECT c, {casts} FROM t) GROUP BY c ORDER BY c"
        wanted = [row[1] for row in engine.execute(sums).fetchall()]
    rows = release.answers(group="v")
    column = next(n for n in (*STATISTICS, "mean", "value") if n in rows)
    scale = np.abs(wanted).max()
    assert rows[column].to_numpy() == pytest.approx(wanted, abs=0.01 * scale)
    assert (rows["low"] <= np.array(wanted) + 1e-9 * scale).mean() >= 0.5


STATISTICS = ("variance", "standard_deviation", "covariance", "correlation")


def test_a_statement_with_a_variance_is_a_frame_with_its_column():
    text = "SELECT c, COUNT(*) AS n, VAR_POP(x) AS v, AVG(x) AS m FROM t WHERE k < 8 GROUP BY c"
    work = sf.sql(DOMAIN, text)
    assert [r.name for r in work.ratios] == ["v", "m"]
    assert sf.plan(work, sf.Budget(mu=1)).release(people()).groups[-2:] == ("v", "m")


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        ("SUM(x * y * k)", "more than two columns"),
        ("SUM(x / y)", "divides by what is no constant"),
        ("SUM(POWER(x, 3))", "powers are 1 or 2"),
        ("VARIANCE(c)", "c"),
        ("CORR(x, x)", "two different columns"),
        ("SUM(x * 'a')", "not a number"),
    ],
)
def test_what_is_no_polynomial_of_degree_2_is_refused(aggregate, message):
    with pytest.raises(sf.SfumatoError, match=message):
        sf.sql(DOMAIN, f"SELECT {aggregate} FROM t")


def test_questions_one_by_one_refuse_what_bins_do_not_tell():
    with pytest.raises(sf.SqlError, match="values themselves"):
        sf.sql(DOMAIN, "SELECT VARIANCE(x) FROM t", in_bins=True)
    with pytest.raises(sf.SqlError, match="values themselves"):
        sf.sql(DOMAIN, "SELECT SUM(x * 2) FROM t", in_bins=True)
