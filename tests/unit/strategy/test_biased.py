# SPDX-License-Identifier: Apache-2.0
"""Biased strategies against dense matrices and all data sets of a tiny domain."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise
from math import sqrt

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.domain import Domain
from sfumato.errors import PlanError, TooLarge
from sfumato.planning.calibrate import calibrate
from sfumato.planning.forecast import Forecast, combination_error
from sfumato.strategy.base import Strategy
from sfumato.strategy.biased import Biased, approximate, least_worst_case
from sfumato.strategy.conjunctions import ByPolynomial
from sfumato.study.matrix_norms import factorize
from sfumato.workload.workload import Workload, marginal

BUDGET = sf.Budget(mu=0.5)


def forecast_of(strategy: Strategy, objective: str = "rmse") -> Forecast:
    noise = calibrate(strategy, 0.5, "add-remove")
    work = strategy.workload
    return Forecast(work, BUDGET, "add-remove", objective, None, strategy, noise, ())


def dense(work: Workload) -> np.ndarray:
    m = work.domain.size
    return np.array([work.evaluate(c) for c in np.eye(m).reshape(m, *work.domain.shape)]).T


def measured_matrix(strategy: Strategy) -> np.ndarray:
    """Every block on every cell, with its fraction bits."""
    domain = strategy.workload.domain
    columns = []
    for cell in np.eye(domain.size, dtype=np.int64).reshape(domain.size, *domain.shape):
        parts = [b.term.answer(marginal(cell, domain, b.term.attributes)) for b in strategy.blocks]
        columns.append(np.concatenate(parts))
    return np.array(columns).T


def reconstruction(strategy: Strategy) -> tuple[np.ndarray, np.ndarray]:
    """R and the constant, from the answers themselves."""
    rows = [b.term.rows for b in strategy.blocks]
    ends = np.cumsum([0, *rows])

    def answers(y: np.ndarray) -> np.ndarray:
        values = [y[a:b] for a, b in pairwise(ends)]
        return np.concatenate(strategy.answers(values))

    constant = answers(np.zeros(ends[-1]))
    return np.array([answers(e) - constant for e in np.eye(ends[-1])]).T, constant


def mixed() -> Workload:
    domain = Domain({"age": 6, "sex": 2, "race": 3})
    age = sf.attribute(domain, "age")
    odd = sf.explicit(domain, ["race", "sex"], np.array([[1, 0.5, 0, 2, 0, 1]]))
    ages = sf.prefixes(domain, "age", by=["sex"]) | 2 * sf.predicates(domain, [age < 2, age >= 4])
    return ages | odd


WORKLOADS = {
    "prefixes": lambda: sf.prefixes(Domain({"age": 10}), "age"),
    "mixed": mixed,
    "marginals": lambda: sf.marginals(Domain({"a": 2, "b": 3, "c": 2}), 2),
    "merged": lambda: sf.predicates(
        Domain({"age": 50, "sex": 2}), ["age < 10", "age < 20 AND sex = 1", "age > 30"]
    ),
}


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("objective", ["rmse", "max"])
@pytest.mark.parametrize("is_exact", [False, True])
def test_what_is_stated_of_bias_and_noise_is_what_is_measured(
    name: str, objective: str, is_exact: bool
) -> None:
    work, records = WORKLOADS[name](), 40
    strategy = approximate(work, 0.5, records, objective, is_exact=is_exact)
    assert isinstance(strategy, Biased)
    forecast = forecast_of(strategy, objective)
    r, constant = reconstruction(strategy)
    m = measured_matrix(strategy)
    bias = r @ m + constant[:, None] / records - dense(work)
    assert is_exact or not constant.any()
    variances = (r**2).sum(axis=1) * forecast.block_variances[0]
    stated = [strategy.bias_bounds(t) for t in range(len(work.terms))]
    assert np.concatenate(stated) == pytest.approx(np.abs(bias).max(axis=1), rel=1e-6, abs=1e-12)
    squares = (bias**2).sum(axis=0).max()
    assert strategy.squared_bias() == pytest.approx(squares, rel=1e-6)
    k = work.queries
    assert forecast.rmse == pytest.approx(sqrt((variances.sum() + records**2 * squares) / k))
    worst = np.sqrt(variances + (records * np.abs(bias).max(axis=1)) ** 2)
    assert forecast.largest_error == pytest.approx(worst.max())
    assert strategy.sensitivity(2).power == pytest.approx(
        (m**2).sum(axis=0).max() * strategy.blocks[0].share ** 2
    )
    first = 0
    for t, term in enumerate(work.terms):
        rows = slice(first, first + term.rows)
        first += term.rows
        own = (bias[rows] ** 2).sum(axis=0).max() * records**2
        assert forecast.groups[t].bias == pytest.approx(sqrt(own / term.rows), rel=1e-6)
        some = np.arange(term.rows) + 1.0
        assert strategy.adjoint(t, some)[0] == pytest.approx(r[rows].T @ some)
        assert combination_error(forecast, {term.name: some}).bias == pytest.approx(
            records * float(some @ np.abs(bias[rows]).max(axis=1)), rel=1e-6
        )


def test_no_data_set_of_at_most_so_many_records_is_answered_worse_than_forecast() -> None:
    """All data sets of up to 5 records in 4 cells; some come within a tenth of a percent."""
    work, records = sf.prefixes(Domain({"age": 4}), "age"), 5
    strategy = approximate(work, 0.5, records)
    forecast = forecast_of(strategy)
    r, _ = reconstruction(strategy)
    m, f = measured_matrix(strategy), dense(work)
    noise = (r**2).sum() * forecast.block_variances[0]
    worst = []
    for n in range(records + 1):
        for cells in combinations_with_replacement(range(4), n):
            h = np.bincount(cells, minlength=4)
            bias = r @ (m @ h) - f @ h
            assert (np.abs(bias) <= records * strategy.bias_bounds(0) * (1 + 1e-9)).all()
            worst.append(sqrt((bias @ bias + noise) / 4))
    assert max(worst) <= forecast.rmse * (1 + 1e-9)
    assert max(worst) >= forecast.rmse * (1 - 1e-3)
    # A forecast of the noise alone would be wrong.
    assert max(worst) > sqrt(noise / 4) * 1.05


@pytest.mark.parametrize("records", [5, 50, 500])
def test_rounding_costs_next_to_nothing(records: int) -> None:
    work = sf.prefixes(Domain({"age": 16}), "age")
    strategy = approximate(work, 0.5, records)
    aim = least_worst_case(dense(work), (0.5 * records) ** -2.0)
    assert forecast_of(strategy).rmse <= aim.worst_error(records) * 1.002
    assert forecast_of(strategy).rmse >= aim.lower_bound * records * (1 - 1e-6)


def test_bias_wins_with_few_records_and_goes_away_with_many() -> None:
    work = sf.prefixes(Domain({"age": 16}), "age")
    unbiased = factorize(dense(work)).lower_bound / 0.5
    assert forecast_of(approximate(work, 0.5, 5)).rmse < unbiased * 0.7
    many = forecast_of(approximate(work, 0.5, 100_000))
    assert many.rmse == pytest.approx(unbiased, rel=3e-3)
    assert many.groups[0].bias < 0.01 * many.rmse


def test_a_public_number_of_records_helps() -> None:
    work = sf.prefixes(Domain({"age": 16}), "age")
    plain = forecast_of(approximate(work, 0.5, 20))
    known = forecast_of(approximate(work, 0.5, 20, is_exact=True))
    assert known.rmse < plain.rmse * 0.85


def test_the_largest_error_is_less_when_it_is_asked_for() -> None:
    domain = Domain({"age": 12})
    work = sf.prefixes(domain, "age") | sf.marginals(domain, 1)
    mean = forecast_of(approximate(work, 0.5, 30))
    largest = forecast_of(approximate(work, 0.5, 30, "max"), "max")
    assert largest.largest_error <= mean.largest_error
    assert mean.rmse <= largest.rmse * (1 + 1e-3)


def test_intervals_and_bounds_are_wider_by_what_the_bias_asks_for() -> None:
    strategy = approximate(sf.prefixes(Domain({"age": 10}), "age"), 0.5, 20)
    forecast = forecast_of(strategy)
    half = forecast.half_widths(0, 0.95)
    errors, bias = forecast.standard_errors(0), 20 * strategy.bias_bounds(0)
    assert (half > 1.95996 * errors).all()
    assert (half <= 1.95997 * errors + bias).all()
    assert (half >= 1.64485 * errors + bias).all()
    assert forecast.error_bound(0.05) > bias.max() + 1.95996 * errors.max()
    assert forecast.certificate is None
    assert forecast.lower_bound is None


def test_wide_conjunctions_go_by_polynomials() -> None:
    work = sf.conjunctions(Domain({f"q{i}": 2 for i in range(14)}), 3)
    assert isinstance(approximate(work, 0.5, 100), ByPolynomial)
    small = sf.conjunctions(Domain({f"q{i}": 2 for i in range(4)}), 2)
    assert isinstance(approximate(small, 0.5, 100), Biased)


def test_what_does_not_fit_is_refused_with_the_reason() -> None:
    work = sf.prefixes(Domain({"age": 10}), "age")
    with pytest.raises(PlanError, match="at least 1, got 0"):
        approximate(work, 0.5, 0)
    with pytest.raises(PlanError, match="mu must be a number above 0, got 0"):
        approximate(work, 0, 10)
    with pytest.raises(PlanError, match="'rmse' or 'max', got 'least'"):
        approximate(work, 0.5, 10, "least")
    with pytest.raises(TooLarge, match="ask about fewer attributes"):
        approximate(sf.ranges(Domain({"age": 5000}), "age"), 0.5, 10)
    with pytest.raises(PlanError, match="only totals"):
        approximate(sf.marginals(Domain({"age": 10}), 0), 0.5, 10)
    with pytest.raises(PlanError, match="better than nothing"):
        approximate(work, 1e-6, 10)
