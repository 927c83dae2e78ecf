# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import count

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import sfumato as sf
from sfumato.errors import WorkloadError
from sfumato.release import pooled
from sfumato.release.pooled import PooledMatrix, PooledQueries
from sfumato.release.release import Release
from tests.shared.made_releases import BUDGET, measured, planned, released, some_counts
from tests.shared.words import SeededWords

PURE = sf.Budget(epsilon=1)
DOMAIN = sf.Domain({"age": 6, "sex": 2, "region": 3})
COUNTS = some_counts(DOMAIN, 2000)


def made(work, seed, budget=BUDGET, mechanism=None, **options) -> Release:
    return released(work, COUNTS, mechanism=mechanism, seed=seed, budget=budget, **options)


@pytest.fixture(params=["matrix", "queries"])
def way(request, monkeypatch):
    """Both ways of combining, whatever the size."""
    if request.param == "queries":
        monkeypatch.setattr(pooled, "LIMITS", replace(pooled.LIMITS, pooled_cells=0))
    return {"matrix": PooledMatrix, "queries": PooledQueries}[request.param]


def test_equal_queries_are_averaged_by_inverse_variances(way):
    # v = 1 / (1/v1 + 1/v2), and the average by these weights: the textbook's two instruments.
    work = sf.marginals(DOMAIN, [["age", "sex"]])
    one = made(work, 1, sf.Budget(mu=1), "gaussian", project=False)
    two = made(work, 2, sf.Budget(mu=2), "gaussian", project=False)
    both = sf.combine(one, two, project=False)
    assert isinstance(both.forecast.strategy, way)
    v = [r.answers(group="age x sex")["standard_error"].to_numpy() ** 2 for r in (one, two)]
    a = [r.answers(group="age x sex")["unbiased"].to_numpy() for r in (one, two)]
    frame = both.answers("age", by="sex")
    precision = 1 / v[0] + 1 / v[1]
    assert frame["standard_error"].to_numpy() == pytest.approx(precision**-0.5)
    assert frame["unbiased"].to_numpy() == pytest.approx((a[0] / v[0] + a[1] / v[1]) / precision)


WORKS = (
    sf.marginals(DOMAIN, 2),
    sf.marginals(DOMAIN, [["age"], ["age", "sex"]]) | sf.prefixes(DOMAIN, "age"),
)


@pytest.mark.parametrize("budgets", [(BUDGET, PURE), (sf.Budget(mu=1), sf.Budget(rho=1))])
def test_no_answer_is_worse_than_in_any_of_the_releases(way, budgets):
    parts = [made(w, i, b) for i, (w, b) in enumerate(zip(WORKS, budgets, strict=True))]
    both = sf.combine(*parts)
    assert isinstance(both.forecast.strategy, way)
    assert set(both.groups) == {g for p in parts for g in p.groups}
    for part in parts:
        for group in part.groups:
            old = part.answers(group=group)["standard_error"].to_numpy()
            new = both.answers(group=group)["standard_error"].to_numpy()
            assert (new <= old * (1 + 1e-9)).all()
    shared = both.answers(group="age x sex")["standard_error"]
    assert (shared < 0.95 * parts[0].answers(group="age x sex")["standard_error"]).all()


@pytest.mark.parametrize("budget", [sf.Budget(mu=1), PURE], ids=["gaussian", "pure"])
def test_a_group_is_also_told_by_sums_of_another_release(way, budget):
    """A poor release of one attribute beside a rich one of two: the better is not left out."""
    poor = made(sf.marginals(DOMAIN, [["age"]]), 1, sf.Budget(mu=0.2), "gaussian", project=False)
    rich = made(sf.marginals(DOMAIN, [["age", "sex"]]), 2, budget, project=False)
    both = sf.combine(poor, rich, project=False)
    assert isinstance(both.forecast.strategy, way)
    rolled = rich.answers("age")["standard_error"].to_numpy()
    frame, alone = both.answers(group="age"), poor.answers(group="age")
    errors = frame["standard_error"].to_numpy()
    own = alone["standard_error"].to_numpy()
    assert errors == pytest.approx((rolled**-2.0 + own**-2.0) ** -0.5)
    values = rich.answers("age")["unbiased"].to_numpy() * rolled**-2.0
    values = values + alone["unbiased"].to_numpy() * own**-2.0
    assert frame["unbiased"].to_numpy() == pytest.approx(values * errors**2)
    total = both.combine({"age": [1.0] * 6})
    assert total.standard_error < poor.combine({"age": [1.0] * 6}).standard_error


