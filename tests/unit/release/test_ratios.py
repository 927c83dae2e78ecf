# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.attributes import Integer
from sfumato.domain.domain import Domain
from sfumato.refine.reconstruct import reconstruct
from sfumato.release.linear_estimates import LinearEstimates
from sfumato.release.ratios import _quotients, means_of, quotient_range
from tests.shared.made_releases import measured, people, planned, released, some_counts
from tests.shared.words import SeededWords

AGES = np.arange(20, 30)


@pytest.fixture(scope="module")
def domain():
    return people()


@pytest.fixture(scope="module")
def counts(domain):
    return some_counts(domain)


def test_a_mean_is_the_sum_over_the_count_with_its_interval(domain, counts):
    release = released(sf.means(domain, "age", by=["sex"]), counts, seed=None)
    frame = release.answers(group="mean age by sex")
    assert list(frame.columns) == ["sex", "sum", "count", "mean", "standard_error", "low", "high"]
    by_sex = counts.sum(axis=2)
    truth = (AGES[:, None] * by_sex).sum(axis=0) / by_sex.sum(axis=0)
    assert frame["mean"].to_numpy() == pytest.approx(truth)
    assert (frame["low"] < truth).all()
    assert (truth < frame["high"]).all()


def test_a_mean_is_found_by_its_attributes_and_is_in_the_long_frame(domain, counts):
    work = sf.means(domain, "age", by=["sex"]) | sf.marginals(domain, [["age", "income"]])
    release = released(work, counts)
    assert release.groups[-1] == "mean age by sex"
    assert "mean" in release.answers("age", by="sex").columns
    long = release.answers()
    means = long[long["group"] == "mean age by sex"]
    assert means["query"].tolist() == ["sex = Female", "sex = Male", "sex = (missing)"]
    assert means["unbiased"].isna().all()
    assert means["value"].tolist() == release.answers("age", by="sex")["mean"].tolist()


def test_a_table_over_the_same_attributes_comes_before_the_mean(domain, counts):
    work = sf.means(domain, "age", by=["sex"]) | sf.marginals(domain, [["age", "sex"]])
    assert "value" in released(work, counts).answers("age", by="sex").columns


def test_a_mean_of_nobody_is_unknown_within_the_range_of_the_numbers(domain):
    nobody = np.zeros(domain.shape, dtype=np.int64)
    frame = released(sf.means(domain, "age"), nobody, seed=1).answers(group="mean age")
    assert len(frame) == 1
    row = frame.iloc[0]
    assert 20 <= row["low"] <= row["high"] <= 29
    if row["count"] == 0:
        assert np.isnan(row["mean"])


def test_the_range_of_a_mean_leaves_out_cells_without_a_number():
    domain = Domain([Integer("age", 20, 29, nulls="missing", outside="other")])
    total, number = sf.means(domain, "age").terms
    low, high = quotient_range(total, number)
    assert (low.tolist(), high.tolist()) == ([20.0], [29.0])


def test_a_quotient_of_unlike_queries_has_no_known_range(domain):
    (ages,) = sf.marginals(domain, [["age"]]).terms
    (sexes,) = sf.product(domain, {"sex": [[1, 0, 0]] * 10}).terms
    low, high = quotient_range(ages, sexes)
    assert np.isneginf(low).all()
    assert np.isposinf(high).all()


def test_explicit_queries_bound_their_quotient_row_by_row(domain):
    (n,) = sf.explicit(domain, ["sex"], [[2, 6, 0], [1, 1, 1]]).terms
    (d,) = sf.explicit(domain, ["sex"], [[1, 2, 0], [1, 1, 0]]).terms
    low, high = quotient_range(n, d)
    assert low.tolist() == [2.0, -np.inf]  # the second row counts above where it does not below
    assert high.tolist() == [3.0, np.inf]


def test_quotients_over_a_box_reach_exactly_its_extremes():
    """Against a fine grid of the box, for boxes on all sides of zero."""
    (count,) = sf.marginals(Domain({"a": 1}), 0).terms
    for a, b in [(2, 6), (-6, -2), (-3, 5), (0, 4), (-4, 0)]:
        for c, d in [(1, 2), (0.5, 8)]:
            low, high = _quotients(
                (np.array([a]), np.array([b])), (np.array([c]), np.array([d])), count
            )
            x, y = np.meshgrid(np.linspace(a, b, 301), np.linspace(c, d, 301))
            assert low[0] == pytest.approx((x / y).min())
            assert high[0] == pytest.approx((x / y).max())


def test_quotients_with_a_count_near_zero_are_unbounded_on_the_open_side():
    (count,) = sf.marginals(Domain({"a": 1}), 0).terms
    above = np.array([1.0, -2.0, -2.0, 0.0]), np.array([3.0, -1.0, 5.0, 0.0])
    low, high = _quotients(above, (np.zeros(4), np.full(4, 4.0)), count)
    assert low.tolist() == [0.25, -np.inf, -np.inf, 0.0]
    assert high.tolist() == [np.inf, -0.25, np.inf, 0.0]
    low, high = _quotients(above, (np.zeros(4), np.zeros(4)), count)
    assert np.isneginf(low).all()
    assert np.isposinf(high).all()


def test_the_standard_error_of_a_mean_is_that_of_repeated_releases(domain):
    """Sum and count carry independent noise under this mechanism: the delta method is sharp."""
    counts = some_counts(domain, rows=200_000)
    forecast = planned(sf.means(domain, "age"), "gaussian-groups")
    (ratio,) = forecast.workload.ratios
    words = SeededWords("mean")
    found = []
    for _ in range(400):
        seen = measured(forecast, counts, words)
        estimates = LinearEstimates(forecast, reconstruct(forecast, seen), None, True)
        found.append(means_of(estimates, ratio, 0.95))
    spread = np.std([f.value[0] for f in found])
    # The standard deviation of 400 draws is known to 3.6%: five of those.
    assert spread == pytest.approx(found[0].standard_error[0], rel=0.18)


def test_sum_and_count_of_one_table_are_correlated_and_the_standard_error_knows_it(domain):
    counts = some_counts(domain, rows=200_000)
    work = sf.means(domain, "age", by=["sex"])
    table = released(work, counts, "gaussian-table", seed=1)  # both from one noisy table
    frame = table.answers(group="mean age by sex")
    (noise,) = table.forecast.block_variances
    wanted = [np.sqrt(noise * ((AGES - m) ** 2).sum()) for m in frame["mean"]]
    assert frame["standard_error"].to_numpy() == pytest.approx(wanted / frame["count"].to_numpy())


def test_sql_averages_come_with_their_interval(domain, counts):
    work = sf.sql(
        domain, "SELECT sex, AVG(age) AS mean_age FROM t WHERE income < 50.5 GROUP BY sex"
    )
    frame = released(work, counts, seed=None).answers(group="mean_age")
    part = counts[:, :, :2].sum(axis=2)
    truth = (AGES[:, None] * part).sum(axis=0) / part.sum(axis=0)
    assert frame["mean"].to_numpy() == pytest.approx(truth)


def test_means_of_one_name_get_names_of_their_own(domain, counts):
    twice = sf.means(domain, "age") | sf.means(domain, "age")
    release = released(twice, counts)
    assert release.groups[-2:] == ("mean age", "mean age (2)")
    assert len(release.answers(group="mean age (2)")) == 1
    assert len(release.answers()) == 6
