# SPDX-License-Identifier: Apache-2.0
"""95% intervals of means hold the mean of the clamped values 93 to 97 times in 100, in any bins.

The vault counts a dataframe once; every trial draws fresh noise and goes through the release as a
person sees it. The twin computes means from the middles of bins and claims the noise alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.domain.attributes import Category, Numeric
from sfumato.domain.domain import Domain
from sfumato.planning.forecast import Forecast
from sfumato.release.release import Release
from sfumato.vault.mechanisms.measure import Exact, count, measure
from sfumato.vault.tables import open_table
from sfumato.workload.bins import in_bins
from tests.shared.made_releases import planned
from tests.shared.words import SeededWords

LEVEL = 0.95
TRIALS = 200
HIGH = 100_000.0
GROUPS = ("few", "some", "many")
SIZES = (60, 600, 6000)


def people() -> pd.DataFrame:
    """Skewed incomes, some beyond the range, in groups of very different sizes."""
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "income": rng.lognormal(9.8, 1.1, sum(SIZES)),
            "group": np.repeat(GROUPS, SIZES),
        }
    )


def domain_of(bins: int) -> Domain:
    edges = tuple(np.linspace(0, HIGH, bins + 1))
    income = Numeric("income", edges, outside="clamp", nulls="missing")
    return Domain([income, Category("group", GROUPS, outside="other", nulls="missing")])


def truth(frame: pd.DataFrame, by: bool) -> np.ndarray:
    clamped = frame["income"].clip(0, HIGH)
    if not by:
        return np.array([clamped.mean()])
    return clamped.groupby(frame["group"]).mean()[list(GROUPS)].to_numpy()


def draws(work: sf.Workload, trials: int, seed: str, project: bool = False, **options):
    """The forecast, and releases of the same exact values with fresh noise."""
    forecast: Forecast = planned(work, **options)
    blocks = forecast.strategy.blocks
    exact: Exact = count(open_table(people()), work.domain, blocks, forecast.neighbours)
    words = SeededWords(seed)
    for _ in range(trials):
        yield Release.of(forecast, measure(exact, blocks, forecast.noise, words), project=project)


def coverage(work: sf.Workload, by: bool, trials: int, seed: str, **options) -> np.ndarray:
    wanted = truth(people(), by)
    held = np.zeros(len(wanted))
    for release in draws(work, trials, seed, **options):
        frame = release.answers(group=work.ratios[0].name, level=LEVEL)[: len(wanted)]
        held += (frame["low"] <= wanted) & (wanted <= frame["high"])
    return held / trials


PURE, GAUSSIAN = sf.Budget(epsilon=1), sf.Budget(mu=0.5)


@pytest.mark.parametrize("bins", [5, 20, 100])
@pytest.mark.parametrize("budget", [PURE, GAUSSIAN], ids=["pure", "gaussian"])
def test_intervals_of_means_hold_the_clamped_mean_whatever_the_bins(bins, budget):
    work = sf.means(domain_of(bins), "income", by=["group"])
    held = coverage(work, True, TRIALS, f"means {bins}", budget=budget)
    # 3.2 standard errors of a share of 200 draws; of 2000, below, in `make audit`.
    assert (np.abs(held - LEVEL) <= 0.05).all(), held


@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_intervals_of_one_mean_hold_with_projection_and_both_neighbours(project, neighbours):
    work = sf.means(domain_of(5), "income")
    options = {"budget": PURE, "neighbours": neighbours, "project": project}
    held = coverage(work, False, 150, "one mean", **options)
    assert 0.9 <= held[0] <= 0.99, held


def test_bin_middles_that_claim_the_noise_alone_are_caught():
    """The twin: with 5 bins hardly an interval holds the truth, with 20 far too few do."""
    for bins, most in ((5, 0.1), (20, 0.7)):
        work = in_bins(sf.means(domain_of(bins), "income"))
        blind = replace(work, ratios=tuple(replace(r, hidden=0.0) for r in work.ratios))
        assert coverage(blind, False, 60, "twin", budget=PURE)[0] <= most


@pytest.mark.parametrize("bins", [5, 20, 100])
def test_means_in_bins_hold_what_bins_can_hide(bins):
    work = in_bins(sf.means(domain_of(bins), "income", by=["group"]))
    assert (coverage(work, True, 60, "in bins", budget=PURE) >= 0.9).all()
    asked = sf.sql(domain_of(bins), "SELECT AVG(income) AS m FROM t", in_bins=True)
    assert coverage(asked, False, 60, "in bins", budget=PURE)[0] >= 0.9


def test_averages_of_sql_under_conditions_hold_too():
    text = "SELECT group, AVG(income) AS m FROM t WHERE income >= 20000 GROUP BY group"
    work = sf.sql(
        domain_of(5), text.replace("group", '"group"', 1).replace("BY group", 'BY "group"')
    )
    frame = people()
    frame = frame[frame["income"] >= 20_000]
    wanted = truth(frame, True)
    held = np.zeros(3)
    for release in draws(work, 200, "sql", budget=GAUSSIAN):
        rows = release.answers(group="m", level=LEVEL)[:3]
        held += (rows["low"] <= wanted) & (wanted <= rows["high"])
    assert (np.abs(held / 200 - LEVEL) <= 0.05).all(), held / 200


def test_a_sum_in_a_session_holds_what_bins_can_hide():
    """The stored interval is that of the middles of bins, and misses: the twin."""
    frame, domain = people(), domain_of(5)
    wanted = float(frame["income"].clip(0, HIGH).sum())
    budget = sf.Budget(epsilon=200, delta=1e-6)
    with sf.open_session(frame, domain, budget, questions=20, records=len(frame)) as session:
        for asked in ("SELECT SUM(income) FROM t", sf.sums(domain, "income")):
            answer = session.ask(asked)
            assert "middles of bins" in answer.question
            assert "middles of bins" in answer.aggregate
            assert answer.low <= wanted <= answer.high
            stored = session.answer(answer.key)
            assert not stored.low <= wanted <= stored.high
        number, *_ = session.ask_all("SELECT COUNT(*) FROM t")
        assert number.aggregate == "COUNT(*)"
    signed = Numeric("x", (-1, 0, 1), outside="clamp", nulls="missing")
    table = pd.DataFrame({"x": [0.5, -0.5] * 50})
    with sf.open_session(table, Domain([signed]), budget, questions=20, records=100) as session:
        assert session.ask("SELECT SUM(x) FROM t").low is None


@pytest.mark.slow
@pytest.mark.parametrize("bins", [1, 5, 20, 100])
@pytest.mark.parametrize("budget", [PURE, GAUSSIAN], ids=["pure", "gaussian"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("project", [False, True])
def test_over_many_releases_93_to_97_of_100_intervals_hold(bins, budget, neighbours, project):
    work = sf.means(domain_of(bins), "income", by=["group"])
    options = {"budget": budget, "neighbours": neighbours, "project": project}
    held = coverage(work, True, 2000, f"many {bins}", **options)
    assert ((held >= 0.93) & (held <= 0.97)).all(), held
