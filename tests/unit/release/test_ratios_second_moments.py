# SPDX-License-Identifier: Apache-2.0
"""Variances and the like from released moments: exact without noise, cut to what is possible."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.release.ratios import joint_law

DOMAIN = sf.Domain(
    [
        sf.Numeric("x", (0, 10, 100), outside="clamp", nulls="missing"),
        sf.Integer("k", -5, 4, nulls="missing"),
        sf.Category("c", ("a", "b")),
    ]
)
LARGE = sf.Budget(mu=1000)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    k = rng.integers(-5, 5, 400).astype(float)
    k[::40] = np.nan
    x = 50 + 6 * np.nan_to_num(k) + rng.normal(0, 20, 400)
    return pd.DataFrame({"x": x, "k": k, "c": rng.choice(["a", "b"], 400)})


def both(table: pd.DataFrame, group: str) -> tuple[pd.Series, pd.Series]:
    """The clamped numbers of the records that have both."""
    rows = table[(table["c"] == group) & table["k"].notna()]
    return rows["x"].clip(0, 100), rows["k"]


def test_hardly_any_noise_gives_the_statistics_of_the_clamped_values(table):
    work = sf.moments(DOMAIN, ["x", "k"], by=["c"]) | sf.variances(DOMAIN, "x")
    release = sf.plan(work, LARGE).release(table)
    clamped = table["x"].clip(0, 100)
    (alone,) = release.answers(group="variance x").to_dict("records")
    assert alone["variance"] == pytest.approx(clamped.var(ddof=0), rel=1e-3)
    assert alone["mean"] == pytest.approx(clamped.mean(), rel=1e-3)
    assert alone["count"] == pytest.approx(400, rel=1e-3)
    for i, group in enumerate(("a", "b")):
        x, k = both(table, group)
        wanted = {
            "variance k by c": k.var(ddof=0),
            "covariance x, k by c": np.cov(x, k, ddof=0)[0, 1],
            "correlation x, k by c": np.corrcoef(x, k)[0, 1],
        }
        for name, value in wanted.items():
            row = release.answers(group=name).iloc[i]
            assert row.iloc[-4] == pytest.approx(value, rel=2e-2), name
            assert row["low"] <= value <= row["high"]
            assert row["high"] - row["low"] < 0.1 * abs(value)


def test_one_column_is_asked_with_the_standard_deviation_at_no_further_price(table):
    alone = sf.variances(DOMAIN, "x", by=["c"])
    together = alone | sf.standard_deviations(DOMAIN, "x", by=["c"])
    assert together.normal.key == alone.normal.key
    release = sf.plan(together, LARGE).release(table)
    variance = release.answers(group="variance x by c")
    root = release.answers(group="standard deviation x by c")
    for name in ("low", "high"):
        assert root[name].to_numpy() == pytest.approx(np.sqrt(variance[name].to_numpy()))
    assert root["standard_deviation"].to_numpy() == pytest.approx(np.sqrt(variance["variance"]))


def test_the_joint_law_has_the_variances_of_the_forecast():
    """Also of queries that are measured themselves beside others: one array was once shared."""
    work = sf.variances(DOMAIN, "x") | sf.means(DOMAIN, "k") | sf.marginals(DOMAIN, [("c",)])
    for budget in (sf.Budget(epsilon=1), sf.Budget(mu=1)):
        plan = sf.plan(work, budget)
        release = plan.release(pd.DataFrame({"x": [1.0], "k": [1.0], "c": ["a"]}))
        for statistic in work.ratios:
            law = joint_law(release.estimates, statistic.terms)
            assert law is not None
            for i, term in enumerate(statistic.terms):
                assert law.squares[:, i, i] == pytest.approx(plan.forecast.variances(term))


def test_weights_of_queries_that_are_measured_themselves_are_followed():
    work = sf.variances(DOMAIN, "x")
    first, middle, last = work.terms
    work = sf.Workload(work.domain, (first, middle.weighted(0.3), last), work.ratios)
    plan = sf.plan(work, sf.Budget(epsilon=1))
    release = plan.release(pd.DataFrame({"x": [1.0], "k": [1.0], "c": ["a"]}))
    law = joint_law(release.estimates, (0, 1, 2))
    assert law is not None
    assert np.diagonal(law.squares[0]) == pytest.approx(
        [float(plan.forecast.variances(t)[0]) for t in range(3)]
    )


def test_a_group_without_records_has_the_whole_range_and_never_an_impossible_end(table):
    empty = table.assign(c="a")
    release = sf.plan(sf.variances(DOMAIN, "x", by=["c"]), sf.Budget(epsilon=0.1)).release(empty)
    rows = release.answers("x", by="c")
    assert (rows["low"] >= 0).all()
    assert (rows["high"] <= 2500).all()
    one = rows.iloc[1]
    assert (one["low"], one["high"]) == (0, 2500)


def test_variances_are_in_the_words_and_the_files_of_a_release(table, tmp_path):
    release = sf.plan(sf.variances(DOMAIN, "x", by=["c"]), sf.Budget(mu=1)).release(table)
    assert "variance x by c: variances" in repr(release)
    assert "variance x by c" in release._repr_html_()
    release.save(tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "2 variances" in page
    count = release.answers("x", by="c")["count"].iloc[0]
    assert f"<td>{count:,.3f}</td>" in page
    long = release.answers()
    assert (long["group"] == "variance x by c").sum() == 2


def test_what_learns_from_cells_refuses_variances():
    for work in (sf.variances(DOMAIN, "x"), sf.covariances(DOMAIN, "x", "k")):
        with pytest.raises(sf.WorkloadError, match=r"released with sf\.plan only"):
            sf.plan_adaptive(work, sf.Budget(epsilon=1))


def test_variances_of_a_release_come_from_whatever_tells_them(table):
    """From variances, from standard deviations, and from moments of several columns alike."""
    x = table["x"].clip(0, 100)
    for work in (sf.variances(DOMAIN, "x"), sf.standard_deviations(DOMAIN, "x")):
        (row,) = sf.plan(work, LARGE).release(table).variances("x").to_dict("records")
        assert row["variance"] == pytest.approx(x.var(ddof=0), rel=1e-3)
        assert row["low"] <= x.var(ddof=0) <= row["high"]
    release = sf.plan(sf.moments(DOMAIN, ["x", "k"], by=["c"]), LARGE).release(table)
    frame = release.variances("k", by="c")
    pd.testing.assert_frame_equal(frame, release.answers(group="variance k by c"))
    assert frame["c"].tolist() == ["a", "b"]


def test_a_variance_that_was_not_released_is_refused_with_what_to_plan(table):
    release = sf.plan(sf.variances(DOMAIN, "x"), LARGE).release(table)
    with pytest.raises(sf.WorkloadError, match=r"sf\.variances\(domain, 'x', by=\['c'\]\)"):
        release.variances("x", by="c")
    with pytest.raises(sf.WorkloadError, match="variance of 'k' was not released"):
        release.variances("k")
