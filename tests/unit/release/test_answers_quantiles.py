# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.attributes import Category, DateTime, Integer, Level, Numeric
from sfumato.domain.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.refine.reconstruct import reconstruct
from sfumato.release.linear_estimates import LinearEstimates, best_source
from sfumato.release.release import Release
from sfumato.release.release_limits import LIMITS
from sfumato.strategy.base import Strategy
from sfumato.workload.queries import Identity, Prefix
from sfumato.workload.terms import Product
from tests.shared.made_releases import measured, people, planned, released, some_counts
from tests.shared.words import SeededWords

QUARTILES = [0.25, 0.5, 0.75]


@pytest.fixture(scope="module")
def domain():
    return people()


@pytest.fixture(scope="module")
def counts(domain):
    return some_counts(domain)


def true_quantile(table: np.ndarray, p: float) -> int:
    """The least cell with a share of at least p at or below it."""
    return int(np.argmax(np.cumsum(table) >= p * table.sum()))


def test_quantiles_of_a_noiseless_cdf_are_the_true_ones(domain, counts):
    release = released(sf.prefixes(domain, "age", by=["sex"]), counts, seed=None)
    frame = release.quantiles("age", QUARTILES, by="sex")
    assert list(frame.columns) == ["sex", "probability", "value", "low", "high"]
    by_sex = counts.sum(axis=2)
    truth = [20 + true_quantile(by_sex[:, s], p) for s in range(3) for p in QUARTILES]
    assert frame["value"].tolist() == truth
    assert frame["sex"].tolist()[::3] == ["Female", "Male", "(missing)"]
    assert (frame["low"] <= truth).all()
    assert (truth <= frame["high"]).all()


@pytest.mark.parametrize("mechanism", ["gaussian-table", "laplace-table", "gaussian", "laplace"])
def test_a_table_gives_quantiles_when_no_cdf_was_asked(domain, counts, mechanism):
    release = released(sf.marginals(domain, [("age", "sex")]), counts, mechanism, seed=None)
    frame = release.quantiles("age", QUARTILES)
    ages = counts.sum(axis=(1, 2))
    assert frame["value"].tolist() == [20 + true_quantile(ages, p) for p in QUARTILES]
    assert len(release.quantiles("age", 0.5, by=["sex"])) == 3


def test_a_measured_tree_answers_quantiles_over_fewer_attributes(domain, counts):
    """The CDF by sex was asked; the CDF of all is another query to the same tree."""
    release = released(sf.prefixes(domain, "age", by=["sex"]), counts, "gaussian-tree", seed=None)
    ages = counts.sum(axis=(1, 2))
    wanted = [20 + true_quantile(ages, p) for p in QUARTILES]
    assert release.quantiles("age", QUARTILES)["value"].tolist() == wanted


@dataclass(frozen=True, eq=False)
class Opaque(Strategy):
    """A strategy of which no more is known than every strategy must tell."""

    inner: Strategy

    def answer(self, term, values):
        return self.inner.answer(term, values)

    def variances(self, term, block_variances):
        return self.inner.variances(term, block_variances)

    def total_variance(self, term, block_variances):
        return self.inner.total_variance(term, block_variances)

    def maximum_variance(self, term, block_variances):
        return self.inner.maximum_variance(term, block_variances)

    def effective_terms(self, term):
        return self.inner.effective_terms(term)


@pytest.mark.parametrize("mechanism", ["gaussian-table", "laplace-table"])
def test_errors_followed_through_any_strategy_are_those_it_would_state(domain, counts, mechanism):
    """Every measured value is taken through the reconstruction, of which nothing else is known."""
    known, blind = known_and_opaque(domain, counts, mechanism)
    asked = Product(domain, "cdf", 1.0, (("age", Prefix(10)), ("sex", Identity(3))))
    a = best_source(known.estimates, known.estimates.measured, asked)
    b = best_source(blind.estimates, blind.estimates.measured, asked)
    np.testing.assert_allclose(a.unbiased, b.unbiased, rtol=1e-9)
    np.testing.assert_allclose(a.half_width(0.9), b.half_width(0.9), rtol=1e-9)
    assert a.rmse == pytest.approx(b.rmse)


