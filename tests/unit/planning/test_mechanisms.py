# SPDX-License-Identifier: Apache-2.0
"""Every mechanism on every kind of workload: what it states of itself against dense matrices.

New mechanisms and workloads are covered by being listed in ``planner.MECHANISMS`` and in
``every_mechanism.workloads``. A mechanism may refuse a workload; each must take several.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

import sfumato as sf
from sfumato.planning.mechanisms import FLOORS, MECHANISMS
from sfumato.run.linear import Plan
from sfumato.types import Objective
from sfumato.vault.mechanisms.measure import add_noise, exact_values
from tests.shared.every_mechanism import (
    CASES,
    UNEVEN_CASES,
    WORKLOADS,
    Dense,
    answers,
    counted,
    dense,
    moves,
    planned,
    replacements,
    table_of,
)
from tests.shared.words import SeededWords

NEIGHBOURS = ("add-remove", "replace-one")
REPEATS = 1500
DEVIATIONS = 6.0  # a normal variable is beyond this once in 5 * 10^8 times


def noise_power(plan: Plan) -> int:
    return 2 if plan.strategy.noise == "gaussian" else 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_takes_several_of_the_workloads(mechanism: str) -> None:
    """Otherwise the tests below would skip it and prove nothing."""
    assert sum(planned(mechanism, work) is not None for work in WORKLOADS) >= 2


@pytest.mark.parametrize(("mechanism", "work"), CASES)
def test_answers_without_noise_are_exactly_what_is_asked(mechanism: str, work: str) -> None:
    """``R M = F``, for one record in every cell and for a random histogram."""
    plan = planned(mechanism, work)
    if plan is None:
        return
    seen = dense(plan)
    product = sum(r @ m for r, m in zip(seen.r, seen.m, strict=True))
    np.testing.assert_allclose(product, seen.f, atol=1e-9 * max(1.0, np.abs(seen.f).max()))
    histogram = np.random.default_rng(1).integers(0, 1000, size=seen.f.shape[1])
    values = [counted(b.term, histogram) for b in plan.strategy.blocks]
    truth = seen.f @ histogram
    np.testing.assert_allclose(answers(plan, values), truth, atol=1e-9 * np.abs(truth).max())


@pytest.mark.parametrize("objective", ["rmse", "max"])
@pytest.mark.parametrize(("mechanism", "work"), CASES)
def test_stated_variances_are_the_squared_rows_of_the_reconstruction(
    mechanism: str, work: str, objective: str
) -> None:
    plan = planned(mechanism, work, "add-remove", objective)
    if plan is None:
        return
    seen, strategy = dense(plan), plan.strategy
    tried = np.random.default_rng(2).uniform(0.5, 2, len(strategy.blocks))
    for noise in (tried, np.array(plan.block_variances)):
        true = sum(v * (r**2).sum(axis=1) for v, r in zip(noise, seen.r, strict=True))
        first = 0
        for t, term in enumerate(plan.workload.terms):
            own = true[first : first + term.rows]
            first += term.rows
            stated = np.asarray(strategy.variances(t, list(noise)))
            np.testing.assert_allclose(stated, own, rtol=1e-6, atol=1e-9 * own.max())
            assert strategy.total_variance(t, list(noise)) == pytest.approx(own.sum(), rel=1e-6)
            greatest = strategy.maximum_variance(t, list(noise))
            assert greatest == pytest.approx(own.max(), rel=1e-6)
    true_rmse = sqrt(true.mean())
    assert plan.rmse == pytest.approx(true_rmse, rel=1e-6)
    assert plan.largest_error == pytest.approx(sqrt(true.max()), rel=1e-6)


@pytest.mark.parametrize(("mechanism", "work"), CASES)
def test_only_gaussian_noise_adds_up_to_gaussian_noise(mechanism: str, work: str) -> None:
    """Intervals of Laplace noise would else be those of a normal law, and too short."""
    plan = planned(mechanism, work)
    if plan is None or plan.strategy.noise == "gaussian":
        return
    seen = dense(plan)
    carried = sum((np.abs(r) > 0).sum(axis=1) for r in seen.r)
    first = 0
    for t, term in enumerate(plan.workload.terms):
        own = carried[first : first + term.rows]
        first += term.rows
        like = np.asarray(plan.strategy.effective_terms(t))
        assert (like >= 1 - 1e-9).all()
        assert (like <= np.maximum(own, 1) * (1 + 1e-9)).all()


@pytest.mark.parametrize(("mechanism", "work"), CASES)
def test_no_column_is_longer_than_stated(mechanism: str, work: str) -> None:
    plan = planned(mechanism, work)
    if plan is None:
        return
    seen = dense(plan)
    rng = np.random.default_rng(3)
    p = noise_power(plan)
    columns = seen.moved(p, np.eye(seen.f.shape[1]))
    shares = np.array([b.share**p for b in plan.strategy.blocks])
    for scales in (shares, np.ones(len(shares)), rng.uniform(0.1, 3, len(shares))):
        true = float((scales @ columns).max())
        stated = plan.strategy.sensitivity(p, scales=list(scales))
        assert true <= stated.power
        if stated.is_exact:
            assert stated.power <= true * (1 + 1e-6)
        # never worse than adding up the longest column of every block
        assert stated.power <= float(scales @ columns.max(axis=1)) * (1 + 1e-6)


@pytest.mark.parametrize(("mechanism", "work"), CASES)
def test_no_two_columns_are_farther_apart_than_stated(mechanism: str, work: str) -> None:
    plan = planned(mechanism, work)
    if plan is None or plan.strategy.noise == "laplace":  # calibrated to twice the longest column
        return
    seen = dense(plan)
    moved = seen.moved(2, replacements(seen.f.shape[1]))
    for true, stated in zip(moved.max(axis=1), plan.strategy.block_diameters(2), strict=True):
        assert true <= stated * (1 + 1e-12)


def true_loss(plan: Plan, seen: Dense) -> float:
    """``mu^2`` or ``epsilon`` of the noise that is added, over all neighbours, by brute force."""
    p = noise_power(plan)
    scales = np.array([n.scale**-p for n in plan.noise])
    return float((scales @ seen.moved(p, moves(plan.forecast))).max())


@pytest.mark.parametrize("objective", ["rmse", "max"])
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize(("mechanism", "work"), [*CASES, *UNEVEN_CASES])
def test_no_pair_of_neighbours_costs_more_than_the_budget(
    mechanism: str, work: str, neighbours: str, objective: str
) -> None:
    plan = planned(mechanism, work, neighbours, objective)
    if plan is None:
        return
    assert true_loss(plan, dense(plan)) <= 1.0  # mu = 1, epsilon = 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_hundredth_less_noise_is_found_out(mechanism: str) -> None:
    """The twin of the test above: on some workload the loss is used up to within a hundredth."""
    found = [plan for work in WORKLOADS if (plan := planned(mechanism, work)) is not None]
    less = [
        replace(p, forecast=replace(p.forecast, noise=noise))
        for p in found
        for noise in [tuple(replace(n, units=int(n.units * 0.99)) for n in p.noise)]
    ]
    assert any(true_loss(cheat, dense(p)) > 1.0 for cheat, p in zip(less, found, strict=True))


def measured_errors(plan: Plan, seen: Dense) -> np.ndarray:
    """Errors of the answers of many real measurements of one histogram: repeats x queries."""
    histogram = np.random.default_rng(4).integers(0, 100, size=seen.f.shape[1])
    words = SeededWords(f"every mechanism {plan.mechanism}")
    noisy = []
    for block, law in zip(plan.strategy.blocks, plan.noise, strict=True):
        exact = exact_values(block.term, table_of(block.term, histogram))
        drawn = add_noise(np.tile(exact, REPEATS), block.term, law, words)
        noisy.append(np.ldexp(drawn.astype(np.float64), -law.grid_bits).reshape(REPEATS, -1))
    answered = [answers(plan, [y[i] for y in noisy]) for i in range(REPEATS)]
    return np.array(answered) - seen.f @ histogram


def is_biased(errors: np.ndarray, variances: np.ndarray) -> bool:
    """Whether the mean error of some answer is beyond chance."""
    z = errors.mean(axis=0) / np.sqrt(variances / len(errors))
    return bool(np.abs(z).max() > DEVIATIONS)


def is_misstated(errors: np.ndarray, variances: np.ndarray) -> bool:
    """Whether the mean square of some answer is beyond chance.

    The variance of a squared error is (kurtosis - 1) variance^2: 2 for the normal law, at most 5
    for sums of Laplace variables.
    """
    z = ((errors**2).mean(axis=0) / variances - 1) / sqrt(5 / len(errors))
    return bool(np.abs(z).max() > DEVIATIONS)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_real_measurements_err_as_stated_and_without_bias(mechanism: str) -> None:
    plan = next(p for w in ("mixed", *WORKLOADS) if (p := planned(mechanism, w)) is not None)
    errors = measured_errors(plan, dense(plan))
    stated = np.concatenate([plan.standard_errors(t) ** 2 for t in range(len(plan.workload.terms))])
    assert not is_biased(errors, stated)
    assert not is_misstated(errors, stated)
    # the twins: half a standard error of bias, or half the variance stated, are found out
    assert is_biased(errors + 0.5 * np.sqrt(stated), stated)
    assert is_misstated(errors, stated / 2)


def test_a_histogram_errs_at_most_three_quarters_of_the_naive_calibration() -> None:
    """Replace-one neighbours: naive noise is 2 ||M||, here the diameter, by brute force sqrt(2)."""
    for sizes in ({"a": 12}, {"a": 4, "b": 3}):
        domain = sf.Domain(sizes)
        work = sf.marginals(domain, len(sizes))
        plan = sf.plan(work, sf.Budget(mu=1), "replace-one")
        seen = dense(plan)
        m = np.vstack([b.share * m for b, m in zip(plan.strategy.blocks, seen.m, strict=True)])
        r = np.hstack([r / b.share for b, r in zip(plan.strategy.blocks, seen.r, strict=True)])
        naive = 2 * sqrt((m**2).sum(axis=0).max()) * sqrt((r**2).sum() / len(r))
        assert plan.rmse <= 0.75 * naive
        assert true_loss(plan, seen) <= 1.0


def test_few_queries_of_an_attribute_too_long_for_pieces_are_one_matrix() -> None:
    domain = sf.Domain({"x": 1100})
    rows = np.random.default_rng(1).integers(0, 2, (12, 1100))
    rows = np.concatenate([rows, np.repeat(rows, 11, axis=0) + rows[[0]]])  # rank 12, 144 queries
    plan = sf.plan(
        sf.explicit(domain, ["x"], rows.astype(float)),
        sf.Budget(mu=1),
        mechanism="factorization",
        cache=False,
    )
    assert plan.workload.queries > 128
    assert plan.certificate is not None
    assert 1 <= plan.certificate <= 1.001


def test_long_attributes_beside_others_share_the_noise_of_their_own_optima() -> None:
    domain = sf.Domain({"x": 1100, "y": 1030, "a": 3})
    union = sf.prefixes(domain, "x") | sf.prefixes(domain, "y") | sf.marginals(domain, [("a",)])
    alone = [
        sf.plan(part, sf.Budget(mu=1), mechanism="factorization", cache=False)
        for part in (
            sf.prefixes(domain, "x"),
            sf.prefixes(domain, "y"),
            sf.marginals(domain, [("a",)]),
        )
    ]
    plan = sf.plan(union, sf.Budget(mu=1), mechanism="factorization", cache=False)
    # Parts with errors e_i at unit noise share it at sum sqrt(e_i), squared.
    roots = [sqrt(p.rmse**2 * p.workload.queries) for p in alone]
    expected = sum(roots) / sqrt(union.queries)
    assert plan.rmse == pytest.approx(expected, rel=1e-3)
    assert plan.certificate is not None
    assert 1 <= plan.certificate <= sqrt(3)


@pytest.mark.parametrize("objective", ["rmse", "max"])
@pytest.mark.parametrize(("mechanism", "work"), CASES)
def test_floors_are_never_above_the_error_of_what_is_built(
    mechanism: str, work: str, objective: Objective
) -> None:
    plan, floor = planned(mechanism, work, "add-remove", objective), FLOORS.get(mechanism)
    if plan is None or floor is None:
        return
    strategy = plan.strategy.in_normal_form
    noise = MECHANISMS[mechanism].noise
    error = sqrt(strategy.weighted_error(objective) / _weight(strategy.workload, objective))
    assert floor(strategy.workload, noise, objective) <= error * (1 + 1e-12)


@pytest.mark.parametrize("objective", ["rmse", "max"])
@pytest.mark.parametrize("mechanism", FLOORS)
def test_floors_are_the_error_itself_where_tables_of_yes_or_no_are_asked(
    mechanism: str, objective: Objective
) -> None:
    """Up to the slack of sensitivities of unequal blocks, 2^-28."""
    domain = sf.Domain({"a": 2, "b": 2, "c": 2, "d": 2})
    pairs = sf.marginals(domain, [("a", "b"), ("b", "c", "d")])
    work = pairs | sf.marginals(domain, [("a",)]) * 2
    build, noise = MECHANISMS[mechanism]
    strategy = build(work, noise, objective)
    error = sqrt(strategy.weighted_error(objective) / _weight(work, objective))
    assert FLOORS[mechanism](work, noise, objective) == pytest.approx(error, rel=1e-8)


def _weight(work: sf.Workload, objective: Objective) -> float:
    return 1.0 if objective == "max" else sum(t.rows * t.weight**2 for t in work.terms)