def test_what_nobody_asked_rolls_up_from_the_release_that_knows_it_best(way):
    """The rich release tells the longest of six pairs, five poor ones are smaller: none is lost."""
    domain = sf.Domain({"a": 3, **dict.fromkeys("bcdef", 2), "g": 10})  # few cells: both ways
    counts = some_counts(domain, 3000)
    pairs = sf.marginals(domain, [["a", n] for n in "bcdefg"])
    longest = sf.marginals(domain, [["a", "g"]])
    poor = released(pairs, counts, seed=1, budget=sf.Budget(mu=0.1), mechanism="gaussian")
    rich = released(longest, counts, seed=2, budget=sf.Budget(mu=2), mechanism="gaussian")
    both = sf.combine(poor, rich)
    assert isinstance(both.forecast.strategy, way)
    errors = [r.answers("a")["standard_error"].to_numpy() for r in (rich, both)]
    assert (errors[1] <= errors[0] * (1 + 1e-9)).all()


def test_errors_are_those_of_the_noise_of_all_blocks(way):
    # Expected: covariances by following every measured value through the reconstruction.
    parts = [made(w, i, b) for i, (w, b) in enumerate(zip(WORKS, (BUDGET, PURE), strict=True))]
    both = sf.combine(*parts)
    strategy, forecast = both.forecast.strategy, both.forecast
    assert isinstance(strategy, way)
    for t in range(len(both.workload.terms)):
        readings = []
        for b, rows in enumerate(strategy.block_rows):
            for j in range(rows):
                unit = [np.zeros(n) for n in strategy.block_rows]
                unit[b][j] = np.sqrt(forecast.block_variances[b])
                readings.append(strategy.answer(t, unit))
        parts_of = np.array(readings).T ** 2
        assert forecast.standard_errors(t) ** 2 == pytest.approx(parts_of.sum(axis=1))
        if strategy.noise == "laplace":
            shape = parts_of.sum(axis=1) ** 2 / (parts_of**2).sum(axis=1)
            assert strategy.effective_terms(t) == pytest.approx(shape)
        c = np.cos(np.arange(len(parts_of)))
        squared = sum(
            float((w**2).sum()) * forecast.block_variances[b]
            for b, w in strategy.adjoint(t, c).items()
        )
        direct = (c @ np.array(readings).T) ** 2
        assert squared == pytest.approx(direct.sum())


def test_without_noise_all_answers_are_exact(way):
    parts = [made(w, None) for w in WORKS]
    exact = sf.combine(*[replace(p, provenance={**p.provenance}) for p in parts], project=False)
    assert isinstance(exact.forecast.strategy, way)
    truth = exact.workload.evaluate(COUNTS)
    assert exact.answers()["unbiased"].to_numpy() == pytest.approx(truth, abs=1e-5)


def test_a_combined_release_is_a_release(tmp_path):
    parts = [made(w, i) for i, w in enumerate(WORKS)]
    both = sf.combine(*parts)
    assert both.answers("sex")["value"].sum() == pytest.approx(both.total)
    assert both.quantiles("age", 0.5).shape[0] == 1
    assert both.sql("SELECT SUM(value) AS n FROM age")["n_basis"][0] == "the law of the noise"
    assert both.cost == parts[0].cost + parts[1].cost
    assert both.budget.epsilon == Fraction(2)
    paths = both.save(tmp_path, csv=True)
    record = json.loads(paths["provenance"].read_text())
    assert record["mechanism"] == "combined"
    assert [part["mechanism"] for part in record["combined"]] == [
        p.provenance["mechanism"] for p in parts
    ]
    assert "combined" in both.report()


