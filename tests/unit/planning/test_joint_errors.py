# SPDX-License-Identifier: Apache-2.0
"""Bounds on all answers at once: what they say holds, they are tight, and they are repeatable."""

from __future__ import annotations

from dataclasses import replace
from math import comb, exp

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.planning import joint_errors
from sfumato.planning.forecast import Forecast
from sfumato.planning.joint_errors import JointErrors, order_statistic, seed_share
from sfumato.privacy.noise_laws import BlockNoise
from sfumato.random import Draws
from sfumato.strategy.base import Reconstruction
from sfumato.types import Array
from sfumato.workload.workload import Workload

BETA = 0.05
PURE, GAUSSIAN = sf.Budget(epsilon=1), sf.Budget(epsilon=1, delta="1e-6")
LINE = sf.Domain({"x": 64})
BITS = sf.Domain({f"q{i}": 2 for i in range(6)})
RANDOM = np.random.default_rng(3).integers(0, 2, (60, 32)).astype(float)

CASES: dict[str, tuple[Workload, sf.Budget, str | None]] = {
    "one answer": (sf.prefixes(sf.Domain({"x": 1}), "x"), PURE, "laplace"),
    "laplace": (sf.prefixes(LINE, "x"), PURE, "laplace"),
    "gaussian": (sf.prefixes(LINE, "x"), GAUSSIAN, "gaussian"),
    "table": (sf.marginals(BITS, 2), PURE, "laplace-table"),
    "tree": (sf.prefixes(LINE, "x"), PURE, "laplace-tree"),
    "wavelet": (sf.ranges(sf.Domain({"x": 16}), "x"), PURE, "laplace-wavelet"),
    "prefixes": (sf.prefixes(LINE, "x"), GAUSSIAN, "factorization"),
    "marginals": (sf.marginals(BITS, 3), GAUSSIAN, "factorization"),
    "fourier": (sf.marginals(BITS, 3), PURE, "laplace-fourier"),
    "explicit": (sf.explicit(sf.Domain({"x": 32}), ["x"], RANDOM), PURE, "laplace-optimum"),
}


def _planned(case: str) -> sf.Plan:
    work, budget, mechanism = CASES[case]
    return sf.plan(work, budget, mechanism=mechanism, cache=False)


def _reconstruction(forecast: Forecast) -> Array:
    """R, one measured value after the other, by what answers a release."""
    strategy = forecast.strategy
    edges = np.cumsum(strategy.block_rows)[:-1]
    units = np.eye(sum(strategy.block_rows))
    return np.stack([np.concatenate(strategy.answers(np.split(u, edges))) for u in units], axis=1)


def _farthest(forecast: Forecast, draws: int, seed: int) -> Array:
    """The farthest answer of fresh noise, by another generator.

    A difference of two geometric variables with success probability 1 - exp(-1 / steps) has the
    discrete Laplace law; the grid of Gaussian noise is too fine to matter.
    """
    rng, matrix = np.random.default_rng(seed), _reconstruction(forecast)
    rows, laws = forecast.strategy.block_rows, forecast.noise
    scales = np.repeat([n.scale for n in laws], rows)[:, None]
    size = (len(scales), draws)
    if forecast.strategy.noise == "gaussian":
        return np.asarray(np.abs(matrix @ (rng.normal(size=size) * scales)).max(axis=0))
    success = -np.expm1(-1 / np.repeat([float(n.steps) for n in laws], rows))[:, None]
    whole = rng.geometric(success, size) - rng.geometric(success, size)
    steps = np.repeat([2.0**-n.grid_bits for n in laws], rows)[:, None]
    return np.asarray(np.abs(matrix @ (whole * steps)).max(axis=0))


@pytest.mark.parametrize("case", CASES)
def test_the_bound_holds_and_is_within_a_tenth_of_the_quantile(case: str) -> None:
    plan = _planned(case)
    bound, drawn = plan.error_bound(BETA), _farthest(plan.forecast, 10_000, seed=11)
    allowed = BETA + 4 * (BETA / len(drawn)) ** 0.5  # beyond with probability 3e-5
    assert np.mean(drawn > bound) < allowed
    assert np.mean(drawn > 0.85 * bound) > allowed  # a twin that must fail
    assert bound < 1.1 * np.quantile(drawn, 1 - BETA)


