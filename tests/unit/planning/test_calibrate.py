"""The privacy loss stated for a strategy is never below the true one."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.planning.calibrate import calibrate, privacy_loss
from sfumato.planning.mechanisms import MECHANISMS
from sfumato.planning.planner import choose
from sfumato.privacy.noise_laws import BlockNoise, laplace_variance, whole_gain
from sfumato.strategy.base import Strategy

DOMAIN = sf.Domain({"age": 6, "sex": 2})


def workload(signed: bool) -> sf.Workload:
    coefficients = np.array([[1.5, -2.0], [0.25, 1.0]]) if signed else np.array([[1.5, 2.0]])
    return (
        sf.marginals(DOMAIN, 1)
        | sf.prefixes(DOMAIN, "age", by=["sex"])
        | sf.product(DOMAIN, {"sex": coefficients})
    )


# Characters are for yes/no attributes only; test_every_mechanism.py has those.
FITTING = [name for name in MECHANISMS if not name.endswith("-fourier")]


def is_gaussian(mechanism: str) -> bool:
    return MECHANISMS[mechanism].noise == "gaussian"


def columns(strategy: Strategy, noise: tuple[BlockNoise, ...]) -> np.ndarray:
    """The measured matrix, each block divided by its noise scale: one row per cell."""
    out = []
    for row in np.eye(DOMAIN.size):
        counts = row.reshape(DOMAIN.shape)
        parts = []
        for block, law in zip(strategy.blocks, noise, strict=True):
            rest = tuple(i for i, n in enumerate(DOMAIN.names) if n not in block.term.attributes)
            parts.append(block.term.answer(counts.sum(axis=rest)) / law.scale)
        out.append(np.concatenate(parts))
    return np.array(out)


@pytest.mark.parametrize("mechanism", FITTING)
@pytest.mark.parametrize("signed", [False, True])
def test_stated_loss_covers_every_pair_of_neighbours(mechanism: str, signed: bool) -> None:
    for neighbours in ("add-remove", "replace-one"):
        budget = sf.Budget(mu=1) if is_gaussian(mechanism) else sf.Budget(epsilon=1)
        found = choose(workload(signed), budget, neighbours, mechanism=mechanism)  # type: ignore[arg-type]
        cells = columns(found.strategy, found.noise)
        # The domain drops what it does not know: a replaced record may also fall in no cell.
        replaced = [*(a - b for a, b in combinations(cells, 2)), *cells]
        moves = list(cells) if neighbours == "add-remove" else replaced
        p = 2 if is_gaussian(mechanism) else 1
        true = max((np.abs(m) ** p).sum() for m in moves)
        stated = privacy_loss(found.strategy, found.noise, neighbours)  # type: ignore[arg-type]
        assert true <= stated <= 1
        if neighbours == "add-remove":
            assert true >= 0.998 * stated, "the noise is not wastefully large"


def test_replace_one_on_a_histogram_costs_root_two_not_two() -> None:
    work = sf.marginals(DOMAIN, [("age", "sex")])
    one = choose(work, sf.Budget(mu=1), "replace-one", mechanism="gaussian-table")
    two = choose(work, sf.Budget(mu=1), "add-remove", mechanism="gaussian-table")
    assert one.noise[0].scale == pytest.approx(np.sqrt(2) * two.noise[0].scale, rel=1e-4)


def test_a_privacy_unit_of_r_rows_multiplies_the_noise_by_r() -> None:
    from sfumato.domain.privacy_unit import PrivacyUnit

    work = sf.marginals(DOMAIN, 1)
    for mechanism in ("laplace", "gaussian"):
        budget = sf.Budget(epsilon=1, delta=1e-6)
        plain = choose(work, budget, "add-remove", mechanism=mechanism)
        five = choose(work, budget, "add-remove", mechanism=mechanism, unit=PrivacyUnit("id", 5))
        assert five.noise[0].scale == pytest.approx(5 * plain.noise[0].scale, rel=1e-4)


@pytest.mark.parametrize("mechanism", FITTING)
def test_less_noise_never_costs_less(mechanism: str) -> None:
    budget = sf.Budget(mu=1) if is_gaussian(mechanism) else sf.Budget(epsilon=1)
    found = choose(workload(False), budget, "add-remove", mechanism=mechanism)
    before = privacy_loss(found.strategy, found.noise, "add-remove")
    for i, law in enumerate(found.noise):
        fewer = replace(law, units=law.units - 1)
        noise = (*found.noise[:i], fewer, *found.noise[i + 1 :])
        assert privacy_loss(found.strategy, noise, "add-remove") >= before


def test_the_cost_is_within_the_budget_and_close_to_it() -> None:
    for epsilon in (0.001, 0.3, 1, 12):
        found = choose(workload(False), sf.Budget(epsilon=epsilon), "add-remove")
        cost = found.cost.pure_epsilon
        assert Fraction(epsilon) * Fraction(999, 1000) < cost <= Fraction(epsilon)


def test_laplace_noise_is_on_the_grid_of_the_measured_values() -> None:
    found = choose(workload(True), sf.Budget(epsilon=1), "add-remove", mechanism="laplace")
    for block, law in zip(found.strategy.blocks, found.noise, strict=True):
        assert law.grid_bits == block.term.fraction_bits
        assert law.units >= 2**32
        assert law.scale == law.units / 2 ** (law.grid_bits + law.scale_bits)
        assert law.variance < 2 * law.scale**2


def test_gaussian_noise_is_on_a_fine_grid_that_holds_the_measured_values() -> None:
    found = choose(workload(True), sf.Budget(mu=1), "add-remove", mechanism="gaussian")
    for block, law in zip(found.strategy.blocks, found.noise, strict=True):
        assert law.grid_bits >= block.term.fraction_bits
        assert law.units >= 2**16
        assert law.scale == law.units / 2**law.grid_bits


def test_noise_far_below_a_step_is_not_drawn_and_not_paid_for() -> None:
    """At epsilon 1000 a scale would be 1/1000: it is 1/16 of a step, which costs 16."""
    found = choose(sf.marginals(DOMAIN, 1), sf.Budget(epsilon=1000), "add-remove")
    assert found.strategy.noise == "laplace"
    for law in found.noise:
        assert law.steps == Fraction(1, 16)
        assert law.grid_bits == 0
    assert 1000 > found.cost.pure_epsilon > 15


def test_errors_of_laplace_noise_never_grow_with_epsilon() -> None:
    """The twin is the law of before: a grid of half steps beyond epsilon 16."""
    work = sf.marginals(sf.Domain({"age": 30}), 1)
    epsilons = (1, 4, 12, 15.9, 16, 16.1, 18, 20, 31, 33, 64, 300)
    plans = [sf.plan(work, sf.Budget(epsilon=e), noise="laplace") for e in epsilons]
    errors = [plan.rmse for plan in plans]
    assert all(after <= before * 1.000001 for before, after in pairwise(errors))
    assert all(plan.certificate >= 1 - 1e-6 for plan in plans)
    halves = math.sqrt(laplace_variance(Fraction(2, 20)) / 4)  # at 20, in steps of a half
    assert halves > 9 * errors[epsilons.index(16)]


def test_an_error_below_what_laplace_noise_is_drawn_for_is_refused_in_words() -> None:
    work = sf.marginals(sf.Domain({"age": 30}), 1)
    assert sf.plan(work, error=6e-4, noise="laplace").rmse <= 6e-4
    with pytest.raises(sf.errors.PlanError, match="larger error"):
        sf.plan(work, error=1e-4, noise="laplace")


def test_no_grid_that_holds_the_values_gives_laplace_noise_a_smaller_variance() -> None:
    """`is_fine` is the noise of before: the same epsilon, and more of it."""
    strategy = choose(workload(True), sf.Budget(epsilon=1), "add-remove").strategy
    for loss in (0.1, 1.0, 4.0):
        whole = calibrate(strategy, loss, "add-remove")
        fine = calibrate(strategy, loss, "add-remove", is_fine=True)
        for a, b in zip(whole, fine, strict=True):
            assert a.variance < b.variance
            assert a.variance >= b.variance * whole_gain(loss) ** 2 * (1 - 1e-4)
        for noise in (whole, fine):
            assert privacy_loss(strategy, noise, "add-remove") <= Fraction(loss)


def test_variance_of_the_noise_is_that_of_its_law() -> None:
    gaussian = BlockNoise("gaussian", 2**16, 10)
    assert gaussian.variance == pytest.approx(64.0**2, rel=1e-8)
    laplace = BlockNoise("laplace", 2**16, 10)
    assert laplace.variance == pytest.approx(2 * 64.0**2, rel=1e-8)


def test_a_budget_that_needs_an_undrawable_scale_is_refused() -> None:
    work = sf.marginals(DOMAIN, 1)
    strategy = choose(work, sf.Budget(epsilon=1), "add-remove", mechanism="laplace").strategy
    with pytest.raises(PlanError, match="noise scale"):
        calibrate(strategy, 2.0**70, "add-remove")