def test_means_are_combined_too():
    domain = sf.Domain([sf.Integer("age", 0, 9), sf.Category("sex", ("f", "m"))])
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(0, 10, 500), "sex": rng.choice(["f", "m"], 500)})
    plan = sf.plan(sf.means(domain, "age", by=["sex"]), BUDGET)
    one, two = plan.release(table), plan.release(table)
    both = sf.combine(one, two)
    group = "mean age by sex"
    assert (
        both.answers(group=group)["standard_error"] < one.answers(group=group)["standard_error"]
    ).all()


def test_a_release_is_not_combined_with_itself(tmp_path):
    table = pd.DataFrame({"age": [1, 2, 3] * 50, "sex": [0, 1, 0] * 50, "region": [0, 1, 2] * 50})
    ledger = sf.Ledger.create(tmp_path / "a.ledger", sf.Budget(epsilon=5, delta=1e-6), "people")
    plan = sf.plan(WORKS[0], BUDGET)
    first = plan.release(table, ledger=ledger, name="people")
    again = plan.release(table, ledger=ledger, name="people", project=False)
    assert again.is_stored
    for pair in ((first, first), (first, again)):
        with pytest.raises(WorkloadError, match="share a measurement"):
            sf.combine(*pair)
    fresh = sf.plan(WORKS[1], BUDGET).release(table, ledger=ledger, name="people")
    both = sf.combine(first, fresh)
    with pytest.raises(WorkloadError, match="share a measurement"):
        sf.combine(both, again)
    third = sf.combine(both, made(WORKS[0], 5))
    assert len(third.provenance["combined"]) == 3


def test_what_is_not_of_one_table_is_refused():
    one = made(WORKS[0], 0)
    other = sf.Domain({"age": 7, "sex": 2, "region": 3})
    cases = [
        (released(sf.marginals(other, 2), some_counts(other)), "different domains"),
        (made(WORKS[0], 1, neighbours="replace-one"), "different neighbours"),
        (None, "two releases or more"),
    ]
    for two, words in cases:
        with pytest.raises(WorkloadError, match=words):
            sf.combine(one, two)
    with pytest.raises(WorkloadError, match="two releases or more"):
        sf.combine(one)
    table = pd.DataFrame({"age": [1, 2] * 99, "sex": [0, 1] * 99, "region": [0, 1] * 99})
    with pytest.raises(WorkloadError, match="adaptive"):
        sf.combine(one, sf.plan_adaptive(WORKS[0], BUDGET).release(table))


@pytest.mark.parametrize("budgets", [(sf.Budget(mu=1), sf.Budget(mu=2)), (PURE, sf.Budget(mu=1))])
def test_intervals_hold_and_those_of_one_release_taken_for_three_do_not(budgets, monkeypatch):
    # 300 draws, one answer of each: answers of one release share noise. The twin takes one release
    # for three independent ones, so that its intervals are shorter by the root of three.
    level, draws = 0.9, 300
    work = sf.marginals(DOMAIN, [["age", "sex"]])
    plans = [planned(work, budget=b) for b in budgets]
    truth = COUNTS.sum(axis=2).reshape(-1)
    cell = 3
    hits, twins, names = 0, 0, count()
    for draw in range(draws):
        words = [SeededWords(f"{draw} {i}") for i in range(2)]
        one, two = (
            Release.of(p, measured(p, COUNTS, w), project=False)
            for p, w in zip(plans, words, strict=True)
        )
        row = sf.combine(one, two, project=False).answers("age", by="sex", level=level).iloc[cell]
        hits += row["low"] <= truth[cell] <= row["high"]
        with monkeypatch.context() as patched:
            patched.setattr(pooled, "_named", lambda _: [{"measurement_sha256": next(names)}])
            patched.setattr(Release, "of", _of_unnamed(Release.of))
            twice = sf.combine(one, one, one, project=False)
        row = twice.answers("age", by="sex", level=level).iloc[cell]
        twins += row["low"] <= truth[cell] <= row["high"]
    assert stats.binomtest(hits, draws, level).pvalue > 1e-6
    assert stats.binomtest(twins, draws, level).pvalue < 1e-3


def _of_unnamed(of):
    """Without a record of what was combined: its names are no JSON in the twin."""
    return lambda *args, **options: of(*args, **{**options, "provenance": None})
