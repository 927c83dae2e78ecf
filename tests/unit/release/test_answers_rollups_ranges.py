# SPDX-License-Identifier: Apache-2.0
"""Chosen ranges of a release, and releases of more ranges than anyone can list."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.domain.attributes import Category, Integer
from sfumato.domain.domain import Domain
from sfumato.errors import TooLarge, WorkloadError
from sfumato.planning.calibrate import calibrate
from sfumato.planning.forecast import Forecast
from sfumato.privacy.budget import Budget
from sfumato.release.release import Release
from sfumato.strategy.base import Strategy
from sfumato.strategy.blockwise import combined
from sfumato.strategy.one_attribute.ordered import ordered
from sfumato.workload.workload import Workload
from tests.shared.made_releases import measured, released, some_counts
from tests.shared.words import SeededWords

LONG = 20_000  # 2 * 10^8 ranges


def forecast_of(strategy: Strategy) -> Forecast:
    noise = calibrate(strategy, 1.0, "add-remove")
    return Forecast(
        strategy.workload, Budget(mu=1), "add-remove", "rmse", None, strategy, noise, ()
    )


def made(workload: Workload, counts: np.ndarray) -> Release:
    forecast = forecast_of(ordered(workload))
    return Release.of(forecast, measured(forecast, counts, SeededWords(11)))


def long_domain() -> Domain:
    return Domain([Integer("salary", 1, LONG), Category("sex", ("f", "m"))])


@pytest.fixture(scope="module")
def long_release() -> tuple[Release, np.ndarray]:
    domain = long_domain()
    counts = np.random.default_rng(3).integers(0, 9, domain.shape)
    return made(sf.ranges(domain, "salary"), counts), counts


def test_chosen_ranges_of_a_long_attribute_come_with_their_errors(
    long_release: tuple[Release, np.ndarray],
) -> None:
    release, counts = long_release
    frame = release.ranges("salary", [(1, LONG), (5, 5), (100, 2_500)])
    assert frame["salary_from"].tolist() == [1, 5, 100]
    assert frame["salary_to"].tolist() == [LONG, 5, 2_500]
    per_cell = counts.sum(axis=1)
    truth = np.array([per_cell.sum(), per_cell[4], per_cell[99:2500].sum()])
    assert (np.abs(frame["unbiased"] - truth) < 5 * frame["standard_error"]).all()
    assert (frame["low"] <= frame["value"]).all()
    assert (frame["value"] <= frame["high"]).all()
    strategy = release.forecast.strategy
    last = release.forecast.workload.terms[0].rows - 1
    row = 4 * LONG - 4 * 3 // 2  # the first range that starts at cell 4
    exact = strategy.covariance(0, [LONG - 1, row, last], release.forecast.block_variances)
    np.testing.assert_allclose(frame["standard_error"][:2], np.sqrt(np.diag(exact)[:2]))


def test_a_list_of_all_ranges_is_refused_with_a_way_out(
    long_release: tuple[Release, np.ndarray],
) -> None:
    release, _ = long_release
    with pytest.raises(TooLarge, match=r"ranges\(attribute"):
        release.answers("salary")


def test_running_totals_stand_for_ranges_wherever_all_is_written_down(
    long_release: tuple[Release, np.ndarray], tmp_path: Path
) -> None:
    release, counts = long_release
    frame = release.answers()
    assert len(frame) == LONG
    assert set(frame["group"]) == {f"running totals of {release.groups[0]}"}
    off = frame["unbiased"] - np.cumsum(counts.sum(axis=1))
    assert (np.abs(off) < 6 * frame["standard_error"]).all()
    paths = release.save(tmp_path)
    assert pq.read_table(paths["answers"]).num_rows == LONG
    assert "release.ranges(" in paths["report"].read_text()
    assert abs(release.total - counts.sum()) < 100
    median = release.quantiles("salary", 0.5)
    assert abs(median["value"][0] - LONG / 2) < LONG / 50


def test_ranges_by_another_attribute_and_of_prefixes() -> None:
    domain = Domain([Integer("age", 20, 29), Category("sex", ("f", "m"))])
    counts = some_counts(domain)
    for workload in (
        sf.ranges(domain, "age", by=["sex"]),
        sf.prefixes(domain, "age", by=["sex"]),
    ):
        release = made(workload, counts)
        frame = release.ranges("age", [(22, 24), (20, 29)], by="sex")
        truth = [
            counts[2:5, 0].sum(), counts[2:5, 1].sum(), counts[:, 0].sum(), counts[:, 1].sum()
        ]  # fmt: skip
        order = frame.sort_values(["age_to", "sex"])
        assert (np.abs(order["unbiased"].to_numpy() - truth) < 6 * order["standard_error"]).all()


def test_picked_ranges_are_those_of_the_list() -> None:
    domain = Domain([Integer("age", 20, 29), Category("sex", ("f", "m"))])
    release = released(sf.ranges(domain, "age", by=["sex"]), some_counts(domain))
    everything = release.answers("age", by="sex")
    frame = release.ranges("age", [(22, 24), (29, 29), (20, 29)], by="sex")
    keys = ["age_from", "age_to", "sex"]
    joined = frame.merge(everything, on=keys, suffixes=("", "_all"))
    assert len(joined) == 6
    for name in ("value", "standard_error", "low", "high", "unbiased"):
        np.testing.assert_allclose(joined[name], joined[f"{name}_all"], rtol=1e-6)


def test_a_root_inside_a_combined_strategy_is_found() -> None:
    domain = long_domain()
    work = sf.ranges(domain, "salary") | sf.prefixes(domain, "salary", by=["sex"])
    parts = [
        (ordered(Workload(domain, work.terms[:1])), [0]),
        (ordered(Workload(domain, work.terms[1:])), [1]),
    ]
    forecast = forecast_of(combined("factorization", work, parts))
    counts = np.random.default_rng(3).integers(0, 9, domain.shape)
    release = Release.of(forecast, measured(forecast, counts, SeededWords(12)))
    frame = release.ranges("salary", [(1, LONG)])
    assert abs(frame["unbiased"][0] - counts.sum()) < 6 * frame["standard_error"][0]
    assert len(release.answers()) == 3 * LONG


@pytest.mark.parametrize(
    ("between", "words"),
    [([], "no range"), ([(9, 3)], "lies between"), ([5], "pair"), ([(1, LONG + 5, 3)], "pair")],
)
def test_ranges_that_are_none_are_refused(
    long_release: tuple[Release, np.ndarray], between: list[object], words: str
) -> None:
    with pytest.raises(WorkloadError, match=words):
        long_release[0].ranges("salary", between)  # type: ignore[arg-type]


def test_a_release_without_ranges_says_so(long_release: tuple[Release, np.ndarray]) -> None:
    with pytest.raises(WorkloadError, match="no released group"):
        long_release[0].ranges("salary", [(1, 5)], by="sex")


def test_projection_cuts_chosen_ranges_and_its_absence_does_not() -> None:
    domain = Domain([Integer("age", 1, 50)])
    release = made(sf.ranges(domain, "age"), np.zeros(50, dtype=np.int64))
    assert isinstance(release.ranges("age", [(1, 50)]), pd.DataFrame)
    pairs = [(i, i + 1) for i in range(1, 50)]
    published = release.answers(group="ranges age").set_index(["age_from", "age_to"])["value"]
    assert release.ranges("age", pairs)["value"].min() >= 0
    assert release.ranges("age", pairs)["value"].to_numpy() == pytest.approx(published.loc[pairs])
    free = replace(release, estimates=replace(release.estimates, is_projected=False))
    assert free.ranges("age", pairs)["value"].min() < 0
