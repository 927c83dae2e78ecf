# SPDX-License-Identifier: Apache-2.0
"""95% means 95%: intervals hold the truth as often as they say, errors are as large as forecast.

Every release is over an attribute of thousands of cells whose noises are independent, so one
release is thousands of independent trials. Each test has a twin on a broken variant.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import sfumato as sf
from sfumato.domain.attributes import Integer
from sfumato.domain.domain import Domain
from sfumato.refine.reconstruct import reconstruct
from sfumato.release import linear_estimates
from tests.shared.made_releases import measured, planned, released
from tests.shared.words import SeededWords

ALPHA = 1e-6
LEVEL = 0.95
TRIALS = 10_000


def counts_of(domain: Domain, mean: float = 3.0) -> np.ndarray:
    return np.random.default_rng(7).poisson(mean, domain.shape)


def asked_directly(noise: str) -> tuple[sf.Workload, str, slice]:
    domain = Domain({"cell": TRIALS})
    return sf.marginals(domain, 1), noise, slice(None)


def summed_from_a_table(noise: str) -> tuple[sf.Workload, str, slice]:
    """Each answer adds up six noisy cells."""
    domain = Domain({"cell": TRIALS, "age": 6})
    return sf.marginals(domain, [["cell"], ["cell", "age"]]), f"{noise}-table", slice(TRIALS)


def estimated_from_a_tree(noise: str) -> tuple[sf.Workload, str, slice]:
    """The prefix of 11 of 16 cells, once per tree: answers of one tree are not independent."""
    domain = Domain({"cell": TRIALS, "age": 16})
    return sf.prefixes(domain, "age", by=["cell"]), f"{noise}-tree", slice(10, None, 16)


def reconstructed_from_a_factorization(noise: str) -> tuple[sf.Workload, str, slice]:  # noqa: ARG001
    """The same prefix from the optimal strategy, whose noise is Gaussian."""
    domain = Domain({"cell": 3000, "age": 16})
    return sf.prefixes(domain, "age", by=["cell"]), "factorization", slice(10, None, 16)


CASES = [
    *[
        (case, noise)
        for case in (asked_directly, summed_from_a_table, estimated_from_a_tree)
        for noise in ("gaussian", "laplace")
    ],
    (reconstructed_from_a_factorization, "gaussian"),
]


def trial(case, noise: str, project: bool | str = False):
    """The answers of one release and the truth, for queries with independent errors."""
    work, mechanism, chosen = case(noise)
    counts = counts_of(work.domain)
    seed = f"{case.__name__} {noise}"
    release = released(work, counts, mechanism, seed=seed, project=project)
    frame = release.answers(group=work.terms[0].name, level=LEVEL)
    truth = work.evaluate(counts)[: work.terms[0].rows]
    return frame[chosen], truth[chosen]


def is_rejected(hits: np.ndarray, side: str = "two-sided") -> bool:
    return bool(stats.binomtest(int(hits.sum()), hits.size, LEVEL, side).pvalue < ALPHA)


@pytest.mark.parametrize(("case", "noise"), CASES)
def test_95_percent_of_the_intervals_hold_the_truth(case, noise):
    frame, truth = trial(case, noise)
    assert len(frame) >= 3000
    side = "less" if noise == "laplace" else "two-sided"  # on whole numbers they hold more often
    assert not is_rejected((frame["low"] <= truth) & (truth <= frame["high"]), side)


@pytest.mark.parametrize(("case", "noise"), CASES)
def test_intervals_that_are_too_short_would_be_noticed(case, noise):
    frame, truth = trial(case, noise)
    part = 0.6 if noise == "laplace" else 0.9  # whole numbers leave less to notice
    half = part * (frame["high"] - frame["low"]) / 2
    assert is_rejected(np.abs(frame["unbiased"] - truth) <= half, "less")


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_cutting_to_the_feasible_range_never_loses_coverage(noise):
    plain, truth = trial(asked_directly, noise)
    cut, _ = trial(asked_directly, noise, project="bounds")
    before = (plain["low"] <= truth) & (truth <= plain["high"])
    after = (cut["low"] <= truth) & (truth <= cut["high"])
    assert (before <= after).all()
    assert (np.abs(cut["value"] - truth) <= np.abs(plain["value"] - truth)).all()
    assert not is_rejected(after, "less")


def wide_ages() -> tuple[Domain, np.ndarray]:
    domain = Domain([Integer("cell", 1, 3000), Integer("age", 1, 64)])
    rng = np.random.default_rng(11)
    return domain, rng.poisson(20 * rng.dirichlet(np.ones(64), size=3000) * 64)


def quantile_hits(p: float) -> np.ndarray:
    domain, counts = wide_ages()
    release = released(
        sf.prefixes(domain, "age", by=["cell"]), counts, "gaussian-tree", seed=2, project="bounds"
    )
    frame = release.quantiles("age", p, by="cell", level=LEVEL)
    running = np.cumsum(counts, axis=1)
    truth = 1 + np.argmax(running >= p * running[:, -1:], axis=1)
    return ((frame["low"] <= truth) & (truth <= frame["high"])).to_numpy()


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_quantile_intervals_hold_the_true_quantile_at_least_as_often(p):
    assert not is_rejected(quantile_hits(p), "less")


def test_quantile_intervals_from_too_narrow_bands_would_be_noticed(monkeypatch):
    exact = linear_estimates.half_widths
    monkeypatch.setattr(linear_estimates, "half_widths", lambda *given: 0.3 * exact(*given))
    assert is_rejected(quantile_hits(0.5), "less")


@pytest.mark.parametrize("level", [0.95, 0.4])
def test_intervals_of_means_hold_the_true_mean_at_least_as_often(level):
    """At a level of 0.4 they must not pass for 95%: the test has power."""
    domain, counts = wide_ages()
    release = released(
        sf.means(domain, "age", by=["cell"]), counts, "gaussian-groups", seed=4, project="bounds"
    )
    frame = release.answers(group="mean age by cell", level=level)
    truth = counts @ np.arange(1, 65) / counts.sum(axis=1)
    hits = ((frame["low"] <= truth) & (truth <= frame["high"])).to_numpy()
    assert is_rejected(hits, "less") == (level < LEVEL)


def empirical_over_forecast(mechanism: str, drawn_for: float = 1.0) -> float:
    """Root mean square error of 200 releases, over the forecast at epsilon 1."""
    domain = Domain({"age": 16, "sex": 2, "race": 5, "work": 8})
    work = sf.marginals(domain, 2) | sf.prefixes(domain, "age", by=["sex"])
    counts = counts_of(domain, 40)
    truth = work.evaluate(counts)
    forecast = planned(work, mechanism)
    noisy = planned(work, mechanism, budget=sf.Budget(epsilon=drawn_for, delta=1e-9))
    words = SeededWords(f"errors {mechanism}")
    squares = [
        np.mean((np.concatenate(reconstruct(noisy, measured(noisy, counts, words))) - truth) ** 2)
        for _ in range(200)
    ]
    return float(np.sqrt(np.mean(squares)) / forecast.rmse)


@pytest.mark.parametrize(
    "mechanism", ["gaussian", "laplace", "gaussian-groups", "laplace-groups", "factorization"]
)
def test_errors_of_200_releases_match_the_forecast_within_3_percent(mechanism):
    assert empirical_over_forecast(mechanism) == pytest.approx(1, abs=0.03)


def test_a_forecast_that_is_6_percent_low_would_be_noticed():
    assert empirical_over_forecast("laplace", drawn_for=1 / 1.06) != pytest.approx(1, abs=0.03)