@pytest.mark.parametrize("mechanism", ["gaussian-table", "laplace-table"])
def test_too_many_values_to_follow_give_wider_intervals(domain, counts, mechanism, monkeypatch):
    monkeypatch.setattr(
        "sfumato.release.linear_estimates.LIMITS", replace(LIMITS, followed_values=10)
    )
    known, blind = known_and_opaque(domain, counts, mechanism)
    a, b = known.quantiles("age", QUARTILES), blind.quantiles("age", QUARTILES)
    assert (b["low"] <= a["low"]).all()
    assert (a["high"] <= b["high"]).all()


def known_and_opaque(domain, counts, mechanism) -> tuple[Release, Release]:
    known = released(sf.marginals(domain, [("age", "sex")]), counts, mechanism, seed=5)
    s = known.forecast.strategy
    opaque = replace(known.forecast, strategy=Opaque(s.mechanism, s.noise, s.workload, s.blocks, s))
    estimates = LinearEstimates(
        opaque, known.estimates.unbiased, None, True, measured=known.estimates.measured
    )
    return known, replace(known, estimates=estimates)


def test_an_optimal_factorization_is_asked_for_further_queries(domain, counts):
    """Running totals that were not asked follow from its tables, with errors as they turn out."""
    forecast = planned(sf.marginals(domain, 2), "factorization")
    factors = (("age", Prefix(10)), ("income", Identity(3)))
    asked = Product(domain, "running totals", 1.0, factors)
    truth = asked.answer(counts.sum(axis=1))
    words, errors = SeededWords("further"), []
    for _ in range(300):
        seen = measured(forecast, counts, words)
        answers = reconstruct(forecast, seen)[1]  # age by income
        errors.append(asked.answer(answers.reshape(10, 3)) - truth)
    source = best_source(
        LinearEstimates(forecast, reconstruct(forecast, seen), None, True), seen, asked
    )
    np.testing.assert_allclose(source.unbiased, errors[-1] + truth, rtol=1e-9)
    # 300 x 30 squared errors, of which about 3 x 300 are independent: five standard deviations.
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(source.rmse, rel=0.12)
    misses = (np.abs(errors) > source.half_width(0.5)).mean()
    assert misses == pytest.approx(0.5, abs=0.1)


def test_queries_that_the_measured_classes_cannot_tell_apart_are_not_answered():
    level = Level("half", ("young", "old"), (0,) * 5 + (1,) * 5)
    domain = Domain([Integer("age", 20, 29, levels=(level,)), Category("sex", ("F", "M"))])
    work = sf.product(domain, {"age": "groups(half)", "sex": "identity"})
    release = released(work, some_counts(domain), "factorization")
    with pytest.raises(WorkloadError, match="no released group gives the running totals"):
        release.quantiles("age", 0.5, by="sex")


def test_cells_for_other_and_missing_values_are_not_part_of_the_order():
    domain = Domain([Integer("age", 20, 29, outside="other", nulls="missing")])
    counts = np.array([10] * 10 + [10_000, 10_000])
    frame = released(sf.prefixes(domain, "age"), counts, seed=None).quantiles("age", [0.05, 0.95])
    assert frame["value"].tolist() == [20, 29]


def test_a_public_total_gives_no_wider_intervals(domain, counts):
    domain = Domain([Integer("age", 20, 29)])
    ages = counts.sum(axis=(1, 2))
    work = sf.prefixes(domain, "age")
    public = released(work, ages, "gaussian", seed=3, neighbours="replace-one")
    unbiased, seen = public.estimates.unbiased, replace(public.estimates.measured, rows=None)
    estimates = LinearEstimates(public.forecast, unbiased, None, True, measured=seen)
    hidden = replace(public, estimates=estimates)
    a, b = public.quantiles("age", QUARTILES), hidden.quantiles("age", QUARTILES)
    assert (a["high"] - a["low"] <= b["high"] - b["low"]).all()


