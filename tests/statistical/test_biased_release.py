# SPDX-License-Identifier: Apache-2.0
"""Biased releases: no error above the forecast, no interval that misses more often than it says.

The data are the worst there are, all records in the cell of greatest bias, and others at random.
Each claim has a twin that leaves the bias out and must be rejected.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from scipy import stats

import sfumato as sf
from sfumato.domain.domain import Domain
from sfumato.measurement import Measurement
from sfumato.planning.forecast import Forecast
from sfumato.refine.reconstruct import reconstruct
from sfumato.release.linear_estimates import best_source
from sfumato.release.release import Release
from sfumato.strategy.base import Strategy
from sfumato.strategy.biased import approximate
from sfumato.vault.mechanisms.measure import add_noise, exact_values
from sfumato.workload.terms import Product
from sfumato.workload.workload import marginal
from tests.shared.made_releases import measured
from tests.shared.words import SeededWords
from tests.unit.strategy.test_biased import dense, forecast_of, reconstruction

ALPHA = 1e-6
LEVEL = 0.95
TRIALS = 4000
RECORDS = 8


def prefixes() -> Strategy:
    return approximate(sf.prefixes(Domain({"age": 8}), "age"), 0.5, RECORDS)


def prefixes_of_a_public_number() -> Strategy:
    work = sf.prefixes(Domain({"age": 8}), "age")
    return approximate(work, 0.5, RECORDS, is_exact=True)


def conjunctions() -> Strategy:
    from sfumato.strategy.conjunctions import conjunctions_by_polynomial

    work = sf.conjunctions(Domain({f"q{i}": 2 for i in range(5)}), 4)
    return conjunctions_by_polynomial(work, RECORDS, 0.5)


def written_conjunctions() -> Strategy:
    from sfumato.strategy.conjunctions import conjunctions_by_polynomial

    domain = Domain({f"q{i}": 2 for i in range(5)})
    names = list(domain.names)
    asked = [" AND ".join(f"{n} = 1" for n in names if n != left) for left in names]
    asked += [" OR ".join(f"{n} = 0" for n in names)]
    return conjunctions_by_polynomial(sf.predicates(domain, asked), RECORDS, 0.5)


def conjunctions_by_degree() -> Strategy:
    from sfumato.strategy.degrees import by_degrees, symmetric_set

    work = sf.product(
        Domain({f"q{i}": 2 for i in range(4)}), {f"q{i}": [[1, 1], [0, 1]] for i in range(4)}
    )
    family = symmetric_set(work)
    assert family is not None
    return by_degrees(work, family, RECORDS, 0.5)


CASES = [
    *(prefixes, prefixes_of_a_public_number),
    *(conjunctions, written_conjunctions, conjunctions_by_degree),
]


def noiseless(forecast: Forecast, counts: np.ndarray) -> np.ndarray:
    return np.concatenate(reconstruct(forecast, measured(forecast, counts, None)))


def worst_cell(forecast: Forecast, query: int | None = None) -> np.ndarray:
    """All records in the cell of greatest bias: of all queries together, or of one."""
    work = forecast.workload
    matrix, biases = dense(work), []
    for j, cell in enumerate(np.eye(work.domain.size, dtype=int)):
        counts = RECORDS * cell.reshape(work.domain.shape)
        biases.append(noiseless(forecast, counts) - RECORDS * matrix[:, j])
    found = np.array(biases)
    at = (found**2).sum(axis=1) if query is None else np.abs(found[:, query])
    return RECORDS * np.eye(work.domain.size, dtype=int)[at.argmax()].reshape(work.domain.shape)


def random_data(forecast: Forecast) -> np.ndarray:
    domain = forecast.workload.domain
    shares = np.random.default_rng(8).dirichlet(np.full(domain.size, 0.5))
    return np.random.default_rng(9).multinomial(RECORDS, shares).reshape(domain.shape)


@lru_cache(maxsize=16)
def errors(case, kind: str) -> tuple[Forecast, np.ndarray]:
    """The errors of many releases of one data set, a row each."""
    forecast = forecast_of(case())
    if kind == "random":
        counts = random_data(forecast)
    else:
        counts = worst_cell(forecast, None if kind == "worst" else 0)
    truth = forecast.workload.evaluate(counts)
    words = SeededWords(f"{case.__name__} {kind}")
    drawn = []
    for block, law in zip(forecast.strategy.blocks, forecast.noise, strict=True):
        table = marginal(counts, forecast.workload.domain, block.term.attributes)
        exact = exact_values(block.term, table)
        noisy = add_noise(np.tile(exact, TRIALS), block.term, law, words)
        drawn.append(Measurement(noisy, law).values.reshape(TRIALS, -1))
    r, constant = reconstruction(forecast.strategy)
    return forecast, np.concatenate(drawn, axis=1) @ r.T + constant - truth


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["worst", "random"])
def test_the_mean_squared_error_is_not_above_the_forecast(case, kind: str) -> None:
    forecast, found = errors(case, kind)
    squares = (found**2).mean(axis=1)
    margin = 5 * squares.std() / np.sqrt(TRIALS)
    assert squares.mean() <= forecast.rmse**2 + margin


@pytest.mark.parametrize("case", CASES[:3])
def test_the_worst_data_reach_the_forecast_and_noise_alone_does_not_explain_them(case) -> None:
    forecast, found = errors(case, "worst")
    squares = (found**2).mean(axis=1)
    margin = 5 * squares.std() / np.sqrt(TRIALS)
    assert squares.mean() >= forecast.rmse**2 - margin
    totals, _ = forecast.strategy.group_variances(forecast.block_variances)
    noise = sum(totals) / forecast.workload.queries
    assert squares.mean() > noise + margin


def half_widths(forecast: Forecast) -> np.ndarray:
    terms = range(len(forecast.workload.terms))
    return np.concatenate([forecast.half_widths(t, LEVEL) for t in terms])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["worst", "worst of the first", "random"])
def test_widened_intervals_hold_the_truth_often_enough(case, kind: str) -> None:
    forecast, found = errors(case, kind)
    hits = (np.abs(found) <= half_widths(forecast)).sum(axis=0)
    least = stats.binomtest(int(hits.min()), TRIALS, LEVEL, "less").pvalue
    assert least > ALPHA / found.shape[1]


@pytest.mark.parametrize("case", CASES)
def test_intervals_of_the_noise_alone_would_be_noticed(case) -> None:
    forecast, found = errors(case, "worst of the first")
    half = stats.norm.ppf((1 + LEVEL) / 2) * forecast.standard_errors(0)[0]
    hits = int((np.abs(found[:, 0]) <= half).sum())
    assert stats.binomtest(hits, TRIALS, LEVEL, "less").pvalue < ALPHA


def test_a_wholly_biased_query_is_covered_just_often_enough() -> None:
    """The interval is tight: at the worst bias of a query it misses about one time in twenty."""
    forecast, found = errors(prefixes, "worst of the first")
    hits = int((np.abs(found[:, 0]) <= half_widths(forecast)[0]).sum())
    assert stats.binomtest(hits, TRIALS, LEVEL).pvalue > ALPHA


def test_a_release_shows_the_widened_intervals_and_says_why() -> None:
    forecast = forecast_of(prefixes())
    counts = random_data(forecast)
    release = Release.of(forecast, measured(forecast, counts, SeededWords("shown")), project=False)
    frame = release.answers()
    half = (frame["high"] - frame["low"]).to_numpy() / 2
    assert half == pytest.approx(forecast.half_widths(0, LEVEL))
    assert release.provenance["forecast"]["biased_for_records"] == RECORDS
    assert release.provenance["forecast"]["groups"][0]["bias"] > 0
    assert any("biased by at most" in line for line in release.provenance["strategy"])
    cells = release.quantiles("age", 0.5)
    assert cells["low"].iloc[0] <= cells["high"].iloc[0]


@pytest.mark.parametrize("is_exact", [False, True])
def test_sums_of_a_biased_table_are_as_much_wider_as_its_cells_are_biased(is_exact: bool) -> None:
    work = sf.marginals(Domain({"age": 6}), 1)
    strategy = approximate(work, 0.5, RECORDS, is_exact=is_exact)
    forecast = forecast_of(strategy)
    drawn = measured(forecast, random_data(forecast), SeededWords("summed"))
    release = Release.of(forecast, drawn, project=False)
    asked = sf.prefixes(work.domain, "age").terms[0]
    assert isinstance(asked, Product)
    found = best_source(release.estimates, drawn, asked)
    assert found is not None
    r, constant = reconstruction(strategy)
    running = np.tril(np.ones((6, 6)))
    errors = np.sqrt(((running @ r) ** 2).sum(axis=1) * forecast.block_variances[0])
    bias = RECORDS * running @ strategy.bias_bounds(0)
    assert found.half_width(LEVEL) == pytest.approx(1.959964 * errors + bias, rel=1e-6)
    answers = r @ drawn.measurements[0].values + constant
    assert found.unbiased == pytest.approx(running @ answers)