@pytest.mark.parametrize("case", ["table", "tree", "fourier", "prefixes"])
def test_each_bound_holds_by_itself(case: str) -> None:
    """Tails with rows of R, tails with moments of rows alone, and simulation."""
    forecast = _planned(case).forecast
    drawn = _farthest(forecast, 10_000, seed=5)
    joint, implicit = JointErrors(forecast), JointErrors(forecast)
    implicit.__dict__["_matrix"] = None
    for beta in (0.3, 0.05, 1e-3):
        allowed = beta + 4 * (beta / len(drawn)) ** 0.5
        bounds = [joint.by_tails(beta), implicit.by_tails(beta), joint.by_simulation(beta)]
        assert all(np.mean(drawn > bound) < allowed for bound in bounds)
        # Noise in whole steps has twice the tail, and the union bound in place of Sidak's.
        assert bounds[0] < (1.5 if forecast.tails.scales else 1.35) * np.quantile(drawn, 1 - beta)
        assert bounds[0] <= bounds[1] * (1 + 1e-6)


def test_the_bound_of_a_biased_plan_holds_for_the_worst_data() -> None:
    """All records in one cell: the bias is greatest, and noise comes on top of it."""
    work, records, draws = sf.prefixes(sf.Domain({"x": 24}), "x"), 20, 4000
    plan = sf.plan(
        work, sf.Budget(mu=0.5), mechanism="approximate", records=records, allow_bias=True
    )
    strategy, rng = plan.strategy, np.random.default_rng(8)
    assert strategy.records == records
    noise = plan.forecast.noise[0].scale * rng.normal(size=(draws, sum(strategy.block_rows)))
    spread = np.array([strategy.answer(0, [z]) - strategy.answer(0, [0 * z]) for z in noise])
    allowed, measured = BETA + 4 * (BETA / draws) ** 0.5, strategy.blocks[0].term
    of_noise = np.quantile(np.abs(spread).max(axis=1), 1 - BETA)
    misses = []
    for cell, table in enumerate(records * np.eye(24)):
        bias = strategy.answer(0, [measured.answer(table)]) - records * (np.arange(24) >= cell)
        farthest = np.abs(bias + spread).max(axis=1)
        assert np.mean(farthest > plan.error_bound(BETA)) < allowed
        misses.append(np.mean(farthest > of_noise))
    assert max(misses) > allowed  # a twin without the bias


def _tail(scales: list[float], t: float, is_smooth: bool = True) -> tuple[float, float]:
    """The bound on ``P(|sum a L| > t)`` by the draws themselves, and by their moments alone."""
    a = np.array(scales)
    strategy = sf.plan(
        sf.marginals(sf.Domain({"x": len(a)}), 1), PURE, mechanism="laplace"
    ).strategy
    noise = (BlockNoise("laplace", 2**16, 16),)
    forecast = Forecast(strategy.workload, PURE, "add-remove", "rmse", None, strategy, noise, ())
    rows = joint_errors._of_rows(a[None, :], forecast)
    second = np.array([(a**2).sum()])
    shapes = second**2 / (a**4).sum()
    moments = joint_errors._of_moments(np.zeros(1, dtype=int), second, shapes)
    at = np.array([t])
    return float(rows.above(at, is_smooth)[0]), float(moments.above(at, is_smooth)[0])


@pytest.mark.parametrize("t", [1.0, 4.0, 12.0, 30.0])
def test_laplace_tails_are_above_closed_forms(t: float) -> None:
    for scale in (1.0, 0.3):
        single = exp(-t / scale)
        assert _tail([scale], t) == pytest.approx((single, single), rel=1e-4 * t / scale)
    two, unequal = exp(-t) * (1 + t / 2), (exp(-t) - 0.25 * exp(-2 * t)) / 0.75
    for scales, exact in (([1.0, 1.0], two), ([1.0, 0.5], unequal)):
        rows, moments = _tail(scales, t)
        assert exact * (1 - 1e-9) <= min(rows, moments)
        assert rows <= 1.01 * moments
        assert rows < 3 * exact


