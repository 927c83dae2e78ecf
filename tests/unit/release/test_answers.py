# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.domain import Domain
from sfumato.errors import SfumatoError, TooLarge, WorkloadError
from sfumato.release.answers import check_rows
from sfumato.release.linear_estimates import half_widths
from tests.shared.made_releases import people, released, some_counts

NUMBERS = ["value", "standard_error", "low", "high", "unbiased"]


@pytest.fixture(scope="module")
def domain():
    return people()


@pytest.fixture(scope="module")
def counts(domain):
    return some_counts(domain)


@pytest.fixture(scope="module")
def release(domain, counts):
    work = sf.marginals(domain, 2) | sf.prefixes(domain, "age", by=["sex"])
    return released(work, counts)


def test_bare_answers_hold_every_query_in_the_order_of_the_workload(domain, counts):
    work = sf.marginals(domain, 2) | sf.prefixes(domain, "age", by=["sex"])
    frame = released(work, counts, seed=None).answers()
    assert list(frame.columns) == ["group", "query", *NUMBERS]
    exact = work.evaluate(counts)
    assert frame["unbiased"].to_numpy() == pytest.approx(exact, abs=1e-6)
    assert (np.abs(frame["value"] - exact) < 0.05 * frame["standard_error"]).all()
    assert frame["group"].drop_duplicates().tolist() == [t.name for t in work.terms]
    assert frame["query"].iloc[0] == "age = 20, sex = Female"


def test_a_group_has_one_labelled_column_per_attribute(release, counts):
    frame = release.answers("sex", by="income")
    assert list(frame.columns) == ["sex", "income", *NUMBERS]
    assert len(frame) == 9
    exact = counts.sum(axis=0).reshape(-1)
    assert (np.abs(frame["unbiased"] - exact) < 8 * frame["standard_error"]).all()
    pd.testing.assert_frame_equal(frame, release.answers(group="sex x income"))
    pd.testing.assert_frame_equal(frame, release.answers(["income", "sex"]))


def test_groups_over_the_same_attributes_are_told_apart_by_a_column(release):
    frame = release.answers("age", by="sex")
    assert list(frame.columns) == ["group", "age", "sex", *NUMBERS]
    assert frame["group"].value_counts().to_dict() == {"age x sex": 30, "prefix age by sex": 30}


def test_groups_with_other_columns_are_listed_instead_of_mixed(domain, counts):
    both = released(sf.marginals(domain, [["age"]]) | sf.ranges(domain, "age"), counts)
    with pytest.raises(WorkloadError, match=r"different columns; choose.*'age', 'ranges age'"):
        both.answers("age")


def test_what_was_not_asked_is_refused_with_the_groups_that_were(release):
    with pytest.raises(WorkloadError, match=r"attributes 'age', 'sex', 'income'.*'age x sex'"):
        release.answers("age", by=["sex", "income"])
    with pytest.raises(WorkloadError, match="did you mean 'age x sex'"):
        release.answers(group="age x sexe")
    with pytest.raises(WorkloadError, match=r"unknown attribute 'agee'; .*did you mean 'age'"):
        release.answers("agee")
    with pytest.raises(WorkloadError, match="either group= or attributes"):
        release.answers("age", group="age x sex")


@pytest.mark.parametrize("level", [0, 1, 1.5, -0.1, float("nan"), True])
def test_a_level_outside_zero_and_one_is_refused(release, level):
    for ask in (release.answers, lambda level: release.quantiles("age", 0.5, level=level)):
        with pytest.raises(SfumatoError, match="strictly between 0 and 1"):
            ask(level=level)


def test_intervals_are_the_whole_numbers_within_the_forecast_width(release):
    frame = release.answers(group="age x sex", level=0.9)
    half = release.forecast.half_widths(0, 0.9)
    low = np.ceil(np.maximum(frame["unbiased"] - half, 0))
    high = np.floor(np.maximum(frame["unbiased"] + half, 0))
    assert (frame["low"] == np.minimum(low, frame["value"])).all()
    assert (frame["high"] == np.maximum(high, frame["value"])).all()


@pytest.mark.parametrize("project", [True, "bounds"])
def test_answers_and_intervals_are_cut_to_what_is_feasible(domain, project):
    nobody = np.zeros(domain.shape, dtype=np.int64)
    frame = released(sf.marginals(domain, 2), nobody, project=project).answers()
    assert (frame["unbiased"] < 0).any()
    assert (frame[["value", "low", "high"]] >= 0).all().all()
    assert (frame["low"] <= frame["value"]).all()
    assert (frame["value"] <= frame["high"]).all()


