# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.attributes import Category, Integer, Level
from sfumato.domain.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.release.answers import Rollup, asked_product, rollups_of
from tests.shared.made_releases import BUDGET, people, released, some_counts

LAPLACE = sf.Budget(epsilon=1)


def leveled() -> Domain:
    decades = Level("decade", ("20s", "30s", "40s"), tuple(i // 10 for i in range(30)))
    halves = Level("half", ("young", "old"), tuple(int(i >= 20) for i in range(30)))
    parts = Level("part", ("north", "south"), (0, 0, 1))
    return Domain(
        [
            Integer("age", 20, 49, levels=(decades, halves)),
            Category("region", ("a", "b", "c"), levels=(parts,), nulls="missing"),
            Category("sex", ("f", "m")),
        ]
    )


def workloads(domain):
    return {
        "table": sf.product(domain, {"age": "identity", "sex": "identity"}),
        "running": sf.prefixes(domain, "age", by=["sex"]),
        "ranges": sf.ranges(domain, "age", by=["sex"]),
        "marginals": sf.marginals(domain, 2),
        "everything": sf.marginals(domain, 3) | sf.prefixes(domain, "age", by=["sex"]),
    }


KINDS = ("table", "running", "ranges", "marginals", "everything")


def margin(counts, domain, names):
    rest = tuple(i for i, n in enumerate(domain.names) if n not in names)
    return counts.sum(axis=rest).reshape(-1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("asked", ["age", "sex", ()])
def test_without_noise_a_roll_up_is_the_exact_margin(kind, asked):
    domain = people()
    counts = some_counts(domain)
    frame = released(workloads(domain)[kind], counts, seed=None).answers(asked)
    names = [asked] if isinstance(asked, str) else list(asked)
    assert frame["unbiased"].to_numpy() == pytest.approx(margin(counts, domain, names), abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", [BUDGET, LAPLACE, sf.Budget(mu=1)], ids=str)
def test_errors_of_sums_are_those_of_the_matrix_of_all_answers(kind, budget):
    # Expected: sqrt(diag(T R V R' T')) with R written out by applying it to units.
    domain = people()
    release = released(workloads(domain)[kind], some_counts(domain), budget=budget)
    forecast, strategy = release.forecast, release.forecast.strategy
    sizes = [b.term.rows for b in strategy.blocks]
    target = asked_product(domain, "age", None)
    for rollup in rollups_of(release.workload, target):
        zeros = [np.zeros(n) for n in sizes]
        columns, variances = [], []
        for b, size in enumerate(sizes):
            for j in range(size):
                unit = [z.copy() for z in zeros]
                unit[b][j] = 1.0
                columns.append(rollup.answers(strategy.answer(rollup.term, unit)))
                variances.append(forecast.block_variances[b])
        parts = np.array(columns).T ** 2 * np.array(variances)
        errors, shapes = rollup.errors(forecast, sizes)
        assert errors == pytest.approx(np.sqrt(parts.sum(axis=1)))
        back = rollup.moments(strategy, forecast.block_variances)
        there = rollup._followed(forecast, sizes)
        assert back is not None
        assert there is not None
        assert back[0] == pytest.approx(there[0])
        assert back[1] == pytest.approx(there[1])
        if strategy.noise == "laplace":
            expected = parts.sum(axis=1) ** 2 / (parts**2).sum(axis=1)
            assert shapes == pytest.approx(expected)
        else:
            assert np.isinf(shapes).all()


def test_errors_taken_for_independent_would_be_wrong():
    # Under running totals the number of all is one measured combination; adding up the variances
    # of its cells would count shared noise many times.
    domain = people()
    release = released(sf.prefixes(domain, "age", by=["sex"]), some_counts(domain), "factorization")
    total = release.answers(())
    cells = release.answers("age")
    naive = np.sqrt((cells["standard_error"] ** 2).sum())
    assert total["standard_error"][0] < 0.9 * naive


def test_the_rows_of_a_roll_up_are_its_matrix():
    domain = people()
    work = sf.prefixes(domain, "age", by=["sex"])
    (rollup,) = rollups_of(work, asked_product(domain, "age", None))
    matrix = np.array([*rollup.rows()])
    answers = np.arange(matrix.shape[1], dtype=np.float64) ** 1.5
    assert matrix @ answers == pytest.approx(rollup.answers(answers))
    assert np.abs(matrix) @ answers == pytest.approx(rollup.bounds(answers))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("project", [True, "nearest"])
def test_published_roll_ups_are_sums_of_published_cells(kind, project):
    domain = people()
    release = released(workloads(domain)[kind], some_counts(domain, 300), project=project)
    cells = release.table("age", "sex")
    assert release.answers("sex")["value"].to_numpy() == pytest.approx(cells.sum(axis=0))
    assert release.answers(())["value"].to_numpy() == pytest.approx([cells.sum()])
    assert release.total == pytest.approx(cells.sum())
    for names in ("sex", ()):
        frame = release.answers(names)
        assert (frame["low"] <= frame["value"]).all()
        assert (frame["value"] <= frame["high"]).all()


def test_a_level_is_made_of_cells_and_of_a_finer_level():
    domain = leveled()
    counts = some_counts(domain)
    fine = released(sf.marginals(domain, [["age", "sex"]]), counts, seed=None)
    frame = fine.answers("age.decade", by="sex")
    assert frame.columns.tolist()[:2] == ["age", "sex"]
    assert frame["age"].unique().tolist() == ["20s", "30s", "40s"]
    exact = counts.sum(axis=1).reshape(3, 10, 2).sum(axis=1).reshape(-1)
    assert frame["unbiased"].to_numpy() == pytest.approx(exact, abs=1e-6)
    coarse = released(sf.marginals(domain, [["age.decade", "sex"]]), counts, seed=None)
    halves = coarse.answers("age.half")
    assert halves["unbiased"].to_numpy() == pytest.approx(
        [counts[:20].sum(), counts[20:].sum()], abs=1e-6
    )
    assert coarse.answers("age.decade", by="sex")["unbiased"].to_numpy() == pytest.approx(exact)
    with pytest.raises(WorkloadError, match="none holds them"):
        released(sf.marginals(domain, [["age.half", "sex"]]), counts).answers("age.decade")


def test_groups_that_leave_cells_out_do_not_tell_a_total():
    # The cell for missing regions is in no part: their sum is not the number of records.
    domain = leveled()
    work = sf.marginals(domain, [["region.part", "sex"]])
    assert rollups_of(work, asked_product(domain, "sex", None)) == []
    assert len(rollups_of(work, asked_product(domain, "region.part", None))) == 1
    with pytest.raises(WorkloadError, match="none holds them"):
        released(work, some_counts(domain)).answers("sex")


def test_of_several_groups_the_most_precise_one_answers():
    # Each measured by itself: a cell of 'age x sex' has the same noise as one of 'sex x income',
    # so the sum over two or three cells errs less than that over ten.
    domain = people()
    work = sf.marginals(domain, [["age", "sex"], ["sex", "income"]])
    release = released(work, some_counts(domain), mechanism="gaussian")
    frame = release.answers("sex")
    assert "'sex x income'" in frame.attrs["basis"]
    again = release.answers("sex")
    assert frame.equals(again)
    assert frame.attrs == again.attrs


def test_quantiles_come_from_any_group_that_holds_the_attribute():
    domain = people()
    counts = some_counts(domain)
    release = released(sf.ranges(domain, "age", by=["sex"]), counts)
    by_age = counts.sum(axis=(1, 2))
    median = int(np.argmax(np.cumsum(by_age) >= by_age.sum() / 2)) + 20
    frame = release.quantiles("age", 0.5)
    assert frame["low"][0] <= median <= frame["high"][0]


def test_shares_and_names_asked_twice():
    domain = Domain([Integer("age", 0, 9), Category("sex", ("f", "m"))], records="all-inside")
    counts = some_counts(domain)
    release = released(sf.marginals(domain, 2), counts, neighbours="replace-one")
    assert release.answers("sex", shares=True)["value"].sum() == pytest.approx(1)
    assert release.answers("sex", by="sex").equals(release.answers("sex"))
    with pytest.raises(WorkloadError, match="has no level 'part'"):
        release.answers("sex.part")


def test_a_level_and_its_cells_are_not_asked_together():
    domain = leveled()
    release = released(sf.marginals(domain, [["age", "sex"]]), some_counts(domain))
    with pytest.raises(WorkloadError, match="twice"):
        release.answers("age", by="age.decade")
    with pytest.raises(WorkloadError, match=r'asked as "attribute\.level"'):
        release.answers("age", level="decade")  # type: ignore[arg-type]


def test_too_many_sums_add_up_standard_errors(monkeypatch):
    domain = people()
    release = released(sf.prefixes(domain, "age", by=["sex"]), some_counts(domain), "factorization")
    exact = release.answers("age")
    monkeypatch.setattr(Rollup, "errors", lambda *_: None)
    bound = release.answers("age")
    assert "upper bounds" in bound.attrs["basis"]
    assert (bound["standard_error"] > exact["standard_error"]).all()
    assert (bound["low"] <= exact["low"]).all()


def test_an_adaptive_release_rolls_up_what_it_was_asked():
    domain = sf.Domain({"age": 10, "sex": 2, "region": 3})
    rng = np.random.default_rng(3)
    table = pd.DataFrame({n: rng.integers(0, s, 2000) for n, s in (("age", 10), ("sex", 2))})
    table["region"] = rng.integers(0, 3, 2000)
    work = sf.marginals(domain, [["age", "sex"], ["sex", "region"]])
    release = sf.plan_adaptive(work, BUDGET).release(table)
    frame = release.answers("sex")
    assert frame.columns.tolist() == ["sex", "value", "low", "high"]
    assert frame["value"].to_numpy() == pytest.approx(release.table("sex"))
    with pytest.raises(WorkloadError, match="none holds them"):
        release.answers("age", by="region")


def test_without_projection_a_roll_up_is_the_sum_of_unbiased_answers():
    domain = people()
    release = released(sf.marginals(domain, [["age", "sex"]]), some_counts(domain, 50))
    free = replace(release, estimates=replace(release.estimates, is_projected=False, refined=None))
    summed = free.answers("age", by="sex").groupby("age")["unbiased"].sum()
    assert free.answers("age")["value"].to_numpy() == pytest.approx(summed.to_numpy())
