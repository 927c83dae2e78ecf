# SPDX-License-Identifier: Apache-2.0
"""Sets of conjunctions by degrees against dense matrices, and against the least error of all."""

from __future__ import annotations

from itertools import combinations
from math import comb, sqrt

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import TooLarge
from sfumato.strategy.biased import approximate, bounded_bias, least_worst_case
from sfumato.strategy.conjunctions import ByPolynomial
from sfumato.strategy.degrees import (
    ByDegree,
    SymmetricSet,
    best_shares,
    by_degrees,
    least_gamma,
    least_largest,
    least_replaced,
    least_total,
    optimal_error,
    symmetric_set,
)
from sfumato.strategy.matrix import dense as as_matrix
from sfumato.strategy.neighbours.replace_one import best_for_pairs, for_replace_one
from sfumato.study.matrix_norms import factorize
from sfumato.workload.workload import Workload
from tests.unit.strategy.test_biased import dense, forecast_of, measured_matrix, reconstruction


def cube(d: int) -> sf.Domain:
    return sf.Domain({f"q{i}": 2 for i in range(d)})


def monotone(d: int, widths: tuple[int, ...]) -> Workload:
    sets = [s for w in widths for s in combinations(range(d), w)]
    return sf.predicates(cube(d), [" AND ".join(f"q{i} = 1" for i in s) or "true" for s in sets])


def whole(d: int) -> Workload:
    return sf.product(cube(d), {f"q{i}": [[1, 1], [0, 1]] for i in range(d)})


def matrix(d: int, widths: tuple[int, ...]) -> np.ndarray:
    sets = [sum(1 << i for i in s) for w in widths for s in combinations(range(d), w)]
    return np.array([[float(t & x == t) for x in range(2**d)] for t in sets])


def weights(d: int, widths: tuple[int, ...]) -> np.ndarray:
    return np.array([float(w in widths) for w in range(d + 1)])


CASES = [(4, (2,)), (5, (1, 3)), (4, (0, 1, 2, 3, 4)), (6, (3,))]


@pytest.mark.parametrize(("d", "widths"), CASES)
@pytest.mark.parametrize("strength", [3.0, 30.0])
def test_the_least_error_is_that_of_the_whole_matrix(
    d: int, widths: tuple[int, ...], strength: float
) -> None:
    f, own = matrix(d, widths), weights(d, widths).tolist()
    wanted = least_worst_case(f, strength**-2)
    found = optimal_error(own, strength**-2, 1e-3)
    assert wanted.lower_bound * (1 - 1e-9) <= found.error <= wanted.worst_error() * 1.002
    assert found.lower <= wanted.worst_error() * (1 + 1e-9)
    assert found.error <= found.lower * 1.002
    exact = factorize(f)
    gamma = least_gamma(own, 0.0)
    assert gamma.lower * (1 - 1e-9) <= exact.gamma <= gamma.error * 1.002
    some = bounded_bias(f, 0.05)
    found = least_gamma(own, 0.05)
    assert found.lower <= some.gamma * (1 + 1e-9)
    assert some.lower_bound <= found.error * (1 + 1e-9)


def test_all_conjunctions_without_bias_are_a_product() -> None:
    exact = factorize(matrix(5, (0, 1, 2, 3, 4, 5)), tolerance=1e-5)
    assert least_gamma([1.0] * 6, 0.0).error == pytest.approx(exact.gamma, rel=1e-4)
    strategy = by_degrees(whole(5), read(whole(5)))
    assert strategy.weighted_error() == pytest.approx(strategy.bound)


def read(work: Workload) -> SymmetricSet:
    asked = symmetric_set(work)
    assert asked is not None
    return asked


MIXED = ["q0 = 1", "q1 = 0", "q2 = 1", "q3 = 0"]
WORKLOADS = {
    "all": lambda: whole(4),
    "one width": lambda: monotone(5, (3,)),
    "weighted": lambda: monotone(4, (1,)) | 3 * monotone(4, (3,)),
    "negations": lambda: sf.predicates(cube(4), [" AND ".join(s) for s in combinations(MIXED, 2)]),
}


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("records", [None, 3, 40])
def test_what_is_stated_is_what_the_matrices_say(name: str, records: int | None) -> None:
    work = WORKLOADS[name]()
    strategy = by_degrees(work, read(work), records, 0.5)
    forecast = forecast_of(strategy)
    r, _ = reconstruction(strategy)
    m = measured_matrix(strategy)
    bias = r @ m - dense(work)
    if records is None:
        assert np.abs(bias).max() < 1e-12
    noise = np.repeat(forecast.block_variances, [b.term.rows for b in strategy.blocks])
    terms = range(len(work.terms))
    variances = np.concatenate([strategy.variances(t, forecast.block_variances) for t in terms])
    np.testing.assert_allclose(variances, r**2 @ noise, rtol=1e-9)
    bounds = np.concatenate([strategy.bias_bounds(t) for t in terms])
    assert bounds == pytest.approx(np.abs(bias).max(axis=1), rel=1e-6, abs=1e-8)
    assert strategy.squared_bias() == pytest.approx((bias**2).sum(axis=0).max(), abs=1e-7)
    squares = np.repeat(np.array(strategy.shares) ** 2, [b.term.rows for b in strategy.blocks])
    assert strategy.sensitivity(2).power == pytest.approx(float((squares @ m**2).max()))
    rows = slice(0, work.terms[0].rows)
    some = np.arange(work.terms[0].rows) + 1.0
    back = strategy.adjoint(0, some)
    found = np.concatenate([back[b] for b in range(len(strategy.blocks))])
    np.testing.assert_allclose(found, r[rows].T @ some, atol=1e-9 * np.abs(some).sum())