def test_intervals_of_a_higher_level_enclose_those_of_a_lower_one(release):
    levels = [release.answers(level=level) for level in (0.01, 0.2, 0.5, 0.9, 0.99)]
    for lower, higher in pairwise(levels):
        assert (higher["low"] <= lower["low"]).all()
        assert (lower["high"] <= higher["high"]).all()


def test_a_public_number_of_records_bounds_answers_from_above(domain):
    few = np.zeros(domain.shape, dtype=np.int64)
    few[0, 0, 0] = 3
    work = sf.marginals(domain, 1) | sf.marginals(domain, 0)
    frame = released(work, few, neighbours="replace-one").answers()
    assert (frame["unbiased"] > 3).any()
    assert frame["high"].max() == 3
    total = frame.iloc[-1]
    assert (total["low"], total["value"], total["high"]) == (3, 3, 3)


def test_without_projection_nothing_is_cut(domain):
    nobody = np.zeros(domain.shape, dtype=np.int64)
    frame = released(sf.marginals(domain, 2), nobody, project=False).answers()
    assert frame["value"].equals(frame["unbiased"])
    assert frame["low"].min() < 0
    middle = (frame["low"] + frame["high"]) / 2
    assert middle.to_numpy() == pytest.approx(frame["unbiased"].to_numpy())


def test_a_million_answers_are_framed_at_once():
    domain = Domain({"minute": 20_000, "kind": 50})
    nobody = np.zeros((20_000, 50), dtype=np.int64)
    release = released(
        sf.prefixes(domain, "minute", by=["kind"]), nobody, "gaussian", project="bounds"
    )
    frame = release.answers(group="prefix minute by kind")
    assert len(frame) == 1_000_000
    assert frame["minute"].iloc[-1] == 19_999
    assert release.answers()["query"].iloc[-1] == "minute <= 19999, kind = 49"


def test_answers_that_were_paid_for_are_shown_when_their_exact_tails_do_not_fit(
    release, monkeypatch
):
    exact = release.forecast.half_widths(0, 0.95)

    def refuse(*_):
        raise TooLarge("too many")

    monkeypatch.setattr(type(release.forecast), "half_widths", refuse)
    wider = half_widths(release.forecast, 0, 0.95)
    assert (exact <= wider).all()
    assert (wider < 1.1 * exact).all()


def test_a_frame_beyond_memory_is_refused_before_it_is_built():
    check_rows(2 * 10**7)
    with pytest.raises(TooLarge, match=r"20,000,001 rows, at most 20,000,000.*to_parquet"):
        check_rows(2 * 10**7 + 1)


def test_the_summary_names_budget_mechanism_and_groups(release):
    text = repr(release)
    assert text.splitlines()[0] == "Release of 99 answers in 4 groups"
    assert "epsilon = 1, delta = 1e-9 (add-remove)" in text
    assert release.forecast.mechanism in text
    assert "prefix age by sex: 30 answers, rmse" in text
    assert release.groups == ("age x sex", "age x income", "sex x income", "prefix age by sex")


def test_the_summary_of_many_groups_stays_short():
    domain = Domain({f"a{i}": 2 for i in range(8)})
    release = released(sf.marginals(domain, 2), np.zeros(domain.shape, int))
    assert "... and 16 more groups" in repr(release)
    assert len(repr(release).splitlines()) < 20
    assert "and 16 more groups" in release._repr_html_()


def test_the_notebook_summary_escapes_names():
    domain = Domain({"<b>&": 2, "c": 2})
    page = released(sf.marginals(domain, 1), np.zeros((2, 2), int))._repr_html_()
    assert "<b>&<" not in page
    assert "&lt;b&gt;&amp;" in page


def test_shares_are_answers_over_the_public_number_of_records():
    work = sf.marginals(sf.Domain({"age": 4}, records="all-inside"), 1)
    plan = sf.plan(work, sf.Budget(mu=1), "replace-one")
    table = pd.DataFrame({"age": [0, 1, 1, 9, None]})
    release = plan.release(table)
    counts, shares = release.answers(), release.answers(shares=True)
    numbers = ["value", "standard_error", "low", "high", "unbiased"]
    assert (shares[numbers] * 5).to_numpy() == pytest.approx(counts[numbers].to_numpy())
    assert shares["value"].sum() == pytest.approx(1)
    ranges = release.ranges("age", [(1, 2)], shares=True)
    assert 5 * ranges["value"][0] == pytest.approx(release.ranges("age", [(1, 2)])["value"][0])
    ahead = plan.as_shares(5)
    assert ahead.rmse == pytest.approx(plan.rmse / 5)
    assert ahead.error_bound(0.05) == pytest.approx(plan.error_bound(0.05) / 5)
    assert (ahead.move, "2/n = 0.4" in str(ahead)) == (Fraction(2, 5), True)


