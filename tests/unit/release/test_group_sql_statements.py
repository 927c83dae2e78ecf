# SPDX-License-Identifier: Apache-2.0
"""Statements of a release: their shape, and intervals of chosen rows and of quantiles that hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import sfumato as sf
from sfumato.errors import WorkloadError
from sfumato.release.group_sql import ReleasedNumbers, statement_frame
from sfumato.release.release import Release
from tests.shared.made_releases import measured, planned
from tests.shared.words import SeededWords

DOMAIN = sf.Domain([sf.Integer("age", 0, 19), sf.Category("sex", ("F", "M"))])
RUNS = 100


def releases(text: str, counts: np.ndarray, epsilon: float) -> list[Release]:
    budget = sf.Budget(epsilon=epsilon, delta=1e-9)
    forecast = planned(sf.sql(DOMAIN, text), budget=budget)
    noisy = [measured(forecast, counts, SeededWords(seed)) for seed in range(RUNS)]
    return [Release.of(forecast, one, project="bounds") for one in noisy]


def test_a_statement_has_its_own_columns_with_intervals_beside() -> None:
    people = pd.DataFrame({"age": [i % 20 for i in range(400)], "sex": ["F", "M"] * 200})
    text = (
        "SELECT AVG(age) AS a, sex, COUNT(*), MEDIAN(age) AS m FROM t GROUP BY sex ORDER BY 2 DESC"
    )
    release = sf.plan(sf.sql(DOMAIN, text), sf.Budget(epsilon=5)).release(people)
    frame = release.statement()
    head = ["a", "a_low", "a_high", "sex", "COUNT(*)", "COUNT(*)_low", "COUNT(*)_high"]
    assert list(frame.columns) == [*head, "m", "m_low", "m_high"]
    assert frame["sex"].tolist() == ["M", "F"]
    for column in ("a", "COUNT(*)", "m"):
        assert (frame[f"{column}_low"] <= frame[column]).all()
        assert (frame[column] <= frame[f"{column}_high"]).all()
    with pytest.raises(WorkloadError, match=r"numbered from 0: '0: SELECT AVG.*MEDIAN"):
        release.statement(1)
    tables = sf.plan(sf.marginals(DOMAIN, 1), sf.Budget(epsilon=5)).release(people)
    with pytest.raises(WorkloadError, match="nothing here was asked in SQL"):
        tables.statement()


def test_statements_are_written_in_their_own_shape(tmp_path: Path) -> None:
    people = pd.DataFrame({"age": [i % 20 for i in range(400)], "sex": ["F", "M"] * 200})
    work = sf.sql(DOMAIN, "SELECT sex, COUNT(*) AS n FROM t GROUP BY sex ORDER BY sex DESC")
    work |= sf.sql(DOMAIN, "SELECT age / 5 AS a, COUNT(*) AS n FROM t GROUP BY a LIMIT 2")
    plan = sf.plan(work, sf.Budget(epsilon=5))
    files = plan.release(people).save(tmp_path)
    assert files["statement_2"].name == "statement-2.csv"
    frame = pd.read_csv(files["statement_1"])
    assert frame.columns.tolist() == ["sex", "n", "n_low", "n_high"]
    assert frame["sex"].tolist() == ["M", "F"]
    assert pd.read_csv(files["statement_2"])["a"].tolist() == [0, 1]
    other = sf.plan(sf.marginals(DOMAIN, 1), sf.Budget(epsilon=5)).release(people)
    other.save(tmp_path)  # another release takes its place, and leaves nothing of the first
    assert not list(tmp_path.glob("statement-*"))


# Few people in few cells, where the two values that a median lies between are far apart; and many
# in many, where noise of some 40 records moves it by a cell or two.
APART, DENSE = [2, 2, 3, 14, 15, 15] * 4, [age for age in range(19) for _ in range(30)]


def medians(ages: list[int], epsilon: float) -> list[Release]:
    counts = np.zeros(DOMAIN.shape, dtype=np.int64)
    np.add.at(counts, (ages, 0), 1)
    return releases("SELECT MEDIAN(age) AS m FROM t", counts, epsilon)


def holds(frames: list[pd.DataFrame], truth: float) -> int:
    return sum(bool((f["m_low"] <= truth).all() and (f["m_high"] >= truth).all()) for f in frames)


@pytest.mark.parametrize(("ages", "epsilon"), [(APART, 1.0), (DENSE, 0.1)])
def test_intervals_of_medians_hold_the_median_of_sql(ages: list[int], epsilon: float) -> None:
    """Fewer than this happens once in a thousand runs of intervals that hold with 0.9."""
    truth = float(np.median(ages))  # 8.5, between 3 and 14, and 9
    frames = [release.statement(level=0.9) for release in medians(ages, epsilon)]
    assert holds(frames, truth) >= binom.ppf(0.001, RUNS, 0.9)


def test_intervals_that_are_too_short_are_noticed() -> None:
    """The twin: the released median alone, which claims to be right with 0.9."""
    frames = [release.statement(level=0.9) for release in medians(DENSE, 0.1)]
    short = [f.assign(m_low=f["m"], m_high=f["m"]) for f in frames]
    assert holds(short, 9) < binom.ppf(0.001, RUNS, 0.9)


LARGEST = "SELECT age, COUNT(*) AS n FROM t GROUP BY age ORDER BY n DESC LIMIT 1"


@pytest.fixture(scope="module")
def largest() -> list[Release]:
    return releases(LARGEST, np.full(DOMAIN.shape, 10), 1.0)


def held(frames: list[pd.DataFrame]) -> int:
    """Every group has 20 records."""
    return sum(bool((f["n_low"] <= 20).all() and (f["n_high"] >= 20).all()) for f in frames)


def test_intervals_of_the_rows_that_noise_chose_hold(largest: list[Release]) -> None:
    frames = [release.statement(level=0.9) for release in largest]
    assert held(frames) >= binom.ppf(0.001, RUNS, 0.9)


def test_intervals_of_single_rows_do_not_hold_for_chosen_ones(largest: list[Release]) -> None:
    """The twin: the largest of 20 equal groups is the one that noise lifted most."""
    frames = [
        statement_frame(r.workload.statements[0], ReleasedNumbers(r.estimates, 0.9))
        for r in largest
    ]
    assert held(frames) < binom.ppf(0.001, RUNS, 0.9)