@pytest.mark.parametrize(("draws", "ratio"), [(12, 1.7), (100, 1.2)])
def test_tails_of_sums_of_many_draws_are_near_their_law(draws: int, ratio: float) -> None:
    """A sum of n Laplace variables is a difference of two gamma variables of shape n."""
    from scipy.integrate import quad
    from scipy.stats import gamma

    for deviations in (2.0, 4.0, 6.0):
        t = deviations * (2 * draws) ** 0.5
        law = quad(
            lambda y, t=t: gamma.pdf(y, draws) * gamma.sf(t + y, draws),
            0,
            5 * draws,
            epsabs=0,
            points=[draws],
        )
        exact = 2 * law[0]
        rows, moments = _tail([1.0] * draws, t)
        assert exact * (1 - 1e-6) < rows < ratio * exact
        assert rows <= 1.05 * moments
        assert min(_tail([1.0] * draws, t, is_smooth=False)) > 2 * exact  # exponential moments


def test_the_tail_of_a_normal_of_random_variance_is_the_greatest_over_variances() -> None:
    from scipy.special import erfc

    variances = np.exp(np.linspace(-12, 12, 20_001))
    for x in (1e-3, 0.1, 1.0, 20.0, 100.0, 300.0):
        listed = np.log(erfc(np.sqrt(x / 2 / variances)) + 1e-320) - x * variances / 2
        table = float(joint_errors._mixed(np.array(x)))
        assert listed.max() <= table < listed.max() + 1e-4 * max(x, 1)
    assert joint_errors._mixed(np.array(0.0)) == 0.0


def test_classes_are_the_same_by_their_numbers_and_by_sorting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(4)
    values, others = rng.exponential(size=500), rng.integers(1, 9, 500).astype(float)
    values[:3] = 0.0
    own = joint_errors._members(values[3:], others[3:])
    assert len(joint_errors._members(values, others)) == 500
    monkeypatch.setattr(joint_errors, "LIMITS", replace(joint_errors.LIMITS, joint_codes=1))
    assert np.array_equal(own, joint_errors._members(values[3:], others[3:]))


def test_the_order_statistic_is_that_of_the_binomial_law() -> None:
    draws, beta = 400, 0.05
    seeds = beta * seed_share(draws, beta)
    p, total, j = beta - seeds, 0.0, 0
    while True:
        total += comb(draws, j) * p**j * (1 - p) ** (draws - j)
        if total > seeds:
            break
        j += 1
    assert order_statistic(draws, beta) == j > 0
    assert order_statistic(100, beta) == order_statistic(0, beta) == 0


def test_few_draws_give_seeds_a_greater_share_and_a_nearer_bound() -> None:
    """The fifth greatest of 288, not the greatest: with the least share it would be that."""
    shares = joint_errors.LIMITS.seed_shares
    assert joint_errors._rank(288, BETA, shares[0]) == 1
    assert order_statistic(288, BETA) == max(joint_errors._rank(288, BETA, s) for s in shares) == 5
    assert order_statistic(150, BETA) == 1
    assert seed_share(joint_errors.LIMITS.joint_draws, BETA) == min(shares)
    ranks = [order_statistic(n, BETA) for n in range(100, 3000, 50)]
    assert ranks == sorted(ranks)


PLANE = sf.Domain({"x": 9, "y": 6, "z": 2})
RANGES = {
    "one attribute": sf.ranges(sf.Domain({"x": 13}), "x"),
    "two attributes": sf.product(PLANE, {"x": "ranges", "y": "ranges"}),
    "by groups": sf.ranges(PLANE, "x", by=["z"]) | sf.marginals(PLANE, [("y", "z")]),
    "circular": sf.circular_ranges(sf.Domain({"x": 12}), "x"),
}
MECHANISMS = (
    "laplace-table", "laplace-tree", "laplace-wavelet", "laplace-weighted-tree", "laplace-optimum",
    "gaussian-weighted-tree", "factorization", "laplace", "gaussian-groups",
)  # fmt: skip