def test_the_reconstruction_is_the_best_for_the_worst_data() -> None:
    """No other shares and no other data weights found by chance do better or prove more."""
    own, tau = np.ones(7), 0.03**2
    best = best_shares(own, tau)
    assert optimal_error(own.tolist(), tau).lower <= sqrt(best.error)
    work = whole(6)
    strategy = by_degrees(work, read(work), 33, 1.0)
    error = 33**2 * strategy.squared_bias() + strategy.weighted_error()
    assert error / 64 == pytest.approx(33**2 * best_shares(own, 33.0**-2).error, rel=1e-4)


@pytest.mark.parametrize(("d", "n"), [(10, 10), (10, 100), (20, 100), (30, 100)])
def test_characters_come_near_the_least_error(d: int, n: int) -> None:
    tau = n**-2.0
    shares, best = best_shares(np.ones(d + 1), tau), optimal_error([1.0] * (d + 1), tau, 1e-2)
    assert best.lower <= best.error <= best.lower * 1.01
    assert best.lower <= sqrt(shares.error) <= best.lower * 1.06
    assert n * sqrt(shares.error) < ((1 + sqrt(5)) / sqrt(8)) ** d  # a bias pays


def test_sets_are_read_in_every_writing_and_others_are_not() -> None:
    by_predicates = monotone(4, (0, 1, 2, 3, 4)).normal.workload
    for work in (whole(4), by_predicates):
        assert read(work).weights.tolist() == [1.0] * 5
    half = sf.predicates(cube(3), ["q0 = 1 AND q1 = 1", "q0 = 1 AND q2 = 1"])
    twice = sf.predicates(cube(2), ["q0 = 1 AND q1 = 1", "q1 = 1 AND q0 = 1"])
    both = sf.predicates(cube(2), ["q0 = 1", "q1 = 0", "q0 = 1 AND q1 = 1"])
    either = sf.predicates(cube(2), ["q0 = 1 OR q1 = 1"])
    wide = sf.marginals(sf.Domain({"a": 3, "b": 2}), 2)
    for work in (half, twice, both, either, wide, sf.conjunctions(cube(4), 2)):
        assert symmetric_set(work) is None
    assert read(whole(30)).weights.tolist() == [1.0] * 31
    assert symmetric_set(whole(41)) is None


def test_plans_are_equal_for_equal_sets() -> None:
    d, budget = 8, sf.Budget(mu=1)
    plans = [sf.plan(w, budget) for w in (whole(d), monotone(d, tuple(range(d + 1))))]
    assert plans[0].forecast.rmse == pytest.approx(plans[1].forecast.rmse)
    assert plans[0].forecast.rmse == pytest.approx(((1 + sqrt(5)) / sqrt(8)) ** d, rel=1e-4)
    assert plans[0].forecast.certificate == pytest.approx(1.0)
    some = [sf.plan(w.workload, budget, allow_bias=True, records=30) for w in plans]
    assert some[0].forecast.rmse == pytest.approx(some[1].forecast.rmse)
    assert some[0].forecast.rmse < 0.95 * plans[0].forecast.rmse


def test_all_conjunctions_of_twenty_attributes_are_planned_at_their_optimum() -> None:
    plan = sf.plan(whole(20), sf.Budget(mu=1))
    assert plan.forecast.rmse == pytest.approx(14.772, rel=1e-3)
    assert plan.forecast.certificate == pytest.approx(1.0, abs=1e-6)


