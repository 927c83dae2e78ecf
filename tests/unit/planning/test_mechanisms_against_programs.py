# SPDX-License-Identifier: Apache-2.0
"""Certified errors and lower bounds against semidefinite programs, solved by other people's code.

``min tr(Y)`` over ``[[Y, L'], [L, X]] >= 0`` and ``X_jj <= 1``, with ``L L' = F' W F``, is
``k gamma^2`` (Schur complement: ``Y >= L' X^-1 L``); the largest error is the least t with
``q' X^-1 q <= t`` for every query q.
"""

from __future__ import annotations

from functools import cache
from math import sqrt

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.attributes import Category, Integer
from sfumato.planning.forecast import Forecast
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.privacy.noise_laws import whole_gain
from tests.shared.dense import dense_workload
from tests.shared.every_mechanism import WORKLOADS, planned

SMALL = [name for name, work in WORKLOADS.items() if work.domain.size <= 12]
GAUSSIAN = [name for name, (_, noise) in MECHANISMS.items() if noise == "gaussian"]
SOLVED = 1e-4  # how closely the other solver solves


def weighted_rows(work: sf.Workload) -> np.ndarray:
    """Every query times its weight."""
    weights = np.concatenate([np.full(t.rows, t.weight) for t in work.terms])
    return weights[:, None] * dense_workload(work)


def least_sum(rows: np.ndarray) -> float:
    """The least ``tr(V X^-1)`` over ``X_jj <= 1``."""
    import cvxpy as cp

    values, vectors = np.linalg.eigh(rows.T @ rows)
    kept = values > values[-1] * 1e-12
    root = vectors[:, kept] * np.sqrt(values[kept])
    cells, rank = root.shape
    whole = cp.Variable((rank + cells, rank + cells), PSD=True)
    limits = [whole[rank:, :rank] == root, cp.diag(whole)[rank:] <= 1]
    problem = cp.Problem(cp.Minimize(cp.trace(whole[:rank, :rank])), limits)
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


def least_largest(rows: np.ndarray) -> float:
    """The least ``max_q q' X^-1 q`` over ``X_jj <= 1``."""
    import cvxpy as cp

    distinct = np.unique(rows, axis=0)
    asked = distinct[np.abs(distinct).max(axis=1) > 0]
    x = cp.Variable((rows.shape[1], rows.shape[1]), PSD=True)
    errors = cp.hstack([cp.matrix_frac(row, x) for row in asked])
    problem = cp.Problem(cp.Minimize(cp.max(errors)), [cp.diag(x) <= 1])
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


@cache
def optimum(work: str, objective: str) -> float:
    rows = weighted_rows(WORKLOADS[work].normal.workload)  # every query once, as it is planned
    return least_sum(rows) if objective == "rmse" else least_largest(rows)


@pytest.mark.parametrize("work", SMALL)
def test_no_gaussian_mechanism_beats_the_program_and_no_bound_exceeds_it(work: str) -> None:
    true = optimum(work, "rmse")
    for mechanism in GAUSSIAN:
        plan = planned(mechanism, work)
        if plan is None:
            continue
        error = plan.strategy.weighted_error()
        assert error >= true * (1 - SOLVED), mechanism
        if plan.certificate is not None:
            assert error / plan.certificate**2 <= true * (1 + SOLVED), mechanism


@pytest.mark.parametrize("work", SMALL)
def test_the_factorization_of_a_matrix_reaches_the_program(work: str) -> None:
    """Unweighted, as ``sf.factorize`` takes matrices."""
    rows = dense_workload(WORKLOADS[work])
    found = sf.factorize(rows, tolerance=1e-5)
    true = sqrt(least_sum(rows) / len(rows))
    np.testing.assert_allclose(found.R @ found.M, rows, atol=1e-9)
    assert found.lower_bound <= true * (1 + SOLVED)
    assert found.gamma == pytest.approx(true, rel=2 * SOLVED)


@pytest.mark.parametrize("work", SMALL)
def test_the_planned_factorization_reaches_the_program(work: str) -> None:
    plan = planned("factorization", work)
    if plan is None or plan.certificate is None or plan.certificate > 1.001:
        return
    assert plan.strategy.weighted_error() == pytest.approx(optimum(work, "rmse"), rel=3e-3)


def test_the_program_would_notice_a_bound_that_is_too_high() -> None:
    """The twin: half a per cent more than the optimum is not passed as a lower bound."""
    rows = dense_workload(WORKLOADS["prefixes"])
    found = sf.factorize(rows, tolerance=1e-5)
    assert found.lower_bound * 1.005 > sqrt(least_sum(rows) / len(rows)) * (1 + SOLVED)