TREES = ("laplace-tree", "laplace-wavelet", "laplace-weighted-tree", "gaussian-weighted-tree")
UNFIT = {("circular", mechanism) for mechanism in TREES}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("case", RANGES)
def test_the_farthest_range_is_read_from_running_totals(case: str, mechanism: str) -> None:
    budget = PURE if mechanism.startswith("laplace") else GAUSSIAN
    if (case, mechanism) in UNFIT:
        with pytest.raises(PlanError):
            sf.plan(RANGES[case], budget, mechanism=mechanism)
        return
    forecast = sf.plan(RANGES[case], budget, mechanism=mechanism).forecast
    forecast = replace(
        forecast,
        workload=forecast.strategy.in_normal_form.workload,
        strategy=forecast.strategy.in_normal_form,
    )
    strategy, rng = forecast.strategy, np.random.default_rng(2)
    noise = rng.laplace(size=(sum(strategy.block_rows), 20))
    edges = np.cumsum(strategy.block_rows)[:-1]
    each = [np.concatenate(strategy.answers(np.split(z, edges))) for z in noise.T]
    reading = joint_errors._FarthestReading.of(forecast.strategy)
    assert np.allclose(reading.farthest(noise, np.zeros(1)), [np.abs(e).max() for e in each])
    is_shorter = reading.strategy.workload.queries < forecast.workload.queries
    sums = any(strategy.sums_cells(t) for t in range(len(strategy.workload.terms)))
    assert is_shorter == (case != "circular" and sums)
    # What is solved as one matrix has no estimate of the cells.
    assert sums != (strategy.is_direct or (case, mechanism) == ("by groups", "laplace-optimum"))


def test_many_ranges_have_a_bound_that_tails_alone_do_not_reach() -> None:
    """45,150 ranges of few measured values, against fresh noise of running totals."""
    work = sf.ranges(sf.Domain({"x": 300}), "x")
    joint = JointErrors(sf.plan(work, PURE, mechanism="laplace-tree", cache=False).forecast)
    bound, forecast = joint.within(BETA), joint._forecast
    assert bound.draws == joint_errors.LIMITS.joint_draws
    noise = joint_errors._grid_noise(forecast, Draws("fresh noise"), 2000)
    drawn = joint_errors._FarthestReading.of(forecast.strategy).farthest(noise, np.zeros(1))
    assert np.mean(drawn > bound.counts) < BETA + 4 * (BETA / len(drawn)) ** 0.5
    assert bound.counts < 1.1 * np.quantile(drawn, 1 - BETA) < joint.by_tails(BETA)


SHEET = sf.Domain({"x": 40, "y": 30})
WALKS = {
    "both": sf.product(SHEET, {"x": "prefix", "y": "prefix"}),
    "one": sf.product(SHEET, {"x": "ranges", "y": "prefix"}),
    "with totals": sf.prefixes(SHEET, "x", by=["y"]) | sf.marginals(SHEET, [("y",)]),
}


@pytest.mark.parametrize("mechanism", ["laplace-table", "laplace-tree", "gaussian-table"])
@pytest.mark.parametrize("case", WALKS)
def test_running_totals_over_cells_are_bounded_by_where_they_end(case: str, mechanism: str) -> None:
    """Levy's inequality: half of beta for each attribute along which they run."""
    budget = PURE if mechanism.startswith("laplace") else GAUSSIAN
    plan = sf.plan(WALKS[case], budget, mechanism=mechanism, cache=False)
    forecast = plan.forecast.in_normal_form
    joint = JointErrors(forecast)
    joint.__dict__["_farthest"] = np.zeros(0)  # as where nothing can be drawn
    if (case, mechanism) == ("with totals", "laplace-tree"):
        assert joint._ends is None  # the tree runs along x, and the cells of y are asked
        return
    assert joint._ends is not None
    ends, walks = joint._ends
    bound, drawn = joint.within(BETA), _farthest(forecast, 4000, seed=7)
    assert bound.counts == ends.within(BETA / 2**walks).counts < joint.by_tails(BETA)
    allowed = BETA + 4 * (BETA / len(drawn)) ** 0.5
    assert np.mean(drawn > bound.counts) < allowed
    assert bound.counts < 1.2 * np.quantile(drawn, 1 - BETA)
    if walks == 2:  # a twin that forgets that they ran
        assert np.mean(drawn > ends.within(BETA).counts) > allowed