PLANS = {
    "rmse": {},
    "max": {"objective": "max"},
    "replaced": {"neighbours": "replace-one"},
    "replaced, max": {"neighbours": "replace-one", "objective": "max"},
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("d", [24, 30, 40])
def test_all_conjunctions_are_planned_without_listing_them(name: str, d: int) -> None:
    plan = sf.plan(whole(d), sf.Budget(mu=1), **PLANS[name])
    assert plan.certificate is not None
    assert 1 <= plan.certificate <= 1.002
    per_attribute = 2 / sqrt(3) if "max" in name else (1 + sqrt(5)) / sqrt(8)
    wanted = per_attribute**d * (sqrt(2) if "replaced" in name else 1)
    reached = plan.largest_error if "max" in name else plan.rmse
    assert reached == pytest.approx(wanted, rel=2e-3)
    with pytest.raises(TooLarge, match="can be planned, but not released"):
        plan.release({f"q{i}": [0, 1] for i in range(d)})


def test_pure_and_biased_plans_of_thirty_attributes_are_forecast() -> None:
    pure = sf.plan(whole(30), sf.Budget(epsilon=1))
    assert pure.rmse == pytest.approx(sqrt(2) * 1.5**15, rel=0.05)
    assert pure.certificate is not None
    assert pure.certificate < 8
    biased = sf.plan(whole(30), sf.Budget(mu=1), allow_bias=True, records=100)
    assert biased.mechanism == "approximate"
    assert biased.rmse == pytest.approx(100 * sqrt(best_shares(np.ones(31), 1e-4).error), rel=1e-3)


@pytest.mark.parametrize("widths", [(0, 1, 2, 3, 4), (2,), (1, 3), (0, 4)])
def test_the_largest_error_is_near_its_bound_and_the_bound_below_a_matrix(
    widths: tuple[int, ...],
) -> None:
    work = monotone(4, widths)
    family = read(work)
    strategy = by_degrees(work, family, objective="max")
    rival = as_matrix(work, "max").weighted_error("max")
    assert strategy.bound is not None
    assert strategy.bound == pytest.approx(least_largest(family.weights))
    assert strategy.bound <= rival * (1 + 1e-6)
    assert strategy.weighted_error("max") >= strategy.bound * (1 - 1e-9)
    mean = by_degrees(work, family)
    assert strategy.weighted_error("max") <= mean.weighted_error("max") * (1 + 1e-4)
    if len(widths) == 5:
        assert strategy.weighted_error("max") == pytest.approx((4 / 3) ** 4)


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("widths", [(0, 1, 2, 3, 4), (2,), (1, 3)])
def test_replaced_records_move_no_more_than_is_stated_and_the_bound_holds(
    widths: tuple[int, ...], drops: bool
) -> None:
    work = monotone(4, widths)
    family = read(work)
    for objective in ("rmse", "max"):
        strategy = for_replace_one(by_degrees(work, family, objective=objective), objective, drops)
        if isinstance(strategy, ByDegree):
            m = measured_matrix(strategy)
            shares = np.repeat(strategy.shares, [b.term.rows for b in strategy.blocks])
            columns = (shares[:, None] * m).T
            columns = np.vstack([columns, np.zeros((1, columns.shape[1]))]) if drops else columns
            moves = ((columns[:, None] - columns[None]) ** 2).sum(axis=2)
            stated = strategy.sensitivity(2, "replace-one", drops).power
            assert stated == pytest.approx(moves.max())
            assert stated >= moves.max() * (1 - 1e-12)
        bound = strategy.replace_one_bound
        assert bound is not None
        assert strategy.weighted_error(objective, "replace-one", drops) >= bound * (1 - 1e-9)
    rival = best_for_pairs(work, "rmse", drops)
    assert rival is not None
    error = rival.weighted_error("rmse", "replace-one", drops)
    assert least_replaced(family.weights, drops) <= error * (1 + 1e-9)
    assert least_total(family.weights) == pytest.approx(by_degrees(work, family).bound)


def test_the_largest_error_with_a_bias_is_what_the_matrices_say() -> None:
    work = monotone(4, (1, 2))
    strategy = by_degrees(work, read(work), 3, 0.5, "max")
    r, _ = reconstruction(strategy)
    bias = r @ measured_matrix(strategy) - dense(work)
    noise = [share**-2 for share in strategy.shares]
    rows = [b.term.rows for b in strategy.blocks]
    wanted = r**2 @ np.repeat(noise, rows) + (3 * np.abs(bias).max(axis=1)) ** 2
    assert strategy.maximum_error(0, noise, 3) == pytest.approx(float(wanted.max()), rel=1e-5)


def test_one_width_is_measured_by_the_kind_of_less_error() -> None:
    work = monotone(9, (2,))
    assert isinstance(approximate(monotone(9, (8,)), 0.5, 20), ByDegree | ByPolynomial)
    strategy = approximate(work, 0.5, 20)
    wanted = optimal_error(weights(9, (2,)).tolist(), 0.1**2)
    queries = comb(9, 2)
    reached = 20**2 * strategy.squared_bias() + strategy.weighted_error() / 0.5**2
    assert 20 * wanted.lower <= sqrt(reached / queries) <= 20 * wanted.lower * 1.2