@pytest.mark.parametrize("work", SMALL)
def test_no_gaussian_mechanism_has_a_smaller_largest_error_than_the_program(work: str) -> None:
    true = sqrt(optimum(work, "max"))
    for mechanism in GAUSSIAN:
        plan = planned(mechanism, work, "add-remove", "max")
        if plan is None:
            continue
        pairs = zip(plan.groups, plan.workload.terms, strict=True)
        reached = max(g.largest * t.weight for g, t in pairs)
        assert reached >= true * (1 - SOLVED), mechanism
        if plan.certificate is not None:
            # noise scales are rounded up to their grid, by less than one part in 2^15
            assert reached / plan.certificate <= true * (1 + SOLVED), mechanism


LAPLACE = [name for name, (_, noise) in MECHANISMS.items() if noise == "laplace"]


def objective_error(forecast: Forecast) -> float:
    """The weighted error of the queries in normal form, which certificates speak of."""
    strategy = forecast.strategy.in_normal_form
    totals, greatest = strategy.group_variances(forecast.block_variances)
    weights = [t.weight**2 for t in strategy.workload.terms]
    if forecast.objective == "max":
        return sqrt(max(w * v for w, v in zip(weights, greatest, strict=True)))
    return sqrt(sum(w * v for w, v in zip(weights, totals, strict=True)))


def laplace_forecasts(work: str, objective: str, neighbours: str, epsilon: float) -> list[Forecast]:
    """Every strategy with Laplace noise, each on its own grid, at one budget."""
    plans = [p for m in LAPLACE if (p := planned(m, work, neighbours, objective)) is not None]
    forecasts = [p.forecast.at(sf.Budget(epsilon=epsilon)) for p in plans]
    return [f for f in forecasts if f is not None]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("objective", ["rmse", "max"])
@pytest.mark.parametrize("work", WORKLOADS)
def test_no_laplace_mechanism_beats_the_bound_of_another(
    work: str, objective: str, neighbours: str
) -> None:
    """At any epsilon: in whole steps of the measured values noise errs less where that is large."""
    for epsilon in (0.1, 1.0, 3.0, 8.0, 40.0):
        forecasts = laplace_forecasts(work, objective, neighbours, epsilon)
        least = min(objective_error(f) for f in forecasts)
        for forecast in forecasts:
            if forecast.certificate is not None:
                assert forecast.certificate >= 1 - 1e-12
                bound = objective_error(forecast) / forecast.certificate
                assert bound <= least * (1 + 1e-6), (forecast.mechanism, epsilon)


def test_a_bound_for_noise_without_a_grid_would_be_beaten() -> None:
    """The twin: fine noise, certified as if no other could be drawn in whole steps."""
    forecasts = laplace_forecasts("explicit", "max", "add-remove", 1.0)
    fine = next(f for f in forecasts if not f.tails.scales)
    assert fine.certificate is not None
    wrong = fine.certificate * whole_gain(1.0)
    assert objective_error(fine) / wrong > 1.03 * min(objective_error(f) for f in forecasts)


def least_of_few(rows: np.ndarray, coordinates: np.ndarray, objective: str) -> float:
    """The same for queries ``coordinates @ rows``: X = rows' Y rows, with any number of cells."""
    import cvxpy as cp

    y = cp.Variable((len(rows), len(rows)), PSD=True)
    limits = [cp.sum(cp.multiply(rows, y @ rows), axis=0) <= 1]
    errors = cp.hstack([cp.matrix_frac(query, y) for query in coordinates])
    least = cp.max(errors) if objective == "max" else cp.sum(errors)
    problem = cp.Problem(cp.Minimize(least), limits)
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


@pytest.mark.parametrize("objective", ["rmse", "max"])
@pytest.mark.parametrize(("most", "groups"), [(99, 2), (999, 2), (9_999, 2), (299, 60)])
def test_counts_beside_sums_of_a_long_attribute_are_the_optimum_of_few_queries(
    most: int, groups: int, objective: str
) -> None:
    """Per group a count, and a sum with weight 1 / most."""
    jobs = tuple(f"job {i}" for i in range(groups))
    people = sf.Domain([Integer("income", 0, most), Category("job", jobs)])
    work = sf.marginals(people, [("job",)]) | sf.sums(people, "income", by=["job"])
    shares = np.arange(most + 1) / most
    rows, asked = np.array([np.ones_like(shares), shares]), np.array([[1.0, 0], [0, 1]])
    copies = groups if objective == "rmse" else 1
    true = copies * least_of_few(rows, asked, objective)
    plan = sf.plan(
        work,
        sf.Budget(mu=1),
        mechanism="factorization",
        objective=objective,
        seconds=None,
        cache=False,
    )
    strategy = plan.strategy
    error = strategy.weighted_error(objective)
    assert strategy.bound is not None
    assert strategy.bound <= true * (1 + SOLVED)
    assert true * (1 - SOLVED) <= error <= true * (1 + 6 * SOLVED)
    assert plan.certificate is not None
    assert plan.certificate <= 1.0003