def test_sums_of_noise_have_the_law_of_its_grid() -> None:
    """Listed laws against convolutions, gamma variables against their distribution."""
    from scipy.stats import gamma, kstest

    q, reach = exp(-1 / 0.7), 60
    one = (1 - q) / (1 + q) * q ** np.abs(np.arange(-reach, reach + 1))
    law = np.convolve(np.convolve(one, one), one)
    levels = np.cumsum(law)
    for k in (-9, -1, 0, 1, 9):
        at = 3 * reach + k
        edges = np.array([levels[at - 1] + 1e-9, levels[at] - 1e-9])
        assert joint_errors._laplace_sums(0.7, 3, edges).tolist() == [k, k]
    for shape in (1.0, 2.0, 300.0):
        drawn = joint_errors._gammas(shape, 20_000, Draws("gamma"))
        assert kstest(drawn, gamma(shape).cdf).pvalue > 1e-3
        assert kstest(drawn, gamma(1.05 * shape).cdf).pvalue < 1e-3


@pytest.mark.parametrize("epsilon", [0.002, 1.0])
def test_listed_and_smooth_sums_agree(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the steps add to smooth noise is little where they are many, and never nothing."""
    budget = sf.Budget(epsilon=epsilon)
    forecast = sf.plan(WALKS["one"], budget, mechanism="laplace-table", cache=False).forecast

    def bound() -> float:
        joint = JointErrors(forecast)
        joint.__dict__["_farthest"] = np.zeros(0)
        assert joint._ends is not None
        return joint._ends[0].by_simulation(BETA)

    listed = bound()
    monkeypatch.setattr(joint_errors, "LIMITS", replace(joint_errors.LIMITS, summed_steps=0.0))
    smooth = bound()
    assert 0.97 * listed < smooth < (1.05 if epsilon < 1 else 4) * listed


def test_draws_have_the_law_of_the_noise_on_its_grid() -> None:
    """Scales of few steps, where a smooth law would be noticed."""
    strategy = sf.plan(sf.marginals(sf.Domain({"x": 2}), 1), PURE, mechanism="laplace").strategy
    blank = Forecast(strategy.workload, PURE, "add-remove", "rmse", None, strategy, (), ())
    forecast = replace(blank, noise=(BlockNoise("laplace", 2, 1),))
    drawn = joint_errors._grid_noise(forecast, Draws("test"), 20_000).reshape(-1)
    assert set(np.unique(drawn * 2 % 1)) == {0.0}
    q = exp(-1 / 2)
    share, exact, smooth = np.mean(drawn == 0), (1 - q) / (1 + q), 1 - exp(-1 / 4)
    assert abs(share - exact) < 5 * (exact / drawn.size) ** 0.5 < abs(share - smooth)
    assert drawn.var() == pytest.approx(forecast.noise[0].variance, rel=0.05)


def test_strategies_know_their_own_rows() -> None:
    for case in ("marginals", "fourier"):
        strategy = _planned(case).strategy.in_normal_form
        for term in (0, len(strategy.workload.terms) - 1):
            own, slow = strategy.readings(term), Reconstruction.readings(strategy, term)
            assert own.keys() == slow.keys()
            assert all(np.allclose(own[b], slow[b]) for b in own)


def test_equal_questions_have_equal_bounds_that_fall_with_beta() -> None:
    work, budget, mechanism = CASES["tree"]
    once = sf.plan(work, budget, mechanism=mechanism, cache=False)
    twice = sf.plan(work | work, budget, mechanism=mechanism, cache=False)
    assert once.error_bound(BETA) == twice.error_bound(BETA)
    bounds = [once.error_bound(beta) for beta in (1e-9, 1e-4, 0.01, 0.05, 0.5, 0.95)]
    assert bounds == sorted(bounds, reverse=True)
    with pytest.raises(PlanError, match="beta must be a probability between 0 and 1, got 1"):
        once.error_bound(1.0)


def test_a_plan_says_what_proves_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    said = str(_planned("tree").all_within(BETA))
    assert said.startswith("with probability 0.95 all 64 answers err by at most ")
    assert "public draws of the noise (a misleading seed has probability 8e-07" in said
    assert "by the tails of all answers" in str(_planned("laplace").all_within(BETA))
    few = replace(joint_errors.LIMITS, joint_size=10)
    monkeypatch.setattr(joint_errors, "LIMITS", few)
    assert _planned("tree").all_within(BETA).draws == 0