def test_values_lie_inside_their_bin_and_ends_are_edges():
    domain = Domain([Numeric("income", (0, 10, 50, 100))])
    counts = np.array([1000, 2000, 1000])
    frame = released(sf.prefixes(domain, "income"), counts, seed=None).quantiles(
        "income", [0.125, 0.5, 0.75, 1 - 1e-9]
    )
    # Linear inside the bin: half of the first, half of the second, all of the second, the end.
    assert frame["value"].tolist() == pytest.approx([5.0, 30.0, 50.0, 100.0], abs=1e-3)
    assert frame["low"].isin([0, 10, 50]).all()
    assert frame["high"].isin([10, 50, 100]).all()


def test_wide_integer_bins_give_whole_numbers_inside_the_bin():
    domain = Domain([Integer("age", 0, 24, 10)])
    release = released(sf.prefixes(domain, "age"), np.array([4000, 4000, 4000]), seed=None)
    row = release.quantiles("age", 0.5).iloc[0]
    assert (row["value"], row["low"], row["high"]) == (14, 10, 19)


@pytest.mark.parametrize(
    ("step", "end", "value", "high"),
    [
        ("month", datetime(2024, 4, 1), "2024-02-15", "2024-02-29"),
        ("hour", datetime(2024, 1, 1, 3), "2024-01-01 01:30", "2024-01-01 02:00"),
    ],
)
def test_dates_and_times_come_back_as_such(step, end, value, high):
    domain = Domain([DateTime("seen", datetime(2024, 1, 1), end, step)])
    release = released(sf.prefixes(domain, "seen"), np.array([4000, 4000, 4000]), seed=None)
    row = release.quantiles("seen", 0.5).iloc[0]
    assert row["value"] == pd.Timestamp(value)
    assert row["high"] == pd.Timestamp(high)


def test_quantiles_of_nobody_are_unknown_over_the_whole_range(domain):
    nobody = np.zeros(domain.shape, dtype=np.int64)
    release = released(sf.prefixes(domain, "age"), nobody, seed=None)
    row = release.quantiles("age", 0.5).iloc[0]
    assert pd.isna(row["value"])
    assert (row["low"], row["high"]) == (20, 29)


def test_quantiles_that_cannot_be_had_are_refused_with_what_can(domain, counts):
    release = released(sf.marginals(domain, [("age", "sex")]), counts)
    with pytest.raises(WorkloadError, match=r"'age' by 'income'; groups that hold.*'age x sex'"):
        release.quantiles("age", 0.5, by="income")
    with pytest.raises(WorkloadError, match="'sex' is a category and has no order"):
        release.quantiles("sex", 0.5)
    with pytest.raises(WorkloadError, match="both the attribute and in by"):
        release.quantiles("age", 0.5, by="age")
    for wrong in ([], [0.0], [1.0], [0.5, float("nan")]):
        with pytest.raises(WorkloadError, match="strictly between 0 and 1"):
            release.quantiles("age", wrong)


def test_the_order_of_by_is_the_askers():
    domain = Domain([Category("b", ("x", "y")), Category("c", ("u", "v")), Integer("a", 0, 9)])
    work = sf.prefixes(domain, "a", by=["b", "c"])
    release = released(work, some_counts(domain), seed=None)
    frame = release.quantiles("a", 0.5, by=["c", "b"])
    assert list(frame.columns[:2]) == ["c", "b"]
    assert frame[["c", "b"]].to_numpy().tolist() == [["u", "x"], ["v", "x"], ["u", "y"], ["v", "y"]]