def test_shares_of_a_private_number_of_records_are_refused():
    domain = sf.Domain({"age": 4})
    for neighbours in ("add-remove", "replace-one"):  # with these a record may be dropped
        plan = sf.plan(sf.marginals(domain, 1), sf.Budget(mu=1), neighbours)
        with pytest.raises(sf.PlanError, match="all-inside"):
            plan.as_shares(5)
        release = plan.release(pd.DataFrame({"age": [0, 1, 1, 2, 3]}))
        with pytest.raises(sf.WorkloadError, match="all-inside"):
            release.answers(shares=True)
    public = sf.plan(
        sf.marginals(sf.Domain(domain, "all-inside"), 1), sf.Budget(mu=1), "replace-one"
    )
    with pytest.raises(sf.PlanError, match="1 or more"):
        public.as_shares(0)


def test_a_plan_for_shares_says_its_errors_in_both_units_and_is_the_same_release():
    domain = sf.Domain({"age": 8}, records="all-inside")
    work = sf.prefixes(domain, "age")
    counts = sf.plan(work, sf.Budget(mu=1), "replace-one")
    shares = sf.plan(work, sf.Budget(mu=1), "replace-one", records=200, shares=True)
    assert shares.rmse == counts.rmse
    assert shares.digest() == counts.digest()
    assert shares.shares.rmse == pytest.approx(counts.rmse / 200)
    assert (shares.shares.move, shares.shares.records) == (Fraction(1, 100), 200)
    assert "2/n = 0.01" in repr(shares)
    assert "2/n = 0.01" in shares._repr_html_()
    assert "2/n" not in repr(counts)
    with pytest.raises(sf.PlanError, match="in counts"):
        counts.shares  # noqa: B018
    # The notes' alpha: an error in shares to reach.
    small = sf.plan(work, error=0.01, neighbours="replace-one", records=200, shares=True)
    assert small.shares.rmse == pytest.approx(0.01, rel=0.01)
    assert small.rmse == pytest.approx(2, rel=0.01)
    with pytest.raises(sf.PlanError, match="say records"):
        sf.plan(work, sf.Budget(mu=1), "replace-one", shares=True)
    with pytest.raises(sf.PlanError, match="all-inside"):
        sf.plan(work, sf.Budget(mu=1), "add-remove", records=200, shares=True)


@pytest.fixture(scope="module")
def with_means():
    """A release whose number of records is public, with an attribute called like a column."""
    domain = sf.Domain({"share": 4, "sex": 2}, records="all-inside")
    work = sf.marginals(domain, 2) | sf.means(domain, "share", by=["sex"])
    table = pd.DataFrame({"share": [0, 1, 2, 3, 3] * 40, "sex": [0, 1] * 100})
    return sf.plan(work, sf.Budget(mu=1), "replace-one").release(table)


def test_a_mean_is_the_ratio_of_two_shares_and_stays_what_it_is(with_means):
    name = with_means.groups[-1]
    counts, shares = with_means.answers(group=name), with_means.answers(group=name, shares=True)
    assert (200 * shares[["sum", "count"]]).to_numpy() == pytest.approx(
        counts[["sum", "count"]].to_numpy()
    )
    same = ["mean", "standard_error", "low", "high"]
    pd.testing.assert_frame_equal(shares[same], counts[same])
    long, long_shares = with_means.answers(), with_means.answers(shares=True)
    is_mean = long["group"] == name
    pd.testing.assert_frame_equal(long[is_mean], long_shares[is_mean])
    assert (200 * long_shares["value"][~is_mean]).to_numpy() == pytest.approx(
        long["value"][~is_mean].to_numpy()
    )


def test_a_combination_of_shares_is_the_share_of_the_combination(with_means):
    chosen = {"share x sex": {0: 1.0, 3: -1.0}}
    counts, shares = with_means.combine(chosen), with_means.combine(chosen, shares=True)
    for name in ("value", "standard_error", "low", "high"):
        assert 200 * getattr(shares, name) == pytest.approx(getattr(counts, name))
    assert shares.basis == counts.basis
